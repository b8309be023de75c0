"""The audits behind one verb: of a mechanism by samples of its outputs, of a table's release by replay."""

from __future__ import annotations

import json
import math
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.accounting.audit import AuditResult, Sampler
from dpframe.accounting.audit import audit as bounded
from dpframe.api.verbs import sanitize
from dpframe.channels import Mechanism
from dpframe.errors import ParameterError, check_fraction, check_whole
from dpframe.noise.keystream import Keystream
from dpframe.plan.plan import Plan
from dpframe.proofs.replay import Face, ReplayAudit, replayed
from dpframe.proofs.self_audit import SelfAudit, audit_releases
from dpframe.release.planning import check_plan
from dpframe.tables.inputs import open_input

CONFIDENCE = 1 - 1e-6
RUNS, EDITS = 100_000, 200
LEAST_RELEASES = 100
"""Least releases of an audit of a plan: fewer prove nothing (tolerance)."""
MINUTES, RELEASE_CONFIDENCE = 5.0, 0.99
"""Time of an audit by whole releases (limit of time), and its confidence (tolerance)."""


@overload
def audit(
    what: Mechanism | tuple[Sampler, Sampler],
    plan: None = None,
    *,
    runs: int | None = None,
    delta: float | None = None,
    confidence: float | None = None,
) -> AuditResult: ...


@overload
def audit(
    what: Plan,
    plan: None = None,
    *,
    minutes: float | None = None,
    runs: int | None = None,
    confidence: float | None = None,
    random_state: int | None = None,
) -> SelfAudit: ...


@overload
def audit(what: Any, plan: Plan, *, runs: int | None = None, random_state: int | None = None) -> ReplayAudit: ...


def audit(
    what: Any,
    plan: Plan | None = None,
    *,
    runs: int | None = None,
    delta: float | None = None,
    confidence: float | None = None,
    random_state: int | None = None,
    minutes: float | None = None,
) -> AuditResult | ReplayAudit | SelfAudit:
    """Try to refute a mechanism from samples of its outputs, or a plan by releasing neighbouring tables.

    A mechanism is a black box: an ε above its claim that is found with so much confidence refutes it; one below proves
    nothing. With ``plan`` a table is changed row by row and released under one key: at most one released row may
    differ, and nothing else. Keys are fresh and thrown away, and nothing that was released is kept. A plan by itself
    is released for some minutes, with neighbouring made-up tables: ε and μ are bounded from below, next to its claim.
    Before that, faults are planted in its noise, and an audit that does not see them cannot judge.

    Parameters
    ----------
    what
        A mechanism of a listed space or a grid, whose first and last input are compared, or a pair of functions that
        take a number of runs and return as many outputs of a mechanism, each for one input (see
        `dpframe.accounting.audit.audit`). Or a plan. With ``plan`` a pandas or polars DataFrame, a pyarrow Table, or
        the path of Parquet or CSV files, which is read into memory.
    plan
        The plan of the table's release.
    runs
        Outputs for each input, 100,000; or changed tables, 200; or releases of a plan in place of ``minutes``.
    delta
        The δ of the claim; by default the mechanism's own, or 0.
    confidence
        Probability, over the runs, that the bounds hold: by default 1 − 1e-6, and 0.99 for a plan.
    random_state
        Seed of the changes of a table, or of made-up tables and their keys.
    minutes
        Time for releases of a plan, 5 by default.

    Raises
    ------
    ParameterError
        If it is neither, or an argument is out of its range; for a plan with vectors or ``privacy_id``, and if there is
        no time for a dozen releases.
    AlreadySanitizedError
        If the table is a release.
    ColumnError, PlanError
        If the table does not fit the plan.

    Examples
    --------
    >>> import dpframe as dpf
    >>> from dpframe.channels import RandomizedResponse
    >>> found = audit(RandomizedResponse(4, 1.0))
    >>> 0.8 < found.epsilon_lower < 1.0, found.refutes(1.0)
    (True, False)
    >>> frame = dpf.datasets.make_census(200, columns=["age", "sex"])
    >>> spaces = {"age": (18, 95), "sex": dpf.Categorical(["F", "M"], other="other")}
    >>> plan = dpf.plan(frame, epsilon=1, spaces=spaces, nulls="impute")
    >>> print(audit(frame, plan, runs=20, random_state=0))
    20 edits: at most one released row differed, and nothing else
    >>> small = audit(plan, runs=100, random_state=0)
    >>> small.refuted, small.bounds.mus["all"] < small.claim.steps["all"].mu
    (False, True)
    """
    if isinstance(what, Plan):
        return _audit_plan(what, plan, minutes, runs, confidence, random_state)
    if minutes is not None:
        raise ParameterError("minutes is for a plan by itself; give runs=, or audit(plan, minutes=5)")
    if plan is not None:
        check_plan(plan)
        return replayed(_read_into_memory(what, plan), plan, FACES, EDITS if runs is None else runs, random_state)
    mechanism = what if isinstance(what, Mechanism) else None
    pair: Any = what if mechanism is None else _samplers(mechanism)
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(callable, pair))):
        raise ParameterError("what must be a mechanism, a pair of functions, or a table or path with plan=")
    first_sampler, last_sampler = pair
    if delta is None:
        delta = 0.0 if mechanism is None else mechanism.delta
    level = CONFIDENCE if confidence is None else confidence
    return bounded(first_sampler, last_sampler, RUNS if runs is None else runs, delta, level)


def _audit_plan(
    plan: Plan,
    table_plan: Plan | None,
    minutes: float | None,
    runs: int | None,
    confidence: float | None,
    random_state: int | None,
) -> SelfAudit:
    if table_plan is not None or (minutes is not None and runs is not None):
        raise ParameterError("plan is audited by itself, for minutes= or runs=, e.g. audit(plan, minutes=5)")
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if minutes is not None and not (is_number and 0 < minutes < math.inf):
        raise ParameterError("minutes must be a number above 0, e.g. minutes=5")
    count = None if runs is None else check_whole(runs, "runs", LEAST_RELEASES, of="releases")
    time_limit = MINUTES if minutes is None and runs is None else minutes
    level = check_fraction(RELEASE_CONFIDENCE if confidence is None else confidence, "confidence", RELEASE_CONFIDENCE)
    return audit_releases(plan, release_in_memory, time_limit, count, level, random_state)


def _samplers(mechanism: Mechanism) -> tuple[Sampler, Sampler]:
    if mechanism.code_words:
        raise ParameterError(
            f"what: mechanism {mechanism.tag} is of sets or vectors, whose inputs have no first and last one; pass a "
            "pair of functions"
        )
    # Two names give independent streams: common noise would make the two samples depend on each other.
    keys = Keystream(secrets.token_bytes(32))
    return (
        lambda n: mechanism.sample(np.zeros(n, dtype=np.int64), keys.column("first")),
        lambda n: mechanism.sample(np.full(n, mechanism.size - 1), keys.column("last")),
    )


def _read_into_memory(what: Any, plan: Plan) -> Any:
    if not isinstance(what, str | Path):
        return what
    table = open_input(what)
    return table.typed(plan.spaces, plan.imputed).read(table.names)


_NULLABLE: dict[pa.DataType, Any] = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}
"""Dtypes that hold nulls as they are."""


def release_in_memory(table: pa.Table, plan: Plan, key: bytes) -> Any:
    """Return the release of an Arrow table under a plan and a key."""
    return sanitize(table, plan=plan, key=key)


def _in_pandas(table: pa.Table, plan: Plan, key: bytes) -> Any:
    # Of other dtypes one null would make floats of whole numbers, which is the frame's schema, not its release.
    return sanitize(table.to_pandas(types_mapper=_NULLABLE.get), plan=plan, key=key)


def _in_files(table: pa.Table, plan: Plan, key: bytes) -> Any:
    with tempfile.TemporaryDirectory(prefix="dpframe-audit-") as folder:
        source, target = Path(folder) / "in.parquet", Path(folder) / "out.parquet"
        # Row groups follow the table's chunks, so that an edit of the layout reaches the file.
        pq.write_table(table, source, row_group_size=max(1, len(table.column(0).chunk(0)) if table.num_columns else 1))
        sanitize(source, target, plan=plan, key=key)
        file = pq.ParquetFile(target)
        released_table, groups = file.read(), [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        # Windows cannot remove the folder while a file in it is open.
        file.close()
        metadata = {**(released_table.schema.metadata or {}), b"row groups": json.dumps(groups).encode()}
        return released_table.replace_schema_metadata(metadata)


FACES: Mapping[str, Face] = {"memory": release_in_memory, "pandas": _in_pandas, "files": _in_files}
"""Faces that are audited by default."""
