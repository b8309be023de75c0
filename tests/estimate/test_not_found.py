"""Estimates of columns whose spaces private inference did not find."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.plan.build import build_plan
from dpframe.plan.inferred import Inferred, Measured

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
    said = r"private inference did not find the spaces of c \(.*\): estimates are NaN; declare the space"
    for ask in (lambda: e.value_counts("c"), lambda: e.count({"c": "a"}), lambda: e.top("c")):
        with pytest.warns(dpf.InferenceWarning, match=said) as caught:
            ask()
        assert len(caught) == 1
    with pytest.raises(dpf.ParameterError, match=r"takes no bins; it was not found: c \("):
        e.histogram("c")


@pytest.mark.filterwarnings("ignore::dpframe.DpframeWarning")
def test_objects_of_a_kind_that_was_not_found_are_read_as_nulls():
    rate = estimates(Measured("c", "kinds", ("text", "list of numbers"), (10, 500), 400.0)).null_rate("c")
    assert np.isnan(rate["estimate"])
    assert "not found" in rate.attrs["not_found"]["c"]


@pytest.mark.filterwarnings("ignore::dpframe.DpframeWarning")
def test_means_by_group_of_what_was_not_found_say_nothing_of_groups():
    frame = pd.DataFrame({"spent": np.random.default_rng(1).lognormal(4, 1, 300), "sex": ["F", "M"] * 150})
    with pytest.warns(dpf.InferenceWarning, match="'spent'"):
        safe = dpf.sanitize(frame, epsilon=0.5, spaces={"sex": ["F", "M"]}, key=bytes(32))
    with pytest.warns(dpf.InferenceWarning) as caught:
        assert safe.dp.mean("spent", by="sex")["estimate"].isna().all()
    assert [str(w.message).split(" of ")[0] for w in caught] == ["private inference did not find the spaces"]
