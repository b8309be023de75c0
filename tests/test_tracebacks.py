"""In IPython the traceback of an error of dpframe ends at the user's line."""

from __future__ import annotations

import subprocess
import sys

SESSION = """
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("colors", "nocolor")
shell.run_cell("import dpframe as dpf\\ndpf.plan(3, epsilon=1)")
print("=====")
shell.run_cell("import dpframe as dpf\\ndpf.read('missing.parquet')")
frame = sys.last_traceback
while frame.tb_next is not None:
    frame = frame.tb_next
print("last frame of the debugger:", frame.tb_frame.f_globals["__name__"])
print("=====")
shell.run_line_magic("xmode", "Verbose")
shell.run_line_magic("tb", "")
"""
"""An error of a call, an error with a cause, and all frames of the second."""


def test_the_traceback_ends_at_the_users_line_and_verbose_ones_have_all_frames() -> None:
    text = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, check=True).stdout
    call, cause, verbose = text.split("=====")
    assert "----> 2 dpf.plan(3, epsilon=1)\n\nParameterError: " in call
    assert "----> 2 dpf.read('missing.parquet')\n\nFileError: missing.parquet" in cause
    assert "last frame of the debugger: dpframe." in cause
    assert "/dpframe/" not in call + cause
    assert "/dpframe/" in verbose
    assert "FileError: missing.parquet" in verbose
