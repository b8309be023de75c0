"""Several statistics at once, in pandas' words: a table of each number's, and the most frequent values."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dpframe.errors import ParameterError, check_whole
from dpframe.estimate.base import RESULTS, column_names
from dpframe.estimate.count_estimates import CountEstimates
from dpframe.estimate.not_found import NOT_FOUND
from dpframe.estimate.number_estimates import NumberEstimates

_DESCRIBED = ["count", "mean", "std", "25%", "50%", "75%"]
"""Rows of `describe`, as pandas calls them."""


class Summaries(CountEstimates, NumberEstimates):
    """What is made of single statistics: tables of several, and an order."""

    def median(self, column: str, *, target: str = "table") -> pd.Series[Any]:
        """Return the median of a numeric column (pandas' ``median``): its `quantile` at one half."""
        found = self.quantile(column, 0.5, target=target)
        assert isinstance(found, pd.Series)
        return found

    def describe(self, columns: Sequence[str] | None = None, *, target: str = "table") -> pd.DataFrame:
        """Return count, mean, standard deviation and quartiles of numeric columns (pandas' ``describe``).

        The least and the largest value are not told: they are single rows'. Where pandas shows them are the bounds of
        the plan's spaces, which are public.

        Parameters
        ----------
        columns
            Randomised numeric columns, by default all that hold numbers (times have `quantile` and `mean`).
        target
            See the class.

        Returns
        -------
        DataFrame indexed by ``count, mean, std, 25%, 50%, 75%``, with ``estimate, std_error, lower, upper`` as an outer
        level over the columns.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).describe()["estimate"].round()
                  age
        count  2000.0
        mean     52.0
        std      20.0
        25%      40.0
        50%      57.0
        75%      62.0
        """
        if columns is None:
            spaces = {name: self._source.column(name).space for name in self._numeric()}
            names = [name for name, space in spaces.items() if not space.is_time and space.metric != "discrete"]
        else:
            names = list(dict.fromkeys(column_names(columns, "columns")))
        tables: dict[str, pd.DataFrame] = {}
        missing: dict[str, str] = {}
        for name in names:
            if self._source.column(name).space.is_time:
                raise ParameterError(f"column {name!r} holds times; ask for their mean and quantile")
            parts = [self._filled(name, target), self.mean(name, target=target), self.std(name, target=target)]
            quartiles = self.quantile(name, [0.25, 0.5, 0.75], target=target)
            tables[name] = pd.concat([pd.DataFrame(parts), quartiles]).set_axis(_DESCRIBED)
            missing |= quartiles.attrs.get(NOT_FOUND, {})
        if not tables:
            raise ParameterError("describe is of numbers, and the release has no column of them; see value_counts")
        out = pd.concat(tables, axis=1).swaplevel(axis=1)
        out = out.reindex(columns=pd.MultiIndex.from_product([RESULTS, names]))
        if missing:
            out.attrs[NOT_FOUND] = missing
        return out

    def _filled(self, column: str, target: str) -> pd.Series[Any]:
        """Return the number of rows where a column is not null."""
        rows = float(self._all_rows)
        if not self._source.column(column).space.has_null:
            return pd.Series(dict(zip(RESULTS, (rows, 0.0, rows, rows), strict=True)))
        filled: pd.Series[Any] = self.count({column: {"not": None}}, target=target)
        return filled

    def nunique(self, column: str) -> None:
        """Refuse: how many distinct values occur is not told by noisy rows.

        Raises
        ------
        ParameterError
            Always, with what to ask instead.
        """
        self._source.column(column)
        raise ParameterError(
            f"nunique of column {column!r} cannot be estimated: noise hides whether one row holds a value or none; "
            "value_counts gives the share of every value of its space"
        )

    def top(self, column: str, k: int = 10, *, normalize: bool = True, target: str = "table") -> pd.DataFrame:
        """Return the values, or items of sets, that may be among the ``k`` most frequent, and which of them surely are.

        Intervals hold together: all values' at once at the confidence level, by Bonferroni's inequality. A value is
        surely among the first k if fewer than k others may be as frequent, and possibly if fewer than k others surely
        are more so.

        Parameters
        ----------
        column
            A randomised column of listed values, or of sets.
        k
            How many values are asked for.
        normalize
            Give shares of the rows that are not null; otherwise counts.
        target
            See the class.

        Returns
        -------
        DataFrame indexed by value, the most frequent first, with ``estimate, std_error, lower, upper`` and ``surely``;
        it has k rows or more.

        Raises
        ------
        ParameterError
            For a column that is not randomised or has no list of values, or a ``k`` that is no whole number above 0.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(5_000, columns=["education"])
        >>> space = dpf.Categorical(dpf.datasets.EDUCATION)
        >>> safe = dpf.sanitize(frame, epsilon=4, delta=0, spaces={"education": space}, key=bytes(32))
        >>> dpf.Estimates(safe).top("education", 2)["surely"].to_dict()
        {'vocational': True, 'secondary': True}
        """
        k = check_whole(k, "k", 1)
        together = copy.copy(self)
        if self.holds_sets(column):
            shown = self.support(column, normalize=normalize, target=target)
            together.confidence_level = 1 - (1 - self.confidence_level) / max(len(shown), 1)
            table = together.support(column, normalize=normalize, target=target)
        else:
            shown = self.value_counts(column, normalize=normalize, sort=False, target=target)
            together.confidence_level = 1 - (1 - self.confidence_level) / max(len(shown), 1)
            table = together.value_counts(column, normalize=normalize, sort=False, target=target)
        lower, upper = (table[name].to_numpy() for name in ("lower", "upper"))
        rivals = (upper[None, :] >= lower[:, None]).sum(axis=1) - 1
        ahead = (lower[None, :] > upper[:, None]).sum(axis=1)
        unknown = table["estimate"].isna().to_numpy()
        table["surely"] = (rivals < k) & ~unknown
        chosen: pd.DataFrame = table[(ahead < k) | unknown]
        return chosen.sort_values("estimate", ascending=False, kind="stable")
