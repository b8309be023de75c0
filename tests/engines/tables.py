"""The tables that engines are tried on, and what is expected of each."""

import pandas as pd

import dpframe as dpf

KEY = bytes(range(32))
SPACES = {
    "age": (0, 120),
    "sex": ["F", "M"],
    "education": dpf.Ordinal(dpf.datasets.EDUCATION),
    "occupation": dpf.Nullable(dpf.Categorical(dpf.datasets.OCCUPATIONS)),
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "hobbies": dpf.Subset(dpf.datasets.HOBBIES, max_size=3),
}
ROWS = 5_000


def people(rows=ROWS):
    """A table with lists in place of sets, as files have them."""
    table = dpf.datasets.make_census(rows, columns=list(SPACES))
    return table.assign(hobbies=table["hobbies"].map(sorted))


def plan_of(table, **options):
    return dpf.plan(table, **{"epsilon": 3, "spaces": SPACES, **options})


def write_files(table, folder):
    """Write two files of several row groups each; return the folder."""
    folder.mkdir()
    cut = len(table) * 2 // 5
    table[:cut].to_parquet(folder / "a.parquet", row_group_size=600)
    table[cut:].to_parquet(folder / "b.parquet", row_group_size=1_100)
    return folder


def same(left, right):
    """Compare releases whose types an engine chose: values, order and description."""
    assert left.attrs == right.attrs
    assert left.columns.tolist() == right.columns.tolist()
    for name in right.columns:
        ours, theirs = (_plain(frame[name]) for frame in (left, right))
        assert ours == theirs, name


def _plain(series):
    return [None if value is None or value is pd.NA or value != value else value for value in map(_value, series)]


def _value(value):
    listed = isinstance(value, list | tuple | set) or (hasattr(value, "tolist") and value.shape)
    return tuple(value) if listed else value
