"""The plan: a frozen, public description of how a table is randomised. It travels with every release."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpframe.accounting.gaussian_dp import Step, promise_step
from dpframe.errors import FileError, ParameterError, PlanError, check_whole
from dpframe.plan.accounting_gains import gains_table
from dpframe.plan.beliefs import belief_table
from dpframe.plan.calibration import AccountingContext, recalibrate
from dpframe.plan.certificate import Certificate, certify
from dpframe.plan.columns import parted
from dpframe.plan.data import PLAN_SCHEMA_VERSION, PlanData, fields_of, read_fields, read_parts
from dpframe.plan.explanation import Explanation, explained
from dpframe.plan.measures import MEASURED_SLACK_SHARE
from dpframe.plan.notebook import notebook_html
from dpframe.plan.page import plan_page
from dpframe.plan.sample_size import sample_curve_of
from dpframe.plan.setting import forecast_of
from dpframe.plan.steps import row_cap
from dpframe.plan.threads import one_thread
from dpframe.plan.words import KEPT, digits, introduction, on_a_screen, plan_lines, plan_text, summary_of
from dpframe.spaces.json_form import parameters

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Plan(PlanData):
    """How a table is randomised: columns, order, totals, and unprotected parts.

    Parameters
    ----------
    epsilon, delta
        The promise, replace-one, per person; the columns' certified losses may not exceed it.
    columns
        The randomised columns, in the table's order.
    n
        Rows the plan was made for, if known.
    shuffle
        Whether rows leave in a secret, uniformly random order.
    contributions
        Rows that one person may own.
    nulls
        ``"error"`` or ``"impute"``: the treatment of a null in a column whose space has none.
    drop, passthrough
        Columns that are left out, and that are copied *unprotected*.
    leaks
        Columns whose space was read off the data without a budget: not covered by the promise.
    groups
        Columns that are randomised together; these columns have the group's channel, as each sees it.
    sample
        Rows that are chosen in secret and released, of the ``n`` there are; None for all.
    inferred
        Cost of private inference of spaces within the promise, and its measured counts.
    keeps_index
        Whether a DataFrame's index, which may name persons, is copied *unprotected*; only rows in their order have it.
    local_epsilon
        The most that `local` may be, for those who will not rest everything on the secrecy of the order.
    reused
        Cost of another plan's inference, whose spaces are reused, without its counts: a ledger enters it once.
    measures
        Tables that are measured in addition to the rows, of all rows of the table even if a sample is released:
        they lie outside the sample, and it earns them no credit.
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

    @one_thread
    def replan(self, n: int) -> Plan:
        """Return the plan for another number of rows: promise and shares unchanged, calibrated anew.

        A sample keeps its share of the rows.

        Examples
        --------
        >>> from dpframe.plan import build_plan
        >>> plan = build_plan({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0, n=1_000)
        >>> [round(p["sex"].mechanism.epsilon, 1) for p in (plan, plan.replan(1_000_000))]
        [1.9, 5.1]
        """
        n = check_whole(n, "n", of="rows")
        # A sample of no rows would have no release.
        sample = None if self.sample is None or not self.n else max(1, self.sample * n // self.n)
        return self._recalibrate(replace(self.terms, rows=n, sample=sample))

    def resampled(self, sample: int | None) -> Plan:
        """Return the plan for another sample, calibrated anew; the plan itself for None."""
        return self if sample is None else self._recalibrate(replace(self.terms, sample=sample))

    def _recalibrate(self, terms: AccountingContext) -> Plan:
        """Return the plan calibrated for other terms, with its shares unchanged."""
        inference_step = None if self.inferred is None else self.inferred.step
        may_have_tables = self.terms.shuffled_rows is not None and not any(unit.step for unit in self.units)
        if self.local_epsilon is not None and inference_step is not None and may_have_tables:
            # Inference decides which tables there are: rows have the cap beside the largest cost of tables.
            square_left_over = max(0.0, float(promise_step(self.release).square - inference_step.square))
            table_limit = Step(math.sqrt(square_left_over) * (1 - 1e-12), MEASURED_SLACK_SHARE * self.delta)
            terms = replace(terms, local=row_cap(self.release, self.inferred, table_limit, self.local_epsilon))
        columns, groups = parted(recalibrate(self.units, terms), self.names)
        inferred = None if self.inferred is None else self.inferred.replanned(self.n, terms.rows)
        return replace(self, n=terms.rows, sample=terms.sample, columns=columns, groups=groups, inferred=inferred)

    @property
    def schema(self) -> int:
        """The oldest schema with all of the plan's fields: it keeps the digest, which enters every key, stable."""
        # Fields that schema 2 added; rules need schema 3.
        needs_second_schema = self.local_epsilon is not None or self.reused is not None or bool(self.measures)
        needs_second_schema |= self.inferred is not None and self.inferred.step is not None
        needs_second_schema |= self.privacy_id is not None
        return PLAN_SCHEMA_VERSION if self.rules else 2 if needs_second_schema else 1

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the plan's JSON; it enters every key of the noise.

        The ids and units of inferences are left out: they identify spends, and do not change how rows are randomised.
        """
        parts = {"inferred": self.inferred, "reused": self.reused}
        nameless = {name: part.nameless.to_json() for name, part in parts.items() if part is not None}
        text = json.dumps(fields_of(self) | nameless, ensure_ascii=False)
        return hashlib.sha256(text.encode()).digest()

    def to_json(self, indent: int | None = None) -> str:
        """Return the plan as JSON text with a schema number: public facts only."""
        return json.dumps(fields_of(self), indent=indent, ensure_ascii=False)

    @classmethod
    @one_thread
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON text, and check the plan.

        Raises
        ------
        PlanError
            For text that is no plan, a newer schema, an unknown tag or field, or a claim that the columns
            exceed.
        """
        data = read_fields(text, [field.name for field in parameters(cls)])
        try:
            plan = cls(**read_parts(data))
            # Lone surrogates pass as JSON escapes, and fail only when they are encoded.
            plan.to_json().encode()
            return plan
        except UnicodeEncodeError:
            raise PlanError("the plan holds text that is not valid Unicode; rename it") from None
        except ParameterError as error:
            raise PlanError(f"the plan is not valid: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan from a JSON file; raise `FileError` without a file."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise FileError(f"{path} does not exist; dpframe plan --output writes a plan") from None
        except (OSError, UnicodeDecodeError):
            raise FileError(f"{path} is not a readable plan file; dpframe plan --output writes one") from None

    def summary(self) -> pd.DataFrame:
        """Return a table with a row per randomised column, and one for all columns of a group.

        ``expected_error`` is the worst expected distance between a value and its release, in ``unit``
        (for unordered columns the chance that a value changes); ``error_bound`` is the least that any
        mechanism could have at this budget (metric-spaces paper, Theorems 6 and 7). For a column whose space
        inference did not find both are NaN, and ``unit`` is ``"not found"``.
        """
        return summary_of(self)

    @one_thread
    def forecast(self, n_rows: int | None = None, types: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the standard errors to expect, without data and in closed form.

        Parameters
        ----------
        n_rows
            Rows of the table; by default those that the plan was made for.
        types
            ``{column: shares of its values}`` if they are known; otherwise values are taken as uniform,
            and the columns of a joint as independent.

        Returns
        -------
        DataFrame indexed by statistic (``marginal``, ``joint`` of two columns, ``mean``) and columns, with
        the ``std_error`` for that type and the ``worst`` over all types. For shares it is the root mean square
        over the cells, for the unbiased inverse and the table as target, and if it is above 1 ``unit`` says
        "no information"; means are in ``unit``. With groups
        there are the joint of all columns of each, and ``split_error``: the ``std_error`` at an equal
        promise with every group's share split evenly over its columns. Grouping pays if it is larger.
        With measured tables errors are of rows and tables together, and ``rows_alone`` is the error of rows without
        tables. Numbers that tables count in bins have the statistics ``marginal in bins`` and ``joint in bins``,
        pairs of items ``support of pairs``.

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
        return forecast_of(self, n_rows, types).table

    @one_thread
    def verify(self) -> Certificate:
        """Prove the promise from the integers that are sampled; see `Certificate`."""
        return certify(self)

    @one_thread
    def accounting_gains(self) -> pd.DataFrame:
        """Return the contribution of each lever of the accounting, at an equal budget.

        Returns
        -------
        DataFrame with a row per accounting, from basic composition to the plan's own: ``row_epsilon``, what the
        columns of one row may lose together, ``noise``, the typical standard error of the columns' marginals
        (numeric columns: of the mean) in multiples of the plan's own, and ``in_force``.
        """
        return gains_table(self)

    @one_thread
    def explain(self) -> Explanation:
        """Return the plan's meaning for one person, its cost in accuracy, and the most helpful changes.

        Prints as text and shows as HTML in notebooks. Levers are found by forecasting other plans.

        Examples
        --------
        >>> from dpframe.plan import build_plan
        >>> explained = build_plan({"sex": ["F", "M"], "ill": [True, False]}, epsilon=1.0, n=1_000, delta=0.0).explain()
        >>> explained.levers["errors"].round(1).to_dict()["twice the epsilon (2)"]
        0.5
        """
        return explained(self)

    sample_curve = sample_curve_of
    beliefs = belief_table
    page = one_thread(plan_page)

    def lines(self) -> list[str]:
        """Return how the promise is kept: both guarantees, the order of the rows, and the cost of each part."""
        return plan_lines(self)

    def __str__(self) -> str:
        return plan_text(self)

    def __repr__(self) -> str:
        return on_a_screen(str(self))

    def _repr_html_(self) -> str:
        promise_lines = [f"{KEPT}:", *self.lines()]
        return notebook_html("dpframe plan", [("", introduction(self))], self.summary(), digits, promise_lines)
