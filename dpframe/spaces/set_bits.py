"""Sets as rows of 64-bit words: bit i of a row is 1 if the set has item i."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64 = npt.NDArray[np.uint64]
"""Words of 64 bits, each a bit for an item."""


Members = tuple[pa.Array, npt.NDArray[np.int64]]
"""The numbers of the set bits, row after row, and their count in each row."""

_SET_BITS_CHUNK_ROWS = 1 << 15
"""Number of rows that are processed at a time, so that their words stay in cache."""

_CHUNK_BYTES = 1 << 18
"""Bits are unpacked to bytes in chunks of about this size, which stay in cache."""

_DENSE_SHARE = 1 / 6
"""Share of set bits from which a lookup table of several bits is faster than a filter of all bits."""

_MAX_LOOKUP_BITS = 13
"""Limit on the bits that are looked up at a time: tables of 2^13 entries stay in cache."""


def set_sizes(codes: U64) -> npt.NDArray[np.int64]:
    """Return the number of bits set in rows of words."""
    first_word, *other_words = codes.T
    sizes: npt.NDArray[np.int64] = np.bitwise_count(first_word).astype(np.int64)
    for word in other_words:  # a sum along short rows would be slow
        sizes += np.bitwise_count(word)
    return sizes


def packed(items: npt.NDArray[np.integer], lengths: npt.NDArray[np.int64], words: int) -> U64:
    """Return rows of words whose bits are the items of each row.

    ``items``: numbers of items, row after row; ``lengths``: number of items of each row; ``words``: words of a row.
    """
    n, width = len(lengths), 64 * words
    codes = np.empty((n, words), dtype=np.uint64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    step = max(1, _CHUNK_BYTES // width)
    for start in range(0, n, step):
        stop = min(start + step, n)
        bits = np.zeros((stop - start) * width, dtype=np.uint8)
        place = np.repeat(np.arange(0, (stop - start) * width, width), lengths[start:stop])
        place += items[int(ends[start]) : int(ends[stop])]
        bits[place] = 1
        codes[start:stop] = np.packbits(bits, bitorder="little").view("<u8").reshape(-1, words)
    return codes


def members(codes: U64, items: int, kind: np.dtype[Any]) -> Members:
    """Return the items of rows of words, as numbers of a kind."""
    lengths = set_sizes(codes)
    count = int(lengths.sum())
    # From Arrow's pool, which keeps its pages.
    buffer = pa.allocate_buffer(count * kind.itemsize)
    is_dense = codes.shape[1] == 1 and count > _DENSE_SHARE * items * len(codes)
    (_look_up if is_dense else _filter)(codes, items, np.frombuffer(buffer, dtype=kind))
    return pa.Array.from_buffers(pa.from_numpy_dtype(kind), count, [None, buffer]), lengths


def _filter(codes: U64, items: int, out: npt.NDArray[np.integer]) -> None:
    """Write the numbers of the set bits to ``out``, by a filter of all bits."""
    width, end = 64 * codes.shape[1], 0
    step = max(1, _CHUNK_BYTES // (4 * width))
    numbers = pa.array(np.tile(np.arange(width).astype(out.dtype), step))
    for start in range(0, len(codes), step):
        raw = np.ascontiguousarray(codes[start : start + step], dtype="<u8")
        # Arrow's booleans have exactly this order of bits.
        bits = pa.Array.from_buffers(pa.bool_(), raw.size * 64, [None, pa.py_buffer(raw)])
        bit_numbers = np.asarray(numbers[: raw.size * 64].filter(bits))
        out[end : end + len(bit_numbers)] = bit_numbers
        end += len(bit_numbers)


def _look_up(codes: U64, items: int, out: npt.NDArray[np.integer]) -> None:
    """Write the numbers of the set bits of single words to ``out``, by a lookup table of several bits."""
    parts = -(-items // _MAX_LOOKUP_BITS)
    bits, out_bytes, end = -(-items // parts), out.view(np.uint8), 0
    table = _lookup_table(parts, bits, out.dtype.str)
    mask = np.uint64((1 << bits) - 1)
    index = np.empty((min(_SET_BITS_CHUNK_ROWS, len(codes)), parts), dtype=np.int32)
    for start in range(0, len(codes), _SET_BITS_CHUNK_ROWS):
        word = codes[start : start + _SET_BITS_CHUNK_ROWS, 0]
        places = index[: len(word)]
        for part in range(parts):
            np.bitwise_and(word >> np.uint64(part * bits), mask, out=places[:, part], casting="unsafe")
            places[:, part] += part << bits
        # Arrow concatenates binary values.
        _, ends, bit_numbers = table.take(pa.array(places.ravel())).buffers()
        size = int(np.frombuffer(ends, dtype=np.int32)[places.size])
        out_bytes[end : end + size] = np.frombuffer(bit_numbers, dtype=np.uint8)[:size]
        end += size


@lru_cache(maxsize=4)
def _lookup_table(parts: int, bits: int, kind: str) -> pa.BinaryArray:
    """Return the numbers of the set bits as bytes, for every part of a word and every value of the part."""
    is_set = (np.arange(1 << bits)[:, None] >> np.arange(bits) & 1).astype(np.bool_)
    numbers = [np.broadcast_to(np.arange(bits) + part * bits, is_set.shape)[is_set] for part in range(parts)]
    lengths = np.tile(is_set.sum(axis=1), parts) * np.dtype(kind).itemsize
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    bit_numbers = np.concatenate(numbers).astype(kind)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(bit_numbers)])


def cut(codes: U64, most: int, words_of: Callable[[int], npt.NDArray[Any]]) -> U64:
    """Return sets with at most ``most`` items; each larger set is cut to items chosen by the row's random word.

    ``words_of`` returns a random word for each of a number of rows. The guarantee needs a choice that depends only on
    the row and its word.
    """
    large_rows = np.flatnonzero(set_sizes(codes) > most)
    if not len(large_rows):
        return codes
    codes, width = codes.copy(), 64 * codes.shape[1]
    words = words_of(len(codes)).astype(np.uint64)
    step = max(1, (1 << 20) // width)
    for start in range(0, len(large_rows), step):
        rows = large_rows[start : start + step]
        is_member = np.unpackbits(codes[rows].astype("<u8").view(np.uint8), axis=1, bitorder="little").view(np.bool_)
        item_ranks = np.where(is_member, _mix_words(words[rows], width) >> np.uint64(1), np.uint64(2**64 - 1))
        is_chosen = np.zeros(is_member.shape, dtype=np.uint8)
        np.put_along_axis(is_chosen, np.argpartition(item_ranks, most - 1, axis=1)[:, :most], 1, axis=1)
        codes[rows] = np.packbits(is_chosen, axis=1, bitorder="little").view("<u8")
    return codes


def _mix_words(words: U64, count: int) -> U64:
    """Return ``count`` numbers per word (SplitMix64: Steele, Lea and Flood 2014)."""
    z = words[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
