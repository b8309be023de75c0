"""A release of inferred spaces reads as its input does: types stay, and rare values break no reader."""

import datetime as dt
import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.inference.private import Measurement
from dpframe.spaces import Categorical, Nullable
from dpframe.spaces.field import Field

KEY, N = bytes(range(32)), 3_000
PLACES = np.random.default_rng(0).zipf(1.6, N) % 50
DAYS = np.datetime64("2020-01-01") + PLACES
TEXTS = {
    "year": [str(2000 + place) for place in PLACES],
    "day": np.datetime_as_string(DAYS).tolist(),
    "half": [str(place / 2) for place in PLACES],
    "month first": pd.DatetimeIndex(DAYS).strftime("%m/%d/%Y").tolist(),
    "hour": [f"{8 + place // 4}:{15 * (place % 4):02d} am" for place in PLACES],
    "price": [f"${place}.50" for place in PLACES],
    "quarter": [f"{2000 + place // 4}Q{1 + place % 4}" for place in PLACES],
}
VALUES = {
    "whole": PLACES.tolist(),
    "half": (PLACES / 2).tolist(),
    "truth": (PLACES % 2 == 0).tolist(),
    "day": [dt.date(2020, 1, 1) + dt.timedelta(int(place)) for place in PLACES],
}


def space_of(values, type_=None, nullable=True, name="x"):
    """The space that inference finds for the values of one column."""
    array = pa.array(values, type_)
    own = Measurement.of([Field(name, array.type, nullable)], len(array), Budget(2.0, 1e-6))
    return own.draw(lambda names: iter([dict.fromkeys(names, array)]), KEY).spaces[name]


@pytest.mark.parametrize("kind", TEXTS)
def test_rare_values_of_text_that_writes_numbers_or_dates_are_null(kind):
    """No word is a number or a date: one in the column would break whoever reads it as one."""
    space = space_of(TEXTS[kind])
    assert isinstance(space, Nullable)
    assert isinstance(space.inner_space, Categorical)
    assert space.inner_space.other is None
    assert set(space.inner_space.categories) < set(TEXTS[kind])
    # Without nulls in the column's type there is no null to read them as.
    assert space_of(TEXTS[kind], nullable=False).other == "other"


def test_rare_codes_with_leading_zeros_are_in_a_bucket():
    """As numbers they would lose the zeros, so that nobody reads the column as such: they became null."""
    space = space_of([f"{place:05}" for place in PLACES * 67])
    assert space.inner_space.other == "other"
    assert not isinstance(space, Nullable)


@pytest.mark.parametrize("rare", [0.0, 0.15])
def test_rare_values_that_became_null_are_warned_of(rare):
    """At a key that is fixed, by two standard errors of noisy counts."""
    rng = np.random.default_rng(1)
    values = np.where(rng.random(N) < rare, rng.integers(10_000, 99_999, N), rng.integers(1, 4, N)).astype(str)
    frame = pd.DataFrame({"plz": values, "sex": rng.choice(["F", "M"], N)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        safe = dpf.sanitize(frame, epsilon=3.0, delta=1e-6, key=KEY)
        dpf.sanitize(frame, plan=safe.dp.release.plan)
    said = [str(one.message) for one in caught if "rare values" in str(one.message)]
    assert len(said) == (2 if rare else 0)
    for line in said:
        remark = r"  plz  rare values are null, about (\d+) % of the rows  spaces=\{'plz': \[CATEGORY, …\]\}"
        share = re.fullmatch(remark, line.splitlines()[1])
        assert share is not None
        assert abs(float(share[1]) - 100 * np.mean(values.astype(int) > 3)) < 3


@pytest.mark.parametrize(("rest", "word"), [("Other", "Other"), ("OTHER", "OTHER"), ("else", "other")])
def test_rare_words_go_where_the_column_has_a_word_for_them(rest, word):
    values = ["yes"] * 1_500 + [rest] * 1_000 + [f"w{i}" for i in range(500)]
    space = space_of(values)
    assert space.other == word
    assert set(space.labels()) == {"yes", rest, word}


@pytest.mark.slow
@pytest.mark.parametrize("make", [list, pd.Categorical, lambda values: pd.Series(values, dtype=object)])
def test_text_that_writes_numbers_or_dates_is_read_as_such_after_a_release(make):
    frame = pd.DataFrame({kind: make(values) for kind, values in TEXTS.items()})
    with pytest.warns(dpf.InferenceWarning):
        safe = dpf.sanitize(frame, epsilon=2.0, key=KEY, measure=None)
    assert safe.dtypes.map(str).tolist() == frame.dtypes.map(str).tolist()
    pd.to_numeric(safe["year"].astype(object))
    pd.to_numeric(safe["half"].astype(object))
    pd.to_datetime(safe["day"].astype(object), format="%Y-%m-%d")
    pd.to_datetime(safe["month first"].astype(object), format="%m/%d/%Y")
    pd.PeriodIndex(safe["quarter"].astype(object).dropna(), freq="Q")


@pytest.mark.parametrize("nullable", [True, False])
def test_text_of_which_nothing_is_found_breaks_no_reader(nullable):
    many = [f"2020-01-01 {i // 60 // 60 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}" for i in range(N)]
    assert space_of(many, nullable=nullable) == Categorical(("",), other="")
    with pytest.warns(dpf.InferenceWarning, match="'at'"):
        safe = dpf.sanitize(pd.DataFrame({"at": many, "y": PLACES % 5}), epsilon=2.0, key=KEY)
    assert pd.to_datetime(safe["at"]).isna().all()
    assert pd.to_numeric(safe["at"]).isna().all()
    assert np.isnan(safe.dp.value_counts("at")["estimate"]).all()


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("make", [pd.Categorical, lambda values: pd.Series(values, dtype=object)])
@pytest.mark.slow
def test_categories_and_objects_keep_the_type_of_their_values(kind, make):
    frame = pd.DataFrame({"x": make(VALUES[kind]), "y": PLACES % 5})
    safe = dpf.sanitize(frame, epsilon=4.0, key=KEY)
    column = safe["x"].dropna()
    assert len(column) > N / 2
    assert {type(value) for value in column.astype(object)} == {type(VALUES[kind][0])}
    assert isinstance(safe["x"].dtype, pd.CategoricalDtype) == isinstance(frame["x"].dtype, pd.CategoricalDtype)
