"""Curves: whitening, a basis that machines agree on, sub-grids, JSON, refusals."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from checks import refused
from examples import space_of
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern

from dpframe import Curve, Nullable
from dpframe.errors import ColumnError, ParameterError, PlanError

HOURS = np.arange(24.0)
KERNELS = [(RBF(3.0), 6), (Matern(4.0, nu=2.5), 8), (ExpSineSquared(1.0, 24.0), 7)]


@pytest.mark.parametrize(("kernel", "rank"), KERNELS)
def test_coefficients_are_whitened_and_their_norm_is_the_kernel_s(kernel, rank) -> None:
    """Of a function in the span ‖coefficients‖² = fᵀK⁻¹f, the norm of the least function with these values."""
    space = Curve(HOURS, 5.0, kernel, rank)
    gram = kernel(HOURS[:, None])
    weights = np.random.default_rng(1).normal(size=(9, rank))
    curves = weights @ space.basis.T / 5.0
    np.testing.assert_allclose(space.norms(curves), np.linalg.norm(weights, axis=1), rtol=1e-6)
    least = np.einsum("ni,ij,nj->n", curves, np.linalg.pinv(gram, rcond=1e-12, hermitian=True), curves)
    np.testing.assert_allclose(space.norms(curves) ** 2, least, rtol=1e-4)
    values, vectors = np.linalg.eigh(gram)
    lead = vectors[:, -rank:] * values[-rank:] @ vectors[:, -rank:].T
    np.testing.assert_allclose(space.basis @ space.basis.T / 25, lead, atol=1e-9)


def test_what_is_released_on_a_sub_grid_or_between_is_a_function_of_the_coefficients() -> None:
    """The projection of the noise: the same coefficients decide the curve at every point (Theorem 3, Example 4)."""
    space = Curve(HOURS, 2.0, RBF(3.0), 6)
    rng = np.random.default_rng(4)
    codes = space.ball.pack(rng.integers(0, 65_536, (50, 6)))  # as noise leaves them: anywhere in the cube
    released = np.array(space.decode(codes).to_pylist())
    coefficients = space.coordinates(codes) / 65_535 * 2.0
    half_hours = np.arange(0, 23.5, 0.5)
    between = space.at(released, half_hours)
    np.testing.assert_allclose(between[:, ::2], released[:, : between[:, ::2].shape[1]], atol=1e-8)
    fine = RBF(3.0)(half_hours[:, None], HOURS[:, None]) @ np.linalg.pinv(RBF(3.0)(HOURS[:, None]), rcond=1e-13)
    np.testing.assert_allclose(between, released @ fine.T, atol=1e-3)
    every_third = released[:, ::3]
    np.testing.assert_allclose(every_third, coefficients @ (space.basis / 2.0)[::3].T, atol=1e-12)
    # And nothing is lost: eight points of a sub-grid determine six coefficients, hence all of the curve.
    back = np.linalg.lstsq((space.basis / 2.0)[::3], every_third.T, rcond=None)[0].T
    np.testing.assert_allclose(back, coefficients, atol=1e-6)
    np.testing.assert_array_equal(space.released.encode(released), codes)


def test_curves_are_clipped_to_the_ball_along_their_direction() -> None:
    space = Curve(HOURS, 1.0, RBF(3.0), 6)
    curve = np.exp(-((HOURS - 12) ** 2) / 20)
    one, ten = (np.array(space.decode(space.encode([curve * k])).to_pylist()[0]) for k in (2.0, 10.0))
    assert space.norms([2 * curve])[0] > 1
    np.testing.assert_allclose(one, ten, atol=1e-3)
    assert space.norms([one])[0] <= 1 + 1e-9
    assert space.contains(one.tolist())
    assert not space.contains((10 * one).tolist())
    assert not space.contains(np.sign(np.sin(HOURS * 3)).tolist())  # too rough for the span


def test_json_names_the_kernel() -> None:
    space = Curve(HOURS, 2.0, Matern(4.0, nu=1.5), 5)
    data = json.loads(json.dumps(space.to_json()))
    assert data["kernel"] == {"name": "Matern", "length_scale": 4.0, "nu": 1.5}
    assert space_of(data) == space
    assert hash(space_of(data)) == hash(space)
    assert space_of(Nullable(space).to_json()) == Nullable(space)
    with pytest.raises(PlanError, match="space curve has the fields"):
        space_of({**data, "nu": 1})


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (((0.0,), 1.0, RBF(1.0), 1), "grid must be 2 to 4096 numbers that ascend"),
        (((0.0, 0.0), 1.0, RBF(1.0), 1), "grid must be"),
        (((0.0, math.nan), 1.0, RBF(1.0), 1), "grid must be"),
        ((("a", "b"), 1.0, RBF(1.0), 1), "grid must be"),
        ((HOURS, -1.0, RBF(1.0), 3), "bound must be a number above 0"),
        ((HOURS, 1.0, "RBF", 3), "kernel must be one of RBF, Matern, ExpSineSquared"),
        ((HOURS, 1.0, ConstantKernel(2.0) * RBF(1.0), 3), "kernel must be one of"),
        ((HOURS, 1.0, RBF([1.0, 2.0]), 3), "kernel RBF has the numbers length_scale, each above 0"),
        ((HOURS, 1.0, {"name": "RBF"}, 3), "kernel RBF has the numbers length_scale"),
        ((HOURS, 1.0, RBF(4.0), 0), "rank must be a whole number of functions, from 1 to 24"),
        ((HOURS, 1.0, RBF(4.0), 25), "rank must be a whole number"),
        ((HOURS, 1.0, RBF(30.0), 20), "rank=20 is more than the kernel has on this grid; take at most"),
        (
            (HOURS, 1.0, ExpSineSquared(1.0, 24.0), 2),
            "rank=2 splits functions of equal weight in the kernel; take 1 or 3",
        ),
        ((HOURS, 1.0, RBF(4.0), 5, 3), "bits must be"),
    ],
)
def test_curves_that_make_no_sense_are_refused(arguments, match) -> None:
    refused(ParameterError, match, lambda: Curve(*arguments))


def test_columns_that_hold_no_curves_are_refused() -> None:
    space = Curve(HOURS, 1.0, RBF(2.0), 11)
    refused(ColumnError, "another length than 24.* row position 0", lambda: space.encode([[1.0] * 23]))
    refused(ColumnError, "NaN or null within a list", lambda: space.encode([[math.nan] * 24]))
    rough = Curve(HOURS, 1.0, RBF(4.0), 11)
    short = pa.array([[0.5] * 24], pa.list_(pa.float32()))
    refused(ColumnError, "cannot hold; convert it to lists of doubles", lambda: rough.encode(short))
    assert len(Curve(HOURS, 1.0, RBF(4.0), 4).encode(short)) == 1
    refused(ParameterError, "curves must be an array of shape", lambda: space.norms([1.0]))
    refused(ParameterError, "curves must be an array of shape", lambda: space.at([[1.0]], [0.5]))
