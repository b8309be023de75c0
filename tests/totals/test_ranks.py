"""Quantiles as choices: how far one row moves scores, and the exact loss of all groups' choices, by enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpframe.accounting.budget import Budget
from dpframe.accounting.unit import Unit
from dpframe.spaces import Integer, Nullable
from dpframe.totals.answers import Portion
from dpframe.totals.questions import ALL_ROWS, Groups
from dpframe.totals.ranks import RankCounts, distance_weights, distances, level_of
from dpframe.totals.selection import ExponentialSelector, NoisyMax, Scores, weights

ADDED = Unit(added=True)
BY = Groups(by="g", count=2, place=lambda codes: codes)
ROWS = list(itertools.product(range(4), range(3)))  # the last value is null, the last group none
SPACE = Nullable(Integer(0, 2))
LEVELS = [Fraction(1, 2), Fraction(1, 10), Fraction(3, 4)]


def ranks(rows, unit, groups):
    found = RankCounts("a", SPACE, unit, groups)
    columns = np.array(rows, dtype=np.uint8).reshape(-1, 2).T
    found.add({"a": columns[0], "g": columns[1]})
    return found


def neighbours(unit, rows):
    """Pairs of tables of up to two rows that differ in one."""
    for other in rows:
        for row in rows:
            if unit.added:
                yield [other, row], [other]
            else:
                yield from (([other, row], [other, new]) for new in rows)


def scores(rows, unit, groups, level, margin):
    """The scores of cells, or of distances about the middle cell for a margin."""
    mine = ranks(rows, unit, groups)
    if margin is None:
        return [mine.scores(group, level) for group in range(groups.count)]
    return [mine.margin_scores(group, level, 1, margin) for group in range(groups.count)]


@pytest.mark.walk(9)
@pytest.mark.parametrize("margin", [None, 1, 5])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("groups", [ALL_ROWS, BY], ids=["whole", "by"])
@pytest.mark.parametrize("unit", [Unit(), ADDED], ids=str)
def test_no_row_moves_scores_further_apart_than_stated(unit, groups, level, margin):
    stated, seen = ranks([], unit, groups).score_sensitivity(level), 0
    known = {}
    for pair in neighbours(unit, ROWS[::2] if groups is ALL_ROWS else ROWS):
        mine, other = (
            known.setdefault(tuple(rows), np.array(scores(rows, unit, groups, level, margin))) for rows in pair
        )
        moves = mine - other
        spreads = np.ptp(moves, axis=1)
        tables = np.count_nonzero(np.abs(moves).max(axis=1))
        assert any(tables <= most and spreads.max() <= spread for most, spread in stated.ways)
        assert all(np.abs(moves[at]).max() <= stated.ways[-1][1] / 2 or tables == 1 for at in range(len(moves)))
        assert (mine.max(axis=1) == 0).all()
        seen = max(seen, spreads.sum())
    # Tables of two rows hold less than the worst.
    assert seen > (0.35 if margin is None else 0.15) * stated.range


@pytest.mark.parametrize("name", ["exponential", "noisy_max"])
@pytest.mark.parametrize("level", LEVELS[:2])
@pytest.mark.slow
def test_the_exact_loss_of_all_groups_choices(name, level):
    """The product of the groups' laws, over all neighbours of two rows; a quarter of the range is beyond its claim."""
    moved = ranks([], Unit(), BY).score_sensitivity(level)
    made = {"exponential": ExponentialSelector, "noisy_max": NoisyMax}[name]
    portion, quarter = Portion(Budget(1.0)), Scores(((1, level.denominator // 2),))
    selector, wrong = made.of(moved, portion), made.of(quarter, portion)
    assert worst_of_all(selector, name, level) <= selector.pure_loss + 1e-12
    assert worst_of_all(wrong, name, level) > 1.5 * wrong.pure_loss


def worst_of_all(selector, name, level):
    def logs(rows):
        found = []
        for row in scores(rows, Unit(), BY, level, None):
            chances = np.array([w / 2**192 for w in weights(selector.rate, row)])
            found.append(np.log(chances / chances.sum() if name == "exponential" else flipped(chances)))
        return np.add.outer(*found)

    known, worst = {}, 0.0
    for pair in neighbours(Unit(), ROWS[:9]):
        mine, other = (known.setdefault(tuple(rows), logs(rows)) for rows in pair)
        worst = max(worst, float(np.abs(mine - other).max()))
    return worst


def flipped(chances):
    """The law of permute-and-flip, over all orders."""
    law = np.zeros(len(chances))
    for order in itertools.permutations(range(len(chances))):
        left = 1.0
        for at in order:
            law[at] += left * chances[at]
            left *= 1 - chances[at]
    return law / math.factorial(len(chances))


def test_levels_are_the_fractions_that_they_print_as():
    assert [level_of(q) for q in (0.5, 0.95, 1e-3, 1e-9)] == [
        Fraction(1, 2),
        Fraction(19, 20),
        Fraction(1, 1000),
        Fraction(0),
    ]


@pytest.mark.parametrize("cells", [1, 2, 3, 100, 65_536])
def test_distances_reach_everywhere_and_are_few(cells):
    found = distances(cells)
    assert found[0] == 0
    assert found[-1] >= cells - 1
    assert (np.diff(found) > 0).all()
    assert len(found) <= 2 + 4 * max(1, math.log2(cells))
    assert (found[9:] <= 1.26 * found[8:-1] + 1).all()


@pytest.mark.parametrize("shape", ["even", "gap", "heap", "end"])
def test_the_law_of_an_interval_misses_as_rarely_as_its_margin_says(shape):
    """The exact law over all distances, about cells near and far from the rank; half of the margin is too little."""
    cells, rows = 4_096, 2_000
    values = {
        "even": np.arange(rows) * 2 + 30,
        "gap": np.repeat([900, 3_300], [rows // 2 - 1, rows // 2 + 1]),
        "heap": np.repeat([100, 2_000, 4_000], [rows // 4, rows // 2, rows // 4]),
        "end": np.full(rows, cells - 1),
    }[shape]
    mine = RankCounts("a", Integer(0, cells - 1), Unit())
    mine.add({"a": values.astype(np.uint16)})
    truth, missed = int(np.sort(values)[rows // 2 - 1]), 0.05
    selector = ExponentialSelector.of(mine.score_sensitivity(Fraction(1, 2)), Portion(Budget(0.25)))
    base, before = distance_weights(cells)
    margin = math.ceil(selector.shortfall(before, 1 - missed))
    worst = {}
    for part in (1.0, 0.5):
        for middle in (0, 900, 901, 2_100, 3_299, truth):
            found = mine.margin_scores(0, Fraction(1, 2), middle, math.ceil(part * margin) + 2)
            law = np.array([weight * w for weight, w in zip(base, weights(selector.rate, found), strict=True)], float)
            short = np.abs(truth - middle) > distances(cells)
            worst[part] = max(worst.get(part, 0.0), float(law[short].sum() / law.sum()))
    assert worst[1.0] <= missed
    if shape == "gap":
        assert worst[0.5] > missed


@pytest.mark.parametrize("heap", [0, 40])
def test_a_margin_that_is_kept_holds_the_quantile(heap):
    """Every distance whose score is above −margin has the rank between its ends, also about a heap, or at an end."""
    generator = np.random.default_rng(heap)
    for _ in range(200):
        rows = np.sort(np.append(generator.integers(0, 60, 30), np.full(heap, generator.integers(0, 60))))
        mine = RankCounts("a", Integer(0, 59), Unit())
        mine.add({"a": rows})
        level, middle, margin = Fraction(int(generator.integers(1, 10)), 10), int(generator.integers(0, 60)), 25
        found = np.array(mine.margin_scores(0, level, middle, margin))
        assert found.max() == 0
        truth = np.quantile(rows, float(level), method="inverted_cdf")
        for away in distances(60)[found > -margin]:
            assert middle - away <= truth <= middle + away


@pytest.mark.parametrize("name", ["exponential", "noisy_max"])
@pytest.mark.parametrize("unit", [Unit(), ADDED], ids=str)
@pytest.mark.slow
def test_the_exact_loss_of_a_quantile_and_its_interval(name, unit):
    """The law of the cell and then of the distance, over all neighbours; a quarter of the range is beyond it."""
    level = LEVELS[1]
    made = {"exponential": ExponentialSelector, "noisy_max": NoisyMax}[name]
    parts = Portion(Budget(1.0)).split((3, 2))
    moved = ranks([], unit, ALL_ROWS).score_sensitivity(level)
    quarter = Scores(tuple((tables, spread // 4) for tables, spread in moved.ways))
    right, wrong = ([made.of(scores, part) for part in parts] for scores in (moved, quarter))
    claims = [sum(selector.pure_loss for selector in both) for both in (right, wrong)]
    assert claims[0] <= 1
    assert worst_of_both(right, name, unit, level) <= claims[0] + 1e-12
    assert worst_of_both(wrong, name, unit, level) > 1.2 * claims[1]


def worst_of_both(selectors, name, unit, level):
    def law(rate, row):
        chances = np.array([w / 2**192 for w in weights(rate, row)])
        return np.log(chances / chances.sum() if name == "exponential" else flipped(chances))

    def logs(rows):
        mine = ranks(rows, unit, ALL_ROWS)
        cells = law(selectors[0].rate, mine.scores(0, level))
        ends = [
            law(selectors[1].rate, mine.margin_scores(0, level, min(max(chosen - 1, 0), mine.cells - 1), 7))
            for chosen in range(len(cells))
        ]
        return cells[:, None] + np.array(ends)

    known, worst = {}, 0.0
    for pair in neighbours(unit, ROWS[::2]):
        mine, other = (known.setdefault(tuple(rows), logs(rows)) for rows in pair)
        worst = max(worst, float(np.abs(mine - other).max()))
    return worst
