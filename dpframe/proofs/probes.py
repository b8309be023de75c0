"""Made-up tables of a plan that differ in persons' rows, and the likelihood ratios of these persons in a release.

A *probe* is a person whose rows have one of two values in every column, by the toss of a coin. Tables that differ in
one coin are neighbours. Somebody who knows all other rows knows a release's exact counts but for this coin: with noise
z, and v the difference that the person makes in a table, the log-ratio of both values is (2·z·v ± ‖v‖²)/2σ². Shuffled
rows add ln Σᵢ P(yᵢ|x)/Q(yᵢ), less the same sum of the other value, with Q the mean law of all rows; unshuffled rows add
the log-ratio of the person's own rows. Any function of a release is a valid statistic: these lose little power.

Other rows have a few values in each column, the anchors, as finer levels and bins of joint tables divide cells that
hold rows. They have the first anchor in every column, or the second, and so on, and probes mix them: a probe's row as a
whole is unlike all others, which hides it least. A plan of one unit and no tables has one other anchor for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.channels import Mechanism
from dpframe.errors import ParameterError
from dpframe.plan.columns import Randomised
from dpframe.plan.levels import children, level_sizes, stops_of
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.plan import Plan
from dpframe.release.info import unpacked
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.cells import item_count, size_starts
from dpframe.spaces.set_bits import set_sizes
from dpframe.tables.metadata import metadata_text
from dpframe.totals.weight_sums import WeightSteps

Codes = Mapping[str, npt.NDArray[Any]]
MOST_PROBES = 48
"""Most probes of a table (limit of time)."""
_ROWS_PER_PROBE = 8
"""Least rows of a table for each row of a probe, so that other rows hide it (tolerance)."""
_ANCHORS = 3
"""Anchors on each side of a column (tolerance)."""
_ANCHOR_SPACING = 32
"""Part of a grid between two anchors: a cell of the first level at least (tolerance)."""
_MOST_LAW_CODES = 1 << 17
"""Most codes of a law that is written out (limit of time)."""
_MOST_AUDITED_PAIRS = 1 << 10
"""Most pairs of items that are counted (limit of time)."""
_CHUNK_ROWS = 1 << 16
"""Released rows whose laws are in memory (limit of memory)."""
_UNAUDITED_ROWS = 1_000
"""Rows of a made-up table, if the plan does not count on any (tolerance)."""


@dataclass(frozen=True)
class Entries:
    """The numbers of a table to which rows add: for each entry its row, its number's place and the added value."""

    rows: IntArray
    places: IntArray
    values: IntArray


def _entries_of(rows: npt.NDArray[Any], places: npt.NDArray[Any], values: Any = 1) -> Entries:
    added = np.broadcast_to(np.asarray(values, dtype=np.int64), rows.shape)
    return Entries(rows.astype(np.int64), places.astype(np.int64), added)


def table_entries(table: MeasuredTable, codes: Codes, spaces: Mapping[str, Space]) -> Entries | None:
    """Return the entries of rows in a table, counted from codes apart from the release; None if they are too many."""
    measure, columns = table.measure, [codes[name] for name in table.measure.columns]
    space, rows = spaces[measure.columns[0]], np.arange(len(columns[0]))
    if measure.kind == "sum":
        is_value = columns[0] < space.values
        return _entries_of(rows[is_value], np.zeros(is_value.sum()), columns[0][is_value].astype(np.int64))
    if measure.kind in ("items", "item_pairs"):
        return _item_entries(columns[0], item_count(space), measure.kind == "item_pairs")
    if measure.kind == "sizes":
        sets: Any = space
        null = sets.is_null(columns[0]) if space.has_null else np.zeros(len(rows), dtype=np.bool_)
        sizes = set_sizes(columns[0][~null].astype(np.uint64))
        return _entries_of(rows[~null], np.searchsorted(size_starts(space), sizes, side="right") - 1)
    if measure.level > 1:
        starts = children(space, measure.level, table.starts[0] or ())
        stops = stops_of(space, level_sizes(space)[measure.level - 1], starts)
        places = np.searchsorted(starts, columns[0].astype(np.int64), side="right") - 1
        is_inside = (places >= 0) & (columns[0] < np.append(stops, 0)[places])
        return _entries_of(rows[is_inside], places[is_inside])
    is_of_weights = measure.kind == "weights"
    cells = [
        _cells(column, spaces[name], starts)
        for name, column, starts in list(zip(measure.columns, columns, table.starts, strict=True))[is_of_weights:]
    ]
    places = np.ravel_multi_index(cells, table.counts.shape)
    if not is_of_weights:
        return _entries_of(rows, places)
    has_weight = columns[0] < space.values
    return _entries_of(rows[has_weight], places[has_weight], WeightSteps.of(space).steps(columns[0][has_weight]))


def _cells(codes: npt.NDArray[Any], space: Space, starts: tuple[int, ...] | None) -> IntArray:
    """Return the cell of each code: of values by their cells' first codes, then one for each special value and null."""
    wide_codes = codes.astype(np.int64)
    if starts is None:
        return wide_codes
    inside = np.searchsorted(starts, wide_codes, side="right") - 1
    return np.where(wide_codes < space.values, inside, wide_codes - space.values + len(starts))


def _item_entries(codes: npt.NDArray[Any], items: int, in_pairs: bool) -> Entries | None:
    bits = np.unpackbits(codes.astype("<u8").view(np.uint8), axis=1, count=items, bitorder="little")
    if not in_pairs:
        return _entries_of(*np.nonzero(bits))
    first, second = np.triu_indices(items, 1)
    return None if len(first) > _MOST_AUDITED_PAIRS else _entries_of(*np.nonzero(bits[:, first] & bits[:, second]))


@dataclass(frozen=True)
class UnitAnchors:
    """The anchors of a unit on two sides, as codes by column: a probe has one of either side."""

    sides: tuple[tuple[Mapping[str, int], ...], tuple[Mapping[str, int], ...]]

    @classmethod
    def of(cls, unit: Randomised) -> UnitAnchors:
        """Return the anchors of a column, or of each column of a group."""
        by_name = {column.name: _column_sides(column.name, column.space) for column in unit.columns}
        count = max(len(side) for sides in by_name.values() for side in sides)
        first, second = (
            tuple({name: sides[place][i % len(sides[place])] for name, sides in by_name.items()} for i in range(count))
            for place in (0, 1)
        )
        return cls((first, second))

    @property
    def all(self) -> tuple[Mapping[str, int], ...]:
        """The anchors of both sides."""
        return self.sides[0] + self.sides[1]


def _column_sides(name: str, space: Space) -> tuple[list[int], list[int]]:
    """Return codes near the lower end of a column's values, and near the upper end; of sets without common items."""
    if space.holds_vectors:
        raise ParameterError(f"column {name!r} holds {space.noun}, which are not audited; leave it out of the plan")
    if space.holds_sets:
        sets: Any = space.inner_space
        size = max(1, min(sets.most, sets.count // 2))
        lowest = (1 << size) - 1
        shifts = range(min(_ANCHORS, max(1, sets.count // 2 - size + 1)))
        return [lowest << i for i in shifts], [lowest << sets.count - size - i for i in shifts]
    last = (space.values or space.size) - 1
    spacing = max(1, last // _ANCHOR_SPACING)
    steps = range(0, spacing * min(_ANCHORS, max(1, (last + 1) // 2)), spacing)
    return list(steps), [last - step for step in steps]


@dataclass(frozen=True)
class Probes:
    """A made-up table for a plan: other rows, then each probe's rows of one side, then of the other.

    ``codes``: codes by column of all these rows. ``count``: number of probes. ``faulty_units``: the plan's units with
    less noise, whose laws a second statistic of rows takes.
    """

    plan: Plan
    codes: Codes
    count: int
    faulty_units: tuple[Randomised, ...]

    @classmethod
    def of(cls, plan: Plan, faulty_units: tuple[Randomised, ...], rng: np.random.Generator) -> Probes:
        """Make the table and the probes of a plan at random."""
        rows = _UNAUDITED_ROWS if plan.n is None else plan.n
        if plan.privacy_id is not None:
            raise ParameterError("plan chooses rows by privacy_id; audit a plan without it, with contributions=")
        per_person = plan.contributions
        count = min(MOST_PROBES, rows // (_ROWS_PER_PROBE * per_person))
        if count < 1 or not plan.columns:
            raise ParameterError("plan has too few rows or no column to audit; raise n with plan.replan(1000)")
        places: dict[str, list[int]] = {}
        other_rows = rng.integers(2 * _ANCHORS, size=rows - count * per_person)
        has_single_anchor = len(plan.units) == 1 and not plan.measures
        for unit in plan.units:
            anchors = UnitAnchors.of(unit)
            width, side = len(anchors.sides[0]), rng.integers(2, size=count)
            # The last anchor is that of all other rows then.
            widths = width, max(1, width - has_single_anchor)
            heads, tails = (
                np.where(side == s, rng.integers(widths[0], size=count), width + rng.integers(widths[1], size=count))
                for s in (0, 1)
            )
            other_anchors = np.full(len(other_rows), 2 * width - 1) if has_single_anchor else other_rows % (2 * width)
            picked = np.concatenate([other_anchors, *(np.repeat(each, per_person) for each in (heads, tails))])
            for column in unit.columns:
                places[column.name] = [anchors.all[i][column.name] for i in picked.tolist()]
        codes = {name: plan.spaces[name].code_array(values) for name, values in places.items()}
        return cls(plan, plan.bound_rules.mended(codes), count, faulty_units)

    per_person: ClassVar[int] = forwarded("plan.contributions")

    @property
    def other_rows(self) -> int:
        """Number of rows of nobody's probe."""
        return len(next(iter(self.codes.values()))) - 2 * self.count * self.per_person

    @cached_property
    def table(self) -> pa.Table:
        """All rows as values; a release is of `present` rows."""
        columns = {name: self.plan.spaces[name].decode(self.codes[name]) for name in self.plan.names}
        length = len(next(iter(columns.values())))
        return pa.table(columns | {name: pa.array(np.zeros(length)) for name in self.plan.passthrough})

    def present(self, coins: npt.NDArray[np.bool_]) -> IntArray:
        """Return the rows of the table in which each probe has the side of its coin, in order."""
        person = np.arange(self.count * self.per_person)
        shift = np.where(np.repeat(coins, self.per_person), 0, self.count * self.per_person)
        return np.concatenate([np.arange(self.other_rows), self.other_rows + person + shift])

    def log_ratios(self, release: pa.Table, coins: npt.NDArray[np.bool_]) -> FloatArray:
        """Return each probe's log-likelihood ratio of heads over tails, given all other coins, shape (3, count).

        The first row is the measured tables' part, the second the released rows', and the third the released rows'
        by the laws of the faulty units.
        """
        description = json.loads(metadata_text(release.schema.metadata) or "{}")
        tables = unpacked(description.get("tables"), self.plan.measures, self.plan.counted_spaces) or ()
        pairs = zip(tables, self.plan.measures, strict=True)
        by_table = [self._table_ratios(table, measure.sigma2, coins) for table, measure in pairs]
        of_tables = np.sum(by_table, axis=0) if by_table else np.zeros(self.count)
        outputs = [law.outputs_of(release) for law in self._unit_laws[0]]
        return np.stack([of_tables, *(self._row_ratios(outputs, laws) for laws in self._unit_laws)])

    @cached_property
    def _counted_codes(self) -> Codes:
        merged = {group.name: group.codes(self.codes) for group in self.plan.indicators}
        return {**self.codes, **merged}

    def _table_ratios(self, table: MeasuredTable, sigma2: float, coins: npt.NDArray[np.bool_]) -> FloatArray:
        """Return (2·z·v ± ‖v‖²)/2σ² of each probe, for the noise z of a table."""
        entries = table_entries(table, self._counted_codes, self.plan.counted_spaces)
        if entries is None:
            return np.zeros(self.count)
        noise = table.counts.astype(np.int64).ravel()
        is_present = np.zeros(len(next(iter(self.codes.values()))), dtype=np.bool_)
        is_present[self.present(coins)] = True
        counted = is_present[entries.rows]
        np.subtract.at(noise, entries.places[counted], entries.values[counted])
        # A row's number among the probes' rows: heads first, then tails.
        number = entries.rows - self.other_rows
        number, places, values = (part[number >= 0] for part in (number, entries.places, entries.values))
        is_tails = number >= self.count * self.per_person
        probe = number // self.per_person - self.count * is_tails
        keys, inverse = np.unique(probe * noise.size + places, return_inverse=True)
        moves = np.bincount(inverse, np.where(is_tails, -values, values), len(keys))
        owners, cells = np.divmod(keys, noise.size)
        inner = np.bincount(owners, moves * noise[cells], self.count)
        return (2 * inner + np.where(coins, 1, -1) * np.bincount(owners, moves**2, self.count)) / (2 * sigma2)

    @cached_property
    def _unit_laws(self) -> tuple[list[UnitLaw], list[UnitLaw]]:
        """The laws of the plan's units, and of the faulty ones."""
        plain, faulty = ([UnitLaw.of(u, self.codes) for u in units] for units in (self.plan.units, self.faulty_units))
        return plain, faulty

    @cached_property
    def _kinds(self) -> tuple[IntArray, FloatArray]:
        """Return a row of each kind: the other rows' kinds, then each probe's heads and tails; and their shares.

        A probe has either side with half a chance.
        """
        columns = np.stack([law.numbers for law in self._unit_laws[0]], axis=1)
        _, firsts, counts = np.unique(columns[: self.other_rows], axis=0, return_index=True, return_counts=True)
        probe_rows = self.other_rows + np.arange(2 * self.count * self.per_person, step=self.per_person)
        weights = np.append(counts, np.full(2 * self.count, self.per_person / 2))
        return np.append(firsts, probe_rows), weights / weights.sum()

    def _row_ratios(self, outputs: list[npt.NDArray[Any]], laws: list[UnitLaw]) -> FloatArray:
        """Return the part of the released rows in each probe's log-ratio, by these laws of their codes."""
        (kinds, shares), rows = self._kinds, len(outputs[0])
        own_rows = self.other_rows + np.arange(self.count * self.per_person)
        if not self.plan.shuffle and self.plan.sample is None:
            by_row = np.sum(
                [law.logs_of(part[own_rows])[law.numbers[kinds]] for law, part in zip(laws, outputs, strict=True)],
                axis=0,
            )
            by_person = by_row[-2 * self.count :].reshape(2, self.count, self.count, self.per_person).sum(axis=3)
            heads, tails = np.diagonal(by_person, axis1=1, axis2=2)
            return np.asarray(heads - tails)
        mixed = np.full(2 * self.count, -np.inf)
        for start in range(0, rows, _CHUNK_ROWS):
            parts = [law.logs_of(part[start : start + _CHUNK_ROWS]) for law, part in zip(laws, outputs, strict=True)]
            logs = np.sum([part[law.numbers[kinds]] for law, part in zip(laws, parts, strict=True)], axis=0)
            scores = logs[-2 * self.count :] - _log_sum(logs + np.log(shares)[:, None], axis=0)
            mixed = np.logaddexp(mixed, _log_sum(scores, axis=1))
        share = rows / (self.other_rows + self.count * self.per_person)
        # A sample leaves a probe's row out with the chance of the rest.
        ratios = np.logaddexp(np.log(max(1 - share, np.finfo(float).tiny)), np.log(share / rows) + mixed)
        return np.asarray(self.per_person * (ratios[: self.count] - ratios[self.count :]))


def _log_sum(logs: FloatArray, axis: int) -> FloatArray:
    """Return ln Σ e^x along an axis, without overflow."""
    largest = logs.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(largest, axis) + np.log(np.exp(logs - largest).sum(axis=axis)))


@dataclass(frozen=True)
class UnitLaw:
    """The law of a unit for the few codes of a made-up table.

    ``values``: its distinct codes, a row of words for each; ``numbers``: the place of each row's code among them.
    ``logs``: ln P(y|x), shape (values, released codes), if the laws are written out.
    """

    unit: Randomised
    values: npt.NDArray[Any]
    numbers: IntArray
    logs: FloatArray | None

    @classmethod
    def of(cls, unit: Randomised, codes: Codes) -> UnitLaw:
        """Return the law for the codes of a table."""
        rows = np.hstack([codes[name].reshape(len(codes[name]), -1) for name in unit.names])
        values, numbers = np.unique(rows, axis=0, return_inverse=True)
        channel, logs = unit.mechanism, None
        if len(unit.names) == 1 and not channel.code_words and channel.outputs <= _MOST_LAW_CODES:
            laws = [channel.law(code) for code in values[:, 0].tolist()]
            logs = np.log(np.maximum(laws, np.finfo(float).tiny))
        return cls(unit, values, numbers.reshape(-1), logs)

    def outputs_of(self, release: pa.Table) -> npt.NDArray[Any]:
        """Return the released codes of the unit, a row of words for each row."""
        columns = [(column.released, release[column.name].combine_chunks()) for column in self.unit.columns]
        return np.hstack([np.asarray(space.encode(array)).reshape(len(array), -1) for space, array in columns])

    def logs_of(self, outputs: npt.NDArray[Any]) -> FloatArray:
        """Return ln P(y|x) of released codes up to a constant for each, shape (values, rows)."""
        if self.logs is not None:
            return np.asarray(self.logs[:, outputs[:, 0].astype(np.int64)])
        if len(self.unit.names) == 1 and not self.unit.mechanism.code_words:
            return np.zeros((len(self.values), len(outputs)))
        return np.array([_log_law(self.unit.mechanism, outputs, value) for value in self.values])


def _log_law(mechanism: Mechanism, outputs: npt.NDArray[Any], value: npt.NDArray[Any]) -> FloatArray:
    """Return ln P(y | value) of released sets or tuples, up to a constant."""
    flips: Any = getattr(mechanism.inner, "flips", None)
    if flips is None:
        response: Any = mechanism
        table = getattr(response, "source", response.table)
        is_equal = (outputs == value).all(axis=1)
        return np.asarray(np.where(is_equal, np.log(float(table.keep)), np.log(float(table.threshold))))
    shown_items = np.bitwise_count(outputs & value).sum(axis=1).astype(np.int64)
    extra_items = np.bitwise_count(outputs).sum(axis=1).astype(np.int64) - shown_items
    hidden_items = int(np.bitwise_count(value).sum()) - shown_items
    # Items in the set are shown with p and hidden with 1 − p, others with q and 1 − q.
    logs = np.log([float(n) for n in (flips.ones, flips.total - flips.ones, flips.zeros, flips.total - flips.zeros)])
    return np.asarray(
        shown_items * logs[0]
        + hidden_items * logs[1]
        + extra_items * (logs[2] - logs[3])
        - hidden_items * logs[3]
        - shown_items * logs[3]
    )
