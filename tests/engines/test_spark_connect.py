"""Spark Connect, where a session has no context and no Java objects; see `connect_session`."""

import os
import subprocess
import sys
from pathlib import Path

import java
import pytest

import dpframe as dpf

pytest.importorskip("pyspark", reason="pip install 'dpframe[spark]'")
for package in ("grpc", "grpc_status", "zstandard"):
    pytest.importorskip(package, reason="pip install 'pyspark[connect]'")

pytestmark = pytest.mark.slow


def test_a_session_of_spark_connect(tmp_path):
    home = java.home_or_skip()
    roots = [str(Path(dpf.__file__).parents[1]), str(Path(__file__).parent)]
    paths = os.pathsep.join([*roots, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("connect_session.py"), tmp_path],
        env={**os.environ, "JAVA_HOME": home, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
