"""The one way in: from a table and a request, by way of all checks and the spend, to a plan and a key to draw with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpframe.accounting.budget import Budget, check_delta, check_epsilon
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.accounting.unit import ROW, Unit
from dpframe.api.expected_errors import expected_errors, first_lines, typical_space, warn_not_found, warn_of_nulls
from dpframe.api.identity import request_digest
from dpframe.api.ledger.account import Cost
from dpframe.api.options import (
    PlanOptions,
    check_bounded,
    check_names,
    check_ready_mechanisms,
    checked,
    hides,
    may_move_shares,
    takes,
    taking,
    widens,
)
from dpframe.channels import Mechanism
from dpframe.channels.base import check_tag
from dpframe.errors import (
    AlreadySanitizedError,
    ColumnError,
    InferenceWarning,
    LargeEpsilonWarning,
    ParameterError,
    PlanError,
    did_you_mean,
    is_one_of,
    name_list,
    warn,
)
from dpframe.noise.keystream import inference_id
from dpframe.plan.build import build_plan, default_delta
from dpframe.plan.findings import expected_losses, judge
from dpframe.plan.infer.categories import is_text
from dpframe.plan.infer.cost import Allowance, allowance
from dpframe.plan.infer.declared import (
    identifiers,
    infer_spaces,
    warn_of_copied_identifiers,
    warn_of_identifiers,
    warn_of_persons,
    warn_of_whole_bounds,
)
from dpframe.plan.infer.from_data import any_space, from_type
from dpframe.plan.infer.private import Measurement, histograms_of, rounds_of
from dpframe.plan.inferred import AskedOf, Inferred
from dpframe.plan.measuring import Wish
from dpframe.plan.plan import Plan
from dpframe.plan.rules import BoundRules
from dpframe.plan.steps import row_cap
from dpframe.plan.threads import one_thread
from dpframe.spaces import Nullable, Space
from dpframe.spaces.field import Field, is_open
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.table import Table, check_columns


@dataclass(frozen=True)
class Request:
    """What an entry point requests: a ready plan, or what decides one; and whether rows are to be released under it."""

    epsilon: float | None = None
    delta: float | None = None
    plan: Plan | None = None
    options: PlanOptions = field(default_factory=PlanOptions)
    release: bool = True

    def __post_init__(self) -> None:
        check_names(self.options)
        # What can be gone through only once is read once.
        kept = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in self.options.items()}
        object.__setattr__(self, "options", kept)
        if self.plan is None:
            if self.epsilon is None:
                raise ParameterError("give epsilon, e.g. epsilon=1.0, or a plan")
            return
        check_plan(self.plan)
        if self.epsilon is not None or self.delta is not None or self.options:
            extra = next(iter(self.options), "epsilon" if self.epsilon is not None else "delta")
            raise ParameterError(f"{extra} is already decided by the plan; give one or the other")

    @cached_property
    def digest(self) -> bytes:
        """A digest of all that decides the output except input and key."""
        return request_digest(self.epsilon, self.delta, self.options) if self.plan is None else self.plan.digest


def check_plan(plan: Any) -> None:
    """Raise `ParameterError` for what is no plan."""
    if not isinstance(plan, Plan):
        # A path here is as often meant to be written as to be read.
        written = '; a path to write is target="…"' if isinstance(plan, str | Path) else ""
        raise ParameterError(f"plan must be a Plan; Plan.read(path) reads one from a file{written}")


def raw_frame(table: Any, plan: Any, work: str) -> Frame:
    """Return the table that a plan is tried on; refuse a release."""
    check_plan(plan)
    frame = wrap(table)
    if frame.text is not None:
        raise AlreadySanitizedError(f"the table is a release already; {work} the plan on the original table")
    return frame


@dataclass(frozen=True)
class CheckedRequest:
    """A plan with everything checked that can be before anything is spent.

    Either the plan is there, or the spaces of some columns are still to be measured.
    """

    plan: Plan | None
    spaces: Mapping[str, Space]
    """Those that are known."""
    nulls: str
    promise: Budget
    imputed: Sequence[str] = ()
    """Columns whose spaces are of an earlier inference."""
    measurement: Measurement | None = None
    names: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    allowed: Allowance | None = None
    """What inference may spend."""
    wish: Wish = field(default_factory=lambda: Wish(None))
    """The tables to measure."""

    @property
    def reused(self) -> Inferred | None:
        """What the spaces of another plan cost that are taken."""
        found: Inferred | None = self.options.get("reused") if self.plan is None else self.plan.reused
        return found

    @property
    def randomised(self) -> Sequence[str]:
        """The columns that are released with noise."""
        return self.names if self.plan is None else self.plan.names

    @property
    def passthrough(self) -> Sequence[str]:
        """The columns that are released as they are."""
        found: Sequence[str] = self.options["passthrough"] if self.plan is None else self.plan.passthrough
        return found

    @property
    def unit(self) -> Unit:
        """Whom the promise is for."""
        return _unit_of(self.options) if self.plan is None else self.plan.unit

    @property
    def cost(self) -> Cost:
        """What a release of the promise costs before its plan is known."""
        curved = hides(self.options) and self.promise.delta > 0  # all of it lies under one curve
        return Cost(self.promise, promise_step(self.promise) if curved else None, unit=self.unit)

    @classmethod
    def ready(cls, plan: Plan, table: Table, request: Request) -> CheckedRequest:
        """Check a ready plan against a table."""
        warn_not_found(plan)
        warn_of_nulls(plan)
        check_columns(table.names, plan)
        _check_unit(plan.reused, plan.unit)
        if request.release:
            plan.check_rows(table.n)
        promise = Budget(plan.epsilon, plan.delta)
        return cls(plan, plan.spaces, plan.nulls, promise, plan.imputed)

    @classmethod
    def of(cls, table: Table, request: Request, quiet: bool = False) -> CheckedRequest:
        """Check a promise and its options against a table, and make the plan if no space is left to infer."""
        options = checked(request.options)
        promise = promise_of(request.epsilon, request.delta, table.n, quiet)
        check_lists(table.names, options["drop"], options["passthrough"], options["spaces"])
        columns = table.fields([n for n in table.names if n not in options["drop"] and n not in options["passthrough"]])
        columns = _without_identifiers(columns, options, quiet)
        if not quiet:
            warn_of_copied_identifiers(options["passthrough"])
        declared, infer, share, most = (options.pop(name) for name in ("spaces", "infer", "infer_share", "max_items"))
        known, left, leaks = infer_spaces(columns, declared, infer, table.arrays)
        if not quiet:
            warn_of_whole_bounds(columns, declared)
        BoundRules.of(options["rules"], known)  # refused before anything is spent
        options |= {"leaks": leaks, "n": table.n, "reused": _check_unit(_reused(declared), _unit_of(options))}
        wish = wish_of(options, promise)
        names = [column.name for column in columns]
        check_bounded(left, options)
        rounds = rounds_of(left, table.n, promise, options["contributions"])
        histograms = histograms_of(left, table.n, most, rounds)
        if not histograms:  # declarations and types say it all, and nothing is to be paid for
            known |= {column.name: space for column in left if (space := from_type(column)) is not None}
            plan = built({n: known[n] for n in names}, promise, options, wish)
            return cls(plan, plan.spaces, plan.nulls, promise, plan.imputed, options=options, wish=wish)
        # No row hides in a table of none.
        secret = hides(options) and table.n > 0
        # Without shuffling what inference gave may decide neither the columns' shares nor which tables are measured.
        fixed = options["allocation"] != "error" and wish.measure is None and not may_move_shares(options, left)
        allowed = allowance(promise, histograms, table.n, options["contributions"], share, secret, fixed)
        spent = allowed.step or allowed.budget
        measurement = Measurement.of(left, table.n, spent, options["contributions"], most, rounds=rounds)
        stand_ins = {c.name: known.get(c.name) or any_space(c) for c in columns}
        rest = promise.less(allowed.budget, "inference") if allowed.step is None else promise
        _rehearse(stand_ins, rest, left, options)
        wish.listed.measures(stand_ins, rest, allowed.step, table.n, options["contributions"])
        tables = None if wish.measure is None else wish.most(rest, allowed.step)
        check_ready_mechanisms(options, rest, allowed.step, tables)
        row_cap(promise, Inferred(allowed.budget, (), step=allowed.step), tables, options["local_epsilon"])
        return cls(None, known, options["nulls"], promise, (), measurement, names, options, allowed, wish)

    @property
    def asked(self) -> AskedOf:
        """What inference may ask of the columns."""
        return () if self.measurement is None else self.measurement.asked

    def losses(self, rows: int) -> tuple[float, int]:
        """Return how many columns inference will probably lose, and from how many rows on hardly any."""
        columns = () if self.measurement is None else self.measurement.columns
        return expected_losses(self.asked, rows, floats=[c.name for c in columns if pa.types.is_floating(c.type)])

    def typical(self, table: Table) -> Plan:
        """Return the plan, with typical spaces in place of those still to be inferred."""
        if self.plan is not None:
            return self.plan
        assert self.allowed is not None
        names = [c.name for c in self.measurement.columns] if self.measurement is not None else []
        fields = {c.name: c for c in table.fields(list(self.names))}
        spaces = {name: self.spaces.get(name) or typical_space(fields[name]) for name in self.names}
        step = self.allowed.step
        inferred = Inferred(self.allowed.budget, tuple(names), step=step, unit=self.unit)
        return built(spaces, self.promise, self.options, self.wish, inferred)

    @property
    def finds_texts(self) -> bool:
        """Whether values of text are to be found; objects, which have no type before they are read, are mostly text."""
        columns = () if self.measurement is None else self.measurement.columns
        return any(is_text(column.type) or pa.types.is_null(column.type) for column in columns)

    def widened(self, table: Table) -> Plan | None:
        """Return the plan, or about that, which says how far noise goes beyond bounds; None if it is not known to."""
        if self.plan is not None:
            return self.plan
        named = self.options["mechanisms"]
        if not any(widens(space, named[name]) for name, space in self.spaces.items() if name in named):
            return None
        # Typical spaces may not fit the mechanisms and shares that were asked for by name.
        with contextlib.suppress(ParameterError, PlanError):
            return self.typical(table)
        return None

    def expected(self, table: Table) -> list[str]:
        """Return in two lines what to expect of few rows; it depends on types and their number alone."""
        if table.n > _FEW_ROWS:
            return []
        values = {"lost": self.losses(table.n)[0]}
        # Typical spaces may not fit the mechanisms and shares that were asked for by name.
        with contextlib.suppress(ParameterError, PlanError, ColumnError):
            errors = expected_errors(self.typical(table), max(table.n, 1))
            values |= {name: value for name, (value, _) in errors.items()}
        return [line for line in first_lines(values, table.n, str(len(self.asked)), self.finds_texts) if line]

    def measured(self, table: Table, key: bytes, receipt: str | None) -> Plan:
        """Draw the spaces that are not known, and make the plan."""
        assert self.measurement is not None
        assert self.allowed is not None
        inference = self.measurement.draw(table.batches, key, table.count)
        left = tuple(column.name for column in self.measurement.columns)
        spaces = {**self.spaces, **inference.spaces}
        inferred = Inferred(
            self.allowed.budget,
            left,
            inference.measured,
            tuple(inference.threshold.items()),
            receipt,
            self.allowed.step,
            inference_id(key),
            self.unit,
            asked=self.measurement.asked,
        )
        chosen = {name: spaces[name] for name in self.names}
        plan = self._with_mechanisms(chosen, inferred)
        if table.n == 0:
            warn(
                f"the table has no rows, so that nothing is known of the spaces of {name_list(left)}: those of the "
                "plan are placeholders; declare spaces={…}",
                InferenceWarning,
            )
        warn_not_found(plan, self.expected(table) if plan.not_found else [])
        warn_of_nulls(plan)
        return plan

    def _with_mechanisms(self, spaces: Mapping[str, Space], inferred: Inferred) -> Plan:
        """Return the plan; a mechanism that an inferred space turns out not to take gives way, as all is paid for."""

        def plan_of(options: Mapping[str, Any]) -> Plan:
            return built(spaces, self.promise, options, self.wish, inferred)

        given = self.options["mechanisms"]
        open_ones = [name for name in inferred.columns if name in given]
        if not open_ones:
            return plan_of(self.options)
        try:
            return plan_of(self.options)
        except (ParameterError, PlanError) as error:
            unfit = [name for name in open_ones if not takes(spaces[name], given[name])] or open_ones
            warn(
                f"mechanisms of {name_list(unfit)} do not suit the spaces that were inferred, and give way to these "
                f"spaces' own: {error}; declare spaces={{{unfit[0]!r}: …}} to have them",
                InferenceWarning,
            )
        kept = {name: mechanism for name, mechanism in given.items() if name not in unfit}
        return plan_of({**self.options, "mechanisms": kept})


def _without_identifiers(columns: Sequence[Field], options: dict[str, Any], quiet: bool) -> list[Field]:
    """Return the columns less those that look like identifiers, which join ``drop``, with one warning.

    A table of nothing else is refused: nothing would be left.
    """
    found = [] if is_one_of(options["infer"], ["public"]) else identifiers(columns, options["spaces"])
    kept = [column for column in columns if column.name not in found]
    if not quiet and options["privacy_id"] is None and options["contributions"] == 1:
        warn_of_persons(kept, options["spaces"])
    if not found:
        return list(columns)
    if not kept:
        others = f", and so {'do' if len(found) > 2 else 'does'} {name_list(found[1:])}" if len(found) > 1 else ""
        raise ColumnError(
            f"looks like an identifier, which no noise makes useful{others}: no column is left to release; declare the "
            f"space of one to keep it, e.g. spaces={{{found[0]!r}: (LOWER, UPPER)}} of numbers or a list of categories",
            column=found[0],
        )
    options["drop"] = (*options["drop"], *found)
    if not quiet:
        warn_of_identifiers(found, options["privacy_id"] is None)
    return kept


def _reused(spaces: Any) -> Inferred | None:
    """Return what the inferences of a plan whose spaces are taken have cost: its own, and those that it took itself."""
    if not isinstance(spaces, Plan):
        return None
    own, taken = spaces.inferred, spaces.reused  # of older versions: own ones were drawn for whom that plan is
    found = [] if own is None else [replace(own, measured=(), thresholds=(), asked=None).of(spaces.unit)]
    return Inferred.together([*found, *(() if taken is None else taken.of(ROW).each)])


def _unit_of(options: Mapping[str, Any]) -> Unit:
    return Unit.promised(options["contributions"], options["privacy_id"])


def _check_unit(reused: Inferred | None, unit: Unit) -> Inferred | None:
    """Return what another plan's spaces cost; `ParameterError` if they were inferred for less than a unit."""
    refusal = None if reused is None else reused.refusal(unit, ROW)
    if refusal is not None:
        raise ParameterError(refusal)
    return reused


def wish_of(options: dict[str, Any], promise: Budget) -> Wish:
    """Take from options what is to be measured: by default nothing where the order earns no credit, or δ is 0."""
    measure, share = options.pop("measure"), options.pop("measure_share")
    named = [] if isinstance(measure, str) else list(measure or ())
    listed = tuple(table for table in named if table != "auto")
    wish = Wish("auto", share, added=listed) if measure == "auto" or len(listed) < len(named) else Wish(measure, share)
    if wish.is_default and not (hides(options) and options["n"] and promise.delta > 0):
        wish = Wish(listed or None, share)
    if wish.measure is not None and promise.delta == 0:
        raise ParameterError("measure needs delta above 0; raise delta, or pass measure=None")
    return wish


@one_thread
def built(
    spaces: Mapping[str, Space],
    promise: Budget,
    options: Mapping[str, Any],
    wish: Wish,
    inferred: Inferred | None = None,
) -> Plan:
    """Return the plan of columns whose spaces are known, and of the measured tables."""
    step = None if inferred is None else inferred.step
    whole = promise.less(inferred.budget, "inference") if inferred is not None and step is None else promise
    known = dict(spaces)
    if inferred is not None and wish.measure is not None:
        # Nothing is measured of what was not found: its estimates are NaN.
        lost = {missing.column for missing in judge(inferred, spaces, options["n"] or 0)}
        known = {name: space for name, space in spaces.items() if name not in lost}
        wish = wish.without(known, lost)
    measures = wish.measures(known, whole, step, options["n"], options["contributions"])
    # The inferred spaces decide which tables there are, but not what a capped row may lose to the rest.
    most = None if inferred is None or wish.measure is None else wish.most(whole, step)
    more: dict[str, Any] = {"inferred": inferred, "measures": measures, "most": most, **options}
    return build_plan(spaces, epsilon=promise.epsilon, delta=promise.delta, **more)


_LARGE = 10
"""An ε above which a promise is warned of."""


def promise_of(epsilon: Any, delta: Any, n: int, quiet: bool = False) -> Budget:
    """Return what an entry point promises, with the default δ of n rows; warn of one that promises next to nothing."""
    epsilon = check_epsilon(epsilon)
    if epsilon > _LARGE and not quiet:
        warn(
            f"epsilon={epsilon:g} is above {_LARGE}: one person's row may change the odds of what is released by the "
            f"factor e^{epsilon:g}, which promises next to nothing; take less, e.g. epsilon=1",
            LargeEpsilonWarning,
        )
    if epsilon < _SMALL and 0 < n * epsilon < 1 and not quiet:
        warn(
            f"epsilon={epsilon:g} needs noise of about {1 / epsilon:.3g} rows, more than there are: estimates will say "
            "nothing; take more, e.g. epsilon=1",
            InferenceWarning,
        )
    return Budget(epsilon, default_delta(n) if delta is None else check_delta(delta))


_FEW_ROWS = 2_000
"""Rows up to which a warning says what to expect of them."""


_SMALL = 1e-3
"""An ε below which mechanisms may be out of reach."""


def _rehearse(spaces: Mapping[str, Space], rest: Budget, left: Sequence[Field], options: Mapping[str, Any]) -> None:
    """Build a plan from placeholders for the unknown spaces, and discard it: so wrong options are refused early.

    Names, shares, groups and rows are checked; how much noise there is, is calibrated only where it may fail.
    """
    budget = rest if rest.epsilon < _SMALL or taking(options) else Budget(1.0, 0.0)
    unknown, chosen = {column.name for column in left}, options["mechanisms"]
    for column in left:
        if isinstance(tag := chosen.get(column.name), str):
            # What objects are is not known by their type.
            either = [] if is_open(column.type) else [spaces[column.name], Nullable(spaces[column.name])]
            check_tag(tag, column.name, [space.metric for space in either])
    # Which mechanisms fit, and what they cost, is known with the spaces.
    named = {k: getattr(tag, "tag", tag) if k in taking(options) else tag for k, tag in chosen.items()}
    chosen = {k: tag for k, tag in named.items() if k not in unknown and not isinstance(tag, Mechanism)}
    build_plan(spaces, epsilon=budget.epsilon, delta=budget.delta, **{**options, "mechanisms": chosen, "leaks": ()})


def check_lists(
    names: Sequence[str], drop: Sequence[str], passthrough: Sequence[str] = (), declared: Any = None
) -> None:
    """Refuse what names no column, or one twice; a plan that spaces are taken from may have more columns."""
    for option, given in (("drop", drop), ("passthrough", passthrough)):
        for name in given:
            if name not in names:
                several = isinstance(name, str) and name.count(",") > 0
                meant = f"write {option}={name.split(',')}; " if several else did_you_mean(name, names)
                raise ParameterError(
                    f"{option} names {name!r}, which is not a column; {meant}columns are {name_list(names)}"
                )
        twice = [name for name in given if isinstance(declared, Mapping) and name in declared]
        if twice:
            raise ParameterError(f"column {twice[0]!r} is in {option} and in spaces; name it in one of them")
    both = [name for name in drop if name in passthrough]
    if both:
        raise ParameterError(f"column {both[0]!r} is in drop and in passthrough; name it in one of them")
