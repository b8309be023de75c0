"""The certificate that a profile lies under the curve of a step, from bounds on the profile at a few nodes.

Let H be the profile of a release, h_j ≥ H(x_j) bounds from above on it at nodes 0 = x_0 < … < x_J, and C(x) = δ₀ +
(1 − δ₀)·G_μ(x) the curve of the step (μ, δ₀). `lies_under` proves H ≤ C on [0, ∞), which makes the release that step
(`gaussian_dp`), from three facts:

- H falls in x. So H ≤ h_J beyond the last node, and h_J ≤ δ₀ ≤ C is enough there.
- H is convex in t = e^x: it is the largest of the straight lines P(A) − t·P'(A) over neighbours and events. So between
  two nodes it lies under the chord of (t_j, h_j) and (t_{j+1}, h_{j+1}), *whatever* made the bounds: they need not be
  convex, nor of one method.
- C is convex in t, of slope −(1 − δ₀)·Φ(−μ/2 − x/μ). So it lies above its tangents. On the part of [t_j, t_{j+1}]
  left of any point u the tangent at t_j serves, and right of it that at t_{j+1}; chord less tangent is straight, so
  that the ends of each part are enough:

      h_j ≤ C_j,   chord(u) ≤ tangent_j(u),   chord(u) ≤ tangent_{j+1}(u),   h_{j+1} ≤ C_{j+1}.

  u is taken where the tangents meet; rounding of u costs nothing, since any u will do.

h_j ≤ C_{j+1} is enough too, as both fall; h_j ≤ C_j alone is not. Every comparison leaves `_MARGIN` for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpframe.accounting.gaussian_dp import Step, log_gaussian, log_slope, mu_of
from dpframe.errors import ParameterError

Floats = npt.NDArray[np.float64]

Profile = Callable[[float], float]
"""Bounds a profile H from above at one x ≥ 0."""

_MARGIN = 1e-10
"""Relative to the curve at an interval's left end; the error of the curve and its slope is a tenth of that."""
_STARTS = (0.15, 0.35, 0.5, 0.65, 0.8, 0.9)
"""First nodes, as parts of the x at which the profile is expected to reach the slack."""
_WIDER = 1.15
_FURTHEST = 40
"""Steps by that factor, which grows, after which the profile is taken never to reach the slack."""
_MOST = 400
"""Nodes beyond which the certificate is given up."""


@dataclass(frozen=True)
class Cover:
    """A step that certainly covers a profile, beside the one that was allowed.

    ``ratio`` is the μ of the step over the μ that was allowed: at most 1 where it fits, infinite where no μ was found.
    ``least`` is what no certificate from these bounds can go below, and ``where`` the x that asks for it.
    """

    step: Step
    ratio: float
    least: float
    where: float = 0.0


class _Nodes:
    """Bounds on a profile where they have been computed, in the order of x."""

    def __init__(self, profile: Profile) -> None:
        self._profile, self._seen = profile, dict[float, float]()

    def __len__(self) -> int:
        return len(self._seen)

    def at(self, x: float) -> float:
        if x not in self._seen:
            self._seen[x] = self._profile(x)
        return self._seen[x]

    def until(self, delta: float) -> tuple[Floats, Floats]:
        """Return the nodes up to the first whose bound is at most a slack."""
        x = sorted(self._seen)
        h = [self._seen[value] for value in x]
        last = next((j for j, value in enumerate(h) if value <= delta * (1 - _MARGIN)), len(x) - 1)
        return np.array(x[: last + 1]), np.array(h[: last + 1])

    def spread(self, delta: float) -> bool:
        """Add nodes until the slack is reached; tell whether it is."""
        start = self.at(0.0)
        if start <= delta * (1 - _MARGIN):
            return True
        if start >= 1:
            return False
        mu = float(mu_of(math.log(start), 0.0))
        end = mu * (mu / 2 + math.sqrt(-2 * math.log(max(delta, 1e-300)))) * 0.9
        for share in _STARTS:
            self.at(share * end)
        for turn in range(_FURTHEST):
            if self.at(end) <= delta * (1 - _MARGIN):
                return True
            end *= _WIDER + 0.05 * turn
        return False

    def halve(self, x: Floats, failing: npt.NDArray[np.bool_]) -> None:
        """Add the middles of intervals."""
        for j in np.flatnonzero(failing):
            self.at(float(x[j] + x[j + 1]) / 2)


def _curve(x: Floats, step: Step) -> Floats:
    if step.mu == 0:
        return np.full(x.shape, step.delta)
    return np.asarray(step.delta + (1 - step.delta) * np.exp(log_gaussian(step.mu, x)[0]))


def unproved(x: Floats, h: Floats, step: Step) -> npt.NDArray[np.bool_]:
    """Tell between which neighbouring nodes the certificate fails."""
    curve = _curve(x, step)
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


def least_mu(x: Floats, h: Floats, delta: npt.ArrayLike) -> Floats:
    """Return the μ that the nodes alone need, one for each slack: no certificate, since it ignores what is between."""
    return np.asarray(least_nodes(x, h, delta).max(axis=-1))


def least_nodes(x: Floats, h: Floats, delta: npt.ArrayLike) -> Floats:
    """Return the μ that each node needs."""
    slack = np.asarray(delta, dtype=np.float64)[..., None]
    rest = (h - slack) / (1 - slack)
    with np.errstate(divide="ignore", invalid="ignore"):
        mu = mu_of(np.where(rest > 0, np.log(np.maximum(rest, 1e-320)), -np.inf), x)
    return np.asarray(np.where(rest < 1, mu, np.inf))


def lies_under(profile: Profile, step: Step, most: int = _MOST) -> bool:
    """Tell whether it could be proved, with at most so many nodes, that a profile lies under the curve of a step.

    ``profile`` returns a bound from above on H(x), at any x ≥ 0; H itself must be the profile of a release (convex in
    e^x and falling), and its bound nothing but above it.

    Raises
    ------
    ParameterError
        If ``most`` is below 2.

    Examples
    --------
    >>> import math
    >>> response = lambda x: max(0.0, math.e - math.exp(x)) / (1 + math.e)  # randomised response at ε = 1
    >>> lies_under(response, Step(1.2328)), lies_under(response, Step(1.2320))
    (True, False)
    """
    if most < 2:
        raise ParameterError("most must be at least 2 nodes")
    nodes = _Nodes(profile)
    if not nodes.spread(step.delta):
        return False
    while True:
        x, h = nodes.until(step.delta)
        if len(x) < 2:
            return True
        if (h > _curve(x, step) * (1 - _MARGIN))[:-1].any():
            return False
        failing = unproved(x, h, step)
        if not failing.any():
            return True
        if len(nodes) >= most or float(np.diff(x).min()) < 1e-9 * float(x[-1]):
            return False
        nodes.halve(x, failing)


def cover(profile: Profile, allowed: Sequence[Step], tolerance: float = 2e-4, most: int = _MOST) -> Cover:
    """Return the least step that certainly covers a profile, relative to one of those allowed.

    Of the steps that are ``allowed`` (alternatives: the same promise at several slacks) the one is taken of whose μ
    the profile needs the smallest part. The μ is within ``tolerance``, relative, of what the profile's bounds need;
    an infinite tolerance asks for no proof, only for a glance at ``least`` and ``where`` from the first nodes.

    Raises
    ------
    ParameterError
        If no step is allowed.

    Examples
    --------
    >>> import math
    >>> response = lambda x: max(0.0, math.e - math.exp(x)) / (1 + math.e)
    >>> round(cover(response, [Step(2.0)]).ratio, 3)
    0.616
    """
    if not allowed:
        raise ParameterError("allowed must name at least one step")
    nodes, steps = _Nodes(profile), [step for step in allowed if step.mu > 0]
    slacks = np.array([step.delta for step in steps])
    if not steps or not nodes.spread(float(slacks.min())):
        return Cover(allowed[0], math.inf, math.inf)
    mus = np.array([step.mu for step in steps])
    while True:
        x, h = nodes.until(float(slacks.min()))
        needs = least_mu(x, h, slacks)
        best = int((needs / mus).argmin())
        if not math.isfinite(needs[best]):
            return Cover(allowed[0], math.inf, math.inf)
        x, h = nodes.until(steps[best].delta)
        where, least = float(x[least_nodes(x, h, steps[best].delta).argmax()]), float(needs[best] / mus[best])
        if tolerance == math.inf:
            return Cover(Step(0.0, steps[best].delta), math.inf, least, where)
        step = Step(float(needs[best]) * (1 + tolerance), steps[best].delta)
        failing = unproved(x, h, step) if len(x) > 1 else np.zeros(0, dtype=np.bool_)
        if not failing.any():
            return Cover(step, step.mu / steps[best].mu, least, where)
        if len(nodes) >= most:
            return Cover(allowed[0], math.inf, math.inf)
        nodes.halve(x, failing)
