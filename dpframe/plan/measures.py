"""Tables that are measured centrally in addition to the rows: a plan's requests, and a release's noisy counts.

A plan names the tables and their noise, which is public before any data is seen. The noisy counts belong to one
release: they are in its description, under its digest, and a plan is used again without them.

A measure's cost follows only from its σ², by the exact lattice law of the noise (`discrete_gaussian`). A replaced row
leaves one cell of a table and enters another. It moves a sum by the range of its codes at most (null adds nothing). It
changes the counts of at most twice as many items as are counted per row, and the counts of these items' pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import round_up
from dpframe.accounting.discrete_gaussian import LEAST_SIGMA2, BallNoise, IntegerNoise, noise_step
from dpframe.accounting.gaussian_dp import Step
from dpframe.errors import ParameterError, name_list, tuple_label
from dpframe.noise.gaussian import LARGEST_SCALE, gaussian_table
from dpframe.observe.observation import Observation, Runs
from dpframe.plan.levels import (
    FIRST_LEVEL_CELLS,
    MOST_PARENTS,
    SPLIT_CELLS,
    breaks,
    cells_between,
    children,
    has_levels,
    level_sizes,
    stops_of,
)
from dpframe.spaces import Space
from dpframe.spaces.cells import ball_of, cell_count, equal_starts, is_cut, item_count, pairs_moved, size_starts
from dpframe.spaces.json_form import from_object, to_object
from dpframe.totals.weight_sums import WeightSteps

OF_SETS = ("items", "sizes", "item_pairs")
"""Kinds of tables of sets."""

KINDS = ("one_way", "joint", "sum", *OF_SETS, "vectors", "weights")

_COLUMN_COUNTS = {
    "joint": (2, 1 << 16, "two or more columns"),
    "vectors": (1, 2, "one or two columns"),
    "weights": (2, 2, "two columns"),
}
"""Least and most columns of some kinds, in words too (limit of the format)."""

MAX_MEASURED_CELLS = 200_000
"""Most cells of a table that is measured (limit of memory)."""

MEASURED_SLACK_SHARE = 1e-4
"""Share of δ that measured tables have as slack, for their noise's tails (tolerance)."""

_MAX_UNCUT_TABLE_CELLS = 1 << 26
"""Most cells of a table before its numbers are cut (limit of memory)."""

_MAX_NAMED_TABLES = 6
"""Most tables of one kind that a line names (limit of a sentence)."""


@dataclass(frozen=True)
class Measure:
    """One table to measure: its kind, the names of its columns, and σ² of the discrete Gaussian noise on its numbers.

    ``"one_way"`` counts a column's values, or a number's cells (`dpframe.plan.levels`); ``"joint"`` the cells of two or
    more columns, numbers cut at quantiles of their noisy one-way; ``"sum"`` adds a number's codes, of the rows that are
    not null; ``"items"`` counts in how many rows each item of a set lies, rows cut to ``most``, ``"item_pairs"`` each
    pair of items; ``"sizes"`` sets of each size, large ones in cells (`dpframe.spaces.cells.size_starts`);
    ``"weights"`` adds the first column's numbers, in steps from an offset (`WeightSteps`), by the cells of the second;
    ``"vectors"`` adds a vector's whole coordinates u, and counts vectors times U, of all rows or by the values of a
    second column.

    ``most``: cells of a number, or items of a row. ``level``: for a one-way of a number 1 for the first level, 2 and
    more for levels that divide the cells above their noise on the level before; 0 for values, and if all cells
    have equal width, as in plans before there were levels.
    """

    kind: str
    columns: tuple[str, ...]
    sigma2: float
    most: int = 0
    level: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"the kind of a measure must be one of {', '.join(KINDS)}")
        names = self.columns
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
            raise ParameterError("columns of a measure must be names of columns")
        least_columns, most_columns, columns = _COLUMN_COUNTS.get(self.kind, (1, 1, "one column"))
        if not least_columns <= len(names) <= most_columns or len(set(names)) < len(names):
            raise ParameterError(f"a measure of kind {self.kind} has {columns}, each once")
        # bool is an int in Python.
        is_number = isinstance(self.sigma2, int | float) and not isinstance(self.sigma2, bool)
        if not is_number or not LEAST_SIGMA2 <= self.sigma2 <= LARGEST_SCALE**2:
            raise ParameterError("sigma2 of a measure must lie between 1/4 and 2^80")
        lowest_most = {"items": 1, "item_pairs": 2}.get(self.kind, 0)
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < lowest_most:
            raise ParameterError(f"most of a measure must be a whole number, at least {lowest_most}")
        if isinstance(self.level, bool) or not isinstance(self.level, int) or self.level < 0:
            raise ParameterError("level of a measure must be a whole number, at least 0")
        if self.level and self.kind != "one_way":
            raise ParameterError("level belongs to a measure of kind one_way; leave it out")
        object.__setattr__(self, "columns", tuple(names))
        object.__setattr__(self, "sigma2", float(self.sigma2))

    @property
    def label(self) -> str:
        """The columns as one line of text."""
        return tuple_label(self.columns)

    @property
    def identity(self) -> tuple[str, frozenset[str], int]:
        """Key that two measures of one table share; cells of equal width and a first level have equal keys."""
        return self.kind, frozenset(self.columns), max(1, self.level)

    def is_like(self, other: Measure) -> bool:
        """Return whether another measure is of the same cells."""
        return (self.kind, self.columns, self.most, self.level) == (other.kind, other.columns, other.most, other.level)

    def noise(self, spaces: Mapping[str, Space]) -> IntegerNoise:
        """Return the noise's parameters for the accountant, for columns with these spaces."""
        distance = _distance_from_law(self.sigma2)
        space = spaces[self.columns[0]]
        if self.kind == "sum":
            # A replaced row moves the sum by at most the range of codes.
            return IntegerNoise(self.sigma2, 1, space.values - 1, distance)
        if self.kind == "vectors":
            # A row leaves one cell and enters another, or moves within one: by ‖(u, U)‖ in each, √2·√2·U in all, or by
            # ‖u − u'‖ alone, and neither is more than `move`.
            ball = ball_of(space)
            return BallNoise(self.sigma2, 2 * (ball.length + 1), ball.room * ball.move, distance)
        if self.kind == "weights":
            return BallNoise(self.sigma2, 2, WeightSteps.of(space).span, distance)
        # A replaced row leaves one cell and enters another.
        cells_changed = 2
        if self.kind == "items":
            # A replaced row changes the counts of its former and of its new items.
            cells_changed = min(2 * self.most, item_count(space))
        if self.kind == "item_pairs":
            cells_changed = pairs_moved(item_count(space), self.most)
        return IntegerNoise(self.sigma2, cells_changed, 1, distance)

    def shape(self, spaces: Mapping[str, Space]) -> tuple[int, ...]:
        """Return the most cells of the table, a number for each column; null is one of them."""
        if self.kind == "sum":
            return (1,)
        if self.kind == "items":
            return (item_count(spaces[self.columns[0]]),)
        if self.kind == "item_pairs":
            return (math.comb(item_count(spaces[self.columns[0]]), 2),)
        if self.kind == "sizes":
            return (len(size_starts(spaces[self.columns[0]])),)
        if self.kind == "vectors":
            cells = [cell_count(spaces[name], 0) for name in self.columns[1:]]
            return (math.prod(cells), ball_of(spaces[self.columns[0]]).length + 1)
        if self.level == 1:
            space = spaces[self.columns[0]]
            return (len(cells_between(space, FIRST_LEVEL_CELLS, 0, space.values)) + space.flag_codes,)
        if self.level:
            return (MOST_PARENTS * 2 * SPLIT_CELLS + len(breaks(spaces[self.columns[0]])),)
        counted_columns = self.columns[1:] if self.kind == "weights" else self.columns
        return tuple(cell_count(spaces[name], self.most) for name in counted_columns)

    def to_json(self) -> dict[str, Any]:
        """Return the measure as a JSON object."""
        return to_object(self, sparse=["most", "level"])

    @classmethod
    def from_json(cls, data: Any) -> Measure:
        """Read the measure back; `PlanError` for anything else."""
        return from_object(cls, data, "every measure")


@lru_cache(maxsize=256)
def _distance_from_law(sigma2: float) -> float:
    """Return the distance of the noise's draws from their law, rounded up."""
    return round_up(gaussian_table(sigma2).distance)


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """Noisy counts of one measure, as a release contains them.

    ``starts`` has for every column the first code of each cell, ascending from 0, or None if every value is a cell.
    Null, if the column's space has it, is the last cell in either case. For a level above the first ``starts`` has
    the first codes of the cells of the level before that it divides, and there is no count of nulls. ``counts`` has a
    dimension for each column; of a sum it has the one number, of items one for each item, of pairs of items one for
    each, (0, 1), (0, 2) … (1, 2) …, of sizes one for each cell, of weights one for each cell of the second column.
    Counts may be negative.
    """

    measure: Measure
    starts: tuple[tuple[int, ...] | None, ...]
    counts: npt.NDArray[np.int64]

    def __eq__(self, other: object) -> bool:
        """Return whether measures, cells and counts are equal."""
        if not isinstance(other, MeasuredTable):
            return NotImplemented
        identity, other_identity = (self.measure, self.starts), (other.measure, other.starts)
        return identity == other_identity and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        """Return a hash of measure and counts."""
        return hash((self.measure, self.starts, self.counts.tobytes()))

    def to_observation(self, space: Space) -> Observation:
        """Return the counts of a number's level above the first as an observation of its codes."""
        level = self.measure.level
        starts = children(space, level, self.starts[0] or ())
        runs = Runs(starts, stops_of(space, level_sizes(space)[level - 1], starts), space.values)
        return Observation(runs, self.counts.astype(np.float64), np.full(len(starts), self.measure.sigma2))


def way_starts(measure: Measure, space: Space) -> tuple[int, ...] | None:
    """Return the first codes of the cells of a column's one-way, or None if each value is a cell."""
    if not is_cut(space, measure.most):
        return None
    if measure.level:
        return tuple(cells_between(space, measure.most, 0, space.values).tolist())
    return equal_starts(space.values, measure.most)


def check_measures(measures: Sequence[Measure], spaces: Mapping[str, Space]) -> None:
    """Raise `ParameterError` unless each measure can be made of columns with these spaces, once."""
    # Quantiles of the one-way or of the first level cut a number in joints.
    one_ways = {measure.columns[0]: measure for measure in measures if measure.kind == "one_way" and measure.level < 2}
    identities = set()
    for measure in measures:
        if measure.identity in identities:
            raise ParameterError(f"the {measure.kind} of {measure.label} is measured twice; name it once")
        identities.add(measure.identity)
        _check_columns(measure, spaces)
        if measure.level:
            name, one_way = measure.columns[0], one_ways.get(measure.columns[0])
            sizes = level_sizes(spaces[name]) if has_levels(spaces[name]) else ()
            if measure.level > len(sizes) or measure.most != sizes[measure.level - 1]:
                raise ParameterError(f"a level of column {name!r} must be one of the {len(sizes)} of its space")
            if one_way is None or one_way.level != 1:
                raise ParameterError(f"level {measure.level} of column {name!r} needs the first; measure both")
        cells = math.prod(measure.shape(spaces))
        if cells > MAX_MEASURED_CELLS:
            raise ParameterError(
                f"the measured table {measure.label} has {cells:,} cells and the limit is {MAX_MEASURED_CELLS:,}; "
                "leave it out of measure, or declare fewer values"
            )
    for measure in measures:
        if measure.kind in ("joint", "weights"):
            _check_cuts(measure, spaces, one_ways)
        if measure.kind == "item_pairs" and ("sizes", frozenset(measure.columns), 1) not in identities:
            raise ParameterError(
                f"the item_pairs of {measure.label} needs its sizes, which show what the cut takes; measure both"
            )


def _check_cuts(joint: Measure, spaces: Mapping[str, Space], one_ways: Mapping[str, Measure]) -> None:
    """Refuse numbers without known quantiles, and joints too large to be counted before they are cut."""
    cells = 1
    for name in joint.columns[joint.kind == "weights" :]:
        if is_cut(spaces[name], joint.most) and name not in one_ways:
            raise ParameterError(
                f"the joint of {joint.label} needs the one_way of {name!r}, whose quantiles cut it; measure both"
            )
        cells *= one_ways[name].shape(spaces)[0] if is_cut(spaces[name], joint.most) else cell_count(spaces[name], 0)
    if cells > _MAX_UNCUT_TABLE_CELLS:
        raise ParameterError(f"the joint of {joint.label} is counted in {cells:,} cells before it is cut; use fewer")


def _check_columns(measure: Measure, spaces: Mapping[str, Space]) -> None:
    """Raise `ParameterError` unless a measure's columns have spaces of its kind."""
    for name in measure.columns:
        if name not in spaces:
            raise ParameterError(f"measure names {name!r}, which is not a randomised column")
    if measure.kind == "vectors":
        vector_column, *listed_columns = measure.columns
        if not spaces[vector_column].holds_vectors:
            raise ParameterError(f"column {vector_column!r} holds no vectors, and has no sums of them")
        for name in listed_columns:
            if spaces[name].code_words or not spaces[name].is_listed:
                raise ParameterError(
                    f"the sums of {vector_column!r} cannot be measured by column {name!r}, which has no list of "
                    "values; name a listed column with it"
                )
        return
    if measure.kind == "weights" and (not spaces[measure.columns[0]].is_numeric or spaces[measure.columns[0]].is_time):
        raise ParameterError(f"column {measure.columns[0]!r} holds no numbers, and no weights; name another in weights")
    for name in measure.columns:
        space = spaces[name]
        if space.holds_vectors:
            raise ParameterError(
                f"column {name!r} holds {space.noun}, whose sums are measured on their own or by one listed column; "
                "name it by itself in measure, or with that one"
            )
        if space.holds_sets != (measure.kind in OF_SETS):
            sets = "holds sets, whose items are measured on their own; name it by itself in measure, or twice for pairs"
            raise ParameterError(f"column {name!r} {sets if space.holds_sets else 'holds no sets, and has no items'}")
        if measure.kind == "item_pairs" and item_count(space) < 2:
            raise ParameterError(f"column {name!r} has one item, and no pairs of them; leave them out of measure")
        if measure.kind == "sum" and (space.is_listed or space.values < 2):
            raise ParameterError(f"column {name!r} is no number, and has no sum; leave it out of the sums")


def measures_step(
    measures: Sequence[Measure], spaces: Mapping[str, Space], contributions: int, delta: float
) -> Step | None:
    """Return the total cost of all measures per person, for a budget with this δ; None without measures."""
    if not measures:
        return None
    if delta == 0:
        raise ParameterError("measured tables need delta above 0; raise delta, or pass measure=None")
    # All tables share one slack, so that each more costs only μ.
    return noise_step([measure.noise(spaces) for measure in measures], contributions, MEASURED_SLACK_SHARE * delta)


_KIND_NAMES = {
    "one_way": ("table of one column", "tables of one column"),
    "joint": ("joint table", "joint tables"),
    "sum": ("number's sum, in steps", "numbers' sums, in steps"),
    "vectors": ("sum of vectors", "sums of vectors"),
    "items": ("column's supports of items", "columns' supports of items"),
    "sizes": ("column's sizes of sets", "columns' sizes of sets"),
    "weights": ("table of sums of weights, in steps", "tables of sums of weights, in steps"),
    "item_pairs": ("column's supports of pairs of items", "columns' supports of pairs of items"),
}


def measure_parts(measures: Sequence[Measure]) -> list[str]:
    """Return the measured tables of each kind, and their noise, in plain words."""
    parts = []
    for kind in KINDS:
        tables = [measure for measure in measures if measure.kind == kind]
        if tables:
            sigmas = sorted({f"{math.sqrt(measure.sigma2):.4g}" for measure in tables}, key=float)
            noise = sigmas[0] if len(sigmas) == 1 else f"{sigmas[0]} to {sigmas[-1]}"
            labels = list(dict.fromkeys(measure.label for measure in tables))  # levels of one number share its name
            more = f" and {len(labels) - _MAX_NAMED_TABLES} more" if len(labels) > _MAX_NAMED_TABLES else ""
            parts.append(
                f"{len(tables)} {_KIND_NAMES[kind][len(tables) > 1]} at sigma={noise} "
                f"({name_list(labels[:_MAX_NAMED_TABLES])}{more})"
            )
    return parts
