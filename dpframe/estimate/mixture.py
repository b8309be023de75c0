"""Joints of many columns by maximum likelihood under a low-order model of the rows.

The model is a mixture: a hidden class, and given the class independent columns. It is fitted to the noisy
counts of all *pairs* of columns at once (composite likelihood: Lindsay 1988; Varin, Reid and Firth 2011),
by expectation maximisation through the known channels. Pairs hold nearly all that noisy rows can tell, one
pass counts them, and after it the work does not depend on the number of rows. All of it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.threads import one_thread

Pairs = Mapping[tuple[int, int], FloatArray]
"""Counts of released classes of columns a < b, shape (classes of a, classes of b)."""

Together = tuple[tuple[int, ...], float]
"""Columns that are randomised together: each row keeps all of its cells with this probability, or none.

It then gets any tuple of cells, all equally likely.
"""

Signals = Mapping[tuple[int, int], float]
"""Of pairs that are randomised together, the probability that both cells are kept."""

DISCREPANCY = 0.85
"""Fit until the pairs' divergence is this share of what the true joint would leave.

Noise leaves the truth itself at a divergence of (cells − 1)/2n per pair (Wilks); Morozov's principle stops a
fit there, and a fit of as many parameters gets below it by their number before it begins to fit noise.
"""

RELAXATION = 4.0
"""Power to which the multiplicative EM step is raised: as many steps in one, while likelihood rises."""


@dataclass(frozen=True)
class LatentClassModel:
    """Several fits, whose average is the estimate: weights of the classes, and P(cell | class) per column."""

    fits: tuple[tuple[FloatArray, tuple[FloatArray, ...]], ...]

    def joint(self, columns: Sequence[int]) -> FloatArray:
        """Return the shares of the cells of some columns, in their order."""
        joints = [_product(weights, [laws[c] for c in columns]) for weights, laws in self.fits]
        return np.asarray(np.mean(joints, axis=0))

    def replicas(
        self, channels: Sequence[FloatArray], n: int, count: int = 6, together: Sequence[Together] = ()
    ) -> list[LatentClassModel]:
        """Return fits to fresh releases of rows drawn from the model (parametric bootstrap)."""
        grouped = {column for columns, _ in together for column in columns}
        generator = np.random.default_rng(0)
        models = []
        for r in range(count):
            weights, laws = self.fits[r % len(self.fits)]
            rows = min(n, MOST_ROWS)
            hidden = np.repeat(np.arange(len(weights)), generator.multinomial(rows, weights))
            released = [
                _draw(law if c in grouped else law @ channel.T, hidden, generator)
                for c, (law, channel) in enumerate(zip(laws, channels, strict=True))
            ]
            for columns, signal in together:
                lost = generator.random(rows) >= signal
                for c in columns:
                    released[c][lost] = generator.integers(0, laws[c].shape[1], int(lost.sum()))
            pairs = {
                (a, b): _crossed(released[a], released[b], channels[a].shape[0], channels[b].shape[0]) * (n / rows)
                for a, b in combinations(range(len(laws)), 2)
            }
            marginals = [np.asarray(weights @ law) for law in laws]
            options: dict[str, Any] = {"classes": len(weights), "starts": 1, "first_seed": r, "together": together}
            models.append(fit_latent_classes(pairs, channels, marginals, **options))
        return models


MOST_ROWS = 1_000_000
"""Most rows that a replica draws."""


def _draw(law: FloatArray, hidden: npt.NDArray[np.int64], generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw a released class for every row from its hidden class's law."""
    levels = np.cumsum(law, axis=1) + np.arange(len(law))[:, None]
    levels[:, -1] = np.arange(1, len(law) + 1)
    places = np.searchsorted(levels.ravel(), hidden + generator.random(len(hidden)), side="right")
    return np.asarray(places - hidden * law.shape[1])


def _crossed(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], ka: int, kb: int) -> FloatArray:
    return np.bincount(a * kb + b, minlength=ka * kb).reshape(ka, kb).astype(np.float64)


def _product(weights: FloatArray, laws: Sequence[FloatArray]) -> FloatArray:
    """Return Σ_k w_k ⊗_c P_c(· | k)."""
    joined = weights[:, None]
    for law in laws:
        joined = (joined[:, :, None] * law[:, None, :]).reshape(len(weights), -1)
    return np.asarray(joined.sum(axis=0).reshape([law.shape[1] for law in laws]))


@one_thread
def fit_latent_classes(
    pairs: Pairs,
    channels: Sequence[FloatArray],
    marginals: Sequence[FloatArray],
    *,
    classes: int = 80,
    starts: int = 3,
    first_seed: int = 0,
    max_steps: int = 4_000,
    together: Sequence[Together] = (),
) -> LatentClassModel:
    """Fit the model to noisy pair counts, from several starts.

    Parameters
    ----------
    pairs
        Counts by pair of columns.
    channels
        P(class | cell) per column.
    marginals
        Shares per column to start from.
    together
        Columns that are randomised together; their classes are their cells.
    """
    signals = {pair: signal for columns, signal in together for pair in combinations(sorted(columns), 2)}
    seeds = range(first_seed, first_seed + starts)
    return LatentClassModel(
        tuple(_fit(pairs, channels, signals, marginals, classes, seed, max_steps) for seed in seeds)
    )


def _fit(
    pairs: Pairs,
    channels: Sequence[FloatArray],
    signals: Signals,
    marginals: Sequence[FloatArray],
    classes: int,
    seed: int,
    max_steps: int,
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    generator = np.random.default_rng(seed)
    n = next(iter(pairs.values())).sum()
    observed = {pair: counts / n for pair, counts in pairs.items()}
    saturated = math.fsum(float(np.sum(t[t > 0] * np.log(t[t > 0]))) for t in observed.values())
    goal = DISCREPANCY * math.fsum((t.size - 1) / (2 * n) for t in observed.values())
    weights = np.full(classes, 1 / classes)
    laws = [_normal(m * generator.gamma(1.0, 1.0, (classes, len(m))) + 1e-9) for m in marginals]
    best, power = (-np.inf, weights, laws), RELAXATION
    for _ in range(max_steps):
        likelihood, weight_step, law_steps = _step(observed, channels, signals, weights, laws)
        if likelihood < best[0]:
            # The relaxed step went too far: back to the best point, with a plainer step.
            power, (_, weights, laws) = max(1.0, power / 2), best
            likelihood, weight_step, law_steps = _step(observed, channels, signals, weights, laws)
        best = (likelihood, weights, laws)
        if saturated - likelihood <= goal:
            break
        weights = _normal(weights * weight_step**power)
        laws = [_normal(law * step**power) for law, step in zip(laws, law_steps, strict=True)]
    return best[1], tuple(best[2])


def _normal(values: FloatArray) -> FloatArray:
    return np.asarray(values / values.sum(axis=-1, keepdims=True))


def _step(
    observed: Pairs, channels: Sequence[FloatArray], signals: Signals, weights: FloatArray, laws: Sequence[FloatArray]
) -> tuple[float, FloatArray, list[FloatArray]]:
    """Return the composite log-likelihood and the multiplicative EM steps of weights and laws."""
    released = [law @ channel.T for law, channel in zip(laws, channels, strict=True)]
    # Gradients of the likelihood by each column's law: through its own channel, and straight to its cells.
    through, straight = [np.zeros_like(law) for law in released], [np.zeros_like(law) for law in laws]
    likelihood = 0.0
    for (a, b), counts in observed.items():
        signal = signals.get((a, b))
        of = released if signal is None else laws
        expected = (weights[:, None] * of[a]).T @ of[b]
        if signal is not None:
            expected = signal * expected + (1 - signal) / expected.size
        expected = np.maximum(expected, 1e-300)
        likelihood += float(np.sum(counts * np.log(expected)))
        ratio = counts / expected
        if signal is not None:
            ratio = signal * ratio + (1 - signal) * ratio.mean()
        held = through if signal is None else straight
        held[a] += weights[:, None] * (of[b] @ ratio.T)
        held[b] += weights[:, None] * (of[a] @ ratio)
    steps = [part @ channel + direct for part, channel, direct in zip(through, channels, straight, strict=True)]
    totals = [(law * step).sum(axis=1) for law, step in zip(laws, steps, strict=True)]
    total = sum(totals)
    weight_step = total / np.sum(total) / np.maximum(weights, 1e-300)
    law_steps = [step / np.maximum(t, 1e-300)[:, None] for step, t in zip(steps, totals, strict=True)]
    return likelihood, np.asarray(weight_step), law_steps
