"""Random channels on integer codes, a family a file, reached through one tag registry."""

from dpframe.mechanisms.additive import Geometric, NullableGeometric
from dpframe.mechanisms.base import MECHANISMS, Mechanism, mechanism_for, mechanism_from_json
from dpframe.mechanisms.finite import RandomizedResponse

__all__ = [
    "MECHANISMS",
    "Geometric",
    "Mechanism",
    "NullableGeometric",
    "RandomizedResponse",
    "mechanism_for",
    "mechanism_from_json",
]
