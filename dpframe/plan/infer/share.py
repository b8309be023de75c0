"""How much of a promise inference takes: a share of M² as one step, or with δ = 0 a share of ε."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from dpframe.accounting.budget import Budget, fewer_digits_down
from dpframe.accounting.gaussian_dp import Step, promise_step, share_of_step, step_epsilon
from dpframe.errors import ParameterError
from dpframe.plan.infer.cost import Histogram, default_share

PURE_SHARE = 0.1
"""Share of ε that inference takes with δ = 0, where nothing else is said."""

_OWN_SLACK, _TABLES_SLACK = 0.05, 1e-3
"""Shares of δ that inference has as slack: where values of unknown domains may show, and where only tables' tails."""
_MOST = 0.99
"""Largest share: of less than a hundredth of M² no rows are made, which would show only once it is spent."""
_STATED = 0.5
"""Share of δ at which inference by itself is stated as an (ε, δ)."""


@dataclass(frozen=True)
class Allowance:
    """What inference may spend: as a budget of its own, and as the step that is composed with the rows.

    With δ = 0 there is no step, and the budget is subtracted from the promise.
    """

    budget: Budget
    step: Step | None

    @property
    def spendable(self) -> Budget | Step:
        """What the noise is made from."""
        return self.budget if self.step is None else self.step


def allowance(
    promise: Budget,
    histograms: Sequence[Histogram],
    n: int,
    contributions: int,
    share: float | None,
    secret: bool,
    fixed: bool = True,
) -> Allowance:
    """Return what inference of these histograms may spend of a promise.

    Parameters
    ----------
    share
        Its share of M², or with δ = 0 of ε; None for as much as `default_share` says, and a tenth of ε.
    secret
        Whether rows leave in a secret order that earns credit.
    fixed
        Whether the columns' shares are public. Where they follow from the spaces that inference gives, and rows keep
        their order, what is composed is no one pair of laws: then inference is subtracted from the promise.

    Raises
    ------
    ParameterError
        If the share leaves nothing.
    """
    if promise.delta == 0 or not (secret or fixed):
        part = promise.split([PURE_SHARE if share is None else share])[0]
        short = Budget(_short(part.epsilon), _short(part.delta))
        _ = promise.less(short, "inference")  # refused if nothing is left
        return Allowance(short, None)
    unknown = any(histogram.unknown for histogram in histograms)
    whole = promise_step(promise)
    taken = default_share(histograms, n, whole, contributions, secret) if share is None else share
    # What is allowed enters the key of the noise.
    mu = fewer_digits_down(share_of_step(whole, taken).mu)
    step = Step(mu, promise.delta * (_OWN_SLACK if unknown else _TABLES_SLACK))
    if taken > _MOST:
        raise ParameterError("infer_share must leave at least a hundredth for the rows; lower it to 0.99 or less")
    delta = _short(promise.delta * _STATED)
    return Allowance(Budget(_short(step_epsilon(step, delta), up=True) or 5e-324, delta), step)


def _short(x: float, up: bool = False) -> float:
    """Return a number in twelve digits, or rounded up in eight: sums of decimals are what a ledger keeps."""
    return float(Context(prec=8, rounding=ROUND_CEILING).create_decimal(Decimal(x))) if up else float(f"{x:.12g}")
