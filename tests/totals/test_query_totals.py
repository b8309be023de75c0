"""How far one person moves what questions count: all tables of a few rows, and all of their neighbours."""

import itertools

import numpy as np
import pytest

from dpframe.accounting.unit import Unit
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Boolean, Integer, Nullable, Real
from dpframe.totals.answers import Numbers
from dpframe.totals.questions import FANOUT, CellCounts, CellTree, Groups, ProductSums, Summed
from dpframe.totals.set_questions import ChosenCounts, Distinct, ItemCounts, holds_items, size_places

ADDED = Unit(added=True)
SMALL, WITH_NULL = Integer(0, 3), Nullable(Integer(0, 3))

LOW = {"b": lambda codes: codes < 2}
BY_B = Groups(by="b", count=2, place=lambda codes: codes)

QUESTIONS = {
    "count": lambda u: CellCounts({}, u, {"a": lambda codes: codes < 2, "b": lambda codes: codes > 0}),
    "sum": lambda u: Summed("a", SMALL, u),
    "sum with nulls": lambda u: Summed("a", WITH_NULL, u),
    "sum where": lambda u: Summed("a", SMALL, u, groups=Groups(LOW)),
    "sum by": lambda u: Summed("a", WITH_NULL, u, groups=BY_B),
    "histogram": lambda u: CellCounts({"a": (4, lambda codes: codes)}, u),
    "histogram where": lambda u: CellCounts({"a": (4, lambda codes: codes)}, u, LOW),
    "histogram with null": lambda u: CellCounts({"a": (5, lambda codes: codes)}, u),
    "cross table": lambda u: CellCounts({"a": (4, lambda codes: codes), "b": (3, lambda codes: codes)}, u, LOW),
    "quantile": lambda u: CellTree("a", SMALL, u),
    "quantile with nulls": lambda u: CellTree("a", WITH_NULL, u),
    "quantile where": lambda u: CellTree("a", SMALL, u, LOW),
    "moments": lambda u: ProductSums(("a", "b"), (SMALL, Integer(0, 2)), u),
    "moments where": lambda u: ProductSums(("a", "b"), (SMALL, Integer(0, 2)), u, {"b": lambda codes: codes != 1}),
    "distinct values": lambda u: Distinct(CellCounts({"a": (4, lambda codes: codes)}, u), 1),
}
SETS = {
    "items": lambda u: ItemCounts("a", 2, 2, u),
    "items where": lambda u: ItemCounts("a", 2, 2, u, conditions=LOW),
    "items of sets that are cut": lambda u: ItemCounts("a", 2, 1, u, Keystream(bytes(32)).column("cut", "measure")),
    "some items": lambda u: ChosenCounts(ItemCounts("a", 2, 2, u), (1,)),
    "sizes": lambda u: CellCounts({"a": (3, size_places(2))}, u),
    "distinct items": lambda u: Distinct(ItemCounts("a", 2, 2, u), 2),
    "any item": lambda u: CellCounts({}, u, {"a": holds_items(2, (0, 1), "any", wrong=False)}),
    "not all items": lambda u: CellCounts({}, u, {"a": holds_items(2, (0, 1), "all", wrong=True)}),
}
ALL = {**QUESTIONS, **SETS}


def totals(make, rows):
    return counted(make, rows, Unit())


def added(make, rows):
    return counted(make, rows, ADDED)


def counted(make, rows, unit):
    question = make(unit)
    columns = np.array(rows, dtype=np.uint64).reshape(-1, 2).T
    question.add({"a": columns[0][:, None] if make in SETS.values() else columns[0], "b": columns[1]})
    return [np.array(part, dtype=np.int64) for part in question.totals]


ROWS = list(itertools.product(range(5), range(4)))  # the last code of each is null


def within(numbers, move):
    """Whether one of the ways covers a move: no more numbers, none by more."""
    return any(np.count_nonzero(move) <= moved and np.abs(move).max() <= span for moved, span in numbers.ways)


def checked(stated, pairs):
    """Every move is covered, and the worst in ℓ1 and ℓ2 are as stated."""
    worst = np.zeros((len(stated), 2))
    for mine, other in pairs:
        for at, (numbers, a, b) in enumerate(zip(stated, mine, other, strict=True)):
            assert within(numbers, a - b)
            worst[at] = np.maximum(worst[at], [np.abs(a - b).sum(), np.linalg.norm(a - b)])
    for (l1, l2), numbers in zip(worst.tolist(), stated, strict=True):
        assert (l1, l2) == (numbers.l1, pytest.approx(numbers.l2))


@pytest.mark.parametrize("name", ALL)
def test_no_replaced_row_moves_further_than_stated_and_some_as_far(name):
    """Totals are sums over rows: two rows suffice for every move that one replaced row can make."""
    make = ALL[name]
    found = {(other, row): totals(make, [other, row]) for other in (*ROWS[:3], ROWS[-1]) for row in ROWS}
    checked(make(Unit()).numbers, [(mine, found[other, new]) for (other, _), mine in found.items() for new in ROWS])


@pytest.mark.parametrize("name", ALL)
def test_no_added_row_moves_further_than_stated_and_some_as_far(name):
    made = ALL[name]
    pairs = [(added(made, [other, row]), added(made, [other])) for other in ROWS for row in ROWS]
    checked(made(ADDED).numbers, pairs)


def test_a_wrong_sensitivity_is_caught():
    """Sums by groups that only one row of a group could move."""
    with pytest.raises(AssertionError):
        wrong = [Numbers(2, 1, 3), Numbers(2, 2, 1)]
        checked(
            wrong, [(totals(ALL["sum by"], [one]), totals(ALL["sum by"], [other])) for one in ROWS for other in ROWS]
        )


@pytest.mark.parametrize("name", ALL)
def test_a_person_of_two_rows_moves_no_further_than_stated(name):
    make = ALL[name]
    stated = make(Unit(2)).numbers
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
    question = Summed("a", space, Unit())
    span, last = question.numbers[0].span, space.values - 1
    assert span <= 1 << 16
    for _ in range(300):
        others = generator.integers(0, last + 1, 3)
        pair = []
        for end in (0, last):
            question = Summed("a", space, Unit())
            question.add({"a": np.append(others, end)})
            pair.append(question.totals[0][0])
        assert abs(pair[0] - pair[1]) <= span
        exact = others.sum() + last
        exact = 2 * exact - 4 * last if space.has_null else exact
        assert 0 <= exact - pair[1] * question.rounded < question.rounded


def test_products_of_wide_grids():
    spaces = (Integer(0, 2**32 - 2), Real(0, 1), Boolean())
    question = ProductSums(("a", "b", "c"), spaces, Unit())
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
        whole, parts = make(Unit()), make(Unit())
        whole.add(codes)
        for start in range(0, 1_000, batch):
            parts.add({name: values[start : start + batch] for name, values in codes.items()})
        assert whole.totals == parts.totals


@pytest.mark.parametrize("space", [Integer(0, 6), Integer(0, 299), Real(0, 1), Nullable(Integer(0, 5_000))])
def test_cumulative_counts_are_sums_of_few_counts(space):
    generator = np.random.default_rng(2)
    tree, codes = CellTree("a", space, Unit()), generator.integers(0, space.size, 5_000)
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
