"""Imports point down: a room imports only from rooms below its own (DESIGN §13), and its files stand in no circle."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name

import pytest
from public_names import internals

import dpframe

ROOT = Path(dpframe.__file__).parent

LAYERS = [
    ["errors", "datasets", "second_verifier"],
    ["disk", "spaces", "noise", "accounting"],
    ["channels", "totals", "observe"],
    ["inference", "forecast"],
    ["plan"],
    ["tables", "ledger"],
    ["release"],
    ["estimate", "proofs"],
    ["queries", "report"],
    ["api", "vertical"],
    ["engines", "cli"],
    ["__init__", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def room(name: str) -> str:
    return name.split(".")[0]


KNOWN = {dotted(module) for module in MODULES}


def imported(path: Path) -> set[str]:
    """Modules of dpframe that a file imports, at its top or late, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name} has a relative import"
            if node.module and node.module.split(".")[0] == "dpframe":
                inner = node.module.partition(".")[2]
                names = [f"{inner}.{alias.name}".lstrip(".") for alias in node.names]
                found |= {
                    n if n in KNOWN else inner if inner in KNOWN else f"{inner}.__init__".lstrip(".") for n in names
                }
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("dpframe.")}
    return found


def test_no_two_files_of_tests_have_one_name():
    """Their folders are no packages: pytest collects only one of two, and refuses a run of both tiers."""
    named = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert not [name for name, times in named.items() if times > 1]


def test_every_room_has_a_layer():
    assert {room(dotted(path)) for path in MODULES} == set(LEVEL)


def test_the_page_on_the_architecture_shows_every_layer_and_names_what_exists():
    text = (ROOT.parent / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    picture = re.search(r"```text\n(.*?)```", text, flags=re.DOTALL)[1]
    shown = [name for line in picture.splitlines() for name in re.findall(r"(?:^|  )([a-z_]+)(?=  )", line)]
    above = [set(names) for names in LAYERS[-2::-1]]
    while above:
        rooms = above.pop(0)
        assert {shown.pop(0) for _ in rooms} == rooms
    assert not shown
    named = [n for n in re.findall(r"`([a-z_]+\.[A-Za-z_.]+)`", text) if room(n) in LEVEL]
    assert len(named) > 20
    for name in named:
        resolve_name(f"dpframe.{name}")


def test_imports_point_down_and_in_no_circle():
    """Both in one test: every module is read once."""
    graph = {dotted(path): imported(path) for path in MODULES}
    upward = [
        f"{path} imports {name}, which is not below it"
        for path, names in graph.items()
        for name in sorted(names)
        if room(name) != room(path) and LEVEL[room(name)] >= LEVEL[room(path)]
    ]
    assert not upward
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(graph) <= set(order)


@pytest.mark.parametrize("name", ["channels", "noise", "accounting"])
def test_the_core_never_sees_pandas(name):
    for path in MODULES:
        if room(dotted(path)) == name:
            assert "pandas" not in path.read_text(encoding="utf-8").replace("pandas'", "")


TESTS = Path(__file__).parent
REACHES = 9
"""Times that tests use a private name of the library; it may only fall, as every one of them hinders a new design."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")


def reaches(path: Path) -> Iterator[str]:
    """Private names that a file of tests imports from dpframe, or takes of any object but its own."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    own = {f"self.{node.attr}" for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {f"self.{node.name}" for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpframe"):
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute) and private(node.attr) and ast.unparse(node) not in {*own, "os._exit"}:
            yield node.attr


@pytest.mark.slow
def test_tests_reach_into_few_private_names():
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    known = set(re.findall(r"\b_\w+", text))
    found = [(path.name, name) for path in sorted(TESTS.rglob("*.py")) for name in reaches(path) if name in known]
    assert len(found) <= REACHES, found


PUBLIC = 0.33
"""The share of the files of tests that use public names alone; it may only rise."""


@pytest.mark.slow
def test_many_files_of_tests_use_public_names_alone():
    found = {path.name: internals(path) for path in sorted(TESTS.rglob("test_*.py"))}
    share = sum(not names for names in found.values()) / len(found)
    nearest = {name: names for name, names in found.items() if len(names) == 1}
    assert share >= PUBLIC, f"{share:.3f}; of one internal name: {nearest}"


def test_internal_names_are_found_however_they_are_used(tmp_path):
    """As an import, an attribute, through a helper, and in text; documented ones are none."""
    path = tmp_path / "test_x.py"
    text = """
import P as dpf
from P import vertical
from P.plan.build import build_plan
from P.plan.columns import Column
from P.datasets import REGIONS
from checks import MECHANISMS
dpf.Ledger.create, dpf.plan, dpf.errors.PlanError, dpf.spaces.as_space, vertical.keys, vertical.Run
"P.tables.spill"; "x; from P.cli import terminal"; "see P.tables"
"""
    path.write_text(re.sub(r"\bP\b", "dpframe", text), encoding="utf-8")
    used = "plan.build.build_plan channels.MECHANISMS spaces vertical.keys tables.spill cli.terminal"
    assert internals(path) == {f"dpframe.{name}" for name in used.split()}
