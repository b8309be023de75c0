"""Exact tables: every weight read back, and every kind of word at the edges of its bin."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpframe.accounting.loss import ResponseLoss
from dpframe.channels.base import response_table
from dpframe.noise.keystream import Keystream
from dpframe.noise.tables import (
    RESPONSE_CHUNK_ROWS,
    WORD,
    AliasTable,
    GeometricTable,
    ResponseTable,
    geometric_table,
    integer_weights,
    relative_spread,
)

RATES = [(1, 1.0), (2, 1e-6), (3, 20.0), (511, 1 / 511), (512, 1 / 512), (513, 8 / 513), (700, 1e-4), (4096, 20 / 4096)]


class ChosenWords:
    """Stands in for a column's stream: planes of given words."""

    def __init__(self, *planes: list[int]) -> None:
        self.planes = planes

    def reader(self, word: int, first_row: int, bits: int = 64) -> ChosenReader:
        return ChosenReader(np.array(self.planes[word][first_row:], dtype=f"<u{bits // 8}").view(np.uint8))


class ChosenReader:
    def __init__(self, left: np.ndarray) -> None:
        self.left = left

    def fill(self, out: np.ndarray) -> None:
        out[:] = self.left[: len(out)]
        self.left = self.left[len(out) :]


def draw(table: AliasTable, words: list[int]) -> list[int]:
    array = np.array(words, dtype=np.uint64)
    out = np.empty(len(words), dtype=table.values.dtype)
    table.draw(array, np.empty_like(array), np.empty_like(array), out)
    return out.tolist()


def noise_of(table: GeometricTable, words: list[tuple[int, int]]) -> list[int]:
    """Return mid-grid plus noise, clipped, for chosen pairs of words."""
    out = np.empty(len(words), dtype=np.int64)
    codes = np.full(len(words), table.span // 2)
    table.sample(codes, ChosenWords([w for w, _ in words], [w for _, w in words]), 0, out)
    return out.tolist()


def ideal_noise(span: int, rate: float) -> dict[int, Decimal]:
    """P(k) = (1−α)/(1+α)·α^|k| inside and α^span/(1+α) at both ends, to 60 digits."""
    with localcontext(Context(prec=60)):
        alpha = (-Decimal(rate)).exp()
        inner, end = (1 - alpha) / (1 + alpha), (-Decimal(rate) * span).exp() / (1 + alpha)
        law = {0: inner}
        for k in range(1, span):
            inner *= alpha
            law[k] = law[-k] = inner
        return {**law, span: end, -span: end}


# --- weights ------------------------------------------------------------------------------------------

some_weights = st.lists(st.one_of(st.integers(1, 5), st.integers(1, 2**70)), min_size=1, max_size=40)


@given(some_weights)
def test_integer_weights(ideal: list[int]) -> None:
    weights = integer_weights(ideal)
    assert sum(weights) == WORD
    assert min(weights) >= 1
    exact = [Fraction(part * WORD, sum(ideal)) for part in ideal]
    raised = sum(1 for e in exact if e < 1)
    # Where an outcome was raised to weight 1, the likeliest one pays.
    assert all(abs(w - e) <= 1 + raised for w, e in zip(weights, exact, strict=True))
    assert all(w == 1 for w, e in zip(weights, exact, strict=True) if e < Fraction(1, 2))


@given(some_weights)
def test_spread_bounds_every_ratio(ideal: list[int]) -> None:
    weights = integer_weights(ideal)
    ratios = [Fraction(w * sum(ideal), part * WORD) for w, part in zip(weights, ideal, strict=True)]
    with localcontext(Context(prec=60)):
        ratio = max(ratios) / min(ratios)
        true = (Decimal(ratio.numerator) / ratio.denominator).ln()
    spread = relative_spread(weights, ideal)
    assert Decimal(spread) >= true
    assert spread <= float(true) * (1 + 1e-9) + 1e-300


@given(some_weights)
def test_alias_table_reads_back(ideal: list[int]) -> None:
    weights = integer_weights(ideal)
    values = [3 * i - 20 for i in range(len(weights))]
    assert AliasTable.build(values, weights).weights() == dict(zip(values, weights, strict=True))


@given(some_weights, st.lists(st.integers(0, WORD - 1), max_size=20))
def test_alias_table_draws_what_it_weighs(ideal: list[int], others: list[int]) -> None:
    """At 0, at 2^64 − 1 and on both sides of every bin's edge and limit: counting words gives the weights.

    Outcomes change only at these words, so the lengths of the runs between them are exact probabilities.
    """
    weights = integer_weights(ideal)
    values = list(range(100, 100 + len(weights)))
    table = AliasTable.build(values, weights)
    capacity = WORD >> table.bits
    changes = {0, *(i * capacity for i in range(1 << table.bits)), *(limit + 1 for limit in table.limits.tolist())}
    starts = sorted(changes - {WORD})
    found: dict[int, int] = {}
    ends = [*starts[1:], WORD]
    firsts, lasts = draw(table, starts), draw(table, [end - 1 for end in ends])
    assert firsts == lasts
    for value, start, end in zip(firsts, starts, ends, strict=True):
        found[value] = found.get(value, 0) + end - start
    assert found == dict(zip(values, weights, strict=True))
    for word, value in zip(others, draw(table, others), strict=True):
        run = max(i for i, start in enumerate(starts) if start <= word)
        assert value == firsts[run]


@pytest.mark.parametrize("weights", [[], [WORD - 1], [WORD, 1], [WORD + 1, -1], [WORD // 2, WORD // 2 + 1]])
def test_alias_table_refuses_other_sums(weights: list[int]) -> None:
    with pytest.raises(ValueError, match=r"weights|empty"):
        AliasTable.build(list(range(len(weights))), weights)


def test_what_has_no_weight_is_never_drawn() -> None:
    """Every word of a coarse grid, and those beside each limit: zeros stay zeros wherever they stand."""
    half, third = WORD // 2, WORD // 3
    for law in ([0, WORD], [WORD, 0, 0], [half, 0, half], [0, third, 0, WORD - third, 0], [0, 1, WORD - 1]):
        table = AliasTable.build(list(range(len(law))), law)
        assert table.weights() == {y: w for y, w in enumerate(law) if w}
        near = [int(limit) + step for limit in table.limits for step in (-1, 0, 1)]
        words = [word % WORD for word in [*near, *range(0, WORD, WORD // 1_000)]]
        assert set(draw(table, words)) <= {y for y, w in enumerate(law) if w}


# --- randomised response ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "epsilon", "delta"),
    [
        (2, 1.0, 0.0),
        (2, 1e-6, 0.0),
        (2, 50.0, 0.0),
        (3, 0.1, 0.1),
        (16, 1.0, 0.0),
        (1001, 2.0, 0.0),
        (60_000, 1.0, 0.0),
    ],
)
def test_response_at_the_edges(size: int, epsilon: float, delta: float) -> None:
    """v = t·k − 1 and t·k, 0 and 2^w − 1: y = (x + min(v // t, m) + 1) mod (m + 1)."""
    table = response_table(size, epsilon, delta)
    t, m, top = table.threshold, size - 1, (1 << table.bits) - 1
    steps = sorted({*range(min(size, 40)), *range(max(0, size - 40), size)})
    words = [0, 1, top, top - 1, *(t * k for k in steps), *(t * k - 1 for k in steps if k), *(t * k + 1 for k in steps)]
    words = [w for w in words if w <= top]
    for x in {0, 1, m // 2, m}:
        for dtype in (np.int64, np.uint32):
            out = np.empty(len(words), dtype=dtype)
            table.sample(np.full(len(words), x, dtype=dtype), ChosenWords(words), 0, out)
            assert out.tolist() == [(x + min(w // t, m) + 1) % size for w in words]


@given(st.integers(2, 300), st.floats(1e-3, 60), st.floats(0, 0.99))
def test_response_weights(size: int, epsilon: float, delta: float) -> None:
    """Exactly t words lead to every other code and the rest to the true one, which is the likeliest."""
    table = response_table(size, epsilon, delta)
    assert table.keep + (size - 1) * table.threshold == 1 << table.bits
    assert table.keep > table.threshold >= 1
    assert ResponseLoss(table.keep, table.threshold, 1 << table.bits).delta(epsilon) <= delta
    # No word is beyond the true code's: min(v // t, m) reaches m for the first time at v = t·m.
    assert (1 << table.bits) - table.threshold * (size - 1) == table.keep


def test_response_of_one_code() -> None:
    out = np.full(3, 9)
    ResponseTable(1, 1, 32).sample(np.zeros(3, dtype=int), ChosenWords([]), 0, out)
    assert out.tolist() == [0, 0, 0]


# --- two-sided geometric noise ------------------------------------------------------------------------


@pytest.mark.parametrize(("span", "rate"), RATES)
def test_zero_is_counted_once(span: int, rate: float) -> None:
    """A sign and a magnitude would give 0 twice the weight: P(0) = (1−α)/(1+α), like P(±k) without its α^k."""
    table = geometric_table(span, rate)
    alpha = math.exp(-rate)
    zero = -math.expm1(-rate) / (1 + alpha) if span > 0 else 1.0
    assert table.noise_weights[0] / 2**128 == pytest.approx(zero, rel=1e-7 + 2 * table.log_spread)
    if span > 1:
        assert table.noise_weights[1] / table.noise_weights[0] == pytest.approx(alpha, rel=1e-7 + 2 * table.log_spread)
        assert table.noise_weights[-1] / table.noise_weights[0] == pytest.approx(alpha, rel=1e-7 + 2 * table.log_spread)


@pytest.mark.parametrize(("span", "rate"), RATES)
def test_the_tail_is_carried(span: int, rate: float) -> None:
    """A table that ends at the span without the mass beyond it would make the far end too rare."""
    table = geometric_table(span, rate)
    noise = table.noise_weights
    assert sum(noise.values()) == 1 << 128
    assert set(noise) == set(range(-span, span + 1))
    end = math.exp(-rate * span) / (1 + math.exp(-rate))
    for k in (span, -span):
        assert noise[k] / 2**128 == pytest.approx(end, rel=1e-6 + 2 * table.log_spread)


@pytest.mark.parametrize(
    ("span", "rate"), [*RATES, (65_536, 1 / 65_536), (65_536, 40 / 65_536), (65_535, 1e-6 / 65_535), (30_000, 0.001)]
)
def test_spread_bounds_the_whole_law(span: int, rate: float) -> None:
    """ln(P/ideal) of every noise value from above less from below, by 60-digit arithmetic of its own."""
    table, ideal = geometric_table(span, rate), ideal_noise(span, rate)
    with localcontext(Context(prec=60)):
        assert abs(sum(ideal.values()) - 1) < Decimal("1e-50")
        errors = [Decimal(weight) / (1 << 128) / ideal[k] for k, weight in table.noise_weights.items()]
        true = (max(errors) / min(errors)).ln()
        assert true <= Decimal(table.log_spread)
        assert Decimal(table.log_spread) <= 4 * true + Decimal(2) ** -60
    if rate * span <= 1:
        assert table.log_spread < 1e-4 * rate * span


def test_spread_is_not_idle() -> None:
    """The integers of one table do differ from their ideal, and the bound notices a wrong one."""
    table, ideal = geometric_table(100, 0.2), ideal_noise(100, 0.2)
    noise = dict(table.noise_weights)
    noise[-100] += noise[-100] // 1000
    with localcontext(Context(prec=60)):
        errors = [Decimal(weight) / (1 << 128) / ideal[k] for k, weight in noise.items()]
        assert (max(errors) / min(errors)).ln() > Decimal(table.log_spread)


@pytest.mark.parametrize(("span", "rate"), [(1, 0.5), (2, 1.0), (5, 0.3), (600, 0.002), (1000, 0.01)])
def test_words_at_the_edges_give_the_noise_they_should(span: int, rate: float) -> None:
    """The noise is base XOR r of the two tables, whichever word chooses them; saturated sums stay on the grid."""
    table = geometric_table(span, rate)
    edges = [0, 1, 2**63 - 1, 2**63, WORD - 1]
    for part in (table.high, *([] if table.low is None else [table.low])):
        step = max(1, len(part.limits) // 40)
        limits = part.limits.tolist()[::step]
        edges += [w for limit in limits for w in (limit - 1, limit, limit + 1) if 0 <= w < WORD]
    edges = edges[:160]
    pairs = [(a, b) for a in edges for b in (edges if table.low is not None else [0])]
    bases = draw(table.high, [a for a, _ in pairs])
    within = [0] * len(pairs) if table.low is None else draw(table.low, [b for _, b in pairs])
    mid = span // 2
    expected = [min(max(mid + (base ^ r), 0), span) for base, r in zip(bases, within, strict=True)]
    assert noise_of(table, pairs) == expected
    magnitudes = [base ^ r if base >= 0 else ~(base ^ r) for base, r in zip(bases, within, strict=True)]
    assert magnitudes == [(base if base >= 0 else ~base) + r for base, r in zip(bases, within, strict=True)]


@pytest.mark.walk(1)
@pytest.mark.parametrize("span", [1, 2, 511, 512, 65_536, 2**31 - 1, 2**32 - 1])
def test_sums_never_overflow(span: int) -> None:
    """The farthest noise on either side, from either end of the grid, saturates; it does not wrap."""
    table = geometric_table(span, 1e-3 / span)
    farthest = [int(table.high.values.max()), int(table.high.values.min())]
    assert farthest[0] >= span
    assert farthest[1] <= -span
    reach = 0 if table.low is None else int(table.low.values.max())
    info = np.iinfo(table.high.values.dtype)
    assert farthest[0] + reach + span <= info.max
    assert farthest[1] - reach >= info.min
    for x in (0, span):
        out = np.empty(5000, dtype=np.uint64)
        table.sample(np.full(5000, x, dtype=np.uint64), Keystream(bytes(32)).column("a"), 0, out)
        assert int(out.max()) == span
        assert int(out.min()) == 0


@given(st.integers(1, 3000), st.floats(1e-9, 40))
def test_geometric_weights_sum_up(span: int, total: float) -> None:
    table = geometric_table.__wrapped__(span, total / span)
    assert table.span == span
    assert sum(table.high.weights().values()) == WORD
    assert max(table.high.weights()) >= span
    assert min(table.high.weights()) <= -span
    if table.low is not None:
        assert sum(table.low.weights().values()) == WORD
        assert sorted(table.low.weights()) == list(range(table.block))
    assert table.log_spread > 0


def test_law_of_a_code_is_the_noise_laid_on_it() -> None:
    table = geometric_table(40, 0.1)
    for x in (0, 1, 17, 40):
        column = [Fraction(0)] * 41
        for k, weight in table.noise_weights.items():
            column[min(max(x + k, 0), 40)] += Fraction(weight, 1 << 128)
        np.testing.assert_allclose(table.law(x), [float(p) for p in column], rtol=1e-14)


@pytest.mark.parametrize(
    "rows", [1, RESPONSE_CHUNK_ROWS - 1, RESPONSE_CHUNK_ROWS, RESPONSE_CHUNK_ROWS + 1, 2 * RESPONSE_CHUNK_ROWS + 3]
)
def test_passes_join_without_a_seam(rows: int) -> None:
    table, stream = geometric_table(1000, 0.001), Keystream(bytes(32)).column("a")
    codes = np.arange(rows) % 1001
    out, one = np.empty(rows, dtype=np.int64), np.empty(1, dtype=np.int64)
    table.sample(codes, stream, 9, out)
    for row in {0, rows // 2, RESPONSE_CHUNK_ROWS - 1, RESPONSE_CHUNK_ROWS, rows - 1}:
        if row < rows:
            table.sample(codes[row : row + 1], stream, 9 + row, one)
            assert out[row] == one[0]


@given(st.data())
def test_number_of_words_does_not_depend_on_the_data(data: st.DataObject) -> None:
    """Each row takes its own word of each plane: changing one code changes that row alone."""
    table = data.draw(st.sampled_from([geometric_table(700, 0.01), geometric_table(9, 0.3), response_table(5, 1.0)]))
    size = table.size if isinstance(table, ResponseTable) else table.span + 1
    codes = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=30)))
    row, other = data.draw(st.integers(0, len(codes) - 1)), data.draw(st.integers(0, size - 1))
    assume(other != codes[row])
    changed = codes.copy()
    changed[row] = other
    stream, one, two = Keystream(bytes(32)).column("a"), np.empty_like(codes), np.empty_like(codes)
    table.sample(codes, stream, 0, one)
    table.sample(changed, stream, 0, two)
    np.testing.assert_array_equal(np.delete(one, row), np.delete(two, row))
