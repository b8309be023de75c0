"""docs/reference/release_format.md names every field of descriptions, and docs/SECURITY.md the tests of each party."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from examples import plan_of
from hypothesis import given, settings
from strategies import examples, spaces

import dpframe as dpf
from dpframe.channels import MECHANISMS
from dpframe.inference.histogram_specs import HISTOGRAM_KINDS
from dpframe.plan.measures import KINDS
from dpframe.spaces.base import SPACES

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs" / "reference" / "release_format.md").read_text(encoding="utf-8")
NAMED = {word for code in re.findall(r"`([^`]+)`", PAGE) for word in re.findall(r"\w+", code)}
KEYED_BY_DATA = ("thresholds", "if", "then")
"""Objects whose names are those of columns."""


def words_of(node: Any) -> set[str]:
    """Return the names of all fields of JSON, and the tags."""
    if isinstance(node, list):
        return set().union(*map(words_of, node))
    if not isinstance(node, dict):
        return set()
    tags = [value for name, value in node.items() if name in ("mechanism", "space", "kind")]
    inner = [words_of(value) for name, value in node.items() if name not in KEYED_BY_DATA]
    words = {word for tag in tags if isinstance(tag, str) for word in re.findall(r"\w+", tag)}
    return set(node).union(words, *inner)


def description(release: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(release.attrs["dpframe"])
    return found


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Descriptions that have every optional field."""
    folder = tmp_path_factory.mktemp("releases")
    people = dpf.datasets.make_census(300, columns=["age", "sex"])
    inferred = dpf.sanitize(people, epsilon=4, local_epsilon=90, measure=[("sex",)])
    ledger = dpf.Ledger(folder / "ledger.sqlite")
    ledger.create("people", epsilon=9, delta=1e-4, parts=["north"])
    reused = {
        "spaces": inferred.dp.release.plan,
        "rules": [dpf.Implies({"age": (18, 20)}, {"sex": ["F"]})],
        "measure": [("age", "sex")],
        "sample": 100,
        "ledger": ledger.account("people", "north"),
    }
    groups = {"spaces": {"age": (18, 95), "sex": ["F", "M"]}, "groups": [["age", "sex"]], "measure": None}
    person = {"privacy_id": "person", "contributions": 2}
    made = [
        dpf.sanitize(people, epsilon=2, **reused),
        dpf.sanitize(people.assign(person=range(300)), epsilon=2, **groups, **person),
    ]
    dpf.write(inferred[["age"]], folder / "part.parquet")
    index = replace(plan_of({"age": (18, 95)}, 1.0, shuffle=False), keeps_index=True)
    made_descriptions = [description(release) for release in (inferred, dpf.read(folder / "part.parquet"), *made)]
    return [*made_descriptions, json.loads(index.to_json())]


def test_every_field_of_releases_is_named(releases):
    found = words_of(releases)
    optional = {"rows", "measured", "tables", "part", "left_out", "library"}
    assert optional | {field.name for field in fields(dpf.Plan)} <= found
    assert found <= NAMED


def test_every_field_of_golden_plans_is_named():
    golden = json.loads((HERE / "golden" / "releases.json").read_text(encoding="utf-8"))
    assert words_of([release["plan"] for release in golden.values()]) <= NAMED


def test_every_tag_is_named():
    retired = {"released_vector"}  # the space of released codes, which no plan holds
    assert {*MECHANISMS, *SPACES, *KINDS, *HISTOGRAM_KINDS} - retired <= NAMED


@settings(max_examples=examples(25))
@given(space=spaces())
def test_every_field_of_random_plans_is_named(space):
    assert words_of(json.loads(plan_of({"x": space}, 8.0).to_json())) <= NAMED


def test_the_walk_finds_a_field_that_the_page_lacks():
    assert words_of({"columns": [{"space": "listed", "extra": {"deep": 1}}], "thresholds": {"age": 1}}) == {
        "columns", "space", "listed", "extra", "deep", "thresholds",
    }  # fmt: skip
    assert "deep" not in NAMED


def test_the_tests_of_the_threat_model_exist():
    page = (HERE.parent / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^` ]*)`", page.partition("## What dpframe does not defend")[0])
    assert len(named) > 15
    assert not [path for path in named if not (HERE.parent / path).exists()]
