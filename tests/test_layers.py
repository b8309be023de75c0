"""Imports point down: a module may import only from layers below its own (DESIGN §13)."""

import ast
from pathlib import Path

import pytest

import dpframe

ROOT = Path(dpframe.__file__).parent

LAYERS = [
    ["errors", "datasets", "stopping", "cli_words"],
    ["keystream", "spaces", "loss", "ledgerfile", "nested"],
    ["tables", "sufficient", "accounting"],
    ["mechanisms"],
    ["units", "measured"],
    ["calibration", "forecast"],
    ["allocation", "levers", "samplecurve"],
    ["building", "certificate", "findings"],
    ["plan"],
    ["infer", "release", "ledger"],
    ["private", "replay"],
    ["frames", "files"],
    ["estimate", "planning", "spent"],
    ["inmemory", "jobs"],
    ["audit", "html", "verify"],
    ["report"],
    ["accessor", "learning", "parquet", "transformer"],
    ["writing"],
    ["cli_ledger"],
    ["cli"],
    ["__init__", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in ROOT.rglob("*.py"))


def top(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Names of the dpframe modules (first part) that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dpframe":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("dpframe.")}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path.name} has a relative import"
    return found


def test_every_module_has_a_layer():
    assert {top(path) for path in MODULES} == set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    own = top(path)
    for name in imported(path) - {own}:
        assert LEVEL[name] < LEVEL[own], f"{own} imports {name}, which is not below it"


@pytest.mark.parametrize("package", ["mechanisms", "keystream", "tables", "loss"])
def test_the_core_never_sees_pandas(package):
    for path in MODULES:
        if top(path) == package:
            assert "pandas" not in path.read_text(encoding="utf-8").replace("pandas'", "")
