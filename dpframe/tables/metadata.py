"""The description of a release as text: its place in the metadata of tables and files."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from typing import Any

METADATA_KEY = "dpframe"
"""Key under which a release's description travels in ``attrs`` and in Parquet metadata."""


PANDAS_ATTRS = "PANDAS_ATTRS"
"""Key under which pandas keeps ``attrs`` in Parquet metadata."""


def arrow_metadata(text: str) -> dict[str, str]:
    """Return the schema metadata of a release: under dpframe's key, and under pandas' key of ``attrs``."""
    return {METADATA_KEY: text, PANDAS_ATTRS: json.dumps({METADATA_KEY: text})}


_texts: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Descriptions by ``id`` of live frames whose kind has no metadata."""


def keep_text(frame: Any, text: str) -> None:
    """Store the description of a release whose frame has no metadata, for the lifetime of the frame."""
    place = id(frame)
    # Python reuses the id of a frame that is gone: the callback removes the entry before that.
    _texts[place] = weakref.ref(frame, lambda _: _texts.pop(place, None)), text


def kept_text(frame: Any) -> str | None:
    """Return the stored description of this frame object; None for other frames and for copies."""
    owner, text = _texts.get(id(frame), (lambda: None, None))
    return text if owner() is frame else None


def metadata_text(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return a release's description from Arrow or Parquet metadata, under either key; None if there is none."""
    metadata = metadata or {}
    if METADATA_KEY.encode() in metadata:
        return metadata[METADATA_KEY.encode()].decode("utf-8", "replace")
    try:
        description = json.loads(metadata[PANDAS_ATTRS.encode()])[METADATA_KEY]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return description if isinstance(description, str) else None
