"""The accessor and `sanitize`: one call works, and says what it did."""

import gc
import re
import warnings
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import refused

import dpframe as dpf

KEY = bytes(range(32))


def test_one_call(census, census_spaces):
    safe = census.dp.sanitize(epsilon=6, spaces=census_spaces)
    assert safe.shape == census.shape
    assert safe.dtypes.astype(str).tolist() == census.dtypes.astype(str).tolist()
    assert isinstance(safe.index, pd.RangeIndex)
    assert safe.index.name == "shuffled"
    assert list(safe.attrs) == ["dpframe"]
    assert isinstance(safe.attrs["dpframe"], str)


def test_fresh_keys_differ_and_equal_keys_agree(census, census_spaces):
    plan = census.dp.plan(epsilon=6, spaces=census_spaces)
    first, second = (census.dp.sanitize(plan=plan) for _ in range(2))
    assert not first.equals(second)
    pd.testing.assert_frame_equal(census.dp.sanitize(plan=plan, key=KEY), census.dp.sanitize(plan=plan, key=KEY))


def test_one_key_under_two_epsilons_gives_unrelated_noise(census):
    """Else the difference of the two releases would tell the rows apart."""
    a, b = (
        census[["age"]].dp.sanitize(epsilon=e, spaces={"age": (0, 120)}, key=KEY, shuffle=False)["age"]
        for e in (1, 1.001)
    )
    inside = (a > 0) & (a < 120) & (b > 0) & (b < 120)
    noise = np.corrcoef(a[inside] - census["age"][inside], b[inside] - census["age"][inside])[0, 1]
    assert abs(noise) < 0.2  # about 700 rows: 5 standard errors are 0.19


def test_order_kept_without_shuffle(census, census_spaces):
    safe = census.dp.sanitize(epsilon=600, spaces=census_spaces, shuffle=False)
    assert safe.index.name is None
    assert (safe["sex"] == census["sex"]).all()
    assert (safe["age"] == census["age"]).mean() > 0.1  # about 0.01 if rows were out of order


def test_shuffle_moves_whole_rows():
    frame = pd.DataFrame({"a": np.arange(1000) % 100, "b": (np.arange(1000) % 100).astype(str)})
    spaces = {"a": list(range(100)), "b": [str(i) for i in range(100)]}
    safe = frame.dp.sanitize(epsilon=80, spaces=spaces, key=KEY, measure=None)  # a value changes with probability e^-35
    assert (safe["a"].astype(str) == safe["b"]).all()
    assert sorted(safe["a"]) == sorted(frame["a"])
    assert (safe["a"] != frame["a"]).any()


def test_passthrough_and_drop(census):
    frame = census.assign(id=[f"id{i}" for i in range(len(census))], note=[[1, 2]] * len(census))
    with pytest.warns(dpf.errors.PrivacyLeakWarning, match=r"^passthrough: id looks like.*and is copied"):
        safe = frame[["id", "sex", "note", "age"]].dp.sanitize(
            epsilon=1, spaces={"sex": ["F", "M"]}, passthrough=["id", "note"], drop=["age"], key=KEY
        )
    assert list(safe.columns) == ["id", "sex", "note"]
    assert sorted(safe["id"]) == sorted(frame["id"])
    assert safe["note"].iloc[0] == [1, 2]
    assert "NOT PROTECTED, copied as they are: id, note" in repr(safe.dp)


def test_releases_that_say_nothing_warn(census):
    with pytest.warns(dpf.InferenceWarning, match=r"^no column is left.*check the input"):
        assert pd.DataFrame(index=range(3)).dp.sanitize(epsilon=1).shape == (3, 0)
    with pytest.warns(dpf.InferenceWarning, match="^epsilon=1e-09 needs noise of about 1e.09 rows"):
        census[["sex"]].dp.sanitize(epsilon=1e-9, spaces={"sex": ["F", "M"]})


def test_a_number_of_members_that_is_passed_through_warns(census):
    frame = census.assign(member_no=range(len(census)))[["member_no", "sex"]]
    with pytest.warns(dpf.errors.PrivacyLeakWarning, match="^passthrough: member_no looks like an identifier"):
        safe = frame.dp.sanitize(epsilon=1, spaces={"sex": ["F", "M"]}, passthrough=["member_no"], key=KEY)
    assert "NOT PROTECTED, copied as they are: member_no" in repr(safe.dp)


def test_repr_of_raw_and_released(census, census_spaces):
    assert "not sanitized, 5,000 rows, 6 columns" in repr(census.dp)
    safe = census.dp.sanitize(epsilon=6, delta=0, spaces=census_spaces)
    first, promise, *_, last = repr(safe.dp).splitlines()
    assert first == "<DataFrame.dp: a release of 5,000 rows, 6 randomised columns>"
    assert promise == (
        "Promise: epsilon=6, delta=0 for each person with one row, also against someone who knows which row is theirs"
    )
    assert "plain pandas on noisy rows is biased" in last
    credited = repr(census.dp.sanitize(epsilon=6, spaces=census_spaces, measure=None).dp)
    shown = re.search(r"\nPromise: epsilon=6, delta=1e-06 for .* one row; epsilon=([0-9.]+) against", credited)
    assert 10 < float(shown[1]) < 40
    assert safe.dp.release.n == 5_000


def test_a_release_that_found_nothing_says_so_first():
    frame = pd.DataFrame({"text": [f"answer {i}" for i in range(40)]})
    told = frame.dp.sanitize(epsilon=1).dp.release.lines()[1]
    assert told.startswith("NOTHING TO ASK: inference found no column, so their estimates are NaN")


def test_the_first_lines_say_what_to_mind():
    frame = pd.DataFrame({"a": ["x", "y"] * 500, "b": ["p"] * 1000, "c": [1.5] * 1000}, index=range(1000))
    rare = frame.assign(d=[f"rare {i}" for i in range(1000)])
    spaces = {"a": ["x", "y"]}
    with pytest.warns(dpf.InferenceWarning):
        safe = rare.dp.sanitize(epsilon=1, spaces=spaces, drop=["c"], key=KEY)
    assert "Not found by inference, so their estimates are NaN (declare them in spaces=): d" in repr(safe.dp)
    assert len(repr(safe.dp).splitlines()) == 9
    with pytest.warns(dpf.PrivacyLeakWarning):
        leaky = frame.dp.sanitize(epsilon=1, spaces=spaces, infer="data", passthrough=["b"], key=KEY)
    lines = repr(leaky.dp).splitlines()
    assert "NOT PROTECTED, copied as they are: b" in lines
    assert "NOT COVERED by the promise, as their spaces were read off the data: c" in lines


def test_explain_says_how_the_promise_is_kept(census, census_spaces):
    safe = census.dp.sanitize(epsilon=6, delta=0, spaces=census_spaces)
    explained = safe.dp.explain()
    assert explained == safe.dp.release.explain()
    assert explained.details == tuple(safe.dp.release.plan.lines())
    text = str(explained)
    assert text == repr(explained)
    for words in ("Release: epsilon=6", "Local: epsilon=6", "it earns no credit, as delta is 0", "the best guess"):
        assert words in text
    assert "it earns no credit, as delta is 0" in explained._repr_html_()
    credited = census.dp.sanitize(epsilon=6, spaces=census_spaces, measure=None).dp.explain()
    assert "among 5,000 rows; accounted for by the privacy blanket" in str(credited)
    with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
        census.dp.explain()


def test_estimates_delegate(census, census_spaces):
    names = ["sex", "region", "income", "education"]
    safe = census[names].dp.sanitize(epsilon=60, spaces={n: census_spaces[n] for n in names}, key=KEY, measure=None)
    pd.testing.assert_frame_equal(safe.dp.value_counts("sex"), dpf.Estimates(safe).value_counts("sex"))
    assert safe.dp.crosstab("sex", "region", normalize="index").shape == (2, 4 * 16)
    assert safe.dp.mean("income", by="education").shape == (6, 4)
    assert safe.dp.estimates(confidence_level=0.5).confidence_level == 0.5
    with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
        census.dp.mean("age")
    with pytest.raises(dpf.NotSanitizedError, match=r"df\.dp\.sanitize\(epsilon=…\) makes a release"):
        _ = census.dp.release


def test_sanitising_a_release_is_refused(census, census_spaces):
    safe = census.dp.sanitize(epsilon=6, spaces=census_spaces)
    for act in (
        lambda: safe.dp.sanitize(epsilon=1),
        lambda: safe.dp.check(spaces={}),
        lambda: dpf.sanitize(safe, epsilon=1),
    ):
        with pytest.raises(dpf.errors.AlreadySanitizedError, match="is a release already"):
            act()


def test_a_table_shows_verbs_and_a_release_statistics(census, census_spaces):
    def shown(accessor):
        return {name for name in dir(accessor) if not name.startswith("_")}

    safe = census.dp.sanitize(epsilon=6, spaces=census_spaces)
    assert shown(census.dp) == {"check", "draft", "expect", "plan", "sanitize"}
    assert shown(safe.dp) >= {"mean", "regress", "release", "synthesize", "verify"}
    assert not shown(safe.dp) & shown(census.dp)
    assert safe.dp.plan == safe.dp.release.plan == dpf.Estimates(safe).plan


def refuses(match, error=dpf.ParameterError, frame=None, **options):
    frame = pd.DataFrame({"age": [30, 40], "sex": ["F", "M"]}) if frame is None else frame
    with pytest.raises(error, match=match):
        dpf.sanitize(frame, **({"epsilon": 1} | options))


def test_bad_arguments():
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    refuses("give epsilon, e.g. epsilon=1.0, or a plan", epsilon=None)
    refuses("epsilon must be finite and above 0", epsilon=float("nan"), spaces=spaces)
    refuses(r"delta must lie in \[0, 1\)", delta=1.0, spaces=spaces)
    refuses(
        "spaces names 'agee', which is not a column to randomise; did you mean 'age'. columns are age, sex",
        spaces={"agee": (0, 1)},
    )
    refuses("column 'age': lower must be below upper", spaces=spaces | {"age": (5, 5)})
    refuses("column 'sex': categories holds a value twice", spaces=spaces | {"sex": ["F", "F"]})
    refuses("drop names 'id', which is not a column; columns are age, sex", drop=["id"])
    for option in ("drop", "passthrough"):
        refuses(
            f"column 'age' is in {option} and in spaces; name it in one of them", spaces=spaces, **{option: ["age"]}
        )
    for values in (("F", "M", "X"), {"F", "M"}, np.array(["F", "M"]), pd.Index(["F", "M"])):
        refuses("column 'sex': .*write the categories as a list", spaces={"sex": values})
    refuses("column 'age': .*write a range as bounds with both ends", spaces={"age": range(32)})
    refuses("passthrough names 'id', which is not a column", passthrough=["id"])
    refuses("drop must be a list of column names, e.g. drop=\\['age'\\]", drop="age")
    refuses("column 'age' is in drop and in passthrough", drop=["age"], passthrough=["age"])
    refuses("key must be 32 bytes", spaces=spaces, key=b"short")
    refuses('infer must be "private", "public" or "data"', infer="guess")
    refuses('nulls must be "error" or "impute"', nulls="drop", spaces=spaces)
    refuses("plan must be a Plan; .*; a path to write is target=", plan="plan.json", epsilon=None)
    refuses("spaces must be a mapping", spaces=[1])
    plan = dpf.plan(pd.DataFrame({"age": [1]}), 1, spaces={"age": (0, 9)})
    refuses("epsilon is already decided by the plan", plan=plan)
    refuses("nulls is already decided by the plan", plan=plan, nulls="impute", epsilon=None)
    refuses("column 'sex': is in the table but not in the plan", dpf.ColumnError, plan=plan, epsilon=None)
    two = pd.DataFrame([[1, 2]], columns=["a", "a"])
    refuses("column name 'a' appears twice", frame=two)
    refuses("column names must be strings", frame=pd.DataFrame({0: [1]}))
    refuses("list is no table", frame=[1, 2])


def test_missing_columns_are_refused():
    plan = dpf.plan(pd.DataFrame({"age": [1], "b": [True]}), 1, spaces={"age": (0, 9)})
    refuses(
        "column 'age': is in the plan but not in the table",
        dpf.ColumnError,
        pd.DataFrame({"b": [True]}),
        plan=plan,
        epsilon=None,
    )


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_frames(n, census, census_spaces):
    safe = census.iloc[:n].dp.sanitize(epsilon=6, spaces=census_spaces)
    assert safe.shape == (n, 6)
    assert safe.dtypes.astype(str).tolist() == census.dtypes.astype(str).tolist()


def test_a_sorted_input_with_its_order_kept_warns_the_curator_only():
    frame = pd.DataFrame({"age": np.arange(100), "sex": ["F", "M"] * 50})
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    with pytest.warns(dpf.OrderLeakWarning, match=r"the input is sorted.*keeps its order"):
        safe = frame.dp.sanitize(epsilon=1, spaces=spaces, shuffle=False)
    assert "sorted" not in safe.attrs["dpframe"]
    frame.dp.sanitize(epsilon=1, spaces=spaces)
    frame.sample(frac=1, random_state=0).dp.sanitize(epsilon=1, spaces=spaces, shuffle=False)


def test_methods_that_there_are_not_name_what_there_is(census, census_spaces):
    safe = census.dp.sanitize(epsilon=6, delta=0, spaces=census_spaces, key=KEY)
    for name, said in {
        "groupby": "take by=",
        "max": "see quantile",
        "mode": "most frequent",
        "forecast": "release.plan.forecast()",
        "agg": "infer",
        "query": "where=",
        "pipe": "no 'pipe'$",
        "histogramm": "did you mean 'histogram'",
    }.items():
        with pytest.raises(AttributeError, match=said):
            getattr(safe.dp, name)
    assert not hasattr(safe.dp, "__array__")


def test_sortedness_is_seen_across_batches(tmp_path):
    def found(*batches):
        table = pa.table({"x": [x for batch in batches for x in batch]})
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=8)
        plan = dpf.plan(table, 1.0, spaces={"x": (0, 20)}, shuffle=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=8)
        return sum(one.category is dpf.OrderLeakWarning for one in caught)

    assert found(range(8), range(8, 16)) == 1
    assert found(range(16, 8, -1), range(8, 0, -1)) == 1
    assert found(range(8), range(8)) == 0
    assert found([1] * 8, [1] * 8) == 0
    assert found(range(12)) == 1
    assert found(range(4)) == 0


def test_contributions_reach_the_plan(census):
    plan = census[["sex"]].dp.plan(epsilon=2, delta=0, spaces={"sex": ["F", "M"]}, contributions=4)
    assert plan["sex"].mechanism.epsilon == 0.5
    assert plan.release.epsilon == 2
    credited = census[["sex"]].dp.plan(epsilon=2, spaces={"sex": ["F", "M"]}, contributions=4)
    assert credited["sex"].mechanism.epsilon > 0.5
    assert credited.terms.budget.per_row(credited.terms.contributions).epsilon == 0.5


def test_spaces_of_another_plan(census, census_spaces):
    first = census.dp.plan(epsilon=6, spaces=census_spaces)
    second = census[["age", "sex"]].dp.plan(epsilon=1, spaces=first)
    assert [c.space for c in second.columns] == [first["age"].space, first["sex"].space]


MISNAMED = [
    lambda frame: frame.dp.sanitize(epsilons=1),
    lambda frame: frame.dp.plan(epsilons=1),
    lambda frame: dpf.sanitize(frame, epsilons=1),
    lambda frame: dpf.plan(frame, epsilons=1),
]


@pytest.mark.parametrize("call", MISNAMED)
def test_a_misspelt_option_is_named_with_the_one_meant(call):
    with pytest.raises(dpf.ParameterError, match=r"^epsilons is no option.*you mean 'epsilon'.*options are"):
        call(pd.DataFrame({"a": [1, 2]}))


def test_other_arguments_that_were_type_errors():
    frame = pd.DataFrame({"a": [1, 2]})
    for call, match in [
        (
            lambda: frame.dp.sanitize(1, neighbours="add_remove"),
            "^neighbours is for Queries",
        ),
        (
            lambda: dpf.sanitize("in.csv", epsilon=1, sep=";"),
            "^sep is an option of pandas.read_csv: sanitize the frame",
        ),
        (lambda: frame.dp.sanitize(1, shuffel=False), "^shuffel is no option of a plan; did you mean 'shuffle'"),
        (lambda: frame.dp.plan(), r"^give epsilon, e.g. epsilon=1.0$"),
        (lambda: dpf.plan(frame), r"^give epsilon, e.g. epsilon=1.0$"),
        (lambda: frame.dp.plan(1, drop=3), "^drop must be a list of column names, e.g. drop="),
        (lambda: frame.dp.plan(1, spaces={"a": (0, 3)}).forecast(types=3), "^types must be a mapping {column: shares"),
        (lambda: dpf.read(3), "^a Parquet source is a path"),
        (lambda: dpf.Plan.from_json(3), "^this is no plan, as it is no JSON object; plan"),
    ]:
        refused((dpf.ParameterError, dpf.errors.PlanError), match, call)


def test_several_columns_where_one_is_asked_for_points_to_joint():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    safe = frame.dp.sanitize(1, spaces={"a": (0, 3), "b": ["x", "y"]})
    for call in (
        lambda: safe.dp.crosstab(["a"], "b"),
        lambda: safe.dp.histogram(["a"]),
        lambda: safe.dp.support(["b"]),
    ):
        with pytest.raises(dpf.ParameterError, match=r"a column is given by its name; several .* joint\(\[…\]\)"):
            call()
    assert len(safe.dp.value_counts(["a", "b"])) == 8
    with pytest.raises(dpf.ParameterError, match=r"^bins must be a mapping \{column: number or bounds\}$"):
        safe.dp.value_counts(["a", "b"], bins=3)


# ------------------------------------------------------------------------------------------------ later questions


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
def test_later_questions_share_fits_only_while_the_frame_stays(census, census_spaces):
    """Answers are those of a frame that was asked nothing before: after in-place changes of values and of the order."""
    names = ["age", "sex", "income"]
    spaces = {name: census_spaces[name] for name in names}
    safe = census[names].dp.sanitize(epsilon=6, spaces=spaces, key=KEY, measure=None)  # rows answer
    first = safe.dp.mean("age", by="sex")
    at_80 = safe.dp.mean("age", by="sex", confidence_level=0.8)
    assert (at_80["upper"] < first["upper"]).all()
    pd.testing.assert_frame_equal(safe.dp.mean("age", by="sex"), first)
    ordered = safe.sort_values("age")
    for name in names:
        safe[name] = ordered[name].array
    pd.testing.assert_frame_equal(safe.dp.synthesize(random_state=0), safe.copy().dp.synthesize(random_state=0))
    safe.loc[safe.index[: len(safe) // 2], "age"] = 20
    pd.testing.assert_frame_equal(safe.dp.mean("age", by="sex"), safe.copy().dp.mean("age", by="sex"))


def test_a_frame_that_was_asked_is_freed_with_its_last_name(census):
    safe = census[["sex"]].dp.sanitize(epsilon=6, spaces={"sex": ["F", "M"]}, key=KEY)
    safe.dp.value_counts("sex")
    alive = weakref.ref(safe)
    gc.disable()
    try:
        del safe
        assert alive() is None
    finally:
        gc.enable()
