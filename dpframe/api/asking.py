"""What all questions to a table share: its columns, the budget, and the order in which it is spent."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.accounting.unit import Unit
from dpframe.api.asked import Asked, batches, check_types
from dpframe.api.identity import content, warn_of_parts
from dpframe.api.planning import promise_of
from dpframe.api.query_answers import (
    Answered,
)
from dpframe.api.query_budget import Spending, TotalBudget, check_share
from dpframe.central.answers import MECHANISMS, Noise, Portion
from dpframe.central.counts import Codes
from dpframe.central.questions import Question
from dpframe.errors import (
    AlreadySanitizedError,
    DpframeWarning,
    ParameterError,
    check_fraction,
    check_whole,
    name_list,
    warn,
)
from dpframe.infer.declared import declared_space
from dpframe.infer.drafted import check_reviewed
from dpframe.io.files import FileInput
from dpframe.io.frames import wrap
from dpframe.io.inputs import open_input
from dpframe.io.table import Table
from dpframe.ledger.account import Account, Cost
from dpframe.ledger.currencies import Amount, down, up
from dpframe.noise.keystream import Keystream

T = TypeVar("T", "pd.Series[Any]", pd.DataFrame)

AUTO = ("geometric", "gaussian")
"""Without a named mechanism, the one of these with less noise is taken."""


Fitted = TypeVar("Fitted", bound=tuple[Any, Any, Budget])
"""A mechanism's name, its noise, and what that costs by itself."""


class Asking:
    """A table, the spaces of its columns, and the budget of its questions; see `Queries`."""

    def __init__(
        self,
        table: Any,
        budget: float | Budget | None = None,
        spaces: Mapping[str, Any] | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        contributions: int = 1,
        accounting: str | None = None,
        confidence_level: float = 0.95,
        ledger: Any = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> None:
        self._table: Table = open_input(Path(table)) if isinstance(table, str | os.PathLike) else wrap(table)
        if self._table.text is not None:
            raise AlreadySanitizedError("the table is a release, which its estimates (.dp) answer from at no cost")
        if not self._table.n:
            raise ParameterError("the table has no rows; there is nothing to ask of it")
        self.contributions = check_whole(contributions, "contributions", of="rows per person")
        self.confidence_level = check_fraction(confidence_level, "confidence_level", 0.95)
        self._declared = _declared({} if spaces is None else spaces, self._table.names)
        if isinstance(self._table, FileInput):
            known = {
                field.name: declared_space(field, self._declared) for field in self._table.fields([*self._declared])
            }
            self._table = self._table.typed(known, known)
        self._account = Account.of(ledger, dataset, part)
        if self._account is not None and part is not None:
            warn_of_parts(self._account, content(self._table))
        self._spending = Spending(TotalBudget.of(_promise(budget, epsilon, delta, self._table.n), accounting))

    def __repr__(self) -> str:
        return f"<Queries of {self.n:,} rows: {self.spent} spent of {self._spending.total.promise.stated()}>"

    @property
    def n(self) -> int:
        """Rows of the table, which are public."""
        return self._table.n

    @property
    def left(self) -> float:
        """The share that is left, rounded down."""
        return down(1 - self._spending.spent)

    @property
    def spent(self) -> Amount:
        """What was spent as (ε, δ): in Gaussian accounting ε is that of all answers together at the budget's δ."""
        return self._spending.total.amount(self._spending.spent, up)

    @property
    def remaining(self) -> Amount:
        """What the share that is left comes to as (ε, δ), by itself."""
        return self._spending.total.amount(1 - self._spending.spent, down)

    def _column(self, name: Any) -> Asked:
        """Return a column; `ParameterError` if the table has none of this name."""
        if not isinstance(name, str) or name not in self._table.names:
            raise ParameterError(f"{name!r} is not a column of the table; columns are {name_list(self._table.names)}")
        (field,) = self._table.fields([name])
        return Asked.of(field, self._declared)

    def _answer(self, question: Question, columns: Any, share: float, mechanism: str | None, kind: str) -> Answered:
        """Return a question's numbers with noise on each."""
        named = _named(mechanism)

        def fitted(portion: Portion) -> tuple[str, tuple[Noise, ...], Budget]:
            chosen, noises = _fitted(question, portion, named)
            return chosen, noises, portion.spent_by(noises)

        part, (chosen, noises, budget), stream = self._paid(question.add, list(columns), share, kind, fitted)
        values = tuple(
            np.array(noise.add(totals, stream.column(json.dumps([kind, i]), "measure")), dtype=np.float64)
            for i, (totals, noise) in enumerate(zip(question.totals, noises, strict=True))
        )
        return Answered(values, noises, facts_of(chosen, part, budget))

    def _paid(
        self,
        add: Callable[[dict[str, Codes]], None],
        asked: Sequence[Asked],
        share: float,
        kind: str,
        fit: Callable[[Portion], Fitted],
    ) -> tuple[Fraction, Fitted, Keystream]:
        """Check, count, spend, and take the key to draw with: in this order, here and nowhere else.

        ``add`` is given the codes of every batch; ``fit`` finds the noise of a portion, and what it costs by itself, or
        refuses.
        """
        part = check_share(share)
        check_types(asked)
        self._spending.refuse(part)
        portion = self._spending.total.portion(part)
        fitted = fit(portion)
        for codes in batches(self._table, asked):
            add(codes)

        cost = Cost(fitted[2], portion.step, unit=Unit(self.contributions))
        self._spending.once(part, lambda: self._enter(cost, kind))

        return part, fitted, Keystream(fresh_key())

    def _enter(self, cost: Cost, kind: str) -> None:
        if self._account is not None:
            self._account.spend(cost, f"query: {kind}")


def fresh_key() -> bytes:
    """Return the secret key of one answer, used for no other."""
    return secrets.token_bytes(32)


def _promise(budget: Any, epsilon: Any, delta: Any, n: int) -> Budget:
    if (budget is None) == (epsilon is None):
        raise ParameterError("give a budget, e.g. Budget(1.0, 1e-6), or epsilon and delta, and not both")
    epsilon = budget if epsilon is None else epsilon
    if isinstance(epsilon, Budget):
        if delta is not None:
            raise ParameterError("delta is already in the Budget; leave it out")
        epsilon, delta = epsilon.epsilon, epsilon.delta
    promise = promise_of(epsilon, delta, n)
    if n > 1 and promise.delta > 1 / n:
        warn(f"delta={promise.delta:g} is above 1/n, so that whole rows may be revealed; take less", DpframeWarning)
    return promise


def _declared(spaces: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(spaces, Mapping):
        raise ParameterError("spaces must be a mapping {column: space}")
    check_reviewed(spaces)
    stray = [str(name) for name in spaces if name not in names]
    if stray:
        raise ParameterError(f"spaces names {stray[0]!r}, which is not a column; columns are {name_list(names)}")
    return dict(spaces)


def _named(mechanism: Any) -> tuple[str, ...]:
    """Return the mechanisms to choose from."""
    if mechanism is None:
        return AUTO
    if not isinstance(mechanism, str) or mechanism not in MECHANISMS:
        raise ParameterError(f"mechanism must be one of {', '.join(MECHANISMS)}, or None for the one of less noise")
    return (mechanism,)


def _fitted(question: Question, portion: Portion, named: Sequence[str]) -> tuple[str, tuple[Noise, ...]]:
    """Return the mechanism of least noise, and its noises: from only public facts."""
    usable = [name for name in named if len(named) == 1 or name != "gaussian" or portion.budget.delta > 0]
    portions = portion.split(question.shares)
    found: dict[str, tuple[Noise, ...]] = {}
    for name in usable:
        try:
            found[name] = tuple(MECHANISMS[name](*each) for each in zip(question.numbers, portions, strict=True))
        except ParameterError:
            if not found and name == usable[-1]:
                raise

    def noise_of(name: str) -> float:
        terms = zip(question.numbers, found[name], strict=True)
        return math.fsum(noise.variance / numbers.span**2 for numbers, noise in terms)

    best = min(found, key=noise_of)
    return best, found[best]


def facts_of(mechanism: str, share: Fraction, cost: Budget) -> dict[str, Any]:
    """Return what is said of an answer: how it was made, and what it cost."""
    return {"mechanism": mechanism, "share": float(share), "epsilon": cost.epsilon, "delta": cost.delta}


def with_facts(result: T, told: Answered) -> T:
    """Return a result with what is said of its answer in its attrs."""
    result.attrs.update(told.facts)
    return result
