"""Plans of spaces; one of every mechanism in the registry, for each kind of space that it is for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpframe.channels import MECHANISMS, Gaussian, Matrix, Mechanism, WithNull
from dpframe.plan.build import build_plan
from dpframe.plan.plan import Plan
from dpframe.spaces import Boolean, Categorical, Integer, Nullable, Ordinal, Product, Real, Space, Subset, Vector

# A space for every kind of metric; a mechanism is tried on those that its `metrics` name.
EXAMPLES: dict[str, list[Space]] = {
    "discrete": [Categorical(list("abc")), Boolean(), Nullable(Categorical(list("ab")))],
    "line": [Integer(0, 20), Real(0, 1, steps=3_000), Ordinal(["low", "mid", "high"])],
    "nullable line": [Nullable(Integer(0, 20)), Nullable(Real(0, 1, steps=3_000))],
    "special line": [
        Nullable(Integer(0, 20, special=["refused"])),
        Real(0, 1, steps=3_000, special=["refused", "unknown", "none"]),
    ],
    "symmetric difference": [
        Subset(list("abcdef"), 2),
        Subset(list("abcdefgh")),
        Subset([f"{i:03}" for i in range(100)], 3),
    ],
    "nullable symmetric difference": [Nullable(Subset(list("abcd"), 2)), Nullable(Subset(list("abcdefghijkl"), 2))],
    "vector": [Vector(2, 1.0, "l2", bits=4), Vector(24, 5.0, "l1"), Vector(3, 1.0, "linf", bits=8)],
    "nullable vector": [Nullable(Vector(2, 1.0, "l1", bits=4)), Nullable(Vector(4, 2.0))],
    "product": [Product(["F", "M"], Integer(0, 4)), Product(Integer(0, 39), Boolean(), Nullable(Boolean()))],
}


# Mechanisms that are given, not calibrated for a space.
READY: dict[str, list[tuple[Space, Callable[[float], Mechanism]]]] = {
    "matrix": [
        (Boolean(), lambda delta: Matrix.of([[0.7, 0.3], [0.4, 0.6]], delta)),
        (Integer(0, 2), lambda delta: Matrix.of([[0.5, 0.3, 0.2], [0.25, 0.5, 0.25], [0.2, 0.4, 0.4]], delta)),
    ],
    # On more values its matrix is as good as singular.
    "nullable_gaussian": [(Nullable(Integer(0, 2)), lambda delta: WithNull(Gaussian, (2,), 1.0, delta))],
}


TAGS = sorted(MECHANISMS)
"""All mechanisms of the registry."""


def plans_with(tag: str, epsilon: float, delta: float) -> Iterator[Plan]:
    """Yield a plan of the mechanism for every space that it is for."""
    for space, ready in READY.get(tag, []):
        yield build_plan({"a": space}, epsilon=epsilon, delta=delta, mechanisms={"a": ready(delta / 2)})
    for space in [space for metric in sorted(MECHANISMS[tag].metrics) for space in EXAMPLES[metric]]:
        if isinstance(space, Product):
            columns = {f"a{i}": part for i, part in enumerate(space.spaces)}
            yield build_plan(columns, epsilon=epsilon, delta=delta, groups=[list(columns)])
        elif (MECHANISMS[tag].takes_delta and delta == 0) or not FITS.get(tag, lambda space: True)(space):
            continue
        elif MECHANISMS[tag].retired:
            made = MECHANISMS[tag].calibrate(space, epsilon, delta)
            yield build_plan({"a": space}, epsilon=epsilon, delta=delta, mechanisms={"a": made})
        else:
            yield build_plan({"a": space}, epsilon=epsilon, delta=delta, mechanisms={"a": tag})


def plan_of(spaces: Mapping[str, Any], epsilon: float, **options: Any) -> Plan:
    """Return the plan of spaces, without a table whose rows and columns `dpframe.plan` would take them from."""
    return build_plan(spaces, epsilon=epsilon, **options)


def space_of(declared: Any) -> Space:
    """Return the space that a plan makes of a declaration."""
    return plan_of({"x": declared}, 1.0)["x"].space


def edit_plan(plan: Plan, **changes: Any) -> str:
    """Return a plan's JSON with other values at paths such as ``groups__0__names``."""
    data = json.loads(plan.to_json())
    for path, value in changes.items():
        place = data
        *parents, last = path.split("__")
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        place[int(last) if last.isdigit() else last] = value
    return json.dumps(data)


def channel(tag: str, *arguments: Any) -> Mechanism:
    """Return a mechanism of the registry, ready to be given to a plan."""
    return MECHANISMS[tag](*arguments)


FITS: dict[str, Callable[[Any], bool]] = {
    "exponential": lambda space: space.size <= 256,
    "optimal": lambda space: space.size <= 40,
    "gaussian": lambda space: space.size <= 4,
    "nullable_gaussian": lambda space: space.values <= 2,
    "wide_gaussian": lambda space: not space.is_listed,
    "asymmetric_bitflip": lambda space: 2 * space.most <= space.count,
    "process": lambda space: space.ball.bits == 16,
    "nullable_process": lambda space: space.inner.ball.bits == 16,
}
"""Bounds on the spaces of some mechanisms."""


VISITS: dict[str, Any] = {"visit": ["home", "clinic", "ward"], "age": (0, 100)}


def visits(rows: Sequence[int], seed: int = 0) -> pd.DataFrame:
    """Return so many rows for each person, in a mixed order."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(len(rows)), rows))
    frame = pd.DataFrame({"patient": [f"p{i}" for i in ids], "age": rng.integers(0, 101, len(ids))})
    frame["visit"] = rng.choice(VISITS["visit"], len(ids))
    return frame
