"""The command line under arguments and files of any kind: it does its work, or says in one line why not.

What is refused leaves no file, and costs the ledger nothing. Some cells hold what may not show.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from commands import every_command
from corpus import people
from fuzzing import SECRET, SECRET_NUMBER, assert_quiet, cases, counted
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated

import dpframe as dpf
from dpframe.cli.main import main

SPACES: dict[str, Any] = {
    "age": {"lower": 0, "upper": 120},
    "sex": ["F", "M"],
    "grade": {"categories": ["low", "mid", "high"]},
    "income": {"space": "nullable", "inner": {"lower": 0, "upper": 250_000}},
}


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


def run(arguments: list[str], given_in: bytes) -> Done:
    """Run a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogatepass", write_through=True) for _ in range(2))
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(given_in))
    code: Any = None
    try:
        with (
            warnings.catch_warnings(action="default"),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            for serious in (RuntimeWarning, DeprecationWarning, ResourceWarning):
                warnings.filterwarnings("error", category=serious)
            main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    finally:
        sys.stdin = stdin
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]
    return Done(code, *texts)


def check(done: Done, arguments: list[str]) -> None:
    """Check that a command ended as it should, and showed no value of the data where it was refused."""
    assert done.code in (0, 1, 2, 3, 4), (arguments, done)
    assert_quiet(done.err)
    lines = done.err.splitlines()
    assert all(line.startswith(("dpframe: ", "wrote ")) for line in lines if done.code), (arguments, lines)
    assert "Traceback" not in done.err + done.out
    if done.code in (2, 3):
        assert sum(not line.startswith("dpframe: warning: ") for line in lines) == 1, (arguments, lines)
        assert done.out == "", (arguments, done)


# ---------------------------------------------------------------------------------------------------- arguments


COMMANDS = {words: command for words, command in every_command() if words != ("demo",)}  # which takes no files

FILES = [
    *["in.parquet", "in.parquet", "in.csv", "secret.parquet", "release.parquet", "release.csv", "plan.json", "parts"],
    *["changed.json", "changed.parquet", "changed.csv", "spaces.json", "ledger.sqlite", "nothing", "no/where.parquet"],
    *["", "-", ".", "*.parquet", "empty.csv", "\ud800"],
]
WRITTEN = ["out.parquet", "out.csv", "out.json", "out.html", "in.parquet", "no/out.parquet", "-", "", "parts", "out/"]
COLUMNS = ["age", "sex", "grade", "income", "secret", "age,sex", "nobody", "", "é"]
VALUES = [
    *["1", "0.5", "0", "-1", "nan", "inf", "1e-6", "1e400", "9" * 400, "5", "true", "mean", "auto", "none", "optimal"],
    *["age=0.1", "sex,age=0.05", "sex=optimal", "age=exponential", "sex=F", "age,sex", "private", "public", "data"],
    *["error", "impute", "uniform", "survey", "nobody", "table", "population", "inverse", "em", "{}", "[", "\n"],
    *['{"sex": "F"}', '{"age": {"lower": 18, "upper": 65}}', '{"age": 1e999}', '{"x": 1}', "[1]"],
]
STATISTICS = ["value-counts", "crosstab", "mean", "histogram", "count", "covariance", "quantile", "sum", "most-common"]
ANY = [*FILES, *COLUMNS, *VALUES, *STATISTICS]

LIKELY: dict[str, list[str]] = {
    **dict.fromkeys(["source", "replay"], FILES),
    **dict.fromkeys(["target", "output", "html", "message", "perturbed"], WRITTEN),
    **dict.fromkeys(["drop", "passthrough", "by", "columns", "privacy_id", "column"], COLUMNS),
    "epsilon": ["1", "1", "0.1", "5"],
    "delta": ["1e-4", "0", "1e-6"],
    "spaces": ["spaces.json", "spaces.json", "changed.json"],
    "plan": ["plan.json", "changed.json"],
    "ledger": ["ledger.sqlite"],
    "file": ["ledger.sqlite", "nothing"],
    "dataset": ["survey"],
    "statistic": STATISTICS,
    "edits": ["1", "2"],
    "sample": ["5", "optimal"],
}


@st.composite
def arguments(draw: st.DrawFn) -> list[str]:
    """Draw a command with its arguments and some of its options, most of them of the kind that they take."""
    words = draw(st.sampled_from([*[words for words in sorted(COMMANDS) if len(words) == 1] * 3, *sorted(COMMANDS)]))
    found: list[str] = []
    often = {"epsilon", "spaces", *(["ledger", "dataset"] if draw(st.integers(0, 2)) == 0 else [])}
    for parameter in COMMANDS[words].params:
        wanted = parameter.required or (draw(st.integers(0, 9)) == 0) != (parameter.name in often)
        own = wanted and draw(st.integers(0, 30)) > 0
        if parameter.name == "help" or not own:
            continue
        if parameter.param_type_name == "option":
            found.append(draw(st.sampled_from(parameter.opts)))
        if getattr(parameter, "is_flag", False):
            continue
        values = LIKELY.get(parameter.name, VALUES)
        found.append(draw(st.sampled_from(values if draw(st.integers(0, 11)) else ANY)))
    if "audit" in words:
        # The last of equal options counts.
        found += ["--minutes", "0.02", *([] if "--edits" in found else ["--edits", "2"])]
    extra = draw(st.integers(0, 25))
    return [*words, *found, *([draw(st.sampled_from(ANY))] if extra == 0 else [])]


CELLS = st.sampled_from(
    [SECRET, str(SECRET_NUMBER), "1", "2.5", "F", "M", "", "NA", '"', "é", "2020-01-01", "low", "a,b"]
)
CSV = st.lists(st.lists(CELLS, max_size=5).map(",".join), max_size=6).map("\n".join)


def fill(folder: Path) -> None:
    """Write the files that commands are given."""
    frame = people()
    frame.to_parquet(folder / "in.parquet", index=False)
    frame.to_csv(folder / "in.csv", index=False)
    frame.assign(secret=[SECRET, *["a"] * 59], age=[SECRET_NUMBER, *range(59)]).to_parquet(folder / "secret.parquet")
    (folder / "spaces.json").write_text(json.dumps(SPACES))
    plan = dpf.plan(folder / "in.parquet", 1.0, 1e-4, spaces=declared())
    (folder / "plan.json").write_text(plan.to_json())
    for name in ("release.parquet", "release.csv"):
        dpf.sanitize(folder / "in.parquet", folder / name, plan=plan, key=bytes(32))
    (folder / "empty.csv").write_text("")
    for part in ("north", SECRET):
        (folder / "parts" / f"region={part}").mkdir(parents=True)
        frame.to_parquet(folder / "parts" / f"region={part}" / "0.parquet", index=False)
    dpf.Ledger(folder / "ledger.sqlite").create("survey", 1e6, 0.5, accounting="basic")


def declared() -> dict[str, Any]:
    return SPACES | {"income": dpf.Nullable(dpf.Real(0, 250_000))}


def listed(folder: Path) -> list[str]:
    """Return the files there are but those of the ledger's own."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "ledger.sqlite" not in str(path))


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what stands in the files that commands read: they change only where they are named to be written."""
    names = ("in.parquet", "in.csv", "secret.parquet", "release.parquet", "release.csv", "spaces.json", "plan.json")
    return {folder / name: (folder / name).read_bytes() for name in names}


@cases(0.02, 25)
@given(data=st.data())
def _commanded(found: Any, folder: Path, data: st.DataObject) -> None:
    given_in, kept = (folder / "in.parquet").read_bytes(), contents(folder)
    valid = data.draw(st.sampled_from(["plan.json", "spaces.json"]))
    text = data.draw(mutated((folder / valid).read_text()))
    (folder / "changed.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    (folder / "changed.csv").write_bytes(data.draw(CSV).encode() + data.draw(st.sampled_from([b"", b"\xff", b"\0"])))
    place = data.draw(st.integers(0, len(given_in) - 1))
    (folder / "changed.parquet").write_bytes(given_in[:place] + b"\xff" + given_in[place + 1 :])
    words = data.draw(arguments())
    before, spent = listed(folder), len(dpf.Ledger(folder / "ledger.sqlite").history())
    done = run(words, given_in if data.draw(st.booleans()) else b"")
    check(done, words)
    found[f"exit code {done.code}"] += 1
    if done.code in (2, 3):
        assert listed(folder) == before, words
        assert len(dpf.Ledger(folder / "ledger.sqlite").history()) == spent, words
    for path, content in kept.items():
        changed = path.read_bytes() != content
        assert not changed or (done.code == 0 and words.count(path.name) == 1), words
        if changed:
            path.write_bytes(content)
    for name in set(listed(folder)) - set(before):
        if (folder / name).is_file():
            (folder / name).unlink()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with files, and work in it."""
    fill(tmp_path)
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        yield tmp_path
    finally:
        os.chdir(here)


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
def test_commands(folder: Path) -> None:
    with counted("commands") as found:
        _commanded(found, folder)
    assert "exit code 2" in found
    assert isinstance(pd.read_parquet("in.parquet"), pd.DataFrame)
