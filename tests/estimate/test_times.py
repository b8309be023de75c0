"""Every kind of time, to the ends of its calendar, under every statistic that has labels or values of it."""

import datetime as dt

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.estimate.axes import in_zone

KEY = bytes(range(32))
ROWS = 200
RANGES = {
    "first": (dt.datetime(1, 1, 1), dt.datetime(1, 12, 31)),
    "switch": (dt.datetime(2024, 3, 30), dt.datetime(2024, 4, 1)),
    "last": (dt.datetime(9999, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)),
}
MOMENTS = {
    name: [low + (high - low) * part for part in np.linspace(0, 1, ROWS)] for name, (low, high) in RANGES.items()
}


KINDS = {
    "dates": lambda moments: pd.Series([moment.date() for moment in moments], dtype=object),
    "datetimes": lambda moments: pd.Series(moments, dtype=object),
    "datetime64[s]": lambda moments: pd.Series(np.array(moments, dtype="datetime64[s]")),
    "datetime64[us]": lambda moments: pd.Series(np.array(moments, dtype="datetime64[us]")),
    "Tokyo": lambda moments: pd.Series(pd.DatetimeIndex(moments, tz="UTC").as_unit("us").tz_convert("Asia/Tokyo")),
    "New York": lambda moments: pd.Series(
        pd.DatetimeIndex(moments, tz="UTC").as_unit("ms").tz_convert("America/New_York")
    ),
    "date32": lambda moments: pd.Series([moment.date() for moment in moments], dtype="date32[pyarrow]"),
    "date64": lambda moments: pd.Series([moment.date() for moment in moments], dtype=pd.ArrowDtype(pa.date64())),
    "timestamp": lambda moments: pd.Series(moments, dtype=pd.ArrowDtype(pa.timestamp("us"))),
}
ZONES = {"Tokyo": "Asia/Tokyo", "New York": "America/New_York"}


def labels_of(answer: pd.DataFrame) -> pd.Index:
    """The labels of times of an answer."""
    return answer.index.levels[0] if isinstance(answer.index, pd.MultiIndex) else answer.index


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
@pytest.mark.walk(2)
@pytest.mark.parametrize("kind", KINDS)
def test_times_have_every_statistic_to_the_ends_of_their_calendar(kind: str) -> None:
    """The walk: kinds of times × stretches of the calendar × statistics; labels are in the column's zone."""
    frame = pd.DataFrame({name: KINDS[kind](moments) for name, moments in MOMENTS.items()})
    frame["group"] = np.tile(["a", "b"], ROWS // 2)
    spaces = {name: (low.date(), high.date()) for name, (low, high) in RANGES.items()} | {"group": ["a", "b"]}
    safe = dpf.sanitize(frame, epsilon=5, spaces=spaces, key=KEY).dp
    queries = dpf.Queries(frame, epsilon=5, delta=1e-6, spaces=dict(safe.release.plan.spaces))
    for name in RANGES:
        binned = [
            safe.histogram(name, bins=3),
            safe.value_counts(name, bins=3, sort=False),
            safe.value_counts(name, bins=3, method="inverse"),
            safe.joint([name, "group"], bins={name: 3}),
            safe.crosstab(name, "group", bins={name: 3}),
            queries.histogram(name, bins=3, share=0.05),
        ]
        for answer in binned:
            labels = labels_of(answer)
            assert str(getattr(labels.dtype.subtype, "tz", None)) == ZONES.get(kind, "None")
            assert str(answer)
        assert str(safe.quantile(name, [0.001, 0.999]))
        assert str(safe.mean(name))
        plt.close(safe.plot(name).figure)
    assert safe.report().to_html()


def test_the_last_bin_of_the_calendar_holds_its_last_day() -> None:
    frame = pd.DataFrame({"t": [dt.date(9999, 12, 31)] * 100 + [dt.date(9999, 1, 1)] * 100})
    safe = dpf.sanitize(frame, epsilon=50, spaces={"t": ("9999-01-01", "9999-12-31")}, key=KEY).dp
    found = safe.histogram("t", bins=2)
    assert pd.Timestamp("9999-12-31") in found.index[-1]
    assert found["estimate"].tolist() == pytest.approx([100, 100], abs=5)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York", "+14:00", "-12:00"])
def test_the_ends_of_the_calendar_have_a_time_in_every_zone(zone: str) -> None:
    ends = np.array([dt.datetime.min, dt.datetime(2024, 1, 1), dt.datetime.max, "NaT"], dtype="datetime64[us]")
    found = in_zone(ends, zone)
    # pandas 2.3 cannot show a single time of year 1 in a zone with a name.
    assert all(str(time) for time in found[1:])
    assert (found.year[0], found.year[2]) == (1, 9999)
    assert found[1] == pd.Timestamp("2024-01-01", tz="UTC")


def test_bins_of_a_zone_are_cut_and_shown_in_it() -> None:
    moments = pd.date_range("2024-03-30", "2024-04-01", periods=ROWS, tz="Europe/Berlin")
    spaces = {"t": dpf.Datetime("2024-03-29", "2024-04-02", "min")}
    safe = dpf.sanitize(pd.DataFrame({"t": moments}), epsilon=50, spaces=spaces, key=KEY).dp
    days = pd.date_range("2024-03-30", "2024-04-01", freq="D", tz="Europe/Berlin")
    found = safe.histogram("t", bins=list(days))
    assert list(found.index.left) == list(days[:-1]) and list(found.index.right) == list(days[1:])
    true, _ = np.histogram(moments.as_unit("ns").asi8, days.as_unit("ns").asi8)
    assert ((found["lower"] <= true) & (true <= found["upper"])).all()
    listed = dpf.sanitize(
        pd.DataFrame({"t": moments.floor("D")}), epsilon=50, spaces={"t": dpf.Datetime("2024-03-29", "2024-04-02", "h")}
    )
    assert listed.dp.value_counts("t").index.tz is not None


TIMES = [dt.time(hour, minute) for hour in range(24) for minute in range(0, 60, 10)] * 2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"infer": "data"},
        {"spaces": {"t": ("00:00", "23:59")}},
        {"spaces": {"t": dpf.Datetime("00:00", "23:59", "min")}},
    ],
    ids=["private", "data", "bounds", "space"],
)
@pytest.mark.filterwarnings("ignore::dpframe.errors.PrivacyLeakWarning")
@pytest.mark.walk(4)
@pytest.mark.parametrize("dtype", [object, "category"])
def test_times_of_day_come_back_as_such(options: dict, dtype: object, tmp_path) -> None:
    frame = pd.DataFrame({"t": pd.Series(TIMES, dtype=object).astype(dtype)})
    safe = dpf.sanitize(frame, epsilon=8, key=KEY, **options)
    for rows in (safe, safe.dp.synthesize(random_state=0)):
        assert {type(value) for value in rows["t"]} == {dt.time}
    dpf.write(safe, tmp_path / "safe.parquet")
    back = dpf.read(tmp_path / "safe.parquet")
    assert back["t"].tolist() == safe["t"].tolist() and back.dp.verify() and safe.dp.verify()
    plan = safe.dp.release.plan
    again = dpf.Plan.from_json(plan.to_json())
    assert again == plan and again.digest == plan.digest and repr(again["t"].space) == repr(plan["t"].space)


def test_times_of_day_are_asked_for_as_such() -> None:
    """Counts within six standard errors: fails with probability 1e-8."""
    frame = pd.DataFrame({"t": TIMES})
    safe = dpf.sanitize(frame, epsilon=8, spaces={"t": ("00:00", "23:59")}, key=KEY).dp
    for ends in ((dt.time(8), dt.time(11, 59)), ("08:00", "11:59")):
        count = safe.count({"t": ends})
        assert abs(count["estimate"] - len(TIMES) / 6) < 6 * count["std_error"]
    found = safe.histogram("t", bins=["06:00", dt.time(12), "18:00"])
    assert found.index.left.tolist() == [pd.Timedelta(hours=6), pd.Timedelta(hours=12)]


def test_noise_of_times_of_day_stays_within_the_day() -> None:
    frame = pd.DataFrame({"t": TIMES})
    with pytest.raises(dpf.errors.ParameterError, match="noise would reach beyond a day; use laplace"):
        dpf.sanitize(frame, epsilon=1, spaces={"t": ("00:00", "23:59")}, mechanisms={"t": "gaussian"})
    assert dpf.Datetime("00:00", "23:59", "min") == dpf.Datetime(dt.timedelta(0), dt.timedelta(minutes=1439), "min")


@pytest.mark.walk(1)
@pytest.mark.parametrize("rows", [1_000, 40_000])
def test_synthetic_dates_carry_no_hours(rows: int) -> None:
    """Means within six standard errors: fails with probability 1e-8."""
    generator = np.random.default_rng(0)
    days = pd.Timestamp("2010-01-01") + pd.to_timedelta(generator.integers(0, 300, rows), unit="D")
    shift = pd.to_timedelta(generator.integers(9, 17, rows), unit="h")
    offices = pd.Timestamp("2010-01-01") + pd.to_timedelta(generator.integers(0, 20, rows), unit="D") + shift
    frame = pd.DataFrame({"day": days, "office": offices})
    frame.loc[::10, "day"] = pd.NaT
    safe = dpf.sanitize(frame, epsilon=4, key=KEY).dp
    assert getattr(safe.release.plan["day"].space, "inner", safe.release.plan["day"].space).resolution == "h"
    for drawn in (safe.synthesize(random_state=0), safe.synthesize(n_rows=500, random_state=0)):
        assert (drawn["day"].dropna() == drawn["day"].dropna().dt.floor("D")).all()
        assert (drawn["office"].dt.hour != 0).mean() > 0.5, "times that counts show stay"
        mean = safe.mean("day")
        error = mean["std_error"] + days.to_series().std() / len(drawn) ** 0.5
        assert abs(drawn["day"].mean() - mean["estimate"]) < 6 * error
