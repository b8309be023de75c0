"""`Estimates`: the questions an analyst asks, in pandas' words."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, check_whole, refusing_misfit_calls, warn
from dpframe.estimate import sets
from dpframe.estimate.answer_options import AnswerOptions, take_answer_options
from dpframe.estimate.base import column_names
from dpframe.estimate.condition_estimates import ConditionEstimates
from dpframe.estimate.function_estimates import FunctionEstimates
from dpframe.estimate.not_found import NOT_FOUND, warn_of_nan
from dpframe.estimate.plot import draw
from dpframe.estimate.posterior import TABLE_DRAWS
from dpframe.estimate.results import DESCRIBED, RESULTS, Results, WideResult
from dpframe.estimate.surrogates import Codes
from dpframe.estimate.synthetic import Synthesizer, check_rows, make_generator
from dpframe.estimate.synthetic_copies import SyntheticCopies
from dpframe.estimate.tables.tables import LOUD

_EXAMPLES = {
    "compare": 'compare("visits", by="ward")',
    "cooccurrence": 'cooccurrence("hobbies")',
    "corr": 'corr("age", "income")',
    "count": 'count({"age": (18, 65), "sex": "F"})',
    "cov": 'cov("age", "income")',
    "cov_curve": 'cov_curve("load")',
    "crosstab": 'crosstab("sex", "region")',
    "describe": 'describe(["age", "income"])',
    "fidelity": "fidelity()",
    "histogram": 'histogram("age", bins=10)',
    "independence": 'independence("ward", "smoker")',
    "infer": 'infer(lambda t: t["age"].median())',
    "joint": 'joint(["sex", "region"], given=["sex"])',
    "mean": 'mean("age", by="sex")',
    "mean_curve": 'mean_curve("load", by="sex")',
    "median": 'median("age", by="sex")',
    "null_rate": 'null_rate("income")',
    "nunique": 'value_counts("sex")',
    "plot": 'plot("age")',
    "quantile": 'quantile("age", [0.25, 0.75])',
    "regress": 'regress("visits ~ age + C(ward)")',
    "set_sizes": 'set_sizes("hobbies")',
    "std": 'std("age")',
    "sum": 'sum("income"); by groups: mean("income", by="sex")',
    "support": 'support("hobbies", by="sex")',
    "synthesize": "synthesize(1_000, random_state=0)",
    "top": 'top("region", 3)',
    "value_counts": 'value_counts(["sex", "region"])',
    "var": 'var("age")',
    "verify": "verify()",
}
"""Example call of each method, for messages about calls that do not match its signature."""


class Statistics(ConditionEstimates, FunctionEstimates):
    """Every statistic of a release, and its synthetic rows."""

    def plot(self, *columns: str | pd.Series[Any] | pd.DataFrame, ax: Any = None, **options: Any) -> Any:
        """Draw a column or a result with intervals, and return the matplotlib axes.

        Parameters
        ----------
        columns
            One column, of which the marginal, the histogram or the mean curves are drawn; two, for their cross table;
            or the result of any statistic that has intervals, e.g. ``plot(mean("visits", by="ward"))``.
        ax
            Axes to draw on; by default those of a new figure.
        options
            Options of `value_counts`, `histogram`, `mean_curve` or `crosstab`; a result takes none.

        Raises
        ------
        ParameterError
            If matplotlib is not installed, for more than two columns, or for a result without intervals.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> axes = dpf.Estimates(safe).plot("age")
        >>> axes.get_ylabel()
        'rows (estimate, interval)'
        """
        return draw(self, columns, ax, options)

    def median(
        self,
        column: str | Sequence[str],
        *,
        by: str | Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return the median of a numeric column (pandas' ``median``): its `quantile` at one half.

        A list of columns has a row for each in the result.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).median("age").round().to_dict()
        {'estimate': 57.0, 'std_error': 5.0, 'lower': 42.0, 'upper': 62.0}
        """
        return self.quantile(cast("str", column), 0.5, by=by, where=where, weights=weights, target=target)

    def describe(
        self, columns: Sequence[str] | None = None, *, target: str = "table", **options: Unpack[AnswerOptions]
    ) -> pd.DataFrame:
        """Return count, mean, standard deviation and quartiles of numeric columns (pandas' ``describe``).

        The smallest and the largest value are omitted, because they belong to single rows.

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
            rows = float(self._all_rows)
            space = self._source.column(name).space
            if space.flag_codes:
                any_value: Any = {"not": None} if space.has_null else (None, None)
                row_counts = Results(*self.count({name: any_value}, target=target).to_numpy()[:, None])
                row_counts = row_counts.clipped(0.0, rows)
            else:
                nulls = self._bound_null_share(name, target) or Results(0.0, 0.0, 0.0, 0.0)
                row_counts = Results(rows, rows * nulls.std_error, rows * (1 - nulls.upper), rows)
            parts = [row_counts.series("count"), self.mean(name, target=target), self.std(name, target=target)]
            quartiles = self.quantile(name, [0.25, 0.5, 0.75], target=target)
            tables[name] = pd.concat([pd.DataFrame(parts), quartiles]).set_axis(DESCRIBED)
            missing |= quartiles.attrs.get(NOT_FOUND, {})
        if not tables:
            raise ParameterError("describe is of numbers, and the release has no column of them; see value_counts")
        out = pd.concat(tables, axis=1).swaplevel(axis=1)
        out = WideResult(out.reindex(columns=pd.MultiIndex.from_product([RESULTS, names])))
        if missing:
            out.attrs[NOT_FOUND] = missing
        return out

    def nunique(self, column: str) -> None:
        """Refuse: noisy rows do not show how many distinct values occur.

        Raises
        ------
        ParameterError
            Always; the message names a statistic to ask for instead.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> try:
        ...     dpf.Estimates(safe).nunique("age")
        ... except dpf.errors.ParameterError as error:
        ...     print(error)
        nunique of column 'age' cannot be estimated: noise hides whether one row holds a value or none; value_counts
        gives the share of every value of its space
        """
        self._source.column(column)
        raise ParameterError(
            f"nunique of column {column!r} cannot be estimated: noise hides whether one row holds a value or none; "
            "value_counts gives the share of every value of its space"
        )

    def top(
        self,
        column: str,
        k: int = 10,
        *,
        normalize: bool = True,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return the values, or items of sets, that may be among the ``k`` most frequent, and flag the sure ones.

        The intervals of all values hold at once at the confidence level, by Bonferroni's inequality. A value is surely
        among the first k if fewer than k others may be as frequent. It is possibly among them if fewer than k others
        are surely more frequent.

        Parameters
        ----------
        column
            A randomised column of listed values, or of sets.
        k
            Number of values.
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
        k, at_joint_level = check_whole(k, "k", 1), copy.copy(self)
        # Bonferroni's level needs the number of values, which only the result knows.
        values = len(self.support(column, normalize=normalize, target=target))
        at_joint_level.confidence_level = 1 - (1 - self.confidence_level) / max(values, 1)
        table = at_joint_level.support(column, normalize=normalize, target=target)
        lower, upper = (table[name].to_numpy() for name in ("lower", "upper"))
        rivals = (upper[None, :] >= lower[:, None]).sum(axis=1) - 1
        ahead = (lower[None, :] > upper[:, None]).sum(axis=1)
        unknown = table["estimate"].isna().to_numpy()
        table["surely"] = (rivals < k) & ~unknown
        candidates: pd.DataFrame = table[(ahead < k) | unknown]
        return candidates.sort_values("estimate", ascending=False, kind="stable")

    def synthesize(
        self,
        n_rows: int | None = None,
        random_state: Any = None,
        *,
        copies: int | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> Any:
        """Return synthetic rows for plain pandas: a table with the release's columns and dtypes, and its statistics.

        They are drawn from a model of the original table. The model is fitted to the release's measured tables and
        rows, so that draws cost no budget. It has no interactions of three columns; a warning names columns whose rows
        show one. Synthetic rows have no intervals: ask the release for them. A column whose space private inference did
        not find is null. `fidelity` describes the dependence in the model, and a warning tells if there is none.

        Parameters
        ----------
        n_rows
            Number of fresh rows, without columns that were passed through. By default one row is drawn for each
            released row, given that row, in its place.
        random_state
            A seed, a numpy ``Generator``, or None for fresh entropy.
        copies
            Number of synthetic tables, from 2 to 40. The result is a `SyntheticCopies`, a list of DataFrames that are
            posterior draws of the full original table. Their analyses combine to valid standard errors, with its
            ``combine``, R's mitools or Stata's ``mi``. Standard errors of one synthetic table are too small: its 95 %
            intervals covered 38 % of four hundred regressions and group statistics of real and simulated tables. Copies
            are a function of the release, so that they take neither ``n_rows`` nor ``random_state``.
        columns
            The columns of copies, by default all; of fewer columns draws are better.

        Returns
        -------
        A table of the release's kind (of Parquet a pyarrow Table) whose ``attrs`` (metadata) say that it is synthetic.

        Raises
        ------
        ParameterError
            For another ``n_rows`` or ``random_state``, or a column of too many values to draw from, as vectors are.

        Notes
        -----
        A latent class is drawn by its weight and the released row's likelihood, then every column given the class and
        the column's released value. Numbers are values of their space, with the measured mean. Sets have the supports
        of `support` and nearly the measured sizes of `set_sizes`.

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
        if copies is not None:
            if n_rows is not None or random_state is not None:
                raise ParameterError("copies are draws of the whole table; leave out n_rows and random_state")
            return self._copies(copies, columns)
        if columns is not None:
            raise ParameterError("columns are those of copies=; drop columns of the table that synthesize returns")
        fresh, generator = check_rows(n_rows), make_generator(random_state)
        _warn_of_one_table()
        drawing = self._synthesizer_with_warnings()
        if fresh is not None:
            return self._source.drawn(drawing.draw(fresh, generator), fresh, drawing.text, drawing.not_found)
        names = [name for name in self.plan.names if name not in self._source.missing]
        parts = [drawing.draw(_rows_of(codes), generator, codes) for codes in self._source.codes(names)]
        codes = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return self._source.drawn(codes, None, drawing.text, drawing.not_found)

    def _copies(self, copies: int, columns: str | Sequence[str] | None) -> SyntheticCopies:
        """Return posterior draws of the table as synthetic copies."""
        names = [name for name in self.plan.names if name not in self._source.missing]
        if columns is not None:
            names = column_names(columns, "columns")
        tables = self._prepare_draws(names, check_whole(copies, "copies", 2, TABLE_DRAWS), "table")
        self._describe_draws(tables, names)
        return SyntheticCopies(tables.table(draw, self._synthesizer.text) for draw in range(tables.table_count))

    def fidelity(self) -> pd.DataFrame:
        """Return the dependence of each pair in synthetic rows, and for each column whether its space was found.

        Returns
        -------
        DataFrame indexed by ``column`` and ``with``; ``with`` is empty in a column's own row.

        - ``source``: "tables", "rows" or "none".
        - ``dependence``: total variation distance of the pair from independence in the model, from 0 to 1.
        - ``noise``: about the distance that noise makes of independent columns; above 1 it hides any dependence.
        - ``deviations``: standard deviations by which the pair's counts exceed independence (Pearson's χ²).
        - ``shows``: whether a column's space was found, or whether a pair's deviations are above 3.

        Many cells below their noise may be significant together, so that ``dependence`` may be below ``noise``. A
        column's own row has neither.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(4_000, columns=["sex", "education", "age"])
        >>> spaces = {"sex": ["F", "M"], "education": list(dpf.datasets.EDUCATION), "age": (0, 120)}
        >>> safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, spaces=spaces, key=bytes(32))
        >>> Estimates(safe).fidelity()["shows"].loc["education"].to_dict()
        {'': True, 'age': True}
        """
        return self._synthesizer.fidelity.copy()

    def _synthesizer_with_warnings(self) -> Synthesizer:
        """Return the synthesizer, after warnings of null columns and of pairs without visible dependence."""
        drawing = self._synthesizer
        drawing.warn_of_hidden()
        warn_of_nan(self.plan, drawing.not_found, "which synthetic rows leave null")
        pairs = drawing.fidelity.iloc[len(self.plan.names) :]
        # The fit of a wide table omits pairs without visible dependence: their noise is NaN.
        noise, hidden_pairs = pairs["noise"].dropna(), int((~pairs["shows"]).sum())
        if len(pairs) > 1 and hidden_pairs and (noise.empty or noise.median() > LOUD):
            fact = (
                "no two columns show dependence beyond noise, so that synthetic columns are practically independent"
                if hidden_pairs == len(pairs)
                else f"{hidden_pairs} of {len(pairs)} pairs of columns show no dependence beyond noise, and synthetic "
                "rows lack it; .dp.fidelity() lists them"
            )
            warn(f"{fact}; release again with a larger epsilon", InferenceWarning)
        return drawing

    @cached_property
    def _synthesizer(self) -> Synthesizer:
        set_columns = [c.name for c in self.plan.columns if c.space.holds_sets and c.name not in self._source.missing]
        supports = {name: self._set_sampler_inputs(name) for name in set_columns}
        return Synthesizer(self._source, self._joints.models, supports, self._joints.law, self._find_empty_bucket)

    def _set_sampler_inputs(self, column: str) -> sets.ItemLaw:
        """Return the distribution of a set column's items in rows, with measured sizes if there are some."""
        supports, sizes = np.clip(self._supports(column)[0], 0.0, 1.0), self._measured_sizes(column)
        return sets.ItemLaw(supports) if sizes is None else sizes.item_law(supports)


@partial(refusing_misfit_calls, _EXAMPLES)
@take_answer_options
class Estimates(Statistics):
    """Estimates from a sanitised table.

    Parameters
    ----------
    source
        A DataFrame, Arrow table or Parquet path (file, directory or glob) that dpframe released.
    plan
        The plan, for a table that has lost it.
    confidence_level
        Level of the intervals, in (0, 1).
    use_measured
        Combine the rows with the plan's noisy counts from private inference of spaces: in `value_counts`, `joint` of
        one column, `support` of values, `null_rate`, `histogram` and `quantile`. The counts are of the table that the
        plan was made from. By default they are used if the plan was made during the release; pass True if an earlier
        plan was made from the released table.
    clipped
        Give estimates of columns whose spaces private inference did not find (`Plan.not_found`), too: they are
        estimates of the column clipped to its space. By default they are NaN, and ``attrs["not_found"]`` of every
        result of such a column has the reason. A null rate depends on no bounds and no list of values: it is NaN only
        if the kind of a column's objects was not found.

    tables
        Noisy counts of the table, measured in addition to its rows (`MeasuredTable`), for a release without them. They
        are used like the release's own tables, unless ``use_measured`` is False.

    Raises
    ------
    NotSanitizedError
        If the source carries no plan and none is given.
    ParameterError
        If ``confidence_level`` is outside (0, 1).

    Notes
    -----
    Every statistic takes ``confidence_level`` and ``clipped``, in place of these of the class, and ``long=True``, which
    gives a tidy frame: columns of keys, then ``estimate, std_error, lower, upper``.

    Every statistic but `independence` takes ``target``: ``"table"`` is the statistic of the original table.
    ``"population"`` is the statistic of a population of which the table is a sample; its intervals are wider.

    If the release is a secret sample, the table is the full one. Counts, sums and sizes refer to all its ``rows``, of
    which ``n`` are in the release. Intervals include the sampling error (with the finite-population correction).

    Joints take ``method``: ``"inverse"`` is unbiased and may leave the simplex; its errors are analytic. ``"project"``
    (nearest point of the simplex), ``"em"`` (maximum likelihood) and ``"model"`` (maximum likelihood under a mixture
    fitted to all pairs of columns) are closer to the truth for many cells. Their intervals come from draws of the
    original table given the release's measured tables, or from a parametric bootstrap if there are only rows.
    ``"auto"`` chooses, and ``attrs["method"]`` has the chosen method.

    Each interval holds separately at the confidence level; ``confidence_level=1 - 0.05 / 300`` holds for 300 values
    together. Shares are clipped to [0, 1], so that unbiased shares need not add up to 1; unbiased counts are not
    clipped.

    If the release has measured tables, ``"inverse"`` is their raw count, weighted with the rows' by inverse variance.
    ``"project"`` is the nearest point of the simplex. ``"model"`` is a mixture fitted to all tables, corrected if the
    rows contradict it, and ``"em"`` uses only the rows. ``attrs["source"]`` is ``"tables"``, ``"rows"`` or ``"both"``.
    ``attrs["page"]`` names the section of the documentation on the method, its assumptions and its coverage.

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

    def __repr__(self) -> str:
        rows = f"{self.n:,}" if self.plan.sample is None else f"{self.n:,} of {self.rows:,}"
        return f"<Estimates of a release of {rows} rows: {', '.join(self.plan.names)}>"

    def verify(self) -> bool:
        """Return whether the rows are, cell by cell, those released, in any order; see also `dpframe.verify`.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).verify()
        True
        """
        return self._source.verify()


_has_warned_of_one_table = False


def _warn_of_one_table() -> None:
    """Warn once in a process: standard errors that software prints for one synthetic table are too small."""
    global _has_warned_of_one_table
    if not _has_warned_of_one_table:
        _has_warned_of_one_table = True
        warn(
            "standard errors that software prints of one synthetic table are too small; use regress or infer of "
            "the release",
            InferenceWarning,
        )


def synthetic_batches(estimates: Estimates, n_rows: int | None, random_state: Any, most: int) -> Iterator[Any]:
    """Yield synthetic rows of a released file as Arrow tables of at most so many rows; see `Estimates.synthesize`."""
    fresh, generator, source = check_rows(n_rows), make_generator(random_state), estimates._source
    drawing = estimates._synthesizer_with_warnings()
    if fresh is None:
        yield from source.drawn_batches(
            lambda codes: drawing.draw(_rows_of(codes), generator, codes), drawing.text, most, drawing.not_found
        )
        return
    for start in range(0, fresh, most):
        rows = min(most, fresh - start)
        yield source.drawn(drawing.draw(rows, generator), rows, drawing.text, drawing.not_found)


def _rows_of(codes: Codes) -> int:
    return len(next(iter(codes.values())))
