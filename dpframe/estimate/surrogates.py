"""The surrogate calculus: averages of products of surrogates, with their variance for both targets.

The surrogate φ_f = (Aᵀ)⁻¹f of a function f of a column's value satisfies E[φ_f(Y) | x] = f(x), so the mean
of a product of surrogates, one per column, is an unbiased estimate of the mean of the product of functions.
Let U be the product. The variance for the population is Var(U)/n. The variance for the table subtracts the square
without noise: it is (mean of U² − mean of the surrogate of the squared function)/n. For n rows drawn without
replacement from a table of N, the share c = (N−n)/(N−1) of the difference is added to the table's variance. The
argument ``sampling`` is c throughout: 0 for the table itself, 1 for the population.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from itertools import combinations_with_replacement
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis, NoiseBlock
from dpframe.estimate.evidence.combine import fieller_factor
from dpframe.estimate.evidence.likelihood import expectation_maximization
from dpframe.estimate.joint_domain import JointDomain
from dpframe.plan.columns import Column, Group
from dpframe.spaces.arrays import FloatArray

J = TypeVar("J", bound=tuple[Any, ...])
K = TypeVar("K")
Codes = Mapping[str, npt.NDArray[Any]]
Batches = Iterable[Codes]
Power = Callable[[npt.NDArray[Any], int], FloatArray]
"""A function of a column's codes to a power, from codes and the power."""

Term = Mapping[str, tuple[Power, int]]
"""A product over columns: each factor is a power of the column's function; to the power 0 it may be 0 for null."""

Feature = tuple[str, int]
"""Key of a factor: a column's name, and the power of its function."""

SURROGATE_CHUNK_ROWS = 1 << 15
"""Number of rows whose surrogates are in memory at a time (limit of memory)."""

UNPACKED = 1 << 13
"""Number of rows whose item bits, or coordinates, are unpacked at a time (limit of memory)."""

MAX_TABULATED_CODES = 1 << 20
"""Largest number of codes for which a surrogate is tabulated; otherwise it is evaluated by row (limit of memory)."""
_MAX_CODES_PER_ROW = 4
"""Number of codes per evaluated row above which a surrogate is not tabulated yet (limit of time)."""


LARGEST_JOINT = 50_000_000
"""Largest number of cells of a joint, 400 MB (limit of memory)."""


def check_cells(shape: Sequence[int]) -> None:
    """Raise `ParameterError` for a joint that would not fit in memory, with its size."""
    cells = math.prod(shape)
    if cells > LARGEST_JOINT:
        raise ParameterError(
            f"the joint has {cells:,} cells ({cells * 8 / 1e9:.1f} GB), more than {LARGEST_JOINT:,}; cross fewer "
            "columns or give bins"
        )


def own_squares(table: Any, population: Any, sampling: float) -> Any:
    """Return the square without noise: weighted between its values for the table and for the population."""
    return (1 - sampling) * table + sampling * population


def pieces(batches: Batches, size: int = SURROGATE_CHUNK_ROWS) -> Iterator[Codes]:
    """Yield rows in pieces that fit in a cache."""
    for codes in batches:
        for start in range(0, len(next(iter(codes.values()))), size):
            yield {name: column[start : start + size] for name, column in codes.items()}


def pieces_by_class(batches: Batches, column: str, group: Axis | None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield pieces of a column's released codes with their released class of a grouping column, 0 without one."""
    for codes in pieces(batches, UNPACKED):
        if group is None:
            yield 0, codes[column]
            continue
        classes = group.classify(codes[group.name])
        for class_code in np.unique(classes).tolist():
            yield class_code, codes[column][classes == class_code]


def count_classes(axes: Sequence[Axis], batches: Batches) -> FloatArray:
    """Count the released codes of all axes jointly, in one pass."""
    check_cells([axis.classes for axis in axes])
    places = tuple(range(len(axes)))
    return count_joints(dict(enumerate(axes)), [places], batches)[places]


def count_joints(axes: Mapping[Any, Axis], joints: Iterable[J], batches: Batches) -> dict[J, FloatArray]:
    """Count the released codes of several joints of axes in one pass, by mixed radix; a column is classified once."""
    shapes = {joint: [axes[place].classes for place in joint] for joint in joints}
    counts = {joint: np.zeros(math.prod(shape), dtype=np.int64) for joint, shape in shapes.items()}
    used = {place for joint in counts for place in joint}
    for part in pieces(batches):
        classes = {place: axes[place].classify(part[axes[place].name]) for place in used}
        for joint, table in counts.items():
            cell = classes[joint[0]]
            for place in joint[1:]:
                cell = cell * axes[place].classes + classes[place]
            if len(table) > 1 << 16:
                # bincount would allocate a full table for every piece of rows.
                np.add.at(table, cell, 1)
            else:
                table += np.bincount(cell, minlength=len(table))
    return {joint: table.reshape(shapes[joint]).astype(np.float64) for joint, table in counts.items()}


@dataclass(frozen=True)
class RatioSums:
    """Sums over rows for a ratio ΣU/ΣW, with U the surrogate of f·w and W the surrogate of w.

    The first three are the sums of U, of W, and of the surrogate of f²·w. The others are the sums of U², UW and W².
    """

    value: Any
    present: Any
    square: Any
    value_squares: Any
    crossed: Any
    present_squares: Any

    def by(self, groups: Sequence[Axis]) -> RatioSums:
        """Return the sums in every cell of some axes, from the sums by their released classes, one dimension each.

        With h = (f − r)·w·1_g, the surrogate of h is (U − rW)·φ_g, and h² = (f² − 2rf + r²)·w·1_g.
        """

        def invert(values: FloatArray, squared: bool) -> FloatArray:
            for i, group in enumerate(groups):
                values = np.moveaxis(group.invert(np.moveaxis(values, i, 0), squared=squared), 0, i)
            return values

        # The last three fields are sums of squares and products, which need squared surrogates.
        return RatioSums(*(invert(getattr(self, one.name), i > 2) for i, one in enumerate(fields(self))))

    def ratio(self, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return r = ΣU/ΣW and the sum of its squared residuals (U − rW)², less the squares without noise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            r = self.value / self.present
            residual = self.value_squares - 2 * r * self.crossed + r**2 * self.present_squares
            squares_of_values = self.square - 2 * r * self.value + r**2 * self.present
            return r, residual - own_squares(squares_of_values, 0.0, sampling)

    def shares(self, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return r and its variance; it is infinite if too few rows give a variance of 0 or a negative one."""
        r, residual = self.ratio(sampling)
        with np.errstate(divide="ignore", invalid="ignore"):
            return r, np.where(residual > 0, residual / self.present**2, np.inf)


def joint_cells(
    counts: FloatArray, axes: Sequence[Axis], *, normalize: bool, given: Sequence[int], dropna: bool, sampling: float
) -> tuple[FloatArray, FloatArray]:
    """Return estimates and variances of all cells: counts, or shares within each value of ``given`` axes.

    Let Φ_v be the surrogate of cell v, and W the surrogate of its denominator. A share r = ΣΦ_v/ΣW has the residual
    U = Φ_v − rW. The sum of U² is expanded so that each term is a product over the axes. The variance for the table
    subtracts the square without noise; for the population the mean of the residual is 0.
    """
    n, domain = counts.sum(), JointDomain(tuple(axes))
    estimate, squares, expected_counts = domain.sums(counts), domain.sums(counts, "cell²"), counts
    # In bins at least the expected sums of squares at the fitted shares: the surrogate is rare and huge at the ends of
    # bins, and without a row there the sample variance is far too small.
    for i, axis in enumerate(axes):
        if axis.grid is None or axis.classes == axis.cells:
            continue
        class_counts = counts.sum(axis=tuple(j for j in range(counts.ndim) if j != i))
        class_shares = axis.channel @ expectation_maximization(class_counts, [axis.channel])
        shape = [-1 if j == i else 1 for j in range(counts.ndim)]
        expected_counts = expected_counts.sum(axis=i, keepdims=True) * class_shares.reshape(shape)
    if expected_counts is not counts:
        squares = np.maximum(squares, domain.sums(expected_counts, "cell²"))
    if not normalize:
        return estimate, _replace_zero_variance(
            squares - own_squares(estimate, estimate**2 / max(n, 1), sampling), domain, n
        )
    denominators, cross_products, denominator_squares = (
        domain.sums(counts, factor, given, dropna) for factor in ("base", "cell·base", "base²")
    )
    sums = RatioSums(estimate, denominators, estimate, squares, cross_products, denominator_squares)
    share, residual = sums.ratio(sampling)
    with np.errstate(divide="ignore", invalid="ignore"):
        return share, _replace_zero_variance(residual, domain, n) / denominators**2


def margin_cells(
    counts: FloatArray, axes: Sequence[Axis], kept: Sequence[int], dropna: bool, sampling: float
) -> tuple[FloatArray, FloatArray]:
    """Return estimates and variances of the margins on the axes ``kept``; ``dropna`` omits nulls."""
    estimate, second = (JointDomain(tuple(axes)).sums(counts, factor, kept, dropna) for factor in ("base", "base²"))
    squares_of_values = own_squares(estimate, estimate**2 / max(counts.sum(), 1), sampling)
    return estimate, np.maximum(second - squares_of_values, 0)


def _replace_zero_variance(variance: FloatArray, domain: JointDomain, n: float) -> FloatArray:
    """Return variances of counts; a variance of 0 or less is replaced by the variance under uniform shares.

    The unbiased variance of a handful of rows can be 0 or negative, and would give an interval without width.
    """
    if n <= 0 or not (variance <= 0).any():
        return variance
    uniform = domain.sums(domain.spread(np.full(domain.shape, n / domain.size)), "cell²")
    return np.where(variance <= 0, uniform, variance)


@dataclass(frozen=True)
class Sums:
    """Sums over rows of the surrogates U of t terms, of all U·Uᵀ, and of the surrogates of all products."""

    n: int
    first: FloatArray
    second: FloatArray
    of_products: FloatArray


class Surrogates:
    """Surrogates of products of powers of columns' functions, tabulated once there are enough rows."""

    def __init__(self, columns: Mapping[str, Column], groups: Sequence[Group] = ()) -> None:
        self._columns, self._groups = columns, groups
        self._tables: dict[Feature, FloatArray] = {}
        self._rows: dict[Feature, int] = {}

    def of(self, term: Term, codes: Codes, seen: dict[Feature, FloatArray] | None = None) -> FloatArray:
        """Return the surrogate of a term at released rows: a product over columns and groups.

        ``seen`` caches the factors of these rows.
        """
        seen, remaining, out = {} if seen is None else seen, dict(term), None
        for group in self._groups:
            joint_term = {name: term[name] for name in group.names if name in term}
            if len(joint_term) > 1:
                # Over all tuples coordinates are independent: the mean of the product is the product of means.
                products, mean = np.ones(len(next(iter(codes.values())))), 1.0
                for name, (function, power) in joint_term.items():
                    products = products * function(codes[name], power)
                    mean *= float(function(np.arange(self._columns[name].space.size), power).mean())
                    del remaining[name]
                factor = NoiseBlock.of(group).sums(products, mean)
                out = factor if out is None else out * factor
        for name, (function, power) in remaining.items():
            if (name, power) not in seen:
                seen[name, power] = self.at(name, function, power, codes[name])
            out = seen[name, power] if out is None else out * seen[name, power]
        assert out is not None
        return out

    def at(self, name: str, function: Power, power: int, codes: npt.NDArray[Any]) -> FloatArray:
        """Return the surrogate of a power of a column's function at released codes."""
        mechanism, key = self._columns[name].mechanism, (name, power)

        def values(true_codes: npt.NDArray[Any]) -> FloatArray:
            return function(true_codes, power)

        if mechanism.outputs > MAX_TABULATED_CODES:
            return mechanism.surrogate_at(values, codes)
        if key not in self._tables:
            self._rows[key] = self._rows.get(key, 0) + len(codes)
            # For few rows, surrogates at their codes cost less than a table of all codes.
            if mechanism.outputs > _MAX_CODES_PER_ROW * self._rows[key]:
                return mechanism.surrogate_at(values, codes)
            self._tables[key] = mechanism.surrogate_at(values, np.arange(mechanism.outputs))
        return np.asarray(self._tables[key][codes])


def product_sums(
    wanted: Mapping[K, Sequence[Term]],
    columns: Mapping[str, Column],
    batches: Batches,
    groups: Sequence[Group] = (),
) -> dict[K, Sums]:
    """Return sums of products of surrogates, with second moments, for several lists of terms in one pass.

    A column has the same function in all terms of a list; only its power differs. Columns of one of the ``groups``
    have a joint surrogate.
    """
    surrogates, n = Surrogates(columns, groups), 0
    sums = {
        key: (np.zeros(len(terms)), np.zeros((len(terms), len(terms))), np.zeros((len(terms), len(terms))))
        for key, terms in wanted.items()
    }
    for codes, repeats in _iterate_weighted(columns, batches):
        n += int(repeats.sum())
        factors: dict[Feature, FloatArray] = {}
        for key, terms in wanted.items():
            first, second, of_products = sums[key]
            values = np.stack([surrogates.of(term, codes, factors) for term in terms])
            weighted = values * repeats
            first += weighted.sum(axis=1)
            second += weighted @ values.T
            # The matrix is symmetric, and surrogates of products are slow: fill the upper triangle only.
            for i, j in combinations_with_replacement(range(len(terms)), 2):
                product = dict(terms[i])
                for name, (function, power) in terms[j].items():
                    product[name] = function, power + (product[name][1] if name in product else 0)
                of_products[i, j] += float(surrogates.of(product, codes, factors) @ repeats)
    return {
        key: Sums(n, first, second, np.triu(upper) + np.triu(upper, 1).T)
        for key, (first, second, upper) in sums.items()
    }


def _iterate_weighted(columns: Mapping[str, Column], batches: Batches) -> Iterator[tuple[Codes, FloatArray]]:
    """Yield codes in pieces that fit in a cache, with their multiplicity: 1 for several columns or many codes."""
    name, *other_names = columns
    size = columns[name].mechanism.outputs
    if other_names or size > MAX_TABULATED_CODES:
        yield from (
            (part, np.ones(len(part[name])))
            for part in pieces(batches, SURROGATE_CHUNK_ROWS // max(len(columns) // 2, 1))
        )
        return
    counts = np.zeros(size, dtype=np.int64)
    for codes in batches:
        counts += np.bincount(codes[name], minlength=size)
    occurring = np.flatnonzero(counts)
    yield from ((part, counts[part[name]].astype(np.float64)) for part in pieces([{name: occurring}]))


def delta_method(
    sums: Sums, statistics: Callable[[npt.NDArray[Any], float], Sequence[Any]], sampling: float, weight: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return smooth statistics of the terms' means and their covariance by the delta method.

    ``statistics(means, n)`` must take complex numbers: gradients are complex steps, exact to rounding. ``weight`` is
    the number of rows of the table for each released row; n is the number of rows of the table.
    """
    released, n, step = max(sums.n, 1), sums.n * weight, 1e-100
    means = sums.first / released
    squares_of_values = own_squares(sums.of_products, np.outer(sums.first, sums.first) / released, sampling)
    covariance = (sums.second - squares_of_values) / released**2
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.real(np.array(statistics(means, n)))
        gradient = np.empty((len(values), len(means)))
        for k in range(len(means)):
            shifted_means = means.astype(np.complex128)
            shifted_means[k] += 1j * step
            gradient[:, k] = np.imag(np.array(statistics(shifted_means, n))) / step
        return values, gradient @ covariance @ gradient.T


def ratio_by_all(
    column: Column,
    function: Power,
    groups: Sequence[Axis],
    batches: Batches,
    sampling: float,
    expected: Mapping[str, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return Σ f·w·1_g / Σ w·1_g for every cell g of a joint of axes, and the variances by the delta method.

    ``function`` to the power 1 is f·w, to the power 0 w, and to the power 2 f²·w.
    `RatioSums` per released class of the groups are enough. A group that was randomised together with the column has a
    formula of its own.

    ``expected`` has expected squares of φ_g by axis, a lower bound on the sample's squares. At the ends of bins of a
    wide grid φ_g is rare and huge: the sample variance is 0 without a row there, and enormous with one.
    """
    if groups[0].group is not None:
        return _ratio_within_group(column, function, groups[0], batches, sampling)
    surrogates, shape = Surrogates({column.name: column}), [group.classes for group in groups]
    check_cells([*shape, 6])
    sums_by_class, n = np.zeros((6, math.prod(shape))), 0
    for codes in batches:
        n += len(codes[column.name])
        y, g = codes[column.name], np.zeros(len(codes[column.name]), dtype=np.int64)
        for group in groups:
            g = g * group.classes + group.classify(codes[group.name])
        a, p, s = (surrogates.at(column.name, function, power, y) for power in (1, 0, 2))
        for total, term in zip(sums_by_class, (a, p, s, a * a, a * p, p * p), strict=True):
            total += np.bincount(g, weights=term, minlength=len(total))
    sums = RatioSums(*sums_by_class.reshape([6, *shape])).by(groups)
    r, residual = sums.ratio(sampling)
    p, p_squares = sums.present, sums.present_squares
    if expected:
        expected_squares = reduce(
            np.multiply.outer, [expected.get(group.name, np.ones(group.cells)) for group in groups]
        )
        a2, ap, p2 = sums_by_class[3:].sum(axis=1).tolist()
        with np.errstate(invalid="ignore", over="ignore"):
            residual = np.maximum(residual, expected_squares * np.maximum(a2 - 2 * r * ap + r**2 * p2, 0.0))
        p_squares = np.maximum(p_squares, expected_squares * p2)
        # Noise can make the estimated rows of a group exceed all rows.
        p = np.minimum(p, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The variance of too few rows is 0 or negative: the mean of the group is unknown.
        factor = fieller_factor(p, np.where(p > 0, p_squares, np.inf))
        return r, np.where(residual > 0, residual / p**2 * factor**2, np.inf)


def _ratio_within_group(
    column: Column, function: Power, by: Axis, batches: Batches, sampling: float
) -> tuple[FloatArray, FloatArray]:
    """Return `ratio_by_all` for columns of one group: the sums of f·w, w and f²·w per released cell are enough."""
    noise, n = by.noise, 0
    powers, sums = (1, 0, 2), np.zeros((3, by.cells))
    for codes in batches:
        g, y = by.classify(codes[by.name]), codes[column.name]
        n += len(y)
        for total, power in zip(sums, powers, strict=True):
            total += np.bincount(g, weights=function(y, power), minlength=by.cells)
    uniform_means = np.array([function(np.arange(column.space.size), power).mean() for power in powers])
    means = uniform_means[:, None] * by.law
    # The product of two of the functions f·w·1_g and w·1_g is again one of the three.
    quadratic = (
        noise.products(sums[of_product], (sums[i], sums[j]), (means[i], means[j]), n)
        for i, j, of_product in ((0, 0, 2), (0, 1, 0), (1, 1, 1))
    )
    return RatioSums(*noise.sums(sums, means, n), *quadratic).shares(sampling)
