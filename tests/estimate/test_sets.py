"""Supports, pairs and sizes of sets: unbiased, with honest errors, against brute force over the exact law."""

from __future__ import annotations

import itertools
import json
import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import readings
import stand_ins
from checks import refused
from conftest import DATA, KEY
from scipy import stats

import dpframe as dpf
from dpframe import Column
from dpframe.channels import AsymmetricBitFlip, BitFlip, NullableSetResponse, SetResponse, WithNull
from dpframe.cli import main
from dpframe.errors import ParameterError
from dpframe.estimate import sets
from dpframe.plan.build import build_plan

ITEMS = ["art", "bingo", "chess", "darts", "elks", "fado"]
SPACE = dpf.Subset(ITEMS, max_size=3)
mpl.use("Agg")


def channels():
    return [
        (SPACE, BitFlip(6, 3, 14.0)),
        (SPACE, AsymmetricBitFlip(6, 3, 4.0)),
        (dpf.Nullable(SPACE), WithNull(BitFlip, (6, 3), 4.0)),
        (SPACE, SetResponse(6, 3, 3.0)),
        (dpf.Nullable(SPACE), NullableSetResponse(6, 3, 3.0)),
    ]


@pytest.mark.parametrize(("space", "mechanism"), channels(), ids=lambda v: getattr(v, "tag", ""))
@pytest.mark.parametrize("normalize", [False, True])
def test_estimates_of_the_expected_release_are_the_truth(space, mechanism, normalize):
    """Feed each released set as often as the exact law says: every linear estimate must be exact (to rounding)."""
    rng = np.random.default_rng(0)
    valid = [x for x in range(64) if x.bit_count() <= 3] + ([64] if space.tag == "nullable" else [])
    rows = rng.integers(1, 30, len(valid))
    expected = sum(mechanism.law(x) * n for x, n in zip(valid, rows, strict=True))
    mine = sets.SetColumn.of(Column("x", space, mechanism))
    released = space.code_array(range(space.size))
    weighted = _Weighted(mine, released, expected)
    present = sum(n for x, n in zip(valid, rows, strict=True) if x != 64)
    whole = present if normalize else 1

    def truth(*items):
        return sum(n for x, n in zip(valid, rows, strict=True) if all(x >> i & 1 for i in items)) / whole

    found, variance = mine.of_items(weighted.shown, weighted.sets, weighted.nulls).share(normalize, 0.0)
    np.testing.assert_allclose(found, [truth(i) for i in range(6)], rtol=1e-9)
    y, single, (w, w0) = np.arange(space.size), mine.single, mine.weights
    for i in range(6):  # the estimate's variance given the table, from the law itself
        u = np.where(y == 64, single.at_null, single.values[y >> i & 1])
        v = u - truth(i) * np.where(y == 64, w0, w) * normalize
        laws = [mechanism.law(x) for x in valid]
        exact = sum(n * (law @ v**2 - (law @ v) ** 2) for law, n in zip(laws, rows, strict=True)) / whole**2
        assert variance[i] == pytest.approx(exact, rel=1e-9)
    found, _ = mine.of_pairs(weighted.both, weighted.sets, weighted.nulls).share(normalize, 0.0)
    np.testing.assert_allclose(found, [[truth(i, j) for i in range(6)] for j in range(6)], rtol=1e-8, atol=1e-9)
    sizes = sets.SetSizes(mine, weighted.sizes)
    np.testing.assert_allclose(sizes.matrix @ _sizes(valid, rows), weighted.sizes, rtol=1e-9)
    mean = sum(n * x.bit_count() for x, n in zip(valid, rows, strict=True) if x != 64) / present
    assert sizes.mean(0.0)[0] == pytest.approx(mean, rel=1e-9)


class _Weighted:
    """Counts of a release in which every set occurs as often as is expected."""

    def __init__(self, mine, released, expected):
        bits = np.stack([(np.arange(len(expected)) >> i & 1) for i in range(6)], axis=1)[:64].astype(float)
        weights = expected[:64]
        self.shown = weights @ bits
        self.both = (bits * weights[:, None]).T @ bits
        self.sets, self.nulls = weights.sum(), expected[64:].sum()
        self.sizes = np.bincount(bits.sum(axis=1).astype(int), weights=weights, minlength=7)
        if len(expected) > 64:
            self.sizes = np.append(self.sizes, self.nulls)


def _sizes(valid, rows):
    found = np.zeros(4 + (64 in valid))
    for x, n in zip(valid, rows, strict=True):
        found[4 if x == 64 else x.bit_count()] += n
    return found


def sanitized(space, mechanism, lists, key=KEY, **columns):
    """Release a column of sets, beside others that are declared."""
    spaces = {name: declared for name, (_, declared) in columns.items()}
    plan = build_plan({"x": space, **spaces}, epsilon=60.0, mechanisms={"x": mechanism})
    table = pa.table({"x": pa.array(lists, pa.list_(pa.string()))} | {name: v for name, (v, _) in columns.items()})
    return dpf.sanitize(table, plan=plan, key=key)


def released(*options):
    return dpf.Estimates(sanitized(*options))


@pytest.fixture(scope="module")
def lists():
    """Sets of up to three items that come in company: bingo goes with art."""
    rng = np.random.default_rng(1)
    drawn = rng.random((3_000, 6)) < [0.5, 0.1, 0.25, 0.05, 0.02, 0.0]
    drawn[:, 1] = drawn[:, 0] & (rng.random(3_000) < 0.6)
    return [[item for item, held in zip(ITEMS, row, strict=True) if held][:3] for row in drawn]


def mean_size(safe, column, target):
    """Return the mean size of sets and its standard error, without the fit of `set_sizes`."""
    sizes = sets.SetSizes.of(sets.SetColumn.of(column), [readings.codes_of(safe, ["x"])])
    (mean,), (variance,) = sizes.mean(float(target == "population"))
    return mean, np.sqrt(variance)


def statistics(safe, target):
    """Return every estimate and its standard error as one vector: counts, as shares are cut to [0, 1]."""
    estimates = dpf.Estimates(safe)
    wide = [
        estimates.support("x", normalize=False, target=target),
        estimates.support("x", ["art", "bingo"], normalize=False, target=target),
        estimates.support("x", ["bingo", "art", "elks"], normalize=False, target=target),
        estimates.cooccurrence("x", ["art", "bingo", "chess"], target=target),
        estimates.cooccurrence("x", target=target),
        estimates.support("x", by="g", target=target),
        estimates.support("x", ["art", "bingo"], by="g", target=target),
    ]
    mine = sets.SetColumn.of(estimates.plan["x"])
    size, error = mean_size(safe, estimates.plan["x"], target)
    ends = {"estimate": [size], "std_error": [error]}
    if mine.has_null:
        rate = estimates.null_rate("x", target=target)
        ends = {name: [*values, rate[name]] for name, values in ends.items()}
    return tuple(
        np.array([*itertools.chain.from_iterable(table[name].to_numpy().ravel() for table in wide), *end])
        for name, end in ends.items()
    )


def truths(lists, groups):
    """Return the same of the original sets, nulls left out."""
    frame = pd.DataFrame([[i in (v or []) for i in ITEMS] for v in lists], columns=ITEMS).astype(float)
    present = np.array([v is not None for v in lists])
    pair = frame[["art", "bingo"]].prod(axis=1)

    def within(column):
        return [column[present & (groups == g)].mean() for g in ("u", "v")]

    three = frame[["art", "bingo", "chess"]].to_numpy()
    return np.array(
        [
            *frame.sum(),
            pair.sum(),
            frame[["art", "bingo", "elks"]].prod(axis=1).sum(),
            *(three.T @ three).ravel(),
            *(frame.to_numpy().T @ frame.to_numpy()).ravel(),
            *itertools.chain.from_iterable(within(frame[i]) for i in ITEMS),
            *within(pair),
            frame[present].sum(axis=1).mean(),
            *[1 - present.mean()] * (not present.all()),
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("space", "mechanism"), channels(), ids=lambda v: getattr(v, "tag", ""))
def test_intervals_cover_the_table(space, mechanism, lists):
    """Over 40 keys each statistic is unbiased and its error is right.

    The mean over keys is within 4.8 standard errors of the truth, which about 80 statistics of 3 channels miss with
    probability 4e-4 together; the mean square of (estimate − truth)/std_error, near χ²₄₀/40, lies in 0.33…2.2
    (below and above with probability 2e-5 each); and of all intervals 93 to 97 % cover.
    """
    groups = np.where(np.random.default_rng(2).random(len(lists)) < 0.3, "u", "v")
    given = [None if i % 11 == 0 else v for i, v in enumerate(lists)] if space.tag == "nullable" else lists
    truth, scores = truths(given, groups), []
    for k in range(40):
        group = pa.array(groups)
        key = bytes([k]) * 32
        found, errors = statistics(sanitized(space, mechanism, given, key, g=(group, ["u", "v"])), "table")
        scores.append((found - truth) / errors)
    scores = np.array(scores)
    assert np.abs(scores.mean(axis=0)).max() < 4.8 / np.sqrt(40)
    squares = (scores**2).mean(axis=0)
    assert squares.min() > 0.25  # shares within groups are cut at 0
    assert squares.max() < 2.2
    assert 0.93 < (np.abs(scores) < 1.96).mean() < 0.97


@pytest.mark.slow
def test_the_population_is_estimated_from_a_sample(lists):
    """Of rows drawn anew each time the wider errors are right; margins as above, over 60 draws."""
    population = np.array([0.5, 0.3, 0.25, 0.05, 0.02, 0.0])
    space, mechanism = dpf.Subset(ITEMS), BitFlip(6, None, 12.0)
    scores = []
    for k in range(60):
        rng = np.random.default_rng(k)
        drawn = rng.random((400, 6)) < population
        sample = [[item for item, held in zip(ITEMS, row, strict=True) if held] for row in drawn]
        safe = sanitized(space, mechanism, sample, bytes([k]) * 32)
        e = dpf.Estimates(safe)
        # Counts, which are not cut as shares are, over the 400 rows.
        table = e.support("x", normalize=False, target="population") / 400
        pair = e.support("x", ["art", "bingo"], normalize=False, target="population") / 400
        size, error = mean_size(safe, e.plan["x"], "population")
        score = [
            *((table["estimate"] - population) / table["std_error"]),
            *((pair["estimate"] - 0.15) / pair["std_error"]),
        ]
        scores.append([*score, (size - population.sum()) / error])
        assert e.support("x").loc["art", "std_error"] < e.support("x", target="population").loc["art", "std_error"]
    scores = np.array(scores)
    assert np.abs(scores.mean(axis=0)).max() < 4.8 / np.sqrt(60)
    squares = (scores**2).mean(axis=0)
    assert (squares > 0.45).all()
    assert (squares < 1.95).all()


@pytest.mark.parametrize(("space", "mechanism"), channels(), ids=lambda v: getattr(v, "tag", ""))
def test_set_sizes(space, mechanism, lists):
    given = [None if i % 11 == 0 else v for i, v in enumerate(lists)] if space.tag == "nullable" else lists
    e = released(space, mechanism, given)
    table = e.set_sizes("x")
    truth = np.bincount([len(v) for v in given if v is not None], minlength=4)
    assert table.index.tolist() == [0, 1, 2, 3]
    assert (np.abs(table["estimate"] - truth) < 4 * table["std_error"] + 1).all()
    shares = e.set_sizes("x", normalize=True)
    assert shares["estimate"].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(table["estimate"] / table["estimate"].sum(), shares["estimate"], rtol=1e-6)
    json.dumps(table.attrs)


def test_what_sets_are_not_asked(lists):
    e = dpf.Estimates(sanitized(SPACE, "bitflip", lists, g=(pa.array(["u", "v"] * 1_500), ["u", "v"])))
    match = "column 'x' holds sets, .* ask for support .*, cooccurrence or set_sizes"
    for call in (
        lambda: e.value_counts("x"),
        lambda: e.joint(["x", "g"]),
        lambda: e.crosstab("g", "x"),
        lambda: e.support("x", by="x"),
        lambda: e.histogram("x"),
    ):
        refused(ParameterError, match, call)
    refused(ParameterError, r"holds no numbers; support\('x'\) gives its shares", lambda: e.mean("x"))
    refused(ParameterError, "holds no sets; value_counts", lambda: e.cooccurrence("g"))
    refused(ParameterError, "holds no sets; value_counts", lambda: e.set_sizes("g"))
    refused(ParameterError, "holds no sets, whose support", lambda: e.support("g", ["u"]))
    refused(ParameterError, "holds no sets, whose support", lambda: e.support("g", by="x"))
    for items in ("art", ["zebra"], ["art", "art"], [], 3):
        refused(ParameterError, "items must", lambda items=items: e.support("x", items))
        refused(ParameterError, "items must", lambda items=items: e.cooccurrence("x", items))
    refused(ParameterError, "by goes with shares only", lambda: e.support("x", by="g", normalize=False))
    refused(ParameterError, "bins are for the column of by", lambda: e.support("x", bins=3))
    refused(ParameterError, "target must be", lambda: e.support("x", target="all"))
    wide = build_plan({"x": dpf.Subset(range(301))}, epsilon=1)
    safe = dpf.sanitize(pa.table({"x": pa.array([[1]] * 3)}), plan=wide)
    refused(ParameterError, "pairs at most 300 items", lambda: dpf.Estimates(safe).cooccurrence("x"))
    assert e.support("g").index.tolist() == ["u", "v"]


@pytest.mark.slow
def test_answers_look_like_pandas(lists):
    frame = pd.DataFrame({"x": lists, "g": ["u", "v"] * 1_500, "age": np.arange(3_000) % 90})
    spaces = {"x": SPACE, "g": ["u", "v"], "age": (0, 100)}
    safe = dpf.sanitize(frame, epsilon=60.0, spaces=spaces, key=KEY)
    shares = safe.dp.support("x")
    assert shares.index.tolist() == ITEMS
    assert shares.index.name == "x"
    assert list(shares) == ["estimate", "std_error", "lower", "upper"]
    assert safe.dp.support("x", ["art", "chess"]).index.tolist() == ["art & chess"]
    assert safe.dp.support("x", by="age", bins=[0, 30, 100])["estimate"].shape == (6, 2)
    crossed = safe.dp.cooccurrence("x")
    assert crossed.columns.nlevels == 2
    assert crossed["estimate"].shape == (6, 6)
    np.testing.assert_allclose(np.diag(crossed["estimate"]), shares["estimate"] * 3_000)
    assert safe.dp.set_sizes("x").index.name == "size"
    assert [label.get_text() for label in safe.dp.plot("x").get_yticklabels()] == ITEMS
    assert dpf.Estimates(safe, confidence_level=0.5).support("x")["upper"].iloc[0] < shares["upper"].iloc[0]


def test_from_the_shell(lists, tmp_path, capsys):
    pq.write_table(pa.table({"x": lists, "g": ["u", "v"] * 1_500}), tmp_path / "in.parquet")
    (tmp_path / "spaces.json").write_text(
        json.dumps({"x": {"space": "subset", "items": ITEMS, "max_size": 3}, "g": ["u", "v"]})
    )

    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main.main([str(word) for word in words])
        assert stop.value.code in (0, None), capsys.readouterr()
        return capsys.readouterr().out

    out = tmp_path / "out.parquet"
    run("sanitize", tmp_path / "in.parquet", out, "--epsilon", 9, "--spaces", tmp_path / "spaces.json")
    for words, keys, count in [
        (["support", "x"], {"x"}, 6),
        (["support", "x", "--by", "g"], {"x", "g"}, 12),
        (["cooccurrence", "x", "--normalize"], {"item", "with"}, 36),
        (["set-sizes", "x"], {"size"}, 4),
    ]:
        rows = json.loads(run("estimate", out, *words, "--json"))
        assert len(rows) == count, words
        assert set(rows[0]) == keys | {"estimate", "std_error", "lower", "upper"}, words


def test_an_empty_table_and_a_single_row():
    for rows in ([], [["art"]]):
        e = released(SPACE, "bitflip", rows)
        for table in (e.support("x"), e.support("x", ["art"]), e.cooccurrence("x"), e.set_sizes("x")):
            assert len(table) in (1, 4, 6)


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["bitflip", "asymmetric_bitflip"])
def test_groceries(tag, tmp_path):
    """9,835 baskets of 169 items to Parquet and back, five keys: intervals cover the supports of the cut baskets.

    Those of one key hang together: over 24 keys the share that covers has a standard deviation of 0.06 about 0.94, so
    that the mean of five is outside of 0.84 to 0.995 with a probability below 1e-3. Errors are those that the plan
    forecast.
    """
    path = DATA / "groceries.parquet"
    if not (whole := path.exists()):
        path = tmp_path / "groceries.parquet"
        pq.write_table(pa.table({"items": stand_ins.baskets()}), path)
    baskets = pq.read_table(path)["items"].to_pylist()
    space = dpf.Subset(sorted({item for basket in baskets for item in basket}), max_size=6)
    truth = pd.Series(0.0, index=space.items)
    for basket in baskets:
        for item in basket:
            truth[item] += min(1, 6 / len(basket)) / len(baskets)
    covered = []
    for k in range(5):
        info = dpf.sanitize(
            path, tmp_path / "out.parquet", 8.0, spaces={"items": space}, mechanisms={"items": tag}, key=bytes([k]) * 32
        )
        table = dpf.Estimates(tmp_path / "out.parquet").support("items")
        covered.append((table["lower"] <= truth) & (truth <= table["upper"]))
    # That of an item that nobody has: of groceries the rarest one is next to that, of those that stand in for them not.
    assert 0.94 < table["std_error"].min() / info.plan.forecast()["std_error"].iloc[0] < (1.06 if whole else 1.6)
    assert 0.84 < np.mean(covered) < 0.995
    top = truth.sort_values(ascending=False).index[:20]
    assert stats.spearmanr(table["estimate"][top], truth[top]).statistic > 0.5


@pytest.mark.slow
def test_the_mean_size_knows_of_large_sets_that_noise_hides() -> None:
    """Of 16 intervals 12 hold, with fixed keys; 6 where sizes that do not stand out of the noise are taken for none.

    Nine of ten sets are empty and the others have 3 items on average: about the hardest case. Intervals of baskets of
    ordinary kinds hold 95 %.
    """
    rng = np.random.default_rng(5)
    items = [f"item {i}" for i in range(20)]
    held = rng.random((2_000, 20)) < np.where(rng.random((2_000, 1)) < 0.1, 0.15, 0.0)
    people = pd.DataFrame({"x": [[items[j] for j in np.flatnonzero(row)] for row in held]})
    right, hits = held.sum(axis=1).mean(), 0
    for key in range(16):
        safe = dpf.sanitize(people, epsilon=1, delta=1e-6, spaces={"x": dpf.Subset(items)}, key=bytes([key + 1]) * 32)
        found = safe.dp.set_sizes("x").attrs["mean_size"]
        hits += bool(found["lower"] <= right <= found["upper"])
    assert hits >= 11


@pytest.mark.parametrize("power", [1.5, 2.5])
@pytest.mark.parametrize(("rows", "sigma"), [(2_000, 26.0), (8_000, 9.0)])
def test_the_mean_size_knows_of_tails_that_fall_slowly(rows: int, sigma: float, power: float) -> None:
    """Sizes with Pareto's law, of which noise hides all but the smallest: 100 releases, each of other sets.

    If .92 hold, fewer than 83 do with a chance of 2e-3, under fixed seeds. Without sets beyond the tail of those that
    stand out 24 do in the worst of the four.
    """
    starts, most, hits = np.array([*range(17), 17, 22, 28, 35, 44, 55]), 60, 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        held = np.minimum(generator.pareto(power, rows).astype(int) + 1, most)
        counts = np.histogram(held, np.append(starts, most + 1))[0] + sigma * generator.standard_normal(len(starts))
        found, variance = sets.SizeTable(starts, most, counts, sigma**2).mean_size(False)
        hits += bool(abs(found[0] - held.mean()) <= 1.96 * math.sqrt(variance[0]))
    assert hits >= 83
