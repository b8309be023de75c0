"""The statistical audit: a lower bound on ε from samples, of a mechanism that is a black box.

It sees only the outputs of a mechanism, so that it catches a fault that no proof on paper can: a sampler that does
not follow its tables. A bound above the claim refutes the claim; one below proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import check_delta
from dpframe.errors import ParameterError, check_fraction, check_whole

Sampler = Callable[[int], Any]
"""Called with a number of runs; returns that many independent outputs for one fixed input."""

OUTCOMES = 1 << 10
"""Most distinct outcomes: with more, numbers are binned at quantiles of the first half and rare labels are merged."""


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on ε that holds with probability at least ``confidence``.

    ``hits`` are the runs of the second half in which the chosen event happened, of ``n`` each: for the input that
    makes it likely, and for the other.

    Examples
    --------
    >>> result = AuditResult(1.5, 1e-6, 0.999, 100_000, (60_000, 12_000))
    >>> result.refutes(1.0), result.refutes(2.0)
    (True, False)
    """

    epsilon_lower: float
    delta: float
    confidence: float
    n: int
    hits: tuple[int, int]

    def refutes(self, epsilon: float) -> bool:
        """Return whether a claim of (epsilon, `delta`) is refuted at this confidence."""
        return self.epsilon_lower > epsilon

    def __str__(self) -> str:
        return (
            f"epsilon is at least {self.epsilon_lower:.4g} at delta={self.delta:g}, with confidence "
            f"{self.confidence:g}: an event happened in {self.hits[0]:,} and in {self.hits[1]:,} of {self.n:,} runs"
        )


def audit(
    sampler_a: Sampler, sampler_b: Sampler, n: int, delta: float = 0.0, confidence: float = 1 - 1e-6
) -> AuditResult:
    """Bound from below the ε of a mechanism on two inputs, from samples of its outputs.

    The first quarter of the runs ranks the outcomes by their likelihood ratio. On the second quarter, the prefix of
    the ranking with the largest bound becomes the event (a sufficient set, as far as samples show it). On the other
    half Clopper–Pearson intervals bound the event's two probabilities, and (P(E) − δ)/P'(E) ≤ e^ε is solved. Both
    directions share the error probability.

    Parameters
    ----------
    sampler_a, sampler_b
        Called with ``n``; return that many independent outputs of the mechanism on one input, as an array whose
        first axis is the runs: numbers, labels, or rows that are one outcome each.
    n
        Runs on each input, at least 100.
    delta
        The δ of the claim.
    confidence
        Probability, over the runs, that the bound holds.

    Raises `ParameterError` if an argument leaves its range or a sampler returns another number of outputs.

    Examples
    --------
    >>> import math
    >>> rng = np.random.default_rng(0)
    >>> says = lambda share: lambda n: rng.random(n) < share
    >>> round(audit(says(0.75), says(0.25), 100_000).epsilon_lower, 1), round(math.log(3), 1)
    (1.1, 1.1)
    >>> audit(says(0.9), says(0.1), 100_000).refutes(2.0)
    True
    """
    check_whole(n, "n", 100, of="runs")
    delta = check_delta(delta)
    check_fraction(confidence, "confidence", 0.999)
    a, b = _number_outcomes(_sample_runs(sampler_a, "sampler_a", n), _sample_runs(sampler_b, "sampler_b", n), n // 2)
    # Two directions with two intervals each share the error probability.
    level = (1 - confidence) / 4
    bounds = [_bound_one_way(*pair, n // 2, delta, level) for pair in ((a, b), (b, a))]
    epsilon, hits = max(bounds)
    return AuditResult(epsilon, delta, confidence, n - n // 2, hits)


def _sample_runs(sampler: Sampler, name: str, n: int) -> npt.NDArray[Any]:
    runs = np.asarray(sampler(n))
    if runs.ndim not in (1, 2) or len(runs) != n:
        raise ParameterError(f"{name} must return {n} outputs, an array of shape ({n},) or ({n}, parts)")
    return runs


def _number_outcomes(a: npt.NDArray[Any], b: npt.NDArray[Any], half: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Number the outcomes of two samples; the choice of distinct outcomes depends only on the first halves."""
    outcomes = np.concatenate([a, b])
    if outcomes.ndim == 2:
        _, outcomes = np.unique(outcomes, axis=0, return_inverse=True)
    elif outcomes.dtype.kind not in "biuf":
        _, outcomes = np.unique(outcomes, return_inverse=True)
    elif len(np.unique(first_halves := np.concatenate([a[:half], b[:half]]))) > OUTCOMES:
        cuts = np.unique(np.quantile(first_halves, np.linspace(0, 1, OUTCOMES)[1:-1]))
        outcomes = np.searchsorted(cuts, outcomes, side="right")
    numbers = outcomes.reshape(-1)
    labels, counts = np.unique(np.concatenate([numbers[:half], numbers[len(a) : len(a) + half]]), return_counts=True)
    labels = np.sort(labels[np.argsort(-counts, kind="stable")[:OUTCOMES]])
    place = np.minimum(np.searchsorted(labels, numbers), len(labels) - 1)
    place = np.where(labels[place] == numbers, place, len(labels))
    return place[: len(a)], place[len(a) :]


def _bound_one_way(
    a: npt.NDArray[Any], b: npt.NDArray[Any], half: int, delta: float, level: float
) -> tuple[float, tuple[int, int]]:
    """Choose an event on the first halves and bound ln((P_a − δ)/P_b) on the second."""
    size, quarter = int(max(a.max(), b.max())) + 1, half // 2
    # Event and bound need separate runs, or the bound would not hold at its confidence.
    likely, rare = (np.bincount(x[:quarter], minlength=size) for x in (a, b))
    ranked = np.argsort(-(likely + 0.5) / (rare + 0.5), kind="stable")
    # Other runs than the ranking's: outcomes that rank first by chance would give too large a bound.
    likely, rare = (np.bincount(x[quarter:half], minlength=size)[ranked].cumsum() for x in (a, b))
    estimated_bounds = _bound(likely, rare, half - quarter, delta, level)
    event = np.zeros(size, dtype=bool)
    event[ranked[: int(np.argmax(estimated_bounds)) + 1]] = True
    hits = int(event[a[half:]].sum()), int(event[b[half:]].sum())
    bound = _bound(np.array(hits[:1]), np.array(hits[1:]), len(a) - half, delta, level)
    return max(0.0, float(bound[0])), hits


def _bound(
    likely: npt.NDArray[np.integer], rare: npt.NDArray[np.integer], n: int, delta: float, level: float
) -> npt.NDArray[np.float64]:
    """Return ln((lower(P) − δ)/upper(P')) by one-sided Clopper–Pearson bounds; far below 0 if P is within δ."""
    from scipy.stats import beta  # imported late: the import takes longer than the audit

    low = np.where(likely > 0, beta.ppf(level, np.maximum(likely, 1), n - likely + 1), 0.0)
    high = np.where(rare < n, beta.ppf(1 - level, rare + 1, np.maximum(n - rare, 1)), 1.0)
    return np.asarray(np.log(np.maximum(low - delta, 1e-300) / high))
