"""Messages in the words of the command line: ``drop=[…]`` of Python becomes ``--drop COLUMN``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

Replacement = str | Callable[[re.Match[str]], str]

_JSON_FORMS = {
    "(LOWER, UPPER)": '{"lower": LOWER, "upper": UPPER}',
    "(FROM, TO)": '{"lower": "FROM", "upper": "TO"}',
    "[CATEGORY, …]": '["CATEGORY", …]',
    "Subset([ITEM, …])": '{"space": "subset", "items": ["ITEM", …]}',
    "Nullable(…)": '{"space": "nullable", "inner": …}',
    "Integer(LOWER, UPPER, special=[WORD, …])": '{"lower": LOWER, "upper": UPPER, "special": ["WORD", …]}',
    "Vector(SIZE, BOUND)": '{"space": "vector", "size": SIZE, "bound": BOUND}',
}
"""Placeholders of spaces, as JSON."""


def _to_spaces_file(match: re.Match[str]) -> str:
    text = match[1]
    for python, json_form in _JSON_FORMS.items():
        text = text.replace(python, json_form)
    text = re.sub(r"'([^']*)': (?=[\[{S])", lambda name: f"{json.dumps(name[1], ensure_ascii=False)}: ", text)
    hint = "" if "nullable" in text else ' ({"space": "nullable", "inner": …} keeps nulls)'
    return f"pass --spaces FILE, which holds {{{text}}}{hint}"


_OPTION_FORMS = {"(LOWER, UPPER)": "LOWER,UPPER", "(FROM, TO)": "FROM,TO", "[CATEGORY, …]": "CATEGORY,…"}
"""Placeholders of spaces, as values of ``--space``."""


def _to_space_option(match: re.Match[str]) -> str:
    verb, name, form = match.groups()
    default = form[1:-1].replace(", ", ",")  # two numbers
    option_text = f"{name}={_OPTION_FORMS.get(form) or _JSON_FORMS.get(form, default)}"
    # A shell would take these apart; shlex.quote quotes every letter beyond ASCII, too.
    is_plain = not re.search("[\\s\"']", option_text)
    return f"{'pass ' * bool(verb)}--space {option_text if is_plain else shlex.quote(option_text)}"


_REPLACEMENTS: list[tuple[str, Replacement]] = [
    # People count the rows of a file from 1, after its line of names.
    (r"\bat row position (\d+)", lambda m: f"in row {int(m[1]) + 1} (names not counted)"),
    (r"\bnew_run\b", "dpframe vertical plan"),
    (
        r"\bmean_curve (estimates it, and) release\.drop\(columns=\['([^']*)'(.*)\]\)\.dp\.synthesize\(\)",
        r"dpframe estimate RELEASE mean-curve \2 \1 drop=['\2'\3]",
    ),
    (
        r"sanitise it first, or, if it was released, read its file with dpframe\.read\(path\)",
        "make one with dpframe sanitize, or, if it is one in CSV, put its .dpframe.json next to it",
    ),
    (r"\bpass spaces=\{(.*)\} \(Nullable\(…\) around a space keeps nulls\)", _to_spaces_file),
    (r"\bspaces=\{('[^']*'): …\} keeps one", r"the space of \1 in --spaces FILE keeps one"),
    (
        rf"\b(declare )?spaces=\{{'([^']*)': ({'|'.join(map(re.escape, _JSON_FORMS))}|\(-?[\d.]+, -?[\d.]+\))\}}",
        _to_space_option,
    ),
    (r"\bdeclare spaces=\{(?!…)(.*?)\}(?= in the next release|, or |:|\n|$)", _to_spaces_file),
    (
        r"convert text that writes dates \(pd\.to_datetime\), numbers, "
        r"or several items \(\.str\.findall\(\"\[\^;\]\+\"\)\)",
        "give bounds to text that writes dates or numbers, as 2024-01-31 and 54.2 (--space COLUMN=LOWER,UPPER), a "
        "Parquet file with lists for several items in a cell",
    ),
    (r"sanitize the frame that pandas\.read_csv\(…, (.*?)\) reads(?=, or write)", r"give \1"),
    (r"\bpandas\.read_csv\(…, (decimal=\",\")\)", r"\1"),
    (r"\bpd\.to_datetime\(…, dayfirst=True\) reads columns of dates", "--dayfirst reads dates"),
    (
        r"\b(sep|decimal|encoding)=(\"[^\"]*\")(, (?=(?:decimal|encoding)=))?",
        lambda m: f"--{m[1]} {m[2]}" + " " * bool(m[3]),
    ),
    (r"\bspaces=(\{…\}|(?=\)))", "--spaces FILE"),
    (r"\bpass spaces=draft\.confirm\(\)", "write reviewed: true in the file"),
    (r"\bspaces=draft\.confirm\(\)", "reviewed: true in the file"),
    (r"\bspaces=plan\b", "--plan FILE"),
    (r"\bshuffle=False\b", "--no-shuffle"),
    (r"\bshuffle=True\b", "--shuffle"),
    (r", or a plan$", ", or --plan FILE"),
    (r"; plan\.replan\((\d+)\) (calibrates it anew|fits it)", r"; dpframe plan --rows \1 makes one for so many"),
    (r"\bledger=\"?([\w.]*)\"?", lambda m: f"--ledger {m[1] or 'FILE'}"),
    (r"\bparts=\(([^)]*)\)", lambda m: " ".join(f"--part {name}" for name in re.findall(r"\w+", m[1]))),
    (r"\bgroups=\[\(([^)]*)\)\]", lambda m: "--group " + ",".join(re.findall(r"\w+", m[1]))),
    (r"(?<!\w)\.dp\.report\(\)", "dpframe inspect --html"),
    (r"\bdf\.dp\.expect\([^)]*\)", "dpframe forecast"),
    (r"\bdf\.dp\.sanitize\([^)]*\)", "dpframe sanitize"),
    (r"\b(drop|passthrough|given|without)=\[(['\"]?)(\w+|…)\2\]", lambda m: f"--{m[1]}" + f" {m[3]}" * (m[3] != "…")),
    (
        r"\b(drop|passthrough)=\[([^\]]*)\]",
        lambda m: " ".join(f"--{m[1]} {name}" for name in re.findall(r"'([^']*)'", m[2])),
    ),
    (r"\bdeclare Subset\(\[ITEM, …\]\)", 'declare {"space": "subset", "items": ["ITEM", …]}'),
    (r"\bInteger\((-?\d+), (-?\d+)\)", r'{"space": "integer", "lower": \1, "upper": \2}'),
    (r"\bdeclare Nullable\(…\)", 'declare {"space": "nullable", "inner": …}'),
    (r"\bspecial=\[", '"special": ['),
    (r"\bCategorical\(\[…\], other=…\)", '{"categories": […], "other": "other"}'),
    (r"(?<!\.)\bvalue_counts\('([^']*)'\)", r"value-counts \1"),
    (r"(?<!\.)\bmean\('([^']*)'\)", r"mean \1"),
    (r", or of several columns bins=\{[^}]*\}", ""),
    (r"\bbins=\{[^}]*: (\d+)\}", r"--bins \1"),
    (r"\bunit='([^']*)'", r'--unit "\1"'),
    # Only after "e.g." are epsilon= and delta= to be typed; elsewhere they state a size.
    (r"(?<=e\.g\. )(epsilon|delta)=([\d.e-]+)( or )\1=([\d.e-]+)", r"--\1 \2\3--\1 \4"),
    (r"(?<=e\.g\. )(epsilon|delta)=([\d.e-]+)", r"--\1 \2"),
    (r"\bpass (delta)=([\d.e-]+)", r"pass --\1 \2"),
    (r"\bprivacy_id=(?=\s|$)", "--privacy-id"),
    (
        r"\b(infer|infer_share|measure_share|local_epsilon|max_epsilon|max_items|nulls|contributions|privacy_id|sample|"
        r"allocation|numbers|ordinals|sets|dataset|part|accounting|by|bins|method|target|confidence_level|published|"
        r"q)=(['\"]?)([^\s,;'\")]+)\2",
        lambda m: f"--{m[1].replace('_', '-')} {m[3]}",
    ),
]
"""Patterns of Python in messages, and their replacements on the command line, applied in this order."""


def to_options_text(message: str) -> str:
    """Return a message with options of the command line in place of Python's arguments.

    >>> to_options_text("give epsilon, e.g. epsilon=1.0, or a plan")
    'give epsilon, e.g. --epsilon 1.0, or --plan FILE'
    >>> to_options_text("is null, and its space holds no nulls; declare Nullable(…) or pass nulls='impute'")
    'is null, and its space holds no nulls; declare {"space": "nullable", "inner": …} or pass --nulls impute'
    >>> to_options_text("spaces={'ward': [CATEGORY, …]}, or epsilon=2")
    '--space ward=CATEGORY,…, or epsilon=2'
    >>> to_options_text("spaces=draft.confirm() once they are; df.dp.expect(epsilon=…) says what to expect")
    'reviewed: true in the file once they are; dpframe forecast says what to expect'
    """
    for pattern, replacement in _REPLACEMENTS:
        message = re.sub(pattern, replacement, message)
    return message
