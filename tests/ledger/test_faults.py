"""What goes wrong around a job under a ledger: its input, its output's folder, the clock, the ledger itself.

Kills and full disks are in test_ledger_faces.py. Every refusal is one line, nothing is torn, nothing is spent twice,
and what can be repeated gives what it would have given.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import processes
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from checks import SECRET, refused
from examples import plan_of

import dpframe as dpf
from dpframe.errors import ColumnError, DpframeError, FileError, LedgerError

PLAN = plan_of({"age": (0, 120), "sex": ["F", "M"]}, epsilon=0.25, delta=0.0)
ROWS = 20_000


@pytest.fixture
def ledger(tmp_path: Path) -> dpf.Ledger:
    return made_ledger(tmp_path)


def made_ledger(folder: Path) -> dpf.Ledger:
    made = dpf.Ledger(folder / "ledger.sqlite")
    made.create("survey", 1.0)
    return made


def people() -> pa.Table:
    return pa.table({"age": [i * 7 % 100 for i in range(ROWS)], "sex": ["F", "M"] * (ROWS // 2)})


def job(source: Path, ledger: dpf.Ledger, **options: Any) -> Callable[[], Any]:
    """Return a job that writes out.parquet beside its input, under the ledger."""
    target = options.pop("target", source.parent / "out.parquet")
    return lambda: dpf.sanitize(
        source, target, **({"plan": PLAN} | options), ledger=ledger, dataset="survey", batch_rows=4_000
    )


def spends(ledger: dpf.Ledger) -> list[float]:
    return ledger.history("survey")["epsilon"].tolist()


def stop(done: int, total: int) -> None:
    raise RuntimeError("stopped")


# --------------------------------------------------------------------------------------------- damaged input


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_parquet_cut_short(share: float, tmp_path: Path, ledger: dpf.Ledger) -> None:
    pq.write_table(people(), tmp_path / "in.parquet", row_group_size=3_000)
    raw = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "in.parquet").write_bytes(raw[: int(len(raw) * share)])
    refused(
        FileError,
        "in.parquet is not a readable Parquet file; it is damaged or cut off, so write it anew$",
        job(tmp_path / "in.parquet", ledger),
    )
    assert spends(ledger) == []
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("place", [0.05, 0.4, 0.8])
def test_pages_that_are_damaged_are_found_before_anything_is_spent(
    place: float, tmp_path: Path, ledger: dpf.Ledger
) -> None:
    """Pages may decode, to other values: where the file has checksums of its pages, these tell."""
    layout: Any = {"row_group_size": 3_000, "compression": "zstd", "use_dictionary": False}
    pq.write_table(people(), tmp_path / "in.parquet", write_page_checksum=True, **layout)
    raw = bytearray((tmp_path / "in.parquet").read_bytes())
    start = int(len(raw) * place)
    raw[start : start + 400] = bytes(400)
    (tmp_path / "in.parquet").write_bytes(raw)
    refused(FileError, "in.parquet is damaged: a part of it cannot be read$", job(tmp_path / "in.parquet", ledger))
    assert spends(ledger) == []


@pytest.mark.parametrize("tail", ["", '"', "1,F,3\n", f"{SECRET},F\n", "\x00", "1\n"])
def test_csv_cut_short_or_damaged(tail: str, tmp_path: Path, ledger: dpf.Ledger) -> None:
    """A whole line less is another table, of which nobody can tell; half a one is refused, and costs nothing."""
    pyarrow.csv.write_csv(people(), tmp_path / "in.csv")
    raw = (tmp_path / "in.csv").read_bytes()
    cut = raw[: raw.rindex(b"\n", 0, len(raw) // 2) + 1]
    (tmp_path / "in.csv").write_bytes(cut + tail.encode())
    run = job(tmp_path / "in.csv", ledger)
    if tail:
        refused(
            DpframeError, "in.csv is|in.csv has|in.csv cannot be read: row|^column '(age|sex)' at row position", run
        )
        assert spends(ledger) == []
    else:
        run()
        assert spends(ledger) == [0.25]


def test_an_input_that_changes_while_a_job_is_interrupted(tmp_path: Path, ledger: dpf.Ledger) -> None:
    """One key on two tables would show their difference: the stored key is bound to a keyed digest of the input."""
    pq.write_table(people(), tmp_path / "in.parquet")
    with pytest.raises(RuntimeError, match="stopped"):
        job(tmp_path / "in.parquet", ledger, progress=stop)()
    pq.write_table(people().slice(1), tmp_path / "in.parquet")
    message = refused(LedgerError, "^the input or the plan changed since", job(tmp_path / "in.parquet", ledger))
    assert "its key is void" in message
    assert spends(ledger) == [0.25]
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("way", ["written to", "replaced"])
def test_an_input_that_changes_after_its_digest(way: str, tmp_path: Path, ledger: dpf.Ledger) -> None:
    """Put back after a kill it would leave a second time under the key on disk: so nothing of it is published."""
    source = tmp_path / "in.parquet"
    pq.write_table(people(), source)
    whole = source.read_bytes()

    def change(done: int, total: int) -> None:
        if way == "written to":
            source.write_bytes(whole)
        else:
            (tmp_path / "other").write_bytes(whole)
            (tmp_path / "other").replace(source)

    rule = r"in.parquet changed while it was read, and nothing was written; put it back and repeat the release$"
    refused(FileError, rule, job(source, ledger, progress=change))
    assert not (tmp_path / "out.parquet").exists()
    job(source, ledger)()
    assert spends(ledger) == [0.25]


# ------------------------------------------------------------------------------------------- where it writes


@pytest.mark.posix
def test_an_output_folder_that_is_read_only() -> None:
    with processes.open_folder() as folder:
        folder.chmod(0o777)
        with processes.nobody():
            pq.write_table(people(), folder / "in.parquet")
            ledger = made_ledger(folder)
            (folder / "out").mkdir(mode=0o555)
            run = job(folder / "in.parquet", ledger, target=folder / "out" / "out.parquet")
            refused(FileError, "out.parquet could not be written: Permission denied$", run)
            assert list((folder / "out").iterdir()) == []
            assert spends(ledger) == []
            (folder / "out").chmod(0o755)
            run()
            assert spends(ledger) == [0.25]
            assert dpf.verify(folder / "out" / "out.parquet").ok


# ------------------------------------------------------------------------------------------- clock and ledger


def key_of(ledger: dpf.Ledger) -> bytes:
    (path,) = Path(f"{ledger.path}.keys").glob("*.key")
    return bytes.fromhex(json.loads(path.read_text())["key"])


@pytest.mark.parametrize("how", ["deleted", "restored"])
def test_a_ledger_that_lost_the_spend_of_an_interrupted_job(how: str, tmp_path: Path, ledger: dpf.Ledger) -> None:
    """The key is still beside it: repeated, the job is entered again, and gives what it would have given."""
    pq.write_table(people(), tmp_path / "in.parquet")
    shutil.copy(ledger.path, tmp_path / "backup")
    run = job(tmp_path / "in.parquet", ledger)
    with pytest.raises(RuntimeError, match="stopped"):
        job(tmp_path / "in.parquet", ledger, progress=stop)()
    key = key_of(ledger)
    for ending in ("", "-wal", "-shm"):
        Path(f"{ledger.path}{ending}").unlink(missing_ok=True)
    if how == "deleted":
        refused(LedgerError, "ledger.sqlite does not exist; make it with: dpframe ledger create", run)
        assert not (tmp_path / "out.parquet").exists()
        made_ledger(tmp_path)
    else:
        shutil.copy(tmp_path / "backup", ledger.path)
    assert spends(ledger) == []
    run()
    assert spends(ledger) == [0.25]
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "again.parquet", plan=PLAN, key=key)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "again.parquet"), pd.read_parquet(tmp_path / "out.parquet")
    )


def test_a_receipt_that_a_restored_ledger_does_not_know_pays_for_nothing(tmp_path: Path, ledger: dpf.Ledger) -> None:
    """Inference that was paid for since the backup is charged with the release that leans on it."""
    pq.write_table(people(), tmp_path / "in.parquet")
    shutil.copy(ledger.path, tmp_path / "backup")
    plan = dpf.plan(tmp_path / "in.parquet", 0.25, 0.0, spaces={"sex": ["F", "M"]}, ledger=ledger, dataset="survey")
    assert plan.inferred is not None
    assert spends(ledger) == [plan.inferred.budget.epsilon]
    for ending in ("", "-wal", "-shm"):
        Path(f"{ledger.path}{ending}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup", ledger.path)
    job(tmp_path / "in.parquet", ledger, plan=plan)()
    assert spends(ledger) == [0.25]


def test_values_that_do_not_fit_cost_nothing(tmp_path: Path, ledger: dpf.Ledger) -> None:
    """The last row of the last file is read before the ledger is."""
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(people(), folder / "0.parquet")
    pq.write_table(pa.table({"age": [5, 6], "sex": ["F", SECRET]}), folder / "1.parquet")
    run = job(folder, ledger, target=tmp_path / "out.parquet")
    refused(ColumnError, f"^column 'sex' at row position {ROWS + 1}: holds a category outside", run)
    assert spends(ledger) == []
