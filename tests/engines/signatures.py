"""What engines' functions show of a plan's options."""

import inspect

from dpframe.plan.options import OPTIONS


def check_signature(function):
    """Check that a function has every option by name, in its signature and in its text."""
    text, parameters = inspect.getdoc(function) or "", inspect.signature(function).parameters
    for option in OPTIONS.values():
        assert f"{option.name} : default {option.default!r}\n" in text
        assert parameters[option.name].default == option.default
    assert "options" not in parameters
    assert "{options}" not in text
