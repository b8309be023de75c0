"""Shared tables."""

import contextlib
import gc
import os
from collections.abc import Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Before NumPy is imported: threads of BLAS in several test processes would only wait for one another.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pandas as pd
import pytest
import stand_ins
from _pytest.doctest import DoctestModule
from fresh_keys import FreshKeys
from hypothesis import settings
from other_systems import AWAY, take_away

import dpframe as dpf
from dpframe.queries import base as asking
from dpframe.release import budgets

# The same examples in every run of CI, fresh ones elsewhere: half as many in a run of the fast tier, since runs add up.
# A few for further Pythons. A busy machine fails no test.
settings.register_profile("fresh", deadline=None)
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=15)
settings.register_profile("fewer", deadline=None, max_examples=50)
settings.load_profile("fixed" if os.environ.get("CI") else "fresh")

NEEDS = {"dask": ["dask.py"], "pyspark": ["spark.py", "spark_linked.py", "spark_sink.py"]}
"""Modules of dpframe.engines that need an extra; what they show in docstrings is of the slow tier."""

ALL_SLOW = ("pytestmark = pytest.mark.slow", "pytestmark = [pytest.mark.slow")
"""How a file says that all of its tests are of the slow tier."""

SLOW = "The slow tests (long statistics, fuzz, kills, engines, notebooks) were left out; run them with: pytest -m slow"


@cache
def engine_modules(root: Path, *, absent: bool) -> list[Path]:
    """Return the engines' modules, all of them or those whose extra is not installed."""
    folder = root / "dpframe" / "engines"
    return [folder / name for need, names in NEEDS.items() if not (absent and find_spec(need)) for name in names]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the slow tier what `walk(fast)` leaves over, evenly, and the engines' docstrings."""
    engines = engine_modules(config.rootpath, absent=False)
    walks: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path in engines:
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("walk"):
            walks.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in walks.values():
        fast = cases[0].get_closest_marker("walk").args[0]
        kept = {round((i + 0.5) * len(cases) / fast - 0.5) for i in range(fast)}
        for i, item in enumerate(cases):
            if i not in kept:
                item.add_marker(pytest.mark.slow)


class Tiers:
    """What is collected of the engines, failures named while a run goes on, and the other tier in the last line."""

    def __init__(self, config: pytest.Config) -> None:
        """Write where pytest writes."""
        self.config = config

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out what needs an extra that is not installed, and what this run has no test of."""
        if collection_path in engine_modules(self.config.rootpath, absent=True):
            return True
        engines = self.config.rootpath / "tests" / "engines"
        if collection_path.parent == engines and not collection_path.name.startswith("test_"):
            return True
        return True if self.is_left_out(collection_path) else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Look for examples in the library's docstrings only: thousands of tests have none."""
        collectors = yield
        is_test = file_path.name.startswith("test_") and file_path.parent.name != "benchmarks"
        return [one for one in collectors if not (is_test and isinstance(one, DoctestModule))]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Look for no garbage while half a million objects are made that all stay, and seldom among them afterwards.

        (They are not frozen: Hypothesis looks for owners of a source of chance with `gc.get_referrers`.)
        """
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()
            gc.set_threshold(100_000, 50, 50)

    def is_left_out(self, path: Path) -> bool:
        """Return whether a run of the fast tier would only import a file of tests, in every process."""
        if path.suffix != ".py" or "tests" not in path.parts or self.config.option.markexpr != "not slow":
            return False
        if path.parent.name == "benchmarks":
            return not self.config.option.benchmark_only
        return any(line.startswith(ALL_SLOW) for line in path.read_text(encoding="utf-8").splitlines())

    def write(self, line: str) -> None:
        """Write a line of its own; processes of xdist write nothing."""
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a failure at once, with its first line."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message.partition("\n")[0] if crash else report.when
            self.write(f"\nFAILED {report.nodeid} - {reason}")  # behind the letters of other tests

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Close with the other tier."""
        yield
        if self.config.option.markexpr == "not slow" and not self.config.option.collectonly:
            self.write(SLOW)


def pytest_configure(config: pytest.Config) -> None:
    """Collect and report as said above, in folders without a conftest too."""
    if config.option.markexpr == "not slow" and not (os.environ.get("CI") or config.option.hypothesis_profile):
        settings.load_profile("fewer")
    config.pluginmanager.register(Tiers(config))
    config.pluginmanager.register(FreshKeys())


DATA = Path(os.environ.get("DPFRAME_DATA", Path(__file__).parents[2] / "shared" / "data"))
KEY = bytes(range(32))

ADULT_BOUNDS = {
    "age": (0, 120),
    "fnlwgt": (0, 1_500_000),
    "education_num": (1, 16),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
    "hours_per_week": (0, 100),
}


@pytest.fixture(autouse=True)
def requests_of_other_tests_are_forgotten():
    """Inference of tables of as many rows and of the same names warns, whichever test of this process was first."""
    budgets._inference_requests.clear()


@pytest.fixture
def keys(monkeypatch):
    """Fresh keys of answers become fixed ones, a new one each time; returns how many were taken."""
    taken = []

    def fixed():
        taken.append(len(taken))
        return len(taken).to_bytes(32, "big")

    monkeypatch.setattr(asking, "fresh_key", fixed)
    return taken


@pytest.fixture
def one_key(monkeypatch):
    """The fresh key of every answer is one and the same."""
    monkeypatch.setattr(asking, "fresh_key", lambda: bytes(32))


@pytest.fixture
def stopped_at_the_key():
    """Return a context in which a process is stopped as it asks for the key of an answer."""

    @contextlib.contextmanager
    def stopped():
        def stop():
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asking, "fresh_key", stop)
            yield

    return stopped


@pytest.fixture(scope="session")
def adult():
    """Adult, or where it is not a table like it."""
    path = DATA / "adult.parquet"
    return pd.read_parquet(path) if path.exists() else stand_ins.adult()


@pytest.fixture(scope="session")
def adult_spaces(adult):
    """All 15 columns declared; nulls in workclass, occupation and native_country are values."""
    spaces = dict(ADULT_BOUNDS)
    for name in adult.columns.difference(list(spaces)):
        listed = dpf.Categorical(sorted(adult[name].dropna().unique()))
        spaces[name] = dpf.Nullable(listed) if adult[name].isna().any() else listed
    return spaces


@pytest.fixture(scope="session")
def census():
    return dpf.datasets.make_census(5_000, columns=["age", "sex", "education", "occupation", "region", "income"])


@pytest.fixture(scope="session")
def census_spaces():
    return {
        "age": (0, 120),
        "sex": ["F", "M"],
        "education": dpf.Ordinal(dpf.datasets.EDUCATION),
        "occupation": dpf.Nullable(dpf.Categorical(dpf.datasets.OCCUPATIONS)),
        "region": list(dpf.datasets.REGIONS),
        "income": dpf.Nullable(dpf.Real(0, 250_000)),
    }


@pytest.fixture(autouse=True)
def less_than_linux(request, monkeypatch, tmp_path_factory):
    """Run every test without what only some systems have, where ``DPFRAME_WITHOUT`` names it, or "all" (.ci/run)."""
    without = os.environ.get("DPFRAME_WITHOUT")
    assert without in (None, "", "all", *AWAY), f"DPFRAME_WITHOUT must be one of all, {', '.join(AWAY)}"
    if without and not request.node.get_closest_marker("posix"):
        tmp_path_factory.getbasetemp()
        take_away(monkeypatch, *(AWAY if without == "all" else [without]))
