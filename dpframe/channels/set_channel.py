"""Base of all channels on sets: surrogates of items and sizes, codes of several words, and the cut."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, NoReturn

import numpy as np

from dpframe.channels.base import Channel, CodeFunction, IntArray, Mechanism
from dpframe.errors import ParameterError, check_whole
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.sets import MOST_ITEMS

MAX_WRITTEN_LAW_ITEMS = 12
"""Most items of sets whose laws are written out."""


@dataclass(frozen=True)
class Levels:
    """A surrogate that depends only on a number, such as the number of shown items, and its value at null."""

    values: FloatArray
    at_null: float = 0.0

    def __sub__(self, levels: Levels) -> Levels:
        return Levels(self.values - levels.values, self.at_null - levels.at_null)


class SetView(ABC):
    """Surrogates of the items and sizes of released sets, with or without null among the values.

    Functions of null have the value 0: null contains no item and is no set.
    """

    @property
    @abstractmethod
    def most(self) -> int:
        """Most items of a set after the cut."""

    @property
    @abstractmethod
    def shown(self) -> tuple[float, float]:
        """(p, q): the probabilities that a released set shows an item if the set contains it, and if not."""

    @property
    @abstractmethod
    def support_variances(self) -> tuple[float, float]:
        """Variance per row of the share of an item in hardly any set, and of an item in nearly all sets."""

    @abstractmethod
    def holds_all(self, count: int) -> Levels:
        """Return the surrogate of "contains all of ``count`` items", by the number shown, shape (count + 1,)."""

    @abstractmethod
    def holds_none(self, count: int) -> Levels:
        """Return the surrogate of "is a set that contains none of ``count`` items", by the number shown."""

    @abstractmethod
    def sizes(self) -> tuple[Levels, Levels]:
        """Return the surrogates of a set's size and of its square, by the released size, shape (items + 1,)."""

    @abstractmethod
    def size_law(self) -> FloatArray:
        """Return P(released size | size), shape (items + 1, most + 1); null is last if it is a value."""


class SetChannel(Channel, SetView):
    """A channel on sets, with codes of several words and the cut to ``max_size``."""

    items: int
    max_size: int | None

    def reads(self, space: Space) -> bool:
        """Return whether a space has sets of as many items with an equal cut."""
        sets: Any = space
        return bool(space.holds_sets and (sets.count, sets.most) == (self.items, self.most))

    @property
    def most(self) -> int:
        """Most items of a set after the cut."""
        # Without a cut the largest set has all items.
        return self.items if self.max_size is None else self.max_size

    @property
    def sets(self) -> SetView:
        """Surrogates of items and sizes."""
        return self

    own_metric = "symmetric difference"

    @property
    def diameter(self) -> float:
        """Most items in which two sets differ, min(h, 2·max_size)."""
        return float(min(self.items, 2 * self.most))

    centre = 0  # the empty set

    @property
    def code_words(self) -> int:
        """64-bit words in the code of a row."""
        return -(-(self.size - 1).bit_length() // 64)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all y as integers over a total, up to 12 items.

        A set above the cut may become any of its parts of the largest size.
        """
        if self.items > MAX_WRITTEN_LAW_ITEMS:
            raise ParameterError(f"the law of sets of {self.items} items is too long to write out; see shown")
        held_items = [i for i in range(self.items) if code >> i & 1]
        parts = [sum(1 << i for i in part) for part in combinations(held_items, min(len(held_items), self.most))]
        total, set_total = [0] * self.size, 1
        for part in parts if code < 1 << self.items else [code]:
            weights, set_total = self._weights_of(part)
            total = [a + b for a, b in zip(total, weights, strict=True)]
        # One total for all sets: the number of parts differs from set to set.
        share: int = self._choices // len(parts)
        return [w * share for w in total], set_total * self._choices

    @abstractmethod
    def _weights_of(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all y, for a set within the cut."""

    @cached_property
    def _choices(self) -> int:
        return math.lcm(*(math.comb(size, self.most) for size in range(self.most, self.items + 1)))

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Refused: functions of a set have 2^h values; items have their own surrogates."""
        self._refuse()

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Refused, as `surrogate_at`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ParameterError("sets are not inverted as a whole; ask for support, cooccurrence or set_sizes")


@dataclass(frozen=True)
class SetMechanism(SetChannel, Mechanism):
    """A channel on sets that is calibrated to a budget."""

    items: int
    max_size: int | None
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False, compare=False)

    metrics: ClassVar[frozenset[str]] = frozenset({"symmetric difference"})
    nulls: ClassVar[int] = 0
    """Number of values that are no sets: 1 if null has a code, the last code."""

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return the number of items, and the largest size of a set."""
        sets: Any = space.inner_space
        if not space.holds_sets:
            raise ParameterError(f"space {space.tag} holds no sets; declare Subset([…])")
        return sets.count, sets.max_size

    def _check_shape(self) -> None:
        items, max_size = check_items(self.items, self.max_size)
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "max_size", max_size)
        object.__setattr__(self, "size", (1 << items) + self.nulls)
        self._check_budget(self.epsilon, self.delta)


def check_items(items: Any, max_size: Any) -> tuple[int, int | None]:
    """Return a number of items, and the largest size of a set, or raise `ParameterError`."""
    count = check_whole(items, "items", 1, MOST_ITEMS)
    return count, None if max_size is None else check_whole(max_size, "max_size", 1, count)


@dataclass(frozen=True)
class FlaggedSets(SetView):
    """Sets with a null flag: they are released as sets with probability ``kept``, and null is with ``flipped``.

    A null whose flag flips is released as the empty set would be. Let G have the mean g for a set, and g₀ for the empty
    set: G/k + c on sets and d on null has the mean g for sets and 0 for null if d = −f g₀/(k − f) and c = −(1 − k)d/k.
    """

    inner: SetChannel
    kept: float
    flipped: float

    most = forwarded("inner.most")
    shown = forwarded("inner.shown")

    @property
    def support_variances(self) -> tuple[float, float]:
        """Variances of the sets without nulls over ``kept``, for rare nulls."""
        rare, common = self.inner.support_variances
        return rare / self.kept, common / self.kept

    def _beside(self, levels: Levels, at_empty: float) -> Levels:
        at_null = -self.flipped * at_empty / (self.kept - self.flipped)
        return Levels(levels.values / self.kept - (1 - self.kept) * at_null / self.kept, at_null)

    def holds_all(self, count: int) -> Levels:
        """Return the surrogate of "contains all of ``count`` items"; the empty set contains all of 0 items."""
        return self._beside(self.inner.holds_all(count), float(count == 0))

    def holds_none(self, count: int) -> Levels:
        """Return the surrogate of "is a set that contains none of ``count`` items"."""
        return self._beside(self.inner.holds_none(count), 1.0)

    def sizes(self) -> tuple[Levels, Levels]:
        """Return the surrogates of a set's size and of its square."""
        first, second = (self._beside(levels, 0.0) for levels in self.inner.sizes())
        return first, second

    def size_law(self) -> FloatArray:
        """Return P(released size or null | size or null), null last."""
        inside = self.inner.size_law()
        flagged_law = np.column_stack([self.kept * inside, self.flipped * inside[:, 0]])
        return np.vstack([flagged_law, np.append(np.full(inside.shape[1], 1 - self.kept), 1 - self.flipped)])
