"""What private inference paid for, as it stays in the plan: its spend, and its noisy counts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, step_epsilon
from dpframe.accounting.unit import Unit
from dpframe.errors import ParameterError, PlanError
from dpframe.plan.asked import KINDS, AskedOf, asked_from_json, asked_json
from dpframe.spaces.json_form import check_names, from_object, to_object

UNITS = ("D", "s", "ms", "us", "ns")
"""Units of times; days are those of dates."""

NULLS_SHOW = 3.0
"""Standard errors by which nulls must show, to be a value of the column."""

_LEAST_VARIANCE, _MOST_VARIANCE = 1e-9, 1e30
"""Variances between which no weight of a count overflows; those of inference are far within."""

_INTERVALS = ("intervals", "norms")


@dataclass(frozen=True)
class Measured:
    """Noisy counts of one histogram, as inference paid for them.

    ``kind`` says what ``cells`` are: of ``"intervals"`` the edges between cells, one fewer than counts: cell i is
    [cells[i−1], cells[i]), the outermost without end, times in the column's unit since 1970; of ``"steps"`` the widest
    that divides a value, 0 where none does; of ``"values"`` and ``"items"`` those that reached the threshold, others
    being unknown; of ``"ranks"`` the same in a declared order; ``"nulls"`` has none; of ``"kinds"`` the kinds that
    objects may be of; of ``"lengths"`` the lengths of lists whose counts exceed their noise; ``"norms"`` has
    edges, as intervals have, of the lists' ℓ2 norms.
    ``missing`` is the noisy count of nulls, where they may occur; of objects, of all that are not of the kind found,
    and, apart from these, norms of lists that are no vector of the length found.
    ``unit`` is the unit of times. All counts have noise of the same variance, and may be negative.
    """

    column: str
    kind: str
    cells: tuple[Any, ...]
    counts: tuple[int, ...]
    variance: float
    missing: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.variance, int | float) and not isinstance(self.variance, bool)
        spread = number and _LEAST_VARIANCE <= self.variance <= _MOST_VARIANCE
        whole = isinstance(self.counts, tuple) and all(map(_is_count, self.counts))
        missing = self.missing is None or _is_count(self.missing)
        if self.kind not in KINDS or self.unit not in (None, *UNITS):
            raise PlanError(
                f"the kind of measured counts must be one of {', '.join(KINDS)}, "
                f"and the unit of measured times one of {', '.join(UNITS)}"
            )
        numbers = self.kind in _INTERVALS
        if not isinstance(self.cells, tuple) or not all(_is_cell(cell, numbers) for cell in self.cells):
            raise PlanError("cells of measured counts must be numbers between intervals, else values, items or kinds")
        if not (isinstance(self.column, str) and whole and spread and missing):
            raise PlanError("measured counts must be whole numbers of 64 bits, with a variance from 1e-9 to 1e30")
        if len(self.counts) != len(self.cells) + numbers:
            raise PlanError("measured counts must be as many as cells, and one more than edges between intervals")
        if numbers and any(low >= high for low, high in pairwise(self.cells)):
            raise PlanError("edges between intervals of measured counts must ascend")
        object.__setattr__(self, "variance", float(self.variance))

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return to_object(self, sparse=["unit"])

    @classmethod
    def from_json(cls, data: Any) -> Measured:
        """Read the counts back; `PlanError` for anything else."""
        return from_object(cls, data, "a measured column")


def _is_count(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_cell(cell: Any, number: bool) -> bool:
    if number:
        return isinstance(cell, int | float) and not isinstance(cell, bool) and abs(cell) <= sys.float_info.max
    return isinstance(cell, str | int | float)


@dataclass(frozen=True)
class Inferred:
    """What private inference of spaces cost, and what came of it in addition to the spaces.

    ``columns`` are those whose space was inferred: whatever they hold is coded without complaint, as a refusal would
    describe a value. ``thresholds`` are the rows, by column, from which values of text and items of sets are found.
    ``receipt`` is the ledger's entry of the spend, if it was entered apart from the release. ``id`` is this inference's
    and no other's: it names the spend wherever the spaces are used again. Plans of older versions have none.
    ``unit`` is what it was drawn for; older versions wrote none: what a plan found itself was drawn for the plan's own
    unit, and what it took from another counts as drawn for a row. ``earlier`` are those whose spaces that other
    plan had taken itself: all of them are paid for. ``asked`` are all histograms that might have been asked of every
    column, with any content: what was spent follows from them. Older versions wrote none. ``rows`` is how many rows
    were measured where a plan was made for another number afterwards.

    ``step`` is what is composed with the rows. Plans of older schemas have none: there the ``budget``, which else only
    says what inference would cost by itself, is subtracted from the promise.
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
        finest: dict[tuple[str, str], Measured] = {}
        for measured in self.measured:
            before = finest.get((measured.column, measured.kind))
            if measured.kind in _INTERVALS and before is not None and not set(before.cells) <= set(measured.cells):
                raise PlanError("edges that were measured once must be among those of the same column measured later")
            finest[measured.column, measured.kind] = measured

    @property
    def each(self) -> tuple[Inferred, ...]:
        """This inference, and those that are earlier."""
        return (replace(self, earlier=()), *self.earlier)

    def epsilon_at(self, delta: float) -> float | None:
        """Return the ε that it costs by itself at a δ, at least twice its slack; None without a step."""
        return None if self.step is None else step_epsilon(self.step, max(delta, self.step.delta * 2))

    def replanned(self, rows: int | None, n: int | None) -> Inferred:
        """Return it in a plan for ``n`` rows that was one for ``rows``: its counts are still of those measured."""
        measured = rows if self.rows is None else self.rows
        return replace(self, rows=None if measured == n else measured)

    @property
    def nameless(self) -> Inferred:
        """What matters for how rows are randomised: not which inference it was, for whom, and what it asked."""
        return replace(
            self, id=None, unit=None, asked=None, rows=None, earlier=tuple(one.nameless for one in self.earlier)
        )

    def of(self, unit: Unit) -> Inferred:
        """Return it as drawn for a unit where it says none itself."""
        earlier = tuple(one.of(unit) for one in self.earlier)
        return replace(self, unit=unit if self.unit is None else self.unit, earlier=earlier)

    @classmethod
    def together(cls, found: Sequence[Inferred]) -> Inferred | None:
        """Return several inferences as one that has the others for earlier ones."""
        return replace(found[0], earlier=tuple(found[1:])) if found else None

    def refusal(self, wanted: Unit, own: Unit) -> str | None:
        """Say in one line why its spaces are not for a unit, or None where they are; ``own`` is its own if it has none.

        A value that only one person has may show in spaces that were drawn for less than all of the person's rows.
        """
        units = [one.unit or own for one in self.each]
        drawn = next((unit for unit in units if not unit.covers(wanted)), None)
        if drawn is None:
            return None
        return (
            f"spaces were inferred for {drawn.words}, and the plan is for {wanted.words}: what only one person has "
            f"may show in them; infer them with {wanted.options}, or declare them"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "columns": list(self.columns),
            "measured": [measured.to_json() for measured in self.measured],
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
        """Read it back; `PlanError` for anything else."""
        step = ("mu", "slack")
        needed = ["epsilon", "delta", "columns", "measured", "thresholds", "receipt"]
        check_names(data, "inferred", needed, (*step, "id", "unit", "earlier", "asked", "rows"))
        columns, measured, thresholds = data["columns"], data["measured"], data["thresholds"]
        lists = isinstance(columns, list) and isinstance(measured, list) and isinstance(thresholds, Mapping)
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
            tuple(map(Measured.from_json, measured)),
            tuple(thresholds.items()),
            data["receipt"],
            Step(*(data.get(name) for name in step)) if set(step) & set(data) else None,
            data.get("id"),
            unit,
            tuple(map(cls.from_json, earlier)),
            asked_from_json(data["asked"]) if "asked" in data else None,
            rows,
        )
