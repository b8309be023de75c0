"""How the rows of a column are spread over its cells: the law that every statistic of a column is read off.

`Law` says what all laws of columns have. One is by maximum likelihood of noisy rows and of noisy counts of the cells;
that of measured levels is in `dpframe.evidence.number_law`.

With o the shares of n released rows by class, A = P(class | cell), and counts y of H·(N t) with variances v,

    ℓ(t) = n Σ o log(A t) − Σ (y − N H t)² / 2v,

which is concave. A step takes a bound that touches it: Jensen's for the rows, as in expectation–maximisation, and De
Pierro's (1995) for the squares, so that each share is the root of a quadratic of its own. The multiplier of Σt = 1 is
that of the step before and the sum is restored, or it is solved for where this would lower the likelihood.

Fits start from even shares and end after `MOST_STEPS`, as further steps fit the noise. Intervals of shares are by
profile likelihood: the shares that a part of the cells may have without the rows and counts being much less likely. The
law of the other cells follows, by so many steps that it stays as smooth as a fit is. So a heap widens the intervals of
the ranges that might cut it, and no others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import chdtrc

from dpframe.arrays import FloatArray, IntArray
from dpframe.evidence.combine import Observation
from dpframe.threads import one_thread

MOST_STEPS = 300
"""Steps after which a fit ends at the latest.

A joint's goal may be out of reach where cells are empty. A column's likelihood hardly rises any more, and further
steps fit the noise: on a census's ages and incomes, 5,000 to 200,000 rows and ε from 2 to 20, the total error
of ten bins is 1.4 to 2.5 times as large after 3,000 steps as after these.
"""

_LEFT = 0.05
"""What is left to gain in likelihood when a fit ends."""

_OPEN = 0.02
"""Part of all rows that a profile's fit starts from in every cell alike: what is at zero stays there."""

_PROFILE_STEPS = 80
_HALVINGS = 8
_NEWTON = 20

_SCORINGS = 3
"""Times that counts are taken anew for what they are without their threshold."""

_HIDDEN = 1.3
"""Factor of what a profile may lose of the likelihood: its law of the other cells is not the likeliest of all."""

_CAREFUL = 1.5
"""Factor of a bootstrap's errors: it is about a truth as smooth as the fit."""

_REPLICATES = 25

Known = tuple[float, float]
"""An estimate and its variance."""

Line = tuple[float, float]
"""The number of code 0, and the distance between neighbouring codes' numbers."""

Fitted = tuple[FloatArray, FloatArray, FloatArray]
"""A fit's shares, and the counts of classes and of cells that it was fitted to."""


@dataclass(frozen=True, eq=False)
class Law(ABC):
    """How rows are spread over the cells of a column: those of values in the order of their codes, and null's last.

    What rows tell of a mean, a sum or a variance without a law is known elsewhere: a law that knows no more of them
    answers None.
    """

    edges: IntArray
    """First codes of the cells of values, and the code after the last."""

    source = "rows"

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of cells, null's included."""

    @property
    @abstractmethod
    def shares(self) -> FloatArray:
        """Shares of all rows by cell."""

    @abstractmethod
    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows whose part of each cell ``parts`` says, with errors and intervals.

        Parameters
        ----------
        parts
            The part of each cell that is meant, shape (statistics, cells); in those that are meant in part any share
            of the rows may be.
        sampling
            0 for the table, 1 for the population, see `dpframe.estimate.surrogates`.
        z
            Half-width of the intervals in standard errors.

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

    def mean_known(self, line: Line, sampling: float) -> Known | None:
        """Return what is known of the mean of the numbers of rows that are not null, beyond what the rows tell."""
        return None

    def total_known(self, line: Line, sampling: float) -> Known | None:
        """Return the same of their sum."""
        return None

    def variance_known(self, line: Line, ddof: int, sampling: float) -> Known | None:
        """Return the same of their variance."""
        return None

    @property
    def starts(self) -> IntArray:
        """First codes of the cells of values."""
        return self.edges[:-1]

    @property
    def bins(self) -> int:
        """Number of cells of values."""
        return len(self.edges) - 1

    @property
    def has_null(self) -> bool:
        """Whether the last cell is null."""
        return self.cells > self.bins

    @cached_property
    def widths(self) -> FloatArray:
        """Codes of every cell of values."""
        return np.diff(self.edges).astype(np.float64)

    @cached_property
    def middles(self) -> FloatArray:
        """Mean code of every cell of values."""
        return np.asarray((self.edges[1:] + self.edges[:-1] - 1) / 2)

    @cached_property
    def within(self) -> FloatArray:
        """Variance of codes within every cell of values, were they spread evenly."""
        return np.asarray((self.widths**2 - 1) / 12)

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the codes of rows that are not null."""
        return self.spread(self.shares)

    def spread(self, shares: FloatArray) -> tuple[float, float]:
        """Return the same for shares that are spread evenly over every cell."""
        held = shares[: self.bins] / max(float(shares[: self.bins].sum()), 1e-300)
        mean = float(held @ self.middles)
        return mean, float(held @ ((self.middles - mean) ** 2 + self.within))


@dataclass(frozen=True, eq=False)
class Shares:
    """The likelihood of a column's shares.

    ``channel`` has the shape (classes, cells), ``matrix`` (counts, cells), ``variances`` (counts,); ``rows`` is the
    number of rows of the table that counts are of.
    """

    channel: FloatArray
    matrix: FloatArray
    variances: FloatArray
    rows: float

    @classmethod
    def of(cls, channel: FloatArray, facts: Observation | None = None, rows: float = 0.0) -> Shares:
        """Return the likelihood of rows, and of counts of cells where there are some."""
        facts = Observation.joined([], channel.shape[1]) if facts is None else facts
        return cls(channel, facts.matrix, facts.variances, rows)

    @one_thread
    def fitted(self, counts: FloatArray, noisy: FloatArray | None = None, max_steps: int = MOST_STEPS) -> FloatArray:
        """Return the most likely shares, shape (cells, fits).

        Parameters
        ----------
        counts
            Released rows by class, shape (classes, fits).
        noisy
            Counts of cells, shape (counts, fits).
        max_steps
            Steps at most; they are extrapolated (SQUAREM, Varadhan and Roland 2008), and taken back where they lower
            the likelihood. A fit that has converged is left as it is while the others go on.
        """
        told = np.zeros((0, counts.shape[1])) if noisy is None else noisy
        found = np.full((self.channel.shape[1], counts.shape[1]), 1.0 / self.channel.shape[1])
        going, shares = np.arange(counts.shape[1]), found
        for _ in range(max_steps // 3):
            first = self._step(shares, counts, told)
            left = self._to_gain(shares, counts, told) >= _LEFT
            if not left.all():
                found[:, going] = shares
                going, counts, told = going[left], counts[:, left], told[:, left]
                shares, first = shares[:, left], first[:, left]
                if not len(going):
                    return found
            second = self._step(first, counts, told)
            moved = self._step(_extrapolated(shares, first, second), counts, told)
            better = self.likelihood(moved, counts, told) >= self.likelihood(second, counts, told)
            shares = np.where(better, moved, second)
        found[:, going] = shares
        return found

    def likelihood(self, shares: FloatArray, counts: FloatArray, noisy: FloatArray) -> FloatArray:
        """Return the logarithm of the likelihood of every fit, shape (fits,), but for a constant."""
        seen = np.log(np.maximum(self.channel @ shares, 1e-300))
        apart = noisy - self.rows * (self.matrix @ shares)
        return np.asarray((counts * seen).sum(axis=0) - (apart**2 / (2 * self.variances[:, None])).sum(axis=0))

    def _step(
        self,
        shares: FloatArray,
        counts: FloatArray,
        noisy: FloatArray,
        parts: tuple[FloatArray, FloatArray] | None = None,
    ) -> FloatArray:
        """Return the next shares; of two ``parts`` of the cells the ratio stays what it is."""
        rows = shares * (self.channel.T @ (counts / np.maximum(self.channel @ shares, 1e-300)))
        if len(self.variances):
            weight = self.rows / self.variances[:, None]
            pull = self.matrix.T @ (weight * noisy)
            push = self.matrix.T @ (weight * self.rows * (self.matrix @ shares))
            level = (rows + shares * (pull - push)).sum(axis=0)
            found = _at_level(level, rows, shares, pull, push)[0]
            found = found / np.maximum(found.sum(axis=0), 1e-300)
            worse = self.likelihood(found, counts, noisy) < self.likelihood(shares, counts, noisy)
            if worse.any():
                found[:, worse] = _with_sum(level[worse], *(x[:, worse] for x in (rows, shares, pull, push)))
            rows = found
        if parts is not None:
            before, after = ([(part * x).sum(axis=0) for part in parts] for x in (shares, rows))
            ratio = sum(after) / np.maximum(sum(before), 1e-300)
            rows = _with_parts(rows, parts, [was * ratio for was in before])
        return np.asarray(rows / np.maximum(rows.sum(axis=0), 1e-300))

    def _to_gain(self, shares: FloatArray, counts: FloatArray, noisy: FloatArray) -> FloatArray:
        """Return a bound on what is left to gain, by concavity."""
        slope = self.channel.T @ (counts / np.maximum(self.channel @ shares, 1e-300))
        apart = noisy - self.rows * (self.matrix @ shares)
        slope = slope + self.matrix.T @ (self.rows * apart / self.variances[:, None])
        return np.asarray(slope.max(axis=0) - (slope * shares).sum(axis=0))

    @one_thread
    def lost(
        self, known: Fitted, inside: FloatArray, levels: FloatArray, among: FloatArray, start: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return by how much a part's share of some cells lowers the likelihood, and the fits that have it.

        Parameters
        ----------
        known
            The fit, shape (cells,), and the counts of classes and of cells that it was fitted to.
        inside
            Which cells make up each part, 0 or 1, shape (cells, parts).
        levels
            The parts' shares of the cells ``among``, which is 0 or 1, shape (cells, 1).
        start
            Fits to begin with.
        """
        shares, counts, noisy = (np.repeat(v[:, None], inside.shape[1], axis=1) for v in known)
        parts = inside * among, (1 - inside) * among
        found = (1 - _OPEN) * shares + _OPEN / len(shares) if start is None else start
        held, left = ((part * found).sum(axis=0) for part in parts)
        aims = levels * (held + left), (1 - levels) * (held + left)
        found = _with_parts(found, parts, aims)
        for _ in range(_PROFILE_STEPS // 3):
            first = self._step(found, counts, noisy, parts)
            second = self._step(first, counts, noisy, parts)
            jump = _with_parts(_extrapolated(found, first, second), parts, [(p * second).sum(axis=0) for p in parts])
            moved = self._step(jump / np.maximum(jump.sum(axis=0), 1e-300), counts, noisy, parts)
            better = self.likelihood(moved, counts, noisy) >= self.likelihood(second, counts, noisy)
            found = np.where(better, moved, second)
        return self.likelihood(shares, counts, noisy) - self.likelihood(found, counts, noisy), found

    def interval(self, known: Fitted, inside: FloatArray, most: float, upper: bool) -> FloatArray:
        """Return the least or largest shares of parts, shape (parts,), that lower the likelihood by ``most``.

        By bisection of the profile likelihood (Venzon and Moolgavkar 1988).
        """
        near, among = known[0] @ inside, np.ones((len(inside), 1))
        far, start = np.full_like(near, float(upper)), None
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            lost, start = self.lost(known, inside, middle, among, start)
            near, far = np.where(lost <= most, middle, near), np.where(lost <= most, far, middle)
        return far


def _with_parts(shares: FloatArray, parts: Sequence[FloatArray], aims: Sequence[FloatArray]) -> FloatArray:
    """Return shares of which so many are in each of some parts of the cells."""
    scales = [aim / np.maximum((part * shares).sum(axis=0), 1e-300) for part, aim in zip(parts, aims, strict=True)]
    return np.asarray(shares * (1 + sum(part * (scale - 1) for part, scale in zip(parts, scales, strict=True))))


def _at_level(
    level: FloatArray, rows: FloatArray, shares: FloatArray, pull: FloatArray, push: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the t with rows/t − push·t/shares + pull = λ in all cells, and by how much each falls in λ."""
    least = level - pull
    under = np.maximum(np.sqrt(least**2 + 4 * push * rows / np.maximum(shares, 1e-300)), 1e-300)
    # The one of two equal forms of the root that is no difference.
    lower = (under - least) * shares / np.maximum(2 * push, 1e-300)
    found = np.where(least > 0, 2 * rows / np.maximum(least + under, 1e-300), lower)
    return found, found / under


def _with_sum(
    level: FloatArray, rows: FloatArray, shares: FloatArray, pull: FloatArray, push: FloatArray
) -> FloatArray:
    """Return the t at the λ with Σt = 1, by Newton's steps: the sum is convex in λ, which they near from one side."""
    for _ in range(_NEWTON):
        found, slope = _at_level(level, rows, shares, pull, push)
        level = level + (found.sum(axis=0) - 1) / np.maximum(slope.sum(axis=0), 1e-300)
    return found


def _extrapolated(shares: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return where two steps from ``shares`` point to (scheme S3), along axis 0."""
    r, v = first - shares, second - 2 * first + shares
    # Bounded, for a fit that stands still has no step to extrapolate.
    length = np.clip(np.linalg.norm(r, axis=0) / np.maximum(np.linalg.norm(v, axis=0), 1e-9), 1.0, 1e6)
    # A share below a thousandth of its plain step would hardly come back.
    jump = np.maximum(shares + 2 * length * r + length**2 * v, second * 1e-3 + 1e-300)
    return np.asarray(jump / jump.sum(axis=0))


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
        facts = Observation.joined([], cells) if facts is None else facts
        rows = float(counts.sum()) if rows is None else rows
        return cls(np.arange(cells + 1) if edges is None else edges, channel, counts, rows, facts)

    @property
    def cells(self) -> int:
        """Number of cells, null's included."""
        return int(self.channel.shape[1])

    @cached_property
    def _fit(self) -> tuple[Observation, FloatArray]:
        """The facts without what their threshold hides, and the likeliest shares."""
        told = self.facts
        for _ in range(_SCORINGS if np.isfinite(told.threshold).any() else 1):
            model = Shares.of(self.channel, told, self.rows)
            shares = model.fitted(self.counts[:, None], told.counts[:, None])[:, 0]
            told = self.facts.about(self.rows * shares)
        return told, shares

    @property
    def shares(self) -> FloatArray:
        """Shares of all rows by cell."""
        return self._fit[1]

    @property
    def _known(self) -> Fitted:
        told, shares = self._fit
        return shares, self.counts, told.counts

    @cached_property
    def _model(self) -> Shares:
        return Shares.of(self.channel, self._fit[0], self.rows)

    @property
    def likely(self) -> float:
        """A bound on the probability of counts as far from the fit as these.

        In least squares their squared distance from the fit is at most that from the rows, which is χ².
        """
        if not len(self.facts.counts):
            return 1.0
        apart = self._fit[0].counts - self.rows * self.facts.matrix @ self.shares
        return float(chdtrc(len(apart), float(apart @ (apart / self._fit[0].variances))))

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: float) -> FloatArray:
        """Return the root mean squared error of a function of the shares, by parametric bootstrap.

        Tables are drawn with half a row more in each cell, so that a cell that seems empty is not taken for certain.
        """
        generator, size, n, facts = np.random.default_rng(0), round(self.rows), int(self.counts.sum()), self._fit[0]
        padded = self.shares * n + 0.5
        padded /= padded.sum()
        law = self.channel / self.channel.sum(axis=0)
        truths, counts, noisy = [], [], []
        for _ in range(_REPLICATES):
            whole = np.floor(padded * size)
            if sampling >= 1:
                table = generator.multinomial(size, padded)
            else:
                table = (whole + (generator.random(len(whole)) < padded * size - whole)).astype(np.int64)
            kept = generator.multivariate_hypergeometric(table, n, method="marginals") if n < size else table
            truths.append(padded if sampling >= 1 else table / max(table.sum(), 1))
            counts.append(generator.multinomial(kept, law.T).sum(axis=0))
            noise = np.sqrt(facts.variances) * generator.standard_normal(len(facts.counts))
            noisy.append(facts.matrix @ table + noise)
        fits = self._model.fitted(np.stack(counts, axis=1).astype(np.float64), np.stack(noisy, axis=1)).T
        squares = [(function(fit) - function(truth)) ** 2 for truth, fit in zip(truths, fits, strict=True)]
        return np.asarray(np.sqrt(np.mean(squares, axis=0)))

    def _most(self, z: float, sampling: float) -> float:
        """Return by how much the likelihood may fall within an interval at z standard errors.

        A part of the counts' variance about their law is noise of the channel, given the table's own rows.
        """
        law = np.maximum(self.channel @ self.shares, 1e-300)
        noise = float(np.mean(1 - (self.channel**2 @ self.shares) / law))
        return _HIDDEN * z**2 / 2 * ((1 - sampling) * noise + sampling)

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows; see `Law`."""
        parts, most = np.atleast_2d(parts), self._most(z, sampling)
        found = parts @ self.shares
        all_of, none_of = ((test.astype(np.float64)).T for test in (parts > 1 - 1e-9, parts > 1e-9))
        lower = self._model.interval(self._known, all_of, most, upper=False)
        upper = self._model.interval(self._known, none_of, most, upper=True)
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
        # A code stands for the interval of width one around it.
        found = np.clip(np.interp(levels, heights, edges) - 0.5, 0, edges[-1] - 1)
        lower, upper = [], []
        for level in levels.tolist():
            lost, _ = self._model.lost(self._known, inside, np.full(bins, level), among)
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
