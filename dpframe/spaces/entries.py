"""Columns whose values are listed once, of any kind, and named by number: pandas' categoricals.

pandas chooses one dtype for all entries by the values: a single 1.5 among whole numbers makes them floats, a single
word objects. So what an entry means follows from the entry, and entries that no row has mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError
from dpframe.spaces.object_reading import kind_counts, read_as


@dataclass(frozen=True, eq=False)
class Entries:
    """Rows as numbers of entries, −1 where they are null.

    >>> column = Entries(["a", 1.5, "unused"], np.array([0, 1, -1, 0]))
    >>> list(column), column.read_as(pa.string()).null_count
    (['a', 1.5, None, 'a'], 2)
    """

    listed: Sequence[Any]
    codes: npt.NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects()[self.codes].tolist())

    def __getitem__(self, rows: slice) -> Entries:
        return Entries(self.listed, self.codes[rows])

    def _objects(self) -> npt.NDArray[np.object_]:
        """Return the entries, and null behind the last."""
        return np.fromiter([*self.listed, None], dtype=object, count=len(self.listed) + 1)

    def kind_counts(self) -> npt.NDArray[np.int64]:
        """Return how many rows are of each kind; see `object_reading.kind_counts`."""
        rows = np.bincount(self.codes + 1, minlength=len(self.listed) + 1)
        return kind_counts(self._objects(), np.roll(rows, -1))

    def read_as(self, type_: pa.DataType) -> pa.Array:
        """Return a dictionary of a type; rows whose entry is of another kind are null."""
        entries = read_as(self.listed, type_)
        known = np.append(np.asarray(entries.is_valid()), False)
        indices = pa.array(self.codes.astype(np.int32), mask=~known[self.codes])
        return pa.DictionaryArray.from_arrays(indices, entries)

    def texts(self) -> pa.Array:
        """Return a dictionary of text, in which numbers are written out: partly labelled scales have both.

        >>> Entries(["low", 2, 3.5, True], np.array([0, 1, 2, 3])).texts().to_pylist()
        ['low', '2', '3.5', None]
        """
        words, numbers = read_as(self.listed, pa.string()), read_as(self.listed, pa.float64())
        return Entries(pc.coalesce(words, numbers.cast(pa.string())).to_pylist(), self.codes).read_as(pa.string())

    def encoded(self, encode: Callable[[list[Any]], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the rows' codes, given what encodes objects; of the entries only those are read that rows have."""
        objects = self._objects()
        # Null is behind the last entry, where place -1 is.
        used = np.flatnonzero(np.roll(np.bincount(self.codes + 1, minlength=len(objects)), -1))
        try:
            codes = encode(objects[used].tolist())
        except ColumnError:
            fault = self._fault(encode)
        else:
            table: npt.NDArray[Any] = np.zeros((len(objects), *codes.shape[1:]), codes.dtype)
            table[used] = codes
            rows: npt.NDArray[Any] = table.take(self.codes, axis=0)
            return rows
        raise fault

    def _fault(self, encode: Callable[[list[Any]], npt.NDArray[Any]]) -> ColumnError:
        """Return the error of the first row at fault: entries are read in the order of the rows that have them."""
        used, first = np.unique(self.codes, return_index=True)
        order = np.argsort(first)
        try:
            encode(self._objects()[used[order]].tolist())
        except ColumnError as error:
            row = None if error.row is None else int(first[order[error.row]])
            return ColumnError(error.rule, column=error.column, row=row)
        raise AssertionError("entries were refused in one order, and in another they were not")
