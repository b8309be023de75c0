"""Standard errors to expect of a plan, in closed form and without data.

For a type t (the shares of a column's codes) the released law is At. The variance of an estimate per row is E[φ²] −
t(f²), with φ the surrogate of f. It is linear in t, so the worst type is a single code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpframe.channels import Mechanism, ResponseChannel
from dpframe.errors import ParameterError
from dpframe.spaces import Integer, Nullable, Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import line_of

if TYPE_CHECKING:
    import pandas as pd


MOST_CELLS = 1_024
"""Most values of a column with a marginal; a joint is forecast up to the square of this number (limit of time)."""

NOTHING = "share: no information"
"""Unit of shares with a forecast error above 1, which carries no information about a share."""

FINEST = 1 << 12
"""Most cells of the grid that forecasts use for uniform values: errors differ by 0.03 % at most (tolerance)."""


def marginal_errors(mechanism: Mechanism, shares: FloatArray, n: int, sampled: float = 0.0) -> tuple[float, float]:
    """Return the root mean square over cells of the standard error of a share: for a type, and the worst.

    ``sampled`` is the factor (N−n)/(N−1) on the values' own variance that a sample of the table adds.
    """
    return joint_errors([(mechanism, shares)], n, sampled)


def joint_errors(parts: Sequence[tuple[Mechanism, FloatArray]], n: int, sampled: float = 0.0) -> tuple[float, float]:
    """Return the root mean square over the cells of a joint of independent columns: for a type, and the worst.

    The second moment of a product of surrogates is the product of the columns' own.
    """
    return _product_errors([_cell_moments(mechanism, shares) for mechanism, shares in parts], n, sampled)


@dataclass(frozen=True)
class _CellMoments:
    """Sums over a column's cells: of the surrogates' second moments for a type and for the worst code, of the type."""

    typical: float
    worst: float
    own: float
    alike: float
    cells: int


def _cell_moments(mechanism: Mechanism, shares: FloatArray) -> _CellMoments:
    """Return the sums over a column's cells for a mechanism and shares."""
    squares = mechanism.invert(mechanism.apply(shares), squared=True)
    per_code = mechanism.apply(_surrogate_square_sums(mechanism), adjoint=True)
    sums = float(squares.sum()), float(per_code.max()), float(shares.sum()), float(shares @ shares)
    return _CellMoments(*sums, mechanism.size)


def _product_errors(parts: Sequence[_CellMoments], n: int, sampled: float) -> tuple[float, float]:
    """Return the errors of a product of independent factors: for a type, and the worst."""
    typical_square, worst_square, share_sum, square_sum = (
        math.prod(values) for values in zip(*((p.typical, p.worst, p.own, p.alike) for p in parts), strict=True)
    )
    cells, sampling_variance = math.prod(p.cells for p in parts), sampled * (share_sum - square_sum)
    return math.sqrt((max(typical_square - share_sum, 0) + sampling_variance) / cells / n), math.sqrt(
        (max(worst_square - 1, 0) + sampling_variance) / cells / n
    )


def _surrogate_square_sums(mechanism: Mechanism) -> FloatArray:
    """Return Σ_v Φ[y, v]² for every released code y."""
    if isinstance(mechanism, ResponseChannel):  # symmetric, and of too many codes for a matrix if they are tuples
        return mechanism.invert(np.ones(mechanism.size), squared=True)
    return np.asarray(mechanism.invert(np.eye(mechanism.size), squared=True).sum(axis=0))


def mean_errors(
    space: Space, mechanism: Mechanism, shares: FloatArray | None, n: int, sampled: float = 0.0
) -> tuple[float, float]:
    """Return the standard error of the mean over present values: for a type, and the worst."""
    null = space.has_null
    values = space.values
    width = float(values - 1)
    if values - 1 > FINEST and shares is None and not isinstance(mechanism, ResponseChannel):
        coarse_space = Nullable(Integer(0, FINEST)) if null else Integer(0, FINEST)
        mechanism = mechanism.recalibrated(coarse_space, mechanism.epsilon, mechanism.delta)
        values = FINEST + 1
    numbers = np.append(np.linspace(-0.5, 0.5, values), np.zeros(int(null)))
    # Null is the last code, and not part of the mean.
    present = np.append(np.ones(values), np.zeros(int(null)))
    t = np.full(len(present), 1 / len(present)) if shares is None else shares
    share = float(t @ present)
    residual = np.where(present > 0, numbers - float(t @ numbers) / max(share, 1e-300), 0.0)
    # The mean is a ratio of two sums, which its residual linearises (delta method).
    squared = mechanism.surrogate(residual) ** 2
    typical = float(mechanism.apply(t) @ squared) - float(t @ residual**2)
    worst = float((mechanism.apply(squared, adjoint=True) - residual**2).max())
    unit, sampling_variance = width * line_of(space)[1], sampled * float(t @ residual**2)
    # Rounding may bring a variance of nearly 0 below it.
    errors = [math.sqrt((max(v, 0) + sampling_variance) / n) / max(share, 1e-300) * unit for v in (typical, worst)]
    return errors[0], errors[1]


def support_errors(mechanism: Mechanism, n: int) -> tuple[float, float]:
    """Return the standard error of the share of sets with an item: of a rare item, and the worst.

    Nulls are taken as rare.
    """
    channel: Any = mechanism
    rare, common = channel.sets.support_variances
    return math.sqrt(rare / n), math.sqrt(max(rare, common) / n)


def vector_errors(space: Space, mechanism: Mechanism, n: int) -> tuple[float, float]:
    """Return the standard error of a number of the mean vector, root mean square over numbers, and the worst.

    Vectors are taken at 0, with the largest error; the rows' own spread, small next to the noise, is left out.
    """
    channel: Any = mechanism.inner
    at_centre, largest = channel.variances
    scale = vector_scale(space) / channel.ball.radius / math.sqrt(n) / mechanism.present[0]
    return scale * math.sqrt(at_centre), scale * math.sqrt(largest)


def vector_scale(space: Space) -> float:
    """Return the noise in a value's numbers, in parts of the bound, from noise of 1 in every coordinate."""
    vectors: Any = space.inner_space
    return float(np.sqrt((vectors.basis**2).sum(axis=1).mean()))


def typical_error(column: Any, n: int) -> float:
    """Return one standard error that represents a column: of its marginal, its items, or its mean by diameter."""
    space, mechanism = column.space, column.mechanism
    if space.holds_sets:
        return support_errors(mechanism, n)[0]
    if space.holds_vectors:
        return vector_errors(space, mechanism, n)[0] / vector_scale(space)
    # Codes beyond the bounds have no share to forecast.
    if space.size <= MOST_CELLS and not mechanism.widens:
        return marginal_errors(mechanism, np.full(space.size, 1 / space.size), n)[0]
    if not space.is_numeric:
        return float(column.expected_error / math.sqrt(n))
    return mean_errors(space, mechanism, None, n)[0] / float(space.diameter)


def forecast_table(
    columns: Sequence[Any],
    n: int,
    types: Mapping[str, Any] | None,
    groups: Sequence[Any] = (),
    population: int | None = None,
    split: Mapping[str, Mechanism] | None = None,
) -> pd.DataFrame:
    """Return the errors of every marginal, pair, group and mean.

    ``columns`` have name, space and mechanism; ``groups`` have names, and the mechanism of some of them. With groups
    the table has one more column, ``split_error``: ``std_error`` with the mechanisms in ``split``, one for every column
    without groups. ``population`` is the number of rows that the n are a sample of.
    """
    import pandas as pd

    sample_factor = 0.0 if population is None else (population - n) / max(population - 1, 1)

    if types is not None and not isinstance(types, Mapping):
        raise ParameterError("types must be a mapping {column: shares of its values}")
    given_types = {name: _check_shares(name, value, columns) for name, value in (types or {}).items()}
    small_columns = [c for c in columns if c.space.size <= MOST_CELLS and not c.space.code_words]
    listed = [c for c in small_columns if not c.mechanism.widens]
    shares = {c.name: given_types.get(c.name, np.full(c.space.size, 1 / c.space.size)) for c in listed}
    name_tuples = [(c.name,) for c in listed] + [(a.name, b.name) for a, b in combinations(listed, 2)]
    for group in groups:
        cells = math.prod(c.space.size for c in columns if c.name in group.names)
        # Pairs of a group are among the pairs of columns already.
        if len(group.names) > 2 and cells <= MOST_CELLS**2 and set(group.names) <= set(shares):
            name_tuples.append(group.names)
    mechanism_of = {c.name: c.mechanism for c in columns}
    split_mechanism_of = mechanism_of if split is None else split
    # Each column is in many pairs, and a matrix of a thousand cells is squared for it once.
    singles = {name: _cell_moments(mechanism_of[name], shares[name]) for name in shares}
    splits = (
        singles
        if split_mechanism_of is mechanism_of
        else {name: _cell_moments(split_mechanism_of[name], shares[name]) for name in shares}
    )
    rows: list[tuple[str, str, float, float, str, float]] = []
    for names in name_tuples:
        errors = _product_errors(_joint_factors(names, singles, shares, groups), n, sample_factor)
        split_error = _product_errors([splits[name] for name in names], n, sample_factor)[0]
        rows.append(
            ("marginal" if len(names) == 1 else "joint", " × ".join(names), *errors, _share_unit(errors), split_error)
        )
    for c in columns:
        if c.space.is_numeric:
            errors = mean_errors(c.space, c.mechanism, given_types.get(c.name), n, sample_factor)
            split_error = mean_errors(c.space, split_mechanism_of[c.name], given_types.get(c.name), n, sample_factor)[0]
            rows.append(("mean", c.name, *errors, c.space.unit, split_error))
    for c in columns:
        if c.space.holds_sets:
            errors = support_errors(c.mechanism, n)
            rows.append(("support", c.name, *errors, _share_unit(errors), errors[0]))
    for c in columns:
        if c.space.holds_vectors:
            errors = vector_errors(c.space, c.mechanism, n)
            rows.append(("mean curve", c.name, *errors, c.space.unit, errors[0]))
    table = pd.DataFrame(rows, columns=["statistic", "columns", "std_error", "worst", "unit", "split_error"])
    return table.set_index(["statistic", "columns"]).drop(columns=[] if groups else ["split_error"])


def _share_unit(errors: tuple[float, float]) -> str:
    """Return the unit of a share's errors: `NOTHING` if even the first is above 1."""
    return "share" if errors[0] <= 1 else NOTHING


def _joint_factors(
    names: Sequence[str], singles: Mapping[str, _CellMoments], shares: Mapping[str, FloatArray], groups: Sequence[Any]
) -> list[_CellMoments]:
    """Return the moments of a joint's independent factors: columns, and the columns of a group as one."""
    parts, single_names = [], list(names)
    for group in groups:
        members = [name for name in group.names if name in names]
        if len(members) > 1:
            product = reduce(np.multiply.outer, [shares[name] for name in members])
            parts.append(_cell_moments(group.marginal(members), product.ravel()))
            single_names = [name for name in single_names if name not in members]
    return parts + [singles[name] for name in single_names]


def _check_shares(name: str, value: Any, columns: Sequence[Any]) -> FloatArray:
    """Return a type as an array of shares, or raise `ParameterError`."""
    column = next((c for c in columns if c.name == name), None)
    if column is None:
        raise ParameterError(f"types names {name!r}, which is not a randomised column")
    if column.space.code_words:
        raise ParameterError(f"types[{name!r}] means nothing: {column.space.noun} have too many values; leave it out")
    shares = np.asarray(value, dtype=np.float64)
    if shares.shape != (column.space.size,) or (shares < 0).any() or not math.isclose(shares.sum(), 1, abs_tol=1e-6):
        raise ParameterError(f"types[{name!r}] must be {column.space.size} shares that add up to 1, one per value")
    return shares
