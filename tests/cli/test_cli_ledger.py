"""``dpframe ledger``: one clear line for what is refused, and 3 for a budget that is exceeded."""

import json
import re
import subprocess
import sys

import pandas as pd
import pytest

import dpframe as dpf
from dpframe.accounting.gaussian_dp import Step, largest_step
from dpframe.cli import main
from dpframe.ledger import job_keys
from dpframe.ledger.currencies import Amount
from dpframe.ledger.ledger import Ledger


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in this process; return exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", print)  # restored afterwards

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main.main(["ledger", *(str(argument) for argument in arguments)])
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return call


@pytest.fixture
def ledger(run):
    run("create", "l.sqlite", "--dataset", "survey", "--epsilon", 1, "--delta", 1e-6, "--accounting", "basic")
    return Ledger("l.sqlite")


def interrupt(ledger):
    with pytest.raises(ZeroDivisionError), job_keys.job(ledger, "survey", job_keys.job_name("out.parquet"), b"") as job:
        job.spend(0.2, 1e-7)
        raise ZeroDivisionError


def test_create_and_show(run):
    code, out, err = run("create", "l.sqlite", "--dataset", "survey", "--epsilon", 1, "--delta", "1e-6")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["survey", "gaussian", "row", "1", "0", "1", "1e-06", "0", "5e-07", "0"]
    code, out, err = run("create", "l.sqlite", "--dataset", "a\nb", "--epsilon", 0.5)
    assert (code, err) == (0, "")
    assert r"'a\nb'" in out
    assert run("show", "l.sqlite") == (0, out, "")
    rows = json.loads(run("show", "l.sqlite", "--json")[1])
    assert rows[1] == {
        "dataset": "a\nb",
        "accounting": "basic",
        "unit": "row",
        "epsilon": 0.5,
        "spent_epsilon": 0.0,
        "left_epsilon": 0.5,
        "delta": 0.0,
        "spent_delta": 0.0,
        "left_delta": 0.0,
        "releases": 0,
        "interrupted": [],
    }
    assert json.loads(run("create", "l.sqlite", "--dataset", "third", "--epsilon", 2, "--json")[1])[2]["epsilon"] == 2


def test_one_dataset_is_shown(run, ledger):
    run("create", "l.sqlite", "--dataset", "others", "--epsilon", "2")
    both, one = (json.loads(run("show", "l.sqlite", *only, "--json")[1]) for only in ((), ("--dataset", "others")))
    assert len(both) > len(one) == 1
    assert one[0]["dataset"] == "others"


def test_show_says_what_a_year_adds_up_to_and_what_is_left_for(run, ledger):
    ledger.spend("survey", 0.5, 0.0, release_id="a")
    ledger.spend("survey", 0.01, 1e-7, release_id="b")
    out = run("show", "l.sqlite")[1]
    assert (
        "survey: one such release every night (epsilon=0.01, delta=1e-07 each) "
        "would add up to epsilon=3.65, delta=3.65e-05 in a year; "
        "what is left is enough for 9 more\n"
    ) in out


def test_gaussian_accounting_and_parts(run):
    words = (
        "create l.sqlite --dataset survey --epsilon 2 --delta 3.65e-7 --accounting gaussian --part north --part south"
    )
    code, out, err = run(*words.split())
    assert (code, err) == (0, "")
    assert "survey, part north: epsilon=2, delta=1.825e-07 left\nsurvey, part south: epsilon=2, " in out
    ledger, night = Ledger("l.sqlite"), largest_step(dpf.Budget(0.1, 1e-9), 0.1)
    ledger.spend("survey", 0.1, 1e-9, release_id="a", step=night, part="north")
    out = run("show", "l.sqlite")[1]
    more = ledger.more("a")
    assert more >= 364
    assert (
        "survey: one such release every night (epsilon=0.1, delta=1e-09 each) "
        "would add up to epsilon=36.5, delta=3.65e-07 in a year; in "
        f"Gaussian accounting to epsilon=1.755, delta=3.65e-07; what is left is enough for {more} more\n"
    ) in out
    assert "survey, part north: epsilon=1.99" in out
    assert "survey, part south: epsilon=2, " in out
    row = json.loads(run("history", "l.sqlite", "--json")[1])[0]
    assert (row["part"], row["mu"], row["slack"]) == ("north", night.mu, night.delta)
    assert "total epsilon" in run("history", "l.sqlite")[1]


def test_what_costs_nothing_fits_without_end(run):
    run("create", "l.sqlite", "--dataset", "survey", "--epsilon", 1, "--delta", 1e-6)
    Ledger("l.sqlite").spend("survey", 0.1, 1e-9, release_id="a", step=Step(0.0))
    assert "what is left is enough for any number more\n" in run("show", "l.sqlite")[1]


def test_tiny_deltas_are_not_rounded_away(run, ledger):
    ledger.spend("survey", 0.5, 1e-20, release_id="a")
    assert json.loads(run("show", "l.sqlite", "--json")[1])[0]["spent_delta"] == 1e-20
    assert json.loads(run("history", "l.sqlite", "--json")[1])[0]["delta"] == 1e-20
    assert "1e-20" in run("history", "l.sqlite")[1]


def test_history(run, ledger):
    assert run("history", "l.sqlite") == (0, "l.sqlite: nothing was spent yet\n", "")
    assert run("history", "l.sqlite", "--json") == (0, "[]\n", "")
    ledger.create("other", 1.0)
    ledger.spend("survey", 0.1, 0.0, release_id="night\n1", who="Ada")
    ledger.spend("other", 0.2, 0.0, release_id="b")
    ledger.spend("survey", 0.1, 0.0, release_id="c")
    code, out, err = run("history", "l.sqlite")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 4
    for word in ("who", "Ada", "when", r"'night\n1'", "total epsilon", "0.2"):
        assert word in out
    rows = json.loads(run("history", "l.sqlite", "--json", "--dataset", "survey")[1])
    assert [row["cumulative_epsilon"] for row in rows] == [0.1, 0.2]
    assert rows[0]["when"].endswith("+00:00")


def test_forget(run, ledger):
    interrupt(ledger)
    shown = run("show", "l.sqlite")[1]
    assert "out.parquet (survey): runs, or was interrupted; the same command again costs nothing more, and" in shown
    assert "`dpframe ledger forget l.sqlite --dataset survey --job " in shown
    name = job_keys.job_name("out.parquet")
    assert json.loads(run("show", "l.sqlite", "--json")[1])[0]["interrupted"] == [name]
    assert run("forget", "l.sqlite", "--dataset", "survey", "--job", "out.parquet")[0] == 0
    assert job_keys.pending(ledger) == []
    interrupt(ledger)
    code, out, err = run("forget", "l.sqlite", "--dataset", "survey", "--job", name)
    assert (code, out, err) == (0, f"{name}: its key is deleted; what was spent stays spent\n", "")
    assert ledger.spent("survey").epsilon == 0.4
    code, out, err = run("forget", "l.sqlite", "--dataset", "survey", "--job", "out.parquet")
    assert (code, out) == (2, "")
    assert err == f"dpframe: no interrupted job {name} of dataset survey; there is: none\n"


BAD = [
    (["show", "no.sqlite"], "no.sqlite does not exist; make it with: dpframe ledger create no.sqlite --dataset NAME"),
    (["history", "no.sqlite"], "no.sqlite does not exist; make it with"),
    (["history", "l.sqlite", "--dataset", "b"], "dataset b is not in l.sqlite, which holds survey; make it with"),
    (["create", "l.sqlite", "--dataset", "survey", "--epsilon", "1"], "dataset survey is in l.sqlite already"),
    (["create", "new", "--dataset", "a", "--epsilon", "0"], "epsilon must be finite and above 0"),
    (["create", "new", "--dataset", "a", "--epsilon", "nan"], "epsilon must be finite and above 0"),
    (["create", "new", "--dataset", "a", "--epsilon", "1", "--delta", "1"], "delta must lie in [0, 1)"),
    (["create", "new", "--dataset", "", "--epsilon", "1"], "dataset must be text of at least one character"),
    (["create", "no/new", "--dataset", "a", "--epsilon", "1"], "no/new cannot be made: No such file or directory"),
    (["create", "new", "--dataset", "a"], "Missing option '--epsilon'"),
    (
        ["create", "new", "--dataset", "a", "--epsilon", "1", "--accounting", "gaussian"],
        "dataset with --accounting basic",
    ),
    (["create", "new", "--dataset", "a", "--epsilon", "1", "--accounting", "x"], 'must be "gaussian" or "basic"; give'),
    (
        ["create", "new", *["--dataset", "a", "--epsilon", "1", "--moving"]],
        "parts, e.g. --part north --part south",
    ),
    (
        ["create", "new", *["--dataset", "a", "--epsilon", "1", "--part", "n", "--part", "n"]],
        "parts must differ from one",
    ),
    (["show", "."], ". is not a regular file"),
    (["show", "l.sqlite", "--dataset", "nobody"], "nobody"),
    (["explode"], "No such command 'explode'"),
]


@pytest.mark.parametrize("arguments, message", BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_bad_input_is_one_line_and_no_file(arguments, message, run, ledger, tmp_path):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("dpframe: ")
    assert message in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["l.sqlite"]


@pytest.fixture
def shell(run, ledger, tmp_path, capsys):
    """Run any command beside a ledger and a table."""
    dpf.datasets.make_census(300, columns=["age", "sex"]).to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "spaces.json").write_text(json.dumps({"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"]}))

    def call(words):
        with pytest.raises(SystemExit) as stopped:
            main.main(words.split())
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return call


def test_an_exceeded_budget_exits_with_3(shell, ledger, tmp_path):
    code, out, err = shell(
        "sanitize in.parquet out.parquet --epsilon 2 --spaces spaces.json --ledger l.sqlite --dataset survey"
    )
    assert (code, out) == (3, "")
    assert err.startswith("dpframe: dataset survey has epsilon=1, delta=1e-06 left of epsilon=1, delta=1e-06, and ")
    assert err.count("\n") == 1
    assert shell("plan in.parquet --epsilon 20 --delta 1e-7 --ledger l.sqlite --dataset survey")[0] == 3
    assert not (tmp_path / "out.parquet").exists()
    assert ledger.spent("survey").epsilon == 0


@pytest.mark.parametrize("output", ["no/plan.json", "in.parquet", "."])
def test_a_plan_that_cannot_be_written_costs_nothing(output, shell, ledger, tmp_path):
    """Inference was paid for, and its plan lost."""
    before = (tmp_path / "in.parquet").read_bytes()
    words = f"plan in.parquet --epsilon 0.5 --delta 1e-7 --ledger l.sqlite --dataset survey -o {output}"
    code, out, err = shell(words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert ledger.history().empty
    assert (tmp_path / "in.parquet").read_bytes() == before


def test_rows_in_kept_order_are_sent_to_the_other_accounting(shell, ledger):
    ledger.create("dear", 0.5, 1e-6)
    # A first release of all there is could have the dataset for itself.
    ledger.spend("dear", 1e-3, 1e-12, release_id="before", step=Step(1e-4, 1e-13))
    code, out, err = shell(
        "sanitize in.parquet out.parquet --epsilon 0.4 --delta 0 --spaces spaces.json --ledger l.sqlite --dataset dear"
    )
    assert (code, out) == (3, "")
    assert "nothing was spent and nothing was drawn; the largest epsilon that still fits is 0." in err
    assert "80 % by addition: unshuffled releases belong in a dataset created with --accounting basic\n" in err


@pytest.mark.slow
def test_how_many_nights_a_ledger_holds_is_said_before_the_first(shell, ledger):
    """By plan before anything is spent, then after every night; as many fit, by sums of mu squared, and no more."""
    ledger.create("nights", 1.0, 1e-5)
    plan = "plan in.parquet --epsilon 0.6 --delta 1e-7 --spaces spaces.json -o plan.json"
    assert shell(plan)[0] == 0
    said = shell("ledger show l.sqlite --plan plan.json")[1].splitlines()[-1]
    enough = re.compile(r"what is left is enough for (\d+) more")
    nights = int(enough.search(said)[1])
    assert said == f"nights: releases under this plan: what is left is enough for {nights} more"
    assert nights > 1, "sums of epsilon alone would hold one"
    for left in reversed(range(nights)):
        code, out, _ = shell("sanitize in.parquet out.parquet --plan plan.json --ledger l.sqlite --dataset nights")
        assert (code, int(enough.search(out)[1])) == (0, left)
    assert shell("sanitize in.parquet out.parquet --plan plan.json --ledger l.sqlite --dataset nights")[0] == 3


@pytest.mark.slow
def test_a_nightly_job(shell, ledger):
    """The plan pays for its inference once; every night pays for its rows, until nothing is left."""
    said = "plan in.parquet --epsilon 0.5 --delta 5e-7 --infer-share 0.2 --max-items 4 -o plan.json"
    code, out, err = shell(f"{said} --ledger l.sqlite --dataset survey")
    assert (code, err) == (0, "wrote plan.json: the plan, for dpframe sanitize --plan\n")
    assert "Inference looked at the data: reuse plan.json (dpframe sanitize --plan)" in out
    night = "sanitize in.parquet out.parquet --plan plan.json --ledger l.sqlite --dataset survey"
    code, out, err = shell(night)
    assert (code, err) == (0, "")
    plan = dpf.Plan.read("plan.json")
    assert plan.inferred is not None
    assert out.splitlines()[-1].startswith("Ledger: survey has epsilon=")
    assert "; one such release every night (epsilon=" in out.splitlines()[-1]
    code, out, err = shell(night)
    assert (code, out) == (3, "")
    assert "left of epsilon=1" in err
    assert ledger.history("survey")["epsilon"].tolist() == [plan.inferred.budget.epsilon, plan.released.epsilon]


def test_a_run_that_was_done_says_so_in_a_line(shell, ledger, tmp_path):
    night = "sanitize in.parquet out.parquet --epsilon 0.4 --delta 0 --spaces spaces.json --ledger l.sqlite"
    assert shell(f"{night} --dataset survey --run monday")[0] == 0
    before = (tmp_path / "out.parquet").read_bytes()
    code, out, err = shell(f"{night} --dataset survey --run monday")
    assert (code, err) == (0, "")
    assert out.startswith("run monday of out.parquet was done at 20")
    assert out.endswith(" UTC: nothing was read, spent or drawn now\n")
    code, out, err = shell(f"{night} --dataset survey --run monday --json")
    assert (code, err, json.loads(out)["n"]) == (0, "", len(pd.read_parquet(tmp_path / "out.parquet")))
    assert (tmp_path / "out.parquet").read_bytes() == before
    assert ledger.history()["what"].tolist() == ["release, run monday"]
    assert shell(f"{night} --dataset survey --run tuesday")[0] == 0
    code, _, err = shell(f"{night} --dataset survey --run monday")
    assert code == 2
    assert "its release is no longer there: bring the file back, or name another run, which is charged" in err
    code, _, err = shell("sanitize in.parquet out.parquet --epsilon 0.4 --run monday")
    assert (code, err) == (2, shell("sanitize in.parquet out.parquet --epsilon 0.4 --dataset survey")[2])


@pytest.mark.slow
def test_private_inference_inside_a_job(shell, ledger):
    code, out, err = shell(
        "sanitize in.parquet out.parquet --epsilon 0.5 --delta 1e-7 --ledger l.sqlite --dataset survey"
    )
    assert (code, err) == (0, "")
    assert "one such release every night (epsilon=0.5, delta=1e-07 each)" in out
    assert ledger.spent("survey") == Amount(0.5, 1e-7)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--ledger l.sqlite", "ledger and dataset go together"),
        ("--dataset survey", "ledger and dataset go together"),
        ("--ledger l.sqlite --dataset nobody", "dataset nobody is not in l.sqlite, which holds survey; make it with"),
        ("--ledger no.sqlite --dataset survey", "no.sqlite does not exist; make it with: dpframe ledger create"),
        ("--ledger in.parquet --dataset survey", "in.parquet is no ledger; name another file"),
        ("--infer-share 1.5", "infer_share must lie in (0, 1)"),
        ("--max-items 0", "max_items must be a whole number of items per row"),
        ("--infer secretly", 'infer must be "private", "public" or "data"'),
        ("--delta 0 --drop age", "text and sets can be inferred only with delta above 0"),
    ],
)
def test_bad_options_of_a_job(words, message, shell, ledger, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    for command in ("plan in.parquet", "sanitize in.parquet out.parquet"):
        code, out, err = shell(f"{command} --epsilon 0.1 {words}")
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert ledger.spent("survey").epsilon == 0


def test_a_stopped_job_says_that_its_repetition_is_free(shell, ledger, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    words = "sanitize in.parquet out.parquet --epsilon 0.5 --spaces spaces.json --ledger l.sqlite --dataset survey"
    with monkeypatch.context() as patch:
        patch.setattr("os.link", stop)  # just before the output would appear
        patch.setattr("os.replace", stop)
        code, out, err = shell(words)
    assert (code, out) == (130, "")
    assert err == (
        "dpframe: stopped; nothing was written. Under a ledger it may be paid for: the same command again costs "
        "nothing more\n"
    )
    assert ledger.spent("survey").epsilon == 0.5
    assert shell(words)[0] == 0
    assert ledger.spent("survey").epsilon == 0.5


@pytest.mark.slow
def test_as_a_process(tmp_path):
    arguments = [sys.executable, "-m", "dpframe", "ledger", "create", "l", "--dataset", "survey", "--epsilon", "1"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "survey" in done.stdout
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr == "dpframe: dataset survey is in l already, and its total cannot change: "
        "a second dataset of the same people adds to it\n"
    )


def test_gaussian_sums_are_explained_in_a_line(run):
    run("create", "g.sqlite", "--dataset", "survey", "--epsilon", 4, "--delta", 1e-6)
    ledger = Ledger("g.sqlite")
    line = "Gaussian accounting adds up the squares of mu"
    assert line in run("show", "g.sqlite")[1]
    assert "is used up" not in run("show", "g.sqlite")[1]
    left = ledger.remaining("survey").delta
    ledger.spend("survey", 0.1, left, release_id="all of the pool", step=Step(0.01, left))
    assert ledger.remaining("survey").delta == 0
    assert (
        "survey: its delta is used up, so that what is left of epsilon is for delta=0 only"
        in run("show", "g.sqlite")[1]
    )
    run("create", "b.sqlite", "--dataset", "survey", "--epsilon", 4)
    assert line not in run("show", "b.sqlite")[1]
