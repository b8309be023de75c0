"""How far one person moves what questions count: all tables of a few rows, and all of their neighbours."""

import itertools

import numpy as np
import pytest

from dpframe.central.questions import FANOUT, Cells, Met, Moments, Summed, Tree
from dpframe.spaces import Boolean, Integer, Nullable, Real

SMALL, WITH_NULL = Integer(0, 3), Nullable(Integer(0, 3))

QUESTIONS = {
    "count": lambda k: Met({"a": lambda codes: codes < 2, "b": lambda codes: codes > 0}, k),
    "sum": lambda k: Summed("a", SMALL, k),
    "sum with nulls": lambda k: Summed("a", WITH_NULL, k),
    "histogram": lambda k: Cells("a", 4, lambda codes: codes, k),
    "histogram with null": lambda k: Cells("a", 5, lambda codes: codes, k),
    "quantile": lambda k: Tree("a", SMALL, k),
    "quantile with nulls": lambda k: Tree("a", WITH_NULL, k),
    "moments": lambda k: Moments(("a", "b"), (SMALL, Integer(0, 2)), k),
}


def totals(make, rows):
    question = make(1)
    columns = np.array(rows, dtype=np.uint8).reshape(-1, 2).T
    question.add({"a": columns[0], "b": columns[1]})
    return [np.array(part) for part in question.totals]


ROWS = list(itertools.product(range(5), range(4)))  # the last code of each is null


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_neighbour_moves_further_than_stated_and_some_as_far(name):
    """Totals are sums over rows: two rows suffice for every move that one replaced row can make."""
    make = QUESTIONS[name]
    found = {(other, row): totals(make, [other, row]) for other in ROWS[:3] for row in ROWS}
    stated = make(1).numbers
    worst = np.zeros((len(stated), 3), dtype=np.int64)
    for (other, _row), mine in found.items():
        for new in ROWS:
            moves = [np.abs(a - b) for a, b in zip(mine, found[other, new], strict=True)]
            seen = [(np.count_nonzero(m), m.max(), m.sum()) for m in moves]
            worst = np.maximum(worst, seen)
    for numbers, (moved, span, l1) in zip(stated, worst.tolist(), strict=True):
        assert (moved, span, l1) == (numbers.moved, numbers.span, numbers.l1)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_person_of_two_rows_moves_no_further_than_stated(name):
    make = QUESTIONS[name]
    stated = make(2).numbers
    rows = ROWS[::3]
    found = [totals(make, list(pair)) for pair in itertools.product(rows, rows)]
    for one, other in itertools.combinations(found, 2):
        for numbers, a, b in zip(stated, one, other, strict=True):
            assert np.abs(a - b).sum() <= numbers.l1
            assert np.sqrt(((a - b) ** 2).sum()) <= numbers.l2 + 1e-9


@pytest.mark.parametrize("space", [Integer(0, 10**9), Real(0, 1, steps=200_000), Nullable(Integer(0, 10**6))])
def test_totals_of_wide_grids_are_rounded_once(space):
    """⌊T/q⌋ moves by at most ⌈N/q⌉: at worst by a row that leaves one end for the other, whatever the others hold."""
    generator = np.random.default_rng(0)
    question = Summed("a", space, 1)
    span, last = question.numbers[0].span, space.values - 1
    assert span <= 1 << 16
    for _ in range(300):
        others = generator.integers(0, last + 1, 3)
        pair = []
        for end in (0, last):
            question = Summed("a", space, 1)
            question.add({"a": np.append(others, end)})
            pair.append(question.totals[0][0])
        assert abs(pair[0] - pair[1]) <= span
        exact = others.sum() + last
        exact = 2 * exact - 4 * last if space.has_null else exact
        assert 0 <= exact - pair[1] * question.unit < question.unit


def test_products_of_wide_grids():
    spaces = (Integer(0, 2**32 - 2), Real(0, 1), Boolean())
    question = Moments(("a", "b", "c"), spaces, 1)
    assert max(n.span for n in question.numbers) <= 1 << 16
    question.add({"a": np.full(65_536, 2**32 - 2), "b": np.full(65_536, 65_536), "c": np.ones(65_536, dtype=np.uint8)})
    last = [2 * last - last for last in question.lasts]
    for at, (i, j) in enumerate(question.pairs):
        assert question.second[at] == 65_536 * last[i] * last[j]


@pytest.mark.parametrize("batch", [1, 7, 1_000])
def test_totals_do_not_depend_on_batches(batch):
    generator = np.random.default_rng(1)
    codes = {"a": generator.integers(0, 5, 1_000), "b": generator.integers(0, 4, 1_000)}
    for make in QUESTIONS.values():
        whole, parts = make(1), make(1)
        whole.add(codes)
        for start in range(0, 1_000, batch):
            parts.add({name: values[start : start + batch] for name, values in codes.items()})
        assert whole.totals == parts.totals


@pytest.mark.parametrize("space", [Integer(0, 6), Integer(0, 299), Real(0, 1), Nullable(Integer(0, 5_000))])
def test_cumulative_counts_are_sums_of_few_counts(space):
    generator = np.random.default_rng(2)
    tree, codes = Tree("a", space, 1), generator.integers(0, space.size, 5_000)
    tree.add({"a": codes})
    levels = [np.array(level) for level in tree.totals]
    inner = codes[codes < space.values]
    if space.has_null:
        assert levels[0][-1] == 5_000 - len(inner)
        levels[0] = levels[0][:-1]
    ends = np.array(tree.starts[1:])
    assert tree.cumulative(levels).tolist() == np.searchsorted(np.sort(inner), ends).tolist()
    most = tree.variances([1.0] * len(levels))
    assert most.max() <= FANOUT * len(levels)
    assert len(levels) == max(1, int(np.ceil(np.log(tree.cells) / np.log(FANOUT) - 1e-9)))
