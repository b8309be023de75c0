"""The rule `OneOf`: exactly one of some columns is true in every row, as in one-hot indicators."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from dpframe.errors import ParameterError
from dpframe.plan.rule import BoundRule, Cells, Codes, Flags, Rule, ruled_space
from dpframe.spaces import Space
from dpframe.spaces.arrays import IntArray
from dpframe.spaces.stretches import code_of


@dataclass(frozen=True)
class OneOf(Rule):
    """Exactly one of some columns is true in every row, as in one-hot indicators of a category.

    Columns of the rule are measured and fitted as one column with a value for each of them.

    Parameters
    ----------
    columns
        Two or more columns of True and False, or of the numbers 0 and 1, without nulls.
    at_most
        Allow rows in which none of the columns is true.

    A row with several true columns keeps the first of them. A row without a true column, if one is needed, has the last
    column set to true: name a column of other values last.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> ways = {"car": [False, True], "bus": [False, True], "other": [False, True]}
    >>> plan = build_plan(ways, epsilon=1.0, rules=[OneOf(["car", "bus", "other"])])
    >>> rows = {"car": np.array([1, 0, 0]), "bus": np.array([1, 1, 0]), "other": np.array([0, 0, 0])}
    >>> {name: codes.tolist() for name, codes in plan.bound_rules.mended(rows).items()}
    {'car': [1, 0, 0], 'bus': [0, 1, 0], 'other': [0, 0, 1]}
    """

    columns: tuple[str, ...]
    at_most: bool = False
    keys: ClassVar[tuple[str, ...]] = ("one_of",)
    optional_keys: ClassVar[tuple[str, ...]] = ("at_most",)

    def __post_init__(self) -> None:
        names = self.columns
        is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        if not is_list or len(names) < 2 or len(set(names)) < len(names):
            raise ParameterError('columns of dpf.OneOf must be two or more different columns, e.g. ["car", "bus"]')
        if not isinstance(self.at_most, bool):
            raise ParameterError("at_most of dpf.OneOf must be True or False")
        object.__setattr__(self, "columns", tuple(names))

    def bind(self, spaces: Mapping[str, Space]) -> BoundRule:
        """Return the rule in codes."""
        return BoundIndicators({name: _true_code(spaces, name) for name in self.columns}, self.at_most)

    def __repr__(self) -> str:
        return f"OneOf({list(self.columns)!r}{', at_most=True' * self.at_most})"

    def to_json(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {"one_of": list(self.columns)} | ({"at_most": True} if self.at_most else {})


def _true_code(spaces: Mapping[str, Space], name: str) -> int:
    """Return the code of true in a column of indicators, or raise `ParameterError` if it holds no indicators."""
    space = ruled_space(spaces, name)
    # True equals 1 and False 0, so that one question finds booleans and numbers.
    if space.values == space.size == 2:
        with contextlib.suppress(ParameterError):
            codes = [code_of(space, value, name) for value in (0, 1)]
            return codes[1]
    raise ParameterError(
        f"rules: dpf.OneOf needs columns of True and False, or 0 and 1, without nulls, which {name!r} is not; declare "
        f"spaces={{{name!r}: (0, 1)}}"
    )


@dataclass(frozen=True, eq=False)
class BoundIndicators(BoundRule):
    """`OneOf` in codes: the code of true by column."""

    true_codes: Mapping[str, int]
    at_most: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.true_codes)

    def _are_true(self, codes: Codes) -> Flags:
        """Return whether each column is true, with columns as first axis."""
        return np.stack([np.asarray(codes[name]) == code for name, code in self.true_codes.items()])

    def holds(self, codes: Codes) -> Flags:
        """Return which rows have as many true columns as the rule allows."""
        true_columns = self._are_true(codes).sum(axis=0)
        return np.asarray((true_columns == 1) | (self.at_most & (true_columns == 0)))

    def states(self, codes: Codes) -> IntArray:
        """Return the position of the first true column of each row; without one, that after the last."""
        are_true = self._are_true(codes)
        return np.where(are_true.any(axis=0), are_true.argmax(axis=0), len(are_true)).astype(np.int64)

    def codes_of(self, states: IntArray) -> dict[str, IntArray]:
        """Return the codes of all columns, given the position of the true one."""
        return {
            name: np.where(states == place, code, 1 - code)
            for place, (name, code) in enumerate(self.true_codes.items())
        }

    def mended(self, codes: Codes) -> Codes:
        """Return the columns of rows that break the rule, with one true column."""
        states = self.states(codes)
        return self.codes_of(states if self.at_most else np.minimum(states, len(self.true_codes) - 1))

    def impossible(self, cells: Cells) -> Flags:
        """Return which combinations of cells have two true columns, or none of all."""
        # A cell of an indicator is one of its two codes, or both.
        sides = [
            (np.asarray(cells[name][0] == code), np.asarray(cells[name][1] - cells[name][0] == 1))
            for name, code in self.true_codes.items()
            if name in cells
        ]
        are_true = [starts_true & is_single for starts_true, is_single in sides]
        are_false = [~starts_true & is_single for starts_true, is_single in sides]
        never: Any = reduce(np.logical_or, [a & b for a, b in combinations(are_true, 2)], np.zeros((), dtype=np.bool_))
        if len(sides) == len(self.true_codes) and not self.at_most:
            never = never | reduce(np.logical_and, are_false)
        return np.asarray(never)
