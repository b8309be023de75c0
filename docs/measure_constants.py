"""Measure what halving and doubling a tuned constant changes: ``python docs/measure_constants.py estimate/sets.py``.

Three releases of 3,000 rows of a census answer some twenty questions, ten seconds a constant. A figure is the mean
change of the widths of a question's intervals, of the question that changes most, and the largest change of an
estimate, in half widths. Constants that are the default of a parameter keep their value: pass others by hand.
"""

import ast
import importlib
import json
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dpframe as dpf

ROOT = Path(dpf.__file__).parent
WOMEN = {"age": (20, 40), "sex": "F"}


def questions() -> dict[str, Callable[[], Any]]:
    """Return the questions by name."""
    people = dpf.datasets.make_census(3_000, columns=["age", "sex", "education", "region", "income", "hobbies"])
    people["wealth"] = np.round(np.exp(np.random.default_rng(0).normal(8, 1.5, len(people))))
    spaces = {
        "age": (0, 120),
        "sex": ["F", "M"],
        "education": list(dpf.datasets.EDUCATION),
        "region": list(dpf.datasets.REGIONS),
        "income": dpf.Nullable(dpf.Real(0, 250_000)),
        "hobbies": dpf.Subset(sorted({hobby for one in people["hobbies"] for hobby in one}), max_size=4),
    }

    def release(*columns: str, epsilon: float, **options: Any) -> Any:
        known = {name: space for name, space in spaces.items() if name in columns}
        return people[list(columns)].dp.sanitize(epsilon=epsilon, delta=1e-6, spaces=known, key=bytes(32), **options).dp

    tables = release("age", "sex", "education", "region", "income", "wealth", epsilon=1)
    rows = release("age", "sex", "education", "income", epsilon=4, measure=None)
    sets = release("sex", "hobbies", "age", epsilon=1)
    found: dict[str, Callable[[], Any]] = {
        "counts of a list": lambda: tables.value_counts("region"),
        "crosstab of three": lambda: tables.joint(["sex", "education", "region"]),
        "count of three conditions": lambda: tables.count({**WOMEN, "education": "master"}),
        "mean beyond bounds": lambda: tables.mean("wealth"),
        "std beyond bounds": lambda: tables.std("wealth"),
        "means by two keys": lambda: tables.mean("age", by=["sex", "region"]),
        "counts of rows": lambda: rows.value_counts("education"),
        "crosstab of rows": lambda: rows.crosstab("sex", "education"),
        "supports": lambda: sets.support("hobbies"),
        "pairs of items": lambda: sets.cooccurrence("hobbies"),
        "sizes of sets": lambda: sets.set_sizes("hobbies"),
    }
    for name, one in {"tables": tables, "rows": rows}.items():
        found |= {
            f"histogram, {name}": lambda one=one: one.histogram("age", bins=8),
            f"joint, {name}": lambda one=one: one.joint(["education", "age"]),
            f"count of two conditions, {name}": lambda one=one: one.count(WOMEN),
            f"mean, {name}": lambda one=one: one.mean("income"),
            f"means by group, {name}": lambda one=one: one.mean("income", by="education"),
            f"std, {name}": lambda one=one: one.std("income"),
            f"quantiles, {name}": lambda one=one: one.quantile("income", [0.1, 0.5, 0.9]),
        }
    return found


def answers(asked: dict[str, Callable[[], Any]]) -> dict[str, np.ndarray]:
    """Return estimates, lower and upper ends of every question, in a process of its own: fits are remembered."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        found = {}
        for name, question in asked.items():
            table = question()
            table = table.to_frame().T if isinstance(table, pd.Series) else table
            parts = table.columns.get_level_values(0)
            ends = [table.loc[:, parts == part].to_numpy(float).ravel() for part in ("estimate", "lower", "upper")]
            found[name] = [end.tolist() for end in ends]
        with os.fdopen(writer, "w") as file:
            json.dump(found, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = {name: np.array(ends) for name, ends in json.load(file).items()}
    os.waitpid(child, 0)
    return found


def tuned(path: Path) -> Iterator[str]:
    """Yield the names of the tuned constants of a file."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, below in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(below, ast.Expr) and "(tuned" in ast.unparse(below):
            yield from re.findall(r"\w+", ast.unparse(node.targets[0]))


def scaled(value: Any, factor: float) -> Any:
    """Return a constant, or each number of it, times a factor."""
    if isinstance(value, dict):
        return {key: scaled(one, factor) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(scaled(one, factor) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **scaled(asdict(value), factor))
    return max(round(value * factor), 1) if isinstance(value, int) else value * factor


def change(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> str:
    """Return the figures of a change of all answers."""
    widths, moves = [], []
    for name, (estimate, lower, upper) in before.items():
        known = np.isfinite(upper - lower) & (upper > lower)
        half = (upper - lower)[known] / 2
        ratio = ((after[name][2] - after[name][1])[known] / 2) / half
        widths.append((float(np.exp(np.log(ratio).mean())) - 1 if len(half) else 0.0, name))
        moves.append((float((np.abs(after[name][0] - estimate)[known] / half).max(initial=0.0)), name))
    width, move = max(widths, key=lambda one: abs(one[0])), max(moves)
    return f"widths {width[0]:+.1%} ({width[1]}), estimates {move[0]:.2f} ({move[1]})"


def main(path: str) -> None:
    """Print the figures of every tuned constant of a file."""
    for module in pkgutil.walk_packages([str(ROOT / "estimate")], "dpframe.estimate."):
        importlib.import_module(module.name)
    module = importlib.import_module("dpframe." + path.removesuffix(".py").replace("/", "."))
    loaded = [one for name, one in sys.modules.items() if name.startswith("dpframe")]
    asked = questions()
    before = answers(asked)
    for name in tuned(ROOT / path):
        value = getattr(module, name)
        users = [one for one in loaded if getattr(one, name, None) is value]
        for factor in (0.5, 2.0):
            for one in users:
                setattr(one, name, scaled(value, factor))
            print(f"{name} × {factor}: {change(before, answers(asked))}", flush=True)
            for one in users:
                setattr(one, name, value)


if __name__ == "__main__":
    # Every answer would warn again for each value of the constant; only widths are read.
    warnings.simplefilter("ignore", dpf.errors.DpframeWarning)
    main(sys.argv[1])
