"""What a model takes from a release's measured tables, where it has some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dpframe.estimate.axes import Axis
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.with_tables import TableJoints
from dpframe.tables.released import Source

FloatArray = npt.NDArray[np.float64]


def measured_tables(source: Source) -> MeasuredTables | None:
    """Return the measured tables of a release, or None where it has none or these are not all its rows."""
    whole = source.info is None or source.info.n == source.n
    if not whole or not source.tables:
        return None
    return MeasuredTables(source, source.tables) or None


def joint_shares(tables: MeasuredTables, axes: Sequence[Axis]) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the cells of some axes, of least error from all tables together, and their variances."""
    names = [axis.name for axis in axes]
    tables = tables.among(names)
    fitted, places = tables.fitted, tables.places(names)
    shares, variances = fitted.fit.joint(places), fitted.errors(places) ** 2
    for i, axis in enumerate(axes):
        column = tables.columns[axis.name]
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


def all_joints(source: Source) -> TableJoints:
    """Return the joints of a release from its measured tables and its rows, or just from rows if it has no tables."""
    return TableJoints(source, measured_tables(source) or MeasuredTables(source, ()))
