"""Every mechanism of the registry against `check_mechanism`, and the traps of additive noise and response."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from checks import check_mechanism, exact_columns, exact_delta, exact_epsilon
from scipy import stats

from dpframe.accounting.loss import LaplaceLoss
from dpframe.channels import (
    MECHANISMS,
    AsymmetricBitFlip,
    BitFlip,
    Exponential,
    GammaDiagonal,
    Gaussian,
    Geometric,
    Matrix,
    Mechanism,
    NullableSetResponse,
    Optimal,
    Process,
    RandomizedResponse,
    SetResponse,
    Staircase,
    VectorNoise,
    WideGaussian,
    WithNull,
    WrappedGeometric,
    mechanism_for,
    mechanism_from_json,
)
from dpframe.errors import ParameterError, PlanError
from dpframe.noise.keystream import Keystream
from dpframe.plan.columns import Column
from dpframe.spaces import Boolean, Categorical, Integer, Nullable, Product, Space

LARGEST = 2**32 - 1

Case = tuple[str, Callable[..., Mechanism], tuple[Any, ...]]
"""A tag, and what makes a mechanism of it when its turn has come."""


def null_geometric(span: int, epsilon: float, delta: float = 0.0) -> WithNull:
    return WithNull(Geometric, (span,), epsilon, delta)


def null_gaussian(span: int, epsilon: float, delta: float = 0.0) -> WithNull:
    return WithNull(Gaussian, (span,), epsilon, delta)


def null_wide(span: int, epsilon: float, delta: float) -> WithNull:
    return WithNull(WideGaussian, (span,), epsilon, delta)


def null_flips(items: int, max_size: int | None, epsilon: float, delta: float = 0.0) -> WithNull:
    return WithNull(BitFlip, (items, max_size), epsilon, delta)


def null_vector(length: int, bits: int, norm: str, epsilon: float, delta: float = 0.0) -> WithNull:
    return WithNull(VectorNoise, (length, bits, norm), epsilon, delta)


def null_process(length: int, bits: int, norm: str, room: int, epsilon: float, delta: float) -> WithNull:
    return WithNull(Process, (length, bits, norm, room), epsilon, delta)


NULL_TAGS = {
    null_process: "nullable_process",
    null_geometric: "nullable_geometric",
    null_gaussian: "nullable_gaussian",
    null_wide: "nullable_wide_gaussian",
    null_flips: "nullable_bitflip",
    null_vector: "nullable_vector",
}


def case(make: Callable[..., Mechanism], *arguments: Any) -> Case:
    tag = NULL_TAGS.get(make) or getattr(make, "__self__", make).tag
    return tag, make, arguments


TABULATED = [
    case(cls.calibrate, space, e, d)
    for cls in (Exponential, Optimal)
    for space, e, d in [
        (Categorical(["a"]), 1.0, 0.0),
        (Categorical(list("abc")), 0.5, 0.0),
        (Integer(0, 1), 1e-3, 0.0),
        (Integer(0, 4), 0.05, 0.0),
        (Integer(0, 7), 2.0, 1e-6),
        (Integer(0, 15), 1.0, 0.0),
        (Integer(0, 15), 1.0, 0.1),
        (Integer(0, 15), 30.0, 0.0),
        (Integer(0, 15), 800.0, 0.0),
        (Integer(0, 32), 6.0, 0.01),
        (Nullable(Integer(0, 1)), 1.0, 0.0),
        (Nullable(Integer(0, 11)), 0.3, 0.0),
        (Nullable(Integer(0, 11)), 3.0, 0.2),
    ]
]

SETS: list[Case] = [
    *(case(BitFlip, 1, None, e, d) for e, d in [(1e-6, 0.0), (1.0, 0.0), (1.0, 0.2), (30.0, 0.0)]),
    *(case(cls, 3, 2, e, d) for cls in (BitFlip, null_flips) for e, d in [(0.1, 0.0), (2.0, 1e-6), (800.0, 0.0)]),
    *(case(cls, 5, most, 4.0, d) for cls in (BitFlip, null_flips) for most in (1, 3, None) for d in (0.0, 1e-3)),
    *(case(AsymmetricBitFlip, 5, most, e, d) for most in (1, 2) for e, d in [(1.0, 0.0), (6.0, 1e-3), (0.01, 0.0)]),
    *(case(cls, n, 20, 8.0, 1e-6) for cls in (BitFlip, null_flips, AsymmetricBitFlip) for n in (63, 64, 169)),
    case(BitFlip, 128, None, 50.0),
    *(case(cls, 1, None, e, 0.0) for cls in (SetResponse, NullableSetResponse) for e in (1e-6, 1.0, 30.0)),
    *(
        case(cls, 5, most, e, d)
        for cls in (SetResponse, NullableSetResponse)
        for most in (1, 3, None)
        for e, d in [(4.0, 0.0), (2.0, 1e-3), (800.0, 0.0)]
    ),
    *(
        case(cls, items, most, 8.0, 1e-6)
        for cls in (SetResponse, NullableSetResponse)
        for items, most in [(20, None), (63, 2), (64, 3), (200, 2), (700, 1)]
    ),
]

VECTORS: list[Case] = [
    case(cls, length, bits, norm, e, d)
    for cls in (VectorNoise, null_vector)
    for length, bits, norm in [
        (1, 2, "l2"),
        (1, 8, "linf"),
        (2, 2, "linf"),
        (2, 4, "l1"),
        (2, 4, "l2"),
        (3, 2, "l1"),
        (3, 2, "l2"),
        (24, 16, "l2"),
        (200, 8, "linf"),
    ]
    for e, d in [(1.0, 0.0), (2.0, 1e-3), (9.0, 0.0)]
]

PROCESSES: list[Case] = [
    case(cls, length, 16, norm, room, e, d)
    for cls in (Process, null_process)
    for length, norm, room, e, d in [
        (1, "l2", 32, 4.0, 1e-6),
        (2, "linf", 256, 1.0, 1e-6),
        (3, "l1", 128, 1.0, 1e-6),
        (24, "l2", 16, 5.0, 1e-3),
        (24, "l2", 512, 0.3, 1e-9),
        (100, "l2", 128, 1.0, 1e-6),
    ]
]

CASES: list[Case] = [
    *PROCESSES,
    *TABULATED,
    *SETS,
    *VECTORS,
    *(
        case(Staircase, span, e, d, null)
        for span in (1, 2, 7, 12, 31, 38)
        for null in (False, True)
        for e, d in [(1e-6, 0.0), (0.1, 1e-6), (4.0, 1e-3), (8.0, 0.0), (800.0, 0.0)]
    ),
    case(Staircase, 65_536, 8.0),
    *(
        case(cls, span, e, d)
        for cls in (Gaussian, null_gaussian)
        for span, e, d in [
            (1, 1e-4, 0.0),
            (1, 1.0, 1e-6),
            (3, 4.0, 1e-3),
            (3, 8.0, 0.0),
            (6, 30.0, 1e-6),
            (31, 100.0, 0.0),
        ]
    ),
    *(
        case(cls, span, e, d)
        for cls in (WideGaussian, null_wide)
        for span, e, d in [
            (1, 0.1, 1e-6),
            (1, 1.0, 1e-3),
            (1, 30.0, 1e-6),
            (3, 4.0, 1e-3),
            (7, 1.0, 1e-9),
            (12, 2.0, 1e-5),
            (30, 8.0, 1e-6),
            (120, 1.0, 1e-6),
            (5_000, 0.3, 1e-6),
            (65_536, 4.0, 1e-6),
        ]
    ),
    case(Staircase, 1 << 20, 1.0, 0.0, True),
    case(Exponential.calibrate, Integer(0, 99), 8.0, 1e-3),
    case(Matrix.of, [[1.0]]),
    case(Matrix.of, [[0.75, 0.25], [0.4, 0.6]]),
    case(Matrix.of, [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [1e-6, 0.3, 0.699999]]),
    case(Matrix.of, [[0.6, 0.4], [0.2, 0.8]], 0.1),
    *(case(RandomizedResponse, 1, e, d) for e, d in [(1.0, 0.0), (20.0, 0.1)]),
    *(
        case(RandomizedResponse, size, e, d)
        for size in (2, 3, 16)
        for e, d in [(1e-6, 0.0), (0.1, 1e-6), (1.0, 0.0), (5.0, 0.3), (20.0, 1e-6), (36.0, 0.0), (800.0, 0.0)]
    ),
    *(case(RandomizedResponse, size, 1.0) for size in (1001, 1002, 60_000)),
    *(
        case(GammaDiagonal, sizes, e, d)
        for sizes in ((1,), (2, 3), (5, 1, 4))
        for e, d in [(1e-6, 0.0), (1.0, 0.0), (5.0, 0.3), (20.0, 1e-6), (800.0, 0.0)]
    ),
    case(GammaDiagonal, (200, 300), 3.0),
    *(
        case(WrappedGeometric, size, e, d)
        for size, e, d in [
            (1, 1.0, 0.0),
            (1, 1.0, 0.1),
            (2, 1e-6, 0.0),
            (2, 1.0, 0.2),
            (3, 1.0, 0.0),
            (3, 800.0, 0.0),
            (4, 3.0, 1e-6),
            (8, 20.0, 1e-6),
            (17, 1.0, 0.0),
            (17, 2.0, 0.3),
            (34, 1e-6, 1e-6),
            (40, 8.0, 1e-3),
            (40, 30.0, 0.0),
            (513, 5.0, 1e-6),
            (65_537, 1.0, 0.0),
        ]
    ),
    *(
        case(cls, span, e, d)
        for cls in (Geometric, null_geometric)
        for span, e, d in [
            (1, 1e-6, 0.0),
            (1, 1.0, 0.0),
            (1, 1.0, 0.2),
            (1, 25.0, 0.0),
            (2, 0.5, 0.0),
            (2, 800.0, 0.0),
            (3, 3.0, 1e-6),
            (7, 20.0, 1e-6),
            (7, 30.0, 0.0),
            (16, 1.0, 0.0),
            (16, 2.0, 0.3),
            (17, 1.0, 0.9),
            (30, 8.0, 1e-6),
            (33, 1e-6, 1e-6),
            (511, 1.0, 0.0),
            (512, 1.0, 1e-6),
            (513, 5.0, 0.0),
            (65_536, 1.0, 0.0),
            (LARGEST, 1.0, 0.0),
        ]
    ),
]


def named(one: Case) -> str:
    tag, _, arguments = one
    return "-".join([tag, *(str(value)[:30] for value in arguments)])


def test_cases_cover_the_registry() -> None:
    assert {tag for tag, *_ in CASES} == set(MECHANISMS)
    assert all(family.tag == tag for tag, family in MECHANISMS.items())


@pytest.mark.walk(40)
@pytest.mark.parametrize("one", CASES, ids=named)
@pytest.mark.slow
def test_mechanism(one: Case) -> None:
    tag, make, arguments = one
    mechanism = make(*arguments)
    assert mechanism.tag == tag
    check_mechanism(mechanism)


@pytest.mark.parametrize(
    "space",
    [Categorical(list("abc")), Integer(0, 11), Nullable(Integer(0, 11)), Nullable(Boolean()), Product([1, 2], (0, 2))],
    ids=repr,
)
def test_mechanisms_of_a_space(space: Space) -> None:
    fitting = [tag for tag, cls in MECHANISMS.items() if space.metric in cls.metrics]
    assert space.mechanism in fitting
    # Gaussian noise cannot be inverted on so many values.
    for tag in (None, *(tag for tag in fitting if "gaussian" not in tag)):
        mechanism = mechanism_for(space, 1.0, 1e-6, tag)
        assert mechanism.tag == (tag or space.mechanism)
        assert mechanism.size == space.size
        assert (mechanism.epsilon, mechanism.delta) == (1.0, 1e-6)
        assert mechanism.expected_error(space) == pytest.approx(_farthest(mechanism, space), rel=1e-6)
    for tag in {*MECHANISMS, "sorcery"} - {*fitting}:
        if tag in {name for cls in MECHANISMS.values() for name in cls.aliases}:  # names it by its kind
            continue
        own = MECHANISMS[space.mechanism]
        with pytest.raises(ParameterError, match=f"must be one of .*{next(iter(own.aliases), own.tag)}"):
            mechanism_for(space, 1.0, 0.0, tag)


def _farthest(mechanism: Mechanism, space: Space) -> float:
    matrix, codes = mechanism.transition(), range(space.size)
    return max(sum(matrix[y, x] * space.code_distance(x, y) for y in codes) for x in codes) / space.step


@pytest.mark.walk(6)
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 10.0, 25.0, 33.0, 36.0, 41.0, 42.5, 60.0, 84.0, 100.0, 800.0])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-3, 0.5])
def test_no_request_is_exceeded_at_any_epsilon(epsilon: float, delta: float) -> None:
    cases = (
        *(Geometric(span, epsilon, delta) for span in (1, 2, 5)),
        *(WithNull(Geometric, (span,), epsilon, delta) for span in (1, 2, 5)),
        *(RandomizedResponse(size, epsilon, delta) for size in (2, 6)),
    )
    for mechanism in cases:
        columns, total = exact_columns(mechanism)
        assert exact_delta(columns, total, epsilon) <= Fraction(mechanism.loss.delta(epsilon)) <= Fraction(delta)
        assert exact_epsilon(columns) <= Decimal(mechanism.loss.epsilon(0.0))


@pytest.mark.parametrize("span", [1, 2, 511, 512, 65_535, 65_536, 1 << 20])
@pytest.mark.parametrize("cls", [Geometric, null_geometric])
def test_little_of_a_large_epsilon_is_lost(cls: Callable[..., Mechanism], span: int) -> None:
    """Rounding the rarest weights costs accuracy, never the whole budget; beyond 42, 64 bits resolve no more."""
    for epsilon in (20.0, 30.0, 36.0, 40.0, 60.0):
        assert cls(span, epsilon).loss.epsilon() >= 0.95 * min(epsilon, 42.0)


@pytest.mark.walk(1)
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-6), (40.0, 0.0)])
@pytest.mark.parametrize("cls", [Geometric, null_geometric])
@pytest.mark.slow
def test_largest_grid(cls: Callable[..., Mechanism], epsilon: float, delta: float) -> None:
    mechanism = cls(LARGEST, epsilon, delta)
    codes = np.array([0, 1, LARGEST // 2, LARGEST, mechanism.size - 1] * 2_000)
    noisy = mechanism.sample(codes, Keystream(bytes(32)).column("a"))
    assert noisy.min() >= 0
    assert noisy.max() < mechanism.size
    # At ε = 1e-6 the noise is beyond the grid and leaves its two ends, and null.
    assert (len(np.unique(noisy)) > 100) == (epsilon > 1)
    assert mechanism.loss.delta(epsilon) <= delta
    assert mechanism.loss.epsilon(delta) >= 0.85 * epsilon


# --- randomised response ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [60_000, 90_720])
def test_response_of_many_categories(size: int) -> None:
    """32-bit words would round ⌈2³²·p⌉ to a loss of 1.4 times ε, or reach fewer categories than there are."""
    mechanism = RandomizedResponse(size, 1.0)
    table = mechanism.table
    assert table.bits == 64
    assert table.keep + (size - 1) * table.threshold == 1 << 64
    assert exact_epsilon([[table.keep, table.threshold], [table.threshold, table.keep]]) <= Decimal(1)
    assert mechanism.loss.epsilon() > 1 - 1e-8
    drawn = mechanism.sample(np.full(2_000_000, 7), Keystream(bytes(32)).column("joint"))
    counts = np.bincount(drawn, minlength=size)
    others = np.delete(counts, 7)
    expected = others.sum() / (size - 1)
    assert stats.chi2.sf(((others - expected) ** 2 / expected).sum(), size - 2) > 1e-9
    assert stats.binomtest(int(counts[7]), 2_000_000, table.keep / 2**64).pvalue > 1e-9
    assert others[:1000].sum() == pytest.approx(others[-1000:].sum(), rel=0.05)


def test_narrow_words_serve_few_categories_only() -> None:
    assert RandomizedResponse(16, 1.0).table.bits == 32
    assert RandomizedResponse(1001, 1.0).table.bits == 32
    assert RandomizedResponse(1002, 1.0).table.bits == 64
    assert RandomizedResponse(2, 1e-6).table.bits == 64
    assert RandomizedResponse(2, 30.0).table.bits == 64


def test_response_that_would_be_plain_noise_is_refused() -> None:
    """At tiny ε all weights are equal: a loss of 0, and no estimate can be had."""
    for size in (2, 64):
        with pytest.raises(ParameterError, match="too small for"):
            RandomizedResponse(size, 1e-25)
    with pytest.raises(ParameterError, match="too small for"):
        RandomizedResponse(1 << 24, 1e-15)


def test_surrogates_keep_their_digits_at_small_epsilon() -> None:
    """1 − size·p as floats cancels: the divisor comes from the integers."""
    mechanism = RandomizedResponse(2, 1e-9)
    table = mechanism.table
    signal = Fraction(table.keep - table.threshold, 1 << table.bits)
    assert mechanism.surrogate([0.0, 1.0])[1] == pytest.approx(
        float((1 - Fraction(mechanism.other)) / signal), rel=1e-14
    )
    assert mechanism.invert(np.array([0.0, 1.0]))[1] == pytest.approx(float((1 - Fraction(mechanism.other)) / signal))


def test_response_meets_theorem_7() -> None:
    for size, epsilon, delta in [(2, 1.0, 0.0), (16, 2.0, 1e-3), (5000, 0.5, 0.1)]:
        column = Column("a", Categorical(range(size)), RandomizedResponse(size, epsilon, delta))
        bound = (1 - delta) * (size - 1) / (size - 1 + math.exp(epsilon))
        assert column.error_bound == pytest.approx(bound, rel=1e-12)
        assert bound <= column.expected_error <= bound * (1 + 1e-5)


# --- two-sided geometric noise ------------------------------------------------------------------------


def test_tight_laplace_scale() -> None:
    """b = Δ/(ε − 2 ln(1−δ)), not the sufficient Δ/(ε − ln(1−δ)), which wastes up to half of δ's worth."""
    epsilon, delta, span = 0.5, 0.2, 1 << 20
    tight, sufficient = (span / (epsilon - factor * math.log(1 - delta)) for factor in (2, 1))
    assert 1 / Geometric(span, epsilon, delta).table.rate == pytest.approx(tight, rel=1e-5)
    assert LaplaceLoss(span, 1 / tight, 0.0).delta(epsilon) == pytest.approx(delta, rel=1e-5)
    assert LaplaceLoss(span, 1 / sufficient, 0.0).delta(epsilon) < 0.6 * delta
    assert LaplaceLoss(span, 1.001 / tight, 0.0).delta(epsilon) > delta


@pytest.mark.parametrize("span", [1, 2, 3, 16, 600])
def test_saturation_leaves_the_ends_reachable_from_everywhere(span: int) -> None:
    columns, _ = (
        exact_columns(Geometric(span, 3.0)) if span < 100 else ([Geometric(span, 3.0).law(x) for x in (0, span)], 0)
    )
    assert all(min(column) > 0 for column in columns)


def test_middle_has_the_largest_error() -> None:
    mechanism = Geometric(20, 2.0)
    matrix = mechanism.transition()
    errors = [float(matrix[:, x] @ np.abs(np.arange(21) - x)) for x in range(21)]
    assert max(errors) == pytest.approx(mechanism.expected_error(), rel=1e-9)
    assert int(np.argmax(np.round(errors, 12))) == 10


def test_mean_of_surrogates_is_the_mean() -> None:
    """φ of the value itself is y inside, −α/(1−α) at 0 and N + α/(1−α) at N."""
    mechanism = Geometric(10, 2.0)
    alpha = math.exp(-mechanism.table.rate)
    phi = mechanism.surrogate(np.arange(11.0))
    np.testing.assert_allclose(phi[1:-1], np.arange(1, 10), atol=1e-12)
    np.testing.assert_allclose([phi[0], phi[-1]], [-alpha / (1 - alpha), 10 + alpha / (1 - alpha)], rtol=1e-12)


# --- nullable grids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [1, 3, 5, 9, 31])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_odd_nullable_grids(span: int, delta: float) -> None:
    """The middle of an odd grid is half a step off: flag plus the longer half must still fit ε."""
    mechanism = WithNull(Geometric, (span,), 1.0, delta)
    columns, total = exact_columns(mechanism)
    assert exact_delta(columns, total, 1.0) <= Fraction(delta)
    if delta == 0:
        assert exact_epsilon(columns) <= 1
        assert exact_epsilon(columns) > Decimal("0.9999")
        # The naive rate ε/span is over the request between null and the far end.
        flag, half = mechanism.flag, (span + 1) // 2
        with localcontext(Context(prec=30)):
            naive = (Decimal(flag.keep) / flag.threshold).ln() + Decimal(half) / span
        assert naive > Decimal("1.01")


def test_values_left_under_null_slots() -> None:
    """A null's row must not depend on anything but null: there is one code for it, and noise is around mid-grid."""
    mechanism = WithNull(Geometric, (1000,), 1.0)
    stream = Keystream(bytes(32)).column("income")
    noisy = mechanism.sample(np.full(200_000, mechanism.null), stream)
    present = noisy[noisy != mechanism.null]
    # Where the flag flips, the value is mid-grid plus the row's noise.
    middle = np.empty(200_000, dtype=np.int64)
    mechanism.inner.table.sample(np.full(200_000, 500), stream.skip(1), 0, middle)
    np.testing.assert_array_equal(present, middle[noisy != mechanism.null])
    keep = mechanism.flag.keep / (1 << mechanism.flag.bits)
    assert stats.binomtest(len(present), len(noisy), 1 - keep).pvalue > 1e-9
    assert stats.binomtest(int((present < 500).sum()), int((present != 500).sum()), 0.5).pvalue > 1e-6


def test_flag_and_value_use_planes_of_their_own() -> None:
    mechanism = WithNull(Geometric, (100,), 1.0)
    stream = Keystream(bytes(32)).column("a")
    noisy = mechanism.sample(np.full(1000, 30), stream)
    flagless = np.empty(1000, dtype=np.int64)
    mechanism.inner.table.sample(np.full(1000, 30), stream.skip(1), 0, flagless)
    np.testing.assert_array_equal(noisy[noisy <= 100], flagless[noisy <= 100])


# --- requests and their keys --------------------------------------------------------------------------


def test_one_key_with_two_epsilons() -> None:
    """Equal words under ε and ε' would reveal the codes by their difference: another plan has other words."""
    codes = np.full(4000, 128)
    one, two = (Geometric(256, e) for e in (1.0, 1.0 + 1e-12))
    plans = [
        Keystream(bytes(32), plan_digest=digest).column("a") for digest in (b"epsilon=1", b"epsilon=1.000000000001")
    ]
    related = two.sample(codes, plans[0]) - codes
    unrelated = two.sample(codes, plans[1]) - codes
    first = one.sample(codes, plans[0]) - codes
    assert np.corrcoef(first, related)[0, 1] > 0.99
    assert abs(np.corrcoef(first, unrelated)[0, 1]) < 6 / math.sqrt(4000)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomizedResponse(0, 1.0), "size must be a whole number from 1"),
        (lambda: RandomizedResponse((1 << 24) + 1, 1.0), "size must be a whole number"),
        (lambda: RandomizedResponse(2.0, 1.0), "size must be a whole number"),
        (lambda: RandomizedResponse(True, 1.0), "size must be a whole number"),
        (lambda: Geometric(0, 1.0), "span must be a whole number from 1"),
        (lambda: Geometric(1 << 32, 1.0), "span must be a whole number from 1 to 4294967295"),
        (lambda: WithNull(Geometric, (1 << 32,), 1.0), "span must be a whole number"),
        (lambda: WithNull(Geometric, (-3,), 1.0), "span must be a whole number"),
        (lambda: Geometric(5, -1.0), "epsilon must be finite and above 0"),
        (lambda: Geometric(5, 10**400), "epsilon must be finite and above 0"),
        (lambda: Geometric(5, "1"), "epsilon must be a number"),
        (lambda: Geometric(5, True), "epsilon must be a number"),
        (lambda: Geometric(5, np.array([1.0, 2.0])), "epsilon"),
        (lambda: Geometric(5, 1.0, 1.5), r"delta must lie in \[0, 1\)"),
        (lambda: Geometric(5, 1.0, math.nan), r"delta must lie in \[0, 1\)"),
        (lambda: Geometric(5, 1.0, None), "delta must be a number"),
        (lambda: Geometric(5, 1e-300), "too small for a grid of 5 steps"),
        (lambda: WithNull(Geometric, (5,), 1e-15), "too small for a"),
        (lambda: Geometric(5000, 1.0).transition(), "too large"),
    ],
)
def test_bad_parameters(make: object, text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()


@pytest.mark.parametrize("epsilon", [1e7, 1e300])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_absurdly_large_epsilon_is_no_error(epsilon: float, delta: float) -> None:
    for mechanism in (
        RandomizedResponse(3, epsilon, delta),
        Geometric(9, epsilon, delta),
        WithNull(Geometric, (9,), epsilon, delta),
    ):
        assert mechanism.loss.epsilon() < 100
        assert mechanism.loss.epsilon() > 40
        assert mechanism.loss.delta(epsilon) == 0


def test_json_that_is_not_ours() -> None:
    for data in (
        {},
        {"mechanism": 3},
        {"mechanism": "geometric"},
        {"mechanism": "geometric", "span": 1.5, "epsilon": 1, "delta": 0},
    ):
        with pytest.raises(PlanError, match="mechanism"):
            mechanism_from_json(data)
