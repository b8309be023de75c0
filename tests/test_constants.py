"""Every number at module level says in its docstring what kind of constant it is (DESIGN §3).

A limit bounds time, memory or a format. A tolerance changes no answer noticeably. Theory has its source. All others are
tuned: they were chosen on tables, and change answers, as `docs/measure_constants.py` measures.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dpframe

ROOT = Path(dpframe.__file__).parent

TUNED = {"estimate": 70, "forecast": 0, "inference": 81, "observe": 3, "plan": 30, "totals": 9}
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
