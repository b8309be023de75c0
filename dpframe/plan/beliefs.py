"""What an (ε, δ) means for one person: how sure of a row a release makes somebody on average, and how often right."""

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
"""Chances beforehand that a table of beliefs has by default (limit of a page)."""


def best_guess(budget: Budget) -> float:
    """Return how often the best guess between two equally likely rows can be right: (e^ε + δ)/(1 + e^ε).

    That is (1 + t)/2 for the largest total variation distance that (ε, δ) allows, t = (e^ε − 1 + 2δ)/(e^ε + 1): with A
    the outcomes that P favours, t = P(A) − Q(A), and P(A) ≤ e^ε·Q(A) + δ, 1 − Q(A) ≤ e^ε·(1 − P(A)) + δ add up to it.
    """
    return after(0.5, budget)


def after(before: float, budget: Budget) -> float:
    """Return the largest belief in a person's true row, of two, on average over what the release may show.

    With δ = 0 it holds for everything that is seen: odds grow by no more than e^ε. With δ > 0 some outcomes may say
    more, and more often than with a chance of δ (6 to 57 times as often for losses like a Gaussian's). The mean belief
    in the truth, Σ πP²/(πP + (1−π)Q), is convex and homogeneous in (P, Q). So it is largest for the mechanism of which
    all (ε, δ)-private pairs are functions (Kairouz, Oh and Viswanath 2015, Theorem 3.1), which with chance δ reveals
    all, and otherwise is ε-private.
    """
    pure_belief = 1 / (1 + (1 - before) / before * math.exp(-budget.epsilon))
    return pure_belief * (1 - budget.delta) + budget.delta


def belief_table(plan: PlanData, priors: Iterable[float] = PRIORS) -> pd.DataFrame:
    """Return between what a belief in one of two values of a person's row can be moved, a row per prior.

    Somebody believes in one value with probability π. On average over what the release may show, their belief is at
    most ``upper`` if that value is true, δ + (1 − δ)/(1 + (1−π)/π·e^−ε), and at least ``lower`` if the other one is.
    With δ = 0 both hold for everything that is seen. ``local_lower`` and ``local_upper`` hold even if they know which
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
            digits = 10.0 ** (math.floor(math.log10(odds / size)) - 1)
            return f"1 in {math.floor(odds / size / digits) * digits:,.10g}{name}"
    return "1"
