"""The options of a plan on the command line: each option of `dpframe.plan.options` as text of a shell."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.cli.spaces import SpaceOptions, add_space_options, read_spaces
from dpframe.errors import FileError, ParameterError
from dpframe.plan.options import OPTIONS, Option
from dpframe.plan.rules import as_rules


@dataclass(frozen=True)
class ShellForm:
    """Form of an option whose Python value a shell cannot type."""

    type: Any
    read: Callable[[Any], Any]
    help_suffix: str
    """End of the option's help text, after a comma or semicolon."""
    name: str | None = None
    """Name of the option in the shell, if one option is typed for each of many values."""


def _parse_mechanism(text: str) -> tuple[str, str]:
    # The last sign, as the name of a column may have one.
    column, sign, tag = text.rpartition("=")
    if not (column and sign and tag):
        raise ParameterError("--mechanism takes column=tag, e.g. --mechanism age=randomized_response")
    return column, tag


def _parse_groups(texts: list[str]) -> list[tuple[str, ...]]:
    return [tuple(name.strip() for name in text.split(",")) for text in texts]


def _parse_tables(text: str) -> str | list[str | tuple[str, ...]] | None:
    if text in ("auto", "none"):
        return None if text == "none" else text
    tables = [tuple(name.strip() for name in table.split(",")) for table in text.split(";")]
    return [table[0] if len(table) == 1 else table for table in tables]


def _parse_sample(text: str) -> int | str:
    """Return a number of rows as an integer, and other text unchanged; the plan refuses unknown words."""
    # Python refuses to read integers of thousands of digits, with an error of its own.
    return int(text) if text.isdecimal() and len(text) < 19 else text


_SPACES_HELP = (
    ', in a JSON file, e.g. {"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"], "children": {"categories": '
    '[0, 1, 2]}, "income": {"space": "nullable", "inner": {"lower": 0, "upper": 250000}}}: bounds of numbers and '
    'times (with "special": [-9] for codes of missing answers), '
    "lists of categories, and nullable where nulls are to stay. Other spaces have their tags, as in a plan "
    "file. dpframe spaces writes one to fill in; .toml is read as well"
)

_RULES_HELP = (
    ', in a JSON file with a list of {"if": {"age": {"between": [0, 15]}}, "then": {"work": ["none"]}}, {"column": '
    '"region", "of": "city", "mapping": [["Lyon", "South"]]} {"low": "start", "high": "end"} or '
    '{"one_of": ["car", "bus"]}'
)


def _read_rules(path: Path) -> list[Any]:
    """Read a file of rules; `FileError` if it cannot be read, `ParameterError` if it holds no list."""
    try:
        rules = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        raise FileError(f"{path} is not a readable file of rules; give a JSON list of rules") from None
    except ValueError:
        raise ParameterError(f"{path} holds no JSON; give a list of rules") from None
    return list(as_rules(rules))


FORMS: Mapping[str, ShellForm] = {
    "spaces": ShellForm(Path | None, read_spaces, _SPACES_HELP),
    "measure": ShellForm(str, _parse_tables, ', e.g. "age; sex,income" or "auto; sex,age,income"'),
    "drop": ShellForm(list[str] | None, list, "; repeat"),
    "passthrough": ShellForm(list[str] | None, list, "; repeat"),
    "allocation": ShellForm(str, str, ""),
    "mechanisms": ShellForm(
        list[str] | None, lambda texts: dict(map(_parse_mechanism, texts)), ", as column=tag; repeat", "mechanism"
    ),
    "groups": ShellForm(list[str] | None, _parse_groups, ", e.g. sex,income; repeat", "group"),
    "rules": ShellForm(Path | None, _read_rules, _RULES_HELP),
    "sample": ShellForm(str | None, _parse_sample, ""),
}


def _find_form(option: Option) -> ShellForm:
    return FORMS.get(option.name) or ShellForm(option.type, lambda value: value, "")


def _option_parameters() -> Iterator[inspect.Parameter]:
    for option in OPTIONS.values():
        form, default = _find_form(option), option.default or None if option.name in FORMS else option.default
        text = f"{option.help.removesuffix('.')}{form.help_suffix}."
        typer_option = typer.Option(help=text, show_default=default is not None)
        yield inspect.Parameter(
            form.name or option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[form.type, typer_option],
        )
    yield inspect.Parameter("space", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SpaceOptions)


def takes_plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the options of a plan; it gets those that differ from their defaults as ``options``."""
    signature = inspect.signature(command, eval_str=True)
    command_parameters = signature.parameters.values()
    parameters = [
        final_parameter
        for parameter in command_parameters
        for final_parameter in (_option_parameters() if parameter.name == "options" else [parameter])
    ]

    @wraps(command)
    def run(**arguments: Any) -> None:
        output = arguments.get("output")
        # Writing the plan there would destroy declarations that were written by hand.
        for name in ("spaces", "rules"):
            path = arguments[name]
            if output is not None and path is not None and output.absolute() == path.absolute():
                raise FileError(f"{output} is the file of --{name}; write --output to another file")
        options = {}
        for option in OPTIONS.values():
            form = _find_form(option)
            value = arguments.pop(form.name or option.name)
            # An option at its default is left out, so that a plan records only decisions of the user.
            if value not in (None, [], option.default):
                options[option.name] = form.read(value)
        if space_texts := arguments.pop("space"):
            options["spaces"] = add_space_options(options.get("spaces", {}), space_texts)
        command(**arguments, options=options)

    # Typer reads options off the signature, which it takes from these two attributes.
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    return run
