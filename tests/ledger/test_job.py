"""Check, spend, key, draw: one order for everything that draws noise."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import dpframe
from dpframe.ledger.account import Job

STEPS = ("check", "spend", "key", "draw")


@dataclass
class Diary(Job[str, str]):
    """Writes down the order of its steps, and fails at one of them."""

    fails: str | None = None
    pages: list[str] = field(default_factory=list)

    def _page(self, step):
        self.pages.append(step)
        if step == self.fails:
            raise OSError(step)

    def check(self):
        self._page("check")
        return "checked"

    def spend(self, checked):
        self._page("spend")
        return f"{checked} and paid"

    def key(self):
        self._page("key")
        return bytes(32)

    def draw(self, checked, receipt, key):
        self._page("draw")
        return f"{checked}, {receipt}, {len(key)}"


def test_the_order():
    diary = Diary()
    assert diary.run() == "checked, checked and paid, 32"
    assert tuple(diary.pages) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_is_the_last(step):
    diary = Diary(step)
    with pytest.raises(OSError, match=step):
        diary.run()
    assert tuple(diary.pages) == STEPS[: STEPS.index(step) + 1]


@pytest.mark.slow
def test_only_jobs_spend():
    """Outside of budgets and the ledger itself nothing enters a spend but the `spend` of a job."""
    stray = []
    for path in sorted(Path(dpframe.__file__).parent.rglob("*.py")):
        if path.parent.name == "ledger" or path.name == "budgets.py":
            continue
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef) or function.name in ("spend", "pay"):
                continue
            own = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            calls = [ast.unparse(call.func) for call in own]
            inner = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function]
            nested = [ast.unparse(c.func) for one in inner for c in ast.walk(one) if isinstance(c, ast.Call)]
            found = [call for call in calls if call.endswith((".spend", ".pay")) and call not in nested]
            stray += [f"{path.name}: {function.name}: {call}" for call in found]
    assert not stray
