"""Keys that the library takes afresh, the same in every run of the tests.

A release without `key=` draws other noise each time, so that a test of one would fail once in many runs, and nobody
could repeat it. Under pytest the bytes of `secrets` are those of a hash of the test (or of the shared fixture) and of
how many were taken in it before; other processes have true ones.
"""

import hashlib
import itertools
import os
import secrets
import threading
from collections.abc import Generator, Iterator

import pytest

SIZE = secrets.DEFAULT_ENTROPY


class FreshKeys:
    """A plugin of pytest: `secrets.token_bytes` by test."""

    def __init__(self) -> None:
        """Begin with what is taken while tests are collected."""
        self.true, self.process, self.lock = secrets.token_bytes, os.getpid(), threading.Lock()
        self.taken = self.of("collection")
        secrets.token_bytes = self.token_bytes

    @staticmethod
    def of(name: str) -> Iterator[bytes]:
        """Return the seeds of one test or fixture, one after the other."""
        return (f"{name} {i}".encode() for i in itertools.count())

    def token_bytes(self, nbytes: int | None = None) -> bytes:
        """Return bytes as `secrets.token_bytes` does."""
        if os.getpid() != self.process:
            return self.true(nbytes)
        with self.lock:  # threads of an engine draw keys at the same time
            seed = next(self.taken)
        return hashlib.shake_256(seed).digest(SIZE if nbytes is None else nbytes)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin anew for every test, whichever were run before in this process."""
        self.taken = self.of(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Begin anew for every fixture: a shared one is made by the test that is first in its process."""
        before, self.taken = self.taken, self.of(f"{fixturedef.baseid} {fixturedef.argname}")
        try:
            return (yield)
        finally:
            self.taken = before

    def pytest_unconfigure(self) -> None:
        """Give the true bytes back."""
        secrets.token_bytes = self.true
