"""The request of several tables: reading of the tables, checks of their options, plan, and expected errors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from dpframe.errors import (
    AlreadySanitizedError,
    ColumnError,
    FileError,
    ParameterError,
    check_whole,
    did_you_mean,
    is_one_of,
    name_list,
)
from dpframe.ledger.account import OpenAccount
from dpframe.plan.data import MOST_PERSON_ROWS
from dpframe.plan.options import DEFAULTS
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import drawn
from dpframe.release.linked_job import LinkedJob, LinkedRequest
from dpframe.release.linked_plan import LinkedExpectation, LinkedPlan
from dpframe.spaces.records import COUNT_FACTOR, RECORDS, Records
from dpframe.tables.frames import wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.joined import link
from dpframe.tables.lists import PERSONS, check_list_names, free_key, list_items
from dpframe.tables.table import LINKED_ENGINES, engine_of

_BY_TABLE = ("spaces", "drop", "mechanisms", "measure")
"""Options of a plan that are given by table."""

_COMMON = ("infer", "infer_share", "local_epsilon", "measure_share", "numbers", "ordinals", "sets", "max_items")
"""Options of a plan that hold for all tables."""


def check_folder(folder: str | Path) -> Path:
    """Return the path of a folder for a release's tables, or raise `FileError` if it is not empty or not writable.

    Nothing is made: a release that is refused leaves no folder.
    """
    path = Path(folder)
    try:
        is_empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        is_writable = os.access(nearest, os.W_OK)
    except OSError:
        is_empty, is_writable = True, False
    if not is_empty:
        raise FileError(f"{path} is not empty; name a new folder")
    if not is_writable:
        raise FileError(f"{path} cannot be written; name a folder that can")
    return path


def is_linked(source: Any, plan: Any, options: Mapping[str, Any]) -> bool:
    """Return whether a source is of several tables: a dictionary, or a frame with columns of lists."""
    spaces = options.get("spaces")
    has_lists = isinstance(spaces, Mapping) and any(isinstance(space, Records) for space in spaces.values())
    return isinstance(source, Mapping) or isinstance(plan, LinkedPlan) or has_lists


def linked_job(
    source: Any,
    epsilon: float | None,
    delta: float | None,
    *,
    options: Mapping[str, Any],
    keys: Any = None,
    orphans: str = "error",
    max_count: Any = None,
    plan: Any = None,
    key: bytes | None = None,
    account: OpenAccount | None = None,
    release: bool = True,
    quiet: bool = False,
) -> LinkedJob:
    """Return the job of several tables, or of one frame with columns of lists; see `dpframe.sanitize`."""
    if key is not None and account is not None:
        raise ParameterError("key and ledger do not go together for several tables; leave key out")
    if plan is not None:
        if not isinstance(plan, LinkedPlan):
            raise ParameterError("plan must be one of several tables; dpf.LinkedPlan.read(path) reads one from a file")
        given = {"epsilon": epsilon, "delta": delta, "keys": keys, "max_count": max_count, **options}
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise ParameterError(f"{extra[0]} is already decided by the plan; give one or the other")
    lists: dict[str, str] = {}
    link_tables, draw_table = link, drawn
    if isinstance(source, Mapping):
        engine = _engine_of_tables(source)
        if engine is None:
            tables = {name: as_frame(name, table) for name, table in source.items()}
        else:
            tables, link_tables, draw_table = dict(source), engine.link, engine.draw_table
        if len(tables) < 2:
            raise ParameterError(
                "several tables are a parent table and child tables; pass one table without a dictionary"
            )
    else:
        if keys is not None or max_count is not None or orphans != "error":
            raise ParameterError("keys, orphans and max_count are for dictionaries of tables; Records take max_count")
        records = _list_columns(options, plan)
        tables, key_name = _split_lists(source, records, None if plan is None else plan.promises[plan.parent].key)
        keys = {name: {key_name: PERSONS} for name in records}
        lists = {name: one.kind for name, one in records.items()}
        options, max_count = _options_of_lists(options, records), {name: one.most for name, one in records.items()}
    if plan is not None:
        if set(tables) != set(plan.plans):
            raise ParameterError(f"the plan is of tables {name_list(plan.plans)}; pass a dictionary of these")
        linked = link_tables(tables, plan.keys, plan.contributions, plan.max_count, orphans)
        request = LinkedRequest(plan=plan, release=release, quiet=quiet, lists=lists)
        return LinkedJob(linked, request, ReleaseBudget(account, key), draw_table)
    if keys is None:
        raise ParameterError('name the key of each child table, e.g. keys={"visits": {"patient_id": "patients"}}')
    children = [name for name in tables if isinstance(keys, Mapping) and name in keys]
    for option in ("spaces", "drop"):
        _check_columns(option, options.get(option), tables)
    if options.get("contributions") is None:
        raise ParameterError('say how many rows of a person are kept, e.g. contributions={"visits": 5}')
    kept_rows = rows_by_child(options["contributions"], children, "contributions", MOST_PERSON_ROWS)
    count_caps = {name: COUNT_FACTOR * rows for name, rows in kept_rows.items()}
    if max_count is not None:
        caps = {**count_caps, **max_count} if isinstance(max_count, Mapping) else max_count
        count_caps = rows_by_child(caps, children, "max_count", 1 << 16)
        low_caps = [name for name in children if count_caps[name] < kept_rows[name]]
        if low_caps:
            raise ParameterError(
                f"max_count of {low_caps[0]!r} is below its contributions; give {kept_rows[low_caps[0]]} or more"
            )
    by_table = _options_by_table(options, list(tables))
    linked = link_tables(tables, keys, kept_rows, count_caps, orphans)
    request = LinkedRequest(epsilon, delta, by_table, release=release, quiet=quiet, lists=lists)
    return LinkedJob(linked, request, ReleaseBudget(account, key), draw_table)


def _engine_of_tables(tables: Mapping[Any, Any]) -> Any:
    """Return the module that links frames of an engine; None for tables in memory and files."""
    for name, table in tables.items():
        engine = engine_of(table, LINKED_ENGINES)
        if engine is not None:
            for table_name in tables:
                _check_table_name(table_name)
            return engine
        if engine_of(table) is not None:
            raise ParameterError(f"table {name!r} is of Dask, which cannot link tables; write Parquet, and pass paths")
    return None


def plan_linked(
    source: Any, epsilon: float | None, delta: float | None, ledger: Any, dataset: str | None, **options: Any
) -> LinkedPlan:
    """Plan the release of several tables without randomising anything; see `dpframe.plan`."""
    account = OpenAccount.of(ledger, dataset)
    return linked_job(source, epsilon, delta, account=account, release=False, **options).run().plan


def expect_linked(source: Any, epsilon: float | None, delta: float | None, **options: Any) -> LinkedExpectation:
    """Return the errors to expect of several tables, before anything is spent; see `dpframe.expect`."""
    job = linked_job(source, epsilon, delta, release=False, quiet=True, **options)
    return job.check().expectation(job.tables)


def _list_columns(options: Mapping[str, Any], plan: LinkedPlan | None) -> dict[str, Records]:
    """Return the columns of lists that spaces declare, or that a plan has."""
    if plan is None:
        return {name: space for name, space in options["spaces"].items() if isinstance(space, Records)}
    kinds = {name: one.lists for name, one in plan.promises.items() if name != plan.parent}
    if not all(kinds.values()):
        raise ParameterError(f"the plan is of tables {name_list(plan.plans)}; pass a dictionary of these")
    records = {}
    for name, kind in kinds.items():
        fields = dict.fromkeys(plan.list_fields(name)) if kind == RECORDS else None
        records[name] = Records(fields, plan.contributions[name], plan.max_count[name])
    return records


def _split_lists(source: Any, records: Mapping[str, Records], key: str | None) -> tuple[dict[str, pd.DataFrame], str]:
    """Return a frame's rows and the items of its lists as tables, and the name of their key, the position of a row.

    ``key`` is its name in a plan.
    """
    if isinstance(source, str | Path):
        opened = open_input(source)
        if opened.apart:
            raise ParameterError("CSV has no lists; pass a frame or Parquet with Records")
        frame: Any = opened.read(opened.names)
    elif engine_of(source) is not None:
        raise ParameterError("Records are for frames in memory and Parquet files; collect the frame first")
    else:
        frame = source
    wrapped: Any = wrap(frame)
    if wrapped.text is not None:
        raise AlreadySanitizedError("the table is a release already; use the original table")
    check_list_names(records, wrapped.names)
    if key is None:
        key = free_key([*wrapped.names, *(name for one in records.values() for name in one.spaces)])
    elif key in wrapped.names:
        raise ColumnError("is the plan's name for rows, and no column of the plan; rename or drop it", column=key)
    columns = [name for name in wrapped.names if name not in records]
    if isinstance(frame, pd.DataFrame):
        persons = frame[columns].reset_index(drop=True)
    else:
        frame = wrapped.table
        persons = _to_pandas_by_schema(frame.select(columns)) if columns else pd.DataFrame(index=range(wrapped.n))
    tables = {PERSONS: persons.assign(**{key: range(len(persons))})}
    for name, one in records.items():
        items, rows = list_items(name, frame[name], one.kind, one.spaces)
        items = items if isinstance(items, pd.DataFrame) else _to_pandas_by_schema(items)
        tables[name] = items.assign(**{key: rows})
    return tables, key


def _options_of_lists(options: Mapping[str, Any], records: Mapping[str, Records]) -> dict[str, Any]:
    """Return options of a frame with columns of lists as those of several tables."""
    for name in ("contributions", "privacy_id"):
        if options.get(name, DEFAULTS[name]) != DEFAULTS[name]:
            raise ParameterError(f"with Records a row is a person, and max_rows limits its items; leave {name} out")
    for name, one in records.items():
        check_whole(one.max_rows, f"max_rows of {name!r}", 1, MOST_PERSON_ROWS, of="rows")
    spaces = options.get("spaces") or {}
    persons = {name: space for name, space in spaces.items() if name not in records}
    by_table: dict[str, Any] = {"spaces": {PERSONS: persons, **{name: one.spaces for name, one in records.items()}}}
    by_table["contributions"] = {name: one.max_rows for name, one in records.items()}
    if isinstance(options.get("drop"), list | tuple):
        by_table["drop"] = {PERSONS: list(options["drop"])}
    return {**options, **by_table}


def as_frame(name: Any, table: Any) -> pd.DataFrame:
    """Return a table as a DataFrame with a plain index; files are read into memory."""
    _check_table_name(name)
    if isinstance(table, str | Path):
        opened = open_input(table)
        if opened.apart:
            raise ParameterError(f"table {name!r} is CSV, which has no types; read it with pandas.read_csv first")
        frame: Any = opened
    else:
        frame = wrap(table)
    if frame.text is not None:
        raise AlreadySanitizedError(f"table {name!r} is a release already; use the original table")
    if not isinstance(table, pd.DataFrame):
        columns = frame.read(frame.names) if isinstance(table, str | Path) else frame.table
        table = _to_pandas_by_schema(columns)
    plain: pd.DataFrame = table.reset_index(drop=True)
    return plain


def _check_table_name(name: Any) -> None:
    """Raise `ParameterError` for a name that cannot begin those of columns."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ParameterError('tables are named by words of letters, digits and _, e.g. {"patients": …, "visits": …}')


def _to_pandas_by_schema(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table with dtypes that follow from its schema, whatever its values and nulls are."""
    plain = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    fields = [field.with_type(type_) for field, type_ in zip(table.schema, plain, strict=True)]
    frame: pd.DataFrame = table.cast(pa.schema(fields)).to_pandas(
        types_mapper=_NULLABLE_DTYPES.get, ignore_metadata=True
    )
    return frame


_NULLABLE_DTYPES = {
    pa.bool_(): pd.BooleanDtype(),
    **{getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")() for name in ("Int8", "Int16", "Int32", "Int64")},
    **{getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")() for name in ("UInt8", "UInt16", "UInt32", "UInt64")},
}
"""Dtypes of pandas that hold nulls, by Arrow types that pandas reads as others if there is a null."""


def _check_columns(option: str, value: Any, tables: Mapping[str, pd.DataFrame]) -> None:
    """Raise `ParameterError` for a name that is no column of the table that an option names it for."""
    for table, names in value.items() if isinstance(value, Mapping) else ():
        if table in tables and isinstance(names, Mapping if option == "spaces" else list | tuple):
            stray = [name for name in names if name not in tables[table].columns]
            if stray:
                columns = name_list(list(tables[table].columns))
                raise ParameterError(f"{option} of {table!r} names {stray[0]!r}; its columns are {columns}")


def rows_by_child(value: Any, children: Sequence[str], option: str, most: int) -> dict[str, int]:
    """Return a number of rows for each child table, from one for all or from one by table."""
    if not isinstance(value, Mapping):
        value = dict.fromkeys(children, value)
    stray = [name for name in value if name not in children]
    if stray:
        raise ParameterError(f"{option} names {stray[0]!r}, which is no child table; these are {name_list(children)}")
    return {name: check_whole(value.get(name), f"{option} of {name!r}", 1, most, of="rows") for name in children}


def _options_by_table(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the options of each table's plan; options that would link rows of two tables are refused."""
    by_table: dict[str, Any] = {name: {} for name in names}
    for option, value in options.items():
        default = DEFAULTS.get(option)
        if option == "contributions" or (option in DEFAULTS and (value is default or is_one_of(value, [default]))):
            continue
        if option == "rules":
            raise ParameterError(
                "rules are not kept across tables; leave rules out, and mend rows of synthesize(), e.g. with mask"
            )
        if option not in (*_BY_TABLE, *_COMMON):
            allowed = ("contributions", *_BY_TABLE, *_COMMON)
            hint = f"{did_you_mean(option, allowed)}these are {', '.join(allowed)}"
            raise ParameterError(f"{option} is no option of several tables; {hint}")
        if option in _COMMON or (option == "measure" and value is None):
            for table_options in by_table.values():
                table_options[option] = value
            continue
        if not isinstance(value, Mapping):
            raise ParameterError(f"{option} is given by table for several tables, e.g. {option}={{{names[0]!r}: …}}")
        for name, table_value in value.items():
            if name not in by_table:
                raise ParameterError(f"{option} names {name!r}, which is no table; tables are {name_list(names)}")
            by_table[name][option] = table_value
    if options.get("infer", "private") == "data":
        raise ParameterError('infer="data" reads values without protection; take "private" or "public" here')
    return by_table
