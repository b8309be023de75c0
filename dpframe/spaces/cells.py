"""In how many cells a column is counted, and how far a row can move what is counted of it: functions of its space."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from dpframe.spaces import Space
from dpframe.spaces.ball import Ball

FEW_VALUES = 32
"""Numeric columns of no more values are shown value by value."""


def has_few_values(space: Space) -> bool:
    """Return whether a column's values are listed (or so few that they can be)."""
    return not space.code_words and (space.is_listed or space.size <= FEW_VALUES)


def item_count(space: Space) -> int:
    """Return the number of items of a space of sets."""
    sets: Any = space.inner_space
    return int(sets.count)


def largest_set(space: Space) -> int:
    """Return the most items that a set of a space holds."""
    sets: Any = space.inner_space
    return int(sets.most)


_EVERY_SIZE = 16
"""Largest size of a set that has a cell of its own."""


def size_starts(space: Space) -> tuple[int, ...]:
    """Return the least size of each cell in which sets are counted by their size: above 16 each is a quarter longer."""
    starts = list(range(min(_EVERY_SIZE, largest_set(space)) + 1))
    start = _EVERY_SIZE + 1
    while start <= largest_set(space):
        starts.append(start)
        start = -(-start * 5 // 4)
    return tuple(starts)


@lru_cache(maxsize=256)
def pairs_moved(count: int, most: int) -> int:
    """Return how many pairs of ``count`` items two sets of at most ``most`` items differ in, at the most.

    Sets of a and b items have at least a + b − count in common, and pairs of these are in both.
    """
    most = min(most, count)
    if 2 * most <= count:
        return 2 * math.comb(most, 2)
    sizes = range(most + 1)
    return max(
        math.comb(a, 2) + math.comb(b, 2) - 2 * math.comb(max(0, a + b - count), 2) for a in sizes for b in sizes[a:]
    )


def ball_of(space: Space) -> Ball:
    """Return the ball of a space of vectors."""
    vectors: Any = space.inner_space
    ball: Ball = vectors.ball
    return ball


def is_cut(space: Space, most: int) -> bool:
    """Return whether a column is counted in cells of several codes: a grid of more values than ``most``, 0 for any."""
    return bool(most) and not space.is_listed and space.values > most


def cell_count(space: Space, most: int) -> int:
    """Return the number of a column's cells, null's among them."""
    return (most if is_cut(space, most) else space.values) + space.has_null


def equal_starts(values: int, cells: int) -> tuple[int, ...]:
    """Return the first code of each of some cells of equal width, about, of so many codes."""
    return tuple(-(-cell * values // cells) for cell in range(cells))
