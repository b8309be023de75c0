"""Joints by the methods that stay in the simplex: projection, likelihood, and a model of all pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate import surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, MemberAxis
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.likelihood import bootstrap_errors, fit_joint, project_to_simplex, refits
from dpframe.estimate.measured_tables import FEW_VALUES
from dpframe.estimate.question import Answer, Question
from dpframe.estimate.table_column import aggregation
from dpframe.estimate.with_tables import TableJoints
from dpframe.tables.released import Source

METHODS = ("inverse", "project", "em", "model", "auto")

JOINT_GRID_CELLS = 48
"""Cells of a numeric column within a joint."""

MOST_FIT_CELLS = 20_000
"""Cells up to which a joint with bins is fitted on finer ones."""

GOOD_ENOUGH = 0.05
"""Expected total error of all cells' shares below which ``"auto"`` takes the unbiased inverse."""

NOISY = 0.5
"""Expected error of the unbiased inverse below which the model's own structure costs more than its smoothing gains."""


class Fits:
    """Fits to the rows of one release."""

    def __init__(self, source: Source, joints: TableJoints) -> None:
        self._source, self._joints = source, joints

    def pick(self, axes: Sequence[Axis], counts: FloatArray) -> str:
        """Choose a method by the unbiased inverse's expected total error over all cells."""
        variance = surrogates.joint_cells(counts, axes, normalize=False, given=(), dropna=False, sampling=0.0)[1]
        expected = float(np.sqrt(np.maximum(variance, 0)).sum()) * math.sqrt(2 / math.pi) / max(self._source.n, 1)
        if expected <= GOOD_ENOUGH:
            return "inverse"
        if expected <= NOISY:
            return "em"
        modelled = self._joints.tables.of_few_values
        fits = len(modelled) >= 3 and all(a.grid is None and a.name in modelled for a in axes)
        return "model" if fits and len(axes) > 1 else "em"

    def answer(self, question: Question, counts: FloatArray, method: str, sampling: float) -> Answer:
        """Return a joint, with errors by parametric bootstrap."""
        if method == "model":
            return self._modelled(question)
        fine, merge = _refined(question.axes)
        domain = JointDomain.of(fine)
        if any(axis.grid is not None for axis in question.axes):
            counts = surrogates.count_classes(fine, self._source.codes(question.names))

        def fit(noisy: FloatArray) -> FloatArray:
            if method == "em":
                return fit_joint(noisy, domain)
            return project_to_simplex(domain.sums(noisy) / max(noisy.sum(), 1))

        def presented(shares: FloatArray) -> FloatArray:
            merged = merge(shares)
            return np.asarray(merged / question.unit(merged, self._source.n * self._source.weight))

        shares = fit(counts)
        errors = bootstrap_errors(refits(shares, domain, self._source.n, fit, sampling), presented)
        return Answer(presented(shares), errors**2, method, "rows")

    def _modelled(self, question: Question) -> Answer:
        few = self._joints.tables.of_few_values
        outside = [axis.name for axis in question.axes if axis.name not in few or axis.grid is not None]
        found = None if outside else self._joints.model(question)
        if found is None:
            raise ParameterError(
                f"column {[*outside, *question.names][0]!r} is not of at most {FEW_VALUES} values, which "
                "method='model' needs; use 'em'"
            )
        return found


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
