"""Weights scaled to margins: the cells of a joint, and sampled rows, whose mixture does not reproduce all tables.

Rows equal in all columns are a kind, with one weight. The weights are scaled to each table in turn (Deming and Stephan
1940), and rounded to whole rows with an unchanged total. Rows of a kind with too many rows change to a kind with too
few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpframe.spaces.arrays import FloatArray, IntArray

RAKING_SWEEPS = 4
"""Sweeps over all tables: more change little, as noisy tables have no common solution (tolerance)."""

SCALING_TOLERANCE = 1e-12
"""Part of all weights that a sweep moves, up to which sweeps end: the next ones move less (tolerance)."""

MOST_EXCHANGES = 100
"""Rounds in which rows that break a rule try to exchange a value of each column (limit of time)."""

FURTHEST = 2.0
"""Largest factor or divisor of a cell's weight in one step: a cell of few rows is mostly chance (tuned; effect not
measured)."""

MIN_TARGET_ROWS = 4.0
"""Rows from which on a cell has its own target: most rarer cells have no row, and the others would lose theirs (tuned;
effect not measured)."""

MOST_PLACES = 1 << 25
"""Places of all kinds in all tables up to which they stay in memory for several sweeps; above, there is one sweep
(limit of memory)."""

MOST_KEYS = 1 << 62
"""Products of sizes up to which one whole number identifies a row; above, rows are renumbered (limit of the format)."""


def raked(
    cells: Sequence[IntArray],
    sizes: Sequence[int],
    tables: Mapping[tuple[int, ...], FloatArray],
    generator: np.random.Generator,
    replaced: npt.NDArray[np.bool_] | None = None,
) -> list[IntArray]:
    """Return rows, some with the cells of other rows, so that they nearly have the shares of tables.

    ``cells``: sampled cells of every column. ``sizes``: number of cells of every column. ``tables``: shares by the
    places of their columns. ``replaced``: rows that must all take the cells of other rows.
    """
    replaced = np.zeros(len(cells[0]), dtype=np.bool_) if replaced is None else replaced
    if replaced.all() or not (tables or replaced.any()):
        return list(cells)
    _, first, kind, kind_sizes = np.unique(
        row_keys(cells, sizes), return_index=True, return_inverse=True, return_counts=True
    )
    of_kinds = [cell[first] for cell in cells]
    margins: Iterable[Margin] = margins_of(of_kinds, float(len(kind)), tables)
    is_large = len(kind_sizes) * len(tables) > MOST_PLACES
    stays = np.bincount(kind, ~replaced)
    weights = scaled(
        stays.astype(np.float64), margins if is_large else list(margins), 1 if is_large else RAKING_SWEEPS, FURTHEST
    )
    # Whole numbers that add up to the rows, each next to its weight (systematic sampling).
    levels = np.cumsum(weights) * (len(kind) / weights.sum())
    # Rounding errors must not lose the last row.
    levels[-1] = len(kind)
    ends = np.floor(levels + generator.random()).astype(np.int64)
    target_sizes = np.diff(np.minimum(ends, len(kind)), prepend=0)
    # Surplus rows of a kind change to a kind with too few rows; replaced rows come last, so they change first.
    order = generator.permutation(len(kind))
    has_surplus = target_sizes < kind_sizes
    order = order[has_surplus[kind[order]]]
    order = order[np.lexsort((replaced[order], kind[order]))]
    sizes_of_surplus = kind_sizes[has_surplus]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes_of_surplus) - sizes_of_surplus, sizes_of_surplus)
    surplus_rows = order[rank >= np.repeat(target_sizes[has_surplus], sizes_of_surplus)]
    scarce_kinds = np.repeat(np.arange(len(kind_sizes)), np.maximum(target_sizes - kind_sizes, 0))
    new_kinds, raked_cells = generator.permutation(scarce_kinds), [np.array(cell, dtype=np.int64) for cell in cells]
    for cell, of_kind in zip(raked_cells, of_kinds, strict=True):
        cell[surplus_rows] = of_kind[new_kinds]
    return raked_cells


def exchange(
    columns: dict[str, npt.NDArray[Any]],
    rules: Sequence[tuple[Sequence[str], Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.bool_]]]],
    generator: np.random.Generator,
    within: Mapping[str, IntArray] | None = None,
) -> npt.NDArray[np.bool_]:
    """Exchange values of one column between two rows if fewer then break a rule; return a mask of remaining breaches.

    Every column keeps its values, and so its shares. ``columns`` are changed in place. ``rules``: columns of each rule,
    and a function that masks the rows that break it. ``within``: by column, the cells in which values stay. Within
    cells a breach may also move to another row: no other column depends on the value there, and many such steps repair
    tight rules.
    """
    broken = np.stack([np.asarray(breaks(columns)) for _, breaks in rules])
    names = dict.fromkeys(name for rule_columns, _ in rules for name in rule_columns)
    rule_places = {name: [i for i, (rule_columns, _) in enumerate(rules) if name in rule_columns] for name in names}
    # Breaches must fall, but within cells they may also move.
    max_change = -1 if within is None else 0
    for _ in range(MOST_EXCHANGES):
        for name, places in rule_places.items():
            column, is_wrong = columns[name], np.asarray(broken[places].any(axis=0))
            wrong_rows, valid_rows = np.flatnonzero(is_wrong), np.flatnonzero(~is_wrong)
            partners = np.unique(generator.choice(valid_rows, len(wrong_rows))) if len(valid_rows) else valid_rows
            candidates = generator.permutation(np.append(wrong_rows, partners))
            if within is not None:
                candidates = candidates[np.argsort(within[name][candidates], kind="stable")]
            first_rows, second_rows = candidates[0:-1:2], candidates[1::2]
            is_exchange = (column[first_rows] != column[second_rows]) & (is_wrong[first_rows] | is_wrong[second_rows])
            if within is not None:
                is_exchange &= within[name][first_rows] == within[name][second_rows]
            rows = np.append(first_rows[is_exchange], second_rows[is_exchange])
            partner_rows = np.append(second_rows[is_exchange], first_rows[is_exchange])
            if not len(rows):
                continue
            exchanged = {n: columns[n][partner_rows if n == name else rows] for i in places for n in rules[i][0]}
            breaches = np.stack([rules[i][1](exchanged) for i in places])
            change = (breaches.any(axis=0).astype(int) - is_wrong[rows]).reshape(2, -1).sum(axis=0)
            is_better = np.tile(change <= max_change, 2)
            column[rows[is_better]] = exchanged[name][is_better]
            broken[np.ix_(places, rows[is_better])] = breaches[:, is_better]
        if not broken.any():
            break
    return np.asarray(broken.any(axis=0))


def row_keys(cells: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return a key for each row; two rows have one key exactly if they are equal."""
    keys, span = np.zeros(len(cells[0]), dtype=np.int64), 1
    for cell, size in zip(cells, sizes, strict=True):
        if span * size > MOST_KEYS:
            keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
            span = int(keys.max()) + 1
        keys, span = keys * size + cell, span * size
    return keys


class Margin(NamedTuple):
    """A margin: wanted sums, a function that sums weights, and one that spreads factors of sums to weights."""

    wanted: FloatArray
    sums: Callable[[FloatArray], FloatArray]
    spread: Callable[[FloatArray], FloatArray]

    @classmethod
    def of_axes(cls, shares: FloatArray, axes: Collection[int], dimensions: int) -> Margin:
        """Return the margin of some axes of an array."""
        other_axes = tuple(i for i in range(dimensions) if i not in axes)
        return cls(
            np.expand_dims(shares, other_axes), lambda joint: joint.sum(axis=other_axes, keepdims=True), np.asarray
        )

    @classmethod
    def of_places(cls, wanted: FloatArray, places: npt.NDArray[np.integer]) -> Margin:
        """Return the margin by the place of every weight; places of few rows have no target."""
        return cls(
            wanted,
            lambda weights: np.bincount(places, weights, minlength=len(wanted)).astype(np.float64),
            lambda ratio: np.where(wanted < MIN_TARGET_ROWS, 1.0, ratio)[places],
        )


def scaled(weights: FloatArray, margins: Iterable[Margin], sweeps: int, furthest: float | None = None) -> FloatArray:
    """Scale weights to margins in turn (Deming and Stephan 1940), by at most ``furthest`` in one step.

    Sweeps end early once the weights stay.
    """
    for _ in range(sweeps):
        before = weights
        for target, sums, to_weights in margins:
            current = sums(weights)
            ratio = np.divide(target, current, out=np.zeros_like(current), where=current > 0)
            weights = weights * to_weights(ratio if furthest is None else np.clip(ratio, 1 / furthest, furthest))
        if np.abs(weights - before).sum() <= SCALING_TOLERANCE * weights.sum():
            break
    return weights


def margins_of(
    of_kinds: Sequence[IntArray], rows: float, tables: Mapping[tuple[int, ...], FloatArray]
) -> Iterator[Margin]:
    """Yield margins of rows, or of kinds of rows, with the tables' shares; cells of few rows are merged."""
    for columns, shares in tables.items():
        cells, target_rows = _merge_rare_cells(shares.ravel() * rows)
        flat_cells = of_kinds[columns[0]]
        for column, size in zip(columns[1:], shares.shape[1:], strict=True):
            flat_cells = flat_cells * size + of_kinds[column]
        yield Margin.of_places(target_rows, cells.astype(np.int32)[flat_cells])


def _merge_rare_cells(target_rows: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the place of each cell, 0 for all rare cells together, and the target rows of places.

    >>> _merge_rare_cells(np.array([9.0, 0.5, 8.0, 1.0]))
    (array([1, 0, 2, 0]), array([1.5, 9. , 8. ]))
    """
    is_filled = target_rows >= MIN_TARGET_ROWS
    places = np.where(is_filled, np.cumsum(is_filled), 0)
    return places, np.asarray(np.bincount(places, target_rows, minlength=int(is_filled.sum()) + 1), dtype=np.float64)
