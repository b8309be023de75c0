"""Each measured table's share of the tables' budget: by kinds of tables, by cells, or by goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dpframe.forecast.errors import vector_scale
from dpframe.plan.measures import Measure
from dpframe.spaces import Space
from dpframe.spaces.base import affine_map
from dpframe.spaces.cells import ball_of

RELATIVE_COSTS = {"sizes": 0.1, "item_pairs": 0.6}
"""Costs of some tables relative to other tables of their part (tuned; effect not measured).

A tenth for set sizes leaves their noise far below their corrections. At equal cost the noise of pairs is half as large
again as the noise of items, and questions of two items have both errors.
"""

BUDGET_PARTS = {"one_way": 0.17, "level": 0.12, "sum": 0.12, "joint": 0.59, "vectors": 0.5, "list": 0.1}
"""Budget shares of numbers' one-ways, their finer levels, their sums, joints, vector sums, and one-ways of listed
columns (tuned; effect below).

Tables with numbers have a tenth for the one-ways of listed columns. This lowers their errors by three tenths, and
raises the errors of pairs by a twentieth.
"""

L1_COST_POWER = 2 / 3
"""Power of cells for costs at which raw counts have the least sum of L1 distances (theory: see `split_by_cells`)."""

_HELPER_SHARE = 0.02
"""Budget share of a table that only helps another one with a goal: a number's one-way beside its mean (tuned; effect
not measured)."""


def budget_shares(
    tables: Sequence[Measure], shares: Mapping[str, float] = BUDGET_PARTS, lists: str = "joint"
) -> list[float]:
    """Return each table's share of the tables' budget; ``lists`` is the part with the one-ways of listed columns."""
    parts = [
        ("level" if table.level > 1 else "one_way" if table.most else lists)
        if table.kind == "one_way"
        else table.kind
        if table.kind in ("sum", "vectors")
        else "joint"
        for table in tables
    ]
    costs = [RELATIVE_COSTS.get(table.kind, 1.0) for table in tables]
    part_costs: dict[str, float] = {}
    for part, cost in zip(parts, costs, strict=True):
        part_costs[part] = part_costs.get(part, 0.0) + cost
    share_sum = sum(shares[part] for part in part_costs)
    return [shares[part] * cost / part_costs[part] / share_sum for part, cost in zip(parts, costs, strict=True)]


def listed_shares(tables: Sequence[Measure], spaces: Mapping[str, Space]) -> list[float]:
    """Return each listed table's share of the tables' budget; joints and one-ways of listed columns share by cells."""
    weights = budget_shares(tables)
    positions = [
        i for i, table in enumerate(tables) if table.kind == "joint" or (table.kind == "one_way" and not table.most)
    ]
    shares = split_by_cells(
        [tables[i] for i in positions], spaces, math.fsum(weights[i] for i in positions), L1_COST_POWER
    )
    for i, share in zip(positions, shares, strict=True):
        weights[i] = share
    return weights


def split_by_cells(tables: Sequence[Measure], spaces: Mapping[str, Space], share: float, power: float) -> list[float]:
    """Return each joint's part of a budget share, in proportion to a power of its cells.

    The L1 distance of raw counts, 0.8·cells·σ/n, has its least sum at the power 2/3. Costs are rounded to half a
    doubling, so that few noises differ.
    """
    # Each distinct variance needs its own noise table.
    roots = [2 ** (round(2 * power * math.log2(math.prod(table.shape(spaces)))) / 2) for table in tables]
    root_sum = math.fsum(roots)
    return [share * root / root_sum for root in roots]


def goal_shares(
    tables: Sequence[Measure], spaces: Mapping[str, Space], goals: Mapping[tuple[str, ...], float]
) -> list[float]:
    """Return budget shares at which all goals are met or missed together; tables without goals have a small share."""
    costs = goal_costs(tables, spaces, goals)
    cost_sum = math.fsum(costs)
    return [cost / cost_sum if cost else _HELPER_SHARE for cost in costs]


def goal_costs(
    tables: Sequence[Measure], spaces: Mapping[str, Space], goals: Mapping[tuple[str, ...], float]
) -> list[float]:
    """Return μ² at which each table meets its goal; 0 for tables without a goal.

    A table of noise σ costs numbers·(span/σ)². Its error is σ over n, times the step for a sum.
    """
    costs = []
    for table in tables:
        goal, noise = goals.get(table.columns), table.noise(spaces)
        only_helps = table.kind in RELATIVE_COSTS or (
            table.kind == "one_way" and not spaces[table.columns[0]].is_listed
        )
        if goal is None or only_helps:
            costs.append(0.0)
            continue
        space = spaces[table.columns[0]]
        # Size of 1 in a table's numbers, over the rows, in the unit of its goal.
        unit = affine_map(space)[1] if table.kind == "sum" else 1.0
        unit = vector_scale(space) / ball_of(space).last if table.kind == "vectors" else unit
        costs.append(noise.moves * (noise.span / (goal / unit)) ** 2)
    return costs
