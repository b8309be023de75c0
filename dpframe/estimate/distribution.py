"""Shares of fine cells of a numeric column, and quantiles read off them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.estimate.axes import BinnedAxis
from dpframe.estimate.likelihood import bootstrap_errors, column_refits, fit_columns
from dpframe.estimate.moments import REPLICATES, numbers
from dpframe.evidence.cells import UNKNOWN
from dpframe.evidence.number_law import reached
from dpframe.spaces import Space


@dataclass(frozen=True)
class Distribution:
    """A numeric column's distribution on a grid of cells, by maximum likelihood through the channel."""

    axis: BinnedAxis
    n: int
    shares: FloatArray

    @classmethod
    def fit(cls, axis: BinnedAxis, counts: FloatArray) -> Distribution:
        """Fit to counts of released classes of an axis for fits."""
        return cls(axis, int(counts.sum()), fit_columns(counts[:, None], axis.channel)[:, 0])

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: float) -> FloatArray:
        """Return the root mean squared error of a function of the shares, by parametric bootstrap."""
        pairs = column_refits(self.shares, self.axis.channel, self.n, sampling, REPLICATES)
        return bootstrap_errors(pairs, function)

    source = "rows"

    def parts_of(self, parts: FloatArray, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return shares of the rows of which ``parts`` tells how much of each cell, and their standard errors."""
        return parts_of(self, parts, sampling)

    def known(self, law: FloatArray) -> FloatArray | float:
        """Return none: there are rows alone."""
        return 0.0

    def unresolved(self, parts: FloatArray) -> FloatArray:
        """Return by how much shares of parts of cells may be off as it does not show how rows lie."""
        return unresolved(self, parts)

    def quantiles_of(self, levels: FloatArray, sampling: float, z: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return codes of quantiles and the ends of their intervals at z standard errors."""
        return quantiles_of(self, levels, sampling, z)


class Fitted(Protocol):
    """A distribution that was fitted to rows, on a grid of cells."""

    @property
    def axis(self) -> Any:
        """The grid."""

    @property
    def n(self) -> int:
        """Released rows."""

    def known(self, law: FloatArray) -> FloatArray | float:
        """Return the information that counts besides the rows have of shares with these laws within them."""

    @property
    def shares(self) -> FloatArray:
        """Shares of its cells."""

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: Any) -> FloatArray:
        """Return the root mean squared error of a function of the shares."""


def parts_of(fitted: Fitted, parts: FloatArray, sampling: Any) -> tuple[FloatArray, FloatArray]:
    """Return shares of parts of cells, and errors, of which what a fit cannot resolve is part."""
    parts = np.atleast_2d(parts)
    own = fitted.errors_of(lambda shares: np.asarray(parts @ shares), sampling)
    return parts @ fitted.shares, np.hypot(own, unresolved(fitted, parts))


def unresolved(fitted: Fitted, parts: FloatArray) -> FloatArray:
    """Return by how much shares of parts of cells may be off as noise blurs how rows lie within a window.

    A fit to noisy rows is smooth, or has spikes where noise put them; which of both the column has does not show within
    windows of which the unbiased shares have errors of a twentieth. Where a window is asked for in part, a heap with
    most of its rows may lie on either side.
    """
    found, held = windows(fitted), fitted.shares
    cells = len(found)
    error = np.zeros(len(parts))
    inside = np.clip(parts[:, :cells], 0.0, 1.0)
    for window in range(int(found.max()) + 1 if cells else 0):
        own = found == window
        mass = float(held[:cells][own].sum())
        reach = inside[:, own].max(axis=1) - inside[:, own].min(axis=1)
        narrow = (inside[:, own].mean(axis=1) < NARROW) & (inside.sum(axis=1) <= inside[:, own].sum(axis=1) + 1e-9)
        error += (np.where(narrow, (reach > 0) * UNKNOWN, reach**2 * UNEVEN)) * mass**2
    return np.sqrt(error)


def windows(fitted: Fitted) -> npt.NDArray[np.int64]:
    """Return the window of every cell of values: as many as rows tell apart, of about equal width."""
    channel, rows = fitted.axis.channel, float(fitted.n)
    cells = fitted.axis.bins
    expected = np.maximum(channel @ fitted.shares, 1e-12)
    count = cells
    while count > 1:
        found: npt.NDArray[np.int64] = np.arange(cells) * count // cells
        law = np.zeros((channel.shape[1], count + (channel.shape[1] > cells)))
        law[np.arange(cells), found] = fitted.shares[:cells] + 1e-6
        law[cells:, count:] = 1.0
        law /= law.sum(axis=0)
        seen = channel @ law
        information = seen.T @ (seen * (rows / expected)[:, None]) + fitted.known(law)
        spread = np.linalg.pinv(information, hermitian=True)
        if np.sqrt(np.diag(spread)[:count].max()) <= RESOLVED and np.linalg.matrix_rank(information) == len(spread):
            return found
        count //= 2
    return np.zeros(cells, dtype=np.int64)


NARROW, UNEVEN = 0.25, 0.1
"""Part of a window below which a range asks for a heap, and unevenness of a window between parts that are wider."""

RESOLVED = 0.05
"""Largest standard error of a window's unbiased share at which the window is told from the others."""


def quantiles_of(
    fitted: Fitted, levels: FloatArray, sampling: Any, z: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return codes of quantiles, and the ends of their intervals at z standard errors."""
    cells = fitted.axis.bins
    edges = np.asarray(fitted.axis.edges, dtype=np.float64)
    present = max(float(fitted.shares[:cells].sum()), 1e-300)
    parts = np.zeros((cells + 1, len(fitted.shares)))
    parts[:, :cells] = np.tril(np.ones((cells + 1, cells)), -1)
    errors = parts_of(fitted, parts, sampling)[1] / present
    heights = np.concatenate([[0.0], np.cumsum(fitted.shares[:cells])]) / present
    ends = [reached(edges, heights - level, z * errors) for level in levels.tolist()]
    found = quantiles(fitted.axis, fitted.shares, levels)
    # Half a cell stands for the interpolation within one, which no bootstrap sees; where its rows lie it does not show.
    floor = z * (edges[1] - edges[0]) / np.sqrt(12)
    low, high = (np.array(side) for side in zip(*ends, strict=True))
    lower = edges[np.clip(np.searchsorted(edges, low, side="right") - 1, 0, cells - 1)]
    upper = edges[np.clip(np.searchsorted(edges, high), 1, cells)] - 1
    return found, np.minimum(lower, found - floor), np.maximum(upper, found + floor)


def line_of(space: Space) -> tuple[float, float]:
    """Return the number of code 0 and the distance between neighbouring codes' numbers."""
    first, second = numbers(space, np.array([0, 1]))
    return float(first), float(second - first)


def aggregation(fine: BinnedAxis, coarse: BinnedAxis) -> FloatArray:
    """Return the share of every fine cell that lies in every coarse one, shape (coarse, fine)."""
    a, b = np.asarray(fine.edges, dtype=np.float64), np.asarray(coarse.edges, dtype=np.float64)
    low = np.maximum(b[:-1, None], a[None, :-1])
    high = np.minimum(b[1:, None], a[None, 1:])
    inside = np.maximum(high - low, 0) / np.diff(a)
    if not fine.has_null:
        return np.asarray(inside)
    padded = np.zeros((coarse.cells, fine.cells))
    padded[:-1, :-1] = inside
    padded[-1, -1] = 1.0
    return padded


def quantiles(axis: BinnedAxis, shares: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles of the values that are present, as positions on the grid of codes."""
    present = shares[: axis.bins]
    heights = np.concatenate([[0.0], np.cumsum(present)])
    heights /= max(heights[-1], 1e-300)
    # A code stands for the interval of width one around it.
    return np.clip(np.interp(levels, heights, axis.edges) - 0.5, 0, axis.edges[-1] - 1)
