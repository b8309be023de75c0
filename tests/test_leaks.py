"""The leaks that other libraries had, each with a test named after it, on every face that could have it.

What leaves a face is all of it: every byte of a file, and of a table in memory what writing it whole would show.
Tests that have `test_leak` in their names elsewhere look at the same from nearby.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from checks import SECRET, refused, sampled_sets, stored_under_nulls
from examples import plan_of
from readings import released_codes
from small_parts import small_parts

import dpframe as dpf
from dpframe.cli.main import main
from dpframe.errors import ColumnError, OrderLeakWarning, PrivacyLeakWarning

KEY = bytes(range(32))
ROWS = 4_000
FAR = 5 / np.sqrt(ROWS)
"""A correlation of independent columns is beyond it with probability below 1e-6."""

Face = Callable[[pa.Table, dpf.Plan, Path], bytes]


def _pandas(table: pa.Table, plan: dpf.Plan, folder: Path) -> bytes:
    return _whole(dpf.sanitize(table.to_pandas(), plan=plan, key=KEY))


def _pandas_on_arrow(table: pa.Table, plan: dpf.Plan, folder: Path) -> bytes:
    return _whole(dpf.sanitize(table.to_pandas(types_mapper=pd.ArrowDtype), plan=plan, key=KEY))


def _whole(safe: pd.DataFrame) -> bytes:
    shown = [safe.to_csv(), repr(safe.dtypes.tolist()), repr(safe.index), repr(safe.columns), json.dumps(safe.attrs)]
    shown += [repr(safe[name].cat.categories.tolist()) for name in safe if safe[name].dtype == "category"]
    return "\n".join(shown).encode() + pickle.dumps(safe)


def _arrow(table: pa.Table, plan: dpf.Plan, folder: Path) -> bytes:
    return _stream(dpf.sanitize(table, plan=plan, key=KEY))


def _stream(safe: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, safe.schema) as stream:
        stream.write_table(safe)
    return bytes(sink.getvalue()) + pickle.dumps(safe)


def _polars(table: pa.Table, plan: dpf.Plan, folder: Path) -> bytes:
    safe = dpf.sanitize(pl.from_arrow(table), plan=plan, key=KEY)
    sink = io.BytesIO()
    safe.write_ipc(sink)
    return sink.getvalue() + repr(safe.schema).encode()


def _parquet(table: pa.Table, plan: dpf.Plan, folder: Path) -> bytes:
    pq.write_table(table, folder / "in.parquet")
    dpf.sanitize(folder / "in.parquet", folder / "out.parquet", plan=plan, key=KEY, compression="none")
    return (folder / "out.parquet").read_bytes()


def _csv(table: pa.Table, plan: dpf.Plan, folder: Path) -> bytes:
    pa.csv.write_csv(table, folder / "in.csv")
    dpf.sanitize(folder / "in.csv", folder / "out.csv", plan=plan, key=KEY)
    return b"".join(path.read_bytes() for path in sorted(folder.glob("out.csv*")))


FACES: dict[str, Face] = {
    "pandas": _pandas,
    "pandas on Arrow": _pandas_on_arrow,
    "Arrow": _arrow,
    "polars": _polars,
    "Parquet": _parquet,
    "CSV": _csv,
}
TYPED = [name for name in FACES if name != "CSV"]

every_face = pytest.mark.parametrize("face", FACES)
typed_faces = pytest.mark.parametrize("face", TYPED)


def plan_for(spaces: dict[str, Any], epsilon: float = 2.0, **options: Any) -> dpf.Plan:
    return plan_of(spaces, epsilon=epsilon, delta=0.0, **options)


# ------------------------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize("mechanism", ["staircase", "geometric", "exponential"])
def test_float_noise(mechanism: str) -> None:
    """Mironov 2012: of noise in floats the last bits tell inputs apart. Here all inputs have the same outputs."""
    space = dpf.Real(0.0, 1.0, steps=4)
    plan = plan_of({"x": space}, epsilon=2.0, delta=0.0, mechanisms={"x": mechanism}, shuffle=False)
    outputs = set()
    for value in (0.1, 0.1 + 2**-40, 1 / 3, 0.7, 1.0):
        safe = dpf.sanitize(pd.DataFrame({"x": np.full(ROWS, value)}), plan=plan, key=KEY)
        outputs.add(tuple(sorted(set(safe["x"].tolist()))))
    assert outputs == {tuple(space.labels())}


def test_float_noise_beyond_the_bounds() -> None:
    """Outputs of Gaussian noise are many; they lie on the space's grid, continued, whatever the input's last bits."""
    space = dpf.Real(0.0, 1.0, steps=4)
    plan = plan_of({"x": space}, epsilon=2.0, delta=1e-3, mechanisms={"x": "gaussian"}, shuffle=False)
    for value in (0.1, 0.1 + 2**-40, 1 / 3, 0.7, 1.0):
        safe = dpf.sanitize(pd.DataFrame({"x": np.full(ROWS, value)}), plan=plan, key=KEY)
        assert (safe["x"] * 4 % 1 == 0).all()
        assert safe["x"].nunique() > 10


@pytest.mark.filterwarnings("ignore::dpframe.errors.SeededReleaseWarning")
@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_one_seed_giving_several_columns_the_same_noise() -> None:
    """Their differences would show the row without any noise."""
    columns = {"a": (0, 100), "b": (0, 100), "a b": (0, 100)}
    frame = pd.DataFrame(dict.fromkeys(columns, np.full(ROWS, 50)))
    under_key = dpf.sanitize(frame, plan=plan_for(columns, shuffle=False), key=KEY)
    seeded = dpf.Sanitizer(epsilon=2.0, spaces=columns, random_state=0).fit_transform(frame)
    again = dpf.Sanitizer(epsilon=2.0, spaces=columns, random_state=0).fit_transform(frame.assign(a=51))
    for safe in (under_key, seeded):
        assert np.abs(safe.corr().to_numpy() - np.eye(3)).max() < FAR
    # Nor has other data the noise of the same seed.
    assert np.abs(np.corrcoef(seeded["b"], again["b"])[0, 1]) < FAR


def test_noise_redrawn_by_lazy_engines() -> None:
    """Means of many actions on one lazy frame would take the noise away."""
    dask = pytest.importorskip("dask.dataframe")
    from dpframe.engines import dask as engine

    frame = pd.DataFrame({"x": np.arange(200) % 50})
    lazy = engine.sanitize(dask.from_pandas(frame, npartitions=3), plan_for({"x": (0, 50)}, n=200))
    first, second = lazy["x"].compute(scheduler="synchronous"), lazy["x"].compute(scheduler="synchronous")
    assert first.tolist() == second.tolist()


def test_noise_redrawn_by_retries(tmp_path: Path) -> None:
    """An interrupted job is repeated under its own key, at no further cost."""
    pq.write_table(pa.table({"x": [1, 2] * 50}), tmp_path / "in.parquet")
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 2.0)
    keys = []

    def stop(done: int, total: int) -> None:
        (path,) = Path(f"{ledger.path}.keys").glob("*.key")
        keys.append(json.loads(path.read_text())["key"])
        raise RuntimeError("stopped")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="stopped"):
            dpf.sanitize(
                tmp_path / "in.parquet",
                tmp_path / "out.parquet",
                plan=plan_for({"x": (0, 9)}),
                ledger=ledger,
                dataset="survey",
                progress=stop,
            )
    assert len(set(keys)) == 1
    assert ledger.history("survey")["epsilon"].tolist() == [2.0]


@pytest.mark.filterwarnings("ignore::dpframe.errors.SeededReleaseWarning")
@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_noise_redrawn_by_folds() -> None:
    """Rows that several folds share must not be told apart from others by a noise that they share."""
    frame = pd.DataFrame({"x": [*[50] * 99, 51, *[50] * (ROWS - 100)]})
    folds = [frame[: ROWS - 500], frame[500:]]
    made = [dpf.Sanitizer(epsilon=1.0, spaces={"x": (0, 100)}, random_state=0).fit_transform(fold) for fold in folds]
    first, second = made[0]["x"].to_numpy(), made[1]["x"].to_numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < FAR
    assert abs(np.corrcoef(first[500:], second[:-500])[0, 1]) < FAR
    with pytest.warns(dpf.errors.RepeatedReleaseWarning):
        step = dpf.Sanitizer(epsilon=1.0, spaces={"x": (0, 100)}).fit(frame)
        step.transform(frame)
        step.transform(frame)


# ---------------------------------------------------------------------------------------------- how values lie


def coded(codes: list[int | None], entries: list[str]) -> pa.Table:
    indices = pa.array(codes, pa.int8())
    return pa.table({"x": pa.DictionaryArray.from_arrays(indices, pa.array(entries)), "y": [True] * len(codes)})


@every_face
def test_category_order(face: str, tmp_path: Path) -> None:
    """Entries stand in the declared order, whichever came first and however the input counted them."""
    plan = plan_for({"x": ["a", "b", "c"], "y": dpf.Boolean()})
    tables = [coded([0, 1, 2] * 9, ["c", "a", "b"]), coded([2, 0, 1] * 9, ["a", "b", "c"])]
    assert tables[0]["x"].to_pylist() == tables[1]["x"].to_pylist()
    assert len({FACES[face](table, plan, tmp_path) for table in tables}) == 1


@every_face
def test_unused_dictionary_entries(face: str, tmp_path: Path) -> None:
    """A category of rows that were filtered out stays in the dictionary; it does not leave."""
    plan = plan_for({"x": ["a", "b"], "y": dpf.Boolean()})
    found = FACES[face](coded([1, 2] * 9, [SECRET, "a", "b"]), plan, tmp_path)
    assert SECRET.encode() not in found
    assert found == FACES[face](coded([0, 1] * 9, ["a", "b"]), plan, tmp_path)


@pytest.mark.parametrize("space", [dpf.Integer(0, 9), dpf.Categorical([1, 2]), dpf.Real(0, 9), dpf.Ordinal([1, 2])])
def test_nulls_left_in_place(space: Any) -> None:
    """Whether a value is missing is a value, and as noisy as any other."""
    dtype = "Float64" if space.tag == "real" else "Int64"
    frame = pd.DataFrame({"x": pd.Series([1, None] * (ROWS // 2), dtype=dtype)})
    safe = dpf.sanitize(frame, plan=plan_for({"x": dpf.Nullable(space)}, 0.01, shuffle=False), key=KEY)
    assert 0.1 < safe["x"].isna().mean() < 0.9
    assert abs(np.corrcoef(safe["x"].isna(), frame["x"].isna())[0, 1]) < FAR


@typed_faces
def test_values_under_null_slots(face: str, tmp_path: Path) -> None:
    """What a null hides in its buffer changes nothing, and nothing lies under the nulls that leave."""
    plan = plan_for({"x": dpf.Nullable(dpf.Integer(0, 2**31)), "t": dpf.Nullable(dpf.Categorical(["a", "b"]))}, 0.5)
    found = set()
    for number, text in ((0, "a"), (918_273_645, SECRET)):
        valid = pa.py_buffer(np.packbits(np.arange(80) % 2 == 0, bitorder="little").tobytes())
        whole, words = pa.array([5, number] * 40), pa.array(["a", text] * 40)
        hidden = [pa.Array.from_buffers(a.type, 80, [valid, *a.buffers()[1:]]) for a in (whole, words)]
        found.add(FACES[face](pa.table(hidden, names=["x", "t"]), plan, tmp_path))
    assert len(found) == 1
    safe = dpf.sanitize(pa.table(hidden, names=["x", "t"]), plan=plan, key=KEY)
    assert all(len(stored_under_nulls(safe[name].combine_chunks())) == 1 for name in "xt")


@pytest.mark.parametrize("face", ["pandas", "CSV"])
def test_dtypes_that_follow_the_data(face: str, tmp_path: Path) -> None:
    """Neighbours whose own types differ: objects of pandas, and text that a reader would guess the type of."""
    neighbours = [[1, 2, 3], [1, 2, 3.5], [1, 2, None], [1, 2, 2**53 + 1], [None, None, 3]]
    plan = plan_for({"x": dpf.Nullable(dpf.Real(0, 9))}, 0.1)
    types = set()
    for values in neighbours:
        if face == "pandas":
            safe = dpf.sanitize(pd.DataFrame({"x": pd.Series(values, dtype=object)}), plan=plan, key=KEY)
        else:
            (tmp_path / "in.csv").write_text("x\n" + "".join(f'"{"" if v is None else v}"\n' for v in [*values[:2], 7]))
            dpf.sanitize(tmp_path / "in.csv", tmp_path / "out.parquet", plan=plan, key=KEY)
            safe = pd.read_parquet(tmp_path / "out.parquet")
        types.add((safe["x"].dtype, frozenset(type(v) for v in safe["x"].dropna())))
    assert len({dtype for dtype, _ in types}) == 1
    assert len(frozenset().union(*(kinds for _, kinds in types))) == 1


@every_face
def test_last_bits_of_a_bit_vector(face: str, tmp_path: Path) -> None:
    """Bits behind the last row of a column of booleans come from wherever the array was cut out of."""
    plan, found = plan_for({"x": dpf.Boolean()}), set()
    for rest in (False, True):
        found.add(FACES[face](pa.table({"x": pa.array([True] * 5 + [rest] * 59)[:5]}), plan, tmp_path))
    assert len(found) == 1


@pytest.mark.parametrize("items", [3, 63, 64, 65, 100])
def test_last_bits_of_a_set(items: int) -> None:
    """A set of h items is h bits in words of 64; the bits behind them are 0, whatever the noise flips."""
    space = dpf.Subset([str(i) for i in range(items)])
    plan = plan_for({"x": space}, 0.1)
    codes = space.code_array(sampled_sets(space, 400))
    words = released_codes({"x": codes}, plan, KEY)["x"]
    assert max(space.code_list(words)) < 1 << items
    assert words.shape == codes.shape


# --------------------------------------------------------------------------------------- what stands beside values


def marked() -> pd.DataFrame:
    """Return a table with a marker in every place beside its cells."""
    frame = pd.DataFrame({"x": [1, 2, 3] * 5, "y": pd.Categorical(["a", "b", "a"] * 5)})
    frame.index = pd.Index([SECRET] * 15, name=SECRET)
    frame.columns.name = SECRET
    frame.attrs = {SECRET: SECRET}
    return frame.set_flags(allows_duplicate_labels=True)


MARKED = {"x": (0, 9), "y": ["a", "b"]}


@pytest.mark.parametrize("shuffle", [True, False])
def test_index(shuffle: bool) -> None:
    safe = dpf.sanitize(marked(), plan=plan_for(MARKED, shuffle=shuffle), key=KEY)
    assert isinstance(safe.index, pd.RangeIndex)
    assert safe.columns.name is None
    assert SECRET.encode() not in _whole(safe)


@pytest.mark.parametrize("label", ["__arrow_array__", "__arrow_c_array__", "__arrow_c_device_array__"])
def test_labels_of_rows_that_a_library_asks_for(label: str) -> None:
    """Arrow looks up these names in a Series, which looks among its labels: one row's label refused the table."""
    rows = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 1.5, 2.5]})
    plan, safe = plan_for({"x": (0, 9), "y": dpf.Real(0, 9)}, n=3), []
    for labels in (["a", "b", "c"], ["a", label, "c"]):
        safe.append(dpf.sanitize(rows.set_axis(labels), plan=plan, key=KEY))
    pd.testing.assert_frame_equal(*safe)


@pytest.mark.parametrize("shuffle", [True, False])
def test_attrs(shuffle: bool) -> None:
    safe = dpf.sanitize(marked(), plan=plan_for(MARKED, shuffle=shuffle), key=KEY)
    assert list(safe.attrs) == ["dpframe"]
    assert SECRET not in json.dumps(safe.attrs)


def test_pandas_metadata(tmp_path: Path) -> None:
    """pandas writes names of indexes, attrs and ranges into a file; of those of the input nothing is read."""
    marked().to_parquet(tmp_path / "in.parquet")
    plan = plan_for(MARKED, drop=[SECRET])
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    found = pq.read_schema(tmp_path / "out.parquet").metadata
    assert set(found) <= {b"dpframe", b"PANDAS_ATTRS", b"pandas"}
    # The name of the column that was dropped is public, and stands in the plan.
    assert SECRET not in found.get(b"pandas", b"").decode()
    assert json.loads(json.loads(found[b"PANDAS_ATTRS"])["dpframe"])["plan"]["drop"] == [SECRET]


@pytest.mark.parametrize("face", ["Arrow", "Parquet", "pandas on Arrow", "polars"])
def test_field_metadata(face: str, tmp_path: Path) -> None:
    note = {"note": SECRET}
    schema = pa.schema([pa.field("x", pa.int64(), metadata=note), pa.field("y", pa.bool_(), metadata=note)], note)
    table = pa.table([[1, 2] * 9, [True, False] * 9], schema=schema)
    assert SECRET.encode() not in FACES[face](table, plan_for({"x": (0, 9), "y": dpf.Boolean()}), tmp_path)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_source_paths(ending: str, tmp_path: Path) -> None:
    folder = tmp_path / SECRET
    folder.mkdir()
    pd.DataFrame({"x": [1, 2] * 9}).to_parquet(folder / f"{SECRET}.parquet", index=False)
    dpf.sanitize(folder / f"{SECRET}.parquet", tmp_path / f"out.{ending}", plan=plan_for({"x": (0, 9)}))
    left = [path for path in tmp_path.iterdir() if path.is_file()]
    assert left
    assert all(SECRET.encode() not in path.read_bytes() for path in left)


def test_parquet_statistics(tmp_path: Path) -> None:
    """Pages of noise have no statistics and no index; of what is passed through unprotected they are the input's."""
    sets = pa.array([["m"], ["a", "m"]] * 500)
    table = pa.table({"x": pa.array([1, None] * 500), "t": ["m", SECRET] * 500, "sets": sets, "open": [3, 4] * 500})
    table = table.append_column("f", pa.array([0.5, 0.25] * 500))
    spaces = {
        "x": dpf.Nullable(dpf.Integer(0, 9)),
        "t": dpf.Categorical(["a", "z"], other="a"),
        "sets": dpf.Subset(["a", "m"]),
        "f": (0.0, 1.0),
    }
    plan = dpf.plan(table, 1.0, delta=0.0, spaces=spaces, passthrough=["open"])
    assert SECRET.encode() not in _parquet(table, plan, tmp_path)
    group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
    found = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    kept = found["open"].statistics
    assert (kept.min, kept.max) == (3, 4)
    assert len(found) == 5
    for name, column in found.items():
        assert column.is_stats_set == (name == "open")
        assert not column.has_column_index
        assert not column.has_offset_index


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_min_max_read_off_the_data() -> None:
    """One row beyond all others moves no bound; asked for, it is warned of, and recorded as a leak."""
    values = np.arange(2_000) % 100
    plans = []
    for odd in (50, 918_273_645):
        frame = pd.DataFrame({"x": [*values, odd]})
        plan = dpf.plan(frame, 1.0, 1e-6)
        assert "918273645" not in plan.to_json()
        plans.append(plan["x"].space)
        with pytest.raises(dpf.ParameterError, match="needs a declared space"):
            dpf.plan(frame, 1.0, infer="public")
    assert all(0 < space.inner_space.upper < 2_000 for space in plans)
    with pytest.warns(PrivacyLeakWarning, match="read off the data"):
        read = dpf.plan(frame, 1.0, infer="data")
    assert read.leaks == ("x",)


# ------------------------------------------------------------------------------------------------ while it works


def test_spill_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in input order wait on disk for their places: in a file without a name, the owner's alone, encrypted.

    At this budget every released age is 42. Encrypted, each byte value has the same share: the statistic has 255
    degrees of freedom, and exceeds 400 with probability below 1e-8.
    """
    small_parts(monkeypatch, bucket_rows=700, spill_rows=500, held_bytes=0)
    rows, found = 20_000, {}
    pq.write_table(pa.table({"age": [42] * rows, "note": [SECRET] * rows}), tmp_path / "in.parquet")
    plan = dpf.plan(
        pq.read_table(tmp_path / "in.parquet"), 500.0, spaces={"age": (0, 99)}, passthrough=["note"], measure=None
    )

    def look(done: int, total: int) -> None:
        for link in Path("/proc/self/fd").iterdir():
            try:
                name, status = os.readlink(link), link.stat()
            except FileNotFoundError:
                continue
            if name.startswith(f"{tmp_path}/") and "in.parquet" not in name and status.st_size > 100_000:
                found[name] = (status, link.read_bytes())

    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=1_000, progress=look, key=KEY)
    ((name, (status, raw)),) = found.items()
    assert name.endswith("(deleted)")
    assert status.st_nlink == 0
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert SECRET.encode() not in raw
    counts = np.bincount(np.frombuffer(raw, np.uint8), minlength=256)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 400
    assert raw[:4_096] not in raw[4_096:]
    assert {path.name for path in tmp_path.iterdir()} == {"in.parquet", "out.parquet"}


UNFIT: list[tuple[str, Any, Any]] = [
    ("categories", [SECRET], ["a", "b"]),
    ("ranks", [SECRET], dpf.Ordinal(["a", "b"])),
    ("numbers", [SECRET], (0, 9)),
    ("objects", [{SECRET: 1}], (0, 9)),
    ("times", [SECRET], dpf.Datetime("2020-01-01", "2020-02-01")),
    ("flags", [SECRET], dpf.Boolean()),
    ("items", [[SECRET]], dpf.Subset(["a", "b"])),
    ("vectors", [[SECRET]], dpf.Vector(1, 1.0)),
    ("lengths", [[1.0, 918_273_645.0]], dpf.Vector(3, 1.0)),
    ("infinity", [float("inf")], dpf.Real(0, 1)),
]


@pytest.mark.parametrize(("values", "space"), [case[1:] for case in UNFIT], ids=[case[0] for case in UNFIT])
def test_errors_that_print_values(values: Any, space: Any) -> None:
    """They name the column, the rule and the row's position."""
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    message = refused(ColumnError, "^column 'x'", lambda: dpf.sanitize(frame, epsilon=1.0, spaces={"x": space}))
    assert "918" not in message


def test_progress_that_prints_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts rows, of which the number is public, and says nothing else, in Python and on a terminal."""
    pq.write_table(pa.table({"x": [SECRET] * 50}), tmp_path / "in.parquet")
    plan, seen = plan_for({"x": dpf.Categorical(["a"], other="b")}, n=50), []
    dpf.sanitize(
        tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=20, progress=lambda *a: seen.append(a)
    )
    assert seen == [(20, 50), (40, 50), (50, 50)]
    (tmp_path / "plan.json").write_text(plan.to_json())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # restored afterwards
    with pytest.raises(SystemExit) as stopped:
        main(["sanitize", "in.parquet", "out.parquet", "--plan", "plan.json"])
    said = capsys.readouterr()
    assert stopped.value.code == 0
    assert said.out
    assert SECRET not in said.out + said.err


def shell(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dpframe", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@typed_faces
def test_sorted_input_with_its_order_kept(face: str, tmp_path: Path) -> None:
    """It is warned of where it happens, and never in the plan: that the rows were sorted tells of them."""
    plan = plan_for({"x": (0, 100)}, shuffle=False)
    ascending = pa.table({"x": list(range(60))})
    mixed = ascending.take(pa.array(np.random.default_rng(0).permutation(60)))
    with pytest.warns(OrderLeakWarning, match=r"the input is sorted.*keeps its order"):
        FACES[face](ascending, plan, tmp_path)
    with warnings.catch_warnings(action="error"):
        FACES[face](mixed, plan, tmp_path)
    told = []
    for table in (ascending, mixed):
        with warnings.catch_warnings(action="ignore", category=OrderLeakWarning):
            told.append(json.loads(dpf.sanitize(table, plan=plan, key=KEY).schema.metadata[b"dpframe"]))
    assert told[0]["plan"] == told[1]["plan"]
    assert {name for name in told[0] if told[0][name] != told[1][name]} <= {"digest"}


@pytest.mark.parametrize("shuffle", [True, False])
def test_partition_folders(shuffle: bool, tmp_path: Path) -> None:
    """A folder's name is a value: it is randomised like one, and neither files nor groups of rows follow it."""
    for i, key in enumerate(["north", SECRET]):
        (tmp_path / "in" / f"region={key}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2] * (5 + 7 * i)}), tmp_path / "in" / f"region={key}" / "0.parquet")
    plan = plan_for({"x": (0, 9), "region": dpf.Categorical(["north"], other="elsewhere")}, 0.5, shuffle=shuffle)
    with warnings.catch_warnings(action="ignore", category=OrderLeakWarning):
        dpf.sanitize(tmp_path / "in", tmp_path / "out.parquet", plan=plan, key=KEY)
    assert SECRET.encode() not in (tmp_path / "out.parquet").read_bytes()
    found = pq.read_metadata(tmp_path / "out.parquet")
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [34]


def test_layout_of_the_input() -> None:
    """Chunks of a table that was put together of parts would tell how many rows each had."""
    parts = [pa.table({"x": [i] * rows, "y": [i] * rows}) for i, rows in enumerate((7, 20, 3))]
    plan = plan_for({"x": (0, 9)}, shuffle=False, passthrough=["y"])
    with warnings.catch_warnings(action="ignore", category=OrderLeakWarning):
        safe = dpf.sanitize(pa.concat_tables(parts), plan=plan, key=KEY)
        frame = pl.concat([pl.from_arrow(part) for part in parts], rechunk=False)
        frames = dpf.sanitize(frame, plan=plan, key=KEY)
    assert [len(chunk) for name in "xy" for chunk in safe[name].chunks] == [30, 30]
    assert frames.n_chunks() == 1


@pytest.mark.slow
def test_tracebacks_with_locals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails on the command line is told by its kind; typer would print every local variable."""

    def broken(*_: Any, **__: Any) -> None:
        secret = SECRET
        raise RuntimeError(secret)

    monkeypatch.setattr(dpf.Plan, "to_json", broken)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # restored afterwards
    pq.write_table(pa.table({"flag": [True, False] * 9}), tmp_path / "in.parquet")
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(tmp_path / "in.parquet"), "--epsilon", "1", "--space", "flag=true,false", "--json"])
    said = capsys.readouterr()
    assert (stopped.value.code, said.out) == (70, "")
    assert said.err == "dpframe: internal error (RuntimeError); please report it\n"
    pq.write_table(pa.table({"born": pa.array([dt.date(2020, 1, 1)] * 2), "x": [SECRET] * 2}), tmp_path / "in.parquet")
    (tmp_path / "spaces.json").write_text('{"x": ["a"], "born": {"lower": "2020-01-01", "upper": "2021-01-01"}}')
    words = "sanitize in.parquet out.parquet --epsilon 1 --spaces spaces.json"
    found = shell(tmp_path, *words.split())
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert SECRET not in found.stderr
