"""The one bisection of the library."""

from __future__ import annotations

from collections.abc import Callable


def bisected(
    fits: Callable[[float], bool], inside: float, outside: float, width: float = 0.0, floor: float = 0.0
) -> float:
    """Return the last tested number that fits, between ``inside``, which fits, and ``outside``, which does not.

    The interval, in either direction, is halved until it is at most ``width`` of its larger end, or its ends are
    neighbouring floats; or until the larger end is at most ``floor``.
    """
    # SciPy's root finders are faster, but end on either side of a root. A loss or a rate must end at a tested number
    # that keeps the budget, as rounded functions are steps at their finest.
    while abs(outside - inside) > width * max(inside, outside) and max(inside, outside) > floor:
        middle = (inside + outside) / 2
        # Neighbouring floats have no float between them.
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside
