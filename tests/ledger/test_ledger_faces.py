"""Every face under a ledger: spent before it is drawn, once per job, however often the job is interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import random
import stat
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import processes
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.errors import BudgetExceeded, ColumnError, LedgerError, ParameterError, PlanError
from dpframe.inference.inferred import Inferred
from dpframe.ledger import job_keys
from dpframe.release import identity
from dpframe.release.identity import request_digest

KILLS = int(os.environ.get("DPFRAME_KILLS", "10"))
DISKS = int(os.environ.get("DPFRAME_DISKS", "6"))
SPACES = {"age": (0, 120), "sex": ["F", "M"]}
TWO: Any = {"spaces": SPACES}

pytestmark = pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")


@pytest.fixture
def ledger(tmp_path: Path) -> dpf.Ledger:
    made = dpf.Ledger(tmp_path / "ledger.sqlite")
    made.create("survey", 1.0, 1e-6, accounting="basic")
    return made


@pytest.fixture
def people() -> pd.DataFrame:
    return dpf.datasets.make_census(400, columns=["age", "sex"])


@pytest.fixture
def source(tmp_path: Path, people: pd.DataFrame) -> Path:
    people.to_parquet(tmp_path / "in.parquet", index=False)
    return tmp_path / "in.parquet"


def account(ledger: dpf.Ledger, dataset: str = "survey") -> Any:
    return {"ledger": ledger, "dataset": dataset}


def spent(ledger: dpf.Ledger) -> list[tuple[str, float, float]]:
    table = ledger.history("survey")
    return list(zip(table["what"], table["epsilon"], table["delta"], strict=True))


# --------------------------------------------------------------------------------------------------- every face


@pytest.mark.slow
def test_every_face_spends_its_promise(people: pd.DataFrame, source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    people.dp.sanitize(0.125, 1e-8, **TWO, **account(ledger))
    dpf.sanitize(
        pa.Table.from_pandas(people), epsilon=0.125, delta=1e-8, **TWO, ledger=str(ledger.path), dataset="survey"
    )
    dpf.sanitize(source, tmp_path / "out.parquet", 0.125, 1e-8, **TWO, **account(ledger))
    dpf.sanitize(people, epsilon=0.125, delta=1e-8, **account(ledger))  # inference inside the promise
    dpf.sanitize(people, plan=people.dp.plan(0.125, 1e-8, **TWO), **account(ledger))
    assert spent(ledger) == [("release", 0.125, 1e-8)] * 5
    people.dp.plan(0.125, 1e-8, **TWO, **account(ledger))  # costs nothing, as nothing is inferred
    assert len(spent(ledger)) == 5


@pytest.mark.walk(2)
@pytest.mark.parametrize("whole, share", [(1.0, 0.1), (1.0, 0.82), (0.3, 0.07), (0.7, 1 / 3)])
@pytest.mark.slow
def test_a_plan_and_its_release_cost_the_promise_together(
    people: pd.DataFrame, tmp_path: Path, whole: float, share: float
) -> None:
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.1 * whole, 1e-6)  # a dataset's pool of half its δ leaves M² 5 % less
    plan = people.dp.plan(whole, 1e-6, infer_share=share, **account(ledger))
    assert [what for what, *_ in spent(ledger)] == ["inference"]
    people.dp.sanitize(plan=dpf.Plan.from_json(plan.to_json()), **account(ledger))
    (_, inferred, _), (what, rest, _) = spent(ledger)
    assert what == "release"
    assert plan.inferred is not None
    assert inferred == plan.inferred.budget.epsilon
    assert rest == plan.released.epsilon < whole < rest + inferred  # together they cost less than apart
    assert ledger.remaining("survey").epsilon < 0.5 * whole
    with pytest.raises(BudgetExceeded):
        people.dp.sanitize(plan=plan, **account(ledger))


@pytest.mark.slow
def test_parquet_takes_a_plan_that_is_paid_in_part(source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    plan = dpf.plan(source, 0.4, 1e-7, **account(ledger))
    assert plan.inferred is not None
    for _ in range(2):  # inference is paid once, every release for itself
        dpf.sanitize(source, tmp_path / "out.parquet", plan=plan, **account(ledger))
    assert [(what, epsilon) for what, epsilon, _ in spent(ledger)] == [
        ("inference", plan.inferred.budget.epsilon),
        ("release", plan.released.epsilon),
        ("release", plan.released.epsilon),
    ]


@pytest.mark.slow
def test_only_what_was_paid_for_here_is_taken_off(people: pd.DataFrame, tmp_path: Path, ledger: dpf.Ledger) -> None:
    """A plan can be written by hand."""
    ledger.create("other", 9.0, 1e-5, accounting="basic")
    plan = people.dp.plan(0.02, 1e-8, measure=None, **account(ledger))
    assert plan.inferred is not None

    def cost(changed: dict[str, Any], dataset: str = "other", where: dpf.Ledger = ledger) -> float:
        assert plan.inferred is not None
        made = replace(plan, inferred=replace(plan.inferred, **changed))
        before = where.spent(dataset).epsilon
        people.dp.sanitize(plan=made, **account(where, dataset))
        return round(where.spent(dataset).epsilon - before, 12)

    assert cost({}, "survey") == round(plan.released.epsilon, 12) < 0.02
    assert cost({}) == 0.02  # paid for by another dataset
    assert cost({"receipt": None}, "survey") == 0.02
    assert cost({"receipt": "0" * 32}, "survey") == 0.02
    releases = ledger.history("survey")
    of_release = releases.loc[releases["what"] == "release", "release_id"].iloc[0]
    assert cost({"receipt": of_release}, "survey") == 0.02
    # More taken off than was paid: the rows are then noisier than they need be, but nothing is saved.
    more = dpf.plan(people, 0.02, 1e-8, measure=None, infer_share=0.8)
    assert more.inferred is not None
    forged = replace(more, inferred=replace(more.inferred, receipt=plan.inferred.receipt))
    before = ledger.spent("survey").epsilon
    people.dp.sanitize(plan=forged, **account(ledger))
    assert round(ledger.spent("survey").epsilon - before, 12) == 0.02
    elsewhere = dpf.Ledger(tmp_path / "elsewhere.sqlite")
    elsewhere.create("survey", 1.0, 1e-6, accounting="basic")
    assert cost({}, "survey", elsewhere) == 0.02


@pytest.mark.slow
def test_a_receipt_says_nothing(people: pd.DataFrame, ledger: dpf.Ledger) -> None:
    """It is drawn at random, and stands for nothing outside the ledger."""
    plans = [people.dp.plan(0.05, 1e-8, **account(ledger)) for _ in range(2)]
    receipts = [plan.inferred.receipt for plan in plans if isinstance(plan.inferred, Inferred)]
    assert len({*receipts}) == 2
    assert all(receipt and len(bytes.fromhex(receipt)) == 16 for receipt in receipts)


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.slow
def test_what_is_refused_costs_nothing(people: pd.DataFrame, source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    table = pa.Table.from_pandas(people, preserve_index=False)
    out = tmp_path / "out.parquet"
    wrong: Any = {"spaces": {"sex": ["F", "X"]}}
    few = people.dp.plan(0.1, 1e-7, **TWO)
    for call in (
        lambda **kept: dpf.sanitize(people, epsilon=0.1, delta=1e-7, **wrong, **kept),  # age is inferred
        lambda **kept: dpf.sanitize(table, epsilon=0.1, delta=1e-7, spaces=wrong["spaces"] | {"age": (0, 120)}, **kept),
        lambda **kept: dpf.sanitize(source, out, 0.1, 1e-7, **wrong, **kept),
        lambda **kept: dpf.sanitize(source, out, 0.1, spaces=wrong["spaces"] | {"age": (0, 120)}, **kept),
        lambda **kept: dpf.sanitize(people.assign(more=1), plan=few, **kept),
        lambda **kept: dpf.sanitize(people.assign(sex=0.5), plan=few, **kept),
        lambda **kept: dpf.sanitize(source, out, plan=people[["age"]].dp.plan(0.1, spaces={"age": (0, 9)}), **kept),
        lambda **kept: dpf.sanitize(source, out, 0.1, spaces={"age": (0, 9), "sex": (0, 9)}, **kept),
    ):
        with pytest.raises(ColumnError):
            call(**account(ledger))
    with pytest.raises(PlanError, match=r"^the plan was made.*400.*table has 100"):
        dpf.sanitize(people[:100], plan=few, **account(ledger))
    assert spent(ledger) == []
    assert job_keys.pending(ledger) == []
    assert not out.exists()


def test_an_exceeded_budget_leaves_nothing(
    people: pd.DataFrame, source: Path, tmp_path: Path, ledger: dpf.Ledger
) -> None:
    match = r"^dataset survey has epsilon=1, delta=1e-06 left of .*: nothing was spent and nothing was drawn; ask for"
    for options in (TWO, {}):
        for call in (
            lambda **kept: dpf.sanitize(people, epsilon=1.5, delta=1e-7, measure=None, **kept),
            lambda **kept: dpf.sanitize(source, tmp_path / "out.parquet", 1.5, 1e-7, **kept),
        ):
            with pytest.raises(BudgetExceeded, match=match):
                call(**options, **account(ledger))
    with pytest.raises(BudgetExceeded, match=match):
        people.dp.plan(20.0, 1e-7, measure=None, **account(ledger))
    assert spent(ledger) == []
    assert job_keys.pending(ledger) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["in.parquet", "ledger.sqlite"]


@pytest.mark.slow
def test_parts_cost_what_the_dearest_does(people: pd.DataFrame, source: Path, tmp_path: Path) -> None:
    """Parallel composition through every face: north and south are other people's rows."""
    ledger = dpf.Ledger(tmp_path / "parts.sqlite")
    ledger.create("survey", 1.0, 1e-6, accounting="basic", parts=("north", "south"))
    north, south = ({"ledger": ledger.account("survey", part)} for part in ("north", "south"))
    dpf.sanitize(people, epsilon=0.4, delta=1e-7, **TWO, **north)
    people.dp.sanitize(0.3, 1e-7, **TWO, **south)
    assert ledger.spent("survey").epsilon == 0.4
    dpf.sanitize(source, tmp_path / "out.parquet", 0.3, 1e-7, **TWO, **south)
    dpf.Sanitizer(0.3, 0.0, spaces=SPACES, **north).fit(people).transform(people)
    assert ledger.spent("survey").epsilon == pytest.approx(0.7)
    plan = people.dp.plan(0.3, 1e-7, measure=None, infer_share=0.5, **south)
    assert plan.inferred is not None
    assert ledger.find(plan.inferred.receipt or "").part == "south"
    with pytest.raises(BudgetExceeded, match="nothing was drawn"):
        dpf.sanitize(people, epsilon=0.4, delta=1e-7, **TWO, **north)
    assert set(ledger.history("survey")["part"]) == {"north", "south"}


def test_a_receipt_of_another_part_is_none(people: pd.DataFrame, tmp_path: Path) -> None:
    """What inference of the north's rows cost pays for nothing of the south's."""
    ledger = dpf.Ledger(tmp_path / "parts.sqlite")
    ledger.create("survey", 1.0, 1e-6, accounting="basic", parts=("north", "south"))
    plan = people.dp.plan(0.5, 1e-7, measure=None, ledger=ledger.account("survey", "north"))
    dpf.sanitize(people, plan=plan, ledger=ledger.account("survey", "south"))
    assert ledger.history("survey").set_index("part").loc["south", "epsilon"] == pytest.approx(0.5)


def test_an_interrupted_job_is_that_of_its_part(source: Path, tmp_path: Path, people: pd.DataFrame) -> None:
    ledger = dpf.Ledger(tmp_path / "parts.sqlite")
    ledger.create("survey", 1.0, 1e-6, accounting="basic", parts=("north", "south"))
    north, south = ({"ledger": ledger.account("survey", part)} for part in ("north", "south"))
    target, options = tmp_path / "out.parquet", {"epsilon": 0.4, "delta": 0.0, **TWO}
    with pytest.raises(RuntimeError, match="stop"):
        dpf.sanitize(source, target, **options, **north, progress=stop)
    with pytest.raises((LedgerError, ParameterError), match="forget"):
        dpf.sanitize(source, target, **options, **south)
    dpf.sanitize(source, target, **options, **north)
    assert ledger.history("survey")["part"].tolist() == ["north"]


def stop(done: int, total: int) -> None:
    raise RuntimeError("stop")


def test_refusals_of_parts(people: pd.DataFrame, tmp_path: Path, ledger: dpf.Ledger) -> None:
    ledger.create("moving", 1.0, parts=("north", "south"), moving=True)
    for options, match in (
        ({"ledger": ledger.account("survey", "north")}, "dataset survey has no parts; leave part out"),
        ({"ledger": ledger.account("moving", "west")}, "dataset moving has no part west; its parts are"),
        ({"ledger": ledger.account("moving", "north")}, "may move between its parts.*release all parts as one table"),
        ({"ledger": ledger.account("moving"), "dataset": "survey"}, "ledger is an account, which names its dataset"),
    ):
        with pytest.raises(ParameterError, match=match):
            dpf.sanitize(people, epsilon=0.1, delta=0.0, **TWO, **options)
    assert ledger.history().empty
    for wrong in ("", 3, None):
        with pytest.raises(ParameterError, match=r"^dataset must be"):
            ledger.account(wrong)
    with pytest.raises(ParameterError, match=r"^part must be"):
        ledger.account("moving", " ")


def test_ledger_and_dataset_go_together(people: pd.DataFrame, source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    calls: list[Any] = [
        lambda **kept: dpf.sanitize(people, epsilon=0.1, **TWO, **kept),
        lambda **kept: people.dp.plan(0.1, **kept),
        lambda **kept: dpf.plan(source, 0.1, **kept),
        lambda **kept: dpf.sanitize(source, tmp_path / "out.parquet", 0.1, **TWO, **kept),
    ]
    for call in calls:
        for kept in ({"ledger": ledger}, {"dataset": "survey"}):
            with pytest.raises(ParameterError, match=r"^ledger and dataset go.*run with them"):
                call(**kept)
        with pytest.raises(
            LedgerError, match=r"^dataset nobody is not in .*, which holds survey; make it with: dpframe"
        ):
            call(ledger=ledger, dataset="nobody")
        with pytest.raises(LedgerError, match=r"no.sqlite does not exist; make it with"):
            call(ledger=tmp_path / "no.sqlite", dataset="survey")
        with pytest.raises(ParameterError, match=r"^ledger must be the path of a file"):
            call(ledger=3, dataset="survey")
    assert spent(ledger) == []
    with pytest.raises(ParameterError, match=r"^key and ledger do.*job keeps its"):
        dpf.sanitize(source, tmp_path / "out.parquet", 0.1, **TWO, **account(ledger), key=bytes(32))


# --------------------------------------------------------------------------------------------------- interruptions


class Killed(BaseException):
    pass


def interrupted(source: Path, out: Path, ledger: dpf.Ledger, **options: Any) -> bytes:
    """Stop a job in the middle; return its key."""

    def stop(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        dpf.sanitize(source, out, 0.25, 1e-7, **options, **account(ledger), progress=stop)
    (path,) = (Path(f"{ledger.path}.keys")).glob("*.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return bytes.fromhex(json.loads(path.read_text())["key"])


@pytest.mark.parametrize("options", [TWO, {}, {"drop": iter(["sex"])}], ids=["declared", "inferred", "read once"])
@pytest.mark.slow
def test_a_repeated_job_writes_what_it_would_have(
    options: Any, source: Path, tmp_path: Path, ledger: dpf.Ledger
) -> None:
    key = interrupted(source, tmp_path / "out.parquet", ledger, **options)
    options = {"drop": ["sex"]} if "drop" in options else options
    info = dpf.sanitize(source, tmp_path / "out.parquet", 0.25, 1e-7, **options, **account(ledger))
    assert spent(ledger) == [("release", 0.25, 1e-7)]
    assert job_keys.pending(ledger) == []
    again, out = tmp_path / "again.parquet", tmp_path / "out.parquet"
    dpf.sanitize(source, again, 0.25, 1e-7, **options, key=key)
    assert again.read_bytes() == out.read_bytes()
    dpf.sanitize(source, again, plan=info.plan, key=key)
    # Of a plan made before the release does not say that it was measured on this table.
    pd.testing.assert_frame_equal(pd.read_parquet(again), pd.read_parquet(out))


def test_a_key_serves_one_input_and_one_request(source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    out, long = tmp_path / "out.parquet", [str(i) for i in range(3_000)]
    spaces: Any = {"age": (0, 120), "sex": ["F", "M", *long]}
    interrupted(source, out, ledger, spaces=spaces)
    match = "^the input or the plan changed since the interrupted run of .*its key is void: `dpframe ledger forget"

    def refused(**options: Any) -> None:
        given = {"epsilon": 0.25, "delta": 1e-7, "spaces": spaces} | options
        with pytest.raises(LedgerError, match=match):
            dpf.sanitize(source, out, **given, **account(ledger))

    refused(epsilon=0.125)
    refused(delta=0.0)
    refused(shuffle=False)
    # Beyond what repr shows of a long dtype or array.
    refused(spaces=spaces | {"sex": pd.CategoricalDtype(["F", "M", *long[:1_500], *long[:1_499:-1]])})
    refused(spaces=None)
    dpf.datasets.make_census(400, random_state=9, columns=["age", "sex"]).to_parquet(source, index=False)
    refused()
    assert len(spent(ledger)) == 1
    job_keys.forget(ledger, "survey", job_keys.job_name(out))
    dpf.sanitize(source, out, 0.25, 1e-7, spaces=spaces, **account(ledger))
    assert spent(ledger) == [("release", 0.25, 1e-7)] * 2


def test_a_request_is_another_one_once_a_name_means_another_mechanism() -> None:
    """Its noise is new, and is paid for: until version 0.2.0 ``gaussian`` noise on a number ended at its bounds."""
    before = "c8d16546eb9fafb3b9d82f9f56e191db9b7751b7575a899a05991d99df1863f2"
    assert request_digest(9.0, 1e-6, {"mechanisms": {"a": "gaussian"}}).hex() != before


@pytest.mark.slow
def test_a_key_is_paid_for_anew_where_numbers_round_otherwise(
    people: pd.DataFrame, ledger: dpf.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last digits of a calibrated ε differ between processors, and by them all noise of one request and key.

    Where spaces are inferred the release is known by its request, as its plan is not there before it is paid for.
    """

    def released() -> int:
        dpf.sanitize(people, epsilon=0.25, delta=1e-7, measure=None, key=bytes(range(32)), **account(ledger))
        return len(spent(ledger))

    assert released() == released() == 1
    rounding = identity.arithmetic()
    monkeypatch.setattr(identity, "arithmetic", lambda: rounding[::-1])
    assert released() == 2


def test_equal_requests_are_one(source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    """However they are written."""
    interrupted(source, tmp_path / "out.parquet", ledger, **TWO)
    spaces = {"sex": pd.CategoricalDtype(["F", "M"]), "age": dpf.Integer(0, 120)}
    dpf.sanitize(source, tmp_path / "out.parquet", 0.25, 1e-7, spaces=spaces, **account(ledger))
    assert len(spent(ledger)) == 1


# ------------------------------------------------------------------------------------------------------- processes


@pytest.mark.slow
def test_sixteen_processes_share_what_there_is(source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    """Sixteen jobs of 0.1 each, of a total of 1: ten succeed."""
    (tmp_path / "spaces.json").write_text(json.dumps({"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"]}))
    words = f"--epsilon 0.1 --delta 0 --spaces {tmp_path}/spaces.json --ledger {ledger.path} --dataset survey".split()
    with contextlib.ExitStack() as stack:
        running = []
        for i in range(16):
            arguments = ["sanitize", str(source), f"{tmp_path}/{i}.parquet", *words]
            running.append(stack.enter_context(processes.child(processes.run_command, arguments))[1])
        for connection in running:
            connection.send("go")
        codes = [connection.recv() for connection in running]
    assert Counter(codes) == {0: 10, 3: 6}
    assert [(tmp_path / f"{i}.parquet").exists() for i in range(16)] == [code == 0 for code in codes]
    assert spent(ledger) == [("release", 0.1, 0.0)] * 10
    assert ledger.remaining("survey").epsilon == 0
    assert job_keys.pending(ledger) == []


@dataclass(frozen=True)
class Kind:
    """A job that is killed: its options on the command line, and in Python."""

    words: str
    options: dict[str, Any]


KINDS = {
    "declared": Kind(
        "--epsilon 0.5 --delta 0 --spaces ../spaces.json", {"epsilon": 0.5, "delta": 0.0, "spaces": SPACES}
    ),
    "inferred": Kind("--epsilon 0.5 --delta 1e-7", {"epsilon": 0.5, "delta": 1e-7}),
}
ROWS = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_random_moments(kind: str, tmp_path: Path) -> None:
    """Never a whole output without its spend, never a torn one, nothing else left, and every repetition the same."""
    census = dpf.datasets.make_census(ROWS, columns=["age", "sex"])
    census.to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "spaces.json").write_text(json.dumps({"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"]}))
    draw, longest, found = random.Random(0), 0.0, Counter[str]()
    for number in range(-1, KILLS // 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = dpf.Ledger(folder / "ledger.sqlite")
        ledger.create("survey", 0.5, 1e-6, accounting="basic")
        words = f"sanitize {tmp_path}/in.parquet {folder}/out.parquet {KINDS[kind].words} --ledger {ledger.path}"
        arguments = [*words.replace("..", str(tmp_path)).split(), "--dataset", "survey"]
        if number < 0:  # how long it takes
            longest = seconds(arguments)
            continue
        with processes.child(processes.run_command, arguments) as (process, connection):
            connection.send("go")
            connection.poll(draw.uniform(0, 1.05) * longest)
            process.kill()
            process.join()
        found[check_killed(folder, ledger, tmp_path / "in.parquet", arguments, KINDS[kind].options)] += 1
    print(f"{kind}: {dict(found)}, in {longest:.2f} s each")
    assert sum(found.values()) == KILLS // 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_disks_that_are_full_at_random_sizes(kind: str, tmp_path: Path) -> None:
    """As after a kill; the command says so in one line, with the exit code of bad input."""
    census = dpf.datasets.make_census(ROWS, columns=["age", "sex"])
    census.to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "spaces.json").write_text(json.dumps({"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"]}))
    draw, found = random.Random(1), Counter[str]()
    for number in range(DISKS // 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = dpf.Ledger(folder / "ledger.sqlite")
        ledger.create("survey", 0.5, 1e-6, accounting="basic")
        words = f"sanitize {tmp_path}/in.parquet {folder}/out.parquet {KINDS[kind].words} --ledger {ledger.path}"
        arguments = [*words.replace("..", str(tmp_path)).split(), "--dataset", "survey"]
        size = round(2 ** draw.uniform(8, 21))
        with processes.child(processes.run_command_on_a_small_disk, arguments, size) as (process, connection):
            connection.send("go")
            process.join()
            (code,) = processes.received(connection)
        state = check_killed(folder, ledger, tmp_path / "in.parquet", arguments, KINDS[kind].options)
        assert (code == 0) == (state == "done")
        assert code in (0, 2)
        found[f"exit code {code}, {state}"] += 1
    print(f"{kind}: {dict(found)}")


def seconds(arguments: list[str]) -> float:
    from time import perf_counter

    with processes.child(processes.run_command, arguments) as (_, connection):
        start = perf_counter()
        connection.send("go")
        assert connection.recv() == 0
        return perf_counter() - start


def check_killed(folder: Path, ledger: dpf.Ledger, source: Path, arguments: list[str], options: dict[str, Any]) -> str:
    """Check what a killed job left, repeat it, and return how far it had come."""
    out, entries, keys = folder / "out.parquet", spent(ledger), sorted(Path(f"{ledger.path}.keys").glob("*"))
    assert {path.name for path in folder.iterdir()} <= {
        "out.parquet",
        "ledger.sqlite",
        "ledger.sqlite-wal",
        "ledger.sqlite-shm",
        "ledger.sqlite.keys",
    }
    assert entries in ([], [("release", options["epsilon"], options["delta"])])
    assert not (out.exists() and not entries)
    for path in keys:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if out.exists():
        assert dpf.verify(out).ok
        assert dpf.Estimates(out).plan.epsilon == options["epsilon"]
    if entries and not keys:
        assert out.exists()
        return "done"
    expected = None
    if entries:
        key = bytes.fromhex(json.loads(keys[0].read_text())["key"])
        dpf.sanitize(source, folder / "expected", **options, key=key)
        expected = (folder / "expected").read_bytes()
        assert not out.exists() or out.read_bytes() == expected
    state = "written" if out.exists() else "spent" if entries else "key" if keys else "nothing"
    seconds(arguments)
    assert dpf.verify(out).ok
    assert expected is None or out.read_bytes() == expected
    assert spent(ledger) == [("release", options["epsilon"], options["delta"])]
    assert list(Path(f"{ledger.path}.keys").glob("*")) == []
    return state


def test_batches_do_not_matter_to_a_job(source: Path, tmp_path: Path, ledger: dpf.Ledger) -> None:
    key = interrupted(source, tmp_path / "out.parquet", ledger, **TWO)
    dpf.sanitize(source, tmp_path / "out.parquet", 0.25, 1e-7, **TWO, **account(ledger), batch_rows=7)
    dpf.sanitize(source, tmp_path / "again.parquet", 0.25, 1e-7, **TWO, key=key)
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()


def an_inference(frame: pd.DataFrame) -> dpf.Plan:
    return frame.dp.plan(epsilon=0.5, delta=1e-6, measure=None)


@pytest.fixture
def clinic(tmp_path: Path) -> dpf.Ledger:
    ledger = dpf.Ledger(tmp_path / "clinic.sqlite")
    ledger.create("clinic", 100.0, 1e-3)
    return ledger


@pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
@pytest.mark.slow
def test_each_inference_is_charged_and_each_once(clinic: dpf.Ledger) -> None:
    """Five inferences of one request share all their public facts: only one of them was charged."""
    frame = dpf.datasets.make_census(3_000, columns=["age", "sex"])
    plans = [an_inference(frame) for _ in range(5)]
    assert len({plan.inferred.id for plan in plans}) == 5
    for plan in (*plans, *plans):
        again = dpf.Plan.from_json(plan.to_json())
        assert again == plan
        frame.dp.plan(epsilon=0.5, delta=1e-6, measure=None, spaces=again, ledger=clinic, dataset="clinic")
    spends = clinic.history("clinic")
    assert spends["what"].tolist() == ["inference"] * 5
    assert clinic.spent("clinic").epsilon > 1.5 * spends["cumulative_epsilon"].iloc[0]


@pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
def test_an_inference_without_an_id_is_charged_at_every_use(clinic: dpf.Ledger) -> None:
    """As plans of older versions have none."""
    frame = dpf.datasets.make_census(3_000, columns=["age", "sex"])
    plan = an_inference(frame)
    old = dpf.Plan.from_json(plan.to_json().replace(f', "id": "{plan.inferred.id}"', ""))
    assert old.inferred.id is None
    assert old.digest == plan.digest, "an id is a name, and changes no released value"
    for _ in range(3):
        frame.dp.plan(epsilon=0.5, delta=1e-6, measure=None, spaces=old, ledger=clinic, dataset="clinic")
    assert len(clinic.history("clinic")) == 3


@pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
@pytest.mark.slow
def test_one_id_at_another_cost_is_refused(clinic: dpf.Ledger) -> None:
    frame = dpf.datasets.make_census(3_000, columns=["age", "sex"])
    one, other = an_inference(frame), frame.dp.plan(epsilon=0.7, delta=1e-6, measure=None)
    forged = dpf.Plan.from_json(other.to_json().replace(other.inferred.id, one.inferred.id))
    options = {"epsilon": 0.5, "delta": 1e-6, "ledger": clinic, "dataset": "clinic"}
    frame.dp.plan(**options, spaces=one)
    with pytest.raises(LedgerError):
        frame.dp.plan(**options, spaces=forged)
    assert len(clinic.history("clinic")) == 1


def test_a_repeated_draw_is_the_same_inference_and_another_key_another() -> None:
    frame = dpf.datasets.make_census(3_000, columns=["age", "sex"])
    keys = [bytes(31) + bytes([i]) for i in (1, 1, 2)]
    found = [
        dpf.Estimates(frame.dp.sanitize(epsilon=1, delta=1e-6, measure=None, key=key)).plan.inferred.id for key in keys
    ]
    assert found[0] == found[1] != found[2]
    with pytest.raises(PlanError, match="the id of an inference must be text"):
        plan = an_inference(frame)
        dpf.Plan.from_json(plan.to_json().replace(f'"{plan.inferred.id}"', "7"))
