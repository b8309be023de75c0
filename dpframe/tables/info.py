"""What a release says about itself, and where it is kept."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dpframe.errors import PlanError, name_list
from dpframe.plan.explanation import person_lines
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.text import SCHEMA
from dpframe.plan.words import KEPT, mind_lines, promise_line
from dpframe.tables.packed import packed, unpacked
from dpframe.tables.release import sealed

METADATA_KEY = "dpframe"
"""Key under which a release's description travels in ``attrs`` and in Parquet metadata."""


PANDAS_ATTRS = "PANDAS_ATTRS"
"""Key under which pandas keeps ``attrs`` in Parquet metadata."""


def arrow_metadata(text: str) -> dict[str, str]:
    """Return the schema metadata of a release: under our own key, and as pandas reads ``attrs``."""
    return {METADATA_KEY: text, PANDAS_ATTRS: json.dumps({METADATA_KEY: text})}


_texts: dict[int, tuple[weakref.ref[Any], str]] = {}
"""Descriptions by the identity of frames of a kind that keeps no metadata, while they live."""


def keep_text(frame: Any, text: str) -> None:
    """Keep the description of a release that is a frame without metadata of its own, as long as it lives."""
    place = id(frame)
    _texts[place] = weakref.ref(frame, lambda _: _texts.pop(place, None)), text


def kept_text(frame: Any) -> str | None:
    """Return the description that was kept of this very frame; None for any other, and for one made of it."""
    owner, text = _texts.get(id(frame), (lambda: None, None))
    return text if owner() is frame else None


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


NUMBERS = 'Numbers: .dp.mean("…"), .dp.value_counts("…"); plain pandas on noisy rows is biased. More: .dp.explain()'
"""The last line, for frames."""


@dataclass(frozen=True)
class ReleaseExplanation:
    """What a release promises in detail; prints as text, and shows as HTML in a notebook.

    ``person``: what the promise means for one person, in sentences; ``details``: both guarantees, the order of the
    rows, what inference and tables measured, and what each costs.
    """

    person: tuple[str, ...]
    details: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(["What it means for one person", *self.person, "", KEPT, *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [("What it means for one person", self.person), (KEPT, self.details)]
        return notebook_html("What this release promises", parts)


@dataclass(frozen=True)
class ReleaseInfo:
    """What a release says about itself: its plan, its number of rows and its digest.

    ``rows`` is the number of rows of the table, where those released are a sample of them. ``measured`` means that
    what inference measured, as the plan has it, is of this very table. ``tables`` are the noisy counts of the plan's
    measures, in their order, or none: then only the rows are evidence. ``part`` is the part of a ledger's dataset whose
    rows these are: the promise adds up to those of other parts only as far as no person is in two of them. ``left_out``
    are the plan's columns that the table no longer has, where `dpframe.write` stored some columns of a release: the
    digest is that of the others.
    """

    plan: Plan
    n: int
    digest: str
    rows: int | None = None
    measured: bool = False
    tables: tuple[MeasuredTable, ...] = ()
    part: str | None = None
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join([f"<{self.introduction}>", *self.lines(), "More: .explain()"])

    @property
    def introduction(self) -> str:
        """The number of rows and of randomised columns, and how many of them the table has."""
        count = len(self.plan.columns)
        kept = sum(name not in self.left_out for name in self.plan.names)
        shown = f"{count}" if kept == count else f"{kept} of {count}"
        return f"a release of {self.title}, {shown} randomised column{'' if count == 1 else 's'}"

    @property
    def title(self) -> str:
        """The number of rows, and the part of the dataset that they are."""
        rows = f"{self.n:,} row" + "s" * (self.n != 1)
        return rows + ("" if self.part is None else f" (part {name_list([self.part])} of its dataset)")

    def lines(self) -> list[str]:
        """Return the promise, and what is not protected or was not found, if anything."""
        return [promise_line(self.plan), *mind_lines(self.plan, self.left_out)]

    def explain(self) -> ReleaseExplanation:
        """Return what the promise means for one person and how it is kept; prints as text.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(1_000, columns=["sex"])
        >>> info = dpf.sanitize(frame, epsilon=1, delta=0, spaces={"sex": ["F", "M"]}).dp.release
        >>> info.lines()
        ['Promise: epsilon=1, delta=0 for each person with one row, also against someone who knows which row is theirs']
        >>> info.explain().details[0]
        'Release: epsilon=1, delta=0 (replace-one, per person with one row)'
        """
        return ReleaseExplanation(tuple(person_lines(self.plan)), tuple(self.plan.lines()))

    @property
    def row_digest(self) -> str:
        """The digest's part that is of the rows; measured tables have one of their own behind it."""
        return self.digest[:16]

    def to_json(self) -> str:
        """Return JSON text with a schema number; of measured tables' counts a few bytes each, in base64."""
        return self._json

    @cached_property
    def _json(self) -> str:
        data = {
            "schema": max(2, self.plan.schema),
            "n": self.n,
            "digest": self.digest,
            "plan": json.loads(self.plan.to_json()),
        }
        if self.rows is not None:
            data["rows"] = self.rows
        if self.measured:
            data["measured"] = True
        if self.tables:
            data["tables"] = packed(self.tables)
        if self.part is not None:
            data["part"] = self.part
        if self.left_out:
            data["left_out"] = self.left_out
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: Any) -> ReleaseInfo:
        """Read it back; `PlanError` if it is no release's description, of a newer schema, or has others' tables."""
        damaged = PlanError("the release's metadata is damaged; attach its plan again")
        try:
            data = json.loads(text)
            schema, n, digest, rows = data["schema"], data["n"], data["digest"], data.get("rows")
            plan = json.dumps(data["plan"], ensure_ascii=False)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise damaged from None
        if type(schema) is not int or type(n) is not int or not isinstance(digest, str) or schema < 1 or n < 0:
            raise damaged
        if rows is not None and (type(rows) is not int or rows < n):
            raise damaged
        part, left_out = data.get("part"), data.get("left_out", [])
        if not isinstance(part, str | None) or not isinstance(left_out, list):
            raise damaged
        if schema > SCHEMA:
            raise PlanError(f"the release has schema {schema}, this version reads up to {SCHEMA}; upgrade dpframe")
        info = cls(Plan.from_json(plan), n, digest, rows, data.get("measured") is True, part=part)
        if not set(map(str, left_out)) <= {*info.plan.names, *info.plan.passthrough}:
            raise damaged
        info = replace(info, left_out=tuple(map(str, left_out)))
        return info if data.get("tables") is None else replace(info, tables=info._read_tables(data["tables"]))

    def _read_tables(self, data: Any) -> tuple[MeasuredTable, ...]:
        """Return the tables of a description, or refuse those that are not of this very release."""
        tables = unpacked(data, self.plan.measures, self.plan.spaces)
        if tables is None or sealed(self.row_digest, tables) != self.digest[16:]:
            raise PlanError(
                "the measured tables are not those of this release: their digest is another; take the description "
                "that the release came with"
            )
        return tables
