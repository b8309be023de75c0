"""A data sink for Spark: a directory of Parquet files with the plan in every footer, complete or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from dpframe.engines.spark_tasks import merge_batches
from dpframe.engines.staging import WrittenFile, check_target, publish, stage, write_part
from dpframe.errors import FileError, NotSanitizedError
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import read_info
from dpframe.tables.metadata import METADATA_KEY
from dpframe.tables.parquet_form import ROW_GROUP_ROWS, ParquetForm

FORMAT = "dpframe"


@dataclass
class PartMessage(WriterCommitMessage):
    """The files that a task wrote."""

    files: tuple[WrittenFile, ...]


class ReleaseSink(DataSource):
    """Writes a lazy release: ``safe.write.format("dpframe").mode("append").save("new-directory")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def writer(self, schema: Any, overwrite: bool) -> ReleaseWriter:
        """Return the writer of a release; `NotSanitizedError` for other frames."""
        text = release_text(schema)
        if text is None:
            raise NotSanitizedError("the frame carries no release plan; sanitize(frame, plan) makes a release")
        return ReleaseWriter(text, self.options["path"], self.options.get("compression", "snappy"))


def release_text(schema: Any) -> str | None:
    """Return the description of a release from the metadata of its columns; None for other frames."""
    # Spark frames have no metadata but their columns'.
    texts = {field.metadata.get(METADATA_KEY) for field in schema.fields} - {None}
    return texts.pop() if len(texts) == 1 else None


class ReleaseWriter(DataSourceArrowWriter):
    """Writes files to a hidden directory next to the target, which becomes the target at the end."""

    def __init__(self, text: str, target: str, compression: str) -> None:
        self.text, self.compression = text, compression
        self.target = str(check_target(target))
        self.folder = str(stage(Path(self.target)))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:
        """Write the rows of a task to one file; write no file without rows."""
        groups = merge_batches(iterator, ROW_GROUP_ROWS)
        first_group = next(groups, None)
        if first_group is None or not first_group.num_rows:
            return PartMessage(())
        info, rows = read_info(self.text), [0]

        def write(file: Any) -> None:
            form = ParquetForm(info.plan, first_group.schema)
            with form.writer(file, self.compression) as writer:
                for group in (first_group, *groups):
                    writer.write_table(group.cast(form.schema), row_group_size=form.group_rows)
                    rows[0] += group.num_rows
                writer.add_key_value_metadata(form.metadata(info.to_json()))

        written_file = write_part(self.folder, TaskContext.get().partitionId(), 0, write)
        return PartMessage((WrittenFile(written_file.number, written_file.name, rows[0]),))

    def commit(self, messages: list[Any]) -> None:
        """Make the directory the target; `FileError` unless it has all rows of the release."""
        # A filtered release would carry a plan and a digest that do not hold for it.
        files = [file for message in messages if message is not None for file in message.files]
        info: ReleaseInfo = read_info(self.text)
        if sum(file.rows for file in files) != info.n:
            self.abort(messages)
            raise FileError("the frame differs from its release; write the release itself, as it was returned")
        publish(Path(self.folder), Path(self.target), files)

    def abort(self, messages: list[Any]) -> None:
        """Remove the hidden directory and its files."""
        shutil.rmtree(self.folder, ignore_errors=True)
