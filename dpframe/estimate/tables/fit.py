"""Estimates from measured tables: the mixture, the simple estimates, and steps from the one to the other.

The coupled bootstrap chooses the number of hidden classes and the steps. The noise has a known law, so y + √a·σz and
y − σz/√a are independent (Oliveira, Lei and Tibshirani 2021). A fit to the one is scored on the other. The expected
score is the fit's squared error plus a constant. Under weak noise the simple estimate is nearer to the truth than any
mixture; under strong noise the mixture is nearer.

This trade-off also exists within a table: noise is equal in all cells, but the mixture errs more in cells of many rows.
A cell of m rows moves by the part w = κm/(κm + m̄) from m to the simple estimate s. This is the posterior mean of a
normal law whose prior variance is proportional to m. m̄ is the mean of m over rows, and κ the odds of the step of a cell
of m̄ rows. m and s are fitted to one half of a draw, and y is the other half. The κ of the least
Σ (y − m − w(s − m))²/σ² has the least expected squared error.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dpframe.estimate.discrepancy import column_basis, tilt_along_ranks
from dpframe.estimate.tables.mixture import Copy, Mixture, fit_mixture, fit_mixtures
from dpframe.estimate.tables.raking import Margin, scaled
from dpframe.estimate.tables.tables import Evidence, near_margins
from dpframe.observe.noisy_counts import NoisyCounts, pool
from dpframe.plan.threads import remember
from dpframe.spaces.arrays import FloatArray

CLASSES = (1, 2, 5, 10, 20, 40, 80, 160)
"""Candidates, from few to many (limit of time)."""

FIRST_CANDIDATE_CLASSES = 20
"""The candidate from which the search goes up, or down (limit of time)."""

WORTH = 0.008
"""Part of the score that more classes must gain: fewer classes err less in small cells (tuned; half and twice it
change widths on a census by −44 and 0 %).

Fits of the choice have few starts. A mean of more starts gains less from more classes.
"""

SCALE = 0.25
"""Noise variance added to the fitted copy, per variance of the noise (tuned; half and twice it change widths on a
census by 8 and −56 %)."""

CHOICE_STARTS = 2
"""Starts of each fit of the choice (limit of time)."""

FEWEST_STARTS, MOST_STARTS, LARGEST_FIT = 5, 15, 1e7
"""Fewest and most starts of the fit, and the most products of a step, starts·classes·cells², which limit the starts
(limit of time).

Fifteen for five lower L1 of Adult's pairs by 2 % and of its triples by 3 %, where hundred classes fit best by 12 %;
eight for fifteen raise that of six columns of 10⁶ rows by 0.5 % and save a third of a second.
"""

STARTS_OF_ROWS = 10
"""Starts of a fit to only rows (limit of time)."""

CLASSES_OF_ROWS = 10
"""Classes of a fit to only rows: with more classes a fit must end earlier, or it follows their noise (tuned; effect not
measured)."""

PULL = 4.0
"""Precision of the common step in the shrinkage of a table's step, in units of 1/σ² (tuned; half and twice it change
widths on a census by 1 and 8 %)."""

ODDS = (0.0, *(2.0**place for place in range(-8, 17)), np.inf)
"""Grid of the odds of steps (tolerance): a finer grid lowers no error by 1 %."""

MOST_LARGER = 6
"""Tables of more than two columns with their own step (limit of time); others use the common step of these.

One takes about 20 ms (nine columns).
"""

PAIR_SWEEPS = 60
"""Sweeps of iterative proportional fitting over all pairs (tolerance)."""


MOST_REMEMBERED_CELLS = 1 << 15
"""Cells of a joint up to which a fit remembers it (limit of memory)."""

MOST_TILTED_CELLS = 1 << 14
"""Cells of pairs that are tilted together, which stay in cache (limit of memory)."""

REMEMBERED_FITS = 8
"""Size of the cache of fits (limit of memory)."""

_fits: dict[bytes, TableFit] = {}


@dataclass(frozen=True)
class Steps:
    """Steps from the mixture to the simple estimate: odds of the step by columns, and the mean step over pairs.

    ``larger``: odds of tables of more than two columns without an entry in ``own``.
    """

    own: dict[tuple[int, ...], float]
    common: float
    larger: float = 0.0

    def odds(self, columns: Sequence[int]) -> float:
        """Return the odds of a table's step."""
        return self.own.get(tuple(sorted(columns)), self.larger if len(columns) > 2 else 0.0)


@dataclass(frozen=True, eq=False)
class TableFit:
    """Estimates of the shares of any columns' cells, from all measured tables."""

    evidence: Evidence
    mixture: Mixture
    steps: Steps

    @property
    def classes(self) -> int:
        """Hidden classes of one fit of the mixture."""
        return len(self.mixture.weights) // self.mixture.fits

    @cached_property
    def _joints(self) -> dict[tuple[int, ...], FloatArray]:
        """Joints that were asked for: those of several columns read all pairs, each pair many times."""
        return {}

    def simple(self, columns: Sequence[int]) -> FloatArray | None:
        """Return the simple estimate of columns in the given order, or None if they were not measured together."""
        if len(columns) == 1:
            return self.evidence.one_ways[columns[0]]
        if len(columns) == 2:
            first, second = sorted(columns)
            shares = self.evidence.simple_pairs.get((first, second))
            return shares if shares is None or columns[0] == first else shares.T
        table = self.evidence.joints.get(tuple(sorted(columns)))
        if table is None:
            return None
        margins = [self.evidence.one_ways[c] for c in table.columns]
        shares = near_margins(table.counts / self.evidence.n, margins)
        return shares.transpose([table.columns.index(c) for c in columns])

    def joint(self, columns: Sequence[int]) -> FloatArray:
        """Return the estimate of least error of some columns' shares, in their order.

        For one or two columns it lies between the mixture and the simple estimate. For more columns it is a geometric
        mean of the mixture's joint and the joint from its pairs. The pairs' weight rises with the step of pairs to
        their simple estimates. If exactly these columns were measured, a step to the simple estimate follows.
        """
        key = tuple(columns)
        return self._joints[key] if key in self._joints else self.step_to_simple(key, self.without_simple(key))

    def step_to_simple(self, columns: tuple[int, ...], model_shares: FloatArray) -> FloatArray:
        """Return the estimate of least error of some columns' shares, from the one of `without_simple`."""
        shares, simple = model_shares, self.simple(columns)
        if simple is not None:
            shares = model_shares + steps_of_cells(model_shares, self.steps.odds(columns)) * (simple - model_shares)
            shares = shares / shares.sum()
        if shares.size <= MOST_REMEMBERED_CELLS:
            shares.flags.writeable = False
            self._joints[columns] = shares
        return shares

    def without_simple(self, columns: Sequence[int]) -> FloatArray:
        """Return the estimate without the step to the simple estimate of these columns."""
        if len(columns) == 1:
            return self.mixture.joint(columns)
        if len(columns) == 2:
            first, second = sorted(columns)
            shares = fit_pairs([self], [(first, second)])[0][0]
            return shares if columns[0] == first else shares.T
        return geometric_joint(self.mixture.joint(columns), self.pairs_of(columns), (1 - self.steps.common) / 2)

    def pairs_of(self, columns: Sequence[int]) -> dict[tuple[int, ...], FloatArray]:
        """Return the shares of all pairs of some columns, by their places in ``columns``."""
        pairs = {(i, j): (columns[i], columns[j]) for i, j in combinations(range(len(columns)), 2)}
        missing = [pair for pair in pairs.values() if pair[0] < pair[1] and pair not in self._joints]
        shares = dict(zip(missing, fit_pairs([self], missing)[0], strict=True))
        return {
            places: self.step_to_simple(pair, shares[pair]) if pair in shares else self.joint(pair)
            for places, pair in pairs.items()
        }


def fit_pairs(fits: Sequence[TableFit], pairs: Sequence[tuple[int, int]]) -> list[list[FloatArray]]:
    """Return the shares of pairs a < b by each fit of these columns, without the step to their simple estimates.

    Joints of the mixture are tilted along ranks if a table counts the pair; pairs of one shape are tilted together.
    """
    joints = [[fit.mixture.joint(pair) for pair in pairs] for fit in fits]
    leading = fits[0].evidence.ordered
    batches: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for place, (first, second) in enumerate(pairs):
        if leading and (leading[first] or leading[second]) and (first, second) in fits[0].evidence.pairs:
            key = (*joints[0][place].shape, leading[first], leading[second])
            batches.setdefault(key, []).extend((turn, place) for turn in range(len(fits)))
    used = sorted({column for batch in batches.values() for _, place in batch for column in pairs[place]})
    bases = [{c: column_basis(np.maximum(fit.mixture.joint((c,)), 1e-12), leading[c], 1) for c in used} for fit in fits]
    for shape, places in batches.items():
        size = max(1, MOST_TILTED_CELLS // math.prod(shape[:2]))
        for batch in (places[start : start + size] for start in range(0, len(places), size)):
            tables = [fits[turn].evidence.pairs[pairs[place]] for turn, place in batch]
            tilted = tilt_along_ranks(
                np.array([joints[turn][place] for turn, place in batch]),
                [[bases[turn][pairs[place][side]] for turn, place in batch] for side in (0, 1)],
                np.array([table.counts for table in tables]),
                np.array([table.variances for table in tables]),
                fits[0].evidence.n,
            )
            for (turn, place), shares in zip(batch, tilted, strict=True):
                joints[turn][place] = shares
    return joints


def remembered_fit(evidence: Evidence) -> TableFit:
    """Return the fit to evidence, from the process's cache if possible."""
    digest = hashlib.sha256(repr((evidence.n, evidence.sizes, evidence.ordered, *sorted(evidence.uneven))).encode())
    for table in evidence.tables:
        digest.update(repr((table.columns, table.counts.shape)).encode())
        for values in (table.counts, np.asarray(table.variance), *table.channels):
            digest.update(values.tobytes())
    # The key covers all inputs of a fit, which is deterministic.
    key = digest.digest()
    fit = _fits.get(key)
    return remember(_fits, key, fit_tables(evidence) if fit is None else fit, REMEMBERED_FITS)


def fit_tables(evidence: Evidence, *, starts: int | None = None) -> TableFit:
    """Fit a mixture with the number of classes chosen by the data, and choose steps to the simple estimates.

    Without any counts of pairs, columns are independent, in one class.
    """
    if not evidence.pairs and not evidence.row_pairs:
        return TableFit(evidence, fit_mixture(evidence, classes=1), Steps({}, 0.0))
    choice = choose_classes(evidence) if evidence.pairs else Choice(CLASSES_OF_ROWS, ())
    affordable = int(LARGEST_FIT / (choice.classes * sum(evidence.sizes) ** 2))
    usual_starts = min(max(affordable, FEWEST_STARTS), MOST_STARTS) if evidence.pairs else STARTS_OF_ROWS
    mixture = fit_mixture(evidence, classes=choice.classes, starts=starts or usual_starts)
    return TableFit(evidence, mixture, _choose_steps(choice))


# The choice of classes and steps


@dataclass(frozen=True, eq=False)
class Choice:
    """The number of classes that errs least, and its fits: by draw the fitted copy, the other copy, the mixture."""

    classes: int
    draws: tuple[tuple[Evidence, Evidence, Mixture], ...]


def choose_classes(evidence: Evidence, candidates: Sequence[int] = CLASSES) -> Choice:
    """Return the candidate whose fits err least by the coupled bootstrap.

    The search climbs: errors fall with the number of classes as they follow the data, then rise as they follow noise.
    """
    # Draws of z and −z: errors in proportion to z cancel.
    draws = [evidence.split(SCALE, np.random.default_rng(1), sign) for sign in (1.0, -1.0)]
    # All candidates have the same targets, which take long to make of a wide table's pairs.
    fitted_copies = [Copy.of(fitted) for fitted, _ in draws]
    validation_copies = [Copy.of(validation) for _, validation in draws]

    def score_candidate(place: int) -> tuple[float, Choice]:
        mixtures = fit_mixtures(fitted_copies, classes=candidates[place], starts=CHOICE_STARTS)
        score = sum(map(prediction_error, mixtures, validation_copies))
        fitted_draws = tuple((*draw, mixture) for draw, mixture in zip(draws, mixtures, strict=True))
        return score, Choice(candidates[place], fitted_draws)

    # A pair cannot identify more classes than its shorter column has cells.
    max_classes = max(FIRST_CANDIDATE_CLASSES, 2 * (sum(evidence.sizes) - max(evidence.sizes)))
    candidates = [classes for classes in candidates if classes <= max_classes]
    first = candidates.index(FIRST_CANDIDATE_CLASSES) if FIRST_CANDIDATE_CLASSES in candidates else 0
    min_score, best = score_candidate(first)
    for place in range(first + 1, len(candidates)):
        score, choice = score_candidate(place)
        if score > min_score * (1 - WORTH):
            break
        min_score, best = score, choice
    if best.classes > candidates[first]:
        return best
    for place in reversed(range(first)):
        score, choice = score_candidate(place)
        if score > min_score * (1 + WORTH):
            break
        min_score, best = min(min_score, score), choice
    return best


def prediction_error(mixture: Mixture, validation: Copy) -> float:
    """Return the prediction error Σ (nP − y)²/σ² over all cells of pairs."""
    laws = np.concatenate(mixture.laws, axis=1)[None]
    shares = laws * mixture.weights[:, None]
    blocks = [block for target in validation.targets for block in target.blocks]
    return sum(float(block.misfit(laws, shares, validation.evidence.n)[0][0]) for block in blocks)


def steps_of_cells(own: FloatArray, odds: FloatArray | float) -> FloatArray:
    """Return each cell's step: the part of the way from its mixture share to its simple share.

    >>> steps_of_cells(np.array([0.75, 0.25]), 1.0).round(2)
    array([0.55, 0.29])
    """
    typical = float((own**2).sum()) / max(float(own.sum()), 1e-300)
    with np.errstate(invalid="ignore"):
        raised = odds * np.maximum(own, 0.0)
        steps = raised / np.maximum(raised + typical, 1e-300)
    return np.where(np.isinf(odds), 1.0, steps)


class Profile(NamedTuple):
    """Prediction errors and step lengths by the odds of a step.

    ``scores``: Σ (y − m − w(s − m))²/σ² less the sum without a step. ``steps``: Σ w(s − m)²/σ². ``length``:
    Σ (s − m)²/σ². ``parts``: number of tables and draws in the sums.
    """

    scores: FloatArray
    steps: FloatArray
    length: float
    parts: int

    @classmethod
    def of(cls, own: FloatArray, simple: FloatArray, held: NoisyCounts, parts: int) -> Profile:
        """Return the profile of counts m (``own``) and s (``simple``) against the held copy of so many tables."""
        distances, precision = simple - own, 1 / held.variances
        along, squares = ((values * distances * precision).ravel() for values in (held.counts - own, distances))
        steps = steps_of_cells(own.ravel(), np.array(ODDS)[:, None])
        return cls(steps**2 @ squares - 2 * (steps @ along), steps @ squares, float(squares.sum()), parts)

    @classmethod
    def sum_of(cls, profiles: Iterable[Profile]) -> Profile:
        """Return the sum of profiles of several tables or draws."""
        terms = [*profiles, cls(np.zeros(len(ODDS)), np.zeros(len(ODDS)), 0.0, 0)]
        return cls(*(sum(part[1:], part[0]) for part in zip(*terms, strict=True)))

    def odds(self, common: Profile) -> float:
        """Return the odds of the least-squares step, shrunk to the step of all tables."""
        pull = PULL * self.parts / max(common.length, 1e-300)
        return float(ODDS[int(np.argmin(self.scores + pull * common.scores))])

    @property
    def mean_step(self) -> float:
        """The mean least-squares step, weighted by the squared distances of cells."""
        # Rounding may exceed 1, which would make a weight of empty cells negative.
        return min(float(self.steps[np.argmin(self.scores)] / max(self.length, 1e-300)), 1.0)


def _choose_steps(choice: Choice) -> Steps:
    """Choose the steps of single columns and pairs, then of larger tables, whose estimates use the steps of pairs."""
    column_sets: dict[int, set[tuple[int, ...]]] = {1: set(), 2: set(), 3: set()}
    for _, validation, _ in choice.draws:
        column_sets[1] |= {(c,) for c in range(len(validation.sizes))}
        for columns in validation.joints:
            column_sets[min(len(columns), 3)].add(columns)
    # An even selection of the larger tables.
    larger = sorted(column_sets[3])[:: math.ceil(len(column_sets[3]) / MOST_LARGER) or 1]
    steps = Steps({}, 0.0)
    for group in (sorted(column_sets[1]), sorted(column_sets[2]), larger):
        profiles = _sum_profiles(choice, group, steps)
        pooled_profile = Profile.sum_of(profiles.values())
        odds = steps.own | {columns: profile.odds(pooled_profile) for columns, profile in profiles.items()}
        steps = Steps(
            odds,
            pooled_profile.mean_step if group and len(group[0]) == 2 else steps.common,
            pooled_profile.odds(pooled_profile),
        )
    return steps


def _sum_profiles(choice: Choice, group: Sequence[tuple[int, ...]], steps: Steps) -> dict[tuple[int, ...], Profile]:
    """Return the profile of each table's step, summed over draws; a group holds columns, pairs, or larger tables."""
    fits = [TableFit(fitted, mixture, steps) for fitted, _, mixture in choice.draws]
    pairs = [(columns[0], columns[1]) for columns in group if len(columns) == 2]
    shares_by_fit = fit_pairs(fits, pairs) if pairs else [[fit.without_simple(c) for c in group] for fit in fits]
    profiles: dict[tuple[int, ...], list[Profile]] = {columns: [] for columns in group}
    for (fitted, validation, _), fit, shares in zip(choice.draws, fits, shares_by_fit, strict=True):
        for columns, model_shares in zip(group, shares, strict=True):
            simple = fit.simple(columns)
            simple_counts = fitted.n * (model_shares if simple is None else simple)
            tables = validation.seen(columns) if len(columns) == 1 else [validation.joints[columns]]
            if tables:
                profile = Profile.of(fitted.n * model_shares, simple_counts, pool(tables), len(tables))
                profiles[columns].append(profile)
    return {columns: Profile.sum_of(of_draws) for columns, of_draws in profiles.items()}


# Tables brought to their margins


def fit_to_margins(
    start: FloatArray, margins: Mapping[tuple[int, ...], FloatArray], sweeps: int = PAIR_SWEEPS
) -> FloatArray:
    """Scale a joint to margins, which are given by their axes; see `scaled`."""
    return scaled(start, [Margin.of_axes(margin, axes, start.ndim) for axes, margin in margins.items()], sweeps)


def geometric_joint(own: FloatArray, pairs: Mapping[tuple[int, ...], FloatArray], weight: float = 0.5) -> FloatArray:
    """Return the normalised geometric mean of a joint and of the joint that maximises entropy given its pairs.

    The nearer one depends on the table; their mean is never far from the truth. ``weight``: exponent of the joint
    ``own``, from 0 to 1. ``pairs``: shares of every pair of its axes.
    """
    # Scaling starts from independent columns.
    axes = range(own.ndim)
    singles: dict[tuple[int, ...], FloatArray] = {
        (axis,): own.sum(axis=tuple(i for i in axes if i != axis)) for axis in axes
    }
    even = fit_to_margins(fit_to_margins(np.ones(own.shape), singles, 1), pairs)
    mean = np.maximum(own, 0) ** weight * even ** (1 - weight)
    return np.asarray(mean / mean.sum())
