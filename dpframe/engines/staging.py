"""A directory of Parquet files by many workers with retries, which appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dpframe.disk import sync_folder
from dpframe.errors import FileError


@dataclass(frozen=True)
class WrittenFile:
    """A complete file of a worker: the number of its part, its name until publication, and its rows."""

    number: int
    name: str
    rows: int


def check_target(target: str | os.PathLike[str]) -> Path:
    """Return the path of a directory to be made, or raise `FileError` if it cannot be made."""
    path = Path(target)
    if "://" in str(target):
        raise FileError(f"{target} is no path; name a directory that the driver and all workers see under one path")
    if os.path.lexists(path):
        raise FileError(f"{path} exists; an engine writes a new directory, so name another one or remove it")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a directory; make it first")
    # Tried before the release is paid for: a folder that cannot be written must not cost a budget.
    try:
        stage(path).rmdir()
    except OSError as error:
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None
    return path.absolute()


def stage(path: Path) -> Path:
    """Make a hidden directory next to a path."""
    folder = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    folder.mkdir()
    return folder


@contextlib.contextmanager
def stage_release(path: Path) -> Iterator[tuple[Path, Callable[[Sequence[WrittenFile]], None]]]:
    """Yield a hidden directory next to a path, and a function that moves it to the path with the listed files.

    The function deletes all other files, such as those of a second attempt at a part.
    """
    try:
        folder = stage(path)
        try:
            yield folder, lambda written: publish(folder, path, written)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} could not be written: {error.strerror or 'input/output error'}") from None


def publish(folder: Path, path: Path, written: Sequence[WrittenFile]) -> None:
    """Give the files their names, remove all other files, and give the directory its final name."""
    written_names = {file.name for file in written}
    for entry in list(folder.iterdir()):
        if entry.name not in written_names:
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    for file in written:
        (folder / file.name).rename(folder / f"part-{file.number:05d}.parquet")
    sync_folder(folder)
    # Another program may have made the path since it was checked; rename would replace an empty directory.
    if os.path.lexists(path):
        raise FileError(f"{path} exists by now; nothing was written")
    folder.rename(path)
    sync_folder(path.parent)


def write_error(folder: Path, error: OSError) -> FileError:
    """Return the error of a worker that cannot write."""
    reason = error.strerror or "input/output error"
    return FileError(
        f"a worker cannot write to {folder}: {reason}; name a directory that the driver and all workers see"
    )


def write_part(folder: str, number: int, rows: int, write: Callable[[IO[bytes]], None]) -> WrittenFile:
    """Write the file of one part to disk under a fresh name, and return it."""
    name = f".part-{number:05d}.{secrets.token_hex(8)}.tmp"
    path = Path(folder, name)
    try:
        with path.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise write_error(path.parent, error) from None
    return WrittenFile(number, name, rows)
