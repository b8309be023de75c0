"""Counts of nested cells: several noisy histograms of one column, each dividing cells of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.spaces.arrays import FloatArray


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
    Counts, shape (cells,), and their covariance, shape (cells, cells), by the Gauss–Markov theorem (Aitken 1936;
    Kalman 1960, one measurement after the other).

    Examples
    --------
    >>> counts, covariance = fit_layers([Layer((0, 2), [10], 1.0), Layer((0, 1, 2), [4, 4], 2.0)])
    >>> counts.round(2).tolist(), covariance.round(2).tolist()
    ([4.8, 4.8], [[1.2, -0.8], [-0.8, 1.2]])
    """
    finest = layers[-1]
    fit = np.array(finest.counts, dtype=np.float64)
    covariance: FloatArray = np.diag(np.full(len(fit), float(finest.variance)))
    position = {end: i for i, end in enumerate(finest.ends)}
    # A measured sum of cells that are known already is one step of Kalman's filter, which covers only these.
    for layer in reversed(layers[:-1]):
        places = np.array([position[end] for end in layer.ends])
        for count, start, stop in zip(layer.counts, places[:-1], places[1:], strict=True):
            part = slice(start, stop)
            known = covariance[part, part]
            spread = known.sum(axis=1)
            gain = spread / (spread.sum() + layer.variance)
            fit[part] += gain * (count - fit[part].sum())
            known -= np.outer(gain, spread)
    return fit, covariance
