"""Standard input and output in place of files: a dash."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dpframe.cli.shared import argument
from dpframe.disk import atomic, check_named
from dpframe.errors import ParameterError
from dpframe.tables.files import FileInput
from dpframe.tables.sinks import check_target

PIPE = Path("-")
_FOLDER = "dpframe-pipe-"


def spooled(context: typer.Context, source: Path) -> Path:
    """Return the path of a source; standard input is kept in a file of its own for as long as the command runs.

    A table is read several times, and a pipe only once. Only the owner may read the file, as in any temporary folder.
    """
    if source != PIPE:
        return source
    # The command's own context is not closed where a later argument is refused.
    folder = context.find_root().with_resource(tempfile.TemporaryDirectory(prefix=_FOLDER))
    first = sys.stdin.buffer.read(4)
    path = Path(folder) / ("input.parquet" if first == b"PAR1" else "input.csv")
    with atomic(path) as file:
        file.write(first)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


Source = Annotated[
    Path,
    argument("Parquet or CSV file, directory or quoted glob; - for standard input.", callback=spooled),
]


Target = Annotated[
    Path,
    argument("Parquet file to write, or CSV by the ending; - for Parquet. A file of that name is replaced."),
]


def in_place_of(target: Path) -> str:
    """Say whether writing a target replaces a file: asked before it is written."""
    try:
        is_there = target != PIPE and target.is_file()
    except OSError:  # a name that no file can have, which writing refuses
        return ""
    return ", in place of the file that was there" if is_there else ""


@contextmanager
def target_file(target: Path) -> Iterator[Path]:
    """Give the path to write; what is to go to standard output is Parquet, and goes there when it is whole."""
    if target != PIPE:
        yield target
        return
    if sys.stdout.isatty():
        raise ParameterError("target - is standard output, which is a terminal; name a file, or write | or > behind")
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        path = Path(folder) / "output.parquet"
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def text_target(target: Path, table: FileInput, endings: Sequence[str]) -> Path:
    """Return a path that text may be written to, or raise `FileError` for a name that promises other things."""
    check_target(target, table)
    check_named(target, *endings)
    return target


def named(message: str) -> str:
    """Return a message in which the files that pipes are kept in are called what they are."""
    return re.sub(rf"\S*{_FOLDER}\w+/(input|output)\.\w+", r"standard \1", message)


def is_piped(path: Path) -> bool:
    """Return whether a path is standard input or output, or the file that it is kept in."""
    return path == PIPE or path.parent.name.startswith(_FOLDER)


def check_files(*paths: Path) -> None:
    """Raise `ParameterError` for a pipe where a job may have to be repeated."""
    for path in paths:
        if is_piped(path):
            raise ParameterError(
                "ledger and - do not go together: an interrupted job is repeated from files; name them"
            )
