"""Budget of private inference (a share of M², or of ε with δ = 0), its cost, and the noise for it.

`histogram_specs` derives the cost of a histogram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol

from dpframe.accounting.budget import Budget, fewer_digits_down
from dpframe.accounting.discrete_gaussian import IntegerNoise, gaussian_tail
from dpframe.accounting.gaussian_dp import Step, composed_steps, largest_step, promise_step, share_of_step, step_epsilon
from dpframe.errors import ParameterError
from dpframe.inference.histogram_specs import (
    STANDALONE_SLACK_SHARE,
    STATED_SHARE,
    TAILS,
    UNKNOWN_DOMAINS,
    Branch,
    HistogramSpec,
    noise_cost,
    worst_branch_cost,
)
from dpframe.inference.kinds import WORDS_BRANCHES
from dpframe.noise.gaussian import GaussianTable, Ints, gaussian_table
from dpframe.noise.geometric_counts import geometric_noise
from dpframe.noise.keystream import ColumnStream
from dpframe.totals.counts import noisy
from dpframe.totals.least_noise import CLEAREST, COARSEST, FAINTEST, least_noise

RARE_VALUE_ROWS = 50
"""Inference finds values in at least one of this many rows, if half of M² is enough (tuned; effect not measured)."""
LEAST_SHARE, MOST_SHARE = 0.05, 0.5
"""Limits of the default share of M² for inference (tuned; effect not measured)."""


SMALL_HISTOGRAM_SHARE = 0.1
"""Share of the budget of a histogram of few questions (nulls, kinds, steps, lengths), relative to 1 of a column of
numbers (tuned; effect not measured)."""


@dataclass(frozen=True)
class Histogram:
    """One noisy histogram: the kind of its cells, the largest number of cells per row, its share of the budget.

    ``branch``: the branch that the histogram belongs to, if inference measures it for one kind of values only.
    ``sized`` says whether this histogram counts when the default budget of inference is chosen.
    """

    kind: str
    cells: int
    share: float
    branch: Branch | None = None
    sized: bool = True

    @property
    def unknown(self) -> bool:
        """Whether the cells are known only from the rows."""
        return self.kind in UNKNOWN_DOMAINS


class CountNoise(Protocol):
    """Noise on counts."""

    @property
    def variance(self) -> float:
        """The variance of the noise."""

    def add(self, counts: Ints, stream: ColumnStream) -> Ints:
        """Return counts with noise from a stream."""


@dataclass(frozen=True)
class GaussianNoise:
    """Discrete Gaussian noise on counts.

    Words are taken in the order of the cells, or of the observed values of an unknown domain. This order reveals
    nothing, as words are independent and a key serves one table (see `dpframe.noise.keystream`).
    """

    table: GaussianTable

    @property
    def variance(self) -> float:
        """σ², an upper bound on the variance, and nearly equal to it."""
        return float(self.table.sigma2)

    def add(self, counts: Ints, stream: ColumnStream) -> Ints:
        """Return counts with noise, which may be negative."""
        return noisy(counts, self.variance, stream)


@dataclass(frozen=True)
class Spending:
    """Noise of each histogram, and the least noisy counts of released values (0 for public cells).

    ``step`` is the total cost, None with δ = 0.
    """

    histograms: tuple[Histogram, ...]
    noises: tuple[CountNoise, ...]
    thresholds: tuple[int, ...]
    step: Step | None

    @property
    def specs(self) -> tuple[HistogramSpec, ...]:
        """The histograms as a plan stores them, with their noise."""
        return tuple(
            HistogramSpec(h.kind, h.cells, noise.variance, threshold, None if h.branch is None else h.branch[1])
            for h, noise, threshold in zip(self.histograms, self.noises, self.thresholds, strict=True)
        )


def spend(allowed: Budget | Step, histograms: Sequence[Histogram], n: int, contributions: int = 1) -> Spending:
    """Return the noise with which all histograms together cost at most the budget or step.

    A budget with δ > 0 becomes the largest step within it.
    """
    histogram_tuple, shares = tuple(histograms), worst_branch_cost((h.branch, h.share) for h in histograms)
    relative_shares = tuple(float(Fraction(h.share) / shares) for h in histogram_tuple)
    if isinstance(allowed, Step) or allowed.delta > 0:
        step = allowed if isinstance(allowed, Step) else largest_step(allowed, STANDALONE_SLACK_SHARE)
        return _calibrate_gaussian(step, histogram_tuple, relative_shares, contributions)
    # Without δ no threshold is high enough for a rare value.
    if any(h.unknown for h in histogram_tuple):
        raise ParameterError("unknown domains need delta above 0")
    # One person changes 2 · cells · contributions counts, each by 1.
    losses = [
        allowed.epsilon * share / (2 * h.cells * contributions)
        for h, share in zip(histogram_tuple, relative_shares, strict=True)
    ]
    # The factor keeps the sum of losses within the budget after rounding.
    noises = tuple(geometric_noise(n, loss * (1 - 1e-9)) for loss in losses)
    return Spending(histogram_tuple, noises, (0,) * len(histogram_tuple), None)


@lru_cache(maxsize=256)
def _calibrate_gaussian(
    step_limit: Step, histograms: tuple[Histogram, ...], relative_shares: tuple[float, ...], k: int
) -> Spending:
    """Return the least noise in 12 digits whose exact step is within the limit."""
    # Only cells of unknown domains can escape their threshold.
    candidates = k * int(worst_branch_cost((h.branch, h.cells * h.unknown) for h in histograms))
    escape = step_limit.delta * (1 - TAILS) * (1 - 1e-6) if candidates else 0.0
    slack = step_limit.delta * TAILS
    if step_limit.mu == 0 or slack < FAINTEST:
        raise ParameterError(_SMALL_DELTA if step_limit.mu else _SMALL_EPSILON)

    def cost(scales: Sequence[float]) -> Step:
        """Return the exact step of these variances."""
        noise_inputs = [(h.branch, h.cells, sigma2) for h, sigma2 in zip(histograms, scales, strict=True)]
        return noise_cost(noise_inputs, k, slack * (1 - 1e-6))

    queries = [IntegerNoise(COARSEST, 2 * h.cells) for h in histograms]
    variances = least_noise(queries, relative_shares, min(step_limit.mu, CLEAREST), k, cost)
    if variances is None:
        raise ParameterError(_SMALL_EPSILON)
    noise_step, tables = cost(variances), [gaussian_table(sigma2) for sigma2 in variances]
    thresholds = []
    for h, table in zip(histograms, tables, strict=True):
        escape_probability = escape / max(candidates, 1) - float(table.distance)
        thresholds.append(_find_threshold(float(table.sigma2), k, escape_probability) if h.unknown else 0)
    step = composed_steps([noise_step, Step(0.0, escape)])
    return Spending(histograms, tuple(map(GaussianNoise, tables)), tuple(thresholds), step)


_SMALL_DELTA = "delta is too small to infer spaces; raise delta, or declare spaces"
_SMALL_EPSILON = "epsilon is too small to infer spaces; raise epsilon or infer_share, or declare spaces"


def default_share(histograms: Sequence[Histogram], n: int, whole: Step, contributions: int, secret: bool) -> float:
    """Return the default share of M² for inference: enough to find a value of one row in fifty.

    The share depends only on public facts: the number of rows, and the histograms of the columns' types. Unshuffled
    rows leave little budget to central steps.
    """
    # Unshuffled rows need most of the budget themselves.
    if not histograms or not secret or n < 1:
        return LEAST_SHARE
    shares = float(worst_branch_cost((h.branch, h.share) for h in histograms))
    # Branches of words, which earlier versions lacked, leave the share as it was.
    count = sum(h.branch is None or h.branch[1] not in WORDS_BRANCHES.values() for h in histograms)
    quantile = -NormalDist().inv_cdf(min(0.4, max(whole.delta, 1e-300) / count))
    min_share = min(h.share / h.cells for h in histograms if h.sized) / shares
    required_share = 2 * contributions**2 * (quantile * RARE_VALUE_ROWS / n) ** 2 / (whole.square * Fraction(min_share))
    return min(max(float(required_share), LEAST_SHARE), MOST_SHARE)


def _find_threshold(sigma2: float, contributions: int, probability: float) -> int:
    """Return the least count that a count of ``contributions`` reaches with at most this probability."""
    distance = max(0, math.floor(math.sqrt(sigma2) * -NormalDist().inv_cdf(min(probability, 0.4))))
    # The normal quantile is only a start: the discrete tail decides.
    while gaussian_tail(sigma2, distance) > probability:
        distance += 1
    return contributions + distance


PURE_SHARE = 0.1
"""Default share of ε for inference with δ = 0 (tuned; effect not measured)."""

_UNKNOWN_DOMAINS_SLACK = 0.05
"""Share of δ for the slack of inference with unknown domains; other inference needs it only for the tails of tables
(tuned; effect not measured)."""
_MAX_SHARE = 0.99
"""Largest share: of less than a hundredth of M² no rows are made, which would show only once it is spent
(tolerance)."""


@dataclass(frozen=True)
class Allowance:
    """Budget of inference: as a budget by itself, and as the step that is composed with the rows.

    With δ = 0 there is no step, and the budget is subtracted from the promise.
    """

    budget: Budget
    step: Step | None


def allowance(
    promise: Budget,
    histograms: Sequence[Histogram],
    n: int,
    contributions: int,
    share: float | None,
    secret: bool,
    fixed: bool = True,
) -> Allowance:
    """Return the part of a promise that inference of these histograms may spend.

    ``share``: its share of M², or with δ = 0 of ε. ``secret``: whether rows are shuffled, which earns credit.
    ``fixed``: whether the columns' shares are public. If the shares follow from inferred spaces and rows keep their
    order, no single pair of laws dominates the composition. Then inference is subtracted from the promise.
    """
    if promise.delta == 0 or not (secret or fixed):
        share_budget = promise.split([PURE_SHARE if share is None else share])[0]
        rounded_budget = Budget(_round_decimal(share_budget.epsilon), _round_decimal(share_budget.delta))
        _ = promise.less(rounded_budget, "inference")  # refused if nothing is left
        return Allowance(rounded_budget, None)
    has_unknown = any(histogram.unknown for histogram in histograms)
    total_step = promise_step(promise)
    inference_share = default_share(histograms, n, total_step, contributions, secret) if share is None else share
    # The step enters the key of the noise: its digits are rounded, downwards for privacy.
    mu = fewer_digits_down(share_of_step(total_step, inference_share).mu)
    step = Step(mu, promise.delta * (_UNKNOWN_DOMAINS_SLACK if has_unknown else TAILS))
    if inference_share > _MAX_SHARE:
        raise ParameterError("infer_share must leave at least a hundredth for the rows; lower it to 0.99 or less")
    delta = _round_decimal(promise.delta * STATED_SHARE)
    return Allowance(Budget(_round_decimal(step_epsilon(step, delta), up=True) or 5e-324, delta), step)


def _round_decimal(x: float, up: bool = False) -> float:
    """Return a number in twelve digits, or rounded up in eight; ledgers add such decimals exactly."""
    return float(Context(prec=8, rounding=ROUND_CEILING).create_decimal(Decimal(x))) if up else float(f"{x:.12g}")
