"""Mills' ratio of the normal law, R(t) = (1 − Φ(t))/φ(t), and with it the logarithm of its tail.

R(t)·(1 + t) is smooth in y = (t − 4)/(t + 4), which runs from −1 at t = 0 to 1 at infinity. `_TERMS` are the powers of
y that are left of its Chebyshev series after 25 terms, beyond which lie 1e-17 of it. `scipy.special.erfcx` gives as
much with three times the error, and a fresh process pays an eighth of a second for that module.
"""

from __future__ import annotations

import math

import numpy as np

from dpframe.accounting.arrays import FloatArray

_TERMS = np.array(
    [
        [1.1832619145678034, -0.2423996705218081, 0.035091880234748005, 0.07169048120143744, -0.0807080096790523],
        [
            0.04495912907706981,
            -0.01253910362039814,
            -0.0007159509052838121,
            0.001741848773732585,
            -0.00023670175882712258,
        ],
        [
            -2.202155756957516e-4,
            5.3266970938315365e-5,
            3.415881433183821e-5,
            -8.606187876096938e-6,
            -6.5533544552582505e-6,
        ],
        [
            1.0194890870987357e-6,
            1.390762707984928e-6,
            -3.101083609757584e-9,
            -2.869299965207942e-7,
            -4.494916382038613e-8,
        ],
        [
            5.077844122332048e-8,
            1.3723059452459651e-8,
            -6.5624402369464745e-9,
            -1.6952996818880583e-9,
            4.480233382099169e-10,
        ],
    ]
)
"""Of each fifth power of y, what it is multiplied by: 1, y, y², y³ and y⁴ with these weights."""
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


def mills_ratio(t: FloatArray) -> FloatArray:
    """Return R(t), element by element, to a relative 1e-15 for t ≥ −2.

    >>> mills_ratio(np.array([0.0, 10.0])).round(12).tolist()  # √(π/2), and nearly 1/t
    [1.253314137316, 0.099028596472]
    """
    size = np.abs(t)
    y = np.ravel((size - 4) / (size + 4))
    # Few calls: most arrays are short.
    powers = np.empty((5, len(y)))
    powers[0], powers[1] = 1.0, y
    square = np.multiply(y, y, out=powers[2])
    np.multiply(square, y, out=powers[3])
    fifth = np.multiply(square, square, out=powers[4]) * y
    parts = _TERMS @ powers
    found = parts[-1]
    for part in parts[-2::-1]:
        found *= fifth
        found += part
    found = found.reshape(np.shape(size))
    found = found / (1 + size)
    if np.any(t < 0):
        found = np.where(t < 0, math.sqrt(2 * math.pi) * np.exp(0.5 * np.minimum(t, 0.0) ** 2) - found, found)
    return np.asarray(found)


def log_tail(t: FloatArray) -> FloatArray:
    """Return ln(1 − Φ(t)) for t ≥ 0, the tail itself to a relative 1e-15·(1 + t²).

    >>> log_tail(np.array([0.0, 10.0])).round(6).tolist()
    [-0.693147, -53.231285]
    """
    return np.asarray(np.log(mills_ratio(t)) - 0.5 * t * t - _LOG_ROOT)
