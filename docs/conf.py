"""Settings of Sphinx: ``python -m sphinx -W -b html docs docs/_build``."""

import shutil
import sys
from pathlib import Path

import typer
from typer.main import get_command

import dpframe
from dpframe.cli.main import app

project, author, version = "dpframe", "The dpframe maintainers", dpframe.__version__
release, copyright = version, "the dpframe maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
extensions += ["sphinx_design", "sphinx_copybutton"]
# The button copies what a reader types, without prompts and results.
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
templates_path, exclude_patterns = ["_templates"], ["_build"]
html_theme = "furo"
html_static_path, html_css_files = ["_static"], ["tables.css"]
html_title = "dpframe"
default_role = "autolink"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False


def commands() -> str:
    """Return the help of every command, as the command itself prints it."""
    root = get_command(app)
    parts = []

    def walk(command: typer.core.TyperCommand, context: typer.Context, level: int) -> None:
        parts.append(f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n")
        for name in command.list_commands(context) if hasattr(command, "list_commands") else []:
            inner = command.get_command(context, name)
            walk(inner, typer.Context(inner, info_name=name, parent=context), level + 1)

    top = typer.Context(root, info_name="dpframe")
    for name in root.list_commands(top):
        inner = root.get_command(top, name)
        walk(inner, typer.Context(inner, info_name=name, parent=top), 3)
    return "\n".join(parts)


FOLDER = Path(__file__).parent
# A module of this folder, which Sphinx does not import from by itself.
sys.path.insert(0, str(FOLDER))
from notebook_pages import write_pages  # noqa: E402

# Pages of an earlier build may name what no longer exists.
for made in ("notebooks", "reference/generated"):
    shutil.rmtree(FOLDER / made, ignore_errors=True)
write_pages(FOLDER.parent / "notebooks", FOLDER / "notebooks")
(FOLDER / "reference" / "commands.txt").write_text(commands(), encoding="utf-8")
