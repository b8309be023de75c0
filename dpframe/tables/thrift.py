"""Thrift's compact protocol, as far as Parquet's headers and footers need it: structures as numbered fields.

A structure is a mapping from a field's number to its type and value; a list has the type of its entries. The numbers
are those of Parquet's format (github.com/apache/parquet-format, ``parquet.thrift``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12

Struct = dict[int, tuple[int, Any]]
List = tuple[int, list[Any]]


def varint(number: int) -> bytes:
    """Return a whole number from 0 on in groups of seven bits, the lowest first.

    >>> varint(5), varint(300)
    (b'\\x05', b'\\xac\\x02')
    """
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encoded(struct: Struct) -> bytes:
    """Return a structure as bytes."""
    out, last = bytearray(), 0
    for number, (kind, value) in sorted(struct.items()):
        step = number - last
        out += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + _zigzag(number)
        out += _value(kind, value)
        last = number
    return bytes(out) + b"\0"


def _zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _value(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind == DOUBLE:
        return bytes(value)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind in (LIST, SET):
        inner, entries = value
        head = bytes([len(entries) << 4 | inner]) if len(entries) < 15 else bytes([0xF0 | inner]) + varint(len(entries))
        # Booleans have a byte each in lists.
        return head + b"".join(_value(BYTE if inner in (TRUE, FALSE) else inner, entry) for entry in entries)
    return encoded(value) if kind == STRUCT else _zigzag(int(value))


def parsed(raw: bytes, start: int = 0) -> tuple[Struct, int]:
    """Return the structure that begins at a place, and the place after it."""
    reader = _ThriftReader(raw, start)
    return reader.struct(), reader.at


@dataclass
class _ThriftReader:
    raw: bytes
    at: int

    def struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            step, kind = head >> 4, head & 15
            number = number + step if step else self._signed()
            found[number] = kind, self._value(kind)
        return found

    def _byte(self) -> int:
        self.at += 1
        return self.raw[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        return self.raw[self.at - count : self.at]

    def _varint(self) -> int:
        number, shift = 0, 0
        while (byte := self._byte()) > 0x7F:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift

    def _signed(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            inner = head & 15
            return inner, [self._value(BYTE if inner in (TRUE, FALSE) else inner) for _ in range(count)]
        return self.struct() if kind == STRUCT else self._signed()
