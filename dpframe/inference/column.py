"""Private inference for one column: its histograms, and the space that follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import attrgetter

from dpframe.inference.cost import SMALL_HISTOGRAM_SHARE, CountNoise, Histogram
from dpframe.inference.inferred import INTERVALS, Measured, null_count
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream
from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces import Nullable, Space
from dpframe.spaces.field import Field
from dpframe.totals.counts import Cells, OfColumn


class Task(ABC):
    """Private inference for one column, in up to four rounds over the data."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.measured: list[Measured] = []
        self.noises: Sequence[CountNoise] = ()
        """Noise of all histograms, which the width of cells may depend on."""

    @property
    @abstractmethod
    def histograms(self) -> tuple[Histogram, ...]:
        """All histograms that the column may ask for: public facts, independent of its values."""

    @property
    def rounds(self) -> tuple[Measured, ...]:
        """The measured counts of intervals, or of norms."""
        return tuple(histogram for histogram in self.measured if histogram.kind in INTERVALS)

    def asks(self, i: int) -> int | None:
        """Return the number of the histogram for round ``i``, or None if the column is done."""
        return i if i < len(self.histograms) else None

    @abstractmethod
    def counter(self) -> OfColumn:
        """Return the counter of the next round; its first count is the nulls."""

    @abstractmethod
    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Add noise to a round's counts and store the noisy counts; all later steps are post-processing."""

    @abstractmethod
    def inner(self) -> Space:
        """Return the space of the values that are not null."""

    @property
    def others_are_null(self) -> bool:
        """Whether values that were not found become null."""
        return False

    def space(self) -> Space:
        """Return the column's space."""
        # A column of decimals keeps its precision and scale.
        inner, decimal = self.inner(), self.field.decimal
        inner = inner if decimal is None else inner.in_decimals(*decimal)
        return Nullable(inner) if self.others_are_null or self._has_nulls() else inner

    def _has_nulls(self) -> bool:
        """Return whether the noisy counts of nulls are significant."""
        nulls = null_count(self.measured)
        return nulls is not None and nulls[0] > DETECTION_SE * nulls[1] ** 0.5

    def _add_noise(self, exact: Ints, noise: CountNoise, stream: ColumnStream) -> tuple[Ints, int | None]:
        """Return noisy counts, and the noisy count of nulls (the first count) if the type has nulls."""
        # A type without nulls has no count of nulls to pay for.
        if not self.field.nullable:
            return noise.add(exact[1:], stream), None
        noisy = noise.add(exact, stream)
        return noisy[1:], int(noisy[0])


class Presence(Task):
    """A column whose type determines its space: inference finds only whether it has nulls."""

    def __init__(self, field: Field, space: Space) -> None:
        super().__init__(field)
        self._space = space

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """One count of nulls, if the type has nulls."""
        return (Histogram("nulls", 1, SMALL_HISTOGRAM_SHARE),) if self.field.nullable else ()

    def counter(self) -> OfColumn:
        """Return a counter of nulls."""
        return Cells(attrgetter("null_count"), 1)

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the number of nulls."""
        _, missing = self._add_noise(counter.counts, noise, stream)
        self.measured.append(Measured(self.field.name, "nulls", (), (), noise.variance, missing))

    def inner(self) -> Space:
        """Return the space that the type determines."""
        return self._space
