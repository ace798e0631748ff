"""The scenarios of EBS-CFL: they are sound, and the small one shows what attacks do, in the clear and under masks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.record.load import load_run
from emul.scenario import Stop, load, loads
from emul.workers.pool import Workers

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
PAPER = ROOT / "scenarios" / "paper"
TRIM = "attacks: [{nodes: {fraction: 0.4}, update: trim_attack, knows: all}]\n"


@pytest.mark.parametrize("name", ["ebs_cfl_attacks_mnist", "ebs_cfl_skew_mnist", "ebs_cfl_skew_fashion",
                                  "ebs_cfl_large_mnist", "ebs_cfl_shards_mnist", "ebs_cfl_secure_mnist", *(
    pytest.param(f"ebs_cfl_{kind}_cifar10", marks=pytest.mark.slow)     # 60,000 images are decoded
    for kind in ("attacks", "skew", "shards"))])
def test_the_scenarios_of_the_paper_are_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no data in {SHARED}")
    monkeypatch.setenv("EMUL_DATA", str(SHARED))
    scenario = load(PAPER / f"{name}.yaml", check=True)
    assert not [w for w in scenario.warnings if "matches no" in w]


def small(rounds: int, without: tuple[str, ...] = ()) -> Any:
    text = (PAPER / "ebs_cfl_digits.yaml").read_text(encoding="utf-8").partition("sweep:")[0]
    scenario = loads(text + TRIM, "digits", check=True)
    return dataclasses.replace(scenario, stop=Stop(rounds=rounds),
                               schemes=[entry for entry in scenario.schemes if entry[0] not in without])


def test_the_small_scenario_runs_and_masks_change_nothing(pools: list[Workers], tmp_path: Path) -> None:
    results = engine.run(small(2, without=("fedavg", "median", "trimmed_mean", "ifca")), workers=pools[1], out=tmp_path)
    assert [r.error for r in results] == [None] * 4
    assert [r.violations for r in results] == [()] * 4
    rounds = {r.scheme: load_run(r.directory).rounds for r in results}
    for name in ("krum", "fltrust", "rfca"):
        assert (rounds[name]["attackers_judged"].dropna() == 8).all()
    assert "clusters_matched" in rounds["rfca"]
    clear, masked = (rounds[name].dropna(subset=["accuracy"])["accuracy"] for name in ("rfca", "ebs_cfl"))
    np.testing.assert_allclose(masked, clear, atol=1e-9)
    assert rounds["rfca"]["W"].dropna().tolist() == pytest.approx(rounds["ebs_cfl"]["W"].dropna().tolist(), abs=1e-5)


@pytest.mark.slow
def test_trust_in_clusters_withstands_what_breaks_the_others(pools: list[Workers], tmp_path: Path) -> None:
    """40 % Trim, 40 rounds: FedAvg .33, Median .07, Krum .10, IFCA .86, FLTrust .91, RFCA .93."""
    results = engine.run(small(40), workers=pools[-1], out=tmp_path)
    last = {r.scheme: r.summary["accuracy"] for r in results}
    assert last["rfca"] > 0.85
    assert last["rfca"] == pytest.approx(last["ebs_cfl"], abs=0.01)
    assert last["rfca"] > last["fltrust"] > 0.85
    assert max(last[name] for name in ("fedavg", "median", "krum", "ifca")) < last["fltrust"]
