"""``dpframe query``: one answer, one line for bad input, and nothing of a row."""

import inspect
import json

import pandas as pd
import pytest

import dpframe as dpf
from dpframe.cli.main import main

AGE, SEX = ("--space", "age=0,120"), ("--space", 'sex=["F", "M"]')
HOBBIES = ("--space", 'hobbies={"space": "subset", "items": ["reading", "walking"], "other": "more"}')
INCOME = ("--space", 'income={"space": "nullable", "inner": {"space": "real", "lower": 0, "upper": 250000}}')


@pytest.fixture
def source(tmp_path):
    people = dpf.datasets.make_census(3_000, random_state=1, columns=["age", "sex", "income", "hobbies"])
    people.to_parquet(tmp_path / "people.parquet", index=False)
    return tmp_path / "people.parquet"


@pytest.fixture
def run(capsys, monkeypatch, one_key):
    """Run a command in this process at a fixed key; return exit code, output, errors."""

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main(["query", *map(str, arguments)])
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    monkeypatch.setattr("warnings.showwarning", print)
    return call


def test_a_mean(source, run):
    code, out, err = run(source, "mean", "age", "--epsilon", 0.5, *AGE)
    assert (code, err) == (0, "")
    assert "estimate  std_error  lower  upper" in out
    assert "geometric noise, epsilon=0.5, delta=0, replace_one" in out


# All but the choice of a candidate, whose utility is code.
QUESTIONS = [name for name, _ in inspect.getmembers(dpf.Queries, inspect.isfunction) if name[0] != "_"]
QUESTIONS = [name.replace("_", "-") for name in QUESTIONS if name != "select"]


@pytest.mark.walk(7)
@pytest.mark.parametrize("statistic", QUESTIONS)
def test_every_question(source, run, statistic):
    columns = {
        "count": [],
        "histogram": ["sex"],
        "most-common": ["sex"],
        "covariance": ["age"],
        "second-moments": ["age"],
    }
    columns |= {"crosstab": ["age", "sex"], "nunique": ["sex"], "support": ["hobbies"], "set-sizes": ["hobbies"]}
    more = {"count": ["--where", '{"sex": "F", "age": {"lower": 18, "upper": 65}}'], "quantile": ["--q", 0.5]}
    columns |= {"regress": ["age ~ sex"]}
    more |= {"most-common": ["--k", 2], "regress": ["--penalty", 0.1]}
    given = [*columns.get(statistic, ["age"]), "--epsilon", 1, *AGE, *SEX, *HOBBIES, *more.get(statistic, [])]
    code, out, err = run(source, statistic, *given, "--delta", 1e-6, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    # Where all of the budget is for one answer, pure noise errs less.
    mechanisms = {"quantile": ("noisy_max", 0), "regress": ("gaussian", 1e-6)}
    assert (told["mechanism"], told["delta"]) == mechanisms.get(statistic, ("geometric", 0))
    assert {"estimate", "std_error", "lower", "upper"} <= set(told["answer"][0])


def test_a_regression_has_one_mechanism(source, run):
    code, _, err = run(
        source, "regress", "age ~ sex", "--epsilon", 1, *AGE, *SEX, "--delta", 1e-6, "--mechanism", "laplace"
    )
    assert code == 2
    assert "regress takes no --mechanism" in err


def test_it_is_the_librarys_answer(source, run):
    _, out, _ = run(source, "histogram", "age", "--bins", 3, "--epsilon", 1, *AGE, "--json")
    mine = dpf.Queries(source, 1.0, delta=0, spaces={"age": (0, 120)}).histogram("age", 3, share=1)
    assert [row["estimate"] for row in json.loads(out)["answer"]] == mine["estimate"].tolist()
    _, out, _ = run(source, "quantile", "age", "--q", 0.2, "--q", 0.8, "--epsilon", 1, *AGE, "--json")
    assert [row["q"] for row in json.loads(out)["answer"]] == [0.2, 0.8]
    assert run(source, "most_common", "sex", "--epsilon", 1, *SEX)[0] == 0
    _, out, _ = run(source, "mean", "income", "--epsilon", 1, *INCOME, "--json")
    assert abs(json.loads(out)["answer"][0]["estimate"] - 33_000) < 5_000


def test_an_answer_says_that_bounds_clip(tmp_path, run):
    """A quarter of the values lie at 900, and count as 100: no interval holds that; a list has no bounds."""
    pd.DataFrame({"x": [20, 20, 20, 900] * 500, "sex": ["F", "M"] * 1000}).to_parquet(tmp_path / "x.parquet")
    given = (tmp_path / "x.parquet", "mean", "x", "--epsilon", 10, "--space", "x=0,100")
    code, out, _ = run(*given)
    assert (code, "values beyond the bounds count as the bounds" in out) == (0, True)
    answer = json.loads(run(*given, "--json")[1])
    assert answer["outside"] == "bound"
    assert answer["answer"][0]["upper"] < 41
    assert "beyond the bounds" not in run(given[0], "histogram", "sex", "--epsilon", 10, *SEX)[1]


def test_an_answer_says_where_nulls_count_as_the_middle(tmp_path, run):
    """500 of 2,000 values are no numbers: they are left out only if the space is nullable."""
    table = tmp_path / "scores.csv"
    table.write_text("score\n" + "20\n20\n20\nabout 40\n" * 500)
    given = (table, "mean", "score", "--epsilon", 10)
    bounds = '{"lower": 0, "upper": 100}'
    code, out, _ = run(*given, "--space", f"score={bounds}")
    assert (code, "counts as the middle of the bounds" in out) == (0, True)
    _, out, _ = run(*given, "--space", f"score={bounds}", "--json")
    middle = json.loads(out)
    assert middle["nulls"] == "middle"
    assert abs(middle["answer"][0]["estimate"] - (3 * 20 + 50) / 4) < 0.2
    nullable = f'score={{"space": "nullable", "inner": {bounds}}}'
    _, out, _ = run(*given, "--space", nullable, "--json")
    left_out = json.loads(out)
    assert ("nulls" in left_out, round(left_out["answer"][0]["estimate"])) == (False, 20)
    mine = dpf.Queries(table, 10.0, {"score": (0, 100)})
    assert mine.mean("score", share=0.5).attrs["nulls"] == "middle"
    assert mine.quantile("score", share=0.5).attrs["nulls"] == "middle"


def test_groups_and_conditions(source, run):
    _, out, _ = run(source, "mean", "age", "--by", "sex", "--epsilon", 5, *AGE, *SEX, "--json")
    assert [row["sex"] for row in json.loads(out)["answer"]] == ["F", "M"]
    where = ("--where", '{"hobbies": {"any": ["reading", "walking"]}}')
    _, out, _ = run(source, "quantile", "age", *where, "--epsilon", 5, *AGE, *HOBBIES, "--json")
    assert 20 < json.loads(out)["answer"][0]["estimate"] < 70
    given = ("--epsilon", 5, "--neighbours", "add_remove", *AGE)
    code, out, _ = run(source, "count", *given)
    assert code == 0
    assert "add_remove" in out
    _, out, _ = run(source, "crosstab", "age", "sex", "--bins", 2, *given, *SEX, "--json")
    told = json.loads(out)
    assert (len(told["answer"]), told["neighbours"]) == (4, "add_remove")


@pytest.mark.slow
def test_wishart_noise(source, run):
    code, out, _ = run(source, "second-moments", "age", "--epsilon", 1, "--delta", 1e-6, *AGE, "--mechanism", "wishart")
    assert code == 0
    assert "wishart noise, epsilon=1, delta=1e-06" in out


def test_spaces_from_a_file(source, run, tmp_path):
    (tmp_path / "spaces.json").write_text(json.dumps({"age": {"lower": 0, "upper": 120}}))
    assert run(source, "sum", "age", "--epsilon", 1, "--spaces", tmp_path / "spaces.json")[0] == 0


def test_the_ledger_is_spent_from(source, run, tmp_path):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0)
    account = ("--ledger", tmp_path / "ledger.sqlite", "--dataset", "survey")
    code, out, _ = run(source, "mean", "age", "--epsilon", 0.6, *AGE, *account)
    assert code == 0
    assert "Ledger: survey has epsilon=0.4, delta=0 left" in out
    code, out, err = run(source, "mean", "age", "--epsilon", 0.6, *AGE, *account)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert ledger.history("survey")["what"].tolist() == ["query: mean"]


BAD = {
    "no epsilon": (["mean", "age", *AGE], "give --epsilon"),
    "not a number": (["mean", "age", "--epsilon", "nan", *AGE], "epsilon must be finite and above 0"),
    "no question": (["median", "age", "--epsilon", "1"], "statistic must be one of count, sum, mean"),
    "no space": (
        ["mean", "age", "--epsilon", "1"],
        'column age has no space, which questions need; pass --spaces FILE, which holds {"age": {"lower": LOWER',
    ),
    "text": (["mean", "sex", "--epsilon", "1", *SEX], "column sex holds no numbers, which mean needs"),
    "columns": (["mean", "age", "sex", "--epsilon", "1"], "got 2; to group by the second, dpframe … mean age --by sex"),
    "columns of count": (["count", "age", "--epsilon", "1"], "count takes --where and no columns; got 1"),
    "no where": (["count", "--epsilon", "1"], "--where must be a JSON object"),
    "bad where": (["count", "--epsilon", "1", "--where", "sex = F"], "--where must be a JSON object"),
    "two numbers": (
        ["count", "--epsilon", "1", *AGE, "--where", '{"age": [20, 14]}'],
        'may mean a range or values; write {"lower": 14, "upper": 20} or {"values": [20, 14]}',
    ),
    "by of others": (["histogram", "age", "--epsilon", "1", "--by", "sex"], "histogram takes no --by; leave it out"),
    "neighbours": (["mean", "age", "--epsilon", "1", *AGE, "--neighbours", "both"], "neighbours must be one of"),
    "unknown column": (["count", "--epsilon", "1", "--where", '{"height": 1}'], "'height' is not a column"),
    "stray option": (["mean", "age", "--epsilon", "1", "--k", "3"], "mean takes no --k; leave it out"),
    "bad space": (["mean", "age", "--epsilon", "1", "--space", "age"], "--space must be COLUMN=LOWER,UPPER"),
    "bad JSON": (["mean", "age", "--epsilon", "1", "--space", "age={"], "--space must be COLUMN=LOWER,UPPER"),
    "gaussian": (["mean", "age", "--epsilon", "1", *AGE, "--mechanism", "gaussian"], "gaussian needs delta above 0"),
    "delta": (["mean", "age", "--epsilon", "1", "--delta", "2", *AGE], "delta must lie in [0, 1)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(source, run, name):
    arguments, rule = BAD[name]
    code, out, err = run(source, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("dpframe: ")
    assert rule in err


def test_no_value_shows_in_an_error(tmp_path, run):
    frame = pd.DataFrame({"age": [1, 2, 987654321], "sex": ["F", "M", "SECRET"]})
    frame.to_parquet(tmp_path / "in.parquet")
    code, out, err = run(tmp_path / "in.parquet", "histogram", "sex", "--epsilon", 1, *SEX)
    assert (code, err) == (0, "")
    assert "SECRET" not in out
