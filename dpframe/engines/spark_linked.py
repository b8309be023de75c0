"""Linked tables as Spark frames: checks of their keys, joined rows, and releases.

A row is known by its position in the order of its table's files. Kept rows and noise follow from these positions, so
that a release has the bytes of one in memory. Spark counts and joins, and no row passes through the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf

from dpframe.engines.job import run_first_pass
from dpframe.engines.shipped import pack_task
from dpframe.engines.spark import SparkTable, address_by_file, empty_template, quote_column, use_this_python
from dpframe.engines.spark_tasks import FILE, ROW, SparkReader
from dpframe.errors import AlreadySanitizedError, ParameterError
from dpframe.release.job import Ready
from dpframe.tables.joined import (
    NULL_KEY,
    REPEATED,
    ChildLink,
    LinkedTables,
    find_parent,
    orphan_rule,
    row_error,
    row_tags,
)

PERSON, TURN, TAG, FIRST = "__dpframe_person", "__dpframe_turn", "__dpframe_tag", "__dpframe_first"
"""Columns of a row's person, of its place among the person's kept rows, of its tag, and of its file's first row."""

SIGN_BIT = np.uint64(1 << 63)
"""Difference between unsigned words and signed ones of the same order (theory)."""


@dataclass(frozen=True)
class TagRows:
    """Adds the secret tags of child rows to batches of their persons and positions, as signed numbers of one order."""

    key: bytes = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with tags."""
        for batch in batches:
            tags = row_tags(self.key, np.asarray(batch.column(ROW)).astype(np.uint64), batch.num_rows)
            columns = [*batch.columns, pa.array((tags ^ SIGN_BIT).view(np.int64))]
            yield pa.RecordBatch.from_arrays(columns, names=[PERSON, ROW, TAG])


@dataclass(frozen=True)
class SparkChild(ChildLink):
    """A child table whose frame has its ``columns``, the person and the position of each row; ``n`` rows."""

    n: int

    def choose(self, key: bytes) -> Any:
        """Return the kept rows of each person, with their places: the person's rows of the least tags."""
        rows = self.frame.select(PERSON, ROW)
        schema = f"{PERSON} {rows.schema[PERSON].dataType.simpleString()}, {ROW} long, {TAG} long"
        places = sf.row_number().over(Window.partitionBy(PERSON).orderBy(TAG, ROW)) - 1
        tags = rows.mapInArrow(pack_task(TagRows(key)), schema).withColumn(TURN, places)
        return self.frame.join(tags.where(sf.col(TURN) < self.rows).select(ROW, TURN, TAG), ROW)


@dataclass(frozen=True)
class LinkedSparkFrames(LinkedTables[SparkChild]):
    """Linked tables of Spark frames, each with the person and the position of a row; see `link`."""

    persons: int

    @property
    def n(self) -> int:
        """The number of persons, which is public."""
        return self.persons

    def _to_table(self, frame: Any, names: Collection[str], n: int) -> SparkTable:
        """Return a frame whose column of rows has their positions as a table."""
        names, frame = list(names), frame.withColumn(FILE, sf.lit(0).cast("long"))
        template = empty_template(frame.select(*map(quote_column, names)))
        return SparkTable(template, n, SparkReader(names, {0: 0}), frame.sparkSession, frame, by_id=False)

    def child_table(self, child: SparkChild) -> SparkTable:
        """Return all rows of a child table without the key."""
        return self._to_table(child.frame, child.columns, child.n)

    def parents_table(self) -> SparkTable:
        """Return the parents' rows with the number of rows in each child table, without the key."""
        return self._to_table(self._parents(), [*self.columns, *(child.count_name for child in self.children)], self.n)

    def _parents(self) -> Any:
        frame = self.frame
        for child in self.children:
            rows = child.frame.groupBy(PERSON).agg(sf.count("*").alias(child.count_name))
            count = sf.least(sf.coalesce(quote_column(child.count_name), sf.lit(0)), sf.lit(child.most))
            frame = frame.join(rows, PERSON, "left").withColumn(child.count_name, count.cast("long"))
        return frame

    def joined_table(self, child: SparkChild, context: Mapping[str, str], key: bytes) -> SparkTable:
        """Return the kept rows of every person with columns of the parents' table, {new name: its name there}."""
        turns = sf.explode(sf.sequence(sf.lit(0), sf.lit(child.rows - 1))).alias(TURN)
        parents_columns = [quote_column(source).alias(name) for name, source in context.items()]
        slots = self._parents().select(*parents_columns, PERSON, sf.col(ROW).alias(FIRST), turns)
        chosen_rows = child.choose(key).select(*map(quote_column, child.columns), PERSON, TURN, TAG)
        flags = [sf.col(TAG).isNotNull().alias(name) for name in child.flags]
        place = (sf.col(FIRST) * child.rows + sf.col(TURN)).alias(ROW)
        columns = [*map(quote_column, child.columns), *flags, *map(quote_column, context), place]
        joined_rows = slots.join(chosen_rows, [PERSON, TURN], "left").select(*columns)
        return self._to_table(joined_rows, [*child.columns, *child.flags, *context], self.n * child.rows)

    def drop_columns(self, table: Any, names: Collection[str]) -> SparkTable:
        """Return one of these tables without some columns."""
        selected_names = [name for name in table.names if name not in names]
        selected: SparkTable = table.only(selected_names)
        return replace(selected, template=empty_template(table.frame.select(*map(quote_column, selected_names))))


def link(
    tables: Mapping[str, Any],
    keys: Mapping[str, Mapping[str, str]],
    contributions: Mapping[str, int],
    most: Mapping[str, int],
    orphans: str,
) -> LinkedSparkFrames:
    """Return Spark frames of files with the links of their rows; see `tables.joined.link`.

    Raises
    ------
    ParameterError, ColumnError
        As in memory; also for keys that are neither whole numbers nor text, and rows without a position in files.
    """
    for name, frame in tables.items():
        if not hasattr(frame, "mapInArrow"):
            raise ParameterError(f"table {name!r} is no Spark DataFrame, like others; pass all of one kind")
        if empty_template(frame).text is not None:
            raise AlreadySanitizedError(f"table {name!r} is a release already; use the original table")
    parent, key, columns = find_parent({name: frame.columns for name, frame in tables.items()}, keys, orphans)
    key_columns = {parent: key, **columns}
    kinds = {name: _key_kind(name, tables[name], column) for name, column in key_columns.items()}
    for name, column in columns.items():
        if kinds[name] != kinds[parent]:
            types = f"{kinds[name]} and {kinds[parent]}"
            raise ParameterError(f"keys {column!r} of {name!r} and {key!r} of {parent!r} are {types}; cast one")
    frames, rows = {}, {}
    for name, column in key_columns.items():
        frames[name], rows[name] = _with_positions(name, tables[name], column, kinds[name])
        if name == parent or orphans == "error":
            _refuse(name, column, frames[name].where(sf.col(PERSON).isNull()), NULL_KEY)
    turns = sf.row_number().over(Window.partitionBy(PERSON).orderBy(ROW)).alias(TURN)
    _refuse(parent, key, frames[parent].select(ROW, turns).where(sf.col(TURN) > 1), REPEATED)
    children = []
    for name, column in columns.items():
        if orphans == "error":
            orphan_rows = frames[name].join(frames[parent].select(PERSON), PERSON, "left_anti")
            _refuse(name, column, orphan_rows, orphan_rule(parent))
        child_columns = tuple(one for one in tables[name].columns if one != column)
        link_facts = (column, contributions[name], most[name], child_columns)
        children.append(SparkChild(name, frames[name], *link_facts, rows[name]))
    columns_without_key = tuple(one for one in tables[parent].columns if one != key)
    return LinkedSparkFrames(parent, frames[parent], key, columns_without_key, tuple(children), rows[parent])


def draw_table(table: SparkTable, ready: Ready) -> Any:
    """Return the release of one table as a lazy frame; the first pass is done."""
    selected = table.only(ready.plan.names)
    return selected.keyed(ready.key).to_frame(run_first_pass(selected, ready))


def _key_kind(name: str, frame: Any, column: str) -> str:
    """Return the kind of a table's keys: whole numbers or text."""
    type_ = empty_template(frame).fields([column])[0].type
    if pa.types.is_integer(type_):
        return "whole numbers"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    raise ParameterError(f"keys names {column!r} of {name!r}, which holds {type_}; use whole numbers or text")


def _with_positions(name: str, frame: Any, key: str, kind: str) -> tuple[Any, int]:
    """Return a frame with each row's person and position in place of its key, and the number of rows."""
    use_this_python(frame.sparkSession)
    addressed, firsts, n = address_by_file(frame, f"write table {name!r} to Parquet, and read it with spark.read")
    files = frame.sparkSession.createDataFrame(list(firsts.items()), f"{FILE} long, {FIRST} long")
    # Bytes of text are compared as they are, whatever the column's collation.
    person = quote_column(key).cast("long" if kind == "whole numbers" else "binary").alias(PERSON)
    columns = [quote_column(column) for column in frame.columns if column != key]
    place = (sf.col(FIRST) + sf.col(ROW)).alias(ROW)
    return addressed.join(sf.broadcast(files), FILE).select(*columns, person, place), n


def _refuse(table: str, column: str, rows: Any, rule: str) -> None:
    """Raise `ColumnError` with the first of some rows that break a rule of keys, if there is one."""
    first = rows.agg(sf.min(ROW)).collect()[0][0]
    if first is not None:
        raise row_error(table, column, int(first), rule)
