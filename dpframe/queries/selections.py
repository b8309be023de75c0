"""Questions that are answered by one of several candidates: private selection."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError
from dpframe.estimate.base import column_names
from dpframe.queries.base import Asking, Paid, check_mechanism, facts_of
from dpframe.queries.columns import QueryColumn
from dpframe.totals.answers import Portion
from dpframe.totals.counts import Codes
from dpframe.totals.selection import (
    MOST_CANDIDATES,
    SELECTORS,
    Scores,
    Selector,
    best_selector,
    check_base,
    whole_cost,
)

Utility = Callable[[pd.DataFrame, Any], Any]
"""How good a candidate is for a table's rows."""

_UNITS = 1 << 16
"""Units of a score in the sensitivity, to which scores are rounded down."""
_MOVED_UNITS = _UNITS + 2
"""Most units that one row moves a score by: one for the rounding of the utility's own floats, either way."""
_INFINITE_SHORTFALL_UNITS = 1 << 100
"""How far below the best a score counts that is not a finite number."""


@dataclass
class Gathered:
    """The rows of some columns, as values of their spaces."""

    columns: Sequence[QueryColumn]
    parts: list[dict[str, Codes]] = field(default_factory=list)

    def frame(self) -> pd.DataFrame:
        """Return the rows as a table: values beyond bounds are clamped, values outside the space are null."""
        return pd.DataFrame({column.name: self._column_series(column) for column in self.columns})

    def _column_series(self, column: QueryColumn) -> pd.Series[Any]:
        # Of no rows there is no batch.
        codes = [part[column.name] for part in self.parts] or [column.coded.code_array([])]
        array = pa.chunked_array([column.coded.decode(part) for part in codes])
        # One null row must not change the dtype, and with it the utility's result for all other rows.
        dtype_of = _dtype_with_null if column.may_be_null else None
        values: pd.Series[Any] = array.to_pandas(types_mapper=dtype_of, date_as_object=False)
        return values

    def made_up(self) -> pd.DataFrame:
        """Return rows that no table was read for: the first, last and special values, and null if it may be.

        A utility that fails at a null is refused by the last one, whether the table has a null or not.
        """
        rows, most_special = {}, max((len(column.space.special_labels) for column in self.columns), default=0)
        for column in self.columns:
            last_code = column.space.values - 1
            special = [last_code + 1 + i for i in range(len(column.space.special_labels))]
            special += [last_code] * (most_special - len(special))
            final_code = column.coded.size - 1 if column.may_be_null else last_code
            rows[column.name] = column.coded.code_array([0, last_code, *special, final_code])
        return replace(self, parts=[rows]).frame()


def _dtype_with_null(type_: pa.DataType) -> Any:
    """Return the dtype of whole numbers and truth values that holds null as well; None for others, which all do."""
    if pa.types.is_boolean(type_):
        return pd.BooleanDtype()
    if pa.types.is_integer(type_):
        return pd.UInt64Dtype() if pa.types.is_uint64(type_) else pd.Int64Dtype()
    return None


class Selections(Asking):
    """Private selection; see `Queries`."""

    def select(
        self,
        candidates: Sequence[Any],
        utility: Utility,
        *,
        sensitivity: float,
        share: float,
        columns: Sequence[str] | None = None,
        base: Sequence[float] | None = None,
        monotone: bool = False,
        balanced: bool = False,
        mechanism: str | None = None,
    ) -> pd.Series[Any]:
        """Return one of several candidates, a better one with a higher probability.

        The exponential mechanism of a query (Holohan, Leith and Mason, "Differentially private response mechanisms on
        categorical data", Definition 2; McSherry and Talwar 2007): P(r) ∝ base(r)·e^(k·utility), with the largest k
        that the share pays for. Its loss is k·R, where R is the most by which one row moves the utilities of two
        candidates apart: twice the sensitivity, or the sensitivity where ``monotone``; k times the sensitivity where
        ``balanced`` (Theorem 4 there). In Gaussian accounting k is twice that of a pure ε (Dong, Durfee and Rogers
        2020). ``"noisy_max"`` is report-noisy-max with exponential noise (McKenna and Sheldon 2020, permute-and-flip),
        whose loss is k·R as well and whose utility is at least as good on average at the same k.

        Both are drawn exactly, in whole numbers: utilities are rounded down to 2⁻¹⁶ of the sensitivity.

        Parameters
        ----------
        candidates
            The candidates, 65,536 at most; public.
        utility
            Function of the rows (a DataFrame of ``columns``, whose values lie in their spaces; what a space cannot hold
            is null) and of one candidate, which returns a number. Columns that may be null have the dtypes ``Int64``
            and ``boolean``, with or without a null. It is tried on three made-up rows first, the last of them of nulls,
            and on no rows where rows are added or removed. A value that is not finite counts as far below all others;
            an exception after that has spent the share.
        sensitivity
            The most by which one replaced row moves the utility of a candidate. It is taken on trust: the answer is
            private only if that is right.
        share
            See the class.
        columns
            Columns that the utility reads; those with declared spaces by default.
        base
            Weights of the candidates (the base measure); equal ones by default. For the exponential mechanism.
        monotone
            One row moves the utilities of all candidates in one direction, or none.
        balanced
            Σ base·e^(k·utility) is the same for neighbouring tables at every k, as where the utility depends on whether
            a candidate is the exact answer.
        mechanism
            ``"exponential"`` or ``"noisy_max"``; by default the one that errs less.

        Returns
        -------
        Series with ``choice``, and ``shortfall``: with the confidence level, the utility of the choice is at most so
        far below that of the best candidate.

        Raises
        ------
        ParameterError
            For no candidates or too many, a sensitivity or weights that are not positive, an unknown mechanism, or a
            utility that returns no finite number for made-up rows, or for none where rows are added or removed.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        The price of highest revenue, where nobody pays more than 10:

        >>> import dpframe as dpf
        >>> bids = pd.DataFrame({"bid": [2.0, 3.0, 7.5, 7.5, 8.0] * 2_000})
        >>> q = dpf.Queries(bids, 1.0, delta=0, spaces={"bid": (0.0, 10.0)})
        >>> def revenue(rows, price):
        ...     return price * (rows["bid"] >= price).sum()
        >>> answer = q.select([2, 3, 5, 7, 9], revenue, sensitivity=10, share=0.5)
        >>> answer["choice"], answer.attrs["mechanism"], float(answer["shortfall"].round(1))
        (7, 'noisy_max', 184.2)
        """
        options = _check_candidates(candidates)
        if not callable(utility):
            raise ParameterError(
                "utility must be a function of rows and a candidate, e.g. lambda rows, sex: (rows['sex'] == sex).sum()"
            )
        unit = _check_sensitivity(sensitivity) / _UNITS
        weights = None if base is None else check_base(base, len(options))
        if not isinstance(monotone, bool) or not isinstance(balanced, bool):
            raise ParameterError("monotone and balanced must be True or False")
        names = list(self._declared) if columns is None else column_names(columns, "columns")
        if not names:
            raise ParameterError("columns must name at least one column, which the utility reads, e.g. columns=['age']")
        rows = Gathered([self._column(name) for name in names])
        # If rows are added or removed a table may be empty, and a failure of the utility would reveal that.
        for tried_rows in [rows.made_up(), *([rows.frame()] if self.unit.added else [])]:
            _check_utility(utility, tried_rows, options, unit)
        score_units = _MOVED_UNITS if monotone else 2 * _MOVED_UNITS
        score_bounds = Scores(((1, score_units),), self.unit.rows, balanced and not monotone)
        fit_selector = _selector_fitter(score_bounds, mechanism, weights is not None)
        best_fit = max(map(fit_selector, self._allowed_portions(share)), key=lambda candidate: candidate[1].rate)

        def draw_choice(receipt: Paid[tuple[str, Selector, Budget]]) -> pd.Series[Any]:
            name, selector, budget = receipt.fitted
            # Only after the spend: whether the caller's function fails may depend on a single row.
            utilities = _scores_in_units(utility, rows.frame(), options, unit)
            # A utility that is not finite counts as far below all others, with no probability to speak of.
            floor = max((score for score in utilities if score is not None), default=0) - _INFINITE_SHORTFALL_UNITS
            scores = [floor if score is None else score for score in utilities]
            choice = options[selector.choose(scores, weights, receipt.stream.column("select", "measure"))]
            total_weight = float(len(options)) if weights is None else sum(weights) / min(weights)
            # One unit more, as scores are rounded down.
            shortfall = (selector.shortfall(total_weight, self.confidence_level) + 1) * float(unit)
            result = pd.Series(
                [choice, np.float64(shortfall)], index=["choice", "shortfall"], name="select", dtype=object
            )
            result.attrs.update(facts_of(name, receipt.share, budget, self.unit))
            return result

        return self._run_answer_job(rows.parts.append, rows.columns, share, "select", best_fit, draw_choice)


def _selector_fitter(
    score_bounds: Scores, mechanism: str | None, has_weights: bool
) -> Callable[[Portion], tuple[str, Selector, Budget]]:
    check_mechanism(mechanism, SELECTORS)
    if has_weights and mechanism == "noisy_max":
        raise ParameterError('noisy_max takes no base weights; leave base out, or take mechanism="exponential"')

    def fit_portion(portion: Portion) -> tuple[str, Selector, Budget]:
        name = mechanism or best_selector(score_bounds, portion, has_weights)
        selector = SELECTORS[name](score_bounds, portion)
        return name, selector, whole_cost([selector], portion)

    return fit_portion


def _check_sensitivity(value: Any) -> Fraction:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    number = float(value) if is_real else math.nan
    if not 0 < number < math.inf:
        raise ParameterError(
            "sensitivity must be finite and above 0: the most by which one row moves a utility, e.g. sensitivity=1"
        )
    return Fraction(number)


def _check_candidates(candidates: Any) -> list[Any]:
    is_collection = isinstance(candidates, Iterable) and not isinstance(candidates, str | bytes | Mapping)
    options = list(candidates) if is_collection else []
    if not 0 < len(options) <= MOST_CANDIDATES:
        raise ParameterError(
            f"candidates must be from 1 to {MOST_CANDIDATES} values to choose from, in a list, e.g. [10, 20, 30]"
        )
    return options


def _check_utility(utility: Utility, rows: pd.DataFrame, candidates: Sequence[Any], unit: Fraction) -> None:
    """Raise `ParameterError` unless a utility has a finite number for rows that are made up."""
    try:
        scores = _scores_in_units(utility, rows, candidates, unit)
    except Exception as error:  # the caller's own function may raise anything; no row of the table is in it
        raise ParameterError(
            f"utility fails for {len(rows)} made-up rows: {type(error).__name__}: {' '.join(str(error).split())}; it "
            f"is called as utility(rows, candidate), where rows has the columns {', '.join(rows.columns)}, and nulls "
            "where these may be null"
        ) from error
    if None in scores:
        raise ParameterError(
            "utility must return a finite number for every candidate and any rows within the spaces, also for no rows"
        )


def _scores_in_units(
    utility: Utility, rows: pd.DataFrame, candidates: Sequence[Any], unit: Fraction
) -> list[int | None]:
    """Return utilities in units, rounded down, or None for a utility that is not finite."""
    return [_score_in_units(utility(rows, candidate), unit) for candidate in candidates]


def _score_in_units(score: Any, unit: Fraction) -> int | None:
    # A float would round whole numbers above 2⁵³.
    if isinstance(score, numbers.Integral):
        return math.floor(int(score) / unit)
    try:
        number = float(score)
    except (TypeError, ValueError, OverflowError):
        return None
    return math.floor(Fraction(number) / unit) if math.isfinite(number) else None
