"""The options of a plan on the command line: those of `dpframe.api.options`, as a shell can give them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api.options import OPTIONS, Option
from dpframe.cli.spaces import OwnSpaces, read_spaces, with_own
from dpframe.errors import FileError, ParameterError
from dpframe.plan.rules import as_rules


@dataclass(frozen=True)
class Form:
    """How an option is given where a shell cannot give it as Python does."""

    type: Any
    read: Callable[[Any], Any]
    adds: str
    """What the option's help says in addition, after a comma or semicolon."""
    name: str | None = None
    """Its name, where a shell gives one of many at a time."""


def _column_and_tag(text: str) -> tuple[str, str]:
    column, sign, tag = text.rpartition("=")
    if not (column and sign and tag):
        raise ParameterError("--mechanism takes column=tag, e.g. --mechanism age=randomized_response")
    return column, tag


def _groups(texts: list[str]) -> list[tuple[str, ...]]:
    return [tuple(name.strip() for name in text.split(",")) for text in texts]


def _tables(text: str) -> str | list[str | tuple[str, ...]] | None:
    if text in ("auto", "none"):
        return None if text == "none" else text
    tables = [tuple(name.strip() for name in table.split(",")) for table in text.split(";")]
    return [table[0] if len(table) == 1 else table for table in tables]


def _rows_or_word(text: str) -> int | str:
    """Return a number of rows as one; what is neither that nor a known word the plan refuses."""
    return int(text) if text.isdecimal() and len(text) < 19 else text


_SPACES = (
    ', in a JSON file, e.g. {"age": {"lower": 0, "upper": 120}, "sex": ["F", "M"], "children": {"categories": '
    '[0, 1, 2]}, "income": {"space": "nullable", "inner": {"lower": 0, "upper": 250000}}}: bounds of numbers and '
    "times, lists of categories, and nullable where nulls are to stay. Other spaces have their tags, as in a plan "
    "file. dpframe spaces writes one to fill in; .toml is read as well"
)

_RULES = (
    ', in a JSON file with a list of {"if": {"age": {"between": [0, 15]}}, "then": {"work": ["none"]}}, {"column": '
    '"region", "of": "city", "mapping": [["Lyon", "South"]]} or {"low": "start", "high": "end"}'
)


def _rules(path: Path) -> list[Any]:
    """Read a file of rules; `FileError` if it cannot be read, `ParameterError` if it holds no list."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        raise FileError(f"{path} is not a readable file of rules; give a JSON list of rules") from None
    except ValueError:
        raise ParameterError(f"{path} holds no JSON; give a list of rules") from None
    return list(as_rules(found))


FORMS: Mapping[str, Form] = {
    "spaces": Form(Path | None, read_spaces, _SPACES),
    "measure": Form(str, _tables, ', e.g. "age; sex,income" or "auto; sex,age,income"'),
    "drop": Form(list[str] | None, list, "; repeat"),
    "passthrough": Form(list[str] | None, list, "; repeat"),
    "allocation": Form(str, str, ""),
    "mechanisms": Form(
        list[str] | None, lambda texts: dict(map(_column_and_tag, texts)), ", as column=tag; repeat", "mechanism"
    ),
    "groups": Form(list[str] | None, _groups, ", e.g. sex,income; repeat", "group"),
    "rules": Form(Path | None, _rules, _RULES),
    "sample": Form(str | None, _rows_or_word, ""),
}


def _form(option: Option) -> Form:
    return FORMS.get(option.name) or Form(option.type, lambda value: value, "")


def _parameters() -> Iterator[inspect.Parameter]:
    for option in OPTIONS.values():
        form, default = _form(option), option.default or None if option.name in FORMS else option.default
        text = f"{option.help.removesuffix('.')}{form.adds}."
        shown = typer.Option(help=text, show_default=default is not None)
        yield inspect.Parameter(
            form.name or option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[form.type, shown],
        )
    yield inspect.Parameter("space", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OwnSpaces)


def takes_plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the options of a plan; those that differ from their defaults it gets as ``options``."""
    signature = inspect.signature(command, eval_str=True)
    own = signature.parameters.values()
    parameters = [p for each in own for p in (_parameters() if each.name == "options" else [each])]

    @wraps(command)
    def run(**given: Any) -> None:
        output = given.get("output")
        for name in ("spaces", "rules"):
            path = given[name]
            if output is not None and path is not None and output.absolute() == path.absolute():
                raise FileError(f"{output} is the file of --{name}; write --output to another file")
        options = {}
        for option in OPTIONS.values():
            form = _form(option)
            value = given.pop(form.name or option.name)
            if value not in (None, [], option.default):
                options[option.name] = form.read(value)
        if own := given.pop("space"):
            options["spaces"] = with_own(options.get("spaces", {}), own)
        command(**given, options=options)

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    return run
