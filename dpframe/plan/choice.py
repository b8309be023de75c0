"""Whether a column that names no mechanism is better off with another than its space's own, by forecasts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpframe.channels import MECHANISMS, Mechanism, mechanism_for
from dpframe.channels.staircase import LARGEST_SPAN
from dpframe.errors import ParameterError
from dpframe.plan.columns import Column
from dpframe.plan.forecast import marginal_errors, mean_errors
from dpframe.spaces import Space

RIVALS: Mapping[str, str] = {
    "symmetric difference": "set_response",
    "nullable symmetric difference": "nullable_set_response",
}
"""Mechanisms that may replace a space's own, by its metric."""

ADDITIVE = ("geometric", "nullable_geometric")
"""Spaces' own mechanisms that add noise of one law to every value."""

_CLEARLY = 0.8
"""Part of the own mechanism's error below which a rival takes its place."""

_MORE = 1.5
"""How much more a plan may let a rival lose, about: a trial of it that would not pay at so much is spared."""


NUMBERS = ("laplace", "square_wave", "least_error")
"""What columns of numbers may have where no mechanism is named."""


def check_numbers(numbers: Any) -> str:
    """Return the noise of numbers, or raise `ParameterError`."""
    if not isinstance(numbers, str) or numbers not in NUMBERS:
        raise ParameterError(f"numbers must be one of {', '.join(NUMBERS)}")
    return str(numbers)


def stand_in(space: Space, numbers: str) -> str | None:
    """Return the tag of the mechanism that a plan tries first on a space of numbers or ranks, or None.

    Numbers have Laplace noise unless ``numbers`` says otherwise; ranks always have what is forecast to err less. What
    was spread by a smooth law is drawn out of it with large errors; the edges of a square wave stay sharp. At one loss
    its means have 0.15 to 0.95 of the error that they have by Laplace noise, squares 0.1 to 0.5, shares of a twelfth of
    the grid about a tenth.
    """
    asked = space.is_listed or numbers != "laplace"
    fits = space.mechanism in ADDITIVE and 2 <= space.values <= LARGEST_SPAN + 1
    return "staircase" if asked and fits else None


def errs_more(column: Column) -> bool:
    """Return whether a column would be better off with its space's own mechanism at the same loss.

    What is compared is the forecast error of shares for ranks, of the mean for numbers.
    """
    space, given = column.space, column.mechanism
    try:
        own = mechanism_for(space, given.epsilon, given.delta)
    except ParameterError:  # an ε too small for it
        return False
    return _line_error(given, space) > _line_error(own, space)


def _line_error(mechanism: Mechanism, space: Space) -> float:
    if space.is_listed:
        return marginal_errors(mechanism, np.full(space.size, 1 / space.size), 1)[0]
    return mean_errors(space, mechanism, None, 1)[0]


def promising_rival(column: Column) -> str | None:
    """Return the tag of a mechanism that a plan might better give a column, or None.

    >>> from dpframe.spaces import Subset
    >>> for space, epsilon in [(Subset(["art", "chess", "yoga"]), 4.0), (Subset(range(100), max_size=6), 4.0)]:
    ...     print(promising_rival(Column("hobbies", space, mechanism_for(space, epsilon, 0.0))))
    set_response
    None
    """
    space, own = column.space, column.mechanism
    tag = RIVALS.get(space.metric)
    if tag is None:
        return None
    try:
        rival = mechanism_for(space, own.epsilon * _MORE, own.delta, tag)
    except ParameterError:  # too many sets, or an ε too small for so many
        return None
    return tag if support_error(rival, space) < _CLEARLY * support_error(own, space) else None


def is_clearly_better(rival: Column, own: Column) -> bool:
    """Return whether a plan with one mechanism for a column of sets errs clearly less than one with another."""
    return support_error(rival.mechanism, rival.space) < _CLEARLY * support_error(own.mechanism, own.space)


def support_error(mechanism: Mechanism, space: Space) -> float:
    """Return the root mean square over items of a support's error per row, where every set is as large as may be.

    An item's variance is linear in its support, and supports add up to the mean size.
    """
    sets: Any = space.inner_space
    channel: Any = mechanism
    rare, common = channel.sets.support_variances
    return math.sqrt(rare + max(common - rare, 0.0) * sets.most / sets.count)


def padded_tags(space: Space) -> list[str]:
    """Return the mechanisms for a space that can act under a pad, the one that is taken by default first.

    >>> from dpframe.spaces import as_space
    >>> padded_tags(as_space((0, 120))), padded_tags(as_space(["F", "M"]))
    (['wrapped_geometric', 'randomized_response'], ['randomized_response'])
    """
    fitting = [f.tag for f in MECHANISMS.values() if space.metric in f.metrics and f.adds_in_group]
    return sorted(fitting, key=lambda tag: (tag == "randomized_response") == space.is_numeric)
