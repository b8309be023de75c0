"""Estimates of how many rows have which values, by column and jointly, in pandas' words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import DpframeWarning, ParameterError, check_flags, is_one_of, warn
from dpframe.estimate import sets, surrogates
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.axes import Axis, make_axis
from dpframe.estimate.base import Bins, column_names
from dpframe.estimate.column_evidence import of_ranks_alone
from dpframe.estimate.not_found import nan_if_not_found
from dpframe.estimate.results import Answer, Results
from dpframe.estimate.weighted import WeightedEstimates
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import has_few_values


class CountEstimates(WeightedEstimates):
    """Counts, shares and joints, of categories and bins."""

    @nan_if_not_found
    def value_counts(
        self,
        column: str | Sequence[str],
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        bins: Any = None,
        dropna: bool = True,
        *,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        method: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return how many rows hold each value of a column, or of several (pandas' ``value_counts``).

        Parameters
        ----------
        column
            A randomised column. Every value of its space has a row in the result, except the ``other`` bucket of an
            inferred list if its count is within its noise of 0. Or a list of columns, as in `joint`.
        normalize
            Give shares instead of counts (of the rows that are not null, if ``dropna``).
        sort, ascending
            Order by estimate; otherwise in the space's order.
        bins
            Cut a numeric column into bins first: a number of bins (at most one for each value), or their bounds (the
            outer bins reach to the bounds of the space); of several columns ``{column: number or bounds}``.
        dropna
            Leave nulls out.
        where
            Conditions on other columns, as in `count`: only rows that meet them, from draws of the table (see `infer`).
        weights
            A randomised column of numbers from 0 on, as weights of a survey: the results are sums of weights, or their
            shares, from draws of the table.
        method
            See the class; by default ``"auto"``, the most precise, for measured lists of values. For other values the
            default is ``"inverse"``, and with ``bins`` ``"em"``, the distribution of `histogram`. Unbiased counts
            of bins have errors beyond use, and are refused if the noise is much wider than the steps.
        target
            See the class.

        Returns
        -------
        DataFrame indexed by value, or by the values of several columns, with ``estimate, std_error, lower, upper``.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or of too many values.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["sex", "education"])
        >>> spaces = {"sex": ["F", "M"], "education": list(dpf.datasets.EDUCATION)}
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, key=bytes(32))
        >>> dpf.Estimates(safe).value_counts("education").round()
                    estimate  std_error  lower  upper
        education
        vocational     599.0        9.0  581.0  617.0
        secondary      581.0        9.0  563.0  599.0
        primary        281.0        8.0  265.0  296.0
        bachelor       275.0        8.0  260.0  290.0
        master         191.0        7.0  176.0  205.0
        none            74.0        7.0   61.0   87.0
        """
        if is_one_of(normalize, self.plan.names) and isinstance(column, str):
            raise ParameterError(f"several columns are a list: value_counts([{column!r}, {normalize!r}])")
        check_flags(normalize=normalize, sort=sort, ascending=ascending, dropna=dropna)

        def sort_counts(counts: pd.DataFrame) -> pd.DataFrame:
            return counts.sort_values("estimate", ascending=ascending, kind="stable") if sort else counts

        if not isinstance(column, str):
            names, bins_by_column = column_names(column, "column"), {} if bins is None else bins
            if weights is None and where is None:
                shape: Any = {"normalize": normalize, "bins": bins_by_column, "dropna": dropna, "target": target}
                return sort_counts(self.joint(names, method=method or "auto", **shape))
            self._check_draws(names, weights, method)
            axes = self._axes(names, bins_by_column)
            sums, attrs, labels = self._weigh_shown_cells(axes, weights, target, dropna, normalize, where=where)
            index = labels[0] if len(labels) == 1 else pd.MultiIndex.from_product(labels)
            return sort_counts(sums.each(np.ravel).frame(index, attrs))
        axes = self._axes([column], {} if bins is None else {column: bins})
        if weights is not None or where is not None:
            self._check_draws([column], weights, method)
            sums, attrs, (index,) = self._weigh_shown_cells(axes, weights, target, dropna, normalize, where=where)
            return sort_counts(sums.frame(index, attrs))
        fits = method is None and axes[0].column.space.is_listed
        fits = fits and self._joints.tables.source_of([column]) != "rows"
        method = "auto" if fits else self._default_method(axes) if method is None else method
        answer = self._cells(axes, normalize, (), dropna, method, target)
        # Fits include the counts of inference, so that attrs report them as measured.
        attrs = answer.said | ({"measured": self._evidence.counted(axes[0]) is not None} if fits else {})
        results, (index,) = self._select_cells(answer, axes, dropna)
        tails, rows, space = self._tails(column), self._all_rows, axes[0].column.space
        if answer.intervals is not None and axes[0].grid is not None and isinstance(bins, Iterable):
            results = self._widen_at_bounds(results, axes[0].grid, 1 / max(rows, 1.0) if normalize else 1.0)
        if space.is_numeric and not space.is_listed and tails is not None:
            base = (tails.present if dropna else rows) if normalize else 1.0
            ends = tails.of_bins(len(index), space.flag_codes - (space.has_null and dropna)), (0.0, 0.0)
            results, attrs = results.opened(ends, self._z, 1 / max(base, 1.0)), attrs | self._tail_attrs([column])
        ranks = self._evidence.ranks(column) if bins is None else None
        if ranks is not None:
            population, level = target == "population", self.confidence_level
            results = of_ranks_alone(results, list(index), ranks, rows, normalize, population, level, dropna)
            attrs |= {"measured": True}
        results = self._clip_to_possible(results, answer, normalize)
        # One warning for the table, if most of its cells carry no information.
        if 2 * np.count_nonzero(results.std_error > (1.0 if normalize else rows)) > len(index):
            noun, remedy = ("single values", "pass bins=10") if bins is None else ("bins", "pass fewer bins")
            warn(f"counts of {noun} of {column!r} have errors above the number of rows; {remedy}", DpframeWarning)
        return sort_counts(results.frame(index, attrs))

    @nan_if_not_found
    def joint(
        self,
        columns: Sequence[str],
        *,
        normalize: bool = False,
        given: str | Sequence[str] = (),
        bins: Bins | None = None,
        dropna: bool = True,
        method: str = "auto",
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return the joint counts (or shares) of any number of columns.

        Parameters
        ----------
        columns
            Randomised columns; those of many values need ``bins``.
        normalize
            Give shares instead of counts.
        given
            Columns to condition on: shares within each of their values (implies ``normalize``).
        bins
            ``{column: number or bounds}`` for numeric columns.
        dropna
            Leave cells with a null out.
        method, target
            See the class.

        Returns
        -------
        DataFrame indexed by the columns' values, with ``estimate, std_error, lower, upper``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["sex", "education"])
        >>> spaces = {"sex": ["F", "M"], "education": list(dpf.datasets.EDUCATION)}
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, key=bytes(32))
        >>> dpf.Estimates(safe).joint(["sex", "education"], given="sex").loc["F"].round(2)
                    estimate  std_error  lower  upper
        education
        none            0.04       0.00   0.03   0.05
        primary         0.14       0.01   0.13   0.15
        secondary       0.29       0.01   0.28   0.31
        vocational      0.29       0.01   0.27   0.30
        bachelor        0.15       0.01   0.14   0.17
        master          0.09       0.01   0.08   0.10
        """
        check_flags(normalize=normalize, dropna=dropna)
        columns, given_columns = column_names(columns, "columns"), column_names(given, "given")
        axes = self._axes(columns, {} if bins is None else bins)
        stray = [name for name in given_columns if name not in columns]
        if stray:
            raise ParameterError(f"given names {stray[0]!r}, which is not among the joint's columns")
        if given_columns and len(given_columns) == len(columns):
            raise ParameterError("given names every column of the joint; leave one free")
        positions = tuple(columns.index(name) for name in given_columns)
        answer = self._cells(axes, normalize or bool(given_columns), positions, dropna, method, target)
        results, labels = self._select_cells(answer, axes, dropna)
        index = labels[0] if len(axes) == 1 else pd.MultiIndex.from_product(labels)
        results = self._clip_to_possible(results.each(np.ravel), answer, normalize or bool(given_columns))
        return results.frame(index, answer.said)

    def _weigh_shown_cells(
        self,
        axes: Sequence[Axis],
        weights: str | None,
        target: str,
        dropna: bool,
        normalize: bool,
        given: Sequence[int] = (),
        margins: bool = False,
        where: Mapping[str, Any] | None = None,
    ) -> tuple[Results, dict[str, Any], list[pd.Index[Any]]]:
        """Return the sums of weights of the cells to show, their shares, or the sums with totals of two axes."""
        shown_cells = self._cells_to_show(axes, dropna)
        labels = [axis.labels[cells] for axis, cells in zip(axes, shown_cells, strict=True)]
        other_axes = tuple(place for place in range(len(axes)) if place not in given)

        def present(cells: FloatArray) -> FloatArray:
            for place, axis in enumerate(axes):
                # Shares are of the rows without nulls, if nulls are left out.
                values = np.arange(axis.cells - (dropna and axis.has_null))
                cells = cells.take(values, axis=place)
            totals = cells.sum(axis=other_axes, keepdims=True)
            shown_sums = cells[np.ix_(*shown_cells)]
            if normalize:
                return shown_sums / np.where(totals > 0, totals, np.nan)
            if margins:
                parts = [shown_sums.sum(axis=summed, keepdims=True) for summed in (1, 0, (0, 1))]
                return np.block([[shown_sums, parts[0]], [parts[1], parts[2]]])
            return shown_sums

        sums, attrs = self._weigh_cells(axes, weights, target, present, where)
        names = [*(axis.name for axis in axes), *([] if weights is None else [weights])]
        self._warn_of_tails(names, lambda tails: tails.matter)
        return sums.within(0.0), attrs, labels

    def _clip_to_possible(self, results: Results, answer: Answer, normalize: bool) -> Results:
        """Clip shares and fitted counts to possible values; return unbiased counts unchanged."""
        if normalize:
            return results.clipped(0.0, 1.0)
        return results if answer.method == "inverse" else results.from_none().within(most=self._all_rows)

    def _select_cells(self, answer: Answer, axes: Sequence[Axis], dropna: bool) -> tuple[Results, list[pd.Index[Any]]]:
        """Return the results of the cells to show, and the labels of each axis."""
        shown_cells = self._cells_to_show(axes, dropna)
        labels = [axis.labels[cells] for axis, cells in zip(axes, shown_cells, strict=True)]
        return answer.results(self._z)[np.ix_(*shown_cells)], labels

    @nan_if_not_found
    def crosstab(
        self,
        index: str,
        columns: str,
        margins: bool = False,
        dropna: bool = True,
        normalize: bool | str = False,
        *,
        bins: Bins | None = None,
        weights: str | None = None,
        method: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return the joint counts of two columns as a cross table (pandas' ``crosstab``).

        Parameters
        ----------
        index, columns
            Randomised columns for the rows and the columns of the result.
        margins
            Add the totals of rows and columns as ``All`` (unbiased and weighted counts only).
        dropna
            Leave nulls out.
        normalize
            False for counts; True or ``"all"``, ``"index"``, ``"columns"`` for shares.
        bins, weights, target
            See `value_counts` and `joint`.
        method
            See the class; by default ``"inverse"``, whose cells are unbiased, unless a standard error is above the
            number of rows. ``"auto"`` has smaller errors if the noise is large, but is shrunk to independence, as
            synthetic rows are.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["sex", "education"])
        >>> spaces = {"sex": ["F", "M"], "education": list(dpf.datasets.EDUCATION)}
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, key=bytes(32))
        >>> dpf.Estimates(safe).crosstab("education", "sex")["estimate"].round()
        sex             F      M
        education
        none         42.0   32.0
        primary     145.0  135.0
        secondary   308.0  273.0
        vocational  302.0  297.0
        bachelor    161.0  114.0
        master       90.0  100.0
        """
        given_axes: dict[Any, tuple[int, ...]] = {False: (), True: (), "all": (), "index": (0,), "columns": (1,)}
        if not isinstance(normalize, bool | str) or normalize not in given_axes:
            raise ParameterError('normalize must be False, True, "all", "index" or "columns"')
        if is_one_of(margins, self.plan.names):
            raise ParameterError("crosstab takes two columns; more are for joint, e.g. joint(['age', 'sex', 'region'])")
        check_flags(margins=margins, dropna=dropna)
        if margins and normalize:
            raise ParameterError("margins are given with counts only; leave normalize out")
        axes = self._axes([index, columns], {} if bins is None else bins)
        if weights is not None:
            self._check_weights(weights, [index, columns], method)
            given = given_axes[normalize]
            sums, attrs, labels = self._weigh_shown_cells(
                axes, weights, target, dropna, bool(normalize), given, margins
            )
            if margins:
                labels = [pd.Index([*label, "All"], name=label.name) for label in labels]
            row_labels, column_labels = labels
            return sums.wide(row_labels, column_labels, attrs)
        chosen_method = self._default_method(axes) if method is None else method
        if margins and chosen_method != "inverse":
            raise ParameterError("margins are given with method='inverse' only")
        answer = self._cells(axes, bool(normalize), given_axes[normalize], dropna, chosen_method, target)
        results, (rows, cols) = self._select_cells(answer, axes, dropna)
        max_count = 1.0 if normalize else self._all_rows
        if method is None and chosen_method == "inverse" and not margins and (results.std_error > max_count).any():
            answer = self._cells(axes, bool(normalize), given_axes[normalize], dropna, "auto", target)
            results, _ = self._select_cells(answer, axes, dropna)
        results = self._clip_to_possible(results, answer, bool(normalize))
        if margins:
            # Plain labels: an index of intervals has no place for "All".
            rows, cols = (pd.Index([*index, "All"], name=index.name) for index in (rows, cols))
            results = self._append_totals(answer, axes, dropna, target)
        return results.wide(rows, cols, {"method": answer.method, "source": answer.source})

    def _append_totals(self, answer: Answer, axes: Sequence[Axis], dropna: bool, target: str) -> Results:
        """Return the cells to show with the totals of rows and columns.

        Totals from tables are sums of cells, whose noise is independent. Totals from rows have surrogates of their own,
        because the cells of one row have correlated noise.
        """
        shown_cells = self._cells_to_show(axes, dropna)
        cells = np.stack([answer.estimate, answer.variance])[:, shown_cells[0]][:, :, shown_cells[1]]
        row_totals, col_totals, grand = (cells.sum(axis=summed, keepdims=True) for summed in (2, 1, (1, 2)))
        if answer.source == "rows":
            counts = surrogates.count_classes(axes, self._source.codes([axis.name for axis in axes]))
            sampling = self._source.sampling(target)
            row_totals, col_totals, grand = (
                np.stack(self._weighted(*surrogates.margin_cells(counts, axes, kept, dropna, sampling), False))
                for kept in ((0,), (1,), ())
            )
            row_totals, col_totals = row_totals[:, shown_cells[0]], col_totals[:, :, shown_cells[1]]
        return self._results(*np.block([[cells, row_totals], [col_totals, grand]]))

    # Clipped bounds and lists keep nulls apart from values; a column read as the wrong kind turns values to null.
    @partial(nan_if_not_found, judged=lambda plan: [missing for missing in plan.not_found if missing.unread])
    def null_rate(
        self, column: str, *, target: str = "table", **options: Unpack[AnswerOptions]
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the share of rows in which a column is null, from 0 to 1.

        If the space has no nulls the estimate is 0. If inference found no nulls beyond its noise, the interval ends at
        the upper bound from its counts.

        Raises `ParameterError` if nulls count as values of the column.

        Examples
        --------
        >>> import pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"visits": [None, 1, 2, 3] * 500})
        >>> spaces = {"visits": dpf.Nullable(dpf.Integer(0, 9))}
        >>> safe = dpf.sanitize(frame, epsilon=4, spaces=spaces, key=bytes(32))
        >>> dpf.Estimates(safe).null_rate("visits").round(2).to_dict()
        {'estimate': 0.25, 'std_error': 0.0, 'lower': 0.25, 'upper': 0.25}
        """
        sampling = self._source.sampling(target)
        source_column = self._source.column(column)
        if not source_column.space.has_null:
            mass_hidden_by_noise = self._bound_null_share(column, target)
            if mass_hidden_by_noise is None:
                raise ParameterError(
                    f"column {column!r} has no null rate, as its nulls count as values (nulls='impute', or spaces of "
                    "another table); declare its space Nullable in another release"
                )
            return mass_hidden_by_noise.series(column, {"source": "tables"})
        if source_column.space.code_words:
            (rate, variance), source = sets.null_rate(source_column, self._source.codes([column]), sampling), "rows"
        else:
            axis = make_axis(source_column, None if has_few_values(source_column.space) else 1)
            answer = self._cells([axis], True, (), False, "inverse", target)
            rate, variance, source = answer.estimate[-1:], answer.variance[-1:], answer.source
        return self._results(rate, variance).clipped(0.0, 1.0).series(column, {"source": source})
