"""Rows drawn from a fitted mixture: of each released row one given that row, or fresh ones.

A class is drawn with the weights w_k ∏_c (C_c L_k)(y_c), and given it every cell with L_k(x)·C_c(y_c | x). Draws of
one column for rows of one class and one released value are spread evenly over the law (systematic sampling, in an
order of their own): every cell has its probability, and counts vary less than independent draws would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpframe.estimate.tables.mixture import Mixture
from dpframe.spaces.arrays import FloatArray, IntArray

CHUNK = 16_384
"""Rows whose classes are drawn at once: their weights stay in cache."""

TABLE_CELLS = 4_096
"""Classes of several columns together whose likelihoods fit into one table."""


def draw_given(
    mixture: Mixture,
    channels: Sequence[FloatArray],
    codes: Sequence[npt.NDArray[np.integer]],
    generator: np.random.Generator,
) -> list[IntArray]:
    """Draw for every released row the cells of an original row, given the released one.

    ``mixture``: the fit; every one of its starts serves its part of the rows, in turn. ``channels``: p(class | cell) of
    every column, shape (classes, cells). ``codes``: released classes of every column.

    Returns
    -------
    list of arrays
        Cells of every column, in the order of rows.
    """
    found = [np.zeros(len(codes[0]), dtype=np.int64) for _ in codes]
    for f in range(mixture.fits):
        part, rows = mixture.fit(f), slice(f, None, mixture.fits)
        released = [np.asarray(code[rows], dtype=np.int64) for code in codes]
        classes = _draw_classes(part, channels, released, generator)
        for column, (law, channel, code) in enumerate(zip(part.laws, channels, released, strict=True)):
            # Shape (class of the mixture, released class, cell).
            laws = (law[:, None, :] * channel[None, :, :]).reshape(-1, law.shape[1])
            found[column][rows] = _draw_cells(laws, classes * channel.shape[0] + code, generator)
    return found


def draw_fresh(mixture: Mixture, rows: int, generator: np.random.Generator) -> list[IntArray]:
    """Draw new rows from the mixture."""
    classes = _draw_cells(mixture.weights[None, :], np.zeros(rows, dtype=np.int64), generator)
    return [_draw_cells(law, classes, generator) for law in mixture.laws]


def draw_within(
    fine: FloatArray,
    bins: IntArray,
    drawn: IntArray,
    generator: np.random.Generator,
    channel: FloatArray | None = None,
    codes: npt.NDArray[np.integer] | None = None,
) -> IntArray:
    """Draw a number's cell, of the shares ``fine``, within each row's bin, given its released class if there is one."""
    count = int(bins.max()) + 1
    inside = (bins[None, :] == np.arange(count)[:, None]).astype(np.float64)
    laws = inside * (fine + 1e-12)
    if channel is None or codes is None:
        return _draw_cells(laws, drawn, generator)
    given = (laws[:, None, :] * channel[None, :, :]).reshape(-1, len(bins))
    return _draw_cells(given, drawn * channel.shape[0] + np.asarray(codes, dtype=np.int64), generator)


def _draw_classes(
    mixture: Mixture, channels: Sequence[FloatArray], codes: Sequence[IntArray], generator: np.random.Generator
) -> IntArray:
    """Draw every row's class from w_k ∏ (C_c L_k)(y_c)."""
    likelihoods = [channel @ law.T for law, channel in zip(mixture.laws, channels, strict=True)]
    # Relative to its mean over classes, lest a product of many columns vanish.
    relative = [(like / np.maximum(like @ mixture.weights, 1e-30)[:, None]).astype(np.float32) for like in likelihoods]
    tables = list(_together(relative, codes))
    weights, found = mixture.weights.astype(np.float32), np.zeros(len(codes[0]), dtype=np.int64)
    for start in range(0, len(found), CHUNK):
        rows = slice(start, start + CHUNK)
        mass = np.broadcast_to(weights, (len(found[rows]), len(weights)))
        for table, place in tables:
            mass = mass * table[place[rows]]
        levels = np.cumsum(mass, axis=1)
        aim = generator.random(len(levels), dtype=np.float32) * levels[:, -1]
        found[rows] = np.minimum((levels <= aim[:, None]).sum(axis=1), len(weights) - 1)
    return found


def _together(
    relative: Sequence[npt.NDArray[np.float32]], codes: Sequence[IntArray]
) -> Iterator[tuple[npt.NDArray[np.float32], IntArray]]:
    """Join columns of few classes into tables of their products, and say where each row is in them."""
    table, place = relative[0], codes[0]
    for like, code in zip(relative[1:], codes[1:], strict=True):
        if len(table) * len(like) <= TABLE_CELLS:
            table = (table[:, None, :] * like[None, :, :]).reshape(-1, like.shape[1])
            place = place * len(like) + code
        else:
            yield table, place
            table, place = like, code
    yield table, place


def _draw_cells(laws: FloatArray, keys: IntArray, generator: np.random.Generator) -> IntArray:
    """Draw a cell for every row from the law of its key, shape (keys, cells), evenly over the rows of a key."""
    totals = laws.sum(axis=1, keepdims=True)
    levels = np.cumsum(np.where(totals > 0, laws / np.where(totals > 0, totals, 1.0), 1 / laws.shape[1]), axis=1)
    order = generator.permutation(len(keys))
    order = order[np.argsort(keys[order], kind="stable")]
    counts = np.bincount(keys, minlength=len(laws))
    first = np.cumsum(counts) - counts
    sorted_keys = keys[order]
    rank = np.arange(len(keys)) - first[sorted_keys]
    aim = (rank + generator.random(len(laws))[sorted_keys]) / counts[sorted_keys]
    levels = levels + np.arange(len(laws))[:, None]
    levels[:, -1] = np.arange(1, len(laws) + 1)
    cells = np.searchsorted(levels.ravel(), sorted_keys + aim, side="right") - sorted_keys * laws.shape[1]
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = np.clip(cells, 0, laws.shape[1] - 1)
    return found
