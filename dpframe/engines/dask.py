"""Releases of Dask frames, and of Parquet files by Dask's workers: lazy, and the same however often they are computed.

Importing this gives Dask frames a ``.dp``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd

from dpframe.api.accessor import DpAccessor
from dpframe.api.options import as_method_of
from dpframe.api.public import Plan
from dpframe.engines.chosen import Chosen, ChosenReader
from dpframe.engines.forms import OutputForm, PandasForm, ReadForm
from dpframe.engines.job import PreparedRelease
from dpframe.engines.readers import (
    PandasReader,
    ParquetReader,
    Part,
    id_words,
    parquet_files,
    parquet_parts,
    without_rows,
)
from dpframe.engines.releases import EngineRelease
from dpframe.engines.shipped import shipped
from dpframe.engines.table import EngineTable, Outcome, check_id, check_unique
from dpframe.engines.verbs import Verbs
from dpframe.engines.work import Pieces
from dpframe.errors import DpframeError, ParameterError
from dpframe.tables.frames import PandasFrame, wrap
from dpframe.tables.info import ReleaseInfo
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import ParquetInput
from dpframe.tables.persons import Counts

try:
    import dask
    import dask.dataframe as dd
    from dask.dataframe.extensions import register_dataframe_accessor
    from dask.delayed import Delayed
except ImportError:
    raise ImportError("dask is not installed; pip install 'dpframe[dask]'") from None

T = TypeVar("T")

Sent = list[bytes | DpframeError]
"""What a part sends to a bucket."""

WAVE = 64
"""Parts whose results are held at a time."""


@dataclass(frozen=True)
class DaskTable(EngineTable):
    """A Dask frame, or Parquet files, as parts that are read by tasks."""

    parts: Sequence[tuple[Any, int]] = field(repr=False)
    """What each task is given: a partition or a row group, and the place of its first row."""
    files: ParquetInput | None = None

    def run(self, task: Callable[..., T], inputs: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Do a task with each of some inputs, some at a time: what comes of it may be large."""
        tasks = _tasks(task, inputs, _name("run"))
        for start in range(0, len(tasks), WAVE):
            yield from dask.compute(*tasks[start : start + WAVE])

    def each(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Do a task with every part, some parts at a time: what comes of it may be large."""
        return self.run(Part(self.reader, Outcome(task)), self.parts)

    def of_persons(self, person: str, counts: Counts) -> DaskTable:
        """Return a table with each row as often as is said; every task gets only its own rows."""
        whole = super().of_persons(person, counts)
        ends = [*(first for _, first in self.parts[1:]), len(counts)]
        owned = [counts[first:end] for (_, first), end in zip(self.parts, ends, strict=True)]
        taken = [0, *accumulate(int(part.sum(dtype=np.int64)) for part in owned)]
        parts = [
            ((part, Chosen.of(own, first, before)), first)
            for (part, first), own, before in zip(self.parts, owned, taken, strict=False)
        ]
        return replace(whole, parts=parts, reader=ChosenReader(self.reader, person))

    def form(self, plan: Plan) -> OutputForm:
        """Return the form in which a release leaves."""
        if self.files is not None:
            return ReadForm(ParquetForm(plan, self.files.schema, self.files.pandas_types))
        assert isinstance(self.template, PandasFrame)
        return PandasForm(plan, self.template.frame)

    def buckets(self, ready: PreparedRelease, gather: Callable[..., Any]) -> list[Delayed]:
        """Return a task for each bucket, which is given what was scattered to it."""
        name = _name("scatter")
        sent = _tasks(Part(self.reader, DaskScatter(ready)), self.parts, name)
        work = dask.delayed(shipped(gather), pure=False)
        return [
            work(bucket.number, [part[bucket.number] for part in sent], dask_key_name=f"{name}-gather-{bucket.number}")
            for bucket in ready.buckets
        ]


def _tasks(task: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], name: str) -> list[Delayed]:
    """Return a task for each input."""
    work = dask.delayed(shipped(task), pure=False)
    return [work(*given, dask_key_name=f"{name}-{number}") for number, given in enumerate(inputs)]


def _name(use: str) -> str:
    # Random, not a digest of what the task carries: that is the key.
    return f"dpframe-{use}-{secrets.token_hex(8)}"


@dataclass(frozen=True)
class DaskScatter:
    """Gives the rows of a part as one list of sealed bytes for each bucket."""

    ready: PreparedRelease

    def __call__(self, pieces: Pieces) -> list[Sent]:
        """Return the lists, or an error in every one: Dask logs the arguments of a task that raises, here raw rows."""
        lists: list[Sent] = [[] for _ in self.ready.buckets]
        try:
            for bucket, content in self.ready.scattered(pieces):
                lists[bucket].append(content)
        except DpframeError as error:
            return [[error.with_traceback(None)] for _ in lists]
        return lists


def arrived(sent: Iterable[Sent]) -> list[bytes]:
    """Return what parts sent to a bucket, or raise the error of one of them."""
    content: list[bytes] = []
    for part in chain.from_iterable(sent):
        if isinstance(part, DpframeError):
            raise part
        content.append(part)
    return content


@dataclass(frozen=True)
class DaskGather:
    """Gives a bucket's rows, from what all parts sent to it."""

    ready: PreparedRelease

    def __call__(self, number: int, sent: list[Sent]) -> pd.DataFrame:
        """Return the frame."""
        frame: pd.DataFrame = self.ready.gathered(number, arrived(sent))
        return frame


def open_table(source: Any, id: str | None = None) -> DaskTable:
    """Return a Dask frame or Parquet files as a table; the rows of frames are counted.

    Raises
    ------
    ParameterError
        If it is neither, or there is no such id column.
    ColumnError
        If ids are null, occur twice, or are of a type that cannot be distinguished.
    """
    if isinstance(source, str | Path):
        if id is not None:
            raise ParameterError("id is for frames: rows of files are known by file and place; leave it out")
        files = parquet_files(source)
        parts, folders = parquet_parts(files), tuple(files.partitions)
        reader = ParquetReader(files, files.names)
        return DaskTable(without_rows(files), files.n, reader, parts, files, by_id=False, partitions=folders)
    if not isinstance(source, dd.DataFrame):
        raise ParameterError(f"{type(source).__name__} is no Dask DataFrame, and no path of Parquet files; pass one")
    names = list(source.columns)
    template = wrap(source._meta)
    if id is not None:
        check_id(template, id)
        names.remove(id)
        ids = source[id]
        # Not the ids themselves: those that are no UTF-8 end a shuffle with an error that quotes them.
        words = ids.map_partitions(shipped(IdWords(id, secrets.token_bytes(32))), meta=IdWords.META)
        sizes = words.groupby(list(IdWords.META)).size(split_out=ids.npartitions)
        missing, most = dask.compute(ids.isna().sum(), sizes.max())
        check_unique(bool(missing), int(most), id)
        template = wrap(source._meta[names])
    counts = source.map_partitions(len, meta=(None, "int64")).compute().tolist()
    firsts = [0, *accumulate(counts)]
    parts = list(zip(source.to_delayed(), firsts, strict=False))
    return DaskTable(template, firsts[-1], PandasReader(names, id), parts, by_id=id is not None)


@dataclass(frozen=True)
class IdWords:
    """Gives hashes of ids that are not null."""

    META: ClassVar[pd.DataFrame] = pd.DataFrame({"low": np.zeros(0, np.uint64), "high": np.zeros(0, np.uint64)})

    name: str
    key: bytes = field(repr=False)

    def __call__(self, ids: pd.Series[Any]) -> pd.DataFrame:
        """Return a frame of two words for each."""
        words = id_words(PandasFrame(ids.to_frame(self.name)).array(self.name).drop_null(), self.name, self.key)
        return pd.DataFrame(words, columns=list(self.META))


def _lazy(table: DaskTable, ready: PreparedRelease) -> Any:
    """Return the release as a Dask frame."""
    divisions = None
    if all(bucket.rows for bucket in ready.buckets):
        divisions = (*(bucket.first for bucket in ready.buckets), ready.info.n - 1)
    parts = table.buckets(ready, DaskGather(ready))
    meta = ready.work.form.table({}, 0, ready.text)
    return dd.from_delayed(parts, meta=meta, divisions=divisions, verify_meta=False)


_verbs = Verbs(open_table, _lazy, open_table)
plan, sanitize = _verbs.plan, _verbs.sanitize


def opened(frame: Any) -> EngineRelease:
    """Return a Dask frame as a release that estimates read, which counts its rows."""
    return EngineRelease.of(open_table(frame))


@register_dataframe_accessor("dp")
class DaskAccessor(DpAccessor):
    """Differential privacy for a Dask DataFrame: ``frame.dp.sanitize(plan)``, then ``safe.dp.mean("age")``.

    On a raw frame: `plan` and `sanitize`. On a release: all methods of `Estimates`, whose counts are taken by workers.
    Every estimate computes the frame anew: persist it, or write the release and read that.
    """

    @property
    def _meta(self) -> pd.DataFrame:
        frame: Any = self._frame
        meta: pd.DataFrame = frame._meta
        return meta

    @as_method_of(plan, "source")
    def plan(self, epsilon: float | None = None, delta: float | None = None, **options: Any) -> Plan:
        """Plan how the frame would be sanitised."""
        return plan(self._frame, epsilon, delta, **options)

    @as_method_of(sanitize, "source")
    def sanitize(self, epsilon: float | None = None, delta: float | None = None, **options: Any) -> Any:
        """Randomise every row of the frame, under a ready plan or a promise."""
        return sanitize(self._frame, epsilon=epsilon, delta=delta, **options)

    @property
    def release(self) -> ReleaseInfo:
        """What the frame says about its own release; `NotSanitizedError` if it is not one."""
        return DpAccessor(self._meta).release

    def _repr_lines(self) -> list[str]:
        first, *rest = DpAccessor(self._meta)._repr_lines()
        # Rows that are not computed yet cannot be counted.
        return [first.replace("<DataFrame.dp: not sanitized, 0 rows", "<Dask DataFrame.dp: not sanitized"), *rest]
