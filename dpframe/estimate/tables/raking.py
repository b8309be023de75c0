"""Drawn rows brought to the shares of tables of several columns, which the mixture they were drawn from does not hold.

Rows that are alike in all columns have one weight. The weights are scaled to each table in turn (Deming and Stephan
1940), and rounded to whole rows of the same number; rows of a kind that has too many take one that has too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dpframe.arrays import FloatArray, IntArray

SWEEPS = 4
"""Times that all tables are gone through: more changes little, as tables of noise have no common solution."""

FURTHEST = 2.0
"""Most that the rows of a cell are multiplied or divided by in one step: a cell of few rows is mostly chance."""

FEWEST = 4.0
"""Rows from which on a cell has an aim of its own: most rarer ones have no row, and the others would lose theirs."""

MOST_PLACES = 1 << 25
"""Places of all kinds in all tables up to which they are kept from sweep to sweep; of more there is one sweep."""

MOST_KEYS = 1 << 62
"""Products of cells up to which rows are told apart by one whole number; of more they are numbered between."""


def raked(
    cells: Sequence[IntArray],
    sizes: Sequence[int],
    tables: Mapping[tuple[int, ...], FloatArray],
    generator: np.random.Generator,
) -> list[IntArray]:
    """Return rows of which some took the cells of others, so that shares of tables are nearly met.

    Parameters
    ----------
    cells
        The drawn cells of every column.
    sizes
        Number of cells of every column.
    tables
        Shares by the places of their columns.

    Examples
    --------
    >>> rows = [np.repeat([0, 1], 500), np.tile([0, 1], 500)]
    >>> first, second = raked(rows, [2, 2], {(0, 1): np.array([[0.4, 0.1], [0.1, 0.4]])}, np.random.default_rng(0))
    >>> np.bincount(2 * first + second).tolist()
    [400, 100, 100, 400]
    """
    if not tables or not len(cells[0]):
        return list(cells)
    _, first, kind, held = np.unique(_keys(cells, sizes), return_index=True, return_inverse=True, return_counts=True)
    of_kinds = [cell[first] for cell in cells]
    wanted = _rounded(_weights(of_kinds, held, tables), len(kind), generator)
    taken = _exchanged(kind, held, wanted, generator)
    return [np.asarray(column[taken], dtype=np.int64) for column in of_kinds]


def _keys(cells: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return a whole number for each row, the same for rows that are alike in all columns."""
    keys, span = np.zeros(len(cells[0]), dtype=np.int64), 1
    for cell, size in zip(cells, sizes, strict=True):
        if span * size > MOST_KEYS:
            keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
            span = int(keys.max()) + 1
        keys, span = keys * size + cell, span * size
    return keys


def _weights(of_kinds: Sequence[IntArray], held: IntArray, tables: Mapping[tuple[int, ...], FloatArray]) -> FloatArray:
    """Return how many rows each kind should have."""
    rows, weights = float(held.sum()), held.astype(np.float64)
    aims: Iterable[tuple[IntArray, FloatArray]] = _aims(of_kinds, rows, tables)
    many = len(held) * len(tables) > MOST_PLACES
    aims = aims if many else list(aims)
    for _ in range(1 if many else SWEEPS):
        for places, wanted in aims:
            have = np.bincount(places, weights, minlength=len(wanted))
            ratio = np.clip(wanted / np.maximum(have, 1e-9), 1 / FURTHEST, FURTHEST)
            weights *= np.where(wanted < FEWEST, 1.0, ratio)[places]
    return weights


def _aims(
    of_kinds: Sequence[IntArray], rows: float, tables: Mapping[tuple[int, ...], FloatArray]
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield for each table the place of every kind, and the rows that places should have."""
    for columns, shares in tables.items():
        cells, wanted = _well_filled(shares.ravel() * rows)
        yield cells[np.ravel_multi_index([of_kinds[c] for c in columns], shares.shape)].astype(np.int32), wanted


def _well_filled(wanted: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the place of each cell, one for all that should have few rows, and the rows that places should have.

    >>> _well_filled(np.array([9.0, 0.5, 8.0, 1.0]))
    (array([1, 0, 2, 0]), array([1.5, 9. , 8. ]))
    """
    filled = wanted >= FEWEST
    places = np.where(filled, np.cumsum(filled), 0)
    return places, np.asarray(np.bincount(places, wanted, minlength=int(filled.sum()) + 1), dtype=np.float64)


def _rounded(weights: FloatArray, rows: int, generator: np.random.Generator) -> IntArray:
    """Return whole numbers that add up to so many rows, each next to its weight (systematic sampling)."""
    levels = np.cumsum(weights) * (rows / weights.sum())
    levels[-1] = rows
    ends = np.floor(levels + generator.random()).astype(np.int64)
    return np.asarray(np.diff(np.minimum(ends, rows), prepend=0))


def _exchanged(kind: IntArray, held: IntArray, wanted: IntArray, generator: np.random.Generator) -> IntArray:
    """Return the kind of every row: its own while that has not too many, else one that has too few."""
    order = generator.permutation(len(kind))
    order = order[np.argsort(kind[order], kind="stable")]
    rank = np.arange(len(kind)) - np.repeat(np.cumsum(held) - held, held)
    free = order[rank >= np.repeat(wanted, held)]
    short = np.repeat(np.arange(len(held)), np.maximum(wanted - held, 0))
    found = np.array(kind, dtype=np.int64)
    found[free] = generator.permutation(short)
    return found
