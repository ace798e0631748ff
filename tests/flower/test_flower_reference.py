"""The apps in emul against Flower's own simulation (reference.json), on a network without latency or loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flower_apps import REFERENCE, accuracies, app, play, settings

EXACT = ("quickstart_numpy", "quickstart_sklearn", "quickstart_pytorch", "legacy", "half", "secaggplus, plain")
QUICK = ("quickstart_numpy",)
EARLY, CLOSE = 4, 0.03              # rounds 0 to 3 are equal, later ones within that


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
                                  for name in EXACT])
def test_accuracies_are_those_of_flowers_own_simulation(name: str, tmp_path: Path) -> None:
    """Acceptance 2 of the seam."""
    run = REFERENCE["runs"][name]
    components, config = settings(run)
    ran = play(app(run["app"], components, **config, results=str(tmp_path / "found.json")))
    found = list(json.loads((tmp_path / "found.json").read_text()).values())
    theirs = run["accuracies"]
    assert len(found) == len(theirs) == config["num-server-rounds"] + 1
    assert found[:EARLY] == theirs[:EARLY]
    assert found == pytest.approx(theirs, abs=CLOSE)
    assert accuracies(ran) == found[1:], "what the run's record says is what the app has found"


def test_secaggplus_is_that_of_flowers_own_simulation_but_for_its_rounding(tmp_path: Path) -> None:
    """Who is whose neighbour is drawn, the sums are of quantised updates: equal within a sample or so at first."""
    run = REFERENCE["runs"]["secaggplus"]
    found, = accuracies(play(app("secaggplus", **{"num-server-rounds": 1})))
    assert found == pytest.approx(run["accuracies"][1], abs=CLOSE)


def test_the_reference_says_how_it_was_made() -> None:
    assert REFERENCE["command"] == "python benchmarks/peers/flwr_reference.py"
    assert REFERENCE["versions"].keys() >= {"flwr", "ray", "torch", "numpy"}
    assert REFERENCE["clients"] == 10
