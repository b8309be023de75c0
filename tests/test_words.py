"""Prose is plain English (DESIGN §18): words that well-kept code bases hardly use are counted; counts only fall."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from prose import count_words, messages, sentences

import dpframe

PACKAGE = Path(dpframe.__file__).parent
MADE = {"_build", "generated", "notebooks"}
"""Folders of docs/ that Sphinx makes."""
PAGES = [
    path
    for path in (PACKAGE.parent / "README.md", *sorted((PACKAGE.parent / "docs").rglob("*.md")))
    if path.exists() and path.parent.name not in MADE
]

WORDS = {
    "tell": r"\b(?:tells?|told|telling)\b",
    "alone": r"\balone\b",
    "beside": r"\bbesides?\b",
    "stands": r"\b(?:stands?|stood)\b",
    "whatever": r"\bwhatever\b",
    "whoever": r"\bwhoever\b",
    "is none": r"\b(?:is|are) none\b",
    "of which": r"\bof (?:which|whom)\b",
    "but for": r"\bbut for\b",
    "opens with Of": r"(?:^|[.!?]\s+)(?-i:Of)\b",
}
# The most of each word per 1,000 words of docstrings, comments, messages and pages. A ceiling may only fall.
CEILINGS = {
    "tell": 0.15,
    "alone": 0.15,
    "beside": 0.15,
    "stands": 0.15,
    "whatever": 0.15,
    "whoever": 0.02,
    "is none": 0.13,
    "of which": 0.15,
    "but for": 0.05,
    "opens with Of": 0.15,
}
PARTICIPLES = r"""found|told|kept|known|left|held|drawn|asked|made|taken|seen|shown|given|moved|cut|chosen|counted
|measured|met|allowed|lost|hidden|spread|risen|evened|opened"""
ADJECTIVES = (
    r"""own|most|whole|rest|apart|near|few|many|alone|other|others|least|both|each|same|such|far|wide|loud|bare"""
)
# The most per 100 names, and per 1,000 words of docstrings and comments. A ceiling may only fall.
NAME_CEILINGS = {"participles": (PARTICIPLES, 0.8), "adjectives and quantifiers": (ADJECTIVES, 0.6)}
TEXT_CEILINGS = {
    "what": (r"\bwhat\b", 0.6),
    "that of, of it, the same": (r"\b(?:that of|those of|of it|the same)\b", 1.0),
    "where": (r"\bwhere\b(?! *[:=`])", 0.8),
}
FEWEST_COMMENTS = 2.0
"""Comments per 100 lines, at least. The floor may only rise."""
LONGEST_MESSAGE = 30
"""Words of a message, at most. The ceiling may only fall, and so may the next two."""
LONGEST_SENTENCE = 35
"""Words of a sentence of a page, at most."""
MEAN_SENTENCE = 16.0
"""Mean number of words of the sentences of all pages, at most."""
# Nouns of our own where the field has one: a Purse is a query budget, a Wish is a workload.
PRIVATE_NOUNS = {"Purse", "Wish", "Draft", "Terms", "Maker", "Reach", "Portion", "Whole", "Look"}
EXCEPTIONS = {"Portion"}


def prose(path: Path) -> list[str]:
    """Comments, docstrings and messages of a module (strings with a space), or the whole of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return [text]
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    constants = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    return comments + [value for value in constants if isinstance(value, str) and " " in value]


def count(pieces: list[str]) -> Counter[str]:
    found = {word: sum(len(re.findall(p, piece, re.I | re.M)) for piece in pieces) for word, p in WORDS.items()}
    return Counter({**found, "words": sum(len(re.findall(r"[A-Za-z']+", piece)) for piece in pieces)})


def counts() -> dict[str, Counter[str]]:
    paths = [*PAGES, *sorted(PACKAGE.rglob("*.py"))]
    return {str(path.relative_to(PACKAGE.parent)): count(prose(path)) for path in paths}


@pytest.mark.slow
def test_words_are_rare() -> None:
    """All words in one test: the pages and modules are read once."""
    found = counts()
    words = sum(each["words"] for each in found.values())
    said = []
    for word, ceiling in CEILINGS.items():
        rate = 1000 * sum(each[word] for each in found.values()) / words
        worst = sorted(((each[word], path) for path, each in found.items()), reverse=True)[:5]
        if rate > ceiling:
            most = ", ".join(f"{path} ({n})" for n, path in worst)
            said.append(f"'{word}' is used {rate:.2f} times per 1,000 words, more than {ceiling}; most uses: {most}")
    assert not said, "say it in plain English: " + "; ".join(said)


def names_and_text() -> tuple[list[str], str, list[str]]:
    """All names that the library defines, its docstrings and comments as one text, and its lines."""
    names: list[str] = []
    text: list[str] = []
    lines: list[str] = []
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines += source.splitlines()
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        text += [token.string for token in tokens if token.type == tokenize.COMMENT]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text.append(ast.get_docstring(node) or "")
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.arg):
                names.append(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
    return [name.strip("_").lower() for name in names], " ".join(text).lower(), lines


@pytest.mark.slow
def test_names_are_nouns_and_sentences_name_the_thing() -> None:
    """Habits that make code hard to read, over the whole library: one test, as it reads each module."""
    names, text, lines = names_and_text()
    words = len(re.findall(r"[a-z]+", text))
    rates = {
        **{
            kind: (100 * sum(bool(re.fullmatch(habit, name, re.X)) for name in names) / len(names), top)
            for kind, (habit, top) in NAME_CEILINGS.items()
        },
        **{kind: (1000 * len(re.findall(habit, text)) / words, top) for kind, (habit, top) in TEXT_CEILINGS.items()},
    }
    assert not {kind: round(rate, 2) for kind, (rate, top) in rates.items() if rate > top}
    assert 100 * sum(line.strip().startswith("#") for line in lines) / len(lines) >= FEWEST_COMMENTS


def test_every_word_has_a_ceiling() -> None:
    assert list(CEILINGS) == list(WORDS)


def test_the_counter_finds_each_word_where_people_read_it(tmp_path: Path) -> None:
    code = '"""Of laws."""\n# It stands\nx = f"whatever {1} told"\nalone = "beside"\n'
    path = tmp_path / "module.py"
    path.write_text(code, encoding="utf-8")
    found = count(prose(path))
    assert {word: n for word, n in found.items() if n} == {
        "opens with Of": 1,
        "stands": 1,
        "whatever": 1,
        "tell": 1,
        "words": 6,
    }
    assert count(["but for", "is none", "Whoever", "of whom"]) == Counter(
        {**dict.fromkeys(WORDS, 0), "but for": 1, "is none": 1, "whoever": 1, "of which": 1, "words": 7}
    )


def test_no_class_has_a_private_noun() -> None:
    classes = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    private = {name for name in classes if PRIVATE_NOUNS & set(re.findall(r"[A-Z][a-z]*", name))}
    assert private <= EXCEPTIONS, f"use the field's noun for {sorted(private - EXCEPTIONS)}"


@pytest.mark.slow
def test_messages_are_short() -> None:
    """All messages in one test, as it reads each module."""
    found = [
        (f"{path.relative_to(PACKAGE)}:{line}", text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in messages(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 900
    assert not [(place, text) for place, text in found if count_words(text) > LONGEST_MESSAGE]


def test_the_collector_finds_messages_in_all_their_forms() -> None:
    code = """
RULE = "x must be one"
def check(x, name):
    hint = "do " + ("less" if x else f"much {name} less")
    if x:
        raise ParameterError(RULE)
    raise errors.ColumnError(f"{name}: {hint}", column=name)
warn("a b", DpframeWarning)
print("not a message")
def fault(rows):
    return f"{rows} rows"
raise PlanError(fault(3))
typer.echo("{n} left".format(n=1))
"""
    assert messages(code) == [
        (6, "x must be one"),
        (7, "{}: do much {} less"),
        (8, "a b"),
        (12, "{} rows"),
        (13, "{n} left"),
    ]


def test_words_are_counted_with_their_marks() -> None:
    assert count_words('a = {} in {}: e^{}; spaces={{}: (LOWER, "b")}') == 8


def test_sentences_of_pages_are_short() -> None:
    lengths = {
        (path.name, sentence): count_words(sentence)
        for path in PAGES
        for sentence in sentences(path.read_text(encoding="utf-8"))
    }
    assert len(lengths) > 900
    assert not {place: length for place, length in lengths.items() if length > LONGEST_SENTENCE}
    assert sum(lengths.values()) / len(lengths) <= MEAN_SENTENCE


def test_the_splitter_finds_sentences_of_paragraphs_and_lists() -> None:
    page = "# Title\n\nOne, e.g. `a. B`. Two is\nlong!\n\n- Three [x y](z. Z)\n- Four\n\n| a. B |\n\n```\nx. Y\n```\n"
    assert sentences(page) == ["One, e.g CODE.", "Two is long!", "Three x y", "Four"]


def test_messages_that_pages_explain_occur_in_the_library() -> None:
    """The first column of each table of the page on messages, with … for what differs between calls."""
    page = (PACKAGE.parent / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"(?m)^\| `([^`]+)` \|", page)
    assert len(quoted) > 30
    # A message may be filled in by another function than the one that raises it: texts are compared, not calls.
    joined = "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    for message in quoted:
        parts = [re.escape(part.strip()) for part in message.split("…") if part.strip()]
        assert re.search(r".{0,150}".join(parts), joined), message
