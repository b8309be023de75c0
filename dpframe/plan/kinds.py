"""What inference asks of a column: of objects first the kinds of their values, then what the kind found asks for."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

_SHOWS = 3.0
"""Standard errors by which a kind must show."""

SETS = ("set of text", "set of whole numbers")
"""Ways of sets."""

_CANDIDATES: dict[str, tuple[str, ...]] = {
    "text": ("text", "bytes"),
    "boolean": ("boolean",),
    "number": ("whole number", "number"),
    "timestamp": ("date", "timestamp"),
    "duration": ("duration", "time of day"),
    "set of text": ("set of text",),
    "set of whole numbers": ("set of whole numbers",),
    "list of numbers": ("list of numbers",),
}
"""Kinds that are read alike."""

_NARROWER = {"number": "whole number", "timestamp": "date"}
"""What a column is read as where nothing shows that needs the wider kind."""


def way_of(counts: Mapping[str, int], error: float, ways: Container[str]) -> str:
    """Return the way that noisy counts of kinds ask for; text, where they show none that there is."""
    sums = {name: sum(counts[kind] for kind in kinds) for name, kinds in _CANDIDATES.items()}
    sets = max(SETS, key=lambda name: sums[name])
    sums[sets] += counts["empty set"]
    most = max(sums, key=lambda name: sums[name])
    if sums[most] <= _SHOWS * error * 2**0.5 or most not in ways:
        return "text"
    return most if most not in _NARROWER or counts[most] > _SHOWS * error else _NARROWER[most]


_NUMBERS = ("intervals",) * 3
_NORMS = ("norms",) * 2

SHAPES: dict[str, tuple[tuple[str, ...], ...]] = {
    "text": (("values",),),
    "boolean": (("nulls",), ()),
    "whole number": (_NUMBERS,),
    "number": (_NUMBERS,),
    "date": (_NUMBERS,),
    "timestamp": (_NUMBERS,),
    "duration": (_NUMBERS,),
    "list of numbers": (("lengths", *_NORMS),),
    "set of text": (("items",),),
    "set of whole numbers": (("items",),),
}
"""The kinds of histograms that every way asks for, in their order."""

WRITTEN = ("text", "boolean", "whole number", "number", "date", "timestamp")
"""Ways that any column of kinds has: what text may write."""

ALONE = (
    ("values",),
    ("ranks",),
    ("items",),
    ("nulls",),
    *(_NUMBERS[:rounds] for rounds in (1, 2, 3)),
    *(("steps", *_NUMBERS[:rounds]) for rounds in (2, 3)),
    _NORMS,
    ("lengths", *_NORMS),
)
"""What columns ask for whose type says the kind of their values; numbers in fewer rounds where rows are few."""


def is_asked(histograms: Sequence[tuple[str | None, str]]) -> bool:
    """Return whether some column asks for these histograms, each a way (None where there is none) and a kind."""
    alone = tuple(kind for way, kind in histograms if way is None)
    if alone != ("kinds",):
        return alone in ALONE and len(alone) == len(histograms)
    ways: dict[str, tuple[str, ...]] = {}
    for way, kind in histograms:
        if way is not None:
            ways[way] = (*ways.get(way, ()), kind)
    missing = set(WRITTEN) - ways.keys() - {way for way, shapes in SHAPES.items() if () in shapes}
    return not missing and all(kinds in SHAPES.get(way, ()) for way, kinds in ways.items())
