"""A dataset's budget in a ledger, as a release spends from it."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step
from dpframe.errors import ParameterError
from dpframe.ledger.currencies import covers, difference
from dpframe.ledger.ledger import Ledger, as_ledger
from dpframe.plan.plan import Plan

INFERENCE = "inference"
"""What the ledger's entry of private inference alone says."""


@dataclass(frozen=True)
class Account:
    """A dataset's budget in a ledger, from which a face spends."""

    ledger: Ledger
    dataset: str

    @classmethod
    def of(cls, ledger: Any, dataset: str | None) -> Account | None:
        """Return the account of a face's ``ledger=`` and ``dataset=``, or None if neither is given."""
        if ledger is None and dataset is None:
            return None
        if ledger is None or dataset is None:
            raise ParameterError('ledger and dataset go together, e.g. ledger="ledger.sqlite", dataset="survey-2026"')
        return cls(as_ledger(ledger), dataset)

    def cost(self, plan: Plan) -> Budget:
        """Return what releasing under a plan costs: all of it, or what its inference has not paid here yet.

        A plan can be written by hand: a receipt counts if this dataset's ledger has it as one of inference, and
        at least as much was paid for it as the plan takes off.
        """
        inferred = plan.inferred
        if inferred is None or inferred.receipt is None:
            return plan.release
        entry = self.ledger.find(inferred.receipt)
        if entry is None or (entry.dataset, entry.what) != (self.dataset, INFERENCE):
            return plan.release
        return difference(plan.release, inferred.budget) if covers(entry.amount, inferred.budget) else plan.release

    def settle(self, spaces: Any) -> None:
        """Enter what it cost to find the spaces of a plan that gives no more than these, once for this dataset."""
        inferred = spaces.inferred if isinstance(spaces, Plan) else None
        if inferred is None:
            return
        entry = None if inferred.receipt is None else self.ledger.find(inferred.receipt)
        own = entry is not None and (entry.dataset, entry.what) == (self.dataset, INFERENCE)
        if own and entry is not None and covers(entry.amount, inferred.budget):
            return
        facts = json.dumps([self.dataset, inferred.to_json()])
        receipt = hashlib.sha256(facts.encode()).hexdigest()[:32]
        budget = inferred.budget
        self.ledger.spend(self.dataset, budget.epsilon, budget.delta, release_id=receipt, what=INFERENCE)

    def spend(self, budget: Budget, what: str = "release", step: Step | None = None) -> str:
        """Enter a spend, for good, and return its receipt; without a step it is dominated by its budget."""
        receipt = secrets.token_hex(16)
        self.ledger.spend(self.dataset, budget.epsilon, budget.delta, release_id=receipt, what=what, step=step)
        return receipt
