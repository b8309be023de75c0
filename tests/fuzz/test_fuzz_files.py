"""Released files whose description, or whose bytes, are changed at random: read as they are, or refused in one line."""

from __future__ import annotations

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import people, release_text
from fuzzing import cases, counted, outcome
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated

import dpframe as dpf


@cache
def released() -> pa.Table:
    """Return the released rows."""
    safe = people().dp.sanitize(1.0, 1e-4, spaces={"sex": ["F", "M"], "age": (0, 120)}, key=bytes(32))
    return pa.Table.from_pandas(safe, preserve_index=False)


@cache
def written() -> bytes:
    """Return a released file."""
    file = BytesIO()
    pq.write_table(released().replace_schema_metadata({"dpframe": release_text()}), file)
    return file.getvalue()


def read(path: Path) -> None:
    """Ask a file all that its description answers."""
    certificate = dpf.verify(path)
    assert certificate.ok or certificate.failures
    assert all("\n" not in failure for failure in certificate.failures)
    estimates = dpf.Estimates(path)
    for name in estimates.plan.names[:2]:
        assert len(estimates.value_counts(name, bins=4 if estimates.plan[name].space.size > 20 else None)) > 0
    frame = dpf.read(path)
    assert isinstance(repr(frame.dp), str)
    assert len(str(frame.dp.report())) > 0


@cases(0.05, 20)
@given(data=st.data())
def _described(found: Any, path: Path, data: st.DataObject) -> None:
    text = data.draw(mutated(release_text()))
    kept = data.draw(st.sampled_from(["dpframe", "PANDAS_ATTRS"]))
    value: str | bytes = text if kept == "dpframe" else json.dumps({"dpframe": text})
    if data.draw(st.integers(0, 9)) == 0:
        value = data.draw(st.binary(max_size=20) | st.just(value[: len(value) // 2]))
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    pq.write_table(released().replace_schema_metadata({kept: raw}), path)
    found[outcome(lambda: read(path))] += 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_descriptions(tmp_path: Path) -> None:
    with counted("changed descriptions") as found:
        _described(found, tmp_path / "release.parquet")
    assert found["PlanError"] + found["NotSanitizedError"] > 0


@cases(0.04, 25)
@given(data=st.data())
def _damaged(found: Any, path: Path, data: st.DataObject) -> None:
    whole = bytearray(written())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.just(len(whole)) | st.integers(0, len(whole)))
    path.write_bytes(bytes(whole[:end]) + data.draw(st.sampled_from([b"", b"", b"PAR1", b"\0" * 8])))
    found[outcome(lambda: read(path))] += 1


@pytest.mark.slow
def test_bytes(tmp_path: Path) -> None:
    with counted("damaged files") as found:
        _damaged(found, tmp_path / "release.parquet")
    assert found["works"] + found["FileError"] > 0
