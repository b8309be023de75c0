"""A table for plain pandas: rows drawn from what a release says, given each released row, or fresh ones.

Columns of few values and numbers are drawn together, from the mixture that is fitted to measured tables and rows.
Numbers then fall into a fine cell, and on a code of it. Columns that the mixture does not hold are drawn by themselves:
sets at their sizes and their items' supports, others from their distribution. Drawing from what is public costs
no budget.

A class is drawn with the weights w_k ∏_c (C_c L_k)(y_c), and given it every cell with L_k(x)·C_c(y_c | x). Draws of
one column for rows of one class and one released value are spread evenly over the law (systematic sampling, in an
order of their own): every cell has its probability, and counts vary less than independent draws would.

Rows that break one of the plan's rules exchange values with others, so that every column keeps its shares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import DpframeWarning, ParameterError, check_whole, warn
from dpframe.estimate import sets
from dpframe.estimate.axes import Axis, ListedAxis
from dpframe.estimate.evidence.law import Law
from dpframe.estimate.evidence.likelihood import expectation_maximization
from dpframe.estimate.model import Models
from dpframe.estimate.surrogates import Codes, count_classes
from dpframe.estimate.table_column import tilt_to_mean
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.estimate.tables.guard import SURELY
from dpframe.estimate.tables.mixture import Mixture
from dpframe.estimate.tables.raking import MOST_PLACES, exchange, raked
from dpframe.estimate.tables.tables import dependence_score
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.columns import Column
from dpframe.plan.rules import BoundRule
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.tables.released import SYNTHETIC, Source

CHUNK = 16_384
"""Rows whose classes are drawn at once: their weights stay in cache (limit of memory)."""

TABLE_CELLS = 4_096
"""Classes of several columns together whose likelihoods fit into one table (limit of memory)."""


def draw_given(
    mixture: Mixture,
    channels: Sequence[FloatArray],
    codes: Sequence[npt.NDArray[np.integer]],
    generator: np.random.Generator,
) -> list[IntArray]:
    """Draw for every released row the cells of an original row, given the released one.

    ``mixture``: the fit; every one of its starts serves its part of the rows, in turn. ``channels``: p(class | cell) of
    every column, shape (classes, cells). ``codes``: released classes of every column.

    Returns
    -------
    list of arrays
        Cells of every column, in the order of rows.
    """
    found = [np.zeros(len(codes[0]), dtype=np.int64) for _ in codes]
    for f in range(mixture.fits):
        part, rows = mixture.fit(f), slice(f, None, mixture.fits)
        released = [np.asarray(code[rows], dtype=np.int64) for code in codes]
        classes = _draw_classes(part, channels, released, generator)
        for column, (law, channel, code) in enumerate(zip(part.laws, channels, released, strict=True)):
            # Shape (class of the mixture, released class, cell).
            laws = (law[:, None, :] * channel[None, :, :]).reshape(-1, law.shape[1])
            found[column][rows] = _draw_cells(laws, classes * channel.shape[0] + code, generator)
    return found


def draw_fresh(mixture: Mixture, rows: int, generator: np.random.Generator) -> list[IntArray]:
    """Draw new rows from the mixture."""
    classes = _draw_cells(mixture.weights[None, :], np.zeros(rows, dtype=np.int64), generator)
    return [_draw_cells(law, classes, generator) for law in mixture.laws]


def draw_within(
    fine: FloatArray,
    bins: IntArray,
    drawn: IntArray,
    generator: np.random.Generator,
    channel: FloatArray | None = None,
    codes: npt.NDArray[np.integer] | None = None,
) -> IntArray:
    """Draw a number's cell, of the shares ``fine``, within each row's bin, given its released class if there is one."""
    count = int(bins.max()) + 1
    inside = (bins[None, :] == np.arange(count)[:, None]).astype(np.float64)
    laws = inside * (fine + 1e-12)
    if channel is None or codes is None:
        return _draw_cells(laws, drawn, generator)
    given = (laws[:, None, :] * channel[None, :, :]).reshape(-1, len(bins))
    return _draw_cells(given, drawn * channel.shape[0] + np.asarray(codes, dtype=np.int64), generator)


def count_below(codes: range, ends: IntArray) -> IntArray:
    """Return how many of some codes lie below each end.

    >>> count_below(range(2, 12, 4), np.array([0, 2, 3, 7, 20])).tolist()
    [0, 0, 1, 2, 3]
    """
    return np.clip(-((codes.start - ends) // codes.step), 0, len(codes))


def nearest_of(codes: range, drawn: IntArray) -> IntArray:
    """Return the nearest of some codes to each that was drawn: means stay, as rows are spread evenly within cells."""
    places = np.rint((drawn - codes.start) / codes.step).astype(np.int64)
    return codes.start + codes.step * np.clip(places, 0, len(codes) - 1)


def _draw_classes(
    mixture: Mixture, channels: Sequence[FloatArray], codes: Sequence[IntArray], generator: np.random.Generator
) -> IntArray:
    """Draw every row's class from w_k ∏ (C_c L_k)(y_c)."""
    likelihoods = [channel @ law.T for law, channel in zip(mixture.laws, channels, strict=True)]
    # Relative to its mean over classes, lest a product of many columns vanish.
    relative = [(like / np.maximum(like @ mixture.weights, 1e-30)[:, None]).astype(np.float32) for like in likelihoods]
    # Columns of few classes are joined into tables of their products.
    tables = [(relative[0], codes[0])]
    for like, code in zip(relative[1:], codes[1:], strict=True):
        table, place = tables[-1]
        if len(table) * len(like) <= TABLE_CELLS:
            product = (table[:, None, :] * like[None, :, :]).reshape(-1, like.shape[1])
            tables[-1] = product, place * len(like) + code
        else:
            tables.append((like, code))
    weights, found = mixture.weights.astype(np.float32), np.zeros(len(codes[0]), dtype=np.int64)
    for start in range(0, len(found), CHUNK):
        rows = slice(start, start + CHUNK)
        mass = np.broadcast_to(weights, (len(found[rows]), len(weights)))
        for table, place in tables:
            mass = mass * table[place[rows]]
        levels = np.cumsum(mass, axis=1)
        aim = generator.random(len(levels), dtype=np.float32) * levels[:, -1]
        found[rows] = np.minimum((levels <= aim[:, None]).sum(axis=1), len(weights) - 1)
    return found


def _draw_cells(laws: FloatArray, keys: IntArray, generator: np.random.Generator) -> IntArray:
    """Draw a cell for every row from the law of its key, shape (keys, cells), evenly over the rows of a key."""
    totals = laws.sum(axis=1, keepdims=True)
    levels = np.cumsum(np.where(totals > 0, laws / np.where(totals > 0, totals, 1.0), 1 / laws.shape[1]), axis=1)
    order = generator.permutation(len(keys))
    order = order[np.argsort(keys[order], kind="stable")]
    counts = np.bincount(keys, minlength=len(laws))
    first = np.cumsum(counts) - counts
    sorted_keys = keys[order]
    rank = np.arange(len(keys)) - first[sorted_keys]
    aim = (rank + generator.random(len(laws))[sorted_keys]) / counts[sorted_keys]
    levels = levels + np.arange(len(laws))[:, None]
    levels[:, -1] = np.arange(1, len(laws) + 1)
    cells = np.searchsorted(levels.ravel(), sorted_keys + aim, side="right") - sorted_keys * laws.shape[1]
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = np.clip(cells, 0, laws.shape[1] - 1)
    return found


MOST_LAW_CELLS = 1 << 24
"""Entries of a column's laws given class and released class up to which its released value is heard (limit of
memory)."""

MOST_LISTED = 4_097
"""Values of a column by itself up to which its distribution is fitted (limit of time)."""

MOST_HEARD = 100
"""Triples of columns, those of the fewest cells, whose rows are asked for structure that pairs do not hold (limit of
time)."""

MOST_TRIPLE = 1 << 15
"""Classes of such a triple: with more, rows are too few to show anything (limit of time)."""

MOST_RAKED, MOST_RAKED_CELLS = 200, 1 << 11
"""Triples that drawn rows are raked to, and cells of one: more cost more time than they bring (limit of time)."""

LOUD = 0.2
"""Distance from independence that noise makes, from which on it hides most of what columns have in common (tuned;
effect not measured)."""

MOST_SHIFTS, MOST_SHIFTED = 40, 1 << 22
"""Times that items are shifted towards their supports, and chances of items, of some of the rows, that say how far
(limit of time)."""

_NEVER = 1e-9
"""Chance of an item that is hardly ever drawn: shifts leave it so (tolerance)."""


def check_rows(n_rows: Any) -> int | None:
    """Return a number of fresh rows, or raise `ParameterError`."""
    remedy = "; leave it out for a row for each released one"
    return None if n_rows is None else check_whole(n_rows, "n_rows", of="rows", remedy=remedy)


def make_generator(random_state: Any) -> np.random.Generator:
    """Return a generator from a seed, from one, or from fresh entropy."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0
    if random_state is not None and not whole:
        raise ParameterError("random_state must be a whole number, a numpy Generator or None; give e.g. 0")
    return np.random.default_rng(random_state)


def midnight_codes(source: Source, name: str, law_of: Callable[[str], Law]) -> range:
    """Return the codes of midnights if a column's counts show no time of day; none for other columns."""
    midnights = source.plan[name].space.inner_space.midnights
    is_lost = name in {one.column for one in source.plan.not_found}
    if not midnights or not source.n or source.zone(name) is not None or is_lost:
        return range(0)
    law = law_of(name)
    between = np.zeros(law.cells)
    between[: law.bins] = np.diff(count_below(midnights, law.ends)) == 0
    share, _, lower, _ = law.parts_of(between[None, :], 0.0, DETECTION_SE)[:, 0]
    spread_evenly = float(between[: law.bins] @ law.widths) / float(law.widths.sum())
    # Cells were cut where their own noise was large, so that the share is above 0 by more than its error, too.
    return range(0) if lower > 0 and share > spread_evenly / 2 else midnights


class Synthesizer:
    """Draws rows of one release."""

    def __init__(
        self,
        source: Source,
        models: Models,
        supports: Mapping[str, sets.Held],
        law: Callable[[str], Law],
        empty: Callable[[Axis], Sequence[int]],
    ) -> None:
        self._source, self._model, self._law = source, models.whole, law
        self._supports, self._empty, self._laws = supports, empty, dict[str, Mixture]()

    @property
    def text(self) -> str:
        """What synthetic rows say about themselves, in place of a release's description."""
        info = self._source.info
        told: dict[str, Any] = {"release": None if info is None else info.digest, "rows": self._source.rows}
        pairs = self.fidelity.iloc[len(self._source.plan.names) :]
        told |= {"not_found": list(self.not_found), "pairs": len(pairs), "pairs_that_show": int(pairs["shows"].sum())}
        return json.dumps({SYNTHETIC: told | {"epsilon_spent": 0}})

    @property
    def not_found(self) -> tuple[str, ...]:
        """The columns that are null in synthetic rows: private inference did not find their spaces."""
        missing = {one.column for one in self._source.plan.not_found} - set(self._source.missing)
        return tuple(name for name in self._source.plan.names if name in missing)

    @cached_property
    def fidelity(self) -> pd.DataFrame:
        """What synthetic rows hold, by column and pair."""
        model = self._model
        lost = {missing.column for missing in self._source.plan.not_found}
        rows: dict[tuple[str, str], tuple[str, float, float, float, bool]] = {}
        for name in self._source.plan.names:
            found, source = name not in lost, "none"
            if found:
                source = model.tables.source_of([name]) if name in model.columns else "rows"
            rows[name, ""] = (source, math.nan, math.nan, math.nan, found)
        known = model.evidence.row_pairs | model.evidence.pairs
        for i, j in combinations(range(len(model.names)), 2):
            names, table = (model.names[i], model.names[j]), known.get((i, j))
            if lost & set(names) or table is None:
                rows[names] = ("none", math.nan, math.nan, math.nan, False)
                continue
            joint = model.fit.joint((i, j))
            margins = [joint.sum(axis=1), joint.sum(axis=0)]
            dependence = float(np.abs(joint - np.outer(*margins)).sum() / 2)
            if table.channels:
                margins = [channel @ margin for channel, margin in zip(table.channels, margins, strict=True)]
            score = dependence_score(table.counts, table.variances, margins)
            # The mean distance that such noise makes of independent columns: σ√(2/π) in a cell.
            total, apart = max(float(table.counts.sum()), 1.0), float(np.sqrt(table.variances).sum())
            noise = apart * math.sqrt(2 / math.pi) / 2 / total
            rows[names] = model.tables.source_of(names), dependence, noise, score, score > DETECTION_SE
        index = pd.MultiIndex.from_tuples(list(rows), names=["column", "with"])
        return pd.DataFrame(
            list(rows.values()), index, columns=["source", "dependence", "noise", "deviations", "shows"]
        )

    def warn_of_hidden(self) -> None:
        """Warn where the rows show structure of three columns that pairs, and so synthetic rows, do not hold."""
        names = self._model.names
        if len(names) < 3 or not self._model.tables:
            return
        members, sizes = self._model.columns, {name: member.cells for name, member in self._model.columns.items()}
        triples = sorted(combinations(names, 3), key=lambda triple: math.prod(sizes[name] for name in triple))
        classes = {triple: math.prod(members[name].axis.classes for name in triple) for triple in triples[:MOST_HEARD]}
        asked = [triple for triple, size in classes.items() if size <= MOST_TRIPLE]
        heard = self._model.guarded(asked, SURELY)
        found = [triple for triple, guarded in zip(asked, heard, strict=True) if guarded is not None]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            warn(
                f"the release's rows show structure of {', '.join(map(repr, found[0]))} together{more} that synthetic "
                "rows do not hold; ask the release itself with joint([…])",
                DpframeWarning,
            )

    @cached_property
    def _mixture(self) -> Mixture:
        """The model's mixture without the cells that results do not show."""
        mixture, laws = self._model.fit.mixture, []
        for law, member in zip(mixture.laws, self._model.columns.values(), strict=True):
            kept = np.ones(member.cells)
            kept[[] if member.is_cut else list(self._empty(member.axis))] = 0.0
            shown = law * kept
            totals = shown.sum(axis=1, keepdims=True)
            laws.append(np.where(totals > 0, shown / np.where(totals > 0, totals, 1.0), kept / max(kept.sum(), 1.0)))
        return replace(mixture, laws=tuple(laws))

    @cached_property
    def _heard(self) -> dict[str, bool]:
        """Which columns' released values are heard: of a group, whose noise is common, the first column's."""
        plan, taken, found = self._source.plan, set(), {}
        for name, member in self._model.columns.items():
            group = plan.group_of(name)
            entries = len(self._mixture.weights) // self._mixture.fits * member.axis.classes * member.axis.cells
            found[name] = entries <= MOST_LAW_CELLS and (group is None or group.names not in taken)
            if group is not None and found[name]:
                taken.add(group.names)
        return found

    @cached_property
    def _shares(self) -> dict[str, FloatArray]:
        return {name: self._model.fine(name) for name in self._model.names}

    @cached_property
    def _midnights(self) -> dict[str, range]:
        """Codes of midnights of each column of times whose counts show no time of day; none of other columns."""
        return {name: midnight_codes(self._source, name, self._law) for name in self._model.columns}

    @cached_property
    def _measured(self) -> dict[tuple[int, ...], FloatArray]:
        """Shares of triples, of the tables that were measured, of their pairs and of columns, the largest first.

        The mixture is only near them, and draws of rows have chance of their own. What comes last is met best: the
        smallest, whose noise is least. Triples are those of measured pairs: drawn rows by themselves are farther from
        their estimates than these are from the table.
        """
        tables = [tuple(sorted(table.columns)) for table in self._model.evidence.measured if len(table.columns) > 1]
        parts = {part for columns in tables for size in (1, 2) for part in combinations(columns, size)}
        cells = [member.cells for member in self._model.columns.values()]
        near = {
            a: {b for pair in parts if len(pair) == 2 and pair[0] == a for b in pair[1:]} for a in range(len(cells))
        }
        sizes = {(a, b, c): cells[a] * cells[b] * cells[c] for a in near for b in near[a] for c in near[a] & near[b]}
        few = sorted((size, triple) for triple, size in sizes.items() if size <= MOST_RAKED_CELLS)
        # Of so many rows that tables would be gone through once, chance is small.
        room = MOST_PLACES // max(self._source.rows, 1) - len(parts)
        triples = [triple for _, triple in few[: max(0, min(MOST_RAKED, room))]]
        whole = sorted({*tables, *parts, *triples}, key=lambda columns: (-len(columns), columns))
        own = {(i,): self._model.evidence.one_ways[i] for i, n in enumerate(self._model.names) if n in self._ruled}
        return {columns: self._restricted(columns) for columns in whole} | own

    def _restricted(self, columns: tuple[int, ...]) -> FloatArray:
        """Return the joint of columns, 0 in cells that rules exclude, with each column's own shares."""
        joint, rules = self._model.fit.joint(columns), self._source.plan.bound_rules
        names = [self._model.names[c] for c in columns]
        never = rules.impossible({n: self._stretches[n] for n in names if n in self._ruled}) if self._ruled else None
        if never is None:
            return joint
        places = [i for i, name in enumerate(names) if name in self._ruled]
        kept = np.where(np.expand_dims(never, [i for i in range(joint.ndim) if i not in places]), 0.0, joint)
        return fit_to_margins(kept, {(i,): self._model.fit.joint((c,)) for i, c in enumerate(columns)})

    def given(self, released: Codes, generator: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        """Draw the codes of original rows, one for each released row, given that row."""
        return self._drawn(released, len(next(iter(released.values()))), generator)

    def fresh(self, rows: int, generator: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        """Draw the codes of new rows."""
        return self._drawn(None, rows, generator)

    def _drawn(self, released: Codes | None, rows: int, generator: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        cells, rules = self._cells(released, rows, generator), self._source.plan.bound_rules
        broken = np.zeros(rows, dtype=np.bool_)
        if self._ruled:
            excludes = [(rule.names, partial(self._excludes, rule)) for rule in rules.rules]
            broken = exchange(cells, excludes, generator)
        if cells:
            # Parts of rows in order are not like the table.
            aims = self._measured if released is None or self._source.plan.shuffle else {}
            found = raked(list(cells.values()), self._sizes_of(cells), aims, generator, broken)
            cells = dict(zip(cells, found, strict=True))
        drawn = self._codes(cells, released, generator)
        if self._ruled:
            exchange(drawn, [(rule.names, rule.breaks) for rule in rules.rules], generator, within=cells)
            drawn = dict(rules.mended(drawn))
        for column in self._others:
            if column.name not in drawn:
                drawn[column.name] = self._alone(column, released, rows, generator)
        return drawn

    def _excludes(self, rule: BoundRule, cells: Mapping[str, IntArray]) -> npt.NDArray[np.bool_]:
        """Return which rows no codes in their cells would let keep a rule."""
        ends = {name: self._stretches[name] for name in rule.names}
        return rule.impossible({name: (ends[name][0][cells[name]], ends[name][1][cells[name]]) for name in rule.names})

    @cached_property
    def _stretches(self) -> dict[str, tuple[IntArray, IntArray]]:
        """The first code of every cell of the rules' columns, and the code after the last."""
        found = {}
        for name in self._ruled:
            if name in self._model.columns:
                member = self._model.columns[name]
                starts, stops = member.axis.stretches
                first = np.searchsorted(member.bins, np.arange(member.cells))
                last = np.searchsorted(member.bins, np.arange(member.cells), side="right") - 1
                found[name] = starts[first], stops[last]
            else:
                codes = np.arange(self._source.plan[name].space.size)
                found[name] = codes, codes + 1
        return found

    def _cells(self, released: Codes | None, rows: int, generator: np.random.Generator) -> dict[str, IntArray]:
        """Draw the cells of the mixture's columns, and the codes of the rules' other columns."""
        members, found = self._model.columns, []
        if released is None:
            found = draw_fresh(self._mixture, rows, generator) if members else []
        elif members:
            channels = [m.channel if self._heard[n] else np.ones((1, m.cells)) for n, m in members.items()]
            found = draw_given(self._mixture, channels, list(self._classes(released, members).values()), generator)
        alone = [c for c in self._others if c.name in self._ruled]
        return dict(zip(members, found, strict=True)) | {
            column.name: self._alone(column, released, rows, generator).astype(np.int64) for column in alone
        }

    def _classes(self, released: Codes, names: Iterable[str]) -> dict[str, IntArray]:
        """Return released classes of the mixture's columns, 0 in all rows of a column whose values are not used."""
        members = self._model.columns
        return {
            n: members[n].axis.classify(released[n]) if self._heard[n] else np.zeros(len(released[n]), dtype=np.int64)
            for n in names
        }

    def _codes(
        self, cells: Mapping[str, IntArray], released: Codes | None, generator: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Draw codes within cells."""
        members, drawn = self._model.columns, {}
        held = [name for name in cells if name in members and members[name].is_cut]
        classes = {} if released is None else self._classes(released, held)
        for name, cell in cells.items():
            if name in held:
                member, own = members[name], classes.get(name)
                channel = None if own is None or not self._heard[name] else member.axis.channel
                cell = draw_within(self._shares[name], member.bins, cell, generator, channel, own)
            drawn[name] = self._within(name, cell, generator).astype(np.uint64)
        return drawn

    def _sizes_of(self, names: Iterable[str]) -> list[int]:
        members, plan = self._model.columns, self._source.plan
        return [members[name].cells if name in members else plan[name].space.size for name in names]

    @cached_property
    def _ruled(self) -> tuple[str, ...]:
        """The columns of the plan's rules; none if the release has lost one."""
        names = self._source.plan.bound_rules.names
        return names if {*names} <= {*self._model.names, *(column.name for column in self._others)} else ()

    def _within(self, name: str, cell: IntArray, generator: np.random.Generator) -> IntArray:
        """Draw codes in a column's fine cells, of times without a time of day the nearest midnights."""
        if name not in self._model.columns:
            return cell
        axis = self._model.columns[name].axis
        starts, stops = axis.stretches
        found, widths = starts[cell], (stops - starts)[cell]
        wide = widths > 1
        if wide.any():
            found[wide] += generator.integers(0, widths[wide])
        midnights = self._midnights[name]
        return np.where(cell < axis.bins, nearest_of(midnights, found), found) if midnights else found

    @cached_property
    def _others(self) -> list[Column]:
        plan, missing = self._source.plan, self._source.missing
        return [c for c in plan.columns if c.name not in self._model.columns and c.name not in missing]

    def _alone(
        self, column: Column, released: Codes | None, rows: int, generator: np.random.Generator
    ) -> npt.NDArray[Any]:
        own = None if released is None else released[column.name]
        if column.space.holds_sets:
            return _SetDraws(column, self._supports[column.name], self._null_rate(column)).draw(own, rows, generator)
        mixture = self._listed(column)
        if own is None:
            (cells,) = draw_fresh(mixture, rows, generator)
        else:
            (cells,) = draw_given(mixture, [column.mechanism.transition()], [own.astype(np.int64)], generator)
        return cells.astype(np.uint64)

    def _listed(self, column: Column) -> Mixture:
        """Return the law of a column that the mixture does not hold, as a mixture of one class."""
        if column.space.holds_vectors:
            raise ParameterError(
                f"column {column.name!r} holds {column.space.noun}, of which no rows are drawn; mean_curve estimates "
                f"it, and release.drop(columns=[{column.name!r}]).dp.synthesize() draws the others"
            )
        if column.space.size > MOST_LISTED:
            raise ParameterError(
                f"column {column.name!r} has {column.space.size:,} values, too many to draw from; release it in fewer"
            )
        if column.name not in self._laws:
            axis = ListedAxis(column)
            counts = count_classes([axis], self._source.codes([column.name]))
            law = expectation_maximization(counts, [axis.channel])
            self._laws[column.name] = Mixture(np.ones(1), (law[None, :],))
        return self._laws[column.name]

    def _null_rate(self, column: Column) -> float:
        if not column.space.has_null:
            return 0.0
        rate, _ = sets.null_rate(column, self._source.codes([column.name]), 0.0)
        return float(np.clip(rate[0], 0, 1))


class _SetDraws:
    """Draws sets of measured sizes and supports: given a released row, each item by whether it was shown."""

    def __init__(self, column: Column, held: sets.Held, nulls: float) -> None:
        self._column, self._nulls, self._held = sets.SetColumn.of(column), nulls, held

    def draw(self, released: npt.NDArray[Any] | None, rows: int, generator: np.random.Generator) -> npt.NDArray[Any]:
        """Return codes as rows of words."""
        count = self._column.space.count
        if released is None:
            chances = self._held.chances.T[self._intensities(rows, generator)]
            null = generator.random(rows) < self._nulls
        else:
            name = self._column.column.name
            parts = [(bits, null) for bits, null, _ in self._column.bits([{name: released}])]
            shown = np.concatenate([bits for bits, _ in parts]) if parts else np.zeros((0, count), np.uint8)
            hidden = np.concatenate([null for _, null in parts]) if parts else np.zeros(0, dtype=np.bool_)
            chances, null = self._given(shown, hidden, generator), self._given_null(hidden, generator)
        held = np.zeros(chances.shape, dtype=np.bool_)
        held[~null] = self._at_supports(chances[~null], generator)
        words = self._column.column.space.code_words
        bits = np.zeros((len(held), words * 64), dtype=np.uint8)
        bits[:, :count] = held
        if self._column.has_null:
            bits[:, count] = null
        return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)

    def _intensities(self, rows: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw the places of so many rows' intensities."""
        shares = self._held.shares
        return generator.choice(len(shares), rows, p=shares) if len(shares) > 1 else np.zeros(rows, dtype=np.int64)

    def _given(
        self, shown: npt.NDArray[np.uint8], hidden: npt.NDArray[np.bool_], generator: np.random.Generator
    ) -> FloatArray:
        """Return the chance of every item in every row, which is its support on average.

        Bayes' rule with a prior that is found by bisection: the chances rise with it.
        """
        (p, q), held = self._column.channel.shown, self._held
        rate = shown[~hidden].mean(axis=0) if (~hidden).any() else np.full(shown.shape[1], 0.5)

        def mean(priors: FloatArray) -> FloatArray:
            with_it, without = _posterior(priors, p, q), _posterior(priors, 1 - p, 1 - q)
            return np.asarray((rate[:, None] * with_it + (1 - rate[:, None]) * without) @ held.shares)

        priors = held.at(held.rates(mean))
        places = self._intensities(len(shown), generator)
        with_it, without = (_posterior(priors, *seen).T[places] for seen in ((p, q), (1 - p, 1 - q)))
        chances = np.where(shown > 0, with_it, without)
        chances[hidden] = held.chances.T[places[hidden]]
        return np.asarray(chances)

    def _given_null(self, hidden: npt.NDArray[np.bool_], generator: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Draw which rows are null, as many on average as there are."""
        if not self._column.has_null:
            return np.zeros(len(hidden), dtype=np.bool_)
        kept, flipped = self._column.column.mechanism.present
        shown, lost = _posterior(self._nulls, flipped, kept), _posterior(self._nulls, 1 - flipped, 1 - kept)
        return np.asarray(generator.random(len(hidden)) < np.where(hidden, lost, shown))

    def _at_supports(self, chances: FloatArray, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Draw items by their chances, shifted so that sets have the measured sizes and items their supports.

        An item is drawn where the log odds of its chance and logistic noise are above 0 together; a set of a given size
        takes those that are highest. Limits of sizes and released rows favour some items, which their shifts undo.
        """
        from scipy.special import logit  # imported late, as all of SciPy

        scores = logit(np.clip(chances, _NEVER, 1 - _NEVER)) + generator.logistic(size=chances.shape)
        if not scores.size:
            return np.zeros(scores.shape, dtype=np.bool_)
        sizes = self._sizes((scores > 0).sum(axis=1), generator)
        every = math.ceil(scores.size / MOST_SHIFTED)
        some, of_some = scores[::every], sizes[::every]
        aims = np.clip(self._held.supports, 0.0, 1.0) * len(some)
        shifts = np.zeros(len(aims))
        for _ in range(MOST_SHIFTS):
            rows = self._chosen(some + shifts, of_some).sum(axis=0)
            if np.abs(rows - aims).max() < 1:
                break
            shifts += _log_odds(aims, len(some)) - _log_odds(rows, len(some))
        return self._chosen(scores + shifts, sizes)

    def _sizes(self, drawn: IntArray, generator: np.random.Generator) -> IntArray:
        """Return the size of every set: as measured, the largest where most items were drawn, or the most there may be.

        Their mean is that of the supports.
        """
        most, sizes = self._column.channel.most, self._held.sizes
        if sizes is None:
            return np.full(len(drawn), most)
        mean = float(np.clip(self._held.supports, 0.0, 1.0).sum())
        shares = tilt_to_mean(sizes, np.arange(len(sizes), dtype=np.float64), mean)
        found = np.empty(len(drawn), dtype=np.int64)
        levels = (np.arange(len(drawn)) + generator.random()) / len(drawn)
        order = np.argsort(drawn + generator.random(len(drawn)))
        found[order] = np.minimum(np.searchsorted(np.cumsum(shares), levels, side="right"), len(sizes) - 1)
        return np.minimum(found, most)

    def _chosen(self, scores: FloatArray, sizes: IntArray) -> npt.NDArray[np.bool_]:
        """Return the items of highest scores, as many as sizes say; without measured sizes only those above 0."""
        ordered = np.sort(scores, axis=1)
        last = ordered[np.arange(len(scores)), np.minimum(scores.shape[1] - sizes, scores.shape[1] - 1)]
        held = (scores >= last[:, None]) & (sizes > 0)[:, None]
        return np.asarray(held if self._held.sizes is not None else held & (scores > 0))


def _log_odds(rows: FloatArray, of: int) -> FloatArray:
    return np.asarray(np.log(rows + 0.5) - np.log(of - rows + 0.5))


def _posterior(prior: Any, of_it: float, of_others: float) -> Any:
    """Return P(it | seen) from its prior, and how likely what is seen is with it and without."""
    weight = prior * of_it
    return weight / np.maximum(weight + (1 - prior) * of_others, 1e-300)
