"""`Sanitizer`: the release as a step of scikit-learn pipelines, rows in the order they came."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn import get_config
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dpframe.api.row_signal import warn_of_faint_rows
from dpframe.channels import Mechanism
from dpframe.errors import ParameterError, PrivacyLeakWarning, SeededReleaseWarning, warn
from dpframe.inference.drafted import DraftedSpaces
from dpframe.ledger.account import INFERENCE, Cost, OpenAccount
from dpframe.plan.options import DEFAULTS, PlanOptions
from dpframe.plan.plan import Plan
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import drawn, run_release_job
from dpframe.release.planning import Request
from dpframe.release.repeated_rows import ReleasedRows, column_hashes
from dpframe.spaces.object_reading import floated
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.table import Codes, Table


class Sanitizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Randomise every row under (ε, δ)-differential privacy, as a step of a scikit-learn pipeline.

    ``fit`` makes the plan, ``transform`` releases: row i of the output is row i of the input, so there is no
    credit for shuffling. The promise holds even against someone who knows which row is whose, and needs
    several times the noise of a release whose rows are shuffled.

    Parameters
    ----------
    epsilon, delta
        The promise, replace-one, per person, of ``fit`` and *one* transform. ``delta=None`` is min(1e-6, n^−1.5)
        for the n rows of ``fit``.
    spaces
        ``{column: declaration}`` as for `dpframe.plan`; columns are named, or numbered from 0. A single
        declaration, e.g. ``spaces=(-10, 10)``, serves all columns. Or another plan, whose spaces are taken.
    infer, infer_share, local_epsilon, max_items, drop, passthrough
        As for `dpframe.plan`; columns are named or numbered.
    measure, measure_share, weights
        As for `dpframe.plan`. As rows keep their order here, where noise on totals is dear, nothing is measured
        unless ``measure`` lists it.
    allocation, mechanisms, numbers, ordinals, sets, groups, nulls, contributions
        As for `dpframe.plan`; columns are named or numbered. With ``infer="private"``, and columns that are
        not declared, ``fit`` spends ``infer_share`` of the promise.
    plan
        A ready plan with ``shuffle=False`` instead of all these.
    random_state
        None for noise that nobody can repeat. A seed or `numpy.random.RandomState` gives the noise of a key
        derived from the seed *and the data* (folds reuse seeds), with a `SeededReleaseWarning`: somebody who
        guesses seed and data can confirm both, so it is for tests.
    ledger, dataset
        A `Ledger`, or its path, and the dataset in it, or a `Ledger.account`: ``fit`` spends there what inference
        costs, every transform the rest of the promise, before any noise is drawn. Clones share it.

    Attributes
    ----------
    plan_ : Plan
        The plan of every transform.
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : array of str
        Names of the input's columns, if it has some; columns of an array are called x0, x1, ….

    Raises
    ------
    ParameterError, ColumnError
        For an argument or a column that breaks its rule, when fitted or when transformed.
    AlreadySanitizedError
        If the input is a release.
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend.

    Notes
    -----
    *Privacy unit.* A row, or ``contributions`` rows of a person. There is no ``privacy_id``, as a transformer keeps
    every row: to choose rows of each person, release with `sanitize` beforehand and learn from `synthesize`.

    *Output.* A table comes back as its own kind with its plan (``.dp`` works on a DataFrame), under
    a fresh index; an array comes back as an array. With ``set_output(transform="pandas")`` a DataFrame
    comes out for any input and keeps the input's index, by which scikit-learn lines up columns and
    targets; an index other than a plain `RangeIndex` is copied unprotected then: a `PrivacyLeakWarning` says so, and
    so does the plan of that release (``keeps_index``).

    *Spends.* ``fit`` by itself spends only if it infers spaces privately. Every transform is a release of its
    rows: ``fit_transform`` and a later ``transform`` of the same rows add up to 2ε less one inference (the very
    same seeded release, repeated, adds nothing); two sanitizers in a `ColumnTransformer` add up, too, also for
    different columns; disjoint folds do not. A grid search over 3 values with 5 folds fits or scores on every row 15
    times and refits once: 16ε. A
    shared ``ledger`` holds all of this to a total, and counts every call, disjoint folds included. Without one, rows
    released again in one process are warned of (`RepeatedReleaseWarning`, at the 2nd, 4th, 8th, … time of most rows,
    with the sum so far); other processes are not seen. It is nearly always better to sanitise once, outside, where
    shuffling hides the rows, and to give the release to the search.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 2.0], [1.0, -3.0], [0.5, 9.0], [-1.0, 0.0]])
    >>> sanitizer = Sanitizer(epsilon=4, spaces={0: (-1, 1), "x1": (-10, 10)}).fit(X)
    >>> sanitizer.plan_.summary()["epsilon"].round(2).to_dict()
    {'x0': 2.0, 'x1': 2.0}
    >>> sanitizer.transform(X).shape
    (4, 2)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        spaces: Any = DEFAULTS["spaces"],
        infer: str = DEFAULTS["infer"],
        infer_share: float | None = DEFAULTS["infer_share"],
        local_epsilon: float | None = DEFAULTS["local_epsilon"],
        measure: Any = DEFAULTS["measure"],
        measure_share: float | None = DEFAULTS["measure_share"],
        weights: str | None = DEFAULTS["weights"],
        max_items: int = DEFAULTS["max_items"],
        drop: Iterable[Any] = DEFAULTS["drop"],
        passthrough: Iterable[Any] = DEFAULTS["passthrough"],
        allocation: Any = DEFAULTS["allocation"],
        mechanisms: Mapping[Any, str | Mechanism] | None = DEFAULTS["mechanisms"],
        numbers: str = DEFAULTS["numbers"],
        ordinals: str = DEFAULTS["ordinals"],
        sets: str = DEFAULTS["sets"],
        groups: Iterable[Sequence[Any]] = DEFAULTS["groups"],
        rules: Iterable[Any] = DEFAULTS["rules"],
        nulls: str = DEFAULTS["nulls"],
        contributions: int = DEFAULTS["contributions"],
        plan: Plan | None = None,
        random_state: Any = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        # scikit-learn's `clone` needs arguments as they were given: `fit` checks them.
        self.epsilon = epsilon
        self.delta = delta
        self.spaces = spaces
        self.infer = infer
        self.infer_share = infer_share
        self.local_epsilon = local_epsilon
        self.measure = measure
        self.measure_share = measure_share
        self.weights = weights
        self.max_items = max_items
        self.drop = drop
        self.passthrough = passthrough
        self.allocation = allocation
        self.mechanisms = mechanisms
        self.numbers = numbers
        self.ordinals = ordinals
        self.sets = sets
        self.groups = groups
        self.rules = rules
        self.nulls = nulls
        self.contributions = contributions
        self.plan = plan
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

    def fit(self, X: Any, y: Any = None) -> Sanitizer:
        """Make the plan; of the data only names, types and the number of rows are read, unless spaces are inferred.

        Parameters
        ----------
        X
            A table of any kind, or a numeric array of shape (n, columns).
        y
            Ignored: labels are neither randomised nor protected, and a model that is fitted to them is not private.

        Raises
        ------
        ParameterError
            If an option breaks its rule, or a ready plan shuffles rows.
        ColumnError
            If a column does not fit its space, or the plan.
        """
        account = OpenAccount.of(self.ledger, self.dataset)
        self._names: list[str] | None = None
        table = self._read_table(X, reset=True)
        frame = wrap(table)
        options = self._named_options(frame.names)
        mark = repr(options).encode()
        if self.plan is None:
            # A pipeline's rows must stay in line with its targets.
            options["shuffle"] = False
        request = Request(self.epsilon, self.delta, self.plan, options, release=False)
        if request.plan is not None and request.plan.shuffle:
            raise ParameterError(
                "plan shuffles rows, which must line up with a pipeline's targets; make it with shuffle=False"
            )
        if request.plan is not None and request.plan.sample is not None:
            raise ParameterError(
                "plan releases a sample of the rows, but a pipeline has targets of all rows; make "
                "the plan without sample"
            )
        budget = _StepBudget(account, step=self, labels=_row_labels(table, X), mark=mark)
        self.plan_ = run_release_job(frame, request, budget, lambda _, ready: ready.plan)
        self._names = frame.names
        warn_of_faint_rows(self.plan_)
        return self

    def transform(self, X: Any) -> Any:
        """Release the rows of X, in their order.

        Parameters
        ----------
        X
            A table with the columns of `fit`, or an array with as many.

        Returns
        -------
        A table of the same kind, or an array of the same dtype, of shape (n, kept columns).
        """
        check_is_fitted(self, "plan_")
        account, plan = OpenAccount.of(self.ledger, self.dataset), self.plan_
        table = self._read_table(X, reset=False)
        keeps_index = self._outputs_pandas() and isinstance(X, pd.DataFrame) and not _is_plain(X.index)
        if keeps_index:
            warn(
                "the output keeps the input's index, which is copied unprotected; call reset_index(drop=True) on "
                "the input first",
                PrivacyLeakWarning,
            )
            plan = replace(plan, keeps_index=True)
        frame = wrap(table.set_axis(X.index) if keeps_index else table)
        budget = _StepBudget(account, step=self, labels=_row_labels(table, X), mark=plan.digest)
        release = run_release_job(frame, Request(plan=plan), budget, drawn)
        if table is X or (self._outputs_pandas() and isinstance(release, pd.DataFrame)):
            return release
        return release.to_numpy(dtype=table.dtypes.iloc[0])

    def _derive_key(self, stage: bytes, columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
        """Return a key derived from the seed and from the data, so that two folds under one seed differ."""
        warn(
            "noise is derived from random_state and the data: a guess of both can be confirmed; leave random_state "
            "out for a release",
            SeededReleaseWarning,
        )
        mac = hmac.new(check_random_state(self.random_state).bytes(32), stage, hashlib.sha256)
        for name, column in columns.items():
            for part in (name.encode(), np.ascontiguousarray(column).tobytes()):
                # Lengths come first, so that no other columns give equal bytes.
                mac.update(len(part).to_bytes(8, "little"))
                mac.update(part)
        return mac.digest()

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the output's columns: the input's names without the dropped ones."""
        check_is_fitted(self, "plan_")
        names = super().get_feature_names_out(input_features)
        assert self._names is not None
        is_released = [name not in self.plan_.drop for name in self._names]
        return np.asarray(names, dtype=object)[is_released]

    def _read_table(self, X: Any, *, reset: bool) -> Any:
        """Return X as a table with the columns' names, checked as scikit-learn does."""
        has_names = hasattr(X, "column_names") or hasattr(X, "columns")
        if has_names and (reset or self._names is None or hasattr(self, "feature_names_in_")):
            if isinstance(X, pd.DataFrame) and not X.columns.is_unique:
                raise ParameterError("X has a column name twice; names must be unique")
            # scikit-learn's check of arrays would refuse text and times: only the names are checked.
            validate_data(self, X, skip_check_array=True, reset=reset)
            return X
        clean_error = None
        try:
            array = validate_data(
                self, _to_float_objects(X), dtype="numeric", ensure_all_finite=self._finite_check(reset), reset=reset
            )
        except (TypeError, ValueError) as error:
            clean_error = _redact_error(error)
        if clean_error is not None:  # out here, for what is raised within keeps the error, which may quote values
            raise clean_error
        names = [f"x{i}" for i in range(array.shape[1])] if reset or self._names is None else self._names
        return pd.DataFrame(array, columns=names)

    def _named_options(self, names: list[str]) -> PlanOptions:
        """Return the options that differ from defaults, with columns by name instead of number."""
        arguments = {name: getattr(self, name) for name in DEFAULTS if hasattr(self, name)}
        options = {name: value for name, value in arguments.items() if not _is_default(value, DEFAULTS[name])}
        for option in ("drop", "passthrough"):
            if option in options and not isinstance(options[option], str):
                options[option] = [_column_name(key, names, option) for key in options[option]]
        for option in ("spaces", "mechanisms", "allocation"):
            if isinstance(drafted_spaces := options.get(option), DraftedSpaces):
                options[option] = drafted_spaces.renamed(partial(_column_name, names=names, option=option))
            elif isinstance(options.get(option), Mapping):
                options[option] = {_column_name(key, names, option): value for key, value in options[option].items()}
        if "groups" in options and not isinstance(options["groups"], str):
            options["groups"] = [_column_name(tuple(group), names, "groups") for group in options["groups"]]
        if "measure" in options and isinstance(options["measure"], list | tuple):
            tables = [tuple(table) if isinstance(table, list) else table for table in options["measure"]]
            options["measure"] = [_column_name(table, names, "measure") for table in tables]
        spaces = options.get("spaces")
        if spaces is not None and not isinstance(spaces, Mapping | Plan):
            left_out = {*options.get("drop", ()), *options.get("passthrough", ())}
            options["spaces"] = {name: spaces for name in names if name not in left_out}
        return cast(PlanOptions, options)

    def _outputs_pandas(self) -> bool:
        """Return whether ``set_output``, or scikit-learn's configuration, asks for DataFrames."""
        config = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        return bool(config == "pandas")

    def _finite_check(self, reset: bool) -> bool | str:
        """Return scikit-learn's check of finite values: none if a refusal would reveal a value."""
        plan = self.plan if reset else self.plan_
        if isinstance(plan, Plan):
            inferred = plan.inferred is not None
        else:
            inferred = self.infer == "private" and (self.spaces is None or isinstance(self.spaces, Mapping))
        if inferred:
            return False
        return "allow-nan" if self._allows_nan() else True

    def _allows_nan(self) -> bool:
        spaces = self.plan if isinstance(self.plan, Plan) else self.spaces
        if self.infer != "public" and (spaces is None or (isinstance(spaces, Mapping) and not self.plan)):
            return True  # a column that is not declared may hold nulls
        if isinstance(spaces, Plan):
            declared: Iterable[Any] = [column.space for column in spaces.columns]
        else:
            declared = spaces.values() if isinstance(spaces, Mapping) else [spaces]
        if isinstance(self.plan, Plan):
            imputes = self.plan.nulls == "impute" or self.plan.inferred is not None
        else:
            imputes = self.nulls == "impute"
        return imputes or any(getattr(space, "tag", "") == "nullable" for space in declared)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_nan()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass
class _StepBudget(ReleaseBudget):
    """The budget of a step; without a ledger it counts the releases of this process's rows.

    With a ``random_state`` the key is derived from it and from the data. ``mark`` distinguishes requests of one seed
    over the same data: those of one mark draw the same noise.
    """

    step: Sanitizer = field(kw_only=True)
    keyed: ClassVar[bool] = False
    labels: pd.Index | None = field(kw_only=True)
    mark: bytes = field(kw_only=True, repr=False)

    def cost(self, plan: Plan) -> Cost:
        """Return the cost of a release without the inference of ``fit``, which is counted on its own."""
        if self.account is None and self.step.plan is None:
            return Cost(plan.released, unit=plan.unit)
        return super().cost(plan)

    def pay(self, table: Table, what: str, cost: Cost, codes: Codes) -> str | None:
        """Enter a spend, or count it."""
        assert isinstance(table, Frame)
        if self.step.random_state is not None:
            data = dict(column_hashes(table, table.names)) if what == INFERENCE else codes
            # Only now, as the key depends on codes, which exist after all checks.
            self.ready = self.step._derive_key(b"fit" if what == INFERENCE else b"transform", data)
        if self.account is not None:
            return super().pay(table, what, cost, codes)
        noise_id = None if self.ready is None else self.ready + repr(cost.budget).encode() + self.mark
        _RELEASED_ROWS.watch(table, self.labels, cost.budget, noise_id, inference=what == INFERENCE)
        return None


def _to_float_objects(X: Any) -> Any:
    """Return an untyped input, a list or an array of objects, as objects that scikit-learn reads as floats.

    The type that NumPy gives a list follows its values: one fraction would make floats of all whole numbers.
    """
    if not isinstance(X, list | tuple) and not (isinstance(X, np.ndarray) and X.dtype == object):
        return X
    objects = np.asarray(X, dtype=object)
    return np.frompyfunc(_overflow_to_infinity, 1, 1)(objects) if objects.ndim else objects


def _overflow_to_infinity(value: Any) -> Any:
    """Return whole numbers that no float holds as infinite."""
    return floated(value) if isinstance(value, int) else value


class _ObjectsError(ParameterError, TypeError):
    """An array of objects that are no numbers, which scikit-learn's conventions call an error of type."""


_TYPES_ADVICE = "pass a DataFrame, each of whose columns has a type"


def _redact_error(error: Exception) -> Exception:
    """Return an error of scikit-learn without quoted values: arrays of a wrong shape or type, and text."""
    first_line, *further_lines = str(error).split("\n")
    if first_line.startswith("float() argument"):
        return _ObjectsError(
            f"X is an array with objects, whose every argument must be a string or a number; {_TYPES_ADVICE}"
        )
    if isinstance(error, TypeError):
        return TypeError(first_line)
    if "could not convert" in first_line:
        return ParameterError(f"X is an array with text; {_TYPES_ADVICE}")
    advice = (
        further_lines[-1].rstrip(".") if further_lines and further_lines[-1].startswith("Reshape your data") else ""
    )
    if "contains NaN" in first_line:
        advice = "declare Nullable(…), or pass nulls='impute'"
    return ParameterError("; ".join(filter(None, [first_line.rstrip(".:"), advice])))


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _column_name(key: Any, names: list[str], option: str) -> Any:
    """Return the name of a column given by name or number, or the names of several."""
    if isinstance(key, tuple):
        return tuple(_column_name(part, names, option) for part in key)
    if isinstance(key, bool) or not isinstance(key, int | np.integer):
        return key
    if not 0 <= key < len(names):
        raise ParameterError(f"{option} numbers column {key}, but columns are numbered from 0 to {len(names) - 1}")
    return names[key]


def _is_plain(index: pd.Index[Any]) -> bool:
    """Return whether an index is just the numbers from 0 on."""
    return isinstance(index, pd.RangeIndex) and (index.start, index.step, index.name) == (0, 1, None)


def _row_labels(table: Any, X: Any) -> pd.Index | None:
    """Return the labels by which the rows of a DataFrame differ."""
    return table.index if isinstance(table, pd.DataFrame) and table is X else None


_RELEASED_ROWS = ReleasedRows()
"""The rows that this process released without a ledger."""
