"""Run the notebooks and store their outputs: ``python docs/run_notebooks.py [NAME …]`` (about ten seconds each).

Pictures are reduced to 32 colours, so that a notebook stays small. A digest of the code is stored with the outputs, and
a test fails where the code has changed since.
"""

import base64
import hashlib
import io
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parents[1] / "notebooks"
COLOURS, WIDEST = 32, 640


def digest_of(notebook: nbformat.NotebookNode) -> str:
    """Return a digest of all code of a notebook."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def smaller(picture: str) -> str:
    """Return a PNG picture, as base64, with few colours and at most so many pixels in a row."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    # The cut of the median, which Pillow takes by itself, makes one of the colours of thin lines.
    image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def run(path: Path) -> None:
    """Run a notebook in an empty folder, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="nb") as folder:
        manager = AsyncKernelManager(kernel_name="python3", connection_file=f"{folder}/kernel.json", transport="ipc")
        NotebookClient(notebook, km=manager, timeout=600, resources={"metadata": {"path": folder}}).execute()
        # The paths of this machine's folder and kernel are no part of a page.
        text = re.sub(r"/\w+/ipykernel_\d+/\d+\.py", "cell.py", nbformat.writes(notebook).replace(folder, "folder"))
    notebook = nbformat.reads(text, as_version=4)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = {kind: value for kind, value in output.data.items() if kind in KEPT}
                if "image/png" in output.data:
                    output.data["image/png"] = smaller(output.data["image/png"])
                    output.metadata = {}
            if "text" in output:
                output.text = re.sub(r"^.*\r(?!\n)", "", output.text, flags=re.MULTILINE)
    notebook.metadata = {**NAMED, "dpframe": {"code": digest_of(notebook)}}
    nbformat.validate(notebook)
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


KEPT = ("text/plain", "text/html", "image/png")
NAMED = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


if __name__ == "__main__":
    for name in sorted(FOLDER.glob("*.ipynb")):
        if not sys.argv[1:] or any(name.name.startswith(given) for given in sys.argv[1:]):
            run(name)
