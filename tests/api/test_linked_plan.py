"""The plan of several tables as a file: equal bytes, one payment of inference, forgeries, tables that do not fit."""

from __future__ import annotations

import json
import math

import pytest
from linked_tables import KEY, KEYS, SPACES, made_tables

import dpframe as dpf


@pytest.fixture(scope="module")
def tables():
    return made_tables(3_000)


@pytest.fixture(scope="module")
def made(tables):
    return dpf.plan(tables, epsilon=4, keys=KEYS, contributions=3, spaces=SPACES)


def test_a_plan_is_a_file_and_gives_the_bytes_of_its_options(tables, tmp_path):
    """A declared plan costs nothing, says what it keeps, and goes to more persons, and to fewer after `replan`."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("clinic", epsilon=9, delta=1e-4, unit="person:patient_id")
    account = {"ledger": ledger, "dataset": "clinic"}
    made = dpf.plan(tables, epsilon=4, keys=KEYS, contributions={"visits": 3}, spaces=SPACES, **account)
    assert ledger.history("clinic").empty
    (tmp_path / "plan.json").write_text(made.to_json(indent=1))
    plan = dpf.LinkedPlan.read(tmp_path / "plan.json")
    assert plan == made
    safe = dpf.sanitize(tables, epsilon=4, keys=KEYS, contributions=3, spaces=SPACES, key=KEY)
    again = dpf.sanitize(tables, plan=plan, key=KEY)
    assert all(again[name].equals(safe[name]) for name in safe)
    assert all(again.releases[name].plan == plan.plans[name] for name in safe)
    promise = "one row of patients and up to 3 of visits, by column 'patient_id'"
    assert promise in str(dpf.verify(tmp_path / "plan.json"))
    expected = dpf.expect(tables, epsilon=4, keys=KEYS, contributions={"visits": 3}, spaces=SPACES)
    assert expected.tables["visits"].rows == 9_000
    assert "visits: contributions=2 in place of 3 brings counts within ± " in str(expected)
    assert expected.tables["visits"].table.equals(
        plan.expect().tables["visits"].table.drop(index="lost", errors="ignore")
    )
    assert "quote this promise" in str(plan.explain())
    dpf.sanitize(made_tables(3_100), plan=plan, **account)
    assert ledger.history("clinic")["epsilon"].tolist() == [4.0]
    fewer = made_tables(2_000)
    with pytest.raises(dpf.errors.PlanError, match=r"made for 3,000 rows and the table has 2,000.*plan.replan\(2000\)"):
        dpf.sanitize(fewer, plan=plan)
    assert dpf.sanitize(fewer, plan=plan.replan(2_000)).verify().ok
    with pytest.raises(dpf.errors.PlanError, match=r"this is a plan of several tables; dpf\.LinkedPlan"):
        dpf.Plan.read(tmp_path / "plan.json")


def test_inferred_spaces_of_a_plan_are_paid_once(tables, tmp_path):
    """The plan's inference and two releases under the plan cost less than two releases that infer."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("clinic", epsilon=30, delta=1e-4, unit="person:patient_id")
    account = {"ledger": ledger, "dataset": "clinic"}
    tables = {**tables, "visits": tables["visits"].astype({"cost": int})}
    spaces = {
        "patients": {name: SPACES["patients"][name] for name in ("sex", "ward")},
        "visits": {"kind": ["urgent", "routine"]},
    }
    plan = dpf.plan(tables, epsilon=4, keys=KEYS, contributions=2, spaces=spaces, **account)
    assert len({one.inferred.receipt for one in plan.plans.values()}) == 1
    plan = dpf.LinkedPlan.from_json(plan.to_json())
    for _ in range(2):
        assert dpf.sanitize(tables, plan=plan, **account).verify().ok
    history = ledger.history("clinic")
    assert history["what"].tolist() == ["inference", "release", "release"]
    mu = history["mu"].to_numpy(dtype=float)
    whole = math.sqrt(sum(one.step.mu**2 for one in plan.plans.values()))
    assert math.hypot(mu[0], mu[1]) == pytest.approx(whole, rel=1e-6)
    assert 0.1 * whole < mu[0] < 0.7 * whole
    # Another dataset has not paid for the inference.
    ledger.create("other", epsilon=30, delta=1e-4, unit="person:patient_id")
    dpf.sanitize(tables, plan=plan, ledger=ledger, dataset="other")
    assert ledger.history("other")["mu"].tolist() == [pytest.approx(whole, rel=1e-6)]


def forged(plan, change):
    """Return the JSON of a plan of several tables after a change to its data."""
    data = json.loads(plan.to_json())
    change(data)
    return json.dumps(data)


FORGERIES = {
    "promise": (lambda data: data.update(epsilon=1.0), "the tables cost more together than their promise"),
    "rows": (
        lambda data: data["tables"]["visits"]["plan"].update(n=3_000),
        "visits: its plan is not for 3 rows of ea|need delta|needs",
    ),
    "sample": (
        lambda data: data["tables"]["patients"]["plan"].update(sample=500),
        "patients: its plan is not for 1 rows of each",
    ),
    "person": (lambda data: data["tables"]["visits"]["plan"].pop("privacy_id"), "does not protect all rows"),
    "context": (lambda data: data["tables"]["visits"].update(context=["cost"]), "columns that the plan does not have"),
    "required": (lambda data: data["tables"]["visits"].update(required=["x"]), "columns that the plan does not have"),
    "parent": (lambda data: data.update(parent="wards"), "are named by text|tables released together"),
    "a table": (lambda data: data["tables"].pop("visits"), "LinkedPlan"),
    "field": (lambda data: data.update(seed=1), "a plan of several tables has the fields"),
    "schema": (lambda data: data.update(schema=9), "a schema that this version, which reads up to 1"),
    "a plan": (lambda data: data.pop("tables"), "this is no plan of several tables"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_plans_that_keep_no_promise_are_refused(name, made):
    change, says = FORGERIES[name]
    text = forged(made, change)
    if name == "a table":  # then only the parents' table is left, which is within the promise
        assert set(dpf.LinkedPlan.from_json(text).plans) == {"patients"}
        return
    with pytest.raises(dpf.errors.PlanError, match=says):
        dpf.LinkedPlan.from_json(text)


def test_tables_that_do_not_fit_a_plan_are_refused(tables, made):
    plan = made
    with pytest.raises(dpf.errors.ParameterError, match="contributions is already decided by the plan"):
        dpf.sanitize(tables, plan=plan, contributions=2)
    with pytest.raises(dpf.errors.ParameterError, match="the plan is of tables patients, visits; pass a dictionary"):
        dpf.sanitize({"patients": tables["patients"], "stays": tables["visits"]}, plan=plan)
    with pytest.raises(dpf.errors.ParameterError, match="the plan is of tables patients, visits; pass a dictionary"):
        dpf.sanitize(tables["patients"], plan=plan)
    with pytest.raises(dpf.errors.ParameterError, match="target, max_epsilon and id are for one table"):
        dpf.plan(tables, keys=KEYS, target={"sex": 0.1})
    with pytest.raises(dpf.errors.ParameterError, match="keys, orphans and max_count are for several tables"):
        dpf.plan(tables["patients"], epsilon=1, keys=KEYS)
    visits = tables["visits"].copy()
    visits.loc[5, "kind"] = None
    with pytest.raises(dpf.errors.ColumnError, match=r"column 'kind' at row position 5: .table 'visits'. is null"):
        dpf.sanitize({**tables, "visits": visits}, plan=plan)
