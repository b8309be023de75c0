"""Plans: building, checking, JSON, words."""

import json
import warnings
from fractions import Fraction

import pandas as pd
import pytest
from examples import channel, edit_plan, plan_of
from hypothesis import given
from hypothesis import strategies as st

import dpframe as dpf

SPACES = {"age": (0, 120), "sex": ["F", "M"], "born": dpf.Nullable(dpf.Datetime("1930-01-01", "2020-01-01"))}


def spent(plan):
    return sum((Fraction(c.certified.epsilon) for c in plan.columns), Fraction(0))


@given(
    epsilon=st.floats(0.01, 20),
    delta=st.sampled_from([0.0, 1e-9, 1e-3]),
    columns=st.integers(1, 5),
    contributions=st.integers(1, 4),
)
def test_certified_losses_never_add_up_to_more_than_asked(epsilon, delta, columns, contributions):
    spaces = {f"c{i}": ["a", "b", "c"] for i in range(columns)}
    plan = plan_of(spaces, epsilon=epsilon, delta=delta, contributions=contributions)
    assert sum(Fraction(c.mechanism.delta) for c in plan.columns) * contributions <= Fraction(delta)
    if delta == 0 or columns == 1:
        assert spent(plan) * contributions <= Fraction(epsilon)
        assert spent(plan) * contributions >= Fraction(epsilon) * Fraction(999, 1000)
    else:  # pure columns, whose losses make the row's (ε, δ) together
        assert plan.verify().ok
        assert all(c.mechanism.delta == 0 for c in plan.columns)


def test_shares():
    plan = plan_of(SPACES, epsilon=1.0, allocation={"age": 0.5})
    assert [c.mechanism.epsilon for c in plan.columns] == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    "allocation, message",
    [
        ("errors", 'allocation must be "uniform", "error" or a mapping'),
        ({"agee": 0.5}, "allocation names 'agee', which is not a randomised column"),
        ({"age": -0.5}, r"allocation\['age'\] must be finite and above 0"),
        ({"age": 1.0}, "must add up to 1, or to less when columns are left out"),
        ({"age": 0.2, "sex": 0.2, "born": 0.2}, "shares of all columns must add up to 1"),
    ],
)
def test_shares_refused(allocation, message):
    with pytest.raises(dpf.ParameterError, match=message):
        plan_of(SPACES, epsilon=1.0, allocation=allocation)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "1", True, None])
def test_epsilon_refused(epsilon):
    with pytest.raises(dpf.ParameterError, match=r"epsilon must be .*above 0, e\.g\. epsilon=1\.0"):
        plan_of(SPACES, epsilon=epsilon)


@pytest.mark.parametrize("delta", [1, -1e-9, float("nan"), 2.0])
def test_delta_refused(delta):
    with pytest.raises(dpf.ParameterError, match=r"delta must lie in \[0, 1\)"):
        plan_of(SPACES, epsilon=1, delta=delta)


@pytest.mark.parametrize("contributions", [0, -1, 1.5, True])
def test_contributions_refused(contributions):
    with pytest.raises(dpf.ParameterError, match=r"contributions must be a.*rows per person"):
        plan_of(SPACES, epsilon=1, contributions=contributions)


def test_contributions_scale_by_group_privacy():
    one, three = (plan_of(SPACES, epsilon=3, delta=0.0, contributions=k) for k in (1, 3))
    assert three["age"].mechanism.epsilon * 3 == pytest.approx(one["age"].mechanism.epsilon)
    assert "up to 3 rows" in three.lines()[0]


def test_too_small_a_budget_names_the_column():
    with pytest.raises(dpf.ParameterError, match=r"column 'age': epsilon=.*is too small for.*of 120 steps"):
        plan_of({"age": (0, 120)}, epsilon=1e-18)


def test_json_round_trip_and_digest():
    plan = plan_of(SPACES, epsilon=1.0, delta=1e-6, n=7, shuffle=False, nulls="impute", drop=["id"], leaks=["age"])
    again = dpf.Plan.from_json(plan.to_json(indent=2))
    assert again == plan
    assert again.digest == plan.digest
    # The oldest schema that says all of it: the digest, which enters every key, stays where nothing is new.
    assert json.loads(plan.to_json())["schema"] == 1
    assert json.loads(plan_of(SPACES, epsilon=1.0, local_epsilon=0.9).to_json())["schema"] == 2
    assert plan_of(SPACES, epsilon=1.1, delta=1e-6, n=7).digest != plan.digest


def test_a_plan_can_be_written_by_hand(tmp_path):
    text = json.dumps(
        {
            "schema": 1,
            "epsilon": 1.0,
            "columns": [
                {"name": "age", "space": {"lower": 0, "upper": 120}, "epsilon": 0.5},
                {"name": "sex", "space": ["F", "M"], "epsilon": 0.5},
            ],
        }
    )
    (tmp_path / "plan.json").write_text(text)
    plan = dpf.Plan.read(tmp_path / "plan.json")
    assert plan == plan_of({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0, mechanisms={"age": "geometric"})


def edited(**changes):
    return edit_plan(plan_of(SPACES, epsilon=1.0), **changes)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1, 2", "it is no JSON object"),
        ("[]", "it is no JSON object"),
        ("{}", 'it has no "schema" number'),
        (edited(schema=4), "schema 4, this version reads up to 3; upgrade dpframe"),
        (edited(surprise=1), "unknown field 'surprise'"),
        (edited(columns={}), "no epsilon or no list of columns"),
        (edited(epsilon=0), "the plan is not valid: epsilon must be finite and above 0"),
        (edited(epsilon=0.9), "claims epsilon=0.9, delta=0.0, .*add up to epsilon=1 per row"),
        (edited(columns__0__mechanism__mechanism="laplacian"), "'age': unknown mechanism tag; this version knows"),
        (
            edited(columns__0__mechanism__extra=1),
            "mechanism geometric has the fields epsilon, span, and perhaps delta",
        ),
        (edited(columns__0__mechanism__span=240), "'age': the mechanism has 241 codes, the space 121"),
        (edited(columns__0__space__space="circle"), "'age': unknown space tag; this version knows"),
        (edited(columns__0__space__upper=-1), "'age': lower must be below upper"),
        (
            edited(columns__0__space__colour=1),
            "'age': space integer has the fields lower, upper, and perhaps step",
        ),
        (edited(columns__0__name="sex"), "column 'sex' appears twice"),
        (edited(drop=["sex"]), "column 'sex' appears twice"),
        (edited(leaks=["id"]), "leaks names 'id', which is not a randomised column"),
        (edited(nulls="ignore"), 'nulls must be "error" or "impute"'),
        (edited(shuffle=1), "shuffle must be True or False"),
        (edited(n=-1), "n must be a number of rows"),
        (edited(columns__0=3), "every column needs a name, a space"),
        (edited(schema=True), 'it has no "schema" number'),
        (edited(drop=[1]), "a column's name must be a string that is not empty"),
        (edited(drop=[""]), "a column's name must be a string that is not empty"),
        (edited(drop=None), "drop must be a list of column names"),
        (edited(drop="xy"), "drop must be a list of column names"),
        (edited(passthrough=[["a"]]), "a column's name must be a string that is not empty"),
        (edited(leaks={"age": 1}), "leaks must be a list of column names"),
        (edited(columns__0__epsilon=0.1), "'age': give a mechanism or an epsilon, one of them"),
        (edited(columns__0__delta=0.1), "'age': delta goes with an epsilon"),
        (edited(columns__0__mechanism=5), "'age': the mechanism must be an object with its tag"),
        (edited(columns__0__name="\ud800"), r"column name '\\ud800' is not valid Unicode; rename it"),
        (edited(passthrough=["a\ud800"]), "is not valid Unicode; rename it"),
        (edited(columns__0__space={"space": "real", "lower": 0, "upper": 10**400}), "both finite"),
    ],
)
def test_bad_plans_are_refused(text, message):
    with pytest.raises(dpf.errors.PlanError, match=message) as caught:
        dpf.Plan.from_json(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).encode()


def test_lists_of_names_are_no_text():
    with pytest.raises(dpf.errors.PlanError, match="passthrough must be a list of column names"):
        dpf.Plan(1.0, 0.0, (), passthrough="xy")


def test_names_with_line_breaks_keep_their_line():
    plan = plan_of({"a\nb": [1, 2]}, epsilon=1, passthrough=["c\nd", "e"], drop=["f\ng"], leaks=["a\nb"])
    assert not any("\n" in line for line in plan.lines())
    assert "NOT PROTECTED, copied as they are: 'c\\nd', e" in plan.lines()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": 1_000}, "A plan for 1,000 rows, shuffled: 2 columns are randomised"),
        (
            {"n": 1_000, "sample": 100, "shuffle": False},
            "A plan for a sample of 100 of 1,000 rows, in the order in which they are: 2 columns are randomised",
        ),
        ({"drop": ["id"]}, "A plan, shuffled: 2 columns are randomised, left out: id"),
    ],
)
def test_plain_words_come_before_those_of_accounting(options, says):
    plan = plan_of({"a": ["x", "y"], "b": (0, 9)}, epsilon=1.0, passthrough=["c"], **options)
    lines = str(plan).splitlines()
    kept = lines.index("How the promise is kept:")
    assert lines[0] == says
    assert lines[1].startswith("Promise: epsilon=1, delta=")
    assert lines[2] == "NOT PROTECTED, copied as they are: c"
    assert tuple(lines[kept + 1 :]) == tuple(plan.lines())
    assert "mechanism" in lines[4]
    html = plan._repr_html_()
    assert html.index(says) < html.index("Promise:") < html.index("<table") < html.index("How the promise is kept")
    for word in ("profile", "blanket", "credit", "sigma", "mu=", "slack"):
        assert word not in "\n".join(lines[:kept])


def test_missing_plan_file(tmp_path):
    with pytest.raises(dpf.FileError, match=r"plan\.json does not exist"):
        dpf.Plan.read(tmp_path / "plan.json")


def test_columns_check_their_size():
    with pytest.raises(dpf.errors.PlanError, match="the mechanism has 3 codes, the space 2"):
        dpf.Column("sex", dpf.Categorical(["F", "M"]), channel("randomized_response", 3, 1.0))


def test_words_say_what_is_not_protected():
    plan = plan_of(SPACES, epsilon=1.0, shuffle=False, passthrough=["id"], drop=["name"], leaks=["age"])
    text = str(plan)
    assert "NOT PROTECTED, copied as they are: id" in text
    assert "NOT COVERED, spaces read off the data: age" in text
    assert "Order: kept: positions are not protected" in text
    assert "Dropped: name" in text
    assert "replace-one, per person" in text


def test_html_escapes_names():
    html = plan_of({"<b>": ["x", "y"]}, epsilon=1, passthrough=["<i>"])._repr_html_()
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    assert "<b>" not in html


def test_summary_is_a_row_per_column_in_units():
    table = plan_of(SPACES, epsilon=3.0).summary()
    assert table.index.tolist() == ["age", "sex", "born"]
    assert (table["expected_error"] >= table["error_bound"]).all()
    assert table.loc["born", "unit"] == "D"
    assert 0 < table.loc["age", "expected_error"] < 120


def warned(call):
    """How often a call warns of a large epsilon."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sum(issubclass(warning.category, dpf.errors.LargeEpsilonWarning) for warning in caught)


def test_a_face_warns_once_of_a_large_epsilon():
    frame = pd.DataFrame({"flag": pd.array([True, False] * 50, dtype="boolean")})
    says = "epsilon=10.5 is above 10: .*take less, e.g. epsilon=1"
    with pytest.warns(dpf.errors.LargeEpsilonWarning, match=says):
        plan = dpf.plan(frame, 10.5, measure=None)
    assert warned(lambda: dpf.sanitize(frame, epsilon=10.5, measure=None)) == 1
    assert warned(lambda: dpf.plan(frame, 10.5, spaces={"flag": dpf.Boolean()}, measure=None)) == 1
    assert warned(lambda: dpf.Sanitizer(10.5).fit(frame).transform(frame)) == 1
    # Not for what was made before, nor for what is read.
    assert warned(lambda: dpf.sanitize(frame, plan=plan)) == 0
    assert warned(lambda: dpf.Plan.from_json(plan.to_json())) == 0
    assert warned(lambda: dpf.plan(frame, 10, measure=None)) == 0


def test_old_plans_without_the_newer_fields_are_read():
    data = json.loads(plan_of(SPACES, epsilon=1.0).to_json())
    assert "keeps_index" not in data
    assert dpf.Plan.from_json(json.dumps(data)).keeps_index is False


def test_the_repr_is_at_most_twenty_lines():
    spaces = {f"column {i}": ["a", "b"] for i in range(60)}
    plan = plan_of(spaces, epsilon=60.0, drop=[f"another {i}" for i in range(200)])
    lines = repr(plan).splitlines()
    assert len(lines) == 20
    assert max(map(len, lines)) <= 200
    assert lines[0].startswith("A plan, shuffled: 60 columns are randomised, left out: another 0, another 1, ")
    assert lines[1].startswith("Promise: epsilon=60, delta=0 for each person with one row, also against someone")
    assert lines[-1].endswith("print(plan) shows all, plan.to_json() writes them")
    assert len(str(plan).splitlines()) > 60
    small = plan_of({"a": ["x", "y"]}, epsilon=1.0)
    assert repr(small) == str(small)


def test_the_repr_of_an_inferred_plan_holds_no_counts():
    plan = dpf.plan(dpf.datasets.make_census(3_000, columns=["age", "income", "region"]), 1, measure=None)
    assert plan.inferred is not None
    assert len(repr(plan).splitlines()) <= 20
    assert len(repr(plan)) < 4_000


def test_plans_of_equal_values_of_other_types_are_told_apart():
    """What was calibrated before is taken again by how it is written: 1, 1.0 and True are equal."""
    for values in ([1, 0], [1.0, 0.0], [True, False], [1, 0]):
        plan = plan_of({"x": dpf.Categorical(values), "y": ["a", "b"]}, epsilon=1.0, delta=1e-6, n=500)
        assert [type(value) for value in plan["x"].space.labels()] == [type(value) for value in values]
    steps = [plan_of({"x": (0, 9), "y": (0, 9)}, epsilon=e, n=500)["x"].mechanism.epsilon for e in (1.0, 2.0, 1.0)]
    assert steps[0] == steps[2] < steps[1]
    uneven = plan_of({"x": (0, 9), "y": (0, 9)}, epsilon=1.0, n=500, allocation={"x": 0.9, "y": 0.1})
    assert uneven["x"].mechanism.epsilon > steps[0]
    named = plan_of({"x": (0, 9), "y": (0, 9)}, epsilon=1.0, n=500, mechanisms={"x": "geometric"})
    assert named["x"].mechanism.tag == "geometric"
    joined = plan_of({"x": (0, 9), "y": (0, 9)}, epsilon=1.0, n=500, groups=[("x", "y")])
    assert [group.names for group in joined.groups] == [("x", "y")]
