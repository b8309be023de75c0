"""Moments of rows through their channels: unbiased where the noise can be enumerated, with errors of any direction."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
import dpframe.learning.ridge
from dpframe.learning.features import ColumnBlock
from dpframe.learning.ridge import RowMoments
from dpframe.plan.build import build_plan
from dpframe.tables.released import Source

KEY = bytes(range(32))
SMALL = {
    "a": dpf.Categorical(["u", "v", "w"]),
    "b": dpf.Integer(2, 5),
    "c": dpf.Nullable(dpf.Integer(0, 2)),
    "d": dpf.Nullable(dpf.Boolean()),
}


def moments_of(frame, plan, centred=True):
    moments = RowMoments(Source(frame, plan), [ColumnBlock.of(column, centred) for column in plan.columns])
    return moments, moments.columns


GROUPS = [(), [("a", "c")], [("d", "b")], [("b", "c", "d")], [("a", "b"), ("c", "d")]]


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "centred"), [*((g, True) for g in GROUPS), (GROUPS[0], False), (GROUPS[3], False)])
@pytest.mark.parametrize("row", [("w", 5, 2, False), ("v", 3, None, True), ("w", 4, 1, None)])
def test_moments_are_unbiased_exactly(row, groups, centred):
    # The expectation over all outputs, of one row per output weighted by its probability.
    plan = build_plan(SMALL, epsilon=6, groups=groups)
    codes = {c.name: int(c.space.encode([v])[0]) for c, v in zip(plan.columns, row, strict=True)}
    outputs = [
        np.array(ys) for ys in zip(*itertools.product(*(range(c.space.size) for c in plan.columns)), strict=True)
    ]
    found = dict(zip(plan.names, outputs, strict=True))
    weights = np.ones(len(outputs[0]))
    for unit in plan.units:
        sizes = [plan[name].space.size for name in unit.names]
        law = unit.mechanism.law(int(np.ravel_multi_index([codes[name] for name in unit.names], sizes)))
        weights *= law[np.ravel_multi_index([found[name] for name in unit.names], sizes)]
    assert weights.sum() == pytest.approx(1)
    expected = 0.0
    for i, weight in enumerate(weights):
        table = pa.table({c.name: c.space.decode(found[c.name][i : i + 1]) for c in plan.columns})
        moments, blocks = moments_of(table, plan, centred)
        expected = expected + weight * moments.matrix
    true = {name: np.array([x]) for name, x in codes.items()}
    truth = np.concatenate([[1.0], *(block.truth(true)[0] for block in blocks)])
    complete = row[2] is not None and row[3] is not None
    np.testing.assert_allclose(expected, np.outer(truth, truth) if complete else 0 * expected, atol=1e-9)


@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_errors_of_moments_are_sums_over_rows(groups):
    plan = build_plan(SMALL, epsilon=4, groups=groups)
    rng = np.random.default_rng(0)
    n = 7
    codes = {c.name: rng.integers(c.space.size, size=n) for c in plan.columns}

    def table(rows):
        return pa.table({c.name: c.space.decode(codes[c.name][rows]) for c in plan.columns})

    whole, _ = moments_of(table(slice(None)), plan)
    rows = np.array([moments_of(table(slice(i, i + 1)), plan)[0].matrix for i in range(n)])
    np.testing.assert_allclose(whole.matrix, rows.sum(axis=0), atol=1e-12)
    v = rng.normal(size=(whole.size, 2))
    scores = rows @ v[:, 0]
    np.testing.assert_allclose(whole.scores(v[:, 0]), np.cov(scores.T, ddof=0) * n, atol=1e-8)
    forms = np.einsum("jd,ijk,kd->id", v, rows, v)
    np.testing.assert_allclose(whole.quadratic(v), forms.var(axis=0) * n)


def test_some_rows_tell_the_errors_of_directions(monkeypatch):
    spaces = {"a": (0, 9), "b": (0, 9)}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 10, 8_000), "b": rng.integers(0, 10, 8_000)})
    plan = build_plan(spaces, epsilon=4)
    moments, _ = moments_of(dpf.sanitize(frame, plan=plan, key=KEY), plan)
    v = np.eye(3)[:, 1:]
    every = moments.quadratic(v)
    monkeypatch.setattr(dpframe.learning.ridge, "ENOUGH_ROWS", 2_000)
    some = moments.quadratic(v)
    # A variance from 1,600 rows has a relative error of some 5 %.
    np.testing.assert_allclose(some, every, rtol=0.3)
    assert (some != every).all()
