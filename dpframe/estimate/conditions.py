"""Conditions on columns, as counting questions have them, and what a row's release says about them.

A row meets a question if every column meets its condition. The indicator of that is a product over columns, so that the
product of the conditions' surrogates has it as its mean; the square of an indicator is itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.channels.set_channel import Levels
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis, BinnedAxis, make_axis
from dpframe.estimate.evidence.law import Law
from dpframe.estimate.measured_tables import FEW_VALUES
from dpframe.estimate.sets import SetColumn
from dpframe.estimate.surrogates import UNPACKED, Batches, Surrogates, own_squares, pieces
from dpframe.observe.overlap import overlap_cells
from dpframe.plan.columns import Column, Group
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.stretches import between, code_of, listed_values, shares_its_step, side_of

_FORMS = '{"column": value, [values], (low, high), {"any": items}, {"all": items} or {"not": …}}'


@dataclass(frozen=True)
class ValueCondition:
    """A column's code lies in one of some stretches [start, stop), or is null's.

    ``beyond`` says of either bound whether it meets the condition and what lies beyond it does not (1), the other way
    round (−1), or both alike (0). ``shared`` are codes of ends, or of values, whose rows may lie on either side of
    these.
    """

    column: Column
    stretches: tuple[tuple[int, int], ...]
    beyond: tuple[int, int] = (0, 0)
    shared: tuple[int, ...] = ()

    def holds(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return 1 for codes that meet it, else 0."""
        inside = np.zeros(len(codes), dtype=np.bool_)
        for start, stop in self.stretches:
            inside |= (codes >= start) & (codes < stop)
        return inside.astype(np.float64)

    def share_of_cells(self, edges: IntArray) -> FloatArray:
        """Return the share of the codes of every cell between edges that meet it; null's cell is the last."""
        shares = overlap_cells(edges, *self.ends).sum(axis=0)
        if self.column.space.has_null:
            shares = np.append(shares, self.holds(np.array([self.column.space.values])))
        return np.asarray(shares)

    @property
    def ends(self) -> tuple[IntArray, IntArray]:
        """The stretches' first codes, and the codes after their last."""
        found = np.array(self.stretches, dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @property
    def axis(self) -> Axis:
        """An axis whose cells lie within a stretch or without: of many values, bins between the stretches' ends."""
        space = self.column.space
        if space.is_listed or space.size <= FEW_VALUES:
            return make_axis(self.column, None)
        return BinnedAxis(self.column, self._cuts, ())

    @property
    def _cuts(self) -> tuple[int, ...]:
        values = self.column.space.values
        return 0, *sorted({end for stretch in self.stretches for end in stretch if 0 < end < values}), values

    @property
    def is_number(self) -> bool:
        """Whether the column is a grid of numbers or times, whose noise has ends that surrogates hang on."""
        return self.column.space.is_numeric and not self.column.space.is_listed

    def mean_square(self, law: Law) -> float:
        """Return the mean of the squared surrogate by the law of its noise, of rows that are spread so.

        At the ends of a stretch of a wide grid the surrogate is rare and huge, and rows that miss it show no variance.
        """
        mechanism = self.column.mechanism
        starts = mechanism.changes(np.array(self._cuts, dtype=np.int64)).astype(np.int64)
        squares = mechanism.surrogate_at(self.holds, starts) ** 2
        return float((mechanism.between(law.edges, starts).T @ squares) @ law.shares)

    def negated(self) -> ValueCondition:
        """Return the gaps between the stretches, null being in none."""
        values, gaps, last = self.column.space.values, [], 0
        for start, stop in [*sorted(self.stretches), (values, values)]:
            if start > last:
                gaps.append((last, start))
            last = max(last, stop)
        return replace(self, stretches=tuple(gaps), beyond=(-self.beyond[0], -self.beyond[1]))


@dataclass(frozen=True)
class ItemCondition:
    """A set holds all, or any, of some items; or it does not."""

    sets: SetColumn
    places: tuple[int, ...]
    how: str
    wrong: bool = False

    @property
    def column(self) -> Column:
        """The column of sets."""
        return self.sets.column

    def negated(self) -> ItemCondition:
        """Return the opposite."""
        return replace(self, wrong=not self.wrong)

    @cached_property
    def levels(self) -> Levels:
        """The surrogate of the indicator, by how many of the items are shown."""
        channel, count = self.sets.channel, len(self.places)
        none = channel.holds_none(count)
        every = Levels(np.full(count + 1, self.sets.weights[0]), self.sets.weights[1])
        if self.how == "any":
            return none if self.wrong else every - none
        return every - channel.holds_all(count) if self.wrong else channel.holds_all(count)

    def surrogates(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return the surrogate of the indicator at released sets, which of null is 0 on average."""
        ((bits, null, _),) = self.sets.bits([{self.column.name: codes}])
        shown = bits[:, list(self.places)].sum(axis=1, dtype=np.int64)
        return np.where(null, self.levels.at_null, self.levels.values.take(shown))


Condition = ValueCondition | ItemCondition
"""What is asked of one column."""


@dataclass(frozen=True)
class Where:
    """A question: conditions on columns, all of which a row has to meet."""

    conditions: tuple[Condition, ...]

    @classmethod
    def of(
        cls, where: Any, column_of: Callable[[str], Column], is_open: Callable[[str], bool] = lambda name: False
    ) -> Where:
        """Read a question; ranges may lie outside of the bounds of columns that have rows beyond (``is_open``)."""
        if not isinstance(where, Mapping) or not where:
            raise ParameterError(f"where must name at least one column and its condition: {_FORMS}")
        if not all(isinstance(name, str) for name in where):
            raise ParameterError("where must have names of columns for its keys")
        return cls(tuple(condition_of(column_of(name), wanted, is_open(name)) for name, wanted in where.items()))

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [condition.column.name for condition in self.conditions]

    @property
    def of_items(self) -> ItemCondition | None:
        """The condition, if it is all that is asked and that sets hold items."""
        one = self.conditions[0]
        return one if len(self.conditions) == 1 and isinstance(one, ItemCondition) and not one.wrong else None

    @cached_property
    def values(self) -> dict[str, ValueCondition]:
        """The conditions on values, by column."""
        return {c.column.name: c for c in self.conditions if isinstance(c, ValueCondition)}

    def count(
        self, batches: Batches, groups: Sequence[Group], sampling: float, squares: Mapping[str, float]
    ) -> tuple[float, float]:
        """Return the number of rows that meet all conditions, by the rows' surrogates, and its variance.

        ``squares`` has mean squares of the surrogates of conditions on numbers, by the law of their noise.
        """
        items = [c for c in self.conditions if isinstance(c, ItemCondition)]
        plain = Surrogates({name: c.column for name, c in self.values.items()}, groups)
        term = {name: (c.holds,) for name, c in self.values.items()}
        calm = {name: held for name, held in term.items() if name not in squares}
        first = second = rest = 0.0
        rows = 0
        for part in pieces(batches, UNPACKED):
            size = len(part[self.names[0]])
            rows += size
            found = plain.of(term, part) if term else np.ones(size)
            others = plain.of(calm, part) if calm else np.ones(size)
            for one in items:
                shown = one.surrogates(part[one.column.name])
                found, others = found * shown, others * shown
            first += float(found.sum())
            second += float(found @ found)
            rest += float(others @ others)
        if squares:
            second = max(second, rest * math.prod(squares.values()))
        variance = second - own_squares(first, first**2 / max(rows, 1), sampling)
        # A handful of rows can leave no variance: of one row the noise is at least what any of them has.
        return first, variance if variance > 0 else second + 1.0


def condition_of(column: Column, wanted: Any, is_open: bool = False) -> Condition:
    """Read the condition on one column; `ParameterError` for what its space does not hold."""
    if isinstance(wanted, Mapping):
        if set(wanted) == {"not"}:
            return condition_of(column, wanted["not"], is_open).negated()
        if len(wanted) == 1 and set(wanted) <= {"any", "all"}:
            ((how, items),), mine = wanted.items(), SetColumn.of(column)
            return ItemCondition(mine, tuple(mine.places(items, f'where of column {column.name!r}: "{how}"')), how)
        raise ParameterError(f"where of column {column.name!r} must be one of {_FORMS}")
    if column.space.holds_sets:
        raise ParameterError(
            f'column {column.name!r} holds sets: where takes {{"any": items}} or {{"all": items}} of it, or '
            '{"not": …} of these; null_rate estimates its nulls'
        )
    if column.space.holds_vectors:
        raise ParameterError(
            f"column {column.name!r} holds {column.space.noun}, about which where says nothing; leave it out"
        )
    what = f"where of column {column.name!r}"
    if isinstance(wanted, tuple):
        side = side_of(column.space, wanted, what) if is_open else 0
        if side:
            return ValueCondition(column, (), (-int(side < 0), -int(side > 0)))
        low, high = between(column.space, wanted, what)
        ends = (wanted[0] is not None and low == 0, wanted[1] is not None and high == column.space.values - 1)
        sides = zip(wanted, (low, high), strict=True)
        shared = tuple(code for end, code in sides if end is not None and shares_its_step(column.space, end))
        return ValueCondition(column, ((low, high + 1),), (int(ends[0]), int(ends[1])), shared)
    by_code = {code_of(column.space, value, what): value for value in listed_values(wanted, what)}
    codes = sorted(by_code)
    beyond = (int(0 in codes), int(column.space.values - 1 in codes))
    shared = tuple(code for code in codes if shares_its_step(column.space, by_code[code]))
    return ValueCondition(column, tuple((code, code + 1) for code in codes), beyond, shared)
