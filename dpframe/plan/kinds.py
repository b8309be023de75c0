"""What inference asks of a column: of objects first the kinds of their values, then what the kind found asks for."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces.object_reading import LEADING_ZEROS

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


def _sums(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(counts[kind] for kind in kinds) for name, kinds in _CANDIDATES.items()}


def _shows(count: float, error: float) -> bool:
    """Return whether values show, by the kind that they are of: it is one of many."""
    return count > DETECTION_SE * error * 2**0.5


def way_of(counts: Mapping[str, int], error: float, ways: Container[str]) -> str:
    """Return the way that noisy counts of kinds ask for; text, where they show none that there is."""
    sums = _sums(counts)
    sets = max(SETS, key=lambda name: sums[name])
    sums[sets] += counts["empty set"]
    most = max(sums, key=lambda name: sums[name])
    has_codes = counts.get(LEADING_ZEROS, 0) > DETECTION_SE * error
    if not _shows(sums[most], error) or most not in ways or has_codes:
        return "text"
    return most if most not in _NARROWER or counts[most] > DETECTION_SE * error else _NARROWER[most]


_ALSO_READ = {
    "set of text": ("empty set",),
    "set of whole numbers": ("empty set",),
    "list of numbers": ("set of whole numbers", "empty set"),
}
"""Further kinds that a way reads without loss; an empty list is no vector, and counts as null."""


def unread_kind(
    counts: Mapping[str, int], variance: float, nulls: tuple[float, float] | None, ways: Collection[str]
) -> str | None:
    """Return a kind of values that shows, and that the way gone reads as null, or None.

    ``nulls``: the values that were read as null, and the variance of that count: those of the kinds that the way does
    not read are among them. A kind shows as surely as the one that a column is read as must.
    """
    way = way_of(counts, variance**0.5, ways)
    wider = next((wide for wide, narrow in _NARROWER.items() if narrow == way), way)
    holds_all = way == "text" and set(ways) <= set(WRITTEN)
    if holds_all or not _shows(_sums(counts)[wider], variance**0.5):
        return None
    read = {"null", *_CANDIDATES[wider], *_ALSO_READ.get(way, ())}
    others = {kind: count for kind, count in counts.items() if kind not in read}
    kind = max(others, key=lambda name: others[name])
    evidence = [(float(others[kind]), variance)]
    if nulls is not None:
        rest, rest_variance = nulls[0] - counts["null"], nulls[1] + variance
        evidence.append((others[kind] + rest, variance + rest_variance))
    return kind if any(_shows(count, noise**0.5) for count, noise in evidence) else None


_NUMBERS = ("intervals",) * 3
"""Histograms of a column of numbers: a round each (limit of the format)."""
_NORMS = ("norms",) * 2
"""Histograms of the norms of vectors: a round each (limit of the format)."""

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
"""What columns ask for whose type says the kind of their values; numbers in fewer rounds where rows are few (limit of
the format)."""


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
