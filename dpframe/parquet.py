"""Parquet to Parquet, in bounded memory: stream, randomise, put in a secret order, write atomically."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
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
from dpframe.files import ParquetInput, is_list, is_text, plain_type
from dpframe.frames import check_columns, located, output_type
from dpframe.inmemory import SortedWatch
from dpframe.jobs import Request, check_types, run_once
from dpframe.keystream import cipher_at
from dpframe.plan import Column, Plan
from dpframe.planning import (
    Account,
    PlanOptions,
    TableFacts,
    choose_plan,
    new_key,
    noted,
    plan_for,
    refuse_release,
)
from dpframe.release import Digest, ReleaseInfo, Selection, arrow_metadata, order_words, rank, release

__all__ = ["plan_parquet", "read_parquet", "sanitize_parquet"]

ROW_GROUP_ROWS = 1 << 20
GROUP_ITEMS = 32
"""Bits a row up to which row groups are whole: more would take more than 500 MiB before they are written."""
BATCH_ROWS = 1 << 17
SPILL_ROWS = 1 << 17
BUCKET_ROWS = 1 << 19

Batch = dict[str, Any]
"""Released codes (NumPy) and columns passed through (Arrow), by name."""

Progress = Callable[[int, int], None]
"""Called with the rows done and the rows in all."""


def plan_parquet(
    source: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    ledger: Any = None,
    dataset: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan how Parquet files would be sanitised; see `dpframe.make_plan`.

    Raises
    ------
    FileError
        If the source is missing or no Parquet.
    """
    table = ParquetInput.open(source)
    refuse_release(table.text)
    facts = _facts(table)
    return plan_for(
        facts, lambda: new_key(None), noted(facts, Account.of(ledger, dataset)), epsilon=epsilon, delta=delta, **options
    )


def _facts(table: ParquetInput) -> TableFacts:
    return TableFacts(
        table.names, table.n, table.fields, table.arrays, lambda names: table.batches(list(names), BATCH_ROWS)
    )


def sanitize_parquet(
    source: str | Path,
    target: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | None = None,
    key: bytes | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    batch_rows: int = BATCH_ROWS,
    compression: str = "snappy",
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> ReleaseInfo:
    """Randomise every row of Parquet files into one Parquet file, in bounded memory.

    Parameters
    ----------
    source
        A file, a directory (its files are one table, its Hive partition keys columns of text) or a glob.
    target
        The file to write. It appears whole or not at all, and replaces an older one.
    epsilon, delta, **options
        What decides the plan; see `dpframe.make_plan`.
    plan
        A ready plan instead of these.
    key
        32 secret bytes, for repeating an interrupted release of the *same* table; otherwise fresh.
    ledger, dataset
        A `Ledger`, or its path, and the dataset in it from which the release spends, before any noise is drawn. A
        job that is interrupted keeps its key beside the ledger: repeated over the same input and plan it costs
        nothing more, and writes the same.
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
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend, or the input changed since an interrupted run.
    """
    table = ParquetInput.open(source)
    refuse_release(table.text)
    chosen = choose_plan(plan, epsilon, delta, options)
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1:
        raise ParameterError("batch_rows must be a whole number of rows, at least 1")
    path, account = _check_target(Path(target), table), Account.of(ledger, dataset)
    if compression not in CODECS:
        raise ParameterError(f"compression {compression!r} is not known; use {', '.join(CODECS)}")
    show = progress or (lambda done, total: None)
    if account is not None:
        if key is not None:
            raise ParameterError("key and ledger do not go together: under a ledger every job keeps its own key")
        # What can be gone through only once is read once.
        kept: Any = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in options.items()}
        request = Request(table, path, _facts(table), chosen, epsilon, delta, kept)
        made = chosen is None
        return run_once(
            request, account, lambda plan, key: _write(table, path, plan, made, key, batch_rows, compression, show)
        )
    secret = new_key(key)
    if chosen is None:
        assert epsilon is not None
        facts = _facts(table)
        chosen = plan_for(facts, lambda: secret, lambda found, share: None, epsilon=epsilon, delta=delta, **options)
    return _write(table, path, chosen, plan is None, secret, batch_rows, compression, show)


CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")


def _write(
    table: ParquetInput,
    path: Path,
    plan: Plan,
    made: bool,
    key: bytes,
    batch_rows: int,
    compression: str,
    progress: Progress,
) -> ReleaseInfo:
    """Check what is left to check, and write the output; ``made`` tells that the plan was made from this table."""
    check_columns(table.names, plan)
    plan.check_rows(table.n)
    job = _Job(table, plan, made and plan.inferred is not None, key, batch_rows, progress)
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
    frame: pd.DataFrame = table.read(names).to_pandas()
    index = [name for name in names if name not in frame.columns]
    frame = frame.reset_index(index)[list(names)] if index else frame
    frame.attrs = {} if table.text is None else {"dpframe": table.text}
    return frame


def _check_target(path: Path, table: ParquetInput) -> Path:
    if path.is_dir():
        raise FileError(f"{path} is a directory; name a file to write")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a regular file; name another one to write")
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
                if not (unnamed and _link(file, folder, path.name)):
                    if unnamed:
                        _link(file, folder, temporary)
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


def _link(file: IO[bytes], folder: int, name: str) -> bool:
    """Name a file that has no name; False if the name is taken."""
    # Only with a dir_fd does Python ask link to follow /proc's symbolic link.
    source = f"/proc/self/fd/{file.fileno()}"
    try:
        os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


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
    measured: bool
    key: bytes
    batch_rows: int
    progress: Progress

    def __post_init__(self) -> None:
        kept = {*self.plan.names, *self.plan.passthrough}
        self.names = [name for name in self.table.names if name in kept]
        self.fields = {field.name: field for field in self.table.fields(self.names)}
        check_types([self.fields[name] for name in self.plan.names], {c.name: c.space for c in self.plan.columns})
        self.digest, self.first_row = Digest(self.plan), 0
        self.selection = Selection(self.plan, self.key, self.table.n)
        self.watch = None if self.plan.shuffle else SortedWatch(self.table.partitions)

    def run(self, file: IO[bytes], folder: Path, compression: str) -> ReleaseInfo:
        """Write the whole output file; what is spilled goes to ``folder``."""
        batches = self._shuffled(folder) if self.plan.shuffle else self._released()
        with self._writer(file, compression) as writer:
            rows = _in_background(
                lambda table: writer.write_table(table, row_group_size=self._group_rows),
                map(self._decoded, _row_groups(batches, self._group_rows)),
            )
            if self.watch is not None:
                self.watch.warn()
            drawn_from = None if self.plan.sample is None else self.table.n
            info = ReleaseInfo(self.plan, rows, self.digest.hexdigest(), drawn_from, self.measured)
            writer.add_key_value_metadata(self._metadata(info))
        return info

    def _writer(self, file: IO[bytes], compression: str) -> pq.ParquetWriter:
        return pq.ParquetWriter(file, self._stored_schema(), compression=compression, store_schema=False)

    def _released(self) -> Iterator[Batch]:
        """Yield released codes, and columns passed through, in input order."""
        return (batch for batch, _ in self._with_rows())

    def _with_rows(self) -> Iterator[tuple[Batch, slice | npt.NDArray[np.intp]]]:
        """Yield the same with which of the batch's rows they are, and move `first_row` along."""
        for batch in self.table.batches(self.names, self.batch_rows, self.plan.passthrough):
            count = _length(batch)
            codes = {c.name: self._encode(c, batch[c.name], self.first_row) for c in self.plan.columns}
            if self.watch is not None:
                self.watch.update(codes)
            released: Batch = dict(release(codes, self.plan, self.key, self.first_row))
            released.update((name, self._plain(name, batch[name])) for name in self.plan.passthrough)
            mask = self.selection.mask(self.first_row, count)
            rows: slice | npt.NDArray[np.intp] = slice(None)
            if mask is not None:
                rows = np.flatnonzero(mask)
                released = {name: column.take(rows) for name, column in released.items()}
            self.digest.update(released)
            yield released, rows
            self.first_row += count
            self.progress(self.first_row, self.table.n)

    def _plain(self, name: str, array: pa.Array) -> pa.Array:
        stored = plain_type(self.fields[name].type)
        return array if array.type.equals(stored) else array.cast(stored)

    def _encode(self, column: Column, array: pa.Array, first_row: int) -> npt.NDArray[np.unsignedinteger]:
        try:
            return column.space.encode(array, nulls=self.plan.nulls_of(column.name))
        except ColumnError as error:
            raise located(error, column.name, first_row) from None

    def _shuffled(self, folder: Path) -> Iterator[Batch]:
        """Yield the released rows in their secret order, through encrypted buckets on disk."""
        with _Spill(folder, ((self.plan.sample or self.table.n) // BUCKET_ROWS).bit_length()) as spill:
            for batch, rows in self._with_rows():
                count = _length(batch) if isinstance(rows, slice) else int(rows.max(initial=-1)) + 1
                spill.add(order_words(self.plan, self.key, self.first_row, count)[rows], batch)
            for bucket in range(spill.buckets):
                yield spill.read(bucket)

    @property
    def _group_rows(self) -> int:
        """Rows of a group: fewer where a row's sets may hold many items, which the plan says."""
        words = sum(column.space.code_words for column in self.plan.columns)
        return ROW_GROUP_ROWS // max(1, words * 64 // GROUP_ITEMS)

    def _decoded(self, group: Batch) -> pa.Table:
        arrays = [
            self.plan[name].space.decode(group[name], self._stored_type(name))
            if name in self.plan.names
            else group[name]
            for name in self.names
        ]
        return pa.Table.from_arrays(arrays, schema=self._stored_schema())

    def _stored_type(self, name: str) -> pa.DataType:
        """Return the type that is written; strings to decode are dictionaries, so that none is touched per row."""
        type_ = self.fields[name].type
        if name in self.plan.passthrough:
            return plain_type(type_)
        if is_list(type_) and is_text(type_.value_type):
            space: Any = self.plan[name].space
            # By the space, not the column; items are many, and a byte for each is enough more often than not.
            narrow = getattr(space, "inner", space).listed.natural_type.index_type
            inner = pa.dictionary(narrow, _indexed(type_.value_type).value_type)
            field = pa.field(type_.value_field.name, inner, type_.value_field.nullable)
            return pa.large_list(field) if pa.types.is_large_list(type_) else pa.list_(field)
        return _indexed(type_) if is_text(type_) else output_type(type_)

    def _stored_schema(self) -> pa.Schema:
        return pa.schema([self._field(name, self._stored_type(name)) for name in self.names])

    def _seen_type(self, name: str) -> pa.DataType:
        """Return the type that readers shall see."""
        type_ = self.fields[name].type
        return plain_type(type_) if type_.num_fields and name in self.plan.passthrough else output_type(type_)

    def _field(self, name: str, type_: pa.DataType) -> pa.Field:
        may_be_null = name in self.plan.names and "nullable" in self.plan[name].space.tag
        return pa.field(name, type_, nullable=self.fields[name].nullable or may_be_null)

    def _metadata(self, info: ReleaseInfo) -> dict[str, str]:
        """Return fresh file metadata: the plan, pandas' dtypes, and the schema that readers shall see."""
        seen = [self._field(name, self._seen_type(name)) for name in self.names]
        metadata = arrow_metadata(info.to_json()) | {"pandas": _pandas_metadata(seen, self.table.pandas_types)}
        schema = pa.schema(seen, metadata=metadata)
        return metadata | {"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()}


def _indexed(type_: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), pa.large_string() if pa.types.is_large_string(type_) else pa.string())


def _length(batch: Batch) -> int:
    return len(next(iter(batch.values()), ()))


def _joined(batches: list[Batch]) -> Batch:
    """Return batches as one, every column in one piece."""
    return {name: _concat([batch[name] for batch in batches]) for name in batches[0]}


def _concat(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, parts[0].type).unify_dictionaries().combine_chunks()


def _reordered(records: npt.NDArray[Any], order: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    # As plain bytes: NumPy would copy records field by field.
    return records.view(np.dtype((np.void, records.itemsize)))[order].view(records.dtype)


def _row_groups(batches: Iterator[Batch], most: int) -> Iterator[Batch]:
    """Gather batches to row groups, which neither in size nor in pages tell of batches and input files."""
    waiting, rows = [], 0
    for batch in batches:
        waiting.append(batch)
        rows += _length(batch)
        while rows >= most:
            whole = _joined(waiting)
            yield {name: column[:most] for name, column in whole.items()}
            waiting = [{name: column[most:] for name, column in whole.items()}]
            rows -= most
    if rows:
        yield _joined(waiting)


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


def _in_background(write: Callable[[pa.Table], None], tables: Iterator[pa.Table]) -> int:
    """Write each table in a second thread, while the next is made; return the rows written."""
    rows = 0
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="dpframe-writer") as thread:
        for table in tables:
            if writing is not None:
                writing.result()
            rows += table.num_rows
            writing = thread.submit(write, table)
        if writing is not None:
            writing.result()
    return rows


class _Spill:
    """Released rows on disk, parted into buckets by the top bits of their order word.

    The file has no name, only its owner may read it, and it is encrypted under a key that is held in
    memory: its rows are in input order, which the release must not tell.
    """

    def __init__(self, folder: Path, bits: int) -> None:
        self._bits = min(bits, 16)
        self.buckets = 1 << self._bits
        self._key = secrets.token_bytes(32)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._cipher = cipher_at(self._key, 0)
        self._end = 0
        self._waiting: list[Batch] = []
        self._stretches: list[_Stretch] = []

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, words: npt.NDArray[np.uint64], batch: Batch) -> None:
        """Add rows with their order words; few at a time are gathered first."""
        self._waiting.append({"": words, **batch})
        if sum(map(_length, self._waiting)) >= SPILL_ROWS:
            self._flush()

    def _flush(self) -> None:
        batch = _joined(self._waiting)
        self._waiting = []
        high = batch[""][:, 1]
        bucket = (high >> np.uint64(64 - self._bits) if self._bits else np.zeros_like(high)).astype(np.uint16)
        order = np.argsort(bucket, kind="stable")
        edges = np.searchsorted(bucket[order], np.arange(self.buckets + 1))
        coded = {name: column for name, column in batch.items() if isinstance(column, np.ndarray)}
        # One record per row: a bucket is then a single stretch, however many columns there are.
        records = np.empty(
            len(order), [(str(i), column.dtype, column.shape[1:]) for i, column in enumerate(coded.values())]
        )
        for i, column in enumerate(coded.values()):
            records[str(i)] = column
        start = self._append(_reordered(records, order).view(np.uint8).data)
        copied = {name: column.take(pa.array(order)) for name, column in batch.items() if name not in coded}
        parts = [self._append_arrow(copied, a, b) for a, b in pairwise(edges)] if copied else []
        self._stretches.append(_Stretch(start, edges, list(coded), records.dtype, parts))

    def read(self, bucket: int) -> Batch:
        """Return a bucket's rows, in the order of their words."""
        if self._waiting:
            self._flush()
        if not self._stretches:
            return {}
        names, dtype = self._stretches[0].names, self._stretches[0].dtype
        records = np.frombuffer(b"".join(self._fetch(*s.place(bucket)) for s in self._stretches), dtype)
        order = rank(records["0"])
        records = _reordered(records, order)
        batch: Batch = {name: np.ascontiguousarray(records[str(i)]) for i, name in enumerate(names) if name}
        if self._stretches[0].parts:
            copied = pa.concat_tables(_from_ipc(self._fetch(*s.parts[bucket])) for s in self._stretches)
            copied = copied.unify_dictionaries().combine_chunks()
            batch.update((name, copied.column(name).take(pa.array(order))) for name in copied.column_names)
        return batch

    def _append_arrow(self, columns: Mapping[str, pa.Array], start: int, stop: int) -> tuple[int, int]:
        sink = pa.BufferOutputStream()
        batch = pa.table({name: column[start:stop] for name, column in columns.items()})
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_table(batch)
        raw = sink.getvalue()
        return self._append(memoryview(raw).cast("B")), raw.size

    def _append(self, raw: memoryview) -> int:
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


@dataclass(frozen=True)
class _Stretch:
    """Where the spill file holds a number of rows, parted into buckets."""

    start: int
    edges: npt.NDArray[np.intp]
    names: list[str]
    dtype: np.dtype[Any]
    parts: list[tuple[int, int]]
    """Offset and length of the columns passed through, by bucket."""

    def place(self, bucket: int) -> tuple[int, int]:
        """Return the offset and length of a bucket's records."""
        first, last = int(self.edges[bucket]), int(self.edges[bucket + 1])
        return self.start + first * self.dtype.itemsize, (last - first) * self.dtype.itemsize


def _from_ipc(raw: bytes) -> pa.Table:
    with pa.ipc.open_stream(raw) as stream:
        return stream.read_all()
