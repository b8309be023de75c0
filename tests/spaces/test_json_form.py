"""Frozen values as JSON objects: strict about names, lists and Unicode."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

import dpframe as dpf
from dpframe.inference.inferred import Measured
from dpframe.plan import build_plan
from dpframe.spaces.json_form import from_object, to_object


@dataclass(frozen=True)
class Value:
    """A value with a list, a number and something seldom said."""

    names: tuple[str, ...]
    size: int
    unit: str | None = None


def test_values_come_back():
    value = Value(("a", "b"), 3)
    assert to_object(value) == {"names": ["a", "b"], "size": 3, "unit": None}
    assert to_object(value, sparse=["unit"]) == {"names": ["a", "b"], "size": 3}
    assert from_object(Value, to_object(value), "a value") == value
    assert from_object(Value, to_object(value, sparse=["unit"]), "a value") == value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"names": ["a"]}, "a value has the fields names, size, and perhaps unit, no more and no fewer"),
        ({"names": ["a"], "size": 1, "colour": 2}, "a value has the fields names, size, and perhaps unit"),
        ([["a"], 1], "a value has the fields names, size"),
        ({"names": "ab", "size": 1}, "a value has a list of names, and something else was given"),
    ],
)
def test_other_objects_are_refused(data, says):
    with pytest.raises(dpf.errors.PlanError, match=says):
        from_object(Value, data, "a value")


def test_half_a_pair_of_surrogates_is_no_plan():
    text = build_plan({"sex": ["F", "M"]}, epsilon=1.0).to_json()
    for place in ('"F"', '"sex"'):
        with pytest.raises(dpf.errors.PlanError, match="valid Unicode"):
            dpf.Plan.from_json(text.replace(place, '"\\ud800"'))
    with pytest.raises(dpf.errors.PlanError, match="space categorical has a list of categories"):
        dpf.Plan.from_json(text.replace('["F", "M"]', '"FM"'))


@pytest.mark.parametrize("cells", [[None, 1.0], [1.0, "x"], [True, 2.0], [float("nan"), 1.0]])
def test_edges_of_measured_counts_are_numbers(cells):
    data = {"column": "age", "kind": "intervals", "cells": cells, "counts": [1, 2, 3], "variance": 2.0, "missing": None}
    with pytest.raises(dpf.errors.PlanError, match=r"cells of measured counts.*numbers between intervals"):
        Measured.from_json(data)
    good = data | {"cells": [0.0, 1.0]}
    assert json.loads(json.dumps(Measured.from_json(good).to_json())) == good
