"""Spaces from names: accepted together by one noisy count, proved, and no more costly than inference claims."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from exact_laws import NOTHING, Pair, count_law

import dpframe as dpf
from dpframe.accounting.gaussian_dp import Step, step_delta
from dpframe.errors import PlanError
from dpframe.inference.cost import GaussianNoise, Histogram, spend
from dpframe.inference.fit_counts import NameCheck, step_after
from dpframe.inference.name_checks import CheckDesign
from dpframe.inference.names import propose_spaces
from dpframe.noise.gaussian import gaussian_table
from dpframe.release.info import ReleaseInfo
from dpframe.spaces.field import Field
from dpframe.totals.counts import counting

N = 2_000
KEY = bytes(range(32))
TOTAL = Step(3.0, 1e-4)


def patients(n: int = N) -> pd.DataFrame:
    i = np.arange(n)
    return pd.DataFrame({
        "Age": 18 + i % 70, "sex": np.where(i % 2, "Male", "Female"), "smoker": np.where(i % 3, "no", "yes"),
        "pressure": 90.0 + i % 77,
    })  # fmt: skip


@pytest.fixture(scope="module")
def safe() -> Any:
    return dpf.sanitize(patients(), epsilon=1.0, key=KEY)


def plan_of(source: Any, epsilon: float = 1.0, **options: Any) -> dpf.Plan:
    """Return the plan of a release under the fixed key."""
    released = dpf.sanitize(source, epsilon=epsilon, key=KEY, **options)
    return ReleaseInfo.from_json(released.attrs["dpframe"]).plan


def test_one_count_accepts_all_names_and_every_page_says_so(safe):
    plan = ReleaseInfo.from_json(safe.attrs["dpframe"]).plan
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
    expectation = str(dpf.expect(patients(), epsilon=1.0))
    assert "accept the spaces that names propose: 'Age' (0 to 120), 'sex'" in expectation


def test_the_checks_are_proved_and_no_other_count_passes_for_them(safe):
    plan = ReleaseInfo.from_json(safe.attrs["dpframe"]).plan
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
        with pytest.raises(PlanError, match="check of names"):
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
        plan = dpf.sanitize(source, target, epsilon=1.0, key=KEY).plan
    assert set(plan.fitting_shares) == {"Age", "sex", "smoker"}
    assert plan.spaces["Age"].inner_space == dpf.Integer(0, 120)


def test_dask_checks_names_as_one_machine_does():
    dask = pytest.importorskip("dask.dataframe")
    frame = dask.from_pandas(patients(), npartitions=3)
    released = [dpf.sanitize(one, epsilon=1.0, key=KEY) for one in (frame, patients())]
    pd.testing.assert_frame_equal(released[0].compute(), released[1], check_like=True)


@pytest.mark.parametrize(
    ("name", "type_", "first"),
    [
        ("age", pa.int64(), dpf.Integer(0, 120)),
        ("ageAtEntry", pa.float64(), dpf.Real(0.0, 120.0, 120)),
        ("Patient age", pa.float32(), dpf.Real(0.0, 120.0, 120)),
        ("birth_year", pa.int16(), dpf.Integer(1900, 2050)),
        ("month", pa.int32(), dpf.Integer(1, 12)),
        ("gender", pa.string(), dpf.Categorical(["female", "male"], other="other")),
        ("is_member", pa.large_string(), dpf.Categorical(["no", "yes"], other="other")),
        ("rating", pa.int64(), dpf.Integer(1, 5)),
    ],
)
def test_a_name_and_a_type_propose_a_space(name, type_, first):
    (proposal,) = propose_spaces([Field(name, type_, False)])
    assert proposal.spaces[0] == first


@pytest.mark.parametrize(
    ("name", "type_"),
    [("wage", pa.int64()), ("x", pa.string()), ("age", pa.string()), ("age", pa.int8()), ("member_no", pa.int64())],
)
def test_other_names_and_types_propose_none(name, type_):
    assert propose_spaces([Field(name, type_, False)]) == ()


def test_every_pattern_proposes_spaces_whose_overlaps_are_counted():
    names = ("age", "sex", "month", "day", "weekday", "quarter", "treatment", "smoker", "class", "country", "region")
    for type_ in (pa.int64(), pa.float64(), pa.string(), pa.null()):
        for proposal in propose_spaces([Field(name, type_, True) for name in names]):
            labels = [set(space.labels()) for space in proposal.spaces if space.is_listed]
            grids = [set(range(int(one.lower), int(one.upper) + 1)) for one in proposal.spaces if not one.is_listed]
            values = [value for one in (*labels, *grids) for value in one - {"other"}]
            assert proposal.most_fits >= max(map(values.count, values)), proposal.name


FIELDS = [Field("age", pa.int64(), False), Field("smoker", pa.string(), True), Field("x", pa.int64(), False)]
TABLES = [
    {"age": pa.array([30] * 5), "smoker": pa.array(["yes"] * 4 + [last])} for last in ("yes", "Y", None)
]  # fmt: skip


DESIGN = CheckDesign(propose_spaces(FIELDS), 1.0, 2.0, 1)
"""Checks with less noise than five rows would get, so that outcomes differ; halves follow the joint count."""


def whole_law(made: CheckDesign, tables: Any, reach: int, charged: bool = True) -> Pair:
    """Return the law of all checks of two tables, and of a later count that takes all of the step that is left."""

    class NextCheck(Exception):
        pass

    def outcomes(noisy_counts: tuple[Any, ...]) -> Iterator[Pair]:
        requested: list[Any] = []

        def drawn(table: Any) -> Any:
            rest = iter(noisy_counts)

            def noisy(counts, variance, check):
                known = next(rest, None)
                if known is None:
                    requested.append((counts, variance))
                    raise NextCheck
                return known

            return made.draw(5, counting(lambda _: iter([table])), noisy)

        try:
            checks, _ = drawn(tables[0])
        except NextCheck:
            with pytest.raises(NextCheck):
                drawn(tables[1])
            (one, variance), (other, _) = requested
            cells = np.flatnonzero(one != other)
            law = count_law(GaussianNoise(gaussian_table(variance)), one[cells], other[cells], reach)
            branches: dict[bytes, tuple[Any, list[int]]] = {}
            for place, row in enumerate(law.counts):
                counts = one.copy()
                counts[cells] = row
                # Outcomes that lead to the same next request are joined: the choice, and acceptance.
                after = decided(made, [*noisy_counts, counts])
                branches.setdefault(after, (counts, []))[1].append(place)
            for counts, places in branches.values():
                seen = Pair(law.one[places], law.other[places])
                for part in outcomes((*noisy_counts, counts)):
                    yield part.times(seen)
            return
        left = step_after(TOTAL, checks, 1) if charged else TOTAL
        noise = spend(left, [Histogram("intervals", 1, 1.0)], 5).noises[0]
        assert isinstance(noise, GaussianNoise)
        yield NOTHING.times(count_law(noise, np.array([1, 0]), np.array([0, 1]), 4))

    return Pair.joined(part.merged() for part in outcomes(()))


def decided(made: CheckDesign, noisy_counts: list[Any]) -> bytes:
    """Return all that further checks depend on: the chosen alternatives, and which groups are accepted."""
    parts = []
    for place, counts in enumerate(noisy_counts):
        is_choice = place == 0
        check = NameCheck("fit", ("c",), tuple(map(int, counts)), 1, made.fit_variance)
        parts.append(int(np.argmax(counts)) if is_choice else (check.accepts(5), check.has_nulls))
    return repr(parts).encode()


@pytest.mark.slow
@pytest.mark.parametrize("other", [1, 2])
def test_all_checks_and_what_follows_keep_the_claim(other):
    law = whole_law(DESIGN, (TABLES[0], TABLES[other]), 4)
    print(f"\nleft out {law.left_out:.1e}")
    for epsilon in (0.0, 1.0, 2.0, 4.0, 6.0):
        print(f"  epsilon={epsilon:3.1f}  exact {law.most(epsilon):.6f}  claimed {step_delta(TOTAL, epsilon):.6f}")
    assert law.least(0.0) > 0.1
    assert all(law.most(epsilon) <= step_delta(TOTAL, epsilon) for epsilon in (0.0, 1.0, 2.0, 4.0, 6.0))


@pytest.mark.slow
def test_checks_that_are_not_charged_are_caught():
    law = whole_law(DESIGN, (TABLES[0], TABLES[1]), 4, charged=False)
    assert law.least(2.0) > step_delta(TOTAL, 2.0)
