"""Mechanisms and units in plain words."""

from __future__ import annotations

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
