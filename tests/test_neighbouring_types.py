"""Neighbouring frames differ in one row, and in nothing else that is seen: no dtype, plan, warning or refusal.

pandas chooses the dtype of a categorical's entries, and what is within an object column, by the values. Neither is a
public fact here. A column's own dtype is: who lets pandas, or another reader, choose it by the values, as of numbers
with one fraction, one null or one word, has let one row choose before the library sees the table. The same holds for
the type of an Arrow column, of a file's column, and for the order of an ordered categorical, which is a declaration.
"""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import KEY
from examples import space_of
from measure import codes_in

import dpframe as dpf
from dpframe.errors import ColumnError

N = 1200
DAY = dt.date(2020, 1, 1)
EAST = dt.timezone(dt.timedelta(hours=2))

COLUMNS: dict[str, list[Any]] = {
    "words": ["a", "b", "c"] * (N // 3),
    "flags": [True, False, True] * (N // 3),
    "counts": [1, 2, 3] * (N // 3),
    "sizes": [0.25, 1.5, 3.75] * (N // 3),
    "days": [DAY, DAY + dt.timedelta(40), DAY + dt.timedelta(80)] * (N // 3),
    "stamps": [dt.datetime(2020, month, 1, tzinfo=dt.UTC) for month in (1, 5, 9)] * (N // 3),
}

ODD: list[Any] = [
    None, np.nan, pd.NA, pd.NaT, "odd", "\ud800", b"a", True, 2, 2.0, 1.5, np.inf, 2**70, -(2**63), Decimal("0.5"),
    dt.date(1999, 12, 31), dt.datetime(2020, 5, 1), dt.datetime(2020, 5, 1, tzinfo=EAST), dt.timedelta(1), dt.time(3),
    pd.Timestamp("2020-05-01"), pd.Interval(0, 1), pd.Period("2020"), np.float32(0.1), np.int8(3), ("a", 1), object,
]  # fmt: skip


def objects(values: Sequence[Any]) -> pd.Series[Any]:
    return pd.Series(np.fromiter(values, dtype=object, count=len(values)), dtype=object)


def category(values: Sequence[Any]) -> pd.Series[Any]:
    """As pandas makes it: the entries' dtype is that of the values, and follows them."""
    whole = list(values)
    unread = any(value is pd.NA or value == "\ud800" for value in whole)  # which pandas has of no list
    return pd.Series(pd.Categorical(objects(whole) if unread else whole))


MADE: dict[str, Callable[[Sequence[Any]], pd.Series[Any]]] = {"objects": objects, "category": category}


def frame_with(odd: Any, place: int, made: Callable[[Sequence[Any]], pd.Series[Any]]) -> pd.DataFrame:
    """Return the table with a row in which every column has an odd value."""
    columns = {name: [*values[:place], odd, *values[place + 1 :]] for name, values in COLUMNS.items()}
    return pd.DataFrame({name: made(values) for name, values in columns.items()})


@cache
def plain(made: Callable[[Sequence[Any]], pd.Series[Any]]) -> pd.DataFrame:
    return pd.DataFrame({name: made(values) for name, values in COLUMNS.items()})


def seen(call: Callable[[], Any]) -> tuple[Any, list[tuple[str, str]]]:
    """Return what a call gives, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [(warning.category.__name__, str(warning.message)) for warning in caught]


def types_of(safe: pd.DataFrame) -> list[Any]:
    """Return the dtypes, those of entries and objects too."""
    kinds = []
    for name in safe:
        dtype: Any = safe[name].dtype
        entries = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else safe[name].dropna()
        kinds.append((name, str(entries.dtype), sorted({type(entry).__name__ for entry in entries})))
    return kinds


def plan_of(safe: pd.DataFrame) -> dpf.Plan:
    return dpf.ReleaseInfo.from_json(safe.attrs["dpframe"]).plan


def shape_of(plan: dpf.Plan) -> list[Any]:
    """Return everything of a plan but what noisy counts say of the values."""
    columns = [(column.name, column.space.tag, column.space.inner_space.tag) for column in plan.columns]
    assert plan.inferred is not None
    asked = [(m.column, m.kind, m.variance) for m in plan.inferred.measured]
    return [columns, asked, plan.inferred.thresholds, plan.inferred.budget, plan.epsilon, plan.delta, plan.n]


def private(frame: pd.DataFrame) -> list[Any]:
    safe, warned = seen(lambda: dpf.sanitize(frame, epsilon=8.0, delta=1e-5, key=KEY, measure=None))
    return [shape_of(plan_of(safe)), types_of(safe), warned]


@cache
def usual(made: str) -> list[Any]:
    return private(plain(MADE[made]))


def named(odd: Any) -> str:
    return ascii(odd)


@pytest.mark.walk(5)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("odd", ODD, ids=named)
def test_leak_one_row_of_private_inference_chooses_no_type(made: str, odd: Any) -> None:
    """The same histograms, noises, thresholds, kinds of spaces, dtypes and warnings; a row is one count of a kind."""
    assert private(frame_with(odd, N - 1, MADE[made])) == usual(made)
    kinds = ["categorical", "boolean", "integer", "real", "datetime", "datetime"]
    assert [space for _, _, space in usual(made)[0][0]] == kinds


SPACES: dict[str, Any] = {
    "words": ["a", "b", "c"],
    "flags": dpf.Boolean(),
    "counts": (0, 9),
    "sizes": (0.0, 9.0),
    "days": ("2020-01-01", "2020-12-31"),
    "stamps": dpf.Nullable(dpf.Datetime("2020-01-01", "2020-12-31", "h")),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("odd", ODD, ids=named)
def test_leak_one_row_of_declared_spaces_chooses_no_type(made: str, odd: Any) -> None:
    """The same plan, the same codes of all other rows; what is refused, for the curator's eyes, is the row."""
    frame, before = frame_with(odd, 7, MADE[made]), plain(MADE[made])
    plan = dpf.plan(frame, 1.0, 1e-6, spaces=SPACES, measure=None)
    assert plan == dpf.plan(before, 1.0, 1e-6, spaces=SPACES, measure=None)
    for column in plan.columns:
        codes = codes_in(before, column.name, column.space)
        try:
            found = codes_in(frame, column.name, column.space)
        except ColumnError as error:
            assert error.row == 7, error
            continue
        assert np.delete(found, 7).tolist() == np.delete(codes, 7).tolist()


@pytest.mark.parametrize("made", MADE)
def test_leak_dtypes_of_releases_with_declared_spaces(made: str) -> None:
    spaces = {name: dpf.Nullable(space_of(space).inner_space) for name, space in SPACES.items()}
    plan = dpf.plan(plain(MADE[made]), 1.0, 1e-6, spaces=spaces, measure=None)
    found = []
    for frame in (plain(MADE[made]), frame_with(None, N - 1, MADE[made]), frame_with(None, 0, MADE[made])):
        safe, warned = seen(lambda frame=frame: dpf.sanitize(frame, plan=plan, key=KEY))
        found.append((types_of(safe), warned))
    assert found[0] == found[1] == found[2]


def test_leak_entries_that_no_row_has() -> None:
    """Rows that were filtered out leave their entries behind, and with them another dtype."""
    frame = plain(category)
    for more in (["unused"], [0.5, "unused", DAY]):
        other = frame.assign(**{name: frame[name].cat.add_categories(_new(frame[name], more)) for name in frame})
        assert private(other) == usual("category")
        for name, space in SPACES.items():
            space = space_of(space)
            codes = [codes_in(one, name, space).tolist() for one in (frame, other)]
            assert codes[0] == codes[1]


def _new(column: pd.Series[Any], entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if entry not in [*column.cat.categories]]


def test_leak_an_entry_that_is_refused_is_told_by_the_first_row_that_has_it() -> None:
    column = pd.Series(pd.Categorical([3, 1, None, "x", 2, "y", "x"], categories=["unused", "y", "x", 3, 2, 1]))
    with pytest.raises(ColumnError, match=r"^column 'x' at row.*3:.*number, and Integer"):
        codes_in(pd.DataFrame({"x": column}), "x", dpf.Nullable(dpf.Integer(0, 9)))
    with pytest.raises(ColumnError, match=r"^column 'x' at row position 2: is null"):
        codes_in(pd.DataFrame({"x": column[:3]}), "x", dpf.Integer(0, 9))


def test_categoricals_of_numbers_have_the_codes_of_the_numbers() -> None:
    for dtype in ("int8", "uint16", "int64", "float32", "float64"):
        values = np.array([0, 1, 2, 7, 90], dtype=dtype)
        values = values / np.array(8, dtype=dtype) if "float" in dtype else values
        grid = dpf.Real(0.0, 3.3) if "float" in dtype else dpf.Integer(0, 50)
        for space in (grid, dpf.Categorical(values[:4].tolist(), other=values.dtype.type(50).item())):
            column = pd.Series(np.tile(values, 3))
            frames = [pd.DataFrame({"x": made}) for made in (column, column.astype("category"))]
            codes = [codes_in(frame, "x", space).tolist() for frame in frames]
            assert codes[0] == codes[1]


@pytest.mark.slow
@pytest.mark.parametrize("years", [1, 30, 400])
def test_categoricals_of_times_get_a_grid_that_can_be_listed(years: int) -> None:
    stamps = pd.date_range("1700-01-01", periods=24, freq=f"{years * 15}D", unit="us")
    frame = pd.DataFrame({"x": pd.Categorical(np.resize(stamps, N))})
    safe = dpf.sanitize(frame, epsilon=8.0, delta=1e-5, key=KEY, measure=None)
    assert len(safe["x"].cat.categories) <= 1 << 16
    assert abs(pd.Timestamp(safe["x"].cat.categories[0]) - stamps[0]) < pd.Timedelta(days=40 * years)


@pytest.mark.parametrize("odd", [3, "b", None])
def test_leak_sparse_objects_are_objects(odd: Any) -> None:
    """Without the number pandas makes them text, which was read on another path."""

    def made(values: list[Any]) -> pd.DataFrame:
        return pd.DataFrame({"x": pd.Series(values, dtype=pd.SparseDtype(object, None))})

    assert private(made([*["a", None] * (N // 2 - 1), "a", odd])) == private(made(["a", None] * (N // 2)))


TEXTS = ["", "x", "1.5", "-7", "1e999", "NaN", "true", "2020-01-01", "2020-01-01 08:00:00+02:00", '"1"']


@pytest.mark.walk(3)
@pytest.mark.parametrize("odd", TEXTS, ids=named)
def test_leak_one_row_of_csv_chooses_no_type(odd: str, tmp_path: Path) -> None:
    """No type is guessed: of what a column is written, noisy counts of all rows decide."""
    columns = {"words": ["a", "b", "c"], "flags": ["true", "false", "true"], "counts": ["1", "2", "3"]}
    columns["days"] = ["2020-01-01", "2020-02-01", "2020-03-01"]
    found = []
    for last in (None, odd):
        rows = [",".join(row) for row in zip(*columns.values(), strict=True)] * (N // 3)
        rows = rows if last is None else [*rows[:-1], ",".join([last] * len(columns))]
        (tmp_path / "in.csv").write_text("\n".join([",".join(columns), *rows]) + "\n")
        out = tmp_path / f"{len(found)}.parquet"
        _, warned = seen(lambda out=out: dpf.sanitize(tmp_path / "in.csv", out, 8.0, 1e-5, key=KEY, measure=None))
        safe = pd.read_parquet(out)
        # One row moves noisy counts by one, and a hint of nulls is said from such a count on.
        others = [one for one in warned if "noisy counts hint at values" not in one[1]]
        found.append([shape_of(plan_of(safe)), types_of(safe), others])
    assert found[0] == found[1]
