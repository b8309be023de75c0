"""No statistic of a fresh release says that the release was altered, whatever its columns hold."""

import datetime as dt
import decimal
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from conftest import KEY

import dpframe as dpf

ROWS = 2_000


def _choices(*values, p=None):
    return lambda rng: pd.Series([values[i] for i in rng.choice(len(values), ROWS, p=p)], dtype=object)


def _with_nulls(make, missing=None, share=0.2):
    return lambda rng: make(rng).mask(pd.Series(rng.random(ROWS) < share), missing)


def _rare(rng):
    """Digits, a fifth of them in values that hardly any two rows have."""
    return pd.Series(np.where(rng.random(ROWS) < 0.2, rng.integers(10_000, 90_000, ROWS), rng.integers(1, 4, ROWS)))


DAYS = [dt.date(2024, 1, day) for day in range(1, 29)]
SETS = [["a"], ["a", "b"], ["c"], []]
KINDS = {
    "words": _choices("a", "b", "c"),
    "words_null": _with_nulls(_choices("a", "b", "c")),
    "digits": _choices("1", "2", "3"),
    "digits_null": _with_nulls(_choices("1", "2", "3")),
    "digits_few_null": _with_nulls(_choices("1", "2", "3"), share=0.01),
    "digits_rare": lambda rng: _rare(rng).astype(str),
    "zip": _choices("02116", "10001", "94110"),
    "iso": _choices("2024-01-01", "2024-02-01"),
    "times": _choices("2024-01-01T10:00", "2024-02-01T12:30"),
    "truth": _choices("true", "false"),
    "truth_null": _with_nulls(_choices("true", "false")),
    "quarters": _choices("2024Q1", "2024Q2"),
    "digits_category": lambda rng: _choices("1", "2", "3")(rng).astype("category"),
    "numbers_category": lambda rng: _choices(1, 2, 3)(rng).astype("category"),
    "ranks": lambda rng: pd.Series(pd.Categorical(_choices("lo", "hi")(rng), ["lo", "hi"], ordered=True)),
    "digit_ranks": lambda rng: pd.Series(pd.Categorical(_choices("1", "2")(rng), list("123"), ordered=True)),
    "objects": lambda rng: pd.Series(rng.integers(0, 60, ROWS)).astype(object),
    "dates": lambda rng: pd.Series(rng.choice(DAYS, ROWS), dtype=object),
    "decimals": lambda rng: pd.Series([decimal.Decimal(int(c)) / 4 for c in rng.integers(0, 99, ROWS)]),
    "booleans": lambda rng: pd.Series(rng.random(ROWS) < 0.3),
    "booleans_null": lambda rng: pd.Series(rng.random(ROWS) < 0.3, dtype="boolean").mask(rng.random(ROWS) < 0.2),
    "whole": lambda rng: pd.Series(rng.integers(0, 90, ROWS)),
    "whole_null": lambda rng: pd.Series(rng.integers(0, 90, ROWS), dtype="Int64").mask(rng.random(ROWS) < 0.2),
    "spiked": lambda rng: pd.Series(np.where(rng.random(ROWS) < 0.9, 0, rng.integers(0, 5_000, ROWS))),
    "reals": lambda rng: pd.Series(rng.gamma(2.0, 300.0, ROWS)),
    "reals_null": lambda rng: pd.Series(rng.gamma(2.0, 300.0, ROWS)).mask(rng.random(ROWS) < 0.2),
    "instants": lambda rng: pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 9_999, ROWS), "h")),
    "durations": lambda rng: pd.Series(pd.to_timedelta(rng.integers(0, 9_999, ROWS), "s")),
    "sets": _choices(*SETS),
    "number_sets": _choices([1], [1, 2], [3], []),
}
"""Kinds of columns by name: how they are drawn."""


def _alone(name):
    return lambda estimates, column: getattr(estimates, name)(column)


STATISTICS = [
    *map(_alone, ("value_counts", "top", "null_rate", "support", "set_sizes", "cooccurrence")),
    *map(_alone, ("mean", "histogram")),
    lambda estimates, column: estimates.value_counts(column, bins=5),
    lambda estimates, column: estimates.describe([column]),
    lambda estimates, column: estimates.count({column: {"not": None}}),
    lambda estimates, column: estimates.crosstab(column, "beside"),
    lambda estimates, column: estimates.joint([column, "beside"], bins={column: 3}),
    lambda estimates, column: estimates.synthesize(random_state=0),
]
"""Statistics of a column, some of them beside another."""

OPTIONS = {"tables": {}, "rows": {"measure": None}, "unshuffled": {"measure": None, "shuffle": False}}


@pytest.mark.walk(3)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::dpframe.DpframeWarning")
def test_no_statistic_takes_a_fresh_release_for_another(kind, options):
    """30 kinds by 3 releases by 14 statistics, keys fixed: each law of a column is in doubt with a chance of 1e-6."""
    rng = np.random.default_rng(list(KINDS).index(kind))
    frame = pd.DataFrame({"x": KINDS[kind](rng), "beside": rng.choice(["a", "b"], ROWS)})
    safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, key=KEY, **options)
    accused, answers = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpf.errors.AlteredReleaseWarning)
        for statistic in STATISTICS:
            try:
                # Each by itself: a column is in doubt once.
                statistic(dpf.Estimates(safe), "x")
                answers += 1
            except dpf.ParameterError:
                continue
            except dpf.errors.AlteredReleaseWarning as warning:
                accused.append(str(warning))
    assert not accused
    assert answers >= 4


@pytest.mark.filterwarnings("ignore:noisy counts hint at values")
@pytest.mark.parametrize("rare", [0.0, 0.15])
def test_counts_of_figures_are_used_whatever_was_not_found(rare):
    """Values that were not found are null, and no count is of all nulls; a key that is fixed, 4 of its errors."""
    rng = np.random.default_rng(5)
    values = np.where(rng.random(ROWS) < rare, rng.integers(10_000, 90_000, ROWS), rng.integers(1, 4, ROWS))
    frame = pd.DataFrame({"x": values.astype(str)})
    with pytest.warns(dpf.InferenceWarning, match="x  rare values are null") if rare else nullcontext():
        estimates = dpf.Estimates(dpf.sanitize(frame, epsilon=2, measure=None, key=KEY))
    found = estimates.value_counts("x", sort=False, dropna=False)
    assert found.attrs["measured"]
    truth = np.append([(values == i).sum() for i in (1, 2, 3)], (values > 3).sum())
    assert (np.abs(found["estimate"] - truth) < 4 * found["std_error"]).all()
    assert abs(estimates.null_rate("x")["estimate"] - truth[-1] / ROWS) < 4 * estimates.null_rate("x")["std_error"]
