"""The likelihood of the shares of a table's cells, given noisy rows and noisy counts: its maximum, and its profile.

With o the released rows by class, A = P(class | cell), and counts y of H·(N t) with variances v,

    ℓ(t) = Σ o log(A t) − Σ (y − N H t)² / 2v,

which is concave. A step maximises a lower bound that touches ℓ: Jensen's for the rows, as in
expectation–maximisation (iterative Bayesian update), and De Pierro's (1995) for the squares. Each share is then the
root of its own quadratic. The multiplier of Σt = 1 comes from the step before, and the shares are normalised. If this
lowers the likelihood, the multiplier is solved for. Steps are extrapolated (SQUAREM, Varadhan and Roland 2008), unless
the plain step is likelier.

Intervals of shares use the profile likelihood: the shares of a part of the cells at which rows and counts are not much
less likely. Few steps fit the law of the other cells, so that it stays as smooth as a fit. So a heap widens only the
intervals of the ranges that might cut it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpframe.observe.noisy_counts import through
from dpframe.observe.observation import Observation
from dpframe.plan.threads import one_thread
from dpframe.spaces.arrays import FloatArray

Rows = npt.NDArray[np.int64]

Refit = tuple[FloatArray, FloatArray]
"""True shares of a replicate table, and the fit to its release."""

MAX_LIKELIHOOD_STEPS = 300
"""Steps after which a fit ends at the latest (tuned; effect below).

A joint's goal may be out of reach where cells are empty. A column's likelihood hardly rises any more, and further
steps fit the noise: on a census's ages and incomes, 5,000 to 200,000 rows and ε from 2 to 20, the total error
of ten bins is 1.4 to 2.5 times as large after 3,000 steps as after these.
"""

_LIKELIHOOD_TOLERANCE = 0.05
"""Log-likelihood that a fit may still gain when it ends (tolerance)."""

_EVEN_SHARE = 0.02
"""Share of all rows that a profile's start spreads evenly: a share at zero could not rise (tolerance)."""

_PROFILE_STEPS = 80
"""Steps of a profile's fit, three to an extrapolation (limit of time)."""
_INTERVAL_HALVINGS = 8
"""Bisections of an interval's end (tolerance)."""
_NEWTON_STEPS = 20
"""Newton steps for the multiplier (tolerance)."""

_MAX_BATCH_CELLS = 1 << 18
"""Cells of all bootstrap tables in one batch of fits (limit of memory)."""

_POPULATION_ROWS = 1_000_000_000
"""Rows of a table above which its errors are a population's, which are larger (tolerance)."""


class Channel(Protocol):
    """P(class | cell), on arrays with one dimension per column; shares and values may have one more for several fits.

    `dpframe.estimate.joint_domain.JointDomain` is the channel of columns some of which were randomised together.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each column."""

    @property
    def laws(self) -> Sequence[FloatArray]:
        """P(class | cell) of each column by itself, shape (classes, cells)."""

    def spread(self, shares: FloatArray) -> FloatArray:
        """Return the law of the classes from the law of the cells."""

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply the transpose of `spread`."""

    def randomise(self, rows: Rows, generator: np.random.Generator) -> Rows:
        """Draw the classes of rows that are counted by cell."""


@dataclass(frozen=True, eq=False)
class Matrices:
    """The channel of columns whose noise is independent; see `Channel`."""

    laws: tuple[FloatArray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each column."""
        return tuple(law.shape[1] for law in self.laws)

    def spread(self, shares: FloatArray) -> FloatArray:
        """Return the law of the classes."""
        return reduce(lambda array, place: through(self.laws[place], array, place), range(len(self.laws)), shares)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply the transpose."""
        return reduce(lambda array, place: through(self.laws[place].T, array, place), range(len(self.laws)), values)

    def randomise(self, rows: Rows, generator: np.random.Generator) -> Rows:
        """Draw classes."""
        places = range(len(self.laws))
        return reduce(lambda array, place: randomised(self.laws[place], array, place, generator), places, rows)


Channels = Channel | Sequence[FloatArray]
"""The channel of some columns, or P(class | cell) of each if their noise is independent."""


def channel_of(channels: Channels) -> Channel:
    """Return the channel of columns."""
    return Matrices(tuple(channels)) if isinstance(channels, Sequence) else channels


def randomised(law: FloatArray, rows: Rows, place: int, generator: np.random.Generator) -> Rows:
    """Draw the classes of one column of rows that are counted by cell, from a multinomial law per cell."""
    laws, cell_rows = (law / law.sum(axis=0)).T, np.moveaxis(rows, place, 0)
    if rows.ndim == 1:
        return np.asarray(generator.multinomial(rows, laws).sum(axis=0))
    out = np.zeros((law.shape[0], *cell_rows.shape[1:]), dtype=np.int64)
    for class_law, cell_slice in zip(laws, cell_rows, strict=True):
        classes = generator.multinomial(cell_slice.ravel(), class_law)
        out += np.moveaxis(classes.reshape(*cell_slice.shape, -1), -1, 0)
    return np.moveaxis(out, 0, place)


@dataclass(frozen=True, eq=False)
class Seen:
    """Released rows by class, shape (*classes, fits), and counts of cells, shape (counts, fits)."""

    rows: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, rows: FloatArray, counts: FloatArray | None = None) -> Seen:
        """Return the data of one table, for one fit."""
        return cls(rows[..., None], np.zeros((0, 1)) if counts is None else counts[:, None])

    def repeated(self, fits: int) -> Seen:
        """Repeat one table's data for several fits."""
        return Seen(np.repeat(self.rows, fits, axis=-1), np.repeat(self.counts, fits, axis=-1))

    def __getitem__(self, fits: npt.NDArray[np.bool_]) -> Seen:
        return Seen(self.rows[..., fits], self.counts[..., fits])


@dataclass(frozen=True, eq=False)
class _Point:
    shares: FloatArray
    law: FloatArray
    likelihood: FloatArray

    @property
    def values(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.shares, self.law, self.likelihood

    def __getitem__(self, fits: npt.NDArray[np.bool_]) -> _Point:
        return _Point(*(values[..., fits] for values in self.values))


Parts = tuple[FloatArray, FloatArray]
"""Two parts of the cells with a fixed ratio of shares, each 0 or 1 by cell, shape (cells, fits)."""


@dataclass(frozen=True, eq=False)
class Shares:
    """The likelihood of shares, of the shape (*cells, fits): several fits run side by side.

    ``matrix`` has the shape (counts, cells), ``variances`` (counts,). ``rows`` is the number of rows of the counted
    table. Counts are of the cells of one column.
    """

    channel: Channel
    matrix: FloatArray
    variances: FloatArray
    rows: float

    @classmethod
    def of(cls, channels: Channels, facts: Observation | None = None, rows: float = 0.0) -> Shares:
        """Return the likelihood of rows, and of any counts of cells."""
        channel = channel_of(channels)
        if facts is None:
            return cls(channel, np.zeros((0, channel.shape[0])), np.zeros(0), rows)
        return cls(channel, facts.matrix, facts.variances, rows)

    @one_thread
    def fitted(
        self,
        seen: Seen,
        *,
        start: FloatArray | None = None,
        divergence: float | FloatArray = 0.0,
        max_steps: int = MAX_LIKELIHOOD_STEPS,
    ) -> FloatArray:
        """Return the most likely shares, shape (*cells, fits).

        A fit that has ended stays unchanged while the others go on.

        ``start``: initial shares; by default even ones. ``divergence``: divergence of the rows from a fit, per row, at
        which the fit ends; one for all fits, or one for each. ``max_steps``: steps at most.
        """
        fits, shape = seen.rows.shape[-1], self.channel.shape
        estimates = np.full((*shape, fits), 1.0 / np.prod(shape)) if start is None else start.copy()
        totals = np.maximum(_sum_cells(seen.rows), 1.0)
        enough = _sum_cells(seen.rows * np.log(np.where(seen.rows > 0, seen.rows / totals, 1.0))) - totals * divergence
        going, point = np.arange(fits), self._evaluate(estimates, seen)
        for _ in range(max_steps // 3):
            first, slope = self._update_shares(point, seen)
            # By concavity, an upper bound of the remaining gain.
            to_gain = slope.max(axis=tuple(range(slope.ndim - 1))) - _sum_cells(slope * point.shares)
            is_at_goal = (to_gain < _LIKELIHOOD_TOLERANCE) | (point.likelihood >= enough)
            next_ = self._evaluate(first, seen)
            has_ended = is_at_goal | (next_.likelihood >= enough)
            if has_ended.any():
                estimates[..., going[has_ended]] = np.where(is_at_goal, point.shares, first)[..., has_ended]
                going = going[~has_ended]
                seen = seen[~has_ended]
                enough = enough[~has_ended]
                point = point[~has_ended]
                next_ = next_[~has_ended]
                if not len(going):
                    return estimates
            point = self._extrapolate(point, next_, seen)
        estimates[..., going] = point.shares
        return estimates

    def likelihood(self, shares: FloatArray, seen: Seen) -> FloatArray:
        """Return the log-likelihood of every fit up to a constant, shape (fits,)."""
        return self._evaluate(shares, seen).likelihood

    def _evaluate(self, shares: FloatArray, data: Seen) -> _Point:
        law = np.maximum(self.channel.spread(shares), 1e-300)
        likelihood = _sum_cells(data.rows * np.log(law))
        if len(self.variances):
            residuals = data.counts - self.rows * (self.matrix @ shares)
            likelihood = likelihood - (residuals**2 / (2 * self.variances[:, None])).sum(axis=0)
        return _Point(shares, law, likelihood)

    def _update_shares(self, point: _Point, data: Seen, parts: Parts | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the next shares, and the gradient of the log-likelihood at the present ones."""
        shares = point.shares
        slope = self.channel.adjoint(data.rows / point.law)
        next_shares = shares * slope
        if len(self.variances):
            weight = self.rows / self.variances[:, None]
            pull = self.matrix.T @ (weight * data.counts)
            push = self.matrix.T @ (weight * self.rows * (self.matrix @ shares))
            level = (next_shares + shares * (pull - push)).sum(axis=0)
            level_shares = _solve_level(level, next_shares, shares, pull, push)[0]
            level_shares = level_shares / np.maximum(level_shares.sum(axis=0), 1e-300)
            is_worse = self.likelihood(level_shares, data) < point.likelihood
            if is_worse.any():
                # The sum of shares is convex in λ: Newton's steps near the λ where it is 1 from one side, on which no
                # share is above 1.
                level, terms = level[is_worse], [x[:, is_worse] for x in (next_shares, shares, pull, push)]
                level_bounds = (terms[0] + terms[2] - terms[3] / np.maximum(terms[1], 1e-300)).max(axis=0)
                for _ in range(_NEWTON_STEPS):
                    level = np.maximum(level, level_bounds)
                    newton_shares, share_slopes = _solve_level(level, *terms)
                    level = level + (newton_shares.sum(axis=0) - 1) / np.maximum(share_slopes.sum(axis=0), 1e-300)
                level_shares[:, is_worse] = newton_shares
            next_shares, slope = level_shares, slope + pull - push
        if parts is not None:
            sums_before, sums_after = ([(part * x).sum(axis=0) for part in parts] for x in (shares, next_shares))
            ratio = sum(sums_after) / np.maximum(sum(sums_before), 1e-300)
            next_shares = _rescale_parts(next_shares, parts, [part_sum * ratio for part_sum in sums_before])
        return next_shares / np.maximum(_sum_cells(next_shares), 1e-300), slope

    def _extrapolate(self, point: _Point, first: _Point, data: Seen, parts: Parts | None = None) -> _Point:
        """Extrapolate two steps and take another, or return the second step in fits in which it is likelier."""
        second, _ = self._update_shares(first, data, parts)
        shares = point.shares
        r, v = first.shares - shares, second - 2 * first.shares + shares
        # Bounded, for a fit that does not move has no step to extrapolate.
        length = np.clip(np.sqrt(_sum_cells(r * r)) / np.maximum(np.sqrt(_sum_cells(v * v)), 1e-9), 1.0, 1e6)
        # A share below a thousandth of its plain step would hardly come back.
        jump = np.maximum(shares + 2 * length * r + length**2 * v, second * 1e-3 + 1e-300)
        jump = jump / _sum_cells(jump)
        if parts is not None:
            jump = _rescale_parts(jump, parts, [(part * second).sum(axis=0) for part in parts])
            jump = jump / np.maximum(jump.sum(axis=0), 1e-300)
        next_shares, _ = self._update_shares(self._evaluate(jump, data), data, parts)
        jump_point, plain_point = self._evaluate(next_shares, data), self._evaluate(second, data)
        is_better = jump_point.likelihood >= plain_point.likelihood
        if is_better.all():
            return jump_point
        return _Point(
            *(np.where(is_better, *arrays) for arrays in zip(jump_point.values, plain_point.values, strict=True))
        )

    @one_thread
    def lost(
        self,
        shares: FloatArray,
        seen: Seen,
        inside: FloatArray,
        levels: FloatArray,
        among: FloatArray,
        start: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the losses of log-likelihood at fixed shares of parts, and the fits with these shares.

        ``inside``: cells of each part, 0 or 1, shape (cells, parts). ``levels``: share of each part in the cells
        ``among``. ``among``: 0 or 1, shape (cells, 1).
        """
        fits = inside.shape[1]
        shares, seen = np.repeat(shares[:, None], fits, axis=1), seen.repeated(fits)
        parts = inside * among, (1 - inside) * among
        part_fit = (1 - _EVEN_SHARE) * shares + _EVEN_SHARE / len(shares) if start is None else start
        inside_sums, outside_sums = ((part * part_fit).sum(axis=0) for part in parts)
        part_fit = _rescale_parts(
            part_fit, parts, (levels * (inside_sums + outside_sums), (1 - levels) * (inside_sums + outside_sums))
        )
        point = self._evaluate(part_fit, seen)
        for _ in range(_PROFILE_STEPS // 3):
            first, _ = self._update_shares(point, seen, parts)
            point = self._extrapolate(point, self._evaluate(first, seen), seen, parts)
        return self.likelihood(shares, seen) - point.likelihood, point.shares

    def interval(self, shares: FloatArray, seen: Seen, inside: FloatArray, most: float, upper: bool) -> FloatArray:
        """Return the least or largest shares of parts, shape (parts,), at a loss ``most`` of log-likelihood.

        By bisection of the profile likelihood (Venzon and Moolgavkar 1988).
        """
        inner_shares, among = shares @ inside, np.ones((len(inside), 1))
        outer_shares, start = np.full_like(inner_shares, float(upper)), None
        for _ in range(_INTERVAL_HALVINGS):
            middle = (inner_shares + outer_shares) / 2
            losses, start = self.lost(shares, seen, inside, middle, among, start)
            inner_shares = np.where(losses <= most, middle, inner_shares)
            outer_shares = np.where(losses <= most, outer_shares, middle)
        return outer_shares


def _sum_cells(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=tuple(range(values.ndim - 1))))


def _rescale_parts(shares: FloatArray, parts: Parts, aims: Sequence[FloatArray]) -> FloatArray:
    """Rescale the shares of some parts of the cells to given sums."""
    scales = [aim / np.maximum((part * shares).sum(axis=0), 1e-300) for part, aim in zip(parts, aims, strict=True)]
    return np.asarray(shares * (1 + sum(part * (scale - 1) for part, scale in zip(parts, scales, strict=True))))


def _solve_level(
    level: FloatArray, rows: FloatArray, shares: FloatArray, pull: FloatArray, push: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the t with rows/t − push·t/shares + pull = λ in all cells, and −dt/dλ of each."""
    gaps = level - pull
    root_slopes = np.maximum(np.sqrt(gaps**2 + 4 * push * rows / np.maximum(shares, 1e-300)), 1e-300)
    # The root has two equal forms; the one without a difference loses no digits.
    lower = (root_slopes - gaps) * shares / np.maximum(2 * push, 1e-300)
    roots = np.where(gaps > 0, 2 * rows / np.maximum(gaps + root_slopes, 1e-300), lower)
    return roots, roots / root_slopes


# Shares of joints by maximum likelihood of their rows


def fit_joint(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of one joint; see `fit_joints`."""
    return fit_joints(counts[..., None], channels)[..., 0]


def fit_joints(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of joints, shape (*cells, fits), by maximum likelihood, stopped before they fit the noise.

    For one column the fit converges. For several columns, the maximum of the likelihood follows the noise to corners of
    the simplex: on Adult's pairs and triples at n = 32,561 and ε = 1.2 per column it is 1.3 to 1.5 times farther from
    the truth. So the fit starts from independence and ends by Morozov's principle. It ends as near to the counts as the
    true table is, at a divergence of `noise_share`·(classes − 1)/2n (Wilks).
    """
    model, data = Shares.of(channels), Seen(counts, np.zeros((0, counts.shape[-1])))
    if counts.ndim == 2:
        return model.fitted(data)
    shares = np.ones(counts.shape[-1:])
    for i, law in enumerate(model.channel.laws):
        other_axes = tuple(j for j in range(counts.ndim - 1) if j != i)
        shares = shares[..., None, :] * fit_joints(counts.sum(axis=other_axes), [law])
    start = np.asarray(0.99 * shares + 0.01 / shares[..., 0].size)
    share, rows = noise_share(model.channel, start), np.maximum(_sum_cells(counts), 1.0)
    goal = share * (counts[..., 0].size - 1) / (2 * rows)
    return model.fitted(data, start=start, divergence=goal)


def noise_share(channels: Channels, shares: FloatArray) -> FloatArray:
    """Return the share of the channel's noise, given the table, in the variance of the counts about their law.

    One number, or one for each of several tables, whose shares have the shape (*cells, tables).

    The count of a class y has the variance n·(At)_y if n rows are sampled anew. Given the table it is
    Σ_x n_x·P(y|x)(1 − P(y|x)). Both agree under strong noise, and differ if most rows are released unchanged.
    """
    laws = tuple(channel_of(channels).laws)
    law, squared_law = Matrices(laws).spread(shares), Matrices(tuple(one**2 for one in laws)).spread(shares)
    return np.asarray(np.mean(1 - squared_law / np.maximum(law, 1e-300), axis=tuple(range(len(laws)))))


def expectation_maximization(
    counts: FloatArray, channels: Channels, *, start: FloatArray | None = None, divergence: float = 0.0
) -> FloatArray:
    """Return the shares that make counts of released classes most likely; see `Shares.fitted`."""
    begin = None if start is None else start[..., None]
    return Shares.of(channels).fitted(Seen.of(counts), start=begin, divergence=divergence)[..., 0]


# Errors of fits, by parametric bootstrap


def released_again(
    shares: FloatArray, channel: Channel, n: int, rows: int, population: bool, generator: np.random.Generator
) -> Iterator[tuple[FloatArray, Rows, Rows]]:
    """Yield bootstrap releases without end: true shares, a table by cell, released rows by class.

    Every cell gets half a row first, so that no cell is empty for certain. The truth is the table of ``rows`` rows, of
    which n are released, or its population.
    """
    padded = shares * n + 0.5
    padded /= padded.sum()
    while True:
        if population:
            table = generator.multinomial(rows, padded.ravel()).reshape(padded.shape)
        else:
            # Random rounding keeps expectations.
            floors = np.floor(padded * rows)
            table = (floors + (generator.random(padded.shape) < padded * rows - floors)).astype(np.int64)
        total, released_rows = int(table.sum()), table
        if n < rows:
            released_rows = generator.multivariate_hypergeometric(table.ravel(), min(n, total), method="marginals")
        yield (
            padded if population else table / max(total, 1),
            table,
            channel.randomise(released_rows.reshape(table.shape), generator),
        )


def refits(
    shares: FloatArray,
    channel: Channel,
    n: int,
    fit: Callable[[FloatArray], FloatArray],
    sampling: float,
    replicates: int = 20,
) -> Iterator[Refit]:
    """Yield true shares of replicate tables, and the fits to their releases.

    ``fit`` returns fits, shape (*cells, fits), to counts of the shape (*classes, fits). ``sampling`` is (N−n)/(N−1) if
    n rows of N are released: 0 if all are, 1 if the table is a population.
    """
    rows = (n - sampling) / (1 - sampling) if sampling < 1 else _POPULATION_ROWS
    is_population, generator = rows >= _POPULATION_ROWS, np.random.default_rng(0)
    releases = released_again(shares, channel, n, n if is_population else round(rows), is_population, generator)
    batch_size = max(1, _MAX_BATCH_CELLS // shares.size)
    for start in range(0, replicates, batch_size):
        batch = list(islice(releases, min(batch_size, replicates - start)))
        fits = fit(np.stack([released for *_, released in batch], axis=-1).astype(np.float64))
        yield from ((truth, fits[..., i]) for i, (truth, *_) in enumerate(batch))


def bootstrap_errors(pairs: Iterable[Refit], presented: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return root mean squared errors of a presented fit, by parametric bootstrap."""
    squares = [(presented(fit) - presented(truth)) ** 2 for truth, fit in pairs]
    return np.asarray(np.sqrt(np.mean(squares, axis=0)))
