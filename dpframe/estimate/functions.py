"""Any function of the table: its value on draws of the original table, and what the draws say about its error.

The draws are multiple imputations of the original table (Raghunathan, Reiter and Rubin 2003; Räisä, Jälkö, Kaski and
Honkela 2023), so that Rubin's rules hold: with Ū the mean variance within a draw and B the variance between m draws, a
population's estimate has the variance Ū + (1 + 1/m)·B, and the table's own (1 + 1/m)·B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import ParameterError, name_list
from dpframe.estimate.drawn_tables import CodeLimits, draw_codes
from dpframe.estimate.posterior import TableDraws
from dpframe.estimate.results import Results
from dpframe.plan.rules import BoundRules
from dpframe.spaces.arrays import FloatArray
from dpframe.tables.released import Source

PROBE_ROWS = 1_000
"""Rows of random values on which a function shows which columns it reads (limit of time)."""

MOST_COLUMNS = 8
"""Columns of a draw above which a warning says that intervals cover less: draws of many pairs contradict each other
(tolerance)."""

WEAKNESS_ROWS = 10_000
"""Rows of a draw that show whether two numbers are nearly the same (limit of time)."""

STRONG_CORRELATION = 0.8
"""Correlation of two numbers from which on their separate effects are poorly known, and draws make it too small
(tolerance)."""

MOST_DEGREES = 1e9
"""Degrees of freedom that Student's law has at most: with more it is the normal law (tolerance)."""

FOLLOWS_SHARE = 0.98
"""Share of rows whose value another column gives away, from which on a column follows from the other (tolerance)."""


@dataclass(frozen=True, eq=False)
class FunctionValues:
    """Values of a function on draws: ``values`` has shape (draws, labels), ``within`` their variances by chance."""

    index: pd.Index[Any] | None
    values: FloatArray
    within: FloatArray | None = None

    def results(self, z: float, population: bool) -> Results:
        """Return estimates and intervals by Rubin's rules; NaN if fewer than half of the draws have a value.

        Where draws have few values, as medians of whole numbers do, the estimate is their median, and the interval
        reaches half a step from it at least.
        """
        from scipy.stats import norm, t  # imported late, as all of SciPy

        mean, error, degrees = self._combined(population)
        reach = t.ppf(norm.cdf(z), degrees) * error
        for place in np.flatnonzero(np.isfinite(mean)):
            values = self.values[np.isfinite(self.values[:, place]), place]
            atoms = np.unique(values)
            if 1 < len(atoms) <= len(values) / 4:
                mean[place] = np.median(values)
                reach[place] = max(reach[place], float(np.diff(atoms).min()) / 2)
        return Results(mean, error, mean - reach, mean + reach)

    def p_values(self, population: bool) -> FloatArray:
        """Return two-sided p-values of the values being 0, by Student's law."""
        from scipy.stats import t  # imported late, as all of SciPy

        mean, error, degrees = self._combined(population)
        return np.asarray(2 * t.sf(np.abs(mean) / np.maximum(error, 1e-300), degrees))

    def _combined(self, population: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return means, standard errors and degrees of freedom by Rubin's rules."""
        known = np.isfinite(self.values)
        number = known.sum(axis=0)
        some = np.maximum(number, 2)
        mean = np.where(known, self.values, 0.0).sum(axis=0) / some
        between = (1 + 1 / some) * (np.where(known, self.values - mean, 0.0) ** 2).sum(axis=0) / (some - 1)
        degrees, variance = some - 1.0, between
        if population and self.within is not None:
            variance = between + self.within
            shares = variance / np.where(between > 0, between, 1.0)
            degrees = np.where(between > 0, np.minimum(degrees * shares**2, MOST_DEGREES), MOST_DEGREES)
        unknown = number < max(len(self.values) / 2, 2)
        return np.where(unknown, np.nan, mean), np.where(unknown, np.nan, np.sqrt(variance)), degrees


def bootstrap_rows(table: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """Return as many rows of a table, drawn with replacement."""
    return table.take(generator.integers(0, len(table), len(table))).set_axis(table.index)


class DrawnTables:
    """The drawn tables of some columns, as DataFrames like the original."""

    def __init__(self, draws: TableDraws, source: Source, number: int, limits: Mapping[str, CodeLimits]) -> None:
        self.draws, self._source, self.number, self.limits = draws, source, number, limits
        bound = source.plan.bound_rules
        self._rules = BoundRules(tuple(rule for rule in bound.rules if {*rule.names} <= {*draws.names}), bound.spaces)
        self._null_columns = [one.column for one in source.plan.not_found if one.column in draws.names]

    def __iter__(self) -> Iterator[pd.DataFrame]:
        yield from (self.table(draw) for draw in range(self.number))

    def codes(self, draw: int, rows: int | None = None) -> dict[str, npt.NDArray[np.uint64]]:
        """Return the codes of one table's columns, of all rows or of fewer."""
        generator = self.draws.generator("table", draw)
        number = int(self.draws.rows) if rows is None else rows
        codes = draw_codes(self.draws, draw, number, self.limits, self._rules, generator)
        return {name: values.astype(np.uint64) for name, values in codes.items()}

    def frame(self, codes: Mapping[str, npt.NDArray[Any]], text: str | None = None) -> pd.DataFrame:
        """Return codes of some columns as a DataFrame like the original; columns that were not found are null."""
        frame = self._source.as_frame(codes, text)
        for name in self._null_columns:
            frame[name] = frame[name].where(np.zeros(len(frame), dtype=np.bool_))
        return frame

    def table(self, draw: int, text: str | None = None) -> pd.DataFrame:
        """Return one table."""
        return self.frame(self.codes(draw), text)

    def resampled(self, table: pd.DataFrame, draw: int) -> pd.DataFrame:
        """Return a bootstrap sample of a table: the chance that made the rows of the population."""
        return bootstrap_rows(table, self.draws.generator("bootstrap", draw))

    def weaknesses(self) -> dict[str, Any]:
        """Return what makes intervals of these columns cover less.

        Too many columns, columns that no table counts, or two that say nearly the same.
        """
        weaknesses: dict[str, Any] = {}
        if len(self.draws.names) > MOST_COLUMNS:
            weaknesses["many_columns"] = len(self.draws.names)
        tables = self.draws.model.tables
        several = [n for n, column in zip(self.draws.names, self.draws.columns, strict=True) if column.cells > 1]
        rows_only = [name for name in several if tables.source_of([name]) == "rows"]
        if rows_only:
            weaknesses["rows_only"] = rows_only
        if len(self.draws.names) > 1:
            table = self.frame(self.codes(0, min(int(self.draws.rows), WEAKNESS_ROWS)))
            numbers = [name for name in table if pd.api.types.is_numeric_dtype(table[name].dtype)]
            correlations = table[numbers].astype(float).corr().to_numpy()
            strong = np.argwhere(np.triu(np.abs(np.nan_to_num(correlations)) > STRONG_CORRELATION, 1))
            alike = [(str(numbers[a]), str(numbers[b])) for a, b in strong]
            for (a, b), counts in self.draws.pairs.items():
                joint = counts.mean(axis=0) / self.draws.rows
                for one, other, shares in ((a, b, joint), (b, a, joint.T)):
                    given_away, alone = shares.max(axis=1).sum(), shares.sum(axis=0).max()
                    pair = (self.draws.names[one], self.draws.names[other])
                    if given_away > FOLLOWS_SHARE > alone and {*pair} not in map(set, alike):
                        alike.append(pair)
            if alike:
                weaknesses["nearly_the_same"] = alike
        return weaknesses


def warning_of(weaknesses: dict[str, Any]) -> str | None:
    """Return one sentence about what makes intervals cover less, or None."""
    parts = []
    if "many_columns" in weaknesses:
        parts.append(f"draws of {weaknesses['many_columns']} columns at once contradict each other; name fewer columns")
    if "rows_only" in weaknesses:
        names = name_list(weaknesses["rows_only"])
        parts.append(f"only released rows count {names}, which say little of spreads; release measured tables, too")
    if "nearly_the_same" in weaknesses:
        pairs = ", ".join(f"{a!r} and {b!r}" for a, b in weaknesses["nearly_the_same"][:3])
        parts.append(f"{pairs} say nearly the same, so their separate effects are poorly known; leave one out")
    return "intervals may cover less than they say: " + "; ".join(parts) if parts else None


def columns_read(function: Callable[[pd.DataFrame], Any], table: pd.DataFrame) -> list[str]:
    """Return the columns without which a function of a table fails or has another value.

    >>> columns_read(lambda t: t["a"].mean(), pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    ['a']
    """
    whole = function(table.copy())
    columns = []
    for name in table.columns:
        try:
            part = function(table.drop(columns=name))
        except Exception:  # whatever the function raises without the column: it reads it
            columns.append(str(name))
        else:
            if not _is_same(whole, part):
                columns.append(str(name))
    return columns


def _is_same(one: Any, other: Any) -> bool:
    (labels, values), (more_labels, more_values) = (_labelled(result) for result in (one, other))
    same_labels = (labels is None) == (more_labels is None) and (labels is None or labels.equals(more_labels))
    return bool(same_labels and np.array_equal(values, more_values, equal_nan=True))


def _labelled(result: Any) -> tuple[pd.Index[Any] | None, FloatArray]:
    """Return a function's result as labels and numbers, or raise `ParameterError` for what holds no numbers."""
    result = getattr(result, "params", result)
    remedy = "f must return a number, a Series or an array of numbers, or an object with .params"
    if isinstance(result, pd.DataFrame):
        raise ParameterError(f"f returns a DataFrame; {remedy}: .stack() makes a Series of it")
    labels = None
    if isinstance(result, pd.Series):
        labels = result.index
        if isinstance(result.index, pd.RangeIndex):
            labels = pd.RangeIndex(len(result))
        elif not result.index.is_unique:
            raise ParameterError("f returns a Series whose labels repeat; group or sum it, so that each label is one")
    else:
        try:
            dimensions = np.ndim(result)
        except ValueError:  # lists of several lengths
            raise ParameterError(f"f returns {type(result).__name__} that holds no numbers; {remedy}") from None
        if dimensions > 1:
            raise ParameterError(f"f returns an array of {dimensions} dimensions; return one of one dimension")
        labels = pd.RangeIndex(len(result)) if dimensions else None
    return labels, _numbers(result, remedy)


def _numbers(result: Any, remedy: str) -> FloatArray:
    """Return a result's numbers, or raise `ParameterError`: texts, times, complex numbers and None are none."""
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


class Resampled(Protocol):
    """Tables of which bootstrap samples can be drawn."""

    def __iter__(self) -> Iterator[pd.DataFrame]: ...

    def resampled(self, table: pd.DataFrame, draw: int) -> pd.DataFrame:
        """Return as many rows of a table, drawn with replacement."""
        ...


def evaluate(function: Callable[[pd.DataFrame], Any], tables: Resampled, population: bool) -> FunctionValues:
    """Return a function's values on drawn tables, and for a population what chance adds.

    Objects with standard errors of their own, ``.bse``, say what chance adds; of others one bootstrap sample of each
    draw does.
    """
    found: list[tuple[pd.Index[Any] | None, FloatArray]] = []
    chance: list[FloatArray] = []
    for draw, table in enumerate(tables):
        result = function(table.copy())
        labels, values = _labelled(result)
        found.append((labels, values))
        if population:
            own = getattr(result, "bse", None)
            if own is not None and np.shape(own) == np.shape(values):
                chance.append(np.asarray(own, dtype=np.float64) ** 2)
            else:
                again = _labelled(function(tables.resampled(table, draw)))
                (moved,) = _aligned([again], labels)
                chance.append((moved - values) ** 2)
    index = _common_labels([labels for labels, _ in found])
    values = np.array(_aligned(found, index))
    within = None
    if population:
        spread = np.array(_aligned([(labels, own) for (labels, _), own in zip(found, chance, strict=True)], index))
        known = np.isfinite(spread)
        within = np.where(known, spread, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return FunctionValues(index, values, within)


def _common_labels(found: Sequence[pd.Index[Any] | None]) -> pd.Index[Any] | None:
    """Return the labels of all draws, in the order of the first that has each."""
    first = found[0]
    if any((labels is None) != (first is None) for labels in found):
        raise ParameterError("f returns a number on some draws of the table and several on others; return one of both")
    if first is None:
        return None
    if isinstance(first, pd.RangeIndex):
        if any(len(labels) != len(first) for labels in found if labels is not None):
            raise ParameterError(
                "f changes its length between draws of the table; return a Series with labels, which are matched"
            )
        return first
    common = first
    for labels in found:
        if labels is not None and not labels.equals(common):
            common = common.append(labels.difference(common, sort=False))
    return common


def _aligned(found: Iterable[tuple[pd.Index[Any] | None, FloatArray]], index: pd.Index[Any] | None) -> list[FloatArray]:
    """Return values in the order of common labels, NaN where a draw lacks one."""
    aligned = []
    for labels, values in found:
        same = index is None or labels is None or labels.equals(index)
        moved = values if same else pd.Series(values, labels).reindex(index).to_numpy(dtype=np.float64)
        aligned.append(np.asarray(moved, dtype=np.float64))
    return aligned
