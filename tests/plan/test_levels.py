"""Levels of numbers: cells nest, cover the codes once, and a code's place needs no list."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from dpframe.plan.levels import (
    DIVISION_THRESHOLD_SD,
    FIRST_LEVEL_CELLS,
    MOST_PARENTS,
    SPLIT_CELLS,
    breaks,
    cells_between,
    children,
    divided,
    has_levels,
    level_sizes,
    place_of,
    stops_of,
)
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Real, Subset

SPACES = {
    "129": Integer(0, 128),
    "thousand": Integer(0, 999),
    "negative": Integer(-500, 500),
    "below zero": Integer(-5_000, -1_000),
    "step": Integer(-300, 900, 3),
    "zero off the grid": Integer(-10, 990, 4),
    "real": Real(-1.0, 3.0),
    "positive": Real(0.0, 1.0),
    "few steps": Real(-2.0, 2.0, 997),
    "null": Nullable(Integer(-70, 200)),
    "null real": Nullable(Real(-1.0, 1e4)),
    "days": Datetime("1930-01-01", "2020-01-01"),
    "null seconds": Nullable(Datetime("2020-01-01", "2020-01-02", "s")),
    "null 32 bits": Nullable(Integer(-7, 2**32 - 10)),
}


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]


@cache
def levels(space):
    """Return first codes and ends of every level's cells."""
    found = []
    for size in level_sizes(space):
        starts = cells_between(space, size, 0, space.values)
        found.append((size, starts, stops_of(space, size, starts)))
    return found


def test_cells_of_a_level_cover_the_codes_once(space):
    assert has_levels(space)
    for _, starts, stops in levels(space):
        assert starts[0] == 0
        assert stops[-1] == space.values
        assert np.array_equal(starts[1:], stops[:-1])
        assert (stops > starts).all()


def test_levels_become_finer_down_to_single_codes(space):
    sizes = level_sizes(space)
    assert sizes[0] == FIRST_LEVEL_CELLS
    assert all(SPLIT_CELLS <= b // a < 2 * SPLIT_CELLS for a, b in pairwise(sizes[:-1]))
    assert all(a < b < 2 * SPLIT_CELLS * a + 1 for a, b in pairwise(sizes))
    assert sizes[-1] == min(space.values, 1 << 20)
    if space.values <= 1 << 20:
        assert np.array_equal(cells_between(space, sizes[-1], 0, space.values), np.arange(space.values))


def test_cells_nest(space):
    found = levels(space)
    for (_, coarse, _), (_, fine, _) in pairwise(found):
        places = np.minimum(np.searchsorted(fine, coarse), len(fine) - 1)
        assert np.array_equal(fine[places], coarse)


def test_cells_are_of_about_equal_width(space):
    own = breaks(space)
    for size, starts, stops in levels(space):
        assert len(starts) <= size + len(own)
        assert (stops - starts).max() <= -(-space.values // size)


def test_bounds_and_zero_are_cells_of_their_own(space):
    zero = []
    if not space.is_time:
        numbers = np.asarray(space.numbers(np.arange(min(space.values, 1 << 21))), dtype=float)
        if (numbers < 0).any() and (numbers > 0).any():
            near = np.flatnonzero(np.abs(numbers) <= np.abs(numbers).min() * (1 + 1e-9))
            zero = [code for code in near.tolist() if code in breaks(space).tolist()]
            assert len(zero) >= 1
    for _, starts, stops in levels(space):
        single = starts[stops - starts == 1]
        assert np.isin([0, space.values - 1, *zero], single).all()


def test_zero_of_a_time_is_no_value_of_note():
    assert breaks(Datetime("1930-01-01", "2020-01-01")).tolist() == [1, 32872]


def test_the_place_of_a_code_is_that_among_the_cells(space):
    generator = np.random.default_rng(5)
    for size, starts, stops in levels(space):
        some = generator.choice(len(starts), min(len(starts), 4_000), replace=False)
        codes = [generator.integers(0, space.values, 4_000), breaks(space), starts[some], stops[some] - 1]
        codes = np.concatenate([*codes, [0, space.values - 1]])
        wanted = np.searchsorted(starts, codes, side="right") - 1
        kind = np.uint16 if space.values < 1 << 16 else np.uint32
        assert np.array_equal(place_of(codes.astype(kind), space, size), wanted)
        assert np.array_equal(place_of(codes, space, size), wanted)


def test_null_has_the_place_after_the_last():
    for name in ("null", "null real", "null seconds", "null 32 bits"):
        space = SPACES[name]
        codes = np.array([space.values - 1, space.values, 0], dtype=np.uint32)
        for size, starts, _ in levels(space):
            assert place_of(codes, space, size).tolist() == [len(starts) - 1, len(starts), 0]


def test_children_are_the_cells_within_their_parents(space):
    generator = np.random.default_rng(6)
    found = levels(space)
    for level, (before, after) in enumerate(pairwise(found), start=2):
        _, coarse, ends = before
        size, fine, stops = after
        chosen = np.sort(generator.choice(len(coarse), min(len(coarse), MOST_PARENTS), replace=False))
        parts = children(space, level, coarse[chosen].tolist())
        home = np.searchsorted(coarse, fine, side="right") - 1
        assert np.array_equal(parts, fine[np.isin(home, chosen)])
        assert np.array_equal(stops_of(space, size, parts), stops[np.isin(home, chosen)])
        assert (stops_of(space, size, parts) - parts).sum() == (ends - coarse)[chosen].sum()
        assert len(parts) <= MOST_PARENTS * 2 * SPLIT_CELLS + len(breaks(space))
        assert children(space, level, []).tolist() == []


def test_stops_follow_from_some_starts(space):
    for size, starts, stops in levels(space):
        assert np.array_equal(stops_of(space, size, starts[3::5]), stops[3::5])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 17), (16, 500), (500, 501), (501, 1001), (3, 3)])
def test_cells_between_codes_are_those_of_the_whole(low, high):
    space = Integer(-500, 500)
    for size in level_sizes(space):
        starts = cells_between(space, size, 0, space.values)
        wanted = {low, *starts[(starts > low) & (starts < high)].tolist()} if low < high else set()
        assert set(cells_between(space, size, low, high).tolist()) == wanted


@pytest.mark.parametrize(
    "space", [Integer(0, 127), Real(0.0, 1.0, 127), Categorical(list(range(300))), Boolean(), Subset(list("abc"))]
)
def test_few_values_and_what_is_no_number_have_no_levels(space):
    assert not has_levels(space)


class TestDivided:
    """Which cells the next level divides."""

    @staticmethod
    def of(counts, widths=None, sigma=10.0):
        widths = np.full(len(counts), 5) if widths is None else np.asarray(widths)
        starts = np.cumsum(widths) - widths
        return divided(np.asarray(counts), starts, starts + widths, sigma).tolist()

    def test_those_that_stand_out(self):
        edge = DIVISION_THRESHOLD_SD * 10
        assert self.of([0, edge, edge - 1, -900, 900]) == [5, 20]

    def test_none_of_empty_ones(self):
        assert self.of([0, -50, 39]) == []
        assert self.of([]) == []

    def test_no_single_code(self):
        assert self.of([900, 900, 900, 900], [1, 2, 1, 9]) == [1, 4]

    def test_the_heaviest_of_many_in_their_order(self):
        counts = 100 + np.arange(200) * 7 % 200
        found = self.of(counts)
        heaviest = np.sort(np.argsort(-counts)[:MOST_PARENTS]) * 5
        assert found == heaviest.tolist()
        assert len(found) == MOST_PARENTS == 64

    def test_single_codes_take_no_place_of_others(self):
        found = self.of([900] * 64 + [100] * 64, [1] * 64 + [2] * 64)
        assert found == list(range(64, 192, 2))

    def test_the_first_of_equal_ones(self):
        assert self.of([500] * 100) == list(range(0, 320, 5))
