"""Columns whose spaces private inference did not find, with the reason and the remedy, from only noisy counts.

A plan has the counts that inference measured, the noise's variance and the number of rows. The decision is
post-processing, and costs no budget. A column is *found* if its mean will err by less than its standard deviation:
`number_counts` forecasts the error for numbers.

Means share the budget of tables, so that the noise of a mean grows with the root of the number of measured columns.
Columns with most noise are left out, until the noise of all other columns is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dpframe.inference.histogram_specs import HISTOGRAM_KINDS, HistogramSpec
from dpframe.inference.inferred import INTERVALS, Inferred, Measured, hidden_word_count, null_count
from dpframe.inference.kinds import unread_kind
from dpframe.inference.number_counts import MOST_OUTSIDE, NumberCounts, number_counts
from dpframe.observe.significance import HINT_SE
from dpframe.spaces import Space

_MAX_MEAN_NOISE_SD = 0.5
"""Largest standard error of a mean, by the noise of its sum, in standard deviations of the column (tuned; effect not
measured)."""


@dataclass(frozen=True)
class NotFound:
    """A column whose space private inference did not find.

    ``why`` states the reason, and ``placeholder`` is the form of a declaration, with no value of the data. ``times`` is
    the factor on ε with which inference probably finds the column, four times in five. It is None if a larger factor is
    needed, or if the counts do not show one. ``unread`` says that values of some kind are read as null, so that the
    column's nulls are unknown, too.
    """

    column: str
    why: str
    placeholder: str
    times: float | None = None
    unread: bool = False


@dataclass(frozen=True)
class ColumnEvidence:
    """Public facts that decide whether inference found a column.

    ``measured``: the histograms of the last kind that was measured.
    ``unread_kind``: a kind of values that would become null, or None. ``mean_noise_ratio``: noise of the column's mean,
    in parts of the largest noise allowed; 0 until other columns are judged. ``hidden_words``: rows of words below the
    threshold, among numbers.
    """

    measured: tuple[Measured, ...]
    space: Space
    n: int
    unread_kind: str | None
    mean_noise_ratio: float = 0.0
    hidden_words: float = 0.0

    @property
    def last(self) -> Measured:
        """The histogram that was measured last."""
        return self.measured[-1]

    @property
    def numbers(self) -> NumberCounts:
        """The counts of a column of numbers, times or norms."""
        return number_counts(self.measured, self.space, self.n)

    @property
    def has_many_other_values(self) -> bool:
        """Whether more than a fifth of the rows has none of the values that were found."""
        nulls = max(self.last.missing or 0, 0) if self.space.has_null else 0
        return self.n - nulls - sum(self.last.counts) > MOST_OUTSIDE * self.n


@dataclass(frozen=True)
class Reason:
    """A reason why inference did not find a column, with its test, its message and its remedy.

    ``kinds``: kinds of the histogram that was measured last. ``noise_factor`` returns how many times too large the
    noise is for the column to be found, or infinity if less noise may not help: the message then suggests no larger ε.
    ``declaration``: the form of a declaration that helps, if it does not follow from the space. ``hides_nulls``:
    whether the number of nulls is unknown, too.
    """

    kinds: tuple[str, ...]
    message: str
    is_true: Callable[[ColumnEvidence], bool]
    noise_factor: Callable[[ColumnEvidence], float] = lambda _: math.inf
    declaration: str | None = None
    hides_nulls: bool = False


_HIDDEN_NOISE_FACTOR = 4 / 3
"""How many times too large the noise is said to be if rows are hidden, or beyond the bounds (limit of a message)."""

SPECIAL_DECLARATION = "Integer(LOWER, UPPER, special=[WORD, …])"
"""Form of a declaration of numbers with words in some rows (limit of a message)."""

REASONS = (
    Reason(
        HISTOGRAM_KINDS,
        "its values of another kind ({unread_kind}) would become null; make all of them text, or these null",
        lambda column: column.unread_kind is not None,
        declaration="[CATEGORY, …]",
        hides_nulls=True,
    ),
    Reason(("kinds",), "no kind of value that a space holds exceeds the noise", lambda _: True, hides_nulls=True),
    Reason(("values", "ranks"), "no value cleared the threshold", lambda column: not column.last.cells),
    Reason(("items",), "no item cleared the threshold", lambda column: not column.last.cells),
    Reason(("lengths",), "no length of lists exceeds the noise", lambda column: not column.last.cells),
    Reason(
        ("values", "ranks"),
        "more than a fifth of the rows seems to hold other values",
        lambda column: column.has_many_other_values,
    ),
    Reason(
        ("intervals",),
        "more than a fifth of the rows seems to hold words that did not clear the threshold",
        lambda column: column.hidden_words > MOST_OUTSIDE * column.n,
        declaration=SPECIAL_DECLARATION,
    ),
    Reason(
        INTERVALS,
        "its bounds rest on counts within their noise",
        lambda column: column.numbers.bounds_noise_factor > 1,
        lambda column: column.numbers.bounds_noise_factor,
    ),
    Reason(
        INTERVALS,
        "more than a fifth of the rows lies beyond its bounds",
        lambda column: column.numbers.has_many_rows_outside,
        lambda _: _HIDDEN_NOISE_FACTOR,
    ),
    Reason(
        ("intervals",),
        "one value has most of the rows, and where the others lie is hidden by the noise",
        lambda column: column.numbers.hides_minority,
        lambda _: _HIDDEN_NOISE_FACTOR,
    ),
    Reason(
        ("intervals",),
        "its mean would have more noise than half of its standard deviation",
        lambda column: column.mean_noise_ratio > 1,
        lambda column: column.mean_noise_ratio,
    ),
)
"""Reasons in the order in which they are looked for: a message names the first that holds."""


def unidentified_columns(inferred: Inferred, spaces: Mapping[str, Space], n: int) -> tuple[NotFound, ...]:
    """Return the columns of ``n`` rows whose spaces inference did not find, in their order."""
    # Evidence for every column that inference counted.
    columns: dict[str, ColumnEvidence] = {}
    specs = dict(inferred.asked or ())
    for name, space in spaces.items():
        histograms = [histogram for histogram in inferred.measured if histogram.column == name]
        usable = [one for one in histograms if one.kind != "steps" and _is_countable(one, space)]
        if usable and n > 0 and name in inferred.columns:
            measured = tuple(histogram for histogram in usable if histogram.kind == usable[-1].kind)
            unread_kind = _find_unread_kind(histograms, specs.get(name, ()))
            hidden_words, _ = hidden_word_count(histograms)
            columns[name] = ColumnEvidence(measured, space, n, unread_kind, hidden_words=hidden_words)
    lost = {name for name, column in columns.items() if _find_reason(column)}
    noises = {
        name: _mean_noise_sd(column.measured, column.space, n)
        for name, column in columns.items()
        if name not in lost and column.last.kind == "intervals"
    }
    ratios = _noisy_mean_ratios(noises, len(spaces) - len(lost), len(inferred.columns))
    columns |= {name: replace(columns[name], mean_noise_ratio=ratio) for name, ratio in ratios.items()}
    return tuple(
        NotFound(
            name,
            reason.message.format(unread_kind=column.unread_kind),
            reason.declaration or _DECLARATIONS.get(column.space.inner_space.tag, "SPACE"),
            epsilon_factor,
            reason.hides_nulls,
        )
        for name, column in columns.items()
        for reason, epsilon_factor in _find_reason(column)
    )


def _is_countable(histogram: Measured, space: Space) -> bool:
    """Return whether counts of this kind can belong to a space; an edited plan may have another space."""
    inner_space = space.inner_space
    if histogram.kind == "norms":
        return inner_space.holds_vectors
    is_interval_space = (inner_space.is_numeric or inner_space.is_time) and not inner_space.is_listed
    return histogram.kind != "intervals" or (is_interval_space and inner_space.is_time == (histogram.unit is not None))


def _find_unread_kind(histograms: Sequence[Measured], specs: Sequence[HistogramSpec]) -> str | None:
    """Return a further kind of values that a column's counts show, or None."""
    ways = {spec.way for spec in specs if spec.way is not None}
    if not ways or histograms[0].kind != "kinds":
        return None
    kinds = dict(zip(histograms[0].cells, histograms[0].counts, strict=True))
    return unread_kind(kinds, histograms[0].variance, null_count(histograms), ways)


# Every view of a release reads its plan anew, and checks the columns again.
@lru_cache(maxsize=1024)
def _find_reason(column: ColumnEvidence) -> tuple[tuple[Reason, float | None], ...]:
    """Return the first reason why a column was not found, with the factor on ε of its remedy; nothing if it was."""
    for reason in REASONS:
        if column.last.kind in reason.kinds and reason.is_true(column):
            return ((reason, _epsilon_factor_hint(reason.noise_factor(column))),)
    return ()


_EPSILON_FACTORS = (1.5, 2.0, 3.0)
"""Factors of ε by which a column is said to be about to be found (limit of a message)."""


def _epsilon_factor_hint(noise_factor: float) -> float | None:
    """Return the factor on ε that probably finds a column whose errors are ``noise_factor`` times too large.

    Errors fall with 1/ε. The factor is larger by half, as the next noise differs from the noise here.
    """
    return next((factor for factor in _EPSILON_FACTORS if 1.5 * noise_factor <= factor), None)


@lru_cache(maxsize=1024)
def _mean_noise_sd(measured: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the noise of a column's mean in standard deviations, kept for the next view of the plan."""
    return number_counts(measured, space, n).mean_noise_sd


def _noisy_mean_ratios(noises: Mapping[str, float], found_columns: int, inferred_columns: int) -> dict[str, float]:
    """Return the noise of means in parts of the limit, for columns left out because their means are mostly noise.

    ``noises`` are forecasts for as many measured columns as were inferred.
    """

    def ratio(name: str, measured_columns: int) -> float:
        return noises[name] * math.sqrt(measured_columns / max(inferred_columns, 1)) / _MAX_MEAN_NOISE_SD

    order, columns = sorted(noises, key=noises.__getitem__), found_columns
    # Fewer measured columns share the budget, so that each has less noise.
    while order and ratio(order[-1], columns) > 1:
        order.pop()
        columns -= 1
    return {name: ratio(name, columns + 1) for name in noises if name not in order}


_DECLARATIONS = {
    "datetime": "(FROM, TO)",
    "integer": "(LOWER, UPPER)",
    "real": "(LOWER, UPPER)",
    "categorical": "[CATEGORY, …]",
    "ordinal": "[CATEGORY, …]",
    "subset": "Subset([ITEM, …])",
    "vector": "Vector(SIZE, BOUND)",
    "curve": "Curve(GRID, BOUND, KERNEL, RANK)",
}


def hinted_nulls(inferred: Inferred, spaces: Mapping[str, Space]) -> tuple[str, ...]:
    """Return the columns without nulls in their spaces whose counts hint at nulls, too few to show beyond the noise.

    >>> from dpframe import Budget, Integer
    >>> counts = Measured("a", "nulls", (), (), 100.0, 25), Measured("b", "nulls", (), (), 100.0, 15)
    >>> hinted_nulls(Inferred(Budget(1.0, 0.0), ("a", "b"), counts), {"a": Integer(0, 9), "b": Integer(0, 9)})
    ('a',)
    """
    counts = {name: null_count(m for m in inferred.measured if m.column == name) for name in inferred.columns}
    return tuple(
        name
        for name, space in spaces.items()
        if not space.has_null and (nulls := counts.get(name)) and nulls[0] > HINT_SE * math.sqrt(nulls[1])
    )


def shares_made_null(inferred: Inferred, spaces: Mapping[str, Space], n: int) -> dict[str, float]:
    """Return by column the share of ``n`` rows that are null because inference did not find their values.

    Columns whose share is below its noise are left out.

    >>> from dpframe import Budget, Categorical, Nullable
    >>> counts = Measured("a", "values", ("1", "2"), (500, 300), 100.0, 0)
    >>> shares_made_null(Inferred(Budget(1.0, 0.0), ("a",), (counts,)), {"a": Nullable(Categorical(["1", "2"]))}, 1_000)
    {'a': 0.2}
    """
    null_shares: dict[str, float] = {}
    for name in inferred.columns if n else ():
        space: Any = spaces.get(name)
        if space is None or not space.has_null or getattr(space.inner_space, "other", None) is not None:
            continue
        histograms = [histogram for histogram in inferred.measured if histogram.column == name]
        hidden_rows, variance = hidden_word_count(histograms)
        for histogram in histograms:
            if histogram.kind == "values" and space.inner_space.is_listed:
                hidden_rows = n - sum(histogram.counts) - max(histogram.missing or 0, 0)
                variance = (len(histogram.counts) + 1) * histogram.variance
        if hidden_rows > HINT_SE * math.sqrt(variance):
            null_shares[name] = hidden_rows / n
    return null_shares
