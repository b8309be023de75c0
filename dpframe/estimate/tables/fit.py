"""All estimates from measured tables: the mixture, the simple estimates, and how far to go from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.tables.blend import Half, common_step, own_step
from dpframe.estimate.tables.choice import Choice, choose_classes
from dpframe.estimate.tables.joints import geometric_joint
from dpframe.estimate.tables.mixture import Mixture, fit_mixture
from dpframe.estimate.tables.simple import near_margins
from dpframe.estimate.tables.tables import Evidence, Table


@dataclass(frozen=True)
class Steps:
    """Steps from the mixture (0) to the simple estimate (1): by columns, and common to all pairs and larger tables."""

    own: dict[tuple[int, ...], float]
    common: float


@dataclass(frozen=True, eq=False)
class TableFit:
    """Shares of any columns' cells, from all that was measured."""

    evidence: Evidence
    mixture: Mixture
    steps: Steps

    @property
    def classes(self) -> int:
        """Hidden classes of one fit of the mixture."""
        return len(self.mixture.weights) // self.mixture.fits

    def simple(self, columns: Sequence[int]) -> FloatArray | None:
        """Return the simple estimate of columns that were measured together, in the order given, or None."""
        if len(columns) == 1:
            return self.evidence.one_ways[columns[0]]
        table = _measured(self.evidence).get(tuple(sorted(columns)))
        if table is None:
            return None
        margins = [self.evidence.one_ways[c] for c in table.columns]
        shares = near_margins(table.counts / self.evidence.n, margins)
        return shares.transpose([table.columns.index(c) for c in columns])

    def joint(self, columns: Sequence[int]) -> FloatArray:
        """Return the estimate of least error of some columns' shares, in their order.

        One column or two: between the mixture and the simple estimate. More: between the mixture's own joint and
        the one that its pairs alone would have, nearer to this as pairs are nearer to their simple estimates; then
        towards the simple estimate, where exactly these columns were measured.
        """
        weight = (1 - self.steps.common) / 2
        own = self.from_pairs(columns, weight) if len(columns) > 2 else self.mixture.joint(columns)
        simple, step = self.simple(columns), self.steps.own.get(tuple(sorted(columns)), 0.0)
        return own if simple is None else np.asarray((1 - step) * own + step * simple)

    def from_pairs(self, columns: Sequence[int], weight: float) -> FloatArray:
        """Return a joint between the mixture's own (weight 1) and that of its pairs alone (weight 0)."""
        return geometric_joint(self.mixture.joint(columns), self.pairs_of(columns), weight)

    def pairs_of(self, columns: Sequence[int]) -> dict[tuple[int, ...], FloatArray]:
        """Return the shares of all pairs of some columns, by their places among them."""
        places = combinations(range(len(columns)), 2)
        return {(i, j): self.joint((columns[i], columns[j])) for i, j in places}


CLASSES_OF_ROWS, STARTS_OF_ROWS = 10, 10
"""Classes and starts where there are rows alone: of more classes a fit must end earlier, or it follows their noise."""


def fit_tables(evidence: Evidence, *, starts: int = 5) -> TableFit:
    """Fit a mixture whose number of classes the data choose, and find the steps to the simple estimates.

    Raises
    ------
    ParameterError
        If no pair of columns was measured or counted, or a column is in no table and in no rows.

    Examples
    --------
    >>> truth = np.array([[400.0, 100.0], [100.0, 400.0]])
    >>> noise = np.array([[3.0, -2.0], [1.0, -4.0]])
    >>> fit = fit_tables(Evidence(1000, (2, 2), (Table((0, 1), truth + noise, 3.0),)))
    >>> bool(np.abs(fit.joint([0, 1]) * 1000 - truth).max() < 5)
    True
    """
    if not evidence.pairs and not evidence.rows:
        raise ParameterError("tables: no pair of columns was measured, which a fit needs; measure a pair")
    choice = choose_classes(evidence) if evidence.pairs else Choice(CLASSES_OF_ROWS, ())
    starts = starts if evidence.pairs else STARTS_OF_ROWS
    mixture = fit_mixture(evidence, classes=choice.classes, starts=starts)
    return TableFit(evidence, mixture, _steps(choice))


def fit_alone(evidence: Evidence) -> TableFit:
    """Return the fit of columns of no two of which anything is known: independent ones, in one class."""
    laws = tuple(law[None, :] for law in evidence.one_ways)
    return TableFit(evidence, Mixture(np.ones(1), laws), Steps({}, 0.0))


def refit_tables(fit: TableFit, evidence: Evidence, *, seed: int, starts: int = 1) -> TableFit:
    """Fit other evidence with the classes and the steps of a fit, as replicas need."""
    if not evidence.pairs and not evidence.rows:
        return fit_alone(evidence)
    mixture = fit_mixture(evidence, classes=fit.classes, starts=starts, seed=seed)
    return TableFit(evidence, mixture, fit.steps)


def _measured(evidence: Evidence) -> dict[tuple[int, ...], Table]:
    """Return the tables of two columns or more, by their columns in rising order."""
    found = {tuple(sorted(t.columns)): t for t in evidence.tables if len(t.columns) > 2}
    for pair, table in evidence.pairs.items():
        found[pair] = table
    return found


def _steps(choice: Choice) -> Steps:
    singles: dict[tuple[int, ...], list[Half]] = {}
    tables: dict[tuple[int, ...], list[Half]] = {}
    for fitted, held, mixture in choice.draws:
        half = TableFit(fitted, mixture, Steps({}, 0.0))
        for columns, table in _measured(held).items():
            tables.setdefault(columns, []).append(_half(half, table))
        for c in range(len(held.sizes)):
            seen = held.seen(c)
            if seen:
                singles.setdefault((c,), []).extend(_half(half, table) for table in seen)
    common, of_one = (common_step(h for halves in kind.values() for h in halves) for kind in (tables, singles))
    own = {columns: own_step(halves, common) for columns, halves in tables.items()}
    return Steps(own | {columns: own_step(halves, of_one) for columns, halves in singles.items()}, common)


def _half(fit: TableFit, held: Table) -> Half:
    simple = fit.simple(held.columns)
    mixture = fit.mixture.joint(held.columns)
    n = fit.evidence.n
    return Half(n * mixture, n * (mixture if simple is None else simple), held)
