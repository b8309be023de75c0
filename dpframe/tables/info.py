"""What a release says about itself, and where it is kept.

Measured tables are compact binary in JSON: what the plan does not say of them, which is counts and quantiles. Counts
are written as zigzag numbers, all lowest bytes first, then the next ones: high bytes are zeros, which zlib makes
nothing of. A count takes about one byte and a half then, and a third more in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import weakref
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dpframe.errors import PlanError, name_list
from dpframe.plan.data import SCHEMA
from dpframe.plan.explanation import person_lines
from dpframe.plan.levels import cells_between, children, level_sizes, stops_of
from dpframe.plan.measures import OF_SETS, Measure, MeasuredTable, way_starts
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.words import KEPT, mind_lines, promise_line
from dpframe.spaces import Space
from dpframe.spaces.cells import is_cut
from dpframe.tables.release import sealed

METADATA_KEY = "dpframe"
"""Key under which a release's description travels in ``attrs`` and in Parquet metadata."""


PANDAS_ATTRS = "PANDAS_ATTRS"
"""Key under which pandas keeps ``attrs`` in Parquet metadata."""


def arrow_metadata(text: str) -> dict[str, str]:
    """Return the schema metadata of a release: under our own key, and as pandas reads ``attrs``."""
    return {METADATA_KEY: text, PANDAS_ATTRS: json.dumps({METADATA_KEY: text})}


_texts: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Descriptions by the identity of frames of a kind that keeps no metadata, while they live."""


def keep_text(frame: Any, text: str) -> None:
    """Keep the description of a release that is a frame without metadata of its own, as long as it lives."""
    place = id(frame)
    _texts[place] = weakref.ref(frame, lambda _: _texts.pop(place, None)), text


def kept_text(frame: Any) -> str | None:
    """Return the description that was kept of this very frame; None for any other, and for one made of it."""
    owner, text = _texts.get(id(frame), (lambda: None, None))
    return text if owner() is frame else None


def metadata_text(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return a release's description from Arrow or Parquet metadata, wherever it was kept."""
    metadata = metadata or {}
    if METADATA_KEY.encode() in metadata:
        return metadata[METADATA_KEY.encode()].decode("utf-8", "replace")
    try:
        description = json.loads(metadata[PANDAS_ATTRS.encode()])[METADATA_KEY]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return description if isinstance(description, str) else None


NUMBERS = 'Numbers: .dp.mean("…"), .dp.value_counts("…"); plain pandas on noisy rows is biased. More: .dp.explain()'
"""The last line, for frames."""


@dataclass(frozen=True)
class ReleaseExplanation:
    """What a release promises in detail; prints as text, and shows as HTML in a notebook.

    ``person``: what the promise means for one person, in sentences; ``details``: both guarantees, the order of the
    rows, what inference and tables measured, and what each costs.
    """

    person: tuple[str, ...]
    details: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(["What it means for one person", *self.person, "", KEPT, *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [("What it means for one person", self.person), (KEPT, self.details)]
        return notebook_html("What this release promises", parts)


@dataclass(frozen=True)
class ReleaseInfo:
    """What a release says about itself: its plan, its number of rows and its digest.

    ``rows`` is the number of rows of the table, where those released are a sample of them. ``measured`` means that
    what inference measured, as the plan has it, is of this very table. ``tables`` are the noisy counts of the plan's
    measures, in their order, or none: then only the rows are evidence. ``part`` is the part of a ledger's dataset whose
    rows these are: the promise adds up to those of other parts only as far as no person is in two of them. ``left_out``
    are the plan's columns that the table no longer has, where `dpframe.write` stored some columns of a release: the
    digest is that of the others.
    """

    plan: Plan
    n: int
    digest: str
    rows: int | None = None
    measured: bool = False
    tables: tuple[MeasuredTable, ...] = ()
    part: str | None = None
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join([f"<{self.introduction}>", *self.lines(), "More: .explain()"])

    @property
    def introduction(self) -> str:
        """The number of rows and of randomised columns, and how many of them the table has."""
        count = len(self.plan.columns)
        present_count = sum(name not in self.left_out for name in self.plan.names)
        count_text = f"{count}" if present_count == count else f"{present_count} of {count}"
        return f"a release of {self.title}, {count_text} randomised column{'' if count == 1 else 's'}"

    @property
    def title(self) -> str:
        """The number of rows, and the part of the dataset that they are."""
        rows = f"{self.n:,} row" + "s" * (self.n != 1)
        return rows + ("" if self.part is None else f" (part {name_list([self.part])} of its dataset)")

    def lines(self) -> list[str]:
        """Return the promise, and what is not protected or was not found, if anything."""
        return [promise_line(self.plan), *mind_lines(self.plan, self.left_out)]

    def explain(self) -> ReleaseExplanation:
        """Return what the promise means for one person and how it is kept; prints as text.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(1_000, columns=["sex"])
        >>> info = dpf.sanitize(frame, epsilon=1, delta=0, spaces={"sex": ["F", "M"]}).dp.release
        >>> info.lines()
        ['Promise: epsilon=1, delta=0 for each person with one row, also against someone who knows which row is theirs']
        >>> info.explain().details[0]
        'Release: epsilon=1, delta=0 (replace-one, per person with one row)'
        """
        return ReleaseExplanation(tuple(person_lines(self.plan)), tuple(self.plan.lines()))

    @property
    def row_digest(self) -> str:
        """The digest's part that is of the rows; measured tables have one of their own behind it."""
        return self.digest[:16]

    def to_json(self) -> str:
        """Return JSON text with a schema number; of measured tables' counts a few bytes each, in base64."""
        return self._json

    @cached_property
    def _json(self) -> str:
        data = {
            "schema": max(2, self.plan.schema),
            "n": self.n,
            "digest": self.digest,
            "plan": json.loads(self.plan.to_json()),
        }
        if self.rows is not None:
            data["rows"] = self.rows
        if self.measured:
            data["measured"] = True
        if self.tables:
            data["tables"] = packed(self.tables)
        if self.part is not None:
            data["part"] = self.part
        if self.left_out:
            data["left_out"] = self.left_out
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: Any) -> ReleaseInfo:
        """Read it back; `PlanError` if it is no release's description, of a newer schema, or has others' tables."""
        damage_error = PlanError("the release's metadata is damaged; attach its plan again")
        try:
            data = json.loads(text)
            schema, n, digest, rows = data["schema"], data["n"], data["digest"], data.get("rows")
            plan = json.dumps(data["plan"], ensure_ascii=False)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise damage_error from None
        if type(schema) is not int or type(n) is not int or not isinstance(digest, str) or schema < 1 or n < 0:
            raise damage_error
        if rows is not None and (type(rows) is not int or rows < n):
            raise damage_error
        part, left_out = data.get("part"), data.get("left_out", [])
        if not isinstance(part, str | None) or not isinstance(left_out, list):
            raise damage_error
        if schema > SCHEMA:
            raise PlanError(f"the release has schema {schema}, this version reads up to {SCHEMA}; upgrade dpframe")
        info = cls(Plan.from_json(plan), n, digest, rows, data.get("measured") is True, part=part)
        if not set(map(str, left_out)) <= {*info.plan.names, *info.plan.passthrough}:
            raise damage_error
        info = replace(info, left_out=tuple(map(str, left_out)))
        if data.get("tables") is None:
            return info
        tables = unpacked(data["tables"], info.plan.measures, info.plan.spaces)
        if tables is None or sealed(info.row_digest, tables) != info.digest[16:]:
            raise PlanError(
                "the measured tables are not those of this release: their digest is another; take the description "
                "that the release came with"
            )
        return replace(info, tables=tables)


Starts = tuple[int, ...] | None


def packed(tables: Sequence[MeasuredTable]) -> dict[str, Any]:
    """Return tables as a JSON object: the counts of all, and the cells of numbers that are cut at quantiles."""
    bins = {
        (name, table.measure.most): starts
        for table in tables
        if table.measure.kind == "joint" or table.measure.level > 1
        for name, starts in zip(table.measure.columns, table.starts, strict=True)
        if starts is not None
    }
    counts = np.concatenate([table.counts.ravel() for table in tables])
    zigzag = ((counts << 1) ^ (counts >> 63)).astype("<i8")
    planes = np.ascontiguousarray(zigzag.view(np.uint8).reshape(-1, 8).T).tobytes()
    return {
        "bins": [[name, most, list(starts)] for (name, most), starts in bins.items()],
        "counts": base64.b64encode(zlib.compress(planes)).decode(),
    }


def unpacked(data: Any, measures: Sequence[Measure], spaces: Mapping[str, Space]) -> tuple[MeasuredTable, ...] | None:
    """Read the tables of these measures back; None for anything else."""
    try:
        bins = {(name, most): tuple(starts) for name, most, starts in data["bins"]}
        blob = base64.b64decode(data["counts"], validate=True)
    except (TypeError, KeyError, ValueError, binascii.Error):
        return None
    levels = {(measure.columns[0], measure.most) for measure in measures if measure.level > 1}
    if not all(_are_ascending_codes(starts, key in levels) for key, starts in bins.items()):
        return None
    starts = [_find_starts(measure, spaces, bins) for measure in measures]
    if any(items is None for items in starts):
        return None
    shapes = [_counts_shape(measure, spaces, items or ()) for measure, items in zip(measures, starts, strict=True)]
    numbers = _decode_counts(blob, sum(map(math.prod, shapes)))
    if numbers is None:
        return None
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = np.split(numbers, ends)
    items = zip(measures, starts, parts, shapes, strict=True)
    return tuple(MeasuredTable(m, cells or (), part.reshape(shape)) for m, cells, part, shape in items)


def _are_ascending_codes(starts: Iterable[Any], is_level: bool) -> bool:
    """Return whether these are first codes of cells, or of some of them, as far as that shows without the column."""
    codes = list(starts)
    are_integers = all(type(code) is int for code in codes)
    has_first_code = is_level or bool(codes and codes[0] == 0)
    return bool(are_integers and has_first_code and all(a < b for a, b in pairwise(codes)))


def _find_starts(
    measure: Measure, spaces: Mapping[str, Space], bins: Mapping[tuple[str, int], tuple[int, ...]]
) -> tuple[Starts, ...] | None:
    """Return the cells of a table's columns; None if those of one that is cut at quantiles are not there."""
    if measure.kind in ("sum", "vectors", *OF_SETS):
        return (None,) * len(measure.columns)
    column_starts: list[Starts] = []
    for name in measure.columns:
        space = spaces[name]
        if measure.level > 1:
            parents = bins.get((name, measure.most))
            if parents is None or not _are_cells(parents, space, measure.level - 1):
                return None
            column_starts.append(parents)
        elif measure.kind == "one_way" or not is_cut(space, measure.most):
            column_starts.append(way_starts(measure, space))
        else:
            starts = bins.get((name, measure.most))
            if starts is None or len(starts) > measure.most or starts[-1] >= space.values:
                return None
            column_starts.append(starts)
    return tuple(column_starts)


def _are_cells(parents: Sequence[int], space: Space, level: int) -> bool:
    """Return whether codes are the first ones of cells of a level."""
    size = level_sizes(space)[level - 1]
    return all(0 <= a < space.values and cells_between(space, size, a, a + 1).tolist() == [a] for a in parents) and all(
        a == 0 or stops_of(space, size, [a - 1]).item() == a for a in parents
    )


def _counts_shape(measure: Measure, spaces: Mapping[str, Space], starts: Sequence[Starts]) -> tuple[int, ...]:
    """Return the shape of a table's counts, which fewer cells than the measure allows may have."""
    max_shape = measure.shape(spaces)
    if measure.kind == "vectors":
        return max_shape
    if measure.level > 1:
        return (len(children(spaces[measure.columns[0]], measure.level, starts[0] or ())),)
    columns = zip(measure.columns, starts, max_shape, strict=True)
    return tuple(
        size if cell_starts is None else len(cell_starts) + spaces[name].has_null for name, cell_starts, size in columns
    )


def _decode_counts(blob: bytes, count: int) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return so many counts, or None if there are others."""
    reader = zlib.decompressobj()
    try:
        planes = reader.decompress(blob, 8 * count + 1)
    except zlib.error:
        return None
    if len(planes) != 8 * count or not reader.eof or reader.unused_data:
        return None
    words = np.ascontiguousarray(np.frombuffer(planes, dtype=np.uint8).reshape(8, count).T).view("<u8").ravel()
    words = words.astype(np.uint64)
    return np.asarray((words >> np.uint64(1)).astype(np.int64) ^ -(words & np.uint64(1)).astype(np.int64))
