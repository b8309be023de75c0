"""Columns of lists as tables of their own: equal bytes, lists again, sequences of numbers, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from linked_tables import KEY, KEYS, SPACES, covers, made_tables

import dpframe as dpf


@pytest.fixture(scope="module")
def tables():
    return made_tables(1_500)


def as_lists(tables):
    """Return patients with a column of their visits, as Python lists of dictionaries."""
    groups = {key: part.to_dict("records") for key, part in tables["visits"].set_index("patient_id").groupby(level=0)}
    patients = tables["patients"]
    lists = [groups.get(key, []) for key in patients["patient_id"]]
    return patients.drop(columns="patient_id").assign(visits=pd.Series(lists, dtype=object))


LIST_SPACES = {**SPACES["patients"], "visits": dpf.Records(SPACES["visits"], max_rows=3)}


def test_a_column_of_lists_is_a_child_table(tables):
    """Bytes are those of two tables with the position of a row as key, from lists of Python and of Arrow."""
    frame = as_lists(tables)
    safe = frame.dp.sanitize(epsilon=4, spaces=LIST_SPACES, key=KEY)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    patients = frame.drop(columns="visits").assign(row=range(len(frame)))
    visits = pa.Table.from_pandas(frame["visits"].explode().dropna().apply(pd.Series).reset_index(names="row"))
    both = {"persons": patients, "visits": visits}
    spaces = {"persons": SPACES["patients"], "visits": SPACES["visits"]}
    options = {"keys": {"visits": {"row": "persons"}}, "contributions": 3, "spaces": spaces}
    two = dpf.sanitize(both, epsilon=4, key=KEY, **options)
    assert {name: info.plan for name, info in safe.releases.items()} == {n: i.plan for n, i in two.releases.items()}
    from_arrow = dpf.sanitize(arrow, epsilon=4, spaces=LIST_SPACES, key=KEY)
    plan = dpf.plan(arrow, epsilon=4, spaces=LIST_SPACES)
    planned = dpf.sanitize(frame, plan=dpf.LinkedPlan.from_json(plan.to_json()), key=KEY)
    for name in two:
        objects = two[name].astype({column: object for column in ("kind", "cost") if column in two[name]})
        pd.testing.assert_frame_equal(from_arrow[name], two[name], check_dtype=False)
        for part in (safe, planned):
            assert part[name].isna().equals(objects.isna())
            pd.testing.assert_frame_equal(part[name].dropna(), objects.dropna(), check_dtype=False)


def test_hidden_items_of_a_null_list_are_none():
    items = pa.array([{"kind": "u"}, {"kind": "v"}] * 200)
    lists = pa.ListArray.from_arrays(pa.array(range(0, 401, 2)), items, mask=pa.array([True] + [False] * 199))
    frame = pa.table({"visits": lists})
    safe = dpf.sanitize(frame, epsilon=8, spaces={"visits": dpf.Records({"kind": ["u", "v"]}, max_rows=2)}, key=KEY)
    assert {name: len(part) for name, part in safe.items()} == {"persons": 200, "visits": 400}


def test_synthetic_lists_and_functions_of_them(tables, tmp_path):
    """Under one key: 99.9 % intervals of three numbers."""
    frame = as_lists(tables)
    safe = dpf.sanitize(frame, tmp_path / "release", epsilon=4, spaces=LIST_SPACES, key=KEY)
    safe = dpf.read(tmp_path / "release")
    drawn = safe.synthesize(0)
    assert list(drawn.columns) == ["sex", "ward", "age", "visits"]
    assert {field for visit in drawn["visits"].explode().dropna() for field in visit} == {"kind", "cost"}

    def numbers(table):
        costs = table["visits"].explode().dropna().map(lambda visit: visit["cost"])
        return pd.Series({"n": table["visits"].map(len).mean(), "cost": costs.mean()})

    answer = safe.infer(numbers, confidence_level=0.999)
    assert covers(answer, numbers(frame))
    assert (answer["std_error"] < [0.1, 12]).all()
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("clinic", epsilon=5, delta=1e-5)
    dpf.sanitize(frame, epsilon=4, spaces=LIST_SPACES, ledger=ledger, dataset="clinic")
    assert len(ledger.history("clinic")) == 1


@pytest.mark.slow
def test_sequences_of_numbers_have_positions():
    """Of growing sequences of no to six numbers, a number is about its position plus one half."""
    rng = np.random.default_rng(0)
    values = [(np.arange(size) + rng.random(size)).tolist() for size in rng.integers(0, 7, 2_000)]
    frame = pa.table({"sex": ["F", "M"] * 1_000, "x": pa.array(values, pa.list_(pa.float64()))})
    spaces = {"sex": ["F", "M"], "x": dpf.Records((0.0, 7.0), max_rows=6, max_count=6)}
    safe = dpf.sanitize(frame, epsilon=8, spaces=spaces, key=KEY)
    means = safe["x"].dp.mean("value", by="position", confidence_level=0.999)
    assert covers(means, pd.Series(np.arange(6) + 0.5, index=means.index))
    drawn = safe.synthesize(0)["x"]
    assert drawn.map(len).max() <= 6
    steps = np.concatenate([np.diff(value) for value in drawn])
    assert 0.6 < np.mean(steps) < 1.1


BAD_LISTS = {
    "no lists": ({"visits": [1] * 4}, {}, "column 'visits' at row position 0: holds a value that is no list"),
    "no dimension": (
        {"visits": pd.Series([np.array(1)] * 4, dtype=object)},
        {},
        "position 0: holds a value that is no",
    ),
    "no records": ({"visits": [[1]] * 4}, {}, "column 'visits' at row position 0: holds an item that is no record"),
    "field": (
        {"visits": [[], [{"sort": "u"}], [], []]},
        {},
        "at row position 1: has records with a field that Records",
    ),
    "value": (
        {"visits": [[], [], [{"kind": "x"}], []]},
        {},
        "'visits' at row position 2: .'kind' of its items. holds a",
    ),
    "null": ({"visits": [[], [], [{}], []]}, {}, "'visits' at row position 2: .'kind' of its items. is null"),
    "Arrow numbers": (
        {"visits": pd.Series([1] * 4, dtype="int64[pyarrow]")},
        {},
        "holds int64, and Records are for lists",
    ),
    "name": ({"persons": [[]] * 4}, {"spaces": {"persons": dpf.Records({}, max_rows=1)}}, "'persons' cannot name one"),
    "no column": ({}, {"spaces": {"stays": dpf.Records({}, max_rows=1)}}, "spaces names 'stays', which is no column"),
    "contributions": ({}, {"contributions": 2}, "with Records a row is a person.*leave contributions out"),
    "keys": ({}, {"keys": KEYS}, "keys, orphans and max_count are for dictionaries of tables"),
    "rows": (
        {},
        {"spaces": {"visits": dpf.Records({"kind": ["u"]}, max_rows=999)}},
        "max_rows of 'visits' must be a wh",
    ),
    "two tables": ({}, {"two": True}, "Records are for plan, expect and sanitize of one frame"),
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_wrong_lists_are_refused(name):
    columns, options, says = BAD_LISTS[name]
    frame = pd.DataFrame({"sex": ["F", "M"] * 2, "visits": [[{"kind": "u"}]] * 4}).assign(**columns)
    options = {
        "epsilon": 1,
        "spaces": {"sex": ["F", "M"], "visits": dpf.Records({"kind": ["u"]}, max_rows=2)},
        **options,
    }
    if options.pop("two", False):
        options |= {"keys": KEYS, "contributions": 1, "spaces": {"patients": {"visits": dpf.Records({}, max_rows=1)}}}
        frame = {"patients": frame.assign(patient_id=range(4)), "visits": pd.DataFrame({"patient_id": [1]})}
    with pytest.raises((dpf.errors.ParameterError, dpf.errors.ColumnError), match=says):
        dpf.sanitize(frame, **options)


def test_records_without_a_declaration_are_told_what_to_declare():
    frame = pa.table({"visits": pa.array([[{"kind": "u"}], []])})
    with pytest.raises(dpf.errors.ColumnError, match=r"declare dpf\.Records\(\{FIELD: space\}, max_rows=…\)"):
        dpf.sanitize(frame, epsilon=1)


def test_two_fields_of_one_name_and_a_column_with_the_name_of_rows_are_refused():
    fields = pa.StructArray.from_arrays([pa.array(["u"]), pa.array(["v"])], names=["kind", "kind"])
    frame = pa.table({"visits": pa.ListArray.from_arrays([0, 1], fields)})
    options = {"epsilon": 1, "spaces": {"visits": dpf.Records({"kind": ["u", "v"]}, max_rows=1)}}
    with pytest.raises(dpf.errors.ColumnError, match="'visits': has records with two fields 'kind'; rename one of the"):
        dpf.sanitize(frame, **options)
    frame = pd.DataFrame({"sex": ["F", "M"] * 50, "visits": [[{"kind": "u"}], []] * 50})
    plan = dpf.plan(frame, **{**options, "spaces": {"sex": ["F", "M"], **options["spaces"]}})
    with pytest.raises(dpf.errors.ColumnError, match="'row': is the plan's name for rows, and no column of the pla"):
        dpf.sanitize(frame.assign(row=1), plan=plan)


def test_lists_of_releases_and_of_csv_files_are_refused(tmp_path):
    spaces = {"sex": ["F", "M"]}
    safe = dpf.sanitize(pd.DataFrame({"sex": ["F", "M"] * 50}), epsilon=1, spaces=spaces, key=KEY)
    lists = {**spaces, "visits": dpf.Records({}, max_rows=1)}
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="the table is a release already"):
        dpf.sanitize(safe, epsilon=1, spaces=lists)
    safe.to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(dpf.errors.ParameterError, match="CSV has no lists; pass a frame or Parquet with Records"):
        dpf.sanitize(tmp_path / "in.csv", epsilon=1, spaces=lists)


@pytest.mark.parametrize(("items", "options"), [({}, {"max_rows": 0}), ({}, {"max_rows": 2, "max_count": 1})])
def test_numbers_of_records_are_whole(items, options):
    with pytest.raises(dpf.errors.ParameterError, match=r"max_(rows|count) must be a whole number of rows of a person"):
        dpf.Records(items, **options)
    with pytest.raises(dpf.errors.ParameterError, match="Records within Records are refused"):
        dpf.Records({"x": dpf.Records({}, max_rows=1)}, max_rows=1)
