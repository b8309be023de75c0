"""Spaces declared by anything at all: each is a space that keeps its promises, or refused in one line."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import pyarrow as pa
from fuzzing import ANYTHING, JSON, NUMBERS, TEXTS, cases, counted, outcome
from hypothesis import given
from hypothesis import strategies as st
from strategies import TYPES

from dpframe.plan.build import build_plan
from dpframe.spaces import SPACES, Space, as_space, check_declaration, space_from_json


def check(space: Space) -> None:
    """Check that what was made is a whole space: it codes, it is written and read, and it has a plan."""
    assert space.size >= 1
    text = json.dumps(space.to_json(), allow_nan=False)
    assert space_from_json(json.loads(text)) == space
    assert hash(space) == hash(space_from_json(json.loads(text)))
    last = space.size - 1
    if not space.holds_vectors:
        values = space.decode(space.code_list(space.code_array([0, space.fixed_point, last])))
        if not (space.code_words or space.tag == "product"):
            assert space.code_list(space.encode(values)) == [0, space.fixed_point, last]
    if space.size <= 64 and space.tag != "product":
        assert build_plan({"a": space}, epsilon=1.0).verify().ok


SPEC = st.one_of(
    JSON,
    ANYTHING,
    st.tuples(NUMBERS, NUMBERS),
    st.tuples(TEXTS, TEXTS),
    st.lists(NUMBERS, max_size=5),
    st.lists(TEXTS, max_size=5),
    st.fixed_dictionaries({"lower": NUMBERS, "upper": NUMBERS}),
)


@cases(0.3, 150)
@given(data=st.data())
def _declared(found: Any, data: st.DataObject) -> None:
    spec = data.draw(SPEC)
    type_ = data.draw(st.none() | st.sampled_from([*TYPES, pa.null(), pa.binary(), pa.decimal128(5, 2), pa.struct([])]))
    found[outcome(lambda: check_declaration(spec))] += 0
    found[outcome(lambda: check(as_space(spec, type_)))] += 1


def test_declarations() -> None:
    with counted("declared spaces") as found:
        _declared(found)
    assert {"works", "ParameterError", "PlanError", "ColumnError"} >= set(found)
    assert found["works"] > 0


@cases(0.32, 150)
@given(data=st.data())
def _made(found: Any, data: st.DataObject) -> None:
    kind = SPACES[data.draw(st.sampled_from(sorted(SPACES)))]
    from_json = kind.tag != "product" and data.draw(st.booleans())
    given, needed = _fields(kind) if from_json else _arguments(kind)
    some = data.draw(st.sets(st.sampled_from(given))) if given else set()
    values = {name: data.draw(value_of(name), label=name) for name in sorted({*needed, *some})}
    if kind.tag == "product":
        spaces = data.draw(ANYTHING)
        made = outcome(lambda: check(kind(*(spaces if isinstance(spaces, list | tuple) else [spaces]))))
    elif from_json:
        made = outcome(lambda: check(space_from_json({"space": kind.tag, **values})))
    else:
        made = outcome(lambda: check(kind(**values)))
    found[f"{kind.tag} {made}"] += 1


def _fields(kind: Any) -> tuple[list[str], list[str]]:
    """Return the fields that JSON may have, and those that it must."""
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return [field.name for field in fields], [field.name for field in fields if field.default is dataclasses.MISSING]


def _arguments(kind: Any) -> tuple[list[str], list[str]]:
    """Return the arguments of a constructor, and those without a default."""
    named = [one for one in inspect.signature(kind).parameters.values() if one.kind is not one.VAR_POSITIONAL]
    return [one.name for one in named], [one.name for one in named if one.default is one.empty]


def value_of(name: str) -> st.SearchStrategy[Any]:
    """Return values for a field: such as it may have, and any others."""
    return st.one_of(LIKELY.get(name, ANYTHING), ANYTHING)


LIKELY: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        ["lower", "upper", "step", "steps", "length", "size", "bound", "bits", "rank", "max_size"], NUMBERS
    ),
    **dict.fromkeys(["categories", "items"], st.lists(NUMBERS | TEXTS, max_size=5)),
    "norm": st.sampled_from(["l1", "l2", "linf"]),
    "resolution": st.sampled_from(["D", "h", "min", "s", "ms", "us"]),
    "grid": st.lists(st.integers(0, 9) | NUMBERS, max_size=5),
    **dict.fromkeys(
        ["inner", "space"],
        st.sampled_from([space_from_json({"space": "boolean"}), {"space": "integer", "lower": 0, "upper": 9}]),
    ),
    "kernel": JSON,
}


def test_constructors() -> None:
    with counted("spaces by their fields") as found:
        _made(found)
    assert {name.split()[0] for name in found} == set(SPACES) or len(found) > 8
