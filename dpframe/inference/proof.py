"""Proofs of private inference from a plan's numbers: its noise costs no more than claimed, and its spaces follow from
the requested counts.

Older plans contain only the measured histograms, not all possible requests. Their claims are compared with a lower
bound of the cost, and the curator attests the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpframe.accounting.budget import Budget
from dpframe.accounting.discrete_gaussian import LEAST_SIGMA2, IntegerNoise, gaussian_tail, noise_step
from dpframe.accounting.gaussian_dp import Step, step_delta
from dpframe.errors import name_list
from dpframe.inference.histogram_specs import HistogramSpec, find_cost_failures
from dpframe.inference.inferred import Inferred, Measured
from dpframe.inference.kinds import choose_branch, is_asked
from dpframe.spaces import Boolean, Datetime, Integer, Space

TYPED: tuple[Space, ...] = (Boolean(), Integer(-128, 127), Integer(0, 255), Datetime("00:00", "23:59", "min"))
"""Spaces that a type determines, so that no counts are needed (theory: types)."""


@dataclass(frozen=True)
class ProvedInference:
    """Results for an inference: failures, proofs, and claims that its curator attests."""

    failures: tuple[str, ...]
    checks: tuple[str, ...]
    attested: tuple[str, ...]


def prove_inference(inferred: Inferred | None, contributions: int, spaces: Mapping[str, Space]) -> ProvedInference:
    """Compute an inference's cost anew from its requests, and replay which requests the recorded counts answer."""
    if inferred is None:
        return ProvedInference((), (), ())
    failures: list[str] = []
    if inferred.step is not None:
        stated = step_delta(inferred.step, inferred.budget.epsilon)
        if stated > inferred.budget.delta:
            claim = inferred.budget.stated()
            failures.append(f"inference claims {claim} on its own, but its step has delta={stated:.4g} there")
    if inferred.asked is None:
        failures += _noise_failures(inferred, contributions)
        line = f"what inference of {name_list(inferred.columns)} might have asked, and so its cost: the plan says less"
        return ProvedInference(tuple(failures), (), (line,) if inferred.columns else ())
    failures += find_cost_failures(inferred.asked, contributions, inferred.budget, inferred.step)
    failures += _count_failures(inferred, spaces)
    if failures:
        return ProvedInference(tuple(failures), (), ())
    counted_columns = [name for name, histograms in inferred.asked if histograms]
    # Columns without requests have the space that their type determines.
    typed_columns = [name for name in inferred.columns if name not in counted_columns]
    checks = (
        [f"inference: the noise on all that {name_list(counted_columns)} could be asked"] if counted_columns else []
    )
    cost = inferred.budget.stated() if inferred.step is None else f"mu={inferred.step.mu:.6g}"
    attested = [_COUNTS_CLAIM] if counted_columns else []
    attested += [f"the types of {name_list(typed_columns)} say their spaces"] if typed_columns else []
    return ProvedInference((), tuple(f"{check} costs at most {cost}" for check in checks), tuple(attested))


_COUNTS_CLAIM = "no row counted under more cells than stated, and no counts left but those of the plan"


def _count_failures(inferred: Inferred, spaces: Mapping[str, Space]) -> Iterator[str]:
    """Yield the columns whose recorded counts are not the requested ones."""
    histograms_of, thresholds = dict(inferred.asked or ()), dict(inferred.thresholds)
    if not {m.column for m in inferred.measured} | thresholds.keys() | histograms_of.keys() <= set(inferred.columns):
        yield "inference has counts of columns that it does not name"
    for name in inferred.columns:
        recorded = [m for m in inferred.measured if m.column == name]
        if name not in histograms_of:
            if recorded or (name in spaces and spaces[name] not in TYPED):
                yield f"column {name!r} was inferred, and the plan does not say what was asked of it"
            continue
        difference = _find_difference(histograms_of[name], recorded, thresholds.get(name, 0))
        if difference is not None:
            yield f"column {name!r} was inferred, but {difference}"
        item_limit = getattr(spaces[name].inner_space, "most", None) if name in spaces else None
        items = [h.cells for h in histograms_of[name] if h.kind == "items"]
        if recorded and recorded[-1].kind == "items" and item_limit is not None and item_limit > max(items, default=0):
            yield f"column {name!r} has up to {item_limit} items a row, and inference counted {max(items, default=0)}"


def _find_difference(histograms: Sequence[HistogramSpec], recorded: Sequence[Measured], threshold: int) -> str | None:
    """Return how recorded counts differ from the rule's requests, or None if they do not."""
    if not is_asked([(h.way, h.kind) for h in histograms]):
        return "no column is asked what the plan says of it"
    expected = _expected_histograms(histograms, recorded)
    if [(h.kind, h.variance) for h in expected] != [(m.kind, m.variance) for m in recorded]:
        return "its counts are not those that were asked for"
    if threshold != max((h.threshold for h in expected), default=0):
        return "its threshold is not the one that was asked with"
    if any(count < h.threshold for h, m in zip(expected, recorded, strict=True) if h.threshold for count in m.counts):
        return "has counts below its threshold"
    return None


def _expected_histograms(histograms: Sequence[HistogramSpec], recorded: Sequence[Measured]) -> list[HistogramSpec]:
    """Return the histograms that the rule requests, given the recorded ones before them."""
    ways = {h.way for h in histograms if h.way is not None}
    expected = [h for h in histograms if h.way is None]
    if ways and recorded and recorded[0].kind == "kinds":
        kinds = dict(zip(recorded[0].cells, recorded[0].counts, strict=True))
        branch = choose_branch(kinds, recorded[0].variance ** 0.5, ways)
        expected += [h for h in histograms if h.way == branch]
    for place, histogram in enumerate(expected[: len(recorded)]):
        # Lists of no length have no norms.
        if histogram.kind == "lengths" and recorded[place].kind == "lengths" and not recorded[place].cells:
            return expected[: place + 1]
    return expected


def _noise_failures(inferred: Inferred, contributions: int) -> list[str]:
    """Return the failure of an older plan's inference whose counts have less noise than it claims, if any.

    Every histogram counts a row in one cell at least, so that the sum here is a lower bound of the cost.
    """
    spent, variances = inferred.budget, [histogram.variance for histogram in inferred.measured]
    if inferred.step is not None:
        return _step_failures(inferred, inferred.step, contributions)
    if spent.delta > 0:
        has_enough_noise = not variances or _is_within_budget(variances, spent, contributions)
    else:
        # 2α/(1 − α)² = 1/(cosh(rate) − 1)
        rates = [2 * contributions * math.acosh(1 + 1 / variance) for variance in variances]
        has_enough_noise = math.fsum(rates) * (1 - 1e-6) <= spent.epsilon
    return (
        []
        if has_enough_noise
        else [f"inference claims {spent.stated()} but its counts have less noise than that asks for"]
    )


def _is_within_budget(variances: Sequence[float], spent: Budget, contributions: int) -> bool:
    """Return whether counts with discrete Gaussian noise of these variances stay within an (ε, δ)."""
    if min(variances) < LEAST_SIGMA2:
        return False
    noises = [IntegerNoise(variance) for variance in variances]
    return step_delta(noise_step(noises, contributions, spent.delta * _TAIL_DELTA_SHARE), spent.epsilon) <= spent.delta


_TAIL_DELTA_SHARE = 1e-5
"""Share of δ for the tails of the lattice law (tolerance)."""


def _step_failures(inferred: Inferred, step: Step, contributions: int) -> list[str]:
    """Return failures of an inference by steps: from the lattice law of its noise, and the escape through thresholds.

    A value of only one person escapes if k rows and the noise reach the threshold.
    """
    if inferred.columns and not inferred.measured:
        return ["inference names columns but no counts that their spaces rest on"]
    noises = [IntegerNoise(max(histogram.variance, LEAST_SIGMA2)) for histogram in inferred.measured]
    lowest_step = noise_step(noises, contributions, max(step.delta, _LEAST_DELTA)) if noises else Step(0.0)
    thresholds = dict(inferred.thresholds)
    # The last histogram of a column applies its threshold.
    final_counts = {m.column: m for m in inferred.measured if m.column in thresholds}
    escape = math.fsum(
        gaussian_tail(histogram.variance, thresholds[name] - contributions) for name, histogram in final_counts.items()
    )
    failures = []
    if (
        min((histogram.variance for histogram in inferred.measured), default=1.0) < LEAST_SIGMA2
        or lowest_step.mu > step.mu * _MU_ROUNDING_FACTOR
    ):
        failures.append(f"inference claims mu={step.mu:.6g} but its counts have less noise than that asks for")
    if escape > step.delta * _MU_ROUNDING_FACTOR:
        failures.append(f"inference claims the slack {step.delta:.3g} but its thresholds let rare values show oftener")
    return failures


_MU_ROUNDING_FACTOR = 1 + 1e-4
"""Factor to which a step's μ is rounded up (tolerance)."""

_LEAST_DELTA = 1e-300
"""Least δ of a step in the search (tolerance)."""
