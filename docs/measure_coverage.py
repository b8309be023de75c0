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
SIZES, EPSILONS, RELEASES = (400, 2_000, 10_000), (0.3, 1.0, 4.0), 3
SPACES = {"default": "declared", "inferred": "inferred"}


def measure() -> pd.DataFrame:
    """Return the figures: answers, the share with an interval, coverage, and the median half-width in units."""
    sys.path[:0] = [str(FOLDER.parent / "tests"), str(FOLDER.parent / "tests" / "benchmarks")]
    from test_calibration import MADE, answers

    lines = []
    for option, spaces in SPACES.items():
        for rows in SIZES:
            for epsilon in EPSILONS:
                judged = [answers(shape, epsilon, option, RELEASES, rows, with_functions=True) for shape in MADE]
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
    return wide.reset_index()
