"""Channels to another number of outputs: loss, draws and surrogates, against the matrix itself."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from checks import exact_delta, exact_epsilon, refused
from conftest import KEY
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import examples

from dpframe.accounting import finite
from dpframe.channels import Matrix, RectangularMatrix
from dpframe.errors import ParameterError
from dpframe.noise.keystream import Keystream

WORD = 1 << 64
ASKED = [[0.5, 0.3, 0.1, 0.1], [0.1, 0.4, 0.4, 0.1], [0.2, 0.2, 0.2, 0.4]]


@settings(max_examples=examples(60))
@given(st.data())
def test_loss_and_surrogates_are_those_of_the_matrix(data):
    inputs, outputs = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    row = st.lists(st.integers(1, 99), min_size=outputs, max_size=outputs)
    rows = np.array(data.draw(st.lists(row, min_size=inputs, max_size=inputs)), dtype=float)
    matrix = rows / rows.sum(axis=1, keepdims=True)
    channel = RectangularMatrix.of(matrix)
    assert (channel.inputs, channel.outputs) == (inputs, outputs)
    np.testing.assert_allclose(channel.transition(), matrix.T, rtol=1e-12)
    columns = [list(law) for law in channel.table]
    assert channel.loss.epsilon() == pytest.approx(float(exact_epsilon(columns)), rel=1e-12, abs=1e-12)
    if inputs > 1:
        assert Fraction(channel.loss.delta(0.2)) >= exact_delta(columns, WORD, 0.2)
        assert channel.loss.delta(0.2) == pytest.approx(finite.tight(matrix, epsilon=0.2), rel=1e-6, abs=1e-12)
    assert channel.blanket == pytest.approx(matrix.min(axis=0).sum(), rel=1e-12)
    if np.linalg.matrix_rank(matrix) == inputs and np.linalg.cond(matrix) < 1e6:
        f = np.arange(inputs) - 0.5
        np.testing.assert_allclose(channel.surrogate(f) @ channel.transition(), f, atol=1e-8)


def test_of_a_square_matrix_it_is_the_matrix():
    rows = [[0.7, 0.3], [0.2, 0.8]]
    square, channel = Matrix.of(rows), RectangularMatrix.of(rows)
    assert channel.table == square.table
    np.testing.assert_allclose(channel.surrogate([0, 1]), square.surrogate([0, 1]), rtol=1e-12)
    codes, stream = np.arange(500) % 2, Keystream(KEY).column("x")
    np.testing.assert_array_equal(channel.sample(codes, stream, 7), square.sample(codes, stream, 7))


def test_answers_follow_the_law_and_the_row():
    """Chi-square of 200,000 draws a code; a right sampler fails with probability 1e-9 each."""
    channel, stream = RectangularMatrix.of(ASKED), Keystream(KEY).column("x")
    for x in range(3):
        drawn = channel.sample(np.full(200_000, x), stream)
        observed, expected = np.bincount(drawn, minlength=4), 200_000 * channel.transition()[:, x]
        assert stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), 3) > 1e-9
    codes = np.arange(90_000, dtype=np.uint8) % 3
    whole = channel.sample(codes, stream, 5)
    parts = [channel.sample(codes[a:b], stream, 5 + a) for a, b in ((0, 1), (1, 40_000), (40_000, 90_000))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert channel.sample(codes[:0], stream).shape == (0,)
    # Unbiased: the mean of the surrogates is within 4.5 standard errors of the share of code 1.
    phi = channel.surrogate([0, 1, 0])[whole]
    assert abs(phi.mean() - 1 / 3) < 4.5 * phi.std() / math.sqrt(len(phi))


def test_an_output_of_its_own_needs_delta():
    rows = [[0.5, 0.45, 0.05], [0.45, 0.55, 0.0]]
    refused(ParameterError, "infinite loss.*pass delta=0.05", lambda: RectangularMatrix.of(rows))
    channel = RectangularMatrix.of(rows, 0.06)
    assert channel.loss.epsilon() == math.inf
    assert channel.loss.epsilon(0.06) == pytest.approx(finite.tight(rows, delta=0.06), rel=1e-9)
    drawn = channel.sample(np.repeat([0, 1], 5_000), Keystream(KEY).column("x"))
    assert 2 in drawn[:5_000]
    assert 2 not in drawn[5_000:]


def test_what_is_refused():
    stream, channel = Keystream(KEY).column("x"), RectangularMatrix.of(ASKED)
    few = RectangularMatrix.of([[0.6, 0.4], [0.4, 0.6], [0.5, 0.5]])
    for match, call in [
        ("matrix must be an array of probabilities", lambda: RectangularMatrix.of([["a"]])),
        ("matrix must have rows that sum to 1", lambda: RectangularMatrix.of([[0.5, 0.4, 0.2]])),
        ("table must have 1 to 256 laws, .*; join rare ones", lambda: RectangularMatrix.of(np.full((2, 300), 1 / 300))),
        ("the law at position 1 does not; use RectangularMatrix.of", lambda: RectangularMatrix([[WORD], [1]])),
        ("table must have 1 to 256 laws", lambda: RectangularMatrix([])),
        ("do not distinguish all inputs, .*; use more outputs", lambda: few.surrogate([0, 1, 2])),
        (r"f must have one value per code, shape \(3,\)", lambda: channel.surrogate([0, 1])),
        ("codes must lie in 0…2; encode the column", lambda: channel.sample(np.array([3]), stream)),
        ("codes must be a 1-d integer array; encode", lambda: channel.sample(np.array([0.5]), stream)),
        ("first_row must be", lambda: channel.sample(np.array([0]), stream, -1)),
    ]:
        refused(ParameterError, match, call)
