"""Plans, fits and estimates take one thread.

Their matrices are small and their steps many: to wake all threads of the linear algebra costs more than it saves, and
on busy cores, where threads wait for each other, tens of times more. What a process remembers all its threads share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@lru_cache(maxsize=1)
def _pools() -> Any:
    """Return the thread pools of the process; to look for them costs milliseconds, so that it is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs with one thread of linear algebra."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _pools().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


K = TypeVar("K")
V = TypeVar("V")

_remembering = threading.Lock()


def remember(kept: dict[K, V], key: K, value: V, most: int) -> V:
    """Keep a value as the latest of so many, and return it; the oldest are forgotten, in every thread.

    >>> kept = {"a": 1, "b": 2}
    >>> remember(kept, "a", 1, 2), remember(kept, "c", 3, 2), kept
    (1, 3, {'a': 1, 'c': 3})
    """
    with _remembering:
        kept.pop(key, None)
        while len(kept) >= most:
            del kept[next(iter(kept))]
        kept[key] = value
    return value
