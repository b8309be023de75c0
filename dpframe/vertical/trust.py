"""What each coalition of parties has of a curator outside it, with its number: the table that a run states.

A coalition is described by four things that it has or lacks: another curator (whose folder has the shared secret), the
server with all messages, the researcher with what the server wrote and the other curators' pads, and the pad of the
curator that it is against. Every set of these is one of five cases, and is compared byte by byte in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import pandas as pd

from dpframe.plan.plan import Plan
from dpframe.plan.steps import central_budget

COALITIONS: dict[str, frozenset[str]] = {
    "everybody": frozenset(),
    "another curator": frozenset({"curator"}),
    "the server": frozenset({"server"}),
    "the server and another curator": frozenset({"server", "curator"}),
    "all others, without the curator's pad": frozenset({"curator", "server", "researcher"}),
    "whoever has the pad alone": frozenset({"pad"}),
    "the researcher": frozenset({"researcher", "pad"}),
    "the researcher and another curator": frozenset({"curator", "researcher", "pad"}),
    "the server and the researcher": frozenset({"server", "researcher", "pad"}),
}
"""Coalitions that are stated, and what they have."""


def has(holds: Collection[str]) -> str:
    """Return what a coalition has of the columns of a curator outside it.

    >>> has({"curator", "server"}), has({"researcher", "pad"}), has({"server", "pad"})
    ('nothing', 'the promise', 'everything')
    """
    if "pad" not in holds:
        return "nothing"
    if "server" in holds:
        return "everything"
    if "researcher" not in holds:
        return "the tables"
    return "the local promise" if "curator" in holds else "the promise"


def trust_table(plan: Plan) -> pd.DataFrame:
    """Return what each coalition has, with its (ε, δ) under a plan."""
    least = (5e-324, 0.0)
    losses = {
        "the tables": central_budget(plan.inferred, plan.tables_step, plan.delta),
        "the promise": plan.release,
        "the local promise": plan.local,
    }
    rows = []
    for holds in COALITIONS.values():
        what = has(holds)
        if what == "the tables" and not plan.measures:
            what = "nothing"
        loss = losses.get(what)
        pair = {"nothing": (0.0, 0.0), "everything": (math.inf, 1.0)}.get(what)
        rows.append((what, *(pair or (least if loss is None else (loss.epsilon, loss.delta)))))
    return pd.DataFrame(rows, index=list(COALITIONS), columns=["has", "epsilon", "delta"])
