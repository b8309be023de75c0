"""Modules that need an extra are not collected where it is not installed."""

from importlib.util import find_spec

NEEDS = {
    "dask": ["dpframe/engines/dask.py"],
    "pyspark": [
        "dpframe/engines/spark.py",
        "dpframe/engines/spark_sink.py",
        "tests/engines/warm_daemon.py",
    ],
}

collect_ignore = [path for module, paths in NEEDS.items() if find_spec(module) is None for path in paths]
