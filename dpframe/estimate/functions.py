"""Any function of the table: its value on draws of the original table, and its error by these draws.

The draws are multiple imputations of the original table (Raghunathan, Reiter and Rubin 2003; Räisä, Jälkö, Kaski and
Honkela 2023), so that Rubin's rules hold. With Ū the mean variance within a draw and B the variance between m draws, an
estimate of the population has the variance Ū + (1 + 1/m)·B, and an estimate of the table (1 + 1/m)·B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, name_list, warn
from dpframe.estimate.drawn_tables import CodeLimits, draw_codes
from dpframe.estimate.groups import HIDDEN_SD
from dpframe.estimate.posterior import TableDraws
from dpframe.estimate.results import Results
from dpframe.estimate.table_column import TableColumn
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.plan.rules import BoundRules
from dpframe.release.reader import Source
from dpframe.spaces.arrays import FloatArray

PROBE_ROWS = 1_000
"""Rows of random values on which a function is called to find the columns that it reads (limit of time)."""

MAX_COVERED_COLUMNS = 8
"""Number of columns above which a warning says that intervals cover less, as draws of many pairs contradict each other
(tolerance)."""

WEAKNESS_ROWS = 10_000
"""Rows of a draw from which correlations of numbers are computed (limit of time)."""

STRONG_CORRELATION = 0.8
"""Correlation of two numbers above which their separate effects are poorly known, and draws underestimate it
(tolerance)."""

MOST_DEGREES = 1e9
"""Largest degrees of freedom of Student's law, at which it equals the normal law (tolerance)."""

FOLLOWS_SHARE = 0.98
"""Share of rows whose value another column determines, above which one column follows from the other (tolerance)."""


@dataclass(frozen=True, eq=False)
class FunctionValues:
    """Values of a function on draws, shape (draws, labels), and their mean variances within a draw, shape (labels,)."""

    index: pd.Index[Any] | None
    values: FloatArray
    within_variances: FloatArray | None = None

    def results(self, z: float, population: bool) -> Results:
        """Return estimates and intervals by Rubin's rules; NaN if fewer than half of the draws have a value.

        For draws of few distinct values, such as medians of whole numbers, the estimate is their median, and the
        interval is at least half a step wide on each side.
        """
        from scipy.stats import norm, t  # imported late, as all of SciPy

        means, errors, degrees = self._combine_draws(population)
        half_widths = t.ppf(norm.cdf(z), degrees) * errors
        for label in np.flatnonzero(np.isfinite(means)):
            values = self.values[np.isfinite(self.values[:, label]), label]
            atoms = np.unique(values)
            # The mean of few steps is no value of the function, and a normal interval would exclude whole steps.
            if 1 < len(atoms) <= len(values) / 4:
                means[label] = np.median(values)
                half_widths[label] = max(half_widths[label], float(np.diff(atoms).min()) / 2)
        return Results(means, errors, means - half_widths, means + half_widths)

    def p_values(self, population: bool) -> FloatArray:
        """Return two-sided p-values of the values being 0, by Student's law."""
        from scipy.stats import t  # imported late, as all of SciPy

        means, errors, degrees = self._combine_draws(population)
        return np.asarray(2 * t.sf(np.abs(means) / np.maximum(errors, 1e-300), degrees))

    def _combine_draws(self, population: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return means, standard errors and degrees of freedom by Rubin's rules."""
        # A draw without a value, such as a mean of no rows, is left out.
        is_known = np.isfinite(self.values)
        known_draws = is_known.sum(axis=0)
        divisors = np.maximum(known_draws, 2)
        means = np.where(is_known, self.values, 0.0).sum(axis=0) / divisors
        between_variances = (
            (1 + 1 / divisors) * (np.where(is_known, self.values - means, 0.0) ** 2).sum(axis=0) / (divisors - 1)
        )
        degrees, variances = divisors - 1.0, between_variances
        if population and self.within_variances is not None:
            variances = between_variances + self.within_variances
            shares = variances / np.where(between_variances > 0, between_variances, 1.0)
            degrees = np.where(between_variances > 0, np.minimum(degrees * shares**2, MOST_DEGREES), MOST_DEGREES)
        has_few_draws = known_draws < max(len(self.values) / 2, 2)
        return np.where(has_few_draws, np.nan, means), np.where(has_few_draws, np.nan, np.sqrt(variances)), degrees


def bootstrap_rows(table: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """Return a table of equal size, with rows drawn with replacement."""
    return table.take(generator.integers(0, len(table), len(table))).set_axis(table.index)


class DrawnTables:
    """Draws of the original table with some columns, as DataFrames with its dtypes."""

    def __init__(
        self,
        draws: TableDraws,
        source: Source,
        table_count: int,
        limits: Mapping[str, CodeLimits],
        names: Sequence[str],
    ) -> None:
        self.draws, self._source, self.table_count, self.limits = draws, source, table_count, limits
        self._indicators = [group for group in draws.model.tables.indicators if group.name in draws.names]
        self.names = list(names)
        bound_rules = source.plan.bound_rules
        self._rules = BoundRules(
            tuple(rule for rule in bound_rules.rules if {*rule.names} <= {*draws.names}), bound_rules.spaces
        )
        self._null_columns = [column.column for column in source.plan.not_found if column.column in draws.names]

    def __iter__(self) -> Iterator[pd.DataFrame]:
        yield from (self.table(draw) for draw in range(self.table_count))

    def column(self, name: str) -> TableColumn:
        """Return a column of the tables by its own cells."""
        if name in self.draws.names:
            return self.draws.columns[self.draws.names.index(name)]
        column = self.draws.model.tables.member(name)
        assert column is not None
        return column

    def mean_rows(self, name: str) -> FloatArray:
        """Return the mean number of rows over the draws by the cells of a column in the fit."""
        group = next((group for group in self._indicators if name in group.columns), None)
        position = self.draws.names.index(name if group is None else group.name)
        rows = self.draws.singles[position].mean(axis=0) * self.draws.rows
        return np.asarray(rows if group is None else group.onto([name]) @ rows)

    def codes(self, draw: int, rows: int | None = None) -> dict[str, npt.NDArray[np.uint64]]:
        """Return the codes of one table's columns; by default for all rows."""
        generator = self.draws.generator("table", draw)
        row_count = int(self.draws.rows) if rows is None else rows
        codes = draw_codes(self.draws, draw, row_count, self.limits, self._rules, generator)
        for group in self._indicators:
            split_codes = group.split(codes.pop(group.name))
            codes |= {name: split_codes[name] for name in group.columns if name in self.names}
        return {name: values.astype(np.uint64) for name, values in codes.items()}

    def frame(self, codes: Mapping[str, npt.NDArray[Any]], text: str | None = None) -> pd.DataFrame:
        """Return codes of some columns as a DataFrame with the original dtypes; columns without a space are null."""
        frame = self._source.as_frame(codes, text)
        for name in self._null_columns:
            frame[name] = frame[name].where(np.zeros(len(frame), dtype=np.bool_))
        return frame

    def table(self, draw: int, text: str | None = None) -> pd.DataFrame:
        """Return one table."""
        return self.frame(self.codes(draw), text)

    def resampled(self, table: pd.DataFrame, draw: int) -> pd.DataFrame:
        """Return a bootstrap sample of a table, which imitates a new sample of the population."""
        return bootstrap_rows(table, self.draws.generator("bootstrap", draw))

    def weaknesses(self) -> dict[str, Any]:
        """Return the reasons why intervals of these columns cover less.

        They are too many columns, columns that no table counts, nearly equal columns, or pairs of columns whose counts
        are mostly noise.
        """
        weaknesses: dict[str, Any] = {}
        if len(self.draws.names) > MAX_COVERED_COLUMNS:
            weaknesses["many_columns"] = len(self.draws.names)
        tables = self.draws.model.tables
        varied_columns = [n for n, column in zip(self.draws.names, self.draws.columns, strict=True) if column.cells > 1]
        rows_only = [name for name in varied_columns if tables.source_of([name]) == "rows"]
        if rows_only:
            weaknesses["rows_only"] = rows_only
        if len(self.draws.names) > 1:
            table = self.frame(self.codes(0, min(int(self.draws.rows), WEAKNESS_ROWS)))
            numbers = [name for name in table if pd.api.types.is_numeric_dtype(table[name].dtype)]
            correlations = table[numbers].astype(float).corr().to_numpy()
            # The upper triangle: each pair once, and no column with itself.
            strong_pairs = np.argwhere(np.triu(np.abs(np.nan_to_num(correlations)) > STRONG_CORRELATION, 1))
            similar_pairs = [(str(numbers[a]), str(numbers[b])) for a, b in strong_pairs]
            for (a, b), counts in self.draws.pairs.items():
                joint = counts.mean(axis=0) / self.draws.rows
                # A column follows from another if nearly all rows of each value there have one value here.
                for first, second, cell_shares in ((a, b, joint), (b, a, joint.T)):
                    determined_share, largest_share = cell_shares.max(axis=1).sum(), cell_shares.sum(axis=0).max()
                    pair = (self.draws.names[first], self.draws.names[second])
                    if determined_share > FOLLOWS_SHARE > largest_share and {*pair} not in map(set, similar_pairs):
                        similar_pairs.append(pair)
            # A column of presence follows from nulls: nobody can leave it out.
            together = None if self._source.info is None else self._source.info.together
            similar_pairs = [pair for pair in similar_pairs if together is None or together.presence not in pair]
            if similar_pairs:
                weaknesses["nearly_the_same"] = similar_pairs
            hidden_pairs = self._find_hidden_pairs()
            if hidden_pairs:
                weaknesses["hidden_pairs"] = hidden_pairs
        return weaknesses

    def _find_hidden_pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of measured columns whose dependence noise hides: draws take it to be weak.

        By the counts, a standard deviation of one column may move the other by `HIDDEN_SD` of its own, either way.
        """
        names, pairs = self.draws.names, []
        for pair, table in self.draws.evidence.pairs.items():
            error = self.draws.make_discrepancy(pair, table).correlation_error
            if NORMAL_QUANTILE * error > HIDDEN_SD and not {names[place] for place in pair} & {*self._null_columns}:
                pairs.append((names[pair[0]], names[pair[1]]))
        return pairs


def describe_weaknesses(weaknesses: dict[str, Any]) -> str | None:
    """Return a sentence on the reasons why intervals cover less, or None."""
    parts = []
    if "many_columns" in weaknesses:
        parts.append(f"draws of {weaknesses['many_columns']} columns at once contradict each other; name fewer columns")
    if "rows_only" in weaknesses:
        names = name_list(weaknesses["rows_only"])
        parts.append(f"only released rows count {names}, which say little of spreads; release measured tables, too")
    if "nearly_the_same" in weaknesses:
        pairs = ", ".join(f"{a!r} and {b!r}" for a, b in weaknesses["nearly_the_same"][:3])
        parts.append(f"{pairs} say nearly the same, so their separate effects are poorly known; leave one out")
    if "hidden_pairs" in weaknesses:
        pairs = ", ".join(f"{a!r} and {b!r}" for a, b in weaknesses["hidden_pairs"][:3])
        parts.append(f"noise hides how {pairs} depend; release fewer columns, or pass fewer pairs as measure=[…]")
    return "intervals may cover less than they say: " + "; ".join(parts) if parts else None


def find_columns_read(function: Callable[[pd.DataFrame], Any], table: pd.DataFrame) -> list[str]:
    """Return the columns without which a function of a table fails or has another value.

    >>> find_columns_read(lambda t: t["a"].mean(), pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    ['a']
    """
    full_result = function(table.copy())
    columns = []
    for name in table.columns:
        try:
            partial_result = function(table.drop(columns=name))
        # Whatever the function raises without the column: it reads the column.
        except Exception:
            columns.append(str(name))
        else:
            if not _has_equal_result(full_result, partial_result):
                columns.append(str(name))
    return columns


def _has_equal_result(first: Any, second: Any) -> bool:
    (labels, values), (second_labels, second_values) = (_split_labels(result) for result in (first, second))
    has_equal_labels = (labels is None) == (second_labels is None) and (labels is None or labels.equals(second_labels))
    return bool(has_equal_labels and np.array_equal(values, second_values, equal_nan=True))


def _split_labels(result: Any) -> tuple[pd.Index[Any] | None, FloatArray]:
    """Return the labels and numbers of a function's result, or raise `ParameterError` for other results."""
    # Fits of statsmodels have their coefficients there.
    result = getattr(result, "params", result)
    remedy = "f must return a number, a Series or an array of numbers, or an object with .params"
    if isinstance(result, pd.DataFrame):
        raise ParameterError(f"f returns a DataFrame; {remedy}: .stack() makes a Series of it")
    labels = None
    if isinstance(result, pd.Series):
        labels = result.index
        # Positions, which need no match between draws.
        if isinstance(result.index, pd.RangeIndex):
            labels = pd.RangeIndex(len(result))
        elif not result.index.is_unique:
            raise ParameterError("f returns a Series whose labels repeat; group or sum it, so that each label is one")
    else:
        try:
            dimensions = np.ndim(result)
        # Lists of several lengths have no dimensions.
        except ValueError:
            raise ParameterError(f"f returns {type(result).__name__} that holds no numbers; {remedy}") from None
        if dimensions > 1:
            raise ParameterError(f"f returns an array of {dimensions} dimensions; return one of one dimension")
        labels = pd.RangeIndex(len(result)) if dimensions else None
    return labels, _to_numbers(result, remedy)


def _to_numbers(result: Any, remedy: str) -> FloatArray:
    """Return the numbers of a result, or raise `ParameterError` for text, times, complex numbers and None."""
    try:
        if isinstance(result, pd.Series) and pd.api.types.is_extension_array_dtype(result.dtype):
            values = result.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = np.asarray(result)
            if values.dtype == object and all(isinstance(value, Real) for value in values.ravel()):
                values = values.astype(np.float64)
        if values.dtype.kind not in "biuf":
            raise TypeError
    except (TypeError, ValueError):
        raise ParameterError(f"f returns {type(result).__name__} that holds no numbers; {remedy}") from None
    return np.atleast_1d(values).astype(np.float64)


class Resamplable(Protocol):
    """Tables with a method that draws a bootstrap sample of one."""

    def __iter__(self) -> Iterator[pd.DataFrame]: ...

    def resampled(self, table: pd.DataFrame, draw: int) -> pd.DataFrame:
        """Return a table of equal size, with rows drawn with replacement."""
        ...


def evaluate(function: Callable[[pd.DataFrame], Any], tables: Resamplable, population: bool) -> FunctionValues:
    """Return a function's values on draws of the table, and for a population their variances within a draw.

    These variances are the squared standard errors of the result, ``.bse``. Results without them are computed again on
    one bootstrap sample of each draw.
    """
    results: list[tuple[pd.Index[Any] | None, FloatArray]] = []
    chance_variances: list[FloatArray] = []
    for draw, table in enumerate(tables):
        # A copy, as the function may change its table, which the bootstrap needs unchanged.
        result = function(table.copy())
        labels, values = _split_labels(result)
        results.append((labels, values))
        if population:
            standard_errors = getattr(result, "bse", None)
            if standard_errors is not None and np.shape(standard_errors) == np.shape(values):
                chance_variances.append(np.asarray(standard_errors, dtype=np.float64) ** 2)
            else:
                second_result = _split_labels(function(tables.resampled(table, draw)))
                (second_values,) = _align_values([second_result], labels)
                chance_variances.append((second_values - values) ** 2)
    index = _merge_labels([labels for labels, _ in results])
    if index is not None and index.empty:
        warn(
            "f returns no rows on any draw: a column that it groups by may be all null; declare spaces={…} for columns "
            "that were not found",
            InferenceWarning,
        )
    values = np.array(_align_values(results, index))
    within = None
    if population:
        variance_values = np.array(
            _align_values(
                [(labels, variances) for (labels, _), variances in zip(results, chance_variances, strict=True)], index
            )
        )
        is_known = np.isfinite(variance_values)
        within = np.where(is_known, variance_values, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    return FunctionValues(index, values, within)


def _merge_labels(label_sets: Sequence[pd.Index[Any] | None]) -> pd.Index[Any] | None:
    """Return the labels of all draws, in the order in which draws have them first."""
    first = label_sets[0]
    if any((labels is None) != (first is None) for labels in label_sets):
        raise ParameterError("f returns a number on some draws of the table and several on others; return one of both")
    if first is None:
        return None
    if isinstance(first, pd.RangeIndex):
        if any(len(labels) != len(first) for labels in label_sets if labels is not None):
            raise ParameterError(
                "f changes its length between draws of the table; return a Series with labels, which are matched"
            )
        return first
    all_labels = first
    for labels in label_sets:
        if labels is not None and not labels.equals(all_labels):
            all_labels = all_labels.append(labels.difference(all_labels, sort=False))
    return all_labels


def _align_values(
    results: Iterable[tuple[pd.Index[Any] | None, FloatArray]], index: pd.Index[Any] | None
) -> list[FloatArray]:
    """Return the values of each draw in the order of the merged labels; NaN for missing labels."""
    value_arrays = []
    for labels, values in results:
        is_aligned = index is None or labels is None or labels.equals(index)
        aligned_values = values if is_aligned else pd.Series(values, labels).reindex(index).to_numpy(dtype=np.float64)
        value_arrays.append(np.asarray(aligned_values, dtype=np.float64))
    return value_arrays
