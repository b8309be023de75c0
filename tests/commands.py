"""The command line as `python -m dpframe` runs it, in this process: nothing is imported but what a user runs."""

import runpy
import sys


def dpframe(*words: object) -> None:
    """Run a command; it ends in SystemExit, with the code of the shell."""
    before, sys.argv = sys.argv, ["dpframe", *map(str, words)]
    try:
        runpy.run_module("dpframe", run_name="__main__")
    finally:
        sys.argv = before
