"""CSV in and out: no type is guessed, one row changes nothing about another, the plan lies beside a release."""

import io
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.cli.main import main
from dpframe.errors import ColumnError, FileError, InferenceWarning, NotSanitizedError, ParameterError

SPACES = {
    "age": (0, 120),
    "sex": ["F", "M"],
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "birth_date": dpf.Datetime("1920-01-01", "2020-01-01"),
}


def sidecar(path):
    """The file with the plan of a release in CSV (docs/reference/files.md)."""
    return path.with_name(f"{path.name}.dpframe.json")


@pytest.fixture(scope="module")
def census():
    return dpf.datasets.make_census(4_000, columns=[*SPACES, "region"])


@pytest.fixture
def files(tmp_path, census):
    census.to_csv(tmp_path / "in.csv", index=False)
    census.to_parquet(tmp_path / "in.parquet", index=False)
    return tmp_path


@pytest.mark.slow
def test_the_same_key_releases_the_same_rows_of_csv_and_of_parquet(files, census):
    spaces = SPACES | {"region": sorted(census["region"].unique())}
    plan = dpf.plan(files / "in.csv", 2, spaces=spaces)
    assert plan == dpf.plan(files / "in.parquet", 2, spaces=spaces)
    texts = set()
    for source in ("in.csv", "in.parquet"):
        for target in ("out.csv", "out.parquet"):
            info = dpf.sanitize(files / source, files / target, plan=plan, key=bytes(32))
            safe = dpf.read(files / target)
            assert safe.dp.release == info
            assert dpf.Estimates(files / target).mean("age").equals(safe.dp.mean("age"))
            text = safe.astype({"sex": str, "region": str, "birth_date": "datetime64[us]"}).to_csv()
            texts.add(text)
    assert len(texts) == 1


@pytest.mark.slow
def test_one_call_finds_kinds_bounds_and_categories(files, census):
    with warnings.catch_warnings(action="error", category=InferenceWarning):
        dpf.sanitize(files / "in.csv", files / "safe.csv", 4, key=b"\1" * 32)
    ask = dpf.Estimates(files / "safe.csv")
    kinds = {c.name: c.space.inner_space.tag for c in ask.plan.columns}
    assert kinds["age"] == "integer"
    assert kinds["income"] == "real"
    assert kinds["birth_date"] == "datetime"
    assert kinds["sex"] == "categorical"
    # Five standard errors: wrong with probability below 1e-5 for a key that is fixed anyway.
    row = ask.mean("age")
    assert abs(row["estimate"] - census["age"].mean()) < 5 * row["std_error"] + 0.5
    assert dpf.verify(files / "safe.csv").ok


def test_leak_one_row_changes_neither_types_nor_sizes(files):
    lines = (files / "in.csv").read_text().splitlines()
    plan = dpf.plan(files / "in.csv", 2)
    assert isinstance(plan["age"].space.inner_space, dpf.Integer)  # which its text says
    (files / "other.csv").write_text("\n".join([*lines[:-1], "word,word,word,word,word"]) + "\n")
    for name in ("in", "other"):
        dpf.sanitize(files / f"{name}.csv", files / f"{name}_safe.parquet", plan=plan, key=bytes(32))
    a, b = (dpf.read(files / f"{name}_safe.parquet") for name in ("in", "other"))
    assert (a.dtypes == b.dtypes).all()
    assert int(((a != b) & ~(a.isna() & b.isna())).any(axis=1).sum()) <= 1


def test_an_index_without_a_name_is_left_out(tmp_path, census):
    census.to_csv(tmp_path / "in.csv")
    spaces = SPACES | {"region": list(dpf.datasets.REGIONS)}
    assert dpf.plan(tmp_path / "in.csv", 1, spaces=spaces).names == tuple(census.columns)


def test_partitions_of_csv_are_columns(tmp_path, census):
    for sex, part in census.groupby("sex", observed=True):
        (tmp_path / "in" / f"sex={sex}").mkdir(parents=True)
        part[["age"]].to_csv(tmp_path / "in" / f"sex={sex}" / "part.csv", index=False)
    info = dpf.sanitize(tmp_path / "in", tmp_path / "safe.csv", 5, spaces={"age": (0, 120), "sex": ["F", "M"]})
    assert info.n == len(census)
    counts = dpf.Estimates(tmp_path / "safe.csv").value_counts("sex")["estimate"]
    assert abs(counts["F"] - (census["sex"] == "F").sum()) < 200


def test_nulls_of_a_single_column_and_text_that_looks_null(tmp_path):
    frame = pd.DataFrame({"x": ["NA", "b", None, 'a,\n"q"'] * 500})
    frame.to_csv(tmp_path / "in.csv", index=False, quoting=1)
    space = dpf.Nullable(dpf.Categorical(["NA", "b", 'a,\n"q"']))
    assert dpf.plan(tmp_path / "in.csv", 1, spaces={"x": space}).n == 2_000
    (tmp_path / "in.csv").write_text('x\n"NA"\nb\n\n"a,\n""q"""\n' + "b\n" * 96)
    info = dpf.sanitize(tmp_path / "in.csv", tmp_path / "safe.csv", 9, spaces={"x": space}, shuffle=False)
    assert info.n == 100
    assert dpf.verify(tmp_path / "safe.csv").ok
    safe = dpf.read(tmp_path / "safe.csv")
    assert safe["x"].isna().any()
    assert {"NA", "b", 'a,\n"q"'} == set(safe["x"].dropna())


def test_a_person_has_rows_in_csv(tmp_path):
    people = np.repeat(np.arange(300), 3)
    pd.DataFrame({"who": [f"p{p}" for p in people], "x": people % 7}).to_csv(tmp_path / "in.csv", index=False)
    info = dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 3, spaces={"x": dpf.Integer(0, 6)}, privacy_id="who")
    assert (info.n, list(dpf.read(tmp_path / "o.csv"))) == (300, ["x"])


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_codes_with_leading_zeros_are_text(tmp_path, share):
    """They came back as numbers, without their zeros, where most of them had none.

    ε = 4, 3,000 rows: a tenth of them is 20 standard errors of the counts of kinds, so that none is a number with
    probability above 1 - 1e-9.
    """
    row = np.arange(3_000)
    has_zero, is_null = row < share * len(row), row % 10 == 0
    texts = {"zip": ("02116", "94110"), "seen": ("01022020", "11022020")}
    frame = pd.DataFrame({name: np.where(is_null, "", np.where(has_zero, *pair)) for name, pair in texts.items()})
    frame.assign(age=row % 90).to_csv(tmp_path / "in.csv", index=False)
    dpf.sanitize(tmp_path / "in.csv", tmp_path / "out.csv", 4, key=b"\1" * 32)
    ask = dpf.Estimates(tmp_path / "out.csv")
    for name, codes in texts.items():
        assert ask.plan[name].space.inner_space.labels() == [*codes, "other"]
    assert ask.plan["age"].space.inner_space.tag == "integer"
    shares = ask.value_counts("zip", normalize=True)
    assert shares.loc["02116", "estimate"] == pytest.approx(share, abs=0.05)
    assert dpf.verify(tmp_path / "out.csv").ok


def test_spaces_that_are_read_off_csv_lose_no_value(tmp_path):
    frame = pd.DataFrame({"zip": ["94110", "94110", "02116"], "answer": ["1", "2", "refused"], "age": [30, 40, 50]})
    frame.to_csv(tmp_path / "in.csv", index=False)
    with pytest.warns(dpf.PrivacyLeakWarning):
        plan = dpf.plan(tmp_path / "in.csv", 1, infer="data")
    assert plan["zip"].space.labels() == ["02116", "94110", "other"]
    assert plan["answer"].space.labels() == ["1", "2", "refused", "other"]
    assert plan["age"].space == dpf.Integer(30, 50)


def test_spaces_may_be_read_off_csv(files):
    with pytest.warns(dpf.PrivacyLeakWarning):
        plan = dpf.plan(files / "in.csv", 1, infer="data")
    assert [c.space.inner_space.tag for c in plan.columns][:3] == ["integer", "categorical", "real"]


def test_a_folder_may_hold_a_release_and_its_plan(files):
    (files / "out").mkdir()
    dpf.sanitize(files / "in.csv", files / "out" / "safe.csv", 2, spaces=SPACES, drop=["region"])
    assert sidecar(files / "out" / "safe.csv").exists()
    assert dpf.verify(files / "out").ok
    assert len(dpf.read(files / "out")) == 4_000


def test_questions_to_csv(files, census):
    asked = dpf.Queries(files / "in.csv", 1.0, delta=1e-6, spaces=SPACES)
    row = asked.mean("age", share=0.5)
    # Five standard errors: wrong once in 1.7e6 runs.
    assert abs(row["estimate"] - census["age"].mean()) < 5 * row["std_error"]
    lines = (files / "in.csv").read_text().splitlines()
    (files / "odd.csv").write_text("\n".join([*lines, "word,word,word,word,word"]) + "\n")
    odd = dpf.Queries(files / "odd.csv", 1.0, delta=1e-6, spaces=SPACES)
    assert odd.histogram("sex", share=0.5)["estimate"].sum() == pytest.approx(len(census), abs=200)


def test_synthetic_rows_in_csv(files):
    dpf.sanitize(files / "in.csv", files / "safe.csv", 2, spaces=SPACES, drop=["region"])
    with pytest.raises(SystemExit) as stopped:
        main(["synthesize", str(files / "safe.csv"), str(files / "syn.csv")])
    assert not stopped.value.code
    assert len(pd.read_csv(files / "syn.csv")) == 4_000
    assert list(pd.read_csv(files / "syn.csv").columns) == list(SPACES)
    with pytest.raises(NotSanitizedError, match="synthetic"):
        dpf.read(files / "syn.csv")


def test_long_whole_numbers_are_exact(tmp_path):
    ids = [1234567890123456789, 1234567890123456790, 5]
    frame = pd.DataFrame({"big": np.array(ids)[np.arange(3_000) % 3], "x": 1})
    frame.to_csv(tmp_path / "in.csv", index=False)
    spaces = {"big": dpf.Categorical(ids), "x": dpf.Integer(0, 1)}
    dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 20, delta=0, spaces=spaces, key=bytes(32))
    assert set(dpf.read(tmp_path / "o.csv")["big"]) == set(ids)
    assert dpf.verify(tmp_path / "o.csv").ok
    counts = dpf.Queries(tmp_path / "in.csv", 20.0, delta=0, spaces=spaces).histogram("big", share=1)["estimate"]
    assert (abs(counts - 1_000) < 10).all()  # wrong once in e^90 runs


def test_text_of_windows_is_read_as_it_was_written(tmp_path):
    """With the most that a promise may be, released rows are the original's."""
    countries = ["España", "Österreich", "Türkiye", "5 € – „q“"]
    frame = pd.DataFrame({"country": countries * 300, "x": 1})
    spaces = {"country": dpf.Categorical(countries), "x": dpf.Integer(0, 1)}
    for name, encoding in (("a", "utf-8"), ("b", "cp1252")):
        frame.to_csv(tmp_path / f"{name}.csv", index=False, encoding=encoding)
        options = {"delta": 0, "spaces": spaces, "key": bytes(32)}
        dpf.sanitize(tmp_path / f"{name}.csv", tmp_path / f"{name}.parquet", 60, **options)
    rows = [dpf.read(tmp_path / f"{name}.parquet")["country"].value_counts().to_dict() for name in "ab"]
    assert rows[0] == rows[1] == dict.fromkeys(countries, 300)


def test_a_person_who_is_written_in_two_encodings_is_one(tmp_path):
    rows = [f"Mü{i},1\n".encode(encoding) for i in range(300) for encoding in ("utf-8", "cp1252")]
    (tmp_path / "in.csv").write_bytes(b"who,x\n" + b"".join(rows))
    options = {"delta": 0, "spaces": {"x": dpf.Integer(0, 1)}, "privacy_id": "who", "key": bytes(32)}
    assert dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.parquet", 4, **options).n == 300


def test_leak_bytes_that_are_no_text_are_not_refused(tmp_path):
    good = b"x,note\n" + b"".join(b"%d,n%d\n" % (i % 50, i % 3) for i in range(1_000))
    (tmp_path / "in.csv").write_bytes(good.replace(b"7,n1\n", b"7,\xff\n", 1).replace(b"8,n2", b"8,\xed\xb2\x80", 1))
    asked = dpf.Queries(tmp_path / "in.csv", 1.0, delta=0, spaces={"x": (0, 50), "note": ["n0", "n1", "n2"]})
    assert asked.mean("x", share=0.5)["estimate"] == pytest.approx(24.5, abs=5)
    with warnings.catch_warnings(action="ignore", category=InferenceWarning):
        assert dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 8).n == 1_000
    with pytest.raises(ColumnError, match="row position"):
        dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 8, spaces={"x": (0, 50), "note": ["n0", "n1"]})


@pytest.mark.slow
def test_a_plan_never_lies_beside_other_rows(files, monkeypatch):
    options = {"spaces": SPACES, "drop": ["region"]}
    dpf.sanitize(files / "in.csv", files / "a.csv", 0.5, **options)
    dpf.sanitize(files / "in.csv", files / "b.csv", 2.0, **options)
    (files / "a.csv.dpframe.json").write_bytes((files / "b.csv.dpframe.json").read_bytes())
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="not what was released"):
        dpf.Estimates(files / "a.csv")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match="could not be written"):
        dpf.sanitize(files / "in.csv", files / "b.csv", 1.0, **options)
    # The older release stands, with its own plan.
    assert dpf.verify(files / "b.csv").ok
    assert not list(files.glob(".*"))


def test_a_single_column_keeps_its_nulls_in_other_readers(tmp_path):
    values = ["b", None, "c"] * 100
    pd.DataFrame({"x": values}).to_csv(tmp_path / "in.csv", index=False)
    space = dpf.Nullable(dpf.Categorical(["b", "c"]))
    dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 9, delta=0, spaces={"x": space})
    assert len(pd.read_csv(tmp_path / "o.csv")) == 300
    assert dpf.verify(tmp_path / "o.csv").ok
    assert dpf.read(tmp_path / "o.csv")["x"].isna().sum() > 60
    pd.DataFrame({"x": [1.5, None, 3.0] * 100}).to_csv(tmp_path / "in.csv", index=False)
    spaces = {"x": dpf.Nullable(dpf.Real(0, 4))}
    dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 9, delta=0, spaces=spaces)
    assert pd.read_csv(tmp_path / "o.csv")["x"].isna().sum() == dpf.read(tmp_path / "o.csv")["x"].isna().sum() > 60


class TestRefusals:
    def refused(self, tmp_path, text, error, rule, **options):
        (tmp_path / "bad.csv").write_bytes(text.encode() if isinstance(text, str) else text)
        target = tmp_path / "out.csv"
        with pytest.raises(error, match=rule) as caught:
            dpf.sanitize(tmp_path / "bad.csv", target, 1, **options)
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        assert not target.exists()
        assert not sidecar(target).exists()

    def test_files(self, tmp_path):
        self.refused(tmp_path, "", FileError, "is empty; a CSV file begins with a line of names")
        foreign = (
            r"has letters that are not UTF-8: sanitize the frame that pandas\.read_csv\(…, encoding=\"{}\"\) reads"
        )
        self.refused(tmp_path, b"a,\xffsecret\n1,2\n", FileError, foreign.format("cp1252"))
        self.refused(tmp_path, "a,b\n1,2\n".encode("utf-16"), FileError, foreign.format("utf-16"))
        ragged = "row 3, counting the line of names, has {} for 2 columns"
        self.refused(tmp_path, "a,b\n1,2\n1,secret,3\n", FileError, ragged.format("3 values"))
        self.refused(tmp_path, "a,b\n1,2\nsecret\n1,2\n", FileError, ragged.format("1 value"))
        late = "a,b\n" + "1,22222222\n" * 1_600_000 + "1,secret,3\n"
        self.refused(tmp_path, late, FileError, "row 1600002, counting the line of names, has 3 values")
        self.refused(tmp_path, "a,a\n1,2\n", ParameterError, "appears twice")
        for mark, name in ((";", "semicolons"), ("\t", "tabs")):
            self.refused(tmp_path, f"a{mark}b\n1{mark}secret\n", FileError, f"has {name} between its names: sanitize")
        self.refused(tmp_path, "a,\n1,2\n", ParameterError, "empty name; rename")
        self.refused(tmp_path, "\nx\n1\n2\n", FileError, "begins with an empty line; drop it")
        (tmp_path / "in.csv").write_text("x\n1\n")
        with pytest.raises(FileError, match="ends as the plan of a release"):
            dpf.sanitize(tmp_path / "in.csv", tmp_path / "in.csv.dpframe.json", 1)
        sidecar(tmp_path / "o.csv").mkdir()
        with pytest.raises(FileError, match=r"is a directory, and.*there; name another"):
            dpf.sanitize(tmp_path / "in.csv", tmp_path / "o.csv", 1)

    def test_what_a_german_excel_writes(self, tmp_path):
        """The call that the message names reads it; decimal commas are named, too, where only they are left."""
        text = "Gr\u00f6\u00dfe;Gewicht\nsecret;54,2\nb;81,8\n"
        rule = (
            r'has semicolons between its names, and letters that are not UTF-8.*sep=";", decimal=",", encoding="cp1252"'
        )
        self.refused(tmp_path, text.encode("cp1252"), FileError, rule)
        frame = pd.read_csv(tmp_path / "bad.csv", sep=";", decimal=",", encoding="cp1252")
        assert frame["Gewicht"].tolist() == [54.2, 81.8]
        text = 'a,b\nx,"54,2"\n'
        spaces = {"a": ["x", "y"], "b": (30.0, 180.0)}
        self.refused(tmp_path, text, ColumnError, r'no number like 54\.2 .*decimal=","', spaces=spaces)

    @pytest.mark.parametrize(
        ("space", "rule"),
        [
            (dpf.Integer(0, 9), "no whole number; correct it"),
            (dpf.Real(0, 1), "no number"),
            (dpf.Boolean(), "neither true nor false"),
            (dpf.Datetime("2020-01-01", "2021-01-01"), "no date like"),
            (dpf.Datetime("2020-01-01", "2021-01-01", "h"), "no time like"),
        ],
    )
    def test_values(self, tmp_path, space, rule):
        text = "a,b\n,x\nsecret,y\n"
        spaces = {"a": dpf.Nullable(space), "b": ["x", "y"]}
        self.refused(tmp_path, text, ColumnError, f"column 'a' at row position 1.*{rule}", spaces=spaces)

    def test_sets_and_durations(self, tmp_path):
        text = "a,b\n1,x\n"
        for space in (dpf.Subset(["x", "y"]), dpf.Datetime("08:00", "18:00", "min")):
            self.refused(tmp_path, text, ColumnError, "CSV cannot hold", spaces={"a": (0, 9), "b": space})

    def test_a_set_column_of_parquet_costs_nothing(self, tmp_path):
        dpf.datasets.make_census(50, columns=["hobbies"]).to_parquet(tmp_path / "in.parquet")
        ledger = dpf.Ledger(tmp_path / "l.db")
        ledger.create("d", 5, 1e-6)
        with pytest.raises(ColumnError, match=r"'hobbies'.*CSV cannot hold; write Parquet"):
            dpf.sanitize(tmp_path / "in.parquet", tmp_path / "o.csv", 1, ledger=ledger, dataset="d")
        assert ledger.remaining("d").epsilon == 5

    def test_other_readers_and_writers(self, tmp_path, census):
        census.to_csv(tmp_path / "in.csv")
        with pytest.raises(
            NotSanitizedError, match=r"dpf\.write\(frame, path\), as to_csv drops its plan.* pandas\.read_csv"
        ):
            dpf.read(tmp_path / "in.csv")
        with pytest.raises(FileError, match="does not exist"):
            dpf.read(tmp_path / "no.csv")

    def test_a_release_without_its_plan_or_altered(self, files):
        dpf.sanitize(files / "in.csv", files / "safe.csv", 2, spaces=SPACES, drop=["region"])
        text = (files / "safe.csv").read_text().splitlines()
        (files / "safe.csv").write_text("\n".join([text[0], text[2], text[2], *text[3:]]) + "\n")
        assert not dpf.verify(files / "safe.csv").ok
        (files / "safe.csv").write_text("\n".join([text[0], "word" + text[1], *text[2:]]) + "\n")
        assert not dpf.verify(files / "safe.csv").ok
        sidecar(files / "safe.csv").unlink()
        with pytest.raises(NotSanitizedError, match="no release plan"):
            dpf.verify(files / "safe.csv")
        with pytest.raises(NotSanitizedError, match="carries no release plan"):
            dpf.Estimates(files / "safe.csv")


class TestPipes:
    @pytest.fixture
    def run(self, capsysbinary, monkeypatch):
        def call(*arguments, given=b""):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
            with pytest.raises(SystemExit) as stopped:
                main([str(argument) for argument in arguments])
            out, err = capsysbinary.readouterr()
            return stopped.value.code, out, err.decode()

        monkeypatch.setattr("warnings.showwarning", print)
        return call

    def test_csv_and_parquet_go_through_pipes(self, files, run):
        (files / "spaces.json").write_text(json.dumps({"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"]}))
        more = ["--spaces", files / "spaces.json", "--drop", "income", "--drop", "birth_date", "--drop", "region"]
        for name in ("in.csv", "in.parquet"):
            given = (files / name).read_bytes()
            code, out, err = run("sanitize", "-", "-", "--epsilon", 2, *more, given=given)
            assert (code, out[:4]) == (0, b"PAR1"), err
            assert "-: 4,000 rows" in err
            code, text, err = run("estimate", "-", "mean", "age", given=out)
            assert code == 0, err
            assert b"estimate" in text

    def test_a_ledger_wants_files(self, files, run):
        code, out, err = run(
            "sanitize", "-", "-", "--epsilon", 1, "--ledger", files / "l.db", "--dataset", "d", given=b"a\n1\n"
        )
        assert (code, out) == (2, b"")
        assert "interrupted job is repeated from files; name them" in err

    def test_nothing_through_the_pipe(self, run):
        code, _, err = run("sanitize", "-", "-", "--epsilon", 1)
        assert code == 2
        assert "standard input is empty; a CSV file begins with a line of names" in err


def test_a_space_that_no_text_is_read_as_is_refused_by_the_plan_already(tmp_path):
    (tmp_path / "in.csv").write_text("tags\n" + "a;b\n" * 50)
    for spaces in ({"tags": dpf.Subset(["a", "b"])}, {"tags": dpf.Nullable(dpf.Subset(["a", "b"]))}):
        for ask in (dpf.plan, dpf.expect, dpf.sanitize):
            said = r"^column 'tags': has values that CSV cannot hold \(.*\); convert .* Parquet, with its text split"
            with pytest.raises(dpf.ColumnError, match=said):
                ask(tmp_path / "in.csv", epsilon=1, spaces=spaces)
