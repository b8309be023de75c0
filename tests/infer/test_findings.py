"""Private inference that fails says so: once, for all columns, and in every number of theirs.

On small tables a column's 95 % interval covers the truth (of text, the intervals of its values' shares do, each counted
by itself) or the call names the column and its estimates are NaN. Here one release a table, at ε = 1, of some 80
columns in all: of fixed keys, so that the test cannot fail by chance, but for changes of the noise: columns that are
neither are fewer than 8 %. ``DPFRAME_RELEASES=40 pytest -n 0 tests/infer/test_findings.py -s`` is the full run, also at
0.3 and 4: each column in at least 90 % of its releases, less three deviations of a share whose mean is 95 % (error
probability below 1e-3 per column).
"""

import json
import math
import os
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import datasets as bundled

import dpframe as dpf
from dpframe import Budget, Integer, Nullable, Plan, Real
from dpframe.inference.findings import unidentified_columns
from dpframe.inference.inferred import Inferred, Measured
from dpframe.inference.number_counts import number_counts
from dpframe.plan.build import build_plan

RELEASES = int(os.environ.get("DPFRAME_RELEASES", "1"))
COLUMNS = ["age", "sex", "education", "region", "income"]


def small_tables():
    for load in (bundled.load_diabetes, bundled.load_wine, bundled.load_breast_cancer, bundled.load_iris):
        yield load.__name__[5:], load(as_frame=True).frame
    for n in (500, 2_000, 5_000):
        yield f"census {n}", dpf.datasets.make_census(n, columns=COLUMNS)


def quietly(call, *args, **options):
    """Return what a call returns, and the texts of its `InferenceWarning`s."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call(*args, **options)
    return found, [str(w.message) for w in caught if w.category is dpf.InferenceWarning]


def outcomes(frame, epsilon, key):
    """Yield (column, the part of its intervals that cover, 1 where the call warned of NaN) for one release."""
    safe, said = quietly(dpf.sanitize, frame, epsilon=epsilon, key=key)
    assert len(said) <= 1
    told = said[0] if said else ""
    for column in frame:
        if pd.api.types.is_numeric_dtype(frame[column]):
            mean, truth = safe.dp.mean(column), frame[column].mean()
            unknown, covers = math.isnan(mean["estimate"]), mean["lower"] <= truth <= mean["upper"]
        else:
            shares = safe.dp.value_counts(column, normalize=True, sort=False)
            truths = frame[column].value_counts(normalize=True)
            known = [(row, truths[value]) for value, row in shares.iterrows() if value in truths.index]
            unknown = bool(shares["estimate"].isna().all())
            covers = np.mean([row["lower"] <= truth <= row["upper"] for row, truth in known]) if known else 0.0
        assert unknown == (f"'{column}'" in told)
        yield column, 1.0 if unknown else float(covers)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0] if RELEASES == 1 else [0.3, 1.0, 4.0])
def test_small_tables_are_covered_or_warned_of(epsilon):
    right = defaultdict(list)
    for name, frame in small_tables():
        for release in range(RELEASES):
            for column, fine in outcomes(frame, epsilon, release.to_bytes(32)):
                right[name, column].append(fine)
    rates = {where: np.mean(found) for where, found in right.items()}
    print(f"epsilon={epsilon}: {1 - np.mean(list(rates.values())):.3f} silently wrong, worst", min(rates.values()))
    assert np.mean(list(rates.values())) >= 0.92
    if RELEASES >= 40:
        assert min(rates.values()) >= 0.9 - 3 * math.sqrt(0.95 * 0.05 / RELEASES)


@pytest.fixture(scope="module")
def lost():
    """A release of 60 rows, of which inference finds next to nothing."""
    frame = dpf.datasets.make_census(60, columns=COLUMNS)
    safe, said = quietly(dpf.sanitize, frame, epsilon=1.0, key=bytes(32))
    return safe, said


@pytest.mark.slow
def test_one_warning_names_every_column_with_what_to_declare(lost):
    safe, said = lost
    assert len(said) == 1
    assert all(f"'{one.column}': {one.placeholder}" in said[0] for one in safe.dp.release.plan.not_found)
    assert "spaces={'age': (LOWER, UPPER)}" in said[0]
    assert "spaces={'region': [CATEGORY, …]}" in said[0]
    assert all(line.startswith("  ") for line in said[0].splitlines()[1:])


def test_plan_and_reports_say_not_found(lost):
    plan = lost[0].dp.release.plan
    assert {"age", "income", "region"} <= {one.column for one in plan.not_found}
    row = plan.summary().loc["region"]
    assert row["unit"] == "not found"
    assert math.isnan(row["expected_error"])
    assert "NOT FOUND" in str(plan)
    html = lost[0].dp.report().to_html()
    assert "Not found: no value cleared the threshold." in html
    assert Plan.from_json(plan.to_json()).not_found == plan.not_found


@pytest.mark.parametrize(("steps", "outside"), [(1, 0.2), (65_536, 0.0)])
def test_nothing_lies_between_two_values(steps, outside):
    """Rows there are not released as they are; between bounds of many values they are."""
    edges = (-1e-9, 1e-9, 0.5, 1.0, 1.0 + 2**-52, 2.0)
    counts = Measured("x", "intervals", edges, (0, 500, 200, 0, 300, 0, 0), 100.0)
    share, error = number_counts((counts,), Real(0.0, 1.0, steps), 1_000).share_outside
    assert share == pytest.approx(outside, abs=1e-9)
    assert 0 < error < 0.03


def test_plan_report_and_warning_say_what_is_about_to_be_found():
    """With the counts of a column within half as much noise again of the limit; without, nothing is said."""
    frame = pd.DataFrame({"x": np.arange(600) % 4 + 0.5})
    for count, noise, near in ((150, 150.0, True), (30, 200.0, False)):
        counts = Measured("x", "intervals", (0.0, 4.0, 8.0), (0, 4 * count, 0, 0), noise**2)
        inferred = Inferred(Budget(1.0, 1e-9), ("x",), (counts,))
        plan = build_plan({"x": (0.0, 4.0)}, epsilon=3.0, n=600, inferred=inferred)
        (missing,) = plan.not_found
        assert (missing.times is not None) == near
        safe, said = quietly(dpf.sanitize, frame, plan=plan, key=bytes(32))
        assert said
        assert any(", or epsilon=" in text for text in said) == near
        for text in (str(plan), safe.dp.report().to_html()):
            assert ("would be found at about epsilon=" in text) == near


QUESTIONS = {
    "mean": lambda e, **o: e.mean("age", **o),
    "group means": lambda e, **o: e.mean("age", by="sex", **o),
    "sum": lambda e, **o: e.sum("age", **o),
    "var": lambda e, **o: e.var("age", **o),
    "std": lambda e, **o: e.std("age", **o),
    "value_counts": lambda e, **o: e.value_counts("region", **o),
    "crosstab": lambda e, **o: e.crosstab("sex", "region", **o),
    "joint": lambda e, **o: e.joint(["sex", "region"], **o),
    "support": lambda e, **o: e.support("region", **o),
    "histogram": lambda e, **o: e.histogram("age", 1, **o),
    "quantile": lambda e, **o: e.quantile("age", [0.25, 0.5], **o),
    "cov": lambda e, **o: e.cov(["age", "income"], **o),
}


@pytest.mark.walk(3)
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.slow
def test_estimates_are_unknown_unless_clipped(name, lost):
    ask, safe = QUESTIONS[name], lost[0]
    for target in ("table", "population"):
        found = ask(safe.dp, target=target)
        assert np.isnan(found.to_numpy(dtype=float)).all()
        assert all(why.startswith("not found: ") for why in found.attrs["not_found"].values())
    clipped = ask(safe.dp, clipped=True)
    assert clipped.shape == found.shape
    assert np.isfinite(clipped.to_numpy(dtype=float)).any()
    assert clipped.attrs["not_found"] == found.attrs["not_found"]
    pd.testing.assert_frame_equal(pd.DataFrame(ask(dpf.Estimates(safe, clipped=True))), pd.DataFrame(clipped))


def test_clipped_must_be_a_truth_value(lost):
    with pytest.raises(dpf.ParameterError, match="clipped must be True or False"):
        dpf.Estimates(lost[0], clipped="yes")


@pytest.mark.slow
def test_other_columns_keep_their_estimates():
    frame = dpf.datasets.make_census(100, columns=["age", "income"])
    safe, said = quietly(dpf.sanitize, frame, epsilon=0.3, spaces={"age": (18, 95)}, key=bytes(32))
    assert "'income'" in said[0]
    assert "'age'" not in said[0]
    assert np.isfinite(safe.dp.mean("age")["estimate"])
    lower = safe.dp.corr()["lower"].loc["age"]
    assert np.isfinite(lower["age"])
    assert math.isnan(lower["income"])


@pytest.mark.slow
def test_every_face_warns_once(tmp_path):
    frame = dpf.datasets.make_census(500, columns=["age", "region"])
    plan, said = quietly(frame.dp.plan, 1.0)
    assert len(said) == 1
    assert len(quietly(dpf.sanitize, frame, plan=plan)[1]) == 1
    source = tmp_path / "in.parquet"
    frame.to_parquet(source)
    assert len(quietly(dpf.sanitize, source, tmp_path / "out.parquet", epsilon=1.0)[1]) == 1
    assert len(quietly(dpf.Sanitizer(epsilon=1.0, infer="private").fit, frame)[1]) == 1


@pytest.mark.slow
def test_large_tables_are_found_without_a_word():
    frame = dpf.datasets.make_census(50_000, columns=["age", "sex", "income"])
    safe, said = quietly(dpf.sanitize, frame, epsilon=2.0, key=bytes(32))
    assert not said
    assert safe.dp.release.plan.not_found == ()


def made(counts, space, n, edges=(0, 10, 20), variance=1.0, unit=None, missing=None):
    measured = Measured("x", "intervals", edges, counts, variance, missing, unit)
    inferred = Inferred(Budget(0.1, 1e-9), ("x",), (measured,))
    return measured, build_plan({"x": space}, epsilon=1.0, n=n, inferred=inferred)


def test_rows_beyond_a_bound_count():
    measured, plan = made((0, 500, 500, 0), (0, 9), 1_000)
    share, error = number_counts((measured,), plan["x"].space, 1_000).share_outside
    # The four counts are known to add up to n, which takes a quarter of the variance of a sum of two away from it.
    assert (round(share, 6), round(error * 1_000, 6)) == (0.5, round(math.sqrt(3 - 9 / 4), 6))
    (missing,) = plan.not_found
    assert missing.why == "more than a fifth of the rows lies beyond its bounds"
    assert not made((0, 500, 500, 0), (0, 19), 1_000)[1].not_found


def test_noise_counts():
    """The very same counts are enough at one variance, and not at another."""
    assert not made((0, 500, 500, 0), (0, 19), 1_000, variance=100.0)[1].not_found
    (missing,) = made((0, 500, 500, 0), (0, 19), 1_000, variance=160_000.0)[1].not_found
    assert missing.why == "its bounds rest on counts within their noise"


@pytest.mark.parametrize(("rows", "found"), [(1_000, True), (600, False)])
def test_rows_within_bounds_must_exceed_what_noise_shows_among_all_cells(rows, found):
    """Noise of 150 in the least favourable of three cells: 2.9 standard errors have a chance of .005 in all of them."""
    edges, space = (40, 50), Integer(40, 49)
    missing = made((0, rows, 0), space, rows, edges=edges, variance=81_000.0)[1].not_found
    assert ("counts within their noise" not in "".join(one.why for one in missing)) == found


HIDDEN = "one value has most of the rows, and where the others lie is hidden by the noise"


@pytest.mark.parametrize(
    ("spike", "beside", "why"),
    [
        (1_700, 0, HIDDEN),  # 300 rows are somewhere else
        (1_700, 280, None),  # and here they are, between the bounds
        (1_990, 0, None),  # none are known of, and they are few
    ],
)
def test_rows_that_a_spike_leaves_are_looked_for_between_the_bounds(spike, beside, why):
    """What 400 cells outside hold in sum is known within 280 rows, what a spike leaves within 20."""
    edges, counts = (*range(-200, 2), *range(10, 210)), [0] * 403
    counts[edges.index(1)], counts[edges.index(10)] = spike, beside
    plan = made(tuple(counts), (0, 9), 2_000, variance=400.0, edges=edges)[1]
    assert [missing.why for missing in plan.not_found] == ([] if why is None else [why])


@pytest.mark.parametrize(
    ("counts", "whole", "miss_chance", "lost"),
    [
        ([22] * 6, True, (0, 0.01), False),  # 132 ± 49 of the 120 ± 20 that the spike leaves
        ([2] * 6, True, (0.01, 0.03), False),  # 12 ± 49, but nowhere else are any
        ([-8] * 6, False, (0.3, 0.5), True),  # floats may be smaller
        ([-40, -40, 31, 31, 31, 31], False, (0.01, 0.03), False),  # 124 ± 40 in sizes from 2 on
    ],
)
def test_rows_that_a_spike_leaves_are_placed_by_all_counts_together(counts, whole, miss_chance, lost):
    """Of 2,000 rows 1,880 are 0, and the noise of each of six cells within the bounds is 20."""
    edges = (0, 1, 2, 4, 8, 16, 32, 64) if whole else (-0.5, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    space = Integer(0, 63) if whole else Real(0.0, 32.0)
    further = () if whole else tuple(2.0**power for power in range(6, 30))
    counts = (0, 1_880, *counts, *(0 for _ in further), 0)
    measured, plan = made(counts, space, 2_000, variance=400.0, edges=edges + further)
    assert [missing.why for missing in plan.not_found] == [HIDDEN] * lost
    assert miss_chance[0] <= number_counts((measured,), space, 2_000).miss_chance <= miss_chance[1]


@pytest.mark.parametrize(
    ("tiny", "bound", "why"),
    [
        ((190, 200), 2.0**-32, None),  # 390 ± 71 are there, however tiny
        ((-20, 30), 2.0**-8, "more than a fifth of the rows lies beyond its bounds"),  # bounds that hold none
    ],
)
def test_what_half_of_the_rows_leave_must_show(tiny, bound, why):
    """Of 706 rows 386 ± 50 are 0."""
    edges = (-(2.0**-48), 2.0**-48, *(2.0**power for power in (-40, -32, -24, -16, -8, 0, 8, 16, 24, 32)))
    counts = (0, 386, *tiny, -17, 30, -40, 20, 55, 60, -10, 15, 0)
    plan = made(counts, Real(0.0, bound), 706, variance=2_500.0, edges=edges)[1]
    assert [missing.why for missing in plan.not_found] == ([] if why is None else [why])


@pytest.mark.parametrize(
    ("zeros", "ones", "beyond", "variance", "lost"),
    [
        (1_900, 100, 0, 400.0, False),
        (1_900, 0, 0, 400.0, True),  # no cell has the hundred, and nothing speaks for 1
        (1_900, -10, 60, 400.0, True),  # and here they are, beyond 1
        (20, 1_800, 0, 3_600.0, False),
        (1_950, 40, 0, 400.0, False),
    ],
)
def test_two_values_have_all_rows_unless_the_counts_show_others(zeros, ones, beyond, variance, lost):
    """Else a column of zeros and a few large numbers passes for truth values."""
    edges, counts = (0, 1, 2, 4, 8, 16), (0, zeros, ones, 0, beyond, 0, 0)
    plan = made(counts, (0, 1), 2_000, variance=variance, edges=edges)[1]
    assert [missing.why for missing in plan.not_found] == [HIDDEN] * lost


def test_rows_above_1_raise_the_chance_of_values_other_than_0_and_1():
    """Most rows beside zeros are ones: few counts of 2 and 3 hint at a column of counts, which the mean has to say."""
    counts = {"two values": (0, 1_900, 100, 0, 0, 0, 0), "a count": (0, 1_900, 60, 40, 0, 0, 0)}
    chances = {}
    for name, rows in counts.items():
        measured, plan = made(rows, (0, 1), 2_000, variance=400.0, edges=(0, 1, 2, 4, 8, 16))
        chances[name] = number_counts((measured,), plan["x"].space, 2_000).others_chance
    assert chances["two values"] < 0.05
    assert chances["a count"] > 0.1


NOISY = "its mean would have more noise than half of its standard deviation"


def test_columns_whose_means_would_drown_are_left_out_until_the_others_are_measured_well():
    """Noise of 0.19 widths, 0.58 standard deviations, where all 20 are measured, is half of one where 14 are."""
    edges, even, nothing = (0, 2, 4, 6, 8), (0, *[250] * 4, 0), (1_000, *[0] * 5)

    def lost(counts):
        own = tuple(Measured(f"x{i}", "intervals", edges, one, 36_100.0) for i, one in enumerate(counts))
        inferred = Inferred(Budget(0.1, 1e-9), tuple(m.column for m in own), own)
        found = unidentified_columns(inferred, {m.column: Integer(0, 7) for m in own}, 1_000)
        return [one.why for one in found].count(NOISY), len(found)

    assert lost([even] * 20) == (6, 6)
    assert lost([even] * 14 + [nothing] * 6) == (0, 6)


def test_noise_is_compared_with_the_standard_deviation_that_the_counts_show():
    edges = tuple(range(0, 1_001, 100))
    near, far = [0] * 12, [0] * 12
    near[5:7], far[1:11] = [500, 500], [100] * 10
    verdicts = []
    for counts in (near, far):
        measured, plan = made(tuple(counts), (0, 1_000), 1_000, variance=900.0, edges=edges)
        noise = number_counts((measured,), plan["x"].space, 1_000).mean_noise_sd
        verdicts.append((round(noise, 2), [one.why for one in plan.not_found]))
    # 30 rows over 1,000, times 1,000, over standard deviations of 58 and 289.
    assert verdicts == [(0.52, [NOISY]), (0.1, [])]


@pytest.mark.parametrize(("far", "found"), [(32, False), (120, True)])
def test_counts_within_their_noise_far_out_make_no_standard_deviation(far, found):
    """32 ± 30 rows at the other end of the bounds may be none; with all of them it would be 160, with none 15."""
    measured, plan = made(
        (0, 960, *[0] * 8, far, 0), (0, 1_000), 1_000, variance=900.0, edges=tuple(range(0, 1_001, 100))
    )
    assert number_counts((measured,), plan["x"].space, 1_000).mean_noise_sd < 0.5 or not found
    assert (not plan.not_found) == found


@pytest.mark.slow
def test_no_number_is_given_of_a_column_whose_few_large_values_are_not_seen():
    """Of debts that 15 % have, whose bounds drown: the mean was 0.02 ± 0.2 for −656 in a quarter of the releases.

    Of fixed keys, so that the test cannot fail by chance: eight of twelve hold it, and two are wrong without a warning.
    """
    rng = np.random.default_rng(0)
    debt = np.where(rng.random(1_500) < 0.85, 0.0, -rng.lognormal(8, 1, 1_500))
    frame = pd.DataFrame({"debt": debt, **{f"x{i}": rng.normal(size=1_500) for i in range(8)}})
    right = silent = 0
    for key in range(12):
        safe, _ = quietly(dpf.sanitize, frame, epsilon=1.0, key=key.to_bytes(32), measure=None)
        mean, remarks = quietly(safe.dp.mean, "debt")
        is_right = math.isnan(mean["estimate"]) or mean["lower"] <= debt.mean() <= mean["upper"]
        right += is_right
        silent += not (is_right or remarks)
    assert right >= 8
    assert silent <= 2


def test_nulls_that_were_not_found_lie_outside():
    lost = made((0, 300, 300, 0), Integer(0, 19), 1_000, missing=400)[1]
    assert [one.column for one in lost.not_found] == ["x"]
    assert not made((0, 300, 300, 0), Nullable(Integer(0, 19)), 1_000, missing=400)[1].not_found


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_times_are_judged_in_their_unit(unit):
    year = int(np.datetime64("1971-01-01", "D").astype(f"M8[{unit}]").astype(np.int64))
    space = dpf.Datetime(pd.Timestamp("1970-01-01").date(), pd.Timestamp("1970-12-31").date(), "D")
    for counts, missing in (((0, 990, 10), 0), ((0, 10, 990), 1)):
        plan = made(counts, space, 1_000, edges=(0, year), unit=unit)[1]
        assert len(plan.not_found) == missing
        assert Plan.from_json(plan.to_json()) == plan


def test_an_unknown_unit_is_refused():
    data = json.loads(made((0, 990, 10), (0, 9), 1_000, edges=(0, 10), unit="s")[1].to_json())
    data["inferred"]["measured"][0]["unit"] = "week"
    with pytest.raises(dpf.errors.PlanError, match="the unit of measured times one of"):
        Plan.from_json(json.dumps(data))


def test_the_judgement_needs_nothing_but_the_plan(lost):
    plan = Plan.from_json(lost[0].dp.release.plan.to_json())
    assert unidentified_columns(plan.inferred, plan.spaces, plan.n) == plan.not_found


def test_dates_and_durations_are_found_at_size():
    days = np.arange(40_000) % 3_000
    table = pa.table({"day": pa.array(days, pa.int32()).view(pa.date32()), "wait": pa.array(days, pa.duration("s"))})
    assert quietly(dpf.plan, table, 4.0, delta=1e-6)[1] == []
