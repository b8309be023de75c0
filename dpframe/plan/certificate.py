"""Certificates: proofs of a plan's claims from its integers, and claims that only its curator can attest.

Every claim is compared with a value computed anew from the sampled tables. Small channels are enumerated by sufficient
sets (Holohan, Leith and Mason, categorical paper, Theorems 2 and 3, Corollaries 1 and 2), in place of their mechanism's
closed form. Products of small factors are proved factor by factor. Other channels have their mechanism's
outward-rounded loss, compared with the losses of pairs of a few codes. A product sanitisation is as private as its
one-row mechanism (metric-spaces paper, Lemma 3 and Theorem 5), so a row's loss holds for the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

from dpframe.accounting import Bound, ColumnLoss, sampled
from dpframe.accounting.budget import Budget, round_down, round_up
from dpframe.accounting.composition import response_parts
from dpframe.accounting.dominating import BitsLoss, ItemsLoss
from dpframe.accounting.finite import tight_epsilon
from dpframe.accounting.gaussian_dp import Step, composed_steps, step_delta
from dpframe.accounting.loss import PrivacyLoss
from dpframe.accounting.unit import ROW, Unit
from dpframe.channels import Mechanism
from dpframe.channels.flip_loss import FlipLoss
from dpframe.errors import ParameterError, name_list
from dpframe.inference.proof import prove_inference
from dpframe.plan.accounting_gains import ORDER_METHODS
from dpframe.plan.calibration import AccountingContext
from dpframe.plan.data import PlanData
from dpframe.plan.measures import measures_step
from dpframe.plan.notebook import notebook_html

ENUMERATED = 256
"""Most codes for which every pair of inputs is enumerated; half as many with δ > 0, which takes longer (limit of time).
"""

SAMPLED = 1 << 12
"""Most codes for which the pairs of a few codes are enumerated (limit of time)."""

Factor = tuple[tuple[int, ...], tuple[int, ...], int]
"""Weights of a factor's outcomes for one input and for the other, and how often the factor occurs."""

_LARGEST_EXPONENT = 1000
"""Exponent beyond which any δ above 0 grows to 1 (limit of the format)."""

_LOSS_TOLERANCE = 1e-12
"""Relative difference of two outward roundings of one loss; a larger difference is a contradiction (tolerance)."""


@dataclass(frozen=True)
class Proof:
    """One unit's claim, and its proved ε at the claimed δ.

    ``blanket`` is the proved common mass Σ_y min_x P(y|x) of its laws; ``failures`` is empty if the claim holds.
    """

    unit: str
    mechanism: str
    claimed: Budget
    epsilon: float
    blanket: float
    method: str
    failures: tuple[str, ...] = ()
    law: ColumnLoss | None = None
    step: Step | None = None

    @property
    def column_loss(self) -> ColumnLoss:
        """The proved loss for the accountant: ``law`` if the unit's kind has one, else its loss and blanket."""
        return ColumnLoss(self.epsilon, self.blanket) if self.law is None else self.law

    def __str__(self) -> str:
        claim = f"claims epsilon={self.claimed.epsilon:.9g}, loses {self.epsilon:.9g}"
        return f"{self.unit} ({self.mechanism}): {claim}, at delta={self.claimed.delta:.6g}; {self.method}"


@dataclass(frozen=True)
class Certificate:
    """Proofs of a plan's budget, with attested claims, unprotected parts and failures.

    ``epsilon`` and ``delta`` are the certified totals per person, replace-one, and ``local`` is what each row loses
    on its own; ``claimed`` is None if no claim could be read, ``local`` if it is not proved. `Plan.verify`
    makes a certificate from a plan, `dpframe.verify` from a release. ``unit`` is whom the totals are for. They are
    for rows that are replaced: a release shows how many rows there are, so nothing is promised for one that is added or
    removed (`Queries` has ``neighbours="add_remove"``).

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> certificate = build_plan({"age": (0, 120), "sex": ["F", "M"]}, epsilon=1.0).verify()
    >>> certificate.ok, certificate.failures
    (True, ())
    >>> round(certificate.epsilon, 3)
    1.0
    """

    claimed: Budget | None
    contributions: int
    epsilon: float
    delta: float
    proofs: tuple[Proof, ...]
    checks: tuple[str, ...]
    attested: tuple[str, ...]
    unprotected: tuple[str, ...]
    failures: tuple[str, ...]
    local: Budget | None = None
    unit: Unit = ROW
    person_rows: str | None = None
    """Rows of a person in words, if they are in several tables."""

    @property
    def ok(self) -> bool:
        """Whether every claim holds."""
        return not self.failures

    def __bool__(self) -> bool:
        """Whether every claim holds, as `ok` says."""
        return self.ok

    def _sections(self) -> list[tuple[str, list[str]]]:
        return [
            ("Failed", list(self.failures)),
            ("Proved", [*map(str, self.proofs), *self.checks]),
            ("Attested by the curator, beyond any proof", list(self.attested)),
            ("Not protected", list(self.unprotected)),
        ]

    @property
    def _title(self) -> str:
        people = self.person_rows or ("one row" if self.contributions == 1 else f"up to {self.contributions} rows")
        verdict = "VERIFIED" if self.ok else "NOT VERIFIED"
        claim = "no claim that can be read" if self.claimed is None else _budget_text(self.claimed)
        by = "" if self.unit.person is None else f", by column {self.unit.person!r}"
        return f"{verdict}: {claim}, replace-one, per person with {people}{by}"

    def __str__(self) -> str:
        lines = [self._title]
        for title, items in self._sections():
            lines += [f"{title}:", *(f"  {item}" for item in items)] if items else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return notebook_html(self._title, self._sections())

    def to_json(self) -> str:
        """Return JSON text: the verdict, the totals, and every list; an infinite ε is null."""
        data = {
            "ok": self.ok,
            "claimed": None if self.claimed is None else _json_pair(self.claimed.epsilon, self.claimed.delta),
            "certified": _json_pair(self.epsilon, self.delta),
            "local": None if self.local is None else _json_pair(self.local.epsilon, self.local.delta),
            "contributions": self.contributions,
            "unit": str(self.unit),
            "proved": [
                {
                    "unit": proof.unit,
                    "mechanism": proof.mechanism,
                    "claimed": _json_pair(proof.claimed.epsilon, proof.claimed.delta),
                    "certified": _json_pair(proof.epsilon, proof.claimed.delta),
                    "method": proof.method,
                    "failures": list(proof.failures),
                }
                for proof in self.proofs
            ],
            "checks": list(self.checks),
            "attested": list(self.attested),
            "unprotected": list(self.unprotected),
            "failures": list(self.failures),
        }
        return json.dumps(data, ensure_ascii=False)


def certify(plan: PlanData, claimed: Budget | None = None, contributions: int | None = None) -> Certificate:
    """Compare a plan's claims with values computed from its tables.

    ``claimed`` and ``contributions`` replace the plan's own claims: a total, rows per person.
    """
    has_own_claim = claimed is None
    claimed = plan.release if claimed is None else claimed
    contributions = plan.contributions if contributions is None else contributions
    proofs = tuple(prove(unit.label, unit.mechanism) for unit in plan.units)
    failures = [failure for proof in proofs for failure in proof.failures]
    inference = prove_inference(plan.inferred, contributions, plan.spaces)
    failures += inference.failures
    unit = Unit.promised(contributions, plan.privacy_id)
    failures += _unit_refusals(plan, unit)
    # It is composed of losses that no integer exceeds, if no proof failed.
    local = plan.local if has_own_claim and not failures else None
    pure = all(math.isfinite(p.epsilon) and p.claimed.delta == 0 for p in proofs)
    rows = _rows_claim(plan, claimed, contributions)
    if rows is None:
        epsilon, delta, how = math.inf, 1.0, "total: inference of spaces spent more than is claimed"
    elif plan.measures or (plan.inferred is not None and plan.inferred.step is not None):
        # Tables' slack is a share of the whole claim's δ, before any subtraction.
        epsilon, delta, how = _total_in_steps(plan, proofs, rows, contributions, claimed.delta)
    else:
        terms = replace(plan.terms, budget=rows, contributions=contributions)
        stepped = any(p.step for p in proofs)
        certified = (
            _total_of_stepped_rows
            if stepped
            else _total_by_accountant
            if pure and rows.delta > 0
            else _total_by_addition
        )
        epsilon, delta, how = certified(terms, proofs, rows, contributions)
    if plan.inferred is not None and plan.inferred.step is None:
        # Exact sums, rounded up once: a sum of floats could round below the true loss.
        spent = plan.inferred.budget
        epsilon, delta = (
            round_up(Fraction(loss) + Fraction(inference_loss)) if math.isfinite(loss) else loss
            for loss, inference_loss in ((epsilon, spent.epsilon), (delta, spent.delta))
        )
    if epsilon > claimed.epsilon or delta > claimed.delta:
        failures.append(
            f"the total claims epsilon={claimed.epsilon!r}, delta={claimed.delta!r} but its units lose "
            f"epsilon={epsilon!r}, delta={delta!r}"
        )
    return Certificate(
        claimed=claimed,
        contributions=contributions,
        epsilon=epsilon,
        delta=delta,
        proofs=proofs,
        checks=(how, *inference.checks, *(() if local is None else (f"local: {local.stated()} of {_LOCAL_CLAIM}",))),
        attested=(*_attested_lines(plan, contributions), *inference.attested),
        unprotected=tuple(_unprotected_lines(plan)),
        failures=tuple(failures),
        local=local,
        unit=unit,
    )


def _unit_refusals(plan: PlanData, unit: Unit) -> list[str]:
    """Return the refusals of spaces inferred for a weaker unit than the plan's; reused spaces need a row's."""
    inferences = [(plan.inferred, unit), (plan.reused, ROW)]
    refusals = [
        None if inferred is None else inferred.refusal(unit, unit_promised) for inferred, unit_promised in inferences
    ]
    return [refusal for refusal in refusals if refusal is not None]


_LOCAL_CLAIM = "each row, even against someone who knows which output row it became"


def _total_in_steps(
    plan: PlanData, proofs: Sequence[Proof], claimed: Budget, contributions: int, promise_delta: float
) -> tuple[float, float, str]:
    """Return the (ε, δ) of a person by composition of steps, from the proved losses and blankets, and how."""
    try:
        central_steps = {}
        if plan.inferred is not None and plan.inferred.step is not None:
            central_steps["inference"] = plan.inferred.step
        tables = measures_step(plan.measures, plan.counted_spaces, contributions, promise_delta)
        parts = central_steps if tables is None else central_steps | {"tables": tables}
    except ParameterError:
        return math.inf, 1.0, "total: measured tables need more than the delta of the claim"
    central = composed_steps(parts.values())
    # The cap on each row is no part of the claimed total.
    terms = replace(plan.terms, budget=claimed, contributions=contributions, local=None, central=central)
    if not all(math.isfinite(p.epsilon) for p in proofs):
        return math.inf, 1.0, "total: a unit's loss is not bounded"
    if any(p.step for p in proofs):
        return _total_of_stepped_rows(terms, proofs, claimed, contributions)
    failing = math.fsum(p.claimed.delta for p in proofs)
    if failing:
        terms = terms.failing(failing)
    losses = response_parts([p.epsilon for p in proofs]) if failing else [p.column_loss for p in proofs]
    try:
        central_bound = Bound(step_delta(central, claimed.epsilon), "gaussian")
        bound = terms.delta_of_losses(losses) if losses else central_bound
    except ParameterError:
        return math.inf, 1.0, "total: what is spent on other things than the rows exceeds the claim"
    sentences = [
        f"total: delta={bound.value:.4g} at epsilon={claimed.epsilon:g} per person",
        ", ".join(f"{name} (mu={step.mu:.6g}, slack={step.delta:.3g})" for name, step in parts.items())
        + " composed with the rows by Gaussian differential privacy (mu, and a slack, which is part of delta)",
    ]
    if terms.shuffled_rows is not None:
        sentences.append(f"{terms.shuffled_rows:,} rows in secret order: their profile lies under a Gaussian curve")
    if terms.samples:
        sentences.append(f"{terms.sample:,} of {terms.rows:,} rows chosen in secret")
    if contributions > 1:
        sentences.append(f"up to {contributions} rows of a person, point by point of the profile")
    return claimed.epsilon, bound.value, "; ".join(sentences)


def _rows_claim(plan: PlanData, claimed: Budget, contributions: int) -> Budget | None:
    """Return the claim less a subtracted inference, or None if inference leaves nothing of the claim."""
    try:
        subtracted = plan.inferred is not None and plan.inferred.step is None
        rows = claimed.less(plan.inferred.budget) if plan.inferred is not None and subtracted else claimed
        _ = rows.per_row(contributions)
    except ParameterError:
        return None
    return rows


def _total_by_addition(
    terms: AccountingContext, proofs: Sequence[Proof], _: Budget, contributions: int
) -> tuple[float, float, str]:
    """Return the (ε, δ) of a person by basic composition, with sampling applied to rows, and how."""
    spent = [(p.epsilon, p.claimed.delta) for p in proofs]
    row, failed = composed_for_person(spent, 1)
    # A secret sample amplifies only finite losses.
    if not terms.samples or not row < math.inf or failed == 1.0:
        epsilon, delta = composed_for_person(spent, contributions)
        return epsilon, delta, _composition_line(contributions, epsilon, delta)
    assert terms.sample is not None
    assert terms.rows is not None
    # The smallest float represents a row that loses nothing.
    sampled_row = sampled(row or 5e-324, failed, terms.sample, terms.rows)
    epsilon, delta = composed_for_person([sampled_row], contributions)
    sample_text = f"{terms.sample:,} of {terms.rows:,} rows chosen in secret, of epsilon={row:.9g} each"
    return epsilon, delta, f"{_composition_line(contributions, epsilon, delta)}; {sample_text}"


def _total_of_stepped_rows(
    terms: AccountingContext, proofs: Sequence[Proof], claimed: Budget, contributions: int
) -> tuple[float, float, str]:
    """Return the δ at the claimed ε of unshuffled rows with steps among their units, and how."""
    terms = replace(terms, local=None)
    unstepped = [p for p in proofs if p.step is None]
    if not all(math.isfinite(p.epsilon) for p in proofs):
        return math.inf, 1.0, "total: a unit's loss is not bounded"
    steps = [p.step for p in proofs if p.step is not None]
    failure_probability = math.fsum(p.claimed.delta for p in unstepped)
    bound = terms.delta_of_steps(steps, [p.epsilon for p in unstepped], failure_probability)
    delta = _scale_delta(bound.value, terms, claimed)
    sentences = [
        f"total: delta={delta:.4g} at epsilon={claimed.epsilon:g} per person; losses of a row's columns composed"
    ]
    sentences += [f"{p.unit} (mu={p.step.mu:.6g}, slack={p.step.delta:.3g})" for p in proofs if p.step is not None]
    sentences.append("the order of rows earns nothing where they have gaussian noise")
    if contributions > 1:
        sentences.append(f"{contributions} rows of one person")
    return claimed.epsilon, min(1.0, delta), "; ".join(sentences)


def _scale_delta(value: float, terms: AccountingContext, claimed: Budget) -> float:
    """Return the δ of a person: the claim's δ, scaled by the row's δ over `sampled_budget`'s."""
    # A scaled value could round an exact δ above the claim.
    if value == terms.sampled_budget.delta:
        return claimed.delta
    return value / terms.sampled_budget.delta * claimed.delta if terms.sampled_budget.delta else math.inf


def _total_by_accountant(
    terms: AccountingContext, proofs: Sequence[Proof], claimed: Budget, contributions: int
) -> tuple[float, float, str]:
    """Return the δ at the claimed ε, from only the proved losses and blankets, and how."""
    bound = terms.delta_of_losses([p.column_loss for p in proofs])
    delta = _scale_delta(bound.value, terms, claimed)
    sentences = [f"total: delta={delta:.4g} at epsilon={claimed.epsilon:g} per person"]
    if terms.shuffled_rows is None:
        sentences.append("losses of a row's columns composed by their privacy-loss distributions")
    else:
        sentences.append(
            f"{terms.shuffled_rows:,} rows in secret order: {ORDER_METHODS.get(bound.method, 'only composition')}"
        )
    if terms.samples:
        sentences.append(f"{terms.sample:,} of {terms.rows:,} rows chosen in secret")
    if contributions > 1:
        sentences.append(f"{contributions} rows of one person (group privacy)")
    return claimed.epsilon, min(1.0, delta), "; ".join(sentences)


def prove(unit: str, mechanism: Mechanism) -> Proof:
    """Return the proved ε of a channel at the δ that it was made for."""
    claimed, size, outputs = mechanism.budget, mechanism.size, mechanism.outputs
    stated_epsilon = mechanism.loss.epsilon(claimed.delta)
    epsilon, method, failures = stated_epsilon, "bounded by its loss, rounded up", []
    try:
        # Enumeration costs the square of the codes, and more with δ > 0.
        if outputs <= (ENUMERATED if claimed.delta == 0 else ENUMERATED // 2):
            epsilon, method = _enumerate_epsilon(mechanism, range(size)), f"every pair of {size} codes enumerated"
        elif type(mechanism.loss) in FACTORS and claimed.delta == 0:
            factors = FACTORS[type(mechanism.loss)](mechanism.loss)
            epsilon, method = (
                _product_epsilon(factors),
                f"factor by factor, {sum(k for *_, k in factors)} of which may differ",
            )
        elif outputs <= SAMPLED:
            last_value = size - mechanism.flag_codes - 1
            sample_codes = sorted({0, 1, size // 2, last_value, size - 2, size - 1})
            epsilon, method = (
                max(stated_epsilon, _enumerate_epsilon(mechanism, sample_codes)),
                f"{method}; pairs of {len(sample_codes)} codes enumerated",
            )
    except ParameterError as error:
        epsilon, method = math.inf, "its weights are no law"
        failures.append(f"column {unit!r}: {error}")
    if math.isfinite(epsilon) and stated_epsilon < epsilon * (1 - _LOSS_TOLERANCE):
        failures.append(f"column {unit!r} states a loss of epsilon={stated_epsilon!r}; its integers lose {epsilon!r}")
    if epsilon > claimed.epsilon:
        failures.append(
            f"column {unit!r} claims epsilon={claimed.epsilon!r}, delta={claimed.delta!r} but its integers lose "
            f"epsilon={epsilon!r} at that delta"
        )
    blanket = mechanism.blanket
    if outputs <= ENUMERATED:
        # The common mass needs every law, which only small channels allow.
        laws = [mechanism.weights(code) for code in range(mechanism.size)]
        common_mass = round_down(
            Fraction(sum(map(min, zip(*(weights for weights, _ in laws), strict=True))), laws[0][1])
        )
        if blanket > common_mass:
            failures.append(f"column {unit!r} states a blanket mass of {blanket!r}; its laws share {common_mass!r}")
        blanket = common_mass
    law = None
    if type(mechanism.loss) in LAWS and claimed.delta == 0:
        law, stated_law = LAWS[type(mechanism.loss)](mechanism.loss), mechanism.column_loss
        is_close = stated_law.epsilon >= law.epsilon * (1 - _LOSS_TOLERANCE) and stated_law.blanket <= law.blanket * (
            1 + _LOSS_TOLERANCE
        )
        if not is_close or stated_law != law.at(stated_law.epsilon, stated_law.blanket):
            failures.append(
                f"column {unit!r} states the law {stated_law!r} to the accountant; its integers have {law!r}"
            )
    return Proof(unit, mechanism.tag, claimed, epsilon, blanket, method, tuple(failures), law, mechanism.loss.step)


def _flip_factors(loss: FlipLoss) -> list[Factor]:
    """Return the items that only the first, and only the second, of two sets contains, as many as possible.

    Every item in which they differ is released independently; common items reveal nothing.
    """
    item_count = min(loss.most, loss.items)
    held_weights, missing_weights = (loss.ones, loss.total - loss.ones), (loss.zeros, loss.total - loss.zeros)
    return [
        (held_weights, missing_weights, item_count),
        (missing_weights, held_weights, min(loss.most, loss.items - item_count)),
    ]


FACTORS: dict[type[PrivacyLoss], Callable[[Any], list[Factor]]] = {FlipLoss: _flip_factors}
"""Losses of channels that are products of small ones, and the functions from a loss to its worst pair's factors."""


def _flip_law(loss: FlipLoss) -> ColumnLoss:
    """Return the law of the items in which two sets differ, if they may differ in all; else of a bit for each item.

    A set's blanket is from the least loss of an item: the least ratio of P to P' of an item in the set.
    """
    (held_weights, missing_weights, first_count), (_, _, second_count) = _flip_factors(loss)
    if first_count == second_count == loss.most:
        lowest_ratio = min(Fraction(p, q) for p, q in zip(held_weights, missing_weights, strict=True))
        return ItemsLoss(
            _product_epsilon(_flip_factors(loss)), _power_rounded_down(lowest_ratio, first_count), first_count
        )
    pure = max(
        _product_epsilon([(held_weights, missing_weights, loss.items)]),
        _product_epsilon([(missing_weights, held_weights, loss.items)]),
    )
    return BitsLoss(
        pure,
        _power_rounded_down(Fraction(sum(map(min, held_weights, missing_weights)), loss.total), loss.items),
        loss.items,
    )


def _power_rounded_down(share: Fraction, count: int) -> float:
    """Return the power of a number, rounded down."""
    with localcontext(Context(prec=80)):
        # The last factor covers the rounding of 80 digits.
        return round_down((Decimal(share.numerator) / share.denominator) ** count * (1 - Decimal(10) ** -70))


LAWS: dict[type[PrivacyLoss], Callable[[Any], ColumnLoss]] = {FlipLoss: _flip_law}
"""Losses of channels for which the accountant uses more than ε and γ, and the functions to laws from their integers."""


def _product_epsilon(factors: list[Factor]) -> float:
    """Return ln ∏ max(P/P')^count, rounded up: the pure losses of independent factors add up."""
    with localcontext(Context(prec=80)):
        # Exact fractions: a quotient of floats could be rounded down.
        ratios = [
            (max(Fraction(p, q) for p, q in zip(weights, other_weights, strict=True)), k)
            for weights, other_weights, k in factors
        ]
        loss = sum(((Decimal(r.numerator) / r.denominator).ln() * k for r, k in ratios), Decimal(0))
        return round_up(loss * (1 + Decimal(10) ** -70))


def _enumerate_epsilon(mechanism: Mechanism, codes: Iterable[int]) -> float:
    """Return the least ε over all pairs of these inputs, by sufficient sets, from the integer weights."""
    laws = [mechanism.weights(code) for code in codes]
    totals = {weight_total for _, weight_total in laws}
    if len(totals) != 1:
        raise ParameterError("laws of different inputs must have one total")
    return tight_epsilon([weights for weights, _ in laws], totals.pop(), mechanism.delta)


def composed_for_person(parts: Iterable[tuple[float, float]], contributions: int) -> tuple[float, float]:
    """Return the total for a person: basic composition over units, then group privacy over a person's rows.

    k steps of (ε, δ) make (kε, δ·(1 + e^ε + … + e^((k−1)ε))) (Vadhan 2017, Lemma 2.2).
    """
    spent = list(parts)
    if not all(math.isfinite(epsilon) for epsilon, _ in spent):
        return math.inf, 1.0
    row = sum((Fraction(epsilon) for epsilon, _ in spent), Fraction(0))
    delta = sum((Fraction(part) for _, part in spent), Fraction(0))
    if contributions > 1 and delta and row * (contributions - 1) > _LARGEST_EXPONENT:
        return round_up(row * contributions), 1.0
    if contributions > 1 and delta:
        with localcontext(Context(prec=60)):
            row_decimal = Decimal(row.numerator) / row.denominator
            # 1 + e^ε + … + e^((k−1)ε) is the geometric sum (e^(kε) − 1)/(e^ε − 1).
            steps = (row_decimal * contributions).exp() - 1
            # If e^ε − 1 would lose its digits, the last term bounds every other.
            last_term = contributions * (row_decimal * (contributions - 1)).exp()
            factor = steps / (row_decimal.exp() - 1) if row > Fraction(1, 10**20) else last_term
            delta *= Fraction(factor * (1 + Decimal(10) ** -30))
    return round_up(row * contributions), min(1.0, round_up(delta))


def _composition_line(contributions: int, epsilon: float, delta: float) -> str:
    """Return the total of basic composition in words."""
    how = "epsilons and deltas of a row added up (basic composition)"
    if contributions > 1:
        how += f", times {contributions} rows of one person (group privacy)"
    return f"total: epsilon={epsilon:.9g}, delta={delta:g} per person; {how}"


def _attested_lines(plan: PlanData, contributions: int) -> list[str]:
    """Return the claims that only the curator can attest."""
    rows = "one row" if contributions == 1 else f"{contributions} rows"
    lines = [
        "the key was secret, served only this table, and is gone",
        "the noise was drawn from these tables, with that key",
        f"one person owns at most {rows}"
        if plan.privacy_id is None
        else f"the column {plan.privacy_id!r} identifies persons; {rows} of each were chosen in secret by it, and how "
        "many persons there are is public",
        "the table's columns and types are public",
        "spaces were declared without looking at the data, or found with noise that was paid for apart"
        + (", but those named below" if plan.leaks else ""),
    ]
    if plan.inferred is not None:
        spent = plan.inferred.budget
        lines[-1] = (
            f"spaces of {name_list(plan.inferred.columns)} were found with noise worth {_budget_text(spent)} for "
            f"{(plan.inferred.unit or Unit.promised(contributions, plan.privacy_id)).words}, and the others declared "
            "without looking at the data"
        )
    for inference in () if plan.reused is None else plan.reused.each:
        lines.append(
            f"spaces of {name_list(inference.columns)} were found for {(inference.unit or ROW).words}, "
            f"with noise worth {_budget_text(inference.budget)} that was paid for apart"
        )
    if plan.measures:
        lines.append("the measured tables are exact counts of this table, with noise of the stated sigma2")
    if plan.n is not None:
        lines.append(f"the table had {plan.n:,} rows or more, and their number is public")
    if plan.shuffle:
        lines.append("rows left in an order drawn uniformly, and secret")
    if plan.terms.sample is not None and plan.terms.secret:
        lines.append("the rows released were drawn uniformly, and the choice is secret")
    return lines


def _unprotected_lines(plan: PlanData) -> list[str]:
    """Return the parts of a release without protection."""
    lines = [] if plan.shuffle else ["the order of the rows: it was kept"]
    if plan.passthrough:
        lines.append("copied as they are: " + name_list(plan.passthrough))
    if plan.keeps_index:
        lines.append("copied as it is: the index of the rows")
    if plan.leaks:
        lines.append("spaces read off the data: " + name_list(plan.leaks))
    return lines


def _budget_text(budget: Budget) -> str:
    return f"epsilon={budget.epsilon:g}, delta={budget.delta:g}"


def _json_pair(epsilon: float, delta: float) -> dict[str, Any]:
    return {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta}
