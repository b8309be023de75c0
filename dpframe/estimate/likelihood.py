"""Estimates of joints by maximum likelihood, and bootstrap errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.estimate.joint_domain import JointDomain
from dpframe.evidence.law import MOST_STEPS
from dpframe.threads import one_thread

Channels = JointDomain | Sequence[FloatArray]
"""A joint, or P(class | cell) of each of its axes where these are independent."""

Refit = tuple[FloatArray, FloatArray]
"""The shares of a table that was released again, and the fit to its release."""


_MANY_ROWS = 1_000_000_000
"""Rows from which on a table that is drawn from is taken as a population, whose errors are larger."""


def independent_shares(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the product of the axes' own maximum-likelihood shares, a hundredth of it spread evenly."""
    shares = np.ones(())
    for i, axis in enumerate(JointDomain.of(channels).axes):
        others = tuple(j for j in range(counts.ndim) if j != i)
        own = expectation_maximization(counts.sum(axis=others), [axis.channel])
        shares = np.multiply.outer(shares, own)
    return np.asarray(0.99 * shares + 0.01 / shares.size)


def fit_joint(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of a joint by maximum likelihood, stopped before it fits the noise.

    Of one column the fit converges. Of several, likelihood's maximum lies on corners of the simplex that
    noise chose (on Adult's pairs and triples at n = 32,561 and ε = 1.2 per column it is 1.3 to 1.5 times
    farther from the truth), so the fit starts from independence and ends by Morozov's principle: when it is
    as near to the counts as the table would be, at a divergence of `noise_share`·(classes − 1)/2n (Wilks).
    """
    if counts.ndim == 1:
        return expectation_maximization(counts, channels)
    start = independent_shares(counts, channels)
    goal = noise_share(channels, start) * (counts.size - 1) / (2 * max(counts.sum(), 1.0))
    return expectation_maximization(counts, channels, start=start, divergence=goal)


def noise_share(channels: Channels, shares: FloatArray) -> float:
    """Return what part of the counts' variance about their law is noise of the channel, given the table's own type.

    A class y of n rows drawn anew has variance n·(At)_y, given the table Σ_x n_x·P(y|x)(1 − P(y|x)): the two are
    alike where noise is strong, and apart where most rows are released as they are.
    """
    matrices = [axis.channel for axis in JointDomain.of(channels).axes]
    law = JointDomain.of(matrices).spread(shares)
    kept = JointDomain.of([matrix**2 for matrix in matrices]).spread(shares)
    return float(np.mean(1 - kept / np.maximum(law, 1e-300)))


@one_thread
def expectation_maximization(
    counts: FloatArray,
    channels: Channels,
    *,
    start: FloatArray | None = None,
    divergence: float = 0.0,
    tolerance: float = 0.05,
    max_steps: int = MOST_STEPS,
) -> FloatArray:
    """Return the shares that make counts of released classes most likely (iterative Bayesian update).

    Steps are extrapolated (SQUAREM, Varadhan and Roland 2008), and taken back where they lower the likelihood. It is
    concave, and n·(max gradient − 1) bounds what is left to gain in it: the iteration ends when that is below
    ``tolerance``, when the counts' divergence from the fit is below ``divergence``, or after ``max_steps``.
    """
    n, channel = counts.sum(), JointDomain.of(channels)
    shares = np.full(channel.shape, 1.0 / channel.size) if start is None else start
    if n <= 0:
        return shares
    observed = counts / n
    seen = observed > 0
    enough = float(np.sum(observed[seen] * np.log(observed[seen]))) - divergence

    def step(t: FloatArray) -> tuple[FloatArray, float, float]:
        expected = np.maximum(channel.spread(t), 1e-300)
        gradient = channel.adjoint(observed / expected)
        likelihood = float(np.sum(observed * np.log(expected)))
        return t * gradient, likelihood, float(gradient.max()) - 1.0

    for _ in range(max_steps // 3):
        first, before, gap = step(shares)
        if before >= enough or n * gap < tolerance:
            return np.asarray(shares / shares.sum())
        second, after, _ = step(first)
        if after >= enough:
            return np.asarray(first / first.sum())
        r, v = first - shares, second - 2 * first + shares
        length = max(1.0, float(np.linalg.norm(r)) / max(float(np.linalg.norm(v)), 1e-300))
        # A share below a thousandth of its plain step would hardly come back.
        jump = np.maximum(shares + 2 * length * r + length**2 * v, second * 1e-3)
        moved, reached, _ = step(jump / jump.sum())
        shares = moved if reached >= after else second
        shares = shares / shares.sum()
    return shares


def replicate(
    shares: FloatArray, channels: Channels, n: int, sampling: float, replicates: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Release again from an estimate: pairs of true shares and counts of released classes.

    Half a row is added to every cell first, so that a cell estimated as empty is not taken for certain.
    The truth is a table of N rows, n of which are drawn, and ``sampling`` is (N−n)/(N−1): at 0 the rows of each cell
    are all kept, at 1 the table is a population.
    """
    generator, channel = np.random.default_rng(0), JointDomain.of(channels)
    padded = shares * n + 0.5
    padded /= padded.sum()
    pairs = []
    for _ in range(replicates):
        truth, rows = _sampled_rows(padded, n, sampling, generator)
        pairs.append((truth, channel.randomise(rows, generator).astype(np.float64)))
    return pairs


def _sampled_rows(
    shares: FloatArray, n: int, sampling: float, generator: np.random.Generator
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Return the shares of a table, and the rows of each cell that are drawn from it."""
    rows = (n - sampling) / (1 - sampling) if sampling < 1 else math.inf
    if rows >= _MANY_ROWS:
        return shares, generator.multinomial(n, shares.ravel()).reshape(shares.shape)
    table = rounded(shares * rows, generator)
    kept = table
    if sampling > 0:
        kept = generator.multivariate_hypergeometric(table.ravel(), min(n, int(table.sum())), method="marginals")
    return table / max(table.sum(), 1), kept.reshape(table.shape)


def refits(
    shares: FloatArray,
    channels: Channels,
    n: int,
    fit: Callable[[FloatArray], FloatArray],
    sampling: float,
    replicates: int = 20,
) -> Iterator[Refit]:
    """Yield what `replicate` releases again, each table with the fit to its release."""
    return ((truth, fit(counts)) for truth, counts in replicate(shares, channels, n, sampling, replicates))


def bootstrap_errors(pairs: Iterable[Refit], presented: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return root mean squared errors of what is presented of a fit, by parametric bootstrap."""
    squares = [(presented(fit) - presented(truth)) ** 2 for truth, fit in pairs]
    return np.asarray(np.sqrt(np.mean(squares, axis=0)))


def rounded(values: FloatArray, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Round at random, so that expectations stay."""
    whole = np.floor(values)
    return (whole + (generator.random(values.shape) < values - whole)).astype(np.int64)
