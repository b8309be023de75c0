"""A self-audit of a plan: lower bounds on μ and ε from whole releases of neighbouring made-up tables.

Each release has a fresh key and fresh coins, one for each probe (`dpframe.proofs.probes`). Guess a probe's coin where
its log-ratio lies beyond ±t. With c and w the shares of probes guessed right and wrong, the mean of c − e^x·w is at
most H(x), the largest hockey-stick divergence of neighbouring tables: for each probe, given all other coins, it is the
mean of the divergences of two events, one for each side. This holds for the mean over probes, however they depend on
each other.

So releases are bounded independent draws of which a claim bounds the mean: by δ at x = ε, and by δ₀ + (1 − δ₀)·G_μ(0)
at x = 0. A bet on each release, λ·(draw − bound), multiplies a capital that exceeds 1/α with a chance of at most α if
the bound holds (Ville; Waudby-Smith and Ramdas 2024). λ and t are chosen on other releases, which come first. With one
probe the bound is about that of Clopper and Pearson; many probes with nearly independent guesses count as many releases
(one-run audits: Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024, without their independence of
persons).

An audit that sees nothing may be blind. So faults are planted first, in rows and in tables: a plan of half the noise is
released under the claim of the audited plan, and must be refuted by the same steps.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, step_delta, step_epsilon
from dpframe.errors import ParameterError, name_list
from dpframe.plan.columns import Randomised, parted
from dpframe.plan.plan import Plan
from dpframe.proofs.probes import Probes
from dpframe.spaces.arrays import FloatArray

Release = Callable[[pa.Table, Plan, bytes], pa.Table]
"""Releases an Arrow table under a plan and a key."""

_FAULT_SHARE = 0.25
"""Share of the time for each planted fault (tolerance)."""
_PILOT_SHARE, _FEWEST_PILOTS = 0.125, 10
"""Share of the time, and least number, of releases on which thresholds and bets are chosen (tolerance)."""
_CHECK_RELEASES = 10
"""Releases between two looks at a planted fault (tolerance)."""
_WRONG_GUESSES = 3.0
"""Wrong guesses that are added before thresholds are compared: few guesses prove little (tolerance)."""
_LARGEST_BET = 0.98
"""Largest part of the capital that one release may lose (tolerance)."""
_LARGEST_AUDITED_EPSILON = 50.0
"""Largest ε that is looked for (limit of time)."""
_FAULT_SIGMA2_SHARE, _LEAST_FAULT_SIGMA2 = 0.25, 0.25
"""Share of σ² that is left in tables of a planted fault, half of the scale, and the least σ² (theory: half)."""
_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 3.0)
"""ln of the weights of wrong guesses that are tried (tolerance)."""
_THRESHOLD_SHARES = (0.2, 0.4, 0.6, 0.75, 0.87, 0.94, 0.98)
"""Shares of probes without a guess that are tried (tolerance)."""
_FAULT_EPSILON_FACTOR = 4.0
"""Factor on the loss of rows of a planted fault: a quarter of the scale (tolerance: the shuffle bound is loose)."""
FAULTS = ("tables", "rows")
"""Parts of a release in which faults are planted."""
_TOTAL = "all"
"""Name of the whole release among its parts."""


@dataclass(frozen=True)
class SelfClaim:
    """The claim that an audit tests: (ε, δ) of rows and measured tables, and the step of each part of them."""

    budget: Budget
    steps: dict[str, Step]

    @property
    def tests(self) -> list[tuple[str, int]]:
        """Each test of a μ: its part, and the place of its log-ratios. Rows have two (`Probes.faulty_units`)."""
        parts = [(part, place) for place, part in enumerate(self.steps)]
        return [*parts, (parts[-1][0], len(FAULTS) + 1)]

    @classmethod
    def of(cls, plan: Plan) -> SelfClaim:
        """Return a plan's claim, without an inference that is paid for before rows are released."""
        parts = {name: plan.steps[name] for name in FAULTS if name in plan.steps}
        whole = {_TOTAL: plan.step_beside_inference}
        return cls(plan.released, whole | (parts if len(parts) > 1 else {}))


@dataclass(frozen=True)
class SelfBounds:
    """Lower bounds on ε and on the μ of each part, which hold together with the audit's confidence.

    ``releases``: number of releases, without those on which thresholds were chosen.
    """

    releases: int
    epsilon: float
    mus: dict[str, float]

    def excess(self, claim: SelfClaim) -> list[str]:
        """Return the quantities whose bound is above the claim."""
        parts = [f"mu of {part}" for part, step in claim.steps.items() if self.mus.get(part, 0.0) > step.mu]
        return ["epsilon"] * (self.epsilon > claim.budget.epsilon) + parts


@dataclass(frozen=True)
class SelfAudit:
    """Bounds that a plan's releases reach, next to its claim, and bounds that planted faults reach.

    ``bounds`` hold with the probability ``confidence`` over keys and coins. ``faults``: by the part with half of the
    noise, the bounds found. The audit ``can_judge`` if each fault was refuted; without a fault it cannot. ``rows`` and
    ``probes`` are the numbers of rows and of probes of a made-up table.
    """

    claim: SelfClaim
    confidence: float
    rows: int
    probes: int
    bounds: SelfBounds
    faults: dict[str, SelfBounds]

    @property
    def can_judge(self) -> bool:
        """Whether each planted fault was refuted."""
        return bool(self.faults) and all(fault.excess(self.claim) for fault in self.faults.values())

    @property
    def refuted(self) -> bool:
        """Whether a bound is above the claim."""
        return bool(self.bounds.excess(self.claim))

    @property
    def ok(self) -> bool:
        """Whether the audit can judge, and found nothing."""
        return self.can_judge and not self.refuted

    def __str__(self) -> str:
        budget = self.claim.budget
        claims = ", ".join(f"mu={step.mu:.4g} ({part})" for part, step in self.claim.steps.items())
        lines = [
            f"{self.rows:,} made-up rows with {self.probes} probes; rows and tables claim {budget.stated()}: {claims}"
        ]
        for part, bounds in self.faults.items():
            excess = bounds.excess(self.claim)
            verdict = f"caught by {name_list(excess)}" if excess else "NOT caught"
            lines.append(f"fault planted in the {part}: {verdict}; {self._words(bounds)}")
        lines.append(f"the plan itself: {self._words(self.bounds)}")
        if self.refuted:
            verdict = f"REFUTED: {name_list(self.bounds.excess(self.claim))} is above the claim"
        elif self.can_judge:
            verdict = f"nothing found against the claim; bounds hold with confidence {self.confidence:g}"
        else:
            verdict = "CANNOT JUDGE: a planted fault was not seen; give the audit more minutes"
        return "\n".join([*lines, verdict])

    def _words(self, bounds: SelfBounds) -> str:
        mus = ", ".join(f"mu at least {mu:.4g} ({part})" for part, mu in bounds.mus.items())
        epsilon = f"epsilon at least {bounds.epsilon:.4g}"
        if self.claim.budget.delta > 0:
            # The ε of a Gaussian release of this μ: no release of so few runs shows an event of probability δ.
            as_gaussian = step_epsilon(Step(bounds.mus[_TOTAL]), self.claim.budget.delta)
            epsilon += f" ({as_gaussian:.4g} if its law is Gaussian)"
        return f"{epsilon}, {mus} by {bounds.releases:,} releases"

    def to_json(self) -> str:
        """Return JSON text with the verdict and every number."""
        facts: dict[str, Any] = {"ok": self.ok, "can_judge": self.can_judge, "refuted": self.refuted, **asdict(self)}
        return json.dumps(facts)


def audit_releases(
    plan: Plan,
    release: Release,
    minutes: float | None,
    runs: int | None,
    confidence: float,
    random_state: int | None = None,
) -> SelfAudit:
    """Audit a plan by whole releases, after faults in its tables and its rows; raises as `dpframe.audit`."""
    rng = np.random.default_rng(random_state)
    probes, claim, faults = Probes.of(plan, faulty_units(plan), rng), SelfClaim.of(plan), planted_faults(plan)
    # All bounds share the error probability.
    level = (1 - confidence) / (1 + len(claim.tests))
    bounds = {}
    for part, released_plan in {**faults, _TOTAL: plan}.items():
        share = _FAULT_SHARE if part in faults else 1 - _FAULT_SHARE * len(faults)
        draws = _Draws(probes, released_plan, release, rng, _allowance(minutes, runs, share))
        bounds[part] = _find_bounds(draws, claim, level, is_fault=part in faults)
    rows = len(probes.present(np.ones(probes.count, dtype=np.bool_)))
    return SelfAudit(claim, confidence, rows, probes.count, bounds.pop(_TOTAL), bounds)


def _allowance(minutes: float | None, runs: int | None, share: float) -> tuple[float, int | None]:
    """Return the seconds and the releases of a part of an audit."""
    seconds = math.inf if minutes is None else 60 * minutes * share
    return seconds, None if runs is None else max(2 * _FEWEST_PILOTS, round(runs * share))


def planted_faults(plan: Plan) -> dict[str, Plan]:
    """Return by part the plans with half of the noise's scale in its tables, and a quarter of it in its rows.

    They claim nothing, so that no check refuses them. Fixed channels of rows have no fault.
    """
    faults = {}
    sigmas = [max(_LEAST_FAULT_SIGMA2, measure.sigma2 * _FAULT_SIGMA2_SHARE) for measure in plan.measures]
    if sigmas:
        measures = tuple(replace(m, sigma2=sigma2) for m, sigma2 in zip(plan.measures, sigmas, strict=True))
        faults["tables"] = replace(plan, **_NO_CLAIM, measures=measures)
    units = faulty_units(plan)
    if units != plan.units:
        columns, groups = parted(units, plan.names)
        faults["rows"] = replace(plan, **_NO_CLAIM, columns=columns, groups=groups)
    return faults


def faulty_units(plan: Plan) -> tuple[Randomised, ...]:
    """Return a plan's units with a multiple of their loss, but for fixed channels."""
    return tuple(
        unit
        if unit.mechanism.fixed
        else unit.remade(_FAULT_EPSILON_FACTOR * unit.mechanism.epsilon, unit.mechanism.delta)
        for unit in plan.units
    )


_NO_CLAIM: dict[str, Any] = {"epsilon": 1e300, "delta": math.nextafter(1, 0), "local_epsilon": None, "contributions": 1}


@dataclass(frozen=True)
class _Draws:
    """Releases of made-up tables with fresh coins, as long as time or runs last."""

    probes: Probes
    plan: Plan
    release: Release
    rng: np.random.Generator
    allowance: tuple[float, int | None]

    def __iter__(self) -> Iterator[FloatArray]:
        """Yield each release's log-ratios, in all and by part: positive if the guess of a probe's coin is right."""
        seconds, runs = self.allowance
        deadline, count = time.monotonic() + seconds, 0
        while time.monotonic() < deadline and (runs is None or count < runs):
            coins = self.rng.integers(2, size=self.probes.count) > 0
            table = self.probes.table.take(self.probes.present(coins))
            with warnings.catch_warnings(action="ignore"):
                released = self.release(table, self.plan, self.rng.bytes(32))
            by_part = np.where(coins, 1, -1) * self.probes.log_ratios(released, coins)
            yield np.vstack([by_part[: len(FAULTS)].sum(axis=0), by_part])
            count += 1


def _find_bounds(draws: _Draws, claim: SelfClaim, level: float, is_fault: bool) -> SelfBounds:
    """Return the bounds of releases; for a planted fault only until they refute the claim."""
    seconds, runs = draws.allowance
    start, pilots, scores = time.monotonic(), list[FloatArray](), list[FloatArray]()
    tests = None
    for score in draws:
        if tests is not None:
            scores.append(score)
            if is_fault and len(scores) % _CHECK_RELEASES == 0 and tests.bounds(np.array(scores)).excess(claim):
                break
            continue
        pilots.append(score)
        elapsed = time.monotonic() - start
        is_long = elapsed >= seconds * _PILOT_SHARE if runs is None else len(pilots) >= runs * _PILOT_SHARE
        if len(pilots) >= _FEWEST_PILOTS and is_long:
            expected = (seconds / elapsed - 1) * len(pilots) if runs is None else runs - len(pilots)
            tests = _Tests.chosen(np.array(pilots), claim, level, max(1.0, expected))
    if tests is None or not scores:
        raise ParameterError("minutes are too few for releases of the plan's rows; give more, e.g. minutes=60")
    return tests.bounds(np.array(scores))


Bound = Callable[[float], tuple[float, float]]
"""The weight x of wrong guesses, and the bound on the mean of draws, by the tested ε or μ."""


@dataclass(frozen=True)
class _Test:
    """A threshold on log-ratios, and the bet on each release, for a bound that a claim of ε or μ sets."""

    bound: Bound
    threshold: float
    bet: float

    def growth(self, scores: FloatArray, claimed: float) -> FloatArray:
        """Return the logarithm of the factor by which each release multiplies the capital; −inf if it may be negative.

        The capital keeps its mean only if no release can make it negative.
        """
        x, mean = self.bound(claimed)
        gains = _gains(scores, self.threshold, x)
        is_safe = self.bet * (math.exp(x) + mean) < 1
        return np.asarray(np.log1p(self.bet * (gains - mean)) if is_safe else np.full(len(gains), -np.inf))

    def forecast(self, pilots: FloatArray, odds: float, expected: float) -> float:
        """Return about the largest claim that as many releases as expected refute."""
        # One more release with wrong guesses only: no wrong guess in few pilots proves little.
        cautious = np.concatenate([pilots, np.full((1, pilots.shape[1]), -np.inf)])
        weights = np.append(np.ones(len(pilots)), _WRONG_GUESSES / pilots.shape[1])

        def suffices(claimed: float) -> bool:
            growth = self.growth(cautious, claimed)
            return bool(expected * (growth @ weights) / weights.sum() >= odds)

        return _largest(suffices)


def _chosen_tests(
    pilots: FloatArray, bound_at: Callable[[float], Bound], odds: float, expected: float
) -> tuple[_Test, ...]:
    """Return for each weight the test that is expected to prove most; ``bound_at`` takes the weight."""
    chosen = []
    for x in _WEIGHTS:
        tests = []
        for threshold in [0.0, *np.quantile(np.abs(pilots), _THRESHOLD_SHARES).tolist()]:
            variance = float(_gains(pilots, threshold, x).var()) + 1 / pilots.size
            bet = min(math.sqrt(2 * odds / (expected * variance)), _LARGEST_BET / (math.exp(x) + 1))
            tests.append(_Test(bound_at(x), threshold, bet))
        chosen.append(max(tests, key=lambda test: test.forecast(pilots, odds, expected)))
    return tuple(chosen)


def _proved(tests: tuple[_Test, ...], scores: FloatArray, odds: float) -> float:
    """Return the largest claim at which the mean capital of the tests ever exceeds e^odds on these releases.

    The capital is divided among tests, as pilots are too few to know the best one.
    """

    def refutes(claimed: float) -> bool:
        capitals = np.stack([np.cumsum(test.growth(scores, claimed)) for test in tests])
        return bool(np.logaddexp.reduce(capitals, axis=0).max() - math.log(len(tests)) >= odds)

    return _largest(refutes)


def _gains(scores: FloatArray, threshold: float, x: float) -> FloatArray:
    """Return c − e^x·w of releases: the shares of probes beyond the threshold that are guessed right, and wrong."""
    right, wrong = scores > threshold, scores < -threshold
    return np.asarray(right.mean(axis=1) - math.exp(x) * wrong.mean(axis=1))


@dataclass(frozen=True)
class _Tests:
    """The tests of ε and of the parts' μ, chosen on releases that no bound uses."""

    odds: float
    of_epsilon: tuple[_Test, ...]
    of_mus: dict[tuple[str, int], tuple[_Test, ...]]

    @classmethod
    def chosen(cls, pilots: FloatArray, claim: SelfClaim, level: float, expected: float) -> _Tests:
        """Choose thresholds, and bets for the expected number of releases, on the first ones."""
        odds, delta = -math.log(level), claim.budget.delta
        of_epsilon = _chosen_tests(pilots[:, 0], lambda x: lambda epsilon: (epsilon, delta), odds, expected)
        of_mus = {}
        for part, place in claim.tests:

            def bound_at(x: float, slack: float = claim.steps[part].delta) -> Bound:
                return lambda mu: (x, step_delta(Step(mu, slack), x))

            of_mus[part, place] = _chosen_tests(pilots[:, place], bound_at, odds, expected)
        return cls(odds, of_epsilon, of_mus)

    def bounds(self, scores: FloatArray) -> SelfBounds:
        """Return the largest ε and μ that these releases refute."""
        mus: dict[str, float] = {}
        for (part, place), tests in self.of_mus.items():
            mus[part] = max(mus.get(part, 0.0), _proved(tests, scores[:, place], self.odds))
        return SelfBounds(len(scores), _proved(self.of_epsilon, scores[:, 0], self.odds), mus)


def _largest(refutes: Callable[[float], bool]) -> float:
    """Return the largest number that is refuted, 0 if none is."""
    return bisected(refutes, 0.0, _LARGEST_AUDITED_EPSILON, 1e-4, 1e-6) if refutes(0.0) else 0.0
