"""Estimates of sets: supports of items, pairs of items and sizes of sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import ParameterError, check_flags, is_one_of
from dpframe.estimate import sets
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.conditions import ItemCondition
from dpframe.estimate.count_estimates import CountEstimates
from dpframe.estimate.item_pairs import likely_pairs, pool_pairs
from dpframe.estimate.not_found import nan_if_not_found
from dpframe.spaces.arrays import FloatArray

_JOINED = {"all": " & ", "any": " | "}


class SetEstimates(CountEstimates):
    """Supports, pairs of items and sizes, of columns of sets."""

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
