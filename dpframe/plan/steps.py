"""Privacy steps of a release, in the unit in which steps add up (`gaussian_dp`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dpframe.accounting import composed_epsilon
from dpframe.accounting.budget import Budget, compose
from dpframe.accounting.gaussian_dp import Step, composed_steps, dominating_step, pure_step, step_epsilon
from dpframe.inference.histogram_specs import STATED_SHARE
from dpframe.inference.inferred import Inferred
from dpframe.plan.calibration import AccountingContext, rows_step
from dpframe.plan.columns import Randomised


def steps_of(
    units: Sequence[Randomised], terms: AccountingContext, inferred: Inferred | None, tables: Step | None = None
) -> dict[str, Step]:
    """Return the privacy step of each part of a release, by its name.

    Shuffled rows are one step. Without shuffling, every column of each of a person's rows is one step: pure randomised
    response that fails with the channel's own δ. This accounting is loose, as the loss of one row is far from Gaussian.
    """
    steps: dict[str, Step] = {}
    if inferred is not None:
        steps["inference"] = dominating_step(inferred.budget) if inferred.step is None else inferred.step
    if tables is not None:
        steps["tables"] = tables
    pure = all(unit.mechanism.delta == 0 for unit in units)
    rows = None
    if units and terms.shuffled_rows is not None and pure:
        rows = rows_step(tuple(unit.column_loss for unit in units), terms)
    if rows is not None:
        steps["rows"] = rows
    elif units:
        columns = [unit.step or Step(pure_step(unit.certified.epsilon).mu, unit.mechanism.delta) for unit in units]
        joint_step = composed_steps(columns * terms.contributions)
        total_epsilon = math.fsum(unit.certified.epsilon for unit in units) * terms.contributions * (1 + 1e-15)
        # The sum of ε can be tighter than the composition of Gaussian steps.
        adds_epsilons = total_epsilon < 100 and not any(unit.step for unit in units)
        steps["rows"] = Step(
            min(joint_step.mu, pure_step(total_epsilon).mu) if adds_epsilons else joint_step.mu, joint_step.delta
        )
    return steps


def central_budget(inferred: Inferred | None, tables: Step | None, delta: float) -> Budget | None:
    """Return the (ε, δ) of everything released in addition to the rows; shuffling does not protect it."""
    if tables is None or delta == 0:
        return None if inferred is None else inferred.budget
    if inferred is None or inferred.step is not None:
        step = tables if inferred is None or inferred.step is None else composed_steps([inferred.step, tables])
        return Budget(step_epsilon(step, delta * STATED_SHARE) or 5e-324, delta * STATED_SHARE)
    tables_delta = (delta - inferred.budget.delta) * STATED_SHARE
    return compose([inferred.budget, Budget(step_epsilon(tables, tables_delta) or 5e-324, tables_delta)])


def rows_budget(units: Sequence[Randomised], terms: AccountingContext, steps: Mapping[str, Step]) -> Budget:
    """Return the budget of a release after its inference is paid: never more than the whole promise.

    This is not the promise less the cost of inference, because separate accounting costs more than joint composition.
    """
    remaining_step, delta = (
        composed_steps(step for name, step in steps.items() if name != "inference"),
        terms.budget.delta,
    )
    if "tables" in steps or terms.shuffled_rows is not None or any(unit.mechanism.delta > 0 for unit in units):
        epsilon = step_epsilon(remaining_step, delta)
    else:
        epsilon = composed_epsilon([unit.column_loss for unit in units] * terms.contributions, delta)
    # The smallest float above 0: a budget must be positive.
    return Budget(min(epsilon or 5e-324, terms.budget.epsilon), delta)


def terms_of(
    promise: Budget,
    inferred: Inferred | None,
    n: int | None,
    sample: int | None,
    secret: bool,
    contributions: int,
    local: float | None,
    tables: Step | None = None,
    most: Step | None = None,
) -> AccountingContext:
    """Return the inputs of the accountant: central steps are composed with the rows, or (older plans) subtracted.

    Inference is subtracted if rows are unshuffled and tables are measured. Its outcome then decides the tables and the
    noise of the rows, and no single pair of laws dominates all outcomes.
    """
    inference_step, inference_budget = (None, None) if inferred is None else (inferred.step, inferred.budget)
    budget = (
        promise
        if inference_budget is None or inference_step is not None
        else promise.less(inference_budget, "inference")
    )
    steps = [step for step in (inference_step, tables) if step is not None]
    central = composed_steps(steps) if steps else None
    return AccountingContext(
        budget, n, sample, secret, contributions, central, row_cap(promise, inferred, most or tables, local)
    )


def row_cap(promise: Budget, inferred: Inferred | None, tables: Step | None, local: float | None) -> Budget | None:
    """Return the budget that ``local_epsilon`` leaves for a row's own loss.

    The budget does not depend on the outcome of inference, because a reader of the plan knows the losses of its rows.
    """
    central = None if local is None else central_budget(inferred, tables, promise.delta)
    if local is None or central is None:
        return None if local is None else Budget(local, promise.delta)
    subject = "inference and measured tables, of what local_epsilon allows,"
    return Budget(local, promise.delta).less(
        central, subject, "raise local_epsilon, or lower infer_share or measure_share"
    )


def step_lines(steps: Mapping[str, Step]) -> list[str]:
    """Return one line that lists the steps of a release and their total."""
    total_step = composed_steps(steps.values())
    shares = {name: step.square / total_step.square if total_step.mu else 0 for name, step in steps.items()}
    parts = "; ".join(
        f"{name} mu={step.mu:.4g}, slack={step.delta:.3g} ({float(shares[name]):.0%} of mu squared)"
        for name, step in steps.items()
    )
    return [f"Steps: {parts}; together mu={total_step.mu:.4g}, slack={total_step.delta:.3g}"]
