"""One column's distribution from its rows and from the noisy counts that private inference measured of it.

The rows' unbiased estimate x̂ of a column's cells has a known covariance C; a measured count y = h·x + noise of a known
variance is independent of it. So both are combined by generalised least squares (Aitken 1936), in the form that needs
no inverse of C, which is singular as the rows' number is known: with the counts' matrix H and variances M,

    K = C Hᵀ (H C Hᵀ + M)⁻¹,    x = x̂ + K (y − H x̂),    Cov x = C − K H C,

which is never above C. Maximum likelihood takes both likelihoods, a multinomial and a Gaussian one.

*Selection.* A value of text has a count only if that reached a threshold τ, which lifts counts near τ. Given that it
was reached, y has the mean hx + σζ and the variance σ²κ, with z = (hx − τ)/σ, ζ = φ(z)/Φ(z), κ = 1 − zζ − ζ²; and κ is
the slope of that mean too. So Fisher scoring for the truncated likelihood replaces y by what is linear in x about the
last estimate, at the variance σ²/κ: counts far above τ stay as they are, those about τ hardly count.

Counts of items are left out: inference cuts a row's items by another choice than the release does. So are those of
times, whose unit a plan does not tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import AlteredReleaseWarning, warn
from dpframe.estimate.axes import Axis, BinnedAxis
from dpframe.estimate.distribution import parts_of, quantiles_of, unresolved
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.likelihood import Refit, bootstrap_errors, project_to_simplex, rounded
from dpframe.estimate.merged_ranks import counts_of_ranks
from dpframe.estimate.moments import REPLICATES
from dpframe.plan.inferred import Inferred, Measured
from dpframe.spaces import Space
from dpframe.threads import one_thread

MOST_CELLS = 1_000
"""Cells up to which covariances are formed; of more, rows are taken alone."""

UNLIKELY = 1e-6
"""Probability below which counts that are so far from the rows are those of another table."""

NULLS_SHOW = 3.0
"""Standard errors by which nulls must show, for inference to take null for a value."""

_SCORINGS = 6
_FITS = 12

_BEYOND_USE = 1e3
"""Errors, in tables, that are mended by nothing: the bins are too narrow for the noise, and digits are lost."""

_COARSE = 4_096
"""Steps of real numbers from which on the part of a step that an edge may cut off is passed over."""


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Measured counts of a column's cells: ``counts`` = ``matrix`` · rows by cell + noise.

    ``matrix`` has the shape (counts, cells); ``least`` is what a count had to reach to be told of, or −∞.
    """

    matrix: FloatArray
    counts: FloatArray
    variances: FloatArray
    least: FloatArray

    def beside(self, other: CellCounts) -> CellCounts:
        """Return these counts and others of the same cells."""
        parts = [
            np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("matrix", "counts", "variances", "least")
        ]
        return CellCounts(*parts)

    def about(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return counts and variances as they are without selection, linear about numbers of rows by cell."""
        from scipy.special import log_ndtr

        here, sigma = self.matrix @ rows, np.sqrt(self.variances)
        z = np.clip((here - self.least) / sigma, -30.0, 30.0)
        lift = np.exp(-(z**2) / 2 - math.log(2 * math.pi) / 2 - log_ndtr(z))
        kept = np.clip(1 - z * lift - lift**2, 1e-3, 1.0)
        return here + (self.counts - here - sigma * lift) / kept, self.variances / kept

    def remeasured(self, rows: FloatArray, generator: np.random.Generator) -> CellCounts:
        """Return what would be measured of other rows."""
        counts = self.matrix @ rows + np.sqrt(self.variances) * generator.standard_normal(len(self.counts))
        return CellCounts(self.matrix, counts, self.variances, np.full(len(counts), -np.inf))


CellCount = tuple[FloatArray, float, float, float]
"""A row of the matrix, the count, its variance, and the least one that is told of."""


def cell_counts_of(axis: Axis, inferred: Inferred, parts: bool = False) -> CellCounts | None:
    """Return what inference measured of an axis's cells, or None if nothing that helps.

    With ``parts`` counts between edges that are not the cells' are told too, by the parts of cells that lie between.
    """
    limit = dict(inferred.thresholds).get(axis.name, -math.inf)
    mine = [measured for measured in inferred.measured if measured.column == axis.name]
    rules = _RULES | ({"intervals": _parts} if parts else {})
    cell_counts = [one for m in mine for one in rules[m.kind](m, axis, limit)]
    cell_counts += _nulls(mine, axis)
    if not cell_counts or axis.cells > MOST_CELLS or axis.name not in inferred.columns:
        return None
    matrix, counts, variances, least = (np.array(part, dtype=np.float64) for part in zip(*cell_counts, strict=True))
    return CellCounts(matrix, counts, variances, least)


def _nulls(measured: Sequence[Measured], axis: Axis) -> Iterator[CellCount]:
    """Yield the mean of all counts of nulls, if null is a value: then it showed by three standard errors."""
    known = [(m.missing, 1 / m.variance) for m in measured if m.missing is not None]
    if known and axis.has_null:
        weight = math.fsum(w for _, w in known)
        mean = math.fsum(count * w for count, w in known) / weight
        yield _indicator(axis, axis.cells - 1, axis.cells), mean, 1 / weight, NULLS_SHOW / math.sqrt(weight)


def _nothing(measured: Measured, axis: Axis, limit: float) -> Iterator[CellCount]:
    """Yield no count but that of nulls, which is yielded elsewhere."""
    return iter(())


def _values(measured: Measured, axis: Axis, limit: float) -> Iterator[CellCount]:
    """Yield the counts of values that have a cell of their own: not that in which all others are too."""
    space: Any = axis.column.space.inner_space
    places = {label: i for i, label in enumerate(space.labels()) if label != getattr(space, "other", None)}
    for value, count in zip(measured.cells, measured.counts, strict=False):
        if value in places and axis.grid is None:
            # Counts are whole: half a row below the threshold is where a smooth law has them begin.
            yield _indicator(axis, places[value], places[value] + 1), count, measured.variance, limit - 0.5


def _intervals(measured: Measured, axis: Axis, limit: float) -> Iterator[CellCount]:
    """Yield the counts between edges that are cells' edges too, added up where others lie between."""
    edges = axis.grid.edges if axis.grid is not None else tuple(range(axis.cells - axis.has_null + 1))
    cuts = [(i, code) for i, code in _cuts(measured, axis.column.space) if code in set(edges[1:-1])]
    if not cuts:
        return
    starts, cells = [0, *(i + 1 for i, _ in cuts)], [0, *(edges.index(code) for _, code in cuts), len(edges) - 1]
    home = -1
    if not axis.has_null and measured.missing is not None:
        # Nulls where the space holds none are coded as its fixed point.
        home = int(axis.cell_of(np.array([axis.column.space.inner_space.fixed_point]))[0])
    stops = [*starts[1:], len(measured.counts)]
    for (start, stop), (low, high) in zip(zip(starts, stops, strict=True), pairwise(cells), strict=True):
        extra = measured.missing if measured.missing is not None and low <= home < high else None
        count = sum(measured.counts[start:stop]) + (extra or 0)
        yield _indicator(axis, low, high), count, measured.variance * (stop - start + (extra is not None)), -math.inf


def _parts(measured: Measured, axis: Axis, limit: float) -> Iterator[CellCount]:
    """Yield the counts between edges, of the parts of cells that lie between them."""
    cuts = list(_cuts(measured, axis.column.space))
    if axis.grid is None or not cuts:
        return
    fine = np.array(axis.grid.edges, dtype=np.float64)
    coarse = [0.0, *(float(code) for _, code in cuts), fine[-1]]
    starts = [0, *(i + 1 for i, _ in cuts)]
    home = None
    if not axis.has_null and measured.missing is not None:
        home = float(axis.column.space.inner_space.fixed_point)
    for (start, stop), (low, high) in zip(pairwise([*starts, len(measured.counts)]), pairwise(coarse), strict=True):
        inside = np.maximum(np.minimum(fine[1:], high) - np.maximum(fine[:-1], low), 0.0) / np.diff(fine)
        extra = measured.missing if home is not None and low <= home < high else None
        count = sum(measured.counts[start:stop]) + (extra or 0)
        row = np.append(inside, np.zeros(axis.cells - len(inside)))
        yield row, count, measured.variance * (stop - start + (extra is not None)), -math.inf


_RULES: dict[str, Callable[[Measured, Axis, float], Iterator[CellCount]]] = {
    "intervals": _intervals,
    "values": _values,
    "ranks": _nothing,
    "nulls": _nothing,
    "items": _nothing,
    "kinds": _nothing,
}


def _cuts(measured: Measured, space: Space) -> Iterator[tuple[int, int]]:
    """Yield the edges, by position, that part the codes of a space, and the first code from there on.

    An edge of whole numbers does if no code has values on both sides of it; one of reals always, but for part of a
    step.
    """
    grid: Any = space.inner_space
    if measured.kind != "intervals" or grid.is_time or grid.is_listed or not grid.is_numeric:
        return
    if not grid.is_whole and grid.steps < _COARSE:
        return
    inside = [(i, edge) for i, edge in enumerate(measured.cells) if grid.lower < edge <= grid.upper]
    if not inside:
        return
    codes = grid.encode(np.array([edge for _, edge in inside])).astype(np.int64).tolist()
    before = codes
    if grid.is_whole:
        before = grid.encode(np.array([edge - 1 for _, edge in inside])).astype(np.int64).tolist()
    last = 0
    for (i, _), code, lower in zip(inside, codes, before, strict=True):
        if code > last and (not grid.is_whole or lower < code):
            last = code
            yield i, code


def _indicator(axis: Axis, low: int, high: int) -> FloatArray:
    indicator = np.zeros(axis.cells)
    indicator[low:high] = 1.0
    return indicator


def snapped(axis: BinnedAxis, inferred: Inferred) -> BinnedAxis:
    """Return a grid of as many cells whose nearest edges are moved to those that counts were measured between."""
    edges, taken = list(axis.edges), {0, 1, len(axis.edges) - 1}
    cuts = {code for m in inferred.measured if m.column == axis.name for _, code in _cuts(m, axis.column.space)}
    for code in sorted(cuts):
        at = int(np.argmin(np.abs(np.array(axis.edges) - code)))
        if at not in taken:
            edges[at] = code
            taken.add(at)
    return BinnedAxis(axis.column, tuple(sorted(set(edges))), axis.bounds)


@one_thread
def combine(
    axis: Axis, counts: FloatArray, measured: CellCounts, weight: float = 1.0, sampling: float = 0.0
) -> tuple[FloatArray, FloatArray, float]:
    """Return rows by cell, their covariance, and the probability of counts as far from the rows as those measured.

    Parameters
    ----------
    axis, counts
        The column's cells, and its released rows by class.
    measured
        What was measured of the cells.
    weight, sampling
        Of a table of N rows of which m were released: N/m and (N−m)/(N−1).

    Returns
    -------
    Estimated rows of the table, shape (cells,), their covariance, shape (cells, cells), and a p-value.
    """
    from scipy.stats import chi2

    surrogates, n = axis.surrogates, float(counts.sum())
    alone = surrogates @ counts
    # Half a row more in every cell: no cell that seems empty is taken for certain.
    shares = project_to_simplex(alone / n) * n + 0.5
    shares /= shares.sum()
    noise = (surrogates * (axis.channel @ shares)) @ surrogates.T
    covariance = n * weight**2 * (noise - (1 - sampling) * np.diag(shares) - sampling * np.outer(shares, shares))
    alone = alone * weight
    estimate, noisy, variances = alone, measured.counts, measured.variances
    for _ in range(_SCORINGS):
        estimate, spread, distance = _updated(alone, covariance, measured.matrix, noisy, variances)
        if not np.isfinite(measured.least).any():
            break
        noisy, variances = measured.about(estimate)
    return estimate, spread, float(chi2.sf(distance, len(noisy)))


def _updated(
    alone: FloatArray, covariance: FloatArray, matrix: FloatArray, noisy: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return x, its covariance, and the squared distance (y − H x̂)ᵀ(H C Hᵀ + M)⁻¹(y − H x̂).

    With C = L Lᵀ and M^(−½) H L = U S Vᵀ, Cov x = L V (1 + S²)⁻¹ Vᵀ Lᵀ: no difference of what may be far larger.
    """
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    scale = 1 / np.sqrt(variances)
    u, s, vt = np.linalg.svd(matrix @ root * scale[:, None])
    apart = u.T @ ((noisy - matrix @ alone) * scale)
    r, back = len(s), root @ vt.T
    estimate = alone + back[:, :r] @ (s / (1 + s**2) * apart[:r])
    left = np.ones(back.shape[1])
    left[:r] = 1 / (1 + s**2)
    weights = np.ones(len(apart))
    weights[:r] = left[:r]
    return estimate, (back * left) @ back.T, float(weights @ apart**2)


def _presented(
    rows: FloatArray, covariance: FloatArray, axis: Axis, normalize: bool, dropna: bool
) -> tuple[FloatArray, FloatArray]:
    """Return counts or shares (of the rows that are not null, if nulls are left out), and their variances."""
    if not normalize:
        return rows, np.diag(covariance)
    base = np.ones(len(rows))
    base[axis.cells - (dropna and axis.has_null) :] = 0.0
    total = float(base @ rows)
    shares = rows / total
    # r = x / b·x has the gradient (1 − r bᵀ) / b·x.
    slope = (np.eye(len(rows)) - np.outer(shares, base)) / total
    return shares, np.einsum("ij,jk,ik->i", slope, covariance, slope)


@dataclass(frozen=True, eq=False)
class CombinedDistribution:
    """A column's distribution by maximum likelihood of its rows and of measured counts.

    ``n`` is the number of released rows, ``rows`` that of the table.
    """

    axis: Any
    n: int
    rows: float
    shares: FloatArray
    measured: CellCounts

    @classmethod
    def fit(cls, axis: Axis, counts: FloatArray, measured: CellCounts, rows: float) -> CombinedDistribution:
        """Fit to counts of released classes, and to measured counts."""
        flat = np.full(axis.cells, 1 / axis.cells)
        return cls(axis, int(counts.sum()), rows, _fitted(counts, axis.channel, measured, rows, flat), measured)

    def errors_of(self, function: Callable[[FloatArray], FloatArray], target: str | float) -> FloatArray:
        """Return the root mean squared error of a function of the shares, by parametric bootstrap."""
        return bootstrap_errors(self._of_population if target in ("population", 1.0) else self._of_table, function)

    source = "rows"

    def parts_of(self, parts: FloatArray, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return shares of the rows of which ``parts`` tells how much of each cell, and their standard errors."""
        return parts_of(self, parts, sampling)

    def known(self, law: FloatArray) -> FloatArray | float:
        """Return the information that the measured counts have of shares with these laws within them."""
        seen = self.measured.matrix @ law * self.rows
        return np.asarray(seen.T @ (seen / self.measured.variances[:, None]))

    def unresolved(self, parts: FloatArray) -> FloatArray:
        """Return by how much shares of parts of cells may be off as it does not show how rows lie."""
        return unresolved(self, parts)

    def quantiles_of(self, levels: FloatArray, sampling: float, z: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return codes of quantiles and the ends of their intervals at z standard errors."""
        return quantiles_of(self, levels, sampling, z)

    @property
    def likely(self) -> float:
        """A bound on the probability of measured counts as far from the fit as these.

        In least squares their squared distance from the fit is at most that from the rows alone, which is χ².
        """
        from scipy.stats import chi2

        noisy, variances = self.measured.about(self.rows * self.shares)
        apart = noisy - self.rows * self.measured.matrix @ self.shares
        return float(chi2.sf(float(apart @ (apart / variances)), len(noisy)))

    @cached_property
    def _of_table(self) -> list[Refit]:
        return list(self._replicas(False))

    @cached_property
    def _of_population(self) -> list[Refit]:
        return list(self._replicas(True))

    def _replicas(self, population: bool) -> Iterator[Refit]:
        """Yield pairs of a truth and the fit to what is released and measured of it, half a row added to each cell."""
        generator, size = np.random.default_rng(0), round(self.rows)
        channel = JointDomain.of([self.axis.channel])
        padded = self.shares * self.n + 0.5
        padded /= padded.sum()
        for _ in range(REPLICATES):
            table = generator.multinomial(size, padded) if population else rounded(padded * size, generator)
            released = table
            if self.n < size:
                released = generator.multivariate_hypergeometric(table, self.n, method="marginals")
            counts = channel.randomise(released, generator).astype(np.float64)
            noisy = self.measured.remeasured(table.astype(np.float64), generator)
            fit = _fitted(counts, self.axis.channel, noisy, self.rows, self.shares)
            yield (padded if population else table / table.sum()), fit


@one_thread
def _fitted(
    counts: FloatArray, channel: FloatArray, measured: CellCounts, rows: float, shares: FloatArray
) -> FloatArray:
    """Return the shares of greatest likelihood: Fisher scoring, every step a least-squares fit of shares from 0 up."""
    from scipy.optimize import lsq_linear

    n = float(counts.sum())
    observed = counts / n
    matrix, sigma = measured.matrix * rows, np.sqrt(measured.variances)

    def loss(t: FloatArray) -> float:
        expected = np.maximum(channel @ t, 1e-300)
        noisy, variances = measured.about(rows * t)
        return float(-n * (observed @ np.log(expected)) + np.sum((noisy - matrix @ t) ** 2 / variances) / 2)

    before = loss(shares)
    for _ in range(_FITS):
        scale = np.sqrt(n / np.maximum(channel @ shares, 1e-12))
        noisy, variances = measured.about(rows * shares)
        sigma = np.sqrt(variances)
        # Shares add up to one: the last row, of a weight beyond the others'.
        design = np.vstack([channel * scale[:, None], matrix / sigma[:, None], np.full((1, len(shares)), 10.0 * rows)])
        aim = np.concatenate([observed * scale, noisy / sigma, [10.0 * rows]])
        q, r = np.linalg.qr(design)
        # nnls of SciPy below 1.15 may find no end here.
        target = np.asarray(lsq_linear(r, q.T @ aim, (0.0, np.inf), method="bvls").x)
        target = target / target.sum()
        step = 1.0
        while step > 1e-3 and loss(shares + step * (target - shares)) > before:
            step /= 2
        if step <= 1e-3:
            break
        shares = shares + step * (target - shares)
        after = loss(shares)
        if before - after < 0.01:
            break
        before = after
    return shares


Key = tuple[str, tuple[int, ...]]


def _key(axis: Axis) -> Key:
    return axis.name, axis.grid.edges if axis.grid is not None else ()


class MeasuredCounts:
    """What a release's estimates take from the counts that its plan's inference measured.

    Of a table of N rows of which m were released, ``weight`` is N/m and ``sampling`` (N−m)/(N−1).
    """

    def __init__(self, inferred: Inferred, weight: float = 1.0, sampling: float = 0.0) -> None:
        self._inferred, self._weight, self._sampling = inferred, weight, sampling
        self._doubtful: set[str] = set()
        self._hopeless: set[Key] = set()
        self._fits: dict[Key, CombinedDistribution] = {}

    def measured(self, axis: Axis) -> CellCounts | None:
        """Return what was measured of an axis, unless its rows do not fit that."""
        known = axis.name not in self._doubtful and _key(axis) not in self._hopeless
        return cell_counts_of(axis, self._inferred) if known else None

    def ranks(self, column: str) -> Measured | None:
        """Return what was counted of a column's ranks, if that is what it has."""
        return None if column in self._doubtful else counts_of_ranks(self._inferred, column)

    def of_parts(self, axis: Axis) -> CellCounts | None:
        """Return the same of parts of an axis's cells, too."""
        return None if axis.name in self._doubtful else cell_counts_of(axis, self._inferred, parts=True)

    def snapped(self, axis: BinnedAxis) -> BinnedAxis:
        """Return a grid whose edges are moved to measured ones."""
        return snapped(axis, self._inferred)

    def cells(
        self,
        axis: Axis,
        counts: FloatArray,
        *,
        normalize: bool,
        dropna: bool,
        population: bool,
        more: CellCounts | None = None,
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return counts or shares of an axis's cells and their variances, or None where rows are all there is.

        ``more`` are counts of the cells that were measured besides.
        """
        measured = self.measured(axis)
        if measured is None or counts.sum() < 1:
            return None
        rows, covariance, likely = combine(axis, counts, measured, self._weight, self._sampling)
        total = float(counts.sum()) * self._weight
        if np.diag(covariance).max() > (_BEYOND_USE * total) ** 2:
            self._hopeless.add(_key(axis))
        if _key(axis) in self._hopeless or self._doubts(axis, likely):
            return None
        if more is not None:
            rows, covariance, _ = combine(axis, counts, measured.beside(more), self._weight, self._sampling)
        if population:
            shares = project_to_simplex(rows / total)
            covariance = covariance + total * (np.diag(shares) - np.outer(shares, shares))
        return _presented(rows, covariance, axis, normalize, dropna)

    def distribution(self, axis: Axis, count: Callable[[Axis], FloatArray]) -> CombinedDistribution | None:
        """Return the distribution over an axis's cells; None as above."""
        measured, key = self.measured(axis), _key(axis)
        if measured is None or key in self._fits:
            return self._fits.get(key)
        counts = count(axis.for_fits)
        if counts.sum() < 1:
            return None
        fit = CombinedDistribution.fit(axis.for_fits, counts, measured, float(counts.sum()) * self._weight)
        if self._doubts(axis, fit.likely):
            return None
        self._fits[key] = fit
        return fit

    def _doubts(self, axis: Axis, likely: float) -> bool:
        """Tell, and say once, whether counts are too far from the rows to be of the same table."""
        if likely >= UNLIKELY:
            return False
        self._doubtful.add(axis.name)
        warn(
            f"what inference measured of column {axis.name!r} is too far from its rows: the plan was made from another "
            "table; its rows are taken alone, and use_measured=False does so for all columns",
            AlteredReleaseWarning,
        )
        return True
