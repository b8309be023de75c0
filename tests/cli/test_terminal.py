"""The bar on a terminal: in 60 letters, with a rate of rows that planning is no part of, and gone at the end."""

import io
import re
import time

import pytest

from dpframe.cli.terminal import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.walk(1)
@pytest.mark.parametrize(("width", "most"), [(200, 60), (60, 60), (50, 50)])
def test_the_bar_fits_and_counts_only_rows(monkeypatch, width, most):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with progress("randomising") as update:
        assert update is not None
        for done, at in ((100_000, 1_060.0), (3_100_000, 1_061.0), (5_000_000, 1_062.0)):
            monkeypatch.setattr(time, "perf_counter", lambda at=at: at)
            update(done, 5_000_000)
            time.sleep(0.15)  # it is drawn ten times a second
    uncoloured = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", uncoloured)
    assert 40 < max(map(len, plain.splitlines())) <= most
    assert "3,000,000 rows/s" in plain
    assert screen.getvalue().endswith("\x1b[2K")


def test_nothing_is_shown_elsewhere(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress("randomising") as update:
        assert update is None
