"""Files and folders with what the operating system offers: POSIX's descriptors of folders, or Windows' paths.

Where a folder can be opened, what is done in it is done in the one that was opened, even if its path leads elsewhere
meanwhile; elsewhere names are looked up anew, and links are refused before a file is opened.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import secrets
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from dpframe.errors import FileError

WEB_PAGE, YAML, JSON = (".html", ".htm"), (".yaml", ".yml"), (".json",)
"""Endings of the names of files of text."""
DESCRIPTORS = "/proc/self/fd"
"""Where Linux names the open files of a process: through it a file without a name gets one."""

_FAR = 1 << 30
"""Byte that Windows locks for a file: beyond all content, as a locked byte can be read by nobody else."""

_SEEKING = threading.Lock()
"""Held while a place in a file is sought and read, where that takes two calls."""


def _flag(*names: str) -> int:
    """Return flags of ``os.open`` together, less those that the system has not."""
    found = 0
    for name in names:
        found |= getattr(os, name, 0)
    return found


@dataclass(frozen=True)
class Folder:
    """A folder in which files are opened, replaced and removed by their names."""

    path: Path
    descriptor: int | None

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, *, follow: bool = True) -> Iterator[Folder]:
        """Open a folder; ``NotADirectoryError`` for anything else, or a link to one unless these are followed.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name, Folder.opened(Path(name)) as folder:
        ...     os.close(folder.open("a", os.O_CREAT | os.O_EXCL | os.O_RDWR))
        ...     folder.replace("a", "b")
        ...     folder.names()
        ['b']
        """
        by_name = not (hasattr(os, "O_DIRECTORY") and {os.open, os.stat, os.rename, os.unlink} <= os.supports_dir_fd)
        link = not follow and (by_name or not hasattr(os, "O_NOFOLLOW")) and path.is_symlink()
        if link or (by_name and not path.is_dir()):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if by_name:
            yield cls(path, None)
            return
        flags = os.O_RDONLY | _flag("O_DIRECTORY", "O_CLOEXEC") | (0 if follow else _flag("O_NOFOLLOW"))
        descriptor = os.open(path, flags)
        try:
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    def _name(self, name: str) -> str | Path:
        return name if self.descriptor is not None else self.path / name

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file of the folder, never through a link; return its descriptor."""
        if not hasattr(os, "O_NOFOLLOW") and (self.path / name).is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        flags |= _flag("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
        return os.open(self._name(name), flags, mode, dir_fd=self.descriptor)

    def status(self, name: str) -> os.stat_result:
        """Return what the system knows of a file, or of the link in its place."""
        return os.stat(self._name(name), dir_fd=self.descriptor, follow_symlinks=False)

    def status_of_itself(self) -> os.stat_result:
        """Return what the system knows of the folder."""
        return self.path.stat() if self.descriptor is None else os.fstat(self.descriptor)

    def names(self) -> list[str]:
        """Return what is in the folder, by name."""
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as entries:
            return sorted(entry.name for entry in entries)

    def replace(self, old: str, new: str) -> None:
        """Give a file another name, in place of what had it."""
        os.replace(self._name(old), self._name(new), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self._name(name), dir_fd=self.descriptor)

    def sync(self) -> None:
        """Put the folder's names on disk; a system that opens no folders does so by itself."""
        if self.descriptor is not None:
            os.fsync(self.descriptor)

    def open_unnamed(self, mode: int) -> int | None:
        """Open a file that has no name, or return None where the system cannot, or cannot name it later."""
        if self.descriptor is None or not hasattr(os, "O_TMPFILE") or not Path(DESCRIPTORS).is_dir():
            return None
        with contextlib.suppress(OSError):  # a file system without them
            return os.open(self.path, os.O_TMPFILE | os.O_RDWR, mode)
        return None

    def link(self, descriptor: int, name: str) -> bool:
        """Name a file that has no name; False if the name is taken."""
        # Only with a dir_fd does Python ask link to follow the symbolic link.
        source = f"{DESCRIPTORS}/{descriptor}"
        try:
            os.link(source, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=True)
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def atomic(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Give a file that becomes ``path`` when the block ends, and vanishes when it fails or is killed.

    Where the system has them, the file has no name until it is whole. ``mode`` is who may read it, less what the
    process's mask takes away.
    """
    temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        with Folder.opened(path.parent) as folder:
            try:
                descriptor = folder.open_unnamed(mode)
                unnamed = descriptor is not None
                if descriptor is None:
                    descriptor = folder.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
                with os.fdopen(descriptor, "r+b") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    named = unnamed and folder.link(file.fileno(), path.name)
                    if unnamed and not named:
                        folder.link(file.fileno(), temporary)
                # Windows gives no new name to what is open.
                if not named:
                    folder.replace(temporary, path.name)
                folder.sync()
            finally:
                with contextlib.suppress(FileNotFoundError):
                    folder.unlink(temporary)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def write_text(path: str | Path, text: str) -> None:
    r"""Write a file of text in UTF-8, there whole or not at all; `FileError` if it cannot be written."""
    with atomic(Path(path)) as file:
        file.write(text.encode())


def check_named(path: str | Path, *endings: str) -> None:
    """Raise `FileError` unless a name ends as what is written does: programs open a file by its ending.

    >>> check_named("plan.xlsx", *JSON)
    Traceback (most recent call last):
    ...
    dpframe.errors.FileError: plan.xlsx must end with .json, which is what is written; name it so
    """
    if Path(path).suffix.lower() not in endings:
        raise FileError(f"{path} must end with {' or '.join(endings)}, which is what is written; name it so")


def check_writable(path: Path) -> None:
    """Raise `FileError` unless a file may be made in the folder of a path: before what is written there is paid for."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def sync_folder(path: Path) -> None:
    """Put a folder's names on disk."""
    with Folder.opened(path) as folder:
        folder.sync()


def new_file(path: Path) -> int:
    """Open a new file for writing that only its owner may use; ``FileExistsError`` if the name is taken."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | _flag("O_BINARY", "O_CLOEXEC"), 0o600)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, or return False if another process has it locked."""
    with contextlib.suppress(ImportError):
        fcntl = importlib.import_module("fcntl")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
    try:
        msvcrt = importlib.import_module("msvcrt")
    except ImportError:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)) from None
    os.lseek(descriptor, _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def read_at(descriptor: int, offset: int, out: npt.NDArray[np.uint8]) -> int:
    """Read bytes from a place in a file into an array; return how many, 0 at its end."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [out.data], offset)
    with _SEEKING:
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            found = np.frombuffer(os.read(descriptor, len(out)), dtype=np.uint8)
        finally:
            os.lseek(descriptor, end, os.SEEK_SET)
    out[: len(found)] = found
    return len(found)


def write_whole(descriptor: int, content: bytes) -> None:
    """Write a file's content from its start, to the last byte."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    if os.write(descriptor, content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def shared(status: os.stat_result) -> str | None:
    """Return how others may use a file or a folder, or None if only its owner may.

    Windows keeps its rights elsewhere: there a folder within the user's own has those of that.
    """
    folder = stat.S_ISDIR(status.st_mode)
    mode = "0700" if folder else "0600"
    rights = hasattr(os, "geteuid")
    faults = {
        "belongs to another user": rights and status.st_uid != os.geteuid(),
        f"has rights for others (it must have mode {mode})": rights and bool(status.st_mode & 0o077),
        "is no regular file": not folder and not stat.S_ISREG(status.st_mode),
        "has another link": not folder and status.st_nlink > 1,
    }
    return next((fault for fault, is_so in faults.items() if is_so), None)
