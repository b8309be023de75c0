"""The second verifier: it stands alone, agrees with the first one, and both refuse tampered descriptions."""

from __future__ import annotations

import ast
import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import KEY
from second_verifiers import compare, random_release
from test_golden import GOLDEN

import dpframe as dpf
from dpframe import Plan, ReleaseInfo, second_verifier
from dpframe.errors import DpframeError

SOURCE = Path(second_verifier.__file__)
MOST_LINES = 1_000

MU_EXCESS, MU_SAVING = 1e-3, 0.05
"""Relative difference of the rows' μ, above and below the first verifier's: that states up to .2 % above the least, and
for less than a thousand rows more, as its sum merges atoms (tolerance)."""

Data = dict[str, Any]


def test_it_is_one_file_of_the_standard_library():
    text = SOURCE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else str(node.module).partition(".")[0])
    assert names <= sys.stdlib_module_names


def test_its_file_proves_a_release_anywhere(tmp_path):
    for name, path in releases(tmp_path).items():
        copied = shutil.copy(SOURCE, tmp_path / f"{name}.py")
        run = subprocess.run(
            [sys.executable, "-I", "-S", copied, path], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (run.returncode, run.stdout.splitlines()[0]) == (
            0,
            "PROVED (the plan; rows are not read)",
        ), run.stdout + run.stderr


def test_exit_statuses(tmp_path, capsys):
    missing, description = tmp_path / "missing.parquet", tmp_path / "description.json"
    assert second_verifier.main([str(missing)]) == second_verifier.UNREADABLE
    data = json.loads(released("pure").to_json())
    for change, status in (
        (lambda plan: None, second_verifier.PROVED),
        (lambda plan: plan.update(epsilon=plan["epsilon"] / 2), second_verifier.REFUTED),
        (lambda plan: plan.update(unknown=1), second_verifier.NOT_COVERED),
        (lambda plan: plan["columns"][0]["mechanism"].update(mechanism="vector"), second_verifier.NOT_COVERED),
    ):
        changed = copy.deepcopy(data)
        change(changed["plan"])
        description.write_text(json.dumps(changed), encoding="utf-8")
        assert second_verifier.main([str(description)]) == status
    assert "not covered" in capsys.readouterr().out


@pytest.mark.walk(20)
@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if "census" not in name))
def test_both_agree_on_golden_columns(name):
    check_golden(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if "census" in name))
def test_both_agree_on_golden_tables(name):
    check_golden(name)


def check_golden(name: str) -> None:
    plan = Plan.from_json(json.dumps(GOLDEN[name]["plan"]))
    certificate, findings = plan.verify(), second_verifier.verify(GOLDEN[name]["plan"])
    assert certificate.ok
    assert findings.verdict in (second_verifier.PROVED, second_verifier.NOT_COVERED), findings.lines
    covered = findings.verdict == second_verifier.PROVED
    assert covered or any(
        part in name for part in ("approximate", "vector", "gaussian", "process", "wrapped", "census")
    )
    if "mu of rows" in findings.totals:
        assert -MU_SAVING < findings.totals["mu of rows"] / plan.steps["rows"].mu - 1 < MU_EXCESS
    if plan.delta == 0 and covered:
        assert findings.totals["total epsilon"] == pytest.approx(certificate.epsilon, abs=1e-6)


# Every third seed has shuffled rows, which take seconds, and 17 takes as long.
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.slow] if seed % 3 == 1 or seed > 30 or seed == 17 else [])
        for seed in (*range(60), 217, 223, 425)
    ],
)
@pytest.mark.filterwarnings("ignore:delta=.* is above 1/n")
def test_both_agree_on_random_releases(seed):
    agreement = compare(random_release(seed))
    assert agreement.first
    assert agreement.second in ("proved", "not covered")
    assert -MU_SAVING <= agreement.rows_mu <= MU_EXCESS
    if agreement.part.startswith("total epsilon"):
        assert abs(agreement.difference) <= 1e-6
    elif not agreement.rows_mu:
        assert abs(agreement.difference) <= 2e-3  # of δ; less than 1e-4 in ε


# Tampered descriptions.


RELEASES = ("pure", "ordered", "tables", "inferred", "indicators")
INDICATORS = dpf.OneOf(["is_a", "is_b", "is_c"], at_most=True)


@cache
def released(name: str) -> ReleaseInfo:
    return frame_of(name).dp.release


@cache
def frame_of(name: str) -> pd.DataFrame:
    """Return releases without δ, in their order, of tables, with inferred spaces, and of indicators."""
    columns = {"sex": ["F", "M"], "age": (18, 95)}
    hobbies = {"hobbies": dpf.Subset(dpf.datasets.HOBBIES, 2), "region": list(dpf.datasets.REGIONS)}
    spaces, delta, options = {
        "pure": (columns, 0.0, {}),
        "ordered": (columns | hobbies, 1e-6, {"shuffle": False}),
        "tables": (columns, 1e-4, {}),
        "inferred": (None, 1e-6, {"measure": None, "shuffle": False}),
        "indicators": (columns, 1e-4, {"measure": [("is_a", "age")], "shuffle": False, "rules": [INDICATORS]}),
    }[name]
    table = dpf.datasets.make_census(1_000, columns=list(spaces or {"sex": 0, "income": 0}))
    if name == "indicators":
        table = table.assign(**{column: table.index % 3 == i for i, column in enumerate(INDICATORS.columns)})
    given = {} if spaces is None else {"spaces": spaces}
    return dpf.sanitize(table, epsilon=1, delta=delta, key=KEY, **given, **options)


def releases(folder: Path) -> dict[str, Path]:
    paths = {name: folder / f"{name}.parquet" for name in RELEASES}
    for name, path in paths.items():
        dpf.write(frame_of(name), path)
    return paths


def plan_field(**fields: Any) -> Callable[[Data], object]:
    return lambda data: data["plan"].update(fields)


def scaled(*path: Any, by: float) -> Callable[[Data], object]:
    """Return an edit that multiplies a number of the plan."""

    def edit(data: Data) -> None:
        place = data["plan"]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = type(place[path[-1]])(place[path[-1]] * by)

    return edit


def measure_edit(kind: str, /, **fields: Any) -> Callable[[Data], object]:
    def edit(data: Data) -> None:
        one = next(one for one in data["plan"]["measures"] if one["kind"] == kind)
        one.update({key: value(one[key]) if callable(value) else value for key, value in fields.items()})

    return edit


def drop(*path: Any) -> Callable[[Data], object]:
    def edit(data: Data) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return edit


def each_spec(**fields: Any) -> Callable[[Data], object]:
    """Return an edit of all histograms that inference might ask, and of the recorded ones."""

    def edit(data: Data) -> None:
        inferred = data["plan"]["inferred"]
        specs = [spec for group in inferred["asked"] for spec in group["histograms"]]
        for one in [*specs, *inferred["measured"]]:
            one.update({key: value(one[key]) for key, value in fields.items() if key in one})

    return edit


MECHANISM = "columns", 0, "mechanism"
TAMPERED: list[tuple[str, str, Callable[[Data], object]]] = [
    ("pure", "a smaller epsilon", scaled("epsilon", by=0.99)),
    ("pure", "a column's loss", scaled(*MECHANISM, "epsilon", by=1.1)),
    ("pure", "another column's loss", scaled("columns", 1, "mechanism", "epsilon", by=1.1)),
    ("pure", "a response on fewer codes", scaled("columns", 0, "mechanism", "size", by=2)),
    ("pure", "noise on a shorter grid", scaled("columns", 1, "mechanism", "span", by=0.5)),
    ("pure", "a wider space", scaled("columns", 1, "space", "upper", by=2)),
    ("pure", "one more category", lambda data: data["plan"]["columns"][0]["space"]["categories"].append("X")),
    ("pure", "contributions", plan_field(contributions=2)),
    ("pure", "no contributions", plan_field(contributions=0)),
    ("pure", "a mechanism's delta", lambda data: data["plan"]["columns"][0]["mechanism"].update(delta=0.1)),
    ("pure", "an unknown mechanism", lambda data: data["plan"]["columns"][0]["mechanism"].update(mechanism="none")),
    ("pure", "the rows of the release", lambda data: data.update(n=2_000)),
    ("pure", "the rows of the plan", plan_field(n=2_000)),
    ("pure", "a sample", plan_field(sample=100)),
    ("pure", "an unknown field", plan_field(bonus=1)),
    ("pure", "a negative epsilon", plan_field(epsilon=-1.0)),
    ("pure", "a schema of the future", plan_field(schema=9)),
    ("pure", "a column twice", lambda data: data["plan"]["columns"].append(data["plan"]["columns"][1])),
    ("pure", "a column that is dropped as well", plan_field(drop=["age"])),
    ("pure", "a column left out", drop("plan", "columns", 1)),
    ("pure", "a column without a name", lambda data: data["plan"]["columns"][1].update(name="")),
    ("pure", "a group with its first column's mechanism", lambda data: group_columns(data["plan"])),
    ("pure", "more delta than there is", plan_field(delta=2.0)),
    ("pure", "negative rows", plan_field(n=-1_000)),
    ("pure", "a step of inference without delta", lambda data: data["plan"].update(inferred=inferred_part())),
    ("pure", "rows of a sample without one", lambda data: (data.update(rows=9_000), data["plan"].update(n=9_000))),
    ("ordered", "a smaller epsilon", scaled("epsilon", by=0.95)),
    ("ordered", "a smaller delta", scaled("delta", by=0.1)),
    ("ordered", "a column's loss", scaled(*MECHANISM, "epsilon", by=1.5)),
    ("ordered", "more items of a set", lambda data: edit_set(data, items=5)),
    ("ordered", "smaller sets", lambda data: edit_set(data, max_size=1)),
    ("ordered", "contributions", plan_field(contributions=2)),
    ("ordered", "a sample", plan_field(sample=100)),
    ("ordered", "no delta", plan_field(delta=0.0)),
    ("tables", "a smaller sigma2 of a table", measure_edit("one_way", sigma2=lambda x: x * 0.8)),
    ("tables", "a smaller sigma2 of a joint", measure_edit("joint", sigma2=lambda x: x * 0.8)),
    ("tables", "a smaller sigma2 of a sum", measure_edit("sum", sigma2=lambda x: x * 0.8)),
    ("tables", "a sigma2 below all noise", measure_edit("sum", sigma2=0.1)),
    ("tables", "a sigma2 that is text", measure_edit("sum", sigma2="1")),
    ("tables", "a table left out", drop("plan", "measures", 0)),
    ("tables", "the last table left out", drop("plan", "measures", -1)),
    ("tables", "all tables left out of the plan", drop("plan", "measures")),
    ("tables", "all counts left out", drop("tables")),
    ("tables", "another kind of table", measure_edit("joint", kind="vectors")),
    ("tables", "a table of sets", measure_edit("one_way", kind="items", most=2)),
    ("tables", "another column", measure_edit("sum", columns=["sex"])),
    ("tables", "an unknown column", measure_edit("sum", columns=["none"])),
    ("tables", "sets of no items", measure_edit("one_way", kind="items", most=0)),
    ("tables", "other cells", measure_edit("joint", most=4)),
    ("tables", "the seal", lambda data: data.update(digest=data["digest"][:16] + "0" * 16)),
    ("tables", "a smaller epsilon", scaled("epsilon", by=0.9)),
    ("tables", "a smaller delta", scaled("delta", by=0.2)),
    ("tables", "contributions", plan_field(contributions=2)),
    ("tables", "no order", plan_field(shuffle=False)),
    ("tables", "the rows of the plan", scaled("n", by=10)),
    ("tables", "fewer rows in the plan", scaled("n", by=0.1)),
    ("tables", "a column's loss", scaled(*MECHANISM, "epsilon", by=1.3)),
    ("tables", "a column that leaves unprotected", plan_field(passthrough=["name"])),
    ("tables", "no delta", plan_field(delta=0.0)),
    ("inferred", "a smaller mu of inference", scaled("inferred", "mu", by=0.9)),
    ("inferred", "a larger mu of inference", scaled("inferred", "mu", by=2)),
    ("inferred", "a smaller slack", scaled("inferred", "slack", by=0.1)),
    ("inferred", "a smaller epsilon of inference", scaled("inferred", "epsilon", by=0.5)),
    ("inferred", "a smaller delta of inference", scaled("inferred", "delta", by=0.01)),
    ("inferred", "less noise", each_spec(variance=lambda x: x * 0.5)),
    ("inferred", "more cells a row", each_spec(cells=lambda x: 2 if isinstance(x, int) else x)),
    ("inferred", "lower thresholds", each_spec(threshold=lambda x: x // 2)),
    ("inferred", "an unknown field", lambda data: data["plan"]["inferred"].update(checks=[])),
    ("inferred", "a round left out", drop("plan", "inferred", "measured", 0)),
    ("inferred", "a request left out", lambda data: data["plan"]["inferred"]["asked"][0]["histograms"].clear()),
    ("inferred", "nothing asked", lambda data: data["plan"]["inferred"].update(asked=[], measured=[], thresholds={})),
    ("inferred", "all requests in one way", each_spec(kind=lambda kind: kind, way=lambda way: "x")),
    ("inferred", "the unit of inference", plan_field(contributions=3)),
    ("indicators", "no rule", plan_field(rules=[])),
    ("indicators", "a rule with another value", plan_field(rules=[dpf.OneOf(INDICATORS.columns).to_json()])),
    ("indicators", "rules that share columns", lambda data: data["plan"]["rules"].append({"one_of": ["is_a", "is_b"]})),
    ("indicators", "a smaller sigma2", measure_edit("joint", sigma2=lambda x: x * 0.8)),
]


def group_columns(plan: Data) -> None:
    plan["groups"] = [{"names": ["sex", "age"], "mechanism": plan["columns"][0]["mechanism"]}]
    for column in plan["columns"]:
        del column["mechanism"]


def inferred_part() -> Any:
    return json.loads(released("inferred").to_json())["plan"]["inferred"]


def edit_set(data: Data, **fields: Any) -> None:
    mechanism = next(one["mechanism"] for one in data["plan"]["columns"] if one["name"] == "hobbies")
    mechanism.update(fields)


@pytest.mark.walk(12)
@pytest.mark.parametrize(("name", "what", "edit"), TAMPERED, ids=[f"{name}: {what}" for name, what, _ in TAMPERED])
def test_both_refuse_what_was_tampered_with(name, what, edit, tmp_path):
    data = json.loads(released(name).to_json())
    edit(data)
    path = tmp_path / "release.parquet"
    dpf.write(frame_of(name), path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"dpframe": json.dumps(data, ensure_ascii=False).encode()}), path)
    assert second_verifier.main([str(path)]) != second_verifier.PROVED
    try:
        assert not dpf.verify(path).ok
    except DpframeError:
        return


def test_inference_without_requests_is_attested_by_one_and_not_proved_by_the_other():
    """Plans of older versions have no requests: the first verifier names the claim among those of the curator."""
    data = json.loads(released("inferred").to_json())
    del data["plan"]["inferred"]["asked"]
    assert any("might have asked" in line for line in ReleaseInfo.from_json(json.dumps(data)).plan.verify().attested)
    assert second_verifier.verify(data).verdict == second_verifier.NOT_PROVED


def test_forty_kinds_of_tampering():
    assert len({(name, what) for name, what, _ in TAMPERED}) >= 40


def test_a_column_that_the_plan_does_not_have_is_seen_in_the_file(tmp_path):
    path = tmp_path / "release.parquet"
    dpf.write(frame_of("pure"), path)
    table = pq.read_table(path)
    pq.write_table(table.append_column("name", table["sex"]), path)
    assert second_verifier.main([str(path)]) == second_verifier.REFUTED
    assert not dpf.verify(path).ok


UNUSED = {"schema", "digest", "nulls", "library", "version", "name", "categories", "items", "strict", "other", "metric"}
UNUSED |= {"n", "drop", "leaks", "passthrough", "shuffle", "contributions", "rows", "flag_codes", "max_size", "size"}
"""Fields that the proof of columns in their order does not use, or whose absence has one meaning (the format)."""

NUMBERS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * 2,
    lambda x: x / 2,
    lambda x: -x,
    lambda x: 0,
    lambda x: x + 1,
)
CHANGES: dict[type, tuple[Callable[[Any], Any], ...]] = {
    float: (lambda x: x * 0.999, lambda x: x * 1.001, *NUMBERS),
    int: (lambda x: x - 1, lambda x: x // 2, *NUMBERS),
    bool: (lambda x: not x,),
    list: (lambda x: x[1:], lambda x: x[:-1], lambda x: [*x, *x[-1:]]),
}


def edits_of(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield places in JSON, each with a changed value."""
    yield from ((path, change(node)) for change in CHANGES.get(type(node), ()))
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, part in parts:
        yield from edits_of(part, (*path, name))


@pytest.mark.parametrize(
    "name",
    [
        "geometric 1 pure",
        "nullable_bitflip 1 pure",
        "matrix 0 approximate",
        "staircase 3 approximate",
        "gamma_diagonal 0 pure",
    ],
)
def test_what_the_second_proves_of_any_edit_the_first_proves_as_well(name):
    """Every number, list and truth value that has a part in the proof is changed in several ways."""
    plan, proved = GOLDEN[name]["plan"], 0
    for path, value in edits_of(plan):
        edited = copy.deepcopy(plan)
        place: Any = edited
        for step in path[:-1]:
            place = place[step]
        if not path or not UNUSED.isdisjoint(path):
            continue
        place[path[-1]] = value
        if second_verifier.verify(edited).verdict == second_verifier.PROVED:
            proved += 1
            try:
                assert Plan.from_json(json.dumps(edited)).verify().ok, path
            except DpframeError as refusal:
                # Such as a space whose upper bound is below its lower one; never a loss above its claim.
                assert "claims" not in str(refusal)
    assert proved > 1


# Tables that were released together.


KEYS = {"visits": {"person": "people"}}


@cache
def linked(delta: float) -> Any:
    people = dpf.datasets.make_census(200, columns=["sex", "age"]).assign(person=range(200))
    visits = pd.DataFrame({"person": people["person"].repeat(2), "kind": ["a", "b"] * 200})
    spaces = {"people": {"sex": ["F", "M"], "age": (18, 95)}, "visits": {"kind": ["a", "b"]}}
    tables = {"people": people, "visits": visits}
    return dpf.sanitize(tables, epsilon=4, delta=delta, keys=KEYS, contributions={"visits": 2}, spaces=spaces, key=KEY)


def edit_file(path: Path, edit: Callable[[Data], object]) -> None:
    """Rewrite a file with an edited description."""
    table = pq.read_table(path)
    data = json.loads(table.schema.metadata[b"dpframe"])
    edit(data)
    pq.write_table(table.replace_schema_metadata({b"dpframe": json.dumps(data, ensure_ascii=False).encode()}), path)


def edit_files(**fields: Any) -> Callable[[Path], object]:
    """Return an edit of the promise in all files."""
    return lambda folder: [edit_file(path, lambda data: data["together"].update(fields)) for path in folder.iterdir()]


LINKED: dict[str, Callable[[Path], object]] = {
    "a smaller epsilon": edit_files(epsilon=3.9),
    "another release": lambda folder: edit_file(
        folder / "visits.parquet", lambda data: data["together"].update(id="x")
    ),
    "a table left out": lambda folder: (folder / "people.parquet").unlink(),
    "fewer persons": edit_files(persons=100),
    "another parent": edit_files(parent="visits"),
    "no persons": lambda folder: [edit_file(path, drop("plan", "privacy_id")) for path in folder.iterdir()],
}


@pytest.mark.parametrize("delta", [0.0, pytest.param(1e-6, marks=pytest.mark.slow)])
def test_tables_released_together_are_proved_together(delta, tmp_path, capsys):
    linked(delta).write(tmp_path / "out")
    assert second_verifier.main([str(tmp_path / "out")]) == second_verifier.PROVED
    assert "of all tables claims" in capsys.readouterr().out
    assert dpf.verify(tmp_path / "out").ok


def test_inference_that_states_no_step_composes_with_none(tmp_path):
    """It would leave the sum of steps out, whatever ε it states."""
    people = dpf.datasets.make_census(400, columns=["age"]).assign(person=range(400))
    visits = pd.DataFrame({"person": range(400), "kind": ["a", "b"] * 200})
    options = {"keys": KEYS, "contributions": {"visits": 2}, "spaces": {"visits": {"kind": ["a", "b"]}}}
    dpf.sanitize({"people": people, "visits": visits}, epsilon=2, key=KEY, **options).write(tmp_path / "out")
    assert second_verifier.main([str(tmp_path / "out")]) == second_verifier.PROVED

    def forge(data: Data) -> None:
        for inferred in filter(None, (data["plan"].get("inferred"), data["plan"].get("reused"))):
            del inferred["mu"], inferred["slack"]
            inferred["epsilon"] = 60.0
        data["plan"]["epsilon"] += 60 * bool(data["plan"].get("inferred"))

    for path in (tmp_path / "out").iterdir():
        edit_file(path, forge)
    assert second_verifier.main([str(tmp_path / "out")]) != second_verifier.PROVED
    assert not dpf.verify(tmp_path / "out").ok


@pytest.mark.parametrize("what", LINKED)
def test_both_refuse_a_promise_that_was_tampered_with(what, tmp_path):
    linked(0.0).write(tmp_path / "out")
    LINKED[what](tmp_path / "out")
    names = [str(path) for path in sorted((tmp_path / "out").iterdir())]
    alone = len(names) == 1
    assert (second_verifier.main(names) == second_verifier.PROVED) == alone
    assert not dpf.verify(tmp_path / "out").ok
