"""Private inference through the faces: no value makes it fail, and what it spends is inside the promise."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import KEY
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import examples

import dpframe as dpf
from dpframe import Boolean, Categorical, Integer, Nullable, Subset
from dpframe.errors import ColumnError, ParameterError, RepeatedReleaseWarning

DELTA = 1e-6

# Tests ask for spaces of like tables again and again.
pytestmark = pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")

# ------------------------------------------------------------------------------------------------ never a failure

WORDS = ["", "a", "b\0", "café", "日本", "\U0001f600", "x" * 300, "other"]
FLOATS = [0.0, -0.0, 1.5, -1e308, 1.7e308, 5e-324, math.inf, -math.inf, math.nan]
WHOLE = [0, 1, -1, 41, 2**31, -(2**63), 2**63 - 1]
LISTS: list[Any] = [[], ["a"], ["a", "a"], ["a", None], [None], list("abcdefghijklm"), None]
CURVES: list[Any] = [[0.5, 1.0], [1e308, -1e308], [math.nan, 0.0], [None, 1.0], [math.inf, 0.0], [0.0, 0.0], [], [1.0]]
ODD: list[Any] = [None, "a", "\ud800", 3, 2**80, -1.5, math.nan, math.inf, True, b"x", pd.NA, pd.NaT, dt.date(1, 1, 1)]
ODD += [["a", "b"], {"a"}, ("b", 3), {"k": 1}, [["a"], ["b"]], np.array(["a", "b"]), object, dt.timedelta.max]
TICKS = [0, 1, -1, 10**9, 2**62, -(2**62), 2**63 - 1, -(2**63) + 1]

ARROW: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 0, 127]),
    (pa.int64(), WHOLE),
    (pa.uint64(), [0, 7, 2**64 - 1]),
    (pa.float32(), [0.0, 3.0e38, -1e-45, math.inf, math.nan]),
    (pa.float64(), FLOATS),
    (pa.string(), WORDS),
    (pa.large_string(), WORDS),
    (pa.string_view(), WORDS),
    (pa.dictionary(pa.int32(), pa.string()), WORDS),
    (pa.dictionary(pa.int32(), pa.int64()), WHOLE),
    (pa.date32(), [-(2**31), 0, 2**31 - 1]),
    (pa.timestamp("s"), TICKS),
    (pa.timestamp("ns", "UTC"), TICKS),
    (pa.duration("us"), TICKS),
    (pa.list_(pa.string()), LISTS),
    (pa.large_list(pa.large_string()), LISTS),
    (pa.list_(pa.string_view()), LISTS),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), LISTS),
    (pa.list_(pa.string(), 2), [["a", "b"], ["a", None], ["c", "c"]]),
    (pa.list_(pa.float64()), CURVES),
    (pa.large_list(pa.float32()), CURVES),
    (pa.list_(pa.float64(), 2), [curve for curve in CURVES if len(curve) == 2]),
]


def arrow_column(type_: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_temporal(type_):
        physical = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        return pa.array(values, physical).view(type_)
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    return pa.array(values, type_)


def objects(values: list[Any]) -> pd.Series[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return pd.Series(column, dtype=object)


PANDAS: list[Any] = [
    (ODD, objects),
    (WORDS[:4], objects),
    (LISTS, objects),
    (CURVES, objects),
    ([np.array([0.5, 1.5]), np.array([math.nan, 1.0]), np.array([[0.5]]), None], objects),
    ([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], objects),
    (FLOATS, lambda v: pd.Series(v, dtype="float64")),
    (FLOATS[:3], lambda v: pd.Series(v, dtype="float16")),
    (WHOLE, lambda v: pd.Series(v, dtype="int64")),
    ([*WHOLE, None], lambda v: pd.Series(v, dtype="Int64")),
    ([0, 2**64 - 1], lambda v: pd.Series(v, dtype="uint64")),
    ([True, False], lambda v: pd.Series(v, dtype="bool")),
    ([True, None], lambda v: pd.Series(v, dtype="boolean")),
    (WORDS, lambda v: pd.Series(v, dtype="str")),
    (WORDS, lambda v: pd.Series(pd.Categorical(v, sorted(WORDS)[::-1]))),
    (["a", None], lambda v: pd.Series(pd.Categorical(v, ["z", "a"], ordered=True))),
    (WHOLE, lambda v: pd.Series(pd.Categorical(v, sorted(WHOLE)))),
    (TICKS, lambda v: pd.Series(np.array(v, "M8[ns]"))),
    (TICKS, lambda v: pd.Series(np.array(v, "m8[s]"))),
    (LISTS, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.list_(pa.string())))),
]


@st.composite
def tables(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["pandas", "arrow", "polars"]))
    n = draw(st.sampled_from([0, 1, 2, 3, 40]))
    count = draw(st.integers(1, 2))
    columns: dict[str, Any] = {}
    for i in range(count):
        nulls = draw(st.sampled_from(["none", "some", "all"]))
        if kind == "pandas":
            pool, make = draw(st.sampled_from(PANDAS))
            columns[f"c{i}"] = make([draw(st.sampled_from(pool)) for _ in range(n)])
        else:
            type_, pool = draw(st.sampled_from(ARROW))
            pool = {"none": pool, "some": [*pool, None], "all": [None]}[nulls]
            columns[f"c{i}"] = arrow_column(type_, [draw(st.sampled_from(pool)) for _ in range(n)])
    if kind == "pandas":
        return pd.DataFrame(columns)
    table = pa.table(columns)
    if kind == "arrow":
        return table
    t = pa.types
    foreign = any(t.is_dictionary(f.type) or t.is_fixed_size_list(f.type) or t.is_date(f.type) for f in table.schema)
    return table if foreign else pl.from_arrow(table)


@pytest.mark.slow
@given(tables(), st.sampled_from([1e-3, 1.0, 20.0]))
@settings(max_examples=examples(12))
def test_no_table_makes_private_inference_fail(table: Any, epsilon: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpf.InferenceWarning)
        warnings.simplefilter("ignore", dpf.LargeEpsilonWarning)
        warnings.filterwarnings("ignore", "delta=")
        safe = dpf.sanitize(table, epsilon=epsilon, delta=DELTA)
    assert len(safe) == len(table)
    if not isinstance(safe, pl.DataFrame):  # which keeps no metadata
        plan = dpf.Estimates(safe).plan
        assert dpf.Plan.from_json(plan.to_json()) == plan
        assert plan.verify().ok


@pytest.mark.slow
def test_what_was_paid_for_is_released_of_the_smallest_tables() -> None:
    table = pa.table({"c0": pa.array([None, "a", None]), "c1": pa.array([["a"], ["a", "a"], [None]])})
    for kinds in (["c0", "c1"], ["c1"]):
        with warnings.catch_warnings(action="ignore", category=dpf.InferenceWarning):
            assert len(dpf.sanitize(table.select(kinds), epsilon=1e-3, delta=1e-6)) == 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[["a"]]]),
        pa.array([[1]]),
        pa.array([[[1.5]]]),
        pa.array([{"a": 1}]),
        pa.array([b"x"]),
    ],
    ids=lambda a: str(a.type),
)
def test_types_without_a_space_are_refused_whatever_they_hold(column: pa.Array) -> None:
    for held in (column, column[:0], pa.nulls(3, column.type)):
        with pytest.raises(ColumnError, match=r"^column 'x': has type.*, for which no.*known; pass drop="):
            dpf.sanitize(pa.table({"x": held}), epsilon=1.0)


# ------------------------------------------------------------------------------- the output follows from the plan


@pytest.mark.slow
def test_output_schema_follows_from_the_plan() -> None:
    """Two tables that differ in every value, under one plan."""
    types = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "t": pa.timestamp("s"), "l": pa.list_(pa.string())}
    pools = {"i": [1, 90], "f": [0.5, 7.0], "s": ["a", "b"], "t": [0, 10**9], "l": [["a"], ["b", "a"]]}
    n = 3_000
    usual = pa.table({k: arrow_column(t, [pools[k][i % 2] for i in range(n)]) for k, t in types.items()})
    strange = {"i": 2**63 - 1, "f": math.nan, "s": "elsewhere", "t": -(10**10), "l": list("vwxyz")}
    other = pa.table({k: arrow_column(t, [strange[k], None] * (n // 2)) for k, t in types.items()})
    plan = dpf.plan(usual, 4.0)
    found = [dpf.sanitize(table, plan=plan).schema.remove_metadata() for table in (usual, other)]
    assert found[0].equals(found[1])
    frames = [table.to_pandas(types_mapper=pd.ArrowDtype) for table in (usual, other)]
    dtypes = [dpf.sanitize(frame, plan=plan).dtypes.to_dict() for frame in frames]
    assert dtypes[0] == dtypes[1]
    # A null where none was found is no null; noise finds one now and then.
    assert (dpf.sanitize(other, plan=plan)["i"].null_count > 0) == plan["i"].space.has_null


def neighbours() -> list[tuple[str, list[Any], list[Any], pa.DataType]]:
    n, more = 500, 2_000
    return [
        ("a null", [1, 2] * n, [1, 2] * (n - 1) + [1, None], pa.int64()),
        ("an outlier", [1, 2] * n, [1, 2] * (n - 1) + [1, 2**62], pa.int64()),
        ("an infinity", [1.0, 2.0] * n, [1.0, 2.0] * (n - 1) + [1.0, math.inf], pa.float64()),
        ("a new category", ["a", "b"] * more, ["a", "b"] * (more - 1) + ["a", "secret"], pa.string()),
        (
            "a long set",
            [["a"], ["b"]] * more,
            [["a"], ["b"]] * (more - 1) + [["a"], list("abcdefghijklmnop")],
            pa.list_(pa.string()),
        ),
    ]


@pytest.mark.walk(2)
@pytest.mark.parametrize(("what", "one", "other", "type_"), neighbours(), ids=[case[0] for case in neighbours()])
def test_neighbouring_tables_are_met_alike(what: str, one: list[Any], other: list[Any], type_: pa.DataType) -> None:
    """What one row alone has shows with probability below delta: the two plans are of one kind."""
    plans: list[dpf.Plan] = []
    for values in (one, other):
        frame = pd.DataFrame({f"{what}, {len(plans)}": pd.Series(values, dtype=pd.ArrowDtype(type_))})
        safe = dpf.sanitize(frame, epsilon=2.0, delta=DELTA, key=KEY)
        plans.append(safe.dp.release.plan)
        assert safe.dtypes.equals(frame.dtypes)
    first, second = (plan.columns[0].space for plan in plans)
    assert type(first) is type(second)
    if isinstance(first, Categorical | Subset):
        assert first == second
        assert "secret" not in plans[1].to_json()


# ------------------------------------------------------------------------------------------ inside the promise


@pytest.fixture
def people() -> pd.DataFrame:
    return dpf.datasets.make_census(3_000, columns=["age", "sex", "income"])


def test_plan_report_and_certificate_show_the_spend(people: pd.DataFrame) -> None:
    safe = dpf.sanitize(people, epsilon=2.0, delta=DELTA, infer_share=0.25)
    plan = dpf.Estimates(safe).plan
    assert plan.inferred is not None
    spent = plan.inferred.budget
    line = f"Inference: epsilon={spent.epsilon:.6g}, delta=5e-07 on its own found the spaces of age, sex, income"
    assert line in str(plan)
    assert line in str(safe.dp.report())
    assert "inference mu=0.2231, slack=5e-08 (25% of mu squared)" in str(plan)
    assert f"found with noise worth epsilon={spent.epsilon:.6g}, delta=5e-07" in str(plan.verify())
    assert dpf.Plan.from_json(plan.to_json()) == plan


def test_types_that_say_all_cost_nothing() -> None:
    frame = pd.DataFrame({"a": [True, False] * 50, "b": np.arange(100, dtype=np.int8)})
    plan = dpf.plan(frame, 1.0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpf.InferenceWarning)
        again = dpf.plan(frame, 1.0, 0.0)
    assert (plan.inferred, plan.released, again) == (None, plan.release, plan)
    assert plan["a"].space == Boolean()
    assert plan["b"].space == Integer(-128, 127)


def test_declared_spaces_are_not_paid_for(people: pd.DataFrame) -> None:
    spaces = {"age": (0, 120), "sex": ["F", "M"], "income": Nullable(dpf.Real(0, 250_000))}
    assert dpf.plan(people, 1.0, spaces=spaces, measure=None).inferred is None
    some = dpf.plan(people, 1.0, spaces={"age": (0, 120)}, measure=None)
    assert some.inferred is not None
    assert some.inferred.columns == ("sex", "income")
    assert some["age"].space == Integer(0, 120)


def test_spaces_of_a_plan_are_reused_at_no_cost(people: pd.DataFrame) -> None:
    first = dpf.plan(people, 1.0, measure=None)
    again = dpf.plan(people, 1.0, spaces=first, measure=None)
    assert again.inferred is None
    assert again.released == again.release
    assert [c.space for c in again.columns] == [c.space for c in first.columns]


def test_a_repeated_plan_warns(people: pd.DataFrame, tmp_path: Any) -> None:
    frame = people[["sex"]].rename(columns=lambda name: f"repeated {name}")
    dpf.plan(frame, 1.0, DELTA, measure=None)
    match = r"^spaces of such a table were inferred before .* costs epsilon=0\.\d+, .*; reuse them with spaces=plan"
    with pytest.warns(RepeatedReleaseWarning, match=match) as caught:
        plan = dpf.plan(frame, 1.0, DELTA, measure=None)
    assert caught[0].filename == __file__
    with pytest.warns(RepeatedReleaseWarning):
        frame.dp.plan(1.0, measure=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpf.InferenceWarning)
        dpf.plan(frame, 1.0, spaces=plan, measure=None)
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpf.InferenceWarning)
        for _ in range(2):  # which the ledger keeps count of
            dpf.plan(frame, 1.0, DELTA, ledger=ledger, dataset="survey", measure=None)
        dpf.sanitize(frame, epsilon=1.0, measure=None)
    assert len(ledger.history("survey")) == 2


@pytest.mark.slow
def test_noise_is_bound_to_key_and_request(people: pd.DataFrame) -> None:
    def counts(key: bytes, **options: Any) -> Any:
        plan = dpf.Estimates(dpf.sanitize(people, epsilon=1.0, delta=DELTA, key=key, **options)).plan
        assert plan.inferred is not None
        return plan.inferred.measured

    assert counts(KEY) == counts(KEY)
    assert counts(KEY) != counts(bytes(32))
    assert counts(KEY)[0].counts != counts(KEY, infer_share=0.100001)[0].counts


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan, "0.1", True])
def test_shares_outside_their_range_are_refused(share: Any) -> None:
    with pytest.raises(ParameterError, match=r"^infer_share must lie in \(0, 1\), e\.g\. infer_share=0\.1$"):
        dpf.plan(pd.DataFrame({"x": [1]}), 1.0, infer_share=share)


@pytest.mark.parametrize("most", [0, 1001, 2.0, "8", None, True])
def test_caps_outside_their_range_are_refused(most: Any) -> None:
    with pytest.raises(ParameterError, match=r"^max_items must be a.*1 to 1000$"):
        dpf.plan(pd.DataFrame({"x": [1]}), 1.0, max_items=most)


def test_the_cap_reaches_the_space() -> None:
    table = pa.table({"x": pa.array([["a", "b", "c", "d"]] * 5_000)})
    space = dpf.plan(table, 4.0, max_items=2, measure=None)["x"].space
    assert getattr(space, "inner", space).max_size == 2


def test_text_and_sets_without_delta_have_three_ways_out() -> None:
    table = pa.table({"age": [1], "word": ["a"], "set": [["a"]]})
    match = "delta above 0: word, set; declare spaces=.*leave delta out"
    with pytest.raises(ParameterError, match=match):
        dpf.sanitize(table, epsilon=1.0, delta=0.0)
    assert dpf.plan(table, 1.0, 0.0, drop=["word", "set"])["age"]


@pytest.mark.parametrize("name", ["id", "user_id", "e-mail", "first name"])
def test_identifiers_are_refused_by_name(name: str) -> None:
    for values in (["a"], [None]):
        with pytest.raises(ColumnError, match=f"^column '{name}': looks like an identifier, .* no column is left"):
            dpf.sanitize(pd.DataFrame({name: pd.Series(values, dtype="str")}), epsilon=1.0)
    assert dpf.plan(pd.DataFrame({name: ["a"]}), 1.0, spaces={name: ["a", "b"]}).names == (name,)


def test_a_share_that_leaves_nothing_is_refused_before_it_is_spent(people: pd.DataFrame, tmp_path: Any) -> None:
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0, 1e-5)
    account: Any = {"ledger": ledger, "dataset": "survey"}
    with pytest.raises(ParameterError, match=r"^infer_share must leave at.*rows; lower it"):
        dpf.plan(people, 1.0, infer_share=1 - 1e-15, **account)
    for options, match in [
        ({"mechanisms": {"ghost": "geometric"}}, "mechanisms names 'ghost'"),
        ({"mechanisms": 3}, "mechanisms must be a mapping"),
        ({"allocation": {"age": 2.0}}, "allocation"),
        ({"groups": [("age",)]}, "a group must name two or more columns"),
        ({"contributions": 0}, "contributions must be a whole number"),
        ({"sample": 10**9}, "sample must be a whole number of rows"),
        ({"nulls": "drop"}, 'nulls must be "error" or "impute"'),
        ({"shuffle": "yes"}, "shuffle must be True or False"),
    ]:
        for call in (dpf.plan, dpf.sanitize):
            with pytest.raises(ParameterError, match=match):
                call(people, epsilon=1.0, **options, **account)
    assert ledger.spent("survey").epsilon == 0
