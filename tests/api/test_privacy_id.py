"""Rows of persons: as many of each, whoever is in the table, by a secret uniform choice."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import VISITS as SPACES
from examples import visits

import dpframe as dpf
from dpframe.cli.main import main

KEY = bytes(range(32))


def test_a_person_with_a_thousand_rows_moves_as_many_as_are_kept():
    """The person stands at the end, so that all others' rows have the places, and the choices, that they had."""
    others = visits([3] * 200 + [1] * 300)
    one = pd.DataFrame({"patient": ["q"], "age": [3], "visit": ["home"]})
    many = pd.DataFrame({"patient": ["q"] * 1_000, "age": [99] * 1_000, "visit": ["ward"] * 1_000})
    for rows in (1, 3):
        tables = [pd.concat([others, own], ignore_index=True) for own in (one, many)]
        told = {"spaces": SPACES, "privacy_id": "patient", "measure": None}
        plans = [dpf.plan(t, 1.0, 1e-6, **told, contributions=rows) for t in tables]
        assert plans[0] == plans[1]
        assert plans[0].n == 501 * rows
        # At such an epsilon rows leave as they are: what is compared is which were chosen.
        exact = [t.dp.sanitize(epsilon=1e4, delta=1e-6, **told, contributions=rows, key=KEY) for t in tables]
        first, second = (Counter(safe[["age", "visit"]].itertuples(index=False, name=None)) for safe in exact)
        assert (first - second).total() > 0  # the choice did move
        assert (first - second).total() <= rows
        assert (second - first).total() <= rows


def test_the_id_does_not_leave_and_everyone_weighs_alike():
    frame = visits([50] * 100 + [1] * 400)
    frame["age"] = np.where(frame.groupby("patient")["age"].transform("size") > 1, 100, 0)
    safe = dpf.sanitize(frame, epsilon=50.0, delta=1e-6, spaces=SPACES, privacy_id="patient", key=KEY)
    assert list(safe.columns) == ["age", "visit"]
    assert len(safe) == 500
    assert safe.dp.mean("age")["estimate"] == pytest.approx(20, abs=4), "a fifth of the persons, most of the rows"
    assert "Persons: 1 row of each, chosen in secret by 'patient'" in str(dpf.Estimates(safe).plan)
    assert "identifies persons" in str(dpf.Estimates(safe).plan.verify())
    again = dpf.Plan.from_json(dpf.Estimates(safe).plan.to_json())
    assert again == dpf.Estimates(safe).plan
    assert again.privacy_id == "patient"
    assert "patient" not in str(safe.attrs).replace('"privacy_id": "patient"', "").replace('\\"patient\\"', "")


def test_inference_counts_chosen_rows_alone_and_a_plan_chooses_again(tmp_path):
    frame = visits([20] * 300 + [1] * 1_500)
    plan = dpf.plan(frame, 8.0, 1e-6, privacy_id="patient")
    assert plan.n == 1_800
    safe = dpf.sanitize(frame, plan=plan, key=KEY)
    assert len(safe) == 1_800
    assert "patient" not in safe.columns
    with pytest.raises(dpf.ParameterError, match="privacy_id names 'patient', which is not a column"):
        dpf.sanitize(frame.drop(columns="patient"), plan=plan)


BAD = {
    "no column": ({"privacy_id": "person"}, "privacy_id names 'person', which is not a column; columns are"),
    "no name": ({"privacy_id": 3}, "privacy_id must be the name of the column"),
    "kept order": ({"privacy_id": "patient", "shuffle": False}, "privacy_id needs rows in a secret order"),
    "copied": ({"privacy_id": "patient", "passthrough": ["age"], "spaces": None}, "privacy_id needs rows in a secret"),
    "no rows": (
        {"privacy_id": "patient", "contributions": 0},
        r"contributions must be a whole.*with privacy_id",
    ),
    "rows": (
        {"privacy_id": "patient", "contributions": 256},
        r"contributions must be a whole.*with privacy_id",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_chosen_by_is_refused(name):
    options, says = BAD[name]
    given = {"spaces": SPACES} | options
    if name == "copied":
        given["spaces"] = {"visit": SPACES["visit"]}
    with pytest.raises((dpf.ParameterError, dpf.errors.PlanError), match=says):
        dpf.sanitize(visits([2, 1, 4]), epsilon=1.0, delta=1e-6, **given)


def test_ids_that_name_nobody_are_refused():
    frame = visits([2, 1, 4])
    frame.loc[4, "patient"] = None
    with pytest.raises(dpf.ColumnError, match=r"column 'patient' at row.*4:.*privacy_id names a"):
        dpf.sanitize(frame, epsilon=1.0, delta=1e-6, spaces=SPACES, privacy_id="patient")
    frame["patient"] = np.linspace(0, 1, len(frame))
    with pytest.raises(dpf.ColumnError, match=r"'patient': has type double, and privacy_id must be.*cast it to text"):
        dpf.sanitize(frame, epsilon=1.0, delta=1e-6, spaces=SPACES, privacy_id="patient")
    frame["patient"] = [1, 1, 2, 2, 2, 3, 3]
    frame.loc[5, "visit"] = None
    with pytest.raises(dpf.ColumnError, match="'visit' at row position 5: is null"):
        dpf.sanitize(frame, epsilon=1.0, delta=1e-6, spaces=SPACES, privacy_id="patient", contributions=2)


def test_contributions_alone_are_said_to_be_believed():
    plan = dpf.plan(visits([2] * 50), 1.0, 1e-6, spaces=SPACES, drop=["patient"], contributions=2)
    assert "BELIEVED, not enforced: that nobody owns more than 2 rows (see privacy_id)" in str(plan)


def test_the_command_line_chooses(tmp_path):
    visits([3] * 100).to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "spaces.json").write_text('{"visit": ["home", "clinic", "ward"], "age": {"lower": 0, "upper": 100}}')
    given = f"--epsilon 1 --spaces {tmp_path}/spaces.json --privacy-id patient"
    with pytest.raises(SystemExit) as stopped:
        main(["sanitize", f"{tmp_path}/in.parquet", f"{tmp_path}/out.parquet", *given.split()])
    assert stopped.value.code in (0, None)
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 100


@pytest.mark.slow
def test_neighbouring_persons_are_as_close_as_is_promised():
    """1,500 keys a side, n = 30 persons at (1, 1e-3): a person of 40 rows against one of a single other row.

    The clearest event, the number of rows at the person's value, is seen with frequencies p and q; that
    p > e^ε·q + δ shows with all errors below 1e-6 would be a violation.
    """
    others = visits([2] * 29)
    others["visit"] = "home"
    tables = [
        pd.concat([others, pd.DataFrame({"patient": ["q"] * rows, "age": [age] * rows, "visit": [visit] * rows})])
        for rows, age, visit in ((1, 0, "clinic"), (40, 100, "ward"))
    ]
    # Of Arrow, which is released in a third of the time that pandas takes.
    tables = [pa.Table.from_pandas(table, preserve_index=False) for table in tables]
    plan = dpf.plan(tables[0], 1.0, 1e-3, spaces=SPACES, privacy_id="patient", measure=None)
    seen = [
        [
            dpf.sanitize(t, plan=plan, key=(2 * k + i).to_bytes(32, "big"))["visit"].to_pylist().count("ward")
            for k in range(1_500)
        ]
        for i, t in enumerate(tables)
    ]
    for least in range(1, 31):
        p, q = ((np.array(side) >= least).mean() for side in seen[::-1])
        assert p - np.e * q - 1e-3 < 5 * np.sqrt((p + np.e**2 * q + 1e-4) / 1_500)


WIDE = {
    "odd": [2**53 + i for i in range(40)],
    "snowflakes": [2**60 + i for i in range(40)],
    "negative": [-(2**60) + i for i in range(40)],
    "unsigned": [2**64 - 1 - i for i in range(40)],
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_ids_are_told_apart(name, tmp_path):
    """Ids beyond 2^53, which floats merge: found by an attack."""
    type_ = pa.uint64() if name == "unsigned" else pa.int64()
    table = pa.table({"patient": pa.array(WIDE[name], type_), "visit": ["home"] * 40})
    spaces = {"visit": SPACES["visit"]}
    assert len(dpf.sanitize(table, epsilon=1.0, delta=1e-6, spaces=spaces, privacy_id="patient", contributions=2)) == 80
    pq.write_table(table, tmp_path / "in.parquet")
    options = {"spaces": spaces, "privacy_id": "patient", "contributions": 2}
    assert dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 1.0, 1e-6, **options).n == 80


def test_a_refusal_tells_nothing_of_the_choice():
    """The one bad row is one of fifty of its person: chosen or not, the table is refused, with its place."""
    frame = visits([50] * 4)
    frame.loc[7, "visit"] = "elsewhere"
    for key in range(12):
        with pytest.raises(dpf.ColumnError, match="'visit' at row position 7"):
            dpf.sanitize(frame, epsilon=1.0, delta=1e-6, spaces=SPACES, privacy_id="patient", key=bytes([key]) * 32)


@pytest.mark.parametrize("kind", ["polars categorical", "polars enum", "views", "null entry"])
def test_ids_of_any_kind_of_text(kind):
    polars = pytest.importorskip("polars")
    ids, visit = [f"p{i % 7}" for i in range(30)], ["home", "ward", "clinic"] * 10
    series = polars.Series("patient", ids)
    table = {
        "polars categorical": lambda: polars.DataFrame({"visit": visit}).with_columns(series.cast(polars.Categorical)),
        "polars enum": lambda: polars.DataFrame({"visit": visit}).with_columns(
            series.cast(polars.Enum([f"p{i}" for i in range(7)]))
        ),
        "views": lambda: pa.table({"visit": visit, "patient": pa.array(ids, pa.string_view())}),
        "null entry": lambda: pa.table(
            {
                "visit": visit,
                "patient": pa.DictionaryArray.from_arrays(
                    pa.array([i % 7 for i in range(30)]), pa.array([*(f"p{i}" for i in range(7)), None])
                ),
            }
        ),
    }[kind]()
    safe = dpf.sanitize(
        table, epsilon=1.0, delta=1e-6, spaces={"visit": SPACES["visit"]}, privacy_id="patient", measure=None
    )
    assert len(safe) == 7


def test_lists_of_views_are_taken_and_the_id_is_not_dropped_twice():
    table = pa.table({"l": pa.array([["a"], ["b"], []] * 10).cast(pa.list_(pa.string_view())), "patient": range(30)})
    spaces = {"l": dpf.Subset(["a", "b"])}
    assert len(dpf.sanitize(table, epsilon=1.0, spaces=spaces, privacy_id="patient")) == 30
    with pytest.raises(dpf.ParameterError, match=r"does not leave by.*drop and passthrough"):
        dpf.sanitize(table, epsilon=1.0, spaces=spaces, privacy_id="patient", drop=["patient"])


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_ids_of_invalid_text_are_ids(type_):
    """An error of Arrow's quoted the id; its bytes name a person as any others do."""
    binary = pa.array([b"ann", b"\xff\xfe918", b"ann"] * 10, pa.binary() if type_ == pa.string() else pa.large_binary())
    ids = pa.Array.from_buffers(type_, len(binary), binary.buffers())
    table = pa.table({"visit": ["home", "ward", "home"] * 10, "patient": ids})
    safe = dpf.sanitize(table, epsilon=1.0, delta=0, spaces={"visit": SPACES["visit"]}, privacy_id="patient")
    assert len(safe) == 2


@pytest.mark.parametrize(
    ("name", "options", "warns"),
    [
        ("patient", {}, True),
        ("Customer", {}, True),
        ("patient", {"contributions": 2}, False),
        ("patient", {"privacy_id": "patient"}, False),
        ("patient", {"drop": ["patient"]}, False),
        ("patients_seen", {}, False),
    ],
)
def test_a_column_that_may_name_persons_is_asked_after(name, options, warns):
    frame = pd.DataFrame({name: [f"p{i // 2}" for i in range(60)], "sex": ["F", "M"] * 30})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpf.plan(frame, epsilon=1, **options)
    asked = [str(w.message) for w in caught if "may name persons" in str(w.message)]
    assert len(asked) == warns
    assert all(f"pass privacy_id={name!r}" in text for text in asked)
