"""The loop that randomises rows, the shuffle, and the digest of released rows.

Every entry point calls these functions: equal keys, plans and rows give equal values in equal order, in memory, in
batches of any size, or in Parquet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dpframe.errors import PlanError
from dpframe.noise.keystream import U64, Keystream, Rows
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.plan import Plan

Codes = npt.NDArray[np.integer]


def release(codes: Mapping[str, Codes], plan: Plan, key: bytes, rows: Rows = 0) -> dict[str, Codes]:
    """Randomise the codes of every column of the plan, in the order of the input rows.

    ``codes``: one integer array per column of the plan, all of one length: 1-d, or of sets rows of 64-bit words.
    ``plan``: the plan; its digest enters the noise. ``key``: 32 secret bytes that serve this table under this plan
    only. ``rows``: position of the first row in the table, or the positions (or addresses) of all rows: word r of the
    stream decides row r.

    Returns
    -------
    Released codes by column, with the dtypes of ``codes``.
    """
    codes = plan.bound_rules.mended(codes)
    stream, first_row = Keystream(key, plan.digest).at(rows)
    released: dict[str, Codes] = {}
    for unit in plan.units:
        released |= unit.sample(codes, stream, first_row)
    return {name: released[name] for name in plan.names}


def order_words(plan: Plan, key: bytes, rows: Rows, count: int) -> U64:
    """Return the 128-bit order words of rows as shape (count, 2), low half first."""
    stream, first_row = Keystream(key, plan.digest).at(rows)
    return stream.column("", domain="order").words(0, first_row, count, bits=128)


def rank(words: U64) -> npt.NDArray[np.intp]:
    """Return the positions that sort rows by their 128-bit order word."""
    return rank_halves(words[:, 1], lambda: words[:, 0])


def rank_halves(high: U64, low: Callable[[], U64]) -> npt.NDArray[np.intp]:
    """Return the positions that sort rows; the low halves are only requested if high halves are equal."""
    bits = np.uint64(max(len(high) - 1, 0).bit_length())
    keys = high >> bits
    order = numbered(keys, bits)
    tie_places = np.flatnonzero(keys[1:] == keys[:-1])
    if len(tie_places):  # the bits under the row's number decide, or the low half
        tie_rows = np.union1d(tie_places, tie_places + 1)
        rows = order[tie_rows]
        order[tie_rows] = rows[np.lexsort((low()[rows], high[rows]))]
    return order


def numbered(keys: npt.NDArray[np.unsignedinteger], bits: np.unsignedinteger) -> npt.NDArray[np.intp]:
    """Sort keys in place and return their sorting positions; keys have ``bits`` free bits for a position.

    The position goes into the lowest bits: sorting numbers is several times faster than sorting their positions.
    """
    keys <<= bits
    for start in range(0, len(keys), _POSITIONS_AT_ONCE):
        part = keys[start : start + _POSITIONS_AT_ONCE]
        part |= np.arange(start, start + len(part), dtype=keys.dtype)
    keys.sort()
    order = keys & keys.dtype.type((1 << int(bits)) - 1)
    keys >>= bits
    return order.astype(np.uint64, copy=False).view(np.intp)


_POSITIONS_AT_ONCE = 1 << 14
"""Number of positions that are made at a time: an array for all rows would be allocated anew each time."""


class Selection:
    """Selection of the released rows of a table: the rows with the lowest words of a keyed plane, or all."""

    def __init__(self, plan: Plan, key: bytes, count: int) -> None:
        self._sample = plan.sample
        self._stream = Keystream(key, plan.digest).column("", domain="sample")
        if plan.sample is None:
            return
        if plan.sample > count:
            raise PlanError(
                f"the plan samples {plan.sample:,} rows and the table has {count:,}; plan.replan({count}) fits it"
            )
        self._last = self._find_threshold(plan.sample, count)

    def _words(self, rows: Rows, count: int) -> U64:
        stream, first_row = self._stream.at(rows)
        return stream.words(0, first_row, count, bits=128)

    def _find_threshold(self, sample: int, count: int) -> tuple[int, int]:
        """Return the word (high, low) of the last chosen row, in two passes over the plane with constant memory.

        The first pass counts the words by their top bits, the second sorts the words of the last bucket.
        """
        tally = np.zeros(_BUCKETS, dtype=np.int64)
        for start in range(0, count, _STRETCH_ROWS):
            high = self._words(start, min(_STRETCH_ROWS, count - start))[:, 1]
            tally += np.bincount((high >> _BUCKET_SHIFT_BITS).astype(np.int64), minlength=_BUCKETS)
        cumulative_counts = np.concatenate([[0], np.cumsum(tally)])
        # The bucket with the last chosen row: fewer than ``sample`` rows lie before it.
        bucket = int(np.searchsorted(cumulative_counts, sample, side="left")) - 1
        bucket_words = []
        for start in range(0, count, _STRETCH_ROWS):
            words = self._words(start, min(_STRETCH_ROWS, count - start))
            bucket_words.append(words[(words[:, 1] >> _BUCKET_SHIFT_BITS) == bucket])
        words = np.concatenate(bucket_words)
        low, high = words[rank(words)[sample - cumulative_counts[bucket] - 1]]
        return int(high), int(low)

    def mask(self, rows: Rows, count: int) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the chosen rows; None if all rows are chosen."""
        if self._sample is None:
            return None
        words = self._words(rows, count)
        high, low = (np.uint64(part) for part in self._last)
        return np.asarray((words[:, 1] < high) | ((words[:, 1] == high) & (words[:, 0] <= low)))


_STRETCH_ROWS = 1 << 18


_BUCKETS = 1 << 16


_BUCKET_SHIFT_BITS = np.uint64(48)


def permutation(plan: Plan, key: bytes, count: int) -> npt.NDArray[np.intp] | None:
    """Return the positions of the released rows, in output order; None for all rows in input order."""
    mask = None if plan.sample is None else Selection(plan, key, count).mask(0, count)
    if not plan.shuffle:
        return None if mask is None else np.flatnonzero(mask)
    words = order_words(plan, key, 0, count)
    if mask is None:
        return rank(words)
    sample_rows = np.flatnonzero(mask)
    return sample_rows[rank(words[sample_rows])]


class Digest:
    """Digest of released rows that does not depend on their order or on batches.

    Each row's codes are mixed to 64 bits, and the row values are added up modulo 2^64 to the plan's own digest.
    It distinguishes an altered frame, or one under another plan, from the released one; it is no signature. Columns
    that are ``left_out`` of a part of a release are not mixed in.
    """

    def __init__(self, plan: Plan, left_out: Collection[str] = ()) -> None:
        self._factors = {
            column.name: [_mixing_factors(column.name, word) for word in range(max(1, column.space.code_words))]
            for column in plan.columns
            if column.name not in left_out
        }
        self._plan_sum = self._sum = int.from_bytes(plan.digest[:8], "little")
        self.count = 0

    def update(self, codes: Mapping[str, Codes]) -> None:
        """Add rows, given by their released codes."""
        count = len(next(iter(codes.values()))) if codes else 0
        self.count += count
        # A word for each row, some rows at a time, into which all words of its columns are mixed.
        for start in range(0, count, 1 << 15):
            rows: U64 = np.zeros(min(1 << 15, count - start), dtype=np.uint64)
            for name, words in self._factors.items():
                column = codes[name][start : start + (1 << 15)]
                for word, (shift, factor) in enumerate(words):
                    part = (column[:, word] if column.ndim == 2 else column).astype(np.uint64)
                    part += shift
                    part *= factor
                    rows ^= part >> np.uint64(29)
                    rows += part
            rows ^= rows >> np.uint64(32)
            rows *= np.uint64(0xD6E8FEB86659FD93)
            rows ^= rows >> np.uint64(32)
            self._sum = (self._sum + int(rows.sum(dtype=np.uint64))) % (1 << 64)

    def merge(self, other: Digest) -> None:
        """Add the rows of another digest under an equal plan."""
        # Both sums start at the plan's digest, which counts once.
        self._sum = (self._sum + other._sum - self._plan_sum) % (1 << 64)
        self.count += other.count

    def hexdigest(self, tables: Sequence[MeasuredTable] = ()) -> str:
        """Return the digest as text: 16 letters for the rows, and as many for the measured tables."""
        rows = f"{self._sum:016x}"
        return rows + sealed(rows, tables) if tables else rows


def sealed(rows: str, tables: Sequence[MeasuredTable]) -> str:
    """Return the digest of measured tables, bound to the digest ``rows`` of their release."""
    content = hashlib.sha256(rows.encode())
    for table in tables:
        content.update(json.dumps([table.measure.to_json(), table.starts, table.counts.shape]).encode())
        content.update(table.counts.astype("<i8").tobytes())
    return content.hexdigest()[:16]


def _mixing_factors(name: str, word: int) -> U64:
    """Return the shift and the factor that mix a word of a column's codes."""
    seed = hashlib.sha256(name.encode() + b"\0" * word).digest()
    # An odd factor has an inverse modulo 2^64, so that different codes stay different.
    return np.frombuffer(seed, dtype="<u8")[:2] | np.uint64(1)
