"""Plans whose promise rests on a secret order or sample, beside the exact divergence of what they release.

The released rows of a shuffled table are a multiset: their counts are all there is to see, so that the optimal attack
is the likelihood ratio of the counts and δ(ε) the hockey-stick divergence of their laws. Both are computed here without
sampling where the counts can be enumerated, from the plan's own channels (`transition`). ``pytest -s`` prints the gaps.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from decimal import Context, Decimal, localcontext

import numpy as np
import pandas as pd
import pytest
from exact_laws import counts_law
from least_epsilon import shuffled_epsilon
from scipy import stats
from test_shuffle import binomial_reference

import dpframe as dpf
from dpframe.accounting.composition import row_law
from dpframe.channels import RandomizedResponse
from dpframe.plan.build import build_plan
from dpframe.release.rows import release

KEY = bytes(range(32))

SPACES = {
    "response 2": {"a": ["x", "y"]},
    "response 3": {"a": ["x", "y", "z"]},
    "grid 3": {"a": (0, 2)},
    "grid 4": {"a": (0, 3)},
    "2 x 2": {"a": ["x", "y"], "b": ["x", "y"]},
    "2 x grid 2": {"a": ["x", "y"], "b": (0, 1)},
}


def plan_of(spaces, **options):
    """A plan for few rows; that its δ is above 1/n is the point here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpf.DpframeWarning)
        return build_plan(spaces, **options)


def channel_of(plan):
    """P(row released | row) over the product of the columns; rows are inputs."""
    channel = np.ones((1, 1))
    for column in plan.columns:
        channel = np.kron(channel, column.mechanism.transition().T)
    return channel


def divergence(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def law_of(channel, table, sample=None):
    """Law of the released counts of a table of codes, after sampling if asked."""
    if sample is None:
        return counts_law([channel[x] for x in table])
    chosen = list(itertools.combinations(table, sample))
    return sum(counts_law([channel[x] for x in rows]) for rows in chosen) / len(chosen)


def worst_divergence(channel, n, epsilon, changed=1, sample=None):
    """Greatest divergence over all pairs of tables of n rows that differ in ``changed`` rows."""
    inputs, worst = range(len(channel)), 0.0
    for others in itertools.combinations_with_replacement(inputs, n - changed):
        laws = [
            law_of(channel, (*others, *own), sample) for own in itertools.combinations_with_replacement(inputs, changed)
        ]
        for p, q in itertools.permutations(laws, 2):
            worst = max(worst, divergence(p, q, epsilon))
    return worst


CASES = [
    ("response 2", 12, 0.3, 0.05),
    ("response 2", 12, 2.0, 0.01),
    ("response 3", 10, 0.5, 0.1),
    ("response 3", 8, 1.0, 0.02),
    ("grid 3", 10, 0.3, 0.2),
    ("grid 4", 7, 1.0, 0.05),
    ("2 x 2", 8, 0.5, 0.1),
    ("2 x 2", 6, 1.5, 0.02),
    ("2 x grid 2", 7, 0.3, 0.2),
]


@pytest.mark.parametrize(("name", "n", "epsilon", "delta"), CASES)
def test_no_pair_of_neighbours_exceeds_the_claim(name, n, epsilon, delta):
    plan = plan_of(SPACES[name], epsilon=epsilon, delta=delta, n=n)
    assert plan.local_sum.epsilon > epsilon
    exact = worst_divergence(channel_of(plan), n, epsilon)
    print(f"{name}, n={n}, epsilon={epsilon}: claim {delta}, exact {exact:.5f}, gap {1 - exact / delta:.1%}")
    assert 0 < exact <= delta


def test_three_categories_use_nearly_all_of_the_claim():
    for n, epsilon, delta in ((10, 0.5, 0.1), (20, 0.3, 0.05)):
        plan = plan_of(SPACES["response 3"], epsilon=epsilon, delta=delta, n=n)
        assert worst_divergence(channel_of(plan), n, epsilon) >= 0.95 * delta


@pytest.mark.parametrize(
    ("name", "n", "m", "epsilon", "delta"),
    [
        ("response 2", 8, 4, 0.3, 0.05),
        ("response 3", 6, 3, 0.5, 0.02),
        ("grid 3", 7, 2, 0.4, 0.05),
        ("2 x 2", 6, 4, 0.5, 0.1),
    ],
)
def test_nor_does_a_secret_sample(name, n, m, epsilon, delta):
    plan = plan_of(SPACES[name], epsilon=epsilon, delta=delta, n=n, sample=m)
    exact = worst_divergence(channel_of(plan), n, epsilon, sample=m)
    print(f"{name}, {m} of {n}, epsilon={epsilon}: claim {delta}, exact {exact:.5f}, gap {1 - exact / delta:.1%}")
    assert 0 < exact <= delta
    whole = plan_of(SPACES[name], epsilon=epsilon, delta=delta, n=m)
    assert plan.local_sum.epsilon > whole.local_sum.epsilon


@pytest.mark.parametrize(
    ("name", "n", "epsilon", "delta"),
    [("response 2", 10, 1.0, 0.1), ("response 3", 7, 0.6, 0.1), ("grid 3", 7, 1.0, 0.2), ("2 x 2", 5, 1.0, 0.1)],
)
def test_nor_do_people_with_two_rows(name, n, epsilon, delta):
    plan = plan_of(SPACES[name], epsilon=epsilon, delta=delta, n=n, contributions=2)
    exact = worst_divergence(channel_of(plan), n, epsilon, changed=2)
    print(f"{name}, n={n}, two rows, epsilon={epsilon}: claim {delta}, exact {exact:.5f}, gap {1 - exact / delta:.1%}")
    assert 0 < exact <= delta
    single = plan_of(SPACES[name], epsilon=epsilon, delta=delta, n=n)
    assert worst_divergence(channel_of(single), n, epsilon, changed=2) > delta


# Audits of whole releases: 50 rows, all but one of them alike, and the attacker knows them and the two candidates for
# the last. With the others' law P₀ the likelihood ratio of the counts h is Σ_y h_y·P_x(y)/P₀(y) ÷ the same for x', for
# any number of outputs, and no attack beats its threshold at e^ε.
ROWS = 50
LEVEL = 1e-6
"""Error probability of each confidence bound."""

AUDITED = {
    "response 3": ({"a": ["x", "y", "z"]}, (0, 1, 2)),
    "grid 4": ({"a": (0, 3)}, (0, 0, 3)),
    "3 x grid 3": ({"a": ["x", "y", "z"], "b": (0, 2)}, (4, 0, 8)),
}


def exact_attack(channel, others, x, x_other, epsilon):
    """Hockey-stick divergence for n = 50 and these rows, all counts enumerated."""
    p, q = (counts_law([channel[others]] * (ROWS - 1) + [channel[row]]) for row in (x, x_other))
    return divergence(p, q, epsilon)


def released_cells(plan, rows, times, key):
    """Released rows, as cells of the joint, of many releases of the same few rows, by the library's own loop."""
    sizes = [column.space.size for column in plan.columns]
    codes = (np.tile(column.astype(np.int16), times) for column in np.unravel_index(rows, sizes))
    cells = np.zeros(len(rows) * times, dtype=np.int16)
    for size, column in zip(sizes, release(dict(zip(plan.names, codes, strict=True)), plan, key).values(), strict=True):
        cells = cells * np.int16(size) + column
    return cells.reshape(times, -1)


def measured_attack(plan, others, x, x_other, epsilon, times):
    """Lower bound (Clopper–Pearson) and estimate of P(A) − e^ε·P'(A), A the optimal attack's set."""
    channel = channel_of(plan)
    gain = (channel[x] - math.exp(epsilon) * channel[x_other]) / channel[others]
    hits = []
    for position, row in enumerate((x, x_other)):
        rows = np.array([others] * (ROWS - 1) + [row])
        key = bytes([position]) * 32
        hits.append(int((gain[released_cells(plan, rows, times, key)].sum(axis=1) > 0).sum()))
    low = stats.beta.ppf(LEVEL, hits[0], times - hits[0] + 1) if hits[0] else 0.0
    high = stats.beta.ppf(1 - LEVEL, hits[1] + 1, times - hits[1])
    return low - math.exp(epsilon) * high, (hits[0] - math.exp(epsilon) * hits[1]) / times


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITED)
def test_audit_of_whole_releases(name):
    """2·10⁵ releases on each of two neighbours; each lower bound on δ is wrong with probability at most 2e-6. Keys are
    fixed, so that no run differs from another."""
    spaces, (others, x, x_other) = AUDITED[name]
    epsilon, delta, times = 0.5, 1e-2, 200_000
    honest = plan_of(spaces, epsilon=epsilon, delta=delta, n=ROWS)
    overstated = plan_of(spaces, epsilon=epsilon, delta=delta, n=10 * ROWS)
    low, point = measured_attack(honest, others, x, x_other, epsilon, times)
    caught, _ = measured_attack(overstated, others, x, x_other, epsilon, times)
    print(
        f"{name}: claim {delta}, measured {point:.5f} (at least {low:.5f}); n overstated tenfold: at least {caught:.5f}"
    )
    assert low <= delta < caught
    if honest.columns[0].space.size ** len(honest.columns) <= 4:
        exact = exact_attack(channel_of(honest), others, x, x_other, epsilon)
        print(
            f"  exact {exact:.5f}, overstated {exact_attack(channel_of(overstated), others, x, x_other, epsilon):.5f}"
        )
        assert low <= exact <= delta
        assert point == pytest.approx(exact, abs=5 * math.exp(epsilon) / math.sqrt(times))


def test_audit_by_enumeration_over_the_other_rows():
    """n = 50 exactly, the other rows mixed in many ways: the claim holds, and is nearly used up."""
    epsilon, delta = 0.5, 1e-2
    plans = [plan_of(SPACES["response 3"], epsilon=epsilon, delta=delta, n=n) for n in (ROWS, 10 * ROWS)]
    found = []
    for plan in plans:
        channel = channel_of(plan)
        worst = 0.0
        for first, second in [(49, 0), (25, 24), (0, 49), (24, 0), (0, 0), (17, 16), (40, 5), (5, 4)]:
            others = [0] * first + [1] * second + [2] * (ROWS - 1 - first - second)
            p, q = (counts_law([channel[row] for row in [*others, own]]) for own in (0, 1))
            worst = max(worst, divergence(p, q, epsilon))
        found.append(worst)
    print(f"exact at n = {ROWS}: {found[0]:.5f}, of a plan for {10 * ROWS} rows {found[1]:.5f}; claim {delta}")
    assert 0.8 * delta < found[0] <= delta
    assert found[1] > 3 * delta


def test_a_plan_for_more_rows_is_refused_before_anything_is_drawn():
    plan = plan_of({"a": ["x", "y", "z"]}, epsilon=0.5, delta=1e-2, n=10 * ROWS)
    frame = pd.DataFrame({"a": ["x", "y"] * (ROWS // 2)})
    with pytest.raises(dpf.errors.PlanError, match=r"made for 500 rows.*table has 50:.*plan\.replan\(50\)"):
        dpf.sanitize(frame, plan=plan)
    assert len(dpf.sanitize(frame, plan=plan.replan(ROWS))) == ROWS


@pytest.mark.slow
def test_the_released_order_tells_nothing_of_the_input_order():
    """Without it the claim is void: the row that differs is first, and a position test would find it.

    Of 400 releases the first row's own release lands in each half about 200 times; ±80 is 8σ (error 1e-15).
    """
    plan = plan_of({"a": list(range(60))}, epsilon=12.0, delta=1e-2, n=ROWS)
    frame = pd.DataFrame({"a": np.arange(ROWS)})
    firsts = kept = 0
    for i in range(400):
        out = dpf.sanitize(frame, plan=plan, key=i.to_bytes(32, "big"))["a"].to_numpy()
        where = np.flatnonzero(out == 0)
        if len(where) == 1:
            kept += 1
            firsts += int(where[0]) < ROWS // 2
    assert kept > 350
    assert abs(firsts - kept / 2) < 80


# Small δ, large n.


def normal_limit(parts, n, delta):
    """ε of a normal sum with T's variance at ε = 0: δ = σ·φ(ε/σ) − ε·Φ(−ε/σ)."""
    law = row_law(tuple(parts))
    sigma = math.sqrt(float(law.mass @ (law.a - law.b) ** 2) / n)
    low, high = 1.0, 12.0
    for _ in range(60):
        z = (low + high) / 2
        mean = sigma * (stats.norm.pdf(z) - z * stats.norm.sf(z))
        low, high = (z, high) if mean > delta else (low, z)
    return sigma * high


@pytest.mark.parametrize("n", [10**6, 10**8])
def test_a_delta_of_1e_12_is_resolved_in_a_plan(n):
    spaces = {"a": ["x", "y", "z"], "b": (0, 100), "c": dpf.Nullable(dpf.Integer(0, 10)), "d": ["x", "y"]}
    found = {d: build_plan(spaces, epsilon=0.5, delta=d, n=n) for d in (1e-9, 1e-12)}
    losses = [plan.local_sum.epsilon for plan in found.values()]
    for delta, plan in found.items():
        used = plan.terms.delta_of(plan.units)
        print(
            f"n={n}, delta={delta}: a row's columns {plan.local_sum.epsilon:.4f}, cost {used.value:.6g} {used.method}"
        )
        assert 0.98 * delta <= used.value <= delta
        assert used.method == "blanket"
        parts = [unit.column_loss for unit in plan.units]
        assert shuffled_epsilon(parts, n, delta) == pytest.approx(0.5, rel=2e-3)
        if math.exp(sum(part.epsilon for part in parts)) < n / 1e4:  # elsewhere the sum is far from normal
            assert normal_limit(parts, n, delta) == pytest.approx(0.5, rel=0.1)
    assert losses == sorted(losses, reverse=True)


def binomial_delta(k, other, n, epsilon):
    """The blanket bound for randomised response on k outcomes by three nested binomial sums, in log space.

    Of n rows M ~ Bin(n, γ) are blanket draws, uniform over k; D of them hit the two candidates, D ~ Bin(M, 2/k), and
    H of these the first. With A = E on the one and 1 elsewhere, ΣT = (E−1)(H − e^ε(D−H)) + (1−e^ε)·M.
    """
    factor, ratio = math.exp(epsilon), (1 - (k - 1) * other) / other
    total, gamma = 0.0, k * other
    wide = 12 * math.sqrt(n * gamma * (1 - gamma))
    for m in range(max(1, int(n * gamma - wide)), min(n, int(n * gamma + wide)) + 1):
        mass = stats.binom.pmf(m, n, gamma)
        d = np.arange(m + 1)
        if m > 400:
            middle, spread = m * 2 / k, 12 * math.sqrt(m * 2 / k * (1 - 2 / k))
            d = np.arange(max(0, int(middle - spread)), min(m, int(middle + spread)) + 1)
        slope, shift = (ratio - 1) * (1 + factor), (1 - factor) * m - (ratio - 1) * factor * d
        least = np.floor(-shift / slope)  # H above it counts
        mean = slope * d / 2 * stats.binom.sf(least - 1, np.maximum(d - 1, 0), 0.5) + shift * stats.binom.sf(
            least, d, 0.5
        )
        total += mass * float(stats.binom.pmf(d, m, 2 / k) @ mean)
    return total / n


@pytest.mark.parametrize(("k", "n", "delta"), [(3, 2_000, 1e-12), (5, 1_000, 1e-9)])
def test_the_cost_of_a_plan_beside_binomial_sums(k, n, delta):
    plan = build_plan({"a": [str(i) for i in range(k)]}, epsilon=0.5, delta=delta, n=n)
    reference = binomial_delta(k, plan["a"].mechanism.other, n, 0.5)
    cost = plan.terms.delta_of(plan.units).value
    print(f"k={k}, n={n}: reference {reference:.6e}, the plan's cost {cost:.6e}")
    assert reference * (1 - 1e-6) <= cost <= 1.01 * reference


@pytest.mark.parametrize(("n", "epsilon"), [(10**6, 0.1), (10**8, 0.01)])
def test_a_delta_of_1e_12_in_a_plan_beside_binomial_sums(n, epsilon):
    plan = build_plan({"a": ["x", "y"]}, epsilon=epsilon, delta=1e-12, n=n)
    part = plan.units[0].column_loss
    # At γ = 2/(1 + e^ε₀), from the integers that are sampled.
    reference = binomial_reference(part.epsilon, n, epsilon)
    cost = plan.terms.delta_of(plan.units).value
    print(f"n={n}, epsilon={epsilon}: loss {part.epsilon:.5f}, reference {reference:.6e}, the plan's cost {cost:.6e}")
    assert reference * (1 - 1e-6) <= cost <= 1.01 * reference


def decimal_delta(threshold, total, n, epsilon):
    """The same for two outcomes in 50 digits, every term of it: the weights are the integers that are sampled."""
    with localcontext(Context(prec=50)):
        rate, ratio = Decimal(2 * threshold) / total, Decimal(total - threshold) / threshold
        factor, mean = Decimal(epsilon).exp(), Decimal(0)
        up, down = ratio - factor, 1 - factor * ratio
        for m in range(1, n + 1):
            weight = math.comb(n, m) * (rate / 2) ** m * (1 - rate) ** (n - m)
            for h in range(m, 0, -1):
                sum_of_t = h * up + (m - h) * down
                if sum_of_t <= 0:
                    break
                mean += weight * math.comb(m, h) * sum_of_t
        return mean / n


@pytest.mark.parametrize("delta", [1e-9, 1e-12])
def test_the_cost_of_a_plan_in_fifty_digits(delta):
    plan = build_plan({"a": ["x", "y"]}, epsilon=0.5, delta=delta, n=400)
    (weights, total), cost = plan["a"].mechanism.weights(0), plan.terms.delta_of(plan.units).value
    reference = decimal_delta(weights[1], total, 400, 0.5)
    print(f"n=400: exact bound {reference:.9e}, the plan's cost {cost:.9e}")
    assert reference <= Decimal(cost) <= reference * Decimal("1.01")


# The plans use what they may.


def test_what_is_given_ready_may_leave_nothing():
    with pytest.raises(dpf.ParameterError, match=r"given ready spend epsilon=3, .*leave nothing"):
        build_plan(
            {"a": ["x", "y"], "b": ["x", "y"]},
            epsilon=0.1,
            delta=1e-6,
            n=50,
            mechanisms={"a": RandomizedResponse(2, 3.0)},
        )


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"sample": 700}, {"contributions": 3}, {"n": 8}])
def test_a_thousandth_more_would_break_the_claim(options):
    spaces = {"a": ["x", "y", "z"], "b": (0, 100), "c": dpf.Nullable(dpf.Integer(0, 10)), "d": ["x", "y"]}
    plan = plan_of(spaces, epsilon=1.0, delta=1e-5, **({"n": 5_000} | options))
    more = [unit.remade(unit.mechanism.epsilon * 1.001, 0.0) for unit in plan.units]
    assert plan.terms.allow(plan.units)
    assert not plan.terms.allow(more)


def test_ready_mechanisms_and_unequal_shares_leave_nothing_either():
    plan = build_plan(
        {"a": ["x", "y"], "b": (0, 100), "c": dpf.Real(0, 1)},
        epsilon=1.0,
        delta=1e-6,
        n=20_000,
        allocation={"b": 0.8, "c": 0.2},
        mechanisms={"a": RandomizedResponse(2, 1.0)},
    )
    assert plan["b"].mechanism.epsilon == pytest.approx(4 * plan["c"].mechanism.epsilon)
    more = [plan["a"], *(plan[name].remade(plan[name].mechanism.epsilon * 1.001, 0.0) for name in "bc")]
    assert plan.terms.allow(plan.units)
    assert not plan.terms.allow(more)


# The table of errors at ε = 0.1 to 4: forecast and, on Adult and a census, what releases come to.
# ``DPFRAME_TABLE=1 pytest -n 0 -s -k table tests/accounting/test_amplification.py`` prints all of it;
# the default is a corner.
TABLE = bool(os.environ.get("DPFRAME_TABLE"))
KEYS = 20 if TABLE else 3
CATEGORICAL = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex"]
CATEGORICAL += ["native_country", "income"]
ACCOUNTINGS = {
    "basic": {"delta": 0.0},
    "optimal composition": {"delta": 1e-6, "shuffle": False},
    "secret order": {"delta": 1e-6},
}


def coded(frame):
    """Codes of every column, nulls as a category, and spaces of as many."""
    codes = {name: pd.factorize(frame[name], use_na_sentinel=False)[0].astype(np.int16) for name in frame}
    return codes, {name: [str(i) for i in range(int(column.max()) + 1)] for name, column in codes.items()}


def forecast_and_found(codes, spaces, epsilon, options):
    """Standard error of each column's marginal: forecast at the true shares, and the releases' own."""
    n = len(next(iter(codes.values())))
    plan = plan_of(spaces, epsilon=epsilon, n=n, **options)
    shares = {name: np.bincount(column, minlength=len(spaces[name])) / n for name, column in codes.items()}
    forecast = plan.forecast(types=shares).loc["marginal", "std_error"].to_numpy()
    squares = np.zeros(len(plan.columns))
    for i in range(KEYS):
        out = release(codes, plan, (i + 1).to_bytes(32, "big"))
        for position, column in enumerate(plan.columns):
            counts = np.bincount(out[column.name], minlength=column.space.size).astype(float)
            estimate = column.mechanism.invert(counts) / n
            squares[position] += float(((estimate - shares[column.name]) ** 2).mean()) / KEYS
    return forecast, np.sqrt(squares)


def check_table(codes, spaces, title):
    """Forecasts beside what was found, averaged over columns, by ε and accounting.

    The k cells of a marginal have k − 1 degrees of freedom, so that the root mean square over some keys deviates by
    1/√(2·keys·(k−1)); the average over columns may by six times as much (error probability about 1e-8).
    """
    found = {}
    freedom = np.array([len(values) - 1 for values in spaces.values()])
    for epsilon in (0.1, 0.25, 0.5, 1.0, 2.0, 4.0) if TABLE else (1.0,):
        for name, options in ACCOUNTINGS.items():
            forecast, errors = forecast_and_found(codes, spaces, epsilon, options)
            found[epsilon, name] = forecast.mean()
            print(f"{title}, epsilon={epsilon}: {name:20} forecast {forecast.mean():.5f}, found {errors.mean():.5f}")
            deviation = math.sqrt((forecast**2 / (2 * KEYS * freedom)).sum()) / len(forecast)
            assert errors.mean() == pytest.approx(forecast.mean(), abs=6 * deviation)
    return found


@pytest.mark.slow
def test_table_of_adult(adult):
    found = check_table(*coded(adult[CATEGORICAL]), "Adult")
    assert found[1.0, "basic"] == pytest.approx(0.136, rel=0.01)
    assert found[1.0, "optimal composition"] == pytest.approx(0.103, rel=0.01)
    assert found[1.0, "secret order"] == pytest.approx(0.0083, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "design"), [(32_561, (0.136, 0.103, 0.0083)), (10**6, (0.0245, 0.0187, 0.0010))])
def test_table_of_nine_columns_of_the_design(n, design):
    spaces = {f"c{k}": [str(i) for i in range(k)] for k in (9, 16, 7, 15, 6, 5, 42)} | {c: ["0", "1"] for c in "st"}
    for (name, options), figure in zip(ACCOUNTINGS.items(), design, strict=True):
        plan = build_plan(spaces, epsilon=1.0, n=n, **options)
        assert plan.forecast().loc["marginal", "std_error"].mean() == pytest.approx(figure, rel=0.01), name


@pytest.mark.skipif(not TABLE, reason="DPFRAME_TABLE=1 prints the table, in minutes")
def test_table_of_a_census():
    frame = dpf.datasets.make_census(1_000_000, columns=["sex", "education", "occupation", "region"])
    check_table(*coded(frame), "census")
