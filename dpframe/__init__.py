"""dpframe: tables about people, made safe to share.

``df.dp.sanitize(epsilon=…)`` randomises every row of a table under (ε, δ)-differential privacy, and
``safe.dp`` still gives unbiased statistics of it, with honest intervals.
"""

from dpframe import datasets
from dpframe.accessor import attach
from dpframe.errors import (
    AlreadySanitizedError,
    AlteredReleaseWarning,
    ColumnError,
    DpframeError,
    DpframeWarning,
    FileError,
    NotSanitizedError,
    OrderLeakWarning,
    ParameterError,
    PlanError,
    PrivacyLeakWarning,
)
from dpframe.estimate import Estimates
from dpframe.inmemory import make_plan, sanitize
from dpframe.loss import Budget
from dpframe.parquet import plan_parquet, read_parquet, sanitize_parquet
from dpframe.plan import Column, Plan
from dpframe.release import ReleaseInfo
from dpframe.report import Report
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Real

__version__ = "0.1.0"

__all__ = [
    "AlreadySanitizedError",
    "AlteredReleaseWarning",
    "Boolean",
    "Budget",
    "Categorical",
    "Column",
    "ColumnError",
    "Datetime",
    "DpframeError",
    "DpframeWarning",
    "Estimates",
    "FileError",
    "Integer",
    "NotSanitizedError",
    "Nullable",
    "OrderLeakWarning",
    "Ordinal",
    "ParameterError",
    "Plan",
    "PlanError",
    "PrivacyLeakWarning",
    "Real",
    "ReleaseInfo",
    "Report",
    "attach",
    "datasets",
    "make_plan",
    "plan_parquet",
    "read_parquet",
    "sanitize",
    "sanitize_parquet",
]
