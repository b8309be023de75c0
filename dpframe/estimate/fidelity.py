"""What synthetic rows hold: of every column whether it was found, of every pair how much dependence noise leaves."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd

from dpframe.estimate.model import Model
from dpframe.estimate.tables.tables import SHOWS, Table, dependence_score
from dpframe.plan.plan import Plan


def fidelity_table(plan: Plan, model: Model) -> pd.DataFrame:
    """Return a row for every column and every pair of the columns that synthetic rows draw together.

    A pair's counts, from tables or of the released rows, are compared with those of independent columns
    (`dependence_score`).
    """
    lost = {missing.column for missing in plan.not_found}
    rows: dict[tuple[str, str], tuple[str, float, float, float, bool]] = {}
    for name in plan.names:
        found = name not in lost
        source = model.tables.source_of([name]) if found and name in model.columns else "rows" if found else "none"
        rows[name, ""] = (source, math.nan, math.nan, math.nan, found)
    known = model.evidence.row_pairs | model.evidence.pairs
    for i, j in combinations(range(len(model.names)), 2):
        names, table = (model.names[i], model.names[j]), known.get((i, j))
        if lost & set(names) or table is None:
            rows[names] = ("none", math.nan, math.nan, math.nan, False)
            continue
        rows[names] = _pair(model, (i, j), table)
    index = pd.MultiIndex.from_tuples(list(rows), names=["column", "with"])
    return pd.DataFrame(list(rows.values()), index, columns=["source", "dependence", "noise", "deviations", "shows"])


def _pair(model: Model, places: tuple[int, int], table: Table) -> tuple[str, float, float, float, bool]:
    joint = model.fit.joint(places)
    margins = [joint.sum(axis=1), joint.sum(axis=0)]
    dependence = float(np.abs(joint - np.outer(*margins)).sum() / 2)
    if table.channels:
        margins = [channel @ margin for channel, margin in zip(table.channels, margins, strict=True)]
    variances = table.variances
    score = dependence_score(table.counts, variances, margins)
    # The mean distance that such noise makes of independent columns: σ√(2/π) in a cell.
    noise = float(np.sqrt(variances).sum() * math.sqrt(2 / math.pi) / 2 / max(float(table.counts.sum()), 1.0))
    source = model.tables.source_of([model.names[place] for place in places])
    return source, dependence, noise, score, score > SHOWS
