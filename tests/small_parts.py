"""Sizes at which a table is cut into parts, made small: a few thousand rows then take every way of a large one."""

from __future__ import annotations

import pytest

from dpframe.release import conversion, spill
from dpframe.tables import parquet_form

SIZES = {
    "group_rows": (parquet_form, "ROW_GROUP_ROWS"),
    "bucket_rows": (conversion, "SPILL_BUCKET_ROWS"),
    "spill_rows": (spill, "SPILL_ROWS"),
    "held_bytes": (spill, "HELD_BYTES"),
}
"""Rows of a group of Parquet, of a bucket of the order and of a piece on disk, and bytes that wait in memory."""


def small_parts(patch: pytest.MonkeyPatch, **sizes: int) -> None:
    """Change some of the sizes."""
    for name, size in sizes.items():
        module, constant = SIZES[name]
        patch.setattr(module, constant, size)
