"""What the statistical audit is given: mechanisms on inputs far apart, through the release loop, and broken ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpframe.noise.keystream import Keystream
from dpframe.plan.plan import Plan
from dpframe.release.rows import release
from dpframe.spaces import Nullable, Product, Space, Subset


def far_apart(space: Space) -> list[tuple[int, int]]:
    """Return pairs of codes that a mechanism tells apart as well as any."""
    inner = space.inner if isinstance(space, Nullable) else space
    if isinstance(inner, Subset):
        # The first items, as many as a set may hold, against the next ones.
        first = (1 << inner.most) - 1
        pair = first, (first << inner.most) & ((1 << inner.count) - 1)
        return [pair, (first, space.size - 1)] if isinstance(space, Nullable) else [pair]
    if inner.holds_vectors:
        # A corner against the opposite one, and null; in l1 along one axis, the others as near 0 as may be.
        signs = np.ones(inner.width)
        signs[1:] = 0 if inner.ball.norm == "l1" else 1
        pair = inner.code_list(inner.encode(np.array([signs, -signs]) * 2 * inner.bound))
        return [tuple(pair), (pair[0], space.size - 1)] if isinstance(space, Nullable) else [tuple(pair)]
    ends = [(0, space.size - 2), (0, space.size - 1)] if isinstance(space, Nullable) else [(0, space.size - 1)]
    return [pair for pair in ends if pair[0] != pair[1]]


def released(plan: Plan, code: int, key: int) -> Callable[[int], np.ndarray]:
    """Return a sampler of a plan's one unit, through the release loop, by a key of its own."""
    (unit,) = plan.units
    if isinstance(unit.space, Product):
        parts = np.unravel_index(code, unit.space.sizes)
        given = [c.space.code_array([int(part)]) for c, part in zip(plan.columns, parts, strict=True)]
    else:
        given = [plan.columns[0].space.code_array([code])]

    def sampler(n: int) -> np.ndarray:
        rows = {c.name: np.repeat(g, n, axis=0) for c, g in zip(plan.columns, given, strict=True)}
        found = release(rows, plan, key.to_bytes(32, "big"))
        columns = [found[c.name].reshape(n, -1) for c in plan.columns]
        return np.concatenate(columns, axis=1)

    return sampler


def seen(space: Space, pair: tuple[int, int], power: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """Return what an attacker looks at: of sets the items of one input shown, less those of the other."""
    inner = space.inner if isinstance(space, Nullable) else space
    if inner.holds_vectors:
        return lambda rows: nearer(space, inner, pair, rows, power)
    if not isinstance(inner, Subset):
        return lambda rows: rows[:, 0] if rows.shape[1] == 1 else rows
    words = [space.code_array([code])[0] for code in pair]
    null = space.code_array([space.size - 1])[0]

    def view(rows: np.ndarray) -> np.ndarray:
        first, second = (np.bitwise_count(rows & word).sum(axis=1, dtype=np.int64) for word in words)
        absent = (rows == null).all(axis=1) if isinstance(space, Nullable) else np.zeros(len(rows), dtype=bool)
        return np.where(absent, -1000, np.where(pair[1] == space.size - 1, first, first - second))

    return view


def nearer(space: Space, inner: Any, pair: tuple[int, int], rows: np.ndarray, power: int = 1) -> np.ndarray:
    """Return how much nearer released vectors lie to one input than to the other: their log-ratio, up to a scale.

    In ℓ1 for geometric noise, in squares of ℓ2 for Gaussian noise.
    """
    null = (rows == space.code_array([space.size - 1])[0]).all(axis=1) & isinstance(space, Nullable)
    centre = inner.fixed_point
    first, second = (inner.ball.unpack(inner.code_array([centre if c >= inner.size else c])) for c in pair)
    shown = inner.ball.unpack(rows[:, : inner.ball.words])
    found = (np.abs(shown - second) ** power).sum(axis=1) - (np.abs(shown - first) ** power).sum(axis=1)
    return np.where(null, -(10**12), found)


def drawn(mechanism: Any, code: int, key: int) -> Callable[[int], np.ndarray]:
    stream = Keystream(key.to_bytes(32, "big")).column("audit")
    return lambda n: mechanism.sample(np.full(n, code), stream)


# --- broken on purpose --------------------------------------------------------------------------------


def two_columns(response: Any, code: int, names: str, key: int) -> Callable[[int], np.ndarray]:
    """Two columns of one response, under the streams of the letters of ``names``."""
    keys = Keystream(key.to_bytes(32, "big"))
    return lambda n: np.stack(
        [response.sample(np.full(n, c), keys.column(name)) for c, name in zip((0, code), names, strict=True)], axis=1
    )


def without_tails(mechanism: Any, code: int, key: int) -> Callable[[int], np.ndarray]:
    """Noise that ends 50 steps away."""
    sampler = drawn(mechanism, code, key)
    return lambda n: np.clip(sampler(n), code - 50, code + 50)


def nulls_in_place(mechanism: Any, code: int, key: int) -> Callable[[int], np.ndarray]:
    """Nulls stay nulls."""
    sampler = drawn(mechanism, code, key)
    return lambda n: np.where(code == mechanism.null, mechanism.null, sampler(n))


def leaky(mechanism: Any, code: int, key: int) -> Callable[[int], np.ndarray]:
    """One value in a hundred stays as it is."""
    sampler, rng = drawn(mechanism, code, key), np.random.default_rng(key)
    return lambda n: np.where(rng.random(n) < 0.01, code, sampler(n))
