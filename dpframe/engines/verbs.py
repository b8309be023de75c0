"""The functions `plan` and `sanitize` of an engine, from its functions that open tables and make lazy frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack

from dpframe.api.public import Plan
from dpframe.engines.job import PreparedRelease, release_table
from dpframe.engines.staging import check_target
from dpframe.engines.table import EngineTable
from dpframe.ledger.account import OpenAccount
from dpframe.plan.options import PlanOptions, check_codec, documented
from dpframe.release.job import planned
from dpframe.release.planning import Request

T = TypeVar("T", bound=EngineTable)


@dataclass(frozen=True)
class Verbs(Generic[T]):
    """The two functions of an engine's module."""

    open_source: Callable[[Any, str | None], T]
    """Opens a source that may be returned as a lazy frame."""
    make_frame: Callable[[T, PreparedRelease], Any]
    """Returns a release as a lazy frame of the engine."""
    open_files: Callable[[Any, str | None], EngineTable]
    """Opens a source that is only read."""

    @property
    def plan(self) -> Callable[..., Plan]:
        """The function that makes plans."""

        @documented
        def plan(
            source: Any,
            epsilon: float | None = None,
            delta: float | None = None,
            *,
            id: str | None = None,
            ledger: Any = None,
            dataset: str | None = None,
            **options: Unpack[PlanOptions],
        ) -> Plan:
            """Plan how a frame of Dask or Spark, or Parquet files, would be sanitised; see `dpframe.plan`.

            Private inference reads columns without declared spaces three or four times. Workers count, and the driver
            adds noise.

            Parameters
            ----------
            source, id
                As for `sanitize`.
            epsilon, delta, ledger, dataset
                As for `dpframe.plan`.
            {options}
            """
            return planned(self.open_files(source, id), epsilon, delta, OpenAccount.of(ledger, dataset), options)

        return plan

    @property
    def sanitize(self) -> Callable[..., Any]:
        """The function that releases tables."""

        @documented
        def sanitize(
            source: Any,
            plan: Plan | None = None,
            target: str | Path | None = None,
            *,
            epsilon: float | None = None,
            delta: float | None = None,
            id: str | None = None,
            key: bytes | None = None,
            ledger: Any = None,
            dataset: str | None = None,
            compression: str = "snappy",
            **options: Unpack[PlanOptions],
        ) -> Any:
            """Randomise every row of a frame of Dask or Spark, or of Parquet files, by the engine's workers.

            Parameters
            ----------
            source
                A frame, or the path of Parquet files that the workers see as well. A Spark frame must have all rows of
                its files, whose rows are known by file and position; other Spark frames need ``id``.
            plan
                A ready plan; see `plan`.
            target
                A new directory of Parquet files with the plan in their footers; the driver and the workers must see it
                under one path. It appears complete or not at all. Without a target, a lazy frame is returned.
            id
                A column of a frame that names every row once: whole numbers or text. Rows are then known by it in any
                partition, and the column is left out. Without ``id``, rows of a Dask frame are known by their position,
                and partitions must not change.
            key
                32 secret bytes, to repeat an interrupted release of the *same* table; by default fresh. The key travels
                to the workers inside tasks, and appears in no name, query plan, repr or log.
            ledger, dataset
                A `Ledger`, or its path, and the dataset in it (or a `Ledger.account`) from which the release spends,
                before any task draws. With ``target``, a job that is interrupted keeps its key next to the ledger, as
                `dpframe.sanitize` does.
            compression
                Parquet compression codec.
            epsilon, delta
                The promise, replace-one, per person, in place of a plan. ``delta=None`` is min(1e-6, n^−1.5). Under a
                ledger private inference is entered by itself, before the release.
            {options}

            Returns
            -------
            A shuffled frame that is equal each time it is computed, with the plan in a Dask frame's ``attrs`` or in the
            metadata of a Spark frame's columns; or, with ``target``, the description of the release.

            Raises
            ------
            FileError
                If there is no Java for Spark, files are missing or damaged, the target exists or the workers cannot
                write it, or rows or partitions have changed since they were counted; of a lazy frame when it is
                computed.
            ParameterError, ColumnError, AlreadySanitizedError, BudgetExceeded, LedgerError
                As `dpframe.sanitize`.
            """
            check_codec(compression)
            account = OpenAccount.of(ledger, dataset)
            path = None if target is None else check_target(target)
            table: Any = self.open_source(source, id) if path is None else self.open_files(source, id)
            request = Request(epsilon, delta, plan, options)
            return release_table(table, request, account, key, path, compression, self.make_frame)

        return sanitize
