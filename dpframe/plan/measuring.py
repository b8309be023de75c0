"""Which tables are measured in addition to the rows, and with how much noise: a function of public facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, promise_step
from dpframe.errors import DpframeWarning, ParameterError, name_list, tuple_label, warn
from dpframe.plan.forecast import vector_scale
from dpframe.plan.levels import FEW, FIRST, has_levels, level_sizes
from dpframe.plan.measures import LARGEST_TABLE, SLACK, Measure, check_measures, measures_step
from dpframe.spaces import Space
from dpframe.spaces.base import line_of
from dpframe.spaces.cells import ball_of, cell_count, is_cut, item_count, largest_set
from dpframe.totals.least_noise import FAINTEST, least_noise

BINS = 12
"""Cells of a number in a joint where tables are listed, and where a pair's noise is an `_EVEN`-th of the rows (tuned;
effect not measured)."""
FEWEST_BINS, MOST_BINS = 8, 48
"""Least and most of them by default (tuned; effect not measured)."""
_EVEN = 385.0
"""Rows over the standard deviation of a pair's noise at which 12 cells of a number err least (tuned; effect not
measured).

What cells hide falls with their number, and the noise of a pair of numbers grows with its square: the best number grows
with the cube root. Adult's 15 columns at epsilon 1 have this ratio.
"""

FEWEST = 50
"""Rows from which tables are measured by default: fewer say next to nothing, and cost the rows the most (tuned; effect
not measured)."""

MOST_ITEMS = 8
"""Items of a row that are counted, where the space does not limit them (tuned; effect not measured)."""

_MOST_PAIRED = 256
"""Items up to which pairs of them are measured by default: 60 kB in a release's description (limit of memory)."""
_PAIRS_CLEAR = 0.15
"""Noise of pairs of items from which down they are measured, in parts of the share of a frequent pair (tuned; effect
not measured)."""
_COSTS = {"sizes": 0.1, "item_pairs": 0.6}
"""What some tables cost relative to others of their part (tuned; effect not measured).

A tenth for sizes leaves their noise far below what they correct. Pairs have half as much noise again as items for the
same, and questions of two items err by both.
"""

_BY_ROWS = 1 / 9
"""Weight of questions that only rows answer, such as those of three columns, where all pairs are measured (tuned;
effect not measured)."""
_BY_ROWS_OF_LISTS = 1 / 4
"""The same where only some tables are measured: rows answer for all others (tuned; effect not measured)."""

_PARTS = {"one_way": 0.17, "level": 0.12, "sum": 0.12, "joint": 0.59, "vectors": 0.5, "list": 0.1}
"""Shares of what numbers' one-ways, their finer levels, their sums, joints, sums of vectors and lists' one-ways take
(tuned; effect below).

Where numbers take their part, pairs leave lists' one-ways so noisy that a tenth for these lowers their errors by three
tenths and raises those of pairs by a twentieth.
"""
_PARTS_OF_FEW = {"one_way": 0.3, "level": 0.08, "sum": 0.5, "joint": 0.12, "vectors": 0.5}
"""The same where pairs drown in their noise: every column has a one-way of its own, and means are what is left to ask
(tuned; effect below).

With a fifth for sums most means of such tables had errors above a third of a standard deviation.
"""
_APART = 80.0
"""The same from which on lists have one-ways as well as pairs, and large pairs of lists more of the budget than small
(tuned; effect not measured).

With less (3,000 rows of Adult) synthetic rows are worse for either: what hides large pairs leaves small ones.
"""
_MANY_PAIRS, _SMALL = 150, 50.0
"""Pairs from which on, and cells of the median one below which, large pairs have more of the budget in any table
(tuned; effect not measured)."""
_IN_TRIPLES = 0.7
"""Share of the joints' that triples take where they are measured: one-ways and pairs are best from smaller tables
(tuned; effect not measured)."""
_CLEAR = 0.18
"""Expected L1 distance of a raw triple's shares, on average, below which triples are measured (tuned; effect not
measured).

Adult's nine columns at epsilon 1: at 200,000 rows (0.29) pairs say as much of triples, at 400,000 (0.15) a third less.
"""
_IN_TRIPLES_OF_LISTS, _POWERS_OF_LISTS = 0.42, (2 / 3, 1 / 2)
"""The same share where all columns are lists and most pairs large, and powers of cells that pairs and triples cost
(tuned; effect below).

The L1 distances of raw counts are least in sum at the power 2/3. Of Adult's nine columns and a million rows one-ways,
pairs and triples err by .00030/.0028/.0238; with seven tenths for triples, as much for each joint and no one-ways it
was .00037/.0032/.0208. Triples of small pairs say as much of these as the pairs themselves: of columns of two values
they are better with seven tenths.
"""
_PARTS_OF_LISTS = {**_PARTS, "list": 0.03}
"""The parts there: lists have one-ways too, which small pairs leave noisy where large ones cost more (tuned; effect not
measured)."""
_PARTS_OF_LARGE = {**_PARTS, "list": 0.045}
"""The same where no triples are measured (tuned; effect below).

With Adult's nine columns counted one-ways err by .0076 for .0085, pairs by as much as without, triples by 1 % more.
"""
_MOST_TRIPLE_CELLS = 1 << 18
"""Cells of all triples up to which they are measured by default: half a megabyte in a release's description (limit of
memory)."""
_MOST_COUNTED = 1 << 20
"""The same of the cells in which they are counted before numbers are cut: 8 MB, which engines ship from every part
(limit of memory)."""
_DROWNED = 3.0
"""Expected L1 distance of a raw pair's shares, about, from which on its noise hides it (tuned; effect not measured)."""
_ALONE_CELLS = FIRST + 5
"""Most cells of a number's first level, null's among them (limit of the format)."""
_MOST_JOINED = 3
"""Columns of a joint that is measured by default (limit of time)."""
_LARGEST = 1e6
"""A μ above all that can be asked for (limit of the format)."""


_TOO_SMALL = "epsilon is too small to measure tables; raise epsilon, or pass measure=None"


@dataclass(frozen=True)
class Wish:
    """What is to be measured, and of how much: before its noise is known."""

    measure: str | tuple[tuple[str, ...], ...] | None
    share: float | None = None
    """Share of M² that inference leaves; None for that of least forecast error, see `taken`."""
    paid: bool = False
    """Whether spaces have been paid for, so that nothing may be refused any more."""
    goals: Mapping[tuple[str, ...], float] | None = None
    """Standard errors that tables shall have, of shares or of a mean, which decide what each of them costs."""
    added: tuple[tuple[str, ...], ...] = ()
    """Tables that are measured in addition to the default ones."""

    @property
    def is_default(self) -> bool:
        """Whether the default tables are measured."""
        return isinstance(self.measure, str)

    @property
    def listed(self) -> Wish:
        """The wish for only the tables that are listed, at the same share."""
        return replace(self, measure=self.added or None, added=(), share=self.taken) if self.is_default else self

    def tables(self, spaces: Mapping[str, Space]) -> list[Measure]:
        """Return the default or listed tables, with noise of an arbitrary size; refuse those that cannot be made."""
        if self.measure is None:
            return []
        measures = list(_all_tables(spaces) if isinstance(self.measure, str) else _asked(self.measure, spaces))
        check_measures([*measures, *_missing(measures, self.added, spaces, MOST_BINS)], spaces)
        return measures

    @property
    def taken(self) -> float:
        """The share of M² that tables take.

        An error from tables falls with the root of their share s, one from rows with the root of 1 − s. The weighted
        geometric mean of both, whatever n and ε are, is least at s = 1/(1 + w), where w is the weight of questions
        that only rows answer, relative to those that tables answer.
        """
        by_rows = _BY_ROWS if isinstance(self.measure, str) else _BY_ROWS_OF_LISTS
        return 1 / (1 + by_rows) if self.share is None else self.share

    def most(self, promise: Budget, inference: Step | None) -> Step:
        """Return the most that tables may cost on top of an inference: public before anything is measured."""
        square_left_over = promise_step(promise).square - (0 if inference is None else inference.square)
        return Step(
            math.sqrt(max(0.0, float(square_left_over * Fraction(self.taken)))) * (1 - 1e-12), SLACK * promise.delta
        )

    def measures(
        self,
        spaces: Mapping[str, Space],
        promise: Budget,
        inference: Step | None,
        n: int,
        contributions: int,
        *,
        proved: bool = True,
    ) -> tuple[Measure, ...]:
        """Return the tables with the noise that costs the share of what inference leaves of M².

        By default nothing is measured of fewer than fifty rows, or where noise would exceed their number. With
        ``proved=False`` the noise is the normal law's, for forecasts only: the lattice's costs some 1e-4 more.
        """
        auto, tables = self.is_default, self.tables(spaces)
        measure_added = partial(self.listed.measures, spaces, promise, inference, n, contributions, proved=proved)
        if not tables or (auto and n < FEWEST):
            return measure_added() if self.added else ()
        if self.goals is not None:
            weights = _goal_weights(tables, spaces, self.goals)
        else:
            weights = _weights(tables) if auto else _weights_of_list(tables, spaces)
        mu = self.most(promise, inference).mu

        find_noise = partial(_noised, spaces=spaces, mu=mu, contributions=contributions, delta=promise.delta)
        if auto and proved:
            measured_tables = _by_default(tables, weights, find_noise, spaces, n, self.added)
        else:
            measured_tables = find_noise(tables, weights, proved)
            if auto and measured_tables is not None:
                measured_tables = find_noise(*_fitted_to_noise(measured_tables, spaces, n, self.added), proved)
        # Vectors are counted with a weight, other rows with 1.
        units = [ball_of(spaces[m.columns[0]]).last if m.kind == "vectors" else 1 for m in measured_tables or ()]
        counts = [m.sigma2 / unit**2 for m, unit in zip(measured_tables or (), units, strict=True) if m.kind != "sum"]
        lowest_variance = min(counts, default=math.inf)
        if measured_tables is None and not auto:
            if not self.paid:
                raise ParameterError(_TOO_SMALL)
            warn(f"nothing was measured: {_TOO_SMALL}", DpframeWarning)
        if auto and (measured_tables is None or lowest_variance > n**2):
            return measure_added() if self.added else ()
        return tuple(measured_tables or ())

    def met_from(self, spaces: Mapping[str, Space], n: int, contributions: int) -> float:
        """Return about the least μ of a promise whose tables alone meet their goals: by the normal law, unproved."""
        tables, goals = self.tables(spaces), self.goals or {}
        square = math.fsum(_goal_costs(tables, spaces, goals)) * math.fsum(_goal_weights(tables, spaces, goals))
        return contributions / n * math.sqrt(square / self.taken)

    def without(self, spaces: Mapping[str, Space], lost: Collection[str] = ()) -> Wish:
        """Return the wish less the listed tables that cannot be made, with a warning: of spaces that were paid for.

        ``lost`` are columns whose spaces were not found.
        """
        listed = self.added if isinstance(self.measure, str) else self.measure or ()
        feasible, refusals = [], []
        for names in listed:
            if missing_columns := [name for name in names if name in lost]:
                refusals.append(
                    f"{tuple_label(names)} needs the space of {name_list(missing_columns)}, which was not found"
                )
                continue
            try:
                (replace(self, added=(names,)) if self.is_default else Wish((names,))).tables(spaces)
            except ParameterError as error:
                refusals.append(str(error))
            else:
                feasible.append(names)
        if refusals:
            warn(
                f"not measured, as the spaces that were inferred do not allow it: {'; '.join(refusals)}", DpframeWarning
            )
        if self.is_default:
            return replace(self, added=tuple(feasible), paid=True)
        return replace(self, measure=tuple(feasible) or None, paid=True)


def _alone(name: str, space: Space, with_sums: bool = True) -> Iterator[Measure]:
    """Yield what is measured of one column on its own."""
    if space.holds_sets:
        sets: Any = space.inner_space
        has_max_size = sets.max_size is not None
        yield Measure("items", (name,), 1.0, sets.most if has_max_size else min(MOST_ITEMS, item_count(space)))
        yield Measure("sizes", (name,), 1.0)
        return
    if space.holds_vectors:
        yield Measure("vectors", (name,), 1.0)
        return
    if has_levels(space):
        for level, size in enumerate(level_sizes(space), start=1):
            yield Measure("one_way", (name,), 1.0, size, level)
    else:
        yield Measure("one_way", (name,), 1.0, 0 if space.is_listed else FEW)
    if with_sums and not space.is_listed and space.values > 1:
        yield Measure("sum", (name,), 1.0)


def _item_pairs(name: str, space: Space) -> Measure:
    return Measure("item_pairs", (name,), 1.0, max(2, min(MOST_ITEMS, largest_set(space))))


def _with_item_pairs(
    tables: Sequence[Measure], tables_with_noise: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> Iterator[Measure]:
    """Yield tables, and after those of sets' items those of their pairs where noise leaves something of these.

    ``noised`` has the noise that items have without pairs. Frequent items are taken as four times as many as are
    counted of a row, and lie in half as many rows as they could. With `_PAIRS_CLEAR` of such a pair as noise, pairs of
    the 20 most frequent items of a grocer's err half as much as what supports and sizes say of them, and whether a set
    holds either of two is as well known as without: items have more noise then.
    """
    sigma2 = {table.columns: table.sigma2 for table in tables_with_noise if table.kind == "items"}
    for table in tables:
        yield table
        if table.kind != "items" or not 2 <= item_count(spaces[table.columns[0]]) <= _MOST_PAIRED:
            continue
        pairs = _item_pairs(table.columns[0], spaces[table.columns[0]])
        variance_factor = pairs.noise(spaces).moves / table.noise(spaces).moves / _COSTS["item_pairs"]
        frequent_items = min(item_count(spaces[table.columns[0]]), 4 * table.most)
        if (
            math.sqrt(sigma2[table.columns] * variance_factor) / n
            < _PAIRS_CLEAR * (table.most / 2 / frequent_items) ** 2
        ):
            yield pairs


def _joint(names: Sequence[str], spaces: Mapping[str, Space], bins: int = BINS) -> Measure:
    vectors = [name for name in names if name in spaces and spaces[name].holds_vectors]
    if len(names) == 2 and len(vectors) == 1:
        return Measure("vectors", tuple(sorted(names, key=lambda name: name not in vectors)), 1.0)
    has_cut_numbers = any(name in spaces and not spaces[name].is_listed for name in names)
    return Measure("joint", tuple(names), 1.0, bins if has_cut_numbers else 0)


def _all_tables(spaces: Mapping[str, Space], bins: int = BINS) -> Iterator[Measure]:
    """Yield what is measured by default: of numbers and sets all that is theirs, and pairs, the smallest first.

    Every column is covered: one whose pairs are all too large, and a single one, has a one-way.
    """
    plain = {name: space for name, space in spaces.items() if not space.holds_sets and not space.holds_vectors}
    cells = {name: cell_count(space, bins) for name, space in plain.items()}
    cells_available, paired_columns = LARGEST_TABLE, set[str]()
    pairs = []
    for column, partner in sorted(combinations(plain, 2), key=lambda pair: cells[pair[0]] * cells[pair[1]]):
        size = cells[column] * cells[partner]
        if min(cells[column], cells[partner]) > 1 and size <= cells_available:
            cells_available -= size
            pairs.append((column, partner))
            paired_columns |= {column, partner}
    for name, space in spaces.items():
        if not space.is_listed or (name not in paired_columns and 1 < cell_count(space, 0) <= LARGEST_TABLE):
            yield from _alone(name, space)
    for pair in sorted(pairs, key=lambda pair: [list(plain).index(name) for name in pair]):
        yield _joint(pair, spaces, bins)


Noisy = Callable[..., list[Measure] | None]
"""Gives tables of such shares the least noise, the exact one or (last, False) the normal law's."""


def _by_default(
    defaults: Sequence[Measure],
    weights: Sequence[float],
    find_noise: Noisy,
    spaces: Mapping[str, Space],
    n: int,
    extra_tables: Sequence[tuple[str, ...]],
) -> list[Measure] | None:
    """Return what is measured by default, with its noise, where these tables might be; None if there is no such noise.

    It depends on the noise that all of them would have, which takes as long to prove as that of those that are taken,
    and is hardly above the normal law's. So what that gives is taken where what is `_raised` gives the same, and where
    the tables' own noise turns out as near.
    """
    normal_measures = find_noise(defaults, weights, False)
    if normal_measures is None:
        return None
    likely_tables, shares = _fitted_to_noise(normal_measures, spaces, n, extra_tables)
    alternatives, alternative_shares = _fitted_to_noise(_raised(normal_measures), spaces, n, extra_tables)
    if shares == alternative_shares and _unsized(likely_tables) == _unsized(alternatives):
        measures, normal_bounds = find_noise(likely_tables, shares), find_noise(likely_tables, shares, False)
        if (
            measures
            and normal_bounds
            and all(
                measure.sigma2 <= upper_bound.sigma2
                for measure, upper_bound in zip(measures, _raised(normal_bounds), strict=True)
            )
        ):
            return measures
    lattice_measures = find_noise(defaults, weights)
    return (
        None if lattice_measures is None else find_noise(*_fitted_to_noise(lattice_measures, spaces, n, extra_tables))
    )


def _raised(tables: Sequence[Measure]) -> list[Measure]:
    """Return tables that have the normal law's noise with the most of the lattice's: twice the excess ever seen."""
    factor = 1.001 + 0.05 / min(table.sigma2 for table in tables)
    return [replace(table, sigma2=factor * table.sigma2) for table in tables]


def _unsized(tables: Iterable[Measure]) -> list[Measure]:
    return [replace(table, sigma2=1.0) for table in tables]


def _fitted_to_noise(
    tables: Sequence[Measure], spaces: Mapping[str, Space], n: int, extra_tables: Sequence[tuple[str, ...]]
) -> tuple[list[Measure], list[float]]:
    """Return the default tables and those that are added to them, and their weights.

    The default ones are the same with any added: those that this noise of all default tables calls for.
    """
    defaults, weights = _chosen(tables, spaces, n)
    extras = _missing(defaults, extra_tables, spaces, max((pair.most for pair in _pairs(defaults)), default=0) or BINS)
    if not extras:
        return defaults, weights
    # Finer levels have cells only where counts exceed their noise.
    cell_tables = [table for table in defaults if table.level <= 1]
    sizes = _by_size([*cell_tables, *extras], spaces, 1.0, _LEAST_L1)
    default_share = math.fsum(sizes[: len(cell_tables)])
    weight_pairs = zip(
        [*defaults, *extras], [*(default_share * weight for weight in weights), *sizes[len(cell_tables) :]], strict=True
    )
    # Tables of one column come before joints, which they cut.
    sorted_pairs = sorted(weight_pairs, key=lambda entry: entry[0].kind == "joint")
    return [table for table, _ in sorted_pairs], [weight for _, weight in sorted_pairs]


def _missing(
    tables: Sequence[Measure], column_tuples: Iterable[tuple[str, ...]], spaces: Mapping[str, Space], bins: int
) -> list[Measure]:
    """Return the tables that are asked for and are not among the given ones."""
    identities = {table.identity for table in tables}
    return [table for table in _asked(column_tuples, spaces, bins) if table.identity not in identities]


def _chosen(tables: Sequence[Measure], spaces: Mapping[str, Space], n: int) -> tuple[list[Measure], list[float]]:
    """Return what is measured by default where these tables have this noise, and the weights: of public facts only.

    Where noise hides pairs every column has a one-way; elsewhere numbers have as many cells in joints as rows are worth
    at this noise, and triples are measured too where they are clear.
    """
    # The noise of a cell is 0.8 σ on average.
    l1_distances = [0.8 * math.prod(pair.shape(spaces)) * math.sqrt(pair.sigma2) / n for pair in _pairs(tables)]
    if l1_distances and float(np.median(l1_distances)) > _DROWNED:
        defaults = list(_with_one_ways(tables, spaces))
        return defaults, _weights(defaults, _PARTS_OF_FEW, "one_way")
    defaults = list(_with_item_pairs(_in_bins(tables, spaces, n), tables, spaces, n))
    triples = _clear_triples(tables, defaults, spaces, n)
    is_above_noise = _worth(tables, n) > _APART
    has_numbers = any(table.kind == "one_way" and table.most for table in defaults)
    has_list_triples = bool(triples) and not has_numbers and _median_cells(defaults, spaces) >= _SMALL
    has_large_pairs = is_above_noise and not has_numbers and _median_cells(defaults, spaces) >= _SMALL
    if has_list_triples or has_large_pairs or (is_above_noise and has_numbers):
        defaults = list(_with_one_ways(defaults, spaces))
    weights = _weights(
        defaults, _PARTS_OF_LISTS if has_list_triples else _PARTS_OF_LARGE if has_large_pairs else _PARTS, lists="list"
    )
    joint_share = math.fsum(weight for table, weight in zip(defaults, weights, strict=True) if table.kind == "joint")
    triple_share = joint_share * (_IN_TRIPLES_OF_LISTS if has_list_triples else _IN_TRIPLES) if triples else 0.0
    is_questionnaire = len(_pairs(defaults)) >= _MANY_PAIRS and _median_cells(defaults, spaces) < _SMALL
    costs_by_size = not triples and ((is_above_noise and not has_numbers) or is_questionnaire)
    pair_power, triple_power = _POWERS_OF_LISTS if has_list_triples else (_POWER if costs_by_size else 0, 0)
    pairs = iter(_by_size(_pairs(defaults), spaces, joint_share - triple_share, pair_power))
    weights = [
        next(pairs) if table.kind == "joint" else weight for table, weight in zip(defaults, weights, strict=True)
    ]
    return [*defaults, *triples], [*weights, *_by_size(triples, spaces, triple_share, triple_power)]


_POWER = 1 / 3
"""Power of cells that pairs cost where no triples are measured (tuned; effect below).

A fit takes away the more of the noise the more cells there are. On Adult's nine lists pairs and triples err by 2 to 4 %
less (L1) than at equal costs, and one-ways, which small pairs show best, by a tenth more: .0064 for .0058. The square
root raises all of them again. On four tables of 20 to 33 columns, most of few values, pairs of synthetic rows err by 1
to 8 % less and triples by 1 to 6 %. Where most pairs are large for numbers' cells (Adult's 15 columns) they err by 4 %
more.
"""


_LEAST_L1 = 2 / 3
"""Power of cells at which costs make the sum of the L1 distances of raw counts least (theory: see `_by_size`)."""


def _by_size(tables: Sequence[Measure], spaces: Mapping[str, Space], share: float, power: float) -> list[float]:
    """Return what each of some joints costs where all together cost a share, by a power of their cells.

    The L1 distance of raw counts, 0.8·cells·σ/n, is least in sum at costs by the power 2/3. Costs are rounded to half
    a doubling, so that few noises differ.
    """
    roots = [2 ** (round(2 * power * math.log2(math.prod(table.shape(spaces)))) / 2) for table in tables]
    root_sum = math.fsum(roots)
    return [share * root / root_sum for root in roots]


def _median_cells(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> float:
    return float(np.median([math.prod(pair.shape(spaces)) for pair in _pairs(tables)]))


def _pairs(tables: Iterable[Measure]) -> list[Measure]:
    return [table for table in tables if table.kind == "joint"]


def _worth(tables_with_noise: Sequence[Measure], n: int) -> float:
    """Return the rows over the standard deviation of a pair's noise, 0 where no pair is measured."""
    sigmas = [math.sqrt(pair.sigma2) for pair in _pairs(tables_with_noise)]
    return n / float(np.median(sigmas)) if sigmas else 0.0


def _in_bins(tables: Sequence[Measure], spaces: Mapping[str, Space], n: int) -> list[Measure]:
    """Return the tables with numbers in as many cells as their noise allows, no pair of fewer left out for them."""
    pairs = _pairs(tables)
    if not any(pair.most for pair in pairs):
        return list(tables)
    best_bins = round(BINS * (_worth(tables, n) / _EVEN) ** (1 / 3))
    for bins in range(min(max(best_bins, FEWEST_BINS), MOST_BINS), BINS, -1):
        candidates = list(_all_tables(spaces, bins))
        if len(_pairs(candidates)) >= len(pairs):
            return candidates
    return list(_all_tables(spaces, min(max(best_bins, FEWEST_BINS), BINS)))


def _clear_triples(
    tables_with_noise: Sequence[Measure], tables: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> list[Measure]:
    """Return all triples of the columns of pairs where their noise is small relative to the rows; else none.

    ``noised`` has the noise that ``tables`` have without them.
    """
    pairs = _pairs(tables)
    columns = list(dict.fromkeys(name for pair in pairs for name in pair.columns))
    names = [name for name in spaces if name in columns]
    if len(names) < 3 or len(pairs) < math.comb(len(names), 2):
        return []
    bins = max(pair.most for pair in pairs) or BINS
    cells = [cell_count(spaces[name], bins) for name in names]
    uncut_cells = [
        cell_count(space, 0)
        if not is_cut(space, bins)
        else _ALONE_CELLS
        if has_levels(space)
        else cell_count(space, FEW)
        for space in (spaces[name] for name in names)
    ]
    # Elementary symmetric sums: those of wide tables are never listed.
    triple_cells, uncut_triple_cells = _of_triples(cells), _of_triples(uncut_cells)
    largest_triple = math.prod(sorted(cells)[-3:])
    if triple_cells > _MOST_TRIPLE_CELLS or uncut_triple_cells > _MOST_COUNTED or largest_triple > LARGEST_TABLE:
        return []
    triple_count = math.comb(len(names), 3)
    variance = (
        float(np.median([pair.sigma2 for pair in _pairs(tables_with_noise)])) * triple_count / len(pairs) / _IN_TRIPLES
    )
    if 0.8 * triple_cells / triple_count * math.sqrt(variance) / n > _CLEAR:
        return []
    return [_joint(triple, spaces, bins) for triple in combinations(names, 3)]


def _of_triples(sizes: Sequence[int]) -> int:
    """Return the sum of the products of all triples of some numbers.

    >>> _of_triples([2, 3, 4, 5])
    154
    """
    sums = [1, 0, 0, 0]
    for size in sizes:
        sums = [sums[0], *(sums[i] + sums[i - 1] * size for i in (1, 2, 3))]
    return sums[3]


def _with_one_ways(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> Iterator[Measure]:
    """Yield tables, and before those of pairs one-ways of the columns that have none."""
    counted_columns = {table.columns[0] for table in tables if table.kind == "one_way"}
    joint_columns = dict.fromkeys(name for table in tables if table.kind == "joint" for name in table.columns)
    yield from (table for table in tables if table.kind != "joint")
    for name in joint_columns:
        if name not in counted_columns:
            yield from _alone(name, spaces[name], with_sums=False)
    yield from (table for table in tables if table.kind == "joint")


def _asked(
    column_tuples: Iterable[tuple[str, ...]], spaces: Mapping[str, Space], bins: int = BINS
) -> Iterator[Measure]:
    """Yield what is asked for, and the one-ways whose quantiles cut the numbers of joints."""
    column_tuples = list(column_tuples)
    for name in dict.fromkeys(name for names in column_tuples for name in names):
        if name not in spaces:
            raise ParameterError(
                f"measure names {name!r}, which is not a randomised column; these are {name_list(list(spaces))}"
            )
        has_one_way, has_item_pairs = (name,) in column_tuples, (name, name) in column_tuples
        needs_one_way = is_cut(spaces[name], bins) and not spaces[name].code_words
        if has_one_way or needs_one_way:
            yield from _alone(name, spaces[name], with_sums=has_one_way)
        if has_item_pairs:
            if not spaces[name].holds_sets:
                raise ParameterError(
                    f"measure names {name!r} twice in one table, for pairs of items, and it holds no sets; name it once"
                )
            yield from () if has_one_way else _alone(name, spaces[name])
            yield _item_pairs(name, spaces[name])
    for names in column_tuples:
        if len(names) > _MOST_JOINED:
            raise ParameterError("measure takes columns, pairs and triples; a table of more columns is too thin")
        if len(set(names)) > 1:
            yield _joint(names, spaces, bins)


def _weights(tables: Sequence[Measure], shares: Mapping[str, float] = _PARTS, lists: str = "joint") -> list[float]:
    """Return each table's share of what all may cost; ``lists`` is the part that one-ways of lists belong to."""
    parts = [_part(table, lists) for table in tables]
    costs = [_COSTS.get(table.kind, 1.0) for table in tables]
    part_costs: dict[str, float] = {}
    for part, cost in zip(parts, costs, strict=True):
        part_costs[part] = part_costs.get(part, 0.0) + cost
    share_sum = sum(shares[part] for part in part_costs)
    return [shares[part] * cost / part_costs[part] / share_sum for part, cost in zip(parts, costs, strict=True)]


def _weights_of_list(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> list[float]:
    """Return each listed table's share of what all may cost: that of joints and lists' one-ways follows their cells."""
    weights = _weights(tables)
    positions = [
        i for i, table in enumerate(tables) if table.kind == "joint" or (table.kind == "one_way" and not table.most)
    ]
    shares = _by_size([tables[i] for i in positions], spaces, math.fsum(weights[i] for i in positions), _LEAST_L1)
    for i, share in zip(positions, shares, strict=True):
        weights[i] = share
    return weights


def _part(table: Measure, lists: str) -> str:
    """Return what a table is of what all may cost."""
    if table.kind == "one_way":
        return "level" if table.level > 1 else "one_way" if table.most else lists
    return table.kind if table.kind in ("sum", "vectors") else "joint"


def _goal_weights(
    tables: Sequence[Measure], spaces: Mapping[str, Space], goals: Mapping[tuple[str, ...], float]
) -> list[float]:
    """Return what each table shall cost so that all miss or meet their goals together; of others a little."""
    costs = _goal_costs(tables, spaces, goals)
    cost_sum = math.fsum(costs)
    return [cost / cost_sum if cost else _BESIDE_GOALS for cost in costs]


def _goal_costs(
    tables: Sequence[Measure], spaces: Mapping[str, Space], goals: Mapping[tuple[str, ...], float]
) -> list[float]:
    """Return μ² of each table that just meets its goal; 0 of those that have none.

    A table of noise σ costs numbers·(span/σ)², and its error is σ in parts of n; that of a sum also has the step.
    """
    costs = []
    for table in tables:
        goal, noise = goals.get(table.columns), table.noise(spaces)
        only_helps = table.kind in _COSTS or (table.kind == "one_way" and not spaces[table.columns[0]].is_listed)
        if goal is None or only_helps:
            costs.append(0.0)
            continue
        space = spaces[table.columns[0]]
        # What 1 in a table's numbers is, over the rows, in the unit of its goal.
        unit = line_of(space)[1] if table.kind == "sum" else 1.0
        unit = vector_scale(space) / ball_of(space).last if table.kind == "vectors" else unit
        costs.append(noise.moves * (noise.span / (goal / unit)) ** 2)
    return costs


_BESIDE_GOALS = 0.02
"""Part of what tables cost that has one which only helps others: a number's one-way where its mean is asked (tuned;
effect not measured)."""


def _noised(
    tables: Sequence[Measure],
    weights: Sequence[float],
    proved: bool = True,
    *,
    spaces: Mapping[str, Space],
    mu: float,
    contributions: int,
    delta: float,
) -> list[Measure] | None:
    """Return the tables with the least noise, about, whose step (exact if ``proved``) is within μ; None without any."""
    if not mu > 0 or delta * SLACK < FAINTEST:
        return None

    def with_noise(scales: Sequence[float]) -> list[Measure]:
        return [replace(table, sigma2=sigma2) for table, sigma2 in zip(tables, scales, strict=True)]

    def cost_of(scales: Sequence[float]) -> Step:
        if not proved:
            return Step(0.0)
        try:
            return measures_step(with_noise(scales), spaces, contributions, delta) or Step(0.0)
        except ParameterError:  # noise so small that its tails count costs more than anything
            return Step(_LARGEST)

    variances = least_noise([table.noise(spaces) for table in tables], weights, mu, contributions, cost_of)
    return None if variances is None else with_noise(variances)
