"""Tables of numbers with special values: released, estimated, synthesized, checked, drafted, and asked directly."""

import datetime as dt
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from commands import dpframe as run
from scipy import stats

import dpframe as dpf

KEY = bytes(range(32))
ROWS = 1_000
SPACES: dict[str, Any] = {
    "score": dpf.Integer(0, 10, special=["refused", "does not apply"]),
    "income": dpf.Real(0, 1e6, steps=1_000, special=[-9, 999_999]),
    "kids": dpf.Nullable(dpf.Integer(0, 5, special=[-9])),
    "day": dpf.Datetime("2020-01-01", "2020-12-30", special=["9999-12-31"]),
    "sex": ["F", "M"],
}


@cache
def survey() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    asked = rng.random((4, ROWS))
    score = rng.integers(3, 11, ROWS).astype(object)
    score[asked[0] < 0.3] = "does not apply"
    score[asked[0] < 0.1] = "refused"
    income = np.minimum(rng.gamma(2.0, 60_000.0, ROWS), 300_000.0).round(-3)
    income[asked[1] < 0.2], income[asked[1] < 0.1] = 999_999.0, -9.0
    kids = pd.Series(rng.integers(0, 3, ROWS), dtype="Int8")
    kids[asked[2] < 0.3], kids[asked[2] < 0.1] = -9, pd.NA
    day = np.datetime64("2020-01-01", "s") + rng.integers(0, 365, ROWS) * np.timedelta64(86_400, "s")
    day[asked[3] < 0.2] = np.datetime64("9999-12-31")
    return pd.DataFrame(
        {"score": score, "income": income, "kids": kids, "day": day, "sex": rng.choice(["F", "M"], ROWS)}
    )


def numbers(column: str) -> pd.Series:
    """Return the true numbers of a column, without special values and nulls."""
    values = survey()[column]
    return pd.to_numeric(values[~values.isin(["refused", "does not apply", -9, 999_999]) & values.notna()]).astype(
        float
    )


@cache
def release() -> pd.DataFrame:
    return dpf.sanitize(survey(), epsilon=3, spaces=SPACES, key=KEY)


def is_close(answer: Any, truth: float, errors: float = 4.5) -> bool:
    return abs(answer["estimate"] - truth) <= errors * answer["std_error"]


def test_rows_keep_the_special_values_and_the_dtypes():
    safe = release()
    with pytest.warns(dpf.errors.InferenceWarning, match="6 of 10 pairs of columns show no dependence"):
        synthetic = safe.dp.synthesize()
    assert dict(safe.dtypes) == dict(synthetic.dtypes) == dict(survey().dtypes)
    for table in (safe, synthetic):
        assert set(table["score"].map(type)) == {int, str}
        assert {"refused", "does not apply"} < set(table["score"]) <= {*range(11), "refused", "does not apply"}
        assert {-9.0, 999_999.0} < set(table["income"])
        assert set(table["kids"].dropna()) == {-9, *range(6)} - ({3, 4, 5} - set(table["kids"].dropna()))
        assert table["kids"].isna().any() and (table["day"] == pd.Timestamp("9999-12-31")).any()
    counts = synthetic["score"].value_counts()
    for word in ("refused", "does not apply"):
        assert is_close(release().dp.value_counts("score").loc[word], counts[word])
    assert release().dp.verify()


def test_words_make_a_column_of_whole_numbers_objects_and_text_in_arrow():
    spaces = {"k": dpf.Nullable(dpf.Integer(0, 5, special=["refused"]))}
    frame = pd.DataFrame({"k": np.arange(400, dtype=np.int16) % 6})
    safe = dpf.sanitize(frame, epsilon=1, spaces=spaces, key=KEY)
    assert safe["k"].dtype == object and {"refused", None} < set(safe["k"])
    assert safe.dp.synthesize()["k"].dtype == object
    table = dpf.sanitize(pa.table(frame), epsilon=1, spaces=spaces, key=KEY)
    assert table.schema.field("k").type == pa.string()
    assert [None if k is None else str(k) for k in safe["k"]] == table.column("k").to_pylist()


@pytest.mark.walk(2)
@pytest.mark.parametrize(("column", "measure"), [("score", "auto"), ("income", "auto"), ("kids", None)])
def test_statistics_of_numbers_leave_special_values_out(column: str, measure: Any):
    frame, spaces = survey()[[column]], {column: SPACES[column]}
    ask = dpf.sanitize(frame, epsilon=8, spaces=spaces, key=KEY, measure=measure).dp
    truth = numbers(column)
    assert is_close(ask.mean(column), truth.mean())
    assert is_close(ask.sum(column), truth.sum())
    assert is_close(ask.std(column), truth.std())
    assert is_close(ask.count({column: (None, 4)}), (truth <= 4).sum())
    assert ask.describe().loc["count", ("estimate", column)] == pytest.approx(len(truth), rel=0.05)
    bins: Any = {} if column == "kids" else {"bins": 5}
    assert set(map(type, ask.histogram(column, bins=3).index)) == {pd.Interval}
    listed = ask.value_counts(column, **bins)
    for code in spaces[column].special_labels:
        true_count = (survey()[column] == code).sum()
        assert is_close(listed.loc[code], true_count)
        assert is_close(ask.count({column: code}), true_count)
        assert is_close(ask.count({column: {"not": code}}), len(truth))


def test_special_values_are_groups_and_leave_pairs_and_regressions():
    frame = survey().assign(twice=[s if isinstance(s, str) else 10 - s for s in survey()["score"]])
    spaces = dict.fromkeys(("score", "twice"), SPACES["score"]) | {"sex": ["F", "M"]}
    ask = dpf.sanitize(frame[["score", "twice", "sex"]], epsilon=8, spaces=spaces, key=KEY).dp
    assert ask.corr(["score", "twice"])["estimate"].iloc[0, 1] < -0.8
    assert ask.crosstab("score", "twice")["estimate"].loc["refused", "refused"] > 50
    assert {"refused", "does not apply"} < set(ask.mean("twice", by="score").index)
    means = numbers("score").groupby(survey()["sex"]).mean()
    assert is_close(ask.regress("score ~ sex").loc["sex[T.M]"], means["M"] - means["F"])


def test_a_day_that_stands_for_no_answer_is_no_day():
    days = survey()["day"][survey()["day"] < "2021"]
    mean = release().dp.mean("day")
    assert abs(mean["estimate"] - days.mean()) <= 4 * mean["std_error"]
    no_answer = (survey()["day"] > "2021").sum()
    assert is_close(release().dp.count({"day": "9999-12-31"}), no_answer)
    assert is_close(release().dp.count({"day": dt.date(9999, 12, 31)}), no_answer)


def test_files_and_the_shell_take_special_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, spaces, target = (str(tmp_path / name) for name in ("survey.csv", "spaces.json", "out.csv"))
    survey()[["score", "sex"]].to_csv(source, index=False)
    score = {"space": "integer", "lower": 0, "upper": 10, "special": ["refused", "does not apply"]}
    declared = {"score": score, "sex": ["F", "M"]}
    Path(spaces).write_text(json.dumps({"sex": declared["sex"]}))
    option = f"score={json.dumps(score)}"
    for words in (
        ["sanitize", source, target, "--epsilon", "3", "--spaces", spaces, "--space", option],
        ["verify", target],
        ["estimate", target, "value_counts", "score", "--json"],
    ):
        with pytest.raises(SystemExit, match=r"^0$"):
            run(*words)
    assert "refused" in capsys.readouterr().out
    released = pd.read_csv(target)["score"]
    assert set(released) <= {*map(str, range(11)), "refused", "does not apply"}
    dpf.sanitize(source, tmp_path / "out.parquet", epsilon=3, spaces=declared)
    ask = dpf.read(tmp_path / "out.parquet").dp
    assert ask.verify() and is_close(ask.mean("score"), numbers("score").mean())


def test_a_draft_proposes_special_values(tmp_path: Path):
    frame = survey()[["score", "income"]].assign(income=survey()["income"].replace(-9.0, 0.0))
    frame.to_csv(tmp_path / "survey.csv", index=False)
    with pytest.raises(SystemExit, match=r"^0$"):
        run("spaces", tmp_path / "survey.csv", "--draft", "-o", tmp_path / "spaces.json")
    text = (tmp_path / "spaces.json").read_text()
    assert '"special": ["does not apply", "refused"]' in text and '"special": [999999.0]' in text
    drafted = survey().dp.draft()
    assert drafted["income"].special == (999_999.0,) and drafted["income"].upper < 900_000
    assert drafted["score"].special == ("does not apply", "refused") and drafted["score"].lower in (0, 3)
    assert drafted["day"].special == ("9999-12-31",) and drafted["day"].upper < "2021"
    scale = pd.DataFrame({"scale": [1, 2, 3, "low", "high"] * 20})
    assert set(scale.dp.draft().left_out) == {"scale"}


def test_the_curators_check_sees_no_change_in_special_values():
    plan = dpf.plan(survey(), epsilon=3, spaces=SPACES)
    checked = survey().dp.check(plan)
    assert not checked.columns["clamped"].any() and not checked.columns["rounded"].any()
    error = checked.errors.loc[("mean", "score")]
    assert error["error"] < 6 * error["forecast"]
    narrow = survey().dp.check(spaces={"score": dpf.Integer(0, 9, special=["refused", "does not apply"])})
    assert narrow.columns.loc["score", "clamped"] == pytest.approx((numbers("score") > 9).mean())


def test_questions_on_the_raw_table_leave_special_values_out():
    spaces = {name: SPACES[name] for name in ("score", "kids")}
    ask = dpf.Queries(survey()[["score", "kids"]], epsilon=100, delta=1e-6, spaces=spaces)
    for column in spaces:
        assert ask.mean(column, share=0.1)["estimate"] == pytest.approx(numbers(column).mean(), abs=0.02)
        assert ask.sum(column, share=0.1)["estimate"] == pytest.approx(numbers(column).sum(), abs=20)
        assert ask.quantile(column, 0.5, share=0.1)["estimate"] == numbers(column).median()
    assert ask.count({"score": "refused"}, share=0.1)["estimate"] == (survey()["score"] == "refused").sum()
    with pytest.raises(dpf.ParameterError, match="column score has special values, which have no products"):
        ask.covariance(["score"], share=0.01)


@pytest.mark.slow
def test_intervals_of_means_and_of_counts_of_codes_cover():
    """A right library fails with probability below 5e-4: each of five counts of misses has a limit of 1e-4."""
    keys, frame = 80, survey()[["score", "kids"]]
    spaces = {name: SPACES[name] for name in frame}
    truths = {name: numbers(name).mean() for name in frame}
    codes: list[tuple[str, Any]] = [("score", "refused"), ("score", "does not apply"), ("kids", -9)]
    misses = dict.fromkeys([*truths, *codes], 0)
    for key in range(keys):
        ask = dpf.sanitize(frame, epsilon=2, spaces=spaces, key=bytes([key]) * 32).dp
        for name, truth in truths.items():
            answer = ask.mean(name)
            misses[name] += not answer["lower"] <= truth <= answer["upper"]
        for name, code in codes:
            answer, truth = ask.value_counts(name).loc[code], (frame[name] == code).sum()
            misses[name, code] += not answer["lower"] <= truth <= answer["upper"]
    assert max(misses.values()) <= stats.binom.isf(1e-4, keys, 0.05), misses


def test_of_a_column_without_numbers_nothing_is_known():
    frame = pd.DataFrame({"kids": np.full(500, -9)})
    ask = dpf.sanitize(frame, epsilon=4, spaces={"kids": dpf.Integer(0, 9, special=[-9])}, key=KEY).dp
    mean, std = ask.mean("kids"), ask.std("kids")
    assert mean["upper"] - mean["lower"] > 4 and std["upper"] - std["lower"] > 2
    assert is_close(ask.count({"kids": -9}), 500)
