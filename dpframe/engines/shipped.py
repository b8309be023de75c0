"""Tasks for workers, which report in one line if a worker lacks the package or has another version."""

from __future__ import annotations

import pickle
import secrets
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = bytes(12)
"""Nonce of the encryption; constant, as each key encrypts once."""


class Parcel(Protocol):
    """Bytes that an engine sends to workers by itself."""

    @property
    def value(self) -> bytes:
        """The bytes."""


def pack_task(
    task: Callable[..., Any], version: str | None = None, broadcast: Callable[[bytes], Parcel] | None = None
) -> Callable[..., Any]:
    """Return a function that runs a task on a worker.

    The function travels by value and unpickles the task after a check of the worker's version. Its repr shows nothing
    of the task. Engines log the arguments of failing work, so tasks return their expected errors as values.

    ``task``: a picklable function of this package, or a callable object. ``version``: the version that workers must
    have; by default the driver's. ``broadcast``: sends bytes to workers in files that others may read. The bytes are
    encrypted under a fresh key, which travels with the function.
    """
    driver_version = sys.modules["dpframe"].__version__ if version is None else version
    content, parcel = pickle.dumps(task), None
    if broadcast is not None:
        secret_content, content = content, secrets.token_bytes(32)
        parcel = broadcast(AESGCM(content).encrypt(_NONCE, secret_content, None))

    # Imports are inside: the function is pickled by value, and the worker may lack the package.
    def work(*arguments: Any) -> Any:
        import sys
        from importlib import import_module

        remedy = f"install dpframe=={driver_version} on every worker, in the Python that runs there"
        try:
            module = import_module("dpframe.engines.shipped")
            worker_version = sys.modules["dpframe"].__version__
        except ImportError as error:
            raise RuntimeError(f"a worker cannot import dpframe ({error.name} is missing): {remedy}") from None
        if worker_version != driver_version:
            raise RuntimeError(f"a worker has dpframe {worker_version}, and the driver {driver_version}: {remedy}")
        run_task = module.unpack_task(content) if parcel is None else module.unpack_task(parcel.value, content)
        return run_task(*arguments)

    return work


@lru_cache(maxsize=4)
def unpack_task(content: bytes, key: bytes | None = None) -> Callable[..., Any]:
    """Return the task of pickled bytes; parts of one table share the object."""
    pickled_task = content if key is None else AESGCM(key).decrypt(_NONCE, content, None)
    task: Callable[..., Any] = pickle.loads(pickled_task)  # noqa: S301 (sent by the driver, as all work is)
    return task
