"""A mixture of hidden classes, given which columns are independent, fitted to noisy counts of pairs.

All laws stand side by side in one K × (all cells) matrix L. With weights w, all pairs at once are
P = Lᵀ diag(w) L, and their misfit Σ (nP − y)²/2σ² has the gradient w∘(L·G) in L, with G the residuals: two products
of matrices, whatever the number of pairs. Counts of released rows enter through their channels C, side by side in
one block matrix: C P Cᵀ against the counts of classes, each by its multinomial variance.

Fits start from independence with noise (log one-way + log Gamma(1,1)), go down by Adam (Kingma and Ba 2015), and end
by Morozov's principle: at about the χ² that the noise alone would leave, of (a − 1)(b − 1) degrees a pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.estimate.tables.simple import simple_one_way
from dpframe.estimate.tables.tables import Evidence

Single = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pace:
    """How fits go down: Adam's step of a logit, and the χ² per degree of freedom at which they end."""

    rate: float
    discrepancy: float


OF_TABLES = Pace(0.2, 0.95)
"""A quarter of the step errs as much on tables and takes three times as long."""

OF_ROWS = Pace(0.02, 1.05)
"""Rows say so little of a cell that large steps fit their noise (Adult's triples: 0.37 with those of tables, 0.32)."""

MOST_STEPS = 1_000
"""Steps after which a fit ends at the latest: few classes may never come near."""

PATIENCE, GAIN = 5.0, 0.005
"""A fit also ends where steps of this length together lower χ² by less than this part: its classes can do no better."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights of the hidden classes, and P(cell | class) of every column, shape (classes, cells).

    Several fits are one mixture of all their classes; ``fits`` is how many, each of as many classes in turn.
    """

    weights: FloatArray
    laws: tuple[FloatArray, ...]
    fits: int = 1

    def joint(self, columns: Sequence[int]) -> FloatArray:
        """Return the shares of the cells of some columns, Σ_k w_k ⊗_c L_c(· | k), in their order.

        >>> both = Mixture(np.array([0.5, 0.5]), (np.eye(2), np.eye(2)))
        >>> both.joint([0, 1])
        array([[0.5, 0. ],
               [0. , 0.5]])
        """
        laws = [self.laws[c] for c in columns]
        first = reduce(_crossed, laws[:-1], self.weights[:, None])
        joined = first.T @ laws[-1]
        return joined.reshape([law.shape[1] for law in laws])

    def fit(self, index: int) -> Mixture:
        """Return one of the fits."""
        each = len(self.weights) // self.fits
        part = slice(index * each, (index + 1) * each)
        return Mixture(self.weights[part] * self.fits, tuple(law[part] for law in self.laws))


def _crossed(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


@dataclass(frozen=True, eq=False)
class Target:
    """Counts of all pairs of columns in one symmetric matrix, and the precision of each: 0 where nothing is known.

    ``degrees`` is Σ (a − 1)(b − 1) over known pairs, what is left of their cells when one-ways are fitted;
    ``through`` takes laws of cells into laws of what is counted, shape (all cells, all classes); None where cells are.
    """

    counts: FloatArray
    precisions: FloatArray
    degrees: int
    through: FloatArray | None = None
    pace: Pace = OF_TABLES


def targets_of(evidence: Evidence) -> list[Target]:
    """Return what a fit is compared with: pairs from tables, and from rows where no table holds them."""
    pairs = evidence.pairs
    found = []
    if pairs:
        edges = np.concatenate([[0], np.cumsum(evidence.sizes)])
        filled = {pair: (table.counts, 1 / table.variances) for pair, table in pairs.items()}
        found.append(Target(*_side_by_side(edges, filled), _degrees(y.shape for y, _ in filled.values())))
    rows = {
        (r.columns[0], r.columns[1]): (r.counts, 1 / r.variances)
        for r in evidence.rows
        if (r.columns[0], r.columns[1]) not in pairs
    }
    if rows:
        edges = np.concatenate([[0], np.cumsum([channel.shape[0] for channel in evidence.channels])])
        starts = np.concatenate([[0], np.cumsum(evidence.sizes)])
        through = np.zeros((starts[-1], edges[-1]))
        for c, channel in enumerate(evidence.channels):
            through[starts[c] : starts[c + 1], edges[c] : edges[c + 1]] = channel.T
        found.append(Target(*_side_by_side(edges, rows), _degrees(y.shape for y, _ in rows.values()), through, OF_ROWS))
    return found


def _degrees(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(math.prod(size - 1 for size in shape) for shape in shapes)


def _side_by_side(
    edges: npt.NDArray[np.int64], pairs: dict[tuple[int, int], tuple[FloatArray, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    counts, precisions = np.zeros((edges[-1], edges[-1])), np.zeros((edges[-1], edges[-1]))
    for (a, b), (y, w) in pairs.items():
        rows, columns = slice(edges[a], edges[a + 1]), slice(edges[b], edges[b + 1])
        counts[rows, columns], precisions[rows, columns] = y, w
        counts[columns, rows], precisions[columns, rows] = y.T, w.T
    return counts, precisions


def fit_mixture(
    evidence: Evidence, *, classes: int, starts: int = 5, seed: int = 0, most_steps: int = MOST_STEPS
) -> Mixture:
    """Fit a mixture to all that is known of pairs, and return the mean of several starts.

    Parameters
    ----------
    evidence
        What was measured, of two columns at least.
    classes
        Hidden classes of each start.
    """
    one_ways = [simple_one_way(evidence, c) for c in range(len(evidence.sizes))]
    return _Descent(targets_of(evidence), evidence.n, one_ways, classes, starts, seed).run(most_steps)


class _Descent:
    """Several starts side by side, shape (starts, classes, all cells); one that has come near enough leaves."""

    def __init__(
        self,
        targets: Sequence[Target],
        n: float,
        one_ways: Sequence[FloatArray],
        classes: int,
        starts: int,
        seed: int,
    ) -> None:
        generator = np.random.default_rng(seed)
        self.sizes = [len(law) for law in one_ways]
        laws = np.concatenate(one_ways)
        noise = generator.gamma(1.0, 1.0, (starts, classes, len(laws)))
        self.logits = np.log(laws * noise + 1e-9).astype(np.float32)
        self.tilts = np.zeros((starts, classes), dtype=np.float32)
        self.segments = np.repeat(np.eye(len(one_ways), dtype=np.float32), self.sizes, axis=0)
        self.goal = sum(target.pace.discrepancy * target.degrees for target in targets)
        # Of several paces the step is their geometric mean.
        self.rate = float(np.exp(np.mean([np.log(target.pace.rate) for target in targets])))
        # Counts in units of rows, so that squares of single precision stay near 1: residuals are (nP − y)/σ.
        self.parts = [
            (
                (t.counts / n).astype(np.float32),
                (n * n * t.precisions).astype(np.float32),
                None if t.through is None else t.through.astype(np.float32),
            )
            for t in targets
        ]

    def run(self, most_steps: int) -> Mixture:
        """Go down until every start is near enough, or stands still."""
        values = [self.logits, self.tilts]
        first, second = [np.zeros_like(v) for v in values], [np.zeros_like(v) for v in values]
        active, last = np.arange(len(self.tilts)), np.full(len(self.tilts), np.inf)
        found: dict[int, tuple[Single, Single]] = {}
        patience = max(1, round(PATIENCE / self.rate))
        for step in range(1, most_steps + 1):
            laws, weights = self._laws(values[0]), _softmax(values[1])
            misfit, gradients = self._gradients(laws, weights)
            over = misfit <= self.goal
            if step % patience == 0:
                over |= misfit > last * (1 - GAIN)
                last = misfit
            if step == most_steps:
                over[:] = True
            if over.any():
                found |= {int(active[i]): (laws[i], weights[i]) for i in np.flatnonzero(over)}
                kept = ~over
                active, last = active[kept], last[kept]
                values, first, second, gradients = (
                    [v[kept] for v in part] for part in (values, first, second, gradients)
                )
                if not len(active):
                    break
            rate = np.float32(self.rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step))
            for v, m, s, g in zip(values, first, second, gradients, strict=True):
                m += np.float32(0.1) * (g - m)
                s += np.float32(0.001) * (g * g - s)
                v -= rate * m / (np.sqrt(s) + np.float32(1e-12))
        return self._mean(found)

    def _laws(self, logits: Single) -> Single:
        """Return the softmax of every column's logits."""
        raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(raised / (((raised @ self.segments) + np.float32(1e-30)) @ self.segments.T))

    def _gradients(self, laws: Single, weights: Single) -> tuple[FloatArray, list[Single]]:
        """Return χ² of every start, and its gradients by logits and tilts."""
        misfit, held = np.zeros(len(laws)), np.zeros_like(laws)
        for counts, precisions, through in self.parts:
            spread = laws if through is None else laws @ through
            residual = (spread * weights[:, :, None]).transpose(0, 2, 1) @ spread - counts
            weighted = residual * precisions
            misfit += np.einsum("sij,sij->s", residual, weighted, dtype=np.float64) / 2
            part = spread @ weighted
            held += part if through is None else part @ through.T
        along = laws * held
        inner = along @ self.segments
        by_logits = weights[:, :, None] * (along - laws * (inner @ self.segments.T))
        by_weights = inner.sum(axis=-1) / 2
        by_tilts = weights * (by_weights - (weights * by_weights).sum(axis=-1, keepdims=True))
        return misfit, [by_logits, by_tilts]

    def _mean(self, found: dict[int, tuple[Single, Single]]) -> Mixture:
        laws = np.concatenate([found[i][0] for i in range(len(found))]).astype(np.float64)
        weights = np.concatenate([found[i][1] for i in range(len(found))]).astype(np.float64)
        edges = np.cumsum(self.sizes)[:-1]
        columns = [part / part.sum(axis=1, keepdims=True) for part in np.split(laws, edges, axis=1)]
        return Mixture(weights / weights.sum(), tuple(columns), len(found))


def _softmax(values: Single) -> Single:
    raised = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
