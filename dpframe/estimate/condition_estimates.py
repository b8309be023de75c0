"""Estimates of how many rows meet conditions on several columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, check_flags, is_one_of, name_list, warn
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.condition_counts import ConditionCounts
from dpframe.estimate.conditions import ValueCondition, Where
from dpframe.estimate.not_found import nan_if_not_found
from dpframe.estimate.results import RESULTS, Results
from dpframe.estimate.set_estimates import SetEstimates
from dpframe.spaces.arrays import FloatArray


class ConditionEstimates(SetEstimates):
    """Counts and shares of rows that meet conditions."""

    @nan_if_not_found
    def count(
        self,
        where: Mapping[str, Any],
        normalize: bool = False,
        *,
        weights: str | None = None,
        method: str = "auto",
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return how many rows meet a condition on every column that is named.

        Parameters
        ----------
        where
            By column a value, a list of values, ``(low, high)`` with both ends in it (None for no end), None for null;
            of sets ``{"any": items}`` or ``{"all": items}``; ``{"not": …}`` of any of these, which no null and no
            special value meets.
        normalize
            Give the share of all rows instead of their number.
        weights
            See `value_counts`; conditions are then on values, not on items of sets.
        method
            ``"inverse"``: unbiased, from only the rows. ``"auto"``: the most precise, from measured tables and fits of
            these columns. A fit of a range to rows with geometric noise assumes a smooth distribution; see `histogram`.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; ``attrs["source"]`` is "rows", "tables" or "both". For a range
        beyond inferred bounds the estimate is 0, and the interval includes the rows that may lie there. For three or
        more conditions without a common measured table, ``attrs["allowed_by_pairs"]`` has the smallest and the largest
        count that pairs of the conditions allow: an interaction of all of them may lead to any count between.

        Raises
        ------
        ParameterError
            For a malformed condition, a column that is not randomised, or a value outside of its space, including a
            range wholly beyond declared bounds.

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
        conditions = Where.of(where, self._source.column, self._is_open)
        if weights is not None:
            return self._weigh_conditions(self._value_conditions(where), normalize, weights, method, target)
        results, attrs = ConditionCounts(self._joints).count(conditions, method, target == "population", self._z)
        of_items = conditions.of_items if method == "auto" else None
        if of_items is not None:
            labels = [of_items.sets.labels[place] for place in of_items.places]
            supports = self.support(
                of_items.column.name, items=labels, how=of_items.how, normalize=False, target=target
            )
            if supports["std_error"].iloc[0] < results.std_error[0]:
                results, attrs = Results(*supports[list(RESULTS)].to_numpy().T), {"source": supports.attrs["source"]}
        scale = max(self._all_rows, 1.0) if normalize else 1.0
        max_count = 1.0 if normalize else self._all_rows
        results = results.each(lambda values: values / scale)
        for condition in conditions.values.values():
            if condition.shared:
                # A step that an end of a range splits has rows on either side: each may be counted or not.
                codes = np.unique(np.array(condition.shared, dtype=np.int64))
                (rows, errors), is_met = self._count_rows_at(condition.column.name, codes), condition.holds(codes)
                self._warn_of_rows_at_ends(condition.column.name, rows, errors)
                over, under = float(rows @ is_met), float(rows @ (1 - is_met))
                results = results.opened(((over, 0.0), (under, 0.0)), self._z, 1 / scale)
        open_columns = {
            name: condition.beyond for name, condition in conditions.values.items() if any(condition.beyond)
        }
        for name, beyond in open_columns.items():
            if (tails := self._tails(name)) is not None:
                results = results.opened(tails.of_range(beyond), self._z, 1 / scale)
        if method == "auto":
            results = self._widen_if_hidden(results.from_none(), conditions, max_count)
        if method == "auto" or normalize:
            results = results.clipped(0.0, max_count)
        if "allowed_by_pairs" in attrs:
            attrs["allowed_by_pairs"] = tuple(end / scale for end in attrs["allowed_by_pairs"])
        return results.series("count", attrs | self._tail_attrs(open_columns))

    def _weigh_conditions(
        self, conditions: Mapping[str, ValueCondition], normalize: bool, weights: str, method: str, target: str
    ) -> pd.Series[Any]:
        """Return the sum of the weights of rows that meet conditions on values, or its share of all weights."""
        names = list(conditions)
        self._check_weights(weights, names, method)

        def weigh(codes: Mapping[str, Any], row_weights: FloatArray) -> FloatArray:
            met = [condition.holds(codes[name].astype(np.int64)) for name, condition in conditions.items()]
            total = float(row_weights.sum()) if normalize else 1.0
            return np.array([row_weights @ np.prod(met, axis=0) / max(total, 1e-300)])

        results, attrs = self._weigh_rows(weigh, names, weights, target)
        self._warn_of_tails([*names, weights], lambda tails: tails.matter)
        return results.within(0.0, 1.0 if normalize else np.inf).series("count", attrs)

    def _widen_if_hidden(self, results: Results, query: Where, max_count: float) -> Results:
        """Widen a count to all possible counts, and warn, if its standard error exceeds them."""
        if not results.std_error[0] > max_count > 0:
            return results
        warn(
            f"noise hides how many rows meet the conditions on {name_list(query.names)} together; count the rows of "
            "each condition by itself",
            InferenceWarning,
        )
        return replace(results.clipped(0.0, max_count), lower=np.zeros(1), upper=np.full(1, max_count))
