"""A plan has the same digits on every processor: its digest is what the noise of a key follows from."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from other_machine import DECLARED, OTHER, planned

import dpframe as dpf

SCRIPT = Path(__file__).parents[1] / "other_machine.py"


@pytest.mark.slow
def test_another_machine_plans_and_releases_the_same() -> None:
    """Kernels of BLAS, vector instructions and the C library's exponentials differ; five descriptions do not."""
    environment = {**os.environ, **OTHER, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT)], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == planned()


@pytest.mark.parametrize("options", [{}, {"shuffle": False}])
def test_what_a_search_finds_has_few_digits(options: dict[str, object]) -> None:
    """All columns lose a quarter of a total of 24 binary digits, so that the last of a search's do not matter."""
    census = dpf.datasets.make_census(2_000, columns=list(DECLARED))
    plan = dpf.plan(census, 1.0, 1e-5, spaces=DECLARED, measure=None, **options)
    for column in plan.columns:
        mantissa, _ = math.frexp(column.mechanism.epsilon * 4)
        assert (mantissa * 2**24).is_integer()
