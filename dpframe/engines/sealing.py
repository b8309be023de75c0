"""Rows on their way between workers: encrypted, as engines keep them on disks, in the input's order."""

from __future__ import annotations

import pickle
import secrets
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpframe.noise.keystream import U64, derived_key
from dpframe.tables.batches import Batch

_NONCE = 12


@dataclass(frozen=True)
class BucketRows:
    """Released rows of one bucket, in input order."""

    words: U64
    """What they are ordered by, 128 bits a row, low half first; shape (rows, 2)."""
    checks: U64
    """A keyed word of what each row was before, and of its address."""
    batch: Batch


@dataclass(frozen=True)
class Seal:
    """Encrypts rows under a key of its own (AES-256-GCM with random nonces); what was altered is refused.

    >>> import numpy as np
    >>> rows = BucketRows(np.zeros((1, 2), np.uint64), np.zeros(1, np.uint64), {"sex": np.array([1], np.uint8)})
    >>> seal = Seal(bytes(32))
    >>> seal.open(seal.close(rows, 7), 7).batch
    {'sex': array([1], dtype=uint8)}
    """

    key: bytes = field(repr=False)

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(derived_key(self.key, b"rows between workers"))

    def __getstate__(self) -> dict[str, bytes]:
        return {"key": self.key}

    def close(self, rows: BucketRows, bucket: int) -> bytes:
        """Return the rows of a bucket as bytes."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, pickle.dumps(rows, protocol=5), bucket.to_bytes(4, "little"))

    def open(self, content: bytes, bucket: int) -> BucketRows:
        """Return rows that were closed for this bucket; `cryptography.exceptions.InvalidTag` for any other bytes."""
        plain = self._cipher.decrypt(content[:_NONCE], content[_NONCE:], bucket.to_bytes(4, "little"))
        rows: BucketRows = pickle.loads(plain)  # noqa: S301 (authenticated: of this release's own workers)
        return rows
