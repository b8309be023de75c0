"""A mixture of hidden classes, fitted to noisy counts of pairs; columns are independent within a class.

One K × (all cells) matrix L has all laws side by side. With weights w, all pairs at once are P = Lᵀ diag(w) L. Their
misfit Σ (nP − y)²/2σ² has the gradient w∘(L·G) in L, with G the residuals: two products of matrices for any number of
pairs. A very long column would fill P with itself, so it has a block with each other column instead. Counts of released
rows enter through their channels C: C P Cᵀ is compared with the counts of classes, by their multinomial variances.

Fits start from independence with noise (log one-way + log Gamma(1,1)), and descend by Adam (Kingma and Ba 2015). They
end by Morozov's principle, near the χ² of pure noise, with (a − 1)(b − 1) degrees a pair. If tables were measured, only
they decide when a fit ends: rows have little information on a cell, and would dilute the gain of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.estimate.tables.tables import Evidence
from dpframe.observe.noisy_counts import NoisyCounts
from dpframe.spaces.arrays import FloatArray, IntArray

Single = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pace:
    """Pace of descents: Adam's step of a logit in fits and in refits, and the χ² per degree at which fits end."""

    rate: float
    refit_rate: float
    discrepancy: float


OF_TABLES = Pace(0.4, 0.2, 0.95)
"""Pace of fits to tables (tuned; effect below).

Half of the step errs as much (L1 of pairs and triples of eight tables at ε from 0.3 to 4) and takes twice as long; half
as much again errs by 3 % more. Refits at the step of fits make intervals of joints wider by 6 %.
"""

OF_ROWS = Pace(0.1, 0.1, 1.05)
"""Pace of fits to only rows: below this χ² a fit gains more noise than truth (tuned; effect not measured)."""

MAX_MIXTURE_STEPS = 1_000
"""Steps after which a fit ends at the latest: few classes may never reach the goal (limit of time)."""

REFIT_STEPS = 25
"""Most steps of a refit: it starts from a fit, and its copy of the evidence differs by one noise (limit of time)."""

PATIENCE, GAIN = 5.0, 0.02
"""A fit also ends where steps of this length together lower χ² by less than this part (tuned; effect below).

Further gains are mostly noise: a quarter of the threshold takes twice the steps, and errs by 0 to 5 % more (Adult's
pairs at ε from 0.3 to 4).
"""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights of the hidden classes, and P(cell | class) of every column, shape (classes, cells).

    Several fits form one mixture of all their classes. ``fits`` is their number; all have as many classes, in turn.
    """

    weights: FloatArray
    laws: tuple[FloatArray, ...]
    fits: int = 1

    def joint(self, columns: Sequence[int]) -> FloatArray:
        """Return the shares of the cells of some columns, Σ_k w_k ⊗_c L_c(· | k), in their order."""
        laws = [self.laws[c] for c in columns]
        first = self.weights[:, None]
        for law in laws[:-1]:
            first = (first[:, :, None] * law[:, None, :]).reshape(len(first), -1)
        joined = first.T @ laws[-1]
        return joined.reshape([law.shape[1] for law in laws])

    def fit(self, index: int) -> Mixture:
        """Return one of the fits."""
        classes = len(self.weights) // self.fits
        part = slice(index * classes, (index + 1) * classes)
        return Mixture(self.weights[part] * self.fits, tuple(law[part] for law in self.laws))


LONG = 256
"""Cells from which on a column has a separate block with each other column (limit of memory)."""


@dataclass(frozen=True, eq=False)
class Side:
    """Columns on one side of a block: the places of their cells, and the matrix from cells to classes."""

    cells: slice | IntArray
    through: FloatArray | None

    def of(self, laws: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the laws of the counted classes, from the laws of all columns' cells."""
        cell_laws = laws[..., self.cells]
        return cell_laws if self.through is None else cell_laws @ self.through

    def back(self, along: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the gradient by the laws of cells, from the gradient by the laws of counted classes."""
        return along if self.through is None else along @ self.through.T


@dataclass(frozen=True, eq=False)
class Block:
    """Counts of the pairs between two sides, and the precision of each: 0 for unknown counts.

    ``counts`` has the shape (1 or starts, cells of one side, cells of the other): starts share one table of counts, or
    each has its own. If both sides are one object, every pair is in the block twice.
    """

    one: Side
    other: Side
    counts: npt.NDArray[Any]
    precisions: npt.NDArray[Any]

    @property
    def is_whole(self) -> bool:
        """Whether both sides are one object."""
        return self.one is self.other

    def in_shares(self, n: float, precision: type[np.floating[Any]] = np.float32) -> Block:
        """Return the block in single precision and in units of n rows, so that residuals (nP − y)/σ stay near 1."""
        one, other = (
            Side(side.cells, None if side.through is None else side.through.astype(precision))
            for side in (self.one, self.other)
        )
        counts, precisions = (self.counts / n).astype(precision), (n * n * self.precisions).astype(precision)
        return Block(one, one if self.is_whole else other, counts, precisions)

    @cached_property
    def _buffers(self) -> npt.NDArray[Any]:
        """Buffers for residuals and weighted residuals: allocation in each step would cost more than the step."""
        return np.empty((2, *self.precisions.shape), self.counts.dtype)

    def misfit(
        self, laws: npt.NDArray[Any], shares: npt.NDArray[Any], n: float = 1.0
    ) -> tuple[FloatArray, list[tuple[Side, npt.NDArray[Any]]]]:
        """Return χ² of every start, and the gradients by either side's laws without the weights' factor.

        ``shares`` are the laws times their classes' weights.
        """
        first_laws, shares = self.one.of(laws), self.one.of(shares)
        second_laws = first_laws if self.is_whole else self.other.of(laws)
        residual, weighted = self._buffers
        chi_squares, by_one, by_other = np.zeros(len(laws)), np.empty_like(first_laws), np.empty_like(second_laws)
        for s, (first_law, second_law, share) in enumerate(zip(first_laws, second_laws, shares, strict=True)):
            np.matmul(share.T, second_law, out=residual)
            if n != 1.0:
                residual *= n
            residual -= self.counts[s % len(self.counts)]
            np.multiply(residual, self.precisions, out=weighted)
            chi_squares[s] = np.vdot(residual, weighted)
            np.matmul(first_law, weighted, out=by_other[s])
            if not self.is_whole:
                np.matmul(second_law, weighted.T, out=by_one[s])
        if self.is_whole:
            # A symmetric block has both orders of every pair.
            return chi_squares / 2, [(self.one, self.one.back(by_other))]
        return chi_squares, [(self.one, self.one.back(by_one)), (self.other, self.other.back(by_other))]


@dataclass(frozen=True, eq=False)
class Target:
    """Counts that a fit approximates.

    ``degrees`` is Σ (a − 1)(b − 1) over known pairs: their degrees of freedom after the fit of one-ways.
    """

    blocks: tuple[Block, ...]
    degrees: int
    pace: Pace = OF_TABLES


@dataclass(frozen=True, eq=False)
class Copy:
    """Evidence, or a copy of it with other noise, with its targets."""

    evidence: Evidence
    targets: Sequence[Target]

    @classmethod
    def of(cls, evidence: Evidence) -> Copy:
        """Return evidence with its targets."""
        return cls(evidence, targets_of(evidence))

    @property
    def blocks(self) -> list[Block]:
        """The targets' blocks in shares."""
        return [block.in_shares(self.evidence.n) for target in self.targets for block in target.blocks]


def targets_of(evidence: Evidence) -> list[Target]:
    """Return the targets of a fit: pairs from tables, and pairs from rows that no table holds."""
    targets = []
    for pairs, pace in ((evidence.pairs, OF_TABLES), (evidence.row_pairs, OF_ROWS)):
        if pairs:
            degrees = sum(math.prod(size - 1 for size in table.counts.shape) for table in pairs.values())
            targets.append(Target(tuple(_make_blocks(evidence.sizes, pairs)), degrees, pace))
    return targets


def _make_blocks(sizes: Sequence[int], pairs: Mapping[tuple[int, int], NoisyCounts]) -> Iterator[Block]:
    """Yield a block of all columns that are not long, and one of every pair with a long one."""
    widths = {c: width for table in pairs.values() for c, width in zip(table.columns, table.counts.shape, strict=True)}
    channels = {c: channel for t in pairs.values() for c, channel in zip(t.columns, t.channels, strict=False)}
    short = sorted({c for pair in pairs for c in pair if max(widths[c] for c in pair) < LONG})
    if short:
        edges = dict(zip(short, np.cumsum([0, *(widths[c] for c in short[:-1])]).tolist(), strict=True))
        cells = sum(widths[c] for c in short)
        counts, precisions = np.zeros((cells, cells)), np.zeros((cells, cells))
        for (a, b), table in pairs.items():
            if a in edges and b in edges:
                rows, columns = (slice(edges[c], edges[c] + widths[c]) for c in (a, b))
                counts[rows, columns], precisions[rows, columns] = table.counts, 1 / table.variances
                counts[columns, rows], precisions[columns, rows] = table.counts.T, (1 / table.variances).T
        side = _make_side(sizes, short, channels)
        yield Block(side, side, counts[None], precisions)
    for (a, b), table in pairs.items():
        if max(widths[a], widths[b]) >= LONG:
            first_side, second_side = (_make_side(sizes, [c], channels) for c in (a, b))
            yield Block(first_side, second_side, table.counts[None], 1 / table.variances)


def _make_side(sizes: Sequence[int], columns: Sequence[int], channels: Mapping[int, FloatArray]) -> Side:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    through = _block_diagonal([channels[c].T for c in columns]) if channels else None
    if len(columns) == len(sizes):
        return Side(slice(None), through)
    if len(columns) == 1:
        return Side(slice(int(starts[columns[0]]), int(starts[columns[0] + 1])), through)
    return Side(np.concatenate([np.arange(starts[c], starts[c + 1]) for c in columns]), through)


def fit_mixture(
    evidence: Evidence, *, classes: int, starts: int = 5, seed: int = 0, most_steps: int = MAX_MIXTURE_STEPS
) -> Mixture:
    """Fit a mixture to all counts of pairs, and return the mean of several starts.

    ``evidence``: counts of at least two columns. ``classes``: hidden classes of each start. One class means
    independence, with shares from all counts of each column, which are more precise than the pairs.
    """
    return fit_mixtures([Copy.of(evidence)], classes=classes, starts=starts, seed=seed, most_steps=most_steps)[0]


def fit_mixtures(
    copies: Sequence[Copy], *, classes: int, starts: int, seed: int = 0, most_steps: int = MAX_MIXTURE_STEPS
) -> list[Mixture]:
    """Fit a mixture to each of several copies of evidence, which differ in their counts; see `fit_mixture`.

    All starts of all copies take their steps together; the seeds of the copies follow each other.
    """
    if classes == 1:
        return [Mixture(np.ones(1), tuple(law[None, :] for law in copy.evidence.one_ways)) for copy in copies]
    logits = []
    for place, copy in enumerate(copies, start=seed):
        laws = np.concatenate(copy.evidence.one_ways)
        noise = np.random.default_rng(place).gamma(1.0, 1.0, (starts, classes, len(laws)))
        # The small term keeps logits of empty cells finite.
        logits.append(np.log(laws * noise + 1e-9))
    targets, sizes = copies[0].targets, copies[0].evidence.sizes
    tilts = np.zeros((len(copies) * starts, classes))
    descent = Descent(targets, _stack_blocks(copies, starts), sizes, np.concatenate(logits), tilts)
    # The first target has the tables, if any.
    goal = targets[0].pace.discrepancy * targets[0].degrees
    mixtures = _to_mixtures(*descent.run(np.full(len(tilts), goal), most_steps), sizes)
    return [mean_mixture(mixtures[start : start + starts]) for start in range(0, len(mixtures), starts)]


def refit_mixtures(evidence: Evidence, copies: Sequence[Evidence], mixtures: Sequence[Mixture]) -> list[Mixture]:
    """Fit a mixture to each copy of the evidence with noise added once more, starting from fits to the evidence.

    As many fits in turn are the starts of each copy. A copy has two noises: a refit ends when its χ² exceeds its
    start's by the χ² of one noise over all cells. All refits take their steps together.
    """
    base = Copy.of(evidence)
    targets = [replace(one, pace=replace(one.pace, rate=one.pace.refit_rate)) for one in base.targets]
    if not targets:
        return list(mixtures)
    laws = np.stack([np.concatenate(mixture.laws, axis=1) for mixture in mixtures])
    weights = np.stack([mixture.weights for mixture in mixtures])
    copy_blocks = _stack_blocks([Copy.of(copy) for copy in copies], len(mixtures) // len(copies))
    descent = Descent(targets, copy_blocks, evidence.sizes, np.log(laws + 1e-9), np.log(weights + 1e-9))
    single = laws.astype(np.float32), (laws * weights[:, :, None]).astype(np.float32)
    start_chi_squares = np.sum([block.misfit(*single)[0] for block in base.blocks[: descent.deciding]], axis=0)
    cells = sum(table.counts.size for table in (evidence.pairs or evidence.row_pairs).values())
    return _to_mixtures(*descent.run(start_chi_squares + OF_TABLES.discrepancy * cells, REFIT_STEPS), evidence.sizes)


def mean_mixture(mixtures: Sequence[Mixture]) -> Mixture:
    """Return several mixtures as one, of all their classes."""
    weights = np.concatenate([one.weights for one in mixtures]) / len(mixtures)
    laws = zip(*(one.laws for one in mixtures), strict=True)
    return Mixture(weights, tuple(np.concatenate(class_laws) for class_laws in laws), len(mixtures))


def _stack_blocks(copies: Sequence[Copy], starts: int) -> list[Block]:
    """Return blocks in shares with the counts of each copy in turn, for so many starts of each."""
    blocks_by_copy = [copy.blocks for copy in copies]
    if len(copies) == 1:
        return blocks_by_copy[0]
    matching_blocks = zip(*blocks_by_copy, strict=True)
    return [
        replace(b[0], counts=np.repeat(np.concatenate([one.counts for one in b]), starts, axis=0))
        for b in matching_blocks
    ]


def _to_mixtures(laws: FloatArray, weights: FloatArray, sizes: Sequence[int]) -> list[Mixture]:
    """Convert a descent's laws and weights to mixtures."""
    edges = np.cumsum(sizes)[:-1]
    return [
        Mixture(
            weight / weight.sum(), tuple(part / part.sum(axis=1, keepdims=True) for part in np.split(law, edges, 1))
        )
        for law, weight in zip(laws, weights, strict=True)
    ]


class Descent:
    """Descent of several starts side by side, shape (starts, classes, all cells); a start at its goal leaves.

    ``blocks`` are the targets' blocks in shares; ``logits`` and ``tilts`` are logarithms of laws and weights.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        blocks: Sequence[Block],
        sizes: Sequence[int],
        logits: FloatArray,
        tilts: FloatArray,
    ) -> None:
        self.blocks = list(blocks)
        self.deciding = len(targets[0].blocks)
        """Blocks whose χ² decides when a fit ends, the first ones: tables come before rows."""
        # With several paces the step is their geometric mean.
        self.rate = float(np.exp(np.mean([np.log(target.pace.rate) for target in targets])))
        self.logits, self.tilts = logits.astype(np.float32), tilts.astype(np.float32)
        self.segments = np.repeat(np.eye(len(sizes), dtype=np.float32), sizes, axis=0)

    def run(self, goals: FloatArray, most_steps: int) -> tuple[FloatArray, FloatArray]:
        """Descend until every start reaches its goal's χ² or stalls; return laws and weights of every start."""
        values = [self.logits, self.tilts]
        # Squares begin above zero, so that a cell without any gradient stays.
        first, second = [np.zeros_like(v) for v in values], [np.full_like(v, 1e-21) for v in values]
        active, last = np.arange(len(self.tilts)), np.full(len(self.tilts), np.inf)
        results: dict[int, tuple[Single, Single]] = {}
        patience = max(1, round(PATIENCE / self.rate))
        for step in range(1, most_steps + 1):
            exponentials = np.exp(values[1] - values[1].max(axis=-1, keepdims=True))
            laws, weights = self.laws(values[0]), exponentials / exponentials.sum(axis=-1, keepdims=True)
            by_block, gradients = self.gradients(laws, weights)
            misfit = by_block[: self.deciding].sum(axis=0)
            has_ended = misfit <= goals[active]
            if step % patience == 0:
                has_ended |= misfit > last * (1 - GAIN)
                last = misfit
            if step == most_steps:
                has_ended[:] = True
            if has_ended.any():
                results |= {int(active[i]): (laws[i], weights[i]) for i in np.flatnonzero(has_ended)}
                is_active = ~has_ended
                active, last = active[is_active], last[is_active]
                values, first, second, gradients = (
                    [v[is_active] for v in part] for part in (values, first, second, gradients)
                )
                self.blocks = [b if len(b.counts) == 1 else replace(b, counts=b.counts[is_active]) for b in self.blocks]
                if not len(active):
                    break
            # Adam's means of gradients and of squares are a tenth and a thousandth of the sums here.
            rate = np.float32(self.rate * 0.1 / (1 - 0.9**step) * np.sqrt((1 - 0.999**step) / 0.001))
            # Both moments are sums, not means: the rate has the factor between them.
            for value, mean, square, gradient in zip(values, first, second, gradients, strict=True):
                mean *= np.float32(0.9)
                mean += gradient
                gradient *= gradient
                square *= np.float32(0.999)
                square += gradient
                np.sqrt(square, out=gradient)
                np.divide(mean, gradient, out=gradient)
                gradient *= rate
                value -= gradient
        laws, weights = (np.stack([results[i][side] for i in range(len(results))]) for side in (0, 1))
        return laws.astype(np.float64), weights.astype(np.float64)

    def laws(self, logits: Single) -> Single:
        """Return each class's law of every column."""
        # One maximum for all classes of a start: separate maxima cost more than the exponentials.
        exponentials = logits - logits.reshape(len(logits), -1).max(axis=1)[:, None, None]
        np.exp(exponentials, out=exponentials)
        exponentials /= self.of_cells(self.sums(exponentials) + np.float32(1e-30))
        return np.asarray(exponentials)

    def gradients(self, laws: Single, weights: Single) -> tuple[FloatArray, list[Single]]:
        """Return χ² of every block and start, and the gradients of their sum by logits and tilts."""
        misfit = np.zeros((len(self.blocks), len(laws)))
        by_logits = np.zeros_like(laws)
        shares = laws * weights[..., None]
        for block, chi_squares in zip(self.blocks, misfit, strict=True):
            chi_squares[:], sides = block.misfit(laws, shares)
            for side, part in sides:
                by_logits[..., side.cells] += part
        inner = self.sums(by_logits * laws)
        by_logits -= self.of_cells(inner)
        by_logits *= shares
        by_weights = inner.sum(axis=-1) / 2
        by_tilts = weights * (by_weights - (weights * by_weights).sum(axis=-1, keepdims=True))
        return misfit, [by_logits, by_tilts]

    def sums(self, values: Single) -> Single:
        """Return sums over each column's cells."""
        return (values.reshape(-1, values.shape[-1]) @ self.segments).reshape(*values.shape[:-1], -1)

    def of_cells(self, values: Single) -> Single:
        """Return values of columns at each of their cells."""
        return (values.reshape(-1, values.shape[-1]) @ self.segments.T).reshape(*values.shape[:-1], -1)


def _block_diagonal(blocks: Sequence[FloatArray]) -> FloatArray:
    """Return blocks along the diagonal of a matrix of zeros; SciPy's own costs a first answer a third of a second."""
    ends = np.cumsum([block.shape for block in blocks], axis=0)
    matrix = np.zeros(ends[-1])
    for block, (row, column) in zip(blocks, ends, strict=True):
        matrix[row - block.shape[0] : row, column - block.shape[1] : column] = block
    return matrix
