"""Columns as questions see them: the declared space, the codes of any batch, and how answers are presented."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.channels import mechanism_for
from dpframe.errors import ParameterError, name_list
from dpframe.estimate.results import RESULTS, Results
from dpframe.inference.from_data import from_type
from dpframe.plan.columns import Column
from dpframe.plan.declared import declared_space, placeholder
from dpframe.spaces import Nullable, Space, Subset
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.field import Field, is_open
from dpframe.tables.table import Table
from dpframe.tables.types import output_type
from dpframe.totals.answers import Noise
from dpframe.totals.counts import Codes

COUNTED_CHUNK_ROWS = 1 << 16
"""Rows that are counted at a time."""
_LARGEST_RESPONSE_SPACE = 1 << 24
"""Codes up to which any space has randomised response, the channel that is made fastest."""


@dataclass(frozen=True)
class QueryColumn:
    """A column that questions may be about."""

    field: Field
    space: Space

    @classmethod
    def of(cls, field: Field, declared: Mapping[str, Any]) -> QueryColumn:
        """Take the declared space of a column, or the one that its type says."""
        name = field.name
        space = declared_space(field, declared) if name in declared else from_type(field)
        if space is None:
            raise ParameterError(
                f"column {name_list([name])} has no space, which questions need; pass "
                f"spaces={{{name!r}: {placeholder(field.type)}}} (Nullable(…) around a space keeps nulls)"
            )
        if (space.code_words and not space.holds_sets) or len(space.sizes) > 1:
            raise ParameterError(
                f"column {name_list([name])} holds {space.noun if space.code_words else 'tuples'}, which questions do "
                "not count; release the table, and ask its estimates"
            )
        return cls(field, space)

    name: ClassVar[str] = forwarded("field.name")

    @property
    def zone(self) -> str | None:
        """Its time zone, if its type has one."""
        return getattr(self.field.type, "tz", None)

    @cached_property
    def coded(self) -> Space:
        """The space with one code past the last: for null, and for values that the declared space cannot hold."""
        return self.space if self.space.has_null else Nullable(self.space)

    @property
    def may_be_null(self) -> bool:
        """Whether a value may be null, or be read as null: by the column's type and its space, never by its rows."""
        has_words = self.space.is_listed or self.space.has_words
        lists_all = not has_words or pa.types.is_boolean(self.field.type)
        return self.field.nullable or self.space.has_null or not lists_all

    @cached_property
    def column(self) -> Column:
        """The column for axes and conditions, which use only its name and space: the channel is a placeholder."""
        tag = "randomized_response" if self.space.size <= _LARGEST_RESPONSE_SPACE else None
        return Column(self.name, self.space, mechanism_for(self.space, 1.0, 0.0, tag))

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the values of an answer, by the column's space and type and never by its rows.

        ``nulls`` is ``"middle"`` if a null may count as the middle, ``outside`` ``"bound"`` if values beyond the bounds
        count as the bound.
        """
        bounded = not self.space.is_listed and not self.space.holds_sets
        nulls = {"nulls": "middle"} if self.field.nullable and not self.space.has_null else {}
        return nulls | ({"outside": "bound"} if bounded else {})

    def numeric(self, question: str, times: bool = True) -> QueryColumn:
        """Return the column, or raise `ParameterError` unless its values are numbers on a line (or booleans)."""
        is_line = self.space.inner_space.metric == "line" or self.space.values <= 2
        if not self.space.is_numeric or not is_line:
            raise ParameterError(
                f"column {name_list([self.name])} holds no numbers, which {question} needs; histogram and most_common "
                "count its values"
            )
        if self.space.is_time and not times:
            raise ParameterError(
                f"column {name_list([self.name])} holds times, which have no {question}; mean, quantile and histogram "
                "take it"
            )
        return self

    def sets(self, question: str) -> Subset:
        """Return the column's space of sets; `ParameterError` if it holds no sets."""
        if not self.space.holds_sets:
            raise ParameterError(f"column {name_list([self.name])} holds no sets, which {question} needs")
        space: Any = self.space.inner_space
        return cast("Subset", space)

    @property
    def line(self) -> tuple[float, float]:
        """The number of code 0, and the distance between neighbouring codes."""
        # A space with a single value has no second code.
        ends: Any = self.space.inner_space.numbers(np.array([0, min(1, self.space.values - 1)]))
        return float(ends[0]), float(ends[1] - ends[0])

    def codes(self, values: Any) -> Codes:
        """Return the codes of a batch: no value is refused."""
        codes: Codes = self.coded.encode(values, tolerant=True)
        return codes

    def dressed(self, results: Mapping[str, FloatArray]) -> dict[str, Any]:
        """Return results in the column's units: of times, instants (in its zone) and durations."""
        return Results(**results).in_units(self.space, self.zone).parts


def check_types(columns: Sequence[QueryColumn]) -> None:
    """Raise `ColumnError` for a column whose type does not fit its space; a type is no fact of a row."""
    for column in columns:
        if not is_open(column.field.type):
            column.space.check_type(output_type(column.field.type))


def batches(table: Table, columns: Sequence[QueryColumn]) -> Iterator[dict[str, Codes]]:
    """Yield the codes of columns, 2¹⁶ rows at a time; of no columns nothing."""
    if not columns:
        return
    for batch in table.batches([column.name for column in columns]):
        rows = len(next(iter(batch.values())))
        # Slices bound the memory of codes, whatever the size of a batch.
        for start in range(0, rows, COUNTED_CHUNK_ROWS):
            yield {
                column.name: column.codes(batch[column.name][start : start + COUNTED_CHUNK_ROWS]) for column in columns
            }


def linear(values: FloatArray, noise: Noise, scale: float, level: float) -> dict[str, FloatArray]:
    """Return answers that are numbers with one noise each, times a scale: the interval is that noise's own."""
    error, reach = math.sqrt(noise.variance) * abs(scale), noise.reach(level) * abs(scale)
    parts = (values, np.full(values.shape, error), values - reach, values + reach)
    return dict(zip(RESULTS, parts, strict=True))


def crossed(results: Mapping[str, FloatArray], index: Any, columns: Any) -> pd.DataFrame:
    """Return matrices of estimates, errors and ends as one table, their names the outer level of its columns."""
    tables = {name: pd.DataFrame(values, index=index, columns=columns) for name, values in results.items()}
    return pd.concat(tables, axis=1)


def normal(values: FloatArray, errors: FloatArray, level: float) -> dict[str, FloatArray]:
    """Return answers of several noises, whose sum is taken as normal."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    return dict(zip(RESULTS, (values, errors, values - z * errors, values + z * errors), strict=True))


def series(results: Mapping[str, Any], name: str) -> pd.Series[Any]:
    """Return one answer as a Series in the form of estimates."""
    return Results(**results).series(name)
