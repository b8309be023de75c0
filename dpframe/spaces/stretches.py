"""Stretches of a space's codes that a condition on its values names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import ColumnError, ParameterError, name_list
from dpframe.spaces.base import Space
from dpframe.spaces.times import since_midnight

ISO = re.compile(r"\d{4}(-?\d{2}.*)?")
"""Start of unambiguous time texts: in 01.02.2023 either number may be the month."""

FINE_GRID_VALUES = 4097
"""Number of grid values above which the steps are finer than the numbers in questions."""


def listed_values(wanted: Any, what: str) -> list[Any]:
    """Return the values of a condition, a single value or a list, as a list."""
    values = wanted if isinstance(wanted, list | set | frozenset | np.ndarray | pd.Series | pd.Index) else [wanted]
    if getattr(values, "ndim", 1) != 1:
        raise ParameterError(f"{what} must be a list of values, of one dimension")
    if not len(values):
        raise ParameterError(f"{what} names no value; give one or more")
    return list(values)


def code_of(space: Space, value: Any, what: str) -> int:
    """Return the code of a value of a space; `ParameterError` for other values."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        if space.has_null:
            return space.size - 1
        raise ParameterError(f"{what} asks for null, which its space does not hold")
    special_code = space.special_code(value)
    if special_code is not None:
        return special_code
    inner = space.inner_space
    if space.is_listed:
        labels = inner.labels()
        try:
            places = [i for i, label in enumerate(labels) if type(label) is type(value) and label == value]
            places = places or [i for i, label in enumerate(labels) if label == value]
        except (TypeError, ValueError):  # a value that cannot be compared is no label
            places = []
        if places:
            return places[0]
        label_text = (
            f", which are {name_list([str(label) for label in labels])}" if len(labels) <= _MAX_NAMED_VALUES else ""
        )
        raise ParameterError(f"{what} names a value that is not one of its values{label_text}")
    low, high = _codes(space, [value, value], what)
    if low != high:
        raise ParameterError(
            f"{what} names a value that is not in its space: beyond its bounds, or between its steps; name a range "
            "(low, high)"
        )
    return low


_MAX_NAMED_VALUES = 20
"""Limit on the values of a column that an error names."""


def between(space: Space, wanted: tuple[Any, ...], what: str) -> tuple[int, int]:
    """Return the first and last code of a range (low, high), None for no end; `ParameterError` if it is empty."""
    if len(wanted) != 2:
        raise ParameterError(f"{what} must be (low, high) with both ends in it, or a list")
    if not space.is_numeric or space.is_listed:
        raise ParameterError(f"{what}: the column holds no numbers; give a value or a list of values of it")
    low, high = _codes(space, wanted, what)
    if low > high:
        raise ParameterError(
            f"{what} must be (low, high) in order, and reach into its bounds, {_bounds(space)}; None for no end"
        )
    return low, high


def _bounds(space: Space) -> str:
    numbers = space.numbers(np.array([0, space.values - 1]))
    assert numbers is not None
    ends = space.instants(numbers).tolist()
    return " to ".join(f"{end:g}" if isinstance(end, float) else str(end) for end in ends)


def side_of(space: Space, wanted: tuple[Any, ...], what: str) -> int:
    """Return 1 for a range (low, high) that lies above all of a space's numbers, −1 for one below, and 0 for others."""
    if len(wanted) != 2 or not space.is_numeric or space.is_listed:
        return 0
    (low, high), size = _unbounded_codes(space, wanted, what), space.values
    # Times beyond a bound have the code next to it.
    return int(low >= size and high >= size - 1) - int(high < 0 and low <= 0)


def _codes(space: Space, ends: Sequence[Any], what: str) -> tuple[int, int]:
    """Return the first code at or above the low end and the last at or below the high one; None is no end."""
    low, high = _unbounded_codes(space, ends, what)
    if low >= space.values or high < 0:
        return 1, 0
    return max(low, 0), min(high, space.values - 1)


def _unbounded_codes(outer_space: Space, ends: Sequence[Any], what: str) -> tuple[int, int]:
    """Return the first and last code between two ends; codes may lie outside the space."""
    space: Any = outer_space.inner_space
    codes = []
    for end, code, rounding in ((ends[0], 0, math.ceil), (ends[1], space.size - 1, math.floor)):
        if end is None:
            codes.append(code)
            continue
        if space.is_time and isinstance(end, str) and not has_one_reading(space, end):
            raise ParameterError(f"{what} must name times as ISO text, e.g. '2020-01-31'")
        try:
            if space.is_time:
                codes.append(_time_code(space, end, rounding))
                continue
            codes.append(_number_code(space, end, rounding))
        except (ColumnError, ParameterError, TypeError, ValueError, OverflowError):
            raise ParameterError(
                f"{what} must be values of its kind, or a range (low, high), None for no end, e.g. (10, None)"
            ) from None
    return codes[0], codes[1]


def first_codes(space: Any, bounds: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the codes of the first values at or above bounds of bins; the size for bounds beyond the space.

    >>> from dpframe.spaces import Integer
    >>> first_codes(Integer(0, 10), [-1, 0.5, 9.5, 10]).tolist()
    [0, 1, 10, 11]
    """
    code_at = _time_code if space.is_time else _number_code
    codes = []
    for bound in bounds:
        is_beyond = code_at(space, bound, math.floor) >= space.size - 1
        codes.append(space.size if is_beyond else max(code_at(space, bound, math.ceil), 0))
    return np.array(codes, dtype=np.int64)


def _number_code(space: Any, number: Any, rounding: Callable[[float], int]) -> int:
    """Return the code of a number, or the next one (``ceil``) or the previous one (``floor``), also beyond bounds."""
    place = _grid_place(space, float(number))
    # A real number on fine steps is rounded to the nearest step, like the rows, so that heaps match.
    is_rounded = not space.is_whole and space.size > FINE_GRID_VALUES and 0 <= place <= space.size - 1
    return round(place) if is_rounded else rounding(place)


def shares_its_step(whole: Space, number: Any) -> bool:
    """Return whether another number with as many digits rounds to the same step of a fine grid.

    A number with a step to itself, as 4.99 on steps of 0.015, gets the heap on its step.

    >>> from dpframe.spaces import Real
    >>> prices = Real(0, 45_000)  # in steps of 0.69
    >>> [shares_its_step(prices, number) for number in (5, 4.9, 30_000, 30_000.5)]
    [False, True, False, True]
    """
    space: Any = whole.inner_space
    if not space.is_numeric or space.is_listed or space.is_time or space.is_whole or space.size <= FINE_GRID_VALUES:
        return False
    try:
        place = _grid_place(space, float(number))
        exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    except (TypeError, ValueError):
        return False
    if not (isinstance(exponent, int) and number and 0 <= place <= space.size - 1):
        return False
    offset, spacing = place - round(place), 10.0**exponent / space.step
    return bool(spacing < 0.5 + abs(offset))


def _grid_place(space: Any, value: float) -> float:
    """Return the place of a number on a grid in steps, up to rounding of floats."""
    start, next_number = np.asarray(
        space.numbers(np.array([0, 1])) if space.size > 1 else [space.numbers(np.array([0]))[0]] * 2
    )
    place = (value - float(start)) / (float(next_number - start) or 1.0)
    whole_place = round(place) if math.isfinite(place) else place
    return (
        float(whole_place)
        if math.isclose(place, whole_place, rel_tol=0, abs_tol=1e-9 * max(1.0, abs(place)))
        else place
    )


def has_one_reading(space: Any, text: str) -> bool:
    """Return whether a text names one time unambiguously: a duration, or text that starts like ISO 8601."""
    return space.is_duration or ISO.fullmatch(text.strip()) is not None


def given_instant(space: Any, given: Any) -> pd.Timestamp | pd.Timedelta:
    """Return a time as a pandas Timestamp in UTC without a zone, or a duration as a Timedelta."""
    if space.is_duration:
        return pd.Timedelta(since_midnight(given))
    time = pd.Timestamp(given)
    return time if time.tzinfo is None else time.tz_convert("UTC").tz_localize(None)


def _time_code(space: Any, value: Any, rounding: Callable[[float], int]) -> int:
    """Return the code of a time, or of the next (``ceil``) or previous (``floor``) time in the space."""
    time: Any = given_instant(space, value)
    code = int(space.encode([time])[0])
    code_time = type(time)(space.instants(space.numbers(np.array([code])))[0])
    if rounding is math.ceil:
        return code + int(code_time < time)
    return code - int(code_time > time)
