"""Nested counts against generalised least squares, written out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpframe.plan.levels import Layer, fit_layers


@st.composite
def nested(draw):
    """Return one to four layers, each of which divides cells of the one before."""
    ends, layers = {0, 64}, []
    for _ in range(draw(st.integers(1, 4))):
        ends |= set(draw(st.lists(st.integers(1, 63), max_size=6)))
        counts = draw(st.lists(st.integers(-100, 1_000), min_size=len(ends) - 1, max_size=len(ends) - 1))
        layers.append(Layer(tuple(sorted(ends)), counts, draw(st.floats(0.1, 1e4))))
    return layers


@given(nested())
def test_layers_are_fitted_as_by_gauss_and_markov(layers):
    finest = layers[-1].ends
    design = np.array(
        [
            [start <= low and high <= stop for low, high in pairwise(finest)]
            for layer in layers
            for start, stop in pairwise(layer.ends)
        ],
        dtype=float,
    )
    weights = np.concatenate([np.full(len(layer.counts), 1 / layer.variance) for layer in layers])
    measured = np.concatenate([np.asarray(layer.counts, dtype=float) for layer in layers])
    expected = np.linalg.inv(design.T @ (weights[:, None] * design))
    counts, covariance = fit_layers(layers)
    assert covariance == pytest.approx(expected, rel=1e-6, abs=1e-9 * expected.max())
    assert counts == pytest.approx(expected @ (design.T @ (weights * measured)), rel=1e-6, abs=1e-6)
