"""A watch for input whose order tells about its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpframe.errors import OrderLeakWarning, name_list, warn


@dataclass
class _Runs:
    """What is known of a column's runs of equal codes, up to the batch before."""

    last: int
    length: int = 0
    up: bool = True
    down: bool = True
    grouped: bool = True
    weight: float = 0.0
    """Σ ln(length!) over the runs that have ended."""
    ended: set[int] = field(default_factory=set)
    """Codes of these runs, as long as every code had one."""

    def update(self, column: npt.NDArray[np.integer]) -> None:
        """Add a batch that is not empty."""
        starts = np.concatenate([[0], np.flatnonzero(column[1:] != column[:-1]) + 1])
        heads = column[starts].astype(np.int64)
        lengths = np.diff(starts, append=len(column))
        if heads[0] == self.last:
            lengths[0] += self.length
        else:
            heads, lengths = np.insert(heads, 0, self.last), np.insert(lengths, 0, self.length)
        self.up = self.up and bool((heads[1:] > heads[:-1]).all())
        self.down = self.down and bool((heads[1:] < heads[:-1]).all())
        self.grouped = self.grouped and self._once_each(heads)
        if self.grouped:
            self.ended.update(heads[:-1].tolist())
        if self.up or self.down or self.grouped:
            counts = zip(*np.unique(lengths[:-1], return_counts=True), strict=True)
            self.weight += sum(int(times) * math.lgamma(int(length) + 1) for length, times in counts)
        self.last, self.length = int(heads[-1]), int(lengths[-1])

    def _once_each(self, heads: npt.NDArray[np.int64]) -> bool:
        """Tell whether no code of these runs had one before, and there are few of them."""
        few = len(self.ended) + len(heads) <= SortedWatch.MOST_GROUPS
        return few and len(np.unique(heads)) == len(heads) and self.ended.isdisjoint(heads.tolist())

    def unlikely(self, rows: int, orders: float) -> bool:
        """Tell whether rows in random order hardly ever look so; ``orders`` is ln of how many orders of runs do."""
        chance = orders + self.weight + math.lgamma(self.length + 1) - math.lgamma(rows + 1)
        return rows >= SortedWatch.LEAST_ROWS and chance <= math.log(SortedWatch.CHANCE)


def _folded(words: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return a number per set: equal sets have equal ones, and hardly any others do. Sets have no order."""
    out = np.zeros(len(words), dtype=np.uint64)
    for word in words.T:
        out = (out ^ word) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out.astype(np.int64)


class SortedWatch:
    """Watches batches of codes for columns that are sorted or grouped, which tells rows by their position.

    Parameters
    ----------
    partitions
        Keys of the folders that the input was read from: its rows are grouped by them.
    """

    LEAST_ROWS = 10
    """Fewer rows than this are sorted by chance too often to warn."""

    CHANCE = 0.01
    """A column in random order is warned of at most this often, and far less often unless it is tiny or constant but
    for a row or two: d values that occur n₁, …, n_d times stand in d runs with probability d!·n₁!⋯n_d!/n!, and
    sorted with 2·n₁!⋯n_d!/n!."""

    MOST_GROUPS = 1 << 12
    """Columns of more groups are watched for being sorted only."""

    def __init__(self, partitions: Iterable[str] = ()) -> None:
        self._partitions = list(partitions)
        self._runs: dict[str, _Runs] = {}
        self._rows = 0

    def update(self, codes: Mapping[str, npt.NDArray[np.integer]]) -> None:
        """Add a batch."""
        self._rows += len(next(iter(codes.values()), ()))
        for name, rows in codes.items():
            column = rows if rows.ndim == 1 else _folded(rows)
            if len(column):
                runs = self._runs.setdefault(name, _Runs(int(column[0])))
                if runs.up or runs.down or runs.grouped:
                    runs.update(column)

    def warn(self) -> None:
        """Warn of such columns (to the curator only; never in the plan)."""
        n, others = self._rows, {k: runs for k, runs in self._runs.items() if k not in self._partitions}
        ordered = [k for k, r in others.items() if r.up != r.down and r.unlikely(n, math.log(2))]
        grouped = [
            name
            for name, runs in others.items()
            if name not in ordered and runs.grouped and runs.unlikely(n, math.lgamma(len(runs.ended) + 2))
        ]
        orders = (("sorted", ordered), ("grouped", grouped), ("partitioned", self._partitions))
        says = " and ".join(f"{how} by {name_list(names)}" for how, names in orders if names)
        if says:
            warn(
                f"the input is {says} and keeps its order: positions tell about rows; "
                "use shuffle=True or reorder the rows at random first",
                OrderLeakWarning,
            )
