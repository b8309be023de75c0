"""Columns of numbers with words in some rows: the bounds of the numbers, and frequent words as special values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.inference.categories import Texts, count_values
from dpframe.inference.cost import CountNoise, Histogram
from dpframe.inference.inferred import Measured, hidden_word_count, null_count, word_count
from dpframe.inference.numbers import ROUND_SHARES, Numbers
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream
from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.spaces.special import MAX_SPECIAL_VALUES, Special
from dpframe.spaces.written_values import read_written, split_distinct
from dpframe.totals.counts import Cells, OfColumn, Values

WORDS_BRANCH_SHARE = 0.99
"""Share of the budget of a branch of numbers and words, in shares of other branches (tolerance).

Noise is rounded. With less than an equal share the branch is never the costliest one, so that it leaves the noise of
all columns as it is."""

_NUMBER_ROUNDS = 2
"""Rounds of the numbers: with the kinds and the words all readings of the data (limit of the format)."""


def read_words(read: Callable[[Any, pa.DataType], pa.Array], type_: pa.DataType, values: Any) -> pa.Array:
    """Return values as structs of a number and a word, of which one at most is not null.

    Text that writes a number is the number, as a space with special values reads it.
    """
    entries, indices = split_distinct(read(values, pa.string()))
    is_word = pc.and_(read_written(entries, pa.float64()).is_null(), pc.not_equal(entries, ""))
    words = pc.if_else(is_word, entries, pa.scalar(None, pa.string()))
    places = pa.array(indices, mask=indices < 0)
    numbers = pc.coalesce(read(values, type_), read_written(entries, type_).take(places))
    return pa.StructArray.from_arrays([numbers, words.take(places)], ["number", "word"])


def _count_words(values: pa.Array) -> tuple[int, pa.Array, pa.Array]:
    """Return 0 nulls, the distinct words, and the rows of each."""
    _, words, rows = count_values(values.field("word"))
    return 0, words, rows


def _count_numbers(count: Callable[[pa.Array], Ints], values: pa.Array) -> Ints:
    """Return the number of nulls, the number of values in each cell, and the number of words."""
    word_rows = len(values) - values.field("word").null_count
    counts = count(values.field("number"))
    # A word is no number, and no null either.
    counts[0] -= word_rows
    return np.append(counts, word_rows)


class NumbersAndWords(Numbers):
    """A column of numbers with words in some rows: counts the words once, and the numbers in two rounds."""

    def __init__(self, field: Field, n: int) -> None:
        super().__init__(field, n, _NUMBER_ROUNDS)

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """One histogram of words, and one of intervals a round."""
        # The words take the place of a first round of numbers.
        kinds = ("values", *["intervals"] * self.max_rounds)
        return tuple(Histogram(kind, 1, share) for kind, share in zip(kinds, ROUND_SHARES[len(kinds)], strict=True))

    def counter(self) -> OfColumn:
        """Return a counter of words, then of the next grid's cells."""
        if not self.measured:
            return Values(_count_words)
        cells = super().counter()
        assert isinstance(cells, Cells)
        return Cells(partial(_count_numbers, cells.of), cells.size + 1)

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the words, then the cells of a round beside the number of words."""
        if not self.measured:
            texts = Texts(replace(self.field, nullable=False))
            texts.measure(counter, noise, threshold, stream)
            self.measured += texts.measured
            return
        noisy, missing = self._add_noise(counter.counts, noise, stream)
        *counts, words = noisy.tolist()
        record = Measured(self.field.name, "intervals", self.grid.edges, tuple(counts), noise.variance, missing)
        self.measured.append(replace(record, words=words))

    def _count_present(self) -> tuple[float, float]:
        """Return the number of rows with numbers, and its variance."""
        present, variance = super()._count_present()
        words, word_variance = word_count(self.measured) or (0.0, 0.0)
        return present - max(words, 0.0), variance + word_variance

    def _has_nulls(self) -> bool:
        """Return whether the noisy counts of nulls and of words below the threshold are significant."""
        (hidden, variance), nulls = hidden_word_count(self.measured), null_count(self.measured)
        if nulls is None:
            return False
        return bool(hidden + nulls[0] > DETECTION_SE * (variance + nulls[1]) ** 0.5)

    def inner(self) -> Space:
        """Return the space between the inferred bounds, with the most frequent words as special values."""
        words = self.measured[0]
        grid: Any = super().inner()
        # Words such as "inf" write numbers, which the space reads as numbers.
        ranked = sorted(zip(words.counts, words.cells, strict=True), reverse=True)
        plain = [word for _, word in ranked if word and word == word.strip() and grid.read_text(word) is word]
        special = plain[:MAX_SPECIAL_VALUES]
        return Special(grid, sorted(special)) if special else grid
