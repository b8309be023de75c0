"""What is shown on a terminal, and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def plain(text: Any) -> str:
    """Return text for a terminal, in one line even where it holds line breaks."""
    return str(text) if str(text).isprintable() else repr(text)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar with rows/s and time left on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    # In 60 letters: a longer line is broken where a terminal is made narrower, and its first part stays.
    console = Console(stderr=True)
    bar_only = BarColumn(max(1, min(20, console.width - 40)))
    columns = (TextColumn("{task.description}"), bar_only, TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task, first = bar.add_task(what, total=None, rate=""), (0, 0.0)

        def update(done: int, total: int) -> None:
            nonlocal first
            now = time.perf_counter()
            # Planning comes before the first rows, and is no part of their rate.
            first = first if first[0] else (done, now)
            rate = f"{(done - first[0]) / (now - first[1]):,.0f} rows/s" if done > first[0] else ""
            bar.update(task, completed=done, total=total, rate=rate)

        yield update
