"""Output for terminals only: text in one line, and a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def to_one_line(text: Any) -> str:
    """Return text for a terminal, in one line even if it holds line breaks."""
    return str(text) if str(text).isprintable() else repr(text)


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar with rows/s and the remaining time on a terminal; show nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    # At most 60 letters: when a terminal is made narrower, it breaks longer lines, and their first part stays.
    console = Console(stderr=True)
    bar_only = BarColumn(max(1, min(20, console.width - 40)))
    columns = (TextColumn("{task.description}"), bar_only, TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task, start = bar.add_task(description, total=None, rate=""), (0, 0.0)

        def update(done: int, total: int) -> None:
            nonlocal start
            now = time.perf_counter()
            # The rate counts from the first rows, as planning takes time before them.
            start = start if start[0] else (done, now)
            rate = f"{(done - start[0]) / (now - start[1]):,.0f} rows/s" if done > start[0] else ""
            bar.update(task, completed=done, total=total, rate=rate)

        yield update
