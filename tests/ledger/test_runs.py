"""Runs of a job that have names: one that is done is not done again, costs nothing, and is known without the input."""

import contextlib
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

import dpframe as dpf
from dpframe import disk
from dpframe.errors import LedgerError, ParameterError, RepeatedReleaseWarning
from dpframe.ledger import job_keys, runs

SPACES = {"age": (0, 120), "sex": ["F", "M"]}
NAMES = ["out.parquet", "out.csv"]


class Killed(BaseException):
    pass


@pytest.fixture
def ledger(tmp_path: Path) -> dpf.Ledger:
    made = dpf.Ledger(tmp_path / "ledger.sqlite")
    made.create("survey", epsilon=1.0, delta=1e-6, parts=("north", "south"))
    return made


@pytest.fixture
def people() -> pd.DataFrame:
    return dpf.datasets.make_census(400, columns=["age", "sex"], random_state=3)


@pytest.fixture
def source(people: pd.DataFrame, tmp_path: Path) -> Path:
    people.to_parquet(tmp_path / "in.parquet", index=False)
    return tmp_path / "in.parquet"


def night(ledger, source, target, run="2026-11-25", part=None, **options):
    given = {"epsilon": 0.2, "delta": 1e-8, "spaces": SPACES} | options
    return dpf.sanitize(source, target, **given, ledger=ledger.account("survey", part, run=run))


def again(*args, **options):
    with pytest.warns(RepeatedReleaseWarning, match=r"^run .* was done at .* UTC: nothing was read, spent or drawn no"):
        return night(*args, **options)


def notes(ledger):
    return ledger.history()["what"].tolist()


def keys(ledger):
    return list(Path(f"{ledger.path}.keys").glob("*.key"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["file", "frame"])
def test_a_run_that_is_done_is_not_done_again(ledger, people, source, tmp_path, name, kind):
    given, target = {"file": source, "frame": people}[kind], tmp_path / name
    info = night(ledger, given, target)
    before = target.read_bytes()
    assert again(ledger, given, target) == info
    assert target.read_bytes() == before
    assert notes(ledger) == ["release, run 2026-11-25"]
    night(ledger, given, target, run="2026-11-26")
    assert target.read_bytes() != before
    assert notes(ledger) == ["release, run 2026-11-25", "release, run 2026-11-26"]


def test_it_is_known_without_its_input(ledger, source, tmp_path):
    """Whether the table is that of the last time must not show: what follows would have to be private, too."""
    target = tmp_path / "out.parquet"
    info = night(ledger, source, target)
    dpf.datasets.make_census(300, columns=["age", "sex"]).to_parquet(source, index=False)
    assert again(ledger, source, target) == info
    source.unlink()
    assert again(ledger, source, target) == info
    assert len(notes(ledger)) == 1


def test_without_a_name_every_run_is_one_more(ledger, source, tmp_path):
    for _ in range(2):
        night(ledger, source, tmp_path / "out.parquet", run=None)
    assert notes(ledger) == ["release", "release"]


def test_killed_before_the_receipt(ledger, source, tmp_path, monkeypatch):
    """The key is there still: the run is repeated, at no cost, and writes the same."""
    target = tmp_path / "out.parquet"

    def killed(*args):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(runs, "enter", killed)
        night(ledger, source, target)
    first = target.read_bytes()
    night(ledger, source, target)
    assert target.read_bytes() == first
    again(ledger, source, target)
    assert notes(ledger) == ["release, run 2026-11-25"]


def leave_the_key(ledger, source, target, monkeypatch):
    """Killed before it overwrites its key with zeros."""

    def killed(descriptor, content):
        if not any(content):
            raise Killed
        return disk.write_whole(descriptor, content)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(job_keys, "write_whole", killed)
        night(ledger, source, target)
    assert len(keys(ledger)) == 1
    assert job_keys.pending(ledger) == []


def test_killed_after_the_receipt(ledger, source, tmp_path, monkeypatch):
    """It is done, and the key that it left is deleted."""
    target = tmp_path / "out.parquet"
    leave_the_key(ledger, source, target, monkeypatch)
    again(ledger, source, target)
    assert keys(ledger) == []
    assert len(notes(ledger)) == 1


def test_a_key_that_a_done_run_left_serves_no_other(ledger, source, tmp_path, monkeypatch):
    target = tmp_path / "out.parquet"
    leave_the_key(ledger, source, target, monkeypatch)
    first = target.read_bytes()
    night(ledger, source, target, run="2026-11-26")  # over the same input: with the key it would write the same
    assert target.read_bytes() != first
    assert keys(ledger) == []
    assert len(notes(ledger)) == 2


def test_an_interrupted_run_is_no_other(ledger, source, tmp_path):
    def stop(done, total):
        raise Killed

    target = tmp_path / "out.parquet"
    with pytest.raises(Killed):
        night(ledger, source, target, progress=stop)
    with pytest.raises(LedgerError, match=r"or another run is named.*key is void:.*forget"):
        night(ledger, source, target, run="2026-11-26")
    night(ledger, source, target)
    assert notes(ledger) == ["release, run 2026-11-25"]


def test_its_output_must_be_there(ledger, source, tmp_path):
    target = tmp_path / "out.parquet"
    night(ledger, source, target)
    kept = target.rename(tmp_path / "kept.parquet")
    match = (
        r"run 2026-11-25 of .*out\.parquet was done at .*its release is no longer there: bring the file back, or nam"
    )
    with pytest.raises(LedgerError, match=match):
        night(ledger, source, target)
    night(ledger, source, target, run="2026-11-26")
    with pytest.raises(LedgerError, match=match):
        night(ledger, source, target)
    for other in (b"", b"no release", source.read_bytes()):
        target.write_bytes(other)
        with pytest.raises(LedgerError, match=match):
            night(ledger, source, target)
    kept.replace(target)
    again(ledger, source, target)
    assert len(notes(ledger)) == 2


def test_another_plan_is_another_run(ledger, source, tmp_path):
    target = tmp_path / "out.parquet"
    night(ledger, source, target)
    for other in ({"epsilon": 0.3}, {"shuffle": False}, {"spaces": SPACES | {"age": (0, 119)}}):
        with pytest.raises(LedgerError, match=r"under another plan, or.*name another run"):
            night(ledger, source, target, **other)
    assert len(notes(ledger)) == 1


def test_parts_and_files_have_runs_of_their_own(ledger, source, people, tmp_path):
    night(ledger, source, tmp_path / "a.parquet", part="north")
    other = dpf.datasets.make_census(400, columns=["age", "sex"], random_state=4)
    night(ledger, other, tmp_path / "a.parquet", part="south")
    night(ledger, source, tmp_path / "b.parquet", part="north")
    assert len(notes(ledger)) == 3


def test_another_process_ends_the_run_in_between(ledger, source, tmp_path, monkeypatch):
    """It is looked for again under the job's lock."""
    target = tmp_path / "out.parquet"
    night(ledger, source, target)
    monkeypatch.setattr(dpf.api.verbs, "done_before", lambda *args: None)
    with pytest.raises(LedgerError, match="another process has just ended this run"):
        night(ledger, source, target)
    assert keys(ledger) == []
    assert len(notes(ledger)) == 1


def test_what_is_not_written_has_no_run(ledger, people):
    account = ledger.account("survey", run="2026-11-25")
    match = (
        "^run is for releases of frames in memory or files that are written to a file; name a target, or leave run o"
    )
    with pytest.raises(ParameterError, match=match):
        dpf.sanitize(people, epsilon=0.2, ledger=account)
    with pytest.raises(ParameterError, match=match):
        dpf.plan(people, epsilon=0.2, ledger=account)
    with pytest.raises(ParameterError, match=match):
        dpf.Queries(people, ledger=account)
    for wrong in ("", 3):
        with pytest.raises(ParameterError, match="run must be text"):
            ledger.account("survey", run=wrong)
    assert notes(ledger) == []


@pytest.mark.parametrize("change", ["UPDATE runs SET output = ''", "DELETE FROM runs", "INSERT OR REPLACE INTO runs "])
def test_a_receipt_stays(ledger, source, tmp_path, change):
    night(ledger, source, tmp_path / "out.parquet")
    change += "SELECT * FROM runs" * change.startswith("INSERT")
    with (
        contextlib.closing(sqlite3.connect(ledger.path)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="what was spent stays spent"),
    ):
        connection.execute(change)
