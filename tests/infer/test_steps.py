"""Floats that are multiples of a step come back on its grid, and what is counted for it costs what is said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.inference.cost import GaussianNoise
from dpframe.inference.numbers import Numbers
from dpframe.inference.private import Measurement
from dpframe.inference.steps import STEPS, is_on_grid, make_step_grid, step_counts
from dpframe.noise.gaussian import gaussian_table
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Nullable, Real
from dpframe.spaces.field import Field

KEY, N = bytes(range(32)), 20_000
RNG = np.random.default_rng(0)
FLOATS = {
    "whole": RNG.normal(45, 14, N).round(),
    "rating": RNG.integers(1, 6, N).astype(float),
    "half": RNG.gamma(3, 8, N).round() / 2,
    "decade": RNG.integers(0, 30, N) * 10.0,
    "thousand": np.exp(RNG.normal(3.5, 0.6, N)).round() * 1000,
    "cent": RNG.gamma(3, 4, N).round(2),
    "real": RNG.normal(10, 3, N),
}
WIDTHS = {"whole": 1, "rating": 1, "half": 0.5, "decade": 10, "thousand": 1000, "cent": 0.01}


def inferred(values, **options):
    table = pa.table({"x": pa.array(values)})
    own = Measurement.of([Field("x", table["x"].type, True)], len(table), Budget(1.0, 1e-6), **options)
    return own, own.draw(lambda names: iter(table.to_batches()), KEY)


def test_few_whole_floats_with_empty_cells_are_no_halves():
    """At 2,300 rows noise is about as large as the share that may lie off a grid; keys are fixed.

    Older versions of pandas have text as objects, and so other noise: one run in eight may then not see halves.
    """
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2_300) < 0.05, np.nan, rng.integers(18, 95, 2_300))
    frame = pd.DataFrame({"age": values, "halves": rng.integers(0, 99, 2_300) / 2, "sex": ["F", "M"] * 1_150})
    widths = {"age": [], "halves": []}
    for key in range(8):
        spaces = frame.dp.sanitize(epsilon=1, key=bytes([key]) * 32, measure=None).dp.plan.spaces
        for name, found in widths.items():
            found.append(spaces[name].inner_space.step)
    assert set(widths["age"]) == {1.0}
    assert widths["halves"].count(0.5) >= 7


@pytest.mark.parametrize("type_", ["float64", "float32"])
@pytest.mark.parametrize("name", FLOATS)
def test_multiples_of_a_step_are_put_on_its_grid(name, type_):
    space = inferred(FLOATS[name].astype(type_))[1].spaces["x"]
    if name not in WIDTHS:
        assert space.steps == Real.steps
        return
    assert space.step == pytest.approx(WIDTHS[name], rel=1e-12)
    assert space.lower == round(round(space.lower / WIDTHS[name]) * WIDTHS[name], 2)


@pytest.mark.slow
def test_whole_floats_come_back_whole_in_their_type_and_with_their_nulls():
    frame = pd.DataFrame(FLOATS)
    frame.loc[RNG.random(N) < 0.2, "whole"] = np.nan
    safe = dpf.sanitize(frame, epsilon=1.0, key=KEY)
    assert isinstance(dpf.Estimates(safe).plan["whole"].space, Nullable)
    for name in ("whole", "rating", "decade", "thousand"):
        values = safe[name].dropna()
        assert safe[name].dtype == np.float64
        assert (values % WIDTHS[name] == 0).all()


@pytest.mark.slow
def test_inference_counts_serve_estimates_of_a_column_on_its_own_grid():
    """Edges of intervals lie between two of the values: all rows below one are those of the codes below."""
    frame = pd.DataFrame({"rating": FLOATS["rating"], "half": FLOATS["half"], "cent": FLOATS["cent"]})
    keys = [bytes([i]) * 32 for i in range(2)]
    wrong, errors = 0, {name: [] for name in frame}
    for key in keys:
        estimates = dpf.Estimates(dpf.sanitize(frame, epsilon=0.5, key=key))
        for name in frame:
            mean = estimates.mean(name)
            errors[name].append((mean["estimate"] - frame[name].mean()) / mean["std_error"])
            wrong += not mean["lower"] <= frame[name].mean() <= mean["upper"]
    # Of 6 intervals that hold with probability 0.95, three are wrong in one of four hundred runs; keys are fixed.
    assert wrong <= 2
    assert max(np.abs(e).max() for e in map(np.array, errors.values())) < 4


def test_a_grid_of_other_values_takes_no_part_of_the_counts():
    """A plan may be edited: where values are no multiples of the space's step, edges cut its cells in part."""
    counts = [0, 0, 0, 5_000, 0, 0, 0, 0]
    spaces = [Real(0, 10, 10), Real(0, 10, 20), Real(0, 10, 5), Real(0.5, 10.5, 10), Real(0, 10, 7)]
    assert [is_on_grid(counts, 100.0, space) for space in spaces] == [True, True, False, False, False]
    assert not is_on_grid([0] * 7 + [5_000], 100.0, spaces[0])


@given(st.lists(st.floats(allow_nan=False), max_size=20), st.floats(allow_nan=False))
def test_a_row_counts_under_one_step_whatever_the_others(values, one):
    """So that another row in its place changes two counts, by 1 each."""
    with_it, without = step_counts(np.array([*values, one])), step_counts(np.array(values, dtype=float))
    assert sorted((with_it - without).tolist()) == [0] * (len(STEPS) - 1) + [1]


def test_steps_have_noise_of_their_own():
    noise = GaussianNoise(gaussian_table(400.0))
    task = Numbers(Field("x", pa.float64(), False), N, 3, counts_steps=True)
    task.noises = [noise] * 4
    counter = task.counter()
    task.measure(counter, noise, 0, Keystream(KEY).column("x", "infer"))
    steps, intervals = task.measured
    # Nothing was counted, and all cells show is noise: two cells are alike once in 70 times.
    alike = [a == b for a, b in zip(steps.counts, intervals.counts, strict=False)]
    assert sum(alike) < len(STEPS) / 2


@pytest.mark.slow
def test_a_plan_accounts_for_steps():
    measurement, _ = inferred(np.zeros(N))
    assert [h.kind for h in dict(measurement.asked)["x"]] == ["steps", *["intervals"] * 3]
    plan = dpf.Estimates(dpf.sanitize(pd.DataFrame({"x": FLOATS["whole"]}), epsilon=1.0, key=KEY)).plan
    assert plan.verify().ok
    without = tuple(m for m in plan.inferred.measured if m.kind != "steps")
    assert not replace(plan, inferred=replace(plan.inferred, measured=without)).verify().ok
    asked = tuple((name, tuple(h for h in own if h.kind != "steps")) for name, own in plan.inferred.asked)
    assert not replace(plan, inferred=replace(plan.inferred, asked=asked)).verify().ok


def test_few_rows_and_whole_numbers_are_not_asked_for_steps():
    for values, rounds in ((FLOATS["whole"], 1), (FLOATS["whole"].astype(int), 3)):
        measurement, _ = inferred(values, rounds=rounds)
        assert {h.kind for h in dict(measurement.asked)["x"]} == {"intervals"}


@pytest.mark.parametrize(
    ("low", "high", "step", "type_"),
    [
        (0.0, 1.0, 1.0, pa.float64()),
        (0.0, 1e6, 1.0, pa.float64()),
        (1e300, 2e300, 1.0, pa.float64()),
        (0.0, 60_000.0, 1.0, pa.float16()),
    ],
)
def test_bounds_of_too_few_or_too_many_multiples_keep_the_usual_grid(low, high, step, type_):
    assert make_step_grid(low, high, step, type_) is None
