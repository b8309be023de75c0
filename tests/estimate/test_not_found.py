"""Estimates of columns whose spaces private inference did not find."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.inference.inferred import Inferred, Measured
from dpframe.plan.build import build_plan

FRAME = pd.DataFrame({"c": pd.Series([None, "a", "b", "z"] * 250, dtype="string")})
SPACE = dpf.Nullable(dpf.Categorical(["a", "b", "other"], other="other"))


def estimates(*measured):
    inferred = Inferred(Budget(0.1, 1e-7), ("c",), measured, (("c", 100),))
    plan = build_plan({"c": SPACE}, epsilon=4.0, n=1_000, inferred=inferred)
    return dpf.Estimates(dpf.sanitize(FRAME, plan=plan, key=bytes(32)), use_measured=False)


def test_a_rate_of_nulls_rests_on_no_list_of_values():
    e = estimates(Measured("c", "values", ("a",), (250,), 400.0))
    assert e.value_counts("c")["estimate"].isna().all()
    rate = e.null_rate("c")
    assert abs(rate["estimate"] - 0.25) < 5 * rate["std_error"]  # error probability 6e-7


def test_what_is_nan_is_warned_of_and_what_is_refused_says_why():
    e = estimates(Measured("c", "values", ("a",), (250,), 400.0))
    said = r"did not find the spaces.*estimates are NaN.*\n  c  more .*  spaces={'c': \[CATEGORY, …\]}$"
    for ask in (lambda: e.value_counts("c"), lambda: e.count({"c": "a"}), lambda: e.top("c")):
        with pytest.warns(dpf.InferenceWarning, match=said) as caught:
            ask()
        assert len(caught) == 1
    with pytest.raises(dpf.ParameterError, match=r"takes no bins; not found: c: "):
        e.histogram("c")


@pytest.mark.filterwarnings("ignore::dpframe.DpframeWarning")
def test_objects_of_a_kind_that_was_not_found_are_read_as_nulls():
    rate = estimates(Measured("c", "kinds", ("text", "list of numbers"), (10, 500), 400.0)).null_rate("c")
    assert np.isnan(rate["estimate"])
    assert "not found" in rate.attrs["not_found"]["c"]


@pytest.mark.filterwarnings("ignore::dpframe.DpframeWarning")
def test_means_by_group_of_what_was_not_found_say_nothing_of_groups():
    frame = pd.DataFrame({"spent": np.random.default_rng(1).lognormal(4, 1, 300), "sex": ["F", "M"] * 150})
    with pytest.warns(dpf.InferenceWarning, match="spent"):
        safe = dpf.sanitize(frame, epsilon=0.1, spaces={"sex": ["F", "M"]}, key=bytes(32))
    with pytest.warns(dpf.InferenceWarning) as caught:
        assert safe.dp.mean("spent", by="sex")["estimate"].isna().all()
    assert [str(w.message).split(" of ")[0] for w in caught] == ["private inference did not find the spaces"]


def towns(rare):
    """Return a release of two regions, and of towns of which a share has too few rows to be found, at ε = 4."""
    n = 3_000
    place = np.arange(n)
    frame = pd.DataFrame({"region": np.where(place % 3, "north", "south"), "age": place % 90})
    frame["town"] = np.where(place % 100 < rare, "hamlet " + pd.Series(place).astype(str), frame["region"] + "ern")
    return dpf.sanitize(frame, epsilon=4, spaces={"age": (0, 99)}, key=bytes(32))


def test_a_bucket_that_inference_added_shows_where_rows_are_in_it():
    """300 of 3,000 rows are 20 standard errors; a bucket without rows shows in 2.5 % of releases, and not of this key.

    Results and synthetic rows named an ``other`` that no row and no user had heard of.
    """
    ask = towns(0).dp
    assert all(ask.release.plan[name].space.other == "other" for name in ("region", "town"))
    assert set(ask.value_counts("region").index) == {"north", "south"}
    assert set(ask.top("region").index) == {"north", "south"}
    assert ask.joint(["region", "town"]).index.tolist() == [
        (region, f"{town}ern") for region in ("north", "south") for town in ("north", "south")
    ]
    cross = ask.crosstab("region", "town", margins=True)["estimate"]
    assert (list(cross.index), list(cross.columns)) == (
        ["north", "south", "All"],
        ["northern", "southern", "All"],
    )
    assert set(ask.mean("age", by="region").index) == {"north", "south"}
    for rows in (None, 500):
        drawn = ask.synthesize(rows, random_state=0)
        assert set(drawn["region"]) == {"north", "south"}
        assert set(drawn["town"]) == {"northern", "southern"}


def test_a_bucket_with_rows_is_shown():
    ask = towns(10).dp
    assert set(ask.value_counts("town").index) == {"northern", "southern", "other"}
    assert "other" in set(ask.crosstab("region", "town")["estimate"].columns)
    assert abs((ask.synthesize(3_000, random_state=0)["town"] == "other").mean() - 0.1) < 0.03


def test_a_bucket_that_was_declared_is_always_shown():
    frame = pd.DataFrame({"region": ["north", "south"] * 500})
    space = dpf.Categorical(["north", "south"], other="other")
    safe = dpf.sanitize(frame, epsilon=4, spaces={"region": space}, key=bytes(32))
    assert set(safe.dp.value_counts("region").index) == {"north", "south", "other"}
