"""The declaration of a column of lists, whose items are rows of a table of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpframe.errors import ParameterError, check_whole

POSITION, VALUE = "position", "value"
"""Columns of the items of lists of values: the place in the list, from 0, and the value."""

RECORDS, VALUES = "records", "values"
"""Kinds of lists: of records, or of single values."""

COUNT_FACTOR = 4
"""Rows of a person that are counted, over those that are kept, by default (limit: further rows are not counted)."""


@dataclass(frozen=True)
class Records:
    """A column of lists: each row's records are released like the rows of a child table, ``max_rows`` of a person.

    Parameters
    ----------
    items
        The spaces of the records' fields, ``{field: space}``, or one space for lists of values, which get the columns
        ``position``, from 0, and ``value``. Spaces are declared as for columns.
    max_rows
        The number of items of a person that are kept; of more items as many are chosen in secret.
    max_count
        The number up to which items are counted, by default four times ``max_rows``.

    Raises
    ------
    ParameterError
        If a number is not whole, or ``max_count`` is below ``max_rows``.

    Examples
    --------
    >>> import pandas as pd, dpframe as dpf
    >>> visits = [[{"kind": "urgent"}, {"kind": "routine"}], [{"kind": "routine"}]] * 500
    >>> frame = pd.DataFrame({"sex": ["F", "M"] * 500, "visits": visits})
    >>> spaces = {"sex": ["F", "M"], "visits": Records({"kind": ["urgent", "routine"]}, max_rows=2)}
    >>> safe = dpf.sanitize(frame, epsilon=4, spaces=spaces, key=bytes(32))
    >>> list(safe["visits"].columns)
    ['kind', 'persons.sex', 'visits.n']
    >>> safe["persons"].dp.mean("visits.n", by="sex")["estimate"].round(1).to_dict()
    {'F': 2.0, 'M': 1.0}
    """

    items: Any
    max_rows: int
    max_count: int | None = None

    def __post_init__(self) -> None:
        least = check_whole(self.max_rows, "max_rows", of="rows of a person")
        if self.max_count is not None:
            check_whole(self.max_count, "max_count", least, of="rows of a person")
        if any(isinstance(space, Records) for space in self.spaces.values()):
            raise ParameterError("Records within Records are refused; join the inner lists to the outer ones first")

    @property
    def kind(self) -> str:
        """The kind of lists."""
        return RECORDS if isinstance(self.items, Mapping) and "space" not in self.items else VALUES

    @property
    def most(self) -> int:
        """The number up to which items are counted."""
        return self.max_count or COUNT_FACTOR * self.max_rows

    @property
    def spaces(self) -> dict[str, Any]:
        """The declared spaces of the items' columns."""
        if self.kind == RECORDS:
            return dict(self.items)
        return {POSITION: (0, max(self.most - 1, 1)), VALUE: self.items}
