"""Memory of workers that are set to give all of it back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM, _MMAP = -1, -3
"""glibc's numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD (malloc.h)."""

_KEPT, _FROM_HEAP = 1 << 28, 1 << 25
"""Bytes that are kept, and up to which an array is taken from what is kept: the most that glibc allows."""

_USUAL = 1 << 17
"""glibc's own M_MMAP_THRESHOLD."""


@contextmanager
def memory_kept() -> Iterator[None]:
    """While a block works, have glibc keep the memory that is freed; afterwards it gives all back and does as before.

    Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``: each of the arrays that a task takes and frees, of a
    few hundred KiB for some rows, then comes from the system anew, page by page, which takes longer than the work on
    it. Where that variable is not set, or the C library is another, nothing is done.
    """
    trim, mmap = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    if not trim.isdecimal() or os.name != "posix" or not hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        yield
        return
    libc.mallopt(_TRIM, _KEPT)
    libc.mallopt(_MMAP, _FROM_HEAP)
    try:
        yield
    finally:
        libc.mallopt(_TRIM, int(trim))
        libc.mallopt(_MMAP, int(mmap) if mmap.isdecimal() else _USUAL)
        libc.malloc_trim(0)
