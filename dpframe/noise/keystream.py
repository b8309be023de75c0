"""The keyed stream of random words that all noise comes from (AES-256-CTR, seekable by row).

A release has one secret key. Every *plane* of words (one per domain, plan, column and word index) is an
AES-CTR stream under a subkey of its own, derived with HMAC-SHA256 from length-prefixed parts, so no two
planes share a block. Word ``r`` of a plane belongs to row ``r`` in every batch and worker.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from dpframe.errors import ParameterError

DOMAINS = ("noise", "order", "infer", "sample", "measure", "persons", "pad", "records")
AES_BLOCK_BYTES = 16
U64 = npt.NDArray[np.uint64]
"""Words of 64 bits: random, of a bit set, or of a digest."""

_ZEROS = np.zeros(1 << 20, dtype=np.uint8)
_SCATTERED = 1 << 14
"""Blocks that are encrypted at a time if rows are not consecutive."""

Rows = int | U64
"""Words of a plane that rows use: all from a first row's number on; or one by one the rows' numbers (shape (n,)), or
addresses of 128 bits in place of numbers (shape (n, 2), low half first)."""


@dataclass(frozen=True)
class Keystream:
    """A release's secret key, from which a stream per column is derived.

    ``key``: 32 secret bytes. A key serves one table under one plan: two releases of changed data, or under a changed
    plan with an unchanged digest, would reveal their difference. ``plan_digest``: digest of the plan; it enters every
    subkey, so one key under two plans gives unrelated noise.

    >>> stream = Keystream(bytes(32)).column("age")
    >>> whole = stream.words(0, first_row=0, count=10)
    >>> bool((whole[4:] == stream.words(0, first_row=4, count=6)).all())
    True
    """

    key: bytes = field(repr=False)
    plan_digest: bytes = b""
    rows: U64 | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes | bytearray) or len(self.key) != 32:
            raise ParameterError("key must be 32 bytes; take secrets.token_bytes(32) or leave it out")
        # A caller may change a bytearray later; the key must stay.
        object.__setattr__(self, "key", bytes(self.key))

    def column(self, name: str, domain: str = "noise") -> ColumnStream:
        """Return the stream of one column (its planes are numbered from 0)."""
        if domain not in DOMAINS:
            raise ParameterError(f"domain must be one of {', '.join(DOMAINS)}")
        return ColumnStream(self.key, (domain.encode(), self.plan_digest, name.encode()), rows=self.rows)

    def at(self, rows: Rows) -> tuple[Keystream, int]:
        """Return a stream whose rows from a first one on have the words of the rows asked for, and that first row.

        >>> stream, first = Keystream(bytes(32)).at(np.array([7, 5], dtype=np.uint64))
        >>> whole = Keystream(bytes(32)).column("age").words(0, 0, 10)
        >>> bool((stream.column("age").words(0, first, 2) == whole[[7, 5]]).all())
        True
        """
        return (replace(self, rows=rows), 0) if isinstance(rows, np.ndarray) else (self, rows)


@dataclass(frozen=True)
class ColumnStream:
    """The planes of one column; made by `Keystream.column`."""

    key: bytes = field(repr=False)
    path: tuple[bytes, ...]
    first_word: int = 0
    rows: U64 | None = field(default=None, repr=False, compare=False)
    """Rows of the words, one by one; None if word r belongs to row r."""

    def skip(self, words: int) -> ColumnStream:
        """Return this column's stream with its planes numbered from ``words`` on."""
        return replace(self, first_word=self.first_word + words)

    def at(self, rows: Rows) -> tuple[ColumnStream, int]:
        """Return a stream with the words of the rows asked for, and its first row; see `Keystream.at`."""
        return (replace(self, rows=rows), 0) if isinstance(rows, np.ndarray) else (self, rows)

    def reader(self, word: int, first_row: int, bits: int = 64) -> PlaneReader:
        """Return a reader of plane ``word`` whose next word belongs to row ``first_row``.

        ``bits`` is the width of the plane's words: 32, 64, or 128 (two 64-bit halves a row).
        """
        parts = (*self.path, (self.first_word + word).to_bytes(4, "little"), bytes([bits]))
        if self.rows is not None and self.rows.ndim > 1:
            parts = (*parts, b"address")  # addresses of 128 bits are blocks of a plane of their own
        subkey = hmac.new(self.key, framed(parts), hashlib.sha256).digest()
        if self.rows is not None:
            return ScatteredReader(subkey, self.rows[first_row:], bits)
        return PlaneReader(subkey, first_row * (bits // 8), bits)

    def words(self, word: int, first_row: int, count: int, bits: int = 64) -> npt.NDArray[np.unsignedinteger]:
        """Return words ``first_row … first_row + count − 1`` of a plane, as uint32 or uint64.

        Words of 128 bits come as an array of shape (count, 2), low half first.
        """
        reader = self.reader(word, first_row, bits)
        out = np.empty(count * (bits // 8), dtype=np.uint8)
        reader.fill(out)
        if bits == 128:
            return out.view("<u8").reshape(count, 2)
        return out.view(f"<u{bits // 8}")


class PlaneReader:
    """Reads one plane onwards from a byte position."""

    def __init__(self, subkey: bytes, position: int, bits: int) -> None:
        self.bits = bits
        self._cipher = cipher_at(subkey, position)

    def fill(self, out: npt.NDArray[np.uint8]) -> None:
        """Fill a contiguous byte array with the plane's next bytes."""
        for start in range(0, len(out), len(_ZEROS)):
            part = out[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)].data, part.data)


class ScatteredReader(PlaneReader):
    """Reads the words of single rows: each is a part of one encrypted block of the plane."""

    def __init__(self, subkey: bytes, rows: U64, bits: int) -> None:
        self.bits = bits
        self._rows, self._at = rows, 0
        self._blocks = block_cipher(subkey)

    def fill(self, out: npt.NDArray[np.uint8]) -> None:
        """Fill a contiguous byte array with the next rows' words."""
        width = self.bits // 8
        words = out.reshape(-1, width)
        for start in range(0, len(words), _SCATTERED):
            part = words[start : start + _SCATTERED]
            rows = self._rows[self._at : self._at + len(part)]
            self._at += len(part)
            counters = np.zeros((len(part), 2), dtype=">u8")
            if rows.ndim == 2:
                counters[:, 0], counters[:, 1] = rows[:, 1], rows[:, 0]
                # An address is a whole counter, so that every row has its own block and takes the first word.
                slots = np.zeros(len(part), dtype=np.intp)
            else:
                slot = np.uint64(AES_BLOCK_BYTES // width)
                counters[:, 1] = rows // slot
                slots = (rows % slot).astype(np.intp)
            blocks = np.frombuffer(self._blocks.update(counters.tobytes()), np.uint8)
            part[:] = blocks.reshape(len(part), -1, width)[np.arange(len(part)), slots]


def derived_key(key: bytes, use: bytes) -> bytes:
    """Return a key for another use, derived from the key of the noise: neither reveals the other."""
    return hashlib.blake2b(use, key=key, digest_size=32).digest()


def choice_key(key: bytes) -> bytes:
    """Return the key that chooses the rows of persons."""
    return derived_key(key, b"rows of persons")


def inference_id(key: bytes) -> str:
    """Return the public id of the inference under a key: a repetition has an equal id, no other inference has."""
    return derived_key(key, b"id of an inference").hex()[:32]


def cipher_at(subkey: bytes, position: int) -> CipherContext:
    """Return an AES-256-CTR encryptor that starts at a byte position of the stream under ``subkey``."""
    block, offset = divmod(position, AES_BLOCK_BYTES)
    cipher = Cipher(algorithms.AES(subkey), modes.CTR(block.to_bytes(AES_BLOCK_BYTES, "big"))).encryptor()
    # The counter addresses blocks, not bytes; the bytes before the position are dropped.
    if offset:
        cipher.update(bytes(offset))
    return cipher


def block_cipher(key: bytes) -> CipherContext:
    """Return an encryptor of single blocks of 16 bytes: for counters, which all differ, and the links of a CBC-MAC."""
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 (the permutation is meant)


def framed(parts: Iterable[bytes]) -> bytes:
    """Return parts as one message, each after its length: different lists of parts have different messages."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
