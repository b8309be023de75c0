"""Sets: ns per item read, per item flipped and per item written.

    pytest tests/benchmarks/test_set_speed.py --benchmark-only

Nothing here asserts a time. ``hobbies`` has 24 items, ``wide`` 169; both are half full after flipping.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.channels import AsymmetricBitFlip, BitFlip
from dpframe.estimate import sets
from dpframe.noise.keystream import Keystream
from dpframe.plan.columns import Column

ROWS = 1 << 18
SIZES = {"hobbies": (24, 6), "wide": (169, 8)}


def column(name, rows=ROWS):
    """Return a space and random sets of up to ``max_size`` items as a dictionary column."""
    items, most = SIZES[name]
    space = dpf.Subset([f"item number {i}" for i in range(items)], max_size=most)
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, most + 1, rows)
    start = rng.integers(0, items, rows)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    codes = (np.repeat(start, lengths) + 7 * within) % items
    values = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(space.items))
    return space, pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), values)


def per_item(benchmark, items):
    if benchmark.stats is not None:
        benchmark.extra_info["ns_per_item"] = round(benchmark.stats.stats.min / items * 1e9, 2)
        benchmark.extra_info["ns_per_row"] = round(benchmark.stats.stats.min / ROWS * 1e9, 1)


@pytest.mark.parametrize("name", SIZES)
def test_encode(benchmark, name):
    space, lists = column(name)
    benchmark(space.encode, lists)
    per_item(benchmark, len(lists.values))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("cls", [BitFlip, AsymmetricBitFlip])
def test_flip(benchmark, name, cls):
    """Per item of the space, whether the set holds it or not."""
    space, lists = column(name)
    mechanism = cls.calibrate(space, 4.0, 0.0)
    benchmark(mechanism.sample, space.encode(lists), Keystream(bytes(32)).column("a"))
    benchmark.extra_info["binary_digits"] = mechanism.flips.total.bit_length() - 1
    per_item(benchmark, ROWS * space.count)


@pytest.mark.parametrize("name", SIZES)
def test_decode(benchmark, name):
    """Per item of the released sets."""
    space, lists = column(name)
    codes = BitFlip.calibrate(space, 4.0, 0.0).sample(space.encode(lists), Keystream(bytes(32)).column("a"))
    out = benchmark(space.decode, codes, pa.list_(pa.dictionary(pa.int32(), pa.string())))
    per_item(benchmark, len(out.values))


@pytest.mark.parametrize("what", ["count_items", "count_pairs"])
def test_counting(benchmark, what):
    space, lists = column("wide")
    mechanism = BitFlip.calibrate(space, 4.0, 0.0)
    mine = sets.SetColumn.of(Column("x", space, mechanism))
    batch = {"x": mechanism.sample(space.encode(lists), Keystream(bytes(32)).column("a"))}
    places = [list(range(space.count))] if what == "count_pairs" else []
    benchmark.pedantic(getattr(mine, what), (*places, [batch]), rounds=3)
    per_item(benchmark, ROWS * space.count)
