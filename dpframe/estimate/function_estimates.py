"""Any function of the table, regressions, and comparisons, with intervals from draws of the original table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, name_list, warn
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.base import column_names
from dpframe.estimate.functions import PROBE_ROWS, evaluate, find_columns_read
from dpframe.estimate.independence import measure_dependence
from dpframe.estimate.not_found import reasons
from dpframe.estimate.number_estimates import NumberEstimates
from dpframe.estimate.posterior import TABLE_DRAWS
from dpframe.estimate.regression import Regression, fit_draws, formula_columns
from dpframe.estimate.results import Results
from dpframe.estimate.vectors import largest_deviations


class FunctionEstimates(NumberEstimates):
    """Statistics that are computed on draws of the original table."""

    def infer(
        self,
        f: Callable[[pd.DataFrame], Any],
        columns: str | Sequence[str] | None = None,
        *,
        target: str = "table",
        draws: int = TABLE_DRAWS,
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return any function of the table, with intervals.

        ``f`` is called on draws of the original table, DataFrames with its column names, dtypes, nulls and number of
        rows. An exception in ``f`` reaches the caller unchanged.

        Parameters
        ----------
        f
            A function of a DataFrame that returns a number, a Series or an array of numbers, or an object with
            ``.params``, such as a fit of statsmodels. Labels of a Series are matched between draws.
        columns
            The columns that ``f`` reads. By default these are the columns without which ``f`` fails, or returns another
            result, on rows of random values.
        target
            See the class. For the population, ``f`` is called on one bootstrap sample of each draw, too, unless its
            result has standard errors, ``.bse``.
        draws
            Number of draws, from 2 to 40: the relative error of a standard error is about 1/√(2·draws).

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` for a number, and otherwise a DataFrame of these columns with the
        labels of the result. ``attrs["columns"]`` are the drawn columns, ``attrs["weak"]`` the reasons why intervals
        cover less. ``attrs["assumes"]`` lists the columns if there are three or more and no table counts them
        together: their interaction is assumed to be moderate. A value that fewer than half of the draws have is NaN.

        Raises
        ------
        ParameterError
            If ``f`` returns no numbers, or different numbers of results on the draws, or if ``columns`` has a column
            that cannot be drawn, such as sets and vectors.

        Notes
        -----
        Estimates are means of the draws, or medians for draws of few distinct values. Intervals are of Student's
        law by Rubin's rules for multiple imputations of a table (Raghunathan, Reiter and Rubin 2003). Interactions of
        three columns that no measured table holds are assumed to be moderate.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
        >>> safe = dpf.sanitize(frame, epsilon=4, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
        >>> found = dpf.Estimates(safe).infer(lambda t: t.groupby("sex", observed=True)["age"].median())
        >>> found["estimate"].to_dict(), found.columns.tolist()
        ({'F': 53.0, 'M': 52.0}, ['estimate', 'std_error', 'lower', 'upper'])
        """
        if not callable(f):
            raise ParameterError("f must be a function of a DataFrame; write e.g. lambda t: t['age'].median()")
        names = self._find_columns_of(f) if columns is None else column_names(columns, "columns")
        tables = self._prepare_draws(names, draws, target)
        values = evaluate(f, tables, target == "population")
        results = values.results(self._z, target == "population")
        attrs = self._describe_draws(tables, names)
        return results.series("infer", attrs) if values.index is None else results.frame(values.index, attrs)

    def regress(
        self,
        formula: str,
        family: str = "gaussian",
        weights: str | None = None,
        *,
        target: str = "population",
        draws: int = TABLE_DRAWS,
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return the coefficients of a regression, with intervals and p-values; statsmodels fits it.

        Parameters
        ----------
        formula
            As in R and statsmodels: ``"visits ~ age + C(ward) + age:C(sex)"``. Dates are numbers of days since 1970.
        family
            ``"gaussian"``, least squares; ``"binomial"``, a logistic regression, of an outcome that is True or False,
            0 or 1, or has two categories, the last of which counts as 1; or ``"poisson"``, of counts.
        weights
            A column of weights of rows, as in weighted least squares.
        target
            ``"population"``, as in statistical software: intervals include the sampling of the rows. ``"table"``: the
            coefficients of the original table itself.
        draws
            See `infer`.

        Returns
        -------
        DataFrame indexed by statsmodels' names of terms, with columns ``estimate, std_error, lower, upper, p_value``.
        ``attrs`` have the ``formula``, ``family``, ``target`` and ``outcome``, the number ``n`` of rows, those
        ``left_out`` for nulls, and the ``attrs`` of `infer`.

        Raises
        ------
        ParameterError
            If statsmodels is not installed (``pip install statsmodels``), for a formula that cannot be read, names
            no column or one that was not released, another family, or weights that are no column of numbers.

        Notes
        -----
        Each draw of the table is fitted, and Rubin's rules combine the fits (see `infer`). Categories of almost no rows
        are left out.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(4_000, columns=["age", "sex"])
        >>> safe = dpf.sanitize(frame, epsilon=4, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
        >>> dpf.Estimates(safe).regress("age ~ C(sex)")[["estimate"]].round()
                     estimate
        Intercept        51.0
        C(sex)[T.M]       0.0
        """
        if not isinstance(formula, str):
            raise ParameterError('formula must be text, such as "visits ~ age + C(ward)"')
        names = formula_columns(formula, [name for name in self.plan.names if name not in self._source.missing])
        if weights is not None:
            space = self._source.column(weights).space
            if not space.is_numeric or space.is_time:
                raise ParameterError(f"weights must be a column of numbers, which {weights!r} is not")
            if self._counts_rows(weights):
                raise ParameterError(f"weights={weights!r} are for counts, means and sums; leave them out of regress")
            names = list(dict.fromkeys([*names, weights]))
        unfound_columns = [name for name in names if name in reasons(self.plan.not_found)]
        if unfound_columns:
            raise ParameterError(
                f"private inference did not find {name_list(unfound_columns)}; leave it out, or declare its space"
            )
        tables = self._prepare_draws(names, draws, target)
        fits = fit_draws(formula, family, weights, tables)
        is_population = target == "population"
        results, p_values = fits.values.results(self._z, is_population), fits.values.p_values(is_population)
        attrs = self._describe_draws(tables, names)
        attrs |= {"formula": formula, "family": family, "target": target, "outcome": fits.outcome}
        attrs |= {"n": fits.rows, "left_out": fits.left_out}
        # Coefficients of the other draws would look better than the formula deserves.
        if fits.unidentified:
            attrs["weak"] = {**attrs.get("weak", {}), "unidentified_draws": fits.unidentified}
            warn(
                f"{fits.unidentified} of {draws} draws do not identify the coefficients: a category has no rows, or "
                "terms separate the outcomes; use fewer terms",
                InferenceWarning,
            )
        coefficients = Regression(results.frame(fits.values.index).assign(p_value=p_values))
        coefficients.attrs.update(attrs)
        return coefficients

    def compare(self, column: str, by: str, *, target: str = "table", **options: Unpack[AnswerOptions]) -> pd.DataFrame:
        """Return the differences between the means of all pairs of groups, with intervals that hold together.

        Parameters
        ----------
        column
            A randomised column of numbers.
        by
            A randomised column of listed values.
        target
            See the class.

        Returns
        -------
        DataFrame with ``estimate, std_error, lower, upper`` of the mean of one group less that of another, indexed by
        both: by ``by`` and ``minus``. All intervals hold at once at the confidence level; ``attrs`` are those of
        `mean`, and have the ``means`` of the groups.

        Raises
        ------
        ParameterError
            For columns that `mean` refuses, times, and fewer than two groups.

        Notes
        -----
        Intervals are of the largest of the differences in their standard errors (Tukey's method for dependent
        estimates). Draws of the table show the correlations between errors of groups.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(4_000, columns=["age", "sex"])
        >>> safe = dpf.sanitize(frame, epsilon=8, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
        >>> dpf.Estimates(safe).compare("age", by="sex").round(0)
                   estimate  std_error  lower  upper
        sex minus
        M   F           0.0        0.0   -0.0    0.0
        """
        if not isinstance(by, str):
            raise ParameterError("by must be one column's name")
        if self._source.column(column).space.is_time:
            raise ParameterError(f"column {column!r} holds times; mean({column!r}, by={by!r}) compares them")
        means = self.mean(column, by=by, target=target)
        if len(means) < 2:
            raise ParameterError(f"column {by!r} has one group; compare needs two")
        errors = means["std_error"].to_numpy(dtype=np.float64)
        # Errors of two means are correlated if noise moves rows between their groups.
        covariance = np.outer(errors, errors) * self._group_correlations(column, by, means.index)
        pairs = [(b, a) for a, b in combinations(range(len(means)), 2)]
        contrasts = np.zeros((len(pairs), len(means)))
        for place, (first, second) in enumerate(pairs):
            contrasts[place, first], contrasts[place, second] = 1.0, -1.0
        has_error = np.isfinite(errors)
        (largest,) = largest_deviations(
            contrasts[:, has_error], covariance[np.ix_(has_error, has_error)][None], self.confidence_level
        )
        estimates = contrasts @ np.nan_to_num(means["estimate"].to_numpy(dtype=np.float64))
        variance = np.einsum("pi,ij,pj->p", contrasts, np.nan_to_num(covariance), contrasts)
        lacks_error = (contrasts[:, ~has_error] != 0).any(axis=1)
        estimates, variance = (np.where(lacks_error, np.nan, values) for values in (estimates, variance))
        labels = [[means.index[first] for first, _ in pairs], [means.index[second] for _, second in pairs]]
        index = pd.MultiIndex.from_arrays(labels, names=[by, "minus"])
        attrs: dict[str, Any] = {str(name): value for name, value in means.attrs.items()}
        attrs["means"] = means["estimate"].to_dict()
        return Results.of(estimates, variance, largest).frame(index, attrs)

    def independence(self, one: str, other: str, **options: Unpack[AnswerOptions]) -> pd.Series[Any] | pd.DataFrame:
        """Return whether two columns depend: a p-value, and how strongly at least, as Cramér's V.

        Parameters
        ----------
        one, other
            Randomised columns of listed values or of numbers, which are taken in bins of about equal shares.

        Returns
        -------
        Series ``p_value, cramers_v, lower``: the p-value of independent columns in the population; an estimate of V,
        from 0 to 1, or NaN if only rows count the columns together; and the lower end of a one-sided interval of V at
        the confidence level. Report the lower end, as an estimate near 0 is mostly noise. Rows with a null are left
        out if tables count the columns. ``attrs["source"]`` is the source of the counts.

        Raises
        ------
        ParameterError
            For a column with itself, a column of sets or vectors, or two columns that were neither counted together nor
            released as rows.

        Notes
        -----
        The law of χ² is simulated with the noise of the counts (Gaboardi, Lim, Rogers and Vadhan 2016). Rare values are
        pooled, which lowers V.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(4_000, columns=["sex", "education", "age"])
        >>> spaces = {"sex": ["F", "M"], "education": list(dpf.datasets.EDUCATION), "age": (0, 120)}
        >>> safe = dpf.sanitize(frame, epsilon=4, spaces=spaces, key=bytes(32))
        >>> dpf.Estimates(safe).independence("education", "age").round(3).to_dict()
        {'p_value': 0.0, 'cramers_v': 0.169, 'lower': 0.151}
        """
        if one == other:
            raise ParameterError("a column depends on itself; name two columns")
        for name in (one, other):
            if self._source.column(name).space.code_words or self._joints.tables.member(name) is None:
                raise ParameterError(f"column {name!r} holds {self._source.column(name).space.noun}; see support")
        model = self._joints.models.around([one, other])
        positions = model.places([one, other])
        pair = (min(positions), max(positions))
        pair_evidence = (model.evidence.row_pairs | model.evidence.pairs).get(pair)
        if pair_evidence is None:
            raise ParameterError(
                f"columns {one!r} and {other!r} were not counted together; measure=['auto', ({one!r}, {other!r})] does"
            )
        joint, counts, variances, rows = (
            model.fit.joint(pair),
            pair_evidence.counts,
            pair_evidence.variances,
            float(self.rows),
        )
        for place, name in enumerate(model.names[at] for at in pair):
            to_own_cells = model.columns[name].to_own_cells
            joint, counts, variances = (to_own_cells(values, place) for values in (joint, counts, variances))
        if not pair_evidence.channels:
            # Rows with a special value or null in either column have no part in their dependence.
            values = tuple(
                slice(0, size - model.columns[name].axis.flag_codes)
                for size, name in zip(joint.shape, (model.names[place] for place in pair), strict=True)
            )
            rows = rows * float(joint[values].sum() / joint.sum())
            joint, counts, variances = joint[values], counts[values], variances[values]
        if pair_evidence.channels:
            # Randomised values of two columns depend only if the columns do, so that their χ² needs no noise of counts.
            rows = float(self.n)
            counts, variances = counts * (rows / max(float(counts.sum()), 1.0)), np.zeros(counts.shape)
            joint = np.einsum("ia,jb,ab->ij", *pair_evidence.channels, joint)
        dependence = measure_dependence(counts, variances, joint, rows, self.confidence_level, 0)
        result = pd.Series(asdict(dependence), name="independence")
        if pair_evidence.channels:
            # V of randomised values is lower.
            result["cramers_v"] = math.nan
        result.attrs["source"] = "rows" if pair_evidence.channels else "tables"
        return result

    def _group_correlations(self, column: str, by: str, index: pd.Index[Any]) -> Any:
        """Return the correlations between errors of groups' means, shape (groups, groups)."""
        # Without measured tables errors of groups count as independent.
        if not self._joints.tables or self._joints.tables.member(by) is None:
            return np.eye(len(index))
        draws, (axis,) = self._joints.posterior.conditioned([by, column]), self._axes([by], {})
        parts = draws.columns[draws.names.index(by)].axis.overlap_with(axis)
        means = draws.means({by: parts}, column).means[:, : len(axis.labels)]
        labels = axis.labels[: means.shape[1]]
        correlations = pd.DataFrame(np.nan_to_num(np.corrcoef(means.T)), labels, labels)
        correlation_matrix = correlations.reindex(index=index, columns=index).fillna(0.0).to_numpy(copy=True)
        np.fill_diagonal(correlation_matrix, 1.0)
        return correlation_matrix

    def _find_columns_of(self, f: Callable[[pd.DataFrame], Any]) -> list[str]:
        """Return the columns that a function reads, by calls on rows of random values."""
        # Random values instead of a draw: no fit of the release is needed.
        generator, codes = np.random.default_rng(0), {}
        for column in self.plan.columns:
            words = column.space.code_words
            if column.name not in self._source.missing:
                random = generator.integers(0, min(column.space.size, 2**62), PROBE_ROWS).astype(np.uint64)
                codes[column.name] = np.zeros((PROBE_ROWS, words), dtype=np.uint64) if words else random
        names = find_columns_read(f, self._source.as_frame(codes))
        if not names:
            raise ParameterError("f reads no column of the table; name what it reads with columns=[…]")
        return names
