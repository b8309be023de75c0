"""dpframe: tables about people, made safe to share.

``df.dp.sanitize(epsilon=…)`` randomises every row of a table under (ε, δ)-differential privacy, and
``safe.dp`` still gives unbiased statistics of it, with honest intervals.
"""

from __future__ import annotations

import importlib
import sys
import types
import typing

from dpframe.cli import stopping as _stopping  # noqa: F401

# isort: split
import pandas as pd

from dpframe.api import public as _public
from dpframe.api.public import WHERE, __all__, uncollected

if typing.TYPE_CHECKING:
    from dpframe.accounting.audit import AuditResult as AuditResult
    from dpframe.accounting.finite import SufficientSets as SufficientSets
    from dpframe.accounting.finite import sufficient_sets as sufficient_sets
    from dpframe.accounting.finite import tight as tight
    from dpframe.api.accessor import ReleaseAccessor as ReleaseAccessor
    from dpframe.api.accessor import ReleaseFrame as ReleaseFrame
    from dpframe.api.public import *
    from dpframe.api.raw_accessor import RawAccessor as RawAccessor
    from dpframe.api.verbs import plan as plan  # Jedi takes a folder of the name before a wildcard
    from dpframe.api.verbs import read_parquet as read_parquet
    from dpframe.api.verbs import sanitize_parquet as sanitize_parquet
    from dpframe.channels import Matrix as Matrix
    from dpframe.channels.utility import exponential as exponential
    from dpframe.errors import *
    from dpframe.plan.certificate import Certificate as Certificate
    from dpframe.plan.columns import Column as Column
    from dpframe.plan.columns import Group as Group
    from dpframe.release.info import ReleaseInfo as ReleaseInfo
    from dpframe.release.linked_plan import LinkedPlan as LinkedPlan
    from dpframe.report.report import Report as Report

__version__ = "0.3.0"


class _Package(types.ModuleType):
    """The package: a public name stays what it is when a folder of the same name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in WHERE or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not typing.TYPE_CHECKING:  # for type checkers the import above says what there is

    def __getattr__(name: str) -> typing.Any:
        if name not in WHERE:
            return _folder(name)
        value = getattr(_public, name)
        globals()[name] = value
        return value


def _folder(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(f"dpframe.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"dpframe.{name}":
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))


class _Accessor:
    """``df.dp``, whose module is imported when it is first used."""

    def __get__(
        self, frame: pd.DataFrame | None, owner: type[pd.DataFrame]
    ) -> RawAccessor | ReleaseAccessor | type[RawAccessor]:
        with uncollected():
            from dpframe.api.raw_accessor import RawAccessor, accessor_of

            return RawAccessor if frame is None else accessor_of(frame)


pd.DataFrame.dp = _Accessor()  # type: ignore[attr-defined]
