"""What engines are made of, without any."""

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.exceptions import InvalidTag

import dpframe as dpf
from dpframe.engines import staging
from dpframe.engines.forms import ArrowForm
from dpframe.engines.job import BucketWriter, SealedSpill, run_first_pass, write_release
from dpframe.engines.readers import ParquetReader, PartTask, parquet_parts
from dpframe.engines.shipped import pack_task
from dpframe.engines.table import EngineTable, Outcome
from dpframe.engines.work import BucketRows, Seal
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import run_release_job
from dpframe.release.planning import Request
from dpframe.tables.frames import ArrowFrame
from dpframe.tables.inputs import open_input
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import ParquetInput

KEY = bytes(range(32))


class TestShipped:
    def test_does_the_task(self):
        assert pack_task(sorted)([3, 1, 2]) == [1, 2, 3]

    def test_another_version(self):
        with pytest.raises(
            RuntimeError, match=rf"a worker has dpframe {dpf.__version__}, and the driver 9\.9: install"
        ):
            pack_task(sorted, "9.9")([1])

    def test_without_the_package(self, monkeypatch):
        work = pack_task(sorted)
        for name in ("dpframe", pack_task.__module__):
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            RuntimeError, match=r"a worker cannot import dpframe \(.*install dpframe==.* on every worker"
        ):
            work([1])

    def test_what_others_bring_they_cannot_read(self):
        brought = []

        def bring(content):
            brought.append(content)
            return SimpleNamespace(value=content)

        task = partial(bytes.__add__, KEY)
        assert pack_task(task, broadcast=bring)(b"!") == KEY + b"!"
        assert KEY not in brought[0]
        assert pack_task(task, broadcast=bring)(b"?") == KEY + b"?"
        assert brought[0] != brought[1], "each has a key of its own"

    def test_its_repr_shows_nothing(self):
        assert "ords" not in repr(pack_task(Words(KEY)))


class Words:
    """A task that carries something."""

    def __init__(self, key):
        self.key = key


class TestSeal:
    ROWS = BucketRows(np.ones((2, 2), np.uint64), np.ones(2, np.uint64), {"sex": np.array([1, 0], np.uint8)})

    def test_is_opened_by_its_key_and_bucket_alone(self):
        content = Seal(KEY).close(self.ROWS, 3)
        np.testing.assert_array_equal(Seal(KEY).open(content, 3).batch["sex"], [1, 0])
        for seal, bucket, other in (
            (Seal(bytes(32)), 3, content),
            (Seal(KEY), 4, content),
            (Seal(KEY), 3, content[:-1] + bytes([content[-1] ^ 1])),
        ):
            with pytest.raises(InvalidTag):
                seal.open(other, bucket)

    def test_two_of_the_same_rows_differ(self):
        one, two = Seal(KEY).close(self.ROWS, 3), Seal(KEY).close(self.ROWS, 3)
        assert one != two
        assert b"numpy" not in one
        assert "key" not in repr(Seal(KEY))


class TestStaging:
    def write(self, folder, number, content=b"x"):
        return staging.write_part(str(folder), number, 1, lambda file: file.write(content))

    def test_the_files_that_are_named_and_no_other(self, tmp_path):
        with staging.stage_release(tmp_path / "out") as (folder, publish):
            twice, kept = self.write(folder, 0, b"first"), self.write(folder, 0, b"second")
            assert twice.name != kept.name
            assert not (tmp_path / "out").exists()
            publish([kept, self.write(folder, 1)])
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
            "part-00000.parquet": b"second",
            "part-00001.parquet": b"x",
        }
        assert os.listdir(tmp_path) == ["out"]

    def test_nothing_is_left_of_what_fails(self, tmp_path):
        with pytest.raises(KeyError), staging.stage_release(tmp_path / "out") as (folder, _):
            self.write(folder, 0)
            raise KeyError
        assert not os.listdir(tmp_path)

    def test_what_appears_meanwhile_stays(self, tmp_path):
        with (
            pytest.raises(dpf.FileError, match="exists by now"),
            staging.stage_release(tmp_path / "out") as (folder, publish),
        ):
            (tmp_path / "out").mkdir()
            publish([self.write(folder, 0)])
        assert os.listdir(tmp_path) == ["out"]

    def test_a_worker_that_does_not_see_the_folder(self, tmp_path):
        with pytest.raises(dpf.FileError, match=r"a worker cannot write to .*driver and all workers see"):
            self.write(tmp_path / "elsewhere", 0)


class TestSpill:
    def spilled(self, folder):
        """Return what the first pass wrote of a table whose columns are public, and what writes its files."""
        table = dpf.datasets.make_census(900, columns=["age", "sex"])
        table.to_parquet(folder.parent / "in.parquet", row_group_size=300)
        plan = dpf.plan(table, epsilon=1, delta=0, spaces={"age": (0, 120), "sex": ["F", "M"]})
        engine, spill = InThisProcess.of(folder.parent / "in.parquet"), SealedSpill(str(folder))
        budget = ReleaseBudget(None, KEY)
        return spill, run_release_job(
            engine, Request(plan=plan), budget, lambda table, ready: run_first_pass(table, ready, spill)
        )

    def test_rows_wait_sealed_for_their_owner_only(self, tmp_path):
        (tmp_path / "out").mkdir()
        spill, ready = self.spilled(tmp_path / "out")
        files = list((tmp_path / "out").iterdir())
        assert len(files) == 3
        for path in files:
            assert path.stat().st_mode & 0o777 == 0o600
            assert b"numpy" not in path.read_bytes()
        (block,) = [block for block in ready.blocks[0] if block[0] == files[0].name]
        (content,) = spill.read([block])
        assert len(spill.seal.open(content, 0).words) == 300
        for other in (Seal(ready.work.key), SealedSpill(spill.folder).seal):
            with pytest.raises(InvalidTag):
                other.open(content, 0)
        assert spill.key.hex() not in repr(spill)
        assert "key" not in repr(spill)

    def test_how_many_rows_a_part_has_is_for_their_owner_only(self, tmp_path, monkeypatch):
        """Sizes of sealed files are of as many rows: of folders by a key, of those with each of its values."""
        seen = []

        def listed(self, number, blocks):
            target = Path(self.folder)
            everywhere = [path for path in target.rglob("*") if path.name in {name for name, *_ in blocks}]
            seen.append([path.parent.stat().st_mode & 0o777 for path in everywhere])
            return written(self, number, blocks)

        written = BucketWriter.__call__
        monkeypatch.setattr(BucketWriter, "__call__", listed)
        table = dpf.datasets.make_census(900, columns=["age", "sex"])
        table.to_parquet(tmp_path / "in.parquet", row_group_size=300)
        plan = dpf.plan(table, epsilon=1, delta=0, spaces={"age": (0, 120), "sex": ["F", "M"]})
        engine = InThisProcess.of(tmp_path / "in.parquet")
        write_release(engine, Request(plan=plan), ReleaseBudget(None, KEY), tmp_path / "out", "snappy")
        assert seen == [[0o700] * 3]
        assert os.listdir(tmp_path / "out") == ["part-00000.parquet"]

    def test_what_was_cut_off_or_is_gone_is_refused(self, tmp_path):
        (tmp_path / "out").mkdir()
        spill, ready = self.spilled(tmp_path / "out")
        first, second, _ = (block[0] for block in ready.blocks[0])
        os.truncate(tmp_path / "out" / first, 100)
        (tmp_path / "out" / second).unlink()
        with pytest.raises(dpf.FileError, match="rows or partitions changed"):
            list(spill.read(ready.blocks[0][:1]))
        with pytest.raises(dpf.FileError, match="cannot be read: No such file"):
            list(spill.read(ready.blocks[0][1:2]))
        with pytest.raises(dpf.FileError, match="rows or partitions changed"):
            BucketWriter(replace(ready, blocks=()), spill, str(tmp_path), "snappy")(0, ready.blocks[0][2:])

    def test_a_worker_that_does_not_see_the_folder(self, tmp_path):
        with pytest.raises(dpf.FileError, match=r"a worker cannot write to .*driver and all workers see"):
            self.spilled(tmp_path / "elsewhere")
        assert os.listdir(tmp_path) == ["in.parquet"]


@dataclass(frozen=True)
class InThisProcess(EngineTable):
    """Parquet files whose row groups are read one after the other."""

    files: ParquetInput

    @classmethod
    def of(cls, path):
        files = open_input(path)
        return cls(
            ArrowFrame(files.schema.empty_table()), files.n, ParquetReader(files, files.names), files, by_id=False
        )

    def run(self, task, inputs):
        return (task(*given) for given in inputs)

    def run_on_parts(self, task):
        return self.run(PartTask(self.reader, Outcome(task)), parquet_parts(self.files))

    def form(self, plan):
        return ArrowForm(ParquetForm(plan, self.files.schema, self.files.pandas_types))


def test_files_are_read_by_row_groups(tmp_path):
    people = dpf.datasets.make_census(1_000, columns=["age", "sex"])
    people.to_parquet(tmp_path / "in.parquet", row_group_size=300)
    table = open_input(tmp_path / "in.parquet")
    parts = list(table.parts())
    assert [part.n for part in parts] == [300, 300, 300, 100]
    ages = [batch["age"].to_pylist() for part in parts for batch in part.batches(["age", "sex"], 120)]
    assert list(map(len, ages)) == [120, 120, 60] * 3 + [100]
    assert [age for part in ages for age in part] == pq.read_table(tmp_path / "in.parquet")["age"].to_pylist()


def test_columns_that_files_store_in_several_types_are_not_copied_inexactly(tmp_path):
    for name, type_ in (("0", pa.int64()), ("1", pa.float64())):
        pq.write_table(pa.table({"a": pa.array([1, 2], type_)}), tmp_path / f"{name}.parquet")
    files = open_input(tmp_path)
    reader = ParquetReader(files, files.names)
    assert reader.only(["a"], []).columns == ["a"]
    with pytest.raises(dpf.FileError, match=r"0\.parquet has int64 in column 'a', which is copied as double"):
        reader.only(["a"], ["a"])
