"""A format of files is one class: what a file says of itself, how its rows are read, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.errors import FileError
from dpframe.release.staged import StagedInput
from dpframe.tables.batches import Writer
from dpframe.tables.files import FileInput, sidecar
from dpframe.tables.inputs import FORMATS
from dpframe.tables.types import as_coded

KEY = bytes(range(32))


class ArrowWriter(Writer):
    """Writes batches."""

    def write(self, table, group_rows):
        self.inner.write_table(table, group_rows)


@dataclass(frozen=True)
class ArrowInput(FileInput):
    """Arrow's own files."""

    form: ClassVar[str] = "Arrow"
    ending: ClassVar[str] = ".arrow"
    apart: ClassVar[bool] = True

    @staticmethod
    def _describe_file(path):
        beside = sidecar(path)
        table = pa.ipc.open_file(path).read_all()
        return table.schema, beside.read_text() if beside.exists() else None, len(table)

    def _read_batches(self, names, rows, plain):
        for path, _ in self.files:
            for batch in pa.ipc.open_file(path).read_all().to_batches(rows):
                columns = {name: batch.column(name) for name in names}
                yield {name: own if name in plain else as_coded(own) for name, own in columns.items()}

    def read(self, names):
        return pa.concat_tables(pa.ipc.open_file(path).read_all() for path, _ in self.files).select(names)

    @staticmethod
    def writer(file, schema, compression):
        return ArrowWriter(pa.ipc.new_file(file, schema))


@pytest.fixture
def people(tmp_path):
    frame = dpf.datasets.make_census(2_000, columns=["age", "sex"], random_state=1)
    with pa.ipc.new_file(tmp_path / "in.arrow", (table := pa.Table.from_pandas(frame)).schema) as file:
        file.write_table(table)
    frame.to_parquet(tmp_path / "in.parquet")
    return tmp_path


def test_a_format_is_one_class_and_its_name(people, monkeypatch):
    monkeypatch.setitem(FORMATS, ".arrow", ArrowInput)
    plan = dpf.plan(people / "in.arrow", epsilon=1, spaces={"age": (0, 120), "sex": ["F", "M"]})
    dpf.sanitize(people / "in.arrow", people / "out.arrow", plan=plan, key=KEY)
    dpf.sanitize(people / "in.parquet", people / "out.parquet", plan=plan, key=KEY)
    arrow, parquet = dpf.read(people / "out.arrow"), dpf.read(people / "out.parquet")
    pd.testing.assert_frame_equal(arrow.astype({"sex": str}), parquet.astype({"sex": str}), check_index_type=False)
    assert dpf.Estimates(people / "out.arrow").mean("age").equals(parquet.dp.mean("age"))
    assert dpf.verify(people / "out.arrow").ok


def test_a_stream_is_not_written():
    with pytest.raises(FileError, match=r"a stream is not.*or CSV file"):
        StagedInput.writer(None, pa.schema([]), "snappy")


def test_what_is_no_format_is_refused(people):
    with pytest.raises(FileError, match=r"\.arrow is not written; name a \.parquet or \.csv file"):
        dpf.sanitize(people / "in.parquet", people / "o.arrow", epsilon=1, drop=["age", "sex"])
