"""`Estimates`: the questions an analyst asks, in pandas' words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError, check_whole
from dpframe.estimate import moments, sets, surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, MemberAxis, make_axis
from dpframe.estimate.base import RESULTS, Bins, Reading, column_names, kept_parts
from dpframe.estimate.distribution import aggregation, line_of, quantiles
from dpframe.estimate.item_pairs import likely_pairs
from dpframe.estimate.joint_domain import check_cells
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.not_found import nan_if_not_found, nan_if_unread
from dpframe.estimate.number_tables import Known, NumberPair, NumberTables
from dpframe.estimate.plot import draw
from dpframe.estimate.synthetic import Synthesizer, check_rows, make_generator
from dpframe.estimate.with_tables import Answer, TableJoints


class Estimates(Reading):
    """Estimates from a sanitised table.

    Parameters
    ----------
    source
        A DataFrame, Arrow table or Parquet path (file, directory or glob) that dpframe released.
    plan
        The plan, where the table lost it.
    confidence_level
        Level of the intervals, in (0, 1).
    use_measured
        Combine the rows with the noisy counts that private inference of spaces measured, where the plan has some:
        in `value_counts`, `joint` of one column, `support` of values, `null_rate`, `histogram` and `quantile`. They
        are of the table that the plan was made from. By default they are used where the release says that this is
        its own table (its plan was made as it was released); pass True where you know so of a plan made before.
    clipped
        Give estimates of columns whose spaces private inference did not find (`Plan.not_found`), too: they are those
        of the column clipped to its space, not the table's. By default they are NaN, and ``attrs["not_found"]`` of
        every result of such a column says why. A rate of nulls rests on no bounds and no list of values: it is NaN only
        where the kind of a column's objects was not found.

    tables
        Noisy counts that were measured of the table beside its rows (`MeasuredTable`), where the release does not hold
        them itself. They are used as those of the release are, unless ``use_measured`` is False.

    Raises
    ------
    NotSanitizedError
        If the source carries no plan and none is given.
    ParameterError
        If ``confidence_level`` is outside (0, 1).

    Notes
    -----
    Every statistic takes ``target``: ``"table"`` is the original table's own statistic, ``"population"``
    that of the population from which the table is seen as a sample; its intervals are wider.

    Of a release that is a secret sample the table is the whole one: counts, sums and sizes are those of all its
    ``rows``, of which ``n`` are in the release, and intervals hold what the choice of these adds (the
    finite-population correction).

    Joints take ``method``: ``"inverse"`` is unbiased and may leave the simplex, its errors are analytic;
    ``"project"`` (nearest point of the simplex), ``"em"`` (maximum likelihood) and ``"model"`` (maximum
    likelihood under a mixture fitted to all pairs of columns) are closer to the truth where cells are many,
    their errors come from a parametric bootstrap, which sees their spread but not the bias that shrinking
    costs; ``"auto"`` picks, and says in ``attrs["method"]`` what it picked.

    Where the release holds measured tables, ``"inverse"`` is their raw count, weighted with the rows' by inverse
    variance, ``"project"`` the point of the simplex near it, ``"model"`` a mixture fitted to all tables, corrected
    where the rows contradict it, and ``"em"`` the rows alone. ``attrs["source"]`` says ``"tables"``, ``"rows"`` or
    ``"both"``.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
    >>> Estimates(safe).value_counts("sex").round()
         estimate  std_error   lower   upper
    sex
    F      1043.0        6.0  1030.0  1055.0
    M       957.0        6.0   945.0   970.0
    """

    def holds_sets(self, column: str) -> bool:
        """Tell whether a column holds sets."""
        return sets.is_sets(self._source.column(column))

    def plot(self, *columns: str, ax: Any = None, **options: Any) -> Any:
        """Draw a marginal with its intervals, a histogram, or (two columns) a cross table.

        Options go to `value_counts`, `histogram` or `crosstab`. Returns the matplotlib axes.

        Raises
        ------
        ParameterError
            If matplotlib is not installed, or for more than two columns.
        """
        return draw(self, columns, ax, options)

    def __repr__(self) -> str:
        rows = f"{self.n:,}" if self.plan.sample is None else f"{self.n:,} of {self.rows:,}"
        return f"<Estimates of a release of {rows} rows: {', '.join(self.plan.names)}>"

    def verify(self) -> bool:
        """Tell whether the table is, cell by cell, what was released (rows in any order)."""
        return self._source.verify()

    def synthesize(self, n_rows: int | None = None, random_state: Any = None) -> Any:
        """Return synthetic rows: a table of the same columns and dtypes in which plain pandas is right on average.

        They are drawn from a model of the original table that is fitted to what was released, its measured tables
        and its rows, and so cost no budget. Nothing that only three columns together show is in them but by chance;
        a warning says where the rows tell of it. They have no intervals: those are the release's own to give. Of a
        column that private inference did not find they show the clipped values.

        Parameters
        ----------
        n_rows
            How many fresh rows to draw; columns passed through are left out of these. By default one row for each
            released row, drawn given that row, in its place.
        random_state
            A seed, a numpy ``Generator``, or None for fresh entropy.

        Returns
        -------
        A table of the release's kind (of Parquet a pyarrow Table) whose ``attrs`` (metadata) say that it is synthetic.

        Raises
        ------
        ParameterError
            For another ``n_rows`` or ``random_state``, or a column of too many values to draw from.

        Notes
        -----
        A hidden class is drawn by its weight and the released row's likelihood, then every column given it and its
        own released value. Numbers fall on their own grid, at their measured mean; sets are drawn item by item.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["sex", "region"])
        >>> spaces = {"sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, key=bytes(32))
        >>> rows = Estimates(safe).synthesize(random_state=0)
        >>> rows.shape, bool(abs((rows["sex"] == "F").mean() - (frame["sex"] == "F").mean()) < 0.02)
        ((2000, 2), True)
        """
        fresh, generator = check_rows(n_rows), make_generator(random_state)
        drawing = self._synthesizer
        drawing.warn_of_hidden()
        if fresh is not None:
            return self._source.drawn(drawing.fresh(fresh, generator), fresh, drawing.text)
        names = [name for name in self.plan.names if name not in self._source.missing]
        parts = [drawing.given(codes, generator) for codes in self._source.codes(names)]
        codes = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return self._source.drawn(codes, None, drawing.text)

    @cached_property
    def _synthesizer(self) -> Synthesizer:
        joints = self._joints or TableJoints(self._source, MeasuredTables(self._source, ()))
        held = [c.name for c in self.plan.columns if c.space.holds_sets and c.name not in self._source.missing]
        clipped = Estimates.support.__wrapped__  # type: ignore[attr-defined]
        supports = {name: clipped(self, name)["estimate"].to_numpy() for name in held}
        return Synthesizer(self._source, joints, supports)

    # Joints

    @nan_if_not_found
    def value_counts(
        self,
        column: str,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        bins: int | Sequence[Any] | None = None,
        dropna: bool = True,
        *,
        method: str | None = None,
        target: str = "table",
    ) -> pd.DataFrame:
        """Return how many rows hold each value of a column (pandas' ``Series.value_counts``).

        Parameters
        ----------
        column
            A randomised column; every value of its space has a row in the result.
        normalize
            Give shares instead of counts (of the rows that are not null, if ``dropna``).
        sort, ascending
            Order by estimate; otherwise in the space's order.
        bins
            Cut a numeric column into bins first: a number of them (where there are fewer values, one for each),
            or their bounds (the outer bins reach to the bounds of the space).
        dropna
            Leave nulls out.
        method
            See the class; by default ``"inverse"``, and with ``bins`` ``"em"``: unbiased counts between bins
            have errors beyond use.
        target
            See the class.

        Returns
        -------
        DataFrame indexed by value, with ``estimate, std_error, lower, upper``.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or of too many values.
        """
        axes = self._axes([column], {column: bins} if isinstance(column, str) and bins is not None else {})
        answer = self._cells(axes, normalize, (), dropna, method or self._default_method(axes), target)
        out = self._shown(answer, axes, dropna)
        return out.sort_values("estimate", ascending=ascending, kind="stable") if sort else out

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
        """
        columns, held = column_names(columns, "columns"), column_names(given, "given")
        axes = self._axes(columns, bins or {})
        stray = [name for name in held if name not in columns]
        if stray:
            raise ParameterError(f"given names {stray[0]!r}, which is not among the joint's columns")
        if held and len(held) == len(columns):
            raise ParameterError("given names every column of the joint; leave one free")
        positions = tuple(columns.index(name) for name in held)
        answer = self._cells(axes, normalize or bool(held), positions, dropna, method, target)
        return self._shown(answer, axes, dropna)

    def _shown(self, answer: Answer, axes: Sequence[Axis], dropna: bool) -> pd.DataFrame:
        out = self._frame(answer.estimate, answer.variance, axes, dropna)
        counted = answer.source != "tables" and self._takes_measured(axes, answer.method)
        out.attrs |= {"method": answer.method, "measured": counted, "source": answer.source}
        if answer.hidden:
            out.attrs["hidden"] = True
        return out

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
        method: str | None = None,
        target: str = "table",
    ) -> pd.DataFrame:
        """Return the joint counts of two columns as a cross table (pandas' ``crosstab``).

        Parameters
        ----------
        index, columns
            Randomised columns for the rows and the columns of the result.
        margins
            Add the totals of rows and columns as ``All`` (unbiased counts only).
        dropna
            Leave nulls out.
        normalize
            False for counts; True or ``"all"``, ``"index"``, ``"columns"`` for shares.
        bins, method, target
            See `value_counts` and `joint`.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.
        """
        given: dict[Any, tuple[int, ...]] = {False: (), True: (), "all": (), "index": (0,), "columns": (1,)}
        if not isinstance(normalize, bool | str) or normalize not in given:
            raise ParameterError('normalize must be False, True, "all", "index" or "columns"')
        if margins and normalize:
            raise ParameterError("margins are given with counts only; leave normalize out")
        axes = self._axes([index, columns], bins or {})
        method = method or self._default_method(axes)
        if margins and method != "inverse":
            raise ParameterError("margins are given with method='inverse' only")
        answer = self._cells(axes, bool(normalize), given[normalize], dropna, method, target)
        kept = kept_parts(axes, dropna)
        rows, cols = (axis.labels[part] for axis, part in zip(axes, kept, strict=True))
        cells = self._results(answer.estimate, answer.variance, kept)
        results = {name: pd.DataFrame(v, rows, cols) for name, v in cells.items()}
        if margins:
            totals = self._row_totals if answer.source == "rows" else partial(self._table_totals, answer)
            results = self._with_margins(results, totals(axes, dropna, target))
        out = pd.concat(results, axis=1, names=[None])
        out.attrs |= {"method": answer.method, "source": answer.source}
        return out

    def _row_totals(self, axes: Sequence[Axis], dropna: bool, target: str) -> list[dict[str, FloatArray]]:
        """Return row, column and grand totals, estimated on their own so that their errors are right."""
        counts, kept, weight = self._counts(axes), kept_parts(axes, dropna), self._source.weight
        totals, sampling = [], self._source.sampling(target)
        for keep in ((0,), (1,), ()):
            estimate, variance = surrogates.margin_cells(counts, axes, keep, dropna, sampling)
            part = kept[keep[0]] if keep else slice(None)
            totals.append(self._results(estimate.ravel() * weight, variance.ravel() * weight**2, (part,)))
        return totals

    def _table_totals(
        self, answer: Answer, axes: Sequence[Axis], dropna: bool, target: str
    ) -> list[dict[str, FloatArray]]:
        """Return the same as sums of cells, whose noise is independent."""
        kept = kept_parts(axes, dropna)
        cells = answer.estimate[kept], answer.variance[kept]
        sums = [[np.atleast_1d(v.sum(axis=others)) for v in cells] for others in (1, 0, (0, 1))]
        return [self._results(estimate, variance, (slice(None),)) for estimate, variance in sums]

    @staticmethod
    def _with_margins(
        tables: dict[str, pd.DataFrame], totals: Sequence[Mapping[str, FloatArray]]
    ) -> dict[str, pd.DataFrame]:
        """Add row, column and grand totals."""
        out = {}
        for name, table in tables.items():
            # Plain labels: an index of intervals has no place for "All".
            rows, cols = (pd.Index(list(v), name=v.name) for v in (table.index, table.columns))
            wide = pd.DataFrame(table.to_numpy(), index=rows, columns=cols)
            wide["All"] = totals[0][name]
            wide.loc["All"] = [*totals[1][name], *totals[2][name]]
            out[name] = wide
        return out

    @nan_if_not_found
    def support(
        self,
        column: str,
        items: Sequence[Any] | None = None,
        *,
        by: str | None = None,
        bins: Any = None,
        normalize: bool = True,
        target: str = "table",
    ) -> pd.DataFrame:
        """Return the share of rows whose set holds each item; of other columns, the share of each value.

        Sets larger than their space's ``max_size`` were cut before they were randomised: supports are those of the
        cut sets. Rows that are null do not count.

        Parameters
        ----------
        column
            A randomised column of sets; or of few values, in the space's order.
        items
            Items of an item set: the share of rows that hold them all.
        by
            A randomised column: supports within each of its values (nulls of it left out).
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
        >>> Estimates(safe).support("hobbies")[["estimate", "std_error"]].head(2).round(3)
                        estimate  std_error
        hobbies
        watching films     0.366      0.014
        reading            0.308      0.014
        """
        sampling = self._source.sampling(target)
        chosen = self._source.column(column)
        if bins is not None and by is None:
            raise ParameterError("bins are for the column of by; name one, or leave bins out")
        if not sets.is_sets(chosen):
            if items is not None or by is not None:
                raise ParameterError(f"column {column!r} holds no sets, whose support takes items and by; see crosstab")
            return self.value_counts(column, normalize=normalize, sort=False, target=target)
        mine = sets.SetColumn.of(chosen)
        places = None if items is None else mine.places(items)
        index = pd.Index(mine.labels, name=column)
        if places is not None:
            index = pd.Index([" & ".join(str(mine.labels[i]) for i in places)], name=column)
        if by is not None:
            if not normalize:
                raise ParameterError("by goes with shares only; leave normalize out")
            group = make_axis(self._source.column(by), bins)
            found = mine.shares_by(group, places, self._source.codes([column, by]), sampling)
            part = slice(0, group.cells - group.has_null)
            return self._wide(*found, (slice(None), part), index, group.labels[part])
        if places is None:
            shown, released, nulls = mine.count_items(self._source.codes([column]))
            sums = mine.counted(shown, released)
        else:
            sums, released, nulls = mine.count_together(places, self._source.codes([column]))
        told = None if places is not None else self._items(column)
        if told is not None:
            sampling = self._source.sampling("table")
        found = self._weighted(*sets.share_of(sums, mine, released, nulls, normalize, sampling), normalize)
        source = "rows"
        if told is not None:
            found = told.beside(*found, normalize, target == "population", self._present(column))
            source = "both"
        out = pd.DataFrame(self._results(*found, (slice(None),)), index=index)
        out.attrs["source"] = source
        return out

    @nan_if_not_found
    def cooccurrence(
        self,
        column: str,
        items: Sequence[Any] | None = None,
        *,
        normalize: bool = False,
        method: str = "auto",
        target: str = "table",
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
            ``"inverse"``: unbiased. ``"auto"``: where supports of items were measured, drawn towards what these make
            likely (`dpframe.estimate.item_pairs`); else the same.
        target
            See the class.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.
        """
        if method not in ("auto", "inverse"):
            raise ParameterError('method must be "auto" or "inverse"')
        sampling = self._source.sampling(target)
        mine = sets.SetColumn.of(self._source.column(column))
        places = list(range(len(mine.labels))) if items is None else mine.places(items)
        if len(places) > sets.MOST_PAIRED:
            raise ParameterError(f"cooccurrence pairs at most {sets.MOST_PAIRED} items; name some with items=[…]")
        both, released, nulls = mine.count_pairs(places, self._source.codes([column]))
        counts, index = sets.pair_counts(mine, both, released), pd.Index([mine.labels[i] for i in places], name=column)
        drawn = method == "auto" and self._items(column) is not None
        if drawn:
            shares = sets.share_of(counts, mine, released, nulls, True, self._source.sampling("table"))
            estimate, variance = self._likely_pairs(column, places, *self._weighted(*shares, True))
            present = self._present(column)
            variance += np.clip(estimate * (1 - estimate), 0.0, None) / present if target == "population" else 0.0
            scale = 1.0 if normalize else present
            estimate, variance = estimate * scale, variance * scale**2
        else:
            estimate, variance = self._weighted(
                *sets.share_of(counts, mine, released, nulls, normalize, sampling), normalize
            )
        out = self._wide(estimate, variance, (slice(None), slice(None)), index, index)
        out.attrs |= {"method": "model" if drawn else "inverse", "source": "both" if drawn else "rows"}
        return out

    def _likely_pairs(
        self, column: str, places: Sequence[int], rows: FloatArray, spread: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares and variances of pairs of items, from the rows' and the supports, which are on the diagonal."""
        own = self.support(column).iloc[list(places)]
        supports, variances = own["estimate"].to_numpy(), own["std_error"].to_numpy() ** 2
        first, second = np.triu_indices(len(places), 1)
        pairs = likely_pairs(
            rows[first, second],
            spread[first, second],
            (supports[first], variances[first]),
            (supports[second], variances[second]),
        )
        estimate, variance = np.diag(supports), np.diag(variances)
        for a, b in ((first, second), (second, first)):
            estimate[a, b], variance[a, b] = pairs.estimate, pairs.variance
        return estimate, variance

    def _present(self, column: str) -> float:
        """Return the rows of the table where a column of sets is not null, about."""
        null = self._source.column(column).space.has_null
        return max(self.rows * (1 - float(self.null_rate(column)["estimate"]) if null else 1.0), 1.0)

    @nan_if_not_found
    def set_sizes(self, column: str, *, normalize: bool = False, target: str = "table") -> pd.DataFrame:
        """Return how many rows hold sets of each size, by maximum likelihood; errors are by parametric bootstrap.

        Sizes are those of sets that were cut to ``max_size``. The unbiased mean size is in ``attrs["mean_size"]``.

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
        """
        sampling = self._source.sampling(target)
        mine = sets.SetColumn.of(self._source.column(column))
        channel, counts = sets.size_counts(mine, self._source.codes([column]))
        estimate, errors = channel.fit(counts, normalize, sampling)
        estimate, variance = self._weighted(estimate, errors**2, normalize)
        index = pd.RangeIndex(channel.most + 1, name="size")
        out = pd.DataFrame(self._results(estimate, variance, (slice(None),), least=0.0), index=index)
        mean, spread = channel.mean(counts, sampling)
        found = self._results(np.array([mean]), np.array([spread]), (slice(None),))
        out.attrs["mean_size"] = {name: float(values[0]) for name, values in found.items()}
        return out

    def _wide(
        self, estimate: FloatArray, variance: FloatArray, kept: tuple[slice, ...], rows: Any, columns: Any
    ) -> pd.DataFrame:
        """Return results as a cross table, their names an outer level of its columns."""
        results = self._results(estimate, variance, kept)
        return pd.concat({k: pd.DataFrame(v, rows, columns) for k, v in results.items()}, axis=1, names=[None])

    # Moments

    @nan_if_not_found
    def mean(
        self, column: str, by: str | None = None, *, weights: str | None = None, bins: Any = None, target: str = "table"
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the mean of a numeric column, over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        by
            A randomised column: one mean per value (nulls of ``by`` are left out).
        weights
            A randomised numeric column of non-negative weights.
        bins
            Cut ``by`` into bins.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; with ``by`` a DataFrame with a row per value.
        """
        sampling = self._source.sampling(target)
        scale = moments.Scale.of(self._source.column(column))
        if by is None:
            measured = NumberTables.mean if weights is None else None
            return self._statistic(
                moments.mean(scale, self._weight(weights, column)), [column, weights], column, target, measured
            )
        if weights is not None:
            raise ParameterError("weights and by do not go together; leave one of them out")
        group, home = make_axis(self._source.column(by), bins), self.plan.group_of(by)
        if home is not None and column in home.names:
            group = MemberAxis(group.column, group, home)
        check_cells([group.classes * 6])
        if by == column:
            # The same noise in both factors: a product of surrogates is unbiased for independent noise only.
            raise ParameterError("a column cannot be grouped by itself; value_counts gives its distribution")
        batches = self._source.codes([column, by])
        ratio, variance = surrogates.grouped_ratio(scale.column, scale.value, scale.present, group, batches, sampling)
        part = slice(0, group.cells - group.has_null)
        results = self._results(scale.back(ratio), variance * scale.width**2, (part,))
        return pd.DataFrame(self._dressed(results, column), index=group.labels[part])

    @nan_if_not_found
    def sum(self, column: str, *, weights: str | None = None, target: str = "table") -> pd.Series[Any]:
        """Return the sum of a numeric column (pandas' ``sum``), over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers or booleans.
        weights
            A randomised numeric column: the sum is of the products with it, where neither is null.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers, or holds times, which have no sum.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> Estimates(safe).sum("age").round(-2).to_dict()
        {'estimate': 103500.0, 'std_error': 900.0, 'lower': 101700.0, 'upper': 105400.0}
        """
        scale = moments.Scale.of(self._source.column(column))
        if scale.is_time:
            raise ParameterError(f"column {column!r} holds times, which have no sum; ask for their mean")
        measured = NumberTables.total if weights is None else None
        return self._statistic(
            moments.total(scale, self._weight(weights, column)), [column, weights], column, target, measured
        )

    @nan_if_not_found
    def var(self, column: str, ddof: int = 1, *, target: str = "table") -> pd.Series[Any]:
        """Return the variance of a numeric column (pandas' ``var``), over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``
        in the square of the column's unit (times: steps of the resolution).

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for another ``ddof``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> Estimates(safe).var("age").round(-1).to_dict()
        {'estimate': 400.0, 'std_error': 30.0, 'lower': 340.0, 'upper': 450.0}
        """
        scale = moments.Scale.of(self._source.column(column))
        statistic = moments.variance(scale, check_whole(ddof, "ddof", 0))
        return self._statistic(statistic, [column], column, target, lambda told, own: told.variance(ddof, own))

    @nan_if_not_found
    def std(self, column: str, ddof: int = 1, *, target: str = "table") -> pd.Series[Any]:
        """Return the standard deviation of a numeric column (pandas' ``std``): the root of `var`.

        Where noise makes the variance negative the estimate is NaN, and the interval begins at 0.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit (times: durations).

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for another ``ddof``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> Estimates(safe).std("age").round(1).to_dict()
        {'estimate': 19.9, 'std_error': 0.7, 'lower': 18.6, 'upper': 21.2}
        """
        found = self.var(column, ddof, target=target)
        roots = {name: math.sqrt(max(found[name], 0.0)) for name in ("estimate", "lower", "upper")}
        known = found["estimate"] > 0
        point = roots["estimate"] if known else math.nan
        error = found["std_error"] / (2 * point) if known else math.nan
        values = dict(zip(RESULTS, (point, error, roots["lower"], roots["upper"]), strict=True))
        return self._dressed_series({name: np.array([v]) for name, v in values.items()}, column, "duration", column)

    def cov(self, columns: Sequence[str] | None = None, ddof: int = 1, *, target: str = "table") -> pd.DataFrame:
        """Return the covariances of numeric columns (pandas' ``DataFrame.cov``), nulls dropped by pair.

        Parameters
        ----------
        columns
            Randomised numeric columns, by default all of them.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        DataFrame of columns by columns, with ``estimate, std_error, lower, upper`` as an outer level of its columns,
        in the product of both units.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for another ``ddof``.

        Examples
        --------
        >>> import numpy as np, pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"x": np.arange(2_000), "y": np.arange(2_000) // 2})
        >>> safe = dpf.sanitize(
        ...     frame, epsilon=20, delta=0, spaces={"x": (0, 2_000), "y": (0, 1_000)}, key=bytes(32)
        ... )
        >>> Estimates(safe).cov()["estimate"].round(-3).loc["x", "y"]
        np.float64(167000.0)
        """

        def covariance(a: moments.Scale, b: moments.Scale) -> pd.Series[Any]:
            names = (a.column.name, b.column.name)

            def measured(told: NumberTables, own: float) -> Known | None:
                if names[0] == names[1]:
                    return told.variance(ddof, own)
                pair = self._number_pair(*names)
                return None if pair is None else pair.covariance(ddof, own)

            rows = moments.covariance(a, b, check_whole(ddof, "ddof", 0))
            return self._statistic(rows, names, names[0], target, measured)

        return self._matrix(columns, covariance, target)

    def corr(self, columns: Sequence[str] | None = None, *, target: str = "table") -> pd.DataFrame:
        """Return the correlations of numeric columns (pandas' ``DataFrame.corr``), nulls dropped by pair.

        Intervals are by profile likelihood (Venzon and Moolgavkar 1988): where a variance cannot be told from noise
        they are −1 to 1, and the estimate is NaN. ``std_error`` is the interval's half width over its normal quantile.

        Parameters
        ----------
        columns
            Randomised numeric columns, by default all of them.
        target
            See the class.

        Returns
        -------
        DataFrame of columns by columns, with ``estimate, std_error, lower, upper`` as an outer level of its columns.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers.

        Examples
        --------
        >>> import numpy as np, pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"x": np.arange(2_000), "y": np.arange(2_000) // 2})
        >>> safe = dpf.sanitize(
        ...     frame, epsilon=20, delta=0, spaces={"x": (0, 2_000), "y": (0, 1_000)}, key=bytes(32)
        ... )
        >>> Estimates(safe).corr()["estimate"].round(1).loc["x", "y"]
        np.float64(1.0)
        """
        z = NormalDist().inv_cdf((1 + self.confidence_level) / 2)

        def correlation(a: moments.Scale, b: moments.Scale) -> dict[str, float]:
            if a.column.name == b.column.name:
                return dict(zip(RESULTS, (1.0, 0.0, 1.0, 1.0), strict=True))
            terms, functions = moments.second_moments(a, b)
            pair = self._number_pair(a.column.name, b.column.name)
            values, covariance = self._moments(terms, functions, [a, b], target if pair is None else "table")
            if pair is not None:
                own = 1.0 if target == "population" else 0.0
                values, covariance = _with_pair(values, covariance, pair, a, b, own)
            point, lower, upper = moments.profile_correlation(values, covariance, z)
            return dict(zip(RESULTS, (point, (upper - lower) / (2 * z), lower, upper), strict=True))

        return self._matrix(columns, correlation, target)

    @nan_if_unread
    def null_rate(self, column: str, *, target: str = "table") -> pd.Series[Any]:
        """Return the share of rows where a column is null."""
        sampling = self._source.sampling(target)
        chosen = self._source.column(column)
        if not chosen.space.has_null:
            raise ParameterError(f"column {column!r} holds no nulls: its space is not Nullable")
        if sets.is_sets(chosen):
            rate, variance = sets.SetColumn.of(chosen).null_rate(self._source.codes([column]), sampling)
            results = self._results(np.array([rate]), np.array([variance]), (slice(None),))
            return self._dressed_series(results, column, "number", column)
        axis = make_axis(chosen, None if self.is_listed(column) else 1)
        told = None
        if self._joints is not None:
            both = self._with_all([axis], self._counts([axis]), True, False, "inverse", target)
            told = self._joints.null_rate(column, target == "population", self._row_cells)
            told = told if both is None else Answer(*both, "inverse", "both")
        if told is not None:
            results = self._results(told.estimate[-1:], told.variance[-1:], (slice(None),))
            out = self._dressed_series(results, column, "number", column)
            out.attrs["source"] = told.source
            return out
        if self._measured is not None:
            found = self._measured.cells(
                axis, self._counts([axis]), normalize=True, dropna=False, population=target == "population"
            )
            if found is not None:
                results = self._results(found[0][-1:], found[1][-1:], (slice(None),))
                return self._dressed_series(results, column, "number", column)
        null = chosen.space.size - 1
        absent: surrogates.Term = {column: (lambda codes: (codes == null).astype(np.float64),)}
        return self._statistic(moments.Statistic([absent], lambda m, n: m[0]), [column], column, target)

    # Distributions

    @nan_if_not_found
    def histogram(
        self, column: str, bins: int | Sequence[Any] = 10, *, density: bool = False, target: str = "table"
    ) -> pd.DataFrame:
        """Return the distribution of a numeric column in bins, by maximum likelihood.

        The distribution is fitted on a grid of 128 cells, so that counts are not negative; errors are by
        parametric bootstrap. `value_counts` with ``bins`` gives unbiased counts instead, whose errors are
        much larger.

        Parameters
        ----------
        column
            A randomised numeric column.
        bins
            A number of bins between the space's bounds (where there are fewer values, one for each), or bounds in
            order.
        density
            Give densities per unit instead of counts.
        target
            See the class.
        """
        sampling = self._source.sampling(target)
        axis = make_axis(self._source.column(column), 10 if bins is None else bins)
        assert isinstance(axis, BinnedAxis)
        fitted = self._distribution(column)
        parts, rows = aggregation(fitted.axis, axis), self._all_rows
        estimate = parts @ fitted.shares * rows
        error = fitted.errors_of(lambda shares: parts @ shares, sampling) * rows
        variance = error**2
        if density:
            # Per unit and per row with a value: densities integrate to one, as NumPy's do.
            widths = np.diff(axis.edges) * line_of(axis.column.space)[1] * fitted.shares[: fitted.axis.bins].sum()
            estimate, variance = (
                np.append(v[: axis.bins] / (widths * rows) ** p, v[axis.bins :])
                for v, p in ((estimate, 1), (variance, 2))
            )
        part = slice(0, axis.bins)
        results = self._results(estimate, variance, (part,), least=0.0)
        out = pd.DataFrame(results, index=axis.labels[part])
        out.attrs["source"] = _source_of(fitted)
        return out

    @nan_if_not_found
    def quantile(
        self, column: str, q: float | Sequence[float] = 0.5, *, target: str = "table"
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return quantiles of a numeric column's values (pandas' ``quantile``), by maximum likelihood.

        The distribution is fitted on a grid of 128 cells and interpolated within; errors are by parametric
        bootstrap. Intervals stay within the space's bounds. Extremes (0 and 1) cannot be learnt from noisy rows.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        q
            A level in (0, 1), or a list of them.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit; of a list a DataFrame with a row per level.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for a level outside (0, 1).

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> Estimates(safe).quantile("age", [0.25, 0.5]).round()
              estimate  std_error  lower  upper
        q
        0.25      40.0        4.0   32.0   48.0
        0.50      57.0        5.0   48.0   66.0
        """
        sampling = self._source.sampling(target)
        levels = _levels(q)
        fitted = self._distribution(column)
        space = fitted.axis.column.space

        def of(shares: FloatArray) -> FloatArray:
            return quantiles(fitted.axis, shares, levels)

        # Half a cell stands for the interpolation within one, which no bootstrap sees.
        floor = (fitted.axis.edges[1] - fitted.axis.edges[0]) / np.sqrt(12)
        start, step = line_of(space)
        error = np.hypot(fitted.errors_of(of, sampling), floor) * step
        results = self._results(start + of(fitted.shares) * step, error**2, (slice(None),))
        ends = start, start + (fitted.axis.edges[fitted.axis.bins] - 1) * step
        results |= {bound: np.clip(results[bound], *ends) for bound in ("lower", "upper")}
        table = pd.DataFrame(self._dressed(results, column), index=pd.Index(levels, name="q"))
        table.attrs["source"] = _source_of(fitted)
        return table if np.ndim(q) else table.iloc[0].rename(column)


def synthetic_batches(estimates: Estimates, n_rows: int | None, random_state: Any, most: int) -> Iterator[Any]:
    """Yield synthetic rows of a released file as Arrow tables of at most so many rows; see `Estimates.synthesize`."""
    fresh, generator, source = check_rows(n_rows), make_generator(random_state), estimates._source
    drawing = estimates._synthesizer
    drawing.warn_of_hidden()
    if fresh is None:
        yield from source.drawn_batches(lambda codes: drawing.given(codes, generator), drawing.text, most)
        return
    for start in range(0, fresh, most):
        rows = min(most, fresh - start)
        yield source.drawn(drawing.fresh(rows, generator), rows, drawing.text)


def _with_pair(
    values: FloatArray, covariance: FloatArray, pair: NumberPair, a: moments.Scale, b: moments.Scale, population: float
) -> tuple[FloatArray, FloatArray]:
    """Return three moments from rows and tables, weighted by their precisions, in the units of the rows'."""
    units = [line_of(scale.column.space)[1] / scale.width for scale in (a, b)]
    scales = np.array([units[0] * units[1], units[0] ** 2, units[1] ** 2])
    known, own = pair.moments(0.0)
    known, own = known * scales, own * scales**2
    more = np.maximum(pair.moments(1.0)[1] * scales**2 - own, 0.0) if population else np.zeros(3)
    if not np.isfinite(covariance).all():
        return known, np.diag(own + more)
    # Aitken's gain, which needs no inverse of the rows' own covariance.
    gain = covariance @ np.linalg.inv(covariance + np.diag(own))
    return values + gain @ (known - values), covariance - gain @ covariance + np.diag(more)


def _source_of(fitted: Any) -> str:
    return "tables" if isinstance(fitted, NumberTables) else "rows"


def _levels(q: Any) -> FloatArray:
    """Return the levels of quantiles, or raise `ParameterError`."""
    try:
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
    except (TypeError, ValueError):
        levels = np.array([np.nan])
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ParameterError("q must lie in (0, 1), e.g. q=0.5: extremes cannot be learnt from noisy rows")
    return levels
