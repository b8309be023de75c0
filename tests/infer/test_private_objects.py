"""Columns of objects and of categories, inferred in private: what they hold decides nothing but noisy counts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import KEY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import examples

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import step_delta
from dpframe.errors import ColumnError
from dpframe.inference import private
from dpframe.inference.cost import Histogram, Spending, spend
from dpframe.inference.findings import unidentified_columns
from dpframe.inference.inferred import Inferred
from dpframe.inference.kinds import WORDS_BRANCHES
from dpframe.inference.objects import Objects
from dpframe.inference.private import Inference, Measurement, list_histograms
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.spaces import Boolean, Categorical, Integer, Nullable, Ordinal, Real, Space, Subset, Vector
from dpframe.spaces.field import Field
from dpframe.spaces.object_reading import KINDS, kind_counts, read_as
from dpframe.tables.frames import wrap

AMPLE = Budget(20.0, 1e-6)


class FailingList(list):
    def __iter__(self):
        raise RuntimeError("swordfish")

    __len__ = __iter__


class FailingText(str):
    __slots__ = ()

    def __hash__(self):
        raise RuntimeError("swordfish")

    def __eq__(self, other):
        raise RuntimeError("swordfish")

    __str__ = __repr__ = __hash__


class Failing:
    __hash__ = __eq__ = __str__ = __repr__ = FailingText.__hash__

    @property
    def __class__(self):
        raise RuntimeError("swordfish")


ODD: list[Any] = [
    None, 7, -0.5, "odd", "\ud800", b"\xff", True, 2**70, 10**400, np.inf, Decimal("sNaN"), dt.date.max,
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.time(3), np.timedelta64(1, "Y"),
    np.datetime64(2**62, "Y"), pd.NaT, ["a", 3], [0.5], FailingList([1]), FailingText("a"), Failing(), {"a": 1},
]  # fmt: skip


def objects(values: list[Any]) -> pd.Series[Any]:
    return pd.Series(np.fromiter(values, dtype=object, count=len(values)), dtype=object)


def inferred(frame: pd.DataFrame, budget: Budget = AMPLE) -> tuple[Inference, list[Spending]]:
    """What is found, and what was spent on which histograms."""
    seen: list[Spending] = []

    def watched(*args: Any) -> Spending:
        seen.append(spend(*args))
        return seen[-1]

    table = wrap(frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private, "spend", watched)
        found = Measurement.of(table.fields(table.names), table.n, budget).draw(table.batches, KEY)
    return found, seen


N = 2000
DAY = dt.date(2020, 1, 1)
COLUMNS: dict[str, list[Any]] = {
    "text": ["a", "b", "c", None] * (N // 4),
    "bytes": [b"a", b"b"] * (N // 2),
    "flags": [True, False, None, True] * (N // 4),
    "counts": [*range(100)] * (N // 100),
    "floats": [i / 7 for i in range(100)] * (N // 100),
    "decimals": [Decimal(i) / 4 for i in range(100)] * (N // 100),
    "dates": [DAY + dt.timedelta(days=i) for i in range(100)] * (N // 100),
    "stamps": [dt.datetime(2020, 1, 1) + dt.timedelta(hours=i) for i in range(100)] * (N // 100),
    "spans": [dt.timedelta(hours=i) for i in range(100)] * (N // 100),
    "clock": [dt.time(i % 24) for i in range(100)] * (N // 100),
    "answers": [*range(9), "refused"] * (N // 10),
    "sets": [{"a", "b"}, ["a"], (), ("b", "c")] * (N // 4),
    "numbered": [{1, 2}, [2], (), (2, 30)] * (N // 4),
    "curves": [[0.5, 1.5], [2.5, 0.0]] * (N // 2),
}

KIND_OF: dict[str, tuple[str, type[Space] | str]] = {
    "text": ("text", "categorical"), "bytes": ("bytes", "categorical"), "flags": ("boolean", "boolean"),
    "counts": ("whole number", "integer"), "floats": ("number", "real"), "decimals": ("number", "real"),
    "dates": ("date", "datetime"), "stamps": ("timestamp", "datetime"), "spans": ("duration", "datetime"),
    "clock": ("time of day", "datetime"), "answers": ("whole number", "integer"), "sets": ("set of text", "subset"),
    "numbered": ("set of whole numbers", "subset"), "curves": ("list of numbers", "vector"),
}  # fmt: skip


def inner(space: Space) -> Any:
    return getattr(space, "inner", space)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_objects_is_read_as_the_kind_that_was_found(name: str) -> None:
    """Counts of 2,000 rows in noise of a few: a wrong kind has probability below 1e-9."""
    found, _ = inferred(pd.DataFrame({"x": objects(COLUMNS[name])}))
    kind, tag = KIND_OF[name]
    kinds = found.measured[0]
    assert (kinds.kind, kinds.cells, kinds.missing) == ("kinds", KINDS, None)
    assert KINDS[int(np.argmax(kinds.counts))] == kind
    assert inner(found.spaces["x"]).tag == tag
    codes = wrap(pd.DataFrame({"x": objects(COLUMNS[name])})).encode("x", found.spaces["x"], "impute", True)
    assert len(codes) == N


def test_values_of_every_kind_come_back() -> None:
    spaces = {name: inferred(pd.DataFrame({"x": objects(COLUMNS[name])}))[0].spaces["x"] for name in COLUMNS}
    assert spaces["text"] == Nullable(Categorical(("a", "b", "c"), other="other"))
    assert spaces["bytes"] == Categorical(("a", "b"), other="other")
    assert spaces["flags"] == Nullable(Boolean())
    assert isinstance(spaces["counts"], Integer) and spaces["counts"].lower == 0 and 98 <= spaces["counts"].upper <= 110
    assert isinstance(spaces["floats"], Real) and 13 < spaces["floats"].upper < 16
    assert isinstance(spaces["decimals"], Real) and 24 < spaces["decimals"].upper < 28
    assert spaces["answers"] == Integer(0, spaces["answers"].upper, special=["refused"])
    assert spaces["sets"] == Subset(("a", "b", "c"), 4, "other")
    assert spaces["numbered"] == Subset((1, 2, 30), 3)
    assert inner(spaces["clock"]).is_duration and inner(spaces["spans"]).is_duration
    assert isinstance(spaces["curves"], Vector) and spaces["curves"].length == 2 and 2.4 < spaces["curves"].bound < 3.2


@pytest.mark.slow
def test_whole_tables_of_objects_are_sanitized() -> None:
    frame = pd.DataFrame({name: objects(values) for name, values in COLUMNS.items()})
    safe = dpf.sanitize(frame, epsilon=40.0, delta=1e-6, key=KEY)
    assert {type(value) for value in safe["flags"]} <= {bool, type(None)}
    assert {type(value) for value in safe["counts"]} == {int}
    assert {type(value) for value in safe["numbered"]} == {list}
    assert {type(value) for value in safe["dates"]} == {dt.date}
    assert {len(value) for value in safe["curves"]} == {2}


@pytest.mark.walk(45)
@pytest.mark.parametrize("name", ["text", "counts", "answers", "sets", "curves"])
@pytest.mark.parametrize("place", range(len(ODD)))
def test_leak_one_odd_object_changes_nothing_but_noisy_counts(name: str, place: int) -> None:
    """The same histograms, noise and thresholds; under one key and ample counts the same kind of space."""
    plain = pd.DataFrame({"x": objects(COLUMNS[name])})
    other = pd.DataFrame({"x": objects([ODD[place], *COLUMNS[name][1:]])})
    (found, spent), (again, same) = inferred(plain), inferred(other)
    assert spent == same
    assert found.threshold == again.threshold
    assert [(m.kind, m.variance) for m in found.measured] == [(m.kind, m.variance) for m in again.measured]
    assert inner(found.spaces["x"]).tag == inner(again.spaces["x"]).tag
    codes = wrap(plain).encode("x", found.spaces["x"], "impute", True)
    # No row but the first is read differently, and the first is refused nothing.
    assert codes[1:].tolist() == wrap(other).encode("x", found.spaces["x"], "impute", True)[1:].tolist()


@given(st.lists(st.sampled_from(range(len(ODD))), max_size=12), st.sampled_from(range(len(ODD))), st.booleans())
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
def test_leak_what_is_asked_is_a_function_of_public_facts(rows: list[int], odd: int, category: bool) -> None:
    """Tables of any objects of as many rows are asked the same histograms, of the same noise and thresholds."""

    def spent(indices: list[int]) -> list[Spending]:
        values = objects([ODD[i] for i in indices])
        if category:
            entries = pd.Index(objects(ODD[1:6]), dtype=object)
            values = pd.Series(pd.Categorical.from_codes([i - 1 if 0 < i < 6 else -1 for i in indices], entries))
        return inferred(pd.DataFrame({"x": values, "y": [0.5] * len(indices)}), Budget(1.0, 1e-6))[1]

    assert spent([odd, *rows]) == spent([0, *rows])


CATEGORIES: list[list[Any]] = [
    ["a", "b"], ["a", 1], ["a", "\ud800"], ["a", dt.date(2020, 1, 1)], [1, "a"], ["a"], [],
]  # fmt: skip
if pd.__version__ >= "3":  # before, pandas itself cannot make such a column
    CATEGORIES.append(["a", FailingText("b")])


def test_leak_category_columns_take_one_path_whatever_their_entries() -> None:
    """A number among text once asked for another histogram, with another threshold."""
    seen = []
    for entries in CATEGORIES:
        index = pd.Index(objects(entries), dtype=object)
        places = [0 if entries and isinstance(entries[0], str) else 1 if len(entries) > 1 else -1] * (N - 1)
        column = pd.Series(pd.Categorical.from_codes([len(entries) - 1, *places], index))
        found, spent = inferred(pd.DataFrame({"x": column}), Budget(1.0, 1e-6))
        seen.append((spent, found.threshold, [(m.kind, m.variance) for m in found.measured]))
        codes = wrap(pd.DataFrame({"x": column})).encode("x", found.spaces["x"], "impute", True)
        assert len(codes) == N
        if entries:
            assert inner(found.spaces["x"]) == Categorical(("a",), other="other")
    for entries in (["a", "b"], ["a"]):  # of the dtype that pandas has for text
        frame = pd.DataFrame({"x": pd.Series(entries * (N // len(entries))).astype("category")})
        found, spent = inferred(frame, Budget(1.0, 1e-6))
        seen.append((spent, found.threshold, [(m.kind, m.variance) for m in found.measured]))
    assert all(one == seen[0] for one in seen)


def test_a_mixed_category_column_has_the_counts_of_a_plain_one_under_one_key() -> None:
    column = pd.Series(["a", "b"] * (N // 2))
    plain = inferred(pd.DataFrame({"x": column.astype("category")}))[0]
    mixed = inferred(pd.DataFrame({"x": column.astype(object).astype("category").cat.add_categories([3])}))[0]
    assert plain == mixed


MIXED: dict[str, tuple[list[Any], list[Any], str]] = {
    "numbers with words": ([*range(10)], ["refused", "unknown"], "text"),
    "words with numbers": (["low", "high"], [1, 2], "whole number"),
    "booleans with words": ([True, False], ["unknown"], "text"),
    "booleans with numbers": ([True, False], [9], "whole number"),
    "dates with words": ([DAY, DAY + dt.timedelta(days=40)], ["n. d."], "text"),
    "dates with numbers": ([DAY, DAY + dt.timedelta(days=40)], [20_200_131], "whole number"),
    "numbers with dates": ([*range(10)], [DAY], "date"),
    "numbers with booleans": ([*range(2, 12)], [True], "boolean"),
}
"""Values of two kinds in a column: the more frequent ones, the others, and the kind of these."""


def _mixed(case: str, share: float, rows: int) -> list[Any]:
    """Return a column in which a share of the values are of the rarer kind, and one row in twenty is null."""
    often, seldom, _ = MIXED[case]
    rare = round(share * rows)
    values = [seldom[i % len(seldom)] if i < rare else often[i % len(often)] for i in range(rows)]
    return [None if i % 20 == 19 else value for i, value in enumerate(values)]


def _as_objects(values: list[Any]) -> Any:
    table = wrap(pd.DataFrame({"x": objects(values)}))
    return table.fields(["x"]), table.batches


def _as_categories(values: list[Any]) -> Any:
    table = wrap(pd.DataFrame({"x": objects(values).astype("category")}))
    return table.fields(["x"]), table.batches


def _as_text(values: list[Any]) -> Any:
    texts = pa.array([None if value is None else str(value) for value in values]).dictionary_encode()
    return [Field("x", pa.null(), True, written=True)], lambda names: iter([{"x": texts}])


def _judged(case: str, share: float, epsilon: float, kept: Any, seed: int = 0) -> tuple[list[Any], float, str]:
    """Return what was not found, the share of the rows that is one standard error of the kinds, and the space's tag."""
    fields, read = kept(_mixed(case, share, N))
    measurement = Measurement.of(fields, N, Budget(epsilon, 1e-6))
    found = measurement.draw(read, seed.to_bytes(32))
    inferred = Inferred(Budget(epsilon, 1e-6), ("x",), found.measured, asked=measurement.asked)
    error = found.measured[0].variance ** 0.5 / N
    return list(unidentified_columns(inferred, found.spaces, N)), error, inner(found.spaces["x"]).tag


@pytest.mark.walk(12)
@pytest.mark.parametrize("kept", [_as_objects, _as_categories, _as_text], ids=["objects", "categories", "text"])
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, 9.0, 40.0, "0.45"])
@pytest.mark.parametrize("case", MIXED)
def test_no_kind_of_values_becomes_null_without_a_word(case: str, share: Any, epsilon: float, kept: Any) -> None:
    """Shares are given in standard errors of the counts of kinds, or as such.

    A column of which 9 standard errors of the rows or more are of another kind is not found for that; with one or less
    of them it is found. Either fails with a probability below 1e-3, as it must by 5 or 3 standard errors; keys are
    fixed.
    """
    error = _judged(case, 0.0, epsilon, kept)[1]
    part = float(share) if isinstance(share, str) else min(share * error, 0.45)
    lost, _, tag = _judged(case, part, epsilon, kept)
    keeps_all = kept is _as_text and case.startswith("words")
    if kept is not _as_categories and case == "numbers with words":
        assert lost == []  # the words are special values
        return
    shows = not keeps_all and part >= min(9 * error, 0.45)
    assert [one.unread for one in lost] == [True] * shows
    if shows:
        (one,) = lost
        assert f"another kind ({MIXED[case][2]}) would become null; make all of them text" in one.why
        assert one.placeholder == "[CATEGORY, …]"
        assert len(one.why.split()) <= 30
    if keeps_all:
        assert tag == "categorical"


def test_values_of_several_kinds_are_warned_of_and_estimates_are_nan() -> None:
    """45 % of a column became null, with a null rate of .459 and no word."""
    rng = np.random.default_rng(5)
    answers = objects(rng.integers(0, 11, N).tolist())
    answers[rng.random(N) < 0.45] = dt.date(2020, 1, 1)
    frame = pd.DataFrame({"q": answers, "scale": answers.astype("category"), "plain": rng.integers(0, 11, N)})
    said = r"of 2 of 3 columns, (?s:.*)\n  q      its values of another kind \(date\)(?s:.*)\n  scale  its values"
    with pytest.warns(dpf.InferenceWarning, match=said):
        safe = frame.dp.sanitize(epsilon=5, key=KEY)
    for statistic in ("mean", "null_rate"):
        with pytest.warns(dpf.InferenceWarning, match=r"estimates are NaN(?s:.*)  q  .*make all of them text"):
            assert getattr(safe.dp, statistic)("q").isna().all()
    assert safe.dp.mean("plain").notna().all()
    assert safe.dp.release.plan.verify()
    texts = frame.astype({"q": str, "scale": str})  # what the message says
    values = [*map(str, range(11)), "2020-01-01"]
    spaces = {"q": values, "scale": values}
    kept = texts.dp.sanitize(epsilon=5, spaces=spaces, key=KEY).dp.value_counts("q", normalize=True)
    assert kept.loc["2020-01-01", "estimate"] == pytest.approx(0.45, abs=0.05)


def test_partly_labelled_ranks_keep_their_numbers() -> None:
    """A declared order of words with numbers between them: the numbers became null, and no count could tell.

    ε = 5: counts of 180 rows in noise of a few; a rank is missed with probability below 1e-9.
    """
    scale = pd.Series(np.arange(N) % 11).astype(pd.CategoricalDtype(range(11), ordered=True))
    frame = scale.cat.rename_categories({0: "never", 5: "half", 10: "always"}).to_frame("x")
    safe = frame.dp.sanitize(epsilon=5, key=KEY)
    ranks = ["never", "1", "2", "3", "4", "half", "6", "7", "8", "9", "always"]
    assert safe.dp.release.plan["x"].space == Ordinal(ranks)
    assert safe["x"].cat.categories.tolist() == ranks
    counts = safe.dp.value_counts("x")
    assert ((counts["lower"] < N / 11 + 1) & (counts["upper"] > N / 11)).all()


def test_leak_a_number_among_ranks_moves_no_other_entry() -> None:
    """Which numbers are entries follows the rows; with one more of them the words lie as far from each other."""
    ranks = Ordinal(("low", "high"))
    values = ["low"] * 20 + ["fair"] * 20 + ["high"] * 20
    codes = []
    for entries in (["low", "fair", "good", "high"], ["low", "fair", "good", 7, 8, 9, "high"], [1, "low", 2, "fair"]):
        entries = entries if "high" in entries else [*entries, "good", "high"]
        frame = pd.DataFrame({"x": pd.Categorical(values, categories=entries, ordered=True)})
        codes.append(wrap(frame).encode("x", ranks, "impute", True).tolist())
    assert codes == [[0] * 40 + [1] * 20] * 3


def test_an_ordered_categorical_keeps_its_order() -> None:
    dtype = pd.CategoricalDtype(["low", "rare", "mid", "high", "never"], ordered=True)
    values = ["low"] * 900 + ["mid"] * 600 + ["high"] * 499 + ["rare"]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
    found, _ = inferred(frame, Budget(1.0, 1e-6))
    assert found.spaces["x"] == Ordinal(("low", "mid", "high"))
    assert found.measured[0].kind == "ranks"
    codes = wrap(frame).encode("x", found.spaces["x"], "error", True)
    assert np.bincount(codes).tolist() == [901, 600, 499]  # the rare one with its neighbour
    safe = dpf.sanitize(frame, epsilon=8.0, delta=1e-6, key=KEY)
    assert safe["x"].dtype == pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    assert safe.dp.release.plan["x"].space.metric == "line"


def test_ordered_categoricals_with_nulls_are_nullable_ranks() -> None:
    dtype = pd.CategoricalDtype(["z", "m", "a"], ordered=True)
    frame = pd.DataFrame({"x": pd.Series(["z", "a", None, "m"] * (N // 4), dtype=dtype)})
    assert inferred(frame)[0].spaces["x"] == Nullable(Ordinal(("z", "m", "a")))


@pytest.mark.walk(2)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["arrow", "objects"])
@pytest.mark.slow
def test_infinity_sets_no_bound(share: float, kind: str) -> None:
    """Bounds of 1e304 once, from a third of the rows being infinite."""
    values = [np.inf if i < share * N else -np.inf if i == N - 1 else (i % 100) / 2 for i in range(N)]
    column: Any = pd.Series(values) if kind == "arrow" else objects(values)
    frame = pd.DataFrame({"x": column})
    space = inner(inferred(frame)[0].spaces["x"])
    assert -5 <= space.lower < space.upper <= (60 if share < 1 else 1)
    safe = dpf.sanitize(frame, epsilon=8.0, delta=1e-6, key=KEY)
    assert np.isfinite(safe["x"].astype(float)).all()


def test_a_column_of_one_possible_value_costs_no_share() -> None:
    both = Categorical(["x", "y"])
    for shuffle in (False, True):
        options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "shuffle": shuffle, "n": 1000}
        alone = build_plan({"b": both, "c": both}, **options)
        beside = build_plan({"a": Categorical(["only"]), "b": both, "c": both}, **options)
        assert beside["b"].mechanism.epsilon == pytest.approx(alone["b"].mechanism.epsilon, rel=1e-3)
    frame = pd.DataFrame({"a": ["only"] * 50, "b": ["x", "y"] * 25})
    safe = dpf.sanitize(frame, epsilon=1.0, spaces={"a": ["only"], "b": both}, key=KEY)
    assert set(safe["a"]) == {"only"}
    assert safe.dp.release.plan.verify()


def test_ways_of_a_column_cost_what_the_dearest_does() -> None:
    budget = Budget(1.0, 1e-6)
    one = Histogram("values", 1, 1.0)
    ways = [Histogram("values", 1, 1.0, ("x", "a")), Histogram("values", 8, 1.0, ("x", "b"))]
    alone, several = spend(budget, [one, one], 1000), spend(budget, [one, *ways], 1000)
    assert several.step is not None
    assert step_delta(several.step, budget.epsilon) <= budget.delta
    assert several.noises[0].variance == pytest.approx(alone.noises[0].variance, rel=1e-3)
    assert several.noises[2].variance == pytest.approx(8 * alone.noises[1].variance, rel=1e-3)


class Lifted:
    """Noise by which one kind of values shows, whatever there is."""

    variance = 1.0

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def add(self, counts: Any, stream: Any) -> Any:
        return counts + np.where(np.arange(len(counts)) == self.kind, 1_000, 0)


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
@pytest.mark.parametrize(
    "field",
    [
        Field("c", pa.null(), True),
        Field("c", pa.string(), True, written=True),
        Field("c", pa.dictionary(pa.int8(), pa.string()), True, listed=True),
    ],
    ids=["objects", "text", "entries"],
)
def test_noise_that_shows_a_kind_which_a_column_cannot_hold_ends_in_text(field: Field, kind: int) -> None:
    task = Objects(field, 0, 8, KEY)
    task.measure(task.counter(), Lifted(kind), 0, Keystream(KEY).column("c", "infer"))
    place = task.asks(1)
    assert place is None or task.histograms[place].branch is not None


def test_objects_whose_code_raises_are_null_or_refused_without_a_word() -> None:
    failing = [FailingList(["a"]), FailingText("\ud800"), Failing()]
    assert read_as(failing, pa.list_(pa.string())).null_count == 3
    assert read_as(failing, pa.string()).null_count == 3
    assert kind_counts(failing).sum() == 3
    space = Subset(["a"])
    assert Nullable(space).encode(failing, tolerant=True).tolist() == [[2]] * 3
    for value in failing:
        with pytest.raises(ColumnError, match="row position 1") as caught:
            space.encode([["a"], value])
        assert "swordfish" not in str(caught.value)
        assert caught.value.__context__ is None
    with pytest.raises(ColumnError, match=r"its own code fails;.*row position 0"):
        space.encode([FailingList(["a"])])


@pytest.mark.parametrize(
    ("space", "values", "codes"),
    [
        (Integer(0, 9), [3, "x", 2.6, np.inf, 10**400, None, True], [3, None, 3, 9, 9, None, None]),
        (Real(0, 4, 4), [3, "x", Decimal(2), -np.inf, 10**400, np.nan], [3, None, 2, 0, 4, None]),
        (Categorical(["a"], other="b"), ["a", b"a", "z", "\ud800", 3, ["a"]], [0, 0, 1, None, None, None]),
        (Categorical([1, 2]), [1, 7, "x"], [0, None, None]),
        (Subset([1, 2]), [[1], {2, 9}, [], "x", [1, None]], [1, 2, 0, None, 1]),
    ],
    ids=repr,
)
def test_tolerant_reading(space: Space, values: list[Any], codes: list[int | None]) -> None:
    whole = Nullable(space)
    found = whole.code_list(whole.encode(values, tolerant=True))
    assert [None if code == whole.null else code for code in found] == codes


def test_the_advice_for_text_of_several_items_works() -> None:
    """Empty text is an empty set, and null stays null; a list of categories is refused with what to declare."""
    frame = pd.DataFrame({"tags": ["a;b", "", None, "c"] * 50 + [f"t{i}" for i in range(200)]})
    with pytest.warns(dpf.InferenceWarning, match=r'several items \(\.str\.findall\("\[\^;\]\+"\)\)'):
        frame.dp.sanitize(epsilon=1, key=KEY, measure=None)
    sets = frame["tags"][:200].str.findall("[^;]+").to_frame()
    assert [None if items is None else list(items) for items in sets["tags"][[0, 1, 3]]] == [["a", "b"], [], ["c"]]
    assert sets["tags"].isna().sum() == 50
    safe = sets.dp.sanitize(epsilon=1, spaces={"tags": Nullable(Subset(["a", "b", "c"]))}, key=KEY, measure=None)
    assert set(safe.dp.support("tags").index) == {"a", "b", "c"}
    several = (
        r"^column 'tags' at row position 0: holds several values .*; declare Subset\(\[ITEM, …\]\) for sets of items$"
    )
    with pytest.raises(ColumnError, match=several):
        sets.dp.sanitize(epsilon=1, spaces={"tags": Nullable(Categorical(["a", "b", "c"]))}, measure=None)
    with pytest.raises(ColumnError, match=r"categories cannot hold; declare.*sets of items$"):
        dpf.sanitize(pa.table({"tags": [["a"], ["b"]]}), epsilon=1, spaces={"tags": ["a", "b"]}, measure=None)


def _words_among_numbers(rows: int) -> pd.Series[Any]:
    """Return whole numbers from 0 to 8, a tenth of them refused, one in twenty null, and a word of a single row."""
    values = [None if i % 20 == 19 else "refused" if i % 10 == 3 else i % 9 for i in range(rows)]
    return objects(["swordfish", *values[1:]])


@pytest.mark.parametrize("kind", ["objects", "csv"])
def test_words_among_numbers_are_special_values(kind: str, tmp_path: Path) -> None:
    """Counts of 600 rows and more in noise of some tens; 95 % intervals of fixed keys."""
    frame = pd.DataFrame({"q": _words_among_numbers(6_000), "plain": range(6_000)})
    source: Any = frame
    if kind == "csv":
        source = str(tmp_path / "in.csv")
        frame.to_csv(source, index=False)
        dpf.sanitize(source, str(tmp_path / "out.parquet"), epsilon=2, key=KEY)
        safe = dpf.read(tmp_path / "out.parquet")
    else:
        safe = frame.dp.sanitize(epsilon=2, key=KEY)
    space = safe.dp.release.plan["q"].space
    assert space == Nullable(Integer(0, space.inner_space.upper, special=["refused"]))
    assert 8 <= space.inner_space.upper <= 10
    assert safe.dp.release.plan.verify()
    counts = safe.dp.value_counts("q")
    assert counts.loc["refused", "lower"] < 600 < counts.loc["refused", "upper"]
    mean = pd.to_numeric(frame["q"], errors="coerce").mean()
    assert safe.dp.mean("q")["lower"] < mean < safe.dp.mean("q")["upper"]
    assert safe.dp.null_rate("q")["estimate"] == pytest.approx(0.05, abs=0.01)
    assert "swordfish" not in repr(safe.attrs) + repr(safe.dp.explain())


def test_words_that_write_numbers_and_rare_words_are_no_special_values() -> None:
    """Four rows of ten have a comment of their own: the rows that would be null are reported."""
    infinite = objects([*range(9), "inf", "-7", "no answer"] * 200)
    space = inferred(infinite.to_frame("x"))[0].spaces["x"]
    assert inner(space).tag == "integer"
    assert space.special_labels == ["no answer"]
    comments = objects([f"comment {i}" if i % 5 < 2 else i % 9 for i in range(N)])
    with pytest.warns(dpf.InferenceWarning, match="seems to hold words that did not clear the threshold") as said:
        comments.to_frame("x").dp.sanitize(epsilon=5, key=KEY, measure=None)
    assert "spaces={'x': Integer(LOWER, UPPER, special=[WORD, …])}" in str(said[0].message)
    many = objects([f"word {i % 20:02}" if i % 9 > 4 else i % 9 for i in range(10 * N)])
    assert len(inferred(many.to_frame("x"))[0].spaces["x"].special_labels) == 16


def test_branches_of_words_change_no_noise_of_others() -> None:
    """A column costs its dearest branch, and words leave a hundredth: noise and thresholds of old plans stay."""
    fields = [Field("x", pa.string(), True, written=True), Field("y", pa.null(), True), Field("z", pa.int64(), True)]
    histograms = list_histograms(fields, N)
    older = [h for h in histograms if h.branch is None or h.branch[1] not in WORDS_BRANCHES.values()]
    assert len(older) < len(histograms)
    for epsilon in (0.3, 4.0):
        new, old = (spend(Budget(epsilon, 1e-6), each, N) for each in (histograms, older))
        places = [histograms.index(h) for h in older]
        assert [new.noises[place].variance for place in places] == [noise.variance for noise in old.noises]
        assert tuple(new.thresholds[place] for place in places) == old.thresholds
        assert new.step == old.step


class FailingDecimal(Decimal):
    """A number whose own code fails; Arrow crashes on such a value."""

    def is_nan(self):
        raise RuntimeError


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
@pytest.mark.parametrize(
    "wrap_value", [FailingDecimal, lambda v: [FailingDecimal(v)], lambda v: {"a": FailingDecimal(v)}]
)
def test_decimals_of_a_class_of_their_own_crash_nothing(wrap_value, tmp_path):
    """Undeclared columns, and columns that pass through, are read as they are after the spend."""
    frame = pd.DataFrame({"x": [wrap_value(i % 9) for i in range(60)], "sex": ["F", "M"] * 30})
    options = {"epsilon": 1, "spaces": {"sex": ["F", "M"]}, "delta": 0, "measure": None}
    assert len(dpf.sanitize(frame, passthrough=["x"], **options)) == 60
    assert len(dpf.sanitize(frame, **options | {"delta": 1e-6})) == 60
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 5.0)
    with pytest.raises(dpf.ParameterError, match="column 'x' cannot be stored as Parquet"):
        dpf.sanitize(frame, tmp_path / "out.parquet", passthrough=["x"], ledger=ledger.account("survey"), **options)
    assert ledger.remaining("survey").epsilon == 5.0
