"""What a wheel is made of and needs, as a bill of materials in it (CycloneDX 1.6, PEP 770): a hook of the build.

The same source gives the same bytes: no time, no serial number, requirements in the order of pyproject.toml.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def component(requirement: str) -> dict[str, str]:
    """Return a requirement such as ``numpy>=2.1`` as a component."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return {
        "type": "library",
        "bom-ref": name[0],
        "name": name[0],
        "description": f"required as {requirement}",
    }


def bill(name: str, version: str, licence: str, requirements: list[str]) -> dict[str, Any]:
    """Return the bill of a distribution and what it requires."""
    parts = [component(requirement) for requirement in requirements]
    own = {"type": "library", "bom-ref": name, "name": name, "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"license": {"id": licence}}]}},
        "components": parts,
        "dependencies": [{"ref": name, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


class SbomHook(BuildHookInterface[Any]):
    """Adds the bill to a wheel's metadata."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the bill to a file that the wheel takes in; an editable installation has none."""
        self._folder = tempfile.TemporaryDirectory()
        if version != "standard":
            return
        metadata = self.metadata
        licence, requirements = metadata.core.license_expression, list(metadata.core.dependencies)
        text = json.dumps(bill(metadata.core.name, metadata.version, licence, requirements), indent=2) + "\n"
        path = Path(self._folder.name, "dpframe.cdx.json")
        path.write_text(text, encoding="utf-8", newline="\n")
        name = f"{metadata.core.name.replace('-', '_')}-{metadata.version}.dist-info/sboms/{path.name}"
        build_data["force_include"][str(path)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file."""
        self._folder.cleanup()
