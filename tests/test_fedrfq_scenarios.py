"""The scenarios of FedRFQ: they load, the small one runs in processes, and digits come to the sheet's numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from emul import engine
from emul.record.load import load_run
from emul.scenario import Stop, load

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
PAPER = ROOT / "scenarios" / "paper"


@pytest.mark.slow
def test_every_scheme_of_the_small_scenario_runs_and_is_compared_by_its_clients(pools, tmp_path):
    scenario = dataclasses.replace(load(PAPER / "fedrfq_digits.yaml"), stop=Stop(rounds=3))
    results = engine.run(scenario, workers=pools[1], out=tmp_path)
    assert [r.error for r in results] == [None] * 7
    assert [r.violations for r in results] == [()] * 7
    for result in results:
        summary = result.summary
        assert summary["rounds"] == 3
        assert summary["accuracy_of_clients"]["clients"] == 20
        rounds = load_run(result.directory).rounds
        last = rounds[rounds["round"] == 3]
        assert last["accuracy"].mean() == pytest.approx(summary["accuracy"])
    by_name = {r.scheme: r.summary for r in results}
    assert by_name["local"]["bytes_total"] == 0
    assert by_name["fedproto"]["bytes_total"] < by_name["fedprox"]["bytes_total"] / 8
    rounds = load_run(next(r for r in results if r.scheme == "fedrfq").directory).rounds
    assert {"agreed", "view", "uploaded", "silhouette", "failure_rate", "accuracy_std"} <= set(rounds.columns)
    assert rounds.groupby("round")["agreed"].nunique().tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["fedrfq_mnist", "fedrfq_mnist_few", "fedrfq_mnist_poisoned", "fedrfq_mnist_pooling",
                                  "fedrfq_fashion"])
def test_the_scenarios_of_the_paper_are_sound(name, monkeypatch):
    if not SHARED.is_dir():
        pytest.skip(f"no data in {SHARED}")
    monkeypatch.setenv("EMUL_DATA", str(SHARED))
    scenario = load(PAPER / f"{name}.yaml", check=True)
    assert not [w for w in scenario.warnings if "matches no" in w]


@pytest.mark.release
def test_digits_come_to_the_numbers_of_the_sheet(pools, tmp_path):
    """Section 12 of the sheet, three seeds, best five rounds of 40: within 2 points; prototypes are above `local`."""
    expected = {"local": 0.9473, "fedproto": 0.9587, "fedrfq": 0.9636}
    found: dict[str, list[float]] = {name: [] for name in expected}
    for seed in range(3):
        scenario = load(PAPER / "fedrfq_digits.yaml")
        scenario = dataclasses.replace(scenario, seed=seed, schemes=[s for s in scenario.schemes if s[0] in expected])
        for result in engine.run(scenario, workers=pools[1], out=tmp_path / str(seed)):
            assert result.error is None, result.error
            found[result.scheme].append(result.summary["accuracy_of_clients"]["best_five"])
    means = {name: float(np.mean(values)) for name, values in found.items()}
    for name, value in expected.items():
        assert means[name] == pytest.approx(value, abs=0.02), (name, found[name])
    assert min(means["fedproto"], means["fedrfq"]) > means["local"]
