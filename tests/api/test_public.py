"""What `import emul` offers: documented, typed, and imported when asked for."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import emul
from emul import api, loop, roles
from emul.record.progress import live
from emul.study.runs import StudyProgress

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "pandas", "torch", "scipy", "altair", "pydantic", "networkx", "pyarrow", "sklearn", "cryptography",
         "zmq", "rich", "ruamel")


def imported_by(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], cwd=ROOT, text=True,
                          capture_output=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_importing_emul_and_asking_for_help_imports_nothing_heavy() -> None:
    assert imported_by("import emul").isdisjoint(HEAVY)
    help_text = "import contextlib, os\nsys.argv = ['emul', '--help']\nfrom emul import cli\n"
    assert imported_by(f"{help_text}with contextlib.suppress(SystemExit):\n    cli.main()").isdisjoint(HEAVY)


def test_the_stub_the_module_and_the_api_name_the_same_things() -> None:
    stub = ast.parse((ROOT / "emul/__init__.pyi").read_text())
    said = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(api.__all__) == set(emul._API)
    assert said == {*emul._API, *emul._ROLES, emul._CLOCK} <= set(dir(emul))
    assert all(getattr(emul, name) is getattr(api, name) for name in emul._API)
    assert all(getattr(emul, name) is getattr(roles, name) for name in emul._ROLES)
    assert emul.Clock is loop.Clock
    assert (ROOT / "emul/py.typed").is_file()
    with pytest.raises(AttributeError, match="module 'emul' has no attribute 'nothing'"):
        _ = emul.nothing        # type: ignore[attr-defined]


def public(thing: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in inspect.getmembers(thing)
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("emul.api")]


def test_everything_public_has_a_docstring() -> None:
    from emul.api import plots

    things = [*((name, getattr(emul, name)) for name in api.__all__), *public(plots)]
    members = [(f"{name}.{member}", value) for name, thing in things if inspect.isclass(thing)
               for member, value in inspect.getmembers(thing)
               if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))]
    assert len(members) > 30
    assert [name for name, thing in [*things, *members] if not inspect.getdoc(thing)] == []


class Handle:
    def __init__(self) -> None:
        self.bundles: list[dict[str, str]] = []

    def update(self, bundle: dict[str, str], raw: bool) -> None:
        assert raw
        self.bundles.append(bundle)


def test_in_a_notebook_progress_is_a_bar_that_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, first = Handle(), []

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> Handle:
        first.append(bundle)
        return handle

    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: type("Shell", (), {"kernel": object()})()      # type: ignore[attr-defined]
    shown.display = display         # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    line = live(sys.stderr)
    assert line is not None
    line.update("round 1/4 <b>", 0.25)
    line.update("round 4/4", 1.0)
    line.stop()
    assert [b["text/plain"] for b in [*first, *handle.bundles]] == ["round 1/4 <b>", "round 4/4"]
    assert 'value="0.250"' in first[0]["text/html"]
    assert "&lt;b&gt;" in first[0]["text/html"]
    progress = StudyProgress(3, 2)
    progress.close()
    assert first[1]["text/plain"] == "1 of 3 cells are there already"
    study, handle.bundles = live(sys.stderr), []
    assert study is not None
    for number in range(30):
        study.update(f"cell {number}", number / 30)
        study.write(f"{number} done")
    plain = handle.bundles[-1]["text/plain"].splitlines()
    assert (plain[0], plain[1], plain[-2:]) == ("10 lines before these", "10 done", ["29 done", "cell 29"])
    study.stop()                    # the bar is gone, and the lines stay
    assert handle.bundles[-1]["text/plain"].splitlines() == plain[:-1]
    assert ["<progress" in bundle["text/html"] for bundle in handle.bundles[-2:]] == [True, False]
    monkeypatch.setattr(ipython, "get_ipython", lambda: None)
    assert live(sys.stderr) is None


@pytest.mark.release                    # mypy reads the whole package anew, as `make lint` does, for three lines
def test_a_wrong_call_fails_under_mypy(tmp_path: Path) -> None:
    calls = {"right.py": 'import emul\nruns: emul.Runs = emul.run("a.yaml", set={"seed": 1}, workers=0)\n'
                         "x: float | None = runs[0].accuracy\nruns.plot.accuracy(against='bytes')\n",
             "wrong.py": 'import emul\nemul.run("a.yaml", workers="two")\nemul.sweep("a.yaml", engine="slurm")\n'
                         "emul.run('a.yaml')[0].accuracy + 'x'\nemul.nothing\n"}
    for name, code in calls.items():
        (tmp_path / name).write_text(code)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir",
                           str(tmp_path / "cache"), "right.py", "wrong.py"], cwd=tmp_path, text=True,
                          capture_output=True, check=False, timeout=280, env={**os.environ, "MYPYPATH": str(ROOT)})
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("wrong.py:")}
    assert lines == {2, 3, 4, 5}, done.stdout
    assert "right.py:" not in done.stdout


def test_the_page_lists_every_function_with_its_own_arguments() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    calls = {name: arguments for name, arguments in re.findall(r"`(\w+)\((\w+[^`]*)\)`", page.partition("## Runs")[0])}
    functions = {name for name in api.__all__ if inspect.isfunction(getattr(emul, name))}
    assert set(calls) == functions
    for name, said in calls.items():
        known = list(inspect.signature(getattr(emul, name)).parameters)
        if not name.startswith("load_") or name == "load_scenario":
            assert [argument.rstrip("=") for argument in said.split(", ")] == known, name
    runs = page.partition("## Runs")[2]
    for kind in (emul.Run, emul.Runs, emul.Study):
        own = [name for name in vars(kind) if not name.startswith("_")]
        assert [name for name in own if not re.search(rf"`[^`]*\b{name}\b", runs)] == [], kind
