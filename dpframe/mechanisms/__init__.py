"""Random channels on integer codes, a family a file, reached through one tag registry."""

from dpframe.mechanisms.base import MECHANISMS, Channel, Mechanism, family_for, mechanism_for, mechanism_from_json
from dpframe.mechanisms.bit_flips import AsymmetricBitFlip, BitFlip
from dpframe.mechanisms.gamma_diagonal import GammaDiagonal
from dpframe.mechanisms.gaussian import Gaussian
from dpframe.mechanisms.geometric import Geometric
from dpframe.mechanisms.nullable import WithNull
from dpframe.mechanisms.optimal import Optimal
from dpframe.mechanisms.process import Process
from dpframe.mechanisms.rectangular import RectangularMatrix
from dpframe.mechanisms.response import RandomizedResponse, ResponseChannel
from dpframe.mechanisms.set_response import NullableSetResponse, SetResponse
from dpframe.mechanisms.staircase import Staircase
from dpframe.mechanisms.tabulated import Exponential, Matrix
from dpframe.mechanisms.vector_noise import VectorNoise
from dpframe.mechanisms.wrapped import WrappedGeometric

__all__ = [
    "MECHANISMS",
    "AsymmetricBitFlip",
    "BitFlip",
    "Channel",
    "Exponential",
    "GammaDiagonal",
    "Gaussian",
    "Geometric",
    "Matrix",
    "Mechanism",
    "NullableSetResponse",
    "Optimal",
    "Process",
    "RandomizedResponse",
    "RectangularMatrix",
    "ResponseChannel",
    "SetResponse",
    "Staircase",
    "VectorNoise",
    "WithNull",
    "WrappedGeometric",
    "family_for",
    "mechanism_for",
    "mechanism_from_json",
]
