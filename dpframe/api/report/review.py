"""Answers of a release to what reviewers of differential privacy ask, and how its ε compares with others'.

The questions follow the pyramid of NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (2025),
from the numbers of a promise through what may undermine it to what it rests on, and the trade-offs of the W3C Draft
Note Considerations for Reviewing Differential Privacy Systems (for Non-Differential Privacy Experts) of 12 February
2026: privacy, usefulness, and who has to be trusted.
"""

from __future__ import annotations

import math

from dpframe.accounting.budget import Budget, upward
from dpframe.api.report.elements import Table, table
from dpframe.errors import name_list
from dpframe.plan.certificate import Certificate
from dpframe.plan.plan import Plan

PROVED, ATTESTED, OPEN = "proved from the file", "stated by the curator", "ask the curator"


def review_table(plan: Plan, certificate: Certificate) -> Table:
    """Return a row for each question: what this release answers, and how that is known."""
    rows = [
        ("How strong is the promise?", _strength(plan), PROVED if certificate.ok else "not verified"),
        ("Who is protected (unit of privacy)?", _unit(plan), ATTESTED),
        ("What may differ between neighbouring tables?", _NEIGHBOURS, PROVED),
        ("What is released without protection?", _open_parts(certificate), PROVED),
        ("Whom do people have to trust?", _trust(plan), ATTESTED),
        ("Was anything looked at before, or tuned on the data?", _looked(plan), ATTESTED),
        ("Do other releases of the same people add to it?", _OTHERS, OPEN),
        ("Is the noise sound (floating point, timing)?", _NOISE, "the code; losses are proved from the file"),
        ("Who can reach the raw table and the key?", "Not in this file.", OPEN),
        ("How were the data collected, and whom do they miss?", _COLLECTED, OPEN),
        ("Is it useful, and for whom least?", _useful(plan), "forecast from the plan"),
    ]
    caption = (
        "Questions in the order of the pyramid of NIST SP 800-226 (2025), with those of the W3C Draft Note "
        "Considerations for Reviewing Differential Privacy Systems (12 February 2026)"
    )
    return table(caption, ("Question", "This release", "Known how"), rows, "review")


_NEIGHBOURS = "The values of one person's rows; the number of rows stays (replace-one)."
_OTHERS = "Not in this file: each adds its ε and δ. A ledger of the dataset has the sum."
_NOISE = (
    "Drawn as whole numbers from tables with a keyed stream: no floating point, and no work that follows a value. "
    "Running times were not audited."
)
_COLLECTED = "Not in this file. Noise mends no bias of the data, and hides nothing before the release."
_USEFUL = "See the top of this page. Noise is the same for all counts, so small groups are distinguished least."


def _useful(plan: Plan) -> str:
    nulls = ", and nulls as a value where a column is not nullable" if plan.nulls == "impute" else ""
    return f"{_USEFUL} Values beyond a column's bounds count as the bounds{nulls}."


def _strength(plan: Plan) -> str:
    delta = f", δ = {upward(plan.delta)}" if plan.delta else ", δ = 0"
    return f"ε = {upward(plan.epsilon)}{delta}; for a row that was found, ε = {upward(plan.located.epsilon)}."


def _unit(plan: Plan) -> str:
    rows = "one row" if plan.contributions == 1 else f"up to {plan.contributions} rows"
    if plan.privacy_id is not None:
        return f"A person, by column {plan.privacy_id}, of whom {rows} were chosen."
    return f"A person with {rows}; who owns more is protected less."


def _open_parts(certificate: Certificate) -> str:
    public = "the number of rows, names, types and possible values of the columns"
    said = "; ".join([*certificate.unprotected, public])
    return f"{said[0].upper()}{said[1:]}."


def _trust(plan: Plan) -> str:
    order = "; that the order of the rows stays secret is part of the promise" if plan.terms.shuffled_rows else ""
    return f"The curator, who holds the raw table and the key (central model){order}. Receivers need no trust."


def _looked(plan: Plan) -> str:
    parts = []
    if plan.inferred is not None:
        parts.append(f"{len(plan.inferred.columns)} columns' values were inferred, within the budget.")
    if plan.leaks:
        parts.append(f"Read off the data, and not covered: {name_list(plan.leaks)}.")
    if len(plan.leaks) + (0 if plan.inferred is None else len(plan.inferred.columns)) < len(plan.columns):
        parts.append(f"{'Other' if parts else 'All'} columns' values were declared, or are known by their types.")
    return " ".join(parts)


def add_remove(budget: Budget) -> Budget:
    """Return the (ε, δ) for adding or removing a row that is worth as much as this one for replacing a row.

    A replacement is one row less and one more, so that (ε, δ) for add/remove is (2ε, (1 + e^ε)·δ) for replace-one.

    >>> add_remove(Budget(1.0, 1e-6)).epsilon
    0.5
    """
    half = budget.epsilon / 2
    return Budget(half, budget.delta / (1 + math.exp(min(half, 700.0))))


def comparison(budget: Budget) -> str:
    """Return how a peer's ε for adding or removing a row compares with a release's, in words."""
    peer = add_remove(budget)
    delta = f", δ = {peer.delta:.2g}" if peer.delta else ""
    return (
        "Many state ε for adding or removing one row. Such an (ε, δ) is at most (2ε, (1 + e^ε)·δ) for replacing one, "
        f"as here: ε = {upward(budget.epsilon)} of this release bounds as much as an add/remove ε = {peer.epsilon:.3g}"
        f"{delta} would. Nothing is claimed the other way: the number of rows is exact, so that a row added or removed "
        "shows."
    )
