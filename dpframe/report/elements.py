"""Tables and drawings of the page, as data: `template.html.jinja` writes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpframe.plan.words import UNITS

MECHANISMS = {
    "randomized_response": "kept with a fixed chance, otherwise replaced by another value drawn at random",
    "geometric": "noise added in whole steps, small steps being likelier; kept within the bounds",
    "nullable_geometric": "noise added as for other numbers; whether the value is missing is randomised, too",
    "staircase": "kept close by with a fixed chance, otherwise replaced by any value within the bounds",
    "gaussian": "noise from a bell curve added in whole steps; kept within the bounds",
    "nullable_gaussian": "bell-curve noise added in whole steps; whether the value is missing is randomised, too",
    "wide_gaussian": "noise from a bell curve added in whole steps, however far it reaches beyond the bounds",
    "nullable_wide_gaussian": "bell-curve noise added, however far; whether the value is missing is randomised, too",
    "wrapped_geometric": "noise added in whole steps, small steps being likelier; one bound follows on the other",
    "bitflip": "every item of the set is switched on or off with a fixed chance",
    "asymmetric_bitflip": "every item is switched on or off, with different chances for items held and not held",
    "nullable_bitflip": "every item is switched on or off; whether the set is missing is randomised, too",
    "set_response": "the whole set is kept with a fixed chance, otherwise replaced by another one drawn at random",
    "nullable_set_response": "the whole set, or that it is missing, is kept with a fixed chance, otherwise replaced",
    "vector": "noise added to every number of the list; small noise being likelier, kept within the bounds",
    "nullable_vector": "noise added to every number of the list; whether the list is missing is randomised, too",
    "process": "noise from a bell curve added to every number of the list, however far it reaches",
    "nullable_process": "bell-curve noise added to every number; whether the list is missing is randomised, too",
    "gamma_diagonal": "the columns are one value together: kept with a fixed chance, otherwise replaced at random",
    "exponential": "replaced by a value drawn at random, nearer ones being likelier",
    "optimal": "replaced by a value drawn from the least distorting law that the budget allows",
    "matrix": "replaced by a value drawn from a table of chances given by the curator",
}
"""Mechanisms by tag, in one sentence each."""

NAMES = {
    "set_response": "randomised response on whole sets",
    "nullable_set_response": "randomised response on whole sets, with missing values",
    "laplace": "Laplace (geometric on its grid)",
    "geometric": "Laplace (geometric on its grid)",
    "nullable_geometric": "Laplace (geometric on its grid), with missing values",
    "staircase": "square wave",
    "gaussian": "discrete Gaussian",
    "nullable_gaussian": "discrete Gaussian, with missing values",
    "wide_gaussian": "discrete Gaussian",
    "nullable_wide_gaussian": "discrete Gaussian, with missing values",
    "wrapped_geometric": "wrapped Laplace (geometric on a ring)",
    "process": "discrete Gaussian on every coordinate (a Gaussian process on curves)",
    "nullable_process": "discrete Gaussian on every coordinate, with missing values",
    "vector": "Laplace on every coordinate (geometric on its grid)",
    "nullable_vector": "Laplace on every coordinate (geometric on its grid), with missing values",
}
"""Mechanisms by tag that are better known by another name."""


def mechanism_name(tag: str) -> str:
    """Return the name by which readers look for a mechanism.

    >>> mechanism_name("geometric"), mechanism_name("randomized_response")
    ('Laplace (geometric on its grid)', 'randomized response')
    """
    return NAMES.get(tag, tag.replace("_", " "))


def unit_word(unit: str) -> str:
    """Return the unit in which a column's errors are."""
    return UNITS.get(unit, unit) or "its own"


@dataclass(frozen=True)
class Shape:
    """A shape of SVG with its attributes."""

    name: str
    attributes: dict[str, float | str]


_OPACITIES = {"track": 0.12, "fill": 0.55, "band": 0.3}
"""Opacity of shapes by class if no style sheet applies: they are readable on light and dark pages."""


@dataclass(frozen=True)
class Drawing:
    """Shapes that repeat the number next to them: nothing for a screen reader."""

    width: int
    height: int
    shapes: tuple[Shape, ...]

    def to_svg(self) -> str:
        """Return the drawing as SVG without a style sheet: shapes have the colour of the text around them.

        >>> Drawing(9, 9, (Shape("rect", {"width": 5, "height": 2, "class": "fill"}),)).to_svg()[-48:]
        ' fill="currentColor" fill-opacity="0.55"/></svg>'
        """
        shapes = "".join(
            f"<{shape.name} "
            + " ".join(f'{name}="{value}"' for name, value in shape.attributes.items() if name != "class")
            + f' fill="currentColor" fill-opacity="{_OPACITIES.get(str(shape.attributes["class"]), 1.0)}"/>'
            for shape in self.shapes
        )
        return f'<svg width="{self.width}" height="{self.height}" aria-hidden="true">{shapes}</svg>'


class Head(NamedTuple):
    """The head of a table's column."""

    text: str
    is_number: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first column heads its rows; ``hide`` leaves the caption to screen readers.

    ``heads``: text of each column's head; one that begins with ``#`` heads numbers. ``rows``: a cell per head: text, or
    a drawing. ``look``: its class in the style sheet.
    """

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[Sequence[object], ...]
    look: str = ""
    hide: bool = False


def table(
    caption: str, heads: Iterable[str], rows: Iterable[Sequence[object]], look: str = "", *, hide: bool = False
) -> Table:
    """Return a `Table`; heads that begin with ``#`` are above numbers.

    >>> table("Shares", ("Value", "#Share"), [("a", "12 %")]).heads
    (Head(text='Value', is_number=False), Head(text='Share', is_number=True))
    """
    column_heads = tuple(Head(head.removeprefix("#"), head.startswith("#")) for head in heads)
    return Table(caption, column_heads, tuple(rows), look, hide)


def _draw_rect(x: float, y: float, width: float, height: float, look: str, rx: int | None = None) -> Shape:
    corners: dict[str, float | str] = {} if rx is None else {"rx": rx}
    return Shape("rect", {"x": x, "y": y, "width": width, "height": height, **corners, "class": look})


def _draw_line(x1: float, x2: float, y1: int, y2: int) -> Shape:
    return Shape("line", {"x1": x1, "x2": x2, "y1": y1, "y2": y2, "class": "whisker"})


def _position(share: float, width: int) -> float:
    # Ends of noisy intervals may lie below 0 or above 1, and a drawing has fixed edges.
    return round(min(max(share, 0.0), 1.0) * width, 2)


def bar(share: float, width: int = 160) -> Drawing:
    """Return a bar as long as a share of its width."""
    return Drawing(width, 14, (_draw_rect(0, 2, max(_position(share, width), 1.0), 10, "fill", 2),))


def log_bar(share: float, width: int = 160) -> Drawing:
    """Return a bar on a scale of logarithms from 0.01 % to all: 1 % is half of it.

    >>> log_bar(0.01).shapes[1].attributes["width"]
    80.0
    """
    # Four decades: 0.01 % has no length, 100 % the full width.
    part = 1 + math.log10(max(share, 1e-300)) / 4
    return Drawing(width, 14, (_draw_rect(0, 1, width, 12, "track", 2), *bar(part, width).shapes))


def interval_bar(estimate: float, lower: float, upper: float, width: int = 160, *, point: bool = False) -> Drawing:
    """Return a bar (or, with ``point``, a dot on a line) with its interval, all as shares of the width."""
    position, low, high = (_position(share, width - 2) + 1 for share in (estimate, lower, upper))
    if point:
        track = _draw_rect(0, 6, width, 2, "track")
        shape = Shape("circle", {"cx": position, "cy": 7, "r": 4, "class": "fill"})
    else:
        track = _draw_rect(0, 1, width, 12, "track", 2)
        shape = _draw_rect(0, 2, max(position, 1.0), 10, "fill", 2)
    return Drawing(
        width,
        14,
        (track, shape, _draw_line(low, high, 7, 7), _draw_line(low, low, 3, 11), _draw_line(high, high, 3, 11)),
    )


def range_bar(lower: float, upper: float, width: int = 400) -> Drawing:
    """Return the part of a scale from 0 to 1 between two shares, with its middle marked."""
    low, high = _position(lower, width), _position(upper, width)
    shapes = (
        _draw_rect(0, 5, width, 6, "track", 3),
        _draw_rect(low, 5, round(high - low, 2), 6, "fill", 3),
        _draw_line(width / 2, width / 2, 1, 15),
        _draw_rect(round(high - 2, 2), 1, 2, 14, "end"),
        _draw_rect(low, 1, 2, 14, "end"),
    )
    return Drawing(width, 16, shapes)


def parts_bar(shares: Sequence[float], width: int = 600) -> Drawing:
    """Return a bar of parts side by side, each a share of its width; shares add up to 1 at most.

    >>> [shape.attributes["width"] for shape in parts_bar([0.25, 0.5]).shapes]
    [150.0, 300.0]
    """
    ends = [_position(sum(shares[: i + 1]), width) for i in range(len(shares))]
    starts = [0.0, *ends[:-1]]
    pairs = enumerate(zip(starts, ends, strict=True))
    return Drawing(
        width, 18, tuple(_draw_rect(low, 0, round(high - low, 2), 18, f"part{i}") for i, (low, high) in pairs)
    )


def histogram_drawing(estimates: Sequence[float], lowers: Sequence[float], uppers: Sequence[float]) -> Drawing:
    """Return shares as narrow bars from below, each with the band of its interval.

    >>> bar, band = histogram_drawing([0.5], [0.25], [1.0]).shapes
    >>> bar.attributes["height"], band.attributes["y"], band.attributes["height"]
    (12.0, 0.0, 18.0)
    """
    width, height = 120, 24
    # All bars share one scale, which must not be zero if no share is positive.
    top = max([*uppers, 1e-9])
    step = width / max(len(estimates), 1)
    shapes = []
    for place, (estimate, lower, upper) in enumerate(zip(estimates, lowers, uppers, strict=True)):
        bar_height, low, high = (_position(share / top, height) for share in (estimate, lower, upper))
        x, bar_width = round(place * step, 2), round(0.85 * step, 2)
        shapes += [
            _draw_rect(x, round(height - bar_height, 2), bar_width, bar_height, "fill"),
            _draw_rect(round(x + 0.3 * step, 2), round(height - high, 2), round(0.25 * step, 2), high - low, "band"),
        ]
    return Drawing(width, height, tuple(shapes))
