"""One line, and no traceback, if the command is stopped while its modules load.

This module is imported before all that take time. It changes only the process of the command, and only until
`restore_interrupt`, after which `dpframe.cli.main` handles interruptions. No file is open before, so nothing is lost.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

STOPPED_EXIT_CODE = 130
"""Exit code of a command that was interrupted."""


def _is_command() -> bool:
    """Return whether this process is ``dpframe`` or ``python -m dpframe``."""
    if sys.argv[:1] == ["-m"]:
        words = sys.orig_argv
        return "dpframe" in words and words[words.index("dpframe") - 1] == "-m"
    return Path(sys.argv[0] if sys.argv else "").stem == "dpframe"


def _stop(*_: Any) -> None:
    # Python's own output and exit may need modules that are half loaded.
    os.write(2, b"dpframe: stopped; nothing was read or written\n")
    os._exit(STOPPED_EXIT_CODE)


def restore_interrupt() -> None:
    """Let Python raise `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# A process that was started to ignore interruptions, as by nohup, goes on ignoring them.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stop)
