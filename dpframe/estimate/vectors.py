"""Columns of vectors: means of their coordinates with covariances, and bands around what is made of them.

Noise on each coordinate is independent, so that with φ the surrogate of a coordinate's value, and φ₂ of its square,
E[φᵢφⱼ | x] = xᵢxⱼ for i ≠ j. Where null is a value, a vector is released with probability k for a vector and c for a
null, which then shows the centre z: f·present has the surrogate −c·f(z)/(k − c) at null, (φ_f − c·that)/k elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.channels.vector_noise import BallChannel
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis
from dpframe.estimate.base import Reading
from dpframe.estimate.surrogates import UNPACKED, Batches, check_cells, own_squares, pieces
from dpframe.plan.columns import Column
from dpframe.plan.measures import MeasuredTable
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.vectors import VectorSpace

MOST_CROSSED = 256
"""Numbers of a value up to which all their products are looked at (limit of memory)."""

BANDS = ("band_lower", "band_upper")

POSITION = "position"
"""Name of the index level that coordinates or points of the grid are in."""

DRAWS = 40_000
"""Draws that the quantile of the largest deviation is taken from: its level is off by 0.1 % in the standard error
(tolerance)."""


@dataclass(frozen=True)
class Means:
    """Mean coordinates in parts of the bound, shape (groups, length), and covariances, (groups, length, length)."""

    values: FloatArray
    covariances: FloatArray

    def through(self, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear functions of the coordinates and their variances, shape (groups, functions)."""
        spread = np.einsum("fi,gij,fj->gf", basis, self.covariances, basis)
        return self.values @ basis.T, np.where(np.isfinite(spread), np.maximum(spread, 0.0), np.inf)


def largest_deviations(basis: FloatArray, covariances: FloatArray, level: float) -> list[float]:
    """Return for each covariance the quantile of max|Zᵢ|, Z linear functions' deviations over their standard errors.

    By draws of a generator with a fixed seed, the same for all, so that a band is a function of the release.
    """
    draws, found = np.random.default_rng(0).standard_normal((DRAWS, covariances.shape[-1])).T, []
    for one in covariances:
        if not np.isfinite(one).all():
            found.append(math.inf)
            continue
        values, directions = np.linalg.eigh((one + one.T) / 2)
        root = basis @ directions * np.sqrt(np.maximum(values, 0.0))
        scale = np.sqrt((root**2).sum(axis=1))
        apart = (root[scale > 0] / scale[scale > 0, None]) @ draws
        found.append(float(np.quantile(np.abs(apart, out=apart).max(axis=0, initial=0), level)))
    return found


@dataclass(frozen=True)
class VectorColumn:
    """A column of vectors, and what its channel says of coordinates."""

    column: Column
    space: VectorSpace
    channel: BallChannel

    @classmethod
    def of(cls, column: Column) -> VectorColumn:
        """Take a column, or raise `ParameterError` unless it holds vectors."""
        if not column.space.holds_vectors:
            raise ParameterError(
                f"column {column.name!r} holds no vectors or curves; mean({column.name!r}) is a number"
            )
        space: Any = column.space.inner_space
        channel: Any = column.mechanism.inner
        return cls(column, space, channel)

    @property
    def length(self) -> int:
        """Number of coordinates."""
        return self.space.ball.length

    @cached_property
    def _surrogates(self) -> tuple[FloatArray, FloatArray]:
        """φ and φ₂ of every code of a coordinate, in parts of the bound."""
        first, second = self.channel.moments
        return first / self.space.scale, second / self.space.scale**2

    @cached_property
    def _null(self) -> tuple[FloatArray, FloatArray, float]:
        """Surrogates at null: of the values, of their products, and of presence."""
        kept, flipped = self.column.mechanism.present
        centre = np.full(self.length, -1 / self.space.scale)
        share = -flipped / (kept - flipped)
        return share * centre, share * np.outer(centre, centre), share

    def sums(self, batches: Batches, group: Axis | None) -> tuple[FloatArray, ...]:
        """Return Σ over rows, by released class of another column: a, p, s, a·aᵀ, a·p and p².

        a, p and s are the surrogates of the values, of presence and of the values' products.
        """
        d, classes = self.length, 1 if group is None else group.classes
        check_cells([classes, d, d])
        found = tuple(np.zeros((classes, *shape)) for shape in ((d,), (), (d, d), (d, d), (d,), ()))
        for codes in pieces(batches, UNPACKED):
            part = codes[self.column.name]
            kinds = np.zeros(len(part), dtype=np.int64) if group is None else group.classify(codes[group.name])
            for kind in np.unique(kinds):
                for total, own in zip(found, self._sums_of(part[kinds == kind]), strict=True):
                    total[kind] += own
        return found

    def _sums_of(self, codes: npt.NDArray[Any]) -> tuple[FloatArray | float, ...]:
        null = self._is_null(codes)
        fields = self.space.ball.unpack(codes[~null])
        at_null, square_at_null, absent = self._null
        first, second = self._surrogates
        plain, nulls = first[fields], int(null.sum())
        products = plain.T @ plain
        np.fill_diagonal(products, second[fields].sum(axis=0))
        a, p = self._present(plain, at_null), np.full(len(fields), self._present(1.0, absent))
        return (
            a.sum(axis=0) + nulls * at_null,
            p.sum() + nulls * absent,
            self._present(products, len(fields) * square_at_null) + nulls * square_at_null,
            a.T @ a + nulls * np.outer(at_null, at_null),
            p @ a + nulls * at_null * absent,
            p @ p + nulls * absent * absent,
        )

    def _present(self, shown: Any, at_null: Any) -> Any:
        kept, flipped = self.column.mechanism.present
        return (shown - flipped * at_null) / kept

    def _is_null(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        space: Any = self.column.space
        return np.asarray(space.is_null(codes)) if space.has_null else np.zeros(len(codes), dtype=np.bool_)

    def means(self, batches: Batches, group: Axis | None, sampling: float) -> Means:
        """Return the mean of the vectors that are not null, in every cell of another column, from rows.

        As `ratio_by_all`, with covariances: h = (x − r)·present·1_g has the surrogate (a − r·p)·φ_g.
        """
        sums = self.sums(batches, group)
        plain, square = sums[:3], sums[3:]
        if group is not None:
            plain = tuple(group.invert(values) for values in plain)
            square = tuple(group.invert(values, squared=True) for values in square)
        (a, p, s), (aa, ap, pp) = plain, square
        with np.errstate(divide="ignore", invalid="ignore"):
            r = a / p[:, None]
            own = _centred(s, a, p, r)
            residual = _centred(aa, ap, pp, r) - own_squares(own, 0.0, sampling)
            known = np.isfinite(residual).all(axis=(1, 2)) & (np.einsum("gii->gi", residual) > 0).all(axis=1)
            # Too few rows in a group leave no variance: then nothing is known of its mean.
            return Means(r, np.where(known[:, None, None], residual / p[:, None, None] ** 2, np.inf))

    def covariances(self, batches: Batches, means: Means) -> tuple[FloatArray, FloatArray]:
        """Return the covariances of a value's numbers where it is not null, and their variances, (width, width) each.

        With r the mean of all rows h = (y − r)(y − r)ᵀ·present, y the numbers, has a surrogate in known products. Its
        mean lacks the covariance of r, which is added. Rows' own spread of h is left in the variances: to tell it
        from noise fourth moments would be needed.
        """
        basis, d = self.space.basis, self.space.width
        if d > MOST_CROSSED:
            raise ParameterError(f"covariances of {d} numbers are too many to estimate, at most {MOST_CROSSED} are")
        crossed = np.einsum("ik,jk->kij", basis, basis).reshape(self.length, d * d)
        centre, totals = basis @ means.values[0], np.zeros((3, d, d))
        rows, weight, squared = 0, 0.0, 0.0
        for codes in pieces(batches, UNPACKED // 16):
            h, present = self._products(codes[self.column.name], basis, crossed, centre)
            totals += (h.sum(axis=0), np.einsum("nij,n->ij", h, present), (h * h).sum(axis=0))
            rows, weight, squared = rows + len(h), weight + float(present.sum()), squared + float(present @ present)
        if rows < 2 or weight <= 0:
            return np.full((d, d), np.nan), np.full((d, d), np.inf)
        own = totals[0] / weight
        spread = totals[2] - 2 * own * totals[1] + own**2 * squared
        found = own + basis @ means.covariances[0] @ basis.T
        return found * rows / (rows - 1), np.maximum(spread, 0.0) / weight**2

    def _products(
        self, codes: npt.NDArray[Any], basis: FloatArray, crossed: FloatArray, centre: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the surrogates of (y − r)(y − r)ᵀ·present, shape (n, width, width), and of presence."""
        null, d = self._is_null(codes), len(basis)
        fields = self.space.ball.unpack(codes)
        at_null, square_at_null, absent = self._null
        plain, second = (table[fields] for table in self._surrogates)
        shown = plain @ basis.T
        square, mean = basis @ square_at_null @ basis.T, basis @ at_null
        products = shown[:, :, None] * shown[:, None, :] + ((second - plain**2) @ crossed).reshape(-1, d, d)
        products = np.where(null[:, None, None], square, self._present(products, square))
        values = np.where(null[:, None], mean, self._present(shown, mean))
        present = np.where(null, absent, self._present(1.0, absent))
        moved = values[:, :, None] * centre
        return products - moved - moved.transpose(0, 2, 1) + present[:, None, None] * np.outer(centre, centre), present

    def measured(self, table: MeasuredTable, cells: FloatArray, rows: float, sampling: float) -> Means:
        """Return the same from measured sums, whose last number is U times the count of vectors.

        ``cells`` says which of the table's cells are added up for each group; ``rows`` is NaN where groups or nulls
        hide how many there are. A population's own covariance is at most (1 − |m|²)·I in ℓ1 and ℓ2: that is taken.
        """
        sums = cells @ table.counts.astype(np.float64)
        noise = table.measure.sigma2 * cells.sum(axis=1)
        known = math.isfinite(rows)
        counts = np.full(len(sums), rows * self.space.ball.unit) if known else sums[:, -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = sums[:, :-1] / counts[:, None]
            eye = np.broadcast_to(np.eye(self.length), (len(mean), self.length, self.length))
            spread = eye if known else eye + mean[:, :, None] * mean[:, None, :]
            covariance = spread * (noise / counts**2)[:, None, None]
            most = self.length if self.space.ball.norm == "linf" else 1.0
            own = np.maximum(most - (mean**2).sum(axis=1), 0.0) / (counts / self.space.ball.unit)
            covariance = covariance + sampling * own[:, None, None] * eye
            # A count within its noise leaves a quotient without a law.
            clear = counts > 4 * np.sqrt(noise)
            return Means(mean, np.where(clear[:, None, None], covariance, np.inf))


def _centred(square: FloatArray, first: FloatArray, weight: FloatArray, r: FloatArray) -> FloatArray:
    """Return Σ (a − r·p)(a − r·p)ᵀ from Σ aaᵀ, Σ a·p and Σ p²."""
    cross = first[:, :, None] * r[:, None, :]
    return np.asarray(square - cross - cross.transpose(0, 2, 1) + weight[:, None, None] * r[:, :, None] * r[:, None, :])


class VectorEstimates(Reading):
    """Means of columns of vectors and curves."""

    def mean_curve(
        self, column: str, by: str | None = None, *, bins: Any = None, target: str = "table"
    ) -> pd.DataFrame:
        """Return the mean curve (or vector) of the rows that are not null, with a band around all of it.

        Parameters
        ----------
        column
            A randomised column whose space is `Curve` or `Vector`.
        by
            A randomised column: one mean curve per value (nulls of ``by`` are left out).
        bins
            Cut ``by`` into bins.
        target
            See the class.

        Returns
        -------
        DataFrame with a row for every point of the grid (number of a coordinate), ``by`` as an outer level of its
        index: ``estimate``, ``std_error``, ``lower`` and ``upper`` hold at each point on its own, ``band_lower`` and
        ``band_upper`` at all points of a curve at once at the confidence level (the quantile of the largest of the
        deviations, from their covariance). In the values' own unit. ``attrs["source"]`` says ``"tables"`` where sums
        were measured in addition to the rows, and ``"rows"``.

        Raises
        ------
        ParameterError
            For a column that is not randomised or holds no vectors, or a ``by`` that has no list of values.

        Notes
        -----
        Evaluating the curve anywhere is post-processing: the noise of the released coefficients is the
        finite-dimensional projection of noise on the function (metric-spaces paper, Theorem 3 and Example 4).

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(3_000, columns=["load_curve"])
        >>> space = dpf.Vector(24, bound=5.0)
        >>> safe = dpf.sanitize(frame, epsilon=1, delta=1e-6, spaces={"load_curve": space}, key=bytes(32))
        >>> dpf.Estimates(safe).mean_curve("load_curve").loc[18].index.tolist()
        ['estimate', 'std_error', 'lower', 'upper', 'band_lower', 'band_upper']
        """
        return self._vector_means(column, by, bins, target, with_bands=True)

    def cov_curve(self, column: str) -> pd.DataFrame:
        """Return the covariances of a curve's values at all pairs of points, over the rows that are not null.

        Parameters
        ----------
        column
            A randomised column whose space is `Curve` or `Vector`, of up to 256 numbers.

        Returns
        -------
        DataFrame of points by points, with ``estimate, std_error, lower, upper`` as an outer level of its columns (as
        `cov` has), in the square of the values' unit. Unbiased, from rows only; its diagonal has the variances, which
        noise may make negative. Errors are those of the population that the rows were drawn from: a little more than
        those of the table.

        Raises
        ------
        ParameterError
            For a column that is not randomised or holds no vectors, or vectors of more numbers.

        Examples
        --------
        >>> import numpy as np, pandas as pd, dpframe as dpf
        >>> x = np.random.default_rng(0).normal(size=(5_000, 2)) * [0.3, 0.1]
        >>> frame = pd.DataFrame({"place": list(x)})
        >>> safe = dpf.sanitize(frame, epsilon=30, delta=0, spaces={"place": dpf.Vector(2, bound=1.5)}, key=bytes(32))
        >>> dpf.Estimates(safe).cov_curve("place")["estimate"].round(2).abs().to_numpy().tolist()
        [[0.09, 0.0], [0.0, 0.01]]
        """
        mine = VectorColumn.of(self._source.column(column))
        means = mine.means(self._source.codes([column]), None, 0.0)
        point, variance = mine.covariances(self._source.codes([column]), means)
        index = pd.Index(mine.space.positions, name=POSITION)
        return self._results(point, variance).wide(index, index)

    def _vector_means(
        self, column: str, by: Any, bins: Any, target: str, *, with_bands: bool = False, weights: str | None = None
    ) -> pd.DataFrame:
        """Return the mean at every coordinate or point, of groups in their order."""
        if weights is not None:
            raise ParameterError(f"the mean of column {column!r} is a vector, which takes no weights; leave them out")
        sampling, mine = self._source.sampling(target), VectorColumn.of(self._source.column(column))
        if by is not None and not isinstance(by, str):
            raise ParameterError(f"the mean of column {column!r} is a vector, which takes one column in by; name one")
        if by is None and bins is not None:
            raise ParameterError("bins are for the column of by; name one, or leave bins out")
        if by == column:
            raise ParameterError("a column cannot be grouped by itself; mean gives its mean")
        group = None if by is None else self._axis(by, bins)
        told = self._measured_vectors(mine, group)
        if told is not None:
            hidden = group is not None or mine.column.space.has_null
            own = 1.0 if target == "population" else 0.0
            means = mine.measured(*told, math.nan if hidden else float(self._all_rows), own)
            source = "tables"
        else:
            batches = self._source.codes([column] if group is None else [column, group.name])
            means, source = mine.means(batches, group, sampling), "rows"
        index: Any = pd.Index(mine.space.positions, name=POSITION)
        if group is not None:
            last = group.cells - group.has_null
            means = Means(means.values[:last], means.covariances[:last])
            index = pd.MultiIndex.from_product([group.labels[:last], index], names=[group.name, POSITION])
        basis = mine.space.basis
        results, bands = self._results(*means.through(basis)), {}
        if with_bands:
            factors = largest_deviations(basis, means.covariances, self.confidence_level)
            reach = np.array(factors)[:, None] * results.std_error
            bands = dict(zip(BANDS, (results.estimate - reach, results.estimate + reach), strict=True))
        out = pd.DataFrame({name: values.ravel() for name, values in (results.parts | bands).items()}, index=index)
        out.attrs["source"] = source
        return out

    def _measured_vectors(self, mine: VectorColumn, group: Axis | None) -> tuple[MeasuredTable, FloatArray] | None:
        tables = [t for t in self._joints.tables.tables if t.measure.kind == "vectors"]
        own = [t for t in tables if t.measure.columns[0] == mine.column.name]
        if group is None:
            if not own:
                return None
            best = min(own, key=lambda t: t.measure.sigma2 * len(t.counts))
            return best, np.ones((1, len(best.counts)))
        if group.grid is not None:
            return None
        table = next((t for t in own if t.measure.columns[1:] == (group.name,)), None)
        return None if table is None else (table, np.eye(group.cells))
