"""Regressions on draws of the original table: statsmodels fits each draw, and Rubin's rules combine the fits.

A regression of a table of n rows may be fitted to r < n rows of each draw. The coefficients then have the variance of r
rows between draws, and the difference from the variance of n rows is subtracted.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import ParameterError, is_one_of
from dpframe.estimate.axes import ListedAxis
from dpframe.estimate.drawn_tables import CodeLimits
from dpframe.estimate.functions import DrawnTables, FunctionValues

MOST_FITTED_ROWS = 20_000
"""Largest number of rows of a draw to which a regression is fitted (limit of time)."""

COLLINEARITY = 1e-10
"""Smallest eigenvalue of the terms' cosines at which a fit counts as identified (tolerance)."""

FEWEST_LEVEL_ROWS = 2.0
"""Mean rows of a category over draws below which the category is left out (tolerance)."""

EXAMPLE = "visits ~ age + C(ward)"
"""A formula, as messages show it."""

FAMILIES = ("gaussian", "binomial", "poisson")


class Regression(pd.DataFrame):
    """Coefficients and errors as a DataFrame, printed below the formula, the family and the number of rows."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        # A slice or a sum of coefficients is no regression.
        return pd.DataFrame

    @property
    def heading(self) -> str:
        """The formula, the family, the rows and the target, in one line."""
        attrs = self.attrs
        return f"{attrs['formula']}  ({attrs['family']}, n = {attrs['n']:,}, target={attrs['target']!r})"

    def __repr__(self) -> str:
        return f"{self.heading}\n{pd.DataFrame(self).to_string(float_format=lambda value: f'{value:.4g}')}"

    def _repr_html_(self) -> str:
        body: Any = pd.DataFrame(self).to_html(float_format=lambda value: f"{value:.4g}")
        return f"<p>{self.heading}</p>{body}"


def import_patsy() -> ModuleType:
    """Return patsy, which reads formulas, or raise `ParameterError` if it or statsmodels is not installed."""
    try:
        for name in ("statsmodels.regression.linear_model", "statsmodels.genmod.generalized_linear_model"):
            importlib.import_module(name)
        return importlib.import_module("patsy")
    except ModuleNotFoundError:
        raise ParameterError("regress needs statsmodels; install it with pip install statsmodels") from None


def _first_line(error: Exception) -> str:
    """Return the first line of an error, or the name of its class if it has no text."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def formula_columns(formula: str, column_names: Collection[str]) -> list[str]:
    """Return the columns that a formula names, in order; other names must be functions that patsy knows.

    Raises
    ------
    ParameterError
        If patsy cannot read the formula, if it has no left side, or names no column.

    >>> formula_columns("visits ~ np.log(age) + C(ward)", ["age", "ward", "visits", "sex"])
    ['visits', 'age', 'ward']
    """
    patsy = import_patsy()
    try:
        description = patsy.ModelDesc.from_formula(formula)
        factors = [factor for term in (*description.lhs_termlist, *description.rhs_termlist) for factor in term.factors]
        trees = [ast.parse(factor.code, mode="eval") for factor in factors]
    except Exception as error:  # patsy and ast raise errors of many kinds
        raise ParameterError(f'formula cannot be read: {_first_line(error)}; write one like "{EXAMPLE}"') from None
    if len(description.lhs_termlist) != 1:
        raise ParameterError(f'formula must have one outcome; write one like "{EXAMPLE}"')
    functions = {*vars(patsy.builtins), *vars(builtins), "np", "center"}
    columns: list[str] = []
    for tree in trees:
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        # Q("a name with blanks") is patsy's quotation of a column's name.
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        quoted = [call.args[0] for call in calls if getattr(call.func, "id", "") == "Q" and call.args]
        names += [str(node.value) for node in quoted if isinstance(node, ast.Constant)]
        columns += [name for name in names if name in column_names or name not in functions]
    if not columns:
        raise ParameterError(f'formula names no column; write one like "{EXAMPLE}"')
    return list(dict.fromkeys(map(str, columns)))


@dataclass(frozen=True, eq=False)
class RegressionFits:
    """Fits of one formula to all draws: coefficients, numbers of used and left-out rows, and unidentified draws."""

    values: FunctionValues
    rows: int
    left_out: int
    outcome: str
    unidentified: int


def fit_draws(formula: str, family: str, weights: str | None, tables: DrawnTables) -> RegressionFits:
    """Fit a formula to every draw of the table."""
    patsy = import_patsy()
    if not is_one_of(family, FAMILIES):
        raise ParameterError(f"family must be one of {', '.join(map(repr, FAMILIES))}")
    draws = tables.draws
    table_rows = int(draws.rows)
    fitted_row_limit = min(table_rows, MOST_FITTED_ROWS)
    levels = {name: _find_levels(tables, name) for name in tables.names}
    coefficients: list[pd.Series[Any]] = []
    standard_errors: list[pd.Series[Any]] = []
    fitted_rows, unidentified, outcome_name = 0, 0, ""
    design: Sequence[Any] | None = None
    with warnings.catch_warnings():
        # A warning is about one draw; a fault of all draws shows in the errors.
        warnings.simplefilter("ignore")
        for draw in range(tables.table_count):
            table = _prepare_table(tables, draw, fitted_row_limit, levels)
            if weights is not None:
                table = table.dropna(subset=[weights])
            outcome, terms = _build_design(patsy, formula, table, levels, design)
            infos = [matrix.design_info for matrix in (outcome, terms)]
            states = [factor.state for info in infos for factor in info.factor_infos.values()]
            # center and bs depend on the rows, so that their design is computed for each draw.
            design = None if any(state.get("transforms", True) for state in states) else infos
            if outcome.shape[1] > 2:
                remedy = "take one of them, as in I(ward == 'a')"
                raise ParameterError(f"the outcome has {outcome.shape[1]} columns; {remedy}")
            if len(terms) <= terms.shape[1]:
                raise ParameterError(f"{len(terms)} rows are too few for {terms.shape[1]} terms; use a shorter formula")
            outcome_name = str(outcome.columns[-1])
            weight = None if weights is None else table.loc[terms.index, weights].to_numpy(dtype=np.float64)
            # A category without rows in this draw has no coefficient in it.
            present_terms = terms.loc[:, (terms.to_numpy() != 0).any(axis=0)]
            result = _fit(family, outcome.iloc[:, -1], present_terms, weight)
            coefficients.append(pd.Series(np.nan, terms.columns) if result is None else result.params)
            standard_errors.append(pd.Series(np.nan, terms.columns) if result is None else result.bse)
            fitted_rows += len(terms)
            unidentified += result is None
    index = pd.Index(list(dict.fromkeys(name for series in coefficients for name in series.index)))
    values = np.array([series.reindex(index) for series in coefficients])
    error_variances = np.array([series.reindex(index) for series in standard_errors]) ** 2
    is_known = np.isfinite(error_variances)
    within = np.where(is_known, error_variances, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    if fitted_row_limit < table_rows:
        # Draws of fewer rows have more sampling variance; the mean of the draws also has a part of it.
        row_share = fitted_row_limit / table_rows
        excess = (1 - row_share) * (1 - 1 / tables.table_count) * within
        is_identified = np.isfinite(values)
        identified_draws = np.maximum(is_identified.sum(axis=0), 2)
        mean = np.where(is_identified, values, 0.0).sum(axis=0) / identified_draws
        draw_variances = np.where(is_identified, (values - mean) ** 2, 0.0).sum(axis=0) / (identified_draws - 1)
        shrinkage = np.sqrt(np.clip(1 - excess / np.maximum(draw_variances, 1e-300), row_share, 1.0))
        values, within = mean + (values - mean) * shrinkage, within * row_share
    used_rows = round(table_rows * fitted_rows / (tables.table_count * fitted_row_limit))
    return RegressionFits(
        FunctionValues(index, values, within), used_rows, table_rows - used_rows, outcome_name, unidentified
    )


def _find_levels(tables: DrawnTables, name: str) -> pd.Index[Any] | None:
    """Return the listed values of a column that have rows in the draws, or None for numbers without a list.

    Categories are in the order of the original dtype, other text is in alphabetical order.
    """
    column = tables.column(name)
    if column.is_cut or not isinstance(column.axis, ListedAxis):
        return None
    rows = tables.mean_rows(name)
    rows[list(tables.limits.get(name, CodeLimits()).empty_cells)] = 0.0
    cells = np.flatnonzero(rows[: column.cells - column.axis.flag_codes] >= FEWEST_LEVEL_ROWS)
    values = column.axis.labels[cells]
    if not len(values):
        raise ParameterError(f"column {name!r} has no category with enough rows; leave it out")
    dtype: Any = tables.frame({name: np.zeros(0, dtype=np.uint64)})[name].dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return values[np.argsort(dtype.categories.get_indexer(values))]
    return values.sort_values() if column.axis.column.space.metric == "discrete" else values


def _prepare_table(
    tables: DrawnTables, draw: int, rows: int, levels: Mapping[str, pd.Index[Any] | None]
) -> pd.DataFrame:
    """Return a draw with times as days since 1970, and with categories that have rows in the draws."""
    codes = tables.codes(draw, rows)
    listed = {name: values for name, values in levels.items() if values is not None and not _is_number(values)}
    other_codes = {name: values for name, values in codes.items() if name not in listed}
    table = tables.frame(other_codes) if other_codes else pd.DataFrame()
    for name, column in table.items():
        outer_space = tables.column(str(name)).axis.column.space
        space = outer_space.inner_space
        # A special value is no amount: its row is left out, as the row of a null.
        column = column.mask(other_codes[str(name)] >= outer_space.values) if outer_space.special_labels else column
        if pd.api.types.is_bool_dtype(column.dtype):
            table[name] = column.astype(object if column.isna().any() else bool)
        elif space.is_time:
            table[name] = _to_days(column)
        elif space.is_numeric:
            table[name] = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    for name in listed:
        axis = tables.column(name).axis
        labels = axis.labels[: axis.cells - axis.flag_codes]
        cells = codes[name].astype(np.int64)
        # −1 is pandas' code of a missing category.
        cells[cells >= len(labels)] = -1
        table[name] = pd.Categorical.from_codes(cells, labels).set_categories(listed[name])
    return table


def _to_days(column: pd.Series[Any]) -> Any:
    """Return times as days since 1970, and durations as days."""
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return column.dt.total_seconds() / 86_400
    times = pd.to_datetime(column, utc=True).dt.tz_localize(None)
    return (times - pd.Timestamp(0)).dt.total_seconds() / 86_400


def _is_number(values: pd.Index[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_datetime64_any_dtype(values.dtype)


def _build_design(
    patsy: ModuleType, formula: str, table: pd.DataFrame, levels: Mapping[str, Any], design: Sequence[Any] | None
) -> Any:
    """Return patsy's matrices of both sides, by the design of another draw if it is given.

    Raises
    ------
    ParameterError
        With patsy's reason.
    """

    def categorical(data: Any, contrast: Any = None, levels_: Any = None) -> Any:
        """Return data as categories, which are equal in all draws."""
        # Also faster: C of patsy reads each row in Python.
        if contrast is None and levels_ is None and isinstance(data, pd.Series):
            if isinstance(data.dtype, pd.CategoricalDtype):
                return data
            listed = levels.get(str(data.name))
            return pd.Categorical(data, categories=np.sort(data.dropna().unique()) if listed is None else listed)
        return patsy.builtins.C(data, contrast, levels_)

    environment = patsy.EvalEnvironment([{"np": np, "C": categorical}])
    try:
        if design is not None:
            return patsy.build_design_matrices(design, table, return_type="dataframe")
        return patsy.dmatrices(formula, table, environment, return_type="dataframe")
    except Exception as error:  # a formula may call any function
        raise ParameterError(
            f"formula cannot be computed: {_first_line(error)}; check its functions and columns"
        ) from None


def _fit(family: str, outcome: Any, design: Any, weights: Any) -> Any:
    """Return statsmodels' fit of one draw; None if its rows do not identify the coefficients."""
    from statsmodels.genmod import families
    from statsmodels.genmod.generalized_linear_model import GLM
    from statsmodels.regression.linear_model import OLS, WLS

    lowest, highest = {"gaussian": (-np.inf, np.inf), "binomial": (0.0, 1.0), "poisson": (0.0, np.inf)}[family]
    if not outcome.between(lowest, highest).all():
        outcome_rule = "True or False, or from 0 to 1" if family == "binomial" else "0 or above"
        raise ParameterError(f"a {family} regression needs an outcome that is {outcome_rule}; choose another family")
    products = design.to_numpy().T @ design.to_numpy()
    lengths = np.sqrt(np.diag(products))
    # Cosines do not depend on the terms' units.
    cosines = products / np.maximum(np.outer(lengths, lengths), 1e-300)
    if np.linalg.eigvalsh(cosines)[0] < COLLINEARITY:
        return None
    try:
        if family == "gaussian":
            return (OLS(outcome, design) if weights is None else WLS(outcome, design, weights=weights)).fit()
        kind = {"binomial": families.Binomial, "poisson": families.Poisson}[family]()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = GLM(outcome, design, family=kind, var_weights=weights).fit()
    except Exception as error:  # of linear algebra, or of statsmodels' own checks
        raise ParameterError(f"the {family} fit fails: {_first_line(error)}; try another formula or family") from None
    # If terms separate the outcomes, the likelihood has no maximum.
    separated = any("separation" in str(warning.message).lower() for warning in caught)
    return result if result.converged and not separated else None
