"""``dpframe spaces``: a file of spaces to fill in, from the schema alone, or filled in privately."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.cli.main import main
from dpframe.cli.spaces import FORMS, add_space_options, read_spaces
from dpframe.plan.declared import placeholder


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return call


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 95, 5_000),
            "sex": rng.choice(["F", "M"], 5_000),
            "born": pd.to_datetime("2000-01-01") + pd.to_timedelta(rng.integers(0, 900, 5_000), "D"),
            "ill": rng.random(5_000) < 0.2,
            'odd "näme" = []': rng.choice(["x", "y"], 5_000),
        }
    )
    table["pets"] = [["cat"], ["dog", "cat"]] * 2_500
    table.to_parquet(tmp_path / "people.parquet", index=False)
    return tmp_path / "people.parquet"


def test_a_template_is_the_same_whatever_the_rows(run, source, tmp_path):
    code, text, err = run("spaces", source)
    assert (code, err) == (0, "")
    whole = pq.read_table(source)
    for other in (whole.slice(0, 0), whole.slice(3, 1)):
        pq.write_table(other, tmp_path / "other.parquet")
        assert run("spaces", tmp_path / "other.parquet")[1] == text
    assert '  "age": {"lower": "LOWER", "upper": "UPPER"}' in text
    assert '  "born": {"lower": "FROM", "upper": "TO"}' in text
    assert '  "ill": {"space": "boolean"}' in text
    assert '  "pets": {"space": "subset", "items": ["ITEM", "…"]}' in text


@pytest.mark.parametrize("ending", ["json", "toml"])
@pytest.mark.slow
def test_a_template_is_filled_in_and_read(run, source, tmp_path, ending):
    file = tmp_path / f"spaces.{ending}"
    code, text, _ = run("spaces", source, "-o", file)
    assert (code, text) == (0, f"wrote {file}: spaces of 6 columns\n")
    code, _, err = run("plan", source, "--epsilon", 1, "--spaces", file)
    assert code == 2
    assert err == f"dpframe: {file}, column 'age': fill in what is in capitals, or leave it out\n"
    filled = file.read_text(encoding="utf-8")
    for old, new in (('"LOWER"', "0"), ('"UPPER"', "120"), ('"CATEGORY", "…"', '"F", "M", "x", "y"')):
        assert old in filled
        filled = filled.replace(old, new)
    filled = (
        filled.replace('"FROM"', '"1999-01-01"').replace('"TO"', '"2004-01-01"').replace('"ITEM", "…"', '"cat", "dog"')
    )
    file.write_text(filled, encoding="utf-8")
    assert list(read_spaces(file)) == pq.read_schema(source).names
    code, text, err = run("plan", source, "--epsilon", 1, "--spaces", file, "--json")
    assert (code, err) == (0, "")
    assert [column.space.inner_space.tag for column in dpf.Plan.from_json(text).columns] == [
        *("integer", "categorical", "datetime", "boolean", "categorical", "subset")
    ]


def test_a_file_that_was_filled_in_is_not_replaced(run, source, tmp_path):
    file, ledger = tmp_path / "spaces.json", tmp_path / "ledger.sqlite"
    file.write_text('{"sex": ["F", "M"]}')
    assert run("ledger", "create", ledger, "--dataset", "people", "--epsilon", 10, "--delta", 1e-5)[0] == 0
    for given in ((), ("--draft",), ("--infer", 4, "--ledger", ledger, "--dataset", "people")):
        code, out, err = run("spaces", source, "-o", file, *given)
        assert (code, out, err) == (2, "", f"dpframe: {file} exists; name another file, or remove it\n")
    assert dpf.Ledger(ledger).spent("people").epsilon == 0
    code, _, err = run("plan", source, "--epsilon", 1, "--spaces", file, "--drop", "born", "-o", file)
    assert (code, err) == (2, f"dpframe: {file} is the file of --spaces; write --output to another file\n")
    assert file.read_text() == '{"sex": ["F", "M"]}'


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_a_draft_of_a_csv_file_has_the_types_that_its_values_are_written_as(run, tmp_path, ending):
    rows = [
        (i, i % 90, i / 4 if i % 9 else "", f"2024-01-{1 + i % 31:02d}", "FM"[i % 2], "yn?"[i % 3]) for i in range(300)
    ]
    frame = pd.DataFrame(rows, columns=["id", "age", "bill", "day", "sex", "said"])
    source, file = tmp_path / "in.csv", tmp_path / f"draft.{ending}"
    frame.to_csv(source, index=False)
    code, text, _ = run("spaces", source, "--draft", "-o", file)
    assert (code, text) == (0, f"wrote {file}: spaces of 5 columns of 6\n")
    written = file.read_text(encoding="utf-8")
    assert "read off the data, not private" in written
    assert "without looking at the data" not in written
    drafted = read_spaces(file)
    kinds = {name: space.get("inner", space)["space"] for name, space in drafted.items()}
    assert kinds == {"age": "integer", "bill": "real", "day": "datetime", "sex": "categorical", "said": "categorical"}
    assert drafted["bill"]["space"] == "nullable"


@pytest.mark.slow
def test_inference_fills_it_in_and_charges_the_ledger(run, source, tmp_path):
    ledger, file = tmp_path / "ledger.sqlite", tmp_path / "spaces.toml"
    assert run("ledger", "create", ledger, "--dataset", "people", "--epsilon", 10, "--delta", 1e-5)[0] == 0
    options = ["--infer", 4, "-o", file, "--ledger", ledger, "--dataset", "people"]
    code, text, err = run("spaces", source, *options)
    assert (code, text) == (0, f"wrote {file}: spaces of 6 columns\n")
    assert "which is in the ledger" in err
    (entry,) = dpf.Ledger(ledger).history("people").to_dict("records")
    assert entry["what"] == "inference"
    assert 3 < float(err.split("epsilon=")[1].split()[0]) <= 4
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    assert set(found["sex"]["categories"]) == {"F", "M"}
    plan = dpf.plan(source, 1.0, spaces=read_spaces(file))
    assert plan.inferred is None
    assert set(plan["pets"].space.items) == {"cat", "dog"}
    code, text, err = run("spaces", source, "--infer", 0.001)
    assert "// int64; not found: " in text
    assert json.dumps(["CATEGORY", "…"], ensure_ascii=False) in text


def test_a_file_says_whom_its_spaces_were_found_for(run, tmp_path):
    """Inference for persons charges a dataset of persons, and no other."""
    people = pd.DataFrame({"who": np.arange(1_000) // 2, "{sex}": ["F", "M"] * 500})
    source, ledger = tmp_path / "people.parquet", tmp_path / "ledger.sqlite"
    people.to_parquet(source, index=False)
    create = ["ledger", "create", ledger, "--dataset", "people", "--epsilon", 10, "--delta", 1e-5]
    code, text, _ = run(*create, "--unit", "person:who")
    assert code == 0
    assert text.splitlines()[1].split()[:3] == ["people", "gaussian", "person:who"]
    options = ["--infer", 4, "--delta", "1e-6", "--ledger", ledger, "--dataset", "people"]
    code, text, err = run("spaces", source, *options, "--drop", "who")
    assert (code, text) == (2, "")
    assert err == (
        "dpframe: dataset people adds up promises for a person, by column 'who', and this one is for a row, which does "
        'not add up: ask with --privacy-id who, or, to protect a row, create a dataset with --unit "row"; nothing was '
        "spent\n"
    )
    code, text, _ = run("spaces", source, *options, "--privacy-id", "who")
    assert code == 0
    assert "// Found with noise, for a person, by column 'who': not to be used in plans for more" in text
    assert '"who"' not in text
    assert len(dpf.Ledger(ledger).history()) == 1
    code, _, err = run(*create[:-6], "--dataset", "more", "--epsilon", 1, "--unit", "dozen")
    assert code == 2
    assert err.startswith('dpframe: unit must be "row", "10 rows"')
    assert err.count("\n") == 1


BAD = {
    "ending": (["-o", "{folder}/spaces.yaml"], "spaces.yaml must end with .json or .toml"),
    "nobody": (["--privacy-id", "x"], "give --contributions and --privacy-id with --infer EPSILON"),
    "free": (["--ledger", "x.sqlite"], "a template costs nothing; give --delta and a ledger with --infer EPSILON"),
    "column": (["--drop", "nobody"], "names 'nobody', which is not a column"),
    "folder": (["-o", "{folder}/none/spaces.json"], "could not be written"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_written_is_refused(run, source, tmp_path, name):
    options, says = BAD[name]
    code, text, err = run("spaces", source, *(option.format(folder=tmp_path) for option in options))
    assert (code, text) == (2, "")
    assert err.startswith("dpframe: ")
    assert says in err
    assert err.count("\n") == 1


BROKEN = {
    "spaces.json": (
        '{\n// bounds\n"age": {"lower": 0\n"upper": 1}}',
        "spaces.json at line 4 is not JSON; write {column: space}",
    ),
    "spaces.toml": ("age = {lower = 0,\n", "spaces.toml is not TOML; write column = space"),
    "list.json": ("[]", "list.json must hold one JSON object"),
    "plan.json": (
        '{"schema": 2, "epsilon": 1, "columns": []}',
        "plan.json is a plan, not a file of spaces; dpframe sani",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_breaks_is_refused(run, source, tmp_path, name):
    text, says = BROKEN[name]
    (tmp_path / name).write_text(text)
    code, _, err = run("plan", source, "--epsilon", 1, "--spaces", tmp_path / name)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_comments_stand_on_lines_of_their_own(tmp_path):
    file = tmp_path / "spaces.json"
    file.write_text('// ours\n{\n  // a web address is no comment\n  "site": ["http://a.example", "//b"]\n}\n')
    assert read_spaces(file) == {"site": ["http://a.example", "//b"]}


@pytest.mark.parametrize(
    "type_", [pa.int32(), pa.float64(), pa.date32(), pa.string(), pa.list_(pa.string()), pa.binary()]
)
def test_every_form_is_one_that_a_file_has(type_):

    assert placeholder(type_) in FORMS


def test_nothing_is_spent_where_nothing_can_be_written(run, source, tmp_path):
    ledger = tmp_path / "ledger.sqlite"
    assert run("ledger", "create", ledger, "--dataset", "people", "--epsilon", 10, "--delta", 1e-5)[0] == 0
    options = ["--infer", 1, "-o", tmp_path / "none" / "spaces.json", "--ledger", ledger, "--dataset", "people"]
    code, _, err = run("spaces", source, *options)
    assert code == 2
    assert "could not be written" in err
    assert not len(dpf.Ledger(ledger).history("people"))


def test_types_are_told_on_one_line(run, tmp_path):
    table = pa.table(
        {"age": [1, 2], "x": pa.array([None, None], pa.struct([pa.field('a\n"age": [0, 1], //', pa.int64())]))}
    )
    pq.write_table(table, tmp_path / "in.parquet")
    assert run("spaces", tmp_path / "in.parquet", "-o", tmp_path / "spaces.json")[0] == 0
    assert '\n"age": [0, 1]' not in (tmp_path / "spaces.json").read_text()


@pytest.mark.parametrize(
    "left", ['{"lower": 0, "upper": "UPPER"}', '["CATEGORY", "…", "x"]', '{"space": "nullable", "inner": "SPACE"}']
)
def test_what_is_half_filled_in_is_refused(run, source, tmp_path, left):
    (tmp_path / "spaces.json").write_text('{"age": ' + left + "}", encoding="utf-8")
    code, _, err = run("plan", source, "--epsilon", 1, "--spaces", tmp_path / "spaces.json")
    assert code == 2
    assert "column 'age': fill in what is in capitals" in err
    (tmp_path / "spaces.json").write_text('{"age": [1, 2, 3], "age": [1, 2]}')
    assert "each once" in run("plan", source, "--epsilon", 1, "--spaces", tmp_path / "spaces.json")[2]


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("age=0,120", {"lower": 0, "upper": 120}),
        ("day=2020-01-01,2024-12-31", {"lower": "2020-01-01", "upper": "2024-12-31"}),
        ("sex=F,M", ["F", "M"]),
        ("children=0,1,2", [0, 1, 2]),
        ("said=true,false", [True, False]),
        ('town=["a,b", "c"]', ["a,b", "c"]),
        (
            'income={"space": "nullable", "inner": {"lower": 0, "upper": 9}}',
            {"space": "nullable", "inner": {"lower": 0, "upper": 9}},
        ),
    ],
)
def test_a_space_is_declared_by_an_option_as_in_a_file(text, declared):
    assert add_space_options({}, [text]) == {text.partition("=")[0]: declared}


def test_options_go_before_a_file(run, source, tmp_path):
    file = tmp_path / "spaces.json"
    file.write_text('{"age": [3, 4], "sex": ["F", "M", "x", "y"]}', encoding="utf-8")
    drops = [word for name in pq.read_schema(source).names if name not in ("age", "sex") for word in ("--drop", name)]
    words = ["plan", source, "--epsilon", 1, "--spaces", file, "--space", "age=0,120", *drops, "--json"]
    code, text, err = run(*words)
    assert (code, err) == (0, "")
    spaces = dpf.Plan.from_json(text).spaces
    assert spaces["age"] == dpf.Integer(0, 120)
    assert spaces["sex"] == dpf.Categorical(["F", "M", "x", "y"])


@pytest.mark.parametrize("command", ["plan", "sanitize", "query"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age", "--space must be COLUMN=LOWER,UPPER, COLUMN=VALUE,VALUE,… or COLUMN=JSON"),
        ("=0,1", "--space must be"),
        ("age={", "--space must be"),
        ("age=", "--space must be"),
        ("age=120,0", "column 'age': lower must be below upper"),
        ("age=[0, 120]", "column 'age': a list of two numbers may mean bounds or categories"),
        ('age={"lower": 0}', "--space of column 'age': "),
    ],
)
def test_what_declares_no_space_is_refused(run, source, tmp_path, command, text, said):
    more = {"plan": [], "sanitize": [tmp_path / "out.parquet"], "query": ["mean", "age"]}[command]
    code, out, err = run(command, source, *more, "--epsilon", 1, "--space", text)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_list_of_two_numbers_is_refused_for_text_too(run, tmp_path):
    """A CSV file's columns are text until their spaces are declared."""
    source, spaces = tmp_path / "in.csv", tmp_path / "spaces.json"
    source.write_text("age\n" + "30\n40\n" * 50)
    for spec in ([20, 90], {"space": "nullable", "inner": [20, 90]}):
        spaces.write_text(json.dumps({"age": spec}))
        code, _, err = run("plan", source, "--epsilon", 1, "--spaces", spaces)
        assert (code, err.count("\n")) == (2, 1)
        assert 'write bounds as {"lower": 0, "upper": 120}, and categories as {"categories": [0, 1]}' in err
    spaces.write_text(json.dumps({"age": {"categories": [30, 40]}}))
    assert run("plan", source, "--epsilon", 1, "--spaces", spaces)[0] == 0


def test_a_check_that_finds_what_is_refused_says_so_and_ends_with_1(run, source):
    code, out, _ = run("check", source, "--space", "sex=F,X")
    assert code == 1
    assert "sex: a release is refused, as a value holds a category outside the declared list" in out
    assert 'declare {"categories": […], "other": "other"}' in out
    assert run("check", source, "--space", "sex=F,M")[0] == 0


def test_an_option_reviews_no_draft(run, source, tmp_path):
    file = tmp_path / "draft.json"
    assert run("spaces", source, "--draft", "-o", file)[0] == 0
    code, _, err = run("plan", source, "--epsilon", 1, "--spaces", file, "--space", "age=0,120")
    assert code == 2
    assert "in a file write reviewed: true" in err


@pytest.mark.filterwarnings("always")  # the command shows warnings
@pytest.mark.slow
def test_dates_in_a_csv_file_and_in_a_frame_of_text(run, tmp_path):
    """A CSV file's text is read as what it writes; a frame's text has a type, and messages say what to do."""
    days = pd.Series(pd.date_range("2020-01-01", periods=600))
    source = tmp_path / "in.csv"
    pd.DataFrame({"day": days, "note": [f"note {i}" for i in range(600)]}).to_csv(source, index=False)
    code, text, said = run("plan", source, "--epsilon", 1, "--space", "day=2020-01-01,2024-12-31", "--json")
    assert code == 0
    assert dpf.Plan.from_json(text).spaces["day"].inner_space.tag == "datetime"
    assert any(line.split()[:1] == ["note"] and "--space" in line for line in said.splitlines())
    assert "give bounds to text that writes dates or numbers, as 2024-01-31 and 54.2 (--space COLUMN=LOWER" in said
    frame = pd.read_csv(source, dtype="string").head(599)
    with pytest.raises(dpf.ColumnError, match="convert text that writes dates or numbers first"):
        frame.dp.plan(epsilon=1, spaces={"day": ("2020-01-01", "2024-12-31")}, drop=["note"])
    with pytest.warns(dpf.InferenceWarning, match=r"convert text that writes dates \(pd\.to_datetime\), numbers"):
        frame.dp.plan(epsilon=1, drop=["note"])
    dated = frame.assign(day=pd.to_datetime(frame["day"]))
    plan = dated.dp.plan(epsilon=1, spaces={"day": ("2020-01-01", "2024-12-31")}, drop=["note"])
    assert plan.spaces["day"].inner_space.tag == "datetime"


@pytest.mark.filterwarnings("ignore:left out as identifiers")
def test_identifiers_are_left_out_of_a_template_and_of_what_is_found(run, tmp_path):
    """Inference was paid for, and then the column that it had left out was looked for in vain."""
    pd.DataFrame({"id": range(200), "sex": ["F", "M"] * 100, "name": "x"}).to_parquet(tmp_path / "in.parquet")
    for more in ([], ["--infer", 3]):
        code, text, _ = run("spaces", tmp_path / "in.parquet", *more)
        assert code == 0
        assert '"sex": ' in text
        assert '"id": ' not in text
        assert "// A release leaves out, unless a space is declared: id, name (identifiers" in text
        assert "// text" in text
