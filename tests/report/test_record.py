"""Records of deployments: the registry's rules hold, what the release decides is compared, and files come back."""

from __future__ import annotations

import datetime
import json

import pytest

import dpframe as dpf
from dpframe.cli.main import main

KEY = bytes(range(32))
TEXT = "text"

# The registry's schema (github.com/opendp/deployments-registry-data at 3e9c812): fields, what they may be, and those
# that must be there. Nothing else may be.
SCHEMA = {
    "basic": {
        "name": TEXT,
        "data_curators": list,
        "intended_use": TEXT,
        "data_product_type": {
            "Summary statistics",
            "Machine learning model",
            "Dataset",
            "Synthetic data",
            "Interactive API",
            "SQL queries",
        },
        "data_product_region": TEXT,
        "description": TEXT,
        "publication_date": datetime.date,
        "data_product_sector": {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"},
    },
    "dp_variant": {
        "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
        "data_domain": TEXT,
        "unprotected_quantities": TEXT,
    },
    "privacy_loss": {
        "privacy_unit": TEXT,
        "privacy_unit_details": TEXT,
        "privacy_parameters": {"epsilon": float, "delta": float, "rho": float},
        "privacy_parameters_details": TEXT,
    },
    "deployment_model": {
        "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"},
        "model_name_details": TEXT,
        "actors": TEXT,
        "release_type": {"One release", "Many releases"},
        "release_type_details": TEXT,
        "data_source_type": {"Static", "Dynamic"},
        "data_source_type_details": TEXT,
        "access_type": {"Interactive", "Non-interactive"},
        "access_type_details": TEXT,
    },
    "accounting": {"post_processing": TEXT, "composition": TEXT},
    "implementation": {"preprocessing_and_hyperparameter_tuning": TEXT, "mechanisms": TEXT, "justification": TEXT},
    "administrative": {"sources": TEXT, "notes": TEXT, "registry_authors": list},
}
REQUIRED = set(SCHEMA["basic"]) - {"data_product_sector"}


def check(value, rule):
    if isinstance(rule, dict):
        assert set(value) <= set(rule)
        for name, inner in value.items():
            check(inner, rule[name])
    elif isinstance(rule, set):
        assert value in rule
    elif rule is datetime.date:
        assert datetime.date.fromisoformat(value)
    elif rule is list:
        assert value
        assert all(isinstance(one, str) and one for one in value)
    elif rule is float:
        assert isinstance(value, int | float)
    else:
        assert isinstance(value, str)
        assert value


def leaves(node):
    return [leaf for inner in node.values() for leaf in leaves(inner)] if isinstance(node, dict) else [node]


FRAMES = {
    "default": {"spaces": {"age": (0, 120), "sex": ["F", "M"]}},
    "inferred": {},
    "pure": {"delta": 0, "spaces": {"age": (0, 120), "sex": ["F", "M"]}, "shuffle": False},
    "persons": {"spaces": {"age": (0, 120), "sex": ["F", "M"]}, "contributions": 3, "local_epsilon": 6},
}


@pytest.fixture(scope="module", params=FRAMES)
def safe(request):
    frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    return frame.dp.sanitize(epsilon=1, key=KEY, **FRAMES[request.param])


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    dpf.datasets.make_census(1_000, columns=["sex"]).to_parquet(folder / "in.parquet", index=False)
    dpf.sanitize(folder / "in.parquet", folder / "out.parquet", epsilon=1, spaces={"sex": ["F", "M"]}, key=KEY)
    return folder / "out.parquet"


@pytest.mark.walk(2)
def test_it_keeps_the_registrys_rules_and_nearly_fills_it(safe, tmp_path):
    record = safe.dp.record(sector="Government", published="2026-01-31")
    assert set(record.fields) == {"url_slug", "status", "tier", "deployment"}
    assert record.fields["status"] == "Draft"
    assert record.fields["tier"] == 3
    deployment = record.fields["deployment"]
    check(deployment, SCHEMA)
    assert set(deployment["basic"]) >= REQUIRED
    filled = [leaf for leaf in leaves(record.fields) if "TO FILL IN" not in str(leaf)]
    assert len(filled) >= 26
    assert record.open_fields == ("data_curators", "intended_use", "data_product_region", "registry_authors")
    assert deployment["privacy_loss"]["privacy_parameters"].get("delta", 0.0) == safe.dp.release.plan.delta
    record.save(tmp_path / "record.yaml")
    assert record.differences(tmp_path / "record.yaml") == []


@pytest.mark.slow
def test_pyyaml_reads_what_is_written(safe):
    yaml = pytest.importorskip("yaml")
    record = safe.dp.record()
    assert yaml.safe_load(record.to_yaml()) == record.fields


def test_people_fill_in_what_they_know(released):
    record = dpf.read(released).dp.record(
        name="Sexes",
        curators=["Office"],
        intended_use="Planning",
        region="Aldermark",
        published=datetime.date(2026, 1, 31),
        authors=["A. Author"],
    )
    assert record.open_fields == ()
    assert record.fields["url_slug"] == "sexes-office-2026"
    assert json.loads(str(record)) == record.fields


DELTA = '"epsilon": 1.0,\n        "delta": 1.0e-06'
CHANGES = {
    "another epsilon": ('"epsilon": 1.0', '"epsilon": 0.5', "epsilon is not what the release says"),
    "no delta": (DELTA, '"epsilon": 1.0', "the record has no privacy_loss.privacy_parameters.delta"),
    "a rho": (DELTA, f'{DELTA}, "rho": 0.1', None),
    "pure": ('"Approximate DP"', '"Pure DP"', "variant_name is not what the release says"),
    "fewer leaks": ("Person (one row)", "Household", "privacy_unit is not what the release says"),
    "another file": ("Release ", "Release of another file 00", "sources is not what the release says"),
    "more words": ('"Person (one row)"', '"Household; here: Person (one row), once"', None),
    "a curator": ('"TO FILL IN: who publishes the data"', '"The Office"', None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_verify_compares_a_record_with_its_file(released, tmp_path, capsys, name):
    old, new, failure = CHANGES[name]
    record, path = dpf.read(released).dp.record(), tmp_path / "record.yaml"
    text = record.to_yaml()
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(released), "--record", str(path)])
    shown = capsys.readouterr()
    assert stopped.value.code == (0 if failure is None else 1)
    assert (failure or "the record record.yaml says what the release does") in shown.out


def test_the_shell_writes_one(released, tmp_path, capsys):
    path = tmp_path / "record.yaml"
    for options, said in ((["-o", str(path), "--curator", "Office"], "wrote"), (["--region", "Aldermark"], "")):
        with pytest.raises(SystemExit) as stopped:
            main(["record", str(released), *options])
        assert not stopped.value.code
        shown = capsys.readouterr()
        assert said in shown.err
        assert "Still to fill in by hand: " in shown.err
        assert ("data_curators" in shown.err) == ("--curator" not in options)
    assert json.loads(shown.out)["deployment"]["basic"]["data_product_region"] == "Aldermark"
    assert json.loads(path.read_text(encoding="utf-8"))["deployment"]["basic"]["data_curators"] == ["Office"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sector": "Toys"}, "sector must be one of"),
        ({"published": "soon"}, "published must be a date"),
        ({"curators": "Office"}, "curators must be a list of names"),
        ({"authors": [1]}, "authors must be a list of names"),
    ],
)
def test_what_is_no_field_is_refused(released, options, error):
    with pytest.raises(dpf.ParameterError, match=error):
        dpf.read(released).dp.record(**options)


def test_files_that_hold_no_record(released, tmp_path, capsys):
    record = dpf.read(released).dp.record()
    with pytest.raises(dpf.FileError, match="is not a readable record"):
        record.differences(tmp_path / "none.yaml")
    for text in ("tier: 3\n", "[1, 2]", '{"a": 1, "a": 2}', "{", "[" * 100_000):
        (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(dpf.FileError, match=r"bad\.yaml.*is not a record.*each name once"):
            record.differences(tmp_path / "bad.yaml")
    (tmp_path / "empty.yaml").write_text('{"tier": 3}', encoding="utf-8")
    assert len(record.differences(tmp_path / "empty.yaml")) > 10
    dpf.datasets.make_census(10, columns=["sex"]).to_parquet(tmp_path / "raw.parquet", index=False)
    with pytest.raises(SystemExit) as stopped:
        main(["record", str(tmp_path / "raw.parquet")])
    assert stopped.value.code == 2
    assert "is not a release, so there is nothing to record" in capsys.readouterr().err
