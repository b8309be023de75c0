"""A keyed check of every row: it distinguishes two passes over a table, and the tables of two jobs.

A row is a record: its address, its codes, and a keyed hash of each value that leaves as it is. Records of one table are
of one length, so that their CBC-MAC (AES-256) is a pseudorandom function of the row (Bellare, Kilian & Rogaway,
*The Security of the Cipher Block Chaining Message Authentication Code*, 2000). Its values are added up, in any
order and partitions: addresses differ, so that two tables that were made without the key have one sum of 128 bits
with probability 2⁻¹²⁸, however they were made (Clarke et al., *Incremental multiset hash functions*, 2003).
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.noise.keystream import AES_BLOCK_BYTES, U64, Rows, block_cipher
from dpframe.spaces import as_arrow
from dpframe.spaces.entries import Entries
from dpframe.tables.frames import Frame
from dpframe.tables.table import Codes
from dpframe.tables.types import is_list, is_text

_RECORD_CHUNK_ROWS = 1 << 14
"""Number of rows whose records are encrypted at a time: they stay in the cache."""


@dataclass(frozen=True)
class RowChecks:
    """Function that computes 128 bits for every row, shape (rows, 2).

    ``key``: 32 secret bytes; ``plain``: columns that leave as they are, or decide which rows leave.
    """

    key: bytes = field(repr=False)
    plain: tuple[str, ...] = ()

    def __call__(self, codes: Codes, rows: Rows, count: int, frame: Frame | None = None) -> U64:
        """Return the checks of rows from their codes, their addresses, and the frame with the plain columns."""
        places = rows if isinstance(rows, np.ndarray) else np.arange(rows, rows + count, dtype=np.uint64)
        parts: dict[str, npt.NDArray[Any]] = {**codes}
        if frame is not None:
            parts |= {f"={name}": value_words(values_of(frame, name), self.key) for name in self.plain}
        cipher = block_cipher(self._subkey(places, parts))
        columns = [places, *parts.values()]
        checks = np.zeros((count, 2), np.uint64)
        for start in range(0, count, _RECORD_CHUNK_ROWS):
            state = np.zeros((min(_RECORD_CHUNK_ROWS, count - start), 2), np.uint64)
            for block in _split_blocks([column[start : start + _RECORD_CHUNK_ROWS] for column in columns]):
                state = np.frombuffer(cipher.update((state ^ block).tobytes()), "<u8").reshape(-1, 2)
            checks[start : start + _RECORD_CHUNK_ROWS] = state
        return checks

    def _subkey(self, places: U64, parts: Mapping[str, npt.NDArray[Any]]) -> bytes:
        """Return a key for records of this form."""
        # CBC-MAC is secure only for records of one length: every form of records has its own key.
        form = [(name, column.dtype.str, column.shape[1:]) for name, column in {"": places, **parts}.items()]
        return hmac.digest(self.key, repr(form).encode(), "sha256")


def _split_blocks(columns: Sequence[npt.NDArray[Any]]) -> Iterator[U64]:
    """Yield the blocks of records, for all rows at a time; the last block is padded with zeros."""
    fields = [(str(i), column.dtype, column.shape[1:]) for i, column in enumerate(columns)]
    width = np.dtype(fields).itemsize
    padded_records = np.zeros((len(columns[0]), -(-width // AES_BLOCK_BYTES) * 2), np.uint64)
    records = padded_records.view(np.uint8)[:, :width].view(fields)
    for i, column in enumerate(columns):
        records[str(i)] = column.reshape(len(column), 1, *column.shape[1:])
    for word in range(0, padded_records.shape[1], 2):
        yield padded_records[:, word : word + 2]


def added(checks: U64) -> tuple[int, int]:
    """Return the sum of checks, each half modulo 2⁶⁴."""
    low, high = checks.sum(axis=0, dtype=np.uint64).tolist()
    return low, high


def sum_bytes(low: int, high: int) -> bytes:
    """Return a sum of checks as a digest: 16 bytes."""
    return b"".join((half % (1 << 64)).to_bytes(8, "little") for half in (low, high))


def values_of(frame: Frame, name: str) -> Any:
    """Return the values of a column, as an Arrow array or as objects."""
    return next(iter(frame.batches([name])))[name]


def value_words(values: Any, key: bytes) -> U64:
    """Return 128 bits for every value, shape (rows, 2): the bits of a number or time, else a keyed hash."""
    if isinstance(values, Entries):
        return _hash_entries(values.listed, key).take(values.codes, axis=0)
    if not isinstance(values, list):
        values = values.cast(_to_number_type(values.type))
    if isinstance(values, list) or pa.types.is_nested(values.type):
        objects = values if isinstance(values, list) else _to_objects(values)
        values = pa.array(map(_to_text, objects), pa.large_string())
    values = as_arrow(values)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        numbers = values.fill_null(0).cast(pa.float64() if pa.types.is_floating(values.type) else values.type)
        number_words = np.asarray(numbers)
        number_words = (
            number_words.view(np.uint64) if number_words.dtype.itemsize == 8 else number_words.astype(np.uint64)
        )
        # The second word distinguishes a null from the 0 that fills its place.
        return np.stack([number_words, np.asarray(values.is_valid()).astype(np.uint64)], axis=1)
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    entries = _hash_entries(_to_objects(values.dictionary), key)
    places = np.asarray(values.indices.cast(pa.int64()).fill_null(len(entries) - 1))
    return entries.take(places, axis=0)


def _hash_entries(entries: Sequence[Any], key: bytes) -> U64:
    """Return a keyed hash of every entry, followed by zeros for null."""
    hashes = [blake2b(_to_text(entry).encode(), key=key, digest_size=16).digest() for entry in entries]
    return np.frombuffer(b"".join([*hashes, bytes(16)]), "<u8").reshape(-1, 2)


def _to_objects(values: pa.Array) -> list[Any]:
    """Return values as Python objects; bytes that are not valid text become surrogates."""
    with contextlib.suppress(UnicodeDecodeError):
        return cast(list[Any], values.to_pylist())
    return [_escape_bytes(value) for value in values.cast(_to_bytes_type(values.type)).to_pylist()]


def _to_bytes_type(type_: pa.DataType) -> pa.DataType:
    """Return a type with bytes for text."""
    t = pa.types
    if t.is_dictionary(type_):
        return _to_bytes_type(type_.value_type)
    if t.is_struct(type_):
        return pa.struct([field.with_type(_to_bytes_type(field.type)) for field in type_])
    if is_list(type_):
        return pa.large_list(_to_bytes_type(type_.value_type))
    return pa.large_binary() if is_text(type_) else type_


def _escape_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_escape_bytes(part) for part in value]
    if isinstance(value, dict):
        return {name: _escape_bytes(part) for name, part in value.items()}
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def _to_number_type(type_: pa.DataType) -> pa.DataType:
    """Return a type with numbers for times, as Python and its time zones cannot represent all."""
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):  # pandas' periods and intervals
        return _to_number_type(type_.storage_type)
    if t.is_temporal(type_) and type_.bit_width in (32, 64):
        return pa.int32() if type_.bit_width == 32 else pa.int64()
    if t.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _to_number_type(type_.value_type))
    if t.is_struct(type_):
        return pa.struct([field.with_type(_to_number_type(field.type)) for field in type_])
    if t.is_list(type_) or t.is_large_list(type_):
        value_field = type_.value_field.with_type(_to_number_type(type_.value_type))
        return pa.list_(value_field) if t.is_list(type_) else pa.large_list(value_field)
    return type_


def _to_text(value: object) -> str:
    # Different values have different texts: sets have no order of their own, and lone surrogates no bytes.
    return f"{{{sorted(map(repr, value))}}}" if isinstance(value, set | frozenset) else ascii(value)
