"""What the mechanisms that options name mean for a plan, before its spaces are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, composed_steps
from dpframe.channels import MECHANISMS, Mechanism
from dpframe.channels.base import by_name, family_for
from dpframe.errors import ParameterError, is_one_of
from dpframe.plan.calibration import Terms, check_ready
from dpframe.plan.infer.from_data import any_space
from dpframe.spaces import Space
from dpframe.spaces.field import Field


def check_bounded(left: Sequence[Field], options: Mapping[str, Any]) -> None:
    """Refuse noise that goes beyond bounds still to be inferred, which a column's type may then not hold."""
    for column in left:
        name = options["mechanisms"].get(column.name) if isinstance(options["mechanisms"], Mapping) else None
        if name is not None and widens(any_space(column), name):
            tag = name.tag if isinstance(name, Mechanism) else name
            raise ParameterError(
                f"mechanism {tag} of column {column.name!r} goes beyond the bounds, which must be declared: "
                f"spaces={{{column.name!r}: (LOWER, UPPER)}}"
            )


def widens(space: Space, mechanism: Any) -> bool:
    """Return whether a mechanism, ready or by its name, is for a space, and goes beyond its bounds."""
    if not takes(space, mechanism):
        return False
    return mechanism.widens if isinstance(mechanism, Mechanism) else family_for(space, mechanism).widens


def takes(space: Space, mechanism: Any) -> bool:
    """Return whether a mechanism, ready or by its name, is for spaces of such a metric."""
    tag = mechanism.tag if isinstance(mechanism, Mechanism) else mechanism
    try:
        family_for(space, tag)
    except ParameterError:
        return False
    return True


def ready(options: Mapping[str, Any]) -> list[Mechanism]:
    """Return the mechanisms that were given as such, not by name."""
    given = options["mechanisms"]
    return [m for m in given.values() if isinstance(m, Mechanism)] if isinstance(given, Mapping) else []


def hides(options: Mapping[str, Any]) -> bool:
    """Return whether rows hide each other: they are shuffled, and no mechanism has a δ of its own."""
    own = any(m.delta > 0 for m in ready(options)) or bool(taking(options))
    return bool(options["shuffle"]) and not options["passthrough"] and not own


def taking(options: Mapping[str, Any]) -> list[str]:
    """Return the columns whose mechanism, ready or by its name, may need a δ of its own."""
    given = options["mechanisms"]
    if not isinstance(given, Mapping):
        return []
    names = by_name(family for family in MECHANISMS.values() if family.takes_delta)
    return [column for column, tag in given.items() if is_one_of(tag.tag if isinstance(tag, Mechanism) else tag, names)]


def may_move_shares(options: Mapping[str, Any], left: Sequence[Field]) -> bool:
    """Return whether a mechanism with a loss or a δ of its own may give way, which moves other columns' shares."""
    given = options["mechanisms"] if isinstance(options["mechanisms"], Mapping) else {}
    own = {name for name, mechanism in given.items() if isinstance(mechanism, Mechanism)} | {*taking(options)}
    return any(column.name in own for column in left)


def check_ready_mechanisms(
    options: Mapping[str, Any], promise: Budget, inference: Step | None, tables: Step | None
) -> None:
    """Refuse ready mechanisms that leave nothing once the rest is spent, before it is."""
    steps = [step for step in (inference, tables) if step is not None]
    central, secret = composed_steps(steps) if steps else None, options["shuffle"] and not options["passthrough"]
    sample = options["sample"] if isinstance(options["sample"], int) else None
    check_ready(ready(options), Terms(promise, options["n"], sample, secret, options["contributions"], central))
