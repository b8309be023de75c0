"""Conditions on columns for counting questions, and their surrogates at released rows.

A row meets a question if every column meets its condition. The question's indicator is a product over columns. So the
product of the conditions' surrogates is its surrogate. The square of an indicator is the indicator itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.channels.set_channel import Levels
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis, BinnedAxis, make_axis
from dpframe.estimate.evidence.law import Law
from dpframe.estimate.measured_tables import MAX_EXACT_FIT_VALUES
from dpframe.estimate.sets import SetColumn
from dpframe.estimate.surrogates import UNPACKED, Batches, Surrogates, own_squares, pieces
from dpframe.observe.overlap import overlap_cells
from dpframe.plan.columns import Column, Group
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.stretches import between, code_of, listed_values, shares_its_step, side_of

_FORMS = '{"column": value, [values], (low, high), {"any": items}, {"all": items} or {"not": …}}'


@dataclass(frozen=True)
class ValueCondition:
    """Condition that a column's code lies in one of several stretches [start, stop), or is a special value's or null's.

    ``beyond`` has a sign for the lower and the upper bound. 1: the bound meets the condition, values beyond it do not;
    −1: the reverse; 0: both meet the condition, or neither. ``shared`` are codes of ends, or of values, whose rows may
    lie on either side of the end.
    """

    column: Column
    stretches: tuple[tuple[int, int], ...]
    beyond: tuple[int, int] = (0, 0)
    shared: tuple[int, ...] = ()

    def holds(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return 1 for codes that meet the condition, else 0."""
        is_met = np.zeros(len(codes), dtype=np.bool_)
        for start, stop in self.stretches:
            is_met |= (codes >= start) & (codes < stop)
        return is_met.astype(np.float64)

    def power(self, codes: npt.NDArray[Any], power: int) -> FloatArray:
        """Return the condition's indicator to a power, which is the indicator."""
        return self.holds(codes)

    def share_of_cells(self, edges: IntArray) -> FloatArray:
        """Return the share of codes that meet the condition, for every cell between edges, then the flag's codes."""
        shares = overlap_cells(edges, *self.ends).sum(axis=0)
        return np.append(shares, self.holds(np.arange(self.column.space.values, self.column.space.size)))

    @property
    def ends(self) -> tuple[IntArray, IntArray]:
        """The stretches' first codes, and the codes after their last."""
        bounds = np.array(self.stretches, dtype=np.int64).reshape(-1, 2)
        return bounds[:, 0], bounds[:, 1]

    @property
    def axis(self) -> Axis:
        """Axis whose cells lie inside or outside of a stretch; a column of many values has bins between their ends."""
        space = self.column.space
        if space.is_listed or space.size <= MAX_EXACT_FIT_VALUES:
            return make_axis(self.column, None)
        return BinnedAxis(self.column, self._cuts, ())

    @property
    def _cuts(self) -> tuple[int, ...]:
        values = self.column.space.values
        return 0, *sorted({end for stretch in self.stretches for end in stretch if 0 < end < values}), values

    @property
    def is_number(self) -> bool:
        """Whether the column is a grid of numbers or times; surrogates of ranges are huge near the ends of a grid."""
        return self.column.space.is_numeric and not self.column.space.is_listed

    def mean_square(self, law: Law) -> float:
        """Return the mean of the squared surrogate for rows with the distribution ``law``.

        At the ends of a stretch of a wide grid the surrogate is rare and huge: without a row there the sample variance
        is far too small.
        """
        mechanism = self.column.mechanism
        starts = mechanism.changes(np.array(self._cuts, dtype=np.int64)).astype(np.int64)
        squares = mechanism.surrogate_at(self.holds, starts) ** 2
        return float((mechanism.between(law.edges, starts).T @ squares) @ law.shares)

    def negated(self) -> ValueCondition:
        """Return the condition on the gaps between the stretches; special values and null meet neither condition."""
        values, gaps, last = self.column.space.values, [], 0
        for start, stop in [*sorted(self.stretches), (values, values)]:
            if min(start, values) > last:
                gaps.append((last, min(start, values)))
            last = max(last, stop)
        return replace(self, stretches=tuple(gaps), beyond=(-self.beyond[0], -self.beyond[1]))


@dataclass(frozen=True)
class ItemCondition:
    """Condition that a set has all, or any, of some items; or, if ``wrong``, that it has not."""

    sets: SetColumn
    places: tuple[int, ...]
    how: str
    wrong: bool = False

    column: ClassVar[Column] = forwarded("sets.column")

    def negated(self) -> ItemCondition:
        """Return the opposite."""
        return replace(self, wrong=not self.wrong)

    @cached_property
    def levels(self) -> Levels:
        """Surrogate of the indicator, by the number of the items in the released set."""
        channel, count = self.sets.channel, len(self.places)
        none = channel.holds_none(count)
        every = Levels(np.full(count + 1, self.sets.weights[0]), self.sets.weights[1])
        if self.how == "any":
            return none if self.wrong else every - none
        return every - channel.holds_all(count) if self.wrong else channel.holds_all(count)

    def surrogates(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return the surrogate of the indicator at released sets; its mean for null is 0."""
        bits, null = self.sets.unpack(codes)
        item_counts = bits[:, list(self.places)].sum(axis=1, dtype=np.int64)
        return np.where(null, self.levels.at_null, self.levels.values.take(item_counts))


Condition = ValueCondition | ItemCondition
"""Condition on one column."""


@dataclass(frozen=True)
class Where:
    """Counting question: conditions on columns, all of which a row has to meet."""

    conditions: tuple[Condition, ...]

    @classmethod
    def of(
        cls, where: Any, column_of: Callable[[str], Column], is_open: Callable[[str], bool] = lambda name: False
    ) -> Where:
        """Parse a question; ranges may exceed the bounds of a column with ``is_open``, as its rows may."""
        if not isinstance(where, Mapping) or not where:
            hint = f"; value_counts({where!r}) counts its values" if isinstance(where, str) else ""
            raise ParameterError(f"where must name at least one column and its condition: {_FORMS}{hint}")
        if not all(isinstance(name, str) for name in where):
            raise ParameterError("where must have names of columns for its keys")
        return cls(tuple(condition_of(column_of(name), wanted, is_open(name)) for name, wanted in where.items()))

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [condition.column.name for condition in self.conditions]

    @property
    def of_items(self) -> ItemCondition | None:
        """The only condition of the question, if it is that sets have items; else None."""
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

        ``squares`` has expected squares of surrogates of conditions on numbers, a lower bound on the sample's squares.
        """
        items = [c for c in self.conditions if isinstance(c, ItemCondition)]
        surrogates = Surrogates({name: c.column for name, c in self.values.items()}, groups)
        term = {name: (c.power, 1) for name, c in self.values.items()}
        listed_term = {name: factor for name, factor in term.items() if name not in squares}
        first = second = listed_squares = 0.0
        rows = 0
        for codes in pieces(batches, UNPACKED):
            size = len(codes[self.names[0]])
            rows += size
            products = surrogates.of(term, codes) if term else np.ones(size)
            listed_products = surrogates.of(listed_term, codes) if listed_term else np.ones(size)
            for item_condition in items:
                item_surrogates = item_condition.surrogates(codes[item_condition.column.name])
                products, listed_products = products * item_surrogates, listed_products * item_surrogates
            first += float(products.sum())
            second += float(products @ products)
            listed_squares += float(listed_products @ listed_products)
        if squares:
            second = max(second, listed_squares * math.prod(squares.values()))
        variance = second - own_squares(first, first**2 / max(rows, 1), sampling)
        # The unbiased variance of a handful of rows can be 0 or negative: the uncentred square replaces it.
        return first, variance if variance > 0 else second + 1.0


def condition_of(column: Column, wanted: Any, is_open: bool = False) -> Condition:
    """Parse the condition on one column, or raise `ParameterError` for values outside of its space."""
    if isinstance(wanted, Mapping):
        if set(wanted) == {"not"}:
            return condition_of(column, wanted["not"], is_open).negated()
        if len(wanted) == 1 and set(wanted) <= {"any", "all"}:
            ((how, items),), set_column = wanted.items(), SetColumn.of(column)
            return ItemCondition(
                set_column, tuple(set_column.places(items, f'where of column {column.name!r}: "{how}"')), how
            )
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
    title = f"where of column {column.name!r}"
    if isinstance(wanted, tuple):
        side = side_of(column.space, wanted, title) if is_open else 0
        if side:
            return ValueCondition(column, (), (-int(side < 0), -int(side > 0)))
        low, high = between(column.space, wanted, title)
        ends = (wanted[0] is not None and low == 0, wanted[1] is not None and high == column.space.values - 1)
        sides = zip(wanted, (low, high), strict=True)
        shared = tuple(code for end, code in sides if end is not None and shares_its_step(column.space, end))
        return ValueCondition(column, ((low, high + 1),), (int(ends[0]), int(ends[1])), shared)
    value_of_code = {code_of(column.space, value, title): value for value in listed_values(wanted, title)}
    codes = sorted(value_of_code)
    beyond = (int(0 in codes), int(column.space.values - 1 in codes))
    shared = tuple(code for code in codes if shares_its_step(column.space, value_of_code[code]))
    return ValueCondition(column, tuple((code, code + 1) for code in codes), beyond, shared)
