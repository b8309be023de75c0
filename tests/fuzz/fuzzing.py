"""What tests by random input share: how many cases there are, values of any kind, and what may come of a case.

`DPFRAME_FUZZ=100000` runs as many cases over all targets together; else a slice of each is run.
"""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpframe.errors import DpframeError, DpframeWarning

CASES = int(os.environ.get("DPFRAME_FUZZ", "0"))

SECRET = "swordfish"
SECRET_NUMBER = 918273645
"""Values of the data that no message may hold."""


def cases(share: float, few: int) -> settings:
    """Return how many cases a target has: its share of all of them, or a few; what fails is not written down."""
    return settings(
        max_examples=round(CASES * share) if CASES else few,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def outcome(call: Callable[[], object]) -> str:
    """Run a case: return "works", or the name of the error of dpframe that it is refused with.

    Any other error, a warning that is not dpframe's, and a message that holds a value of the data fail the test.
    """
    with warnings.catch_warnings(record=True, action="always") as given:
        try:
            call()
            found = "works"
        except DpframeError as error:
            check_message(error)
            found = type(error).__name__
    for one in given:
        assert issubclass(one.category, DpframeWarning), one
        assert_quiet(str(one.message))
    return found


def check_message(error: BaseException) -> None:
    """Check that a message is one line, and that neither it nor what it was raised from shows the data."""
    assert "\n" not in str(error)
    assert len(str(error)) > 10
    quoted: BaseException | None = error
    while quoted is not None:
        assert_quiet(str(quoted))
        quoted = quoted.__cause__ or quoted.__context__


def assert_quiet(text: str) -> None:
    """Check that a text shows nothing of the data."""
    plain = text.replace(",", "").replace("_", "")
    assert SECRET not in text, text
    assert str(SECRET_NUMBER) not in plain, text


@contextmanager
def counted(name: str) -> Iterator[Counter[str]]:
    """Give a counter of outcomes, and print it in the end."""
    found: Counter[str] = Counter()
    try:
        yield found
    finally:
        print(f"\n{name}: {sum(found.values()):,} cases, {dict(found.most_common())}")


# ------------------------------------------------------------------------------------------- values of any kind

NUMBERS = st.one_of(
    st.integers(-3, 130),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e308, 0.1, 0.5, 1.0, 1 - 2**-53, float("nan"), float("inf")]),
)

WORDS = [
    *["boolean", "categorical", "ordinal", "integer", "real", "datetime", "subset", "vector", "curve", "nullable"],
    *["product", "l1", "l2", "linf", "D", "h", "s", "us", "ns", "2020-01-01", "2021-01-01T00:00:00", "1 days", "auto"],
    *["error", "impute", "other", "rbf", "a", "b", "", "\ud800", "\x00", "nan", "é", "0"],
]

TEXTS = st.sampled_from(WORDS) | st.text(max_size=6)

LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)

FIELDS = [
    *["space", "inner", "lower", "upper", "step", "steps", "categories", "items", "other", "max_size", "resolution"],
    *["length", "bound", "norm", "bits", "grid", "kernel", "rank", "spaces", "name", "mechanism", "epsilon", "delta"],
]

JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner, max_size=4),
    max_leaves=8,
)
"""What JSON may hold."""

ODD = [
    *[Decimal("1.5"), Decimal("NaN"), Fraction(1, 3), b"a", 1 + 2j, ..., object(), int, len, range(3), {1, 2}],
    *[dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime.max, dt.time(1)],
    *[dt.timedelta(days=1), dt.timedelta.max, pd.Timestamp("2020"), pd.NaT, pd.NA, pd.Timedelta(1), pd.Interval(0, 1)],
    *[np.int8(3), np.uint64(2**64 - 1), np.float32(0.1), np.float64("nan"), np.bool_(True), np.datetime64("NaT", "s")],
    *[
        np.datetime64("2020"),
        np.arange(3),
        np.complex128(1j),
        np.zeros((2, 2)),
        np.array("a"),
        np.array([]),
        pd.Series([1, 2]),
    ],
    *[pd.CategoricalDtype(), pd.CategoricalDtype(["a", "b"], ordered=True), pd.CategoricalDtype([1.5]), pd.Index([])],
]
"""Python values of all kinds that somebody may pass where a number, a text or a list is meant."""

ANYTHING = st.recursive(
    LEAVES | st.sampled_from(ODD),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner, max_size=4),
    ),
    max_leaves=6,
)
"""JSON and Python values, within one another."""
