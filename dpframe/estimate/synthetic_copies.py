"""Several synthetic tables of one release, which are multiple imputations of the original."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.disk import atomic
from dpframe.errors import FileError, ParameterError, check_fraction
from dpframe.estimate.functions import bootstrap_rows, evaluate
from dpframe.release.reader import TARGETS


class SyntheticCopies(list[pd.DataFrame]):
    """Synthetic tables that are draws of the original: a list of DataFrames, whose analyses combine by Rubin's rules.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    >>> safe = dpf.sanitize(frame, epsilon=4, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
    >>> copies = dpf.Estimates(safe).synthesize(copies=5)
    >>> copies.combine(lambda table: table["age"].mean())["estimate"].round()
    np.float64(52.0)
    """

    def combine(
        self, f: Callable[[pd.DataFrame], Any], *, target: str = "population", confidence_level: float = 0.95
    ) -> Any:
        """Return any function of the table, computed on each copy, with intervals by Rubin's rules.

        Its variance is Ū + (1 + 1/m)·B, with Ū the mean variance within a copy and B the variance between m copies.

        Parameters
        ----------
        f
            As for `Estimates.infer`. Ū is of its result's standard errors, ``.bse``, or of a bootstrap sample of each
            copy.
        target
            ``"population"``, or ``"table"`` for the original table itself, without Ū.
        confidence_level
            Level of the intervals, in (0, 1).

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` for a number, otherwise a DataFrame of these columns.

        Raises
        ------
        ParameterError
            If ``f`` returns no numbers, or different numbers of results on the copies.
        """
        if not callable(f):
            raise ParameterError("f must be a function of a DataFrame; write e.g. lambda t: t['age'].median()")
        if target not in TARGETS:
            raise ParameterError('target must be "table" or "population"')
        if not self:
            raise ParameterError("there are no copies to combine; synthesize(copies=20) draws some")
        level = check_fraction(confidence_level, "confidence_level", 0.95)
        values = evaluate(f, self, target == "population")
        results = values.results(NormalDist().inv_cdf((1 + level) / 2), target == "population")
        return results.series("combined") if values.index is None else results.frame(values.index)

    def resampled(self, table: pd.DataFrame, draw: int) -> pd.DataFrame:
        """Return a bootstrap sample of a table."""
        return bootstrap_rows(table, np.random.default_rng(draw))

    def to_parquet(self, folder: str | Path) -> list[Path]:
        """Write one Parquet file for each copy, ``copy-01.parquet`` and so on, and return their paths.

        The folder is made if it does not exist.

        Raises
        ------
        FileError
            If the folder holds files of other copies, or cannot be written.
        """
        folder_path = Path(folder)
        try:
            folder_path.mkdir(parents=True, exist_ok=True)
            # Copies of two releases in one folder would be combined as if they were of one.
            if any(folder_path.glob("copy-*.parquet")):
                raise FileError(f"{folder_path} holds synthetic copies already; name another folder")
            paths = [folder_path / f"copy-{number:02}.parquet" for number in range(1, len(self) + 1)]
            for path, table in zip(paths, self, strict=True):
                # A copy that was cut short would be read as a smaller table.
                with atomic(path) as file:
                    table.to_parquet(file, index=False)
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"{folder_path} cannot be written: {error.strerror}; name a folder that can") from None
        return paths
