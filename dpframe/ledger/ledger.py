"""The ledger of what was spent on each dataset: a small SQLite file that any number of processes share.

A spend is committed and durable *before* any noise is drawn, and is never taken back: a crash wastes budget,
it never hides spending. Releases of one dataset add up by basic composition, (Σεᵢ, Σδᵢ). The tighter sums of
fixed releases do not hold here, for who looks at one release chooses the budget of the next (Rogers, Roth,
Ullman and Vadhan 2016); basic composition does.

*Sums are exact.* An amount is read as the decimal that Python prints for it, the shortest one that reads back
as the same float: for anything a person writes with up to 15 digits that is what was written. So 0.1 means one
tenth, ten of them fit into 1.0, and three do not overdraw 0.3, although ten floats of 0.1 added as floats miss
1.0 and the float itself lies 6e-18 above a tenth. Decimals are added as fractions: a total is never exceeded,
not by the last digit, and no rounding piles up over any number of releases.

The file belongs on a local disk: SQLite's write-ahead log is no good between computers. An older copy put
back in its place forgets what was spent since.
"""

from __future__ import annotations

import getpass
import os
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dpframe.accounting.budget import Budget, check_epsilon
from dpframe.errors import BudgetExceeded, LedgerError, ParameterError, name_list
from dpframe.ledger.sqlite import make_file, remedy, transaction

NIGHTS = 365


@dataclass(frozen=True)
class Amount:
    """An amount (ε, δ) that may be nothing at all, unlike a `Budget`."""

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        return f"epsilon={_shown(self.epsilon)}, delta={_shown(self.delta)}"


@dataclass(frozen=True)
class Entry:
    """One spend as the ledger keeps it; ``replayed`` tells that it had been there before."""

    dataset: str
    release_id: str
    what: str
    who: str
    when: datetime
    amount: Budget
    cumulative: Amount
    replayed: bool = False


class _Sum(NamedTuple):
    """An exact amount."""

    epsilon: Fraction
    delta: Fraction

    def plus(self, other: _Sum, times: int = 1) -> _Sum:
        return _Sum(self.epsilon + times * other.epsilon, self.delta + times * other.delta)

    def fits(self, total: _Sum) -> bool:
        return self.epsilon <= total.epsilon and self.delta <= total.delta

    def up(self) -> Amount:
        return Amount(*(_toward(x, inf) for x in self))

    def down(self) -> Amount:
        return Amount(*(_toward(max(x, Fraction(0)), -inf) for x in self))


_NOTHING = _Sum(Fraction(0), Fraction(0))


def _read(epsilon: float | str, delta: float | str) -> _Sum:
    """Return amounts as the decimals they print as."""
    return _Sum(Fraction(str(epsilon)), Fraction(str(delta)))


def _toward(exact: Fraction, way: float) -> float:
    """Return the float nearest to ``exact`` whose decimal does not lie on the other side of it."""
    try:
        value = float(exact)
    except OverflowError:
        return inf
    wrong = Fraction(str(value)) < exact if way > 0 else Fraction(str(value)) > exact
    return nextafter(value, way) if wrong else value


def _shown(value: float) -> str:
    return str(value).removesuffix(".0")


def difference(whole: Budget, part: Budget) -> Budget:
    """Return what is left of an amount, so that both parts together fit where the whole does.

    Examples
    --------
    >>> difference(Budget(0.3, 1e-6), Budget(0.03, 1e-7))
    Budget(epsilon=0.27, delta=9e-07)
    """
    rest = _read(whole.epsilon, whole.delta).plus(_read(part.epsilon, part.delta), -1).down()
    return Budget(rest.epsilon, rest.delta)


def covers(paid: Budget, asked: Budget) -> bool:
    """Tell whether an amount is at least another one, of ε and of δ."""
    return _read(asked.epsilon, asked.delta).fits(_read(paid.epsilon, paid.delta))


def yearly(epsilon: float, delta: float = 0.0) -> str:
    """Say what a year of releases of this size, one a night, adds up to.

    Examples
    --------
    >>> yearly(0.1, 1e-9)
    'a year of such nights (epsilon=0.1, delta=1e-09 each) adds up to epsilon=36.5, delta=3.65e-07'
    """
    night = Budget(epsilon, delta)
    year = _NOTHING.plus(_read(night.epsilon, night.delta), NIGHTS).up()
    each = Amount(night.epsilon, night.delta)
    says = f"a year of such nights ({each} each) adds up to {year}"
    return says if year.delta < 1 else f"{says}, which promises nothing"


def _text(value: Any, name: str) -> str:
    """Return text that SQLite keeps as it is, or raise `ParameterError`."""
    try:
        valid = isinstance(value, str) and bool(value.strip()) and "\0" not in value and bool(value.encode())
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ParameterError(f"{name} must be text of at least one character, e.g. {name}='survey-2026'")
    return str(value)


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return f"user {os.getuid()}"


def as_ledger(ledger: Any) -> Ledger:
    """Return a `Ledger`, also from its path."""
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


@dataclass(frozen=True)
class Ledger:
    """A file that keeps the total budget of named datasets, and what was spent of it.

    It holds a path and no connection: it may be copied, pickled and sent to other processes.

    Parameters
    ----------
    path
        The ledger's file, on a local disk; `create` makes it, readable by its owner alone.
    timeout
        Seconds to wait while another process writes.

    Raises
    ------
    ParameterError
        If the path is none.
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
    epsilon=0.4, delta=0 was asked: nothing was spent and nothing was drawn; ask for no more than is left
    >>> folder.cleanup()
    """

    path: str | os.PathLike[str]
    timeout: float = field(default=60.0, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        path = os.fspath(self.path) if isinstance(self.path, str | os.PathLike) else None
        if not isinstance(path, str) or not path or "\0" in path:
            raise ParameterError("ledger must be the path of a file, e.g. ledger='ledger.sqlite'")
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "timeout", check_epsilon(self.timeout, "timeout"))

    def create(self, dataset: str, epsilon: float, delta: float = 0.0) -> Budget:
        """Register a dataset with its total budget; make the file if there is none.

        Raises
        ------
        ParameterError
            If the name is no text, or a number out of range.
        LedgerError
            If the dataset is there already: its total stands.
        """
        name, total = _text(dataset, "dataset"), Budget(epsilon, delta)
        make_file(self._file)
        with transaction(self._file, self.timeout, write=True, create=True) as connection:
            if name in _datasets(connection):
                raise LedgerError(f"dataset {name_list([name])} is in {self._file} already, and its total stands")
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?)", (name, str(total.epsilon), str(total.delta), _now())
            )
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
    ) -> Entry:
        """Spend (ε, δ); when this returns it is on disk, whatever happens next.

        Parameters
        ----------
        dataset
            Its name.
        epsilon, delta
            The promise of what is about to be released: ε > 0, 0 ≤ δ < 1.
        release_id
            Name of this release and of no other: the same one again, for the same dataset and amount, is
            taken for a repetition of the same release under the same key, and costs nothing.
        what, who
            Notes for the history; ``who`` is the user's login name by default.

        Raises
        ------
        BudgetExceeded
            If more was asked than is left, of ε or of δ. Nothing is spent then.
        LedgerError
            If the dataset is unknown, or the release id stands for another dataset or amount.
        ParameterError
            If a name is no text, or a number out of range.
        """
        asked = Budget(epsilon, delta)
        name, identifier, note = _text(dataset, "dataset"), _text(release_id, "release_id"), _text(what, "what")
        person = _me() if who is None else _text(who, "who")
        with transaction(self._file, self.timeout, write=True) as connection:
            total = self._total(connection, name)
            found = self._entry(connection, identifier)
            if found is not None:
                return _same(found, name, asked)
            amount, spent = _read(asked.epsilon, asked.delta), _spent(connection, name)
            if not spent.plus(amount).fits(total):
                raise BudgetExceeded(
                    f"dataset {name_list([name])} has {total.plus(spent, -1).down()} left of {total.down()}, and "
                    f"{amount.up()} was asked: nothing was spent and nothing was drawn; ask for no more than is left"
                )
            row = (name, identifier, note, person, when := _now(), str(asked.epsilon), str(asked.delta))
            connection.execute("INSERT INTO spends VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)
        return Entry(*row[:4], datetime.fromisoformat(when), asked, spent.plus(amount).up())

    def total(self, dataset: str) -> Budget:
        """Return a dataset's total budget."""
        with transaction(self._file, self.timeout) as connection:
            total = self._total(connection, dataset).down()
        return Budget(total.epsilon, total.delta)

    def spent(self, dataset: str) -> Amount:
        """Return what was spent on a dataset, rounded up."""
        with transaction(self._file, self.timeout) as connection:
            self._total(connection, dataset)
            return _spent(connection, dataset).up()

    def remaining(self, dataset: str) -> Amount:
        """Return what is left for a dataset, rounded down: it can be spent to the last digit."""
        with transaction(self._file, self.timeout) as connection:
            return self._total(connection, dataset).plus(_spent(connection, dataset), -1).down()

    def datasets(self) -> list[str]:
        """Return the names of the datasets, in the order in which they were registered."""
        with transaction(self._file, self.timeout) as connection:
            return list(_datasets(connection))

    def find(self, release_id: str) -> Entry | None:
        """Return the spend of a release, or None if it has none."""
        with transaction(self._file, self.timeout) as connection:
            return self._entry(connection, release_id)

    def summary(self) -> pd.DataFrame:
        """Return one row per dataset: total, spent and left of ε and of δ, and the number of releases."""
        with transaction(self._file, self.timeout) as connection:
            totals = _datasets(connection)
            spends = {name: _spent(connection, name) for name in totals}
            counts = dict(connection.execute("SELECT dataset, count(*) FROM spends GROUP BY dataset").fetchall())
        rows = []
        for name, exact in totals.items():
            total, spent, left = exact.down(), spends[name].up(), exact.plus(spends[name], -1).down()
            amounts = (total.epsilon, spent.epsilon, left.epsilon, total.delta, spent.delta, left.delta)
            rows.append((name, *amounts, counts.get(name, 0)))
        return pd.DataFrame(rows, columns=[*_SUMMARY]).astype(_SUMMARY).set_index("dataset")

    def history(self, dataset: str | None = None) -> pd.DataFrame:
        """Return the spends in their order: who, when (UTC), what, how much, and what it came to.

        Columns: ``dataset, who, when, release_id, what, epsilon, delta, cumulative_epsilon,
        cumulative_delta``, the last two per dataset.
        """
        with transaction(self._file, self.timeout) as connection:
            if dataset is not None:
                self._total(connection, dataset)
            found = connection.execute(_OF_DATASET, {"dataset": dataset}).fetchall()
        sums: dict[str, _Sum] = {}
        rows = []
        for _, name, identifier, what, who, when, epsilon, delta in found:
            sums[name] = sums.get(name, _NOTHING).plus(_read(epsilon, delta))
            total = sums[name].up()
            time, amounts = datetime.fromisoformat(when), (float(epsilon), float(delta), total.epsilon, total.delta)
            rows.append((name, who, time, identifier, what, *amounts))
        return pd.DataFrame(rows, columns=[*_HISTORY]).astype(_HISTORY)

    @property
    def _file(self) -> Path:
        return Path(self.path)

    def _total(self, connection: sqlite3.Connection, dataset: str) -> _Sum:
        name, known = _text(dataset, "dataset"), _datasets(connection)
        if name not in known:
            raise LedgerError(
                f"dataset {name_list([name])} is not in {self._file}, which holds {name_list(known) or 'none'}; "
                f"{remedy(self._file)}"
            )
        return known[name]

    def _entry(self, connection: sqlite3.Connection, release_id: str) -> Entry | None:
        found = connection.execute(_OF_RELEASE, (_text(release_id, "release_id"),)).fetchone()
        if found is None:
            return None
        position, dataset, identifier, what, who, when, epsilon, delta = found
        amount, cumulative = Budget(float(epsilon), float(delta)), _spent(connection, dataset, position).up()
        return Entry(dataset, identifier, what, who, datetime.fromisoformat(when), amount, cumulative, replayed=True)


_OF_DATASET = "SELECT * FROM spends WHERE :dataset IS NULL OR dataset = :dataset ORDER BY position"
_OF_RELEASE = "SELECT * FROM spends WHERE release_id = ?"
_AMOUNTS = """
SELECT epsilon, delta, count(*) FROM spends
WHERE dataset = :dataset AND (:last IS NULL OR position <= :last) GROUP BY epsilon, delta
"""

_SUMMARY = {
    "dataset": "str",
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
    "who": "str",
    "when": "datetime64[us, UTC]",
    "release_id": "str",
    "what": "str",
    "epsilon": "float64",
    "delta": "float64",
    "cumulative_epsilon": "float64",
    "cumulative_delta": "float64",
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _datasets(connection: sqlite3.Connection) -> dict[str, _Sum]:
    """Return the totals by name, in the order of registration."""
    found = connection.execute("SELECT name, epsilon, delta FROM datasets ORDER BY rowid").fetchall()
    return {name: _read(epsilon, delta) for name, epsilon, delta in found}


def _same(found: Entry, dataset: str, asked: Budget) -> Entry:
    """Return a spend that is there already; refuse its id for anything else."""
    if (found.dataset, found.amount) != (dataset, asked):
        raise LedgerError(
            f"release_id {name_list([found.release_id])} is recorded for another dataset or amount; "
            "every release needs an id of its own"
        )
    return found


def _spent(connection: sqlite3.Connection, dataset: str, last: int | None = None) -> _Sum:
    """Return the exact sum of a dataset's spends, up to a position; equal amounts are counted, not added."""
    total = _NOTHING
    for epsilon, delta, times in connection.execute(_AMOUNTS, {"dataset": dataset, "last": last}):
        total = total.plus(_read(epsilon, delta), times)
    return total
