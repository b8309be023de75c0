"""A plan proves what its inference cost: whatever is taken out of it, or made less, does not verify."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.errors import PlanError
from dpframe.inference.kinds import is_possible_request
from dpframe.inference.private import Measurement
from dpframe.plan import Plan
from dpframe.plan.certificate import certify
from dpframe.release.info import ReleaseInfo
from dpframe.spaces.field import Field

KEY = bytes(range(32))
N = 3_000


@cache
def plan(delta: float = 1e-6, **options: Any) -> Plan:
    """Return a plan of which a number, text, sets and objects were inferred; without delta, numbers and dates."""
    i = np.arange(N)
    frame = pd.DataFrame({"age": i % 90 + 0.5, "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(i % 700, unit="D")})
    if delta:
        frame["sex"] = pd.Series(np.where(i % 2, "F", "M"))
        frame["basket"] = [frozenset("ab") if j % 3 else frozenset("bc") for j in i]
        frame["hours"] = pd.Series([int(j) % 24 if j % 5 else None for j in i], dtype=object)
    return ReleaseInfo.from_json(
        dpf.sanitize(frame, epsilon=4.0, delta=delta, key=KEY, **options).attrs["dpframe"]
    ).plan


def changed(change: Callable[[dict[str, Any]], None], **options: Any) -> Plan:
    """Return the plan with its inference changed."""
    data = json.loads(plan(**options).to_json())
    change(data["inferred"])
    return Plan.from_json(json.dumps(data))


def of(column: str) -> Callable[[dict[str, Any]], bool]:
    return lambda part: column in part.get("columns", [part.get("column")])


def without(part: str, column: str) -> Callable[[dict[str, Any]], None]:
    def change(inferred: dict[str, Any]) -> None:
        inferred[part] = [entry for entry in inferred[part] if not of(column)(entry)]

    return change


def each(change: Callable[[dict[str, Any]], None], kind: str = "") -> Callable[[dict[str, Any]], None]:
    """Return what changes all histograms that were asked for, of a kind."""

    def changes(inferred: dict[str, Any]) -> None:
        for group in inferred["asked"]:
            for histogram in group["histograms"]:
                if kind in ("", histogram["kind"]):
                    change(histogram)

    return changes


def cheaper(inferred: dict[str, Any]) -> None:
    inferred["mu"] *= 0.8


def lower(inferred: dict[str, Any]) -> None:
    inferred["thresholds"]["sex"] //= 2
    each(lambda histogram: histogram.update(threshold=histogram["threshold"] // 2), "values")(inferred)


def quieter(inferred: dict[str, Any]) -> None:
    each(lambda histogram: histogram.update(variance=histogram["variance"] * 0.6))(inferred)
    for measured in inferred["measured"]:
        measured["variance"] *= 0.6


def one_way(inferred: dict[str, Any]) -> None:
    for group in inferred["asked"]:
        group["histograms"] = [h for h in group["histograms"] if h.get("way") in (None, "whole number")]


def moved(inferred: dict[str, Any]) -> None:
    """Let the kinds say another way than the one that was gone."""
    kinds = next(m for m in inferred["measured"] if m["column"] == "hours" and m["kind"] == "kinds")
    kinds["counts"][kinds["cells"].index("boolean")] = 10 * N


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a lower mu": (cheaper, "claims mu="),
    "no slack": (lambda inferred: inferred.update(slack=1e-15), "oftener"),
    "less noise": (quieter, "less noise"),
    "no threshold": (lambda inferred: inferred["thresholds"].pop("sex"), "its threshold is not the one"),
    "another threshold": (lambda inferred: inferred["thresholds"].update(sex=1), "its threshold is not the one"),
    "lower thresholds": (lower, "rare values show oftener"),
    "items that count as one": (each(lambda histogram: histogram.update(cells=1), "items"), "inference counted 1"),
    "rows in more cells": (each(lambda histogram: histogram.update(cells=3)), "less noise"),
    "one way alone": (one_way, "no column is asked what the plan says of it"),
    "another way": (moved, "not those that were asked for"),
    **{
        f"no counts of {name}": (without("measured", name), "not those that were asked for")
        for name in ("age", "sex", "basket", "hours", "seen")
    },
    **{
        f"nothing asked of {name}": (without("asked", name), "does not say what was asked of it")
        for name in ("age", "sex", "basket", "hours", "seen")
    },
}


@pytest.mark.slow
def test_what_was_inferred_is_proved():
    certificate = plan().verify()
    assert certificate.ok, certificate.failures
    assert any(check.startswith("inference: the noise on all that") for check in certificate.checks)
    assert not any("might have asked" in line for line in certificate.attested)


@pytest.mark.walk(10)
@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_taken_out_or_made_less_does_not_verify(name):
    change, why = TAMPERED[name]
    certificate = changed(change).verify()
    assert not certificate.ok
    assert why in " ".join(certificate.failures)


def test_without_delta_losses_are_added_up_anew():
    assert plan(0.0).verify().ok
    for change in (quieter, lambda inferred: inferred.update(epsilon=inferred["epsilon"] * 0.9)):
        assert not changed(change, delta=0.0).verify().ok


@pytest.mark.slow
def test_a_person_with_many_rows_costs_more():
    assert plan(contributions=3).verify().ok
    assert "less noise" in " ".join(certify(plan(), contributions=3).failures)


def test_an_older_plan_leaves_what_was_asked_to_its_curator():
    certificate = changed(lambda inferred: inferred.pop("asked")).verify()
    assert certificate.ok
    assert any("might have asked" in line for line in certificate.attested)


@pytest.mark.parametrize(
    "change",
    [
        lambda inferred: inferred.update(asked={}),
        lambda inferred: inferred["asked"].append(inferred["asked"][0]),
        lambda inferred: inferred["asked"][0].update(columns="age"),
        each(lambda histogram: histogram.update(variance=0.0)),
        each(lambda histogram: histogram.update(cells=0)),
        each(lambda histogram: histogram.update(threshold=7), "intervals"),
        each(lambda histogram: histogram.pop("threshold"), "items"),
        each(lambda histogram: histogram.update(kind="guesses")),
    ],
)
def test_what_no_inference_asks_is_no_plan(change):
    with pytest.raises(PlanError, match="asked"):
        changed(change)


TYPES = [
    pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.string(), pa.date32(), pa.timestamp("us"), pa.duration("s"),
    pa.list_(pa.string()), pa.list_(pa.float64()), pa.list_(pa.float64(), 3), pa.null(),
    pa.dictionary(pa.int8(), pa.string()),
]  # fmt: skip


@pytest.mark.walk(13)
@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_the_certificate_knows_what_every_type_is_asked(type_, nullable):
    for field in (Field("c", type_, nullable), Field("c", type_, nullable, written=True)):
        if field.written and not pa.types.is_string(type_):
            continue
        for _, own in Measurement.of([field], 1_000, dpf.Budget(1.0, 1e-6)).asked:
            assert is_possible_request([(h.way, h.kind) for h in own])
