"""Plans changed at random: what is read keeps what it promises, by proof, or it is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from corpus import plans
from fuzzing import cases, counted, outcome
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated

from dpframe import Plan


def check(text: str) -> None:
    """Check that a plan that is read is whole: written and read it is the same, and its promise is proved.

    What inference spent was spent before the plan was written. Of noise that is less than its claim asks for the
    certificate tells.
    """
    plan = Plan.from_json(text)
    assert Plan.from_json(plan.to_json()) == plan
    failures = plan.verify().failures
    assert all(failure.startswith("inference ") or "was inferred, but" in failure for failure in failures), failures
    assert str(plan)
    assert plan.local.epsilon > 0


@cases(0.22, 120)
@given(data=st.data())
def _changed(found: Any, data: st.DataObject) -> None:
    text = data.draw(mutated(data.draw(st.sampled_from(plans()))))
    found[outcome(lambda: check(text))] += 1


@pytest.mark.slow
def test_plans() -> None:
    with counted("changed plans") as found:
        _changed(found)
    assert {"works", "PlanError"} == set(found)


@pytest.mark.slow
def test_the_plans_that_are_changed_are_valid() -> None:
    for text in plans():
        check(text)
