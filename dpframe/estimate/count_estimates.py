"""Estimates of how many rows have which values, by column and jointly, in pandas' words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import DpframeWarning, InferenceWarning, ParameterError, check_flags, is_one_of, name_list, warn
from dpframe.estimate import sets, surrogates
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.axes import Axis, make_axis
from dpframe.estimate.base import Bins, column_names
from dpframe.estimate.column_evidence import of_ranks_alone
from dpframe.estimate.condition_counts import ConditionCounts
from dpframe.estimate.conditions import ItemCondition, ValueCondition, Where
from dpframe.estimate.item_pairs import likely_pairs, pool_pairs
from dpframe.estimate.not_found import nan_if_not_found, nan_if_unread
from dpframe.estimate.results import RESULTS, Answer, Results
from dpframe.estimate.weighted import WeightedEstimates
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import has_few_values

_JOINED = {"all": " & ", "any": " | "}


class CountEstimates(WeightedEstimates):
    """Counts, shares and joints, of categories, bins and items of sets."""

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
    def count(
        self,
        where: Mapping[str, Any],
        normalize: bool = False,
        *,
        weights: str | None = None,
        method: str = "auto",
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return how many rows meet a condition on every column that is named.

        Parameters
        ----------
        where
            By column a value, a list of values, ``(low, high)`` with both ends in it (None for no end), None for null;
            of sets ``{"any": items}`` or ``{"all": items}``; ``{"not": …}`` of any of these, which no null and no
            special value meets.
        normalize
            Give the share of all rows instead of their number.
        weights
            See `value_counts`; conditions are then on values, not on items of sets.
        method
            ``"inverse"``: unbiased, from only the rows. ``"auto"``: the most precise, from measured tables and fits of
            these columns. A fit of a range to rows with geometric noise assumes a smooth distribution; see `histogram`.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; ``attrs["source"]`` is "rows", "tables" or "both". For a range
        beyond inferred bounds the estimate is 0, and the interval includes the rows that may lie there. For three or
        more conditions without a common measured table, ``attrs["allowed_by_pairs"]`` has the smallest and the largest
        count that pairs of the conditions allow: an interaction of all of them may lead to any count between.

        Raises
        ------
        ParameterError
            For a malformed condition, a column that is not randomised, or a value outside of its space, including a
            range wholly beyond declared bounds.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(5_000, columns=["age", "sex", "hobbies"])
        >>> spaces = {"age": (18, 95), "sex": ["F", "M"], "hobbies": dpf.Subset(dpf.datasets.HOBBIES, max_size=4)}
        >>> plan = dpf.plan(frame, epsilon=10, delta=0, spaces=spaces, allocation={"hobbies": 0.8})
        >>> safe = dpf.sanitize(frame, plan=plan, key=bytes(32))
        >>> women = {"sex": "F", "hobbies": {"any": ["cycling", "hiking"]}}
        >>> dpf.Estimates(safe).count(women).round(-2).to_dict()
        {'estimate': 500.0, 'std_error': 100.0, 'lower': 300.0, 'upper': 800.0}
        >>> dpf.Estimates(safe).count({"sex": "F", "age": (18, 40)}, normalize=True).round(2).to_dict()
        {'estimate': 0.19, 'std_error': 0.06, 'lower': 0.08, 'upper': 0.31}
        """
        check_flags(normalize=normalize)
        if not is_one_of(method, ["auto", "inverse"]):
            raise ParameterError('method must be "auto" or "inverse"')
        self._source.sampling(target)  # an unknown target is refused
        conditions = Where.of(where, self._source.column, self._is_open)
        if weights is not None:
            return self._weigh_conditions(self._value_conditions(where), normalize, weights, method, target)
        results, attrs = ConditionCounts(self._joints).count(conditions, method, target == "population", self._z)
        of_items = conditions.of_items if method == "auto" else None
        if of_items is not None:
            labels = [of_items.sets.labels[place] for place in of_items.places]
            supports = self.support(
                of_items.column.name, items=labels, how=of_items.how, normalize=False, target=target
            )
            if supports["std_error"].iloc[0] < results.std_error[0]:
                results, attrs = Results(*supports[list(RESULTS)].to_numpy().T), {"source": supports.attrs["source"]}
        scale = max(self._all_rows, 1.0) if normalize else 1.0
        max_count = 1.0 if normalize else self._all_rows
        results = results.each(lambda values: values / scale)
        for condition in conditions.values.values():
            if condition.shared:
                # A step that an end of a range splits has rows on either side: each may be counted or not.
                codes = np.unique(np.array(condition.shared, dtype=np.int64))
                (rows, errors), is_met = self._count_rows_at(condition.column.name, codes), condition.holds(codes)
                self._warn_of_rows_at_ends(condition.column.name, rows, errors)
                over, under = float(rows @ is_met), float(rows @ (1 - is_met))
                results = results.opened(((over, 0.0), (under, 0.0)), self._z, 1 / scale)
        open_columns = {
            name: condition.beyond for name, condition in conditions.values.items() if any(condition.beyond)
        }
        for name, beyond in open_columns.items():
            if (tails := self._tails(name)) is not None:
                results = results.opened(tails.of_range(beyond), self._z, 1 / scale)
        if method == "auto":
            results = self._widen_if_hidden(results.from_none(), conditions, max_count)
        if method == "auto" or normalize:
            results = results.clipped(0.0, max_count)
        if "allowed_by_pairs" in attrs:
            attrs["allowed_by_pairs"] = tuple(end / scale for end in attrs["allowed_by_pairs"])
        return results.series("count", attrs | self._tail_attrs(open_columns))

    def _weigh_conditions(
        self, conditions: Mapping[str, ValueCondition], normalize: bool, weights: str, method: str, target: str
    ) -> pd.Series[Any]:
        """Return the sum of the weights of rows that meet conditions on values, or its share of all weights."""
        names = list(conditions)
        self._check_weights(weights, names, method)

        def weigh(codes: Mapping[str, Any], row_weights: FloatArray) -> FloatArray:
            met = [condition.holds(codes[name].astype(np.int64)) for name, condition in conditions.items()]
            total = float(row_weights.sum()) if normalize else 1.0
            return np.array([row_weights @ np.prod(met, axis=0) / max(total, 1e-300)])

        results, attrs = self._weigh_rows(weigh, names, weights, target)
        self._warn_of_tails([*names, weights], lambda tails: tails.matter)
        return results.within(0.0, 1.0 if normalize else np.inf).series("count", attrs)

    def _widen_if_hidden(self, results: Results, query: Where, max_count: float) -> Results:
        """Widen a count to all possible counts, and warn, if its standard error exceeds them."""
        if not results.std_error[0] > max_count > 0:
            return results
        warn(
            f"noise hides how many rows meet the conditions on {name_list(query.names)} together; count the rows of "
            "each condition by itself",
            InferenceWarning,
        )
        return replace(results.clipped(0.0, max_count), lower=np.zeros(1), upper=np.full(1, max_count))

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

    @nan_if_not_found
    def support(
        self,
        column: str,
        items: Sequence[Any] | None = None,
        *,
        how: str = "all",
        by: str | None = None,
        bins: Any = None,
        normalize: bool = True,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return the share of rows whose set holds each item; of other columns, the share of each value.

        Sets larger than their space's ``max_size`` were truncated before they were randomised: supports are supports
        of the truncated sets. Rows that are null do not count.

        Parameters
        ----------
        column
            A randomised column of sets; or of few values, in the space's order.
        items
            Items of an item set: the share of rows with all of them, or any of them. Two items with measured supports
            have the estimate of `cooccurrence`. Its interval covers all shares that both supports allow, unless their
            pairs were measured too (``measure=[(column, column)]``) or the rows are precise.
        how
            ``"all"`` or ``"any"`` of the items.
        by
            A randomised column: supports within each of its values (nulls left out).
        bins
            Cut ``by`` into bins.
        normalize
            Give shares; otherwise counts.
        target
            See the class.

        Returns
        -------
        DataFrame indexed by item with ``estimate, std_error, lower, upper``; with ``by`` these are an outer level
        over its values.

        Raises
        ------
        ParameterError
            For items that are not declared, or ``items`` or ``by`` of a column that holds no sets.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(5_000, columns=["hobbies"])
        >>> space = dpf.Subset(dpf.datasets.HOBBIES, max_size=6)
        >>> safe = dpf.sanitize(frame, epsilon=12, delta=0, spaces={"hobbies": space}, key=bytes(32))
        >>> dpf.Estimates(safe).support("hobbies")[["estimate", "std_error"]].head(2).round(3)
                        estimate  std_error
        hobbies
        watching films     0.366      0.014
        reading            0.308      0.014
        """
        check_flags(normalize=normalize)
        sampling = self._source.sampling(target)
        source_column = self._source.column(column)
        if bins is not None and by is None:
            raise ParameterError("bins are for the column of by; name one, or leave bins out")
        if not source_column.space.code_words:
            if items is not None or by is not None:
                raise ParameterError(f"column {column!r} holds no sets, whose support takes items and by; see crosstab")
            return self.value_counts(column, normalize=normalize, sort=False, target=target)
        set_column = sets.SetColumn.of(source_column)
        places = None if items is None else set_column.places(items)
        if not is_one_of(how, ["all", "any"]) or (how == "any" and (places is None or by is not None)):
            raise ParameterError('how must be "all", or "any" of the items that are named, without by')
        index, source, lower_bound = pd.Index(set_column.labels, name=column), "rows", -np.inf
        if places is not None:
            index = pd.Index([_JOINED[how].join(str(set_column.labels[i]) for i in places)], name=column)
        if by is not None:
            if not normalize:
                raise ParameterError("by goes with shares only; leave normalize out")
            group = self._axis(by, bins)
            (part,), batches = self._cells_to_show([group], True), self._source.codes([column, by])
            if places is None:
                counted = set_column.count_items(batches, group)
            else:
                counted = set_column.count_level(set_column.channel.holds_all(len(places)), places, batches, group)
            shares, variances = counted.sums.by([group]).shares(sampling)
            return self._results(shares.T, variances.T)[:, part].clipped(0.0, 1.0).wide(index, group.labels[part])
        if places is None or len(places) == 1:
            estimate, variance, source = self._supports(column, normalize, target)
            if places is not None:
                estimate, variance = estimate[list(places)], variance[list(places)]
        elif len(places) == 2 and self._items(column) is not None:
            pair_shares, errors = self._estimate_pairs(set_column, places)
            share, variance = pair_shares[:1, 1], errors[:1, 1]
            if how == "any":
                # Errors of the pair and of its items are correlated: the sum of variances bounds the variance of "any".
                supports = np.diag(pair_shares)
                share = np.minimum(np.maximum(supports.sum() - share, supports.max()), 1.0)
                variance = variance + np.trace(errors)
            estimate, variance = self._scale_to_present(column, share, variance, normalize, target)
            source, lower_bound = "both", 0.0
        else:
            levels = ItemCondition(set_column, tuple(places), how).levels
            counted = set_column.count_level(levels, places, self._source.codes([column]))
            estimate, variance = np.array(self._weighted(*counted.share(normalize, sampling), normalize))[:, 0]
        results = self._results(estimate, variance).within(lower_bound)
        return (results.clipped(0.0, 1.0) if normalize else results).frame(index, {"source": source})

    def _items(self, column: str) -> sets.ItemTable | None:
        """Return measured counts of a set column's items, corrected for truncation, or None."""
        table = self._joints.tables.of_kind("items", column)
        if table is None:
            return None
        sizes = self._measured_sizes(column)
        if sizes is not None:
            return sizes.uncut(table, 1)
        # Rows show how much truncation removed, but not which items: the error is the whole removed share.
        lost_share = item_variance = 0.0
        if self.n:
            set_column, codes = sets.SetColumn.of(self._source.column(column)), self._source.codes([column])
            lost_share, item_variance = sets.SetSizes.of(set_column, codes).lost(table.measure.most)
        return sets.ItemTable(table.counts.astype(np.float64), table.measure.sigma2, lost_share, item_variance)

    def _measured_sizes(self, column: str) -> sets.SizeTable | None:
        """Return measured counts of set sizes, or None."""
        table = self._joints.tables.of_kind("sizes", column)
        return None if table is None else sets.SizeTable.of(table, sets.SetColumn.of(self._source.column(column)))

    def _supports(
        self, column: str, normalize: bool = True, target: str = "table"
    ) -> tuple[FloatArray, FloatArray, str]:
        """Return the share or count of every item, its variance and the source, clipped lists included."""
        set_column, item_table = sets.SetColumn.of(self._source.column(column)), self._items(column)
        # Tables have all rows: `ItemTable.beside` adds the sampling variance of a population once.
        sampling = self._source.sampling(target if item_table is None else "table")
        counted = set_column.count_items(self._source.codes([column]))
        estimate, variance = np.array(self._weighted(*counted.share(normalize, sampling), normalize))[:, 0]
        if item_table is None:
            return estimate, variance, "rows"
        present = self._count_present(column)
        return *item_table.beside(estimate, variance, normalize, target == "population", present), "both"

    @nan_if_not_found
    def cooccurrence(
        self,
        column: str,
        items: Sequence[Any] | None = None,
        *,
        normalize: bool = False,
        method: str = "auto",
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return how many rows hold both items of every pair; on the diagonal, each item.

        Parameters
        ----------
        column
            A randomised column of sets.
        items
            Items to pair, at most 300; by default all.
        normalize
            Give shares of the rows that are not null instead of counts.
        method
            ``"inverse"``: unbiased. ``"auto"``: shrunk towards the counts that measured supports imply; without
            measured supports unbiased. Each interval is valid for any dependence of the two items. Without measured
            pairs it covers all counts that both supports allow; ``measure=[(column, column)]`` makes it shorter.
        target
            See the class.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(5_000, columns=["hobbies"])
        >>> space = dpf.Subset(dpf.datasets.HOBBIES, max_size=4)
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=1e-6, spaces={"hobbies": space}, key=bytes(32))
        >>> pairs = dpf.Estimates(safe).cooccurrence("hobbies", list(dpf.datasets.HOBBIES[:3]))
        >>> pairs["estimate"].round(-1)
        hobbies         watching films  reading  cooking
        hobbies
        watching films          1830.0    510.0    360.0
        reading                  510.0   1440.0    290.0
        cooking                  360.0    290.0   1000.0
        """
        check_flags(normalize=normalize)
        if not is_one_of(method, ["auto", "inverse"]):
            raise ParameterError('method must be "auto" or "inverse"')
        sampling = self._source.sampling(target)
        set_column = sets.SetColumn.of(self._source.column(column))
        places = list(range(len(set_column.labels))) if items is None else set_column.places(items)
        if len(places) > sets.MOST_PAIRED:
            raise ParameterError(f"cooccurrence pairs at most {sets.MOST_PAIRED} items; name some with items=[…]")
        index, fits_pairs = (
            pd.Index([set_column.labels[i] for i in places], name=column),
            self._items(column) is not None,
        )
        if method == "auto" and fits_pairs:
            estimate, variance = self._scale_to_present(
                column, *self._estimate_pairs(set_column, places), normalize, target
            )
        else:
            fits_pairs, pair_counts = False, set_column.count_pairs(places, self._source.codes([column]))
            estimate, variance = self._weighted(*pair_counts.share(normalize, sampling), normalize)
        results = self._results(estimate, variance).within(0.0 if fits_pairs else -np.inf)
        attrs = {"method": "model" if fits_pairs else "inverse", "source": "both" if fits_pairs else "rows"}
        return (results.clipped(0.0, 1.0) if normalize else results).wide(index, index, attrs)

    def _estimate_pairs(self, set_column: sets.SetColumn, places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return shares of pairs of items and variances, with the supports of items on the diagonal.

        Pairs from rows are pooled with measured pairs, and shrunk to the pairs that supports and sizes imply. The
        deviations of all pairs determine how far they are shrunk, so that the pairs of other items are estimated, too.
        """
        column, items = set_column.column.name, set_column.space.count
        fitted = np.array(places) if items > sets.MOST_PAIRED else np.arange(items)
        sizes, pair_table = self._measured_sizes(column), self._joints.tables.of_kind("item_pairs", column)
        pair_counts = set_column.count_pairs(fitted.tolist(), self._source.codes([column]))
        row_shares, row_variances = self._weighted(*pair_counts.share(True, self._source.sampling("table")), True)
        all_supports, all_variances, _ = self._supports(column)
        supports, variances = all_supports[fitted], all_variances[fitted]
        first, second = np.triu_indices(len(fitted), 1)
        shares, errors = row_shares[first, second], row_variances[first, second]
        if pair_table is not None and sizes is not None:
            table, pairs = sizes.uncut(pair_table, 2), (fitted[first], fitted[second])
            shares, errors = pool_pairs(table, pairs, items, (shares, errors), self._count_present(column))
        chance, prior_sd = np.outer(supports, supports), sets.PRIOR
        if sizes is not None:
            chance, prior_sd = sizes.chance(all_supports, fitted.tolist())
        of_first, of_second = ((supports[part], variances[part]) for part in (first, second))
        fitted_pairs = likely_pairs(shares, errors, of_first, of_second, chance[first, second], prior_sd)
        estimate, variance = np.diag(supports), np.diag(variances)
        for a, b in ((first, second), (second, first)):
            estimate[a, b], variance[a, b] = fitted_pairs
        if items <= sets.MOST_PAIRED:
            block = np.ix_(places, places)
            return estimate[block], variance[block]
        return estimate, variance

    def _scale_to_present(
        self, column: str, shares: FloatArray, variances: FloatArray, normalize: bool, target: str
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares, or counts of the rows that are not null, with a population's sampling variance."""
        present = self._count_present(column)
        if target == "population":
            variances = variances + np.clip(shares * (1 - shares), 0.0, None) / present
        scale = 1.0 if normalize else present
        return shares * scale, variances * scale**2

    def _count_present(self, column: str) -> float:
        """Return the estimated number of rows that are not null in a column of sets, at least 1."""
        null = self._source.column(column).space.has_null
        return max(self.rows * (1 - float(np.asarray(self.null_rate(column)["estimate"])) if null else 1.0), 1.0)

    @nan_if_not_found
    def set_sizes(
        self, column: str, *, normalize: bool = False, target: str = "table", **options: Unpack[AnswerOptions]
    ) -> pd.DataFrame:
        """Return the number of rows by set size, from measured sizes or from rows.

        Estimates from rows are by maximum likelihood, with errors by parametric bootstrap. Measured sizes above 16 were
        counted in cells of several sizes, which are spread evenly. Sets were truncated to ``max_size``. The unbiased
        mean size is in ``attrs["mean_size"]``.

        Parameters
        ----------
        column
            A randomised column of sets.
        normalize
            Give shares of the rows that are not null instead of counts.
        target
            See the class.

        Returns
        -------
        DataFrame indexed by size with ``estimate, std_error, lower, upper``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(5_000, columns=["hobbies"])
        >>> space = dpf.Subset(dpf.datasets.HOBBIES, max_size=4)
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=1e-6, spaces={"hobbies": space}, key=bytes(32))
        >>> dpf.Estimates(safe).set_sizes("hobbies").round(-1)
              estimate  std_error   lower   upper
        size
        0        410.0        0.0   400.0   420.0
        1        840.0        0.0   840.0   850.0
        2       1180.0        0.0  1180.0  1190.0
        3       1120.0        0.0  1120.0  1130.0
        4       1450.0        0.0  1440.0  1460.0
        """
        check_flags(normalize=normalize)
        sampling = self._source.sampling(target)
        set_column, size_table = sets.SetColumn.of(self._source.column(column)), self._measured_sizes(column)
        index = pd.RangeIndex(set_column.channel.most + 1, name="size")
        if size_table is None:
            sizes, source = sets.SetSizes.of(set_column, self._source.codes([column])), "rows"
            estimate, errors = sizes.fit(normalize, sampling)
            estimate, variance = self._weighted(estimate, errors**2, normalize)
            mean = sizes.mean(sampling)
        else:
            population, source = target == "population", "tables"
            estimate, variance = size_table.by_size(normalize, population)
            mean = size_table.mean_size(population)
        attrs = {"mean_size": self._results(*mean).within(least=0.0).series("size").to_dict(), "source": source}
        results = self._results(estimate, variance).from_none()
        return (results.clipped(0.0, 1.0) if normalize else results).frame(index, attrs)

    @nan_if_unread
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
