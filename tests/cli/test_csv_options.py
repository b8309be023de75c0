"""CSV files of other programs on the command line: separators, decimal commas, days before months, encodings."""

import pickle

import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.api.profile import profiled
from dpframe.cli.main import main
from dpframe.errors import ParameterError
from dpframe.tables.csv_dialect import CsvDialect, reading_dialect
from dpframe.tables.inputs import open_input

GERMAN = ["--sep", ";", "--decimal", ",", "--dayfirst", "--encoding", "cp1252"]
SPACES = ["--space", "Größe=100,220", "--space", "Gewicht=30.0,180.0", "--space", "Tag=2023-01-01,2023-12-31"]


@pytest.fixture
def german(tmp_path):
    """A file that a German Excel writes, of 600 rows."""
    rows = [
        f"{150 + i % 50};{40 + i % 60},5;{1 + i % 28}.{1 + i % 12}.2023;{'größer' if i % 3 else ''}" for i in range(600)
    ]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["Größe;Gewicht;Tag;Wort", *rows]) + "\n", encoding="cp1252")
    return path


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, arguments)))
    return stopped.value.code or 0, *capsys.readouterr()


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8"])
def test_a_dialect_is_read_as_the_standard_form_is(german, encoding):
    text = german.read_text(encoding="cp1252")
    german.write_text(text, encoding=encoding)
    with reading_dialect(CsvDialect(";", ",", True, encoding)):
        table = open_input(german)
    names = ["Größe", "Gewicht", "Tag", "Wort"]
    spaces = {
        "Größe": dpf.Integer(0, 999),
        "Gewicht": dpf.Real(0, 500),
        "Tag": dpf.Datetime("2023-01-01", "2023-12-31"),
    }
    frame = table.typed(spaces | {"Wort": dpf.Nullable(dpf.Categorical(["größer"]))}).read(names).to_pandas()
    assert (table.names, table.n) == (names, 600)
    assert frame["Gewicht"].tolist() == [40.5 + i % 60 for i in range(600)]
    assert pd.to_datetime(frame["Tag"]).dt.day.tolist() == [1 + i % 28 for i in range(600)]
    assert frame["Wort"].isna().sum() == 200
    # Other values of the same bytes: a job that is repeated has to tell the dialects apart.
    with reading_dialect(CsvDialect(";", ",", False, encoding)):
        assert open_input(german).digest() != table.digest()


def test_every_command_that_reads_a_table_takes_a_dialect(german, tmp_path, capsys):
    plan, spaces = tmp_path / "plan.json", [*SPACES, "--drop", "Wort"]
    assert run(capsys, "plan", german, "--epsilon", 4, *spaces, *GERMAN, "-o", plan)[0] == 0
    assert run(capsys, "check", german, "--plan", plan, *GERMAN)[0] == 0
    assert run(capsys, "audit", "--replay", german, "--plan", plan, "--edits", 1, *GERMAN)[0] == 0
    assert run(capsys, "forecast", german, "--epsilon", 1, *GERMAN)[0] == 0
    assert run(capsys, "inspect", german, *GERMAN)[1].endswith("600 rows, columns Größe, Gewicht, Tag, Wort\n")
    assert '"Gewicht"' in run(capsys, "spaces", german, *GERMAN)[1]
    code, out, _ = run(capsys, "query", german, "mean", "Gewicht", "--epsilon", 9, *SPACES[2:4], *GERMAN)
    assert code == 0
    assert float(out.splitlines()[1].split()[1]) == pytest.approx(70, abs=1)
    for target in ("out.csv", "out.parquet"):
        assert run(capsys, "sanitize", german, tmp_path / target, "--plan", plan, *GERMAN)[0] == 0
        assert run(capsys, "verify", tmp_path / target)[0] == 0
    safe = dpf.read(tmp_path / "out.csv")
    assert safe.dp.mean("Gewicht")["lower"] < 70 < safe.dp.mean("Gewicht")["upper"]


def test_texts_that_are_no_number_and_no_day_stay():
    texts = ["1,5", " -1.234.567,5 ", ",5", "1,2,3", "3,x", "1.2.24", "31/12/2023 23:59", "3-4-2023", "word", ""]
    standard = ["1.5", "-1234567.5", ".5", "1,2,3", "3,x", "1.2.24", "2023-12-31 23:59", "2023-04-03", "word", ""]
    array = pa.array(texts).dictionary_encode()
    assert CsvDialect(";", ",", dayfirst=True).to_standard(array).to_pylist() == standard
    assert CsvDialect().to_standard(array).to_pylist() == texts


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--sep", "::"], 'sep must be the letter between values, e.g. --sep ";" or --sep "tab"'),
        (["--decimal", "x", "--sep", ";"], 'decimal must be a point or a comma, e.g. --decimal ","'),
        (["--decimal", ","], 'sep and decimal must differ; give both, e.g. --sep ";" and --decimal ","'),
        # The bytes of one row would change how all later rows are read, or end the command.
        *((["--encoding", name], 'encoding must be "utf-8", "utf-16"') for name in ("klingon", "hz", "utf-7", "gbk")),
        (["--encoding", "unicode_escape"], "convert the file to UTF-8"),
        (["--encoding", "cp1252"], 'has semicolons between its names: give --sep ";" --decimal ",", or write the file'),
        (["--sep", ";"], 'has letters that are not UTF-8: give --encoding "cp1252", or write the file in UTF-8'),
        (["--sep", "tab", "--encoding", "cp1252"], 'has semicolons between its names: give --sep ";"'),
    ],
)
def test_a_wrong_dialect_is_refused_in_one_line(german, capsys, options, rule):
    code, out, err = run(capsys, "forecast", german, "--epsilon", 1, *options)
    assert (code, out) == (2, "")
    assert rule in err and err.count("\n") == 1


def test_a_dialect_is_for_csv_only(tmp_path, capsys):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "in.parquet")
    code, _, err = run(capsys, "forecast", tmp_path / "in.parquet", "--epsilon", 1, "--sep", ";")
    assert (code, err) == (2, "dpframe: --sep is for CSV files; leave it out for files of another format\n")


def test_check_profiles_a_file_for_its_curator(german, capsys):
    code, out, _ = run(capsys, "check", german, *GERMAN, "--drop", "Tag")
    assert code == 0
    assert out.startswith("ONLY FOR THE CURATOR: exact numbers of the data")
    rows = {
        line.split()[0]: line.split()[1:]
        for line in out.splitlines()
        if line.startswith(("Größe ", "Gewicht ", "Wort "))
    }
    assert rows["Größe"] == ["int64", "0", "50", "150", "199"]
    assert rows["Wort"][:2] == ["string", "0.3333"]
    assert "Größe: Integer(lower=150, upper=200, step=1); check bounds that the question allows" in out
    assert "Tag" not in out
    assert run(capsys, "check", german, *GERMAN, "--privacy-id", "Tag")[2].startswith("dpframe: a profile counts rows")
    with reading_dialect(CsvDialect(";", ",", True, "cp1252")), pytest.raises(ParameterError, match="do not store it"):
        pickle.dumps(profiled(open_input(german)))


@pytest.mark.filterwarnings("default::dpframe.errors.InferenceWarning")
def test_text_that_was_not_found_may_be_numbers_with_decimal_commas(german, tmp_path, capsys):
    """A hint by the options of the command, whatever the cells hold."""
    options = ["--sep", ";", "--encoding", "cp1252", "--epsilon", 1, "--drop", "Tag"]
    _, _, err = run(capsys, "sanitize", german, tmp_path / "1.parquet", *options)
    assert '\n  --decimal "," reads numbers with decimal commas\n' in err
    _, _, err = run(capsys, "sanitize", german, tmp_path / "2.parquet", *options, "--decimal", ",")
    assert "decimal commas" not in err
