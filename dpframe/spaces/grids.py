"""Spaces that are a numeric grid: whole numbers and reals; `times` has the third."""

from __future__ import annotations

import contextlib
import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError, check_whole
from dpframe.spaces.arrays import by_pieces, masked_array
from dpframe.spaces.base import (
    LARGEST_GRID,
    Codes,
    Mask,
    Space,
    first_row,
    missing_of,
    refuse_object,
    refuse_type,
    register,
)
from dpframe.spaces.json_form import parameters
from dpframe.spaces.object_reading import Objects
from dpframe.spaces.python_values import as_number
from dpframe.spaces.special import Special
from dpframe.spaces.words import number

Bools = npt.NDArray[np.bool_]

_INFINITE = "is infinite; declare Nullable(…) or pass nulls='impute' to have it clamped to the bounds"


class NumberGrid(Space):
    """Coding shared by the spaces that are a numeric grid.

    With special values a grid's class makes a `Special` around the grid without them.
    """

    lower: Any
    upper: Any

    metric = "line"

    special_kind: ClassVar[str] = "numbers"
    special_example: ClassVar[str] = '-9, "refused"'

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """Return the grid, or a `Special` around it if ``special`` lists values."""
        named_arguments = dict(zip((f.name for f in parameters(cls)), arguments, strict=False)) | named
        special = named_arguments.pop("special", ())
        is_empty = isinstance(special, list | tuple) and not special
        return object.__new__(cls) if is_empty else Special(cls(**named_arguments), special)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Return the space from its JSON fields, which may list special values."""
        grid = super().from_json({name: value for name, value in data.items() if name != "special"})
        return Special(grid, data["special"]) if "special" in data else grid

    def ticks(self, array: pa.Array) -> npt.NDArray[Any]:
        """Return an array's numbers, 0 for null."""
        return self._numeric(array, True)[0]

    def tick_type(self, type_: pa.DataType) -> np.dtype[Any]:
        """Return the NumPy type of a column type's numbers."""
        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype

    def special_tick(self, value: Any, type_: pa.DataType) -> Any:
        """Return a special value as a number of a column's type."""
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        return self.tick_type(value_type).type(value)

    def holds_special(self, value: Any, type_: pa.DataType) -> bool:
        """Return whether a column's type holds a special value exactly, and apart from all values of the grid."""
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        try:
            tick = self.special_tick(value, value_type)
        except OverflowError:
            return False
        nearest_value = self.ticks(self.decode(self.encode([value]), value_type))[0]
        return bool(tick == value and tick != nearest_value)

    def has_on_grid(self, value: Any) -> bool:
        """Return whether a special value is a value of the grid."""
        return bool(self.decode(self.encode([value]))[0].as_py() == value)

    def is_equal(self, value: Any, special_value: Any) -> bool:
        """Return whether an object is a special value."""
        return bool(as_number(value) == special_value)

    def special_object(self, value: Any) -> Any:
        """Return a special value as the object that a released row has."""
        return value

    def read_text(self, text: str) -> Any:
        """Return the number that a text writes, or the text if it writes none."""
        try:
            return int(text)
        except ValueError:
            with contextlib.suppress(ValueError):
                return float(text)
        return text

    def write_text(self, value: Any) -> str:
        """Return a released value as text."""
        return str(value)

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        return f"{number(self.lower)} to {number(self.upper)}" + (
            f", in steps of {number(self.step)}" if self.step != 1 else ""
        )

    def _numeric(self, array: pa.Array, lenient: bool) -> tuple[npt.NDArray[Any], Mask]:
        """Return numbers (0 for null) and a mask of nulls; raise for infinities unless lenient."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        missing = missing_of(array)
        values = np.asarray(array if missing is None else array.fill_null(0))
        if values.dtype.kind == "f":
            if values.dtype == np.float16:
                values = values.astype(np.float32)
            is_nan = np.isnan(values)
            if is_nan.any():
                missing = is_nan if missing is None else missing | is_nan
                values = np.where(is_nan, values.dtype.type(0), values)
            if not lenient and not np.isfinite(values).all():
                raise ColumnError(_INFINITE, row=first_row(np.isinf(values)))
        return values, missing

    def _number(self, value: Any, lenient: bool) -> int | float:
        """Return an object as a number; raise for other objects, and for infinities unless lenient."""
        number = as_number(value)
        if number is None:
            name = f"{type(self).__name__}(…)"
            remedy = 'convert the column to numbers, declare its categories, or list words, as in special=["refused"]'
            raise refuse_object("number", name, remedy)
        if not lenient and isinstance(number, float) and math.isinf(number):
            raise ColumnError(_INFINITE)
        return number

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, Bools] | None:
        values: npt.NDArray[Any]
        if class_ is int:
            values = np.clip(objects, -(2**63), 2**63 - 1).astype(np.int64)
            # Numbers at the ends may be clipped: `_object_code` codes whole numbers of any size.
            is_coded = (values > -(2**63)) & (values < 2**63 - 1)
        elif class_ is float and self._floats_suffice:
            values = objects.astype(np.float64)
            is_coded = np.isfinite(values) | lenient
        else:
            return None
        return self._encode(pa.array(values[is_coded]), True)[0], is_coded

    @property
    def _floats_suffice(self) -> bool:
        """Whether floats distinguish all values, so that a column of floats can be coded."""
        try:
            self.check_type(pa.float64())
        except ColumnError:
            return False
        return True

    def labels(self) -> list[Any]:
        """Return every value of the grid; `ParameterError` above a million steps."""
        if self.size > 1_000_001:
            raise ParameterError(f"a grid of {self.size} values is too fine to be listed; give bins")
        return list(self.decode(np.arange(self.size, dtype=self.code_type)).to_pylist())


def _check_bounds(lower: Any, upper: Any, kind: type | tuple[type, ...], what: str) -> None:
    for name, value in (("lower", lower), ("upper", upper)):
        if isinstance(value, bool) or not isinstance(value, kind):
            raise ParameterError(f"{name} must be {what}, as in (0, 120)")


def nearest(offset: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint64]:
    """Return offsets from the lower bound in steps of ``width``, rounded to the nearest, halves up."""
    if width == 1:
        return offset
    half = width // 2
    # Offsets this near to 2^64 round to the last step anyway, and adding half would overflow.
    return (np.minimum(offset, np.uint64(2**64 - 1 - half)) + np.uint64(half)) // np.uint64(width)


@register
@dataclass(frozen=True)
class Integer(NumberGrid):
    """Whole numbers ``lower, lower + step, …, upper`` with ``|x − y|``; values outside are clamped.

    Parameters
    ----------
    lower, upper
        Public bounds, lower < upper, both within 64 bits.
    step
        Width of a grid step, a divisor of upper − lower. Values are rounded to the grid.
    special
        Up to 16 values off the grid that are no amounts, such as ``[-9, "refused"]``: words or whole numbers. They are
        protected like any value, kept in released rows, counted by `value_counts`, and left out of means.

    Raises
    ------
    ParameterError
        Unless lower < upper, step divides the range and the grid has fewer than 2^32 steps; if a special value is on
        the grid, null or listed twice.

    Examples
    --------
    >>> Integer(0, 120).encode([-5, 33, 400]).tolist()
    [0, 33, 120]
    >>> Integer(0, 10, special=["refused"]).encode([4, "refused"]).tolist()
    [4, 11]
    """

    lower: int
    upper: int
    step: int = 1
    special: InitVar[Sequence[Any]] = ()

    tag: ClassVar[str] = "integer"
    special_kind: ClassVar[str] = "whole numbers"

    def __post_init__(self, special: Sequence[Any]) -> None:
        for name in ("lower", "upper", "step"):
            value = getattr(self, name)
            if isinstance(value, np.integer) or (isinstance(value, float) and value.is_integer()):
                object.__setattr__(self, name, int(value))
        _check_bounds(self.lower, self.upper, int, "a whole number")
        if not -(2**63) <= self.lower < self.upper < 2**63:
            raise ParameterError("lower must be below upper, both within 64 bits")
        object.__setattr__(self, "step", check_whole(self.step, "step"))
        if (self.upper - self.lower) % self.step:
            raise ParameterError("step must divide upper − lower")
        if (self.upper - self.lower) // self.step > LARGEST_GRID:
            raise ParameterError(f"the grid may have at most {LARGEST_GRID} steps; give a larger step")

    is_whole = True

    def parse_special(self, value: Any) -> int | None:
        """Return a whole number within 64 bits; None for others."""
        figure = as_number(value)
        if figure is None or not math.isfinite(figure) or figure != int(figure) or not -(2**63) <= figure < 2**63:
            return None
        return int(figure)

    def in_decimals(self, precision: int, scale: int) -> Integer:
        """Return the space within the range of decimals of this precision."""
        max_value = 10**precision - 1
        low, high = max(self.lower, -max_value), min(self.upper, max_value)
        if high - low < self.step:  # no value is in range
            return Integer(-max_value, max_value, 1 if 2 * max_value <= LARGEST_GRID else 2 * max_value // 18)
        return Integer(low, low + (high - low) // self.step * self.step, self.step)

    def widened(self, steps: int) -> Integer:
        """Return the grid extended by ``steps`` steps beyond both bounds."""
        margin = steps * self.step
        return Integer(self.lower - margin, self.upper + margin, self.step)

    @cached_property
    def size(self) -> int:
        """Number of grid values."""
        return (self.upper - self.lower) // self.step + 1

    natural_type = pa.int64()

    def check_type(self, type_: pa.DataType) -> None:
        """Accept integers and floats that can hold both bounds."""
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        if pa.types.is_integer(value_type):
            info = np.iinfo(value_type.to_pandas_dtype())
            low, high = int(info.min), int(info.max)
            if low <= self.lower and self.upper <= high:
                return
            raise refuse_type("these bounds", type_, f"choose bounds from {low} to {high}")
        if not pa.types.is_floating(value_type):
            raise refuse_type("Integer(…)", type_, "convert the column to numbers or declare its categories")
        # A float has one bit more than it stores, and so contains all whole numbers up to this power of 2.
        max_exact = 2 ** (np.finfo(value_type.to_pandas_dtype()).nmant + 1)
        if max(abs(self.lower), abs(self.upper)) > max_exact:
            raise refuse_type("these bounds exactly", type_, f"choose bounds within ±{max_exact}")

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        values, missing = self._numeric(array, lenient)
        return by_pieces(self._steps, values, self.code_type), missing

    def _steps(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        clipped = np.clip(values, values.dtype.type(self.lower), values.dtype.type(self.upper))
        if clipped.dtype.kind == "f":
            steps: npt.NDArray[Any] = np.rint((clipped.astype(np.float64) - self.lower) / self.step)
            return steps
        if self.lower == 0 and self.step == 1:
            return np.asarray(clipped)
        # uint64 keeps the difference of far-apart int64 bounds from overflowing.
        return nearest(clipped.astype(np.uint64) - np.uint64(self.lower % 2**64), self.step)

    def _object_code(self, value: Any, lenient: bool) -> int:
        number = min(max(self._number(value, lenient), self.lower), self.upper)
        if isinstance(number, float) and max(abs(self.lower), abs(self.upper)) <= 2**53:
            # To even, as NumPy rounds.
            return round((number - self.lower) / self.step)
        # Floats of this size are whole numbers, or round to the grid.
        return (round(number) - self.lower + self.step // 2) // self.step

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        # Arithmetic modulo 2^64 is exact for bounds of either sign.
        offset = codes.astype(np.uint64) * np.uint64(self.step) + np.uint64(self.lower % 2**64)
        numbers = offset if value_type == pa.uint64() else offset.view(np.int64)
        values = masked_array(numbers.astype(value_type.to_pandas_dtype(), copy=False), missing)
        return values.dictionary_encode() if pa.types.is_dictionary(type_) else values

    def _holds(self, value: Any, code: int) -> bool:
        return bool(self.lower + code * self.step == value)

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the values as floats."""
        return self.lower + codes.astype(np.float64) * self.step


def _max_units(precision: int, scale: int) -> int:
    """Return the largest number of units of 10^−scale within the precision whose float is not larger.

    >>> _max_units(4, 2), _max_units(22, 2) < 10**22 - 1
    (9999, True)
    """
    max_units: int = 10**precision - 1
    nearest_float = max_units / 10**scale
    if Fraction(nearest_float) > Fraction(max_units, 10**scale):
        max_units = math.floor(Fraction(math.nextafter(nearest_float, 0)) * 10**scale)
    return max_units


@register
@dataclass(frozen=True)
class Real(NumberGrid):
    """Real numbers from ``lower`` to ``upper`` with ``|x − y|``; clamped, then rounded to a grid of ``steps``.

    Parameters
    ----------
    lower, upper
        Public bounds, finite, lower < upper.
    steps
        Number of grid steps, 1 to 2^32 − 1. Rounding moves a value by at most half a step.
    special
        Up to 16 values off the grid that are no amounts, such as ``[-9, "refused"]``; see `Integer`.

    Raises
    ------
    ParameterError
        Unless the bounds are finite and in order, and steps is a whole number in range; if a special value is on the
        grid, null or listed twice.

    Examples
    --------
    >>> Real(0.0, 1.0, steps=4).decode([0, 1, 4]).to_pylist()
    [0.0, 0.25, 1.0]
    """

    lower: float
    upper: float
    steps: int = 65536
    special: InitVar[Sequence[Any]] = ()

    tag: ClassVar[str] = "real"

    def __post_init__(self, special: Sequence[Any]) -> None:
        for name in ("lower", "upper"):
            value = getattr(self, name)
            if isinstance(value, int | np.integer | np.floating) and not isinstance(value, bool):
                # Python refuses to convert larger whole numbers to floats.
                whole_and_huge = isinstance(value, int) and abs(value) > 2**1023
                object.__setattr__(self, name, math.inf if whole_and_huge else float(value))
        _check_bounds(self.lower, self.upper, float, "a number")
        # Twice, for multiplying steps may round up beyond the largest float.
        if not (math.isfinite(2 * (self.upper - self.lower)) and self.lower < self.upper):
            raise ParameterError("lower must be below upper, both finite and at most 8e307 apart")
        object.__setattr__(self, "steps", check_whole(self.steps, "steps", 1, LARGEST_GRID))
        # Below the normal floats a step has too few digits to be divided by.
        if self.step < max(4 * math.ulp(max(abs(self.lower), abs(self.upper))), sys.float_info.min):
            raise ParameterError("steps are finer than floats between these bounds; give fewer")

    @classmethod
    def fitting(cls, lower: float, upper: float, type_: pa.DataType) -> Real:
        """Return the space with the default steps, or with fewer steps if floats of the type are coarser."""
        steps = cls.steps
        while True:
            try:
                space = cls(lower, upper, steps)
                space.check_type(type_)
            except (ParameterError, ColumnError):
                if steps == 1:
                    raise
                steps //= 2
            else:
                return space

    def parse_special(self, value: Any) -> float | None:
        """Return a finite number; None for others."""
        figure = as_number(value)
        return float(figure) + 0.0 if figure is not None and math.isfinite(figure) else None

    def in_decimals(self, precision: int, scale: int) -> Real:
        """Return the space with multiples of 10^−scale as values, within the range of the decimals."""
        unit, max_units = Decimal(1).scaleb(-scale), _max_units(precision, scale)
        low, high, step = (Decimal(repr(x)) / unit for x in (self.lower, self.upper, self.step))
        if -max_units <= low and high <= max_units and all(x == x.to_integral_value() for x in (low, high, step)):
            return self
        low_units = max(int(low.to_integral_value(ROUND_FLOOR)), -max_units)
        high_units = min(int(high.to_integral_value(ROUND_CEILING)), max_units)
        if low_units >= high_units:  # no value is in range
            low_units, high_units = -max_units, max_units
        largest = min(max(abs(self.lower), abs(self.upper)), float(max(abs(low_units), abs(high_units)) * unit))
        step_units, min_step_units = 1, Decimal(8 * math.ulp(largest)) / unit
        while (high_units - low_units) // step_units >= LARGEST_GRID or step_units < min_step_units:
            step_units *= 10
        steps = -(-(high_units - low_units) // step_units)
        if low_units + steps * step_units > max_units:
            steps -= high_units - steps * step_units < -max_units
            low_units = high_units - steps * step_units
        return Real(float(low_units * unit), float((low_units + steps * step_units) * unit), steps)

    def widened(self, steps: int) -> Real:
        """Return the grid extended by ``steps`` steps beyond both bounds."""
        if self._ratio is None:
            margin = steps * self.step
            return Real(self.lower - margin, self.upper + margin, self.steps + 2 * steps)
        low_units, step_units, units = self._ratio
        low, high = ((low_units + code * step_units) / units for code in (-steps, self.steps + steps))
        return Real(low, high, self.steps + 2 * steps)

    @cached_property
    def size(self) -> int:
        """Number of grid values, steps + 1."""
        return self.steps + 1

    @cached_property
    def step(self) -> float:
        """Width of a grid step."""
        return (self.upper - self.lower) / self.steps

    @cached_property
    def _ratio(self) -> tuple[int, int, int] | None:
        """Return a, b and c of the values (a + b·code) / c of bounds that are short decimals, or None.

        Floats hold all three, every product and every numerator, so that the one division rounds to the float nearest
        to the decimal: 49.9 of `Real(0, 50, steps=500)`, although 499 times a step of 0.1 is 49.900000000000006.
        """
        low, high = (Fraction(repr(bound)) for bound in (self.lower, self.upper))
        step = (high - low) / self.steps
        units = math.lcm(low.denominator, step.denominator)
        low_units, high_units = int(low * units), int(high * units)
        if max(units, abs(low_units), abs(high_units), high_units - low_units) > 2**53:
            return None
        return low_units, (high_units - low_units) // self.steps, units

    natural_type = pa.float64()

    def check_type(self, type_: pa.DataType) -> None:
        """Accept floats fine enough to distinguish the grid's values."""
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        if pa.types.is_integer(value_type):
            raise refuse_type("Real(…)", type_, "declare Integer(lower, upper)")
        if not pa.types.is_floating(value_type):
            raise refuse_type("Real(…)", type_, "convert the column to numbers or declare its categories")
        info = np.finfo(value_type.to_pandas_dtype())
        largest = max(abs(self.lower), abs(self.upper))
        float_spacing = max(float(info.eps) * largest, float(info.smallest_subnormal))
        if largest > float(info.max) or self.step < 4 * float_spacing:
            raise refuse_type("this grid", type_, "give fewer steps or a wider float")

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        values, missing = self._numeric(array, lenient)
        clipped = np.clip(values.astype(np.float64, copy=False), self.lower, self.upper)
        np.subtract(clipped, self.lower, out=clipped)
        np.divide(clipped, self.step, out=clipped)
        # Fewer than 2^32 steps, so that what the division rounds cannot reach the step after the last.
        np.rint(clipped, out=clipped)
        return clipped.astype(self.code_type), missing

    def _object_code(self, value: Any, lenient: bool) -> int:
        # Clamped first: whole numbers may be beyond all floats.
        number = float(min(max(self._number(value, lenient), self.lower), self.upper))
        return round((number - self.lower) / self.step)

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        float_type = np.dtype(value_type.to_pandas_dtype())
        values = self.numbers(codes).astype(float_type, copy=False)
        if float_type != np.float64:
            low, high = (float_type.type(b) for b in (self.lower, self.upper))
            # float(…), for NumPy would round the bound before it compares.
            low = low if float(low) >= self.lower else np.nextafter(low, high)
            high = high if float(high) <= self.upper else np.nextafter(high, low)
            np.clip(values, low, high, out=values)
        array = masked_array(values, missing)
        return array.dictionary_encode() if pa.types.is_dictionary(type_) else array

    def contains(self, value: Any) -> bool:
        """Return whether a value is a number within the bounds."""
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        return is_number and bool(self.lower <= value <= self.upper)

    def _holds(self, value: Any, code: int) -> bool:
        return self.contains(value)

    def distance(self, a: float, b: float) -> float:
        """Return ``|a − b|``; `ParameterError` unless both are numbers."""
        if not all(isinstance(value, numbers.Real | Decimal) for value in (a, b)):
            raise ParameterError("distances are of two numbers")
        return abs(float(a) - float(b))

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the grid values."""
        values = codes.astype(np.float64)
        if self._ratio is not None:
            low_units, step_units, units = self._ratio
            np.multiply(values, step_units, out=values)
            np.add(values, low_units, out=values)
            np.divide(values, units, out=values)
            return values
        np.multiply(values, self.step, out=values)
        np.add(values, self.lower, out=values)
        np.clip(values, self.lower, self.upper, out=values)
        # Products of steps may fall short of the upper bound, whose code must return the bound itself.
        if self.lower + self.steps * self.step < self.upper:
            values[np.asarray(codes) == self.steps] = self.upper
        return values
