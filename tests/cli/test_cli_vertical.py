"""``dpframe vertical``: each party's step in its own folder, one line for what does not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe import Ledger
from dpframe.vertical import Run

N = 400
Call = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command in this process; return exit code, output, errors."""

    def call(*arguments: Any) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stopped:
            commands.dpframe("vertical", *arguments)
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    monkeypatch.setattr("warnings.showwarning", print)
    return call


@pytest.fixture
def folders(tmp_path: Path, run: Call) -> Path:
    """Make keys, tables, spaces and a run."""
    rng = np.random.default_rng(1)
    ids = [f"swordfish {i}" for i in range(N)]
    pd.DataFrame({"id": ids, "job": rng.choice(["farm", "shop"], N)}).to_csv(tmp_path / "alice.csv", index=False)
    bob = pd.DataFrame({"id": ids[::-1], "sex": rng.choice(["F", "M"], N), "age": rng.integers(0, 99, N)})
    bob.to_parquet(tmp_path / "bob.parquet", index=False)
    (tmp_path / "alice.json").write_text(json.dumps({"job": ["farm", "shop"]}))
    (tmp_path / "bob.json").write_text(json.dumps({"sex": ["F", "M"], "age": {"lower": 0, "upper": 99}}))
    for party in ("alice", "bob", "server"):
        code, out, err = run("keygen", tmp_path / party, *["--share"] * (party == "alice"))
        assert (code, err) == (0, "")
        assert "keep it" in out
    shutil.copy(tmp_path / "alice" / "shared.secret", tmp_path / "bob" / "shared.secret")
    code, out, err = run("plan", tmp_path / "run.json", *made(tmp_path), "--group", "job,sex", "--sample", 300)
    assert (code, err) == (0, "")
    assert "300 of 400 records, pads one-time" in out
    return tmp_path


def made(root: Path) -> list[Any]:
    """Return the options of a plan."""
    curators = [f"{name}={root / name}.json,{root / name / 'public.key'}" for name in ("alice", "bob")]
    given = [option for curator in curators for option in ("--curator", curator)]
    return [*given, "--server", root / "server" / "public.key", "--rows", N, "--epsilon", 3]


def encrypted(root: Path, run: Call, name: str, source: str, *more: Any) -> tuple[Any, str, str]:
    """Encrypt a curator's table."""
    message, pad = ("--message", root / f"{name}.message"), ("--pad", root / f"{name}.pad")
    return run("encrypt", root / "run.json", root / name, root / source, "--id", "id", *message, *pad, *more)


def test_from_keys_to_a_release(folders: Path, run: Call) -> None:
    ledger = Ledger(folders / "ledger.sqlite")
    ledger.create("bobs", epsilon=10.0, delta=1e-3)
    assert encrypted(folders, run, "alice", "alice.csv")[::2] == (0, "")
    paid = ("--beside", folders / "alice.message.header", "--ledger", folders / "ledger.sqlite", "--dataset", "bobs")
    code, out, err = encrypted(folders, run, "bob", "bob.parquet", *paid)
    assert (code, err) == (0, "")
    assert "300 rows of bob under a pad" in out
    assert "Ledger: bobs has" in out
    assert ledger.spent("bobs").epsilon > 0
    messages, pads = ([folders / f"{name}.{kind}" for name in ("alice", "bob")] for kind in ("message", "pad"))
    code, out, err = run("perturb", folders / "run.json", folders / "server", *messages, "-o", folders / "noisy")
    assert (code, err) == (0, "")
    code, out, err = run("decrypt", folders / "run.json", folders / "noisy", *pads, "-o", folders / "safe.parquet")
    assert (code, err) == (0, "")
    assert "a release of 300 rows" in out
    safe = dpf.read(folders / "safe.parquet")
    assert safe.dp.release.plan == Run.read(folders / "run.json").plan
    joint = safe.dp.crosstab("job", "sex")["estimate"]
    assert joint.to_numpy().sum() == pytest.approx(N)


def test_refusals_are_one_line_in_the_words_of_the_shell(folders: Path, run: Call) -> None:
    encrypted(folders, run, "alice", "alice.csv")
    encrypted(folders, run, "bob", "bob.parquet")
    code, out, err = encrypted(folders, run, "bob", "bob.parquet")
    assert (code, out) == (2, "")
    assert "is there already, and a run is encrypted once; take another name" in err
    messages = [folders / f"{name}.message" for name in ("alice", "bob")]
    run("perturb", folders / "run.json", folders / "server", *messages, "-o", folders / "noisy")
    out_file = ("-o", folders / "safe.parquet")
    code, out, err = run("decrypt", folders / "run.json", folders / "noisy", folders / "alice.pad", *out_file)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "the pad of curator bob is missing; pass it, or leave the curator's columns out with --without bob" in err
    given = (folders / "run.json", folders / "noisy", folders / "alice.pad")
    code, out, err = run("decrypt", *given, *out_file, "--without", "bob", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["n"] == 300
    assert list(dpf.read(folders / "safe.parquet").columns) == ["job"]


def test_a_ledger_that_has_too_little(folders: Path, run: Call) -> None:
    Ledger(folders / "ledger.sqlite").create("d", epsilon=0.1, delta=1e-3)
    paid = ("--ledger", folders / "ledger.sqlite", "--dataset", "d")
    code, out, _ = encrypted(folders, run, "alice", "alice.csv", *paid)
    assert (code, out) == (3, "")
    assert not (folders / "alice.message").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--curator", "carol"), "--curator takes NAME=SPACES,KEY, e.g. --curator alice=alice.json,alice/public.key"),
        (("--mechanism", "age"), "--mechanism takes COLUMN=TAG, e.g. --mechanism age=randomized_response"),
        (("--mechanism", "age=geometric"), "use wrapped_geometric or randomized_response"),
        (("--pad", "none"), "pad must be one of one-time, stream"),
        (("--sample", "many"), "sample must be a whole number of rows from 1 to 400"),
    ],
)
def test_plans(folders: Path, run: Call, options: tuple[str, str], message: str) -> None:
    code, out, err = run("plan", folders / "other.json", *made(folders), *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folders / "other.json").exists()


def test_options_of_a_plan(folders: Path, run: Call) -> None:
    options = ("--measure", "sex", "--measure", "age", "--pad", "stream", "--local-epsilon", 6, "--measure-share", 0.2)
    code, _, err = run(
        "plan", folders / "other.json", *made(folders), *options, "--mechanism", "age=randomized_response"
    )
    assert (code, err) == (0, "")
    other = Run.read(folders / "other.json")
    assert other.pad == "stream"
    assert other.plan.local.epsilon <= 6
    assert other.plan["age"].mechanism.tag == "randomized_response"
    assert {m.columns for m in other.plan.measures} >= {("sex",), ("age",)}
