"""Columns whose values may be of any kind (objects, entries or text): inference counts kinds and reads one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.inference.categories import TEXT_SHARE, Items, NumberedItems, Texts, set_share
from dpframe.inference.column import Presence, Task
from dpframe.inference.cost import CountNoise, Histogram
from dpframe.inference.inferred import Measured
from dpframe.inference.kinds import SETS, way_of
from dpframe.inference.numbers import Numbers, Times
from dpframe.inference.vectors import Lists
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces import Boolean, Datetime, Space
from dpframe.spaces.field import Field
from dpframe.spaces.object_reading import KINDS, kind_counts, read_as
from dpframe.spaces.written_values import WRITTEN_KINDS, can_be_written, read_written, written_kind_counts
from dpframe.totals.counts import Cells, OfColumn

_KINDS_SHARE = 0.1
"""Share of the budget for the kinds, relative to 1 of the next histograms (tuned; effect not measured)."""


class _TaskFactory(Protocol):
    """Creates the task of a column: ``cap`` and ``key`` serve sets only."""

    def __call__(self, field: Field, n: int, cap: int, key: bytes) -> Task: ...


@dataclass(frozen=True)
class _Way:
    """One way to infer a column of a known kind: as an Arrow column of ``type``, by the task of ``make``."""

    type: pa.DataType
    make: _TaskFactory


_WAYS: dict[str, _Way] = {
    "text": _Way(pa.string(), lambda field, n, cap, key: Texts(field)),
    "boolean": _Way(pa.bool_(), lambda field, n, cap, key: Presence(field, Boolean())),
    "whole number": _Way(pa.int64(), lambda field, n, cap, key: Numbers(field, n)),
    "number": _Way(pa.float64(), lambda field, n, cap, key: Numbers(field, n)),
    "date": _Way(pa.date32(), lambda field, n, cap, key: Times(field, n)),
    "timestamp": _Way(pa.timestamp("us"), lambda field, n, cap, key: Times(field, n)),
    "duration": _Way(pa.duration("us"), lambda field, n, cap, key: Times(field, n)),
    "list of numbers": _Way(pa.list_(pa.float64()), lambda field, n, cap, key: Lists(field, n)),
    "set of text": _Way(pa.list_(pa.string()), lambda field, n, cap, key: Items(field, cap, key)),
    "set of whole numbers": _Way(pa.list_(pa.int64()), lambda field, n, cap, key: NumberedItems(field, cap, key)),
}
"""The ways by name, in a public order."""


def _to_objects(values: Any) -> Sequence[Any]:
    """Return values as a sequence of Python objects."""
    objects: Sequence[Any] = values.to_pylist() if isinstance(values, pa.Array) else values
    return objects


@dataclass(frozen=True)
class _Reading:
    """Functions that count kinds and read values as a type, and the ways; ``name`` is the global of this object."""

    name: str
    kinds: Callable[[Any], npt.NDArray[np.int64]]
    read: Callable[[Any, pa.DataType], pa.Array]
    ways: Mapping[str, _Way]
    cells: tuple[str, ...] = KINDS
    """Kinds that are counted."""
    share: float = 1.0
    """Least share of the budget of the ways, relative to 1 of a numeric column."""
    sized: tuple[str, ...] = ("", *_WAYS)
    """Ways by which the default share of the budget is sized; the empty name is of the kinds."""

    def __reduce__(self) -> str:
        # Pickled as the global that it is: counters travel to workers.
        return self.name


_OBJECTS = _Reading(
    "_OBJECTS",
    lambda values: kind_counts(_to_objects(values)),
    lambda values, t: read_as(_to_objects(values), t),
    _WAYS,
)

_WRITTEN = _Reading(
    "_WRITTEN",
    written_kind_counts,
    read_written,
    {name: way for name, way in _WAYS.items() if can_be_written(way.type)},
    WRITTEN_KINDS,
)


_ENTRIES = _Reading(
    "_ENTRIES",
    lambda values: values.kind_counts(),
    lambda values, t: values.read_as(t),
    # A dictionary lists its values, so that numbers and times get fewer. Most categoricals are of text.
    {
        name: _Way(pa.dictionary(pa.int32(), way.type), way.make)
        for name, way in _WAYS.items()
        if not pa.types.is_list(way.type)
    },
    share=TEXT_SHARE,
    sized=("text",),
)
"""For pandas categoricals: entries may be any object, and which dtype they have together follows the data."""


def _count_kinds(reading: _Reading, values: Any) -> npt.NDArray[np.int64]:
    """Return the number of values of each kind."""
    return reading.kinds(values)


def _read_values(reading: _Reading, type_: pa.DataType, values: Any) -> pa.Array:
    """Return values as an Arrow array of a type."""
    return reading.read(values, type_)


class Objects(Task):
    """A column of objects, of categorical entries, or of text: the kinds of its values are no public fact.

    The first histogram and the spend are independent of the values: one histogram over the public list of kinds, then
    the histograms of the chosen way. Values of another kind are read as null. If their counts are significant, the
    column counts as not found (`findings.judge`).
    """

    def __init__(self, field: Field, n: int, cap: int, key: bytes) -> None:
        super().__init__(field)
        self._reading = _WRITTEN if field.written else _ENTRIES if field.listed else _OBJECTS
        ways = self._reading.ways
        self._ways = {name: way.make(replace(field, type=way.type), n, cap, key) for name, way in ways.items()}
        min_share = self._reading.share
        self._share = max(min_share, set_share(cap)) if not ways.keys().isdisjoint(SETS) else min_share
        self._kind_way: str | None = None

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """The histogram of the kinds, and the histograms of every way; each way has an equal share in total."""
        sized = self._reading.sized
        histograms = [Histogram("kinds", 1, _KINDS_SHARE * self._reading.share, sized="" in sized)]
        for name, task in self._ways.items():
            task_share = sum(histogram.share for histogram in task.histograms)
            histograms += [
                replace(h, share=h.share / task_share * self._share, way=(self.field.name, name), sized=name in sized)
                for h in task.histograms
            ]
        return tuple(histograms)

    def asks(self, i: int) -> int | None:
        """Return the place of the kinds, then the places of the chosen way's histograms."""
        if self._kind_way is None:
            return 0
        if i > len(self._ways[self._kind_way].histograms):
            return None
        ways = [histogram.way for histogram in self.histograms]
        return ways.index((self.field.name, self._kind_way)) + i - 1

    def counter(self) -> OfColumn:
        """Return a counter of kinds, then of the values of the found kind, read as an Arrow column of its type."""
        if self._kind_way is None:
            return Cells(partial(_count_kinds, self._reading), len(self._reading.cells))
        return (
            self._ways[self._kind_way].counter().after(partial(_read_values, self._reading, _WAYS[self._kind_way].type))
        )

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the kinds, then the histograms of the chosen way."""
        # The way's task stores its own counts, which its grids depend on.
        if self._kind_way is not None:
            task = self._ways[self._kind_way]
            measured_count = len(task.measured)
            task.measure(counter, noise, threshold, stream)
            self.measured += task.measured[measured_count:]
            return
        cells, counts = self._reading.cells, tuple(noise.add(counter.counts, stream).tolist())
        self.measured.append(Measured(self.field.name, "kinds", cells, counts, noise.variance))
        self._kind_way = way_of(dict(zip(cells, counts, strict=True)), noise.variance**0.5, self._ways)

    @property
    def others_are_null(self) -> bool:
        """Whether values that were not found become null in the chosen way."""
        assert self._kind_way is not None
        return self._ways[self._kind_way].others_are_null

    def inner(self) -> Space:
        """Return the space of the chosen way; times of day if they outnumber durations."""
        assert self._kind_way is not None
        space = self._ways[self._kind_way].inner()
        kinds = dict(zip(self._reading.cells, self.measured[0].counts, strict=True))
        of_day = self._kind_way == "duration" and kinds["time of day"] > kinds["duration"]
        return cast(Datetime, space).within_day() if of_day else space
