"""What the tests of the ledger run in processes of their own, to race or to be killed, or as another user.

Every function that runs in a process takes a connection first: it says ``"ready"``, waits for a word, and sends
what it did. The processes are forked from a server that has imported dpframe once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dpframe import Ledger
from dpframe.accounting.gaussian_dp import Step
from dpframe.cli import main
from dpframe.errors import BudgetExceeded, LedgerError
from dpframe.ledger import job_keys

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["dpframe", "dpframe.cli.main"])

JOB = "out.parquet"


def key_folder(ledger: Ledger) -> Path:
    """Return where a ledger's jobs keep their keys (docs/how-to/nightly.md)."""
    return Path(f"{ledger.path}.keys")


def key_file(ledger: Ledger, name: str = JOB) -> Path:
    """Return where a job of dataset survey keeps its key: it is there while the job runs, also if it spends nothing."""
    before = set(key_folder(ledger).glob("*.key"))
    with job_keys.job(ledger, "survey", name, b""):
        (path,) = set(key_folder(ledger).glob("*.key")) - before
    return path


@contextlib.contextmanager
def child(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[Any, Connection]]:
    """Give a process that is ready to work, and the connection to it; kill it in the end."""
    mine, its = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(its, *arguments), daemon=True)
    process.start()
    its.close()
    try:
        assert mine.recv() == "ready"
        yield process, mine
    finally:
        process.kill()
        process.join()
        process.close()
        mine.close()


def received(connection: Connection) -> list[Any]:
    """Return all that a process sent before it ended."""
    found = []
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            found.append(connection.recv())
    return found


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Act as a user without privileges: root may write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Give a folder that other users can enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def spend_once(connection: Connection, ledger: Ledger, number: int, step: Step | None = None) -> None:
    connection.send("ready")
    connection.recv()
    try:
        entry = ledger.spend("survey", 0.1, 0.0, release_id=f"release {number}", step=step)
        connection.send(entry.cumulative.epsilon)
    except BudgetExceeded as error:
        connection.send(error)


def create_one(connection: Connection, ledger: Ledger, number: int) -> None:
    connection.send("ready")
    connection.recv()
    ledger.create(f"survey {number}", 1.0)
    connection.send("done")


def spend_forever(connection: Connection, ledger: Ledger, name: str) -> None:
    connection.send("ready")
    connection.recv()
    number = 0
    while True:
        entry = ledger.spend("survey", 1e-6, 0.0, release_id=f"{name} {number}")
        connection.send(entry.release_id)
        number += 1


def spend_on_a_small_disk(connection: Connection, ledger: Ledger, size: int) -> None:
    connection.send("ready")
    connection.recv()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    for number in range(10_000):
        try:
            ledger.spend("survey", 1e-6, 0.0, release_id=f"release {number}", what="long " * 100)
        except LedgerError as error:
            connection.send(str(error))
            return
        connection.send(f"release {number}")


def run_command(connection: Connection, arguments: list[str]) -> None:
    """Run the command line, and send its exit code."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        connection.send("ready")
        connection.recv()
        try:
            main.main(arguments)
        except SystemExit as stopped:
            connection.send(stopped.code)


def run_command_on_a_small_disk(connection: Connection, arguments: list[str], size: int) -> None:
    """Run the command line where no file may be larger than so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    run_command(connection, arguments)


def run_job(connection: Connection, ledger: Ledger, binding: bytes) -> None:
    """Run a job that stops, until it gets a word, once before it spends, once after, and once when it is done."""
    connection.send("ready")
    connection.recv()
    with job_keys.job(ledger, "survey", JOB, binding) as job:
        connection.send(("started", job.release_id, job.resumed))
        connection.recv()
        job.spend(0.25, 0.0)
        connection.send(("spent", job.release_id, job.key))
        connection.recv()
    connection.send(("done", job.release_id, None))
    connection.recv()


def run_jobs_forever(connection: Connection, ledger: Ledger, binding: bytes) -> None:
    connection.send("ready")
    connection.recv()
    while True:
        with job_keys.job(ledger, "survey", JOB, binding) as job:
            job.spend(1e-6, 0.0)
            connection.send((job.release_id, job.key))
            with tempfile.TemporaryFile() as output:  # what a job does most of its time
                output.write(job.key * 100_000)
            connection.send("ending")
        connection.send("done")


def try_jobs(connection: Connection, ledger: Ledger, binding: bytes, times: int) -> None:
    connection.send("ready")
    connection.recv()
    for _ in range(times):
        try:
            with job_keys.job(ledger, "survey", JOB, binding) as job:
                job.spend(1e-6, 0.0)
                key = job.key
        except LedgerError as error:
            connection.send(str(error))
        else:
            connection.send(key)
