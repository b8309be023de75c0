"""What a plan does to a table, for its curator alone."""

from __future__ import annotations

import datetime as dt
import pickle
import re
from functools import cache

import commands
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

import dpframe as dpf

N = 400
TABLE = pd.DataFrame(
    {
        "age": np.tile([10, 20, 30, 140], N // 4),
        "job": np.tile(["cook", "nurse", None, "a clown"], N // 4),
        "pets": [["cat"], ["cat", "dog", "fish"], [], None] * (N // 4),
        "born": pd.to_datetime(np.tile(["1990-01-01", "2000-01-01", "2010-01-01", "2010-01-01"], N // 4)),
        "ill": np.tile([True, False], N // 2),
    }
)
SPACES = {
    "age": (0, 100),
    "job": dpf.Nullable(dpf.Categorical(["cook", "nurse"], other="other")),
    "pets": dpf.Nullable(dpf.Subset(["cat", "dog", "fish"], max_size=2)),
    "born": ("1995-01-01", "2020-01-01"),
    "ill": dpf.Boolean(),
}


@cache
def people_plan():
    return dpf.plan(TABLE, 4.0, 1e-4, spaces=SPACES)


def test_what_coding_changes_is_counted():
    found = TABLE.dp.check(people_plan()).columns
    assert found["clamped"].dropna().to_dict() == {"age": 0.25, "born": 0.25}
    assert found["outside"].dropna().to_dict() == pytest.approx({"job": 1 / 3, "ill": 0.0})
    assert found["null"].to_dict() == {"age": 0.0, "job": 0.25, "pets": 0.25, "born": 0.0, "ill": 0.0}
    assert found["cut"].dropna().to_dict() == pytest.approx({"pets": 1 / 3})
    assert found.loc["age", "shift"] == -10
    assert found.loc["pets", "shift"] == pytest.approx(1 / 9), "one item of three, of every third set"
    assert found.loc["born", "shift"] == pd.Timedelta("1826 days") / 4
    assert "refused" not in found


def test_declared_spaces_are_tried_before_there_is_a_plan():
    """Only their columns are looked at, and no release is tried: of a draft, too, which this is to review."""
    found = TABLE.dp.check(spaces={"age": (0, 100), "job": SPACES["job"]})
    assert list(found.columns.index) == ["age", "job"]
    assert not len(found.errors)
    lower = 100 * (1 - TABLE["age"].clip(0, 100).std() / TABLE["age"].std())
    assert found.columns.loc["age", "narrowed"] == pytest.approx(lower / 100)
    assert found.lines == [
        "age: 25 % of the values lie outside the bounds and are clipped to them, which moves the mean by -10 "
        f"and lowers the std by {lower:.2g} %",
        "job: 33 % of the values are not among the categories",
    ]
    assert TABLE.dp.check(people_plan()).lines[2:] == [
        "job: 33 % of the values are not among the categories",
        "pets: 33 % of the sets lose items: undeclared ones, or those beyond the largest size",
    ]
    assert "clipped" not in str(TABLE.dp.check(spaces={"age": (10, 140)}))
    drafted = TABLE[["age", "ill"]].dp.draft()
    assert list(TABLE[["age", "ill"]].dp.check(spaces=drafted).columns.index) == ["age", "ill"]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({}, r"give a plan, or spaces=.*; draft\(\) proposes spaces"),
        ({"spaces": {}}, "give a plan, or spaces="),
        ({"spaces": 5}, "spaces must be a dict"),
        ({"spaces": {"agee": (0, 1)}}, "spaces names 'agee', .* did you mean 'age'"),
    ],
)
def test_a_check_takes_a_plan_or_spaces(arguments, refusal):
    with pytest.raises(dpf.ParameterError, match=refusal):
        TABLE.dp.check(**arguments)
    with pytest.raises(dpf.ParameterError, match="spaces are already decided by the plan"):
        TABLE.dp.check(plan=people_plan(), spaces=SPACES)


@pytest.mark.slow
def test_errors_stand_beside_their_forecast():
    """Root mean squares of 20 releases: within a half of the forecast for shares, whose coded truth is known."""
    errors = [TABLE.dp.check(people_plan()).errors for _ in range(20)]
    shares = [("marginal", "job"), ("marginal", "ill"), ("joint", "job × ill")]
    for name in shares:
        found = np.sqrt(np.mean([table.loc[name, "error"] ** 2 for table in errors]))
        assert 0.5 < found / errors[0].loc[name, "forecast"] < 1.5
    assert errors[0].loc[("mean", "age"), "error"] == pytest.approx(10, abs=5), "clamping is most of it"


def test_it_is_no_release_and_says_what_it_is(tmp_path):
    found = TABLE.dp.check(people_plan())
    for text in (str(found), repr(found), found._repr_html_()):
        assert "ONLY FOR THE CURATOR: exact numbers of the data" in text
    with pytest.raises(dpf.ParameterError, match="do not store it"):
        pickle.dumps(found)
    with pytest.raises(dpf.NotSanitizedError):
        dpf.write(found.errors, tmp_path / "errors.parquet")
    assert not (tmp_path / "errors.parquet").exists()
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = found.plot()
    assert ax.get_title().startswith("ONLY FOR THE CURATOR")
    assert ax.get_xscale() == "log"
    pyplot.close("all")


def test_half_floats_are_compared_too():
    frame = pd.DataFrame({"x": np.array([1, 2, 3, 9] * 50, dtype=np.float16)})
    for space in ((0, 8), dpf.Real(0, 8, steps=16)):
        assert frame.dp.check(spaces={"x": space}).columns.loc["x", "clamped"] == 0.25
    alike = frame.assign(x=np.float16(9)).dp.check(spaces={"x": (0, 8)}).columns.loc["x"]
    assert (alike["clamped"], alike["narrowed"]) == (1, 0)


def test_what_stops_a_release_is_said():
    found = TABLE.assign(ill=[None, True] * (N // 2)).dp.check(people_plan())
    assert "is null, and its space holds no nulls" in found.columns.loc["ill", "refused"]
    assert list(found.refused) == ["ill"]
    assert found.lines[0].startswith("ill: a release is refused, as a value is null, and its space holds no nulls")
    assert not len(found.errors)
    assert len(TABLE.head(0).dp.check(people_plan()).errors) == 0
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="a release already; check takes the original table"):
        TABLE.dp.sanitize(plan=people_plan()).dp.check(people_plan())
    with pytest.raises(dpf.ParameterError, match="plan must be a Plan"):
        TABLE.dp.check(people_plan().to_json())
    with pytest.raises(dpf.ColumnError, match=r"'ill': is in the.*in the table"):
        TABLE.drop(columns="ill").dp.check(people_plan())


def test_the_command_line_checks(tmp_path, capsys):
    TABLE.to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "plan.json").write_text(people_plan().to_json(), encoding="utf-8")
    for name, code, said in (("in", 0, "ONLY FOR THE CURATOR"), ("out", 2, "is a release already")):
        if name == "out":
            dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=people_plan())
        with pytest.raises(SystemExit) as stopped:
            commands.dpframe("check", tmp_path / f"{name}.parquet", "--plan", tmp_path / "plan.json")
        assert (stopped.value.code or 0) == code
        assert said in "".join(capsys.readouterr())


def test_declared_spaces_are_tried_from_a_shell(tmp_path, capsys):
    TABLE[["age", "ill"]].to_csv(tmp_path / "in.csv", index=False)
    (tmp_path / "spaces.json").write_text('// reviewed: false\n{"age": {"lower": 0, "upper": 10}}')
    for options, out, err in (
        (["--space", "age=0,100"], "age: 25 % of the values lie outside", ""),
        (["--spaces", tmp_path / "spaces.json"], "age: 75 % of the values lie outside", ""),
        (["--spaces", tmp_path / "spaces.json", "--space", "age=0,30"], "age: 25 % of the values lie outside", ""),
        ([], "age: Integer(lower=0, ", ""),
        (["--plan", tmp_path / "plan.json", "--space", "age=0,100"], "", "already decided by --plan; leave --spaces"),
        (["--space", "agee=0,100"], "", "did you mean 'age'? "),
    ):
        with pytest.raises(SystemExit) as stopped:
            commands.dpframe("check", tmp_path / "in.csv", *options)
        assert (stopped.value.code or 0) == (2 if err else 0)
        captured = capsys.readouterr()
        assert out in captured.out
        assert err in captured.err


def test_dates_of_a_file_have_errors(tmp_path, capsys):
    """Files hold dates without a time, whose mean is one of instants."""
    source = tmp_path / "dates.csv"
    source.write_text("day\n" + "2024-01-01\n2024-03-01\n" * 500)
    plan = dpf.plan(source, 4, 1e-6, spaces={"day": ("2024-01-01", "2024-12-31")})
    (tmp_path / "plan.json").write_text(plan.to_json())
    with pytest.raises(SystemExit) as stopped:
        commands.dpframe("check", source, "--plan", tmp_path / "plan.json")
    assert stopped.value.code == 0
    assert "mean      day" in capsys.readouterr().out


@pytest.mark.slow
def test_decimals_that_whole_numbers_lose_are_counted(tmp_path, capsys):
    """Of a file of texts whole bounds mean whole numbers."""
    source = tmp_path / "shop.csv"
    source.write_text("amount,visits,price,spare\n" + "10.81,3,10.81,\n400.5,4,0.5,2.5\n7,5,1,3\nnan,6,2,4\n" * 100)
    real = {"price": (0.0, 300.0)}
    gaps = {"amount": dpf.Nullable(dpf.Integer(0, 300)), "spare": dpf.Nullable(dpf.Integer(0, 9))}
    whole = gaps | {"visits": dpf.Integer(0, 10)}
    plan = dpf.plan(source, 4, 1e-6, spaces=whole | real)
    (tmp_path / "plan.json").write_text(plan.to_json())
    with pytest.raises(SystemExit):
        commands.dpframe("check", source, "--plan", tmp_path / "plan.json")
    out = capsys.readouterr().out
    assert "amount, spare: values between the steps are rounded; where decimals matter, declare bounds with a" in out
    frame = pd.read_csv(source).astype({"visits": float})
    found = frame.dp.check(dpf.plan(frame, 4, 1e-6, spaces=whole | real | {"visits": dpf.Integer(0, 10)}))
    assert found.columns["rounded"].dropna().to_dict() == pytest.approx({"amount": 1 / 3, "visits": 0, "spare": 1 / 3})
    assert "amount, spare: values between" in found._repr_html_()
    assert not frame[["visits"]].dp.check(dpf.plan(frame[["visits"]], 4, 1e-6, spaces={"visits": (0, 10)})).lines


WRITTEN = {
    "whole": pa.array([3, 7, 11], pa.int64()),
    "tiny": pa.array([3, 7, 11], pa.uint8()),
    "real": pa.array([0.5, 7.25, 11.0]),
    "single": pa.array([0.5, 7.25, 11.0], pa.float32()),
    "money": pa.array(["0.50", "7.25", "11.00"]).cast(pa.decimal128(9, 2)),
    "day": pa.array([18300, 18400, 18500], pa.int32()).cast(pa.date32()),
    "moment": pa.array([1_600_000_000, 1_610_000_000, 1_620_000_000], pa.timestamp("s")),
    "zoned": pa.array([1_600_000_000, 1_610_000_000, 1_620_000_000], pa.timestamp("s", "UTC")),
    "flag": pa.array([True, False, True]),
    "word": pa.array(["a", "b", "a"]),
    "coded": pa.array(["a", "b", "a"]).dictionary_encode(),
    "number": pa.array([1, 2, 1]),
}
DAYS = ("2020-01-01", "2021-12-31")
DECLARED = {
    "whole": dpf.Integer(0, 10),
    "tiny": dpf.Integer(0, 10),
    "real": (0.0, 10.0),
    "single": (0.0, 10.0),
    "money": (0.0, 10.0),
    "day": DAYS,
    "moment": DAYS,
    "zoned": DAYS,
    "flag": dpf.Boolean(),
    "word": ["a", "b"],
    "coded": ["a", "b"],
    "number": dpf.Ordinal([1, 2]),
}
PARQUET_ONLY = {
    "items": (pa.array([["a"], ["a", "b"], []]), dpf.Subset(["a", "b"])),
    "wait": (pa.array([3600, 7200, 0], pa.duration("s")), dpf.Datetime(dt.timedelta(0), dt.timedelta(hours=3), "min")),
}


def _in_json(space):
    if isinstance(space, tuple):
        return {"lower": space[0], "upper": space[1]}
    return space if isinstance(space, list) else space.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_every_kind_of_column_of_a_file_is_checked(tmp_path, capsys, ending, nulls):
    pairs = {name: (WRITTEN[name], DECLARED[name]) for name in WRITTEN} | (PARQUET_ONLY if ending == "parquet" else {})
    columns = {name: pa.concat_arrays([values] * 100) for name, (values, _) in pairs.items()}
    spaces = {name: space for name, (_, space) in pairs.items()}
    if nulls:
        held = pa.array([False] + [True] * 299)
        columns = {name: pc.if_else(held, values, pa.scalar(None, values.type)) for name, values in columns.items()}
        spaces = {name: {"space": "nullable", "inner": _in_json(space)} for name, space in spaces.items()}
    source, plan = tmp_path / f"in.{ending}", tmp_path / "plan.json"
    write = pa.csv.write_csv if ending == "csv" else pa.parquet.write_table
    write(pa.table(columns), source)
    # Tables would take most of the time, and are not what is checked.
    plan.write_text(dpf.plan(source, 4, 1e-6, spaces=spaces, measure=None).to_json())
    with pytest.raises(SystemExit) as stopped:
        commands.dpframe("check", source, "--plan", plan)
    out = capsys.readouterr().out
    assert stopped.value.code == 0, out
    assert "refused" not in out
    assert [name for name in columns if not re.search(rf"^(mean|marginal)? +{name} ", out, re.M)] in ([], ["items"])


@pytest.mark.slow
def test_nulls_that_become_a_value_are_counted():
    """A plan that imputes says so, and a check what it moves: means of four and five, and 3 for every other row."""
    frame = pd.DataFrame({"rating": [4.0, 5.0, None, None] * 100, "sex": ["F", "M", "F", None] * 100})
    plan = frame.dp.plan(epsilon=1, spaces={"rating": (1.0, 5.0), "sex": ["F", "M"]}, nulls="impute")
    found = frame.dp.check(plan)
    assert found.columns["imputed"].to_dict() == {"rating": 0.5, "sex": 0.25}
    assert found.columns.loc["rating", "shift"] == pytest.approx(-0.75, abs=1e-4)
    assert found.lines[0] == (
        "rating: 50 % of the values are null and become the middle of the bounds, or 'other' or the first category, "
        "which moves the mean by -0.75"
    )
    assert found.lines[1].startswith("sex: 25 % of the values are null and become")
    assert "A null in rating, sex becomes the middle of the bounds" in str(plan.explain())
    whole = frame.dp.plan(epsilon=1, spaces={"rating": dpf.Nullable(dpf.Real(1, 5)), "sex": ["F", "M"]}, nulls="impute")
    assert "A null in sex becomes" in str(whole.explain())
    assert "imputed" not in frame[["rating"]].dp.check(spaces={"rating": dpf.Nullable(dpf.Real(1, 5))}).columns


def test_a_check_says_that_all_is_well_and_what_its_tables_are():
    frame = pd.DataFrame({"sex": ["F", "M"] * 200})
    plan = frame.dp.plan(epsilon=1, spaces={"sex": ["F", "M"]})
    told = str(frame.dp.check(plan))
    assert "no value is changed" in told
    assert "Errors of one release, thrown away, beside their forecast" in told
    tried = frame.dp.check(spaces={"sex": ["F", "M"]})
    assert "Errors of one release" not in str(tried) + tried._repr_html_()
    assert "no value is changed" not in str(TABLE.dp.check(people_plan()))
    frame["start"], frame["end"] = np.arange(400) % 100, 95
    spaces = {"sex": ["F", "M"], "start": (0, 99), "end": (0, 99)}
    ruled = frame.dp.check(frame.dp.plan(epsilon=1, spaces=spaces, rules=[dpf.Ordered("start", "end")]))
    assert ruled.lines == ["Ordered(low='start', high='end'): 4 % of the rows break it and are mended"]
    assert "no value is changed" not in str(ruled)
    kept = frame.assign(end=99).dp.check(frame.dp.plan(epsilon=1, spaces=spaces, rules=[dpf.Ordered("start", "end")]))
    assert kept.lines == []
    assert "no value is changed" in str(kept)
    frame = frame[["sex"]]
    refused = frame.replace("M", "X").dp.check(plan)
    assert "refused" in refused.columns
    assert "no value is changed" not in str(refused)


def test_a_check_takes_what_a_release_takes():
    """Of 20 people the first owns 400 rows of 9 and the others one of 1 each: of everyone one row is counted."""
    frame = pd.DataFrame({"who": [0] * 400 + [*range(1, 20)], "email": "x", "x": [9] * 400 + [1] * 19})
    given = {"spaces": {"x": (0, 5)}, "drop": ["email"]}
    assert frame.dp.check(**given).columns.loc["x", "clamped"] == pytest.approx(400 / 419)
    plan = frame.dp.plan(epsilon=1, privacy_id="who", **given)
    for found in (frame.dp.check(**given, privacy_id="who"), frame.dp.check(plan)):
        assert found.columns.loc["x", "clamped"] == pytest.approx(1 / 20)
        assert "One choice of everyone's rows, by column 'who'" in str(found)
        assert found.errors.empty
    for wrong, why in (
        ({"drop": ["emial"]}, "did you mean 'email'"),
        ({"drop": "email"}, "drop must be"),
        ({"drop": ["x"]}, "'x' is in drop and in spaces"),
        ({"privacy_id": "whom"}, "did you mean|privacy_id names 'whom'"),
    ):
        with pytest.raises(dpf.errors.ParameterError, match=why):
            frame.dp.check(**given | wrong)
    with pytest.raises(dpf.errors.ParameterError, match="already decided by the plan"):
        frame.dp.check(plan, drop=["email"])
