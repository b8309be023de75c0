"""Parquet to Parquet, in bounded memory: stream, randomise, put in a secret order, write atomically."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Unpack

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.errors import ColumnError, FileError, ParameterError
from dpframe.files import ParquetInput, is_text
from dpframe.frames import arrow_metadata, check_columns, located, output_type
from dpframe.inmemory import PlanOptions, SortedWatch, choose_plan, new_key, plan_for, refuse_release
from dpframe.keystream import cipher_at
from dpframe.plan import Column, Plan
from dpframe.release import Digest, ReleaseInfo, order_words, rank, release

__all__ = ["plan_parquet", "read_parquet", "sanitize_parquet"]

ROW_GROUP_ROWS = 1 << 20
BATCH_ROWS = 1 << 17
BUCKET_ROWS = 1 << 19

Batch = dict[str, Any]
"""Released codes (NumPy) and columns passed through (Arrow), by name."""

Progress = Callable[[int, int], None]
"""Called with the rows done and the rows in all."""


def plan_parquet(
    source: str | Path, epsilon: float, delta: float | None = None, **options: Unpack[PlanOptions]
) -> Plan:
    """Plan how Parquet files would be sanitised; see `dpframe.make_plan`.

    Raises
    ------
    FileError
        If the source is missing or no Parquet.
    """
    table = ParquetInput.open(source)
    refuse_release(table.text)
    return plan_for(table.names, table.fields, table.n, table.arrays, epsilon=epsilon, delta=delta, **options)


def sanitize_parquet(
    source: str | Path,
    target: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | None = None,
    key: bytes | None = None,
    batch_rows: int = BATCH_ROWS,
    compression: str = "snappy",
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> ReleaseInfo:
    """Randomise every row of Parquet files into one Parquet file, in bounded memory.

    Parameters
    ----------
    source
        A file, a directory (its files are one table, its Hive partition keys columns) or a glob.
    target
        The file to write. It appears whole or not at all, and replaces an older one.
    epsilon, delta, **options
        What decides the plan; see `dpframe.make_plan`.
    plan
        A ready plan instead of these.
    key
        32 secret bytes, for repeating an interrupted release of the *same* table; otherwise fresh.
    batch_rows
        Rows worked on at a time; any number gives the same output.
    compression
        Parquet compression codec.
    progress
        Called with rows done and rows in all.

    Returns
    -------
    What the release says about itself.

    Raises
    ------
    FileError
        If the source is missing or damaged, or the target is part of it or cannot be written.
    ParameterError, ColumnError, AlreadySanitizedError
        As `dpframe.sanitize`.
    """
    table = ParquetInput.open(source)
    refuse_release(table.text)
    chosen = choose_plan(plan, epsilon, delta, options)
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1:
        raise ParameterError("batch_rows must be a whole number of rows, at least 1")
    path = _check_target(Path(target), table)
    if chosen is None:
        assert epsilon is not None
        chosen = plan_for(table.names, table.fields, table.n, table.arrays, epsilon=epsilon, delta=delta, **options)
    check_columns(table.names, chosen)
    job = _Job(table, chosen, new_key(key), batch_rows, progress or (lambda done, total: None))
    with _atomic(path) as file:
        return job.run(file, path.parent, compression)


def read_parquet(path: str | Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file, directory or glob into pandas; a release keeps its plan.

    Unlike `pandas.read_parquet` the metadata of every file is checked.

    Raises
    ------
    FileError
        If the source is missing or no Parquet, or its files carry different plans.
    """
    table = ParquetInput.open(path)
    names = table.names if columns is None else columns
    for name in names:
        if name not in table.names:
            raise ColumnError("is not in the file", column=name)
    # Not pandas' own reader: of a directory it keeps the first file's attrs, whatever the others say.
    parts = [pq.ParquetFile(file).read([n for n in names if n not in keys]) for file, keys in table.files]
    frame: pd.DataFrame = pa.concat_tables(parts).to_pandas()
    for name in table.files[0][1]:
        if name in names:
            frame[name] = (
                pa.chunked_array(
                    [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in table.arrays(name)]
                )
                .to_pandas()
                .to_numpy()
            )
    frame = frame[list(names)]
    frame.attrs = {} if table.text is None else {"dpframe": table.text}
    return frame


def _check_target(path: Path, table: ParquetInput) -> Path:
    if path.is_dir():
        raise FileError(f"{path} is a directory; name a file to write")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a directory; make it first")
    inputs = {file.resolve() for file, _ in table.files}
    inside = Path(table.source).is_dir() and Path(table.source).resolve() in path.resolve().parents
    if path.resolve() in inputs or inside:
        raise FileError(f"{path} is part of the input; write to another place")
    return path


@contextlib.contextmanager
def _atomic(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that becomes ``path`` when the block ends, and vanishes when it fails or is killed.

    Where the system has them, the file has no name until it is whole.
    """
    temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        descriptor, unnamed = _create(folder, path.parent, temporary)
        try:
            with os.fdopen(descriptor, "r+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if unnamed:
                    # Only with a dir_fd does Python ask link to follow /proc's symbolic link.
                    source = f"/proc/self/fd/{file.fileno()}"
                    os.link(source, temporary, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            os.close(folder)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def _create(folder: int, parent: Path, name: str) -> tuple[int, bool]:
    """Open a new file for writing; the flag tells that it has no name yet."""
    with contextlib.suppress(AttributeError, OSError):
        return os.open(parent, os.O_TMPFILE | os.O_RDWR, 0o666), True
    return os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666, dir_fd=folder), False


@dataclass
class _Job:
    """One conversion: reads batches, releases them, orders them if asked, writes row groups."""

    table: ParquetInput
    plan: Plan
    key: bytes
    batch_rows: int
    progress: Progress

    def __post_init__(self) -> None:
        kept = {*self.plan.names, *self.plan.passthrough}
        self.names = [name for name in self.table.names if name in kept]
        self.fields = {field.name: field for field in self.table.fields(self.names)}
        for column in self.plan.columns:
            try:
                column.space.check_type(output_type(self.fields[column.name].type))
            except ColumnError as error:
                raise located(error, column.name) from None
        self.digest = Digest(self.plan)
        self.watch = None if self.plan.shuffle else SortedWatch()

    def run(self, file: IO[bytes], folder: Path, compression: str) -> ReleaseInfo:
        """Write the whole output file; what is spilled goes to ``folder``."""
        batches = self._shuffled(folder) if self.plan.shuffle else self._released()
        try:
            writer = pq.ParquetWriter(file, self._stored_schema(), compression=compression, store_schema=False)
        except (pa.ArrowException, OSError, ValueError, TypeError):
            raise ParameterError(f"compression {compression!r} is not known; use snappy, zstd, gzip or none") from None
        with writer:
            rows = _write_in_background(writer, self._row_groups(batches))
            if self.watch is not None:
                self.watch.warn()
            info = ReleaseInfo(self.plan, rows, self.digest.hexdigest())
            writer.add_key_value_metadata(self._metadata(info))
        return info

    def _released(self) -> Iterator[Batch]:
        """Yield released codes, and columns passed through, in input order."""
        first_row = 0
        for batch in self.table.batches(self.names, self.batch_rows):
            count = len(next(iter(batch.values()), ()))
            codes = {c.name: self._encode(c, batch[c.name], first_row) for c in self.plan.columns}
            if self.watch is not None:
                self.watch.update(codes)
            released: Batch = dict(release(codes, self.plan, self.key, first_row))
            self.digest.update(released)
            released.update((name, batch[name]) for name in self.plan.passthrough)
            yield released
            first_row += count
            self.progress(first_row, self.table.n)

    def _encode(self, column: Column, array: pa.Array, first_row: int) -> npt.NDArray[np.unsignedinteger]:
        try:
            return column.space.encode(array, nulls=self.plan.nulls)
        except ColumnError as error:
            raise located(error, column.name, first_row) from None

    def _shuffled(self, folder: Path) -> Iterator[Batch]:
        """Yield the released rows in their secret order, through encrypted buckets on disk."""
        with _Spill(folder, max(0, (self.table.n // BUCKET_ROWS).bit_length())) as spill:
            first_row = 0
            for batch in self._released():
                count = len(next(iter(batch.values()), ()))
                spill.add(order_words(self.plan, self.key, first_row, count), batch)
                first_row += count
            for bucket in range(spill.buckets):
                words, columns = spill.read(bucket)
                order = rank(words)
                yield {name: _take(column, order) for name, column in columns.items()}

    def _row_groups(self, batches: Iterator[Batch]) -> Iterator[pa.Table]:
        """Decode batches and gather them to row groups."""
        schema, waiting, rows = self._stored_schema(), [], 0
        for batch in batches:
            arrays = [self._decode(name, batch[name]) for name in self.names]
            waiting.append(pa.Table.from_arrays(arrays, schema=schema))
            rows += waiting[-1].num_rows
            if rows >= ROW_GROUP_ROWS:
                yield pa.concat_tables(waiting).unify_dictionaries()
                waiting, rows = [], 0
        if waiting:
            yield pa.concat_tables(waiting).unify_dictionaries()

    def _decode(self, name: str, column: Any) -> pa.Array:
        stored = _stored_type(self.fields[name].type)
        if name in self.plan.names:
            return self.plan[name].space.decode(column, stored)
        return column if column.type == stored else column.cast(stored)

    def _stored_schema(self) -> pa.Schema:
        """Return the schema that is written: strings as dictionaries, so that none is touched per row."""
        return pa.schema([self._field(name, _stored_type(self.fields[name].type)) for name in self.names])

    def _field(self, name: str, type_: pa.DataType) -> pa.Field:
        may_be_null = name in self.plan.names and "nullable" in self.plan[name].space.tag
        return pa.field(name, type_, nullable=self.fields[name].nullable or may_be_null)

    def _metadata(self, info: ReleaseInfo) -> dict[str, str]:
        """Return fresh file metadata: the plan, pandas' dtypes, and the schema that readers shall see."""
        seen = [self._field(name, output_type(self.fields[name].type)) for name in self.names]
        metadata = arrow_metadata(info.to_json()) | {"pandas": _pandas_metadata(seen, self.table.pandas_types)}
        schema = pa.schema(seen, metadata=metadata)
        return metadata | {"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()}


def _stored_type(type_: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), type_) if is_text(type_) else output_type(type_)


def _take(column: Any, order: npt.NDArray[np.intp]) -> Any:
    return column[order] if isinstance(column, np.ndarray) else column.take(pa.array(order))


def _pandas_metadata(fields: list[pa.Field], dtypes: Mapping[str, str]) -> str:
    """Return pandas' schema metadata with dtypes only: no index, no names of index levels."""
    columns = [
        {
            "name": field.name,
            "field_name": field.name,
            "pandas_type": "unicode" if is_text(field.type) else str(field.type),
            "numpy_type": dtypes.get(field.name, "object"),
            "metadata": None,
        }
        for field in fields
    ]
    return json.dumps({"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": pd.__version__})


def _write_in_background(writer: pq.ParquetWriter, tables: Iterator[pa.Table]) -> int:
    """Write tables as row groups in a second thread, while the next are made; return the rows written."""
    waiting: queue.Queue[pa.Table | None] = queue.Queue(maxsize=1)
    failure: list[BaseException] = []

    def work() -> None:
        while (table := waiting.get()) is not None:
            if failure:
                continue
            try:
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            except BaseException as error:
                failure.append(error)

    thread = threading.Thread(target=work, name="dpframe-writer")
    thread.start()
    rows = 0
    try:
        for table in tables:
            if failure:
                break
            rows += table.num_rows
            waiting.put(table)
    finally:
        waiting.put(None)
        thread.join()
    if failure:
        raise failure[0]
    return rows


class _Spill:
    """Released rows on disk, sorted into buckets by the top bits of their order word.

    The file has no name, only its owner may read it, and it is encrypted under a key that is held in
    memory: its rows are in input order, which the release must not tell.
    """

    def __init__(self, folder: Path, bits: int) -> None:
        self.buckets = 1 << bits
        self._bits = bits
        self._key = secrets.token_bytes(32)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._cipher = cipher_at(self._key, 0)
        self._end = 0
        self._batches: list[tuple[npt.NDArray[np.intp], dict[str, Any]]] = []

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, words: npt.NDArray[np.uint64], batch: Batch) -> None:
        """Spill a batch, rows sorted by order word so that each bucket is one stretch."""
        order = rank(words)
        ordered = words[order]
        top = ordered[:, 1] >> np.uint64(64 - self._bits) if self._bits else np.zeros(len(order), np.uint64)
        edges = np.searchsorted(top, np.arange(self.buckets + 1, dtype=np.uint64))
        places: dict[str, Any] = {"": (self._append(ordered), ordered.dtype)}
        for name, column in batch.items():
            taken = _take(column, order)
            if isinstance(taken, np.ndarray):
                places[name] = (self._append(taken), taken.dtype)
            else:
                parts = [taken.slice(a, b - a) for a, b in pairwise(edges)]
                places[name] = [self._append_arrow(part) for part in parts]
        self._batches.append((edges, places))

    def read(self, bucket: int) -> tuple[npt.NDArray[np.uint64], dict[str, Any]]:
        """Return a bucket's order words and columns."""
        found: dict[str, list[Any]] = {}
        for edges, places in self._batches:
            start, stop = int(edges[bucket]), int(edges[bucket + 1])
            for name, place in places.items():
                if isinstance(place, list):
                    part = _from_ipc(self._fetch(*place[bucket]))
                else:
                    offset, dtype = place
                    width = dtype.itemsize * (2 if name == "" else 1)
                    part = np.frombuffer(self._fetch(offset + start * width, (stop - start) * width), dtype)
                found.setdefault(name, []).append(part)
        columns = {
            name: np.concatenate(parts) if isinstance(parts[0], np.ndarray) else _concat(parts)
            for name, parts in found.items()
        }
        words = columns.pop("", np.empty(0, np.uint64))
        return words.reshape(-1, 2), columns

    def _append(self, values: npt.NDArray[Any]) -> int:
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return self._append_bytes(raw.data)

    def _append_arrow(self, array: pa.Array) -> tuple[int, int]:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([pa.array(array) if not isinstance(array, pa.Array) else array], names=["x"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        raw = sink.getvalue().to_pybytes()
        return self._append_bytes(memoryview(raw)), len(raw)

    def _append_bytes(self, raw: memoryview) -> int:
        start = self._end
        hidden = memoryview(self._cipher.update(raw))
        self._end += len(hidden)
        while hidden:
            hidden = hidden[self._file.write(hidden) :]
        return start

    def _fetch(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        place = offset
        while place < offset + length:
            parts.append(os.pread(self._file.fileno(), offset + length - place, place))
            if not parts[-1]:
                raise OSError("the spill file is shorter than what was written")
            place += len(parts[-1])
        return cipher_at(self._key, offset).update(b"".join(parts))


def _from_ipc(raw: bytes) -> pa.Array:
    with pa.ipc.open_stream(raw) as stream:
        return stream.read_next_batch().column(0)


def _concat(parts: list[pa.Array]) -> pa.Array:
    return pa.chunked_array(parts).unify_dictionaries().combine_chunks()
