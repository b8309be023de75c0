"""Verification of a release from just itself: its plan's claims, and that its rows are the released ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.errors import ColumnError, NotSanitizedError, ParameterError, PlanError, name_list
from dpframe.plan.certificate import Certificate, certify
from dpframe.plan.data import PLAN_SCHEMA_VERSION
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.release.library import installed_library
from dpframe.release.linked_plan import LinkedPlan, certificate_together, read_plan, table_failures
from dpframe.release.noisy_tables import Cuts
from dpframe.release.reader import Source, linked_files, opened, read_info
from dpframe.release.together import link_failures
from dpframe.tables.files import FileInput
from dpframe.tables.frames import Frame
from dpframe.tables.table import Streamed


def verify(source: Any) -> Certificate:
    """Verify a release from its own description, or a plan.

    The plan's claims are proved anew (see `Certificate`), and the rows are compared with the release's own
    account of them: number, columns, types, values within their spaces, digest. The digest detects damage and
    mistakes; it is no signature: somebody who rewrites a file can make another.

    Parameters
    ----------
    source
        A released frame or file, a directory or a glob, or the folder of tables released together; or a plan, or its
        file, which ends in ``.json`` (a plan has no rows to compare).

    Returns
    -------
    A certificate; ``failures`` names every claim that does not hold.

    Raises
    ------
    FileError
        If nothing is there, or no Parquet and no plan.
    NotSanitizedError
        If the table carries no release plan.
    PlanError
        If the release has a newer schema than this version reads.

    Examples
    --------
    >>> import tempfile, pandas as pd, dpframe as dpf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source, target = f"{folder}/in.parquet", f"{folder}/out.parquet"
    ...     pd.DataFrame({"sex": ["F", "M", "F"]}).to_parquet(source, index=False)
    ...     info = dpf.sanitize(source, target, epsilon=1, spaces={"sex": ["F", "M"]})
    ...     print(str(verify(target)).splitlines()[0])
    VERIFIED: epsilon=1, delta=1e-06, replace-one, per person with one row
    """
    # A plan's file holds no rows, and is certified by itself.
    if isinstance(source, str | Path) and Path(source).suffix == ".json":
        source = read_plan(source)
    if isinstance(source, Plan | LinkedPlan):
        return source.verify()
    if files := linked_files(source):
        return verify_together(files)
    table = opened(source)
    if table.text is None:
        source_text = f"a {type(source).__name__}" if isinstance(table, Frame) else f"{source}"
        file_hint = "; if it is one, put its .dpframe.json next to it" if getattr(table, "form", "") == "CSV" else ""
        raise NotSanitizedError(f"{source_text} carries no release plan: there is nothing to verify{file_hint}")
    try:
        info = read_info(table.text)
    except PlanError as error:
        return _refute_plan(table.text, error)
    certificate = certify(info.plan)
    noun = "file" if isinstance(table, FileInput) else "table"
    failures = _table_failures(table, info, noun)
    rows = (
        []
        if failures
        else [f"the {noun} holds the {info.n:,} rows that were {_row_count_text(info)} (number, types, digest)"]
    )
    part = (
        [f"the columns kept are as they were released; left out: {name_list(info.left_out)}"] if info.left_out else []
    )
    cuts = {kind: (text,) for kind, text in _check_cuts(info).items()}
    return replace(
        certificate,
        checks=(*certificate.checks, *rows, *cuts.get("checks", ())),
        attested=(
            *certificate.attested,
            *_library_lines(info),
            *cuts.get("attested", ()),
            *part,
            *([] if info.together is None else [info.together.line]),
        ),
        failures=(*certificate.failures, *failures, *cuts.get("failures", ())),
    )


def verify_together(tables: Mapping[str, Any]) -> Certificate:
    """Verify tables that were released together: each by itself, their links, and the promise to a person.

    See `release.together.link_failures` for the links.
    """
    certificates = {name: verify(table) for name, table in tables.items()}
    infos = {name: Source(table, None, quiet=True).info for name, table in tables.items()}
    promises = {name: info.together for name, info in infos.items() if info is not None and info.together is not None}
    plans = {name: info.plan for name, info in infos.items() if info is not None}
    failures = link_failures(promises, plans)
    for name, info in infos.items():
        one = promises.get(name)
        rows = 1 if one is None or name == one.parent else plans[name].contributions
        if info is not None and one is not None and info.n != rows * one.persons:
            failures.append(f"{name}: it has no {rows} rows of each of {one.persons:,} persons")
    if set(promises) != set(tables) or any({*one.tables} != {*tables} for one in promises.values()):
        return _unreadable_certificate([*table_failures(certificates), *failures])
    return certificate_together(certificates, promises, plans, failures)


def _library_lines(info: ReleaseInfo) -> list[str]:
    """Return the library that made a release, by its own account, compared with the library that verifies it."""
    if info.library is None:
        return []
    comparison = "like" if info.library == installed_library() else "unlike"
    files = f"whose files have the SHA-256 {info.library.digest}"
    return [f"made by dpframe {info.library.version}, {files}, {comparison} those that verify it"]


def _row_count_text(info: ReleaseInfo) -> str:
    """Return words for the origin of a table's rows: released, or written with fewer columns."""
    if not info.left_out:
        return "released"
    columns = len(info.plan.names) + len(info.plan.passthrough)
    return f"written with {columns - len(info.left_out)} of the release's {columns} columns"


def _check_cuts(info: ReleaseInfo) -> dict[str, str]:
    """Recompute the bins of measured numbers from their noisy counts; return the results by a certificate's part."""
    cuts = Cuts(info.plan)
    changed_measures = [*cuts.moved(info.tables)]
    old_labels = [measure.label for measure in changed_measures if cuts.is_old(measure)]
    wrong_labels = [measure.label for measure in changed_measures if not cuts.is_old(measure)]
    if wrong_labels:
        return {
            "failures": (
                f"tables of {name_list(wrong_labels)} do not have the bins that the release's first noisy counts give"
            )
        }
    if old_labels:
        return {
            "attested": (
                f"tables of {name_list(old_labels)} have the bins that version 0.2.0 made of the first noisy counts"
            )
        }
    if all(starts is None for table in info.tables for starts in table.starts):
        return {}
    return {"checks": "bins of measured numbers have the edges that the release's first noisy counts give"}


def _table_failures(table: Frame | Streamed, info: ReleaseInfo, noun: str) -> list[str]:
    """Return the differences between a table and the released one, the plainest first."""
    plan = info.plan
    table = table.typed(plan.released_spaces)
    released_names = [name for name in (*plan.names, *plan.passthrough) if name not in info.left_out]
    stored_names = [*table.names, *(() if plan.keeps_index else table.indices)]
    lost_names, failures = [name for name in released_names if name not in table.names], list[str]()
    if lost_names:
        columns = (
            f"column {lost_names[0]!r} of the plan is"
            if len(lost_names) == 1
            else f"columns {name_list(lost_names)} of the plan are"
        )
        failures.append(
            f"{columns} not in the {noun}; write some columns of a release with dpframe.write, and they verify"
        )
    failures += [
        f"column {name!r} is in the {noun} but not in the plan" for name in stored_names if name not in released_names
    ]
    if table.n != info.n:
        failures.append(f"the {noun} has {table.n:,} rows, the release had {info.n:,}")
    # The plan's credit rests on its sample, or on as many rows.
    if plan.sample is not None:
        if info.n != plan.sample:
            failures.append(f"the plan samples {plan.sample:,} rows, the release had {info.n:,}")
    else:
        try:
            plan.check_rows(info.n)
        except PlanError:
            failures.append(f"the plan counts on {plan.n:,} rows, the release had {info.n:,}")
    if plan.measures and not info.tables:
        failures.append(
            f"the plan measures {len(plan.measures)} tables, and the {noun}'s description has none of them: they were "
            "taken out, or a curator's pad was withheld"
        )
    # Frames may hold objects, whose type follows from their values: these are encoded below.
    typed_names = [name for name in plan.names if name in table.names] if isinstance(table, FileInput) else []
    for field in table.fields(typed_names):
        try:
            plan[field.name].released.check_type(field.type)
        except ColumnError as error:
            failures.append(str(error.located(field.name)))
    if failures:
        return failures
    failure = Source(table, None, quiet=True).row_failure()
    return [] if failure is None else [failure]


def _refute_plan(text: str, error: PlanError) -> Certificate:
    """Return a certificate of a plan that cannot be read, with all that is wrong."""
    data = _read_object(text)
    # A newer schema is no fault of the release: this version cannot judge its claims.
    for part in (data, data.get("plan")):
        if isinstance(part, dict) and type(part.get("schema")) is int and part["schema"] > PLAN_SCHEMA_VERSION:
            raise error
    plan: Any = data.get("plan")
    if not isinstance(plan, dict) or not isinstance(plan.get("columns"), list):
        return _unreadable_certificate([str(error)])
    failures = [str(failure) for part in _split_plan(plan) if (failure := _plan_failure(part)) is not None]
    if failures:
        return _unreadable_certificate(failures)
    try:
        # Without a claim that it could break, the plan is certified like any other, and compared with its claim.
        claimed_budget, rows = Budget(plan["epsilon"], plan.get("delta", 0.0)), plan.get("contributions", 1)
        _ = claimed_budget.per_row(rows)
        certificate = certify(_read_leniently(plan | {"contributions": 1}), claimed_budget, rows)
    except (PlanError, ParameterError, KeyError):
        return _unreadable_certificate([str(error)])
    return replace(certificate, failures=certificate.failures or (str(error),))


def _split_plan(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan of its own for every column, or group of columns, that is randomised on its own."""
    columns = [column for column in plan["columns"] if isinstance(column, dict)]
    groups = plan.get("groups")
    groups = [g for g in groups if isinstance(g, dict)] if isinstance(groups, list) else []
    group_names = [names if isinstance(names := g.get("names"), list) else [] for g in groups]
    members = [[column for column in columns if column.get("name") in names] for names in group_names]
    # A damaged plan may have two equal columns: only identity keeps them apart.
    grouped_ids = {id(column) for group_columns in members for column in group_columns}
    group_plans = [{"columns": group_columns, "groups": [g]} for g, group_columns in zip(groups, members, strict=True)]
    return group_plans + [{"columns": [column]} for column in columns if id(column) not in grouped_ids]


def _plan_failure(part: dict[str, Any]) -> PlanError | None:
    try:
        _read_leniently(part)
    except PlanError as error:
        return error
    return None


def _read_leniently(plan: dict[str, Any]) -> Plan:
    """Read a plan as if it claimed nothing."""
    return Plan.from_json(
        json.dumps(plan | {"schema": PLAN_SCHEMA_VERSION, "epsilon": 1e300, "delta": math.nextafter(1, 0)})
    )


def _read_object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _unreadable_certificate(failures: list[str]) -> Certificate:
    return Certificate(None, 1, math.inf, 1.0, (), (), (), (), tuple(failures))
