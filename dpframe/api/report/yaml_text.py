"""Nested mappings of strings, numbers and lists of strings as YAML, and back.

Records of deployments need no more of YAML than this, and a dependency that parses all of it is not worth one file.
Every text is a literal block or in single quotes, so that nothing in it means anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dpframe.errors import FileError

_INDENT = 2
_SHORT = 80
"""Letters of a text that stays on its key's line."""
_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
"""A text that is written as it is: the registry's own scripts look for its slug without quotes."""
_KEY = re.compile(r"(?P<indent> *)(?P<key>\w+):(?: +(?P<value>.*))?")
_ITEM = re.compile(r" *- (?P<value>.*)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NOT_READ = "is not read here: keep to keys, quoted texts, numbers, lists and blocks after |"


def yaml_text(data: Mapping[str, Any], indent: int = 0) -> str:
    """Return a mapping as YAML.

    >>> basic = {"curators": ["A", "B"], "delta": 1e-06, "note": "one\\ntwo"}
    >>> print(yaml_text({"name": "it's", "basic": basic}), end="")
    name: 'it''s'
    basic:
      curators:
        - 'A'
        - 'B'
      delta: 1.0e-06
      note: |-
        one
        two
    """
    return "".join(
        f"{' ' * indent}{line}\n" if line else "\n" for key, value in data.items() for line in _lines(key, value)
    )


def _lines(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield f"{key}:"
        yield from (line for line in yaml_text(value, _INDENT).splitlines())
    elif isinstance(value, list | tuple):
        yield f"{key}:"
        yield from (f"  - {_quoted(item)}" for item in value)
    elif isinstance(value, str):
        text = _clean(value)
        if _SLUG.fullmatch(text):
            yield f"{key}: {text}"
        elif "\n" not in text and len(text) <= _SHORT:
            yield f"{key}: {_quoted(text)}"
        else:
            yield f"{key}: |-"
            yield from (f"{' ' * _INDENT}{line}" if line else "" for line in text.split("\n"))
    else:
        yield f"{key}: {_number(value)}"


def _clean(text: str) -> str:
    """Return a text whose lines a block can hold: no control characters, and no blanks about it."""
    return "\n".join("".join(c if c.isprintable() else " " for c in line).rstrip() for line in text.strip().split("\n"))


def _quoted(text: str) -> str:
    return "'" + _clean(text).replace("\n", " ").replace("'", "''") + "'"


def _number(value: float) -> str:
    """Return a number that YAML 1.1 takes for one: with a point before an exponent."""
    text = json.dumps(value)
    return re.sub(r"^(-?\d+)e", r"\1.0e", text)


def read_yaml(text: str, name: str = "the file") -> dict[str, Any]:
    """Return what `yaml_text` wrote, also after people have filled it in; comments are left out.

    >>> read_yaml("a: 'x'  # why\\nb:\\n  c: 1.5\\n  d:\\n  - y\\n")
    {'a': 'x', 'b': {'c': 1.5, 'd': ['y']}}
    """
    lines = text.replace("\r\n", "\n").split("\n")
    found, at = _mapping(lines, 0, 0, name)
    if at < len(lines):
        raise FileError(f"{name}, line {at + 1}: what is there {_NOT_READ}")
    return found


def _next(lines: list[str], at: int) -> int:
    """Return the place of the next line that says something."""
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    return at


def _mapping(lines: list[str], at: int, indent: int, name: str) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while (at := _next(lines, at)) < len(lines):
        match = _KEY.fullmatch(lines[at])
        if match is None or len(match["indent"]) != indent or match["key"] in found:
            break
        found[match["key"]], at = _value(lines, at, indent, (match["value"] or "").strip(), name)
    return found, at


def _value(lines: list[str], at: int, indent: int, value: str, name: str) -> tuple[Any, int]:
    """Return the value of a key on a line, and the line after it."""
    if value and not value.startswith("#"):
        if value[0] in "|>":
            return _block(lines, at + 1, indent, folded=value[0] == ">")
        return _scalar(value, f"{name}, line {at + 1}"), at + 1
    after = _next(lines, at + 1)
    if after < len(lines) and _ITEM.fullmatch(lines[after]):
        items = []
        while after < len(lines) and (match := _ITEM.fullmatch(lines[after])):
            items.append(_scalar(match["value"].strip(), f"{name}, line {after + 1}"))
            after = _next(lines, after + 1)
        return items, after
    deeper = len(lines[after]) - len(lines[after].lstrip()) if after < len(lines) else 0
    return _mapping(lines, after, deeper, name) if deeper > indent else ("", after)


def _block(lines: list[str], at: int, indent: int, *, folded: bool) -> tuple[str, int]:
    """Return the text of a block: the lines that are indented more than its key."""
    own: list[str] = []
    while at < len(lines) and (not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > indent):
        own.append(lines[at])
        at += 1
    first = next((line for line in own if line.strip()), "")
    margin = len(first) - len(first.lstrip())
    return (" " if folded else "\n").join(line[margin:].rstrip() for line in own).strip(), at


def _scalar(value: str, where: str) -> Any:
    if value[:1] in ("'", '"'):
        pattern = r"'(?:[^']|'')*'" if value[0] == "'" else r'"(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
        match = re.match(pattern, value)
        end = None if match is None else match.end()
        if end is None or not re.fullmatch(r"\s*(#.*)?", value[end:]):
            raise FileError(f"{where}: a quoted text over several lines {_NOT_READ}")
        inner = value[:end]
        return json.loads(inner) if inner[0] == '"' else inner[1:-1].replace("''", "'")
    if value[:1] in ("[", "{", "&", "*", "!", "%", "@", "`"):
        raise FileError(f"{where}: what begins with {value[0]} {_NOT_READ}")
    plain = re.sub(r"\s+#.*$", "", value)
    return float(plain) if _NUMBER.fullmatch(plain) else plain
