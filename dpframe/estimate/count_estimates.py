"""Estimates of how many rows have which values, by column and jointly, in pandas' words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import DpframeWarning, InferenceWarning, ParameterError, check_flags, is_one_of, name_list, warn
from dpframe.estimate import sets, surrogates
from dpframe.estimate.axes import Axis, make_axis
from dpframe.estimate.base import Bins, column_names
from dpframe.estimate.column_evidence import of_ranks_alone
from dpframe.estimate.conditions import ItemCondition, Where
from dpframe.estimate.item_pairs import likely_pairs
from dpframe.estimate.not_found import nan_if_not_found, nan_if_unread
from dpframe.estimate.results import RESULTS, Answer, Results
from dpframe.estimate.vectors import VectorEstimates
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import has_few_values

_JOINED = {"all": " & ", "any": " | "}


class CountEstimates(VectorEstimates):
    """Counts, shares and joints, of categories, bins and items of sets."""

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
            A randomised column; every value of its space has a row in the result, except the ``other`` of a list that
            inference found, where its count is within its noise of 0.
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
            See the class; by default ``"auto"`` for listed values that were measured, of least error. For others
            ``"inverse"``, and with ``bins`` ``"em"``, the law of `histogram`: unbiased counts between bins have errors
            beyond use, and are refused where the noise is much wider than the steps.
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
        check_flags(normalize=normalize, sort=sort, ascending=ascending, dropna=dropna)
        axes = self._axes([column], {column: bins} if isinstance(column, str) and bins is not None else {})
        fits = method is None and axes[0].column.space.is_listed
        fits = fits and self._joints.tables.source_of([column]) != "rows"
        method = "auto" if fits else self._default_method(axes) if method is None else method
        answer = self._cells(axes, normalize, (), dropna, method, target)
        # A fit holds the counts of inference too.
        said = answer.said | ({"measured": self._evidence.counted(axes[0]) is not None} if fits else {})
        results, index = self._shown(answer, axes, dropna)
        tails, rows, space = self._tails(column), self._all_rows, axes[0].column.space
        if answer.intervals is not None and axes[0].grid is not None and isinstance(bins, Iterable):
            results = self._opened_at_bounds(results, axes[0].grid, 1 / max(rows, 1.0) if normalize else 1.0)
        if space.is_numeric and not space.is_listed and tails is not None:
            base = (tails.present if dropna else rows) if normalize else 1.0
            ends = tails.of_bins(len(index), space.has_null and not dropna), (0.0, 0.0)
            results, said = results.opened(ends, self._z, 1 / max(base, 1.0)), said | self._said_of_tails([column])
        ranks = self._evidence.ranks(column) if bins is None else None
        if ranks is not None:
            population, level = target == "population", self.confidence_level
            results = of_ranks_alone(results, list(index), ranks, rows, normalize, population, level, dropna)
            said |= {"measured": True}
        results = self._possible(results, answer, normalize)
        if 2 * np.count_nonzero(results.std_error > (1.0 if normalize else rows)) > len(index):
            what, remedy = (
                ("single values", "give bins=10, or count ranges") if bins is None else ("bins", "give fewer")
            )
            warn(f"counts of {what} of {column!r} have errors above all rows; {remedy}", DpframeWarning)
        out = results.frame(index, said)
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
        check_flags(normalize=normalize, dropna=dropna)
        columns, held = column_names(columns, "columns"), column_names(given, "given")
        axes = self._axes(columns, {} if bins is None else bins)
        stray = [name for name in held if name not in columns]
        if stray:
            raise ParameterError(f"given names {stray[0]!r}, which is not among the joint's columns")
        if held and len(held) == len(columns):
            raise ParameterError("given names every column of the joint; leave one free")
        positions = tuple(columns.index(name) for name in held)
        answer = self._cells(axes, normalize or bool(held), positions, dropna, method, target)
        results, index = self._shown(answer, axes, dropna)
        return self._possible(results, answer, normalize or bool(held)).frame(index, answer.said)

    def _possible(self, results: Results, answer: Answer, normalize: bool) -> Results:
        """Return shares, and counts by fits, cut at what is possible; unbiased counts are as they are."""
        if normalize:
            return results.clipped(0.0, 1.0)
        return results if answer.method == "inverse" else results.from_none().within(most=self._all_rows)

    def _shown(self, answer: Answer, axes: Sequence[Axis], dropna: bool) -> tuple[Results, pd.Index[Any]]:
        shown = self._shown_cells(axes, dropna)
        labels = [axis.labels[cells] for axis, cells in zip(axes, shown, strict=True)]
        index = labels[0] if len(axes) == 1 else pd.MultiIndex.from_product(labels)
        return answer.results(self._z)[np.ix_(*shown)].each(np.ravel), index

    @nan_if_not_found
    def count(
        self, where: Mapping[str, Any], normalize: bool = False, *, method: str = "auto", target: str = "table"
    ) -> pd.Series[Any]:
        """Return how many rows meet a condition on every column that is named.

        Parameters
        ----------
        where
            By column a value, a list of values, ``(low, high)`` with both ends in it (None for no end), None for null;
            of sets ``{"any": items}`` or ``{"all": items}``; ``{"not": …}`` of any of these, which no null meets.
        normalize
            Give the share of all rows instead of their number.
        method
            ``"inverse"``: unbiased, from only the rows. ``"auto"``: of least error, from measured tables and fits
            where these cover the columns. A fit of a range to rows with geometric noise takes the distribution for
            smooth; see `histogram`.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; ``attrs["source"]`` says what it is from. For a range beyond
        bounds that private inference found the estimate is 0, and the interval holds the rows that may lie there.
        Of three conditions and more that no measured table holds together ``attrs["allowed_by_pairs"]`` has the least
        and the greatest count that their pairs allow: a rule among all of them may lie anywhere between.

        Raises
        ------
        ParameterError
            For a condition that is none, a column that is not randomised, or what its space does not hold: a range
            wholly beyond declared bounds, too.

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
        asked = Where.of(where, self._source.column, self._is_open)
        results, said = self._joints.count(asked, method, target == "population", self._z)
        of_items = asked.of_items if method == "auto" else None
        if of_items is not None:
            labels = [of_items.sets.labels[place] for place in of_items.places]
            known = self.support(of_items.column.name, items=labels, how=of_items.how, normalize=False, target=target)
            if known["std_error"].iloc[0] < results.std_error[0]:
                results, said = Results(*known[list(RESULTS)].to_numpy().T), {"source": known.attrs["source"]}
        scale = max(self._all_rows, 1.0) if normalize else 1.0
        most = 1.0 if normalize else self._all_rows
        results = results.each(lambda values: values / scale)
        for condition in asked.values.values():
            if condition.shared:
                # Rows at the ends of a range may lie on either side of these.
                codes = np.unique(np.array(condition.shared, dtype=np.int64))
                (rows, errors), inside = self._rows_at(condition.column.name, codes), condition.holds(codes)
                self._warn_of_shared(condition.column.name, rows, errors)
                over, under = float(rows @ inside), float(rows @ (1 - inside))
                results = results.opened(((over, 0.0), (under, 0.0)), self._z, 1 / scale)
        cut = {name: condition.beyond for name, condition in asked.values.items() if any(condition.beyond)}
        for name, beyond in cut.items():
            if (tails := self._tails(name)) is not None:
                results = results.opened(tails.of_range(beyond), self._z, 1 / scale)
        if method == "auto":
            results = self._bounded(results.from_none(), asked, most)
        if method == "auto" or normalize:
            results = results.clipped(0.0, most)
        if "allowed_by_pairs" in said:
            said["allowed_by_pairs"] = tuple(end / scale for end in said["allowed_by_pairs"])
        return results.series("count", said | self._said_of_tails(cut))

    def _bounded(self, results: Results, asked: Where, most: float) -> Results:
        """Return a count with the interval of all that counts can be, and a warning, where its error is beyond them."""
        if not results.std_error[0] > most > 0:
            return results
        warn(
            f"noise hides how many rows meet conditions on {name_list(asked.names)} together: any number may; ask for "
            "each by itself, declare the items of sets as Boolean columns in another release, or raise epsilon",
            InferenceWarning,
        )
        return replace(results.clipped(0.0, most), lower=np.zeros(1), upper=np.full(1, most))

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
        bins, target
            See `value_counts` and `joint`.
        method
            See the class; by default ``"inverse"``, whose cells are unbiased, unless a standard error is above the
            number of rows. ``"auto"`` errs less where noise is not small, as synthetic rows do, but is drawn to
            independence.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.
        """
        given: dict[Any, tuple[int, ...]] = {False: (), True: (), "all": (), "index": (0,), "columns": (1,)}
        if not isinstance(normalize, bool | str) or normalize not in given:
            raise ParameterError('normalize must be False, True, "all", "index" or "columns"')
        if is_one_of(margins, self.plan.names):
            raise ParameterError("crosstab takes two columns; more are for joint, e.g. joint(['age', 'sex', 'region'])")
        check_flags(margins=margins, dropna=dropna)
        if margins and normalize:
            raise ParameterError("margins are given with counts only; leave normalize out")
        axes = self._axes([index, columns], {} if bins is None else bins)
        chosen = self._default_method(axes) if method is None else method
        if margins and chosen != "inverse":
            raise ParameterError("margins are given with method='inverse' only")
        answer = self._cells(axes, bool(normalize), given[normalize], dropna, chosen, target)
        shown = self._shown_cells(axes, dropna)
        kept = np.ix_(*shown)
        most = 1.0 if normalize else self._all_rows
        says_nothing = bool((answer.variance[kept] > most**2).any())
        if method is None and chosen == "inverse" and not margins and says_nothing:
            answer = self._cells(axes, bool(normalize), given[normalize], dropna, "auto", target)
        rows, cols = (axis.labels[cells] for axis, cells in zip(axes, shown, strict=True))
        results = self._possible(answer.results(self._z)[kept], answer, bool(normalize))
        if margins:
            # Plain labels: an index of intervals has no place for "All".
            rows, cols = (pd.Index([*index, "All"], name=index.name) for index in (rows, cols))
            cells, totals = (answer.estimate[kept], answer.variance[kept]), self._totals(answer, axes, dropna, target)
            results = self._results(
                *(
                    np.block([[own, whole[0][:, None]], [whole[1][None, :], whole[2][None, :]]])
                    for own, whole in zip(cells, zip(*totals, strict=True), strict=True)
                )
            )
        return results.wide(rows, cols, {"method": answer.method, "source": answer.source})

    def _totals(
        self, answer: Answer, axes: Sequence[Axis], dropna: bool, target: str
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Return row, column and grand totals with their variances.

        Those of tables are sums of cells, whose noise is independent. Those of rows are estimated on their own.
        """
        shown = self._shown_cells(axes, dropna)
        if answer.source != "rows":
            kept = np.ix_(*shown)
            cells = answer.estimate[kept], answer.variance[kept]
            first, second, both = ([np.atleast_1d(v.sum(axis=others)) for v in cells] for others in (1, 0, (0, 1)))
            return [(first[0], first[1]), (second[0], second[1]), (both[0], both[1])]
        counts, found = self._counts(axes), []
        for keep in ((0,), (1,), ()):
            part = shown[keep[0]] if keep else slice(None)
            cells = surrogates.margin_cells(counts, axes, keep, dropna, self._source.sampling(target))
            estimate, variance = self._weighted(*cells, False)
            found.append((estimate.ravel()[part], variance.ravel()[part]))
        return found

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
    ) -> pd.DataFrame:
        """Return the share of rows whose set holds each item; of other columns, the share of each value.

        Sets larger than their space's ``max_size`` were cut before they were randomised: supports are those of the
        cut sets. Rows that are null do not count.

        Parameters
        ----------
        column
            A randomised column of sets; or of few values, in the space's order.
        items
            Items of an item set: the share of rows that hold them all, or any of them. For two items whose supports
            were measured, that of `cooccurrence`: unless their pairs were measured too
            (``measure=[(column, column)]``), and the rows tell little, its interval reaches to all that both supports
            allow.
        how
            ``"all"`` or ``"any"`` of the items.
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
        >>> dpf.Estimates(safe).support("hobbies")[["estimate", "std_error"]].head(2).round(3)
                        estimate  std_error
        hobbies
        watching films     0.366      0.014
        reading            0.308      0.014
        """
        check_flags(normalize=normalize)
        sampling = self._source.sampling(target)
        chosen = self._source.column(column)
        if bins is not None and by is None:
            raise ParameterError("bins are for the column of by; name one, or leave bins out")
        if not chosen.space.code_words:
            if items is not None or by is not None:
                raise ParameterError(f"column {column!r} holds no sets, whose support takes items and by; see crosstab")
            return self.value_counts(column, normalize=normalize, sort=False, target=target)
        mine = sets.SetColumn.of(chosen)
        places = None if items is None else mine.places(items)
        if not is_one_of(how, ["all", "any"]) or (how == "any" and (places is None or by is not None)):
            raise ParameterError('how must be "all", or "any" of the items that are named, without by')
        index, source, least = pd.Index(mine.labels, name=column), "rows", -np.inf
        if places is not None:
            index = pd.Index([_JOINED[how].join(str(mine.labels[i]) for i in places)], name=column)
        if by is not None:
            if not normalize:
                raise ParameterError("by goes with shares only; leave normalize out")
            group = self._axis(by, bins)
            (part,), batches = self._shown_cells([group], True), self._source.codes([column, by])
            shares, variances = self._counted(mine, places, how, batches, group).share_by(group, sampling)
            return self._results(shares.T, variances.T)[:, part].clipped(0.0, 1.0).wide(index, group.labels[part])
        if places is None or len(places) == 1:
            estimate, variance, source = self._supports(column, normalize, target)
            if places is not None:
                estimate, variance = estimate[list(places)], variance[list(places)]
        elif len(places) == 2 and self._items(column) is not None:
            found, errors = self._likely_pairs(mine, places)
            share, variance = found[0, 1], errors[0, 1]
            if how == "any":
                # The pair's error goes with those of its items, so that their sum bounds that of the difference.
                share = min(max(found[0, 0] + found[1, 1] - share, found[0, 0], found[1, 1]), 1.0)
                variance += errors[0, 0] + errors[1, 1]
            estimate, variance = self._of_present(column, np.array([share]), np.array([variance]), normalize, target)
            source, least = "both", 0.0
        else:
            counted = self._counted(mine, places, how, self._source.codes([column]), None)
            estimate, variance = self._weighted(*_only(counted.share(normalize, sampling)), normalize)
        results = self._results(estimate, variance).within(least)
        return (results.clipped(0.0, 1.0) if normalize else results).frame(index, {"source": source})

    @staticmethod
    def _counted(
        mine: sets.SetColumn, places: Sequence[int] | None, how: str, batches: surrogates.Batches, group: Axis | None
    ) -> sets.Counted:
        if places is None:
            return mine.count_items(batches, group)
        return mine.count_level(ItemCondition(mine, tuple(places), how).levels, places, batches, group)

    def _supports(
        self, column: str, normalize: bool = True, target: str = "table"
    ) -> tuple[FloatArray, FloatArray, str]:
        """Return every item's share or count, its variance, and what they are from, whether or not it was found."""
        mine, told = sets.SetColumn.of(self._source.column(column)), self._items(column)
        # With tables, which are of all rows, the population's own variance is added once.
        sampling = self._source.sampling(target if told is None else "table")
        shares = _only(mine.count_items(self._source.codes([column])).share(normalize, sampling))
        estimate, variance = self._weighted(*shares, normalize)
        if told is None:
            return estimate, variance, "rows"
        return *told.beside(estimate, variance, normalize, target == "population", self._present(column)), "both"

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
            likely; else the same. Each interval holds however often the two go together: where pairs were not measured
            it reaches to all that both supports allow, and ``measure=[(column, column)]`` makes it shorter.
        target
            See the class.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.
        """
        check_flags(normalize=normalize)
        if not is_one_of(method, ["auto", "inverse"]):
            raise ParameterError('method must be "auto" or "inverse"')
        sampling = self._source.sampling(target)
        mine = sets.SetColumn.of(self._source.column(column))
        places = list(range(len(mine.labels))) if items is None else mine.places(items)
        if len(places) > sets.MOST_PAIRED:
            raise ParameterError(f"cooccurrence pairs at most {sets.MOST_PAIRED} items; name some with items=[…]")
        index, drawn = pd.Index([mine.labels[i] for i in places], name=column), self._items(column) is not None
        if method == "auto" and drawn:
            estimate, variance = self._of_present(column, *self._likely_pairs(mine, places), normalize, target)
        else:
            drawn, counted = False, mine.count_pairs(places, self._source.codes([column]))
            estimate, variance = self._weighted(*counted.share(normalize, sampling), normalize)
        results = self._results(estimate, variance).within(0.0 if drawn else -np.inf)
        said = {"method": "model" if drawn else "inverse", "source": "both" if drawn else "rows"}
        return (results.clipped(0.0, 1.0) if normalize else results).wide(index, index, said)

    def _likely_pairs(self, mine: sets.SetColumn, places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return shares and variances of pairs of items, the supports of items on the diagonal, from all that is known.

        All pairs say how far pairs lie from chance, so that they are estimated together, once.
        """
        items, chosen = len(mine.labels), np.ix_(places, places)
        if items > sets.MOST_PAIRED:
            return self._fitted_pairs(mine, places)
        estimate, variance = self._fitted_pairs(mine, range(items))
        return estimate[chosen], variance[chosen]

    def _fitted_pairs(self, mine: sets.SetColumn, places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Fit these pairs to the rows' own, measured pairs, and what supports and sizes make likely."""
        column = mine.column.name
        sizes, measured = self._measured_sizes(column), self._measured_pairs(column)
        counted = mine.count_pairs(places, self._source.codes([column]))
        rows, spread = self._weighted(*counted.share(True, self._source.sampling("table")), True)
        every, spreads, _ = self._supports(column)
        supports, variances = every[list(places)], spreads[list(places)]
        first, second = np.triu_indices(len(places), 1)
        shares, errors = rows[first, second], spread[first, second]
        if measured is not None:
            items = np.array(places)
            shares, errors = measured.beside(shares, errors, items[first], items[second], self._present(column))
        chance, alike = (np.outer(supports, supports), sets.PRIOR) if sizes is None else sizes.chance(every, places)
        pairs = likely_pairs(
            shares,
            errors,
            (supports[first], variances[first]),
            (supports[second], variances[second]),
            chance[first, second],
            alike,
        )
        estimate, variance = np.diag(supports), np.diag(variances)
        for a, b in ((first, second), (second, first)):
            estimate[a, b], variance[a, b] = pairs
        return estimate, variance

    def _of_present(
        self, column: str, shares: FloatArray, variances: FloatArray, normalize: bool, target: str
    ) -> tuple[FloatArray, FloatArray]:
        present = self._present(column)
        if target == "population":
            variances = variances + np.clip(shares * (1 - shares), 0.0, None) / present
        scale = 1.0 if normalize else present
        return shares * scale, variances * scale**2

    def _present(self, column: str) -> float:
        """Return the rows of the table where a column of sets is not null, about."""
        null = self._source.column(column).space.has_null
        return max(self.rows * (1 - float(self.null_rate(column)["estimate"]) if null else 1.0), 1.0)

    @nan_if_not_found
    def set_sizes(self, column: str, *, normalize: bool = False, target: str = "table") -> pd.DataFrame:
        """Return how many rows hold sets of each size: as measured, or from rows.

        From rows by maximum likelihood, with errors by parametric bootstrap. Measured sizes above 16 were counted in
        cells of several, which are spread evenly.
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
        check_flags(normalize=normalize)
        sampling = self._source.sampling(target)
        mine, measured = sets.SetColumn.of(self._source.column(column)), self._measured_sizes(column)
        index = pd.RangeIndex(mine.channel.most + 1, name="size")
        if measured is None:
            sizes, source = sets.SetSizes.of(mine, self._source.codes([column])), "rows"
            estimate, errors = sizes.fit(normalize, sampling)
            estimate, variance = self._weighted(estimate, errors**2, normalize)
            mean = sizes.mean(sampling)
        else:
            population, source = target == "population", "tables"
            estimate, variance = measured.by_size(normalize, population)
            mean = measured.mean_size(population)
        attrs = {"mean_size": self._results(*mean).within(least=0.0).series("size").to_dict(), "source": source}
        results = self._results(estimate, variance).from_none()
        return (results.clipped(0.0, 1.0) if normalize else results).frame(index, attrs)

    @nan_if_unread
    def null_rate(self, column: str, *, target: str = "table") -> pd.Series[Any]:
        """Return the share of rows where a column is null, from 0 to 1.

        Where its space holds no nulls the estimate is 0; if inference saw none beyond its noise, the interval ends at
        what its counts allow.

        Raises `ParameterError` where nulls were written as values of the column.
        """
        sampling = self._source.sampling(target)
        chosen = self._source.column(column)
        if not chosen.space.has_null:
            unseen = self._unseen_nulls(column, target)
            if unseen is None:
                raise ParameterError(
                    f"column {column!r} has no null rate, as its nulls count as values (nulls='impute', or spaces of "
                    "another table); declare its space Nullable in another release"
                )
            return unseen.series(column, {"source": "tables"})
        if chosen.space.code_words:
            (rate, variance), source = sets.null_rate(chosen, self._source.codes([column]), sampling), "rows"
        else:
            axis = make_axis(chosen, None if has_few_values(chosen.space) else 1)
            answer = self._cells([axis], True, (), False, "inverse", target)
            rate, variance, source = answer.estimate[-1:], answer.variance[-1:], answer.source
        return self._results(rate, variance).clipped(0.0, 1.0).series(column, {"source": source})


def _only(found: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    return found[0][0], found[1][0]
