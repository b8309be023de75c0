"""In which form rows leave an engine: Arrow tables, or pandas frames, and either of them as Parquet."""

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
from dpframe.spaces import as_arrow as arrow_array
from dpframe.tables.batches import Batch, length, row_groups
from dpframe.tables.frames import ArrowFrame, Frame, PandasFrame
from dpframe.tables.info import METADATA_KEY, ReleaseInfo, arrow_metadata
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import with_signed_indices
from dpframe.tables.table import SHUFFLED


class OutputForm(ABC):
    """How released rows are given out."""

    @abstractmethod
    def copied(self, frame: Frame, name: str) -> pa.Array:
        """Return a column that is passed through, on its way."""

    @abstractmethod
    def table(self, batch: Batch, first: int, text: str) -> Any:
        """Return rows that begin at a place of the release, under its description; of no columns an empty table."""

    @abstractmethod
    def write(self, batch: Batch, file: IO[bytes], info: ReleaseInfo, compression: str) -> None:
        """Write rows as a Parquet file whose footer has the release's description."""


@dataclass(frozen=True)
class ArrowForm(OutputForm):
    """Arrow tables, with the types that readers of a Parquet release see."""

    parquet: ParquetForm

    def copied(self, frame: Frame, name: str) -> pa.Array:
        """Return a column that is passed through, on its way."""
        assert isinstance(frame, ArrowFrame)
        return self.parquet.plain(name, arrow_array(frame.table.column(name)))

    def table(self, batch: Batch, first: int, text: str) -> pa.Table:
        """Return an Arrow table."""
        seen = self.parquet.seen
        table = self.parquet.decoded(batch, seen) if batch else seen.empty_table()
        return table.replace_schema_metadata(arrow_metadata(text))

    def write(self, batch: Batch, file: IO[bytes], info: ReleaseInfo, compression: str) -> None:
        """Write the file that `dpframe.sanitize_parquet` writes of the same rows."""
        form = self.parquet
        with form.writer(file, compression) as writer:
            for group in row_groups(iter([batch]), form.group_rows):
                writer.write_table(form.decoded(group), row_group_size=form.group_rows)
            writer.add_key_value_metadata(form.metadata(info.to_json()))


@dataclass(frozen=True)
class ReadForm(ArrowForm):
    """pandas frames as `dpframe.read_parquet` makes them of a Parquet release, but with lists of Arrow's."""

    def table(self, batch: Batch, first: int, text: str) -> pd.DataFrame:
        """Return a DataFrame."""
        arrow = super().table(batch, first, text)
        kept = {"pandas": self.parquet.pandas_metadata}
        frame: pd.DataFrame = with_signed_indices(arrow.replace_schema_metadata(kept)).to_pandas(types_mapper=_nested)
        frame.index = pd.RangeIndex(first, first + len(frame), name=SHUFFLED if self.parquet.plan.shuffle else None)
        frame.attrs = {METADATA_KEY: text}
        return frame


def _nested(type_: pa.DataType) -> Any:
    """Return pandas' dtype of lists and the like: of objects Dask would make text."""
    return pd.ArrowDtype(type_) if type_.num_fields else None


@dataclass(frozen=True)
class PandasForm(OutputForm):
    """pandas frames of the input's dtypes, with an index that goes on from one to the next."""

    plan: Plan
    meta: pd.DataFrame

    def copied(self, frame: Frame, name: str) -> pa.Array:
        """Return a column that is passed through, on its way."""
        assert isinstance(frame, PandasFrame)
        return arrow_array(frame.frame[name])

    def table(self, batch: Batch, first: int, text: str) -> pd.DataFrame:
        """Return a DataFrame."""
        frame, bare = PandasFrame(self.meta), replace(self.plan, passthrough=(), keeps_index=False)
        spaces = self.plan.released_spaces
        batch = batch or {**frame.codes(spaces, "impute"), **{n: frame.array(n) for n in self.plan.passthrough}}
        rows = length(batch)
        table = frame.rebuild(bare, spaces, {name: batch[name] for name in spaces}, np.arange(rows), text)
        table.index = pd.RangeIndex(first, first + rows, name=table.index.name)
        for name in self.plan.passthrough:
            table[name] = pd.Series(batch[name].to_pandas(), dtype=self.meta[name].dtype).set_axis(table.index)
        table = table[frame.output_names(self.plan)]
        table.attrs = {METADATA_KEY: text}
        return table

    def write(self, batch: Batch, file: IO[bytes], info: ReleaseInfo, compression: str) -> None:
        """Write the file that `dpframe.write` writes of these rows."""
        pq.write_table(as_table(self.table(batch, 0, info.to_json())), file, compression=compression)
