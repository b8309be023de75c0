"""Times as a space: dates, timestamps and durations on a grid of nanoseconds."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ParameterError
from dpframe.spaces.arrays import by_pieces, masked_array
from dpframe.spaces.base import LARGEST_GRID, Codes, Mask, missing_of, refuse_object, refuse_type, register
from dpframe.spaces.grids import Bools, NumberGrid, nearest
from dpframe.spaces.object_codes import plain_times
from dpframe.spaces.object_reading import Objects
from dpframe.spaces.python_values import nanoseconds

_RESOLUTIONS = {
    "D": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "min": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

CALENDAR = np.datetime64(dt.datetime.min, "us"), np.datetime64(dt.datetime.max, "us")
"""First and last instant of the years 1 to 9999: a limit of Python's calendar, and so of pandas' scalars."""


def _bound_nanoseconds(value: Any, name: str) -> tuple[int, str]:
    """Return a bound as nanoseconds since 1970 (or as a duration) and as canonical text."""
    parsed = _parse_time(value)
    if parsed is None:
        raise ParameterError(
            f"{name} must be a date, a datetime, a timedelta or ISO text, e.g. {name}='2020-01-31', or "
            f"{name}='PT2H' for a duration"
        )
    return parsed


def _parse_time(value: Any) -> tuple[int, str] | None:
    try:
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[us]").item()
        if isinstance(value, np.timedelta64):
            value = value.astype("timedelta64[us]").item()
        if isinstance(value, str) and value.startswith("P"):
            value = _parse_duration(value)
        value = since_midnight(value)
        if isinstance(value, str):
            value = dt.datetime.fromisoformat(value)
        if isinstance(value, dt.timedelta):
            micros = int(value // dt.timedelta(microseconds=1))
            return micros * 1000, f"PT{(Decimal(micros) / 1_000_000).normalize():f}S"
        if not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        utc_time = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
        micros = int((utc_time - _EPOCH) // dt.timedelta(microseconds=1))
        text = (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=None).isoformat()
        return micros * 1000, text.removesuffix("T00:00:00")
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return None


def since_midnight(value: Any) -> Any:
    """Return a time of day, or its text, as the time since midnight; other values unchanged."""
    if isinstance(value, str) and ":" in value[:3]:
        with contextlib.suppress(ValueError):
            value = dt.time.fromisoformat(value)
    if isinstance(value, dt.time):
        return dt.datetime.combine(dt.date.min, value.replace(tzinfo=None)) - dt.datetime.min
    return value


def _time_of_day(microseconds: int) -> dt.time:
    """Return the time of day at these microseconds after midnight; `OverflowError` beyond the day."""
    if not 0 <= microseconds < _RESOLUTIONS["D"] // 1000:
        raise OverflowError
    return (dt.datetime.min + dt.timedelta(microseconds=microseconds)).time()


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?")


def _parse_duration(text: str) -> dt.timedelta:
    """Return an ISO 8601 duration of days, hours, minutes and seconds, to the microsecond; `ValueError` for others."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    micros = int(Decimal(match[4] or 0) * 1_000_000)
    return dt.timedelta(days=days, hours=hours, minutes=minutes, microseconds=micros)


@register
@dataclass(frozen=True)
class Datetime(NumberGrid):
    """Dates, timestamps (with or without zone) or durations, with the time between them.

    Parameters
    ----------
    lower, upper
        Public bounds: dates, datetimes or ISO text, two timedeltas for durations, or two times of day (``"08:00"``),
        which are coded as the time since midnight; objects come back as ``datetime.time`` then. Bounds without a zone
        are read as UTC when the column has one.
    resolution
        Width of the grid: ``"D"``, ``"h"``, ``"min"``, ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``. Values
        are rounded to it, counted from ``lower``.
    special
        Up to 16 values off the grid that are no times, such as ``["9999-12-31", "refused"]``; see `Integer`.

    Raises
    ------
    ParameterError
        Unless both bounds are of one kind and in order, and the grid has fewer than 2^32 steps.

    Examples
    --------
    >>> Datetime("2020-01-01", "2020-12-31").encode(["2020-01-03"]).tolist()
    Traceback (most recent call last):
    ...
    dpframe.errors.ColumnError: is no date or timestamp, and Datetime(…) holds nothing else; parse it with \
    pandas.to_datetime or to_timedelta at row position 0
    >>> import datetime
    >>> Datetime("2020-01-01", "2020-12-31").encode([datetime.date(2020, 1, 3)]).tolist()
    [2]
    """

    lower: Any
    upper: Any
    resolution: str = "D"
    special: InitVar[Sequence[Any]] = ()
    _of_day: bool = field(init=False, repr=False, compare=False)

    tag: ClassVar[str] = "datetime"
    special_kind: ClassVar[str] = "times"
    special_example: ClassVar[str] = '"9999-12-31", "refused"'

    def parse_special(self, value: Any) -> str | None:
        """Return a time of the grid's kind as ISO text; None for others."""
        if isinstance(value, bool | int | float | np.number):
            return None
        parsed = _parse_time(value)
        return parsed[1] if parsed is not None and parsed[1].startswith("P") == self.is_duration else None

    def _special_nanoseconds(self, value: Any) -> int:
        return _bound_nanoseconds(value, "special")[0]

    def ticks(self, array: pa.Array) -> npt.NDArray[Any]:
        """Return an array's times in the units of its type, 0 for null."""
        ticks = array.view(pa.from_numpy_dtype(self.tick_type(array.type)))
        return np.asarray(ticks if array.null_count == 0 else ticks.fill_null(0))

    def tick_type(self, type_: pa.DataType) -> np.dtype[Any]:
        """Return the NumPy type of the units of a column's type."""
        return np.dtype(np.int32 if pa.types.is_date32(type_) else np.int64)

    def special_tick(self, value: Any, type_: pa.DataType) -> Any:
        """Return a special value in the units of a column's type."""
        return self.tick_type(type_).type(self._special_nanoseconds(value) // self._tick(type_))

    def holds_special(self, value: Any, type_: pa.DataType) -> bool:
        """Return whether a column's type holds a special value exactly."""
        ticks, remainder = divmod(self._special_nanoseconds(value), self._tick(type_))
        return not remainder and abs(ticks) <= np.iinfo(self.tick_type(type_)).max

    def has_on_grid(self, value: Any) -> bool:
        """Return whether a special value is a value of the grid."""
        offset = self._special_nanoseconds(value) - self._start
        return 0 <= offset <= (self.size - 1) * self._width and not offset % self._width

    def is_equal(self, value: Any, special_value: Any) -> bool:
        """Return whether an object is a special value."""
        return nanoseconds(value, self.is_duration) == self._special_nanoseconds(special_value)

    def special_object(self, value: Any) -> Any:
        """Return a special value as an object: a date on a grid of dates, a datetime or timedelta on others."""
        ticks = self._special_nanoseconds(value) // 1000
        if self.is_duration:
            return _time_of_day(ticks) if self._of_day else dt.timedelta(microseconds=ticks)
        time = (_EPOCH + dt.timedelta(microseconds=ticks)).replace(tzinfo=None)
        return time.date() if pa.types.is_date(self.natural_type) and time.time() == dt.time() else time

    def read_text(self, text: str) -> Any:
        """Return the time that a text writes, or the text if it writes none."""
        if self.parse_special(text) is None:
            return text
        ticks = self._special_nanoseconds(text) // 1000
        return dt.timedelta(microseconds=ticks) if self.is_duration else _EPOCH + dt.timedelta(microseconds=ticks)

    def write_text(self, value: Any) -> str:
        """Return a released value as ISO text."""
        if isinstance(value, str):
            return value
        return _bound_nanoseconds(value, "value")[1]

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        return " to ".join(self._declared_bounds)

    @property
    def _declared_bounds(self) -> tuple[str, str]:
        """The bounds as they are declared."""
        if not self._of_day:
            return self.lower, self.upper
        last = self._start + (self.size - 1) * self._width
        return _time_of_day(self._start // 1000).isoformat(), _time_of_day(last // 1000).isoformat()

    def __repr__(self) -> str:
        lower, upper = self._declared_bounds
        return f"Datetime({lower=!r}, {upper=!r}, resolution={self.resolution!r})"

    def __post_init__(self, special: Sequence[Any]) -> None:
        if not isinstance(self.resolution, str) or self.resolution not in _RESOLUTIONS:
            raise ParameterError(f"resolution must be one of {', '.join(_RESOLUTIONS)}")
        low, low_text = _bound_nanoseconds(self.lower, "lower")
        high, high_text = _bound_nanoseconds(self.upper, "upper")
        if low_text.startswith("P") != high_text.startswith("P"):
            raise ParameterError("lower and upper must be two points in time or two durations")
        of_day = all(since_midnight(bound) is not bound for bound in (self.lower, self.upper))
        object.__setattr__(self, "_of_day", of_day)
        object.__setattr__(self, "lower", low_text)
        object.__setattr__(self, "upper", high_text)
        if not low < high:
            raise ParameterError("lower must be before upper")
        if (high - low) % self._width:
            raise ParameterError("upper − lower must be a whole number of steps of the resolution")
        if (high - low) // self._width > LARGEST_GRID:
            raise ParameterError(f"the grid may have at most {LARGEST_GRID} steps; give a coarser resolution")

    def in_durations(self) -> Datetime:
        """Return the space with times of day as durations."""
        return Datetime(self.lower, self.upper, self.resolution)

    def within_day(self) -> Datetime:
        """Return the grid within one day, or all minutes of a day if the grid has fewer than two times there."""
        # Negated floor division rounds up, to the first code at or after midnight.
        first = max(0, -(self._start // self._width))
        last = min(self.size - 1, (_RESOLUTIONS["D"] - 1 - self._start) // self._width)
        if first >= last:
            return Datetime("00:00", "23:59", "min")
        lower, upper = (_time_of_day((self._start + code * self._width) // 1000) for code in (first, last))
        return Datetime(lower, upper, self.resolution)

    def widened(self, steps: int) -> Datetime:
        """Return the grid extended by ``steps`` steps beyond both bounds.

        Raises
        ------
        ParameterError
            If the grid leaves the years 1 to 9999, or the day of times of day.
        """
        margin = steps * self._width // 1000
        low_micros, high_micros = (
            self._start // 1000 - margin,
            (self._start + (self.size - 1) * self._width) // 1000 + margin,
        )
        limit = "a day" if self._of_day else "the years 1 to 9999"
        try:
            low_time, high_time = dt.timedelta(microseconds=low_micros), dt.timedelta(microseconds=high_micros)
            if self._of_day:
                return Datetime(_time_of_day(low_micros), _time_of_day(high_micros), self.resolution)
            if self.is_duration:
                return Datetime(low_time, high_time, self.resolution)
            return Datetime(
                (_EPOCH + low_time).replace(tzinfo=None), (_EPOCH + high_time).replace(tzinfo=None), self.resolution
            )
        except OverflowError:
            raise ParameterError(
                f"noise would reach beyond {limit}; use laplace or square_wave, which stay within the "
                "bounds, or give the column a larger epsilon"
            ) from None

    @property
    def is_duration(self) -> bool:
        """Whether the values are durations."""
        return str(self.lower).startswith("P")

    @property
    def unit(self) -> str:
        """The resolution."""
        return self.resolution

    @cached_property
    def _width(self) -> int:
        return _RESOLUTIONS[self.resolution]

    @cached_property
    def _start(self) -> int:
        return _bound_nanoseconds(self.lower, "lower")[0]

    @cached_property
    def size(self) -> int:
        """Number of grid values."""
        return (_bound_nanoseconds(self.upper, "upper")[0] - self._start) // self._width + 1

    @property
    def natural_type(self) -> pa.DataType:
        """Dates, timestamps or durations in the coarsest unit that holds all of them."""
        # The lower bound too must be a whole number of units.
        fits = {unit for unit, width in _RESOLUTIONS.items() if self._width % width == self._start % width == 0}
        unit = next(unit for unit in ("s", "ms", "us", "ns") if unit in fits)
        if self.is_duration:
            return pa.duration(unit)
        return pa.date32() if "D" in fits else pa.timestamp(unit)

    @property
    def object_type(self) -> pa.DataType:
        """Timestamps or durations in microseconds, or in nanoseconds for finer grids."""
        unit = "us" if self._width % 1000 == self._start % 1000 == 0 else "ns"
        return pa.duration(unit) if self.is_duration else pa.timestamp(unit)

    @staticmethod
    def _tick(type_: pa.DataType) -> int:
        """Return the nanoseconds in one unit of a temporal Arrow type."""
        if pa.types.is_date32(type_):
            return _RESOLUTIONS["D"]
        return _RESOLUTIONS["ms" if pa.types.is_date64(type_) else type_.unit]

    def check_type(self, type_: pa.DataType) -> None:
        """Accept dates, timestamps or durations that can hold the bounds and the resolution."""
        t = pa.types
        if t.is_string(type_) or t.is_large_string(type_):
            raise refuse_type("Datetime(…)", type_, "parse it with pandas.to_datetime")
        fits = t.is_duration(type_) if self.is_duration else t.is_date(type_) or t.is_timestamp(type_)
        if not fits:
            kind = "durations" if self.is_duration else "dates or timestamps"
            raise refuse_type("Datetime(…)", type_, f"the bounds ask for {kind}: convert the column to them")
        tick = _RESOLUTIONS["D"] if t.is_date(type_) else self._tick(type_)
        if self._width % tick or self._start % tick:
            raise refuse_type(f"steps of {self.resolution}", type_, "give a coarser resolution and bounds on it")
        last = self._start + (self.size - 1) * self._width
        if max(abs(self._start), abs(last)) // tick >= (2**31 if t.is_date32(type_) else 2**63):
            raise refuse_type("these bounds", type_, "choose bounds it can represent")

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        missing = missing_of(array)
        ticks = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
        values = np.asarray(ticks if missing is None else ticks.fill_null(0)).astype(np.int64, copy=False)
        tick = self._tick(array.type)
        low, per_step = self._start // tick, self._width // tick

        def steps(ticks: npt.NDArray[Any]) -> npt.NDArray[Any]:
            clipped = np.clip(ticks, low, low + (self.size - 1) * per_step)
            return nearest(clipped.astype(np.uint64) - np.uint64(low % 2**64), per_step)

        return by_pieces(steps, values, self.code_type), missing

    def _object_code(self, value: Any, lenient: bool) -> int:
        ticks = nanoseconds(value, self.is_duration)
        if ticks is None:
            kind = "duration" if self.is_duration else "date or timestamp"
            raise refuse_object(kind, "Datetime(…)", "parse it with pandas.to_datetime or to_timedelta")
        offset = min(max(ticks - self._start, 0), (self.size - 1) * self._width)
        return (offset + self._width // 2) // self._width

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, Bools] | None:
        if self.object_type.unit != "us":
            return None
        times_and_mask = plain_times(class_, objects, self.is_duration)
        return None if times_and_mask is None else (self._encode(times_and_mask[0], True)[0], times_and_mask[1])

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        tick = self._tick(type_)
        low, per_step = self._start // tick, self._width // tick
        values = codes.astype(np.int64) * per_step + low
        if pa.types.is_date32(type_):
            return masked_array(values.astype(np.int32), missing).view(type_)
        return masked_array(values, missing).view(type_)

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        times = np.asarray(self._decode(codes, self.natural_type, None))
        unit, kind = np.datetime_data(times.dtype)[0], times.dtype.kind
        if unit == "ns" and not self._of_day:  # Python's own times end at the microsecond
            return super()._objects(codes, missing)
        objects: Objects = times.astype(times.dtype if unit == "D" else f"{kind}8[us]").astype(object)
        if self._of_day:
            objects = np.array([(dt.datetime.min + span).time() for span in objects], dtype=object)
        if missing is not None:
            objects[missing] = None
        return objects

    def labels(self) -> list[Any]:
        """Return every value of the grid; `ParameterError` above a million steps."""
        labels = super().labels()
        return self.objects(np.arange(self.size)).tolist() if self._of_day else labels

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag; times of day stay times of day."""
        lower, upper = self._declared_bounds
        return super().to_json() | {"lower": lower, "upper": upper}

    def _holds(self, value: Any, code: int) -> bool:
        ticks = nanoseconds(value, self.is_duration)
        return ticks is not None and self._start <= ticks <= self._start + (self.size - 1) * self._width

    is_time = True

    @property
    def midnights(self) -> range:
        """Codes of midnights in UTC, if the grid has them and is finer than days."""
        steps = _RESOLUTIONS["D"] // self._width
        on_grid = steps > 1 and not self.is_duration and not self._start % self._width
        return range(-self._start // self._width % steps, self.size, steps) if on_grid else range(0)

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the steps from the lower bound."""
        return codes.astype(np.float64)

    def instants(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return points in time to the microsecond, within the years 1 to 9999, or durations."""
        if self.is_duration:
            return np.asarray(np.timedelta64(self._start // 1000, "us") + self.durations(numbers))
        times = np.datetime64(self._start // 1000, "us") + self.durations(numbers)
        return np.asarray(np.clip(times, *CALENDAR))

    def durations(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return numbers of steps as durations to the microsecond."""
        microseconds = np.rint(numbers * (self._width / 1000))
        is_representable = np.isfinite(microseconds) & (np.abs(microseconds) < 2**62)
        spans = np.where(is_representable, microseconds, 0).astype("timedelta64[us]")
        spans[~is_representable] = np.timedelta64("NaT", "us")
        return spans

    def code_distance(self, x: int, y: int) -> float:
        """Return the number of steps of the resolution between two codes."""
        return float(abs(x - y))
