"""One verb for every kind of source: frames, files, streams."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe import AuditResult
from dpframe.errors import FileError, LedgerError, NotSanitizedError, ParameterError

KEY = bytes(32)
SPACES = {"age": (18, 95), "sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
HOW = {"epsilon": 2.0, "delta": 1e-6, "spaces": SPACES}


@pytest.fixture(scope="module")
def census():
    return dpf.datasets.make_census(500, columns=list(SPACES))


@pytest.fixture
def files(census, tmp_path):
    census.to_parquet(tmp_path / "in.parquet", index=False)
    census.to_csv(tmp_path / "in.csv", index=False)
    return tmp_path


def rows(table):
    return [tuple(row) for row in table.astype({"age": "int64", "sex": str, "region": str}).to_numpy()]


KINDS = {
    "pandas": lambda census, files: census,
    "polars": lambda census, files: pl.from_pandas(census),
    "arrow": lambda census, files: pa.Table.from_pandas(census, preserve_index=False),
    "Parquet": lambda census, files: files / "in.parquet",
    "CSV": lambda census, files: str(files / "in.csv"),
    "LazyFrame": lambda census, files: pl.from_pandas(census).lazy(),
}


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_source_goes_to_a_table_and_to_a_file(kind, ending, census, files):
    source, whole = KINDS[kind](census, files), dpf.sanitize(census, **HOW, key=KEY)
    plan = dpf.plan(source, **HOW)
    assert plan == dpf.plan(census, **HOW) == whole.dp.release.plan
    safe = dpf.sanitize(KINDS[kind](census, files), plan=plan, key=KEY)
    frame = safe if isinstance(safe, pd.DataFrame) else safe.to_pandas()
    assert rows(frame) == rows(whole)
    info = dpf.sanitize(KINDS[kind](census, files), files / f"out{ending}", plan=plan, key=KEY)
    again = dpf.read(files / f"out{ending}")
    assert again.dp.release == info
    assert rows(again) == rows(whole)
    assert dpf.verify(files / f"out{ending}").ok
    assert dpf.verify(again).ok


@pytest.mark.slow
def test_a_released_table_is_written_as_either(census, tmp_path):
    safe = dpf.sanitize(census, **HOW)
    for name in ("safe.parquet", "safe.csv"):
        info = dpf.write(safe, tmp_path / name)
        assert dpf.read(tmp_path / name).dp.release == info == safe.dp.release
        assert dpf.verify(tmp_path / name).ok
    sets = dpf.sanitize(dpf.datasets.make_census(50, columns=["hobbies"]), epsilon=4, delta=1e-3)
    with pytest.raises(dpf.ColumnError, match="which CSV cannot hold; write Parquet"):
        dpf.write(sets, tmp_path / "sets.csv")
    with pytest.raises(FileError, match=r"\.xlsx is not written"):
        dpf.write(safe, tmp_path / "safe.xlsx")


def test_a_frame_that_is_written_is_a_job(census, tmp_path, monkeypatch):
    """What an interrupted run paid for is not paid for again, and other rows are refused."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 2.0, 1e-6, accounting="basic")
    how = {**HOW, "ledger": ledger, "dataset": "survey"}
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dpf.sanitize(census, tmp_path / "out.parquet", **how)
    assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(LedgerError, match=r"the input or the.*the interrupted run"):
        dpf.sanitize(census.assign(age=20), tmp_path / "out.parquet", **how)
    dpf.sanitize(census, tmp_path / "out.parquet", **how)
    assert dpf.verify(tmp_path / "out.parquet").ok
    assert ledger.remaining("survey").epsilon == 0
    assert len(ledger.history()) == 1


def test_a_path_without_target_spends_once(files):
    ledger = dpf.Ledger(files / "ledger.sqlite")
    ledger.create("survey", 2.0, 1e-6, accounting="basic")
    how = {**HOW, "ledger": ledger, "dataset": "survey"}
    assert dpf.sanitize(files / "in.parquet", **how).dp.verify()
    with pytest.raises(dpf.BudgetExceeded):
        dpf.sanitize(files / "in.parquet", **how)
    with pytest.raises(ParameterError, match=r"^key and ledger do.*for files: "):
        dpf.sanitize(files / "in.parquet", **how, key=KEY)


def test_what_is_refused(census, files):
    with pytest.raises(ParameterError, match=r"^target must be the.*file to write,.*epsilon=1\.0$"):
        dpf.sanitize(census, 1.0)
    for verb in (dpf.plan, dpf.sanitize):
        with pytest.raises(ParameterError, match=r"^id is for frames of Dask and Spark; .* leave it out$"):
            verb(census, **HOW, id="age")
    with pytest.raises(ParameterError, match="is no table; pass a pandas DataFrame"):
        dpf.plan([1, 2], epsilon=1)
    with pytest.raises(FileError):
        dpf.sanitize(census, files, **HOW)
    with pytest.raises(ParameterError, match="compression must be one of snappy"):
        dpf.sanitize(files / "in.parquet", **HOW, compression="zip")


def test_releases_and_plans_are_verified(census):
    safe = dpf.sanitize(census, **HOW)
    assert "the table holds the 500 rows that were released (number, types, digest)" in dpf.verify(safe).checks
    altered = safe.copy()
    altered.loc[0, "age"] = 18 if altered.loc[0, "age"] > 50 else 95
    assert dpf.verify(altered).failures == (
        "the rows are not those that were released under this plan: their digest is another",
    )
    assert dpf.verify(safe.drop(columns="sex")).failures == (
        "column 'sex' of the plan is not in the table; write some columns of a release with dpframe.write, "
        "and they verify",
    )
    plan = safe.dp.release.plan
    assert dpf.verify(plan) == plan.verify()
    with pytest.raises(NotSanitizedError, match=r"^a DataFrame carries no.*nothing to verify$"):
        dpf.verify(census)


def response(epsilon):
    """A response over four values at this epsilon."""
    frame = pd.DataFrame({"x": ["a", "b"]})
    plan = dpf.plan(frame, epsilon, 0, spaces={"x": list("abcd")}, shuffle=False)
    assert plan["x"].mechanism.epsilon == pytest.approx(epsilon, rel=1e-9)
    return plan["x"].mechanism


def test_mechanisms_are_audited_by_samples():
    """Each bound holds with confidence 1 − 1e-6; half the noise of a claim is found out but for less than that."""
    found = dpf.audit(response(1.0))
    assert isinstance(found, AuditResult)
    assert 0.8 < found.epsilon_lower < 1.0
    assert dpf.audit(response(2.0), runs=50_000).refutes(1.0)
    generator = np.random.default_rng(0)
    pair = (lambda n: generator.random(n) < 0.9, lambda n: generator.random(n) < 0.1)
    assert dpf.audit(pair, runs=50_000).refutes(2.0)
    bits = dpf.plan(pd.DataFrame({"x": [["a"]]}), epsilon=1, delta=0, spaces={"x": dpf.Subset(list("abc"))})
    with pytest.raises(ParameterError, match=r"is of sets or vectors, .* pass a pair of functions$"):
        dpf.audit(bits["x"].mechanism)
    for wrong in (1, (1, 2), pair[0], (pair[0],)):
        with pytest.raises(ParameterError, match=r"^what must be a.*or a table"):
            dpf.audit(wrong)


def test_tables_and_files_are_audited_by_replay(census, files):
    plan = dpf.plan(census, **HOW | {"delta": 0}, nulls="impute")
    for source in (census, files / "in.parquet", files / "in.csv"):
        assert dpf.audit(source, plan, runs=16, random_state=0).edits == 16


@pytest.mark.slow
def test_the_verb_and_the_package_of_plans_share_a_name(census):
    plan = dpf.plan(census, **HOW)
    assert pickle.loads(pickle.dumps(plan)) == plan
    code = (
        "import pickle, sys, dpframe as dpf; plan = pickle.loads(sys.stdin.buffer.read()); "
        "print(callable(dpf.plan), type(plan) is dpf.Plan, plan.n)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(plan), capture_output=True, check=True)
    assert done.stdout.split() == [b"True", b"True", b"500"]


@pytest.mark.parametrize(("rows", "said"), [(0, "has no rows: the release is empty, and"), (1, "has one row, and")])
def test_a_table_that_shows_nothing_is_warned_of(census, rows, said):
    """In one line, of a plan as of a promise; by the number of rows, which is public."""
    few = census.iloc[:rows]
    plan = few.dp.plan(epsilon=1, spaces=HOW["spaces"])
    for ask in ({"plan": plan}, {"epsilon": 1, "spaces": HOW["spaces"]}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            few.dp.sanitize(**ask)
        assert len([warning for warning in caught if f"the table {said}" in str(warning.message)]) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        census.iloc[:2].dp.sanitize(epsilon=1, spaces=HOW["spaces"])
    assert not [warning for warning in caught if "say nothing" in str(warning.message)]
