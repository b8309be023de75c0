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
from dpframe.disk import atomic, check_ending
from dpframe.errors import ParameterError
from dpframe.tables.files import FileInput
from dpframe.tables.sinks import check_target

PIPE = Path("-")
_FOLDER_PREFIX = "dpframe-pipe-"


def spool_input(context: typer.Context, source: Path) -> Path:
    """Return the path of a source; standard input is copied to a temporary file while the command runs.

    A command reads its table several times, and can read a pipe only once. Only the owner may read the temporary file.
    """
    if source != PIPE:
        return source
    # The context of the command is not closed if a later argument is refused; the outermost context always is.
    folder = context.find_root().with_resource(tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX))
    # A pipe has no ending that gives the format; Parquet files begin with these four bytes.
    first_bytes = sys.stdin.buffer.read(4)
    path = Path(folder) / ("input.parquet" if first_bytes == b"PAR1" else "input.csv")
    with atomic(path) as file:
        file.write(first_bytes)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


Source = Annotated[
    Path,
    argument("Parquet or CSV file, directory or quoted glob; - for standard input.", callback=spool_input),
]


Target = Annotated[
    Path,
    argument("Parquet file to write, or CSV by the ending; - for Parquet. A file of that name is replaced."),
]


def describe_replacement(target: Path) -> str:
    """Return words for the file that writing a target replaces, if there is one; call it before writing."""
    try:
        exists = target != PIPE and target.is_file()
    # No file can have such a name: writing refuses it with a better message.
    except OSError:
        return ""
    return ", in place of the file that was there" if exists else ""


@contextmanager
def target_file(target: Path) -> Iterator[Path]:
    """Yield the path to write; for standard output, copy a finished Parquet file there at the end."""
    if target != PIPE:
        yield target
        return
    # Binary content would garble a terminal.
    if sys.stdout.isatty():
        raise ParameterError("target - is standard output, which is a terminal; name a file, or write | or > behind")
    with tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX) as folder:
        path = Path(folder) / "output.parquet"
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def check_text_target(target: Path, table: FileInput, endings: Sequence[str]) -> Path:
    """Return a path that text may be written to, or raise `FileError` for an ending of another format."""
    check_target(target, table)
    check_ending(target, *endings)
    return target


def name_pipes(message: str) -> str:
    """Return a message with temporary files of pipes named as standard input or output."""
    return re.sub(rf"\S*{_FOLDER_PREFIX}\w+/(input|output)\.\w+", r"standard \1", message)


def is_piped(path: Path) -> bool:
    """Return whether a path is standard input or output, or the temporary file of either."""
    return path == PIPE or path.parent.name.startswith(_FOLDER_PREFIX)


def check_files(*paths: Path) -> None:
    """Raise `ParameterError` for pipes: a job under a ledger may have to be repeated."""
    for path in paths:
        if is_piped(path):
            raise ParameterError(
                "ledger and - do not go together: an interrupted job is repeated from files; name them"
            )
