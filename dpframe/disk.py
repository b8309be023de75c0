"""Files and folders by the means of the operating system: descriptors of folders on POSIX, paths on Windows.

On POSIX a folder stays open: its files are changed in the opened folder even if the path leads to another one by then.
On Windows each name is looked up anew, and links are refused before a file is opened.
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
"""Folder in which Linux lists the open files of a process; a file without a name is linked from there."""

_LOCKED_BYTE = 1 << 30
"""Position of the byte that Windows locks: beyond all content, as no other process can read a locked byte."""

_SEEK_LOCK = threading.Lock()
"""Lock of threads around seek and read, if the system has no single call for both."""


def _combine_flags(*names: str) -> int:
    """Return the combined flags of ``os.open`` that the system has."""
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return flags


@dataclass(frozen=True)
class Folder:
    """A folder in which files are opened, replaced and removed by their names."""

    path: Path
    descriptor: int | None

    @classmethod
    @contextlib.contextmanager
    def open_folder(cls, path: Path, *, follow: bool = True) -> Iterator[Folder]:
        """Open a folder; ``NotADirectoryError`` for other files, and for links unless ``follow``.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name, Folder.open_folder(Path(name)) as folder:
        ...     os.close(folder.open("a", os.O_CREAT | os.O_EXCL | os.O_RDWR))
        ...     folder.replace("a", "b")
        ...     folder.names()
        ['b']
        """
        # Functions of the system differ in whether they take a descriptor of a folder: all of them must.
        by_name = not (hasattr(os, "O_DIRECTORY") and {os.open, os.stat, os.rename, os.unlink} <= os.supports_dir_fd)
        link = not follow and (by_name or not hasattr(os, "O_NOFOLLOW")) and path.is_symlink()
        if link or (by_name and not path.is_dir()):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if by_name:
            yield cls(path, None)
            return
        flags = (
            os.O_RDONLY | _combine_flags("O_DIRECTORY", "O_CLOEXEC") | (0 if follow else _combine_flags("O_NOFOLLOW"))
        )
        descriptor = os.open(path, flags)
        try:
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    def _entry(self, name: str) -> str | Path:
        return name if self.descriptor is not None else self.path / name

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file of the folder, never through a link; return its descriptor."""
        # Without O_NOFOLLOW a link can only be refused before it is opened.
        if not hasattr(os, "O_NOFOLLOW") and (self.path / name).is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        flags |= _combine_flags("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
        return os.open(self._entry(name), flags, mode, dir_fd=self.descriptor)

    def status(self, name: str) -> os.stat_result:
        """Return the status of a file, or of a link with that name."""
        return os.stat(self._entry(name), dir_fd=self.descriptor, follow_symlinks=False)

    def folder_status(self) -> os.stat_result:
        """Return the status of the folder."""
        return self.path.stat() if self.descriptor is None else os.fstat(self.descriptor)

    def names(self) -> list[str]:
        """Return the sorted names in the folder."""
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as entries:
            return sorted(entry.name for entry in entries)

    def replace(self, old: str, new: str) -> None:
        """Rename a file, in place of any file with the new name."""
        os.replace(self._entry(old), self._entry(new), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self._entry(name), dir_fd=self.descriptor)

    def sync(self) -> None:
        """Write the folder's names to disk."""
        # Systems that open no folders write names by themselves.
        if self.descriptor is not None:
            os.fsync(self.descriptor)

    def open_unnamed(self, mode: int) -> int | None:
        """Open a file without a name; None if the system cannot, or cannot name it later."""
        if self.descriptor is None or not hasattr(os, "O_TMPFILE") or not Path(DESCRIPTORS).is_dir():
            return None
        # Some file systems have no files without names.
        with contextlib.suppress(OSError):
            return os.open(self.path, os.O_TMPFILE | os.O_RDWR, mode)
        return None

    def link(self, descriptor: int, name: str) -> bool:
        """Name a file that has no name; False if the name is taken."""
        # The source is a symbolic link, which Python follows only if a dir_fd is given.
        source = f"{DESCRIPTORS}/{descriptor}"
        try:
            os.link(source, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=True)
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def atomic(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a file that becomes ``path`` at the end of the block, and vanishes if the block fails or is killed.

    The file has no name until it is complete, if the system allows this. ``mode`` states who may read it, less the
    rights that the process's mask denies.
    """
    temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        with Folder.open_folder(path.parent) as folder:
            try:
                descriptor = folder.open_unnamed(mode)
                is_unnamed = descriptor is not None
                if descriptor is None:
                    descriptor = folder.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
                with os.fdopen(descriptor, "r+b") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    # A link never replaces a file: if the name is taken, a second name is moved over it.
                    is_named = is_unnamed and folder.link(file.fileno(), path.name)
                    if is_unnamed and not is_named:
                        folder.link(file.fileno(), temporary)
                # Windows renames no open file.
                if not is_named:
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
    """Write a file of text in UTF-8, complete or not at all; `FileError` if it cannot be written."""
    with atomic(Path(path)) as file:
        file.write(text.encode())


def check_ending(path: str | Path, *endings: str) -> None:
    """Raise `FileError` unless a name has one of these endings, by which programs open a file.

    >>> check_ending("plan.xlsx", *JSON)
    Traceback (most recent call last):
    ...
    dpframe.errors.FileError: plan.xlsx must end with .json, which is what is written; name it so
    """
    if Path(path).suffix.lower() not in endings:
        raise FileError(f"{path} must end with {' or '.join(endings)}, which is what is written; name it so")


def check_writable(path: Path) -> None:
    """Raise `FileError` unless a file can be made in the folder of a path."""
    # Callers check before they spend a budget on the content.
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def sync_folder(path: Path) -> None:
    """Write a folder's names to disk."""
    with Folder.open_folder(path) as folder:
        folder.sync()


def new_file(path: Path) -> int:
    """Open a new file for writing that only its owner may use; ``FileExistsError`` if the name is taken."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | _combine_flags("O_BINARY", "O_CLOEXEC"), 0o600)


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
    # Windows locks from the current position on, which the caller needs at the start.
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def read_at(descriptor: int, offset: int, out: npt.NDArray[np.uint8]) -> int:
    """Read bytes of a file from an offset into an array; return their number, 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [out.data], offset)
    with _SEEK_LOCK:
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            content = np.frombuffer(os.read(descriptor, len(out)), dtype=np.uint8)
        finally:
            os.lseek(descriptor, end, os.SEEK_SET)
    out[: len(content)] = content
    return len(content)


def write_whole(descriptor: int, content: bytes) -> None:
    """Write the content of a file from its start; `OSError` unless all bytes are written."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    # A full disk may write a part without an error.
    if os.write(descriptor, content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sharing_fault(status: os.stat_result) -> str | None:
    """Return how other users may use a file or folder, in words; None if only its owner may."""
    is_folder = stat.S_ISDIR(status.st_mode)
    mode = "0700" if is_folder else "0600"
    # Windows has other rights: a folder within the folder of the user inherits its protection.
    has_rights = hasattr(os, "geteuid")
    faults = {
        "belongs to another user": has_rights and status.st_uid != os.geteuid(),
        f"has rights for others (it must have mode {mode})": has_rights and bool(status.st_mode & 0o077),
        "is no regular file": not is_folder and not stat.S_ISREG(status.st_mode),
        "has another link": not is_folder and status.st_nlink > 1,
    }
    return next((fault for fault, is_fault in faults.items() if is_fault), None)
