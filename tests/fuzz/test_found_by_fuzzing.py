"""What random input found: each stands here with the smallest input that shows it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.gaussian_process.kernels import RBF

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import mu_of
from dpframe.api.curator_check import check
from dpframe.cli import main
from dpframe.errors import ParameterError, PlanError
from dpframe.inference.inferred import Inferred, Measured
from dpframe.plan.build import build_plan
from dpframe.plan.plan import Plan
from dpframe.spaces.declare import as_space, check_declaration

HUGE = 10**400
"""A whole number beyond all floats, as JSON may hold it."""


def test_numbers_beyond_all_floats_are_refused() -> None:
    with pytest.raises(ParameterError, match="bound must be a number above 0"):
        dpf.Vector(2, HUGE)
    with pytest.raises(ParameterError, match=r"grid must be 2 to \d+ numbers that ascend"):
        dpf.Curve([0, HUGE], 1.0, RBF(1.0), rank=1)
    with pytest.raises(ParameterError, match=r"grid must be 2 to \d+ numbers that ascend"):
        dpf.Curve([0, np.complex128(1 + 1j)], 1.0, RBF(1.0), rank=1)
    with pytest.raises(ParameterError, match=r"kernel RBF has the.*length_scale, each above 0"):
        dpf.Curve(range(3), 1.0, {"name": "RBF", "length_scale": HUGE}, rank=1)


@pytest.mark.parametrize("values", [np.array("a"), np.array([["a"]]), np.float64(1)])
def test_arrays_of_no_or_two_dimensions_are_no_list(values: Any) -> None:
    for kind in (dpf.Categorical, dpf.Ordinal, dpf.Subset):
        with pytest.raises(ParameterError, match=r"(categories|items) must be a list of values"):
            kind(values)


@pytest.mark.parametrize("tag", [pd.Index([]), np.zeros(2), pd.DataFrame({"a": [1]})], ids=["index", "array", "frame"])
def test_arrays_are_no_tag_of_a_space(tag: Any) -> None:
    for spec in ({"space": tag}, {"space": tag, "inner": (0, 1)}):
        with pytest.raises(PlanError, match="unknown space tag; this version knows"):
            check_declaration(spec)
        with pytest.raises(PlanError, match="unknown space tag; this version knows"):
            as_space(spec)


@pytest.mark.parametrize("bits", [16.0, True, "16", [16]])
def test_bits_are_whole_numbers(bits: Any) -> None:
    """16.0 is 16, and shifts nothing."""
    with pytest.raises(ParameterError, match="bits must be 2, 4, 8 or 16"):
        dpf.Vector(2, 1.0, bits=bits)
    plan = build_plan({"a": dpf.Nullable(dpf.Vector(2, 1.0, bits=8))}, epsilon=1.0).to_json()
    with pytest.raises(PlanError, match="bits must be 2, 4, 8 or 16"):
        Plan.from_json(plan.replace('"bits": 8', f'"bits": {json.dumps(bits)}'))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"counts": (5, HUGE, 7)}, "must be whole numbers of 64 bits, with a variance from 1e-9 to 1e30"),
        ({"missing": -HUGE}, "must be whole numbers of 64 bits"),
        ({"variance": 5e-324}, "with a variance from 1e-9 to 1e30"),
        ({"variance": True}, "with a variance from 1e-9 to 1e30"),
        ({"variance": HUGE}, "with a variance from 1e-9 to 1e30"),
        ({"counts": (5, 6)}, "must be as many as cells, and one more than edges between intervals"),
        ({"kind": "values", "cells": ("a", "b")}, "must be as many as cells"),
        ({"cells": (20, 10)}, "edges between intervals of measured counts must ascend"),
        ({"cells": (10, HUGE)}, "cells of measured counts must be numbers between intervals"),
    ],
)
def test_counts_of_inference_that_contradict_themselves_are_refused(change: dict[str, Any], match: str) -> None:
    counts = Measured("age", "intervals", (10, 20), (5, 6, 7), 4.0)
    with pytest.raises(PlanError, match=match):
        replace(counts, **change)


def test_cells_that_are_not_nested_are_refused() -> None:
    """They were an unhandled error of the fit when the plan was printed."""
    rounds = [Measured("age", "intervals", cells, (5, 6, 7), 4.0) for cells in ((10, 20), (10, 30))]
    with pytest.raises(PlanError, match=r"must be among those.*column measured later"):
        Inferred(Budget(0.1, 1e-6), ("age",), tuple(rounds))


@pytest.mark.parametrize("kind", ["intervals", "norms"])
@pytest.mark.parametrize("space", [dpf.Categorical(["a"]), dpf.Datetime("2020-01-01", "2020-02-01"), dpf.Boolean()])
def test_counts_of_another_space_say_nothing(kind: str, space: dpf.Space) -> None:
    """As when a space is put in the place of the inferred one by hand."""
    inferred = Inferred(Budget(0.1, 1e-6), ("x",), (Measured("x", kind, (10, 20), (5, 6, 7), 4.0),))
    plan = build_plan({"x": space}, epsilon=1.0, delta=1e-5, n=1_000, inferred=inferred)
    assert plan.not_found == ()
    assert "x" in str(plan)


def test_contributions_and_shuffle_are_checked_before_anything_is_inferred() -> None:
    frame = pd.DataFrame({"a": ["x"] * 100})
    for contributions in ({}, [2], 0, 1.5, "2", True):
        with pytest.raises(ParameterError, match=r"contributions must be a.*at least 1"):
            dpf.plan(frame, 1.0, contributions=contributions)
    for shuffle in (0, "no", None):
        with pytest.raises(ParameterError, match="shuffle must be True or False"):
            dpf.plan(frame, 1.0, shuffle=shuffle)


def test_the_least_delta_there_is() -> None:
    """Halves of it vanish: a root between two of them was divided by 0."""
    data = json.loads(build_plan({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0, delta=0.0, n=60).to_json())
    plan = Plan.from_json(json.dumps(data | {"delta": 5e-324}))
    assert str(plan)
    assert plan.verify().ok


def test_the_largest_epsilon_there_is() -> None:
    """Twice of it is infinite; a warning of numpy's came of it, and then a NaN."""
    assert 0 < mu_of(-1.0, 1e308) < math.inf


LONG = "9" * 400


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", LONG],
        ["verify", LONG],
        ["estimate", LONG, "mean", "age"],
        ["plan", "in.parquet", "--epsilon", "1", "-o", LONG],
        ["sanitize", "in.parquet", LONG, "--epsilon", "1"],
        ["sanitize", "in.parquet", "out.parquet", "--plan", LONG],
        ["plan", "in.parquet", "--epsilon", "1", "--ledger", LONG, "--dataset", "survey"],
        ["ledger", "show", LONG],
        ["ledger", "forget", "l.sqlite", "--dataset", "survey", "--job", "\ud800"],
    ],
)
def test_names_that_no_file_can_have_are_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", print)  # restored afterwards
    pd.DataFrame({"age": range(50)}).to_parquet("in.parquet")
    dpf.Ledger("l.sqlite").create("survey", 1.0)
    with pytest.raises(SystemExit) as stopped:
        main.main(words)
    said = capsys.readouterr()
    assert (stopped.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "l.sqlite"]


@pytest.mark.parametrize("rows", ["null", "0", "1.0", "true"])
@pytest.mark.parametrize("spaces", [{}, {"a": dpf.Boolean()}])
def test_contributions_are_a_number_in_plans_of_no_column_too(spaces: Any, rows: str) -> None:
    plan = Plan(epsilon=1.0, delta=0.0, columns=()) if not spaces else build_plan(spaces, epsilon=1.0)
    with pytest.raises(PlanError, match=r"contributions must be a.*at least 1"):
        Plan.from_json(plan.to_json().replace('"contributions": 1', f'"contributions": {rows}'))


@pytest.mark.filterwarnings("ignore::dpframe.PrivacyLeakWarning")
@pytest.mark.parametrize("rows", [0, 300])
def test_categoricals_of_polars_are_read_off_the_data(rows: int) -> None:
    """Their entries are views, of which Arrow takes no rows; a curator's check decodes them, too."""
    frame = polars.DataFrame({"a": polars.Series(["x", "y", "x"] * (rows // 3), dtype=polars.Categorical)})
    plan = dpf.plan(frame, 5.0, infer="data")
    if rows:
        assert set(plan["a"].space.categories) >= {"x", "y"}
        assert check(frame, plan).columns.loc["a", "outside"] == 0
