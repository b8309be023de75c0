"""Releases in files: one table, or the folder of several that were released together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from dpframe.api.files import read_table
from dpframe.errors import ParameterError
from dpframe.release.reader import linked_files

if TYPE_CHECKING:
    from dpframe.api.accessor import ReleaseFrame


def read(path: str | Path, columns: list[str] | None = None) -> ReleaseFrame:
    """Read a release, or any Parquet file, into pandas; a release keeps its plan, and ``.dp`` works on it.

    The folder of tables that were released together is read as `ReleasedTables`.

    Unlike `pandas.read_parquet` the metadata of every file is checked. Of a release in CSV the plan lies in the same
    folder; times with a zone come back in UTC, without it: CSV keeps none.

    Parameters
    ----------
    path
        A Parquet or CSV file, a directory of them, or a glob.
    columns
        Names of the columns to read; all by default.

    Raises
    ------
    ColumnError
        For a name that the file does not have.
    FileError
        If the source is missing or damaged, or its files carry different plans.
    NotSanitizedError
        For CSV that is no release: `pandas.read_csv` reads it.

    Examples
    --------
    >>> import tempfile
    >>> import dpframe as dpf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dpf.datasets.make_census(1_000, columns=["age"]).to_csv(f"{folder}/in.csv")
    ...     info = dpf.sanitize(f"{folder}/in.csv", f"{folder}/safe.csv", epsilon=1, spaces={"age": (18, 95)})
    ...     safe = read(f"{folder}/safe.csv")
    >>> safe.dp.release == info, str(safe["age"].dtype)
    (True, 'int64')
    """
    files = linked_files(path)
    if not files:
        return read_table(path, columns)
    if columns is not None:
        raise ParameterError("columns are of one table; read the folder without columns, or one of its files")
    from dpframe.api.linked import ReleasedTables  # imports estimates, which one table does without

    return cast("ReleaseFrame", ReleasedTables({name: read_table(file) for name, file in files.items()}))
