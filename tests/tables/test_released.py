"""The reader of releases: what was checked once is not checked again, and what was altered is noticed."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import KNOWN_DIGESTS, Source

SPACES = {"age": (0, 9), "sex": ["F", "M"]}


def released(rows=200):
    frame = pd.DataFrame({"age": np.arange(rows) % 10, "sex": ["F", "M"] * (rows // 2)})
    return dpf.sanitize(frame, epsilon=2, delta=0, spaces=SPACES, key=bytes(32))


def test_one_description_is_read_once():
    safe = released()
    assert Source(safe, None).info is Source(safe.copy(), None).info


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": False, "measure": None}, {"sample": 50}, {"delta": 1e-6, "groups": [("age", "sex")]}]
)
def test_what_was_written_here_is_what_another_process_reads(options):
    frame = pd.DataFrame({"age": np.arange(200) % 10, "sex": ["F", "M"] * 100})
    safe = dpf.sanitize(frame, epsilon=2, **{"delta": 0, "spaces": SPACES, **options})
    text = safe.attrs["dpframe"]
    assert safe.dp.release == ReleaseInfo.from_json(text)
    assert safe.dp.release.to_json() == text


def test_a_frame_altered_in_place_after_a_question_is_noticed():
    safe = released()
    safe.dp.mean("age")
    safe.loc[0, "age"] = (safe.loc[0, "age"] + 1) % 10
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="not what was released, cell by cell"):
        safe.dp.mean("age")
    assert not safe.dp.verify()
    safe.loc[0, "age"] = (safe.loc[0, "age"] - 1) % 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safe.dp.mean("age")


def test_an_altered_file_is_noticed_when_it_is_opened(tmp_path):
    path, safe = tmp_path / "safe.parquet", released()
    safe.to_parquet(path)
    dpf.Estimates(path).mean("age")
    # pandas keeps attrs through the assignment, and with them the description of the release.
    safe.assign(age=0).to_parquet(path)
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="not what was released, cell by cell"):
        dpf.Estimates(path)


def test_files_of_many_rows_are_left_to_verify(tmp_path, monkeypatch):
    from dpframe.tables.parquet_reader import ParquetInput

    path = tmp_path / "safe.parquet"
    released().assign(age=0).to_parquet(path)
    monkeypatch.setattr(ParquetInput, "checked_rows", 199)
    assert not dpf.Estimates(path).verify()


def test_a_text_altered_in_place_is_noticed():
    safe = released()
    assert safe.dp.verify()
    safe.loc[0, "sex"] = "M" if safe.loc[0, "sex"] == "F" else "F"
    assert not safe.dp.verify()


def test_slices_and_objects_are_those_released():
    safe = released()
    for frame in (safe.iloc[::-1], safe.astype({"sex": object}), safe.astype({"sex": "category"})):
        assert frame.dp.verify()
        assert frame.dp.verify()
    assert not safe.iloc[:100].dp.verify()
    table = pa.Table.from_pandas(safe)
    assert Source(pa.concat_tables([table.slice(100), table.slice(0, 100)]), safe.dp.release.plan).digest() == (
        safe.dp.release.digest
    )


def test_no_more_digests_are_kept_than_are_said():
    from dpframe.release import reader as module

    for rows in range(2, 2 * KNOWN_DIGESTS + 4, 2):
        assert released(rows).dp.verify()
    assert len(module._digests) <= KNOWN_DIGESTS
    assert len(module._infos) <= KNOWN_DIGESTS
