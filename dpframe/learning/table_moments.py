"""Second moments of columns from measured tables: of every pair its raw table, of every column all tables that hold it.

A table is unbiased, and its noise independent between cells and tables, so errors are sums of squares. Numbers are
in bins: with both taken for the means of their bins a covariance is too small by the part R of each variance that lies
between bins, where either's mean is linear in the other. It is divided by both, and half of what that adds is taken
for its error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpframe.estimate.model import Model
from dpframe.learning.base import FloatArray
from dpframe.learning.features import ColumnBlock, FunctionMoments

LIKELY_SQUARE = 0.1
"""Square of a coefficient to expect, of a target and features that run from −1 to 1."""

LEAST_BETWEEN = 0.05
"""Least part of a number's variance that is taken to lie between bins."""


@dataclass(frozen=True, eq=False)
class CellFunctions:
    """A column's functions by cell of the fit, around their means.

    ``centred`` has shape (cells, q), 0 where the column is null in a way that leaves rows out; ``present`` is True
    where it is not; ``mean`` is of the rows that are left; ``second`` is the mean of products over all rows, within
    bins too; ``between`` is the part of the variance between bins. ``around`` are the functions by the finest cells
    that are known, and ``variances`` those of their counts.
    """

    centred: FloatArray
    present: FloatArray
    mean: FloatArray
    second: FloatArray
    between: float
    shares: FloatArray
    around: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, block: ColumnBlock, model: Model) -> CellFunctions:
        """Evaluate a column's functions."""
        name = block.column.name
        member = model.columns[name]
        coarse = model.evidence.one_way(*model.places([name]))
        fine = model.at_mean(name, member.within(coarse))
        low, stops = member.axis.stretches
        first, last = block.functions(low), block.functions(stops - 1)
        width = member.axis.volumes[:, None]
        # Codes spread evenly: (w² − 1)/12 steps², a step being (last − first)/(w − 1).
        within = np.where(width > 1, (last - first) ** 2 * (width + 1) / (12 * np.maximum(width - 1, 1)), 0.0)
        values, there = (first + last) / 2, block.present(low)
        mean = fine @ values / max(float(fine @ there), 1e-300)
        around = (values - mean) * there[:, None]
        spread = (member.bins[:, None] == np.arange(member.cells)) * (fine[:, None] + 1e-12)
        spread /= spread.sum(axis=0)
        centred = spread.T @ around
        second = (around * fine[:, None]).T @ around + np.diag(fine @ within)
        between = 1.0
        if block.scale is not None:
            between = float(coarse @ centred[:, 0] ** 2) / max(float(second[0, 0]), 1e-300)
        between = min(max(between, LEAST_BETWEEN), 1.0)
        if member.is_cut and member.law is not None:
            variances = np.diag(member.law.covariance)
        else:
            known = model.known([name])
            assert known is not None, "every pair of the columns was measured"
            variances = known.variances
        return cls(centred, spread.T @ there, mean, second, between, coarse, around, variances)

    @property
    def all_present(self) -> bool:
        """Whether no row is left out for it."""
        return bool((self.present > 0.5).all())

    @property
    def stretched(self) -> FloatArray:
        """Functions in pairs, without what bins take off a covariance."""
        return self.centred / self.between

    def looseness(self, n: float) -> float:
        """Return the standard error of the functions' scale, relative to it: bins' means are known by fine counts."""
        noise = float(np.sum(self.variances @ self.around**4)) / max(n, 1.0) ** 2
        return float(np.sqrt(noise) / max(2 * np.trace(self.second), 1e-300)) if len(self.mean) == 1 else 0.0

    @property
    def with_presence(self) -> FloatArray:
        """Presence and the functions, shape (cells, 1 + q)."""
        return np.column_stack([self.present, self.stretched])


@dataclass(frozen=True, eq=False)
class PairNoise:
    """What a pair's table adds to the errors: functions of both, the variance of every cell, what bins leave open."""

    places: tuple[int, int]
    one: FloatArray
    other: FloatArray
    variances: FloatArray
    open: FloatArray


class TableMoments(FunctionMoments):
    """Moments M = Σ z·zᵀ of a constant and columns' functions z over rows where all is present, from tables.

    A pair counts rows where its own columns are present; those where another one is null are taken off as the fit
    of all tables has them.

    ``model``: a fit to measured tables that hold every pair of the columns; ``columns``: functions of columns, at least
    two.
    """

    told = "tables"

    def __init__(self, model: Model, columns: Sequence[ColumnBlock]) -> None:
        super().__init__(columns)
        self.model, self.n = model, float(model.evidence.n)
        self.functions = [CellFunctions.of(column, model) for column in columns]
        self.nullable = [i for i, found in enumerate(self.functions) if not found.all_present]
        self.central = self._central()
        # z = f + μ on the rows that are left.
        self.back = np.eye(self.size)
        self.back[1:, 0] = np.concatenate([found.mean for found in self.functions])
        self.matrix = self.back @ self.central @ self.back.T

    def _central(self) -> FloatArray:
        """Return the moments of centred functions and a constant."""
        found = np.zeros((self.size, self.size))
        first = self.nullable[0] if self.nullable else 0
        for i, own in enumerate(self.places):
            block = self._own(i)
            found[np.ix_(own, own)] = block[1:, 1:]
            row = block[0] if i == first else self._pair(first, i)[0]
            found[0, own] = found[own, 0] = row[1:] if self.nullable else 0.0
            if i == first:
                found[0, 0] = block[0, 0]
        for i, j in combinations(range(len(self.places)), 2):
            block = self._pair(i, j)[1:, 1:]
            found[np.ix_(self.places[i], self.places[j])] = block
            found[np.ix_(self.places[j], self.places[i])] = block.T
        return found

    def _own(self, i: int) -> FloatArray:
        """Return Σ u·uᵀ of presence and functions u of one column."""
        one = self.functions[i]
        found = np.zeros((1 + len(one.mean),) * 2)
        found[0, 0] = self.n * float(one.shares @ one.present)
        found[1:, 1:] = self.n * one.second
        return found - self._left_out((i,), (one.with_presence[:, :, None] * one.with_presence[:, None, :]))

    def _pair(self, i: int, j: int) -> FloatArray:
        """Return Σ u·vᵀ of presence and functions of two columns."""
        one, other = self.functions[i], self.functions[j]
        found = one.with_presence.T @ self._counts(i, j)[0] @ other.with_presence
        # Presence of a column without nulls adds nothing: the other's own tables have those moments.
        if one.all_present:
            found[0] = 0.0
        if other.all_present:
            found[:, 0] = 0.0
        if one.all_present or other.all_present:
            there = other if one.all_present else one
            found[0, 0] = self.n * float(there.shares @ there.present)
        return found - self._left_out((i, j), None)

    def _counts(self, i: int, j: int) -> tuple[FloatArray, FloatArray]:
        """Return the raw counts of a pair, and their variances."""
        places = self.model.places([self.columns[i].column.name, self.columns[j].column.name])
        table = self.model.evidence.pairs[(min(places), max(places))]
        turned = places[0] > places[1]
        return (table.counts.T, table.variances.T) if turned else (table.counts, table.variances)

    def _left_out(self, held: tuple[int, ...], products: FloatArray | None) -> FloatArray:
        """Return what rows with a null in other columns have part in, by the fit's hidden classes."""
        others = [i for i in self.nullable if i not in held]
        if not others:
            return np.zeros(())
        absent = 1 - np.prod([self._law(i) @ self.functions[i].present for i in others], axis=0)
        weights = self.n * self.model.fit.mixture.weights * absent
        laws = [self._law(i) for i in held]
        if products is not None:
            return np.asarray(np.einsum("k,ka,aij->ij", weights, laws[0], products))
        one, other = (law @ self.functions[i].with_presence for law, i in zip(laws, held, strict=True))
        return np.asarray((one * weights[:, None]).T @ other)

    def _law(self, i: int) -> FloatArray:
        place = self.model.places([self.columns[i].column.name])[0]
        return self.model.fit.mixture.laws[place]

    @cached_property
    def _noises(self) -> list[PairNoise]:
        found = []
        for i, j in combinations(range(len(self.places)), 2):
            one, other = self.functions[i], self.functions[j]
            block = self.central[np.ix_(self.places[i], self.places[j])]
            loose = np.hypot(one.looseness(self.n), other.looseness(self.n))
            left = block * np.hypot((1 - one.between * other.between) / 2, loose)
            found.append(PairNoise((i, j), one.stretched, other.stretched, self._counts(i, j)[1], left))
        return found

    def _along(self, v: FloatArray) -> Iterator[tuple[PairNoise, FloatArray, FloatArray]]:
        """Yield the noise of every pair, and both columns' part of vᵀf by cell."""
        for noise in self._noises:
            i, j = noise.places
            yield noise, noise.one @ v[self.places[i]], noise.other @ v[self.places[j]]

    def quadratic(self, directions: FloatArray) -> FloatArray:
        """Return the variance of vᵀMv by the tables' noise, for directions v of shape (size, d)."""
        v = self.back.T @ directions
        total = np.zeros(directions.shape[1])
        for noise, a, b in self._along(v):
            i, j = noise.places
            left = np.einsum("id,ij,jd->d", v[self.places[i]], noise.open, v[self.places[j]])
            total += 4 * np.einsum("ad,ab,bd->d", a**2, noise.variances, b**2) + (2 * left) ** 2
        for found, part in zip(self.functions, self.places, strict=True):
            own = found.around @ v[part]
            total += found.variances @ (own**2 + 2 * v[0] * own) ** 2
        return total

    def scores(self, v: FloatArray) -> FloatArray:
        """Return the covariance of M·v: the tables' noise, and the rows' own as if residuals were alike."""
        w = self.back.T @ v
        found = self.central * max(float(w @ self.central @ w), 0.0) / max(self.n, 1.0)
        for noise, a, b in self._along(w[:, None]):
            i, j = (self.places[place] for place in noise.places)
            a, b = a[:, 0], b[:, 0]
            found[np.ix_(i, i)] += (noise.one.T * (noise.variances @ b**2)) @ noise.one
            found[np.ix_(j, j)] += (noise.other.T * (a**2 @ noise.variances)) @ noise.other
            cross = noise.one.T @ (noise.variances * np.outer(a, b)) @ noise.other
            found[np.ix_(i, j)] += cross
            found[np.ix_(j, i)] += cross.T
            for part, left in ((i, noise.open @ w[j]), (j, noise.open.T @ w[i])):
                found[np.ix_(part, part)] += np.outer(left, left)
        for one, part in zip(self.functions, self.places, strict=True):
            own = one.around @ w[part]
            found[np.ix_(part, part)] += (one.around.T * (one.variances * (own + w[0]) ** 2)) @ one.around
            cross = one.around.T @ (one.variances * (own + w[0]) * own)
            found[0, part] += cross
            found[part, 0] += cross
            found[0, 0] += one.variances @ own**2
        return np.asarray(self.back @ found @ self.back.T)

    def lift(
        self, values: FloatArray, vectors: FloatArray, errors: FloatArray, low: npt.NDArray[np.bool_]
    ) -> FloatArray:
        """Return what eigenvalues of the features become: h + Var(b)/(β²h), of drowned ones with h twice its error.

        b is the features' moment with the target, and β² as in `LIKELY_SQUARE`.
        """
        target, last = self.functions[-1].stretched, len(self.places) - 1
        noise = np.zeros(len(values))
        for i in range(last):
            own = self.functions[i].stretched @ vectors[self.places[i] - 1]
            variances = self._counts(i, last)[1]
            noise += (own**2).T @ (variances @ (target[:, 0] ** 2))
        least = np.where(low, np.maximum(2 * errors, values), values)
        return np.asarray(least + noise / (LIKELY_SQUARE * np.maximum(least, 1e-300)))
