"""The keyed stream of random words that all noise comes from (AES-256-CTR, seekable by row).

A release has one secret key. Every *plane* of words (one per domain, plan, column and word index) is an
AES-CTR stream under a subkey of its own, derived with HMAC-SHA256 from length-prefixed parts, so no two
planes share a block and word ``r`` of a plane belongs to row ``r`` whatever the batch or worker.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from dpframe.errors import ParameterError

DOMAINS = ("noise", "order", "infer", "sample", "measure", "persons", "pad", "records")
BLOCK_BYTES = 16
_ZEROS = np.zeros(1 << 20, dtype=np.uint8)


@dataclass(frozen=True)
class Keystream:
    """A release's secret key, from which a stream per column is derived.

    Parameters
    ----------
    key
        32 secret bytes. A key serves one table under one plan: two releases of changed data, or under a
        changed plan with the same digest, would reveal their difference.
    plan_digest
        Digest of the plan; it enters every subkey, so one key under two plans gives unrelated noise.

    Raises
    ------
    ParameterError
        If the key is not 32 bytes.

    Examples
    --------
    >>> stream = Keystream(bytes(32)).column("age")
    >>> whole = stream.words(0, first_row=0, count=10)
    >>> bool((whole[4:] == stream.words(0, first_row=4, count=6)).all())
    True
    """

    key: bytes = field(repr=False)
    plan_digest: bytes = b""

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes | bytearray) or len(self.key) != 32:
            raise ParameterError("key must be 32 bytes; take secrets.token_bytes(32) or leave it out")
        object.__setattr__(self, "key", bytes(self.key))

    def column(self, name: str, domain: str = "noise") -> ColumnStream:
        """Return the stream of one column (its planes are numbered from 0)."""
        if domain not in DOMAINS:
            raise ParameterError(f"domain must be one of {', '.join(DOMAINS)}")
        return ColumnStream(self.key, (domain.encode(), self.plan_digest, name.encode()))


@dataclass(frozen=True)
class ColumnStream:
    """The planes of one column; made by `Keystream.column`."""

    key: bytes = field(repr=False)
    path: tuple[bytes, ...]
    first_word: int = 0

    def skip(self, words: int) -> ColumnStream:
        """Return the same column's stream with its planes numbered from ``words`` on."""
        return replace(self, first_word=self.first_word + words)

    def reader(self, word: int, first_row: int, bits: int = 64) -> PlaneReader:
        """Return a reader of plane ``word`` whose next word is that of row ``first_row``.

        ``bits`` is the width of the plane's words: 32, 64, or 128 (two 64-bit halves a row).
        """
        parts = (*self.path, (self.first_word + word).to_bytes(4, "little"), bytes([bits]))
        return PlaneReader(_subkey(self.key, parts), first_row * (bits // 8), bits)

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


def choice_key(key: bytes) -> bytes:
    """Return the key that rows of persons are chosen with, from that of the noise: neither tells of the other."""
    return hashlib.blake2b(b"rows of persons", key=key, digest_size=32).digest()


def cipher_at(subkey: bytes, position: int) -> CipherContext:
    """Return an AES-256-CTR encryptor that stands at a byte position of the stream under ``subkey``."""
    block, offset = divmod(position, BLOCK_BYTES)
    cipher = Cipher(algorithms.AES(subkey), modes.CTR(block.to_bytes(BLOCK_BYTES, "big"))).encryptor()
    if offset:
        cipher.update(bytes(offset))
    return cipher


def _subkey(key: bytes, parts: tuple[bytes, ...]) -> bytes:
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hmac.new(key, message, hashlib.sha256).digest()
