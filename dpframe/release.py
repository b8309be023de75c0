"""The one loop that randomises, the secret order, and the digest of what was released.

Every face calls these: the same key, plan and rows give the same values in the same order, in memory, in
batches of any size, or in Parquet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.errors import PlanError
from dpframe.keystream import Keystream
from dpframe.plan import SCHEMA, Plan

__all__ = [
    "METADATA_KEY",
    "Digest",
    "ReleaseInfo",
    "arrow_metadata",
    "metadata_text",
    "order_words",
    "permutation",
    "rank",
    "release",
]

METADATA_KEY = "dpframe"
"""Key under which a release's description travels in ``attrs`` and in Parquet metadata."""

PANDAS_ATTRS = "PANDAS_ATTRS"
"""Key under which pandas keeps ``attrs`` in Parquet metadata."""

Codes = npt.NDArray[np.integer]
U64 = npt.NDArray[np.uint64]


def release(codes: Mapping[str, Codes], plan: Plan, key: bytes, first_row: int = 0) -> dict[str, Codes]:
    """Randomise the codes of every column of the plan, rows in the order they came.

    Parameters
    ----------
    codes
        One integer array per column of the plan, all of one length: 1-d, or of sets rows of 64-bit words.
    plan
        The plan; its digest enters the noise.
    key
        32 secret bytes that serve this table under this plan only.
    first_row
        Position of the first row in the table; row ``first_row + i`` of the stream decides row i.

    Returns
    -------
    Released codes by column, of the same dtypes.
    """
    stream = Keystream(key, plan.digest)
    found: dict[str, Codes] = {}
    for unit in plan.units:
        found |= unit.sample(codes, stream, first_row)
    return {name: found[name] for name in plan.names}


def arrow_metadata(text: str) -> dict[str, str]:
    """Return the schema metadata of a release: under our own key, and as pandas reads ``attrs``."""
    return {METADATA_KEY: text, PANDAS_ATTRS: json.dumps({METADATA_KEY: text})}


def metadata_text(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return a release's description from Arrow or Parquet metadata, wherever it was kept."""
    metadata = metadata or {}
    if METADATA_KEY.encode() in metadata:
        return metadata[METADATA_KEY.encode()].decode("utf-8", "replace")
    try:
        found = json.loads(metadata[PANDAS_ATTRS.encode()])[METADATA_KEY]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def order_words(plan: Plan, key: bytes, first_row: int, count: int) -> U64:
    """Return the 128-bit order words of rows as shape (count, 2), low half first."""
    return Keystream(key, plan.digest).column("", domain="order").words(0, first_row, count, bits=128)


def rank(words: U64) -> npt.NDArray[np.intp]:
    """Return the positions that sort rows by their 128-bit order word."""
    high = np.ascontiguousarray(words[:, 1])
    order = np.argsort(high)
    ordered = high[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.lexsort((words[:, 0], high))
    return order


def permutation(plan: Plan, key: bytes, count: int) -> npt.NDArray[np.intp] | None:
    """Return the positions of the input rows in output order, or None where the order is kept."""
    return rank(order_words(plan, key, 0, count)) if plan.shuffle else None


class Digest:
    """Digest of released rows that does not depend on their order or on batches.

    Each row's codes are mixed to 64 bits, and the row values are added up modulo 2^64 to the plan's own digest.
    It tells an altered frame, or one under another plan, from the released one; it is no signature.
    """

    def __init__(self, plan: Plan) -> None:
        self._factors = {
            column.name: [_factors(column.name, word) for word in range(max(1, column.space.code_words))]
            for column in plan.columns
        }
        self._sum = int.from_bytes(plan.digest[:8], "little")
        self.count = 0

    def update(self, codes: Mapping[str, Codes]) -> None:
        """Add rows, given by their released codes."""
        count = len(next(iter(codes.values()))) if codes else 0
        self.count += count
        for start in range(0, count, 1 << 15):
            rows: U64 = np.zeros(min(1 << 15, count - start), dtype=np.uint64)
            for name, factors in self._factors.items():
                column = codes[name][start : start + (1 << 15)]
                for word, (shift, factor) in enumerate(factors):
                    part = (column[:, word] if column.ndim == 2 else column).astype(np.uint64)
                    part += shift
                    part *= factor
                    rows ^= part >> np.uint64(29)
                    rows += part
            rows ^= rows >> np.uint64(32)
            rows *= np.uint64(0xD6E8FEB86659FD93)
            rows ^= rows >> np.uint64(32)
            self._sum = (self._sum + int(rows.sum(dtype=np.uint64))) % (1 << 64)

    def hexdigest(self) -> str:
        """Return the digest as text."""
        return f"{self._sum:016x}"


def _factors(name: str, word: int) -> U64:
    """Return what a word of a column's codes is shifted and multiplied by."""
    seed = hashlib.sha256(name.encode() + b"\0" * word).digest()
    return np.frombuffer(seed, dtype="<u8")[:2] | np.uint64(1)


@dataclass(frozen=True)
class ReleaseInfo:
    """What a release says about itself: its plan, its number of rows and its digest."""

    plan: Plan
    n: int
    digest: str

    def to_json(self) -> str:
        """Return JSON text with a schema number."""
        data = {"schema": SCHEMA, "n": self.n, "digest": self.digest, "plan": json.loads(self.plan.to_json())}
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: Any) -> ReleaseInfo:
        """Read it back; `PlanError` if it is no release's description, or one of a newer schema."""
        damaged = PlanError("the release's metadata is damaged; attach its plan again")
        try:
            data = json.loads(text)
            schema, n, digest = data["schema"], data["n"], data["digest"]
            plan = json.dumps(data["plan"], ensure_ascii=False)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise damaged from None
        if type(schema) is not int or type(n) is not int or not isinstance(digest, str) or schema < 1 or n < 0:
            raise damaged
        if schema > SCHEMA:
            raise PlanError(f"the release has schema {schema}, this version reads up to {SCHEMA}; upgrade dpframe")
        return cls(Plan.from_json(plan), n, digest)
