"""The page of a plan: its numbers are forecasts, its text is escaped, and a browser moves its sliders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest
from pages import outline

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.cli.main import main
from dpframe.plan import build_plan
from dpframe.plan.page import EPSILON_MULTIPLES, MOST_PAIRS, ROW_MULTIPLES, lost_columns, page_data
from dpframe.plan.setting import Setting

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Z = 1.959964
NASTY = "</script><b>sex"
SPACES = {"age": (0, 99), NASTY: ["F", "M"], "region": ["a", "b", "c"]}


@pytest.fixture(scope="module")
def plan():
    census = dpf.datasets.make_census(4_000, columns=["age", "sex", "region"])
    spaces = {"age": (0, 99), NASTY: list(dpf.datasets.SEXES), "region": list(dpf.datasets.REGIONS)}
    return dpf.plan(census.rename(columns={"sex": NASTY}), 1.0, spaces=spaces)


@pytest.fixture(scope="module")
def page(plan):
    return plan.page()


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def interpolated(data: dict, grid: list[list[float]], epsilon: float, rows: int) -> float:
    """Return what the page's script would, by other means: two linear interpolations of logarithms."""
    by_rows = [np.interp(np.log(rows), np.log(data["rows"]), np.log(line)) for line in grid]
    return float(np.exp(np.interp(np.log(epsilon), np.log(data["epsilons"]), by_rows)))


@pytest.mark.slow
def test_the_numbers_are_those_of_the_forecast(plan, page):
    data = data_of(page)
    assert data["plan"] == {"epsilon": 1.0, "delta": plan.delta, "rows": 4_000, "shuffled": True}
    assert len(data["epsilons"]) == len(EPSILON_MULTIPLES)
    assert data["rows"] == [round(4_000 * factor) for factor in ROW_MULTIPLES]
    forecast = plan.forecast()["std_error"]
    labels = {(one["kind"], " × ".join(one["columns"])) for one in data["statistics"]}
    shown = {(statistic.removesuffix(" in bins"), label): error for (statistic, label), error in forecast.items()}
    assert labels == set(shown)
    for one in data["statistics"]:
        error = shown[one["kind"], " × ".join(one["columns"])]
        centre = interpolated(data, one["grid"], 1.0, 4_000) * one["inferred"]
        assert centre == pytest.approx(Z * error, rel=2e-3)
        assert (one["range"] == 99) == (one["kind"] == "mean")


@pytest.mark.parametrize(("epsilon", "rows"), [(0.5, 4_000), (2.0, 9_000), (0.2, 1_000)])
def test_between_the_points_errors_are_interpolated(plan, page, epsilon, rows):
    data = data_of(page)
    own = replace(Setting.of(plan), promise=Budget(epsilon, plan.delta), n=rows).forecast().table["std_error"]
    for one in data["statistics"]:
        if one["kind"] != "joint":  # what is measured of pairs changes in leaps
            found = interpolated(data, one["grid"], epsilon, rows)
            assert found == pytest.approx(Z * own[one["kind"], one["columns"][0]], rel=0.15)


def test_the_page_holds_no_markup_of_names_and_loads_nothing(page):
    found = outline(re.sub(r"<(input[^>]*)>", r"", page))
    tags = [tag for tag, _ in found.seen]
    assert tags.count("script") == 2
    assert not {"link", "img", "iframe", "b"} & set(tags)
    assert not any({"src", "href"} & set(attributes) for _, attributes in found.seen)
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")


def test_what_inference_would_lose_falls_with_epsilon_and_rows():
    census = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    found = lost_columns(dpf.plan(census, 1.0), [0.5, 1.0, 2.0], [1_000, 2_000, 4_000])
    lost = np.array(found["lost"])
    assert found["columns"] == 2
    assert (np.diff(lost, axis=0) < 0).all()
    assert (np.diff(lost, axis=1) < 0).all()
    assert lost_columns(build_plan(SPACES, epsilon=1.0, n=100), [1.0], [100]) is None


def test_many_columns_have_a_coarser_grid_and_the_first_pairs():
    spaces = {f"c{i}": ["a", "b"] for i in range(26)}
    data = page_data(build_plan(spaces, epsilon=1.0, n=1_000, delta=0.0))
    assert data["epsilons"] == [1 / 8, 1.0, 8.0]
    assert data["rows"] == [round(1_000 / 16), 1_000, 16_000]
    assert sum(one["kind"] == "joint" for one in data["statistics"]) == MOST_PAIRS


def test_one_more_column_makes_errors_larger(page):
    assert 1.02 < data_of(page)["oneMore"] < 1.6


def test_a_page_needs_rows_columns_and_a_folder(tmp_path):
    for bad in (build_plan(SPACES, epsilon=1.0), build_plan({}, epsilon=1.0, n=10)):
        with pytest.raises(dpf.ParameterError, match=r"a page needs columns.*number of rows"):
            bad.page()
    with pytest.raises(dpf.FileError, match="could not be written: No such file"):
        build_plan({"a": ["x", "y"]}, epsilon=1.0, n=10, delta=0.0).page(tmp_path / "none" / "plan.html")


def test_the_shell_writes_it(tmp_path, capsys):
    dpf.datasets.make_census(500, columns=["sex"]).to_parquet(tmp_path / "in.parquet", index=False)
    (tmp_path / "spaces.json").write_text('{"sex": ["F", "M"]}')
    target = tmp_path / "plan.html"
    spaces = str(tmp_path / "spaces.json")
    with pytest.raises(SystemExit) as stopped:
        main(
            [
                "plan",
                str(tmp_path / "in.parquet"),
                "--epsilon",
                "1",
                "--delta",
                "0",
                "--spaces",
                spaces,
                "--html",
                str(target),
            ]
        )
    assert not stopped.value.code
    data = data_of(target.read_text(encoding="utf-8"))
    assert data["plan"]["rows"] == 500
    assert data["files"] == {"source": str(tmp_path / "in.parquet"), "plan": "plan.json"}
    assert "a page to try out" in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.slow
def test_a_browser_moves_the_sliders(tmp_path, plan, page):
    moved = """<script>
    document.getElementById("epsilon").value = 3;
    document.getElementById("epsilon").dispatchEvent(new Event("input"));
    </script>"""
    data, dom = data_of(page), []
    for text in (page, page.replace("</body>", f"{moved}</body>")):
        file = tmp_path / "plan.html"
        file.write_text(text, encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"]
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        done = subprocess.run(
            [CHROMIUM, *flags, profile, "--dump-dom", file.as_uri()],
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        assert "CONSOLE" not in done.stderr
        dom.append(unescape(re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)))
    region = next(one for one in data["statistics"] if one["columns"] == ["region"])
    for text, epsilon in zip(dom, (1.0, 2.8), strict=True):
        half = interpolated(data, region["grid"], epsilon, 4_000) * region["inferred"]
        shown = re.search(r">region</th><td class=\"number\">± ([\d.]+) percentage points", text)
        assert float(shown[1]) == pytest.approx(100 * half, rel=6e-3)
        assert f"df.dp.plan(epsilon={epsilon:g}, spaces=" in text
        assert f"dpframe plan people.parquet --epsilon {epsilon:g}" in text
        assert "--output plan.json\ndpframe sanitize people.parquet release.parquet --plan plan.json" in text
    assert ">73.2 % sure" in dom[0].replace("can be ", ">")


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("options", [{}, {"sample": 500}, {"groups": [("sex", "region")]}, {"measure": None}])
@pytest.mark.slow
def test_a_setting_forecasts_what_its_plan_would(epsilon, options):
    census = dpf.datasets.make_census(6_000, columns=["age", "sex", "region"])
    spaces = {"age": (0, 120), "sex": list(dpf.datasets.SEXES), "region": list(dpf.datasets.REGIONS)}
    own = Setting.of(dpf.plan(census, 1.0, spaces=spaces, **options))
    plan = dpf.plan(census.head(2_000), epsilon, spaces=spaces, **options)
    other = replace(own, promise=plan.release, n=2_000).forecast().table["std_error"]
    pd.testing.assert_series_equal(other, plan.forecast()["std_error"], rtol=0.05)
