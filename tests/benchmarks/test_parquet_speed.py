"""Parquet to Parquet of a million census rows, beside pyarrow's own read and write of the same output."""

import time

import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe import datasets

ROWS = 1_000_000
COLUMNS = ["age", "sex", "education", "occupation", "region", "income", "birth_date"]
SPACES = {
    "age": (18, 95),
    "sex": list(datasets.SEXES),
    "education": dpf.Ordinal(datasets.EDUCATION),
    "occupation": dpf.Nullable(dpf.Categorical(datasets.OCCUPATIONS)),
    "region": list(datasets.REGIONS),
    "income": dpf.Nullable(dpf.Real(0, datasets.INCOME_MAX)),
    "birth_date": dpf.Datetime("1930-01-01", "2008-01-01"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("census") / "in.parquet"
    datasets.make_census(ROWS, columns=COLUMNS).to_parquet(path, index=False)
    return path


def read_and_write(source, output, copy):
    """Return the seconds pyarrow needs to read the input in batches and to write the output, at best of three."""
    best = float("inf")
    table = pq.read_table(output)
    for _ in range(3):
        start = time.perf_counter()
        with pq.ParquetFile(source, read_dictionary=["occupation"], pre_buffer=False, buffer_size=1 << 20) as file:
            for _batch in file.iter_batches(1 << 17):
                pass
        pq.write_table(table, copy, row_group_size=1 << 20)
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.parametrize("shuffle", [False, True], ids=["kept order", "shuffled"])
def test_parquet_to_parquet(benchmark, tmp_path, source, shuffle):
    plan = dpf.plan(source, 4.0, spaces=SPACES, shuffle=shuffle)
    output = tmp_path / "out.parquet"
    info = benchmark.pedantic(
        dpf.sanitize_parquet, (source, output), {"plan": plan}, rounds=3, iterations=1, warmup_rounds=1
    )
    assert info.n == ROWS
    beside = read_and_write(source, output, tmp_path / "copy.parquet")
    benchmark.extra_info["pyarrow_seconds"] = beside
    benchmark.extra_info["ratio_to_pyarrow"] = benchmark.stats.stats.min / beside
