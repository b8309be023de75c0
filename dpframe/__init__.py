"""dpframe: tables about people, made safe to share.

``df.dp.sanitize(epsilon=…)`` randomises every row of a table under (ε, δ)-differential privacy, and
``safe.dp`` still gives unbiased statistics of it, with honest intervals.
"""

import importlib
import typing

from dpframe.cli import stopping as _stopping  # noqa: F401

# isort: split
from dpframe import datasets
from dpframe.accounting.audit import AuditResult, audit
from dpframe.accounting.budget import Budget
from dpframe.accounting.finite import SufficientSets, sufficient_sets, tight
from dpframe.api.accessor import attach
from dpframe.api.expectation import Expectation, draft_spaces, expect
from dpframe.api.memory import make_plan, price_targets, sanitize
from dpframe.api.parquet import plan_parquet, read_csv, read_parquet, sanitize_parquet, write_parquet
from dpframe.api.queries import Queries
from dpframe.api.replay import ReplayAudit, replay_audit
from dpframe.api.synthetic_parquet import fidelity
from dpframe.channels import Matrix
from dpframe.channels.utility import exponential
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
from dpframe.infer.drafted import DraftedSpaces
from dpframe.ledger.ledger import Ledger
from dpframe.plan.certificate import Certificate
from dpframe.plan.columns import Column, Group
from dpframe.plan.plan import Plan
from dpframe.plan.rules import Follows, Implies, Ordered
from dpframe.release.info import ReleaseInfo
from dpframe.report.report import Report
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
from dpframe.tables.verify import verify_file

if typing.TYPE_CHECKING:
    from dpframe.api.transformer import Sanitizer
    from dpframe.learning import DebiasedLogisticRegression, DebiasedNaiveBayes, DebiasedRidge

__version__ = "0.2.0"

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
    "Curve",
    "Datetime",
    "DebiasedLogisticRegression",
    "DebiasedNaiveBayes",
    "DebiasedRidge",
    "DpframeError",
    "DpframeWarning",
    "DraftedSpaces",
    "Estimates",
    "Expectation",
    "FileError",
    "Follows",
    "Group",
    "Implies",
    "InferenceWarning",
    "Integer",
    "LargeEpsilonWarning",
    "Ledger",
    "LedgerError",
    "Matrix",
    "NotSanitizedError",
    "Nullable",
    "OrderLeakWarning",
    "Ordered",
    "Ordinal",
    "ParameterError",
    "Plan",
    "PlanError",
    "PrivacyLeakWarning",
    "Product",
    "Queries",
    "Real",
    "ReleaseInfo",
    "RepeatedReleaseWarning",
    "ReplayAudit",
    "Report",
    "Sanitizer",
    "SeededReleaseWarning",
    "Subset",
    "SufficientSets",
    "Vector",
    "attach",
    "audit",
    "datasets",
    "draft_spaces",
    "expect",
    "exponential",
    "fidelity",
    "make_plan",
    "plan_parquet",
    "price_targets",
    "read_csv",
    "read_parquet",
    "replay_audit",
    "sanitize",
    "sanitize_parquet",
    "sufficient_sets",
    "tight",
    "verify_file",
    "write_parquet",
]

_LAZY = {
    "DebiasedLogisticRegression": "learning",
    "DebiasedNaiveBayes": "learning",
    "DebiasedRidge": "learning",
    "Sanitizer": "api.transformer",
}
"""Names whose modules import scikit-learn, which takes longer than all the rest: imported when asked for."""


def __getattr__(name: str) -> typing.Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"dpframe.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
