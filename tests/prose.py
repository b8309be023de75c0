"""Messages of modules and sentences of pages, for tests that count their words."""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import TypeAlias

from dpframe import errors

RAISING = {name for name in errors.__all__ if not name.endswith("Warning")} | {"warn", "warn_of_columns", "echo"}
"""Classes and functions whose first argument is a message."""

Scope: TypeAlias = MutableMapping[str, list[ast.expr]]


def count_words(text: str) -> int:
    """Return the number of words between spaces, without lone symbols: a placeholder is one word."""
    return len(re.findall(r"[^\s{}]*(?:\w|\{\})\S*", text))


def text_of(node: ast.expr, scope: Scope, names: frozenset[str] = frozenset()) -> str:
    """Return the longest text that an expression may be, with {} for its unknown parts.

    ``names`` are being looked up: a name that is made of itself ends there.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, scope, names) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, scope, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, scope, names) + text_of(node.right, scope, names)
    if isinstance(node, ast.IfExp):
        return max((text_of(part, scope, names) for part in (node.body, node.orelse)), key=count_words)
    if isinstance(node, ast.Call):
        # A function of the module may return the message, and a template may be filled in.
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "format" and isinstance(function, ast.Attribute):
            return text_of(function.value, scope, names)
        node = ast.Name(f"{name}()")
    if isinstance(node, ast.Name) and scope.get(node.id) and node.id not in names:
        return max((text_of(value, scope, names | {node.id}) for value in scope[node.id]), key=count_words)
    return "{}"


def assignments(nodes: Iterator[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return the expressions that each name is assigned, and those that each function returns."""
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.FunctionDef):
            returns = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value is not None]
            values |= {f"{node.name}()": returns} if returns else {}
    return values


def scope_within(function: ast.FunctionDef, outer: Callable[[], Scope]) -> Scope:
    """Return the names of a function: its arguments, which may be anything, its assignments, and those around it."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return ChainMap({argument.arg: [] for argument in arguments}, assignments(ast.walk(function)), outer())


def messages(source: str) -> list[tuple[int, str]]:
    """Return the line and the text of every message of a module: of its errors and warnings."""

    def visit(node: ast.AST, scope: Callable[[], Scope]) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.FunctionDef):
            # Most functions have no message: their assignments are read only for one.
            scope = partial(scope_within, node, scope)
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in RAISING:
                yield node.lineno, text_of(node.args[0], scope())
        for child in ast.iter_child_nodes(node):
            yield from visit(child, scope)

    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    module_scope = assignments(iter([*tree.body, *functions]))
    return list(visit(tree, lambda: module_scope))


def sentences(page: str) -> list[str]:
    """Return the sentences of a page, without code, tables, headings and the addresses of links."""
    page = re.sub(r"(?ms)^```\{glossary\}\n(.*?)^```", r"\1", page)
    page = re.sub(r"(?ms)^```.*?^```\s*$", "", page)
    blocks = [""]
    for line in map(str.strip, page.splitlines()):
        item = re.match(r"(?:[-*+]|\d+\.) +", line)
        if item or not line or line.startswith(("|", "#", "<", "![")):
            blocks.append("")
        if not line.startswith(("|", "#", "<", "![")):
            blocks[-1] += f" {line.removeprefix(item.group() if item else '')}"
    text = "\n".join(blocks)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\b(e\.g|i\.e|et al|Ex|Thm|App|p|pp|vs)\.", r"\1", text)
    parts = re.split(r"\n| · |(?<=[.!?])[\"”)*_]*\s+(?=[\"“(*_]*[A-Z0-9])", text)
    return [part.strip() for part in parts if re.search(r"[A-Za-z]", part)]
