"""Quantiles by noisy counts: how far one row moves an excess, the law of the whole search, and what it finds."""

import itertools
import math

import numpy as np
import pytest
from test_ranks import LEVELS, ROWS, ranks

from dpframe import Budget
from dpframe.accounting.gaussian_dp import Step, step_delta
from dpframe.accounting.unit import Unit
from dpframe.noise.keystream import Keystream
from dpframe.totals.answers import GaussianAnswer, Numbers, Portion, gaussian
from dpframe.totals.questions import ALL_ROWS, Groups
from dpframe.totals.ranks import Readings, halvings, search_quantiles, search_shares

ADDED = Unit(added=True)
BY = Groups(by="g", count=2, place=lambda codes: codes)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("groups", [ALL_ROWS, BY], ids=["whole", "by"])
@pytest.mark.parametrize("unit", [Unit(), ADDED], ids=str)
def test_no_row_moves_excesses_further_than_stated_and_some_as_far(unit, groups, level):
    """Excesses are sums over rows: one row suffices for every move that a replaced row makes, and at all edges."""
    numbers, worst = ranks([], unit, groups).excess_sensitivity(level), 0
    tables = [[], *([row] for row in ROWS)] if unit.added else [[row] for row in ROWS]
    for edges in itertools.product((1, 2), repeat=groups.count):
        found = [ranks(rows, unit, groups).excess(level, np.array(edges)) for rows in tables]
        for mine, other in itertools.product(found[:1] if unit.added else found, found):
            move = np.abs(mine - other)
            assert any(np.count_nonzero(move) <= moved and move.max() <= span for moved, span in numbers.ways)
            worst = max(worst, move.sum())
    assert worst == numbers.l1


class Scripted(GaussianAnswer):
    """Noise whose outcomes are given, and which keeps what they were made of."""

    def __init__(self, noise, outcome):
        super().__init__(noise.table)
        object.__setattr__(self, "outcome", outcome)
        object.__setattr__(self, "seen", [])

    def add(self, totals, stream):
        self.seen.extend(totals)
        return [self.outcome] * len(totals)


def search_laws(noises, tables, n, reach):
    """The masses of all outcomes of two readings, of a goal in the middle of n rows, for each table of counts."""
    laws = [noise.table.weights() for noise in noises]
    masses = np.zeros((len(tables), (2 * reach + 1) ** 2))
    for at, outcomes in enumerate(itertools.product(range(-reach, reach + 1), repeat=2)):
        edges = []

        def excess(asked, edges=edges):
            edges.append(int(asked[0]))
            return [0]

        scripted = [Scripted(noise, y) for noise, y in zip(noises, outcomes, strict=True)]
        search_quantiles(excess, 1, 3, scripted, 0.95, lambda i: Keystream(bytes(32)).column(str(i), "measure"))
        for row, counts in enumerate(tables):
            exact = [2 * sum(counts[:edge]) - n for edge in edges]
            pairs = zip(laws, outcomes, exact, strict=True)
            masses[row, at] = math.prod(law.get(y - v, 0) / 2**128 for law, y, v in pairs)
    return masses


@pytest.mark.slow
def test_the_law_of_a_whole_search_keeps_its_promise(monkeypatch):
    """All neighbours of two rows in three cells; the second reading is where the first says. Wrong noise is caught."""
    monkeypatch.setattr("dpframe.totals.ranks._ENDS", ())
    assert halvings(3) == 2
    step = Step(1.5, 1e-3)
    portion = Portion(Budget(4.0, 1e-2), step)
    noises = [gaussian(Numbers(span=2), part) for part in portion.split(search_shares(3))]
    wrong = [gaussian(Numbers(span=1), part) for part in portion.split(search_shares(3))]
    tables = [counts for counts in itertools.product(range(3), repeat=3) if sum(counts) == 2]
    broken = 0.0
    for made, right in ((noises, True), (wrong, False)):
        masses = search_laws(made, tables, 2, reach=16)
        left = 1 - masses.sum(axis=1).min()
        assert left < 1e-6
        for one, other in itertools.permutations(range(len(tables)), 2):
            if np.abs(np.subtract(tables[one], tables[other])).sum() > 2:
                continue
            for x in (0.0, 0.5, 1.0, 2.0, 4.0):
                profile = np.maximum(masses[one] - math.exp(x) * masses[other], 0).sum()
                if right:
                    assert profile <= step_delta(step, x) + left
                else:
                    broken = max(broken, profile - step_delta(step, x) - left)
    assert broken > 0.1


@pytest.mark.parametrize("shape", ["even", "spike", "two", "far"])
def test_intervals_hold_quantiles_and_estimates_are_near(shape):
    """400 answers each at a fixed key; 95 % at least less 5 sd: missed with a chance below 1e-6."""
    cells, n = 4_096, 4_000
    values = {
        "even": np.arange(n) * cells // n,
        "spike": np.repeat([0, 700], n // 2),
        "two": np.repeat([10, 4_000], [n // 4, 3 * n // 4]),
        "far": np.full(n, cells - 1),
    }[shape]
    before = np.concatenate([[0], np.cumsum(np.bincount(values, minlength=cells))])
    truth = np.sort(values)[n // 2 - 1]
    step = Step(0.1, 1e-8)
    parts = Portion(Budget(1.0, 1e-6), step).split(search_shares(cells))
    noises = [gaussian(Numbers(span=2), part) for part in parts]
    key = Keystream(bytes(32))
    found = search_quantiles(
        lambda edges: (2 * before[edges] - n).tolist(),
        400,
        cells,
        noises,
        0.95,
        lambda i: key.column(str(i), "measure"),
    )
    inside = (found[:, 1] <= truth) & (truth <= found[:, 2])
    assert inside.mean() > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 400)
    assert ((found[:, 1] <= found[:, 0]) & (found[:, 0] <= found[:, 2])).all()
    if shape == "even":  # five deviations to either side; an end that fails to be found would count as thousands
        assert (found[:, 2] - found[:, 1]).mean() < 11 * noises[-1].sigma2 ** 0.5 / 2
    error = {"even": 30.0, "spike": 700.0, "two": 0.5, "far": 0.5}[shape]  # a rank of 17 is 17 cells, or none
    assert np.sqrt(((found[:, 0] - truth) ** 2).mean()) < error


def test_readings_are_fitted_by_rising_excesses():
    """The fit is the least squares one: no rising step function of the readings' edges is nearer."""
    generator = np.random.default_rng(0)
    readings = Readings(100, np.array([[50, 20, 70, 60]]), np.array([[3.0, 5.0, 9.0, -2.0]]), np.ones(4))
    edges, fitted = readings.fitted
    assert edges.tolist() == [[20, 50, 60, 70]]
    assert fitted.tolist() == [[2.0, 2.0, 2.0, 9.0]]
    least = ((fitted - [5.0, 3.0, -2.0, 9.0]) ** 2).sum()
    tried = np.sort(generator.normal(3, 4, (10_000, 4)), axis=1)
    assert ((tried - [5.0, 3.0, -2.0, 9.0]) ** 2).sum(axis=1).min() >= least
    assert readings.crossing(5.5).tolist() == [65.0]
    assert Readings.none(2, 100).middles.tolist() == [50.0, 50.0]
