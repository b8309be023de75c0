"""Parts of a dataset: what a release says of its own, and the same rows as two parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dpframe as dpf
from dpframe import ReleaseInfo, verify
from dpframe.errors import LedgerError, PlanError, RepeatedReleaseWarning

KEY, OTHER = bytes(range(32)), bytes(32)
SPACES: dict[str, Any] = {"a": (0, 9), "b": ["x", "y"]}
FRAME = pd.DataFrame({"a": [1, 2, 3, 4] * 25, "b": ["x", "y"] * 50})
ELSEWHERE = FRAME.assign(a=9 - FRAME["a"])


@pytest.fixture
def ledger(tmp_path: Path) -> dpf.Ledger:
    made = dpf.Ledger(tmp_path / "ledger.sqlite")
    made.create("survey", 9.0, 1e-5, parts=("north", "south"))
    return made


def sanitized(frame: pd.DataFrame, ledger: dpf.Ledger, part: str | None, **options: Any) -> pd.DataFrame:
    options = {"epsilon": 0.5, "delta": 1e-7, "spaces": SPACES} | options
    safe: pd.DataFrame = dpf.sanitize(frame, ledger=ledger.account("survey", part), **options)
    return safe


def test_a_release_says_which_part_it_is_of(ledger: dpf.Ledger, tmp_path: Path) -> None:
    safe = sanitized(FRAME, ledger, "north")
    assert safe.dp.release.part == "north"
    assert ReleaseInfo.from_json(safe.dp.release.to_json()) == safe.dp.release
    assert str(safe.dp.report()).startswith("A release of 100 rows (part north of its dataset)\n")
    assert "100 rows (part north of its dataset)" in safe.dp.report().to_html()
    FRAME.to_parquet(tmp_path / "in.parquet")
    options: dict[str, Any] = {"ledger": ledger.account("survey", "north"), "spaces": SPACES}
    info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 0.5, 1e-7, **options)
    assert info.part == dpf.read(tmp_path / "out.parquet").dp.release.part == "north"
    assert verify(tmp_path / "out.parquet").ok


def test_a_release_of_all_rows_says_nothing_of_parts(ledger: dpf.Ledger) -> None:
    info = sanitized(FRAME, ledger, None).dp.release
    assert info.part is None
    assert "part" not in json.loads(info.to_json())
    with pytest.raises(PlanError, match=r"^the release's metadata is.*its plan again$"):
        ReleaseInfo.from_json(json.dumps(json.loads(info.to_json()) | {"part": 3}))


def test_one_table_under_one_key_is_one_part(ledger: dpf.Ledger) -> None:
    """Two parts were charged as the dearest of them, though every row was in both."""
    sanitized(FRAME, ledger, "north", key=KEY)
    sanitized(FRAME, ledger, "north", key=KEY)  # the same release
    with (
        pytest.warns(
            RepeatedReleaseWarning,
            match=r"^the rows of part.*part north before.*pass part='north'",
        ),
        pytest.raises(LedgerError, match=r"^these rows were released.*have no row"),
    ):
        sanitized(FRAME, ledger, "south", key=KEY)
    assert ledger.history("survey")["part"].tolist() == ["north"]
    with pytest.raises(LedgerError, match=r"^key has drawn the.*for another table"):
        sanitized(ELSEWHERE, ledger, "south", key=KEY)  # rows of one place would have one noise
    sanitized(ELSEWHERE, ledger, "south", key=OTHER)
    assert ledger.history("survey")["part"].tolist() == ["north", "south"]


def test_one_table_as_two_parts_is_warned_of_under_any_key(ledger: dpf.Ledger) -> None:
    """Whatever is asked of it: a plan, rows, or a table of answers."""
    dpf.plan(FRAME, 0.5, 1e-7, ledger=ledger.account("survey", "north"), measure=None)
    said = r"^the rows of part south were released as part north before.*pass part='north'"
    with pytest.warns(RepeatedReleaseWarning, match=said):
        sanitized(FRAME, ledger, "south", key=OTHER)
    with pytest.warns(RepeatedReleaseWarning, match=said):
        dpf.Queries(FRAME, epsilon=0.5, delta=1e-7, ledger=ledger.account("survey", "south"), spaces=SPACES)
    sanitized(ELSEWHERE, ledger, "south")
    for part in ("north", "south"):  # no rows are nobody's
        sanitized(FRAME[:0], ledger, part)


def test_one_file_as_two_parts_is_warned_of(ledger: dpf.Ledger, tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "in.parquet")
    north, south = ({"ledger": ledger.account("survey", part), "spaces": SPACES} for part in ("north", "south"))
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "1.parquet", 0.5, 1e-7, **north)
    with pytest.warns(RepeatedReleaseWarning, match=r"^the rows of part.*part north before"):
        dpf.sanitize(tmp_path / "in.parquet", tmp_path / "2.parquet", 0.5, 1e-7, **south)
