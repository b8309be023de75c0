"""The page "Can I trust this number?": its tables are those of the measured figures, and answers name its sections."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pandas as pd

import dpframe as dpf

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "trust.md").read_text(encoding="utf-8")
SECTIONS = {re.sub(r"[^a-z -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"(?m)^## (.*)", PAGE)}


def test_tables_of_the_page_are_those_of_the_file_of_figures():
    spec = spec_from_file_location("measure_coverage", DOCS / "measure_coverage.py")
    coverage = module_from_spec(spec)
    spec.loader.exec_module(coverage)
    figures = pd.read_csv(coverage.FIGURES)
    assert coverage.fill(PAGE, figures) == PAGE
    changed = figures.assign(**{"half_width at 1": figures["half_width at 1"] * 2})
    assert coverage.fill(PAGE, changed) != PAGE


def test_every_answer_names_a_section_of_the_page():
    people = dpf.datasets.make_census(1_000, columns=["age", "sex", "hobbies"])
    hobbies = dpf.Subset(dpf.datasets.HOBBIES, max_size=4)
    spaces = {"age": (0, 120), "sex": ["F", "M"], "hobbies": hobbies}
    safe = dpf.sanitize(people, epsilon=8, spaces=spaces, key=bytes(32))
    answers = {
        "counts-and-shares": [safe.dp.value_counts("sex"), safe.dp.top("sex"), safe.dp.null_rate("age")],
        "pairs-joints-and-conditions": [safe.dp.count({"sex": "F"})],
        "means-sums-and-spreads": [safe.dp.mean("age"), safe.dp.std("age"), safe.dp.describe(["age"])],
        "histograms-and-quantiles": [safe.dp.histogram("age", bins=3), safe.dp.quantile("age", 0.5)],
        "correlations": [safe.dp.cov(["age"])],
        "differences-regressions-and-any-function": [safe.dp.compare("age", by="sex", long=True)],
        "sets-and-curves": [safe.dp.support("hobbies"), safe.dp.set_sizes("hobbies")],
    }
    for section, given in answers.items():
        assert section in SECTIONS
        assert {answer.attrs["page"] for answer in given} == {f"docs/how-to/trust.md#{section}"}
