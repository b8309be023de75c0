"""Work as it is sent to workers: they say in one line if they lack the package, or have another version of it."""

from __future__ import annotations

import pickle
import secrets
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = bytes(12)


class Parcel(Protocol):
    """Bytes that an engine brings to workers by itself."""

    @property
    def value(self) -> bytes:
        """The bytes."""


def shipped(
    task: Callable[..., Any], version: str | None = None, brought: Callable[[bytes], Parcel] | None = None
) -> Callable[..., Any]:
    """Return a function that does a task on a worker.

    It travels by value, and what it carries is opened once the worker's version is known; its repr shows none of it.
    Engines log the arguments of work that fails, so the errors that are raised on purpose come back as values.

    ``task``: a picklable function of this package, or an object of it that is called. ``version``: the version that
    workers must have; by default this one. ``brought``: brings bytes to workers by way of files that others may read:
    they are encrypted under a key of one use, which travels with the function, that stays small.
    """
    needed = sys.modules["dpframe"].__version__ if version is None else version
    content, parcel = pickle.dumps(task), None
    if brought is not None:
        hidden, content = content, secrets.token_bytes(32)
        parcel = brought(AESGCM(content).encrypt(_NONCE, hidden, None))

    def work(*arguments: Any) -> Any:
        import sys
        from importlib import import_module

        remedy = f"install dpframe=={needed} on every worker, in the Python that runs there"
        try:
            module = import_module("dpframe.engines.shipped")
            found = sys.modules["dpframe"].__version__
        except ImportError as error:
            raise RuntimeError(f"a worker cannot import dpframe ({error.name} is missing): {remedy}") from None
        if found != needed:
            raise RuntimeError(f"a worker has dpframe {found}, and the driver {needed}: {remedy}")
        opened = module.opened(content) if parcel is None else module.opened(parcel.value, content)
        return opened(*arguments)

    return work


@lru_cache(maxsize=4)
def opened(content: bytes, key: bytes | None = None) -> Callable[..., Any]:
    """Return a task that was sent; the parts of one table share one."""
    plain = content if key is None else AESGCM(key).decrypt(_NONCE, content, None)
    task: Callable[..., Any] = pickle.loads(plain)  # noqa: S301 (sent by the driver, as all work is)
    return task
