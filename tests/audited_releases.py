"""A release with tables, run by run: the runs are parts of one long stream.

Rows, order and counts of run r take the words of its own places in it, and run 0 is what `sanitize` gives under the
key.
"""

import json

import numpy as np
import pandas as pd

import dpframe as dpf
from dpframe.noise.keystream import Keystream
from dpframe.release.rows import order_words, release
from dpframe.totals.counts import noisy

EPSILON, DELTA = 1.0, 0.05
VALUES = ["x", "y"]
SHARE = 0.9
KEYS = (bytes(range(32)), bytes(range(1, 33)))
CASES = {
    "one column": ([[0, 0, 0, 0, 0, 0]], [[1, 0, 0, 0, 0, 0]], {}),
    "a pair": ([[0, 0, 0, 0], [0, 0, 0, 0]], [[1, 0, 0, 0], [1, 0, 0, 0]], {}),
    "two rows of a person": ([[0, 0, 0, 0, 0, 0]], [[1, 1, 0, 0, 0, 0]], {"contributions": 2}),
}


def frame(columns):
    return pd.DataFrame({f"c{i}": [VALUES[code] for code in column] for i, column in enumerate(columns)})


def made(columns, **options):
    spaces = {f"c{i}": VALUES for i in range(len(columns))}
    return dpf.plan(frame(columns), EPSILON, DELTA, spaces=spaces, **options)


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
