"""Synthetic rows say what they hold: columns that were not found are null, pairs whose dependence shows are told."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf

KEY = bytes(range(32))
ROWS = 3_000


def frame():
    """Two columns that depend, one that does not, and a text that is another in every row."""
    generator = np.random.default_rng(0)
    group = generator.choice(["a", "b", "c"], ROWS)
    return pd.DataFrame(
        {
            "group": group,
            "level": np.where(group == "a", 1, generator.integers(0, 4, ROWS)),
            "coin": generator.choice(["x", "y"], ROWS),
            "note": [f"{i} {generator.integers(10**9)}" for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def safe():
    with pytest.warns(dpf.InferenceWarning):
        return dpf.sanitize(frame(), epsilon=4, delta=1e-6, key=KEY)


def test_pairs_that_depend_show(safe):
    found = dpf.Estimates(safe).fidelity()
    assert list(found.columns) == ["source", "dependence", "noise", "deviations", "shows"]
    pairs = found.drop("", level="with").dropna()
    assert ((pairs["deviations"] > 3) == pairs["shows"]).all()
    assert found.index.names == ["column", "with"]
    assert found["shows"].loc[("group", "")]
    assert not found["shows"].loc[("note", "")]
    assert found["source"].loc[("note", "")] == "none"
    assert found["shows"].loc[("group", "level")]
    assert found["dependence"].loc[("group", "coin")] < 0.1 * found["dependence"].loc[("group", "level")]
    assert found["dependence"].loc[("group", "level")] > 3 * found["noise"].loc[("group", "level")]
    pd.testing.assert_frame_equal(found, safe.dp.fidelity())


def test_rows_alone_tell_as_well():
    spaces = {"group": ["a", "b", "c"], "level": (0, 3), "coin": ["x", "y"]}
    safe = dpf.sanitize(frame().drop(columns="note"), epsilon=4, delta=1e-6, spaces=spaces, measure=None, key=KEY)
    found = dpf.Estimates(safe).fidelity()
    assert set(found["source"]) == {"rows"}
    assert found["shows"].loc[("group", "level")]
    assert found["dependence"].loc[("group", "coin")] < 0.2 * found["dependence"].loc[("group", "level")]


@pytest.mark.parametrize("rows", [None, 50])
def test_columns_that_were_not_found_are_null(safe, rows):
    with pytest.warns(dpf.InferenceWarning, match=r"synthetic rows leave null.*\n  note  .*  spaces={'note': "):
        drawn = safe.dp.synthesize(rows, random_state=0)
    assert drawn["note"].isna().all()
    assert drawn[["group", "level", "coin"]].notna().all(axis=None)
    said = json.loads(drawn.attrs["dpframe"])["synthetic"]
    assert said["not_found"] == ["note"]


@pytest.mark.parametrize(
    "kind",
    [pa.Table.from_pandas, pytest.param(lambda frame: pa.RecordBatch.from_pandas(frame), marks=pytest.mark.slow)],
)
def test_arrow_has_nulls_of_its_own_type(kind):
    table = kind(frame())
    with pytest.warns(dpf.InferenceWarning):
        safe = dpf.sanitize(table, epsilon=4, delta=1e-6, key=KEY)
    with pytest.warns(dpf.InferenceWarning, match=r"synthetic rows leave null.*\n  note  "):
        drawn = dpf.Estimates(safe).synthesize(random_state=0)
    assert type(drawn) is type(table)
    place = drawn.schema.get_field_index("note")
    assert drawn.column(place).null_count == ROWS


def test_rows_of_noise_warn():
    """By chance a pair of noise shows in one release of thirty; the others are named then."""
    spaces = {name: list("abcdef") for name in "uvw"}
    for key in range(3):
        generator = np.random.default_rng(key)
        small = pd.DataFrame({name: generator.choice(list("abcdef"), 300) for name in "uvw"})
        safe = dpf.sanitize(small, epsilon=0.2, delta=1e-6, spaces=spaces, key=bytes([key]) * 32)
        visible_pairs = int(dpf.Estimates(safe).fidelity()["shows"].iloc[3:].sum())
        fact = f"{3 - visible_pairs} of 3 pairs of columns show no" if visible_pairs else "no two columns show"
        with pytest.warns(dpf.InferenceWarning, match=f"{fact} dependence beyond noise"):
            safe.dp.synthesize(random_state=0)


def test_hidden_pairs_beside_a_visible_one_are_counted():
    generator = np.random.default_rng(0)
    columns = {name: generator.choice(list("abcdef"), 2_000) for name in "uvw"} | {"x": np.arange(2_000) % 2}
    table = pd.DataFrame(columns | {"y": columns["x"]})
    spaces = {name: list("abcdef") for name in "uvw"} | {"x": (0, 1), "y": (0, 1)}
    safe = dpf.sanitize(table, epsilon=0.2, delta=1e-6, spaces=spaces, key=KEY)
    shows = safe.dp.fidelity()["shows"].iloc[5:]
    assert shows["x", "y"]
    with pytest.warns(dpf.InferenceWarning, match=f"^{int((~shows).sum())} of 10 pairs .* show no dependence"):
        safe.dp.synthesize(random_state=0)


@pytest.mark.slow
def test_nothing_is_measured_of_what_was_not_found(safe):
    plan = dpf.Estimates(safe).plan
    assert [missing.column for missing in plan.not_found] == ["note"]
    generator = np.random.default_rng(0)
    few = pd.DataFrame({"age": generator.normal(35, 10, 90), "k": generator.integers(0, 50, 90)})
    with pytest.warns(dpf.InferenceWarning):
        small = dpf.sanitize(few, epsilon=0.3, delta=1e-6, spaces={"k": (0, 49)}, key=KEY)
    for one in (plan, dpf.Estimates(small).plan):
        lost = {missing.column for missing in one.not_found}
        assert lost
        assert one.measures
        assert not lost & {name for measure in one.measures for name in measure.columns}


def test_what_is_no_release_is_refused():
    with pytest.raises(dpf.NotSanitizedError):
        dpf.Estimates(frame()).fidelity()
