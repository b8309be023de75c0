"""The staircase and Gaussian mechanisms on grids: where they can be inverted, what they gain, what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from checks import refused

import dpframe as dpf
from dpframe.accounting.audit import audit
from dpframe.channels import Gaussian, Geometric, RandomizedResponse, Staircase, mechanism_for, mechanism_from_json
from dpframe.channels.staircase import BoxSums
from dpframe.errors import ParameterError, PlanError
from dpframe.forecast.errors import mean_errors
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.spaces import Categorical, Integer, Nullable, Ordinal, Real


def boxes(span: int, width: int) -> np.ndarray:
    """Return the matrix of sums over boxes, written out."""
    matrix = np.zeros((span + 1, span + 1))
    for x in range(span + 1):
        for place in range(x - width // 2, x - width // 2 + width):
            matrix[x, min(max(place, 0), span)] += 1
    return matrix


@pytest.mark.parametrize("span", range(1, 30))
def test_boxes_can_be_inverted_where_their_width_divides_the_span_or_one_less(span: int) -> None:
    rng = np.random.default_rng(span)
    for width in range(1, span + 1):
        matrix = boxes(span, width)
        fits = span % width == 0 or (span > 1 and (span - 1) % width == 0)
        assert fits == (np.linalg.matrix_rank(matrix) == span + 1)
        if not fits:
            continue
        inverse, made, f = np.linalg.inv(matrix), BoxSums(span, width, width // 2), rng.normal(size=(span + 1, 2))
        np.testing.assert_allclose(made.sums(f), matrix @ f, atol=1e-9)
        np.testing.assert_allclose(made.adjoint_sums(f), matrix.T @ f, atol=1e-9)
        np.testing.assert_allclose(made.solve(f), inverse @ f, atol=1e-9)
        np.testing.assert_allclose(made.solve_adjoint(f), inverse.T @ f, atol=1e-9)
        np.testing.assert_allclose(made.squares(f), (inverse**2).T @ f, atol=1e-8)
        for x in range(span):  # a function that changes after x alone
            starts = made.changes(np.array([x]))
            solved = inverse @ (np.arange(span + 1) > x)
            where = np.searchsorted(starts, np.arange(span + 1), side="right") - 1
            np.testing.assert_allclose(solved, solved[starts][where], atol=1e-9)


@pytest.mark.parametrize("nullable", [False, True])
def test_a_width_of_one_is_randomized_response(nullable: bool) -> None:
    stairs, response = Staircase(6, 9.0, 0.0, nullable), RandomizedResponse(7 + nullable, 9.0)
    assert stairs.width == 1
    np.testing.assert_allclose(stairs.transition(), response.transition(), rtol=1e-4)
    assert stairs.blanket == pytest.approx(response.blanket, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0, 10.0])
def test_means_variances_and_shapes_have_less_error_than_by_geometric_noise(epsilon: float) -> None:
    span = 120
    stairs, geometric = Staircase(span, epsilon), Geometric(span, epsilon)
    x, even = np.linspace(-0.5, 0.5, span + 1), np.full(span + 1, 1 / (span + 1))

    def error(m: Staircase | Geometric, f: np.ndarray) -> float:
        residual = f - even @ f
        return float(m.apply(even) @ m.surrogate(residual) ** 2 - even @ residual**2) ** 0.5

    # Measured 0.92 … 0.15, 0.34 … 0.11, 0.19 … 0.04, from 0.5 to 10.
    for f, most in ((x, 0.93), (x**2, 0.42), (np.cos(6 * np.pi * x), 0.2)):
        assert error(stairs, f) < most * error(geometric, f)
    assert stairs.expected_error() < 0.95 * geometric.expected_error()


def test_the_width_is_near_the_best_for_means() -> None:
    for span, epsilon in ((24, 1.0), (60, 3.0), (121, 6.0)):
        chosen = mean_errors(Integer(0, span), Staircase(span, epsilon), None, 1)[0]
        tried = []
        for width in (w for w in range(1, span + 1) if span % w == 0 or (span - 1) % w == 0):
            tried.append(mean_errors(Integer(0, span), Staircase(span, epsilon, width=width), None, 1)[0])
        assert chosen <= 1.1 * min(tried)


def test_the_audit_finds_the_loss_of_the_staircase_and_catches_one_too_steep() -> None:
    def drawn(made: Staircase, code: int) -> Callable[[int], np.ndarray]:
        stream = Keystream(bytes([code] * 32)).column("audit")
        return lambda n: made.sample(np.full(n, code), stream)

    # Each bound fails with probability 1e-6.
    for made in (Staircase(12, 1.0), Staircase(12, 1.3)):
        found = audit(drawn(made, 0), drawn(made, 12), 400_000)
        assert 0.9 * made.epsilon < found.epsilon_lower <= made.loss.epsilon()
        assert found.refutes(1.0) == (made.epsilon > 1)


@pytest.mark.slow
def test_numbers_and_many_ranks_have_the_mechanism_of_the_smaller_error() -> None:
    spaces = {
        "age": Integer(0, 120),
        "pay": Nullable(Real(0, 1e5)),
        "seconds": Integer(0, 2**31),
        "rank": Ordinal(list("abcdefgh")),
        "name": Ordinal([f"{i:02d}" for i in range(40)]),
        "sex": Categorical(["F", "M"]),
    }
    plan = build_plan(spaces, epsilon=1.0, delta=1e-6, n=20_000, numbers="least_error")
    tags = {column.name: column.mechanism.tag for column in plan.columns}
    assert tags == {
        "age": "staircase",
        "pay": "staircase",
        "seconds": "geometric",  # too fine a grid
        "rank": "optimal",
        "name": "staircase",
        "sex": "randomized_response",
    }
    named = build_plan(spaces, epsilon=1.0, delta=1e-6, n=20_000, mechanisms={"age": "geometric", "rank": "geometric"})
    assert [named["age"].mechanism.tag, named["rank"].mechanism.tag] == ["geometric", "geometric"]


def test_a_grid_of_few_divisors_keeps_the_geometric_mechanism_where_that_errs_less() -> None:
    tags = []
    for span in (2039, 2040):
        plan = build_plan({"x": Integer(0, span)}, epsilon=8.0, delta=0.0, numbers="least_error")
        tags.append(plan.columns[0].mechanism.tag)
    assert tags == ["geometric", "staircase"]


def test_refusals() -> None:
    with pytest.raises(PlanError, match="nullable must be True or False"):
        mechanism_from_json(Staircase(4, 1.0).to_json() | {"nullable": 1})
    refused(
        ParameterError,
        "staircase is for at most 1048576 steps, .* use geometric or fewer steps",
        lambda: mechanism_for(Integer(0, 2**21), 1.0, 0.0, "staircase"),
    )
    refused(ParameterError, "width must divide 12 or 11", lambda: Staircase(12, 1.0, width=5))
    refused(ParameterError, "epsilon=1e-18 is too small for a grid", lambda: Staircase(1 << 20, 1e-18))
    refused(
        ParameterError,
        "gaussian is for at most 256 codes, .* use staircase or geometric",
        lambda: Gaussian.calibrate(Integer(0, 300), 1.0, 0.0),
    )
    refused(
        ParameterError,
        "singular matrix.*use the mechanism staircase",
        lambda: Gaussian(100, 1.0, 1e-6),
    )


@pytest.mark.parametrize("tag", ["staircase", "gaussian"])
def test_a_release_is_estimated_within_its_errors(tag: str) -> None:
    scores = pd.DataFrame({"score": np.repeat([0, 1, 2, 3], [900, 600, 1500, 2000])})
    safe = dpf.sanitize(
        scores, epsilon=3.0, spaces={"score": (0, 3)}, mechanisms={"score": tag}, measure=None, key=bytes(32)
    )
    # Five standard errors are exceeded with probability 6e-7.
    mean = safe.dp.mean("score")
    assert abs(mean["estimate"] - scores["score"].mean()) < 5 * mean["std_error"]
    counts = safe.dp.value_counts("score", sort=False)
    assert (abs(counts["estimate"] - [900, 600, 1500, 2000]) < 5 * counts["std_error"]).all()
