"""Joints from measured tables, and from released rows beside them.

Three estimates, by cost. *Raw* counts are unbiased; with the rows' unbiased estimate they are weighted by the inverse
of the mean variance of either's cells: those of tables are public, and those of rows hardly vary with the table, so
that the mean stays unbiased. *Simple* ones lie in the simplex near the raw counts. The *model* errs least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.estimate.axes import Axis
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.question import Answer, Question
from dpframe.estimate.surrogates import count_classes
from dpframe.estimate.table_column import TableColumn
from dpframe.estimate.tables.guard import guard_joint
from dpframe.evidence.number_law import NumberLaw, truncated_spread
from dpframe.tables.released import Source

_FOLLOWED = 0.1
"""Part of the noise's variance that a fit has at least."""

_FEWEST = 1e-9
"""Share of rows below which a group is empty."""

_LEAP = 0.75
"""Standard errors for which a leap of a law within a cell counts: a 95 % interval holds it, with some room."""

NEGLIGIBLE = 0.005
"""Expected total error of shares below which raw counts are as good as any."""

MOST_GUARDED = 1 << 20
"""Classes of a joint up to which its rows are heard."""


RowCells = Callable[[], tuple[FloatArray, FloatArray]]
"""The rows' unbiased counts of all cells of the table, and their variances."""


class TableJoints:
    """Joints of one release that has measured tables."""

    def __init__(self, source: Source, tables: MeasuredTables) -> None:
        self._source, self.tables = source, tables
        self._excesses: dict[tuple[str, ...], float] = {}

    def answer(self, question: Question, method: str, rows: RowCells) -> Answer | None:
        """Return a joint by a method, or None where rows alone tell of it, or the method is one of rows."""
        if method == "inverse":
            return self._raw(question, rows)
        if method == "em" or self.tables.told(question.names) == "rows":
            return None
        if method == "project":
            return self._simple(question)
        if method == "auto" and self._is_negligible(question):
            return self._raw(question, rows)
        return self.model(question)

    def _is_negligible(self, question: Question) -> bool:
        found = self.tables.raw(question.axes)
        return found is not None and 0.8 * float(np.sqrt(found[1]).sum()) / self._source.rows < NEGLIGIBLE

    def _raw(self, question: Question, rows: RowCells) -> Answer | None:
        measured = self.tables.raw(question.axes)
        if measured is None:
            return None
        counts, variances = measured
        # The number of rows is public: what is known of the cells' sum takes u uᵀ off their covariance.
        whole, total = float(variances.sum()), float(self._source.rows)
        counts = counts + (total - counts.sum()) * variances / whole
        shared, source = variances / math.sqrt(whole), "tables"
        if self._source.n:
            other, spread = rows()
            mean, own = float(np.mean(spread)), float(np.mean(variances - shared**2))
            if math.isfinite(mean) and mean > 0:
                weight = own / (own + mean)
                counts = (1 - weight) * counts + weight * other
                variances = (1 - weight) ** 2 * variances + weight**2 * spread
                shared, source = (1 - weight) * shared, "both"
        return Answer(*question.presented(counts, variances, total, shared), "inverse", source)

    def _simple(self, question: Question) -> Answer | None:
        tables = self.tables.around(question.names)
        fitted, places = tables.fitted, tables.places(question.names)
        shares = fitted.fit.simple(places)
        if shares is None or tables.told(question.names) != "tables":
            return None
        errors = fitted.errors(places, simple=True)
        return self._shown(question, shares, errors, "project", "tables", False)

    def model(self, question: Question) -> Answer | None:
        """Return a joint by the fit, or None where it cannot have a column."""
        names = question.names
        if any(self.tables.member(name) is None for name in names):
            return None
        tables = self.tables.around(names)
        fitted, places = tables.fitted, tables.places(names)
        shares, source = fitted.fit.joint(places), tables.told(names)
        # What rows tell they tell of the population that they were drawn from.
        of_rows = source == "rows"
        errors, hidden = fitted.errors(places, drawn=self._source.weight if of_rows else 0.0), False
        question = replace(question, population=False) if of_rows else question
        if len(names) > 2:
            guarded, source = self.guarded(names), "both" if self._is_heard(names, tables.columns) else source
            if guarded is not None:
                # What was corrected is known no better than that it had to be.
                hidden, errors, shares = True, np.hypot(errors, guarded - shares), guarded
        errors = np.hypot(errors, self._unseen(tables, places, shares))
        return self._shown(question, shares, errors, "model", source, hidden)

    def _unseen(self, tables: MeasuredTables, places: Sequence[int], shares: FloatArray) -> FloatArray:
        """Return by how much more of the rows cells may hold than a fit has in them, where noise does not tell.

        A fit, and all its replicas, may leave a cell empty that has rows. These may be as many as if the columns were
        independent, and no more than noise hides in the least noisy count of a pair of them.
        """
        rows, evidence = max(float(self._source.rows), 1.0), tables.evidence

        def hidden(columns: Sequence[int]) -> FloatArray:
            known = evidence.known(columns)
            none = np.full([evidence.sizes[c] for c in columns], np.inf)
            return none if known is None else truncated_spread(known.counts, np.sqrt(known.variances)) / rows

        each = [np.maximum(tables.fitted.fit.joint([place]), hidden([place])) for place in places]
        most = reduce(np.multiply.outer, each)
        noise = np.full_like(most, np.inf)
        for i, j in combinations(range(len(places)), 2):
            others = [k for k in range(len(places)) if k not in (i, j)]
            noise = np.minimum(noise, np.expand_dims(hidden([places[i], places[j]]), others))
        unseen = np.minimum(most, noise)
        return np.where(np.isfinite(unseen), np.maximum(unseen - shares, 0.0), 0.0)

    def share(self, names: Sequence[str], asked: Sequence[FloatArray], population: bool) -> tuple[float, float, str]:
        """Return the share of rows in a part of a joint, by the fit and the guard, its error, and what it is from.

        Parameters
        ----------
        asked
            For every column the share of each of the finest cells known that is asked for.
        """
        tables = self.tables.around(names)
        columns = [tables.columns[name] for name in names]
        parts = [column.gathered(part) for column, part in zip(columns, asked, strict=True)]
        fitted, places = tables.fitted, tables.places(names)

        def of(shares: FloatArray) -> FloatArray:
            for part in parts:
                shares = np.tensordot(part, shares, axes=(0, 0))
            return np.asarray(shares)

        joint = fitted.fit.joint(places)
        found = float(of(joint))
        error = float(fitted.errors(places, drawn=float(population), of=of))
        error = math.hypot(error, self._misfit(names, parts, found))
        guarded = self.guarded(names) if len(names) > 2 else None
        source = "both" if len(names) > 2 and self._is_heard(names, tables.columns) else "tables"
        if guarded is not None:
            joint, heard = guarded, float(of(guarded))
            found, error = heard, math.hypot(error, heard - found)
        opened = [_left_open(joint, parts, column, asked[place], place) for place, column in enumerate(columns)]
        return found, math.hypot(error, *opened), source

    def group_means(self, keys: Sequence[Axis], column: str) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Return the mean code of a number in every cell of some keys, by the fit's joint, and two variances of each.

        The first is about the truth, the second what noise has of it.

        Rows of a bin of the number count as the bin's mean, which its levels and its sum tell; by how much a group's
        mean within a bin differs from that is taken for half of the bin's own spread, and for all of it in the outer
        bins, where tails are. None where tables do not tell of every pair of these columns.
        """
        names = [*(axis.name for axis in keys), column]
        law = self.tables.law(column)
        if law is None or self.tables.told(names) != "tables" or any(self.tables.member(n) is None for n in names):
            return None
        tables = self.tables.around(names)
        bins = BinMeans.of(tables.columns[column], law, tables.fine(column))
        onto = [tables.columns[axis.name].onto(axis) for axis in keys]

        def by_group(shares: FloatArray) -> FloatArray:
            for i, matrix in enumerate(onto):
                shares = np.moveaxis(np.tensordot(matrix, shares, axes=(1, i)), 0, i)
            return np.asarray(shares)

        def of(shares: FloatArray) -> FloatArray:
            groups = by_group(shares)
            return np.asarray(groups @ (bins.means * bins.present) / np.maximum(groups @ bins.present, _FEWEST))

        fitted, places = tables.fitted, tables.places(names)
        groups = by_group(fitted.fit.joint(places))
        held = np.maximum(groups @ bins.present, _FEWEST)
        law_of_bins = groups * bins.present / held[..., None]
        means = of(fitted.fit.joint(places))
        variance = fitted.errors(places, of=of) ** 2
        variance += (law_of_bins**2 @ bins.open_spreads) * (1 - np.clip(held, 0.0, 1.0))
        raw = self._raw_sums(names, onto, (bins.means - means[..., None]) * bins.present)
        if raw is not None:
            rows = held * max(float(self._source.rows), 1.0)
            variance = variance + self._misfit_of(names, raw[0] / rows, raw[1] / rows**2)
        return means, variance, fitted.noise(places, of)

    def _misfit_of(self, names: Sequence[str], apart: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the variance of a fit about the truth from how far it is off what was measured, of such noise.

        What is more than noise in this very distance; or what is so, on average, in those of blocks of the pair's
        cells; and never less than a tenth of the noise: a fit follows what it was fitted to.
        """
        own = np.maximum(apart**2 - noise, self._excess(names) * noise)
        return np.asarray(np.maximum(own, 0.0) + _FOLLOWED * noise)

    def _raw_sums(
        self, names: Sequence[str], onto: Sequence[FloatArray], weights: FloatArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return weighted sums over a number's bins of a pair's raw counts, in each group, and their variances."""
        if len(names) != 2:
            return None
        tables = self.tables.around(names)
        i, j = tables.places(names)
        table = tables.evidence.pairs.get((min(i, j), max(i, j)))
        if table is None:
            return None
        counts, variances = (v if i < j else v.T for v in (table.counts, table.variances))
        sums = ((onto[0] @ counts) * weights).sum(axis=-1)
        return sums, np.asarray(((onto[0] ** 2 @ variances) * weights**2).sum(axis=-1))

    def _misfit(self, names: Sequence[str], parts: Sequence[FloatArray], found: float) -> float:
        """Return by how much a share by the fit may be off what was measured of it, and what noise may hide.

        A fit's replicas are right about the fit, and know neither that it may not hold nor rows that noise hides. Of
        columns that were measured together both show: in the count of what is asked, and in those of all blocks from
        the first cells on, whose distances from the fit are more than noise has by some factor.
        """
        tables, n = self.tables.around(names), max(float(self._source.rows), 1.0)
        raw, cover = tables.raw_of(names, parts), tables.raw_of(names, [np.ceil(part) for part in parts])
        if raw is None or cover is None:
            return 0.0
        count, variance = raw[0] / n, raw[1] / n**2
        excess = float(self._misfit_of(names, np.array(count - found), np.array(variance)))
        error = math.sqrt(cover[1]) / n
        hidden = float(truncated_spread(np.array([cover[0] / n]), np.array([error]))[0]) * max(0.0, 1 - found / error)
        return math.hypot(math.sqrt(max(excess, 0.0)), hidden / 2)

    def _excess(self, names: Sequence[str]) -> float:
        """Return how much more the fit is off the counts of blocks of a pair's cells than noise, in parts of noise."""
        key = tuple(sorted(names))
        if len(key) == 2 and key not in self._excesses:
            tables = self.tables.around(key)
            places = sorted(tables.places(key))
            table = tables.evidence.pairs.get((places[0], places[1]))
            found = 0.0
            if table is not None:
                fitted = tables.fitted.fit.joint(places) * max(float(self._source.rows), 1.0)
                apart, noise = (v.cumsum(axis=0).cumsum(axis=1) for v in (table.counts - fitted, table.variances))
                found = max(float((apart**2 / noise).mean()) - 1.0, 0.0)
            self._excesses[key] = found
        return self._excesses.get(key, 0.0)

    def guarded(self, names: Sequence[str]) -> FloatArray | None:
        """Return the fit's joint as rows correct it, or None where they do not contradict it or cannot be heard."""
        return self._guarded([names], self.tables.around(names))[0]

    def guarded_all(self, joints: Sequence[Sequence[str]]) -> list[FloatArray | None]:
        """Return the same of several joints by the fit of all columns; their rows are counted in one pass."""
        return self._guarded(joints, self.tables)

    def _guarded(self, joints: Sequence[Sequence[str]], tables: MeasuredTables) -> list[FloatArray | None]:
        members = tables.columns
        axes = [[members[name].axis for name in names] if self._is_heard(names, members) else [] for names in joints]
        counts = [np.zeros([axis.classes for axis in own]) for own in axes]
        used = list(dict.fromkeys(axis.name for own in axes for axis in own))
        for codes in self._source.codes(used) if used else ():
            for own, found in zip(axes, counts, strict=True):
                if own:
                    found += count_classes(own, [codes])
        return [
            _guard(names, found, tables) if own else None
            for names, own, found in zip(joints, axes, counts, strict=True)
        ]

    def _is_heard(self, names: Sequence[str], members: Mapping[str, TableColumn]) -> bool:
        """Tell whether rows can be counted by some columns, and their noise is independent."""
        plan = self._source.plan
        homes = [group.names for name in names if (group := plan.group_of(name)) is not None]
        classes = math.prod(members[name].axis.classes for name in names)
        return len(set(homes)) == len(homes) and classes <= MOST_GUARDED and bool(self._source.n)

    def _shown(
        self, question: Question, shares: FloatArray, errors: FloatArray, method: str, source: str, hidden: bool
    ) -> Answer:
        variances, columns = errors**2, self.tables.around(question.names).columns
        for i, axis in enumerate(question.axes):
            shares, variances = columns[axis.name].presented(axis, shares, variances, i)
        shares = np.maximum(shares, 0.0)
        n = float(self._source.rows)
        return Answer(*question.presented(shares * n, variances * n**2, n), method, source, hidden)


def _guard(names: Sequence[str], counts: FloatArray, tables: MeasuredTables) -> FloatArray | None:
    fit, places = tables.fitted.fit, tables.places(names)
    channels = [tables.columns[name].channel for name in names]
    return guard_joint(fit.joint(places), counts, channels, fit.pairs_of(places))


@dataclass(frozen=True, eq=False)
class BinMeans:
    """Mean codes of a number's bins, the variances of codes within them, and 1 for bins of values, 0 for null."""

    means: FloatArray
    spreads: FloatArray
    present: FloatArray

    @property
    def open_spreads(self) -> FloatArray:
        """Variances of a group's mean within a bin about the bin's."""
        inner = np.full(len(self.means), 0.25)
        ends = np.flatnonzero(self.present)[[0, -1]]
        inner[ends] = 1.0
        return np.asarray(self.spreads * inner * self.present)

    @classmethod
    def of(cls, column: TableColumn, law: NumberLaw, shares: FloatArray) -> BinMeans:
        """Return them by shares of the law's cells."""
        bins, values = column.bins[: len(law.starts)], len(law.starts)
        held = shares[:values] + 1e-12 * law.widths / law.space.values
        total = np.bincount(bins, held, minlength=column.cells)
        means = np.bincount(bins, held * law.middles, minlength=column.cells) / np.maximum(total, 1e-300)
        squares = held * ((law.middles - means[bins]) ** 2 + (law.widths**2 - 1) / 12)
        spreads = np.bincount(bins, squares, minlength=column.cells) / np.maximum(total, 1e-300)
        present = np.ones(column.cells)
        if column.axis.has_null:
            present[-1] = 0.0
        return cls(means, spreads, present)


def _left_open(
    joint: FloatArray, parts: Sequence[FloatArray], column: TableColumn, asked: FloatArray, place: int
) -> float:
    """Return what one column's cells leave open of a part of a joint: how rows of the part lie within them.

    In a cell that is asked for in part the law of the other columns may leap from one neighbour's to the other's: the
    smaller part may be off by its rows times the larger distance of the cell's law from theirs, as far as the cell has
    such rows. What its own finest cells leave in doubt; and the noise of how these share the cell.
    """
    mass = np.moveaxis(joint, place, 0)
    held = mass.reshape(len(mass), -1).sum(axis=1)
    for other, part in enumerate(parts):
        if other != place:
            mass = np.tensordot(mass, part, axes=(1, 0))
    law = mass / np.maximum(held, 1e-300)
    cells = np.arange(len(law))
    beside = [law[np.minimum(cells + 1, len(law) - 1)], law[np.maximum(cells - 1, 0)]]
    part = parts[place]
    leap = np.minimum(part, 1 - part) * held * np.max([np.abs(other - law) for other in beside], axis=0)
    most, least = np.minimum(mass, part * held), np.maximum(mass - (1 - part) * held, 0.0)
    leap = np.minimum(leap, np.maximum(most - part * mass, part * mass - least))
    doubt = float(column.gathered(column.in_doubt(asked)) @ mass)
    noise = float(column.cut_errors(asked[None, :], mass)[0])
    return math.hypot(_LEAP * float(leap.sum()) + doubt, noise)
