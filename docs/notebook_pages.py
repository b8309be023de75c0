"""Pages of the notebooks, from the outputs that are stored in them: what Sphinx reads in docs/notebooks/."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_pages(notebooks: Path, target: Path) -> None:
    """Write a Markdown page, and its pictures, for every notebook of a folder."""
    target.mkdir(exist_ok=True)
    for path in sorted(notebooks.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = [part for number, cell in enumerate(cells) for part in _cell(cell, target, f"{path.stem}_{number}")]
        (target / f"{path.stem}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _cell(cell: dict[str, Any], target: Path, name: str) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for number, output in enumerate(cell["outputs"]):
        data = output.get("data", {})
        if "image/png" in data:
            picture = target / f"{name}_{number}.png"
            picture.write_bytes(base64.b64decode("".join(data["image/png"])))
            yield f"![Output]({picture.name})"
        elif "text/html" in data:
            yield "```{raw} html\n" + "".join(data["text/html"]) + "\n```"
        else:
            text = "".join(output.get("text", data.get("text/plain", "")))
            yield f"```text\n{text.rstrip()}\n```"
