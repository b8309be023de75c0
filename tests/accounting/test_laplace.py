"""The two scales of (ε, δ)-Laplace noise, beside the divergence by quadrature and the library's own noise."""

import itertools
import math

import pytest
from scipy import integrate

from dpframe.accounting.laplace import laplace_scale, published_laplace_scale
from dpframe.channels import Geometric
from dpframe.errors import ParameterError


def divergence(scale, epsilon):
    """∫ (f(y) − e^ε·f(y − 1))₊ of Laplace's density, over pieces without a kink."""

    def excess(y):
        f, moved = (math.exp(-abs(value) / scale) / (2 * scale) for value in (y, y - 1))
        return max(f - math.exp(epsilon) * moved, 0.0)

    border = (1 - epsilon * scale) / 2  # where the densities' ratio is e^ε
    ends = sorted((-60 * scale, 0.0, max(0.0, border), 1.0))
    return sum(integrate.quad(excess, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("delta", [1e-3, 0.05, 0.3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_one_is_tight_and_the_other_spends_half(epsilon, delta):
    tight, published = laplace_scale(1.0, epsilon, delta), published_laplace_scale(1.0, epsilon, delta)
    assert divergence(tight, epsilon) == pytest.approx(delta, rel=1e-6)
    assert divergence(published, epsilon) == pytest.approx(1 - math.sqrt(1 - delta), rel=1e-6)
    assert tight < published
    assert divergence(tight * 0.999, epsilon) > delta


def test_released_noise_is_the_tight_one():
    """On a fine grid of a column between 0 and 1 the noise has the tight scale, in grid steps."""
    for epsilon, delta in ((1.0, 0.0), (1.0, 0.05), (0.2, 0.3)):
        steps = 1 << 16
        rate = Geometric(steps, epsilon, delta).table.rate
        assert 1 / (rate * steps) == pytest.approx(laplace_scale(1.0, epsilon, delta), rel=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [((0.0, 1.0, 0.1), "sensitivity must be finite"), ((1.0, -1.0, 0.1), "epsilon"), ((1.0, 1.0, 1.0), "delta")],
)
def test_refused_values(values, message):
    for scale in (laplace_scale, published_laplace_scale):
        with pytest.raises(ParameterError, match=message):
            scale(*values)
