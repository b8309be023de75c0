"""Spaces from names: accepted together by one noisy count, stated on every page, proved, for every kind of table."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf

N = 2_000
KEY = bytes(range(1, 33))


def patients(n: int = N) -> pd.DataFrame:
    i = np.arange(n)
    return pd.DataFrame({
        "Age": 18 + i % 70, "sex": np.where(i % 2, "Male", "Female"), "smoker": np.where(i % 3, "no", "yes"),
        "pressure": 90.0 + i % 77,
    })  # fmt: skip


@pytest.fixture(scope="module")
def safe() -> Any:
    return dpf.sanitize(patients(), epsilon=1.0, use_names=True, key=KEY)


def plan_of(source: Any, epsilon: float = 1.0, **options: Any) -> dpf.Plan:
    """Return the plan of a release under the fixed key."""
    released = dpf.sanitize(source, epsilon=epsilon, key=KEY, **{"use_names": True, **options})
    return released.dp.release.plan


def test_one_count_accepts_all_names_and_every_page_says_so(safe):
    plan = safe.dp.release.plan
    assert plan.spaces["Age"] == dpf.Integer(0, 120)
    assert plan.spaces["sex"].inner_space == dpf.Categorical(["Female", "Male"], other="other")
    assert plan.spaces["smoker"].inner_space == dpf.Categorical(["no", "yes"], other="other")
    assert [check.kind for check in plan.inferred.checks] == ["alternatives", "alternatives", "fit"]
    share = plan.fitting_shares["Age"]
    assert set(plan.fitting_shares) == {"Age", "sex", "smoker"}
    assert 0.8 < share < 1
    line = f"at least {int(100 * share)} % of the rows fit those of Age, sex, smoker"
    assert line in str(plan)
    assert line in str(plan.explain())
    assert line in str(safe.dp.report())
    expectation = str(dpf.expect(patients(), epsilon=1.0, use_names=True))
    assert "accept the spaces that names propose: 'Age' (0 to 120), 'sex'" in expectation


def test_the_checks_are_proved_and_no_other_count_passes_for_them(safe):
    plan = safe.dp.release.plan
    assert dpf.Plan.from_json(plan.to_json()) == plan
    certificate = plan.verify()
    assert certificate.ok, certificate.failures
    assert any("all checks of spaces from names" in check for check in certificate.checks)
    assert any("other outcomes of the checks" in line for line in certificate.attested)

    def failures(**changes: Any) -> str:
        data = json.loads(plan.to_json())
        data["inferred"]["checks"][-1].update(changes)
        return " ".join(dpf.Plan.from_json(json.dumps(data)).verify().failures)

    assert "checks of spaces from names" in failures(variance=1.0)
    assert "does not say what was asked" in failures(counts=[0, 0])
    assert "does not name" in failures(columns=["Age", "sex", "smoker", "stray"])
    for changes in ({"counts": [0.5]}, {"changes": 9}, {"kind": "guess"}, {"variance": 0.0}, {"columns": []}):
        with pytest.raises(dpf.errors.PlanError, match="check of names"):
            failures(**changes)


def test_without_names_columns_are_inferred_as_before():
    plan = plan_of(patients(), use_names=False)
    assert plan.inferred.checks == ()
    assert plan.fitting_shares == {}
    assert "checks" not in json.loads(plan.to_json())["inferred"]


def test_a_name_that_does_not_fit_is_inferred_and_the_others_are_still_accepted():
    frame = patients(20_000).assign(age=lambda table: 5_000 + table["Age"]).drop(columns="Age")
    plan = plan_of(frame, 4.0)
    assert set(plan.fitting_shares) == {"sex", "smoker"}
    assert plan.spaces["age"].inner_space.lower > 4_000
    assert plan.verify().ok


def test_nulls_become_a_value_of_the_columns_that_may_have_them():
    frame = patients().assign(smoker=lambda table: table["smoker"].where(table.index % 4 > 0))
    plan = plan_of(frame)
    assert set(plan.fitting_shares) == {"Age", "sex", "smoker"}
    assert plan.spaces["smoker"].has_null
    assert not plan.spaces["Age"].has_null


@pytest.mark.parametrize("kind", ["csv", "parquet", "objects"])
def test_files_and_values_of_any_type_are_checked_alike(kind, tmp_path):
    source, target = tmp_path / f"patients.{kind}", tmp_path / f"release.{kind}"
    if kind == "objects":
        plan = plan_of(patients().astype({"Age": object, "sex": object, "smoker": "category"}))
    else:
        (patients().to_csv if kind == "csv" else patients().to_parquet)(source, index=False)
        plan = dpf.sanitize(source, target, epsilon=1.0, use_names=True, key=KEY).plan
    assert set(plan.fitting_shares) == {"Age", "sex", "smoker"}
    assert plan.spaces["Age"].inner_space == dpf.Integer(0, 120)


def test_dask_checks_names_as_one_machine_does():
    dask = pytest.importorskip("dask.dataframe")
    frame = dask.from_pandas(patients(), npartitions=3)
    released = [dpf.sanitize(one, epsilon=1.0, use_names=True, key=KEY) for one in (frame, patients())]
    pd.testing.assert_frame_equal(released[0].compute(), released[1], check_dtype=False)
