"""The exact laws of numbers with special values, by enumeration, and faults that the enumeration finds."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpframe as dpf
from dpframe.channels import Geometric, Mechanism, WithNull
from dpframe.channels.base import mechanism_for, response_table
from dpframe.channels.geometric import GivenNoise
from dpframe.plan.build import build_plan
from dpframe.plan.certificate import prove
from dpframe.spaces import Space

SPACES: list[Space] = [
    dpf.Integer(0, 3, special=["refused"]),
    dpf.Nullable(dpf.Integer(0, 3, special=["refused"])),
    dpf.Nullable(dpf.Integer(0, 4, special=["refused", "does not apply", -9])),
    dpf.Datetime("2020-01-01", "2020-01-06", special=["9999-12-31", "unknown"]),
]


def laws(mechanism: Mechanism) -> list[list[Fraction]]:
    """Return P(released code | code) of all codes, exactly."""
    rows = [mechanism.weights(code) for code in range(mechanism.size)]
    assert all(sum(weights) == total for weights, total in rows)
    return [[Fraction(weight, total) for weight in weights] for weights, total in rows]


def largest_loss(rows: list[list[Fraction]]) -> float:
    return max(math.log(p / q) for one in rows for other in rows for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize("tag", ["laplace", "randomized_response"])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_no_pair_of_codes_loses_more_than_is_stated(space: Space, epsilon: float, tag: str):
    mechanism = mechanism_for(space, epsilon, 0.0, tag)
    rows, stated = laws(mechanism), mechanism.loss
    assert largest_loss(rows) <= stated.pure() * (1 + 1e-12) <= epsilon * (1 + 1e-12)
    # The whole ε is used, between a number and a code as well.
    assert largest_loss(rows) > 0.999 * epsilon
    assert largest_loss([rows[space.values - 1], rows[space.values]]) > 0.999 * epsilon
    for x in (0.0, 0.1, epsilon / 2):
        bound = Fraction(math.exp(x))
        worst = max(sum(max(Fraction(0), p - bound * q) for p, q in zip(a, b, strict=True)) for a in rows for b in rows)
        assert float(worst) <= stated.delta(x) * (1 + 1e-12)
    assert mechanism.blanket <= float(sum(map(min, zip(*rows, strict=True)))) * (1 + 1e-12)
    assert not prove("a", mechanism).failures


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_inverse_undoes_the_law(space: Space):
    mechanism, generator = mechanism_for(space, 1.0, 0.0), np.random.default_rng(0)
    matrix = np.array(laws(mechanism), dtype=np.float64).T
    unit, counts, values = (
        np.eye(mechanism.size),
        generator.random((mechanism.size, 2)),
        generator.random(mechanism.size),
    )
    assert np.allclose(np.stack([mechanism.law(code) for code in range(mechanism.size)], axis=1), matrix)
    assert np.allclose(mechanism.invert(unit) @ matrix, unit)
    assert np.allclose(mechanism.invert(unit, squared=True), mechanism.invert(unit) ** 2)
    assert np.allclose(mechanism.apply(counts), matrix @ counts)
    assert np.allclose(mechanism.apply(counts, adjoint=True), matrix.T @ counts)
    assert np.allclose(matrix.T @ mechanism.surrogate(values), values)
    edges, starts = np.array([0, 2, space.values]), np.array([0, 1, 3, *range(space.values, space.size)])
    cells = [slice(0, 2), slice(2, space.values), *(slice(code, code + 1) for code in range(space.values, space.size))]
    of_stretches = np.add.reduceat(matrix, starts, axis=0)
    expected = np.stack([of_stretches[:, cell].mean(axis=1) for cell in cells], axis=1)
    assert np.allclose(mechanism.between(edges, starts), expected)


def test_a_plan_whose_flag_has_other_codes_than_its_space_is_refused():
    plan = build_plan({"a": dpf.Nullable(dpf.Integer(0, 3, special=["refused"]))}, epsilon=1.0)
    data = json.loads(plan.to_json())
    data["columns"][0]["mechanism"] |= {"flag_codes": 1, "span": 4}
    with pytest.raises(dpf.PlanError, match="the mechanism's flag has 1 codes, the space 2 special values and null"):
        dpf.Plan.from_json(json.dumps(data))


class FreeFlag(WithNull):
    """A fault: the flag spends the whole ε beside numbers that spend it too, and nobody is charged for the flag."""

    @property
    def _parts(self) -> Any:
        table = Geometric(self.shape[0], self.epsilon).table
        return response_table(self.flag_codes + 1, self.epsilon), GivenNoise(table)


class UncountedFlag(FreeFlag):
    """The same fault, which also states the loss of the numbers alone."""

    @property
    def loss(self) -> Any:
        return self.inner.loss


@pytest.mark.parametrize(("fault", "said"), [(FreeFlag, "claims epsilon="), (UncountedFlag, "states a loss of")])
def test_a_flag_that_is_not_charged_is_caught(fault: Any, said: str):
    mechanism = fault(Geometric, (3,), 1.0, 0.0, 2)
    assert largest_loss(laws(mechanism)) > 1.3
    assert any(said in failure for failure in prove("a", mechanism).failures)


def test_a_square_wave_has_a_flag_of_one_special_value():
    mechanism = mechanism_for(dpf.Integer(0, 3, special=["refused"]), 1.0, 0.0, "square_wave")
    assert mechanism.size == 5
    assert largest_loss(laws(mechanism)) <= 1.0
    assert not prove("a", mechanism).failures
