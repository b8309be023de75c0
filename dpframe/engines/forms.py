"""Forms of released rows: Arrow tables or pandas frames, and either of them as Parquet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.api.files import as_table
from dpframe.api.public import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.spaces import as_arrow as arrow_array
from dpframe.tables.batches import Batch, length, row_groups
from dpframe.tables.frames import ArrowFrame, Frame, PandasFrame
from dpframe.tables.metadata import METADATA_KEY, arrow_metadata
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import with_signed_indices
from dpframe.tables.table import SHUFFLED


class OutputForm(ABC):
    """Form of released rows."""

    @abstractmethod
    def copy_column(self, frame: Frame, name: str) -> pa.Array:
        """Return a column that is passed through as an Arrow array."""

    @abstractmethod
    def table(self, batch: Batch, first: int, text: str) -> Any:
        """Return rows from position ``first`` of the release on, with its description; empty without columns."""

    @abstractmethod
    def write(self, batch: Batch, file: IO[bytes], info: ReleaseInfo, compression: str) -> None:
        """Write rows as a Parquet file with the description of the release in its footer."""


@dataclass(frozen=True)
class ArrowForm(OutputForm):
    """Arrow tables, with the types that readers of a Parquet release see."""

    parquet: ParquetForm

    def copy_column(self, frame: Frame, name: str) -> pa.Array:
        """Return a column that is passed through as an Arrow array."""
        assert isinstance(frame, ArrowFrame)
        return self.parquet.plain(name, arrow_array(frame.table.column(name)))

    def table(self, batch: Batch, first: int, text: str) -> pa.Table:
        """Return an Arrow table."""
        schema = self.parquet.seen
        table = self.parquet.decoded(batch, schema) if batch else schema.empty_table()
        return table.replace_schema_metadata(arrow_metadata(text))

    def write(self, batch: Batch, file: IO[bytes], info: ReleaseInfo, compression: str) -> None:
        """Write the file that `dpframe.sanitize` would write for these rows."""
        form = self.parquet
        with form.writer(file, compression) as writer:
            for group in row_groups(iter([batch]), form.group_rows):
                writer.write_table(form.decoded(group), row_group_size=form.group_rows)
            writer.add_key_value_metadata(form.metadata(info.to_json()))


@dataclass(frozen=True)
class ReadForm(ArrowForm):
    """pandas frames as `dpframe.read` reads a Parquet release, but with lists as Arrow types."""

    def table(self, batch: Batch, first: int, text: str) -> pd.DataFrame:
        """Return a DataFrame."""
        arrow = super().table(batch, first, text)
        # Only the metadata of pandas: to_pandas restores its dtypes from it.
        metadata = {"pandas": self.parquet.pandas_metadata}
        frame: pd.DataFrame = with_signed_indices(arrow.replace_schema_metadata(metadata)).to_pandas(
            types_mapper=_nested_dtype
        )
        frame.index = pd.RangeIndex(first, first + len(frame), name=SHUFFLED if self.parquet.plan.shuffle else None)
        frame.attrs = {METADATA_KEY: text}
        return frame


def _nested_dtype(type_: pa.DataType) -> Any:
    """Return the pandas dtype of a nested type, and None for other types."""
    # Dask would turn objects into text.
    return pd.ArrowDtype(type_) if type_.num_fields else None


@dataclass(frozen=True)
class PandasForm(OutputForm):
    """pandas frames of the input's dtypes, whose index continues from bucket to bucket."""

    plan: Plan
    meta: pd.DataFrame

    def copy_column(self, frame: Frame, name: str) -> pa.Array:
        """Return a column that is passed through as an Arrow array."""
        assert isinstance(frame, PandasFrame)
        return arrow_array(frame.frame[name])

    def table(self, batch: Batch, first: int, text: str) -> pd.DataFrame:
        """Return a DataFrame."""
        # Columns that are passed through travel with their rows, and are put in below; the frame here has no rows.
        frame, plain_plan = PandasFrame(self.meta), replace(self.plan, passthrough=(), keeps_index=False)
        spaces = self.plan.released_spaces
        batch = batch or {**frame.codes(spaces, "impute"), **{n: frame.array(n) for n in self.plan.passthrough}}
        rows = length(batch)
        table = frame.rebuild(plain_plan, spaces, {name: batch[name] for name in spaces}, np.arange(rows), text)
        table.index = pd.RangeIndex(first, first + rows, name=table.index.name)
        for name in self.plan.passthrough:
            table[name] = pd.Series(batch[name].to_pandas(), dtype=self.meta[name].dtype).set_axis(table.index)
        table = table[frame.output_names(self.plan)]
        table.attrs = {METADATA_KEY: text}
        return table

    def write(self, batch: Batch, file: IO[bytes], info: ReleaseInfo, compression: str) -> None:
        """Write the file that `dpframe.write` would write for these rows."""
        pq.write_table(as_table(self.table(batch, 0, info.to_json())), file, compression=compression)
