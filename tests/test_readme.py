"""Every Python snippet of README and of the pages in docs/ is executed, page by page, each in an empty folder."""

import doctest
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import every_command

import dpframe as dpf

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MADE = {"_build", "generated", "notebooks"}
"""Folders of docs/ that Sphinx makes."""

PAGES = [README, *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in MADE)]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def snippets(path):
    """The Python blocks of a page; a word behind the language names a package that a block needs."""
    marked = re.findall(r"```python(?: (\w+))?\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [text for package, text in marked if not package or find_spec(package)]


def tiered(pages):
    """Pages with snippets: what a newcomer reads first is run by `pytest`, the others by the slow tier."""
    for page in pages:
        if "```python" in page.read_text("utf-8"):
            first = name_of(page) in ("README.md", "docs/start.md")
            yield pytest.param(page, id=name_of(page), marks=[] if first else [pytest.mark.slow])


@pytest.mark.parametrize("path", list(tiered(PAGES)))
def test_snippets(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest("\n".join(snippets(path)), {}, path.stem, str(path), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test)
    assert runner.summarize().failed == 0


def test_snippets_are_found():
    assert len(snippets(README)) >= 2
    assert sum(bool(snippets(page)) for page in PAGES) >= 10
    assert all("```python" not in text for page in PAGES for text in snippets(page))


COMMANDS = {" ".join(words): command for words, command in every_command()}


def check_options(line):
    """A line that is shown names a command and options that there are."""
    words = line.split()
    name = next(n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS)
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    for option in (word for word in words if re.match(r"--?[a-z]", word)):
        assert option in known, f"dpframe {line}: there is no {option}"


def test_every_command_is_shown_and_exists_with_its_options():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES).replace("\\\n", " ")
    shown = [
        line
        for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
        for line in re.findall(r"\bdpframe ([a-z].*)", block)
    ]
    assert {line.split()[0] for line in shown} == {name.split()[0] for name in COMMANDS}
    for line in shown:
        check_options(line)


def test_the_help_of_every_command_ends_with_an_example():
    for name, command in COMMANDS.items():
        if name in ("ledger forget", "vertical plan"):  # for rare cases; too long for a line
            continue
        example = re.fullmatch(r"Example: dpframe (.*)", command.epilog or "")
        assert example, f"dpframe {name} has no example"
        assert example[1].startswith(name)
        check_options(example[1])


CODE_WIDTH = 88
"""Characters of a line of code that a page of the documentation shows without a scroll bar."""


def test_no_line_of_code_is_wider_than_a_page():
    blocks = {path: re.findall(r"(?ms)^```\w[^\n]*\n(.*?)^```", path.read_text(encoding="utf-8")) for path in PAGES}
    lines = [(name_of(path), line) for path in PAGES for block in blocks[path] for line in block.splitlines()]
    assert len(lines) > 900
    assert not [(name, line) for name, line in lines if len(line) > CODE_WIDTH]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files(path):
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), f"{name_of(path)} links to {link}"


def test_readme_is_short_and_its_first_lines_say_what_it_is():
    lines = README.read_text(encoding="utf-8").split("\n")
    assert len(lines) <= 200
    assert lines[0] == "# dpframe"
    assert lines[2:7] == [line for line in lines[2:7] if line.strip()]
    assert lines[7] == ""


def test_the_citation_names_this_version():
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {dpf.__version__}" in lines


def test_public_names_are_all_in_the_reference():
    listed = set(re.findall(r"^   (\w+)$", (ROOT / "docs" / "reference" / "api.md").read_text("utf-8"), flags=re.M))
    assert set(dpf.__all__) - {"datasets", "errors"} <= listed
