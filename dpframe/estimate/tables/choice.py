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

SCALE = 0.25
"""Part of the noise's variance that is added to what is fitted."""

DRAWS = 2
"""Times that noise is drawn for a score."""

STARTS = 2
"""Starts of each fit that is scored."""

SETBACKS = 3
"""Candidates in turn without a better score after which the search ends."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The number of classes that errs least, and its fits: of each draw what was fitted, what was held, the mixture."""

    classes: int
    draws: tuple[tuple[Evidence, Evidence, Mixture], ...]


def choose_classes(evidence: Evidence, candidates: Sequence[int] = CLASSES) -> Choice:
    """Return the candidate whose fits err least by the coupled bootstrap.

    Candidates are tried in their order until three in turn were no better than the best so far.
    """
    generator = np.random.default_rng(1)
    draws = [evidence.split(SCALE, generator) for _ in range(DRAWS)]
    best, least, worse = Choice(candidates[0], ()), np.inf, 0
    for classes in candidates:
        tried, score = [], 0.0
        for seed, (fitted, held) in enumerate(draws):
            mixture = fit_mixture(fitted, classes=classes, starts=STARTS, seed=seed)
            score += prediction_error(mixture, held)
            tried.append((fitted, held, mixture))
        if score < least:
            best, least, worse = Choice(classes, tuple(tried)), score, 0
        else:
            worse += 1
        if worse == SETBACKS:
            break
    return best


def prediction_error(mixture: Mixture, held: Evidence) -> float:
    """Return Σ (nP − y)²/σ² over all cells of pairs."""
    laws, weights = np.concatenate(mixture.laws, axis=1)[None], mixture.weights[None]
    blocks = [block for target in targets_of(held) for block in target.blocks]
    return sum(float(block.misfit(laws, weights, held.n)[0][0]) for block in blocks)
