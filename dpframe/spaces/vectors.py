"""Vectors: a column whose values are lists of numbers of one length, in a ball of a norm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, repeat
from numbers import Real
from operator import is_
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, check_whole
from dpframe.spaces.arrays import float_rows, is_list_of_floats
from dpframe.spaces.ball import LONGEST, Ball
from dpframe.spaces.base import Codes, Mask, Space, first_row, forwarded, missing_of, refuse_type, register
from dpframe.spaces.json_form import check_names, to_object
from dpframe.spaces.object_codes import plain_lists, value_or_rule
from dpframe.spaces.object_reading import by_type
from dpframe.spaces.python_values import is_collection, is_missing
from dpframe.spaces.words import number

Floats = npt.NDArray[np.float64]

MAX_LISTED_VECTOR_CODES = 1 << 12
"""Limit on the codes of spaces whose vectors are listed."""

CHUNK_NUMBERS = 1 << 15
"""Limit on the numbers that are computed at a time."""

_MAX_MAGNITUDE = 1e150
"""Limit on magnitudes: larger numbers are outside every ball too, and their squares overflow."""

_NORM_TOLERANCE_FACTOR = 1 + 1e-9
"""Factor on the bound within which a norm exceeds the bound only by rounding."""

_FLOATS = "efd"
"""Letters of float dtypes that are Python's float, or widen to it."""

_NOT_NUMBERS = "holds a value that is no list of numbers; pass lists or arrays of floats"
_NAN = "holds a NaN or null within a list; fill it, or make the whole list null and declare Nullable(…)"
_INFINITE = "holds an infinity within a list; fill it, or pass nulls='impute' to clip it"


class VectorSpace(Space):
    """Base class of spaces of vectors: ``width`` numbers are a linear function of coordinates in a `Ball`.

    A row's code is the coordinates' codes side by side, the first one lowest.
    """

    @property
    @abstractmethod
    def ball(self) -> Ball:
        """The coordinates, in integers."""

    @property
    @abstractmethod
    def positions(self) -> tuple[float, ...]:
        """Index of the numbers of a value."""

    @property
    @abstractmethod
    def basis(self) -> Floats:
        """The matrix, shape (width, length), that maps coordinates in parts of the bound to a value."""

    @abstractmethod
    def parts(self, values: Floats) -> Floats:
        """Return coordinates in parts of the bound, shape (n, length), of values, shape (n, width), row by row."""

    def values_of(self, parts: Floats) -> Floats:
        """Return values of coordinates in parts of the bound, row by row."""
        return row_products(parts, self.basis)

    scale: ClassVar[int] = forwarded("ball.radius")

    @property
    def _max_norm(self) -> float:
        """Largest norm of the coordinates, in parts of the bound."""
        return self.ball.radius / self.scale

    @property
    def width(self) -> int:
        """Numbers in a value."""
        return len(self.positions)

    metric = "vector"

    holds_vectors = True

    noun = "vectors"

    instead = "mean or mean_curve"

    size = forwarded("ball.size")  # released vectors may lie outside of the ball

    points = forwarded("ball.points")

    code_words = forwarded("ball.words")

    fixed_point = forwarded("ball.centre")

    @property
    def released(self) -> Space:
        """The space of vectors in a cube: noise may leave the ball of another norm."""
        return ReleasedVectors(self)

    natural_type = pa.list_(pa.float64())

    def check_type(self, type_: pa.DataType) -> None:
        """Accept lists, of a fixed size or not, of floats of 32 or 64 bits."""
        if not is_list_of_floats(type_):
            raise refuse_type(f"a space of {self.noun}", type_, "convert the column to lists of floats")
        if pa.types.is_fixed_size_list(type_) and type_.list_size != self.width:
            raise refuse_type(f"a space of {self.width} numbers", type_, "declare the lists' own length")

    def encode(self, values: Any, *, nulls: str = "error", tolerant: bool = False) -> Codes:
        """Return the code of every value, also of the rows of an array in two dimensions; see `Space.encode`."""
        if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind == "f":
            numbers = pa.array(np.ascontiguousarray(values, dtype=np.float64).ravel())
            values = pa.FixedSizeListArray.from_arrays(numbers, values.shape[1])
        return super().encode(values, nulls=nulls, tolerant=tolerant)

    def _known(self, array: pa.Array) -> pa.Array:
        _, fits = float_rows(array, self.width)
        return array if fits.all() else array.take(pa.array(np.arange(len(array)), mask=~fits))

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        missing = missing_of(array)
        lengths = np.asarray(pc.list_value_length(array).fill_null(self.width))
        if (lengths != self.width).any():
            raise ColumnError(self._wrong_length, row=first_row(lengths != self.width))
        # Flattening leaves out values under null lists, and nulls are NaN in NumPy.
        rows = array.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False).reshape(-1, self.width)
        if missing is not None:
            list_rows, rows = rows, np.zeros((len(array), self.width))
            rows[~missing] = list_rows
        return self._encode_rows(rows, lenient), missing

    @property
    def _wrong_length(self) -> str:
        return f"holds a list of another length than {self.width}, which its space has; cut or fill the lists"

    def _object_code(self, value: Any, lenient: bool) -> int:
        return self.code_list(self._encode_rows(self._object_row(value)[None, :], lenient))[0]

    def _encode_objects(self, values: Sequence[Any], lenient: bool) -> tuple[Codes, Mask]:
        rows, missing = np.zeros((len(values), self.width)), np.zeros(len(values), dtype=np.bool_)
        is_unread = np.ones(len(values), dtype=np.bool_)
        for class_, positions, objects in by_type(values):
            is_fitting = plain_lists(class_, objects, _FLOATS)
            if is_fitting is None or any(class_ is set_class for set_class in (set, frozenset)):
                continue
            is_fitting[is_fitting] = (
                np.fromiter(map(len, objects[is_fitting]), dtype=np.int64, count=int(is_fitting.sum())) == self.width
            )
            items = list(chain.from_iterable(objects[is_fitting]))
            floats = np.fromiter(map(is_, map(type, items), repeat(float)), dtype=np.bool_, count=len(items))
            has_only_floats = floats.reshape(-1, self.width).all(axis=1)
            is_fitting[is_fitting] = has_only_floats
            numbers = (
                items
                if has_only_floats.all()
                else list(compress(items, np.repeat(has_only_floats, self.width).tolist()))
            )
            rows[positions[is_fitting]] = np.array(numbers, dtype=np.float64).reshape(-1, self.width)
            is_unread[positions[is_fitting]] = False
        unread_rows = np.flatnonzero(is_unread)
        for row in unread_rows.tolist():
            row_or_rule = value_or_rule(values[row], self._object_row, _NOT_NUMBERS)
            if isinstance(row_or_rule, str):
                raise ColumnError(row_or_rule, row=row)
            missing[row] = row_or_rule is None
            if row_or_rule is not None:
                rows[row] = row_or_rule
        return self._encode_rows(rows, lenient), missing if missing.any() else None

    def _object_row(self, value: Any) -> Floats:
        if not is_collection(value) or isinstance(value, set | frozenset):
            raise ColumnError(_NOT_NUMBERS)
        if len(value) != self.width:
            raise ColumnError(self._wrong_length)
        row = np.asarray(value)
        if row.dtype.kind == "O" and any(map(is_missing, row.ravel().tolist())):
            raise ColumnError(_NAN)
        if row.dtype.kind not in "fiu" or row.shape != (self.width,):
            raise ColumnError(_NOT_NUMBERS)
        return row.astype(np.float64)

    def _chunks(self, count: int) -> Iterator[slice]:
        """Yield the rows whose numbers are computed at a time: as many as a cache holds."""
        step = max(1, CHUNK_NUMBERS // self.width)
        return (slice(start, start + step) for start in range(0, count, step))

    def _encode_rows(self, rows: Floats, lenient: bool) -> Codes:
        """Return the codes of rows of numbers, clipped to the ball and rounded so that their norms stay within."""
        codes = np.empty((len(rows), self.ball.words), dtype=np.uint64)
        for chunk in self._chunks(len(rows)):
            chunk_rows = rows[chunk]
            for is_invalid, rule in ((np.isnan(chunk_rows), _NAN), (np.isinf(chunk_rows) & (not lenient), _INFINITE)):
                if is_invalid.any():
                    raise ColumnError(rule, row=chunk.start + first_row(np.asarray(is_invalid.any(axis=1))))
            parts = self.parts(np.clip(chunk_rows, -_MAX_MAGNITUDE, _MAX_MAGNITUDE))
            # Scaled by the largest coordinate, so that squares do not overflow.
            largest = np.maximum(np.abs(parts).max(axis=1), 1.0)
            scaled_parts = parts / largest[:, None]
            with np.errstate(divide="ignore"):
                scaled_parts *= (self.scale * np.minimum(largest, self._max_norm / self._norms(scaled_parts)))[:, None]
            fields = np.clip(np.floor((scaled_parts + self.ball.last + 1) / 2), 0, self.ball.last)
            codes[chunk] = self.ball.within(self.ball.pack(fields.astype(np.uint64)))
        return codes

    def outside(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Return a mask of values, shape (n, width), that are shrunk as their norm exceeds the bound."""
        return np.asarray(self._norms(self.parts(values)) > self._max_norm * _NORM_TOLERANCE_FACTOR)

    def _norms(self, rows: Floats) -> Floats:
        """Return the norms of rows, column by column: a sum along rows may depend on their number."""
        if self.ball.norm == "linf":
            return np.asarray(np.abs(rows).max(axis=1))
        total = np.zeros(len(rows))
        for column in rows.T:
            total += column * column if self.ball.norm == "l2" else np.abs(column)
        return np.sqrt(total) if self.ball.norm == "l2" else total

    def coordinates(self, codes: Codes) -> npt.NDArray[np.int64]:
        """Return u, whole numbers of −U…U in parts of the bound, shape (n, length)."""
        return self.ball.odd(self.ball.unpack(codes))

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        rows = np.empty((len(codes), self.width))
        for part in self._chunks(len(codes)):
            rows[part] = self.values_of(self.coordinates(codes[part]) / self.scale)
        t, null_mask = pa.types, None if missing is None else pa.array(missing)
        if missing is not None:
            rows[missing] = 0.0
        numbers = pa.array(rows.ravel()).cast(type_.value_type)
        if t.is_fixed_size_list(type_):
            return pa.FixedSizeListArray.from_arrays(numbers, type=type_, mask=null_mask)
        lengths = np.full(len(rows), self.width)
        if missing is not None:
            lengths[missing] = 0
            numbers = pa.array(rows[~missing].ravel()).cast(type_.value_type)
        is_large = t.is_large_list(type_)
        if int(lengths.sum()) >= 2**31 and not is_large:
            raise ColumnError("holds too many numbers for one array of lists; decode fewer rows at a time")
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if is_large else np.int32)
        maker = pa.LargeListArray if is_large else pa.ListArray
        return maker.from_arrays(pa.array(offsets), numbers, type=type_, mask=null_mask)

    def labels(self) -> list[Any]:
        """Return every vector as a list, in the order of codes; `ParameterError` for more than 4,096."""
        if self.size > MAX_LISTED_VECTOR_CODES:
            raise ParameterError(f"{self.noun} have too many values to list; use {self.instead}")
        vectors: list[Any] = self.decode(self.code_array(range(self.size))).to_pylist()
        return vectors

    def contains(self, value: Any) -> bool:
        """Return whether a value is a list of ``width`` numbers whose norm is within the bound."""
        row = value_or_rule(value, self._object_row, _NOT_NUMBERS)
        if row is None or isinstance(row, str) or not np.isfinite(row).all():
            return False
        parts = self.parts(row[None, :])
        projection = self.values_of(parts)[0]
        is_near = bool(np.abs(projection - row).max() <= 1e-6 * max(float(np.abs(row).max()), 1e-300))
        return is_near and float(self._norms(parts)[0]) <= self._max_norm * _NORM_TOLERANCE_FACTOR

    def _holds(self, value: Any, code: int) -> bool:
        return self.contains(value)

    def code_distance(self, x: int, y: int) -> float:
        """Return the norm of the difference of the vectors of two codes."""
        a, b = self.coordinates(self.code_array([x, y]))
        return float(self._norms((a - b)[None, :].astype(np.float64))[0]) / 2 * self.step


class BoundedVectors(VectorSpace):
    """Vectors in a ball of radius ``bound``, in the unit of the values' norm."""

    bound: float

    def with_room(self, room: int) -> Self:
        """Return the space on a grid that has room for noise; see `Vector`."""
        space: Any = self
        vectors: Self = replace(space, room=room)
        return vectors

    @property
    def step(self) -> float:
        """Distance of neighbouring grid points of a coordinate."""
        return 2 * self.bound / self.scale

    @property
    def diameter(self) -> float:
        """Twice the bound."""
        return 2 * self.bound


def row_products(rows: Floats, matrix: Floats) -> Floats:
    """Return rows times a matrix's transpose, independently by row: a matrix product's rounding is not."""
    products = np.zeros((len(matrix), len(rows)))
    term = np.empty_like(products)
    for column, factors in zip(np.ascontiguousarray(rows.T), matrix.T, strict=True):
        products += np.multiply(factors[:, None], column, out=term)
    return np.ascontiguousarray(products.T)


@register
@dataclass(frozen=True, init=False, repr=False)
class Vector(BoundedVectors):
    """Lists of ``length`` numbers whose norm is at most ``bound``; their distance is the norm of the difference.

    Longer vectors are shrunk to the ball along their direction. Each coordinate is then rounded to the grid of 2^bits
    odd multiples of bound/(2^bits − 1), and the grid point's own norm is checked in integers, so that no rounding
    leaves the ball that noise is made for. Values are Arrow lists (fixed-size ones come back as lists), arrays in two
    dimensions, or in object columns lists, tuples and arrays.

    Parameters
    ----------
    size
        Numbers of a value, up to 4,096; the space has it as ``length``, as the ``size`` of a space counts its codes.
    bound
        Largest norm, above 0, in the values' own unit. It must not be read off the data.
    norm
        ``"l1"``, ``"l2"`` or ``"linf"``. Noise is in proportion to the largest ℓ1 distance, which is 2·bound, √length
        times and length times as much.
    bits
        Bits of a coordinate: 2, 4, 8 or 16.
    room
        Number of bounds between 0 and the ends of a coordinate's grid, a power of two. Plans set the room if a column
        has Gaussian noise, which would leave a grid that ends at the bound.

    Raises
    ------
    ParameterError
        For another length, bound, norm, number of bits or room.

    Examples
    --------
    >>> space = Vector(2, bound=1.0, norm="l2")
    >>> [round(x, 3) for x in space.decode(space.encode([[30.0, -40.0]])).to_pylist()[0]]  # clipped
    [0.6, -0.8]
    >>> space.distance([1.0, 0.0], [0.0, 1.0]) < 2 ** 0.5
    True
    """

    length: int
    bound: float
    norm: str = "l2"
    bits: int = 16
    room: int = 1

    tag: ClassVar[str] = "vector"

    def __init__(self, size: int, bound: float, norm: str = "l2", bits: int = 16, room: int = 1) -> None:
        length = check_whole(size, "size", 1, LONGEST)
        fields = {"length": length, "bound": check_bound(bound), "norm": norm, "bits": bits, "room": room}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "bits", self.ball.bits)

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        return f"lists of {self.length} numbers, {self.norm} norm at most {number(self.bound)}"

    @cached_property
    def ball(self) -> Ball:
        """The coordinates, in integers."""
        return Ball(self.length, self.bits, self.norm, self.room)

    def __repr__(self) -> str:
        room = f", room={self.room}" if self.room > 1 else ""
        return f"Vector(size={self.length}, bound={self.bound}, norm={self.norm!r}, bits={self.bits}{room})"

    def with_room(self, room: int) -> Vector:
        """Return the space on a grid that has room for noise."""
        return Vector(self.length, self.bound, self.norm, self.bits, room)

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag; with the room unless it is 1."""
        return {"space": self.tag} | to_object(self, sparse=("room",))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Return the space from its JSON fields; plans name the size ``length``."""
        name = "length" if "length" in data else "size"
        check_names(data, f"space {cls.tag}", [name, "bound"], ["norm", "bits", "room"])
        return cls(data[name], **{key: value for key, value in data.items() if key != name})

    @property
    def positions(self) -> tuple[float, ...]:
        """0, 1, … of the coordinates."""
        return tuple(range(self.length))

    @cached_property
    def basis(self) -> Floats:
        """The bound on the diagonal."""
        return np.eye(self.length) * self.bound

    def parts(self, values: Floats) -> Floats:
        """Return values in parts of the bound."""
        return values / self.bound

    def values_of(self, parts: Floats) -> Floats:
        """Return values of coordinates: the basis is diagonal."""
        return parts * self.bound


@dataclass(frozen=True)
class ReleasedVectors(VectorSpace):
    """Released vectors of a space, with coordinates anywhere on their grid."""

    of: VectorSpace

    tag: ClassVar[str] = "released_vector"

    scale = forwarded("of.scale")
    positions = forwarded("of.positions")
    basis = forwarded("of.basis")
    step = forwarded("of.step")
    parts = forwarded("of.parts")
    values_of = forwarded("of.values_of")
    check_type = forwarded("of.check_type")

    @cached_property
    def ball(self) -> Ball:
        """The coordinates in a cube."""
        return Ball(self.of.ball.length, self.of.ball.bits, "linf")

    @property
    def released(self) -> Space:
        """The space itself."""
        return self


def check_bound(bound: Any) -> float:
    """Return a bound of norms as a float, or raise `ParameterError` unless it is a number above 0."""
    is_number = isinstance(bound, Real) and not isinstance(bound, bool)
    if not is_number or not 1e-100 < bound < 1e100:
        raise ParameterError("bound must be a number above 0, the largest norm of a value; do not read it off the data")
    return float(bound)
