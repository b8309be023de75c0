"""Every statistic takes one set of options, gives one tidy form, and can be drawn."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf

PARTS = ["estimate", "std_error", "lower", "upper"]
SPACES = {
    "age": (0, 99),
    "visits": (0, 9),
    "score": dpf.Nullable(dpf.Integer(0, 9)),
    "sex": ["F", "M"],
    "ward": ["a", "b", "c"],
    "tags": dpf.Subset(["x", "y", "z"], max_size=3),
    "load": dpf.Vector(3, bound=4.0),
}
WHERE = {"age": (20, None)}

Ask = Callable[..., Any]

ANSWERS: dict[str, tuple[list[str], Ask]] = {
    "compare": (["sex", "minus"], lambda e, **o: e.compare("age", by="sex", **o)),
    "cooccurrence": (["item", "with"], lambda e, **o: e.cooccurrence("tags", **o)),
    "corr": (["column", "with"], lambda e, **o: e.corr(["age", "visits"], **o)),
    "corr of a pair": (["column", "with"], lambda e, **o: e.corr("age", "visits", **o)),
    "count": (["statistic"], lambda e, **o: e.count({"sex": "F"}, **o)),
    "cov": (["column", "with"], lambda e, **o: e.cov(["age", "visits"], **o)),
    "cov of a pair": (["column", "with"], lambda e, **o: e.cov("age", "visits", **o)),
    "cov_curve": (["point", "with"], lambda e, **o: e.cov_curve("load", **o)),
    "crosstab": (["sex", "ward"], lambda e, **o: e.crosstab("sex", "ward", **o)),
    "describe": (["statistic", "column"], lambda e, **o: e.describe(["age", "visits"], **o)),
    "histogram": (["age"], lambda e, **o: e.histogram("age", bins=4, **o)),
    "infer": (["statistic"], lambda e, **o: e.infer(lambda t: t[["age"]].mean(), **o)),
    "joint": (["sex", "ward"], lambda e, **o: e.joint(["sex", "ward"], **o)),
    "mean": (["column"], lambda e, **o: e.mean("age", **o)),
    "mean of columns": (["column"], lambda e, **o: e.mean(["age", "visits"], **o)),
    "mean by two": (["sex", "ward"], lambda e, **o: e.mean("age", by=["sex", "ward"], **o)),
    "mean where": (["ward"], lambda e, **o: e.mean("visits", by="ward", where=WHERE, **o)),
    "mean_curve": (["position"], lambda e, **o: e.mean_curve("load", **o)),
    "median": (["ward"], lambda e, **o: e.median("age", by="ward", where={"sex": "F"}, **o)),
    "null_rate": (["column"], lambda e, **o: e.null_rate("score", **o)),
    "quantile": (["ward", "q"], lambda e, **o: e.quantile("age", [0.25, 0.5], by="ward", **o)),
    "regress": (["term"], lambda e, **o: e.regress("visits ~ age", **o)),
    "set_sizes": (["size"], lambda e, **o: e.set_sizes("tags", **o)),
    "std": (["sex"], lambda e, **o: e.std("age", by="sex", **o)),
    "sum": (["sex"], lambda e, **o: e.sum("visits", by="sex", where=WHERE, **o)),
    "support": (["tags", "sex"], lambda e, **o: e.support("tags", by="sex", **o)),
    "top": (["ward"], lambda e, **o: e.top("ward", 2, **o)),
    "value_counts": (["ward"], lambda e, **o: e.value_counts("ward", where=WHERE, **o)),
    "value_counts of two": (["sex", "ward"], lambda e, **o: e.value_counts(["sex", "ward"], **o)),
    "value_counts of two where": (["sex", "ward"], lambda e, **o: e.value_counts(["sex", "ward"], where=WHERE, **o)),
    "var": (["column"], lambda e, **o: e.var("age", **o)),
}
"""The keys of each statistic's tidy frame, and a call of it."""

pytestmark = pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")


@pytest.fixture(scope="module")
def safe() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    ward, age = generator.choice(["a", "b", "c"], 900), generator.integers(18, 95, 900)
    tags = [[tag for tag in "xyz" if generator.random() < 0.4] for _ in range(900)]
    frame = pd.DataFrame(
        {
            "age": age,
            "visits": np.minimum(generator.poisson(age / 30), 9),
            "score": [None, 3, 5, 7] * 225,
            "sex": generator.choice(["F", "M"], 900),
            "ward": ward,
            "tags": tags,
            "load": list(generator.normal(1, 0.5, (900, 3))),
        }
    )
    return dpf.sanitize(frame, epsilon=9, delta=1e-6, spaces=SPACES, key=bytes(32))


@pytest.fixture(scope="module")
def estimates(safe: pd.DataFrame) -> dpf.Estimates:
    return dpf.Estimates(safe)


@pytest.mark.walk(6)
@pytest.mark.parametrize("name", ANSWERS)
def test_every_statistic_has_a_level_a_tidy_form_and_a_picture(
    name: str, safe: pd.DataFrame, estimates: dpf.Estimates
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    keys, ask = ANSWERS[name]
    wide = ask(estimates)
    narrow = ask(dpf.Estimates(safe, confidence_level=0.5))
    long = ask(estimates, confidence_level=0.5, long=True)
    assert dpf.error_bars(narrow).sum() < dpf.error_bars(wide).sum()
    assert list(long.columns)[: len(keys) + 4] == [*keys, *PARTS]
    table = narrow.to_frame().T if isinstance(narrow, pd.Series) else narrow
    rows = table if table.columns.nlevels == 1 else table.stack(level=1, future_stack=True)
    np.testing.assert_array_equal(long[PARTS].to_numpy(dtype=float), rows[PARTS].to_numpy(dtype=float))
    index_names = list(narrow.index.names)
    for result in (wide, narrow, long):
        axes = estimates.plot(result)
        assert axes.has_data() or axes.texts
        pyplot.close(axes.figure)
    assert list(narrow.index.names) == index_names


def test_a_picture_names_the_statistic_and_its_column(estimates: dpf.Estimates) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = estimates.plot(estimates.mean("visits", by="ward", long=True))
    assert axes.get_xlabel() == "mean of visits, with its interval"
    pyplot.close(axes.figure)


@pytest.mark.parametrize("name", ["median", "std", "sum", "var"])
def test_a_list_of_columns_has_a_row_for_each(name: str, estimates: dpf.Estimates) -> None:
    ask = getattr(estimates, name)
    table = ask(["age", "visits"], target="population")
    assert list(table.index) == ["age", "visits"]
    for column in table.index:
        assert table.loc[column].to_dict() == ask(column, target="population").to_dict()
    assert list(ask(column=["age"], long=True)["column"]) == ["age"]
    with pytest.raises(dpf.errors.ParameterError, match=f"by goes with the {name} of one column"):
        ask(["age", "visits"], by="sex")


def test_wide_results_print_every_column_once_per_part(estimates: dpf.Estimates) -> None:
    """Pandas would omit columns in the middle, so that upper ends look like estimates."""
    table = estimates.describe(["age", "visits"])
    with pd.option_context("display.max_columns", 4):
        text, page = repr(table), table._repr_html_()
    assert [line for line in text.splitlines() if line.endswith(":")] == [f"{part}:" for part in PARTS]
    assert text.startswith(f"estimate:\n{table['estimate']!r}\n\nstd_error:\n")
    assert page.count("<table") == 4
    with pd.option_context("display.max_columns", 40, "display.width", 200):
        assert repr(table) == repr(pd.DataFrame(table))
        assert table._repr_html_().count("<table") == 1


def test_no_statistic_is_left_out(estimates: dpf.Estimates) -> None:
    others = {"clipped_at", "fidelity", "nunique", "plot", "synthesize", "verify"}
    methods = {n for n, _ in inspect.getmembers(dpf.Estimates, inspect.isfunction) if not n.startswith("_")}
    assert {name.split()[0] for name in ANSWERS} | {"independence"} == methods - others
    for name in methods - others:
        assert {"confidence_level", "clipped", "long"} <= {*inspect.signature(getattr(estimates, name)).parameters}
    dependence = estimates.independence("sex", "ward", long=True, confidence_level=0.9)
    assert list(dependence.columns) == ["statistic", "p_value", "cramers_v", "lower"]


def test_options_leave_the_estimates_as_they_were(estimates: dpf.Estimates) -> None:
    before = estimates.mean("age")
    assert estimates.mean("age", confidence_level=0.5)["upper"] < before["upper"]
    pd.testing.assert_series_equal(estimates.mean("age"), before)
    assert (estimates.confidence_level, estimates.clipped) == (0.95, False)


def test_a_key_with_a_name_of_a_result_gets_an_underscore() -> None:
    frame = pd.DataFrame({"lower": ["a", "b"] * 200})
    safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"lower": ["a", "b"]}, key=bytes(32))
    assert safe.dp.value_counts("lower", long=True).columns.tolist() == ["lower_", *PARTS]


def test_error_bars_are_matplotlibs_and_pandas(estimates: dpf.Estimates) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    means, table = estimates.mean("age", by="ward"), estimates.crosstab("ward", "sex")
    bars = dpf.error_bars(means)
    assert bars.shape == (2, 3)
    np.testing.assert_allclose(bars[1], means["upper"] - means["estimate"])
    drawn = pyplot.errorbar(means.index, means["estimate"], yerr=bars)
    np.testing.assert_allclose(drawn.lines[2][0].get_segments()[0][:, 1], means.loc["a", ["lower", "upper"]])
    assert dpf.error_bars(table).shape == (2, 2, 3)
    table["estimate"].plot.bar(yerr=dpf.error_bars(table))
    pyplot.close("all")


@pytest.mark.filterwarnings("default::dpframe.errors.DpframeWarning")
@pytest.mark.parametrize("ask", [lambda e: e.describe(), lambda e: e.corr()], ids=["describe", "corr"])
def test_an_answer_warns_of_all_columns_in_one_table(ask: Callable[[dpf.Estimates], pd.DataFrame]) -> None:
    columns = {name: np.arange(4_000) for name in ("cost", "fee", "height")}
    spaces = {"cost": (0, 2_000), "fee": (1_000, 4_000), "height": (0, 5_000)}
    safe = dpf.sanitize(pd.DataFrame(columns), epsilon=4, spaces=spaces, key=bytes(32))
    with pytest.warns(dpf.errors.InferenceWarning) as caught:
        ask(dpf.Estimates(safe))
    (warning,) = caught
    assert warning.filename == __file__
    headline, *lines = str(warning.message).splitlines()
    assert headline.startswith("values are clipped to bounds, and rows may lie beyond;")
    cost, fee = lines
    assert re.fullmatch(r"  cost  about \d+ % .* upper bound, 2000  +raise the bound if values go beyond", cost)
    assert re.fullmatch(r"  fee   about \d+ % .* lower bound, 1000  +lower the bound if values go beyond", fee)
    # The remedies stand below each other.
    assert len({len(re.split("(?:raise|lower) the bound", line)[0]) for line in lines}) == 1


def test_times_are_drawn() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    days = pd.date_range("2024-01-01", periods=400, freq="D")
    frame = pd.DataFrame({"day": days, "sex": ["F", "M"] * 200})
    spaces = {"day": dpf.Datetime("2024-01-01", "2025-12-31"), "sex": ["F", "M"]}
    safe = dpf.sanitize(frame, epsilon=9, spaces=spaces, key=bytes(32))
    for result in (safe.dp.mean("day", by="sex"), safe.dp.quantile("day", [0.25, 0.5]), safe.dp.std("day")):
        pyplot.close(safe.dp.plot(result).figure)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.mean("age", long="yes"), r"^long must be True or False$"),
        (lambda e: e.mean("age", clipped="yes"), r"^clipped must be True or False$"),
        (
            lambda e: e.mean("age", confidence_level=95),
            r"^confidence_level must lie in .* confidence_level=0\.95$",
        ),
        (lambda e: e.corr(levle=3), r"^corr has no argument 'levle'; it takes columns, other, "),
        (
            lambda e: e.corr(["age"], "visits"),
            r"^corr takes two names, e\.g\. corr\(.*\), or one list",
        ),
        (lambda e: e.cov(["age", "visits"], 0), r"^cov takes two names, e\.g\. "),
        (lambda e: dpf.error_bars(e.fidelity()), r"^result must have estimate, lower and upper, as safe\.dp\.mean"),
        (lambda e: e.plot(e.fidelity()), r"^result must have estimate, lower and upper"),
        (lambda e: e.plot(e.mean("age"), bins=3), r"^plot draws one result without options; pass options to its stat"),
        (lambda e: e.value_counts(["sex", "ward"], where=WHERE, method="em"), r"pass \"auto\"$"),
    ],
)
def test_what_is_refused(estimates: dpf.Estimates, call: Any, message: str) -> None:
    with pytest.raises(dpf.errors.ParameterError) as error:
        call(estimates)
    assert re.search(message, str(error.value))


@pytest.mark.parametrize("where", [{"sex": "F"}, {"sex": ["F"]}])
def test_a_group_has_one_mean(where: dict[str, Any], estimates: dpf.Estimates) -> None:
    by_sex = estimates.mean("visits", by="sex")
    assert estimates.mean("visits", where=where).to_dict() == by_sex.loc["F"].to_dict()


def test_quantiles_of_groups_that_noise_hides_warn_and_stay_within_the_bounds() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"ward": generator.choice(list("abc"), 400), "cost": generator.lognormal(1, 1, 400).clip(0, 50)}
    )
    safe = dpf.sanitize(frame, epsilon=0.3, spaces={"ward": list("abc"), "cost": dpf.Real(0, 50)}, key=bytes(32))
    with pytest.warns(dpf.errors.InferenceWarning) as caught:
        medians = safe.dp.median("cost", by="ward")
    assert any("1 of 3 quantiles of 'cost' by ward are mostly noise" in str(one.message) for one in caught)
    assert medians[["lower", "upper"]].stack().between(0, 50).all()
