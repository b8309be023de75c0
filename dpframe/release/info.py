"""The description of a release.

Measured tables are compact binary in JSON: only counts and quantiles, as the plan has everything else. Counts
are written as zigzag numbers, all lowest bytes first, then the next ones: high bytes are zeros, which zlib compresses
to nearly nothing. A count takes about one byte and a half then, and a third more in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dpframe.errors import PlanError, name_list
from dpframe.plan.data import PLAN_SCHEMA_VERSION
from dpframe.plan.explanation import person_lines
from dpframe.plan.levels import cells_between, children, level_sizes, stops_of
from dpframe.plan.measures import OF_SETS, Measure, MeasuredTable, way_starts
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.words import KEPT, mind_lines, promise_line
from dpframe.release.library import Library
from dpframe.release.rows import sealed
from dpframe.release.together import Together
from dpframe.spaces import Space
from dpframe.spaces.cells import is_cut
from dpframe.spaces.json_form import to_object

NUMBERS = 'Numbers: .dp.mean("…"), .dp.value_counts("…"); plain pandas on noisy rows is biased. More: .dp.explain()'
"""The last line, for frames."""


@dataclass(frozen=True)
class ReleaseExplanation:
    """The promise of a release in detail; prints as text, and shows as HTML in a notebook.

    ``person``: the meaning of the promise for one person, in sentences; ``details``: both guarantees, the order of the
    rows, the measurements of inference and tables, and the cost of each.
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
    """The description of a release: its plan, its number of rows and its digest.

    ``rows`` is the number of rows of the table, if the released rows are a sample. ``measured`` means that the plan's
    inferred values were measured on this table. ``tables`` are the noisy counts of the plan's
    measures, in their order, or none: then only the rows are evidence. ``part`` is the part of a ledger's dataset whose
    rows these are: the promise holds for all parts together only if no person is in two parts. ``left_out``
    are the plan's columns that the table no longer has, where `dpframe.write` stored some columns of a release: the
    digest is that of the others. ``library`` made the release; earlier versions did not say. ``together`` has the
    promise of several tables that were released together, this one among them.
    """

    plan: Plan
    n: int
    digest: str
    rows: int | None = None
    measured: bool = False
    tables: tuple[MeasuredTable, ...] = ()
    part: str | None = None
    left_out: tuple[str, ...] = ()
    library: Library | None = None
    together: Together | None = None

    def __repr__(self) -> str:
        return "\n".join([f"<{self.introduction}>", *self.lines(), "More: .explain()"])

    @property
    def introduction(self) -> str:
        """The number of rows and of randomised columns, and the number of columns in the table."""
        count = len(self.plan.columns)
        present_count = sum(name not in self.left_out for name in self.plan.names)
        count_text = f"{count}" if present_count == count else f"{present_count} of {count}"
        return f"a release of {self.title}, {count_text} randomised column{'' if count == 1 else 's'}"

    @property
    def title(self) -> str:
        """The number of rows, and the name of their part of the dataset."""
        rows = f"{self.n:,} row" + "s" * (self.n != 1)
        return rows + ("" if self.part is None else f" (part {name_list([self.part])} of its dataset)")

    def lines(self) -> list[str]:
        """Return the promise, and a line for each unprotected column and each failed inference."""
        together = [] if self.together is None else [self.together.line]
        return [*together, promise_line(self.plan), *mind_lines(self.plan, self.left_out)]

    def explain(self) -> ReleaseExplanation:
        """Return the meaning of the promise for one person, and its details; prints as text.

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
        together = () if self.together is None else (self.together.line,)
        return ReleaseExplanation((*together, *person_lines(self.plan)), tuple(self.plan.lines()))

    @property
    def row_digest(self) -> str:
        """The part of the digest for the rows; the part for the measured tables follows."""
        return self.digest[:16]

    def to_json(self) -> str:
        """Return JSON text with a schema number; measured counts take a few bytes each, in base64."""
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
        if self.library is not None:
            data["library"] = to_object(self.library)
        if self.together is not None:
            data["together"] = self.together.to_json()
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: Any) -> ReleaseInfo:
        """Read a description from JSON text.

        Raises `PlanError` if the text is no description, has a newer schema, or has tables of another release."""
        damage_error = PlanError("the release's metadata is damaged; attach its plan again")
        try:
            data = json.loads(text)
            schema, n, digest, rows = data["schema"], data["n"], data["digest"], data.get("rows")
            plan = json.dumps(data["plan"], ensure_ascii=False)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise damage_error from None
        # JSON's true becomes `True`, which `isinstance` takes for an int.
        if type(schema) is not int or type(n) is not int or not isinstance(digest, str) or schema < 1 or n < 0:
            raise damage_error
        if rows is not None and (type(rows) is not int or rows < n):
            raise damage_error
        part, left_out = data.get("part"), data.get("left_out", [])
        if not isinstance(part, str | None) or not isinstance(left_out, list):
            raise damage_error
        if schema > PLAN_SCHEMA_VERSION:
            raise PlanError(
                f"the release has schema {schema}, this version reads up to {PLAN_SCHEMA_VERSION}; upgrade dpframe"
            )
        info = cls(Plan.from_json(plan), n, digest, rows, data.get("measured") is True, part=part)
        if not set(map(str, left_out)) <= {*info.plan.names, *info.plan.passthrough}:
            raise damage_error
        library = None if data.get("library") is None else Library.from_json(data["library"])
        together = None if data.get("together") is None else Together.from_json(data["together"])
        info = replace(info, left_out=tuple(map(str, left_out)), library=library, together=together)
        if data.get("tables") is None:
            return info
        tables = unpacked(data["tables"], info.plan.measures, info.plan.counted_spaces)
        if tables is None or sealed(info.row_digest, tables) != info.digest[16:]:
            raise PlanError(
                "the measured tables are not those of this release: their digest is another; take the description "
                "that the release came with"
            )
        return replace(info, tables=tables)


Starts = tuple[int, ...] | None


def packed(tables: Sequence[MeasuredTable]) -> dict[str, Any]:
    """Return tables as a JSON object: all counts, and the quantile cells of numbers."""
    # The cells of other tables follow from the plan; only cuts at noisy quantiles have to be stored.
    bins = {
        (name, table.measure.most): starts
        for table in tables
        if table.measure.kind in ("joint", "weights") or table.measure.level > 1
        for name, starts in zip(table.measure.columns, table.starts, strict=True)
        if starts is not None
    }
    counts = np.concatenate([table.counts.ravel() for table in tables])
    # Zigzag maps small negative counts to small numbers, so that high bytes are zeros.
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
    """Return whether codes can be the first codes of cells: ascending integers, from 0 unless of a level."""
    codes = list(starts)
    are_integers = all(type(code) is int for code in codes)
    has_first_code = is_level or bool(codes and codes[0] == 0)
    return bool(are_integers and has_first_code and all(a < b for a, b in pairwise(codes)))


def _find_starts(
    measure: Measure, spaces: Mapping[str, Space], bins: Mapping[tuple[str, int], tuple[int, ...]]
) -> tuple[Starts, ...] | None:
    """Return the cells of a table's columns; None if a column's quantile cells are missing or invalid."""
    if measure.kind in ("sum", "vectors", *OF_SETS):
        return (None,) * len(measure.columns)
    column_starts: list[Starts] = []
    is_of_weights = measure.kind == "weights"
    column_starts += [None] * is_of_weights
    for name in measure.columns[is_of_weights:]:
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
    """Return whether codes are the first codes of a level's cells."""
    size = level_sizes(space)[level - 1]
    return all(0 <= a < space.values and cells_between(space, size, a, a + 1).tolist() == [a] for a in parents) and all(
        a == 0 or stops_of(space, size, [a - 1]).item() == a for a in parents
    )


def _counts_shape(measure: Measure, spaces: Mapping[str, Space], starts: Sequence[Starts]) -> tuple[int, ...]:
    """Return the shape of a table's counts, which may be smaller than the measure's shape."""
    max_shape = measure.shape(spaces)
    if measure.kind == "vectors":
        return max_shape
    if measure.level > 1:
        return (len(children(spaces[measure.columns[0]], measure.level, starts[0] or ())),)
    is_of_weights = measure.kind == "weights"
    columns = zip(measure.columns[is_of_weights:], starts[is_of_weights:], max_shape, strict=True)
    return tuple(
        size if cell_starts is None else len(cell_starts) + spaces[name].flag_codes
        for name, cell_starts, size in columns
    )


def _decode_counts(blob: bytes, count: int) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return the decompressed counts; None if their number is not ``count``."""
    reader = zlib.decompressobj()
    try:
        # One byte more than necessary reveals data that is too long, without the whole of a zip bomb.
        planes = reader.decompress(blob, 8 * count + 1)
    except zlib.error:
        return None
    if len(planes) != 8 * count or not reader.eof or reader.unused_data:
        return None
    words = np.ascontiguousarray(np.frombuffer(planes, dtype=np.uint8).reshape(8, count).T).view("<u8").ravel()
    words = words.astype(np.uint64)
    return np.asarray((words >> np.uint64(1)).astype(np.int64) ^ -(words & np.uint64(1)).astype(np.int64))
