"""The command ``dpframe spaces``, and the file that it writes and that ``--spaces`` reads: JSON or TOML, with comments.

A template is made from only the schema: it holds the name of each column and what its type implies.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api import verbs
from dpframe.cli.pipes import Source, in_place_of
from dpframe.cli.shared import Dataset, LedgerFile, Part, account_of, option
from dpframe.disk import atomic, check_named
from dpframe.errors import DpframeError, FileError, ParameterError, name_list
from dpframe.inference.drafted import TITLE, DraftedSpaces, check_reviewed, drafted
from dpframe.inference.from_data import Reader, from_type
from dpframe.plan.declared import identifiers, placeholder
from dpframe.plan.plan import Plan
from dpframe.spaces import check_declaration
from dpframe.spaces.field import Field
from dpframe.spaces.json_form import unique_names
from dpframe.spaces.words import type_name
from dpframe.tables.inputs import open_input

FORMS: Mapping[str, Any] = {
    "(LOWER, UPPER)": {"lower": "LOWER", "upper": "UPPER"},
    "(FROM, TO)": {"lower": "FROM", "upper": "TO"},
    "[CATEGORY, …]": ["CATEGORY", "…"],
    "Subset([ITEM, …])": {"space": "subset", "items": ["ITEM", "…"]},
    "Vector(SIZE, BOUND)": {"space": "vector", "size": "SIZE", "bound": "BOUND"},
    "SPACE": "SPACE",
}
"""What a template has in place of each kind of declaration, with capitals to fill in."""

_TEMPLATE = (
    "What may be known about the columns without looking at the data: bounds, categories, items.",
    "Fill in what is in capitals.",
)
_HEAD = ("Nulls are kept by {around}.", "A column that is left out is inferred: --infer says from what.")
_FOUND = (
    "Found with noise, for {unit}: not to be used in plans for more, as values that only one person has may show here."
)
_NULLABLE = {".json": '{"space": "nullable", "inner": …}', ".toml": '{space = "nullable", inner = …}'}
_MOST = 0.99
"""Share of a budget when only spaces are inferred: a plan, although it is not used, needs some for the rows."""


def spaces(
    source: Source,
    output: Annotated[
        Path | None, option("Write a new file here, as JSON or TOML by the ending.", "--output", "-o")
    ] = None,
    infer: Annotated[float | None, option("Budget ε to find the spaces with, by noisy counts.")] = None,
    delta: Annotated[float | None, option("Budget δ.  [default: min(1e-6, rows^-1.5)]")] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="Fill it in from the data, for the curator's eyes: NOT private.")
    ] = False,
    drop: Annotated[list[str] | None, option("Columns to leave out; repeat.")] = None,
    contributions: Annotated[int | None, option("Rows that one person may own.")] = None,
    privacy_id: Annotated[str | None, option("The column that names each row's person.")] = None,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    part: Part = None,
) -> None:
    """Write a file of spaces to fill in, from only the schema; --infer EPSILON fills it in privately."""
    ending = ".json" if output is None else output.suffix.lower()
    if output is not None:
        check_named(output, *_NULLABLE)
        if in_place_of(output):  # what was filled in by hand cannot be made again
            raise FileError(f"{output} exists; name another file, or remove it")
    left_out = drop or []
    table = open_input(source).without(left_out)
    fields = table.fields([name for name in table.names if name != privacy_id])
    if infer is None and any(given is not None for given in (delta, ledger, dataset, part)):
        raise ParameterError("a template costs nothing; give --delta and a ledger with --infer EPSILON")
    if infer is None and any(given is not None for given in (contributions, privacy_id)):
        raise ParameterError(
            "a template holds nothing of anybody; give --contributions and --privacy-id with --infer EPSILON"
        )
    account = account_of(ledger, dataset, part)
    unit: dict[str, Any] = {"contributions": 1 if contributions is None else contributions, "privacy_id": privacy_id}

    if draft and infer is not None:
        raise ParameterError("--draft reads the data and --infer asks it with noise; give one of them")

    def made() -> tuple[dict[str, tuple[Any, str]], Sequence[str]]:
        if draft:
            return _drafted(fields, table.arrays)
        if infer is None:
            left = identifiers(fields, None)
            entries = {field.name: (_template(field), _kind(field)) for field in fields if field.name not in left}
            return entries, (*_TEMPLATE, *([_left(left)] if left else []))
        plan = verbs.plan(source, infer, delta, infer_share=_MOST, measure=None, drop=left_out, ledger=account, **unit)
        typer.echo(f"dpframe: {_cost(plan, ledger is not None)}", err=True)
        entries = {
            field.name: (_found(plan, field), _said(plan, field)) for field in fields if field.name in plan.names
        }
        found = () if plan.inferred is None else (_FOUND.format(unit=plan.unit.words),)
        left = [name for name in plan.drop if name not in left_out]
        return entries, (*found, *([_left(left)] if left else []))

    if output is None:
        typer.echo(written(*made(), ending), nl=False)
        return
    with atomic(output) as file:  # before anything is spent
        entries, said = made()
        file.write(written(entries, said, ending).encode())
    count, every = len(entries), len(fields)
    typer.echo(f"wrote {output}: spaces of {count} columns{'' if count == every else f' of {every}'}")


def _drafted(fields: Sequence[Field], read: Reader) -> tuple[dict[str, tuple[Any, str]], Sequence[str]]:
    found = drafted(fields, read)
    entries = {name: (space.to_json(), f"check: {found.notes[name]}") for name, space in found.spaces.items()}
    left = [f"{name} is left out: {why}" for name, why in found.left_out.items()]
    return entries, (f"{TITLE}.", "reviewed: false", "(write true above once every line is.)", *left)


def _left(names: Sequence[str]) -> str:
    return (
        f"A release leaves out, unless a space is declared: {name_list(names)} (identifiers by their names, or empty)."
    )


def _template(field: Field) -> Any:
    said = from_type(replace(field, nullable=False))
    return FORMS[placeholder(field.type)] if said is None else said.to_json()


def _found(plan: Plan, field: Field) -> Any:
    missing = any(one.column == field.name for one in plan.not_found)
    return _template(field) if missing else plan[field.name].space.to_json()


def _said(plan: Plan, field: Field) -> str:
    why = next((one.why for one in plan.not_found if one.column == field.name), None)
    return _kind(field) if why is None else f"{_kind(field)}; not found: {why}"


def _kind(field: Field) -> str:
    """Return what the schema says of a column."""
    bounds, values = json.dumps(FORMS["(LOWER, UPPER)"]), json.dumps(FORMS["[CATEGORY, …]"], ensure_ascii=False)
    return f"text; of numbers and dates {bounds}, of categories {values}" if field.written else type_name(field.type)


def _cost(plan: Plan, entered: bool) -> str:
    if plan.inferred is None:
        return "the types say all spaces; nothing was spent"
    spent, own = plan.inferred.budget, plan.inferred.epsilon_at(plan.delta)
    entry = "is in the ledger" if entered else "is in no ledger; count it, as each such call spends again"
    if own is not None:
        return f"finding them has cost epsilon={own:.4g} at delta={plan.delta:g}, which {entry}"
    return f"finding them has cost epsilon={spent.epsilon:g}, delta={spent.delta:g}, which {entry}"


def _comment(said: str) -> str:
    """Return one line: names within a type may hold anything."""
    return " ".join("".join(c if c.isprintable() else " " for c in said).split())


def written(entries: Mapping[str, tuple[Any, str]], said: Sequence[str], ending: str) -> str:
    """Return a file of spaces, each with a comment above it, and lines said first."""
    mark = "//" if ending == ".json" else "#"
    lines = [line.format(around=_NULLABLE[ending]) for line in _HEAD]
    head = [f"{mark} {line}" for line in (*map(_comment, said), *lines)]
    return "\n".join([*head, *(_json(entries) if ending == ".json" else _toml(entries))]) + "\n"


def _json(entries: Mapping[str, tuple[Any, str]]) -> Iterator[str]:
    yield "{"
    for i, (name, (spec, said)) in enumerate(entries.items()):
        yield f"  // {_comment(said)}"
        comma = "," if i < len(entries) - 1 else ""
        yield f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(spec, ensure_ascii=False)}{comma}"
    yield "}"


def _toml(entries: Mapping[str, tuple[Any, str]]) -> Iterator[str]:
    for name, (spec, said) in entries.items():
        yield f"# {_comment(said)}"
        yield f"{_quoted(name)} = {_toml_value(spec)}"


def _quoted(text: str) -> str:
    """Return text as TOML's basic string, which is JSON's with one more control character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        # TOML has no null: None is left out, and is the default.
        return "{" + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


OwnSpaces = Annotated[
    list[str] | None,
    option(
        "A column's space: COLUMN=LOWER,UPPER for numbers and dates, COLUMN=VALUE,VALUE,… for a list, or "
        "COLUMN=JSON as in a file of --spaces, which it overrides; e.g. age=0,120 or sex=F,M; repeat.",
        "--space",
    ),
]
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


def with_own(declared: Mapping[str, Any], texts: Sequence[str]) -> Mapping[str, Any]:
    """Return the declarations of a file, and those of ``--space``, which go first."""
    check_reviewed(declared)
    return {**declared, **dict(map(_own, texts))} if texts else declared


_DASHED = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|–|:|\.\.)\s*(-?\d+(?:\.\d+)?)")
"""Two numbers with something else than a comma between them."""
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")


def _own(text: str) -> tuple[str, Any]:
    name, sign, spec = text.partition("=")
    found = _values(spec.strip())
    if not (name and sign) or not found:
        raise ParameterError(
            "--space must be COLUMN=LOWER,UPPER, COLUMN=VALUE,VALUE,… or COLUMN=JSON, e.g. --space age=0,120 or "
            "--space sex=F,M"
        )
    dashed = _DASHED.fullmatch(spec.strip())
    if dashed:
        low, high = dashed.groups()
        raise ParameterError(f"--space of column {name!r}: bounds are written {name}={low},{high}")
    if _NUMBER.fullmatch(spec.strip()):
        raise ParameterError(
            f"--space of column {name!r}: one number is no space; bounds are written {name}=0,100, a list of one value "
            f"{name}=[{found[0]}]"
        )
    try:
        check_declaration(found)
    except DpframeError as error:
        raise ParameterError(f"--space of column {name!r}: {error}") from None
    return name, found


def _values(spec: str) -> Any:
    """Return a declaration: two numbers or two dates are bounds, other values a list of them."""
    try:
        if spec[:1] in ("{", "["):
            return json.loads(spec)
        found = json.loads(f"[{spec}]")
    except (ValueError, RecursionError):
        found = [] if spec[:1] in ("{", "[") else [value.strip() for value in spec.split(",") if value.strip()]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)
    dates = all(isinstance(value, str) and _DATE.fullmatch(value) for value in found)
    return {"lower": found[0], "upper": found[1]} if len(found) == 2 and (numbers or dates) else found


_UNREVIEWED = re.compile(r"(?m)^[ \t]*(//|#) reviewed: false[ \t]*$")


def read_spaces(path: Path) -> Mapping[str, Any]:
    """Read a file of spaces: TOML by its ending, else JSON, in which lines that begin with // are comments."""
    try:
        content = path.read_bytes()
    except OSError:
        raise FileError(f"{path} is not a readable file of spaces; dpframe spaces writes one") from None
    data = _parsed(path, content)
    if not isinstance(data, dict):
        raise FileError(f"{path} must hold one JSON object {{column: space}}")
    if isinstance(data.get("schema"), int) and "columns" in data:
        raise ParameterError(f"{path} is a plan, not a file of spaces; dpframe sanitize --plan {path} takes it")
    for name, spec in data.items():
        if _is_open(spec):
            raise ParameterError(f"{path}, column {name!r}: fill in what is in capitals, or leave it out")
        try:
            check_declaration(spec)
        except DpframeError as error:
            raise ParameterError(f"{path}, column {name!r}: {error}") from None
    return DraftedSpaces(data) if _UNREVIEWED.search(content.decode("utf-8-sig")) else data


def _is_open(spec: Any) -> bool:
    """Return whether a part of a declaration is still to be filled in."""
    if isinstance(spec, dict):
        ends = {spec.get(name) for name in ("lower", "upper") if isinstance(spec.get(name), str)}
        return bool(ends & {"LOWER", "UPPER", "FROM", "TO"}) or any(_is_open(part) for part in spec.values())
    return "…" in spec if isinstance(spec, list) else spec == FORMS["SPACE"]


def _parsed(path: Path, content: bytes) -> Any:
    toml = path.suffix.lower() == ".toml"
    try:
        text = content.decode("utf-8-sig")
        if toml:
            return tomllib.loads(text)
        return json.loads(re.sub(r"(?m)^[ \t]*//.*$", "", text), object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f" at line {line}" if line else ""
        kind = "TOML; write column = space" if toml else "JSON; write {column: space}, each once, // before comments"
        raise FileError(f"{path}{where} is not {kind}") from None
