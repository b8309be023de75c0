"""The key of a job under a ledger, kept as long as the job may have to be repeated.

The spend of a killed job stays. So that its repetition costs nothing more, the job's key
is stored in ``<ledger>.keys/`` *before* it spends, and deleted once its output is complete: the same key over the
same input and plan gives the very same output, which reveals nothing new. The same key over *changed* data would
reveal the difference between the two. Therefore the file holds, with key and release id, the tag
HMAC-SHA256(key, digests of dataset, input and plan), and a job whose tag differs is refused. The release id is
another MAC of the same (`release_id`): a repeated job is the same release, and nothing else is.

A job is known by its dataset and its name (the file it writes), and has one key file, which it keeps locked while
it runs. A second process at the same job is refused rather than let in: it would write the same output, but the
one that ends first would delete the key that the other, if killed, needs. The lock ends with the process, however
it ends. Nobody else's key is ever removed: a file is removed only by who holds its lock.

The key file is as secret as the input. It lives in a folder of mode 0700, with mode 0600, on the ledger's disk; it
is overwritten before it is deleted, which a disk may or may not honour. Its name can be guessed, so that a user who may
write to the ledger's folder could have put a folder or file of theirs in its place: neither is used unless it is the
user's own, has no rights for others, is no link, and (the file) has one link.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dpframe.accounting.gaussian_dp import Step
from dpframe.accounting.unit import Unit
from dpframe.disk import Folder, sharing_fault, sync_folder, try_lock, write_whole
from dpframe.errors import BudgetExceeded, FileError, LedgerError, ParameterError, name_list
from dpframe.ledger.ledger import Entry, Ledger
from dpframe.ledger.runs import is_done
from dpframe.noise.keystream import choice_key, framed
from dpframe.spaces.base import forwarded

JOB_KEYS_SCHEMA_VERSION = 1

STREAM = 2
"""Version of the output of a key; any change of released values raises it, as one key must not have two outputs."""


def job_name(target: str | os.PathLike[str]) -> str:
    """Return the name of the job that writes a file, from wherever it is started."""
    try:
        return str(Path(target).resolve())
    except ValueError:  # zero bytes, halves of characters
        raise ParameterError("the name of a job's file is no path; name the file that it writes") from None


def bind(input_digest: bytes, plan_digest: bytes) -> bytes:
    """Return the binding of a job's key: its input, its plan, and this version's stream."""
    return framed((STREAM.to_bytes(4, "little"), input_digest, plan_digest))


@dataclass(frozen=True)
class _StoredJob:
    """The content of a key file."""

    dataset: str
    name: str
    release_id: str
    key: bytes = field(repr=False)
    tag: bytes

    @classmethod
    def fresh(cls, dataset: str, name: str, binding_of_key: Callable[[bytes], bytes]) -> _StoredJob:
        key = secrets.token_bytes(32)
        binding = binding_of_key(key)
        return cls(dataset, name, release_id(key, dataset, binding), key, _compute_tag(key, dataset, binding))

    @classmethod
    def parse(cls, text: bytes, path: Path) -> _StoredJob | None:
        """Read a file; None if it was never finished. No noise was drawn then, as the key comes first."""
        try:
            data = json.loads(text)
            schema, dataset, name, release_id = (data[k] for k in ("schema", "dataset", "name", "release_id"))
            key, tag = bytes.fromhex(data["key"]), bytes.fromhex(data["tag"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        # `True` is an int for isinstance, and no schema.
        if type(schema) is int and schema > JOB_KEYS_SCHEMA_VERSION:
            raise LedgerError(
                f"{path} has schema {schema}, this version reads up to {JOB_KEYS_SCHEMA_VERSION}; upgrade dpframe"
            )
        is_valid = (
            schema == JOB_KEYS_SCHEMA_VERSION
            and len(key) == 32
            and all(isinstance(x, str) for x in (dataset, name, release_id))
        )
        return cls(dataset, name, release_id, key, tag) if is_valid else None

    def to_json(self) -> bytes:
        """Return the stored job as JSON text."""
        data = {
            "schema": JOB_KEYS_SCHEMA_VERSION,
            "dataset": self.dataset,
            "name": self.name,
            "release_id": self.release_id,
        }
        return json.dumps(data | {"key": self.key.hex(), "tag": self.tag.hex()}).encode()

    def fits(self, binding_of_key: Callable[[bytes], bytes]) -> bool:
        return hmac.compare_digest(self.tag, _compute_tag(self.key, self.dataset, binding_of_key(self.key)))


def _compute_tag(key: bytes, dataset: str, binding: bytes) -> bytes:
    # The keystream's own messages begin with another word: no tag is ever one of its subkeys.
    return hmac.new(key, framed((b"replay", dataset.encode(), binding)), hashlib.sha256).digest()


def release_id(key: bytes, dataset: str, bound: bytes) -> str:
    """Return the id of the release of a key and its binding; it reveals neither."""
    message = framed((b"release id", dataset.encode(), bound))
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:32]


@dataclass
class KeyedJob:
    """A job while it runs: first the spend, then the key to draw with."""

    ledger: Ledger
    dataset: str
    release_id: str
    resumed: bool
    """Whether key and release id come from an interrupted run."""
    paid: bool
    """Whether the spend is, or may be, in the ledger."""
    _record: _StoredJob = field(repr=False)
    _binding: bytes = field(repr=False)
    _spent: bool = False

    def spend(
        self,
        epsilon: float,
        delta: float,
        what: str = "release",
        step: Step | None = None,
        part: str | None = None,
        unit: Unit | str | int = "row",
    ) -> Entry:
        """Spend before the first draw; an interrupted job's spend is found there and costs nothing more.

        Raises as `Ledger.spend`.
        """
        was_paid, self.paid = self.paid, True  # the key stays even if the commit is interrupted
        try:
            entry = self.ledger.spend(
                self.dataset, epsilon, delta, release_id=self.release_id, what=what, step=step, part=part, unit=unit
            )
        except (ParameterError, BudgetExceeded):  # refused before anything was written
            self.paid = was_paid
            raise
        self._spent = True
        return entry

    name: ClassVar[str] = forwarded("_record.name")

    @property
    def key(self) -> bytes:
        """The 32 bytes to draw with; `LedgerError` before `spend`."""
        if not self._spent:
            raise LedgerError("a job has no key before it has spent; call its spend first")
        return self._record.key

    @property
    def choice(self) -> bytes:
        """The 32 bytes to choose rows of persons with, even before `spend`: a choice by itself gives nothing away."""
        return choice_key(self._record.key)

    def check_input(self, digest: bytes) -> None:
        """Raise `FileError` unless the rows that were drawn have the keyed digest that the job's key is bound to."""
        if not self._record.fits(_binding_function(self._binding, lambda _: digest)):
            raise FileError(
                "the input changed while the job ran; nothing was written; put the earlier input back, or "
                f"give the key up: {_remedy_text(self.ledger, self.dataset, self._record.name)}"
            )

    @property
    def kept(self) -> bool:
        """Whether the key must outlive this run although nothing failed: it was paid for and not drawn from."""
        return self.paid and not self._spent


def _binding_function(binding: bytes, keyed: Callable[[bytes], bytes] | None) -> Callable[[bytes], bytes]:
    """Return the binding of a job, as a function of its key."""
    if keyed is None:
        return lambda key: binding
    return lambda key: framed((binding, keyed(key)))


@contextlib.contextmanager
def job(
    ledger: Ledger,
    dataset: str,
    name: str,
    binding: bytes,
    *,
    forget: bool = False,
    keyed: Callable[[bytes], bytes] | None = None,
) -> Iterator[KeyedJob]:
    """Run a job under a key that outlives it only if it is interrupted after it spent.

    Parameters
    ----------
    ledger, dataset
        The account that pays for the job.
    name
        The job's name, e.g. `job_name` of its output: one run at a time.
    binding
        Digest of all inputs that decide the output, except the key; see `bind`.
    forget
        Delete the key of an interrupted run, whose spend stays, and start anew.
    keyed
        Gives a digest of the input under a key that it derives from the job's, where only a keyed digest
        distinguishes inputs that somebody made to have one digest.

    Raises `LedgerError` if the input or the plan changed since the interrupted run, the job is running, the dataset is
    unknown, or the key cannot be stored where nobody else reads it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/ledger.sqlite")
    >>> total = ledger.create("survey", epsilon=1.0)
    >>> with job(ledger, "survey", "out.parquet", b"input and plan") as first:
    ...     entry = first.spend(0.5, 0.0)
    ...     key = first.key
    ...     raise OSError
    Traceback (most recent call last):
        ...
    OSError
    >>> with job(ledger, "survey", "out.parquet", b"input and plan") as again:
    ...     again.resumed, again.spend(0.5, 0.0).cumulative, again.key == key
    (True, Amount(epsilon=0.5, delta=0.0), True)
    >>> folder.cleanup()
    """
    ledger.total(dataset)  # a wrong name shall leave nothing behind
    path, binding_of_key = _key_path(ledger, dataset, name), _binding_function(binding, keyed)
    with _lock_key_file(path) as file:
        record = _StoredJob.parse(file.content(), path)
        if record is not None and is_done(ledger, record.release_id):  # killed before it deleted its key
            record = None
        has_spent = record is not None and ledger.find(record.release_id) is not None
        has_same_binding = record is not None and record.fits(binding_of_key)
        if has_spent and not has_same_binding and not forget:
            raise LedgerError(
                f"the input or the plan changed since the interrupted run of {name_list([name])}, or another run is "
                f"named; its key is void: {_remedy_text(ledger, dataset, name)}"
            )
        # The spend need not be in the ledger: a restored backup lost it, and the job then pays again under its key.
        resumed = has_same_binding and not forget
        if record is None or not resumed:
            # A key that is unpaid, or given up with ``forget``, is replaced.
            record, has_spent = _StoredJob.fresh(dataset, name, binding_of_key), False
            file.store(record)
        keyed_job = KeyedJob(ledger, dataset, record.release_id, resumed, has_spent, record, binding)
        try:
            yield keyed_job
        except BaseException:
            # Nothing was drawn under an unpaid key: on the disk it would only be one more secret.
            if not keyed_job.paid:
                file.remove()
            raise
        if not keyed_job.kept:
            file.remove()


@dataclass(frozen=True)
class Pending:
    """A job whose key is kept, because it runs or was interrupted."""

    dataset: str
    name: str
    release_id: str


def pending(ledger: Ledger) -> list[Pending]:
    """Return the jobs whose keys are kept, by dataset and name.

    Raises `LedgerError` if a key cannot be read, or others may read it.
    """
    path = _key_folder(ledger)
    # `lexists` also sees a dangling link, which must be refused below and not pass for an empty folder.
    if not os.path.lexists(path):
        return []
    try:
        with _open_key_folder(path) as folder:
            records = [_read_key_file(folder, path / name) for name in folder.names() if name.endswith(".key")]
    except OSError as error:
        raise error if isinstance(error, FileError) else _key_file_error(path, error) from None
    jobs = [Pending(r.dataset, r.name, r.release_id) for r in records if r is not None]
    jobs = [job for job in jobs if not is_done(ledger, job.release_id)]
    return sorted(jobs, key=lambda p: (p.dataset, p.name))


def _read_key_file(folder: Folder, path: Path) -> _StoredJob | None:
    """Return the content of a key file, or None if it was never finished or its job ended just now."""
    try:
        # A pipe in its place shall not be waited for.
        descriptor = folder.open(path.name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _key_file_error(path, error) from None
    with os.fdopen(descriptor, "rb") as file:
        _refuse_shared(path, os.fstat(descriptor))
        return _StoredJob.parse(file.read(), path)


def forget(ledger: Ledger, dataset: str, name: str) -> None:
    """Delete the key of an interrupted job: it can never be repeated, and its spend stays.

    Raises `LedgerError` if there is no such job, or it is running.
    """
    path = _key_path(ledger, dataset, name)
    if not os.path.lexists(path):
        jobs = name_list(f"{p.name} ({p.dataset})" for p in pending(ledger)) or "none"
        raise LedgerError(f"no interrupted job {name_list([name])} of dataset {name_list([dataset])}; there is: {jobs}")
    with _lock_key_file(path) as file:
        file.remove()


def clear(ledger: Ledger, dataset: str, name: str) -> None:
    """Delete the key that a job left whose run is done, if there is one; `LedgerError` if it is running."""
    path = _key_path(ledger, dataset, name)
    if not os.path.lexists(path):
        return
    with _lock_key_file(path) as file:
        record = _StoredJob.parse(file.content(), path)
        if record is None or is_done(ledger, record.release_id):
            file.remove()


def check_not_interrupted(ledger: Ledger, dataset: str, name: str) -> None:
    """Raise `LedgerError` if an interrupted job has paid: a new inference gives another plan, which it cannot take.

    To be called before the inference is paid for.
    """
    pending_jobs = [job for job in pending(ledger) if (job.dataset, job.name) == (dataset, name)]
    if any(ledger.find(job.release_id) is not None for job in pending_jobs):
        raise LedgerError(
            f"an interrupted run of {name_list([name])} has paid, and another inference would not fit it; pass the "
            f"plan of that run, or {_remedy_text(ledger, dataset, name)}"
        )


def forget_command(ledger: Ledger, dataset: str, name: str) -> str:
    """Return the command that gives an interrupted job up."""
    words = ["dpframe", "ledger", "forget", str(ledger.path), "--dataset", dataset, "--job", name]
    return f"`{shlex.join(words)}`"


def _remedy_text(ledger: Ledger, dataset: str, name: str) -> str:
    return f"{forget_command(ledger, dataset, name)} deletes it (what was spent stays spent)"


def _key_folder(ledger: Ledger) -> Path:
    # Resolved, so that links and relative paths to one ledger lead to one folder of keys.
    return Path(f"{Path(ledger.path).resolve()}.keys")


def _key_path(ledger: Ledger, dataset: str, name: str) -> Path:
    if not isinstance(name, str) or not name:
        raise ParameterError("name must be text of at least one character, e.g. the file that the job writes")
    # Paths may hold bytes that are no UTF-8, which Python keeps as surrogates.
    parts = (part.encode("utf-8", "surrogateescape") for part in (dataset, name))
    return _key_folder(ledger) / f"{hashlib.sha256(framed(parts)).hexdigest()[:32]}.key"


def _key_file_error(path: Path, error: OSError) -> LedgerError:
    return LedgerError(f"the key file {path} cannot be used: {error.strerror or 'input/output error'}")


@dataclass(frozen=True)
class _KeyFile:
    """A key file that is open, locked and nobody else's, in a folder that is open and nobody else's.

    Both were looked at by their descriptors, and everything after goes by these: what is at ``path`` may be
    changed in between, what was looked at may not.
    """

    descriptor: int
    folder: Folder
    path: Path

    def content(self) -> bytes:
        """Return the file's bytes."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        return os.read(self.descriptor, os.fstat(self.descriptor).st_size)

    def store(self, record: _StoredJob) -> None:
        """Put a key on disk, with its name, before anything is spent under it."""
        try:
            # The end of an older, longer text would make the new text unreadable.
            os.ftruncate(self.descriptor, 0)
            write_whole(self.descriptor, record.to_json())
            os.fsync(self.descriptor)
            # Without the file's name on disk, a power cut after the spend would lose the key.
            self.folder.sync()
        except OSError as error:
            with contextlib.suppress(OSError):
                self.remove()
            raise _key_file_error(self.path, error) from None

    def remove(self) -> None:
        """Overwrite and delete the file."""
        try:
            # Zeros first: a deleted file's blocks stay on the disk.
            write_whole(self.descriptor, bytes(os.fstat(self.descriptor).st_size))
            os.fsync(self.descriptor)
            try:
                self.folder.unlink(self.path.name)
            except PermissionError:
                if self.folder.descriptor is not None:
                    raise
                # Windows keeps the names of open files: an empty one is as good as none.
                os.ftruncate(self.descriptor, 0)
            self.folder.sync()
        except OSError as error:
            raise _key_file_error(self.path, error) from None


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    """Raise `LedgerError` for a folder or file that others may use: they could read the key."""
    noun, fault = "folder" if stat.S_ISDIR(status.st_mode) else "file", sharing_fault(status)
    if fault is not None:
        raise LedgerError(
            f"the key {noun} {path} {fault}, so that the key may not stay secret: find out who made it, and remove it"
        )


@contextlib.contextmanager
def _open_key_folder(path: Path) -> Iterator[Folder]:
    """Open the folder of the keys, refused unless only the user may use it."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(Folder.open_folder(path, follow=False))
        except NotADirectoryError:
            raise LedgerError(
                f"the key folder {path} is a link or no folder: find out who made it, and remove it"
            ) from None
        _refuse_shared(path, folder.folder_status())
        yield folder


@contextlib.contextmanager
def _lock_key_file(path: Path) -> Iterator[_KeyFile]:
    """Open a key file, made if it does not exist, and keep it locked; refuse one that another process holds."""
    with contextlib.ExitStack() as stack:
        try:
            with contextlib.suppress(FileExistsError):
                # A later chmod would leave a moment in which others may enter the folder.
                path.parent.mkdir(mode=0o700)
                sync_folder(path.parent.parent)
            folder = stack.enter_context(_open_key_folder(path.parent))
            descriptor = None
            # Another process may delete the file between opening and locking; then it is made again.
            while descriptor is None:
                descriptor = _try_lock(folder, path)
            stack.callback(os.close, descriptor)
            _refuse_shared(path, os.fstat(descriptor))
        except OSError as error:
            raise error if isinstance(error, FileError) else _key_file_error(path, error) from None
        yield _KeyFile(descriptor, folder, path)


def _try_lock(folder: Folder, path: Path) -> int | None:
    """Return a locked descriptor, or None if the file was removed between opening and locking it."""
    try:
        descriptor = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        try:
            descriptor = folder.open(path.name, os.O_RDWR)
        except FileNotFoundError:
            return None
    if _lock_if_current(descriptor, folder, path):
        return descriptor
    os.close(descriptor)
    return None


def _lock_if_current(descriptor: int, folder: Folder, path: Path) -> bool:
    """Lock an open file and return whether it is still the one at ``path``; close and refuse it if it is locked."""
    if not try_lock(descriptor):
        os.close(descriptor)
        raise LedgerError("this job is running already; wait until it has ended")
    try:
        # The file may have been deleted and made anew between opening and locking.
        path_status = folder.status(path.name)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), path_status)
