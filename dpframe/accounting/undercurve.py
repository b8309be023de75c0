"""The certificate that a profile lies under the curve of a step, from bounds on the profile at a few nodes.

Let H be the profile of a release, h_j ≥ H(x_j) bounds from above on it at nodes 0 = x_0 < … < x_J, and C(x) = δ₀ +
(1 − δ₀)·G_μ(x) the curve of the step (μ, δ₀). `cover` proves H ≤ C on [0, ∞), which makes the release that step
(`gaussian_dp`), from three facts:

- H falls in x. So H ≤ h_J beyond the last node, and h_J ≤ δ₀ ≤ C is enough there.
- H is convex in t = e^x: it is the largest of the straight lines P(A) − t·P'(A) over neighbours and events. So between
  two nodes it lies under the chord of (t_j, h_j) and (t_{j+1}, h_{j+1}), however the bounds were made: they need not be
  convex, nor of one method.
- C is convex in t, of slope −(1 − δ₀)·Φ(−μ/2 − x/μ). So it lies above its tangents. On the part of [t_j, t_{j+1}]
  left of any point u the tangent at t_j serves, and right of it the tangent at t_{j+1}. Chord less tangent is
  straight, so that the ends of each part are enough:

      h_j ≤ C_j,   chord(u) ≤ tangent_j(u),   chord(u) ≤ tangent_{j+1}(u),   h_{j+1} ≤ C_{j+1}.

  u is the point in which the tangents meet. Rounding of u costs nothing, since any u is valid.

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
_FIRST_NODE_SHARES = (0.15, 0.35, 0.5, 0.65, 0.8, 0.9)
"""First nodes, as parts of the x at which the profile probably reaches the slack."""
_END_GROWTH = 1.15
"""Factor by which the last node moves outward; it grows by 0.05 a move."""
_MAX_MOVES = 40
"""Most moves of the last node, after which the profile counts as never reaching the slack."""
_MAX_UNDERCURVE_NODES = 400
"""Most nodes of a certificate."""


@dataclass(frozen=True)
class Cover:
    """A step that provably covers a profile, compared with the allowed step.

    ``ratio`` is the μ of the step over the allowed μ: at most 1 if the step fits, infinite if no μ covers the profile.
    ``least`` is a lower bound on the ratio of any certificate from these bounds.
    """

    step: Step
    ratio: float
    least: float


class _Nodes:
    """Computed bounds on a profile, in the order of x, and the μ that each of them needs."""

    def __init__(self, profiles: Profiles, slack: float) -> None:
        self._profiles, self._slack = profiles, slack
        self.bounds: dict[float, tuple[float, float]] = {}
        self._start_mu: float | None = None

    def add(self, x: npt.ArrayLike) -> None:
        """Add nodes."""
        new = np.asarray(x, dtype=np.float64)
        h = self._profiles(new)
        above_slack = (h - self._slack) / (1 - self._slack)
        with np.errstate(divide="ignore", invalid="ignore"):
            mu = mu_of(np.where(above_slack > 0, np.log(np.maximum(above_slack, 1e-320)), -np.inf), new, self._start_mu)
        needs = np.asarray(np.where(above_slack < 1, mu, np.inf))
        # The next nodes need about that μ: Newton's method then takes few turns.
        self._start_mu = max((need for need in needs.tolist() if 0 < need < math.inf), default=self._start_mu)
        self.bounds |= dict(zip(new.tolist(), zip(h.tolist(), needs.tolist(), strict=True), strict=True))

    def reach_slack(self) -> bool:
        """Add nodes until the slack is reached; return whether it is."""
        enough = self._slack * (1 - _MARGIN)
        self.add([0.0])
        start = self.bounds[0.0][0]
        if start <= enough:
            return True
        if start >= 1:
            return False
        mu = float(mu_of(math.log(start), 0.0))
        # About the x at which the curve of the profile's own μ at 0 falls to the slack.
        end = mu * (mu / 2 + math.sqrt(-2 * math.log(max(self._slack, 1e-300)))) * 0.9
        self.add(np.array(_FIRST_NODE_SHARES) * end)
        for turn in range(_MAX_MOVES):
            if end not in self.bounds:
                self.add([end])
            if self.bounds[end][0] <= enough:
                return True
            end *= _END_GROWTH + 0.05 * turn
        return False


def unproved(x: FloatArray, h: FloatArray, step: Step) -> npt.NDArray[np.bool_]:
    """Return, for every pair of neighbouring nodes, whether the certificate fails between them."""
    curve = (
        np.full(x.shape, step.delta)
        if step.mu == 0
        else np.asarray(step.delta + (1 - step.delta) * np.exp(log_gaussian(step.mu, x)[0]))
    )
    margin = _MARGIN * curve[:-1]
    is_under = h <= curve * (1 - _MARGIN)
    is_falling = h[:-1] <= curve[1:] * (1 - _MARGIN)
    if step.mu == 0:
        return ~is_falling
    # Distances in t and slopes are scaled by e^(x_j), so that nothing overflows or cancels.
    gap = np.diff(x)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        width = np.expm1(gap)
        slope = (1 - step.delta) * np.exp(x + log_slope(step.mu, x))
        left_slope, right_slope = slope[:-1], slope[1:] * np.exp(-gap)
        meet = np.clip((curve[:-1] - curve[1:] - right_slope * width) / (left_slope - right_slope), 0.0, width)
        # Parallel tangents meet nowhere; any point of the interval is valid.
        meet = np.where(np.isfinite(meet), meet, width / 2)
        chord = h[:-1] + (h[1:] - h[:-1]) * (meet / width)
        tangent = np.minimum(curve[:-1] - left_slope * meet, curve[1:] + right_slope * (width - meet))
        convex = is_under[:-1] & is_under[1:] & (chord + margin <= tangent)
    return np.asarray(~(convex | is_falling))


def cover(profile: Profile, limit: Step, tolerance: float = 2e-4) -> Cover:
    """Return the least step that provably covers a profile, with the slack of ``limit`` and relative to its μ.

    ``profile`` returns a bound from above on H(x), at any x ≥ 0. H itself must be the profile of a release (convex in
    e^x and falling); its bound need only be above H. The μ is within the relative ``tolerance`` of the least μ that the
    bounds allow. An infinite tolerance asks for no proof, only for ``least`` from the first nodes.
    """
    return cover_many(lambda x: np.array([profile(value) for value in x.tolist()]), limit, tolerance)


def cover_many(
    profiles: Profiles, limit: Step, tolerance: float = 2e-4, max_nodes: int = _MAX_UNDERCURVE_NODES
) -> Cover:
    """Return `cover` of a profile with bounds at many x at once, by a certificate of at most ``max_nodes`` nodes."""
    slack, uncovered = limit.delta, Cover(limit, math.inf, math.inf)
    nodes = _Nodes(profiles, slack)
    if limit.mu == 0 or not nodes.reach_slack():
        return uncovered
    while True:
        x, h, needs = np.array([(value, *nodes.bounds[value]) for value in sorted(nodes.bounds)]).T
        # Only up to the first node whose bound is at most the slack.
        low = np.flatnonzero(h <= slack * (1 - _MARGIN))
        x, h, needs = (values[: low[0] + 1] if len(low) else values for values in (x, h, needs))
        most_needed = float(needs.max())
        if not math.isfinite(most_needed):
            return uncovered
        ratio_bound = most_needed / limit.mu
        if tolerance == math.inf:
            return Cover(Step(0.0, slack), math.inf, ratio_bound)
        step = Step(most_needed * (1 + tolerance), slack)
        failing = unproved(x, h, step) if len(x) > 1 else np.zeros(0, dtype=np.bool_)
        if not failing.any():
            return Cover(step, step.mu / limit.mu, ratio_bound)
        if len(nodes.bounds) >= max_nodes:
            return uncovered
        # Chords approach the profile as intervals shrink, so that a fitting certificate is found.
        nodes.add(((x[:-1] + x[1:]) / 2)[failing])  # the middles of intervals
