"""Private inference as a plan stores it: its spend, and its noisy counts.

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

*Ways.* The histograms of a column of objects depend on the kinds that were found in it: one of several ways, each a
list of histograms. All ways have their noise and thresholds from the start. Each column costs its most expensive way:
earlier counts decide the branch (adaptive composition, and no branch costs more).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dpframe.accounting.budget import Budget, round_up
from dpframe.accounting.discrete_gaussian import LEAST_SIGMA2, IntegerNoise, gaussian_tail, noise_step
from dpframe.accounting.gaussian_dp import Step, composed_steps, step_delta, step_epsilon
from dpframe.accounting.unit import Unit
from dpframe.errors import ParameterError, PlanError
from dpframe.noise.gaussian import gaussian_table
from dpframe.observe.observation import Observation, Runs, update
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.json_form import check_names, from_object, to_object

KINDS = ("intervals", "steps", "values", "ranks", "items", "nulls", "kinds", "lengths", "norms")
"""Kinds of a histogram's cells; see `Measured`."""
UNKNOWN = ("values", "ranks", "items")
"""Kinds of counts whose cells are known only from the rows."""

TAILS = 1e-3
"""Part of the slack that covers the tails of tables, and their distances from the ideal law (tolerance)."""

ALONE = 0.1
"""Share of δ that is slack, of an inference without a release (tuned; effect not measured)."""

STATED_SHARE = 0.5
"""Share of δ at which a step is stated as an (ε, δ) of its own (tuned; effect not measured)."""

_MIN_VARIANCE, _MAX_VARIANCE = 1e-9, 1e30
"""Variances between which no weight of a count overflows; inference is far within (limit of the format)."""
_MAX_CELLS = 1 << 32
"""Cells of a histogram at most (limit of the format)."""

Way = tuple[str, str]
"""A column, and one of its ways."""


@dataclass(frozen=True)
class Asked:
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
        if self.kind not in KINDS or not isinstance(self.way, str | None) or not are_whole:
            raise PlanError("a histogram that was asked for must have a kind, whole cells and a whole threshold")
        if not (is_number and LEAST_SIGMA2 <= self.variance <= _MAX_VARIANCE and 1 <= self.cells <= _MAX_CELLS):
            raise PlanError("a histogram that was asked for must have 1 cell a row or more, and a variance from 0.25")
        if (self.threshold > 0) != (self.kind in UNKNOWN) or not 0 <= self.threshold < 1 << 63:
            raise PlanError("what was asked for must have a threshold where it is of values or items, and nowhere else")
        object.__setattr__(self, "variance", float(self.variance))

    def changes(self, contributions: int) -> int:
        """Return the largest number of counts that one person can change; each then changes by 1."""
        return 2 * self.cells * contributions


AskedOf = tuple[tuple[str, tuple[Asked, ...]], ...]
"""Histograms by column, in the order of measurement; the histograms of one way are consecutive."""


def flat(asked: AskedOf) -> list[tuple[Way | None, Asked]]:
    """Return all histograms, each with its way, or None."""
    return [(None if spec.way is None else (name, spec.way), spec) for name, specs in asked for spec in specs]


def dearest(costs: Iterable[tuple[Way | None, Fraction | float | int]]) -> Fraction:
    """Return the total cost of histograms, counting only each column's most expensive way."""
    total, sums = Fraction(0), dict[Way, Fraction]()
    for way, cost in costs:
        if way is None:
            total += Fraction(cost)
        else:
            sums[way] = sums.get(way, Fraction(0)) + Fraction(cost)
    # Each column follows one of its ways: its costs do not add up.
    columns = {column for column, _ in sums}
    return total + sum(max(cost for way, cost in sums.items() if way[0] == column) for column in columns)


def noise_cost(histograms: Sequence[tuple[Way | None, int, float]], contributions: int, slack: float) -> Step:
    """Return the exact step of all noises, counting only each column's most expensive way.

    ``histograms``: way, largest number of cells per row, and σ² of each.
    """
    ways: dict[Way | None, list[IntegerNoise]] = {}
    for way, cells, sigma2 in histograms:
        distance = round_up(gaussian_table(sigma2).distance)
        ways.setdefault(way, []).append(IntegerNoise(sigma2, 2 * cells, 1, distance))
    way_slack = slack / max(len(ways), 1)
    steps = {way: noise_step(noises, contributions, way_slack) for way, noises in ways.items()}
    dearest_steps: dict[str, Step] = {}
    for way, step in steps.items():
        if way is not None and step.mu >= dearest_steps.get(way[0], step).mu:
            dearest_steps[way[0]] = step
    return composed_steps([*(step for way, step in steps.items() if way is None), *dearest_steps.values()])


def asked_step(asked: AskedOf, contributions: int, delta: float) -> Step:
    """Return the step of all histograms with a slack; `TAILS` of the slack covers the tails of the noise."""
    histograms, k = flat(asked), contributions
    noises = noise_cost([(way, h.cells, h.variance) for way, h in histograms], k, delta * TAILS * (1 - 1e-6))
    escapes = ((way, k * h.cells * _escape_probability(h, k) if h.threshold else 0.0) for way, h in histograms)
    escape = round_up(dearest(escapes))
    if not escape < 1:
        raise ParameterError("the thresholds let every rare value show")
    return composed_steps([noises, Step(0.0, escape)])


def _escape_probability(spec: Asked, contributions: int) -> float:
    """Return a bound on the probability that noise lifts a count of one person to the threshold."""
    return gaussian_tail(spec.variance, spec.threshold - contributions) + round_up(
        gaussian_table(spec.variance).distance
    )


def asked_epsilon(asked: AskedOf, contributions: int) -> float:
    """Return the ε of all histograms with geometric noise; infinite if a domain is unknown."""
    histograms = flat(asked)
    # A rare value above its threshold would reveal a row: δ = 0 forbids this.
    if any(h.threshold for _, h in histograms):
        return math.inf
    # 2α/(1 − α)² = 1/(cosh(rate) − 1), and cosh(r) − 1 = 2·sinh²(r/2).
    losses = ((w, h.changes(contributions) * 2 * math.asinh(math.sqrt(0.5 / h.variance))) for w, h in histograms)
    return round_up(dearest(losses))


def asked_json(asked: AskedOf) -> list[dict[str, Any]]:
    """Return the histograms as JSON objects; columns with equal histograms share one object."""
    columns_by_specs: dict[tuple[Asked, ...], list[str]] = {}
    for name, specs in asked:
        # Most columns of a type have equal histograms: a plan lists them once.
        columns_by_specs.setdefault(specs, []).append(name)
    return [
        {"columns": names, "histograms": [to_object(spec, sparse=["threshold", "way"]) for spec in specs]}
        for specs, names in columns_by_specs.items()
    ]


def asked_from_json(data: Any) -> AskedOf:
    """Read histograms by column from JSON objects; `PlanError` for anything else."""
    if not isinstance(data, list):
        raise PlanError("what inference asked must be a list, by columns")
    specs_by_column: dict[str, tuple[Asked, ...]] = {}
    for group in data:
        check_names(group, "what inference asked", ["columns", "histograms"])
        names, histograms = group["columns"], group["histograms"]
        if not isinstance(names, list) or not isinstance(histograms, list):
            raise PlanError("what inference asked must name columns, and list histograms")
        specs = tuple(from_object(Asked, item, "a histogram that was asked for") for item in histograms)
        for name in names:
            if not isinstance(name, str) or name in specs_by_column:
                raise PlanError("what inference asked must name every column once")
            specs_by_column[name] = specs
    return tuple(specs_by_column.items())


_UNDERCUT_MESSAGE = "inference claims {} but its counts have less noise than that asks for"


def undercut(asked: AskedOf, contributions: int, budget: Budget, stated: Step | None) -> list[str]:
    """Return messages about costs above the stated step, or above the budget if there is no step."""
    # Plans with δ = 0 have no step: geometric noise has an ε.
    if stated is None and budget.delta == 0:
        epsilon = asked_epsilon(asked, contributions)
        return [] if epsilon <= budget.epsilon else [_UNDERCUT_MESSAGE.format(budget.stated())]
    slack = budget.delta * ALONE if stated is None else stated.delta
    try:
        step = asked_step(asked, contributions, slack) if asked else Step(0.0)
    except ParameterError as error:
        return [f"inference claims the slack {slack:.3g}, which is too little: {error}"]
    if stated is None:
        is_within_budget = step_delta(step, budget.epsilon) <= budget.delta
        return [] if is_within_budget else [_UNDERCUT_MESSAGE.format(budget.stated())]
    failures = []
    if step.mu > stated.mu:
        failures.append(_UNDERCUT_MESSAGE.format(f"mu={stated.mu:.6g}"))
    if step.delta > stated.delta:
        failures.append(f"inference claims the slack {slack:.3g} but its thresholds let rare values show oftener")
    return failures


UNITS = ("D", "s", "ms", "us", "ns")
"""Units of times; dates have days."""

INTERVALS = ("intervals", "norms")
"""Kinds of counts between edges of numbers."""


@dataclass(frozen=True)
class Measured:
    """Noisy counts of one histogram, as inference paid for them.

    ``kind`` says how to read ``cells``. For ``"intervals"`` they are the edges between cells, one fewer than counts:
    cell i is [cells[i−1], cells[i]), the outermost cells have no end, and times are in the column's unit since 1970.
    For ``"norms"`` they are edges of the lists' ℓ2 norms. For ``"steps"`` they are the widest step that divides a
    value, or 0. For ``"values"`` and ``"items"`` they are the values above the threshold; ``"ranks"`` are values in a
    declared order. ``"nulls"`` has no cells. For ``"kinds"`` they are the kinds of objects, for ``"lengths"`` the
    lengths of lists whose counts exceed their noise.

    ``missing`` is the noisy count of nulls, if the type has nulls. Columns of objects count values of another kind as
    nulls, and norms count lists of another length. ``unit`` is the unit of times. All counts have equal noise variance,
    and may be negative.
    """

    column: str
    kind: str
    cells: tuple[Any, ...]
    counts: tuple[int, ...]
    variance: float
    missing: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.variance, int | float) and not isinstance(self.variance, bool)
        has_valid_variance = is_number and _MIN_VARIANCE <= self.variance <= _MAX_VARIANCE
        has_whole_counts = isinstance(self.counts, tuple) and all(map(_is_count, self.counts))
        has_valid_missing = self.missing is None or _is_count(self.missing)
        if self.kind not in KINDS or self.unit not in (None, *UNITS):
            raise PlanError(
                f"the kind of measured counts must be one of {', '.join(KINDS)}, "
                f"and the unit of measured times one of {', '.join(UNITS)}"
            )
        has_edges = self.kind in INTERVALS
        if not isinstance(self.cells, tuple) or not all(_is_cell(cell, has_edges) for cell in self.cells):
            raise PlanError("cells of measured counts must be numbers between intervals, else values, items or kinds")
        if not (isinstance(self.column, str) and has_whole_counts and has_valid_variance and has_valid_missing):
            raise PlanError("measured counts must be whole numbers of 64 bits, with a variance from 1e-9 to 1e30")
        if len(self.counts) != len(self.cells) + has_edges:
            raise PlanError("measured counts must be as many as cells, and one more than edges between intervals")
        if has_edges and any(low >= high for low, high in pairwise(self.cells)):
            raise PlanError("edges between intervals of measured counts must ascend")
        object.__setattr__(self, "variance", float(self.variance))

    def to_observation(self, edges: Sequence[Any]) -> Observation:
        """Return the counts of intervals as an observation of finer cells, whose edges include these."""
        places = {edge: place for place, edge in enumerate(edges, 1)}
        runs = Runs.between([0, *(places[edge] for edge in self.cells), len(edges) + 1])
        return Observation(runs, np.array(self.counts, dtype=np.float64), np.full(len(self.counts), self.variance))

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return to_object(self, sparse=["unit"])

    @classmethod
    def from_json(cls, data: Any) -> Measured:
        """Read the counts back; `PlanError` for anything else."""
        return from_object(cls, data, "a measured column")


def null_count(measured: Iterable[Measured]) -> tuple[float, float] | None:
    """Return the nulls of a column by all its null counts, and their variance; None without null counts.

    >>> both = Measured("x", "nulls", (), (), 2.0, 10), Measured("x", "nulls", (), (), 2.0, 16)
    >>> null_count(both)
    (13.0, 1.0)
    """
    weighted_counts = [(m.missing, 1 / m.variance) for m in measured if m.missing is not None]
    # Weights are inverse variances, as the counts have independent noise.
    weight = math.fsum(w for _, w in weighted_counts)
    return (math.fsum(count * w for count, w in weighted_counts) / weight, 1 / weight) if weighted_counts else None


def _is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_cell(cell: Any, is_number: bool) -> bool:
    """Return whether a value can be the cell of a histogram: a finite number, or text for other kinds."""
    if is_number:
        return isinstance(cell, int | float) and not isinstance(cell, bool) and abs(cell) <= sys.float_info.max
    return isinstance(cell, str | int | float)


@lru_cache(maxsize=8)
def fit_intervals(measured: tuple[Measured, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the rows of the finest intervals by least squares over all counts, and their covariance.

    ``measured``: counts of intervals, or of norms; each histogram divides the intervals of its predecessor.
    """
    finest = measured[-1]
    rows, covariance = np.array(finest.counts, dtype=np.float64), np.diag(np.full(len(finest.counts), finest.variance))
    # Cells of earlier rounds are unions of the finest cells.
    for coarser in reversed(measured[:-1]):
        rows, covariance = update(rows, covariance, coarser.to_observation(finest.cells))
    return rows, covariance


@dataclass(frozen=True)
class Inferred:
    """The cost of a private inference of spaces, and its results in addition to the spaces.

    ``columns`` are the columns with inferred spaces. Their values are always coded without an error, as an error would
    describe a value. ``thresholds`` are the rows, by column, from which values of text and items of sets are found.
    ``receipt`` is the ledger's entry of the spend, if it was entered apart from the release. ``id`` identifies this
    inference: it names the spend wherever the spaces are used again. Plans of older versions have no id.

    ``unit`` is the privacy unit of the noise; older versions wrote none. A plan's own inference without a unit was
    drawn for the plan's unit; one from another plan counts as drawn for a row. ``earlier`` are the inferences of the
    plans that the other plan used: all of them are paid for. ``asked`` are all histograms that inference may measure,
    by column: the spend follows from them. Older versions wrote none. ``rows`` is the number of measured rows, if the
    plan was later made for another number.

    ``step`` is the step that is composed with the rows. Plans of older schemas have no step: there the ``budget`` is
    subtracted from the promise. With a step, ``budget`` only states the cost of inference by itself.
    """

    budget: Budget
    columns: tuple[str, ...]
    measured: tuple[Measured, ...] = ()
    thresholds: tuple[tuple[str, int], ...] = ()
    receipt: str | None = None
    step: Step | None = None
    id: str | None = None
    unit: Unit | None = None
    earlier: tuple[Inferred, ...] = ()
    asked: AskedOf | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if any(one.earlier for one in self.earlier):
            raise PlanError("inferences that are earlier than others are one list; name each in it once")
        # Least squares needs nested cells: every round divides the cells before.
        finest: dict[tuple[str, str], Measured] = {}
        for histogram in self.measured:
            coarser = finest.get((histogram.column, histogram.kind))
            if histogram.kind in INTERVALS and coarser is not None and not set(coarser.cells) <= set(histogram.cells):
                raise PlanError("edges that were measured once must be among those of the same column measured later")
            finest[histogram.column, histogram.kind] = histogram

    @property
    def each(self) -> tuple[Inferred, ...]:
        """This inference, and those that are earlier."""
        return (replace(self, earlier=()), *self.earlier)

    def epsilon_at(self, delta: float) -> float | None:
        """Return the ε of this inference by itself at a δ of at least twice its slack; None without a step."""
        return None if self.step is None else step_epsilon(self.step, max(delta, self.step.delta * 2))

    def replanned(self, rows: int | None, n: int | None) -> Inferred:
        """Return the inference for a plan that is changed from ``rows`` to ``n`` rows; its counts stay."""
        measured_rows = rows if self.rows is None else self.rows
        return replace(self, rows=None if measured_rows == n else measured_rows)

    @property
    def nameless(self) -> Inferred:
        """This inference without its id, unit and histograms: the part that affects how rows are randomised."""
        return replace(
            self, id=None, unit=None, asked=None, rows=None, earlier=tuple(one.nameless for one in self.earlier)
        )

    def of(self, unit: Unit) -> Inferred:
        """Return the inference with this privacy unit if it has none."""
        earlier = tuple(one.of(unit) for one in self.earlier)
        return replace(self, unit=unit if self.unit is None else self.unit, earlier=earlier)

    @classmethod
    def together(cls, found: Sequence[Inferred]) -> Inferred | None:
        """Return several inferences as one: the first, with the others as earlier ones."""
        return replace(found[0], earlier=tuple(found[1:])) if found else None

    def refusal(self, wanted: Unit, own: Unit) -> str | None:
        """Return the reason why the spaces do not suit a privacy unit, or None; ``own`` is the default unit.

        Spaces that were drawn for fewer rows than a person has may reveal a value that only this person has.
        """
        units = [one.unit or own for one in self.each]
        source = next((unit for unit in units if not unit.covers(wanted)), None)
        if source is None:
            return None
        return (
            f"spaces were inferred for {source.words}, and the plan is for {wanted.words}: what only one person has "
            f"may show in them; infer them with {wanted.options}, or declare them"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the inference as a JSON object."""
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "columns": list(self.columns),
            "measured": [histogram.to_json() for histogram in self.measured],
            "thresholds": dict(self.thresholds),
            "receipt": self.receipt,
            **({} if self.step is None else {"mu": self.step.mu, "slack": self.step.delta}),
            **({} if self.id is None else {"id": self.id}),
            **({} if self.unit is None else {"unit": str(self.unit)}),
            **({} if self.asked is None else {"asked": asked_json(self.asked)}),
            **({} if self.rows is None else {"rows": self.rows}),
            **({"earlier": [one.to_json() for one in self.earlier]} if self.earlier else {}),
        }

    @classmethod
    def from_json(cls, data: Any) -> Inferred:
        """Read an inference from a JSON object; `PlanError` for anything else."""
        step = ("mu", "slack")
        required_names = ["epsilon", "delta", "columns", "measured", "thresholds", "receipt"]
        check_names(data, "inferred", required_names, (*step, "id", "unit", "earlier", "asked", "rows"))
        columns, histograms, thresholds = data["columns"], data["measured"], data["thresholds"]
        lists = isinstance(columns, list) and isinstance(histograms, list) and isinstance(thresholds, Mapping)
        if not lists or not all(isinstance(name, str) for name in columns):
            raise PlanError("inferred must list its columns, measured counts and thresholds")
        if not all(type(rows) is int for rows in thresholds.values()) or not isinstance(data["receipt"], str | None):
            raise PlanError("inferred must have whole numbers of rows for thresholds, and text or null for a receipt")
        if not isinstance(data.get("id"), str | None):
            raise PlanError("the id of an inference must be text")
        rows = data.get("rows")
        if rows is not None and (type(rows) is not int or rows < 0):
            raise PlanError("the rows of an inference must be a whole number, at least 0")
        earlier = data.get("earlier", [])
        if not isinstance(earlier, list) or any(isinstance(one, Mapping) and "earlier" in one for one in earlier):
            raise PlanError("inferences that are earlier than others are one list; name each in it once")
        try:
            unit = None if data.get("unit") is None else Unit.of(data["unit"])
        except ParameterError as error:
            raise PlanError(f"the unit of an inference is none: {error}") from None
        return cls(
            Budget(data["epsilon"], data["delta"]),
            tuple(columns),
            tuple(map(Measured.from_json, histograms)),
            tuple(thresholds.items()),
            data["receipt"],
            Step(*(data.get(name) for name in step)) if set(step) & set(data) else None,
            data.get("id"),
            unit,
            tuple(map(cls.from_json, earlier)),
            asked_from_json(data["asked"]) if "asked" in data else None,
            rows,
        )
