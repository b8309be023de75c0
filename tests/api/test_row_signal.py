"""Whether a `Sanitizer` warns, at fit, that no model learns from its rows: by public facts alone."""

import warnings

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf

SPACES = {f"x{i}": ["a", "b"] for i in range(9)} | {"age": (0, 99)}


def table(rows=400, seed=0):
    generator = np.random.default_rng(seed)
    columns = {name: generator.choice(["a", "b"], rows) for name in SPACES if name != "age"}
    return pd.DataFrame(columns | {"age": generator.integers(0, 100, rows)})


def messages(rows, columns, epsilon, **options):
    """Return the warnings of a fit, on two tables of the same public facts: they must be equal."""
    found = []
    for seed in (0, 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spaces = {name: SPACES[name] for name in columns if name not in options.get("passthrough", ())}
            dpf.Sanitizer(epsilon=epsilon, spaces=spaces, **options).fit(table(rows, seed)[columns])
        found.append([str(one.message) for one in caught])
    assert found[0] == found[1]
    return found[0]


def test_a_fit_of_faint_rows_warns_once_and_names_the_pipeline_that_learns():
    (message,) = messages(400, list(SPACES), 1)
    assert message.startswith("no model learns from rows in order at epsilon=1: AUC at most 0.5")
    assert "train on it: dpf.sanitize(table, epsilon=…).dp.synthesize()" in message
    assert len(message.split()) <= 30


@pytest.mark.parametrize(
    ("rows", "columns", "epsilon", "warns"),
    [
        (400, ["x0", "x1"], 1, False),
        (400, list(SPACES), 8, False),
        (40, list(SPACES), 4, True),
        (100_000, list(SPACES), 1, True),
    ],
)
def test_what_is_warned_of(rows, columns, epsilon, warns):
    """Two columns at ε = 1, or ten at 8, are clear enough; few rows, or ten columns at 1, are not."""
    assert bool(messages(rows, columns, epsilon)) == warns


def test_exact_columns_may_be_learnt_from():
    assert all("no model learns" not in message for message in messages(400, list(SPACES), 1, passthrough=["x0"]))


def test_the_bound_on_scores_holds_and_is_tight():
    """Of a binary column the best score of the release is the release: its correlation with the truth is the bound."""
    rows = 40_000
    x = table(rows)[["x0"]]
    with pytest.warns(dpf.errors.DpframeWarning, match="no model learns"):
        released = dpf.Sanitizer(epsilon=0.1, delta=0, spaces={"x0": ["a", "b"]}).fit(x).transform(x)
    correlation = np.corrcoef(x["x0"] == "a", released["x0"] == "a")[0, 1]
    # tanh(ε/2) in theory; the standard error is 1/√n.
    assert correlation == pytest.approx(np.tanh(0.05), abs=4 / np.sqrt(rows))
    (message,) = [one for one in messages(rows, ["x0"], 0.1, delta=0) if "no model" in one]
    assert "AUC at most 0.53" in message
