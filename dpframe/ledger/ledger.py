"""The ledger of spends on each dataset: a small SQLite file that any number of processes share.

A spend is committed and durable *before* any noise is drawn, and is never taken back: a crash wastes budget,
it never hides spending. Releases of one dataset add up as `currencies` says, chosen when the dataset is created: as
(Σεᵢ, Σδᵢ), or as (Σμᵢ², Σδ₀ᵢ). The tighter sums of fixed releases do not hold here, for who looks at one release
chooses the budget of the next (Rogers, Roth, Ullman and Vadhan 2016); these two do.

*Sums are exact*, of the decimals that Python prints (see `currencies`): for anything a person writes with up to 15
digits, the decimal is the written number. So 0.1 means one tenth, ten of them fit into 1.0, and three do not overdraw
0.3.

The file belongs on a local disk, under one name: SQLite's write-ahead log is no good between computers, and goes by
the name, so that hard links are refused. An older copy put back in its place forgets the later spends.
"""

from __future__ import annotations

import getpass
import json
import os
import sqlite3
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from dpframe.accounting.budget import Budget, check_epsilon
from dpframe.accounting.gaussian_dp import Step
from dpframe.accounting.unit import Unit
from dpframe.errors import LedgerError, ParameterError, name_list
from dpframe.ledger.currencies import CURRENCIES, Amount, Currency, DatasetTotal, StoredAmount, Sum, Tally, currency_of
from dpframe.ledger.draws import Draws, find_release, record
from dpframe.ledger.sqlite import make_file, remedy, transaction


@dataclass(frozen=True)
class Entry:
    """One spend as the ledger stores it; ``replayed`` means that an earlier call entered it."""

    dataset: str
    release_id: str
    what: str
    who: str
    when: datetime
    amount: Budget
    cumulative: Amount
    step: Step
    part: str | None = None
    replayed: bool = False


def _check_text(value: Any, name: str) -> str:
    """Return text that SQLite keeps as it is, or raise `ParameterError`."""
    try:
        # SQLite stores neither zero bytes nor lone surrogates, which `encode` refuses.
        valid = isinstance(value, str) and bool(value.strip()) and "\0" not in value and bool(value.encode())
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ParameterError(f"{name} must be text of at least one character, e.g. {name}='survey-2026'")
    return str(value)


def _fold_name(name: str) -> str:
    """Return a name without case, width and spacing, to compare names as people read them.

    >>> _fold_name("Cafe\u0301 1 ") == _fold_name("caf\u00e9  1")
    True
    """
    # Case folding may leave the normal form: Unicode compares names by NFKC before and after the folding.
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


def _check_parts(parts: Any, moving: Any) -> tuple[str, ...]:
    """Return the names of parts, or raise `ParameterError`."""
    if not isinstance(moving, bool):
        raise ParameterError("moving must be True or False: whether a replaced row may move between parts")
    # Text is iterable, but its letters are no parts.
    names = () if isinstance(parts, str) or not isinstance(parts, Iterable) else tuple(parts)
    if names == () and (parts != () or moving):
        raise ParameterError('parts must be names of public, disjoint parts, e.g. parts=("north", "south")')
    for name in names:
        _check_text(name, "part")
    if len(set(names)) != len(names):
        raise ParameterError("parts must differ from one another; name each of them once")
    return names


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def as_ledger(ledger: Any) -> Ledger:
    """Return a `Ledger`, also from its path."""
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


@dataclass(frozen=True)
class Account:
    """The budget of a dataset, or of one of its parts, in a ledger; see `Ledger.account`."""

    ledger: Ledger
    dataset: str
    part: str | None = None
    run: str | None = None

    @property
    def name(self) -> str:
        """The dataset's and the part's name: no other account has both."""
        return json.dumps([self.dataset] if self.part is None else [self.dataset, self.part])


@dataclass(frozen=True)
class Ledger:
    """A file of named datasets with their total budgets and spends.

    It holds a path and no connection: it may be copied, pickled and sent to other processes.

    Parameters
    ----------
    path
        The ledger's file, on a local disk; `create` makes it, readable only by its owner.
    timeout
        Seconds to wait while another process writes.

    Raises
    ------
    ParameterError
        If ``path`` is not a path.
    LedgerError
        By every method, if the file is missing, no ledger, damaged, of a newer version, locked, read-only,
        or on a full disk.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/ledger.sqlite")
    >>> ledger.create("survey", epsilon=1.0)
    Budget(epsilon=1.0, delta=0.0)
    >>> for night in range(7):
    ...     entry = ledger.spend("survey", 0.1, 0.0, release_id=f"night {night}")
    >>> ledger.remaining("survey")
    Amount(epsilon=0.3, delta=0.0)
    >>> ledger.spend("survey", 0.4, 0.0, release_id="one more").amount
    Traceback (most recent call last):
        ...
    dpframe.errors.BudgetExceeded: dataset survey has epsilon=0.3, delta=0 left of epsilon=1, delta=0, and
    epsilon=0.4, delta=0 was asked: nothing was spent and nothing was drawn; ask for no more than is left, or
    create a dataset with a larger total, which counts from 0: for the same people both add up
    >>> folder.cleanup()
    """

    path: str | os.PathLike[str]
    timeout: float = field(default=60.0, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        path = os.fspath(self.path) if isinstance(self.path, str | os.PathLike) else None
        if not isinstance(path, str) or not path or "\0" in path:
            raise ParameterError("ledger must be the path of a file, e.g. ledger='ledger.sqlite'")
        # The dataclass is frozen; a path is stored as text.
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "timeout", check_epsilon(self.timeout, "timeout"))

    def create(
        self,
        dataset: str,
        epsilon: float,
        delta: float = 0.0,
        *,
        accounting: str | None = None,
        parts: Iterable[str] = (),
        moving: bool = False,
        unit: Unit | str | int = "row",
    ) -> Budget:
        """Register a dataset with its total budget, for good; make the file if it does not exist.

        Parameters
        ----------
        dataset
            Its name.
        epsilon, delta
            Total budget: ε > 0, 0 ≤ δ < 1.
        accounting
            ``"gaussian"``, the default where δ > 0, adds up μ², and δ₀ in a pool of half of δ: n equal shuffled
            releases cost about √n of one. ``"basic"``, the only one where δ = 0, adds up ε and δ: for unshuffled
            releases, which cost more of μ² than they cost of ε.
        parts
            Names of public, disjoint parts of the rows, by a key that is public: what is spent on different parts
            does not add up, the largest part's sum counts (parallel composition).
        moving
            Whether a replaced row may move from one part to another. Then the two largest sums count, and only
            mechanisms that are private for adding and for removing a row, too, may be spent on a part.
        unit
            Whom all of its promises are for: ``"row"``, ``"10 rows"`` (as many as one person may own, which is
            ``contributions=10`` of a plan) or ``"person:patient"`` (``privacy_id="patient"``). Others are refused.
            ``"add_remove row"`` is a row that is added or removed (``neighbours="add_remove"`` of `Queries`; releases
            show how many rows there are, and are for rows that are replaced). What is promised for 2k rows that are
            added or removed holds for k that are replaced, and adds up there.

        Raises
        ------
        ParameterError
            If a name is no text, a number out of range, the unit none, or Gaussian accounting is asked without δ.
        LedgerError
            If the dataset is there already, whose total cannot change, or one whose name reads like it.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger(f"{folder.name}/ledger.sqlite")
        >>> total = ledger.create("survey", epsilon=1.0, parts=("north", "south"))
        >>> for part in ("north", "south"):
        ...     entry = ledger.spend("survey", 0.6, 0.0, release_id=f"a {part}", part=part)
        >>> ledger.spent("survey"), ledger.remaining("survey", part="north")
        (Amount(epsilon=0.6, delta=0.0), Amount(epsilon=0.4, delta=0.0))
        >>> folder.cleanup()
        """
        name, total, names = _check_text(dataset, "dataset"), Budget(epsilon, delta), _check_parts(parts, moving)
        currency, privacy_unit = currency_of(accounting, total.delta), Unit.of(unit)
        # Before the file is made: a total that the currency refuses must leave no empty ledger.
        stored_total = currency.whole(total)
        make_file(self._file)
        with transaction(self._file, self.timeout, write=True, create=True) as connection:
            # Names are compared within the transaction: another process may create a dataset meanwhile.
            similar_names = [
                other_name for other_name in _read_datasets(connection) if _fold_name(other_name) == _fold_name(name)
            ]
            if name in similar_names:
                raise LedgerError(
                    f"dataset {name_list([name])} is in {self._file} already, and its total cannot change: "
                    "a second dataset of the same people adds to it"
                )
            if similar_names:
                raise LedgerError(
                    f"dataset {name_list(similar_names)} is in {self._file} already, and {name_list([name])} reads "
                    "like it but "
                    "for case, spaces or how letters are encoded: spend from that one, or take another name"
                )
            connection.execute(
                _NEW_DATASET, (name, *stored_total, _utc_now(), currency.name, int(moving), str(privacy_unit))
            )
            connection.executemany("INSERT INTO parts VALUES (?, ?)", [(name, part) for part in names])
        return total

    def spend(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        *,
        release_id: str,
        what: str = "release",
        who: str | None = None,
        step: Step | None = None,
        part: str | None = None,
        unit: Unit | str | int = "row",
        draws: Draws | None = None,
    ) -> Entry:
        """Spend (ε, δ), or its step; when this returns it is on disk for good.

        Parameters
        ----------
        dataset
            Its name.
        epsilon, delta
            The promise of the coming release: ε > 0, 0 ≤ δ < 1.
        release_id
            Name of this release and of no other: the same one again, for the same dataset and amount, is
            taken for a repetition of the same release under the same key, and costs nothing.
        what, who
            Notes for the history; ``who`` is the user's login name by default.
        step
            The release as a step (μ, δ₀), which Gaussian accounting adds up. By default the one that dominates
            everything (ε, δ)-private: pure ε, and δ₀ = δ.
        part
            The part whose rows are released; by default all rows are, as one table.
        unit
            The privacy unit; it must be the dataset's own, as promises for other units do not add up to it.
        draws
            Digests under the release's key, by names of the noise that it draws: a digest of the table. A release of
            which all was drawn for this dataset and part is the same one again, and costs nothing.

        Raises
        ------
        BudgetExceeded
            If more was asked than is left, of ε or of δ, of μ² or of the pool of δ₀. Nothing is spent then.
        LedgerError
            If the dataset is unknown, the release id belongs to another dataset, part or amount, or some of the noise
            was drawn for another table.
        ParameterError
            If a name is no text, a number out of range, the part none of the dataset's, or the unit another.
        """
        # Checks come before the transaction: a refused call must not make other processes wait for the lock.
        amount = StoredAmount.of(Budget(epsilon, delta), _check_step(step))
        name, identifier, note = (
            _check_text(dataset, "dataset"),
            _check_text(release_id, "release_id"),
            _check_text(what, "what"),
        )
        privacy_unit = Unit.of(unit)
        person, part_name = (
            _login_name() if who is None else _check_text(who, "who"),
            None if part is None else _check_text(part, "part"),
        )
        with transaction(self._file, self.timeout, write=True) as connection:
            total = self._total(connection, name)
            total.check_part(part_name)
            total.check_unit(privacy_unit)
            # A release that drew all this noise before is found by its noise, whatever its new id.
            earlier_id = find_release(connection, draws or {}, name, part_name)
            entry = self._entry(connection, identifier if earlier_id is None else earlier_id)
            if entry is not None:
                # A release under a known id may draw more noise than before, e.g. once inference has made its plan.
                if earlier_id is None:
                    record(connection, draws or {}, _check_repetition(entry, name, amount, part_name).release_id)
                return entry
            tally = _sum_spends(connection, total)
            # The check and the entry share one transaction, so that two processes cannot overdraw a budget.
            tally.refuse(amount, part_name)
            row = (name, identifier, note, person, time_text := _utc_now(), *amount, part_name)
            connection.execute(_NEW_SPEND, row)
            record(connection, draws or {}, identifier)
        # The cumulative amount is computed after the lock is released: it needs no further reading.
        tally.add(total.currency.exact(amount), part_name)
        (cumulative,) = total.currency.spent([tally.charged], total)
        timestamp = datetime.fromisoformat(time_text)
        return Entry(name, identifier, note, person, timestamp, amount.budget, cumulative, amount.step, part_name)

    def total(self, dataset: str) -> Budget:
        """Return a dataset's total budget."""
        with transaction(self._file, self.timeout) as connection:
            return self._total(connection, dataset).budget

    def spent(self, dataset: str) -> Amount:
        """Return the spent amount of a dataset, rounded up.

        In Gaussian accounting ε is the joint ε of all spends at the dataset's δ, and δ the sum of δ₀.
        """
        with transaction(self._file, self.timeout) as connection:
            total = self._total(connection, dataset)
            tally = _sum_spends(connection, total)
        return total.currency.spent([tally.charged], total)[0]

    def account(self, dataset: str, part: str | None = None, *, run: str | None = None) -> Account:
        """Return the budget of a dataset, or of one of its parts, as one value for ``ledger=`` of every entry point.

        Nothing is read here: a dataset or a part that the ledger does not have is refused when it is spent from.

        Parameters
        ----------
        dataset
            The dataset's name.
        part
            The part that a table's rows belong to, by a public key.
        run
            A public name of the run of a job that writes a file, e.g. its date. A run that is done is not done again:
            nothing is read, spent or drawn then, even if the table has changed since.

        Raises
        ------
        ParameterError
            If ``dataset``, ``part`` or ``run`` is no text, or an empty one.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd, dpframe as dpf
        >>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.sqlite")
        >>> _ = ledger.create("survey", 1.0, 0.0, parts=["north", "south"])
        >>> north = pd.DataFrame({"sex": ["F", "M"] * 50})
        >>> account = ledger.account("survey", part="north")
        >>> safe = dpf.sanitize(north, epsilon=0.5, delta=0, spaces={"sex": ["F", "M"]}, ledger=account)
        >>> ledger.remaining("survey", part="north"), ledger.remaining("survey", part="south")
        (Amount(epsilon=0.5, delta=0.0), Amount(epsilon=1.0, delta=0.0))
        """
        name, part_name = _check_text(dataset, "dataset"), None if part is None else _check_text(part, "part")
        return Account(self, name, part_name, None if run is None else _check_text(run, "run"))

    def remaining(self, dataset: str, part: str | None = None) -> Amount:
        """Return the remaining amount of a dataset, or of one of its parts, rounded down.

        Added up by ε and δ it can be spent to the last digit. In Gaussian accounting ε is the value of M² − Σμ² at
        the dataset's δ, and δ is the rest of the pool of δ₀: once that is 0, ε is only for releases with delta=0.
        """
        with transaction(self._file, self.timeout) as connection:
            total = self._total(connection, dataset)
            total.check_part(part)
            tally = _sum_spends(connection, total)
        return total.currency.left(tally.left(part), total)

    def more(self, release_id: str) -> int | None:
        """Return how many more releases of this size fit into the remaining budget; None without end.

        Raises
        ------
        LedgerError
            If there is no such release.
        """
        with transaction(self._file, self.timeout) as connection:
            entry = self._entry(connection, release_id)
            if entry is None:
                raise LedgerError(
                    f"release_id {name_list([release_id])} is not in {self._file}; name one of its history"
                )
        return self.room(entry.dataset, entry.amount, entry.step, entry.part)

    def room(self, dataset: str, amount: Budget, step: Step | None = None, part: str | None = None) -> int | None:
        """Return how many releases of this amount fit into a dataset's remaining budget; None without end.

        Examples
        --------
        >>> import tempfile
        >>> from dpframe import Budget
        >>> ledger = Ledger(tempfile.mkdtemp() + "/ledger.sqlite")
        >>> _ = ledger.create("survey", 1.0)
        >>> ledger.room("survey", Budget(0.3))
        3
        """
        with transaction(self._file, self.timeout) as connection:
            total = self._total(connection, dataset)
            total.check_part(part)
            tally = _sum_spends(connection, total)
        return tally.room(StoredAmount.of(amount, step), part)

    def parts(self, dataset: str) -> tuple[str, ...]:
        """Return the names of a dataset's parts, in the order in which they were given."""
        with transaction(self._file, self.timeout) as connection:
            return self._total(connection, dataset).parts

    def unit(self, dataset: str) -> Unit:
        """Return the privacy unit of a dataset's promises."""
        with transaction(self._file, self.timeout) as connection:
            return self._total(connection, _check_text(dataset, "dataset")).unit

    def moving(self, dataset: str, part: str) -> bool:
        """Return whether a replaced row may move from a part of a dataset to another; refuse an unknown part."""
        with transaction(self._file, self.timeout) as connection:
            total = self._total(connection, _check_text(dataset, "dataset"))
            total.check_part(_check_text(part, "part"))
            return total.moving

    def datasets(self) -> list[str]:
        """Return the names of the datasets, in the order in which they were registered."""
        with transaction(self._file, self.timeout) as connection:
            return list(_read_datasets(connection))

    def find(self, release_id: str) -> Entry | None:
        """Return the spend of a release, or None if it has none."""
        with transaction(self._file, self.timeout) as connection:
            return self._entry(connection, release_id)

    def summary(self) -> pd.DataFrame:
        """Return one row per dataset: accounting, unit, total, spent and left of ε and of δ, and number of releases.

        In Gaussian accounting ε is at the dataset's δ, and the spent and remaining δ are δ₀, of the pool.
        """
        with transaction(self._file, self.timeout) as connection:
            tallies = [_sum_spends(connection, total) for total in _read_datasets(connection).values()]
            counts = dict(connection.execute("SELECT dataset, count(*) FROM spends GROUP BY dataset").fetchall())
        rows = []
        for tally in tallies:
            total, currency = tally.total, tally.total.currency
            (spent_amount,), remaining_amount = (
                currency.spent([tally.charged], total),
                currency.left(tally.left(), total),
            )
            epsilons = (total.budget.epsilon, spent_amount.epsilon, remaining_amount.epsilon)
            deltas = (total.budget.delta, spent_amount.delta, remaining_amount.delta)
            rows.append((total.name, currency.name, str(total.unit), *epsilons, *deltas, counts.get(total.name, 0)))
        return pd.DataFrame(rows, columns=[*_SUMMARY]).astype(_SUMMARY).set_index("dataset")

    def history(self, dataset: str | None = None) -> pd.DataFrame:
        """Return the spends in their order: who, when (UTC), label, amount, and cumulative amount.

        Columns: ``dataset, part, who, when, release_id, what, epsilon, delta, mu, slack, cumulative_epsilon,
        cumulative_delta``, the last two per dataset, as `spent` says. The part is "" if all rows were released.
        """
        with transaction(self._file, self.timeout) as connection:
            if dataset is not None:
                self._total(connection, dataset)
            tallies = {name: Tally(total) for name, total in _read_datasets(connection).items()}
            records = connection.execute(_SPENDS_OF_DATASET, {"dataset": dataset}).fetchall()
        sums: dict[str, list[Sum]] = {name: [] for name in tallies}
        for name, *_, part, epsilon, delta, mu, slack in records:
            tally = tallies[name]
            tally.add(tally.total.currency.exact(StoredAmount(epsilon, delta, mu, slack)), part)
            sums[name].append(tally.charged)
        # All cumulative amounts of a dataset at once: a search for each ε would take long.
        totals = {name: iter(tally.total.currency.spent(sums[name], tally.total)) for name, tally in tallies.items()}
        rows = []
        for name, identifier, note, person, time_text, part, *amount_texts in records:
            total = next(totals[name])
            amounts = (*(float(text) for text in amount_texts), total.epsilon, total.delta)
            rows.append((name, part or "", person, datetime.fromisoformat(time_text), identifier, note, *amounts))
        return pd.DataFrame(rows, columns=[*_HISTORY]).astype(_HISTORY)

    @property
    def _file(self) -> Path:
        return Path(self.path)

    def _total(self, connection: sqlite3.Connection, dataset: str) -> DatasetTotal:
        name, totals = _check_text(dataset, "dataset"), _read_datasets(connection)
        if name not in totals:
            raise LedgerError(
                f"dataset {name_list([name])} is not in {self._file}, which holds {name_list(totals) or 'none'}; "
                f"{remedy(self._file)}"
            )
        return totals[name]

    def _entry(self, connection: sqlite3.Connection, release_id: str) -> Entry | None:
        row = connection.execute(_SPEND_OF_RELEASE, (_check_text(release_id, "release_id"),)).fetchone()
        if row is None:
            return None
        position, dataset, identifier, note, person, time_text, part, *amount_texts = row
        # The cumulative amount at the entry's position, not today's.
        total, stored_amount = self._total(connection, dataset), StoredAmount(*amount_texts)
        (cumulative,) = total.currency.spent([_sum_spends(connection, total, position).charged], total)
        timestamp = datetime.fromisoformat(time_text)
        return Entry(
            dataset,
            identifier,
            note,
            person,
            timestamp,
            stored_amount.budget,
            cumulative,
            stored_amount.step,
            part,
            replayed=True,
        )


_NEW_DATASET = """
INSERT INTO datasets (name, epsilon, delta, mu, slack, at, accounting, moving, unit) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_NEW_SPEND = """
INSERT INTO spends (dataset, release_id, what, who, at, epsilon, delta, mu, slack, part)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# In the order of positions and not of times, as a clock may jump back.
_SPENDS_OF_DATASET = """
SELECT dataset, release_id, what, who, at, part, epsilon, delta, mu, slack FROM spends
WHERE :dataset IS NULL OR dataset = :dataset ORDER BY position
"""
_SPEND_OF_RELEASE = """
SELECT position, dataset, release_id, what, who, at, part, epsilon, delta, mu, slack FROM spends
WHERE release_id = ?
"""
_DATASETS = "SELECT name, accounting, moving, unit, epsilon, delta, mu, slack FROM datasets ORDER BY rowid"
# SQL counts equal amounts: nightly releases repeat one amount, and sums of many fractions are slow.
_AMOUNTS = """
SELECT part, count(*), epsilon, delta, mu, slack FROM spends
WHERE dataset = :dataset AND (:last IS NULL OR position <= :last) GROUP BY part, epsilon, delta, mu, slack
"""

_SUMMARY = {
    "dataset": "str",
    "accounting": "str",
    "unit": "str",
    "epsilon": "float64",
    "spent_epsilon": "float64",
    "left_epsilon": "float64",
    "delta": "float64",
    "spent_delta": "float64",
    "left_delta": "float64",
    "releases": "int64",
}

_HISTORY = {
    "dataset": "str",
    "part": "str",
    "who": "str",
    "when": "datetime64[us, UTC]",
    "release_id": "str",
    "what": "str",
    "epsilon": "float64",
    "delta": "float64",
    "mu": "float64",
    "slack": "float64",
    "cumulative_epsilon": "float64",
    "cumulative_delta": "float64",
}


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _check_step(step: Any) -> Step | None:
    if step is not None and not isinstance(step, Step):
        raise ParameterError("step must be a Step of mu and delta, e.g. Step(0.05, 1e-9); leave it out if unknown")
    return step


def _read_datasets(connection: sqlite3.Connection) -> dict[str, DatasetTotal]:
    """Return the datasets by name, in the order of registration."""
    parts: dict[str, tuple[str, ...]] = {}
    for dataset, part in connection.execute("SELECT dataset, name FROM parts ORDER BY rowid"):
        parts[dataset] = (*parts.get(dataset, ()), part)
    rows = connection.execute(_DATASETS).fetchall()
    return {
        name: DatasetTotal(
            name,
            _find_currency(accounting),
            StoredAmount(*amount_texts),
            parts.get(name, ()),
            bool(moving),
            _parse_unit(unit),
        )
        for name, accounting, moving, unit, *amount_texts in rows
    }


def _find_currency(accounting: str) -> Currency:
    if accounting not in CURRENCIES:
        raise ValueError("no such accounting")  # `explained` calls the file damaged
    return CURRENCIES[accounting]


def _parse_unit(text: str) -> Unit:
    try:
        return Unit.of(text)
    except ParameterError:
        raise ValueError("no such unit") from None  # `explained` calls the file damaged


def _check_repetition(entry: Entry, dataset: str, amount: StoredAmount, part: str | None) -> Entry:
    """Return a spend that is there already; refuse its id for anything else."""
    # Equal (ε, δ) is not enough: a larger step under a known id would be free of charge.
    costs_more = amount.step.mu > entry.step.mu or amount.step.delta > entry.step.delta
    if costs_more or (entry.dataset, entry.amount, entry.part) != (dataset, amount.budget, part):
        raise LedgerError(
            f"release_id {name_list([entry.release_id])} is recorded for another dataset or amount; "
            "every release needs an id of its own"
        )
    return entry


def _sum_spends(connection: sqlite3.Connection, total: DatasetTotal, last_position: int | None = None) -> Tally:
    """Return the exact sums of a dataset's spends, up to a position; equal amounts are counted, not added."""
    tally = Tally(total)
    for part, times, *amount_texts in connection.execute(_AMOUNTS, {"dataset": total.name, "last": last_position}):
        tally.add(total.currency.exact(StoredAmount(*amount_texts)), part, times)
    return tally
