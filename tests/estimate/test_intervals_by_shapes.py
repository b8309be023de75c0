"""Every statistic over shapes of data and kinds of release: 95 % intervals hold, and nothing lies beyond five errors.

Keys are fixed. Of one kind of release the answers of a statistic to all shapes are taken together: were they
independent, more are missed than is allowed with a probability of 1e-4.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import dpframe as dpf

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")]

N = 4_000
GROUPS = ["a", "b", "c", "d"]
QUANTILES = [0.1, 0.25, 0.5, 0.75, 0.9]
KINDS = {
    "tables": (10, {"epsilon": 1.0}),
    "kept order": (2, {"epsilon": 1.0, "shuffle": False}),
    "rows alone": (2, {"epsilon": 1.0, "measure": None}),
    "pure": (1, {"epsilon": 4.0, "delta": 0.0}),
    "square wave": (1, {"epsilon": 2.0, "measure": None, "numbers": "square_wave"}),
}


def smooth(rng, group):
    return np.round(rng.normal(40 + 8 * (group == "b"), 12, N).clip(0, 100), 1), dpf.Real(0, 100)


def heaped(rng, group):
    values = rng.lognormal(10.3, 0.6, N) * (1 + 0.4 * (group == "c"))
    return np.where(rng.random(N) < 0.8, np.round(values, -3), np.round(values)).clip(0, 250_000), dpf.Real(0, 250_000)


def spiky(rng, group):
    held = rng.random(N) < 0.9 - 0.2 * (group == "b")
    return np.where(held, 0.0, rng.gamma(2, 60, N)).clip(0, 2_000), dpf.Real(0, 2_000)


def hours(rng, group):
    values = np.where(rng.random(N) < 0.5, 40, rng.normal(38, 12, N).round())
    return values.clip(1, 99).astype(int), (1, 99)


def two_valued(rng, group):
    return (rng.random(N) < 0.3 + 0.3 * (group == "b")).astype(float), dpf.Real(0, 1)


def rare(rng, group):
    return np.where(rng.random(N) < 0.99, 0, rng.integers(1, 60, N)), (0, 60)


def tails(rng, group):
    return (rng.pareto(2.5, N) * 1_000).clip(0, 1e5), dpf.Real(0, 1e5)


def nulls(rng, group):
    values = rng.normal(240, 60, N).clip(0, 1_000).round()
    return np.where(rng.random(N) < 0.5, np.nan, values), dpf.Nullable(dpf.Real(0, 1_000))


def seldom(rng, group):
    values = rng.normal(240, 60, N).clip(0, 1_000)
    return np.where(rng.random(N) < 0.97, np.nan, values), dpf.Nullable(dpf.Real(0, 1_000))


SHAPES = {f.__name__: f for f in (smooth, heaped, spiky, hours, two_valued, rare, tails, nulls, seldom)}


@cache
def frame(shape: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table with a number of some shape, a group with a rare value, another number and a half."""
    rng = np.random.default_rng([list(SHAPES).index(shape), 1])
    group = rng.choice(GROUPS, N, p=[0.5, 0.3, 0.17, 0.03])
    x, space = SHAPES[shape](rng, group)
    half = rng.choice(["u", "v"], N)
    z = np.where(half == "u", rng.integers(0, 50, N), rng.integers(30, 100, N))
    spaces = {"x": space, "group": GROUPS, "z": (0, 99), "half": ["u", "v"]}
    return pd.DataFrame({"x": x, "group": group, "z": z, "half": half}), spaces


@dataclass(frozen=True)
class Asked:
    """A statistic of a release, and what is true of each of its rows."""

    kind: str
    of: Callable[[dpf.Estimates], Any]
    truth: Callable[[pd.Index], Any]


def within(column: pd.Series, cell: pd.Interval) -> pd.Series:
    low = column >= cell.left if cell.closed in ("left", "both") else column > cell.left
    return low & (column <= cell.right if cell.closed in ("right", "both") else column < cell.right)


def questions(data: pd.DataFrame, crossed: slice = slice(None)) -> Iterator[Asked]:
    """Yield every statistic of a table; counts of two columns are of the ranges that ``crossed`` takes."""
    x, full = data["x"], data["x"].dropna().astype(float)

    def fixed(*values: float) -> Callable[[pd.Index], Any]:
        return lambda index: values

    yield Asked("mean", lambda e: e.mean("x"), fixed(full.mean()))
    yield Asked("sum", lambda e: e.sum("x"), fixed(full.sum()))
    yield Asked("var", lambda e: e.var("x"), fixed(full.var()))
    yield Asked("std", lambda e: e.std("x"), fixed(full.std()))
    exact = full.quantile(QUANTILES, interpolation="lower")
    yield Asked("quantile", lambda e: e.quantile("x", QUANTILES), fixed(*exact))
    cuts = sorted(set(np.round(full.quantile([0, 0.2, 0.45, 0.7, 1]), 6)))
    bins = cuts if len(cuts) > 1 else 2
    yield Asked("histogram", lambda e: e.histogram("x", bins=bins), lambda ix: [within(full, i).sum() for i in ix])
    top, low, high = float(full.mode()[0]), float(full.quantile(0.3)), float(full.quantile(0.8))
    ranges = [(top, top), (low, high), (None, low), (high, None)]
    for ends in ranges:
        least, most = (limit if end is None else end for end, limit in zip(ends, (-np.inf, np.inf), strict=True))
        held = (x >= least) & (x <= most)
        yield Asked("count", lambda e, w=ends: e.count({"x": w}), fixed(held.sum()))
        if ends not in ranges[crossed]:
            continue
        group = (held & (data["group"] == "b")).sum()
        yield Asked("count of two", lambda e, w=ends: e.count({"x": w, "group": "b"}), fixed(group))
        numbers = (held & data["z"].between(20, 60)).sum()
        yield Asked("count of numbers", lambda e, w=ends: e.count({"x": w, "z": (20, 60)}), fixed(numbers))
    for kind in ("cov", "corr"):

        def matrix(e: dpf.Estimates, kind: str = kind) -> pd.DataFrame:
            return getattr(e, kind)(["x", "z"]).xs("z", axis=1, level=1).loc[["x"]]

        yield Asked(kind, matrix, fixed(getattr(x, kind)(data["z"])))
    for key in ("group", "half"):
        means, shares = data.groupby(key)[["x", "z"]].mean(), data.groupby(key).size()
        yield Asked("mean by", lambda e, g=key: e.mean("x", by=g), lambda ix, m=means: m["x"].reindex(ix))
        yield Asked("mean by", lambda e, g=key: e.mean("z", by=g), lambda ix, m=means: m["z"].reindex(ix))
        yield Asked("value_counts", lambda e, g=key: e.value_counts(g), lambda ix, s=shares: s.reindex(ix))
    pairs = data.groupby(["group", "half"]).size()
    yield Asked("joint", lambda e: e.joint(["group", "half"]), lambda ix: pairs.reindex(ix))
    if x.isna().any():
        yield Asked("null_rate", lambda e: e.null_rate("x"), fixed(x.isna().mean()))


def answers(kind: str) -> pd.DataFrame:
    """Return (statistic, shape, held, distance in errors) of all answers of one kind of release."""
    releases, options = KINDS[kind]
    found = []
    for place, shape in enumerate(SHAPES):
        data, spaces = frame(shape)
        # One release shows all ranges over all shapes; counts of two columns take most of the time.
        crossed = slice(place % 2, None, 2) if releases == 1 else slice(None)
        own = {"delta": 1e-6} | options
        plan = dpf.plan(data, own.pop("epsilon"), own.pop("delta"), spaces=spaces, **own)
        for key in range(releases):
            estimates = dpf.Estimates(dpf.sanitize(data, plan=plan, key=(key + 1).to_bytes(32)))
            for asked in questions(data, crossed):
                table = asked.of(estimates)
                table = table.to_frame().T if isinstance(table, pd.Series) else table
                for right, row in zip(asked.truth(table.index), table.itertuples(), strict=True):
                    slack = 1e-9 + 1e-6 * abs(right)
                    if np.isfinite(right) and not np.isnan(row.lower):
                        held = row.lower - slack <= right <= row.upper + slack
                        apart = abs(row.estimate - right) / (row.std_error + slack)
                        found.append((asked.kind, shape, held, 0.0 if np.isnan(apart) else apart))
    return pd.DataFrame(found, columns=["statistic", "shape", "held", "apart"])


STATISTICS = list(dict.fromkeys(asked.kind for asked in questions(frame("nulls")[0])))


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold(kind):
    found = answers(kind)
    by = found.groupby("statistic").agg(
        answers=("held", "size"),
        missed=("held", lambda held: (~held).sum()),
        far=("apart", lambda apart: (apart > 5).sum()),
    )
    assert set(by.index) == set(STATISTICS)
    assert (by["missed"] <= binom.isf(1e-4, by["answers"], 0.05)).all(), by.to_string()
    assert (by["far"] <= np.maximum(1, 0.01 * by["answers"])).all(), by.to_string()
    assert 0.93 <= found["held"].mean() <= 0.995
    assert (found["apart"] > 5).mean() <= 0.003, found[found["apart"] > 5].to_string()


def test_every_statistic_of_numbers_is_walked():
    told = {"mean", "sum", "var", "std", "quantile", "histogram", "count", "cov", "corr", "value_counts", "joint"}
    assert told | {"null_rate"} <= set(STATISTICS)
