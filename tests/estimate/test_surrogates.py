"""Every estimate axis over the mechanism registry: E[φ_f(Y) | x] = f(x), from the transition matrix itself.

For each tag, each metric that it is for, and each way in which a column enters an estimate, the columns of the
transition matrix are counts of released codes whose expectation is known: inverted, they must be the indicators of
the true cells, up to rounding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.channels import MECHANISMS, GammaDiagonal, Matrix, Mechanism, mechanism_for
from dpframe.estimate import moments, surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, ListedAxis, make_axis
from dpframe.estimate.conditions import ItemCondition
from dpframe.estimate.sets import SetColumn
from dpframe.plan.build import build_plan
from dpframe.plan.columns import Column
from dpframe.spaces import Categorical, Integer, Nullable, Space, Subset

SPACES: dict[str, list[Space]] = {
    "discrete": [Categorical(list("abcdef")), Nullable(Categorical(list("abc")))],
    "line": [Integer(0, 1), Integer(3, 19), Integer(0, 39)],
    "nullable line": [Nullable(Integer(0, 1)), Nullable(Integer(0, 18)), Nullable(Integer(0, 37))],
    "special line": [Integer(0, 16, special=["refused", -9]), Nullable(Integer(0, 37, special=["refused", -9]))],
    "symmetric difference": [Subset(list("abcd"), 2)],
    "nullable symmetric difference": [Nullable(Subset(list("abcd"), 2))],
}

BINS: list[int | list[int] | None] = [None, 1, 2, 4, 10, [3, 4, 9, 17]]


def made(tag: str, space: Space) -> Mechanism:
    """Return the mechanism of a tag; of a matrix, which is not calibrated, one that no inverse is local of."""
    if tag == "matrix":
        uneven = np.random.default_rng(space.size).dirichlet(np.ones(space.size), space.size)
        return Matrix.of(0.4 * np.eye(space.size) + 0.6 * uneven)
    # Gaussian noise of more than a step or two cannot be inverted where the grid's ends cut it.
    return MECHANISMS[tag].calibrate(space, 100.0 if "gaussian" in tag else 2.0, 0.0)


def axes_of(column: Column) -> list[Axis]:
    """Return the column listed, and in all bins that it takes."""
    numeric = column.space.metric != "discrete"
    bins = [b for b in BINS if b is None or (numeric and (isinstance(b, int) or column.space.size > 18))]
    return [make_axis(column, b) for b in bins]


def check_axis(axis: Axis, matrix: np.ndarray, tolerance: float = 1e-9) -> None:
    """Check an axis against P(released code | code) of its column."""
    size = matrix.shape[1]
    counted = np.zeros((axis.classes, size))
    np.add.at(counted, axis.classify(np.arange(size)), matrix)
    cells = axis.cell_of(np.arange(size))
    truth = (cells == np.arange(axis.cells)[:, None]).astype(float)
    np.testing.assert_allclose(axis.invert(counted), truth, atol=tolerance)
    np.testing.assert_allclose(axis.present @ counted, cells < axis.cells - axis.has_null, atol=tolerance)
    # Squares have no such mean; they are those of the same surrogates, class by class.
    surrogates = axis.invert(np.eye(axis.classes))
    np.testing.assert_allclose(axis.invert(np.eye(axis.classes), squared=True), surrogates**2, atol=tolerance)
    expected = np.stack([counted[:, cells == cell].mean(axis=1) for cell in range(axis.cells)], axis=1)
    np.testing.assert_allclose(axis.channel, expected, atol=tolerance)


@lru_cache
def column(tag: str, space: Space) -> Column:
    return Column("x", space, made(tag, space))


COLUMNS = [
    (tag, space)
    for tag, cls in sorted(MECHANISMS.items())
    for metric in sorted(cls.metrics or ["discrete", "line", "nullable line", "special line"])
    for space in SPACES.get(metric, [])
    if not (space.code_words or cls.releases_outside_bounds)
]


def test_the_registry_is_covered() -> None:
    # Sets and vectors have no surrogates of a whole value, but of items and coordinates.
    # Nor has noise that goes beyond bounds; its moments are below.
    parts = {
        tag
        for tag, cls in MECHANISMS.items()
        if cls.releases_outside_bounds or any("symmetric" in m or "vector" in m for m in cls.metrics)
    }
    assert {tag for tag, _ in COLUMNS} | parts | {GammaDiagonal.tag} == set(MECHANISMS)
    metrics = {metric for cls in MECHANISMS.values() for metric in cls.metrics}
    assert metrics == set(SPACES) | {"product", "vector", "nullable vector"}


@pytest.mark.walk(2)
@pytest.mark.parametrize(("tag", "space"), COLUMNS, ids=lambda v: str(v)[:50])
def test_every_axis_inverts_its_channel(tag: str, space: Space) -> None:
    one = column(tag, space)
    matrix = one.mechanism.transition()
    found = axes_of(one)
    kinds = {ListedAxis} if space.metric == "discrete" else {ListedAxis, BinnedAxis}
    assert {type(axis) for axis in found} == kinds
    for axis in found:
        check_axis(axis, matrix)


@pytest.mark.walk(12)
@pytest.mark.parametrize(("tag", "space"), COLUMNS, ids=lambda v: str(v)[:50])
def test_classes_are_pooled_only_where_surrogates_are_constant(tag: str, space: Space) -> None:
    one = column(tag, space)
    everywhere = np.arange(space.size)
    for axis in axes_of(one):
        for cell in range(axis.cells):
            inside = (axis.cell_of(everywhere) == cell).astype(float)
            by_code = one.mechanism.surrogate(inside)
            for group in np.unique(axis.classify(everywhere)):
                assert np.ptp(by_code[axis.classify(everywhere) == group]) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("tag", "space"), [c for c in COLUMNS if c[1].metric != "discrete"], ids=str)
def test_moments_invert_their_channel(tag: str, space: Space) -> None:
    one = column(tag, space)
    scale, matrix = moments.Scale.of(one), one.mechanism.transition()
    everywhere = np.arange(space.size)
    for power in (0, 1, 2):
        truth = scale.power(everywhere, power)
        inverses = surrogates.Surrogates({"x": one}).at("x", scale.power, power, everywhere)
        np.testing.assert_allclose(inverses @ matrix, truth, atol=1e-9)


@pytest.mark.parametrize("bins", [None, 3, [2, 3, 7]], ids=str)
def test_axes_of_a_group_invert_their_channel(bins: object) -> None:
    spaces = {"x": Nullable(Integer(0, 8)), "y": Integer(0, 4), "z": ["a", "b"]}
    plan = build_plan(spaces, epsilon=3.0, delta=0.0, groups=[("x", "y", "z")])
    group = plan.groups[0]
    for name in ("x", "y", "z"):
        column = group.column(name)
        inner = make_axis(column, bins if name == "x" else None)
        own = group.marginal([name]).transition()
        check_axis(inner, own)
        check_axis(replace(inner, group=group), own)


@pytest.mark.parametrize("tag", sorted(t for t, c in MECHANISMS.items() if any("symmetric" in m for m in c.metrics)))
def test_sets_invert_their_channel(tag: str) -> None:
    (metric,) = MECHANISMS[tag].metrics
    (space,) = SPACES[metric]
    mine = SetColumn.of(Column("x", space, mechanism_for(space, 3.0, 0.0, tag)))
    places = list(range(4))
    values = [code for code in range(16) if code.bit_count() <= 2] + ([space.size - 1] if mine.has_null else [])
    for x in values:
        weights, total = mine.column.mechanism.weights(x)
        law = np.array([w / total for w in weights])
        held = np.array([x >> i & 1 for i in places], dtype=float) * (x < 16)
        codes = space.code_array(range(space.size))
        one, pairs = np.zeros(4), np.zeros((4, 4))
        together, present = 0.0, 0.0
        for y, p in enumerate(law):
            batch = [{"x": codes[y : y + 1]}]
            items = mine.count_items(batch)
            one += p * items.sums.value[0]
            present += p * items.sums.present[0, 0]
            pairs += p * mine.count_pairs(places, batch).sums.value
            together += p * mine.count_level(ItemCondition(mine, (0, 2), "all").levels, (0, 2), batch).sums.value[0, 0]
        np.testing.assert_allclose(one, held, atol=1e-9)
        np.testing.assert_allclose(pairs, np.outer(held, held), atol=1e-9)
        assert together == pytest.approx(held[0] * held[2], abs=1e-9)
        assert present == pytest.approx(float(x < 16), abs=1e-9)


@pytest.mark.slow
def test_bins_of_an_optimal_channel_are_unbiased() -> None:
    # 12 releases, 3 bins: the sum of 36 squared z-scores (nearly χ²) is above 80 with probability below 1e-4. Classes
    # pooled as for a local inverse are off by many standard errors each.
    frame = pd.DataFrame({"x": np.random.default_rng(0).binomial(20, 0.3, 20_000)})
    truth = np.histogram(frame["x"], [0, 7, 14, 21])[0]
    plan = build_plan({"x": (0, 20)}, epsilon=1.0, delta=0.0, mechanisms={"x": "optimal"})
    z = []
    for k in range(12):
        safe = dpf.sanitize(frame, plan=plan, key=bytes([k] * 32))
        found = safe.dp.value_counts("x", bins=3, sort=False, method="inverse")
        z.append((found["estimate"] - truth) / found["std_error"])
    assert 12 < (np.array(z) ** 2).sum() < 80


@pytest.mark.parametrize("tag", sorted(t for t, c in MECHANISMS.items() if any("symmetric" in m for m in c.metrics)))
@pytest.mark.parametrize("how", ["all", "any"])
@pytest.mark.parametrize("wrong", [False, True])
def test_conditions_on_items_have_their_indicator_as_mean(tag: str, how: str, wrong: bool) -> None:
    (metric,) = MECHANISMS[tag].metrics
    (space,) = SPACES[metric]
    mine = SetColumn.of(Column("x", space, mechanism_for(space, 3.0, 0.0, tag)))
    condition = ItemCondition(mine, (0, 2), how, wrong)
    values = [code for code in range(16) if code.bit_count() <= 2] + ([space.size - 1] if mine.has_null else [])
    for x in values:
        weights, total = mine.column.mechanism.weights(x)
        found = condition.surrogates(space.code_array(range(space.size)))
        bits = [x >> i & 1 for i in (0, 2)]
        meets = (all(bits) if how == "all" else any(bits)) != wrong
        indicator = float(meets and x < 16)
        assert sum(w / total * u for w, u in zip(weights, found, strict=True)) == pytest.approx(indicator, abs=1e-9)
