"""Standard errors of statistics of randomised rows, in closed form and without data.

For a type t (the shares of a column's codes) the released law is At. The variance of an estimate per row is E[φ²] −
t(f²), with φ the surrogate of f. It is linear in t, so the worst type is a single code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpframe.channels import Mechanism, ResponseChannel
from dpframe.spaces import Integer, Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map

_FINEST_GRID = 1 << 12
"""Most cells of the grid that forecasts use for uniform values: errors differ by 0.03 % at most (tolerance)."""


class Errors(NamedTuple):
    """Standard errors of a statistic: for a type, and for the worst type."""

    typical: float
    worst: float


@dataclass(frozen=True)
class CellMoments:
    """Sums over a column's cells: of the surrogates' second moments for a type and for the worst code, of the type."""

    typical: float
    worst: float
    own: float
    alike: float
    cells: int

    @classmethod
    def of(cls, mechanism: Mechanism, shares: FloatArray | None = None) -> CellMoments:
        """Return the sums of a mechanism's codes with these shares, by default uniform ones."""
        shares = np.full(mechanism.size, 1 / mechanism.size) if shares is None else shares
        squares = mechanism.invert(mechanism.apply(shares), squared=True)
        if isinstance(mechanism, ResponseChannel):  # symmetric, and of too many codes for a matrix if they are tuples
            released_sums = mechanism.invert(np.ones(mechanism.size), squared=True)
        else:
            released_sums = np.asarray(mechanism.invert(np.eye(mechanism.size), squared=True).sum(axis=0))
        per_code = mechanism.apply(released_sums, adjoint=True)
        sums = float(squares.sum()), float(per_code.max()), float(shares.sum()), float(shares @ shares)
        return cls(*sums, mechanism.size)


def share_errors(factors: Sequence[CellMoments], n: int, sampled: float = 0.0) -> Errors:
    """Return the root mean square over the cells of a joint of independent factors, of the standard error of a share.

    The second moment of a product of surrogates is the product of the factors' own. ``sampled`` is the factor
    (N−n)/(N−1) on the values' own variance that a sample of the table adds.
    """
    typical_square, worst_square, share_sum, square_sum = (
        math.prod(values) for values in zip(*((f.typical, f.worst, f.own, f.alike) for f in factors), strict=True)
    )
    cells, sampling_variance = math.prod(f.cells for f in factors), sampled * (share_sum - square_sum)
    # Rounding may bring a variance of nearly 0 below it.
    variances = max(typical_square - share_sum, 0), max(worst_square - 1, 0)
    return Errors(*(math.sqrt((variance + sampling_variance) / cells / n) for variance in variances))


def mean_errors(space: Space, mechanism: Mechanism, shares: FloatArray | None, n: int, sampled: float = 0.0) -> Errors:
    """Return the standard error of the mean over present values, in the space's unit."""
    flag_codes, values = space.flag_codes, space.values
    width = float(values - 1)
    if values - 1 > _FINEST_GRID and shares is None and not isinstance(mechanism, ResponseChannel):
        coarse_space = space.around(Integer(0, _FINEST_GRID))
        mechanism = mechanism.recalibrated(coarse_space, mechanism.epsilon, mechanism.delta)
        values = _FINEST_GRID + 1
    numbers = np.append(np.linspace(-0.5, 0.5, values), np.zeros(flag_codes))
    # Special values and null have the last codes, and are not part of the mean.
    present = np.append(np.ones(values), np.zeros(flag_codes))
    t = np.full(len(present), 1 / len(present)) if shares is None else shares
    share = float(t @ present)
    residual = np.where(present > 0, numbers - float(t @ numbers) / max(share, 1e-300), 0.0)
    # The mean is a ratio of two sums, which its residual linearises (delta method).
    squared = mechanism.surrogate(residual) ** 2
    typical = float(mechanism.apply(t) @ squared) - float(t @ residual**2)
    worst = float((mechanism.apply(squared, adjoint=True) - residual**2).max())
    unit, sampling_variance = width * affine_map(space)[1], sampled * float(t @ residual**2)
    return Errors(
        *(math.sqrt((max(v, 0) + sampling_variance) / n) / max(share, 1e-300) * unit for v in (typical, worst))
    )


def support_errors(mechanism: Mechanism, n: int) -> Errors:
    """Return the standard error of the share of sets with an item: of a rare item, and the worst.

    Nulls are taken as rare.
    """
    channel: Any = mechanism
    rare, common = channel.sets.support_variances
    return Errors(math.sqrt(rare / n), math.sqrt(max(rare, common) / n))


def vector_errors(space: Space, mechanism: Mechanism, n: int) -> Errors:
    """Return the standard error of a number of the mean vector, root mean square over numbers.

    Vectors are taken at 0, with the largest error; the rows' own spread, small next to the noise, is left out.
    """
    channel: Any = mechanism.inner
    at_centre, largest = channel.variances
    scale = vector_scale(space) / channel.ball.radius / math.sqrt(n) / mechanism.present[0]
    return Errors(scale * math.sqrt(at_centre), scale * math.sqrt(largest))


def vector_scale(space: Space) -> float:
    """Return the noise in a value's numbers, in parts of the bound, from noise of 1 in every coordinate."""
    vectors: Any = space.inner_space
    return float(np.sqrt((vectors.basis**2).sum(axis=1).mean()))
