"""One-time pads on codes: uniform in the group of a space's codes, exactly, from the system or from a short key.

Codes 0…k−1 are padded in Z_k, sets bit by bit. Random words from the largest multiple of k on are rejected. Rejection
is safe here, as the number of rejected words does not depend on the data.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.noise.keystream import U64, Keystream
from dpframe.spaces import Space

Codes = npt.NDArray[np.unsignedinteger]
FillBytes = Callable[[npt.NDArray[np.uint8]], None]
"""Fills an array with the next random bytes of a source."""

PADS = ("one-time", "stream")

_BATCH_WORDS = 1 << 15
"""Random words of a batch (limit of memory)."""


def fill_from_system(buffer: npt.NDArray[np.uint8]) -> None:
    """Fill an array with random bytes of the operating system."""
    buffer[:] = np.frombuffer(os.urandom(len(buffer)), dtype=np.uint8)


class PadGroup(ABC):
    """The group in which the codes of a space are padded."""

    @abstractmethod
    def stream(self, fill: FillBytes) -> ElementStream:
        """Return a source of uniform elements."""

    @abstractmethod
    def add(self, codes: Codes, pad: Codes) -> Codes:
        """Return the sum."""

    @abstractmethod
    def subtract(self, codes: Codes, pad: Codes) -> Codes:
        """Return the difference."""


class ElementStream(ABC):
    """Uniform elements of a group, one after the other; the sizes of the requests do not change them."""

    @abstractmethod
    def take(self, count: int) -> Codes:
        """Return the next elements."""


@dataclass(frozen=True)
class Residues(PadGroup):
    """Z_k, for codes 0…k−1."""

    size: int

    def stream(self, fill: FillBytes) -> ElementStream:
        """Return a source of uniform residues."""
        return _ResidueStream(self.size, fill)

    def add(self, codes: Codes, pad: Codes) -> Codes:
        """Return codes + pad mod k."""
        # In 64 bits, as the sum may exceed the type of the codes.
        total = codes.astype(np.uint64) + pad
        return np.asarray(np.where(total >= self.size, total - np.uint64(self.size), total).astype(codes.dtype))

    def subtract(self, codes: Codes, pad: Codes) -> Codes:
        """Return codes − pad mod k."""
        total = codes.astype(np.uint64) + (np.uint64(self.size) - pad.astype(np.uint64))
        return np.asarray(np.where(total >= self.size, total - np.uint64(self.size), total).astype(codes.dtype))


@dataclass
class _ResidueStream(ElementStream):
    size: int
    fill: FillBytes
    unused: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    def __post_init__(self) -> None:
        # With four spare bits at most one word in 16 is rejected.
        bits = (self.size - 1).bit_length() + 4
        self.word_type = np.dtype(f"<u{next(width for width in (1, 2, 4, 8) if 8 * width >= bits)}")
        self.word_limit = (1 << 8 * self.word_type.itemsize) // self.size * self.size
        self.unused = self.unused.astype(np.min_scalar_type(self.size - 1))

    def take(self, count: int) -> Codes:
        """Return the next residues."""
        parts, available = [self.unused], len(self.unused)
        # Elements that are left over go to the next request, so that both parties may draw in batches of their own.
        while available < count:
            raw = np.empty(_BATCH_WORDS * self.word_type.itemsize, dtype=np.uint8)
            self.fill(raw)
            words = raw.view(self.word_type)
            if self.word_limit < 1 << 8 * self.word_type.itemsize:
                words = words[words < self.word_limit]
            parts.append(
                (words % self.word_type.type(self.size) if self.size > 1 else words * 0).astype(self.unused.dtype)
            )
            available += len(words)
        residues = np.concatenate(parts)
        self.unused = residues[count:]
        return residues[:count]


@dataclass(frozen=True)
class Bits(PadGroup):
    """Sets of ``items`` items in words of 64 bits, under exclusive or."""

    items: int

    def stream(self, fill: FillBytes) -> ElementStream:
        """Return a source of uniform sets."""
        return _BitStream(self.items, fill)

    def add(self, codes: Codes, pad: Codes) -> Codes:
        """Return the symmetric difference."""
        return np.asarray(codes ^ pad)

    def subtract(self, codes: Codes, pad: Codes) -> Codes:
        """Return the symmetric difference, which is its own inverse."""
        return np.asarray(codes ^ pad)


@dataclass
class _BitStream(ElementStream):
    items: int
    fill: FillBytes

    def take(self, count: int) -> U64:
        """Return the next sets."""
        words = -(-self.items // 64)
        raw = np.empty(8 * words * count, dtype=np.uint8)
        self.fill(raw)
        sets = raw.view("<u8").reshape(count, words).astype(np.uint64, copy=False)
        # The last word has bits beyond the last item, which no code has.
        sets[:, -1] &= np.uint64((1 << (self.items - 64 * (words - 1))) - 1)
        return sets


def pad_group(space: Space) -> PadGroup:
    """Return the group in which the codes of a space are padded: bits for sets, otherwise residues."""
    return Bits(space.size.bit_length() - 1) if space.code_words else Residues(space.size)


@dataclass
class PadStream:
    """The pads of a curator's columns, row after row.

    ``spaces``: the columns' spaces; ``key``: 32 secret bytes that are expanded to the pads, or None for random bytes of
    the system; ``run``: digest of the run, which enters the expansion.
    """

    spaces: Mapping[str, Space]
    key: bytes | None = field(repr=False)
    run: bytes

    def __post_init__(self) -> None:
        fills: dict[str, FillBytes] = dict.fromkeys(self.spaces, fill_from_system)
        if self.key is not None:
            keystream = Keystream(self.key, self.run)
            fills = {name: keystream.column(name, "pad").reader(0, 0).fill for name in self.spaces}
        self._streams = {name: pad_group(space).stream(fills[name]) for name, space in self.spaces.items()}

    def take(self, count: int) -> dict[str, Any]:
        """Return the pads of the next rows."""
        return {name: stream.take(count) for name, stream in self._streams.items()}


def add_pads(spaces: Mapping[str, Space], codes: Mapping[str, Any], pads: Mapping[str, Any]) -> dict[str, Any]:
    """Return codes + pads."""
    return {name: pad_group(space).add(codes[name], pads[name]) for name, space in spaces.items()}


def subtract_pads(spaces: Mapping[str, Space], codes: Mapping[str, Any], pads: Mapping[str, Any]) -> dict[str, Any]:
    """Return codes − pads: the paper prints ⊕ in decryption, which is a ⊖."""
    return {name: pad_group(space).subtract(codes[name], pads[name]) for name, space in spaces.items()}
