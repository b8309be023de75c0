"""Columns whose values may be of any kind (objects, entries or text): inference counts kinds and reads one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.inference.categories import TEXT_SHARE, Items, NumberedItems, Texts, set_share
from dpframe.inference.column import Presence, Task
from dpframe.inference.cost import SMALL_HISTOGRAM_SHARE, CountNoise, Histogram
from dpframe.inference.inferred import Measured
from dpframe.inference.kinds import SETS, WORDS_BRANCHES, choose_branch
from dpframe.inference.numbers import Numbers, Times
from dpframe.inference.vectors import Lists
from dpframe.inference.words import WORDS_BRANCH_SHARE, NumbersAndWords, read_words
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces import Boolean, Datetime, Space
from dpframe.spaces.field import Field
from dpframe.spaces.object_reading import KINDS, kind_counts, read_as
from dpframe.spaces.written_values import WRITTEN_KINDS, can_be_written, read_written, written_kind_counts
from dpframe.totals.counts import Cells, OfColumn

_BRANCHES: dict[str, tuple[pa.DataType, Callable[[Field, int, int, bytes], Task]]] = {
    "text": (pa.string(), lambda field, *_: Texts(field)),
    "boolean": (pa.bool_(), lambda field, *_: Presence(field, Boolean())),
    "whole number": (pa.int64(), lambda field, n, *_: Numbers(field, n)),
    "number": (pa.float64(), lambda field, n, *_: Numbers(field, n)),
    WORDS_BRANCHES["whole number"]: (pa.int64(), lambda field, n, *_: NumbersAndWords(field, n)),
    WORDS_BRANCHES["number"]: (pa.float64(), lambda field, n, *_: NumbersAndWords(field, n)),
    "date": (pa.date32(), lambda field, n, *_: Times(field, n)),
    "timestamp": (pa.timestamp("us"), lambda field, n, *_: Times(field, n)),
    "duration": (pa.duration("us"), lambda field, n, *_: Times(field, n)),
    "list of numbers": (pa.list_(pa.float64()), lambda field, n, *_: Lists(field, n)),
    "set of text": (pa.list_(pa.string()), lambda field, _, cap, key: Items(field, cap, key)),
    "set of whole numbers": (pa.list_(pa.int64()), lambda field, _, cap, key: NumberedItems(field, cap, key)),
}
"""Branches by the kind of values, in a public order: the Arrow type to read values as, and the task of the column, from
its field, rows, largest number of items per row, and key of truncation."""

_SIZED_BRANCHES = tuple(name for name in _BRANCHES if name not in WORDS_BRANCHES.values())
"""Branches by which the default share of the budget is sized."""


@dataclass(frozen=True)
class _Source:
    """Functions that count the kinds of values and read values as a type.

    They travel to an engine's workers, so that they are importable functions. ``kinds`` are counted, in their order.
    ``is_listed`` says whether a branch's column lists its values in a dictionary. ``share`` is the least share of the
    budget of each branch, relative to 1 of a numeric column. ``sized`` names the branches by which the default share of
    the budget is sized; the empty name stands for the kinds.
    """

    count_kinds: Callable[[Any], npt.NDArray[np.int64]]
    read: Callable[[Any, pa.DataType], pa.Array]
    branches: tuple[str, ...]
    kinds: tuple[str, ...] = KINDS
    is_listed: bool = False
    share: float = 1.0
    sized: tuple[str, ...] = ("", *_SIZED_BRANCHES)


def _to_objects(values: Any) -> Sequence[Any]:
    """Return values as a sequence of Python objects."""
    return cast(Sequence[Any], values.to_pylist() if isinstance(values, pa.Array) else values)


def _count_object_kinds(values: Any) -> npt.NDArray[np.int64]:
    """Return the number of objects of each kind."""
    return kind_counts(_to_objects(values))


def _read_objects(values: Any, type_: pa.DataType) -> pa.Array:
    """Return objects as an Arrow array of a type."""
    return read_as(_to_objects(values), type_)


def _read_entries(values: Any, type_: pa.DataType) -> pa.Array:
    """Return the rows of a pandas categorical as a dictionary of a type."""
    return values.read_as(type_)


def _read_values(read: Callable[[Any, pa.DataType], pa.Array], type_: pa.DataType, values: Any) -> pa.Array:
    """Return values as an Arrow array of a type; the values come last, as `OfColumn.after` passes nothing else."""
    return read(values, type_)


_OBJECTS = _Source(_count_object_kinds, _read_objects, tuple(_BRANCHES))

_WRITTEN = _Source(
    written_kind_counts,
    read_written,
    tuple(name for name, (type_, _) in _BRANCHES.items() if can_be_written(type_)),
    WRITTEN_KINDS,
)

_ENTRIES = _Source(
    methodcaller("kind_counts"),
    _read_entries,
    tuple(name for name in _SIZED_BRANCHES if not pa.types.is_list(_BRANCHES[name][0])),
    is_listed=True,
    # A dictionary lists its values, so that numbers and times get fewer. Most categoricals are of text.
    share=TEXT_SHARE,
    sized=("text",),
)
"""For pandas categoricals: entries may be any object, and which dtype they have together follows the data (limit of the
format)."""


class Objects(Task):
    """A column of objects, of categorical entries, or of text: the kinds of its values are no public fact.

    The first histogram and the spend are independent of the values: one histogram over the public list of kinds, then
    the histograms of the chosen branch. Values of another kind are read as null. If their counts are significant, the
    column counts as not found (`findings.REASONS`).
    """

    def __init__(self, field: Field, n: int, cap: int, key: bytes) -> None:
        super().__init__(field)
        self._source = _WRITTEN if field.written else _ENTRIES if field.listed else _OBJECTS
        self._tasks: dict[str, Task] = {}
        for name in self._source.branches:
            type_, make_task = _BRANCHES[name]
            branch_type = pa.dictionary(pa.int32(), type_) if self._source.is_listed else type_
            self._tasks[name] = make_task(replace(field, type=branch_type), n, cap, key)
        has_sets = not self._tasks.keys().isdisjoint(SETS)
        self._share = max(self._source.share, set_share(cap)) if has_sets else self._source.share
        self._branch: str | None = None

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """The histogram of the kinds, and the histograms of every branch; each branch has an equal share in total."""
        sized = self._source.sized
        histograms = [Histogram("kinds", 1, SMALL_HISTOGRAM_SHARE * self._source.share, sized="" in sized)]
        for name, task in self._tasks.items():
            task_share, branch = sum(histogram.share for histogram in task.histograms), (self.field.name, name)
            share = self._share * (WORDS_BRANCH_SHARE if name in WORDS_BRANCHES.values() else 1.0)
            histograms += [
                replace(h, share=h.share / task_share * share, branch=branch, sized=name in sized)
                for h in task.histograms
            ]
        return tuple(histograms)

    def asks(self, i: int) -> int | None:
        """Return the place of the kinds, then the places of the chosen branch's histograms."""
        if self._branch is None:
            return 0
        if i > len(self._tasks[self._branch].histograms):
            return None
        return [histogram.branch for histogram in self.histograms].index((self.field.name, self._branch)) + i - 1

    def counter(self) -> OfColumn:
        """Return a counter of kinds, then of the values of the found kind, read as an Arrow column of its type."""
        if self._branch is None:
            return Cells(self._source.count_kinds, len(self._source.kinds))
        read_branch = read_words if self._branch in WORDS_BRANCHES.values() else _read_values
        read = partial(read_branch, self._source.read, _BRANCHES[self._branch][0])
        return self._tasks[self._branch].counter().after(read)

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the kinds, then the histograms of the chosen branch."""
        # The branch's task stores its own counts, which its grids depend on.
        if self._branch is not None:
            task = self._tasks[self._branch]
            measured_count = len(task.measured)
            task.measure(counter, noise, threshold, stream)
            self.measured += task.measured[measured_count:]
            return
        kinds, counts = self._source.kinds, tuple(noise.add(counter.counts, stream).tolist())
        self.measured.append(Measured(self.field.name, "kinds", kinds, counts, noise.variance))
        self._branch = choose_branch(dict(zip(kinds, counts, strict=True)), noise.variance**0.5, self._tasks)

    @property
    def others_are_null(self) -> bool:
        """Whether values that were not found become null in the chosen branch."""
        assert self._branch is not None
        return self._tasks[self._branch].others_are_null

    def inner(self) -> Space:
        """Return the space of the chosen branch; times of day if they outnumber durations."""
        assert self._branch is not None
        space = self._tasks[self._branch].inner()
        kinds = dict(zip(self._source.kinds, self.measured[0].counts, strict=True))
        is_time_of_day = self._branch == "duration" and kinds["time of day"] > kinds["duration"]
        return cast(Datetime, space).within_day() if is_time_of_day else space
