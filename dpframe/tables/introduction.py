"""How a release introduces itself: what it is, what it promises, what to mind and how to read it; and the rest."""

from __future__ import annotations

from dataclasses import dataclass

from dpframe.plan.explanation import person_lines
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.words import KEPT

NUMBERS = 'Numbers: .dp.mean("…"), .dp.value_counts("…"); plain pandas on noisy rows is biased. More: .dp.explain()'
"""The last line, for frames."""


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
        return "\n".join(["What it means for one person", *self.person, "", KEPT, *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [("What it means for one person", self.person), (KEPT, self.details)]
        return notebook_html("What this release promises", parts)


def explained_release(plan: Plan) -> ReleaseExplanation:
    """Return the explanation of what was released under a plan."""
    return ReleaseExplanation(tuple(person_lines(plan)), tuple(plan.lines()))
