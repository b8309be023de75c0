"""Small tables: fewer questions, generous bounds, identifiers left out, and no number that is wrong without a word."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.infer.private import Measurement, histograms_of, rounds_of
from dpframe.spaces.field import Field

KEY = bytes(range(32))


def fields(count):
    return [Field(f"x{i}", pa.float64(), False) for i in range(count)]


def said(recwarn):
    """What was warned of since it was last asked."""
    texts = [str(w.message) for w in recwarn]
    recwarn.clear()
    return texts


def test_rounds_follow_from_rows_columns_and_promise():
    whole = Budget(1.0, 1e-6)
    assert [rounds_of(fields(10), n, whole) for n in (100, 2_500, 3_000, 100_000)] == [1, 2, 3, 3]
    assert rounds_of(fields(40), 3_500, whole) == 1
    assert rounds_of(fields(10), 3_500, Budget(4.0, 1e-6)) == 3
    assert rounds_of(fields(10), 100_000, whole, contributions=100) == 1
    assert rounds_of(fields(10), 100, Budget(1.0, 0.0)) == 3
    assert [len(histograms_of(fields(1), 10, rounds=r)) for r in (1, 2, 3)] == [1, 2, 3]


def test_fewer_rounds_have_less_noise_and_noise_of_their_own():
    table = {f"x{i}": pa.array(np.arange(500.0)) for i in range(5)}

    def drawn(rounds):
        own = Measurement.of(fields(5), 500, Budget(1.0, 1e-6), rounds=rounds)
        return own.draw(lambda names: iter([{name: table[name] for name in names}]), KEY).measured

    one, three = drawn(1), drawn(3)
    assert len(one) == 5
    assert len(three) == 15
    assert 2.8 < three[0].variance / one[0].variance < 3.2
    # Under one key other words: two requests that differ share no noise.
    ends = [[m.counts[0], m.counts[-1]] for m in (one[0], three[0])]
    assert ends[0] != ends[1]


@pytest.mark.parametrize("low", [0, 1_900, -40])
def test_a_single_round_bounds_generously(low, recwarn):
    """Bounds hold nearly all rows, and are at most four times as wide as the values are far."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"x": generator.integers(low, low + 80, 600).astype(float)})
    safe = dpf.sanitize(frame, 2.0, 1e-6, key=KEY)
    space = dpf.Estimates(safe).plan["x"].space
    inside = frame["x"].between(space.lower, space.upper).mean()
    assert not said(recwarn)
    assert inside > 0.9
    assert space.upper - space.lower < 4 * max(abs(low + 80), 80)


def test_zeros_alone_are_not_found(recwarn):
    """Mostly zero, and the others spread over sizes: no bounds within the smallest float."""
    generator = np.random.default_rng(0)
    tail = np.where(generator.random(1_300) < 0.85, 0.0, generator.lognormal(0, 4, 1_300))
    frame = pd.DataFrame({f"x{i}": tail for i in range(14)})
    safe = dpf.sanitize(frame, 1.0, key=KEY)
    assert said(recwarn)
    plan = dpf.Estimates(safe).plan
    found = {c.name: c.space for c in plan.columns} | {missing.column: None for missing in plan.not_found}
    assert all(space is None or space.inner_space.upper > 1e-3 for space in found.values())
    assert plan.not_found


def test_a_spike_at_zero_lies_within_bounds_at_zero(recwarn):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.where(generator.random(30_000) < 0.5, 0.0, generator.random(30_000) * 5)})
    safe = dpf.sanitize(frame, 1.0, key=KEY)
    assert not said(recwarn)
    mean = safe.dp.mean("x")
    assert abs(mean["estimate"] - frame["x"].mean()) < 5 * mean["std_error"]


def test_columns_of_few_rows_have_one_ways_of_their_own():
    """Where pairs drown in their noise counts of single columns get most of it."""
    spaces = {name: list("abcdefgh") for name in "pqrstuvw"}
    frame = pd.DataFrame({name: ["a", "b"] * 150 for name in spaces})
    few, many = (dpf.make_plan(frame, e, 1e-6, spaces=spaces).measures for e in (0.5, 8.0))
    assert {m.columns for m in few if m.kind == "one_way"} == {(name,) for name in spaces}
    assert not [m for m in many if m.kind == "one_way"]
    one, pair = (next(m.sigma2 for m in few if m.kind == kind) for kind in ("one_way", "joint"))
    assert one < pair / 2


def people(n=3_000):
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "patient_id": generator.integers(0, 99_999, n),
            "name": [f"n{i}" for i in range(n)],
            "age": generator.integers(0, 99, n),
            "id": np.ones(n, dtype=bool),
        }
    )


def test_identifiers_are_left_out_with_one_warning(recwarn):
    safe = dpf.sanitize(people(), 1.0, key=KEY)
    assert list(safe.columns) == ["age", "id"]  # a truth value tells nobody apart
    (text,) = said(recwarn)
    assert "left out as identifiers, by their names: patient_id, name" in text
    assert "spaces={'patient_id': …}" in text
    assert "privacy_id='patient_id'" in text
    assert dpf.Estimates(safe).plan.drop == ("patient_id", "name")


def test_identifiers_that_are_named_are_left_as_they_are_asked_for(recwarn):
    frame = people()
    dpf.sanitize(frame, 1.0, drop=["patient_id", "name"], key=KEY)
    assert not said(recwarn)
    safe = dpf.sanitize(frame[["age", "patient_id"]], 1.0, spaces={"patient_id": (0, 99_999)}, key=KEY)
    assert list(safe.columns) == ["age", "patient_id"]
    assert not said(recwarn)
    safe = dpf.sanitize(frame[["age", "patient_id"]], 1.0, privacy_id="patient_id", key=KEY)
    assert list(safe.columns) == ["age"]
    assert not said(recwarn)
    with pytest.raises(dpf.ColumnError, match="column 'patient_id': looks like an identifier"):
        frame[["patient_id", "name"]].dp.sanitize(epsilon=1)
