"""What a plan does to a table before any noise, and how near a release of it would come: only for the curator."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.api.job import of_persons
from dpframe.api.options import checked as checked_options
from dpframe.api.planning import Request, check_lists, raw_frame
from dpframe.api.verbs import sanitize
from dpframe.errors import ColumnError, ParameterError, name_list
from dpframe.estimate import Estimates
from dpframe.plan.build import build_plan
from dpframe.plan.infer.declared import infer_spaces
from dpframe.plan.measured_forecast import BINNED, OF_PAIRS
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits
from dpframe.spaces import Space
from dpframe.spaces.base import decoded
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.table import Codes, Table, check_columns
from dpframe.tables.types import output_type

_ROUNDED = (
    "values between the steps are rounded; where decimals matter, declare bounds with a decimal point, as (0.0, 300.0),"
    " or a smaller step"
)
_MEND = {
    "clamped": "of the values lie outside the bounds and are clipped to them",
    "outside": "of the values are not among the categories",
    "cut": "of the sets lose items: undeclared ones, or those beyond the largest size",
    "imputed": "of the values are null and become the middle of the bounds, or 'other' or the first category",
}
"""What is said of a share of a column that its space changes."""


def _moved(shift: Any, narrowed: float, what: str) -> str:
    """Say by how much clipping moves a mean and lowers a standard deviation; vectors have none."""
    if what not in ("clamped", "imputed") or pd.isna(shift):
        return ""
    moved = f", which moves the mean by {shift if isinstance(shift, pd.Timedelta) else digits(shift)}"
    return moved + (f" and lowers the std by {100 * narrowed:.2g} %" if narrowed > 0 else "")


_OF_ONE = "Errors of one release, thrown away, beside their forecast"
TITLE = "ONLY FOR THE CURATOR: exact numbers of the data, protected by nothing; do not share them"


@dataclass(frozen=True)
class CuratorCheck:
    """What coding changes in each column, and the errors of one release against the raw truth.

    It holds exact numbers of the data and has no form in which it could travel with a release: it cannot be pickled,
    and its tables are no table that `attach` or `write` takes.

    Parameters
    ----------
    columns
        A row per column: shares of rows that are ``null``, ``imputed`` (nulls that become a value), ``clamped`` to
        bounds, ``rounded`` (within the bounds of whole numbers, and between two steps), ``outside`` the categories, and
        ``cut`` (sets that lose items); ``shift``, what that moves: a mean, or the share of rows with another value;
        ``narrowed``, the part of a standard deviation that is lost. ``refused`` says what stops a release.
    errors
        A row per statistic: the ``forecast`` standard error, and the ``error`` of one release, thrown away, against the
        raw truth: root mean square over the cells. Empty where a column is refused.
    rules
        A row per rule of the plan: the share of rows that break it, and so are ``mended``.
    person
        The column that names each row's person, if one does: all is of one random choice of everyone's rows, as a
        release makes one of its own in secret, and no release is tried.
    """

    columns: pd.DataFrame
    errors: pd.DataFrame
    rules: pd.DataFrame = field(default_factory=pd.DataFrame)
    person: str | None = None

    def __reduce__(self) -> Any:
        """Refuse to be stored."""
        raise ParameterError("a curator's check holds exact numbers of the data; look at it, and do not store it")

    @property
    def lines(self) -> list[str]:
        """What to mend, in plain words: a line per column that is refused or changed, for lost decimals, and per rule.

        Examples
        --------
        >>> import pandas as pd
        >>> import dpframe as dpf
        >>> frame = pd.DataFrame({"age": [20, 30, 130, 40] * 250})
        >>> print(*check(frame, spaces={"age": (0, 120)}).lines)
        age: 25 % of the values lie outside the bounds and are clipped to them, which moves the mean by -2.5 and \
        lowers the std by 9.7 %
        """
        shares = self.columns.reindex(columns=[*_MEND, "rounded", "shift", "narrowed"])
        said = [
            f"{name_list([str(name)])}: {100 * shares.loc[name, what]:.2g} % {words}"
            + _moved(shares.loc[name, "shift"], shares.loc[name, "narrowed"], what)
            for what, words in _MEND.items()
            for name in shares.index[shares[what] > 0]
        ]
        losing = shares.index[shares["rounded"] > 0]
        refused = [
            f"{name_list([str(name)])}: a release is refused, as a value {why}" for name, why in self.refused.items()
        ]
        mended = [
            f"{rule}: {100 * share:.2g} % of the rows break it and are mended"
            for rule, share in self.rules.get("mended", pd.Series(dtype=np.float64)).items()
            if share > 0
        ]
        return [*refused, *said, *([f"{name_list(list(losing))}: {_ROUNDED}"] if len(losing) else []), *mended]

    @property
    def refused(self) -> dict[str, str]:
        """Columns for which a release would be refused, and why."""
        if "refused" not in self.columns:
            return {}
        return {str(name): str(why) for name, why in self.columns["refused"].dropna().items()}

    @property
    def _head(self) -> list[str]:
        chosen = f"One choice of everyone's rows, by column {self.person!r}; a release makes another in secret"
        return [] if self.person is None else [chosen]

    def __str__(self) -> str:
        told = self.lines or (["no value is changed"] if "refused" not in self.columns else [])
        shown = self.columns.drop(columns="refused", errors="ignore")  # a line says it, which a table would cut
        parts = [TITLE, *self._head, "", shown.to_string(float_format=digits, na_rep=""), *told]
        if len(self.errors):
            parts += ["", _OF_ONE, self.errors.to_string(float_format=digits, na_rep="")]
        if len(self.rules):
            parts += ["", self.rules.to_string(float_format=digits)]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (
            notebook_html(TITLE, [], self.columns, digits, [*self._head, *self.lines])
            + (notebook_html(_OF_ONE, [], self.errors, digits) if len(self.errors) else "")
            + (notebook_html("Rules", [], self.rules, digits) if len(self.rules) else "")
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw errors of the release against their forecast, a point for each statistic; return the axes.

        Raises
        ------
        ParameterError
            If matplotlib is not installed.
        """
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ParameterError("plot needs matplotlib; pip install 'dpframe[plot]'") from None
        ax = pyplot.subplots()[1] if ax is None else ax
        for statistic, part in self.errors.groupby(level=0, sort=False):
            ax.scatter(part["forecast"], part["error"], label=statistic, s=16)
        numbers = self.errors.to_numpy(dtype=np.float64)
        ends = [numbers[numbers > 0].min(initial=1.0), numbers.max(initial=1e-12)]
        ax.plot(ends, ends, color="0.6", linewidth=1)
        ax.set(xscale="log", yscale="log", xlabel="forecast standard error", ylabel="error of one release", title=TITLE)
        ax.legend()
        return ax


def check(
    table: Any,
    plan: Plan | None = None,
    *,
    spaces: Mapping[str, Any] | None = None,
    drop: Sequence[str] = (),
    privacy_id: str | None = None,
) -> CuratorCheck:
    """Look at the data: what a plan clamps, cuts and cannot hold, and how near a release comes to the truth.

    It costs no budget as long as nobody but the curator sees it.

    Parameters
    ----------
    table
        The table to be released: a pandas or polars DataFrame, a pyarrow Table.
    plan
        The plan of its release.
    spaces
        Declarations to try before there is a plan, as for `dpframe.sanitize`: only their columns are looked at, and no
        release is tried.
    drop
        With ``spaces``, columns to be left out, which may be declared in none.
    privacy_id
        With ``spaces``, the column that names each row's person: what is counted is one row of everyone.

    Raises
    ------
    AlreadySanitizedError
        If the table is a release.
    ParameterError, ColumnError
        If ``plan`` is not a plan, or is of other columns; or unless one of plan and spaces is given.

    Examples
    --------
    >>> import pandas as pd
    >>> import dpframe as dpf
    >>> frame = pd.DataFrame({"age": [20, 30, 130, 40] * 250})
    >>> found = check(frame, dpf.plan(frame, 1.0, spaces={"age": (0, 120)}))
    >>> found.columns[["clamped", "shift"]].to_dict("index")
    {'age': {'clamped': 0.25, 'shift': -2.5}}
    """
    if plan is not None and spaces is not None:
        raise ParameterError("spaces are already decided by the plan; give one or the other")
    if plan is not None and (len(drop) or privacy_id is not None):
        raise ParameterError("drop and privacy_id are already decided by the plan; leave them out")
    ready = declared_plan(wrap(table), spaces, drop, privacy_id) if plan is None else plan
    return checked(table, ready, tried=plan is not None)


def checked(table: Any, plan: Plan, tried: bool) -> CuratorCheck:
    """Return the same of a plan, which is ``tried`` in a release or only says spaces."""
    frame = of_persons(raw_frame(table, plan, "check"), Request(plan=plan), secrets.token_bytes(32))
    if tried:
        check_columns(frame.names, plan)
    codes: Codes = {}
    found = {column.name: _column(frame, column.name, column.space, plan.nulls, codes) for column in plan.columns}
    columns = pd.DataFrame.from_dict(found, orient="index", columns=_HEADS)
    columns.index.name = "column"
    stopped = columns["refused"].notna().any() or not frame.n
    if not stopped:
        columns = columns.drop(columns="refused")
    alone = tried and plan.privacy_id is None and not stopped
    errors = _errors(table, frame, plan, codes) if alone else pd.DataFrame()
    rules = pd.DataFrame()
    if not stopped:
        broken = [float(np.mean(~rule.holds(codes))) for rule in plan.bound_rules.rules]
        rules = pd.DataFrame({"mended": broken}, index=pd.Index(map(repr, plan.rules), name="rule"))
    return CuratorCheck(columns.dropna(axis=1, how="all"), errors, rules, plan.privacy_id)


def declared_plan(
    table: Table, spaces: Mapping[str, Any] | None, drop: Sequence[str] = (), privacy_id: str | None = None
) -> Plan:
    """Return a plan of only the declared columns, with which to look at what their spaces do; nothing is spent."""
    if spaces is None or (isinstance(spaces, Mapping) and not spaces):
        raise ParameterError('give a plan, or spaces={…}, e.g. check(spaces={"age": (0, 120)})')
    if not isinstance(spaces, Mapping):
        raise ParameterError("spaces must be a dict, e.g. {'age': (0, 120), 'sex': ['F', 'M']}")
    # A draft is looked at to review it: as a dict it warns of nothing.
    drop = checked_options({"drop": drop})["drop"]
    check_lists(table.names, drop, declared=spaces)
    left = [name for name in table.names if name not in (*drop, privacy_id)]
    known, _, _ = infer_spaces(table.fields(left), dict(spaces), "private", table.arrays)
    return build_plan({name: known[name] for name in spaces}, epsilon=1.0, privacy_id=privacy_id)


_HEADS = ["null", "imputed", "clamped", "rounded", "outside", "cut", "shift", "narrowed", "refused"]


def _column(frame: Frame, name: str, space: Space, nulls: str, codes: Codes) -> dict[str, Any]:
    """Return what coding changes in a column, whose codes are kept."""
    raw = frame.array(name)
    present = pc.is_valid(raw).to_numpy(zero_copy_only=False)
    told: dict[str, Any] = {"null": 1 - present.mean() if len(raw) else 0.0}
    try:
        codes[name] = frame.encode(name, space, nulls)
    except ColumnError as error:
        return told | {"refused": error.rule}
    if not present.any():
        return told
    written = nulls == "impute" and not space.has_null and not present.all()
    told |= {"imputed": told["null"]} if written else {}
    if pa.types.is_float16(raw.type):  # Arrow compares no half floats
        raw = raw.cast(pa.float32())
    plain = decoded(raw).filter(pa.array(present))
    coded = decoded(space.decode(codes[name], output_type(raw.type)))
    back = coded.filter(pa.array(present))
    if space.inner_space.holds_sets:
        sets: Any = space.inner_space
        # Sets lose items that no one declared, and those beyond the largest size.
        pairs = [(set(a) - {None}, set(b or [])) for a, b in zip(plain.to_pylist(), back.to_pylist(), strict=True)]
        kept = [min(len(held & code), len(held) if sets.max_size is None else sets.max_size) for held, code in pairs]
        lost = np.array([1 - n / len(held) if held else 0.0 for n, (held, _) in zip(kept, pairs, strict=True)])
        return told | {"cut": (lost > 0).mean(), "shift": lost.mean()}
    if space.holds_vectors:
        vectors: Any = space.inner_space
        return told | {"clamped": float(vectors.outside(np.array(plain.to_pylist(), dtype=np.float64)).mean())}
    if space.is_numeric and not space.is_listed:
        ends = decoded(space.decode(space.code_array([0, space.values - 1]), output_type(raw.type)))
        out = _outside(plain, ends[0], ends[1])
        changed, whole = _series(coded if written else back), _series(plain)
        moved = changed.mean() - whole.mean()
        spread = whole.std() if (written or _share(out)) and len(whole) > 1 else 0
        narrowed = 1 - changed.std() / spread if spread else 0.0
        between = {"rounded": _share(pc.and_not(_outside(plain, back, back), out))} if space.is_whole else {}
        return told | {"clamped": _share(out), "shift": moved, "narrowed": max(0.0, float(narrowed))} | between
    other = np.array([a != b for a, b in zip(plain.to_pylist(), back.to_pylist(), strict=True)]).mean()
    return told | {"outside": other, "shift": other}


def _outside(values: pa.Array, lower: Any, upper: Any) -> pa.Array:
    """Return which values are outside bounds, as no NaN is."""
    return pc.or_(pc.less(values, lower), pc.greater(values, upper))


def _share(true: pa.Array) -> float:
    return float(pc.mean(true.cast(pa.float64())).as_py())


def _series(array: pa.Array) -> pd.Series[Any]:
    return pd.Series(array.to_pandas(date_as_object=False))


def _errors(table: Any, frame: Frame, plan: Plan, codes: Codes) -> pd.DataFrame:
    """Return the errors of one release against the coded table, and of means against the raw one."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    with warnings.catch_warnings(action="ignore"):
        # Under a key, as releases are counted of those that leave.
        released = sanitize(table, plan=plan, key=secrets.token_bytes(32))
        estimates = Estimates(released, plan)
        forecast = plan.replan(frame.n).forecast() if plan.n is None else plan.forecast()
        for statistic, label in (key for key in forecast.index if key[0] not in (*BINNED, OF_PAIRS)):
            error = _error(estimates, plan, codes, frame, statistic, label.split(" × "))
            if error is not None:
                rows[statistic, label] = {
                    "forecast": float(forecast.loc[(statistic, label), "std_error"]),
                    "error": error,
                }
    index = pd.MultiIndex.from_tuples(rows, names=forecast.index.names) if rows else forecast.index[:0]
    return pd.DataFrame(list(rows.values()), index=index, columns=["forecast", "error"])


def _error(
    estimates: Estimates, plan: Plan, codes: Codes, frame: Frame, statistic: str, names: list[str]
) -> float | None:
    """Return the root mean square error over the cells of a statistic; None for what is not compared."""
    if statistic == "mean":
        found: Any = estimates.mean(names[0])["estimate"]
        truth: Any = _series(decoded(frame.array(names[0]))).mean()
        gap = found - truth
        return abs(gap / pd.Timedelta(1, "D") if isinstance(gap, pd.Timedelta) else float(gap))
    spaces = [plan[name].space for name in names]
    if statistic not in ("marginal", "joint") or not all(space.is_listed for space in spaces):
        return None
    shape = [space.size for space in spaces]
    places = np.ravel_multi_index([codes[name].astype(np.int64) for name in names], shape)
    shares = np.bincount(places, minlength=int(np.prod(shape))) / frame.n
    told = estimates.joint(names, normalize=True, dropna=False, method="inverse")["estimate"].to_numpy()
    return float(np.sqrt(np.mean((told - shares) ** 2)))
