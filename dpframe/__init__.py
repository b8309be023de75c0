"""dpframe: tables about people, made safe to share.

``df.dp.sanitize(epsilon=…)`` randomises every row of a table under (ε, δ)-differential privacy, and
``safe.dp`` still gives unbiased statistics of it, with honest intervals.
"""

import importlib
import typing

from dpframe import stopping as _stopping  # noqa: F401

# isort: split
from dpframe import datasets
from dpframe.accessor import attach
from dpframe.audit import AuditResult, audit
from dpframe.certificate import Certificate
from dpframe.errors import (
    AlreadySanitizedError,
    AlteredReleaseWarning,
    BudgetExceeded,
    ColumnError,
    DpframeError,
    DpframeWarning,
    FileError,
    InferenceWarning,
    LargeEpsilonWarning,
    LedgerError,
    NotSanitizedError,
    OrderLeakWarning,
    ParameterError,
    PlanError,
    PrivacyLeakWarning,
    RepeatedReleaseWarning,
    SeededReleaseWarning,
)
from dpframe.estimate import Estimates
from dpframe.inmemory import make_plan, sanitize
from dpframe.ledger import Ledger
from dpframe.loss import Budget
from dpframe.mechanisms import Matrix
from dpframe.parquet import plan_parquet, read_parquet, sanitize_parquet
from dpframe.plan import Column, Group, Plan
from dpframe.release import ReleaseInfo
from dpframe.report import Report
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Product, Real, Subset
from dpframe.verify import verify_file
from dpframe.writing import write_parquet

if typing.TYPE_CHECKING:
    from dpframe.learning import DebiasedNaiveBayes, DebiasedRidge
    from dpframe.transformer import Sanitizer

__version__ = "0.1.0"

__all__ = [
    "AlreadySanitizedError",
    "AlteredReleaseWarning",
    "AuditResult",
    "Boolean",
    "Budget",
    "BudgetExceeded",
    "Categorical",
    "Certificate",
    "Column",
    "ColumnError",
    "Datetime",
    "DebiasedNaiveBayes",
    "DebiasedRidge",
    "DpframeError",
    "DpframeWarning",
    "Estimates",
    "FileError",
    "Group",
    "InferenceWarning",
    "Integer",
    "LargeEpsilonWarning",
    "Ledger",
    "LedgerError",
    "Matrix",
    "NotSanitizedError",
    "Nullable",
    "OrderLeakWarning",
    "Ordinal",
    "ParameterError",
    "Plan",
    "PlanError",
    "PrivacyLeakWarning",
    "Product",
    "Real",
    "ReleaseInfo",
    "RepeatedReleaseWarning",
    "Report",
    "Sanitizer",
    "SeededReleaseWarning",
    "Subset",
    "attach",
    "audit",
    "datasets",
    "make_plan",
    "plan_parquet",
    "read_parquet",
    "sanitize",
    "sanitize_parquet",
    "verify_file",
    "write_parquet",
]

_LAZY = {"DebiasedNaiveBayes": "learning", "DebiasedRidge": "learning", "Sanitizer": "transformer"}
"""Names whose modules import scikit-learn, which takes longer than all the rest: imported when asked for."""


def __getattr__(name: str) -> typing.Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"dpframe.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
