"""Synthetic tables for plain pandas: rows drawn from a model of the release, given each released row, or fresh rows.

Columns of few values and numbers are drawn together, from the mixture that is fitted to measured tables and rows.
Numbers are then drawn in a fine cell, and at a code within it. Columns outside the mixture are drawn independently:
sets from their sizes and supports, other columns from their distribution. The release is public, so that draws cost no
budget.

A class is drawn with the weights w_k ∏_c (C_c L_k)(y_c), and given it every cell with L_k(x)·C_c(y_c | x). Draws of
one column for rows of one class and one released value are spread evenly over the distribution (systematic sampling,
in random order). Every cell keeps its probability, and counts vary less than with independent draws.

Rows that break one of the plan's rules exchange values with other rows, so that every column keeps its shares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import DpframeWarning, ParameterError, check_whole, name_list, warn
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
from dpframe.estimate.tables.tables import Dependence
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.columns import Column
from dpframe.plan.rule import BoundRule
from dpframe.release.reader import SYNTHETIC, Source
from dpframe.spaces.arrays import FloatArray, IntArray

SYNTHETIC_CHUNK_ROWS = 4_096
"""Number of rows whose classes are drawn at once, so that their weights stay in cache (limit of memory)."""

TABLE_CELLS = 4_096
"""Largest number of joint classes of several columns in one table of likelihoods (limit of memory)."""


def draw_given(
    mixture: Mixture,
    channels: Sequence[FloatArray],
    codes: Sequence[npt.NDArray[np.integer]],
    generator: np.random.Generator,
) -> list[IntArray]:
    """Draw for every released row the cells of an original row, given the released one.

    ``mixture``: the fit; each of its starts draws every k-th row. ``channels``: p(class | cell) of every column, shape
    (classes, cells). ``codes``: released classes of every column.

    Returns
    -------
    list of arrays
        Cells of every column, in the order of rows.
    """
    cells = [np.zeros(len(codes[0]), dtype=np.int64) for _ in codes]
    for f in range(mixture.fits):
        part, rows = mixture.fit(f), slice(f, None, mixture.fits)
        released = [np.asarray(code[rows], dtype=np.int64) for code in codes]
        classes = _draw_classes(part, channels, released, generator)
        for column, (law, channel, code) in enumerate(zip(part.laws, channels, released, strict=True)):
            # Shape (class of the mixture, released class, cell).
            laws = (law[:, None, :] * channel[None, :, :]).reshape(-1, law.shape[1])
            cells[column][rows] = _draw_cells(laws, classes * channel.shape[0] + code, generator)
    return cells


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
    """Draw a fine cell of a number within each row's bin, with shares ``fine``, given the released class if any."""
    count = int(bins.max()) + 1
    is_in_bin = (bins[None, :] == np.arange(count)[:, None]).astype(np.float64)
    # The addition gives a bin without fitted rows a uniform distribution.
    laws = is_in_bin * (fine + 1e-12)
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
    """Round drawn codes to the nearest of some codes; means stay, because draws are uniform within cells."""
    places = np.rint((drawn - codes.start) / codes.step).astype(np.int64)
    return codes.start + codes.step * np.clip(places, 0, len(codes) - 1)


def _draw_classes(
    mixture: Mixture, channels: Sequence[FloatArray], codes: Sequence[IntArray], generator: np.random.Generator
) -> IntArray:
    """Draw every row's class from w_k ∏ (C_c L_k)(y_c)."""
    likelihoods = [channel @ law.T for law, channel in zip(mixture.laws, channels, strict=True)]
    # Likelihoods are divided by their mean over classes: a product over many columns would underflow.
    relative_likelihoods = [
        (like / np.maximum(like @ mixture.weights, 1e-30)[:, None]).astype(np.float32) for like in likelihoods
    ]
    # One table of products for several columns of few classes needs fewer look-ups per row.
    tables = [(relative_likelihoods[0], codes[0])]
    for like, code in zip(relative_likelihoods[1:], codes[1:], strict=True):
        table, place = tables[-1]
        if len(table) * len(like) <= TABLE_CELLS:
            product = (table[:, None, :] * like[None, :, :]).reshape(-1, like.shape[1])
            tables[-1] = product, place * len(like) + code
        else:
            tables.append((like, code))
    weights, classes = mixture.weights.astype(np.float32), np.zeros(len(codes[0]), dtype=np.int64)
    for start in range(0, len(classes), SYNTHETIC_CHUNK_ROWS):
        rows = slice(start, start + SYNTHETIC_CHUNK_ROWS)
        masses = np.broadcast_to(weights, (len(classes[rows]), len(weights)))
        for table, place in tables:
            masses = masses * table.take(place[rows], axis=0)
        # Sums class by class: NumPy's own along rows takes three times as long.
        for k in range(1, len(weights)):
            masses[:, k] += masses[:, k - 1]
        thresholds = generator.random(len(masses), dtype=np.float32) * masses[:, -1]
        # A threshold may round up to the last level, above which there is no class.
        masses[:, -1] = np.inf
        classes[rows] = (masses > thresholds[:, None]).argmax(axis=1)
    return classes


def _draw_cells(laws: FloatArray, keys: IntArray, generator: np.random.Generator) -> IntArray:
    """Draw a cell for every row from the distribution of its key, shape (keys, cells), by systematic sampling."""
    totals = laws.sum(axis=1, keepdims=True)
    levels = np.cumsum(np.where(totals > 0, laws / np.where(totals > 0, totals, 1.0), 1 / laws.shape[1]), axis=1)
    # Rounding must not lose a key's last row.
    levels[:, -1] = 1.0
    order = generator.permutation(len(keys))
    # Numbers of two bytes are sorted by their digits, in a third of the time.
    short_keys = keys.astype(np.min_scalar_type(len(laws)))
    order = order[np.argsort(short_keys[order], kind="stable")]
    counts = np.bincount(keys, minlength=len(laws))[:, None]
    # A key's k-th row is at (k + u)/count: so many of its rows lie below each level.
    rows_below = np.clip(np.ceil(levels * counts - generator.random(len(laws))[:, None]), 0, counts).astype(np.int64)
    rows_in_cells = np.diff(rows_below, axis=1, prepend=0).ravel()
    cells_of_rows = np.empty(len(keys), dtype=np.int64)
    cells_of_rows[order] = np.repeat(np.tile(np.arange(laws.shape[1]), len(laws)), rows_in_cells)
    return cells_of_rows


MOST_LAW_CELLS = 1 << 24
"""Largest number of entries of a column's distributions, by class and released class, with which draws condition on
released values (limit of memory)."""

MAX_FITTED_VALUES = 4_097
"""Largest number of values of a column outside the mixture whose distribution is fitted (limit of time)."""

MOST_HEARD = 100
"""Number of triples of columns, of the fewest cells, that are tested for structure beyond pairs (limit of time)."""

MOST_TRIPLE = 1 << 15
"""Largest number of classes of a tested triple; with more classes the test has no power (limit of time)."""

MOST_RAKED, MOST_RAKED_CELLS = 200, 1 << 11
"""Number of triples that drawn rows are raked to, and the number of cells of a triple (limit of time)."""

MOST_SHIFTS, MOST_SHIFTED = 40, 1 << 22
"""Number of steps that shift items towards their supports, and number of items in the sample of rows that determines
the steps (limit of time)."""

_MIN_ITEM_PROBABILITY = 1e-9
"""Smallest probability of an item, so that its log odds are finite (tolerance)."""


def check_rows(n_rows: Any) -> int | None:
    """Return a number of fresh rows, or raise `ParameterError`."""
    remedy = "; leave it out for a row for each released one"
    return None if n_rows is None else check_whole(n_rows, "n_rows", of="rows", remedy=remedy)


def make_generator(random_state: Any) -> np.random.Generator:
    """Return a generator from a seed, from one, or from fresh entropy."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    is_seed = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0
    if random_state is not None and not is_seed:
        raise ParameterError("random_state must be a whole number, a numpy Generator or None; give e.g. 0")
    return np.random.default_rng(random_state)


def midnight_codes(source: Source, name: str, law_of: Callable[[str], Law]) -> range:
    """Return the codes of midnights if a column's counts show no time of day; none for other columns."""
    midnights = source.plan[name].space.inner_space.midnights
    is_lost = name in {missing.column for missing in source.plan.not_found}
    if not midnights or not source.n or source.zone(name) is not None or is_lost:
        return range(0)
    law = law_of(name)
    without_midnight = np.zeros(law.cells)
    without_midnight[: law.bins] = np.diff(count_below(midnights, law.ends)) == 0
    share, _, lower, _ = law.parts_of(without_midnight[None, :], 0.0, DETECTION_SE)[:, 0]
    uniform_share = float(without_midnight[: law.bins] @ law.widths) / float(law.widths.sum())
    # Cells were chosen by their noise, which biases the share upwards: it must also be large by itself.
    return range(0) if lower > 0 and share > uniform_share / 2 else midnights


class Synthesizer:
    """Draws synthetic rows of one release."""

    def __init__(
        self,
        source: Source,
        models: Models,
        supports: Mapping[str, sets.ItemLaw],
        law: Callable[[str], Law],
        empty: Callable[[Axis], Sequence[int]],
    ) -> None:
        self._source, self._model, self._law = source, models.whole, law
        self._supports, self._find_empty_cells, self._laws = supports, empty, dict[str, Mixture]()
        self._indicators = models.tables.indicators
        merged_columns = {name for group in self._indicators for name in group.columns}
        bound_rules = source.plan.bound_rules
        # Rows that are drawn by the column of all indicators keep their rule.
        self._rules = replace(
            bound_rules, rules=tuple(rule for rule in bound_rules.rules if merged_columns.isdisjoint(rule.names))
        )

    @property
    def text(self) -> str:
        """JSON metadata of synthetic rows, in place of a release's description."""
        info = self._source.info
        description: dict[str, Any] = {"release": None if info is None else info.digest, "rows": self._source.rows}
        pairs = self.fidelity.iloc[len(self._source.plan.names) :]
        description |= {
            "not_found": list(self.not_found),
            "pairs": len(pairs),
            "pairs_that_show": int(pairs["shows"].sum()),
        }
        return json.dumps({SYNTHETIC: description | {"epsilon_spent": 0}})

    @property
    def not_found(self) -> tuple[str, ...]:
        """The columns that are null in synthetic rows: private inference did not find their spaces."""
        missing = {one.column for one in self._source.plan.not_found} - set(self._source.missing)
        return tuple(name for name in self._source.plan.names if name in missing)

    @cached_property
    def fidelity(self) -> pd.DataFrame:
        """Source of each column, and dependence of each pair in the model; see `Estimates.fidelity`."""
        model = self._model
        missing_columns = {missing.column for missing in self._source.plan.not_found}
        rows: dict[tuple[str, str], tuple[str, float, float, float, bool]] = {}
        for name in self._source.plan.names:
            is_found, source = name not in missing_columns, "none"
            if is_found:
                is_fitted = name in model.columns or name in model.tables.homes
                source = model.tables.source_of([name]) if is_fitted else "rows"
            rows[name, ""] = (source, math.nan, math.nan, math.nan, is_found)
        tables_of_pairs = model.evidence.row_pairs | model.evidence.pairs
        joints = model.fit.pairs_of(range(len(model.names)))
        for i, j in combinations(range(len(model.names)), 2):
            names, table = (model.names[i], model.names[j]), tables_of_pairs.get((i, j))
            if missing_columns & set(names) or table is None:
                rows[names] = ("none", math.nan, math.nan, math.nan, False)
                continue
            pair = Dependence.of(table, joints[i, j])
            source = model.tables.source_of(names)
            rows[names] = source, pair.distance, pair.noise, pair.score, pair.is_visible
        index = pd.MultiIndex.from_tuples(list(rows), names=["column", "with"])
        return pd.DataFrame(
            list(rows.values()), index, columns=["source", "dependence", "noise", "deviations", "shows"]
        )

    def warn_of_hidden(self) -> None:
        """Warn if the rows show structure of three columns that pairs, and so synthetic rows, miss."""
        names = self._model.names
        if len(names) < 3 or not self._model.tables:
            return
        members, sizes = self._model.columns, {name: member.cells for name, member in self._model.columns.items()}
        # Small triples come first: tests of few classes have more power.
        places = np.array(list(combinations(range(len(names)), 3)))
        cells = np.array([sizes[name] for name in names], dtype=np.float64)[places].prod(axis=1)
        smallest = places[np.argsort(cells, kind="stable")[:MOST_HEARD]].tolist()
        triples = [(names[a], names[b], names[c]) for a, b, c in smallest]
        classes = {triple: math.prod(members[name].axis.classes for name in triple) for triple in triples}
        candidates = [triple for triple, size in classes.items() if size <= MOST_TRIPLE]
        guarded_triples = self._model.guarded(candidates, SURELY)
        dependent = [triple for triple, joint in zip(candidates, guarded_triples, strict=True) if joint is not None]
        if dependent:
            more = f" and {len(dependent) - 1} more" if len(dependent) > 1 else ""
            warn(
                f"synthetic rows lack dependence that the release's rows show, of {name_list(dependent[0])} together"
                f"{more}; ask the release itself with joint({list(dependent[0])!r})",
                DpframeWarning,
            )

    @cached_property
    def _mixture(self) -> Mixture:
        """The model's mixture without empty cells, which results do not show."""
        mixture, laws = self._model.fit.mixture, []
        for law, member in zip(mixture.laws, self._model.columns.values(), strict=True):
            is_shown = np.ones(member.cells)
            is_shown[[] if member.is_cut else list(self._find_empty_cells(member.axis))] = 0.0
            masses = law * is_shown
            totals = masses.sum(axis=1, keepdims=True)
            laws.append(
                np.where(totals > 0, masses / np.where(totals > 0, totals, 1.0), is_shown / max(is_shown.sum(), 1.0))
            )
        return replace(mixture, laws=tuple(laws))

    @cached_property
    def _uses_released_codes(self) -> dict[str, bool]:
        """Whether draws condition on a column's released codes; only the first column of a group does.

        The columns of a group have common noise: their likelihoods do not multiply.
        """
        plan, used_groups, uses_release = self._source.plan, set(), {}
        for name, member in self._model.columns.items():
            group = plan.group_of(name)
            # `draw_given` draws with one start of the mixture at a time.
            entries = len(self._mixture.weights) // self._mixture.fits * member.axis.classes * member.axis.cells
            is_first = group is None or group.names not in used_groups
            uses_release[name] = entries <= MOST_LAW_CELLS and is_first and name in plan.names
            if group is not None and uses_release[name]:
                used_groups.add(group.names)
        return uses_release

    @cached_property
    def _shares(self) -> dict[str, FloatArray]:
        return {name: self._model.fine(name) for name in self._model.names}

    @cached_property
    def _midnights(self) -> dict[str, range]:
        """Codes of midnights of each column of times whose counts show no time of day; none of other columns."""
        names = self._source.plan.names
        return {
            name: midnight_codes(self._source, name, self._law) if name in names else range(0)
            for name in self._model.columns
        }

    @cached_property
    def _raking_targets(self) -> dict[tuple[int, ...], FloatArray]:
        """Target shares for raking: measured tables, their pairs and columns, and triples; the largest first.

        The mixture only approximates these shares, and drawn rows have sampling noise. Raking fits the last targets
        best: these are the smallest tables, which have the least noise. Triples have three measured pairs. Their drawn
        counts are farther from their estimates than the estimates are from the table.
        """
        tables = [tuple(sorted(table.columns)) for table in self._model.evidence.measured if len(table.columns) > 1]
        margins = {margin for columns in tables for size in (1, 2) for margin in combinations(columns, size)}
        cells = [member.cells for member in self._model.columns.values()]
        partners = {
            a: {b for pair in margins if len(pair) == 2 and pair[0] == a for b in pair[1:]} for a in range(len(cells))
        }
        sizes = {
            (a, b, c): cells[a] * cells[b] * cells[c]
            for a in partners
            for b in partners[a]
            for c in partners[a] & partners[b]
        }
        smallest = sorted((size, triple) for triple, size in sizes.items() if size <= MOST_RAKED_CELLS)
        # A large table has little sampling noise, and raking it costs more time: it gets fewer triples.
        max_triples = MOST_PLACES // max(self._source.rows, 1) - len(margins)
        triples = [triple for _, triple in smallest[: max(0, min(MOST_RAKED, max_triples))]]
        column_sets = sorted({*tables, *margins, *triples}, key=lambda columns: (-len(columns), columns))
        one_way_shares = {
            (i,): self._model.evidence.one_ways[i]
            for i, n in enumerate(self._model.names)
            if n in self._columns_of_rules
        }
        targets = {columns: self._joint_by_rules(columns) for columns in column_sets} | one_way_shares
        for group in self._indicators:
            # The last target is met best: the shares of indicators are those that statistics give.
            place = self._model.names.index(group.name)
            targets.pop((place,), None)
            targets[place,] = self._model.evidence.one_ways[place]
        return targets

    def _joint_by_rules(self, columns: tuple[int, ...]) -> FloatArray:
        """Return the joint distribution of columns: 0 in cells that rules exclude, with the model's margins."""
        joint, rules = self._model.fit.joint(columns), self._rules
        names = [self._model.names[c] for c in columns]
        is_impossible = (
            rules.impossible({n: self._code_ranges[n] for n in names if n in self._columns_of_rules})
            if self._columns_of_rules
            else None
        )
        if is_impossible is None:
            return joint
        places = [i for i, name in enumerate(names) if name in self._columns_of_rules]
        possible = np.where(
            np.expand_dims(is_impossible, [i for i in range(joint.ndim) if i not in places]), 0.0, joint
        )
        return fit_to_margins(possible, {(i,): self._model.fit.joint((c,)) for i, c in enumerate(columns)})

    def draw(
        self, rows: int, generator: np.random.Generator, released: Codes | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Draw the codes of new rows, or of an original row for each released one, given that row.

        Rows are raked to tables of the model, and break none of the plan's rules.
        """
        members, plan, rules = self._model.columns, self._source.plan, self._rules
        # All of them at once, before the fit: a remedy that names one would be refused for the next.
        undrawable = [column for column in self._columns_outside_model if column.space.holds_vectors]
        if undrawable:
            names, first = [column.name for column in undrawable], undrawable[0]
            raise ParameterError(
                f"column {first.name!r} holds {first.space.noun}, of which no rows are drawn; mean_curve estimates "
                f"it, and release.drop(columns={names!r}).dp.synthesize() draws the others"
            )
        classes = {
            name: members[name].axis.classify(released[name])
            for name, is_used in self._uses_released_codes.items()
            if released is not None and is_used
        }
        cells = self._draw_cells(rows, generator, released, classes)
        breaks_rule = np.zeros(rows, dtype=np.bool_)
        if self._columns_of_rules:
            excludes = [(rule.names, partial(self._flag_impossible, rule)) for rule in rules.rules]
            breaks_rule = exchange(cells, excludes, generator)
        if cells:
            # Released rows that keep the table's order come in batches that differ from the table: do not rake them.
            targets = self._raking_targets if released is None or plan.shuffle else {}
            sizes = [members[name].cells if name in members else plan[name].space.size for name in cells]
            cells = dict(zip(cells, raked(list(cells.values()), sizes, targets, generator, breaks_rule), strict=True))
        codes: dict[str, npt.NDArray[Any]] = {}
        for name, cell in cells.items():
            if name in members and members[name].is_cut:
                channel = members[name].axis.channel if name in classes else None
                cell = draw_within(self._shares[name], members[name].bins, cell, generator, channel, classes.get(name))
            codes[name] = self._draw_within_column(name, cell, generator).astype(np.uint64)
        # Codes within cells may break a rule that the cells allow: rows exchange codes within equal cells.
        if self._columns_of_rules:
            exchange(codes, [(rule.names, rule.breaks) for rule in rules.rules], generator, within=cells)
            codes = dict(rules.mended(codes))
        for group in self._indicators:
            split_codes = group.split(codes.pop(group.name).astype(np.int64))
            codes |= {n: c.astype(np.uint64) for n, c in split_codes.items() if n not in self._source.missing}
        for column in self._columns_outside_model:
            if column.name not in codes:
                codes[column.name] = self._draw_column(column, released, rows, generator)
        return codes

    def _flag_impossible(self, rule: BoundRule, cells: Mapping[str, IntArray]) -> npt.NDArray[np.bool_]:
        """Return a mask of rows that break a rule, whichever codes are drawn in their cells."""
        ends = {name: self._code_ranges[name] for name in rule.names}
        return rule.impossible({name: (ends[name][0][cells[name]], ends[name][1][cells[name]]) for name in rule.names})

    @cached_property
    def _code_ranges(self) -> dict[str, tuple[IntArray, IntArray]]:
        """First code of every cell of the rules' columns, and the code after the cell's last code."""
        stretches = {}
        for name in self._columns_of_rules:
            if name in self._model.columns:
                member = self._model.columns[name]
                starts, stops = member.axis.stretches
                first = np.searchsorted(member.bins, np.arange(member.cells))
                last = np.searchsorted(member.bins, np.arange(member.cells), side="right") - 1
                stretches[name] = starts[first], stops[last]
            else:
                codes = np.arange(self._source.plan[name].space.size)
                stretches[name] = codes, codes + 1
        return stretches

    def _draw_cells(
        self, rows: int, generator: np.random.Generator, released: Codes | None, classes: Mapping[str, IntArray]
    ) -> dict[str, IntArray]:
        """Draw the cells of the mixture's columns, and the codes of the rules' other columns."""
        members, cells = self._model.columns, list[IntArray]()
        if released is None and members:
            cells = draw_fresh(self._mixture, rows, generator)
        elif members:
            channels = [m.channel if name in classes else np.ones((1, m.cells)) for name, m in members.items()]
            codes = [classes.get(name, np.zeros(rows, dtype=np.int64)) for name in members]
            cells = draw_given(self._mixture, channels, codes, generator)
        return dict(zip(members, cells, strict=True)) | {
            column.name: self._draw_column(column, released, rows, generator).astype(np.int64)
            for column in self._columns_outside_model
            if column.name in self._columns_of_rules
        }

    @cached_property
    def _columns_of_rules(self) -> tuple[str, ...]:
        """The columns of the plan's rules; none if the release has lost one."""
        names = self._rules.names
        return (
            names if {*names} <= {*self._model.names, *(column.name for column in self._columns_outside_model)} else ()
        )

    def _draw_within_column(self, name: str, cell: IntArray, generator: np.random.Generator) -> IntArray:
        """Draw codes within a column's fine cells; dates without a time of day are rounded to midnights."""
        if name not in self._model.columns:
            return cell
        axis = self._model.columns[name].axis
        starts, stops = axis.stretches
        codes, widths = starts[cell], (stops - starts)[cell]
        is_wide = widths > 1
        if is_wide.any():
            codes[is_wide] += generator.integers(0, widths[is_wide])
        midnights = self._midnights[name]
        return np.where(cell < axis.bins, nearest_of(midnights, codes), codes) if midnights else codes

    @cached_property
    def _columns_outside_model(self) -> list[Column]:
        plan, missing = self._source.plan, self._source.missing
        fitted_columns = {*self._model.columns, *self._model.tables.homes}
        return [c for c in plan.columns if c.name not in fitted_columns and c.name not in missing]

    def _draw_column(
        self, column: Column, released: Codes | None, rows: int, generator: np.random.Generator
    ) -> npt.NDArray[Any]:
        """Draw the codes of a column outside of the model."""
        released_codes = None if released is None else released[column.name]
        if column.space.holds_sets:
            return _SetSampler(column, self._supports[column.name], self._null_rate(column)).draw(
                released_codes, rows, generator
            )
        mixture = self._fit_listed(column)
        if released_codes is None:
            (cells,) = draw_fresh(mixture, rows, generator)
        else:
            (cells,) = draw_given(
                mixture, [column.mechanism.transition()], [released_codes.astype(np.int64)], generator
            )
        return cells.astype(np.uint64)

    def _fit_listed(self, column: Column) -> Mixture:
        """Return the distribution of a column outside the model's mixture, as a mixture of one class."""
        if column.space.size > MAX_FITTED_VALUES:
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


class _SetSampler:
    """Sampler of sets with the measured sizes and supports, given released sets or fresh."""

    def __init__(self, column: Column, item_law: sets.ItemLaw, nulls: float) -> None:
        self._column, self._nulls, self._item_law = sets.SetColumn.of(column), nulls, item_law

    def draw(self, released: npt.NDArray[Any] | None, rows: int, generator: np.random.Generator) -> npt.NDArray[Any]:
        """Return codes as rows of words."""
        count = self._column.space.count
        if released is None:
            chances = self._item_law.chances.T[self._intensities(rows, generator)]
            null = generator.random(rows) < self._nulls
        else:
            released_bits, is_released_null = self._column.unpack(released)
            chances = self._item_probabilities(released_bits, is_released_null, generator)
            null = self._draw_nulls(is_released_null, generator)
        items = np.zeros(chances.shape, dtype=np.bool_)
        items[~null] = self._draw_items(chances[~null], generator)
        words = self._column.column.space.code_words
        bits = np.zeros((len(items), words * 64), dtype=np.uint8)
        bits[:, :count] = items
        if self._column.has_null:
            bits[:, count] = null
        return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)

    def _intensities(self, rows: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw the index of every row's intensity."""
        shares = self._item_law.shares
        return generator.choice(len(shares), rows, p=shares) if len(shares) > 1 else np.zeros(rows, dtype=np.int64)

    def _item_probabilities(
        self,
        released_bits: npt.NDArray[np.uint8],
        is_released_null: npt.NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> FloatArray:
        """Return the posterior probability of every item in every row; its mean over rows is the support.

        The prior of Bayes' rule is found by bisection, because the mean rises with the prior.
        """
        (p, q), item_law = self._column.channel.shown, self._item_law
        show_rates = (
            released_bits[~is_released_null].mean(axis=0)
            if (~is_released_null).any()
            else np.full(released_bits.shape[1], 0.5)
        )

        def mean(priors: FloatArray) -> FloatArray:
            with_it, without_it = _posterior_probability(priors, p, q), _posterior_probability(priors, 1 - p, 1 - q)
            return np.asarray(
                (show_rates[:, None] * with_it + (1 - show_rates[:, None]) * without_it) @ item_law.shares
            )

        priors = item_law.at(item_law.rates(mean))
        places = self._intensities(len(released_bits), generator)
        with_it, without_it = (
            _posterior_probability(priors, *likelihoods).T[places] for likelihoods in ((p, q), (1 - p, 1 - q))
        )
        chances = np.where(released_bits > 0, with_it, without_it)
        chances[is_released_null] = item_law.chances.T[places[is_released_null]]
        return np.asarray(chances)

    def _draw_nulls(
        self, is_released_null: npt.NDArray[np.bool_], generator: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        """Draw the rows that are null, given the released nulls; the expected number is the estimated number."""
        if not self._column.has_null:
            return np.zeros(len(is_released_null), dtype=np.bool_)
        keep_probability, flip_probability = self._column.column.mechanism.present
        chance_at_set, chance_at_null = (
            _posterior_probability(self._nulls, flip_probability, keep_probability),
            _posterior_probability(self._nulls, 1 - flip_probability, 1 - keep_probability),
        )
        return np.asarray(
            generator.random(len(is_released_null)) < np.where(is_released_null, chance_at_null, chance_at_set)
        )

    def _draw_items(self, chances: FloatArray, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Draw items by their probabilities, shifted so that sets have the measured sizes and items their supports.

        An item's score is its log odds plus logistic noise. A set without a measured size takes the items with scores
        above 0; a set of a given size takes the highest scores. Limits of sizes favour some items: shifts of the
        scores restore the supports.
        """
        from scipy.special import logit  # imported late, as all of SciPy

        scores = logit(np.clip(chances, _MIN_ITEM_PROBABILITY, 1 - _MIN_ITEM_PROBABILITY)) + generator.logistic(
            size=chances.shape
        )
        if not scores.size:
            return np.zeros(scores.shape, dtype=np.bool_)
        sizes = self._draw_sizes((scores > 0).sum(axis=1), generator)
        stride = math.ceil(scores.size / MOST_SHIFTED)
        sample, sizes_of_sample = scores[::stride], sizes[::stride]
        targets = np.clip(self._item_law.supports, 0.0, 1.0) * len(sample)
        shifts = np.zeros(len(targets))
        for _ in range(MOST_SHIFTS):
            rows = self._choose_items(sample + shifts, sizes_of_sample).sum(axis=0)
            if np.abs(rows - targets).max() < 1:
                break
            shifts += _log_odds(targets, len(sample)) - _log_odds(rows, len(sample))
        return self._choose_items(scores + shifts, sizes)

    def _draw_sizes(self, item_counts: IntArray, generator: np.random.Generator) -> IntArray:
        """Return the size of every set from the measured sizes, or the largest size without measured sizes.

        Sets with more drawn items get larger sizes. The mean size is the sum of the supports.
        """
        max_size, sizes = self._column.channel.most, self._item_law.sizes
        if sizes is None:
            return np.full(len(item_counts), max_size)
        mean = float(np.clip(self._item_law.supports, 0.0, 1.0).sum())
        shares = tilt_to_mean(sizes, np.arange(len(sizes), dtype=np.float64), mean)
        sizes_of_sets = np.empty(len(item_counts), dtype=np.int64)
        levels = (np.arange(len(item_counts)) + generator.random()) / len(item_counts)
        order = np.argsort(item_counts + generator.random(len(item_counts)))
        sizes_of_sets[order] = np.minimum(np.searchsorted(np.cumsum(shares), levels, side="right"), len(sizes) - 1)
        return np.minimum(sizes_of_sets, max_size)

    def _choose_items(self, scores: FloatArray, sizes: IntArray) -> npt.NDArray[np.bool_]:
        """Return a mask of the items with the highest scores, by set size; without measured sizes above 0 only."""
        ordered = np.sort(scores, axis=1)
        last = ordered[np.arange(len(scores)), np.minimum(scores.shape[1] - sizes, scores.shape[1] - 1)]
        is_chosen = (scores >= last[:, None]) & (sizes > 0)[:, None]
        return np.asarray(is_chosen if self._item_law.sizes is not None else is_chosen & (scores > 0))


def _log_odds(rows: FloatArray, total: int) -> FloatArray:
    """Return log odds of counts out of a total, with half a row added to either side."""
    return np.asarray(np.log(rows + 0.5) - np.log(total - rows + 0.5))


def _posterior_probability(prior: Any, likelihood: float, other_likelihood: float) -> Any:
    """Return the posterior probability from a prior and the likelihoods with and without the event."""
    weight = prior * likelihood
    return weight / np.maximum(weight + (1 - prior) * other_likelihood, 1e-300)
