"""No two planes of noise of one release share a word: tables of all kinds and sizes, columns, order, sample, cuts."""

from itertools import combinations

from dpframe import Budget, Categorical, Integer, Nullable, Real, Subset
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.plan.measuring import Workload
from dpframe.release.noisy_tables import Tables

KEY = bytes(range(32))
SPACES = {
    "sex": Categorical(["F", "M"]),
    "home": Nullable(Categorical(["own", "let"])),
    "age": Integer(0, 99),
    "income": Real(0.0, 1e5),
    "tags": Subset(list("abcdef"), 2),
}
WORDS = 2_000


def test_no_two_planes_share_a_word():
    """56,000 words of 64 bits in all: two are equal by chance with probability below 1e-10."""
    n = 10**6
    measures = Workload("auto").measures(SPACES, Budget(1.0, 1e-6), None, n, 1)
    assert {len(m.columns) for m in measures} == {1, 2, 3}
    assert {m.level for m in measures} >= {0, 1, 2}
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=n, measures=measures)
    tables, keys = Tables(plan, KEY), Keystream(KEY, plan.digest)
    planes = [tables.stream(m.kind, m.columns, m.level) for m in measures]
    planes += [tables.stream("cut", ("tags",))]
    planes += [keys.column(name) for name in plan.names]
    planes += [keys.column("", domain) for domain in ("order", "sample")]
    seen = [frozenset(plane.words(0, 0, WORDS).tolist()) for plane in planes]
    assert all(not one & other for one, other in combinations(seen, 2))
    assert sum(map(len, seen)) == len(planes) * WORDS
