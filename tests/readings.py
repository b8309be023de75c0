"""What estimates read of a release, by the public names of its parts: codes, counts of classes, fits.

And codes that are released by themselves, for tests of a hundred releases of one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from dpframe import Plan
from dpframe.estimate import surrogates
from dpframe.estimate.axes import Axis, join_axes, make_axis
from dpframe.estimate.column_evidence import ColumnEvidence
from dpframe.estimate.joints import Joints
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.model import Models
from dpframe.estimate.synthetic import Synthesizer
from dpframe.plan.measures import MeasuredTable
from dpframe.release.noisy_tables import measured_tables
from dpframe.release.reader import Source
from dpframe.release.rows import Digest, permutation, release


def codes_of(safe: Any, names: Sequence[str], plan: Plan | None = None) -> Mapping[str, npt.NDArray[Any]]:
    """Return the released codes of a table in one batch."""
    (codes,) = Source(safe, plan).codes(names)
    return codes


def released_codes(
    codes: Mapping[str, npt.NDArray[Any]], plan: Plan, key: bytes, *, in_order: bool = False
) -> Mapping[str, npt.NDArray[Any]]:
    """Return the codes that leave: of all rows, in their places or in the plan's order, or of its sample, in order."""
    out = release(codes, plan, key)
    if plan.sample is None and not in_order:
        return out
    order = permutation(plan, key, len(next(iter(codes.values()))))
    return out if order is None else {name: column[order] for name, column in out.items()}


def released_tables(codes: Mapping[str, npt.NDArray[Any]], plan: Plan, key: bytes) -> Sequence[MeasuredTable]:
    """Return the noisy tables that leave with the codes."""
    return measured_tables(codes, plan, key)


def digest_of(rows: pa.Table, plan: Plan, tables: Sequence[MeasuredTable] = ()) -> str:
    """Return the digest of rows as a release of the plan would state it."""
    digest = Digest(plan)
    digest.update({c.name: c.space.encode(rows.column(c.name)) for c in plan.columns})
    return digest.hexdigest(tables)


def axes_of(plan: Plan, names: Sequence[str]) -> list[Axis]:
    """Return the axes of a joint, without bins."""
    return join_axes([make_axis(plan[name], None) for name in names], plan.groups)


def counts_of(safe: Any, axes: Sequence[Axis], plan: Plan | None = None) -> npt.NDArray[Any]:
    """Return the released rows by class."""
    return surrogates.count_classes(axes, Source(safe, plan).codes([axis.name for axis in axes]))


def models_of(safe: Any, plan: Plan | None = None, tables: Sequence[MeasuredTable] = ()) -> Models:
    """Return the fits of a release whose spaces were declared."""
    source = Source(safe, plan)
    return Models(MeasuredTables(source, tables or source.tables, ColumnEvidence.of(source, None)))


def synthesizer_of(safe: Any, models: Models | None = None) -> Synthesizer:
    """Return what draws the synthetic rows of a release without sets."""
    models = models or models_of(safe)
    return Synthesizer(Source(safe, None), models, {}, Joints(models.tables).law, lambda _: ())
