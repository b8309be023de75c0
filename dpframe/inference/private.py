"""Private inference of column spaces: one joint noisy histogram over all columns, in four passes at most.

Facts about the data leave only through noisy counts; the rest is post-processing. Nothing branches on the
values: every table of the schema is read equally often, none makes inference fail, and the types
of the spaces that come out follow from the columns' types; of objects from their kinds, which are measured first.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial

import pyarrow as pa

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, promise_step
from dpframe.errors import ParameterError, name_list
from dpframe.inference.categories import MOST_COUNTED_ITEMS, Items, Ranks, Texts, is_text
from dpframe.inference.column import Presence, Task
from dpframe.inference.cost import MOST_SHARE, Histogram, Spending, spend
from dpframe.inference.from_data import check_is_no_identifier, from_type, unknown_type
from dpframe.inference.grids import is_number, is_time
from dpframe.inference.histogram_specs import HistogramSpec, HistogramSpecs
from dpframe.inference.inferred import Measured
from dpframe.inference.numbers import ROUND_SHARES, Numbers, Times
from dpframe.inference.objects import Objects
from dpframe.inference.vectors import Lists
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Space
from dpframe.spaces.arrays import is_list_of_floats
from dpframe.spaces.field import Field
from dpframe.totals.counts import Count, Read, count_batches

_READING_ROUNDS = 4
"""Times that the data is read: kinds of objects first, then three for numbers (limit of the format)."""

_ROUND_PLANES = 16
"""Planes of a column's stream that a round may take words from (limit of the format)."""


@dataclass(frozen=True)
class Inference:
    """The results of private inference.

    ``spent`` is None if types determine every space. ``threshold`` has the rows, by column, from which values of text
    and items of sets are found. Values with twice as many rows are missed with probability below 10⁻⁴.
    """

    spaces: dict[str, Space]
    measured: tuple[Measured, ...]
    spent: Budget | Step | None
    threshold: dict[str, int]


@dataclass(frozen=True)
class Measurement:
    """A private inference that nothing can refuse any more: only payment and the noise remain."""

    columns: tuple[Field, ...]
    n: int
    budget: Budget | Step
    contributions: int
    most_items: int
    request: bytes
    histograms: tuple[tuple[str, int], ...]
    """Column and place of every histogram that may be measured."""
    spending: Spending | None
    """Noise of each histogram; None if types determine every space."""
    rounds: int = 3
    """Rounds of a column of numbers."""

    @property
    def asked(self) -> HistogramSpecs:
        """All histograms that inference may measure, by column: a public fact, independent of the values."""
        specs_by_column: dict[str, list[HistogramSpec]] = {}
        for (name, _), spec in zip(self.histograms, () if self.spending is None else self.spending.specs, strict=True):
            specs_by_column.setdefault(name, []).append(spec)
        return tuple((name, tuple(specs)) for name, specs in specs_by_column.items())

    @classmethod
    def of(
        cls,
        columns: Sequence[Field],
        n: int,
        budget: Budget | Step,
        contributions: int = 1,
        most_items: int = MOST_COUNTED_ITEMS,
        request: bytes = b"",
        rounds: int = 3,
    ) -> Measurement:
        """Check everything that may refuse an inference.

        ``n``: rows of the table, which are public. ``budget``: budget or step, replace-one, per person; noise is
        discrete Gaussian, or geometric if δ = 0. ``most_items``: largest number of items per row of a set column;
        longer rows are truncated by a keyed choice. ``request``: further bytes that the noise is bound to. ``rounds``:
        see `choose_rounds`.
        """
        public = tuple(_to_public_type(column) for column in columns)
        tasks = [_make_task(column, n, most_items, Keystream(bytes(32)), rounds) for column in public]
        if isinstance(budget, Budget) and budget.delta == 0:
            unknown = [task.field.name for task in tasks if any(h.unknown for h in task.histograms)]
            if unknown:
                raise ParameterError(
                    f"text and sets can be inferred only with delta above 0: {name_list(unknown)}; "
                    f"declare spaces={{{unknown[0]!r}: [CATEGORY, …]}}, or leave delta out"
                )
        names = tuple((task.field.name, i) for task in tasks for i in range(len(task.histograms)))
        histograms = [histogram for task in tasks for histogram in task.histograms]
        spending = spend(budget, histograms, n, contributions) if histograms else None
        return cls(public, n, budget, contributions, most_items, request, names, spending, rounds)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(column.name for column in self.columns)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the whole request: it enters the key of the noise, so that requests have independent noise."""
        columns = [[column.name, str(column.type), column.nullable] for column in self.columns]
        facts = [columns, self.n, *astuple(self.budget), self.contributions, self.most_items, self.request.hex()]
        # Requests of three rounds keep the digest of earlier versions.
        facts += [] if self.rounds == len(ROUND_SHARES) else [self.rounds]
        return hashlib.sha256(json.dumps(facts).encode()).digest()

    def draw(self, read: Read, key: bytes, count: Count | None = None) -> Inference:
        """Return a space for every column, found under differential privacy.

        ``read`` gives columns in batches, as Arrow arrays; columns of type null as lists of objects. The number of its
        calls is equal for all tables, except that kinds of objects may need more. ``count`` counts rows in its place.
        One key of 32 secret bytes serves one table: over changed data an equal request would reveal the difference.
        """
        stream = Keystream(key, self.digest)
        tasks = [_make_task(column, self.n, self.most_items, stream, self.rounds) for column in self.columns]
        if self.spending is None:
            return Inference({task.field.name: task.space() for task in tasks}, (), None, {})
        noise_terms = zip(self.spending.noises, self.spending.thresholds, strict=True)
        terms = dict(zip(self.histograms, noise_terms, strict=True))
        for task in tasks:
            task.noises = [terms[task.field.name, i][0] for i in range(len(task.histograms))]
        thresholds: dict[str, int] = {}
        for i in range(_READING_ROUNDS):
            pending = {task.field.name: (task, place) for task in tasks if (place := task.asks(i)) is not None}
            counters = {name: task.counter() for name, (task, _) in pending.items()}
            # All columns of a round are counted in one pass over the data.
            if counters:
                (count or partial(count_batches, read))(counters)
            for name, (task, place) in pending.items():
                noise, threshold = terms[name, place]
                task.measure(counters[name], noise, threshold, stream.column(name, "infer").skip(i * _ROUND_PLANES))
                if threshold:
                    thresholds[name] = threshold
        return Inference(
            {task.field.name: task.space() for task in tasks},
            tuple(noisy_histogram for task in tasks for noisy_histogram in task.measured),
            self.budget,
            {name: thresholds[name] for name in self.names if name in thresholds},
        )


_ROWS_PER_NOISE = 60
"""A round is worth its part of the budget if its noise is at most the rows divided by this number (tuned; effect not
measured)."""


def choose_rounds(columns: Sequence[Field], n: int, promise: Budget, contributions: int = 1) -> int:
    """Return the number of rounds for columns of numbers, from only types, rows and promise.

    Each round takes its part of the budget. With much noise a single round, or two, give better bounds than three, and
    the bounds are then ends of coarse cells. With δ = 0 there is no step that rounds share.
    """
    max_rounds = len(ROUND_SHARES)
    if promise.delta == 0:
        return max_rounds
    column_count, total_step = max(len(columns), 1), promise_step(promise)
    for rounds in range(max_rounds, 1, -1):
        sigma = contributions * math.sqrt(2 * column_count * rounds / (MOST_SHARE * float(total_step.square)))
        if sigma * _ROWS_PER_NOISE <= n:
            return rounds
    return 1


def list_histograms(
    columns: Sequence[Field], n: int, most_items: int = MOST_COUNTED_ITEMS, rounds: int = 3
) -> list[Histogram]:
    """Return the histograms that inference would ask for, by only the columns' types."""
    tasks = [_make_task(_to_public_type(column), n, most_items, Keystream(bytes(32)), rounds) for column in columns]
    return [histogram for task in tasks for histogram in task.histograms]


def _to_public_type(column: Field) -> Field:
    """Return a column without the facts about its entries in the type of its dictionary, as they are data."""
    type_ = column.type
    if column.listed or not pa.types.is_dictionary(type_):
        return column
    entries = pa.string() if is_text(type_) else type_.value_type
    return replace(column, type=pa.dictionary(pa.int32(), entries, ordered=type_.ordered))


def _make_task(column: Field, n: int, most_items: int, stream: Keystream, rounds: int = 3) -> Task:
    """Return the inference task of a column by its type; `ColumnError` for identifiers and other types."""
    # Lone surrogates cannot be written as UTF-8, so that no plan can store them.
    if any("\ud800" <= letter <= "\udfff" for letter in column.name):
        raise ParameterError(f"column name {column.name!r} is not valid Unicode; rename it")
    type_space = from_type(replace(column, nullable=False))
    if type_space is not None:
        return Presence(column, type_space)
    check_is_no_identifier(column)
    type_ = column.type
    # The type of an ordered dictionary declares its entries.
    has_objects = column.listed and not column.order
    make_task = _make_objects if has_objects else next((make for fits, make in _TASKS if fits(type_)), None)
    if make_task is None:
        raise unknown_type(type_, column.name)
    return make_task(column, n, rounds, most_items, stream)


def _make_objects(column: Field, n: int, _: int, most_items: int, stream: Keystream) -> Task:
    """Return the task of a column of objects."""
    return Objects(column, n, most_items, _truncation_key(column, stream))


def _truncation_key(column: Field, stream: Keystream) -> bytes:
    """Return the key of the hash that truncates rows of sets."""
    # The planes before are the rounds' noise.
    return stream.column(column.name, "infer").skip(_READING_ROUNDS * _ROUND_PLANES).words(0, 0, 4).tobytes()


def _is_set(type_: pa.DataType) -> bool:
    """Return whether a type has lists of text."""
    t = pa.types
    nested = t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_)
    return bool(nested and is_text(type_.value_type))


_TASKS: list[tuple[Callable[[pa.DataType], bool], Callable[[Field, int, int, int, Keystream], Task]]] = [
    (is_number, lambda column, n, rounds, *_: Numbers(column, n, rounds, counts_steps=True)),
    (is_time, lambda column, n, rounds, *_: Times(column, n, rounds)),
    (is_text, lambda column, *_: Ranks(column) if column.order else Texts(column)),
    (_is_set, lambda column, _, __, most_items, stream: Items(column, most_items, _truncation_key(column, stream))),
    (is_list_of_floats, lambda column, n, *_: Lists(column, n)),
    (pa.types.is_null, _make_objects),
]
"""Tasks of columns by type; columns of objects have the type null."""
