"""Learning tasks of users: the examples that ship, text and a regression, over processes, with numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.record.journal import MemoryJournal
from emul.scenario import FusedTraining, Scenario, load
from emul.workers.pool import Workers
from emul.workers.twin import Twin

OWN = Path(__file__).parents[1] / "scenarios" / "own"
sys.path.append(str(OWN))                                   # as for somebody who stands there


def example(name: str, *sets: str) -> Scenario:
    return load(OWN / f"{name}.yaml", sets=list(sets), plugins=[name])


def run(scenario: Scenario, plugin: str, pool: Any = None, scheme: int = 0) -> tuple[str, list[dict[str, float]]]:
    """The digest, and what was evaluated, round by round."""
    name, raw = scenario.schemes[scheme]
    pool = pool or Twin()
    wiring = engine.wire(scenario, name, raw, pool.workers, [plugin])
    journal = MemoryJournal(engine.header(wiring))
    outcome = engine.execute(wiring, pool, journal)
    return journal.close(), [seen.values for seen in outcome.observations]


def test_clients_learn_to_continue_text_that_each_has_documents_of() -> None:
    _, found = run(example("characters"), "characters")
    assert found[0].keys() == {"accuracy", "loss"}
    assert found[0]["loss"] > 3.1                           # little better than the commonest characters
    assert found[-1]["loss"] < 2.6
    assert found[-1]["accuracy"] > 0.28


SHORT = ("stop={rounds: 2}", "task.solver={sgd: {lr: 0.1, steps: 1, batch: 4}}", "evaluation={every: 2}")


@pytest.mark.parametrize(("name", "sets"), [
    pytest.param("characters", (), marks=pytest.mark.slow), ("diabetes", ()),
    ("characters", ("task.model=char_transformer", "fuse={clients: 4, lanes: 2}"))])
def test_results_are_the_same_for_any_number_of_workers(name: str, sets: tuple[str, ...], pools: list[Workers]) -> None:
    scenario = example(name, *SHORT, *sets)
    digests = {run(scenario, name, pool)[0] for pool in (Twin(), pools[1])}
    assert len(digests) == 1


def test_a_regression_comes_to_the_least_squares() -> None:
    from diabetes import diabetes  # type: ignore[import-not-found]

    data = diabetes({})
    x, test = (np.c_[data[f"{part}_x"], np.ones(len(data[f"{part}_x"]))] for part in ("train", "test"))
    best = np.linalg.lstsq(x, data["train_y"], rcond=None)[0]
    least = float(((test @ best - data["test_y"]) ** 2).mean())
    scenario = example("diabetes", "stop={rounds: 40}", "task.partition=iid")
    for scheme in (0, 1):
        _, found = run(scenario, "diabetes", scheme=scheme)
        own = [values["loss"] for values in found if "loss" in values]
        assert own[-1] == pytest.approx(least, rel=0.05)
        assert all("accuracy" not in values for values in found)


def test_an_objective_of_the_user_is_minimised_and_told() -> None:
    _, squared = run(example("diabetes"), "diabetes")
    digest, huber = run(example("diabetes", "task.objective={huber: {delta: 0.1}}"), "diabetes")
    assert huber[-1]["loss"] < huber[0]["loss"] < 0.1       # about delta |r|, of targets whose deviation is 1
    assert huber[0]["loss"] < 0.2 * squared[0]["loss"]
    assert digest != run(example("diabetes", "task.objective={huber: {delta: 0.2}}"), "diabetes")[0]


@pytest.mark.parametrize(("name", "sets"), [("characters", ("task.model=char_transformer",)),
                                            ("diabetes", ()), ("diabetes", ("task.objective=huber",))])
def test_fused_training_is_the_same_but_for_rounding(name: str, sets: tuple[str, ...]) -> None:
    scenario = example(name, *SHORT, *sets)
    _, alone = run(scenario, name)
    _, fused = run(replace(scenario, fuse=FusedTraining(4, 1)), name)
    for one, other in zip(alone, fused, strict=True):
        assert other == pytest.approx(one, rel=1e-3)


def test_what_cannot_be_fused_is_trained_alone_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    scenario = example("characters", *SHORT)
    _, alone = run(scenario, "characters")
    _, fused = run(replace(scenario, fuse=FusedTraining(4, 1)), "characters")
    assert fused == alone
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("clients are trained one after the other: char_lstm: its forward pass cannot be mapped")
