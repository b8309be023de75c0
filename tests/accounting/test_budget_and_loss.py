"""Privacy loss: every closed form against a direct sum, and budgets that never add up to more than was given."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpframe.accounting.budget import Budget, check_delta, check_epsilon, compose, shares_of
from dpframe.accounting.loss import (
    LaplaceLoss,
    NullFlagLoss,
    ResponseLoss,
    laplace_delta,
    laplace_rate,
    response_probability,
)
from dpframe.errors import ParameterError

PRECISE = Context(prec=80)

epsilons = st.floats(1e-6, 50)
deltas = st.one_of(st.just(0.0), st.floats(1e-15, 0.99))


def exponential(x: float | Decimal) -> Fraction:
    with localcontext(PRECISE):
        return Fraction(Decimal(x).exp())


def saturated(rate: float, span: int, x: int) -> list[Fraction]:
    """Two-sided geometric noise around x, clipped to 0…span, from its definition."""
    alpha = exponential(-rate)
    column = [Fraction(0)] * (span + 1)
    for y in range(1, span):
        column[y] = (1 - alpha) / (1 + alpha) * alpha ** abs(y - x)
    column[0], column[span] = alpha**x / (1 + alpha), alpha ** (span - x) / (1 + alpha)
    assert abs(sum(column) - 1) < Fraction(1, 10**60)
    return column


def hockey_stick(one: list[Fraction], other: list[Fraction], epsilon: float) -> Fraction:
    factor = exponential(epsilon)
    return sum((max(Fraction(0), p - factor * q) for p, q in zip(one, other, strict=True)), Fraction(0))


# --- randomised response ------------------------------------------------------------------------------


@given(st.integers(2, 50), st.integers(1, 2**32), st.floats(0, 30))
def test_response_against_the_sum(size: int, other: int, epsilon: float) -> None:
    total = 1 << 40
    keep = total - (size - 1) * other
    assume(keep > 0)
    loss = ResponseLoss(keep, other, total)
    one = [Fraction(w, total) for w in [keep, other, *[other] * (size - 2)]]
    two = [Fraction(w, total) for w in [other, keep, *[other] * (size - 2)]]
    true = hockey_stick(one, two, epsilon)
    assert true <= Fraction(loss.delta(epsilon)) <= true * (1 + Fraction(1, 10**12)) + Fraction(1, 10**40)


def test_response_of_equal_weights_has_no_loss() -> None:
    assert ResponseLoss(8, 8, 16).epsilon() == 0
    assert ResponseLoss(8, 8, 16).delta(0.0) == 0


@given(st.integers(2, 10**5), epsilons, deltas, st.sampled_from([32, 64]))
def test_response_probability_is_rounded_towards_privacy(size: int, epsilon: float, delta: float, bits: int) -> None:
    exact = (1 - Fraction(delta)) / (exponential(epsilon) + size - 1)
    weight = response_probability(size, epsilon, delta, bits)
    assert 0 <= weight - exact * 2**bits < 1


# --- Laplace ------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(1, 12), st.floats(0.01, 8), st.floats(0, 1.1))
def test_laplace_against_the_sum(span: int, total: float, share: float) -> None:
    """Both ends of the grid, and no pair of neighbours between them, are the worst."""
    rate, epsilon = total / span, total * share
    loss = LaplaceLoss(span, rate, 0.0)
    columns = [saturated(rate, span, x) for x in range(span + 1)]
    true = max(hockey_stick(p, q, epsilon) for p in columns for q in columns)
    assert true == hockey_stick(columns[0], columns[-1], epsilon)
    assert Fraction(loss.delta(epsilon)) >= true - Fraction(1, 10**60)
    assert loss.delta(epsilon) <= float(true) * (1 + 1e-12) + 1e-45


@given(st.integers(1, 12), st.floats(0.01, 8), st.floats(-6, 6))
def test_laplace_at_negative_epsilon(distance: int, rate: float, epsilon: float) -> None:
    """The bound on (P − e^ε P')₊ for ε < 0, which null against value needs."""
    true = hockey_stick(saturated(rate, distance, 0), saturated(rate, distance, distance), epsilon)
    found = Fraction(laplace_delta(rate, distance, epsilon))
    assert true - Fraction(1, 10**55) <= found <= true + Fraction(1, 10**45)


@pytest.mark.parametrize("total", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_fine_grids_tend_to_the_closed_form(total: float, share: float) -> None:
    """δ(ε) = 1 − e^((ε − Δ/b)/2), from above or below, at the speed of the grid."""
    closed = -math.expm1((total * share - total) / 2)
    for span in (1 << 12, 1 << 20, (1 << 32) - 1):
        found = LaplaceLoss(span, total / span, 0.0).delta(total * share)
        assert found == pytest.approx(closed, abs=2 * total / span + 1e-14)


def test_spread_is_paid_twice() -> None:
    """P ≤ e^s·ideal above and P' ≥ ideal below: both the mass and the ratio."""
    for span, rate, spread in [(5, 0.3, 0.1), (9, 0.05, 0.4), (3, 1.0, 1e-6)]:
        loss = LaplaceLoss(span, rate, spread)
        ends = saturated(rate, span, 0), saturated(rate, span, span)
        for epsilon in (0.0, 0.2, 1.0):
            bad = max(
                hockey_stick(
                    [p * exponential(spread) if i in up else p for i, p in enumerate(ends[0])],
                    [q if i in up else q * exponential(spread) for i, q in enumerate(ends[1])],
                    epsilon,
                )
                for up in (set(range(k)) for k in range(span + 2))
            )
            assert Fraction(loss.delta(epsilon)) >= min(bad, Fraction(1)) - Fraction(1, 10**50)
        assert loss.epsilon() == pytest.approx(rate * span + spread, rel=1e-15)


@pytest.mark.slow
@given(st.integers(1, 10**6), st.floats(1e-3, 30), st.floats(1e-12, 0.9), st.sampled_from([0.0, 1e-12, 1e-4]))
def test_laplace_rate_is_the_largest(span: int, epsilon: float, delta: float, spread: float) -> None:
    rate = laplace_rate(span, epsilon, delta, spread)
    assert LaplaceLoss(span, rate, spread).delta(epsilon) <= delta
    assert LaplaceLoss(span, rate * (1 + 1e-9), spread).delta(epsilon) > delta
    pure = laplace_rate(span, epsilon, 0.0, spread)
    assert LaplaceLoss(span, pure, spread).epsilon() <= epsilon
    assert rate >= pure


@pytest.mark.parametrize(("span", "total"), [(10, 1.0), (1000, 3.0), (500, 0.1)])
def test_laplace_beside_dp_accounting(span: int, total: float) -> None:
    distributions = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    oracle = distributions.from_discrete_laplace_mechanism(
        total / span, sensitivity=span, value_discretization_interval=total / span / 4
    )
    loss = LaplaceLoss(span, total / span, 0.0)
    for share in (0.0, 0.25, 0.5, 0.8):
        # The oracle rounds losses up to its grid.
        assert -1e-12 <= oracle.get_delta_for_epsilon(share * total) - loss.delta(share * total) < 1e-3


def test_response_beside_dp_accounting() -> None:
    distributions = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    loss = ResponseLoss(13, 1, 16)
    oracle = distributions.from_randomized_response(4 * 1 / 16, 4, value_discretization_interval=1e-4)
    for epsilon in (0.0, 0.5, 1.5, 2.4):
        assert -1e-12 <= oracle.get_delta_for_epsilon(epsilon) - loss.delta(epsilon) < 1e-3


# --- nullable -----------------------------------------------------------------------------------------


def beside_flag(flag: ResponseLoss, value: LaplaceLoss) -> NullFlagLoss:
    half = LaplaceLoss((value.span + 1) // 2, value.rate, value.log_spread)
    return NullFlagLoss(flag, value, half, half)


@given(st.integers(1, 9), st.floats(0.05, 6), st.integers(1, 499), st.floats(0, 1.2))
@pytest.mark.slow
def test_nullable_against_the_sum(span: int, total: float, other: int, share: float) -> None:
    flag, value = ResponseLoss(1000 - other, other, 1000), LaplaceLoss(span, total / span, 0.0)
    loss = beside_flag(flag, value)
    keep, flip = Fraction(1000 - other, 1000), Fraction(other, 1000)
    grid = [saturated(total / span, span, x) for x in range(span + 1)]
    columns = [[*(keep * p for p in column), flip] for column in grid]
    columns.append([*(flip * p for p in grid[span // 2]), keep])
    epsilon = loss.epsilon() * share
    true = max(hockey_stick(p, q, epsilon) for p in columns for q in columns)
    assert Fraction(loss.delta(epsilon)) >= true - Fraction(1, 10**50)
    assert loss.delta(epsilon) <= float(true) + 1e-12
    ratio = max(max(row) / min(row) for row in zip(*columns, strict=True))
    with localcontext(PRECISE):
        pure = (Decimal(ratio.numerator) / ratio.denominator).ln()
    assert float(pure) <= loss.epsilon() * (1 + 1e-15)
    assert loss.epsilon() <= float(pure) * (1 + 1e-12)


# --- curves -------------------------------------------------------------------------------------------

CURVES = [
    ResponseLoss(13, 1, 16),
    ResponseLoss(1, 13, 27),
    LaplaceLoss(16, 0.1, 0.0),
    LaplaceLoss((1 << 32) - 1, 2.0**-32, 1e-13),
    beside_flag(ResponseLoss(13, 3, 16), LaplaceLoss(7, 0.2, 1e-12)),
]


@pytest.mark.parametrize("loss", CURVES, ids=str)
def test_curves_fall_and_invert(loss: LaplaceLoss) -> None:
    grid = [loss.epsilon() * i / 50 for i in range(52)]
    curve = [loss.delta(epsilon) for epsilon in grid]
    assert curve == sorted(curve, reverse=True)
    assert curve[50:] == [0.0, 0.0]
    for delta in (1e-15, 1e-6, 0.01, 0.9):
        epsilon = loss.epsilon(delta)
        assert loss.delta(epsilon) <= delta
        assert epsilon == 0 or loss.delta(epsilon * (1 - 1e-9)) > delta
    assert loss.epsilon(math.nextafter(1.0, 0)) == 0
    assert loss.delta(math.inf) == 0


@pytest.mark.parametrize("loss", CURVES, ids=str)
def test_bad_arguments_of_a_curve(loss: LaplaceLoss) -> None:
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ParameterError, match="epsilon must be at least 0"):
            loss.delta(epsilon)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(ParameterError, match=r"delta must lie in \[0, 1\)"):
            loss.epsilon(delta)


# --- budgets ------------------------------------------------------------------------------------------


@given(epsilons, deltas, st.lists(st.floats(1e-6, 1), min_size=1, max_size=12), st.booleans())
def test_parts_never_exceed_the_whole(epsilon: float, delta: float, raw: list[float], full: bool) -> None:
    shares = [s / sum(raw) for s in raw] if full else [s / len(raw) for s in raw]
    whole = Budget(epsilon, delta)
    parts = whole.split(shares)
    assert sum(Fraction(p.epsilon) for p in parts) <= Fraction(epsilon)
    assert sum(Fraction(p.delta) for p in parts) <= Fraction(delta)
    for part, share in zip(parts, shares, strict=True):
        assert part.epsilon == pytest.approx(epsilon * share, rel=1e-12)
        assert part.delta == pytest.approx(delta * share, rel=1e-12)


def test_shares_beyond_one_are_scaled_down() -> None:
    parts = Budget(1.0, 0.5).split([0.75, 0.75])
    assert parts == (Budget(0.5, 0.25), Budget(0.5, 0.25))


@given(st.lists(st.tuples(epsilons, st.floats(0, 0.05)), min_size=1, max_size=12))
def test_composition_is_never_too_low(parts: list[tuple[float, float]]) -> None:
    whole = compose(Budget(e, d) for e, d in parts)
    for found, exact in [
        (whole.epsilon, sum(Fraction(e) for e, _ in parts)),
        (whole.delta, sum(Fraction(d) for _, d in parts)),
    ]:
        assert Fraction(found) >= exact
        assert found == 0 or Fraction(math.nextafter(found, 0)) < exact


def test_ten_tenths_of_a_budget_fit() -> None:
    parts = Budget(1.0, 1e-6).split([0.1] * 10)
    assert compose(parts).epsilon <= 1.0
    assert compose(parts).delta <= 1e-6


@given(st.floats(1e-6, 30), deltas, st.integers(1, 12))
def test_group_privacy(epsilon: float, delta: float, k: int) -> None:
    """k steps of (ε', δ') make (kε', δ'·Σ_{i<k} e^(iε')): at most what was asked, and nearly all of it."""
    row = Budget(epsilon, delta).per_row(k)
    step = exponential(row.epsilon)
    total = sum(step**i for i in range(k)) * Fraction(row.delta)
    assert k * Fraction(row.epsilon) <= Fraction(epsilon)
    assert total <= Fraction(delta)
    assert row.epsilon == pytest.approx(epsilon / k, rel=1e-14)
    assert float(total) == pytest.approx(delta, rel=1e-12)


def test_group_privacy_costs_more_than_delta_over_k() -> None:
    assert Budget(2.0, 1e-6).per_row(4).delta < 1e-6 / 4
    assert Budget(2.0, 1e-6).per_row(1) == Budget(2.0, 1e-6)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-21, 1e-19, 1e3, 1e7, 1e300])
def test_group_privacy_of_extreme_budgets(epsilon: float) -> None:
    if epsilon == 5e-324:
        with pytest.raises(ParameterError, match="epsilon"):
            Budget(epsilon, 1e-6).per_row(3)
        return
    row = Budget(epsilon, 1e-6).per_row(3)
    assert 0 <= row.delta <= 1e-6 / 3
    assert epsilon > 1 or row.delta == pytest.approx(1e-6 / 3, rel=1e-12)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, "2"])
def test_bad_contributions(k: object) -> None:
    with pytest.raises(ParameterError, match="contributions must be a whole number"):
        Budget(1.0).per_row(k)


@pytest.mark.parametrize(
    "value", [0, -1, math.nan, math.inf, -math.inf, 10**400, "1", None, True, [1.0], np.array([1.0, 2.0])]
)
def test_bad_epsilon(value: object) -> None:
    with pytest.raises(ParameterError, match=r"share must be .*e\.g\. share=1\.0"):
        check_epsilon(value, "share")
    with pytest.raises(ParameterError, match="epsilon"):
        Budget(value)


@pytest.mark.parametrize(
    "value", [-1e-300, 1, 1.5, math.nan, math.inf, 10**400, "0", None, False, np.array([0.0, 0.1])]
)
def test_bad_delta(value: object) -> None:
    with pytest.raises(ParameterError, match="delta"):
        check_delta(value)
    with pytest.raises(ParameterError, match="delta"):
        Budget(1.0, value)


def test_numbers_of_any_kind_are_taken() -> None:
    assert Budget(np.float32(0.5), Fraction(1, 4)) == Budget(Decimal("0.5"), 0.25) == Budget(0.5, np.float64(0.25))
    assert Budget(1) == Budget(1.0, 0)


def test_shares() -> None:
    assert shares_of(["a", "b"], "uniform") == [0.5, 0.5]
    assert shares_of([], "uniform") == []
    assert shares_of(["a", "b", "c"], {"b": 0.5}) == [0.25, 0.5, 0.25]
    assert shares_of(["a", "b"], {"a": 0.3, "b": 0.7}) == [0.3, 0.7]
    for wrong, text in [
        ("fair", "allocation must be"),
        ({"z": 0.5}, "'z', which is not a randomised column"),
        ({"a": 0.0}, "allocation.*above 0"),
        ({"a": 1.0}, "must add up to 1"),
        ({"a": 0.5, "b": 0.4}, "must add up to 1"),
        ({"a": 0.9, "b": 0.4}, "must add up to 1"),
    ]:
        with pytest.raises(ParameterError, match=text):
            shares_of(["a", "b"], wrong)
