"""Means of vectors: unbiased with honest covariances, by group, beside nulls, and from measured sums."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from checks import refused
from conftest import KEY

import dpframe as dpf
from dpframe import Nullable, ReleaseInfo, Vector
from dpframe.accounting.discrete_gaussian import BallNoise, IntegerNoise, noise_step
from dpframe.accounting.gaussian_dp import gaussian_delta
from dpframe.errors import ParameterError
from dpframe.estimate.plot import draw_curve
from dpframe.estimate.vectors import VectorColumn, largest_deviations
from dpframe.plan.build import build_plan
from dpframe.plan.measures import Measure
from dpframe.totals.counts import Vectors

SPACE = Vector(3, 1.0)
NULLS = Nullable(Vector(3, 1.0))
SEX = ["F", "M"]


def frame(n: int, nulls: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    sex = rng.choice(SEX, n)
    rows = rng.normal(size=(n, 3)) * 0.1 + np.where(sex[:, None] == "F", [0.4, 0.0, -0.2], [0.0, 0.3, 0.1])
    column = pd.Series(rows.tolist(), dtype=object)
    if nulls:
        column[rng.random(n) < 0.25] = None
    return pd.DataFrame({"v": column, "sex": sex})


def truth(people: pd.DataFrame) -> dict[str, np.ndarray]:
    present = people[people["v"].notna()]
    rows = np.array(present["v"].tolist())
    return {"": rows.mean(axis=0)} | {s: rows[(present["sex"] == s).to_numpy()].mean(axis=0) for s in SEX}


@pytest.mark.parametrize("space", [SPACE, NULLS], ids=["vector", "nullable"])
def test_surrogates_of_coordinates_and_products_are_unbiased(space) -> None:
    """E[φᵢ | x] = xᵢ and E[s | x] = xᵢxⱼ over exact laws, for a vector and for null."""
    small = Vector(2, 1.0, "linf", bits=2)
    column = build_plan({"a": Nullable(small) if space.has_null else small}, epsilon=1.5).columns[0]
    mine, size = VectorColumn.of(column), column.space.size
    parts = small.coordinates(small.code_array(range(small.size))) / 3
    for code in {0, 7, 15, size - 1}:
        law = column.mechanism.law(code)
        a = sum(p * mine.sums([{"a": column.space.code_array([y])}], None).value[0] for y, p in enumerate(law))
        s = sum(p * mine.sums([{"a": column.space.code_array([y])}], None).square[0] for y, p in enumerate(law))
        one = sum(p * mine.sums([{"a": column.space.code_array([y])}], None).present[0] for y, p in enumerate(law))
        null = code == size - 1 and space.has_null
        expected = np.zeros(2) if null else parts[code]
        np.testing.assert_allclose(a, expected, atol=1e-9)
        np.testing.assert_allclose(s, np.outer(expected, expected), atol=1e-9)
        assert one == pytest.approx(0.0 if null else 1.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("measure", [None, [("v",)], [("v", "sex")]], ids=["rows", "sums", "sums by sex"])
@pytest.mark.parametrize("nulls", [False, True], ids=["vector", "nullable"])
def test_errors_are_honest(nulls, measure) -> None:
    """Over 20 keys, squared deviations over variances average 1 within five of their standard errors (1e-6 each)."""
    people, runs = frame(1_500, nulls), 20
    spaces = {"v": NULLS if nulls else SPACE, "sex": SEX}
    plan = people.dp.plan(epsilon=4.0, delta=1e-6, spaces=spaces, measure=measure)
    exact, ratios, covered = truth(people), {"": [], "F": [], "M": []}, []
    for run in range(runs):
        safe = dpf.sanitize(people, plan=plan, key=run.to_bytes(32, "big"))
        whole, by = safe.dp.mean_curve("v"), safe.dp.mean("v", by="sex")
        ratios[""].append((whole["estimate"] - exact[""]) / whole["std_error"])
        for one in SEX:
            ratios[one].append((by.loc[one, "estimate"] - exact[one]) / by.loc[one, "std_error"])
        inside = (whole["band_lower"] <= exact[""]) & (exact[""] <= whole["band_upper"])
        covered.append(bool(inside.all()))
    for name, found in ratios.items():
        squares = np.array(found) ** 2
        assert abs(squares.mean() - 1) < 5 * math.sqrt(2 / squares.size), name
    assert np.mean(covered) > 0.8
    told = "rows" if measure is None else "tables"
    assert whole.attrs["source"] == told
    assert by.attrs["source"] == ("tables" if measure == [("v", "sex")] else "rows")
    wider = (safe.dp.mean_curve("v", target="population")["std_error"] / whole["std_error"]).to_numpy()
    # The rows' own spread, a tenth of the noise's here, is itself estimated from noisy rows.
    assert (wider > (0.85 if measure is None else 1.0)).all()


def test_bands_hold_together_and_are_wider_than_intervals() -> None:
    """The quantile of max|Z| lies between one normal's and Bonferroni's; exactly known ones are met."""
    assert largest_deviations(np.eye(1), np.eye(1)[None], 0.95) == [pytest.approx(1.96, abs=0.03)]
    assert largest_deviations(np.eye(24), np.eye(24)[None], 0.95) == [pytest.approx(3.0724, abs=0.03)]
    assert largest_deviations(np.ones((24, 1)), np.eye(1)[None], 0.95) == [pytest.approx(1.96, abs=0.03)]
    unknown = np.array([np.full((2, 2), np.inf), np.eye(2)])
    assert largest_deviations(np.eye(2), unknown, 0.95) == [math.inf, pytest.approx(2.236, abs=0.03)]


def test_null_rates_and_refusals() -> None:
    people = frame(2_000, True)
    safe = dpf.sanitize(people, epsilon=6.0, delta=1e-6, spaces={"v": NULLS, "sex": SEX}, key=KEY)
    rate = safe.dp.null_rate("v")
    assert abs(rate["estimate"] - people["v"].isna().mean()) < 5 * rate["std_error"]
    for match, call in (
        ("holds vectors, which are not counted", lambda: safe.dp.value_counts("v")),
        ("holds vectors, which are not counted", lambda: safe.dp.crosstab("sex", "v")),
        ("holds vectors, no numbers; ask for mean", lambda: safe.dp.var("v")),
        ("holds no sets; ask for mean", lambda: safe.dp.support("v")),
        ("holds no sets; ask for mean", lambda: safe.dp.set_sizes("v")),
        ("holds vectors, about which where says nothing", lambda: safe.dp.count(where={"v": [0.0]})),
        (r"no rows are drawn; .* release.drop\(columns=\['v'\]\)", lambda: safe.dp.synthesize()),
        ("is a vector, which takes no weights", lambda: safe.dp.mean("v", weights="sex")),
        ("takes one column in by", lambda: safe.dp.mean("v", by=["sex"])),
        ("is a vector; ask for it on its own", lambda: safe.dp.mean(["v"])),
        ("bins are for the column of by", lambda: safe.dp.mean_curve("v", bins=3)),
        ("cannot be grouped by itself", lambda: safe.dp.mean_curve("v", by="v")),
        ("holds no vectors or curves", lambda: safe.dp.mean_curve("sex")),
    ):
        refused(ParameterError, match, call)
    assert list(safe.drop(columns=["v"]).dp.synthesize()) == ["sex"]
    assert "Mean of v" in safe.dp.report().to_html()
    assert ("mean curve", "v") in safe.dp.release.plan.forecast().index
    assert safe.dp.plot("v").get_ylabel() == "mean (estimate, band)"
    assert safe.dp.plot("v", by="sex").get_legend() is not None


def test_the_legend_of_curves_covers_none_of_them() -> None:
    index = pd.MultiIndex.from_product([list("abcdefgh"), range(24)], names=["region", "hour"])
    middle = np.tile(np.sin(np.arange(24)), 8)
    columns = {"estimate": middle, "band_lower": middle - 1, "band_upper": middle + 1}
    figure = plt.figure(layout="constrained")
    ax = draw_curve(pd.DataFrame(columns, index=index), figure.subplots())
    figure.canvas.draw()
    legend, within = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.x0 >= within.x1
    assert legend.x1 <= figure.bbox.x1


def test_a_picture_of_many_groups_shows_the_clearest_in_full() -> None:
    """Each curve with its band at every point; of more than eight groups those with the narrowest bands, said so."""
    index = pd.MultiIndex.from_product([list("abcdefghij"), [0, 1, 2]], names=["region", "position"])
    middle, half = np.arange(30.0), np.repeat([9, 1, 2, 3, 4, 5, 6, 7, 8, np.inf], 3)
    columns = {"estimate": middle, "band_lower": middle - half, "band_upper": middle + half}
    ax = draw_curve(pd.DataFrame(columns, index=index), plt.figure().subplots())
    assert [line.get_label() for line in ax.lines] == list("bcdefghi")
    assert ax.get_legend().get_title().get_text() == "region\n(2 more, less certain)"
    for i, (line, band) in enumerate(zip(ax.lines, ax.collections, strict=True), 1):
        assert line.get_ydata().tolist() == middle[3 * i : 3 * i + 3].tolist()
        edges = band.get_paths()[0].vertices[:, 1]
        assert (edges.min(), edges.max()) == (3 * i - half[3 * i], 3 * i + 2 + half[3 * i])
    plt.close("all")


# Measured sums


def test_sums_do_not_depend_on_batches_and_count_rows_that_are_not_null() -> None:
    space, people = NULLS, frame(500, True)
    codes, cells = space.encode(people["v"]), (people["sex"] == "M").to_numpy().astype(np.intp)
    whole, parts = Vectors(space, 2), Vectors(space, 2)
    whole.add(codes, cells)
    for start in range(0, 500, 77):
        parts.add(codes[start : start + 77], cells[start : start + 77])
    np.testing.assert_array_equal(whole.counts, parts.counts)
    present = people["v"].notna().to_numpy()
    inner = space.inner.coordinates(space.inner.encode(people["v"][present].reset_index(drop=True)))
    for cell in (0, 1):
        mine = cells[present] == cell
        assert whole.counts[cell].tolist() == [*inner[mine].sum(axis=0).tolist(), 65_535 * int(mine.sum())]


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_no_replaced_row_moves_sums_by_more_than_the_accountant_takes(norm) -> None:
    """All pairs of rows of a small ball, their groups and null: ‖change‖₂ ≤ the noise's span, which is nearly met."""
    inner = Vector(2, 1.0, norm, bits=4)
    space = Nullable(inner)
    words = inner.ball.pack(np.stack(np.meshgrid(range(16), range(16)), axis=-1).reshape(-1, 2))
    codes = np.vstack([words, space.code_array([space.null])])
    rows = []
    for code in codes:
        for cell in (0, 1):
            sums = Vectors(space, 2)
            sums.add(code[None, :], np.array([cell]))
            rows.append(sums.counts.ravel())
    table = np.array(rows)
    far = max(float(((table - row) ** 2).sum(axis=1).max()) for row in table)
    noise = Measure("vectors", ("v", "g"), 1e9).noise({"v": space, "g": dpf.Categorical(["a", "b"])})
    assert far <= noise.span**2
    assert far >= 0.85 * noise.span**2
    assert noise.numbers == table.shape[1]


@pytest.mark.slow
def test_the_step_of_a_ball_lies_above_exact_laws_in_two_dimensions() -> None:
    """The hockey-stick divergence of two-dimensional noise, summed over its lattice, against what is claimed."""
    sigma2, move = 2_500.0, np.array([7, 24])
    noise = BallNoise(sigma2 * 40, numbers=2, span=25)
    s2 = noise.sigma2
    y = np.arange(-4_000, 4_001)
    one = np.exp(-(y**2) / (2 * s2))
    one /= one.sum()
    step = noise_step([noise], 1, 1e-10)
    assert 25 / math.sqrt(s2) <= step.mu <= 25 / math.sqrt(s2) * 1.01
    loss = (move @ move - 2 * (move[0] * y[:, None] + move[1] * y[None, :])) / (2 * s2)
    for x in (0.0, 0.05, 0.15):
        exact = float((np.multiply.outer(one, one) * np.maximum(-np.expm1(x - loss), 0)).sum())
        assert exact <= 1e-10 + gaussian_delta(step.mu, x)
    twice = noise_step([noise], 2, 1e-10)
    assert 50 / math.sqrt(s2) <= twice.mu <= 2 * step.mu
    both = noise_step([noise, IntegerNoise(400.0)], 1, 1e-10)
    assert both.mu > math.hypot(step.mu, math.sqrt(2) / 20) * 0.999
    with pytest.raises(ParameterError, match="noise on vectors is too small"):
        noise_step([BallNoise(25.0, numbers=2, span=5)], 1, 1e-10)


@pytest.mark.slow
def test_what_is_measured_of_vectors() -> None:
    people = frame(4_000)
    spaces = {"v": SPACE, "sex": SEX}
    plan = people.dp.plan(epsilon=1.0, delta=1e-6, spaces=spaces)
    assert [m.kind for m in plan.measures if "v" in m.columns] == ["vectors"]
    assert any("sum of vectors" in line for line in plan.lines())
    assert dpf.Plan.from_json(plan.to_json()) == plan
    told = plan.forecast().loc[("mean curve", "v")]
    assert told["std_error"] < told["rows_alone"] / 5
    safe = dpf.sanitize(people, plan=plan, key=KEY)
    assert safe.dp.mean_curve("v")["std_error"].mean() == pytest.approx(told["std_error"], rel=0.05)
    again = ReleaseInfo.from_json(safe.attrs["dpframe"])
    assert again.tables == safe.dp.release.tables
    alone = people[["v"]].dp.plan(epsilon=1.0, delta=1e-6, spaces={"v": SPACE})
    assert [m.kind for m in alone.measures] == ["vectors"]
    turned = people.dp.plan(epsilon=1.0, delta=1e-6, spaces=spaces, measure=[("sex", "v")])
    assert turned.measures[-1].columns == ("v", "sex")


def test_measures_that_make_no_sense_are_refused() -> None:
    people, spaces = frame(4_000), {"v": SPACE, "sex": SEX}
    numbers = people.assign(age=np.arange(4_000) % 90)
    with_age = {**spaces, "age": (0, 90)}
    for measure, match in (
        ([("v", "age")], "cannot be measured by column 'age', which has no list of values"),
        ([("v", "sex", "age")], "holds vectors, whose sums are measured on their own or by one listed column"),
    ):
        refused(
            ParameterError,
            match,
            lambda measure=measure: numbers.dp.plan(epsilon=1.0, delta=1e-6, spaces=with_age, measure=measure),
        )
    wrong = Measure("vectors", ("sex",), 1e9)
    with pytest.raises(ParameterError, match="holds no vectors, and has no sums of them"):
        build_plan(spaces, epsilon=1.0, delta=1e-6, n=4_000, measures=[wrong])
    with pytest.raises(ParameterError, match="has one or two columns, each once"):
        Measure("vectors", ("a", "b", "c"), 1e9)


def test_noise_of_measured_sums_is_of_a_stream_of_its_own() -> None:
    people = frame(300)
    plan = people.dp.plan(epsilon=1.0, delta=1e-6, spaces={"v": SPACE, "sex": SEX}, measure=[("v",), ("v", "sex")])
    one, two = dpf.sanitize(people, plan=plan, key=KEY).dp.release.tables[-2:]
    assert one.counts.shape == (1, 4)
    assert two.counts.shape == (2, 4)
    assert np.abs(one.counts - two.counts.sum(axis=0)).min() > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("options", [{}, {"mechanisms": {"v": "gaussian"}, "shuffle": False}])
def test_covariances_are_unbiased_and_covered(null, options):
    """40 releases of 4,000 rows: intervals hold 91 to 98.5 % of nine entries, off by .35 errors in mean at most."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4_000, 3)) @ np.array([[0.3, 0, 0], [0.2, 0.2, 0], [0.1, 0.1, 0.1]]).T + [0.2, 0, -0.1]
    frame = pd.DataFrame({"v": list(values)})
    space = dpf.Vector(3, 1.5)
    if null:
        frame.loc[::4, "v"] = None
    held = np.array(space.decode(space.encode(frame["v"].dropna().tolist())).to_pylist())
    truth = np.cov(held.T)
    spaces = {"v": dpf.Nullable(space) if null else space}
    plan = frame.dp.plan(epsilon=8, delta=1e-6, spaces=spaces, measure=None, **options)
    off, inside = [], []
    for i in range(40):
        found = frame.dp.sanitize(plan=plan, key=i.to_bytes(32, "big")).dp.cov_curve("v")
        error = (found["estimate"] - truth) / found["std_error"]
        off.append(error.to_numpy())
        inside.append(((found["lower"] <= truth) & (found["upper"] >= truth)).to_numpy().mean())
    assert 0.91 < np.mean(inside) < 0.985
    assert np.abs(np.mean(off, axis=0)).max() < 0.55
    assert abs(np.mean(off)) < 0.35
    assert found["estimate"].index.name == "position"


def test_covariances_of_many_numbers_are_refused():
    frame = pd.DataFrame({"v": list(np.zeros((50, 300)))})
    safe = frame.dp.sanitize(epsilon=5, delta=0, spaces={"v": dpf.Vector(300, 1.0)})
    refused(
        ParameterError,
        "covariances of 300 numbers are too many to estimate, at most 256",
        lambda: safe.dp.cov_curve("v"),
    )
    plain = pd.DataFrame({"a": [1, 2, 3]}).dp.sanitize(epsilon=5, delta=0, spaces={"a": (0, 5)})
    refused(ParameterError, "holds no vectors or curves", lambda: plain.dp.cov_curve("a"))
