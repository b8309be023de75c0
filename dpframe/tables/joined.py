"""A parent table with one row for each person, and child tables with any number: their links, and joined rows.

A joined table has exactly k rows for every person, padded with absent rows, in which all columns of the child table are
null. Its number of rows is public, and tables of neighbours differ in the k rows of one person. Of more rows k are
chosen with a secret key, uniformly and independently for every person.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from dpframe.errors import ColumnError, ParameterError, is_one_of, name_list
from dpframe.noise.keystream import U64, Keystream, Rows
from dpframe.spaces.arrays import IntArray
from dpframe.tables.frames import wrap
from dpframe.tables.table import Table

ORPHANS = ("error", "drop")
"""Treatments of child rows without a parent row."""


@dataclass(frozen=True)
class ChildLink:
    """A child table: at most ``rows`` of its rows of a person are kept, and its rows are counted up to ``most``.

    ``frame`` is the table, and ``key`` its column that names a row's person.
    """

    name: str
    frame: Any
    key: str
    rows: int
    most: int
    columns: tuple[str, ...]
    """The columns that leave: all but the key."""
    flags: tuple[str, ...] = field(default=(), kw_only=True)
    """The name of the column that tells kept rows from absent ones, where all columns of the table may be null."""

    @property
    def flag_name(self) -> str:
        """The joined rows' column that tells kept rows from absent ones."""
        return f"{self.name}.present"

    @property
    def count_name(self) -> str:
        """The parents' column with the number of child rows."""
        return f"{self.name}.n"


C = TypeVar("C", bound=ChildLink)


@dataclass(frozen=True)
class LinkedTables(ABC, Generic[C]):
    """A parent table with one row for each person, ``key`` its column of persons, and child tables; checked by a link.

    Memory and each engine have a class of their own.
    """

    parent: str
    frame: Any
    key: str
    columns: tuple[str, ...]
    """The parents' columns without the key."""
    children: tuple[C, ...]

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of persons, which is public."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables, the parent's first."""
        return (self.parent, *(child.name for child in self.children))

    @abstractmethod
    def child_table(self, child: C) -> Table:
        """Return all rows of a child table without the key."""

    @abstractmethod
    def parents_table(self) -> Table:
        """Return the parents' rows with the number of rows in each child table, without the key."""

    @abstractmethod
    def joined_table(self, child: C, context: Mapping[str, str], key: bytes) -> Table:
        """Return the kept rows of every person with columns of the parents' table, {new name: its name there}."""

    @abstractmethod
    def drop_columns(self, table: Table, names: Collection[str]) -> Table:
        """Return one of these tables without some columns."""


@dataclass(frozen=True)
class ChildFrame(ChildLink):
    """A child table in memory; ``parents`` has the position of each row's parent, −1 for none."""

    parents: IntArray

    def counts(self, n: int) -> IntArray:
        """Return the number of child rows of each of ``n`` parents, up to the cap."""
        return np.minimum(np.bincount(self.parents[self.parents >= 0], minlength=n), self.most)

    def choose(self, n: int, key: bytes) -> IntArray:
        """Return positions of the kept child rows of each parent, shape (n, rows); −1 stands for an absent row."""
        order = np.lexsort((row_tags(key, 0, len(self.parents)), self.parents))
        parents = self.parents[order]
        places = np.arange(len(order)) - np.searchsorted(parents, parents)
        is_kept = (parents >= 0) & (places < self.rows)
        chosen = np.full((n, self.rows), -1, dtype=np.int64)
        chosen[parents[is_kept], places[is_kept]] = order[is_kept]
        return chosen


def row_tags(key: bytes, rows: Rows, count: int) -> U64:
    """Return the secret tags of child rows by their positions; of a person the rows of least tags are kept."""
    stream, first = Keystream(key).at(rows)
    tags: U64 = stream.column("rows", "persons").words(0, first, count)
    return tags


@dataclass(frozen=True)
class LinkedFrames(LinkedTables[ChildFrame]):
    """Linked tables in memory, of DataFrames; see `link`."""

    @property
    def n(self) -> int:
        """The number of persons, which is public."""
        return len(self.frame)

    def child_table(self, child: ChildFrame) -> Table:
        """Return all rows of a child table without the key."""
        return wrap(child.frame.drop(columns=child.key))

    def parents_table(self) -> Table:
        """Return the parents' rows with the number of rows in each child table, without the key."""
        return wrap(self._parents())

    def _parents(self) -> pd.DataFrame:
        table: pd.DataFrame = self.frame.drop(columns=self.key)
        return table.assign(**{child.count_name: child.counts(self.n) for child in self.children})

    def joined_table(self, child: ChildFrame, context: Mapping[str, str], key: bytes) -> Table:
        """Return the kept rows of every person with columns of the parents' table, {new name: its name there}."""
        places = child.choose(self.n, key).ravel()
        parents = self._parents()
        columns = {name: _take(child.frame[name], places) for name in child.columns}
        if child.flag_name in child.flags:
            columns[child.flag_name] = pd.Series(places >= 0)
        rows = np.repeat(np.arange(self.n), child.rows)
        columns |= {name: parents[source].take(rows).reset_index(drop=True) for name, source in context.items()}
        return wrap(pd.DataFrame(columns, index=pd.RangeIndex(len(places))))

    def drop_columns(self, table: Any, names: Collection[str]) -> Table:
        """Return one of these tables without some columns."""
        return wrap(table.frame.drop(columns=list(names)))


def _take(column: Any, places: IntArray) -> Any:
    """Return the values at these places, null at −1; whole numbers and booleans get dtypes that have nulls.

    A column of objects stays one: its dtype may not depend on the values.
    """
    if isinstance(column.dtype, pd.SparseDtype):
        column = pd.Series(column.sparse.to_dense().to_numpy(), dtype=column.dtype.subtype)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iub":
        name = column.dtype.name
        column = column.astype(
            "boolean" if name == "bool" else f"UInt{name[4:]}" if name[0] == "u" else f"Int{name[3:]}"
        )
    return column.set_axis(range(len(column))).reindex(places).set_axis(range(len(places)))


def link(
    tables: Mapping[str, pd.DataFrame],
    keys: Mapping[str, Mapping[str, str]],
    contributions: Mapping[str, int],
    most: Mapping[str, int],
    orphans: str,
) -> LinkedFrames:
    """Return tables with the links of their rows.

    ``keys`` is ``{child: {column: parent}}``, or ``{child: {column: "parent.column"}}`` if the parents' column has
    another name. ``orphans="drop"`` leaves child rows without a parent row out.

    Raises
    ------
    ParameterError
        If the tables have not one parent table and one key for every other table.
    ColumnError
        For a null, repeated or missing key, with the first such row.
    """
    names = {name: [str(column) for column in table.columns] for name, table in tables.items()}
    parent, key, columns = find_parent(names, keys, orphans)
    index, children = _key_column(tables, parent, key), []
    repeated = np.flatnonzero(index.duplicated())
    if len(repeated):
        raise row_error(parent, key, int(repeated[0]), REPEATED)
    for name, column in columns.items():
        keys_of_rows = _key_column(tables, name, column, nulls=orphans == "drop")
        if _kind_of(keys_of_rows) != _kind_of(index):
            kinds = f"{keys_of_rows.dtype} and {index.dtype}"
            remedy = f"convert one, e.g. with astype({str(index.dtype).capitalize()!r})"
            raise ParameterError(f"keys {column!r} of {name!r} and {key!r} of {parent!r} are {kinds}; {remedy}")
        parents = np.where(keys_of_rows.isna(), -1, index.get_indexer(keys_of_rows)).astype(np.int64)
        lost = np.flatnonzero(parents < 0)
        if len(lost) and orphans == "error":
            raise row_error(name, column, int(lost[0]), orphan_rule(parent))
        child_columns = tuple(one for one in tables[name].columns if one != column)
        children.append(ChildFrame(name, tables[name], column, contributions[name], most[name], child_columns, parents))
    parents_columns = tuple(one for one in tables[parent].columns if one != key)
    return LinkedFrames(parent, tables[parent], key, parents_columns, tuple(children))


REPEATED = "repeats the key of an earlier row; give each person one row"
"""Rule of keys of parents that a row breaks."""

NULL_KEY = "is null; fill it, or leave the row out"
"""Rule of keys that a row breaks."""


def orphan_rule(parent: str) -> str:
    """Return the rule that a child row without a parent row breaks."""
    return f'has no row in {parent!r}; add its parent row, or pass orphans="drop"'


def find_parent(
    tables: Mapping[str, Sequence[str]], keys: Mapping[str, Mapping[str, str]], orphans: str
) -> tuple[str, str, dict[str, str]]:
    """Return the parent table, its key, and the key column of every child table, from the columns of each table."""
    if not is_one_of(orphans, ORPHANS):
        raise ParameterError('orphans must be "error" or "drop"')
    parent, key, columns = _parent_of(tables, keys)
    for table, column in ((parent, key), *columns.items()):
        if column not in tables[table]:
            names = name_list(tables[table])
            raise ParameterError(f"keys names column {column!r}, which {table!r} lacks; its columns are {names}")
    _check_names(tables, parent, key, columns)
    return parent, key, columns


def _parent_of(
    tables: Mapping[str, Sequence[str]], keys: Mapping[str, Mapping[str, str]]
) -> tuple[str, str, dict[str, str]]:
    """Return the parent table, its key, and the key column of every child table."""
    example = 'e.g. keys={"visits": {"patient_id": "patients"}}'
    if not isinstance(keys, Mapping) or not all(isinstance(links, Mapping) and links for links in keys.values()):
        raise ParameterError(f"keys must name the column and the parent of each child table, {example}")
    unknown = [name for name in keys if name not in tables]
    if unknown:
        raise ParameterError(f"keys names {unknown[0]!r}, which is no table; tables are {name_list(list(tables))}")
    several = [name for name, links in keys.items() if len(links) > 1]
    if several:
        raise ParameterError(f"keys gives {several[0]!r} several parents; join all but one of them to it first")
    roots = [name for name in tables if name not in keys]
    if not roots:
        raise ParameterError(f"keys has every table; leave the parent's out, {example}")
    if len(roots) > 1:
        raise ParameterError(f"keys must have every table but the parent's, and lacks {name_list(roots)}; {example}")
    (parent,), columns, parent_columns = roots, {}, {}
    for name, links in keys.items():
        ((column, target),) = links.items()
        table, _, key = str(target).partition(".")
        if target in tables:
            table, key = target, column
        if table != parent:
            remedy = f"join {table!r} to its own parent, or release only one level"
            raise ParameterError(f"keys links {name!r} to {target!r}, which is not the parent {parent!r}; {remedy}")
        columns[name], parent_columns[key or column] = column, name
    if len(parent_columns) > 1:
        raise ParameterError(f"keys names several columns of {parent!r}; link all child tables by one")
    return parent, next(iter(parent_columns)), columns


def _key_column(tables: Mapping[str, pd.DataFrame], table: str, column: str, nulls: bool = False) -> pd.Index[Any]:
    """Return the keys of a table's rows; a null is refused unless ``nulls`` are allowed."""
    keys: pd.Index[Any] = pd.Index(tables[table][column])
    if isinstance(keys.dtype, pd.CategoricalDtype):
        keys = keys.astype(keys.dtype.categories.dtype)
    if not _kind_of(keys):
        raise ParameterError(f"keys names {column!r} of {table!r}, which holds {keys.dtype}; use numbers or text")
    missing = np.flatnonzero(keys.isna())
    if len(missing) and not nulls:
        raise row_error(table, column, int(missing[0]), NULL_KEY)
    try:
        keys.duplicated()
    except TypeError:
        raise row_error(table, column, None, "has values that are no keys; use numbers or text") from None
    return keys


def _kind_of(keys: pd.Index[Any]) -> str:
    """Return the kind of keys, which is public; equal numbers of two kinds may round to another."""
    kinds = (
        ("unsigned", lambda dtype: str(dtype).lower() == "uint64"),
        ("integer", pd.api.types.is_integer_dtype),
        ("float", pd.api.types.is_float_dtype),
        ("time", pd.api.types.is_datetime64_any_dtype),
        ("text", pd.api.types.is_object_dtype),
        ("text", pd.api.types.is_string_dtype),
    )
    return next((kind for kind, is_kind in kinds if is_kind(keys.dtype)), "")


def _check_names(tables: Mapping[str, Sequence[str]], parent: str, key: str, columns: Mapping[str, str]) -> None:
    """Raise `ParameterError` for a column with the name of one that joined rows get from elsewhere."""
    context_names = {f"{parent}.{name}" for name in tables[parent]}
    for name, column in columns.items():
        joined_names = {*context_names, f"{name}.n", f"{name}.present", *([key] if key != column else [])}
        clash = [one for one in tables[name] if one in joined_names]
        if clash or f"{name}.n" in tables[parent]:
            table, wrong = (name, clash[0]) if clash else (parent, f"{name}.n")
            raise ParameterError(f"{table!r} has a column {wrong!r}, a name that joined rows need; rename it")


def row_error(table: str, column: str, row: int | None, rule: str) -> ColumnError:
    """Return the error of a row of a table."""
    return ColumnError(f"(table {table!r}) {rule}", column=column, row=row)
