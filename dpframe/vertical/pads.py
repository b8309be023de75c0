"""One-time pads on codes: uniform in the group of a space's codes, exactly, from the system or from a short key.

Codes 0…k−1 are padded in Z_k, sets bit by bit. A word that is not below the largest multiple of k is thrown away: here
rejection is allowed, as how many are says nothing of the data.
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
Fill = Callable[[npt.NDArray[np.uint8]], None]
"""Fills an array with the next random bytes of a source."""

PADS = ("one-time", "stream")

_WORDS = 1 << 15
"""Words that are drawn at a time."""


def from_system(out: npt.NDArray[np.uint8]) -> None:
    """Fill an array with bytes of the operating system."""
    out[:] = np.frombuffer(os.urandom(len(out)), dtype=np.uint8)


class PadGroup(ABC):
    """The group in which the codes of a space are padded."""

    @abstractmethod
    def draws(self, fill: Fill) -> Draws:
        """Return a source of uniform elements."""

    @abstractmethod
    def add(self, codes: Codes, pad: Codes) -> Codes:
        """Return the sum."""

    @abstractmethod
    def subtract(self, codes: Codes, pad: Codes) -> Codes:
        """Return the difference."""


class Draws(ABC):
    """Uniform elements of a group, one after the other: how many are taken at a time changes none."""

    @abstractmethod
    def take(self, count: int) -> Codes:
        """Return the next elements."""


@dataclass(frozen=True)
class Residues(PadGroup):
    """Z_k, for codes 0…k−1."""

    size: int

    def draws(self, fill: Fill) -> Draws:
        """Return a source of uniform residues."""
        return _ResidueDraws(self.size, fill)

    def add(self, codes: Codes, pad: Codes) -> Codes:
        """Return codes + pad mod k."""
        total = codes.astype(np.uint64) + pad
        return np.asarray(np.where(total >= self.size, total - np.uint64(self.size), total).astype(codes.dtype))

    def subtract(self, codes: Codes, pad: Codes) -> Codes:
        """Return codes − pad mod k."""
        total = codes.astype(np.uint64) + (np.uint64(self.size) - pad.astype(np.uint64))
        return np.asarray(np.where(total >= self.size, total - np.uint64(self.size), total).astype(codes.dtype))


@dataclass
class _ResidueDraws(Draws):
    size: int
    fill: Fill
    left: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    def __post_init__(self) -> None:
        # Four bits to spare: at most one word in 16 is thrown away.
        bits = (self.size - 1).bit_length() + 4
        self.word = np.dtype(f"<u{next(width for width in (1, 2, 4, 8) if 8 * width >= bits)}")
        self.whole = (1 << 8 * self.word.itemsize) // self.size * self.size
        self.left = self.left.astype(np.min_scalar_type(self.size - 1))

    def take(self, count: int) -> Codes:
        """Return the next residues."""
        parts, held = [self.left], len(self.left)
        while held < count:
            raw = np.empty(_WORDS * self.word.itemsize, dtype=np.uint8)
            self.fill(raw)
            words = raw.view(self.word)
            if self.whole < 1 << 8 * self.word.itemsize:
                words = words[words < self.whole]
            parts.append((words % self.word.type(self.size) if self.size > 1 else words * 0).astype(self.left.dtype))
            held += len(words)
        drawn = np.concatenate(parts)
        self.left = drawn[count:]
        return drawn[:count]


@dataclass(frozen=True)
class Bits(PadGroup):
    """Sets of ``items`` items in words of 64 bits, under exclusive or."""

    items: int

    def draws(self, fill: Fill) -> Draws:
        """Return a source of uniform sets."""
        return _BitDraws(self.items, fill)

    def add(self, codes: Codes, pad: Codes) -> Codes:
        """Return the symmetric difference."""
        return np.asarray(codes ^ pad)

    def subtract(self, codes: Codes, pad: Codes) -> Codes:
        """Return the symmetric difference: it undoes itself."""
        return np.asarray(codes ^ pad)


@dataclass
class _BitDraws(Draws):
    items: int
    fill: Fill

    def take(self, count: int) -> U64:
        """Return the next sets."""
        words = -(-self.items // 64)
        raw = np.empty(8 * words * count, dtype=np.uint8)
        self.fill(raw)
        sets = raw.view("<u8").reshape(count, words).astype(np.uint64, copy=False)
        sets[:, -1] &= np.uint64((1 << (self.items - 64 * (words - 1))) - 1)
        return sets


def pad_group(space: Space) -> PadGroup:
    """Return the group in which the codes of a space are padded: bits where they are sets, else residues."""
    return Bits(space.size.bit_length() - 1) if space.code_words else Residues(space.size)


@dataclass
class PadStream:
    """The pads of a curator's columns, row after row.

    ``spaces``: the columns' spaces; ``key``: 32 secret bytes that the pads are expanded from, or None for bytes of the
    system; ``run``: digest of the run, which enters the expansion.
    """

    spaces: Mapping[str, Space]
    key: bytes | None = field(repr=False)
    run: bytes

    def __post_init__(self) -> None:
        fills: dict[str, Fill] = dict.fromkeys(self.spaces, from_system)
        if self.key is not None:
            stream = Keystream(self.key, self.run)
            fills = {name: stream.column(name, "pad").reader(0, 0).fill for name in self.spaces}
        self._draws = {name: pad_group(space).draws(fills[name]) for name, space in self.spaces.items()}

    def take(self, count: int) -> dict[str, Any]:
        """Return the pads of the next rows."""
        return {name: draws.take(count) for name, draws in self._draws.items()}


def padded(spaces: Mapping[str, Space], codes: Mapping[str, Any], pads: Mapping[str, Any]) -> dict[str, Any]:
    """Return codes + pads."""
    return {name: pad_group(space).add(codes[name], pads[name]) for name, space in spaces.items()}


def unpadded(spaces: Mapping[str, Space], codes: Mapping[str, Any], pads: Mapping[str, Any]) -> dict[str, Any]:
    """Return codes − pads: the paper prints ⊕ in decryption, which is a ⊖."""
    return {name: pad_group(space).subtract(codes[name], pads[name]) for name, space in spaces.items()}
