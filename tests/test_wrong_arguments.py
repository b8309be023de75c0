"""Arguments of a wrong kind are refused in one line by an error of ours, whatever they are, and nothing is spent."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.errors import DpframeError

# What compares, hashes or iterates in an odd way: `value in NAMES` and `value or {}` raise for some of them.
ODD = [
    pd.Series([1, 2]),
    pd.DataFrame({"a": [1]}),
    np.array([1, 2]),
    pd.NA,
    ["age"],
    {"age": [1]},
    set(),
    object(),
    "\ud800",
    1j,
    float("nan"),
]
FRAME = pd.DataFrame({"age": np.arange(60), "sex": ["F", "M", "M"] * 20})
SPACES: dict[str, Any] = {"age": (0, 90), "sex": ["F", "M"]}


def refused_in_one_line(call: Any, *args: Any, **options: Any) -> None:
    try:
        call(*args, **options)
    except DpframeError as error:
        assert "\n" not in str(error)
    # Any other exception fails the test by itself; some options take some of these values.


@pytest.mark.parametrize(
    "option",
    [
        "infer",
        "allocation",
        "mechanisms",
        "nulls",
        "privacy_id",
        "sample",
        "compression",
        "numbers",
        "ordinals",
        "sets",
        "measure",
        "drop",
    ],
)
def test_options_of_a_release(option: str, tmp_path: Any) -> None:
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 100.0, 1e-3)
    account = ledger.account("survey")
    for value in ODD:
        before = len(ledger.history())
        given: Any = {"epsilon": 1, "delta": 1e-6, "spaces": SPACES, "ledger": account, option: value}
        try:
            dpf.sanitize(FRAME, **given)
        except DpframeError as error:
            assert "\n" not in str(error)
            assert len(ledger.history()) == before, f"{option}={type(value).__name__} was refused after it was paid"


ANSWERS: dict[str, tuple[Any, ...]] = {
    "count": ({"sex": "F"},),
    "mean": ("age",),
    "crosstab": ("sex", "age"),
    "quantile": ("age",),
    "second_moments": (["age"],),
}


@pytest.mark.parametrize("question", sorted(ANSWERS))
def test_questions(question: str) -> None:
    """Names of columns and of mechanisms are compared as text only."""
    for value in ODD:
        q = dpf.Queries(FRAME, 1, SPACES, delta=1e-6)
        ask, args = getattr(q, question), ANSWERS[question]
        refused_in_one_line(ask, *args, share=0.1, mechanism=value)
        assert q.spent.epsilon == 0
        refused_in_one_line(ask, value, *args[1:], share=0.1)
    for value in ODD:
        with pytest.raises(DpframeError, match=r"^neighbours must be one of"):
            dpf.Queries(FRAME, 1, SPACES, neighbours=value)


STATISTICS: dict[str, tuple[tuple[Any, ...], str]] = {
    "value_counts": (("sex",), "normalize sort ascending dropna method target"),
    "crosstab": (("sex", "age"), "margins dropna normalize method target bins"),
    "joint": ((["sex"],), "normalize dropna method target bins"),
    "count": (({"sex": "F"},), "normalize method target"),
    "mean": (("age",), "method target weights"),
    "sum": (("age",), "target weights"),
    "quantile": (("age",), "target column"),
    "histogram": (("age",), "density target"),
    "support": (("sex",), "normalize how target"),
}


@pytest.fixture(scope="module")
def estimates() -> dpf.Estimates:
    return dpf.sanitize(FRAME, epsilon=3, delta=1e-6, spaces=SPACES, key=bytes(32)).dp.estimates()


@pytest.mark.parametrize("statistic", sorted(STATISTICS))
def test_statistics(estimates: dpf.Estimates, statistic: str) -> None:
    args, names = STATISTICS[statistic]
    for name in names.split():
        for value in ODD:
            positional = () if name == "column" else args
            refused_in_one_line(getattr(estimates, statistic), *positional, **{name: value})


def test_flags_are_true_or_false(estimates: dpf.Estimates) -> None:
    for value in (1, "yes", None, *ODD):
        with pytest.raises(DpframeError, match=r"^normalize must be True or False$"):
            estimates.value_counts("sex", normalize=value)
    assert estimates.value_counts("sex", normalize=np.bool_(True))["estimate"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "space",
    [dpf.Boolean(), dpf.Integer(0, 9), dpf.Real(0, 1), dpf.Subset(["a", "b"]), dpf.Nullable(dpf.Boolean())],
    ids=lambda space: type(space).__name__,
)
def test_spaces(space: Any) -> None:
    for value in (*ODD, None, 3, "x"):
        refused_in_one_line(space.decode, value)
        refused_in_one_line(space.distance, value, value)
        refused_in_one_line(space.encode, [value])
        assert space.contains(value) in (True, False)
    for norm in ODD:
        with pytest.raises(DpframeError, match=r"^norm must be one of l1, l2, linf$"):
            dpf.Vector(2, 1.0, norm)


@pytest.mark.parametrize("values", [["\ud800", "b"], [10**30, 1]], ids=["no text", "too large"])
def test_values_that_no_file_holds_are_not_shown(values: list[Any], tmp_path: Any) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    with pytest.raises(
        DpframeError,
        match=r"^column 'x' cannot be.*\.sparse\.to_dense\(\), or drop it$",
    ):
        dpf.write(frame, tmp_path / "out.parquet")


def test_a_transformer_shows_no_value_and_no_second_line() -> None:
    model = dpf.Sanitizer(2, 1e-6, spaces=SPACES)
    with pytest.raises(dpf.ParameterError, match=r"^X is an array.*whose columns has"):
        model.fit(FRAME.to_numpy())
    with pytest.raises(dpf.ParameterError, match=r"^X has a column.*must be unique$"):
        model.fit(pd.concat([FRAME, FRAME], axis=1))


CALLS = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}")
    for kind in (dpf.RawAccessor, dpf.ReleaseAccessor, dpf.Estimates, dpf.Queries)
    for name, _ in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and name not in ("plot", "clipped_at")
]


@pytest.fixture(scope="module")
def subjects() -> dict[type, Any]:
    safe = dpf.sanitize(FRAME, epsilon=3, delta=1e-6, spaces=SPACES, key=bytes(32))
    return {
        dpf.RawAccessor: FRAME.dp,
        dpf.ReleaseAccessor: safe.dp,
        dpf.Estimates: safe.dp.estimates(),
        dpf.Queries: dpf.Queries(FRAME, 1, SPACES),
    }


@pytest.mark.parametrize(("kind", "name"), CALLS)
def test_a_call_that_no_signature_takes(subjects: dict[type, Any], kind: type, name: str) -> None:
    """It is refused in one line, which ends with a call that the signature takes."""
    method = getattr(subjects[kind], name)
    with pytest.raises(dpf.ParameterError, match=rf"^{name} takes ") as many:
        method(*["age"] * 40)
    with pytest.raises(dpf.ParameterError, match=r"has no argument 'colum'; it takes |^colum is no option of a plan; "):
        method(colum="age")
    example = str(many.value).partition(", e.g. ")[2].partition("; by groups")[0]
    fits = {
        other: lambda *args, _of=function, **kwargs: inspect.signature(_of).bind(None, *args, **kwargs)
        for other, function in inspect.getmembers(kind, inspect.isfunction)
    }
    placeholders = dict.fromkeys(("plan", "utility")) if name in ("check", "select") else {}
    assert eval(example.removesuffix('.save("report.html")'), {**fits, **placeholders}) is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.count(visits=10), r"^count has no argument 'visits'; it takes where, .*, e\.g\. count\(\{"),
        (
            lambda e: e.corr("age", "sex", "w"),
            r"^corr takes columns, other by position and weights, target, .* by name, e\.g\. corr\(\"",
        ),
        (lambda e: e.median("age", bins=3), r"^median has no argument 'bins'.*e\.g\. median\(\"age\", by="),
        (lambda e: e.mean(), r'^mean needs column, e\.g\. mean\("age", by="sex"\)$'),
        (lambda e: e.mean("age", column="age"), r"^mean was given column twice, e\.g\. "),
        (lambda e: e.crosstab("sex", "age", "sex"), r"^crosstab takes two columns; more are for joint"),
        (lambda e: e.verify("x"), r"^verify takes no arguments, e\.g\. verify\(\)$"),
    ],
)
def test_misplaced_arguments(estimates: dpf.Estimates, call: Any, message: str) -> None:
    with pytest.raises(dpf.ParameterError, match=message):
        call(estimates)
