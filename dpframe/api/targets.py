"""Accuracy first: the least ε at which the forecast error of every named statistic is met.

A plan's errors follow from its noise, which is public: so they are known without data, and the search costs nothing.
Measured tables are the cheap way to them. A table of noise σ costs μ² ∝ 1/σ², so that tables which all just meet their
targets cost the least together if each has the part of μ² that its target asks for, and no search is needed for that.
Without measured tables the columns' shares are moved towards the target that is farthest away, in turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from dpframe.accounting.budget import Budget, check_epsilon
from dpframe.accounting.gaussian_dp import SLACK_DELTA_SHARE, Step, promise_step, step_epsilon
from dpframe.errors import ParameterError, name_list, tuple_label
from dpframe.forecast.forecast import MAX_FORECAST_VALUES, Forecast
from dpframe.plan.indicators import measures_of_columns
from dpframe.plan.measuring import MIN_MEASURED_ROWS, Workload
from dpframe.plan.options import PlanOptions, check_names, checked, documented
from dpframe.plan.plan import Plan
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import of_persons
from dpframe.release.planning import CheckedRequest, Request, built, promise_of, wish_of
from dpframe.spaces import Space
from dpframe.tables.frames import wrap
from dpframe.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 10.0
"""An ε above which a promise says next to nothing: no target is worth it unless asked for."""

_EXAMPLE = 'e.g. target={"region": 0.01, ("sex", "income"): 0.02, "age": 0.5}'
_MAX_PLANS = 30
"""Plans that are tried at most."""
_LOG_RATIO_TOLERANCE = 3e-3
"""Part by which the worst forecast may stay below its target, or ε above the least."""
_LEAST_EPSILON = 1e-3
_STEEPEST_SLOPE, _FLATTEST_SLOPE = -4.0, -0.1
"""Slopes that a secant may have."""
_MAX_SHARE_ROUNDS = 4
"""Turns of moving shares and finding ε anew."""
_EPSILON_RATIO_TOLERANCE = 1.002


@dataclass(frozen=True)
class StatisticTarget:
    """One statistic and the standard error that it may have."""

    names: tuple[str, ...]
    statistic: str
    error: float

    @property
    def label(self) -> str:
        """The columns as one line."""
        return tuple_label(self.names)


@dataclass(frozen=True)
class TargetPlans:
    """Plans for one table and its targets, by ε and the shares of its columns."""

    valid: CheckedRequest
    targets: tuple[StatisticTarget, ...]
    most: float

    @classmethod
    def of(
        cls, table: Table, target: Any, max_epsilon: float | None, delta: float | None, options: PlanOptions
    ) -> TargetPlans:
        """Check a table, its options and its targets; ``max_epsilon`` is `LARGEST` by default.

        Raises `ParameterError` for a target of another type, one that names a column that is not randomised, or a joint
        of numbers or sets; for columns whose space is not known, for private inference has a budget of its own.
        """
        check_names(options)
        largest_epsilon = check_epsilon(LARGEST if max_epsilon is None else max_epsilon, "max_epsilon")
        # Only to be checked: without tables, which at so large an ε may leave a capped row nothing, and without δ, with
        # which calibration takes long, unless something asks for it.
        options_without_tables = PlanOptions(**{**options, "measure": None})
        request = Request(largest_epsilon, 0.0, None, options_without_tables, release=False)
        table = of_persons(table, request, ReleaseBudget(None).choice)
        try:
            checked_request = CheckedRequest.of(table, request, quiet=True)
        except ParameterError:
            # Some mechanisms need a δ: the check is repeated with one.
            checked_request = CheckedRequest.of(table, replace(request, delta=delta), quiet=True)
        if checked_request.plan is None:
            unknown_columns = [name for name in checked_request.names if name not in checked_request.spaces]
            raise ParameterError(
                f"target needs the spaces of all columns, also of {name_list(unknown_columns)}; declare "
                f"spaces={{{unknown_columns[0]!r}: …}}"
            )
        promise = promise_of(largest_epsilon, delta, table.n, quiet=True)
        wish = wish_of(checked(options) | {"n": table.n}, promise)
        if wish.is_default and table.n < MIN_MEASURED_ROWS:
            wish = Workload(None)
        if not isinstance(target, Mapping) or not target:
            raise ParameterError(f"target must be a mapping of columns to standard errors, {_EXAMPLE}")
        return cls(
            replace(checked_request, promise=promise, wish=wish),
            tuple(_parse_targets(target, checked_request.spaces)),
            largest_epsilon,
        )

    def plan_at(self, epsilon: float, shares: Mapping[str, float] | None = None) -> Plan:
        """Return the plan of an ε; tables are those that targets ask for, with noise in the targets' proportions."""
        options = dict(self.valid.options)
        if shares is not None:
            options["allocation"] = shares
        return built(self.valid.spaces, Budget(epsilon, self.valid.promise.delta), options, self._workload)

    @cached_property
    def _workload(self) -> Workload:
        """The tables that targets ask for, or none."""
        if self.valid.wish.measure is None:
            return self.valid.wish
        goals = {
            target.names: target.error
            for target in self.targets
            if math.prod(self.valid.spaces[name].size for name in target.names) > 1
        }
        return replace(self.valid.wish, measure=tuple(goals) or None, goals=goals, added=())

    @property
    def start(self) -> float:
        """The first ε of the search: at which tables alone meet the targets, by their noise, or 1."""
        if not self._workload.goals:
            return 1.0
        options = self.valid.options
        mu = self._workload.met_from(self.valid.spaces, options["n"], options["contributions"])
        return self._epsilon_at(math.log(mu)) if mu > 0 else 1.0

    @cached_property
    def _highest_epsilon(self) -> float:
        """The largest ε, about, that has a plan: at a larger one tables may leave a capped row nothing."""
        epsilon = self.most
        # Only a cap on a row's loss makes large ε impossible.
        while self.valid.options["local_epsilon"] is not None and epsilon > _LEAST_EPSILON:
            if self._try_plan(epsilon, None) is not None:
                break
            epsilon /= 1.2
        return epsilon

    def errors(self, plan: Plan) -> list[float]:
        """Return every target's forecast standard error."""
        assert plan.n is not None
        measures = tuple(measures_of_columns(plan.measures, plan.indicators, plan.spaces))
        forecast = Forecast(plan.columns, max(plan.n, 1), plan.groups, plan.sample, measures)
        return [forecast.std_error(target.statistic, target.names) for target in self.targets]

    def ratios(self, plan: Plan) -> list[float]:
        """Return every target's forecast error over its allowed error."""
        return [error / target.error for error, target in zip(self.errors(plan), self.targets, strict=True)]

    def worst(self, plan: Plan | None) -> float:
        """Return the largest ratio of forecast to allowed error."""
        return math.inf if plan is None else max(self.ratios(plan))

    def _try_plan(self, epsilon: float, shares: Mapping[str, float] | None) -> Plan | None:
        try:
            return self.plan_at(epsilon, shares)
        except ParameterError:  # too small for a column, or for tables
            return None

    def _log_strength(self, epsilon: float) -> float:
        """Return ln μ of an ε, or ln ε at δ = 0; errors are nearly proportional to 1/μ, or 1/ε."""
        delta = self.valid.promise.delta
        return math.log(promise_step(Budget(epsilon, delta)).mu if delta else epsilon)

    def least(self, shares: Mapping[str, float] | None = None, start: float | None = None) -> Plan | None:
        """Return the plan of the least ε that meets all targets, or None if no ε up to the largest does.

        Errors fall about as 1/μ, so that a step by the worst ratio lands near; from there secants, which never leave
        the bracket known.
        """
        lowest, highest = self._strengths
        lower, upper, previous = _Point(lowest, math.inf), _Point(highest, math.nan), _Point(math.nan, math.nan)
        epsilon = min(max(self.start if start is None else start, _LEAST_EPSILON), self._highest_epsilon)
        strength, best_plan = self._log_strength(epsilon), None
        for _ in range(_MAX_PLANS):
            plan = self._try_plan(epsilon, shares)
            ratio = self.worst(plan)
            point = _Point(strength, math.log(ratio) if ratio else -math.inf)
            if point.log_ratio <= 0:
                best_plan, upper = plan, point
                if point.log_ratio >= -_LOG_RATIO_TOLERANCE or strength <= lowest:
                    break
            elif strength >= highest:
                return None
            else:
                lower = point
            if upper.strength - lower.strength < _LOG_RATIO_TOLERANCE:
                break
            # At ratio 0 nothing is unknown at any ε.
            strength = lowest if point.log_ratio == -math.inf else _next_strength(point, previous, lower, upper)
            previous, epsilon = point, self._epsilon_at(strength)
        return best_plan

    @cached_property
    def _strengths(self) -> tuple[float, float]:
        """The strengths of the least and the largest ε."""
        return self._log_strength(_LEAST_EPSILON), self._log_strength(self._highest_epsilon)

    def _epsilon_at(self, strength: float) -> float:
        lowest, highest = self._strengths
        if not lowest < strength < highest:
            return _LEAST_EPSILON if strength <= lowest else self._highest_epsilon
        delta = self.valid.promise.delta
        epsilon = (
            step_epsilon(Step(math.exp(strength), SLACK_DELTA_SHARE * delta), delta) if delta else math.exp(strength)
        )
        return min(max(epsilon, _LEAST_EPSILON), self._highest_epsilon)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the least ε found.

        Raises `ParameterError` if no ε up to the most meets all targets: with the least error that each can have there.
        """
        best_plan, options = self.least(), self.valid.options
        has_even_shares = options.get("allocation", "uniform") == "uniform" and not options["groups"]
        if self.valid.wish.measure is None and has_even_shares:
            best_plan = self._move_shares(best_plan)
        if best_plan is None:
            raise ParameterError(self._unmet_targets_message())
        return best_plan

    def _move_shares(self, best_plan: Plan | None) -> Plan | None:
        """Move the columns' shares towards the targets that are farthest away, and find ε anew, in turns."""
        shares = dict.fromkeys(self.valid.spaces, 1 / len(self.valid.spaces))
        for _ in range(_MAX_SHARE_ROUNDS):
            plan = best_plan if best_plan is not None else self._try_plan(self.most, shares)
            if plan is None:
                return best_plan
            # A column without a target needs only a hundredth of the largest share.
            pull = dict.fromkeys(shares, 0.0)
            for ratio, target in zip(self.ratios(plan), self.targets, strict=True):
                pull |= {name: max(pull[name], ratio) for name in target.names}
            largest_pull = max(pull.values())
            new_shares = {
                name: max(share * max(pull[name] / largest_pull, 0.1), 1e-4) for name, share in shares.items()
            }
            total = math.fsum(new_shares.values())
            shares = {name: share / total for name, share in new_shares.items()}
            next_plan = self.least(shares, start=None if best_plan is None else best_plan.epsilon)
            if next_plan is None:
                continue
            if best_plan is not None and next_plan.epsilon * _EPSILON_RATIO_TOLERANCE > best_plan.epsilon:
                return min(next_plan, best_plan, key=lambda candidate: candidate.epsilon)
            best_plan = next_plan
        return best_plan

    def _unmet_targets_message(self) -> str:
        plan = self._try_plan(self._highest_epsilon, None)
        place_text = f"at epsilon={self._highest_epsilon:.3g}, the most that max_epsilon allows"
        if plan is None:
            return f"no plan of this table is possible {place_text}; raise max_epsilon"
        errors = self.errors(plan)
        missed_targets = [
            f"{target.label} {error:.3g} where {target.error:g} is asked"
            for target, error in zip(self.targets, errors, strict=True)
            if error > target.error
        ]
        return (
            f"the targets cannot be met: {place_text}, the forecast standard errors are {'; '.join(missed_targets)}; "
            "ask for "
            "larger errors or fewer statistics, or raise max_epsilon"
        )

    def table(self) -> pd.DataFrame:
        """Return a row per target: its error, the forecast, whether it binds, and ε for half the error."""
        import pandas as pd

        plan, rows = self.plan, []
        errors, worst_ratio = self.errors(plan), self.worst(plan)
        for i, (target, error) in enumerate(zip(self.targets, errors, strict=True)):
            # Each target is halved by itself: its price is the rise of ε.
            half = replace(target, error=target.error / 2)
            tighter = replace(self, targets=(*self.targets[:i], half, *self.targets[i + 1 :]))
            halved_plan = plan if tighter.worst(plan) <= 1 else tighter.least(start=plan.epsilon * 1.5)
            rows.append(
                {
                    "columns": target.label,
                    "statistic": target.statistic,
                    "target": target.error,
                    "std_error": error,
                    "binds": error / target.error > worst_ratio / 1.01,
                    "epsilon_if_halved": math.nan if halved_plan is None else halved_plan.epsilon,
                }
            )
        return pd.DataFrame(rows).set_index("columns")


class _Point(NamedTuple):
    """A plan's strength, ln μ or ln ε, and the logarithm of its worst ratio."""

    strength: float
    log_ratio: float


def _next_strength(new: _Point, previous: _Point, lower: _Point, upper: _Point) -> float:
    """Return the next strength to try: by a straight line through the last two points, else by a slope of −1."""
    if math.isfinite(new.log_ratio):
        rise, run = new.log_ratio - previous.log_ratio, new.strength - previous.strength
        # Bounded slopes keep a step finite between nearly equal points.
        has_slope = math.isfinite(rise) and abs(run) > 1e-6
        slope = min(max(rise / run, _STEEPEST_SLOPE), _FLATTEST_SLOPE) if has_slope else -1.0
        guess = new.strength + (-_LOG_RATIO_TOLERANCE / 2 - new.log_ratio) / slope
        if new.log_ratio > 0 and math.isnan(upper.log_ratio):
            return min(max(guess, lower.strength + _LOG_RATIO_TOLERANCE), upper.strength)
        if lower.strength + 1e-4 < guess < upper.strength - 1e-4:
            return guess
    return (lower.strength + upper.strength) / 2


def _parse_targets(target: Mapping[Any, Any], spaces: Mapping[str, Space]) -> Iterator[StatisticTarget]:
    target_sets: set[frozenset[str]] = set()
    for key, error in target.items():
        names = (key,) if isinstance(key, str) else key
        if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
            raise ParameterError(f"target must name columns, and tuples of them, {_EXAMPLE}")
        unknown_names = [name for name in names if name not in spaces]
        if unknown_names:
            raise ParameterError(
                f"target names {unknown_names[0]!r}, which is not a column to randomise; these are "
                f"{name_list(list(spaces))}"
            )
        if frozenset(names) in target_sets or len(set(names)) < len(names):
            raise ParameterError(f"target names {tuple_label(names)} twice; name it once")
        target_sets.add(frozenset(names))
        is_valid_error = (
            isinstance(error, int | float | np.number)
            and not isinstance(error, bool)
            and math.isfinite(error)
            and error > 0
        )
        if not is_valid_error:
            raise ParameterError(f"target of {tuple_label(names)} must be a standard error above 0")
        ordered_names = tuple(name for name in spaces if name in names)
        yield StatisticTarget(ordered_names, _target_statistic(names, spaces), float(error))


def _target_statistic(names: tuple[str, ...], spaces: Mapping[str, Space]) -> str:
    if len(names) == 1:
        space = spaces[names[0]]
        if space.holds_sets:
            return "support"
        if space.holds_vectors:
            return "mean curve"
        return "marginal" if space.is_listed or not space.is_numeric else "mean"
    if len(names) > 2:
        raise ParameterError(f"target of {tuple_label(names)}: joints of two columns have a forecast; name pairs")
    for name in names:
        if spaces[name].code_words or spaces[name].size > MAX_FORECAST_VALUES or not spaces[name].is_listed:
            raise ParameterError(
                f"target of {tuple_label(names)}: column {name!r} has no list of values, which targets of pairs "
                "need; name the column by itself"
            )
    return "joint"


def check_alone(epsilon: Any, target: Any, *account: Any) -> None:
    """Raise `ParameterError` unless targets were given without ε, δ, plan and account: targets decide ε for free."""
    if target is None:
        raise ParameterError(f"max_epsilon goes with target, {_EXAMPLE}; else give epsilon")
    if epsilon is not None:
        raise ParameterError("target finds epsilon; give one or the other (max_epsilon=… bounds what is found)")
    if any(argument is not None for argument in account):
        raise ParameterError("target costs nothing, as all spaces must be known; leave ledger and dataset out")


@documented
def price_targets(
    table: Any,
    target: Mapping[Any, float],
    max_epsilon: float | None = None,
    delta: float | None = None,
    **options: Unpack[PlanOptions],
) -> pd.DataFrame:
    """Return which of some targets binds, and the price of tightening each.

    Parameters
    ----------
    table, target, max_epsilon, delta
        As for `dpframe.plan`, which returns the plan.
    {options}

    Returns
    -------
    DataFrame with a row per target: ``statistic``, ``target``, the forecast ``std_error`` at the least ε that meets all
    of them, whether it ``binds`` there, and ``epsilon_if_halved``, the ε that half of it would ask for, NaN if none up
    to ``max_epsilon`` does. The ε found is in ``attrs["epsilon"]``.

    Raises
    ------
    ParameterError
        As `dpframe.plan`: also if the targets are out of reach, with the least errors to be had.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(20_000, columns=["sex", "region"])
    >>> spaces = {"sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
    >>> prices = price_targets(frame, {"sex": 0.01, ("sex", "region"): 0.01}, delta=0, spaces=spaces)
    >>> prices[["statistic", "binds"]].to_dict("index")
    {'sex': {'statistic': 'marginal', 'binds': False}, 'sex × region': {'statistic': 'joint', 'binds': True}}
    """
    plans = TargetPlans.of(wrap(table), target, max_epsilon, delta, options)
    prices = plans.table()
    prices.attrs["epsilon"] = plans.plan.epsilon
    return prices
