"""Columns of lists as child tables of one frame, and back: the items of each row's list are rows that belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, name_list
from dpframe.spaces.arrays import IntArray
from dpframe.spaces.records import POSITION, RECORDS, VALUE, VALUES

PERSONS = "persons"
"""Name of the table of a frame's rows, whose lists are tables of their own."""


def list_items(
    name: str, column: pd.Series | pa.ChunkedArray, kind: str, fields: Iterable[str]
) -> tuple[Any, IntArray]:
    """Return the items of a column of lists as a table of these ``fields``, and the row that each belongs to.

    Types of an Arrow column follow from its schema. Items of a column of Python lists are objects, whatever they are:
    their dtype may not depend on the values. A null list is an empty one.

    Raises
    ------
    ColumnError, ParameterError
        For a value that is no list, an item that is no record, or a field that is not declared.
    """
    fields = list(fields)
    if isinstance(column, pd.Series) and isinstance(column.dtype, pd.ArrowDtype):
        column = pa.chunked_array([pa.array(column)])
    if isinstance(column, pd.Series):
        return _python_items(name, column, kind, fields)
    types = pa.types
    is_list = types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)
    if not is_list:
        raise ColumnError(f"holds {column.type}, and Records are for lists; declare another space", column=name)
    lists = column.combine_chunks()
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    # A null list may have hidden items, which `list_flatten` passes over and `list_parent_indices` does not.
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    items, rows = pc.list_flatten(lists), np.repeat(np.arange(len(lists)), sizes)
    if kind == VALUES:
        return pa.table({POSITION: _positions(rows), VALUE: items}), rows
    if not types.is_struct(items.type):
        raise ColumnError(f"holds lists of {items.type}, no records; declare Records(SPACE, max_rows=…)", column=name)
    names = [items.type.field(i).name for i in range(items.type.num_fields)]
    _check_fields(name, names, fields)
    return pa.table({field: pc.struct_field(items, field) for field in fields}), rows


def _check_fields(name: str, names: Iterable[str], fields: list[str], row: int | None = None) -> None:
    """Raise `ColumnError` for a field of records that is not declared, or that no record has."""
    names = list(names)
    repeated = [field for place, field in enumerate(names) if field in names[:place]]
    if repeated:
        raise ColumnError(f"has records with two fields {repeated[0]!r}; rename one of them", column=name)
    stray = [str(field) for field in names if field not in fields]
    lost = [field for field in fields if field not in names] if row is None else []
    if stray or lost:
        rule = "has records with a field that Records lacks" if stray else f"has records without the field {lost[0]!r}"
        what = f": {stray[0]!r}" if stray and row is None else ""
        raise ColumnError(f"{rule}{what}; declare the fields that they have, as {{field: space}}", column=name, row=row)


def _python_items(name: str, column: pd.Series, kind: str, fields: list[str]) -> tuple[pd.DataFrame, IntArray]:
    """Return the items of Python lists, value by value, and their rows."""
    items: list[Any] = []
    sizes = np.zeros(len(column), dtype=np.int64)
    for row, value in enumerate(column):
        if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1):
            items.extend(value)
            sizes[row] = len(value)
        elif not (value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))):
            raise ColumnError("holds a value that is no list; Records are for lists", column=name, row=row)
    rows = np.repeat(np.arange(len(column)), sizes)
    if kind == VALUES:
        values = pd.Series(items, dtype=object)
        return pd.DataFrame({POSITION: _positions(rows), VALUE: values}), rows
    for item, row in zip(items, rows.tolist(), strict=True):
        if not isinstance(item, Mapping):
            raise ColumnError("holds an item that is no record, {field: value}", column=name, row=row)
        if not item.keys() <= set(fields):
            _check_fields(name, item, fields, row)
    columns = {field: pd.Series([item.get(field) for item in items], dtype=object) for field in fields}
    return pd.DataFrame(columns, index=range(len(items))), rows


def _positions(rows: IntArray) -> IntArray:
    """Return the position of each item within its row's list."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def nest(parents: pd.DataFrame, key: str, children: Mapping[str, tuple[pd.DataFrame, str]]) -> pd.DataFrame:
    """Return parents without their key, and child tables, each with its kind of lists, as columns of lists."""
    frame = parents.drop(columns=key)
    for name, (table, kind) in children.items():
        is_ordered = kind == VALUES and POSITION in table.columns
        table = table.sort_values([key, POSITION] if is_ordered else key, kind="stable")
        counts = np.bincount(table[key], minlength=len(parents))
        items: list[Any]
        if kind == RECORDS:
            items = table.drop(columns=key).to_dict("records") if table.shape[1] > 1 else [{} for _ in table.index]
        else:
            items = table[VALUE].tolist() if VALUE in table.columns else [None] * len(table)
        stops = np.cumsum(counts).tolist()
        lists = [items[stop - count : stop] for stop, count in zip(stops, counts.tolist(), strict=True)]
        frame[name] = pd.Series(lists, index=frame.index, dtype=object)
    return frame


def free_key(names: Iterable[str]) -> str:
    """Return a name for the rows' positions that no column has."""
    key, names = "row", set(names)
    while key in names:
        key += "_"
    return key


def check_list_names(names: Iterable[str], columns: Iterable[str]) -> None:
    """Raise `ParameterError` for a column of lists that the frame lacks, or that cannot name a table."""
    columns = list(columns)
    for name in names:
        if name not in columns:
            raise ParameterError(f"spaces names {name!r}, which is no column; columns are {name_list(columns)}")
        if name == PERSONS or not name.isidentifier():
            raise ParameterError(f"a column of lists is a table, and {name!r} cannot name one; rename it, e.g. visits")
