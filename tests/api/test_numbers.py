"""The noise of numbers, ordinals and sets: a switch for each, and names wherever a mechanism is named."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import KEY
from examples import plan_of

import dpframe as dpf
from dpframe.cli.main import main

SPACES = {
    "age": (0, 120),
    "paid": dpf.Nullable(dpf.Real(0, 100)),
    "born": dpf.Datetime("1990-01-01", "1999-12-31", "D"),
    "rank": dpf.Ordinal(["low", "mid", "high"]),
    "sex": ["F", "M"],
}


def tags(**options):
    plan = dpf.Plan.from_json(plan_of(SPACES, epsilon=5.0, delta=0.0, **options).to_json())
    return {name: plan[name].mechanism.tag for name in ("age", "paid", "born")}


def frame():
    rng = np.random.default_rng(1)
    return pd.DataFrame({"age": rng.integers(0, 121, 2_000), "sex": rng.choice(["F", "M"], 2_000)})


def test_numbers_get_laplace_unless_said_otherwise():
    assert tags() == tags(numbers="laplace")
    assert tags() == {"age": "geometric", "paid": "nullable_geometric", "born": "geometric"}
    square = {"age": "staircase", "paid": "staircase", "born": "staircase"}
    assert tags(numbers="square_wave") == tags(numbers="least_error") == square


def test_a_named_mechanism_goes_before_the_switch():
    plan = plan_of(SPACES, epsilon=5.0, mechanisms={"age": "laplace"}, numbers="square_wave")
    assert plan["age"].mechanism.tag == "geometric"
    assert plan["born"].mechanism.tag == "staircase"


@pytest.mark.parametrize(("name", "tag"), [("laplace", "geometric"), ("square_wave", "staircase")])
def test_names_and_tags_are_one_mechanism(name, tag):
    named, tagged = (plan_of(SPACES, epsilon=5.0, mechanisms={"age": one, "paid": one}) for one in (name, tag))
    assert named == tagged
    assert named.digest == tagged.digest
    assert named.summary()["mechanism"]["age"] == name
    assert named.summary()["mechanism"]["paid"] == name


def test_ranks_keep_what_errs_less():
    laplace, square = (plan_of(SPACES, epsilon=5.0, numbers=n)["rank"] for n in ("laplace", "square_wave"))
    assert laplace.mechanism.tag == square.mechanism.tag


RANKS = {"long": dpf.Ordinal(range(40)), "short": dpf.Ordinal(range(9)), "sex": ["F", "M"]}


@pytest.mark.parametrize(
    ("options", "tag"),
    [
        ({}, "staircase"),
        ({"ordinals": "least_error"}, "staircase"),
        ({"ordinals": "square_wave"}, "staircase"),
        ({"ordinals": "laplace"}, "geometric"),
        ({"ordinals": "laplace", "mechanisms": {"long": "square_wave"}}, "staircase"),
    ],
)
def test_long_ordinals_have_the_noise_that_is_asked_for(options, tag):
    plan = plan_of(RANKS, epsilon=3.0, delta=0.0, **options)
    assert plan["long"].mechanism.tag == tag
    assert plan["short"].mechanism.tag == "optimal"
    assert plan.verify().ok


@pytest.mark.parametrize(
    ("options", "tags"),
    [
        ({}, ("set_response", "bitflip")),
        ({"sets": "least_error"}, ("set_response", "bitflip")),
        ({"sets": "bitflip"}, ("bitflip", "bitflip")),
        ({"sets": "bitflip", "mechanisms": {"few": "randomized_response"}}, ("set_response", "bitflip")),
        ({"sets": "randomized_response"}, ("set_response", "set_response")),
    ],
)
def test_sets_are_randomised_by_items_or_as_wholes_as_is_asked_for(options, tags):
    spaces = {"few": dpf.Subset(["art", "chess", "yoga"]), "more": dpf.Subset(range(12), 3)}
    plan = plan_of(spaces, epsilon=4.0, delta=0.0, **options)
    assert tuple(plan[name].mechanism.tag for name in spaces) == tags
    assert plan.verify().ok


def test_sets_of_too_many_items_stay_item_by_item():
    plan = plan_of({"many": dpf.Subset(range(200), 100)}, epsilon=4.0, delta=0.0, sets="randomized_response")
    assert plan["many"].mechanism.tag == "bitflip"


@pytest.mark.parametrize(
    ("option", "values"),
    [("ordinals", "least_error, laplace, square_wave"), ("sets", "least_error, bitflip, randomized_response")],
)
def test_the_switches_take_their_own_words_everywhere(option, values):
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    for given in ("gaussian", None, ["bitflip"]):
        with pytest.raises(dpf.ParameterError, match=f"{option} must be one of {values}"):
            frame().dp.sanitize(epsilon=1, spaces=spaces, **{option: given})
    plan = frame().dp.plan(epsilon=1, spaces=spaces)
    with pytest.raises(dpf.ParameterError, match=f"{option} is already decided by the plan"):
        frame().dp.sanitize(plan=plan, **{option: values.split(", ")[1]})
    assert option in dpf.Sanitizer(epsilon=1).get_params()


def test_the_transformer_and_the_command_line_take_the_switches(tmp_path):
    table = pd.DataFrame({"rank": np.arange(400) % 40, "sex": ["F", "M"] * 200})
    spaces = {"rank": dpf.Ordinal(range(40)), "sex": ["F", "M"]}
    made = dpf.Sanitizer(epsilon=6, delta=0, spaces=spaces, ordinals="laplace").fit(table)
    assert made.plan_["rank"].mechanism.tag == "geometric"
    table.to_parquet(tmp_path / "in.parquet")
    (tmp_path / "spaces.json").write_text(json.dumps({"rank": spaces["rank"].to_json(), "sex": ["F", "M"]}))
    given = ["--epsilon", "6", "--delta", "0", "--spaces", str(tmp_path / "spaces.json"), "--ordinals", "laplace"]
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(tmp_path / "in.parquet"), *given, "--sets", "bitflip", "-o", str(tmp_path / "plan.json")])
    assert not stopped.value.code
    assert dpf.Plan.read(tmp_path / "plan.json")["rank"].mechanism.tag == "geometric"


@pytest.mark.parametrize("given", ["gaussian", "Laplace", None, 3, ["laplace"], np.array(["laplace", "laplace"]), {}])
def test_other_words_are_refused(given):
    with pytest.raises(dpf.ParameterError, match="numbers must be one of laplace, square_wave, least_error"):
        frame().dp.sanitize(epsilon=1, spaces={"age": (0, 120), "sex": ["F", "M"]}, numbers=given)


def test_a_plan_has_decided_already():
    plan = frame().dp.plan(epsilon=1, spaces={"age": (0, 120), "sex": ["F", "M"]})
    with pytest.raises(dpf.ParameterError, match="numbers is already decided by the plan"):
        frame().dp.sanitize(plan=plan, numbers="square_wave")


def test_a_plan_for_targets_and_the_command_line_take_it(tmp_path, capsys):
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    plan = frame().dp.plan(target={"sex": 0.02}, delta=0, spaces=spaces, numbers="square_wave")
    assert plan["age"].mechanism.tag == "staircase"
    frame().to_parquet(tmp_path / "in.parquet")
    (tmp_path / "spaces.json").write_text('{"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"]}')
    source, told = str(tmp_path / "in.parquet"), ["--epsilon", "1", "--spaces", str(tmp_path / "spaces.json")]
    for numbers, code in (("square_wave", 0), ("wave", 2)):
        with pytest.raises(SystemExit) as stopped:
            main(["plan", source, *told, "--numbers", numbers])
        assert (stopped.value.code or 0) == code
        assert ("square_wave" in capsys.readouterr().out) == (code == 0)


def test_every_face_takes_the_switch(tmp_path):
    data, spaces = frame(), {"age": (0, 120), "sex": ["F", "M"]}
    told = {"epsilon": 1.0, "spaces": spaces, "numbers": "square_wave"}
    safe = data.dp.sanitize(**told, key=KEY)
    assert safe.dp.release.plan["age"].mechanism.tag == "staircase"
    assert data.dp.plan(**told)["age"].mechanism.tag == "staircase"
    fitted = dpf.Sanitizer(**told).fit(data)
    assert fitted.plan_["age"].mechanism.tag == "staircase"
    data.to_parquet(tmp_path / "in.parquet")
    info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", **told)
    assert info.plan["age"].mechanism.tag == "staircase"


def test_explain_says_what_the_square_wave_would_gain():
    plan = frame().dp.plan(epsilon=1, delta=0, spaces={"age": (0, 120), "sex": ["F", "M"]})
    levers = plan.explain().levers["errors"]
    assert 0 < levers['the square wave for numbers (numbers="square_wave")'] < 1
    other = frame().dp.plan(epsilon=1, delta=0, spaces={"age": (0, 120), "sex": ["F", "M"]}, numbers="square_wave")
    assert not any("square wave" in lever for lever in other.explain().levers.index)


def test_the_square_wave_tells_more_where_nothing_is_measured():
    """Four releases each: medians of the standard errors that estimates claim."""
    errors = {}
    for numbers in ("laplace", "square_wave"):
        options = {"spaces": {"age": (0, 120)}, "numbers": numbers}
        plan = frame()[["age"]].dp.plan(epsilon=4, delta=0, **options)
        found = [dpf.sanitize(frame()[["age"]], plan=plan, key=bytes([k]) * 32).dp for k in range(4)]
        errors[numbers] = np.median([one.mean("age")["std_error"] for one in found])
    assert errors["square_wave"] < 0.8 * errors["laplace"]
