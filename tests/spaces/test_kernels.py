"""The basis of curves is one that machines agree on."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern

from dpframe.spaces.curves import leading_basis

HOURS = np.arange(24.0)
KERNELS = [(RBF(3.0), 6), (Matern(4.0, nu=2.5), 8), (ExpSineSquared(1.0, 24.0), 7)]


@pytest.mark.parametrize(("kernel", "rank"), KERNELS)
def test_the_basis_is_no_choice_of_the_library_s(kernel, rank) -> None:
    """Rounding elsewhere changes signs and, of equal eigenvalues, all vectors: the basis it hardly moves."""
    gram, rng = kernel(HOURS[:, None]), np.random.default_rng(2)
    basis, duals = leading_basis(gram, rank)
    for _ in range(5):
        noise = rng.normal(size=gram.shape) * 1e-15
        again, own = leading_basis(gram + noise + noise.T, rank)
        np.testing.assert_allclose(again, basis, atol=1e-7)
        # A quarter of a grid step of 16 bits.
        np.testing.assert_allclose(own @ basis, np.eye(rank), atol=0.25 / 65_535 / rank)
    np.testing.assert_allclose(duals @ basis, np.eye(rank), atol=1e-9)
    turned = np.random.default_rng(3).permutation(24)  # another order of work in the library
    again, _ = leading_basis(gram[np.ix_(turned, turned)], rank)
    np.testing.assert_allclose(again @ again.T, (basis @ basis.T)[np.ix_(turned, turned)], atol=1e-9)
