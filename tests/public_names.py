"""What tests may use of dpframe and survive a new design: what the reference of the API lists, and the command."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import dpframe

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "reference" / "api.md").read_text(encoding="utf-8")

LISTED = [
    f"{module}.{name}"
    for module, part in re.findall(r"(?s)currentmodule:: (\S+)(.*?)(?=\.\. currentmodule|$)", PAGE)
    for listing in re.findall(r":toctree: generated\n\n((?:   \S+\n)+)", part)
    for name in listing.split()
]
"""Names that the reference lists one by one."""

MODULES = {*re.findall(r"automodule:: (\S+)", PAGE), *re.findall(r"`(dpframe\.engines\.\w+)`", PAGE)}
"""Modules that it describes as a whole."""

COMMAND = "dpframe.cli.main.main"
"""What the script of pyproject.toml calls."""

HELPERS = {path.stem: path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")}
"""Files that tests share; each wraps the internals that it uses, and hands none of them on."""


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def leads(name: str) -> bool:
    """Tell whether a dotted name is a documented module, or a package of something documented."""
    return name in MODULES or any(known.startswith(f"{name}.") for known in (*LISTED, *MODULES, COMMAND))


def is_public(name: str) -> bool:
    """Tell whether a dotted name is documented, stands at the top of the package, or leads to one that is."""
    module, _, last = name.rpartition(".")
    if last.startswith("__") or (module == "dpframe" and not isinstance(getattr(dpframe, last, None), ModuleType)):
        return True
    if module in MODULES:
        described = importlib.import_module(module)
        return last in getattr(described, "__all__", [n for n in vars(described) if not n.startswith("_")])
    return name in {*LISTED, COMMAND} or leads(name)


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield every name that a file gives to something of dpframe, and what it is; what helpers hand on as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.asname, alias.name) for alias in node.names]
            yield from ((short or name.split(".")[0], name) for short, name in found if name.split(".")[0] == "dpframe")
        elif isinstance(node, ast.ImportFrom) and node.module in HELPERS:
            handed = dict(imports(parsed(HELPERS[node.module])))
            yield from ((alias.name, handed[alias.name]) for alias in node.names if alias.name in handed)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dpframe":
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def dotted(node: ast.AST, given: dict[str, str]) -> str:
    """Return the dotted name that an expression is, its first part as it was imported, or "" if it is none."""
    if isinstance(node, ast.Name):
        return given.get(node.id, "")
    start = dotted(node.value, given) if isinstance(node, ast.Attribute) else ""
    return start and f"{start}.{node.attr}"


def used(path: Path) -> Iterator[str]:
    """Yield what a file uses of dpframe: by import, as an attribute of a module, and in text that is run."""
    tree = parsed(path)
    yield from (name for _, name in imports(tree) if name != "dpframe")
    given = dict(imports(tree)) | {"dpframe": "dpframe"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = dotted(node.value, given)
            if module == "dpframe" or leads(module):
                yield f"{module}.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^dpframe[.\w]*\.\w+$", node.value)
            for module, names in re.findall(r"\bfrom (dpframe[.\w]*) import (\w+(?:, \w+)*)", node.value):
                yield from (f"{module}.{name}" for name in names.split(", "))


def internals(path: Path) -> set[str]:
    """Return what a file of tests uses of dpframe that is not public."""
    return {name for name in used(path) if not is_public(name)}
