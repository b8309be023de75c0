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
from dpframe.errors import DpframeWarning, ParameterError, list_below, name_list, tuple_label, warn
from dpframe.forecast.errors import vector_scale
from dpframe.inference.categories import MOST_COUNTED_ITEMS
from dpframe.plan.levels import FEW, FIRST_LEVEL_CELLS, has_levels, level_sizes
from dpframe.plan.measures import MAX_MEASURED_CELLS, MEASURED_SLACK_SHARE, Measure, check_measures, measures_step
from dpframe.spaces import Space
from dpframe.spaces.base import affine_map
from dpframe.spaces.cells import ball_of, cell_count, is_cut, item_count, largest_set
from dpframe.totals.least_noise import FAINTEST, least_noise

JOINT_NUMBER_BINS = 12
"""Cells of a number in a listed joint table, and in a default one at `_ROWS_PER_NOISE_AT_12_BINS` (tuned; effect not
measured)."""
FEWEST_BINS, MOST_BINS = 8, 48
"""Least and most cells of a number in default tables (tuned; effect not measured)."""
_ROWS_PER_NOISE_AT_12_BINS = 385.0
"""Rows over the standard deviation of a pair's noise at which 12 cells of a number have the least error (tuned; effect
not measured).

The error within cells falls with their number, and the noise of a pair of numbers grows with the square of this number.
So the best number grows with the cube root. Adult's 15 columns at epsilon 1 have this ratio.
"""

MIN_MEASURED_ROWS = 50
"""Least rows for which tables are measured by default: tables of fewer rows are mostly noise (tuned; effect not
measured)."""

_MOST_ITEMS_FOR_PAIRS = 256
"""Most items whose pairs are measured by default: 60 kB in a release's description (limit of memory)."""
_ITEM_PAIR_NOISE_LIMIT = 0.15
"""Noise of item pairs, over the share of a frequent pair, below which pairs are measured (tuned; effect not measured).
"""
_RELATIVE_COSTS = {"sizes": 0.1, "item_pairs": 0.6}
"""Costs of some tables relative to other tables of their part (tuned; effect not measured).

A tenth for set sizes leaves their noise far below their corrections. At equal cost the noise of pairs is half as large
again as the noise of items, and questions of two items have both errors.
"""

_ROWS_ONLY_WEIGHT = 1 / 9
"""Weight of questions that only rows answer, such as questions of three columns, if all pairs are measured (tuned;
effect not measured)."""
_ROWS_ONLY_WEIGHT_OF_LISTED = 1 / 4
"""Weight of questions that only rows answer if only listed tables are measured (tuned; effect not measured)."""

_BUDGET_PARTS = {"one_way": 0.17, "level": 0.12, "sum": 0.12, "joint": 0.59, "vectors": 0.5, "list": 0.1}
"""Budget shares of numbers' one-ways, their finer levels, their sums, joints, vector sums, and one-ways of listed
columns (tuned; effect below).

Tables with numbers have a tenth for the one-ways of listed columns. This lowers their errors by three tenths, and
raises the errors of pairs by a twentieth.
"""
_BUDGET_PARTS_OF_FEW = {"one_way": 0.3, "level": 0.08, "sum": 0.5, "joint": 0.12, "vectors": 0.5}
"""Budget shares if pairs are below their noise: every column then has a one-way, and means matter most (tuned; effect
below).

With a fifth for sums most means of these tables had errors above a third of a standard deviation.
"""
_ONE_WAYS_FROM_ROWS_PER_NOISE = 80.0
"""Rows over the standard deviation of a pair's noise above which listed columns have one-ways too, and large pairs more
budget (tuned; effect not measured).

Below it (3,000 rows of Adult) synthetic rows are worse with either: noise in large pairs carries over to small ones.
"""
_QUESTIONNAIRE_PAIRS, _SMALL_PAIR_CELLS = 150, 50.0
"""Least number of pairs, and cells of their median below which, large pairs have more budget in any table (tuned;
effect not measured)."""
_TRIPLE_SHARE = 0.7
"""Share of the joints' budget for triples, if measured: one-ways and pairs are best from smaller tables (tuned; effect
not measured)."""
_TRIPLE_L1_LIMIT = 0.18
"""Expected mean L1 distance of a raw triple's shares below which triples are measured (tuned; effect not measured).

Adult's nine columns at epsilon 1: at 200,000 rows (0.29) pairs answer triples as well, at 400,000 (0.15) a third worse.
"""
_TRIPLE_SHARE_OF_LISTS, _COST_POWERS_OF_LISTS = 0.42, (2 / 3, 1 / 2)
"""Share of the joints' budget for triples if all columns are listed and most pairs large, and powers of cells for the
costs of pairs and triples (tuned; effect below).

The sum of the L1 distances of raw counts is least at the power 2/3. Adult's nine columns and a million rows have errors
of .00030/.0028/.0238 for one-ways, pairs and triples. With seven tenths for triples, equal costs and no one-ways the
errors are .00037/.0032/.0208. Triples of small pairs measure these pairs as well as the pairs themselves: columns of
two values are better with seven tenths.
"""
_BUDGET_PARTS_OF_LISTS = {**_BUDGET_PARTS, "list": 0.03}
"""Budget shares for `_TRIPLE_SHARE_OF_LISTS`: small pairs leave noisy one-ways if large pairs cost more (tuned; effect
not measured)."""
_BUDGET_PARTS_OF_LARGE = {**_BUDGET_PARTS, "list": 0.045}
"""Budget shares for listed columns with large pairs and no triples (tuned; effect below).

With these shares Adult's nine columns have one-way errors of .0076 rather than .0085, equal pair errors, and triple
errors 1 % larger.
"""
_MOST_TRIPLE_CELLS = 1 << 18
"""Most cells of all triples together by default: half a megabyte in a release's description (limit of memory)."""
_MAX_UNCUT_TRIPLE_CELLS = 1 << 20
"""Most cells of all triples before numbers are cut: 8 MB, which engines ship from every part (limit of memory)."""
_PAIR_L1_LIMIT = 3.0
"""Expected L1 distance of a raw pair's shares, about, above which pairs are mostly noise (tuned; effect not measured).
"""
_MOST_FIRST_LEVEL_CELLS = FIRST_LEVEL_CELLS + 5
"""Most cells of a number's first level, with the cell of null (limit of the format)."""
_MOST_JOINT_COLUMNS = 3
"""Most columns of a default joint (limit of time)."""
_LARGEST_MU = 1e6
"""μ above all valid requests (limit of the format)."""


_WEIGHT_SUMS_SHARE = 0.6
"""Share of the tables' budget for sums of weights, if there are any (tuned; at a half weighted counts of a made survey
err 1.8 times as much as its counts, at this share some 1.5 times)."""


_SEPARATE_MU_FACTOR = 1 - 1e-3
"""Part of μ that two groups of tables take whose costs are proved one by one (tolerance)."""


_TOO_SMALL = "epsilon is too small to measure tables; raise epsilon, or pass measure=None"


@dataclass(frozen=True)
class Workload:
    """Requested tables and their share of the budget, before their noise is known."""

    measure: str | tuple[tuple[str, ...], ...] | None
    share: float | None = None
    """Share of M² after inference for tables; None for the share of least forecast error, see `taken`."""
    paid: bool = False
    """Whether spaces have been paid for: a request is then reduced rather than refused."""
    goals: Mapping[tuple[str, ...], float] | None = None
    """Target standard errors by table, of shares or of a mean; they determine the cost of each table."""
    added: tuple[tuple[str, ...], ...] = ()
    """Tables in addition to the default ones."""
    weights: str | None = None
    """Column of weights, which are added up by the cells of every other column."""
    portion: float = 1.0
    """Part of the tables' cost that these tables take, beside sums of weights."""

    @property
    def is_default(self) -> bool:
        """Whether the default tables are requested."""
        return isinstance(self.measure, str)

    @property
    def listed(self) -> Workload:
        """The request for only the listed tables, at an equal share."""
        return replace(self, measure=self.added or None, added=(), share=self.taken) if self.is_default else self

    def tables(self, spaces: Mapping[str, Space]) -> list[Measure]:
        """Return the default or listed tables, with noise of an arbitrary size; refuse tables that cannot be made."""
        if self.measure is None:
            return []
        measures = list(
            _default_tables(spaces) if isinstance(self.measure, str) else _listed_tables(self.measure, spaces)
        )
        check_measures([*measures, *_missing_tables(measures, self.added, spaces, MOST_BINS)], spaces)
        return measures

    @property
    def taken(self) -> float:
        """The share of M² for tables.

        An error from tables falls with the root of their share s, an error from rows with the root of 1 − s. The
        weighted geometric mean of both is least at s = 1/(1 + w), for any n and ε. The weight w is of questions that
        only rows answer, relative to questions that tables answer.
        """
        by_rows = _ROWS_ONLY_WEIGHT if isinstance(self.measure, str) else _ROWS_ONLY_WEIGHT_OF_LISTED
        return 1 / (1 + by_rows) if self.share is None else self.share

    def most(self, promise: Budget, inference: Step | None) -> Step:
        """Return the upper limit of the tables' cost after inference: public before anything is measured."""
        # Exact up to the root, then rounded down: tables and rows together stay within the budget.
        square_left_over = promise_step(promise).square - (0 if inference is None else inference.square)
        return Step(
            math.sqrt(max(0.0, float(square_left_over * Fraction(self.taken)))) * (1 - 1e-12),
            MEASURED_SLACK_SHARE * promise.delta,
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
        """Return the tables, with the noise that costs their share of M² after inference.

        No default tables are measured of fewer than fifty rows, or if their noise would exceed the number of rows. With
        ``proved=False`` the noise is the normal law's, for forecasts only: the lattice law costs some 1e-4 more.
        """
        if self.weights is not None:
            other_tables = replace(self, weights=None, portion=1 - _WEIGHT_SUMS_SHARE)
            measured_counts = other_tables.measures(spaces, promise, inference, n, contributions, proved=proved)
            sums = self._weight_sums(measured_counts, spaces)
            # A little less than all: tables that are proved apart cost a little more together.
            mu = self.most(promise, inference).mu * math.sqrt(_WEIGHT_SUMS_SHARE) * _SEPARATE_MU_FACTOR
            find_sums = partial(
                _find_least_noise, spaces=spaces, mu=mu, contributions=contributions, delta=promise.delta
            )
            noisy_sums = find_sums(sums, [1 / len(sums)] * len(sums), proved) if sums else None
            return (*measured_counts, *(noisy_sums or ()))
        auto, tables = self.is_default, self.tables(spaces)
        measure_added = partial(self.listed.measures, spaces, promise, inference, n, contributions, proved=proved)
        if not tables or (auto and n < MIN_MEASURED_ROWS):
            return measure_added() if self.added else ()
        if self.goals is not None:
            weights = _goal_shares(tables, spaces, self.goals)
        else:
            weights = _budget_shares(tables) if auto else _listed_shares(tables, spaces)
        mu = self.most(promise, inference).mu
        if self.portion < 1:
            mu *= math.sqrt(self.portion) * _SEPARATE_MU_FACTOR

        find_noise = partial(_find_least_noise, spaces=spaces, mu=mu, contributions=contributions, delta=promise.delta)
        if auto and proved:
            measured_tables = _choose_defaults(tables, weights, find_noise, spaces, n, self.added)
        else:
            measured_tables = find_noise(tables, weights, proved)
            if auto and measured_tables is not None:
                measured_tables = find_noise(*_fit_to_noise(measured_tables, spaces, n, self.added), proved)
        # Vectors are counted with a weight, other rows with 1.
        units = [ball_of(spaces[m.columns[0]]).last if m.kind == "vectors" else 1 for m in measured_tables or ()]
        counts = [m.sigma2 / unit**2 for m, unit in zip(measured_tables or (), units, strict=True) if m.kind != "sum"]
        # Sums are in steps of a number: their variance does not compare with a count's.
        lowest_variance = min(counts, default=math.inf)
        if measured_tables is None and not auto:
            if not self.paid:
                raise ParameterError(_TOO_SMALL)
            warn(f"nothing was measured: {_TOO_SMALL}", DpframeWarning)
        if auto and (measured_tables is None or lowest_variance > n**2):
            return measure_added() if self.added else ()
        return tuple(measured_tables or ())

    def _weight_sums(self, measures: Sequence[Measure], spaces: Mapping[str, Space]) -> list[Measure]:
        """Return the sums of weights by the cells of every other column, with noise of an arbitrary size."""
        sums = []
        one_ways = {measure.columns[0] for measure in measures if measure.kind == "one_way"}
        for name, space in spaces.items():
            is_plain = not space.holds_sets and not space.holds_vectors
            if (
                not is_plain
                or name == self.weights
                or not 1 < cell_count(space, JOINT_NUMBER_BINS) <= FIRST_LEVEL_CELLS
            ):
                continue
            # The noisy one-way of a number cuts it into bins.
            if not is_cut(space, JOINT_NUMBER_BINS) or name in one_ways:
                sums.append(
                    Measure("weights", (str(self.weights), name), 1.0, 0 if space.is_listed else JOINT_NUMBER_BINS)
                )
        return sums

    def met_from(self, spaces: Mapping[str, Space], n: int, contributions: int) -> float:
        """Return about the least μ at which tables meet their goals without the rows: by the normal law, unproved."""
        tables, goals = self.tables(spaces), self.goals or {}
        square = math.fsum(_goal_costs(tables, spaces, goals)) * math.fsum(_goal_shares(tables, spaces, goals))
        return contributions / n * math.sqrt(square / self.taken)

    def without(self, spaces: Mapping[str, Space], lost: Collection[str] = ()) -> Workload:
        """Return the request without tables that spaces already paid for do not allow, with a warning.

        ``lost`` are columns whose spaces inference did not find.
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
                (replace(self, added=(names,)) if self.is_default else Workload((names,))).tables(spaces)
            except ParameterError as error:
                refusals.append(str(error))
            else:
                feasible.append(names)
        if refusals:
            warn(
                "tables of measure= were left out, as the inferred spaces do not allow them:" + list_below(refusals),
                DpframeWarning,
            )
        if self.is_default:
            return replace(self, added=tuple(feasible), paid=True)
        return replace(self, measure=tuple(feasible) or None, paid=True)


def _column_tables(name: str, space: Space, with_sums: bool = True) -> Iterator[Measure]:
    """Yield the tables of one column."""
    if space.holds_sets:
        sets: Any = space.inner_space
        has_max_size = sets.max_size is not None
        yield Measure("items", (name,), 1.0, sets.most if has_max_size else min(MOST_COUNTED_ITEMS, item_count(space)))
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


def _item_pair_table(name: str, space: Space) -> Measure:
    """Return the table of a column's item pairs."""
    return Measure("item_pairs", (name,), 1.0, max(2, min(MOST_COUNTED_ITEMS, largest_set(space))))


def _add_item_pairs(
    tables: Sequence[Measure], tables_with_noise: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> Iterator[Measure]:
    """Yield tables, each table of items followed by its item pairs if these exceed their noise.

    ``tables_with_noise`` has the noise of items without pairs. Frequent items are taken as four times as many as are
    counted per row, each in half of its possible rows. A limit of `_ITEM_PAIR_NOISE_LIMIT` halves the errors of pairs
    of a grocer's 20 most frequent items, compared with supports and sizes. Errors for sets with either of two items
    stay equal, as items have more noise with pairs.
    """
    sigma2 = {table.columns: table.sigma2 for table in tables_with_noise if table.kind == "items"}
    for table in tables:
        yield table
        if table.kind != "items" or not 2 <= item_count(spaces[table.columns[0]]) <= _MOST_ITEMS_FOR_PAIRS:
            continue
        pairs = _item_pair_table(table.columns[0], spaces[table.columns[0]])
        # σ² grows with the number of counts that a row changes, and falls with the table's cost.
        variance_factor = pairs.noise(spaces).moves / table.noise(spaces).moves / _RELATIVE_COSTS["item_pairs"]
        frequent_items = min(item_count(spaces[table.columns[0]]), 4 * table.most)
        if (
            math.sqrt(sigma2[table.columns] * variance_factor) / n
            < _ITEM_PAIR_NOISE_LIMIT * (table.most / 2 / frequent_items) ** 2
        ):
            yield pairs


def _joint_table(names: Sequence[str], spaces: Mapping[str, Space], bins: int = JOINT_NUMBER_BINS) -> Measure:
    """Return the joint of columns, or the vector sums by a listed column."""
    vectors = [name for name in names if name in spaces and spaces[name].holds_vectors]
    if len(names) == 2 and len(vectors) == 1:
        return Measure("vectors", tuple(sorted(names, key=lambda name: name not in vectors)), 1.0)
    has_cut_numbers = any(name in spaces and not spaces[name].is_listed for name in names)
    return Measure("joint", tuple(names), 1.0, bins if has_cut_numbers else 0)


def _default_tables(spaces: Mapping[str, Space], bins: int = JOINT_NUMBER_BINS) -> Iterator[Measure]:
    """Yield all tables that default measurement chooses from: tables of numbers and sets, and pairs, the smallest
    first.

    Every column is covered: a single column, or a column of only large pairs, has a one-way.
    """
    plain = {name: space for name, space in spaces.items() if not space.holds_sets and not space.holds_vectors}
    cells = {name: cell_count(space, bins) for name, space in plain.items()}
    cells_available, paired_columns = MAX_MEASURED_CELLS, set[str]()
    pairs = []
    for column, partner in sorted(combinations(plain, 2), key=lambda pair: cells[pair[0]] * cells[pair[1]]):
        # The smallest pairs come first, so that one large pair does not displace many.
        size = cells[column] * cells[partner]
        if min(cells[column], cells[partner]) > 1 and size <= cells_available:
            cells_available -= size
            pairs.append((column, partner))
            paired_columns |= {column, partner}
    for name, space in spaces.items():
        if not space.is_listed or (name not in paired_columns and 1 < cell_count(space, 0) <= MAX_MEASURED_CELLS):
            yield from _column_tables(name, space)
    for pair in sorted(pairs, key=lambda pair: [list(plain).index(name) for name in pair]):
        yield _joint_table(pair, spaces, bins)


Noisy = Callable[..., list[Measure] | None]
"""Function from tables and budget shares to tables of least noise: exact, or the normal law's if its last argument is
False."""


def _choose_defaults(
    defaults: Sequence[Measure],
    weights: Sequence[float],
    find_noise: Noisy,
    spaces: Mapping[str, Space],
    n: int,
    extra_tables: Sequence[tuple[str, ...]],
) -> list[Measure] | None:
    """Return the default tables with their noise; None if no noise is large enough.

    The choice depends on the noise of all candidate tables. Its proof takes as long as the proof for the chosen tables,
    and the result is hardly above the normal law's. So the normal law decides, if `_raise_noise` leads to an equal
    choice and the proved noise stays below the raised noise.
    """
    normal_measures = find_noise(defaults, weights, False)
    if normal_measures is None:
        return None
    likely_tables, shares = _fit_to_noise(normal_measures, spaces, n, extra_tables)
    alternatives, alternative_shares = _fit_to_noise(_raise_noise(normal_measures), spaces, n, extra_tables)
    if shares == alternative_shares and _without_noise(likely_tables) == _without_noise(alternatives):
        measures, normal_bounds = find_noise(likely_tables, shares), find_noise(likely_tables, shares, False)
        if (
            measures
            and normal_bounds
            and all(
                measure.sigma2 <= upper_bound.sigma2
                for measure, upper_bound in zip(measures, _raise_noise(normal_bounds), strict=True)
            )
        ):
            return measures
    # The normal law could not decide: the exact noise of all candidates does.
    lattice_measures = find_noise(defaults, weights)
    return None if lattice_measures is None else find_noise(*_fit_to_noise(lattice_measures, spaces, n, extra_tables))


def _raise_noise(tables: Sequence[Measure]) -> list[Measure]:
    """Return tables with the normal law's noise, raised by twice the largest excess of the lattice law in tests."""
    # Small variances have the largest relative excess of the lattice law.
    factor = 1.001 + 0.05 / min(table.sigma2 for table in tables)
    return [replace(table, sigma2=factor * table.sigma2) for table in tables]


def _without_noise(tables: Iterable[Measure]) -> list[Measure]:
    """Return tables with noise of 1, for comparison."""
    return [replace(table, sigma2=1.0) for table in tables]


def _fit_to_noise(
    tables: Sequence[Measure], spaces: Mapping[str, Space], n: int, extra_tables: Sequence[tuple[str, ...]]
) -> tuple[list[Measure], list[float]]:
    """Return the default tables for this noise with the additional tables, and their budget shares.

    Additional tables do not change the choice of default tables.
    """
    defaults, weights = _choose_tables(tables, spaces, n)
    extras = _missing_tables(
        defaults, extra_tables, spaces, max((pair.most for pair in _joints(defaults)), default=0) or JOINT_NUMBER_BINS
    )
    if not extras:
        return defaults, weights
    # Finer levels have cells only in cells above their noise.
    cell_tables = [table for table in defaults if table.level <= 1]
    sizes = _split_by_cells([*cell_tables, *extras], spaces, 1.0, _L1_COST_POWER)
    # Default tables keep their proportions; cells divide the budget between them and the additional tables.
    default_share = math.fsum(sizes[: len(cell_tables)])
    weight_pairs = zip(
        [*defaults, *extras], [*(default_share * weight for weight in weights), *sizes[len(cell_tables) :]], strict=True
    )
    # Tables of one column come before joints, which they cut.
    sorted_pairs = sorted(weight_pairs, key=lambda entry: entry[0].kind == "joint")
    return [table for table, _ in sorted_pairs], [weight for _, weight in sorted_pairs]


def _missing_tables(
    tables: Sequence[Measure], column_tuples: Iterable[tuple[str, ...]], spaces: Mapping[str, Space], bins: int
) -> list[Measure]:
    """Return the listed tables that are not among the tables."""
    identities = {table.identity for table in tables}
    return [table for table in _listed_tables(column_tuples, spaces, bins) if table.identity not in identities]


def _choose_tables(tables: Sequence[Measure], spaces: Mapping[str, Space], n: int) -> tuple[list[Measure], list[float]]:
    """Return the default tables for this noise, and their budget shares: a function of public facts.

    If pairs are mostly noise every column has a one-way. Otherwise numbers have as many cells in joints as the noise
    allows, and triples are measured if they are above their noise.
    """
    # The noise of a cell is 0.8 σ on average.
    l1_distances = [0.8 * math.prod(pair.shape(spaces)) * math.sqrt(pair.sigma2) / n for pair in _joints(tables)]
    if l1_distances and float(np.median(l1_distances)) > _PAIR_L1_LIMIT:
        defaults = list(_add_one_ways(tables, spaces))
        return defaults, _budget_shares(defaults, _BUDGET_PARTS_OF_FEW, "one_way")
    defaults = list(_add_item_pairs(_bin_tables(tables, spaces, n), tables, spaces, n))
    # Their noise follows from the pairs before item pairs and triples are added.
    triples = _clear_triples(tables, defaults, spaces, n)
    is_above_noise = _rows_per_noise(tables, n) > _ONE_WAYS_FROM_ROWS_PER_NOISE
    has_numbers = any(table.kind == "one_way" and table.most for table in defaults)
    has_list_triples = bool(triples) and not has_numbers and _median_cells(defaults, spaces) >= _SMALL_PAIR_CELLS
    has_large_pairs = is_above_noise and not has_numbers and _median_cells(defaults, spaces) >= _SMALL_PAIR_CELLS
    if has_list_triples or has_large_pairs or (is_above_noise and has_numbers):
        defaults = list(_add_one_ways(defaults, spaces))
    weights = _budget_shares(
        defaults,
        _BUDGET_PARTS_OF_LISTS if has_list_triples else _BUDGET_PARTS_OF_LARGE if has_large_pairs else _BUDGET_PARTS,
        lists="list",
    )
    joint_share = math.fsum(weight for table, weight in zip(defaults, weights, strict=True) if table.kind == "joint")
    triple_share = joint_share * (_TRIPLE_SHARE_OF_LISTS if has_list_triples else _TRIPLE_SHARE) if triples else 0.0
    is_questionnaire = (
        len(_joints(defaults)) >= _QUESTIONNAIRE_PAIRS and _median_cells(defaults, spaces) < _SMALL_PAIR_CELLS
    )
    costs_by_size = not triples and ((is_above_noise and not has_numbers) or is_questionnaire)
    pair_power, triple_power = (
        _COST_POWERS_OF_LISTS if has_list_triples else (_PAIR_COST_POWER if costs_by_size else 0, 0)
    )
    pairs = iter(_split_by_cells(_joints(defaults), spaces, joint_share - triple_share, pair_power))
    weights = [
        next(pairs) if table.kind == "joint" else weight for table, weight in zip(defaults, weights, strict=True)
    ]
    return [*defaults, *triples], [*weights, *_split_by_cells(triples, spaces, triple_share, triple_power)]


_PAIR_COST_POWER = 1 / 3
"""Power of cells for the costs of pairs without triples (tuned; effect below).

A fit removes more noise from tables of more cells. Adult's nine listed columns have pair and triple errors 2 to 4 %
smaller (L1) than at equal costs. One-ways, which small pairs show best, have errors a tenth larger: .0064 rather than
.0058. The square root raises all of them again. On four tables of 20 to 33 columns, most of few values, errors of
synthetic rows fall by 1 to 8 % for pairs and by 1 to 6 % for triples. If numbers make most pairs large (Adult's 15
columns) they rise by 4 %.
"""


_L1_COST_POWER = 2 / 3
"""Power of cells for costs at which raw counts have the least sum of L1 distances (theory: see `_split_by_cells`)."""


def _split_by_cells(tables: Sequence[Measure], spaces: Mapping[str, Space], share: float, power: float) -> list[float]:
    """Return each joint's part of a budget share, in proportion to a power of its cells.

    The L1 distance of raw counts, 0.8·cells·σ/n, has its least sum at the power 2/3. Costs are rounded to half a
    doubling, so that few noises differ.
    """
    # Each distinct variance needs its own noise table.
    roots = [2 ** (round(2 * power * math.log2(math.prod(table.shape(spaces)))) / 2) for table in tables]
    root_sum = math.fsum(roots)
    return [share * root / root_sum for root in roots]


def _median_cells(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> float:
    """Return the median number of cells of the joints."""
    return float(np.median([math.prod(pair.shape(spaces)) for pair in _joints(tables)]))


def _joints(tables: Iterable[Measure]) -> list[Measure]:
    """Return the joints among tables."""
    return [table for table in tables if table.kind == "joint"]


def _rows_per_noise(tables_with_noise: Sequence[Measure], n: int) -> float:
    """Return the rows over the standard deviation of a pair's noise; 0 without pairs."""
    sigmas = [math.sqrt(pair.sigma2) for pair in _joints(tables_with_noise)]
    return n / float(np.median(sigmas)) if sigmas else 0.0


def _bin_tables(tables: Sequence[Measure], spaces: Mapping[str, Space], n: int) -> list[Measure]:
    """Return the tables with as many cells of numbers as their noise allows, without loss of a pair."""
    pairs = _joints(tables)
    if not any(pair.most for pair in pairs):
        return list(tables)
    best_bins = round(JOINT_NUMBER_BINS * (_rows_per_noise(tables, n) / _ROWS_PER_NOISE_AT_12_BINS) ** (1 / 3))
    # More cells of numbers make pairs larger, and `_default_tables` omits pairs beyond its limit of cells.
    for bins in range(min(max(best_bins, FEWEST_BINS), MOST_BINS), JOINT_NUMBER_BINS, -1):
        candidates = list(_default_tables(spaces, bins))
        if len(_joints(candidates)) >= len(pairs):
            return candidates
    return list(_default_tables(spaces, min(max(best_bins, FEWEST_BINS), JOINT_NUMBER_BINS)))


def _clear_triples(
    tables_with_noise: Sequence[Measure], tables: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> list[Measure]:
    """Return all triples of the paired columns if their noise is small relative to the rows; else none.

    ``tables_with_noise`` has the noise of ``tables`` without triples.
    """
    pairs = _joints(tables)
    columns = list(dict.fromkeys(name for pair in pairs for name in pair.columns))
    names = [name for name in spaces if name in columns]
    if len(names) < 3 or len(pairs) < math.comb(len(names), 2):
        return []
    bins = max(pair.most for pair in pairs) or JOINT_NUMBER_BINS
    cells = [cell_count(spaces[name], bins) for name in names]
    uncut_cells = [
        cell_count(space, 0)
        if not is_cut(space, bins)
        else _MOST_FIRST_LEVEL_CELLS
        if has_levels(space)
        else cell_count(space, FEW)
        for space in (spaces[name] for name in names)
    ]
    # Elementary symmetric sums: wide tables' triples are too many to list.
    triple_cells, uncut_triple_cells = _sum_of_triples(cells), _sum_of_triples(uncut_cells)
    largest_triple = math.prod(sorted(cells)[-3:])
    if (
        triple_cells > _MOST_TRIPLE_CELLS
        or uncut_triple_cells > _MAX_UNCUT_TRIPLE_CELLS
        or largest_triple > MAX_MEASURED_CELLS
    ):
        return []
    triple_count = math.comb(len(names), 3)
    # σ² is inverse to a table's share of the budget: a pair had 1/len(pairs), a triple has
    # `_TRIPLE_SHARE`/triple_count.
    variance = (
        float(np.median([pair.sigma2 for pair in _joints(tables_with_noise)]))
        * triple_count
        / len(pairs)
        / _TRIPLE_SHARE
    )
    if 0.8 * triple_cells / triple_count * math.sqrt(variance) / n > _TRIPLE_L1_LIMIT:
        return []
    return [_joint_table(triple, spaces, bins) for triple in combinations(names, 3)]


def _sum_of_triples(sizes: Sequence[int]) -> int:
    """Return the sum of the products of all triples of some numbers.

    >>> _sum_of_triples([2, 3, 4, 5])
    154
    """
    sums = [1, 0, 0, 0]
    for size in sizes:
        # eₖ gains eₖ₋₁·size with each new size: one pass is linear in the number of columns.
        sums = [sums[0], *(sums[i] + sums[i - 1] * size for i in (1, 2, 3))]
    return sums[3]


def _add_one_ways(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> Iterator[Measure]:
    """Yield tables, with one-ways of the columns that have none before the joints."""
    counted_columns = {table.columns[0] for table in tables if table.kind == "one_way"}
    joint_columns = dict.fromkeys(name for table in tables if table.kind == "joint" for name in table.columns)
    yield from (table for table in tables if table.kind != "joint")
    for name in joint_columns:
        if name not in counted_columns:
            yield from _column_tables(name, spaces[name], with_sums=False)
    yield from (table for table in tables if table.kind == "joint")


def _listed_tables(
    column_tuples: Iterable[tuple[str, ...]], spaces: Mapping[str, Space], bins: int = JOINT_NUMBER_BINS
) -> Iterator[Measure]:
    """Yield the listed tables, and the one-ways whose quantiles cut the numbers of joints."""
    column_tuples = list(column_tuples)
    for name in dict.fromkeys(name for names in column_tuples for name in names):
        if name not in spaces:
            raise ParameterError(
                f"measure names {name!r}, which is not a randomised column; these are {name_list(list(spaces))}"
            )
        has_one_way, has_item_pairs = (name,) in column_tuples, (name, name) in column_tuples
        needs_one_way = is_cut(spaces[name], bins) and not spaces[name].code_words
        if has_one_way or needs_one_way:
            yield from _column_tables(name, spaces[name], with_sums=has_one_way)
        if has_item_pairs:
            if not spaces[name].holds_sets:
                raise ParameterError(
                    f"measure names {name!r} twice in one table, for pairs of items, and it holds no sets; name it once"
                )
            # `check_measures` refuses item pairs without the column's sizes.
            yield from () if has_one_way else _column_tables(name, spaces[name])
            yield _item_pair_table(name, spaces[name])
    for names in column_tuples:
        if len(names) > _MOST_JOINT_COLUMNS:
            raise ParameterError("measure takes columns, pairs and triples; a table of more columns is too thin")
        if len(set(names)) > 1:
            yield _joint_table(names, spaces, bins)


def _budget_shares(
    tables: Sequence[Measure], shares: Mapping[str, float] = _BUDGET_PARTS, lists: str = "joint"
) -> list[float]:
    """Return each table's share of the tables' budget; ``lists`` is the part with the one-ways of listed columns."""
    parts = [_budget_part(table, lists) for table in tables]
    costs = [_RELATIVE_COSTS.get(table.kind, 1.0) for table in tables]
    part_costs: dict[str, float] = {}
    for part, cost in zip(parts, costs, strict=True):
        part_costs[part] = part_costs.get(part, 0.0) + cost
    share_sum = sum(shares[part] for part in part_costs)
    return [shares[part] * cost / part_costs[part] / share_sum for part, cost in zip(parts, costs, strict=True)]


def _listed_shares(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> list[float]:
    """Return each listed table's share of the tables' budget; joints and one-ways of listed columns share by cells."""
    weights = _budget_shares(tables)
    positions = [
        i for i, table in enumerate(tables) if table.kind == "joint" or (table.kind == "one_way" and not table.most)
    ]
    shares = _split_by_cells(
        [tables[i] for i in positions], spaces, math.fsum(weights[i] for i in positions), _L1_COST_POWER
    )
    for i, share in zip(positions, shares, strict=True):
        weights[i] = share
    return weights


def _budget_part(table: Measure, lists: str) -> str:
    """Return the part of the tables' budget that a table belongs to."""
    if table.kind == "one_way":
        return "level" if table.level > 1 else "one_way" if table.most else lists
    return table.kind if table.kind in ("sum", "vectors") else "joint"


def _goal_shares(
    tables: Sequence[Measure], spaces: Mapping[str, Space], goals: Mapping[tuple[str, ...], float]
) -> list[float]:
    """Return budget shares at which all goals are met or missed together; tables without goals have a small share."""
    costs = _goal_costs(tables, spaces, goals)
    cost_sum = math.fsum(costs)
    return [cost / cost_sum if cost else _HELPER_SHARE for cost in costs]


def _goal_costs(
    tables: Sequence[Measure], spaces: Mapping[str, Space], goals: Mapping[tuple[str, ...], float]
) -> list[float]:
    """Return μ² at which each table meets its goal; 0 for tables without a goal.

    A table of noise σ costs numbers·(span/σ)². Its error is σ over n, times the step for a sum.
    """
    costs = []
    for table in tables:
        goal, noise = goals.get(table.columns), table.noise(spaces)
        only_helps = table.kind in _RELATIVE_COSTS or (
            table.kind == "one_way" and not spaces[table.columns[0]].is_listed
        )
        if goal is None or only_helps:
            costs.append(0.0)
            continue
        space = spaces[table.columns[0]]
        # Size of 1 in a table's numbers, over the rows, in the unit of its goal.
        unit = affine_map(space)[1] if table.kind == "sum" else 1.0
        unit = vector_scale(space) / ball_of(space).last if table.kind == "vectors" else unit
        costs.append(noise.moves * (noise.span / (goal / unit)) ** 2)
    return costs


_HELPER_SHARE = 0.02
"""Budget share of a table that only helps another one with a goal: a number's one-way beside its mean (tuned; effect
not measured)."""


def _find_least_noise(
    tables: Sequence[Measure],
    weights: Sequence[float],
    proved: bool = True,
    *,
    spaces: Mapping[str, Space],
    mu: float,
    contributions: int,
    delta: float,
) -> list[Measure] | None:
    """Return the tables with about the least noise of a step (exact if ``proved``) within μ; None if there is none."""
    # Below this slack the distance of noise from its law counts.
    if not mu > 0 or delta * MEASURED_SLACK_SHARE < FAINTEST:
        return None

    def with_noise(scales: Sequence[float]) -> list[Measure]:
        return [replace(table, sigma2=sigma2) for table, sigma2 in zip(tables, scales, strict=True)]

    def cost_of(scales: Sequence[float]) -> Step:
        if not proved:
            return Step(0.0)
        try:
            return measures_step(with_noise(scales), spaces, contributions, delta) or Step(0.0)
        except ParameterError:  # noise so small that its tails count costs more than anything
            return Step(_LARGEST_MU)

    variances = least_noise([table.noise(spaces) for table in tables], weights, mu, contributions, cost_of)
    return None if variances is None else with_noise(variances)
