"""Gaussian noise on rows of vectors and curves: its accounting beside other columns, its estimates, its refusals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import refused
from conftest import KEY
from scipy import special

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.channels import Process, VectorNoise, WithNull, mechanism_for
from dpframe.errors import ParameterError, PlanError
from dpframe.plan.build import build_plan
from dpframe.spaces import Boolean, Curve, Nullable, Vector
from dpframe.spaces.ball import Ball

KERNEL = {"name": "RBF", "length_scale": 1.5}
LOAD = Curve(range(24), 4.0, KERNEL, rank=16)
PAIR = {"load_curve": LOAD, "sex": ["F", "M"]}
GAUSSIAN = {"load_curve": "gaussian"}


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return dpf.datasets.make_census(3_000, columns=["sex", "load_curve"])


def normal_profile(mu: float, epsilon: np.ndarray) -> np.ndarray:
    """Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), of any sign of ε, in plain floats."""
    return special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu)


def true_delta(mu: float, responses: list[float], epsilon: float) -> float:
    """Return δ(ε) of a normal law moved by μ beside randomised response on two outcomes with these losses."""
    total = 0.0
    for signs in np.ndindex(*[2] * len(responses)):
        ratio = sum(e if not s else -e for e, s in zip(responses, signs, strict=True))
        mass = math.prod(
            math.exp(e) / (1 + math.exp(e)) if not s else 1 / (1 + math.exp(e))
            for e, s in zip(responses, signs, strict=True)
        )
        total += mass * float(normal_profile(mu, np.array(epsilon - ratio)))
    return total


@pytest.mark.walk(3)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"contributions": 2}, {"sample": 900}])
def test_a_plan_s_total_is_that_of_the_normal_law_beside_the_other_columns(epsilon: float, options: Any) -> None:
    """Never below what the ideal noise loses, and little above."""
    delta, k = 1e-6, options.get("contributions", 1)
    plan = build_plan({**PAIR, "ill": Boolean()}, epsilon=epsilon, delta=delta, n=3_000, mechanisms=GAUSSIAN, **options)
    inside = plan.terms.sampled_budget
    channel: Any = plan["load_curve"].mechanism
    mu = channel.ball.move / 2 / channel.sigma
    pure = [plan[name].mechanism.loss.epsilon() for name in ("sex", "ill")]
    lost = true_delta(mu, pure, inside.epsilon)
    assert 0.5 * inside.delta < lost <= inside.delta
    certificate = plan.verify()
    assert certificate.ok
    assert certificate.epsilon <= epsilon
    assert certificate.delta <= delta
    assert "the order of rows earns nothing" in str(certificate)
    assert k == 1 or inside.epsilon == epsilon / k
    assert dpf.Plan.from_json(plan.to_json()) == plan


def test_one_column_takes_the_whole_promise() -> None:
    for options in ({}, {"shuffle": False}):
        plan = build_plan({"load_curve": LOAD}, epsilon=1.0, delta=1e-6, n=1_000, mechanisms=GAUSSIAN, **options)
        mechanism = plan["load_curve"].mechanism
        assert (mechanism.epsilon, mechanism.delta) == (1.0, 1e-6)
        assert plan.local == plan.release
        assert ("earns no credit where rows have gaussian noise" in str(plan)) == plan.shuffle


@pytest.mark.parametrize("edit", ["epsilon", "delta", "room", "claim"])
def test_a_plan_that_claims_less_than_its_noise_is_refused(edit: str) -> None:
    plan = build_plan(PAIR, epsilon=1.0, delta=1e-6, n=1_000, mechanisms=GAUSSIAN)
    data = json.loads(plan.to_json())
    own = data["columns"][0]["mechanism"]
    if edit == "claim":
        data["epsilon"] = 0.9
    elif edit == "room":
        own["room"] = 8
    else:
        own[edit] = own[edit] * 1.2
    refused(PlanError, "the plan claims|room=8 is too small", lambda: dpf.Plan.from_json(json.dumps(data)))


@pytest.mark.parametrize("mechanisms", [{}, GAUSSIAN], ids=["vector", "process"])
@pytest.mark.parametrize("edit", [{"room": 64}, {"norm": "l1"}, {"length": 12, "bits": 8}])
def test_a_space_that_its_mechanism_reads_otherwise_is_refused(edit: dict[str, Any], mechanisms: Any) -> None:
    """As many bits, but other vectors: estimates would be of something else."""
    spaces = {"load": Vector(6, 1.0), "sex": ["F", "M"]}
    plan = build_plan(spaces, epsilon=1.0, delta=1e-6, n=1_000, mechanisms={"load": "gaussian"} if mechanisms else {})
    data = json.loads(plan.to_json())
    data["columns"][0]["space"] |= edit
    refused(PlanError, "another length, norm, bits or room|room=128", lambda: dpf.Plan.from_json(json.dumps(data)))


def test_the_step_is_a_function_of_the_budget_alone() -> None:
    """What inference gave of a space must not decide how much of the promise its noise takes."""
    steps = {Process(d, 16, norm, 256, 1.0, 1e-6).loss.step for d in (1, 24, 200) for norm in ("l1", "l2")}
    assert steps == {promise_step(Budget(1.0 * (1 - 1e-12), 1e-6))}


def test_a_flag_and_the_way_from_the_centre_come_to_the_claim() -> None:
    for epsilon, delta, room in ((0.5, 1e-9, 512), (1.0, 1e-6, 128), (6.0, 1e-3, 32)):
        noise = WithNull(Process, (24, 16, "l2", room), epsilon, delta)
        whole = promise_step(Budget(epsilon * (1 - 1e-12), delta))
        assert whole.mu * (1 - 1e-3) < noise.loss.step.mu <= whole.mu
        kept, flipped = noise.present
        assert 0.5 < kept < 1
        assert kept + flipped == 1


@pytest.mark.slow
@pytest.mark.parametrize("space", [LOAD, Nullable(Vector(24, 5.0))], ids=["curve", "nullable vector"])
def test_means_and_bands_cover(people, space) -> None:
    """Pointwise 95 % intervals over 24 points of 30 releases, and bands: by a fifth of their error at most."""
    frame = people.copy()
    if space.has_null:
        frame.loc[::5, "load_curve"] = None
    held = space.inner_space.decode(space.inner_space.encode(frame["load_curve"].dropna().tolist())).to_pylist()
    truth = np.array(held).mean(axis=0)
    plan = frame.dp.plan(
        epsilon=4, delta=1e-5, spaces={"load_curve": space, "sex": ["F", "M"]}, mechanisms=GAUSSIAN, measure=None
    )
    inside, bands, off = [], [], []
    for i in range(30):
        safe = frame.dp.sanitize(plan=plan, key=i.to_bytes(32, "big"))
        found = safe.dp.mean_curve("load_curve")
        inside.append(((found["lower"] <= truth) & (truth <= found["upper"])).mean())
        bands.append(bool(((found["band_lower"] <= truth) & (truth <= found["band_upper"])).all()))
        off.append(((found["estimate"] - truth) / found["std_error"]).to_numpy())
    assert 0.92 < np.mean(inside) < 0.98
    assert np.mean(bands) > 0.8
    assert abs(np.mean(off)) < 0.35
    stated = plan.forecast().loc[("mean curve", "load_curve"), "std_error"]
    assert stated == pytest.approx(found["std_error"].pow(2).mean() ** 0.5, rel=0.35 if space.has_null else 0.05)


def test_long_vectors_in_kept_order_have_less_noise_than_by_laplace() -> None:
    space = {"spectrum": Vector(400, 1.0)}
    plans = [
        build_plan(space, epsilon=1.0, delta=1e-6, n=1_000, shuffle=False, mechanisms=mechanisms)
        for mechanisms in ({}, {"spectrum": "gaussian"})
    ]
    laplace, gaussian = (float(plan.forecast().loc[("mean curve", "spectrum"), "std_error"]) for plan in plans)
    assert laplace / gaussian > 2.5


def test_room_leaves_values_and_measured_sums_what_they_are(people) -> None:
    """The same values on a coarser grid, and sums in the same unit to its rounding."""
    values = people["load_curve"].tolist()
    plain, wide = Vector(24, 5.0), Vector(24, 5.0, room=64)
    back = [np.array(space.decode(space.encode(values)).to_pylist()) for space in (plain, wide)]
    assert np.abs(back[0] - back[1]).max() < 2 * wide.step
    assert wide.step == pytest.approx(64 * plain.step, rel=1e-3)
    assert not wide.outside(back[1]).any()
    ends = wide.released.decode(wide.code_array([(1 << 24 * 16) - 1])).to_pylist()[0]
    assert ends[0] == pytest.approx(5.0 * 65_535 / 1_023)
    assert wide.released.encode([ends]).tolist() == [[2**64 - 1] * 6]
    assert wide.contains([1.0] * 24)
    assert not wide.contains([5.0] * 24)
    frame = people.assign(sex="F")
    measured = [
        frame.dp.sanitize(
            epsilon=2, delta=1e-5, spaces={**PAIR, "load_curve": space}, measure=["load_curve"], mechanisms=m, key=KEY
        ).dp.mean_curve("load_curve")
        for space, m in ((plain, {}), (plain, GAUSSIAN))
    ]
    assert [found.attrs["source"] for found in measured] == ["tables", "tables"]
    difference = (measured[0]["estimate"] - measured[1]["estimate"]).abs()
    assert (difference < 5 * (measured[0]["std_error"] + measured[1]["std_error"])).all()


def test_every_face_releases_the_same_rows(people, tmp_path) -> None:
    plan = people.dp.plan(epsilon=2, delta=1e-5, spaces=PAIR, mechanisms=GAUSSIAN)
    pq.write_table(pa.Table.from_pandas(people, preserve_index=False), tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY, batch_rows=700)
    safe = dpf.sanitize(people, plan=plan, key=KEY)
    assert pq.read_table(tmp_path / "out.parquet")["load_curve"].to_pylist() == safe["load_curve"].tolist()
    assert dpf.verify(tmp_path / "out.parquet").ok
    assert safe.dp.verify()


def test_nothing_is_measured_by_default_and_inference_is_composed(people) -> None:
    safe = people.dp.sanitize(epsilon=2, delta=1e-5, spaces={"load_curve": LOAD}, mechanisms=GAUSSIAN, key=KEY)
    plan = safe.dp.release.plan
    assert not plan.measures
    assert plan.inferred is not None
    assert plan.verify().ok
    capped = people.dp.plan(epsilon=2, delta=1e-5, spaces=PAIR, mechanisms=GAUSSIAN, local_epsilon=1.0)
    assert capped.local == Budget(1.0, 1e-5)
    assert capped["sex"].mechanism.epsilon < plan["sex"].mechanism.epsilon * 2
    assert capped.verify().ok
    assert capped.replan(5_000).verify().ok
    assert "secret order" not in plan.accounting_gains().index


def test_a_ready_mechanism_costs_what_it_is_certified_to_lose() -> None:
    spaces = {**PAIR, "load_curve": LOAD.with_room(256)}
    ready = Process(16, 16, "l2", 256, 0.5, 1e-7)
    plan = build_plan(spaces, epsilon=1.0, delta=1e-6, n=1_000, mechanisms={"load_curve": ready})
    assert plan["load_curve"].mechanism == ready
    assert plan["sex"].mechanism.epsilon > 0.3
    assert plan.verify().ok


def test_what_cannot_be_had_is_refused_with_the_remedy(people) -> None:
    def planned(**options: Any) -> Any:
        given = {"epsilon": 1.0, "delta": 1e-6, "spaces": PAIR, "mechanisms": GAUSSIAN, **options}
        return lambda: people.dp.plan(**given)

    coarse = {**PAIR, "load_curve": Vector(24, 5.0, bits=8)}
    roomy = {**PAIR, "load_curve": Vector(24, 5.0, room=8)}
    refused(ParameterError, "'load_curve': gaussian noise on vectors needs delta above 0; raise", planned(delta=0))
    refused(ParameterError, "bits=8 are too few for 24 .* with room=128; take 16", planned(spaces=coarse))
    refused(ParameterError, "epsilon is too small for gaussian noise on vectors", planned(epsilon=1e-3))
    refused(ParameterError, 'allocation="error" cannot weigh gaussian noise, .*; give', planned(allocation="error"))
    refused(ParameterError, "vector is for spaces without room; leave room", planned(spaces=roomy, mechanisms={}))
    for room in (0, 3, 8192, True, 2.0):
        refused(ParameterError, "room must be a power of two up to 4096; leave it out", lambda r=room: _vector(r))
    refused(ParameterError, "room=8 is too small for gaussian noise", lambda: Process(24, 16, "l2", 8, 1.0, 1e-6))
    refused(ParameterError, "the grid of 16 bits is too coarse", lambda: Process(4_000, 16, "l2", 128, 6.0, 1e-3))
    refused(ParameterError, "too few for 4096 .* room=1024; raise", lambda: Process(4_096, 16, "l2", 1024, 1.0, 1e-6))
    refused(ParameterError, "too long to write out", lambda: Process(24, 16, "l2", 128, 1.0, 1e-6).weights(0))


def _vector(room: Any) -> Vector:
    return Vector(24, 5.0, room=room)


def test_names(people) -> None:
    for name in ("gaussian", "process"):
        plan = people.dp.plan(epsilon=1, delta=1e-6, spaces=PAIR, mechanisms={"load_curve": name})
        assert plan["load_curve"].mechanism.tag == "process"
        null = {**PAIR, "load_curve": Nullable(LOAD)}
        plan = people.dp.plan(epsilon=1, delta=1e-6, spaces=null, mechanisms={"load_curve": name})
        assert plan["load_curve"].mechanism.tag == "nullable_process"
    assert isinstance(mechanism_for(Vector(24, 5.0), 1.0, 0.0), VectorNoise)


def test_a_larger_plan_keeps_its_room_and_a_smaller_budget_gets_more() -> None:
    plan = build_plan(PAIR, epsilon=1.0, delta=1e-6, n=1_000, mechanisms=GAUSSIAN)
    first: Any = plan["load_curve"]
    assert plan.replan(100_000)["load_curve"] == first
    weaker: Any = first.remade(first.mechanism.epsilon / 8, 0.0)
    assert weaker.mechanism.delta == first.mechanism.delta
    assert weaker.space.room > first.space.room
    assert (Ball(16, 16, "l2", weaker.space.room).last - weaker.space.ball.radius) / 2 >= 6 * weaker.mechanism.sigma
