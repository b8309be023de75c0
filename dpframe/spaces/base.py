"""The base class of spaces, helpers for codes, and the registry of tags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.spaces.arrays import replaced
from dpframe.spaces.columns import as_arrow, elements
from dpframe.spaces.entries import Entries
from dpframe.spaces.json_form import from_object, to_object
from dpframe.spaces.object_codes import encode_objects, uncollected
from dpframe.spaces.object_reading import Objects, read_as
from dpframe.spaces.words import type_name

Codes = npt.NDArray[np.unsignedinteger]
Mask = npt.NDArray[np.bool_] | None

LARGEST_GRID = (1 << 32) - 1
"""Limit on the steps of a grid."""

SPACES: dict[str, type[Space]] = {}
"""Every space by its tag."""

LISTED = {
    "contains",
    "decode",
    "diameter",
    "distance",
    "encode",
    "min_distance",
    "size",
}
"""Attributes that ``dir`` and Tab show in addition to a space's fields."""

S = TypeVar("S", bound="type[Space]")


def register(cls: S) -> S:
    """Enter a space in the registry under its tag."""
    SPACES[cls.tag] = cls
    return cls


def missing_of(array: pa.Array) -> Mask:
    """Return a mask of an array's nulls; None if there are none."""
    if array.null_count == 0:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.asarray(pc.is_null(array))
    # From the bits themselves: Arrow hands booleans to NumPy one by one.
    start, stop = array.offset, array.offset + len(array)
    bits = np.frombuffer(bitmap, dtype=np.uint8)[start // 8 : -(-stop // 8)]
    present = np.unpackbits(bits, bitorder="little")[start % 8 : start % 8 + len(array)]
    return np.logical_not(present.view(np.bool_))


def decoded(array: pa.Array) -> pa.Array:
    """Return the values of a dictionary's rows; other arrays unchanged."""
    if not pa.types.is_dictionary(array.type):
        return array
    if pa.types.is_string_view(array.type.value_type):  # whose rows Arrow cannot take
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.dictionary_decode()


def in_words(codes: Codes, last: int) -> bool:
    """Return whether rows of 64-bit words, lowest first, are numbers of at most ``last``."""
    is_below, is_equal = np.zeros(len(codes), dtype=np.bool_), np.ones(len(codes), dtype=np.bool_)
    # From the highest word, as the first word that differs decides.
    for word in reversed(range(codes.shape[1])):
        last_word = np.uint64(last >> 64 * word & 0xFFFFFFFFFFFFFFFF)
        is_below |= is_equal & (codes[:, word] < last_word)
        is_equal &= codes[:, word] == last_word
    return bool((is_below | is_equal).all()) and not last >> 64 * codes.shape[1]


def first_row(mask: npt.NDArray[np.bool_]) -> int:
    """Return the position of the first true value."""
    return int(np.argmax(mask))


def numbers_of(space: Space, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the numbers of codes of a space of numbers."""
    values = space.numbers(codes)
    assert values is not None
    return values


def affine_map(space: Space) -> tuple[float, float]:
    """Return the number of code 0 and the distance between neighbouring codes' numbers."""
    start, next_number = numbers_of(space, np.array([0, 1]))
    return float(start), float(next_number - start)


def forwarded(path: str) -> Any:
    """Return a property that reads an attribute by a path, such as ``"inner.unit"``."""
    return property(attrgetter(path))


class Space(ABC):
    """A column's values, metric and coding.

    ``metric`` is ``"discrete"`` (0 or 1), ``"line"`` (distance of codes times ``step``), ``"symmetric
    difference"`` (of sets), ``"vector"`` (a norm's), or one of the latter three with ``"nullable "`` before it; it
    decides which mechanisms there are.

    Codes are integers. Codes beyond a machine word are rows of ``code_words`` 64-bit words in arrays, lowest first.
    """

    tag: ClassVar[str]

    MECHANISMS: ClassVar[Mapping[str, str]] = {
        "discrete": "randomized_response",
        "line": "geometric",
        "symmetric difference": "bitflip",
        "vector": "vector",
    }
    """Tag of the mechanism that spaces of a metric have by default."""

    has_null: ClassVar[bool] = False
    """Whether null is a value; its code is then the last one."""

    is_whole: ClassVar[bool] = False
    """Whether values are whole numbers."""

    holds_sets: ClassVar[bool] = False
    """Whether values are sets."""

    holds_vectors: ClassVar[bool] = False
    """Whether values are vectors."""

    noun: ClassVar[str] = "sets"
    """Plural noun for values whose codes are words."""

    instead: ClassVar[str] = "support (with by=…), cooccurrence or set_sizes"
    """Estimates for values that are neither numbers nor listed."""

    is_time: ClassVar[bool] = False
    """Whether values are times, whose numbers count steps from the lower bound."""

    @property
    def midnights(self) -> range:
        """Codes of midnights on a grid of points in time that is finer than days; none on others."""
        return range(0)

    def __dir__(self) -> list[str]:
        """Fields and attributes for users; attributes for the library are not listed."""
        names = super().__dir__()
        field_names = {field.name for field in fields(cast(Any, self))}
        return [name for name in names if name.startswith("_") or name in field_names or name in LISTED]

    @property
    @abstractmethod
    def metric(self) -> str:
        """Kind of metric."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of codes."""

    @property
    def mechanism(self) -> str:
        """Tag of the space's default mechanism."""
        return self.MECHANISMS[self.metric]

    @property
    def inner_space(self) -> Space:
        """The space of the values without null."""
        return self

    @property
    def flag_codes(self) -> int:
        """Number of codes after those of the values, each an answer of the flag: special values, then null."""
        return int(self.has_null)

    @cached_property
    def values(self) -> int:
        """Number of codes without special values and null."""
        return self.size - self.flag_codes

    @property
    def special_labels(self) -> list[Any]:
        """The special values, as Python objects of released rows."""
        return []

    def special_code(self, value: Any) -> int | None:
        """Return the code of a special value; None for other values."""
        return None

    @property
    def has_words(self) -> bool:
        """Whether a special value is a word, which no number's type holds."""
        return False

    def output_type(self, type_: pa.DataType) -> pa.DataType:
        """Return the Arrow type of released values of a column of a type."""
        return type_

    def around(self, grid: Space) -> Space:
        """Return this space's special values and null around another space of values."""
        return grid

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of every value that a row holds: one, except for tuples."""
        return (self.size,)

    @property
    def is_numeric(self) -> bool:
        """Whether values have `numbers`."""
        return not self.code_words and self.numbers(np.zeros(1, dtype=np.int64)) is not None

    def in_decimals(self, precision: int, scale: int) -> Space:
        """Return the space with the values of decimals of this precision and scale."""
        return self

    def in_durations(self) -> Space:
        """Return the space with times of day as durations, the form in which they are coded."""
        return self

    @property
    def is_listed(self) -> bool:
        """Whether the space is a list of named values, not a grid."""
        return self.metric == "discrete"

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        return repr(self)

    @property
    def step(self) -> float:
        """Distance between neighbouring codes (the number of ``unit`` in it)."""
        return 1.0

    @property
    def unit(self) -> str:
        """Unit of distances, if the space has one."""
        return ""

    @property
    def diameter(self) -> float:
        """Largest distance between two values."""
        return 1.0 if self.metric == "discrete" else (self.size - 1) * self.step

    @property
    def min_distance(self) -> float:
        """κ, the smallest distance between two different values."""
        return 1.0 if self.metric == "discrete" else self.step

    @property
    def fixed_point(self) -> int:
        """Code that ``nulls="impute"`` gives to nulls: public, and equal for every table."""
        return (self.size - 1) // 2 if self.metric == "line" else 0

    def in_type(self, type_: pa.DataType | None) -> Space:
        """Return the space for a column of this type; only declarations of plain bounds depend on the type."""
        return self

    @property
    def null_counts_as(self) -> str:
        """The fixed point in words; empty if it also has other values."""
        if self.holds_sets:
            return "the empty set"
        if self.is_listed:
            return "its middle category" if self.metric == "line" else "its first category"
        return "the middle of its bounds"

    @property
    @abstractmethod
    def natural_type(self) -> pa.DataType:
        """Default Arrow type of decoded values."""

    @abstractmethod
    def check_type(self, type_: pa.DataType) -> None:
        """Raise `ColumnError` unless columns of this Arrow type can be coded and decoded."""

    @abstractmethod
    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        """Return codes (any valid code for null) and a mask of nulls.

        ``lenient`` clamps infinities instead of refusing them.
        """

    @abstractmethod
    def _object_code(self, value: Any, lenient: bool) -> int:
        """Return the code of one Python object that is not null, independently of its neighbours.

        The code equals the result of `_encode` for an array with the value; `ColumnError` if there is none.
        """

    def _encode_objects(self, values: Sequence[Any], lenient: bool) -> tuple[Codes, Mask]:
        """Return codes and a mask of nulls for values without a common type; see `_encode`."""
        return encode_objects(self, values, lenient)

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, npt.NDArray[np.bool_]] | None:
        """Return the codes of non-null objects of one class in bulk; None if the class is not plain.

        The second array is a mask of the coded objects. Codes equal the results of `_object_code`, which reads the
        other objects.
        """
        return None

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        """Return the value of every code as a Python object; ``codes`` are valid under ``missing`` too."""
        with uncollected():
            values = self._decode(codes, self.object_type, missing).to_pylist()
        # One by one: NumPy converts lists of equal length to a table.
        return np.fromiter(values, dtype=object, count=len(codes))

    @abstractmethod
    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        """Return values; ``codes`` are valid under ``missing`` too."""

    @abstractmethod
    def labels(self) -> list[Any]:
        """Return the value of every code as a Python object, in order."""

    @property
    def object_type(self) -> pa.DataType:
        """Arrow type for reading objects if no object may raise an error."""
        type_ = self.natural_type
        return type_.value_type if pa.types.is_dictionary(type_) else type_

    def _encode_known(self, objects: Sequence[Any]) -> tuple[Codes, Mask]:
        """Return codes and a mask of nulls of objects; objects without a code are null."""
        return self._encode(self._known(read_as(objects, self.object_type)), lenient=True)

    def _known(self, array: pa.Array) -> pa.Array:
        """Return an array with null in place of values without a code."""
        return array

    def encode(self, values: Any, *, nulls: str = "error", tolerant: bool = False) -> Codes:
        """Return the code of every value.

        Parameters
        ----------
        values
            Arrow array or chunked array, NumPy array, pandas Series, `Entries` or list, shape (n,). Lists and object
            columns are read value by value.
        nulls
            ``"error"``, or ``"impute"``: nulls become the space's fixed point and infinities clamp.
        tolerant
            Whether values outside the space count as null instead of raising an error, and infinities clamp.

        Returns
        -------
        Unsigned integers of the smallest width that holds every code, shape (n,); of sets 64-bit words,
        shape (n, `code_words`).

        Raises
        ------
        ColumnError
            For a type that does not fit, and with ``nulls="error"`` for a null, an infinity or a category
            outside the list; the row position is given, never the value.
        """
        if isinstance(values, Entries):
            return values.encoded(lambda listed: self.encode(listed, nulls=nulls, tolerant=tolerant))
        objects = elements(values)
        if objects is not None and tolerant:
            codes, missing = self._encode_known(objects)
        elif objects is not None:
            codes, missing = self._encode_objects(objects, nulls == "impute")
        else:
            array = as_arrow(values)
            if pa.types.is_null(array.type):
                array = pa.nulls(len(array), self.natural_type)
            self.check_type(array.type)
            array = self._known(array) if tolerant else array
            codes, missing = self._encode(array, tolerant or nulls == "impute")
        if missing is not None and missing.any():
            if nulls != "impute":
                raise ColumnError(
                    "is null, and its space holds no nulls; declare Nullable(…) or pass nulls='impute'",
                    row=first_row(missing),
                )
            if self.code_words:
                codes = np.where(missing[:, None], self.code_array([self.fixed_point]), codes)
            else:
                codes = replaced(codes, missing, self.fixed_point)
        return codes

    def decode(self, codes: npt.ArrayLike, type_: pa.DataType | None = None) -> pa.Array:
        """Return the value of every code, as an Arrow array of ``type_`` (default: `natural_type`)."""
        array = self._checked_codes(codes)
        type_ = self.natural_type if type_ is None else type_
        self.check_type(type_)
        return self._decode(array, type_, None)

    def objects(self, codes: npt.ArrayLike) -> Objects:
        """Return the value of every code as a Python object, in an array of objects."""
        return self._objects(self._checked_codes(codes), None)

    def _checked_codes(self, codes: Any) -> Codes:
        """Return valid codes in the type of `encode`, or raise `ParameterError`."""
        if self.code_words:
            code_error = ParameterError(
                f"codes must be integers below 2^{self.size.bit_length() - 1}, or rows of {self.code_words} words"
            )
            if not isinstance(codes, np.ndarray) or codes.ndim == 1:
                code_list: list[Any] = list(codes) if isinstance(codes, Iterable) else [None]
                if not all(isinstance(code, int | np.integer) and 0 <= code < self.size for code in code_list):
                    raise code_error
                return self.code_array([int(code) for code in code_list])
            if codes.dtype != np.uint64 or codes.shape[1:] != (self.code_words,) or not in_words(codes, self.size - 1):
                raise code_error
            return codes
        array = np.asarray(codes)
        if array.ndim != 1:
            raise ParameterError(f"codes must be a list of integers in 0…{self.size - 1}")
        if array.size and (array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >= self.size):
            raise ParameterError(f"codes must be integers in 0…{self.size - 1}")
        return array.astype(self.code_type, copy=False)

    @property
    def code_words(self) -> int:
        """Number of 64-bit words in the code of a row, 0 for a single integer."""
        return 0

    def code_array(self, codes: Sequence[int]) -> Codes:
        """Return an array of codes in the type of `encode`, from Python integers."""
        if not self.code_words:
            return np.array(codes, dtype=self.code_type)
        code_bytes = b"".join(code.to_bytes(8 * self.code_words, "little") for code in codes)
        return np.frombuffer(bytearray(code_bytes), dtype="<u8").reshape(len(codes), self.code_words)

    def code_list(self, codes: Codes) -> list[int]:
        """Return an array of codes as Python integers."""
        if self.code_words:
            return [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in codes]
        integers: list[int] = codes.tolist()
        return integers

    @property
    def released(self) -> Space:
        """The space of released values: this space without rules that noise may violate."""
        return self

    def widened(self, steps: int) -> Space:
        """Return the grid extended by ``steps`` steps beyond both bounds."""
        raise ParameterError(f"space {self.tag} has no values beyond its ends")

    @property
    def points(self) -> int:
        """Number of values: all codes, except codes that only noise can give."""
        return self.size

    @property
    def code_type(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Smallest unsigned type that holds every code."""
        return np.dtype(np.uint64 if self.code_words else np.min_scalar_type(self.size - 1))

    def contains(self, value: Any) -> bool:
        """Return whether a value belongs to the space without being clamped or put in another bucket."""
        try:
            code = self.encode([value])
        except (ColumnError, ParameterError):
            return False
        return self._holds(value, self.code_list(code)[0])

    def _holds(self, value: Any, code: int) -> bool:
        return bool(self.labels()[code] == value)

    def distance(self, a: Any, b: Any) -> float:
        """Return ρ(a, b) of two values of the space."""
        x, y = self.code_list(self.encode([a, b]))
        return self.code_distance(x, y)

    def code_distance(self, x: int, y: int) -> float:
        """Return ρ between the values of two codes."""
        return float(x != y) if self.metric == "discrete" else abs(x - y) * self.step

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
        """Return the evenly spaced numbers of codes; None if values are no such numbers."""
        return None

    def instants(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return numbers as values of the column's kind: themselves, or points in time (durations)."""
        return numbers

    def durations(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return differences of numbers: themselves, or durations."""
        return numbers

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag."""
        return {"space": self.tag} | to_object(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Return the space from its JSON fields."""
        return from_object(cls, data, f"space {cls.tag}")


def space_from_json(data: Mapping[str, Any]) -> Space:
    """Return a space from the object of `Space.to_json`; `PlanError` for an unknown tag or field."""
    tag = data.get("space")
    if not isinstance(tag, str) or tag not in SPACES:
        raise PlanError(f"unknown space tag; this version knows {', '.join(sorted(SPACES))}")
    return SPACES[tag].from_json({k: v for k, v in data.items() if k != "space"})


def refuse_object(kind: str, space: str, remedy: str) -> ColumnError:
    """Return the error for a single value that a space cannot code."""
    return ColumnError(f"is no {kind}, and {space} holds nothing else; {remedy}")


def refuse_type(space: str, type_: pa.DataType, remedy: str) -> ColumnError:
    """Return the error for a column whose type a space cannot code."""
    return ColumnError(f"has type {type_name(type_)}, which {space} cannot hold; {remedy}")
