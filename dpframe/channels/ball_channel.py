"""Channels on vectors in a ball: independent noise on every coordinate."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn

from dpframe.channels.base import Channel, CodeFunction, IntArray
from dpframe.errors import ParameterError
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.ball import Ball

CHUNK = 1 << 14
"""Rows that are unpacked at a time."""


class BallChannel(Channel):
    """Noise on the coordinates of vectors in a ball: what follows from just the ball."""

    @property
    @abstractmethod
    def ball(self) -> Ball:
        """The ball that vectors are drawn to before noise is added."""

    @property
    @abstractmethod
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Surrogates of u and of u², by the released code of a coordinate, each of shape (2^bits,)."""

    @property
    @abstractmethod
    def variances(self) -> tuple[float, float]:
        """Variance of the surrogate of u for a coordinate next to 0, and the largest."""

    own_metric = "vector"

    def reads(self, space: Space) -> bool:
        """Return whether a space's vectors lie in this ball, on this grid."""
        vectors: Any = space
        return bool(vectors.holds_vectors and vectors.ball == self.ball)

    @property
    def diameter(self) -> float:
        """Largest distance of two vectors in grid steps."""
        return float(self.ball.radius)

    @property
    def centre(self) -> int:
        """The vector next to 0."""
        return self.ball.centre

    @property
    def code_words(self) -> int:
        """64-bit words in the code of a row."""
        return self.ball.words

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Refused: functions of a whole vector have too many values; coordinates have surrogates of their own."""
        self._refuse()

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Refused, as `surrogate_at`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ParameterError("vectors are not inverted as a whole; ask for mean or mean_curve")
