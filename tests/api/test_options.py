"""An option of a plan is stated once; every face reads it there."""

import inspect

import pandas as pd
import pytest

import dpframe as dpf
from dpframe.errors import refusing_misfits
from dpframe.estimate import Estimates
from dpframe.plan.build import build_plan
from dpframe.plan.options import DEFAULTS, OPTIONS, PlanOptions

OF_THE_ORDER = {"shuffle", "sample", "privacy_id"}
"""Options that a step of a pipeline decides itself."""


def test_the_registry_has_every_keyword():
    assert list(OPTIONS) == list(PlanOptions.__annotations__)
    assert all(option.name == name and option.help.endswith(".") for name, option in OPTIONS.items())


@pytest.mark.parametrize("name", OPTIONS)
def test_a_default_keeps_its_own_rule(name):
    """None may be read as nothing at all, such as no mechanisms."""
    option = OPTIONS[name]
    kept = option.check(name, option.default)
    assert kept == option.default or (option.default is None and not kept)
    assert option.check(name, kept) == kept


def test_defaults_are_those_of_the_planner():
    known = inspect.signature(build_plan).parameters
    for name in set(known) & set(OPTIONS) - {"spaces"}:
        assert known[name].default == DEFAULTS[name], name


def test_the_sanitizer_has_every_option_and_default():
    own = inspect.signature(dpf.Sanitizer.__init__).parameters
    assert set(OPTIONS) - set(own) == OF_THE_ORDER
    for name in set(OPTIONS) - OF_THE_ORDER:
        assert own[name].default == DEFAULTS[name], name


TAKE_ALL = [
    dpf.plan,
    dpf.sanitize,
    dpf.expect,
    pd.DataFrame.dp.plan,
    pd.DataFrame.dp.sanitize,
    pd.DataFrame.dp.expect,
]


@pytest.mark.parametrize("function", TAKE_ALL, ids=lambda function: function.__qualname__)
def test_text_and_signature_have_every_option(function):
    text, parameters = inspect.getdoc(function) or "", inspect.signature(function).parameters
    for option in OPTIONS.values():
        assert f"{option.name} : default {option.default!r}\n" in text
        assert " ".join(option.help.split()) in " ".join(text.split())
        assert parameters[option.name].default == option.default
        assert parameters[option.name].kind is inspect.Parameter.KEYWORD_ONLY
    assert "options" not in parameters
    assert "{options}" not in text
    assert "**options" not in text


STATISTICS = [name for name, _ in inspect.getmembers(Estimates, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", sorted({*STATISTICS} - {"verify", "clipped_at"}))
def test_the_accessor_shows_text_and_signature_of_estimates(name):
    method, own = getattr(Estimates, name), getattr(dpf.ReleaseAccessor, name)
    assert inspect.getdoc(own) == inspect.getdoc(method)
    assert inspect.signature(own) == inspect.signature(method)


def test_help_of_the_accessor_shows_options(capsys):
    safe = dpf.sanitize(pd.DataFrame({"age": [1, 2, 3] * 50}), epsilon=9, delta=0, spaces={"age": (0, 9)})
    help(safe.dp.mean)
    shown = capsys.readouterr().out
    assert "weights: 'str | None' = None" in shown
    assert "confidence_level: float | None = None" in shown
    assert "confidence_level, clipped, long\n" in shown
    assert "with ``by``, or of several columns, a DataFrame of such rows" in shown


@pytest.mark.parametrize(
    ("verb", "method"),
    [(dpf.plan, pd.DataFrame.dp.plan), (dpf.sanitize, pd.DataFrame.dp.sanitize)],
    ids=["plan", "sanitize"],
)
def test_methods_of_frames_have_the_keywords_of_the_verbs_and_their_help(verb, method):
    """Of what a method takes nothing is said anew, and nothing is said of what only other tables have."""
    others, own = inspect.signature(verb).parameters, inspect.signature(method).parameters
    left_out = {"source", "id"} | ({"batch_rows", "threads", "progress"} & {*others})
    assert {*own} - {"self"} == {*others} - left_out
    assert list(own)[1:3] == ["epsilon", "delta"]
    assert all(own[name].default == others[name].default for name in {*own} - {"self"})
    text = inspect.getdoc(method) or ""
    assert "\nledger, dataset\n    A `Ledger`, or its path, " in text
    assert not [name for name in left_out if f"\n{name}\n" in text]


def test_a_type_error_from_within_is_left_as_it_is():
    def within(self, column):
        return len(column)

    with pytest.raises(TypeError, match=r"^object of type 'int' has no len"):
        refusing_misfits(within)(None, 3)
