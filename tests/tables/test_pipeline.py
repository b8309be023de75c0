"""Several threads: results in the parts' order, the first part's error, and the same file whatever their number."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import refused

import dpframe as dpf
from dpframe.errors import ColumnError, ParameterError
from dpframe.tables.batches import ahead, ordered, written

KEY = bytes(range(32))
THREADS = [1, 2, 5]


@pytest.mark.parametrize("threads", THREADS)
def test_results_stand_in_the_parts_order(threads: int) -> None:
    """The first part is done last: it waits until another one is."""
    done = threading.Event()

    def work(part: int) -> int:
        if part == 0 and threads > 1:
            assert done.wait(60)
        if part == 1:
            done.set()
        return part * part

    assert list(ordered(work, range(20), threads)) == [part * part for part in range(20)]
    assert list(ordered(work, [], threads)) == []


@pytest.mark.parametrize("threads", THREADS)
def test_the_first_parts_error_is_raised_and_no_further_part_is_read(threads: int) -> None:
    read: list[int] = []

    def parts() -> Iterator[int]:
        for part in range(100):
            read.append(part)
            yield part

    def work(part: int) -> int:
        if part in (3, 4):
            raise ValueError(part)
        return part

    found = ordered(work, parts(), threads)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"^3$"):
        next(found)
    assert len(read) <= 5 + threads


def test_threads_end_where_nobody_asks_for_more() -> None:
    before = threading.active_count()
    found = ordered(abs, iter(range(10)), 3)
    assert next(found) == 0
    assert threading.active_count() > before
    found.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_of_the_writer_is_raised(threads: int) -> None:
    def fail(group: Any) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        written(fail, iter([{"a": [1]}] * 3), threads)


SPACES: dict[str, Any] = {
    "age": (0, 99),
    "sex": ["F", "M"],
    "income": dpf.Nullable(dpf.Real(0, 10.0)),
    "tags": dpf.Subset(["a", "b", "c"], max_size=2),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = np.random.default_rng(0), 3_000
    tags = [list(np.array(["a", "b", "c"])[rng.permutation(3)[: rng.integers(0, 3)]]) for _ in range(n)]
    columns = {
        "age": rng.integers(0, 100, n),
        "sex": rng.choice(["F", "M"], n),
        "income": pa.array(rng.random(n) * 10, mask=rng.random(n) < 0.1),
        "tags": pa.array(tags, pa.list_(pa.string())),
        "note": [f"row {i}" for i in range(n)],
    }
    path = tmp_path_factory.mktemp("threads") / "in.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_is_the_callers_own(threads: int) -> None:
    """Parts are made, and tables written, by others only if there are several; an error comes where its part would."""
    own, seen = threading.get_ident(), set()

    def parts() -> Iterator[int]:
        for part in range(3):
            seen.add(threading.get_ident())
            yield part
        raise ValueError("the fourth")

    found = ahead(parts(), threads)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the fourth"):
        next(found)
    assert (own in seen) == (threads == 1)
    seen.clear()
    tables = [{"a": [1, 2]}] * 3
    assert written(lambda group: seen.add(threading.get_ident()), iter(tables), threads) == 6
    assert (own in seen) == (threads == 1)


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"sample": 1_000}, {"measure": None}], ids=str)
def test_files_are_the_same_bytes_whatever_the_number_of_threads(
    source: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Order, noise, measured tables, digest and row groups depend on the key alone."""
    plan = dpf.plan(source, 5.0, 1e-6, spaces=SPACES, passthrough=["note"], **options)
    files = []
    for threads in THREADS:
        target = tmp_path / f"{threads}.parquet"
        dpf.sanitize(source, target, plan=plan, key=KEY, batch_rows=256, threads=threads)
        files.append(target.read_bytes())
    assert files[0] == files[1] == files[2]
    other = tmp_path / "other.parquet"
    dpf.sanitize(source, other, plan=plan, key=bytes(32), batch_rows=256, threads=2)
    assert other.read_bytes() != files[0]


@pytest.mark.parametrize("threads", THREADS)
def test_the_first_row_that_is_refused_is_named(tmp_path: Path, threads: int) -> None:
    ages, missing = np.arange(2_000) % 50, np.isin(np.arange(2_000), [777, 778, 1_900])
    pq.write_table(pa.table({"age": pa.array(ages, mask=missing)}), tmp_path / "in")
    plan = dpf.plan(pa.table({"age": ages}), 1.0, 1e-6, spaces={"age": (0, 99)})
    with pytest.raises(ColumnError, match="at row position 777: is null"):
        dpf.sanitize(tmp_path / "in", tmp_path / "out", plan=plan, batch_rows=50, threads=threads)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_a_number_of_threads_that_is_none_is_refused(source: Path, tmp_path: Path, threads: Any) -> None:
    refused(
        ParameterError,
        "^threads must be a whole number, at least 1, or None$",
        lambda: dpf.sanitize(source, tmp_path / "out", 1.0, spaces=SPACES, drop=["note"], threads=threads),
    )


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_error_that_is_kept_keeps_no_thread_and_no_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, shuffle: bool
) -> None:
    """Interactive sessions keep the last error, and with it every frame that it came through."""
    plan = dpf.plan(source, 5.0, 1e-6, spaces=SPACES, drop=["note"], shuffle=shuffle, measure=None)
    before = threading.active_count()

    def full(batch: Any, most: int) -> Iterator[Any]:
        yield next(iter(batch))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dpframe.release.conversion.row_groups", full)
    with pytest.raises(OSError, match="No space left") as kept:
        dpf.sanitize(source, tmp_path / "out", plan=plan, batch_rows=256, threads=threads)
    assert kept.value.__traceback__ is not None
    assert threading.active_count() == before
    held = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [path for path in held if path.startswith(str(tmp_path))]
