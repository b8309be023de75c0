"""The unit of privacy: neighbouring tables differ in one row, in k rows of a person, or in a person.

Rows are *replaced*, so that the number of rows is public, or *added or removed*, so that it is a secret. A replaced row
is one removed row and one added row: a guarantee for 2k added or removed rows holds for k replaced rows. The converse
fails, for a guarantee about replaced rows may reveal the number of rows.

Losses of one unit add up. A guarantee for k rows holds for fewer rows as well. A guarantee for a person whom a column
names, with all rows of the person, is another relation: no guarantee for k rows bounds it, however large k is, and it
does not cover a row whose person may change with the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpframe.errors import ParameterError

_EXAMPLE = (
    'unit must be "row", "10 rows" (the most rows of one person) or "person:COLUMN", e.g. "person:patient", with '
    '"add_remove " in front if rows are added or removed'
)
_PERSON = "person:"
_ADDED = "add_remove "
NEIGHBOURS = ("replace_one", "add_remove")
"""How neighbouring tables differ: in a row that is replaced, or in one that only one of them has."""


@dataclass(frozen=True)
class Unit:
    """A row, ``rows`` rows that one person may own, or all rows of a person, identified by the column ``person``.

    ``added`` says that neighbouring tables differ in rows that only one of them has, not in rows that are replaced.
    Ledgers and plans store its text (`str`); `Unit.of` reads it.

    >>> [str(Unit.of(text)) for text in ("row", "10 rows", 10, "person:patient")]
    ['row', '10 rows', '10 rows', 'person:patient']
    >>> Unit.of("10 rows").covers(Unit.of("row")), Unit.of("row").covers(Unit.of("person:patient"))
    (True, False)
    >>> Unit.of("add_remove 2 rows").covers(Unit.of("row")), Unit.of("2 rows").covers(Unit.of("add_remove row"))
    (True, False)
    """

    rows: int = 1
    person: str | None = None
    added: bool = False

    def __post_init__(self) -> None:
        is_count = isinstance(self.rows, int) and not isinstance(self.rows, bool) and self.rows >= 1
        is_person = self.person is None or (isinstance(self.person, str) and bool(self.person) and self.rows == 1)
        if not is_count or not is_person or not isinstance(self.added, bool):
            raise ParameterError(_EXAMPLE)

    @classmethod
    def of(cls, value: Any) -> Unit:
        """Return a unit from a unit, its text or a number of rows; `ParameterError` for anything else."""
        if isinstance(value, Unit):
            return value
        if not isinstance(value, str):
            return cls(value)
        if value.startswith(_ADDED) and not value.startswith(2 * _ADDED):
            return replace(cls.of(value.removeprefix(_ADDED)), added=True)
        if value.startswith(_PERSON):
            return cls(person=value.removeprefix(_PERSON))
        number, _, noun = value.partition(" ")
        if value != "row" and (noun != "rows" or not (number.isascii() and number.isdigit()) or len(number) > 18):
            raise ParameterError(_EXAMPLE)
        return cls() if value == "row" else cls(int(number))

    @classmethod
    def promised(cls, contributions: int, privacy_id: str | None) -> Unit:
        """Return the unit of a release with these options.

        The guarantee is for the person, however many rows of a person are chosen.
        """
        return cls(contributions) if privacy_id is None else cls(person=privacy_id)

    def __str__(self) -> str:
        kind = _ADDED if self.added else ""
        if self.person is not None:
            return f"{kind}{_PERSON}{self.person}"
        return f"{kind}row" if self.rows == 1 else f"{kind}{self.rows} rows"

    @property
    def neighbours(self) -> str:
        """How neighbouring tables differ, one of `NEIGHBOURS`."""
        return NEIGHBOURS[self.added]

    @property
    def words(self) -> str:
        """The unit in words, for a sentence."""
        kind = ", added or removed" if self.added else ""
        if self.person is not None:
            return f"a person, by column {self.person!r}{kind}"
        return f"a row{kind}" if self.rows == 1 else f"up to {self.rows} rows of a person{kind}"

    @property
    def options(self) -> str:
        """The options that give the unit."""
        kind = ' and neighbours="add_remove"' if self.added else ""
        if self.person is not None:
            return f"privacy_id={self.person!r}{kind}"
        rows = "neither contributions nor privacy_id" if self.rows == 1 else f"contributions={self.rows}"
        return f"{rows}{kind}"

    def covers(self, unit: Unit) -> bool:
        """Return whether a guarantee for this unit holds for another unit."""
        if self.added == unit.added:
            return self.person == unit.person and self.rows >= unit.rows
        # A replaced row counts as two rows that are added or removed.
        return self.added and self.person is None and unit.person is None and self.rows >= 2 * unit.rows


ROW = Unit()
"""The default unit: one replaced row."""
