"""The shorthands by which spaces are declared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError
from dpframe.spaces.base import SPACES, Space, space_from_json
from dpframe.spaces.grids import Integer, Real
from dpframe.spaces.listed import Categorical, Ordinal
from dpframe.spaces.special import Special
from dpframe.spaces.times import Datetime
from dpframe.spaces.words import type_name

NULLABLE = "nullable"
"""Tag of the nullable space, whose inner space may be a shorthand too."""

TWO_NUMBERS = (
    'a list of two numbers may mean bounds or categories; write bounds as {"lower": 0, "upper": 120}, and categories '
    'as {"categories": [0, 1]}'
)


def two_numbers(spec: Any) -> bool:
    """Return whether a declaration is a list of two numbers: in JSON, either bounds or categories."""
    return (
        isinstance(spec, list)
        and len(spec) == 2
        and all(isinstance(v, int | float | np.number | Decimal) and not isinstance(v, bool) for v in spec)
    )


def _is_number(type_: pa.DataType | None) -> bool:
    t = pa.types
    return type_ is not None and (t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def _bounds(lower: Any, upper: Any, type_: pa.DataType | None) -> Space:
    """Return the space of bounds for a column of this type, or for the bounds' type if it is None."""
    t = pa.types
    if type_ is not None and t.is_dictionary(type_):
        type_ = type_.value_type
    if type_ is None:
        type_rules: list[tuple[Callable[[Any], bool], pa.DataType]] = [
            (lambda v: isinstance(v, int | np.integer), pa.int64()),
            (lambda v: isinstance(v, int | float | np.number), pa.float64()),
        ]
        type_ = next((t for fits, t in type_rules if fits(lower) and fits(upper)), None)
        if type_ is None:
            with contextlib.suppress(ParameterError):
                return Datetime(lower, upper, "D")
            type_ = pa.timestamp("us")
    if t.is_integer(type_):
        return Integer(lower, upper)
    if t.is_floating(type_):
        return Real.fitting(lower, upper, type_)
    if t.is_date(type_):
        return Datetime(lower, upper, "D")
    if t.is_timestamp(type_) or t.is_duration(type_):
        # Grids of more than a few thousand steps are finer than any noise.
        for resolution in ("D", "h", "min", "s"):
            try:
                space = Datetime(lower, upper, resolution)
            except ParameterError:
                if resolution == "s":
                    raise
                continue
            if space.size > 1000:
                break
        return space
    is_text = t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_)
    remedy = ", or convert text that writes dates or numbers first, e.g. with pd.to_datetime" if is_text else ""
    raise ColumnError(
        f"has type {type_name(type_)}, for which bounds mean nothing; declare its categories instead, as a list […]"
        f"{remedy}"
    )


def as_space(spec: Any, type_: pa.DataType | None = None) -> Space:
    """Return the space of a declaration.

    Parameters
    ----------
    spec
        A `Space`; bounds ``(lower, upper)``; a list of categories; a pandas ``CategoricalDtype``
        (`Ordinal` when ordered); or a JSON object: bounds as ``{"lower":…, "upper":…}``, with ``"special"`` if there
        are special values, categories as
        ``{"categories": […]}``, with ``"other"`` if there is a name for all others, or a space by its tag,
        ``{"space":…}``; ``{"space": "nullable", "inner":…}`` takes any of these within.
    type_
        The column's Arrow type, which determines the space of bounds.

    Raises
    ------
    ParameterError
        If the declaration has none of these forms, or is a list of two numbers for a numeric column, which may be meant
        as bounds.
    PlanError
        For an unknown tag or field of a JSON object.

    Examples
    --------
    >>> as_space((0, 120)), as_space((0.0, 1.0)).size
    (Integer(lower=0, upper=120, step=1), 65537)
    >>> as_space({"space": "nullable", "inner": {"lower": 0, "upper": 120}})
    Nullable(Integer(lower=0, upper=120, step=1))
    """
    if isinstance(spec, Space):
        return spec.in_type(type_)
    if isinstance(spec, Mapping):
        return _from_object(spec, type_)
    if isinstance(spec, tuple) and len(spec) == 2:
        return _bounds(*spec, type_)
    if hasattr(spec, "categories") and hasattr(spec, "ordered"):
        if spec.categories is None:
            raise ParameterError("a CategoricalDtype without categories declares nothing; list them")
        return Ordinal(tuple(spec.categories)) if spec.ordered else Categorical(tuple(spec.categories))
    if isinstance(spec, list):
        if two_numbers(spec) and _is_number(type_):
            raise ParameterError(TWO_NUMBERS)
        return Categorical(tuple(spec))
    raise ParameterError(
        'a space is bounds, (0, 120) or {"lower": 0, "upper": 120}, a list of categories, '
        f"a CategoricalDtype or a Space{_remedy(spec)}"
    )


def _remedy(spec: Any) -> str:
    """Return a remedy for near declarations: a range, or categories in another container than a list."""
    if isinstance(spec, range):
        return "; write a range as bounds with both ends: (0, 31)"
    if hasattr(spec, "max_rows"):
        return "; Records are for plan, expect and sanitize of one frame"
    is_collection = isinstance(spec, Iterable) and not isinstance(spec, str | bytes)
    return "; write the categories as a list: list(…)" if is_collection else ""


def _from_object(spec: Mapping[str, Any], type_: pa.DataType | None) -> Space:
    """Return the space that a JSON object declares."""
    fields = set(spec)
    if _is_bounds(fields):
        grid = _bounds(spec["lower"], spec["upper"], type_)
        return Special(grid, spec["special"]) if "special" in spec else grid
    if "categories" in fields and fields <= {"categories", "other"}:
        return space_from_json({"space": Categorical.tag, **spec})
    if fields == {"space", "inner"} and _is_nullable(spec):
        inner = spec["inner"]
        if two_numbers(inner):
            raise ParameterError(TWO_NUMBERS)
        nullable: Any = SPACES[NULLABLE]
        return cast(Space, nullable(as_space(inner, type_)))
    if "space" not in fields:
        raise ParameterError(
            'a space in JSON has "lower" and "upper" (and "special": [-9] for codes), "categories", or a tag, as '
            '{"space": "real", "lower": 0, "upper": 9, "steps": 90}'
        )
    return space_from_json(spec)


def _is_bounds(fields: Collection[str]) -> bool:
    """Return whether the fields of a JSON object are bounds, and perhaps special values."""
    return set(fields) in ({"lower", "upper"}, {"lower", "upper", "special"})


def _is_nullable(spec: Mapping[str, Any]) -> bool:
    tag = spec.get("space")
    return isinstance(tag, str) and tag == NULLABLE


def leaves_the_type(spec: Any) -> bool:
    """Return whether a declaration has only bounds, so that the column's type determines the space.

    >>> leaves_the_type((0, 1)), leaves_the_type(Integer(0, 1)), leaves_the_type({"space": "integer", "lower": 0})
    (True, False, False)
    """
    spec = getattr(spec, "declared_bounds", None) or spec
    if isinstance(spec, Mapping):
        return leaves_the_type(spec.get("inner")) if _is_nullable(spec) else _is_bounds(spec)
    return isinstance(spec, tuple)


def check_declaration(spec: Any) -> None:
    """Raise the error of `as_space` for a declaration that is invalid for every column type."""
    if isinstance(spec, Mapping) and _is_nullable(spec) and "inner" in spec:
        check_declaration(spec["inner"])
        return
    if not (isinstance(spec, Mapping) and _is_bounds(spec)):
        as_space(spec)
