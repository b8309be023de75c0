"""Every Python snippet of the README is executed, in order, in an empty folder."""

import doctest
import re
from importlib.util import find_spec
from pathlib import Path

import dpframe as dpf

README = Path(__file__).parents[1] / "README.md"


def test_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    # A word behind the language names the package that a snippet needs.
    marked = re.findall(r"```python(?: (\w+))?\n(.*?)```", text, flags=re.DOTALL)
    snippets = [snippet for package, snippet in marked if not package or find_spec(package)]
    assert len(snippets) >= 7
    test = doctest.DocTestParser().get_doctest("\n".join(snippets), {}, "README", str(README), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test)
    assert runner.summarize().failed == 0


def test_console_commands_exist():
    from typer.main import get_command

    from dpframe.cli.main import app

    blocks = re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    shown = set(re.findall(r"\bdpframe ([a-z]+)", "\n".join(blocks)))
    assert shown == set(get_command(app).commands)


def test_first_five_lines_say_what_it_is():
    lines = README.read_text(encoding="utf-8").split("\n")
    assert lines[0] == "# dpframe"
    assert lines[2:7] == [line for line in lines[2:7] if line.strip()]
    assert lines[7] == ""


def test_the_citation_names_this_version():
    lines = (README.parent / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {dpf.__version__}" in lines
