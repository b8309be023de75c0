"""In how many cells a column is counted, and how far a row can move what is counted of it: functions of its space."""

from __future__ import annotations

from typing import Any

from dpframe.spaces import Space
from dpframe.spaces.ball import Ball


def item_count(space: Space) -> int:
    """Return the number of items of a space of sets."""
    sets: Any = space.inner_space
    return int(sets.count)


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
    """Return the first code of each of some cells of equal width, about, of so many codes.

    Examples
    --------
    >>> equal_starts(10, 4)
    (0, 3, 5, 8)
    """
    return tuple(-(-cell * values // cells) for cell in range(cells))
