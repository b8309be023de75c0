"""Certificates prove what is true, refuse what is not, and say what no file can prove."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from checks import exact_columns, exact_delta, exact_epsilon
from examples import plans_with

from dpframe import Budget, Nullable, Plan, Real, Subset
from dpframe.accounting import ColumnLoss
from dpframe.accounting.dominating import ItemsLoss
from dpframe.accounting.loss import PrivacyLoss
from dpframe.channels import (
    MECHANISMS,
    AsymmetricBitFlip,
    BitFlip,
    Geometric,
    Mechanism,
    RandomizedResponse,
    WithNull,
)
from dpframe.plan import certificate
from dpframe.plan.build import build_plan
from dpframe.plan.certificate import certify, prove

SPACES = {"age": (0, 120), "sex": ["F", "M", "X"], "wage": Nullable(Real(0, 1000, steps=5_000))}


@cache
def pure_plan():
    return build_plan(SPACES, epsilon=3.0, delta=0, n=400)


@cache
def shuffled_plan():
    return build_plan(SPACES, epsilon=1.0, n=400)


def test_a_certificate_keeps_proof_and_attestation_apart() -> None:
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=400, contributions=2, shuffle=False, passthrough=["id"])
    found = plan.verify()
    assert found.ok
    assert found.failures == ()
    text = str(found)
    proved, attested = text.split("Attested by the curator, beyond any proof:")
    attested, open_to_all = attested.split("Not protected:")
    assert text.startswith("VERIFIED: epsilon=1, delta=1e-06, replace-one, per person with up to 2 rows\n")
    for words in ("every pair of 121 codes enumerated", "every pair of 3 codes", "bounded by its", "total: delta="):
        assert words in proved
    for words in ("the key was secret", "at most 2 rows", "400 rows", "spaces were declared without looking"):
        assert words in attested
        assert words not in proved
    assert "drawn uniformly" not in text
    assert "the order of the rows" in open_to_all
    assert "copied as they are: id" in open_to_all
    assert "rows left in an order drawn uniformly, and secret" in str(pure_plan().verify())
    leaky = replace(pure_plan(), leaks=("age",))
    assert "spaces read off the data: age" in str(leaky.verify())
    assert "paid for apart, but those named below" in str(leaky.verify())


def test_json_and_html() -> None:
    plan = build_plan({"<b>": ["x", "y"]}, epsilon=1.0)
    found = plan.verify()
    data = json.loads(found.to_json())
    assert data["ok"] is True
    assert data["claimed"] == {"epsilon": 1.0, "delta": 0.0}
    assert data["certified"] == {"epsilon": found.epsilon, "delta": 0.0}
    assert data["proved"][0]["unit"] == "<b>"
    assert data["failures"] == []
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()
    for words in ("VERIFIED", "Attested", "Proved"):
        assert words in found._repr_html_()
    assert "Failed" not in found._repr_html_()


def test_certified_values_are_those_of_brute_force() -> None:
    """Beside sums over every ordered pair, in integers; the claim's own δ is met at the certified ε, and no lower."""
    cases: list[Mechanism] = [
        *(Geometric(12, e, d) for e, d in [(0.5, 0.0), (1.0, 1e-3), (3.0, 0.2)]),
        *(WithNull(Geometric, (12,), e, d) for e, d in [(0.5, 0.0), (1.0, 1e-3), (3.0, 0.2)]),
        *(RandomizedResponse(7, e, d) for e, d in [(0.5, 0.0), (1.0, 1e-3), (3.0, 0.2)]),
    ]
    for mechanism in cases:
        proof = prove("a", mechanism)
        assert not proof.failures
        assert "every pair" in proof.method
        columns, total = exact_columns(mechanism)
        assert exact_delta(columns, total, proof.epsilon) <= Fraction(mechanism.delta)
        if mechanism.delta == 0:
            assert float(exact_epsilon(columns)) == pytest.approx(proof.epsilon, rel=1e-15)
        else:
            assert exact_delta(columns, total, proof.epsilon * (1 - 1e-9)) > Fraction(mechanism.delta)


def test_larger_channels_are_bounded_and_spot_checked() -> None:
    for mechanism in (Geometric(4_000, 1.0), Geometric(300, 1.0, 1e-6), RandomizedResponse(500, 2.0)):
        proof = prove("a", mechanism)
        assert "pairs of 5 codes enumerated" in proof.method
        assert mechanism.loss.epsilon(mechanism.delta) <= proof.epsilon <= mechanism.epsilon
    assert prove("a", Geometric(1 << 20, 1.0)).method == "bounded by its loss, rounded up"


def test_sets_are_proved_factor_by_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the enumeration of all pairs of sets, where that is possible: six items, at most two or all in a set."""
    for mechanism in (BitFlip(6, 2, 1.0), BitFlip(6, None, 1.0), AsymmetricBitFlip(6, 2, 2.0), BitFlip(5, 4, 3.0)):
        enumerated = prove("a", mechanism)
        assert "every pair" in enumerated.method
        with monkeypatch.context() as patch:
            patch.setattr(certificate, "ENUMERATED", 0)
            factored = prove("a", mechanism)
        assert factored.method.startswith("factor by factor")
        assert factored.epsilon == pytest.approx(enumerated.epsilon, rel=1e-15)
    large = prove("a", BitFlip(1_000, 30, 20.0))
    assert large.method == "factor by factor, 60 of which may differ"
    assert large.epsilon == pytest.approx(large.claimed.epsilon, rel=1e-3)
    assert prove("a", AsymmetricBitFlip(1_000, 30, 20.0)).method == large.method
    assert "bounded" in prove("a", BitFlip(1_000, 30, 20.0, 1e-6)).method


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("k", [1, 2, 7, 1_000])
def test_group_privacy_over_a_persons_rows(k: int, delta: float) -> None:
    spaces, (age, sex) = {"age": (0, 9), "sex": ["F", "M"]}, Budget(2.0, delta).per_row(k).split([0.5, 0.5])
    ready = {"age": Geometric(9, age.epsilon, age.delta), "sex": RandomizedResponse(2, sex.epsilon, sex.delta)}
    plan = build_plan(spaces, epsilon=2.0, delta=delta, contributions=k, mechanisms=ready)
    found = plan.verify()
    row = sum(Fraction(p.epsilon) for p in found.proofs)
    assert Fraction(found.epsilon) == pytest.approx(row * k, rel=1e-15)
    assert found.epsilon >= row * k
    steps = sum(math.exp(i * row) for i in range(k))
    assert found.delta == pytest.approx(sum(p.claimed.delta for p in found.proofs) * steps, rel=1e-9)
    assert found.ok
    # A group of one more is not covered.
    assert certify(plan, plan.release, k).ok
    assert not certify(plan, contributions=k + 1).ok


def test_group_privacy_at_tiny_epsilon_is_bounded_from_above() -> None:
    epsilon, delta = certificate.composed_for_person([(1e-30, 1e-9)], 5)
    assert epsilon == pytest.approx(5e-30)
    assert 5e-9 <= delta <= 5.0001e-9
    assert certificate.composed_for_person([(1e6, 1e-300)], 10) == (1e7, 1.0)
    assert certificate.composed_for_person([(1e6, 0.0)], 10) == (1e7, 0.0)


@dataclass(frozen=True)
class _Stated(PrivacyLoss):
    """A loss that states what it likes."""

    value: float

    def pure(self) -> float:
        return self.value

    def _curve(self, epsilon: float) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class _Liar(RandomizedResponse):
    """Randomised response whose stated loss or weights are not those of its tables."""

    stated: float = 1.0
    lost: int = 0

    @property
    def loss(self) -> Any:
        return _Stated(self.stated)

    def weights(self, code: int) -> tuple[list[int], int]:
        weights, total = super().weights(code)
        return [weights[0] + self.lost, *weights[1:]], total


def test_a_loss_below_the_integers_is_caught() -> None:
    honest = RandomizedResponse(3, 1.0).loss.epsilon()
    assert not prove("a", _Liar(3, 1.0, stated=honest)).failures
    (failure,) = prove("a", _Liar(3, 1.0, stated=honest - 1e-9)).failures
    assert failure.startswith("column 'a' states a loss of epsilon=0.99")
    failures = prove("a", replace(_Liar(300, 1.0, stated=0.5), epsilon=0.6)).failures
    # Too large to enumerate; a few pairs tell nevertheless. The table follows the claim, so only the loss is false.
    assert len(failures) == 1
    assert "its integers lose 0.599" in failures[0]
    (failure,) = prove("a", _Liar(3, 1.0, stated=1.5)).failures[:1] or ("",)
    assert failure == ""  # outward rounding may be generous: enumeration has the last word
    assert prove("a", _Liar(2000, 1.0, stated=1.5)).failures[0].startswith("column 'a' claims epsilon=1.0, delta=0.0")
    (failure,) = prove("a", _Liar(3, 1.0, stated=honest, lost=1)).failures[:1]
    assert "sum to total" in failure


@dataclass(frozen=True)
class _Revealing(RandomizedResponse):
    """A channel that releases the code as it is."""

    def weights(self, code: int) -> tuple[list[int], int]:
        return [int(y == code) for y in range(self.size)], 1


def test_an_infinite_loss_is_caught() -> None:
    honest = build_plan({"a": list("xyz"), "b": [1, 2]}, epsilon=2.0)
    plan = replace(honest, columns=(replace(honest["a"], mechanism=_Revealing(3, 1.0)), honest["b"]))
    found = plan.verify()
    assert found.epsilon == math.inf
    assert any("column 'a' claims epsilon=1.0" in f and "epsilon=inf" in f for f in found.failures)
    assert any(f.startswith("the total claims epsilon=2.0") for f in found.failures)
    assert json.loads(found.to_json())["certified"]["epsilon"] is None


def test_a_total_below_its_parts_is_caught() -> None:
    found = certify(pure_plan(), Budget(pure_plan().verify().epsilon - 1e-9))
    assert not found.ok
    assert [f.split(" but ")[0][:28] for f in found.failures] == ["the total claims epsilon=2.9"]
    assert str(found).startswith("NOT VERIFIED: epsilon=3, delta=0")
    assert "Failed:\n  the total claims" in str(found)
    assert json.loads(found.to_json())["ok"] is False
    assert certify(pure_plan(), Budget(pure_plan().verify().epsilon)).ok


def test_a_total_with_credit_is_caught_at_the_last_digit() -> None:
    """δ at the claimed ε is what is compared: 1e-9 less of either than was proved is too little."""
    proved = shuffled_plan().verify()
    assert proved.ok
    assert (proved.epsilon, proved.delta <= shuffled_plan().delta) == (1.0, True)
    assert certify(shuffled_plan(), Budget(1.0, proved.delta)).ok
    for claim in (Budget(1.0, proved.delta * (1 - 1e-9)), Budget(1.0 - 1e-9, proved.delta)):
        found = certify(shuffled_plan(), claim)
        assert found.failures[0].startswith(f"the total claims epsilon={claim.epsilon!r}, delta={claim.delta!r} but")
        assert found.delta > claim.delta
    for contributions in (2, 5, 50):
        found = certify(shuffled_plan(), contributions=contributions)
        assert not found.ok
        assert found.delta <= 1.0
    # A claim of δ = 0 has no credit: the row's losses add up.
    assert certify(shuffled_plan(), Budget(1.0)).epsilon == pytest.approx(shuffled_plan().local_sum.epsilon)


@dataclass(frozen=True)
class _Boasting(RandomizedResponse):
    """A channel that states a larger blanket than its laws share."""

    @property
    def blanket(self) -> float:
        return 0.999


def test_an_overstated_blanket_is_caught() -> None:
    (column,) = build_plan({"a": list("xyz")}, epsilon=1.0, n=400).columns
    epsilon = column.mechanism.epsilon
    boasting = replace(column, mechanism=_Boasting(3, 2 * epsilon))
    plan = replace(build_plan({"a": list("xyz")}, epsilon=1.0, n=400), columns=(boasting,))  # what it states suffices
    found = plan.verify()
    assert found.failures[0].startswith("column 'a' states a blanket mass of 0.999; its laws share 0.")
    assert found.failures[1].startswith("the total claims epsilon=1.0")
    assert found.proofs[0].blanket == pytest.approx(RandomizedResponse(3, 2 * epsilon).blanket)


@pytest.mark.parametrize(
    "mechanism",
    [BitFlip(169, 8, 6.0), BitFlip(20, None, 3.0), BitFlip(9, 6, 3.0), AsymmetricBitFlip(30, 4, 5.0)],
    ids=str,
)
def test_laws_of_sets_are_derived_from_their_integers(mechanism: Mechanism) -> None:
    proof = prove("a", mechanism)
    said = mechanism.column_loss
    assert not proof.failures
    assert proof.column_loss == proof.law == said.at(proof.column_loss.epsilon, proof.column_loss.blanket)
    assert proof.column_loss.epsilon == pytest.approx(said.epsilon, rel=1e-14)
    assert proof.column_loss.blanket == pytest.approx(said.blanket, rel=1e-14)
    assert prove("a", RandomizedResponse(3, 1.0)).law is None


@dataclass(frozen=True)
class _Finer(BitFlip):
    """A channel that states other factors than its items: less is lost by each."""

    @property
    def column_loss(self) -> ColumnLoss:
        return ItemsLoss(self.epsilon, super().column_loss.blanket, 4 * self.most)


@dataclass(frozen=True)
class _Shared(BitFlip):
    """A channel that states a larger blanket of its own law."""

    @property
    def column_loss(self) -> ColumnLoss:
        own = super().column_loss
        return own.at(own.epsilon, 0.99)


@pytest.mark.parametrize("kind", [_Finer, _Shared])
def test_an_overstated_law_of_sets_is_caught(kind: type[BitFlip]) -> None:
    items = [str(i) for i in range(30)]
    honest = build_plan({"a": Subset(items, max_size=3)}, epsilon=1.0, n=2_000)
    assert honest.verify().ok
    epsilon = 1.2 * honest.columns[0].mechanism.epsilon
    plan = replace(
        honest, columns=(replace(honest.columns[0], mechanism=kind(30, 3, epsilon)),)
    )  # what it states suffices
    found = plan.verify()
    assert found.failures[0].startswith("column 'a' states the law ItemsLoss(epsilon=")
    assert "to the accountant; its integers have ItemsLoss(epsilon=" in found.failures[0]
    assert found.failures[1].startswith("the total claims epsilon=1.0")


def test_a_sample_of_rows_with_deltas_of_their_own() -> None:
    """Composition within the row, the secret sample outside it."""
    ready = {"sex": RandomizedResponse(3, 0.5, 1e-7)}
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000, sample=1_000, mechanisms=ready)
    found = plan.verify()
    assert found.ok, found.failures
    row = sum(proof.epsilon for proof in found.proofs)
    assert row > 2
    assert found.epsilon == pytest.approx(math.log1p(math.expm1(row) / 10), rel=1e-12)
    assert found.delta == pytest.approx(1e-8)
    assert "1,000 of 10,000 rows chosen in secret" in found.checks[0]
    assert "the rows released were drawn uniformly, and the choice is secret" in found.attested


# --- certificates over the registry -------------------------------------------------------------------
@pytest.mark.walk(6)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("tag", sorted(MECHANISMS))
def test_every_mechanism_of_the_registry_has_a_certificate(tag: str, delta: float) -> None:
    plans = list(plans_with(tag, 2.0, delta))
    assert plans or (delta == 0 and MECHANISMS[tag].takes_delta)
    for plan in plans:
        (unit,) = plan.units
        assert unit.mechanism.tag == tag
        found = Plan.from_json(plan.to_json()).verify()
        assert found.ok, found.failures
        assert 0 < found.epsilon <= 2.0
        assert found.delta <= delta
        (proof,) = found.proofs
        assert proof.epsilon <= unit.certified.epsilon * (1 + 1e-12)
        assert not certify(plan, Budget(found.epsilon * (1 - 1e-9), delta)).ok
