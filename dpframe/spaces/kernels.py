"""Kernels of curves: which functions are smooth, and a basis of the smoothest ones that every machine finds alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError

Floats = npt.NDArray[np.float64]

KERNELS: Mapping[str, tuple[str, ...]] = {
    "RBF": ("length_scale",),
    "Matern": ("length_scale", "nu"),
    "ExpSineSquared": ("length_scale", "periodicity"),
}
"""Kernels of `sklearn.gaussian_process.kernels` that a plan can name, and their parameters."""

_SMALLEST = 1e-8
"""Least eigenvalue, in parts of the largest, of a function that exceeds rounding."""

_APART = 1e-6
"""Least relative gap between the last eigenvalue that is kept and the next."""

_LEAST_ANGLE = 1e-3

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
        """Read a kernel of scikit-learn's, or its name and parameters; `ParameterError` for others."""
        if isinstance(given, Kernel):
            return given
        found: dict[str, Any] = {}
        if isinstance(given, Mapping):
            found = dict(given)
        elif hasattr(given, "get_params"):
            found = {"name": type(given).__name__, **given.get_params()}
        name = str(found.get("name"))
        if name not in KERNELS:
            raise ParameterError(f"kernel must be one of {', '.join(KERNELS)}, {_EXAMPLE}")
        own = {key: value for key, value in found.items() if key != "name" and not key.endswith("_bounds")}
        if set(own) != set(KERNELS[name]) or not all(_is_positive(value) for value in own.values()):
            raise ParameterError(f"kernel {name} has the numbers {', '.join(KERNELS[name])}, each above 0")
        return cls(name, tuple(float(own[key]) for key in KERNELS[name]))

    def to_json(self) -> dict[str, Any]:
        """Return name and parameters as a JSON object."""
        return {"name": self.name, **dict(zip(KERNELS[self.name], self.parameters, strict=True))}

    def gram(self, points: Floats, grid: Floats) -> Floats:
        """Return the kernel between points and those of a grid, shape (points, grid)."""
        from sklearn.gaussian_process import kernels  # imported late: it costs more than all the rest

        made = getattr(kernels, self.name)(**dict(zip(KERNELS[self.name], self.parameters, strict=True)))
        return np.asarray(made(points[:, None], grid[:, None]), dtype=np.float64)


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
    With K = VΛVᵀ of the grid, F = V_r·Λ_r^½·Q and W = Qᵀ·Λ_r^-½·V_rᵀ. Eigenvectors are only known up to their signs,
    and to rotations where eigenvalues are equal, as a library chooses; the norm does not change with the rotation Q,
    which is chosen so that V_r·Q is as near to cosines of the grid as can be (a polar decomposition). That is the same
    for every choice of V_r, and changes little where K does: a release is read by other machines.
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[rank - 1] < _SMALLEST * values[0]:
        most = int((values >= _SMALLEST * values[0]).sum())
        raise ParameterError(f"rank={rank} is more than the kernel has on this grid; take at most {most}")
    if rank < len(values) and values[rank - 1] - values[rank] < _APART * values[rank - 1]:
        raise ParameterError(f"rank={rank} parts functions of one weight in the kernel; take {rank - 1} or {rank + 1}")
    scale, kept = np.sqrt(values[:rank]), vectors[:, :rank]
    places = (np.arange(len(gram)) + 0.5) / len(gram)
    cosines = np.cos(np.pi * np.outer(places, np.arange(rank)))
    left, angles, right = np.linalg.svd(kept.T @ (cosines / np.linalg.norm(cosines, axis=0)))
    if angles.min() < _LEAST_ANGLE:
        raise ParameterError(
            f"rank={rank} functions of this kernel have no basis that is safe to name; change rank by 1"
        )
    turn = left @ right
    return kept * scale @ turn, turn.T @ (kept / scale).T
