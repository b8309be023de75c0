"""Commands and options in groups, as ``--help`` shows them, in the order in which they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

GROUPS = {
    "Plan a release": ("check", "spaces", "forecast", "plan", "plan-tables"),
    "Release a table": ("sanitize", "sanitize-tables", "synthesize", "vertical"),
    "Read a release": ("inspect", "estimate"),
    "Prove and record": ("verify", "record", "audit"),
    "Answers and budgets": ("query", "ledger"),
    "Try it": ("demo",),
}

OPTIONS = {
    "Privacy": (
        "epsilon delta rows shuffle sample local_epsilon contributions privacy_id",
        "--epsilon 1 --contributions 3",
    ),
    "Privacy, from the accuracy that is needed": ("target max_epsilon", "--target region=0.01 --target age=0.5"),
    "Columns": (
        "spaces space drop passthrough nulls rules group mechanism numbers ordinals sets allocation",
        "--space age=0,120 --space sex=F,M --drop id",
    ),
    "Inference of columns that are not declared": ("infer infer_share max_items", "--infer private --infer-share 0.2"),
    "Measured tables": ("measure measure_share weights", '--measure "auto; sex,age,income"'),
    "Ledger": ("ledger dataset part run", "--ledger ledger.sqlite --dataset people"),
    "A plan that is ready": ("plan", "--plan plan.json"),
    "CSV files": ("sep decimal dayfirst encoding", '--sep ";" --decimal ,'),
    "Output": ("output html explain as_json", "--json"),
}
"""The options of ``plan`` and ``sanitize`` by their parameters' names, and an example of each group."""

EXAMPLE = (
    "Example: dpframe sanitize people.parquet release.parquet --epsilon 1, then dpframe estimate release.parquet mean "
    "age. Help on a command: dpframe sanitize --help"
)


def _first_sentence(text: str) -> str:
    """Return the first sentence of a help text, in one line."""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].removesuffix(".") + "."


class Commands(TyperGroup):
    """A group whose commands are listed with the first sentences of their help, uncut."""

    headings: Mapping[str, tuple[str, ...]] = {}
    fallback_heading = "Commands"

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and the first sentences of their help texts."""
        grouped_names = {name for names in self.headings.values() for name in names}
        other_names = tuple(name for name in self.list_commands(ctx) if name not in grouped_names)
        # One width under all headings aligns their texts.
        width = max(map(len, self.list_commands(ctx)))
        for title, names in {**self.headings, self.fallback_heading: other_names}.items():
            rows = [
                (name.ljust(width), _first_sentence(command.help or ""))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


COMMAND_HINTS = {
    "expect": "dpframe forecast SOURCE --epsilon 1 says what to expect",
    "report": "dpframe inspect RELEASE --html FILE writes the report",
    "draft": "dpframe spaces SOURCE --draft drafts spaces",
    "explain": "dpframe plan SOURCE --epsilon 1 --explain explains a plan",
    "histogram": "dpframe estimate RELEASE histogram COLUMN is of a release, dpframe query of a table",
}
"""Names of Python functions that are no commands, and the command to use in place of each."""


class GroupedCommands(Commands):
    """A group whose help lists commands under headings, and all other commands last."""

    headings = GROUPS
    fallback_heading = "Other"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the right command for the name of a Python function; find other commands as usual."""
        if args[0] in COMMAND_HINTS and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}: {COMMAND_HINTS[args[0]]}")
        return super().resolve_command(ctx, args)


class GroupedOptions(TyperCommand):
    """A command whose help lists options under headings, each with an example, and all other options last."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by groups."""
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        arguments = [param.name for param in self.params if isinstance(param, TyperArgument)]
        grouped = {title: (names.split(), example) for title, (names, example) in OPTIONS.items()}
        grouped_names = {name for names, _ in grouped.values() for name in names}
        other_names = [name for name in records if name not in grouped_names and name not in arguments]
        for title, (names, example) in {"Arguments": (arguments, ""), **grouped, "Other": (other_names, "")}.items():
            # The same name may be an argument of one command and an option of another.
            shown_names = names if title == "Arguments" else [name for name in names if name not in arguments]
            rows = [record for name in shown_names if (record := records.get(name)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
                    if example:
                        formatter.write_text(f"e.g. {example}")
