"""Noisy counts that check the spaces that names propose, as a plan stores them: their cost and their decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpframe.accounting.budget import round_up
from dpframe.accounting.discrete_gaussian import LEAST_SIGMA2, IntegerNoise, noise_step
from dpframe.accounting.gaussian_dp import Step, remaining_step
from dpframe.errors import PlanError
from dpframe.inference.histogram_specs import MAX_COUNT_VARIANCE, TAILS
from dpframe.noise.gaussian import gaussian_table
from dpframe.observe.significance import HINT_SE
from dpframe.spaces.json_form import from_object, to_object

ALTERNATIVES, FIT = "alternatives", "fit"
"""Kinds of checks: rows by alternative of one column; rows that fit the spaces of some columns."""


@dataclass(frozen=True)
class NameCheck:
    """Noisy counts of one check of spaces that names propose, as inference paid for them.

    ``kind`` ``"alternatives"``: the rows that fit each alternative of one column. ``"fit"``: the rows that fit the
    spaces of all ``columns`` together, first those without nulls, then those with some null, if the types have nulls.
    ``changes``: most counts that change, by one, if one row is replaced. All counts have equal noise variance.
    """

    kind: str
    columns: tuple[str, ...]
    counts: tuple[int, ...]
    changes: int
    variance: float

    def __post_init__(self) -> None:
        are_whole = all(type(count) is int for count in (*self.counts, self.changes))
        if self.kind not in (ALTERNATIVES, FIT) or not all(isinstance(name, str) for name in self.columns):
            raise PlanError(f"a check of names must be of the kind {ALTERNATIVES} or {FIT}, and name columns")
        # One row leaves one count, and enters another.
        least = min(2, len(self.counts))
        if not are_whole or not self.columns or not 0 < least <= self.changes <= 2 * len(self.counts):
            raise PlanError("a check of names must have whole counts, and changes from 2 (1 of one) to twice as many")
        if not isinstance(self.variance, int | float) or not LEAST_SIGMA2 <= self.variance <= MAX_COUNT_VARIANCE:
            raise PlanError("a check of names must have a variance from 0.25")
        object.__setattr__(self, "variance", float(self.variance))

    @property
    def has_nulls(self) -> bool:
        """Whether nulls of these columns are likely: a space with null loses little without need."""
        return self.kind == FIT and len(self.counts) > 1 and self.counts[1] > HINT_SE * math.sqrt(self.variance)

    @property
    def fitting_rows(self) -> tuple[int, float]:
        """The noisy number of rows that fit, with nulls if they are found, and its standard error."""
        counts = self.counts if self.has_nulls else self.counts[:1]
        return sum(counts), math.sqrt(len(counts) * self.variance)

    def share_at_least(self, n: int) -> float:
        """Return the share of ``n`` rows that surely fits: two standard errors below the noisy share, at most 1."""
        rows, error = self.fitting_rows
        return min(max((rows - HINT_SE * error) / max(n, 1), 0.0), 1.0)

    def accepts(self, n: int) -> bool:
        """Return whether all of ``n`` rows may fit: the others are within two standard errors of none."""
        rows, error = self.fitting_rows
        return self.kind == FIT and n > 0 and n - rows <= HINT_SE * error

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return to_object(self)

    @classmethod
    def from_json(cls, data: Any) -> NameCheck:
        """Read a check back; `PlanError` for anything else."""
        return from_object(cls, data, "a check of names")


def accepted_shares(checks: Sequence[NameCheck], n: int) -> dict[str, float]:
    """Return by column the share of the rows that surely fits its accepted space."""
    return {name: check.share_at_least(n) for check in checks if check.accepts(n) for name in check.columns}


def checks_step(checks: Sequence[NameCheck], contributions: int, total: Step) -> Step:
    """Return the cost of checks out of a total step."""
    noises = [_noise(check.variance, check.changes) for check in checks]
    return noise_step(noises, contributions, total.delta * TAILS) if noises else Step(0.0)


def step_after(total: Step, checks: Sequence[NameCheck], contributions: int) -> Step:
    """Return the part of a total step that checks leave."""
    return remaining_step(total, checks_step(checks, contributions, total))


def _noise(variance: float, changes: int) -> IntegerNoise:
    return IntegerNoise(variance, changes, 1, round_up(gaussian_table(variance).distance))
