"""The command line as `python -m dpframe` runs it, in this process, and what commands there are."""

import runpy
import sys
from collections.abc import Iterator
from typing import Any


def dpframe(*words: object) -> None:
    """Run a command; it ends in SystemExit, with the code of the shell."""
    before, sys.argv = sys.argv, ["dpframe", *map(str, words)]
    try:
        runpy.run_module("dpframe", run_name="__main__")
    finally:
        sys.argv = before


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of every command, with what it takes; without the groups that only hold others."""
    from dpframe.cli.main import commands

    for name, command in commands().commands.items():
        inner = getattr(command, "commands", None)
        yield from [((name,), command)] if inner is None else (((name, word), one) for word, one in inner.items())
