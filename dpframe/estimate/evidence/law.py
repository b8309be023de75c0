"""How the rows of a column are spread over its cells: the law that every statistic of a column is read off.

`Law` says what all laws of columns have. `RowsLaw` is by maximum likelihood of noisy rows and of noisy counts of the
cells; that of measured levels is in `dpframe.estimate.evidence.number_law`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from dpframe.estimate.evidence.likelihood import Seen, Shares, bootstrap_errors, noise_share, released_again
from dpframe.observe.observation import Observation, chi_square_tail
from dpframe.observe.overlap import overlap_cells
from dpframe.spaces.arrays import FloatArray, IntArray

_SCORINGS = 3
"""Times that counts are taken anew for what they are without their threshold (tolerance)."""

_HIDDEN = 1.3
"""Factor of what a profile may lose of the likelihood: its law of the other cells is not the likeliest of all (tuned;
half and twice it change widths on a census by −15 and 16 %)."""

_CAREFUL = 1.5
"""Factor of a bootstrap's errors: it is about a truth as smooth as the fit (tuned; half and twice it change widths on a
census by −61 and 0 %)."""

_REPLICATES = 25
"""Draws of a parametric bootstrap (limit of time)."""

Known = tuple[float, float]
"""An estimate and its variance."""

Line = tuple[float, float]
"""The number of code 0, and the distance between neighbouring codes' numbers."""


class Cells(ABC):
    """The cells of a column: stretches of the codes of values in their order, and null's last where it is a value."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of cells, null's included."""

    @property
    @abstractmethod
    def ends(self) -> IntArray:
        """First codes of the cells of values, and the code after the last."""

    @property
    def has_null(self) -> bool:
        """Whether the last cell is null."""
        return self.cells > self.bins

    @property
    def starts(self) -> IntArray:
        """First codes of the cells of values."""
        return self.ends[:-1]

    @property
    def bins(self) -> int:
        """Number of cells of values."""
        return len(self.ends) - 1

    def overlap(self, starts: npt.ArrayLike, stops: npt.ArrayLike) -> FloatArray:
        """Return the part of each cell within ranges of codes, shape (ranges, cells); null is in none."""
        return np.pad(overlap_cells(self.ends, starts, stops), ((0, 0), (0, int(self.has_null))))

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


@dataclass(frozen=True, eq=False)
class Law(Cells):
    """How rows are spread over the cells of a column: those of values in the order of their codes, and null's last."""

    edges: IntArray
    """First codes of the cells of values, and the code after the last."""

    source = "rows"

    @property
    @abstractmethod
    def shares(self) -> FloatArray:
        """Shares of all rows by cell."""

    @abstractmethod
    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows whose part of each cell ``parts`` says, with errors and intervals.

        ``parts``: the part of each cell that is meant, shape (statistics, cells); in those that are meant in part any
        share of the rows may be. ``sampling``: 0 for the table, 1 for the population, see
        `dpframe.estimate.surrogates`. ``z``: half-width of the intervals in standard errors.

        Returns
        -------
        Estimates, standard errors, lower and upper ends, shape (4, statistics).
        """

    @abstractmethod
    def quantiles(self, levels: FloatArray, z: float, sampling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the codes of quantiles of the values, and the ends of their intervals at z standard errors.

        The interval is where the distribution function, within its errors, may reach the level (Woodruff 1952).
        """

    @abstractmethod
    def variance(self, sampling: float = 0.0) -> tuple[float, float]:
        """Return the variance of the codes of rows that are not null, and its standard error."""

    @property
    def ends(self) -> IntArray:
        """The edges, by the name that axes have for them."""
        return self.edges

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the codes of rows that are not null."""
        return self.spread(self.shares)

    def spread(self, shares: FloatArray) -> tuple[float, float]:
        """Return the same for shares that are spread evenly over every cell."""
        held = shares[: self.bins] / max(float(shares[: self.bins].sum()), 1e-300)
        mean = float(held @ self.middles)
        return mean, float(held @ ((self.middles - mean) ** 2 + self.within))


def code_at(places: FloatArray, codes: int) -> FloatArray:
    """Return the code in which a quantile lies, as rows have it: code c is the interval (c, c + 1] of its law.

    >>> code_at(np.array([0.0, 52.3, 53.0, 53.4]), 60).tolist()
    [0.0, 52.0, 52.0, 53.0]
    """
    return np.asarray(np.clip(np.ceil(places) - 1, 0.0, codes - 1.0))


@dataclass(frozen=True, eq=False)
class RowsLaw(Law):
    """A column's law by maximum likelihood of its rows and of what was counted of its cells; fitted once it is asked.

    ``channel`` is P(class | cell), ``counts`` are released rows by class, and ``facts`` what was counted of the cells
    in the table of ``rows`` rows.
    """

    channel: FloatArray
    counts: FloatArray
    rows: float
    facts: Observation

    @classmethod
    def of(
        cls,
        channel: FloatArray,
        counts: FloatArray,
        facts: Observation | None = None,
        rows: float | None = None,
        edges: IntArray | None = None,
    ) -> RowsLaw:
        """Return the law; by default the rows counted are all, and cells have one code each."""
        cells = channel.shape[1]
        facts = Observation.stack([], cells) if facts is None else facts
        rows = float(counts.sum()) if rows is None else rows
        return cls(np.arange(cells + 1) if edges is None else edges, channel, counts, rows, facts)

    @property
    def cells(self) -> int:
        """Number of cells, null's included."""
        return int(self.channel.shape[1])

    @cached_property
    def _fit(self) -> tuple[Observation, FloatArray]:
        told = self.facts
        for _ in range(_SCORINGS if told.is_truncated else 1):
            model = Shares.of([self.channel], told, self.rows)
            shares = model.fitted(Seen.of(self.counts, told.values))[:, 0]
            told = self.facts.linearise(self.rows * shares)
        return told, shares

    @property
    def shares(self) -> FloatArray:
        """Shares of all rows by cell."""
        return self._fit[1]

    @property
    def _seen(self) -> Seen:
        return Seen.of(self.counts, self._fit[0].values)

    @cached_property
    def _model(self) -> Shares:
        return Shares.of([self.channel], self._fit[0], self.rows)

    @property
    def likely(self) -> float:
        """A bound on the probability of counts as far from the fit as these.

        In least squares their squared distance from the fit is at most that from the rows, which is χ².
        """
        if not len(self.facts):
            return 1.0
        apart = self._fit[0].values - self.rows * self.facts.matrix @ self.shares
        return chi_square_tail(len(apart), float(apart @ (apart / self._fit[0].variances)))

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: float) -> FloatArray:
        """Return the root mean squared error of a function of the shares, by parametric bootstrap."""
        generator, size, n, facts = np.random.default_rng(0), round(self.rows), int(self.counts.sum()), self._fit[0]
        again = released_again(self.shares, self._model.channel, n, size, sampling >= 1, generator)
        truths, counts, noisy = [], [], []
        for truth, table, released in islice(again, _REPLICATES):
            truths.append(truth)
            counts.append(released)
            noise = np.sqrt(facts.variances) * generator.standard_normal(len(facts))
            noisy.append(facts.matrix @ table + noise)
        seen = Seen(np.stack(counts, axis=1).astype(np.float64), np.stack(noisy, axis=1))
        return bootstrap_errors(zip(truths, self._model.fitted(seen).T, strict=True), function)

    def _most(self, z: float, sampling: float) -> float:
        """Return by how much the likelihood may fall within an interval at z standard errors.

        A part of the counts' variance about their law is noise of the channel, given the table's own rows.
        """
        noise = float(noise_share([self.channel], self.shares))
        return _HIDDEN * z**2 / 2 * ((1 - sampling) * noise + sampling)

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows; see `Law`."""
        parts, most = np.atleast_2d(parts), self._most(z, sampling)
        found = parts @ self.shares
        all_of, none_of = ((test.astype(np.float64)).T for test in (parts > 1 - 1e-9, parts > 1e-9))
        lower = self._model.interval(self.shares, self._seen, all_of, most, upper=False)
        upper = self._model.interval(self.shares, self._seen, none_of, most, upper=True)
        # No rows lie outside of all cells, or in none of them.
        lower, upper = np.where(all_of.all(axis=0), 1.0, lower), np.where(none_of.any(axis=0), upper, 0.0)
        # Half a row is the least that noise hides.
        least = 0.5 / max(self.rows, 1.0)
        lower, upper = np.minimum(lower, found - least), np.maximum(upper, found + least)
        error = np.maximum(upper - found, found - lower) / z
        return np.stack([found, error, np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)])

    def quantiles(self, levels: FloatArray, z: float, sampling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return quantiles and their intervals; see `Law`."""
        bins, edges, present = self.bins, self.edges.astype(np.float64), self.shares[: self.bins]
        heights = np.concatenate([[0.0], np.cumsum(present) / max(float(present.sum()), 1e-300)])
        inside = np.pad(np.triu(np.ones((bins, bins))), ((0, self.cells - bins), (0, 0)))
        among = (np.arange(self.cells) < bins).astype(np.float64)[:, None]
        found = code_at(np.interp(levels, heights, edges), int(edges[-1]))
        lower, upper = [], []
        for level in levels.tolist():
            lost, _ = self._model.lost(self.shares, self._seen, inside, np.full(bins, level), among)
            open_ = lost <= self._most(z, sampling)
            # A cell's end is above the quantile where as much may lie before it, its beginning below where as little.
            above, under = (heights[1:] >= level) | open_, np.append(True, ((heights[1:] <= level) | open_)[:-1])
            above[-1] = True
            lower.append(edges[int(np.flatnonzero(above)[0])])
            upper.append(edges[int(np.flatnonzero(under)[-1]) + 1] - 1)
        return found, np.minimum(lower, found), np.maximum(upper, found)

    def variance(self, sampling: float = 0.0) -> tuple[float, float]:
        """Return the variance of the codes and its error; see `Law`."""
        error = self.errors_of(lambda shares: np.asarray(self.spread(shares)[1]), sampling)
        return self.spread(self.shares)[1], _CAREFUL * float(error)
