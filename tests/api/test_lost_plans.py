"""Releases that lost what they say of themselves: a name that the index had gives them away, and the remedy is said."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.errors import DpframeWarning, NotSanitizedError

SPACES = {"age": (0, 120), "sex": ["F", "M"]}
MATCH = r"^the table has 'shuffled' as a column or index.*dpframe\.read\(path\)"


@pytest.fixture
def safe():
    people = dpf.datasets.make_census(300, columns=["age", "sex"])
    return people.dp.sanitize(epsilon=1, delta=1e-6, spaces=SPACES)


def lost(safe, way, path):
    if way == "constructor":
        return pd.DataFrame(safe)
    safe.to_csv(path)
    return pd.read_csv(path, index_col=0 if way == "index" else None)


@pytest.mark.parametrize("way", ["constructor", "column", "index"])
def test_noise_on_noise_is_warned_of(safe, way, tmp_path):
    frame = lost(safe, way, tmp_path / "safe.csv")
    frame.attrs = {}
    drop = ["shuffled"] if way == "column" else []
    for call in (frame.dp.sanitize, frame.dp.plan):
        with pytest.warns(DpframeWarning, match=MATCH):
            call(epsilon=1, delta=1e-6, spaces=SPACES, drop=drop)


def test_a_file_with_its_index_is_warned_of(safe, tmp_path):
    safe.to_csv(tmp_path / "safe.csv")
    with pytest.warns(DpframeWarning, match=MATCH):
        dpf.sanitize(tmp_path / "safe.csv", tmp_path / "again.csv", 1, 1e-6, spaces=SPACES, drop=["shuffled"])


WARDS = pd.DataFrame({"sex": ["F", "M"], "ward": ["north", "south"]})
WAYS = {
    "merge": lambda safe, path: safe.merge(WARDS, on="sex"),
    "merge of the right": lambda safe, path: WARDS.merge(safe, on="sex"),
    "CSV without the index": lambda safe, path: through_csv(safe, path, index=False),
    "merge, CSV": lambda safe, path: through_csv(safe.merge(WARDS, on="sex"), path, index=False),
    "sorted, CSV": lambda safe, path: through_csv(safe.sort_values("age"), path, index=False),
    "Arrow": lambda safe, path: pa.table({name: safe[name].to_numpy() for name in safe}),
    "polars": lambda safe, path: pl.DataFrame({name: safe[name].to_numpy() for name in safe}),
}


def through_csv(frame, path, **options):
    frame.to_csv(path, **options)
    return pd.read_csv(path)


@pytest.mark.parametrize("way", WAYS)
def test_a_release_is_known_by_its_rows(safe, way, tmp_path):
    """Nothing was said where neither the plan nor the index's name had survived."""
    table = WAYS[way](safe, tmp_path / "safe.csv")
    names = list(table.columns) if hasattr(table, "columns") and not isinstance(table, pa.Table) else table.column_names
    drop = [name for name in names if name not in SPACES]
    for call in (dpf.plan, dpf.sanitize):
        with pytest.warns(DpframeWarning, match="^the table has the rows of a release.*original table"):
            call(table, epsilon=1, delta=1e-6, spaces=SPACES, drop=drop)


def test_two_small_tables_that_are_alike_are_none(tmp_path):
    """Of five answers yes or no, in any order, one table in six is a release of another by chance."""
    answers = pd.DataFrame({"ill": [True, False, True, True, False]})
    for _ in range(2):
        answers.dp.sanitize(epsilon=50, delta=0, spaces={"ill": [True, False]}, key=bytes(32))


def test_other_tables_are_not(safe, tmp_path):
    frame = dpf.datasets.make_census(300, columns=["age", "sex"]).rename_axis("row")
    assert len(frame.dp.sanitize(epsilon=1, delta=1e-6, spaces=SPACES)) == 300  # warnings are errors in tests


def test_the_remedy_is_said_where_there_is_no_plan(safe, tmp_path):
    dpf.write(safe, tmp_path / "safe.csv")
    frame = pd.read_csv(tmp_path / "safe.csv")
    assert "is read by dpframe.read(path) with its plan" in repr(frame.dp)
    with pytest.raises(NotSanitizedError, match=r"no release plan.*dpframe\.read\(path\)"):
        frame.dp.mean("age")
    dpf.read(tmp_path / "safe.csv").dp.mean("age")
