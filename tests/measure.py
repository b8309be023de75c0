"""Measured tables made by hand: exact counts of a frame with rounded Gaussian noise of a fixed generator."""

import math
from itertools import combinations

import numpy as np

from dpframe.estimate.evidence.number_law import NumberLaw
from dpframe.observe.observation import Observation, Runs
from dpframe.plan.measures import Measure, MeasuredTable
from dpframe.tables.frames import wrap


def by_code(space, first):
    """Return the counts of a number's one-way as an observation of its codes, null's last."""
    runs = Runs.between([*first.starts[0], space.values, *[space.values + 1] * space.has_null])
    return Observation(runs, first.counts.astype(float), np.full(len(first.counts), first.measure.sigma2))


def law_of(space, n, first, finer=()):
    """Return a number's law from its measured levels."""
    return NumberLaw.of(
        space, n, by_code(space, first), {one.measure.level: one.to_observation(space) for one in finer}
    )


def codes_of(frame, plan):
    return wrap(frame).codes({c.name: c.space for c in plan.columns}, plan.nulls)


def codes_in(frame, name, space):
    """Code one column of a frame, which holds no null but where the space does."""
    return wrap(frame).encode(name, space, "error")


def measured(kind, names, starts, counts, sigma2, generator, most=0):
    noise = np.rint(generator.normal(0, math.sqrt(sigma2), np.shape(counts))).astype(np.int64)
    measure = Measure(kind, tuple(names), max(float(sigma2), 0.25), most)  # the least that a measure states
    return MeasuredTable(measure, tuple(starts), np.asarray(counts) + noise)


def count_table(codes, plan, names, starts):
    """Count codes by cells: of equal starts, null the last one."""
    places, shape = [], []
    for name, cut in zip(names, starts, strict=True):
        space, code = plan[name].space, codes[name].astype(np.int64)
        if cut is None:
            places.append(code)
            shape.append(space.size)
            continue
        place = np.searchsorted(cut, code, side="right") - 1
        if space.has_null:
            place = np.where(code == space.size - 1, len(cut), place)
        places.append(place)
        shape.append(len(cut) + space.has_null)
    place = np.ravel_multi_index(places, shape)
    return np.bincount(place, minlength=math.prod(shape)).reshape(shape)


def measure_pairs(frame, plan, sigma2, seed=0, bins=None):
    """Measure all pairs of columns; numbers of many values in ``bins`` (their starts)."""
    codes, generator = codes_of(frame, plan), np.random.default_rng(seed)
    names = [c.name for c in plan.columns if not c.space.holds_sets]
    found = []
    for pair in combinations(names, 2):
        starts = [(bins or {}).get(name) for name in pair]
        found.append(measured("joint", pair, starts, count_table(codes, plan, pair, starts), sigma2, generator))
    return tuple(found)


def measure_number(frame, plan, name, sigma2, sum_sigma2, seed=0, cells=60):
    """Measure a number's one-way in cells of equal width, and its sum of codes."""
    codes, generator, space = (
        codes_of(frame, plan)[name].astype(np.int64),
        np.random.default_rng(seed),
        plan[name].space,
    )
    cut = tuple(sorted({i * space.values // cells for i in range(cells)}))
    present = codes[codes < space.values]
    one_way = measured(
        "one_way", [name], [cut], count_table({name: codes}, plan, [name], [cut]), sigma2, generator, cells
    )
    return one_way, measured("sum", [name], [None], np.array([present.sum()]), sum_sigma2, generator)


def measure_items(frame, plan, name, sigma2, seed=0):
    """Measure in how many rows each item of a set column lies."""
    items = plan[name].space.inner_space.listed.labels()
    sets = [set(value) for value in frame[name].dropna()]
    counts = np.array([sum(item in one for one in sets) for item in items])
    return measured("items", [name], [None], counts, sigma2, np.random.default_rng(seed), 6)
