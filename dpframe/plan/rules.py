"""Rules: public facts between columns, which every row is made to keep before it is counted or randomised.

A rule comes from the question that was asked (nobody below 16 was asked about work), never from the rows. A row that
breaks a rule is mended by a function of only this row and the plan. So neighbouring tables stay neighbours and the
guarantee is unchanged; the number of mended rows is not released. As in SQL's CHECK, a row with a null in a column of a
rule keeps it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import ParameterError
from dpframe.plan.one_of import OneOf
from dpframe.plan.rule import BoundRule, Cells, Codes, Flags, Rule, ruled_space
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.stretches import between, code_of, listed_values

MAX_MAPPED_VALUES = 1 << 20
"""Most values of a column that a mapping may have (limit of memory)."""

_RULE_FORMS = "dpf.Implies(if, then), dpf.Follows(column, of, mapping), dpf.Ordered(low, high) or dpf.OneOf(columns)"
_TRIAL_ROWS = 4096
"""Random rows among which the search finds a row that keeps all rules (limit of time)."""


@dataclass(frozen=True, eq=False)
class CodeStretches:
    """Codes in disjoint stretches [start, stop), in their order."""

    starts: IntArray
    stops: IntArray

    @classmethod
    def of(cls, space: Space, wanted: Any, what: str) -> CodeStretches:
        """Read the condition on one column: a value, a list of values, or a range (low, high)."""
        if isinstance(wanted, tuple):
            low, high = between(space, wanted, what)
            return cls(np.array([low]), np.array([high + 1]))
        codes = np.array(sorted({code_of(space, value, what) for value in listed_values(wanted, what)}))
        # Consecutive codes form one stretch, so that nearest codes need one search.
        gaps = np.flatnonzero(np.diff(codes) > 1)
        return cls(codes[np.append(0, gaps + 1)], codes[np.append(gaps, len(codes) - 1)] + 1)

    def _at(self, codes: npt.NDArray[Any]) -> IntArray:
        """Return the stretch that begins last before each code, or −1."""
        return np.asarray(np.searchsorted(self.starts, codes, side="right") - 1)

    def holds(self, codes: npt.NDArray[Any]) -> Flags:
        """Return which codes are in a stretch."""
        at = self._at(codes)
        # Codes before the first stretch have the index −1, that is the last stop: the first test excludes them.
        return np.asarray((at >= 0) & (codes < self.stops[at]))

    def covers(self, starts: IntArray, stops: IntArray) -> Flags:
        """Return which cells are entirely in a stretch."""
        at = self._at(starts)
        return np.asarray((at >= 0) & (stops <= self.stops[at]))

    def meets(self, starts: IntArray, stops: IntArray) -> Flags:
        """Return which cells have a code in a stretch."""
        # Stretches are disjoint and ascend: of those that begin before the cell's end, the last one ends last.
        at = self._at(stops - 1)
        return np.asarray((at >= 0) & (self.stops[at] > starts))

    def nearest(self, codes: npt.NDArray[Any]) -> IntArray:
        """Return for each code the nearest code in a stretch, the lower of two."""
        codes = codes.astype(np.int64)
        at = self._at(codes)
        below = np.where(at >= 0, np.minimum(codes, self.stops[at] - 1), self.starts[0])
        above = self.starts[np.minimum(at + 1, len(self.starts) - 1)]
        return np.asarray(np.where(np.abs(above - codes) < np.abs(codes - below), above, below))


def _to_json_value(value: Any) -> Any:
    """Return a value as JSON contains it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, pd.Timedelta | datetime.timedelta):
        return str(pd.Timedelta(value))
    return value.isoformat() if isinstance(value, datetime.date | datetime.datetime) else value


def _read_conditions(conditions: Any, what: str) -> tuple[tuple[str, Any], ...]:
    """Return conditions by column, ranges as tuples and lists as frozen ones."""
    if not isinstance(conditions, Mapping) or not conditions or not all(isinstance(name, str) for name in conditions):
        raise ParameterError(f"{what} of a rule must be a mapping of columns to values, lists or ranges (low, high)")
    return tuple(
        (name, _read_condition(condition, f"{what} of a rule: {name!r}")) for name, condition in conditions.items()
    )


def _read_condition(condition: Any, what: str) -> Any:
    """Return the condition on one column, a range as a tuple and a list as a frozen one."""
    if isinstance(condition, Mapping):
        if set(condition) != {"between"} or not isinstance(condition["between"], list | tuple):
            raise ParameterError(f'{what} must be a value, a list, or {{"between": [low, high]}}')
        return tuple(map(_to_json_value, condition["between"]))
    if isinstance(condition, tuple):
        return tuple(map(_to_json_value, condition))
    return _ListedValues(tuple(map(_to_json_value, listed_values(condition, what))))


@dataclass(frozen=True)
class _ListedValues:
    """The values that meet a condition."""

    values: tuple[Any, ...]

    def __repr__(self) -> str:
        return repr(list(self.values))


@dataclass(frozen=True, init=False)
class Implies(Rule):
    """Rows that meet all conditions of the one kind meet all of the other: if age < 3, then education is "none".

    Parameters
    ----------
    condition, then
        By column a value, a list of values, or ``(low, high)`` with both ends in it (None for no end).

    A row that breaks it has the columns of ``then`` set to the nearest value that is allowed; of categories, in the
    order of their declaration.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> rule = Implies({"age": (None, 15)}, {"work": "none"})
    >>> plan = build_plan({"age": (0, 99), "work": ["paid", "none"]}, epsilon=1.0, rules=[rule])
    >>> plan.rules[0] == rule
    True
    """

    condition: tuple[tuple[str, Any], ...]
    then: tuple[tuple[str, Any], ...]
    keys: ClassVar[tuple[str, ...]] = ("if", "then")

    def __init__(self, condition: Mapping[str, Any], then: Mapping[str, Any]) -> None:
        object.__setattr__(self, "condition", _read_conditions(condition, "the condition"))
        object.__setattr__(self, "then", _read_conditions(then, "then"))
        shared_names = {name for name, _ in self.condition} & {name for name, _ in self.then}
        if shared_names:
            raise ParameterError(
                f"a rule names {min(shared_names)!r} in its condition and in what follows; name it in one"
            )

    def bind(self, spaces: Mapping[str, Space]) -> BoundRule:
        """Return the rule in codes."""
        sides = [
            {
                name: CodeStretches.of(
                    ruled_space(spaces, name),
                    list(condition.values) if isinstance(condition, _ListedValues) else condition,
                    f"rules: column {name!r}",
                )
                for name, condition in side
            }
            for side in (self.condition, self.then)
        ]
        return _Implication(sides[0], sides[1], {n: spaces[n].values for side in sides for n in side})

    def __repr__(self) -> str:
        return f"Implies({dict(self.condition)!r}, {dict(self.then)!r})"

    def to_json(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {
            key: dict(_condition_fields(side)) for key, side in zip(self.keys, (self.condition, self.then), strict=True)
        }


def _condition_fields(side: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield conditions as JSON contains them, by column."""
    for name, condition in side:
        yield name, list(condition.values) if isinstance(condition, _ListedValues) else {"between": list(condition)}


@dataclass(frozen=True, eq=False)
class _Implication(BoundRule):
    """`Implies` in codes; ``values`` are the numbers of values by column, above which is null."""

    condition: Mapping[str, CodeStretches]
    then: Mapping[str, CodeStretches]
    values: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.condition, *self.then)

    def holds(self, codes: Codes) -> Flags:
        applies = reduce(np.logical_and, [stretches.holds(codes[name]) for name, stretches in self.condition.items()])
        # A null keeps the rule.
        is_met = [
            stretches.holds(codes[name]) | (codes[name] >= self.values[name]) for name, stretches in self.then.items()
        ]
        return np.asarray(~applies | reduce(np.logical_and, is_met))

    def mended(self, codes: Codes) -> Codes:
        return {
            name: np.where(codes[name] >= self.values[name], codes[name], stretches.nearest(codes[name]))
            for name, stretches in self.then.items()
        }

    def impossible(self, cells: Cells) -> Flags:
        never = np.zeros((), dtype=np.bool_)
        # A cell is impossible if all of its rows meet the condition, and none can meet what follows.
        if set(self.condition) <= set(cells):
            applies = reduce(
                np.logical_and, [stretches.covers(*cells[name]) for name, stretches in self.condition.items()]
            )
            for name, stretches in self.then.items():
                if name in cells:
                    starts, stops = cells[name]
                    never = never | (applies & ~stretches.meets(starts, stops) & (starts < self.values[name]))
        return np.asarray(never)

    def thresholds(self) -> Iterator[tuple[str, int]]:
        for name, stretches in (*self.condition.items(), *self.then.items()):
            for code in sorted({*stretches.starts.tolist(), *stretches.stops.tolist()}):
                if 0 < code < self.values[name]:
                    yield name, code


@dataclass(frozen=True, init=False)
class Follows(Rule):
    """A column follows from another by a public mapping: the region of each city.

    Parameters
    ----------
    column, of
        The column that follows, and the one it follows from.
    mapping
        Its value for values of the other; those that are left out go with any.

    A row that breaks it has ``column`` set to the mapped value. The mapping is never learned from rows.

    Examples
    --------
    >>> rule = Follows("region", of="city", mapping={"Lyon": "South", "Lille": "North"})
    >>> rule.to_json()
    {'column': 'region', 'of': 'city', 'mapping': [['Lyon', 'South'], ['Lille', 'North']]}
    """

    column: str
    of: str
    mapping: tuple[tuple[Any, Any], ...]
    keys: ClassVar[tuple[str, ...]] = ("column", "of", "mapping")

    def __init__(self, column: str, of: str, mapping: Any) -> None:
        if not isinstance(column, str) or not isinstance(of, str) or column == of:
            raise ParameterError("a rule's column and of must be names of two columns")
        pairs = mapping.items() if isinstance(mapping, Mapping | pd.Series) else mapping
        try:
            code_pairs = tuple((_to_json_value(source), _to_json_value(value)) for source, value in pairs)
        except (TypeError, ValueError):
            code_pairs = ()
        if not code_pairs:
            raise ParameterError(f"the mapping of a rule for {column!r} must give values of it by values of {of!r}")
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "mapping", code_pairs)

    def bind(self, spaces: Mapping[str, Space]) -> BoundRule:
        """Return the rule in codes."""
        source_space, target_space = ruled_space(spaces, self.of), ruled_space(spaces, self.column)
        if source_space.values > MAX_MAPPED_VALUES:
            raise ParameterError(
                f"rules: column {self.of!r} has more than {MAX_MAPPED_VALUES:,} values, too many for a mapping"
            )
        target = np.full(source_space.values, -1, dtype=np.int64)
        for source, value in self.mapping:
            code = code_of(source_space, source, f"rules: column {self.of!r}")
            if code >= source_space.values:
                raise ParameterError(f"rules: the mapping of {self.of!r} names null, from which nothing follows")
            target_code = code_of(target_space, value, f"rules: column {self.column!r}")
            # An identical pair twice is harmless.
            if target[code] not in (-1, target_code):
                raise ParameterError(f"rules: the mapping names a value of {self.of!r} twice; name it once")
            target[code] = target_code
        return _BoundMapping(self.column, self.of, target, target_space.values)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {"column": self.column, "of": self.of, "mapping": [list(pair) for pair in self.mapping]}


@dataclass(frozen=True, eq=False)
class _BoundMapping(BoundRule):
    """`Follows` in codes: the implied code for each code of the other column, −1 for any."""

    column: str
    of: str
    target: IntArray
    values: int

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column, self.of)

    def _target_codes(self, codes: Codes) -> IntArray:
        """Return the implied code for each row, −1 for any."""
        source_codes = codes[self.of].astype(np.int64)
        has_target = source_codes < len(self.target)
        # Null's code is beyond the targets: it reads target 0, which the outer choice replaces.
        return np.where(has_target, self.target[np.where(has_target, source_codes, 0)], -1)

    def holds(self, codes: Codes) -> Flags:
        column_codes, target_codes = codes[self.column].astype(np.int64), self._target_codes(codes)
        return np.asarray((target_codes < 0) | (column_codes == target_codes) | (column_codes >= self.values))

    def mended(self, codes: Codes) -> Codes:
        target_codes = self._target_codes(codes)
        return {self.column: np.where(target_codes < 0, codes[self.column].astype(np.int64), target_codes)}

    def impossible(self, cells: Cells) -> Flags:
        if not set(self.names) <= set(cells):
            return np.zeros((), dtype=np.bool_)
        (starts, stops), (firsts, lasts) = cells[self.of], cells[self.column]
        # Cells repeat in the grid of combinations: targets are collected once for each distinct cell.
        cell_starts, place = np.unique(starts, return_inverse=True)
        place = place.reshape(starts.shape)
        cell_stops = np.zeros(len(cell_starts), dtype=np.int64)
        cell_stops[place] = stops
        # The targets of the codes of each cell, in one sorted array.
        span = self.values + 1
        cell_targets = [np.unique(self.target[start:stop]) for start, stop in zip(cell_starts, cell_stops, strict=True)]
        # Targets begin at −1: the 1 keeps each cell's keys within its own span.
        keys = np.concatenate([cell * span + 1 + targets for cell, targets in enumerate(cell_targets)])
        open_to_any = np.array([targets[:1].tolist() == [-1] for targets in cell_targets])
        low, high = (np.searchsorted(keys, place * span + 1 + ends) for ends in (firsts, lasts))
        any_value = (starts >= len(self.target)) | (firsts >= self.values) | open_to_any[place]
        return np.asarray(~any_value & (low == high))


@dataclass(frozen=True)
class Ordered(Rule):
    """Numbers, or times, of one column are at most those of another: a start comes before its end.

    Parameters
    ----------
    low, high
        The columns. A row that breaks it has ``high`` raised to ``low``, and ``low`` lowered where ``high`` has no
        value so large.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> spaces = {"first": (0, 9), "last": (0, 9)}
    >>> plan = build_plan(spaces, epsilon=1.0, rules=[Ordered("first", "last")])
    >>> rows = {"first": np.array([3, 5]), "last": np.array([4, 2])}
    >>> plan.bound_rules.mended(rows)["last"]
    array([4, 5])
    """

    low: str
    high: str
    keys: ClassVar[tuple[str, ...]] = ("low", "high")

    def __post_init__(self) -> None:
        if not isinstance(self.low, str) or not isinstance(self.high, str) or self.low == self.high:
            raise ParameterError("a rule's low and high must be names of two columns")

    def bind(self, spaces: Mapping[str, Space]) -> BoundRule:
        """Return the rule in codes."""
        low, high = (ruled_space(spaces, name) for name in (self.low, self.high))
        for name, space in ((self.low, low), (self.high, high)):
            if not space.is_numeric or space.is_listed:
                raise ParameterError(f"rules: column {name!r} holds neither numbers nor times, which have an order")
        if low.inner_space.is_time != high.inner_space.is_time:
            raise ParameterError(f"rules: {self.low!r} and {self.high!r} must both hold numbers, or both times")
        return _BoundOrder(self.low, self.high, low, high)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {"low": self.low, "high": self.high}


def _code_values(space: Space, codes: npt.NDArray[Any]) -> FloatArray | IntArray:
    """Return the numbers of codes, or the nanoseconds of times."""
    inner: Any = space.inner_space
    # Null, and the end of a finished bisection, have no number: callers ignore their results.
    numbers = inner.numbers(np.minimum(codes.astype(np.int64), space.values - 1))
    if not inner.is_time:
        return np.asarray(numbers)
    times = np.asarray(inner.instants(numbers))
    return times.astype("m8[ns]" if times.dtype.kind == "m" else "M8[ns]").astype(np.int64)


@dataclass(frozen=True, eq=False)
class _BoundOrder(BoundRule):
    """`Ordered` in codes."""

    low: str
    high: str
    lows: Space
    highs: Space

    @property
    def names(self) -> tuple[str, ...]:
        return (self.low, self.high)

    def holds(self, codes: Codes) -> Flags:
        low, high = codes[self.low], codes[self.high]
        null = (low >= self.lows.values) | (high >= self.highs.values)
        return np.asarray(null | (_code_values(self.lows, low) <= _code_values(self.highs, high)))

    def mended(self, codes: Codes) -> Codes:
        # `high` is raised first; `low` falls only if `high` cannot rise enough.
        highs_needed = _first_codes(self.highs, _code_values(self.lows, codes[self.low]))
        top = np.full(len(highs_needed), self.highs.values - 1)
        # The last code of the low column that is not above the highest value of the other.
        low_limit = np.maximum(_first_codes(self.lows, _code_values(self.highs, top), above=True) - 1, 0)
        return {
            self.high: np.minimum(highs_needed, top),
            self.low: np.minimum(codes[self.low].astype(np.int64), low_limit),
        }

    def impossible(self, cells: Cells) -> Flags:
        if not set(self.names) <= set(cells):
            return np.zeros((), dtype=np.bool_)
        (starts, _), (firsts, stops) = cells[self.low], cells[self.high]
        no_nulls = (starts < self.lows.values) & (firsts < self.highs.values)
        return np.asarray(no_nulls & (_code_values(self.lows, starts) > _code_values(self.highs, stops - 1)))


def _first_codes(space: Space, values: npt.NDArray[Any], above: bool = False) -> IntArray:
    """Return the first code whose number is at least, or above, each value; the number of values if there is none."""
    low, high = np.zeros(len(values), dtype=np.int64), np.full(len(values), space.values, dtype=np.int64)
    # Bisection of all values at once: numbers increase with their codes.
    while (low < high).any():
        middle = (low + high) // 2
        middle_values = _code_values(space, middle)
        is_past = (middle_values > values) if above else (middle_values >= values)
        # Finished entries stay unchanged while others are still bisected.
        low, high = np.where(is_past | (low >= high), low, middle + 1), np.where(is_past & (low < high), middle, high)
    return low


KINDS: tuple[type[Rule], ...] = (Implies, Follows, Ordered, OneOf)


def as_rule(given: Any) -> Rule:
    """Return a rule, or make it from its JSON object; raise `ParameterError` for anything else."""
    if isinstance(given, Rule):
        return given
    if isinstance(given, Mapping):
        for kind in KINDS:
            if set(kind.keys) <= set(given) <= {*kind.keys, *kind.optional_keys}:
                return kind.from_json(given)
    fields = " or ".join("{" + ", ".join(f'"{key}"' for key in kind.keys) + "}" for kind in KINDS)
    raise ParameterError(f"a rule must be {_RULE_FORMS}; as JSON an object with {fields}")


def as_rules(given: Any) -> tuple[Rule, ...]:
    """Return rules; raise `ParameterError` unless the argument is a list of rules."""
    if isinstance(given, Rule | Mapping | str) or not isinstance(given, Iterable):
        raise ParameterError(f"rules must be a list of {_RULE_FORMS}")
    return tuple(map(as_rule, given))


@dataclass(frozen=True, eq=False)
class BoundRules:
    """The rules of a plan in codes."""

    rules: tuple[BoundRule, ...]
    spaces: Mapping[str, Space]

    @classmethod
    def of(cls, rules: Sequence[Rule], spaces: Mapping[str, Space]) -> BoundRules:
        """Bind rules to spaces."""
        bound = cls(tuple(rule.bind(spaces) for rule in rules), spaces)
        # Contradictory rules are refused with the plan, before a release spends budget.
        if bound.rules:
            _ = bound._fallback_row
        return bound

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the rules."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.names))

    @cached_property
    def thresholds(self) -> Mapping[str, tuple[int, ...]]:
        """Codes at which bins of columns must begin."""
        pairs = [pair for rule in self.rules for pair in rule.thresholds()]
        return {
            name: tuple(sorted({code for name_of_code, code in pairs if name_of_code == name})) for name, _ in pairs
        }

    def breaks(self, codes: Codes) -> Flags:
        """Return which rows break a rule."""
        return np.asarray(~reduce(np.logical_and, [rule.holds(codes) for rule in self.rules]))

    @cached_property
    def _fallback_row(self) -> Mapping[str, int]:
        """A row that keeps all rules; it replaces rows that cannot be mended rule by rule."""
        # A fixed seed: every machine must mend a row in an equal way.
        generator = np.random.Generator(np.random.PCG64(0))
        trial_rows = {name: generator.integers(0, self.spaces[name].values, _TRIAL_ROWS) for name in self.names}
        trial_rows, broken = self._mend_repeatedly(trial_rows)
        if broken.all():
            raise ParameterError("rules contradict each other: no row was found that keeps them all; take one out")
        row = int(np.flatnonzero(~broken)[0])
        return {name: int(trial_rows[name][row]) for name in self.names}

    def _mend_repeatedly(self, rows: dict[str, IntArray]) -> tuple[dict[str, IntArray], Flags]:
        """Return rows mended rule by rule, and which rows still break a rule."""
        broken = self.breaks(rows)
        # Mending by one rule may break another; a chain of all rules ends after as many passes.
        for _ in range(len(self.rules) + 1):
            if not broken.any():
                break
            for rule in self.rules:
                rows_to_mend = np.flatnonzero(~rule.holds(rows))
                for name, codes in rule.mended({name: rows[name][rows_to_mend] for name in rule.names}).items():
                    rows[name][rows_to_mend] = codes
            broken = self.breaks(rows)
        return rows, broken

    def mended(self, codes: Codes) -> Codes:
        """Return rows that keep all rules: a function of each row by itself, which leaves rows that keep them
        unchanged.

        ``codes``: one integer array per column, all of one length.
        """
        if not self.rules:
            return codes
        broken = np.flatnonzero(self.breaks(codes))
        if not len(broken):
            return codes
        rows, still_broken = self._mend_repeatedly({name: codes[name][broken].astype(np.int64) for name in self.names})
        mended = dict(codes)
        for name, column in rows.items():
            column[still_broken] = self._fallback_row[name]
            column_codes = codes[name].copy()
            column_codes[broken] = column.astype(column_codes.dtype)
            mended[name] = column_codes
        return mended

    def impossible(self, cells: Cells) -> Flags | None:
        """Return which cells of a joint no row can have, with an axis per column; None if no rule excludes a cell."""
        if set(self.names).isdisjoint(cells):
            return None
        shape = [len(starts) for starts, _ in cells.values()]
        grid = np.ix_(*(np.arange(size) for size in shape))
        cell_grid = {
            name: (bounds[0][at], bounds[1][at]) for (name, bounds), at in zip(cells.items(), grid, strict=True)
        }
        # Rules of some of the columns broadcast over the others.
        never = np.broadcast_to(reduce(np.logical_or, [rule.impossible(cell_grid) for rule in self.rules]), shape)
        return never if never.any() else None
