"""Expected errors of a release before anything is spent: from only the schema, the number of rows and ε."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Unpack, overload

from dpframe.api.linked_request import expect_linked, is_linked
from dpframe.errors import ParameterError, name_list
from dpframe.inference.drafted import DraftedSpaces, drafted
from dpframe.plan.options import PlanOptions, documented
from dpframe.plan.threads import one_thread
from dpframe.release.expected_errors import Expectation
from dpframe.release.linked_plan import LinkedExpectation
from dpframe.release.planning import CheckedRequest, Request
from dpframe.tables.frames import wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.table import Table


@overload
def expect(
    table: Mapping[str, Any],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    keys: Mapping[str, Mapping[str, str]] | None = None,
    orphans: str = "error",
    max_count: Any = None,
    **options: Unpack[PlanOptions],
) -> LinkedExpectation: ...


@overload
def expect(
    table: Any, epsilon: float | None = None, delta: float | None = None, **options: Unpack[PlanOptions]
) -> Expectation: ...


@documented
@one_thread
def expect(
    table: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    keys: Mapping[str, Mapping[str, str]] | None = None,
    orphans: str = "error",
    max_count: Any = None,
    **options: Unpack[PlanOptions],
) -> Any:
    """Return the expected errors and losses of a release, before anything is spent.

    Parameters
    ----------
    table
        A DataFrame, a pyarrow Table, or the path of a Parquet or CSV file; none of its values is read.
    epsilon, delta
        The promise, as for `dpframe.plan`. With ``privacy_id`` each row is taken as a
        person's. Undeclared numbers are taken as having a thousand values, text as having five categories.
    keys, orphans, max_count
        For several tables, as for `dpframe.sanitize`; of them only the keys are read. The result has an expectation for
        each table.
    {options}

    Raises
    ------
    ParameterError, ColumnError
        As `dpframe.plan`.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(400, columns=["age", "sex", "region"])
    >>> print(expect(frame, epsilon=1))  # doctest: +ELLIPSIS
    To expect of 400 rows at epsilon=1, delta=1e-06 (95 % intervals):
      counts within ± ... of 400 rows, means within ± ... % of their range
      columns that inference will probably not find: about ... of 3, besides text of many different values
    ...
    """
    if is_linked(table, None, options):
        linked_options: Any = {"keys": keys, "orphans": orphans, "max_count": max_count}
        return expect_linked(table, epsilon, delta, options=options, **linked_options)
    source: Table = open_input(table) if isinstance(table, str | Path) else wrap(table)
    return expected(source, epsilon, delta, options)


def expected(table: Table, epsilon: float | None, delta: float | None, options: PlanOptions) -> Expectation:
    """Return the expectation of any source."""
    if options.get("infer") == "data":
        raise ParameterError('expect reads no data; leave infer="data" out')
    if (person := options.get("privacy_id")) is not None and person in table.names:
        options = {**options, "drop": (*options.get("drop", ()), person)}  # it does not leave
    request = Request(epsilon, delta, None, options, release=False)
    checked_request = CheckedRequest.of(table, request, quiet=True)
    assumptions = _describe_assumptions(checked_request, tuple(options.get("drop", ())))
    return checked_request.expectation(table.n, checked_request.typical(table), assumptions)


def _describe_assumptions(checked_request: CheckedRequest, requested_drops: Collection[str]) -> tuple[str, ...]:
    """Return the assumptions of the forecast, by which it may differ from a plan's own."""
    assumptions = []
    columns = () if checked_request.measurement is None else checked_request.measurement.columns
    if any(column.written for column in columns):
        assumptions.append(
            f"taken: each of the {len(columns)} columns to infer is text of five categories, as CSV has no types; "
            "declare spaces={…} of numbers for a nearer forecast"
        )
    elif columns:
        assumptions.append(
            f"taken: of the {len(columns)} columns to infer numbers have a thousand values, text five categories; "
            "the plan's own forecast is of the spaces that are found"
        )
    dropped_names = [name for name in checked_request.options.get("drop", ()) if name not in requested_drops]
    if dropped_names:
        assumptions.append(f"left out, as a release leaves them: {name_list(dropped_names)}")
    return tuple(assumptions)


def draft_spaces(table: Any) -> DraftedSpaces:
    """Draft spaces from the data, for the curator's eyes: code to check against the codebook, and then to pass on.

    It costs no budget as long as nobody but the curator sees it. A plan made from a draft that was not reviewed says so
    in its ``leaks``; see `DraftedSpaces.confirm`.

    Parameters
    ----------
    table
        A table as `dpframe.sanitize` takes it.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": [3, 97, 41], "sex": ["F", "M", "F"], "id": [1, 2, 3]})
    >>> print(draft_spaces(frame))  # doctest: +ELLIPSIS
    # FOR THE CURATOR ALONE: ...
    spaces = dpf.DraftedSpaces({
        "a": dpf.Integer(lower=0, upper=100, step=1),  # check: ...
        "sex": dpf.Categorical(categories=('F', 'M'), other='other'),  # check: all answers that the question allows
        # 'id' is left out: it looks like an identifier; privacy_id= takes one that names persons
    }, reviewed=False)
    """
    frame = wrap(table)
    return drafted(frame.fields(frame.names), frame.arrays, frame.texts)
