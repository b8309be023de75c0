"""The command ``dpframe spaces``, and the files of spaces that it writes: JSON or TOML, with comments.

A template is made from only the schema: it holds the name of each column and the declaration that its type implies.
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
from dpframe.cli.pipes import Source, describe_replacement
from dpframe.cli.shared import Dataset, LedgerFile, Part, open_account, option
from dpframe.disk import atomic, check_ending
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
"""Placeholders of a template for each kind of declaration, with capitals to fill in."""

_TEMPLATE_LINES = (
    "What may be known about the columns without looking at the data: bounds, categories, items.",
    "Fill in what is in capitals.",
)
_HEAD_LINES = ("Nulls are kept by {around}.", "A column that is left out is inferred: --infer says from what.")
_INFERRED_LINE = (
    "Found with noise, for {unit}: not to be used in plans for more, as values that only one person has may show here."
)
_NULLABLE_FORMS = {".json": '{"space": "nullable", "inner": …}', ".toml": '{space = "nullable", inner = …}'}
_INFERENCE_SHARE = 0.99
"""Share of the budget for inference: the plan is not used, but has to leave a budget for its rows."""


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
        check_ending(output, *_NULLABLE_FORMS)
        # Declarations that were filled in by hand cannot be made again.
        if describe_replacement(output):
            raise FileError(f"{output} exists; name another file, or remove it")
    left_out = drop or []
    table = open_input(source).without(left_out)
    fields = table.fields([name for name in table.names if name != privacy_id])
    if infer is None and any(setting is not None for setting in (delta, ledger, dataset, part)):
        raise ParameterError("a template costs nothing; give --delta and a ledger with --infer EPSILON")
    # Silently ignored, these options would suggest that the template costs or protects something.
    if infer is None and any(setting is not None for setting in (contributions, privacy_id)):
        raise ParameterError(
            "a template holds nothing of anybody; give --contributions and --privacy-id with --infer EPSILON"
        )
    account = open_account(ledger, dataset, part)
    unit: dict[str, Any] = {"contributions": 1 if contributions is None else contributions, "privacy_id": privacy_id}

    if draft and infer is not None:
        raise ParameterError("--draft reads the data and --infer asks it with noise; give one of them")

    def make_entries() -> tuple[dict[str, tuple[Any, str]], Sequence[str]]:
        if draft:
            return _draft_entries(fields, table.arrays)
        if infer is None:
            left_out_names = identifiers(fields, None)
            entries = {
                field.name: (_template_entry(field), _describe_type(field))
                for field in fields
                if field.name not in left_out_names
            }
            return entries, (*_TEMPLATE_LINES, *([_left_out_line(left_out_names)] if left_out_names else []))
        plan = verbs.plan(
            source, infer, delta, infer_share=_INFERENCE_SHARE, measure=None, drop=left_out, ledger=account, **unit
        )
        typer.echo(f"dpframe: {_describe_cost(plan, ledger is not None)}", err=True)
        entries = {
            field.name: (_inferred_entry(plan, field), _describe_entry(plan, field))
            for field in fields
            if field.name in plan.names
        }
        inferred_lines = () if plan.inferred is None else (_INFERRED_LINE.format(unit=plan.unit.words),)
        left_out_names = [name for name in plan.drop if name not in left_out]
        return entries, (*inferred_lines, *([_left_out_line(left_out_names)] if left_out_names else []))

    if output is None:
        typer.echo(format_spaces(*make_entries(), ending), nl=False)
        return
    # The file is opened before inference spends a budget.
    with atomic(output) as file:
        entries, head_lines = make_entries()
        file.write(format_spaces(entries, head_lines, ending).encode())
    space_count, column_count = len(entries), len(fields)
    typer.echo(
        f"wrote {output}: spaces of {space_count} columns{'' if space_count == column_count else f' of {column_count}'}"
    )


def _draft_entries(fields: Sequence[Field], read: Reader) -> tuple[dict[str, tuple[Any, str]], Sequence[str]]:
    draft = drafted(fields, read)
    entries = {name: (space.to_json(), f"check: {draft.notes[name]}") for name, space in draft.spaces.items()}
    left_out_lines = [f"{name} is left out: {reason}" for name, reason in draft.left_out.items()]
    return entries, (f"{TITLE}.", "reviewed: false", "(write true above once every line is.)", *left_out_lines)


def _left_out_line(names: Sequence[str]) -> str:
    return (
        f"A release leaves out, unless a space is declared: {name_list(names)} (identifiers by their names, or empty)."
    )


def _template_entry(field: Field) -> Any:
    implied_space = from_type(replace(field, nullable=False))
    return FORMS[placeholder(field.type)] if implied_space is None else implied_space.to_json()


def _inferred_entry(plan: Plan, field: Field) -> Any:
    is_missing = any(failure.column == field.name for failure in plan.not_found)
    return _template_entry(field) if is_missing else plan[field.name].space.to_json()


def _describe_entry(plan: Plan, field: Field) -> str:
    reason = next((failure.why for failure in plan.not_found if failure.column == field.name), None)
    return _describe_type(field) if reason is None else f"{_describe_type(field)}; not found: {reason}"


def _describe_type(field: Field) -> str:
    """Return the type of a column in words, with the forms of declarations that text may have."""
    bounds, values = json.dumps(FORMS["(LOWER, UPPER)"]), json.dumps(FORMS["[CATEGORY, …]"], ensure_ascii=False)
    return f"text; of numbers and dates {bounds}, of categories {values}" if field.written else type_name(field.type)


def _describe_cost(plan: Plan, is_in_ledger: bool) -> str:
    if plan.inferred is None:
        return "the types say all spaces; nothing was spent"
    budget, epsilon = plan.inferred.budget, plan.inferred.epsilon_at(plan.delta)
    ledger_note = "is in the ledger" if is_in_ledger else "is in no ledger; count it, as each such call spends again"
    if epsilon is not None:
        return f"finding them has cost epsilon={epsilon:.4g} at delta={plan.delta:g}, which {ledger_note}"
    return f"finding them has cost epsilon={budget.epsilon:g}, delta={budget.delta:g}, which {ledger_note}"


def _to_comment(text: str) -> str:
    """Return text as one line of printable characters."""
    # Names of fields within a type may hold line breaks, which would end the comment.
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def format_spaces(entries: Mapping[str, tuple[Any, str]], head_lines: Sequence[str], ending: str) -> str:
    """Return the text of a file of spaces: lines at its head, then each space below its comment."""
    mark = "//" if ending == ".json" else "#"
    lines = [line.format(around=_NULLABLE_FORMS[ending]) for line in _HEAD_LINES]
    head = [f"{mark} {line}" for line in (*map(_to_comment, head_lines), *lines)]
    return "\n".join([*head, *(_json_lines(entries) if ending == ".json" else _toml_lines(entries))]) + "\n"


def _json_lines(entries: Mapping[str, tuple[Any, str]]) -> Iterator[str]:
    yield "{"
    for i, (name, (spec, comment)) in enumerate(entries.items()):
        yield f"  // {_to_comment(comment)}"
        comma = "," if i < len(entries) - 1 else ""
        yield f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(spec, ensure_ascii=False)}{comma}"
    yield "}"


def _toml_lines(entries: Mapping[str, tuple[Any, str]]) -> Iterator[str]:
    for name, (spec, said) in entries.items():
        yield f"# {_to_comment(said)}"
        yield f"{_quote(name)} = {_toml_value(spec)}"


def _quote(text: str) -> str:
    """Return text as TOML's basic string, which is JSON's with one more control character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        # TOML has no null: None is left out, and is the default.
        return "{" + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _quote(value) if isinstance(value, str) else json.dumps(value)


SpaceOptions = Annotated[
    list[str] | None,
    option(
        "A column's space: COLUMN=LOWER,UPPER for numbers and dates, COLUMN=VALUE,VALUE,… for a list, or "
        "COLUMN=JSON as in a file of --spaces, which it overrides; e.g. age=0,120 or sex=F,M or "
        'score={"lower": 0, "upper": 10, "special": ["refused"]}; repeat.',
        "--space",
    ),
]
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


def add_space_options(declared: Mapping[str, Any], texts: Sequence[str]) -> Mapping[str, Any]:
    """Return the declarations of a file, overridden by those of ``--space``."""
    check_reviewed(declared)
    return {**declared, **dict(map(_parse_space, texts))} if texts else declared


_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:-|–|:|\.\.)\s*(-?\d+(?:\.\d+)?)")
"""Two numbers with a dash, colon or dots between them."""
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")


def _parse_space(text: str) -> tuple[str, Any]:
    name, sign, value_text = text.partition("=")
    declaration = _parse_values(value_text.strip())
    if not (name and sign) or not declaration:
        raise ParameterError(
            "--space must be COLUMN=LOWER,UPPER, COLUMN=VALUE,VALUE,… or COLUMN=JSON, e.g. --space age=0,120 or "
            "--space sex=F,M"
        )
    # The most likely slip gets a message of its own: otherwise 0-120 would be a category.
    range_match = _RANGE.fullmatch(value_text.strip())
    if range_match:
        low, high = range_match.groups()
        raise ParameterError(f"--space of column {name!r}: bounds are written {name}={low},{high}")
    if _NUMBER.fullmatch(value_text.strip()):
        raise ParameterError(
            f"--space of column {name!r}: one number is no space; bounds are written {name}=0,100, a list of one value "
            f"{name}=[{declaration[0]}]"
        )
    try:
        check_declaration(declaration)
    except DpframeError as error:
        raise ParameterError(f"--space of column {name!r}: {error}") from None
    return name, declaration


def _parse_values(spec: str) -> Any:
    """Return a declaration: bounds for two numbers or two dates, otherwise a list of values."""
    try:
        if spec[:1] in ("{", "["):
            return json.loads(spec)
        values = json.loads(f"[{spec}]")
    except (ValueError, RecursionError):
        values = [] if spec[:1] in ("{", "[") else [value.strip() for value in spec.split(",") if value.strip()]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    dates = all(isinstance(value, str) and _DATE.fullmatch(value) for value in values)
    return {"lower": values[0], "upper": values[1]} if len(values) == 2 and (numbers or dates) else values


_UNREVIEWED = re.compile(r"(?m)^[ \t]*(//|#) reviewed: false[ \t]*$")


def read_spaces(path: Path) -> Mapping[str, Any]:
    """Read a file of spaces: TOML by its ending, otherwise JSON, whose lines that begin with // are comments."""
    try:
        content = path.read_bytes()
    except OSError:
        raise FileError(f"{path} is not a readable file of spaces; dpframe spaces writes one") from None
    data = _parse_file(path, content)
    if not isinstance(data, dict):
        raise FileError(f"{path} must hold one JSON object {{column: space}}")
    # A plan is JSON with spaces in it, too, and easily taken for a file of spaces.
    if isinstance(data.get("schema"), int) and "columns" in data:
        raise ParameterError(f"{path} is a plan, not a file of spaces; dpframe sanitize --plan {path} takes it")
    for name, spec in data.items():
        if _has_placeholder(spec):
            raise ParameterError(f"{path}, column {name!r}: fill in what is in capitals, or leave it out")
        try:
            check_declaration(spec)
        except DpframeError as error:
            raise ParameterError(f"{path}, column {name!r}: {error}") from None
    return DraftedSpaces(data) if _UNREVIEWED.search(content.decode("utf-8-sig")) else data


def _has_placeholder(spec: Any) -> bool:
    """Return whether a declaration has a placeholder that is still to be filled in."""
    if isinstance(spec, dict):
        ends = {spec.get(name) for name in ("lower", "upper") if isinstance(spec.get(name), str)}
        return bool(ends & {"LOWER", "UPPER", "FROM", "TO"}) or any(_has_placeholder(part) for part in spec.values())
    return "…" in spec if isinstance(spec, list) else spec == FORMS["SPACE"]


def _parse_file(path: Path, content: bytes) -> Any:
    toml = path.suffix.lower() == ".toml"
    try:
        # Editors on Windows begin files with a byte order mark.
        text = content.decode("utf-8-sig")
        if toml:
            return tomllib.loads(text)
        # A column that is named twice would silently lose its first declaration.
        return json.loads(re.sub(r"(?m)^[ \t]*//.*$", "", text), object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        place = f" at line {line}" if line else ""
        kind = "TOML; write column = space" if toml else "JSON; write {column: space}, each once, // before comments"
        raise FileError(f"{path}{place} is not {kind}") from None
