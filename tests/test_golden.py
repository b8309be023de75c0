"""What is released under one key stays the same, value for value; `DPFRAME_GOLDEN=write` writes it down anew.

A change of these values alters what an interrupted job repeats, and has a line in docs/reference/released-values.md.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import sampled_codes
from conftest import KEY
from examples import TAGS, plans_with

import dpframe as dpf
from dpframe import Plan

FILE = Path(__file__).parent / "golden" / "releases.json"
ROWS = 60
BUDGETS = {"pure": (1.0, 0.0), "approximate": (2.0, 1e-3)}
WRITE = os.environ.get("DPFRAME_GOLDEN") == "write"


def plans() -> Iterator[tuple[str, Plan]]:
    """Every space × mechanism at two budgets, in kept order, and one mixed table in a secret one."""
    for name in BUDGETS:
        yield from plans_of_columns(name)
    yield from plans_of_tables()


def plans_of_columns(name: str) -> Iterator[tuple[str, Plan]]:
    """Every space × mechanism at a budget, in kept order."""
    epsilon, delta = BUDGETS[name]
    for tag in TAGS:
        for i, plan in enumerate(plans_with(tag, epsilon, delta)):
            yield f"{tag} {i} {name}", plan


def plans_of_tables() -> Iterator[tuple[str, Plan]]:
    """One mixed table in a secret order, in the kept one, of a sample, and of several rows a person."""
    census = dpf.datasets.make_census(ROWS, columns=list(CENSUS))
    # The defaults until numbers got Laplace noise: what such plans release stays, too.
    for numbers, said in (("least_error", ""), ("laplace", " laplace")):
        told: dict[str, Any] = {"spaces": CENSUS, "numbers": numbers}
        for options in ({"shuffle": True}, {"shuffle": False}, {"sample": 20}, {"contributions": 2}):
            yield f"census{said} {options}", dpf.plan(census, 2.0, 1e-4, measure=None, **told, **options)
        for options in ({}, {"sample": 20}, {"contributions": 2}):
            name = f"census{said} measured {options}"
            # What so few rows are measured with has changed; what such plans release has not.
            yield name, Plan.from_json(json.dumps(GOLDEN[name]["plan"]))
    # Sizes of sets were not measured then.
    yield BEFORE, Plan.from_json(json.dumps(GOLDEN[BEFORE]["plan"]))
    yield "census measured", dpf.plan(census, 2.0, 1e-4, spaces=CENSUS)


BEFORE = "census measured without sizes"


CENSUS: dict[str, Any] = {
    "age": (18, 95),
    "sex": ["F", "M"],
    "education": dpf.Ordinal(dpf.datasets.EDUCATION),
    "occupation": dpf.Nullable(dpf.Categorical(dpf.datasets.OCCUPATIONS)),
    "region": list(dpf.datasets.REGIONS),
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "birth_date": dpf.Datetime("1920-01-01", "2010-01-01", "D"),
    "hobbies": dpf.Subset(dpf.datasets.HOBBIES, 3),
}


def table_for(plan: Plan) -> pa.Table:
    """Values of all kinds for the plan's columns."""
    if "hobbies" in plan.names:
        census = dpf.datasets.make_census(ROWS, columns=list(CENSUS))
        return pa.Table.from_pandas(census, preserve_index=False)
    columns = {}
    for column in plan.columns:
        codes = sampled_codes(column.space, 40)
        columns[column.name] = column.space.decode(codes[[i * 7 % len(codes) for i in range(ROWS)]])
    return pa.table(columns)


def shown(table: pa.Table) -> str:
    return hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()[:20]


def released(plan: Plan, folder: Path) -> dict[str, str]:
    """Digests of the release in memory, from Parquet to Parquet, and of what the plan says."""
    table, source, target = table_for(plan), folder / "in.parquet", folder / "out.parquet"
    pq.write_table(table, source)
    dpf.Ledger(folder / "ledger.sqlite").create(
        "golden", plan.epsilon * 2, min(plan.delta * 2, 0.5), accounting="basic", unit=plan.unit
    )
    account = {"ledger": str(folder / "ledger.sqlite"), "dataset": "golden"}
    memory = dpf.sanitize(table, plan=plan, key=KEY)
    assert shown(dpf.sanitize(table, plan=plan, key=KEY, **account)) == shown(memory)
    info = dpf.sanitize(source, target, plan=plan, key=KEY, batch_rows=17)
    first = shown(pq.read_table(target))
    dpf.sanitize(source, target, plan=plan, **account)
    return {"memory": shown(memory), "parquet": first, "ledger": shown(pq.read_table(target)), "digest": info.digest}


def close(a: Any, b: Any) -> bool:
    """Compare JSON whose numbers may differ by a rounding of another machine."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float | int) and isinstance(b, float | int):
        return a == pytest.approx(b, rel=1e-6, abs=1e-12)
    return a == b


def without_vertices(plan: Any) -> Any:
    """Return a plan's JSON without the tables of optimal channels: a linear programme's vertex is its solver's."""
    if isinstance(plan, list):
        return [without_vertices(part) for part in plan]
    if not isinstance(plan, dict):
        return plan
    optimal = plan.get("mechanism") == "optimal"
    return {k: without_vertices(v) for k, v in plan.items() if not (optimal and k == "table")}


GOLDEN = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


@pytest.mark.skipif(WRITE, reason="they are being written")
@pytest.mark.walk(80)
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_releases_stay_the_same(name, tmp_path, monkeypatch):
    # A job's key under a ledger is fresh from the operating system, which is held still here.
    monkeypatch.setattr(secrets, "token_bytes", lambda n=32: KEY[:n])
    golden = GOLDEN[name]
    assert released(Plan.from_json(json.dumps(golden["plan"])), tmp_path) == golden["released"]


@pytest.mark.skipif(WRITE, reason="they are being written")
@pytest.mark.parametrize("kind", ["tables", "pure", pytest.param("approximate", marks=pytest.mark.slow)])
def test_plans_stay_the_same(kind):
    made = dict(plans_of_tables() if kind == "tables" else plans_of_columns(kind))
    assert set(made) == {name for name in GOLDEN if name.endswith(kind) or (kind == "tables" and "census" in name)}
    for name, plan in made.items():
        own, golden = (without_vertices(part) for part in (json.loads(plan.to_json()), GOLDEN[name]["plan"]))
        assert close(own, golden), name


@pytest.mark.skipif(not WRITE, reason="only on request")
def test_write_them_down(tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", lambda n=32: KEY[:n])
    found = {}
    for i, (name, plan) in enumerate(plans()):
        (tmp_path / str(i)).mkdir()
        found[name] = {"plan": json.loads(plan.to_json()), "released": released(plan, tmp_path / str(i))}
    FILE.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
