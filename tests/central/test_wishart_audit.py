"""Wishart noise under the statistical audit, which knows nothing of its proof, and catches the printed version.

An attacker looks at the sharpest there is: the log-likelihood ratio of the release Y = A + W under both tables.
``DPFRAME_RELEASES=1000000 pytest -n 0 tests/central/test_wishart_audit.py -s`` is the full run. Every audit holds with
confidence 1 − 1e-6, and keys are fixed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from dpframe.accounting.audit import AuditResult, audit
from dpframe.accounting.budget import Budget
from dpframe.central.wishart import WishartNoise
from dpframe.noise.keystream import Keystream

RUNS = int(os.environ.get("DPFRAME_RELEASES", "40000"))
CHUNK = 10_000
FAR = 1e3
"""A log-ratio that stands for one that is infinite."""

Rows = tuple[list[float], list[float]]

PAIRS: dict[str, Rows] = {
    "one number": ([1.0], [0.0]),
    "a row and none": ([1.0, 0.0], [0.0, 0.0]),
    "orthogonal rows": ([1.0, 0.0], [0.0, 1.0]),
    "rows at an angle": ([1.0, 0.0, 0.0], [0.6, 0.8, 0.0]),
}
"""Rows by which two tables differ, of norm 1 at most; all others are zero."""


def log_density(w: np.ndarray, noise: WishartNoise) -> np.ndarray:
    """Of each matrix, to a constant; −∞ outside of the support."""
    inside = np.linalg.eigvalsh(w)[:, 0] > 0
    sign, log_det = np.linalg.slogdet(w)
    p = noise.size
    density = (noise.degrees - p - 1) / 2 * log_det - np.trace(w, axis1=1, axis2=2) / (2 * noise.bound)
    return np.where(inside & (sign > 0), density, -np.inf)


def seen(noise: WishartNoise, rows: Rows, mine: int) -> Callable[[int], np.ndarray]:
    """Return a sampler of the log-ratio of the first table to the second, of releases of one of them."""
    one, other = (np.outer(row, row) for row in rows)
    stream = Keystream(bytes([mine]) * 32)

    def sampler(n: int) -> np.ndarray:
        parts = []
        for start in range(0, n, CHUNK):
            drawn = noise.samples(stream.column(f"w{start}", "measure"), min(CHUNK, n - start))
            released = drawn + (one, other)[mine]
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = log_density(released - one, noise) - log_density(released - other, noise)
            parts.append(np.clip(ratio, -FAR, FAR))
        return np.concatenate(parts)

    return sampler


def audited(noise: WishartNoise, pair: str, delta: float) -> AuditResult:
    rows = PAIRS[pair]
    return audit(seen(noise, rows, 0), seen(noise, rows, 1), RUNS, delta)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.01), (1.0, 0.001)])
def test_additive_wishart_noise_is_not_refuted(pair: str, epsilon: float, delta: float) -> None:
    noise = WishartNoise.of(len(PAIRS[pair][0]), 1.0, Budget(epsilon, delta))
    found = audited(noise, pair, delta)
    print(f"\n{pair}, claim ({epsilon}, {delta}), {noise.degrees} degrees: {found}")
    assert not found.refutes(epsilon), str(found)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_the_version_printed_in_the_appendix_is_caught(pair: str, delta: float) -> None:
    """W_d(d + 1, 3/(2ε)·I) for rows of norm 1, said to be ε-private: the supports of A + W and A' + W differ."""
    epsilon, size = 1.0, len(PAIRS[pair][0])
    found = audited(WishartNoise(size, 3 / (2 * epsilon), size + 1), pair, delta)
    print(f"\n{pair}, claim ({epsilon}, {delta}), as printed: {found}")
    assert found.refutes(3 * epsilon), str(found)


def test_a_quarter_of_the_degrees_is_caught() -> None:
    """Which is what fewer degrees than the proof asks for look like: the audit is not idle."""
    epsilon, delta = 2.0, 0.01
    honest = WishartNoise.of(1, 1.0, Budget(epsilon, delta))
    found = audited(WishartNoise(1, 1.0, honest.degrees // 4), "one number", delta)
    assert found.refutes(epsilon), str(found)
