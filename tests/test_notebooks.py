"""The notebooks: they run from top to bottom, and show what they are committed with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra `test` brings nbformat, nbclient and ipykernel")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 150_000


def shown(notebook: Any) -> list[list[tuple[str, ...]]]:
    """What each cell shows: kinds of its outputs, progress left out."""
    return [[tuple(sorted(output.get("data", {"stream": ""}))) for output in cell.get("outputs", ())
             if "<progress" not in output.get("data", {}).get("text/html", "")] for cell in notebook.cells]


def test_there_are_five_and_they_are_small() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["1_first_steps", "2_stragglers", "3_own_scheme", "4_suite",
                                                 "5_own_loop"]
    assert all(path.stat().st_size < MOST_BYTES for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_as_it_was_executed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in kinds for cell in shown(notebook) for kinds in cell)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert str(ROOT) not in path.read_text(encoding="utf-8")


@pytest.mark.machine
@pytest.mark.parametrize("path", [
    pytest.param(path, marks=pytest.mark.slow if path.stem == "3_own_scheme" else pytest.mark.release)
    for path in NOTEBOOKS], ids=lambda path: path.stem)
def test_it_runs_and_shows_what_it_is_committed_with(path: Path, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient")
    if "from flwr" in path.read_text(encoding="utf-8"):
        pytest.importorskip("flwr", reason="the extra `flower` brings it")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    client.NotebookClient(notebook, timeout=280, kernel_name="python3",
                          resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(notebook) == shown(committed)
