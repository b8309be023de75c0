"""Mean curves of the census's daily load: bands that hold at all hours, by region, from sums and from rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import refused
from conftest import KEY
from scipy import stats

import dpframe as dpf
from dpframe.errors import ParameterError

HOURS = list(range(24))
LOAD = dpf.Curve(HOURS, 4.0, {"name": "RBF", "length_scale": 1.5}, rank=16)
REGIONS = list(dpf.datasets.REGIONS)


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return dpf.datasets.make_census(6_000, columns=["region", "load_curve"])


def held(people: pd.DataFrame) -> np.ndarray:
    """Return the curves as the space holds them: projected and clipped."""
    return np.array(LOAD.decode(LOAD.encode(people["load_curve"].tolist())).to_pylist())


def test_the_space_holds_the_mean_load_of_a_day(people) -> None:
    """The public choice of kernel, rank and bound costs the mean at most 2 % of its range."""
    raw = np.array(people["load_curve"].tolist()).mean(axis=0)
    assert np.abs(held(people).mean(axis=0) - raw).max() < 0.02 * np.ptp(raw)


@pytest.mark.slow
def test_a_curve_column_goes_all_the_way(people, tmp_path) -> None:
    """A frame, its plan's JSON, Parquet and back; released values are curves of the space's span."""
    spaces = {"region": REGIONS, "load_curve": LOAD}
    plan = dpf.Plan.from_json(people.dp.plan(epsilon=1.0, delta=1e-6, spaces=spaces).to_json())
    safe = dpf.sanitize(people, plan=plan, key=KEY)
    released = np.array(safe["load_curve"].tolist())
    assert released.shape == (6_000, 24)
    np.testing.assert_allclose(LOAD.parts(released) @ LOAD.basis.T, released, atol=1e-8)
    assert safe.dp.verify()
    pq.write_table(pa.Table.from_pandas(people), tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    again = dpf.read(tmp_path / "out.parquet")
    np.testing.assert_array_equal(np.array(again["load_curve"].tolist()), released)
    pd.testing.assert_frame_equal(again.dp.mean_curve("load_curve"), safe.dp.mean_curve("load_curve"))
    found = safe.dp.mean_curve("load_curve")
    assert found.index.tolist() == HOURS
    assert found.attrs["source"] == "tables"
    truth = held(people).mean(axis=0)
    assert (np.abs(found["estimate"] - truth) < 6 * found["std_error"]).all()
    assert found["std_error"].max() < 0.05  # kW, of a mean of 0.45
    for lower, upper in (("lower", "upper"), ("band_lower", "band_upper")):
        assert (found[lower] < found["estimate"]).all()
        assert (found["estimate"] < found[upper]).all()
    assert "functions" in safe.dp.report().to_html()
    refused(ParameterError, "holds curves, which are not counted", lambda: safe.dp.value_counts("load_curve"))
    refused(ParameterError, "holds curves, of which no rows are drawn", lambda: safe.dp.synthesize())


@pytest.mark.slow
@pytest.mark.parametrize("source", ["tables", "rows"])
def test_bands_by_region_cover_all_hours_at_once(people, source) -> None:
    """Of 30 releases by 16 regions 93 to 98 % of the bands hold, to what chance explains with probability 1e-6."""
    options = {"measure": [("load_curve", "region")]} if source == "tables" else {"measure": None}
    spaces = {"region": REGIONS, "load_curve": LOAD}
    plan = people.dp.plan(epsilon=1.0, delta=1e-6, spaces=spaces, **options)
    curves, inside, runs = held(people), 0, 30
    truth = {region: curves[(people["region"] == region).to_numpy()].mean(axis=0) for region in REGIONS}
    for run in range(runs):
        safe = dpf.sanitize(people, plan=plan, key=run.to_bytes(32, "big"))
        found = safe.dp.mean_curve("load_curve", by="region")
        assert found.attrs["source"] == source
        for region in REGIONS:
            mine = found.loc[region]
            inside += bool(((mine["band_lower"] <= truth[region]) & (truth[region] <= mine["band_upper"])).all())
    trials = runs * len(REGIONS)
    assert stats.binom.cdf(inside, trials, 0.93) > 1e-6
    assert stats.binom.sf(inside - 1, trials, 0.98) > 1e-6
