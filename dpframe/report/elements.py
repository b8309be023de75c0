"""HTML made of elements, in which all text is escaped, and the bars that are drawn in tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

SHAPES = frozenset({"rect", "line", "circle"})

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
"""Control characters and non-characters, which HTML forbids even when they are escaped."""


class Html(str):
    """Text that is HTML already. Everything else is escaped when it becomes part of an element."""

    __slots__ = ()


def _part(value: object) -> str:
    if isinstance(value, Html):
        return value
    return escape(_UNPRINTABLE.sub("\ufffd", str(value)))


def join(parts: Iterable[object]) -> Html:
    """Return parts one after the other; text among them is escaped."""
    return Html("".join(map(_part, parts)))


def el(name: str, *parts: object, **attributes: object) -> Html:
    """Return an element; ``class_`` is the attribute class, and an underscore in others stands for a hyphen.

    Examples
    --------
    >>> print(el("p", "a < b", class_="note"))
    <p class="note">a &lt; b</p>
    """
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_part(value)}"' for key, value in attributes.items())
    if name in SHAPES:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{join(parts)}</{name}>")


def items(lines: Iterable[object], class_: str = "") -> Html:
    """Return a list."""
    return el("ul", *(el("li", line) for line in lines), **({"class_": class_} if class_ else {}))


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], class_: str = "", hide: bool = False
) -> Html:
    """Return a table whose first column heads its rows; ``hide`` leaves the caption to screen readers.

    Columns whose head begins with ``#`` hold numbers.
    """
    numbers = [head.startswith("#") for head in heads]
    right = [{"class_": "number"} if number else {} for number in numbers]
    head = el("tr", *(el("th", text.lstrip("#"), scope="col", **a) for text, a in zip(heads, right, strict=True)))
    body = [
        el(
            "tr",
            el("th", first, scope="row"),
            *(el("td", cell, **attributes) for cell, attributes in zip(rest, right[1:], strict=True)),
        )
        for first, *rest in rows
    ]
    named = el("caption", caption, **({"class_": "unseen"} if hide else {}))
    made = el("table", named, el("thead", head), el("tbody", *body), **({"class_": class_} if class_ else {}))
    return el("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)


def _svg(width: int, height: int, *parts: Html) -> Html:
    """Return a drawing that repeats a number beside it: nothing for a screen reader."""
    return el(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        aria_hidden="true",
        focusable="false",
        preserveAspectRatio="none",
    )


def _place(share: float, width: int) -> float:
    return round(min(max(share, 0.0), 1.0) * width, 2)


def bar(share: float, width: int = 160) -> Html:
    """Return a bar as long as a share of its width."""
    long = max(_place(share, width), 1.0)
    return _svg(width, 14, el("rect", x=0, y=2, width=long, height=10, rx=2, class_="fill"))


def interval_bar(estimate: float, lower: float, upper: float, width: int = 160, *, point: bool = False) -> Html:
    """Return a bar (or, with ``point``, a dot on a line) with its interval, all as shares of the width."""
    at, low, high = (_place(share, width - 2) + 1 for share in (estimate, lower, upper))
    if point:
        first = el("rect", x=0, y=6, width=width, height=2, class_="track")
        shape = el("circle", cx=at, cy=7, r=4, class_="fill")
    else:
        first = el("rect", x=0, y=1, width=width, height=12, rx=2, class_="track")
        shape = el("rect", x=0, y=2, width=max(at, 1.0), height=10, rx=2, class_="fill")
    whisker = [
        el("line", x1=low, x2=high, y1=7, y2=7, class_="whisker"),
        el("line", x1=low, x2=low, y1=3, y2=11, class_="whisker"),
        el("line", x1=high, x2=high, y1=3, y2=11, class_="whisker"),
    ]
    return _svg(width, 14, first, shape, *whisker)


def range_bar(lower: float, upper: float, width: int = 400) -> Html:
    """Return the part of a scale from 0 to 1 between two shares, with its middle marked."""
    low, high = _place(lower, width), _place(upper, width)
    return _svg(
        width,
        16,
        el("rect", x=0, y=5, width=width, height=6, rx=3, class_="track"),
        el("rect", x=low, y=5, width=round(high - low, 2), height=6, rx=3, class_="fill"),
        el("line", x1=width / 2, x2=width / 2, y1=1, y2=15, class_="whisker"),
        el("rect", x=round(high - 2, 2), y=1, width=2, height=14, class_="end"),
        el("rect", x=low, y=1, width=2, height=14, class_="end"),
    )


def split_bar(shares: Sequence[float], width: int = 600) -> Html:
    """Return a bar of parts that add up to its width."""
    parts, start = [], 0.0
    for i, share in enumerate(shares):
        x, end = _place(start, width), _place(start + share, width)
        parts.append(el("rect", x=x, y=0, width=round(end - x, 2), height=18, class_=f"part{i % 2}"))
        start += share
    return _svg(width, 18, *parts)
