"""What a model takes from a release's measured tables, where it has some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dpframe.estimate.axes import Axis
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.model import Models
from dpframe.tables.released import Source

FloatArray = npt.NDArray[np.float64]


def measured_models(source: Source) -> Models | None:
    """Return fits to the measured tables of a release, or None where it has none or these are not all its rows."""
    whole = source.info is None or source.info.n == source.n
    tables = MeasuredTables(source, source.tables if whole else ())
    return Models(tables) if tables else None


def joint_shares(models: Models, axes: Sequence[Axis]) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the cells of some axes, of least error from all tables together, and their variances."""
    names = [axis.name for axis in axes]
    model = models.among(names)
    shares, variances = model.joint(names), model.errors(names) ** 2
    for i, axis in enumerate(axes):
        column = model.columns[axis.name]
        if column.has_cells_of(axis):
            continue
        onto = column.onto(axis)
        shares = np.moveaxis(np.tensordot(onto, shares, axes=(1, i)), 0, i)
        variances = np.moveaxis(np.tensordot(onto**2, variances, axes=(1, i)), 0, i)
    return shares, variances


def common_source(parts: Iterable[str]) -> str:
    """Return what all parts are from: ``"tables"`` or ``"rows"`` where they agree, or ``"both"``."""
    found = set(parts)
    return found.pop() if len(found) == 1 else "both"


def all_models(source: Source) -> Models:
    """Return fits to a release's measured tables and its rows, or just to rows if it has no tables."""
    return measured_models(source) or Models(MeasuredTables(source, ()))
