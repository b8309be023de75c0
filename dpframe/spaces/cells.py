"""Number of cells in which a column is counted, and the effect of one row on its counts, by space."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from dpframe.spaces import Space
from dpframe.spaces.ball import Ball

MAX_SHOWN_VALUES = 32
"""Limit on the values of numeric columns that are shown value by value."""


def has_few_values(space: Space) -> bool:
    """Return whether a column's values are listed (or so few that they can be)."""
    return not space.code_words and (space.is_listed or space.size <= MAX_SHOWN_VALUES)


def item_count(space: Space) -> int:
    """Return the number of items of a space of sets."""
    sets: Any = space.inner_space
    return int(sets.count)


def largest_set(space: Space) -> int:
    """Return the largest number of items in a set of a space."""
    sets: Any = space.inner_space
    return int(sets.most)


_LARGEST_SINGLE_SIZE = 16
"""Largest size of a set that has a cell of its own."""


def size_starts(space: Space) -> tuple[int, ...]:
    """Return the smallest set size of each cell; above 16 items each cell is a quarter longer."""
    starts = list(range(min(_LARGEST_SINGLE_SIZE, largest_set(space)) + 1))
    start = _LARGEST_SINGLE_SIZE + 1
    while start <= largest_set(space):
        starts.append(start)
        start = -(-start * 5 // 4)
    return tuple(starts)


@lru_cache(maxsize=256)
def pairs_moved(count: int, most: int) -> int:
    """Return the largest number of item pairs in which two sets of at most ``most`` of ``count`` items differ.

    Sets of a and b items share at least a + b − count items, and all pairs of shared items.
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
    """Return the number of a column's cells, those of special values and null among them."""
    return (most if is_cut(space, most) else space.values) + space.flag_codes


def equal_starts(values: int, cells: int) -> tuple[int, ...]:
    """Return the first code of each of ``cells`` cells of about equal width, for ``values`` codes."""
    return tuple(-(-cell * values // cells) for cell in range(cells))
