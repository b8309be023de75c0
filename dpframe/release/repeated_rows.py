"""Counts of releases of rows in this process, without a ledger: a help to the curator, no guarantee."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.accounting.budget import Budget
from dpframe.errors import RepeatedReleaseWarning, warn
from dpframe.noise.keystream import U64
from dpframe.spaces.entries import Entries
from dpframe.tables.frames import Frame


def column_hashes(frame: Frame, names: Iterable[str]) -> dict[str, U64]:
    """Return a 64-bit hash of every value of some columns, equal in every process."""
    hashes = {}
    for name in names:
        values = next(frame.batches([name]))[name]
        if isinstance(values, Entries):
            hashes[name] = _hash_series(pd.Series([*map(_value_text, values.listed), ""], dtype=object))[values.codes]
            continue
        if isinstance(values, list) or pa.types.is_nested(values.type):
            # NumPy leaves out the middle of long arrays, and all but 8 digits.
            with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
                hashes[name] = _hash_series(pd.Series([_value_text(value) for value in values], dtype=object))
        else:
            hashes[name] = _arrow_hashes(values)
    return hashes


def _arrow_hashes(values: pa.Array) -> U64:
    """Return hashes of a column; of text with an entry that is no UTF-8, which pandas refuses and quotes, its bytes."""
    with contextlib.suppress(pa.ArrowException, ValueError):
        return _hash_series(pd.Series(values.to_pandas()))
    return _hash_series(pd.Series(values.cast(pa.large_string()).cast(pa.large_binary()).to_pandas()))


def _hash_series(values: pd.Series[Any]) -> U64:
    return np.asarray(pd.util.hash_pandas_object(values, index=False), dtype=np.uint64)


def row_hashes(frame: Frame, names: Iterable[str], labels: pd.Index | None) -> U64:
    """Return a 64-bit hash of every row (of its values, and of its label, if it has one).

    Folds of a DataFrame keep their labels, so that equal rows of two persons count apart; in arrays
    they do not, and `ReleasedRows` only knows how many rows are equal.
    """
    hashes = np.zeros(frame.n, dtype=np.uint64)
    if labels is not None:
        hashes += np.asarray(pd.util.hash_pandas_object(labels, index=False), dtype=np.uint64)
    for name, column in column_hashes(frame, names).items():
        seed = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u8")[:2] | np.uint64(1)
        hashes ^= (column + seed[0]) * seed[1]
        hashes *= np.uint64(0xD6E8FEB86659FD93)
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _value_text(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # the code of a foreign class may raise anything; to refuse it would reveal a row
        return ""


RELEASES, INFERENCES, EPSILON, DELTA, MOST_COPIES, WARNED = range(6)


class ReleasedRows:
    """Counts and budget sums of rows released in this process, by the rows' hashes.

    Rows of equal hash in one release are several persons: their releases are counted together and divided by
    the most that were seen at once. At most ``most`` hashes are remembered, the lowest ones, so that every
    fold's are the same part of its rows.
    """

    def __init__(self, most: int = 1 << 17) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._below = (1 << 64) - 1
        self.rows: U64 = np.zeros(0, dtype=np.uint64)
        self.spent = np.zeros((0, 6))
        """By hash: releases and inferences, their ε and δ, most rows at once, and the count at the last warning."""
        self._labelled: tuple[pd.Index, U64] | None = None
        self._keys: set[bytes] = set()
        self._warned: set[tuple[float, ...]] = set()

    def add(
        self, rows: U64, cost: Budget, key: bytes | None = None, *, inference: bool = False
    ) -> tuple[int, int, float, float] | None:
        """Count a release, or an inference of spaces, which belongs to the release that follows.

        Returns releases, inferences, ε and δ of the row in the middle if they are worth a warning. A release
        under a ``key`` that was seen before is a repetition, and adds nothing.
        """
        with self._lock:
            if key is not None:
                # The set lives as long as the process, and must not contain secret keys.
                digest = hashlib.sha256(key).digest()
                if digest in self._keys:
                    return None
                self._keys.add(digest)
            distinct_hashes, times = np.unique(rows, return_counts=True)
            # The smallest hashes are remembered, as many as there is room for.
            remembered_hashes = np.union1d(self.rows, distinct_hashes[distinct_hashes <= self._below])
            while len(remembered_hashes) > self.most:
                # Lowest hashes only: every fold remembers an equal part of its rows.
                self._below //= 2
                remembered_hashes = remembered_hashes[remembered_hashes <= self._below]
            earlier_hashes = self.rows[self.rows <= self._below]
            sums = np.zeros((len(remembered_hashes), self.spent.shape[1]))
            sums[np.searchsorted(remembered_hashes, earlier_hashes)] = self.spent[: len(earlier_hashes)]
            self.rows, self.spent = remembered_hashes, sums
            times = times[distinct_hashes <= self._below]
            places = np.searchsorted(self.rows, distinct_hashes[distinct_hashes <= self._below])
            if not len(places):
                return None
            sums_of_rows = self.spent[places]
            sums_of_rows[:, :MOST_COPIES] += times[:, None] * np.array(
                [not inference, inference, cost.epsilon, cost.delta]
            )
            sums_of_rows[:, MOST_COPIES] = np.maximum(sums_of_rows[:, MOST_COPIES], times)
            sums_per_person = sums_of_rows[:, :MOST_COPIES] / sums_of_rows[:, MOST_COPIES, None]
            times_released = np.maximum(sums_per_person[:, RELEASES], sums_per_person[:, INFERENCES] - 1)
            # The row in the middle: single rows of two tables may be alike by chance.
            order = np.argsort(times_released, kind="stable")
            middle_row = order[np.searchsorted(np.cumsum(times[order]), times.sum() / 2)]
            is_due = bool(times_released[middle_row] >= 2 * max(1.0, sums_of_rows[:, WARNED].max()))
            if is_due:
                sums_of_rows[:, WARNED] = times_released[middle_row]
            self.spent[places] = sums_of_rows
            releases, inferences, epsilon, delta = sums_per_person[middle_row].tolist()
            return (int(releases), int(inferences), epsilon, delta) if is_due else None

    def hashes(self, frame: Frame, labels: pd.Index | None) -> U64:
        """Return a hash of every row; of another part of the columns of the DataFrame seen last, those seen then."""
        last_hashed = self._labelled
        # pandas shares one index between a table and its columns.
        if labels is not None and last_hashed is not None and labels.is_(last_hashed[0]):
            return last_hashed[1]
        rows = row_hashes(frame, frame.names, labels)
        if labels is not None:
            self._labelled = labels.view(), rows
        return rows

    def watch(
        self,
        frame: Frame,
        labels: pd.Index | None,
        cost: Budget,
        key: bytes | None,
        *,
        inference: bool = False,
    ) -> None:
        """Count a release, and warn of rows that are released again and again (of two folds at once)."""
        tally = self.add(self.hashes(frame, labels), cost, key, inference=inference)
        if tally is None or tally in self._warned:
            return
        self._warned.add(tally)
        releases, inferences, epsilon, delta = tally
        sum_text = f"epsilon={epsilon:.6g}" + (f", delta={delta:.6g}" if delta else "")
        inferred = f" and had spaces inferred {inferences} times" if inferences else ""
        warn(
            f"most of these rows were released {releases} times{inferred} in this process, which adds up to "
            f"{sum_text}; sanitise once, outside the pipeline",
            RepeatedReleaseWarning,
        )
