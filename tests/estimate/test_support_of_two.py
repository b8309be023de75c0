"""Whether sets hold both or either of two items, from measured supports: nearer than the rows, and intervals hold."""

import numpy as np
import pytest

import dpframe as dpf

ITEMS = list(dpf.datasets.HOBBIES)[:10]
SPACE = {"hobbies": dpf.Subset(ITEMS, max_size=6, other=ITEMS[0]), "sex": ["F", "M"]}
PAIRS = [(1, 2), (1, 4), (3, 6), (5, 9)]


@pytest.fixture(scope="module")
def people():
    frame = dpf.datasets.make_census(4_000, random_state=5, columns=["hobbies", "sex"])
    return frame.assign(hobbies=frame["hobbies"].map(lambda held: [item for item in held if item in ITEMS]))


@pytest.mark.parametrize("how", ["any", "all"])
@pytest.mark.slow
def test_it_errs_less_than_the_rows_and_its_intervals_hold(people, how):
    """40 answers of ten releases at fixed keys: a coverage of 95 % falls below 0.78 with a chance of 1e-6."""
    test = {"any": set.__and__, "all": set.__ge__}[how]
    errors, inside, rows, sources = [], [], [], set()
    for seed in range(10):
        estimates = dpf.Estimates(dpf.sanitize(people, epsilon=1.0, spaces=SPACE, key=seed.to_bytes(32, "big")))
        for a, b in PAIRS:
            pair = {ITEMS[a], ITEMS[b]}
            truth = people["hobbies"].map(lambda held, pair=pair: bool(test(set(held), pair))).mean()
            answer = estimates.support("hobbies", [ITEMS[a], ITEMS[b]], how=how)
            sources.add(answer.attrs["source"])
            found = answer.iloc[0]
            errors.append(found["estimate"] - truth)
            inside.append(found["lower"] <= truth <= found["upper"])
            rows.append(estimates.cooccurrence("hobbies", method="inverse")["std_error"].iloc[a, b])
    assert sources == {"both"}
    assert np.mean(inside) >= 0.78
    assert np.sqrt(np.mean(np.square(errors))) < np.mean(rows) / 3


def test_either_and_both_add_up_to_the_items(people):
    safe = dpf.sanitize(people, epsilon=1.0, spaces=SPACE, key=bytes(32))
    estimates, pair = dpf.Estimates(safe), [ITEMS[1], ITEMS[2]]
    found = {how: estimates.support("hobbies", pair, how=how)["estimate"].iloc[0] for how in ("any", "all")}
    single = estimates.support("hobbies")["estimate"]
    assert sum(found.values()) == pytest.approx(single[pair[0]] + single[pair[1]], abs=1e-9)
    counts = estimates.support("hobbies", pair, how="any", normalize=False)["estimate"].iloc[0]
    assert counts == pytest.approx(4_000 * found["any"])
    wide = dpf.Estimates(safe).support("hobbies", pair, how="any", target="population")["std_error"].iloc[0]
    assert wide > estimates.support("hobbies", pair, how="any")["std_error"].iloc[0]


def test_without_measured_supports_the_rows_answer(people):
    safe = dpf.sanitize(people, epsilon=1.0, spaces=SPACE, measure=None, key=bytes(32))
    assert dpf.Estimates(safe).support("hobbies", [ITEMS[1], ITEMS[2]], how="any").attrs["source"] == "rows"


@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize("normalize", [True, False])
def test_of_one_item_it_is_that_items_support(people, normalize, target):
    estimates = dpf.Estimates(dpf.sanitize(people, epsilon=1.0, spaces=SPACE, key=bytes(32)))
    told = {"normalize": normalize, "target": target}
    every = estimates.support("hobbies", **told)
    for how in ("all", "any"):
        one = estimates.support("hobbies", [ITEMS[3]], how=how, **told)
        assert one.iloc[0].to_dict() == every.loc[ITEMS[3]].to_dict()
        assert (one.index.tolist(), one.attrs["source"]) == ([ITEMS[3]], "both")
