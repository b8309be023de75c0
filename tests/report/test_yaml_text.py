"""YAML as records have it: what is written comes back, and so does what others write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpframe as dpf
from dpframe.api.report.yaml_text import read_yaml, yaml_text

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=100)


@given(st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), words, max_size=4))
def test_any_text_comes_back(fields):
    data = {"a": {"b": fields, "c": ["x", *fields.values()]}}
    read = read_yaml(yaml_text(data))
    for name, text in fields.items():
        kept = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        assert " ".join(read["a"]["b"][name].split()) == kept
    assert len(read["a"]["c"]) == len(fields) + 1


@pytest.mark.slow
def test_a_record_comes_back():
    frame = dpf.datasets.make_census(200, columns=["age", "sex"])
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    safe = frame.dp.sanitize(epsilon=1, key=bytes(32), spaces=spaces, contributions=3, local_epsilon=6)
    record = safe.dp.record(sector="Government", published="2026-01-31")
    assert read_yaml(record.to_yaml()) == record.fields


def test_what_pyyaml_writes_is_read():
    yaml = pytest.importorskip("yaml")
    data = {"a": {"b": ["x", "y: z"], "c": 1e-7}}
    assert read_yaml(yaml.safe_dump(data)) == data
