"""Histograms of a column by its kind of values; columns of objects first measure the kinds of their values."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces.object_reading import LEADING_ZEROS

SETS = ("set of text", "set of whole numbers")
"""Ways of sets."""

_KINDS_BY_WAY: dict[str, tuple[str, ...]] = {
    "text": ("text", "bytes"),
    "boolean": ("boolean",),
    "number": ("whole number", "number"),
    "timestamp": ("date", "timestamp"),
    "duration": ("duration", "time of day"),
    "set of text": ("set of text",),
    "set of whole numbers": ("set of whole numbers",),
    "list of numbers": ("list of numbers",),
}
"""Kinds of values that each way reads."""

_NARROWER_KINDS = {"number": "whole number", "timestamp": "date"}
"""Narrower way of a column if no significant count needs the wider way."""


def _sum_candidates(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the count of every way: the sum over the kinds that it reads."""
    return {name: sum(counts[kind] for kind in kinds) for name, kinds in _KINDS_BY_WAY.items()}


def _is_significant(count: float, error: float) -> bool:
    """Return whether a count exceeds its noise; the level allows for many kinds."""
    return count > DETECTION_SE * error * 2**0.5


def way_of(counts: Mapping[str, int], error: float, ways: Container[str]) -> str:
    """Return the way of the most frequent kind in noisy counts; text if no kind is significant."""
    sums = _sum_candidates(counts)
    set_way = max(SETS, key=lambda name: sums[name])
    # An empty set has no items that show their kind.
    sums[set_way] += counts["empty set"]
    largest_way = max(sums, key=lambda name: sums[name])
    # Leading zeros are lost in a number, so that codes stay text.
    has_codes = counts.get(LEADING_ZEROS, 0) > DETECTION_SE * error
    if not _is_significant(sums[largest_way], error) or largest_way not in ways or has_codes:
        return "text"
    return (
        largest_way
        if largest_way not in _NARROWER_KINDS or counts[largest_way] > DETECTION_SE * error
        else _NARROWER_KINDS[largest_way]
    )


_LOSSLESS_KINDS = {
    "set of text": ("empty set",),
    "set of whole numbers": ("empty set",),
    "list of numbers": ("set of whole numbers", "empty set"),
}
"""Further kinds that a way reads without loss; an empty list is no vector, and counts as null."""


def unread_kind(
    counts: Mapping[str, int], variance: float, nulls: tuple[float, float] | None, ways: Collection[str]
) -> str | None:
    """Return a significant kind of values that the chosen way reads as null, or None.

    ``nulls``: the number of values that were read as null, and its variance. The values of unread kinds are among them.
    The level is the level for the column's own kind.
    """
    way = way_of(counts, variance**0.5, ways)
    wider_way = next((candidate for candidate, narrow_way in _NARROWER_KINDS.items() if narrow_way == way), way)
    holds_all = way == "text" and set(ways) <= set(WRITTEN)
    if holds_all or not _is_significant(_sum_candidates(counts)[wider_way], variance**0.5):
        return None
    read_kinds = {"null", *_KINDS_BY_WAY[wider_way], *_LOSSLESS_KINDS.get(way, ())}
    unread_counts = {kind: count for kind, count in counts.items() if kind not in read_kinds}
    kind = max(unread_counts, key=lambda name: unread_counts[name])
    evidence = [(float(unread_counts[kind]), variance)]
    if nulls is not None:
        unread_nulls, unread_variance = nulls[0] - counts["null"], nulls[1] + variance
        # Nulls that are not of the kind null are values of unread kinds: a second estimate.
        evidence.append((unread_counts[kind] + unread_nulls, variance + unread_variance))
    return kind if any(_is_significant(count, count_variance**0.5) for count, count_variance in evidence) else None


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
"""Ways of every column of kinds: the types that text may write."""

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
"""Histograms of columns whose type determines the kind of their values; few rows allow fewer rounds of numbers (limit
of the format)."""


def is_asked(histograms: Sequence[tuple[str | None, str]]) -> bool:
    """Return whether some column asks for these histograms, each a way (or None) and a kind."""
    common_kinds = tuple(kind for way, kind in histograms if way is None)
    if common_kinds != ("kinds",):
        return common_kinds in ALONE and len(common_kinds) == len(histograms)
    ways: dict[str, tuple[str, ...]] = {}
    for way, kind in histograms:
        if way is not None:
            ways[way] = (*ways.get(way, ()), kind)
    missing = set(WRITTEN) - ways.keys() - {way for way, shapes in SHAPES.items() if () in shapes}
    return not missing and all(kinds in SHAPES.get(way, ()) for way, kinds in ways.items())
