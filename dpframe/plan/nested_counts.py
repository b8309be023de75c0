"""Counts of nested cells: several noisy histograms of one column, each of which divides cells of the one before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.arrays import FloatArray


@dataclass(frozen=True)
class Layer:
    """Noisy counts between ``ends``, which ascend: one fewer than there are ends, each with the same variance."""

    ends: Sequence[int | float]
    counts: Sequence[int]
    variance: float


def fit_layers(layers: Sequence[Layer]) -> tuple[FloatArray, FloatArray]:
    """Return the counts of the last, finest layer's cells by weighted least squares over all layers.

    Parameters
    ----------
    layers
        From the coarsest to the finest. Every layer's ends are ends of the next one's.

    Returns
    -------
    Counts, shape (cells,), and their covariance, shape (cells, cells), by the Gauss–Markov theorem (Aitken 1936).

    Examples
    --------
    >>> counts, covariance = fit_layers([Layer((0, 2), [10], 1.0), Layer((0, 1, 2), [4, 4], 2.0)])
    >>> counts.round(2).tolist(), covariance.round(2).tolist()
    ([4.8, 4.8], [[1.2, -0.8], [-0.8, 1.2]])
    """
    size = len(layers[-1].counts)
    precision, right = np.zeros((size, size)), np.zeros(size)
    position = {end: i for i, end in enumerate(layers[-1].ends)}
    for layer in layers:
        places = np.array([position[end] for end in layer.ends])
        counts = np.array(layer.counts) / layer.variance
        alone = np.flatnonzero(np.diff(places) == 1)
        precision[places[alone], places[alone]] += 1 / layer.variance
        right[places[alone]] += counts[alone]
        for i in np.flatnonzero(np.diff(places) > 1):
            part = slice(places[i], places[i + 1])
            precision[part, part] += 1 / layer.variance
            right[part] += counts[i]
    # No measurement reaches over the border of two cells of the first layer.
    covariance: FloatArray = np.diag(1 / np.diag(precision))
    for start, stop in itertools.pairwise(position[end] for end in layers[0].ends):
        if stop > start + 1:
            covariance[start:stop, start:stop] = np.linalg.inv(precision[start:stop, start:stop])
    fit: FloatArray = covariance @ right
    return fit, covariance
