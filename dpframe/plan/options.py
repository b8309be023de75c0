"""The options that decide a plan, each stated once: name, type, default, help and check.

`dpframe.plan` and its callers, `Sanitizer`, the command line and their documentation read them here.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict, TypeVar, get_args, get_type_hints

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, composed_steps
from dpframe.channels import MECHANISMS, Mechanism
from dpframe.channels.base import by_name, family_for
from dpframe.errors import ParameterError, check_fraction, check_whole, did_you_mean, is_one_of
from dpframe.inference.categories import MOST_COUNTED_ITEMS
from dpframe.inference.from_data import any_space
from dpframe.plan.build import as_mechanisms
from dpframe.plan.calibration import AccountingContext, check_ready
from dpframe.plan.columns import check_noise
from dpframe.plan.plan import Plan
from dpframe.plan.rules import as_rules
from dpframe.spaces import Space
from dpframe.spaces.field import Field

F = TypeVar("F", bound=Callable[..., Any])


def _check_column_names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, Iterable):
        raise ParameterError(f'{name} must be a list of column names, e.g. {name}=["id"]')
    # Text is iterable, but its letters are no column names.
    if isinstance(value, str):
        raise ParameterError(f"{name} must be a list of column names, e.g. {name}=[{value!r}]")
    return tuple(value)


def _check_share(name: str, value: Any) -> float | None:
    return None if value is None else check_fraction(value, name, 0.1)


def _check_weights(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ParameterError('weights must be the name of one column, e.g. weights="weight"')
    return value


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ParameterError(f"{name} must be True or False")
    return value


_TABLES_ERROR = 'measure must be "auto", None, or a list of columns and tuples of them, e.g. ["auto", ("age", "sex")]'


def _check_tables(name: str, value: Any) -> str | tuple[str | tuple[str, ...], ...] | None:
    """Return the tables that are asked for as tuples of their columns, each once; "auto" comes first, as text."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return None if value is None else "auto"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ParameterError(_TABLES_ERROR)
    value = list(value)
    tables = [
        (table,) if isinstance(table, str) else table
        for table in value
        if not (isinstance(table, str) and table == "auto")
    ]
    if not all(isinstance(table, list | tuple) and table for table in tables):
        raise ParameterError(_TABLES_ERROR)
    if not all(isinstance(column, str) for table in tables for column in table):
        raise ParameterError(_TABLES_ERROR)
    if any(len(set(table)) < len(table) != _PAIR_COLUMNS for table in tables):
        raise ParameterError("measure names a column twice in one table; name it once")
    # Tables with equal columns in another order are one table.
    unique_tables = tuple({tuple(sorted(table)): tuple(table) for table in tables}.values())
    if len(tables) < len(value):
        return ("auto", *unique_tables) if unique_tables else "auto"
    return unique_tables or None


_PAIR_COLUMNS = 2
"""Length of a table's tuple that may repeat one column, for pairs of items of a set (theory: a pair has two items)."""


@dataclass(frozen=True)
class Option:
    """An option of a plan."""

    default: Any
    help: str
    """One sentence, which serves the command line as well."""
    more: str = ""
    """Further sentences of the documentation of Python functions."""
    check: Callable[[str, Any], Any] = lambda name, value: value
    """Takes name and value; returns the value to use, or raises `ParameterError`."""
    name: str = ""
    type: Any = None


class PlanOptions(TypedDict, total=False):
    """Keyword arguments that decide a plan; see `dpframe.plan`."""

    spaces: Annotated[
        Mapping[str, Any] | Plan | None,
        Option(
            None, "A declaration per column.", "See `as_space`. Or another plan, whose spaces (and leaks) it takes."
        ),
    ]
    infer: Annotated[
        str,
        Option(
            "private",
            "Where undeclared spaces come from: private (noisy counts, paid for from ε), public (only the type) or "
            "data (which leaks).",
            'With ``"data"`` there is a `PrivacyLeakWarning`.',
        ),
    ]
    infer_share: Annotated[
        float | None,
        Option(
            None,
            "Share of the budget (of μ²) that private inference takes; by default what the rows ask for.",
            "As much as lets a value of a fiftieth of the rows show, from 0.05 to 0.5; without shuffling 0.05, with "
            "δ = 0 a tenth of ε.",
            check=_check_share,
        ),
    ]
    local_epsilon: Annotated[
        float | None,
        Option(
            None,
            "The most that each row may lose to someone who knows its place.",
            "A cap on `Plan.local`, for those who will not rest everything on the order's secrecy.",
        ),
    ]
    measure: Annotated[
        str | Iterable[Any] | None,
        Option(
            "auto",
            "Tables to measure with noise on their totals: auto, none, a list, or a list with auto.",
            'With ``"auto"`` all pairs of columns, and all triples where rows are many for the noise; tables of one '
            "column and sums of numbers; sizes of sets, supports of their items, and of pairs of these where noise is "
            "small. That is where rows leave shuffled and δ > 0, else nothing. "
            "A list has columns, pairs and triples; a column of sets twice means pairs of its items. A list with "
            '``"auto"`` adds its other tables to the default ones, e.g. ``["auto", ("ward", "sex", "visits")]``; each '
            "added table costs the share at which the L1 errors of all tables have the least sum (by its cells to the "
            'power 2/3). A column named auto is ``("auto",)``. All rows are '
            "counted, even where a sample is released; columns of ``groups`` are counted like others, those of "
            "``passthrough`` not.",
            check=_check_tables,
        ),
    ]
    measure_share: Annotated[
        float | None,
        Option(
            None,
            "Share of what inference leaves of the budget (of μ²) that measured tables take; by default that of least "
            "forecast error.",
            "Which is 0.9 where all pairs are measured, and 0.8 of a list of tables, as rows answer for all others.",
            check=_check_share,
        ),
    ]
    weights: Annotated[
        str | None,
        Option(
            None,
            "The column of survey weights, whose sums by the cells of every other column are measured as well.",
            "Its bounds must be declared, from 0 on. Statistics with ``weights=`` of this column then err less.",
            check=_check_weights,
        ),
    ]
    max_items: Annotated[
        int,
        Option(
            MOST_COUNTED_ITEMS,
            "Items of a set that private inference counts, at most.",
            check=lambda name, value: check_whole(value, name, 1, 1_000, of="items per row"),
        ),
    ]
    drop: Annotated[Iterable[str], Option((), "Columns to leave out.", check=_check_column_names)]
    passthrough: Annotated[Iterable[str], Option((), "Columns to copy UNPROTECTED.", check=_check_column_names)]
    allocation: Annotated[
        str | Mapping[Any, float],
        Option(
            "uniform",
            "How columns share the budget: uniform, or error (the least total normalised error).",
            "Or ``{column: share}``, where the tuple of its columns names a group.",
        ),
    ]
    mechanisms: Annotated[
        Mapping[str, str | Mechanism] | None,
        Option(
            None,
            "Other mechanisms than the spaces' own.",
            "``{column: tag}``, or a ready mechanism, which costs what it is certified to lose.",
            check=lambda name, value: as_mechanisms(value),
        ),
    ]
    numbers: Annotated[
        str,
        Option(
            "laplace",
            "Noise of numbers: laplace, square_wave, or least_error by forecast.",
            "The square wave (Li et al. 2020) keeps a value close by with a fixed chance and else replaces it by any; "
            "where nothing is measured its estimates have 0.1 to 1.0 of the error. ``mechanisms`` goes before it.",
            check=check_noise,
        ),
    ]
    ordinals: Annotated[
        str,
        Option(
            "least_error",
            "Noise of ordinals of more than 16 ranks: least_error by forecast, laplace or square_wave.",
            "Up to 16 ranks the optimal mechanism has the least error of all. ``mechanisms`` goes before it.",
            check=check_noise,
        ),
    ]
    sets: Annotated[
        str,
        Option(
            "least_error",
            "Noise of sets: least_error by forecast, bitflip (item by item) or randomized_response (as wholes).",
            "By default a set is randomised as a whole if the forecast error of supports is a fifth smaller: of few "
            "items, mostly. Where there are too many sets it is item by item. ``mechanisms`` goes before it.",
            check=check_noise,
        ),
    ]
    groups: Annotated[
        Iterable[Sequence[str]],
        Option(
            (),
            "Columns to randomise together, by one channel on their tuples.",
            "A list of such lists. Their joint costs them one ε in all; `Plan.forecast` shows what that does to every "
            "statistic.",
        ),
    ]
    nulls: Annotated[
        str,
        Option(
            "error",
            "What a null is where its space holds none: error or impute.",
            "To impute writes the middle of the bounds, ``other`` or the first category, which statistics count as any "
            "value; `Nullable` spaces keep nulls apart.",
        ),
    ]
    contributions: Annotated[
        int,
        Option(
            1, "Rows that one person may own.", check=lambda name, value: check_whole(value, name, of="rows per person")
        ),
    ]
    privacy_id: Annotated[
        str | None,
        Option(
            None,
            "The column that names each row's person: as many rows of everyone as contributions says.",
            "They are chosen in secret, uniformly; of those who own fewer some are taken more than once, so that the "
            "number of rows is public. The column does not leave. Without it ``contributions`` is believed.",
        ),
    ]
    rules: Annotated[
        Iterable[Any],
        Option(
            (),
            "Public facts between columns that every row keeps: Implies, Follows, Ordered, OneOf.",
            "Their columns must have declared spaces. A row that breaks one is mended by what it and the plan say, "
            "before it is counted or randomised; joints and synthetic rows keep them, released rows hide it by noise.",
            check=lambda name, value: as_rules(value),
        ),
    ]
    shuffle: Annotated[
        bool,
        Option(
            True,
            "Let rows leave in a secret random order; noise is far smaller for it.",
            "Without it, or with columns passed through, the same promise needs several times more.",
            check=_check_flag,
        ),
    ]
    sample: Annotated[
        int | str | None,
        Option(None, "Rows to choose in secret and release instead of all: a number, or optimal."),
    ]


OPTIONS: Mapping[str, Option] = {
    name: replace(option, name=name, type=type_)
    for name, hint in get_type_hints(PlanOptions, include_extras=True).items()
    for type_, option in [get_args(hint)]
}


_NUMPYDOC_PARAMETERS = "\n".join(
    f"{option.name} : default {option.default!r}\n"
    + textwrap.indent(textwrap.fill(f"{option.help} {option.more}".strip(), 112, break_on_hyphens=False), "    ")
    for option in OPTIONS.values()
)
"""All options as numpydoc's parameters, in lines of 116 letters (limit of a line)."""

DEFAULTS: Mapping[str, Any] = {name: option.default for name, option in OPTIONS.items()}


CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")


def check_codec(compression: str) -> None:
    """Raise `ParameterError` for a codec that Parquet does not know."""
    if not is_one_of(compression, CODECS):
        raise ParameterError(f"compression must be one of {', '.join(CODECS)}")


def check_names(given: Iterable[str]) -> None:
    """Raise `ParameterError` for a keyword that decides nothing about a plan."""
    decide = ("epsilon", "delta", *OPTIONS)
    for name in given:
        if name == "neighbours":
            raise ParameterError(
                "neighbours is for Queries: a release shows its number of rows, so that one row is replaced; leave "
                "neighbours out"
            )
        if name in ("sep", "decimal", "dayfirst", "encoding"):
            raise ParameterError(
                f"{name} is an option of pandas.read_csv: sanitize the frame that it reads, or pass --{name} on the "
                "command line"
            )
        if name not in decide:
            suggestion = did_you_mean(name, decide)
            raise ParameterError(f"{name} is no option of a plan; {suggestion}options are {', '.join(decide)}")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options, those not given at their defaults; `ParameterError` for one that breaks its rule."""
    return {name: option.check(name, given.get(name, option.default)) for name, option in OPTIONS.items()}


def documented(function: F) -> F:
    """Put all options in the place of ``**options`` in a signature, and of ``{options}`` in a docstring.

    So that Tab and Shift-Tab find them.
    """
    signature = inspect.signature(function)
    *own_parameters, options_parameter = signature.parameters.values()
    assert options_parameter.kind is options_parameter.VAR_KEYWORD
    # A parameter that the function names itself keeps its own default.
    option_parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
        for name, option in OPTIONS.items()
        if name not in signature.parameters
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own_parameters, *option_parameters])
    if function.__doc__ is not None:  # python -OO leaves none
        function.__doc__ = inspect.cleandoc(function.__doc__).replace("{options}", _NUMPYDOC_PARAMETERS)
    return function


def as_method_of(verb: Callable[..., Any], without: Collection[str], method: F) -> F:
    """Give a method ``(self, epsilon, delta, **options)`` the keywords of a function of a table, and their help.

    ``without`` names parameters that a method does not take: the table, and those for other kinds of table.
    """
    method_signature, verb_parameters = inspect.signature(method), inspect.signature(verb).parameters
    self, epsilon, delta, options_parameter = method_signature.parameters.values()
    assert options_parameter.kind is options_parameter.VAR_KEYWORD
    positional_names = {self.name, epsilon.name, delta.name}
    keyword_parameters = [
        p.replace(kind=p.KEYWORD_ONLY)
        for p in verb_parameters.values()
        if p.name not in positional_names.union(without)
    ]
    vars(method)["__signature__"] = method_signature.replace(parameters=[self, epsilon, delta, *keyword_parameters])
    if method.__doc__ is not None and verb.__doc__ is not None:  # python -OO leaves none
        section = verb.__doc__.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
        entries = re.split(r"\n(?=\S)", section)
        help_text = "\n".join(entry for entry in entries if not {*re.split(r" : |, |\n", entry)[:1]} & {*without})
        method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n\nParameters\n----------\n{help_text}\n"
    return method


def check_bounded(left: Sequence[Field], options: Mapping[str, Any]) -> None:
    """Refuse noise that goes beyond bounds still to be inferred, which a column's type may then not hold."""
    for column in left:
        name = options["mechanisms"].get(column.name)
        if name is not None and releases_outside_bounds(any_space(column), name):
            tag = name.tag if isinstance(name, Mechanism) else name
            raise ParameterError(
                f"mechanism {tag} of column {column.name!r} goes beyond the bounds, which must be declared: "
                f"spaces={{{column.name!r}: (LOWER, UPPER)}}"
            )


def releases_outside_bounds(space: Space, mechanism: Any) -> bool:
    """Return whether a mechanism, ready or by its name, is for a space, and goes beyond its bounds."""
    if not takes(space, mechanism):
        return False
    return (
        mechanism.releases_outside_bounds
        if isinstance(mechanism, Mechanism)
        else family_for(space, mechanism).releases_outside_bounds
    )


def takes(space: Space, mechanism: Any) -> bool:
    """Return whether a mechanism, ready or by its name, is for spaces of such a metric."""
    tag = mechanism.tag if isinstance(mechanism, Mechanism) else mechanism
    try:
        family_for(space, tag)
    except ParameterError:
        return False
    return True


def ready(options: Mapping[str, Any]) -> list[Mechanism]:
    """Return the mechanisms that were given as such, not by name."""
    return [m for m in options["mechanisms"].values() if isinstance(m, Mechanism)]


def uses_shuffle_amplification(options: Mapping[str, Any]) -> bool:
    """Return whether rows hide each other: they are shuffled, and no mechanism has a δ of its own."""
    has_own_delta = any(m.delta > 0 for m in ready(options)) or bool(columns_needing_delta(options))
    return bool(options["shuffle"]) and not options["passthrough"] and not has_own_delta


def columns_needing_delta(options: Mapping[str, Any]) -> list[str]:
    """Return the columns whose mechanism, ready or by its name, may need a δ of its own."""
    mechanisms, names = options["mechanisms"], by_name(family for family in MECHANISMS.values() if family.takes_delta)
    return [
        column for column, tag in mechanisms.items() if is_one_of(tag.tag if isinstance(tag, Mechanism) else tag, names)
    ]


def may_move_shares(options: Mapping[str, Any], left: Sequence[Field]) -> bool:
    """Return whether a mechanism with a loss or a δ of its own may give way, which moves other columns' shares."""
    costly_columns = {name for name, mechanism in options["mechanisms"].items() if isinstance(mechanism, Mechanism)}
    costly_columns |= {*columns_needing_delta(options)}
    return any(column.name in costly_columns for column in left)


def check_ready_mechanisms(
    options: Mapping[str, Any], promise: Budget, inference: Step | None, tables: Step | None
) -> None:
    """Refuse ready mechanisms that leave nothing once the rest is spent, before it is."""
    ready_mechanisms, steps = ready(options), [step for step in (inference, tables) if step is not None]
    if not ready_mechanisms:
        return
    central, secret = composed_steps(steps) if steps else None, options["shuffle"] and not options["passthrough"]
    # An optimal sample has no number yet, and is checked when the plan is built.
    sample = options["sample"] if isinstance(options["sample"], int) else None
    terms = AccountingContext(promise, options["n"], sample, secret, options["contributions"], central)
    check_ready(ready_mechanisms, terms)
