"""The options that decide a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from dpframe.mechanisms import Mechanism
from dpframe.plan.plan import Plan


class PlanOptions(TypedDict, total=False):
    """Keyword arguments that decide a plan; see `dpframe.make_plan`."""

    spaces: Mapping[str, Any] | Plan | None
    infer: str
    infer_share: float | None
    local_epsilon: float | None
    max_items: int
    drop: Iterable[str]
    passthrough: Iterable[str]
    allocation: str | Mapping[Any, float]
    mechanisms: Mapping[str, str | Mechanism]
    groups: Iterable[Sequence[str]]
    nulls: str
    contributions: int
    shuffle: bool
    sample: int | str | None
