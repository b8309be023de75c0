"""Regressions on draws of the original table: statsmodels fits each, Rubin's rules combine them.

A regression of a table of n rows may be fitted to fewer rows of each draw: the coefficients of r rows differ between
draws by the variance of r rows in place of that of n, and the difference of both is taken off.
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
from dpframe.estimate.functions import DrawnTables, FunctionValues

MOST_FITTED_ROWS = 20_000
"""Rows of each draw that a regression is fitted to at most (limit of time)."""

COLLINEARITY = 1e-10
"""Least eigenvalue of the terms' cosines from which on a fit is identified (tolerance)."""

FEWEST_LEVEL_ROWS = 2.0
"""Rows of a category, on average over draws, from which on it has a coefficient: others are left out (tolerance)."""

EXAMPLE = "visits ~ age + C(ward)"
"""A formula, as messages show it."""

FAMILIES = ("gaussian", "binomial", "poisson")


class Regression(pd.DataFrame):
    """Coefficients with their errors, whose text begins with the formula, the family and the number of rows."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    @property
    def heading(self) -> str:
        """The formula, the family, the rows and the target, in one line."""
        said = self.attrs
        return f"{said['formula']}  ({said['family']}, n = {said['n']:,}, target={said['target']!r})"

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
        raise ParameterError("regress needs statsmodels; install it with pip install 'dpframe[stats]'") from None


def _reason(error: Exception) -> str:
    """Return the first line of an error, or its kind if it says nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def formula_columns(formula: str, known: Collection[str]) -> list[str]:
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
        described = patsy.ModelDesc.from_formula(formula)
        factors = [factor for term in (*described.lhs_termlist, *described.rhs_termlist) for factor in term.factors]
        trees = [ast.parse(factor.code, mode="eval") for factor in factors]
    except Exception as error:  # patsy and ast raise errors of many kinds
        raise ParameterError(f'formula cannot be read: {_reason(error)}; write one like "{EXAMPLE}"') from None
    if len(described.lhs_termlist) != 1:
        raise ParameterError(f'formula must have one outcome; write one like "{EXAMPLE}"')
    functions = {*vars(patsy.builtins), *vars(builtins), "np", "center"}
    columns: list[str] = []
    for tree in trees:
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        # Q("a name with blanks") quotes a column.
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        quoted = [call.args[0] for call in calls if getattr(call.func, "id", "") == "Q" and call.args]
        names += [str(node.value) for node in quoted if isinstance(node, ast.Constant)]
        columns += [name for name in names if name in known or name not in functions]
    if not columns:
        raise ParameterError(f'formula names no column; write one like "{EXAMPLE}"')
    return list(dict.fromkeys(map(str, columns)))


@dataclass(frozen=True, eq=False)
class RegressionFits:
    """Fits of one formula to drawn tables: coefficients, rows used and left out, and draws that identify no fit."""

    values: FunctionValues
    rows: int
    left_out: int
    outcome: str
    unidentified: int


def fit_draws(formula: str, family: str, weights: str | None, tables: DrawnTables) -> RegressionFits:
    """Fit a formula to every drawn table."""
    patsy = import_patsy()
    if not is_one_of(family, FAMILIES):
        raise ParameterError(f"family must be one of {', '.join(map(repr, FAMILIES))}")
    draws = tables.draws
    whole = int(draws.rows)
    rows = min(whole, MOST_FITTED_ROWS)
    levels = {name: _levels(tables, name) for name in draws.names}
    coefficients: list[pd.Series[Any]] = []
    standard_errors: list[pd.Series[Any]] = []
    fitted_rows, unidentified, outcome_name = 0, 0, ""
    design: Sequence[Any] | None = None
    with warnings.catch_warnings():
        # Warnings of a fit are of one draw; what all have in common shows in the errors.
        warnings.simplefilter("ignore")
        for draw in range(tables.number):
            table = _for_formulas(tables, draw, rows, levels)
            if weights is not None:
                table = table.dropna(subset=[weights])
            outcome, terms = _designed(patsy, formula, table, levels, design)
            infos = [matrix.design_info for matrix in (outcome, terms)]
            states = [factor.state for info in infos for factor in info.factor_infos.values()]
            # center and bs depend on the rows of each draw, and are computed anew.
            design = None if any(state.get("transforms", True) for state in states) else infos
            if outcome.shape[1] > 2:
                remedy = "take one of them, as in I(ward == 'a')"
                raise ParameterError(f"the outcome has {outcome.shape[1]} columns; {remedy}")
            if len(terms) <= terms.shape[1]:
                raise ParameterError(f"{len(terms)} rows are too few for {terms.shape[1]} terms; use a shorter formula")
            outcome_name = str(outcome.columns[-1])
            weight = None if weights is None else table.loc[terms.index, weights].to_numpy(dtype=np.float64)
            # A category without rows in this draw has no coefficient in it.
            present = terms.loc[:, (terms.to_numpy() != 0).any(axis=0)]
            result = _fitted(family, outcome.iloc[:, -1], present, weight)
            coefficients.append(pd.Series(np.nan, terms.columns) if result is None else result.params)
            standard_errors.append(pd.Series(np.nan, terms.columns) if result is None else result.bse)
            fitted_rows += len(terms)
            unidentified += result is None
    index = pd.Index(list(dict.fromkeys(name for one in coefficients for name in one.index)))
    values = np.array([one.reindex(index) for one in coefficients])
    own = np.array([one.reindex(index) for one in standard_errors]) ** 2
    known = np.isfinite(own)
    within = np.where(known, own, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    if rows < whole:
        # Draws of fewer rows differ by their own chance, too, of which their mean has some.
        part = rows / whole
        excess = (1 - part) * (1 - 1 / tables.number) * within
        identified = np.isfinite(values)
        number = np.maximum(identified.sum(axis=0), 2)
        mean = np.where(identified, values, 0.0).sum(axis=0) / number
        spread = np.where(identified, (values - mean) ** 2, 0.0).sum(axis=0) / (number - 1)
        kept_part = np.sqrt(np.clip(1 - excess / np.maximum(spread, 1e-300), part, 1.0))
        values, within = mean + (values - mean) * kept_part, within * part
    used = round(whole * fitted_rows / (tables.number * rows))
    return RegressionFits(FunctionValues(index, values, within), used, whole - used, outcome_name, unidentified)


def _levels(tables: DrawnTables, name: str) -> pd.Index[Any] | None:
    """Return the listed values of a column that have rows in the draws, in the order of its dtype.

    None for long numbers. Categories of the original dtype keep their order, other texts are in alphabetical order.
    """
    draws = tables.draws
    place = draws.names.index(name)
    column = draws.columns[place]
    if column.is_cut or not isinstance(column.axis, ListedAxis):
        return None
    rows = draws.singles[place].mean(axis=0) * draws.rows
    rows[list(tables.limits[name].empty_cells)] = 0.0
    cells = np.flatnonzero(rows[: column.cells - column.axis.has_null] >= FEWEST_LEVEL_ROWS)
    values = column.axis.labels[cells]
    if not len(values):
        raise ParameterError(f"column {name!r} has no category with enough rows; leave it out")
    dtype: Any = tables.frame({name: np.zeros(0, dtype=np.uint64)})[name].dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return values[np.argsort(dtype.categories.get_indexer(values))]
    return values.sort_values() if column.axis.column.space.metric == "discrete" else values


def _for_formulas(
    tables: DrawnTables, draw: int, rows: int, levels: Mapping[str, pd.Index[Any] | None]
) -> pd.DataFrame:
    """Return a drawn table whose instants are days since 1970, and whose categories are the values that draws have."""
    codes = tables.codes(draw, rows)
    listed = {name: values for name, values in levels.items() if values is not None and not _is_number(values)}
    long = {name: values for name, values in codes.items() if name not in listed}
    table = tables.frame(long) if long else pd.DataFrame()
    for name, column in table.items():
        space = tables.draws.columns[tables.draws.names.index(str(name))].axis.column.space.inner_space
        if pd.api.types.is_bool_dtype(column.dtype):
            table[name] = column.astype(object if column.isna().any() else bool)
        elif space.is_time:
            table[name] = _days(column)
        elif space.is_numeric:
            table[name] = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    for name in listed:
        axis = tables.draws.columns[tables.draws.names.index(name)].axis
        labels = axis.labels[: axis.cells - axis.has_null]
        cells = codes[name].astype(np.int64)
        cells[cells >= len(labels)] = -1
        table[name] = pd.Categorical.from_codes(cells, labels).set_categories(listed[name])
    return table


def _days(column: pd.Series[Any]) -> Any:
    """Return times as days since 1970, durations as days."""
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return column.dt.total_seconds() / 86_400
    times = pd.to_datetime(column, utc=True).dt.tz_localize(None)
    return (times - pd.Timestamp(0)).dt.total_seconds() / 86_400


def _is_number(values: pd.Index[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_datetime64_any_dtype(values.dtype)


def _designed(
    patsy: ModuleType, formula: str, table: pd.DataFrame, levels: Mapping[str, Any], design: Sequence[Any] | None
) -> Any:
    """Return patsy's matrices of both sides, by a design of another draw if there is one.

    Raises
    ------
    ParameterError
        With patsy's reason.
    """

    def categorical(data: Any, contrast: Any = None, levels_: Any = None) -> Any:
        """Return data as categories, all draws' the same; patsy's own ``C`` looks at each row."""
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
        raise ParameterError(f"formula cannot be computed: {_reason(error)}; check its functions and columns") from None


def _fitted(family: str, outcome: Any, design: Any, weights: Any) -> Any:
    """Return statsmodels' fit of one draw; None if its rows do not identify the coefficients, or none are finite."""
    from statsmodels.genmod import families
    from statsmodels.genmod.generalized_linear_model import GLM
    from statsmodels.regression.linear_model import OLS, WLS

    least, most = {"gaussian": (-np.inf, np.inf), "binomial": (0.0, 1.0), "poisson": (0.0, np.inf)}[family]
    if not outcome.between(least, most).all():
        needed = "True or False, or from 0 to 1" if family == "binomial" else "0 or above"
        raise ParameterError(f"a {family} regression needs an outcome that is {needed}; choose another family")
    products = design.to_numpy().T @ design.to_numpy()
    lengths = np.sqrt(np.diag(products))
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
        raise ParameterError(f"the {family} fit fails: {_reason(error)}; try another formula or family") from None
    # Where terms separate the outcomes, the likelihood rises for ever.
    separated = any("separation" in str(one.message).lower() for one in caught)
    return result if result.converged and not separated else None
