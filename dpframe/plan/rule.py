"""What a rule is: a public fact between columns, and its form in codes. Kinds of rules are subclasses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError, name_list
from dpframe.spaces import Space
from dpframe.spaces.arrays import IntArray

Flags = npt.NDArray[np.bool_]
Codes = Mapping[str, npt.NDArray[Any]]
Cells = Mapping[str, tuple[IntArray, IntArray]]
"""By column the first code of every cell, and the code after its last; null has its own cell."""


@dataclass(frozen=True)
class Rule(ABC):
    """A public fact between columns. A new kind of rule is a subclass."""

    keys: ClassVar[tuple[str, ...]]
    """Names of the fields of its JSON object, which distinguish the kinds."""
    optional_keys: ClassVar[tuple[str, ...]] = ()
    """Names of further fields, which an object may leave out."""

    @abstractmethod
    def bind(self, spaces: Mapping[str, Space]) -> BoundRule:
        """Return the rule in codes of spaces; raise `ParameterError` if a column or a value does not fit."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rule:
        """Make a rule from its JSON object, with the fields as arguments."""
        return cls(*(data[key] for key in (*cls.keys, *cls.optional_keys) if key in data))


class BoundRule(ABC):
    """A rule in codes."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The columns of the rule."""

    @abstractmethod
    def holds(self, codes: Codes) -> Flags:
        """Return which rows keep the rule."""

    def breaks(self, codes: Codes) -> Flags:
        """Return which rows break the rule."""
        return ~self.holds(codes)

    @abstractmethod
    def mended(self, codes: Codes) -> Codes:
        """Return the changed columns of rows that break the rule."""

    @abstractmethod
    def impossible(self, cells: Cells) -> Flags:
        """Return which combinations of cells no row can have; columns' arrays are broadcast against each other."""

    def thresholds(self) -> Iterator[tuple[str, int]]:
        """Yield codes at which bins of a column must begin."""
        yield from ()


def ruled_space(spaces: Mapping[str, Space], name: str) -> Space:
    """Return the space of a rule's column, or raise `ParameterError`."""
    if name not in spaces:
        raise ParameterError(
            f"rules name {name!r}, which is not a column with a declared space; declare spaces={{{name!r}: …}} or take "
            f"it out ({name_list(list(spaces))} have one)"
        )
    # Sets and vectors have no single value to compare.
    if spaces[name].code_words or spaces[name].holds_vectors:
        raise ParameterError(f"rules name {name!r}, which holds {spaces[name].noun}; rules are of single values")
    return spaces[name]
