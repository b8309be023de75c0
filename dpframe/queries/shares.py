"""The total budget of a table's queries, divided into shares of ε and δ, or of μ²; each share is spent once.

A **share** is of (ε, δ) where answers are added up by ε and δ (basic composition), and of M² where they are added up in
Gaussian differential privacy with a slack: M is the μ of the step that the whole promise is
(`dpframe.accounting.gaussian_dp.promise_step`). The sum of shares is exact, a share being the decimal that Python
prints for it, and never exceeds 1. Both sums are valid for questions that are chosen by earlier answers
(`dpframe.ledger.currencies`).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

from dpframe.accounting.budget import Budget, round_down
from dpframe.accounting.gaussian_dp import Step, promise_step, share_of_step, step_epsilon
from dpframe.errors import BudgetExceeded, ParameterError
from dpframe.ledger.currencies import Amount, currency_of, decimals, down, shown, up
from dpframe.totals.answers import Portion


@dataclass(frozen=True)
class TotalBudget:
    """A promise, and its step if answers are added up by μ²."""

    promise: Budget
    step: Step | None = None

    @classmethod
    def of(cls, promise: Budget, accounting: str | None) -> TotalBudget:
        """Return the total budget in the named accounting; None chooses by δ, as a ledger does."""
        return _TOTAL_BUDGETS[currency_of(accounting, promise.delta).name](promise)

    def portion(self, share: Fraction) -> Portion:
        """Return the portion that an answer of a share may spend, rounded down."""
        part = decimals(self.promise.epsilon, self.promise.delta)
        epsilon, delta = down(part.loss * share), down(part.slack * share)
        if self.step is None:
            return Portion(Budget(epsilon, delta))
        step = self._step_of_share(share)
        return Portion(Budget(min(step_epsilon(step, delta), self.promise.epsilon), delta), step)

    def portions(self, share: Fraction) -> list[Portion]:
        """Return the portions that an answer may spend for a share; the whole budget may be spent as one (ε, δ), too.

        Pure noise costs little of (ε, δ), and much of the step that adds up.
        """
        one_time_portions = [Portion(self.promise)] if share == 1 and self.step is not None else []
        return [self.portion(share), *one_time_portions]

    def _step_of_share(self, share: Fraction) -> Step:
        assert self.step is not None
        mu = share_of_step(self.step, round_down(share)).mu
        return Step(mu, round_down(Fraction(self.step.delta) * share))

    def amount(self, share: Fraction, rounded: Callable[[Fraction], float]) -> Amount:
        """Return a share as (ε, δ), in Gaussian accounting at the whole δ."""
        part = decimals(self.promise.epsilon, self.promise.delta)
        if self.step is None or share in (0, 1):
            return Amount(rounded(part.loss * share), rounded(part.slack * share))
        epsilon = min(step_epsilon(self._step_of_share(share), self.promise.delta), self.promise.epsilon)
        rounded_epsilon = rounded(Fraction(epsilon) * (1 + _ROUNDING_TOLERANCE * (1 if rounded is up else -1)))
        return Amount(min(rounded_epsilon, self.promise.epsilon), self.promise.delta)


_ROUNDING_TOLERANCE = Fraction(1, 10**12)
"""Relative error that a root and a bisection may have."""


def _gaussian_total(promise: Budget) -> TotalBudget:
    if promise.delta == 0:
        raise ParameterError('accounting="gaussian" needs a delta above 0; raise delta, or take accounting="basic"')
    return TotalBudget(promise, promise_step(promise))


_TOTAL_BUDGETS: Mapping[str, Callable[[Budget], TotalBudget]] = {"basic": TotalBudget, "gaussian": _gaussian_total}


def check_share(share: Any) -> Fraction:
    """Return a share as the decimal that it prints as, or raise `ParameterError` unless it lies in (0, 1]."""
    # `float` would accept text and truth values.
    number = math.nan if isinstance(share, bool | str) else share
    try:
        valid = 0 < float(number) <= 1
    except (TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise ParameterError("share must lie in (0, 1], a part of the budget of all questions, e.g. share=0.1")
    return Fraction(str(float(number)))


@dataclass
class QuerySpending:
    """Share of a total budget that the threads of one process spent; other processes are not counted."""

    total: TotalBudget
    spent: Fraction = Fraction(0)
    _lock: AbstractContextManager[Any] = field(default_factory=threading.RLock, repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied in depth."""
        raise TypeError(
            "Queries cannot be pickled or copied in depth: the copy would spend the same budget again; make Queries in "
            "each process, with a ledger= that all share"
        )

    def once(self, share: Fraction, pay: Callable[[], None]) -> None:
        """Spend a share while ``pay`` enters it in a ledger; if that refuses, nothing is spent.

        Raises `BudgetExceeded` if less is left.
        """
        with self._lock:
            # Within the lock: two threads must not both see the last share as unspent.
            self.refuse(share)
            pay()
            self.spent += share

    def refuse(self, share: Fraction) -> None:
        """Raise `BudgetExceeded` unless so much is left, in the process that the total budget belongs to."""
        # A fork copies the spent share: parent and child would each spend the whole budget.
        if os.getpid() != self._process:
            raise BudgetExceeded(
                "this process was forked from the one that made Queries and its budget; nothing was spent; make "
                "Queries in each process, with one ledger= for all"
            )
        if share > 1 - self.spent:
            raise BudgetExceeded(
                f"the questions have share={shown(down(1 - self.spent))} left of their budget, and "
                f"share={shown(up(share))} was asked: nothing was spent and nothing was drawn; ask for no more than "
                "is left"
            )
