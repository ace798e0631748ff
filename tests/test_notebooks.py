"""The notebooks: they run from top to bottom, and show what they are committed with."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from own_environment import Place, wheel_in

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


def installing(notebook: Any) -> str:
    """The extras of emul that its first cell of code asks for."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "code").source
    said = re.fullmatch(r"""# .*
from importlib.util import find_spec

if find_spec\("emul"\) is None:
    %pip install --quiet --extra-index-url https://download.pytorch.org/whl/cpu "emul\[([\w,]+)\]\"""", first)
    assert said is not None
    return said[1]


def test_the_first_cell_installs_what_the_others_need() -> None:
    assert {path.stem: installing(nbformat.read(path, as_version=4)) for path in NOTEBOOKS} == {
        path.stem: "all,flower" if path.stem == "4_suite" else "report,stats" for path in NOTEBOOKS}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("built"))


@pytest.mark.machine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", [
    pytest.param(path, marks=pytest.mark.slow if path.stem == "3_own_scheme" else pytest.mark.release)
    for path in NOTEBOOKS], ids=lambda path: path.stem)
def test_it_runs_where_emul_is_missing_and_shows_what_it_is_committed_with(
        path: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Colab and Binder: its first cell installs the wheel, by pip, which has no index but that one file."""
    client = pytest.importorskip("nbclient")
    notebook, committed = (nbformat.read(path, as_version=4) for _ in range(2))
    extras = installing(notebook).split(",")
    if "flower" in extras:
        pytest.importorskip("flwr", reason="the extra `flower` brings it")
    place = Place(tmp_path)
    place.link(*extras, more=("ipykernel", "pip"))
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    for name in set(os.environ) - set(place.environment):
        monkeypatch.delenv(name)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_CONFIG_FILE": os.devnull,
                        "JUPYTER_PATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    kernel = tmp_path / "kernels" / "there"
    kernel.mkdir(parents=True)
    kernel.joinpath("kernel.json").write_text(json.dumps({"language": "python", "display_name": "there", "argv": [
        str(place.home / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]}))
    assert "No module named" in place.run("python -c 'import emul'", code=1)
    client.NotebookClient(notebook, timeout=280, kernel_name="there",
                          resources={"metadata": {"path": str(place.here)}}).execute()
    # the first cell of code says what it installed
    assert shown(notebook)[2:] == shown(committed)[2:]
