"""Which tables are measured by default, and with which shares of the budget: a function of public facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from dpframe.plan.budget_shares import (
    BUDGET_PARTS,
    L1_COST_POWER,
    RELATIVE_COSTS,
    budget_shares,
    split_by_cells,
)
from dpframe.plan.candidate_tables import (
    JOINT_NUMBER_BINS,
    candidate_tables,
    column_tables,
    item_pair_table,
    joint_table,
    joints_among,
    listed_tables,
)
from dpframe.plan.levels import FEW, FIRST_LEVEL_CELLS, has_levels
from dpframe.plan.measures import MAX_MEASURED_CELLS, Measure
from dpframe.spaces import Space
from dpframe.spaces.cells import cell_count, is_cut, item_count

FEWEST_BINS, MOST_BINS = 8, 48
"""Least and most cells of a number in default tables (tuned; effect not measured)."""

_ROWS_PER_NOISE_AT_12_BINS = 385.0
"""Rows over the standard deviation of a pair's noise at which 12 cells of a number have the least error (tuned; effect
not measured).

The error within cells falls with their number, and the noise of a pair of numbers grows with the square of this number.
So the best number grows with the cube root. Adult's 15 columns at epsilon 1 have this ratio.
"""

_MOST_ITEMS_FOR_PAIRS = 256
"""Most items whose pairs are measured by default: 60 kB in a release's description (limit of memory)."""

_ITEM_PAIR_NOISE_LIMIT = 0.15
"""Noise of item pairs, over the share of a frequent pair, below which pairs are measured (tuned; effect not measured).
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

_BUDGET_PARTS_OF_LISTS = {**BUDGET_PARTS, "list": 0.03}
"""Budget shares for `_TRIPLE_SHARE_OF_LISTS`: small pairs leave noisy one-ways if large pairs cost more (tuned; effect
not measured)."""

_BUDGET_PARTS_OF_LARGE = {**BUDGET_PARTS, "list": 0.045}
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

_PAIR_COST_POWER = 1 / 3
"""Power of cells for the costs of pairs without triples (tuned; effect below).

A fit removes more noise from tables of more cells. Adult's nine listed columns have pair and triple errors 2 to 4 %
smaller (L1) than at equal costs. One-ways, which small pairs show best, have errors a tenth larger: .0064 rather than
.0058. The square root raises all of them again. On four tables of 20 to 33 columns, most of few values, errors of
synthetic rows fall by 1 to 8 % for pairs and by 1 to 6 % for triples. If numbers make most pairs large (Adult's 15
columns) they rise by 4 %.
"""


Noisy = Callable[..., list[Measure] | None]
"""Function from tables and budget shares to tables of least noise: exact, or the normal law's if its last argument is
False."""


def choose_defaults(
    defaults: Sequence[Measure],
    weights: Sequence[float],
    find_noise: Noisy,
    spaces: Mapping[str, Space],
    n: int,
    extra_tables: Sequence[tuple[str, ...]],
    context: Collection[str] = (),
) -> list[Measure] | None:
    """Return the default tables with their noise; None if no noise is large enough.

    The choice depends on the noise of all candidate tables. Its proof takes as long as the proof for the chosen tables,
    and the result is hardly above the normal law's. So the normal law decides, if `_raise_noise` leads to an equal
    choice and the proved noise stays below the raised noise.
    """
    fit = partial(fit_to_noise, spaces=spaces, n=n, extra_tables=extra_tables, context=context)
    normal_measures = find_noise(defaults, weights, False)
    if normal_measures is None:
        return None
    likely_tables, shares = fit(normal_measures)
    alternatives, alternative_shares = fit(_raise_noise(normal_measures))
    if shares == alternative_shares and all(map(Measure.is_like, likely_tables, alternatives)):
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
    return None if lattice_measures is None else find_noise(*fit(lattice_measures))


def _raise_noise(tables: Sequence[Measure]) -> list[Measure]:
    """Return tables with the normal law's noise, raised by twice the largest excess of the lattice law in tests."""
    # Small variances have the largest relative excess of the lattice law.
    factor = 1.001 + 0.05 / min(table.sigma2 for table in tables)
    return [replace(table, sigma2=factor * table.sigma2) for table in tables]


def fit_to_noise(
    tables: Sequence[Measure],
    spaces: Mapping[str, Space],
    n: int,
    extra_tables: Sequence[tuple[str, ...]],
    context: Collection[str] = (),
) -> tuple[list[Measure], list[float]]:
    """Return the default tables for this noise with the additional tables, and their budget shares.

    Additional tables do not change the choice of default tables.
    """
    defaults, weights = _choose_tables(tables, spaces, n, context)
    if not extra_tables:
        return defaults, weights
    bins = max((pair.most for pair in joints_among(defaults)), default=0) or JOINT_NUMBER_BINS
    extras = missing_tables(defaults, extra_tables, spaces, bins)
    if not extras:
        return defaults, weights
    # Finer levels have cells only in cells above their noise.
    cell_tables = [table for table in defaults if table.level <= 1]
    sizes = split_by_cells([*cell_tables, *extras], spaces, 1.0, L1_COST_POWER)
    # Default tables keep their proportions; cells divide the budget between them and the additional tables.
    default_share = math.fsum(sizes[: len(cell_tables)])
    weight_pairs = zip(
        [*defaults, *extras], [*(default_share * weight for weight in weights), *sizes[len(cell_tables) :]], strict=True
    )
    # Tables of one column come before joints, which they cut.
    sorted_pairs = sorted(weight_pairs, key=lambda entry: entry[0].kind == "joint")
    return [table for table, _ in sorted_pairs], [weight for _, weight in sorted_pairs]


def missing_tables(
    tables: Sequence[Measure], column_tuples: Iterable[tuple[str, ...]], spaces: Mapping[str, Space], bins: int
) -> list[Measure]:
    """Return the listed tables that are not among the tables."""
    identities = {table.identity for table in tables}
    return [table for table in listed_tables(column_tuples, spaces, bins) if table.identity not in identities]


def _choose_tables(
    tables: Sequence[Measure], spaces: Mapping[str, Space], n: int, context: Collection[str]
) -> tuple[list[Measure], list[float]]:
    """Return the default tables for this noise, and their budget shares: a function of public facts.

    If pairs are mostly noise every column has a one-way. Otherwise numbers have as many cells in joints as the noise
    allows, and triples are measured if they are above their noise.
    """
    # The noise of a cell is 0.8 σ on average.
    l1_distances = [0.8 * math.prod(pair.shape(spaces)) * math.sqrt(pair.sigma2) / n for pair in joints_among(tables)]
    if l1_distances and float(np.median(l1_distances)) > _PAIR_L1_LIMIT:
        defaults = list(_add_one_ways(tables, spaces, context))
        return defaults, budget_shares(defaults, _BUDGET_PARTS_OF_FEW, "one_way")
    defaults = list(_add_item_pairs(_bin_tables(tables, spaces, n, context), tables, spaces, n))
    # Their noise follows from the pairs before item pairs and triples are added.
    triples = _clear_triples(tables, defaults, spaces, n)
    is_above_noise = _rows_per_noise(tables, n) > _ONE_WAYS_FROM_ROWS_PER_NOISE
    has_numbers = any(table.kind == "one_way" and table.most for table in defaults)
    has_list_triples = bool(triples) and not has_numbers and _median_cells(defaults, spaces) >= _SMALL_PAIR_CELLS
    has_large_pairs = is_above_noise and not has_numbers and _median_cells(defaults, spaces) >= _SMALL_PAIR_CELLS
    if has_list_triples or has_large_pairs or (is_above_noise and has_numbers):
        defaults = list(_add_one_ways(defaults, spaces, context))
    weights = budget_shares(
        defaults,
        _BUDGET_PARTS_OF_LISTS if has_list_triples else _BUDGET_PARTS_OF_LARGE if has_large_pairs else BUDGET_PARTS,
        lists="list",
    )
    joint_share = math.fsum(weight for table, weight in zip(defaults, weights, strict=True) if table.kind == "joint")
    triple_share = joint_share * (_TRIPLE_SHARE_OF_LISTS if has_list_triples else _TRIPLE_SHARE) if triples else 0.0
    is_questionnaire = (
        len(joints_among(defaults)) >= _QUESTIONNAIRE_PAIRS and _median_cells(defaults, spaces) < _SMALL_PAIR_CELLS
    )
    costs_by_size = not triples and ((is_above_noise and not has_numbers) or is_questionnaire)
    pair_power, triple_power = (
        _COST_POWERS_OF_LISTS if has_list_triples else (_PAIR_COST_POWER if costs_by_size else 0, 0)
    )
    pairs = iter(split_by_cells(joints_among(defaults), spaces, joint_share - triple_share, pair_power))
    weights = [
        next(pairs) if table.kind == "joint" else weight for table, weight in zip(defaults, weights, strict=True)
    ]
    return [*defaults, *triples], [*weights, *split_by_cells(triples, spaces, triple_share, triple_power)]


def _median_cells(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> float:
    """Return the median number of cells of the joints."""
    return float(np.median([math.prod(pair.shape(spaces)) for pair in joints_among(tables)]))


def _rows_per_noise(tables_with_noise: Sequence[Measure], n: int) -> float:
    """Return the rows over the standard deviation of a pair's noise; 0 without pairs."""
    sigmas = [math.sqrt(pair.sigma2) for pair in joints_among(tables_with_noise)]
    return n / float(np.median(sigmas)) if sigmas else 0.0


def _bin_tables(
    tables: Sequence[Measure], spaces: Mapping[str, Space], n: int, context: Collection[str]
) -> list[Measure]:
    """Return the tables with as many cells of numbers as their noise allows, without loss of a pair."""
    pairs = joints_among(tables)
    if not any(pair.most for pair in pairs):
        return list(tables)
    best_bins = round(JOINT_NUMBER_BINS * (_rows_per_noise(tables, n) / _ROWS_PER_NOISE_AT_12_BINS) ** (1 / 3))
    # More cells of numbers make pairs larger, and `candidate_tables` omits pairs beyond its limit of cells.
    for bins in range(min(max(best_bins, FEWEST_BINS), MOST_BINS), JOINT_NUMBER_BINS, -1):
        candidates = list(candidate_tables(spaces, bins, context))
        if len(joints_among(candidates)) >= len(pairs):
            return candidates
    return list(candidate_tables(spaces, min(max(best_bins, FEWEST_BINS), JOINT_NUMBER_BINS), context))


def _clear_triples(
    tables_with_noise: Sequence[Measure], tables: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> list[Measure]:
    """Return all triples of the paired columns if their noise is small relative to the rows; else none.

    ``tables_with_noise`` has the noise of ``tables`` without triples.
    """
    pairs = joints_among(tables)
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
        float(np.median([pair.sigma2 for pair in joints_among(tables_with_noise)]))
        * triple_count
        / len(pairs)
        / _TRIPLE_SHARE
    )
    if 0.8 * triple_cells / triple_count * math.sqrt(variance) / n > _TRIPLE_L1_LIMIT:
        return []
    return [joint_table(triple, spaces, bins) for triple in combinations(names, 3)]


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


def _add_one_ways(
    tables: Sequence[Measure], spaces: Mapping[str, Space], context: Collection[str]
) -> Iterator[Measure]:
    """Yield tables, with one-ways of the columns outside the context that have none before the joints."""
    counted_columns = {table.columns[0] for table in tables if table.kind == "one_way"}
    joint_columns = dict.fromkeys(name for table in tables if table.kind == "joint" for name in table.columns)
    yield from (table for table in tables if table.kind != "joint")
    for name in joint_columns:
        if name not in counted_columns and name not in context:
            yield from column_tables(name, spaces[name], with_sums=False)
    yield from (table for table in tables if table.kind == "joint")


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
        pairs = item_pair_table(table.columns[0], spaces[table.columns[0]])
        # σ² grows with the number of counts that a row changes, and falls with the table's cost.
        variance_factor = pairs.noise(spaces).moves / table.noise(spaces).moves / RELATIVE_COSTS["item_pairs"]
        frequent_items = min(item_count(spaces[table.columns[0]]), 4 * table.most)
        if (
            math.sqrt(sigma2[table.columns] * variance_factor) / n
            < _ITEM_PAIR_NOISE_LIMIT * (table.most / 2 / frequent_items) ** 2
        ):
            yield pairs
