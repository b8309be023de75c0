"""The SQLite file under a ledger: its tables, durable transactions, and one clear line for each error."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from dpframe.accounting.budget import Budget
from dpframe.disk import new_file, sync_folder
from dpframe.errors import DpframeError, DpframeWarning, LedgerError, warn
from dpframe.ledger.currencies import StoredAmount

APPLICATION_ID = 0x6470664C
"""Marks the file as a ledger ("dpfL")."""

LEDGER_SCHEMA_VERSION = 6


# Any client of SQLite can open the file: triggers refuse changes that this module never makes.
_TRIGGER = "CREATE TRIGGER no_{0}_of_{1} BEFORE {0} ON {1} BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END"

# Amounts are text, the decimals that they were written as: SQLite's own numbers would round them.
_FIRST_SCHEMA = (
    "CREATE TABLE datasets (name TEXT NOT NULL PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, "
    "at TEXT NOT NULL)",
    "CREATE TABLE spends (position INTEGER PRIMARY KEY AUTOINCREMENT, "
    "dataset TEXT NOT NULL REFERENCES datasets (name), release_id TEXT NOT NULL UNIQUE, what TEXT NOT NULL, "
    "who TEXT NOT NULL, at TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL)",
    "CREATE INDEX amounts ON spends (dataset, epsilon, delta)",
    *(_TRIGGER.format(verb, table) for table in ("datasets", "spends") for verb in ("UPDATE", "DELETE")),
    f"PRAGMA application_id = {APPLICATION_ID}",
    "PRAGMA user_version = 1",
)

# Old datasets add up ε and δ as they always did; μ and slack of old spends are filled in.
_SECOND_SCHEMA = (
    "ALTER TABLE datasets ADD COLUMN accounting TEXT NOT NULL DEFAULT 'basic'",
    "ALTER TABLE datasets ADD COLUMN mu TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE datasets ADD COLUMN slack TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE datasets ADD COLUMN moving INTEGER NOT NULL DEFAULT 0",
    "CREATE TABLE parts (dataset TEXT NOT NULL REFERENCES datasets (name), name TEXT NOT NULL, "
    "PRIMARY KEY (dataset, name))",
    "ALTER TABLE spends ADD COLUMN mu TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE spends ADD COLUMN slack TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE spends ADD COLUMN part TEXT",
    "DROP INDEX amounts",
    "CREATE INDEX amounts ON spends (dataset, part, epsilon, delta, mu, slack)",
    *(_TRIGGER.format(verb, "parts") for verb in ("UPDATE", "DELETE")),
    "PRAGMA user_version = 2",
)

# INSERT OR REPLACE deletes the row in its way, and fires no trigger of DELETE.
_THIRD_SCHEMA = (
    "CREATE TRIGGER no_REPLACE_of_datasets BEFORE INSERT ON datasets "
    "WHEN EXISTS (SELECT 1 FROM datasets WHERE name = NEW.name) "
    "BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END",
    "CREATE TRIGGER no_REPLACE_of_spends BEFORE INSERT ON spends "
    "WHEN EXISTS (SELECT 1 FROM spends WHERE position = NEW.position OR release_id = NEW.release_id) "
    "BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END",
    "CREATE TRIGGER no_REPLACE_of_parts BEFORE INSERT ON parts "
    "WHEN EXISTS (SELECT 1 FROM parts WHERE dataset = NEW.dataset AND name = NEW.name) "
    "BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END",
    "PRAGMA user_version = 3",
)

# Older versions did not enter whom a promise was for; most were for a row, and from now on all count as such.
_FOURTH_SCHEMA = (
    "ALTER TABLE datasets ADD COLUMN unit TEXT NOT NULL DEFAULT 'row'",
    "PRAGMA user_version = 4",
)
_UNITS_SCHEMA = 4
"""The first schema with the privacy unit of promises."""

_FIFTH_SCHEMA = (
    "CREATE TABLE runs (dataset TEXT NOT NULL REFERENCES datasets (name), part TEXT NOT NULL, job TEXT NOT NULL, "
    "name TEXT NOT NULL, release_id TEXT NOT NULL UNIQUE, request TEXT NOT NULL, output TEXT NOT NULL, "
    "at TEXT NOT NULL, PRIMARY KEY (dataset, part, job, name))",
    *(_TRIGGER.format(verb, "runs") for verb in ("UPDATE", "DELETE")),
    "CREATE TRIGGER no_REPLACE_of_runs BEFORE INSERT ON runs WHEN EXISTS (SELECT 1 FROM runs WHERE "
    "release_id = NEW.release_id OR (dataset, part, job, name) = (NEW.dataset, NEW.part, NEW.job, NEW.name)) "
    "BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END",
    "PRAGMA user_version = 5",
)

# Ids of releases under a key begin with a digest of the noise and of the table, which older versions looked up there.
_SIXTH_SCHEMA = (
    "CREATE TABLE draws (noise TEXT NOT NULL, source TEXT NOT NULL, "
    "release_id TEXT NOT NULL REFERENCES spends (release_id), PRIMARY KEY (noise, release_id))",
    "INSERT INTO draws SELECT substr(release_id, 1, 10), substr(release_id, 11, 10), release_id FROM spends "
    "WHERE length(release_id) = 32 AND release_id NOT GLOB '*[^0-9a-f]*'",
    *(_TRIGGER.format(verb, "draws") for verb in ("UPDATE", "DELETE")),
    "CREATE TRIGGER no_REPLACE_of_draws BEFORE INSERT ON draws "
    "WHEN EXISTS (SELECT 1 FROM draws WHERE (noise, release_id) = (NEW.noise, NEW.release_id)) "
    "BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END",
    "PRAGMA user_version = 6",
)

_LATER_SCHEMAS = (_SECOND_SCHEMA, _THIRD_SCHEMA, _FOURTH_SCHEMA, _FIFTH_SCHEMA, _SIXTH_SCHEMA)
"""Statements that upgrade a file of the first schema to the newest, by schema."""

_LONGEST_WAIT_S = 86_400.0
"""Seconds; SQLite counts milliseconds in 32 bits."""

_LOCKED_TEXT = "is locked: another process keeps writing to it; try again when that has ended"
_CLOSED_TEXT = "cannot be opened for writing; give yourself read and write permission for the file and its folder"

_ERROR_TEXTS = {
    sqlite3.SQLITE_BUSY: _LOCKED_TEXT,
    sqlite3.SQLITE_LOCKED: _LOCKED_TEXT,
    sqlite3.SQLITE_READONLY: _CLOSED_TEXT,
    sqlite3.SQLITE_CANTOPEN: _CLOSED_TEXT,
    sqlite3.SQLITE_PERM: _CLOSED_TEXT,
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full; free some space and try again",
    sqlite3.SQLITE_IOERR: "cannot be read or written (input/output error); check the disk and the space left on it",
    sqlite3.SQLITE_NOTADB: "is no ledger; name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore a copy and spend again what was released since",
}

_creating = threading.Lock()
"""Held while a file is made: closing it drops all locks of this process on it, also those of another thread."""


def remedy(file: Path) -> str:
    """Return the command that makes a ledger with a dataset."""
    return f"make it with: dpframe ledger create {shlex.quote(str(file))} --dataset NAME --epsilon TOTAL --delta TOTAL"


@contextlib.contextmanager
def transaction(
    file: Path, timeout: float, *, write: bool = False, create: bool = False
) -> Iterator[sqlite3.Connection]:
    """Give a connection inside a transaction, durable when the block has ended and undone when it fails.

    ``create`` fills an empty file; a file of an older schema is upgraded first. Raises `LedgerError` for every error of
    SQLite.
    """
    with explained(file), contextlib.closing(_connect(file, timeout)) as connection:
        if _upgrade(connection):
            warn(
                f"{file} was of an older version: its datasets add up promises for a row; if persons have several "
                "rows, create a dataset with unit='person:COLUMN'",
                DpframeWarning,
            )
        # Who reads first and writes later may find that another wrote in between: writers lock at once.
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            if not create:
                raise LedgerError(f"{file} is empty; {remedy(file)}")
            for statement in chain(_FIRST_SCHEMA, *_LATER_SCHEMAS):
                connection.execute(statement)
        elif application != APPLICATION_ID or version < 1:
            raise LedgerError(f"{file} is no ledger; name another file")
        elif version > LEDGER_SCHEMA_VERSION:
            raise LedgerError(
                f"{file} has schema {version}, this version reads up to {LEDGER_SCHEMA_VERSION}; upgrade dpframe"
            )
        yield connection
        # No ROLLBACK is needed on errors: a connection that closes without COMMIT undoes its transaction.
        connection.execute("COMMIT")
        # SQLite changes the journal's mode only outside of transactions, and stores the mode in the file.
        if create:
            with contextlib.suppress(sqlite3.OperationalError):  # in use just now: without it readers wait, no more
                connection.execute("PRAGMA journal_mode = WAL")


def _connect(file: Path, timeout: float) -> sqlite3.Connection:
    if not file.exists():
        raise LedgerError(f"{file} does not exist; {remedy(file)}")
    if not file.is_file():
        raise LedgerError(f"{file} is not a regular file; name the ledger's file")
    # The log goes by the file's name: two names would have two logs.
    if file.stat().st_nlink > 1:
        raise LedgerError(
            f"{file} has a second name, a hard link, and spends under one name may not show under the other; remove "
            "one of the names"
        )
    if os.path.ismount(file):
        raise LedgerError(f"{file} is mounted without its folder, in which its log lies; mount the folder")
    # mode=rw: SQLite itself would make a new and empty ledger at a mistyped path.
    uri = f"{file.absolute().as_uri()}?mode=rw"
    # isolation_level=None: Python would otherwise begin transactions by itself, without a lock at the start.
    connection = sqlite3.connect(uri, uri=True, timeout=min(timeout, _LONGEST_WAIT_S), isolation_level=None)
    try:
        # FULL and, where there is no write-ahead log, the folder too: on disk when COMMIT returns.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_old(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(application == APPLICATION_ID and 1 <= version < LEDGER_SCHEMA_VERSION)


def _upgrade(connection: sqlite3.Connection) -> bool:
    """Bring a file of an older schema to the newest, all of it or nothing; one process does, others wait.

    Return whether its datasets had no units.
    """
    # The first look takes no lock: hardly any file is old, and readers must not wait for a writer.
    if not _is_old(connection):
        return False
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have upgraded the file before the lock was taken.
    is_old = _is_old(connection)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if is_old:
        for statements in _LATER_SCHEMAS[version - 1 :]:
            for statement in statements:
                connection.execute(statement)
        # SQL cannot compute the step that dominates an old spend.
        if version == 1:
            spends = connection.execute("SELECT position, epsilon, delta FROM spends").fetchall()
            steps = [
                (StoredAmount.of(Budget(float(epsilon), float(delta)), None), position)
                for position, epsilon, delta in spends
            ]
            # Spends are read-only by a trigger, which is restored below.
            connection.execute("DROP TRIGGER no_UPDATE_of_spends")
            connection.executemany(
                "UPDATE spends SET mu = ?, slack = ? WHERE position = ?",
                [(amount.mu, amount.slack, place) for amount, place in steps],
            )
            connection.execute(_TRIGGER.format("UPDATE", "spends"))
    connection.execute("COMMIT")
    return bool(is_old and version < _UNITS_SCHEMA)


@contextlib.contextmanager
def explained(file: Path) -> Iterator[None]:
    """Turn errors of SQLite and the system into one clear line."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        message = _ERROR_TEXTS.get(code, f"cannot be used ({getattr(error, 'sqlite_errorname', 'SQLite error')})")
        raise LedgerError(f"{file} {message}") from None
    # The package's own errors are a ValueError or an OSError as well, and keep their text.
    except DpframeError:
        raise
    except ValueError:  # an amount that is no number
        raise LedgerError(f"{file} {_ERROR_TEXTS[sqlite3.SQLITE_CORRUPT]}") from None
    except OSError as error:
        raise LedgerError(f"{file} cannot be opened: {error.strerror or 'input/output error'}") from None


def make_file(file: Path) -> None:
    """Make an empty file that only its owner may read, unless there is one; SQLite gives its log this mode, too."""
    try:
        with _creating:
            os.close(new_file(file))
        sync_folder(file.parent)
    except FileExistsError:
        return
    except OSError as error:
        raise LedgerError(f"{file} cannot be made: {error.strerror or 'input/output error'}") from None
