"""Numbers and plans in plain words. Numbers are rounded so that no sentence promises more than the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpframe.plan.words import UNITS
from dpframe.spaces import Space

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

    Examples
    --------
    >>> mechanism_name("geometric"), mechanism_name("randomized_response")
    ('Laplace (geometric on its grid)', 'randomized response')
    """
    return NAMES.get(tag, tag.replace("_", " "))


_FEW = 8
"""Values that are named; of more only these."""


def number(x: float) -> str:
    """Return a number to read: three digits, or whole ones; of four digits without a comma, as years are written.

    Examples
    --------
    >>> number(73_271.4), number(2006.0), number(0.35574), number(12.0)
    ('73,271', '2006', '0.356', '12')
    """
    if 1000 <= abs(x) < 1e15:
        return f"{x:,.0f}" if round(abs(x)) >= 10_000 else f"{x:.0f}"
    return f"{x:.3g}"


def _listed(values: Any) -> str:
    values = list(values)
    shown = ", ".join(str(value) for value in values[:_FEW])
    return f"{len(values)} values: {shown}" + (f" and {len(values) - _FEW} more" if len(values) > _FEW else "")


def _category(space: Any) -> str:
    other = getattr(space, "other", None)
    return _listed(space.labels()) + (f" (any other counts as {other})" if other in space.categories else "")


def _grid(space: Any) -> str:
    return f"{number(space.lower)} to {number(space.upper)}" + (
        f", in steps of {number(space.step)}" if space.step != 1 else ""
    )


def _set(space: Any) -> str:
    most = "" if space.max_size is None else f", at most {space.max_size} in a set"
    named = [*space.items] + ([] if space.other is None else [space.other])
    return _listed(named).replace(" values:", " items:", 1) + most


def _curve(space: Any) -> str:
    return (
        f"curves at {space.width} points, of {space.rank} functions, with a norm of at most {number(space.bound)} "
        f"({space.kernel.name} kernel)"
    )


SPACES: dict[str, Callable[[Any], str]] = {
    "boolean": lambda space: "true or false",
    "categorical": _category,
    "ordinal": lambda space: _category(space) + ", in this order",
    "integer": _grid,
    "real": _grid,
    "datetime": lambda space: f"{space.lower} to {space.upper}",
    "subset": _set,
    "curve": _curve,
    "vector": lambda space: f"lists of {space.length} numbers, {space.norm} norm at most {number(space.bound)}",
    "nullable": lambda space: f"{space_words(space.inner)}, or missing",
    "product": lambda space: " × ".join(f"({space_words(part)})" for part in space.spaces),
}
"""What a space holds, by tag."""


def unit_word(space: Space) -> str:
    """Return the unit in which a column's errors are."""
    return UNITS.get(space.unit, space.unit) or "its own"


def space_words(space: Space) -> str:
    """Return what values a column may hold."""
    return SPACES.get(space.tag, repr)(space)
