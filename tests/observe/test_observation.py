"""Estimates are updated by noisy counts as the textbooks say, and cells are shared out among ranges by width."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpframe.errors import ParameterError
from dpframe.inference.cells import fit_intervals
from dpframe.inference.inferred import Measured
from dpframe.observe.observation import Observation, Runs, chi_square_tail, truncated_normal_moments, update
from dpframe.observe.overlap import overlap_cells

# ------------------------------------------------------------------------------------------------ updates


def made(values, cells, generator):
    """Return an observation with a design of random weights."""
    design, variances = generator.normal(size=(values, cells)), generator.uniform(0.5, 4.0, values)
    return Observation(design, 10 * generator.normal(size=values), variances)


def prior(cells, generator):
    root = generator.normal(size=(cells, cells))
    return 10 * generator.normal(size=cells), root @ root.T + np.eye(cells)


def by_precisions(rows, covariance, observation):
    """Return the update as Gauss and Markov have it, by inverses."""
    matrix, weights = observation.matrix, 1 / observation.variances
    left = np.linalg.inv(np.linalg.inv(covariance) + matrix.T @ (matrix * weights[:, None]))
    return left @ (np.linalg.solve(covariance, rows) + matrix.T @ (observation.values * weights)), left


@pytest.mark.parametrize("values", [1, 3, 9])
def test_an_update_adds_up_precisions(values):
    generator = np.random.default_rng(4)
    rows, covariance = prior(6, generator)
    observation = made(values, 6, generator)
    found, left = update(rows, covariance, observation)
    wanted = by_precisions(rows, covariance, observation)
    np.testing.assert_allclose(found, wanted[0], rtol=1e-8)
    np.testing.assert_allclose(left, wanted[1], rtol=1e-8)
    assert np.array_equal(left, left.T)


def test_runs_update_as_their_weights_do():
    """Overlapping runs, of cells that are all correlated; the estimate before the update stays what it is."""
    generator = np.random.default_rng(6)
    rows, covariance = prior(7, generator)
    before = rows.copy(), covariance.copy()
    runs = Runs(np.array([0, 2, 1, 6]), np.array([7, 5, 3, 7]), 7)
    observation = Observation(runs, np.array([3.0, 5.0, 8.0, 1.0]), np.array([0.5, 1.0, 2.0, 3.0]))
    dense = Observation(observation.matrix, observation.values, observation.variances)
    for found, wanted in zip(update(rows, covariance, observation), update(rows, covariance, dense), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8)
    assert np.array_equal(rows, before[0])
    assert np.array_equal(covariance, before[1])


def test_nested_runs_update_as_their_weights_do():
    """Histograms whose cells are unions of the last one's: no cell is correlated with two runs."""
    rows, covariance = np.arange(8.0), np.diag(np.arange(1.0, 9.0))
    for ends in ([0, 2, 3, 6, 8], [0, 3, 8]):
        observation = Observation(Runs.between(ends), np.linspace(2, 9, len(ends) - 1), np.full(len(ends) - 1, 2.0))
        dense = Observation(observation.matrix, observation.values, observation.variances)
        wanted = update(rows, covariance, dense)
        rows, covariance = update(rows, covariance, observation)
        np.testing.assert_allclose(rows, wanted[0], rtol=1e-12)
        np.testing.assert_allclose(covariance, wanted[1], atol=1e-12)
    assert covariance[0, 7] == 0


def test_runs_of_cells_that_are_known_stay_as_they_are():
    rows, covariance = np.array([4.0, 5.0, 6.0]), np.diag([0.0, 0.0, 2.0])
    observation = Observation(Runs.between([0, 2, 3]), np.array([100.0, 8.0]), np.array([1.0, 2.0]))
    found, left = update(rows, covariance, observation)
    assert found.tolist() == [4.0, 5.0, 7.0]
    assert np.diag(left).tolist() == [0.0, 0.0, 1.0]


def test_observations_in_turn_are_observations_together():
    generator = np.random.default_rng(5)
    parts = [made(values, 4, generator) for values in (2, 0, 3)]
    rows, covariance = np.zeros(4), np.eye(4)
    for part in parts:
        rows, covariance = update(rows, covariance, part)
    once = update(np.zeros(4), np.eye(4), Observation.stack(parts, 4))
    assert np.allclose(rows, once[0])
    assert np.allclose(covariance, once[1])


def test_no_values_change_nothing():
    rows, covariance = np.arange(3.0), np.eye(3)
    found = update(rows, covariance, Observation.stack([], 3))
    assert found[0] is rows
    assert found[1] is covariance


def test_values_above_a_threshold_are_taken_about_what_they_are():
    reported = Observation(np.eye(2), np.array([105.0, 500.0]), np.array([100.0, 100.0]), np.array([100.0, 100.0]))
    linear = reported.linearise(np.array([95.0, 500.0]))
    assert linear.values[0] < 105
    assert linear.variances[0] > 100
    assert linear.values[1] == pytest.approx(500)
    assert not linear.is_truncated
    assert reported.matrix is linear.matrix


@pytest.mark.parametrize(
    ("values", "variances", "threshold"),
    [
        ([1.0], [1.0, 1.0], None),
        ([1.0, 2.0], [1.0, -1.0], None),
        ([1.0, 2.0], [1.0, np.nan], None),
        ([1.0, 2.0], [1.0, 1.0], [0.0]),
    ],
)
def test_an_observation_has_a_value_and_a_variance_for_each_row(values, variances, threshold):
    with pytest.raises(ParameterError, match="one value, and one variance"):
        Observation(
            np.eye(2), np.array(values), np.array(variances), None if threshold is None else np.array(threshold)
        )


@st.composite
def nested(draw):
    """Return one to four rounds of counts, each of which divides intervals of the one before."""
    edges, rounds = set(), []
    for _ in range(draw(st.integers(1, 4))):
        edges |= set(draw(st.lists(st.integers(1, 63), max_size=6)))
        counts = draw(st.lists(st.integers(-100, 1_000), min_size=len(edges) + 1, max_size=len(edges) + 1))
        variance = draw(st.floats(0.1, 1e4))
        rounds.append(Measured("x", "intervals", tuple(sorted(edges)), tuple(counts), variance))
    return tuple(rounds)


@given(nested())
def test_nested_counts_are_fitted_as_by_gauss_and_markov(rounds):
    finest = (0, *rounds[-1].cells, 64)
    design = np.array(
        [
            [start <= low and high <= stop for low, high in pairwise(finest)]
            for one in rounds
            for start, stop in pairwise((0, *one.cells, 64))
        ],
        dtype=float,
    )
    weights = np.concatenate([np.full(len(one.counts), 1 / one.variance) for one in rounds])
    measured = np.concatenate([np.asarray(one.counts, dtype=float) for one in rounds])
    expected = np.linalg.inv(design.T @ (weights[:, None] * design))
    counts, covariance = fit_intervals(rounds)
    assert covariance == pytest.approx(expected, rel=1e-6, abs=1e-9 * expected.max())
    assert counts == pytest.approx(expected @ (design.T @ (weights * measured)), rel=1e-6, abs=1e-6)


# ------------------------------------------------------------------------------------------------ parts of cells


@given(st.lists(st.integers(0, 60), min_size=2, max_size=9, unique=True), st.data())
def test_parts_of_cells_are_those_of_their_codes(ends, data):
    ends = sorted(ends)
    low, high = sorted(data.draw(st.tuples(st.integers(-5, 65), st.integers(-5, 65))))
    wanted = [np.mean([low <= code < high for code in range(a, b)]) for a, b in pairwise(ends)]
    assert overlap_cells(ends, [low], [high])[0].tolist() == wanted
    assert overlap_cells(np.array(ends) / 2, [low / 2], [high / 2])[0].tolist() == wanted


def test_cells_of_any_floats_and_of_large_whole_numbers_have_parts():
    most = np.finfo(float).max
    assert overlap_cells([-most, most], [0.0], [most]).tolist() == [[0.5]]
    assert overlap_cells([-np.inf, 3.0, np.inf], [-np.inf, 1.0], [np.inf, 9.0]).tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert overlap_cells([1.0, 1.0, 2.0], [0.0, 1.5], [1.0, 2.0]).tolist() == [[0.0, 0.0], [0.0, 0.5]]
    big = 1 << 60
    assert overlap_cells([big, big + 1, big + 4], [big + 1], [big + 2]).tolist() == [[0.0, pytest.approx(1 / 3)]]


# ------------------------------------------------------------------------------------------------ distributions


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 101, 4_000])
def test_chi_square_is_that_of_scipy(degrees):
    for value in [1e-9, 0.1, 1.0, 0.5 * degrees, degrees, 1.2 * degrees, degrees + 200.0]:
        assert chi_square_tail(degrees, value) == pytest.approx(special.chdtrc(degrees, value), rel=1e-10, abs=1e-290)
    assert (chi_square_tail(degrees, 0.0), chi_square_tail(degrees, np.inf)) == (1.0, 0.0)


def test_a_truncated_normal_law_has_the_mean_that_scipy_says():
    z = np.linspace(-30.0, 30.0, 401)
    mean = np.exp(-(z**2) / 2 - np.log(2 * np.pi) / 2 - special.log_ndtr(z))
    np.testing.assert_allclose(truncated_normal_moments(z)[0], mean, rtol=1e-12)
