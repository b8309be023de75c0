"""The whole of a release with tables, run by run: neighbouring tables are no easier to tell apart than is promised.

The runs are parts of one long stream: rows, order and counts of run r take the words of its own places in it, and run
0 is what `sanitize` gives under the key.
"""

import numpy as np
import pytest
from audited_releases import CASES, DELTA, EPSILON, KEYS, SHARE, VALUES, counted, frame, made, runs, sampler

import dpframe as dpf

pytestmark = pytest.mark.slow

RUNS = 200_000
LEAST = 0.5
"""An ε that an audit of these finds at least: one that finds nothing would refute nothing."""


@pytest.fixture(scope="module", params=CASES)
def case(request):
    columns, away, options = CASES[request.param]
    names = tuple(f"c{i}" for i in range(len(columns)))
    return columns, away, options, made(columns, measure=[names], measure_share=SHARE, **options)


def test_runs_are_those_of_releases(case):
    columns, away, _, plan = case
    for table in (columns, away):
        safe = dpf.sanitize(frame(table), plan=plan, key=KEYS[0])
        rows, tables = runs(table, plan, KEYS[0], 3)
        shown = [[VALUES.index(value) for value in safe[name]] for name in plan.names]
        assert np.ravel_multi_index(shown, (2,) * len(shown)).tolist() == rows[0].tolist()
        assert safe.dp.release.tables[0].counts.tolist() == tables[0].tolist()


def test_neighbouring_tables_are_as_close_as_is_promised(case):
    """Each audit errs with probability 1e-6; keys are fixed."""
    columns, away, options, plan = case
    direction = counted(away) - counted(columns)

    def found(rows):
        samplers = (sampler(t, direction, rows, key, plan) for t, key in zip((columns, away), KEYS, strict=True))
        return dpf.audit(tuple(samplers), runs=RUNS, delta=DELTA)

    honest = found(plan)
    assert not honest.refutes(EPSILON)
    assert honest.epsilon_lower > LEAST
    # Rows that take the whole promise, as if nothing were measured beside them.
    forgetful = made(columns, measure=None, **options)
    caught = found(forgetful)
    assert caught.refutes(EPSILON)
