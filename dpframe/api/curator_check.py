"""Changes that a plan makes to a table before any noise, and errors of one release: only for the curator."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.api.verbs import sanitize
from dpframe.errors import ColumnError, ParameterError, name_list
from dpframe.estimate import Estimates
from dpframe.forecast.forecast import BINNED, OF_PAIRS
from dpframe.plan.build import build_plan
from dpframe.plan.declared import infer_spaces
from dpframe.plan.notebook import notebook_html
from dpframe.plan.options import checked as checked_options
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits
from dpframe.release.job import of_persons
from dpframe.release.planning import Request, check_lists, raw_frame
from dpframe.spaces import Space
from dpframe.spaces.base import decoded
from dpframe.spaces.object_reading import read_as
from dpframe.spaces.python_values import is_missing
from dpframe.spaces.written_values import is_blank, read_written
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.table import Codes, Table, check_columns
from dpframe.tables.types import is_text, output_type

_ROUNDING_TEXT = (
    "values between the steps are rounded; where decimals matter, declare bounds with a decimal point, as (0.0, 300.0),"
    " or a smaller step"
)
_CHANGES = {
    "clamped": "of the values lie outside the bounds and are clipped to them",
    "outside": "of the values are not among the categories",
    "cut": "of the sets lose items: undeclared ones, or those beyond the largest size",
    "imputed": "of the values are null and become the middle of the bounds, or 'other' or the first category",
}
"""Words for the share of a column that its space changes, by kind of change."""


def _clipping_text(shift: Any, narrowed: float, change: str) -> str:
    """Say by how much clipping moves a mean and lowers a standard deviation; vectors have none."""
    if change not in ("clamped", "imputed") or pd.isna(shift):
        return ""
    text = f", which moves the mean by {shift if isinstance(shift, pd.Timedelta) else digits(shift)}"
    return text + (f" and lowers the std by {100 * narrowed:.2g} %" if narrowed > 0 else "")


_ERRORS_TITLE = "Errors of one release, thrown away, beside their forecast"
TITLE = "ONLY FOR THE CURATOR: exact numbers of the data, protected by nothing; do not share them"


@dataclass(frozen=True)
class CuratorCheck:
    """Changes by coding in each column, and the errors of one release against the raw truth.

    It holds exact numbers of the data and has no form in which it could travel with a release: it cannot be pickled,
    and its tables are no table that `attach` or `write` takes.

    Parameters
    ----------
    columns
        A row per column: shares of rows that are ``null``, ``imputed`` (nulls that become a value), ``clamped`` to
        bounds, ``rounded`` (within the bounds of whole numbers, and between two steps), ``outside`` the categories, and
        ``cut`` (sets that lose items); ``shift`` of the mean, or the share of rows with another value;
        ``narrowed``, the part of a standard deviation that is lost. ``refused`` is the reason of a refused release.
    errors
        A row per statistic: the ``forecast`` standard error, and the ``error`` of one release, thrown away, against the
        raw truth: root mean square over the cells. Empty if a column is refused.
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
        """Changes to mend, in plain words: a line per refused or changed column, for lost decimals, and per rule.

        Examples
        --------
        >>> import pandas as pd
        >>> import dpframe as dpf
        >>> frame = pd.DataFrame({"age": [20, 30, 130, 40] * 250})
        >>> print(*check(frame, spaces={"age": (0, 120)}).lines)
        age: 25 % of the values lie outside the bounds and are clipped to them, which moves the mean by -2.5 and \
        lowers the std by 9.7 %
        """
        shares = self.columns.reindex(columns=[*_CHANGES, "rounded", "shift", "narrowed"])
        change_lines = [
            f"{name_list([str(name)])}: {100 * shares.loc[name, change]:.2g} % {words}"
            + _clipping_text(shares.loc[name, "shift"], shares.loc[name, "narrowed"], change)
            for change, words in _CHANGES.items()
            for name in shares.index[shares[change] > 0]
        ]
        rounded_names = shares.index[shares["rounded"] > 0]
        refusal_lines = [
            f"{name_list([str(name)])}: a release is refused, as a value {reason}"
            for name, reason in self.refused.items()
        ]
        rule_lines = [
            f"{rule}: {100 * share:.2g} % of the rows break it and are mended"
            for rule, share in self.rules.get("mended", pd.Series(dtype=np.float64)).items()
            if share > 0
        ]
        return [
            *refusal_lines,
            *change_lines,
            *([f"{name_list(list(rounded_names))}: {_ROUNDING_TEXT}"] if len(rounded_names) else []),
            *rule_lines,
        ]

    @property
    def refused(self) -> dict[str, str]:
        """Columns for which a release would be refused, and why."""
        if "refused" not in self.columns:
            return {}
        return {str(name): str(reason) for name, reason in self.columns["refused"].dropna().items()}

    @property
    def _choice_lines(self) -> list[str]:
        choice_line = f"One choice of everyone's rows, by column {self.person!r}; a release makes another in secret"
        return [] if self.person is None else [choice_line]

    def __str__(self) -> str:
        change_lines = self.lines or (["no value is changed"] if "refused" not in self.columns else [])
        column_table = self.columns.drop(columns="refused", errors="ignore")  # a line says it, which a table would cut
        parts = [TITLE, *self._choice_lines, "", column_table.to_string(float_format=digits, na_rep=""), *change_lines]
        if len(self.errors):
            parts += ["", _ERRORS_TITLE, self.errors.to_string(float_format=digits, na_rep="")]
        if len(self.rules):
            parts += ["", self.rules.to_string(float_format=digits)]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (
            notebook_html(TITLE, [], self.columns, digits, [*self._choice_lines, *self.lines])
            + (notebook_html(_ERRORS_TITLE, [], self.errors, digits) if len(self.errors) else "")
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
            raise ParameterError("plot needs matplotlib; pip install matplotlib") from None
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
    """Return the shares of values that a plan clamps, cuts and refuses, and the errors of one release.

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
        With ``spaces``, the column that names each row's person: one row of everyone is counted.

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
    checked_plan = declared_plan(wrap(table), spaces, drop, privacy_id) if plan is None else plan
    return checked(table, checked_plan, tried=plan is not None)


def checked(table: Any, plan: Plan, tried: bool) -> CuratorCheck:
    """Return the check of a plan, which is ``tried`` in a release or only declares spaces."""
    frame = of_persons(raw_frame(table, plan, "check"), Request(plan=plan), secrets.token_bytes(32))
    if tried:
        check_columns(frame.names, plan)
    codes: Codes = {}
    column_facts = {
        column.name: _check_column(frame, column.name, column.space, plan.nulls, codes) for column in plan.columns
    }
    columns = pd.DataFrame.from_dict(column_facts, orient="index", columns=_COLUMN_HEADS)
    columns.index.name = "column"
    is_refused = columns["refused"].notna().any() or not frame.n
    if not is_refused:
        columns = columns.drop(columns="refused")
    # A release chooses every person's rows anew, so that its errors do not belong to the rows counted here.
    tries_release = tried and plan.privacy_id is None and not is_refused
    errors = _release_errors(table, frame, plan, codes) if tries_release else pd.DataFrame()
    rules = pd.DataFrame()
    if not is_refused:
        broken_shares = [float(np.mean(~rule.holds(codes))) for rule in plan.bound_rules.rules]
        rules = pd.DataFrame({"mended": broken_shares}, index=pd.Index(map(repr, plan.rules), name="rule"))
    return CuratorCheck(columns.dropna(axis=1, how="all"), errors, rules, plan.privacy_id)


def declared_plan(
    table: Table, spaces: Mapping[str, Any] | None, drop: Sequence[str] = (), privacy_id: str | None = None
) -> Plan:
    """Return a plan of only the declared columns, to check their spaces; nothing is spent."""
    if spaces is None or (isinstance(spaces, Mapping) and not spaces):
        raise ParameterError(
            'give a plan, or spaces={…}, e.g. check(spaces={"age": (0, 120)}); draft() proposes spaces from the data'
        )
    if not isinstance(spaces, Mapping):
        raise ParameterError("spaces must be a dict, e.g. {'age': (0, 120), 'sex': ['F', 'M']}")
    # A draft is looked at to review it: as a dict it warns of nothing.
    drop = checked_options({"drop": drop})["drop"]
    check_lists(table.names, drop, declared=spaces)
    remaining_names = [name for name in table.names if name not in (*drop, privacy_id)]
    known_spaces, _, _ = infer_spaces(table.fields(remaining_names), dict(spaces), "private", table.arrays)
    return build_plan({name: known_spaces[name] for name in spaces}, epsilon=1.0, privacy_id=privacy_id)


_COLUMN_HEADS = ["null", "imputed", "clamped", "rounded", "outside", "cut", "shift", "narrowed", "refused"]


def _check_column(frame: Frame, name: str, space: Space, nulls: str, codes: Codes) -> dict[str, Any]:
    """Return the changes by coding in a column, and store its codes."""
    raw, present = _read_raw(frame, name, space)
    column_facts: dict[str, Any] = {"null": 1 - present.mean() if len(raw) else 0.0}
    try:
        codes[name] = frame.encode(name, space, nulls)
    except ColumnError as error:
        return column_facts | {"refused": error.rule}
    if not present.any():
        return column_facts
    imputes_nulls = nulls == "impute" and not space.has_null and not present.all()
    column_facts |= {"imputed": column_facts["null"]} if imputes_nulls else {}
    if space.special_labels:
        is_figure = codes[name] < space.values
        raw, present, column_codes = raw.filter(pa.array(is_figure)), present[is_figure], codes[name][is_figure]
        if not present.any():
            return column_facts
    else:
        column_codes = codes[name]
    if pa.types.is_float16(raw.type):  # Arrow compares no half floats
        raw = raw.cast(pa.float32())
    raw_values = decoded(raw).filter(pa.array(present))
    coded_values = decoded(space.decode(column_codes, output_type(raw.type)))
    decoded_values = coded_values.filter(pa.array(present))
    if space.inner_space.holds_sets:
        sets: Any = space.inner_space
        # Sets lose items that no one declared, and those beyond the largest size.
        pairs = [
            (set(a) - {None}, set(b or []))
            for a, b in zip(raw_values.to_pylist(), decoded_values.to_pylist(), strict=True)
        ]
        kept_counts = [
            min(len(raw_items & coded_items), len(raw_items) if sets.max_size is None else sets.max_size)
            for raw_items, coded_items in pairs
        ]
        lost_shares = np.array(
            [1 - n / len(raw_items) if raw_items else 0.0 for n, (raw_items, _) in zip(kept_counts, pairs, strict=True)]
        )
        return column_facts | {"cut": (lost_shares > 0).mean(), "shift": lost_shares.mean()}
    if space.holds_vectors:
        vectors: Any = space.inner_space
        return column_facts | {
            "clamped": float(vectors.outside(np.array(raw_values.to_pylist(), dtype=np.float64)).mean())
        }
    if space.is_numeric and not space.is_listed:
        ends = decoded(space.decode(space.code_array([0, space.values - 1]), output_type(raw.type)))
        is_outside = _is_outside(raw_values, ends[0], ends[1])
        coded_series, raw_series = _to_series(coded_values if imputes_nulls else decoded_values), _to_series(raw_values)
        mean_shift = coded_series.mean() - raw_series.mean()
        raw_std = raw_series.std() if (imputes_nulls or _true_share(is_outside)) and len(raw_series) > 1 else 0
        narrowed = 1 - coded_series.std() / raw_std if raw_std else 0.0
        rounded_share = (
            {"rounded": _true_share(pc.and_not(_is_outside(raw_values, decoded_values, decoded_values), is_outside))}
            if space.is_whole
            else {}
        )
        return (
            column_facts
            | {"clamped": _true_share(is_outside), "shift": mean_shift, "narrowed": max(0.0, float(narrowed))}
            | rounded_share
        )
    changed_share = np.array(
        [a != b for a, b in zip(raw_values.to_pylist(), decoded_values.to_pylist(), strict=True)]
    ).mean()
    return column_facts | {"outside": changed_share, "shift": changed_share}


def _read_raw(frame: Frame, name: str, space: Space) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return a column as one array, in which special words are null, and a mask of the rows that are not null."""
    if not space.has_words:
        raw = frame.array(name)
        return raw, np.asarray(pc.is_valid(raw).to_numpy(zero_copy_only=False))
    (batch,) = frame.batches([name])
    values, type_ = batch[name], space.inner_space.object_type
    if isinstance(values, pa.Array) and is_text(output_type(values.type)):
        return read_written(values, type_), ~is_blank(values)
    objects = values.to_pylist() if isinstance(values, pa.Array) else list(values)
    return read_as(objects, type_), np.array([not is_missing(value) for value in objects], dtype=np.bool_)


def _is_outside(values: pa.Array, lower: Any, upper: Any) -> pa.Array:
    """Return which values are outside bounds, as no NaN is."""
    return pc.or_(pc.less(values, lower), pc.greater(values, upper))


def _true_share(is_true: pa.Array) -> float:
    return float(pc.mean(is_true.cast(pa.float64())).as_py())


def _to_series(array: pa.Array) -> pd.Series[Any]:
    return pd.Series(array.to_pandas(date_as_object=False))


def _release_errors(table: Any, frame: Frame, plan: Plan, codes: Codes) -> pd.DataFrame:
    """Return the errors of one release against the coded table, and of means against the raw one."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    # The trial release is thrown away, and its warnings concern no real release.
    with warnings.catch_warnings(action="ignore"):
        # Under a key, as releases are counted of those that leave.
        released = sanitize(table, plan=plan, key=secrets.token_bytes(32))
        estimates = Estimates(released, plan)
        forecast = plan.replan(frame.n).forecast() if plan.n is None else plan.forecast()
        for statistic, label in (key for key in forecast.index if key[0] not in (*BINNED.values(), OF_PAIRS)):
            error = _rms_error(estimates, plan, codes, frame, statistic, label.split(" × "))
            if error is not None:
                rows[statistic, label] = {
                    "forecast": float(forecast.loc[(statistic, label), "std_error"]),
                    "error": error,
                }
    index = pd.MultiIndex.from_tuples(rows, names=forecast.index.names) if rows else forecast.index[:0]
    return pd.DataFrame(list(rows.values()), index=index, columns=["forecast", "error"])


def _rms_error(
    estimates: Estimates, plan: Plan, codes: Codes, frame: Frame, statistic: str, names: list[str]
) -> float | None:
    """Return the root mean square error over the cells of a statistic; None for statistics that are not compared."""
    if statistic == "mean":
        estimate: Any = estimates.mean(names[0])["estimate"]
        space = plan[names[0]].space
        figures = decoded(_read_raw(frame, names[0], space)[0])
        if space.special_labels:
            figures = figures.filter(pa.array(codes[names[0]] < space.values))
        truth: Any = _to_series(figures).mean()
        gap = estimate - truth
        return abs(gap / pd.Timedelta(1, "D") if isinstance(gap, pd.Timedelta) else float(gap))
    spaces = [plan[name].space for name in names]
    if statistic not in ("marginal", "joint") or not all(space.is_listed for space in spaces):
        return None
    shape = [space.size for space in spaces]
    places = np.ravel_multi_index([codes[name].astype(np.int64) for name in names], shape)
    shares = np.bincount(places, minlength=int(np.prod(shape))) / frame.n
    estimated_shares = estimates.joint(names, normalize=True, dropna=False, method="inverse")["estimate"].to_numpy()
    return float(np.sqrt(np.mean((estimated_shares - shares) ** 2)))
