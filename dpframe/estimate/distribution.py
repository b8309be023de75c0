"""A column's distribution from its noisy rows and from what was counted of its cells, and what is read off it.

Intervals of shares are by profile likelihood: the shares that a part of the cells may have without the rows and counts
being much less likely. The law of the other cells follows, by so many steps that it stays as smooth as a fit is. So a
heap widens the intervals of the ranges that might cut it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import chdtrc

from dpframe.arrays import FloatArray
from dpframe.estimate.axes import BinnedAxis, ChannelAxis
from dpframe.estimate.likelihood import Refit, bootstrap_errors, noise_share, rounded
from dpframe.estimate.moments import REPLICATES, numbers
from dpframe.evidence.combine import Observation
from dpframe.evidence.shares import Shares
from dpframe.spaces import Space

_SCORINGS = 3
"""Times that counts are taken anew for what they are without their threshold."""

_HIDDEN = 3.0
"""Factor of what a profile may lose of the likelihood: its law of the other cells is not the likeliest of all."""


_CAREFUL = 1.5
"""Factor of a bootstrap's errors: it is about a truth as smooth as the fit."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """A column's distribution by maximum likelihood.

    ``counts`` are those of released rows by class of ``axis``, ``facts`` what was counted of its cells in the table of
    ``rows`` rows, ``shares`` those of the cells.
    """

    axis: Any
    counts: FloatArray
    rows: float
    facts: Observation
    shares: FloatArray

    source = "rows"

    @classmethod
    def fit(
        cls, axis: ChannelAxis, counts: FloatArray, facts: Observation | None = None, rows: float | None = None
    ) -> Distribution:
        """Fit to counts of released classes of an axis for fits, and of cells; by default these are all the rows."""
        facts = Observation.joined([], axis.cells) if facts is None else facts
        rows = float(counts.sum()) if rows is None else rows
        told = facts.about(np.full(axis.cells, rows / axis.cells)) if not len(facts.counts) else facts
        for _ in range(_SCORINGS if np.isfinite(facts.threshold).any() else 1):
            model = Shares.of(axis.channel, told, rows)
            shares = model.fitted(counts[:, None], told.counts[:, None])[:, 0]
            told = facts.about(rows * shares)
        return cls(axis, counts, rows, told, shares)

    @property
    def n(self) -> int:
        """Released rows."""
        return int(self.counts.sum())

    @property
    def _known(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.shares, self.counts, self.facts.counts

    @cached_property
    def _model(self) -> Shares:
        return Shares.of(self.axis.channel, self.facts, self.rows)

    @property
    def likely(self) -> float:
        """A bound on the probability of counts as far from the fit as these.

        In least squares their squared distance from the fit is at most that from the rows alone, which is χ².
        """
        apart = self.facts.counts - self.rows * self.facts.matrix @ self.shares
        return float(chdtrc(len(apart), float(apart @ (apart / self.facts.variances)))) if len(apart) else 1.0

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: float) -> FloatArray:
        """Return the root mean squared error of a function of the shares, by parametric bootstrap."""
        return bootstrap_errors(self._refits(sampling), function)

    def _refits(self, sampling: float) -> list[Refit]:
        """Return pairs of a table and the fit to what is released and counted of it, half a row added to each cell."""
        generator, size = np.random.default_rng(0), round(self.rows)
        padded = self.shares * self.n + 0.5
        padded /= padded.sum()
        truths, counts, noisy = [], [], []
        for _ in range(REPLICATES):
            table = generator.multinomial(size, padded) if sampling >= 1 else rounded(padded * size, generator)
            kept = table
            if self.n < size:
                kept = generator.multivariate_hypergeometric(table, self.n, method="marginals")
            truths.append(padded if sampling >= 1 else table / max(table.sum(), 1))
            law = self.axis.channel / self.axis.channel.sum(axis=0)
            counts.append(generator.multinomial(kept, law.T).sum(axis=0))
            noise = np.sqrt(self.facts.variances) * generator.standard_normal(len(self.facts.counts))
            noisy.append(self.facts.matrix @ table + noise)
        fits = self._model.fitted(np.stack(counts, axis=1).astype(np.float64), np.stack(noisy, axis=1))
        return list(zip(truths, fits.T, strict=True))

    def _most(self, z: float, sampling: float) -> float:
        """Return by how much the likelihood may fall within an interval at z standard errors."""
        noise = noise_share([self.axis.channel], self.shares)
        return _HIDDEN * z**2 / 2 * ((1 - sampling) * noise + sampling)

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows whose part of each cell ``parts`` says, with errors and intervals.

        Parameters
        ----------
        parts
            Of each cell the part that is meant, shape (statistics, cells); in those that are meant in part any share
            of the rows may be.
        sampling
            0 for the table, 1 for the population, see `dpframe.estimate.surrogates`.
        z
            Half-width of the intervals in standard errors.

        Returns
        -------
        Estimates, standard errors, lower and upper ends, shape (4, statistics).
        """
        parts, most = np.atleast_2d(parts), self._most(z, sampling)
        found = parts @ self.shares
        all_of, none_of = ((test.astype(np.float64)).T for test in (parts > 1 - 1e-9, parts > 1e-9))
        lower = self._model.interval(self._known, all_of, most, upper=False)
        upper = self._model.interval(self._known, none_of, most, upper=True)
        # Half a row is the least that noise hides.
        least = 0.5 / max(self.rows, 1.0)
        lower, upper = np.minimum(lower, found - least), np.maximum(upper, found + least)
        return np.stack(
            [found, np.maximum(upper - found, found - lower) / z, np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)]
        )

    def quantiles_of(self, levels: FloatArray, sampling: float, z: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return codes of quantiles and the ends of their intervals at z standard errors.

        The interval holds the cells in which the distribution function may reach the level (Woodruff 1952).
        """
        cells, edges = self.axis.bins, np.asarray(self.axis.edges, dtype=np.float64)
        present = max(float(self.shares[:cells].sum()), 1e-300)
        below = np.cumsum(self.shares[:cells]) / present
        inside = np.zeros((len(self.shares), cells))
        inside[:cells] = np.triu(np.ones((cells, cells)))
        among = (np.arange(len(self.shares)) < cells).astype(np.float64)[:, None]
        found = quantiles(self.axis, self.shares, levels)
        lower, upper = [], []
        for level in levels.tolist():
            lost, _ = self._model.lost(self._known, inside, np.full(cells, level), among)
            open_ = lost <= self._most(z, sampling)
            # A cell's end is above the quantile where as much may lie before it, its beginning below where as little.
            above, under = (below >= level) | open_, np.append(True, ((below <= level) | open_)[:-1])
            above[-1] = True
            lower.append(edges[int(np.flatnonzero(above)[0])])
            upper.append(edges[int(np.flatnonzero(under)[-1]) + 1] - 1)
        return found, np.minimum(lower, found), np.maximum(upper, found)

    def _moments(self, shares: FloatArray) -> tuple[float, float]:
        edges = np.asarray(self.axis.edges, dtype=np.float64)
        middle, within = (edges[1:] + edges[:-1] - 1) / 2, (np.diff(edges) ** 2 - 1) / 12
        held = shares[: self.axis.bins] / max(float(shares[: self.axis.bins].sum()), 1e-300)
        mean = float(held @ middle)
        return mean, float(held @ ((middle - mean) ** 2 + within))

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the codes of rows that are not null, spread evenly over every cell."""
        return self._moments(self.shares)

    def error_of_variance(self, sampling: float) -> float:
        """Return the standard error of that variance."""
        return _CAREFUL * float(self.errors_of(lambda shares: np.asarray(self._moments(shares)[1]), sampling))


def line_of(space: Space) -> tuple[float, float]:
    """Return the number of code 0 and the distance between neighbouring codes' numbers."""
    first, second = numbers(space, np.array([0, 1]))
    return float(first), float(second - first)


def aggregation(fine: BinnedAxis, coarse: BinnedAxis) -> FloatArray:
    """Return the share of every fine cell that lies in every coarse one, shape (coarse, fine)."""
    a, b = np.asarray(fine.edges, dtype=np.float64), np.asarray(coarse.edges, dtype=np.float64)
    low = np.maximum(b[:-1, None], a[None, :-1])
    high = np.minimum(b[1:, None], a[None, 1:])
    inside = np.maximum(high - low, 0) / np.diff(a)
    if not fine.has_null:
        return np.asarray(inside)
    padded = np.zeros((coarse.cells, fine.cells))
    padded[:-1, :-1] = inside
    padded[-1, -1] = 1.0
    return padded


def quantiles(axis: BinnedAxis, shares: FloatArray, levels: FloatArray) -> FloatArray:
    """Return quantiles of the values that are present, as positions on the grid of codes."""
    present = shares[: axis.bins]
    heights = np.concatenate([[0.0], np.cumsum(present)])
    heights /= max(heights[-1], 1e-300)
    # A code stands for the interval of width one around it.
    return np.clip(np.interp(levels, heights, axis.edges) - 0.5, 0, axis.edges[-1] - 1)
