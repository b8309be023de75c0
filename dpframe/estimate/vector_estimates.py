"""Estimates of vectors and curves: means by coordinate or point, and bands that hold at all of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis, make_axis
from dpframe.estimate.base import RESULTS, Reading
from dpframe.estimate.vectors import Means, VectorColumn, largest_deviations
from dpframe.plan.measures import MeasuredTable

BANDS = ("band_lower", "band_upper")

POSITION = "position"
"""Name of the index level that coordinates or points of the grid are in."""


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
        were measured beside the rows, and ``"rows"``.

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
        mine, means, group, source = self._vector_means(column, by, bins, target)
        basis = mine.space.basis
        point, variance = means.through(basis)
        results = self._results(point, variance, (slice(None),))
        factors = largest_deviations(basis, means.covariances, self.confidence_level)
        reach = np.array(factors)[:, None] * results["std_error"]
        results |= dict(zip(BANDS, (point - reach, point + reach), strict=True))
        return self._curve_frame(results, mine, group, source)

    def cov_curve(self, column: str) -> pd.DataFrame:
        """Return the covariances of a curve's values at all pairs of points, over the rows that are not null.

        Parameters
        ----------
        column
            A randomised column whose space is `Curve` or `Vector`, of up to 256 numbers.

        Returns
        -------
        DataFrame of points by points, with ``estimate, std_error, lower, upper`` as an outer level of its columns (as
        `cov` has), in the square of the values' unit. Unbiased, from rows alone; its diagonal has the variances, which
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
        results = self._results(point, variance, (slice(None),))
        index = pd.Index(mine.space.positions, name=POSITION)
        return pd.concat({name: pd.DataFrame(results[name], index, index) for name in RESULTS}, axis=1)

    def _mean_vector(self, column: str, by: Any, weights: str | None, bins: Any, target: str) -> pd.DataFrame:
        """Return the mean at every coordinate or point, with intervals of its own."""
        if weights is not None:
            raise ParameterError(f"the mean of column {column!r} is a vector, which takes no weights; leave them out")
        mine, means, group, source = self._vector_means(column, by, bins, target)
        results = self._results(*means.through(mine.space.basis), (slice(None),))
        return self._curve_frame(results, mine, group, source)

    def _vector_null_rate(self, column: str, target: str) -> pd.Series[Any]:
        """Return the share of rows where a column of vectors is null, from rows."""
        mine = VectorColumn.of(self._source.column(column))
        rate, variance = mine.null_rate(self._source.codes([column]), self._source.sampling(target))
        results = self._results(np.array([rate]), np.array([variance]), (slice(None),))
        return self._dressed_series(results, column, "number", column)

    def _vector_means(
        self, column: str, by: Any, bins: Any, target: str
    ) -> tuple[VectorColumn, Means, Axis | None, str]:
        """Return mean coordinates, the groups that they are of, and what they are from."""
        sampling, mine = self._source.sampling(target), VectorColumn.of(self._source.column(column))
        if by is not None and not isinstance(by, str):
            raise ParameterError(f"the mean of column {column!r} is a vector, which takes one column in by; name one")
        if by is None and bins is not None:
            raise ParameterError("bins are for the column of by; name one, or leave bins out")
        if by == column:
            raise ParameterError("a column cannot be grouped by itself; mean gives its mean")
        group = None if by is None else make_axis(self._source.column(by), bins)
        told = self._measured_vectors(mine, group)
        if told is not None:
            hidden = group is not None or mine.column.space.has_null
            own = 1.0 if target == "population" else 0.0
            means = mine.measured(*told, math.nan if hidden else float(self._all_rows), own)
            source = "tables"
        else:
            batches = self._source.codes([column] if group is None else [column, group.name])
            means, source = mine.means(batches, group, sampling), "rows"
        if group is not None and group.has_null:
            means = Means(means.values[: group.cells - 1], means.covariances[: group.cells - 1])
        return mine, means, group, source

    def _measured_vectors(self, mine: VectorColumn, group: Axis | None) -> tuple[MeasuredTable, FloatArray] | None:
        """Return the measured sums that tell of the groups, and which of their cells are which group's."""
        if self._joints is None:
            return None
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

    def _curve_frame(
        self, results: dict[str, FloatArray], mine: VectorColumn, group: Axis | None, source: str
    ) -> pd.DataFrame:
        """Return results, shape (groups, positions), as rows."""
        index: Any = pd.Index(mine.space.positions, name=POSITION)
        if group is not None:
            labels = group.labels[: group.cells - group.has_null]
            index = pd.MultiIndex.from_product([labels, index], names=[group.name, POSITION])
        names = [name for name in (*RESULTS, *BANDS) if name in results]
        out = pd.DataFrame({name: results[name].ravel() for name in names}, index=index)
        out.attrs["source"] = source
        return out
