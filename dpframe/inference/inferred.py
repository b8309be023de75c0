"""Private inference as a plan stores it: its spend, and its noisy counts."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, step_epsilon
from dpframe.accounting.unit import Unit
from dpframe.errors import ParameterError, PlanError
from dpframe.inference.histogram_specs import (
    HISTOGRAM_KINDS,
    MAX_COUNT_VARIANCE,
    MIN_COUNT_VARIANCE,
    HistogramSpecs,
    specs_from_json,
    specs_to_json,
)
from dpframe.observe.observation import Observation, Runs
from dpframe.spaces.json_form import check_names, from_object, to_object

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
    nulls, and norms count lists of another length. ``unit`` is the unit of times. ``words`` is the noisy count of words
    among numbers, which are neither in a cell nor null. All counts have equal noise variance, and may be negative.
    """

    column: str
    kind: str
    cells: tuple[Any, ...]
    counts: tuple[int, ...]
    variance: float
    missing: int | None = None
    unit: str | None = None
    words: int | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.variance, int | float) and not isinstance(self.variance, bool)
        has_valid_variance = is_number and MIN_COUNT_VARIANCE <= self.variance <= MAX_COUNT_VARIANCE
        has_whole_counts = isinstance(self.counts, tuple) and all(map(_is_count, self.counts))
        has_valid_missing = all(count is None or _is_count(count) for count in (self.missing, self.words))
        if self.kind not in HISTOGRAM_KINDS or self.unit not in (None, *UNITS):
            raise PlanError(
                f"the kind of measured counts must be one of {', '.join(HISTOGRAM_KINDS)}, "
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

    @property
    def rows_in_no_cell(self) -> int:
        """Noisy count of the rows that are null, or a word among numbers; it may be negative."""
        return (self.missing or 0) + (self.words or 0)

    @property
    def variance_in_no_cell(self) -> float:
        """Variance of this number of rows."""
        return self.variance * ((self.missing is not None) + (self.words is not None))

    def to_observation(self, edges: Sequence[Any]) -> Observation:
        """Return the counts of intervals as an observation of finer cells, whose edges include these."""
        places = {edge: place for place, edge in enumerate(edges, 1)}
        runs = Runs.between([0, *(places[edge] for edge in self.cells), len(edges) + 1])
        return Observation(runs, np.array(self.counts, dtype=np.float64), np.full(len(self.counts), self.variance))

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return to_object(self, sparse=["unit", "words"])

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
    return _precision_mean([(m.missing, 1 / m.variance) for m in measured if m.missing is not None])


def word_count(measured: Iterable[Measured]) -> tuple[float, float] | None:
    """Return the rows with words among numbers by all their counts, and the variance; None without these counts."""
    return _precision_mean([(m.words, 1 / m.variance) for m in measured if m.words is not None])


def _precision_mean(weighted_counts: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """Return the mean of independent counts by their inverse variances, and its variance; None without counts."""
    weight = math.fsum(w for _, w in weighted_counts)
    return (math.fsum(count * w for count, w in weighted_counts) / weight, 1 / weight) if weighted_counts else None


def hidden_word_count(measured: Sequence[Measured]) -> tuple[float, float]:
    """Return the rows of words below the threshold of a column of numbers and words, and the variance of this number.

    >>> words = Measured("x", "values", ("refused",), (30,), 2.0)
    >>> hidden_word_count([words, Measured("x", "intervals", (5,), (9, 9), 2.0, words=40)])
    (10.0, 4.0)
    """
    words = word_count(measured)
    if words is None:
        return 0.0, 0.0
    listed = [m for m in measured if m.kind == "values"]
    return words[0] - sum(sum(m.counts) for m in listed), words[1] + sum(len(m.counts) * m.variance for m in listed)


def _is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_cell(cell: Any, is_number: bool) -> bool:
    """Return whether a value can be the cell of a histogram: a finite number, or text for other kinds."""
    if is_number:
        return isinstance(cell, int | float) and not isinstance(cell, bool) and abs(cell) <= sys.float_info.max
    return isinstance(cell, str | int | float)


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
    asked: HistogramSpecs | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if any(one.earlier for one in self.earlier):
            raise PlanError("earlier inferences must be one list that names each once")
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
            **({} if self.asked is None else {"asked": specs_to_json(self.asked)}),
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
            raise PlanError("earlier inferences must be one list that names each once")
        try:
            unit = None if data.get("unit") is None else Unit.of(data["unit"])
        except ParameterError as error:
            raise PlanError(f"the unit of an inference is invalid: {error}") from None
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
            specs_from_json(data["asked"]) if "asked" in data else None,
            rows,
        )
