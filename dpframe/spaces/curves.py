"""Curves: a column whose values are functions on a grid of points, smooth in the sense of a kernel."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ParameterError, check_whole
from dpframe.spaces.ball import Ball
from dpframe.spaces.base import Space, refuse_type, register
from dpframe.spaces.json_form import check_names
from dpframe.spaces.vectors import BoundedVectors, check_bound, row_products
from dpframe.spaces.words import number

Floats = npt.NDArray[np.float64]

KERNELS: Mapping[str, tuple[str, ...]] = {
    "RBF": ("length_scale",),
    "Matern": ("length_scale", "nu"),
    "ExpSineSquared": ("length_scale", "periodicity"),
}
"""Kernels of `sklearn.gaussian_process.kernels` that a plan can name, and their parameters."""

_MIN_RELATIVE_EIGENVALUE = 1e-8
"""Threshold on an eigenvalue, relative to the largest, above which its function exceeds rounding."""

_MIN_RELATIVE_GAP = 1e-6
"""Threshold on the relative gap between the eigenvalue at ``rank`` and the next."""

_MIN_ANGLE_COSINE = 1e-3

_EXAMPLE = 'e.g. RBF(4.0) of sklearn.gaussian_process.kernels, or {"name": "RBF", "length_scale": 4.0}'


@dataclass(frozen=True)
class Kernel:
    """A kernel by its name in scikit-learn, and its parameters in the order of `KERNELS`.

    >>> Kernel.of({"name": "RBF", "length_scale": 4})
    Kernel(name='RBF', parameters=(4.0,))
    """

    name: str
    parameters: tuple[float, ...]

    @classmethod
    def of(cls, given: Any) -> Kernel:
        """Return a kernel from scikit-learn's object, or from a name and parameters; `ParameterError` for others."""
        if isinstance(given, Kernel):
            return given
        fields: dict[str, Any] = {}
        if isinstance(given, Mapping):
            fields = dict(given)
        elif hasattr(given, "get_params"):
            fields = {"name": type(given).__name__, **given.get_params()}
        name = str(fields.get("name"))
        if name not in KERNELS:
            raise ParameterError(f"kernel must be one of {', '.join(KERNELS)}, {_EXAMPLE}")
        parameters = {key: value for key, value in fields.items() if key != "name" and not key.endswith("_bounds")}
        if set(parameters) != set(KERNELS[name]) or not all(_is_positive(value) for value in parameters.values()):
            raise ParameterError(f"kernel {name} has the numbers {', '.join(KERNELS[name])}, each above 0")
        return cls(name, tuple(float(parameters[key]) for key in KERNELS[name]))

    def to_json(self) -> dict[str, Any]:
        """Return name and parameters as a JSON object."""
        return {"name": self.name, **dict(zip(KERNELS[self.name], self.parameters, strict=True))}

    def gram(self, points: Floats, grid: Floats) -> Floats:
        """Return the kernel between points and grid points, shape (points, grid)."""
        from sklearn.gaussian_process import kernels  # imported late: the import is slower than everything else here

        kernel = getattr(kernels, self.name)(**dict(zip(KERNELS[self.name], self.parameters, strict=True)))
        return np.asarray(kernel(points[:, None], grid[:, None]), dtype=np.float64)


def _is_positive(value: Any) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return bool(number and 0 < value <= sys.float_info.max)


def leading_basis(gram: Floats, rank: int) -> tuple[Floats, Floats]:
    """Return functions that are orthonormal in the kernel's norm and span its leading eigenfunctions, and their duals.

    ``gram``: the kernel between all points of a grid, shape (m, m); ``rank``: number of functions.

    Returns
    -------
    F, shape (m, rank), whose columns are the functions on the grid, and W, shape (rank, m), with W·F = I: W·f are the
    coefficients of the projection of f on their span, whose Euclidean norm is the projection's norm in the kernel's
    space.

    Notes
    -----
    With K = VΛVᵀ of the grid, F = V_r·Λ_r^½·Q and W = Qᵀ·Λ_r^-½·V_rᵀ. Libraries choose the signs of eigenvectors, and
    rotations of equal eigenvalues. The norm does not change with the rotation Q. A polar decomposition chooses Q so
    that V_r·Q is closest to cosines of the grid. V_r·Q is equal for every choice of V_r, and changes little with K, so
    that other machines can read a release.
    """
    # Rounding may leave the kernel's matrix slightly asymmetric.
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    # `eigh` returns eigenvalues in ascending order.
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[rank - 1] < _MIN_RELATIVE_EIGENVALUE * values[0]:
        max_rank = int((values >= _MIN_RELATIVE_EIGENVALUE * values[0]).sum())
        raise ParameterError(f"rank={rank} is more than the kernel has on this grid; take at most {max_rank}")
    if rank < len(values) and values[rank - 1] - values[rank] < _MIN_RELATIVE_GAP * values[rank - 1]:
        raise ParameterError(
            f"rank={rank} splits functions of equal weight in the kernel; take {rank - 1} or {rank + 1}"
        )
    scale, leading_vectors = np.sqrt(values[:rank]), vectors[:, :rank]
    places = (np.arange(len(gram)) + 0.5) / len(gram)
    cosines = np.cos(np.pi * np.outer(places, np.arange(rank)))
    left_vectors, angles, right_vectors = np.linalg.svd(leading_vectors.T @ (cosines / np.linalg.norm(cosines, axis=0)))
    if angles.min() < _MIN_ANGLE_COSINE:
        raise ParameterError(f"rank={rank} functions of this kernel have no stable basis; change rank by 1")
    rotation = left_vectors @ right_vectors
    return leading_vectors * scale @ rotation, rotation.T @ (leading_vectors / scale).T


MOST_POINTS = 4_096

_FLOAT32_ROUNDING = 2.0**-24
"""Relative rounding of a float of 32 bits."""


@register
@dataclass(frozen=True)
class Curve(BoundedVectors):
    """Functions on a grid of points whose norm in a kernel's space is at most ``bound``; their distance is that norm.

    A curve is replaced by its projection on the kernel's ``rank`` leading eigenfunctions. In an orthonormal basis of
    these functions its coefficients are a `Vector` in an ℓ2 ball: longer vectors are shrunk to the ball, rounded to its
    grid and randomised coordinate by coordinate. The release has functions on the grid, a linear map of the released
    coefficients. Estimates describe the projected and clipped curves: choose a rank whose functions represent the
    relevant shapes. The noise of rows grows with √rank; the noise of measured sums hardly grows.

    Parameters
    ----------
    grid
        Points, ascending, one for each number of a value.
    bound
        Largest norm in the kernel's space, above 0; see `norms`. It must not be read off the data.
    kernel
        `RBF`, `Matern` or `ExpSineSquared` of ``sklearn.gaussian_process.kernels``, or ``{"name": "RBF",
        "length_scale": 4.0}``. Its variance is 1, so that a curve of norm b lies within ±b.
    rank
        Number of eigenfunctions.
    bits
        Bits of a coefficient: 2, 4, 8 or 16.
    room
        As of a `Vector`.

    Raises
    ------
    ParameterError
        For a grid that does not ascend, another bound or kernel, or a rank that the kernel does not have on the grid.

    Notes
    -----
    Noise on functions is private if and only if its finite-dimensional projections are (metric-spaces paper,
    Theorem 3; Example 4; Hall, Rinaldo and Wasserman 2013). Noise ξ on the coefficients is noise Fξ on the function,
    F the basis as functions of any point t, F(t) = k(t, grid)·K⁻¹·F: a process, and the release shows its
    projection on the grid. The coefficients decide it everywhere, so that values between the points, integrals,
    derivatives, and any sub-grid are post-processing of what was randomised, at no cost.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> space = Curve(range(24), bound=3.0, kernel=RBF(4.0), rank=6)
    >>> hours = np.arange(24)
    >>> noon = np.exp(-((hours - 12.0) ** 2) / 32)
    >>> back = space.decode(space.encode([noon])).to_pylist()[0]
    >>> round(back[12], 2), space.norms([noon]).round(2).tolist()
    (0.99, [1.0])
    """

    grid: tuple[float, ...]
    bound: float
    kernel: Any
    rank: int
    bits: int = 16
    room: int = 1

    tag: ClassVar[str] = "curve"

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", _check_grid(self.grid))
        object.__setattr__(self, "bound", check_bound(self.bound))
        object.__setattr__(self, "kernel", Kernel.of(self.kernel))
        max_rank, remedy = len(self.grid), ", the number of points of the grid"
        object.__setattr__(self, "rank", check_whole(self.rank, "rank", 1, max_rank, of="functions", remedy=remedy))
        _ = self.ball, self._maps

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        functions = f"curves at {self.width} points, of {self.rank} functions"
        return f"{functions}, with a norm of at most {number(self.bound)} ({self.kernel.name} kernel)"

    def __dir__(self) -> list[str]:
        """Attributes of every space, and two that only curves have."""
        return [*super().__dir__(), "at", "norms"]

    @cached_property
    def ball(self) -> Ball:
        """The ball of integer coefficients."""
        return Ball(self.rank, self.bits, "l2", self.room)

    noun = "curves"

    @property
    def positions(self) -> tuple[float, ...]:
        """The grid."""
        return self.grid

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        grid = np.array(self.grid)
        return leading_basis(self.kernel.gram(grid, grid), self.rank)

    @property
    def basis(self) -> Floats:
        """The basis functions on the grid, times the bound."""
        return self._maps[0] * self.bound

    def parts(self, values: Floats) -> Floats:
        """Return the coefficients of curves' projections, in parts of the bound."""
        return row_products(values, self._maps[1] / self.bound)

    def norms(self, values: Any) -> Floats:
        """Return the kernel norms of curves' projections, shape (n,); apply it to public curves to choose a bound.

        ``values`` has shape (n, points).
        """
        rows = np.asarray(values, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ParameterError(f"curves must be an array of shape (n, {self.width})")
        return self._norms(self.parts(rows)) * self.bound

    def at(self, values: Any, points: Any) -> Floats:
        """Return curves between the points of the grid, shape (n, points): post-processing of a release.

        ``values`` are on the grid, shape (n, grid); the kernel's functions interpolate them.

        Examples
        --------
        >>> space = Curve(range(24), 3.0, {"name": "RBF", "length_scale": 4.0}, rank=6)
        >>> curve = np.array(space.decode(space.encode([np.cos(np.arange(24) / 4)])).to_pylist())
        >>> space.at(curve, [3.0, 3.5]).shape, bool(np.allclose(space.at(curve, space.grid), curve))
        ((1, 2), True)
        """
        rows, places = np.asarray(values, dtype=np.float64), np.asarray(points, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width or places.ndim != 1:
            raise ParameterError(f"curves must be an array of shape (n, {self.width}), points one of numbers")
        # K⁻¹F = Wᵀ, as W = Qᵀ·Λ_r^-½·V_rᵀ.
        point_basis = self.kernel.gram(places, np.array(self.grid)) @ self._maps[1].T
        return row_products(self.parts(rows) * self.bound, point_basis)

    def check_type(self, type_: pa.DataType) -> None:
        """Accept lists of floats; 32-bit floats only if their rounding preserves the coefficients."""
        super().check_type(type_)
        basis, duals = self._maps
        rounding_error = _FLOAT32_ROUNDING * float(np.abs(duals).sum(axis=1).max() * np.abs(basis).sum(axis=1).max())
        if pa.types.is_float32(type_.value_type) and rounding_error > 0.25 / self.ball.last:
            raise refuse_type(f"a space of curves of rank {self.rank}", type_, "convert it to lists of doubles")

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag."""
        fields = {"grid": list(self.grid), "bound": self.bound, "kernel": self.kernel.to_json(), "rank": self.rank}
        return {"space": self.tag, **fields, "bits": self.bits} | ({"room": self.room} if self.room > 1 else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Return the space from its JSON fields."""
        check_names(data, f"space {cls.tag}", ["grid", "bound", "kernel", "rank"], ["bits", "room"])
        return cls(**data)


def _check_grid(grid: Any) -> tuple[float, ...]:
    try:
        points = tuple(float(point) if isinstance(point, Real) else math.nan for point in grid)
    except (TypeError, ValueError, OverflowError):
        points = ()
    is_ascending = all(a < b for a, b in pairwise(points)) and bool(np.isfinite(points).all())
    if not 2 <= len(points) <= MOST_POINTS or not is_ascending:
        raise ParameterError(f"grid must be 2 to {MOST_POINTS} numbers that ascend, the points of every curve")
    return points
