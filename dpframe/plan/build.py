"""From spaces and a budget to calibrated columns and groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dpframe.accounting.budget import shares_of
from dpframe.errors import ParameterError, tuple_label
from dpframe.mechanisms import GammaDiagonal, Mechanism, mechanism_for
from dpframe.mechanisms.gamma_diagonal import LARGEST_PRODUCT
from dpframe.plan.allocation import shares_by_error
from dpframe.plan.calibration import Maker, Terms, calibrate
from dpframe.plan.columns import Column, Group
from dpframe.spaces import Product, Space

GROUPED_METRICS = ("discrete", "line", "nullable line")
"""Metrics of the spaces whose codes are a list."""

_NOTHING = 1e-9
"""The ε of a column of a single possible value, which there is nothing to tell of: no share of the budget."""


def build_units(
    known: Mapping[str, Space],
    terms: Terms,
    allocation: str | Mapping[Any, float],
    mechanisms: Any,
    groups: Any,
) -> tuple[tuple[Column, ...], tuple[Group, ...]]:
    """Divide what a release may cost over columns and groups, and calibrate their mechanisms.

    Returns
    -------
    The columns in the order of ``known``, those of a group with the channel that they see, and the groups.

    Raises
    ------
    ParameterError
        For names that are not known, appear twice or stand in two options, a group of too many tuples, an
        allocation that does not add up, or a share too small for its column.
    """
    chosen = _check_mechanisms(mechanisms, known)
    joined = _check_groups(groups, known, chosen)
    ready = {name: Column(name, known[name], given) for name, given in chosen.items() if isinstance(given, Mechanism)}
    grouped = {name for names in joined for name in names}
    named = set(allocation) if isinstance(allocation, Mapping) else set()
    # In known order beside central steps no share may follow from what inference gave (`calibration`); channels that
    # may fail are accounted for as in known order.
    fails = any(column.mechanism.delta > 0 for column in ready.values())
    moving = terms.central is None or (terms.shuffled_rows is not None and not fails)
    for name in known:
        if moving and known[name].size == 1 and name not in {*ready, *grouped, *named, *chosen}:
            ready[name] = Column(name, known[name], mechanism_for(known[name], _NOTHING, 0.0, None))
    rest: list[Any] = [*joined, *(name for name in known if name not in ready and name not in grouped)]
    makers: list[Maker] = [_maker(unit, known, chosen) for unit in rest]
    # A group has its columns' shares together, so that grouping leaves the budget of the others as it was.
    weights = [len(unit) if isinstance(unit, tuple) else 1 for unit in rest]
    if allocation == "error":
        shares = shares_by_error(makers, weights, list(ready.values()), terms)
    else:
        shares = shares_of(rest, _by_unit(allocation, joined, known), weights)
    made = calibrate(makers, shares, list(ready.values()), terms)
    columns_of: dict[str, Column] = dict(ready)
    for unit in made:
        columns = [unit.column(name) for name in unit.names] if isinstance(unit, Group) else [unit]
        columns_of |= {column.name: column for column in columns if isinstance(column, Column)}
    return tuple(columns_of[name] for name in known), tuple(unit for unit in made if isinstance(unit, Group))


def _maker(unit: Any, known: Mapping[str, Space], chosen: Mapping[str, Any]) -> Maker:
    """Return what makes a column, or the group of a tuple of names, from its budget."""
    if isinstance(unit, tuple):
        return _group_maker(unit, known)
    space, tag = known[unit], chosen.get(unit)

    def make(epsilon: float, delta: float) -> Column:
        try:
            return Column(unit, space, mechanism_for(space, epsilon, delta, tag))
        except ParameterError as error:
            raise ParameterError(f"column {unit!r}: {error}") from None

    return make


def _check_mechanisms(given: Any, known: Mapping[str, Space]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(value, str | Mechanism) for value in given.values()):
        raise ParameterError("mechanisms must be a mapping {column: tag or mechanism}")
    for name in given:
        if name not in known:
            raise ParameterError(f"mechanisms names {name!r}, which is not a randomised column")
    return dict(given)


def _check_groups(groups: Any, known: Mapping[str, Space], chosen: Mapping[str, Any]) -> list[tuple[str, ...]]:
    example = 'e.g. groups=[("sex", "income")]'
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise ParameterError(f"groups must be a list of groups of column names, {example}")
    checked: list[tuple[str, ...]] = []
    for group in groups:
        if not isinstance(group, list | tuple) or not all(isinstance(name, str) for name in group):
            raise ParameterError(f"groups must be a list of groups of column names, {example}")
        if len(group) < 2:
            raise ParameterError("a group must name two or more columns; a single one needs no group")
        for name in group:
            if name not in known:
                raise ParameterError(f"groups name {name!r}, which is not a randomised column")
            if list(group).count(name) > 1:
                raise ParameterError(f"groups name {name!r} twice in one group; name it once")
            if any(name in other for other in checked):
                raise ParameterError(f"column {name!r} is in two groups; name it in one of them")
            if name in chosen:
                raise ParameterError(
                    f"mechanisms names {name!r}, which is in a group and has its mechanism; leave one of them out"
                )
            if known[name].metric not in GROUPED_METRICS:
                raise ParameterError(f"column {name!r}: space {known[name].tag} has no list of values to group")
        checked.append(tuple(group))
    return checked


def _by_unit(allocation: Any, joined: list[tuple[str, ...]], known: Mapping[str, Space]) -> Any:
    """Return an allocation whose groups are named as in ``groups``.

    They may be given in another order, or (where keys must be text) joined by commas.
    """
    if not isinstance(allocation, Mapping):
        return allocation
    groups = {frozenset(names): names for names in joined}
    shares_of: dict[Any, float] = {}
    for key, share in allocation.items():
        names = tuple(part.strip() for part in key.split(",")) if isinstance(key, str) and key not in known else key
        unit = groups.get(frozenset(names), key) if isinstance(names, tuple | frozenset) else key
        home = next((names for names in joined if unit in names), None)
        if home is not None:
            raise ParameterError(
                f"allocation names {unit!r}, which is in a group; give the group's share as {{{home!r}: …}}"
            )
        if unit in shares_of:
            raise ParameterError(f"allocation names the group {unit!r} twice; name it once")
        shares_of[unit] = share
    return shares_of


def _group_maker(names: tuple[str, ...], known: Mapping[str, Space]) -> Maker:
    label, sizes = tuple_label(names), [known[name].size for name in names]
    if math.prod(sizes) > LARGEST_PRODUCT:
        largest = names[sizes.index(max(sizes))]
        raise ParameterError(
            f"group {label} has {math.prod(sizes):,} tuples, more than {LARGEST_PRODUCT:,}; leave {largest!r} "
            f"({max(sizes):,} values) out of it, or declare coarser spaces"
        )
    space = Product(*(known[name] for name in names))

    def make(epsilon: float, delta: float) -> Group:
        try:
            return Group(names, space, GammaDiagonal.calibrate(space, epsilon, delta))
        except ParameterError as error:
            raise ParameterError(f"group {label}: {error}") from None

    return make
