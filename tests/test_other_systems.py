"""Files, ledgers and split tables give the same where a system offers less than Linux."""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from other_systems import AWAY, take_away
from parties import Parties
from processes import key_file, key_folder

import dpframe as dpf
from dpframe import disk
from dpframe.ledger import job_keys

KEY = bytes(range(32))
CASES = [*((one,) for one in AWAY), tuple(AWAY)]
NAMES = [*AWAY, "all of it"]
SPACES = {"age": (0, 99), "sex": ["F", "M"]}
FRAME = pd.DataFrame({"age": np.arange(3_000) % 100, "sex": ["F", "M", "F"] * 1_000})


@pytest.fixture(params=CASES, ids=NAMES)
def less(request, monkeypatch, tmp_path):
    """A system without something."""
    take_away(monkeypatch, *request.param)
    return tmp_path


def convert(folder: Path, **options) -> bytes:
    FRAME.to_parquet(folder / "in.parquet")
    given = {"spaces": SPACES, "delta": 1e-6, "key": KEY, "batch_rows": 500}
    dpf.sanitize(folder / "in.parquet", folder / "out.parquet", epsilon=4, **given | options)
    return (folder / "out.parquet").read_bytes()


def ledger_in(folder: Path) -> dpf.Ledger:
    ledger = dpf.Ledger(folder / "ledger.sqlite")
    ledger.create("survey", epsilon=5.0, delta=1e-5)
    return ledger


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return convert(tmp_path_factory.mktemp("usual"))


def test_a_file_is_the_same(less, usual):
    assert convert(less) == usual
    assert sorted(file.name for file in less.iterdir()) == ["in.parquet", "out.parquet"]


def test_a_link_in_place_of_the_folder_of_keys_is_refused(less):
    ledger = ledger_in(less)
    (less / "elsewhere").mkdir(mode=0o700)
    key_folder(ledger).symlink_to(less / "elsewhere")
    with pytest.raises(dpf.errors.LedgerError, match="is a link or no folder"):
        job_keys.pending(ledger)


def test_a_job_that_fails_leaves_nothing(less):
    FRAME.assign(sex="?").to_parquet(less / "bad.parquet")
    with pytest.raises(dpf.ColumnError):
        dpf.sanitize(less / "bad.parquet", less / "out.parquet", epsilon=1, spaces=SPACES)
    assert [file.name for file in less.iterdir()] == ["bad.parquet"]


class Stop(BaseException):
    """What stops a job."""


def test_an_interrupted_job_is_repeated_at_no_cost(less):
    ledger = ledger_in(less)
    FRAME.to_parquet(less / "in.parquet")

    def stop(done: int, total: int) -> None:
        raise Stop

    def run(**options):
        given = {"epsilon": 1, "delta": 1e-6, "spaces": SPACES, "ledger": ledger, "dataset": "survey"}
        return dpf.sanitize(less / "in.parquet", less / "out.parquet", **given | options)

    with pytest.raises(Stop):
        run(progress=stop)
    spent = ledger.spent("survey")
    assert [job.dataset for job in job_keys.pending(ledger)] == ["survey"]
    run()
    assert ledger.spent("survey") == spent
    assert job_keys.pending(ledger) == []


def test_a_running_job_is_not_run_twice(less):
    ledger = ledger_in(less)
    with (
        job_keys.job(ledger, "survey", "night", binding=b"x" * 32),
        pytest.raises(dpf.errors.LedgerError, match="running already"),
        job_keys.job(ledger, "survey", "night", binding=b"x" * 32),
    ):
        pass


def test_a_key_is_never_written_through_a_link(less):
    ledger = ledger_in(less)
    path = key_file(ledger, "night")
    path.symlink_to(less / "elsewhere")
    with (
        pytest.raises(dpf.errors.LedgerError, match="cannot be used"),
        job_keys.job(ledger, "survey", "night", binding=b"x" * 32),
    ):
        pass
    assert not (less / "elsewhere").exists()


def test_split_tables_are_joined(less):
    frames = {"a": FRAME[["age"]].assign(id=range(3_000)), "b": FRAME[["sex"]].assign(id=range(3_000))}
    parties = Parties.make(less / "split", frames, SPACES, epsilon=4.0, delta=1e-6)
    assert parties.through().n == 3_000


def test_a_system_without_locks_says_so(monkeypatch, tmp_path):
    take_away(monkeypatch, *AWAY)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    descriptor = disk.new_file(tmp_path / "file")
    with pytest.raises(OSError, match="No locks"):
        disk.try_lock(descriptor)
    os.close(descriptor)


def test_an_open_file_that_may_not_be_removed_is_emptied(monkeypatch, tmp_path):
    """As on Windows: the key is gone, and its job is listed no more."""
    take_away(monkeypatch, *AWAY)
    ledger = ledger_in(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "it is open")

    with job_keys.job(ledger, "survey", "night", binding=b"x" * 32) as job:
        job.spend(1.0, 0.0)
        (path,) = key_folder(ledger).glob("*.key")
        monkeypatch.setattr(os, "unlink", refuse)
    assert path.read_bytes() == b""
    assert job_keys.pending(ledger) == []
