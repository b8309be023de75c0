"""Several tables of the same persons, released together: the entry point, and the releases as one object."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.api.files import write
from dpframe.api.linked_request import as_frame, check_folder, linked_job, rows_by_child
from dpframe.disk import WEB_PAGE, check_ending, write_text
from dpframe.errors import (
    DpframeWarning,
    FileError,
    NotSanitizedError,
    ParameterError,
    check_fraction,
    name_list,
)
from dpframe.estimate import Estimates
from dpframe.estimate.functions import PROBE_ROWS, evaluate, find_columns_read
from dpframe.estimate.linked_rows import draw_children
from dpframe.estimate.synthetic import make_generator
from dpframe.ledger.account import OpenAccount
from dpframe.plan.certificate import Certificate
from dpframe.plan.data import MOST_PERSON_ROWS
from dpframe.plan.notebook import notebook_html
from dpframe.proofs.verify import verify_together
from dpframe.release.info import ReleaseInfo
from dpframe.release.linked_plan import LinkedExplanation
from dpframe.release.reader import read_info
from dpframe.release.together import Together
from dpframe.report.report import Report
from dpframe.tables.frames import release_text
from dpframe.tables.joined import link
from dpframe.tables.lists import nest
from dpframe.tables.table import engine_of

if TYPE_CHECKING:
    from dpframe.api.accessor import ReleaseFrame

_COPIES = 20
"""Draws of all tables for an answer of `ReleasedTables.infer`: its standard error errs by a sixth (tolerance)."""


def sanitize_linked(
    source: Any,
    folder: Path | None,
    epsilon: float | None,
    delta: float | None,
    ledger: Any,
    dataset: str | None,
    **options: Any,
) -> ReleasedTables:
    """Release several tables of the same persons under one promise, also to a folder; see `dpframe.sanitize`."""
    if folder is not None:
        check_folder(folder)  # before the spend
    account = OpenAccount.of(ledger, dataset)
    tables = ReleasedTables(linked_job(source, epsilon, delta, account=account, **options).run().frames)
    if folder is None:
        return tables
    tables.write(folder)
    engine = engine_of(next(iter(tables.values())))
    # A lazy frame computes its rows anew each time; those of the folder are only read.
    return tables if engine is None else ReleasedTables({n: engine.read_files(_file(folder, n)) for n in tables})


def _file(folder: Path, table: str) -> Path:
    """Return the place of a released table in a folder."""
    return folder / f"{table}.parquet"


def check_links(
    tables: Mapping[str, Any], keys: Mapping[str, Mapping[str, str]], contributions: Any = 1
) -> pd.DataFrame:
    """Return how many rows of child tables have no parent, or are beyond those kept: exact, for the curator.

    Parameters
    ----------
    tables, keys, contributions
        As for `dpframe.sanitize`.

    Returns
    -------
    DataFrame with a row for each child table: its ``rows``, ``orphans`` without a parent row, the most rows of a person
    (``largest``), the ``kept`` rows and their ``share``, and the share of persons without a row (``childless``).

    Raises
    ------
    ParameterError, ColumnError
        As `dpframe.sanitize`, but for orphans.

    Examples
    --------
    >>> import pandas as pd
    >>> patients = pd.DataFrame({"patient_id": [1, 2, 3]})
    >>> visits = pd.DataFrame({"patient_id": [1, 1, 1, 2, 9]})
    >>> keys = {"visits": {"patient_id": "patients"}}
    >>> check_links({"patients": patients, "visits": visits}, keys, contributions=2)
            rows  orphans  largest  kept  share  childless
    visits     5        1        3     3   0.75   0.333333
    """
    frames = {name: as_frame(name, table) for name, table in tables.items()}
    children = [name for name in frames if isinstance(keys, Mapping) and name in keys]
    kept_rows = rows_by_child(contributions, children, "contributions", MOST_PERSON_ROWS)
    linked = link(frames, keys, kept_rows, {name: len(table) for name, table in frames.items()}, "drop")
    rows = {}
    for child in linked.children:
        counts = child.counts(linked.n)
        total, most = int(counts.sum()), np.minimum(counts, child.rows)
        rows[child.name] = {
            "rows": len(child.frame),
            "orphans": len(child.frame) - total,
            "largest": int(counts.max(initial=0)),
            "kept": int(most.sum()),
            "share": int(most.sum()) / max(total, 1),
            "childless": float((counts == 0).mean()) if linked.n else 0.0,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


class ReleasedTables(Mapping[str, "ReleaseFrame"]):
    """Releases of several tables of the same persons under one promise: a mapping of names to DataFrames.

    Each table has its own ``.dp``. A child table, ``safe["visits"]``, has exactly k rows for every person: absent rows
    are null in all columns of the child table. It also has the parents' columns, ``"patients.sex"``, and the number of
    the person's rows, ``"visits.n"``, which the parents' table has as well. Statistics of its columns are of the kept
    rows, at most k of a person.

    Examples
    --------
    >>> import pandas as pd, dpframe as dpf
    >>> patients = pd.DataFrame({"patient_id": range(500), "sex": ["F", "M"] * 250})
    >>> visits = pd.DataFrame({"patient_id": [i // 2 for i in range(1000)], "kind": ["urgent", "routine"] * 500})
    >>> spaces = {"patients": {"sex": ["F", "M"]}, "visits": {"kind": ["urgent", "routine"]}}
    >>> safe = dpf.sanitize(
    ...     {"patients": patients, "visits": visits}, epsilon=4, keys={"visits": {"patient_id": "patients"}},
    ...     contributions={"visits": 2}, spaces=spaces, key=bytes(32),
    ... )
    >>> safe["visits"].dp.crosstab("kind", "patients.sex")["estimate"].round(-1)
    patients.sex      F      M
    kind
    urgent        250.0  250.0
    routine       240.0  270.0
    """

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        self._tables = dict(tables)
        infos = {name: _info_of(name, table) for name, table in self._tables.items()}
        self.releases: Mapping[str, ReleaseInfo] = infos
        self._promises = {name: cast(Together, info.together) for name, info in infos.items()}
        first = next(iter(self._promises.values()))
        if len({promise.id for promise in self._promises.values()}) > 1:
            raise NotSanitizedError("these are tables of two releases; take all of one release")
        if set(first.tables) != set(infos):
            raise NotSanitizedError(f"these are not all tables of one release, which has {name_list(first.tables)}")
        self.parent = first.parent

    def __getitem__(self, name: str) -> ReleaseFrame:
        if name not in self._tables:
            raise KeyError(f"no table {name!r}; tables are {name_list(list(self._tables))}")
        return cast("ReleaseFrame", self._tables[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def promise(self) -> Budget:
        """The (ε, δ) of all tables together, for a person with all rows: the one to quote."""
        first = self._promises[self.parent]
        return Budget(first.epsilon, first.delta)

    @cached_property
    def _estimates(self) -> dict[str, Estimates]:
        return {name: Estimates(table) for name, table in self._tables.items()}

    def _columns_read(self, f: Callable[[Any], Any]) -> dict[str, tuple[str, ...]]:
        """Return the columns of each table without which a function fails, or has another value."""
        small_tables = self._small_tables

        def of_one(name: str, table: pd.DataFrame) -> Any:
            return f(self._as_source({**small_tables, name: table}))

        return {name: tuple(find_columns_read(partial(of_one, name), small_tables[name])) for name in self._tables}

    @cached_property
    def _small_tables(self) -> dict[str, pd.DataFrame]:
        """Few synthetic rows of each table, which show what a function reads."""
        with warnings.catch_warnings(action="ignore", category=DpframeWarning):
            tables = self._draw(0)
        key, parents = self._promises[self.parent].key, tables[self.parent].head(PROBE_ROWS)
        rows = {n: t[t[self._promises[n].key].isin(parents[key])] for n, t in tables.items() if n != self.parent}
        return {**rows, self.parent: parents}

    def _copies(self, columns: Mapping[str, Sequence[str]]) -> list[dict[str, pd.DataFrame]]:
        """Return draws of all tables with some of their columns; of fewer columns draws are better."""
        cache_key = tuple((name, tuple(names)) for name, names in columns.items())
        if cache_key not in self._copies_by_columns:
            parents, copies = columns[self.parent], {}
            for name, one in self._estimates.items():
                promise = self._promises[name]
                released_columns = [column for column in columns[name] if column in one.plan.names]
                names = [*released_columns, *(f"{child}.n" for child in self._tables if child != name)]
                if name != self.parent and not released_columns:
                    # Only the number of its rows is asked.
                    copies[name] = [pd.DataFrame()] * _COPIES
                    continue
                if name != self.parent:
                    # One column tells kept rows from absent ones.
                    marks = [column for column in promise.required if column in released_columns] or list(
                        promise.required
                    )
                    names = [*released_columns, *marks[:1], f"{name}.n"]
                    names += [c for c in promise.context if c.removeprefix(f"{self.parent}.") in parents]
                drawable = [column for column in one.plan.names if column in names]
                copies[name] = list(one.synthesize(copies=_COPIES, columns=drawable))
            self._copies_by_columns[cache_key] = self._joined_copies(copies)
        return self._copies_by_columns[cache_key]

    @cached_property
    def _copies_by_columns(self) -> dict[Any, list[dict[str, pd.DataFrame]]]:
        return {}

    def _joined_copies(self, copies: Mapping[str, Sequence[pd.DataFrame]]) -> list[dict[str, pd.DataFrame]]:
        """Return draws of each table as draws of all, with keys that match."""
        generator, draws = np.random.default_rng(0), zip(*copies.values(), strict=True)
        return [self._with_keys(dict(zip(copies, draw, strict=True)), generator) for draw in draws]

    def infer(self, f: Callable[[dict[str, pd.DataFrame]], Any], *, confidence_level: float = 0.95) -> Any:
        """Return any function of the tables, with intervals.

        Parameters
        ----------
        f
            A function of a dictionary of DataFrames, with the keys of the original tables, that returns a number, a
            Series or an array of numbers; of one frame with columns of lists, if that was released. It is called on
            draws of the tables, `synthesize` with ``copies``.
        confidence_level
            Level of the intervals, in (0, 1).

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` for a number, otherwise a DataFrame of these columns, by Rubin's
        rules. Numbers of child rows are exact up to a cap, and child rows resemble those of parents with equal values.

        Raises
        ------
        ParameterError
            If ``f`` is no function, or returns no numbers.
        """
        if not callable(f):
            raise ParameterError('f must be a function of a dictionary, e.g. lambda t: t["visits"]["cost"].mean()')
        level = check_fraction(confidence_level, "confidence_level", 0.95)
        copies: Any = list(map(self._as_source, self._copies(self._columns_read(f))))
        values = evaluate(cast(Any, f), copies, population=False)
        results = values.results(NormalDist().inv_cdf((1 + level) / 2), False)
        return results.series("infer") if values.index is None else results.frame(values.index)

    def synthesize(self, random_state: Any = None, *, copies: int | None = None) -> Any:
        """Return synthetic tables whose keys match: a dictionary of DataFrames, or a list of several.

        The parents are drawn first, each with its number of children; children are then drawn from synthetic joined
        rows of parents with equal values. Keys have the names of the original keys, and count from 0. Of one frame with
        columns of lists the result is such a frame again, with the columns of lists last.

        Parameters
        ----------
        random_state
            A seed, a numpy ``Generator``, or None for fresh entropy.
        copies
            Number of draws, from 2 to 40, which differ as much as the release leaves unknown.
        """
        if copies is None:
            return self._as_source(self._draw(random_state))
        if random_state is not None:
            raise ParameterError("copies are draws that follow from the release; leave out random_state")
        draws = {name: one.synthesize(copies=copies) for name, one in self._estimates.items()}
        return list(map(self._as_source, self._joined_copies(draws)))

    def _draw(self, random_state: Any) -> dict[str, pd.DataFrame]:
        """Return one draw of all tables, with keys that match."""
        generator = make_generator(random_state)
        draws = {name: one.synthesize(random_state=generator) for name, one in self._estimates.items()}
        return self._with_keys(draws, generator)

    def _as_source(self, tables: Mapping[str, pd.DataFrame]) -> Any:
        """Return tables as they came: a dictionary, or one frame with columns of lists."""
        kinds = {name: promise.lists for name, promise in self._promises.items() if promise.lists}
        if not kinds:
            return tables
        children = {name: (tables[name], kind) for name, kind in kinds.items()}
        return nest(tables[self.parent], self._promises[self.parent].key, children)

    def _with_keys(self, drawn: Mapping[str, pd.DataFrame], generator: np.random.Generator) -> dict[str, pd.DataFrame]:
        """Return synthetic parents and children with keys that match, from draws of each table."""
        parents = drawn[self.parent].reset_index(drop=True)
        tables = {}
        for name, promise in self._promises.items():
            if name == self.parent:
                counts = [f"{child}.n" for child in drawn if child != name]
                owners, table = np.arange(len(parents)), parents.drop(columns=counts)
            elif drawn[name].columns.empty:
                owners = np.repeat(np.arange(len(parents)), parents[f"{name}.n"].to_numpy(dtype=np.int64))
                table = pd.DataFrame(index=range(len(owners)))
            else:
                joined, flag = drawn[name], promise.presence
                marks = joined[[column for column in promise.required if column in joined.columns]]
                is_present = joined[flag].astype(bool) if flag in promise.required else marks.notna().all(axis=1)
                context = [column for column in self._context_by_dependence(name) if column in joined.columns]
                sources = {column: parents[column.removeprefix(f"{self.parent}.")] for column in context}
                rows = parents[f"{name}.n"].to_numpy(dtype=np.int64)
                pool = joined[is_present].drop(columns=flag, errors="ignore")
                table, owners = draw_children(pd.DataFrame(sources), pool, context, rows, generator)
            table.insert(0, promise.key, owners)
            table.attrs = {}
            tables[name] = table
        return tables

    def _context_by_dependence(self, name: str) -> list[str]:
        """Return the parents' columns of a child table, first those on which its columns depend most surely."""
        context = self._promises[name].context
        pairs = self._estimates[name].fidelity()["deviations"].dropna()
        scores = dict.fromkeys(context, 0.0)
        for pair, score in zip(pairs.index.to_list(), pairs, strict=True):
            shared = [column for column in pair if column in scores]
            if len(shared) == 1:
                scores[shared[0]] = max(scores[shared[0]], score)
        return sorted(context, key=lambda column: -scores[column])

    def explain(self) -> LinkedExplanation:
        """Return the promise of all tables, shares of child rows that are kept, and each table's part; prints as text.

        Shares are estimates, from the released numbers of rows of each person.
        """
        parts = {name: str(info.explain()) for name, info in self.releases.items()}
        kept = []
        for name in parts:
            if name == self.parent or f"{name}.n" not in self[self.parent].columns:
                continue
            # Unbiased counts, which may be negative: their sums are right.
            counts = self._estimates[self.parent].value_counts(f"{name}.n", method="inverse")["estimate"]
            rows = counts.index.to_numpy(dtype=np.float64)
            most = self.releases[name].plan.contributions
            fewer, total = -(-most // 2), max(float(counts @ rows), 1.0)
            shares = [min(float(counts @ np.minimum(rows, cap)) / total, 1.0) for cap in (most, fewer)]
            kept.append(
                f"About {shares[0]:.0%} of the rows of {name!r} are kept, of those counted up to {rows.max():.0f} of a "
                f"person: the others are beyond {most}"
            )
            if fewer < most:
                # Noise is proportional to the kept rows of a person.
                kept[-1] += f"; contributions={fewer} keeps about {shares[1]:.0%} at {fewer / most:.0%} of the noise"
        return LinkedExplanation(self._promises[self.parent].line, tuple(kept), parts)

    def report(self) -> LinkedReport:
        """Return one report on the promise of all tables, and on each of them."""
        reports = {name: Report(self.releases[name], table) for name, table in self._tables.items()}
        return LinkedReport(self._promises[self.parent].line, reports)

    def verify(self) -> Certificate:
        """Prove the promise of all tables from their plans, and compare each table with the released one."""
        return verify_together(self._tables)

    def write(self, folder: str | Path) -> None:
        """Write the tables to a new folder, one Parquet file each, which `dpframe.read` reads back.

        Raises
        ------
        FileError
            If the folder exists and is not empty, or cannot be written.
        """
        path = check_folder(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path} cannot be written: {error.strerror}; name a folder that can") from None
        for name, table in self._tables.items():
            engine = engine_of(table)
            (write if engine is None else engine.write)(table, _file(path, name))

    def __repr__(self) -> str:
        rows = (
            f"{name}: {self.releases[name].n:,} rows, {name_list(list(table.columns))}"
            for name, table in self._tables.items()
        )
        more = 'Tables: safe["NAME"].dp.mean("…"); functions of all: safe.infer(f); more: safe.explain()'
        return "\n".join([f"<{self._promises[self.parent].line}>", *rows, more])

    def _repr_html_(self) -> str:
        parts = [(name, repr(table.dp).splitlines()) for name, table in self.items()]
        return notebook_html(self._promises[self.parent].line, parts)


@dataclass(frozen=True)
class LinkedReport:
    """The reports on tables that were released together, ``tables``, as one page."""

    promise: str
    tables: Mapping[str, Report]

    def to_html(self) -> str:
        """Return the reports as one self-contained HTML page, one after the other."""
        pages = {name: report.to_html() for name, report in self.tables.items()}
        head, _, _ = next(iter(pages.values())).partition("<main>")
        parts = [f"<h1>{escape(self.promise)}</h1>"]
        for name, text in pages.items():
            parts += [f"<h1>{escape(name)}</h1>", text.partition("<main>")[2].partition("</main>")[0]]
        return "\n".join([f"{head}<main>", *parts, "</main>\n</body>\n</html>\n"])

    def save(self, path: str | Path) -> None:
        """Write `to_html` to an .html file, whole or not at all; `FileError` if it cannot be written."""
        check_ending(path, *WEB_PAGE)
        write_text(path, self.to_html())

    def __str__(self) -> str:
        return "\n\n".join([self.promise, *(f"{name}\n{report}" for name, report in self.tables.items())])

    __repr__ = __str__


def _info_of(name: str, table: pd.DataFrame) -> ReleaseInfo:
    """Return a table's description, or refuse a table that was not released with others."""
    engine = engine_of(table)
    text = release_text(table) if engine is None else engine.info(table).to_json()
    info = None if text is None else read_info(text)
    if info is None or info.together is None or info.together.table != name or info.together.refusal(info.plan):
        raise NotSanitizedError(f"table {name!r} is not the released table of that name; take all of one release")
    return info
