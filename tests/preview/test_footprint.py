"""The memory of a run, estimated before it: what its parts are, and how near the whole comes to what is measured."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.common import python, run
from emul import engine
from emul.learning import models
from emul.preview.explain import explain, tables
from emul.preview.footprint import RoundFootprint, Weighing, activations, estimate, journal_bytes, state_bytes
from emul.record.journal import MemoryJournal
from emul.record.progress import rounded_size
from emul.scenario import loads

TEXT = """
emul: 1
name: footprint
seed: 3
topology: {generator: star, clients: CLIENTS}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, partition: {bootstrap: 15}, model: MODEL, solver: {sgd: {lr: 0.1, steps: 1, batch: 10}}}
compute: {mode: zero}
schemes: [{name: fedavg, fraction: FRACTION}]
stop: {rounds: 3}
"""


def scenario(clients: int = 20, fraction: float = 1.0, model: str = "logistic", *sets: str) -> Any:
    return loads(TEXT.replace("CLIENTS", str(clients)).replace("FRACTION", str(fraction)).replace("MODEL", model),
                 sets=sets)


def memory(*args: Any, workers: int = 2) -> dict[str, Any]:
    found: dict[str, Any] = explain(scenario(*args), workers=workers)["schemes"][0]["memory"]
    return found


# --- the parts -------------------------------------------------------------------------------------------------------

def test_a_state_weighs_what_its_arrays_do_and_what_is_shared_weighs_once() -> None:
    @dataclass
    class State:
        model: np.ndarray
        parts: dict[int, Any]
        name: str = "some text, which is not counted"

    model = np.zeros(100, np.float32)
    state = State(model, {1: model[10:20], 2: [np.ones(5), b"abcd"], 3: (bytearray(7), {2.0})})
    counted: set[int] = set()
    assert state_bytes(state, counted) == 400 + 40 + 4 + 7
    assert state_bytes(State(model, {}), counted) == 0
    assert state_bytes(None, counted) == 0


def test_activations_are_those_of_the_layers_on_a_batch() -> None:
    # 8 x 8 inputs, flattened (64), and 10 classes: outputs of 64 and 10 floats, each with its gradient
    module, x = models.create("logistic", (1, 8, 8), 10, 0), torch.zeros(1, 1, 8, 8)
    assert activations(module, x, 1000) == 2 * 1000 * 4 * (64 + 10)
    assert activations(module, x, 1) == 2 * 250 * 4 * 64       # evaluating takes more


def test_a_journal_is_its_header_and_its_rows() -> None:
    rows = [(0, 0, node, 0) for node in range(3_000)] + [(3, 10**9 + i, i % 100) for i in range(5_000)]
    head, rest = journal_bytes({"names": ["a" * 100]}, rows)
    assert head == pytest.approx(3_000 * 6 + 110, rel=0.2)
    assert rest == pytest.approx(5_000 * 8, rel=0.2)


def test_what_took_part_in_a_round_grows_with_the_rounds_up_to_all_of_them() -> None:
    few = memory(1_000, 0.05)
    seen = RoundFootprint(links=100, active=Counter(server=1, client=50), kept=Counter(client=50 * 1_000, server=7))
    built = scenario(1_000, 0.05)
    network = engine.wire(built, *built.schemes[0]).network
    roles = {"server": 1, "client": 1_000}
    for rounds, part in ((1, 0.05), (10, 1 - 0.95**10), (10_000, 1.0)):
        grown = estimate(scenario(1_000, 0.05, "logistic", f"stop.rounds={rounds}"), network, roles, seen, 2)
        assert grown["roles"] == pytest.approx(7 + part * 1_000 * 1_000, rel=1e-6)
        assert grown["links"] == pytest.approx(part * 2_000 * 1_000, abs=1_000)
    assert few["tables"] == 3 * 100 * 560
    endless = estimate(scenario(1_000, 0.05, "logistic", "stop={virtual_time: 1 h}"), network, roles, seen, 2)
    assert endless["roles"] == 7 + 1_000 * 1_000
    assert endless["rounds"] is None


def test_moments_that_are_kept_count_for_each_node_that_has_trained() -> None:
    seen = RoundFootprint(active=Counter(server=1, client=50), learning=Counter(client=50), dimension=650)
    built = scenario(1_000, 0.05)
    network = engine.wire(built, *built.schemes[0]).network
    roles = {"server": 1, "client": 1_000}
    for solver, wanted in (("{sgd: {lr: 0.1, steps: 1, momentum: 0.9}}", 0),
                           ("{sgd: {lr: 0.1, steps: 1, momentum: 0.9, keep: true}}", 4 * 650 * 1_000 * (1 - 0.95**10)),
                           ("{adamw: {lr: 0.1, steps: 1, keep: true}}", 8 * 650 * 1_000 * (1 - 0.95**10))):
        found = scenario(1_000, 0.05, "logistic", "stop.rounds=10", f"task.solver={solver}")
        assert estimate(found, network, roles, seen, 2)["roles"] == pytest.approx(wanted, abs=1)


def test_a_round_is_weighed_as_it_is_sent_and_kept() -> None:
    built = scenario(20, 0.5)
    wiring = engine.wire(built, *built.schemes[0])
    twin = Weighing()
    engine.execute(wiring, twin, MemoryJournal({}))
    seen, size = twin.seen, 4 * 650
    assert seen.dimension == 650
    assert 3 * 11 * size < seen.encoded < 3 * 11 * (size + 100)         # one model for all, ten updates
    assert seen.active["server"] == 1
    assert 10 <= seen.active["client"] <= 20
    assert seen.learning == Counter(client=seen.active["client"], server=0)
    assert seen.kept == Counter(server=2 * size, client=0)              # in its state, and as what it reported last
    assert seen.running == 0                                            # the server's has ended, the clients' rest
    assert seen.data == 1_797 * 64
    assert seen.data_mapped


def test_more_workers_need_more_and_one_process_less() -> None:
    one, two = (memory(30, workers=n)["total"] for n in (1, 2))
    assert memory(30, workers=0)["total"] < one < two


def test_explain_tells_it() -> None:
    found = explain(scenario(50), workers=2)
    title, rows = tables(found)[-1]
    assert title == "Memory of a run with 2 workers, estimated: all processes at their peak"
    assert rows[0][:3] == ["scheme", "total", "processes"]
    assert rows[1][:2] == ["fedavg", rounded_size(found["schemes"][0]["memory"]["total"])]


# --- the whole -------------------------------------------------------------------------------------------------------

MEASURE = """
import os, tempfile
from pathlib import Path
from benchmarks.common import Sampler, pss_bytes
from emul.engine import run
from emul.scenario import loads
with Sampler(pss_bytes, os.getpid(), 0.05) as sampler, tempfile.TemporaryDirectory() as folder:
    result, = run(loads({text!r}), workers={workers}, out=Path(folder))
assert result.error is None, result.error
print("peak", sampler.peak)
"""


def measured(text: str, workers: int) -> float:
    found = re.search(r"peak (\S+)", run(python(MEASURE.format(text=text, workers=workers))).output)
    assert found is not None
    return float(found[1])


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "fraction", "model"), [(100, 1.0, "digits_cnn"), (20_000, 0.005, "digits_cnn"),
                                                            (12, 1.0, "resnet18")])
def test_the_estimate_is_near_what_a_run_takes(clients: int, fraction: float, model: str) -> None:
    text = TEXT.replace("CLIENTS", str(clients)).replace("FRACTION", str(fraction)).replace("MODEL", model)
    told, took = memory(clients, fraction, model)["total"], measured(text, 2)
    assert told / 1.5 < took < told * 1.5


@pytest.mark.slow
def test_so_is_what_further_clients_and_larger_models_add() -> None:
    def added(first: tuple[int, float, str], second: tuple[int, float, str]) -> tuple[float, float]:
        told = [memory(*one)["total"] for one in (first, second)]
        took = [measured(TEXT.replace("CLIENTS", str(clients)).replace("FRACTION", str(fraction)).replace(
            "MODEL", model), 2) for clients, fraction, model in (first, second)]
        return told[1] - told[0], took[1] - took[0]

    for told, took in (added((100, 0.5, "logistic"), (100_000, 0.0005, "logistic")),
                       added((12, 1.0, "logistic"), (12, 1.0, "resnet18"))):
        assert told / 2 < took < told * 2
