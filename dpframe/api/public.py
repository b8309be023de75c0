"""The names that ``import dpframe`` offers, each imported when it is first used; rooms above take them from here."""

import contextlib
import gc
import importlib
import typing
from collections.abc import Iterator

if typing.TYPE_CHECKING:
    from dpframe import datasets, errors
    from dpframe.accounting.budget import Budget
    from dpframe.api.audits import audit
    from dpframe.api.expectation import draft_spaces, expect
    from dpframe.api.files import attach, write
    from dpframe.api.reading import read
    from dpframe.api.synthetic_parquet import fidelity
    from dpframe.api.transformer import Sanitizer
    from dpframe.api.verbs import plan, sanitize
    from dpframe.estimate import Estimates
    from dpframe.estimate.plot import error_bars
    from dpframe.inference.drafted import DraftedSpaces
    from dpframe.ledger.ledger import Ledger
    from dpframe.plan.one_of import OneOf
    from dpframe.plan.plan import Plan
    from dpframe.plan.rules import Follows, Implies, Ordered
    from dpframe.proofs.verify import verify
    from dpframe.queries.queries import Queries
    from dpframe.spaces import (
        Boolean,
        Categorical,
        Curve,
        Datetime,
        Integer,
        Nullable,
        Ordinal,
        Product,
        Real,
        Subset,
        Vector,
    )
    from dpframe.spaces.records import Records

__all__ = [
    "Boolean",
    "Budget",
    "Categorical",
    "Curve",
    "Datetime",
    "DraftedSpaces",
    "Estimates",
    "Follows",
    "Implies",
    "Integer",
    "Ledger",
    "Nullable",
    "OneOf",
    "Ordered",
    "Ordinal",
    "Plan",
    "Product",
    "Queries",
    "Real",
    "Records",
    "Sanitizer",
    "Subset",
    "Vector",
    "attach",
    "audit",
    "datasets",
    "draft_spaces",
    "error_bars",
    "errors",
    "expect",
    "fidelity",
    "plan",
    "read",
    "sanitize",
    "verify",
    "write",
]

_NAMES = {
    "accounting.budget": "Budget",
    "api.audits": "audit",
    "api.expectation": "draft_spaces expect",
    "api.files": "attach write",
    "api.reading": "read",
    "queries.queries": "Queries",
    "api.synthetic_parquet": "fidelity",
    "api.transformer": "Sanitizer",
    "api.verbs": "plan sanitize",
    "estimate": "Estimates",
    "estimate.plot": "error_bars",
    "inference.drafted": "DraftedSpaces",
    "ledger.ledger": "Ledger",
    "plan.plan": "Plan",
    "plan.one_of": "OneOf",
    "plan.rules": "Follows Implies Ordered",
    "spaces": "Boolean Categorical Curve Datetime Integer Nullable Ordinal Product Real Subset Vector",
    "spaces.records": "Records",
    "proofs.verify": "verify",
}
"""The public names of each module, which is imported when one of its names is first used."""

_UNLISTED = {
    "accounting.audit": "AuditResult",
    "accounting.finite": "SufficientSets sufficient_sets tight",
    "api.accessor": "ReleaseAccessor ReleaseFrame",
    "api.raw_accessor": "RawAccessor",
    "api.verbs": "read_parquet sanitize_parquet",
    "channels": "Matrix",
    "channels.utility": "exponential",
    "errors": (
        "AlreadySanitizedError AlteredReleaseWarning BudgetExceeded ColumnError DpframeError DpframeWarning FileError "
        "InferenceWarning LargeEpsilonWarning LedgerError NotSanitizedError OrderLeakWarning ParameterError PlanError "
        "PrivacyLeakWarning RepeatedReleaseWarning SeededReleaseWarning"
    ),
    "plan.certificate": "Certificate",
    "plan.columns": "Column Group",
    "release.info": "ReleaseInfo",
    "release.linked_plan": "LinkedPlan",
    "report.report": "Report",
}
"""Names that few need, errors (listed in `dpframe.errors`) and deprecated names: found here, and not listed."""

WHERE = {name: module for part in (_NAMES, _UNLISTED) for module, names in part.items() for name in names.split()}
"""The module of each but ``datasets`` and ``errors``, which are modules themselves."""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage: imports make objects that stay, and each search of all that pandas holds costs 8 ms."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


if not typing.TYPE_CHECKING:  # for type checkers the imports above say what there is

    def __getattr__(name: str) -> typing.Any:
        if name not in WHERE and name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with uncollected():
            module = importlib.import_module(f"dpframe.{WHERE.get(name, name)}")
        value = getattr(module, name) if name in WHERE else module
        globals()[name] = value
        return value
