"""Histograms that inference may measure, as a plan stores them, and their cost.

All histograms are counts of rows, and neighbours differ in one row. If every row of a column counts under at most
s cells (1, or the cap on a set's items), at most 2s counts change, by 1 each: ℓ1 sensitivity 2s, ℓ2
sensitivity √(2s). A person with k rows makes both k times as large.

With δ > 0 the noise is discrete Gaussian, and its step the exact one of the lattice (`discrete_gaussian`), which adds
up over columns and adaptive rounds. With δ = 0 the noise is geometric and ε = Σ Δᵢ·rateᵢ.

*Unknown domains.* Of text and items only observed values have counts, and only those whose noisy count reaches a
threshold τ are released. Let U be the values that both neighbours have, and M_U the mechanism that looks only
at U. Noise is independent, so M is M_U unless a value outside U reaches τ. These belong to the rows that changed: at
most k·s of them in a column, with counts of at most k, so that this happens with a chance of at most
β = Σ k·s·P(k + Z ≥ τ), independently of M_U. With probability 1 − β, then, M is M_U and M' is M_U', and
P(M ∈ A) − e^ε·P(M' ∈ A) ≤ β + (1 − β)·(P(M_U ∈ A) − e^ε·P(M_U' ∈ A)): β is a slack.

*Tables.* The sampler is within a total variation distance of the ideal law. Unchanged counts have equal laws for both
neighbours. Replacing the law of the other counts by the ideal one has a cost, which is part of the step.

*Branches.* The histograms of a column of objects depend on the kinds that were found in it: one of several branches,
each a list of histograms. All branches have their noise and thresholds from the start. Each column costs its most
expensive branch: earlier counts decide the branch (adaptive composition, and no branch costs more).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpframe.accounting.budget import Budget, round_up
from dpframe.accounting.discrete_gaussian import LEAST_SIGMA2, IntegerNoise, gaussian_tail, noise_step
from dpframe.accounting.gaussian_dp import Step, composed_steps, step_delta
from dpframe.errors import ParameterError, PlanError
from dpframe.inference.kinds import WORDS_BRANCHES
from dpframe.noise.gaussian import gaussian_table
from dpframe.spaces.json_form import check_names, from_object, to_object

HISTOGRAM_KINDS = ("intervals", "steps", "values", "ranks", "items", "nulls", "kinds", "lengths", "norms")
"""Kinds of a histogram's cells; see `Measured`."""
UNKNOWN_DOMAINS = ("values", "ranks", "items")
"""Kinds of counts whose cells are known only from the rows."""

TAILS = 1e-3
"""Part of the slack that covers the tails of tables, and their distances from the ideal law (tolerance)."""

STANDALONE_SLACK_SHARE = 0.1
"""Share of δ that is slack, of an inference without a release (tuned; effect not measured)."""

STATED_SHARE = 0.5
"""Share of δ at which a step is stated as an (ε, δ) of its own (tuned; effect not measured)."""

MIN_COUNT_VARIANCE, MAX_COUNT_VARIANCE = 1e-9, 1e30
"""Variances between which no weight of a count overflows; inference is far within (limit of the format)."""
_MAX_HISTOGRAM_CELLS = 1 << 32
"""Cells of a histogram at most (limit of the format)."""

Branch = tuple[str, str]
"""A column, and the kind of values (way) for which one of its lists of histograms is measured."""


@dataclass(frozen=True)
class HistogramSpec:
    """One histogram that inference may ask of a column: the kind of its cells, and its noise.

    ``cells``: most cells that one row counts under. ``variance``: of the noise on every count. ``threshold``: least
    noisy count of a released value or item; 0 if all cells are public. ``way``: the kind of values that the column must
    show before this histogram is measured; None if inference always measures it.
    """

    kind: str
    cells: int
    variance: float
    threshold: int = 0
    way: str | None = None

    def __post_init__(self) -> None:
        are_whole = all(type(value) is int for value in (self.cells, self.threshold))
        is_number = isinstance(self.variance, int | float) and not isinstance(self.variance, bool)
        if self.kind not in HISTOGRAM_KINDS or not isinstance(self.way, str | None) or not are_whole:
            raise PlanError("a histogram that was asked for must have a kind, whole cells and a whole threshold")
        if not (
            is_number
            and LEAST_SIGMA2 <= self.variance <= MAX_COUNT_VARIANCE
            and 1 <= self.cells <= _MAX_HISTOGRAM_CELLS
        ):
            raise PlanError("a histogram that was asked for must have 1 cell a row or more, and a variance from 0.25")
        if (self.threshold > 0) != (self.kind in UNKNOWN_DOMAINS) or not 0 <= self.threshold < 1 << 63:
            raise PlanError("what was asked for must have a threshold where it is of values or items, and nowhere else")
        object.__setattr__(self, "variance", float(self.variance))


HistogramSpecs = tuple[tuple[str, tuple[HistogramSpec, ...]], ...]
"""Histograms by column, in the order of measurement; the histograms of one branch are consecutive."""


def _list_by_branch(asked: HistogramSpecs) -> list[tuple[Branch | None, HistogramSpec]]:
    """Return all histograms, each with its branch, or None."""
    return [(None if spec.way is None else (name, spec.way), spec) for name, specs in asked for spec in specs]


def worst_branch_cost(costs: Iterable[tuple[Branch | None, Fraction | float | int]]) -> Fraction:
    """Return the total cost of histograms, counting only each column's most expensive branch."""
    sums: dict[Branch | None, Fraction] = {None: Fraction(0)}
    for branch, cost in costs:
        sums[branch] = sums.get(branch, Fraction(0)) + Fraction(cost)
    total, worst_costs = sums.pop(None), dict[str, Fraction]()
    # Each column follows one of its branches: their costs do not add up.
    for branch, cost in sums.items():
        assert branch is not None
        worst_costs[branch[0]] = max(worst_costs.get(branch[0], cost), cost)
    return total + sum(worst_costs.values())


def noise_cost(histograms: Sequence[tuple[Branch | None, int, float]], contributions: int, slack: float) -> Step:
    """Return the exact step of all noises, counting only each column's most expensive branch.

    ``histograms``: branch, largest number of cells per row, and σ² of each.
    """
    branches: dict[Branch | None, list[IntegerNoise]] = {}
    for branch, cells, sigma2 in histograms:
        distance = round_up(gaussian_table(sigma2).distance)
        branches.setdefault(branch, []).append(IntegerNoise(sigma2, 2 * cells, 1, distance))
    # A column follows one branch: branches of words, which earlier versions lacked, need no slack beside the others.
    shared = [branch for branch in branches if branch is None or branch[1] not in WORDS_BRANCHES.values()]
    branch_slack = slack / max(len(shared), 1)
    common_steps, worst_steps = list[Step](), dict[str, Step]()
    for branch, noises in branches.items():
        step = noise_step(noises, contributions, branch_slack)
        if branch is None:
            common_steps.append(step)
        elif step.mu >= worst_steps.get(branch[0], step).mu:
            worst_steps[branch[0]] = step
    return composed_steps([*common_steps, *worst_steps.values()])


def total_step(asked: HistogramSpecs, contributions: int, delta: float) -> Step:
    """Return the step of all histograms with a slack; `TAILS` of the slack covers the tails of the noise."""
    specs, k = _list_by_branch(asked), contributions
    noises = noise_cost([(branch, h.cells, h.variance) for branch, h in specs], k, delta * TAILS * (1 - 1e-6))
    escapes = ((branch, k * h.cells * _escape_probability(h, k) if h.threshold else 0.0) for branch, h in specs)
    escape = round_up(worst_branch_cost(escapes))
    if not escape < 1:
        raise ParameterError("the thresholds let every rare value show")
    return composed_steps([noises, Step(0.0, escape)])


def _escape_probability(spec: HistogramSpec, contributions: int) -> float:
    """Return a bound on the probability that noise lifts a count of one person to the threshold."""
    return gaussian_tail(spec.variance, spec.threshold - contributions) + round_up(
        gaussian_table(spec.variance).distance
    )


def total_epsilon(asked: HistogramSpecs, contributions: int) -> float:
    """Return the ε of all histograms with geometric noise; infinite if a domain is unknown."""
    specs = _list_by_branch(asked)
    # A rare value above its threshold would reveal a row: δ = 0 forbids this.
    if any(h.threshold for _, h in specs):
        return math.inf
    # The variance 2α/(1 − α)² is 1/(cosh(rate) − 1), and cosh(r) − 1 = 2·sinh²(r/2).
    rates = ((branch, h.cells, 2 * math.asinh(math.sqrt(0.5 / h.variance))) for branch, h in specs)
    # One person changes 2 · cells · contributions counts, each by 1.
    return round_up(worst_branch_cost((branch, 2 * cells * contributions * rate) for branch, cells, rate in rates))


def specs_to_json(asked: HistogramSpecs) -> list[dict[str, Any]]:
    """Return the histograms as JSON objects; columns with equal histograms share one object."""
    columns_by_specs: dict[tuple[HistogramSpec, ...], list[str]] = {}
    for name, specs in asked:
        # Most columns of a type have equal histograms: a plan lists them once.
        columns_by_specs.setdefault(specs, []).append(name)
    return [
        {"columns": names, "histograms": [to_object(spec, sparse=["threshold", "way"]) for spec in specs]}
        for specs, names in columns_by_specs.items()
    ]


def specs_from_json(data: Any) -> HistogramSpecs:
    """Read histograms by column from JSON objects; `PlanError` for anything else."""
    if not isinstance(data, list):
        raise PlanError("what inference asked must be a list, by columns")
    specs_by_column: dict[str, tuple[HistogramSpec, ...]] = {}
    for group in data:
        check_names(group, "what inference asked", ["columns", "histograms"])
        names, histograms = group["columns"], group["histograms"]
        if not isinstance(names, list) or not isinstance(histograms, list):
            raise PlanError("what inference asked must name columns, and list histograms")
        specs = tuple(from_object(HistogramSpec, item, "a histogram that was asked for") for item in histograms)
        for name in names:
            if not isinstance(name, str) or name in specs_by_column:
                raise PlanError("what inference asked must name every column once")
            specs_by_column[name] = specs
    return tuple(specs_by_column.items())


_UNDERCUT_MESSAGE = "inference claims {} but its counts have less noise than that asks for"


def find_cost_failures(
    asked: HistogramSpecs, contributions: int, budget: Budget, stated: Step | None, tolerance: float = 0.0
) -> list[str]:
    """Return messages about costs above the stated step, or above the budget if there is no step.

    ``tolerance``: part of a claim by which the cost may be larger.
    """
    limit = 1 + tolerance
    # Plans with δ = 0 have no step: geometric noise has an ε.
    if stated is None and budget.delta == 0:
        epsilon = total_epsilon(asked, contributions)
        return [] if epsilon <= budget.epsilon * limit else [_UNDERCUT_MESSAGE.format(budget.stated())]
    slack = budget.delta * STANDALONE_SLACK_SHARE if stated is None else stated.delta
    try:
        step = total_step(asked, contributions, slack) if asked else Step(0.0)
    except ParameterError as error:
        return [f"inference claims the slack {slack:.3g}, which is too little: {error}"]
    if stated is None:
        is_within_budget = step_delta(step, budget.epsilon) <= budget.delta * limit
        return [] if is_within_budget else [_UNDERCUT_MESSAGE.format(budget.stated())]
    failures = []
    if step.mu > stated.mu * limit:
        failures.append(_UNDERCUT_MESSAGE.format(f"mu={stated.mu:.6g}"))
    if step.delta > stated.delta * limit:
        failures.append(f"inference claims the slack {slack:.3g} but its thresholds let rare values show oftener")
    return failures
