"""Files in: one or more of one schema, read as one table in batches; each format is a subclass."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, ClassVar, Self, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError, FileError, ParameterError, did_you_mean, name_list
from dpframe.noise.keystream import framed
from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.tables.batches import RowsWriter, Writer
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.persons import row_counts
from dpframe.tables.table import Codes, Counters, Streamed, check_types, located
from dpframe.tables.types import coded_field
from dpframe.tables.unification import LabelledSchema, is_exact, unify_schemas
from dpframe.totals.counts import count_batches

READ_BATCH_ROWS = 1 << 17
"""Default number of rows that are read at a time."""


SIDECAR = ".dpframe.json"
"""Ending of a description's file, after the release's name, for formats without metadata."""


def sidecar(path: Path) -> Path:
    """Return the path of the description file of a release whose format has no metadata."""
    return path.with_name(path.name + SIDECAR)


_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


State = tuple[int, ...]
"""Identity, size and times of a file in the file system; they change when its content changes."""


def state(path: Path) -> State:
    """Return the identity, size and times of the file at a path."""
    stat = attempt(path, "cannot be read", path.stat)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


File = tuple[Path, dict[str, str | None]]
"""A file and its Hive partition keys."""


def shown(path: Path, ending: str = "") -> str:
    """Return a path for a message: the names of partition folders hold values, which are masked.

    The last part is a file's name if it ends so, else it may be a folder, too.
    """
    *folders, name = path.parts or ("",)
    folders, names = (folders, [name]) if name.endswith(ending) else ([*folders, name], [])
    return str(Path(*(re.sub(r"=.*", "=…", part, flags=re.DOTALL) for part in folders), *names))


T = TypeVar("T")


def attempt(path: Path, rule: str, work: Callable[[], T]) -> T:
    """Return the result of work with a file, or raise `FileError` with a rule in one line.

    Not in the ``except`` block: the error there may quote values or partition folders, and would be kept.
    """
    with contextlib.suppress(pa.ArrowException, OSError, ValueError):
        return work()
    raise FileError(f"{shown(path)} {rule}")


def paths_of(source: str | Path) -> list[File]:
    """Return the files of a source in order, each with its Hive partition keys; `FileError` for invalid paths."""
    try:
        return _find_files(source)
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise FileError(f"{shown(Path(source))} cannot be opened: {error.strerror}") from None


def _explain_absence(source: str | Path, form: str, ending: str) -> str:
    """Return the reason why a source has no files: no such path, no match, or an empty folder."""
    label = shown(Path(source), ending)
    if Path(source).is_dir():
        return f"{label} is a folder that holds no {form} file"
    return f"no {form} file matches {label}" if glob.has_magic(str(source)) else f"{label} does not exist"


def _find_files(source: str | Path) -> list[File]:
    root = Path(source)
    if root.is_dir():
        return _list_files(root, root.rglob("*"))
    # A name may contain brackets, which `glob` would read as a pattern: an existing file comes first.
    if root.exists():
        return [(root, {})]
    fixed_parts = itertools.takewhile(lambda part: not glob.has_magic(part), root.parts)
    # Path.glob takes no absolute pattern.
    return _list_files(Path(*fixed_parts), map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207


def _list_files(root: Path, paths: Iterable[Path]) -> list[File]:
    """Return files under a folder in order, without names that mark files as no part of a table."""
    inner_paths = [(path, path.relative_to(root)) for path in sorted(set(paths)) if path.is_file()]
    return [
        (path, _partition_keys(inner))
        for path, inner in inner_paths
        if not any(part.startswith(("_", ".")) for part in inner.parts) and not inner.name.endswith(SIDECAR)
    ]


def _partition_keys(path: Path) -> dict[str, str | None]:
    pairs = (part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    return {unquote(key): None if value == _NULL_PARTITION else unquote(value) for key, value in pairs}


def check_distinct(names: Sequence[str]) -> None:
    """Raise `ParameterError` if a name of a column appears twice."""
    duplicate_name = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if duplicate_name is not None:
        raise ParameterError(f"column name {duplicate_name!r} appears twice; names must be unique")


def digest_files(files: Iterable[str | os.PathLike[str]]) -> bytes:
    """Return SHA-256 over names, sizes and contents of files, in the order in which they are read.

    The names are whole paths: folders may hold partition keys, which are data. It is only for the key file;
    the digest of an input confirms a right guess of the input.
    """
    files_hash = hashlib.sha256()
    for path in map(Path, files):
        size, content = _digest_file(path)
        files_hash.update(framed((os.fsencode(path.absolute()), str(size).encode(), content)))
    return files_hash.digest()


def _digest_file(path: Path) -> tuple[int, bytes]:
    """Return a file's size and SHA-256."""
    try:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
            return file.tell(), content
    except OSError as error:
        reason = error.strerror or "input/output error"
    raise FileError(f"{shown(path)} cannot be read: {reason}")  # not in the block, as in `attempt`


@dataclass(frozen=True)
class _FileFacts:
    """Public facts of files that are read as one table."""

    schemas: Mapping[Path, pa.Schema]
    typical_files: Sequence[Path]
    """The first file of each schema, in order."""
    text: str | None
    """The release description of every file."""
    n: int
    """Number of rows of all files."""


@dataclass(frozen=True)
class FileInput(Streamed):
    """One or more files of one schema, read as a table; made by ``open`` of a format's class.

    Hive partition keys of a directory (``region=north/part-0.parquet``) are always columns of text;
    ``__HIVE_DEFAULT_PARTITION__`` is null.
    """

    form: ClassVar[str]
    """The name of the format."""
    ending: ClassVar[str]
    """Ending of the names of its files."""
    held: ClassVar[bool] = False
    checked_rows: ClassVar[int] = 1 << 22

    source: str
    files: tuple[File, ...]
    schema: pa.Schema
    n: int
    text: str | None
    pandas_types: dict[str, str]
    indices: tuple[str, ...] = ()
    """Columns in which pandas stored an index that has no name: they are not read."""
    counts: npt.NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)
    """How often each row is read; None for every row once."""
    alone: bool = field(default=False, repr=False, compare=False)
    """Whether Arrow reads in one thread; otherwise Arrow uses as many threads as there are processors."""

    states: Mapping[Path, State] = field(default_factory=dict, repr=False, compare=False)
    """State of every file when it was opened."""
    file_schemas: Mapping[Path, pa.Schema] = field(default_factory=dict, repr=False, compare=False)
    """Schema of each file that has other columns or types than the table, by absolute path."""

    @classmethod
    def open(cls, source: str | Path) -> Self:
        """Read the schema, description and number of rows of every file.

        Columns and types that differ are unified as Arrow's datasets do; see `unify_schemas`.

        Raises `FileError` if nothing is there, a file is not of the format, or the files differ in partition keys,
        release metadata or types that do not unify; `ColumnError` if a partition key is also a column of the files;
        `ParameterError` if a column name appears twice or is empty.
        """
        if not isinstance(source, str | os.PathLike):
            raise ParameterError(f"a {cls.form} source is a path: of a file, a directory or a quoted glob")
        files = tuple(paths_of(source))
        if not files:
            raise FileError(_explain_absence(source, cls.form, cls.ending))
        # Before the first read, so that `check_unchanged` notices a change between schema and rows.
        states = {path: state(path) for path, _ in files}
        facts = cls._describe_files(files)
        schema = unify_schemas([LabelledSchema(shown(path), facts.schemas[path]) for path in facts.typical_files])
        file_schemas = {path.absolute(): s for path, s in facts.schemas.items() if not s.equals(schema)}
        types: dict[str, str] = {}
        # The pandas dtype of a column is that of the first file with the column's type.
        for file_schema in map(facts.schemas.__getitem__, reversed(facts.typical_files)):
            fields = [f for f in file_schema if f.type == schema.field(f.name).type]
            types |= cls._pandas_types(pa.schema(fields, file_schema.metadata))
        indices = tuple(dict.fromkeys(name for s in facts.schemas.values() for name in cls._indices(s)))
        for name in files[0][1]:
            if name in schema.names:
                raise ColumnError("is both a partition key and a column of the files", column=name)
            # Always text: a type chosen by the values would reveal them.
            schema = schema.append(pa.field(name, pa.string()))
        for name in indices:
            schema = schema.remove(schema.get_field_index(name))
        if "" in schema.names:
            raise ParameterError("a column has an empty name; rename it")
        return cls(
            str(source), files, schema, facts.n, facts.text, types, indices, states=states, file_schemas=file_schemas
        )

    @classmethod
    def _describe_files(cls, files: Sequence[File]) -> _FileFacts:
        """Return the public facts of files; raise `FileError` if their partition keys or releases differ."""
        first_path, first_keys = files[0]
        schemas: dict[Path, pa.Schema] = {}
        texts: set[str | None] = set()
        typical_files: list[Path] = []
        rows = 0
        for path, keys in files:
            file_schema, text, file_rows = cls._describe_file(path)
            check_distinct(file_schema.names)
            texts.add(text)
            if set(keys) != set(first_keys):
                raise FileError(
                    f"{shown(path)} has other partition keys than {shown(first_path)}; convert them separately"
                )
            if len(texts) > 1:
                raise FileError(
                    f"{shown(path)} carries another release plan than {shown(first_path)}; read them separately"
                )
            typical_file = next((file for file in typical_files if schemas[file].equals(file_schema)), path)
            # Files of one schema share it: a folder may have many files.
            schemas[path] = file_schema if typical_file == path else schemas[typical_file]
            typical_files += [path] * (typical_file == path)
            rows += file_rows
        return _FileFacts(schemas, typical_files, texts.pop(), rows)

    def check_copied(self, names: Collection[str]) -> None:
        """Raise `FileError` for a column whose values would change in the type that unifies the files.

        Noise covers a rounded or clipped value; a column that is copied, or identifies persons, has to be exact.
        """
        for path, schema in self.file_schemas.items():
            for name in names:
                if name in schema.names and not is_exact(schema.field(name).type, self.schema.field(name).type):
                    raise FileError(
                        f"{shown(path)} has {schema.field(name).type} in column {name!r}, which is copied as "
                        f"{self.schema.field(name).type}; convert the column there"
                    )

    def check_unchanged(self) -> None:
        """Raise `FileError` if a file has changed since it was opened.

        A job's key is bound to a digest of the files: the rows of others must not leave under it.
        """
        for path, opened_state in self.states.items():
            if state(path) != opened_state:
                raise FileError(
                    f"{shown(path)} changed while it was read, and nothing was written; put it back and repeat the "
                    "release"
                )

    @staticmethod
    @abstractmethod
    def _describe_file(path: Path) -> tuple[pa.Schema, str | None, int]:
        """Return a file's schema, the release description it carries, and its number of rows."""

    @classmethod
    def check_field(cls, field: pa.Field) -> None:
        """Raise `ColumnError` for a column that files of the format cannot hold."""

    @staticmethod
    @abstractmethod
    def writer(file: IO[bytes], schema: pa.Schema, compression: str) -> Writer:
        """Begin to write to an open file."""

    @classmethod
    def form_writer(cls, file: IO[bytes], form: ParquetForm, compression: str) -> Writer:
        """Begin to write decoded tables of a release to an open file."""
        return cls.writer(file, form.schema, compression)

    @classmethod
    @contextlib.contextmanager
    def rows_writer(cls, file: IO[bytes], form: ParquetForm, compression: str) -> Iterator[RowsWriter]:
        """Begin to write released codes to an open file, in the form of their release."""
        with cls.form_writer(file, form, compression) as writer:
            yield RowsWriter(lambda group: writer.write(form.decoded(group), form.group_rows), writer.describe)

    @staticmethod
    def _pandas_types(schema: pa.Schema) -> dict[str, str]:
        """Return the pandas extension dtypes that the columns of a file had."""
        return {}

    @staticmethod
    def _indices(schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns in which pandas stored an index that has no name."""
        return ()

    def digest(self) -> bytes:
        """Return a digest of the input, by which an interrupted job recognises the input."""
        return digest_files([path for path, _ in self.files])

    @property
    def keyed_digest(self) -> Callable[[bytes], bytes] | None:
        """Function that computes a keyed digest, for an input without named files."""
        return None

    def typed(self, spaces: Mapping[str, Space], inferred: Collection[str] = ()) -> Self:
        """Return the table with the types of the columns' spaces, if the files have no types.

        ``spaces``: the space of each column that is coded. ``inferred``: columns with privately inferred spaces: values
        of another type are null there, and refused elsewhere.
        """
        return self

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    @property
    def partitions(self) -> list[str]:
        """Hive partition keys, by which rows are grouped."""
        return [name for _, keys in self.files[:1] for name in keys]

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return the public fields of columns."""
        return [coded_field(f.name, f.type, f.nullable) for f in map(self.schema.field, names)]

    def batches(
        self, names: Sequence[str], rows: int = READ_BATCH_ROWS, plain: Collection[str] = ()
    ) -> Iterator[dict[str, pa.Array]]:
        """Yield up to ``rows`` rows at a time, repeated by their counts; no batch spans two files.

        Strings, and those in lists, come as dictionaries, except the columns in ``plain``.
        """
        first_row = 0
        for batch in self._read_batches(names, rows, plain):
            if self.counts is None:
                yield batch
                continue
            count = len(next(iter(batch.values()), ()))
            row_places = np.repeat(np.arange(count), self.counts[first_row : first_row + count])
            for start in range(0, len(row_places), rows):
                places = pa.array(row_places[start : start + rows])
                yield {name: column.take(places) for name, column in batch.items()}
            first_row += count

    @abstractmethod
    def _read_batches(
        self, names: Sequence[str], rows: int, plain: Collection[str]
    ) -> Iterator[dict[str, pa.Array]]: ...

    def count(self, counters: Counters) -> None:
        """Add all rows of columns to a counter for each."""
        count_batches(self.batches, counters)

    def person_counts(self, person: str, rows: int, key: bytes) -> npt.NDArray[np.uint8]:
        """Return how often each row is repeated, so that every person has ``rows`` rows."""
        return row_counts(partial(self.arrays, person), self.n, rows, key)

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table that repeats each row by its count, without the column of persons."""
        schema = self.schema.remove(self.schema.get_field_index(person))
        return replace(self, schema=schema, n=int(counts.sum(dtype=np.int64)), counts=counts)

    def without(self, names: Sequence[str]) -> Self:
        """Return the table without the columns of these names.

        Raises `ParameterError` for a name that it has not, or if no column is left.
        """
        for name in names:
            if name not in self.names:
                raise ParameterError(
                    f"drop names {name!r}, which is not a column; {did_you_mean(name, self.names)}columns are "
                    f"{name_list(self.names)}"
                )
        if not self.names:
            raise ParameterError(f"{self.source} has no columns, so there is nothing to release; name another file")
        if set(names) >= set(self.names):
            raise ParameterError("drop names every column, so that nothing is left; keep one at least")
        return replace(self, schema=pa.schema([field for field in self.schema if field.name not in names]))

    def arrays(self, name: str) -> Iterator[pa.Array]:
        """Yield one column, in batches."""
        for batch in self.batches([name], 1 << 18):
            yield batch[name]

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Read every value and raise for invalid ones; return no codes, see `Table.codes`.

        Rows that were not chosen are read as well: an error reveals nothing of the choice.
        """
        table = self.typed(spaces, inferred)
        check_types(table.fields(list(spaces)), spaces)
        first_row = 0
        for batch in table._read_batches(list(spaces), READ_BATCH_ROWS, ()) if spaces else ():
            for name, space in spaces.items():
                try:
                    is_inferred = name in inferred
                    space.encode(batch[name], nulls="impute" if is_inferred else nulls, tolerant=is_inferred)
                except ColumnError as error:
                    raise located(error, name, first_row) from None
            first_row += len(next(iter(batch.values()), ()))
        return {}

    def coded(self, spaces: Mapping[str, Space], rows: int) -> Iterator[Codes]:
        """Yield the codes of columns, in batches; see `Streamed.coded`."""
        first_row = 0
        for batch in self.batches(list(spaces), rows):
            codes = {}
            for name, space in spaces.items():
                try:
                    codes[name] = space.encode(batch[name])
                except ColumnError as error:
                    raise located(error, name, first_row) from None
            yield codes
            first_row += len(next(iter(batch.values()), ()))

    @abstractmethod
    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns as one table."""


def repeated(value: str | None, count: int) -> pa.Array:
    """Return a column of one value, as a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))
