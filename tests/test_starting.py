"""`emul init` and `emul schema`, completion of a shell, and what a wheel carries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from emul import cli
from emul.base import files
from emul.scenario import load
from emul.templates import TemplateError, write_starter

ROOT = Path(__file__).resolve().parents[1]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["emul", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_init_puts_scenarios_there_that_are_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "init", "mine") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "run one: cd mine && emul run scenarios/quickstart.yaml"
    assert command(monkeypatch, "check", "mine/scenarios/quickstart.yaml") == 0
    for path in sorted(Path("mine/scenarios").rglob("*.yaml")):
        mine, ours = load(path, check=False), load(ROOT / path.relative_to("mine"), check=False)
        assert json.dumps(mine.document()).replace(str(tmp_path / "mine"), str(ROOT)) == json.dumps(ours.document())
        named = path.read_text().splitlines()[0].partition("$schema=")[2]
        assert (path.parent / named).is_file()
    assert {path.name for path in Path("mine/topologies").iterdir()} == {
        path.name for path in (ROOT / "topologies").iterdir()}


def test_init_brings_the_pinned_versions(tmp_path: Path) -> None:
    write_starter(tmp_path)
    assert (tmp_path / "constraints.txt").read_text() == (ROOT / "constraints.txt").read_text()


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "quickstart.yaml").write_text("mine")
    with pytest.raises(TemplateError, match=r"quickstart\.yaml: exists already; nothing was written"):
        write_starter(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["quickstart.yaml"]
    with pytest.raises(TemplateError, match="cannot be written"):
        write_starter(tmp_path / "scenarios" / "quickstart.yaml" / "below")


def test_an_installation_without_files_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PACKAGE", tmp_path / "emul")
    monkeypatch.setattr(files, "CARRIED", tmp_path / "emul" / "shipped")
    with pytest.raises(TemplateError, match="this installation carries no scenarios"):
        write_starter(tmp_path / "there")


def test_schema_prints_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "schema") == 0
    assert json.loads(capsys.readouterr().out)["properties"]["schemes"]["items"]


def test_a_shell_completes_commands_and_options(monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_EMUL_COMPLETE", "complete_bash")
    for words, expected in (("emul rep", {"report", "replay"}), ("emul run --set-", {"--set-file"})):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        command(monkeypatch)
        assert expected <= set(capsys.readouterr().out.split())


@pytest.mark.machine
@pytest.mark.slow
def test_a_wheel_works_in_a_folder_without_a_checkout(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = tmp_path / "source"            # building leaves folders behind
    for name in ("emul", "scenarios", "topologies", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "emul.schema.json",
                 "CITATION.cff", "constraints.txt"):
        shutil.copyfile(ROOT / name, source / name)
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)],
                   check=True, timeout=240, cwd=tmp_path)
    wheel, = tmp_path.glob("emul-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"emul/py.typed", "emul/__init__.pyi", "emul/shipped/emul.schema.json",
            "emul/shipped/scenarios/quickstart.profile.json", "emul/report/page.js"} <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    subprocess.run([*pip, "install", "--no-deps", "--target", str(tmp_path / "there"), str(wheel)], check=True,
                   timeout=240)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    for arguments in (["init", "mine"], ["check", "mine/scenarios/quickstart.yaml"], ["new-scheme", "own"],
                      ["run", "own.yaml", "--plugin", "own", "--workers", "0", "--quiet"],
                      ["new-task", "data"], ["check", "data.yaml", "--plugin", "data"]):
        done = subprocess.run([sys.executable, "-m", "emul", *arguments], cwd=tmp_path, env=environment, text=True,
                              capture_output=True, check=False, timeout=240)
        assert done.returncode == 0, (arguments, done.stderr)
    where = subprocess.run([sys.executable, "-c", "import emul; print(emul.__file__)"], cwd=tmp_path, env=environment,
                           text=True, capture_output=True, check=True, timeout=60).stdout
    assert where.startswith(str(tmp_path / "there"))


AT_THE_END = """
import os, signal
from emul.workers import forks
forks.begin_ahead()
wait = os.waitpid
def interrupted(*given):
    os.kill(os.getpid(), signal.SIGINT)
    return wait(*given)
os.waitpid = interrupted
"""
WHILE_IT_ENDS = """
import atexit, os, signal, sys
import emul.__main__
from emul import cli
def flushed(code):
    os.kill(os.getpid(), signal.SIGINT)
    return code
cli._flushed = flushed
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["emul", "--version"]
emul.__main__.main()
"""


@pytest.mark.machine
@pytest.mark.parametrize(("code", "left"), [(AT_THE_END, (0, "")), (WHILE_IT_ENDS, (130, "interrupted\n"))])
def test_a_second_interrupt_while_a_process_ends_prints_no_traceback(code: str, left: tuple[int, str]) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == left
