"""Additive Wishart noise on pairs of tables that differ in one row, and what its releases tell of which it was."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from dpframe.accounting.audit import AuditResult, audit
from dpframe.noise.keystream import Keystream
from dpframe.totals.wishart import WishartNoise

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
