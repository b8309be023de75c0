"""The plan: a frozen, public description of how a table is randomised. It travels with every release."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpframe.accounting import composed_epsilon
from dpframe.accounting.budget import Budget, check_epsilon, compose, round_down
from dpframe.accounting.gaussian_dp import Step, composed_steps, promise_step
from dpframe.accounting.unit import Unit
from dpframe.codec import parameters
from dpframe.errors import FileError, ParameterError, PlanError, check_whole
from dpframe.plan.accounting_gains import gains_table, split_mechanisms
from dpframe.plan.beliefs import PRIORS, belief_table
from dpframe.plan.calibration import Terms, recalibrate
from dpframe.plan.certificate import Certificate, certify
from dpframe.plan.columns import Column, Group, Randomised, parted
from dpframe.plan.explanation import Explanation, explained
from dpframe.plan.findings import NotFound, judge
from dpframe.plan.forecast import forecast_table
from dpframe.plan.inferred import Inferred
from dpframe.plan.measured_forecast import with_tables
from dpframe.plan.measures import SLACK, Measure, check_measures, measures_step
from dpframe.plan.notebook import notebook_html
from dpframe.plan.rules import BoundRules, Rule, as_rules
from dpframe.plan.sample_size import sample_curve
from dpframe.plan.steps import central_budget, row_cap, rows_budget, steps_of, terms_of
from dpframe.plan.text import fields_of, read_fields, read_parts, schema_of
from dpframe.plan.words import digits, on_a_screen, plan_lines, plan_text, summary_table
from dpframe.spaces import Space
from dpframe.threads import one_thread

if TYPE_CHECKING:
    import pandas as pd

NULLS = ("error", "impute")

MOST_PERSON_ROWS = 255
"""Most rows of a person that are chosen."""

_MOST_ROWS = (1 << 62) - 1
"""Positions beyond it have no place in the keystream."""


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
    sample
        Rows that are chosen in secret and released, of the ``n`` there are; None for all.
    inferred
        What private inference of spaces spent of the promise, and what it measured.
    keeps_index
        Whether a DataFrame's index, which may name persons, is copied *unprotected*; only rows in their order have it.
    local_epsilon
        The most that `local` may be, for those who will not rest everything on the secrecy of the order.
    reused
        What the inference of another plan cost whose spaces were taken, without its counts: a ledger enters it once.
    measures
        Tables that are measured beside the rows, of all rows of the table even where a sample is released: they lie
        outside the sample, and it earns them no credit.
    privacy_id
        The column that names the person of a row, if rows are chosen by it: ``contributions`` of every person. It does
        not leave.
    rules
        Public facts between columns, which every row is made to keep before it is counted or randomised.

    Raises
    ------
    PlanError
        If columns appear twice, or in two groups, or spend more than the promise.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> plan = build_plan({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0)
    >>> plan.summary()[["mechanism", "epsilon"]]
                      mechanism  epsilon
    column
    age                 laplace      0.5
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
    sample: int | None = None
    inferred: Inferred | None = None
    keeps_index: bool = False
    local_epsilon: float | None = None
    reused: Inferred | None = None
    measures: tuple[Measure, ...] = ()
    privacy_id: str | None = None
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name in ("columns", "drop", "passthrough", "leaks", "groups", "measures"):
            if not isinstance(getattr(self, name), list | tuple):
                own = name in ("columns", "groups", "measures")
                raise PlanError(f"{name} must be a list of {name if own else 'column names'}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        budget = Budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", budget.epsilon)
        object.__setattr__(self, "delta", budget.delta)
        if self.nulls not in NULLS:
            raise ParameterError('nulls must be "error" or "impute"')
        if not isinstance(self.shuffle, bool):
            raise ParameterError("shuffle must be True or False")
        if not isinstance(self.keeps_index, bool) or (self.keeps_index and self.shuffle):
            raise ParameterError("keeps_index must be False, or True with shuffle=False: an index tells the order")
        if self.local_epsilon is not None:
            object.__setattr__(self, "local_epsilon", check_epsilon(self.local_epsilon, "local_epsilon"))
        if self.n is not None and (
            isinstance(self.n, bool) or not isinstance(self.n, int) or not 0 <= self.n <= _MOST_ROWS
        ):
            raise ParameterError("n must be a number of rows, below 2^62, or None")
        rows = check_whole(self.contributions, "contributions", of="rows per person")
        object.__setattr__(self, "contributions", rows)
        self._check_names()
        self._check_groups()
        self._check_persons()
        self._check_units()
        object.__setattr__(self, "rules", as_rules(self.rules))
        _ = self.bound_rules
        if self.sample is not None:
            self._check_sample(self.sample)
        if self.measures:
            self._check_measures()
        if not self.terms.allow(self.units):
            raise PlanError(self._excess())

    def _check_sample(self, sample: int) -> None:
        if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
            raise ParameterError('sample must be a whole number of rows, at least 1, or "optimal"')
        if self.n is None or sample > self.n:
            rows = "the plan does not know how many there are" if self.n is None else f"there are {self.n:,}"
            raise ParameterError(f"sample={sample:,} rows cannot be chosen: {rows}; leave sample out or lower it")

    def _check_persons(self) -> None:
        if self.privacy_id is None:
            return
        if not isinstance(self.privacy_id, str) or not self.privacy_id:
            raise PlanError('privacy_id must be the name of a column, e.g. privacy_id="patient"')
        if self.privacy_id in (*self.names, *self.passthrough):
            raise PlanError(f"privacy_id {self.privacy_id!r} does not leave; take it out of spaces and of passthrough")
        if not self._secret:
            raise PlanError(
                "privacy_id needs rows in a secret order, as a person's rows may stand anywhere; leave shuffle=False, "
                "passthrough and keeps_index out"
            )
        check_whole(self.contributions, "contributions", 1, MOST_PERSON_ROWS, of="rows of a person beside privacy_id")

    def _check_units(self) -> None:
        # Without a unit of its own, as older versions wrote them, an inference is none that a plan can be refused for.
        for found in (self.inferred, self.reused):
            refusal = None if found is None else found.refusal(self.unit, self.unit)
            if refusal is not None:
                raise PlanError(refusal)

    def _check_measures(self) -> None:
        if self.delta == 0:
            raise ParameterError("measured tables need delta above 0; raise delta, or leave measures out")
        check_measures(self.measures, self.spaces)
        composed = self.inferred is not None and self.inferred.step is not None
        if composed and self.terms.shuffled_rows is None:
            # In known order what inference gave may not decide which tables are measured (`terms_of`).
            raise ParameterError("measures beside inference that is composed need a secret order; make the plan anew")

    @cached_property
    def spaces(self) -> Mapping[str, Space]:
        """The space of each randomised column, by its name."""
        return {column.name: column.space for column in self.columns}

    @cached_property
    def bound_rules(self) -> BoundRules:
        """The rules in the columns' codes."""
        return BoundRules.of(self.rules, self.spaces)

    @cached_property
    def tables_step(self) -> Step | None:
        """What the measured tables cost a person; None without tables."""
        return measures_step(self.measures, self.spaces, self.contributions, self.delta)

    def _excess(self) -> str:
        inside, lost = self.terms.sampled_budget, self.local_sum
        return (
            f"the plan claims epsilon={self.epsilon}, delta={self.delta} but its columns add up to "
            f"epsilon={lost.epsilon * self.contributions}, delta={lost.delta} per row, which costs "
            f"delta={self.terms.delta_of(self.units).value:.4g} at epsilon={inside.epsilon:.6g} where "
            f"{inside.delta:.4g} is allowed; raise the claim or lower a column's epsilon"
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
    def unit(self) -> Unit:
        """Whom the promise is for."""
        return Unit.promised(self.contributions, self.privacy_id)

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
    def units(self) -> tuple[Randomised, ...]:
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
    def local_sum(self) -> Budget:
        """The columns' certified losses added up: one row's loss by basic composition."""
        return compose(unit.certified for unit in self.units) if self.units else Budget(5e-324)

    @cached_property
    def terms(self) -> Terms:
        """What the promise rests on: the budget of a row, and whether its order and sample are secret."""
        return terms_of(
            self.release,
            self.inferred,
            self.n,
            self.sample,
            self._secret,
            self.contributions,
            self.local_epsilon,
            self.tables_step,
        )

    @property
    def _secret(self) -> bool:
        return self.shuffle and not self.passthrough

    @cached_property
    def released(self) -> Budget:
        """What the release of rows and tables may cost a person, beside an inference that is paid for already."""
        if self.inferred is None or self.inferred.step is None:
            return self.terms.budget
        return rows_budget(self.units, self.terms, self.steps)

    @cached_property
    def steps(self) -> dict[str, Step]:
        """What each part of the release costs a person in the currency in which everything adds up.

        See `dpframe.accounting.gaussian_dp`. Rows in secret order are one step, in known order one for every column of
        each of a person's rows.
        """
        return steps_of(self.units, self.terms, self.inferred, self.tables_step)

    @property
    def step(self) -> Step:
        """What the release costs in all."""
        return composed_steps(self.steps.values())

    @property
    def step_beside_inference(self) -> Step:
        """What the release costs where its inference is paid for already."""
        return composed_steps(step for name, step in self.steps.items() if name != "inference")

    def nulls_of(self, name: str) -> str:
        """Return what a null in a column means: what inference chose a space for is coded without complaint."""
        return "impute" if name in self.imputed else self.nulls

    @property
    def imputed(self) -> tuple[str, ...]:
        """The columns whose spaces inference gave: whatever stands there has a code."""
        found = [one for one in (self.inferred, self.reused) if one is not None]
        return tuple(name for whole in found for one in whole.each for name in one.columns)

    @cached_property
    def not_found(self) -> tuple[NotFound, ...]:
        """The columns whose spaces private inference did not find, each with the reason; see `InferenceWarning`."""
        return () if self.inferred is None or self.n is None else judge(self.inferred, self.columns, self.n)

    @property
    def release(self) -> Budget:
        """The promise for the release as a whole, replace-one, per person."""
        return Budget(self.epsilon, self.delta)

    @cached_property
    def local(self) -> Budget:
        """The promise for each row, even against someone who knows which output row it became.

        The columns' losses, composed, and what inference and measured tables spent: their counts are of this row as
        well, and no order hides them. Where neither order nor sample earns credit it is the promise itself.
        """
        kept = self.terms.shuffled_rows is None or any(unit.step for unit in self.units)
        if kept and not self.terms.samples:
            cap = math.inf if self.local_epsilon is None else self.local_epsilon
            return Budget(min(self.epsilon, cap), self.delta)
        return self._local_rows if self._beside is None else compose([self._local_rows, self._beside])

    @property
    def located(self) -> Budget:
        """What a person may lose to someone who knows which released rows are theirs: at least the promise."""
        if self.local == self.release:  # which speaks of a person already
            return self.release
        theirs = compose([self.local] * self.contributions)
        return theirs if theirs.epsilon > self.release.epsilon else self.release

    @cached_property
    def _beside(self) -> Budget | None:
        return central_budget(self.inferred, self.tables_step, self.delta)

    @property
    def _local_delta(self) -> float:
        # Not `less`: the ε of inference on its own may be above the promise, where little is left for the rows.
        spent = Fraction(0) if self._beside is None else Fraction(self._beside.delta)
        return round_down(Fraction(self.delta) - spent)

    @property
    def _local_rows(self) -> Budget:
        """The columns' losses composed: basically, or by their privacy-loss distributions at the δ of the rows."""
        basic, delta = self.local_sum, self._local_delta
        if basic.delta > 0 or delta == 0:
            return basic
        epsilon = composed_epsilon([unit.column_loss for unit in self.units], delta)
        return Budget(min(epsilon, basic.epsilon) or 5e-324, delta)

    def check_rows(self, n: int) -> None:
        """Raise `PlanError` for a table of too few rows: the credit of the plan's order and sample needs them."""
        needed = self.sample is not None or self.terms.shuffled_rows is not None
        if needed and self.n is not None and n < self.n and not replace(self.terms, rows=None).allow(self.units):
            raise PlanError(
                f"the plan was made for {self.n:,} rows and the table has {n:,}: fewer rows hide each other less; "
                f"plan.replan({n}) calibrates it anew"
            )

    @one_thread
    def replan(self, n: int) -> Plan:
        """Return the plan for another number of rows: the same promise and shares, calibrated anew.

        A sample keeps its share of the rows.

        Examples
        --------
        >>> from dpframe.plan import build_plan
        >>> plan = build_plan({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0, n=1_000)
        >>> [round(p["sex"].mechanism.epsilon, 1) for p in (plan, plan.replan(1_000_000))]
        [1.9, 5.1]
        """
        n = check_whole(n, "n", of="rows")
        sample = None if self.sample is None or not self.n else max(1, self.sample * n // self.n)
        return self._recalibrated(replace(self.terms, rows=n, sample=sample))

    def resampled(self, sample: int | None) -> Plan:
        """Return the plan for another sample, calibrated anew; the plan itself for None."""
        return self if sample is None else self._recalibrated(replace(self.terms, sample=sample))

    def _recalibrated(self, terms: Terms) -> Plan:
        own = None if self.inferred is None else self.inferred.step
        measured = self.terms.shuffled_rows is not None and not any(unit.step for unit in self.units)
        if self.local_epsilon is not None and own is not None and measured:
            # Which tables there are follows from what inference gave: rows have what all that is left would leave.
            left = max(0.0, float(promise_step(self.release).square - own.square))
            most = Step(math.sqrt(left) * (1 - 1e-12), SLACK * self.delta)
            terms = replace(terms, local=row_cap(self.release, self.inferred, most, self.local_epsilon))
        columns, groups = parted(recalibrate(self.units, terms), self.names)
        return replace(self, n=terms.rows, sample=terms.sample, columns=columns, groups=groups)

    @property
    def schema(self) -> int:
        """The oldest schema that says all of the plan: its digest enters every key, and stays where nothing is new."""
        return schema_of(self)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the plan's JSON; it enters every key that noise is drawn with.

        The ids and units of inferences are left out: they tell of spends, and change nothing about how rows are
        randomised.
        """
        nameless = replace(
            self,
            inferred=None if self.inferred is None else self.inferred.nameless,
            reused=None if self.reused is None else self.reused.nameless,
        )
        return hashlib.sha256(nameless.to_json().encode()).digest()

    def to_json(self, indent: int | None = None) -> str:
        """Return the plan as JSON text with a schema number: public facts only."""
        return json.dumps(fields_of(self), indent=indent, ensure_ascii=False)

    @classmethod
    @one_thread
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON text, and check it.

        Raises
        ------
        PlanError
            For text that is no plan, a newer schema, an unknown tag or field, or a claim that the columns
            exceed.
        """
        data = read_fields(text, [field.name for field in parameters(cls)])
        try:
            plan = cls(**read_parts(data))
            plan.to_json().encode()
            return plan
        except UnicodeEncodeError:
            raise PlanError("the plan holds text that is not valid Unicode; rename it") from None
        except ParameterError as error:
            raise PlanError(f"the plan is not valid: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan from a JSON file; `FileError` without one."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise FileError(f"{path} is not a readable plan file") from None

    def summary(self) -> pd.DataFrame:
        """Return a table with a row per randomised column, and one for all columns of a group.

        ``expected_error`` is the worst expected distance between a value and its release, in ``unit``
        (for unordered columns the chance that a value changes); ``error_bound`` is the least that any
        mechanism could have at the same budget (metric-spaces paper, Theorems 6 and 7). Of a column whose space
        inference did not find both are NaN, and ``unit`` is ``"not found"``.
        """
        return summary_table(self.units, {missing.column for missing in self.not_found})

    @one_thread
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
        over the cells, for the unbiased inverse and the table as target, and where it is above 1 ``unit`` says
        "no information"; means are in ``unit``. With groups
        there are the joint of all columns of each, and ``split_error``: what ``std_error`` would be if the same
        promise were kept with every group's share split evenly over its columns. Grouping pays where it is larger.
        With measured tables errors are of rows and tables together, and ``rows_alone`` is what rows would have.

        Raises
        ------
        ParameterError
            If the number of rows is unknown or not positive, or a type is no vector of shares.

        Examples
        --------
        >>> from dpframe.plan import build_plan
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
        n = check_whole(self.n if n_rows is None else n_rows, "n_rows", of="rows")
        split = split_mechanisms(self.units, self.terms) if self.groups else None
        if self.sample is None or self.n is None:
            table = forecast_table(self.columns, n, types, self.groups, split=split)
        else:
            table = forecast_table(self.columns, max(1, self.sample * n // self.n), types, self.groups, n, split)
        return with_tables(table, self.measures, self.spaces, n) if self.measures else table

    @one_thread
    def verify(self) -> Certificate:
        """Prove the promise from the integers that are sampled; see `Certificate`."""
        return certify(self)

    def sample_curve(
        self, statistic: str = "joint", columns: Sequence[str] | None = None, points: int = 25
    ) -> pd.DataFrame:
        """Return the error of a statistic for secret samples of any size, at the same promise, and which is best.

        Parameters
        ----------
        statistic
            ``"joint"``, ``"marginal"`` (the root mean square over the columns), ``"mean"`` (of one column) or
            ``"support"`` (of a rare item of sets).
        columns
            Columns of the statistic; by default all that it fits.
        points
            Sample sizes to calibrate the plan for: more than half of them even, the others about the best.

        Returns
        -------
        DataFrame indexed by ``sample``, the number of rows, with ``row_epsilon``, what the columns of one row may lose
        together, ``std_error`` as `forecast` has it, for uniform values and the table as target, and ``best``.
        ``curve["std_error"].plot(loglog=True)`` draws it.

        Where the sampling paper's Theorem III.4 holds, of the joint of all columns of a plan that are one group (or a
        single column) under randomised response, at δ = 0 and so without credit for the order, ``attrs["theorem"]``
        is the size that it finds best, and two columns bound the expected ℓ₂ error of the K cells' shares (as a root
        mean square over cells, ``std_error`` is √K smaller): ``bound_printed``, (c√K + 1)/√m as in the paper, and
        ``bound``, (c + 1)/√m, with c = (γ + K − 1)/(γ − 1). Proof of the latter: c is the norm of the channel's
        inverse on vectors that sum to 0, and of m rows the released types are within 1/√m of their law, in mean
        square, as are those of the sample of the table's.

        Raises
        ------
        ParameterError
            If the plan does not know its number of rows, or for a statistic or columns that are not known.

        Examples
        --------
        >>> from dpframe.plan import build_plan
        >>> plan = build_plan({"colour": ["red", "blue"], "size": ["s", "m", "l"]}, epsilon=0.5, delta=0.0, n=10_000)
        >>> curve = plan.sample_curve()
        >>> curve[curve["best"]].round(3)
                row_epsilon  std_error  best
        sample
        477           2.681      0.046  True
        """
        return sample_curve(self.units, self.terms, statistic, columns, points)

    @one_thread
    def accounting_gains(self) -> pd.DataFrame:
        """Return what each lever of the accounting contributes, at the same promise.

        Returns
        -------
        DataFrame with a row per accounting, from basic composition to the plan's own: ``row_epsilon``, what the
        columns of one row may lose together, ``noise``, the typical standard error of the columns' marginals
        (numeric columns: of the mean) in multiples of the plan's own, and ``in_force``.
        """
        return gains_table(self.units, self.terms)

    def beliefs(self, priors: Iterable[float] = PRIORS) -> pd.DataFrame:
        """Return between what a belief in one of two values of a person's row can be moved, a row per prior.

        Somebody who believes in one with probability π is left with 1/(1 + (1−π)/π·e^±ε), ``lower`` and ``upper``,
        except with probability δ (in ``attrs``); ``local_lower`` and ``local_upper`` hold even if they know which
        released rows are the person's (`located`).

        Raises
        ------
        ParameterError
            Unless priors lie between 0 and 1.

        Examples
        --------
        >>> from dpframe.plan import build_plan
        >>> build_plan({"sex": ["F", "M"]}, epsilon=1.0).beliefs([0.5])[["lower", "upper"]].round(3).to_dict("list")
        {'lower': [0.269], 'upper': [0.731]}
        """
        return belief_table(self.release, self.located, priors)

    @one_thread
    def explain(self) -> Explanation:
        """Return what the plan means for one person, what it costs in accuracy, and what would help most.

        Prints as text and shows as HTML in notebooks. Levers are found by making other plans, which takes seconds.

        Examples
        --------
        >>> from dpframe.plan import build_plan
        >>> told = build_plan({"sex": ["F", "M"], "ill": [True, False]}, epsilon=1.0, n=1_000, delta=0.0).explain()
        >>> told.levers["errors"].round(1).to_dict()["twice the epsilon (2)"]
        0.5
        """
        return explained(self)

    def lines(self) -> list[str]:
        """Return the promise and what it does not cover, in plain words."""
        return plan_lines(self)

    def __str__(self) -> str:
        return plan_text(self)

    def __repr__(self) -> str:
        return on_a_screen(str(self))

    def _repr_html_(self) -> str:
        return notebook_html("dpframe plan", [("", self.lines())], self.summary(), digits)
