"""Shares of a column's cells by maximum likelihood of noisy rows and of noisy counts of the cells.

With o the shares of n released rows by class, A = P(class | cell), and counts y of H·(N t) with variances v,

    ℓ(t) = n Σ o log(A t) − Σ (y − N H t)² / 2v,

which is concave. A step takes a bound that touches it: Jensen's for the rows, as in expectation–maximisation, and De
Pierro's (1995) for the squares, so that each share is the root of a quadratic of its own. The multiplier of Σt = 1 is
that of the step before and the sum is restored, or it is solved for where this would lower the likelihood.

Fits start from even shares and end after `MOST_STEPS`, as further steps fit the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.evidence.combine import Observation
from dpframe.threads import one_thread

MOST_STEPS = 300
"""Steps after which a fit ends at the latest.

Of a joint its goal may be out of reach where cells are empty. Of a column, whose likelihood hardly rises any more,
further steps fit the noise: on a census's ages and incomes, 5,000 to 200,000 rows and ε from 2 to 20, the total error
of ten bins is 1.4 to 2.5 times as large after 3,000 steps as after these.
"""

_LEFT = 0.05
"""What is left to gain in likelihood when a fit ends."""

_OPEN = 0.02
"""Part of all rows that a profile's fit starts from in every cell alike: what is at zero stays there."""

_PROFILE_STEPS = 80
_HALVINGS = 8
_NEWTON = 20


Known = tuple[FloatArray, FloatArray, FloatArray]
"""A fit's shares, and the counts of classes and of cells that it was fitted to."""


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
        if facts is None:
            return cls(channel, np.zeros((0, channel.shape[1])), np.zeros(0), rows)
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
            scales = [was * ratio / np.maximum(now, 1e-300) for was, now in zip(before, after, strict=True)]
            rows = rows * (1 + sum(part * (scale - 1) for part, scale in zip(parts, scales, strict=True)))
        return np.asarray(rows / np.maximum(rows.sum(axis=0), 1e-300))

    def _to_gain(self, shares: FloatArray, counts: FloatArray, noisy: FloatArray) -> FloatArray:
        """Return a bound on what is left to gain, by concavity."""
        slope = self.channel.T @ (counts / np.maximum(self.channel @ shares, 1e-300))
        apart = noisy - self.rows * (self.matrix @ shares)
        slope = slope + self.matrix.T @ (self.rows * apart / self.variances[:, None])
        return np.asarray(slope.max(axis=0) - (slope * shares).sum(axis=0))

    @one_thread
    def lost(
        self, known: Known, inside: FloatArray, levels: FloatArray, among: FloatArray, start: FloatArray | None = None
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
        scales = [aim / np.maximum(own, 1e-300) for aim, own in zip(aims, (held, left), strict=True)]
        found = found * (1 + sum(part * (scale - 1) for part, scale in zip(parts, scales, strict=True)))
        for _ in range(_PROFILE_STEPS):
            found = self._step(found, counts, noisy, parts)
        return self.likelihood(shares, counts, noisy) - self.likelihood(found, counts, noisy), found

    def interval(self, known: Known, inside: FloatArray, most: float, upper: bool) -> FloatArray:
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
