"""Every notebook runs from top to bottom, without network."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[1]


def number(path: Path) -> int:
    """Return the number at the beginning of a notebook's name."""
    return int(path.name.split("_")[0])


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"), key=number)
SECONDS = 600
"""When a cell counts as hanging. They take about ten seconds a notebook; no load of the machine decides a test."""

MOST = 200_000
"""Bytes of a notebook: pictures in few colours."""

RUN = """
import sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
NotebookClient(notebook, km=manager, timeout=float(sys.argv[2])).execute()
nbformat.write(notebook, "out.ipynb")
"""


def kinds(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What each cell shows: text, tables, pictures and errors, each once; warnings depend on the noise."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    shown = [[kind for one in cell for kind in one.get("data", [one.get("name", one.output_type)])] for cell in outputs]
    return [list(dict.fromkeys(kind for kind in cell if kind in KINDS)) for cell in shown]


KINDS = ("stdout", "error", "text/plain", "text/html", "image/png")


def test_they_are_numbered() -> None:
    assert [number(path) for path in NOTEBOOKS] == list(range(1, 12))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_small_offline_and_with_their_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size <= MOST
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            ast.parse(cell.source)
            assert not any(word in cell.source for word in ("http", "!pip", "%pip", "urlopen"))
            assert max(map(len, cell.source.splitlines())) <= 120
    assert any("image/png" in cell for cell in kinds(notebook))
    assert not any("error" in cell for cell in kinds(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_of_this_code(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    digest = hashlib.sha256(code.encode()).hexdigest()[:16]
    assert notebook.metadata.dpframe.code == digest, f"stale: python docs/run_notebooks.py {path.stem}"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path) -> None:
    # In a process of its own: a kernel's event loop is no affair of this one, and its files stay in one folder.
    places = {name: str(tmp_path / name.lower()) for name in ("IPYTHONDIR", "MPLCONFIGDIR")}
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Its sockets stand in a folder of their own: their paths may not be longer than 107 bytes.
    with tempfile.TemporaryDirectory(prefix="nb") as sockets:
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(path), str(SECONDS)],
            cwd=tmp_path,
            env={**os.environ, **places, "PYTHONPATH": paths, "JUPYTER_RUNTIME_DIR": sockets},
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    # Numbers differ from run to run, what is shown does not.
    assert kinds(nbformat.read(tmp_path / "out.ipynb", as_version=4)) == kinds(nbformat.read(path, as_version=4)), (
        f"stale: python docs/run_notebooks.py {path.stem}"
    )


@pytest.mark.slow
def test_the_pair_of_items_in_the_third_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its support is some 15 standard errors away from 0: the interval misses 0 but with probability 1e-30."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    code = [cell.source for cell in nbformat.read(NOTEBOOKS[2], as_version=4).cells if cell.cell_type == "code"]
    last = next(i for i, source in enumerate(code) if source.startswith("pair = "))
    names: dict[str, Any] = {}
    for source in (code[0], code[1], code[last]):
        exec(source, names)
    assert names["estimate"]["lower"].iloc[0] > 0
