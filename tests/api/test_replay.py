"""The audit by replay finds nothing in releases, and finds what is planted."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.api.replay import FACES, replayed
from dpframe.cli.main import main

CENSUS = dpf.datasets.make_census(150, columns=["age", "sex", "occupation", "income", "hobbies"])
SPACES = {
    "age": (18, 95),
    "sex": ["F", "M"],
    "occupation": dpf.Nullable(dpf.Categorical(dpf.datasets.OCCUPATIONS, other="other")),
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "hobbies": dpf.Nullable(dpf.Subset(dpf.datasets.HOBBIES, 3)),
}
PLANS = {
    "secret order": {},
    "kept order": {"shuffle": False, "delta": 0.0},
    "sample": {"sample": 40},
    "groups": {"groups": [("sex", "age")]},
}


def plan(**options):
    return dpf.plan(CENSUS, 2.0, **{"delta": 1e-4, "spaces": SPACES, "nulls": "impute"} | options)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_releases_differ_in_one_row_and_nothing_else(name):
    found = dpf.audit(CENSUS, plan(**PLANS[name]), runs=40, random_state=1)
    assert found.ok, str(found)
    assert found.edits == 40
    assert "at most one released row differed, and nothing else" in str(found)


def order_of_first_appearance(table, made, key):
    """A dictionary with its entries in the order in which they occur in the input."""
    safe = FACES["memory"](table, made, key)
    seen = [v for v in dict.fromkeys(table.column("sex").to_pylist()) if v is not None]
    again = pd.Categorical(safe.column("sex").to_pylist(), categories=[*seen, *({"F", "M"} - set(seen))])
    column = pa.DictionaryArray.from_pandas(again)
    return safe.set_column(safe.column_names.index("sex"), "sex", column)


def row_groups_of_the_input(table, made, key):
    """A layout that follows the rows that came in: chunks end where the first value occurs."""
    safe = FACES["memory"](table, made, key)
    cut = table.column("age").to_pylist().index(max(v for v in table.column("age").to_pylist() if v is not None))
    return pa.concat_tables([safe.slice(0, cut), safe.slice(cut)])


def null_mask_copied(table, made, key):
    """Nulls where they were in the input, whatever was drawn."""
    safe = FACES["memory"](table, made, key)
    mask = table.column("income").is_null().to_numpy()
    values = np.where(mask, np.nan, np.array(safe.column("income").to_pandas().fillna(0.0)))
    return safe.set_column(safe.column_names.index("income"), "income", pa.array(values, from_pandas=True))


def noise_by_content(table, made, key):
    """Noise that hangs on another row's value: a key derived from the data."""
    first = table.column("age").to_pylist()[0] or 0
    return FACES["memory"](table, made, bytes([int(first) % 256]) + key[1:])


def attrs_kept(table, made, key):
    """A description that tells of the input."""
    safe = FACES["memory"](table, made, key)
    top = str(max(v for v in table.column("age").to_pylist() if v is not None))
    return safe.replace_schema_metadata({**safe.schema.metadata, b"max": top.encode()})


def warns_of_a_value(table, made, key):
    if max(v for v in table.column("age").to_pylist() if v is not None) > 95:
        import warnings

        warnings.warn("clipped", stacklevel=1)
    return FACES["memory"](table, made, key)


PLANTED = {
    order_of_first_appearance: "order of a dictionary changed",
    row_groups_of_the_input: "layout changed",
    null_mask_copied: "row changed",
    noise_by_content: "more than one released row changed",
    attrs_kept: "other metadata changed",
    warns_of_a_value: "warnings changed",
}


@pytest.mark.walk(1)
@pytest.mark.parametrize("face", PLANTED, ids=lambda face: face.__name__)
def test_planted_faults_are_found(face):
    """On a table of six rows, most of whose edits touch what the fault hangs on."""
    table = pa.Table.from_pandas(CENSUS.head(6), preserve_index=False)
    found = replayed(table, plan(measure=None).replan(6), 120, 0, faces={"planted": face})
    assert not found.ok
    assert any(PLANTED[face] in failure for failure in found.failures), str(found)
    assert "planted" in str(found)


def test_what_cannot_be_audited_is_refused():
    made = plan()
    with pytest.raises(dpf.ParameterError, match="plan must be a Plan"):
        dpf.audit(CENSUS, made.to_json())
    with pytest.raises(dpf.ParameterError, match="edits must be a whole number"):
        dpf.audit(CENSUS, made, runs=0)
    with pytest.raises(dpf.ParameterError, match="the table has no rows, or the plan randomises no column"):
        dpf.audit(CENSUS.head(0), made)
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="audit the plan on the original table"):
        dpf.audit(dpf.sanitize(CENSUS, plan=made), made)
    with pytest.raises(dpf.ColumnError, match="'income': is in the plan but not in the table"):
        dpf.audit(CENSUS.drop(columns="income"), made)


def test_refusals_are_counted():
    strict = dpf.plan(CENSUS[["sex"]], 1.0, spaces={"sex": ["F", "M"]})
    found = dpf.audit(CENSUS[["sex"]], strict, runs=60, random_state=0)
    assert found.ok
    assert found.refused > 5
    assert "were refused, and a refusal that is seen reveals a value" in str(found)


@pytest.mark.slow
def test_the_command_line_audits_and_writes_nothing(tmp_path, capsys):
    CENSUS.to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "plan.json").write_text(plan().to_json(), encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    options = ["--replay", str(tmp_path / "in.parquet"), "--plan", str(tmp_path / "plan.json"), "--edits", "16"]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as stopped:
            main(["audit", *options, *more])
        assert not stopped.value.code
    text, told = capsys.readouterr().out.splitlines()
    assert text.startswith("16 edits: at most one released row differed, and nothing else")
    assert json.loads(told)["ok"]
    assert sorted(tmp_path.iterdir()) == before
    assert pq.read_metadata(tmp_path / "in.parquet").num_rows == 150


NOT_NULLABLE = pa.schema([pa.field("s", pa.int64(), nullable=False)])
HONEST = {
    "not nullable": lambda: pa.table({"s": [0, 1, 2] * 10}, schema=NOT_NULLABLE),
    "numbers in a dictionary": lambda: pd.DataFrame({"s": pd.Categorical(np.arange(40) % 4)}),
    "lists of views": lambda: pl.DataFrame({"s": [0, 1, 2] * 10, "l": [["a"], ["b"], []] * 10}),
    "copied categories": lambda: pd.DataFrame({"s": np.arange(40) % 4, "c": pd.Categorical(list("ba") * 20)}),
}


@pytest.mark.walk(1)
@pytest.mark.parametrize("name", HONEST)
def test_honest_plans_raise_no_alarm(name):
    table = HONEST[name]()
    options = {"passthrough": ["c"]} if name == "copied categories" else {}
    spaces = {"s": (0, 4)} | ({"l": dpf.Subset(["a", "b"])} if name == "lists of views" else {})
    made = dpf.plan(table, 1.0, 1e-6, spaces=spaces, nulls="impute", **options)
    found = dpf.audit(table, made, runs=40, random_state=3)
    assert found.ok, str(found)
    left_out = dpf.plan(table, 1.0, drop=[*spaces, *options.get("passthrough", [])])
    with pytest.raises(dpf.ParameterError, match="or the plan randomises no column"):
        dpf.audit(table, left_out)
