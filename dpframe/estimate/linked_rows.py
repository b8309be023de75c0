"""Child rows for synthetic parents, drawn from rows that join parents' and children's columns.

A sequential hot deck (Andridge and Little 2010): a parent's children are taken from joined rows with equal values of
the parents' columns, numbers in as many bins as the cube root of the rows (Scott 1979). Where no joined row has all of
them, the columns that say least of the children are left out first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dpframe.spaces.arrays import IntArray


def draw_children(
    parents: pd.DataFrame,
    joined: pd.DataFrame,
    columns: Sequence[str],
    counts: IntArray,
    generator: np.random.Generator,
) -> tuple[pd.DataFrame, IntArray]:
    """Return child rows for parents, ``counts`` of them for each, and the position of each row's parent.

    Rows are drawn with replacement, so that some occur several times.

    ``joined`` are rows of children with their parents' ``columns``, which come in order: the first says most of the
    children.
    """
    owners = np.repeat(np.arange(len(parents)), counts)
    if len(joined.columns) == len(columns):
        # The children have no columns but their key.
        return pd.DataFrame(index=range(len(owners))), owners
    donors = np.full(len(owners), -1, dtype=np.int64)
    keys = [_to_shared_codes(parents[name], joined[name]) for name in columns]
    for depth in range(len(columns), -1, -1):
        waiting = np.flatnonzero(donors < 0)
        if not len(waiting) or not len(joined):
            break
        wanted, offered = _combine(keys[:depth], len(parents), len(joined))
        order = generator.permutation(len(joined))
        order = order[np.argsort(offered[order], kind="stable")]
        wanted = wanted[owners[waiting]]
        first, stop = (np.searchsorted(offered[order], wanted, side=side) for side in ("left", "right"))
        places = first + np.floor(generator.random(len(waiting)) * (stop - first)).astype(np.int64)
        has_donor = stop > first
        donors[waiting[has_donor]] = order[places[has_donor]]
    is_filled = donors >= 0
    children = joined.drop(columns=list(columns)).take(donors[is_filled]).reset_index(drop=True)
    return children, owners[is_filled]


def _to_shared_codes(parents: pd.Series, joined: pd.Series) -> tuple[IntArray, IntArray]:
    """Return codes of both columns' values, equal for values that are alike; a null has a code of its own."""
    both = pd.concat([parents, joined], ignore_index=True)
    bins = max(2, round(len(joined) ** (1 / 3)))
    codes, values = pd.factorize(both, sort=pd.api.types.is_numeric_dtype(both.dtype))
    has_order = pd.api.types.is_numeric_dtype(both.dtype) or pd.api.types.is_datetime64_any_dtype(both.dtype)
    if has_order and len(values) > bins:
        ranks = both.rank(method="dense").fillna(0.0).to_numpy()
        edges = np.unique(np.quantile(ranks, np.arange(1, bins) / bins))
        codes = np.searchsorted(edges, ranks, side="right")
    return codes[: len(parents)], codes[len(parents) :]


def _combine(keys: Sequence[tuple[IntArray, IntArray]], parents: int, joined: int) -> tuple[IntArray, IntArray]:
    """Return one code for each combination of several columns' codes."""
    wanted, offered = np.zeros(parents, dtype=np.int64), np.zeros(joined, dtype=np.int64)
    for parent_codes, joined_codes in keys:
        radix = max(int(parent_codes.max(initial=0)), int(joined_codes.max(initial=0))) + 2
        both = np.unique(
            np.concatenate([wanted * radix + parent_codes + 1, offered * radix + joined_codes + 1]), return_inverse=True
        )[1]
        wanted, offered = both[:parents], both[parents:]
    return wanted, offered
