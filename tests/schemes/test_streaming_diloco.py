"""Streaming DiLoCo: against DiLoCo to the bit, against its equations number by number, and its overlap in time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.internet import Simulated, utilisation
from emul.base.errors import ScenarioError
from emul.learning import NodeTask, Task
from emul.primitives.compress import choose
from emul.scenario import loads
from emul.schemes import diloco, streaming_diloco
from emul.testing import Ran, run_text


def with_solver(text: str, solver: str) -> str:
    head, _, rest = text.partition("solver: ")
    return head + f"solver: {solver}}}\ncompute:" + rest.partition("\ncompute:")[2]


STREAMING = streaming_diloco.EXAMPLE
DILOCO = with_solver(diloco.EXAMPLE, "{adamw: {lr: 0.01, steps: 5, batch: 16, keep: true}}")

BANDWIDTHS = Path(__file__).resolve().parents[2] / "scenarios" / "internet" / "bandwidths.yaml"
AS_DILOCO = ("schemes[0].fragments=1", "schemes[0].tau=0", "schemes[0].alpha=0")


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The models that are evaluated in a run, in the order of rounds and peers."""
    seen: list[np.ndarray] = []

    def evaluate(task: Task, model: np.ndarray) -> dict[str, float]:
        seen.append(np.array(model))
        return {"accuracy": 0.0}
    monkeypatch.setattr(Task, "evaluate", evaluate)
    return seen


def renamed(text: str) -> str:
    return text.replace("{name: diloco", "{name: streaming_diloco", 1)


def test_one_fragment_at_once_is_diloco_to_the_bit(models: list[np.ndarray]) -> None:
    """Of two peers, whose sums do not depend on their order; in 32 bits."""
    two = DILOCO.replace("peers: 4", "peers: 2")
    ours = run_text(renamed(two), "stop.rounds=6", *AS_DILOCO, "schemes[0].codec=none")
    theirs = run_text(two, "stop.rounds=6")
    assert len(set(ours.models)) == 6
    assert ours.models == theirs.models


def test_one_fragment_at_once_is_diloco_with_codes_to_the_bit() -> None:
    ours = run_text(renamed(DILOCO), "stop.rounds=4", *AS_DILOCO, "schemes[0].codec=bf16")
    theirs = run_text(DILOCO, "stop.rounds=4", "schemes[0].how=all_gather", "schemes[0].codec=bf16")
    assert ours.models == theirs.models


# --- the equations ----------------------------------------------------------------------------------------------------

def gradient(peer: int, step: int, d: int) -> np.ndarray:
    return np.random.default_rng([peer, step]).normal(0, 1e-2, d)


def by_the_equations(start: np.ndarray, layers: list[np.ndarray], n: int, rounds: int, H: int, P: int, tau: int,
                     alpha: float, codec: str | None, eta: float = 0.7, mu: float = 0.9) -> list[np.ndarray]:
    """theta after each round, of n peers whose step t moves theta_m by -gradient(m, t), whatever theta_m is."""
    d = len(start)
    theta, b = start.astype(np.float64), np.zeros(d)
    local, under_way, found = [theta.copy() for _ in range(n)], dict[int, Any](), []
    out = {H * (p + 1) // P - tau: p for p in range(P)}
    coder = None if codec is None else choose(codec)
    for round_ in range(rounds):
        for step in range(1, H + 1):
            for m in range(n):
                local[m] = local[m] - gradient(m, round_ * H + step, d)
            if step in out:
                p = out[step]
                at = np.sort(np.concatenate(layers[p::P]))
                own = [(theta - local[m])[at] for m in range(n)]
                if coder is not None:
                    rng = np.random.default_rng(0)
                    own = [coder.decode(coder.encode(x.astype(np.float32), rng)[0], len(x)) for x in own]
                under_way[step + tau] = at, np.mean(own, 0)
            if step in under_way:
                at, delta = under_way.pop(step)
                b[at] = mu * b[at] + delta
                theta[at] = theta[at] - eta * (delta + mu * b[at])
                for m in range(n):
                    local[m][at] = alpha * local[m][at] + (1 - alpha) * theta[at]
        found.append(theta.copy())
    return found


@pytest.mark.parametrize(("P", "tau", "alpha", "codec"), [
    (1, 0, 0.0, None), (1, 2, 0.5, None), (2, 1, 0.5, None), (3, 1, 0.25, None), (2, 0, 1.0, None),
    (2, 1, 0.5, "bf16"), (3, 0, 0.5, "e3m0")])
def test_the_models_are_those_of_the_equations(monkeypatch: pytest.MonkeyPatch, models: list[np.ndarray], P: int,
                                               tau: int, alpha: float, codec: str | None) -> None:
    taken: dict[str, int] = {}

    def local_update(task: NodeTask, model: np.ndarray, *, steps: int) -> tuple[np.ndarray, int]:
        first = taken.get(task._name, 0)
        taken[task._name] = first + steps
        peer = int(task._name.removeprefix("peer")) - 1
        return -sum(gradient(peer, first + k, model.size) for k in range(1, steps + 1)).astype(np.float32), 1
    monkeypatch.setattr(NodeTask, "local_update", local_update)
    declared = "declared: {parameters: 1e4, tokens: 1, layers: 4}, partition"
    text = STREAMING.replace("partition", declared).replace("task:", 'nodes: [{match: "*", flops: 1e6}]\ntask:')
    run_text(text, "schemes[0].fragments=" + str(P), f"schemes[0].tau={tau}", f"schemes[0].alpha={alpha}",
             f"schemes[0].codec={codec or 'none'}", "schemes[0].timeout=1 h", "stop.rounds=3")
    start = np.array(Task(loads(text).task, 3, 7).initial_parameters())
    layers = np.array_split(np.arange(len(start)), 4)
    expected = by_the_equations(start, layers, 3, 3, 6, P, tau, alpha, codec)
    assert len(models) == 9
    for round_ in range(3):
        for k in range(3):
            np.testing.assert_allclose(models[3 * round_ + k], expected[round_], atol=2e-3 if codec else 1e-5)
        assert models[3 * round_].tobytes() == models[3 * round_ + 1].tobytes() == models[3 * round_ + 2].tobytes()


def test_a_fragment_is_sent_once_a_round_in_its_bits() -> None:
    ran = run_text(STREAMING)
    d = Task(loads(STREAMING).task, 3, 7).dimension
    codes = [choose("e3m0").nbytes(len(layer)) for layer in Task(loads(STREAMING).task, 3, 7).layers]
    assert len(ran.payloads["Fragment"]) == 3 * 2 * 3 * 2               # rounds, fragments, peers, others
    header = min(ran.payloads["Fragment"]) - min(code for code in codes if code is not None)
    assert 0 < header < 100
    assert sum(ran.payloads["Fragment"]) == pytest.approx(18 * sum(code + header for code in codes if code), rel=0.01)
    assert sum(code for code in codes if code) < 0.52 * d + 8 * len(codes)


# --- times ------------------------------------------------------------------------------------------------------------

TIMED = """
emul: 1
name: timed
seed: 7
topology: {generator: complete, peers: 2}
links: [{match: "*", bandwidth: 1 Gbit/s}]
nodes: [{match: "*", flops: 6e13}]
task: {data: {set: digits}, partition: iid, model: digits_mlp, solver: {sgd: {lr: 0.1, steps: 100, batch: 16}},
       declared: {parameters: 4.1984375e8, tokens: 2381.838, layers: 24}}
training: skip
compute: {mode: zero}
schemes: [{name: streaming_diloco, fragments: 1, tau: 0, codec: none, overlap: true}]
stop: {rounds: 2}
"""                         # t 0.1 s, S 13.435 Gbit in 32 bits: the papers' model of 1B


def share(ran: Ran) -> float:
    return float(ran.summary["utilisation"]["peer"]["train"])


@pytest.mark.parametrize(("gbps", "steps", "sets", "expected"), [
    (81.0, 1, (), 0.495110), (6.2, 100, (), 0.826238), (5.2, 100, ("schemes[0].fragments=8",), 0.823023)])
def test_the_utilisation_is_that_of_the_papers_simulator(gbps: float, steps: int, sets: tuple[str, ...],
                                                         expected: float) -> None:
    """Data parallel, DiLoCo and Streaming DiLoCo of 2 peers whose layers leave in the backward pass."""
    ran = run_text(TIMED, f"links[0].bandwidth={gbps} Gbit/s", f"schemes[0].steps={steps}", *sets)
    model = Simulated(24, 0.1, 134.35)
    formula = model.streaming(gbps) if sets else model.whole(gbps, steps)
    assert formula == pytest.approx(expected, abs=1e-6)
    assert share(ran) == pytest.approx(formula, abs=2e-4)


@pytest.mark.parametrize(("label", "gbps", "formula"), [
    ("data_parallel", 86.8, lambda gbps: Simulated(24, 0.1, 134.35).whole(gbps)),
    ("diloco", 13.3, lambda gbps: Simulated(24, 0.1, 134.35).whole(gbps, 100)),
    ("streaming", 9.1, lambda gbps: Simulated(24, 0.1, 134.35).streaming(gbps)),
    ("overlapped", 4.3, lambda gbps: Simulated(24, 0.1, 134.35).streaming(gbps, tau=1))])
def test_the_scenario_of_the_papers_table_has_its_utilisation(label: str, gbps: float,
                                                              formula: Callable[[float], float]) -> None:
    text = BANDWIDTHS.read_text(encoding="utf-8")
    entry, = (one for one in yaml.safe_load(text)["schemes"] if one["label"] == label)
    ran = run_text(text, f"links[0].bandwidth={gbps} Gbit/s", f"schemes=[{json.dumps(entry)}]")
    assert share(ran) == pytest.approx(formula(gbps), abs=3e-4)


def test_a_fragment_that_comes_in_time_costs_nothing() -> None:
    """T(S / P) at tau t: all of the time is training; with one per cent less bandwidth the rest of T is waited for."""
    sets = ("schemes[0].overlap=false", "schemes[0].fragments=4", "schemes[0].tau=2", "training=skip")
    fragment_bits = 4.1984375e8 * 32 / 4
    just = fragment_bits / 0.2
    ran = run_text(TIMED, f"links[0].bandwidth={round(just * 1.0005)} bit/s", *sets)
    assert share(ran) > 0.999
    ran = run_text(TIMED, f"links[0].bandwidth={round(just * 0.99)} bit/s", *sets)
    assert share(ran) == pytest.approx(utilisation(10.0, 4 * 0.2 * (1 / 0.99 - 1)), abs=0.001)


def test_with_overlap_a_fragment_has_the_rest_of_the_backward_pass_too() -> None:
    """T(S / P) at (tau + phi) t, phi t from the first layer that leaves to the end of the step."""
    model = Simulated(24, 0.1, 134.35)
    sets = ("schemes[0].fragments=8", "schemes[0].tau=1")
    low, high = 1.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if model.streaming(middle, tau=1) >= 1 else (middle, high)
    ran = run_text(TIMED, f"links[0].bandwidth={round(high * 1.001e9)} bit/s", *sets)
    assert share(ran) > 0.999
    ran = run_text(TIMED, f"links[0].bandwidth={round(high * 0.99e9)} bit/s", *sets)
    assert share(ran) == pytest.approx(model.streaming(high * 0.99, tau=1), abs=0.001)


# --- failures and mistakes --------------------------------------------------------------------------------------------

def test_a_lost_fragment_costs_the_round_and_nothing_hangs() -> None:
    lossy = STREAMING.replace("links: [{", "links: [{match: \"peer1->peer2\", outage: {model: bernoulli, p: 0.4, "
                                           "per: message}}, {")
    ran = run_text(lossy, "stop.rounds=6", "schemes[0].timeout=1 s")
    assert 0 < ran.summary["rounds_failed"] <= 6
    assert not ran.invariants.violations


def test_a_solver_that_keeps_its_moments_goes_on_over_fragments(models: list[np.ndarray]) -> None:
    text = with_solver(STREAMING, "{adamw: {lr: 0.01, steps: 6, batch: 16, keep: true}}")
    assert not run_text(text).summary["rounds_failed"]
    assert loads(text).warnings == []
    assert any("keep: true" in said for said in loads(text.replace(", keep: true", "")).warnings)


@pytest.mark.parametrize(("option", "said"), [
    ("fragments: 3, tau: 1", "the model has 2 layers: expected at most so many"),
    ("fragments: 2, tau: 3", "expected fewer than 3 steps"),
    ("fragments: 7, tau: 0", "expected at most 6, the steps of a round"),
    ("alpha: 1.5", r"expected a number in \[0, 1\]"), ("codec: zip", "codec = zip"), ("tau: -1", "integer >= 0"),
    ("overlap: true", "expected a task with declared"), ("momentum: 1", r"expected a number in \[0, 1\)")])
def test_mistakes_are_told(option: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(STREAMING.replace("fragments: 2, steps: 6, timeout: 10 s", option))


def test_more_fragments_than_declared_layers_are_a_mistake() -> None:
    with pytest.raises(ScenarioError, match="the model has 24 layers"):
        loads(TIMED.replace("fragments: 1", "fragments: 25"))
    assert diloco.SCHEME.declares
    assert streaming_diloco.SCHEME.declares
