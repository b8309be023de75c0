"""What only some systems have, taken away: what is left is what Windows or macOS offer."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from types import ModuleType

import pytest

from dpframe import disk

with contextlib.suppress(ImportError):
    import fcntl

AWAY = {
    "unnamed files": ("O_TMPFILE",),
    "open folders": ("O_DIRECTORY",),
    "flags of open": ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"),
    "reads at a place": ("preadv", "pread", "pwrite", "pwritev"),
    "users": ("getuid", "geteuid"),
    "locks of POSIX": (),
    "/proc": (),
}
"""By what a system lacks the names that `os` has not there; `take_away` knows the rest."""


class _Locks(ModuleType):
    """Windows' module of locks, on top of those that are here: a locked file is an error at once."""

    LK_NBLCK = 2

    @staticmethod
    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (_Locks.LK_NBLCK, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def take_away(patch: pytest.MonkeyPatch, *what: str) -> None:
    """Leave the system without what is named."""
    for one in what:
        for name in AWAY[one]:
            patch.delattr(os, name, raising=False)
    if "unnamed files" in what:
        patch.setattr(tempfile, "_O_TMPFILE_WORKS", False, raising=False)
    if "open folders" in what:
        patch.setattr(os, "supports_dir_fd", frozenset())
    if "locks of POSIX" in what:
        patch.setitem(sys.modules, "fcntl", None)
        patch.setitem(sys.modules, "msvcrt", _Locks("msvcrt"))
    if "users" in what:
        patch.setenv("USERNAME", "somebody")
    if "/proc" in what:
        patch.setattr(disk, "DESCRIPTORS", "/nowhere/fd")
