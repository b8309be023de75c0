"""The names that DESIGN promises: signatures, what Tab shows of a space, options as keywords."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from examples import space_of

import dpframe as dpf
from dpframe.errors import ParameterError, PlanError

KERNEL = {"name": "RBF", "length_scale": 1.0}
SPACES = {
    "boolean": dpf.Boolean(),
    "categorical": dpf.Categorical(categories=["a", "b"], other="b"),
    "ordinal": dpf.Ordinal(categories=["a", "b"]),
    "integer": dpf.Integer(lower=0, upper=9, step=1),
    "real": dpf.Real(lower=0, upper=9, steps=65536),
    "datetime": dpf.Datetime(lower="2020-01-01", upper="2020-12-31", resolution="D"),
    "subset": dpf.Subset(items=["a", "b"], max_size=1),
    "vector": dpf.Vector(size=3, bound=1.0, norm="l2"),
    "curve": dpf.Curve(grid=range(3), bound=1.0, kernel=KERNEL, rank=2),
    "nullable": dpf.Nullable(space=dpf.Boolean()),
    "product": dpf.Product(dpf.Boolean(), dpf.Boolean()),
}
COMMON = {"contains", "decode", "diameter", "distance", "encode", "min_distance", "size"}
FIELDS = {
    "boolean": "",
    "categorical": "categories other",
    "ordinal": "categories",
    "integer": "lower upper step",
    "real": "lower upper steps",
    "datetime": "lower upper resolution",
    "subset": "items max_size other strict",
    "vector": "length bound norm bits room",
    "curve": "grid bound kernel rank bits room at norms",
    "nullable": "inner",
    "product": "spaces",
}


@pytest.mark.parametrize("name", sorted(SPACES))
def test_tab_shows_a_spaces_fields_and_what_it_is_asked_for(name: str) -> None:
    shown = {one for one in dir(SPACES[name]) if not one.startswith("_")}
    assert shown == COMMON | set(FIELDS[name].split())
    assert all(hasattr(SPACES[name], one) for one in shown)


def test_vectors_written_by_hand_or_by_a_plan_are_read() -> None:
    space = SPACES["vector"]
    by_hand = {"space": "vector", "size": 3, "bound": 1.0}
    assert space_of(by_hand) == space == space_of(space.to_json())
    assert space.to_json() == {"space": "vector", "length": 3, "bound": 1.0, "norm": "l2", "bits": 16}
    assert space.with_room(4).to_json() == space.to_json() | {"room": 4}
    wrong: list[dict[str, Any]] = [by_hand | {"length": 3}, {"space": "vector", "bound": 1.0}, by_hand | {"colour": 1}]
    for data in wrong:
        with pytest.raises(PlanError, match="space vector has the fields"):
            space_of(data)
    for size in (0, 4_097, 2.5, "3", None, True):
        with pytest.raises(ParameterError, match="size must be"):
            dpf.Vector(size, 1.0)


@pytest.mark.parametrize("name", ["vector", "nullable"])
def test_a_space_is_written_as_it_is_made(name: str) -> None:
    space = SPACES[name]
    assert eval(repr(space), vars(dpf) | {one: getattr(dpf, one) for one in ("Boolean", "Nullable", "Vector")}) == space


ARGUMENTS = {
    dpf.Budget: "epsilon delta",
    dpf.Estimates: "source plan",
    dpf.Queries: "frame budget spaces ledger",
    dpf.Sanitizer: "epsilon delta plan ledger dataset",
    dpf.attach: "table plan",
    dpf.sanitize: "source target epsilon delta plan ledger dataset spaces drop shuffle sample infer infer_share "
    "measure_share local_epsilon contributions privacy_id rules passthrough allocation nulls numbers",
    dpf.datasets.make_census: "n_rows random_state",
}


@pytest.mark.parametrize("entry", ARGUMENTS, ids=lambda entry: entry.__name__)
def test_arguments_are_keywords_of_the_signature(entry: Any) -> None:
    assert set(ARGUMENTS[entry].split()) <= set(inspect.signature(entry).parameters)


def test_queries_answer_by_the_names_of_the_design() -> None:
    for name in ("count", "sum", "mean", "histogram", "quantile", "covariance"):
        assert callable(getattr(dpf.Queries, name))
