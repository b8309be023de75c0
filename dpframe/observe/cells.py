"""The cells of a column, and how the cells of one division of its codes lie within those of another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpframe.observe.overlap import overlap_cells
from dpframe.spaces.arrays import FloatArray, IntArray


class Cells(ABC):
    """The cells of a column: stretches of the codes of values in their order, then one for each code of its flag.

    The flag's codes are special values and null, whose cell is the last one.
    """

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of cells, the flag's included."""

    @property
    @abstractmethod
    def ends(self) -> IntArray:
        """First codes of the cells of values, and the code after the last."""

    @property
    def flag_codes(self) -> int:
        """Number of cells of the flag: special values and null."""
        return self.cells - self.bins

    @property
    def starts(self) -> IntArray:
        """First codes of the cells of values."""
        return self.ends[:-1]

    @property
    def bins(self) -> int:
        """Number of cells of values."""
        return len(self.ends) - 1

    @property
    def stretches(self) -> tuple[IntArray, IntArray]:
        """First code of every cell, the flag's included, and the code after the cell's last code."""
        codes = self.ends[-1] + np.arange(self.flag_codes)
        return np.append(self.ends[:-1], codes), np.append(self.ends[1:], codes + 1)

    def overlap(self, starts: npt.ArrayLike, stops: npt.ArrayLike) -> FloatArray:
        """Return the part of each cell within ranges of codes, shape (ranges, cells); the flag's are in none."""
        return np.pad(overlap_cells(self.ends, starts, stops), ((0, 0), (0, self.flag_codes)))

    def overlap_with(self, other: Cells) -> FloatArray:
        """Return the part of each cell within each of the column's other cells, shape (other cells, cells)."""
        if self.has_cells_of(other):
            return np.eye(self.cells)
        overlap = self.overlap(other.starts, other.ends[1:])
        return np.vstack([overlap, np.eye(self.cells)[self.bins :]])

    def has_cells_of(self, other: Cells) -> bool:
        """Return whether the column's other cells are the same."""
        return self.flag_codes == other.flag_codes and np.array_equal(self.ends, other.ends)

    def refines(self, other: Cells) -> bool:
        """Return whether the column's other cells are unions of these."""
        return bool(np.isin(other.starts, self.starts).all())

    @cached_property
    def widths(self) -> FloatArray:
        """Codes of every cell of values."""
        return np.diff(self.ends).astype(np.float64)

    @cached_property
    def middles(self) -> FloatArray:
        """Mean code of every cell of values."""
        return np.asarray((self.ends[1:] + self.ends[:-1] - 1) / 2)

    @cached_property
    def within(self) -> FloatArray:
        """Variance of codes within every cell of values, were they spread evenly."""
        return np.asarray((self.widths**2 - 1) / 12)
