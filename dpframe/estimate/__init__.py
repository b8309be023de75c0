"""Unbiased statistics of a sanitised table, with standard errors and intervals."""

from dpframe.estimate.estimates import Estimates

__all__ = ["Estimates"]
