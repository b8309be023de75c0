"""Random channels on integer codes, a family a file, reached through one tag registry."""

from dpframe.mechanisms.additive import Geometric, NullableGeometric
from dpframe.mechanisms.base import MECHANISMS, Mechanism, mechanism_for, mechanism_from_json
from dpframe.mechanisms.channels import Exponential, Matrix
from dpframe.mechanisms.finite import RandomizedResponse, ResponseChannel
from dpframe.mechanisms.optimal import Optimal
from dpframe.mechanisms.product import GammaDiagonal
from dpframe.mechanisms.subset import AsymmetricBitFlip, BitFlip, NullableBitFlip

__all__ = [
    "MECHANISMS",
    "AsymmetricBitFlip",
    "BitFlip",
    "Exponential",
    "GammaDiagonal",
    "Geometric",
    "Matrix",
    "Mechanism",
    "NullableBitFlip",
    "NullableGeometric",
    "Optimal",
    "RandomizedResponse",
    "ResponseChannel",
    "mechanism_for",
    "mechanism_from_json",
]
