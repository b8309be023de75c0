"""Noise on vectors: the wrong scale, codes outside the ball, and the same release on every path."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import exact_epsilon, exact_vectors, refused
from conftest import KEY

import dpframe as dpf
from dpframe.channels import VectorNoise, WithNull, mechanism_for
from dpframe.channels.vector_noise import GivenVectorNoise
from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.noise.keystream import Keystream
from dpframe.noise.tables import geometric_table
from dpframe.plan.build import build_plan
from dpframe.plan.columns import Column
from dpframe.spaces import Integer, Nullable, Vector

LOAD = Vector(24, 6.0)


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return dpf.datasets.make_census(2_000, columns=["sex", "load_curve"])


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("length", [1, 2, 3, 24])
def test_the_certified_loss_is_what_was_asked_for(norm: str, length: int) -> None:
    for epsilon in (0.01, 1.0, 8.0):
        noise = VectorNoise(length, 16, norm, epsilon)
        assert epsilon * (1 - 1e-6) < noise.loss.epsilon() <= epsilon
        assert noise.blanket <= math.exp(-epsilon / 2) * (1 + 1e-3)
        assert noise.blanket >= math.exp(-epsilon / 2) * (1 - 1e-3)
        assert noise.column_loss.epsilon == noise.loss.epsilon()


def test_the_appendix_s_scale_loses_more_than_it_claims() -> None:
    """iid Lap(Δ₂/ε) in two dimensions, in exact integers: where it claims 1 it loses nearly √2."""
    claim = 1.0
    wide = Vector(2, 1.0, "l2", bits=4)
    wrong = GivenVectorNoise(wide.ball, geometric_table(wide.ball.last, claim / wide.ball.last))
    columns, _ = exact_vectors(VectorNoise(2, 4, "l2", claim), wrong)
    assert float(exact_epsilon(columns)) > 1.3


def test_codes_outside_the_ball_are_drawn_to_it_before_noise() -> None:
    """A plan may be given any codes: what the mechanism sees lies within its own ball."""
    noise = VectorNoise(4, 8, "l1", 1.0)
    outside = noise.ball.pack(np.full((50, 4), 255))
    inside = noise.ball.within(outside)
    assert (inside != outside).any()
    stream = Keystream(KEY).column("a")
    np.testing.assert_array_equal(noise.sample(outside, stream), noise.sample(inside, stream))


def test_what_does_not_fit_is_refused() -> None:
    refused(ParameterError, "mechanism must be one of gaussian, vector for space vector", lambda: _made("geometric"))
    refused(ParameterError, "mechanism must be one of .* for space integer", lambda: _made("vector", Integer(0, 9)))
    refused(ParameterError, "epsilon is too small for vectors of 24", lambda: VectorNoise(24, 16, "l2", 1e-30))
    refused(PlanError, "the mechanism has .* codes", lambda: Column("a", LOAD, VectorNoise(23, 16, "l2", 1.0)))
    refused(ParameterError, "too long to write out", lambda: VectorNoise(24, 16, "l2", 1.0).weights(0))


def _made(tag, space=LOAD):
    return mechanism_for(space, 1.0, 0.0, tag)


def test_every_path_releases_the_same(people, tmp_path) -> None:
    spaces = {"sex": ["F", "M"], "load_curve": LOAD}
    plan = people.dp.plan(epsilon=3.0, delta=1e-6, spaces=spaces, measure=None)
    table = pa.Table.from_pandas(people, preserve_index=False)
    fixed = pa.table({"sex": table["sex"], "load_curve": pa.array(people["load_curve"], pa.list_(pa.float64(), 24))})
    safe = dpf.sanitize(people, plan=plan, key=KEY)
    pq.write_table(fixed, tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY, batch_rows=300)
    for other in (
        dpf.sanitize(table, plan=plan, key=KEY)["load_curve"].to_pylist(),
        dpf.sanitize(fixed, plan=plan, key=KEY)["load_curve"].to_pylist(),
        dpf.sanitize(pl.from_arrow(fixed), plan=plan, key=KEY)["load_curve"].to_list(),
        pq.read_table(tmp_path / "out.parquet")["load_curve"].to_pylist(),
    ):
        assert other == safe["load_curve"].tolist()
    assert safe.dp.verify()
    assert dpf.verify(tmp_path / "out.parquet")
    assert dpf.Plan.from_json(plan.to_json()) == plan
    short = pa.table({"sex": table["sex"], "load_curve": pa.array(people["load_curve"], pa.list_(pa.float32()))})
    assert dpf.Estimates(dpf.sanitize(short, plan=plan, key=KEY)).verify()


def test_rows_that_cannot_be_coded_are_refused_with_their_position(people) -> None:
    broken = people.copy()
    broken.at[7, "load_curve"] = [math.nan] * 24
    plan = people.dp.plan(epsilon=3.0, spaces={"sex": ["F", "M"], "load_curve": LOAD})
    refused(ColumnError, "column 'load_curve' at row position 7: holds a NaN", lambda: dpf.sanitize(broken, plan=plan))
    broken.at[7, "load_curve"] = [0.0] * 23
    refused(
        ColumnError,
        "column 'load_curve' at row position 7: holds a list of another length than 24",
        lambda: dpf.sanitize(broken, plan=plan),
    )


def test_csv_refuses_lists_in_one_line(people, tmp_path) -> None:
    spaces = {"sex": ["F", "M"], "load_curve": LOAD}
    pq.write_table(pa.Table.from_pandas(people), tmp_path / "in.parquet")
    people.to_csv(tmp_path / "in.csv", index=False)
    for source, target, match in (
        ("in.parquet", "out.csv", "which CSV cannot hold; write Parquet"),
        ("in.csv", "out.parquet", r"values that CSV cannot hold \(vector\)"),
    ):
        refused(
            ColumnError,
            match,
            lambda source=source, target=target: dpf.sanitize(tmp_path / source, tmp_path / target, 2.0, spaces=spaces),
        )


def test_a_null_costs_what_a_vector_does() -> None:
    space = Nullable(Vector(5, 1.0, "l2", bits=8))
    noise = mechanism_for(space, 2.0, 0.0)
    assert isinstance(noise, WithNull)
    assert 1.999 < noise.loss.epsilon() <= 2.0
    plan = build_plan({"a": space, "b": (0, 9)}, epsilon=2.0)
    assert plan.verify()
