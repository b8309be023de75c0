"""`Estimates`: the questions an analyst asks, in pandas' words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dpframe.estimate.plot import draw
from dpframe.estimate.summaries import Summaries
from dpframe.estimate.synthetic import Synthesizer, check_rows, make_generator
from dpframe.threads import methods_in_one_thread


@methods_in_one_thread
class Estimates(Summaries):
    """Estimates from a sanitised table.

    Parameters
    ----------
    source
        A DataFrame, Arrow table or Parquet path (file, directory or glob) that dpframe released.
    plan
        The plan, where the table lost it.
    confidence_level
        Level of the intervals, in (0, 1).
    use_measured
        Combine the rows with the noisy counts that private inference of spaces measured, where the plan has some:
        in `value_counts`, `joint` of one column, `support` of values, `null_rate`, `histogram` and `quantile`. They
        are of the table that the plan was made from. By default they are used where the release says that this is
        its own table (its plan was made as it was released); pass True where you know so of a plan made before.
    clipped
        Give estimates of columns whose spaces private inference did not find (`Plan.not_found`), too: they are those
        of the column clipped to its space, not the table's. By default they are NaN, and ``attrs["not_found"]`` of
        every result of such a column says why. A rate of nulls rests on no bounds and no list of values: it is NaN only
        where the kind of a column's objects was not found.

    tables
        Noisy counts that were measured of the table beside its rows (`MeasuredTable`), where the release does not hold
        them itself. They are used as those of the release are, unless ``use_measured`` is False.

    Raises
    ------
    NotSanitizedError
        If the source carries no plan and none is given.
    ParameterError
        If ``confidence_level`` is outside (0, 1).

    Notes
    -----
    Every statistic takes ``target``: ``"table"`` is the original table's own statistic, ``"population"``
    that of the population from which the table is seen as a sample; its intervals are wider.

    Of a release that is a secret sample the table is the whole one: counts, sums and sizes are those of all its
    ``rows``, of which ``n`` are in the release, and intervals hold what the choice of these adds (the
    finite-population correction).

    Joints take ``method``: ``"inverse"`` is unbiased and may leave the simplex, its errors are analytic;
    ``"project"`` (nearest point of the simplex), ``"em"`` (maximum likelihood) and ``"model"`` (maximum
    likelihood under a mixture fitted to all pairs of columns) are closer to the truth where cells are many,
    their errors come from a parametric bootstrap, which sees their spread but not the bias that shrinking
    costs; ``"auto"`` picks, and says in ``attrs["method"]`` what it picked.

    Where the release holds measured tables, ``"inverse"`` is their raw count, weighted with the rows' by inverse
    variance, ``"project"`` the point of the simplex near it, ``"model"`` a mixture fitted to all tables, corrected
    where the rows contradict it, and ``"em"`` the rows alone. ``attrs["source"]`` says ``"tables"``, ``"rows"`` or
    ``"both"``.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
    >>> Estimates(safe).value_counts("sex").round()
         estimate  std_error   lower   upper
    sex
    F      1043.0        6.0  1030.0  1055.0
    M       957.0        6.0   945.0   970.0
    """

    def plot(self, *columns: str, ax: Any = None, **options: Any) -> Any:
        """Draw a marginal with its intervals, a histogram, mean curves with their bands, or two columns' cross table.

        Options go to `value_counts`, `histogram`, `mean_curve` (``by=``) or `crosstab`. Returns the matplotlib axes.

        Raises
        ------
        ParameterError
            If matplotlib is not installed, or for more than two columns.
        """
        return draw(self, columns, ax, options)

    def __repr__(self) -> str:
        rows = f"{self.n:,}" if self.plan.sample is None else f"{self.n:,} of {self.rows:,}"
        return f"<Estimates of a release of {rows} rows: {', '.join(self.plan.names)}>"

    def verify(self) -> bool:
        """Tell whether the table is, cell by cell, what was released (rows in any order)."""
        return self._source.verify()

    def synthesize(self, n_rows: int | None = None, random_state: Any = None) -> Any:
        """Return synthetic rows: a table of the same columns and dtypes in which plain pandas is right on average.

        They are drawn from a model of the original table that is fitted to what was released, its measured tables
        and its rows, and so cost no budget. Nothing that only three columns together show is in them but by chance;
        a warning says where the rows tell of it. They have no intervals: those are the release's own to give. A column
        that private inference did not find is null. `fidelity` says what they hold, a warning where that is nothing.

        Parameters
        ----------
        n_rows
            How many fresh rows to draw; columns passed through are left out of these. By default one row for each
            released row, drawn given that row, in its place.
        random_state
            A seed, a numpy ``Generator``, or None for fresh entropy.

        Returns
        -------
        A table of the release's kind (of Parquet a pyarrow Table) whose ``attrs`` (metadata) say that it is synthetic.

        Raises
        ------
        ParameterError
            For another ``n_rows`` or ``random_state``, or a column of too many values to draw from, as vectors are.

        Notes
        -----
        A hidden class is drawn by its weight and the released row's likelihood, then every column given it and its
        own released value. Numbers fall on their own grid, at their measured mean; sets are drawn item by item.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["sex", "region"])
        >>> spaces = {"sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, key=bytes(32))
        >>> rows = Estimates(safe).synthesize(random_state=0)
        >>> rows.shape, bool(abs((rows["sex"] == "F").mean() - (frame["sex"] == "F").mean()) < 0.02)
        ((2000, 2), True)
        """
        fresh, generator = check_rows(n_rows), make_generator(random_state)
        drawing = self._synthesizer
        drawing.warn_of_hidden()
        drawing.warn_of_nothing()
        if fresh is not None:
            return self._source.drawn(drawing.fresh(fresh, generator), fresh, drawing.text, drawing.not_found)
        names = [name for name in self.plan.names if name not in self._source.missing]
        parts = [drawing.given(codes, generator) for codes in self._source.codes(names)]
        codes = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return self._source.drawn(codes, None, drawing.text, drawing.not_found)

    def fidelity(self) -> pd.DataFrame:
        """Return what synthetic rows hold: for every column whether it was found, for every pair how it depends.

        Returns
        -------
        DataFrame indexed by ``column`` and ``with``, which is empty in a column's own row: ``source`` ("tables",
        "rows" or "none"), ``dependence``, the total variation distance of the pair from independent columns in the
        model that rows are drawn from, ``noise``, about the distance that noise makes of independent columns, and
        ``shows``: whether a column was found, and whether a pair's dependence stands out of the noise (Pearson's χ²,
        by three standard deviations).

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(4_000, columns=["sex", "education", "age"])
        >>> spaces = {"sex": ["F", "M"], "education": list(dpf.datasets.EDUCATION), "age": (0, 120)}
        >>> safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, spaces=spaces, key=bytes(32))
        >>> Estimates(safe).fidelity()["shows"].loc["education"].to_dict()
        {'': True, 'age': True}
        """
        return self._synthesizer.fidelity.copy()

    @cached_property
    def _synthesizer(self) -> Synthesizer:
        held = [c.name for c in self.plan.columns if c.space.holds_sets and c.name not in self._source.missing]
        return Synthesizer(self._source, self._joints.models, {name: self._supports(name)[0] for name in held})


def synthetic_batches(estimates: Estimates, n_rows: int | None, random_state: Any, most: int) -> Iterator[Any]:
    """Yield synthetic rows of a released file as Arrow tables of at most so many rows; see `Estimates.synthesize`."""
    fresh, generator, source = check_rows(n_rows), make_generator(random_state), estimates._source
    drawing = estimates._synthesizer
    drawing.warn_of_hidden()
    drawing.warn_of_nothing()
    if fresh is None:
        yield from source.drawn_batches(
            lambda codes: drawing.given(codes, generator), drawing.text, most, drawing.not_found
        )
        return
    for start in range(0, fresh, most):
        rows = min(most, fresh - start)
        yield source.drawn(drawing.fresh(rows, generator), rows, drawing.text, drawing.not_found)
