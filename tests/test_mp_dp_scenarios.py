"""The scenarios of MP-DP: they load, and every scheme of the small one runs beside the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from emul import engine
from emul.scenario import Stop, load
from emul.workers.twin import Twin

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
PAPER = ROOT / "scenarios" / "paper"
NAMES = sorted(path.stem for path in PAPER.glob("mp_dp_*.yaml"))


def test_every_scheme_of_the_small_scenario_runs(tmp_path: Path) -> None:
    scenario = dataclasses.replace(load(PAPER / "mp_dp_digits.yaml", ["topology.clients=4", "schemes[6].t=4"]),
                                   stop=Stop(rounds=1))
    light = [entry for entry in scenario.schemes if entry[0] not in ("tp_smc", "tp_smc_alone", "pile")]
    results = engine.run(dataclasses.replace(scenario, schemes=light), workers=Twin(), out=tmp_path)
    assert [(r.error, r.violations) for r in results] == [(None, ())] * len(light)
    assert all(r.summary["rounds"] == 1 and r.summary["rounds_failed"] == 0 for r in results)


@pytest.mark.parametrize("name", NAMES)
def test_the_scenarios_of_the_paper_are_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "digits" not in name:
        if not SHARED.is_dir():
            pytest.skip(f"no data in {SHARED}")
        monkeypatch.setenv("EMUL_DATA", str(SHARED))
    scenario = load(PAPER / f"{name}.yaml", check=True)
    assert not [warning for warning in scenario.warnings if "matches no" in warning]
