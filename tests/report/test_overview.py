"""The overview of a release: what its accessor prints, and notebooks show."""

import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf

KEY = bytes(range(32))
SPACES = {"age": (0, 120), "sex": ["F", "M"], "hobbies": dpf.Subset(["chess", "<golf>"])}


@pytest.fixture(scope="module")
def safe():
    """A number, a category and sets; values of one are tags of HTML."""
    rng = np.random.default_rng(3)
    sets = [["chess"], ["chess", "<golf>"], []]
    frame = pd.DataFrame(
        {"age": rng.normal(50, 9, 3_000).round(), "sex": ["F", "M", "M"] * 1_000, "hobbies": sets * 1_000}
    )
    return frame.dp.sanitize(epsilon=1, spaces=SPACES, key=KEY)


def rows_of(text):
    """Return the cells of the printed table by column's name: cells are two spaces apart at least."""
    lines = text.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("column "))
    return {cells[0]: cells for cells in (re.split(r" {2,}", line.strip()) for line in lines[head + 1 : -1])}


def test_each_column_has_its_values_shape_error_and_verdict(safe):
    rows = rows_of(repr(safe.dp))
    assert list(rows) == list(safe.columns)
    name, values, shape, error, verdict = rows["sex"]
    assert (name, verdict) == ("sex", "good") and "F, M" in values
    assert len(shape) == 2 and "█" in shape
    counts = safe.dp.value_counts("sex", normalize=True)
    half = float(((counts["upper"] - counts["lower"]) / 2).median()) * 3_000
    assert float(re.search(r"± ([\d.]+) rows", error)[1]) == pytest.approx(half, rel=0.06)
    mean = safe.dp.mean("age")
    shown = float(re.search(r"mean ± ([\d.]+)", rows["age"][3])[1])
    assert shown == pytest.approx((mean["upper"] - mean["lower"]) / 2, rel=0.06)


def test_html_is_well_formed_escaped_and_needs_no_script(safe):
    html = safe.dp._repr_html_()
    assert "<script" not in html and "http" not in html and "<golf>" not in html and "&lt;golf&gt;" in html
    open_tags = []

    class Check(HTMLParser):
        def handle_starttag(self, tag, attributes):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

        def handle_startendtag(self, tag, attributes):
            pass

    Check().feed(html.replace("<br>", ""))
    assert not open_tags
    assert html.count("<tr>") == 1 + len(safe.columns)


def test_it_is_quiet_and_the_same_each_time(safe):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(safe.dp) == repr(safe.dp)
        assert safe.dp._repr_html_() == safe.dp._repr_html_()


def test_one_line_says_which_epsilon_to_quote(safe):
    (line,) = [line for line in repr(safe.dp).splitlines() if line.startswith("Quote ")]
    assert line.startswith("Quote epsilon=1, delta=1e-06: ")
    unshuffled = safe.assign().dp.release  # a release whose two promises are equal has nothing to choose from
    assert unshuffled.plan.located != unshuffled.plan.release
    frame = pd.DataFrame({"sex": ["F", "M"] * 100})
    equal = frame.dp.sanitize(epsilon=1, delta=0, spaces={"sex": ["F", "M"]}, key=KEY)
    assert "Quote " not in repr(equal.dp)


def test_changed_rows_have_the_forecast_and_no_shapes(safe):
    changed = safe.assign(age=safe["age"].to_numpy()[::-1])
    rows = rows_of(repr(changed.dp))
    assert rows["sex"][-1] in ("good", "rough", "hidden")
    assert not set("▁▂▃▄▅▆▇█") & set(repr(changed.dp))


def test_columns_that_were_not_found_have_a_declaration_as_remedy():
    frame = pd.DataFrame({"note": [f"answer {i}" for i in range(300)], "sex": ["F", "M", "M"] * 100})
    with pytest.warns(dpf.InferenceWarning):
        safe = frame.dp.sanitize(epsilon=1, spaces={"sex": ["F", "M"]}, key=KEY)
    assert "'note': [CATEGORY, …]" in rows_of(repr(safe.dp))["note"][-1]


def test_noise_hides_and_the_remedy_is_a_larger_epsilon():
    """Half-widths are some 45 %, 11 % and 3 % of the rows: their own noise moves none to another verdict."""
    frame = pd.DataFrame({"sex": ["F", "M", "M"] * 200})
    verdicts = {}
    for epsilon in (0.02, 0.1, 1.0):
        safe = frame.dp.sanitize(epsilon=epsilon, spaces={"sex": ["F", "M"]}, key=KEY, measure=[("sex",)])
        verdicts[epsilon] = rows_of(repr(safe.dp))["sex"][4:]
    assert [found[0] for found in verdicts.values()] == ["hidden", "rough", "good"]
    assert re.fullmatch(r"good at about epsilon=0\.[1-9]", verdicts[0.1][1])


def test_wide_tables_name_the_rest():
    frame = pd.DataFrame({f"c{i}": ["x", "y"] * 50 for i in range(45)})
    safe = frame.dp.sanitize(epsilon=1, spaces={name: ["x", "y"] for name in frame}, key=KEY, measure=None)
    text = repr(safe.dp)
    assert "c39 " in text and "c40 " not in text
    assert "and 5 more columns" in text


def test_numbers_are_drawn_in_bins_and_not_by_their_noisiest_values():
    spaces = {"stay": (0, 28), "code": [f"c{i}" for i in range(20)]}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"stay": rng.poisson(9, 800).clip(0, 28), "code": rng.choice(spaces["code"], 800)})
    safe = frame.dp.sanitize(epsilon=1, spaces=spaces, key=KEY)
    html = safe.dp.report().to_html()
    assert "Shares of stay in bins" in html and "Shares of the values of stay" not in html
    assert "Shares of the values of code" in html
    _, _, shape, error, *_ = rows_of(repr(safe.dp))["stay"]
    assert len(shape) == 8 and error.startswith("mean ± ")


def test_dates_as_text_have_another_remedy_than_categories() -> None:
    days = pd.date_range("2024-01-01", periods=3_000, freq="D").strftime("%d.%m.%Y")
    safe = dpf.sanitize(pd.DataFrame({"admitted": days, "sex": ["f", "m"] * 1_500}), epsilon=1, key=bytes(32))
    (line,) = [line for line in str(safe.dp).splitlines() if line.startswith("admitted")]
    assert line.endswith("not found  spaces={'admitted': [CATEGORY, …]}; parse dates first")
