"""A budget in a ledger, and the one line along which everything is drawn: check, spend, take the key, draw."""

from __future__ import annotations

import hashlib
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from dpframe.accounting.budget import Budget, compose
from dpframe.accounting.gaussian_dp import Step, composed_steps, step_epsilon
from dpframe.accounting.unit import Unit
from dpframe.errors import ParameterError, name_list
from dpframe.inference.inferred import Inferred
from dpframe.inference.private import Measurement
from dpframe.ledger.currencies import covers, difference
from dpframe.ledger.draws import Draws
from dpframe.ledger.ledger import Account, as_ledger
from dpframe.plan.plan import Plan

TOGETHER = (
    'ledger and dataset go together, and part and run with them, e.g. ledger="ledger.sqlite", dataset="survey-2026"'
)
"""Error text for an argument without its partner."""

RELEASE = "release"
"""The label of a ledger's entry that is for all of a release."""

INFERENCE = "inference"
"""The label of a ledger's entry that is only for private inference."""


@dataclass(frozen=True)
class Cost:
    """A cost and its privacy unit, in both currencies; without a step by domination of its (ε, δ).

    ``wanted`` is a digest of all that decides the release, except the table; None if no spend repeats another.
    ``inference`` is the measurement of the table before its plan is known.
    """

    budget: Budget
    step: Step | None = None
    unit: Unit = field(kw_only=True)
    wanted: bytes | None = field(default=None, kw_only=True)
    inference: Measurement | None = field(default=None, kw_only=True)


def joint_cost(parts: Sequence[tuple[Budget, Step | None]], unit: Unit) -> Cost:
    """Return the cost of several parts for one person: in both currencies, or without a step if a part has none."""
    total = compose(budget for budget, _ in parts)
    steps = [step for _, step in parts if step is not None]
    if len(steps) < len(parts):
        return Cost(total, unit=unit)
    step = composed_steps(steps)
    return Cost(Budget(min(total.epsilon, step_epsilon(step, total.delta)), total.delta), step, unit=unit)


@dataclass(frozen=True)
class OpenAccount(Account):
    """An account from which an entry point spends."""

    @classmethod
    def of(cls, ledger: Any, dataset: str | None, *, runs: bool = False) -> OpenAccount | None:
        """Return the account of ``ledger=`` and ``dataset=``, or None if neither is given.

        ``runs`` means that runs of jobs are known again here.

        Raises `ParameterError` if one is given without the other, a run is named where none is known again, the dataset
        has no such part, or rows may move between its parts: a release shows how many rows it has, which is not private
        for adding or removing one.
        """
        if ledger is None and dataset is None:
            return None
        if isinstance(ledger, Account):
            if dataset is not None:
                raise ParameterError("ledger is an account, which names its dataset; leave dataset out")
            if ledger.run is not None and not runs:
                raise ParameterError(
                    "run is for releases of frames in memory or files that are written to a file; name a target, or "
                    "leave run out of the account"
                )
            return cls(ledger.ledger, ledger.dataset, ledger.part, ledger.run).checked()
        if ledger is None or dataset is None:
            raise ParameterError(TOGETHER)
        return cls(as_ledger(ledger), dataset)

    def checked(self) -> OpenAccount:
        """Return the account, or refuse a part that rows may leave for another one."""
        if self.part is not None and self.ledger.moving(self.dataset, self.part):
            raise ParameterError(
                f"rows of dataset {name_list([self.dataset])} may move between its parts, and a release shows how many "
                "rows a part has; release all parts as one table, and name no part"
            )
        return self

    def cost(self, plan: Plan) -> Cost:
        """Return the cost of a release under a plan, less the inference that this dataset has paid.

        A plan can be written by hand: a receipt counts if this dataset's ledger has it as one of inference, and
        at least as much was paid for it as the plan claims. The rest is charged at its own cost, as a plan
        may be used again.
        """
        inferred = plan.inferred
        if inferred is None or inferred.receipt is None or not self._has_paid(inferred):
            return Cost(plan.release, plan.step, unit=plan.unit)
        # Without a step, inference took its (ε, δ) out of the promise: only the difference is unpaid.
        if inferred.step is None:
            return Cost(difference(plan.release, inferred.budget), unit=plan.unit)
        return Cost(plan.released, plan.step_beside_inference, unit=plan.unit)

    def cost_together(self, plans: Sequence[Plan], promise: Budget, unit: Unit) -> Cost:
        """Return the cost of tables that are released together, less the inference that this dataset has paid for all.

        ``promise`` is that of all tables, which the plans keep.
        """
        inferred = [plan.inferred for plan in plans if plan.inferred is not None]
        paid = joint_cost([(one.budget, one.step) for one in inferred], unit) if inferred else Cost(promise, unit=unit)
        is_paid = len({one.receipt for one in inferred}) == 1 and self._has_paid(
            replace(inferred[0], budget=paid.budget, step=paid.step)
        )
        if not is_paid:
            return Cost(promise, composed_steps(plan.step for plan in plans), unit=unit)
        cost = joint_cost([(plan.released, plan.step_beside_inference) for plan in plans], unit)
        return cost if cost.budget.epsilon < promise.epsilon else replace(cost, budget=promise)

    def _has_paid(self, inferred: Inferred) -> bool:
        """Return whether this dataset's ledger has the receipt of an inference, of at least as much."""
        # A ledger restored from a backup may not know a receipt: the release then pays for the inference as well.
        entry = None if inferred.receipt is None else self.ledger.find(inferred.receipt)
        if entry is None or (entry.dataset, entry.part, entry.what) != (self.dataset, self.part, INFERENCE):
            return False
        step = inferred.step or Step(0.0)
        enough = entry.step.mu >= step.mu and entry.step.delta >= step.delta
        return enough and covers(entry.amount, inferred.budget)

    def settle(self, inferred: Inferred | None, unit: Unit) -> None:
        """Enter the cost of another plan's inferences whose spaces are reused, each once for this dataset.

        An inference is known only by its id: two of one request share all that is public of them. One of an older
        version has no id, and is entered at every use. It is entered for the ``unit`` of the plan that uses it, whom
        what it promises holds for as well.

        Raises `LedgerError` if the dataset has an inference of this id at another cost.
        """
        for past_inference in () if inferred is None else inferred.each:
            if not self._has_paid(past_inference):
                # The account's names enter the receipt, so that every dataset with these spaces pays once.
                account_names = [self.dataset] if self.part is None else [self.dataset, self.part]
                # An inference without id gets a random one, and is charged at every use.
                name = json.dumps([*account_names, past_inference.id or secrets.token_hex(16)])
                receipt = hashlib.sha256(name.encode()).hexdigest()[:32]
                self._enter_spend(receipt, Cost(past_inference.budget, past_inference.step, unit=unit), INFERENCE)

    def spend(self, cost: Cost, what: str = "release", receipt: str | None = None, draws: Draws | None = None) -> str:
        """Enter a spend, for good, and return its receipt; one of a name that is given is entered once.

        ``draws``: see `Ledger.spend`; a release that drew all of it before has a receipt already.
        """
        return self._enter_spend(secrets.token_hex(16) if receipt is None else receipt, cost, what, draws)

    def _enter_spend(self, receipt: str, cost: Cost, what: str, draws: Draws | None = None) -> str:
        entry = self.ledger.spend(
            self.dataset,
            cost.budget.epsilon,
            cost.budget.delta,
            release_id=receipt,
            what=what,
            step=cost.step,
            part=self.part,
            unit=cost.unit,
            draws=draws,
        )
        return entry.release_id


Checked = TypeVar("Checked")
Drawn = TypeVar("Drawn")


class Job(ABC, Generic[Checked, Drawn]):
    """Work that draws noise: a release, an inference, an answer, a curator's message.

    Everything that may be refused is refused before anything is spent, and what is spent is on disk before the key is
    taken: a run that ends early may waste budget, and never hides spending.
    """

    def run(self) -> Drawn:
        """Check, spend, take the key and draw: in this order, here and nowhere else."""
        checked = self.check()
        receipt = self.spend(checked)
        # A stored key raises an error before the spend: a wrong order fails, and draws nothing.
        return self.draw(checked, receipt, self.key())

    @abstractmethod
    def check(self) -> Checked:
        """Refuse every invalid input, and return the findings; values are read, and nothing is drawn."""

    @abstractmethod
    def spend(self, checked: Checked) -> str | None:
        """Enter the spend, for good, and return its receipt, if there is a ledger."""

    @abstractmethod
    def key(self) -> bytes:
        """Return 32 secret bytes, which no other job draws with; asked for once, after the spend."""

    @abstractmethod
    def draw(self, checked: Checked, receipt: str | None, key: bytes) -> Drawn:
        """Draw with the key, and return or write the result."""
