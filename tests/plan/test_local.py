"""What each row loses on its own, its share in what inference counted included: one number on every face."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import refused
from pages import visible

import dpframe as dpf
from dpframe import Boolean, Budget, Nullable, Plan
from dpframe.accounting import composed_epsilon
from dpframe.accounting.budget import compose, upward
from dpframe.channels import Geometric, RandomizedResponse
from dpframe.cli import main
from dpframe.errors import ParameterError, PlanError
from dpframe.inference.column import Presence
from dpframe.inference.cost import spend
from dpframe.plan.build import build_plan
from dpframe.plan.measures import Measure
from dpframe.spaces.field import Field

ROWS = 50
VALUES = (False, True, None)

pytestmark = pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")


def flags(rows=ROWS):
    """A boolean column that may hold nulls, and holds none."""
    return pd.DataFrame({"flag": pd.array(np.arange(rows) % 2 == 0, dtype="boolean")})


def row_and_count(plan, noise):
    """Every law of (released row, noisy count of nulls) by the row's value, the other rows holding no null.

    The space depends on the count: rows are released by the plan that the count leads to, as (plan, law).
    """
    reach = max(noise)
    counts = np.arange(-reach, reach + 2)
    law = np.array([noise.get(int(z), 0) for z in counts]) / (1 << 128)
    above = counts > 3 * math.sqrt(plan.inferred.measured[0].variance)
    options = {"epsilon": plan.epsilon, "delta": plan.delta, "n": plan.n, "inferred": plan.inferred}
    for space, reached in ((Boolean(), ~above), (Nullable(Boolean()), above)):
        made = build_plan({"flag": space}, **options)
        channel = made["flag"].mechanism.transition()
        laws = {}
        for value in VALUES:
            (code,) = space.encode(pa.array([value], pa.bool_()), nulls="impute")
            shifted = np.roll(law, 1) if value is None else law
            laws[value] = np.outer(channel[:, int(code)], shifted[reached])
        yield made, laws


def of_the_rows(plan):
    """What a plan's columns lose together, without what inference counted."""
    delta = plan.delta - (plan.inferred.budget.delta if plan.inferred else 0.0)
    return Budget(composed_epsilon([unit.column_loss for unit in plan.units], delta), delta)


def test_row_and_counts_together_keep_the_local_promise():
    """Exact: n = 50, one boolean column at defaults, all pairs of values of a row, everything that leaves of it."""
    plan = dpf.plan(flags(), 1.0)
    assert plan["flag"].space == Boolean()
    (noise,) = spend(plan.inferred.step, Presence(Field("flag", pa.bool_(), True), Boolean()).histograms, ROWS).noises
    assert noise.variance == plan.inferred.measured[0].variance
    found = list(row_and_count(plan, noise.table.weights()))
    rows_alone = [of_the_rows(made).epsilon for made, _ in found]

    def escape(epsilons):
        return max(
            sum(
                np.maximum(laws[a] - math.exp(epsilon) * laws[b], 0).sum()
                for (_, laws), epsilon in zip(found, epsilons, strict=True)
            )
            for a, b in itertools.permutations(VALUES, 2)
        )

    assert escape([made.local.epsilon for made, _ in found]) <= plan.local.delta == plan.delta
    # Of the rows alone, the number is far from true.
    assert escape(rows_alone) > 1e-3


def test_local_adds_what_inference_spent():
    plan = dpf.plan(flags(), 1.0, measure=None)
    assert plan.inferred.budget.delta == plan.delta / 2
    assert plan.local == compose([of_the_rows(plan), plan.inferred.budget])
    assert plan.local.epsilon > plan.local_sum.epsilon
    assert plan.local.delta == plan.delta
    kept = dpf.plan(flags(), 1.0, shuffle=False)
    assert kept.inferred is not None
    assert kept.local == kept.release
    declared = dpf.plan(flags(), 1.0, measure=None, spaces={"flag": Boolean()})
    assert declared.inferred is None
    assert declared.local == of_the_rows(declared)


def test_delta_that_ready_channels_spend_adds_up_with_that_of_inference():
    spaces = dpf.plan(flags(), 1.0)
    plan = build_plan(
        {"flag": Boolean(), "own": (0, 9)},
        epsilon=1.0,
        delta=1e-4,
        n=1_000,
        inferred=spaces.inferred,
        mechanisms={"own": Geometric(9, 0.1, 1e-6)},
    )
    assert plan.local == compose([plan.local_sum, plan.inferred.budget])
    assert plan.local.delta >= 1.1e-6


def printed(capsys, *arguments):
    """What a command prints."""
    with pytest.raises(SystemExit) as stopped:
        main.main([str(argument) for argument in arguments])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_every_face_states_the_same_number(tmp_path, capsys):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    flags(2_000).to_parquet(source, index=False)
    said = printed(capsys, "sanitize", source, target, "--epsilon", "1")
    safe = dpf.read(target)
    plan = safe.dp.release.plan
    assert plan.inferred is not None
    stated = plan.local.stated()
    assert stated == f"epsilon={upward(plan.local.epsilon)}, delta={plan.local.delta:g}"
    line = f"Local: {stated}, each row, even against someone who knows which output row it became"
    detailed = (safe.dp.explain()._repr_html_(), str(safe.dp.report()), printed(capsys, "inspect", target, "--explain"))
    for text in ("\n".join(plan.lines()), str(plan), str(safe.dp.explain()), *detailed):
        assert line in text
    first = f"epsilon={upward(plan.local.epsilon)} against someone who knows which row is theirs"
    for text in (said, repr(safe.dp), safe.dp._repr_html_(), printed(capsys, "inspect", target)):
        assert first in text
    assert stated in printed(capsys, "verify", target)
    words = visible(safe.dp.report().to_html())
    assert f"ε = {upward(plan.local.epsilon)} " in words
    assert f"local: {stated} of each row" in words
    for certificate in (plan.verify(), dpf.verify(target)):
        assert certificate.local == plan.local
        assert f"local: {stated} of each row" in str(certificate)
        assert json.loads(certificate.to_json())["local"] == {
            "epsilon": plan.local.epsilon,
            "delta": plan.local.delta,
        }


def test_what_is_not_proved_states_no_local_number():
    plan = dpf.plan(flags(), 1.0)
    data = json.loads(plan.to_json())
    data["inferred"]["measured"][0]["variance"] = 1.0
    certificate = dpf.Plan.from_json(json.dumps(data)).verify()
    assert not certificate.ok
    assert certificate.local is None
    assert "local:" not in str(certificate)
    assert json.loads(certificate.to_json())["local"] is None


@pytest.mark.parametrize("ready", [{"epsilon": 3.0, "delta": 0.0}, {"epsilon": 3.0, "delta": 1e-7}])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_cap_holds_for_mechanisms_that_are_given_ready(ready, delta, shuffle):
    """At δ = 0, and beside a channel with a δ of its own, in either order."""
    if ready["delta"] and not delta:
        return
    given = {"sex": RandomizedResponse(2, **ready)}
    options = {"delta": delta, "n": 1_000, "shuffle": shuffle, "mechanisms": given}
    kept = build_plan({"sex": ["F", "M"]}, epsilon=4.0, local_epsilon=3.2, **options)
    assert kept.local.epsilon <= 3.2
    capped = partial(build_plan, {"sex": ["F", "M"]}, epsilon=4.0, local_epsilon=1.0, **options)
    refused(PlanError, "the plan claims", capped)
    data = json.loads(build_plan({"sex": ["F", "M"]}, epsilon=4.0, **options).to_json())
    text = json.dumps({**data, "schema": json.loads(kept.to_json())["schema"], "local_epsilon": 1.0})
    refused(PlanError, "the plan claims", lambda: Plan.from_json(text))


def test_a_slack_is_part_of_what_a_capped_row_may_lose():
    """Beside measured tables a channel that fails with 8e-7 does not fit a row whose δ is 5e-7."""
    spaces = {"sex": ["F", "M"], "ill": [True, False]}
    measures = (Measure("one_way", ("ill",), 40_000.0),)
    ready = {"sex": RandomizedResponse(2, 0.5, 8e-7)}
    options = {"epsilon": 4.0, "delta": 1e-6, "n": 1_000, "shuffle": False, "measures": measures, "mechanisms": ready}
    assert build_plan(spaces, **options).verify().ok
    with pytest.raises(ParameterError, match="too small"):
        build_plan(spaces, local_epsilon=2.0, **options)
