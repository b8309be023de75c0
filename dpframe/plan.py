"""The plan: a frozen, public description of how a table is randomised. It travels with every release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpframe.building import build_units
from dpframe.certificate import Certificate, certify
from dpframe.errors import FileError, ParameterError, PlanError, name_list
from dpframe.forecast import forecast_table
from dpframe.loss import Budget, compose
from dpframe.mechanisms import Mechanism
from dpframe.spaces import as_space
from dpframe.units import Column, Group, Unit, column_from_json, group_from_json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "Column", "Group", "Plan", "build_plan"]

SCHEMA = 1
"""Version of a plan's JSON; a plan of a newer one is refused."""

NULLS = ("error", "impute")

UNORDERED = ("discrete", "product")
"""Metrics in which values are equal or not."""


@dataclass(frozen=True)
class Plan:
    """How a table is randomised: columns, order, totals, and what is left unprotected.

    Parameters
    ----------
    epsilon, delta
        The promise, replace-one, per person; the columns' certified losses may not exceed it.
    columns
        The randomised columns, in the table's order.
    n
        Rows the plan was made for, where known.
    shuffle
        Whether rows leave in a secret, uniformly random order.
    contributions
        Rows that one person may own.
    nulls
        ``"error"`` or ``"impute"``: what to do with a null in a column whose space holds none.
    drop, passthrough
        Columns that are left out, and that are copied *unprotected*.
    leaks
        Columns whose space was read off the data without a budget: not covered by the promise.
    groups
        Columns that are randomised together; these columns have the group's channel, as each sees it.

    Raises
    ------
    PlanError
        If columns appear twice, or in two groups, or spend more than the promise.

    Examples
    --------
    >>> plan = build_plan({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0)
    >>> plan.summary()[["mechanism", "epsilon"]]
                      mechanism  epsilon
    column
    age               geometric      0.5
    sex     randomized_response      0.5
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    epsilon: float
    delta: float
    columns: tuple[Column, ...]
    n: int | None = None
    shuffle: bool = True
    contributions: int = 1
    nulls: str = "error"
    drop: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        for name in ("columns", "drop", "passthrough", "leaks", "groups"):
            if not isinstance(getattr(self, name), list | tuple):
                raise PlanError(f"{name} must be a list of {name if name in ('columns', 'groups') else 'column names'}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        budget = Budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", budget.epsilon)
        object.__setattr__(self, "delta", budget.delta)
        if self.nulls not in NULLS:
            raise ParameterError('nulls must be "error" or "impute"')
        if not isinstance(self.shuffle, bool):
            raise ParameterError("shuffle must be True or False")
        if self.n is not None and (isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 0):
            raise ParameterError("n must be a number of rows, or None")
        self._check_names()
        self._check_groups()
        allowed = budget.per_row(self.contributions)
        spent = self._spent_per_row
        if spent is not None and (spent.epsilon > allowed.epsilon or spent.delta > allowed.delta):
            raise PlanError(
                f"the plan claims epsilon={self.epsilon}, delta={self.delta} but its columns add up to "
                f"epsilon={spent.epsilon * self.contributions}, delta={spent.delta} per row; "
                "raise the claim or lower a column's epsilon"
            )

    def _check_names(self) -> None:
        for name in [*self.names, *self.drop, *self.passthrough, *self.leaks]:
            if not isinstance(name, str) or not name:
                raise PlanError("a column's name must be a string that is not empty")
            if any("\ud800" <= letter <= "\udfff" for letter in name):
                raise PlanError(f"column name {name!r} is not valid Unicode; rename it")
        seen: set[str] = set()
        for name in [*self.names, *self.drop, *self.passthrough]:
            if name in seen:
                raise PlanError(f"column {name!r} appears twice among columns, drop and passthrough")
            seen.add(name)
        stray = [name for name in self.leaks if name not in self.names]
        if stray:
            raise PlanError(f"leaks names {stray[0]!r}, which is not a randomised column")

    def _check_groups(self) -> None:
        seen: set[str] = set()
        for group in self.groups:
            for name in group.names:
                if name not in self.names:
                    raise PlanError(f"groups name {name!r}, which is not a randomised column")
                if name in seen:
                    raise PlanError(f"column {name!r} is in two groups; name it in one of them")
                seen.add(name)
                if self[name] != group.column(name):
                    raise PlanError(f"column {name!r} must have the space and the channel of its group {group.label}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the randomised columns."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """What is randomised on its own, in the columns' order: groups, and the columns outside them.

        Every unit has ``names``, a ``space``, a ``mechanism``, and what it is certified to lose; the loss of a row
        is composed of them.
        """
        first = {group.names[0]: group for group in self.groups}
        grouped = {name for group in self.groups for name in group.names}
        return tuple(first.get(c.name, c) for c in self.columns if c.name in first or c.name not in grouped)

    def group_of(self, name: str) -> Group | None:
        """Return the group that a column is in, if any."""
        return next((group for group in self.groups if name in group.names), None)

    @cached_property
    def _spent_per_row(self) -> Budget | None:
        return compose(unit.certified for unit in self.units) if self.units else None

    @property
    def release(self) -> Budget:
        """The promise for the release as a whole, replace-one, per person."""
        return Budget(self.epsilon, self.delta)

    @property
    def local(self) -> Budget:
        """The promise for one row even against someone who knows which output row it became.

        Basic composition over the columns; the secret order earns no credit yet, so it equals `release`.
        """
        return self.release

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the plan's JSON; it enters every key that noise is drawn with."""
        return hashlib.sha256(self.to_json().encode()).digest()

    def to_json(self, indent: int | None = None) -> str:
        """Return the plan as JSON text with a schema number: public facts only."""
        data = {
            "schema": SCHEMA,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n": self.n,
            "shuffle": self.shuffle,
            "contributions": self.contributions,
            "nulls": self.nulls,
            "columns": [column.to_json(grouped=self.group_of(column.name) is not None) for column in self.columns],
            "drop": list(self.drop),
            "passthrough": list(self.passthrough),
            "leaks": list(self.leaks),
        }
        if self.groups:
            data["groups"] = [group.to_json() for group in self.groups]
        return json.dumps(data, indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON text, and check it.

        Raises
        ------
        PlanError
            For text that is no plan, a newer schema, an unknown tag or field, or a claim that the columns
            exceed.
        """
        data = _json_object(text)
        schema = data.pop("schema", None)
        if type(schema) is not int or schema < 1:
            raise PlanError('this is no plan: it has no "schema" number')
        if schema > SCHEMA:
            raise PlanError(f"the plan has schema {schema}, this version reads up to {SCHEMA}; upgrade dpframe")
        known = {
            "epsilon",
            "delta",
            "n",
            "shuffle",
            "contributions",
            "nulls",
            "columns",
            "drop",
            "passthrough",
            "leaks",
            "groups",
        }
        unknown = sorted(set(data) - known)
        if unknown or not {"epsilon", "columns"} <= set(data) or not isinstance(data["columns"], list):
            what = f"the unknown field {unknown[0]!r}" if unknown else "no epsilon or no list of columns"
            raise PlanError(f"the plan has {what}")
        if not isinstance(data.setdefault("groups", []), list):
            raise PlanError("groups must be a list of groups")
        data["groups"] = tuple(group_from_json(group, data["columns"]) for group in data["groups"])
        data["columns"] = tuple(column_from_json(column, data["groups"]) for column in data["columns"])
        data.setdefault("delta", 0.0)
        try:
            return cls(**data)
        except ParameterError as error:
            raise PlanError(f"the plan is not valid: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan from a JSON file; `FileError` if there is none."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise FileError(f"{path} is not a readable plan file") from None

    def summary(self) -> pd.DataFrame:
        """Return a table with a row per randomised column, and one for all columns of a group.

        ``expected_error`` is the worst expected distance between a value and its release, in ``unit``
        (for unordered columns the chance that a value changes); ``error_bound`` is the least that any
        mechanism could have at the same budget (metric-spaces paper, Theorems 6 and 7).
        """
        import pandas as pd

        rows = [
            {
                "column": unit.label,
                "space": _short(repr(unit.space)),
                "mechanism": unit.mechanism.tag,
                "epsilon": unit.mechanism.budget.epsilon,
                "delta": unit.mechanism.budget.delta,
                "expected_error": unit.expected_error,
                "error_bound": unit.error_bound,
                "unit": unit.space.unit or ("chance of change" if unit.space.metric in UNORDERED else ""),
            }
            for unit in self.units
        ]
        names = ["column", "space", "mechanism", "epsilon", "delta", "expected_error", "error_bound", "unit"]
        return pd.DataFrame(rows, columns=names).set_index("column")

    def forecast(self, n_rows: int | None = None, types: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the standard errors to expect, without data and in closed form.

        Parameters
        ----------
        n_rows
            Rows of the table; by default those that the plan was made for.
        types
            ``{column: shares of its values}`` where they are known; otherwise values are taken as uniform,
            and the columns of a joint as independent.

        Returns
        -------
        DataFrame indexed by statistic (``marginal``, ``joint`` of two columns, ``mean``) and columns, with
        the ``std_error`` for that type and the ``worst`` over all types. Of shares it is the root mean square
        over the cells, for the unbiased inverse and the table as target; means are in ``unit``. With groups
        there are the joint of all columns of each, and ``split_error``: what ``std_error`` would be if the same
        budget were split evenly over a group's columns, each on its own. Grouping pays where it is larger.

        Raises
        ------
        ParameterError
            If the number of rows is unknown or not positive, or a type is no vector of shares.

        Examples
        --------
        >>> plan = build_plan({"sex": ["F", "M"], "age": (0, 100)}, epsilon=2.0)
        >>> plan.forecast(10_000)["std_error"].round(4)
        statistic  columns
        marginal   sex           0.0096
                   age          14.7098
        joint      sex × age    17.5329
        mean       age           1.1680
        Name: std_error, dtype: float64
        >>> grouped = build_plan({"a": [1, 2], "b": [1, 2, 3]}, epsilon=1.0, groups=[("a", "b")])
        >>> table = grouped.forecast(10_000).loc["joint"]
        >>> table.loc["a × b", ["std_error", "split_error"]].astype(float).round(4).tolist()
        [0.0163, 0.056]
        """
        n = self.n if n_rows is None else n_rows
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ParameterError("n_rows must be a number of rows, at least 1")
        return forecast_table(self.columns, n, types, self.groups)

    def verify(self) -> Certificate:
        """Prove the promise from the integers that are sampled; see `Certificate`."""
        return certify(self)

    def lines(self) -> list[str]:
        """Return the promise and what it does not cover, in plain words."""
        people = "one row" if self.contributions == 1 else f"up to {self.contributions} rows"
        text = [
            f"Release: epsilon={self.epsilon:g}, delta={self.delta:g} (replace-one, per person with {people})",
            f"Local: epsilon={self.local.epsilon:g}, delta={self.local.delta:g}, "
            "even against someone who knows which output row a person became",
            "Order: " + ("secret, uniformly random" if self.shuffle else "kept: positions are not protected"),
        ]
        if self.groups:
            text.append(
                "Randomised together, one epsilon for all: " + "; ".join(name_list(g.names) for g in self.groups)
            )
        if self.passthrough:
            text.append("NOT PROTECTED, copied as they are: " + name_list(self.passthrough))
        if self.leaks:
            text.append("NOT COVERED, spaces read off the data: " + name_list(self.leaks))
        if self.drop:
            text.append("Dropped: " + name_list(self.drop))
        return text

    def __str__(self) -> str:
        table = self.summary().to_string(float_format=lambda x: f"{x:.4g}", max_colwidth=60)
        return "\n".join([*self.lines(), "", table])

    def _repr_html_(self) -> str:
        from html import escape

        items = "".join(f"<li>{escape(line)}</li>" for line in self.lines())
        table = self.summary().to_html(float_format=lambda x: f"{x:.4g}", border=0)
        return f"<div><strong>dpframe plan</strong><ul>{items}</ul>{table}</div>"


def _short(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _json_object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise PlanError("this is no plan: it is not a JSON object")
    return data


def build_plan(
    spaces: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float | None = None,
    n: int | None = None,
    allocation: str | Mapping[Any, float] = "uniform",
    mechanisms: Mapping[str, str | Mechanism] | None = None,
    contributions: int = 1,
    shuffle: bool = True,
    nulls: str = "error",
    drop: Iterable[str] = (),
    passthrough: Iterable[str] = (),
    leaks: Sequence[str] = (),
    groups: Iterable[Sequence[str]] = (),
) -> Plan:
    """Divide a budget over columns with known spaces and calibrate their mechanisms.

    ``mechanisms`` names other mechanisms than the spaces' own by their tags, or gives ready ones: these cost
    what they are certified to lose, and the other columns divide the rest. ``delta=None`` is δ = 0: no
    mechanism needs it while columns compose basically. With δ > 0 every column is calibrated to its share of ε
    and of δ. ``groups`` are randomised together, each column list by one channel on its tuples; a group's share is
    that of all its columns, unless ``allocation={("sex", "income"): 0.4}`` says otherwise. See `Plan` for the
    other parameters.
    """
    budget = Budget(epsilon, 0.0 if delta is None else delta).per_row(contributions)
    known = {name: as_space(spec) for name, spec in spaces.items()}
    columns, joined = build_units(known, budget, allocation, mechanisms or {}, groups)
    return Plan(
        epsilon=epsilon,
        delta=0.0 if delta is None else delta,
        columns=columns,
        n=n,
        shuffle=shuffle,
        contributions=contributions,
        nulls=nulls,
        drop=tuple(drop),
        passthrough=tuple(passthrough),
        leaks=tuple(leaks),
        groups=joined,
    )
