"""The statistical audit: a lower bound on ε from samples, of a mechanism that is a black box.

It knows nothing of a mechanism but its outputs, so it catches what a proof on paper cannot: a sampler that does
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
"""Most outcomes kept distinct: beyond, numbers are binned at quantiles of the first half and rare labels are merged."""


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

    On a quarter of the runs the outcomes are ranked by their likelihood ratio; on the next the prefix of the
    ranking that promises the largest bound is the event (a sufficient set, as far as samples show it). On the
    other half its
    two probabilities are bounded by Clopper–Pearson intervals, and (P(E) − δ)/P'(E) ≤ e^ε is solved. Both
    directions are tried, the error probability shared.

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
    >>> rng = np.random.default_rng(0)
    >>> says = lambda share: lambda n: rng.random(n) < share
    >>> bool(0.95 * np.log(3) < audit(says(0.75), says(0.25), 100_000).epsilon_lower < np.log(3))
    True
    >>> audit(says(0.9), says(0.1), 100_000).refutes(2.0)
    True
    """
    check_whole(n, "n", 100, of="runs")
    delta = check_delta(delta)
    check_fraction(confidence, "confidence", 0.999)
    a, b = _numbered(_drawn(sampler_a, "sampler_a", n), _drawn(sampler_b, "sampler_b", n), n // 2)
    # Two directions with two intervals each share the error probability.
    level = (1 - confidence) / 4
    bounds = [_one_way(*pair, n // 2, delta, level) for pair in ((a, b), (b, a))]
    epsilon, hits = max(bounds)
    return AuditResult(epsilon, delta, confidence, n - n // 2, hits)


def _drawn(sampler: Sampler, name: str, n: int) -> npt.NDArray[Any]:
    runs = np.asarray(sampler(n))
    if runs.ndim not in (1, 2) or len(runs) != n:
        raise ParameterError(f"{name} must return {n} outputs, an array of shape ({n},) or ({n}, parts)")
    return runs


def _numbered(a: npt.NDArray[Any], b: npt.NDArray[Any], half: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Number the outcomes of two samples; which are distinguished depends only on the first halves."""
    both = np.concatenate([a, b])
    if both.ndim == 2:
        _, both = np.unique(both, axis=0, return_inverse=True)
    elif both.dtype.kind not in "biuf":
        _, both = np.unique(both, return_inverse=True)
    elif len(np.unique(seen := np.concatenate([a[:half], b[:half]]))) > OUTCOMES:
        cuts = np.unique(np.quantile(seen, np.linspace(0, 1, OUTCOMES)[1:-1]))
        both = np.searchsorted(cuts, both, side="right")
    numbers = both.reshape(-1)
    kept, counts = np.unique(np.concatenate([numbers[:half], numbers[len(a) : len(a) + half]]), return_counts=True)
    kept = np.sort(kept[np.argsort(-counts, kind="stable")[:OUTCOMES]])
    place = np.minimum(np.searchsorted(kept, numbers), len(kept) - 1)
    place = np.where(kept[place] == numbers, place, len(kept))
    return place[: len(a)], place[len(a) :]


def _one_way(
    a: npt.NDArray[Any], b: npt.NDArray[Any], half: int, delta: float, level: float
) -> tuple[float, tuple[int, int]]:
    """Choose an event on the first halves and bound ln((P_a − δ)/P_b) on the second."""
    size, quarter = int(max(a.max(), b.max())) + 1, half // 2
    likely, rare = (np.bincount(x[:quarter], minlength=size) for x in (a, b))
    ranked = np.argsort(-(likely + 0.5) / (rare + 0.5), kind="stable")
    # By other runs than those that ranked: outcomes ranked first by chance would promise too much.
    likely, rare = (np.bincount(x[quarter:half], minlength=size)[ranked].cumsum() for x in (a, b))
    promised = _bound(likely, rare, half - quarter, delta, level)
    event = np.zeros(size, dtype=bool)
    event[ranked[: int(np.argmax(promised)) + 1]] = True
    hits = int(event[a[half:]].sum()), int(event[b[half:]].sum())
    bound = _bound(np.array(hits[:1]), np.array(hits[1:]), len(a) - half, delta, level)
    return max(0.0, float(bound[0])), hits


def _bound(
    likely: npt.NDArray[np.integer], rare: npt.NDArray[np.integer], n: int, delta: float, level: float
) -> npt.NDArray[np.float64]:
    """Return ln((lower(P) − δ)/upper(P')) by one-sided Clopper–Pearson bounds; far below 0 where P is within δ."""
    from scipy.stats import beta  # imported late: it costs more than all the rest

    low = np.where(likely > 0, beta.ppf(level, np.maximum(likely, 1), n - likely + 1), 0.0)
    high = np.where(rare < n, beta.ppf(1 - level, rare + 1, np.maximum(n - rare, 1)), 1.0)
    return np.asarray(np.log(np.maximum(low - delta, 1e-300) / high))
