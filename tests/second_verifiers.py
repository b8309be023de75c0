"""Random plans for both verifiers, and what both say of them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import dpframe as dpf
from dpframe import Plan, ReleaseInfo, second_verifier

COLUMNS: dict[str, Any] = {
    "age": (18, 95),
    "sex": ["F", "M"],
    "region": list(dpf.datasets.REGIONS),
    "occupation": dpf.Nullable(dpf.Categorical(dpf.datasets.OCCUPATIONS)),
    "income": dpf.Nullable(dpf.Integer(0, 250_000)),
    "education": dpf.Ordinal(dpf.datasets.EDUCATION),
    "hobbies": dpf.Subset(dpf.datasets.HOBBIES, 3),
}


@cache
def census(rows: int, columns: tuple[str, ...]) -> Any:
    return dpf.datasets.make_census(rows, columns=list(columns))


def random_release(seed: int) -> ReleaseInfo:
    """Return a description of a release under random options: columns, budget, order, sample, rows a person, tables."""
    draw = random.Random(seed)
    rows = draw.choice([300, 1_000, 4_000])
    names = draw.sample(sorted(COLUMNS), draw.choice([1, 2, 2, 3]))
    # Every third has δ = 0, every third a kept order.
    delta, shuffle = (0.0, False) if seed % 3 == 0 else (10.0 ** -draw.randint(3, 8), seed % 3 == 1)
    options: dict[str, Any] = {"shuffle": shuffle, "contributions": draw.choice([1, 1, 1, 2, 3])}
    if shuffle and draw.random() < 0.3:
        options["sample"] = rows // 3
    if delta == 0 or draw.random() < 0.4:
        options["measure"] = None
    if draw.random() < 0.7 or delta == 0:
        options["spaces"] = {name: COLUMNS[name] for name in names}
    return dpf.sanitize(
        census(rows, tuple(sorted(names))), epsilon=draw.choice([0.5, 1.0, 2.0, 6.0]), delta=delta, **options
    ).dp.release


@dataclass(frozen=True)
class Agreement:
    """Both verdicts, and the relative differences of ε or δ and of the rows' μ (second over first)."""

    first: bool
    second: str
    part: str
    difference: float
    rows_mu: float


def compare(info: ReleaseInfo) -> Agreement:
    """Return what both verifiers say of a release's description."""
    plan: Plan = info.plan
    certificate, findings = plan.verify(), second_verifier.verify(json.loads(info.to_json()))
    rows, totals = plan.steps.get("rows") if plan.delta else None, findings.totals
    rows_mu = totals["mu of rows"] / rows.mu - 1 if rows is not None and "mu of rows" in totals else 0.0
    name = "total delta" if "total delta" in totals else "total epsilon"
    first = certificate.delta if name == "total delta" else certificate.epsilon
    kind = "shuffled" if rows_mu else "tables" if plan.measures else "rows"
    difference = totals[name] / first - 1 if name in totals and first else 0.0
    return Agreement(certificate.ok, second_verifier.WORDS[findings.verdict], f"{name}, {kind}", difference, rows_mu)
