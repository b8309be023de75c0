"""Releases of Dask frames, and of Parquet files by Dask's workers: lazy, and equal each time they are computed.

The import of this module gives Dask frames a ``.dp``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd

from dpframe.api.accessor import ReleaseAccessor
from dpframe.api.public import Plan
from dpframe.api.raw_accessor import RawAccessor
from dpframe.engines.chosen import RepeatReader, RowCounts
from dpframe.engines.forms import OutputForm, PandasForm, ReadForm
from dpframe.engines.job import PreparedRelease
from dpframe.engines.readers import (
    PandasReader,
    ParquetReader,
    PartTask,
    id_words,
    parquet_files,
    parquet_parts,
    to_empty_table,
)
from dpframe.engines.releases import EngineRelease
from dpframe.engines.shipped import pack_task
from dpframe.engines.table import EngineTable, Outcome, check_id, check_unique
from dpframe.engines.verbs import Verbs
from dpframe.engines.work import Pieces
from dpframe.errors import DpframeError, NotSanitizedError, ParameterError
from dpframe.plan.options import as_method_of
from dpframe.release.info import ReleaseInfo
from dpframe.report.overview import Overview, release_overview
from dpframe.tables.frames import PandasFrame, release_text, wrap
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import ParquetInput
from dpframe.tables.persons import Counts

try:
    import dask
    import dask.dataframe as dd
    from dask.dataframe.extensions import register_dataframe_accessor
    from dask.delayed import Delayed
except ImportError:
    raise ImportError("dask is not installed; pip install 'dask[dataframe]'") from None

T = TypeVar("T")

SentRows = list[bytes | DpframeError]
"""Sealed rows that a part sends to a bucket, or the error of the part."""

PARTS_AT_ONCE = 64
"""Parts whose results the driver has at a time (limit of memory)."""


@dataclass(frozen=True)
class DaskTable(EngineTable):
    """A Dask frame, or Parquet files, as parts that are read by tasks."""

    parts: Sequence[tuple[Any, int]] = field(repr=False)
    """Arguments of each task: a partition or a row group, and the position of its first row."""
    files: ParquetInput | None = None

    def run(self, task: Callable[..., T], inputs: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Yield the results of a task on each of some inputs."""
        tasks = _make_tasks(task, inputs, _random_name("run"))
        # In waves, as results may be large, and the driver merges them one by one.
        for start in range(0, len(tasks), PARTS_AT_ONCE):
            yield from dask.compute(*tasks[start : start + PARTS_AT_ONCE])

    def run_on_parts(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Yield the results of a task on every part."""
        return self.run(PartTask(self.reader, Outcome(task)), self.parts)

    def of_persons(self, person: str, counts: Counts) -> DaskTable:
        """Return a table that repeats each row by its count, without the column of persons."""
        # Each task carries only the counts of its own rows: all counts in every task would fill the scheduler.
        repeated_table = super().of_persons(person, counts)
        ends = [*(first for _, first in self.parts[1:]), len(counts)]
        part_counts = [counts[first:end] for (_, first), end in zip(self.parts, ends, strict=True)]
        rows_before = [0, *accumulate(int(part.sum(dtype=np.int64)) for part in part_counts)]
        parts = [
            ((part, RowCounts.of(counts_of_part, first, before)), first)
            for (part, first), counts_of_part, before in zip(self.parts, part_counts, rows_before, strict=False)
        ]
        return replace(repeated_table, parts=parts, reader=RepeatReader(self.reader, person))

    def form(self, plan: Plan) -> OutputForm:
        """Return the form of released rows."""
        if self.files is not None:
            return ReadForm(ParquetForm(plan, self.files.schema, self.files.pandas_types))
        assert isinstance(self.template, PandasFrame)
        return PandasForm(plan, self.template.frame)

    def buckets(self, ready: PreparedRelease, gather: Callable[..., Any]) -> list[Delayed]:
        """Return a task for each bucket, which collects the rows that all parts send to it."""
        name = _random_name("scatter")
        sent = _make_tasks(PartTask(self.reader, DaskScatter(ready)), self.parts, name)
        work = dask.delayed(pack_task(gather), pure=False)
        return [
            work(bucket.number, [part[bucket.number] for part in sent], dask_key_name=f"{name}-gather-{bucket.number}")
            for bucket in ready.buckets
        ]


def _make_tasks(task: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], name: str) -> list[Delayed]:
    """Return a task for each input."""
    work = dask.delayed(pack_task(task), pure=False)
    return [work(*arguments, dask_key_name=f"{name}-{number}") for number, arguments in enumerate(inputs)]


def _random_name(use: str) -> str:
    # Dask's own names are digests of the tasks, and so of the key that they carry.
    return f"dpframe-{use}-{secrets.token_hex(8)}"


@dataclass(frozen=True)
class DaskScatter:
    """Returns the rows of a part as one list of sealed bytes for each bucket."""

    ready: PreparedRelease

    def __call__(self, pieces: Pieces) -> list[SentRows]:
        """Return the lists, or an error in every list."""
        lists: list[SentRows] = [[] for _ in self.ready.buckets]
        try:
            for bucket, content in self.ready.scatter(pieces):
                lists[bucket].append(content)
        # Dask logs the arguments of a task that raises, here raw rows. A traceback refers to them, too.
        except DpframeError as error:
            return [[error.with_traceback(None)] for _ in lists]
        return lists


def collect_sent(sent: Iterable[SentRows]) -> list[bytes]:
    """Return the sealed rows that parts sent to a bucket, or raise the error of a part."""
    contents: list[bytes] = []
    for content in chain.from_iterable(sent):
        if isinstance(content, DpframeError):
            raise content
        contents.append(content)
    return contents


@dataclass(frozen=True)
class DaskGather:
    """Returns the released rows of a bucket from the sealed rows of all parts."""

    ready: PreparedRelease

    def __call__(self, number: int, sent: list[SentRows]) -> pd.DataFrame:
        """Return the frame."""
        frame: pd.DataFrame = self.ready.gather(number, collect_sent(sent))
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
        return DaskTable(to_empty_table(files), files.n, reader, parts, files, by_id=False, partitions=folders)
    if not isinstance(source, dd.DataFrame):
        raise ParameterError(f"{type(source).__name__} is no Dask DataFrame, and no path of Parquet files; pass one")
    names = list(source.columns)
    template = wrap(source._meta)
    if id is not None:
        check_id(template, id)
        names.remove(id)
        ids = source[id]
        # Hashes are compared, as an error of Dask's shuffle would quote ids that are no UTF-8.
        words = ids.map_partitions(pack_task(IdWords(id, secrets.token_bytes(32))), meta=IdWords.META)
        sizes = words.groupby(list(IdWords.META)).size(split_out=ids.npartitions)
        null_count, largest_size = dask.compute(ids.isna().sum(), sizes.max())
        check_unique(bool(null_count), int(largest_size), id)
        template = wrap(source._meta[names])
    counts = source.map_partitions(len, meta=(None, "int64")).compute().tolist()
    first_rows = [0, *accumulate(counts)]
    parts = list(zip(source.to_delayed(), first_rows, strict=False))
    return DaskTable(template, first_rows[-1], PandasReader(names, id), parts, by_id=id is not None)


@dataclass(frozen=True)
class IdWords:
    """Returns hashes of ids that are not null."""

    META: ClassVar[pd.DataFrame] = pd.DataFrame({"low": np.zeros(0, np.uint64), "high": np.zeros(0, np.uint64)})

    name: str
    key: bytes = field(repr=False)

    def __call__(self, ids: pd.Series[Any]) -> pd.DataFrame:
        """Return a frame of two words for each id."""
        words = id_words(PandasFrame(ids.to_frame(self.name)).array(self.name).drop_null(), self.name, self.key)
        return pd.DataFrame(words, columns=list(self.META))


def _make_frame(table: DaskTable, ready: PreparedRelease) -> Any:
    """Return the release as a Dask frame."""
    # Dask needs an index value in each partition, which an empty bucket has not.
    divisions = None
    if all(bucket.rows for bucket in ready.buckets):
        divisions = (*(bucket.first for bucket in ready.buckets), ready.info.n - 1)
    parts = table.buckets(ready, DaskGather(ready))
    meta = ready.work.form.table({}, 0, ready.text)
    return dd.from_delayed(parts, meta=meta, divisions=divisions, verify_meta=False)


_verbs = Verbs(open_table, _make_frame, open_table)
plan, sanitize = _verbs.plan, _verbs.sanitize


def open_release(frame: Any) -> EngineRelease:
    """Return a Dask frame as a release for estimates; its rows are counted."""
    return EngineRelease.of(open_table(frame))


class DaskReleaseAccessor(ReleaseAccessor):
    """Statistics of a release that is a Dask DataFrame; workers take the counts."""

    @property
    def _meta(self) -> pd.DataFrame:
        frame: Any = self._frame
        meta: pd.DataFrame = frame._meta
        return meta

    @property
    def release(self) -> ReleaseInfo:
        """Description of the release; `NotSanitizedError` for other frames."""
        return ReleaseAccessor(self._meta).release

    def _describe(self) -> Overview:
        try:
            # Estimates would compute the frame anew each time that it is shown.
            return release_overview(self.release)
        except NotSanitizedError:
            raw = ReleaseAccessor(self._meta)._describe()
            # The schema has no rows; the number of the frame's rows is unknown before it is computed.
            title = raw.title.replace("DataFrame.dp: not sanitized, 0 rows", "Dask DataFrame.dp: not sanitized")
            return replace(raw, title=title)


@register_dataframe_accessor("dp")
class DaskAccessor(RawAccessor):
    """Differential privacy for a Dask DataFrame: ``frame.dp.sanitize(plan)``, then ``safe.dp.mean("age")``.

    On a raw frame: `plan` and `sanitize`. On a release: all methods of `Estimates`, whose counts are taken by workers.
    Every estimate computes the frame anew: persist it, or write the release and read that.
    """

    @property
    def _release_accessor(self) -> DaskReleaseAccessor:
        return DaskReleaseAccessor(self._frame)

    def __dir__(self) -> list[str]:
        names = dir(type(self))
        return names if release_text(self._release_accessor._meta) is None else dir(self._release_accessor)

    @partial(as_method_of, plan, ["source"])
    def plan(self, epsilon: float | None = None, delta: float | None = None, **options: Any) -> Plan:
        """Plan how the frame would be sanitised."""
        return plan(self._frame, epsilon, delta, **options)

    @partial(as_method_of, sanitize, ["source"])
    def sanitize(self, epsilon: float | None = None, delta: float | None = None, **options: Any) -> Any:
        """Randomise every row of the frame, under a ready plan or a promise."""
        return sanitize(self._frame, epsilon=epsilon, delta=delta, **options)
