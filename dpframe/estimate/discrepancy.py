"""Prior of the discrepancy between the true counts of two columns and a fit: few heavy-tailed directions, and cells.

A fit shrinks dependence below the noise towards independence, and refits to perturbed counts share the shrinkage. So a
pair has the distribution m·exp(Φθ), with m the fit's joint. Φ has few directions in which real tables differ: ranks of
numbers up to the third power, categories, the fit's own dependence, and all rare cells together. θ has a Student prior
with three degrees of freedom. A fit that follows the share F of a dependence errs by F·noise, as refits do, and by
(1 − F)·θ; F is read off the refits. The cells of a table deviate from the distribution by sampling within the margins,
and by log odds that Φ does not describe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpframe.observe.significance import HINT_SE
from dpframe.plan.threads import one_thread
from dpframe.spaces.arrays import FloatArray

DEGREES = 3.0
"""Degrees of freedom of the prior of θ: few dependences are large, but some are (theory: Student's t)."""

RANK_POWERS = 3
"""Highest power of ranks along which a number's log odds may differ from a fit (tolerance)."""

LOG_ODDS_SD = 0.3
"""Prior scale of the log odds of a dependence along one direction (tuned; effect below).

Of 1,673 pairs of numbers in 140 public tables, half have log odds along their ranks of at most .17, and three quarters
of at most .48; Student's law of this scale has .23 and .43. Of slopes that noise hides (2,300 rows, 12 columns) three
of four are missed with .2, two with this scale, and one with .5, with which weak coefficients err by a half more at
ε = 0.3.
"""

LEAST_FREE_SHARE = 0.1
"""Smallest share of a dependence that a fit does not follow (tolerance): the share has the error of 40 draws."""

RANK_TILT_SCALE = 0.05
"""Scale of the Cauchy prior of the log odds by which a fit errs along the first powers of ranks (tuned; effect below).

On the pairs of ten tables at ε = 1 the L1 error falls by 3 % with it, and by 2 % with .1 and a lighter tail; of
two normal numbers with a correlation of .7 in 2,000 rows, the estimate's error falls from .28.
"""

CELL_LOG_ODDS_SD = 0.15
"""Prior scale of a cell's log odds about the distribution m·exp(Φθ) (tuned; effect below).

On the pairs of seven tables of 3,000 rows at ε = 1: with .1 coverage falls from .981 to .977, and intervals are 5 %
narrower, but half of the counts of three dependent columns are missed; with .3 intervals are 15 % wider.
"""

MOST_DIRECTIONS = 80
"""Largest number of products of both columns' bases; with more, Φ has no products (limit of time)."""

DRAWN_MARGIN_SWEEPS = 3
"""Number of sweeps over the margins of a drawn pair, or over the pairs of a drawn joint (tolerance)."""

CONDITIONING_STEPS, LARGEST_STEP = 6, 0.5
"""Number of Gauss–Newton steps towards the counts, and the largest change of a log odds in one step, because slopes
change with larger steps (tolerance)."""

MIN_VARIANCE_ROWS = 0.05
"""Smallest number of rows of a cell in variances (tolerance)."""

LOG_ODDS_LIMIT = 4.0
"""Largest absolute value of directions and of log odds, against overflow (tuned; halving and doubling change widths on
a census by 2 and 0 %)."""


def chance_within_margins(counts: FloatArray) -> FloatArray:
    """Return sampling variances of a table's cells about expected counts, given the margins.

    For each cell reduce both columns to two values, inside and outside of the cell. Given the margins, the table m of
    four cells has one free parameter, its log odds ratio λ. A change of λ moves the cell by Hλ, H = 1/Σ 1/m (Bishop,
    Fienberg and Holland 1975, section 2.5); sampled rows have Var λ = 1/H. ``counts`` have the shape
    (…, cells of each column).
    """
    cells = np.maximum(counts, MIN_VARIANCE_ROWS)
    first, second = cells.sum(axis=-1, keepdims=True), cells.sum(axis=-2, keepdims=True)
    other_cells = np.maximum(cells.sum(axis=(-1, -2), keepdims=True) - first - second + cells, MIN_VARIANCE_ROWS)
    sides = 1 / np.maximum(first - cells, MIN_VARIANCE_ROWS) + 1 / np.maximum(second - cells, MIN_VARIANCE_ROWS)
    return np.asarray(1 / (1 / cells + sides + 1 / other_cells))


def rank_basis(shares: FloatArray) -> FloatArray:
    """Return polynomials of ranks, orthonormal under the shares, shape (cells, powers).

    >>> rank_basis(np.full(4, 0.25))[:, 0].round(2).tolist()
    [-1.34, -0.45, 0.45, 1.34]
    """
    shares = shares / shares.sum()
    # Mid-ranks: half of a cell's own rows count as below its middle.
    ranks = np.cumsum(shares) - shares / 2
    basis = [np.ones_like(ranks)]
    for power in range(1, RANK_POWERS + 1):
        direction = (ranks - 0.5) ** power
        # Gram–Schmidt: a direction loses its part along each earlier one.
        for previous in basis:
            direction = direction - (shares * direction @ previous) * previous
        size = np.sqrt(shares @ direction**2)
        # k occupied cells span at most k − 1 powers.
        if size < 1e-6:
            break
        basis.append(direction / size)
    return np.array(basis[1:]).T.reshape(len(shares), -1)


def column_basis(shares: FloatArray, ordered: int, powers: int = RANK_POWERS) -> FloatArray:
    """Return the directions of one column, shape (cells, directions).

    The leading ``ordered`` cells have polynomials of ranks up to a power. Each other cell, as a category or null, has
    its indicator less its share.
    """
    # The two indicators of a binary column are collinear: one direction is enough.
    if len(shares) == 2:
        return np.array([[-shares[1]], [shares[0]]])
    indicators = (np.eye(len(shares)) - shares)[:, ordered:]
    if not ordered:
        return indicators
    ranks = rank_basis(np.maximum(shares[:ordered], 1e-300))[:, :powers]
    # Densities are smooth: log odds along a power vary in inverse proportion to it.
    ranks = ranks / np.arange(1, ranks.shape[1] + 1)
    return np.concatenate([np.pad(ranks, ((0, len(shares) - ordered), (0, 0))), indicators], axis=1)


@dataclass(frozen=True, eq=False)
class Discrepancy:
    """Prior of a pair's distribution about a fitted joint, and of a table's cells about the distribution.

    ``joint`` is the fitted joint, shape (cells of each column). ``noise`` has the variances of the counts, by cell or
    class. ``ordered`` are the numbers of leading cells that have an order. ``channels`` are P(class | cell) of counts
    of released rows, empty for measured counts.
    """

    joint: FloatArray
    rows: float
    noise: FloatArray
    ordered: Sequence[int]
    channels: tuple[FloatArray, ...] = ()

    @cached_property
    def directions(self) -> FloatArray:
        """Φ, shape (cells, directions)."""
        joint = np.maximum(self.joint, 1e-12)
        margins = [joint.sum(axis=1), joint.sum(axis=0)]
        first, second = (column_basis(margin, ordered) for margin, ordered in zip(margins, self.ordered, strict=True))
        bases = []
        if 0 < first.shape[1] * second.shape[1] <= MOST_DIRECTIONS:
            bases.append(np.einsum("ia,jb->ijab", first, second).reshape(joint.size, -1))
        dependence = np.log(joint / np.outer(*margins))
        bases.append(dependence.reshape(-1, 1))
        counts = joint.ravel() * self.rows
        noise = self.noise.ravel()
        if self.channels:
            # The noise of released rows is known by class, not by cell: each cell gets an equal share.
            noise = np.full(joint.size, self.noise.sum() / joint.size)
        is_rare = counts < np.minimum(HINT_SE * np.sqrt(noise), self.rows / joint.size)
        if 1 < is_rare.sum() < joint.size - 1:
            bases.append(is_rare.astype(np.float64).reshape(-1, 1))
        return np.asarray(np.clip(np.concatenate(bases, axis=1), -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))

    @property
    def correlation_error(self) -> float:
        """Standard error of a correlation of both columns by the counts, about: of ranks, or of a value's indicator.

        It is the root of the inverse mean information along the first directions, which have the variance 1.
        """
        bases = []
        for place, ordered in enumerate(self.ordered):
            margin = np.maximum(self.joint.sum(axis=1 - place), 1e-12)
            basis = column_basis(margin / margin.sum(), ordered, 1)
            bases.append(basis / np.sqrt(np.maximum(margin @ basis**2, 1e-12)))
        slopes = self.joint.reshape(-1, 1) * self.rows * np.einsum("ia,jb->ijab", *bases).reshape(self.joint.size, -1)
        if self.channels:
            slopes = np.kron(*self.channels) @ slopes
        information = (slopes**2 / self.noise.reshape(-1, 1)).sum(axis=0)
        return float(1 / np.sqrt(max(information.mean(), 1e-12))) if information.size else 0.0

    @one_thread
    def scales(self, fitted: FloatArray, counts: FloatArray) -> FloatArray:
        """Return the prior scale of each θ, given draws of the fit and of the perturbed counts (first axis both).

        A fit follows the share F of a dependence: it errs by F·noise, as refits do, and by (1 − F)·θ, with θ the log
        odds of the dependence itself. F is the slope of the refits' moves on the noise, along each direction. A fit
        that noise keeps at independence has F = 0, and a fit to many rows almost 1.
        """
        joint = np.maximum(self.joint, 1e-12) * self.rows
        slopes, expected = _slopes_within_margins(joint[None], self.directions)[0], fitted.reshape(len(fitted), -1)
        if self.channels:
            channel = np.kron(*self.channels)
            slopes, expected = channel @ slopes, expected @ channel.T
        moves, noise = ((draws - draws.mean(axis=0)) @ slopes for draws in (expected, counts.reshape(len(counts), -1)))
        shares = (moves * noise).sum(axis=0) / np.maximum((noise**2).sum(axis=0), 1e-300)
        return np.asarray(LOG_ODDS_SD * np.maximum(1 - np.clip(shares, 0.0, 1.0), LEAST_FREE_SHARE))

    @one_thread
    def draw_laws(self, fitted: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return draws of the pair's distribution in rows by cell, given draws of the fit's counts (first axis).

        A fit that follows the share F of a difference errs by F·noise, as refits do, and by (1 − F)·θ. With the
        prior's precision P and the counts' information I, F = (P + I)⁻¹I; without information F is 0. A fit also
        follows clear differences that its moves on noise do not show: here F is this one, and the prior's scale 1.
        """
        directions = self.directions
        shape = (len(fitted), directions.shape[1])
        # Student's t is a normal distribution with a gamma-distributed precision.
        precision = generator.gamma(DEGREES / 2, 2 / DEGREES, shape)
        slopes = np.maximum(self.joint.ravel() * self.rows, 1e-9)[:, None] * directions
        if self.channels:
            slopes = np.kron(*self.channels) @ slopes
            weights = 1 / self.noise.ravel()
        else:
            weights = 1 / (self.noise + _cell_variances(self.joint * self.rows)).ravel()
        information = (slopes * weights[:, None]).T @ slopes + np.zeros((len(fitted), 1, 1))
        information[:, np.arange(shape[1]), np.arange(shape[1])] += precision
        # (1 − F)·θ is (P + I)⁻¹Pθ, and a prior draw θ is P^(−½)z: this leaves √P·z.
        targets = np.sqrt(precision) * generator.standard_normal(shape)
        theta = np.linalg.solve(information, targets[:, :, None])[:, :, 0]
        tilts = np.exp(np.clip(theta @ directions.T, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        return fitted * tilts.reshape(fitted.shape)

    @one_thread
    def condition_laws(
        self,
        fitted: FloatArray,
        counts: FloatArray,
        margins: Sequence[FloatArray],
        scales: FloatArray,
        generator: np.random.Generator,
    ) -> FloatArray:
        """Return draws of the pair's distribution given draws of the fit and of the perturbed counts (first axis both).

        θ is drawn from its prior, with the scales of `scales`, and then moved towards the counts by Gauss–Newton steps
        (randomise, then optimise: Bardsley, Solonen, Haario and Laine 2014). The weights of Student's t are drawn given
        θ between steps. The distribution keeps the ``margins``, draws of both columns' counts, so that noise in the
        margins moves no θ.

        For ordered columns, moments of the counts along ranks are fitted rather than each count (generalised method
        of moments: Hansen 1982). So correlations are unbiased even if no θ describes all cells.
        """
        directions = self.directions
        shape = draws, count = len(fitted), directions.shape[1]
        diagonal = np.arange(count)
        channel = np.kron(*self.channels) if self.channels else None
        variance = (
            self.noise.ravel() if self.channels else (self.noise + _cell_variances(self.joint * self.rows)).ravel()
        )
        moments = None
        if any(self.ordered) and channel is None:
            moments = _double_center(directions, fitted.shape[1:])
            moment_covariance = moments.T @ (moments * variance[:, None])
            # Nearly collinear directions make the covariance singular: add a ridge.
            moment_covariance += np.diag(1e-6 * np.diag(moment_covariance) + 1e-9)
            moment_weights = moments @ np.linalg.inv(moment_covariance) @ moments.T
        # Student's t is a normal distribution with a gamma-distributed weight of its precision.
        weights: Any = generator.gamma(DEGREES / 2, 2 / DEGREES, shape)
        prior_draw = generator.standard_normal(shape) * scales
        theta, law = np.zeros_like(prior_draw), fitted
        for _ in range(CONDITIONING_STEPS):
            slopes, expected = _slopes_within_margins(law, directions), law.reshape(draws, -1)
            if channel is not None:
                slopes, expected = channel @ slopes, expected @ channel.T
            residual = counts.reshape(draws, -1) - expected + (slopes @ theta[:, :, None])[:, :, 0]
            weighted_slopes = slopes.transpose(0, 2, 1)
            weighted_slopes = weighted_slopes / variance if moments is None else weighted_slopes @ moment_weights
            information, precision = weighted_slopes @ slopes, weights / scales**2
            information[:, diagonal, diagonal] += precision
            targets = (weighted_slopes @ residual[:, :, None])[:, :, 0] + precision * prior_draw / np.sqrt(weights)
            step = np.linalg.solve(information, targets[:, :, None])[:, :, 0] - theta
            theta = theta + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
            weights = generator.gamma((DEGREES + 1) / 2, 2 / (DEGREES + (theta / scales) ** 2))
            tilts = np.exp(np.clip(theta @ directions.T, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
            law = to_margins(fitted * tilts.reshape(fitted.shape), margins)
        return law

    @one_thread
    def condition_tables(
        self, laws: FloatArray, counts: FloatArray, margins: Sequence[FloatArray], generator: np.random.Generator
    ) -> FloatArray:
        """Return draws of a table's counts about draws of its distribution, moved towards draws of the counts.

        Matheron's rule moves each cell, and then the moments along ranks of a number. Large cells move more than small
        ones, which would break the moments that the distribution has fitted.
        """
        chance = chance_within_margins(laws)
        scale = CELL_LOG_ODDS_SD / np.sqrt(generator.gamma(DEGREES / 2, 2 / DEGREES, laws.shape))
        variances = chance + (scale * chance) ** 2
        # A lognormal factor has the mean 1 if half the variance of its logarithm is subtracted.
        shifts = scale * generator.standard_normal(laws.shape) - scale**2 / 2
        mean = laws * np.exp(np.clip(shifts, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        prior_tables = to_margins(gamma_about(mean, chance_within_margins(mean), generator), margins)
        if self.channels:
            return prior_tables
        tables = np.maximum(prior_tables + variances / (variances + self.noise) * (counts - prior_tables), 0.0)
        tables = to_margins(tables, margins)
        if not any(self.ordered):
            return tables
        directions, draws = self.directions, len(laws)
        moments = _double_center(directions, laws.shape[1:])
        prior_covariance, noise_covariance = (
            moments.T @ (moments * variance.ravel()[:, None]) for variance in (variances.mean(axis=0), self.noise)
        )
        gain = prior_covariance @ np.linalg.pinv(prior_covariance + noise_covariance)
        sums = prior_tables.reshape(draws, -1) @ moments
        targets = sums + (counts.reshape(draws, -1) @ moments - sums) @ gain.T
        weights = 1 / np.maximum(np.diag(prior_covariance + noise_covariance), 1e-12)
        residual = targets - tables.reshape(draws, -1) @ moments
        for _ in range(DRAWN_MARGIN_SWEEPS):
            jacobian = moments.T @ _slopes_within_margins(tables, directions)
            # The cut-off prevents huge steps along nearly collinear directions.
            steps = (np.linalg.pinv(jacobian, rcond=1e-4) @ residual[:, :, None])[:, :, 0]
            tilts = np.exp(np.clip(steps, -LARGEST_STEP, LARGEST_STEP) @ directions.T)
            new_tables = to_margins(tables * tilts.reshape(tables.shape), margins)
            new_residual = targets - new_tables.reshape(draws, -1) @ moments
            is_nearer = (new_residual**2 @ weights) < (residual**2 @ weights)
            tables[is_nearer], residual[is_nearer] = new_tables[is_nearer], new_residual[is_nearer]
        return tables

    def draw_tables(self, laws: FloatArray, followed: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return draws of a table's counts about draws of its distribution, for the deviations that no fit follows."""
        chance = chance_within_margins(laws)
        scale = CELL_LOG_ODDS_SD / np.sqrt(generator.gamma(DEGREES / 2, 2 / DEGREES, laws.shape))
        variances = chance + (scale * chance) ** 2
        # Cells without counts have infinite noise: their share is 1 − followed.
        free_share = 1.0 if self.channels else np.minimum(1 / (1 + variances / self.noise), 1 - followed)
        shifts = scale * free_share * generator.standard_normal(laws.shape)
        mean = laws * np.exp(np.clip(shifts, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        return gamma_about(mean, chance_within_margins(mean) * free_share**2, generator)


def _double_center(directions: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Subtract the means of directions by row and column, so that moments along them omit the noise of margins."""
    cells = directions.reshape(*shape, -1)
    cells = cells - cells.mean(axis=0, keepdims=True)
    return np.asarray((cells - cells.mean(axis=1, keepdims=True)).reshape(directions.shape))


def _slopes_within_margins(law: FloatArray, directions: FloatArray) -> FloatArray:
    """Return slopes of a distribution along directions with fixed margins, shape (draws, cells, directions).

    ``directions`` has the shape (cells, directions), or another set of directions in a first axis for each draw.
    """
    cells = directions.reshape(-1, *law.shape[1:], directions.shape[-1])
    # Means by row and column are subtracted in turn: only the means change, not the cells.
    shares = law / np.maximum(law.sum(axis=2), 1e-9)[:, :, None]
    sums = np.maximum(law.sum(axis=1), 1e-9)
    shares_by_column = law.transpose(0, 2, 1) / sums[:, :, None]
    weighted = law[..., None] * cells
    by_row, by_column = (shares[:, :, None, :] @ cells)[:, :, 0], weighted.sum(axis=1) / sums[:, :, None]
    row_means, column_means = np.zeros_like(by_row), by_column
    for sweep in range(DRAWN_MARGIN_SWEEPS):
        if sweep:
            column_means = by_column - shares_by_column @ row_means
        row_means = by_row - shares @ column_means
    weighted -= law[..., None] * (row_means[:, :, None] + column_means[:, None])
    return np.asarray(weighted.reshape(len(law), -1, directions.shape[-1]))


def to_margins(counts: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """Return draws of a pair's counts scaled to draws of both columns' counts."""
    by_row, by_column = np.ones((len(counts), counts.shape[1], 1)), np.ones((len(counts), 1, counts.shape[2]))
    for _ in range(DRAWN_MARGIN_SWEEPS):
        sums = by_row * (counts @ by_column.transpose(0, 2, 1))
        by_row = by_row * margins[0][:, :, None] / np.maximum(sums, 1e-9)
        sums = by_column * (by_row.transpose(0, 2, 1) @ counts)
        by_column = by_column * margins[1][:, None, :] / np.maximum(sums, 1e-9)
    return np.asarray(counts * by_row * by_column)


@one_thread
def tilt_along_ranks(
    joints: FloatArray, bases: Sequence[Sequence[FloatArray]], counts: FloatArray, noise: FloatArray, rows: float
) -> FloatArray:
    """Return fitted joints of pairs tilted along the ranks of numbers, towards the counts of their measured tables.

    A mixture of few classes has too little dependence of two numbers, and of a number's mean on a category, if noise
    hides single cells. These few directions sum over many cells. The log odds θ along them have a Cauchy prior: most
    are 0, and some are large (Gelman, Jakulin, Pittau and Su 2008). Its mode is that of a normal prior whose precision
    follows from the last θ; the first precision is weak, so that a large θ is found.

    ``joints``, ``counts`` and ``noise`` (variances of the counts) have the shape (pairs, cells of each column).
    ``bases`` are the `column_basis` of both columns of each pair, with ranks to the first power.
    """
    first, second = (_stack_bases(of_column) for of_column in bases)
    directions = (first[:, :, None, :, None] * second[:, None, :, None, :]).reshape(len(joints), joints[0].size, -1)
    if not 0 < directions.shape[-1] <= MOST_DIRECTIONS:
        return joints
    fitted = np.maximum(joints, 1e-12) * rows
    margins = [fitted.sum(axis=2), fitted.sum(axis=1)]
    weights = 1 / (noise + _cell_variances(joints * rows)).reshape(len(joints), -1, 1)
    law, theta = fitted, np.zeros((len(joints), directions.shape[-1], 1))
    precision = np.ones_like(theta)
    for _ in range(CONDITIONING_STEPS):
        slopes = _slopes_within_margins(law, directions)
        weighted_slopes = (slopes * weights).transpose(0, 2, 1)
        residual = (counts - law).reshape(len(joints), -1, 1) + slopes @ theta
        information = weighted_slopes @ slopes + precision * np.eye(directions.shape[-1])
        step = np.linalg.solve(information, weighted_slopes @ residual) - theta
        theta = theta + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        precision = 2 / (RANK_TILT_SCALE**2 + theta**2)
        tilts = np.exp(np.clip(directions @ theta, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        law = to_margins(fitted * tilts.reshape(fitted.shape), margins)
    return np.asarray(law / rows)


def _stack_bases(bases: Sequence[FloatArray]) -> FloatArray:
    """Return the bases of one column of each pair; a column of one occupied cell has 0 along its ranks."""
    stacked = np.zeros((len(bases), len(bases[0]), max(basis.shape[1] for basis in bases)))
    for row, basis in zip(stacked, bases, strict=True):
        row[:, stacked.shape[2] - basis.shape[1] :] = basis
    return stacked


def _cell_variances(counts: FloatArray) -> FloatArray:
    """Return variances of a table's cells about its distribution: sampling, and log odds of single cells."""
    chance = chance_within_margins(counts)
    return np.asarray(chance + (CELL_LOG_ODDS_SD * chance) ** 2)


def gamma_about(mean: FloatArray, variance: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return gamma draws of counts with these means and variances: not negative, and skewed if the mean is small."""
    mean = np.maximum(mean, 1e-9)
    # Limits keep the shape and the scale of the gamma distribution within floats.
    variance = np.clip(np.nan_to_num(variance), 1e-12 * mean**2, 1e12 * mean)
    return np.maximum(generator.gamma(mean**2 / variance, variance / mean), 1e-12)
