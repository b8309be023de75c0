"""A grey-box audit by replay: neighbouring tables under one key, whose releases may differ in one row and no more.

Noise is a function of key, plan, column and row. So with the key held still, replacing one row of a table may change
one released row, and of measured tables the cells that it counts in; *everything else has to stay*: names, types, the
order of dictionaries, the layout of a file, its metadata, all other rows, warnings. What else changes reveals the row
without any noise. And the same rows in another layout (chunks, row groups, order of a dictionary, an index) have to
give the same release, byte for byte in its values. This finds what no count of outcomes would: the faults that were
found by record and replay in libraries of differential privacy.

Keys are fresh and thrown away, and nothing that was released is kept or written, except for files in a folder that
only the owner can read and that is gone when the audit is; a process that is killed leaves it, with the changed table
in it.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpframe.api.planning import raw_frame
from dpframe.api.verbs import sanitize
from dpframe.errors import ColumnError, ParameterError, check_whole, name_list
from dpframe.plan.measures import Measure
from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.spaces.base import decoded
from dpframe.spaces.cells import ball_of
from dpframe.tables.frames import Frame, without_views
from dpframe.tables.info import METADATA_KEY, ReleaseInfo, metadata_text

_NULLABLE: dict[pa.DataType, Any] = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}
"""Dtypes that hold nulls as they are."""

Face = Callable[[pa.Table, Plan, bytes], Any]
"""Releases an Arrow table under a plan and a key."""

_EACH_KEY = 25
"""Edits that are released under one key: what one key hides by chance another shows."""
_SLOW, _FILES = "files", 8
"""One of so many edits is made to a file as well."""
_MOST_FAILURES = 20
_LEFT = ("digest", "tables")
"""What of a description follows from the released rows and tables, which are compared themselves."""


@dataclass(frozen=True)
class ReplayAudit:
    """What a replay found: prints as one line for each fault, or a line that it passed.

    ``edits``: neighbouring tables and other layouts that were released, not counting the table itself. ``refused``:
    edits that the plan refused: with declared spaces a refusal depends on the data. ``failures``: each edit, by kind
    and column, and what changed that must not; never a value.
    """

    edits: int
    refused: int
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing changed but what may."""
        return not self.failures

    def __str__(self) -> str:
        refused = f"; {self.refused} were refused, and a refusal that is seen reveals a value" if self.refused else ""
        if self.ok:
            return f"{self.edits} edits: at most one released row differed, and nothing else{refused}"
        shown = [f"- {failure}" for failure in self.failures[:_MOST_FAILURES]]
        return "\n".join([f"{self.edits} edits; {len(self.failures)} changed what must stay{refused}", *shown])


class Edit(NamedTuple):
    """A changed table: what was changed, in words without values, and the table."""

    words: str
    table: pa.Table
    row: int | None
    """The row that was replaced; None where rows are the same in another layout."""


def replayed(
    table: Any,
    plan: Plan,
    edits: int = 200,
    random_state: int | None = None,
    faces: Mapping[str, Face] | None = None,
) -> ReplayAudit:
    """Release neighbouring tables under one key, and report differences that must not be.

    Raises as `dpframe.audit`, which calls it.
    """
    check_whole(edits, "edits", of="changed tables")
    whole = _arrow(table, raw_frame(table, plan, "audit"))
    if plan.privacy_id is not None:
        raise ParameterError("plan chooses rows by privacy_id, in secret and anew each time; audit one without it")
    if not whole.num_rows or not plan.columns:
        raise ParameterError("there is nothing to replay: the table has no rows, or the plan randomises no column")
    rng, chosen = np.random.default_rng(random_state), faces or FACES
    failures: list[str] = []
    refused, made = 0, _edits(whole, plan, rng)
    for count in range(edits):
        if count % _EACH_KEY == 0:
            key = secrets.token_bytes(32)
            with warnings.catch_warnings(action="ignore"):
                first = {name: _Observed.of(face, whole, plan, key) for name, face in chosen.items()}
        edit = next(made)
        for name in [name for name in chosen if name != _SLOW or count % _FILES == 0]:
            try:
                seen = _Observed.of(chosen[name], edit.table, plan, key)
            except ColumnError:
                refused += 1
                break
            failures += [f"{edit.words}, {name}: {what}" for what in first[name].changed(seen, plan, edit.row)]
    return ReplayAudit(edits, refused, tuple(dict.fromkeys(failures)))


def _arrow(table: Any, frame: Frame) -> pa.Table:
    if isinstance(table, pa.Table):
        return table.replace_schema_metadata(None)
    arrow = pa.table({name: pa.chunked_array(list(frame.arrays(name))) for name in frame.names})
    return without_views(arrow)


def _in_memory(table: pa.Table, plan: Plan, key: bytes) -> Any:
    return sanitize(table, plan=plan, key=key)


def _in_pandas(table: pa.Table, plan: Plan, key: bytes) -> Any:
    # Of other dtypes one null would make floats of whole numbers, which is the frame's schema, not its release.
    return sanitize(table.to_pandas(types_mapper=_NULLABLE.get), plan=plan, key=key)


def _in_files(table: pa.Table, plan: Plan, key: bytes) -> Any:
    with tempfile.TemporaryDirectory(prefix="dpframe-audit-") as folder:
        source, target = Path(folder) / "in.parquet", Path(folder) / "out.parquet"
        pq.write_table(table, source, row_group_size=max(1, len(table.column(0).chunk(0)) if table.num_columns else 1))
        sanitize(source, target, plan=plan, key=key)
        file = pq.ParquetFile(target)
        read, groups = file.read(), [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        file.close()
        metadata = {**(read.schema.metadata or {}), b"row groups": json.dumps(groups).encode()}
        return read.replace_schema_metadata(metadata)


FACES: Mapping[str, Face] = {"memory": _in_memory, "pandas": _in_pandas, "files": _in_files}
"""What is audited where nothing else is said."""


@dataclass(frozen=True)
class _Observed:
    """A release, and everything about it that somebody may look at."""

    table: pa.Table
    facts: Mapping[str, Any]
    info: ReleaseInfo

    @classmethod
    def of(cls, face: Face, table: pa.Table, plan: Plan, key: bytes) -> _Observed:
        with warnings.catch_warnings(record=True, action="always") as told:
            released = face(table, plan, key)
        facts: dict[str, Any] = {"warnings": Counter((w.category.__name__, str(w.message)) for w in told)}
        if isinstance(released, pa.Table):
            text, arrow = metadata_text(released.schema.metadata), released
            others = {k: v for k, v in (released.schema.metadata or {}).items() if METADATA_KEY.encode() not in v}
            facts["other metadata"] = {k: v for k, v in others.items() if k != METADATA_KEY.encode()}
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
        facts["description"] = {k: v for k, v in json.loads(text).items() if k not in _LEFT}
        return cls(arrow, facts, ReleaseInfo.from_json(text))

    def changed(self, other: _Observed, plan: Plan, row: int | None) -> Iterator[str]:
        """Yield what differs that must not."""
        yield from (f"{fact} changed" for fact in self.facts if self.facts[fact] != other.facts[fact])
        if self.table.column_names == other.table.column_names and len(self.table) == len(other.table):
            pairs = [(a, b) for a, b in zip(self.table.columns, other.table.columns, strict=True) if a.type == b.type]
            if any(_reordered(a, b) for a, b in pairs):
                yield "order of a dictionary changed"
            rows = {at for a, b in pairs for at in _different(_flat(a), _flat(b), 0, 2)}
            allowed = 0 if row is None else 1
            if len(rows) > allowed:
                yield f"{'more than one' if len(rows) > 1 else 'a'} released row changed"
        for one, two in zip(self.info.tables, other.info.tables, strict=False):
            if row is not None and one.starts != two.starts:
                continue  # where numbers are cut follows from noisy counts measured before
            most = 0 if row is None else _most(one.measure, plan)
            if one.starts != two.starts or np.abs(one.counts - two.counts).sum() > most:
                yield f"the measured table of {name_list(one.measure.columns)} changed by more than a row counts for"


def _reordered(one: pa.ChunkedArray, two: pa.ChunkedArray) -> bool:
    """Return whether two released dictionaries differ by more than the released values that make them."""
    if not pa.types.is_dictionary(one.type) or one.num_chunks != two.num_chunks:
        return False
    pairs = list(zip(one.chunks, two.chunks, strict=True))
    alike = all(a.dictionary.equals(b.dictionary) for a, b in pairs)
    # The released values alone make entries that are in the order in which they first appear.
    return not alike and not all(
        chunk.indices.drop_null().unique().to_pylist() == list(range(len(chunk.dictionary)))
        for pair in pairs
        for chunk in pair
    )


def _most(measure: Measure, plan: Plan) -> int:
    """Return by how much one row may change the counts of a measured table, in all."""
    space = plan[measure.columns[0]].space
    if measure.kind == "vectors":
        ball = ball_of(space)
        return 4 * (ball.length + 1) * ball.unit
    noise = measure.noise({measure.columns[0]: space})
    return noise.numbers * noise.span


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return decoded(column.combine_chunks())


def _different(a: pa.Array, b: pa.Array, first: int, most: int) -> list[int]:
    """Return the places at which two arrays differ, so many at the most, by halving."""
    if a.equals(b):
        return []
    if len(a) <= 1:
        return [first]
    half = len(a) // 2
    found = _different(a.slice(0, half), b.slice(0, half), first, most)
    if len(found) < most:
        found += _different(a.slice(half), b.slice(half), first + half, most - len(found))
    return found


def _edits(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Iterator[Edit]:
    """Yield changed tables without end, kinds taking turns."""
    kinds = [_another_row, _random_row, _extreme_value, _another_row, _random_row, _extreme_value, _layout]
    while True:
        for kind in kinds:
            yield kind(table, plan, rng)


def _replaced(table: pa.Table, row: int, values: Mapping[str, pa.Array]) -> pa.Table:
    for name, value in values.items():
        column = table.column(name)
        plain = value.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else value.cast(column.type)
        flat = _flat(column)
        joined = pa.concat_arrays([flat.slice(0, row), plain.cast(flat.type), flat.slice(row + 1)])
        if pa.types.is_dictionary(column.type):
            joined = joined.dictionary_encode()
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), joined.cast(column.type))
    return table


def _another_row(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    row, other = (int(x) for x in rng.integers(0, table.num_rows, 2))
    values = {name: _flat(table.column(name)).slice(other, 1) for name in plan.names}
    return Edit("a row replaced by another one's values", _replaced(table, row, values), row)


def _random_row(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    row, values = int(rng.integers(0, table.num_rows)), {}
    for column in plan.columns:
        drawn = _drawn(column.space, table.schema.field(column.name).type, rng)
        if drawn is not None:
            values[column.name] = drawn
    return Edit("a row replaced by random values", _replaced(table, row, values), row)


def _drawn(space: Space, type_: pa.DataType, rng: np.random.Generator) -> pa.Array | None:
    """Return a random value of a space, as a column of a type has it; None where the type cannot hold it."""
    bits = max(1, (space.size - 1).bit_length())
    code = int.from_bytes(rng.bytes(bits // 8 + 8), "little") % space.size
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    try:
        return space.decode(space.code_array([code])).cast(plain)
    except (pa.ArrowException, ColumnError):
        return None


def _extreme_value(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    """Replace one value by what rows seldom hold: null, a number far out, a text that no one declared, an empty set."""
    row, column = int(rng.integers(0, table.num_rows)), plan.columns[int(rng.integers(0, len(plan.columns)))]
    field = table.schema.field(column.name)
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    t = pa.types
    odd: list[Any] = [None] if field.nullable else [table.column(column.name)[row].as_py()]
    if t.is_floating(plain):
        odd += [float("nan"), float("inf"), -1e300]
    elif t.is_integer(plain):
        odd += [0, 2 ** (plain.bit_width - 1) - 1]
    elif t.is_string(plain) or t.is_large_string(plain):
        odd += ["", "a text that no one declared " * 40]
    elif t.is_list(plain) or t.is_large_list(plain):
        odd += [[], [None]]
    value = odd[int(rng.integers(0, len(odd)))]
    made = pa.array([value], plain, from_pandas=False)
    kind = "null" if value is None else "an extreme value"
    return Edit(f"{kind} in column {column.name!r}", _replaced(table, row, {column.name: made}), row)


def _layout(table: pa.Table, plan: Plan, rng: np.random.Generator) -> Edit:
    """Return the same rows in other chunks, which a file has as row groups, with dictionaries in another order."""
    cut = int(rng.integers(1, table.num_rows)) if table.num_rows > 1 else 1
    columns = []
    for name in table.column_names:
        array = table.column(name).combine_chunks()
        if name in plan.names and pa.types.is_dictionary(array.type) and not array.type.ordered:
            turned = array.dictionary.take(pa.array(range(len(array.dictionary))[::-1]))
            indices = pc.subtract(len(array.dictionary) - 1, array.indices.cast(pa.int64())).cast(array.type.index_type)
            array = pa.DictionaryArray.from_arrays(indices, turned)
        columns.append(pa.chunked_array([array.slice(0, cut), array.slice(cut)]))
    return Edit("the same rows in another layout", pa.table(columns, schema=table.schema), None)
