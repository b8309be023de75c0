"""Parquet from released codes: columns of few values, and sets, leave as packed bits, without a value for a row.

Arrow takes ten times as long to write such a column as it takes to randomise it: random codes have no runs, and its
encoder looks for them at each value. Other columns are Arrow's to encode; both are put together row group by row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.spaces.set_bits import members
from dpframe.tables import thrift
from dpframe.tables.thrift import BINARY, I16, I32, I64, LIST, STRUCT, Struct, varint

FEW_VALUES = 256
"""Values of a column that is always packed: codes of a byte."""

MOST_VALUES = 1 << 17
"""Values of a column that may be packed: all of them are a page of 1 MiB."""

_PACKED = 1 << 16
"""Codes that are packed at a time, which stay in cache."""

Pieces = list[bytes | memoryview]
"""Bytes that follow one another: what is large is written from where it is."""

_MAGIC = b"PAR1"
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2


def packed_bits(codes: npt.NDArray[np.unsignedinteger], width: int) -> npt.NDArray[np.uint8]:
    """Return the lowest bits of codes one after the other, as Parquet packs them; codes 0 fill the last eight up."""
    if width == 1:
        return np.packbits(codes.astype(np.uint8, copy=False), bitorder="little")
    whole, pack = len(codes) & ~7, _joined if width <= 8 else _shifted
    out = np.empty(-(-len(codes) // 8) * width, dtype=np.uint8)
    for start in range(0, whole, _PACKED):
        pack(codes[start : min(start + _PACKED, whole)], width, out[start // 8 * width :])
    if whole < len(codes):
        last = np.zeros(8, dtype=codes.dtype)
        last[: len(codes) - whole] = codes[whole:]
        pack(last, width, out[whole // 8 * width :])
    return out


def _joined(codes: npt.NDArray[np.unsignedinteger], width: int, out: npt.NDArray[np.uint8]) -> None:
    """Write codes of a byte, eight in a word: pairs are joined first, then pairs of pairs."""
    words = np.ascontiguousarray(codes, dtype=np.uint8).view("<u8")
    for lane in (8, 16, 32):
        held = width * lane // 8
        if held == lane:
            break
        low = sum((1 << held) - 1 << place for place in range(0, 64, 2 * lane))
        high = words >> np.uint64(lane - held)
        high &= np.uint64(low << held)
        words = words & np.uint64(low)
        words |= high
    _put(words, width, width, out)


def _shifted(codes: npt.NDArray[np.unsignedinteger], width: int, out: npt.NDArray[np.uint8]) -> None:
    """Write codes of more than a byte: eight are shifted to their places in some words."""
    eights = codes.reshape(-1, 8)
    words = np.zeros((-(-width // 8), len(eights)), dtype="<u8")
    for i in range(8):
        code = eights[:, i].astype(np.uint64)
        word, shift = divmod(i * width, 64)
        words[word] |= code << np.uint64(shift)
        if shift + width > 64:
            words[word + 1] |= code >> np.uint64(64 - shift)
    for i in range(len(words)):
        _put(words[i], min(8, width - 8 * i), width, out[8 * i :])


def _put(words: npt.NDArray[np.uint64], size: int, step: int, out: npt.NDArray[np.uint8]) -> None:
    """Write so many bytes of every word, four, two and one at a time, so many bytes after those of the one before."""
    at = 0
    for part in (8, 4, 2, 1):
        if size - at >= part:
            places = np.ndarray(len(words), f"<u{part}", out.data, at, (step,))
            places[:] = words.view(f"<u{part}")[at // part :: 8 // part]
            at += part


def _run(bits: npt.NDArray[np.uint8], width: int) -> Pieces:
    """Return one run of packed numbers of so many bits."""
    return [varint(len(bits) // width << 1 | 1), bits.data]


def _repeated(number: int, count: int) -> Pieces:
    """Return one run of a number of a byte at most, so many times."""
    return [varint(count << 1), bytes([number])]


def _size(pieces: Pieces) -> int:
    return sum(map(len, pieces))


def _levels(runs: Pieces) -> Pieces:
    return [_size(runs).to_bytes(4, "little"), *runs]


def _page(content: Pieces, kind: int, number: int, header: Struct) -> Pieces:
    size = (I32, _size(content))
    return [thrift.encoded({1: (I32, kind), 2: size, 3: size, number: (STRUCT, header)}), *content]


@dataclass(frozen=True)
class ValuePage:
    """All values of a column of few: a page that every row group begins with.

    ``path``: names of the column and of what it is nested in, from the outermost on. ``kind``: Parquet's number of the
    values' type. ``page``: the page of all values, in the order of their codes. ``values``: how many there are.
    """

    path: tuple[str, ...]
    kind: int
    page: bytes
    values: int

    @classmethod
    def of(cls, path: tuple[str, ...], values: pa.Array) -> ValuePage:
        """Return the page of values, without a null among them."""
        schema = pa.schema([pa.field("values", values.type, nullable=False)])
        options: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_statistics": False}
        raw, footer = _written(pa.Table.from_arrays([values], schema=schema), options)
        column: Struct = footer[4][1][1][0][1][1][1][0][3][1]
        content: Pieces = list(_contents(raw.to_pybytes(), column[9][1], column[7][1]))
        page = _page(content, _DICTIONARY_PAGE, 7, {1: (I32, len(values)), 2: (I32, _PLAIN)})
        return cls(path, column[1][1], b"".join(page), len(values))

    def chunk(self, levels: Pieces, codes: npt.NDArray[np.unsignedinteger], count: int) -> tuple[Pieces, Struct]:
        """Return the bytes of some entries, and what the footer says of them, as if they began the file."""
        width = max(1, (self.values - 1).bit_length())
        content = [*levels, bytes([width]), *_run(packed_bits(codes, width), width)]
        header: Struct = {1: (I32, count), 2: (I32, _RLE_DICTIONARY), 3: (I32, _RLE), 4: (I32, _RLE)}
        pieces = [self.page, *_page(content, _DATA_PAGE, 5, header)]
        size, pages = (I64, _size(pieces)), [(_DICTIONARY_PAGE, _PLAIN), (_DATA_PAGE, _RLE_DICTIONARY)]
        counted = [{1: (I32, kind), 2: (I32, encoding), 3: (I32, 1)} for kind, encoding in pages]
        return pieces, {
            1: (I32, self.kind),
            2: (LIST, (I32, [_PLAIN, _RLE, _RLE_DICTIONARY])),
            3: (LIST, (BINARY, [name.encode() for name in self.path])),
            4: (I32, 0),
            5: (I64, count),
            6: size,
            7: size,
            9: (I64, len(self.page)),
            11: (I64, 0),
            13: (LIST, (STRUCT, counted)),
        }


def _contents(raw: bytes, at: int, size: int) -> Iterator[bytes]:
    """Yield what pages hold that take so many bytes from a place on."""
    end = at + size
    while at < end:
        header, start = thrift.parsed(raw, at)
        at = start + int(header[3][1])
        yield raw[start:at]


class Packed(Protocol):
    """A column that is written from its codes."""

    def chunk(self, codes: npt.NDArray[Any]) -> tuple[Pieces, Struct]:
        """Return the bytes of some rows, and what the footer says of them, as if they began the file."""


@dataclass(frozen=True)
class PackedColumn:
    """A column of few values; the code after the last value is null's."""

    values: ValuePage
    nullable: bool

    @classmethod
    def of(cls, path: str, values: pa.Array, nullable: bool) -> PackedColumn:
        """Return the column whose codes mean these values; null is the last one, if it is one."""
        return cls(ValuePage.of((path,), values.drop_null()), nullable)

    def chunk(self, codes: npt.NDArray[Any]) -> tuple[Pieces, Struct]:
        """Return some rows, given by codes of shape (n,); see `Packed`."""
        levels: Pieces = []
        present = codes
        if self.nullable:
            there = codes < self.values.values
            if there.all():
                levels = _levels(_repeated(1, len(codes)))
            else:
                levels = _levels(_run(packed_bits(there.view(np.uint8), 1), 1))
                # By places: a mask would copy run by run, and random codes have short ones.
                present = codes.take(np.flatnonzero(there))
        return self.values.chunk(levels, present, len(codes))


@dataclass(frozen=True)
class PackedLists:
    """A column of sets of few items, each written as the list of them; bit i of a code is item i, the next null."""

    items: ValuePage
    lists: bool
    elements: bool

    @classmethod
    def of(cls, field: pa.Field, items: pa.Array) -> PackedLists:
        """Return the column of lists whose codes' bits mean these items."""
        page = ValuePage.of((field.name, "list", "element"), items)
        return cls(page, field.nullable, field.type.value_field.nullable)

    def chunk(self, codes: npt.NDArray[Any]) -> tuple[Pieces, Struct]:
        """Return some rows, given by codes of shape (n, words); see `Packed`."""
        word, bit = divmod(self.items.values, 64)
        null = None
        if self.lists and codes.shape[1] > word:
            null = (codes[:, word] >> np.uint64(bit) & np.uint64(1)).astype(np.bool_)
            codes = codes.copy()
            codes[null] = 0
        numbers, lengths = members(codes[:, : word + (bit > 0)], self.items.values, np.dtype(np.uint8))
        levels, count = self._levels(lengths, null)
        return self.items.chunk(levels, np.asarray(numbers), count)

    def _levels(self, lengths: npt.NDArray[np.int64], null: npt.NDArray[np.bool_] | None) -> tuple[Pieces, int]:
        """Return where lists begin and which are empty or null, and the number of entries: one for such a list."""
        ends = np.cumsum(np.maximum(lengths, 1))
        count = int(ends[-1]) if len(ends) else 0
        inner = np.ones(count, dtype=np.uint8)
        inner[:1] = 0
        inner[ends[:-1]] = 0
        repetition = _run(packed_bits(inner, 1), 1)
        whole = self.lists + 1 + self.elements
        width, without = whole.bit_length(), np.flatnonzero(lengths == 0)
        if not len(without):
            return [*_levels(repetition), *_levels(_repeated(whole, count))], count
        depth = np.full(count, whole, dtype=np.uint8)
        depth[ends[without] - 1] = self.lists if null is None else self.lists & ~null[without]
        return [*_levels(repetition), *_levels(_run(packed_bits(depth, width), width))], count


class PackedWriter:
    """An open Parquet file that row groups are written to: packed columns as codes, others as Arrow's arrays."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._file, self._options = file, dict(options)
        self._footer = _written(pa.Table.from_batches([], schema=schema), self._options)[1]
        self._schema = schema
        self._groups: list[Struct] = []
        self._rows = 0
        self._end = 0
        self._append([_MAGIC])

    def _append(self, pieces: Pieces) -> int:
        start = self._end
        for piece in pieces:
            self._file.write(piece)
        self._end += _size(pieces)
        return start

    def write(self, columns: Mapping[str, Any], rows: int, packed: Mapping[str, Packed]) -> None:
        """Write a row group, some columns from their codes."""
        chunks: dict[str, list[Struct]] = {name: [] for name in self._schema.names}
        for name, column in packed.items():
            pieces, found = column.chunk(columns[name])
            chunks[name].append(_moved(found, self._append(pieces)))
        others = [field for field in self._schema if field.name not in packed]
        if others:
            arrays = [columns[field.name] for field in others]
            for found in self._arrows(pa.Table.from_arrays(arrays, schema=pa.schema(others))):
                chunks[found[3][1][1][0].decode()].append(found)
        ordered = [chunk for own in chunks.values() for chunk in own]
        self._groups.append(_group(ordered, rows, len(self._groups)))
        self._rows += rows

    def _arrows(self, table: pa.Table) -> list[Struct]:
        """Write columns as Arrow does; return what the footer says of each."""
        raw, footer = _written(table, self._options)
        (group,) = footer[4][1][1]
        found: list[Struct] = [chunk[3][1] for chunk in group[1][1][1]]
        first = min(_first(chunk) for chunk in found)
        last = max(_first(chunk) + chunk[7][1] for chunk in found)
        start = self._append([memoryview(raw)[first:last]])
        return [_moved(chunk, start - first) for chunk in found]

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write the footer, with metadata."""
        said = [{1: (BINARY, name.encode()), 2: (BINARY, text.encode())} for name, text in metadata.items()]
        groups = (LIST, (STRUCT, self._groups))
        footer = thrift.encoded(self._footer | {3: (I64, self._rows), 4: groups, 5: (LIST, (STRUCT, said))})
        self._append([footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _written(table: pa.Table, options: Mapping[str, Any]) -> tuple[pa.Buffer, Struct]:
    """Return a table as Arrow writes it, in one row group, and the footer."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
    raw = sink.getvalue()
    end = raw.size - 8
    size = int.from_bytes(raw[end : end + 4].to_pybytes(), "little")
    return raw, thrift.parsed(raw[end - size : end].to_pybytes())[0]


def _first(chunk: Struct) -> int:
    """Return where a column's pages begin: with those of its dictionary, if it has one."""
    return int(chunk.get(11, chunk[9])[1])


def _moved(chunk: Struct, by: int) -> Struct:
    """Return what is said of a column that begins farther on."""
    return chunk | {number: (I64, chunk[number][1] + by) for number in (9, 11) if number in chunk}


def _group(chunks: Sequence[Struct], rows: int, number: int) -> Struct:
    """Return what the footer says of a row group."""
    plain, stored = (sum(chunk[size][1] for chunk in chunks) for size in (6, 7))
    columns = [{2: (I64, 0), 3: (STRUCT, chunk)} for chunk in chunks]
    return {
        1: (LIST, (STRUCT, columns)),
        2: (I64, plain),
        3: (I64, rows),
        5: (I64, min(map(_first, chunks))),
        6: (I64, stored),
        7: (I16, number),
    }
