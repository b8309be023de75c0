"""A run: the public agreement of all parties, made once, before anything is encrypted.

It names the curators, their columns and their public keys, the server's public key, the plan over all columns, the kind
of pads and a fresh nonce. Its digest, the run's id, is in every message and enters every key, so that no message of one
run fits another.

A coalition has or lacks four assets: another curator (whose folder has the shared secret), the server with all
messages, the researcher with the server's output and the other curators' pads, and the pad of the curator that it is
against. Every set of assets is one of five cases; the tests compare each byte by byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dpframe.disk import write_text
from dpframe.errors import FileError, ParameterError, PlanError, name_list
from dpframe.inference.drafted import check_reviewed
from dpframe.plan.build import build_plan
from dpframe.plan.columns import padded_tags
from dpframe.plan.measures import Measure
from dpframe.plan.measuring import Workload
from dpframe.plan.plan import Plan
from dpframe.plan.steps import central_budget
from dpframe.release.planning import promise_of
from dpframe.spaces import Space, as_space
from dpframe.spaces.json_form import check_names
from dpframe.vertical.keys import check_public
from dpframe.vertical.pads import PADS

COALITIONS: dict[str, frozenset[str]] = {
    "everybody": frozenset(),
    "another curator": frozenset({"curator"}),
    "the server": frozenset({"server"}),
    "the server and another curator": frozenset({"server", "curator"}),
    "all others, without the curator's pad": frozenset({"curator", "server", "researcher"}),
    "whoever has the pad alone": frozenset({"pad"}),
    "the researcher": frozenset({"researcher", "pad"}),
    "the researcher and another curator": frozenset({"curator", "researcher", "pad"}),
    "the server and the researcher": frozenset({"server", "researcher", "pad"}),
}
"""Coalitions in words, and the assets of each."""


def describe_knowledge(assets: Collection[str]) -> str:
    """Return the knowledge of a coalition about the columns of a curator outside it.

    >>> coalitions = [{"curator", "server"}, {"researcher", "pad"}, {"server", "pad"}]
    >>> tuple(describe_knowledge(assets) for assets in coalitions)
    ('nothing', 'the promise', 'everything')
    """
    # Without the pad of the curator all codes of its columns are uniform.
    if "pad" not in assets:
        return "nothing"
    if "server" in assets:
        return "everything"
    if "researcher" not in assets:
        return "the tables"
    return "the local promise" if "curator" in assets else "the promise"


RUN_SCHEMA_VERSION = 1

_NONCE = "64 hexadecimal digits, fresh for every run; leave it out"


@dataclass(frozen=True)
class Member:
    """A curator in a run: its name, its columns, and its public key."""

    name: str
    columns: tuple[str, ...]
    key: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ParameterError("a curator's name must be text that can be printed, and not empty")
        if not isinstance(self.columns, list | tuple) or not self.columns:
            raise ParameterError(f"curator {self.name} must hold one column or more")
        # Runs from JSON have lists, and must equal runs from Python.
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "key", check_public(self.key, f"the key of curator {self.name}"))


@dataclass(frozen=True)
class Run:
    """Public facts that all parties of a run know; frozen, and checked when it is made.

    Parameters
    ----------
    plan
        The plan over the columns of all curators, for their ``n`` common records. Each of its mechanisms must add noise
        in a group.
    curators
        Two or more; each column of the plan belongs to one curator.
    server
        The server's public key.
    pad
        ``"one-time"``: pads of the operating system's randomness, perfectly uniform, as large as the sample.
        ``"stream"``: pads expanded from 32 secret bytes, which hide codes from limited computing power only.
    nonce
        32 fresh random bytes in hexadecimal.

    Raises
    ------
    ParameterError, PlanError
        For curators, columns, keys or a plan that break these rules.
    """

    plan: Plan
    curators: tuple[Member, ...]
    server: str
    pad: str = "one-time"
    nonce: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "curators", tuple(self.curators))
        object.__setattr__(self, "server", check_public(self.server, "server"))
        object.__setattr__(self, "nonce", check_public(self.nonce or secrets.token_hex(32), "nonce", _NONCE))
        if self.pad not in PADS:
            raise ParameterError(f"pad must be one of {', '.join(PADS)}")
        names = [member.name for member in self.curators]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ParameterError("curators must be two or more, of different names")
        # One party in two roles would know more than `trust` states.
        keys = {self.server, *(member.key for member in self.curators)}
        if len(keys) <= len(names):
            raise ParameterError("curators and server must have different keys; let keygen make one for each")
        self._check_columns()
        self._check_plan()

    def _check_columns(self) -> None:
        column_names = [name for member in self.curators for name in member.columns]
        for name in column_names:
            if column_names.count(name) > 1:
                raise ParameterError(f"column {name!r} is held by two curators; rename it, or leave it to one of them")
        if set(column_names) != set(self.plan.names):
            stray_column = sorted(set(column_names) ^ set(self.plan.names))[0]
            raise PlanError(
                f"column {stray_column!r} must be in the plan and at one of the curators; make the run anew"
            )

    def _check_plan(self) -> None:
        plan = self.plan
        # No party sees plain values of two curators: rules and persons cannot be checked, nor spaces inferred.
        if plan.rules:
            raise PlanError("no curator sees the columns of a rule together; leave rules out of a plan of split tables")
        if plan.n is None or not plan.shuffle or plan.passthrough or plan.contributions != 1 or plan.privacy_id:
            raise PlanError(
                "the plan of a run needs the number of records n and shuffled rows, one row for each record, and "
                "nothing passed through; build it with new_run"
            )
        if plan.inferred is not None or plan.reused is not None or plan.leaks:
            raise PlanError("the plan of a run has no inferred spaces; declare each column's space")
        for unit in plan.units:
            if not unit.mechanism.adds_in_group:
                raise PlanError(
                    f"column {unit.label}: mechanism {unit.mechanism.tag} adds no noise in a group, so it cannot act "
                    f"under a pad; use {' or '.join(padded_tags(unit.space)) or 'another space'}"
                )
        for measure in plan.measures:
            if not any(set(measure.columns) <= set(member.columns) for member in self.curators):
                raise PlanError(
                    f"the table of {name_list(measure.columns)} is of two curators, and each measures only its "
                    "own columns; leave it out"
                )

    @property
    def rows(self) -> int:
        """Rows of the sample."""
        return self.plan.sample or self.plan.n or 0

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the run's JSON."""
        return hashlib.sha256(self.to_json().encode()).digest()

    @property
    def id(self) -> str:
        """The digest in hexadecimal, by which messages name their run."""
        return self.digest.hex()

    def spaces(self, names: Sequence[str]) -> dict[str, Space]:
        """Return the spaces of columns, in the plan's order."""
        return {name: space for name, space in self.plan.spaces.items() if name in names}

    def tables_of(self, member: Member) -> tuple[Measure, ...]:
        """Return the tables that a curator measures."""
        return tuple(m for m in self.plan.measures if set(m.columns) <= set(member.columns))

    def member(self, name: str) -> Member:
        """Return a curator by its name.

        Raises
        ------
        ParameterError
            If no curator has that name.
        """
        for member in self.curators:
            if member.name == name:
                return member
        names = name_list(member.name for member in self.curators)
        raise ParameterError(f"curator {name_list([str(name)])} is not in the run; its curators are {names}")

    def trust(self) -> pd.DataFrame:
        """Return the knowledge of each coalition of parties about the columns of a curator outside it, in numbers.

        Returns
        -------
        One row for each coalition, in words: ``has``, the knowledge, and its (ε, δ), replace-one. 0 is nothing,
        infinity the values of the sample.

        Examples
        --------
        >>> curators = {"alice": ({"job": ["farm", "shop"]}, "aa" * 32), "bob": ({"age": (0, 99)}, "bb" * 32)}
        >>> run = new_run(curators, "cc" * 32, n=1_000, epsilon=1)
        >>> run.trust().at["the researcher", "has"]
        'the promise'
        """
        plan = self.plan
        # Only "nothing" is exactly 0: a guarantee whose ε rounds to 0 is stated as the smallest float.
        smallest_loss = (5e-324, 0.0)
        losses = {
            "the tables": central_budget(plan.inferred, plan.tables_step, plan.delta),
            "the promise": plan.release,
            "the local promise": plan.local,
        }
        rows = []
        for assets in COALITIONS.values():
            knowledge = describe_knowledge(assets)
            if knowledge == "the tables" and not plan.measures:
                knowledge = "nothing"
            loss = losses.get(knowledge)
            certain_loss = {"nothing": (0.0, 0.0), "everything": (math.inf, 1.0)}.get(knowledge)
            rows.append((knowledge, *(certain_loss or (smallest_loss if loss is None else (loss.epsilon, loss.delta)))))
        return pd.DataFrame(rows, index=list(COALITIONS), columns=["has", "epsilon", "delta"])

    def to_json(self, indent: int | None = None) -> str:
        """Return the run as JSON text: public facts only."""
        curators = [{"name": m.name, "columns": list(m.columns), "key": m.key} for m in self.curators]
        data = {
            "schema": RUN_SCHEMA_VERSION,
            "nonce": self.nonce,
            "pad": self.pad,
            "server": self.server,
            "curators": curators,
            "plan": json.loads(self.plan.to_json()),
        }
        return json.dumps(data, indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Run:
        """Read a run from JSON text, and check it.

        Raises
        ------
        PlanError
            For text that is no run, or of a newer schema.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise PlanError("this is no run of a vertical release; new_run makes one") from None
        check_names(data, "a run", ["schema", "nonce", "pad", "server", "curators", "plan"])
        # In Python, True equals 1.
        if type(data["schema"]) is not int or data["schema"] != RUN_SCHEMA_VERSION:
            raise PlanError(f"the run has another schema, this version reads {RUN_SCHEMA_VERSION}; upgrade dpframe")
        if not isinstance(data["curators"], list) or not data["nonce"]:
            raise PlanError("a run has a list of curators, and a nonce")
        for member in data["curators"]:
            check_names(member, "a curator", ["name", "columns", "key"])
        plan = Plan.from_json(json.dumps(data["plan"], ensure_ascii=False))
        members = tuple(Member(**member) for member in data["curators"])
        return cls(plan, members, data["server"], data["pad"], data["nonce"])

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a run from a JSON file; `FileError` if it cannot be read."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise FileError(f"{path} is not a readable run; dpframe vertical plan writes one") from None

    def write(self, path: str | Path) -> None:
        """Write the run to a JSON file."""
        write_text(path, self.to_json(indent=2) + "\n")


def new_run(
    curators: Mapping[str, tuple[Mapping[str, Any], str]],
    server: str,
    *,
    n: int,
    epsilon: float,
    delta: float | None = None,
    pad: str = "one-time",
    mechanisms: Mapping[str, Any] | None = None,
    measure: Sequence[Sequence[str]] | None = None,
    measure_share: float = 0.5,
    **options: Any,
) -> Run:
    """Make a run under a fresh nonce, with its plan.

    Parameters
    ----------
    curators
        ``{name: (spaces, public key)}``: the columns of each curator with their spaces, as `dpframe.plan` takes
        them, and its public key.
    server
        The server's public key.
    n
        Records that all curators have in common.
    epsilon, delta
        Target budget, replace-one, per person, towards everybody but curators. ``delta=None`` is min(1e-6, n^−1.5).
    pad
        See `Run`.
    mechanisms
        Mechanisms by their tags, in place of the defaults under a pad: randomised response for finite columns, wrapped
        geometric noise for grids (randomised response if null is a value), bit flips for sets.
    measure
        Tables that a curator measures of its own columns, for ``measure_share`` of the budget.
    **options
        ``groups``, ``sample``, ``allocation``, ``local_epsilon`` and ``nulls`` as in `dpframe.plan.build_plan`.
        ``sample="optimal"`` is the best by this accounting; `dpframe.accounting.best_sample` is the paper's m*, which
        has no credit for the order.

    Raises
    ------
    ParameterError, PlanError
        For arguments that break the rules of a plan or of a run.

    Examples
    --------
    >>> spaces = {"alice": {"education": ["low", "high"]}, "bob": {"income": ["low", "mid", "high"]}}
    >>> keys = {"alice": "aa" * 32, "bob": "bb" * 32}
    >>> curators = {name: (spaces[name], keys[name]) for name in spaces}
    >>> run = new_run(curators, "cc" * 32, n=1_000, epsilon=1, groups=[("education", "income")], sample=500)
    >>> run.rows, Run.from_json(run.to_json()) == run
    (500, True)
    """
    members = tuple(Member(name, tuple(spaces), key) for name, (spaces, key) in curators.items())
    # A draft that nobody reviewed shows values of the data, and a run is public.
    for spaces, _ in curators.values():
        check_reviewed(spaces)
    column_spaces = {name: as_space(spec) for spaces, _ in curators.values() for name, spec in spaces.items()}
    options["groups"] = [tuple(group) for group in options.get("groups", ())]
    # The mechanism of a group covers all its columns.
    grouped_names = {name for group in options["groups"] for name in group}
    mechanism_tags = {
        name: _default_mechanism(name, space) for name, space in column_spaces.items() if name not in grouped_names
    } | dict(mechanisms or {})
    target_budget = promise_of(epsilon, delta, n, quiet=True)
    workload = Workload(None if measure is None else tuple(tuple(table) for table in measure), measure_share)
    measures = workload.measures(column_spaces, target_budget, None, n, 1)
    plan = build_plan(
        column_spaces,
        epsilon=target_budget.epsilon,
        delta=target_budget.delta,
        n=n,
        mechanisms=mechanism_tags,
        measures=measures,
        **options,
    )
    return Run(plan, members, server, pad)


def _default_mechanism(name: str, space: Space) -> str:
    tags = padded_tags(space)
    if not tags:
        raise ParameterError(
            f"column {name!r}: space {space.tag} has no noise that can act under a pad; group it, or declare it "
            "without nulls, or as a list of values"
        )
    return tags[0]
