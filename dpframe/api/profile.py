"""A profile of a table for its curator: exact numbers of each column, and the space that its values suggest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.api.curator_check import TITLE
from dpframe.errors import ParameterError
from dpframe.inference.drafted import DraftedSpaces, drafted
from dpframe.spaces.base import decoded
from dpframe.spaces.written_values import is_blank, read_as_written
from dpframe.tables.files import FileInput

_REVIEW_LINE = (
    "dpframe spaces --draft writes these spaces into a file; check each line against the codebook, not against the data"
)


@dataclass(frozen=True)
class CuratorProfile:
    """Exact numbers of every column, and the spaces that a draft proposes.

    It has no form in which it could travel with a release: it cannot be pickled.

    Parameters
    ----------
    columns
        A row per column: its ``type``, the share of rows that are ``null``, the number of ``distinct`` values, and the
        ``least`` and ``largest`` value of numbers and times.
    draft
        The spaces that the values suggest, with a check for each, and the reasons why others are left out.
    """

    columns: pd.DataFrame
    draft: DraftedSpaces

    def __reduce__(self) -> Any:
        """Refuse to be stored."""
        raise ParameterError("a curator's profile holds exact numbers of the data; look at it, and do not store it")

    def __str__(self) -> str:
        spaces: Mapping[str, Any] = self.draft.spaces
        notes = [f"{name}: {spaces[name]!r}; check {note}" for name, note in self.draft.notes.items()]
        reasons = [f"{name}: left out, as {reason}" for name, reason in self.draft.left_out.items()]
        table = self.columns.to_string(na_rep="", float_format=lambda x: f"{x:.4g}")
        return "\n".join([TITLE, "", table, "", *notes, *reasons, "", _REVIEW_LINE])


def profiled(table: FileInput) -> CuratorProfile:
    """Return the profile of files."""
    fields = table.fields(table.names)
    facts = {}
    for field in fields:
        arrays = list(table.arrays(field.name))
        facts[field.name] = _describe_column(read_as_written(arrays) if field.written else arrays)
    columns = pd.DataFrame.from_dict(facts, orient="index", columns=["type", "null", "distinct", "least", "largest"])
    columns.index.name = "column"
    return CuratorProfile(columns, drafted(fields, table.arrays))


def _describe_column(arrays: Sequence[pa.Array]) -> dict[str, Any]:
    """Return the exact numbers of a column; text that is blank counts as null."""
    column = pa.chunked_array(list(map(decoded, arrays)))
    type_ = column.type
    rows, nulls = len(column), column.null_count
    if pa.types.is_string(type_):
        nulls = sum(int(np.count_nonzero(is_blank(decoded(array)))) for array in arrays)
    facts: dict[str, Any] = {"type": str(type_), "null": nulls / max(rows, 1)}
    if pa.types.is_nested(type_) or pa.types.is_null(type_):
        return facts
    facts["distinct"] = pc.count_distinct(column).as_py()
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_temporal(type_):
        ends = pc.min_max(column).as_py()
        facts |= {"least": ends["min"], "largest": ends["max"]}
    return facts
