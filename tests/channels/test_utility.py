"""The exponential mechanism for any utility, and the exact loss of any channel."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.accounting import finite
from dpframe.channels import Exponential
from dpframe.channels.utility import exponential
from dpframe.spaces import Ordinal


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_distance_as_utility_is_the_known_mechanism(epsilon, delta):
    space = Ordinal(list("abcde"))
    order = {letter: i for i, letter in enumerate("abcde")}
    own = exponential(space, lambda x, y: -abs(order[x] - order[y]), epsilon, delta)
    known = Exponential.calibrate(space, epsilon, delta)
    np.testing.assert_allclose(own.transition(), known.transition(), atol=1e-7)
    assert own.loss.delta(epsilon) <= delta
    assert own.loss.epsilon(delta) > 0.999 * epsilon


def test_a_base_measure_and_a_utility_decide_the_law():
    """e^(k·u)·base, normalised: ratios of one row are what they say, and the loss is spent."""
    utility, base = np.array([[0, -1, -3], [-2, 0, -1], [-1, -2, 0.0]]), np.array([3.0, 1.0, 2.0])
    laws = exponential(["a", "b", "c"], utility, 1.5, base=base).transition().T
    rate = math.log(laws[0, 0] / laws[0, 1] * base[1] / base[0])
    expected = base * np.exp(rate * utility)
    np.testing.assert_allclose(laws, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    assert 1.4999 < finite.tight(laws) <= 1.5 + 1e-9


def test_it_releases_columns():
    frame = pd.DataFrame({"grade": list("abc") * 500})
    near = exponential(["a", "b", "c"], lambda x, y: -float(x != y), 2.0)
    safe = frame.dp.sanitize(4.0, 1e-6, spaces={"grade": ["a", "b", "c"]}, mechanisms={"grade": near})
    counts = safe.dp.value_counts("grade", normalize=True)
    assert ((counts["estimate"] - 1 / 3).abs() < 5 * counts["std_error"]).all()


BAD = {
    "shape": (([[0.0]],), {}, "utility must have a row and a column for each of the 2 values"),
    "nan": (([[0.0, math.nan], [0.0, 0.0]],), {}, "utility must be finite"),
    "infinite": ((lambda x, y: math.inf,), {}, "utility must be finite"),
    "flat": ((lambda x, y: 1.0,), {}, "utility is the same for all releases"),
    "alike": (([[0.0, 1.0], [0.0, 1.0]],), {}, "utility gives a channel that is singular"),
    "base": (([[1.0, 0.0], [0.0, 1.0]],), {"base": [1.0, 0.0]}, "base must have a positive weight for each of the 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_utilities_that_decide_nothing_are_refused(name):
    (utility,), options, says = BAD[name]
    with pytest.raises(dpf.ParameterError, match=says):
        exponential(["a", "b"], utility, 1.0, **options)
    with pytest.raises(dpf.ParameterError, match="for at most 256 codes"):
        exponential((0, 256), lambda x, y: -abs(x - y), 1.0)


def brute(rows, epsilon, pairs):
    """The largest P(S) − e^ε·P'(S) over all events of all pairs."""
    events = [s for r in range(len(rows[0]) + 1) for s in itertools.combinations(range(len(rows[0])), r)]
    return max(
        float(sum(rows[x][y] for y in s)) - math.exp(epsilon) * float(sum(rows[z][y] for y in s))
        for x, z in pairs
        for s in events
    )


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (4, 3), (5, 6)])
def test_tight_is_the_worst_event(shape):
    rng = np.random.default_rng(0)
    rows = [[Fraction(int(w)) for w in rng.integers(0, 9, shape[1])] for _ in range(shape[0])]
    rows = [[w / (sum(row) or 1) for w in row] if sum(row) else [Fraction(1, shape[1])] * shape[1] for row in rows]
    every = list(itertools.permutations(range(shape[0]), 2))
    for epsilon in (0.0, 0.3, 1.0):
        assert finite.tight(rows, epsilon=epsilon) == pytest.approx(max(0.0, brute(rows, epsilon, every)), abs=1e-12)
        near = [(0, 1), (1, 0)]
        found = finite.tight(rows, epsilon=epsilon, neighbours=[(0, 1)])
        assert found == pytest.approx(max(0.0, brute(rows, epsilon, near)), abs=1e-12)
        at = finite.tight(rows, delta=found + 1e-9, neighbours=[(0, 1)])
        assert at <= epsilon + 1e-9


def test_what_is_no_channel_is_refused():
    for bad, says in (
        ([[0.5, 0.4]], "rows of probabilities that sum to 1; the one at position 0"),
        ([[0.5, 0.5], [1.0]], "as many outputs each"),
        ([], "a row for each input"),
        ([["a"]], "must hold probabilities"),
        ([[math.nan, 1.0]], "must hold probabilities"),
    ):
        with pytest.raises(dpf.ParameterError, match=says):
            finite.tight(bad)
    with pytest.raises(dpf.ParameterError, match="epsilon and delta are both given"):
        finite.tight([[1.0]], epsilon=1.0, delta=0.1)
    with pytest.raises(dpf.ParameterError, match=r"neighbours must be pairs.*0 to 1"):
        finite.tight([[0.5, 0.5], [0.5, 0.5]], neighbours=[(0, 2)])
    assert finite.tight([[1.0, 0.0], [0.0, 1.0]]) == math.inf
    assert finite.tight([[0.2, 0.8]]) == 0.0
