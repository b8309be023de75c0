"""Identity of a release: digests of all its inputs except its key, and of its table."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import math
import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.accounting.budget import Budget
from dpframe.channels import Mechanism
from dpframe.errors import DpframeError, RepeatedReleaseWarning, name_list, warn
from dpframe.inference.drafted import DraftedSpaces
from dpframe.ledger.account import OpenAccount
from dpframe.noise.keystream import derived_key
from dpframe.plan.plan import Plan
from dpframe.plan.threads import remember
from dpframe.spaces import Space, as_space
from dpframe.spaces.entries import Entries
from dpframe.spaces.python_values import refuse_decimal_classes
from dpframe.tables.frames import Frame
from dpframe.tables.table import Codes, Table

DEFAULTS = 9
"""Number of the defaults that plans are made with, and of the meanings of mechanisms' names.

A request under others draws other noise, and is paid for anew.
"""


@lru_cache(maxsize=1)
def arithmetic() -> str:
    """Return a digest of how this machine rounds: processors and releases of libraries differ in last digits.

    The last digits of a calibrated ε enter the plan, and so the keys of its noise: another machine may make another
    release under an equal key.
    """
    import scipy
    from scipy import special  # imported late, as all of SciPy

    x = np.linspace(1e-3, 30.0, 1 << 14)
    arrays = [np.exp(-x), np.expm1(x), np.log(x), np.log1p(x), np.tanh(x), np.sqrt(x), x**1.7, np.logaddexp(x, 1.0)]
    # No products of matrices: those of one machine may differ with the number of threads.
    arrays += [np.cumsum(x), x.reshape(128, 128).sum(axis=0), np.fft.rfft(x)]
    arrays += [special.ndtr(-x), special.log_ndtr(-x), special.ndtri(x / 31), special.erfcx(x), special.erfcinv(x / 31)]
    arrays += [special.gammainc(3.5, x), special.gammaln(x), special.logit(x / 31), special.betainc(2.5, 3.5, x / 31)]
    scalars = [
        function(point)
        for point in x[::16].tolist()
        for function in (math.exp, math.log, math.log1p, math.expm1, math.erfc, math.tanh)
    ]
    versions = np.__version__, scipy.__version__, platform.machine()
    return hashlib.sha256(
        repr((versions, scalars)).encode() + b"".join(array.tobytes() for array in arrays)
    ).hexdigest()


def request_digest(epsilon: float | None, delta: float | None, options: Mapping[str, Any]) -> bytes:
    """Return a digest of a promise and of all that decides its release, the machine's rounding included."""
    options = dict(options)
    spaces = options.pop("spaces", None)
    # The plan says so, and all that the plan says enters the key of its noise.
    drafted = isinstance(spaces, DraftedSpaces) and not spaces.reviewed
    # Different declarations may mean one space: an interrupted job must recognise its request in either form.
    if isinstance(spaces, Mapping):
        spaces = {name: _to_space(space) for name, space in spaces.items()}
    text = _canonical_text([DEFAULTS, arithmetic(), epsilon, delta, spaces, options, drafted])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _to_space(spec: Any) -> Any:
    try:
        return as_space(spec)
    except DpframeError:  # which is refused later, with the column's name
        return spec


def _canonical_text(value: Any) -> str:
    """Return text that differs if values do; `repr` leaves out the middle of long arrays."""
    if isinstance(value, Plan):
        return value.to_json()
    if isinstance(value, Space | Mechanism):
        return _canonical_text(value.to_json())
    # The order of a dict's entries decides nothing about a release.
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_canonical_text(k)}:{_canonical_text(v)}' for k, v in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_canonical_text, value))}]"
    return repr(value)


def table_digest(table: Table, codes: Codes, key: bytes, names: Sequence[str] | None = None) -> bytes | None:
    """Return a keyed digest of a table in memory, or of some of its columns; None for a table without a digest.

    Columns that are coded are known by their codes, which are all that leaves of them; of others, and where persons'
    rows were chosen the places of these, all is read. Objects have no bytes to compare.
    """
    if not isinstance(table, Frame):
        return None
    keyed = hmac.new(derived_key(key, b"digest of the input"), digestmod=hashlib.sha256)
    try:
        for part in _table_parts(table, codes, table.names if names is None else names):
            # Lengths keep parts apart: no other list of columns gives equal bytes.
            keyed.update(len(part).to_bytes(8, "little"))
            keyed.update(part)
    except Exception:  # the code of a foreign class may raise anything; to refuse it would reveal a row
        return None
    return keyed.digest()


_SECRET = secrets.token_bytes(32)
"""Secret key of this process for digests of tables that were released as parts."""

_released_parts: dict[tuple[str, str], dict[bytes, str | None]] = {}


def content(table: Table) -> bytes | None:
    """Return a digest of a table in memory under a key of this process; None if it has no digest, or no row."""
    if not isinstance(table, Frame) or not table.n:
        return None
    # The rows of each person are chosen at random: only the table before the choice is recognisable.
    full_table = table if table.chosen is None else table.chosen[0]
    return table_digest(full_table, {}, _SECRET)


_PREFIX_ROWS = 1 << 14
"""Rows by which a table is known again, with their number and its columns: of long ones a digest of all takes time."""

_MAX_TABLES = 1 << 12
"""Tables that are remembered."""

_release_sums: dict[bytes, tuple[int, tuple[int, float], float, float]] = {}
"""By digest, the latest last: releases of a table in this process, those last warned of, and the sums of ε and of δ."""


def warn_if_released(table: Table, cost: Budget) -> None:
    """Count a release of a table in memory; warn when it is the second in this process, and when either doubles.

    Either: the number of releases, or the epsilon that they add up to.
    """
    if not isinstance(table, Frame) or not table.n:
        return
    full_table = table if table.chosen is None else table.chosen[0]
    first_rows_digest = content(full_table.first(_PREFIX_ROWS))
    if first_rows_digest is None:
        return
    digest = hmac.digest(_SECRET, first_rows_digest + full_table.n.to_bytes(8, "little"), "sha256")
    releases, warning_state, epsilon, delta = _release_sums.get(digest, (0, (1, 0.0), 0.0, 0.0))
    releases, epsilon, delta = releases + 1, epsilon + cost.epsilon, delta + cost.delta
    is_due = releases > 1 and (releases >= 2 * warning_state[0] or epsilon >= 2 * warning_state[1])
    if is_due:
        sum_text = f"epsilon={epsilon:.6g}" + (f", delta={delta:.6g}" if delta else "")
        warn(
            f"this table was released {releases} times in this process, which adds up to {sum_text}; keep one "
            "release, and ask all questions of it",
            RepeatedReleaseWarning,
        )
    remember(
        _release_sums, digest, (releases, (releases, epsilon) if is_due else warning_state, epsilon, delta), _MAX_TABLES
    )


def warn_of_parts(account: OpenAccount, digest: bytes | None) -> None:
    """Warn of a table that was released as another part of its dataset, as far as this process knows."""
    if digest is None:
        return
    parts_by_digest = _released_parts.setdefault((os.path.realpath(account.ledger.path), account.dataset), {})
    earlier_part = parts_by_digest.setdefault(digest, account.part)
    if earlier_part != account.part:
        warn(
            f"the rows of part {name_list([account.part or ''])} were released as part "
            f"{name_list([earlier_part or ''])} before, and persons in two parts pay twice; pass "
            f"part={earlier_part!r}",
            RepeatedReleaseWarning,
        )


def _table_parts(table: Frame, codes: Codes, names: Sequence[str]) -> Iterable[bytes]:
    yield table.n.to_bytes(8, "little")
    if table.chosen is not None:
        yield np.ascontiguousarray(table.chosen[1], dtype="<i8").tobytes()
    for name in names:
        yield name.encode("utf-8", "surrogatepass")
        if name in codes:
            column_codes = np.ascontiguousarray(codes[name])
            yield str(column_codes.dtype).encode()
            yield column_codes.tobytes()
        else:
            yield from _column_bytes(next(iter(table.batches([name])))[name])


_SHOWN_CLASSES = (str, bytes, bool, int, float, Decimal, dt.date, dt.datetime, pd.Timestamp, pd.Timedelta)
"""Classes whose different values are shown differently."""


def _entry_text(entry: Any) -> str:
    # Two different values of a foreign class may have one text, and would pass for one table.
    if type(entry) not in _SHOWN_CLASSES:
        raise TypeError(type(entry))
    return f"{type(entry).__name__} {entry!r}\n"


def _column_bytes(column: Any) -> Iterable[bytes]:
    """Return the values of a column with their type; raise for objects that have no bytes to compare."""
    if isinstance(column, Entries):
        yield from _column_bytes(column.codes.astype(np.int64))
        yield "".join(map(_entry_text, column.listed)).encode("utf-8", "surrogatepass")
        return
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        # Columns of other types have no objects; a list of objects has no type.
        refuse_decimal_classes(column if getattr(column, "dtype", "object") == "object" else [])
        column = pa.array(column, from_pandas=True)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("", column.type)])) as writer:
        writer.write_table(pa.table({"": column}))
    yield sink.getvalue().to_pybytes()
