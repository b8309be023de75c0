"""What to expect, from the schema alone; spaces drafted for the curator's eyes."""

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.cli.main import main
from dpframe.release.expected_errors import expected_of
from dpframe.vertical import Identity, new_run

COLUMNS = ["age", "sex", "region", "income"]


def census(n=2_000, seed=0):
    return dpf.datasets.make_census(n, columns=COLUMNS, random_state=seed)


def test_it_is_equal_for_all_tables_of_one_schema():
    frame, other = census(), census(seed=1)
    other["age"] = other["age"] * 0 + 3
    other["region"] = other["region"].iloc[0]
    other = other.astype(frame.dtypes)
    first, second = (dpf.expect(table, epsilon=1) for table in (frame, other))
    assert first == second
    pd.testing.assert_frame_equal(first.table, second.table)
    assert str(first) == str(frame.dp.expect(epsilon=1))


@pytest.mark.slow
def test_a_warning_of_few_rows_says_what_to_expect_of_any_table_of_the_schema():
    """The two lines that matter, where columns were not found: of types and rows alone."""

    def lines(frame):
        with pytest.warns(dpf.InferenceWarning) as caught:
            frame.dp.sanitize(epsilon=0.3, key=bytes(32))
        text = next(str(w.message) for w in caught if "did not find" in str(w.message))
        return [line for line in text.splitlines() if line.startswith("  expected: ")]

    frame, other = census(200), census(200, seed=1)
    other["age"] = 3
    other["region"] = other["region"].iloc[0]
    assert lines(frame) == lines(other.astype(frame.dtypes))
    first, second = dpf.expect(frame, epsilon=0.3).lines[:2]
    assert lines(frame) == [f"  expected: {first}", f"  expected: {second}"]
    assert "means within ±" in first
    assert "probably not find" in second


def test_floats_are_lost_more_often_than_whole_numbers():
    """Of 27 real tables a fifth of the whole numbers and nearly half of the floats are, few rows or many."""
    lost = [
        dpf.expect(pd.DataFrame({f"x{i}": np.arange(600).astype(kind) for i in range(10)}), epsilon=1).table
        for kind in ("int64", "float64")
    ]
    whole, floats = (one.loc["lost", "expected"] for one in lost)
    assert floats > 1.5 * whole


@pytest.mark.slow
def test_the_line_of_lost_columns_counts_text_of_many_values_in_addition():
    said = "of 2, besides text of many different values"
    texts = pd.DataFrame({"day": ["2024-01-01"] * 400, "age": range(400)})
    assert said in dpf.expect(texts, epsilon=1).lines[1]
    assert "besides text" not in str(dpf.expect(texts[["age"]], epsilon=1))
    assert "besides text" not in str(dpf.expect(texts, epsilon=1, spaces={"day": ["2024-01-01"]}))


@pytest.mark.slow
def test_it_says_what_it_takes_for_granted(tmp_path):
    """Else forecasts of one table, as a frame, as CSV and by its plan, contradict each other without a word."""
    frame = census(400).assign(person_id=range(400))
    frame.to_csv(tmp_path / "in.csv", index=False)
    typed, text = (dpf.expect(source, epsilon=1) for source in (frame, tmp_path / "in.csv"))
    left = "left out, as a release leaves them: person_id"
    assert typed.lines[-1] == text.lines[-1] == left
    assert typed.lines[-2].startswith("taken: of the 4 columns to infer numbers have a thousand values, text five")
    assert text.lines[-2].startswith("taken: each of the 4 columns to infer is text of five categories, as CSV has no")
    asked = dpf.expect(frame, epsilon=1, drop=["person_id", "sex", "region", "income"], spaces={"age": (0, 120)})
    assert "taken" not in str(asked)
    assert "left out" not in str(asked)


@pytest.mark.slow
def test_what_fits_no_typical_column_is_left_out_of_the_warning():
    """The spend is entered by then: nothing may be refused any more."""
    table = pa.table({"x": np.arange(900) % 4, "note": [f"n{i}" for i in range(900)]})
    with pytest.raises(dpf.ParameterError):
        dpf.expect(table, epsilon=4, mechanisms={"x": "optimal"})
    with pytest.warns(dpf.InferenceWarning, match="note  no value cleared") as caught:
        dpf.sanitize(table, epsilon=4, mechanisms={"x": "optimal"}, key=bytes(32))
    assert "\n  expected: columns that inference will probably not find: " in str(caught[0].message)


@pytest.mark.slow
def test_it_says_what_more_rows_and_a_larger_promise_bring():
    few, many = (dpf.expect(census(n), epsilon=1) for n in (300, 30_000))
    assert few.table.loc["lost", "expected"] > 1 > 0.1 > many.table.loc["lost", "expected"]
    assert few.table.loc["means", "expected"] > 10 * many.table.loc["means", "expected"]
    assert few.good_rows > 300
    assert "good (5 %) from" in str(few)
    assert "good (5 %)" not in str(many)
    loud = dpf.expect(census(300), epsilon=4)
    assert loud.table.loc["counts", "expected"] < few.table.loc["counts", "expected"] / 2
    known = dpf.expect(census(300), epsilon=1, spaces={"sex": ["F", "M"]}, drop=["age", "region", "income"])
    assert "lost" not in known.table.index


def test_a_plan_and_the_forecast_before_it_say_the_same(tmp_path, capsys):
    """Of declared spaces there is nothing to assume; a plan knows besides which spaces were found."""
    frame = pd.DataFrame({"sex": ["F", "M"] * 50, "age": range(100)})
    frame.to_parquet(tmp_path / "in.parquet")
    spaces = {"sex": ["F", "M"], "age": (0, 100)}
    before, made = dpf.expect(frame, epsilon=1, spaces=spaces), dpf.plan(frame, epsilon=1, spaces=spaces)
    after = expected_of(made)
    assert after.lines == [line for line in before.lines if "probably not find" not in line]
    assert after.lines[-1].startswith("good (5 %) from ")
    given = ["--space", "sex=F,M", "--space", "age=0,100", "--epsilon", "1"]
    for command in ("forecast", "plan"):
        with pytest.raises(SystemExit):
            main([command, str(tmp_path / "in.parquet"), *given])
        assert f"  {after.lines[-1]}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_counts_come_out_as_expected():
    """Errors of counts of 20 releases: nine of ten within the half-width of 95 % (error probability below 1e-4)."""
    frame = census(5_000)[["sex", "region"]]
    spaces = {"sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
    width = dpf.expect(frame, epsilon=1, spaces=spaces).table.loc["counts", "expected"]
    errors = [
        (frame.dp.sanitize(epsilon=1, spaces=spaces, key=bytes([i]) * 32).dp.value_counts("sex")["estimate"]["F"])
        - (frame["sex"] == "F").sum()
        for i in range(20)
    ]
    assert np.mean(np.abs(errors) <= width) >= 0.75


def test_it_reads_no_data():
    with pytest.raises(dpf.ParameterError, match='expect reads no data; leave infer="data" out'):
        dpf.expect(census(), epsilon=1, infer="data")
    with pytest.raises(dpf.ParameterError, match="give epsilon"):
        census().dp.expect()


def test_a_draft_is_code_that_runs_and_says_that_it_is_not_private():
    frame = census().assign(person_id=range(2_000), note=[f"n{i}" for i in range(2_000)])
    draft = frame.dp.draft()
    assert str(draft).startswith("# FOR THE CURATOR ALONE: read off the data, not private.")
    scope = {"dpf": dpf}
    exec(str(draft), scope)
    assert dict(scope["spaces"]) == dict(draft)
    assert not draft.reviewed
    assert set(draft.left_out) == {"person_id", "note"}
    assert draft["age"].lower % 10 == draft["age"].upper % 10 == 0
    assert all(f"# check: {draft.notes[name]}" in str(draft) for name in draft)


def test_a_draft_points_at_nines_that_may_stand_for_missing_answers():
    values = np.arange(500.0)
    codes = {"years": 999_999.0, "score": -99_999.0}
    frame = pd.DataFrame({"years": values, "score": values, "near": values, "other": values, "even": 9.0})
    for name, code in codes.items():
        frame.loc[:8, name] = code
    frame.loc[0, ["near", "other"]] = 999.0, 123_456.0
    notes = frame.dp.draft().notes
    for name, code in codes.items():
        assert f"{code:.0f} in 9 rows is far from all others" in notes[name]
    assert not any("far from all others" in notes[name] for name in ("near", "other", "even"))


def test_a_draft_says_that_numbers_that_all_differ_may_identify():
    frame = pd.DataFrame({"locker": range(40), "age": [20 + i % 30 for i in range(40)], "member_no": range(40)})
    draft = frame.dp.draft()
    assert "every row has its own: if it looks like an identifier" in draft.notes["locker"]
    assert "identifier" not in draft.notes["age"]
    assert "looks like an identifier" in draft.left_out["member_no"]


def test_a_draft_has_floats_on_their_own_grid_if_none_lies_off_it():
    values = np.arange(2_000) % 40 / 2
    frame = pd.DataFrame({"half": values, "whole": values // 1, "off": [*values[:-1], 1.234567]})
    draft = frame.dp.draft()
    assert (draft["half"].step, draft["whole"].step, draft["off"].steps) == (0.5, 1.0, dpf.Real.steps)


def test_a_plan_says_that_its_draft_was_not_reviewed():
    frame = census()[["age", "sex"]]
    draft = frame.dp.draft()
    with pytest.warns(dpf.PrivacyLeakWarning, match="age, sex were drafted from the data.*confirm"):
        plan = frame.dp.plan(epsilon=1, spaces=draft)
    assert plan.leaks == ("age", "sex")
    reviewed = frame.dp.plan(epsilon=1, spaces=draft.confirm())
    assert reviewed.leaks == ()
    assert reviewed.columns[0].space == plan.columns[0].space


@pytest.mark.filterwarnings("always:spaces of .* drafted:dpframe.PrivacyLeakWarning")
@pytest.mark.parametrize("ending", [".json", ".toml"])
def test_a_file_of_a_draft_carries_it_too(tmp_path, ending, capsys):
    census()[["age", "sex"]].to_parquet(tmp_path / "a.parquet")
    source, file = str(tmp_path / "a.parquet"), tmp_path / f"spaces{ending}"
    assert run("spaces", source, "--draft", "-o", str(file)) == 0
    assert "not private" in file.read_text()
    plan = "plan", source, "--epsilon", "1", "--spaces", str(file), "-o", str(tmp_path / "plan.json")
    assert run(*plan) == 0
    assert "age, sex were drafted from the data" in capsys.readouterr().err
    assert dpf.Plan.read(tmp_path / "plan.json").leaks == ("age", "sex")
    file.write_text(file.read_text().replace("reviewed: false", "reviewed: true"))
    assert run(*plan) == 0
    assert "were drafted" not in capsys.readouterr().err
    assert dpf.Plan.read(tmp_path / "plan.json").leaks == ()
    assert run("spaces", source, "--draft", "--infer", "1") == 2
    assert "--draft reads the data and --infer asks it with noise" in capsys.readouterr().err


def test_the_command_line_says_what_to_expect(tmp_path, capsys):
    census(400).to_parquet(tmp_path / "a.parquet")
    assert run("forecast", str(tmp_path / "a.parquet"), "--epsilon", "1", "--epsilon", "4") == 0
    out = capsys.readouterr().out
    assert "To expect of 400 rows at epsilon=1" in out and "To expect of 400 rows at epsilon=4" in out


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code or 0


def test_drafts_of_odd_tables():
    odd = pd.DataFrame({"empty": pd.Series([], dtype=float), "x": pd.Series([], dtype="str")})
    assert set(odd.dp.draft()) | set(odd.dp.draft().left_out) == {"empty", "x"}
    one = pd.DataFrame({"x": [0.25], 'quo"te': ["a"], "at": pd.to_datetime(["2024-02-29"])})
    scope = {"dpf": dpf}
    exec(str(one.dp.draft()), scope)
    assert list(scope["spaces"]) == ["x", 'quo"te', "at"]
    assert json.dumps(scope["spaces"]["x"].to_json())


@pytest.mark.slow
def test_the_column_of_persons_does_not_leave():
    frame = census(400).assign(person=np.arange(400) // 2)
    found = dpf.expect(frame, epsilon=1, privacy_id="person", contributions=2)
    assert found.table.loc["lost", "of"] == "4"
    assert found.table.loc["counts", "expected"] > dpf.expect(census(400), epsilon=1).table.loc["counts", "expected"]


def test_every_entry_point_knows_an_unreviewed_draft(tmp_path):
    frame = census(400)[["age", "sex"]]
    draft = frame.dp.draft()
    with pytest.warns(dpf.PrivacyLeakWarning, match="were drafted"):
        assert dpf.Sanitizer(epsilon=1, spaces=draft).fit(frame).plan_.leaks == ("age", "sex")
    assert dpf.Sanitizer(epsilon=1, spaces=draft.confirm()).fit(frame).plan_.leaks == ()
    with pytest.raises(dpf.ParameterError, match=r"drafted from the data.*reviewed: check each"):
        dpf.Queries(frame, 1.0, delta=0, spaces=draft)
    keys = [Identity.create(tmp_path / name).public for name in ("a", "b", "s")]
    parts = [dpf.DraftedSpaces({name: draft[name]}) for name in draft]
    with pytest.raises(dpf.ParameterError, match="drafted from the data and not reviewed"):
        new_run({"a": (parts[0], keys[0]), "b": (parts[1], keys[1])}, keys[2], n=400, epsilon=1.0)


@pytest.mark.slow
def test_a_draft_and_its_review_are_two_requests_of_a_ledger(tmp_path):
    """Their plans differ in what they say, and so does their noise: each is paid for."""
    frame = census(400)[["age", "sex"]]
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 5.0, 1e-4)
    draft = dpf.DraftedSpaces({"age": (0, 100)})  # sex is inferred, so that the plan is not known when it is paid for

    def spent(spaces):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpf.DpframeWarning)
            frame.dp.sanitize(epsilon=1, spaces=spaces, ledger=ledger, dataset="survey", key=bytes(32))
        return 5 - ledger.remaining("survey").epsilon

    once, again, other = spent(draft.confirm()), spent(draft.confirm()), spent(draft)
    assert once == again < other
