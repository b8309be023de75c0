"""Releases that lost what they say of themselves: a name that the index had gives them away, and the remedy is said."""

import pandas as pd
import pytest

import dpframe as dpf
from dpframe.errors import DpframeWarning, NotSanitizedError

SPACES = {"age": (0, 120), "sex": ["F", "M"]}
MATCH = (
    r"^the table has 'shuffled' as a column or index, as releases have, .*; if it is one, read it with dpframe\.read"
)


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


def test_other_tables_are_not(safe, tmp_path):
    frame = pd.DataFrame(safe).rename_axis("row")
    frame.attrs = {}
    assert len(frame.dp.sanitize(epsilon=1, delta=1e-6, spaces=SPACES)) == 300  # warnings are errors in tests


def test_the_remedy_is_said_where_there_is_no_plan(safe, tmp_path):
    dpf.write(safe, tmp_path / "safe.csv")
    frame = pd.read_csv(tmp_path / "safe.csv")
    assert "is read by dpframe.read(path) with its plan" in repr(frame.dp)
    with pytest.raises(
        NotSanitizedError, match=r"read its file with dpframe\.read\(path\), .*or give it back with attach"
    ):
        frame.dp.mean("age")
    dpf.read(tmp_path / "safe.csv").dp.mean("age")
