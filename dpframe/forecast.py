"""Standard errors to expect of a plan, in closed form and without data.

For a type t (the shares of a column's codes) the released law is At, and the variance of an estimate per row
is E[φ²] − t(f²), with φ the surrogate of f. It is linear in t, so the worst type is a single code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError
from dpframe.mechanisms import Mechanism
from dpframe.spaces import Integer, Nullable, Space

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["forecast_table", "joint_errors", "marginal_errors", "mean_errors"]

FloatArray = npt.NDArray[np.float64]

MOST_CELLS = 1_024
"""Columns of more values have no marginal to speak of; a pair is forecast up to the square of it."""

FINEST = 1 << 16
"""A finer grid is forecast by this one: errors depend on its steps by no more than rounding does."""


def marginal_errors(mechanism: Mechanism, shares: FloatArray, n: int) -> tuple[float, float]:
    """Return the root mean square over cells of the standard error of a share: for a type, and the worst."""
    return joint_errors([(mechanism, shares)], n)


def joint_errors(parts: Sequence[tuple[Mechanism, FloatArray]], n: int) -> tuple[float, float]:
    """Return the same for the cells of a joint of independent columns.

    Of a product of surrogates the second moment is the product of the columns' own.
    """
    typical = worst = own = cells = 1.0
    for mechanism, shares in parts:
        squares = mechanism.invert(mechanism.apply(shares), squared=True)
        per_code = mechanism.apply(_squared_sums(mechanism), adjoint=True)
        typical *= float(squares.sum())
        worst *= float(per_code.max())
        own *= float(shares.sum())
        cells *= mechanism.size
    return math.sqrt(max(typical - own, 0) / cells / n), math.sqrt(max(worst - 1, 0) / cells / n)


def _squared_sums(mechanism: Mechanism) -> FloatArray:
    """Return Σ_v Φ[y, v]² for every released code y."""
    return np.asarray(mechanism.invert(np.eye(mechanism.size), squared=True).sum(axis=0))


def mean_errors(space: Space, mechanism: Mechanism, shares: FloatArray | None, n: int) -> tuple[float, float]:
    """Return the standard error of the mean over present values: for a type, and the worst."""
    null = space.tag == "nullable"
    values = space.size - null
    width = float(values - 1)
    if values - 1 > FINEST:
        coarse = Nullable(Integer(0, FINEST)) if null else Integer(0, FINEST)
        mechanism, shares = type(mechanism).calibrate(coarse, mechanism.epsilon, mechanism.delta), None
        values = FINEST + 1
    first, second = _numbers(space, np.array([0, 1]))
    numbers = np.append(np.linspace(-0.5, 0.5, values), np.zeros(int(null)))
    present = np.append(np.ones(values), np.zeros(int(null)))
    t = np.full(len(present), 1 / len(present)) if shares is None else shares
    share = float(t @ present)
    residual = np.where(present > 0, numbers - float(t @ numbers) / max(share, 1e-300), 0.0)
    squared = mechanism.surrogate(residual) ** 2
    typical = float(mechanism.apply(t) @ squared) - float(t @ residual**2)
    worst = float((mechanism.apply(squared, adjoint=True) - residual**2).max())
    unit = width * (second - first)
    found = [math.sqrt(max(v, 0) / n) / max(share, 1e-300) * unit for v in (typical, worst)]
    return found[0], found[1]


def _numbers(space: Space, codes: npt.NDArray[np.int64]) -> FloatArray:
    found = space.numbers(codes)
    assert found is not None
    return found


def forecast_table(columns: Sequence[Any], n: int, types: Mapping[str, Any] | None) -> pd.DataFrame:
    """Return the errors of every marginal, pair and mean; ``columns`` have name, space and mechanism."""
    import pandas as pd

    known = {name: _shares(name, value, columns) for name, value in (types or {}).items()}
    listed = [c for c in columns if c.space.size <= MOST_CELLS]
    parts = {c.name: (c.mechanism, known.get(c.name, np.full(c.space.size, 1 / c.space.size))) for c in listed}
    rows: list[tuple[str, str, float, float, str]] = []
    for c in listed:
        rows.append(("marginal", c.name, *marginal_errors(*parts[c.name], n), "share"))
    for a, b in combinations(listed, 2):
        rows.append(("joint", f"{a.name} × {b.name}", *joint_errors([parts[a.name], parts[b.name]], n), "share"))
    for c in columns:
        if c.space.numbers(np.zeros(1, dtype=np.int64)) is not None:
            found = mean_errors(c.space, c.mechanism, known.get(c.name), n)
            rows.append(("mean", c.name, *found, c.space.unit))
    table = pd.DataFrame(rows, columns=["statistic", "columns", "std_error", "worst", "unit"])
    return table.set_index(["statistic", "columns"])


def _shares(name: str, value: Any, columns: Sequence[Any]) -> FloatArray:
    column = next((c for c in columns if c.name == name), None)
    if column is None:
        raise ParameterError(f"types names {name!r}, which is not a randomised column")
    shares = np.asarray(value, dtype=np.float64)
    if shares.shape != (column.space.size,) or (shares < 0).any() or not math.isclose(shares.sum(), 1, abs_tol=1e-6):
        raise ParameterError(f"types[{name!r}] must be {column.space.size} shares that add up to 1, one per value")
    return shares
