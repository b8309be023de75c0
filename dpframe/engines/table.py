"""A table in an engine for planning and releases; tasks on workers read its values."""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.api.public import Plan
from dpframe.engines.chosen import RepeatReader, RowCounts, check_candidates, check_places, find_candidates
from dpframe.engines.forms import OutputForm
from dpframe.engines.readers import Reader
from dpframe.engines.work import CHANGED, Check, FirstPass, Pieces, row_checks
from dpframe.errors import ColumnError, DpframeError, FileError, ParameterError, name_list
from dpframe.noise.keystream import choice_key
from dpframe.release.job import of_persons
from dpframe.release.planning import Request
from dpframe.spaces import Space, as_arrow
from dpframe.spaces.field import Field, is_open
from dpframe.tables import persons
from dpframe.tables.frames import Frame, PandasFrame
from dpframe.tables.persons import PersonChoice
from dpframe.tables.row_checks import RowChecks, sum_bytes
from dpframe.tables.table import Codes, Counters, check_types

_TRIM, _MMAP = -1, -3
"""glibc's numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD (malloc.h)."""

_RETAINED_BYTES, _HEAP_ARRAY_BYTES = 1 << 28, 1 << 25
"""Bytes that glibc retains, and the size up to which an array comes from retained memory; glibc allows no more."""

_DEFAULT_MMAP_BYTES = 1 << 17
"""glibc's own M_MMAP_THRESHOLD."""


@contextmanager
def retain_memory() -> Iterator[None]:
    """Let glibc retain freed memory within a block, and return to its former settings afterwards.

    Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``. The system then provides each array of a task anew,
    page by page, which takes longer than the work on the array. Without that variable, or with another C library,
    nothing changes.
    """
    trim, mmap = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    # Only glibc has malloc_trim; other libraries are left as they are.
    if not trim.isdecimal() or os.name != "posix" or not hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        yield
        return
    libc.mallopt(_TRIM, _RETAINED_BYTES)
    libc.mallopt(_MMAP, _HEAP_ARRAY_BYTES)
    try:
        yield
    finally:
        libc.mallopt(_TRIM, int(trim))
        libc.mallopt(_MMAP, int(mmap) if mmap.isdecimal() else _DEFAULT_MMAP_BYTES)
        libc.malloc_trim(0)


T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """Runs a task, and returns an expected error as a value, which an engine does not log."""

    task: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return what the task returns, or its error."""
        with retain_memory():
            try:
                return self.task(*arguments)
            except DpframeError as error:
                return error.with_traceback(None)


def unwrap_outcomes(outcomes: Iterable[T | DpframeError]) -> Iterator[T]:
    """Yield the results of tasks, or raise the error of the first row at fault."""
    errors: list[DpframeError] = []
    for outcome in outcomes:
        if isinstance(outcome, DpframeError):
            errors.append(outcome)
        elif not errors:
            yield outcome
    if errors:
        # All parts are awaited, so that the error does not depend on the order in which they end.
        raise min(errors, key=lambda error: getattr(error, "row", None) or 0)


def read_columns(names: Sequence[str], pieces: Pieces) -> list[dict[str, Any]]:
    """Return columns of some rows in the batches of `Table.batches`."""
    return [dict(batch) for frame, _ in pieces for batch in frame.batches(names)]


def find_types(name: str, pieces: Pieces) -> set[pa.DataType | None]:
    """Return the Arrow types of a column of objects in some rows; None for objects without one."""
    try:
        return {frame.array(name).type for frame, _ in pieces if frame.n}
    except ColumnError:
        return {None}


def count_rows(counters: Counters, pieces: Pieces) -> Counters:
    """Return copies of empty counters with the counts of some rows."""
    own_counters = deepcopy(dict(counters))
    for frame, _ in pieces:
        frame.count(own_counters)
    return own_counters


@dataclass(frozen=True)
class EngineTable(ABC):
    """A table in an engine, with its number of rows; each engine has a subclass with `run` and `run_on_parts`.

    ``template`` is a table with the same columns and no rows.
    """

    held: ClassVar[bool] = False

    template: Frame
    n: int
    reader: Reader
    by_id: bool = field(kw_only=True)
    """Whether addresses of rows are ids; otherwise they are positions in the table."""
    partitions: tuple[str, ...] = field(default=(), kw_only=True)
    """Keys of the folders of a partitioned table."""
    checks_done: set[str] = field(default_factory=set, repr=False, compare=False, kw_only=True)
    """Arguments of finished checks: the digest of a job's input has already checked its values."""

    @abstractmethod
    def run(self, task: Callable[..., T], inputs: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Run a task on workers with each of some inputs as arguments, and yield the results."""

    @abstractmethod
    def run_on_parts(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Run a task on every part of the table, and yield the results in any order."""

    @abstractmethod
    def form(self, plan: Plan) -> OutputForm:
        """Return the form of released rows."""

    def keyed(self, key: bytes) -> Self:
        """Return the table with the addresses of its rows under a key."""
        return replace(self, reader=self.reader.keyed(key))

    def only(self, names: Sequence[str], plain: Collection[str] = ()) -> Self:
        """Return a table whose tasks read some columns, and columns in ``plain`` as plain values."""
        return replace(self, reader=self.reader.only(names, plain))

    @property
    def text(self) -> str | None:
        """The description that a release carries, if the table is one."""
        return self.template.text

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return self.template.names

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return the public facts about columns."""
        return self.template.fields(names)

    def person_counts(self, person: str, rows: int, key: bytes) -> npt.NDArray[np.uint8]:
        """Return the count of each row: workers find candidates, and the driver chooses."""
        check_places(self.by_id)
        choice = PersonChoice(rows, key, max(1, -(-self.n // persons.PERSON_CHUNK_ROWS)))
        person_table, task = self.only([person], [person]), partial(find_candidates, person, choice)
        return choice.counts(
            self.n,
            lambda turn: check_candidates(person_table.results(partial(task, turn)), self.n),
            persons.PERSON_CHUNK_ROWS,
        )

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table that repeats each row by its count, without the column of persons."""
        # The template has no rows, and so no counts.
        template, n = self.template.of_persons(person, counts[:0]), int(counts.sum(dtype=np.int64))
        return replace(self, template=template, n=n, reader=RepeatReader(self.reader, person, RowCounts.of(counts)))

    def results(self, task: Callable[[Pieces], T]) -> Iterator[T]:
        """Yield the results of a task on all parts, or raise the error of the first row at fault."""
        return unwrap_outcomes(self.run_on_parts(task))

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield columns in batches; all values pass through the driver."""
        for batches in self.only(names).results(partial(read_columns, list(names))):
            yield from batches

    def count(self, counters: Counters) -> None:
        """Count rows on the workers; the driver gets only counts."""
        for part_counters in self.only(list(counters)).results(partial(count_rows, dict(counters))):
            for name, counter in counters.items():
                counter.merge(part_counters[name])

    def arrays(self, name: str) -> Iterable[pa.Array]:
        """Return one column as Arrow arrays."""
        return (as_arrow(batch[name]) for batch in self.batches([name]))

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Check every value on the workers; return no codes."""
        # Without columns there is nothing to read.
        if spaces and repr((dict(spaces), nulls, sorted(inferred))) not in self.checks_done:
            self.check(spaces, nulls, inferred)
        return {}

    def check_passthrough(self, names: Collection[str]) -> None:
        """Raise `ColumnError` or `FileError` for passed-through columns whose types differ between parts or files."""
        self.reader.only(list(names), names)
        # Objects leave as Arrow arrays, which have one type.
        template = self.template
        if not isinstance(template, PandasFrame) or self.text is not None:
            return
        for name in self.names:
            if name not in names or template.frame[name].dtype != object:
                continue
            parts_types = self.only([name], [name]).results(partial(find_types, name))
            kinds = {kind for part_types in parts_types for kind in part_types}
            if None in kinds or len(kinds) > 1:
                raise ColumnError(
                    "is passed through and holds objects of several kinds, or nulls alone in some partitions; convert "
                    "it to one type, e.g. astype('string')",
                    column=name,
                )

    def check(
        self,
        spaces: Mapping[str, Space],
        nulls: str,
        inferred: Collection[str] = (),
        checks: RowChecks | None = None,
    ) -> tuple[int, int]:
        """Check every value, and return the sum of the rows' keyed checks; zeros without ``checks``."""
        # The type of objects is known only from their values.
        check_types([f for f in self.fields(list(spaces)) if f.empty or not is_open(f.type)], spaces)
        plain = () if checks is None else checks.plain
        rows, low, high = 0, 0, 0
        task = Check(dict(spaces), nulls, tuple(inferred), checks)
        for count, *sums in self.only([*spaces, *plain], plain).results(task):
            rows, low, high = rows + count, low + sums[0], high + sums[1]
        # The rows were counted before: another number means that the data changed.
        if rows != self.n:
            raise FileError(CHANGED)
        self.checks_done.add(repr((dict(spaces), nulls, sorted(inferred))))
        return low % (1 << 64), high % (1 << 64)

    def digest(self, plan: Plan, key: bytes) -> bytes:
        """Return a keyed digest of the rows, their addresses, and the values that a plan releases.

        The digest is of the rows after contribution bounding, so that the first pass computes it again.
        """
        repeated_table = of_persons(self, Request(plan=plan), choice_key(key))
        sums = repeated_table.keyed(key).check(plan.spaces, plan.nulls, plan.imputed, row_checks(plan, key))
        return sum_bytes(*sums)

    def first_pass(self, task: Callable[[Pieces], FirstPass], add_counts: Callable[[Sequence[Any]], None]) -> FirstPass:
        """Return the merged first pass of all parts; ``add_counts`` gets the counts of measured tables."""
        total: FirstPass | None = None
        for first_pass in self.results(task):
            add_counts(first_pass.counts)
            if total is None:
                total = first_pass
            else:
                total.merge(first_pass)
        # A table without parts has an empty first pass.
        total = task(iter(())) if total is None else total
        if total.rows != self.n:
            raise FileError(CHANGED)
        return total


def check_id(template: Frame, name: str) -> None:
    """Raise an error for a missing column of ids, or a type whose values cannot be compared exactly."""
    if name not in template.names:
        raise ParameterError(f"id names {name!r}, which is not a column; columns are {name_list(template.names)}")
    type_ = template.fields([name])[0].type
    if not (pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_)):
        raise ColumnError(f"has type {type_}, and id must be whole numbers or text; cast it to text", column=name)


def check_unique(has_null: bool, largest_count: int, name: str) -> None:
    """Raise `ColumnError` if an id is null or occurs more than once."""
    if has_null:
        raise ColumnError("is null in some rows, and id names every row; drop such rows, or fill them", column=name)
    if largest_count > 1:
        raise ColumnError(
            "names some rows twice, and id must name every row once; take another column, or none", column=name
        )
