"""A grey-box audit by replay: neighbouring tables under one key, whose releases may differ in one row and no more.

Noise is a function of key, plan, column and row. So with the key held still, replacing one row of a table may change
one released row, and of measured tables the cells that it counts in; *everything else has to stay*: names, types, the
order of dictionaries, the layout of a file, its metadata, all other rows, warnings. What else changes reveals the row
without any noise. And the same rows in another layout (chunks, row groups, order of a dictionary, an index) have to
give the same release, byte for byte in its values. This finds faults that no count of outcomes would: those that were
found by record and replay in libraries of differential privacy.

Keys are fresh and thrown away, and nothing that was released is kept or written, except for files in a folder that
only the owner can read and that is gone when the audit is; a process that is killed leaves it, with the changed table
in it.
"""

from __future__ import annotations

import json
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, check_whole, name_list
from dpframe.plan.measures import Measure
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.release.planning import raw_frame
from dpframe.spaces import Space
from dpframe.spaces.base import decoded
from dpframe.spaces.cells import ball_of
from dpframe.tables.frames import Frame, without_views
from dpframe.tables.metadata import METADATA_KEY, metadata_text

Face = Callable[[pa.Table, Plan, bytes], Any]
"""Releases an Arrow table under a plan and a key."""

_EDITS_PER_KEY = 25
"""Edits that are released under one key: another key may reveal a fault that one hides by chance."""
_SLOW_FACE, _EDITS_PER_FILE = "files", 8
"""One of so many edits is made to a file as well."""
_MOST_FAILURES = 20
_DERIVED_FIELDS = ("digest", "tables")
"""Fields of a description that follow from the released rows and tables, which are compared themselves."""


@dataclass(frozen=True)
class ReplayAudit:
    """The faults that a replay found: prints as one line for each fault, or a line that it passed.

    ``edits``: neighbouring tables and other layouts that were released, not counting the table itself. ``refused``:
    edits that the plan refused: with declared spaces a refusal depends on the data. ``failures``: each edit, by kind
    and column, and the forbidden change; never a value.
    """

    edits: int
    refused: int
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no edit changed more than it may."""
        return not self.failures

    def __str__(self) -> str:
        refused = f"; {self.refused} were refused, and a refusal that is seen reveals a value" if self.refused else ""
        if self.ok:
            return f"{self.edits} edits: at most one released row differed, and nothing else{refused}"
        shown = [f"- {failure}" for failure in self.failures[:_MOST_FAILURES]]
        return "\n".join([f"{self.edits} edits; {len(self.failures)} changed what must stay{refused}", *shown])


class Edit(NamedTuple):
    """A changed table, with the change in words without values."""

    words: str
    table: pa.Table
    row: int | None
    """The replaced row; None if equal rows have another layout."""


def replayed(
    table: Any,
    plan: Plan,
    faces: Mapping[str, Face],
    edits: int = 200,
    random_state: int | None = None,
) -> ReplayAudit:
    """Release neighbouring tables under one key through each face, and report differences that must not be.

    Raises as `dpframe.audit`, which calls it.
    """
    check_whole(edits, "edits", of="changed tables")
    arrow_table = _to_arrow(table, raw_frame(table, plan, "audit"))
    if plan.privacy_id is not None:
        raise ParameterError("plan chooses rows by privacy_id, in secret and anew each time; audit one without it")
    if not arrow_table.num_rows or not plan.columns:
        raise ParameterError("there is nothing to replay: the table has no rows, or the plan randomises no column")
    rng = np.random.default_rng(random_state)
    failures: list[str] = []
    refused, edited_tables = 0, _generate_edits(arrow_table, plan, rng)
    for count in range(edits):
        if count % _EDITS_PER_KEY == 0:
            key = secrets.token_bytes(32)
            with warnings.catch_warnings(action="ignore"):
                baselines = {name: _Observation.of(face, arrow_table, plan, key) for name, face in faces.items()}
        edit = next(edited_tables)
        for name in [name for name in faces if name != _SLOW_FACE or count % _EDITS_PER_FILE == 0]:
            try:
                observation = _Observation.of(faces[name], edit.table, plan, key)
            except ColumnError:
                # An edit counts once, however many faces would refuse the edited table.
                refused += 1
                break
            failures += [
                f"{edit.words}, {name}: {difference}"
                for difference in baselines[name].changed(observation, plan, edit.row)
            ]
    return ReplayAudit(edits, refused, tuple(dict.fromkeys(failures)))


def _to_arrow(table: Any, frame: Frame) -> pa.Table:
    if isinstance(table, pa.Table):
        return table.replace_schema_metadata(None)
    # The chunks of the frame are kept: a layout may show in a release.
    arrow = pa.table({name: pa.chunked_array(list(frame.arrays(name))) for name in frame.names})
    return without_views(arrow)


@dataclass(frozen=True)
class _Observation:
    """A release, and everything about it that somebody may look at."""

    table: pa.Table
    facts: Mapping[str, Any]
    info: ReleaseInfo

    @classmethod
    def of(cls, face: Face, table: pa.Table, plan: Plan, key: bytes) -> _Observation:
        with warnings.catch_warnings(record=True, action="always") as caught_warnings:
            released = face(table, plan, key)
        facts: dict[str, Any] = {"warnings": Counter((w.category.__name__, str(w.message)) for w in caught_warnings)}
        if isinstance(released, pa.Table):
            text, arrow = metadata_text(released.schema.metadata), released
            other_metadata = {
                k: v for k, v in (released.schema.metadata or {}).items() if METADATA_KEY.encode() not in v
            }
            facts["other metadata"] = {k: v for k, v in other_metadata.items() if k != METADATA_KEY.encode()}
        else:
            text, index = released.attrs[METADATA_KEY], released.index
            facts["index"] = (index.name, str(index.dtype), index.tolist())
            facts["other metadata"] = {k: v for k, v in released.attrs.items() if k != METADATA_KEY}
            arrow = pa.Table.from_pandas(released.set_axis(range(len(released))), preserve_index=False)
            arrow = arrow.replace_schema_metadata(None)
        facts["names"] = arrow.column_names
        facts["types"] = [(str(field.type), field.nullable) for field in arrow.schema]
        facts["layout"] = [[len(chunk) for chunk in column.chunks] for column in arrow.columns]
        assert text is not None
        facts["description"] = {k: v for k, v in json.loads(text).items() if k not in _DERIVED_FIELDS}
        return cls(arrow, facts, ReleaseInfo.from_json(text))

    def changed(self, other: _Observation, plan: Plan, row: int | None) -> Iterator[str]:
        """Yield a line for each difference that must not be."""
        yield from (f"{fact} changed" for fact in self.facts if self.facts[fact] != other.facts[fact])
        if self.table.column_names == other.table.column_names and len(self.table) == len(other.table):
            pairs = [(a, b) for a, b in zip(self.table.columns, other.table.columns, strict=True) if a.type == b.type]
            if any(_is_reordered(a, b) for a, b in pairs):
                yield "order of a dictionary changed"
            rows = {place for a, b in pairs for place in _differing_places(_decode_flat(a), _decode_flat(b), 0, 2)}
            allowed_rows = 0 if row is None else 1
            if len(rows) > allowed_rows:
                yield f"{'more than one' if len(rows) > 1 else 'a'} released row changed"
        for first_table, second_table in zip(self.info.tables, other.info.tables, strict=False):
            if row is not None and first_table.starts != second_table.starts:
                continue  # where numbers are cut follows from noisy counts measured before
            count_change_limit = 0 if row is None else _largest_count_change(first_table.measure, plan)
            if (
                first_table.starts != second_table.starts
                or np.abs(first_table.counts - second_table.counts).sum() > count_change_limit
            ):
                yield (
                    f"the measured table of {name_list(first_table.measure.columns)} changed by more than a "
                    "row counts for"
                )


def _is_reordered(first_column: pa.ChunkedArray, second_column: pa.ChunkedArray) -> bool:
    """Return whether two released dictionaries differ by more than the released values that make them."""
    if not pa.types.is_dictionary(first_column.type) or first_column.num_chunks != second_column.num_chunks:
        return False
    pairs = list(zip(first_column.chunks, second_column.chunks, strict=True))
    has_equal_entries = all(a.dictionary.equals(b.dictionary) for a, b in pairs)
    # Released values make entries that are in the order in which they first appear.
    return not has_equal_entries and not all(
        chunk.indices.drop_null().unique().to_pylist() == list(range(len(chunk.dictionary)))
        for pair in pairs
        for chunk in pair
    )


def _largest_count_change(measure: Measure, plan: Plan) -> int:
    """Return by how much one row may change the counts of a measured table, in all."""
    space = plan[measure.columns[0]].space
    if measure.kind == "vectors":
        ball = ball_of(space)
        return 4 * (ball.length + 1) * ball.unit
    noise = measure.noise({measure.columns[0]: space})
    return noise.numbers * noise.span


def _decode_flat(column: pa.ChunkedArray) -> pa.Array:
    return decoded(column.combine_chunks())


def _differing_places(a: pa.Array, b: pa.Array, offset: int, max_places: int) -> list[int]:
    """Return the places at which two arrays differ, so many at the most, by halving."""
    # Equal halves end at once, so that long columns with one changed row are fast.
    if a.equals(b):
        return []
    if len(a) <= 1:
        return [offset]
    half = len(a) // 2
    places = _differing_places(a.slice(0, half), b.slice(0, half), offset, max_places)
    if len(places) < max_places:
        places += _differing_places(a.slice(half), b.slice(half), offset + half, max_places - len(places))
    return places


def _generate_edits(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Iterator[Edit]:
    """Yield changed tables without end, kinds taking turns."""
    kinds = [
        _copy_other_row,
        _draw_random_row,
        _place_extreme_value,
        _copy_other_row,
        _draw_random_row,
        _place_extreme_value,
        _change_layout,
    ]
    while True:
        for kind in kinds:
            yield kind(table, plan, rng)


def _replace_row(table: pa.Table, row: int, values: Mapping[str, pa.Array]) -> pa.Table:
    for name, value in values.items():
        column = table.column(name)
        plain = value.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else value.cast(column.type)
        flat = _decode_flat(column)
        joined = pa.concat_arrays([flat.slice(0, row), plain.cast(flat.type), flat.slice(row + 1)])
        if pa.types.is_dictionary(column.type):
            joined = joined.dictionary_encode()
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), joined.cast(column.type))
    return table


def _copy_other_row(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    row, other_row = (int(index) for index in rng.integers(0, table.num_rows, 2))
    values = {name: _decode_flat(table.column(name)).slice(other_row, 1) for name in plan.names}
    return Edit("a row replaced by another one's values", _replace_row(table, row, values), row)


def _draw_random_row(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    row, values = int(rng.integers(0, table.num_rows)), {}
    for column in plan.columns:
        random_value = _draw_value(column.space, table.schema.field(column.name).type, rng)
        if random_value is not None:
            values[column.name] = random_value
    return Edit("a row replaced by random values", _replace_row(table, row, values), row)


def _draw_value(space: Space, type_: pa.DataType, rng: np.random.Generator) -> pa.Array | None:
    """Return a random value of a space, as a column of a type has it; None if the type cannot hold it."""
    bits = max(1, (space.size - 1).bit_length())
    code = int.from_bytes(rng.bytes(bits // 8 + 8), "little") % space.size
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    try:
        return space.decode(space.code_array([code])).cast(plain)
    except (pa.ArrowException, ColumnError):
        return None


def _place_extreme_value(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    """Replace one value by an extreme one: null, a number far out, a text that no one declared, an empty set."""
    row, column = int(rng.integers(0, table.num_rows)), plan.columns[int(rng.integers(0, len(plan.columns)))]
    field = table.schema.field(column.name)
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    types = pa.types
    extreme_values: list[Any] = [None] if field.nullable else [table.column(column.name)[row].as_py()]
    if types.is_floating(plain):
        extreme_values += [float("nan"), float("inf"), -1e300]
    elif types.is_integer(plain):
        extreme_values += [0, 2 ** (plain.bit_width - 1) - 1]
    elif types.is_string(plain) or types.is_large_string(plain):
        extreme_values += ["", "a text that no one declared " * 40]
    elif types.is_list(plain) or types.is_large_list(plain):
        extreme_values += [[], [None]]
    value = extreme_values[int(rng.integers(0, len(extreme_values)))]
    # With `from_pandas` a NaN would become a null, which is another edit.
    value_array = pa.array([value], plain, from_pandas=False)
    kind = "null" if value is None else "an extreme value"
    return Edit(f"{kind} in column {column.name!r}", _replace_row(table, row, {column.name: value_array}), row)


def _change_layout(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    """Return equal rows in other chunks, which a file has as row groups, with dictionaries in another order."""
    chunk_end = int(rng.integers(1, table.num_rows)) if table.num_rows > 1 else 1
    columns = []
    for name in table.column_names:
        array = table.column(name).combine_chunks()
        if name in plan.names and pa.types.is_dictionary(array.type) and not array.type.ordered:
            reversed_entries = array.dictionary.take(pa.array(range(len(array.dictionary))[::-1]))
            indices = pc.subtract(len(array.dictionary) - 1, array.indices.cast(pa.int64())).cast(array.type.index_type)
            array = pa.DictionaryArray.from_arrays(indices, reversed_entries)
        columns.append(pa.chunked_array([array.slice(0, chunk_end), array.slice(chunk_end)]))
    return Edit("the same rows in another layout", pa.table(columns, schema=table.schema), None)
