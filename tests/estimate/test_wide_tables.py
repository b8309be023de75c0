"""What is asked decides what is fitted: pairs of numbers in one pass, and fits of the columns that a question needs."""

import numpy as np
import pandas as pd
import pytest
import readings

import dpframe as dpf
from dpframe.estimate import model, moments, surrogates, synthetic
from dpframe.estimate.model import MOST_FITTED
from dpframe.estimate.tables.tables import dependence_score
from dpframe.observe.significance import DETECTION_SE
from dpframe.release.reader import Source

ROWS = 3_000
WIDE = MOST_FITTED + 5


@pytest.fixture(scope="module")
def people():
    """Columns in threes: the second and the third of each follow the first, and no others."""
    generator, columns = np.random.default_rng(3), {}
    for i in range(0, WIDE, 3):
        first = generator.integers(0, 4, ROWS)
        for j in range(i, min(i + 3, WIDE)):
            moved = (first + (generator.random(ROWS) < 0.2)) % 4
            columns[f"c{j}"] = pd.Categorical.from_codes(moved, list("abcd"))
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def wide(people):
    spaces = {name: list("abcd") for name in people}
    return dpf.sanitize(people, epsilon=8, delta=1e-6, spaces=spaces, key=bytes(32))


@pytest.fixture(scope="module")
def rows(people):
    """Rows that tell of pairs, and no tables."""
    spaces = {name: list("abcd") for name in people}
    with pytest.warns(dpf.errors.LargeEpsilonWarning):
        return dpf.sanitize(people, epsilon=60, delta=1e-6, spaces=spaces, measure=None, shuffle=False, key=bytes(32))


class TestFits:
    @pytest.mark.slow
    def test_a_question_fits_the_columns_that_answer_it(self, wide):
        models = readings.models_of(wide)
        near = models.around(["c3"])
        assert "whole" not in vars(models), "no question starts a fit of all"
        assert {"c3", "c4", "c5"} <= set(near.columns)
        assert len(near.columns) <= MOST_FITTED
        assert near is models.around(["c3"])
        assert set(models.among(["c3", "c9"]).columns) == {"c3", "c9"}

    def test_all_that_is_known_of_one_column_stays(self, wide):
        """Sums of pairs with columns outside of a fit count in it."""
        models = readings.models_of(wide)
        one, whole = models.among(["c3"]).evidence, models.whole.evidence
        seen = one.known([0])
        every = whole.seen(models.whole.places(["c3"]))
        precision = sum(1 / table.variances for table in every)
        assert 1 / seen.variances == pytest.approx(precision)
        assert seen.counts == pytest.approx(sum(table.counts / table.variances for table in every) / precision)

    def test_a_narrow_table_has_one_fit(self, people, wide, monkeypatch):
        """Answers of tables of no more columns are those of the fit of all."""
        monkeypatch.setattr(model, "MOST_FITTED", WIDE)
        models = readings.models_of(wide)
        assert models.around(["c0"]) is models.whole
        assert models.among(["c0"]) is models.whole

    @pytest.mark.slow
    @pytest.mark.parametrize("names", [["c0", "c1"], ["c4", "c11"], ["c6", "c7", "c8"]])
    def test_joints_err_as_those_of_all_columns_together(self, people, wide, names, monkeypatch):
        """A fit of fewer columns errs by a fifth more at most, and by 0.02 in shares."""
        true = people.groupby(names, observed=False).size() / ROWS

        def distance():
            found = dpf.Estimates(wide).joint(names, normalize=True)["estimate"]
            return float(np.abs(found - true.reindex(found.index)).sum())

        near = distance()
        monkeypatch.setattr(model, "MOST_FITTED", WIDE)
        assert near < 1.2 * distance() + 0.02

    @pytest.mark.slow
    def test_counts_of_pairs_that_were_not_measured_keep_their_distance_from_independence(self, people):
        """Rows of a small promise hardly tell of two columns together; four columns are two independent pairs."""
        some = people[["c0", "c3", "c6", "c9"]]
        spaces = {name: list("abcd") for name in some}
        measured = [(name,) for name in some]
        safe = dpf.sanitize(some, epsilon=0.5, delta=1e-6, spaces=spaces, measure=measured, key=bytes([2]) * 32)
        found = dpf.Estimates(safe).count({"c0": "a", "c3": ["b", "c"]})
        true = ((some["c0"] == "a") & some["c3"].isin(["b", "c"])).sum()
        assert found["lower"] <= true <= found["upper"]
        if found.attrs["source"] == "rows":
            assert found["std_error"] >= 0.9 * abs(found["estimate"] - ROWS / 8)


class TestRowsAlone:
    def test_a_model_is_of_the_columns_that_answer(self, rows):
        models = readings.models_of(rows)
        near = models.around(["c3"])
        assert {"c3", "c4", "c5"} <= set(near.names)
        assert len(near.names) <= MOST_FITTED
        assert near is models.around(["c3"])

    @pytest.mark.slow
    @pytest.mark.parametrize("most", [1 << 23, 40])
    def test_a_fit_of_all_has_the_pairs_that_show(self, rows, most, monkeypatch):
        monkeypatch.setattr(model, "MOST_COUNTED", most)
        kept = set(readings.models_of(rows).whole.evidence.row_pairs)
        dependent = {(i, j) for i in range(WIDE) for j in range(i + 1, WIDE) if i // 3 == j // 3}
        assert dependent <= kept
        assert len(kept) < len(dependent) + 20
        assert dpf.Estimates(rows).fidelity().loc[("c0", "c1"), "shows"]

    def test_no_more_pairs_than_fit(self, rows, monkeypatch):
        monkeypatch.setattr(model, "MOST_ROW_PAIRS", 3)
        assert len(readings.models_of(rows).whole.evidence.row_pairs) == 3

    @pytest.mark.slow
    def test_a_column_of_one_value_costs_no_fit(self):
        """Comparing it with numbers' many classes made first answers take six seconds."""
        frame = pd.DataFrame({"one": ["x"] * 400, "two": list("ab") * 200, "pay": np.arange(400.0)})
        spaces = {"one": ["x"], "two": list("ab"), "pay": (0.0, 400.0)}
        safe = dpf.sanitize(frame, epsilon=1, spaces=spaces, measure=[("two", "pay")], key=bytes(32))
        whole = readings.models_of(safe).whole
        assert whole.names == ["one", "two", "pay"]
        assert not whole.evidence.row_pairs
        assert safe.dp.count({"one": "x", "two": "a"})["estimate"] == pytest.approx(200, abs=60)

    def test_synthetic_rows_hold_dependence(self, people, rows):
        found = dpf.Estimates(rows).synthesize(random_state=0)
        true, drawn = (float((frame["c0"].astype(str) == frame["c1"].astype(str)).mean()) for frame in (people, found))
        assert abs(true - drawn) < 0.1

    def test_rows_in_which_nothing_shows_warn(self, people, monkeypatch):
        # Of 190 independent pairs one or two are beyond three standard deviations.
        monkeypatch.setattr(synthetic, "DETECTION_SE", 6.0)
        monkeypatch.setattr(model, "DETECTION_SE", 6.0)
        spaces = {name: list("abcd") for name in people}
        safe = dpf.sanitize(people, epsilon=0.5, spaces=spaces, measure=None, shuffle=False, delta=0, key=bytes(32))
        with pytest.warns(dpf.InferenceWarning, match="no two columns show dependence beyond noise"):
            dpf.Estimates(safe).synthesize(random_state=0)


def test_dependence_shows_beyond_noise():
    """Ten releases: independent pairs stay below, dependent ones are above (each with probability above 0.999)."""
    generator = np.random.default_rng(5)
    even, noise = np.full((4, 5), 100.0), np.full((4, 5), 25.0)
    tilted = even + 60 * np.outer([1, -1, 1, -1], [1, -1, 0, 1, -1])
    for _ in range(10):
        drawn = 5 * generator.standard_normal(even.shape)
        assert dependence_score(even + drawn, noise) < DETECTION_SE + 1
        assert dependence_score(tilted + drawn, noise) > 10 * DETECTION_SE


class TestPairs:
    MECHANISMS = ("geometric", "staircase", "randomized_response")

    @pytest.fixture(params=[False, True], ids=["no nulls", "nulls"])
    def safe(self, request):
        generator = np.random.default_rng(1)
        frame = pd.DataFrame({name: generator.integers(0, 30, 400).astype(float) for name in "xyz"})
        space = dpf.Integer(0, 30)
        if request.param:
            frame.loc[::5, "y"] = np.nan
            space = dpf.Nullable(space)
        spaces = dict.fromkeys("xyz", space)
        plan = dpf.plan(
            frame, epsilon=6, delta=0, spaces=spaces, mechanisms=dict(zip("xyz", self.MECHANISMS, strict=True))
        )
        return dpf.sanitize(frame, plan=plan, key=bytes(32))

    @pytest.mark.parametrize("chunk", [1 << 15, 70])
    def test_sums_in_one_pass_are_those_of_each_pair(self, safe, chunk, monkeypatch):
        source = Source(safe, None)
        monkeypatch.setattr(surrogates, "SURROGATE_CHUNK_ROWS", chunk)
        columns = {name: source.column(name) for name in "xyz"}
        scales = {name: moments.Scale.of(column) for name, column in columns.items()}
        pairs = [("x", "y"), ("z", "x"), ("y", "z")]
        terms = {(a, b): moments.second_moments(scales[a], scales[b], 0).terms for a, b in pairs}
        together = surrogates.product_sums(terms, columns, source.codes(list("xyz")))
        for pair, found in together.items():
            mine, codes = {name: columns[name] for name in pair}, source.codes(list(pair))
            alone = surrogates.product_sums({pair: terms[pair]}, mine, codes)[pair]
            assert found.n == alone.n
            for name in ("first", "second", "of_products"):
                assert getattr(found, name) == pytest.approx(getattr(alone, name), rel=1e-9, abs=1e-6)

    def test_a_column_named_twice_has_its_place_twice(self, safe):
        found = dpf.Estimates(safe).corr(["x", "y", "x"])["estimate"].to_numpy()
        assert found[0, 2] == 1.0
        assert found[0, 1] == found[1, 0] == found[1, 2] or np.isnan(found[0, 1])
