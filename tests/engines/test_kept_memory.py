"""Workers that give memory back at every step keep it while a task works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dpframe

FAULTS = """
import ctypes, json, resource
import numpy as np
from dpframe.engines.table import retain_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(1 << 16)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = [faults()]
with retain_memory():
    found.append(faults())
found.append(faults())
try:
    with retain_memory():
        raise KeyError
except KeyError:
    found.append(faults())
print(json.dumps([hasattr(ctypes.CDLL(None), "malloc_trim"), *found]))
"""


@pytest.mark.slow
@pytest.mark.posix
def test_freed_memory_is_kept_while_a_task_works():
    """An array of 512 KiB is 128 pages, each of which the system gives anew, or once for all 200 arrays.

    Where the C library is not glibc, a task that fails ends as it does without.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(dpframe.__file__).parents[1]), "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", FAULTS]
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    glibc, before, within, after, failed = json.loads(run.stdout)
    assert not glibc or within < 2_000 < 10_000 < min(before, after, failed)
