"""The number of hidden classes, chosen by the data: the coupled bootstrap.

The noise is known, so y + √a·σz and y − σz/√a are independent of each other (Oliveira, Lei and Tibshirani 2021): a
fit to the one is scored on the other, and the score's expectation is the fit's squared error plus what all fits share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.estimate.tables.mixture import Mixture, fit_mixture, targets_of
from dpframe.estimate.tables.tables import Evidence

CLASSES = (1, 2, 5, 10, 20, 40, 80, 160)
"""Candidates, from few to many."""

FIRST = 20
"""The candidate from which the search goes up, or down."""

WORTH = 0.002
"""Part of the score that more classes must gain: where noise hides what they gain, fewer err less in small cells."""

SCALE = 0.25
"""Part of the noise's variance that is added to what is fitted."""

DRAWS = 2
"""Times that noise is drawn for a score."""

STARTS = 2
"""Starts of each fit that is scored."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The number of classes that errs least, and its fits: of each draw what was fitted, what was held, the mixture."""

    classes: int
    draws: tuple[tuple[Evidence, Evidence, Mixture], ...]


def choose_classes(evidence: Evidence, candidates: Sequence[int] = CLASSES) -> Choice:
    """Return the candidate whose fits err least by the coupled bootstrap.

    The search climbs: errors fall with the number of classes as they follow the data, then rise as they follow noise.
    """
    generator = np.random.default_rng(1)
    draws = [evidence.split(SCALE, generator) for _ in range(DRAWS)]

    def scored(place: int) -> tuple[float, Choice]:
        mixtures = [
            fit_mixture(fitted, classes=candidates[place], starts=STARTS, seed=seed)
            for seed, (fitted, _) in enumerate(draws)
        ]
        score = sum(prediction_error(mixture, held) for mixture, (_, held) in zip(mixtures, draws, strict=True))
        tried = tuple((*draw, mixture) for draw, mixture in zip(draws, mixtures, strict=True))
        return score, Choice(candidates[place], tried)

    candidates = [classes for classes in candidates if classes <= _most_classes(evidence.sizes)]
    first = candidates.index(FIRST) if FIRST in candidates else 0
    least, best = scored(first)
    for place in range(first + 1, len(candidates)):
        score, choice = scored(place)
        if score > least * (1 - WORTH):
            break
        least, best = score, choice
    if best.classes > candidates[first]:
        return best
    for place in reversed(range(first)):
        score, choice = scored(place)
        if score > least * (1 + WORTH):
            break
        least, best = min(least, score), choice
    return best


def _most_classes(sizes: Sequence[int]) -> int:
    """Return from how many classes on more can show nothing: a pair's rank is that of its shorter column."""
    return max(FIRST, 2 * (sum(sizes) - max(sizes)))


def prediction_error(mixture: Mixture, held: Evidence) -> float:
    """Return Σ (nP − y)²/σ² over all cells of pairs."""
    laws, weights = np.concatenate(mixture.laws, axis=1)[None], mixture.weights[None]
    blocks = [block for target in targets_of(held) for block in target.blocks]
    return sum(float(block.misfit(laws, weights, held.n)[0][0]) for block in blocks)
