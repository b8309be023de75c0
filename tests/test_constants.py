"""Every number at module level says in its docstring what kind of constant it is (DESIGN §3).

A limit bounds time, memory or a format. A tolerance changes no answer noticeably. Theory has its source. All others are
tuned: they were chosen on tables, and change answers, as `docs/measure_constants.py` measures.
"""

import ast
import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path

import dpframe

ROOT = Path(dpframe.__file__).parent

TUNED = {"estimate": 69, "forecast": 0, "inference": 36, "observe": 3, "plan": 31, "totals": 9}
"""Most tuned constants of each package. The count only falls: lower it with each one that goes."""

TAG = re.compile(r"\((limit of \w|tolerance\)|theory: \w|tuned[;: ])")


def constants(path: Path) -> Iterator[tuple[list[str], str]]:
    """Names of each assignment of numbers at module level, and the docstring below it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        parts = list(ast.walk(node.value))
        numbers = [part for part in parts if isinstance(part, ast.Constant) and type(part.value) in (int, float)]
        if not numbers or any(isinstance(part, ast.Lambda) for part in parts):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        yield names, " ".join(str(below.value.value).split()) if is_text else ""


def test_each_constant_has_a_kind_and_few_are_tuned():
    untagged, tuned = [], Counter()
    for package in TUNED:
        for path in sorted((ROOT / package).rglob("*.py")):
            for names, text in constants(path):
                kinds = TAG.findall(text)
                if len(kinds) != 1:
                    untagged.append(f"{path.relative_to(ROOT)}: {', '.join(names)}")
                elif kinds[0].startswith("tuned"):
                    tuned[package] += len(names)
    assert not untagged, "say which in the docstring: (limit of …), (tolerance), (theory: …) or (tuned; …)"
    assert all(tuned[package] <= most for package, most in TUNED.items()), f"more are tuned than {TUNED}: {tuned}"


def numeric_constants(path: Path) -> dict[str, object]:
    """Numbers at module level by name, as their values in the imported module."""
    targets = [
        target
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    if not names:
        return {}
    try:
        module = importlib.import_module(".".join(("dpframe", *path.relative_to(ROOT).with_suffix("").parts)))
    except ImportError:  # an engine without its package
        return {}
    return {name: getattr(module, name) for name in names if is_numeric(getattr(module, name, None))}


def is_numeric(value: object) -> bool:
    if isinstance(value, tuple | list):
        return bool(value) and all(is_numeric(part) for part in value)
    return isinstance(value, int | float | Decimal | Fraction | Context) and not isinstance(value, bool)


def test_no_name_of_a_constant_stands_for_two_values():
    modules = defaultdict(lambda: defaultdict(list))
    for path in sorted(ROOT.rglob("*.py")):
        if path.stem != "__main__":
            for name, value in numeric_constants(path).items():
                modules[name.lstrip("_")][repr(value)].append(str(path.relative_to(ROOT)))
    assert len(modules) > 300
    repeated = {name: dict(by_value) for name, by_value in modules.items() if len(by_value) > 1}
    assert not repeated, f"a constant's name contains its quantity and unit, and no two quantities share it: {repeated}"
