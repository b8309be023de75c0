"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dpframe.disk import Folder
from dpframe.errors import FileError


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


def check_writable(path: Path) -> None:
    """Raise `FileError` unless a file may be made in the folder of a path: before what is written there is paid for."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None
