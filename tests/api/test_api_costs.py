"""`emul check` of a scenario with a profile: what a round asks for is found once, and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emul.api import costs
from emul.preview import explain as preview
from emul.scenario import load

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "emul" / "asked"


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schemes of which a round has been run."""
    run: list[str] = []
    real = preview.computations

    def counted(plan, scheme, raw, plugins=()):
        run.append(scheme)
        return real(plan, scheme, raw, plugins)
    monkeypatch.setattr(preview, "computations", counted)
    return run


def of(*changes: str):
    return load(SCENARIO, ['schemes=[fedavg]', *changes])


def test_a_second_check_runs_no_round(rounds: list[str], cache: Path) -> None:
    assert costs.missing(of()) == costs.missing(of()) == []
    assert rounds == ["fedavg"]
    assert len(list(cache.iterdir())) == 1


def test_another_scenario_or_other_code_is_asked_anew(rounds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    costs.missing(of())
    costs.missing(of("topology.clients=5"))
    monkeypatch.setattr(costs, "_code", lambda: "changed")
    costs.missing(of())
    assert len(rounds) == 3


def test_what_is_kept_may_be_garbled_or_not_to_be_had(rounds: list[str], cache: Path) -> None:
    costs.missing(of())
    kept, = cache.iterdir()
    for text in ("{", "[]", "[1]", "{}"):
        kept.write_text(text)
        assert costs.missing(of()) == []
    assert len(rounds) == 5
    kept.unlink()
    cache.rmdir()
    cache.write_text("a file, where the directory should be")
    assert costs.missing(of()) == []
    assert len(rounds) == 6


def test_a_profile_that_lacks_an_entry_is_told_of_each_time(rounds: list[str], tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text((SCENARIO.parent / "quickstart.profile.json").read_text().replace(
        "fedavg/server/aggregate", "fedavg/server/other"))
    lacking = [costs.missing(of(f"compute.file={profile}")) for _ in range(2)]
    assert lacking == [["fedavg/server/aggregate"]] * 2
    assert rounds == ["fedavg"]


@pytest.mark.slow
def test_a_second_check_loads_no_torch(cache: Path) -> None:
    code = (f"import sys, emul; emul.check({str(SCENARIO)!r}, set={{'schemes': ['fedavg']}}); "
            "print('torch' in sys.modules)")
    said = [subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True,
                           timeout=120).stdout for _ in range(2)]
    assert said == ["True\n", "False\n"]
