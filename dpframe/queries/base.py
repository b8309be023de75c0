"""The common part of all questions to a table: its columns, the budget, and the order of spending."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.accounting.unit import NEIGHBOURS, Unit
from dpframe.errors import (
    AlreadySanitizedError,
    DpframeWarning,
    ParameterError,
    check_fraction,
    check_whole,
    is_one_of,
    name_list,
    warn,
)
from dpframe.estimate.axes import Axis, make_axis
from dpframe.estimate.conditions import ValueCondition, Where
from dpframe.inference.drafted import check_reviewed
from dpframe.ledger.account import Cost, Job, OpenAccount
from dpframe.ledger.currencies import Amount, down, up
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import default_delta
from dpframe.plan.declared import declared_space, warn_of_whole_bounds
from dpframe.queries.columns import QueryColumn, batches, check_types, linear
from dpframe.queries.shares import QuerySpending, TotalBudget, check_share
from dpframe.queries.values import Answered
from dpframe.release.identity import content, warn_of_parts
from dpframe.release.planning import promise_of
from dpframe.tables.files import FileInput
from dpframe.tables.frames import wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.table import Table
from dpframe.totals.answers import MECHANISMS, Noise, Portion
from dpframe.totals.counts import Codes
from dpframe.totals.questions import Groups, Holds, Question
from dpframe.totals.set_questions import holds_items

T = TypeVar("T", "pd.Series[Any]", pd.DataFrame)

MOST_GROUPS = 1_000
"""Most values of a column of numbers by which rows are grouped."""

AUTO = ("geometric", "gaussian")
"""Without a named mechanism, the one of these with less noise is taken."""


D = TypeVar("D")
Fitted = TypeVar("Fitted", bound=tuple[Any, Any, Budget])
"""A mechanism's name, its noise, and the noise's own cost."""


class Asking:
    """A table, the spaces of its columns, and the budget of its questions; see `Queries`."""

    def __init__(
        self,
        frame: Any,
        budget: float | Budget | None = None,
        spaces: Mapping[str, Any] | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        contributions: int = 1,
        neighbours: str = "replace_one",
        accounting: str | None = None,
        confidence_level: float = 0.95,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self._table: Table = open_input(Path(frame)) if isinstance(frame, str | os.PathLike) else wrap(frame)
        if self._table.text is not None:
            raise AlreadySanitizedError("the table is a release, which its estimates (.dp) answer from at no cost")
        if not is_one_of(neighbours, NEIGHBOURS):
            raise ParameterError(f"neighbours must be one of {', '.join(NEIGHBOURS)}")
        rows = check_whole(contributions, "contributions", of="rows per person")
        self.unit = Unit(rows, added=neighbours == "add_remove")
        # If rows may be added, their number is a secret, and an error for no rows would reveal that number.
        if not self._table.n and not self.unit.added:
            raise ParameterError("the table has no rows; there is nothing to ask of it")
        self.confidence_level = check_fraction(confidence_level, "confidence_level", 0.95)
        self._declared = _declared({} if spaces is None else spaces, self._table.names)
        if isinstance(self._table, FileInput):
            fields = self._table.fields([*self._declared])
            declared_spaces = {field.name: declared_space(field, self._declared) for field in fields}
            warn_of_whole_bounds(fields, self._declared)
            # Text of CSV files is read as its declared space.
            self._table = self._table.typed(declared_spaces, declared_spaces)
        self._account = OpenAccount.of(ledger, dataset)
        if self._account is not None and self._account.part is not None:
            warn_of_parts(self._account, content(self._table))
        # The default δ follows from the number of rows, and would reveal a secret number.
        known_rows = None if self.unit.added else self._table.n
        self._spending = QuerySpending(TotalBudget.of(_promise(budget, epsilon, delta, known_rows), accounting))

    def __repr__(self) -> str:
        rows = "a secret number of" if self.unit.added else f"{self.n:,}"
        total_text = self._spending.total.promise.stated()
        return f"<Queries of {rows} rows: {self.spent} spent of {total_text}, {self.unit.neighbours}>"

    @property
    def n(self) -> int:
        """Rows of the table, which are public if neighbours replace a row.

        Raises
        ------
        ParameterError
            If neighbours add or remove a row: the number of rows is a secret.
        """
        if self.unit.added:
            raise ParameterError(
                'the number of rows is a secret with neighbours="add_remove"; ask for count(share=…), which has noise'
            )
        return self._table.n

    @property
    def contributions(self) -> int:
        """Rows that one person may own."""
        return self.unit.rows

    @property
    def left(self) -> float:
        """The remaining share, rounded down."""
        return down(1 - self._spending.spent)

    @property
    def spent(self) -> Amount:
        """The spent budget as (ε, δ): in Gaussian accounting the joint ε of all answers at the budget's δ."""
        return self._spending.total.amount(self._spending.spent, up)

    @property
    def remaining(self) -> Amount:
        """The remaining share by itself, as (ε, δ)."""
        return self._spending.total.amount(1 - self._spending.spent, down)

    def _column(self, name: Any) -> QueryColumn:
        """Return a column; `ParameterError` if the table has none of this name."""
        column_list = name_list(self._table.names)
        if not isinstance(name, str):
            raise ParameterError(
                f"a column is named by text, and {type(name).__name__} was given; columns are {column_list}"
            )
        if name not in self._table.names:
            raise ParameterError(f"{name!r} is not a column of the table; columns are {column_list}")
        (field,) = self._table.fields([name])
        return QueryColumn.of(field, self._declared)

    def _conditions(
        self, where: Mapping[str, Any] | None, *columns: QueryColumn
    ) -> tuple[list[QueryColumn], dict[str, Holds]]:
        """Return the columns, with the columns of the conditions, and the conditions by column."""
        query_columns = {column.name: column for column in columns}
        if where is None:
            return list(query_columns.values()), {}

        def column_of(name: str) -> Any:
            query_columns.setdefault(name, self._column(name))
            return query_columns[name].column

        conditions = {
            condition.column.name: (
                condition.holds
                if isinstance(condition, ValueCondition)
                else holds_items(condition.sets.space.count, condition.places, condition.how, condition.wrong)
            )
            for condition in Where.of(where, column_of).conditions
        }
        return list(query_columns.values()), conditions

    def _row_groups(
        self, by: str | None, where: Mapping[str, Any] | None, *columns: QueryColumn
    ) -> tuple[list[QueryColumn], Groups, pd.Index[Any] | None]:
        """Return the columns to read, the groups of rows, and the groups' labels, if there are several groups."""
        query_columns, conditions = self._conditions(where, *columns)
        if by is None:
            return query_columns, Groups(conditions), None
        group = self._column(by)
        if group.space.holds_sets or not (group.space.is_listed or group.space.size <= MOST_GROUPS):
            raise ParameterError(
                f"by needs a public list of groups, which column {name_list([by])} does not have; declare its "
                "categories, or few values"
            )
        axis = make_axis(group.column, None, group.zone)
        count = axis.cells - group.space.has_null
        read_columns = list({column.name: column for column in (*query_columns, group)}.values())
        return read_columns, Groups(conditions, by, count, axis.cell_of), axis.labels[:count]

    def _answer(self, question: Question, columns: Any, share: float, mechanism: str | None, kind: str) -> Answered:
        """Return a question's numbers with noise on each."""
        mechanism_names = named_mechanisms(mechanism)

        def fit_noises(portion: Portion) -> tuple[str, tuple[Noise, ...], Budget]:
            mechanism_name, noises = fitted_noises(question, portion, mechanism_names)
            return mechanism_name, noises, portion.spent_by(noises)

        candidates = [fit_noises(portion) for portion in self._allowed_portions(share)]
        # The choice depends on public facts only, so that it costs nothing.
        best_fit = min(candidates, key=lambda candidate: noise_of(question, candidate[1]))

        def draw_answer(receipt: Paid[tuple[str, tuple[Noise, ...], Budget]]) -> Answered:
            mechanism_name, noises, budget = receipt.fitted
            values = tuple(
                np.array(noise.add(totals, receipt.stream.column(json.dumps([kind, i]), "measure")), dtype=np.float64)
                for i, (totals, noise) in enumerate(zip(question.totals, noises, strict=True))
            )
            return Answered(values, noises, facts_of(mechanism_name, receipt.share, budget, self.unit))

        return self._run_answer_job(question.add, list(columns), share, kind, best_fit, draw_answer)

    def _count_table(self, noisy_answer: Answered, labels: pd.Index[Any]) -> pd.DataFrame:
        """Return a table of counts, each with its noise's own interval."""
        results = linear(noisy_answer.values[0], noisy_answer.noises[0], 1.0, self.confidence_level)
        return with_facts(pd.DataFrame(results, index=labels), noisy_answer)

    def _allowed_portions(self, share: float) -> list[Portion]:
        """Return the portions that an answer may spend for a share; a ledger allows only the first."""
        portions = self._spending.total.portions(check_share(share))
        return portions if self._account is None else portions[:1]

    def _run_answer_job(
        self,
        add: Callable[[dict[str, Codes]], None],
        query_columns: Sequence[QueryColumn],
        share: float,
        kind: str,
        fitted: Fitted,
        draw: Callable[[Paid[Fitted]], D],
    ) -> D:
        """Run the job of an answer, and return the result of ``draw``; ``add`` receives the codes of every batch."""
        table, spending, account = self._table, self._spending, self._account
        return _AnswerJob(table, spending, account, self.unit, add, query_columns, share, kind, fitted, draw).run()


@dataclass(frozen=True)
class Paid(Generic[Fitted]):
    """The inputs of a paid answer: its share, its noise, and the stream of its key."""

    share: Fraction
    fitted: Fitted
    stream: Keystream


@dataclass(frozen=True)
class _AnswerJob(Job[tuple[Fraction, Portion], D], Generic[Fitted, D]):
    """The job of one answer: its noise is found and its rows are counted before anything is spent."""

    table: Table
    spending: QuerySpending
    account: OpenAccount | None
    unit: Unit
    add: Callable[[dict[str, Codes]], None]
    asked: Sequence[QueryColumn]
    share: float
    kind: str
    fitted: Fitted
    then: Callable[[Paid[Fitted]], D]

    def check(self) -> tuple[Fraction, Portion]:
        part = check_share(self.share)
        check_types(self.asked)
        # Before rows are read, so that an empty budget costs no time.
        self.spending.refuse(part)
        for codes in batches(self.table, self.asked):
            self.add(codes)
        return part, self.spending.total.portion(part)

    def spend(self, checked: tuple[Fraction, Portion]) -> None:
        part, portion = checked
        cost = Cost(self.fitted[2], portion.step, unit=self.unit)

        def pay() -> None:
            if self.account is not None:
                self.account.spend(cost, f"query: {self.kind}")

        self.spending.once(part, pay)

    def key(self) -> bytes:
        return fresh_key()

    def draw(self, checked: tuple[Fraction, Portion], receipt: str | None, key: bytes) -> D:
        return self.then(Paid(checked[0], self.fitted, Keystream(key)))


def fresh_key() -> bytes:
    """Return the secret key of one answer, used for no other."""
    return secrets.token_bytes(32)


def counted_axis(asked: QueryColumn, bins: Any) -> Axis:
    """Return the cells that a column's rows are counted in: its values, or bins of numbers and times."""
    listed = asked.space.is_listed or asked.space.values <= 2
    return make_axis(asked.column, 10 if bins is None and not listed else bins, asked.zone)


def _promise(budget: Any, epsilon: Any, delta: Any, n: int | None) -> Budget:
    """Return the total budget of all questions; ``n`` is None if the number of rows is a secret."""
    if (budget is None) == (epsilon is None):
        raise ParameterError("give a budget, e.g. Budget(1.0, 1e-6), or epsilon and delta, and not both")
    epsilon = budget if epsilon is None else epsilon
    if isinstance(epsilon, Budget):
        if delta is not None:
            raise ParameterError("delta is already in the Budget; leave it out")
        epsilon, delta = epsilon.epsilon, epsilon.delta
    if n is None and delta is None:
        raise ParameterError(
            'delta is needed with neighbours="add_remove", as its default would reveal the number of rows; pass '
            "delta=1e-6"
        )
    promise = promise_of(epsilon, delta, n or 1)
    if n is not None and n > 1 and promise.delta > 1 / n:
        warn(
            f"delta={promise.delta:g} is above 1/n, so that whole rows may be revealed; "
            f"pass delta={default_delta(n):.2g}",
            DpframeWarning,
        )
    return promise


def _declared(spaces: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(spaces, Mapping):
        raise ParameterError("spaces must be a mapping {column: space}")
    check_reviewed(spaces)
    unknown_names = [str(name) for name in spaces if name not in names]
    if unknown_names:
        raise ParameterError(
            f"spaces names {unknown_names[0]!r}, which is not a column; columns are {name_list(names)}"
        )
    return dict(spaces)


def check_mechanism(mechanism: Any, known: Iterable[str]) -> None:
    """Raise `ParameterError` unless a mechanism is None or one of the known names."""
    names = list(known)
    if mechanism is not None and not is_one_of(mechanism, names):
        raise ParameterError(f"mechanism must be one of {', '.join(names)}, or None for the one that errs less")


def named_mechanisms(mechanism: str | None) -> tuple[str, ...]:
    """Return the mechanisms to choose from."""
    check_mechanism(mechanism, MECHANISMS)
    return AUTO if mechanism is None else (mechanism,)


def fitted_noises(question: Question, portion: Portion, named: Sequence[str]) -> tuple[str, tuple[Noise, ...]]:
    """Return the mechanism of least noise, and its noises: from only public facts."""
    # A mechanism named by the caller is kept, so that its own error explains a missing δ.
    usable_names = [name for name in named if len(named) == 1 or name != "gaussian" or portion.budget.delta > 0]
    portions = portion.split(question.shares)
    noises_by_name: dict[str, tuple[Noise, ...]] = {}
    for name in usable_names:
        try:
            noises_by_name[name] = tuple(
                MECHANISMS[name](*numbers_and_portion)
                for numbers_and_portion in zip(question.numbers, portions, strict=True)
            )
        except ParameterError:
            # One mechanism may refuse a small portion: an error counts only if every mechanism refuses.
            if not noises_by_name and name == usable_names[-1]:
                raise

    best_name = min(noises_by_name, key=lambda name: noise_of(question, noises_by_name[name]))
    return best_name, noises_by_name[best_name]


def noise_of(question: Question, noises: Sequence[Noise]) -> float:
    """Return the sum of noise variances of a question's numbers, each in squared sensitivities."""
    terms = zip(question.numbers, noises, strict=True)
    return math.fsum(noise.variance / numbers.span**2 for numbers, noise in terms)


def facts_of(mechanism: str, share: Fraction, cost: Budget, unit: Unit) -> dict[str, Any]:
    """Return the attrs of an answer: mechanism, share, cost and neighbours."""
    facts = {"mechanism": mechanism, "share": float(share), "epsilon": cost.epsilon, "delta": cost.delta}
    return {**facts, "neighbours": unit.neighbours}


def with_facts(result: T, told: Answered) -> T:
    """Return a result with the facts of its answer in its attrs."""
    result.attrs.update(told.facts)
    return result
