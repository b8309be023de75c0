"""The options of commands that read CSV files: how values are separated, written and encoded."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from dpframe.cli.shared import option
from dpframe.errors import ParameterError
from dpframe.tables.csv_dialect import CsvDialect, reading_dialect
from dpframe.tables.csv_reader import CsvInput
from dpframe.tables.inputs import input_format

_ANNOTATIONS: dict[str, Any] = {
    "sep": Annotated[str | None, option('CSV: the letter between values, e.g. ";" or tab.  [default: ,]')],
    "decimal": Annotated[str | None, option('CSV: the decimal mark, "." or ",".  [default: .]')],
    "dayfirst": Annotated[bool, option("CSV: dates such as 31.1.2024 begin with the day.", "--dayfirst")],
    "encoding": Annotated[str | None, option("CSV: the encoding of letters, e.g. cp1252.  [default: utf-8]")],
}


def takes_csv_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command read CSV files in another dialect; its source is called ``source`` or ``replay``."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [
        *signature.parameters.values(),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "dayfirst" else None
            ).replace(annotation=annotation)
            for name, annotation in _ANNOTATIONS.items()
        ),
    ]

    @wraps(command)
    def run(**arguments: Any) -> Any:
        values = {name: arguments.pop(name) for name in _ANNOTATIONS}
        given = {name: value for name, value in values.items() if value}
        source = arguments.get("source", arguments.get("replay"))
        if given and not issubclass(input_format(source), CsvInput):
            raise ParameterError(f"--{next(iter(given))} is for CSV files; leave it out for files of another format")
        with reading_dialect(CsvDialect(**given)):
            return command(**arguments)

    # Typer reads options off the signature, which it takes from these two attributes.
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    return run
