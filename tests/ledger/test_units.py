"""Whom a promise is for: an inference, a plan, a release and a dataset each say it, and none is taken for another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pages import visible

import dpframe as dpf
from dpframe import Plan, ReleaseInfo, Report
from dpframe.accounting.unit import Unit
from dpframe.errors import LedgerError, ParameterError, PlanError
from dpframe.ledger import job_keys
from dpframe.plan.build import build_plan
from dpframe.plan.explanation import person_lines
from dpframe.release.identity import table_digest
from dpframe.tables.frames import wrap

pytestmark = pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")

KEY = bytes(range(32))
SPACES: Any = {"age": (0, 120), "drug": ["a", "b", "c"]}
PROMISE = {"epsilon": 1.0, "delta": 1e-6, "measure": None}
OTHERS = 3_000


def visits(rows: int = 400) -> pd.DataFrame:
    """One row each of many patients, and so many of one patient, who alone has a drug."""
    rng = np.random.default_rng(0)
    drugs = [*rng.choice(["a", "b"], OTHERS), *["secret"] * rows]
    ids = [f"p{i}" for i in (*range(OTHERS), *[OTHERS] * rows)]
    return pd.DataFrame({"patient": ids, "drug": drugs})


def inferred(**options: Any) -> dpf.Plan:
    table, drop = visits(), () if "privacy_id" in options else ("patient",)
    return dpf.plan(table, **PROMISE, drop=drop, **options)


@pytest.fixture(scope="module")
def of_rows() -> dpf.Plan:
    return inferred()


@pytest.fixture
def ledger(tmp_path: Path) -> dpf.Ledger:
    made = dpf.Ledger(tmp_path / "ledger.sqlite")
    made.create("visits", 100.0, 1e-3)
    for unit in ("2 rows", "10 rows", "person:patient"):
        made.create(unit, 100.0, 1e-3, unit=unit)
    return made


def without_unit(plan: dpf.Plan) -> dpf.Plan:
    """Return a plan as older versions wrote it."""
    data = json.loads(plan.to_json())
    found = [data.get(name, {}) for name in ("inferred", "reused")]
    for one in [*found, *(earlier for late in found for earlier in late.get("earlier", []))]:
        one.pop("unit", None)
    return Plan.from_json(json.dumps(data))


# -------------------------------------------------------------------------------------------- spaces of another plan


def test_a_row_inference_brings_no_value_of_one_person_into_a_plan_for_persons(of_rows: dpf.Plan) -> None:
    """400 rows of one person brought a drug that nobody else has, for sure, into a plan for persons."""
    assert "secret" in of_rows["drug"].space.labels()
    match = (
        r"^spaces were inferred for a row, and the plan is for a person, by column 'patient': what only one person "
        "has may show in them; infer them with privacy_id='patient', or declare them$"
    )
    for call in (dpf.plan, dpf.sanitize):
        with pytest.raises(ParameterError, match=match):
            call(visits(), **PROMISE, spaces=of_rows, privacy_id="patient")
    with pytest.raises(ParameterError, match=r"^spaces were inferred for a row, .* up to 400 rows of a person: "):
        dpf.plan(visits(), **PROMISE, spaces=of_rows, contributions=400, drop=["patient"])
    own = inferred(privacy_id="patient")
    assert "secret" not in own["drug"].space.labels()
    assert dpf.plan(visits(), **PROMISE, spaces=own, privacy_id="patient").verify().ok


def test_it_is_refused_before_anything_is_spent(of_rows: dpf.Plan, ledger: dpf.Ledger, tmp_path: Path) -> None:
    visits().to_parquet(tmp_path / "in.parquet", index=False)
    options: Any = {"spaces": of_rows, "privacy_id": "patient", "ledger": ledger, "dataset": "person:patient"}
    with pytest.raises(ParameterError, match=r"^spaces were inferred for a row"):
        dpf.plan(tmp_path / "in.parquet", **PROMISE, **options)
    with pytest.raises(ParameterError, match=r"^spaces were inferred for a row"):
        dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", **PROMISE, **options)
    assert ledger.history().empty
    assert job_keys.pending(ledger) == []


@pytest.mark.parametrize(
    "options, unit",
    [
        ({}, "row"),
        ({"contributions": 2}, "2 rows"),
        ({"privacy_id": "patient", "contributions": 2}, "person:patient"),
    ],
)
@pytest.mark.slow
def test_an_inference_records_what_it_was_drawn_for(options: Any, unit: str) -> None:
    plan = inferred(**options)
    assert plan.inferred is not None
    assert str(plan.inferred.unit) == str(plan.unit) == unit
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest == without_unit(plan).digest, "a unit is stated, and changes no released value"
    assert plan.verify().ok
    assert plan.verify().unit == plan.unit
    assert json.loads(plan.verify().to_json())["unit"] == unit
    drop = () if "privacy_id" in options else ["patient"]
    reused = dpf.plan(visits(), **PROMISE, spaces=plan, drop=drop, **options)
    assert reused.reused is not None
    assert reused.reused.unit == plan.unit


def test_spaces_for_more_rows_serve_plans_for_fewer(ledger: dpf.Ledger) -> None:
    """What is promised of ten rows holds for two: it is entered for the dataset's two."""
    plan = inferred(contributions=10)
    options: Any = {"drop": ["patient"], "contributions": 2, "ledger": ledger, "dataset": "2 rows"}
    made = dpf.plan(visits(), **PROMISE, spaces=plan, **options)
    assert made.verify().ok
    assert ledger.history("2 rows")["what"].tolist() == ["inference"]
    assert any("for up to 10 rows of a person, with noise worth" in line for line in made.verify().attested)
    assert "Inference of another plan, for up to 10 rows of a person:" in str(made)
    with pytest.raises(ParameterError, match=r"^spaces were inferred for.*10.*a person, and.*up to 11"):
        dpf.plan(visits(), **PROMISE, spaces=plan, drop=["patient"], contributions=11)


def test_persons_are_those_of_their_column() -> None:
    plan, table = inferred(privacy_id="patient"), visits().assign(visit=range(OTHERS + 400))
    for options in ({"privacy_id": "visit", "drop": ["patient"]}, {"drop": ["patient", "visit"]}):
        with pytest.raises(ParameterError, match=r"^spaces were inferred for.*'patient', and the"):
            dpf.plan(table, **PROMISE, spaces=plan, **options)


def test_a_plan_that_says_its_spaces_were_for_less_is_none(of_rows: dpf.Plan) -> None:
    for options in ({"contributions": 2}, {"privacy_id": "patient"}):
        with pytest.raises(PlanError, match=r"^spaces were inferred for.*plan is for"):
            replace(of_rows, **options, drop=(), epsilon=100.0)
    text = of_rows.to_json().replace('"unit": "row"', '"unit": "some"')
    with pytest.raises(PlanError, match=r"^the unit of an.*unit must be"):
        Plan.from_json(text)


def test_plans_of_older_versions_are_what_they_were(of_rows: dpf.Plan) -> None:
    old = without_unit(inferred(contributions=10))
    assert old.inferred is not None
    assert old.inferred.unit is None
    assert old.verify().ok
    assert dpf.plan(visits(), **PROMISE, spaces=old, drop=["patient"], contributions=10).reused.unit == Unit(10)
    with pytest.raises(ParameterError, match=r"^spaces were inferred for up to 10 rows"):
        dpf.plan(visits(), **PROMISE, spaces=old, drop=["patient"], contributions=11)


def test_old_plans_with_spaces_of_another_say_what_is_not_known(of_rows: dpf.Plan) -> None:
    """They are read; what their spaces were inferred for is not in them, and counts as a row."""
    row = without_unit(dpf.plan(visits(), **PROMISE, spaces=of_rows, drop=["patient"]))
    assert row.verify().ok
    dpf.sanitize(visits(), plan=row)
    made = dpf.plan(visits(), **PROMISE, spaces=inferred(contributions=2), drop=["patient"], contributions=2)
    old = without_unit(made)
    assert made.verify().ok
    assert old.verify().failures == (
        "spaces were inferred for a row, and the plan is for up to 2 rows of a person: what only one person has may "
        "show in them; infer them with contributions=2, or declare them",
    )
    with pytest.raises(ParameterError, match=r"^spaces were inferred for.*to 2 rows"):
        dpf.sanitize(visits(), plan=old)


def test_verify_and_the_plan_name_the_unit() -> None:
    plan = dpf.plan(visits(), **PROMISE, spaces={"drug": ["a", "b"]}, privacy_id="patient", contributions=2)
    assert "replace-one, per person with up to 2 rows, by column 'patient'" in plan.lines()[0]
    assert str(plan.verify()).splitlines()[0].endswith("per person with up to 2 rows, by column 'patient'")


# -------------------------------------------------------------------------------------------------- sums of a dataset


def test_mixed_sums_are_refused_by_every_face(ledger: dpf.Ledger, tmp_path: Path) -> None:
    frame = pd.DataFrame({"patient": ["p", "q"] * 50, "age": np.arange(100) * 37 % 100})
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    out = tmp_path / "out.parquet"
    person: Any = {"spaces": {"age": (0, 99)}, "privacy_id": "patient"}
    rows: Any = {"spaces": {"age": (0, 99)}, "drop": ["patient"]}

    def asked(**kept: Any) -> None:
        dpf.Queries(frame, dpf.Budget(1.0), {"age": (0, 99)}, **kept).mean("age", share=1)

    calls: list[tuple[str, Any]] = [
        ("visits", lambda **kept: dpf.sanitize(frame, epsilon=1.0, delta=0.0, **person, **kept)),
        ("visits", lambda **kept: dpf.sanitize(frame, epsilon=1.0, delta=0.0, **rows, contributions=2, **kept)),
        ("visits", lambda **kept: dpf.sanitize(tmp_path / "in.parquet", out, 1.0, 0.0, **person, **kept)),
        ("visits", lambda **kept: dpf.plan(frame, 1.0, 1e-3, privacy_id="patient", **kept)),
        (
            "visits",
            lambda **kept: dpf.sanitize(frame, epsilon=1.0, delta=1e-3, contributions=2, drop=["patient"], **kept),
        ),
        ("visits", lambda **kept: asked(contributions=2, **kept)),
        ("person:patient", lambda **kept: dpf.sanitize(frame, epsilon=1.0, delta=0.0, **rows, **kept)),
        ("person:patient", lambda **kept: dpf.sanitize(frame, epsilon=1.0, delta=0.0, **rows, contributions=2, **kept)),
        ("person:patient", lambda **kept: asked(**kept)),
        ("10 rows", lambda **kept: dpf.sanitize(tmp_path / "in.parquet", out, 1.0, 0.0, **rows, **kept)),
        ("10 rows", lambda **kept: dpf.Sanitizer(1.0, 0.0, **rows, **kept).fit(frame).transform(frame)),
    ]
    for dataset, call in calls:
        with pytest.raises(ParameterError, match=r"^dataset .* adds up promises for .*, and this one is for .*"):
            call(ledger=ledger, dataset=dataset)
    assert ledger.history().empty
    assert job_keys.pending(ledger) == []
    for dataset, options in (("visits", rows), ("10 rows", rows | {"contributions": 10}), ("person:patient", person)):
        dpf.sanitize(frame, epsilon=1.0, delta=0.0, **options, ledger=ledger, dataset=dataset)
        dpf.sanitize(tmp_path / "in.parquet", out, 1.0, 0.0, **options, ledger=ledger, dataset=dataset)
    assert len(ledger.history()) == 6


# -------------------------------------------------------------------------------------------------- ids of releases


def census(rows: int = 300) -> pd.DataFrame:
    ages = np.arange(rows) % 90
    return pd.DataFrame({"age": ages, "drug": np.where(ages % 2, "a", "b")})


def released(frame: pd.DataFrame, ledger: dpf.Ledger, key: bytes | None = KEY, **options: Any) -> Any:
    given: Any = {**PROMISE, "spaces": SPACES, "dataset": "visits"} | options
    return dpf.sanitize(frame, **given, key=key, ledger=ledger)


def test_a_repeated_release_is_charged_once_and_another_table_again(ledger: dpf.Ledger) -> None:
    frame = census()
    first = released(frame, ledger)
    pd.testing.assert_frame_equal(released(frame.copy(), ledger), first)
    assert len(ledger.history()) == 1
    changed = frame.assign(age=frame["age"].where(frame.index > 0, 1))
    with pytest.raises(LedgerError, match=r"^key has drawn the.*for another table"):
        released(changed, ledger)
    assert len(ledger.history()) == 1
    released(changed, ledger, key=bytes(31) + b"1")
    released(frame, ledger, key=bytes(32))
    released(frame, ledger, epsilon=0.5)
    released(frame, ledger, nulls="impute")
    assert len(ledger.history()) == 5
    assert len(set(ledger.history()["release_id"])) == 5
    for _ in range(2):
        released(frame, ledger, key=None)
    assert len(ledger.history()) == 7


class Overtaken(dpf.Ledger):
    """A ledger that another process enters its own release in, between the look at a key and the spend."""

    def spend(self, *args: Any, **options: Any) -> Any:
        ledger = dpf.Ledger(self.path)
        if not len(ledger.history()):
            released(census().assign(age=1), ledger)
        return super().spend(*args, **options)


def test_of_two_tables_under_one_key_at_the_same_time_one_is_drawn(ledger: dpf.Ledger) -> None:
    """It was looked up and then entered, so that two processes could draw the same noise for two tables."""
    with pytest.raises(LedgerError, match=r"^key has drawn the.*for another table"):
        released(census(), Overtaken(ledger.path))
    assert len(ledger.history()) == 1


def test_a_repeated_release_whose_spaces_are_inferred_is_charged_once(ledger: dpf.Ledger) -> None:
    frame = census(3_000)
    first = released(frame, ledger, spaces=None)
    pd.testing.assert_frame_equal(released(frame, ledger, spaces=None), first)
    assert len(ledger.history()) == 1
    with pytest.raises(LedgerError, match=r"^key has drawn the.*for another table"):
        released(frame.assign(drug=frame["drug"].where(frame.index > 0, "c")), ledger, spaces=None)
    assert len(ledger.history()) == 1


def test_a_repeated_release_of_persons_is_charged_once(ledger: dpf.Ledger) -> None:
    frame = census().assign(patient=np.arange(300) // 3)
    for _ in range(2):
        released(frame, ledger, privacy_id="patient", dataset="person:patient")
    assert len(ledger.history()) == 1


def test_a_dataset_has_its_own_releases(ledger: dpf.Ledger) -> None:
    """One release is charged to each dataset that it is of."""
    ledger.create("second", 10.0, 1e-4)
    for dataset in ("visits", "second"):
        dpf.sanitize(census(), **PROMISE, spaces=SPACES, key=KEY, ledger=ledger, dataset=dataset)
    assert ledger.history()["dataset"].tolist() == ["visits", "second"]


def test_one_id_at_another_cost_is_refused(ledger: dpf.Ledger) -> None:
    ledger.spend("visits", 0.1, 1e-9, release_id="a")
    for other in ({"epsilon": 0.2, "delta": 1e-9}, {"epsilon": 0.1, "delta": 1e-8}):
        with pytest.raises(LedgerError, match=r"^release_id a is recorded.*or amount; every"):
            ledger.spend("visits", **other, release_id="a")
    assert ledger.spend("visits", 0.1, 1e-9, release_id="a").replayed


def test_a_jobs_release_is_a_mac_of_key_input_and_plan(ledger: dpf.Ledger) -> None:
    with job_keys.job(ledger, "visits", "out.parquet", b"input and plan") as job:
        job.spend(0.1, 0.0)
        assert job.release_id == job_keys.release_id(job.key, "visits", b"input and plan")
        assert ledger.find(job.release_id) is not None


def test_a_key_file_with_an_id_of_its_own_is_resumed(ledger: dpf.Ledger) -> None:
    """As older versions wrote them."""
    with pytest.raises(ZeroDivisionError), job_keys.job(ledger, "visits", "out.parquet", b"") as job:
        job.spend(0.1, 0.0)
        raise ZeroDivisionError
    (path,) = Path(f"{ledger.path}.keys").glob("*.key")
    ledger.spend("visits", 0.2, 0.0, release_id="of an older version")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"release_id": "of an older version"}))
    with job_keys.job(ledger, "visits", "out.parquet", b"") as again:
        assert again.resumed
        assert again.spend(0.2, 0.0).replayed
    assert len(ledger.history()) == 2


def test_a_key_serves_a_table_that_cannot_be_known_again_once(ledger: dpf.Ledger) -> None:
    """Of columns of several kinds there is no digest: a neighbour under the same noise would show its row."""
    frame = census().assign(note=["text", 1] * 150)
    released(frame, ledger, drop=["note"])
    for other in (frame.assign(age=frame["age"].where(frame.index > 0, 1)), frame):
        with pytest.raises(LedgerError, match=r"^key has drawn .* or an unknown one.*leave key out$"):
            released(other, ledger, drop=["note"])
    assert len(ledger.history()) == 1
    released(frame, ledger, drop=["note"], key=None)


def test_tables_of_objects_without_bytes_are_known_by_nothing() -> None:
    """Their releases have a new id each time; a key serves one of them."""
    frame = wrap(pd.DataFrame({"a": [object(), 1]}))
    assert table_digest(frame, {}, KEY) is None
    digests = [table_digest(wrap(pd.DataFrame({"a": values})), {}, KEY) for values in (["x", None], ["x", "y"], ["x"])]
    assert len(set(digests)) == 3
    assert None not in digests


# ---------------------------------------------------------------------------------------- inferences of several plans


@pytest.mark.slow
def test_every_inference_behind_a_plans_spaces_is_charged(ledger: dpf.Ledger) -> None:
    """A plan that found one column itself and took another's: of the two only its own was charged."""
    frame = census(3_000)
    first = dpf.plan(frame[["age"]], **PROMISE)
    second = dpf.plan(frame, **PROMISE, spaces=first)
    assert first.inferred is not None
    assert second.inferred is not None
    assert second.reused is not None
    for _ in range(2):
        third = dpf.plan(frame, **PROMISE, spaces=second, ledger=ledger, dataset="visits")
        fourth = dpf.plan(frame, **PROMISE, spaces=third, ledger=ledger, dataset="visits")
    for plan in (third, fourth):
        assert plan.reused is not None
        assert [one.id for one in plan.reused.each] == [second.inferred.id, first.inferred.id]
        assert plan.imputed == ("drug", "age")
        again = Plan.from_json(plan.to_json())
        assert again == plan
        assert again.digest == plan.digest == without_unit(plan).digest
    assert ledger.history()["what"].tolist() == ["inference"] * 2
    spends = ledger.history()["mu"].tolist()
    assert spends == [one.inferred.step.mu for one in (second, first) if one.inferred and one.inferred.step]
    assert sum("noise worth" in line for line in third.verify().attested) == 2


def test_the_least_unit_behind_a_plans_spaces_counts(of_rows: dpf.Plan) -> None:
    """A plan for a row that took spaces for two rows is one for a row."""
    drugs = dpf.plan(visits()[["drug"]], **PROMISE, contributions=2)
    both = dpf.plan(visits().assign(age=1), **PROMISE, spaces=drugs, drop=["patient"])
    third = dpf.plan(visits().assign(age=1), **PROMISE, spaces=both, drop=["patient"])
    assert third.reused is not None
    assert [str(one.unit) for one in third.reused.each] == ["row", "2 rows"]
    for plan in (both, third):
        with pytest.raises(ParameterError, match=r"^spaces were inferred for.*to 2 rows"):
            dpf.plan(visits().assign(age=1), **PROMISE, spaces=plan, drop=["patient"], contributions=2)
    data = json.loads(third.to_json())
    data["reused"]["earlier"][0]["earlier"] = []
    with pytest.raises(PlanError, match="must be one list that names each once"):
        Plan.from_json(json.dumps(data))


def test_a_seeded_step_repeated_over_the_same_rows_is_charged_once(ledger: dpf.Ledger) -> None:
    rows = np.random.default_rng(0).integers(0, 5, (50, 2)).astype(float)
    for seed, spends in ((1, 1), (1, 1), (2, 2)):
        step = dpf.Sanitizer(1.0, 0.0, spaces=(0, 5), ledger=ledger, dataset="visits", random_state=seed)
        with pytest.warns(dpf.SeededReleaseWarning):
            step.fit_transform(rows)
        assert len(ledger.history()) == spends


def test_a_report_names_who_is_not_protected_at_once() -> None:
    options: dict[str, Any] = {"n": 1_000, "delta": 1e-6, "measures": ()}
    made = {
        "row": build_plan({"age": (0, 9)}, epsilon=1.0, **options),
        "2 rows": build_plan({"age": (0, 9)}, epsilon=1.0, contributions=2, **options),
        "person:patient": build_plan({"age": (0, 9)}, epsilon=1.0, privacy_id="patient", **options),
    }
    pages = {unit: visible(Report(ReleaseInfo(plan, 1_000, "0" * 16)).to_html()) for unit, plan in made.items()}
    protected = "protected, but not all of them at once."
    assert f"People who own more rows than one: each of their rows is {protected}" in pages["row"]
    assert f"People who own more rows than 2: any 2 of their rows are {protected}" in pages["2 rows"]
    assert protected not in pages["person:patient"]
    owned = [list(person_lines(plan))[-1] for plan in made.values()]
    assert owned[1].startswith("A person owns 2 rows at most, which is believed;")
    assert owned[2].startswith("Of each person, by column 'patient', one row counted, however many they own;")


def test_a_table_of_categoricals_is_known_by_its_entries() -> None:
    columns: list[list[Any]] = [
        ["a", "b"],
        ["a", None],
        ["b", "a"],
        [1, "1"],
        [1, 2],
        [1.5, 2],
        [True, "a"],
        [b"a", "a"],
    ]
    columns += [[pd.Timestamp("2020"), None], [None, None]]
    frames = [wrap(pd.DataFrame({"a": pd.Categorical(values)})) for values in columns]
    digests = [table_digest(frame, {}, KEY) for frame in frames]
    assert len({*digests} - {None}) == len(columns)
    assert digests == [table_digest(frame, {}, KEY) for frame in frames]
    assert table_digest(wrap(pd.DataFrame({"a": pd.Categorical([pd.Period("2020")])})), {}, KEY) is None
