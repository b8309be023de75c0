"""What is asked of a joint, and what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.estimate.axes import Axis


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a joint: counts or shares, within which axes, with or without nulls, of which target."""

    axes: Sequence[Axis]
    normalize: bool
    given: tuple[int, ...]
    dropna: bool
    population: bool

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [axis.name for axis in self.axes]

    def presented(
        self, counts: FloatArray, variances: FloatArray, rows: float, shared: FloatArray | float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return counts, or shares of their base, and variances, of cells whose covariance is diag(v) − u uᵀ.

        ``shared`` is u: 0 for independent cells. A share q = x/Σx has, for cells in the base, the variance
        (v(1 − 2q) + q²Σv − (u − qΣu)²)/(Σx)². A population's varies about it by q(1 − q)/Σx, its counts by x(1 − x/n).
        """
        shared = np.broadcast_to(np.asarray(shared, dtype=np.float64), counts.shape)
        if not self.normalize:
            own = np.maximum(counts * (1 - counts / max(rows, 1.0)), 0.0) if self.population else 0.0
            return counts, variances - shared**2 + own
        inside = self._inside(counts.shape)
        free = tuple(i for i in range(counts.ndim) if i not in self.given)
        if inside.all() and not self.given:
            total, (spread, moved) = np.full([1] * counts.ndim, rows), np.zeros([2] + [1] * counts.ndim)
        else:
            total, spread, moved = ((v * inside).sum(axis=free, keepdims=True) for v in (counts, variances, shared))
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = counts / total
            own = np.maximum(shares * (1 - shares) / np.maximum(total, 1.0), 0.0) if self.population else 0.0
            part = np.where(spread > 0, variances * (1 - 2 * shares) + shares**2 * spread, variances)
            part -= (shared - shares * moved) ** 2
            return shares, np.where(total > 0, np.maximum(part, 0.0) / total**2 + own, np.inf)

    def unit(self, shares: FloatArray, rows: float) -> Any:
        """Return the share of all rows that is presented as 1: of counts one row, of shares all of their base."""
        if not self.normalize:
            return 1 / rows
        free = tuple(i for i in range(shares.ndim) if i not in self.given)
        return np.maximum((shares * self._inside(shares.shape)).sum(axis=free, keepdims=True), 1e-300)

    def _inside(self, shape: Sequence[int]) -> npt.NDArray[np.bool_]:
        inside = np.ones(shape, dtype=np.bool_)
        for i, axis in enumerate(self.axes):
            if self.dropna and axis.has_null and i not in self.given:
                inside[(slice(None),) * i + (-1,)] = False
        return inside


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates and variances of all cells, by which method, from ``"tables"``, ``"rows"`` or ``"both"``.

    ``hidden`` says that rows showed structure that pairs do not hold, ``counted`` that counts of inference are part.
    """

    estimate: FloatArray
    variance: FloatArray
    method: str
    source: str
    hidden: bool = False
    counted: bool = False

    @property
    def said(self) -> dict[str, Any]:
        """What a result's attrs say of it."""
        hidden = {"hidden": True} if self.hidden else {}
        return {"method": self.method, "measured": self.counted, "source": self.source} | hidden
