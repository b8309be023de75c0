"""Tables that can be measured of columns: of one column, of pairs and of triples; their noise is not yet known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from dpframe.errors import ParameterError, name_list
from dpframe.inference.categories import MOST_COUNTED_ITEMS
from dpframe.plan.levels import FEW, has_levels, level_sizes
from dpframe.plan.measures import MAX_MEASURED_CELLS, Measure
from dpframe.spaces import Space
from dpframe.spaces.cells import cell_count, is_cut, item_count, largest_set

JOINT_NUMBER_BINS = 12
"""Cells of a number in a listed joint table, and in a default one at `_ROWS_PER_NOISE_AT_12_BINS` (tuned; effect not
measured)."""

_MOST_JOINT_COLUMNS = 3
"""Most columns of a default joint (limit of time)."""


def column_tables(name: str, space: Space, with_sums: bool = True) -> Iterator[Measure]:
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


def item_pair_table(name: str, space: Space) -> Measure:
    """Return the table of a column's item pairs."""
    return Measure("item_pairs", (name,), 1.0, max(2, min(MOST_COUNTED_ITEMS, largest_set(space))))


def joint_table(names: Sequence[str], spaces: Mapping[str, Space], bins: int = JOINT_NUMBER_BINS) -> Measure:
    """Return the joint of columns, or the vector sums by a listed column."""
    vectors = [name for name in names if name in spaces and spaces[name].holds_vectors]
    if len(names) == 2 and len(vectors) == 1:
        return Measure("vectors", tuple(sorted(names, key=lambda name: name not in vectors)), 1.0)
    has_cut_numbers = any(name in spaces and not spaces[name].is_listed for name in names)
    return Measure("joint", tuple(names), 1.0, bins if has_cut_numbers else 0)


def candidate_tables(
    spaces: Mapping[str, Space], bins: int = JOINT_NUMBER_BINS, context: Collection[str] = ()
) -> Iterator[Measure]:
    """Yield all tables that default measurement chooses from: tables of numbers and sets, and pairs, the smallest
    first.

    Every column is covered: a single column, or a column of only large pairs, has a one-way. Columns of the ``context``
    are of another table, which has their own tables: only pairs with other columns are yielded, and cuts of numbers.
    """
    plain = {name: space for name, space in spaces.items() if not space.holds_sets and not space.holds_vectors}
    cells = {name: cell_count(space, bins) for name, space in plain.items()}
    cells_available, paired_columns = MAX_MEASURED_CELLS, set[str]()
    pairs = []
    for column, partner in sorted(combinations(plain, 2), key=lambda pair: cells[pair[0]] * cells[pair[1]]):
        # The smallest pairs come first, so that one large pair does not displace many.
        size = cells[column] * cells[partner]
        is_of_context = column in context and partner in context
        if min(cells[column], cells[partner]) > 1 and size <= cells_available and not is_of_context:
            cells_available -= size
            pairs.append((column, partner))
            paired_columns |= {column, partner}
    for name, space in spaces.items():
        is_single = name not in paired_columns and 1 < cell_count(space, 0) <= MAX_MEASURED_CELLS
        if name in context:
            # Joints cut numbers at the quantiles of their one-ways.
            if not space.is_listed and name in paired_columns:
                yield from column_tables(name, space, with_sums=False)
        elif not space.is_listed or is_single:
            yield from column_tables(name, space)
    places = {name: place for place, name in enumerate(plain)}
    for pair in sorted(pairs, key=lambda pair: [places[name] for name in pair]):
        yield joint_table(pair, spaces, bins)


def listed_tables(
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
            yield from column_tables(name, spaces[name], with_sums=has_one_way)
        if has_item_pairs:
            if not spaces[name].holds_sets:
                raise ParameterError(
                    f"measure names {name!r} twice in one table, for pairs of items, and it holds no sets; name it once"
                )
            # `check_measures` refuses item pairs without the column's sizes.
            yield from () if has_one_way else column_tables(name, spaces[name])
            yield item_pair_table(name, spaces[name])
    for names in column_tuples:
        if len(names) > _MOST_JOINT_COLUMNS:
            raise ParameterError("measure takes columns, pairs and triples; a table of more columns is too thin")
        if len(set(names)) > 1:
            yield joint_table(names, spaces, bins)


def joints_among(tables: Iterable[Measure]) -> list[Measure]:
    """Return the joints among tables."""
    return [table for table in tables if table.kind == "joint"]
