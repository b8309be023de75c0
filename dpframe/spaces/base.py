"""What every space states, what follows from it, and the tag registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.spaces.arrays import replaced
from dpframe.spaces.entries import Entries
from dpframe.spaces.json_form import from_object, to_object
from dpframe.spaces.object_codes import encode_objects, uncollected
from dpframe.spaces.object_reading import Objects, read_as
from dpframe.spaces.python_values import as_arrow, elements
from dpframe.spaces.words import type_name

Codes = npt.NDArray[np.unsignedinteger]
Mask = npt.NDArray[np.bool_] | None

LARGEST_GRID = (1 << 32) - 1
"""Most steps a grid may have."""

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
"""What ``dir`` and Tab show of a space in addition to its fields."""

S = TypeVar("S", bound="type[Space]")


def register(cls: S) -> S:
    """Enter a space in the registry under its tag."""
    SPACES[cls.tag] = cls
    return cls


def missing_of(array: pa.Array) -> Mask:
    """Return where an Arrow array is null, or None where it nowhere is."""
    if array.null_count == 0:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.asarray(pc.is_null(array))
    # From the bits themselves: Arrow hands booleans to NumPy one by one.
    first, last = array.offset, array.offset + len(array)
    bits = np.frombuffer(bitmap, dtype=np.uint8)[first // 8 : -(-last // 8)]
    present = np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + len(array)]
    return np.logical_not(present.view(np.bool_))


def decoded(array: pa.Array) -> pa.Array:
    """Return the values that a dictionary's indices mean; other arrays as they are."""
    if not pa.types.is_dictionary(array.type):
        return array
    if pa.types.is_string_view(array.type.value_type):  # whose rows Arrow cannot take
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array.dictionary_decode()


def in_words(codes: Codes, last: int) -> bool:
    """Return whether rows of 64-bit words, lowest first, are numbers of at most ``last``."""
    below, equal = np.zeros(len(codes), dtype=np.bool_), np.ones(len(codes), dtype=np.bool_)
    for word in reversed(range(codes.shape[1])):
        most = np.uint64(last >> 64 * word & 0xFFFFFFFFFFFFFFFF)
        below |= equal & (codes[:, word] < most)
        equal &= codes[:, word] == most
    return bool((below | equal).all()) and not last >> 64 * codes.shape[1]


def first_row(mask: npt.NDArray[np.bool_]) -> int:
    """Return the first position that is true."""
    return int(np.argmax(mask))


def numbers_of(space: Space, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the numbers of codes of a space of numbers."""
    values = space.numbers(codes)
    assert values is not None
    return values


def line_of(space: Space) -> tuple[float, float]:
    """Return the number of code 0 and the distance between neighbouring codes' numbers."""
    first, second = numbers_of(space, np.array([0, 1]))
    return float(first), float(second - first)


def forwarded(path: str) -> Any:
    """Return a property that is an attribute of a part, such as that of ``"inner.unit"``."""
    return property(attrgetter(path))


class Space(ABC):
    """A column's values, metric and coding.

    ``metric`` is ``"discrete"`` (0 or 1), ``"line"`` (distance of codes times ``step``), ``"symmetric
    difference"`` (of sets), ``"vector"`` (a norm's), or one of the latter three with ``"nullable "`` before it; it
    decides which mechanisms there are.

    Codes are integers. Where they are too long for a machine word, arrays hold them as rows of ``code_words``
    64-bit words, lowest first.
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
    """What values whose codes are words are, in the plural."""

    instead: ClassVar[str] = "support (with by=…), cooccurrence or set_sizes"
    """The estimates that there are of such values, which are neither numbers nor listed."""

    is_time: ClassVar[bool] = False
    """Whether values are times, whose numbers count steps from the lower bound."""

    @property
    def midnights(self) -> range:
        """Codes of midnights on a grid of points in time that is finer than days; none on others."""
        return range(0)

    def __dir__(self) -> list[str]:
        """Fields and what a user of a space asks it for; what the library asks it for is not listed."""
        names = super().__dir__()
        declared = {field.name for field in fields(cast(Any, self))}
        return [name for name in names if name.startswith("_") or name in declared or name in LISTED]

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
        """Tag of the mechanism that the space has unless another is asked for."""
        return self.MECHANISMS[self.metric]

    @property
    def inner_space(self) -> Space:
        """The space of the values that are no null."""
        return self

    @property
    def values(self) -> int:
        """Number of codes but null's."""
        return self.size - self.has_null

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of every value that a row holds: one, except for tuples."""
        return (self.size,)

    @property
    def is_numeric(self) -> bool:
        """Whether values have `numbers`."""
        return not self.code_words and self.numbers(np.zeros(1, dtype=np.int64)) is not None

    def in_decimals(self, precision: int, scale: int) -> Space:
        """Return the space with values that a decimal of so many digits holds, so many behind the point."""
        return self

    def in_durations(self) -> Space:
        """Return the space with times of day as durations, as columns of a type are coded."""
        return self

    @property
    def is_listed(self) -> bool:
        """Whether the space is a list of values, rather than a grid: each has a name of its own."""
        return self.metric == "discrete"

    @property
    def contents(self) -> str:
        """What a column may hold, to read."""
        return repr(self)

    @property
    def step(self) -> float:
        """Distance between neighbouring codes (the number of ``unit`` in it)."""
        return 1.0

    @property
    def unit(self) -> str:
        """Unit of distances, where the space knows it."""
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
        """Code that ``nulls="impute"`` gives to nulls: public, and the same for every table."""
        return (self.size - 1) // 2 if self.metric == "line" else 0

    @property
    def null_counts_as(self) -> str:
        """That code in words; none where it stands for values that are not told apart."""
        if self.holds_sets:
            return "the empty set"
        if self.is_listed:
            return "its middle category" if self.metric == "line" else "its first category"
        return "the middle of its bounds"

    @property
    @abstractmethod
    def natural_type(self) -> pa.DataType:
        """Arrow type of decoded values when none is asked for."""

    @abstractmethod
    def check_type(self, type_: pa.DataType) -> None:
        """Raise `ColumnError` unless columns of this Arrow type can be coded and decoded."""

    @abstractmethod
    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        """Return codes (any valid code where null) and where values are missing.

        ``lenient`` clamps infinities instead of refusing them.
        """

    @abstractmethod
    def _object_code(self, value: Any, lenient: bool) -> int:
        """Return the code of one Python object that is not null, independently of its neighbours.

        It is the code that `_encode` gives the value in an array of its type; `ColumnError` if it has none.
        """

    def _encode_objects(self, values: Sequence[Any], lenient: bool) -> tuple[Codes, Mask]:
        """Do as `_encode` for values without a common type."""
        return encode_objects(self, values, lenient)

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, npt.NDArray[np.bool_]] | None:
        """Return the codes of objects of one class, none of them null, all at once; None where the class is not plain.

        The second array says which objects these codes are of. They are those of `_object_code`; what is left out is
        read by that.
        """
        return None

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        """Return the value of every code as a Python object; ``codes`` are valid under ``missing`` too."""
        with uncollected():
            listed = self._decode(codes, self.object_type, missing).to_pylist()
        # One by one: of lists of one length NumPy would make a table.
        return np.fromiter(listed, dtype=object, count=len(codes))

    @abstractmethod
    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        """Return values; ``codes`` are valid under ``missing`` too."""

    @abstractmethod
    def labels(self) -> list[Any]:
        """Return the value of every code as a Python object, in order."""

    @property
    def object_type(self) -> pa.DataType:
        """Arrow type that objects are read as where none of them may be refused."""
        natural = self.natural_type
        return natural.value_type if pa.types.is_dictionary(natural) else natural

    def _known(self, array: pa.Array) -> pa.Array:
        """Return an array of `object_type`, null where the space has no code for a value."""
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
            Whether what the space cannot hold, an object or a value outside a list, counts as null instead of being
            refused, and infinities clamp.

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
            codes, missing = self._encode(self._known(read_as(objects, self.object_type)), lenient=True)
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
        """Return valid codes as `encode` gives them, or raise `ParameterError`."""
        if self.code_words:
            wrong = ParameterError(
                f"codes must be integers below 2^{self.size.bit_length() - 1}, or rows of {self.code_words} words"
            )
            if not isinstance(codes, np.ndarray) or codes.ndim == 1:
                listed: list[Any] = list(codes) if isinstance(codes, Iterable) else [None]
                if not all(isinstance(code, int | np.integer) and 0 <= code < self.size for code in listed):
                    raise wrong
                return self.code_array([int(code) for code in listed])
            if codes.dtype != np.uint64 or codes.shape[1:] != (self.code_words,) or not in_words(codes, self.size - 1):
                raise wrong
            return codes
        array = np.asarray(codes)
        if array.ndim != 1:
            raise ParameterError(f"codes must be a list of integers in 0…{self.size - 1}")
        if array.size and (array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >= self.size):
            raise ParameterError(f"codes must be integers in 0…{self.size - 1}")
        return array.astype(self.code_type, copy=False)

    @property
    def code_words(self) -> int:
        """Number of 64-bit words in the code of a row, 0 where it is one integer."""
        return 0

    def code_array(self, codes: Sequence[int]) -> Codes:
        """Return codes given as Python integers as an array, as `encode` gives them."""
        if not self.code_words:
            return np.array(codes, dtype=self.code_type)
        raw = b"".join(code.to_bytes(8 * self.code_words, "little") for code in codes)
        return np.frombuffer(bytearray(raw), dtype="<u8").reshape(len(codes), self.code_words)

    def code_list(self, codes: Codes) -> list[int]:
        """Return an array of codes as Python integers."""
        if self.code_words:
            return [int.from_bytes(row.astype("<u8").tobytes(), "little") for row in codes]
        listed: list[int] = codes.tolist()
        return listed

    @property
    def released(self) -> Space:
        """The space by which released values are read: this one, without rules that noise may break."""
        return self

    def widened(self, steps: int) -> Space:
        """Return the grid that goes so many steps beyond both bounds."""
        raise ParameterError(f"space {self.tag} has no values beyond its ends")

    @property
    def points(self) -> int:
        """Number of values: of codes, unless some are no values but may be released."""
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
        """Return the numeric value of codes, evenly spaced, or None where values are no such numbers."""
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
        """Read the fields back."""
        return from_object(cls, data, f"space {cls.tag}")


def space_from_json(data: Mapping[str, Any]) -> Space:
    """Read a space back from `Space.to_json`; an unknown tag or field is refused with `PlanError`."""
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
