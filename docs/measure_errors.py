"""Measure the errors in README's tables: ``python docs/measure_errors.py adult.parquet`` (some minutes).

Rows of a real table are drawn with replacement, sanitised, and estimates compared with the truth of the rows drawn.
Errors are root mean squares over releases and categories, columns or cells: counts and cells of pairs in per cent of
the rows, means in per cent of the column's range.
"""

import sys

import numpy as np
import pandas as pd

import dpframe as dpf

SIZES, EPSILONS = (500, 2_000, 10_000, 100_000), (0.3, 1, 4)
PAIRS = (("sex", "income"), ("marital_status", "income"), ("race", "sex"))
RELEASES = {500: 6, 2_000: 5, 10_000: 3, 100_000: 1}
RANGES = {
    "age": (17, 90),
    "education_num": (1, 16),
    "hours_per_week": (1, 99),
    "fnlwgt": (0, 1_500_000),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
}


def squares(table: pd.DataFrame, epsilon: float, spaces: dict | None) -> dict[str, list[float]]:
    """Return squared errors of one release by kind, and the share of columns that were not found."""
    safe = table.dp.sanitize(epsilon=epsilon, spaces=spaces)
    lost = {one.column for one in safe.dp.release.plan.not_found} | (set(table.columns) - set(safe.columns))
    found = {"lost": [len(lost) / table.shape[1]], "count": [], "mean": [], "pair": []}
    for name in table.columns.difference(list(lost)):
        if name in RANGES:
            low, high = RANGES[name]
            error = (safe.dp.mean(name)["estimate"] - table[name].mean()) / (high - low)
            found["mean"].append(error**2)
        else:
            counts = safe.dp.value_counts(name, normalize=True)["estimate"]
            truth = table[name].value_counts(normalize=True)
            found["count"] += ((counts - truth) ** 2).dropna().tolist()
    for one, other in PAIRS:
        if not {one, other} & lost:
            cells = safe.dp.crosstab(one, other, normalize=True)["estimate"]
            truth = pd.crosstab(table[one], table[other], normalize=True)
            wide = cells.unstack() if isinstance(cells, pd.Series) else cells
            found["pair"] += ((wide - truth) ** 2).stack().dropna().tolist()
    return found


def declared(column: pd.Series) -> dpf.Nullable | dpf.Categorical:
    """Return the space that a codebook would give."""
    space = dpf.Categorical(sorted(column.dropna().unique()))
    return dpf.Nullable(space) if column.hasnans else space


def main(path: str) -> None:
    """Print a line for each number of rows, ε and kind of spaces."""
    whole = pd.read_parquet(path)
    codebook = {name: RANGES[name] if name in RANGES else declared(column) for name, column in whole.items()}
    print("spaces, rows, epsilon, releases: count, mean, pair, columns lost (all in per cent); local epsilon")
    for kind, spaces in (("declared", codebook), ("inferred", None)):
        for rows in SIZES:
            for epsilon in EPSILONS:
                found: dict[str, list[float]] = {}
                for seed in range(RELEASES[rows]):
                    table = whole.sample(rows, replace=True, random_state=seed, ignore_index=True)
                    for what, values in squares(table, epsilon, spaces).items():
                        found.setdefault(what, []).extend(values)
                errors = [
                    100 * np.sqrt(np.mean(found[what])) if found[what] else np.nan for what in ("count", "mean", "pair")
                ]
                plan = table.dp.plan(epsilon=epsilon, spaces=codebook)
                shown = ", ".join(f"{error:.2g}" for error in errors)
                print(
                    f"{kind}, {rows:,}, {epsilon:g}, {RELEASES[rows]}: {shown}, {100 * np.mean(found['lost']):.0f}; "
                    f"{plan.local.epsilon:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1])
