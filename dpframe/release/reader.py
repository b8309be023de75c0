"""The reader of releases: a released table of any kind, as codes in batches, and a check for changes.

Costly steps run once. A description is a text, and one text is read into one plan. A table in memory may
be altered in place between two questions, and only its content shows the change. So its digest, for which every value
is encoded, is cached under a SHA-256 of all bytes of its randomised columns. The hash takes a small part of the time
and is computed for every question. Equal content also keeps the fits of earlier questions. Columns of Python objects
have no bytes to hash, and are encoded each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dpframe.errors import (
    AlteredReleaseWarning,
    ColumnError,
    DpframeWarning,
    NotSanitizedError,
    ParameterError,
    did_you_mean,
    is_one_of,
    warn,
)
from dpframe.plan.columns import Column
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.plan import Plan
from dpframe.plan.threads import remember
from dpframe.release.info import ReleaseInfo
from dpframe.release.rows import Digest, sealed
from dpframe.spaces.field import is_open
from dpframe.tables.files import FileInput
from dpframe.tables.frames import Frame, PandasFrame, wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.table import Streamed, engine_of

TARGETS = ("table", "population")

ENCODED_BATCH_ROWS = 1 << 18

KNOWN_DIGESTS = 32
"""Tables whose digests are kept."""

_digests: dict[tuple[bytes, bytes], str | ColumnError] = {}
"""By plan and content, the latest last: the digest, or the error of an invalid value."""


SYNTHETIC = "synthetic"
"""Key of the description that synthetic rows carry in place of a release's."""


_infos: dict[str, ReleaseInfo] = {}
"""Descriptions of releases by their text, the latest last."""


def described(info: ReleaseInfo, unchanged: bool = False) -> str:
    """Return a release's description as text, and cache it, so that no question reads the text again.

    ``unchanged`` says that noise has changed no row.
    """
    if unchanged:
        remember(_unchanged_digests, info.row_digest, None, KNOWN_DIGESTS)
    text = info.to_json()
    remember(_infos, text, info, KNOWN_DIGESTS)
    return text


def read_info(text: str) -> ReleaseInfo:
    """Return the description of a release from its text.

    Raises `PlanError` for a text that is no description, and `NotSanitizedError` for the text of synthetic rows.
    """
    info = _infos.get(text)
    if info is not None:
        return info
    data = None
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        data = json.loads(text)
    if isinstance(data, dict) and SYNTHETIC in data:
        raise NotSanitizedError(
            "the table is synthetic and carries no plan: plain pandas is right for it on average; for intervals ask "
            "the release that it was drawn from"
        )
    return remember(_infos, text, ReleaseInfo.from_json(text), KNOWN_DIGESTS)


_DIGEST_BITS = 64
"""Bits of a digest of rows. Theory: if there are fewer tables than digests, two tables are often equal."""


def _table_bits(rows: int, plan: Plan) -> float:
    """Return a lower bound on log2 C(n + K − 1, n): n rows of K kinds make C(…) tables in any order."""
    kinds = math.fsum(math.log2(column.released.points) for column in plan.columns)
    other_kinds = 2.0 ** min(kinds, _DIGEST_BITS) - 1
    smaller_count = min(rows, other_kinds)
    return smaller_count * math.log2((rows + other_kinds) / smaller_count) if smaller_count else 0.0


_unchanged_digests: dict[str, None] = {}
"""Digests of releases that equal their originals, as for very large ε: a digest cannot distinguish them."""


def is_known_release(frame: Frame) -> bool:
    """Return whether a frame has exactly the rows of this process's latest release of such columns.

    The digest ignores the order of rows, so that it recognises a release after a merge, or from another format.
    """
    names = {*frame.names}
    candidates = (info for info in reversed(_infos.values()) if info.n == frame.n and names.issuperset(info.plan.names))
    # A digest takes a pass over all rows, so that only the latest candidate is compared.
    info = next(candidates, None)
    if info is None or info.row_digest in _unchanged_digests or _table_bits(frame.n, info.plan) < _DIGEST_BITS:
        return False
    with contextlib.suppress(ColumnError, ParameterError):
        return Source(frame, info.plan, quiet=True).digest() == info.row_digest
    return False


def warn_of_lost_tables(plan: Plan) -> None:
    """Warn that a plan without its release lacks the measured tables."""
    if plan.measures:
        warn(
            f"the table lost its release's {len(plan.measures)} measured tables, so that estimates use the noisy "
            "rows only; ask the release itself or its file",
            DpframeWarning,
        )


def _attach_hint(value: Any) -> str:
    """Return a hint for the argument if it is a `ReleaseInfo` instead of a plan."""
    return "; attach(table, info) gives a ReleaseInfo back" if isinstance(value, ReleaseInfo) else ""


class Source:
    """A released table: its plan, its rows, and the codes of its columns."""

    def __init__(self, table: Any, plan: Plan | None, *, quiet: bool = False) -> None:
        if plan is not None and not isinstance(plan, Plan):
            raise ParameterError(f"plan must be a Plan; Plan.read(path) reads one from a file{_attach_hint(plan)}")
        self._table = opened(table)
        self.info: ReleaseInfo | None = None
        if self._table.text is not None:
            self.info = read_info(self._table.text)
        if plan is not None:
            self.plan = plan
            if self.info is None and not quiet:
                warn_of_lost_tables(plan)
        elif self.info is not None:
            self.plan = self.info.plan
        else:
            raise NotSanitizedError(
                "the table carries no release plan; sanitise it first, or, if it was released, read its file with "
                "dpframe.read(path)"
            )
        self._table = self._table.typed(self.plan.released_spaces)
        # Under another plan the description's rows, digest and left-out columns say nothing about this table.
        release_info = self.info if self.info is not None and self.plan == self.info.plan else None
        self.rows = self.n = int(self._table.n)
        if self.plan.sample is not None and self.plan.n is not None:
            # The table may have had more rows than its plan: then the release has their number.
            self.rows = (None if release_info is None else release_info.rows) or self.plan.n
        self.missing = [name for name in self.plan.names if name not in self._table.names]
        if len(self.missing) == len(self.plan.names) and self.missing:
            raise NotSanitizedError("the table has none of the plan's columns; pass the plan it was released under")
        self._lost_columns = [
            name for name in self.missing if release_info is None or name not in release_info.left_out
        ]
        if release_info is not None and not quiet:
            if self.n != release_info.n:
                warn(
                    f"the table has {self.n:,} rows, the release {release_info.n:,}: a choice of rows by noisy values "
                    "biases estimates; estimate on the whole release, with by= or where=",
                    AlteredReleaseWarning,
                )
            elif self.n <= self._table.checked_rows and not self._lost_columns and not self.verify():
                warn("the table is not what was released, cell by cell; use the release itself", AlteredReleaseWarning)

    @property
    def tables(self) -> tuple[MeasuredTable, ...]:
        """The tables that were measured with these rows; none under another plan than the release's own."""
        return self.info.tables if self.info is not None and self.plan == self.info.plan else ()

    @property
    def weight(self) -> float:
        """Rows of the table that a released row represents."""
        return 1.0 if self.plan.sample is None else self.rows / self.plan.sample

    def sampling(self, target: str) -> float:
        """Return the share of the sampling variance in errors, or raise `ParameterError` for an unknown target.

        The share is 1 for the population and 0 for a table whose rows were all released. For a sample of m of N rows, a
        table's share is the finite-population correction, (N−m)/(N−1).
        """
        if not is_one_of(target, TARGETS):
            raise ParameterError('target must be "table" or "population"')
        if target == "population":
            return 1.0
        return 0.0 if self.plan.sample is None else (self.rows - self.plan.sample) / max(self.rows - 1, 1)

    def column(self, name: str) -> Column:
        """Return a randomised column of the table, or raise `ParameterError` with the kind of another column."""
        if not isinstance(name, str):
            raise ParameterError("a column is given by its name; several together are for joint([…]), or by= of a mean")
        if name in self.plan.names and name not in self.missing:
            return self.plan[name]
        if name in self.plan.passthrough:
            raise ParameterError(f"column {name!r} was passed through unprotected: plain pandas is exact for it")
        reason = "is not in the release"
        if name in self.plan.drop:
            reason = "was dropped"
        elif name in self.missing:
            reason = "was released, but is not in this table"
        columns = [name for name in self.plan.names if name not in self.missing]
        # Joined rows have the columns of another table under longer names.
        joined_name = next((column for column in columns if column.endswith(f".{name}")), None)
        suggestion = f"did you mean {joined_name!r}? " if joined_name else did_you_mean(name, columns)
        raise ParameterError(f"column {name!r} {reason}; {suggestion}randomised columns are {', '.join(columns)}")

    def drawn(
        self, codes: Mapping[str, npt.NDArray[Any]], fresh: int | None, text: str, nulls: Collection[str] = ()
    ) -> Any:
        """Return codes of original rows as a table of this kind, under another description.

        ``codes``: codes of the randomised columns. ``fresh``: the number of rows, if they are not the released rows:
        columns passed through and the index are left out. ``text``: the description. ``nulls``: columns that are null
        instead.
        """
        table = self._table
        if isinstance(table, FileInput):
            # Fresh rows need only the columns' types.
            fields = [pa.field(field.name, field.type, field.nullable) for field in table.fields(table.names)]
            table = wrap(table.read(table.names) if fresh is None else pa.schema(fields).empty_table())
        if isinstance(table, Streamed):
            raise ParameterError("synthetic rows are not drawn by an engine; write the release, and draw them from it")
        if fresh is None:
            return table.emptied(table.rebuild(self.plan, self.plan.spaces, codes, None, text), nulls)
        plan = self._plan_of_fresh_rows
        return table.emptied(table.rebuild(plan, plan.spaces, codes, np.arange(fresh), text), nulls)

    @cached_property
    def _plan_of_fresh_rows(self) -> Plan:
        """The plan without columns passed through and without index, which belong to released rows."""
        return replace(self.plan, passthrough=(), keeps_index=False)

    def as_frame(self, codes: Mapping[str, npt.NDArray[Any]], text: str | None = None) -> pd.DataFrame:
        """Return codes of columns as a DataFrame of these columns, with the release's dtypes."""
        names = [name for name in self._table.names if name in codes]
        if isinstance(self._table, PandasFrame):
            table: Frame = PandasFrame(self._table.frame[names].iloc[:0])
        else:
            fields = [pa.field(field.name, field.type, field.nullable) for field in self._table.fields(names)]
            table = wrap(pa.schema(fields).empty_table())
        plan, rows = self._plan_of_fresh_rows, len(next(iter(codes.values())))
        rebuilt_table = table.rebuild(plan, plan.spaces, codes, np.arange(rows), text or "")
        frame: pd.DataFrame = rebuilt_table if isinstance(rebuilt_table, pd.DataFrame) else rebuilt_table.to_pandas()
        # An index named "shuffled" makes a later release warn that the table is a release already.
        frame.index.name = None
        frame.attrs = frame.attrs if text else {}
        return frame

    def drawn_batches(
        self,
        draw: Callable[[dict[str, npt.NDArray[Any]]], Mapping[str, npt.NDArray[Any]]],
        text: str,
        rows: int,
        nulls: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        """Yield the sampled rows for each released row of a file, as Arrow tables with the columns passed through."""
        assert isinstance(self._table, FileInput)
        columns = [column for column in self.plan.columns if column.name not in self.missing]
        names = [name for name in self._table.names if name in {*self.plan.names, *self.plan.passthrough}]
        fields = {field.name: field.type for field in self._table.fields(names)}
        for batch in self._table.batches(names, rows, names):
            codes = {column.name: column.released.encode(batch[column.name]) for column in columns}
            arrays = [batch[name].cast(fields[name]) for name in names]
            frame = wrap(pa.table(arrays, names=names))
            table: pa.Table = frame.emptied(frame.rebuild(self.plan, self.plan.spaces, draw(codes), None, text), nulls)
            yield table

    def zone(self, name: str) -> str | None:
        """Return the time zone of a column, if its type has one."""
        return getattr(self._table.fields([name])[0].type, "tz", None)

    def codes(self, names: Sequence[str]) -> Iterator[dict[str, npt.NDArray[np.unsignedinteger]]]:
        """Yield the released codes of columns, in batches."""
        try:
            yield from self._encode_batches([self.column(name) for name in names])
        except ColumnError as error:
            raise _to_release_error(error) from None

    def _encode_batches(self, columns: Sequence[Column]) -> Iterator[dict[str, npt.NDArray[np.unsignedinteger]]]:
        """Yield the codes of columns, or raise `ColumnError` with the position of a value that is no code."""
        if not isinstance(self._table, Streamed):
            yield {c.name: self._table.encode(c.name, c.released, "error") for c in columns}
            return
        yield from self._table.coded({c.name: c.released for c in columns}, ENCODED_BATCH_ROWS)

    def verify(self) -> bool:
        """Return whether the randomised columns equal the released ones, by count and digest.

        Raises `NotSanitizedError` if the table carries no digest to compare with.
        """
        if self.info is None:
            raise NotSanitizedError("the table carries no digest; only a release with its metadata can be checked")
        return not self._lost_columns and self.n == self.info.n and self.row_failure() is None

    def row_failure(self) -> str | None:
        """Return the difference between the rows and the released rows as text; None if they are equal."""
        try:
            is_unchanged = self.info is not None and self._digest() == self.info.row_digest
        except ColumnError as error:
            return str(error)
        return (
            None
            if is_unchanged
            else "the rows are not those that were released under this plan: their digest is another"
        )

    def description(self) -> ReleaseInfo | None:
        """Return the table's description; columns of the release that the table lacks become ``left_out``.

        The new digest lets later readers check the remaining columns. Equality with the release cannot be checked
        without the missing columns.
        """
        info = self.info
        # A new digest would make a selection of rows pass for the whole release.
        if info is None or self.n != info.n:
            return info
        present_columns = {*self._table.names, *info.left_out}
        missing_columns = [name for name in (*info.plan.names, *info.plan.passthrough) if name not in present_columns]
        if not missing_columns:
            return info
        rows = self._digest()
        digest = rows + sealed(rows, info.tables) if info.tables else rows
        return replace(info, digest=digest, left_out=(*info.left_out, *missing_columns))

    def digest(self) -> str:
        """Return the digest of the current randomised columns; empty if a column is missing."""
        if self.missing:
            return ""
        try:
            return self._digest()
        except ColumnError as error:
            raise _to_release_error(error) from None

    def _digest(self) -> str:
        """Return the digest, or raise `ColumnError`; digests of known content come from a cache."""
        names = [name for name in self.plan.names if name not in self.missing]
        if self.content is None:
            return self._compute_digest(names)
        key = self.plan.digest, self.content
        result = _digests.get(key)
        if result is None:
            try:
                result = self._compute_digest(names)
            except ColumnError as error:
                # A traceback would keep the table alive in the cache.
                result = error.with_traceback(None)
            remember(_digests, key, result, KNOWN_DIGESTS)
        if isinstance(result, ColumnError):
            # A new object: Python adds a traceback, and so the table, to every error that it raises.
            raise ColumnError(result.rule, column=result.column, row=result.row)
        return result

    @cached_property
    def content(self) -> bytes | None:
        """A hash of the randomised columns' content; None for streamed tables and columns of Python objects."""
        names = [name for name in self.plan.names if name not in self.missing]
        return None if isinstance(self._table, Streamed) else _hash_content(self._table, names)

    def _compute_digest(self, names: Sequence[str]) -> str:
        digest = Digest(self.plan, self.missing)
        for codes in self._encode_batches([self.plan[name] for name in names]):
            digest.update(codes)
        return digest.hexdigest()


def opened(table: Any) -> Frame | Streamed:
    """Return a released table for estimates: a frame, files, or a table of an engine."""
    if isinstance(table, Streamed | Frame):
        return table
    engine = engine_of(table)
    if engine is not None:
        stream: Streamed = engine.open_release(table)
        return stream
    return open_input(table) if isinstance(table, str | Path) else wrap(table)


def linked_files(path: Any) -> dict[str, Path]:
    """Return the files of a folder of tables that were released together, by table; none for anything else."""
    files: list[Path] = []
    # A name that no file can have is refused when a file is opened.
    with contextlib.suppress(OSError, ValueError):
        if isinstance(path, str | Path) and Path(path).is_dir():
            files = sorted(Path(path).glob("*.parquet"))
    text = open_input(files[0]).text if files else None
    together = None if text is None else read_info(text).together
    # The files of one of the tables, in a folder of its own, are not tables.
    if together is None or files[0].stem not in together.tables:
        return {}
    return {file.stem: file for file in files}


def _to_release_error(error: ColumnError) -> ColumnError:
    rule = f"is not what was released ({error.rule}); estimate on the release itself"
    return ColumnError(rule, column=error.column)


def _hash_content(table: Frame, names: Sequence[str]) -> bytes | None:
    """Return a hash of the content of columns; None if a column has Python objects."""
    content = hashlib.sha256()
    for field in table.fields(names):
        if pa.types.is_null(field.type):
            return None
        content.update(repr(field).encode())
        try:
            array = table.array(field.name)
        except ColumnError:
            return None
        if is_open(field.type) and not pa.types.is_dictionary(array.type):
            return None
        _add_bytes(array, content)
    return content.digest()


def _add_bytes(array: pa.Array, content: Any) -> None:
    """Add an array's shape and buffers to a hash; values outside a slice are included, which is harmless."""
    content.update(repr((array.type, len(array), array.offset)).encode())
    for buffer in array.buffers():
        # Sizes keep buffers apart, and distinguish a missing validity bitmap from an empty one.
        content.update(b"\0" if buffer is None else buffer.size.to_bytes(8, "little"))
        if buffer is not None:
            content.update(buffer)
    if pa.types.is_dictionary(array.type):
        _add_bytes(array.dictionary, content)
