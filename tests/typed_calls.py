"""Typical calls as users write them: basedpyright checks their types in `.ci/run`; Jedi completes them in a test.

A comment ``pyright: ignore`` marks a call that type checkers must refuse: it is an error itself if they do not.
"""

from pathlib import Path
from typing import assert_type

import pandas as pd
import polars as pl
import pyarrow as pa

import dpframe as dpf
from dpframe.plan.plan import Plan
from dpframe.proofs.verify import Certificate
from dpframe.release.expected_errors import Expectation
from dpframe.release.info import ReleaseInfo


def release_tables(frame: pd.DataFrame, arrow: pa.Table, polars: pl.DataFrame, path: Path) -> None:
    """A release is a table of the kind of its source, and with a target a summary."""
    assert_type(dpf.sanitize(frame, epsilon=1, spaces={"age": (0, 120)}), dpf.ReleaseFrame)
    assert_type(dpf.sanitize(arrow, epsilon=1), pa.Table)
    assert_type(dpf.sanitize(polars, epsilon=1), pl.DataFrame)
    assert_type(dpf.sanitize(path, epsilon=1), dpf.ReleaseFrame)
    assert_type(dpf.sanitize("in.csv", "out.csv", epsilon=1, drop=["id"]), ReleaseInfo)
    assert_type(dpf.sanitize(frame, path, epsilon=1), ReleaseInfo)
    assert_type(dpf.read(path), dpf.ReleaseFrame)
    assert_type(dpf.attach(arrow, dpf.Plan.read(path)), pa.Table)
    dpf.sanitize(frame, epsilon="1")  # pyright: ignore[reportCallIssue, reportArgumentType]
    dpf.sanitize(frame, epsilon=1, budget=2)  # pyright: ignore[reportCallIssue]


def plan_a_release(frame: pd.DataFrame) -> None:
    """A raw table has the verbs of raw tables."""
    assert_type(dpf.plan(frame, epsilon=1), Plan)
    assert_type(dpf.RawAccessor(frame).plan(epsilon=1), Plan)
    assert_type(dpf.RawAccessor(frame).expect(epsilon=1), Expectation)
    assert_type(dpf.RawAccessor(frame).draft(), dpf.DraftedSpaces)
    assert_type(dpf.RawAccessor(frame).sanitize(epsilon=1), dpf.ReleaseFrame)
    assert_type(dpf.RawAccessor(frame).sanitize(epsilon=1, target="out.parquet"), ReleaseInfo)
    _ = dpf.RawAccessor(frame).mean  # pyright: ignore[reportAttributeAccessIssue]


def ask_a_release(frame: pd.DataFrame) -> None:
    """A release has statistics, and no verbs of raw tables."""
    safe = dpf.sanitize(frame, epsilon=1)
    assert_type(safe.dp.plan, Plan)
    assert_type(safe.dp.release, ReleaseInfo)
    assert_type(safe.dp.verify(), Certificate)
    assert_type(safe.dp.value_counts("sex"), pd.DataFrame)
    assert_type(safe.dp.regress("visits ~ age"), pd.DataFrame)
    assert_type(dpf.ReleaseAccessor(frame).histogram("age", bins=5), pd.DataFrame)
    assert_type(safe.dp.value_counts(["sex", "ward"], confidence_level=0.9, long=True), pd.DataFrame)
    assert_type(dpf.error_bars(safe.dp.crosstab("sex", "ward")).ndim, int)
    safe.dp.mean("age", by="sex", where={"age": (18, None)}, confidence_level=0.9, long=True)
    safe.dp.corr("age", "visits")
    safe.dp.plot(safe.dp.count({"sex": "F"}))
    safe.dp.mean("age", confidence_level="90 %")  # pyright: ignore[reportArgumentType]
    safe.dp.mean("age", group="sex")  # pyright: ignore[reportCallIssue]
    _ = safe.dp.groupby  # pyright: ignore[reportAttributeAccessIssue]
    _ = safe.dp.sanitize  # pyright: ignore[reportAttributeAccessIssue]


def catch_errors(frame: pd.DataFrame) -> None:
    """Errors are in their module, and at the top."""
    try:
        dpf.sanitize(frame, epsilon=1)
    except dpf.errors.BudgetExceeded as error:
        assert_type(error, dpf.BudgetExceeded)
