"""The whole of a release with tables, run by run: neighbouring tables are no easier to tell apart than is promised.

The runs are parts of one long stream: rows, order and counts of run r take the words of its own places in it, and run
0 is what `sanitize` gives under the key.
"""

import json

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.accounting.audit import audit
from dpframe.central.counts import noisy
from dpframe.noise.keystream import Keystream
from dpframe.release.release import order_words, release

pytestmark = pytest.mark.once

RUNS = 200_000
EPSILON, DELTA = 1.0, 0.05
VALUES = ["x", "y"]
SHARE = 0.9
KEYS = (bytes(range(32)), bytes(range(1, 33)))
LEAST = 0.5
"""An ε that an audit of these finds at least: one that finds nothing would refute nothing."""
CASES = {
    "one column": ([[0, 0, 0, 0, 0, 0]], [[1, 0, 0, 0, 0, 0]], {}),
    "a pair": ([[0, 0, 0, 0], [0, 0, 0, 0]], [[1, 0, 0, 0], [1, 0, 0, 0]], {}),
    "two rows of a person": ([[0, 0, 0, 0, 0, 0]], [[1, 1, 0, 0, 0, 0]], {"contributions": 2}),
}


def frame(columns):
    return pd.DataFrame({f"c{i}": [VALUES[code] for code in column] for i, column in enumerate(columns)})


def made(columns, **options):
    spaces = {f"c{i}": VALUES for i in range(len(columns))}
    return dpf.make_plan(frame(columns), EPSILON, DELTA, spaces=spaces, **options)


def counted(columns):
    """Return the counts of all tuples of values."""
    return np.histogramdd(np.transpose(columns), bins=[range(3)] * len(columns))[0].astype(np.int64)


def runs(columns, plan, key, count, measured=None):
    """Return the rows that each run releases, as numbers of tuples in their order, and its noisy table.

    ``measured`` is the plan that tables follow, if it is another one.
    """
    n, names = len(columns[0]), plan.names
    codes = {name: np.tile(np.array(c, dtype=np.uint8), count) for name, c in zip(names, columns, strict=True)}
    released = release(codes, plan, key)
    words = order_words(plan, key, 0, n * count).reshape(count, n, 2)
    order = np.argsort(words[:, :, 1], axis=1)  # two of a million top halves of 64 bits are next to never the same
    tuples = np.ravel_multi_index([released[name] for name in names], (2,) * len(names)).reshape(count, n)
    plan = measured or plan
    (measure,) = plan.measures
    stream = Keystream(key, plan.digest).column(json.dumps([measure.kind, *names]), "measure")
    exact = counted(columns)
    tables = noisy(np.broadcast_to(exact, (count, *exact.shape)), measure.sigma2, stream)
    return np.take_along_axis(tuples, order, axis=1), tables


def sampler(columns, direction, plan, key, measured=None):
    """Return what an audit calls: of each run how often each tuple came, which came first, and how the counts lie.

    Where the order is secret, rows tell no more than how often tuples come; of two tables the noisy counts tell no
    more than their sum along the ``direction`` from one to the other.
    """

    def sample(count):
        rows, tables = runs(columns, plan, key, count, measured)
        tallies = [(rows == value).sum(axis=1) for value in range(2 ** len(columns))]
        return np.stack([*tallies, rows[:, 0], (tables * direction).reshape(count, -1).sum(axis=1)], axis=1)

    return sample


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
        samplers = [
            sampler(table, direction, rows, key, plan) for table, key in zip((columns, away), KEYS, strict=True)
        ]
        return audit(*samplers, RUNS, DELTA)

    honest = found(plan)
    assert not honest.refutes(EPSILON)
    assert honest.epsilon_lower > LEAST
    # Rows that take the whole promise, as if nothing were measured beside them.
    forgetful = made(columns, measure=None, **options)
    caught = found(forgetful)
    assert caught.refutes(EPSILON)
