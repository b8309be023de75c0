"""The likelihood of the shares of a table's cells, given noisy rows and noisy counts: its maximum, and its profile.

With o the released rows by class, A = P(class | cell), and counts y of H·(N t) with variances v,

    ℓ(t) = Σ o log(A t) − Σ (y − N H t)² / 2v,

which is concave. A step takes a bound that touches it: Jensen's for the rows, as in expectation–maximisation (iterative
Bayesian update), and De Pierro's (1995) for the squares, so that each share is the root of a quadratic of its own. The
multiplier of Σt = 1 is that of the step before and the sum is restored, or it is solved for where this would lower the
likelihood. Steps are extrapolated (SQUAREM, Varadhan and Roland 2008), and taken back where they lower the likelihood.

Intervals of shares are by profile likelihood: the shares that a part of the cells may have without the rows and counts
being much less likely. The law of the other cells follows, by so many steps that it stays as smooth as a fit is. So a
heap widens the intervals of the ranges that might cut it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpframe.observe.observation import Observation
from dpframe.plan.threads import one_thread
from dpframe.spaces.arrays import FloatArray

Rows = npt.NDArray[np.int64]

Refit = tuple[FloatArray, FloatArray]
"""The shares of a table that was released again, and the fit to its release."""

MOST_STEPS = 300
"""Steps after which a fit ends at the latest (tuned; effect below).

A joint's goal may be out of reach where cells are empty. A column's likelihood hardly rises any more, and further
steps fit the noise: on a census's ages and incomes, 5,000 to 200,000 rows and ε from 2 to 20, the total error
of ten bins is 1.4 to 2.5 times as large after 3,000 steps as after these.
"""

_LEFT = 0.05
"""What is left to gain in likelihood when a fit ends (tolerance)."""

_OPEN = 0.02
"""Part of all rows that a profile's fit starts from in every cell alike: what is at zero stays there (tolerance)."""

_PROFILE_STEPS = 80
"""Steps of a profile's fit, three to an extrapolation (limit of time)."""
_HALVINGS = 8
"""Halvings of the stretch in which an interval ends (tolerance)."""
_NEWTON = 20
"""Newton steps of one coordinate (tolerance)."""

_TOGETHER = 1 << 18
"""Cells of all tables of a bootstrap that are fitted side by side (limit of memory)."""

_MANY_ROWS = 1_000_000_000
"""Rows from which on a table that is drawn from is taken as a population, whose errors are larger (tolerance)."""


class Channel(Protocol):
    """P(class | cell), on arrays with one dimension per column; shares and values may have one more, of several fits.

    `dpframe.estimate.joint_domain.JointDomain` is that of columns some of which were randomised together.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each column."""

    @property
    def laws(self) -> Sequence[FloatArray]:
        """P(class | cell) of each column by itself, shape (classes, cells)."""

    def spread(self, shares: FloatArray) -> FloatArray:
        """Return the law of the classes from that of the cells."""

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
        return reduce(lambda found, place: through(self.laws[place], found, place), range(len(self.laws)), shares)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply the transpose."""
        return reduce(lambda found, place: through(self.laws[place].T, found, place), range(len(self.laws)), values)

    def randomise(self, rows: Rows, generator: np.random.Generator) -> Rows:
        """Draw classes."""
        places = range(len(self.laws))
        return reduce(lambda found, place: randomised(self.laws[place], found, place, generator), places, rows)


Channels = Channel | Sequence[FloatArray]
"""The channel of some columns, or P(class | cell) of each where their noise is independent."""


def channel_of(channels: Channels) -> Channel:
    """Return the channel of columns."""
    return Matrices(tuple(channels)) if isinstance(channels, Sequence) else channels


def through(law: FloatArray, values: FloatArray, place: int) -> FloatArray:
    """Return an array, one of whose dimensions is taken through a matrix."""
    if not place and values.ndim <= 2:
        return np.asarray(law @ values)
    return np.moveaxis(np.tensordot(law, values, axes=(1, place)), 0, place)


def randomised(law: FloatArray, rows: Rows, place: int, generator: np.random.Generator) -> Rows:
    """Draw the classes of one column of rows that are counted by cell, from a multinomial law per cell."""
    laws, moved = (law / law.sum(axis=0)).T, np.moveaxis(rows, place, 0)
    if rows.ndim == 1:
        return np.asarray(generator.multinomial(rows, laws).sum(axis=0))
    out = np.zeros((law.shape[0], *moved.shape[1:]), dtype=np.int64)
    for own, part in zip(laws, moved, strict=True):
        classes = generator.multinomial(part.ravel(), own)
        out += np.moveaxis(classes.reshape(*part.shape, -1), -1, 0)
    return np.moveaxis(out, 0, place)


@dataclass(frozen=True, eq=False)
class Seen:
    """Released rows by class, shape (*classes, fits), and counts of cells, shape (counts, fits)."""

    rows: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, rows: FloatArray, counts: FloatArray | None = None) -> Seen:
        """Return what was seen of one table, for one fit."""
        return cls(rows[..., None], np.zeros((0, 1)) if counts is None else counts[:, None])

    def repeated(self, fits: int) -> Seen:
        """Return one table's for several fits."""
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
"""Two parts of the cells whose ratio stays what it is, each 0 or 1 by cell, shape (cells, fits)."""


@dataclass(frozen=True, eq=False)
class Shares:
    """The likelihood of shares, of the shape (*cells, fits): several fits are made side by side.

    ``matrix`` has the shape (counts, cells), ``variances`` (counts,); ``rows`` is the number of rows of the table that
    counts are of. Counts are of the cells of one column.
    """

    channel: Channel
    matrix: FloatArray
    variances: FloatArray
    rows: float

    @classmethod
    def of(cls, channels: Channels, facts: Observation | None = None, rows: float = 0.0) -> Shares:
        """Return the likelihood of rows, and of counts of cells where there are some."""
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
        max_steps: int = MOST_STEPS,
    ) -> FloatArray:
        """Return the most likely shares, shape (*cells, fits).

        A fit that has ended is left as it is while the others go on.

        ``start``: shares to begin with; by default even ones. ``divergence``: divergence of the rows from a fit, per
        row, at which it ends; one for all fits, or one for each. ``max_steps``: steps at most.
        """
        fits, shape = seen.rows.shape[-1], self.channel.shape
        found = np.full((*shape, fits), 1.0 / np.prod(shape)) if start is None else start.copy()
        totals = np.maximum(_total(seen.rows), 1.0)
        enough = _total(seen.rows * np.log(np.where(seen.rows > 0, seen.rows / totals, 1.0))) - totals * divergence
        going, at = np.arange(fits), self._at(found, seen)
        for _ in range(max_steps // 3):
            first, slope = self._step(at, seen)
            # A bound on what is left to gain, by concavity.
            to_gain = slope.max(axis=tuple(range(slope.ndim - 1))) - _total(slope * at.shares)
            here = (to_gain < _LEFT) | (at.likelihood >= enough)
            next_ = self._at(first, seen)
            over = here | (next_.likelihood >= enough)
            if over.any():
                found[..., going[over]] = np.where(here, at.shares, first)[..., over]
                going, seen, enough, at, next_ = going[~over], seen[~over], enough[~over], at[~over], next_[~over]
                if not len(going):
                    return found
            at = self._two_on(at, next_, seen)
        found[..., going] = at.shares
        return found

    def likelihood(self, shares: FloatArray, seen: Seen) -> FloatArray:
        """Return the logarithm of the likelihood of every fit, shape (fits,), but for a constant."""
        return self._at(shares, seen).likelihood

    def _at(self, shares: FloatArray, seen: Seen) -> _Point:
        law = np.maximum(self.channel.spread(shares), 1e-300)
        found = _total(seen.rows * np.log(law))
        if len(self.variances):
            apart = seen.counts - self.rows * (self.matrix @ shares)
            found = found - (apart**2 / (2 * self.variances[:, None])).sum(axis=0)
        return _Point(shares, law, found)

    def _step(self, at: _Point, seen: Seen, parts: Parts | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the next shares, and the slope of the likelihood at these."""
        shares = at.shares
        slope = self.channel.adjoint(seen.rows / at.law)
        moved = shares * slope
        if len(self.variances):
            weight = self.rows / self.variances[:, None]
            pull = self.matrix.T @ (weight * seen.counts)
            push = self.matrix.T @ (weight * self.rows * (self.matrix @ shares))
            level = (moved + shares * (pull - push)).sum(axis=0)
            found = _at_level(level, moved, shares, pull, push)[0]
            found = found / np.maximum(found.sum(axis=0), 1e-300)
            worse = self.likelihood(found, seen) < at.likelihood
            if worse.any():
                # The sum of shares is convex in λ: Newton's steps near the λ where it is 1 from one side, on which no
                # share is above 1.
                level, some = level[worse], [x[:, worse] for x in (moved, shares, pull, push)]
                least = (some[0] + some[2] - some[3] / np.maximum(some[1], 1e-300)).max(axis=0)
                for _ in range(_NEWTON):
                    level = np.maximum(level, least)
                    near, falls = _at_level(level, *some)
                    level = level + (near.sum(axis=0) - 1) / np.maximum(falls.sum(axis=0), 1e-300)
                found[:, worse] = near
            moved, slope = found, slope + pull - push
        if parts is not None:
            before, after = ([(part * x).sum(axis=0) for part in parts] for x in (shares, moved))
            ratio = sum(after) / np.maximum(sum(before), 1e-300)
            moved = _with_parts(moved, parts, [was * ratio for was in before])
        return moved / np.maximum(_total(moved), 1e-300), slope

    def _two_on(self, at: _Point, first: _Point, seen: Seen, parts: Parts | None = None) -> _Point:
        """Return a step on from where two steps point to, or the second of them where that is more likely."""
        second, _ = self._step(first, seen, parts)
        shares = at.shares
        r, v = first.shares - shares, second - 2 * first.shares + shares
        # Bounded, for a fit that does not move has no step to extrapolate.
        length = np.clip(np.sqrt(_total(r * r)) / np.maximum(np.sqrt(_total(v * v)), 1e-9), 1.0, 1e6)
        # A share below a thousandth of its plain step would hardly come back.
        jump = np.maximum(shares + 2 * length * r + length**2 * v, second * 1e-3 + 1e-300)
        jump = jump / _total(jump)
        if parts is not None:
            jump = _with_parts(jump, parts, [(part * second).sum(axis=0) for part in parts])
            jump = jump / np.maximum(jump.sum(axis=0), 1e-300)
        moved, _ = self._step(self._at(jump, seen), seen, parts)
        far, near = self._at(moved, seen), self._at(second, seen)
        better = far.likelihood >= near.likelihood
        if better.all():
            return far
        return _Point(*(np.where(better, *both) for both in zip(far.values, near.values, strict=True)))

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
        """Return by how much a part's share of some cells lowers the likelihood, and the fits that have it.

        ``inside`` says which cells make up each part, 0 or 1, shape (cells, parts); ``levels`` are the parts' shares of
        the cells ``among``, which is 0 or 1, shape (cells, 1).
        """
        fits = inside.shape[1]
        shares, seen = np.repeat(shares[:, None], fits, axis=1), seen.repeated(fits)
        parts = inside * among, (1 - inside) * among
        found = (1 - _OPEN) * shares + _OPEN / len(shares) if start is None else start
        held, left = ((part * found).sum(axis=0) for part in parts)
        found = _with_parts(found, parts, (levels * (held + left), (1 - levels) * (held + left)))
        at = self._at(found, seen)
        for _ in range(_PROFILE_STEPS // 3):
            first, _ = self._step(at, seen, parts)
            at = self._two_on(at, self._at(first, seen), seen, parts)
        return self.likelihood(shares, seen) - at.likelihood, at.shares

    def interval(self, shares: FloatArray, seen: Seen, inside: FloatArray, most: float, upper: bool) -> FloatArray:
        """Return the least or largest shares of parts, shape (parts,), that lower the likelihood by ``most``.

        By bisection of the profile likelihood (Venzon and Moolgavkar 1988).
        """
        near, among = shares @ inside, np.ones((len(inside), 1))
        far, start = np.full_like(near, float(upper)), None
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            lost, start = self.lost(shares, seen, inside, middle, among, start)
            near, far = np.where(lost <= most, middle, near), np.where(lost <= most, far, middle)
        return far


def _total(values: FloatArray) -> FloatArray:
    return np.asarray(values.sum(axis=tuple(range(values.ndim - 1))))


def _with_parts(shares: FloatArray, parts: Parts, aims: Sequence[FloatArray]) -> FloatArray:
    """Return shares, so many of them in each of some parts of the cells."""
    scales = [aim / np.maximum((part * shares).sum(axis=0), 1e-300) for part, aim in zip(parts, aims, strict=True)]
    return np.asarray(shares * (1 + sum(part * (scale - 1) for part, scale in zip(parts, scales, strict=True))))


def _at_level(
    level: FloatArray, rows: FloatArray, shares: FloatArray, pull: FloatArray, push: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the t with rows/t − push·t/shares + pull = λ in all cells, and by how much each falls in λ."""
    least = level - pull
    under = np.maximum(np.sqrt(least**2 + 4 * push * rows / np.maximum(shares, 1e-300)), 1e-300)
    # The one of two equal forms of the root that is no difference.
    lower = (under - least) * shares / np.maximum(2 * push, 1e-300)
    found = np.where(least > 0, 2 * rows / np.maximum(least + under, 1e-300), lower)
    return found, found / under


# Shares of joints by maximum likelihood of their rows


def fit_joint(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of one joint; see `fit_joints`."""
    return fit_joints(counts[..., None], channels)[..., 0]


def fit_joints(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of joints, shape (*cells, fits), by maximum likelihood, stopped before they fit the noise.

    For one column the fit converges. For several, likelihood's maximum lies on corners of the simplex that
    noise chose (on Adult's pairs and triples at n = 32,561 and ε = 1.2 per column it is 1.3 to 1.5 times
    farther from the truth), so the fit starts from independence and ends by Morozov's principle: when it is
    as near to the counts as the table would be, at a divergence of `noise_share`·(classes − 1)/2n (Wilks).
    """
    model, seen = Shares.of(channels), Seen(counts, np.zeros((0, counts.shape[-1])))
    if counts.ndim == 2:
        return model.fitted(seen)
    shares = np.ones(counts.shape[-1:])
    for i, law in enumerate(model.channel.laws):
        others = tuple(j for j in range(counts.ndim - 1) if j != i)
        shares = shares[..., None, :] * fit_joints(counts.sum(axis=others), [law])
    start = np.asarray(0.99 * shares + 0.01 / shares[..., 0].size)
    share, rows = noise_share(model.channel, start), np.maximum(_total(counts), 1.0)
    goal = share * (counts[..., 0].size - 1) / (2 * rows)
    return model.fitted(seen, start=start, divergence=goal)


def noise_share(channels: Channels, shares: FloatArray) -> FloatArray:
    """Return what part of the counts' variance about their law is noise of the channel, given the table's own type.

    One number, or one for each of several tables, whose shares have the shape (*cells, tables).

    A class y of n rows drawn anew has variance n·(At)_y, given the table Σ_x n_x·P(y|x)(1 − P(y|x)): the two are
    alike where noise is strong, and apart where most rows are released as they are.
    """
    laws = tuple(channel_of(channels).laws)
    law, kept = Matrices(laws).spread(shares), Matrices(tuple(one**2 for one in laws)).spread(shares)
    return np.asarray(np.mean(1 - kept / np.maximum(law, 1e-300), axis=tuple(range(len(laws)))))


def expectation_maximization(
    counts: FloatArray, channels: Channels, *, start: FloatArray | None = None, divergence: float = 0.0
) -> FloatArray:
    """Return the shares that make counts of released classes most likely; see `Shares.fitted`."""
    begin = None if start is None else start[..., None]
    return Shares.of(channels).fitted(Seen.of(counts), start=begin, divergence=divergence)[..., 0]


# Errors of what is fitted, by parametric bootstrap


def released_again(
    shares: FloatArray, channel: Channel, n: int, rows: int, population: bool, generator: np.random.Generator
) -> Iterator[tuple[FloatArray, Rows, Rows]]:
    """Yield without end what an estimate lets a release be: true shares, a table by cell, released rows by class.

    Half a row is added to every cell first, so that a cell estimated as empty is not taken for certain. The truth is
    the table of so many rows, n released, or the population that it is drawn from.
    """
    padded = shares * n + 0.5
    padded /= padded.sum()
    while True:
        if population:
            table = generator.multinomial(rows, padded.ravel()).reshape(padded.shape)
        else:
            # Rounded at random, so that expectations stay.
            whole = np.floor(padded * rows)
            table = (whole + (generator.random(padded.shape) < padded * rows - whole)).astype(np.int64)
        total, kept = int(table.sum()), table
        if n < rows:
            kept = generator.multivariate_hypergeometric(table.ravel(), min(n, total), method="marginals")
        yield (
            padded if population else table / max(total, 1),
            table,
            channel.randomise(kept.reshape(table.shape), generator),
        )


def refits(
    shares: FloatArray,
    channel: Channel,
    n: int,
    fit: Callable[[FloatArray], FloatArray],
    sampling: float,
    replicates: int = 20,
) -> Iterator[Refit]:
    """Yield true shares of tables that are released again, and the fits to their releases.

    ``fit`` returns fits, shape (*cells, fits), to counts of the shape (*classes, fits). ``sampling`` is (N−n)/(N−1)
    where n rows of N are released: at 0 all of them are, at 1 the table is a population.
    """
    rows = (n - sampling) / (1 - sampling) if sampling < 1 else _MANY_ROWS
    drawn, generator = rows >= _MANY_ROWS, np.random.default_rng(0)
    again = released_again(shares, channel, n, n if drawn else round(rows), drawn, generator)
    each = max(1, _TOGETHER // shares.size)
    for start in range(0, replicates, each):
        some = list(islice(again, min(each, replicates - start)))
        fits = fit(np.stack([released for *_, released in some], axis=-1).astype(np.float64))
        yield from ((truth, fits[..., i]) for i, (truth, *_) in enumerate(some))


def bootstrap_errors(pairs: Iterable[Refit], presented: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return root mean squared errors of what is presented of a fit, by parametric bootstrap."""
    squares = [(presented(fit) - presented(truth)) ** 2 for truth, fit in pairs]
    return np.asarray(np.sqrt(np.mean(squares, axis=0)))
