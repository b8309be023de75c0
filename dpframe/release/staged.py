"""Tables that can be read only once, or whose rows may change their order, read like files.

A polars LazyFrame, a relation of DuckDB or any Arrow stream is read once, in batches, into a hidden file, and from
there as often as a release goes through its rows. Memory holds a block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, NoReturn, Self

import pandas as pd
import pyarrow as pa

from dpframe.errors import FileError, ParameterError
from dpframe.noise.keystream import derived_key
from dpframe.release.spill import HiddenFile
from dpframe.spaces import as_arrow
from dpframe.tables.files import READ_BATCH_ROWS, FileInput
from dpframe.tables.frames import ArrowFrame, without_views, wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.metadata import metadata_text
from dpframe.tables.row_checks import RowChecks, added, sum_bytes
from dpframe.tables.types import as_coded, has_dictionary, is_text

Stream = tuple[pa.Schema, Iterator[pa.Table]]
"""The schema of a table without views, and its rows, some at a time."""
Place = tuple[int, int]


@dataclass(frozen=True)
class StagedInput(FileInput):
    """A table in a hidden file, by blocks of rows and columns; made by `staged`."""

    form: ClassVar[str] = "a stream"

    hidden: HiddenFile | None = field(default=None, repr=False, compare=False)
    blocks: tuple[dict[str, Place], ...] = field(default=(), repr=False, compare=False)
    """Offset and length of the columns of each block."""

    @classmethod
    def of(cls, source: str, stream: Stream, hidden: HiddenFile) -> Self:
        """Read a stream to its end into a hidden file."""
        schema, tables = stream
        wrap(schema.empty_table())  # checks the column names
        blocks, rows = [], 0
        for table in _regroup_tables(tables, READ_BATCH_ROWS):
            blocks.append({name: hidden.append_table(_encode_texts(table.select([name]))) for name in schema.names})
            rows += table.num_rows
        text = metadata_text(schema.metadata)
        return cls(source, (), schema.remove_metadata(), rows, text, {}, hidden=hidden, blocks=tuple(blocks))

    @staticmethod
    def _describe_file(path: Path) -> NoReturn:
        raise FileError(f"{path} is no stream; name a Parquet or CSV file")

    @staticmethod
    def writer(file: IO[bytes], schema: pa.Schema, compression: str) -> NoReturn:
        """Refuse: a stream is read once."""
        raise FileError("a stream is not written; name a Parquet or CSV file")

    def _fetch_column(self, place: Place, name: str) -> pa.ChunkedArray:
        assert self.hidden is not None
        return self.hidden.fetch_table(*place).column(name)

    def _read_batches(self, names: Sequence[str], rows: int, plain: Collection[str]) -> Iterator[dict[str, pa.Array]]:
        for block in self.blocks:
            columns = {name: self._fetch_column(block[name], name).combine_chunks() for name in names}
            for name, column in columns.items():
                stored_type = self.schema.field(name).type
                # The union of all entries may overflow the stream's index type.
                stored_column = column if has_dictionary(stored_type) else column.cast(stored_type)
                columns[name] = stored_column if name in plain else as_coded(column)
            count = len(next(iter(columns.values()), ()))
            for start in range(0, count, rows):
                yield {name: column[start : start + rows] for name, column in columns.items()}

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns as one table."""
        schema = pa.schema([self.schema.field(name) for name in names])
        batches = self._read_batches(names, READ_BATCH_ROWS, names)
        return pa.concat_tables([schema.empty_table(), *(pa.table(batch, schema) for batch in batches)])

    def digest(self) -> bytes:
        """Return the public facts of the input: its columns, their types, and the number of rows."""
        return repr(([(f.name, str(f.type)) for f in self.schema], self.n)).encode()

    @property
    def keyed_digest(self) -> Callable[[bytes], bytes]:
        """A function that computes a keyed digest of all values, independent of batches."""
        return self._keyed_digest

    def _keyed_digest(self, key: bytes) -> bytes:
        check_key = derived_key(key, b"digest of the input")
        checks, first_row, low, high = RowChecks(check_key, tuple(self.schema.names)), 0, 0, 0
        for batch in self._read_batches(self.schema.names, READ_BATCH_ROWS, self.schema.names):
            frame = ArrowFrame(pa.table(batch))
            sums = added(checks({}, first_row, frame.n, frame))
            first_row, low, high = first_row + frame.n, low + sums[0], high + sums[1]
        return sum_bytes(low, high)


def _regroup_tables(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield tables of ``rows`` rows; the last one may have fewer."""
    buffer: list[pa.Table] = []
    for table in tables:
        buffer.append(table)
        while sum(part.num_rows for part in buffer) >= rows:
            buffered_rows = pa.concat_tables(buffer)
            yield buffered_rows[:rows]
            buffer = [buffered_rows[rows:]]
    if sum(part.num_rows for part in buffer):
        yield pa.concat_tables(buffer)


def _encode_texts(table: pa.Table) -> pa.Table:
    """Return a column in its stored form: texts as dictionaries, as from files."""
    column = as_arrow(table.column(0))
    column = column.dictionary_encode() if is_text(column.type) else column
    return pa.table([column], names=table.column_names)


def stream_of(source: Any) -> Stream | None:
    """Return a table as a stream; None if it is not one."""
    # A DataFrame has `__arrow_c_stream__` as well, but would lose its pandas dtypes as a stream.
    if isinstance(source, pd.DataFrame):
        return None
    if type(source).__module__.split(".")[0] == "polars" and hasattr(source, "collect_schema"):
        import polars as pl

        oldest = pl.CompatLevel.oldest()  # later ones have categories that Arrow does not decode
        # An empty frame gives the Arrow schema without a computation of the LazyFrame.
        schema = pl.DataFrame(schema=source.collect_schema()).to_arrow(compat_level=oldest).schema
        if isinstance(source, pl.LazyFrame):
            # Older versions of polars give no batches.
            frames = source.collect_batches() if hasattr(source, "collect_batches") else [source.collect()]
        else:
            frames = source.iter_slices(READ_BATCH_ROWS)
        return schema, (frame.to_arrow(compat_level=oldest).cast(schema) for frame in frames)
    if not hasattr(source, "__arrow_c_stream__"):
        return None
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError, ValueError):
        raise ParameterError(f"{type(source).__name__} is no stream of rows; pass a table") from None
    schema = without_views(reader.schema.empty_table()).schema
    return schema.with_metadata(reader.schema.metadata), _read_tables(reader)


def _read_tables(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    try:
        for batch in reader:
            yield without_views(pa.Table.from_batches([batch]))
    except (pa.ArrowException, OSError):
        has_failed = True
    else:
        has_failed = False
    if has_failed:  # not in the block: the error there may quote values
        raise FileError("the stream broke off while its rows were read; make it anew, and try again")


def is_read_in_parts(source: Any) -> bool:
    """Return whether a source is read in batches: files, and streams, unlike frames that memory holds."""
    if isinstance(source, str | Path):
        return True
    if isinstance(source, pd.DataFrame | pa.Table | pa.RecordBatch):
        return False
    if type(source).__module__.split(".")[0] == "polars":
        return hasattr(source, "collect")
    return hasattr(source, "__arrow_c_stream__")


@contextmanager
def staged(source: Any, folder: Path) -> Iterator[FileInput]:
    """Yield a source as a table that can be read repeatedly: files, or a stream in a hidden file."""
    stream = stream_of(source)
    if stream is None:
        yield open_input(source)
        return
    with ExitStack() as stack:
        try:
            hidden = stack.enter_context(HiddenFile(folder))
            table = StagedInput.of(f"a {type(source).__name__}", stream, hidden)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            reason = error.strerror or "input/output error"
            raise FileError(
                f"{folder} takes no file of the table's rows: {reason}; make room, or name another"
            ) from None
        yield table
