"""The library that makes a release, as the release's description names it: version and digest of its files."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpframe.errors import PlanError

_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Library:
    """Version of the library, and SHA-256 of the list of its Python files with the SHA-256 of each.

    ``digest`` is what these shell commands print in the folder that holds the package, an unpacked wheel for example:
    ``find dpframe -name '*.py' | LC_ALL=C sort | xargs sha256sum | sha256sum``.
    """

    version: str
    digest: str

    def __post_init__(self) -> None:
        fields = ((self.version, r"[\w.+!-]{1,64}"), (self.digest, "[0-9a-f]{64}"))
        # Both are shown on terminals: nothing but letters, digits and marks of versions gets there.
        if not all(isinstance(value, str) and re.fullmatch(form, value, re.ASCII) for value, form in fields):
            raise PlanError("the release's metadata names no library by version and digest; attach its plan again")

    @classmethod
    def from_json(cls, data: Any) -> Library:
        """Read a library back; `PlanError` for anything else."""
        fields = data if isinstance(data, dict) else {}
        return cls(fields.get("version", ""), fields.get("digest", ""))


@cache
def installed_library() -> Library:
    """Return the library that runs; its files are read once in a process."""
    files = {path.relative_to(_PACKAGE.parent).as_posix(): path for path in _PACKAGE.rglob("*.py")}
    lines = (f"{hashlib.sha256(files[name].read_bytes()).hexdigest()}  {name}\n" for name in sorted(files))
    return Library(sys.modules["dpframe"].__version__, hashlib.sha256("".join(lines).encode()).hexdigest())
