"""Spark's daemon of Python workers with the package imported: each worker is a fork of it, and need not."""

from pyspark import daemon

import dpframe.engines.spark_tasks  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
