"""The meaning of (ε, δ) for one person: bounds on beliefs about a row, and on the success of guesses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError
from dpframe.plan.data import PlanData

if TYPE_CHECKING:
    import pandas as pd

PRIORS = (0.01, 0.1, 0.5, 0.9)
"""Prior probabilities of a table of beliefs by default (limit of a page)."""


def best_guess(budget: Budget) -> float:
    """Return the largest probability that a guess between two equally likely rows is right: (e^ε + δ)/(1 + e^ε).

    This is (1 + t)/2 for the largest total variation distance under (ε, δ), t = (e^ε − 1 + 2δ)/(e^ε + 1). With A the
    outcomes that P favours, t = P(A) − Q(A). The bounds P(A) ≤ e^ε·Q(A) + δ and 1 − Q(A) ≤ e^ε·(1 − P(A)) + δ add up to
    t.
    """
    return after(0.5, budget)


def after(before: float, budget: Budget) -> float:
    """Return the largest posterior belief in a person's true row, of two rows, on average over releases.

    With δ = 0 the bound is valid for every outcome: odds grow by no more than e^ε. With δ > 0 some outcomes may reveal
    more, and more often than with probability δ (6 to 57 times as often for losses like a Gaussian's). The mean belief
    in the truth, Σ πP²/(πP + (1−π)Q), is convex and homogeneous in (P, Q). So one mechanism maximises it: the one from
    which every (ε, δ)-private pair follows by post-processing (Kairouz, Oh and Viswanath 2015, Theorem 3.1). With
    probability δ this mechanism reveals all, and otherwise it is ε-private.
    """
    pure_belief = 1 / (1 + (1 - before) / before * math.exp(-budget.epsilon))
    return pure_belief * (1 - budget.delta) + budget.delta


def belief_table(plan: PlanData, priors: Iterable[float] = PRIORS) -> pd.DataFrame:
    """Return bounds on the posterior belief in one of two values of a person's row, one row per prior.

    Somebody believes in one value with probability π. On average over releases, their belief is at most ``upper`` if
    the value is true: δ + (1 − δ)/(1 + (1−π)/π·e^−ε). It is at least ``lower`` if the other value is true. With δ = 0
    both bounds are valid for every outcome. ``local_lower`` and ``local_upper`` are valid even if they know which
    released rows are the person's (`located`).

    Raises
    ------
    ParameterError
        Unless priors lie between 0 and 1.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> build_plan({"sex": ["F", "M"]}, epsilon=1.0).beliefs([0.5])[["lower", "upper"]].round(3).to_dict("list")
    {'lower': [0.269], 'upper': [0.731]}
    """
    import pandas as pd

    prior_list = list(priors) if isinstance(priors, Iterable) else []
    if not prior_list or not all(
        isinstance(p, int | float) and not isinstance(p, bool) and 0 < p < 1 for p in prior_list
    ):
        raise ParameterError("priors must be probabilities above 0 and below 1, e.g. priors=[0.01, 0.5]")
    rows = [
        {
            f"{name}{end}": bound
            for name, budget in (("", plan.release), ("local_", plan.located))
            for end, bound in [("lower", 1 - after(1 - p, budget)), ("upper", after(p, budget))]
        }
        for p in prior_list
    ]
    return pd.DataFrame(rows, index=pd.Index([float(p) for p in prior_list], name="prior"))


def percent(share: float) -> str:
    """Return a share below 1 as percent, rounded up in the first digit that still differs from 100 %.

    >>> percent(0.73106), percent(0.999877), percent(1.0)
    ('73.2 %', '99.99 %', '100 %')
    """
    gap = 1 - share
    if gap <= 1e-9:
        return "100 %"
    # Enough digits that the rounded share still differs from 100 %.
    digits = 1 if share <= 0.999 else -math.floor(math.log10(gap)) - 2
    return f"{math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits:.{digits}f} %"


def chance(delta: float) -> str:
    """Return a small chance as 1 in so many, never smaller than it is.

    >>> chance(3.53553e-07), chance(0.0)
    ('1 in 2.8 million', '0')
    """
    if delta <= 0:
        return "0"
    odds = 1 / delta
    if odds < 1000:
        return f"1 in {math.floor(odds)}"
    for size, name in ((1e12, " million million"), (1e9, " billion"), (1e6, " million"), (1.0, "")):
        if odds >= size:
            # Two significant digits, rounded down: the chance is never understated.
            digits = 10.0 ** (math.floor(math.log10(odds / size)) - 1)
            return f"1 in {math.floor(odds / size / digits) * digits:,.10g}{name}"
    return "1"
