"""Another source of counts of rows by cell is another part of one list: what reads tables reads it too."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd
import pytest
from conftest import KEY

from dpframe.estimate.axes import ListedAxis
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.model import Models
from dpframe.observe.noisy_counts import NoisyCounts
from dpframe.release.reader import Source

SPACES = {"a": ["x", "y", "z"], "b": [True, False]}
COUNTS = np.array([[300, 20], [30, 250], [200, 200]])


class Margins(MeasuredTables):
    """What is known of a release that holds no table: the counts of two columns, from elsewhere."""

    @cached_property
    def counted(self) -> list[NoisyCounts]:
        names = ("a", "b")
        axes = tuple(ListedAxis(self.source.plan[name]) for name in names)
        return [NoisyCounts(names, COUNTS.astype(float), 1.0, axes)]


@pytest.mark.slow
def test_counts_from_elsewhere_are_fitted_where_the_release_holds_no_table():
    rows = [(a, b) for i, a in enumerate(SPACES["a"]) for j, b in enumerate(SPACES["b"]) for _ in range(COUNTS[i, j])]
    safe = pd.DataFrame(rows, columns=["a", "b"]).dp.sanitize(
        epsilon=0.1, delta=0, spaces=SPACES, measure=None, key=KEY
    )
    source = Source(safe, None)
    rows_only, known = Models(MeasuredTables(source, ())), Models(Margins(source, ()))
    assert not rows_only.tables
    assert known.tables
    # Five errors of a fit to counts with noise of one row.
    fitted = known.around(["a"]).joint(["a", "b"]) * len(rows)
    assert np.abs(fitted - COUNTS).max() < 5
    assert np.abs(rows_only.around(["a"]).joint(["a", "b"]) * len(rows) - COUNTS).max() > 20
