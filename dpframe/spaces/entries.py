"""Columns of numbered entries of any kind: pandas' categoricals.

pandas chooses one dtype for all entries by the values: a single 1.5 among whole numbers makes them floats, a single
word objects. So the meaning of an entry follows only from the entry, and entries without rows have no effect.
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
    """Rows as numbers of entries, −1 for null.

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
        """Return the entries, followed by null."""
        return np.fromiter([*self.listed, None], dtype=object, count=len(self.listed) + 1)

    def kind_counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rows of each kind; see `object_reading.kind_counts`."""
        rows = np.bincount(self.codes + 1, minlength=len(self.listed) + 1)
        return kind_counts(self._objects(), np.roll(rows, -1))

    def read_as(self, type_: pa.DataType) -> pa.Array:
        """Return a dictionary of a type; rows whose entry is of another kind are null."""
        entries = read_as(self.listed, type_)
        is_known = np.append(np.asarray(entries.is_valid()), False)
        indices = pa.array(self.codes.astype(np.int32), mask=~is_known[self.codes])
        return pa.DictionaryArray.from_arrays(indices, entries)

    def texts(self) -> pa.Array:
        """Return a dictionary of text, with numbers as text: partly labelled scales have words and numbers.

        >>> Entries(["low", 2, 3.5, True], np.array([0, 1, 2, 3])).texts().to_pylist()
        ['low', '2', '3.5', None]
        """
        words, numbers = read_as(self.listed, pa.string()), read_as(self.listed, pa.float64())
        return Entries(pc.coalesce(words, numbers.cast(pa.string())).to_pylist(), self.codes).read_as(pa.string())

    def encoded(self, encode: Callable[[list[Any]], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the rows' codes from an encoder of objects; entries without rows are not read."""
        objects = self._objects()
        # Null follows the last entry, so that index −1 is null.
        used_entries = np.flatnonzero(np.roll(np.bincount(self.codes + 1, minlength=len(objects)), -1))
        try:
            codes = encode(objects[used_entries].tolist())
        except ColumnError:
            fault = self._fault(encode)
        else:
            table: npt.NDArray[Any] = np.zeros((len(objects), *codes.shape[1:]), codes.dtype)
            table[used_entries] = codes
            rows: npt.NDArray[Any] = table.take(self.codes, axis=0)
            return rows
        raise fault

    def _fault(self, encode: Callable[[list[Any]], npt.NDArray[Any]]) -> ColumnError:
        """Return the error of the first invalid row; entries are read in the order of their first rows."""
        used_entries, first_rows = np.unique(self.codes, return_index=True)
        order = np.argsort(first_rows)
        try:
            encode(self._objects()[used_entries[order]].tolist())
        except ColumnError as error:
            row = None if error.row is None else int(first_rows[order[error.row]])
            return ColumnError(error.rule, column=error.column, row=row)
        raise AssertionError("entries were refused in one order, and in another they were not")
