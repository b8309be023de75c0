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
from dpframe.totals.groups import WHOLE, Groups
from dpframe.totals.ranks import Ranks, level_of
from dpframe.totals.selection import Exponential, NoisyMax, Scores, weights

ADDED = Unit(added=True)
BY = Groups(by="g", count=2, place=lambda codes: codes)
ROWS = list(itertools.product(range(4), range(3)))  # the last value is null, the last group none
SPACE = Nullable(Integer(0, 2))
LEVELS = [Fraction(1, 2), Fraction(1, 10), Fraction(3, 4)]


def ranks(rows, unit, groups):
    found = Ranks("a", SPACE, unit, groups)
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


def scores(rows, unit, groups, level, shift):
    mine = ranks(rows, unit, groups)
    return [mine.scores(group, level, shift) for group in range(groups.count)]


@pytest.mark.parametrize("shift", [0, 3, -3])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("groups", [WHOLE, BY], ids=["whole", "by"])
@pytest.mark.parametrize("unit", [Unit(), ADDED], ids=str)
def test_no_row_moves_scores_further_apart_than_stated(unit, groups, level, shift):
    stated, seen = ranks([], unit, groups).moved(level), 0
    known = {}
    for pair in neighbours(unit, ROWS[::2] if groups is WHOLE else ROWS):
        mine, other = (
            known.setdefault(tuple(rows), np.array(scores(rows, unit, groups, level, shift))) for rows in pair
        )
        moves = mine - other
        spreads = np.ptp(moves, axis=1)
        tables = np.count_nonzero(np.abs(moves).max(axis=1))
        assert any(tables <= most and spreads.max() <= spread for most, spread in stated.ways)
        assert all(np.abs(moves[at]).max() <= stated.ways[-1][1] / 2 or tables == 1 for at in range(len(moves)))
        assert (mine.max(axis=1) == 0).all()
        seen = max(seen, spreads.sum())
    # Tables of two rows hold less than the worst.
    assert seen > 0.35 * stated.range


@pytest.mark.parametrize("name", ["exponential", "noisy_max"])
@pytest.mark.parametrize("level", LEVELS[:2])
def test_the_exact_loss_of_all_groups_choices(name, level):
    """The product of the groups' laws, over all neighbours of two rows; a quarter of the range is beyond its claim."""
    moved = ranks([], Unit(), BY).moved(level)
    made = {"exponential": Exponential, "noisy_max": NoisyMax}[name]
    portion, quarter = Portion(Budget(1.0)), Scores(((1, level.denominator // 2),))
    selector, wrong = made.of(moved, portion), made.of(quarter, portion)
    assert worst_of_all(selector, name, level) <= selector.pure_loss + 1e-12
    assert worst_of_all(wrong, name, level) > 1.5 * wrong.pure_loss


def worst_of_all(selector, name, level):
    def logs(rows):
        found = []
        for row in scores(rows, Unit(), BY, level, 0):
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
