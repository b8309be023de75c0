"""The public description of a release: its columns, their noise, and what it promises."""

from dpframe.plan.build import build_plan
from dpframe.plan.columns import Column, Group
from dpframe.plan.plan import Plan

__all__ = ["Column", "Group", "Plan", "build_plan"]
