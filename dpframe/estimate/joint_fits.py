"""Joints by the methods that stay in the simplex: projection, likelihood, and a model of all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate import surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, MemberAxis, make_axis
from dpframe.estimate.distribution import aggregation
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.likelihood import (
    bootstrap_errors,
    expectation_maximization,
    fit_joint,
    project_to_simplex,
    refits,
)
from dpframe.estimate.mixture import LatentClassModel, Together, fit_latent_classes
from dpframe.estimate.noise_block import NoiseBlock
from dpframe.estimate.tables.dependence import row_score
from dpframe.io.released import Source

METHODS = ("inverse", "project", "em", "model", "auto")

MODEL_CELLS = 64
"""Columns of more values do not enter the model: their pairs are nearly empty."""

JOINT_GRID_CELLS = 48
"""Cells of a numeric column within a joint."""

MOST_FIT_CELLS = 20_000
"""Cells up to which a joint with bins is fitted on finer ones."""

GOOD_ENOUGH = 0.05
"""Expected total error of all cells' shares below which ``"auto"`` takes the unbiased inverse."""

MOST_MODELLED = 15
"""Columns that a model has at most: of wider tables those asked for, and the others that their rows show most with."""

NOISY = 0.5
"""Expected error of the unbiased inverse below which the model's own structure costs more than its smoothing gains."""


@dataclass(frozen=True)
class Denominator:
    """What a presented value is divided by: nothing in counts; in shares, all rows of the values that are given."""

    axes: Sequence[Axis]
    normalize: bool
    given: tuple[int, ...]
    dropna: bool
    rows: float

    def of(self, shares: FloatArray) -> Any:
        """Return the share of all rows that is presented as 1."""
        if not self.normalize:
            return 1 / self.rows
        base = shares
        for i, axis in enumerate(self.axes):
            if self.dropna and axis.has_null and i not in self.given:
                base = np.delete(base, -1, axis=i)
        free = tuple(i for i in range(len(self.axes)) if i not in self.given)
        return np.maximum(base.sum(axis=free, keepdims=True), 1e-300)


class Fits:
    """Fits to one release; a model is fitted once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.n = source.n
        self._models: dict[tuple[str, ...], _Model] = {}

    def pick(self, axes: Sequence[Axis], counts: FloatArray) -> str:
        """Choose a method by the unbiased inverse's expected total error over all cells."""
        variance = surrogates.joint_cells(counts, axes, normalize=False, given=(), dropna=False, sampling=0.0)[1]
        expected = float(np.sqrt(np.maximum(variance, 0)).sum()) * math.sqrt(2 / math.pi) / max(self.n, 1)
        if expected <= GOOD_ENOUGH:
            return "inverse"
        if expected <= NOISY:
            return "em"
        modelled = self._columns
        fits = len(modelled) >= 3 and all(a.grid is None and a.name in modelled for a in axes)
        return "model" if fits and len(axes) > 1 else "em"

    def joint(
        self, axes: Sequence[Axis], counts: FloatArray, method: str, denominator: Denominator, sampling: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return what is presented of a joint, and its errors by parametric bootstrap."""
        if method == "model":
            return self._modelled(axes, denominator)
        fine, merge = _refined(axes)
        domain = JointDomain.of(fine)
        if any(axis.grid is not None for axis in axes):
            counts = surrogates.count_classes(fine, self._source.codes([axis.name for axis in axes]))

        def fit(noisy: FloatArray) -> FloatArray:
            if method == "em":
                return fit_joint(noisy, domain)
            return project_to_simplex(domain.sums(noisy) / max(noisy.sum(), 1))

        def presented(shares: FloatArray) -> FloatArray:
            merged = merge(shares)
            return np.asarray(merged / denominator.of(merged))

        shares = fit(counts)
        return presented(shares), bootstrap_errors(refits(shares, domain, self.n, fit, sampling), presented)

    def _modelled(self, axes: Sequence[Axis], denominator: Denominator) -> tuple[FloatArray, FloatArray]:
        """Return a joint of the fitted model, with errors from replicas."""
        names = self._columns
        outside = [axis.name for axis in axes if axis.name not in names or axis.grid is not None]
        if outside or len(names) < 2:
            what = f"column {outside[0]!r} is not" if outside else "fewer than two columns are"
            raise ParameterError(f"{what} of at most {MODEL_CELLS} values, which method='model' needs; use 'em'")
        model = self._model([axis.name for axis in axes])
        places = [model.names.index(axis.name) for axis in axes]
        joints = [fitted.joint(places) for fitted in (model.fitted, *model.replicas)]
        shares = np.stack([joint / denominator.of(joint) for joint in joints])
        # A replica draws its rows anew, as for the population. Half a row is the least that is admitted.
        errors = np.sqrt(np.mean((shares[1:] - shares[0]) ** 2, axis=0))
        return shares[0], np.maximum(errors, 0.5 / self.n / denominator.of(joints[0]))

    @cached_property
    def _columns(self) -> list[str]:
        listed = [c for c in self._source.plan.columns if c.space.size <= MODEL_CELLS and not c.space.code_words]
        return [c.name for c in listed if c.name not in self._source.missing]

    def _model(self, asked: Sequence[str]) -> _Model:
        """Return the model that answers for some columns: of narrow tables that of all."""
        names = self._columns
        if len(names) > max(MOST_MODELLED, len(asked)):
            # A model has two columns at least.
            near = self._nearest(asked, max(MOST_MODELLED - len(asked), 1))
            names = [name for name in names if name in {*asked, *near}]
        return self._models.setdefault(tuple(names), _Model(self._source, tuple(names)))

    def _nearest(self, asked: Sequence[str], most: int) -> list[str]:
        """Return other columns, those first whose released rows depend most on these columns'."""
        axes = {name: make_axis(self._source.column(name), None) for name in self._columns}
        others = [name for name in self._columns if name not in asked]
        wanted = [(a, b) for a in asked for b in others]
        pairs = surrogates.count_pairs(axes, wanted, self._source.codes(self._columns))
        scores = {b: max(row_score(pairs[a, b]) for a in asked) for b in others}
        return sorted(others, key=lambda name: -scores[name])[:most]


class _Model:
    """The mixture of some columns of few values, fitted to all of their pairs, and its replicas."""

    def __init__(self, source: Source, names: tuple[str, ...]) -> None:
        self._source, self.names = source, names

    @cached_property
    def _axes(self) -> list[Axis]:
        return [make_axis(self._source.column(name), None) for name in self.names]

    @cached_property
    def fitted(self) -> LatentClassModel:
        """The fit to all pairs."""
        axes, channels = self._axes, [axis.channel for axis in self._axes]
        pairs = combinations(range(len(axes)), 2)
        tables = surrogates.count_pairs(dict(enumerate(axes)), pairs, self._source.codes(list(self.names)))
        return fit_latent_classes(tables, channels, _marginals(tables, channels), together=self._together)

    @cached_property
    def replicas(self) -> list[LatentClassModel]:
        """Fits to rows drawn anew from it."""
        return self.fitted.replicas([axis.channel for axis in self._axes], self._source.n, together=self._together)

    @cached_property
    def _together(self) -> list[Together]:
        """The columns of the model that are in one group, by position, and the signal of its channel."""
        inside = [[name for name in group.names if name in self.names] for group in self._source.plan.groups]
        return [
            (tuple(map(self.names.index, members)), NoiseBlock.of(group).signal)
            for group, members in zip(self._source.plan.groups, inside, strict=True)
            if len(members) > 1
        ]


def _marginals(tables: Mapping[tuple[int, int], FloatArray], channels: Sequence[FloatArray]) -> list[FloatArray]:
    """Return each column's maximum-likelihood shares, counted from a pair it is in."""
    marginals = []
    for i, channel in enumerate(channels):
        pair = next(p for p in tables if i in p)
        counts = tables[pair].sum(axis=1 if pair[0] == i else 0)
        marginals.append(expectation_maximization(counts, [channel]))
    return marginals


def _refined(axes: Sequence[Axis]) -> tuple[list[Axis], Callable[[FloatArray], FloatArray]]:
    """Cut bins finer for a fit, and return how to merge its cells again.

    A fit takes values as uniform within a cell, which is far from true in a few wide bins.
    """
    whole = [axis.cells for axis in axes if axis.grid is None]
    binned = max(1, len(axes) - len(whole))
    most = int((MOST_FIT_CELLS / math.prod(whole)) ** (1 / binned))
    fine = [
        axis.refine(min(JOINT_GRID_CELLS, most)).for_fits
        if isinstance(axis, BinnedAxis) or (isinstance(axis, MemberAxis) and axis.grid is not None)
        else axis
        for axis in axes
    ]

    def merge(shares: FloatArray) -> FloatArray:
        for i, (f, axis) in enumerate(zip(fine, axes, strict=True)):
            if f.grid is not None and axis.grid is not None:
                shares = np.moveaxis(np.tensordot(aggregation(f.grid, axis.grid), shares, axes=(1, i)), 0, i)
        return shares

    return fine, merge
