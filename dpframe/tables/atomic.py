"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dpframe.errors import FileError


@contextlib.contextmanager
def atomic(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Give a file that becomes ``path`` when the block ends, and vanishes when it fails or is killed.

    Where the system has them, the file has no name until it is whole. ``mode`` is who may read it, less what the
    process's mask takes away.
    """
    temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        descriptor, unnamed = _create(folder, path.parent, temporary, mode)
        try:
            with os.fdopen(descriptor, "r+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not (unnamed and _link(file, folder, path.name)):
                    if unnamed:
                        _link(file, folder, temporary)
                    os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            os.close(folder)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def check_writable(path: Path) -> None:
    """Raise `FileError` unless a file may be made in the folder of a path: before what is written there is paid for."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def _link(file: IO[bytes], folder: int, name: str) -> bool:
    """Name a file that has no name; False if the name is taken."""
    # Only with a dir_fd does Python ask link to follow /proc's symbolic link.
    source = f"/proc/self/fd/{file.fileno()}"
    try:
        os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


def _create(folder: int, parent: Path, name: str, mode: int) -> tuple[int, bool]:
    """Open a new file for writing; the flag says that it has no name yet."""
    with contextlib.suppress(AttributeError, OSError):
        return os.open(parent, os.O_TMPFILE | os.O_RDWR, mode), True
    return os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode, dir_fd=folder), False
