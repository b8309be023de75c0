"""What a release gives away, step by step, in the currency in which everything adds up (`gaussian_dp`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, composed_steps, dominating_step, pure_step, step_epsilon
from dpframe.accounting.kept_order import response_parts
from dpframe.plan.calibration import Terms, local_delta, rows_step
from dpframe.plan.columns import Randomised
from dpframe.plan.inferred import Inferred

_NARROW = 1e-9


def steps_of(
    units: Sequence[Randomised], terms: Terms, inferred: Inferred | None, tables: Step | None = None
) -> dict[str, Step]:
    """Return what each part of a release costs a person, by its name.

    Rows in secret order are one step. In known order every column of each of a person's rows is one, of pure
    randomised response that fails with the channel's own δ: dear, as such a row's loss is nothing like Gaussian.
    """
    found: dict[str, Step] = {}
    if inferred is not None:
        found["inference"] = dominating_step(inferred.budget) if inferred.step is None else inferred.step
    if tables is not None:
        found["tables"] = tables
    pure = all(unit.mechanism.delta == 0 for unit in units)
    if units and terms.shuffled_rows is not None and pure:
        found["rows"] = rows_step(tuple(unit.column_loss for unit in units), terms)
    elif units:
        columns = [Step(pure_step(unit.certified.epsilon).mu, unit.mechanism.delta) for unit in units]
        together = composed_steps(columns * terms.contributions)
        whole = math.fsum(unit.certified.epsilon for unit in units) * terms.contributions * (1 + 1e-15)
        found["rows"] = Step(min(together.mu, pure_step(whole).mu) if whole < 100 else together.mu, together.delta)
    return found


def release_step(
    units: Sequence[Randomised], terms: Terms, inferred: Inferred | None, tables: Step | None = None
) -> Step:
    """Return the step of a whole release for one person."""
    return composed_steps(steps_of(units, terms, inferred, tables).values())


def local_epsilon(units: Sequence[Randomised], terms: Terms) -> float:
    """Return the ε, rounded up, at the promise's δ of one row whose place is known, with what is central of it."""
    assert terms.central is not None
    failing, central = math.fsum(unit.mechanism.delta for unit in units), terms.central
    losses = [unit.column_loss for unit in units]
    if failing:
        central = composed_steps([central, Step(0.0, failing)])
        losses = response_parts([unit.certified.epsilon for unit in units])
    if not losses:
        return step_epsilon(central, terms.budget.delta) or 5e-324
    low, high = 0.0, math.fsum(loss.epsilon for loss in losses) + step_epsilon(central, terms.budget.delta)
    high *= 1 + _NARROW  # pure losses add to whatever the rest loses at this δ
    while high - low > _NARROW * high:
        middle = (low + high) / 2
        low, high = (low, middle) if local_delta(losses, central, middle) <= terms.budget.delta else (middle, high)
    return high


def step_lines(
    units: Sequence[Randomised], terms: Terms, inferred: Inferred | None, tables: Step | None = None
) -> list[str]:
    """Return a line for each step and the total, where they are composed."""
    if terms.central is None:
        return []
    found = steps_of(units, terms, inferred, tables)
    whole = composed_steps(found.values())
    shares = {name: step.square / whole.square if whole.mu else 0 for name, step in found.items()}
    parts = "; ".join(
        f"{name} mu={step.mu:.4g}, slack={step.delta:.3g} ({float(shares[name]):.0%} of mu squared)"
        for name, step in found.items()
    )
    return [f"Steps: {parts}; together mu={whole.mu:.4g}, slack={whole.delta:.3g}"]


def stated_budget(step: Step, delta: float) -> Budget:
    """Return the (ε, δ) that a step has on its own at a δ above its slack."""
    return Budget(step_epsilon(step, delta) or 5e-324, delta)
