"""The command line: files in, files out, one clear line for bad input."""

import contextlib
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from commands import every_command
from examples import space_of

import dpframe as dpf
from dpframe.cli.main import main

SPACES = {
    "age": {"lower": 0, "upper": 120},
    "sex": ["F", "M"],
    "income": {"space": "nullable", "inner": {"space": "real", "lower": 0, "upper": 250_000}},
}


@pytest.fixture
def files(tmp_path):
    census = dpf.datasets.make_census(3_000, columns=["age", "sex", "income"])
    census.to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "spaces.json").write_text(json.dumps(SPACES))
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process; return exit code, output, errors."""

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    monkeypatch.setattr("warnings.showwarning", print)  # restored afterwards
    return call


def statistics(run):
    """What can be estimated, as a wrong word is told."""
    return set(run("estimate", "out.parquet", "median-of-means")[2].partition("must be one of ")[2].strip().split(", "))


@pytest.mark.parametrize("arguments", [["-"], ["-", "out.parquet", "--epsilon", "x"]])
def test_what_was_piped_in_is_kept_by_no_command_that_is_refused(run, tmp_path, monkeypatch, arguments):
    """Nor until Python collects it: the table would lie in a temporary folder for as long."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,2\n3,4\n")))
    with contextlib.ExitStack() as stack:
        gc.disable()
        stack.callback(gc.enable)
        code, _, err = run("sanitize", *arguments)
        assert (code, len(err.splitlines())) == (2, 1)
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_plan_sanitize_inspect_estimate(files, run):
    source, plan, out = files / "in.parquet", files / "plan.json", files / "out.parquet"
    code, text, err = run("plan", source, "--epsilon", 3, "--spaces", files / "spaces.json", "-o", plan)
    assert (code, err) == (0, f"wrote {plan}: the plan, for dpframe sanitize --plan\n")
    assert "laplace" in text
    assert dpf.Plan.read(plan) == dpf.plan(source, 3, spaces=SPACES)

    code, text, err = run("sanitize", source, out, "--plan", plan)
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: 3,000 rows in ")
    assert "\nPromise: epsilon=3, delta=1e-06 for each person with one row; epsilon=" in text

    code, text, err = run("inspect", out)
    assert code == 0
    assert "a release of 3,000 rows\nPromise: epsilon=3" in text
    *_, head, age, sex, income, last_line = text.splitlines()
    assert re.split("  +", head) == ["column", "values", "shape", "typical ±", "verdict", "remedy"]
    assert [line.split()[0] for line in (age, sex, income)] == ["age", "sex", "income"]
    assert all(re.search("  (good|rough|hidden)(  |$)", line) for line in (age, sex, income))
    assert last_line == "Numbers: dpframe estimate. More: dpframe inspect --explain"
    assert "Local: epsilon" not in text
    for line in run("estimate", out, "mean", "age", "--by", "sex", "--method", "inverse")[1].splitlines()[2:]:
        group, estimate = line.split()[:2]
        exact = dpf.read(out).dp.mean("age", by="sex", method="inverse")["estimate"]
        assert float(estimate) == pytest.approx(exact[group], rel=1e-3)
    explained = run("inspect", out, "--explain")[1]
    assert str(dpf.read(out).dp.explain()) in explained
    assert "\nage" in explained
    assert json.loads(run("inspect", out, "--json")[1])["n"] == 3_000
    assert "not a release; 3,000 rows, columns age, sex, income" in run("inspect", source)[1]
    assert json.loads(run("inspect", source, "--json")[1])["release"] is False

    estimates = dpf.Estimates(out)
    code, text, err = run("estimate", out, "value-counts", "sex", "--json")
    rows = json.loads(text)
    assert {row["sex"] for row in rows} == {"F", "M"}
    assert rows[0]["estimate"] == pytest.approx(estimates.value_counts("sex")["estimate"].iloc[0])
    rows = json.loads(run("estimate", out, "mean", "age", "--by", "sex", "--json")[1])
    assert [row["sex"] for row in rows] == ["F", "M"]
    (row,) = json.loads(run("estimate", out, "mean", "income", "--json", "--target", "population")[1])
    assert row["column"] == "income"
    assert "std_error" in run("estimate", out, "value-counts", "sex", "--normalize")[1]


@pytest.mark.slow
def test_a_plan_for_the_fewest_rows_of_any_night(files, run):
    source, plan, out = files / "in.parquet", files / "plan.json", files / "out.parquet"
    given = ("--epsilon", 1, "--spaces", files / "spaces.json", "--rows", 2_000)
    assert run("plan", source, *given, "-o", plan)[0] == 0
    assert dpf.Plan.read(plan) == dpf.plan(source, 1, spaces=SPACES).replan(2_000)
    assert run("sanitize", source, out, "--plan", plan)[0] == 0
    few = files / "few.parquet"
    pd.read_parquet(source).head(1_999).to_parquet(few, index=False)
    code, _, err = run("sanitize", few, files / "none.parquet", "--plan", plan)
    assert code == 2
    assert err.endswith("fewer rows hide each other less; dpframe plan --rows 1999 makes one for so many\n")
    for wrong, rule in (
        (("--epsilon", 1, "--rows", 0), "--rows must be a whole number of rows, at least 1"),
        (("--target", "age=1", "--rows", 9), "--target is for the rows of the file; leave --rows out"),
    ):
        code, _, err = run("plan", source, *wrong)
        assert code == 2
        assert rule in err


def test_crosstab(files, run):
    spaces = files / "both.json"
    spaces.write_text(json.dumps({"sex": ["F", "M"], "age": {"lower": 0, "upper": 120}}))
    out = files / "out.parquet"
    code, *_ = run("sanitize", files / "in.parquet", out, "--epsilon", 2, "--spaces", spaces, "--drop", "income")
    assert code == 0
    rows = json.loads(run("estimate", out, "crosstab", "sex", "age", "--json")[1])
    assert len(rows) == 2 * 121
    assert set(rows[0]) == {"sex", "age", "estimate", "std_error", "lower", "upper"}


ASKED = [
    (["joint", "sex", "age", "--bins", "3", "--given", "sex"], {"sex", "age"}, 6),
    (["joint", "sex", "--method", "em", "--normalize"], {"sex"}, 2),
    (["value-counts", "age", "--bins", "4"], {"age"}, 4),
    (["value_counts", "sex"], {"sex"}, 2),
    (["value-counts", "sex", "age", "--bins", "3", "--where", '{"income": {"lower": 1}}'], {"sex", "age"}, 6),
    (["sum", "age"], {"column"}, 1),
    (["count", "--where", '{"sex": "F", "age": {"lower": 18, "upper": 65}}'], {"statistic"}, 1),
    (["median", "age"], {"column"}, 1),
    (["describe", "age", "income"], {"statistic", "column"}, 12),
    (["support", "sex"], {"sex"}, 2),
    (["var", "age"], {"column"}, 1),
    (["std", "income"], {"column"}, 1),
    (["cov", "age", "income"], {"column", "with"}, 1),
    (["corr", "age", "income"], {"column", "with"}, 1),
    (["corr", "age", "income", "age"], {"column", "with"}, 9),
    (["null-rate", "income"], {"column"}, 1),
    (["histogram", "age", "--bins", "5"], {"age"}, 5),
    (["histogram", "age", "--bins", "0,18,65,120"], {"age"}, 3),
    (["quantile", "age", "--q", "0.25", "--q", "0.5"], {"q"}, 2),
    (["quantile", "income"], {"q"}, 3),
    (["mean", "age", "--by", "income", "--bins", "2"], {"income"}, 2),
]


CURVES = {"mean-curve", "cov-curve", "fidelity"}


@pytest.mark.slow
def test_curves_and_fidelity_from_the_shell(tmp_path, run):
    census = dpf.datasets.make_census(1_000, columns=["sex", "load_curve"])
    census.to_parquet(tmp_path / "in.parquet", index=False)
    spaces = {"sex": ["F", "M"], "load_curve": dpf.Vector(24, bound=50.0)}
    info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", epsilon=30, spaces=spaces)
    assert info.plan.names == ("sex", "load_curve")
    for words, rows in (
        (["mean-curve", "load_curve"], 24),
        (["mean-curve", "load_curve", "--by", "sex"], 48),
        (["cov-curve", "load_curve"], 576),
    ):
        code, text, err = run("estimate", tmp_path / "out.parquet", *words, "--json")
        assert (code, err) == (0, ""), words
        assert len(json.loads(text)) == rows, words
    code, text, err = run("estimate", tmp_path / "out.parquet", "fidelity", "--json")
    assert (code, err) == (0, "")
    assert {"column", "with", "shows"} <= set(json.loads(text)[0])
    assert "fidelity takes no columns; got 1" in run("estimate", tmp_path / "out.parquet", "fidelity", "sex")[2]


def test_help_lists_every_command_in_its_group(run):
    code, text, _ = run("--help")
    assert code == 0
    groups = re.findall(r"(?m)^([A-Z][^\n:]*):\n((?:  .*\n)+)", text)
    named = [name for title, lines in groups if title != "Options" for name in re.findall(r"(?m)^  ([a-z-]+) ", lines)]
    assert sorted(named) == sorted({words[0] for words, _ in every_command()})
    assert "..." not in text.removeprefix(text.splitlines()[0])
    assert "Other:" not in text
    assert "Example: dpframe sanitize" in text


@pytest.mark.slow
def test_every_statistic_from_the_shell(files, run):
    out = files / "out.parquet"
    assert run("sanitize", files / "in.parquet", out, "--epsilon", 30, "--spaces", files / "spaces.json")[0] == 0
    others = {"crosstab", "cooccurrence", "set-sizes", "top", "compare", "independence", "regress"} | CURVES
    assert {words[0].replace("_", "-") for words, *_ in ASKED} | others == statistics(run)
    for words, keys, count in ASKED:
        code, text, err = run("estimate", out, *words, "--json")
        assert (code, err) == (0, ""), words
        rows = json.loads(text)
        assert len(rows) == count, words
        assert set(rows[0]) == keys | {"estimate", "std_error", "lower", "upper"}, words
        assert run("estimate", out, *words)[0] == 0
    assert "method: em" in run("estimate", out, "joint", "sex", "--method", "em")[1]
    (first,) = json.loads(run("estimate", out, "top", "sex", "--k", 1, "--json")[1])
    assert set(first) == {"sex", "estimate", "std_error", "lower", "upper", "surely"}
    assert "--where must be a JSON object" in run("estimate", out, "count")[2]


def test_regressions_and_comparisons_from_the_shell(files, run):
    out, results = files / "out.parquet", {"estimate", "std_error", "lower", "upper"}
    assert run("sanitize", files / "in.parquet", out, "--epsilon", 30, "--spaces", files / "spaces.json")[0] == 0
    code, text, err = run("estimate", out, "regress", "age ~ C(sex)", "--json")
    assert (code, err) == (0, "")
    assert [row["term"] for row in json.loads(text)] == ["Intercept", "C(sex)[T.M]"]
    assert set(json.loads(text)[0]) == {"term", "p_value"} | results
    shown = run("estimate", out, "regress", "sex ~ age", "--family", "binomial", "--target", "table")[1]
    assert "n = 3,000, family binomial, of the table" in shown
    (row,) = json.loads(run("estimate", out, "compare", "age", "--by", "sex", "--json")[1])
    assert set(row) == {"sex", "minus"} | results
    (row,) = json.loads(run("estimate", out, "independence", "age", "sex", "--json")[1])
    assert {"p_value", "cramers_v", "lower"} < set(row)
    for words, message in (
        (["regress"], "regress takes one formula, such as 'visits ~ age'; got 0"),
        (["regress", "age ~ agee"], "did you mean 'age'"),
        (["compare", "age"], "compare takes --by"),
        (["independence", "age", "sex", "--target", "table"], "leave out --target"),
        (["mean", "age", "--family", "poisson"], "mean takes no --family"),
    ):
        code, text, err = run("estimate", out, *words)
        assert (code, text) == (2, ""), words
        assert message in err
        assert err.count("\n") == 1


def test_json_output_of_sanitize(files, run):
    arguments = ["--epsilon", 3, "--spaces", files / "spaces.json", "--json", "--no-shuffle"]
    code, text, _ = run("sanitize", files / "in.parquet", files / "out.parquet", *arguments)
    assert code == 0
    assert json.loads(text)["plan"]["shuffle"] is False


def test_json_of_an_inferred_plan_says_beside_it_what_it_spent(files, run):
    code, text, err = run("plan", files / "in.parquet", "--epsilon", 3, "--json")
    plan = dpf.Plan.from_json(text)
    assert code == 0
    assert f"planning again spends epsilon={plan.inferred.budget.epsilon:.4g} again" in err


def test_options_reach_the_plan(files, run):
    arguments = ["--epsilon", 3, "--delta", 0, "--spaces", files / "spaces.json", "--json"]
    arguments += ["--contributions", 3, "--nulls", "impute"]
    data = json.loads(run("plan", files / "in.parquet", *arguments)[1])
    assert (data["contributions"], data["nulls"], data["columns"][0]["mechanism"]["epsilon"]) == (3, "impute", 1 / 3)
    spaces = files / "some.json"
    spaces.write_text(json.dumps({"sex": ["F", "M"]}))
    arguments = ["--epsilon", 1, "--spaces", spaces, "--passthrough", "age", "--drop", "income", "--json"]
    data = json.loads(run("plan", files / "in.parquet", *arguments)[1])
    assert (data["passthrough"], data["drop"]) == (["age"], ["income"])


@pytest.mark.slow
def test_samples_and_allocations_are_options(files, run):
    source, out, spaces = files / "in.parquet", files / "out.parquet", files / "spaces.json"
    arguments = ["--epsilon", 3, "--spaces", spaces, "--sample", 300, "--allocation", "error"]
    code, text, err = run("plan", source, *arguments, "--json")
    assert (code, err) == (0, "")
    assert dpf.Plan.from_json(text) == dpf.plan(source, 3, spaces=SPACES, sample=300, allocation="error")
    code, text, err = run("sanitize", source, out, *arguments)
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: 300 of 3,000 rows in ")
    assert "Sample: 300 of 3,000 rows, chosen in secret" in run("inspect", out, "--explain")[1]
    rows = json.loads(run("estimate", out, "value-counts", "sex", "--json")[1])
    assert sum(row["estimate"] for row in rows) == pytest.approx(3_000)
    assert "a release of 300 of 3,000 rows" in run("inspect", out)[1]
    data = json.loads(run("inspect", out, "--json")[1])
    assert (data["n"], data["rows"], data["plan"]["sample"]) == (300, 3_000, 300)
    text = run("plan", source, "--epsilon", 0.1, "--delta", 0, "--spaces", spaces, "--sample", "optimal", "--json")[1]
    assert dpf.Plan.from_json(text) == dpf.plan(source, 0.1, 0, spaces=SPACES, sample="optimal")


@pytest.mark.slow
def test_a_plan_says_in_plain_words_what_to_expect_and_explains_its_accounting_when_asked(files, run):
    arguments = ["plan", files / "in.parquet", "--epsilon", 1, "--spaces", files / "spaces.json"]
    first, promise, head, expect, empty, *table = run(*arguments)[1].splitlines()
    assert first == "A plan for 3,000 rows, shuffled: 3 columns are randomised"
    assert promise.startswith("Promise: epsilon=1, delta=1e-06 for each person with one row; epsilon=")
    assert head == "To expect of 3,000 rows at epsilon=1, delta=1e-06 (95 % intervals):"
    assert re.fullmatch(r"  counts within ± [\d.]+ of 3,000 rows, means within ± [\d.]+ % of their range", expect)
    assert (empty, len(table)) == ("", 6)
    rough = run("plan", files / "in.parquet", "--epsilon", 0.05, "--spaces", files / "spaces.json")[1]
    assert re.search(r"\n  good \(5 %\) from [\d,]+ rows, or at epsilon=[\d.]+ with these\n", rough)
    text = run(*arguments, "--sample", 300, "--explain")[1]
    levers = text[text.index("What the accounting contributes") : text.index("What would help")]
    assert [line.split("  ")[0] for line in levers.splitlines()[3:-1]] == [
        "basic composition",
        "optimal composition",
        "secret order",
        "secret sample",
    ]
    assert text.index("What it means for one person") < text.index("\nHow the promise is kept\nRelease: epsilon=1")
    assert "bounds inference finds have intervals several times wider" in run(*arguments[:4], "--drop", "sex")[1]
    assert "default: min(1e-6, rows^-1.5)" in " ".join(run("plan", "--help")[1].split())


def test_declared_values_are_checked_before_inference_is_paid_for(files, run):
    table = pd.read_parquet(files / "in.parquet").assign(region="north")
    table.loc[16, "region"] = "east"
    table.to_parquet(files / "in.parquet", index=False)
    for command in (("plan", files / "in.parquet"), ("sanitize", files / "in.parquet", files / "out.parquet")):
        code, out, err = run(*command, "--epsilon", 1, "--space", "region=north,south")
        assert (code, out) == (2, "")
        assert err.startswith(
            "dpframe: column 'region' in row 17 (names not counted): holds a category outside the declared list"
        )
        assert err.count("\n") == 1, "nothing of what inference would find was said"


def test_a_plan_that_inference_was_paid_for_says_so(files, run):
    code, text, _ = run("plan", files / "in.parquet", "--epsilon", 1, "-o", files / "plan.json")
    spent = dpf.Plan.read(files / "plan.json").inferred.budget.epsilon
    assert code == 0
    said = f"Inference looked at the data: reuse {files / 'plan.json'} (dpframe sanitize --plan); planning again spends"
    assert text.startswith(f"{said} epsilon={spent:.4g} again\n")
    declared = run("plan", files / "in.parquet", "--epsilon", 1, "--spaces", files / "spaces.json")[1]
    assert "Inference looked" not in declared


@pytest.mark.filterwarnings("always")
def test_inference_from_data_warns_in_one_line(files, run):
    code, _, err = run("plan", files / "in.parquet", "--epsilon", 3, "--infer", "data")
    assert code == 0
    assert err.startswith("dpframe: warning: spaces of age, sex, income were read off the data")
    assert err.count("\n") == 1


BAD = [
    (["sanitize", "in.parquet", "out.parquet"], "give epsilon, e.g. --epsilon 1.0, or --plan FILE"),
    (["plan", "in.parquet"], "give --epsilon"),
    (
        ["sanitize", "in.parquet", "out.parquet", "--epsilon", "1", "--infer", "public"],
        "3 columns need a declared space",
    ),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "0", "--spaces", "spaces.json"], "must be finite"),
    (
        ["sanitize", "in.parquet", "out.parquet", "--epsilon", "nan", "--spaces", "spaces.json"],
        "epsilon must be finite",
    ),
    (
        ["sanitize", "in.parquet", "out.parquet", "--epsilon", "inf", "--spaces", "spaces.json"],
        "epsilon must be finite",
    ),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "one"], "Invalid value for '--epsilon'"),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "1", "--delta", "1"], r"delta must lie in [0, 1)"),
    (["sanitize", "no.parquet", "out.parquet", "--epsilon", "1"], "no.parquet does not exist"),
    (["sanitize", "no.csv", "out.parquet", "--epsilon", "1"], "no.csv does not exist"),
    (
        ["sanitize", "spaces.json", "out.parquet", "--epsilon", "1"],
        "spaces.json is not a readable Parquet file; a CSV file is known by its name, which ends in .csv",
    ),
    (["sanitize"], "Missing argument"),
    (["sanitize", "in.parquet", "in.parquet", "--epsilon", "1", "--spaces", "spaces.json"], "is part of the input"),
    (["sanitize", "in.parquet", "no/out.parquet", "--epsilon", "1", "--spaces", "spaces.json"], "is not a directory"),
    (
        ["sanitize", "in.parquet", "out.parquet", "--plan", "no.json"],
        "no.json does not exist; dpframe plan",
    ),
    (["sanitize", "in.parquet", "out.parquet", "--plan", "spaces.json"], 'it has no "schema" number'),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "1", "--spaces", "in.parquet"], "in.parquet is not JSON"),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "1", "--spaces", "no.json"], "is not a readable file"),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "1", "--spaces", "list.json"], "must hold one JSON object"),
    (["sanitize", "in.parquet", "out.parquet", "--epsilon", "1", "--drop", "height"], "drop names 'height'"),
    (["plan", "in.parquet", "--epsilon", "1", "--drop", "ag"], "drop names 'ag', which is not a column; did you mean"),
    (["plan", "in.parquet", "--epsilon", "1", "--drop", "age,sex"], "not a column; write --drop age --drop sex; col"),
    (["plan", "in.parquet", "--epsilon", "1", "--passthrough", "age,sex"], "write --passthrough age --passthrough sex"),
    (["plan", "no*.csv", "--epsilon", "1"], "no CSV file matches no*.csv"),
    (["estimate", "in.parquet", "mean", "age"], "the table carries no release plan"),
    (["estimate", "in.parquet", "middle", "age"], "statistic must be one of value-counts, crosstab"),
    (["estimate", "in.parquet", "value_count", "age"], "did you mean 'value-counts'? statistic must be one of"),
    (["estimate", "in.parquet", "count", "age"], "count takes --where and no columns; got 1"),
    (["estimate", "in.parquet", "corr", "age", "income", "--where", "{}"], "corr takes no --where; leave it out"),
    (["estimate", "in.parquet", "count", "--where", "[]"], "--where must be a JSON object"),
    (["estimate", "in.parquet", "crosstab", "age"], "crosstab takes 2 columns; got 1"),
    (
        ["estimate", "in.parquet", "crosstab", "age", "sex", "--normalize", "index"],
        "for shares within age, joint age sex --given age",
    ),
    (["estimate", "in.parquet", "mean", "age", "sex"], "got 2; to group by the second, dpframe … mean age --by sex"),
    (["inspect", "no.parquet"], "no.parquet does not exist"),
    (["estimate", "in.parquet", "mean", "age", "--given", "sex"], "mean takes no --given; leave it out"),
    (["estimate", "in.parquet", "mean", "age", "--bins", "3"], "mean takes --bins for the column of --by only"),
    (["estimate", "in.parquet", "histogram", "age", "--method", "em"], "histogram takes no --method"),
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "spaces.json", "--sample", "many"], 'or "optimal"'),
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "spaces.json", "--sample", "0"], "from 1 to 3,000"),
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "spaces.json", "--sample", "3001"], "from 1 to 3,000"),
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "spaces.json", "--sample", "9" * 5000], 'or "optimal"'),
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "spaces.json", "--allocation", "most"], 'be "uniform"'),
    (["explode"], "No such command 'explode'"),
    (["expect", "in.parquet"], "No such command 'expect': dpframe forecast SOURCE --epsilon 1 says"),
    (["report", "in.parquet"], "No such command 'report': dpframe inspect RELEASE --html FILE"),
    (["demo", "--rows", "-5"], "'--rows'"),
    (["demo", "--rows", "99"], "'--rows'"),
    (
        ["sanitize", "in.parquet", "out.xlsx", "--epsilon", "1"],
        ".xlsx is not written; name a .parquet or .csv file",
    ),
    (["sanitize", "in.parquet", "out.csv.gz", "--epsilon", "1"], ".gz is not written; name a .parquet or .csv file"),
    (["plan", "in.parquet", "--epsilon", "1", "-o", "no/plan.json"], "no is not a directory; make it first"),
    (["plan", "in.parquet", "--epsilon", "1", "-o", "in.parquet"], "in.parquet is part of the input; write to another"),
    (["plan", "in.parquet", "--epsilon", "1", "-o", "plan.xlsx"], "plan.xlsx must end with .json, which is what"),
    (["plan", "in.parquet", "--epsilon", "1", "--html", "page.json"], "page.json must end with .html or .htm"),
    (["demo", "--folder", "in.parquet"], "in.parquet could not be made: File exists; name another folder"),
    (["spaces", "bare.parquet"], "bare.parquet has no columns, so there is nothing to release; name another file"),
]


BAD += [
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "pair.json"], "column 'age': a list of two numbers may mean"),
    (["plan", "in.parquet", "--epsilon", "1", "--spaces", "tag.json"], "tag.json, column 'sex': unknown space tag"),
    (
        ["plan", "in.parquet", "--epsilon", "1", "--spaces", "within.json"],
        "within.json, column 'age': unknown space",
    ),
    (
        ["plan", "in.parquet", "--epsilon", "1", "--spaces", "number.json"],
        "number.json, column 'age': a space is",
    ),
    (
        ["estimate", "in.parquet", "histogram", "age", "--bins", "0"],
        "--bins must be a whole number, at least 1, or edges",
    ),
    (["estimate", "in.parquet", "value-counts", "age", "--bins", "x"], "--bins must be a whole number, at least 1"),
    (["plan", "in.parquet", "--epsilon", "-1"], "e.g. --epsilon 1.0; got"),
    (["plan", "in.parquet", "--epsilon", "1", "--delta", "2"], "e.g. --delta 0 or --delta 1e-6; got"),
    (
        ["plan", "in.parquet", "--epsilon", "1", "--infer", "public"],
        'pass --spaces FILE, which holds {"age": {"',
    ),
    (
        ["plan", "in.parquet", "--epsilon", "1", "--infer", "public"],
        '"inner": …} keeps nulls), or --infer private',
    ),
    (["plan", "in.parquet", "--epsilon", "1", "--ledger", "l.sqlite"], "--ledger ledger.sqlite, --dataset survey-2026"),
]
FILES = {
    "pair.json": {"age": [0, 120]},
    "tag.json": {"sex": {"space": "circle"}},
    "within.json": {"age": {"space": "nullable", "inner": {"space": "circle"}}},
    "number.json": {"age": 3},
}


@pytest.mark.parametrize("arguments, message", BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_bad_input_is_one_line_and_no_file(arguments, message, files, run, monkeypatch):
    monkeypatch.chdir(files)
    (files / "list.json").write_text("[1]")
    for name, spaces in FILES.items():
        (files / name).write_text(json.dumps(spaces))
    pd.DataFrame(index=range(3)).to_parquet(files / "bare.parquet")
    before = sorted(path.name for path in files.iterdir())
    code, out, err = run(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("dpframe: ")
    assert not re.search(r"\b(epsilon|delta|drop|passthrough|infer|nulls|spaces|sample|bins|ledger)=", err), err
    assert (err.count("\n"), out) == (1, "")
    assert sorted(path.name for path in files.iterdir()) == before


def test_what_a_release_cannot_answer_or_be_written_to_is_one_line(files, run, monkeypatch):
    monkeypatch.chdir(files)
    code, out, _ = run("sanitize", "in.parquet", "out.parquet", "--epsilon", 1, "--spaces", "spaces.json")
    assert (code, ".dpframe.json" in out) == (0, False)
    unknown = "column 'height' is not in the release; randomised columns are age, sex, income"
    for arguments, message in (
        (["estimate", "out.parquet", "joint", "height"], unknown),
        (["estimate", "out.parquet", "crosstab", "sex", "height"], unknown),
        (
            ["estimate", "out.parquet", "mean", "sex"],
            "column 'sex' holds no numbers; value-counts sex gives its shares",
        ),
        (["inspect", "out.parquet", "--html", "in.parquet"], "in.parquet must end with .html or .htm"),
        (["record", "out.parquet", "--output", "in.parquet"], "in.parquet must end with .yaml or .yml"),
    ):
        before = (files / "in.parquet").read_bytes()
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"dpframe: {message}")
        assert (files / "in.parquet").read_bytes() == before
    told = run("sanitize", "in.parquet", "out.csv", "--epsilon", 1, "--spaces", "spaces.json")[1]
    assert "\nout.csv.dpframe.json: what the release says of itself; those who get the rows need it" in told


def test_text_files_as_editors_of_windows_write_them(files, run, monkeypatch):
    """A byte order mark, and lines that end with two characters."""
    monkeypatch.chdir(files)

    def rewritten(name):
        lines = (files / name).read_text(encoding="utf-8-sig").splitlines()
        (files / name).write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in lines).encode())

    rewritten("spaces.json")
    (files / "rules.json").write_text("[]")
    rewritten("rules.json")
    made = ("--epsilon", 1, "--spaces", "spaces.json", "--rules", "rules.json")
    assert run("plan", "in.parquet", *made, "-o", "plan.json")[0] == 0
    plan = dpf.Plan.read("plan.json")
    rewritten("plan.json")
    assert dpf.Plan.read("plan.json") == plan
    dpf.read("in.parquet").to_csv("in.csv", index=False)
    rewritten("in.csv")
    assert run("sanitize", "in.csv", "out.parquet", "--plan", "plan.json")[0] == 0
    assert run("record", "out.parquet", "--output", "record.yaml")[0] == 0
    rewritten("record.yaml")
    assert run("verify", "out.parquet", "--record", "record.yaml")[0] == 0
    (files / "spaces.toml").write_text('sex = ["F", "M"]\n')
    rewritten("spaces.toml")
    left = ("--drop", "age", "--drop", "income", "--json")
    code, text, _ = run("plan", "in.parquet", "--epsilon", 1, "--spaces", "spaces.toml", *left)
    assert code == 0
    assert dpf.Plan.from_json(text)["sex"].space == dpf.Categorical(["F", "M"])


def test_values_never_reach_the_terminal(files, run, monkeypatch):
    monkeypatch.chdir(files)
    frame = pd.DataFrame({"sex": ["F"] * 10 + ["SECRET"]})
    frame.to_parquet("secret.parquet")
    (files / "sex.json").write_text(json.dumps({"sex": ["F", "M"]}))
    code, out, err = run("sanitize", "secret.parquet", "out.parquet", "--epsilon", 1, "--spaces", "sex.json")
    assert (code, out) == (2, "")
    assert "column 'sex' in row 11 (names not counted): holds a category outside the declared list" in err
    assert "SECRET" not in err
    assert not (files / "out.parquet").exists()


def test_release_of_a_release_is_refused(files, run):
    arguments = ["--epsilon", 3, "--spaces", files / "spaces.json"]
    assert run("sanitize", files / "in.parquet", files / "out.parquet", *arguments)[0] == 0
    code, _, err = run("sanitize", files / "out.parquet", files / "again.parquet", *arguments)
    assert code == 2
    assert "is a release already" in err


def test_demo(run, tmp_path):
    code, out, err = run("demo", "--rows", 2_000, "--folder", tmp_path / "demo")
    assert (code, err) == (0, "")
    for words in ("2,000 rows", "rows by sex", "sex by education", "mean age by sex", "truth", "interval"):
        assert words in out
    assert pq.read_metadata(tmp_path / "demo" / "release.parquet").num_rows == 2_000


@pytest.mark.parametrize("group", [[], ["ledger"], ["vertical"]])
def test_without_arguments_help_is_all_that_is_said(run, group):
    code, out, err = run(*group)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ")
    assert "see dpframe --help" not in err


@pytest.mark.filterwarnings("default::dpframe.InferenceWarning")
def test_an_estimate_of_what_was_not_found_says_so(run, tmp_path):
    pd.DataFrame({"word": [f"w{i}" for i in range(200)]}).to_csv(tmp_path / "in.csv", index=False)
    assert run("sanitize", tmp_path / "in.csv", tmp_path / "out.csv", "--epsilon", 1)[0] == 0
    code, out, err = run("estimate", tmp_path / "out.csv", "value-counts", "word")
    assert (code, "NaN" in out) == (0, True)
    assert "\n  word  no value cleared the threshold  --space word=CATEGORY,…" in err


def test_refusals_say_what_to_write(files, run):
    out = files / "out.parquet"
    assert run("sanitize", files / "in.parquet", out, "--epsilon", 1, "--spaces", files / "spaces.json")[0] == 0
    refused = [
        (("plan", files / "in.parquet", "--epsilon", 1, "--space", "age=18-100"), "bounds are written age=18,100"),
        (
            ("plan", files / "in.parquet", "--epsilon", 1, "--space", "age=0"),
            "one number is no space; bounds are written age=0,100, a list of one value age=[0]",
        ),
        (("sanitize", files / "in.parquet", out, "--epsilon", "abc"), "see dpframe sanitize --help"),
        (
            ("estimate", files / "in.parquet", "mean", "age"),
            "no release plan; make one with dpframe sanitize, or",
        ),
        (("estimate", out, "mean", "aeg"), "did you mean 'age'?"),
        (
            ("estimate", out, "count", "--where", '{"age": {"not": [14, 20]}}'),
            'may mean a range or values; write {"lower": 14, "upper": 20} or {"values": [14, 20]}',
        ),
    ]
    for arguments, said in refused:
        code, _, err = run(*arguments)
        assert (code, len(err.splitlines())) == (2, 1)
        assert said in err
    (row,) = json.loads(run("estimate", out, "count", "--where", '{"age": {"lower": 60}}', "--json")[1])
    assert row["estimate"] == pytest.approx(dpf.Estimates(out).count({"age": (60, None)})["estimate"])
    (row,) = json.loads(run("estimate", out, "count", "--where", '{"age": {"values": [20, 60]}}', "--json")[1])
    assert row["estimate"] == pytest.approx(dpf.Estimates(out).count({"age": [20, 60]})["estimate"])


@pytest.mark.slow
def test_as_a_process(files):
    """Exit code and streams as a shell sees them."""
    done = subprocess.run([sys.executable, "-m", "dpframe", "inspect", "no.parquet"], cwd=files, capture_output=True)
    assert done.returncode == 2
    assert done.stderr == b"dpframe: no.parquet does not exist\n"
    done = subprocess.run([sys.executable, "-m", "dpframe", "--help"], cwd=files, capture_output=True)
    assert done.returncode == 0
    assert b"sanitize" in done.stdout


@pytest.mark.slow
def test_adult_from_the_shell(adult, adult_spaces, tmp_path, run):
    """All 15 columns; from the output alone: income, sex by income, mean age by sex, beside the truth.

    12 intervals at level 1 − 1e-6, so an error probability of about 1e-5 (keys are fresh).
    """
    adult.to_parquet(tmp_path / "adult.parquet", index=False)
    spaces = {name: space_of(space).to_json() for name, space in adult_spaces.items()}
    (tmp_path / "spaces.json").write_text(json.dumps(spaces))
    out = tmp_path / "out.parquet"
    arguments = ["--epsilon", 15, "--spaces", tmp_path / "spaces.json"]
    assert run("plan", tmp_path / "adult.parquet", *arguments, "-o", tmp_path / "plan.json")[0] == 0
    assert run("sanitize", tmp_path / "adult.parquet", out, "--plan", tmp_path / "plan.json")[0] == 0

    def ask(*words):
        return json.loads(run("estimate", out, *words, "--json", "--confidence-level", 1 - 1e-6)[1])

    truth = adult["income"].value_counts()
    assert all(r["lower"] <= truth[r["income"]] <= r["upper"] for r in ask("value-counts", "income"))
    truth = pd.crosstab(adult["sex"], adult["income"])
    assert all(r["lower"] <= truth.loc[r["sex"], r["income"]] <= r["upper"] for r in ask("crosstab", "sex", "income"))
    truth = adult.groupby("sex")["age"].mean()
    assert all(r["lower"] <= truth[r["sex"]] <= r["upper"] for r in ask("mean", "age", "--by", "sex"))
    assert np.isfinite([r["std_error"] for r in ask("mean", "age", "--by", "sex")]).all()


def test_groups_and_mechanisms_are_options(files, run):
    source, out, spaces = files / "in.parquet", files / "out.parquet", files / "spaces.json"
    options = ["--spaces", spaces, "--group", "sex, age", "--mechanism", "income=nullable_geometric"]
    code, text, _ = run("plan", source, "--epsilon", 3, *options, "--json")
    assert code == 0
    plan = dpf.Plan.from_json(text)
    given = {"income": "nullable_geometric"}
    assert plan == dpf.plan(source, 3, spaces=SPACES, groups=[("sex", "age")], mechanisms=given)
    code, text, err = run("sanitize", source, out, "--epsilon", 3, *options)
    assert (code, err) == (0, "")
    assert "Randomised together, one epsilon for all: sex, age" in run("inspect", out, "--explain")[1]
    assert dpf.read(out).dp.release.plan == plan
    code, text, _ = run("estimate", out, "joint", "sex", "age", "--bins", 3, "--method", "inverse")
    assert code == 0
    assert "method: inverse" in text


@pytest.mark.parametrize(
    "options, message",
    [
        (["--group", "sex"], "a group must name two or more columns"),
        (["--group", "sex,nobody"], "groups name 'nobody', which is not a randomised column"),
        (["--group", "sex,age", "--group", "age,income"], "column 'age' is in two groups"),
        (["--group", "sex,income"], "group sex × income has"),
        (["--mechanism", "age"], "--mechanism takes column=tag"),
        (["--mechanism", "=geometric"], "--mechanism takes column=tag"),
        (["--mechanism", "sex=geometric"], "'sex': mechanism must be one of"),
        (["--mechanism", "sex=gamma_diagonal"], "'sex': mechanism must be one of"),
    ],
)
def test_groups_and_mechanisms_refused(files, run, options, message):
    spaces = {
        **SPACES,
        "income": {"space": "nullable", "inner": {"space": "real", "lower": 0, "upper": 9, "steps": 10**7}},
    }
    (files / "spaces.json").write_text(json.dumps(spaces))
    code, out, err = run("plan", files / "in.parquet", "--epsilon", 1, "--spaces", files / "spaces.json", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


ROOT = Path(__file__).parents[2]
CODEBOOK = ROOT / "docs" / "how-to" / "codebook.md"


def examples_of_spaces(run):
    """Return the spaces files that the docs and ``--help`` show."""
    text = " ".join(run("plan", "--help")[1].split())
    shown = json.JSONDecoder().raw_decode(text, text.index('{"age"'))[0]
    blocks = re.findall(r"```json\n(.*?)```", CODEBOOK.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 1
    return {"help": shown, "docs": json.loads(blocks[0])}


def test_the_spaces_files_of_readme_and_help_are_read(tmp_path, run):
    frame = pd.DataFrame({"age": [1], "sex": ["F"], "children": [0], "region": ["North"], "income": [1.5]})
    kinds = {"age": "integer", "sex": "categorical", "children": "categorical", "region": "categorical"}
    for place, example in examples_of_spaces(run).items():
        frame[list(example)].to_parquet(tmp_path / "in.parquet", index=False)
        (tmp_path / "spaces.json").write_text(json.dumps(example))
        options = ["--epsilon", 1, "--spaces", tmp_path / "spaces.json", "--infer", "public", "--json"]
        code, text, err = run("plan", tmp_path / "in.parquet", *options)
        assert (code, err) == (0, ""), place
        for column in dpf.Plan.from_json(text).columns:
            inner = column.space.inner if column.name == "income" else column.space
            assert inner.tag == kinds.get(column.name, "real"), place


def test_inspect_says_what_it_wrote(files, run):
    out, html = files / "out.parquet", files / "report.html"
    assert run("sanitize", files / "in.parquet", out, "--epsilon", 3, "--spaces", files / "spaces.json")[0] == 0
    code, text, err = run("inspect", out, "--html", html)
    assert (code, err) == (0, "")
    assert text.startswith(f"wrote {html}: the report on {out}")
    code, text, err = run("inspect", out, "--html", html, "--json")
    assert json.loads(text)["n"] == 3_000
    assert err.startswith(f"wrote {html}")


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interruption_while_modules_load_is_one_line(tmp_path, ignored):
    """A module of pandas' name that interrupts the process stands for a key pressed during imports."""
    (tmp_path / "pandas.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(9)\n")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "dpframe", "--help"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        # Jobs in a shell's background have it ignored, and so would theirs.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )
    stopped = (130, b"dpframe: stopped; nothing was read or written\n")
    assert (done.returncode, done.stderr) == ((9, b"") if ignored else stopped)


@pytest.mark.slow
def test_importing_the_library_leaves_interruptions_alone(tmp_path):
    code = "import signal, dpframe; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_synthesize(files, run):
    source, safe, out, again = (files / f"{name}.parquet" for name in ("in", "safe", "out", "again"))
    assert run("sanitize", source, safe, "--epsilon", 20, "--delta", 0, "--spaces", files / "spaces.json")[0] == 0
    code, text, err = run("synthesize", safe, out, "--random-state", 1)
    assert (code, err) == (0, "")
    assert re.fullmatch(
        rf"{re.escape(str(out))}: 3,000 synthetic rows in \d.* s; this spends no budget", text.splitlines()[0]
    )
    drawn, census, released = (pd.read_parquet(path) for path in (out, source, safe))
    assert (drawn.dtypes == released.dtypes).all()
    assert drawn["age"].mean() == pytest.approx(census["age"].mean(), abs=3)
    assert drawn["income"].isna().mean() == pytest.approx(census["income"].isna().mean(), abs=0.04)
    with pytest.raises(dpf.NotSanitizedError, match=r"is synthetic.*ask the release that it was drawn from"):
        drawn.dp.mean("age")
    assert run("synthesize", safe, again, "--random-state", 1)[0] == 0
    pd.testing.assert_frame_equal(pd.read_parquet(again), drawn)
    assert run("synthesize", safe, again, "--rows", 70)[0] == 0
    assert len(pd.read_parquet(again)) == 70


def test_what_is_written_says_what_it_replaces_and_that_nobody_counts(tmp_path, run):
    pd.DataFrame({"sex": ["F", "M"] * 50}).to_csv(tmp_path / "in.csv", index=False)
    given = (tmp_path / "in.csv", tmp_path / "out.parquet", "--epsilon", 3, "--space", "sex=F,M")
    first, second = (run("sanitize", *given)[1] for _ in range(2))
    there = ", in place of the file that was there"
    assert (there in first.splitlines()[0], there in second.splitlines()[0]) == (False, True)
    assert first.splitlines()[-1].startswith("No ledger: another release of these people adds its epsilon")
    (tmp_path / "rows.csv").touch()
    assert there in run("synthesize", given[1], tmp_path / "rows.csv", "--rows", 9)[1]
    for command in (
        ("plan", given[0], *given[2:], "-o", tmp_path / "plan.json"),
        ("record", given[1], "-o", tmp_path / "record.yaml"),
    ):
        first, second = (run(*command)[2] for _ in range(2))
        assert (there in first, there in second) == (False, True)


@pytest.mark.slow
def test_synthesize_says_what_synthetic_rows_do_not_hold(files, run):
    """Two columns that are one, and a third that has nothing to do with them: one pair shows, two do not."""
    sex = np.array(["F", "M"] * 1_000)
    table = pd.DataFrame({"sex": sex, "again": sex, "x": np.repeat([1, 2, 3, 4], 500)})
    spaces = {"sex": ["F", "M"], "again": ["F", "M"], "x": (1, 4)}
    dpf.sanitize(table, files / "safe.parquet", 4, spaces=spaces, key=bytes(32))
    code, text, err = run("synthesize", files / "safe.parquet", files / "out.parquet")
    assert (code, err) == (0, "")
    assert text.splitlines()[1].startswith("1 of 3 pairs of columns show dependence beyond noise; these rows hold")
    assert f"dpframe estimate {files / 'safe.parquet'} fidelity lists the pairs" in text
    text = run("synthesize", files / "safe.parquet", files / "out.parquet", "--drop", "x")[1]
    assert len(text.splitlines()) == 1


def test_synthesize_leaves_out_columns(files, run):
    """Those of which no rows are drawn are in nobody's way."""
    safe, out = files / "safe.parquet", files / "out.parquet"
    census = dpf.datasets.make_census(300, columns=["sex", "load_curve", "age"])
    spaces = {"sex": ["F", "M"], "load_curve": dpf.Vector(24, 9.0), "age": (0, 120)}
    dpf.sanitize(census, safe, 9, 0, spaces=spaces)
    code, _, err = run("synthesize", safe, out)
    assert code == 2
    assert "estimate RELEASE mean-curve load_curve estimates it, and --drop load_curve draws the others\n" in err
    code, text, err = run("synthesize", safe, out, "--drop", "load_curve", "--json", "--random-state", 1)
    facts = json.loads(text)
    assert facts.pop("pairs_that_show") in (0, 1)
    assert (code, err, facts) == (
        *(0, ""),
        {"target": str(out), "rows": 300, "epsilon_spent": 0, "pairs": 1},
    )
    rows = dpf.read(safe).drop(columns="load_curve").dp.synthesize(random_state=1)
    pd.testing.assert_frame_equal(pd.read_parquet(out), rows.reset_index(drop=True))
    wrong = "drop names 'load_curv', which is not a column; did you mean 'load_curve'? columns are sex, load_curve, age"
    every = "drop names every column, so that nothing is left; keep one at least"
    for words, message in {"--drop load_curv": wrong, "--drop sex --drop load_curve --drop age": every}.items():
        code, _, err = run("synthesize", safe, out, *words.split())
        assert (code, err) == (2, f"dpframe: {message}\n")
    assert run("synthesize", safe, files / "out.csv", "--drop", "load_curve", "--rows", 7)[0] == 0
    assert len(pd.read_csv(files / "out.csv")) == 7


def test_synthesize_refuses(files, run):
    source, safe, out = (files / f"{name}.parquet" for name in ("in", "safe", "out"))
    code, _, err = run("synthesize", source, out)
    assert code == 2
    assert "is not a release, which synthetic rows are drawn from; sanitise it first" in err
    assert run("sanitize", source, safe, "--epsilon", 4, "--delta", 0, "--spaces", files / "spaces.json")[0] == 0
    assert run("synthesize", safe, out, "--rows", 0)[0] == 2
    code, _, err = run("synthesize", safe, safe)
    assert code == 2
    assert "is part of the input; write to another place" in err
    assert run("synthesize", safe, out)[0] == 0
    for command in (["inspect", out], ["estimate", out, "mean", "age"], ["synthesize", out, files / "more.parquet"]):
        code, _, err = run(*command)
        assert code == 2
        assert "the table is synthetic and carries no plan" in err


def test_the_version_is_that_of_the_changelog_and_the_package(run):
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+) ", changelog, re.MULTILINE)
    assert newest is not None
    assert run("--version") == (0, f"dpframe {newest[1]}\n", "")
    assert dpf.__version__ == newest[1]


def test_statistics_of_a_column_that_take_no_options_are_found_by_their_methods(run):
    names = statistics(run)
    assert {"median", "sum", "var", "std", "null-rate"} <= names
    assert not [name for name in names if name.startswith("-")]
    methods = {name.replace("-", "_") for name in names}
    assert all(callable(getattr(dpf.Estimates, name)) for name in methods)
