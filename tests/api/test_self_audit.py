"""An audit of whole releases catches planted faults, bounds the loss from below, and says when it cannot judge."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import KEY
from examples import plan_of

import dpframe as dpf
from dpframe.api.audits import release_in_memory
from dpframe.cli.main import main
from dpframe.proofs.probes import Probes, table_entries
from dpframe.proofs.self_audit import audit_releases, planted_faults

SPACES: dict[str, Any] = {
    "age": dpf.Nullable(dpf.Integer(18, 95)),
    "sex": ["F", "M"],
    "income": dpf.Real(0, 250_000),
    "hobbies": dpf.Subset(dpf.datasets.HOBBIES, 3),
}
PEOPLE = dpf.datasets.make_census(300, columns=list(SPACES)).assign(income=1.0)
TWO = {name: SPACES[name] for name in ("age", "sex")}
KEPT_ORDER = dpf.plan(PEOPLE[[*TWO]], 2.0, 0.0, spaces=TWO, shuffle=False)


def census_plan(**options: Any) -> dpf.Plan:
    return dpf.plan(PEOPLE, 8.0, 1e-3, spaces=SPACES, **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "one row": {"measure": ["auto", ("hobbies", "hobbies"), ("age", "income")], "groups": [("sex", "age")]},
    "two rows": {
        "contributions": 2,
        "sample": 200,
        "weights": "income",
        "rules": [dpf.Implies({"age": (18, 20)}, {"sex": ["F"]})],
        "measure": [("age", "sex"), ("hobbies",)],
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_audit_counts_rows_as_the_release_does(name):
    """What is left of all tables, less the audit's own counts, is noise of the stated variance."""
    plan = census_plan(**OPTIONS[name])
    probes = Probes.of(plan, plan.units, np.random.default_rng(2))
    present = probes.present(np.arange(probes.count) % 2 == 0)
    released = release_in_memory(probes.table.take(present), plan, KEY)
    info = dpf.ReleaseInfo.from_json(released.schema.metadata[b"dpframe"].decode())
    codes = {column: values[present] for column, values in probes.codes.items()}
    squares = []
    for table in info.tables:
        entries = table_entries(table, codes, plan.counted_spaces)
        exact = np.zeros(table.counts.size)
        np.add.at(exact, entries.places, entries.values)
        squares.append((table.counts.ravel() - exact) ** 2 / table.measure.sigma2)
        assert squares[-1].mean() < 1 + 8 / squares[-1].size ** 0.5, table.measure
    assert 0.9 < np.concatenate(squares).mean() < 1.1
    if name == "one row":
        assert {"one_way", "joint", "sum", "items", "sizes", "item_pairs"} <= {m.kind for m in plan.measures}


def test_a_planted_fault_is_caught_and_the_plan_is_not_refuted():
    found = dpf.audit(KEPT_ORDER, runs=240, random_state=0)
    assert found.can_judge
    assert not found.refuted
    assert found.ok
    assert 0 < found.bounds.epsilon < KEPT_ORDER.epsilon
    assert 0.3 < found.bounds.mus["all"] / found.claim.steps["all"].mu < 1
    assert "caught by" in str(found)
    assert str(found).endswith("nothing found against the claim; bounds hold with confidence 0.99")
    assert found.faults["rows"].excess(found.claim)
    assert json.loads(found.to_json())["ok"] is True


@pytest.mark.parametrize(("part", "runs"), [pytest.param("tables", 400, marks=pytest.mark.slow), ("rows", 120)])
def test_a_release_with_less_noise_than_claimed_is_refuted(part, runs):
    """The library itself releases with half of the noise: what an audit is for."""
    plan = KEPT_ORDER if part == "rows" else dpf.plan(PEOPLE[[*TWO]], 8.0, 1e-3, spaces=TWO)
    faulty = planted_faults(plan)[part]

    def release(table, released_plan, key):
        # Whoever asks for the plan gets its fault, and whoever plants a fault gets that.
        return release_in_memory(table, faulty if released_plan == plan else released_plan, key)

    found = audit_releases(plan, release, None, runs, 0.99, random_state=3)
    assert found.refuted
    assert not found.ok
    assert "REFUTED: " in str(found)


def test_an_audit_that_does_not_see_a_fault_cannot_judge():
    def release(table, plan, key):
        # Rows that leave in spite of the plan: the audit is blind to its faults.
        return release_in_memory(table, KEPT_ORDER, key)

    found = audit_releases(KEPT_ORDER, release, None, 100, 0.99, random_state=0)
    assert not found.can_judge
    assert not found.ok
    assert str(found).splitlines()[-1].startswith("CANNOT JUDGE: a planted fault was not seen")


def test_what_cannot_be_audited_is_refused():
    persons = dpf.plan(PEOPLE[[*TWO]].assign(id=range(300)), 2.0, spaces=TWO, privacy_id="id", measure=None)
    vectors = plan_of({"v": dpf.Vector(2, 1.0)}, 1.0, n=100)
    for plan, options, words in [
        (persons, {}, "privacy_id"),
        (vectors, {}, "column 'v' holds vectors, which are not audited"),
        (KEPT_ORDER, {"minutes": 0}, "minutes must be a number above 0"),
        (KEPT_ORDER, {"minutes": 1, "runs": 100}, r"audit\(plan, minutes=5\)"),
        (KEPT_ORDER, {"runs": 10}, "runs must be a whole number of releases"),
        (KEPT_ORDER, {"confidence": 1}, r"confidence must lie in \(0, 1\)"),
        (KEPT_ORDER, {"minutes": 1e-6}, "minutes are too few"),
        (replace(KEPT_ORDER, n=4), {}, "too few rows"),
    ]:
        with pytest.raises(dpf.ParameterError, match=words):
            dpf.audit(plan, **options)
    with pytest.raises(dpf.ParameterError, match="minutes is for a plan by itself"):
        dpf.audit(PEOPLE, KEPT_ORDER, minutes=1)
    with pytest.raises(dpf.ParameterError, match="plan is audited by itself"):
        dpf.audit(KEPT_ORDER, KEPT_ORDER)


def test_the_command_says_what_the_function_finds(tmp_path, capsys):
    (tmp_path / "plan.json").write_text(KEPT_ORDER.to_json())
    command = ["audit", "--plan", str(tmp_path / "plan.json"), "--minutes", "0.1", "--random-state", "1"]
    with pytest.raises(SystemExit) as ended:
        main(command)
    out = capsys.readouterr().out
    assert out.startswith("300 made-up rows with 37 probes; rows and tables claim epsilon=2, delta=0: mu=")
    assert ended.value.code == (4 if "CANNOT JUDGE" in out else 0)
    with pytest.raises(SystemExit) as ended:
        main([*command, "--replay", str(tmp_path / "x.parquet")])
    assert ended.value.code == 2
    assert "minutes is for made-up tables; leave it out with replay" in capsys.readouterr().err
