"""Sets: a column whose values are sets of listed items, with the symmetric difference."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, check_whole
from dpframe.spaces.base import Codes, Mask, Space, first_row, forwarded, missing_of, refuse_type, register
from dpframe.spaces.listed import Categorical
from dpframe.spaces.object_codes import PlainLists, plain_lists, uncollected
from dpframe.spaces.object_reading import Objects
from dpframe.spaces.python_values import is_collection, is_missing
from dpframe.spaces.set_bits import members, packed, set_sizes
from dpframe.spaces.words import listed

Bools = npt.NDArray[np.bool_]

MOST_ITEMS = 1 << 16
"""Limit on the items of a space: a row's code has one bit for each."""

MAX_LISTED_SET_ITEMS = 16
"""Limit on the items of spaces whose sets are listed."""

_DTYPES = "OUb?hilqBHILQd"
"""Letters of dtypes whose elements are objects, or convert to Python objects with equal codes."""

_UNKNOWN_ITEM = "holds an item outside the declared list; declare it, or other=…"
_NULL_ITEM = "holds a null item; remove it, or pass nulls='impute' to leave it out"
_DUPLICATE_ITEM = "holds an item twice; remove it, or pass nulls='impute' to count it once"
_NO_SET = "is no set, and Subset(…) holds nothing else; pass lists, tuples or sets of items"


@register
@dataclass(frozen=True)
class Subset(Space):
    """The sets of some listed items; their distance is the number of items in which they differ.

    A set's code is a row of 64-bit words, lowest first: bit i is 1 if it holds item i. Values are Arrow
    lists (fixed-size ones come back as lists), or in object columns lists, tuples, sets and arrays.

    Parameters
    ----------
    items
        Strings, or numbers or booleans, all of one type, each once.
    max_size
        Most items of a set; half the diameter, to which standard errors are proportional at small ε. Larger sets
        are cut to ``max_size`` random items by the mechanism, which lowers supports: choose a size that few sets
        exceed. None: as many as there are items.
    other
        Name of the item for items outside the list: one of them, or a further one.
    strict
        Refuse sets larger than ``max_size`` instead of cutting them.

    Raises
    ------
    ParameterError
        For an empty list, mixed types, duplicates, or a ``max_size`` that is no number of items.

    Examples
    --------
    >>> space = Subset(["art", "chess", "yoga"], max_size=2)
    >>> space.encode([["yoga", "art"], []]).tolist(), space.distance(["art"], ["yoga"]), space.diameter
    ([[5], [0]], 2.0, 3.0)
    """

    items: tuple[Any, ...]
    max_size: int | None = None
    other: Any = None
    strict: bool = False

    tag: ClassVar[str] = "subset"

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        size_text = "" if self.max_size is None else f", at most {self.max_size} in a set"
        return listed([*self.items, *([] if self.other is None else [self.other])], "items") + size_text

    def __post_init__(self) -> None:
        reason = None
        try:
            item_space = Categorical(self.items, self.other)
        except ParameterError as error:
            reason = str(error)
        if reason is not None:
            # Raised outside of the except block, without the error about categories as context.
            raise ParameterError(reason.replace("categories", "items"))
        h = item_space.size
        if h > MOST_ITEMS:
            raise ParameterError(f"items must be at most {MOST_ITEMS}; put rare ones together with other=…")
        if self.max_size is not None:
            max_size = check_whole(self.max_size, "max_size", 1, h, of="items", remedy=", or None")
            object.__setattr__(self, "max_size", max_size)
        if not isinstance(self.strict, bool):
            raise ParameterError("strict must be True or False")
        object.__setattr__(self, "items", item_space.categories)
        object.__setattr__(self, "other", item_space.other)

    @cached_property
    def listed(self) -> Categorical:
        """The space of the items."""
        return Categorical(self.items, self.other)

    metric = "symmetric difference"

    holds_sets = True

    @property
    def count(self) -> int:
        """Number of items, ``other`` included."""
        return self.listed.size

    @property
    def most(self) -> int:
        """Most items of a value."""
        return self.count if self.max_size is None else self.max_size

    @property
    def size(self) -> int:
        """2 to the number of items: released sets may be of any size."""
        return 1 << self.count

    @property
    def points(self) -> int:
        """Number of sets of at most ``max_size`` items."""
        if self.most == self.count:
            return self.size
        ways, total = 1, 1
        for k in range(self.most):  # by recursion: direct binomials of thousands of items are slow
            ways = ways * (self.count - k) // (k + 1)
            total += ways
        return total

    @property
    def code_words(self) -> int:
        """64-bit words of a code."""
        return -(-self.count // 64)

    unit = "items"

    @property
    def diameter(self) -> float:
        """Most items in which two values differ, min(h, 2·max_size) of h items."""
        return float(min(self.count, 2 * self.most))

    @property
    def released(self) -> Subset:
        """The space of all sets of the items: noise may exceed ``max_size``."""
        return Subset(self.items, None, self.other)

    @property
    def natural_type(self) -> pa.DataType:
        """Lists of the items' type."""
        return pa.list_(self.listed.natural_type.value_type)

    def check_type(self, type_: pa.DataType) -> None:
        """Accept lists of the items' kind: text (dictionaries, too), numbers or booleans."""
        t = pa.types
        if not (t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_)):
            raise refuse_type("Subset(…)", type_, "convert the column to lists of items")
        fits = True
        try:
            self.listed.check_type(type_.value_type)
        except ColumnError:
            fits = False
        if not fits:
            kind = self.listed.natural_type.value_type
            raise refuse_type(f"a set of {kind} items", type_, "declare items of the lists' own type")

    def _known(self, array: pa.Array) -> pa.Array:
        if self.other is not None:
            return array
        # Encoding leaves null items out.
        lists = array.cast(pa.large_list(array.type.value_type))
        mask = lists.is_null() if lists.null_count else None
        return pa.LargeListArray.from_arrays(lists.offsets, self.listed._known(lists.values), mask=mask)

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        missing = missing_of(array)
        # Both functions leave out items under null lists.
        items, lengths = array.flatten(), np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)
        codes, null_items = self.listed.find(items)
        if null_items is not None and null_items.any():
            if not lenient:
                raise ColumnError(_NULL_ITEM, row=_row_of(first_row(null_items), lengths))
            codes, lengths = codes[~null_items], _count_per_row(~null_items, lengths)
        is_unknown = codes < 0
        if is_unknown.any():
            if self.other is None:
                raise ColumnError(_UNKNOWN_ITEM, row=_row_of(first_row(is_unknown), lengths))
            codes = np.where(is_unknown, self._other, codes)
        words = packed(codes, lengths, self.code_words)
        if not lenient and (has_duplicates := self._has_duplicates(words, codes, lengths)).any():
            raise ColumnError(_DUPLICATE_ITEM, row=first_row(has_duplicates))
        if (is_too_large := self._is_too_large(words)).any():
            raise ColumnError(self._too_large, row=first_row(is_too_large))
        return words, missing

    def _has_duplicates(self, words: Codes, codes: npt.NDArray[np.integer], lengths: npt.NDArray[np.int64]) -> Bools:
        """Return a mask of rows with a duplicate item."""
        # Several items outside the list share the bucket ``other``.
        bucket = 0 if self.other is None else _count_per_row(codes == self._other, lengths)
        return np.asarray(set_sizes(words) + np.maximum(bucket - 1, 0) != lengths)

    def _is_too_large(self, words: Codes) -> Bools:
        """Return a mask of rows that exceed ``max_size`` of a strict space."""
        return set_sizes(words) > self.most if self.strict else np.zeros(len(words), dtype=np.bool_)

    @property
    def _too_large(self) -> str:
        return f"holds more than max_size={self.most} items; raise max_size, or leave strict out to cut such sets"

    _other = forwarded("listed._other")

    def _object_code(self, value: Any, lenient: bool) -> int:
        if not is_collection(value):
            raise ColumnError(_NO_SET)
        code, item_bits = 0, self._code_of
        for item in value:
            bit_of_text = item_bits.get(item) if type(item) is str else None
            bit = self._item_bit(item, lenient) if bit_of_text is None else bit_of_text
            if code & bit and not lenient and bit != self._bucket_bit:
                raise ColumnError(_DUPLICATE_ITEM)
            code |= bit
        if self.strict and code.bit_count() > self.most:
            raise ColumnError(self._too_large)
        return code

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, Bools] | None:
        is_readable = plain_lists(class_, objects, _DTYPES)
        if is_readable is None:
            return None
        is_coded = is_readable
        lists = PlainLists.of(self.listed.plain, objects[is_coded], self._other)
        words = packed(lists.codes, lists.lengths, self.code_words)
        is_valid = ~self._is_too_large(words)
        if not lenient:
            is_valid &= ~self._has_duplicates(words, lists.codes, lists.lengths)
        is_coded[is_coded] = lists.sure
        is_coded[is_coded] = is_valid
        return words[is_valid], is_coded

    def _item_bit(self, item: Any, lenient: bool) -> int:
        """Return the bit of an item, 0 for a null item."""
        if is_collection(item):
            raise ColumnError("holds a list within a list; pass lists of items")
        if is_missing(item):
            if not lenient:
                raise ColumnError(_NULL_ITEM)
            return 0
        with contextlib.suppress(ColumnError):
            return 1 << self.listed._object_code(item, lenient)
        raise ColumnError(_UNKNOWN_ITEM)

    @cached_property
    def _code_of(self) -> dict[str, int]:
        labels = self.listed.labels()
        return {item: 1 << code for code, item in enumerate(labels)} if isinstance(labels[0], str) else {}

    @cached_property
    def _bucket_bit(self) -> int:
        return -1 if self.other is None else 1 << self._other

    def contains(self, value: Any) -> bool:
        """Return whether a value is a set of at most ``max_size`` of the items, with ``other`` as one of them."""
        try:
            code = Subset(tuple(self.listed.labels()))._object_code(value, False)
        except (ColumnError, ParameterError):
            return False
        return code.bit_count() <= self.most

    def _holds(self, value: Any, code: int) -> bool:
        return self.contains(value)

    def code_distance(self, x: int, y: int) -> float:
        """Return the number of items in which the sets of two codes differ."""
        return float((x ^ y).bit_count())

    def labels(self) -> list[Any]:
        """Return every set as a list of items, in the order of codes; `ParameterError` for more than 16 items."""
        if self.count > MAX_LISTED_SET_ITEMS:
            raise ParameterError(f"{self.count} items have too many sets to list; support gives a share per item")
        items = self.listed.labels()
        return [[item for i, item in enumerate(items) if code >> i & 1] for code in range(self.size)]

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        numbers, lengths = members(codes, self.count, np.min_scalar_type(-self.count))
        kind, is_large = type_.value_type, pa.types.is_large_list(type_)
        if int(lengths.sum()) >= 2**31 and not is_large:
            raise ColumnError("holds too many items for one array of lists; decode fewer rows at a time")
        # Decoded by the items' own space, which knows every type.
        items = self._item_array(numbers, kind)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if is_large else np.int32)
        field = pa.field(type_.value_field.name, items.type, type_.value_field.nullable)
        list_type = pa.large_list(field) if is_large else pa.list_(field)
        maker = pa.LargeListArray if is_large else pa.ListArray
        return maker.from_arrays(
            pa.array(offsets), items, type=list_type, mask=None if missing is None else pa.array(missing)
        )

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        with uncollected():
            if self.count > MAX_LISTED_SET_ITEMS:
                sets = self._to_lists(codes)
            else:
                # There are few distinct sets, so each is made once and copied.
                distinct_codes = pa.array(codes[:, 0]).dictionary_encode()
                lists = self._to_lists(np.asarray(distinct_codes.dictionary)[:, None])[
                    np.asarray(distinct_codes.indices)
                ]
                sets = np.fromiter(map(list.copy, lists), dtype=object, count=len(codes))
        if missing is not None:
            sets[missing] = None
        return sets

    def _to_lists(self, codes: Codes) -> Objects:
        """Return the set of every code as a separate list."""
        numbers, lengths = members(codes, self.count, np.min_scalar_type(-self.count))
        items = np.array(self.listed.labels(), dtype=object)[np.asarray(numbers)].tolist()
        ends = np.cumsum(lengths).tolist()
        return np.fromiter([items[start:end] for start, end in pairwise([0, *ends])], dtype=object, count=len(codes))

    def _item_array(self, numbers: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return item numbers as items of an Arrow type."""
        if pa.types.is_dictionary(kind):
            items = self.listed.decode(np.arange(self.count), kind)
            indices = numbers.cast(items.type.index_type)
            return pa.DictionaryArray.from_arrays(indices, items.dictionary, ordered=kind.ordered)
        is_view = pa.types.is_string_view(kind)  # Arrow has no take for views
        item_values = self.listed.decode(np.arange(self.count), pa.large_string() if is_view else kind).take(numbers)
        return item_values.cast(kind) if is_view else item_values


def _row_of(item: int, lengths: npt.NDArray[np.int64]) -> int:
    """Return the row of an item of flattened lists."""
    return int(np.searchsorted(np.cumsum(lengths), item, side="right"))


def _count_per_row(is_chosen: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of chosen items in each row of flattened lists."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return np.asarray(np.diff(np.concatenate([[0], np.cumsum(is_chosen)])[ends]))
