"""From the curators' tables to the release: what comes out, who learns what, and what is charged."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from parties import SPACES, N, Parties, halves, people
from scipy import stats

import dpframe as dpf
from dpframe.errors import BudgetExceeded, ColumnError, FileError, ParameterError
from dpframe.ledger.account import OpenAccount
from dpframe.vertical import Curator, Identity, Researcher, Run, new_run
from dpframe.vertical.messages import header_file

CERTAIN = {"epsilon": 200.0, "delta": 0.0, "mechanisms": {"age": "randomized_response"}}
"""40 or more for each column: that one of a test's values changes has a probability below 1e-12."""


def rows_of(frame: pd.DataFrame) -> Counter[Any]:
    frame = frame.drop(columns="id", errors="ignore").sort_index(axis=1)
    plain = frame.map(lambda v: str(sorted(v)) if isinstance(v, list | np.ndarray) else str(v)).replace("None", "nan")
    return Counter(plain.itertuples(index=False, name=None))


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties.make(tmp_path, halves(people()), SPACES, groups=[("job", "sex")], sample=400)


@pytest.mark.parametrize("pad", ["one-time", "stream"])
def test_rows_are_joined_whatever_their_order(tmp_path: Path, pad: str) -> None:
    parties = Parties.make(tmp_path, halves(people()), SPACES, groups=[("job", "sex")], pad=pad, **CERTAIN)
    info = parties.through()
    safe = dpf.read(parties.release)
    assert (len(safe), info.n, info.rows) == (N, N, None)
    assert rows_of(safe) == rows_of(people())
    assert {parties.pad(name).stat().st_mode & 0o777 for name in parties.frames} == {0o600}


def test_three_curators_and_files_of_other_kinds(tmp_path: Path) -> None:
    frame = people().assign(id=np.arange(N) * 7)
    frames = {
        "alice": frame[["id", "job"]].sample(frac=1, random_state=1),
        "bob": frame[["id", "age", "town"]].sample(frac=1, random_state=2),
        "carol": frame[["id", "sex", "hobbies"]].sample(frac=1, random_state=3),
    }
    parties = Parties.make(tmp_path, frames, SPACES, **CERTAIN)
    frames["alice"].to_csv(tmp_path / "alice.csv", index=False)
    frames["carol"].assign(id=frames["carol"]["id"].astype(str)).to_parquet(tmp_path / "carol.parquet", index=False)
    parties.encrypt("alice", tmp_path / "alice.csv")
    parties.encrypt("bob", pa.Table.from_pandas(frames["bob"], preserve_index=False))
    parties.encrypt("carol", tmp_path / "carol.parquet")
    parties.perturb()
    parties.decrypt()
    assert rows_of(dpf.read(parties.release)) == rows_of(frame)


def test_the_sample_is_of_the_table_and_the_release_says_how_it_was_made(parties: Parties) -> None:
    info = parties.through()
    safe = dpf.read(parties.release)
    assert (info.n, info.rows, len(safe)) == (400, N, 400)
    assert safe.dp.release == info
    assert info.plan == parties.run.plan
    certificate = dpf.verify(parties.release)
    assert certificate.ok, certificate.failures
    assert list(safe.columns) == ["job", "hobbies", "sex", "age", "town"]
    assert str(safe["age"].dtype) == "int64"


@pytest.mark.slow
def test_estimates_across_curators_cover_the_truth(tmp_path: Path) -> None:
    """Six standard errors are exceeded with probability 2e-9 each."""
    frame = people(20_000)
    parties = Parties.make(tmp_path, halves(frame), SPACES, epsilon=4.0, groups=[("job", "sex")], sample=15_000)
    parties.through()
    safe = dpf.read(parties.release)
    joint = safe.dp.crosstab("job", "sex", normalize=True)
    truth = pd.crosstab(frame["job"], frame["sex"], normalize=True)
    for job in SPACES["job"]:
        for sex in SPACES["sex"]:
            off = joint.loc[job, ("estimate", sex)] - truth.loc[job, sex]
            assert abs(off) < 6 * joint.loc[job, ("std_error", sex)] < 0.2
    mean = safe.dp.mean("age")
    assert abs(mean["estimate"] - frame["age"].mean()) < 6 * mean["std_error"]
    support = safe.dp.support("hobbies")
    share = np.mean([list(h) == ["chess"] for h in frame["hobbies"]])
    assert abs(support.loc["chess", "estimate"] - share) < 6 * support.loc["chess", "std_error"]


def test_a_curator_who_withholds_its_pad_is_left_out(parties: Parties) -> None:
    parties.encrypt_all()
    parties.perturb()
    parties.decrypt(pads=[parties.pad("alice")], without=["bob"])
    safe = dpf.read(parties.release)
    assert list(safe.columns) == ["job", "hobbies"]
    assert safe.dp.value_counts("job")["estimate"].sum() == pytest.approx(N)
    with pytest.raises(ParameterError, match="'sex' was released, but is not in this table"):
        safe.dp.value_counts("sex")


def test_without_its_pad_a_column_is_uniform_noise(tmp_path: Path) -> None:
    """Chi-squared with error probability 1e-9 a column and pair."""
    frame = people(20_000).assign(sex="F", job="shop")
    parties = Parties.make(tmp_path, halves(frame), SPACES, groups=[("job", "sex")], epsilon=20.0)
    parties.encrypt_all()
    parties.perturb()
    plan = parties.run.plan
    for path, names in ((parties.message("bob"), ["sex", "age", "town"]), (parties.perturbed, list(plan.names))):
        codes = parties.codes_in(path, names)
        for name in {"sex", "age", "town", "job"} & set(names):
            assert stats.chisquare(np.bincount(codes[name], minlength=plan[name].space.size)).pvalue > 1e-9
    pairs = np.bincount(codes["sex"].astype(int) * 3 + codes["job"], minlength=6)
    assert stats.chisquare(pairs).pvalue > 1e-9


def test_no_id_leaves_and_no_order(parties: Parties, tmp_path: Path) -> None:
    parties.through()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"person" not in path.read_bytes()
    # Rows of the release stand in another order than rows left the server in.
    run = parties.run
    codes = parties.codes_in(parties.perturbed, run.plan.names)
    pads = parties.codes_in(parties.pad("bob"), ["sex", "age", "town"])
    left = (codes["age"].astype(int) - pads["age"]) % 100
    kept = dpf.read(parties.release)["age"].to_numpy()
    assert sorted(left) == sorted(kept)
    assert (left != kept).any()


def test_the_best_sample_is_found() -> None:
    keys = ("aa" * 32, "bb" * 32)
    curators = {name: ({name[0]: list("xyz")}, key) for name, key in zip(("alice", "bob"), keys, strict=True)}
    options: dict[str, Any] = {"n": 5_000, "epsilon": 0.5, "delta": 0.0, "groups": [("a", "b")]}
    best = new_run(curators, "cc" * 32, sample="optimal", **options)
    errors = {
        size: new_run(curators, "cc" * 32, sample=size, **options).plan.forecast().loc[("marginal", "a"), "std_error"]
        for size in (best.rows, 500, 5_000)
    }
    assert best.rows == min(errors, key=lambda size: errors[size])


def test_a_release_in_csv(parties: Parties) -> None:
    parties.run = new_run(
        {m.name: (parties.run.spaces(set(m.columns) - {"hobbies"}), m.key) for m in parties.run.curators},
        parties.run.server,
        n=N,
        epsilon=1.0,
    )
    parties.encrypt_all()
    parties.perturb()
    Researcher(parties.run).decrypt(parties.perturbed, parties.pads, parties.root / "safe.csv")
    assert len(dpf.read(parties.root / "safe.csv").dp.crosstab("job", "sex")) == 3


def test_categories_come_back_as_they_went_in(parties: Parties) -> None:
    kind = pd.CategoricalDtype(["farm", "shop", "office"])
    parties.encrypt("alice", parties.frames["alice"].astype({"job": kind}))
    parties.encrypt("bob")
    parties.perturb()
    parties.decrypt()
    assert isinstance(dpf.read(parties.release)["job"].dtype, pd.CategoricalDtype)


def test_the_ledger_is_charged_before_anything_is_drawn_and_once(parties: Parties, tmp_path: Path) -> None:
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("rich", epsilon=2.0, delta=1e-3, accounting="basic")
    ledger.create("poor", epsilon=0.5, delta=1e-3)
    with pytest.raises(BudgetExceeded):
        parties.encrypt("alice", ledger=ledger, dataset="poor")
    assert not parties.message("alice").exists()
    assert not parties.pad("alice").exists()
    parties.encrypt("alice", ledger=ledger, dataset="rich")
    spent = ledger.spent("rich")
    assert spent.epsilon == 1.0
    # A folder that is restored from a copy does not know that it drew: what is drawn anew is paid anew.
    shutil.rmtree(tmp_path / "alice" / "used")
    for path in (parties.message("alice"), parties.pad("alice"), header_file(parties.message("alice"))):
        path.unlink()
    parties.encrypt("alice", ledger=ledger, dataset="rich")
    assert ledger.spent("rich").epsilon == 2.0
    assert ledger.history("rich")["what"].tolist() == [f"vertical alice {parties.run.id[:32]}"] * 2


@pytest.mark.parametrize("first", ["mark", "ledger"])
def test_two_processes_pay_once(parties: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Of one folder one goes on to draw, whichever is first at each step, and only that one pays."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("rich", epsilon=9.0, delta=1e-3, accounting="basic")
    turn = (Identity, "use") if first == "mark" else (OpenAccount, "spend")
    step = getattr(*turn)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(*turn, step)
        curator = Curator(parties.run, tmp_path / "alice")
        with contextlib.suppress(FileError):
            curator.encrypt(
                parties.frames["alice"], tmp_path / "m", tmp_path / "p", id="id", ledger=ledger, dataset="rich"
            )
        return step(*arguments, **options)

    monkeypatch.setattr(*turn, overtaken)
    with contextlib.suppress(FileError):
        parties.encrypt("alice", ledger=ledger, dataset="rich")
    assert (tmp_path / "m").exists() != parties.message("alice").exists()
    assert len(ledger.history("rich")) == 1


def test_the_promise_is_that_of_sample_and_order_and_a_curator_has_the_local_one(parties: Parties) -> None:
    plan = parties.run.plan
    assert (plan.shuffle, plan.sample, plan.n) == (True, 400, N)
    assert plan.verify().ok
    assert plan.local.epsilon > plan.epsilon == 1.0
    capped = Parties.make(parties.root / "capped", parties.frames, SPACES, local_epsilon=2.0)
    assert capped.run.plan.local.epsilon <= 2.0


@pytest.mark.slow
def test_tables_that_curators_measure_are_the_releases(tmp_path: Path) -> None:
    frame = people(5_000)
    measure = [("sex",), ("job",), ("age",)]
    parties = Parties.make(tmp_path, halves(frame), SPACES, epsilon=2.0, measure=measure)
    info = parties.through()
    assert [table.measure.columns for table in info.tables if table.measure.kind != "sum"]
    assert dpf.verify(parties.release).ok
    safe = dpf.read(parties.release)
    counts = safe.dp.value_counts("sex")
    off = counts.loc["F", "estimate"] - (frame["sex"] == "F").sum()
    assert abs(off) < 6 * counts.loc["F", "std_error"]  # exceeded with probability 2e-9
    rows = Parties.make(tmp_path / "rows", halves(frame), SPACES, epsilon=2.0)
    rows.through()
    alone = dpf.read(rows.release).dp.value_counts("sex")
    assert counts.loc["F", "std_error"] < alone.loc["F", "std_error"] / 2


def test_a_table_of_categories_beyond_the_space_is_refused_by_its_row(parties: Parties) -> None:
    wrong = parties.frames["alice"].reset_index(drop=True)
    wrong.loc[3, "job"] = "swordfish"
    with pytest.raises(ColumnError, match="column 'job' at row position 3") as caught:
        parties.encrypt("alice", wrong)
    assert "swordfish" not in str(caught.value)
    assert not parties.message("alice").exists()


def test_runs_are_read_back(parties: Parties) -> None:
    parties.run.write(parties.root / "run.json")
    assert Run.read(parties.root / "run.json") == parties.run
    assert Run.read(parties.root / "run.json").id == parties.run.id
