"""Measure the coverage of intervals for the page "Can I trust this number?": ``python docs/measure_coverage.py``.

The shapes of tables and the questions are those of ``tests/benchmarks/test_calibration.py``. The figures are written to
``_static/coverage.csv``, one line for each kind of statistic, kind of spaces and number of rows, and to the tables of
the page. ``python docs/measure_coverage.py --page`` writes the tables of the page again from the file.
"""

import sys
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent
FIGURES, PAGE = FOLDER / "_static" / "coverage.csv", FOLDER / "how-to" / "trust.md"
SIZES, EPSILONS = (400, 2_000, 10_000), (0.3, 1.0, 4.0)
SPACES = {"default": "declared", "inferred": "inferred"}
RELEASES = {"declared": 3, "inferred": 1}


def measure() -> pd.DataFrame:
    """Return the figures: answers, the share with an interval, coverage, and the median half-width in units."""
    sys.path[:0] = [str(FOLDER.parent / "tests"), str(FOLDER.parent / "tests" / "benchmarks")]
    from test_calibration import MADE, answers

    lines = []
    for option, spaces in SPACES.items():
        for rows in SIZES:
            for epsilon in EPSILONS:
                judged = [answers(shape, epsilon, option, RELEASES[spaces], rows, asks_more=True) for shape in MADE]
                by_kind = pd.concat(judged).groupby("kind")
                figures = by_kind.agg(
                    answers=("held", "size"),
                    answered=("held", lambda held: held.notna().mean()),
                    coverage=("held", "mean"),
                    half_width=("half_width_in_units", "median"),
                )
                lines.append(figures.assign(spaces=spaces, rows=rows, epsilon=epsilon).reset_index())
                print(f"{spaces}, {rows:,} rows, epsilon={epsilon:g}\n{figures.round(3).to_string()}", flush=True)
    wide = pd.concat(lines).pivot(index=["kind", "spaces", "rows"], columns="epsilon").swaplevel(axis=1)
    wide.columns = [f"{name} at {epsilon:g}" for epsilon, name in wide.columns]
    return wide.round(3).reset_index()


KINDS = {
    "value counts": ("counts-and-shares", "a count of a value", "fewer values, or a larger ε"),
    "count of one": ("counts-and-shares", "rows within a range", "a wider range"),
    "pair cells": ("pairs-joints-and-conditions", "a cell of two columns", "merge categories before the release"),
    "count of two": ("pairs-joints-and-conditions", "rows with two conditions", "count each condition by itself"),
    "mean": ("means-sums-and-spreads", "a mean", "narrower declared bounds"),
    "std": ("means-sums-and-spreads", "a standard deviation", "narrower declared bounds, or quantiles"),
    "mean by": ("means-sums-and-spreads", "a mean of a group of 100 rows or more", "pool groups"),
    "mean by, rare": ("means-sums-and-spreads", "a mean of a smaller group", "pool groups: nothing else helps"),
    "mean by two": ("means-sums-and-spreads", "a mean by two keys", 'one key, or `measure=["auto", (…)]`'),
    "quantile": ("histograms-and-quantiles", "a decile or the median", "narrower declared bounds"),
    "median by": ("histograms-and-quantiles", "a median of a group", "pool groups"),
    "corr": ("correlations", "a correlation", "narrower bounds, or `independence`"),
    "regression": ("differences-regressions-and-any-function", "a coefficient of a regression", "fewer terms"),
}
"""Section, name on the page, and remedy of each kind."""

SPACE = "\u00a0"
"""A space at which no line of a cell ends."""

COUNTS = {"value counts", "count of one", "pair cells", "count of two"}
NO_UNIT = {"regression"}
LIMITS = {"count": (0.03, 0.15), "number": (0.15, 0.75), "corr": (0.1, 0.4)}
"""Half-widths up to which an answer is good, and above which it says too little: shares of rows, or deviations."""


def show_width(kind: str, width: float) -> str:
    """Return a half-width in per cent of the rows or in standard deviations."""
    return f"{100 * width:.2g}{SPACE}%" if kind in COUNTS else f"{width:.2g}"


def show_verdict(kind: str, figures: pd.Series) -> str:
    """Return the sign of a verdict and the half-width at ε = 1."""
    if not figures["answered at 1"] > 0.5:  # also NaN, without any answer
        return "○ lost"
    good, rough = LIMITS["count" if kind in COUNTS else "corr" if kind == "corr" else "number"]
    width = figures["half_width at 1"]
    sign = "●" if width <= good else "◐" if width <= rough else "○"
    return f"{sign}{SPACE}±{SPACE}{show_width(kind, width)}"


def decision_table(figures: pd.DataFrame) -> str:
    """Return the table of verdicts: kinds by kind of spaces and number of rows."""
    cells = [(spaces, rows) for spaces in SPACES.values() for rows in SIZES]
    heads = [f"{spaces}, {rows:,} rows" for spaces, rows in cells]
    lines = [["question", *heads, "do this instead"], ["---"] * (len(cells) + 2)]
    index = pd.MultiIndex.from_product([KINDS, SPACES.values(), SIZES])
    by_cell = figures.set_index(["kind", "spaces", "rows"]).reindex(index)
    for kind, (_, name, remedy) in KINDS.items():
        if kind not in NO_UNIT:
            lines.append([name, *(show_verdict(kind, by_cell.loc[(kind, *cell)]) for cell in cells), remedy])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def coverage_table(figures: pd.DataFrame, section: str) -> str:
    """Return the table of a section: coverage by kind of spaces, and half-widths of declared spaces by n and ε."""
    widths = [f"± at {rows:,} rows, ε = {' · '.join(f'{e:g}' for e in EPSILONS)}" for rows in SIZES]
    lines = [["question", "held, declared", "held, inferred", *widths], ["---"] * (3 + len(SIZES))]
    for kind, (place, name, _) in KINDS.items():
        if place == section:
            line = [name]
            for spaces in SPACES.values():
                judged = figures[(figures["kind"] == kind) & (figures["spaces"] == spaces)]
                counts = pd.concat([judged[f"answers at {e:g}"] * judged[f"answered at {e:g}"] for e in EPSILONS])
                coverage = pd.concat([judged[f"coverage at {e:g}"] for e in EPSILONS])
                line.append(f"{(coverage * counts).sum() / counts.sum():.3f}".lstrip("0") + f" of {counts.sum():,.0f}")
            for rows in SIZES:
                one = figures[(figures["kind"] == kind) & (figures["rows"] == rows) & (figures["spaces"] == "declared")]
                parts = [show_width(kind, one[f"half_width at {e:g}"].item()) for e in EPSILONS]
                line.append("–" if kind in NO_UNIT else " · ".join(parts))
            lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill(page: str, figures: pd.DataFrame) -> str:
    """Return the page with the tables of the figures between its marks."""
    tables = {"verdicts": decision_table(figures)}
    tables |= {section: coverage_table(figures, section) for section, *_ in KINDS.values()}
    for mark, table in tables.items():
        head, _, tail = page.partition(f"<!-- {mark} -->\n")
        page = f"{head}<!-- {mark} -->\n{table}\n<!-- end -->{tail.partition('<!-- end -->')[2]}"
    return page


if __name__ == "__main__":
    if "--page" not in sys.argv:
        measure().to_csv(FIGURES, index=False)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), pd.read_csv(FIGURES)), encoding="utf-8")
