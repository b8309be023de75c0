"""Work as it is sent to workers: they say in one line if they lack the package, or have another version of it."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any


def shipped(task: Callable[..., Any], version: str | None = None) -> Callable[..., Any]:
    """Return a function that does a task on a worker.

    It travels by value, and what it carries is opened once the worker's version is known; its repr shows none of it.
    Engines log the arguments of work that fails, so the errors that are raised on purpose come back as values.

    Parameters
    ----------
    task
        A picklable function of this package, or an object of it that is called.
    version
        The version that workers must have; by default this one.
    """
    needed = importlib.import_module("dpframe").__version__ if version is None else version
    content = pickle.dumps(task)

    def work(*arguments: Any) -> Any:
        from importlib import import_module

        remedy = f"install dpframe=={needed} on every worker, in the Python that runs there"
        try:
            found = import_module("dpframe").__version__
            opened = import_module("dpframe.engines.shipped").opened
        except ImportError as error:
            raise RuntimeError(f"a worker cannot import dpframe ({error.name} is missing): {remedy}") from None
        if found != needed:
            raise RuntimeError(f"a worker has dpframe {found}, and the driver {needed}: {remedy}")
        return opened(content)(*arguments)

    return work


@lru_cache(maxsize=4)
def opened(content: bytes) -> Callable[..., Any]:
    """Return a task that was sent; the parts of one table share one."""
    task: Callable[..., Any] = pickle.loads(content)  # noqa: S301 (sent by the driver, as all work is)
    return task
