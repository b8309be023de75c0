"""The report's page: what it says, that nothing escapes escaping, and that a browser shows it without complaint."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from pages import outline, visible
from scipy.stats import norm

import dpframe as dpf
from dpframe.accounting.budget import Budget, upward
from dpframe.channels import MECHANISMS as REGISTERED
from dpframe.plan.beliefs import after, best_guess, chance, percent
from dpframe.plan.build import build_plan
from dpframe.release.info import ReleaseInfo
from dpframe.report.elements import MECHANISMS
from dpframe.report.figures import share_table
from dpframe.report.overview import overview
from dpframe.report.page import add_remove, environment
from dpframe.report.report import Report
from dpframe.spaces import Space
from dpframe.spaces.base import SPACES as REGISTERED_SPACES
from dpframe.spaces.words import number

KEY = bytes(range(32))
# Control characters and non-characters: HTML forbids them even escaped.
FORBIDDEN = {chr(i) for i in (*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFFFF)}
NASTY = "<script>alert('&')</script>\x07"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BROWSER_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
]


@pytest.fixture(scope="module")
def safe():
    frame = dpf.datasets.make_census(
        4_000, columns=["age", "sex", "education", "occupation", "income", "birth_date", "hobbies"]
    )
    frame = frame.rename(columns={"sex": NASTY})
    spaces = {
        "age": (0, 120),
        NASTY: ["F", "M", "<img src=x onerror=alert(1)>"],
        "education": dpf.Ordinal(dpf.datasets.EDUCATION),
        "occupation": dpf.Nullable(dpf.Categorical(dpf.datasets.OCCUPATIONS)),
        "income": dpf.Nullable(dpf.Real(0, 250_000)),
        "birth_date": ("1930-01-01", "2008-01-01"),
        "hobbies": dpf.Subset(dpf.datasets.HOBBIES, max_size=6),
    }
    return frame.dp.sanitize(epsilon=1, spaces=spaces, key=KEY)


@pytest.fixture(scope="module")
def html(safe):
    return safe.dp.report().to_html()


def test_sections_and_verdict(html):
    words = visible(html)
    for title in (
        "The promise is verified.",
        "nothing of how good the numbers are: of 7 columns",
        "What the release holds",
        "What reviewers ask",
        "add/remove ε = 0.5",
        "What is promised",
        "What is not protected",
        "What was proved, and what is attested",
        "How each column was randomised",
        "How exact it is",
        "What makes the noise small",
        "with local_epsilon=2 a best guess is right at most 88.1 % of the time",
        "Even odds become at most 73.2 %",
        "the table holds the 4,000 rows that were released",
        "one person owns at most one row",
    ):
        assert title in words, title
    assert words.index("What the release holds") < words.index("What is promised")
    assert words.index("What is promised") < words.index("What is not protected") < words.index("How exact it is")


def test_valid_accessible_and_self_contained(html):
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    found = outline(html)
    tags = [tag for tag, _ in found.seen]
    assert tags.count("h1") == tags.count("title") == tags.count("main") == 1
    assert not {"script", "img", "link", "iframe", "object"} & set(tags)
    for tag, attributes in found.seen:
        assert not {"src", "href", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "svg":
            assert attributes["aria-hidden"] == "true"
    assert tags.count("table") == tags.count("caption") == tags.count("thead") > 8
    assert "url(" not in html
    assert "http" not in html.replace("http-equiv", "")
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert all(float(a["width"]) >= 0 for tag, a in found.seen if tag == "rect")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_contrast(html):
    # WCAG 2.1 AA: 4.5 to 1 for text, on both backgrounds, in the light and the dark theme.
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in html.split("prefers-color-scheme: dark")]
    assert len(themes) == 2
    assert themes[0].keys() == themes[1].keys()
    for colours in themes:
        for paper in ("paper", "wash"):
            for ink in ("ink", "soft", "good", "bad"):
                dark, light = sorted(luminance(colours[name]) for name in (paper, ink))
                assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_names_and_labels_are_escaped(html):
    assert "<script" not in html
    assert "<img" not in html
    assert "\x07" not in html
    assert "&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;" in html


def test_the_same_text_each_time(safe, html):
    assert safe.copy().dp.report().to_html() == html
    assert not re.search(r"20[2-9]\d-\d\d-\d\d", html.replace("2008", ""))


def test_estimates_are_those_of_the_release(safe, html):
    words = visible(html)
    found = safe.dp.value_counts(NASTY, normalize=True)
    whole = found[found["lower"] > 0]
    assert len(whole) > 1
    for estimate, upper in zip(whole["estimate"], whole["upper"], strict=True):
        assert f"{100 * estimate:.1f} % ± {100 * (upper - estimate):.1f}".replace("-", "−") in words
    mean = safe.dp.mean("income")
    assert f"{mean['estimate']:,.0f} ± {(mean['upper'] - mean['lower']) / 2:.0f}" in words


@pytest.mark.slow
def test_an_interval_that_reaches_further_to_one_side_is_written_by_its_ends():
    frame = pd.DataFrame({"cost": np.random.default_rng(1).pareto(2.0, 3_000) * 1_000, "sex": ["F", "M"] * 1_500})
    safe = dpf.sanitize(frame, epsilon=4, key=bytes([1]) * 32)
    mean = safe.dp.mean("cost")
    assert mean["upper"] - mean["estimate"] > 2 * (mean["estimate"] - mean["lower"])
    words = visible(safe.dp.report().to_html())
    assert f"{mean['estimate']:.0f} ({mean['lower']:.0f} to {number(mean['upper'])})" in words


def test_rows_clipped_to_a_declared_bound_are_noted():
    frame = pd.DataFrame({"cost": np.arange(4_000)})
    safe = dpf.sanitize(frame, epsilon=2, spaces={"cost": (0, 2_000)}, key=bytes(32))
    with pytest.warns(dpf.errors.InferenceWarning, match="declared upper bound, 2000"):
        words = visible(safe.dp.report().to_html())
    assert re.search(r"About (49|50|51) % of the rows seem to lie at the upper bound", words)


@pytest.mark.slow
def test_wide_bounds_make_no_mean_good():
    """The error is 5 % of the range at most, and more than 5 % of four standard deviations."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"cost": rng.gamma(2.0, 700.0, 1_000), "sex": ["F", "M"] * 500})
    safe = dpf.sanitize(frame, epsilon=1, spaces={"cost": (0, 50_000.0), "sex": ["F", "M"]}, key=bytes(32))
    plan = safe.dp.release.plan
    assert overview(plan, 1_000).columns[0].verdict == "good"
    assert overview(plan, 1_000, dpf.Estimates(safe)).columns[0].verdict != "good"


@pytest.mark.slow
def test_bins_of_whole_numbers_do_not_overlap_and_measured_numbers_have_a_distribution():
    frame = pd.DataFrame({"age": np.arange(2_000) % 80 + 18, "cost": np.arange(2_000.0)})
    safe = dpf.sanitize(frame, epsilon=4, spaces={"age": (18, 100), "cost": (0, 2_000.0)}, key=bytes(32))
    words = visible(safe.dp.report().to_html())
    for said in ("18 … 27", "28 … 38", "91 … 100", "0 … 250", "250 … 500"):
        assert said in words
    assert re.search(r"drawn from 0 to [\d.]+ %, the largest upper end", words)


def test_without_a_table_it_forecasts(safe):
    report = Report(safe.dp.release)
    words = visible(report.to_html())
    assert "Estimates of the original table" not in words
    half = 1.959964 * report.info.plan.forecast().loc[("marginal", "education"), "std_error"]
    assert f"± {100 * half:.2g} percentage points" in words


def test_altered_rows_are_not_verified_and_not_estimated(safe):
    altered = safe.copy()
    altered["age"] = altered["age"].to_numpy()[::-1]
    words = visible(altered.dp.report().to_html())
    assert "Not verified." in words
    assert "the rows are not those that were released under this plan" in words
    assert "Estimates of the original table" not in words


def test_what_is_not_protected_is_named():
    plan = build_plan(
        {"a": ["x", "y"], "b": (0, 9)}, epsilon=6, passthrough=["id"], leaks=["b"], drop=["name"], contributions=3
    )
    words = visible(Report(ReleaseInfo(plan, 50, "")).to_html())
    for text in (
        "Copied as they are: id",
        "Spaces read off the data: b",
        "Left out, so that nothing of them is in the release: name",
        "who may own up to 3 rows",
        "An ε this large promises little",
        "the same as for the release".capitalize(),
    ):
        assert text in words, text


@pytest.mark.slow
def test_spend_of_inference_is_shown():
    frame = dpf.datasets.make_census(3_000, columns=["age", "sex"])
    safe = frame.dp.sanitize(epsilon=1, key=KEY)
    words = visible(safe.dp.report().to_html())
    assert "What the budget was spent on" in words
    assert "finding the values that age, sex may hold" in words
    plan = safe.dp.release.plan
    assert "tables" in plan.steps
    assert f"{len(plan.measures)} measured tables" in words


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"spaces": {"age": (0, 120), "sex": ["F", "M"]}},
        {"shuffle": False, "spaces": {"age": (0, 120), "sex": ["F", "M"]}, "measure": [("sex",)]},
        {"infer": "private", "shuffle": False},
    ],
)
@pytest.mark.slow
def test_the_parts_of_the_budget_add_up(options):
    frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    safe = frame.dp.sanitize(epsilon=1, key=KEY, **options)
    words = visible(safe.dp.report().to_html())
    spent = words[words.index("What the budget was spent on") :]
    shares = re.findall(r"([\d.e+]+) %: (?:finding|\d+ measured|the rows|not spent)", spent)
    assert len(shares) == len(safe.dp.release.plan.steps) + ("not spent" in spent)
    assert sum(map(float, shares)) == pytest.approx(100, abs=1.5)


@pytest.mark.slow
def test_no_budget_bar_where_all_of_it_went_to_the_rows():
    frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    safe = frame.dp.sanitize(epsilon=1, measure=None, spaces={"age": (0, 120), "sex": ["F", "M"]})
    assert "What the budget was spent on" not in visible(safe.dp.report().to_html())


@pytest.mark.slow
def test_the_first_page_says_what_is_empty():
    frame = dpf.datasets.make_census(300, columns=["age", "sex", "region"])
    with pytest.warns(dpf.InferenceWarning, match="did not find the spaces"):
        safe = frame.dp.sanitize(epsilon=0.5, key=KEY)
    plan = safe.dp.release.plan
    assert plan.not_found
    seen = overview(plan, plan.n).columns
    assert [column.name for column in seen if column.verdict == "not found"] == [one.column for one in plan.not_found]
    assert len(seen) == 3
    words = visible(safe.dp.report().to_html())
    assert words.index("not found") < words.index("What is promised")
    bare = overview(build_plan({"a": ["x", "y"], "b": (0, 10**6)}, epsilon=0.01, n=50), 50)
    assert [column.verdict for column in bare.columns] == ["hidden", "hidden"]


def test_an_add_remove_epsilon_is_worth_half():
    """(ε, δ) for add/remove is (2ε, (1 + e^ε)δ) for replace-one: group privacy of a removal and an addition."""
    for budget in (Budget(1.0, 1e-6), Budget(8.0, 0.0), Budget(0.1, 1e-9)):
        peer = add_remove(budget)
        assert 2 * peer.epsilon == budget.epsilon
        assert (1 + math.exp(peer.epsilon)) * peer.delta == pytest.approx(budget.delta)


def test_reviewers_see_what_is_copied_and_who_is_protected():
    frame = dpf.datasets.make_census(1_000, columns=["age", "sex", "region"])
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    safe = frame.dp.sanitize(epsilon=1, spaces=spaces, passthrough=["region"], contributions=2, key=KEY)
    words = visible(safe.dp.report().to_html())
    words = words[words.index("What reviewers ask") :]
    assert "Copied as they are: region" in words
    assert "A person with up to 2 rows" in words
    assert "ask the curator" in words


def test_empty_and_bare_plans():
    for n in (0, 1, 7):
        plan = build_plan({"a": ["x", "y"]}, epsilon=1, n=n)
        assert "The promise is verified." in Report(ReleaseInfo(plan, n, "")).to_html()
    empty = pd.DataFrame({"sex": pd.Series([], dtype=object)}).dp.sanitize(epsilon=1, spaces={"sex": ["F", "M"]})
    outline(empty.dp.report().to_html())


@pytest.mark.slow
def test_groups_many_columns_and_samples():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.integers(0, 2, 400).astype(bool) for i in range(10)})
    safe = frame.dp.sanitize(epsilon=1, infer="public", groups=[("c0", "c1")], sample=300, key=KEY)
    words = visible(safe.dp.report().to_html())
    assert "The first 8 of 10 columns" in words
    assert "secret sample: and only a secret sample of the rows leaves" in words


@pytest.mark.parametrize("tag", sorted(REGISTERED))
def test_every_mechanism_has_words(tag):
    assert tag in MECHANISMS


def test_a_category_with_which_others_count_is_named_once():
    assert dpf.Categorical(["F", "M"], other="M").contents == "2 values: F, M (any other counts as M)"
    assert dpf.Categorical(["F", "M"], other="X").contents == "3 values: F, M, X"


@pytest.mark.parametrize("tag", sorted(REGISTERED_SPACES))
def test_every_space_has_words(tag):
    assert REGISTERED_SPACES[tag].contents is not Space.contents


@given(st.floats(1e-3, 30), st.floats(0, 0.5))
def test_best_guess_is_what_the_inequality_allows(epsilon, delta):
    # Randomised response that reveals all with chance δ has this very success, and no event can do better:
    # P(A) − P'(A) is largest where P(A) = e^ε P'(A) + δ and P'(A^c) = e^ε P(A^c) + δ.
    odds = Fraction(math.exp(epsilon))
    kept = (1 - Fraction(delta)) * odds / (1 + odds) + Fraction(delta)
    miss = 1 - kept
    assert kept == odds * miss + Fraction(delta)
    assert best_guess(Budget(epsilon, delta)) == pytest.approx(float(kept), rel=1e-12)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6),
    st.floats(0.01, 4),
    st.floats(0.01, 0.99),
)
def test_guesses_and_mean_beliefs_between_any_two_laws_stay_below(pairs, epsilon, prior):
    """Brute force: of any two laws of up to seven outcomes with their least δ, and equality for the worst of all."""
    laws = np.transpose(pairs) + 1e-3
    worst = np.array([[1, 0, math.exp(epsilon), 1], [0, 1, 1, math.exp(epsilon)]]) / (1 + math.exp(epsilon))
    worst[:, :2] = 0.2 * np.eye(2)
    worst[:, 2:] *= 0.8
    for tight, (one, other) in ((False, laws / laws.sum(axis=1, keepdims=True)), (True, worst)):
        excess = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((one, other), (other, one))]
        budget = Budget(epsilon, min(max(excess), 1 - 1e-12))
        guess = np.maximum(one, other).sum() / 2
        assert guess <= best_guess(budget) + 1e-12
        assert not tight or guess == pytest.approx(best_guess(budget))
        distance = (math.exp(epsilon) - 1 + 2 * budget.delta) / (math.exp(epsilon) + 1)
        assert best_guess(budget) == pytest.approx((1 + distance) / 2)
        belief = prior * one / (prior * one + (1 - prior) * other)
        assert (one * belief).sum() <= after(prior, budget) + 1e-12
        assert (other * belief).sum() >= 1 - after(1 - prior, budget) - 1e-12


def test_odds_beyond_epsilon_are_more_likely_than_delta():
    """A Gaussian loss moves odds by more than e^ε with a chance of six δ and more: nothing is said "except for δ"."""
    epsilon, mu = 1.0, 0.25
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert norm.cdf(mu / 2 - epsilon / mu) > 6 * delta
    plan = build_plan({"a": ["x", "y"]}, epsilon=epsilon, delta=1e-6, n=1_000)
    for text in (str(plan.explain()), visible(Report(ReleaseInfo(plan, 1_000, "")).to_html())):
        assert "xcept with" not in text
        assert "on average over what" in text


@given(st.floats(0.001, 0.999), st.floats(1e-3, 8))
def test_beliefs_grow_by_the_odds(before, epsilon):
    then = after(before, Budget(epsilon))
    assert then / (1 - then) == pytest.approx(math.exp(epsilon) * before / (1 - before), rel=1e-6)


@given(st.floats(1e-6, 1 - 1e-8))
def test_percent_never_rounds_down(share):
    shown = float(percent(share).removesuffix(" %"))
    assert 100 * share - 1e-6 <= shown <= 100
    assert shown < 100 or share > 0.9999


@given(st.floats(1e-12, 0.999))
def test_chance_never_is_smaller_than_it_is(delta):
    count, scale = re.fullmatch(r"1 in ([\d,.]+)( million million| billion| million|)", chance(delta)).groups()
    size = {"": 1, " million": 1e6, " billion": 1e9, " million million": 1e12}[scale]
    shown = float(count.replace(",", "")) * size
    assert shown <= 1 / delta * (1 + 1e-9)
    assert shown * 1.12 >= min(1 / delta, 1 / delta - 1) or shown >= math.floor(1 / delta)


@given(st.floats(1e-9, 1e9))
def test_upward_never_rounds_down(epsilon):
    assert epsilon * (1 - 1e-9) <= float(upward(epsilon)) <= epsilon * 1.0011


@given(st.text())
def test_templates_escape_text(text):
    page = outline(environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text))
    assert [tag for tag, _ in page.seen] == ["p"]
    assert not FORBIDDEN & set("".join(page.text))


def test_templates_know_no_name_that_is_not_given():
    with pytest.raises(UndefinedError, match="'tittle' is undefined"):
        environment().from_string("{{ tittle }}").render(title="")


def test_save_and_the_command_line(safe, tmp_path, capsys):
    from dpframe.cli.main import main

    source, page = tmp_path / "safe.parquet", tmp_path / "out.html"
    safe.to_parquet(source)
    with pytest.raises(SystemExit) as done:
        main(["inspect", str(source), "--html", str(page)])
    assert done.value.code == 0
    text = page.read_text(encoding="utf-8")
    assert "the file holds the 4,000 rows that were released" in visible(text)
    with pytest.raises(SystemExit) as failed:
        main(["inspect", str(source), "--html", str(tmp_path / "no" / "out.html")])
    assert failed.value.code == 2
    assert "no is not a directory; make it first" in capsys.readouterr().err
    with pytest.raises(SystemExit) as failed:
        main(["inspect", str(source), "--html", str(source)])
    assert failed.value.code == 2
    assert "safe.parquet is part of the input; write to another place" in capsys.readouterr().err
    assert dpf.verify(source).ok
    frame = pd.DataFrame({"a": [1]})
    frame.to_parquet(tmp_path / "plain.parquet")
    with pytest.raises(SystemExit) as failed:
        main(["inspect", str(tmp_path / "plain.parquet"), "--html", str(page)])
    assert failed.value.code == 2
    assert "is not a release, so there is nothing to report" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_shows_it(html, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(html, encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            *BROWSER_FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "The promise is verified." in done.stdout
    assert "CONSOLE" not in done.stderr
    # The browser found nothing to mend: it holds the elements that were written, and no others.
    written, shown = (
        [tag for tag, _ in outline(text).seen if tag != "!doctype"] for text in (html, closed(done.stdout))
    )
    assert shown == written


def closed(dom: str) -> str:
    """Return a serialised page with its drawings' shapes closed as they were written."""
    return re.sub(r"></(rect|line|circle)>", "/>", dom)


def test_no_head_is_a_theorem_and_mechanisms_have_their_usual_names(safe, html):
    heads = re.findall(r"<th[^>]*>(.*?)</th>", html)
    assert heads
    assert not any("Theorem" in head for head in heads)
    assert "Least possible" in heads
    words = visible(html)
    assert "Laplace (geometric on its grid)" in words
    plain = dpf.sanitize(
        pd.DataFrame({"age": range(50)}), epsilon=1.0, spaces={"age": (0, 120)}, mechanisms={"age": "geometric"}
    ).dp.report()
    for shown in (str(plain), plain._repr_html_()):
        assert "Laplace (geometric on its grid)" in shown
        assert not re.search(r"— geometric|nullable geometric", shown)


@pytest.mark.parametrize("delta, said", [(0.0, "."), (1e-6, ", on average over what may be seen.")])
def test_even_odds_are_said_to_hold_on_average_with_delta(delta, said):
    plan = build_plan({"a": ["x", "y"]}, epsilon=1.0, delta=delta, n=1_000)
    words = visible(Report(ReleaseInfo(plan, 1_000, "")).to_html())
    assert f"Even odds become at most 73.2 %{said}" in words


def test_years_are_written_as_years():
    frame = pd.DataFrame({"year": np.arange(1_950, 2_006).repeat(100)})
    safe = frame.dp.sanitize(epsilon=8, spaces={"year": (1_900, 2_006)}, key=KEY)
    words = visible(safe.dp.report().to_html())
    assert "1900 to 2006" in words
    assert not re.search(r"\b(1,9|2,0)\d\d\b(?! rows)", words)
    assert number(73_271.0) == "73,271"


def test_errors_are_drawn_against_the_share_of_measured_tables():
    census = dpf.datasets.make_census(2_000, columns=["age", "sex", "region"])
    spaces = {"age": (18, 95), "sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
    plan = dpf.plan(census, 1.0, 1e-6, spaces=spaces)
    shown = share_table(plan, 2_000)
    assert [head.text for head in shown.heads[:3]] == [
        "Share of the tables",
        "Shares of values",
        "Drawn",
    ]
    now = next(row for row in shown.rows if "this release" in row[0])
    pairs = [float(row[3].removesuffix(" %")) for row in shown.rows]
    assert pairs == sorted(pairs, reverse=True), "the more tables have, the less their errors"
    told = plan.forecast(2_000).loc[("joint", "sex × region")]
    assert float(now[3].removesuffix(" %")) == pytest.approx(100 * told["std_error"] / told["rows_alone"], rel=0.1)
    assert "the noise of rows is taken as it is" in dpf.sanitize(census, plan=plan, key=KEY).dp.report().to_html()
    assert share_table(dpf.plan(census, 1.0, 1e-6, spaces=spaces, measure=None), 2_000) is None
