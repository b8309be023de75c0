"""Fits take one thread.

Their matrices are small and their steps many: to wake all threads of the linear algebra costs more than it saves, and
beside other work, where threads wait for each other to be given a core, tens of times more.
"""

from __future__ import annotations

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
