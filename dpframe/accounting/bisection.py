"""The one bisection of the library."""

from __future__ import annotations

from collections.abc import Callable


def bisected(
    fits: Callable[[float], bool], inside: float, outside: float, width: float = 0.0, least: float = 0.0
) -> float:
    """Return the last number seen to fit, between ``inside``, which fits, and ``outside``, which does not.

    The interval, in either direction, is halved until it is at most ``width`` of its larger end, or its ends are
    neighbouring floats; or until the larger end is at most ``least``.
    """
    # SciPy's root finders are faster and end on either side of a root. A loss or a rate must end where the promise was
    # seen to hold, of rounded functions that are steps at their finest.
    while abs(outside - inside) > width * max(inside, outside) and max(inside, outside) > least:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside
