"""The one line along which everything is drawn: check, spend, take the key, draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

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
        return self.draw(checked, receipt, self.key())

    @abstractmethod
    def check(self) -> Checked:
        """Refuse what can be refused, and return what was found; values are read, and nothing is drawn."""

    @abstractmethod
    def spend(self, checked: Checked) -> str | None:
        """Enter the spend, for good, and return its receipt, if there is a ledger."""

    @abstractmethod
    def key(self) -> bytes:
        """Return 32 secret bytes, which no other job draws with; asked for once, after the spend."""

    @abstractmethod
    def draw(self, checked: Checked, receipt: str | None, key: bytes) -> Drawn:
        """Draw with the key, and return or write what came of it."""
