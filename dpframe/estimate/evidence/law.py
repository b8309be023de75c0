"""Laws of columns: shares of rows by cell, from which all statistics of a column come.

`Law` is the interface of all laws. `RowsLaw` is a maximum-likelihood fit to noisy rows and noisy counts of the cells.
`dpframe.estimate.evidence.number_law` has the law of measured levels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import ClassVar

import numpy as np

from dpframe.estimate.evidence.likelihood import Seen, Shares, bootstrap_errors, noise_share, released_again
from dpframe.observe.cells import Cells
from dpframe.observe.observation import Observation, chi_square_tail
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import forwarded

_LINEARISATIONS = 3
"""Fits of counts above a threshold, each linearised at the fit before (tolerance)."""

_ROW_BOOTSTRAP_FACTOR = 1.5
"""Factor of the bootstrap's errors: its truths are as smooth as the fit, real ones are not (tuned; half and twice it
change widths on a census by −61 and 0 %)."""

_LAW_REPLICATES = 25
"""Replicates of the parametric bootstrap (limit of time)."""

Known = tuple[float, float]
"""An estimate and its variance."""

Line = tuple[float, float]
"""The number of code 0, and the distance between neighbouring codes' numbers."""


@dataclass(frozen=True, eq=False)
class Law(Cells):
    """Shares of rows by the cells of a column: cells of values in the order of their codes, and null's last."""

    edges: IntArray
    """First codes of the cells of values, and the code after the last."""

    source = "rows"

    @property
    @abstractmethod
    def shares(self) -> FloatArray:
        """Shares of all rows by cell."""

    @abstractmethod
    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows in parts of the cells, with errors and intervals.

        ``parts``: included part of each cell, shape (statistics, cells). A part between 0 and 1 may hold any share of
        the cell's rows. ``sampling``: 0 for the table, 1 for the population, see `dpframe.estimate.surrogates`. ``z``:
        half-width of the intervals in standard errors.

        Returns
        -------
        Estimates, standard errors, lower and upper ends, shape (4, statistics).
        """

    @abstractmethod
    def quantiles(self, levels: FloatArray, z: float, sampling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the codes of quantiles of the values, and the ends of their intervals at z standard errors.

        The interval has all codes at which the distribution function, within its errors, may reach the level
        (Woodruff 1952).
        """

    @abstractmethod
    def variance(self, sampling: float = 0.0) -> tuple[float, float]:
        """Return the variance of the codes of rows that are not null, and its standard error."""

    ends: ClassVar[IntArray] = forwarded("edges")
    """First codes of the cells of values, and the code after the last, as `Cells` names them."""

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the codes of rows that are not null."""
        return self.spread(self.shares)

    def spread(self, shares: FloatArray) -> tuple[float, float]:
        """Return mean and variance of the codes under other shares, spread evenly within every cell."""
        value_shares = shares[: self.bins] / max(float(shares[: self.bins].sum()), 1e-300)
        mean = float(value_shares @ self.middles)
        return mean, float(value_shares @ ((self.middles - mean) ** 2 + self.within))


def code_at(places: FloatArray, codes: int) -> FloatArray:
    """Return the codes of quantiles: code c covers the interval (c, c + 1] of the law.

    >>> code_at(np.array([0.0, 52.3, 53.0, 53.4]), 60).tolist()
    [0.0, 52.0, 52.0, 53.0]
    """
    return np.asarray(np.clip(np.ceil(places) - 1, 0.0, codes - 1.0))


@dataclass(frozen=True, eq=False)
class RowsLaw(Law):
    """A column's law by maximum likelihood of its rows and of counts of its cells; fitted at first use.

    ``channel`` is P(class | cell), ``counts`` are released rows by class. ``facts`` are counts of the cells in the
    table, which has ``rows`` rows.
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
        """Return the law; by default ``counts`` has all rows, and cells have one code each."""
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
        facts = self.facts
        # The bias of counts above a threshold depends on the shares, hence several fits.
        for _ in range(_LINEARISATIONS if facts.is_truncated else 1):
            model = Shares.of([self.channel], facts, self.rows)
            shares = model.fitted(Seen.of(self.counts, facts.values))[:, 0]
            facts = self.facts.linearise(self.rows * shares)
        return facts, shares

    @property
    def shares(self) -> FloatArray:
        """Shares of all rows by cell."""
        return self._fit[1]

    @property
    def _data(self) -> Seen:
        return Seen.of(self.counts, self._fit[0].values)

    @cached_property
    def _model(self) -> Shares:
        return Shares.of([self.channel], self._fit[0], self.rows)

    @property
    def likely(self) -> float:
        """Upper bound of the probability of counts as far from the fit as these.

        In least squares, the squared distance from the fit is at most the one from the rows, which has a χ² law.
        """
        if not len(self.facts):
            return 1.0
        residuals = self._fit[0].values - self.rows * self.facts.matrix @ self.shares
        return chi_square_tail(len(residuals), float(residuals @ (residuals / self._fit[0].variances)))

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: float) -> FloatArray:
        """Return the root mean squared error of a function of the shares, by parametric bootstrap."""
        # A fixed seed makes errors reproducible.
        generator, size, n, facts = np.random.default_rng(0), round(self.rows), int(self.counts.sum()), self._fit[0]
        releases = released_again(self.shares, self._model.channel, n, size, sampling >= 1, generator)
        truths, counts, noisy = [], [], []
        for truth, table, released in islice(releases, _LAW_REPLICATES):
            truths.append(truth)
            counts.append(released)
            noisy.append(facts.replicate(table.astype(np.float64), generator))
        replicates = Seen(np.stack(counts, axis=1).astype(np.float64), np.stack(noisy, axis=1))
        return bootstrap_errors(zip(truths, self._model.fitted(replicates).T, strict=True), function)

    def _likelihood_margin(self, z: float, sampling: float) -> float:
        """Return the fall in log-likelihood at the ends of an interval of z standard errors.

        Given the table's rows, only the channel's part of the counts' variance is noise.
        """
        noise = float(noise_share([self.channel], self.shares))
        return z**2 / 2 * ((1 - sampling) * noise + sampling)

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows; see `Law`."""
        parts, likelihood_margin = np.atleast_2d(parts), self._likelihood_margin(z, sampling)
        estimates = parts @ self.shares
        all_of, none_of = ((test.astype(np.float64)).T for test in (parts > 1 - 1e-9, parts > 1e-9))
        lower = self._model.interval(self.shares, self._data, all_of, likelihood_margin, upper=False)
        upper = self._model.interval(self.shares, self._data, none_of, likelihood_margin, upper=True)
        # No rows lie outside of all cells, or in none of them.
        lower, upper = np.where(all_of.all(axis=0), 1.0, lower), np.where(none_of.any(axis=0), upper, 0.0)
        # Noise always hides at least half a row.
        half_row = 0.5 / max(self.rows, 1.0)
        lower, upper = np.minimum(lower, estimates - half_row), np.maximum(upper, estimates + half_row)
        error = np.maximum(upper - estimates, estimates - lower) / z
        return np.stack([estimates, error, np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)])

    def quantiles(self, levels: FloatArray, z: float, sampling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return quantiles and their intervals; see `Law`."""
        bins, edges, present = self.bins, self.edges.astype(np.float64), self.shares[: self.bins]
        heights = np.concatenate([[0.0], np.cumsum(present) / max(float(present.sum()), 1e-300)])
        cells_below = np.pad(np.triu(np.ones((bins, bins))), ((0, self.cells - bins), (0, 0)))
        among = (np.arange(self.cells) < bins).astype(np.float64)[:, None]
        estimates = code_at(np.interp(levels, heights, edges), int(edges[-1]))
        lower, upper = [], []
        for level in levels.tolist():
            likelihood_losses, _ = self._model.lost(self.shares, self._data, cells_below, np.full(bins, level), among)
            is_plausible = likelihood_losses <= self._likelihood_margin(z, sampling)
            # A cell's end may be above the quantile if enough rows may lie before it; its start may be below if few do.
            above = (heights[1:] >= level) | is_plausible
            under = np.append(True, ((heights[1:] <= level) | is_plausible)[:-1])
            above[-1] = True
            lower.append(edges[int(np.flatnonzero(above)[0])])
            upper.append(edges[int(np.flatnonzero(under)[-1]) + 1] - 1)
        return estimates, np.minimum(lower, estimates), np.maximum(upper, estimates)

    def variance(self, sampling: float = 0.0) -> tuple[float, float]:
        """Return the variance of the codes and its error; see `Law`."""
        error = self.errors_of(lambda shares: np.asarray(self.spread(shares)[1]), sampling)
        return self.spread(self.shares)[1], _ROW_BOOTSTRAP_FACTOR * float(error)
