"""Whole answers of `Queries`, from the table to the noisy numbers: their exact laws on all neighbours of tiny tables.

What an answer shows is made of the noisy numbers, and of nothing else that a row moves: noise is fixed here by a key,
so that two tables with the same exact numbers have the same answer.
"""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from exact_laws import Pair

import dpframe as dpf
from dpframe.accounting.gaussian_dp import promise_step, step_delta, step_epsilon
from dpframe.queries.shares import TotalBudget, check_share
from dpframe.totals.answers import GaussianAnswer, Stairs

SHARE = 0.5
PEOPLE = {"age": (0, 120), "sex": ["F", "M"]}
SPACES = {
    "a": dpf.Nullable(dpf.Integer(0, 2)),
    "b": dpf.Integer(0, 2),
    "s": dpf.Subset(["x", "y"]),
    "c": dpf.Integer(0, 3),
}
ROWS = [(0, 0, []), (2, 2, ["x", "y"]), (None, 0, ["x"]), (0, 2, ["y"]), (2, 0, ["x"]), (None, 2, [])]
OTHERS = [(0, 0, ["x"])]
LOW = {"b": [0, 1]}

ASKS = {
    "count": lambda q, s: q.count({"a": 2}, share=s),
    "count of sets": lambda q, s: q.count({"s": {"any": ["x", "y"]}}, share=s),
    "sum": lambda q, s: q.sum("a", share=s),
    "sum where": lambda q, s: q.sum("b", where={"a": [0, 1]}, share=s),
    "mean": lambda q, s: q.mean("b", share=s),
    "mean by": lambda q, s: q.mean("b", by="a", share=s),
    "histogram": lambda q, s: q.histogram("a", 3, share=s),
    "crosstab": lambda q, s: q.crosstab("a", "b", bins={"a": 2, "b": 2}, share=s),
    "second moments": lambda q, s: q.second_moments(["b", "c"], share=s),
    "covariance where": lambda q, s: q.covariance(["b"], where=LOW, share=s),
    "support": lambda q, s: q.support("s", share=s),
    "set sizes": lambda q, s: q.set_sizes("s", share=s),
    "distinct items": lambda q, s: q.nunique("s", share=s),
}


class Recorded(dpf.Queries):
    """Questions that keep what their answers are made of: exact numbers, and the noise that they get."""

    def _answer(self, question, *given):
        told = super()._answer(question, *given)
        self.made = [np.array(totals, dtype=np.int64) for totals in question.totals], told.noises
        return told


def asked(rows, ask, delta, neighbours):
    frame = pd.DataFrame(rows, columns=list("abs")).astype({"a": "Int64"})
    frame["c"] = 3 * frame["s"].map(len) // 2
    q = Recorded(frame, 2.0, delta=delta, spaces=SPACES, neighbours=neighbours)
    portion = q._spending.total.portion(check_share(SHARE))
    answer = ask(q, SHARE)
    return answer, *q.made, portion


def moves(found):
    """The distinct moves of all exact numbers between neighbours, each as one array for every list of numbers."""
    distinct = {}
    for mine, other in found:
        move = [a - b for a, b in zip(mine, other, strict=True)]
        distinct.setdefault(tuple(tuple(part.tolist()) for part in move), move)
    return [move for move in distinct.values() if any(part.any() for part in move)]


def gaussian_law(noise, moved):
    """The masses of one noisy number that moves so far, under both tables: from the integers that are sampled."""
    weights = noise.table.weights()
    places = sorted({*weights, *(z + moved for z in weights)})
    masses = np.array([[weights.get(z - by, 0) / 2**128 for z in places] for by in (0, moved)])
    return Pair(masses[0], masses[1])


def joined(law, other):
    """The law of both, without outcomes that neither table has with more than a chance of 1e-11."""
    both = law.times(other)
    seen = np.maximum(both.one, both.other) > 1e-11
    return Pair(both.one[seen], both.other[seen]).merged()


def pairs(name, delta, neighbours):
    """Exact numbers of all neighbours, the noise they get, what the answer states, and the portion."""
    ask, tables, told = ASKS[name], {}, None
    kinds = [[other, row] for other in OTHERS for row in ROWS] + [[other] for other in OTHERS]
    for rows in kinds if neighbours == "add_remove" else kinds[: -len(OTHERS)]:
        *told, portion = asked(rows, ask, delta, neighbours)
        tables[repr(rows)] = told[1]
    if neighbours == "add_remove":
        found = [(tables[repr([other, row])], tables[repr([other])]) for other in OTHERS for row in ROWS]
    else:
        together = itertools.product(OTHERS, itertools.combinations(ROWS, 2))
        found = [(tables[repr([other, row])], tables[repr([other, new])]) for other, (row, new) in together]
    return moves(found), told[2], told[0].attrs, portion


pytestmark = pytest.mark.usefixtures("one_key")


@pytest.mark.filterwarnings("ignore:delta=")
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", ASKS)
def test_pure_answers_lose_at_most_their_epsilon(name, neighbours):
    """Each number's noise loses what its own integers lose on its own move; together no more than is stated."""
    found, noises, stated, portion = pairs(name, 0, neighbours)
    assert found
    assert all(isinstance(noise, Stairs) for noise in noises)
    losses = [
        sum(noise.law.loss(abs(by)) for noise, part in zip(noises, move, strict=True) for by in part.tolist() if by)
        for move in found
    ]
    assert max(losses) <= stated["epsilon"] * (1 + 1e-12)
    assert stated["epsilon"] == portion.budget.epsilon == 1.0
    # Numbers of nulls and of rows that no condition meets have a part of the share that other rows leave.
    assert max(losses) > 0.4


MANY_NUMBERS = {"mean by", "second moments", "covariance where"}
"""Answers of several wide sums, whose joint law is too long to be written out."""


@pytest.mark.filterwarnings("ignore:delta=")
@pytest.mark.walk(10)
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", sorted({*ASKS} - MANY_NUMBERS))
def test_gaussian_answers_keep_their_promise(name, neighbours):
    """The whole law of all noisy numbers lies under the curve that the share pays for."""
    found, noises, stated, portion = pairs(name, 1e-3, neighbours)
    assert all(isinstance(noise, GaussianAnswer) for noise in noises)
    nearest = 0.0
    for move in found:
        law = Pair(np.ones(1), np.ones(1))
        for noise, part in zip(noises, move, strict=True):
            for by in np.abs(part[part != 0]).tolist():
                law = joined(law, gaussian_law(noise, by))
        for x in (0.0, 0.25, 0.5, 1.0):
            claim = step_delta(portion.step, x)
            assert law.most(x) <= claim * (1 + 1e-9)
            nearest = max(nearest, law.least(x) / claim)
        assert law.most(stated["epsilon"]) <= stated["delta"]
    assert nearest > 0.3


@pytest.mark.parametrize("name", ASKS)
def test_nothing_but_the_numbers_shows(name):
    """With one key, tables of equal exact numbers have equal answers."""
    known = {}
    for other, row in itertools.product(OTHERS, ROWS):
        answer, exact, _, _ = asked([other, row], ASKS[name], 0, "replace_one")
        shown = (repr(np.asarray(answer).tolist()), repr(answer.attrs), str(answer.index))
        assert known.setdefault(repr([part.tolist() for part in exact]), shown) == shown
    assert len(known) > 1


def test_a_wrong_sensitivity_is_caught():
    """What half of the noise on a count would lose, whose sensitivity all rows together reach."""
    found, (noise,), stated, _ = pairs("count", 0, "replace_one")
    assert max(2 * noise.law.loss(abs(int(move[0][0]))) for move in found) > 1.99 * stated["epsilon"]


# ------------------------------------------------------------------------------------------------ budgets


def test_portions_never_exceed_the_whole():
    for accounting in ("basic", "gaussian"):
        total = TotalBudget.of(dpf.Budget(1.0, 1e-6), accounting)
        parts = [total.portion(check_share(share)) for share in (0.1, 0.3, 0.6)]
        assert sum(Fraction(str(p.budget.delta)) for p in parts) <= Fraction(str(1e-6))
        if total.step is None:
            assert sum(Fraction(str(p.budget.epsilon)) for p in parts) == 1
        else:
            assert sum(p.step.square for p in parts) <= total.step.square
            assert sum(Fraction(p.step.delta) for p in parts) <= Fraction(total.step.delta)


def test_what_is_spent_is_stated_in_both_currencies():
    people = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    whole = promise_step(dpf.Budget(1.0, 1e-6))
    q = dpf.Queries(people, dpf.Budget(1.0, 1e-6), spaces=PEOPLE)
    answer = q.count({"sex": "F"}, share=0.25)
    assert q.spent.epsilon == pytest.approx(step_epsilon(type(whole)(whole.mu / 2, whole.delta / 4), 1e-6), rel=1e-6)
    assert q.spent.epsilon < answer.attrs["epsilon"] + 0.2
    assert answer.attrs["delta"] == 2.5e-7
    pure = q.count({"sex": "F"}, share=0.25, mechanism="geometric")
    assert pure.attrs["delta"] == 0.0
    assert pure.attrs["epsilon"] == pytest.approx(0.094, abs=0.002)  # what μ = 0.2355/2 pays for
    assert "0.5" in repr(q) or "epsilon=" in repr(q)
    basic = dpf.Queries(people, 1.0, delta=0, spaces=PEOPLE)
    basic.count({"sex": "F"}, share=0.25)
    assert (basic.spent.epsilon, basic.remaining.epsilon, basic.left) == (0.25, 0.75, 0.75)
