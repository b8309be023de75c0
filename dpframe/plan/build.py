"""From spaces and a budget to a plan: calibrated columns and groups."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dpframe.accounting import ColumnLoss
from dpframe.accounting.budget import Budget, check_delta, check_epsilon, fewer_digits_down, shares_of
from dpframe.accounting.dominating import factors
from dpframe.accounting.gaussian_dp import Step
from dpframe.channels import GammaDiagonal, Mechanism, family_for, mechanism_for
from dpframe.channels.gamma_diagonal import LARGEST_PRODUCT
from dpframe.errors import DpframeWarning, ParameterError, is_one_of, name_list, tuple_label, warn
from dpframe.inference.inferred import Inferred
from dpframe.plan.calibration import AccountingContext, Maker, calibrate, slacks_of
from dpframe.plan.columns import (
    RIVALS,
    Column,
    Group,
    Randomised,
    check_noise,
    errs_more,
    is_clearly_better,
    parted,
    promising_rival,
    stand_in,
)
from dpframe.plan.indicators import indicators_of
from dpframe.plan.measures import Measure, check_measures, measures_step
from dpframe.plan.plan import Plan
from dpframe.plan.rules import as_rules
from dpframe.plan.sample_size import best_size
from dpframe.plan.steps import terms_of
from dpframe.spaces import Product, Space, as_space
from dpframe.spaces.arrays import FloatArray

_EPSILON_LOG2_STEPS = np.linspace(-3.0, 3.0, 9)
"""Powers of two about the uniform share at which a column's error is computed (tolerance)."""


_SHARE_LOG_STEP = 1 / 64
"""Grid of a share's logarithm (tolerance)."""

_MOST_LAWS = 200
"""Most laws that bound a column of many bits (limit of time)."""


def shares_by_error(
    makers: Sequence[Maker], weights: Sequence[int], ready: Sequence[Randomised], terms: AccountingContext
) -> list[float]:
    """Return the shares of least total normalised error: expected error by diameter, a group's once for each column.

    Errors and costs are interpolated on logarithms, at nine budgets about the uniform one. The shares are only a
    direction; the accountant decides the size.
    """
    from scipy.optimize import minimize

    weight_sum = sum(weights)
    uniform = [weight / weight_sum for weight in weights]
    if len(makers) < 2:
        return uniform
    equal = calibrate(makers, uniform, ready, terms)
    # Logarithms keep every ε of the search positive.
    start: Any = np.log([unit.mechanism.epsilon for unit in equal])
    curves = [_ErrorCurve(make, centre) for make, centre in zip(makers, start, strict=True)]
    factor = np.asarray(weights, dtype=np.float64)

    def error(x: Any) -> float:
        return float(factor @ [curve.error(v) for curve, v in zip(curves, x, strict=True)])

    def cost(x: Any) -> float:
        return _log_cost([curve.column_loss(v) for curve, v in zip(curves, x, strict=True)], terms)

    # Every direction must cost as much as the uniform shares.
    uniform_cost = cost(start)
    search: Any = minimize  # its stubs know no SLSQP with one constraint
    optimum = search(
        error,
        start,
        method="SLSQP",
        bounds=[(x + math.log(2) * _EPSILON_LOG2_STEPS[0], x + math.log(2) * _EPSILON_LOG2_STEPS[-1]) for x in start],
        constraints={"type": "ineq", "fun": lambda x: uniform_cost - cost(x)},
        options={"maxiter": 200, "ftol": 1e-9},
    )
    # The solver may end at a worse point if its line search fails.
    better = optimum.x if optimum.success and optimum.fun < error(start) else start
    # The search ends a little elsewhere on another machine, and the optimum is flat.
    factors = [math.exp(round(float(x) / _SHARE_LOG_STEP) * _SHARE_LOG_STEP) for x in better - start]
    epsilons = [unit.mechanism.epsilon * factor for unit, factor in zip(equal, factors, strict=True)]
    shares = [fewer_digits_down(epsilon / math.fsum(epsilons)) for epsilon in epsilons]
    # The cost above approximates the accountant's, and small gains may be its error.
    return (
        shares
        if _total_error(calibrate(makers, shares, ready, terms), factor) < _total_error(equal, factor)
        else uniform
    )


def _total_error(units: Sequence[Randomised], factor: FloatArray) -> float:
    """Return the total normalised error of units, weighted by their factors."""
    return float(factor @ [unit.expected_error / (unit.space.diameter or 1.0) for unit in units])


class _ErrorCurve:
    """Normalised error and blanket of a column, as functions of ln ε."""

    def __init__(self, make: Maker, centre: float) -> None:
        self._x = centre + math.log(2) * _EPSILON_LOG2_STEPS
        units = [make(float(epsilon), 0.0) for epsilon in np.exp(self._x)]
        self._error = np.log([max(unit.expected_error, 1e-300) / (unit.space.diameter or 1.0) for unit in units])
        self._kind = units[0].column_loss
        self._blanket = np.log([max(unit.column_loss.blanket, 1e-300) for unit in units])

    def error(self, x: float) -> float:
        """Return the normalised error at ln ε."""
        return math.exp(float(np.interp(x, self._x, self._error)))

    def column_loss(self, x: float) -> ColumnLoss:
        """Return the column loss at ln ε."""
        return self._kind.at(math.exp(x), min(1.0, math.exp(float(np.interp(x, self._x, self._blanket)))))


def _log_cost(parts: Sequence[ColumnLoss], terms: AccountingContext) -> float:
    """Return the logarithm of a row's cost, up to a constant."""
    losses = np.array([part.epsilon for part in parts])
    if terms.shuffled_rows is None:
        if terms.sampled_budget.delta == 0:
            return math.log(losses.sum())
        # Advanced composition: the mean loss, and its deviation at δ.
        depth = math.sqrt(2 * math.log(1 / terms.sampled_budget.delta) * float(losses @ losses))
        return math.log(float(losses @ np.tanh(losses / 2)) + depth)
    squares = crossed = 0.0
    for law in (law.enlarged for law in factors(parts, _MOST_LAWS)):
        square, product = law.square_and_product
        squares += math.log(square)
        crossed += math.log(product)
    # ln(S − P) from ln S and ln P: the products themselves may overflow.
    return squares + math.log(max(-math.expm1(crossed - squares), 1e-300))


GROUPED_METRICS = ("discrete", "line", "nullable line", "special line")
"""Metrics of the spaces whose codes are a list."""

_CONSTANT_EPSILON = 1e-9
"""The ε of a column of a single possible value, which reveals nothing: no share of the budget (tolerance)."""


Units = tuple[tuple[Column, ...], tuple[Group, ...]]
"""The columns of a plan, grouped ones with their marginal channels, and its groups."""


def default_delta(n: int | None) -> float:
    """Return min(1e-6, n^−1.5), the default δ of a plan; 0 if n is unknown."""
    return 0.0 if n is None else min(1e-6, max(n, 1) ** -1.5)


def build_plan(
    spaces: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float | None = None,
    n: int | None = None,
    allocation: str | Mapping[Any, float] = "uniform",
    mechanisms: Mapping[str, str | Mechanism] | None = None,
    contributions: int = 1,
    shuffle: bool = True,
    sample: int | str | None = None,
    nulls: str = "error",
    drop: Iterable[str] = (),
    passthrough: Iterable[str] = (),
    leaks: Sequence[str] = (),
    groups: Iterable[Sequence[str]] = (),
    inferred: Inferred | None = None,
    local_epsilon: float | None = None,
    reused: Inferred | None = None,
    measures: Sequence[Measure] = (),
    most: Step | None = None,
    privacy_id: str | None = None,
    numbers: str = "laplace",
    ordinals: str = "least_error",
    sets: str = "least_error",
    rules: Iterable[Any] = (),
) -> Plan:
    """Divide a budget over columns with known spaces and calibrate their mechanisms to the least noise.

    The columns' losses are the largest, in the proportion of their shares, for which the whole release keeps (ε, δ).
    ``mechanisms`` names mechanisms by tags in place of the spaces' defaults, or contains ready ones, which cost their
    certified losses. A group's share is the sum of its columns' shares, unless ``allocation={("sex", "income"): 0.4}``
    sets it. ``sample="optimal"`` takes the sample size of least forecast error of the columns' marginals (see
    `Plan.sample_curve`). ``most`` is the upper limit of the tables' cost, if inference decided which tables are
    measured: `local_epsilon` then leaves rows as much as with tables of this cost. See `Plan` for the other parameters.
    """
    delta = default_delta(n) if delta is None else check_delta(delta)
    if n is not None and n > 1 and delta > 1 / n:
        warn(
            f"delta={delta:g} is above 1/n, so that whole rows may be revealed; pass delta={default_delta(n):.2g}",
            DpframeWarning,
        )
    as_spaces = {name: as_space(spec) for name, spec in spaces.items()}
    _check_sample_size(sample, n)
    sample_size = None if isinstance(sample, str) else sample
    cap = None if local_epsilon is None else check_epsilon(local_epsilon, "local_epsilon")
    # A copied column identifies rows, so that their order is no secret.
    secret = shuffle and not tuple(passthrough)
    plan_rules = as_rules(rules)
    indicators = indicators_of(plan_rules, as_spaces) if measures else ()
    counted_spaces = {**as_spaces, **{group.name: group.space for group in indicators}}
    check_measures(measures, counted_spaces)
    tables = measures_step(measures, counted_spaces, contributions, delta)
    terms = terms_of(Budget(epsilon, delta), inferred, n, sample_size, secret, contributions, cap, tables, most)
    columns, name_groups = build_units(as_spaces, terms, allocation, mechanisms, groups, numbers, ordinals, sets)
    plan = Plan(
        epsilon=epsilon,
        delta=delta,
        columns=columns,
        n=n,
        shuffle=shuffle,
        contributions=contributions,
        nulls=nulls,
        drop=tuple(drop),
        passthrough=tuple(passthrough),
        leaks=tuple(leaks),
        groups=name_groups,
        sample=sample_size,
        inferred=inferred,
        local_epsilon=cap,
        reused=reused,
        measures=tuple(measures),
        privacy_id=privacy_id,
        rules=plan_rules,
    )
    # The best size is forecast from calibrated columns, so that a plan for all rows comes first.
    return plan.resampled(best_size(plan)) if sample == "optimal" else plan


def _check_sample_size(sample: Any, n: int | None) -> None:
    """Raise `ParameterError` unless a sample is None, "optimal" or a number of rows up to n."""
    is_whole = isinstance(sample, int) and not isinstance(sample, bool)
    is_optimal = is_one_of(sample, ["optimal"]) and bool(n)
    if sample is not None and not is_optimal and not (is_whole and n is not None and 1 <= sample <= n):
        rows = "" if n is None else f" to {n:,}"
        raise ParameterError(f'sample must be a whole number of rows from 1{rows}, or "optimal"')


def build_units(
    known: Mapping[str, Space],
    terms: AccountingContext,
    allocation: str | Mapping[Any, float],
    mechanisms: Any,
    groups: Any,
    numbers: str = "laplace",
    ordinals: str = "least_error",
    sets: str = "least_error",
) -> Units:
    """Divide a release's budget over columns and groups, and calibrate their mechanisms.

    Numbers without a named mechanism have the noise of ``numbers``. By default ranks have the square wave or Laplace
    noise, whichever has the smaller forecast error. Sets have whole-set response if its forecast error is clearly
    smaller.
    """
    mechanism_map = as_mechanisms(mechanisms)
    for name in mechanism_map:
        if isinstance(name, tuple):
            raise ParameterError(
                f"mechanisms names the group {tuple_label(name)}, whose columns always share gamma_diagonal; name "
                "single columns in mechanisms"
            )
        if name not in known:
            raise ParameterError(f"mechanisms names {name!r}, which is not a randomised column")
    mechanism_of = dict(mechanism_map)
    name_groups = _check_groups(groups, known, mechanism_of)
    noise = [check_noise(*option) for option in (("numbers", numbers), ("ordinals", ordinals), ("sets", sets))]
    return _search_mechanisms(_Calibration(dict(known), terms, allocation, mechanism_of, name_groups, *noise))


@dataclass(frozen=True)
class _Calibration:
    """Inputs of a calibration, with their JSON text as key: equal values 1 and 1.0 release different numbers."""

    known: Mapping[str, Space] = field(compare=False)
    terms: AccountingContext
    allocation: str | Mapping[Any, float] = field(compare=False)
    chosen: Mapping[str, Any] = field(compare=False)
    joined: Sequence[tuple[str, ...]] = field(compare=False)
    numbers: str
    ordinals: str
    sets: str
    text: str = field(init=False)

    def __post_init__(self) -> None:
        spaces = [[name, space.to_json()] for name, space in self.known.items()]
        mechanism_pairs = [
            [name, mechanism.to_json() if isinstance(mechanism, Mechanism) else mechanism]
            for name, mechanism in self.chosen.items()
        ]
        shares = repr(list(self.allocation.items()) if isinstance(self.allocation, Mapping) else self.allocation)
        object.__setattr__(self, "text", json.dumps([spaces, mechanism_pairs, shares, self.joined]))


# Every call without a plan makes the plan of its table anew.
@lru_cache(maxsize=64)
def _search_mechanisms(request: _Calibration) -> Units:
    """Return calibrated units with named mechanisms, or the best ones for columns without."""
    calibrated, mechanisms = _calibrate_stand_ins(request)
    for column in calibrated[0]:
        may_have_rival = column.name not in mechanisms and column.space.metric in RIVALS
        rival = promising_rival(column, request.sets) if may_have_rival else None
        if rival is None:
            continue
        # A rival may need more budget than the column has: the default then stays.
        with contextlib.suppress(ParameterError):
            rival_units = _calibrate_units(request, {**mechanisms, column.name: rival})
            rival_and_default = [
                next(entry for entry in units if entry.name == column.name) for units in (rival_units[0], calibrated[0])
            ]
            if request.sets == "randomized_response" or is_clearly_better(*rival_and_default):
                calibrated, mechanisms = rival_units, {**mechanisms, column.name: rival}
    return calibrated


def _calibrate_stand_ins(request: _Calibration) -> tuple[Units, Mapping[str, Any]]:
    """Return calibrated units, and their mechanisms, with stand-ins for additive noise."""
    mechanisms, grouped_names = request.chosen, {name for names in request.joined for name in names}
    default_spaces = {
        name: space for name, space in request.known.items() if name not in mechanisms and name not in grouped_names
    }
    noise = {name: request.ordinals if space.is_listed else request.numbers for name, space in default_spaces.items()}
    tags = {name: stand_in(space, noise[name]) for name, space in default_spaces.items()}
    substitutes = {name: tag for name, tag in tags.items() if tag is not None}
    with contextlib.suppress(ParameterError):  # an ε too small for one of them
        units = _calibrate_units(request, {**mechanisms, **substitutes})
        # Other kinds of noise were requested by name, and stay even if they err more.
        candidates = {name for name in substitutes if noise[name] == "least_error"}
        worse = {column.name for column in units[0] if column.name in candidates and errs_more(column)}
        accepted = {**mechanisms, **{name: tag for name, tag in substitutes.items() if name not in worse}}
        return (_calibrate_units(request, accepted) if worse else units), accepted
    return _calibrate_units(request, mechanisms), mechanisms


def _calibrate_units(request: _Calibration, mechanisms: Mapping[str, Any]) -> Units:
    """Return calibrated columns and groups with these mechanisms."""
    spaces, terms, allocation, groups = request.known, request.terms, request.allocation, request.joined
    grouped_names = {name for names in groups for name in names}
    ready = {
        name: Column(name, spaces[name], mechanism)
        for name, mechanism in mechanisms.items()
        if isinstance(mechanism, Mechanism)
    }
    columns_with_share = set(allocation) if isinstance(allocation, Mapping) else set()
    # With central steps and no shuffling, no share may follow from the results of inference (`calibration`).
    # Channels that may fail are accounted for as unshuffled.
    delta_columns = [
        name for name, tag in mechanisms.items() if isinstance(tag, str) and _takes_delta(name, spaces[name], tag)
    ]
    may_fail = bool(delta_columns) or any(column.mechanism.delta > 0 for column in ready.values())
    adapts_to_space = terms.central is None or (terms.shuffled_rows is not None and not may_fail)
    for name in spaces:
        if (
            adapts_to_space
            and spaces[name].size == 1
            and name not in {*ready, *grouped_names, *columns_with_share, *mechanisms}
        ):
            ready[name] = Column(name, spaces[name], mechanism_for(spaces[name], _CONSTANT_EPSILON, 0.0, None))
    units_to_make: list[Any] = [
        *groups,
        *(name for name in spaces if name not in ready and name not in grouped_names),
    ]
    makers: list[Maker] = [
        _group_maker(unit, spaces)
        if isinstance(unit, tuple)
        else partial(_calibrate_column, unit, spaces[unit], mechanisms.get(unit))
        for unit in units_to_make
    ]
    # A group has its columns' shares together, so that grouping leaves the budget of the others as it was.
    weights = [len(unit) if isinstance(unit, tuple) else 1 for unit in units_to_make]
    by_error = is_one_of(allocation, ["error"])
    if by_error and delta_columns:
        raise ParameterError(
            f'allocation="error" cannot weigh gaussian noise, which {name_list(delta_columns)} has; '
            "give {column: share}"
        )
    if by_error:
        shares = shares_by_error(makers, weights, list(ready.values()), terms)
    else:
        share_of_unit = _name_by_unit(allocation, groups, spaces) if isinstance(allocation, Mapping) else allocation
        shares = shares_of(units_to_make, share_of_unit, weights)
    slacks = slacks_of([unit in delta_columns for unit in units_to_make], terms)
    calibrated = calibrate(makers, shares, list(ready.values()), terms, slacks)
    return parted([*ready.values(), *calibrated], spaces)


def _takes_delta(name: str, space: Space, tag: str) -> bool:
    """Return whether a named mechanism needs a δ of its own; `ParameterError` if the space has no such mechanism."""
    try:
        return family_for(space, tag).takes_delta
    except ParameterError as error:
        raise ParameterError(f"column {name!r}: {error}") from None


def _calibrate_column(name: str, space: Space, tag: str | None, epsilon: float, delta: float) -> Column:
    """Return a column from its budget; a refusal names the column."""
    try:
        return Column.calibrated(name, space, epsilon, delta, tag)
    except ParameterError as error:
        raise ParameterError(f"column {name!r}: {error}") from None


def as_mechanisms(given: Any) -> Mapping[Any, str | Mechanism]:
    """Return mechanisms by column, an empty mapping for None; raise `ParameterError` for anything else."""
    mechanisms = {} if given is None else given
    if not isinstance(mechanisms, Mapping) or not all(
        isinstance(value, str | Mechanism) for value in mechanisms.values()
    ):
        raise ParameterError("mechanisms must be a mapping {column: tag or mechanism}")
    return mechanisms


def _check_groups(groups: Any, spaces: Mapping[str, Space], mechanisms: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return groups as tuples of names, or raise `ParameterError`."""
    example = 'e.g. groups=[("sex", "income")]'
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise ParameterError(f"groups must be a list of groups of column names, {example}")
    name_tuples: list[tuple[str, ...]] = []
    for group in groups:
        if not isinstance(group, list | tuple) or not all(isinstance(name, str) for name in group):
            raise ParameterError(f"groups must be a list of groups of column names, {example}")
        if len(group) < 2:
            raise ParameterError("a group must name two or more columns; a single one needs no group")
        for name in group:
            if name not in spaces:
                raise ParameterError(f"groups name {name!r}, which is not a randomised column")
            if list(group).count(name) > 1:
                raise ParameterError(f"groups name {name!r} twice in one group; name it once")
            # A column in two groups would spend its budget twice.
            if any(name in names for names in name_tuples):
                raise ParameterError(f"column {name!r} is in two groups; name it in one of them")
            if name in mechanisms:
                raise ParameterError(
                    f"mechanisms names {name!r}, which is in a group and has its mechanism; leave one of them out"
                )
            if spaces[name].metric not in GROUPED_METRICS:
                raise ParameterError(f"column {name!r}: space {spaces[name].tag} has no list of values to group")
        name_tuples.append(tuple(group))
    return name_tuples


def _name_by_unit(
    allocation: Mapping[Any, float], name_groups: Sequence[tuple[str, ...]], spaces: Mapping[str, Space]
) -> dict[Any, float]:
    """Return an allocation with group names as in ``groups``.

    Its groups may be in another order, or (if keys must be text) joined by commas.
    """
    groups = {frozenset(names): names for names in name_groups}
    shares_of: dict[Any, float] = {}
    for key, share in allocation.items():
        names = tuple(part.strip() for part in key.split(",")) if isinstance(key, str) and key not in spaces else key
        unit = groups.get(frozenset(names), key) if isinstance(names, tuple | frozenset) else key
        # A column within a group has no share of its own.
        home = next((names for names in name_groups if unit in names), None)
        if home is not None:
            raise ParameterError(
                f"allocation names {unit!r}, which is in a group; give the group's share as {{{home!r}: …}}"
            )
        if unit in shares_of:
            raise ParameterError(f"allocation names the group {unit!r} twice; name it once")
        shares_of[unit] = share
    return shares_of


def _group_maker(names: tuple[str, ...], spaces: Mapping[str, Space]) -> Maker:
    """Return the function that makes a group from its budget; raise `ParameterError` for too many tuples."""
    label, sizes = tuple_label(names), [spaces[name].size for name in names]
    if math.prod(sizes) > LARGEST_PRODUCT:
        largest = names[sizes.index(max(sizes))]
        raise ParameterError(
            f"group {label} has {math.prod(sizes):,} tuples, more than {LARGEST_PRODUCT:,}; leave {largest!r} "
            f"({max(sizes):,} values) out of it, or declare coarser spaces"
        )
    space = Product(*(spaces[name] for name in names))

    def make(epsilon: float, delta: float) -> Group:
        try:
            return Group(names, space, GammaDiagonal.calibrate(space, epsilon, delta))
        except ParameterError as error:
            raise ParameterError(f"group {label}: {error}") from None

    return make
