"""Text of a plan: its promise and the limits of that promise, in lines, and a table of its columns."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from dpframe.accounting.budget import upward
from dpframe.accounting.unit import ROW
from dpframe.channels.base import label_of
from dpframe.errors import name_list
from dpframe.plan.accounting_gains import ORDER_METHODS, gain_lines
from dpframe.plan.data import PlanData
from dpframe.plan.measures import measure_parts
from dpframe.plan.steps import step_lines

if TYPE_CHECKING:
    import pandas as pd

UNORDERED = ("discrete", "product")
"""Metrics in which values are equal or unequal."""

UNITS = {"D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds"}
"""Resolutions of times, in words."""

MOST_LINES = 20
"""Most lines of a plan's repr (limit of a page)."""

_LINE_LETTERS = 200
"""Most letters of a line of the repr (limit of a page)."""

KEPT = "How the promise is kept"
"""Title of the lines on accounting."""

_ERRORS_NOTE = (
    "expected_error: mean error of one released value, of the worst; error_bound: the least of any mechanism at this "
    "epsilon. Answers err far less: plan.forecast() has their std_error, half of a ±"
)


_KNOWN_ROW = "against someone who knows which row is theirs"
_KNOWN_ROWS = "against someone who knows which rows are theirs"


def promise_line(plan: PlanData) -> str:
    """Return a plan's promise to a person, in one line.

    >>> from dpframe.plan import build_plan
    >>> promise_line(build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000, delta=0.0))
    'Promise: epsilon=1, delta=0 for each person with one row, also against someone who knows which row is theirs'
    """
    people = "one row" if plan.contributions == 1 else f"up to {plan.contributions} rows"
    if plan.privacy_id is not None:
        people = f"{people} counted, by column {plan.privacy_id!r}"
    whom = _KNOWN_ROW if plan.contributions == 1 else _KNOWN_ROWS
    promise = f"Promise: epsilon={plan.epsilon:g}, delta={plan.delta:.3g} for each person with {people}"
    if plan.located == plan.release:
        return f"{promise}, also {whom}"
    return f"{promise}; epsilon={upward(plan.located.epsilon)} {whom}"


def mind_lines(plan: PlanData, left_out: Collection[str] = ()) -> list[str]:
    """Return warnings on parts without protection and columns that inference did not find; often none.

    Columns that are ``left_out`` of a part of a release are not named, except for leaks: the plan has their spaces.

    >>> from dpframe.plan import build_plan
    >>> mind_lines(build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000, delta=0.0, passthrough=["id"]))
    ['NOT PROTECTED, copied as they are: id']
    """
    # Leaks are named in any part: the plan has their spaces.
    passed = [name for name in plan.passthrough if name not in left_out]
    copied = [*passed, *(["the index of the rows"] if plan.keeps_index else [])]
    missing = [missing_column.column for missing_column in plan.not_found if missing_column.column not in left_out]
    none_found = missing and len(missing) == len(set(plan.names).difference(left_out))
    missing_title = "NOTHING TO ASK: inference found no column" if none_found else "Not found by inference"
    lines = {
        "NOT PROTECTED, copied as they are": copied,
        "NOT COVERED by the promise, as their spaces were read off the data": plan.leaks,
        f"{missing_title}, so their estimates are NaN (declare them in spaces=)": missing,
    }
    return [f"{what}: {name_list(names)}" for what, names in lines.items() if names]


def introduction(plan: PlanData) -> list[str]:
    """Return a plan's subject, its promise and its warnings, without a word of accounting.

    >>> from dpframe.plan import build_plan
    >>> introduction(build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000, delta=0.0))[0]
    'A plan for 1,000 rows, shuffled: 1 column is randomised'
    """
    rows = "" if plan.n is None else f" for {plan.n:,} rows"
    rows = rows if plan.sample is None else f" for a sample of {plan.sample:,} of {plan.n:,} rows"
    order = ", shuffled" if plan.shuffle else ", in the order in which they are"
    columns = "1 column is" if len(plan.columns) == 1 else f"{len(plan.columns)} columns are"
    dropped_text = "" if not plan.drop else f", left out: {name_list(plan.drop)}"
    return [f"A plan{rows}{order}: {columns} randomised{dropped_text}", promise_line(plan), *mind_lines(plan)]


def plan_lines(plan: PlanData) -> list[str]:
    """Return how the promise is kept: both guarantees, the order of the rows, and the cost of each part."""
    people = "one row" if plan.contributions == 1 else f"up to {plan.contributions} rows"
    people += "" if plan.unit.person is None else f", by column {plan.unit.person!r}"
    promise = plan.release
    text = [
        f"Release: epsilon={promise.epsilon:g}, delta={promise.delta:g} (replace-one, per person with {people})",
        f"Local: {plan.local.stated()}, each row, even against someone who knows which output row it became",
        f"Order: {_order_text(plan)}",
    ]
    if plan.privacy_id is not None:
        rows = "1 row" if plan.contributions == 1 else f"{plan.contributions} rows"
        text.append(
            f"Persons: {rows} of each, chosen in secret by {plan.privacy_id!r}, which does not leave; all weigh alike, "
            "and the number of rows is that of persons" + ("" if plan.contributions == 1 else " times so many")
        )
    elif plan.contributions > 1:
        text.append(f"BELIEVED, not enforced: that nobody owns more than {plan.contributions} rows (see privacy_id)")
    if plan.local_epsilon is not None:
        text.append(f"Local cap: no row may lose more than epsilon={plan.local_epsilon:g}")
    if plan.sample is not None:
        no_credit_text = "" if plan.terms.secret else "; without a secret order that earns no credit"
        text.append(f"Sample: {plan.sample:,} of {plan.n:,} rows, chosen in secret{no_credit_text}")
    text += gain_lines(plan)
    if plan.inferred is not None:
        spent, share_text = plan.inferred.budget, "of the total" if plan.inferred.step is None else "on its own"
        text.append(
            f"Inference: epsilon={spent.epsilon:g}, delta={spent.delta:g} {share_text} found the spaces of "
            + name_list(plan.inferred.columns)
        )
    for inference in () if plan.reused is None else plan.reused.each:
        text.append(
            f"Inference of another plan, for {(inference.unit or ROW).words}: epsilon={inference.budget.epsilon:g}, "
            f"delta={inference.budget.delta:g} apart from the total found the spaces of {name_list(inference.columns)}"
        )
    if plan.measures:
        parts = "; ".join(measure_parts(plan.measures))
        text.append(f"Measured in addition to the rows, of all rows, with discrete Gaussian noise: {parts}")
    text += step_lines(plan.steps) if plan.terms.central is not None else []
    if plan.not_found:
        text.append(
            "NOT FOUND by inference, estimates are NaN: "
            + "; ".join(f"{name_list([missing.column])} ({missing.why})" for missing in plan.not_found)
        )
        text += [f"NOT FOUND, but {line}" for line in nearly_found_lines(plan)]
    if plan.groups:
        text.append("Randomised together, one epsilon for all: " + "; ".join(name_list(g.names) for g in plan.groups))
    if plan.passthrough:
        text.append("NOT PROTECTED, copied as they are: " + name_list(plan.passthrough))
    if plan.keeps_index:
        text.append("NOT PROTECTED, copied as it is: the index of the rows")
    if plan.leaks:
        text.append("NOT COVERED, spaces read off the data: " + name_list(plan.leaks))
    if plan.rules:
        text.append(f"Rules that every row keeps before it is randomised: {'; '.join(map(repr, plan.rules))}")
    if plan.drop:
        text.append("Dropped: " + name_list(plan.drop))
    return text


def nearly_found(plan: PlanData) -> dict[str, float]:
    """Return the columns that another run may find, each with the ε at which four runs in five find it.

    Spaces from another plan are left out: that plan's ε was another.
    """
    missing_columns = plan.not_found if plan.reused is None else ()
    return {column.column: plan.epsilon * column.times for column in missing_columns if column.times is not None}


def nearly_found_lines(plan: PlanData) -> list[str]:
    """Return the columns that another run may find, in one line for every ε."""
    epsilon_of = nearly_found(plan)
    return [
        f"would be found at about epsilon={epsilon:.3g}: "
        f"{', '.join(repr(name) for name, column_epsilon in epsilon_of.items() if column_epsilon == epsilon)}"
        for epsilon in sorted(set(epsilon_of.values()))
    ]


def _order_text(plan: PlanData) -> str:
    """Return the order of the rows and its credit, in words."""
    if not plan.shuffle:
        return "kept: positions are not protected"
    if plan.terms.shuffled_rows is None:
        why = "columns are passed through" if plan.passthrough else "delta is 0" if plan.n else "n is not known"
        return f"secret, uniformly random; it earns no credit, as {why}"
    if any(unit.step for unit in plan.units):
        return "secret, uniformly random; it earns no credit where rows have gaussian noise"
    method = plan.terms.delta_of(plan.units).method
    credit = f"accounted for by {ORDER_METHODS[method]}" if method in ORDER_METHODS else "of no use at this size"
    return f"secret, uniformly random among {plan.terms.shuffled_rows:,} rows; {credit}"


def plan_text(plan: PlanData) -> str:
    """Return a plan in plain words, the table of its columns, and how the promise is kept."""
    return "\n".join([*introduction(plan), "", table_text(plan), "", f"{KEPT}:", *plan_lines(plan)])


def table_text(plan: PlanData) -> str:
    """Return the table of the columns as text, with a note on its errors."""
    table = summary_of(plan).to_string(float_format=lambda x: f"{x:.4g}", max_colwidth=60)
    return f"{table}\n{_ERRORS_NOTE}" if plan.columns else table


def on_a_screen(text: str) -> str:
    """Return a text cut to a screen: an inference may have thousands of numbers."""
    lines = [shorten(line, _LINE_LETTERS) for line in text.splitlines()]
    if len(lines) > MOST_LINES:
        hidden_count = len(lines) - MOST_LINES + 1
        lines[MOST_LINES - 1 :] = [
            f"… and {hidden_count} more lines; print(plan) shows all, plan.to_json() writes them"
        ]
    return "\n".join(lines)


def summary_of(plan: PlanData) -> pd.DataFrame:
    """Return a row per randomised unit of a plan; see `Plan.summary`."""
    import pandas as pd

    not_found = {missing.column for missing in plan.not_found}
    rows = []
    for unit in plan.units:
        # A group with one column not found has no error to state.
        missed = any(name in not_found for name in unit.names)
        # Unordered values have no unit: their error is a probability.
        changes = "chance of change" if unit.space.metric in UNORDERED else ""
        rows.append(
            {
                "column": unit.label,
                "space": shorten(repr(unit.space)),
                "mechanism": label_of(unit.mechanism),
                "epsilon": unit.mechanism.budget.epsilon,
                "delta": unit.mechanism.budget.delta,
                "expected_error": math.nan if missed else unit.expected_error,
                "error_bound": math.nan if missed else unit.error_bound,
                "unit": "not found" if missed else unit.space.unit or changes,
            }
        )
    names = ["column", "space", "mechanism", "epsilon", "delta", "expected_error", "error_bound", "unit"]
    return pd.DataFrame(rows, columns=names).set_index("column")


def digits(x: float) -> str:
    """Return a number in the format of notebooks."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e15 else f"{x:.4g}"


def shorten(text: str, width: int = 60) -> str:
    """Return a text cut to a width."""
    return text if len(text) <= width else text[: width - 1] + "…"


def first_digit(x: float) -> float:
    """Return a positive number rounded up to its first digit, for an approximate figure.

    >>> first_digit(5.9), first_digit(23.2), first_digit(14_300.0)
    (6.0, 30.0, 20000.0)
    """
    # Rounded up: a figure too small would not suffice.
    size = 10.0 ** math.floor(math.log10(x))
    return math.ceil(x / size) * size
