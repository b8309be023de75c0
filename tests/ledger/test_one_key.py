"""One key serves one table: whatever is asked under it, no noise is drawn for two tables that a ledger has seen."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.errors import LedgerError, ParameterError

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpframe.errors.InferenceWarning"),
    pytest.mark.filterwarnings("ignore::dpframe.errors.PrivacyLeakWarning"),
]

KEY = bytes(range(32))
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SPACES: dict[str, Any] = {"age": (0, 99), "ward": ["a", "b"]}
REFUSED = "^key has drawn the same noise for another table.*leave key out"
_RNG = np.random.default_rng(54)
TABLE = pd.DataFrame({"age": _RNG.integers(10, 90, 400), "ward": _RNG.choice(["a", "b"], 400), "site": ["x"] * 400})
NEIGHBOUR = TABLE.assign(
    age=TABLE["age"].where(TABLE.index > 0, 99 - TABLE["age"]),
    ward=TABLE["ward"].where(TABLE.index > 0, "b" if TABLE["ward"][0] == "a" else "a"),
)

CHANGES: dict[str, Any] = {
    "nothing": {},
    "measure": {"measure": None},
    "measured": {"measure": ["ward"]},
    "measure_share": {"measure_share": 0.5},
    "sample": {"sample": 100},
    "order": {"shuffle": False},
    "contributions": {"contributions": 2},
    "epsilon": {"epsilon": 0.5},
    "delta": {"delta": 1e-7},
    "nulls": {"nulls": "impute"},
    "infer_share": {"infer_share": 0.3},
    "max_items": {"max_items": 3},
    "local_epsilon": {"local_epsilon": 3.0},
    "allocation": {"allocation": {"age": 0.5, "ward": 0.3, "site": 0.2}},
    "mechanisms": {"mechanisms": {"ward": "randomized_response"}},
    "numbers": {"numbers": "square_wave"},
    "groups": {"groups": [("age", "ward")]},
    "drop": {"drop": ["site"]},
    "passthrough": {"drop": (), "passthrough": ["site"]},
    "one space": {"spaces": {"ward": ["a", "b"]}},
    "spaces": {"spaces": {**SPACES, "site": ["x"]}},
}
KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": pd.DataFrame.copy,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
}


@pytest.fixture
def ledger(tmp_path: Path) -> dpf.Ledger:
    made = dpf.Ledger(tmp_path / "ledger.sqlite")
    for unit in ("row", "2 rows"):
        made.create(unit, 1_000.0, 1e-2, unit=unit)
    return made


def _released(ledger: dpf.Ledger, table: Any, **request: Any) -> Any:
    rows = request["plan"].contributions if "plan" in request else request.get("contributions", 1)
    dataset = "2 rows" if rows > 1 else "row"
    return dpf.sanitize(table, **request, key=KEY, ledger=ledger, dataset=dataset)


def _rows(safe: Any) -> pd.DataFrame:
    return safe if isinstance(safe, pd.DataFrame) else safe.to_pandas()


def _counts(plan: dpf.Plan) -> dict[tuple[str, str, int], np.ndarray[Any, Any]]:
    found = () if plan.inferred is None else plan.inferred.measured
    return {(one.column, one.kind, i): np.array(one.counts) for i, one in enumerate(found)}


def _plan(safe: Any) -> dpf.Plan:
    return dpf.Estimates(safe).plan


def _share_noise(one: Any, other: Any) -> bool:
    """Return whether two releases of neighbours differ by as little as their tables, in rows or counts.

    Two releases with noise of their own agree in nine tenths of 400 rows with probability below 1e-50.
    """
    first, second = _counts(_plan(one)), _counts(_plan(other))
    alike = [
        name
        for name in first.keys() & second.keys()
        if len(first[name]) == len(second[name]) > 4 and np.abs(first[name] - second[name]).max() <= 1
    ]
    rows = [_rows(safe)[["age", "ward"]] for safe in (one, other)]
    same = len(rows[0]) == len(rows[1]) and (rows[0].to_numpy() == rows[1].to_numpy()).all(axis=1).mean() > 0.9
    return bool(alike) or same


def _refused(ledger: dpf.Ledger, table: Any, **request: Any) -> None:
    before = len(ledger.history())
    with pytest.raises(LedgerError, match=REFUSED):
        _released(ledger, table, **request)
    assert len(ledger.history()) == before


def _walked(ledger: dpf.Ledger, kind: str, request: dict[str, Any], changed: dict[str, Any]) -> None:
    table, neighbour = KINDS[kind](TABLE), KINDS[kind](NEIGHBOUR)
    first = _released(ledger, table, **request)
    plan = _plan(first)
    # The same request and its own plan repeat the release at no cost, and serve no other table.
    for asked in (request, {"plan": plan}):
        assert _rows(_released(ledger, table, **asked)).equals(_rows(first))
        _refused(ledger, neighbour, **asked)
    assert len(ledger.history()) == 1
    other = {**request, **changed}
    try:
        second = _released(ledger, neighbour, **other)
    except LedgerError:
        assert len(ledger.history()) == 1
        assert len(_rows(_released(ledger, table, **other))) in (100, 400)
        _refused(ledger, neighbour, **other)
    else:
        assert not _share_noise(first, second)
        _refused(ledger, table, **other)
        _refused(ledger, table, plan=_plan(second))
    _refused(ledger, neighbour, **request)
    _refused(ledger, neighbour, plan=plan)


OFTEN = ("nothing", "measure", "sample", "order", "contributions", "nulls")
"""Changes that are walked in every run of the tests; the others take as long again."""


@pytest.mark.parametrize(
    "change", [pytest.param(one, marks=[pytest.mark.slow] * (one not in OFTEN)) for one in CHANGES]
)
def test_a_key_serves_one_table_whatever_option_changes(ledger: dpf.Ledger, change: str) -> None:
    _walked(ledger, "pandas", PROMISE, CHANGES[change])


@pytest.mark.walk(2)
@pytest.mark.parametrize("change", ["sample", "order", "contributions", "nulls", "passthrough"])
def test_a_key_serves_one_table_where_spaces_are_declared(ledger: dpf.Ledger, change: str) -> None:
    _walked(ledger, "pandas", {**PROMISE, "spaces": SPACES, "drop": ["site"]}, CHANGES[change])


@pytest.mark.walk(1)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pandas"])
def test_a_key_serves_one_table_of_every_kind(ledger: dpf.Ledger, kind: str) -> None:
    _walked(ledger, kind, {**PROMISE, "drop": ["site"]}, CHANGES["measure"])


def test_files_and_questions_take_no_key_under_a_ledger(ledger: dpf.Ledger, tmp_path: Path) -> None:
    """Their keys are fresh, or a job's own, which serves one input and one request."""
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    TABLE.to_parquet(source)
    for table, place in ((source, None), (source, target), (TABLE, target)):
        with pytest.raises(ParameterError, match=r"^key and ledger do not go together"):
            _released(ledger, table, target=place, **PROMISE)
    with pytest.raises(TypeError, match="key"):
        dpf.Queries(TABLE, **PROMISE, ledger=ledger, dataset="row", key=KEY)  # type: ignore[call-arg]
    assert not len(ledger.history())


@pytest.mark.posix  # Dask imports fcntl
def test_engines_take_no_key_under_a_ledger(ledger: dpf.Ledger, tmp_path: Path) -> None:
    lazy = pytest.importorskip("dask.dataframe").from_pandas(TABLE, npartitions=2)
    for place in (None, tmp_path / "out"):
        with pytest.raises(ParameterError, match=r"^key and ledger do not go together"):
            _released(ledger, lazy, target=place, **PROMISE)
    assert not len(ledger.history())


class Interrupted(dpf.Ledger):
    """A ledger whose process is killed when it enters anything after the spend."""

    def spend(self, *args: Any, **options: Any) -> Any:
        if len(self.history()):
            raise KeyboardInterrupt
        return super().spend(*args, **options)


def test_a_crash_before_the_plan_is_known_wastes_budget_and_hides_no_table(ledger: dpf.Ledger) -> None:
    with pytest.raises(KeyboardInterrupt):
        _released(Interrupted(ledger.path), TABLE, **PROMISE)
    for request in (PROMISE, {**PROMISE, "measure": None}):
        _refused(ledger, NEIGHBOUR, **request)
    plan = _plan(_released(ledger, TABLE, **PROMISE))
    assert len(ledger.history()) == 1
    _refused(ledger, NEIGHBOUR, plan=plan)


def test_a_ledger_of_an_older_version_knows_its_keys(ledger: dpf.Ledger) -> None:
    """It has the noise of requests in the ids of its releases, and none of inference and plans."""
    _released(ledger, TABLE, **PROMISE)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE draws")
        connection.execute("PRAGMA user_version = 5")
    _refused(ledger, NEIGHBOUR, **PROMISE)
    plan = _plan(_released(ledger, TABLE, **PROMISE))
    assert len(ledger.history()) == 1
    _refused(ledger, NEIGHBOUR, **PROMISE, measure=None)
    _refused(ledger, NEIGHBOUR, plan=plan)


def test_a_key_is_known_in_every_dataset_of_its_ledger(ledger: dpf.Ledger) -> None:
    ledger.create("elsewhere", 10.0, 1e-3)
    request: dict[str, Any] = {**PROMISE, "key": KEY, "ledger": ledger, "dataset": "elsewhere"}
    plan = _plan(_released(ledger, TABLE, **PROMISE))
    with pytest.raises(LedgerError, match=REFUSED):
        dpf.sanitize(NEIGHBOUR, plan=plan, key=KEY, ledger=ledger, dataset="elsewhere")
    with pytest.raises(LedgerError, match=REFUSED):
        dpf.sanitize(NEIGHBOUR, **request, measure=None)
    dpf.sanitize(TABLE, **request)
    assert ledger.history()["dataset"].tolist() == ["row", "elsewhere"]
