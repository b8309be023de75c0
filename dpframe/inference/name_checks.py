"""Noisy counts that choose and check the spaces that names propose (`names`), before other columns are inferred.

First every column with alternatives counts its rows by alternative; the alternative with most rows is chosen. Then one
count says how many rows fit the chosen spaces of all columns together: a row counts once, however many columns there
are. If too few rows fit, counts of both halves of the columns follow, and counts of single columns.

All counts that may be asked are paid for before the first one; the noise of each is fixed then, from only types, names,
rows and budget. Counts that are not asked leave their cost to the inference of other columns: the total is fixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.accounting.gaussian_dp import Step
from dpframe.inference.categories import to_bytes
from dpframe.inference.fit_counts import ALTERNATIVES, FIT, NameCheck
from dpframe.inference.names import Proposal
from dpframe.noise.gaussian import Ints
from dpframe.spaces import Nullable, Space
from dpframe.spaces.base import decoded, numbers_of
from dpframe.spaces.entries import Entries
from dpframe.spaces.object_reading import read_as
from dpframe.spaces.python_values import is_missing
from dpframe.spaces.written_values import is_blank, read_written
from dpframe.totals.counts import Cells, OfColumn, RowCells
from dpframe.totals.least_noise import rounded_up

_Mask = npt.NDArray[np.bool_]

_ALTERNATIVES_NOISE = 0.2
"""Noise of the rows by alternative, in parts of the rows: the chance of a wrong choice is 2·10⁻⁴ for each alternative
(theory: normal law)."""
_MOST_CHECKS_SHARE = 0.5
"""Largest share of inference that checks may cost (limit of the spend: the inference of other columns keeps half)."""
_MOST_FIT_NOISE, _LEAST_FIT_NOISE = 0.12, 0.025
"""Noise of a count of fitting rows, in parts of the rows, from which and up to which it is worth its price (limit of
the stated share, which is about 1 less twice the noise where all rows fit)."""


@dataclass(frozen=True)
class CheckDesign:
    """All checks that may be asked, with their noise: public facts.

    ``depth``: 0 for one count of all columns, 1 if counts of halves may follow, 2 if counts of single columns may.
    """

    proposals: tuple[Proposal, ...]
    alternatives_variance: float
    fit_variance: float
    depth: int

    @classmethod
    def of(
        cls,
        proposals: Sequence[Proposal],
        shares: Mapping[str, float],
        n: int,
        total: Step,
        contributions: int,
    ) -> CheckDesign | None:
        """Return the design for a total step of inference, or None if rows are too few for any check.

        ``shares``: the share of the step that each column has without checks. All checks together cost no more than
        the inference of their columns would, so that the inference of other columns loses little.
        """
        square = float(total.square) / contributions**2
        alternatives_variance = rounded_up(max((_ALTERNATIVES_NOISE * n) ** 2, 1.0))
        costs = {one.name: _alternatives_changes(one) / alternatives_variance for one in proposals}
        prices = {one.name: shares[one.name] * square for one in proposals}
        checked = tuple(one for one in proposals if costs[one.name] < prices[one.name])
        price = min(sum(prices[one.name] for one in checked), _MOST_CHECKS_SHARE * square)
        price -= sum(costs[one.name] for one in checked)
        # Further counts are paid for where they leave the first one precise.
        for depth, most_noise in ((2, 2 * _LEAST_FIT_NOISE), (1, 2 * _LEAST_FIT_NOISE), (0, _MOST_FIT_NOISE)):
            groups = cls(checked, alternatives_variance, 1.0, depth).groups if checked else []
            fit_variance = sum(map(_fit_changes, groups)) / price if price > 0 else 0.0
            if groups and 0 < fit_variance <= (most_noise * n) ** 2:
                least_variance = (_LEAST_FIT_NOISE * n) ** 2
                return cls(checked, alternatives_variance, rounded_up(max(fit_variance, least_variance, 1.0)), depth)
        return None

    @property
    def groups(self) -> list[tuple[Proposal, ...]]:
        """All groups of columns that may be counted together, each once."""
        groups, level = [self.proposals], [self.proposals]
        for _ in range(self.depth):
            level = [part for group in level for part in _split(group, len(level) > 1)]
            groups += [group for group in level if group not in groups]
        return groups

    @property
    def checks(self) -> list[NameCheck]:
        """All checks that may be asked, with counts of zero."""
        return [*self.first_checks, *map(self._fit_check, self.groups[1:])]

    @property
    def first_checks(self) -> list[NameCheck]:
        """The checks that are always asked, with counts of zero."""
        alternatives = [self._alternatives_check(one) for one in self.proposals if len(one.spaces) > 1]
        return [*alternatives, self._fit_check(self.proposals)]

    def _alternatives_check(self, proposal: Proposal) -> NameCheck:
        """Return the check that chooses between a column's alternatives, with counts of zero."""
        zeros, changes = (0,) * len(proposal.spaces), _alternatives_changes(proposal)
        return NameCheck(ALTERNATIVES, (proposal.name,), zeros, changes, self.alternatives_variance)

    def _fit_check(self, group: Sequence[Proposal]) -> NameCheck:
        """Return the check of a group of columns, with counts of zero."""
        changes = _fit_changes(group)
        return NameCheck(FIT, tuple(one.name for one in group), (0,) * changes, changes, self.fit_variance)

    def draw(
        self, n: int, count: Callable[[Mapping[str, OfColumn]], None], noisy: Callable[[Ints, float, NameCheck], Ints]
    ) -> tuple[list[NameCheck], dict[str, Space]]:
        """Return the checks that were asked, and the accepted spaces by column.

        ``count`` adds all rows to counters; ``noisy`` adds noise of a variance to the counts of a check.
        """
        checks, chosen = [], {one.name: one.spaces[0] for one in self.proposals}
        several = {one.name: one for one in self.proposals if len(one.spaces) > 1}
        counters: dict[str, Any] = {
            name: Cells(partial(_count_alternatives, one.spaces, one.field.written), len(one.spaces))
            for name, one in several.items()
        }
        if counters:
            count(counters)
        for name, one in several.items():
            blank = NameCheck(
                ALTERNATIVES, (name,), (0,) * len(one.spaces), _alternatives_changes(one), self.alternatives_variance
            )
            counts = noisy(counters[name].counts, self.alternatives_variance, blank)
            checks.append(NameCheck(blank.kind, blank.columns, tuple(counts.tolist()), blank.changes, blank.variance))
            chosen[name] = one.spaces[int(np.argmax(counts))]
        accepted: dict[str, Space] = {}
        level = [self.proposals]
        for depth in range(self.depth + 1):
            drawn = self._count_groups(level, chosen, count, noisy)
            checks += drawn
            rejected = []
            for group, check in zip(level, drawn, strict=True):
                if check.accepts(n):
                    accepted |= {one.name: _with_null(chosen[one.name], one, check) for one in group}
                elif len(group) > 1:
                    rejected.append(group)
            level = [part for group in rejected for part in _split(group, depth > 0)]
            if not level:
                break
        return checks, accepted

    def _count_groups(
        self,
        groups: Sequence[tuple[Proposal, ...]],
        chosen: Mapping[str, Space],
        count: Callable[[Mapping[str, OfColumn]], None],
        noisy: Callable[[Ints, float, NameCheck], Ints],
    ) -> list[NameCheck]:
        """Return the checks of some groups of columns."""
        checks = [self._fit_check(group) for group in groups]
        counters: dict[str, Any] = {}
        for group, check in zip(groups, checks, strict=True):
            spaces = tuple((chosen[one.name], one.field.written) for one in group)
            of = partial(_count_fits, spaces, check.changes)
            counters[json.dumps(check.columns)] = RowCells(of, check.changes, names=check.columns)
        count(counters)
        return [
            replace(check, counts=tuple(noisy(counter.counts, self.fit_variance, check).tolist()))
            for check, counter in zip(checks, counters.values(), strict=True)
        ]


def _split(group: Sequence[Proposal], into_single: bool) -> Iterator[tuple[Proposal, ...]]:
    """Yield the parts of a group whose check failed: its halves, or its single columns."""
    size = 1 if into_single else -(-len(group) // 2)
    if len(group) > 1:
        for start in range(0, len(group), size):
            yield tuple(group[start : start + size])


def _alternatives_changes(proposal: Proposal) -> int:
    """Return the counts by alternative that change with one row; 0 without a choice."""
    return 2 * proposal.most_fits if len(proposal.spaces) > 1 else 0


def _fit_changes(group: Sequence[Proposal]) -> int:
    """Return the counts of fitting rows that change with one row: of a type with nulls there are two counts."""
    return 1 + any(one.field.nullable for one in group)


def _with_null(space: Space, proposal: Proposal, check: NameCheck) -> Space:
    return Nullable(space) if check.has_nulls and proposal.field.nullable else space


def _count_alternatives(spaces: Sequence[Space], is_written: bool, values: Any) -> Ints:
    """Return the number of rows that fit each alternative."""
    return np.array([int(_fits(values, space, is_written)[0].sum()) for space in spaces], dtype=np.int64)


def _count_fits(spaces: Sequence[tuple[Space, bool]], size: int, columns: Sequence[Any]) -> Ints:
    """Return the number of rows that fit all spaces with values, and of rows that fit but have some null."""
    all_fit, any_null = None, None
    for (space, is_written), values in zip(spaces, columns, strict=True):
        fits, nulls = _fits(values, space, is_written)
        all_fit = fits | nulls if all_fit is None else all_fit & (fits | nulls)
        any_null = nulls if any_null is None else any_null | nulls
    assert all_fit is not None
    assert any_null is not None
    return np.array([(all_fit & ~any_null).sum(), (all_fit & any_null).sum()][:size], dtype=np.int64)


def _fits(values: Any, space: Space, is_written: bool) -> tuple[_Mask, _Mask]:
    """Return masks of the values that lie in a space, and of the nulls; each value is read by itself."""
    array, nulls = _to_array(values, space, is_written)
    if not space.is_listed:
        low, high = numbers_of(space, np.array([0, space.values - 1]))
        numbers = array.cast(pa.float64(), safe=False)
        is_inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    else:
        categories: Any = space
        is_inside = pc.is_in(
            to_bytes(array), pa.array([text.encode() for text in categories.categories], pa.large_binary())
        )
    fits = np.asarray(is_inside.fill_null(False), dtype=np.bool_) & ~nulls
    return fits, nulls


def _to_array(values: Any, space: Space, is_written: bool) -> tuple[pa.Array, _Mask]:
    """Return values as an Arrow array of a space's kind, and a mask of the nulls; other kinds are null in the array."""
    type_ = pa.string() if space.is_listed else pa.float64()
    if isinstance(values, Entries):
        return decoded(values.read_as(type_)), np.fromiter(map(is_missing, values), np.bool_, len(values))
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return read_as(values, type_), np.fromiter(map(is_missing, values), np.bool_, len(values))
    if is_written and not space.is_listed:
        return read_written(values, type_), is_blank(values)
    array = decoded(values)
    return array, np.asarray(array.is_null(), dtype=np.bool_)
