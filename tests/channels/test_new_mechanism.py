"""A first version of a mechanism is one class of calibration, loss, sample and weights: all else has defaults."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from checks import check_mechanism

import dpframe as dpf
from dpframe import Integer, Nullable
from dpframe.accounting.budget import check_delta, check_epsilon
from dpframe.accounting.finite import FiniteLoss
from dpframe.channels import MECHANISMS, Mechanism, WithNull, mechanism_for
from dpframe.channels.base import IntArray
from dpframe.channels.nullable import NullFamily
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import WORD, ChannelTable, integer_weights


@dataclass(frozen=True)
class Falling(Mechanism):
    """Noise whose law falls by one factor every two steps, saturated at the ends of 0…size−1."""

    size: int
    epsilon: float
    delta: float = 0.0

    tag: ClassVar[str] = "falling"
    metrics: ClassVar[frozenset[str]] = frozenset({"line"})

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @cached_property
    def laws(self) -> tuple[tuple[int, ...], ...]:
        span, last = self.size - 1, self.size // 2
        with localcontext(Context(prec=60)):
            factor = (-Decimal(self.epsilon) * (1 - Decimal(10) ** -12) / last).exp()
            steps = [factor ** -(-abs(k) // 2) for k in range(-span, span + 1)]
            steps[0] = steps[-1] = steps[0] * (1 + factor) / (1 - factor)  # all that is farther away, span being even
        noise = integer_weights([int((1 << 100) * step) for step in steps])
        found = [[0] * self.size for _ in range(self.size)]
        for x, law in enumerate(found):
            for k, weight in zip(range(-span, span + 1), noise, strict=True):
                law[min(max(x + k, 0), span)] += weight
        return tuple(map(tuple, found))

    @cached_property
    def table(self) -> ChannelTable:
        return ChannelTable.build(self.laws)

    @cached_property
    def loss(self) -> FiniteLoss:
        return FiniteLoss(self.laws, WORD)

    def weights(self, code: int) -> tuple[list[int], int]:
        return self.table.weights(code), WORD

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        self.table.sample(codes, stream, first_row, out)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "falling", Falling)
    monkeypatch.setitem(MECHANISMS, "nullable_falling", NullFamily(Falling))


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_defaults_keep_what_mechanisms_promise(epsilon: float) -> None:
    check_mechanism(Falling(9, epsilon))
    check_mechanism(WithNull(Falling, (9,), epsilon))


def test_null_stands_beside_a_new_mechanism_in_plans_and_estimates() -> None:
    space, ages = Nullable(Integer(0, 8)), pd.DataFrame({"a": pd.array([3, None, 5, 8, 0, 3] * 500, dtype="Int64")})
    mechanism = mechanism_for(space, 2.0, 0.0, "nullable_falling")
    assert mechanism.size == space.size
    made = dpf.plan(ages, 3.0, spaces={"a": space}, mechanisms={"a": "nullable_falling"}, shuffle=False)
    again = type(made).from_json(made.to_json())
    assert again.columns[0].mechanism == made.columns[0].mechanism
    safe = dpf.sanitize(ages, plan=again, key=bytes(32))
    mean = safe.dp.mean("a")
    # Six standard errors are exceeded with probability 2e-9.
    assert mean["estimate"] == pytest.approx(3.8, abs=6 * mean["std_error"])
    assert np.isfinite(mean["std_error"])
