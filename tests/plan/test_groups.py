"""Groups of columns: the law of their channel, plans, and estimates against dense linear algebra."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import readings
from checks import refused
from examples import edit_plan
from hypothesis import given
from hypothesis import strategies as st

import dpframe as dpf
from dpframe import Budget, Column, Group, Plan, Product
from dpframe.accounting import composed_delta
from dpframe.channels import GammaDiagonal, Geometric, Mechanism, RandomizedResponse
from dpframe.estimate import moments, surrogates
from dpframe.estimate.axes import NoiseBlock, join_axes, make_axis
from dpframe.estimate.evidence.likelihood import Seen, Shares, fit_joint, refits
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.tables.fit import fit_tables
from dpframe.estimate.tables.mixture import Mixture
from dpframe.estimate.tables.tables import Evidence, row_table
from dpframe.noise.keystream import Keystream
from dpframe.noise.tables import ResponseTable
from dpframe.observe.noisy_counts import NoisyCounts
from dpframe.plan.build import build_plan
from dpframe.release.rows import release
from dpframe.spaces import space_from_json

KEY = bytes(range(32))
SPACES = {
    "sex": ["F", "M"],
    "job": dpf.Nullable(dpf.Categorical(["clerk", "nurse", "smith"])),
    "wage": (0, 9),
    "grade": ["a", "b", "c"],
}
GROUPS = [("wage", "sex", "job")]


def table_of(n, seed=3):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n)
    job = np.where(rng.random(n) < 0.15, 3, (rng.integers(0, 2, n) + sex) % 3)
    wage = np.clip(rng.poisson(3 + 2 * sex, n), 0, 9)
    grade = np.minimum(wage // 4, 2)
    return pd.DataFrame(
        {
            "sex": np.array(["F", "M"])[sex],
            "job": np.array(["clerk", "nurse", "smith", None], dtype=object)[job],
            "wage": wage,
            "grade": np.array(["a", "b", "c"])[grade],
        }
    )


TABLE = table_of(4_000)
PLAN = build_plan(SPACES, epsilon=9, groups=GROUPS)
SAFE = dpf.sanitize(TABLE, plan=PLAN, key=KEY)
ONE = dpf.Estimates(SAFE)
CODES = readings.codes_of(SAFE, PLAN.names)


# The channel


class Words:
    """A stream whose words are all there are of 8 bits, one row each."""

    def reader(self, word, first_row, bits):
        self.position = first_row
        return self

    def fill(self, out):
        out[:] = np.arange(self.position, self.position + len(out)) % 256


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (2, 2, 2), (5, 1, 1), (1, 4)])
def test_law_by_enumeration_of_all_words(sizes):
    """Over all words, every tuple becomes every other exactly ``threshold`` times and stays ``keep`` times."""
    mechanism = GammaDiagonal(sizes, 1.0)
    mechanism.__dict__["source"] = ResponseTable(math.prod(sizes), 19, 8)
    del mechanism.__dict__["table"]
    for x in itertools.product(*map(range, sizes)):
        columns = [np.full(256, value, dtype=np.uint8) for value in x]
        out = mechanism.sample_columns(columns, Words())
        found = dict.fromkeys(itertools.product(*map(range, sizes)), 0)
        for y in zip(*(column.tolist() for column in out), strict=True):
            found[y] += 1
        expected = dict.fromkeys(found, 19) | {x: 256 - 19 * (len(found) - 1)}
        assert found == expected
        weights, total = mechanism.weights(int(np.ravel_multi_index(x, sizes)))
        assert (weights, total) == (list(expected.values()), 256)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    epsilon=st.floats(0.01, 20),
    delta=st.sampled_from([0.0, 1e-6, 0.1]),
    data=st.data(),
)
def test_marginals_are_exact(sizes, epsilon, delta, data):
    """Weights of a marginal are those of the tuples behind it, added up as fractions."""
    whole = GammaDiagonal(tuple(sizes), epsilon, delta)
    kept = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    seen = whole.marginal(kept)
    x = tuple(data.draw(st.integers(0, k - 1)) for k in sizes)
    weights, total = whole.weights(int(np.ravel_multi_index(x, sizes)))
    summed = np.zeros([sizes[i] for i in kept], dtype=object)
    for y, weight in zip(itertools.product(*map(range, sizes)), weights, strict=True):
        summed[tuple(y[i] for i in kept)] += Fraction(weight, total)
    found, own = seen.weights(int(np.ravel_multi_index([x[i] for i in kept], seen.seen_sizes)))
    assert [Fraction(w, own) for w in found] == summed.ravel().tolist()
    if math.prod(sizes) > 1 and seen.size > 1:
        assert seen.table.signal == whole.table.signal
    assert seen.loss.epsilon() <= whole.loss.epsilon() <= epsilon or delta > 0
    assert seen.blanket >= whole.blanket


@given(sizes=st.lists(st.integers(1, 7), min_size=2, max_size=4), seed=st.integers(0, 2**32))
def test_masks_pass_through_the_channel(sizes, seed):
    """A value masked in Z_k, randomised and unmasked is what it would have been: there are no carries."""
    rng = np.random.default_rng(seed)
    mechanism, stream = GammaDiagonal(tuple(sizes), 1.0), Keystream(KEY).column("x")
    x, pads = ([rng.integers(0, k, 40) for k in sizes] for _ in range(2))
    plain = mechanism.sample_columns(x, stream, 5)
    masked = mechanism.sample_columns([(a + v) % k for a, v, k in zip(x, pads, sizes, strict=True)], stream, 5)
    for a, b, v, k in zip(plain, masked, pads, sizes, strict=True):
        np.testing.assert_array_equal((b - v) % k, a)
    flat = mechanism.sample(np.ravel_multi_index(x, sizes), stream, 5)
    np.testing.assert_array_equal(flat, np.ravel_multi_index(plain, sizes))
    seen = mechanism.marginal([1]).sample_columns(x[1:2], stream, 5)
    np.testing.assert_array_equal(seen[0], plain[1])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (((), 1.0), "sizes must be one or more"),
        (((4096, 4097), 1.0), "product of at most 16777216"),
        ((5, 1.0), "sizes must be a list of whole numbers"),
        (((2, 0), 1.0), "sizes must be a whole number from 1"),
        (((2, 2), 1.0, 0.0, (1, 0)), "kept must be positions of coordinates in ascending order"),
        (((2, 2), 1.0, 0.0, (2,)), "kept must be a whole number from 0 to 1"),
        (((2, 2), 0.0), "epsilon must be finite and above 0"),
        (((4000, 4000), 1e-17), "too small for 16000000 categories"),
    ],
)
def test_channels_refused(arguments, message):
    with pytest.raises(dpf.ParameterError, match=message):
        GammaDiagonal(*arguments)


def test_a_marginal_of_nothing_is_refused():
    with pytest.raises(dpf.ParameterError, match="kept must name at least one coordinate"):
        GammaDiagonal((2, 2), 1.0).marginal([])


@pytest.mark.parametrize(
    "columns, message",
    [
        ([np.zeros(3, int)], "columns must be 2 arrays of one length"),
        ([np.zeros(3, int), np.zeros(4, int)], "columns must be 2 arrays of one length"),
        ([np.zeros(3), np.zeros(3)], "columns must be 1-d integer arrays"),
        ([np.zeros(3, int), np.full(3, 3)], r"codes of coordinate 1 must lie in 0…2"),
    ],
)
def test_columns_refused(columns, message):
    with pytest.raises(dpf.ParameterError, match=message):
        GammaDiagonal((2, 3), 1.0).sample_columns(columns, Keystream(KEY).column("x"))


# The space


def test_products():
    space = Product(["F", "M"], dpf.Nullable(dpf.Boolean()), (0, 3))
    assert (space.size, space.diameter, space.min_distance) == (24, 1.0, 1.0)
    assert space.labels()[7] == ("F", True, 3)
    assert space.labels()[-1] == ("M", None, 3)
    codes = np.arange(24)
    np.testing.assert_array_equal(space.join(space.split(codes)), codes)
    assert [space.labels()[i] for i in codes] == [
        tuple(part.labels()[c] for part, c in zip(space.spaces, row, strict=True))
        for row in zip(*space.split(codes), strict=True)
    ]
    assert space.distance(("F", None, 1), ("F", None, 1)) == 0
    assert space.distance(("F", None, 1), ("F", True, 1)) == space.code_distance(0, 5) == 1
    assert space.contains(("M", True, 0))
    assert not space.contains(("M", True))
    assert not space.contains(("X", True, 0))
    assert hash(Product(*space.spaces)) == hash(space)
    assert Product.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_products_refused():
    pair = Product([1, 2], [3, 4])
    with pytest.raises(dpf.ParameterError, match="needs two or more spaces"):
        Product([1, 2])
    with pytest.raises(dpf.ParameterError, match="a product holds no products"):
        Product(pair, [5, 6])
    with pytest.raises(dpf.ParameterError, match="tuples of 2"):
        pair.distance((1, 3), (1,))
    for wrong in ({}, {"spaces": 3}, {"spaces": [3]}, {"spaces": [], "colour": 1}):
        with pytest.raises(dpf.errors.PlanError, match="space product has the field spaces"):
            Product.from_json(wrong)
    for call in (lambda: pair.encode([(1, 3)]), lambda: pair.decode([0]), lambda: pair.natural_type):
        with pytest.raises(dpf.ColumnError, match=r"Product is for several.*these in groups="):
            call()
    with pytest.raises(dpf.errors.PlanError, match="unknown space tag"):
        space_from_json(pair.to_json())
    with pytest.raises(dpf.errors.PlanError, match="column 'x': Product is for several columns"):
        Column("x", pair, GammaDiagonal((2, 2), 1.0))


# Plans


def test_a_group_spends_its_epsilon_once():
    plan = build_plan(SPACES, epsilon=4.0, groups=GROUPS)
    group, rest = plan.units
    assert isinstance(group, Group)
    assert (group.names, rest.names) == (("wage", "sex", "job"), ("grade",))
    assert group.mechanism == GammaDiagonal((10, 2, 4), 3.0)
    assert (rest.mechanism.epsilon, plan.names) == (1.0, ("sex", "job", "wage", "grade"))
    assert Fraction(group.epsilon) + Fraction(rest.epsilon) <= 4
    assert group.epsilon + rest.epsilon > 3.9999
    assert group.blanket == pytest.approx(80 / (math.exp(3) + 79), rel=1e-4)
    assert plan["sex"] == group.column("sex")
    assert plan["sex"].mechanism.loss.epsilon() < group.epsilon
    assert plan.group_of("sex") is group
    assert plan.group_of("grade") is None


@pytest.mark.parametrize("key", [("sex", "wage", "job"), "job,sex, wage", frozenset({"sex", "wage", "job"})])
def test_allocation_names_groups(key):
    plan = build_plan(SPACES, epsilon=2.0, groups=GROUPS, allocation={key: 0.25})
    assert [unit.mechanism.epsilon for unit in plan.units] == [0.5, 1.5]


@pytest.mark.slow
@given(
    epsilon=st.floats(0.05, 20),
    delta=st.sampled_from([0.0, 1e-9, 1e-3]),
    contributions=st.integers(1, 3),
    ready=st.booleans(),
)
def test_units_never_add_up_to_more_than_asked(epsilon, delta, contributions, ready):
    mechanisms = {"d": RandomizedResponse(2, 0.01)} if ready else {}
    plan = build_plan(
        {name: [1, 2] for name in "abcde"},
        epsilon=epsilon,
        delta=delta,
        contributions=contributions,
        groups=[("e", "a"), ["b", "c"]],
        mechanisms=mechanisms,
    )
    spent = sum((Fraction(u.certified.epsilon) for u in plan.units), Fraction(0))
    if delta == 0:
        assert Fraction(epsilon) * Fraction(999, 1000) <= spent * contributions <= Fraction(epsilon)
    else:  # pure units, whose losses make the row's (ε, δ) together
        row = Budget(epsilon, delta).per_row(contributions)
        assert composed_delta([u.column_loss for u in plan.units], row.epsilon) <= row.delta
        assert all(u.mechanism.delta == 0 for u in plan.units)
    assert [unit.label for unit in plan.units] == ["b × c", "d", "e × a"]


@pytest.mark.parametrize("plan", [PLAN, build_plan(SPACES, epsilon=3, delta=1e-6, groups=[["sex", "grade"]])])
def test_json_round_trip(plan):
    data = json.loads(plan.to_json())
    again = Plan.from_json(plan.to_json(indent=1))
    assert (again, again.digest) == (plan, plan.digest)
    assert data["groups"][0]["names"] == list(plan.groups[0].names)
    members = {c["name"]: set(c) for c in data["columns"] if c["name"] in plan.groups[0].names}
    assert all(fields == {"name", "space"} for fields in members.values())
    assert plan.digest != build_plan(SPACES, epsilon=plan.epsilon, delta=plan.delta).digest
    assert "groups" not in json.loads(build_plan(SPACES, epsilon=3).to_json())


def test_a_grouped_plan_can_be_written_by_hand():
    data = {
        "schema": 1,
        "epsilon": 1.0,
        "columns": [{"name": "sex", "space": ["F", "M"]}, {"name": "age", "space": {"lower": 0, "upper": 9}}],
        "groups": [{"names": ["age", "sex"], "epsilon": 1.0}],
    }
    plan = Plan.from_json(json.dumps(data))
    assert plan == build_plan({"sex": ["F", "M"], "age": (0, 9)}, epsilon=1.0, groups=[("age", "sex")])


def edited(**changes):
    return edit_plan(PLAN, **changes)


@pytest.mark.parametrize(
    "text, message",
    [
        (edited(groups=3), "groups must be a list of groups"),
        (edited(groups=[3]), "every group has names, and a mechanism or an epsilon"),
        (edited(groups__0__names="wage"), "list of two or more column names"),
        (edited(groups__0__names=["wage"]), "list of two or more column names"),
        (edited(groups__0__names=["wage", "nobody"]), "groups name 'nobody', which is not a randomised column"),
        (edited(groups__0__names=["sex", "wage", "job"]), "all of the columns' numbers of codes"),
        (edited(groups__0__mechanism__kept=[0, 1]), "all of the columns' numbers of codes"),
        (
            edited(groups__0__mechanism={"mechanism": "geometric", "span": 9, "epsilon": 1, "delta": 0}),
            "gamma_diagonal",
        ),
        (edited(groups__0__epsilon=1.0), "group wage × sex × job: give a mechanism or an epsilon"),
        (edited(groups__0__colour=1), "every group has names"),
        (edited(columns__0__epsilon=1.0), "column 'sex' is in the group wage × sex × job"),
        (edited(epsilon=8.9), "claims epsilon=8.9, delta=0.0, .*add up to epsilon=9 per row"),
        (edited(groups=[]), "'sex': give a mechanism or an epsilon"),
    ],
)
def test_bad_plans_are_refused(text, message):
    refused(dpf.errors.PlanError, message, lambda: Plan.from_json(text))


def test_plans_refuse_columns_that_are_not_their_groups():
    group = PLAN.groups[0]
    with pytest.raises(dpf.errors.PlanError, match="groups name 'wage', which is not"):
        Plan(9, 0, (PLAN["sex"],), groups=(group,))
    with pytest.raises(dpf.errors.PlanError, match="column 'wage' is in two groups"):
        Plan(9, 0, PLAN.columns, groups=(group, group))
    own = Column("sex", PLAN["sex"].space, RandomizedResponse(2, 0.1))
    with pytest.raises(dpf.errors.PlanError, match=r"column 'sex' must have.*of its group"):
        Plan(9, 0, (own, *PLAN.columns[1:]), groups=(group,))
    with pytest.raises(dpf.errors.PlanError, match=r"a group must name.*columns, each once"):
        Group(("sex", "sex"), Product([1, 2], [1, 2]), GammaDiagonal((2, 2), 1.0))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"groups": "sex,job"}, "groups must be a list of groups of column names, e.g."),
        ({"groups": 3}, "groups must be a list of groups of column names, e.g."),
        ({"groups": ["sex", "job"]}, "groups must be a list of groups of column names, e.g."),
        ({"groups": [("sex", 1)]}, "groups must be a list of groups of column names, e.g."),
        ({"groups": [("sex",)]}, "a group must name two or more columns; a single one needs no group"),
        ({"groups": [("sex", "id")]}, "groups name 'id', which is not a randomised column"),
        ({"groups": [("sex", "job", "sex")]}, "groups name 'sex' twice in one group"),
        ({"groups": [("sex", "job"), ("job", "wage")]}, "column 'job' is in two groups"),
        (
            {"groups": [("sex", "job")], "mechanisms": {"job": "randomized_response"}},
            "mechanisms names 'job', which is in",
        ),
        ({"groups": GROUPS, "allocation": {"sex": 0.5}}, r"allocation names 'sex', which is in a group; give .*'wage'"),
        ({"groups": GROUPS, "allocation": {("sex", "job"): 0.5}}, "which is not a randomised column"),
        (
            {"groups": GROUPS, "allocation": {("sex", "job", "wage"): 0.5, "sex,job,wage": 0.4}},
            "allocation names the group .* twice",
        ),
        ({"groups": GROUPS, "allocation": {("sex", "job", "wage"): 1.0}}, "must add up to 1, or to less"),
    ],
)
def test_groups_refused(options, message):
    with pytest.raises(dpf.ParameterError, match=message):
        build_plan(SPACES, epsilon=1.0, passthrough=["id"], **options)


def test_groups_of_too_many_tuples_are_refused():
    spaces = {"sex": ["F", "M"], "born": ("1930-01-01", "2020-01-01"), "paid": (0, 10**6)}
    with pytest.raises(
        dpf.ParameterError, match=r"tuples, more than 16,777,216; leave 'paid' \(1,000,001 values\) out"
    ):
        build_plan(spaces, epsilon=1, groups=[("sex", "born", "paid")])
    with pytest.raises(dpf.ParameterError, match=r"group sex × born: epsilon=.* too small for 65746 categories"):
        build_plan(spaces, epsilon=1e-15, groups=[("sex", "born")])


def test_summary_has_a_row_per_unit():
    table = PLAN.summary()
    assert table.index.tolist() == ["wage × sex × job", "grade"]
    row = table.loc["wage × sex × job"]
    assert (row["mechanism"], row["unit"]) == ("gamma_diagonal", "chance of change")
    # On tuples randomised response is optimal: it meets Theorem 7.
    assert row["expected_error"] == pytest.approx(row["error_bound"], rel=1e-6)
    assert "wage × sex × job" in str(PLAN)


# Releases


def test_every_face_gives_the_same_values(tmp_path):
    codes = {c.name: c.space.encode(TABLE[c.name]) for c in PLAN.columns}
    whole = release(codes, PLAN, KEY)
    for cuts in ([1], [7, 1_000, 1_001], [2_048]):
        edges = [0, *cuts, len(TABLE)]
        parts = [release({k: v[a:b] for k, v in codes.items()}, PLAN, KEY, a) for a, b in itertools.pairwise(edges)]
        for name in PLAN.names:
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])
    frame = dpf.sanitize(TABLE, plan=PLAN, key=KEY)
    arrow = dpf.sanitize(pa.Table.from_pandas(TABLE), plan=PLAN, key=KEY)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.Table.from_pandas(TABLE), source, row_group_size=700)
    dpf.sanitize(source, target, plan=PLAN, key=KEY)
    for other in (arrow.to_pandas(), dpf.read(target)):
        for name in PLAN.names:
            assert (
                other[name].astype(object).where(other[name].notna(), None).tolist()
                == frame[name].astype(object).where(frame[name].notna(), None).tolist()
            )
    assert dpf.read(target).dp.release.plan == PLAN
    ordered = build_plan(SPACES, epsilon=9, groups=GROUPS, shuffle=False)
    kept = dpf.sanitize(TABLE, plan=ordered, key=KEY)
    again = release(codes, ordered, KEY)
    assert kept["sex"].tolist() == np.array(["F", "M"])[again["sex"]].tolist()


def test_the_accessor_groups():
    safe = TABLE.dp.sanitize(epsilon=6, spaces=SPACES, groups=[["sex", "job"]], key=KEY)
    assert safe.dp.release.plan.groups[0].names == ("sex", "job")
    assert TABLE.dp.plan(epsilon=6, spaces=SPACES, groups=[["sex", "job"]]) == safe.dp.release.plan
    found = safe.dp.crosstab("sex", "job")
    assert np.abs(found["estimate"] - pd.crosstab(TABLE["sex"], TABLE["job"])).max().max() < 150


# Joints, against dense linear algebra


def dense(names):
    """Return A⁻¹ of a joint's flattened cells, from the laws of groups and columns, and the cells' codes."""
    sizes = [PLAN[name].space.size for name in names]
    cells = np.array(list(itertools.product(*map(range, sizes))))
    matrix = np.ones((len(cells), len(cells)))
    for unit in PLAN.units:
        inside = [names.index(name) for name in unit.names if name in names]
        if inside and isinstance(unit, Group):
            channel, k = unit.mechanism, [PLAN[names[i]].space.size for i in inside]
            # The marginal by summing the whole channel's rows over what is hidden.
            same = (cells[:, None, inside] == cells[None, :, inside]).all(axis=2)
            hidden = channel.size // math.prod(k)
            matrix *= np.where(same, channel.law(0)[0] + (hidden - 1) * channel.other, hidden * channel.other)
        elif inside:
            law = unit.mechanism.transition()
            matrix *= law[np.ix_(cells[:, inside[0]], cells[:, inside[0]])]
    return np.linalg.inv(matrix), cells, sizes


def residuals(names, normalize, given, dropna, target):
    """Return estimates and variances of all cells, row by row from the definition."""
    inverse, cells, sizes = dense(names)
    rows = np.ravel_multi_index([CODES[name] for name in names], sizes)
    nulls = [PLAN[name].space.size - 1 if PLAN[name].space.tag == "nullable" else -1 for name in names]
    estimate, variance = np.empty(len(cells)), np.empty(len(cells))
    for v, cell in enumerate(cells):
        f = np.zeros(len(cells))
        f[v] = 1
        base = np.ones(len(cells))
        for i in range(len(names)):
            if i in given:
                base *= cells[:, i] == cell[i]
            elif dropna and normalize:
                base *= cells[:, i] != nulls[i]
        total = (base @ inverse)[rows].sum() if normalize else 1.0
        share = (f @ inverse)[rows].sum() / total
        h = f - share * base if normalize else f
        square = ((h @ inverse)[rows] ** 2).sum()
        if normalize or target == "table":
            # The mean of h itself is zero in a normalised share.
            noise_free = (h**2 @ inverse)[rows].sum() if target == "table" else 0.0
        else:
            noise_free = share**2 / len(rows)
        estimate[v], variance[v] = share, (square - noise_free) / total**2
    return estimate.reshape(sizes), variance.reshape(sizes)


JOINTS = [
    ["sex", "job"],
    ["job", "sex", "grade"],
    ["grade", "job", "sex"],
    ["sex", "grade", "job"],
    ["grade", "sex"],
]


@pytest.mark.parametrize("names", JOINTS, ids="-".join)
@pytest.mark.parametrize("target", ["table", "population"])
def test_joints_and_their_errors_are_those_of_the_dense_inverse(names, target):
    axes = readings.axes_of(PLAN, names)
    counts = readings.counts_of(SAFE, axes)
    for normalize, dropna in itertools.product([False, True], repeat=2):
        sets = itertools.chain(*(itertools.combinations(range(len(names)), r) for r in range(len(names))))
        for held in sets if normalize else [()]:
            found = surrogates.joint_cells(
                counts, axes, normalize=normalize, given=held, dropna=dropna, sampling=float(target == "population")
            )
            expected = residuals(names, normalize, held, dropna, target)
            kept = tuple(slice(0, a.cells - (dropna and a.has_null)) for a in axes)
            np.testing.assert_allclose(found[0][kept], expected[0][kept], rtol=1e-8, atol=1e-10)
            inside = expected[1][kept] > 0  # elsewhere a uniform type's variance stands in
            np.testing.assert_allclose(found[1][kept][inside], expected[1][kept][inside], rtol=1e-6, atol=1e-14)
            assert inside.mean() > 0.9


@pytest.mark.parametrize("names", JOINTS[1:4], ids="-".join)
def test_margins_are_those_of_the_dense_inverse(names):
    inverse, cells, sizes = dense(names)
    rows = np.ravel_multi_index([CODES[name] for name in names], sizes)
    axes = readings.axes_of(PLAN, names)
    for kept, dropna in itertools.product([(0,), (1, 2), (0, 2), ()], [False, True]):
        estimate, variance = surrogates.margin_cells(readings.counts_of(SAFE, axes), axes, kept, dropna, 0.0)
        for place in itertools.product(*(range(n) for n in estimate.shape)):
            f = np.ones(len(cells))
            for i, name in enumerate(names):
                if i in kept:
                    f *= cells[:, i] == place[i]
                elif dropna and PLAN[name].space.tag == "nullable":
                    f *= cells[:, i] != sizes[i] - 1
            u = (f @ inverse)[rows]
            assert estimate[place] == pytest.approx(u.sum(), rel=1e-8, abs=1e-6)
            assert variance[place] == pytest.approx(max((u**2).sum() - u.sum(), 0), rel=1e-6, abs=1e-6)


def test_bins_of_a_grouped_column_are_sums_of_its_cells():
    """A bin's indicator is a sum of cells': so are the unbiased counts, and a fit on unit bins is one on cells."""
    names, bounds = ["wage", "sex"], [0, 2, 5, 9]
    binned = ONE.joint(names, bins={"wage": bounds}, method="inverse")["estimate"].to_numpy().reshape(3, 2)
    plain = ONE.joint(names, method="inverse")["estimate"].to_numpy().reshape(10, 2)
    np.testing.assert_allclose(binned, np.add.reduceat(plain, [0, 2, 5]), rtol=1e-9, atol=1e-6)
    alone = ONE.value_counts("wage", bins=bounds, sort=False, method="inverse")["estimate"]
    single = ONE.value_counts("wage", sort=False)["estimate"].to_numpy()
    np.testing.assert_allclose(alone, np.add.reduceat(single, [0, 2, 5]), rtol=1e-9, atol=1e-6)
    unit = join_axes([make_axis(PLAN["wage"], 10), make_axis(PLAN["sex"], None)], PLAN.groups)
    listed = readings.axes_of(PLAN, names)
    np.testing.assert_array_equal(readings.counts_of(SAFE, unit), readings.counts_of(SAFE, listed))
    wide = join_axes([make_axis(PLAN["wage"], bounds), make_axis(PLAN["sex"], None)], PLAN.groups)
    flat = np.add.reduceat(np.eye(10), [0, 2, 5])
    uniform = flat.T / flat.sum(axis=1)
    for cell in range(6):
        t = np.zeros((3, 2))
        t[divmod(cell, 2)] = 1
        expected = flat @ JointDomain(tuple(listed)).spread(uniform @ t)
        np.testing.assert_allclose(JointDomain(tuple(wide)).spread(t), expected, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(wide[0].channel @ t.sum(axis=1), expected.sum(axis=1), rtol=1e-10)
    assert wide[0].present.tolist() == pytest.approx([1.0] * 3)


def test_one_axis_of_a_group_is_its_marginal():
    axes = readings.axes_of(PLAN, ["job", "sex"])
    counts = readings.counts_of(SAFE, axes).sum(axis=1)
    own = make_axis(PLAN["job"], None)
    for squared in (False, True):
        np.testing.assert_allclose(axes[0].invert(counts, squared=squared), own.invert(counts, squared=squared))
    np.testing.assert_allclose(axes[0].present, own.present)
    np.testing.assert_allclose(axes[0].channel, own.channel)
    np.testing.assert_allclose(JointDomain((own,)).sums(counts), own.invert(counts))


# Moments, against dense linear algebra


def moment(names, functions):
    """Return the surrogate, at every row, of a product of functions of codes."""
    inverse, cells, sizes = dense(names)
    f = np.ones(len(cells))
    for i, function in enumerate(functions):
        f = f * function(cells[:, i])
    return (f @ inverse)[np.ravel_multi_index([CODES[name] for name in names], sizes)]


def test_product_moments_are_those_of_the_dense_inverse():
    functions = {
        "wage": moments.Scale.of(PLAN["wage"]).power,
        "sex": lambda x, power: ((x == 1) * 2.0) ** power,
        "grade": lambda x, power: np.sqrt(x + 0.5) ** power,
        "job": lambda x, power: (x + 1.0) ** power,
    }
    terms = [
        {"wage": 1, "sex": 1},
        {"sex": 2, "grade": 1, "wage": 0},
        {"job": 1, "wage": 2, "sex": 1, "grade": 3},
        {"grade": 1},
        {"sex": 1},
    ]

    def factors(powers):
        return {name: (functions[name], power) for name, power in powers.items()}

    def truth(powers):
        return moment(list(powers), [lambda x, f=f, power=power: f(x, power) for f, power in factors(powers).values()])

    columns = {name: PLAN[name] for name in PLAN.names}
    sums = surrogates.product_sums({0: list(map(factors, terms))}, columns, [CODES], PLAN.groups)[0]
    values = np.stack(list(map(truth, terms)))
    np.testing.assert_allclose(sums.first, values.sum(axis=1), rtol=1e-8)
    np.testing.assert_allclose(sums.second, values @ values.T, rtol=1e-8)
    for i, j in itertools.combinations_with_replacement(range(len(terms)), 2):
        names = {**terms[i], **terms[j]}
        u = truth({name: terms[i].get(name, 0) + terms[j].get(name, 0) for name in names})
        assert sums.of_products[i, j] == pytest.approx(u.sum(), rel=1e-7, abs=1e-5)
    # A pass over some columns of a group reads no others.
    some = {"sex": 1, "job": 1}
    codes = {name: CODES[name] for name in some}
    (first,) = surrogates.product_sums({0: [factors(some)]}, {n: PLAN[n] for n in some}, [codes], PLAN.groups)[0].first
    assert first == pytest.approx(truth(some).sum(), rel=1e-8)


@pytest.mark.parametrize("by", ["sex", "job", "grade"])
@pytest.mark.parametrize("target", ["table", "population"])
def test_group_means_are_those_of_the_dense_inverse(by, target):
    found = ONE.mean("wage", by=by, method="inverse", target=target)
    for g in range(len(found)):
        inside = moment(["wage", by], [lambda x: 1.0 * x, lambda y, g=g: y == g])
        count = moment(["wage", by], [lambda x: np.ones(len(x)), lambda y, g=g: y == g])
        r = inside.sum() / count.sum()
        assert found["estimate"].iloc[g] == pytest.approx(r, rel=1e-8)
        u = moment(["wage", by], [lambda x, r=r: x - r, lambda y, g=g: y == g])
        square = (u**2).sum()
        if target == "table":
            square -= moment(["wage", by], [lambda x, r=r: (x - r) ** 2, lambda y, g=g: y == g]).sum()
        delta_method = math.sqrt(square) / count.sum()
        # Fieller's interval is a little wider, by how uncertain the number of rows is.
        assert delta_method * (1 - 1e-6) <= found["std_error"].iloc[g] <= delta_method * 1.1


def test_means_by_bins_within_a_group():
    spaces = {"wage": (0, 9), "age": (0, 11), "sex": dpf.Categorical([0, 1])}
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": rng.integers(0, 12, 3_000)})
    frame["wage"] = np.clip(frame["age"] // 2 + rng.integers(0, 3, 3_000), 0, 9)
    frame["sex"] = rng.integers(0, 2, 3_000)
    groups = [("age", "wage")]
    e = dpf.Estimates(dpf.sanitize(frame, epsilon=9, spaces=spaces, groups=groups, measure=None, key=KEY))
    found = e.mean("wage", by="age", bins=[0, 4, 12])
    truth = frame.groupby(frame["age"] >= 4)["wage"].mean().to_numpy()
    assert (np.abs(found["estimate"] - truth) < 4 * found["std_error"]).all()  # fixed key; by chance 1.3e-4
    assert (found["std_error"] < 0.1).all()
    matrix = e.corr(["age", "wage"])
    assert matrix.loc["age", ("estimate", "wage")] == pytest.approx(frame["age"].corr(frame["wage"]), abs=0.1)
    with pytest.raises(dpf.ParameterError, match="a column cannot be grouped by itself"):
        e.mean("wage", by="wage")


# Likelihood


def test_the_channel_of_a_joint_is_the_dense_one():
    names = ["sex", "grade", "job"]
    inverse, cells, sizes = dense(names)
    matrix, channel = np.linalg.inv(inverse), JointDomain(tuple(readings.axes_of(PLAN, names)))
    t = np.random.default_rng(0).random(sizes)
    np.testing.assert_allclose(channel.spread(t).ravel(), matrix @ t.ravel(), rtol=1e-9)
    np.testing.assert_allclose(channel.adjoint(t).ravel(), matrix.T @ t.ravel(), rtol=1e-9)
    # A million rows of one cell: within 5 deviations in each of 24 classes (error probability 1.4e-5).
    rows = np.zeros(sizes, dtype=np.int64)
    rows[1, 2, 0] = 1_000_000
    drawn = channel.randomise(rows, np.random.default_rng(1)).ravel()
    law = matrix[:, int(np.ravel_multi_index((1, 2, 0), sizes))]
    assert (np.abs(drawn - 1e6 * law) < 5 * np.sqrt(1e6 * law * (1 - law))).all()
    assert (drawn.sum(), len(cells)) == (1_000_000, 24)


def test_the_fit_of_a_grouped_joint_is_the_most_likely_one():
    axes = readings.axes_of(PLAN, ["sex", "grade", "job"])
    counts, channel = readings.counts_of(SAFE, axes), JointDomain(tuple(axes))
    # Of so many more rows less than a millionth of the likelihood is left to gain when a fit ends.
    shares = Shares.of(channel).fitted(Seen.of(counts * 1e5), max_steps=20_000)[..., 0]
    gradient = channel.adjoint(counts / counts.sum() / channel.spread(shares))
    assert gradient.max() <= 1 + 1e-6
    assert gradient[shares > 1e-6] == pytest.approx(1, abs=1e-3)
    assert fit_joint(counts, channel).sum() == pytest.approx(1)
    for truth, noisy in refits(shares, channel, 4_000, np.asarray, 0.0, 2):
        assert noisy.sum() == pytest.approx(truth.sum() * noisy.sum())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["project", "em", "model", "auto", "inverse"])
def test_every_method_knows_groups(method):
    """Total error of all shares of three joints; that of unadjusted counts is 0.6 to 1.1."""
    for names in (["sex", "job"], ["sex", "job", "grade"], ["wage", "sex"]):
        found = ONE.joint(names, method=method, normalize=True, dropna=False)
        truth = TABLE.groupby(names, dropna=False).size() / len(TABLE)
        index = found.index.set_names(names)
        truth = truth.reindex(index) if "job" not in names else _with_nulls(truth, names)
        assert np.abs(found["estimate"].to_numpy() - truth.fillna(0).to_numpy()).sum() < 0.35
        assert (found["std_error"] > 0).all()


def _with_nulls(truth, names):
    labels = [PLAN[name].space.labels() for name in names]
    plain = {tuple(None if pd.isna(v) else v for v in key): share for key, share in truth.items()}
    return pd.Series([plain.get(key, 0.0) for key in itertools.product(*labels)])


def pairs_of(drawn, sizes):
    return {
        (a, b): np.histogram2d(drawn[a], drawn[b], [np.arange(sizes[a] + 1), np.arange(sizes[b] + 1)])[0]
        for a, b in itertools.combinations(range(len(sizes)), 2)
    }


def test_the_fit_recovers_grouped_columns():
    """A known mixture of two classes, columns 0 and 2 randomised together: fitted joints within 0.03 in total."""
    weights, laws = (
        np.array([0.4, 0.6]),
        [[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [[0.8, 0.2], [0.3, 0.7]]],
    )
    truth = Mixture(weights, tuple(np.array(law) for law in laws))
    other, signal, n, rng = RandomizedResponse(3, 2.0), 0.6, 400_000, np.random.default_rng(5)
    channels = (np.full((2, 2), 0.2) + 0.6 * np.eye(2), other.transition(), np.full((2, 2), 0.2) + 0.6 * np.eye(2))
    hidden = (rng.random(n) < 0.6).astype(int)
    drawn = [(rng.random(n)[:, None] > np.cumsum(np.array(law)[hidden], axis=1)).sum(axis=1) for law in laws]
    drawn[1] = other.sample(drawn[1], Keystream(KEY).column("x"))
    lost = rng.random(n) >= signal
    for c in (0, 2):
        drawn[c][lost] = rng.integers(0, 2, lost.sum())
    pairs = pairs_of(drawn, (2, 3, 2))
    rows = tuple(row_table(pair, pairs[pair], [channels[c] for c in pair]) for pair in ((0, 1), (1, 2)))
    counts, variances = NoiseBlock(signal).pair(pairs[0, 2], np.full((2, 2), 0.25))
    together = NoisyCounts((0, 2), counts, variances)
    fitted = fit_tables(Evidence(n, (2, 3, 2), (together, *rows)))
    for columns in ((0, 2), (0, 1), (1, 2)):
        assert np.abs(fitted.joint(columns) - truth.joint(columns)).sum() < 0.03
    wrong = row_table((0, 2), pairs[0, 2], [channels[0], channels[2]])
    wrong = fit_tables(Evidence(n, (2, 3, 2), (*rows, wrong)))
    assert np.abs(wrong.joint((0, 2)) - truth.joint((0, 2))).sum() > 0.05


def test_counts_of_a_pair_randomised_together_are_unbiased_with_their_variance():
    """400 releases of a table of 60 rows: means within 4.5 standard errors, variances of all cells within 15 %."""
    table, signal, rng = np.array([[30, 6, 4], [2, 10, 8]]), 0.4, np.random.default_rng(6)
    found = []
    for _ in range(400):
        kept = rng.binomial(table, signal)
        released = kept + rng.multinomial((table - kept).sum(), np.full(6, 1 / 6)).reshape(2, 3)
        found.append(NoiseBlock(signal).pair(released.astype(float), np.full((2, 3), 1 / 6)))
    counts, variances = (np.array(part) for part in zip(*found, strict=True))
    errors = counts.std(axis=0) / math.sqrt(400)
    assert (np.abs(counts.mean(axis=0) - table) < 4.5 * errors).all()
    assert variances.mean(axis=0).sum() == pytest.approx(counts.var(axis=0).sum(), rel=0.15)


# Forecasts and intervals


def test_forecast_of_a_group_is_the_dense_one():
    shares = {name: np.arange(1, k + 1) / (k * (k + 1) / 2) for name, k in (("sex", 2), ("job", 4), ("grade", 3))}
    table = PLAN.forecast(1_000, shares)
    for columns in (["sex", "job"], ["sex", "grade"], ["job", "grade"]):
        inverse, cells, _ = dense(columns)
        t = np.prod([shares[name][cells[:, i]] for i, name in enumerate(columns)], axis=0)
        variance = ((inverse**2) @ (np.linalg.inv(inverse) @ t) - t) / 1_000
        row = table.loc[("joint", " × ".join(columns))]
        assert row["std_error"] == pytest.approx(math.sqrt(variance.mean()), rel=1e-8)
    split = build_plan(SPACES, epsilon=9).forecast(1_000, shares)
    apart = table.loc["marginal"]["split_error"]
    np.testing.assert_allclose(apart, split.loc["marginal"]["std_error"], rtol=1e-6)
    assert (
        table.loc[("joint", "wage × sex × job"), "std_error"] < table.loc[("joint", "wage × sex × job"), "split_error"]
    )
    assert table.loc[("mean", "wage"), "split_error"] == pytest.approx(
        split.loc[("mean", "wage"), "std_error"], rel=1e-6
    )
    assert "split_error" not in split


def test_forecast_of_a_large_group_needs_no_matrix():
    plan = build_plan({"a": (0, 99), "b": (0, 99), "c": (0, 9)}, epsilon=3, groups=[("a", "b", "c")])
    row = plan.forecast(10**6).loc[("joint", "a × b × c")]
    p, s = plan.groups[0].mechanism.other, plan.groups[0].mechanism.table.signal
    law = s / 1e5 + p
    variance = (law * (1 - p) ** 2 + (1 - law) * p**2) / s**2 - 1e-5
    assert row["std_error"] == pytest.approx(math.sqrt(variance / 10**6), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["table", "population"])
def test_intervals_cover(target):
    """40 releases with fixed keys, 95 % intervals of all cells with at least 60 rows, within a group and across.

    Bounds are 5 deviations of a share of 40 releases as if a release's cells were one (error probability
    3e-4 at most for each of eight statistics, were the coverage 0.95 exactly); estimates are unbiased within 5
    deviations in each of some 90 cells and numbers (5e-5).
    """
    spaces = {"sex": ["F", "M"], "job": SPACES["job"], "wage": (0, 5), "grade": ["a", "b", "c"]}
    plan = build_plan(spaces, epsilon=10, groups=[("job", "wage", "sex")])
    people = table_of(3_000, seed=11).assign(wage=lambda t: t["wage"].clip(0, 5))
    codes = {c.name: c.space.encode(people[c.name]) for c in plan.columns}
    hits, points, truth = {}, {}, dict(_statistics_of_table(people))
    rng = np.random.default_rng(1)
    for i in range(40):
        rows = rng.integers(0, len(people), len(people)) if target == "population" else slice(None)
        out = release({k: v[rows] for k, v in codes.items()}, plan, (i + 1).to_bytes(32, "big"))
        arrays = pa.table({c.name: c.space.decode(out[c.name]) for c in plan.columns})
        for name, found in _statistics(dpf.Estimates(arrays, plan), target):
            value = truth[name]
            hits.setdefault(name, []).append(((found["lower"] <= value) & (value <= found["upper"])).mean())
            points.setdefault(name, []).append(found["estimate"].to_numpy(float))
    for name, found in hits.items():
        assert abs(np.mean(found) - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 40), (name, np.mean(found))
        many = np.stack(points[name])
        error = many.mean(axis=0) - truth[name]
        assert (np.abs(error) < 5 * many.std(axis=0) / math.sqrt(40)).all(), name


def _statistics(e, target):
    yield "pair", e.joint(["sex", "job"], method="inverse", target=target)
    yield "triple", e.joint(["wage", "grade", "sex"], method="inverse", target=target).iloc[:12] / e.n
    yield "given", e.joint(["sex", "job"], given="sex", method="inverse", target=target)
    yield "marginal", e.value_counts("job", sort=False, target=target)
    yield "mean", e.mean("wage", target=target).to_frame().T
    yield "group means", e.mean("wage", by="sex", target=target)
    yield "means across", e.mean("wage", by="grade", target=target).iloc[:2]
    yield "nulls", e.null_rate("job", target=target).to_frame().T


def _statistics_of_table(t):
    order = [("F", "M"), ("clerk", "nurse", "smith")]
    pair = pd.crosstab(t["sex"], t["job"]).loc[list(order[0]), list(order[1])].to_numpy(float)
    yield "pair", pair.ravel()
    cells = t.groupby(["wage", "grade", "sex"]).size() / len(t)
    yield "triple", np.array([cells.get(k, 0.0) for k in itertools.product(range(6), "abc", "FM")])[:12]
    yield "given", (pair / pair.sum(axis=1, keepdims=True)).ravel()
    yield "marginal", pair.sum(axis=0)
    yield "mean", np.array([t["wage"].mean()])
    yield "group means", t.groupby("sex")["wage"].mean().to_numpy()
    yield "means across", t.groupby("grade")["wage"].mean().to_numpy()[:2]
    yield "nulls", np.array([t["job"].isna().mean()])


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_grouping_wins_on_adult_as_forecast(adult, adult_spaces, epsilon):
    """Root mean squared error of sex × income × race over 30 keys, grouped and split, beside the forecast.

    A mean of squares over 30 releases of 20 cells, most of them alike: the ratio stays within 0.75 … 1.3
    (5 deviations of 30 squares of one normal each would be 1 ± 1.3; cells are nearly independent: 0.29).
    """
    names = ["sex", "income", "race"]
    frame, spaces = adult[names], {name: adult_spaces[name] for name in names}
    codes = {name: spaces[name].encode(frame[name]) for name in names}
    found = {}
    for groups in ((), (tuple(names),)):
        plan = build_plan(spaces, epsilon=epsilon, groups=groups, n=len(frame))
        types = {c.name: np.bincount(codes[c.name], minlength=c.space.size) / len(frame) for c in plan.columns}
        axes = join_axes([make_axis(c, None) for c in plan.columns], plan.groups)
        truth, squares = surrogates.count_classes(axes, [codes]) / len(frame), []
        for i in range(30):
            counts = surrogates.count_classes(axes, [release(codes, plan, (i + 1).to_bytes(32, "big"))])
            squares.append(((JointDomain(tuple(axes)).sums(counts) / len(frame) - truth) ** 2).mean())
        found[groups] = math.sqrt(np.mean(squares))
        if groups:
            row = plan.forecast(types=types).loc[("joint", "sex × income × race")]
    split, grouped = found.values()
    assert 0.75 < grouped / row["std_error"] < 1.3
    assert 0.75 < split / row["split_error"] < 1.3
    assert grouped < split / 3


def test_ungrouped_columns_keep_their_channel():
    plan = build_plan(SPACES, epsilon=4, groups=[("sex", "job")])
    assert isinstance(plan["wage"].mechanism, Geometric)
    assert plan["wage"].mechanism == build_plan(SPACES, epsilon=4)["wage"].mechanism


def test_names_with_line_breaks_keep_their_line():
    plan = build_plan({"a\nb": [1, 2], "c": [1, 2]}, epsilon=1, groups=[("a\nb", "c")])
    assert plan.units[0].label == "'a\\nb' × c"
    assert "Randomised together, one epsilon for all: 'a\\nb', c" in plan.lines()
    refused(
        dpf.ParameterError,
        r"group 'a\\nb' × c: epsilon=.* is too small",
        lambda: build_plan({"a\nb": [1, 2], "c": [1, 2]}, epsilon=1e-20, groups=[("a\nb", "c")]),
    )


def test_stretches_of_a_gamma_diagonal_channel():
    for mechanism, edges in (
        (GammaDiagonal((12, 3), 2.0, 0.0, (0,)), [0, 3, 4, 11]),
        (RandomizedResponse(9, 1.0), [0, 9]),
    ):
        starts = np.array([0, 2, 5])
        found = mechanism.between(np.array(edges), starts)
        np.testing.assert_allclose(found, Mechanism.between(mechanism, np.array(edges), starts), rtol=1e-12)
        np.testing.assert_allclose(found.sum(axis=0), 1)


@pytest.mark.slow
def test_histograms_and_quantiles_of_a_grouped_column():
    """Of 40,000 rows, at a budget that leaves little noise: within a fifth of the column's spread."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"age": np.clip(rng.normal(40, 12, 40_000), 0, 4_999).astype(int), "sex": rng.integers(0, 2, 40_000)}
    )
    e = dpf.Estimates(
        dpf.sanitize(
            frame,
            epsilon=14,
            spaces={"age": (0, 4_999), "sex": dpf.Categorical([0, 1])},
            groups=[("age", "sex")],
            key=KEY,
        )
    )
    assert e.mean("age")["estimate"] == pytest.approx(40, abs=3)
    found = e.histogram("age", [0, 100, 5_000])
    assert found["estimate"].iloc[0] == pytest.approx(40_000, rel=0.02)
    assert (e.crosstab("sex", "age", bins={"age": [0, 100, 5_000]})["estimate"].to_numpy()[:, 0] > 18_000).all()
    table = e.crosstab("sex", "age", margins=True, bins={"age": [0, 100, 5_000]}, method="inverse")["estimate"]
    assert table.loc["All", "All"] == pytest.approx(40_000)
    np.testing.assert_allclose(table.iloc[:2, :2].sum(axis=1), table["All"].iloc[:2], rtol=1e-9)


def test_a_release_that_lost_a_column_of_a_group():
    rest = dpf.Estimates(SAFE.drop(columns="wage"), PLAN)
    for method in ("inverse", "em"):
        pd.testing.assert_frame_equal(
            rest.joint(["sex", "job"], method=method), ONE.joint(["sex", "job"], method=method)
        )
    fit = readings.models_of(SAFE.drop(columns="wage"), PLAN).around(["sex", "job"])
    assert (0, 1) in fit.evidence.pairs
    assert np.isfinite(rest.joint(["sex", "job"], method="model")["estimate"]).all()


def test_totals_are_exact():
    table = ONE.crosstab("wage", "sex", margins=True, method="inverse")
    assert table["estimate"].loc["All", "All"] == len(TABLE)
    assert table["std_error"].loc["All", "All"] == 0


def test_the_noise_of_a_group_is_that_of_its_first_column():
    codes, group = {c.name: c.space.encode(TABLE[c.name]) for c in PLAN.columns}, PLAN.groups[0]
    stream = Keystream(KEY, PLAN.digest).column("wage")
    expected = group.mechanism.sample_columns([codes[name] for name in group.names], stream)
    found = release(codes, PLAN, KEY)
    assert list(found) == list(PLAN.names)
    for name, column in zip(group.names, expected, strict=True):
        np.testing.assert_array_equal(found[name], column)


def test_the_model_of_a_release_knows_groups():
    """Two columns agree in 3 of 4 rows; taken for independent, their noise would make that all rows.

    Of 20,000 rows half keep their pair: the share has an error of 0.007, and 0.04 is more than 5 of it.
    """
    rng = np.random.default_rng(8)
    a, c = rng.integers(0, 2, (2, 20_000))
    frame = pd.DataFrame({"a": a, "b": a ^ (rng.random(20_000) < 0.25), "c": c})
    spaces = {name: dpf.Categorical([0, 1]) for name in "abc"}
    pure = {"epsilon": 1.5 * math.log(5), "delta": 0.0}
    e = dpf.Estimates(dpf.sanitize(frame, **pure, spaces=spaces, groups=[("a", "b")], key=KEY))
    assert e.plan.groups[0].mechanism.table.signal == pytest.approx(0.5, rel=1e-3)
    shares = e.joint(["b", "a"], method="model", normalize=True)["estimate"]
    assert shares.loc[[(0, 0), (1, 1)]].sum() == pytest.approx((frame["a"] == frame["b"]).mean(), abs=0.04)


def test_a_group_has_a_channel_for_tuples_only():
    with pytest.raises(dpf.errors.PlanError, match=r"group a × b:.*must be gamma_diagonal"):
        Group(("a", "b"), Product([1, 2], [1, 2]), RandomizedResponse(4, 1.0))
