"""Shared tables."""

import os
from importlib.util import find_spec
from pathlib import Path

# Before NumPy is imported: threads of BLAS in several test processes would only wait for one another.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pandas as pd
import pytest
import stand_ins
from hypothesis import settings

import dpframe as dpf
from dpframe.api import planning

# The same examples in every run of CI, fresh ones elsewhere; a few for further Pythons.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("quick", derandomize=True, max_examples=15)
if os.environ.get("CI"):
    settings.load_profile("fixed")

NEEDS = {
    "dask": ["dpframe/engines/dask.py"],
    "pyspark": ["dpframe/engines/spark.py", "dpframe/engines/spark_sink.py", "tests/engines/warm_daemon.py"],
}


def pytest_configure(config: pytest.Config) -> None:
    """Leave modules uncollected that need an extra which is not installed."""
    absent = [config.rootpath / path for module, paths in NEEDS.items() if find_spec(module) is None for path in paths]
    config.option.ignore = [*(config.option.ignore or []), *map(str, absent)]


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
    planning._requests.clear()


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
