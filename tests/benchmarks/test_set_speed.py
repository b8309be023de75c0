"""Sets: ns per item read, per item flipped and per item written, and Parquet to Parquet beside pyarrow's own.

    pytest tests/benchmarks/test_sets.py --benchmark-only

Nothing here asserts a time. ``hobbies`` has 24 items, ``wide`` 169; both are half full after flipping.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from census_spaces import SPACES

import dpframe as dpf
from dpframe import datasets
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


PLAIN = ["age", "sex", "education", "region", "income"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A million rows of six columns, sets among them."""
    path = tmp_path_factory.mktemp("sets") / "in.parquet"
    part = pa.Table.from_pandas(datasets.make_census(50_000, columns=[*PLAIN, "hobbies"]), preserve_index=False)
    with pq.ParquetWriter(path, part.schema) as writer:
        for _ in range(20):
            writer.write_table(part)
    return path


@pytest.mark.parametrize("shuffle", [False, True], ids=["kept order", "shuffled"])
def test_parquet_to_parquet(benchmark, tmp_path, source, shuffle):
    """Reach: at most 1.5 of pyarrow reading the input and writing the same output."""
    plan = dpf.plan(source, 24.0, spaces=SPACES, shuffle=shuffle)
    output = tmp_path / "out.parquet"
    call = (dpf.sanitize_parquet, (source, output), {"plan": plan})
    benchmark.pedantic(*call, rounds=3, iterations=1, warmup_rounds=1)
    table = pq.read_table(output, read_dictionary=["hobbies.list.element"])
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        with pq.ParquetFile(source, read_dictionary=["hobbies.list.element"], pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                for _batch in file.iter_batches(1 << 17, row_groups=[group]):
                    pass
        pq.write_table(table, tmp_path / "copy.parquet", row_group_size=1 << 20)
        best = min(best, time.perf_counter() - start)
    benchmark.extra_info["pyarrow_seconds"] = best
    benchmark.extra_info["ratio_to_pyarrow"] = benchmark.stats.stats.min / best
