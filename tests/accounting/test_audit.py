"""The statistical audit clears every mechanism of the registry, and catches those broken on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from audits import drawn, far_apart, leaky, nearer, nulls_in_place, released, seen, two_columns, without_tails
from examples import plans_with

from dpframe.accounting.audit import OUTCOMES, AuditResult, audit
from dpframe.channels import MECHANISMS, Geometric, RandomizedResponse, VectorNoise, WithNull
from dpframe.channels.process import Process
from dpframe.channels.vector_noise import GivenVectorNoise
from dpframe.errors import ParameterError
from dpframe.noise.keystream import Keystream
from dpframe.noise.tables import geometric_table
from dpframe.spaces import Vector

RUNS = 100_000
"""Runs on each input; every audit here holds with confidence 1 − 1e-6, and keys are fixed."""


# --- the registry -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize("tag", sorted(MECHANISMS))
def test_every_mechanism_of_the_registry_passes(tag: str, delta: float) -> None:
    """No claim is refuted (error probability below 1e-4 for all of them), and the bound is not idle.

    Where the certified ε is met by an event of some probability, the bound reaches most of it.
    """
    best, runs = 0.0, RUNS if delta == 0 else RUNS // 2
    if MECHANISMS[tag].takes_delta and delta == 0:
        return
    for plan in plans_with(tag, 2.0, delta):
        (unit,) = plan.units
        for pair in far_apart(unit.space):
            view = seen(unit.space, pair, 2 if isinstance(unit.mechanism.inner, Process) else 1)
            a, b = (released(plan, code, key) for key, code in enumerate(pair))
            found = audit(lambda n, a=a, view=view: view(a(n)), lambda n, b=b, view=view: view(b(n)), runs, plan.delta)
            assert not found.refutes(unit.mechanism.loss.epsilon(plan.delta)), str(found)
            best = max(best, found.epsilon_lower / plan.verify().epsilon)
    assert best > (0.8 if delta == 0 else 0.3)


# --- mechanisms broken on purpose ---------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.2, 2.0])
def test_noise_too_small_by_a_factor_is_caught(factor: float) -> None:
    claim = 1.0
    for honest, broken in [
        (Geometric(100, claim), Geometric(100, claim * factor)),
        (WithNull(Geometric, (100,), claim), WithNull(Geometric, (100,), claim * factor)),
        (RandomizedResponse(4, claim), RandomizedResponse(4, claim * factor)),
    ]:
        last = broken.size - 1
        assert audit(drawn(broken, 0, 1), drawn(broken, last, 2), RUNS).refutes(claim)
        assert not audit(drawn(honest, 0, 1), drawn(honest, last, 2), RUNS).refutes(claim)


@pytest.mark.slow
def test_vector_noise_in_proportion_to_the_l2_diameter_is_caught() -> None:
    """The appendix's "iid Lap(Δ₂/ε)" in 24 dimensions: at a claim of 1 it loses √24 = 4.9."""
    claim, space = 1.0, Vector(24, 1.0, "l2")
    ((first, second),) = far_apart(space)
    honest = VectorNoise(24, 16, "l2", claim)
    wrong = GivenVectorNoise(space.ball, geometric_table(space.ball.last, claim / space.ball.last))

    def view(mechanism: Any, code: int, key: int) -> Callable[[int], np.ndarray]:
        stream, words = Keystream(key.to_bytes(32, "big")).column("audit"), space.code_array([code])
        return lambda n: nearer(space, space, (first, second), mechanism.sample(np.repeat(words, n, axis=0), stream))

    caught = audit(view(wrong, first, 1), view(wrong, second, 2), RUNS)
    assert caught.refutes(1.4 * claim), str(caught)
    assert not caught.refutes(4.9)
    assert not audit(view(honest, first, 1), view(honest, second, 2), RUNS).refutes(claim)


def test_one_noise_for_two_columns_is_caught() -> None:
    """Two columns at ε/2 each, with the same words: their difference shows what differs in the row."""
    response = RandomizedResponse(5, 0.5)
    assert audit(two_columns(response, 0, "aa", 1), two_columns(response, 1, "aa", 2), RUNS).epsilon_lower > 8
    assert not audit(two_columns(response, 0, "ab", 1), two_columns(response, 1, "ab", 2), RUNS).refutes(0.5)


def test_rejection_instead_of_saturation_is_caught() -> None:
    """Noise redrawn until it lies within the grid: a null at mid-grid then loses more of its mass than an end.

    ln of the two normalisers' ratio, 0.38 at ε = 2, comes on top.
    """
    span, epsilon = 100, 2.0
    mechanism = WithNull(Geometric, (span,), epsilon)
    flag, value = mechanism.flag, mechanism.inner.table
    keep = flag.keep / (1 << flag.bits)

    def broken(code: int, seed: int) -> Callable[[int], np.ndarray]:
        centre, shown = (span // 2, 1 - keep) if code == mechanism.null else (code, keep)
        weights = np.exp(-value.rate * np.abs(np.arange(span + 1) - centre))
        law = np.append(shown * weights / weights.sum(), 1 - shown)
        rng = np.random.default_rng(seed)
        return lambda n: rng.choice(span + 2, n, p=law / law.sum())

    assert audit(broken(0, 1), broken(mechanism.null, 2), 4 * RUNS).refutes(epsilon)
    sound = audit(drawn(mechanism, 0, 1), drawn(mechanism, mechanism.null, 2), 4 * RUNS)
    assert not sound.refutes(epsilon)


def test_noise_without_tails_is_caught() -> None:
    """Where the noise ends, its support tells inputs apart."""
    mechanism = Geometric(100, 1.0)
    assert audit(without_tails(mechanism, 0, 1), without_tails(mechanism, 100, 2), RUNS).epsilon_lower > 7


def test_nulls_left_in_place_are_caught() -> None:
    mechanism = WithNull(Geometric, (100,), 1.0)
    null, value = nulls_in_place(mechanism, mechanism.null, 1), nulls_in_place(mechanism, 0, 2)
    assert audit(null, value, RUNS).refutes(1.0)


@pytest.mark.slow
def test_laplace_noise_by_the_wrong_norm_is_caught() -> None:
    """Independent Laplace noise of scale Δ₂/ε in four dimensions has loss 2ε on the diagonal, not ε."""
    epsilon, corner = 1.0, 0.5  # corners of a cube of side 1 are 2 apart in ℓ2

    def vector(sign: int, scale: float, seed: int) -> Callable[[int], np.ndarray]:
        rng = np.random.default_rng(seed)
        return lambda n: np.sign(np.trunc((sign * corner + rng.laplace(0, scale, (n, 4))) / corner))

    euclidean, taxicab = 2.0 / epsilon, 4.0 / epsilon
    assert audit(vector(1, euclidean, 1), vector(-1, euclidean, 2), RUNS).refutes(epsilon)
    assert not audit(vector(1, taxicab, 1), vector(-1, taxicab, 2), RUNS).refutes(epsilon)


def test_a_rare_leak_is_caught_at_delta_0_and_covered_by_its_delta() -> None:
    """One row in a hundred as it is: (ε, 0.01) at best, and far from (ε, 0)."""
    response = RandomizedResponse(1_000, 1.0)
    one, other = leaky(response, 0, 1), leaky(response, 1, 2)
    assert audit(one, other, RUNS).refutes(1.0)
    assert not audit(one, other, RUNS, delta=0.012).refutes(1.0)


# --- the bound itself ---------------------------------------------------------------------------------


def test_the_bound_holds_as_often_as_it_says() -> None:
    """At confidence 0.8, in 400 audits of ln 3: more than 120 failures have probability below 1e-6.

    Clopper–Pearson intervals of discrete counts are wide, and the two directions share the error: far fewer fail.
    """
    rng = np.random.default_rng(0)
    yes, no = (lambda n: rng.random(n) < 0.75), (lambda n: rng.random(n) < 0.25)
    found = [audit(yes, no, 400, confidence=0.8) for _ in range(400)]
    failures = sum(result.epsilon_lower > math.log(3) for result in found)
    assert 0 < failures <= 120
    assert np.median([result.epsilon_lower for result in found]) > 0.75 * math.log(3)


def test_equal_laws_give_no_bound() -> None:
    rng = np.random.default_rng(0)
    for outcomes in (2, 50, 10**9):
        found = audit(lambda n, k=outcomes: rng.integers(0, k, n), lambda n, k=outcomes: rng.integers(0, k, n), 10_000)
        assert found.epsilon_lower == 0
        assert not found.refutes(1e-9)


def test_events_are_not_tested_on_the_runs_that_chose_them() -> None:
    """Equal laws on 200 outcomes, 200 audits at confidence 0.5: more than 130 false bounds have probability below 1e-4.

    An event tested on the runs that it was chosen on would do better than chance in nearly all of them.
    """
    rng = np.random.default_rng(1)
    found = [
        audit(lambda n: rng.integers(0, 200, n), lambda n: rng.integers(0, 200, n), 400, confidence=0.5)
        for _ in range(200)
    ]
    assert sum(result.epsilon_lower > 0 for result in found) <= 130


def test_outcomes_of_any_kind() -> None:
    """Words, rows of numbers, more distinct outcomes than are told apart, and floats without ties."""
    rng = np.random.default_rng(0)
    kinds: list[Callable[[np.ndarray], Any]] = [
        lambda coin: np.where(coin, "yes", "no"),
        lambda coin: np.stack([coin, ~coin, coin], axis=1),
        lambda coin: list(coin),
        lambda coin: coin + rng.random(len(coin)),
        lambda coin: np.where(coin, 0, rng.integers(1, 50 * OUTCOMES, len(coin))).astype(str),
        lambda coin: np.where(coin, 0, rng.integers(1, 50 * OUTCOMES, len(coin)))[:, None],
    ]
    for kind in kinds:
        found = audit(lambda n, f=kind: f(rng.random(n) < 0.8), lambda n, f=kind: f(rng.random(n) < 0.2), 40_000)
        assert 1.2 < found.epsilon_lower < math.log(4)


def test_result_in_words() -> None:
    found = AuditResult(1.25, 0.0, 0.99, 5_000, (4_000, 1_000))
    assert str(found) == (
        "epsilon is at least 1.25 at delta=0, with confidence 0.99: "
        "an event happened in 4,000 and in 1,000 of 5,000 runs"
    )


def test_refusals() -> None:
    def zeros(n: int) -> np.ndarray:
        return np.zeros(n)

    for n in (99, 1e5, True):
        with pytest.raises(ParameterError, match=r"n must be a.*at least 100"):
            audit(zeros, zeros, n)
    for confidence in (0, 1, 1.5, math.nan):
        with pytest.raises(ParameterError, match=r"confidence must lie in \(0, 1\), e.g. confidence=0.999"):
            audit(zeros, zeros, 100, confidence=confidence)
    with pytest.raises(ParameterError, match="delta must lie in"):
        audit(zeros, zeros, 100, delta=1)
    for wrong in (lambda n: np.zeros(n + 1), lambda n: 0, lambda n: np.zeros((n, 2, 2))):
        with pytest.raises(ParameterError, match=r"sampler_b must return 100.*array of shape"):
            audit(zeros, wrong, 100)
