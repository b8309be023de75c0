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
    from dpframe.api.files import attach, read, write
    from dpframe.api.synthetic_parquet import fidelity
    from dpframe.api.transformer import Sanitizer
    from dpframe.api.verbs import plan, read_parquet, sanitize, sanitize_parquet
    from dpframe.errors import (
        BudgetExceeded,
        ColumnError,
        DpframeError,
        DpframeWarning,
        FileError,
        InferenceWarning,
        NotSanitizedError,
        OrderLeakWarning,
        ParameterError,
        PrivacyLeakWarning,
        SeededReleaseWarning,
    )
    from dpframe.estimate import Estimates
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

__all__ = [
    "Boolean",
    "Budget",
    "BudgetExceeded",
    "Categorical",
    "ColumnError",
    "Curve",
    "Datetime",
    "DpframeError",
    "DpframeWarning",
    "DraftedSpaces",
    "Estimates",
    "FileError",
    "Follows",
    "Implies",
    "InferenceWarning",
    "Integer",
    "Ledger",
    "NotSanitizedError",
    "Nullable",
    "OneOf",
    "OrderLeakWarning",
    "Ordered",
    "Ordinal",
    "ParameterError",
    "Plan",
    "PrivacyLeakWarning",
    "Product",
    "Queries",
    "Real",
    "Sanitizer",
    "SeededReleaseWarning",
    "Subset",
    "Vector",
    "attach",
    "audit",
    "datasets",
    "draft_spaces",
    "errors",
    "expect",
    "fidelity",
    "plan",
    "read",
    "read_parquet",
    "sanitize",
    "sanitize_parquet",
    "verify",
    "write",
]

_NAMES = {
    "accounting.budget": "Budget",
    "api.audits": "audit",
    "api.expectation": "draft_spaces expect",
    "api.files": "attach read write",
    "queries.queries": "Queries",
    "api.synthetic_parquet": "fidelity",
    "api.transformer": "Sanitizer",
    "api.verbs": "plan read_parquet sanitize sanitize_parquet",
    "errors": (
        "BudgetExceeded ColumnError DpframeError DpframeWarning FileError InferenceWarning NotSanitizedError "
        "OrderLeakWarning ParameterError PrivacyLeakWarning SeededReleaseWarning"
    ),
    "estimate": "Estimates",
    "inference.drafted": "DraftedSpaces",
    "ledger.ledger": "Ledger",
    "plan.plan": "Plan",
    "plan.one_of": "OneOf",
    "plan.rules": "Follows Implies Ordered",
    "spaces": "Boolean Categorical Curve Datetime Integer Nullable Ordinal Product Real Subset Vector",
    "proofs.verify": "verify",
}
"""The public names of each module, which is imported when one of its names is first used."""

_RARE = {
    "accounting.audit": "AuditResult",
    "accounting.finite": "SufficientSets sufficient_sets tight",
    "channels": "Matrix",
    "channels.utility": "exponential",
    "errors": (
        "AlreadySanitizedError AlteredReleaseWarning LargeEpsilonWarning LedgerError PlanError RepeatedReleaseWarning"
    ),
    "plan.certificate": "Certificate",
    "plan.columns": "Column Group",
    "release.info": "ReleaseInfo",
    "report.report": "Report",
}
"""Names that few need, which are found here as well as in their modules, and are not listed."""

WHERE = {name: module for part in (_NAMES, _RARE) for module, names in part.items() for name in names.split()}
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
