"""Columns of lists of floats: their length and bound found in private, read off the data, or asked for."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import refused
from conftest import KEY

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.errors import ColumnError, InferenceWarning, ParameterError, PrivacyLeakWarning
from dpframe.inference.private import Inference, Measurement
from dpframe.spaces import Nullable, Space, Vector
from dpframe.spaces.arrays import float_norms, float_rows
from dpframe.spaces.ball import LONGEST
from dpframe.tables.frames import wrap

N = 4_000
ROWS = np.random.default_rng(3).uniform(-1.0, 1.0, size=(N, 6))
NORMS = np.linalg.norm(ROWS, axis=1)


def found(table: Any, epsilon: float = 1.0) -> Inference:
    wrapped = wrap(table)
    return Measurement.of(wrapped.fields(wrapped.names), wrapped.n, Budget(epsilon, 1e-6)).draw(wrapped.batches, KEY)


def arrow(rows: Any, type_: pa.DataType, nullable: bool = True) -> pa.Table:
    return pa.table([pa.array(rows, type_)], schema=pa.schema([pa.field("c", type_, nullable)]))


COLUMNS: dict[str, Any] = {
    "objects": pd.DataFrame({"c": pd.Series(ROWS.tolist(), dtype=object)}),
    "arrays": pd.DataFrame({"c": pd.Series(list(ROWS), dtype=object)}),
    "pandas Arrow": pd.DataFrame({"c": pd.Series(ROWS.tolist(), dtype=pd.ArrowDtype(pa.list_(pa.float64())))}),
    "lists": arrow(ROWS.tolist(), pa.list_(pa.float64())),
    "large lists of halves": arrow(ROWS.astype(np.float32).tolist(), pa.large_list(pa.float32())),
    "a fixed size": arrow(ROWS.tolist(), pa.list_(pa.float64(), 6)),
    "no nulls": arrow(ROWS.tolist(), pa.list_(pa.float64()), nullable=False),
    "polars arrays": pl.DataFrame({"c": ROWS}),
    "polars lists": pl.DataFrame({"c": ROWS.tolist()}),
}


@pytest.mark.walk(4)
@pytest.mark.parametrize("kind", COLUMNS)
def test_lists_of_floats_are_vectors_whose_bound_holds_nearly_all(kind: str) -> None:
    """Noise of at most 30 rows on every count (σ): a wrong length has probability below 1e-9."""
    inference = found(COLUMNS[kind])
    space = inference.spaces["c"]
    assert isinstance(space, Vector)
    assert (space.length, space.norm) == (6, "l2")
    assert np.mean(space.bound < NORMS) < 0.05
    assert space.bound < 1.5 * NORMS.max()
    kinds = [measured.kind for measured in inference.measured if measured.kind != "kinds"]
    assert kinds == (["norms"] * 2 if kind in ("a fixed size", "polars arrays") else ["lengths", "norms", "norms"])


@pytest.mark.walk(2)
@pytest.mark.parametrize("kind", COLUMNS)
def test_one_call_releases_them(kind: str) -> None:
    safe = dpf.sanitize(COLUMNS[kind], epsilon=3.0, key=KEY)
    rows = safe["c"].to_pylist() if isinstance(safe, pa.Table) else safe["c"].to_list()
    assert {len(row) for row in rows if row is not None} == {6}


@pytest.mark.slow
def test_the_census_with_its_curves_needs_no_declaration() -> None:
    census = dpf.datasets.make_census(20_000, random_state=5)[["age", "region", "load_curve"]]
    safe = census.dp.sanitize(epsilon=1.0, delta=1e-6, key=KEY)
    space = safe.dp.release.plan["load_curve"].space
    curves = np.array(census["load_curve"].tolist())
    assert isinstance(space, Vector)
    assert space.length == 24
    norms = np.linalg.norm(curves, axis=1)
    assert np.mean(norms > space.bound) < 0.05
    mean = safe.dp.mean_curve("load_curve")
    # What clipping the largest takes, and five standard errors.
    lost = np.abs(curves * (1 - np.minimum(1, space.bound / norms))[:, None]).mean(axis=0)
    assert (np.abs(mean["estimate"] - curves.mean(axis=0)) < lost + 5 * mean["std_error"]).all()


BROKEN: list[Any] = [None, [], [1.0], [0.5] * 7, [math.nan] * 6, [None, *[0.5] * 5], [math.inf] * 6, [1e308] * 6]


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.slow
def test_lists_that_are_no_vectors_of_the_column_are_null_or_imputed(nullable: bool) -> None:
    broken = [row for row in BROKEN if nullable or row is not None]
    for share in (0.0, 0.3):
        many = [broken[i % 6 % len(broken)] for i in range(int(share * N))]
        table = arrow([*broken, *ROWS.tolist(), *many], pa.list_(pa.float64()), nullable)
        inference = found(table, 8.0)
        space, norms = inference.spaces["c"], inference.measured[-1]
        count = sum(row is None or len(row) != 6 or None in row or math.isnan(row[0]) for row in [*broken, *many])
        infinite = sum(row is not None and math.inf in row for row in [*broken, *many])
        counted = norms.missing if nullable else norms.counts[-1] - infinite
        assert abs(counted - count) < 6 * norms.variance**0.5
        assert nullable or isinstance(space, Vector)
        assert isinstance(space, Nullable) or not (nullable and share)
        assert space.inner_space.length == 6
        with (
            pytest.warns(InferenceWarning, match="more than a fifth of the rows lies beyond")
            if (share and not nullable)
            else pytest.MonkeyPatch.context()
        ):
            safe = dpf.sanitize(table, epsilon=8.0, key=KEY)
        assert {None if row is None else len(row) for row in safe["c"].to_pylist()} <= {None, 6}
        assert safe.schema.field("c").nullable or not nullable


@pytest.mark.parametrize("kind", ["lists", "objects"])
@pytest.mark.slow
def test_lengths_of_which_none_stands_out_are_said(kind: str) -> None:
    rows = [[0.5] * (1 + i % 400) for i in range(800)]
    table = arrow(rows, pa.list_(pa.float64())) if kind == "lists" else pd.DataFrame({"c": rows})
    with pytest.warns(InferenceWarning, match=r"c +no length of lists exceeds the noise.*'c': Vector\(SIZE"):
        safe = dpf.sanitize(table, epsilon=1.0, key=KEY)
    assert len(safe) == 800


@pytest.mark.slow
def test_bounds_that_counts_do_not_show_are_said() -> None:
    table = arrow(ROWS[:60].tolist(), pa.list_(pa.float64(), 6))
    with pytest.warns(InferenceWarning, match="counts within their noise|lies beyond its bounds"):
        dpf.sanitize(table, epsilon=0.3, key=KEY)


def test_files_are_read_as_frames_are(tmp_path: Path) -> None:
    table = arrow([*BROKEN, *ROWS.tolist()], pa.list_(pa.float64()))
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=900)
    plan = dpf.plan(table, 2.0, 1e-6)
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    whole = dpf.sanitize(table, plan=plan, key=KEY)
    assert pq.read_table(tmp_path / "out.parquet")["c"].to_pylist() == whole["c"].to_pylist()


def test_without_delta_they_are_found_too() -> None:
    """A fresh key each time: the count of nulls may stand out by chance; a wrong length has probability below 1e-9."""
    space = dpf.plan(COLUMNS["lists"], 4.0, 0.0)["c"].space.inner_space
    assert isinstance(space, Vector)
    assert space.length == 6


def test_lengths_that_no_vector_has_are_refused_by_the_type() -> None:
    for size in (0, LONGEST + 1):
        table = arrow([[0.5] * size], pa.list_(pa.float64(), size))
        ask = partial(dpf.sanitize, table, epsilon=1.0)
        refused(ColumnError, "column 'c': has type .*1 to 4096 numbers; cut", ask)


def read_off(table: Any) -> Space:
    with pytest.warns(PrivacyLeakWarning):
        return dpf.plan(table, 1.0, infer="data")["c"].space


def test_the_data_says_them_where_that_is_accepted() -> None:
    for kind in COLUMNS:
        space = read_off(COLUMNS[kind])
        assert space.inner_space.length == 6
        assert space.inner_space.bound == pytest.approx(NORMS.max(), rel=1e-6)
    assert isinstance(read_off(arrow([None, [3.0, 4.0]], pa.list_(pa.float64()))), Nullable)
    assert read_off(arrow([[0.0, 0.0]], pa.list_(pa.float64()))) == Vector(2, 1.0)
    for rows in ([[0.5], [0.5, 0.5]], [[], []]):
        table = arrow(rows, pa.list_(pa.float64()))
        refused(
            ColumnError,
            "column 'c': holds lists of different lengths or none, .*; cut or fill",
            lambda table=table: dpf.plan(table, 1.0, infer="data"),
        )


def test_declarations_to_paste_have_the_length_that_the_type_says() -> None:
    for kind, length in (("lists", "SIZE"), ("a fixed size", "6")):
        ask = partial(dpf.plan, COLUMNS[kind], 1.0, infer="public")
        refused(ParameterError, rf"spaces={{'c': Vector\({length}, BOUND\)}}", ask)


def test_norms_of_any_floats() -> None:
    rows, fits = float_rows(pa.array([[3e200, 4e200], [0.0, 0.0], [math.inf, 1.0], [5e-324, 0.0]]), 2)
    assert fits.all()
    np.testing.assert_allclose(float_norms(rows), [5e200, 0.0, math.inf, 5e-324], rtol=1e-12)
