"""Exponential, optimal and given channels: optimality, refusals by their text, plans, and estimates end to end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checks import exact_columns, exact_delta, exact_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from strategies import examples

import dpframe as dpf
from dpframe import Boolean, Categorical, Column, Integer, Matrix, Nullable, Ordinal, Plan
from dpframe.channels import (
    Exponential,
    Geometric,
    Mechanism,
    Optimal,
    RandomizedResponse,
    mechanism_for,
    mechanism_from_json,
)
from dpframe.channels.optimal import LARGEST_PROGRAMME, Programme
from dpframe.errors import ParameterError, PlanError
from dpframe.forecast.errors import CellMoments, share_errors
from dpframe.noise.tables import ChannelTable
from dpframe.plan.build import build_plan
from dpframe.spaces import Space

WORD = 1 << 64


def ranks(size: int) -> Ordinal:
    return Ordinal(list(range(size)))


def marginal(mechanism: Mechanism) -> float:
    return share_errors([CellMoments.of(mechanism)], 1).typical


# --- tables -------------------------------------------------------------------------------------------


def rows(columns: int, most: int, **number: int) -> st.SearchStrategy[list[list[int]]]:
    """Return rows of integers from 1 to ``most``."""
    return st.lists(st.lists(st.integers(1, most), min_size=columns, max_size=columns), **number)


@given(st.integers(1, 9).flatmap(lambda k: rows(k, 2**60, min_size=1)))
def test_channel_tables_hold_their_weights(given_rows: list[list[int]]) -> None:
    laws = [[*row[:-1], row[-1] + WORD - sum(row)] for row in given_rows]
    table = ChannelTable.build(laws)
    assert [table.weights(x) for x in range(len(laws))] == laws


# --- given matrices -----------------------------------------------------------------------------------


@given(st.integers(2, 5).flatmap(lambda k: rows(k, 999, min_size=k, max_size=k)))
@settings(max_examples=examples(60))
def test_loss_of_a_given_matrix_is_computed(given_rows: list[list[int]]) -> None:
    matrix = np.array(given_rows) / np.sum(given_rows, axis=1, keepdims=True)
    if not np.linalg.cond(matrix) < 1e6:
        return
    for delta in (0.0, 0.05):
        mechanism = Matrix.of(matrix, delta)
        np.testing.assert_allclose(mechanism.transition(), matrix.T, rtol=1e-12)
        columns, total = exact_columns(mechanism)
        assert exact_delta(columns, total, mechanism.epsilon) <= Fraction(delta)
        assert float(exact_epsilon(columns)) == pytest.approx(mechanism.loss.epsilon(), rel=1e-12)


def test_a_table_that_loses_more_than_it_claims_is_refused() -> None:
    given_ready = Matrix.of([[0.75, 0.25], [0.25, 0.75]])
    with pytest.raises(ParameterError, match=r"table loses more than epsilon=1, delta=0: its loss is 1\.0986"):
        Matrix(given_ready.table, 1.0)
    data = given_ready.to_json() | {"epsilon": 1.0}
    with pytest.raises(PlanError, match="mechanism matrix: table loses more"):
        mechanism_from_json(data)
    assert Matrix(given_ready.table, 1.0, 0.1).budget == dpf.Budget(1.0, 0.1)
    # One unit of 2^-64 more is seen.
    p = WORD // 4
    other = Matrix(((WORD - p, p), (p, WORD - p)), given_ready.epsilon)
    with pytest.raises(ParameterError, match="table loses more"):
        Matrix(((WORD - p + 4096, p - 4096), (p, WORD - p)), other.epsilon)


@pytest.mark.parametrize(
    ("matrix", "text"),
    [
        ([[0.5, 0.5]], "matrix must be square"),
        (
            [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]],
            "use dpframe.channels.RectangularMatrix",
        ),
        ([0.5, 0.5], "matrix must be an array of probabilities, a row for each input"),
        (np.full((300, 300), 1 / 300), "of at most 256 codes"),
        ([["a", "b"], ["c", "d"]], "matrix must be an array of probabilities"),
        ([[0.5, 0.5], [0.4, 0.5]], "rows that sum to 1 (rows are inputs); the one at position 1 does not"),
        ([[1.5, -0.5], [0.5, 0.5]], "must hold probabilities; the row at position 0 does not"),
        ([[0.5, 0.5], [0.5, math.nan]], "must hold probabilities; the row at position 1 does not"),
        (
            [[0.6, 0.4, 0.0], [0.4, 0.4, 0.2], [0.2, 0.2, 0.6]],
            "column position 2 never comes from row position 0 but does from 2; pass delta=0.",
        ),
        ([[0.5, 0.5], [0.5, 0.5]], "matrix is singular"),
        ([[0.4, 0.6, 0.0], [0.6, 0.4, 0.0], [0.5, 0.5, 0.0]], "matrix is singular"),
        ([[0.5, 0.5], [0.5 + 1e-12, 0.5 - 1e-12]], "matrix is singular, or nearly"),
    ],
)
def test_refused_matrices(matrix: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(text)):
        Matrix.of(matrix)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (3, "table must be a list of 1 to 256 laws"),
        ([], "table must be a list of 1 to 256 laws"),
        ([[WORD]] * 257, "table must be a list of 1 to 256 laws"),
        ([[WORD // 2, WORD // 2], [WORD]], "the law at position 1 does not"),
        (
            [[WORD // 2, WORD // 2], [WORD, 0]],
            "table loses more than epsilon=1, delta=0: its loss is inf at that delta",
        ),
        ([[WORD // 2, WORD // 2], [WORD + 1, -1]], "the law at position 1 does not"),
        ([[WORD // 2, WORD // 2], [WORD // 2, WORD // 4]], "the law at position 1 does not"),
        ([[0.5, 0.5], [0.5, 0.5]], "the law at position 0 does not"),
        (["8000000000000000" * 2, "nonsense" * 4], "the law at position 1 does not"),
        (["8000000000000000" * 2, "80" * 9], "the law at position 1 does not"),
        (["8000000000000000" * 2, None], "the law at position 1 does not"),
        (["8000000000000000" * 2] * 2, "table is singular"),
    ],
)
def test_refused_tables(table: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(text)):
        Matrix(table, 1.0)
    with pytest.raises(PlanError, match=re.escape(text)):
        mechanism_from_json({"mechanism": "matrix", "table": table, "epsilon": 1.0, "delta": 0.0})


RARE = [[0.6, 0.39, 0.01], [0.3, 0.69, 0.01], [0.5, 0.5, 0.0]]
"""The last output never comes from the last input."""


@given(st.integers(2, 5).flatmap(lambda k: st.lists(st.lists(st.integers(0, 9), min_size=k, max_size=k), min_size=k)))
@settings(max_examples=examples(100))
def test_zeros_are_counted_into_delta(given_rows: list[list[int]]) -> None:
    """The least δ is what one input gives and another never does; at it and above ε is that of all outputs' sums."""
    rows = [[w + 40 * (x == y) for y, w in enumerate(row)] for x, row in enumerate(given_rows[: len(given_rows[0])])]
    matrix = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    if not np.linalg.cond(matrix) < 1e6:
        return
    escaping = max(matrix[x][matrix[z] == 0].sum() for x in range(len(rows)) for z in range(len(rows)))
    if escaping > 0.99:
        return
    if escaping > 1e-9:
        with pytest.raises(ParameterError, match="pass delta="):
            Matrix.of(matrix, escaping * (1 - 1e-9))
    delta = min(escaping * (1 + 1e-9) + 1e-3, 0.999)
    mechanism = Matrix.of(matrix, delta)
    assert [[w > 0 for w in law] for law in mechanism.table] == (matrix > 0).tolist()
    columns, total = exact_columns(mechanism)
    assert exact_delta(columns, total, mechanism.epsilon) <= Fraction(delta)
    if mechanism.epsilon > 1e-9:
        assert exact_delta(columns, total, mechanism.epsilon * (1 - 1e-9)) > Fraction(delta)
    assert math.isinf(mechanism.loss.epsilon(0.0)) == (escaping > 0)
    assert mechanism_from_json(json.loads(json.dumps(mechanism.to_json()))).table == mechanism.table
    with pytest.raises(ParameterError, match=r"table must have one.*weight per output"):
        Exponential(((0, WORD), (WORD // 2, WORD // 2)), 1.0, 0.9)


@pytest.mark.filterwarnings("ignore:delta=")
def test_a_matrix_with_zeros_in_plans_and_releases() -> None:
    """No zero is ever drawn; plans take its (ε, δ), and shares are within 4.5 standard errors (probability 2e-5)."""
    refused = "row position 2 but does from 1; pass delta=0"
    with pytest.raises(ParameterError, match=refused):
        Matrix.of(RARE)
    mechanism = Matrix.of(RARE, 0.02)
    assert mechanism.loss.epsilon(0.0) == math.inf
    for options in ({"n": 6_000}, {"n": 6_000, "shuffle": False}, {}, {"n": 6_000, "sample": 600}):
        plan = build_plan(
            {"a": list("xyz"), "b": ["u", "v"]}, epsilon=8.0, delta=0.05, mechanisms={"a": mechanism}, **options
        )
        assert plan.verify().ok
        assert Plan.from_json(plan.to_json()) == plan
        assert 0.02 <= plan.local.delta <= 0.05
    with pytest.raises(PlanError, match="lower a column's epsilon"):
        build_plan({"a": list("xyz")}, epsilon=8.0, delta=0.01, mechanisms={"a": mechanism})
    frame = pd.DataFrame({"a": list("xyz") * 2_000, "b": ["u", "v"] * 3_000})
    safe = dpf.sanitize(
        frame,
        epsilon=8.0,
        delta=0.05,
        spaces={"a": list("xyz"), "b": ["u", "v"]},
        mechanisms={"a": mechanism},
        shuffle=False,
        measure=None,
        key=bytes(range(32)),
    )
    assert safe.dp.verify()
    assert set(safe["a"][2::3]) == {"x", "y"}
    assert "z" in set(safe["a"])
    shares = safe.dp.value_counts("a", normalize=True)
    assert (np.abs(shares["estimate"] - 1 / 3) < 4.5 * shares["std_error"]).all()


@pytest.mark.filterwarnings("ignore:delta=")
def test_no_mass_that_all_inputs_share_is_no_hindrance() -> None:
    """γ = 0: nothing of the accountant of pure columns applies, whichever tables are measured beside."""
    mechanism = Matrix.of((1 - np.eye(4)) / 3, 0.34)
    assert mechanism.blanket == 0
    frame = pd.DataFrame({"a": list("wxyz") * 150, "b": ["u", "v"] * 300})
    plan = dpf.plan(
        frame, 9.0, 0.5, spaces={"a": list("wxyz"), "b": ["u", "v"]}, mechanisms={"a": mechanism}, measure=["b"]
    )
    assert plan.measures
    assert plan.verify().ok


def test_a_joint_matrix_of_a_group_is_refused() -> None:
    given: Any = {("a", "b"): Matrix.of(0.5 * np.eye(4) + 0.125)}
    with pytest.raises(ParameterError, match=r"group a × b.*name single columns"):
        build_plan(
            {"a": ["u", "v"], "b": ["w", "x"]},
            epsilon=2.0,
            groups=[("a", "b")],
            mechanisms=given,
        )


def test_json_holds_the_weights() -> None:
    mechanism = Matrix.of([[0.75, 0.25], [0.25, 0.75]])
    data = mechanism.to_json()
    assert data["table"] == ["c000000000000000" + "4000000000000000", "4000000000000000" + "c000000000000000"]
    assert mechanism_from_json(json.loads(json.dumps(data))).table == mechanism.table
    assert Matrix.of([[1.0]]).to_json()["table"] == ["1" + "0" * 16]


def test_apply_is_the_matrix_and_its_transpose() -> None:
    rows_of = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    mechanism, counts = Matrix.of(rows_of), np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(mechanism.apply(counts), rows_of.T @ counts, rtol=1e-14)
    np.testing.assert_allclose(mechanism.apply(counts, adjoint=True), rows_of @ counts, rtol=1e-14)
    np.testing.assert_allclose(mechanism.law(1), rows_of[1], rtol=1e-14)


def test_distances_of_a_space_that_is_given() -> None:
    """Kept with 0.6, moved by one rank with 0.3: discretely an error of 0.4, in ranks of up to 0.6."""
    mechanism = Matrix.of([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    assert mechanism.expected_error() == pytest.approx(0.4)
    assert mechanism.expected_error(ranks(3)) == pytest.approx(0.6)
    assert mechanism.expected_error(Nullable(ranks(2))) == pytest.approx(0.4)


def test_a_matrix_is_not_calibrated() -> None:
    with pytest.raises(ParameterError, match=r"give a ready one, Matrix\.of\(rows\)"):
        Matrix.calibrate(Boolean(), 1.0, 0.0)
    with pytest.raises(ParameterError, match="mechanism must be one of exponential, optimal, randomized_response"):
        mechanism_for(Boolean(), 1.0, 0.0, "matrix")


# --- exponential --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space", [ranks(2), ranks(7), ranks(40), Nullable(ranks(5)), Categorical(list("abcd"))], ids=repr
)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.0), (1.0, 1e-3), (5.0, 0.1), (12.0, 1e-6)])
def test_exponential_has_the_largest_rate(space: Space, epsilon: float, delta: float) -> None:
    """The law is e^(−kρ); a k larger by 1e-9 loses more than is allowed, and 2k-bounds waste half of ε."""
    mechanism = Exponential.calibrate(space, epsilon, delta)
    columns, total = exact_columns(mechanism)
    assert exact_delta(columns, total, epsilon) <= Fraction(delta)
    rho = np.array([[space.code_distance(x, y) for y in range(space.size)] for x in range(space.size)])
    laws = mechanism.transition().T
    rates = -np.log(laws / np.diag(laws)[:, None])[rho > 0] / rho[rho > 0]
    rate = float(rates.mean())
    np.testing.assert_allclose(rates, rate, rtol=1e-6)
    steeper = np.exp(-rate * (1 + 1e-4) * rho)
    steeper /= steeper.sum(axis=1, keepdims=True)
    lost = max(float(np.maximum(p - math.exp(epsilon) * steeper, 0).sum(axis=1).max()) for p in steeper)
    assert lost > delta
    if delta == 0:
        assert rate * rho.max() > 0.5 * epsilon * (1 - 1e-9)


def test_exponential_of_the_discrete_metric_is_randomised_response() -> None:
    for size, epsilon, delta in [(2, 1.0, 0.0), (9, 0.3, 0.0), (32, 4.0, 0.0)]:
        mechanism = Exponential.calibrate(Categorical(range(size)), epsilon, delta)
        response = RandomizedResponse(size, epsilon, delta)
        np.testing.assert_allclose(mechanism.transition(), response.transition(), rtol=1e-6)


# --- optimal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5, 16, 32])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1])
def test_optimal_on_the_discrete_metric_is_randomised_response(size: int, epsilon: float, delta: float) -> None:
    """Theorem 10 of the categorical paper; both meet Theorem 7 of the metric-spaces paper."""
    space = Categorical(range(size))
    mechanism = Optimal.calibrate(space, epsilon, delta)
    least = (1 - delta) * (size - 1) / (size - 1 + math.exp(epsilon))
    assert mechanism.expected_error(space) == pytest.approx(least, rel=1e-9)
    assert Column("a", space, mechanism).error_bound == pytest.approx(least, rel=1e-12)
    # The programme itself agrees with the theorem.
    if size < 32 and delta == 0:
        programme = Programme("discrete", size, epsilon)
        assert programme.worst_error(programme.solve()) == pytest.approx(least, rel=1e-7)


SCALES = [ranks(2), ranks(3), ranks(5), ranks(8), ranks(16), Nullable(ranks(3)), Nullable(ranks(16))]


@pytest.mark.walk(9)
@pytest.mark.parametrize("space", SCALES, ids=lambda s: f"{s.tag}-{s.size}")
@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 3.0, 8.0, 15.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.2])
def test_optimal_is_never_above_the_others(space: Space, epsilon: float, delta: float) -> None:
    """Worst-case error, lower bounds (Theorems 6 and 7), and the marginal error no worse than the geometric's."""
    mechanism = Optimal.calibrate(space, epsilon, delta)
    additive = mechanism_for(space, epsilon, delta, Space.MECHANISMS.get(space.metric, "nullable_geometric"))
    others = [additive, RandomizedResponse(space.size, epsilon, delta)]
    if not (epsilon < 0.1 and space.size > 8):
        others.append(Exponential.calibrate(space, epsilon, delta))
    found = mechanism.expected_error(space)
    # 32-bit words of randomised response exceed its ideal law by some 1e-7.
    assert found <= min(other.expected_error(space) for other in others) * (1 + 1e-8)
    assert found * space.step >= Column("a", space, mechanism).error_bound * (1 - 1e-9)
    assert marginal(mechanism) <= marginal(additive) * (1 + 1e-6)
    assert mechanism.loss.epsilon(delta) >= epsilon * (1 - 1e-4)


def test_known_figures_of_sixteen_ranks() -> None:
    """In shares of the diameter at ε = 1: programme 0.316, geometric 0.393, randomised response 0.452."""
    programme = Programme("line", 16, 1.0)
    assert programme.worst_error(programme.solve()) / 15 == pytest.approx(0.316, abs=5e-4)
    mechanism = Optimal.calibrate(ranks(16), 1.0, 0.0)
    assert mechanism.expected_error() / 15 == pytest.approx(0.354, abs=1e-3)
    assert Geometric(15, 1.0).expected_error() / 15 == pytest.approx(0.393, abs=5e-4)
    response = RandomizedResponse(16, 1.0)
    assert response.expected_error(ranks(16)) / 15 == pytest.approx(0.452, abs=5e-4)
    # The error of marginals: 80.9 of the geometric mechanism, 2.48 of randomised response.
    assert marginal(mechanism) < 1.3 * marginal(response)
    assert marginal(Geometric(15, 1.0)) > 20 * marginal(mechanism)


def test_the_optimum_itself_is_of_no_use() -> None:
    """The programme's own solution collapses outputs: why some of its gain is given up."""
    programme = Programme("line", 16, 1.0)
    assert np.linalg.cond(programme.solve()) > 1e9


def test_slack_trades_worst_case_error_for_marginals() -> None:
    space = ranks(8)
    found = [Optimal.calibrate(space, 1.0, 0.0, slack) for slack in (0.1, 0.5, 1.0)]
    errors = [m.expected_error() for m in found]
    assert errors == sorted(errors)
    assert errors[0] < errors[1] < errors[2]
    assert marginal(found[0]) > marginal(found[1]) > marginal(found[2])
    # Given up all of it, what is left is no worse than the best of the others.
    others = Geometric(7, 1.0).expected_error(), RandomizedResponse(8, 1.0).expected_error(space)
    assert errors[2] <= min(others) * (1 + 1e-6)


def test_little_slack_comes_within_a_hundredth_of_the_programme() -> None:
    """As a ready mechanism of a column, where single rows matter and marginals less."""
    for size, epsilon in ((8, 2.0), (16, 1.0)):
        programme = Programme(ranks(size).metric, size, epsilon)
        near = Optimal.calibrate(ranks(size), epsilon, 0.0, slack=0.01)
        assert near.expected_error() < 1.01 * programme.worst_error(programme.solve())
        assert near.loss.epsilon() <= epsilon
    frame = pd.DataFrame({"x": list(range(16)) * 20})
    safe = dpf.sanitize(frame, epsilon=1.0, delta=0, shuffle=False, spaces={"x": ranks(16)}, mechanisms={"x": near})
    assert len(safe) == 320


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (1.0, 0.1), (0.25, 0.05), (3.0, 0.1)])
def test_revealing_with_probability_delta_is_nearly_optimal(epsilon: float, delta: float) -> None:
    """Beside the full programme for (ε, δ), with a slack variable for every pair and output."""
    size = 8
    programme = Programme("line", size, epsilon)
    mixed = (1 - delta) * programme.worst_error(programme.solve())
    full = _full_programme(size, epsilon, delta)
    assert full <= mixed * (1 + 1e-6)
    assert mixed <= full * 1.002


def _full_programme(size: int, epsilon: float, delta: float) -> float:
    """Solve for P and d with P_x(y) − e^ε·P_x'(y) ≤ d_xx'y and Σ_y d_xx'y ≤ δ, written out plainly."""
    pairs = [(x, z) for x in range(size) for z in range(size) if x != z]
    cells, count = size * size, size * size + len(pairs) * size + 1
    rows, limits = [], []
    for i, (x, z) in enumerate(pairs):
        total = np.zeros(count)
        for y in range(size):
            row, d = np.zeros(count), cells + i * size + y
            row[x * size + y], row[z * size + y], row[d], total[d] = 1.0, -math.exp(epsilon), -1.0, 1.0
            rows.append(row)
            limits.append(0.0)
        rows.append(total)
        limits.append(delta)
    equal = np.zeros((size, count))
    for x in range(size):
        row = np.zeros(count)
        row[x * size : (x + 1) * size], row[-1] = np.abs(np.arange(size) - x), -1.0
        equal[x, x * size : (x + 1) * size] = 1.0
        rows.append(row)
        limits.append(0.0)
    goal = np.zeros(count)
    goal[-1] = 1.0
    return float(optimize.linprog(goal, np.array(rows), limits, equal, np.ones(size)).fun)


def test_programme_beside_one_written_out() -> None:
    for size, epsilon in [(4, 0.3), (5, 1.0), (8, 3.0)]:
        programme = Programme("line", size, epsilon)
        assert programme.worst_error(programme.solve()) == pytest.approx(_full_programme(size, epsilon, 0.0), rel=1e-7)


def test_calibration_is_deterministic() -> None:
    one, other = (Programme("line", 12, 0.7).solve() for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Optimal.calibrate(ranks(LARGEST_PROGRAMME + 1), 1.0, 0.0),
            "mechanism optimal is for at most 40 codes, and space ordinal has 41; use geometric or fewer values",
        ),
        (lambda: Exponential.calibrate(ranks(257), 1.0, 0.0), "exponential is for at most 256 codes"),
        (lambda: Exponential.calibrate(Categorical(range(257)), 1.0, 0.0), "use randomized_response"),
        (lambda: Optimal.calibrate(ranks(5), 1.0, 0.0, slack=0.0), "slack must be a number above 0"),
        (lambda: Optimal.calibrate(ranks(5), 1.0, 0.0, slack=1.5), "slack must be a number above 0"),
        (lambda: Optimal.calibrate(ranks(5), 1.0, 0.0, slack=True), "slack must be a number above 0"),
        (lambda: Optimal.calibrate(ranks(5), -1.0, 0.0), "epsilon must be finite and above 0"),
        (lambda: Optimal.calibrate(ranks(5), 1.0, 1.0), "delta must lie in [0, 1)"),
        (lambda: Optimal.calibrate(ranks(5), 1e-25, 0.0), "epsilon=1e-25 is too small for 5 codes"),
        (lambda: Optimal.calibrate(ranks(5), 1e-12, 0.0), "table is singular, or nearly"),
        (lambda: Exponential.calibrate(ranks(40), 1e-9, 0.0), "table is singular, or nearly"),
        (lambda: Exponential.calibrate(ranks(40), 1e-25, 0.0), "is too small for 40 codes"),
        (
            lambda: Exponential(Matrix.of([[0.75, 0.25], [0.25, 0.75]]).table, 2.0, 0.0, "round"),
            "metric must be one of",
        ),
    ],
)
def test_refused_requests(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(text)):
        make()


# --- in plans and estimates ---------------------------------------------------------------------------


def test_defaults_of_ordered_spaces() -> None:
    assert ranks(16).mechanism == Nullable(ranks(16)).mechanism == "optimal"
    assert ranks(17).mechanism == "geometric"
    assert Nullable(ranks(17)).mechanism == Nullable(Integer(0, 9)).mechanism == "nullable_geometric"
    assert Nullable(Categorical(list("ab"))).mechanism == "randomized_response"
    assert Integer(0, 9).mechanism == "geometric"


def test_plans_hold_ready_matrices_and_tags() -> None:
    matrix = Matrix.of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    plan = build_plan(
        {"smokes": list("abc"), "education": ranks(6), "age": (0, 9)},
        epsilon=4.0,
        mechanisms={"smokes": matrix, "education": "exponential", "age": "optimal"},
    )
    assert [c.mechanism.tag for c in plan.columns] == ["matrix", "exponential", "optimal"]
    assert plan["smokes"].certified.epsilon == pytest.approx(math.log(8))
    assert plan["education"].mechanism.epsilon == pytest.approx((4 - math.log(8)) / 2)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.forecast(1000).loc[("marginal", "education"), "std_error"] > 0
    with pytest.raises(PlanError, match="the mechanism has 3 codes, the space 4"):
        build_plan({"a": list("abcd")}, epsilon=4.0, mechanisms={"a": matrix})


@pytest.mark.parametrize("tag", ["matrix", "exponential", "optimal"])
def test_marginals_of_a_release_are_unbiased(tag: str) -> None:
    """4.5 standard errors on each of 5 shares: a right estimate fails with probability below 1e-4."""
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    names = ["none", "primary", "secondary", "college", "doctorate"]
    frame = pd.DataFrame({"education": pd.Categorical.from_codes(np.arange(40_000) % 20 // 4, names, ordered=True)})
    frame["education"] = pd.Categorical.from_codes(
        np.repeat(np.arange(5), (shares * 40_000).astype(int)), names, ordered=True
    )
    mechanism: Any = Matrix.of(0.5 * np.eye(5) + 0.1) if tag == "matrix" else tag
    safe = dpf.sanitize(
        frame,
        epsilon=2.0,
        delta=0,
        spaces={"education": Ordinal(names)},
        mechanisms={"education": mechanism},
        key=bytes(range(32)),
    )
    counts = safe.dp.value_counts("education", normalize=True).loc[names]
    assert (np.abs(counts["estimate"] - shares) < 4.5 * counts["std_error"]).all()
    assert counts["std_error"].max() < 0.03
