"""Sources of a column's space: a declaration, its type, private inference or the data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpframe.errors import (
    ColumnError,
    ColumnRemark,
    InferenceWarning,
    ParameterError,
    PlanError,
    PrivacyLeakWarning,
    did_you_mean,
    is_one_of,
    name_list,
    warn,
    warn_of_columns,
)
from dpframe.inference.drafted import DraftedSpaces
from dpframe.inference.from_data import IDENTIFIER, Reader, from_data, from_type
from dpframe.plan.plan import Plan
from dpframe.spaces import Space, as_space
from dpframe.spaces.declare import TWO_NUMBERS, leaves_the_type, two_numbers
from dpframe.spaces.field import Field, is_open
from dpframe.spaces.written_values import read_as_written, written_type

INFER = ("private", "public", "data")


def infer_spaces(
    columns: Sequence[Field],
    spaces: Mapping[str, Any] | Plan | None,
    infer: str,
    read: Reader,
) -> tuple[dict[str, Space], list[Field], list[str]]:
    """Return the known spaces, the columns that private inference must find, and leaks.

    ``spaces``: declarations by column name (`as_space`), or a plan, whose spaces and leaks are reused. ``infer``
    applies to undeclared columns. ``"private"`` leaves them to inference unless their type determines the space;
    ``"public"`` raises an error for these columns. ``"data"`` reads spaces off the data, with a `PrivacyLeakWarning`;
    only then ``read`` is called.
    """
    if not is_one_of(infer, INFER):
        raise ParameterError('infer must be "private", "public" or "data"; declare spaces={…} to need none')
    declared = _to_declarations(spaces)
    names = [column.name for column in columns]
    stray = [name for name in declared if name not in names]
    if stray and not isinstance(spaces, Plan):
        suggestion = did_you_mean(stray[0], names)
        raise ParameterError(
            f"spaces names {stray[0]!r}, which is not a column to randomise; {suggestion}columns are {name_list(names)}"
        )
    known_spaces: dict[str, Space] = {}
    undeclared_columns: list[Field] = []
    for column in columns:
        space = declared_space(column, declared) if column.name in declared else from_type(column)
        if space is None or (
            infer == "private" and column.name not in declared and column.nullable and not column.empty
        ):
            undeclared_columns.append(column)
        else:
            known_spaces[column.name] = space
    # One message asks for all declarations.
    if undeclared_columns and infer == "public":
        raise ParameterError(_request_declarations(undeclared_columns))
    data_columns = [column.name for column in undeclared_columns if infer == "data"]
    for column in undeclared_columns:
        if column.name in data_columns:
            space = from_data(column, _read_typed(read) if column.written else read)
            known_spaces[column.name] = space if column.decimal is None else space.in_decimals(*column.decimal)
    # A plan's spaces reveal no less of the data for having been read off it earlier.
    earlier_leaks = [name for name in (spaces.leaks if isinstance(spaces, Plan) else ()) if name in names]
    draft = isinstance(spaces, DraftedSpaces) and not spaces.reviewed
    unreviewed_columns = [name for name in names if draft and name in declared]
    for leaks, phrase, remedy in (
        (data_columns, "were read off the data", "declare them with spaces={…}"),
        (earlier_leaks, "were read off the data earlier", "declare them with spaces={…}"),
        (unreviewed_columns, "were drafted from the data", "review them and pass spaces=draft.confirm()"),
    ):
        if leaks:
            warn(
                f"spaces of {name_list(leaks)} {phrase}: the guarantee does not cover what their "
                f"bounds and categories reveal; {remedy}",
                PrivacyLeakWarning,
            )
    private_columns = [column for column in undeclared_columns if column.name not in data_columns]
    return (
        known_spaces,
        private_columns,
        [name for name in names if name in data_columns or name in earlier_leaks or name in unreviewed_columns],
    )


_MAX_COARSE_STEPS = 10
"""Steps of whole numbers up to which rounding is warned of: half a step of ten is 5 % of the range (tuned; effect not
measured)."""


_DECIMAL_NAME = re.compile(
    r"(^|[\W_])(bmi|charges?|costs?|fees?|fares?|kosten|payments?|prices?|preis|weight|gewicht|usd|eur|gbp)([\W_]|$)",
    re.IGNORECASE,
)
"""Names of columns that often hold cents or other decimals."""


def warn_of_whole_bounds(columns: Sequence[Field], spaces: Mapping[str, Any] | Plan | None) -> None:
    """Warn of columns of text with whole bounds that are near, or a name of amounts with cents: decimals are rounded.

    The warning never depends on the values: whether any value has decimals is data.
    """
    declared = _to_declarations(spaces)
    grids: dict[str, Any] = {
        column.name: space
        for column in columns
        if column.written and column.name in declared and leaves_the_type(declared[column.name])
        if (space := declared_space(column, declared)).is_whole
        and (space.values - space.has_null <= _MAX_COARSE_STEPS + 1 or _DECIMAL_NAME.search(column.name))
    }
    warn_of_columns(
        "a CSV file has no types: whole bounds round decimals, in other columns, too; check these first, and write "
        "bounds with decimals, or Integer(…)",
        [
            ColumnRemark.to_declare(name, "decimals are rounded to whole numbers", f"({ends[0]}.0, {ends[1]}.0)")
            for name, space in grids.items()
            for ends in [(space.inner_space.lower, space.inner_space.upper)]
        ],
        InferenceWarning,
    )


_PERSON = re.compile(
    r"(person|people|patient|user|customer|client|member|subject|student|pupil|employee|worker|respondent|participant"
    r"|household|account|visitor|individual|insured|ssn|nino|passport|e?mail"
    r"|(staff|emp|pers|sv)[\W_]*(no|nr|code|key|number|nummer))",
    re.IGNORECASE,
)
"""Names of columns whose values may identify the person of a row."""


def identifiers(columns: Sequence[Field], spaces: Mapping[str, Any] | Plan | None) -> list[str]:
    """Return the undeclared columns that are left out as identifiers, by name and type.

    The choice never depends on the values: their number of distinct values is data.
    """
    declared = _to_declarations(spaces)
    return [
        column.name
        for column in columns
        if column.name not in declared
        and IDENTIFIER.search(column.name)
        and from_type(replace(column, nullable=False)) is None
    ]


def warn_of_identifiers(names: Sequence[str], persons: bool) -> None:
    """Warn of the columns that are left out as identifiers, and say how to keep them, in one warning.

    ``persons``: whether a column that names persons may still be given as ``privacy_id``.
    """
    if not names:
        return
    person = next((name for name in names if _PERSON.search(name)), None)
    hint = f", privacy_id={person or 'COLUMN'!r} protects persons with several rows" if persons else ""
    warn(
        f"left out as identifiers, by their names: {name_list(names)}; drop={list(names)} confirms it, "
        f"spaces={{{names[0]!r}: …}} keeps one{hint}",
        InferenceWarning,
    )


def warn_of_persons(columns: Sequence[Field], spaces: Mapping[str, Any] | Plan | None) -> None:
    """Warn of the first column that may name persons, by its name and type, if nobody named a privacy unit."""
    declared = _to_declarations(spaces)
    for column in columns:
        undeclared = column.name not in declared and from_type(replace(column, nullable=False)) is None
        if undeclared and _PERSON.fullmatch(column.name):
            warn(
                f"{column.name!r} may name persons, and a release protects each row by itself; if a person may have "
                f"several rows, pass privacy_id={column.name!r}",
                InferenceWarning,
            )
            return


def warn_of_copied_identifiers(names: Iterable[str]) -> None:
    """Warn of columns that are passed through although their names look like identifiers."""
    copies = [name for name in names if IDENTIFIER.search(name)]
    if copies:
        verb = "look like identifiers and are" if len(copies) > 1 else "looks like an identifier and is"
        warn(
            f"passthrough: {name_list(copies)} {verb} copied unprotected, so that every row is known to be "
            f"somebody's; leave them out with drop={copies!r}",
            PrivacyLeakWarning,
        )


def _read_typed(reader: Reader) -> Reader:
    """Return a reader that reads text as the type of all its values."""
    return lambda name: read_as_written(list(reader(name)))


def _to_declarations(spaces: Mapping[str, Any] | Plan | None) -> Mapping[str, Any]:
    """Return declarations by column name; `ParameterError` for anything but a mapping or plan."""
    if isinstance(spaces, Plan):
        return dict(spaces.spaces)
    if spaces is None:
        return {}
    if not isinstance(spaces, Mapping):
        raise ParameterError("spaces must be a mapping {column: space}, or a plan")
    return spaces


def declared_space(column: Field, declared: Mapping[str, Any]) -> Space:
    """Return the space that is declared for a column; `ColumnError` if the column's type does not allow it."""
    # Columns of any kind accept every space.
    type_ = None if is_open(column.type) else column.type
    try:
        if column.written and two_numbers(declared[column.name]):
            raise ParameterError(TWO_NUMBERS)
        space = as_space(declared[column.name], type_)
        if type_ is not None:
            space.check_type(type_)
            space = space.in_durations()
        if column.written:
            written_type(space)
        if column.of_day:
            # Times of day are durations from midnight.
            ends = space.inner_space.instants(np.array([0.0, space.values - 1.0]))
            if ends[0] < np.timedelta64(0, "us") or ends[1] >= np.timedelta64(1, "D"):
                raise ColumnError(
                    "holds times of day, and its bounds reach beyond a day; declare e.g. ('08:00', '18:00')"
                )
        if column.decimal is not None:
            precision, scale = column.decimal
            bounds, largest = (
                space.inner_space.numbers(np.array([0, space.values - 1])),
                (10**precision - 1) / 10**scale,
            )
            if not space.is_listed and bounds is not None and max(-bounds[0], bounds[1]) > largest:
                raise ColumnError(
                    f"has decimals of {precision} digits, and its bounds reach beyond; choose within ±{largest:g}"
                )
            space = space.in_decimals(precision, scale)
    except ColumnError as error:
        raise error.located(column.name) from None
    except (ParameterError, PlanError) as error:
        raise type(error)(f"column {column.name!r}: {error}") from None
    return space


def _request_declarations(columns: Sequence[Field]) -> str:
    """Return one line that asks for every missing declaration, with placeholders and never data."""
    entries = ", ".join(f"{column.name!r}: {placeholder(column.type)}" for column in columns)
    return (
        f"{len(columns)} column{'s need' if len(columns) > 1 else ' needs'} a declared space; fill in and pass "
        f"spaces={{{entries}}} (Nullable(…) around a space keeps nulls), or infer='private'"
    )


def placeholder(type_: pa.DataType) -> str:
    """Return the form of a declaration that a column of this type needs."""
    t = pa.types
    if t.is_integer(type_) or t.is_floating(type_):
        return "(LOWER, UPPER)"
    if t.is_temporal(type_):
        return "(FROM, TO)"
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        size = type_.list_size if t.is_fixed_size_list(type_) else "SIZE"
        return f"Vector({size}, BOUND)" if t.is_floating(type_.value_type) else "Subset([ITEM, …])"
    if t.is_string(type_) or t.is_large_string(type_) or t.is_dictionary(type_) or t.is_string_view(type_):
        return "[CATEGORY, …]"
    return "SPACE"
