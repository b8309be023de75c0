"""NIST's K-marginal score of synthetic rows at (1, 1e-6), beside that of peers where they are installed.

    pytest -n 0 tests/benchmarks/test_board.py --benchmark-only

The score is 1000 − 500·mean over pairs of columns of the L1 distance between shares of the original and of the
synthetic table, numbers in 20 quantile bins of the original (NIST's challenge of 2020): 1000 for equal pairs, 0 for
pairs that have no cell in common. Tables are read where the data folder of the tests has them. NIST's neighbours are
those of add/remove, ours replace-one, which is the stricter promise.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import DATA

import dpframe as dpf

BINS = 20
TABLES = ("census", *(name for name in ("adult", "nltcs", "salary") if (DATA / f"{name}.parquet").exists()))
EPSILON, DELTA = 1.0, 1e-6


def k_marginal(original: pd.DataFrame, synthetic: pd.DataFrame) -> float:
    """Return the score of all pairs of columns.

    >>> frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": range(100)})
    >>> k_marginal(frame, frame), k_marginal(frame, frame.assign(a="z"))
    (1000.0, 0.0)
    """
    first, second = {}, {}
    for name in original:
        column, other = original[name], synthetic[name]
        if pd.api.types.is_numeric_dtype(column) and column.nunique() > BINS:
            edges = np.unique(np.quantile(column.dropna(), np.linspace(0, 1, BINS + 1)))[1:-1]
            column, other = (
                pd.Series(np.searchsorted(edges, part.to_numpy(dtype=float, na_value=np.nan), side="right"))
                for part in (column, other)
            )
        first[name], second[name] = (part.astype("string").fillna("").to_numpy() for part in (column, other))
    one, two = pd.DataFrame(first), pd.DataFrame(second)
    apart = []
    for pair in itertools.combinations(original, 2):
        shares = [table.value_counts(list(pair), normalize=True) for table in (one, two)]
        apart.append(shares[0].sub(shares[1], fill_value=0).abs().sum())
    return float(1000 - 500 * np.mean(apart))


def table(name: str) -> pd.DataFrame:
    """A table that is there."""
    columns = ["age", "sex", "education", "region", "income", "occupation"]
    return (
        dpf.datasets.make_census(20_000, columns=columns)
        if name == "census"
        else pd.read_parquet(DATA / f"{name}.parquet")
    )


def declared(frame: pd.DataFrame) -> dict[str, Any]:
    """Spaces as a codebook has them."""
    spaces: dict[str, Any] = {}
    for name, column in frame.items():
        full = column.dropna()
        space: Any = (
            dpf.Integer(int(full.min()), int(full.max()))
            if column.dtype.kind in "iu"
            else dpf.Real(float(full.min()), float(full.max()))
            if column.dtype.kind == "f"
            else dpf.Categorical(sorted(full.astype(str).unique()))
        )
        spaces[str(name)] = dpf.Nullable(space) if column.isna().any() else space
    return spaces


def ours(frame: pd.DataFrame) -> pd.DataFrame:
    """Synthetic rows of a release."""
    safe = frame.dp.sanitize(epsilon=EPSILON, delta=DELTA, spaces=declared(frame), key=bytes(32))
    rows: pd.DataFrame = safe.dp.synthesize(random_state=0)
    return rows


def of_dpmm(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of dpmm's MST."""
    peer: Any = importlib.import_module("dpmm.pipelines")
    pipeline = peer.MSTPipeline(epsilon=EPSILON, delta=DELTA)
    pipeline.fit(frame)
    rows: pd.DataFrame = pipeline.generate(len(frame))
    return rows


def of_smartnoise(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of smartnoise-synth's AIM."""
    peer: Any = importlib.import_module("snsynth")
    made = peer.Synthesizer.create("aim", epsilon=EPSILON, delta=DELTA)
    made.fit(frame, preprocessor_eps=0.1)
    rows: pd.DataFrame = made.sample(len(frame))
    return rows


MADE: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"dpframe": ours, "dpmm": of_dpmm, "snsynth": of_smartnoise}


@pytest.mark.parametrize("package", MADE)
@pytest.mark.parametrize("name", TABLES)
def test_k_marginal(benchmark: Any, name: str, package: str) -> None:
    pytest.importorskip(package, exc_type=ImportError)
    frame = table(name)
    synthetic = benchmark.pedantic(MADE[package], (frame,), rounds=1)
    benchmark.extra_info |= {"k_marginal": round(k_marginal(frame, synthetic), 1)}
