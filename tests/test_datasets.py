"""The census table and the population it is drawn from."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checks import refused
from scipy import integrate, stats

from dpframe import datasets
from dpframe.datasets import (
    COLUMNS,
    EDUCATION,
    HOBBIES,
    INCOME_MAX,
    OCCUPATIONS,
    REGIONS,
    SEXES,
    census_population,
    make_census,
)

FLAT = list(COLUMNS[:7])
N = 200_000
SE = 5.0
# The binomial tails beyond 5 standard errors, summed over the 114 cells of the five marginals, come to
# 7e-5; the other ten comparisons of this module add 6e-7 each.  A correct model therefore fails with a
# fresh seed less than once in ten thousand, and with the fixed seed always gives the same answer.


@pytest.fixture(scope="module")
def large() -> pd.DataFrame:
    return make_census(N, random_state=20, columns=FLAT)


@pytest.fixture(scope="module")
def small() -> pd.DataFrame:
    return make_census(3000, random_state=3)


@pytest.fixture(scope="module")
def population() -> dict[str, Any]:
    return census_population()


def check_dtypes(people: pd.DataFrame) -> None:
    assert list(people.columns) == list(COLUMNS)
    assert people["age"].dtype == np.int64
    assert people["sex"].dtype == pd.CategoricalDtype(list(SEXES), ordered=False)
    assert people["education"].dtype == pd.CategoricalDtype(list(EDUCATION), ordered=True)
    assert people["region"].dtype == pd.CategoricalDtype(list(REGIONS), ordered=False)
    # What pandas makes of plain strings: `str` from pandas 3 on, `object` before.
    assert people["occupation"].dtype == pd.Series(["a"]).dtype
    assert people["income"].dtype == np.float64
    assert people["birth_date"].dtype == np.dtype("datetime64[s]")
    assert people["hobbies"].dtype == np.dtype(object)
    assert people["load_curve"].dtype == np.dtype(object)


def test_dtypes(small: pd.DataFrame) -> None:
    assert small.shape == (3000, 9)
    assert isinstance(small.index, pd.RangeIndex)
    check_dtypes(small)


@pytest.mark.skipif(int(pd.__version__.split(".")[0]) < 3, reason="strings are a dtype from pandas 3 on")
def test_occupation_is_str_with_pandas_3(small: pd.DataFrame) -> None:
    assert small["occupation"].dtype == "str"


def test_empty_table() -> None:
    people = make_census(0)
    assert people.shape == (0, 9)
    check_dtypes(people)


def test_default_size() -> None:
    assert make_census(columns=["age"]).shape == (10_000, 1)


def test_same_seed_same_table(small: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(small, make_census(3000, random_state=3))


@pytest.mark.parametrize("column", COLUMNS)
def test_other_seed_other_values(small: pd.DataFrame, column: str) -> None:
    assert not small[column].equals(make_census(3000, random_state=4, columns=[column])[column])


@pytest.mark.parametrize("column", COLUMNS)
def test_column_alone_equals_column_in_full_table(small: pd.DataFrame, column: str) -> None:
    pd.testing.assert_frame_equal(small[[column]], make_census(3000, random_state=3, columns=[column]))


def test_columns_come_in_the_order_asked_for(small: pd.DataFrame) -> None:
    wanted = ["income", "hobbies", "age", "occupation"]
    pd.testing.assert_frame_equal(small[wanted], make_census(3000, random_state=3, columns=wanted))


def test_no_columns_keeps_the_rows() -> None:
    assert make_census(5, columns=[]).shape == (5, 0)


def test_short_table_is_the_head_of_a_long_one(small: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.testing.assert_frame_equal(small.head(100), make_census(100, random_state=3))
    monkeypatch.setattr(datasets, "_SLICE_ROWS", 7)
    pd.testing.assert_frame_equal(small.head(100), make_census(100, random_state=3))


def test_numpy_integers_are_integers() -> None:
    people = make_census(np.int32(4), random_state=np.uint8(2), columns=["age"])
    pd.testing.assert_frame_equal(people, make_census(4, random_state=2, columns=["age"]))


@pytest.mark.parametrize("name", ["age", "sex", "education", "region", "occupation"])
def test_marginal(large: pd.DataFrame, population: dict[str, Any], name: str) -> None:
    expected = population[name]
    values = large[name].dropna()
    found = values.value_counts(normalize=True).reindex(expected.index, fill_value=0.0)
    error = np.sqrt(expected * (1 - expected) / len(values))
    assert set(values.unique()) <= set(expected.index)
    assert (abs(found - expected) < SE * error).all()


@pytest.mark.parametrize("column", ["age", "income"])
def test_mean(large: pd.DataFrame, population: dict[str, Any], column: str) -> None:
    values = large[column].dropna()
    assert abs(values.mean() - population[f"mean_{column}"]) < SE * values.sem()


def test_mean_age_by_education(large: pd.DataFrame, population: dict[str, Any]) -> None:
    ages = large.groupby("education", observed=True)["age"]
    assert (abs(ages.mean() - population["mean_age_by_education"]) < SE * ages.sem()).all()


@pytest.mark.parametrize("column", ["occupation", "income"])
def test_null_rate(large: pd.DataFrame, population: dict[str, Any], column: str) -> None:
    rate = population[f"{column}_null_rate"]
    error = math.sqrt(rate * (1 - rate) / N)
    assert abs(large[column].isna().mean() - rate) < SE * error


def test_only_occupation_and_income_have_nulls(small: pd.DataFrame) -> None:
    assert set(small.columns[small.isna().any()]) == {"occupation", "income"}


def test_structural_zeros(large: pd.DataFrame) -> None:
    assert not large.loc[large["age"] <= 20, "education"].isin(["bachelor", "master"]).any()
    assert (large.loc[large["occupation"] == "physician", "education"] == "master").all()


def test_bounds(large: pd.DataFrame) -> None:
    assert large["age"].min() == 18
    assert large["age"].max() == 95
    income = large["income"].dropna()
    assert income.min() >= 0
    assert income.max() == INCOME_MAX


def test_birth_date_gives_the_age(large: pd.DataFrame) -> None:
    born = large["birth_date"].dt
    # On 1 January only those born on that very day have had their birthday of the year.
    had_birthday = (born.month == 1) & (born.day == 1)
    assert (2026 - born.year - 1 + had_birthday == large["age"]).all()
    assert had_birthday.any()
    assert ((born.month == 12) & (born.day == 31)).any()
    assert ((born.month == 2) & (born.day == 29)).any()


def test_hobbies(small: pd.DataFrame) -> None:
    for liked in small["hobbies"]:
        assert type(liked) is list
        assert len(set(liked)) == len(liked) <= 6
        assert set(liked) <= set(HOBBIES)
    assert set(small["hobbies"].map(len)) == set(range(7))
    each = small[["age", "hobbies"]].explode("hobbies").dropna()
    assert set(each["hobbies"]) == set(HOBBIES)
    counts = each["hobbies"].value_counts()
    assert counts["watching films"] > 2 * counts["swimming"]
    mean_age = each.groupby("hobbies")["age"].mean()
    assert mean_age["video games"] + 5 < mean_age["gardening"]


def test_load_curve(small: pd.DataFrame) -> None:
    assert all(type(curve) is list and len(curve) == 24 for curve in small["load_curve"])
    assert all(type(load) is float for load in small["load_curve"].iloc[0])
    curves = np.array(small["load_curve"].tolist())
    assert np.isfinite(curves).all()
    assert curves.min() > 0
    # Smooth: neighbouring hours, midnight included, differ far less than two hours picked anyhow.
    step = np.abs(curves - np.roll(curves, 1, axis=1)).mean()
    assert step < 0.5 * np.abs(curves - np.roll(curves, 8, axis=1)).mean()


def test_labels() -> None:
    assert (len(SEXES), len(EDUCATION), len(OCCUPATIONS), len(REGIONS), len(HOBBIES)) == (2, 6, 12, 16, 24)
    for labels in (SEXES, EDUCATION, OCCUPATIONS, REGIONS, HOBBIES):
        assert len(set(labels)) == len(labels)
    assert sum(not name.isascii() for name in REGIONS) >= 2


def test_population_is_coherent(population: dict[str, Any]) -> None:
    for name, labels in {
        "age": range(18, 96),
        "sex": SEXES,
        "education": EDUCATION,
        "region": REGIONS,
        "occupation": OCCUPATIONS,
    }.items():
        assert list(population[name].index) == list(labels)
        assert population[name].index.name == name
        assert population[name].sum() == pytest.approx(1, abs=1e-12)
    by_education = (population["education"] * population["mean_age_by_education"]).sum()
    assert by_education == pytest.approx(population["mean_age"], rel=1e-12)
    for name in ("mean_age", "mean_income", "occupation_null_rate", "income_null_rate"):
        assert type(population[name]) is float


@pytest.mark.parametrize("log_sd", [0.3, 0.6, 1.5])
def test_clipped_lognormal_mean_against_quadrature(log_sd: float) -> None:
    log_median, upper = math.log(60e3), 100e3
    income = stats.lognorm(log_sd, scale=math.exp(log_median))
    # A non-negative variable's mean is the area under its survival function.
    area, _ = integrate.quad(income.sf, 0, upper, epsabs=1e-6)
    assert float(datasets._clipped_lognormal_mean(log_median, log_sd, upper)) == pytest.approx(area, rel=1e-9)


@pytest.mark.parametrize("bad", [-1, 2.0, "10", None, True])
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("n_rows", "pass the number of people to draw, such as n_rows=1000"),
        ("random_state", "pass a whole-number seed, such as random_state=0"),
    ],
)
def test_refuses_what_is_no_count(name: str, remedy: str, bad: Any) -> None:
    text = f"{name} must be an integer of at least 0, got {bad!r}; {remedy}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        make_census(**{name: bad, "columns": ["age"]})


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            ["age", "salary"],
            "columns must name columns of the census, got 'salary'; choose from age, sex, education, "
            "occupation, region, income, birth_date, hobbies, load_curve",
        ),
        ([3], "columns must name columns of the census, got 3; choose from age, sex, education, "),
        (["age", "sex", "age"], "columns must name each column once, got 'age' twice; drop the repetition"),
        ("age", "columns must be a list of column names, got 'age'; write columns=[\"age\"] for one column"),
        (7, 'columns must be a list of column names, got 7; write columns=["age"] for one column'),
    ],
)
def test_refuses_columns(columns: Any, text: str) -> None:
    refused(ValueError, f"^{re.escape(text)}", lambda: make_census(5, columns=columns))
