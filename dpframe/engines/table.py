"""A table in an engine, as planning and preparing a release see it: its values are read by tasks on workers."""

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

from dpframe.api.job import of_persons
from dpframe.api.planning import Request
from dpframe.api.public import Plan
from dpframe.engines.chosen import Chosen, ChosenReader, candidates, check_places, within
from dpframe.engines.forms import OutputForm
from dpframe.engines.readers import Reader
from dpframe.engines.work import CHANGED, Check, FirstPass, Pieces, row_checks
from dpframe.errors import ColumnError, DpframeError, FileError, ParameterError, name_list
from dpframe.noise.keystream import choice_key
from dpframe.spaces import Space, as_arrow
from dpframe.spaces.field import Field, is_open
from dpframe.tables import persons
from dpframe.tables.frames import Frame, PandasFrame
from dpframe.tables.persons import PersonChoice
from dpframe.tables.row_checks import RowChecks, sum_bytes
from dpframe.tables.table import Codes, Counters, check_types

_TRIM, _MMAP = -1, -3
"""glibc's numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD (malloc.h)."""

_KEPT, _FROM_HEAP = 1 << 28, 1 << 25
"""Bytes that are kept, and up to which an array is taken from what is kept: the most that glibc allows."""

_USUAL = 1 << 17
"""glibc's own M_MMAP_THRESHOLD."""


@contextmanager
def memory_kept() -> Iterator[None]:
    """While a block works, have glibc keep the memory that is freed; afterwards it gives all back and does as before.

    Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``: each of the arrays that a task takes and frees, of a
    few hundred KiB for some rows, then comes from the system anew, page by page, which takes longer than the work on
    it. Where that variable is not set, or the C library is another, nothing is done.
    """
    trim, mmap = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    if not trim.isdecimal() or os.name != "posix" or not hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        yield
        return
    libc.mallopt(_TRIM, _KEPT)
    libc.mallopt(_MMAP, _FROM_HEAP)
    try:
        yield
    finally:
        libc.mallopt(_TRIM, int(trim))
        libc.mallopt(_MMAP, int(mmap) if mmap.isdecimal() else _USUAL)
        libc.malloc_trim(0)


T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """Does a task, and returns an error that was raised on purpose as a value, which an engine does not log."""

    task: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return what the task returns, or its error."""
        with memory_kept():
            try:
                return self.task(*arguments)
            except DpframeError as error:
                return error.with_traceback(None)


def settled(outcomes: Iterable[T | DpframeError]) -> Iterator[T]:
    """Yield what comes of tasks, or raise the error of the first row at fault."""
    errors: list[DpframeError] = []
    for outcome in outcomes:
        if isinstance(outcome, DpframeError):
            errors.append(outcome)
        elif not errors:
            yield outcome
    if errors:
        raise min(errors, key=lambda error: getattr(error, "row", None) or 0)


def read_columns(names: Sequence[str], pieces: Pieces) -> list[dict[str, Any]]:
    """Return columns of some rows, as `Table.batches` gives them."""
    return [dict(batch) for frame, _ in pieces for batch in frame.batches(names)]


def kinds_of(name: str, pieces: Pieces) -> set[pa.DataType | None]:
    """Return the Arrow types that a column of objects has in some rows; None where it has none."""
    try:
        return {frame.array(name).type for frame, _ in pieces if frame.n}
    except ColumnError:
        return {None}


def count_rows(counters: Counters, pieces: Pieces) -> Counters:
    """Return copies of counters that are still at zero, with the counts of some rows."""
    own = deepcopy(dict(counters))
    for frame, _ in pieces:
        frame.count(own)
    return own


@dataclass(frozen=True)
class EngineTable(ABC):
    """A table in an engine, with as many rows as were counted; an engine is a class with `each`.

    ``template`` is a table of the same columns without rows.
    """

    held: ClassVar[bool] = False

    template: Frame
    n: int
    reader: Reader
    by_id: bool = field(kw_only=True)
    """Whether rows have addresses of their own in place of a place in the table."""
    partitions: tuple[str, ...] = field(default=(), kw_only=True)
    """Keys of the folders that the table was read from."""
    checked: set[str] = field(default_factory=set, repr=False, compare=False, kw_only=True)
    """What was checked: the digest of a job's input is the check before its spend."""

    @abstractmethod
    def run(self, task: Callable[..., T], inputs: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Do a task with each of some inputs, which are its arguments, on workers; yield what comes of it."""

    @abstractmethod
    def each(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Do a task with every part of the table, and yield what comes of it, in any order."""

    @abstractmethod
    def form(self, plan: Plan) -> OutputForm:
        """Return the form in which a release leaves."""

    def keyed(self, key: bytes) -> Self:
        """Return the table with the addresses that its rows have under a key."""
        return replace(self, reader=self.reader.keyed(key))

    def only(self, names: Sequence[str], plain: Collection[str] = ()) -> Self:
        """Return the table whose tasks read some columns, and leave some of these as they are."""
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
        """Return what is public about columns."""
        return self.template.fields(names)

    def person_counts(self, person: str, rows: int, key: bytes) -> npt.NDArray[np.uint8]:
        """Return how often each row is taken: workers say which rows can be, and the driver chooses."""
        check_places(self.by_id)
        choice = PersonChoice(rows, key, max(1, -(-self.n // persons.AT_ONCE)))
        only, task = self.only([person], [person]), partial(candidates, person, choice)
        return choice.counts(self.n, lambda turn: within(only.results(partial(task, turn)), self.n), persons.AT_ONCE)

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table with each row as often as is said, without the column that names persons."""
        template, n = self.template.of_persons(person, counts[:0]), int(counts.sum(dtype=np.int64))
        return replace(self, template=template, n=n, reader=ChosenReader(self.reader, person, Chosen.of(counts)))

    def results(self, task: Callable[[Pieces], T]) -> Iterator[T]:
        """Yield what comes of a task, or raise the error of the first row at fault."""
        return settled(self.each(task))

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield columns in batches; all values pass through the driver."""
        for batches in self.only(names).results(partial(read_columns, list(names))):
            yield from batches

    def count(self, counters: Counters) -> None:
        """Count rows on the workers; only counts come to the driver."""
        for found in self.only(list(counters)).results(partial(count_rows, dict(counters))):
            for name, counter in counters.items():
                counter.merge(found[name])

    def arrays(self, name: str) -> Iterable[pa.Array]:
        """Return one column as Arrow arrays."""
        return (as_arrow(batch[name]) for batch in self.batches([name]))

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Read every value on the workers, so that one that is refused is found; return no codes."""
        # Of no columns there is nothing to read, not even how many rows there are.
        if spaces and repr((dict(spaces), nulls, sorted(inferred))) not in self.checked:
            self.check(spaces, nulls, inferred)
        return {}

    def check_passed(self, names: Collection[str]) -> None:
        """Refuse objects to be passed through, unless all parts have them of one kind: they leave as Arrow arrays."""
        template = self.template
        if not isinstance(template, PandasFrame) or self.text is not None:
            return
        for name in self.names:
            if name not in names or template.frame[name].dtype != object:
                continue
            found = self.only([name], [name]).results(partial(kinds_of, name))
            kinds = {kind for part in found for kind in part}
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
        """Read every value, and return the sum of the rows' checks, if any are made."""
        # What objects are is read row by row.
        check_types([f for f in self.fields(list(spaces)) if f.empty or not is_open(f.type)], spaces)
        plain = () if checks is None else checks.plain
        rows, low, high = 0, 0, 0
        task = Check(dict(spaces), nulls, tuple(inferred), checks)
        for count, *sums in self.only([*spaces, *plain], plain).results(task):
            rows, low, high = rows + count, low + sums[0], high + sums[1]
        if rows != self.n:
            raise FileError(CHANGED)
        self.checked.add(repr((dict(spaces), nulls, sorted(inferred))))
        return low % (1 << 64), high % (1 << 64)

    def digest(self, plan: Plan, key: bytes) -> bytes:
        """Return a digest under a key of the rows, their addresses, and all that a plan releases of them.

        It is of the rows that are drawn, after the choice of persons', so that the first pass can sum it up again.
        """
        chosen = of_persons(self, Request(plan=plan), choice_key(key))
        sums = chosen.keyed(key).check(plan.spaces, plan.nulls, plan.imputed, row_checks(plan, key))
        return sum_bytes(*sums)

    def first_pass(self, task: Callable[[Pieces], FirstPass], counted: Callable[[Sequence[Any]], None]) -> FirstPass:
        """Do the first pass; the counts of measured tables are handed on."""
        whole: FirstPass | None = None
        for first_pass in self.results(task):
            counted(first_pass.counts)
            if whole is None:
                whole = first_pass
            else:
                whole.merge(first_pass)
        whole = task(iter(())) if whole is None else whole
        if whole.rows != self.n:
            raise FileError(CHANGED)
        return whole


def check_id(template: Frame, name: str) -> None:
    """Refuse a column of ids that is not there, or whose type cannot be distinguished."""
    if name not in template.names:
        raise ParameterError(f"id names {name!r}, which is not a column; columns are {name_list(template.names)}")
    type_ = template.fields([name])[0].type
    if not (pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_)):
        raise ColumnError(f"has type {type_}, and id must be whole numbers or text; cast it to text", column=name)


def check_unique(missing: bool, most: int, name: str) -> None:
    """Refuse ids of which some are missing, or the most frequent occurs more than once."""
    if missing:
        raise ColumnError("is null in some rows, and id names every row; drop such rows, or fill them", column=name)
    if most > 1:
        raise ColumnError(
            "names some rows twice, and id must name every row once; take another column, or none", column=name
        )
