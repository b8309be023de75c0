"""What notebooks show of plans, certificates, reports and tables: a title, lists, and a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def notebook_html(
    title: str,
    lists: Iterable[tuple[str, Sequence[str]]],
    table: pd.DataFrame | None = None,
    digits: Callable[[float], str] = str,
    notes: Sequence[str] = (),
) -> str:
    """Return HTML in which every text is escaped; lists without lines are left out.

    ``lists``: pairs of a heading, which may be empty, and lines; ``digits``: how a number of the table is written;
    ``notes``: lines below the table.

    >>> notebook_html("a < b", [("", ["one"]), ("None", [])])
    '<div><strong>a &lt; b</strong><ul><li>one</li></ul></div>'
    """
    parts = [f"<strong>{escape(title)}</strong>"]
    for heading, lines in lists:
        if lines:
            items = "".join(f"<li>{escape(line)}</li>" for line in lines)
            parts.append((f"<p>{escape(heading)}</p>" if heading else "") + f"<ul>{items}</ul>")
    if table is not None:
        parts.append(_left(table.reset_index().to_html(float_format=digits, border=0, index=False, justify="left")))
    if notes:
        parts.append(f"<p>{'<br>'.join(map(escape, notes))}</p>")
    return f"<div>{''.join(parts)}</div>"


def _left(table: str) -> str:
    """Return a table of pandas with its cells aligned as its heads are: notebooks set both right."""
    for cell in ("td", "th"):
        table = table.replace(f"<{cell}>", f'<{cell} style="text-align: left">')
    return table
