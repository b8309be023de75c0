"""Releases of every kind come back as their own kind, and go to Parquet with their plan."""

import os

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import dpframe as dpf

ROWS = 240
SPACES = {
    "i": dpf.Nullable(dpf.Integer(0, 6)),
    "f": (0, 1),
    "b": dpf.Boolean(),
    "s": ["x", "y"],
    "c": ["p", "q"],
    "t": dpf.Subset(["u", "v", "w"]),
}


class Stream:
    """Something with nothing but the Arrow C stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def arrow():
    k = np.random.default_rng(0).permutation(ROWS)
    items = [["u", "v", "w"][: i % 4] for i in k]
    return pa.table(
        {
            "i": pa.array(k % 7, mask=k % 11 == 0),
            "f": k / ROWS,
            "b": k % 2 == 0,
            "s": np.array(["x", "y"])[k % 2],
            "c": pa.array(np.array(["p", "q"])[k % 2]).dictionary_encode(),
            "t": pa.array(items),
        }
    )


def frames():
    plain = arrow().to_pandas()
    sets = plain.assign(t=plain["t"].map(set))
    return {
        "numpy": plain,
        "nullable": plain.convert_dtypes(),
        "arrow dtypes": plain.convert_dtypes(dtype_backend="pyarrow"),
        "sets": sets,
    }


KINDS = {
    **frames(),
    "table": arrow(),
    "batch": arrow().combine_chunks().to_batches()[0],
    "reader": arrow().to_reader,
    "stream": Stream(arrow()),
    "polars": pl.from_arrow(arrow()),
}
OWN = {"reader": pa.Table, "stream": pa.Table}


def given(kind):
    return KINDS[kind]() if callable(KINDS[kind]) else KINDS[kind]


def plan():
    return dpf.plan(arrow(), epsilon=8, delta=1e-6, spaces=SPACES)


@pytest.mark.walk(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_every_kind_returns_its_own_kind(kind):
    table = given(kind)
    safe = dpf.sanitize(table, plan=plan())
    assert type(safe) is OWN.get(kind, type(table))
    if isinstance(table, pd.DataFrame):
        assert (safe.dtypes == table.dtypes).all()
    elif isinstance(table, pl.DataFrame):
        assert safe.schema == table.schema
    else:
        assert safe.schema.names == arrow().schema.names
        assert safe.schema.types == arrow().schema.types
    assert dpf.Estimates(safe, plan=plan()).mean("f")["estimate"] == pytest.approx(0.5, abs=0.5)


def test_batches_without_rows():
    batch = pa.RecordBatch.from_pylist([], schema=pa.schema({"b": pa.bool_()}))
    safe = dpf.sanitize(batch, epsilon=1, delta=0, spaces={"b": dpf.Boolean()})
    assert type(safe) is pa.RecordBatch
    assert safe.num_rows == 0


@pytest.mark.walk(3)
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_the_release(kind, tmp_path):
    planned, path = plan(), tmp_path / "safe.parquet"
    safe = dpf.sanitize(given(kind), plan=planned)
    info = dpf.write(safe, path, planned if kind == "polars" else None)
    assert info.plan == planned
    back = dpf.read(path)
    assert back.dp.release == info
    assert back.dp.verify()
    if kind != "polars":  # whose unsigned indices not every pyarrow gives to pandas
        assert pd.read_parquet(path).dp.verify()
    assert dpf.Estimates(path).mean("f").equals(back.dp.mean("f"))
    if isinstance(safe, pd.DataFrame) and kind != "sets":
        # As pandas reads its own files, where strings of Arrow dtype become another dtype of strings.
        safe.to_parquet(other := tmp_path / "pandas.parquet")
        again = pd.read_parquet(other).reset_index(drop=True)
        pd.testing.assert_frame_equal(back, again, check_flags=False, check_dtype=kind != "arrow dtypes")
        other.unlink()
    elif isinstance(safe, pl.DataFrame):
        assert_frame_equal(pl.read_parquet(path), safe)
    elif not isinstance(safe, pd.DataFrame):
        assert pq.read_table(path).equals(pa.table(safe))
    assert [file.name for file in tmp_path.iterdir()] == ["safe.parquet"]


def test_what_a_release_said_about_itself_is_checked(tmp_path):
    safe = dpf.sanitize(arrow(), plan=plan())
    info = dpf.write(safe, tmp_path / "safe.parquet")
    lost = pl.from_arrow(safe)
    assert dpf.write(lost, tmp_path / "again.parquet", info) == info
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="the table has 100 rows, the release 240"):
        dpf.write(lost[:100], tmp_path / "some.parquet", info)
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="not what was released, cell by cell"):
        dpf.write(lost.with_columns(b=~lost["b"]), tmp_path / "some.parquet", info)


def test_refusals(tmp_path):
    path, safe = tmp_path / "safe.parquet", dpf.sanitize(arrow(), plan=plan())
    with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
        dpf.write(pl.from_arrow(safe), path)
    with pytest.raises(dpf.NotSanitizedError, match="none of the plan's columns"):
        dpf.write(pl.DataFrame({"z": [1]}), path, plan())
    for table in (pl.Series([1]), [1], None, pl.from_arrow(safe).lazy()):
        with pytest.raises(dpf.ParameterError, match=r"is no table; pass.*or Arrow release"):
            dpf.write(table, path, plan())
    with pytest.raises(dpf.ParameterError, match="compression must be one of snappy, zstd"):
        dpf.write(safe, path, compression="zip")
    with pytest.raises(dpf.ParameterError, match="plan must be a Plan or a ReleaseInfo"):
        dpf.write(safe, path, "plan.json")
    odd = dpf.sanitize(arrow().to_pandas(), plan=plan()).assign(odd=[1, "a"] * (ROWS // 2))
    with pytest.raises(dpf.ParameterError, match="column 'odd' cannot be stored as Parquet") as caught:
        dpf.write(odd, path)
    assert "'a'" not in f"{caught.value!r} {caught.value.__context__!r}"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(dpf.FileError, match="is a directory; name a file"):
        dpf.write(safe, tmp_path)
    with pytest.raises(dpf.FileError, match="could not be written"):
        dpf.write(safe, tmp_path / "nowhere" / "safe.parquet")


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path, monkeypatch):
    path, safe = tmp_path / "safe.parquet", dpf.sanitize(arrow(), plan=plan())
    info = dpf.write(safe, path, compression="zstd")

    def interrupted(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(dpf.FileError, match="could not be written: No space left"):
        dpf.write(dpf.sanitize(arrow(), plan=plan()), path)
    monkeypatch.undo()
    assert dpf.read(path).dp.release == info
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["safe.xlsx", "safe.JSON", "safe.parquet.gz"])
def test_a_name_of_another_format_is_refused_before_anything_is_spent(tmp_path, name):
    frame = pd.DataFrame({"a": [True, False] * 50})
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("all", 1.0)
    with pytest.raises(dpf.FileError, match=r"is not written; name a \.parquet or \.csv file"):
        dpf.sanitize(tmp_path / "in.parquet", tmp_path / name, 1.0, 0.0, measure=None, ledger=ledger, dataset="all")
    assert ledger.history("all").empty
    with pytest.raises(dpf.FileError, match="is not written"):
        dpf.write(dpf.sanitize(frame, epsilon=1.0), tmp_path / name)
    assert not (tmp_path / name).exists()
