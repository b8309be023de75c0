"""Histograms of a column by its kind of values; columns of objects first measure the kinds of their values."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces.object_reading import LEADING_ZEROS

SETS = ("set of text", "set of whole numbers")
"""Branches of sets."""

_KINDS_BY_BRANCH: dict[str, tuple[str, ...]] = {
    "text": ("text", "bytes"),
    "boolean": ("boolean",),
    "number": ("whole number", "number"),
    "timestamp": ("date", "timestamp"),
    "duration": ("duration", "time of day"),
    "set of text": ("set of text",),
    "set of whole numbers": ("set of whole numbers",),
    "list of numbers": ("list of numbers",),
}
"""Kinds of values that each branch reads."""

_NARROWER_KINDS = {"number": "whole number", "timestamp": "date"}
"""Narrower branch of a column if no significant count needs the wider branch."""


WORDS_BRANCHES = {"whole number": "whole number, words", "number": "number, words"}
"""Branches that read words beside the values of another branch, by that branch."""

_BASE_BRANCHES = {words_branch: branch for branch, words_branch in WORDS_BRANCHES.items()}
"""Branches of numbers by the branches that read words, too."""


def _sum_candidates(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the count of every branch: the sum over the kinds that it reads."""
    return {name: sum(counts[kind] for kind in kinds) for name, kinds in _KINDS_BY_BRANCH.items()}


def _is_significant(count: float, error: float) -> bool:
    """Return whether a count exceeds its noise; the level allows for many kinds."""
    return count > DETECTION_SE * error * 2**0.5


def choose_branch(counts: Mapping[str, int], error: float, branches: Container[str]) -> str:
    """Return the branch of the most frequent kind in noisy counts; text if no kind is significant.

    Numbers are read with words if the count of text is significant, too.
    """
    sums = _sum_candidates(counts)
    set_branch = max(SETS, key=lambda name: sums[name])
    # An empty set has no items that show their kind.
    sums[set_branch] += counts["empty set"]
    largest_branch = max(sums, key=lambda name: sums[name])
    # Leading zeros are lost in a number, so that codes stay text.
    has_codes = counts.get(LEADING_ZEROS, 0) > DETECTION_SE * error
    if not _is_significant(sums[largest_branch], error) or largest_branch not in branches or has_codes:
        return "text"
    needs_wider_branch = counts.get(largest_branch, 0) > DETECTION_SE * error
    branch = largest_branch if needs_wider_branch else _NARROWER_KINDS.get(largest_branch, largest_branch)
    words_branch = WORDS_BRANCHES.get(branch)
    has_words = words_branch in branches and _is_significant(sums["text"], error)
    return words_branch if has_words and words_branch is not None else branch


_LOSSLESS_KINDS = {
    "set of text": ("empty set",),
    "set of whole numbers": ("empty set",),
    "list of numbers": ("set of whole numbers", "empty set"),
}
"""Further kinds that a branch reads without loss; an empty list is no vector, and counts as null."""


def unread_kind(
    counts: Mapping[str, int], variance: float, nulls: tuple[float, float] | None, branches: Collection[str]
) -> str | None:
    """Return a significant kind of values that the chosen branch reads as null, or None.

    ``nulls``: the number of values that were read as null, and its variance. The values of unread kinds are among them.
    The level is the level for the column's own kind.
    """
    chosen_branch = choose_branch(counts, variance**0.5, branches)
    branch = _BASE_BRANCHES.get(chosen_branch, chosen_branch)
    has_words = branch != chosen_branch
    wider_branch = next((wider for wider, narrower in _NARROWER_KINDS.items() if narrower == branch), branch)
    is_written = set(branches) - _BASE_BRANCHES.keys() <= set(_WRITTEN_BRANCHES)
    holds_all = is_written and (branch == "text" or has_words)
    if holds_all or not _is_significant(_sum_candidates(counts)[wider_branch], variance**0.5):
        return None
    read_kinds = {"null", *_KINDS_BY_BRANCH[wider_branch], *_LOSSLESS_KINDS.get(branch, ())}
    read_kinds |= set(_KINDS_BY_BRANCH["text"]) if has_words else set()
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

_BRANCH_HISTOGRAMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "text": (("values",),),
    "boolean": (("nulls",), ()),
    "whole number": (_NUMBERS,),
    "number": (_NUMBERS,),
    "whole number, words": (("values", *_NUMBERS[:2]),),
    "number, words": (("values", *_NUMBERS[:2]),),
    "date": (_NUMBERS,),
    "timestamp": (_NUMBERS,),
    "duration": (_NUMBERS,),
    "list of numbers": (("lengths", *_NORMS),),
    "set of text": (("items",),),
    "set of whole numbers": (("items",),),
}
"""The kinds of histograms that every branch asks for, in their order (limit of the format)."""

_WRITTEN_BRANCHES = ("text", "boolean", "whole number", "number", "date", "timestamp")
"""Branches that every column of objects asks for: types whose values may be written as text."""

_COLUMN_HISTOGRAMS = (
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


def is_possible_request(histograms: Sequence[tuple[str | None, str]]) -> bool:
    """Return whether inference asks exactly these histograms of columns of some type.

    Each histogram is a branch, or None, and a kind.
    """
    common_kinds = tuple(kind for branch, kind in histograms if branch is None)
    if common_kinds != ("kinds",):
        return common_kinds in _COLUMN_HISTOGRAMS and len(common_kinds) == len(histograms)
    branches: dict[str, tuple[str, ...]] = {}
    for branch, kind in histograms:
        if branch is not None:
            branches[branch] = (*branches.get(branch, ()), kind)
    # A boolean column without nulls asks for no histogram, so that its branch may be absent.
    needed = {branch for branch in _WRITTEN_BRANCHES if () not in _BRANCH_HISTOGRAMS[branch]}
    return needed <= branches.keys() and all(
        kinds in _BRANCH_HISTOGRAMS.get(branch, ()) for branch, kinds in branches.items()
    )
