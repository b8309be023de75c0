"""One line, and no traceback, when the command is stopped while it still loads.

Imported before everything that takes time. Only the command's own process is touched, and only until `loaded`: from
then on an interruption is the command line's own affair. Nothing is open while modules load, so nothing is lost.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

STOPPED = 130


def _is_command() -> bool:
    """Return whether this process is ``dpframe`` or ``python -m dpframe``."""
    if sys.argv[:1] == ["-m"]:
        words = sys.orig_argv
        return "dpframe" in words and words[words.index("dpframe") - 1] == "-m"
    return Path(sys.argv[0] if sys.argv else "").stem == "dpframe"


def _stop(*_: Any) -> None:
    os.write(2, b"dpframe: stopped; nothing was read or written\n")
    os._exit(STOPPED)


def loaded() -> None:
    """Give the interruption back to Python."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# A process that was started to ignore it goes on doing so.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stop)
