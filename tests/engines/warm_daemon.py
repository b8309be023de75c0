"""Spark's daemon of Python workers with the package imported: each worker is a fork of it, and need not."""

from importlib import import_module

from pyspark import daemon

if __name__ == "__main__":
    import_module("dpframe.engines.spark_tasks")
    daemon.manager()
