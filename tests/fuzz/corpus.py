"""Plans and releases of every part that they may have, small, to be changed at random."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas as pd
from sklearn.gaussian_process.kernels import RBF

import dpframe as dpf
from dpframe.plan.build import build_plan
from dpframe.plan.plan import Plan

ROWS = 60

SPACES: dict[str, Any] = {
    "age": (0, 120),
    "sex": ["F", "M"],
    "grade": dpf.Ordinal(["low", "mid", "high"]),
    "income": dpf.Nullable(dpf.Real(0, 250_000, steps=500)),
}


@cache
def people() -> pd.DataFrame:
    """Return a small table, public in these tests."""
    return pd.DataFrame(
        {
            "age": [i * 7 % 90 for i in range(ROWS)],
            "sex": ["F" if i % 3 else "M" for i in range(ROWS)],
            "grade": [["low", "mid", "high"][i % 3] for i in range(ROWS)],
            "income": [None if i % 5 == 0 else 1000.0 * i for i in range(ROWS)],
        }
    )


def _plans() -> Iterator[Plan]:
    frame = people()
    yield build_plan({"sex": ["F", "M"]}, epsilon=1.0)
    yield build_plan(SPACES, epsilon=1.0, delta=0.0, n=ROWS)
    yield frame.dp.plan(1.0, 1e-4, spaces=SPACES)
    yield frame.dp.plan(1.0, 1e-4, spaces=SPACES, measure=None, sample=20, contributions=2)
    yield frame.dp.plan(1.0, 1e-4, spaces={"sex": ["F", "M"]}, local_epsilon=3.0)
    yield frame.dp.plan(1.0, 1e-4, spaces=SPACES, shuffle=False)
    yield frame.dp.plan(1.0, 1e-4, spaces={"sex": ["F", "M"], "age": (0, 9)}, drop=["grade"], passthrough=["income"])
    yield frame.dp.plan(1.0, 1e-4, spaces=SPACES, groups=[("sex", "grade")], measure=None)
    yield frame.assign(who=range(ROWS)).dp.plan(1.0, 1e-4, spaces=SPACES, privacy_id="who", contributions=2)
    curve = dpf.Curve(range(6), 2.0, RBF(2.0), rank=2)
    sets: dict[str, Any] = {
        "tags": dpf.Subset(["x", "y", "z"], 2),
        "load": curve,
        "where": dpf.Nullable(dpf.Vector(2, 1.0, "l1", bits=4)),
        "born": dpf.Datetime("2000-01-01", "2001-01-01", "D"),
        "ill": dpf.Boolean(),
    }
    yield build_plan(sets, epsilon=4.0, delta=1e-5, n=1000)
    noises = {"load": "process", "where": "nullable_process"}
    drawn = {"load": curve, "where": dpf.Nullable(dpf.Vector(2, 1.0))}
    yield build_plan(drawn, epsilon=4.0, delta=1e-5, n=1000, mechanisms=noises)
    own: dict[str, Any] = {
        "ill": dpf.channels.Matrix.of([[0.7, 0.3], [0.2, 0.8]]),
        "age": "exponential",
        "income": "geometric",
    }
    kept = {"ill": dpf.Boolean(), "age": (0, 9), "income": (0.0, 1.0)}
    yield build_plan(kept, epsilon=4.0, delta=1e-5, n=1000, mechanisms=own)


@cache
def plans() -> tuple[str, ...]:
    """Return plans as JSON."""
    return tuple(plan.to_json() for plan in _plans())


@cache
def release_text() -> str:
    """Return what a release with measured tables, inference and a sample says about itself."""
    safe = people().dp.sanitize(1.0, 1e-4, spaces={"sex": ["F", "M"], "age": (0, 120)}, key=bytes(32))
    return str(safe.attrs["dpframe"])
