"""The matrix of docs/robustness.md: its scenario is sound, and its tables are those of the committed runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from benchmarks import document
from benchmarks.robustness import called, table
from emul.scenario import load

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = ROOT / "scenarios" / "robustness.yaml"


def test_every_attack_of_the_matrix_is_sound_against_every_rule() -> None:
    scenario = load(SCENARIO)
    assert scenario.sweep is not None
    assert scenario.warnings == []
    names = [called(attacks) for attacks in scenario.sweep.grid["attacks"]]
    assert len(set(names)) == len(names)
    for attacks in scenario.sweep.grid["attacks"]:
        assert len(load(SCENARIO, [f"attacks={json.dumps(attacks)}"]).attacks) == len(attacks)


def test_the_page_shows_the_runs_that_are_committed() -> None:
    found = pd.read_csv(ROOT / "docs" / "reproductions" / "data" / "robustness_runs.csv", keep_default_na=True)
    found["attack"] = found["attack"].fillna("none")
    scenario = load(SCENARIO)
    assert scenario.sweep is not None
    assert set(found["attack"]) == {called(attacks) for attacks in scenario.sweep.grid["attacks"]}
    assert len(found) == len(scenario.sweep.grid["attacks"]) * len(scenario.schemes) * 3
    page = document.read(ROOT / "docs" / "robustness.md")
    for value in ("accuracy", "attack_success", "attackers_kept"):
        assert table(found, value) in page, value
