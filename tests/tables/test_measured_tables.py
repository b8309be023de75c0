"""Measured tables travel in a release's description, under its digest, whatever face made the release."""

import base64
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.channels import RandomizedResponse
from dpframe.errors import DpframeWarning, ParameterError, PlanError
from dpframe.plan.build import build_plan
from dpframe.plan.measures import Measure
from dpframe.plan.measuring import Workload
from dpframe.plan.steps import central_budget
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import Source
from dpframe.release.rows import sealed
from dpframe.report.report import Report

SPACES = {"sex": ["F", "M"], "home": ["own", "let"], "age": {"space": "nullable", "inner": {"lower": 0, "upper": 99}}}
N = 3_000
KEY = bytes(range(32))
PARENT = 16
"""First code of a cell of 16 codes, the first level of a number from 0 to 1023."""


def frame(seed=0):
    generator = np.random.default_rng(seed)
    ages = pd.array(generator.integers(0, 100, N), dtype="Int64")
    ages[:50] = pd.NA
    sexes, homes = generator.choice(["F", "M"], N), generator.choice(["own", "let"], N)
    return pd.DataFrame({"sex": sexes, "home": homes, "age": ages})


MEASURES = (
    Measure("one_way", ("age",), 8_000.0, 60),
    Measure("sum", ("age",), 1e8),
    Measure("joint", ("sex", "home"), 8_000.0),
    Measure("joint", ("sex", "age"), 8_000.0, 12),
    Measure("joint", ("sex", "home", "age"), 20_000.0, 12),
)


@cache
def measured_plan():
    return build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, measures=MEASURES)


@cache
def measured_release():
    return dpf.sanitize(frame(), plan=measured_plan(), key=KEY)


@cache
def measured_info():
    return measured_release().dp.release


def test_the_description_has_the_tables_of_all_rows():
    assert [table.measure for table in measured_info().tables] == list(MEASURES)
    raw = frame()
    exact = pd.crosstab(raw["sex"], raw["home"])[["own", "let"]].to_numpy()
    # 4 cells beyond 6σ under a fixed key: probability below 1e-8.
    assert np.abs(measured_info().tables[2].counts - exact).max() < 6 * 8_000**0.5
    assert measured_info().tables[3].starts[0] is None
    assert measured_info().tables[3].counts.shape == (2, len(measured_info().tables[3].starts[1]) + 1)
    assert Source(measured_release(), None).tables == measured_info().tables
    assert measured_release().dp.verify()


def test_the_description_is_read_back_as_it_was():
    assert ReleaseInfo.from_json(measured_info().to_json()) == measured_info()
    assert (len(measured_info().digest), len(measured_info().row_digest)) == (32, 16)


def test_a_count_takes_few_bytes():
    tables = json.loads(measured_info().to_json())["tables"]
    assert len(tables["counts"]) < 4 * sum(table.counts.size for table in measured_info().tables)


@pytest.mark.parametrize("batch_rows", [1, 999, N])
def test_parquet_has_the_same_tables(tmp_path, batch_rows):
    rows = 200 if batch_rows == 1 else N
    raw, plan = frame().iloc[:rows], measured_plan().replan(rows)
    raw.to_parquet(tmp_path / "in.parquet")
    memory = dpf.sanitize(raw, plan=plan, key=KEY).dp.release
    info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY, batch_rows=batch_rows)
    assert info == memory
    assert dpf.read(tmp_path / "out.parquet").dp.release.tables == memory.tables
    assert pd.read_parquet(tmp_path / "out.parquet").dp.release == info
    assert dpf.verify(tmp_path / "out.parquet").ok


def test_tables_are_kept_when_a_release_is_written_and_attached(tmp_path):
    assert dpf.write(measured_release(), tmp_path / "safe.parquet") == measured_info()
    bare = measured_release().copy()
    bare.attrs = {}
    assert dpf.attach(bare, measured_info()).dp.release == measured_info()
    with pytest.warns(dpf.DpframeWarning, match="the table lost its release's"):
        assert dpf.attach(bare, measured_plan()).dp.release.tables == ()
    with pytest.warns(dpf.DpframeWarning, match="the noisy rows only"):
        dpf.Estimates(bare, measured_plan())


def test_the_very_frame_of_polars_knows_its_release(tmp_path):
    """Polars keeps no metadata: what was measured must be neither lost without a word nor found in another frame."""
    frame = pl.DataFrame({"age": [20, 30, 50, 70] * 500, "sex": ["F", "M"] * 1_000})
    plan = dpf.plan(frame, epsilon=1, spaces={"age": (0, 100), "sex": ["F", "M"]})
    safe = dpf.sanitize(frame, plan=plan, key=bytes(32))
    alone = dpf.sanitize(frame.to_pandas(), plan=plan, key=bytes(32)).dp.mean("age")
    for told in (dpf.Estimates(safe), dpf.Estimates(safe, plan)):
        pd.testing.assert_series_equal(told.mean("age"), alone)
    for number, given in enumerate(((), (plan,))):
        info = dpf.write(safe, tmp_path / f"{number}.parquet", *given)
        assert info.tables
        assert dpf.verify(tmp_path / f"{number}.parquet").ok
    with pytest.raises(dpf.AlreadySanitizedError):
        dpf.sanitize(safe, epsilon=1)
    with pytest.raises(dpf.NotSanitizedError):
        dpf.Estimates(safe.clone())
    with pytest.warns(dpf.DpframeWarning, match="the table lost its release's"):
        dpf.Estimates(safe.clone(), plan)


def test_rows_alone_still_tell():
    stripped = json.loads(measured_info().to_json())
    del stripped["tables"]
    alone = measured_release().copy()
    alone.attrs = {"dpframe": json.dumps(stripped)}
    assert alone.dp.release.tables == ()
    assert dpf.Estimates(alone).verify()
    assert not alone.dp.verify()


def tampered(change):
    data = json.loads(measured_info().to_json())
    change(data)
    return json.dumps(data)


def _flipped(data):
    blob = bytearray(base64.b64decode(data["tables"]["counts"]))
    blob[len(blob) // 2] ^= 1
    data["tables"]["counts"] = base64.b64encode(bytes(blob)).decode()


def _of_another(data):
    other = dpf.sanitize(frame(1), plan=measured_plan(), key=KEY[::-1]).dp.release
    data["tables"] = json.loads(other.to_json())["tables"]


CHANGES = {
    "counts": _flipped,
    "bins": lambda data: data["tables"]["bins"][0][2].__setitem__(1, 1),
    "another's": _of_another,
    "no bins": lambda data: data["tables"].update(bins=[]),
    "no counts": lambda data: data["tables"].update(counts=""),
    "no object": lambda data: data.update(tables=[1, 2]),
    "a row digest": lambda data: data.update(digest="0" * 16 + data["digest"][16:]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tables_not_of_this_release_are_refused(change, tmp_path):
    text = tampered(change)
    with pytest.raises(PlanError, match=r"measured tables are not.*digest is another"):
        ReleaseInfo.from_json(text)
    path = tmp_path / "safe.parquet"
    dpf.write(measured_release(), path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"dpframe": text.encode()}), path)
    assert not dpf.verify(path).ok


def edited(safe, change, tmp_path):
    """A release with other cuts of its tables, under a digest that was made anew: as whoever writes files can make."""
    path, info = tmp_path / "safe.parquet", safe.dp.release
    dpf.write(safe, path)
    tables = tuple(replace(table, starts=change(table.measure, table.starts)) for table in info.tables)
    text = replace(info, tables=tables, digest=info.row_digest + sealed(info.row_digest, tables)).to_json()
    assert ReleaseInfo.from_json(text).tables == tables
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"dpframe": text.encode()}), path)
    return dpf.verify(path)


def _bins_moved(measure, starts):
    """The second bin of numbers in joints begins one code later."""
    found = [own if own is None or measure.kind != "joint" else (0, own[1] + 1, *own[2:]) for own in starts]
    return tuple(found)


def _least_parent_moved(measure, starts):
    """The first cell that a level divides is the one before: as wide, so that there are as many counts."""
    return starts if measure.level < 2 else ((PARENT, *starts[0][1:]),)


@pytest.mark.parametrize("change", [_bins_moved, _least_parent_moved], ids=["bins", "levels"])
def test_numbers_are_cut_by_noisy_counts_or_the_release_is_not_verified(change, tmp_path):
    """Cuts by exact counts would say something of rows for which nothing is spent."""
    wages = pd.DataFrame({"sex": ["F", "M"] * 2_000, "wage": [16 * (20 + i % 30) for i in range(4_000)]})
    spaces = {"sex": ["F", "M"], "wage": (0, 1023)}
    safe = dpf.sanitize(wages, epsilon=3.0, delta=1e-6, spaces=spaces, measure=[("sex", "wage")], key=KEY)
    level = next(table for table in safe.dp.release.tables if table.measure.level == 2)
    assert level.starts[0][0] > PARENT
    certificate = edited(safe, lambda _, starts: starts, tmp_path)
    assert certificate.ok
    assert (
        certificate.checks[-1] == "bins of measured numbers have the edges that the release's first noisy counts give"
    )
    (failure,) = edited(safe, change, tmp_path).failures
    name = "sex × wage" if change is _bins_moved else "wage"
    assert failure == f"tables of {name} do not have the bins that the release's first noisy counts give"


def test_cuts_of_an_older_rule_are_attested(tmp_path):
    """Version 0.2.0 cut numbers by one-ways of 60 cells, and gave spikes no bins of their own."""
    certificate = edited(measured_release(), _bins_moved, tmp_path)
    assert certificate.ok
    labels = "sex × age, sex × home × age"
    assert (
        certificate.attested[-1]
        == f"tables of {labels} have the bins that version 0.2.0 made of the first noisy counts"
    )


def test_rows_joined_with_the_tables_of_another_release_are_no_release():
    other = dpf.sanitize(frame(1), plan=measured_plan(), key=KEY[::-1])
    joined = measured_release().copy()
    joined.attrs = other.attrs
    assert not joined.dp.verify()


@pytest.mark.slow
def test_faces_measure_by_request():
    options = {"spaces": SPACES, "measure": [("sex", "home")], "measure_share": 0.3}
    plan = dpf.plan(frame(), epsilon=1.0, delta=1e-6, **options)
    assert [m.columns for m in plan.measures] == [("sex", "home")]
    auto = dpf.plan(frame(), epsilon=1.0, delta=1e-6, spaces=SPACES, measure="auto")
    assert len(auto.measures) == 8  # the number's one-way and sum, the lists' one-ways, pairs and their triple
    inferred = dpf.plan(frame()[3:], epsilon=1.0, delta=1e-6, measure="auto")
    assert {m.kind for m in inferred.measures} >= {"joint", "one_way", "sum"}
    assert inferred.verify().ok
    assert "inference (mu=" in str(inferred.verify())
    assert ", tables (mu=" in str(inferred.verify())


@pytest.mark.parametrize(
    "options",
    [{"delta": 0.0}, {"shuffle": False}, {"passthrough": ["home"]}],
)
def test_without_a_secret_order_nothing_is_measured_by_default(options):
    spaces = {name: space for name, space in SPACES.items() if name not in options.get("passthrough", ())}
    plan = dpf.plan(frame(), **({"epsilon": 1.0, "delta": 1e-6, "spaces": spaces, "measure": "auto"} | options))
    assert plan.measures == ()


def test_a_kept_order_is_measured_by_request():
    plan = dpf.plan(frame(), epsilon=1.0, delta=1e-6, spaces=SPACES, measure=["sex"], shuffle=False)
    assert plan.verify().ok
    step = dpf.Sanitizer(epsilon=1.0, delta=1e-6, spaces=SPACES, measure=["sex", (0, 1)]).fit(frame())
    assert [m.columns for m in step.plan_.measures] == [("sex",), ("sex", "home")]


TRIPLE = ["auto", ("sex", "home", "age")]


def test_a_list_with_auto_adds_to_the_default_tables(tmp_path):
    """Of 400 rows no triple is measured by default; frames, files and the Sanitizer take one alike."""
    raw, given = frame()[:400], {"epsilon": 1.0, "delta": 1e-6, "spaces": SPACES}
    auto, both = (dpf.plan(raw, measure=measure, **given) for measure in ("auto", TRIPLE))
    added = {m.identity for m in both.measures} - {m.identity for m in auto.measures}
    assert added == {("joint", frozenset({"sex", "home", "age"}), 1)}
    assert {m.identity for m in auto.measures} < {m.identity for m in both.measures}
    assert dpf.plan(raw, measure=["auto"], **given) == auto
    assert dpf.plan(raw, measure=["auto", ("home", "sex")], **given) == auto
    assert both.verify().ok
    assert dpf.Plan.from_json(both.to_json()) == both
    assert "sex × home × age" in str(both)
    raw.to_parquet(tmp_path / "in.parquet")
    in_file = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", measure=TRIPLE, **given)
    safe = dpf.sanitize(raw, measure=TRIPLE, **given)
    assert [t.measure for t in in_file.tables] == [t.measure for t in safe.dp.release.tables] == list(both.measures)
    assert safe.dp.verify()


def test_where_nothing_is_measured_by_default_added_tables_are():
    given = {"epsilon": 1.0, "delta": 1e-6, "spaces": SPACES}
    kept = dpf.plan(frame(), measure=["auto", ("sex", "home")], shuffle=False, **given)
    step = dpf.Sanitizer(measure=["auto", (0, 1)], **given).fit(frame())
    for plan in (kept, step.plan_):
        assert [m.columns for m in plan.measures] == [("sex", "home")]


def test_a_column_named_auto_is_named_in_a_tuple():
    raw = frame().rename(columns={"sex": "auto"})
    plan = dpf.plan(raw, 1.0, 1e-6, spaces={"auto": ["F", "M"]}, measure=[("auto",)], drop=["home", "age"])
    assert [m.columns for m in plan.measures] == [("auto",)]


@pytest.mark.filterwarnings("ignore::dpframe.errors.InferenceWarning")
def test_a_column_that_was_not_found_has_no_added_table():
    """Texts that are all different are not found by inference, whatever its noise."""
    raw = frame().assign(note=[f"{i} words" for i in range(N)])
    with pytest.warns(DpframeWarning, match=r"sex × note needs.*was not found"):
        safe = dpf.sanitize(raw, epsilon=1.0, measure=["auto", ("sex", "note"), ("sex", "home")], key=KEY)
    assert {t.measure.columns for t in safe.dp.release.tables} >= {("sex", "home"), ("sex", "age")}
    assert "note" not in {name for t in safe.dp.release.tables for name in t.measure.columns}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"measure": ["auto", "street"]}, "measure names 'street', which is not a randomised column"),
        ({"measure": ["auto", ("sex", "home", "a", "b")]}, "measure names 'a', which is not a randomised column"),
        ({"measure": ["auto", ("sex", "sex")]}, "measure names 'sex' twice in one table, for pairs of items"),
        ({"measure": ["auto", 5]}, 'measure must be "auto", None, or a list of columns'),
        ({"measure": ["auto", ("sex", "home")], "delta": 0.0}, "measure needs delta above 0; raise delta"),
        ({"measure": "all"}, 'measure must be "auto", None, or a list of columns'),
        ({"measure": [("sex", "sex", "home")]}, "measure names a column twice in one table; name it once"),
        ({"measure": [("sex", "sex")]}, "measure names 'sex' twice in one table, for pairs of items, and it holds no"),
        ({"measure": ["street"]}, "measure names 'street', which is not a randomised column"),
        ({"measure": ["sex"], "delta": 0.0}, "measure needs delta above 0; raise delta, or pass measure=None"),
        ({"measure_share": 1.0}, r"measure_share must lie in \(0, 1\), e.g. measure_share=0.1"),
    ],
)
def test_requests_that_break_a_rule_cost_nothing(tmp_path, options, words):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 5.0, 1e-4)
    given = {"epsilon": 1.0, "delta": 1e-6, "spaces": {"home": ["own", "let"], "sex": ["F", "M"]}} | options
    with pytest.raises(ParameterError, match=words):
        dpf.sanitize(frame(), ledger=ledger, dataset="survey", **given, drop=["age"])
    assert ledger.remaining("survey").epsilon == 5.0


def test_the_report_says_what_was_measured():
    report = measured_release().dp.report()
    joints = "<li>3 joint tables at sigma=89.44 to 141.4 (sex × home, sex × age, sex × home × age)</li>"
    assert joints in report.to_html()
    assert "Measured in addition to the rows" in str(report)
    assert "Measured tables" not in Report(ReleaseInfo(build_plan(SPACES, epsilon=1.0), N, "")).to_html()


# ------------------------------------------------------------------------------- beside inference, and row by row


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_in_known_order_inference_is_subtracted_where_tables_are_measured():
    """Which tables there are, and the noise of the rows, follow from what inference gave: no one step has all three."""
    raw = frame()
    plan = dpf.plan(raw, 1.0, 1e-6, shuffle=False, measure=["sex", "home"], infer_share=0.2)
    assert plan.inferred.step is None
    assert plan.measures
    spent = plan.inferred.budget
    assert plan.terms.budget.epsilon == pytest.approx(1.0 - spent.epsilon)
    assert plan.verify().ok
    assert "tables" in plan.steps
    assert dpf.Plan.from_json(plan.to_json()) == plan
    alone = dpf.plan(raw, 1.0, 1e-6, shuffle=False, infer_share=0.2)
    assert alone.inferred.step is not None


def test_a_channel_that_may_fail_is_accounted_for_as_in_known_order():
    """It earns the order no credit: nothing is measured by default, and where tables are, inference is subtracted."""
    given = {"mechanisms": {"sex": RandomizedResponse(2, 0.2, 1e-8)}, "spaces": {"sex": ["F", "M"]}}
    plan = dpf.plan(frame()[1:], 1.0, 1e-6, **given)
    assert plan.measures == ()
    assert plan.inferred.step is not None
    plan = dpf.plan(frame()[2:], 1.0, 1e-6, measure=["sex", "home"], measure_share=0.5, **given)
    assert plan.measures
    assert plan.inferred.step is None
    assert plan.verify().ok


def test_what_tables_tell_of_a_row_is_in_its_local_promise():
    """A row's place hides nothing of counts: its own loss and theirs are added."""
    without = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N)
    assert measured_plan().local.delta == 1e-6
    rows = sum(unit.certified.epsilon for unit in measured_plan().units)
    assert rows < measured_plan().local.epsilon <= rows + 1.0
    assert measured_plan()["sex"].mechanism.epsilon < without["sex"].mechanism.epsilon
    capped = dpf.plan(frame(), 1.0, 1e-6, spaces=SPACES, local_epsilon=2.0)
    assert capped.measures
    assert capped.local.epsilon <= 2.0
    assert capped.verify().ok


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_a_capped_row_has_what_the_most_that_tables_may_cost_leaves():
    """What inference gave decides which tables there are, and so what they cost; the rows' losses do not follow it."""
    capped = dpf.plan(frame(), 1.0, 1e-6, local_epsilon=2.0)
    assert capped.measures
    assert capped.inferred.step is not None
    most = Workload("auto").most(capped.release, capped.inferred.step)
    beside = central_budget(capped.inferred, most, capped.delta)
    assert sum(unit.certified.epsilon for unit in capped.units) <= 2.0 - beside.epsilon
    # A plan with no tables left is capped alike, at build_plan.
    given = {"epsilon": 1.0, "delta": 1e-6, "n": N, "inferred": capped.inferred, "local_epsilon": 2.0}
    plain, thin = (build_plan(capped.spaces, **given, most=step) for step in (None, most))
    assert thin.local_sum.epsilon < plain.local_sum.epsilon
    # A plan does not keep what tables might have cost: made for other rows, it takes all that is left for it.
    assert capped.replan(N + 1_000).local_sum.epsilon <= capped.local_sum.epsilon * 1.01


@pytest.mark.parametrize("options", [{}, {"spaces": {"sex": ["F", "M"]}}, {"spaces": SPACES}])
def test_a_local_promise_that_tables_alone_exceed_costs_nothing(tmp_path, options):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("people", 5.0, 1e-5)
    with pytest.raises(ParameterError, match=r"of what local_epsilon allows,.*raise local_epsilon"):
        dpf.sanitize(frame(), epsilon=1.0, delta=1e-6, local_epsilon=0.1, ledger=ledger, dataset="people", **options)
    assert ledger.spent("people").epsilon == 0.0


@pytest.mark.slow
def test_a_forecast_is_of_rows_and_tables():
    """60 releases: root mean squares of errors within a fifth of the forecast's (their own error is below a tenth)."""
    raw, table = frame(), measured_plan().forecast()
    errors = []
    for key in range(60):
        safe = dpf.sanitize(raw, plan=measured_plan(), key=key.to_bytes(32, "big"))
        shares = safe.dp.joint(["sex", "home"], normalize=True, method="inverse")["estimate"]
        truth = raw.value_counts(["sex", "home"], normalize=True).reindex(shares.index)
        errors.append([((shares - truth) ** 2).mean(), (safe.dp.mean("age")["estimate"] - raw["age"].mean()) ** 2])
    found = np.sqrt(np.mean(errors, axis=0))
    told = [table.loc[("joint", "sex × home"), "std_error"], table.loc[("mean", "age"), "std_error"]]
    assert found == pytest.approx(told, rel=0.2)
    known = table.dropna(subset="rows_alone")
    assert (known["std_error"] <= known["rows_alone"] * (1 + 1e-12)).all()  # where tables add nothing, but for rounding
    assert "rows_alone" not in build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N).forecast()


def test_a_forecast_of_numbers_is_in_bins():
    spaces = {"sex": ["F", "M"], "age": (0, 100), "cost": (0.0, 9_000.0)}
    raw = pd.DataFrame({"sex": ["F", "M"] * 1_200, "age": np.arange(2_400) % 101, "cost": np.arange(2_400.0)})
    plan = dpf.plan(raw, 2.0, 1e-6, spaces=spaces)
    table = plan.forecast()
    assert set(table["unit"]) == {"share", ""}, "errors of all shares say something"
    assert table.loc["joint in bins"].index.tolist() == ["sex × age", "sex × cost", "age × cost"]
    (measure,) = (m for m in plan.measures if m.columns == ("sex", "cost"))
    told = measure.sigma2 / 2_400**2 * (2 * measure.most - 1) / (2 * measure.most)
    assert table.loc[("joint in bins", "sex × cost"), "std_error"] == pytest.approx(np.sqrt(told))
    assert ("joint", "sex × age") not in table.index


def test_measures_are_not_added_by_hand_to_inference_in_known_order():
    raw = frame().rename(columns={"sex": "by hand"})
    plan = dpf.plan(raw, 1.0, 1e-6, shuffle=False, infer_share=0.2)
    with pytest.raises(ParameterError, match=r"measures with inference that.*a secret order"):
        replace(plan, measures=(Measure("one_way", ("home",), 1e6),))


@pytest.mark.parametrize("digest", [32, 16])
def test_a_file_whose_measured_tables_were_taken_out_does_not_verify(tmp_path, digest):
    """Whether their part of the digest was taken out with them or not."""
    path = tmp_path / "out.parquet"
    dpf.write(measured_release(), path)
    assert dpf.verify(path).ok
    table = pq.read_table(path)
    data = json.loads(measured_info().to_json())
    del data["tables"]
    data["digest"] = data["digest"][:digest]
    found = {key: json.dumps(data) if b"dpframe" in key else value for key, value in table.schema.metadata.items()}
    pq.write_table(table.replace_schema_metadata(found), path)
    certificate = dpf.verify(path)
    assert not certificate.ok
    assert any("the file's description has none of them: they were taken out" in f for f in certificate.failures)
