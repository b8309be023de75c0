"""The certificate that a profile lies under the curve of a step, from bounds on the profile at a few nodes.

Let H be the profile of a release, h_j ≥ H(x_j) bounds from above on it at nodes 0 = x_0 < … < x_J, and C(x) = δ₀ +
(1 − δ₀)·G_μ(x) the curve of the step (μ, δ₀). `cover` proves H ≤ C on [0, ∞), which makes the release that step
(`gaussian_dp`), from three facts:

- H falls in x. So H ≤ h_J beyond the last node, and h_J ≤ δ₀ ≤ C is enough there.
- H is convex in t = e^x: it is the largest of the straight lines P(A) − t·P'(A) over neighbours and events. So between
  two nodes it lies under the chord of (t_j, h_j) and (t_{j+1}, h_{j+1}), however the bounds were made: they need not be
  convex, nor of one method.
- C is convex in t, of slope −(1 − δ₀)·Φ(−μ/2 − x/μ). So it lies above its tangents. On the part of [t_j, t_{j+1}]
  left of any point u the tangent at t_j serves, and right of it that at t_{j+1}; chord less tangent is straight, so
  that the ends of each part are enough:

      h_j ≤ C_j,   chord(u) ≤ tangent_j(u),   chord(u) ≤ tangent_{j+1}(u),   h_{j+1} ≤ C_{j+1}.

  u is taken where the tangents meet; rounding of u costs nothing, since any u will do.

h_j ≤ C_{j+1} is enough too, as both fall; h_j ≤ C_j is not. Every comparison leaves `_MARGIN` for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.gaussian_dp import Step, log_gaussian, log_slope, mu_of

Profile = Callable[[float], float]
"""Bounds a profile H from above at one x ≥ 0."""
Profiles = Callable[[FloatArray], FloatArray]
"""Bounds a profile H from above at each of many x ≥ 0."""

_MARGIN = 1e-10
"""Relative to the curve at an interval's left end; the error of the curve and its slope is a tenth of that."""
_STARTS = (0.15, 0.35, 0.5, 0.65, 0.8, 0.9)
"""First nodes, as parts of the x at which the profile is expected to reach the slack."""
_WIDER = 1.15
"""Factor by which the last node moves outward; it grows by 0.05 each time."""
_FURTHEST = 40
"""Moves by that factor after which the profile is taken never to reach the slack."""
_MOST = 400
"""Nodes beyond which the certificate is given up."""


@dataclass(frozen=True)
class Cover:
    """A step that provably covers a profile, with the step that was allowed.

    ``ratio`` is the μ of the step over the μ that was allowed: at most 1 where it fits, infinite where no μ was found.
    ``least`` is what no certificate from these bounds can go below.
    """

    step: Step
    ratio: float
    least: float


class _Nodes:
    """Bounds on a profile where they have been computed, in the order of x, and the μ that each of them needs."""

    def __init__(self, profiles: Profiles, slack: float) -> None:
        self._profiles, self._slack = profiles, slack
        self.seen: dict[float, tuple[float, float]] = {}
        self._near: float | None = None

    def add(self, x: npt.ArrayLike) -> None:
        """Add nodes."""
        new = np.asarray(x, dtype=np.float64)
        h = self._profiles(new)
        rest = (h - self._slack) / (1 - self._slack)
        with np.errstate(divide="ignore", invalid="ignore"):
            mu = mu_of(np.where(rest > 0, np.log(np.maximum(rest, 1e-320)), -np.inf), new, self._near)
        needs = np.asarray(np.where(rest < 1, mu, np.inf))
        self._near = max((need for need in needs.tolist() if 0 < need < math.inf), default=self._near)
        self.seen |= dict(zip(new.tolist(), zip(h.tolist(), needs.tolist(), strict=True), strict=True))

    def at(self, x: float) -> float:
        if x not in self.seen:
            self.add([x])
        return self.seen[x][0]

    def until_slack(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return x, h and the μ needed of the nodes up to the first whose bound is at most the slack."""
        x = np.array(sorted(self.seen))
        h, needs = np.array([self.seen[value] for value in x.tolist()]).T
        low = np.flatnonzero(h <= self._slack * (1 - _MARGIN))
        end = low[0] + 1 if len(low) else len(x)
        return x[:end], h[:end], needs[:end]

    def spread(self) -> bool:
        """Add nodes until the slack is reached; return whether it is."""
        enough = self._slack * (1 - _MARGIN)
        start = self.at(0.0)
        if start <= enough:
            return True
        if start >= 1:
            return False
        mu = float(mu_of(math.log(start), 0.0))
        end = mu * (mu / 2 + math.sqrt(-2 * math.log(max(self._slack, 1e-300)))) * 0.9
        self.add(np.array(_STARTS) * end)
        for turn in range(_FURTHEST):
            if self.at(end) <= enough:
                return True
            end *= _WIDER + 0.05 * turn
        return False


def unproved(x: FloatArray, h: FloatArray, step: Step) -> npt.NDArray[np.bool_]:
    """Return between which neighbouring nodes the certificate fails."""
    curve = (
        np.full(x.shape, step.delta)
        if step.mu == 0
        else np.asarray(step.delta + (1 - step.delta) * np.exp(log_gaussian(step.mu, x)[0]))
    )
    margin = _MARGIN * curve[:-1]
    under = h <= curve * (1 - _MARGIN)
    falling = h[:-1] <= curve[1:] * (1 - _MARGIN)
    if step.mu == 0:
        return ~falling
    # Distances in t and slopes are scaled by e^(x_j), so that nothing overflows or cancels.
    gap = np.diff(x)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        width = np.expm1(gap)
        slope = (1 - step.delta) * np.exp(x + log_slope(step.mu, x))
        left, right = slope[:-1], slope[1:] * np.exp(-gap)
        meet = np.clip((curve[:-1] - curve[1:] - right * width) / (left - right), 0.0, width)
        meet = np.where(np.isfinite(meet), meet, width / 2)
        chord = h[:-1] + (h[1:] - h[:-1]) * (meet / width)
        tangent = np.minimum(curve[:-1] - left * meet, curve[1:] + right * (width - meet))
        convex = under[:-1] & under[1:] & (chord + margin <= tangent)
    return np.asarray(~(convex | falling))


def cover(profile: Profile, allowed: Step, tolerance: float = 2e-4) -> Cover:
    """Return the least step that certainly covers a profile, relative to the one that is allowed, whose slack it has.

    ``profile`` returns a bound from above on H(x), at any x ≥ 0; H itself must be the profile of a release (convex in
    e^x and falling), and its bound nothing but above it. The μ is within ``tolerance``, relative, of what the bounds
    need; an infinite tolerance asks for no proof, only for a glance at ``least`` from the first nodes.
    """
    return cover_many(lambda x: np.array([profile(value) for value in x.tolist()]), allowed, tolerance)


def cover_many(profiles: Profiles, allowed: Step, tolerance: float = 2e-4, most: int = _MOST) -> Cover:
    """Return `cover` of a profile that is bounded at many x at once, by a certificate of at most so many nodes."""
    slack, uncovered = allowed.delta, Cover(allowed, math.inf, math.inf)
    nodes = _Nodes(profiles, slack)
    if allowed.mu == 0 or not nodes.spread():
        return uncovered
    while True:
        x, h, needs = nodes.until_slack()
        most_needed = float(needs.max())
        if not math.isfinite(most_needed):
            return uncovered
        least = most_needed / allowed.mu
        if tolerance == math.inf:
            return Cover(Step(0.0, slack), math.inf, least)
        step = Step(most_needed * (1 + tolerance), slack)
        failing = unproved(x, h, step) if len(x) > 1 else np.zeros(0, dtype=np.bool_)
        if not failing.any():
            return Cover(step, step.mu / allowed.mu, least)
        if len(nodes.seen) >= most:
            return uncovered
        nodes.add(((x[:-1] + x[1:]) / 2)[failing])  # the middles of intervals
