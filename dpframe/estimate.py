"""Unbiased statistics of a sanitised table, with standard errors and intervals.

For a function f of a column's value, the surrogate φ_f = (Aᵀ)⁻¹f satisfies E[φ_f(Y) | x] = f(x). So every
estimate is an average of products of surrogates, one per column, and its error follows from their sample
variance. Two targets: ``"table"``, the original table's own statistic, and ``"population"``, from which
the table is seen as a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import NotSanitizedError, ParameterError
from dpframe.files import ParquetInput
from dpframe.frames import wrap
from dpframe.plan import Column, Plan
from dpframe.release import ReleaseInfo

__all__ = ["Estimates"]

FloatArray = npt.NDArray[np.float64]

LARGEST_JOINT = 50_000_000
"""Most cells of a joint that are counted (400 MB)."""

_TARGETS = ("table", "population")
_RESULTS = ("estimate", "std_error", "lower", "upper")


class Estimates:
    """Estimates from a sanitised table.

    Parameters
    ----------
    source
        A DataFrame, Arrow table or Parquet path (file, directory or glob) that dpframe released.
    plan
        The plan, where the table lost it.
    confidence_level
        Level of the intervals, in (0, 1).

    Raises
    ------
    NotSanitizedError
        If the source carries no plan and none is given.
    ParameterError
        If ``confidence_level`` is outside (0, 1).

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(2_000, columns=["age", "sex"])
    >>> safe = dpf.sanitize(frame, epsilon=8, spaces={"age": (0, 120), "sex": ["F", "M"]}, key=bytes(32))
    >>> Estimates(safe).value_counts("sex").round()
         estimate  std_error   lower   upper
    sex
    F      1043.0        6.0  1030.0  1055.0
    M       957.0        6.0   945.0   970.0
    """

    def __init__(self, source: Any, plan: Plan | None = None, *, confidence_level: float = 0.95) -> None:
        if not 0 < confidence_level < 1:
            raise ParameterError("confidence_level must lie in (0, 1), e.g. 0.95")
        self.confidence_level = confidence_level
        self._source: Any = ParquetInput.open(source) if isinstance(source, str | Path) else wrap(source)
        if plan is None:
            if self._source.text is None:
                raise NotSanitizedError(
                    "the table carries no release plan; sanitise it first, or pass plan= if it lost its metadata"
                )
            plan = ReleaseInfo.from_json(self._source.text).plan
        self.plan = plan
        self.n = int(self._source.n)

    def value_counts(
        self,
        column: str,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        dropna: bool = True,
        *,
        target: str = "table",
    ) -> pd.DataFrame:
        """Return how many rows hold each value of a column (pandas' ``Series.value_counts``).

        Parameters
        ----------
        column
            A randomised column; every value of its space has a row in the result.
        normalize
            Give shares instead of counts (of the rows that are not null, if ``dropna``).
        sort, ascending
            Order by estimate; otherwise in the space's order.
        dropna
            Leave nulls out.
        target
            ``"table"`` or ``"population"``.

        Returns
        -------
        DataFrame indexed by value, with ``estimate, std_error, lower, upper``.
        """
        cells = self._joint([column], normalize, (), dropna, target)
        out = pd.DataFrame(cells.results, index=pd.Index(cells.labels[0], name=column))
        return out.sort_values("estimate", ascending=ascending, kind="stable") if sort else out

    def crosstab(
        self,
        index: str,
        columns: str,
        normalize: bool | str = False,
        dropna: bool = True,
        *,
        target: str = "table",
    ) -> pd.DataFrame:
        """Return the joint counts of two columns (pandas' ``crosstab``).

        Parameters
        ----------
        index, columns
            Randomised columns for the rows and the columns of the result.
        normalize
            False for counts; True or ``"all"``, ``"index"``, ``"columns"`` for shares.
        dropna
            Leave nulls out.
        target
            ``"table"`` or ``"population"``.

        Returns
        -------
        DataFrame whose columns have an outer level ``estimate, std_error, lower, upper``.
        """
        given = {False: (), True: (), "all": (), "index": (0,), "columns": (1,)}
        if normalize not in given:
            raise ParameterError('normalize must be False, True, "all", "index" or "columns"')
        cells = self._joint([index, columns], bool(normalize), given[normalize], dropna, target)
        rows, cols = (pd.Index(labels, name=name) for labels, name in zip(cells.labels, cells.names, strict=True))
        tables = {name: pd.DataFrame(values, rows, cols) for name, values in cells.results.items()}
        return pd.concat(tables, axis=1, names=[None])

    def mean(self, column: str, by: str | None = None, *, target: str = "table") -> pd.Series[Any] | pd.DataFrame:
        """Return the mean of a numeric column, over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers or booleans.
        by
            A randomised column of few values: one mean per value (null values of ``by`` are left out).
        target
            ``"table"`` or ``"population"``.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; with ``by`` a DataFrame with a row per value.
        """
        _check_target(target)
        value = self._column(column)
        if value.space.numbers(np.zeros(1, dtype=np.int64)) is None:
            raise ParameterError(f"column {column!r} holds no numbers; value_counts({column!r}) gives its shares")
        group = None if by is None else self._column(by)
        if group is not None:
            _check_cells([group.space.size * 7])
        centre, sums = _grouped_sums(value, group, self._codes([column, *([] if by is None else [by])]))
        estimate, variance = _ratio_of_sums(sums, group, target)
        results = self._results(estimate + centre, variance)
        if group is None or by is None:
            return pd.Series({name: values[0] for name, values in results.items()}, name=column)
        labels = group.space.labels()
        frame = pd.DataFrame(results, index=pd.Index(labels, name=by))
        return frame.iloc[: len(labels) - 1] if labels[-1] is None else frame

    def _column(self, name: str) -> Column:
        try:
            return self.plan[name]
        except KeyError:
            if name in self.plan.passthrough:
                raise ParameterError(
                    f"column {name!r} was passed through unprotected: plain pandas is exact for it"
                ) from None
            why = "was dropped" if name in self.plan.drop else "is not in the release"
            raise ParameterError(
                f"column {name!r} {why}; randomised columns are {', '.join(self.plan.names)}"
            ) from None

    def _codes(self, names: Sequence[str]) -> Iterator[dict[str, npt.NDArray[np.unsignedinteger]]]:
        """Yield the released codes of columns, in batches."""
        columns = [self._column(name) for name in names]
        if isinstance(self._source, ParquetInput):
            for batch in self._source.batches(names, 1 << 18):
                yield {c.name: c.space.encode(batch[c.name]) for c in columns}
        else:
            yield {c.name: self._source.encode(c.name, c.space, "error") for c in columns}

    def _counts(self, columns: Sequence[Column]) -> FloatArray:
        """Count the released codes of columns jointly, by mixed radix."""
        shape = [column.space.size for column in columns]
        _check_cells(shape)
        total = np.zeros(math.prod(shape), dtype=np.int64)
        for codes in self._codes([column.name for column in columns]):
            cell = np.zeros(len(codes[columns[0].name]), dtype=np.int64)
            for column in columns:
                cell *= column.space.size
                cell += codes[column.name]
            total += np.bincount(cell, minlength=len(total))
        return total.reshape(shape).astype(np.float64)

    def _joint(
        self, names: Sequence[str], normalize: bool, given: tuple[int, ...], dropna: bool, target: str
    ) -> _Cells:
        """Estimate the cells of a joint; with ``normalize`` as shares within each value of ``given`` axes."""
        _check_target(target)
        if len(set(names)) < len(names):
            raise ParameterError("a column cannot be crossed with itself")
        columns = [self._column(name) for name in names]
        estimate, variance = _joint_cells(self._counts(columns), columns, normalize, given, dropna, target)
        labels = [column.space.labels() for column in columns]
        if dropna:
            kept = tuple(slice(0, len(axis) - (axis[-1] is None)) for axis in labels)
            estimate, variance = estimate[kept], variance[kept]
            labels = [axis[part] for axis, part in zip(labels, kept, strict=True)]
        return _Cells(list(names), labels, self._results(estimate, variance))

    def _results(self, estimate: FloatArray, variance: FloatArray) -> dict[str, FloatArray]:
        error = np.sqrt(np.maximum(variance, 0.0))
        z = NormalDist().inv_cdf((1 + self.confidence_level) / 2)
        return dict(zip(_RESULTS, (estimate, error, estimate - z * error, estimate + z * error), strict=True))


class _Cells:
    def __init__(self, names: list[str], labels: list[list[Any]], results: dict[str, FloatArray]) -> None:
        self.names, self.labels, self.results = names, labels, results


def _check_target(target: str) -> None:
    if target not in _TARGETS:
        raise ParameterError('target must be "table" or "population"')


def _check_cells(shape: Sequence[int]) -> None:
    cells = math.prod(shape)
    if cells > LARGEST_JOINT:
        raise ParameterError(
            f"the joint has {cells:,} cells ({cells * 8 / 1e9:.1f} GB), more than {LARGEST_JOINT:,}; cross fewer "
            "columns or coarser ones"
        )


def _axiswise(counts: FloatArray, columns: Sequence[Column], how: Sequence[str]) -> FloatArray:
    """Apply A⁻¹ ("invert"), its squared entries ("square") or a sum ("sum") along every axis."""
    for axis, (column, what) in enumerate(zip(columns, how, strict=True)):
        moved = np.moveaxis(counts, axis, 0)
        if what == "sum":
            moved = moved.sum(axis=0, keepdims=True)
        else:
            moved = column.mechanism.invert(moved, squared=what == "square")
        counts = np.moveaxis(moved, 0, axis)
    return counts


def _joint_cells(
    counts: FloatArray,
    columns: Sequence[Column],
    normalize: bool,
    given: tuple[int, ...],
    dropna: bool,
    target: str,
) -> tuple[FloatArray, FloatArray]:
    """Return estimates and variances of all cells.

    With Φ_v the surrogate of cell v and W that of its denominator, a share r = ΣΦ_v/ΣW has the residual
    U = Φ_v − rW, whose squares' sum is expanded so that each term is a product over the axes. The table's
    variance subtracts what the residual's square is without noise.
    """
    d, n = len(columns), counts.sum()
    estimate = _axiswise(counts, columns, ["invert"] * d)
    squares = _axiswise(counts, columns, ["square"] * d)
    if not normalize:
        noise_free = estimate if target == "table" else estimate**2 / max(n, 1)
        return estimate, squares - noise_free
    weighted, weighted_squares = counts, counts
    for axis, column in enumerate(columns):
        if axis not in given and dropna and column.space.labels()[-1] is None:
            present = np.ones(column.space.size)
            present[-1] = 0.0
            w = column.mechanism.surrogate(present).reshape([-1 if i == axis else 1 for i in range(d)])
            weighted, weighted_squares = weighted * w, weighted_squares * w**2
    inside = ["invert" if axis in given else "sum" for axis in range(d)]
    base = _axiswise(weighted, columns, inside)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = estimate / base
        crossed = _axiswise(weighted, columns, ["square" if i in given else "invert" for i in range(d)])
        around = _axiswise(weighted_squares, columns, ["square" if i in given else "sum" for i in range(d)])
        residual = squares - 2 * share * crossed + share**2 * around
        if target == "table":
            residual = residual - (estimate * (1 - 2 * share) + share**2 * base)
        return share, residual / base**2


def _grouped_sums(
    value: Column, group: Column | None, batches: Iterator[dict[str, npt.NDArray[np.unsignedinteger]]]
) -> tuple[float, FloatArray]:
    """Return a centre c, and per released group code the sums of a, p, a², ap, p² and s.

    With w = 1 where the value is present: a, p and s are the surrogates of (f−c)w, w and (f−c)²w.
    """
    space, mechanism = value.space, value.mechanism
    last = space.size - 1 if space.tag == "nullable" else space.size
    ends = space.numbers(np.array([0, last - 1]))
    centre = float(np.mean(ends)) if ends is not None else 0.0

    def present(codes: Any) -> FloatArray:
        return np.asarray(codes < last, dtype=np.float64)

    def centred(codes: Any) -> FloatArray:
        numbers = space.numbers(codes)
        assert numbers is not None
        return np.asarray(np.where(codes < last, numbers - centre, 0.0))

    functions = (centred, present, lambda codes: centred(codes) ** 2)
    tables = None
    if space.size <= 1 << 20:
        every = np.arange(space.size)
        tables = [mechanism.surrogate_at(f, every) for f in functions]
    k = 1 if group is None else group.space.size
    sums = np.zeros((k, 6))
    for codes in batches:
        y = codes[value.name]
        a, p, s = (t[y] for t in tables) if tables else (mechanism.surrogate_at(f, y) for f in functions)
        terms = (a, p, a * a, a * p, p * p, s)
        if group is None:
            sums[0] += [math.fsum([float(np.sum(term))]) for term in terms]
        else:
            g = codes[group.name]
            for i, term in enumerate(terms):
                sums[:, i] += np.bincount(g, weights=term, minlength=k)
    return centre, sums


def _ratio_of_sums(sums: FloatArray, group: Column | None, target: str) -> tuple[FloatArray, FloatArray]:
    """Return the group means (about the centre) and their variances by the delta method.

    With h = (f−r)·w·1_g: U = (a − rp)φ_g, and h² = ((f−c)² − 2r(f−c) + r²)·w·1_g.
    """
    plain = sums if group is None else group.mechanism.invert(sums)
    square = sums if group is None else group.mechanism.invert(sums, squared=True)
    a, p, s = plain[:, 0], plain[:, 1], plain[:, 5]
    with np.errstate(divide="ignore", invalid="ignore"):
        r = a / p
        residual = square[:, 2] - 2 * r * square[:, 3] + r**2 * square[:, 4]
        if target == "table":
            residual = residual - (s - 2 * r * a + r**2 * p)
        return r, residual / p**2
