"""The command line has the options of a plan from where they are stated."""

import inspect
import re

import pytest
from typer.models import OptionInfo

from dpframe.cli import main
from dpframe.cli.groups import OPTIONS as OPTION_GROUPS
from dpframe.cli.options import FORMS
from dpframe.plan.options import OPTIONS


@pytest.mark.parametrize("command", [main.plan, main.sanitize])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_command_has_the_option_with_its_default_and_help(command, name):
    form, option = FORMS.get(name), OPTIONS[name]
    parameters = inspect.signature(command).parameters
    shown = parameters[(form and form.name) or name]
    assert shown.default == (option.default if form is None else option.default or None)
    assert shown.annotation.__metadata__[0].help.startswith(option.help.removesuffix("."))
    assert "options" not in parameters


@pytest.mark.parametrize("command", ["plan", "sanitize"])
def test_help_lists_every_option_once_in_its_group_with_an_example(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        main.main([command, "--help"])
    text = capsys.readouterr().out.partition("\n  Example: ")[0]
    assert stopped.value.code == 0
    _, *sections = re.split(r"(?m)^(?=[A-Z][^\n]*:\n)", text)
    titles = [section.partition(":")[0] for section in sections]
    assert titles[0] == "Arguments"
    assert titles[-1] == "Other"
    assert [title for title in OPTION_GROUPS if title in titles] == titles[1:-1]
    assert re.findall(r"(?m)^  (--\S+|-o)", sections[-1]) == ["--help"]
    shown = [name for section in sections for name in re.findall(r"(?m)^  (?:-o, )?(--[\w-]+)", section)]
    parameters = inspect.signature(getattr(main, command)).parameters.values()
    own = [p for p in parameters if isinstance(p.annotation.__metadata__[0], OptionInfo)]
    assert len(shown) == len(set(shown)) == len(own) + 1
    for section in sections[1:-1]:
        (example,) = re.findall(r"(?m)^  e\.g\. (.*)", section)
        assert set(re.findall(r"--[\w-]+", example)) <= set(shown)


def commands(group, path=()):
    """Yield the words of every group and command, and itself."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


EVERY = dict(commands(main.commands()))


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_help_has_an_example_and_is_not_cut(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main.main([*words, "--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    example = " ".join(text.partition("\n  Example: ")[2].split())
    assert example.startswith(f"dpframe {' '.join(words)}".strip())
    listed = text.partition("\nCommands:\n")[2]
    assert "..." not in listed


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("none", None),
        ("auto", "auto"),
        ("age; sex,income", ["age", ("sex", "income")]),
        ("auto; sex,age,income", ["auto", ("sex", "age", "income")]),
    ],
)
def test_tables_to_measure_are_read_as_python_gives_them(text, read):
    assert FORMS["measure"].read(text) == read
