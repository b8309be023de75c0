"""Which rows are sampled, and in what order: by a keyed hash of the record ids, alike at every curator.

A tag is the image of an id under a pseudorandom function whose key comes from the curators' secret and the run's fresh
nonce: AES-256 of one block, which holds the id itself, or its keyed BLAKE2b where it is long. Rows are ranked by their
tags and the m lowest are the sample, in that order: to anyone without the secret a uniformly random choice in a
uniformly random order, for any order of the table. Theorem III.2 of the sampling paper needs that order, too: of
rows drawn at random that keep the table's order it is false.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError
from dpframe.noise.keystream import BLOCK_BYTES, U64, Keystream, block_cipher
from dpframe.spaces import as_arrow
from dpframe.tables.types import is_text

_SHORT, _LONG = 15, 255
"""Bytes of an id that fit into a block with their number, and what is written for the number of a longer one."""


def tag_key(secret: bytes, run: bytes) -> bytes:
    """Return the key of a run's tags."""
    return Keystream(secret, run).column("", "records").words(0, 0, 4).tobytes()


def row_tags(ids: pa.Array, key: bytes, first_row: int = 0) -> U64:
    """Return the 128-bit tag of each record id, shape (rows, 2), low half first.

    Whole numbers are taken as their decimal digits: 7 and "7" are one record.
    """
    ids = as_arrow(ids)
    if ids.null_count:
        row = int(np.flatnonzero(pc.is_null(ids).to_numpy(zero_copy_only=False))[0]) + first_row
        raise ColumnError("is null, and every row needs the id of its record; drop such rows, or fill them", row=row)
    if pa.types.is_dictionary(ids.type):
        places = ids.indices.to_numpy(zero_copy_only=False)
        return np.asarray(row_tags(ids.dictionary, key, first_row)[places])
    if not pa.types.is_integer(ids.type) and not is_text(ids.type):
        raise ColumnError(f"has type {ids.type}, and ids must be whole numbers or text; cast it to text")
    texts = ids.cast(pa.large_string()).cast(pa.large_binary())
    return np.frombuffer(block_cipher(key).update(_blocks(texts, key).data), dtype="<u8").reshape(-1, 2)


def _blocks(texts: pa.LargeBinaryArray, key: bytes) -> npt.NDArray[np.uint8]:
    """Return a block of 16 bytes for each text, shape (rows, 16): different where texts are.

    Up to 15 bytes are the text itself with its length behind it, more are their keyed BLAKE2b and 255.
    """
    offsets, raw = (
        np.frombuffer(buffer, kind) for buffer, kind in zip(texts.buffers()[1:], ("<i8", "u1"), strict=True)
    )
    starts = offsets[texts.offset : texts.offset + len(texts)]
    sizes = offsets[texts.offset + 1 : texts.offset + len(texts) + 1] - starts
    blocks = np.zeros((len(texts), BLOCK_BYTES), dtype=np.uint8)
    for place in range(min(_SHORT, int(sizes.max(initial=0)))):
        there = np.flatnonzero(sizes > place)
        blocks[there, place] = raw[starts[there] + place]
    blocks[:, -1] = np.minimum(sizes, _LONG)
    keyed = hashlib.blake2b(b"long ids", key=key, digest_size=32).digest()
    for row in np.flatnonzero(sizes > _SHORT).tolist():
        digest = hashlib.blake2b(texts[row].as_py(), key=keyed, digest_size=_SHORT).digest()
        blocks[row] = np.frombuffer(digest + bytes([_LONG]), dtype=np.uint8)
    return blocks


class Records:
    """A set of records, from their tags in ascending order: whether one appears twice, and the set's keyed digest."""

    def __init__(self, key: bytes) -> None:
        self._digest = hashlib.blake2b(b"records", key=key, digest_size=32)
        self._last: U64 = np.zeros((0, 2), dtype=np.uint64)

    def add(self, tags: U64) -> None:
        """Add the next tags."""
        together = np.concatenate([self._last, tags])
        if (together[1:] == together[:-1]).all(axis=1).any():
            raise ColumnError("has an id twice; each record must have one row, so drop or join the others")
        self._digest.update(np.ascontiguousarray(tags, dtype="<u8").tobytes())
        self._last = together[-1:]

    def hexdigest(self) -> str:
        """Return the digest: equal for equal sets of records in one run, and nothing without the key."""
        return self._digest.hexdigest()
