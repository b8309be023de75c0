"""The command line has the options of a plan from where they are stated."""

import inspect

import pytest

from dpframe.api.options import OPTIONS
from dpframe.cli import main
from dpframe.cli.options import FORMS


@pytest.mark.parametrize("command", [main.plan, main.sanitize])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_command_has_the_option_with_its_default_and_help(command, name):
    form, option = FORMS.get(name), OPTIONS[name]
    parameters = inspect.signature(command).parameters
    shown = parameters[(form and form.name) or name]
    assert shown.default == (option.default if form is None else option.default or None)
    assert shown.annotation.__metadata__[0].help.startswith(option.help.removesuffix("."))
    assert "options" not in parameters
