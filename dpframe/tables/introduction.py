"""How a release introduces itself: what it is, what it promises, what to mind and how to read it; and the rest."""

from __future__ import annotations

from dataclasses import dataclass

from dpframe.accounting.budget import upward
from dpframe.errors import name_list
from dpframe.plan.explanation import person_lines
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan

NUMBERS = 'Numbers: .dp.mean("…"), .dp.value_counts("…"); plain pandas on noisy rows is biased. More: .dp.explain()'
"""The last line, for frames."""

_KNOWN_ROW = "against someone who knows which row is theirs"
_KNOWN_ROWS = "against someone who knows which rows are theirs"


def promise_line(plan: Plan) -> str:
    """Return what a plan promises to a person, in one line.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> promise_line(build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000, delta=0.0))
    'Promise: epsilon=1, delta=0 for each person with one row, also against someone who knows which row is theirs'
    """
    people = "one row" if plan.contributions == 1 else f"up to {plan.contributions} rows"
    people += "" if plan.privacy_id is None else f" by column {plan.privacy_id!r}"
    whom = _KNOWN_ROW if plan.contributions == 1 else _KNOWN_ROWS
    promise = f"Promise: epsilon={plan.epsilon:g}, delta={plan.delta:.3g} for each person with {people}"
    if plan.located == plan.release:
        return f"{promise}, also {whom}"
    return f"{promise}; epsilon={upward(plan.located.epsilon)} {whom}"


def mind_lines(plan: Plan) -> list[str]:
    """Return what users have to mind: what is not protected, and what inference did not find; often nothing.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> mind_lines(build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000, delta=0.0, passthrough=["id"]))
    ['NOT PROTECTED, copied as they are: id']
    """
    copied = [*plan.passthrough, *(["the index of the rows"] if plan.keeps_index else [])]
    missing = [one.column for one in plan.not_found]
    lines = {
        "NOT PROTECTED, copied as they are": copied,
        "NOT COVERED by the promise, as their spaces were read off the data": plan.leaks,
        "Not found by inference, so their estimates are NaN (declare them in spaces=)": missing,
    }
    return [f"{what}: {name_list(names)}" for what, names in lines.items() if names]


@dataclass(frozen=True)
class ReleaseExplanation:
    """What a release promises in detail; prints as text, and shows as HTML in a notebook.

    Parameters
    ----------
    person
        What the promise means for one person, in sentences.
    details
        Both guarantees, the order of the rows, what inference and tables measured, and what each costs.
    """

    person: tuple[str, ...]
    details: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(["What it means for one person", *self.person, "", "How the promise is kept", *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [("What it means for one person", self.person), ("How the promise is kept", self.details)]
        return notebook_html("What this release promises", parts)


def explained_release(plan: Plan) -> ReleaseExplanation:
    """Return the explanation of what was released under a plan."""
    return ReleaseExplanation(tuple(person_lines(plan)), tuple(plan.lines()))
