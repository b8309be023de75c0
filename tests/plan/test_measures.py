"""What a plan measures beside the rows: what it costs, what is refused, and what the certificate makes of it."""

import json
import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from exact_laws import tables_law

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, composed_steps, largest_step, step_delta
from dpframe.errors import DpframeWarning, ParameterError, PlanError
from dpframe.inference.inferred import Inferred
from dpframe.noise.gaussian import gaussian_table
from dpframe.plan import build, data
from dpframe.plan.build import build_plan
from dpframe.plan.measures import OF_SETS, Measure, measures_step
from dpframe.plan.measuring import Workload
from dpframe.plan.plan import Plan
from dpframe.plan.steps import terms_of
from dpframe.spaces import Categorical, Integer, Nullable, Subset

SPACES = {
    "sex": Categorical(["F", "M"]),
    "home": Nullable(Categorical(["own", "let", "free"])),
    "age": Integer(0, 99),
    "tags": Subset(list("abcdefgh"), 3),
}
PROMISE = Budget(1.0, 1e-6)


@cache
def auto_measures():
    return Workload("auto").measures(SPACES, PROMISE, None, 10_000, 1)


@cache
def auto_plan():
    return build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000, measures=auto_measures())


def test_by_default_all_pairs_and_what_numbers_and_sets_have_of_their_own():
    found = {(m.kind, m.columns) for m in auto_measures()}
    assert found == {
        ("one_way", ("age",)),
        ("sum", ("age",)),
        ("items", ("tags",)),
        ("sizes", ("tags",)),
        ("item_pairs", ("tags",)),
        ("joint", ("sex", "home")),
        ("joint", ("sex", "age")),
        ("joint", ("home", "age")),
        ("one_way", ("sex",)),
        ("one_way", ("home",)),
        ("joint", ("sex", "home", "age")),
    }
    # Where numbers have cells in pairs, all pairs have the same noise.
    assert len({m.sigma2 for m in auto_measures() if m.kind == "joint" and len(m.columns) == 2}) == 1


def test_the_step_takes_its_share_of_what_inference_leaves():
    whole = largest_step(PROMISE, 0.1)
    assert 0.998 < float(auto_plan().tables_step.square / whole.square) / 0.9 <= 1
    inference = Step(whole.mu / 2, 1e-9)
    less = Workload("auto", 0.25).measures(SPACES, PROMISE, inference, 10_000, 1)
    assert 0.998 < float(measures_step(less, SPACES, 1, 1e-6).square / (whole.square * 3 / 16)) <= 1
    assert auto_plan().tables_step.delta <= 1e-4 * auto_plan().delta


@pytest.mark.walk(1)
@pytest.mark.parametrize("contributions", [1, 3])
def test_a_person_of_more_rows_has_more_noise(contributions):
    found = Workload("auto").measures(SPACES, PROMISE, None, 10_000, contributions)
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000, measures=found, contributions=contributions)
    assert plan.verify().ok
    assert found[0].sigma2 > 0.999 * contributions**2 * auto_measures()[0].sigma2


def test_parts_of_numbers_sums_and_tables():
    """Shares 0.17, 0.12, 0.1 and 0.59 of 0.98; the last for pairs, a triple and sets. No number has levels."""
    parts = {}
    for m in auto_measures():
        lists = m.kind == "one_way" and m.columns != ("age",)
        kind = "list" if lists else "joint" if m.kind in OF_SETS else m.kind
        parts[kind] = parts.get(kind, 0) + m.noise(SPACES).numbers * m.noise(SPACES).span ** 2 / m.sigma2
    whole = sum(parts.values())
    assert {kind: round(part / whole, 3) for kind, part in parts.items()} == {
        "one_way": 0.173,
        "list": 0.102,
        "sum": 0.122,
        "joint": 0.602,
    }
    joints = [m for m in auto_measures() if m.kind == "joint"]
    of_triples = sum(1 / m.sigma2 for m in joints if len(m.columns) == 3)
    assert 0.69 < of_triples / sum(1 / m.sigma2 for m in joints) < 0.71


def test_triples_of_lists_leave_a_twentieth_to_one_ways():
    """Joints cost by a power of their cells: pairs 2/3, triples 1/2, rounded to half a doubling."""
    found = {m.columns: m for m in Workload("auto").measures(NINE, PROMISE, None, 1_000_000, 1)}
    cost = {columns: 1 / m.sigma2 for columns, m in found.items()}
    parts = [math.fsum(c for columns, c in cost.items() if len(columns) == k) for k in (1, 2, 3)]
    assert [round(part / math.fsum(parts), 3) for part in parts] == [0.048, 0.552, 0.4]
    for small, large, times in (
        (("c6", "c8"), ("c3", "c5"), 2**2.5),
        (("c6", "c8"), ("c1", "c7"), 2**5.0),
        (("c5", "c6", "c8"), ("c1", "c3", "c7"), 2**4.5),
    ):
        assert math.isclose(cost[large] / cost[small], times, rel_tol=1e-3)


@pytest.mark.parametrize(("n", "part"), [(3_000, 0.0), (32_561, 0.071), (200_000, 0.071)])
def test_lists_of_large_pairs_have_one_ways_where_noise_hides_no_pair(n, part):
    found = Workload("auto").measures(NINE, PROMISE, None, n, 1)
    alone, all_of_them = (math.fsum(1 / m.sigma2 for m in found if len(m.columns) <= most) for most in (1, 3))
    assert round(alone / all_of_them, 3) == part


def test_larger_pairs_take_more_of_the_budget():
    """By the cube root of the cells, rounded to half a doubling; the least pair has 4 cells."""
    found = {m.columns: m for m in Workload("auto").measures(NINE, PROMISE, None, 32_561, 1)}
    least = found["c6", "c8"]
    for columns, cells, times in ((("c3", "c5"), 75, 2**1.5), (("c1", "c7"), 672, 2**2.5), (("c4", "c5"), 30, 2.0)):
        assert math.prod(found[columns].shape(NINE)) == cells
        assert math.isclose(least.sigma2 / found[columns].sigma2, times, rel_tol=1e-3)
    whole = Workload("auto").most(PROMISE, None)
    assert measures_step(list(found.values()), NINE, 1, 1e-6).mu <= whole.mu
    few = Workload("auto").measures(NINE, PROMISE, None, 3_000, 1)
    assert len({m.sigma2 for m in few}) == 1


def test_larger_pairs_take_more_where_most_of_many_are_small():
    """Twenty columns, half of the pairs with 4 cells: a number's pair with a list costs by the root of its cells."""
    questions = {f"q{i}": Categorical(list(range(2))) for i in range(15)}
    wide = questions | {f"n{i}": Integer(0, 99) for i in range(5)}
    found = {m.columns: m for m in Workload("auto").measures(wide, PROMISE, None, 20_000, 1)}
    least, cells = found["q0", "q1"], math.prod(found["q0", "n0"].shape(wide))
    times = 2 ** ((round(2 / 3 * math.log2(cells)) - 1) / 2)
    assert math.isclose(least.sigma2 / found["q0", "n0"].sigma2, times, rel_tol=1e-3)
    whole = Workload("auto").most(PROMISE, None)
    assert measures_step(list(found.values()), wide, 1, 1e-6).mu <= whole.mu
    large = {f"n{i}": Integer(0, 99) for i in range(20)}
    assert (
        len({m.sigma2 for m in Workload("auto").measures(large, PROMISE, None, 20_000, 1) if len(m.columns) == 2}) == 1
    )


NINE = {f"c{i}": Categorical(list(range(size))) for i, size in enumerate([9, 16, 7, 15, 6, 5, 2, 42, 2])}


@pytest.mark.parametrize(("n", "triples"), [(32_561, 0), (200_000, 0), (400_000, 84), (1_000_000, 84)])
def test_triples_are_measured_where_rows_are_many(n, triples):
    found = Workload("auto").measures(NINE, PROMISE, None, n, 1)
    sizes = [len(m.columns) for m in found]
    assert (sizes.count(2), sizes.count(3)) == (36, triples)
    most = Workload("auto").most(PROMISE, None)
    assert 0.99 * most.mu < measures_step(found, NINE, 1, PROMISE.delta).mu <= most.mu


def test_triples_of_wide_tables_are_never_listed():
    wide = {f"c{i}": Categorical(list(range(12))) for i in range(60)}
    assert all(len(m.columns) < 3 for m in Workload("auto").measures(wide, PROMISE, None, 10**9, 1))


@pytest.mark.parametrize(
    ("n", "epsilon", "bins"), [(3_000, 1.0, 8), (30_000, 1.0, 15), (30_000, 4.0, 22), (10**7, 1.0, 48)]
)
def test_numbers_have_more_cells_in_joints_as_rows_are_worth_more(n, epsilon, bins):
    spaces = {f"c{i}": Integer(0, 999) for i in range(8)}
    found = Workload("auto").measures(spaces, Budget(epsilon, 1e-6), None, n, 1)
    assert {m.most for m in found if m.kind == "joint"} == {bins}


@pytest.mark.slow
def test_the_exact_noise_decides_where_the_normal_laws_is_not_enough():
    spaces = {"age": Integer(0, 100), "job": Categorical(["a", "b", "c"]), "sex": Categorical(["f", "m"])}

    def bins(epsilon, proved):
        found = Workload("auto").measures(spaces, Budget(epsilon, 1e-6), None, 1_000, 1, proved=proved)
        return max(m.most for m in found if m.kind == "joint")

    # Numbers get an 18th cell where the noise falls to a size, and that of the lattice is .2 % above the normal law's.
    epsilon = bisected(lambda epsilon: bins(epsilon, False) == 18, 30.0, 8.0, 1e-5)
    assert (bins(epsilon, False), bins(epsilon, True), bins(1.02 * epsilon, True)) == (18, 17, 18)


def test_no_pair_is_left_out_for_more_cells():
    spaces = {f"c{i}": Integer(0, 999) for i in range(30)}
    found = Workload("auto").measures(spaces, Budget(4.0, 1e-6), None, 10**6, 1)
    assert sum(m.kind == "joint" for m in found) == 435
    assert 12 < max(m.most for m in found if m.kind == "joint") < 48


def test_many_columns_keep_within_the_limit_and_every_column_is_told_of():
    spaces = {f"c{i}": Categorical(list(range(40 * i + 2))) for i in range(20)}
    found = Workload("auto").tables(spaces)
    assert sum(math.prod(m.shape(spaces)) for m in found if m.kind == "joint") <= 200_000
    assert {name for m in found for name in m.columns} == set(spaces)
    assert ("c0", "c1") in {m.columns for m in found}


def test_a_list_is_taken_as_it_is():
    wish = Workload((("age",), ("sex",), ("sex", "age", "home"), ("tags",)))
    assert [(m.kind, m.columns) for m in wish.tables(SPACES)] == [
        ("one_way", ("age",)),
        ("sum", ("age",)),
        ("one_way", ("sex",)),
        ("items", ("tags",)),
        ("sizes", ("tags",)),
        ("joint", ("sex", "age", "home")),
    ]
    pair = Workload((("sex", "age"),)).tables(SPACES)  # the one-way cuts the number
    assert [(m.kind, m.columns) for m in pair] == [("one_way", ("age",)), ("joint", ("sex", "age"))]


def test_few_rows_have_no_tables_by_default():
    assert Workload("auto").measures(SPACES, PROMISE, None, 10, 1) == ()
    assert Workload((("sex",),)).measures(SPACES, PROMISE, None, 10, 1)


ADDED = (("sex", "home", "age"), ("age", "sex"), ("home",))


@pytest.mark.parametrize(("n", "epsilon", "more"), [(3_000, 1.0, 1), (200, 0.5, 2), (10_000, 1.0, 0)])
def test_added_tables_come_with_the_default_ones(n, epsilon, more):
    """By default the triple is measured from 10,000 rows on, one-ways of lists where noise hides pairs, all pairs."""
    promise = Budget(epsilon, 1e-6)
    auto, both = (
        wish.measures(SPACES, promise, None, n, 1) for wish in (Workload("auto"), Workload("auto", added=ADDED))
    )
    assert {m.identity for m in both} == {m.identity for m in auto} | {("one_way", frozenset({"home"}), 1)} | {
        ("joint", frozenset({"sex", "home", "age"}), 1)
    }
    assert len(both) == len(auto) + more
    assert len({m.most for m in both if m.kind == "joint" and m.most}) == 1
    most = Workload("auto").most(promise, None)
    assert 0.99 * most.mu < measures_step(both, SPACES, 1, 1e-6).mu <= most.mu
    # The tables' costs have the proportions that they have without the added ones.
    cost = {m.identity: 1 / m.sigma2 for m in both}
    kept = [cost[m.identity] * m.sigma2 for m in auto]
    assert max(kept) < (1.001 if more else 1.0001) * min(kept)


def test_an_added_table_costs_by_the_least_sum_of_l1_distances():
    """Nine lists at 200,000 rows: the costs of 36 pairs and nine one-ways, and of the triple, by cells^(2/3)."""
    triple = ("c1", "c3", "c7")
    found = Workload("auto", added=(triple,)).measures(NINE, PROMISE, None, 200_000, 1)
    sizes = {m.columns: 2 ** (round(4 / 3 * math.log2(math.prod(m.shape(NINE)))) / 2) for m in found}
    share = (1 / found[-1].sigma2) / math.fsum(1 / m.sigma2 for m in found)
    assert found[-1].columns == triple
    assert math.isclose(share, sizes[triple] / math.fsum(sizes.values()), rel_tol=1e-3)


def test_listed_tables_cost_by_the_least_sum_of_l1_distances():
    """Costs go with cells^(2/3), rounded to half a doubling: 2, 42 and 672 cells, and a triple of 90."""
    wanted = (("c6",), ("c7",), ("c1", "c7"), ("c0", "c5", "c8"))
    costs = {m.columns: 1 / m.sigma2 for m in Workload(wanted).measures(NINE, PROMISE, None, 32_561, 1)}
    for columns, cells in zip(wanted, (2, 42, 672, 90), strict=True):
        times = 2 ** ((round(4 / 3 * math.log2(cells)) - 1) / 2)
        assert math.isclose(costs[columns] / costs["c6",], times, rel_tol=1e-3)


def test_added_tables_are_measured_alone_where_none_are_by_default():
    few = Workload("auto", added=(("sex", "home"),)).measures(SPACES, PROMISE, None, 10, 1)
    assert [m.columns for m in few] == [("sex", "home")]


REFUSED = [
    ((("street",),), "measure names 'street', which is not a randomised column"),
    ((("tags", "sex", "home"),), "column 'tags' holds sets, whose items are measured on their own; name it by itself"),
    ((("big", "huge"),), "big × huge has 300,000 cells and the limit is 200,000; leave it out of measure"),
    ((("sex", "home", "age", "big"),), "takes columns, pairs and triples"),
]


@pytest.mark.parametrize(("wanted", "words"), REFUSED)
def test_what_cannot_be_measured_is_refused(wanted, words):
    spaces = SPACES | {"big": Categorical(list(range(500))), "huge": Categorical(list(range(600)))}
    with pytest.raises(ParameterError, match=words):
        Workload(wanted).tables(spaces)
    with pytest.raises(ParameterError, match=words):
        Workload("auto", added=wanted).measures(spaces, PROMISE, None, 10_000, 1)
    with pytest.warns(DpframeWarning, match=r"left out, as the.*not allow them"):
        assert Workload(wanted).without(spaces).measure is None
    with pytest.warns(DpframeWarning, match=r"left out, as the.*not allow them"):
        assert Workload("auto", added=wanted).without(spaces).added == ()


def test_tables_of_columns_that_were_not_found_are_left_out():
    for wish in (Workload((("sex", "age"), ("sex",))), Workload("auto", added=(("sex", "age"), ("sex",)))):
        with pytest.warns(DpframeWarning, match=r"sex × age needs.*was not found"):
            kept = wish.without({"sex": SPACES["sex"]}, ["age"])
        assert kept in (Workload((("sex",),), paid=True), Workload("auto", added=(("sex",),), paid=True))


@pytest.mark.parametrize(
    ("kind", "columns", "more", "words"),
    [
        ("pair", ("sex",), {}, "the kind of a measure must be one of"),
        ("joint", ("sex",), {}, "of kind joint has two or more columns"),
        ("sum", ("sex", "age"), {}, "of kind sum has one column"),
        ("sum", ("age",), {"sigma2": 0.1}, "sigma2 of a measure must lie between 1/4 and 2"),
        ("items", ("tags",), {"most": 0}, "most of a measure must be a whole number, at least 1"),
        ("one_way", "sex", {}, "columns of a measure must be names"),
    ],
)
def test_a_measure_is_checked(kind, columns, more, words):
    with pytest.raises(ParameterError, match=words):
        Measure(**({"kind": kind, "columns": columns, "sigma2": 100.0} | more))


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        ([Measure("sum", ("sex",), 100.0)], "column 'sex' is no number, and has no sum"),
        ([Measure("items", ("sex",), 100.0, 1)], "column 'sex' holds no sets"),
        ([Measure("one_way", ("sex",), 1e4)] * 2, "the one_way of sex is measured twice; name it once"),
        ([Measure("joint", ("sex", "age"), 1e4, 12)], "needs the one_way of 'age', whose quantiles cut it"),
    ],
)
def test_a_plan_checks_its_measures(measures, words):
    with pytest.raises(ParameterError, match=words):
        build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000, measures=measures)


def test_measures_need_delta():
    with pytest.raises(ParameterError, match="measured tables need delta above 0; raise delta"):
        build_plan(SPACES, epsilon=1.0, delta=0.0, n=10_000, measures=auto_measures())


def test_json_has_measures_where_there_are_some():
    assert Plan.from_json(auto_plan().to_json()) == auto_plan()
    assert json.loads(auto_plan().to_json())["schema"] == 2
    bare = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000)
    assert (json.loads(bare.to_json())["schema"], "measures" in bare.to_json()) == (1, False)
    damaged = json.loads(auto_plan().to_json())
    damaged["measures"][0]["noise"] = 1
    with pytest.raises(PlanError, match=r"every measure has the.*sigma2,.*perhaps level, most"):
        Plan.from_json(json.dumps(damaged))


def test_less_noise_than_the_promise_allows_is_refused():
    quiet = json.loads(auto_plan().to_json())
    for measure in quiet["measures"]:
        measure["sigma2"] /= 4
    with pytest.raises(PlanError, match=r"exceed|exhausted|allowed|claims"):
        Plan.from_json(json.dumps(quiet))


def test_lines_say_what_is_measured():
    text = "\n".join(auto_plan().lines())
    assert "Measured in addition to the rows" in text
    assert "4 joint tables at sigma=" in text
    assert "Steps: tables mu=" in text


def test_the_certificate_finds_a_plan_that_forgets_its_tables(monkeypatch):
    assert auto_plan().verify().ok

    def forgets(*terms):
        return terms_of(*terms[:7])

    for module in (data, build):
        monkeypatch.setattr(module, "terms_of", forgets)
    forgetful = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000, measures=auto_measures())
    certificate = forgetful.verify()
    assert not certificate.ok
    assert certificate.delta > 2 * forgetful.delta


def test_what_inference_takes_of_delta_leaves_the_tables_their_slack():
    """A certificate finds the tables of a plan whose inference is subtracted to cost what the plan says they cost."""
    spaces = {"a": Categorical(["x", "y"]), "b": Categorical(["p", "q", "r"]), "z": Nullable(Integer(0, 49))}
    inferred = Inferred(Budget(0.05, 5e-5), ())
    promise = Budget(1.0, 1e-3)
    measures = Workload((("a", "b"), ("z",), ("a", "z")), 0.95).measures(
        spaces, promise.less(inferred.budget), None, 500, 1
    )
    options = {"n": 500, "shuffle": False, "inferred": inferred, "measures": measures}
    certificate = build_plan(spaces, epsilon=1.0, delta=1e-3, **options).verify()
    assert certificate.ok, certificate.failures


def test_replanning_keeps_the_tables():
    larger = auto_plan().replan(50_000)
    assert larger.measures == auto_measures()
    assert larger.verify().ok


def _profile(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_promise_by_enumeration_of_rows_and_counts():
    """Three rows of one bit in secret order, and a count of each value: every outcome of both, at every ε."""
    spaces = {"bit": Categorical([0, 1])}
    measures = (Measure("one_way", ("bit",), 60.0),)
    plan = build_plan(spaces, epsilon=1.0, delta=0.05, n=3, measures=measures)
    bare = build_plan(spaces, epsilon=1.0, delta=0.05, n=3)
    assert plan["bit"].epsilon < bare["bit"].epsilon
    weights, total = plan["bit"].mechanism.weights(0)
    flip = min(weights) / total
    law = {x: w / 2**128 for x, w in gaussian_table(60.0).weights().items() if abs(x) <= 80}
    noise = np.array([law.get(x, 0.0) for x in range(-84, 85)])

    def outcomes(rows):
        shown = np.zeros(4)
        for bits in product((0, 1), repeat=3):
            shown[sum(bits)] += math.prod(1 - flip if b == r else flip for b, r in zip(bits, rows, strict=True))
        ones, zeros = np.roll(noise, sum(rows)), np.roll(noise, 3 - sum(rows))
        return np.einsum("a,b,c->abc", shown, ones, zeros).ravel()

    def located(bit):
        shown = np.array([1 - flip, flip] if bit == 0 else [flip, 1 - flip])
        ones, zeros = np.roll(noise, bit), np.roll(noise, 1 - bit)
        return np.einsum("a,b,c->abc", shown, ones, zeros).ravel()

    worst = max(
        _profile(outcomes((x, *rest)), outcomes((1 - x, *rest)), 1.0) for x in (0, 1) for rest in ((0, 0), (0, 1))
    )
    assert worst <= plan.delta
    local = plan.local
    assert _profile(located(0), located(1), local.epsilon) <= local.delta
    rows_alone = math.log((1 - flip) / flip)
    assert _profile(located(0), located(1), rows_alone) > 0  # the counts tell of a row as well


@pytest.mark.slow
def test_the_step_bounds_the_profile_of_tables_and_sums():
    """A pair's two cells and a sum, by convolving the losses of the noise as it is drawn."""
    spaces = {"sex": SPACES["sex"], "k": Integer(0, 3)}
    measures = [Measure("joint", ("sex", "k"), 30.0, 12), Measure("sum", ("k",), 90.0)]
    step = measures_step(measures, spaces, 1, 1e-2)
    cells, total = (np.array(list(gaussian_table(s).weights().values())) / 2**128 for s in (30.0, 90.0))
    cells, total = np.pad(cells, 4), np.pad(total, 4)
    pair = (
        np.einsum("a,b->ab", cells, cells).ravel(),
        np.einsum("a,b->ab", np.roll(cells, 1), np.roll(cells, -1)).ravel(),
    )
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = 0.0
        for p, q in zip(total, np.roll(total, 3), strict=True):
            exact += float(np.maximum(pair[0] * p - math.exp(epsilon) * pair[1] * q, 0).sum())
        assert exact <= step_delta(step, epsilon)
        assert exact > 0.8 * step_delta(step, epsilon) - 1e-5
    assert composed_steps([step]) == step


def test_the_step_bounds_the_profile_of_joints_of_unequal_noise():
    """Three pairs, the smallest with the most noise, of tables that differ in one row in all columns."""
    spaces = {"a": Categorical([0, 1]), "b": Categorical([0, 1]), "c": Categorical(list(range(8)))}
    measures = Workload("auto").measures(spaces, Budget(3.0, 0.005), None, 200, 1)
    assert len({m.sigma2 for m in measures}) == 2
    plan = build_plan(spaces, epsilon=3.0, delta=0.005, n=200, measures=measures)
    rows = {name: np.zeros(200, dtype=np.uint8) for name in spaces}
    other = {name: np.append(column[1:], np.uint8(1)) for name, column in rows.items()}
    law, step = tables_law(plan, [rows, other], 7.0), plan.tables_step
    for x in (0.0, 0.5, 1.0, 2.0):
        assert law.most(x) <= step_delta(step, x)
        assert law.least(x) > 0.5 * step_delta(step, x)


@pytest.mark.parametrize(("epsilon", "delta"), [(150.0, 1e-6), pytest.param(40.0, 1e-20, marks=pytest.mark.slow)])
def test_large_promises_have_noise_whose_law_is_exact(epsilon, delta):
    spaces = {"sex": SPACES["sex"], "k": Integer(0, 3)}
    found = Workload("auto").measures(spaces, Budget(epsilon, delta), None, 10_000, 1)
    assert build_plan(spaces, epsilon=epsilon, delta=delta, n=10_000, measures=found).verify().ok


def test_promises_too_small_for_any_noise():
    tiny, wide = Budget(1e-5, 1e-9), {"k": Integer(0, 2**32 - 2)}
    assert Workload("auto").measures(wide, tiny, None, 10_000, 1) == ()
    with pytest.raises(ParameterError, match=r"epsilon is too small.*tables; raise epsilon"):
        Workload((("k",),)).measures(wide, tiny, None, 10_000, 1)
    with pytest.warns(DpframeWarning, match="nothing was measured: epsilon is too small"):
        assert Workload((("k",),)).without(wide).measures(wide, tiny, None, 10_000, 1) == ()
