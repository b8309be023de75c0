"""Random channels on integer codes, a family a file, reached through one tag registry."""

from dpframe.channels.base import MECHANISMS, Channel, Mechanism, family_for, mechanism_for, mechanism_from_json
from dpframe.channels.bit_flips import AsymmetricBitFlip, BitFlip
from dpframe.channels.gamma_diagonal import GammaDiagonal
from dpframe.channels.gaussian import Gaussian
from dpframe.channels.geometric import Geometric
from dpframe.channels.nullable import WithNull
from dpframe.channels.optimal import Optimal
from dpframe.channels.process import Process
from dpframe.channels.rectangular import RectangularMatrix
from dpframe.channels.response import RandomizedResponse, ResponseChannel
from dpframe.channels.set_response import NullableSetResponse, SetResponse
from dpframe.channels.staircase import Staircase
from dpframe.channels.tabulated import Exponential, Matrix
from dpframe.channels.vector_noise import VectorNoise
from dpframe.channels.wide_gaussian import WideGaussian
from dpframe.channels.wrapped import WrappedGeometric

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
    "WideGaussian",
    "WithNull",
    "WrappedGeometric",
    "family_for",
    "mechanism_for",
    "mechanism_from_json",
]
