"""Flower apps by the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flower_app import BODY, scenario, write_app

from emul.cli import main

Emul = Callable[..., tuple[int, str, str]]


@pytest.fixture
def emul(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Emul:
    """Runs a command: (exit code, stdout, stderr)."""
    def command(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["emul", *args])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err
    return command


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A scenario of another scheme, in the current folder; an app lies in `app` beside it."""
    monkeypatch.chdir(tmp_path)
    write_app(tmp_path / "app", BODY)
    (tmp_path / "s.yaml").write_text(scenario().replace("schemes:\n", "schemes: [fedavg]\n"))
    return "s.yaml"


def test_an_app_takes_the_place_of_the_schemes_and_is_replayed_from_elsewhere(
        file: str, emul: Emul, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = emul("run", file, "--flower", "app", "--run-config", "num-server-rounds=2", "--workers", "0",
                          "--quiet")
    assert (code, err) == (0, "")
    assert "flower       2              0     3.000" in out
    assert "fedavg" not in out
    run = Path("runs/flower-flower-1").resolve()
    monkeypatch.chdir("/")
    code, out, _ = emul("replay", str(run), "--workers", "0")
    assert code == 0
    assert "identical" in out


def test_an_app_that_is_not_there_is_bad_input(file: str, emul: Emul) -> None:
    code, _, err = emul("run", file, "--server", "nothing:app", "--client", "b:c")
    assert code == 2
    assert 'server = "nothing:app"  there is no module nothing' in err


def test_profile_has_an_entry_for_everything_that_an_app_computes(file: str, emul: Emul) -> None:
    code, out, _ = emul("profile", file, "--set", "schemes=[{name: flower, app: app}]", "--repeat", "1", "-o",
                        "p.json")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:4]] == [
        "flower/client/evaluate", "flower/client/train", "flower/server/aggregate", "flower/server/start"]
