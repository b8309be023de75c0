"""The README's test command brings all that its tests need, and .ci/run runs it where nothing else is."""

import hashlib
import os
import re
import secrets
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def closure(requirement: str) -> set[str]:
    """Return the names of all that an installer brings for a requirement, by the installed packages' own metadata."""
    found: set[tuple[str, str]] = set()
    open_ = [Requirement(requirement)]
    while open_:
        one = open_.pop()
        for extra in ("", *one.extras):
            name = canonicalize_name(one.name)
            if (name, extra) in found:
                continue
            found.add((name, extra))
            inner = map(Requirement, distribution(one.name).requires or ())
            open_ += [r for r in inner if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_what_is_needed_is_known():
    """Of packages that need packages, too."""
    assert {"dpframe", "numpy", "pandas", "pytest", "execnet", "jupyter-client"} <= closure("dpframe[test]")
    assert "pytest" not in closure("dpframe")
    assert not {"pyspark", "dask", "uv", "mypy"} & closure("dpframe[test]")


@pytest.mark.skipif(os.environ.get("DPFRAME_ENVIRONMENT") != "new", reason="the environment may hold anything else")
def test_a_new_environment_holds_what_the_command_installs_and_nothing_else():
    there = {canonicalize_name(one.name) for one in distributions()}
    assert there - closure("dpframe[test]") <= {"pip", "setuptools"}


def test_each_python_gets_an_environment_that_only_the_readme_fills():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    readme = re.search(r"^readme\(\) \{\n(.*?)^\}", script, flags=re.DOTALL | re.MULTILINE)
    assert readme is not None
    assert "DPFRAME_ENVIRONMENT=new" in readme[1]
    assert not re.search(r"pip\"? install|uv", readme[1].replace("^pip install -e", ""))
    runs = re.findall(r"^ *run \".*?\" (\w+)", script, flags=re.MULTILINE)
    assert runs[0] == "readme", "before anything else could be installed beside it"


def test_keys_that_are_taken_afresh_are_those_of_every_run(request: pytest.FixtureRequest) -> None:
    """One draw of noise in many would fail a test that nobody could run again (tests/fresh_keys.py)."""
    name = request.node.nodeid
    drawn = [secrets.token_bytes(32) for _ in range(3)]
    assert drawn == [hashlib.shake_256(f"{name} {i}".encode()).digest(32) for i in range(3)]
