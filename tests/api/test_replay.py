"""The audit by replay finds nothing in releases; test_planted_faults.py says what it finds."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
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


def test_what_cannot_be_audited_is_refused():
    made = plan()
    with pytest.raises(dpf.ParameterError, match="plan must be a Plan"):
        dpf.audit(CENSUS, made.to_json())
    with pytest.raises(dpf.ParameterError, match="edits must be a whole number"):
        dpf.audit(CENSUS, made, runs=0)
    with pytest.raises(dpf.ParameterError, match=r"the table has no.*randomises no column"):
        dpf.audit(CENSUS.head(0), made)
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="audit the plan on the original table"):
        dpf.audit(dpf.sanitize(CENSUS, plan=made), made)
    with pytest.raises(dpf.ColumnError, match=r"'income': is in the.*in the table"):
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
