"""Jedi, which completes in notebooks and many editors, knows what a table and a release have."""

import jedi
import pandas as pd
import pytest

import dpframe as dpf

CALLS = """
import pandas as pd
import dpframe as dpf
frame = pd.DataFrame({"age": [1, 2]})
safe = dpf.sanitize(frame, epsilon=1)
"""


@pytest.mark.slow  # jedi reads the source of pandas and of the library
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("safe.dp.me", "mean"),
        ("safe.dp.rel", "release"),
        ("dpf.read('safe.parquet').dp.val", "value_counts"),
        ("dpf.RawAccessor(frame).san", "sanitize"),
        ("dpf.plan(frame, epsilon=1).fore", "forecast"),
        ("dpf.Estimates(safe).quan", "quantile"),
        ("dpf.errors.Budget", "BudgetExceeded"),
    ],
)
def test_scripts_complete(call: str, name: str) -> None:
    script = jedi.Script(CALLS + call)
    assert name in [found.name for found in script.complete()]


@pytest.mark.slow
def test_notebooks_complete_what_a_table_has() -> None:
    frame = pd.DataFrame({"age": range(50)})
    safe = frame.dp.sanitize(epsilon=1, spaces={"age": (0, 50)})
    for table, shown, hidden in ((frame, "sanitize", "mean"), (safe, "mean", "sanitize")):
        names = [found.name for found in jedi.Interpreter("table.dp.", [{"table": table}]).complete()]
        assert shown in names
        assert hidden not in names
    assert "regress" in [found.name for found in jedi.Interpreter("dpf.Estimates(safe).reg", [{"dpf": dpf}]).complete()]
