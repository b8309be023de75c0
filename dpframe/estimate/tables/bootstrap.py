"""Errors of estimates from measured tables: fits to measurements drawn anew from the fit (parametric bootstrap)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dpframe.estimate.tables.fit import TableFit, fit_tables
from dpframe.estimate.tables.tables import Evidence, Table
from dpframe.plan.threads import remember
from dpframe.spaces.arrays import FloatArray

REPLICAS = 10
"""Measurements drawn anew."""

MOST_COMPARED = 20
"""Pairs whose misfit is compared with that of replicas, about, to know how all pairs err."""

KEPT_FITS = 8
"""Fits that are kept."""

_kept: dict[bytes, Fitted] = {}


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit, and fits to measurements drawn from it once errors are asked for."""

    fit: TableFit

    @classmethod
    def of(cls, evidence: Evidence) -> Fitted:
        """Return the fit to evidence; one that was made in this process is known."""
        digest = hashlib.sha256(repr((evidence.n, evidence.sizes)).encode())
        for table in evidence.tables:
            digest.update(repr((table.columns, table.counts.shape)).encode())
            for values in (table.counts, np.asarray(table.sigma), *table.channels):
                digest.update(values.tobytes())
        key = digest.digest()
        known = _kept.get(key)
        return remember(_kept, key, cls(fit_tables(evidence)) if known is None else known, KEPT_FITS)

    @cached_property
    def again(self) -> tuple[TableFit, ...]:
        """Fits to measurements of the fit, with the classes and the steps of the first."""
        generator, evidence = np.random.default_rng(2), self.fit.evidence
        expected = [(table, _expected(self.fit, table)) for table in evidence.tables]
        found = []
        for r in range(REPLICAS):
            drawn = tuple(table.again(counts, generator) for table, counts in expected)
            found.append(self.fit.refitted(replace(evidence, tables=drawn), seed=r))
        return tuple(found)

    @cached_property
    def _common(self) -> float:
        """The ratio below of some pairs together, evenly among all."""
        pairs = list(self.fit.evidence.row_pairs | self.fit.evidence.pairs)
        some = [self._squares(pair) for pair in pairs[:: max(1, len(pairs) // MOST_COMPARED)]]
        held, own, _ = np.sum(some, axis=0) if some else (1.0, 1.0, 0)
        return float(held / max(own, 1e-300))

    def bias(self, pair: tuple[int, int]) -> float:
        """Return by how much a known pair's squared errors exceed those of the replicas, at least 1.

        A replica's truth is a fit, which is smoother than the table was. The fit's own squared error is its misfit
        less the noise, and twice the covariance of noise and fit, which replicas show (Efron 2004). That has the
        variance 2·cells: a pair's ratio is drawn to that of all, as if ratios differed by about one. For a pair
        that only rows cover, both are of the released classes.
        """
        evidence = self.fit.evidence
        if pair not in evidence.pairs and pair not in evidence.row_pairs:
            return 1.0
        held, own, cells = self._squares(pair)
        weight = own**2 / (2 * cells)
        return max(1.0, float((own * held / (2 * cells) + self._common) / (weight + 1)))

    def _squares(self, columns: tuple[int, int]) -> tuple[float, float, int]:
        """Return a pair's squared error by its misfit, by the replicas, in units of its noise, and its cells."""

        def known(fit: TableFit) -> Table:
            return (fit.evidence.row_pairs | fit.evidence.pairs)[columns]

        pair = known(self.fit)
        expected, precision = _expected(self.fit, pair), 1 / pair.variances
        steps = [_expected(fit, pair) - expected for fit in self.again]
        noises = [known(fit).counts - expected for fit in self.again]
        covariance = np.mean([np.sum(s * z * precision) for s, z in zip(steps, noises, strict=True)])
        misfit = np.sum((expected - pair.counts) ** 2 * precision)
        own = np.mean([np.sum(s * s * precision) for s in steps])
        return float(misfit - expected.size + 2 * covariance), float(own), expected.size

    def errors(
        self,
        columns: Sequence[int],
        *,
        simple: bool = False,
        drawn: float = 0.0,
        of: Callable[[FloatArray], FloatArray] = np.asarray,
    ) -> FloatArray:
        """Return root mean squared errors of the cells' shares.

        ``drawn`` is 0 for the table's own shares, 1 for the population's that its rows were drawn from; ``of`` is what
        is asked of the cells: sums of their shares, by default the shares themselves.
        """

        def estimate(fit: TableFit) -> FloatArray:
            found = fit.simple(columns) if simple else None
            return of(fit.joint(columns) if found is None else found)

        shares = estimate(self.fit)
        squares = np.mean([(estimate(fit) - shares) ** 2 for fit in self.again], axis=0)
        n = self.fit.evidence.n
        if not simple:
            # The errors themselves come from few replicas: the variance of Student's law over that of the normal.
            squares = squares * REPLICAS / (REPLICAS - 2)
        if len(columns) > 1 and not simple:
            inside = combinations(sorted(columns), 2)
            squares = squares * max(self.bias(pair) for pair in inside)
        if len(columns) > 2:
            # Which end of the geometric mean is nearer depends on the table: their distance is taken for its bias.
            ends = of(self.fit.mixture.joint(columns)) - of(self.fit.from_pairs(columns, 0.0))
            squares = squares + ends**2
        return np.asarray(np.sqrt(np.maximum(squares, (0.5 / n) ** 2) + drawn * shares * (1 - shares) / n))

    def noise(self, columns: Sequence[int], of: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return the variances that what is asked of the columns' cells has by noise: those of the fits drawn anew.

        By how much they are off on average is no noise, but that fits are drawn to independence.
        """
        return np.asarray(np.var([of(fit.joint(columns)) for fit in self.again], axis=0))

    def against(self, columns: Sequence[int], weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the part of the noise in sums of counts that a fit follows, and its mean squared distance from them.

        The first is from 0 to 1: by the rest the fit draws what the counts show to independence. Both are by the
        replicas, the second in squared shares. ``weights`` has the shape (sums, cells of each column), of columns that
        some table holds together.
        """
        shares, found = self.fit.joint(columns), []
        for fit in self.again:
            known = fit.evidence.known(columns)
            assert known is not None
            both = fit.joint(columns), known.counts / fit.evidence.n
            found.append([np.tensordot(weights, one - shares, axes=shares.ndim) for one in both])
        steps, noises = np.moveaxis(np.array(found), 1, 0)
        slopes = (steps * noises).sum(axis=0) / np.maximum((noises**2).sum(axis=0), 1e-300)
        return np.clip(slopes, 0.0, 1.0), ((steps - noises) ** 2).mean(axis=0)


def _expected(fit: TableFit, table: Table) -> FloatArray:
    return table.expected(fit.joint(table.columns), fit.evidence.n)
