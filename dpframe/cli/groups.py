"""The commands in groups, as ``dpframe --help`` shows them, in the order in which they are used."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

GROUPS = {
    "Plan a release": ("spaces", "plan", "check"),
    "Release a table": ("sanitize", "synthesize", "vertical"),
    "Read a release": ("inspect", "estimate"),
    "Prove and record": ("verify", "record", "audit"),
    "Answers and budgets": ("query", "ledger"),
    "Try it": ("demo",),
}

EXAMPLE = (
    "Example: dpframe sanitize people.parquet release.parquet --epsilon 1, then dpframe estimate release.parquet mean "
    "age. Help on a command: dpframe sanitize --help"
)


def _sentence(text: str) -> str:
    """Return the first sentence of a help text, in one line."""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].removesuffix(".") + "."


class GroupedCommands(TyperGroup):
    """A group whose commands are listed under headings; one that has no heading comes last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and the first sentences of their help."""
        named = {name for names in GROUPS.values() for name in names}
        left = tuple(name for name in self.list_commands(ctx) if name not in named)
        width = max(map(len, self.list_commands(ctx)))
        for title, names in {**GROUPS, "Other": left}.items():
            rows = [
                (name.ljust(width), _sentence(command.help or ""))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
