"""What private inference costs, and how much noise a budget asks for.

All histograms are counts of rows, and neighbours differ in one row. So in a column where every row counts under at
most s cells (1, or the cap on a set's items), at most 2s counts change, by 1 each: ℓ1 sensitivity 2s, ℓ2
sensitivity √(2s). A person with k rows makes both k times as large.

With δ > 0 the noise is discrete Gaussian. Independent noise of parameters σᵢ² on counts that change by Δᵢ has
ρ = Σ Δᵢ²/(2σᵢ²) zCDP (Canonne–Kamath–Steinke 2020, Thm 14), which adds up over columns and adaptive rounds, and
is (ε, δ)-private with the δ of their Prop. 12: `zcdp_delta`. With δ = 0 the noise is geometric and ε = Σ Δᵢ·rateᵢ.

*Unknown domains.* Of text and items only observed values have counts, and only those whose noisy count reaches a
threshold τ are released. Let U be the values that both neighbours have, and M_U the mechanism that looks at U
alone. M differs from M_U only if a value outside U reaches τ. These belong to the rows that changed: at most k·s
of them in a column, with counts of at most k, so P(M ≠ M_U) ≤ β = Σ k·s·P(k + Z ≥ τ) over the columns. Then
P(M ∈ A) ≤ P(M_U ∈ A) + β ≤ e^ε·P(M_U' ∈ A) + δ' + β ≤ e^ε·P(M' ∈ A) + δ' + (1 + e^ε)·β.

*Tables.* The sampler is within a total variation distance of the ideal law. Counts that do not change have the
same law for both neighbours, whatever it is; replacing the others' by the ideal one costs (1 + e^ε) times the
distance for each of them: their number is public, though that of the observed values is not.

*Ways.* What a column of objects is asked depends on the kinds that were found in it: one of several ways, of which
each is a list of histograms. All ways have their noise and thresholds from the start, and of a column's ways the
dearest counts: what was asked before decides which way is gone (adaptive composition, of which every branch costs
at most as much).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Protocol

from dpframe.accounting.budget import Budget
from dpframe.accounting.zcdp import zcdp_delta, zcdp_rho
from dpframe.errors import ParameterError
from dpframe.noise.gaussian import LARGEST_SCALE, GaussianTable, Ints, gaussian_table
from dpframe.noise.geometric_counts import GeometricNoise, geometric_noise
from dpframe.noise.keystream import ColumnStream

_DISTANCE = 2.0**-96
"""More than twice the distance of any table from its law: it counts beside the noise and in what escapes."""
_SPARE = 5e-7
"""Share of δ that is left over for the tables' distances, half of what the noise does not use."""
_THRESHOLD_SHARE = 0.5
"""Part of δ that is kept for values that one person alone has, where there are unknown domains."""


@dataclass(frozen=True)
class Histogram:
    """One noisy histogram: most cells a row counts under, its share of the budget, whether its domain is unknown.

    ``way`` names a column and one of its ways, of which one only is gone; None where the histogram is always asked.
    """

    cells: int
    share: float
    unknown: bool = False
    way: tuple[str, str] | None = None

    def changes(self, contributions: int) -> int:
        """Return how many counts one person can change (by `contributions` each, in the worst case: by 1)."""
        return 2 * self.cells * contributions


def _dearest(histograms: Sequence[Histogram], costs: Sequence[Fraction | float | int]) -> Fraction:
    """Return the sum of what histograms cost, of every column's ways only the dearest."""
    total, ways = Fraction(0), dict[tuple[str, str], Fraction]()
    for histogram, cost in zip(histograms, costs, strict=True):
        if histogram.way is None:
            total += Fraction(cost)
        else:
            ways[histogram.way] = ways.get(histogram.way, Fraction(0)) + Fraction(cost)
    columns = {column for column, _ in ways}
    return total + sum(max(cost for way, cost in ways.items() if way[0] == column) for column in columns)


class CountNoise(Protocol):
    """Noise on counts."""

    @property
    def variance(self) -> float:
        """Its variance."""

    def add(self, counts: Ints, stream: ColumnStream) -> Ints:
        """Return counts with noise from a stream."""


@dataclass(frozen=True)
class GaussianNoise:
    """Discrete Gaussian noise on counts.

    Words are taken in the order of the cells; of unknown domains, the order of the observed values. That order
    tells nothing, as words are independent and a key serves one table (see `dpframe.keystream`).
    """

    table: GaussianTable

    @property
    def variance(self) -> float:
        """σ², which exceeds the variance by next to nothing."""
        return float(self.table.sigma2)

    def add(self, counts: Ints, stream: ColumnStream) -> Ints:
        """Return counts with noise, which may be negative."""
        return counts + self.table.sample(stream, 0, len(counts))


@dataclass(frozen=True)
class Spending:
    """How a budget is spent on histograms: the noise of each, and from which count values of unknown domains show.

    ``thresholds`` are in rows, one per histogram, 0 where the domain is known.
    """

    budget: Budget
    contributions: int
    histograms: tuple[Histogram, ...]
    noises: tuple[CountNoise, ...]
    thresholds: tuple[int, ...]

    def certified(self) -> Budget:
        """Return what is spent, from the noise as it is drawn: at most the budget."""
        if self.budget.delta == 0:
            return Budget(_pure(self.histograms, self.noises, self.contributions))
        return Budget(self.budget.epsilon, _delta(_usable(self.budget, self.histograms, self.contributions), self))


def spend(budget: Budget, histograms: Sequence[Histogram], n: int, contributions: int = 1) -> Spending:
    """Return the noise that makes all histograms together cost at most ``budget``.

    Raises
    ------
    ParameterError
        If the budget is so small that no table of its noise can be made, or unknown domains are asked for
        without δ.
    """
    found, shares = tuple(histograms), _dearest(histograms, [h.share for h in histograms])
    relative = [float(Fraction(h.share) / shares) for h in found]
    if budget.delta == 0:
        if any(h.unknown for h in found):
            raise ParameterError("unknown domains need delta above 0")
        parts = [budget.epsilon * s / h.changes(contributions) for h, s in zip(found, relative, strict=True)]
        pure = tuple(geometric_noise(n, part * (1 - 1e-9)) for part in parts)
        return Spending(budget, contributions, found, pure, (0,) * len(found))
    escape = budget.delta * _THRESHOLD_SHARE if any(h.unknown for h in found) else 0.0
    epsilon = _usable(budget, found, contributions)
    rho = zcdp_rho(epsilon, (budget.delta - escape) * (1 - 1e-6)) * (1 - 1e-9)
    tables = []
    for h, share in zip(found, relative, strict=True):
        sigma2 = 2 * h.cells * contributions**2 / (2 * rho * share) if rho > 0 else math.inf
        if sigma2 > LARGEST_SCALE**2 / 4:
            raise ParameterError(
                "epsilon is too small to infer spaces; raise epsilon or infer_share, or declare spaces"
            )
        tables.append(gaussian_table(max(1.0, _coarse(sigma2))))
    candidates = contributions * int(_dearest(found, [h.cells * h.unknown for h in found]))
    # As in `_delta`: P(k + Z ≥ τ) for all of the candidates together.
    each = escape * (1 - 1e-6) / (1 + math.exp(epsilon)) / max(candidates, 1)
    limits = [
        _threshold(float(t.sigma2), contributions, each) if h.unknown else 0 for h, t in zip(found, tables, strict=True)
    ]
    spending = Spending(budget, contributions, found, tuple(map(GaussianNoise, tables)), tuple(limits))
    if _delta(epsilon, spending) > budget.delta:
        raise ParameterError(_TOO_SMALL)
    return spending


_TOO_SMALL = "delta is too small to infer spaces; raise delta or infer_share, or declare spaces"


def _usable(budget: Budget, histograms: Sequence[Histogram], contributions: int) -> float:
    """Return the ε that is made use of: with a larger one, e^ε times the tables' distances would exceed δ."""
    changes = int(_dearest(histograms, [h.changes(contributions) for h in histograms]))
    room = budget.delta * _SPARE / (max(changes, 1) * _DISTANCE)
    if room < 4:
        raise ParameterError(_TOO_SMALL)
    return min(budget.epsilon, math.log(room - 1))


def _coarse(sigma2: float) -> float:
    """Return a number at least as large with 12 binary digits, so that few tables are needed."""
    mantissa, exponent = math.frexp(sigma2)
    return math.ldexp(math.ceil(mantissa * 4096), exponent - 12)


def _threshold(sigma2: float, contributions: int, probability: float) -> int:
    """Return a count that noise lifts a count of ``contributions`` to with at most this probability."""
    distance = max(0, math.floor(math.sqrt(sigma2) * -NormalDist().inv_cdf(min(probability, 0.4))))
    while gaussian_tail(sigma2, distance) > probability:
        distance += 1
    return contributions + distance


def gaussian_tail(sigma2: float, distance: int) -> float:
    """Return a bound on P(Z ≥ distance) of discrete Gaussian noise.

    The sum over x ≥ d of e^(−x²/2σ²) is at most its integral from d − 1, and that over all x at least σ√2π.
    """
    return 0.5 * math.erfc((distance - 1) / math.sqrt(2 * sigma2)) * (1 + 1e-9) if distance >= 1 else 1.0


def _delta(epsilon: float, spending: Spending) -> float:
    k, found = spending.contributions, spending.histograms
    rhos, escapes, replaced = list[Fraction](), list[float](), list[Fraction]()
    for h, noise, limit in zip(found, spending.noises, spending.thresholds, strict=True):
        assert isinstance(noise, GaussianNoise)
        rhos.append(Fraction(h.cells * k**2) / noise.table.sigma2)
        replaced.append(h.changes(k) * noise.table.distance)
        tail = gaussian_tail(float(noise.table.sigma2), limit - k) + float(noise.table.distance)
        escapes.append(k * h.cells * tail if h.unknown else 0.0)
    both = 1 + math.exp(min(epsilon, 700.0))
    rho, escape = float(_dearest(found, rhos)) * (1 + 1e-15), float(_dearest(found, escapes))
    more = both * (escape + float(_dearest(found, replaced))) * (1 + 1e-12)
    return min(zcdp_delta(rho, epsilon) + more, 1.0)


def _pure(histograms: Sequence[Histogram], noises: Sequence[CountNoise], contributions: int) -> float:
    losses: list[Fraction] = []
    for h, noise in zip(histograms, noises, strict=True):
        assert isinstance(noise, GeometricNoise)
        losses.append(h.changes(contributions) * Fraction(noise.loss))
    return float(_dearest(histograms, losses)) * (1 + 1e-15)
