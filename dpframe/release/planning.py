"""The one way in: from a table and a request, by way of all checks and the spend, to a plan and a key to draw with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpframe.accounting.budget import Budget, check_delta, check_epsilon
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.accounting.unit import ROW, Unit
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
    list_below,
    name_list,
    warn,
)
from dpframe.inference.categories import is_text
from dpframe.inference.cost import Allowance, allowance
from dpframe.inference.expected_losses import expected_losses
from dpframe.inference.findings import unidentified_columns
from dpframe.inference.from_data import any_space, from_type
from dpframe.inference.grids import is_number
from dpframe.inference.histogram_specs import HistogramSpecs
from dpframe.inference.inferred import Inferred
from dpframe.inference.private import Measurement, choose_rounds, list_histograms
from dpframe.ledger.account import Cost
from dpframe.noise.keystream import inference_id
from dpframe.plan.build import build_plan, default_delta
from dpframe.plan.declared import (
    identifiers,
    infer_spaces,
    warn_of_copied_identifiers,
    warn_of_identifiers,
    warn_of_persons,
    warn_of_whole_bounds,
)
from dpframe.plan.indicators import indicators_of, merged_workload, table_spaces
from dpframe.plan.measuring import Workload
from dpframe.plan.options import (
    PlanOptions,
    check_bounded,
    check_names,
    check_ready_mechanisms,
    checked,
    columns_needing_delta,
    may_move_shares,
    releases_outside_bounds,
    takes,
    uses_shuffle_amplification,
)
from dpframe.plan.plan import Plan
from dpframe.plan.rules import BoundRules
from dpframe.plan.steps import row_cap
from dpframe.plan.threads import one_thread
from dpframe.release.expected_errors import Expectation
from dpframe.release.identity import request_digest
from dpframe.release.inference_warnings import warn_not_found, warn_of_nulls
from dpframe.spaces import Categorical, Integer, Nullable, Space
from dpframe.spaces.base import numbers_of
from dpframe.spaces.field import Field, is_open
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.table import Table, check_columns


@dataclass(frozen=True)
class Request:
    """Request of an entry point: a ready plan, or budget and options of one; and whether rows are to be released."""

    epsilon: float | None = None
    delta: float | None = None
    plan: Plan | None = None
    options: PlanOptions = field(default_factory=PlanOptions)
    release: bool = True
    context: Mapping[str, Space] = field(default_factory=dict)
    """Columns of another table that these rows belong to, with their spaces: no table counts them by themselves."""
    context_inference: Inferred | None = None
    """The inference that found spaces of the context, which the other table paid."""
    table_name: str | None = None
    """Name of this table, if it is one of several that share a promise: warnings name it."""

    def __post_init__(self) -> None:
        check_names(self.options)
        # An iterator can be read only once.
        options = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in self.options.items()}
        object.__setattr__(self, "options", options)
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
    """Raise `ParameterError` for an object that is no plan."""
    if not isinstance(plan, Plan):
        # A path here is as often meant to be written as to be read.
        target_hint = '; a path to write is target="…"' if isinstance(plan, str | Path) else ""
        raise ParameterError(f"plan must be a Plan; Plan.read(path) reads one from a file{target_hint}")


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
    """The known spaces, by column."""
    nulls: str
    promise: Budget
    imputed: Sequence[str] = ()
    """Columns whose spaces are of an earlier inference."""
    measurement: Measurement | None = None
    names: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    allowed: Allowance | None = None
    """The budget of inference."""
    wish: Workload = field(default_factory=lambda: Workload(None))
    """The tables to measure."""
    table_name: str | None = None
    """Name of the table, if it is one of several that share a promise."""

    @property
    def reused(self) -> Inferred | None:
        """The inferences of another plan whose spaces are reused, with their costs."""
        inferred: Inferred | None = self.options.get("reused") if self.plan is None else self.plan.reused
        return inferred

    @property
    def randomised(self) -> Sequence[str]:
        """The columns that are released with noise."""
        return self.names if self.plan is None else self.plan.names

    @property
    def passthrough(self) -> Sequence[str]:
        """The columns that are released as they are."""
        columns: Sequence[str] = self.options["passthrough"] if self.plan is None else self.plan.passthrough
        return columns

    @property
    def unit(self) -> Unit:
        """The privacy unit of the promise."""
        return _unit_of(self.options) if self.plan is None else self.plan.unit

    @property
    def cost(self) -> Cost:
        """The cost of a release of the promise before its plan is known."""
        has_curve = (
            uses_shuffle_amplification(self.options) and self.promise.delta > 0
        )  # all of it lies under one curve
        return Cost(self.promise, promise_step(self.promise) if has_curve else None, unit=self.unit)

    @classmethod
    def ready(cls, plan: Plan, table: Table, request: Request) -> CheckedRequest:
        """Check a ready plan against a table."""
        warn_not_found(plan, table_name=request.table_name)
        warn_of_nulls(plan, request.table_name)
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
        if request.context:
            options["spaces"] = {**(options["spaces"] or {}), **request.context}
        # Of tables that share a promise only the whole promise is warned of.
        promise = promise_of(request.epsilon, request.delta, table.n, quiet or request.table_name is not None)
        check_lists(table.names, options["drop"], options["passthrough"], options["spaces"])
        columns = table.fields([n for n in table.names if n not in options["drop"] and n not in options["passthrough"]])
        # Identifiers leave before inference, which would spend budget on their values.
        columns = _drop_identifiers(columns, options, quiet)
        if not quiet and options["passthrough"]:
            warn_of_copied_identifiers(options["passthrough"])
        declared, infer, share, max_set_items = (
            options.pop(name) for name in ("spaces", "infer", "infer_share", "max_items")
        )
        known_spaces, unknown_columns, leaks = infer_spaces(columns, declared, infer, table.arrays)
        if not quiet:
            warn_of_whole_bounds(columns, declared)
        BoundRules.of(options["rules"], known_spaces)  # refused before anything is spent
        if options["weights"] is not None:
            _check_weights(options["weights"], known_spaces)
        reused = request.context_inference
        if isinstance(declared, Plan):
            reused = _reused_inference(declared, _unit_of(options))
        options |= {"leaks": leaks, "n": table.n, "reused": _check_unit(reused, _unit_of(options))}
        wish = replace(wish_of(options, promise), context=tuple(request.context))
        names = [column.name for column in columns]
        check_bounded(unknown_columns, options)
        rounds = choose_rounds(unknown_columns, table.n, promise, options["contributions"])
        histograms = list_histograms(unknown_columns, table.n, max_set_items, rounds)
        if not histograms:  # declarations and types say it all, and nothing is to be paid for
            known_spaces |= {
                column.name: space for column in unknown_columns if (space := from_type(column)) is not None
            }
            plan = built({n: known_spaces[n] for n in names}, promise, options, wish)
            return cls(plan, plan.spaces, plan.nulls, promise, plan.imputed, options=options, wish=wish)
        # No row hides in a table of none.
        is_shuffled = uses_shuffle_amplification(options) and table.n > 0
        # Without shuffling the result of inference may decide neither the columns' shares nor the measured tables.
        has_fixed_tables = (
            options["allocation"] != "error" and wish.measure is None and not may_move_shares(options, unknown_columns)
        )
        inference_allowance = allowance(
            promise, histograms, table.n, options["contributions"], share, is_shuffled, has_fixed_tables
        )
        inference_cost = inference_allowance.step or inference_allowance.budget
        measurement = Measurement.of(
            unknown_columns, table.n, inference_cost, options["contributions"], max_set_items, rounds=rounds
        )
        stand_ins = {c.name: known_spaces.get(c.name) or any_space(c) for c in columns}
        remaining_budget = (
            promise.less(inference_allowance.budget, "inference") if inference_allowance.step is None else promise
        )
        # Options that cannot work are refused now, before inference is paid for.
        _check_by_dry_run(stand_ins, remaining_budget, unknown_columns, options)
        indicators = indicators_of(options["rules"], stand_ins)
        merged_workload(wish, indicators).listed.measures(
            table_spaces(indicators, stand_ins),
            remaining_budget,
            inference_allowance.step,
            table.n,
            options["contributions"],
        )
        tables = None if wish.measure is None else wish.most(remaining_budget, inference_allowance.step)
        check_ready_mechanisms(options, remaining_budget, inference_allowance.step, tables)
        row_cap(
            promise,
            Inferred(inference_allowance.budget, (), step=inference_allowance.step),
            tables,
            options["local_epsilon"],
        )
        # Values outside a reused inferred space have a code as well.
        imputed = () if reused is None else [name for past in reused.each for name in past.columns]
        return cls(
            None,
            known_spaces,
            options["nulls"],
            promise,
            imputed,
            measurement,
            names,
            options,
            inference_allowance,
            wish,
            request.table_name,
        )

    @property
    def asked(self) -> HistogramSpecs:
        """The histograms that inference may measure of the columns."""
        return () if self.measurement is None else self.measurement.asked

    def expectation(self, rows: int, plan: Plan | None, assumed: tuple[str, ...] = ()) -> Expectation:
        """Return the expected errors of a plan, and how many columns inference will probably lose."""
        columns = () if self.measurement is None else self.measurement.columns
        floats = [column.name for column in columns if pa.types.is_floating(column.type)]
        lost_columns, rows_without_losses = expected_losses(self.asked, rows, floats=floats)
        lost = None if self.measurement is None else (lost_columns, len(columns))
        return Expectation.of(
            plan, rows, self.promise, lost, rows_without_losses, texts=self.finds_texts, assumed=assumed
        )

    def typical(self, table: Table) -> Plan:
        """Return the plan, with typical spaces in place of those still to be inferred."""
        if self.plan is not None:
            return self.plan
        assert self.allowed is not None
        names = [c.name for c in self.measurement.columns] if self.measurement is not None else []
        fields = {c.name: c for c in table.fields(list(self.names))}
        spaces = {name: self.spaces.get(name) or _typical_space(fields[name]) for name in self.names}
        step = self.allowed.step
        # Without noisy counts: typical spaces stand for an inference that has not run.
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
        if not any(releases_outside_bounds(space, named[name]) for name, space in self.spaces.items() if name in named):
            return None
        # Typical spaces may not fit the mechanisms and shares that were asked for by name.
        with contextlib.suppress(ParameterError, PlanError):
            return self.typical(table)
        return None

    def expected(self, table: Table) -> list[str]:
        """Return two lines on the expected errors of few rows; they depend on types and the number of rows alone."""
        if table.n > _FEW_ROWS:
            return []
        try:
            return self.expectation(table.n, self.typical(table)).first_lines
        except (ParameterError, PlanError, ColumnError):
            # Typical spaces may not fit the mechanisms and shares that were asked for by name.
            return self.expectation(table.n, None).first_lines

    def measured(self, table: Table, key: bytes, receipt: str | None) -> Plan:
        """Draw the spaces that are not known, and make the plan."""
        assert self.measurement is not None
        assert self.allowed is not None
        inference = self.measurement.draw(table.batches, key, table.count)
        inferred_columns = tuple(column.name for column in self.measurement.columns)
        spaces = {**self.spaces, **inference.spaces}
        inferred = Inferred(
            self.allowed.budget,
            inferred_columns,
            inference.measured,
            tuple(inference.threshold.items()),
            receipt,
            self.allowed.step,
            inference_id(key),
            self.unit,
            asked=self.measurement.asked,
        )
        ordered_spaces = {name: spaces[name] for name in self.names}
        plan = self._plan_with_mechanisms(ordered_spaces, inferred)
        if table.n == 0:
            warn(
                f"the table has no rows, so that the plan's spaces of {name_list(inferred_columns)} are "
                f"placeholders; declare spaces={{{inferred_columns[0]!r}: …}}",
                InferenceWarning,
            )
        if plan.not_found:
            is_written = any(column.written for column in self.measurement.columns)
            warn_not_found(plan, self.expected(table), is_written, self.table_name)
        warn_of_nulls(plan, self.table_name)
        return plan

    def _plan_with_mechanisms(self, spaces: Mapping[str, Space], inferred: Inferred) -> Plan:
        """Return the plan; a mechanism that an inferred space turns out not to take gives way, as all is paid for."""

        def plan_of(options: Mapping[str, Any]) -> Plan:
            return built(spaces, self.promise, options, self.wish, inferred)

        mechanisms = self.options["mechanisms"]
        inferred_names = [name for name in inferred.columns if name in mechanisms]
        if not inferred_names:
            return plan_of(self.options)
        try:
            return plan_of(self.options)
        except (ParameterError, PlanError) as error:
            # If no single mechanism is to blame, all inferred columns fall back to their spaces' own.
            unfit_names = [
                name for name in inferred_names if not takes(spaces[name], mechanisms[name])
            ] or inferred_names
            warn(
                f"mechanisms of {name_list(unfit_names)} do not suit the inferred spaces, whose default mechanisms "
                f"replace them; declare spaces={{{unfit_names[0]!r}: …}}:{list_below([str(error)])}",
                InferenceWarning,
            )
        fitting_mechanisms = {name: mechanism for name, mechanism in mechanisms.items() if name not in unfit_names}
        return plan_of({**self.options, "mechanisms": fitting_mechanisms})


def _typical_space(column: Field) -> Space:
    """Return a space like those that columns of a type often have."""
    space: Space
    if is_number(column.type):
        space = Integer(0, 999)
    elif is_text(column.type) or pa.types.is_null(column.type):
        space = Categorical(tuple("abcde"))
    else:
        return any_space(column)
    return Nullable(space) if column.nullable else space


def _drop_identifiers(columns: Sequence[Field], options: dict[str, Any], quiet: bool) -> list[Field]:
    """Return the columns less those that look like identifiers, which join ``drop``, with one warning.

    A table of nothing else is refused: nothing would be left.
    """
    identifier_names = [] if is_one_of(options["infer"], ["public"]) else identifiers(columns, options["spaces"])
    remaining_columns = [column for column in columns if column.name not in identifier_names]
    if not quiet and options["privacy_id"] is None and options["contributions"] == 1:
        warn_of_persons(remaining_columns, options["spaces"])
    if not identifier_names:
        return list(columns)
    if not remaining_columns:
        others_text = (
            f", and so {'do' if len(identifier_names) > 2 else 'does'} {name_list(identifier_names[1:])}"
            if len(identifier_names) > 1
            else ""
        )
        raise ColumnError(
            f"looks like an identifier, which no noise makes useful{others_text}: no column is left to release; "
            f"declare spaces={{{identifier_names[0]!r}: (LOWER, UPPER)}}",
            column=identifier_names[0],
        )
    options["drop"] = (*options["drop"], *identifier_names)
    if not quiet:
        warn_of_identifiers(identifier_names, options["privacy_id"] is None)
    return remaining_columns


def _reused_inference(plan: Plan, unit: Unit) -> Inferred | None:
    """Return the inferences of a plan whose spaces are reused: its own, and the ones that it reuses itself.

    `ParameterError` if they protect less than a unit.
    """
    inferences: list[Inferred] = []
    if plan.inferred is not None:
        # Plans of older versions state no unit: their own inference was drawn for whom the plan is.
        inferences.append(replace(plan.inferred, measured=(), thresholds=(), asked=None).of(plan.unit))
    if plan.reused is not None:
        inferences += plan.reused.of(ROW).each
    return _check_unit(Inferred.together(inferences), unit)


def _unit_of(options: Mapping[str, Any]) -> Unit:
    return Unit.promised(options["contributions"], options["privacy_id"])


def _check_unit(reused: Inferred | None, unit: Unit) -> Inferred | None:
    """Return another plan's inferences; `ParameterError` if they protect less than a unit."""
    refusal = None if reused is None else reused.refusal(unit, ROW)
    if refusal is not None:
        raise ParameterError(refusal)
    return reused


def _check_weights(weights: str, spaces: Mapping[str, Space]) -> None:
    """Raise `ParameterError` unless weights are a column of numbers with declared bounds from 0 on."""
    space = spaces.get(weights)
    is_number = space is not None and space.is_numeric and not space.is_listed and not space.is_time
    if space is None or not is_number or numbers_of(space, np.zeros(1, dtype=np.int64))[0] < 0:
        raise ParameterError(
            f"weights names {weights!r}, which has no declared bounds from 0 on; declare spaces={{{weights!r}: "
            "(0, HIGHEST)}"
        )


def wish_of(options: dict[str, Any], promise: Budget) -> Workload:
    """Take the tables to measure from options: by default none if the order earns no credit, or δ is 0."""
    measure, share, weights = (options.pop(name) for name in ("measure", "measure_share", "weights"))
    requested_tables = [] if isinstance(measure, str) else list(measure or ())
    listed_tables = tuple(table for table in requested_tables if table != "auto")
    wish = (
        Workload("auto", share, added=listed_tables)
        if measure == "auto" or len(listed_tables) < len(requested_tables)
        else Workload(measure, share)
    )
    if wish.is_default and not (uses_shuffle_amplification(options) and options["n"] and promise.delta > 0):
        wish = Workload(listed_tables or None, share)
    if weights is not None:
        if not (uses_shuffle_amplification(options) and options["n"] and promise.delta > 0):
            raise ParameterError(
                "weights are measured tables, which need shuffled rows and delta above 0; leave them out"
            )
        wish = replace(wish, weights=weights)
    # Gaussian noise on tables needs a δ.
    if wish.measure is not None and promise.delta == 0:
        raise ParameterError("measure needs delta above 0; raise delta, or pass measure=None")
    return wish


@one_thread
def built(
    spaces: Mapping[str, Space],
    promise: Budget,
    options: Mapping[str, Any],
    wish: Workload,
    inferred: Inferred | None = None,
) -> Plan:
    """Return the plan of columns whose spaces are known, and of the measured tables."""
    step = None if inferred is None else inferred.step
    remaining_budget = promise.less(inferred.budget, "inference") if inferred is not None and step is None else promise
    known_spaces = dict(spaces)
    if inferred is not None and wish.measure is not None:
        # No table of a column without inferred space is measured: its estimates are NaN.
        missing_columns = {finding.column for finding in unidentified_columns(inferred, spaces, options["n"] or 0)}
        known_spaces = {name: space for name, space in spaces.items() if name not in missing_columns}
        wish = wish.without(known_spaces, missing_columns)
    indicators = indicators_of(options["rules"], spaces)
    known_spaces, wish = table_spaces(indicators, known_spaces), merged_workload(wish, indicators)
    measures = wish.measures(known_spaces, remaining_budget, step, options["n"], options["contributions"])
    # The inferred spaces decide which tables there are, but not the capped loss of a row.
    largest_tables_step = None if inferred is None or wish.measure is None else wish.most(remaining_budget, step)
    build_options: dict[str, Any] = {"inferred": inferred, "measures": measures, "most": largest_tables_step, **options}
    return build_plan(spaces, epsilon=promise.epsilon, delta=promise.delta, **build_options)


_LARGE_EPSILON = 10
"""An ε above which a promise is warned of."""


def promise_of(epsilon: Any, delta: Any, n: int, quiet: bool = False) -> Budget:
    """Return an entry point's budget, with the default δ of n rows; warn of a budget that promises next to nothing."""
    epsilon = check_epsilon(epsilon)
    if epsilon > _LARGE_EPSILON and not quiet:
        warn(
            f"epsilon={epsilon:g} is above {_LARGE_EPSILON}: one person's row may change the odds of the release by "
            f"the factor e^{epsilon:g}; take less, e.g. epsilon=1",
            LargeEpsilonWarning,
        )
    if epsilon < _SMALL_EPSILON and 0 < n * epsilon < 1 and not quiet:
        warn(
            f"epsilon={epsilon:g} needs noise of about {1 / epsilon:.3g} rows, more than there are: estimates will say "
            "nothing; take more, e.g. epsilon=1",
            InferenceWarning,
        )
    return Budget(epsilon, default_delta(n) if delta is None else check_delta(delta))


_FEW_ROWS = 2_000
"""Rows up to which a warning adds the expected errors."""


_SMALL_EPSILON = 1e-3
"""An ε below which mechanisms may be out of reach."""


def _check_by_dry_run(
    spaces: Mapping[str, Space], remaining_budget: Budget, unknown_columns: Sequence[Field], options: Mapping[str, Any]
) -> None:
    """Build a plan from placeholders for the unknown spaces, and discard it: so wrong options are refused early.

    Names, shares, groups and rows are checked; noise is calibrated only if the calibration may fail.
    """
    budget = (
        remaining_budget
        if remaining_budget.epsilon < _SMALL_EPSILON or columns_needing_delta(options)
        else Budget(1.0, 0.0)
    )
    unknown_names, mechanisms = {column.name for column in unknown_columns}, options["mechanisms"]
    for column in unknown_columns:
        if isinstance(tag := mechanisms.get(column.name), str):
            # The type of objects does not reveal their values' type.
            possible_spaces = [] if is_open(column.type) else [spaces[column.name], Nullable(spaces[column.name])]
            check_tag(tag, column.name, [space.metric for space in possible_spaces])
    # The fit and the cost of mechanisms are known only with the spaces.
    closed_mechanisms = {
        k: getattr(tag, "tag", tag) if k in columns_needing_delta(options) else tag for k, tag in mechanisms.items()
    }
    mechanisms = {
        k: tag for k, tag in closed_mechanisms.items() if k not in unknown_names and not isinstance(tag, Mechanism)
    }
    build_plan(spaces, epsilon=budget.epsilon, delta=budget.delta, **{**options, "mechanisms": mechanisms, "leaks": ()})


def check_lists(
    names: Sequence[str], drop: Sequence[str], passthrough: Sequence[str] = (), declared: Any = None
) -> None:
    """Refuse names that are no column, or in two lists; a plan whose spaces are reused may have more columns."""
    for option, option_names in (("drop", drop), ("passthrough", passthrough)):
        for name in option_names:
            if name not in names:
                has_several_names = isinstance(name, str) and name.count(",") > 0
                suggestion = f"write {option}={name.split(',')}; " if has_several_names else did_you_mean(name, names)
                raise ParameterError(
                    f"{option} names {name!r}, which is not a column; {suggestion}columns are {name_list(names)}"
                )
        repeated_names = [name for name in option_names if isinstance(declared, Mapping) and name in declared]
        if repeated_names:
            raise ParameterError(f"column {repeated_names[0]!r} is in {option} and in spaces; name it in one of them")
    shared_names = [name for name in drop if name in passthrough]
    if shared_names:
        raise ParameterError(f"column {shared_names[0]!r} is in drop and in passthrough; name it in one of them")
