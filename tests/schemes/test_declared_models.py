"""Declared models: the bytes and times of models that are not made, against closed forms."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.internet import ring_s, utilisation
from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.learning.declared import DeclaredModel, declared
from emul.scenario import load, loads
from emul.schemes import ddp, diloco, scaffold
from emul.testing import Ran, run_text

INTERNET = Path(__file__).resolve().parents[2] / "scenarios" / "internet"
INTELLECT, COVENANT = ((INTERNET / f"{name}.yaml").read_text(encoding="utf-8") for name in ("intellect1", "covenant"))

PEERS = """
emul: 1
name: peers
seed: 7
topology: {generator: complete, peers: 5}
links: [{match: "*", latency: 10 ms, bandwidth: 100 Mbit/s}]
nodes: [{match: "*", flops: 1e15}]
task: {data: {set: digits}, partition: iid, model: logistic, declared: {parameters: 1e9, tokens: 1e6},
       solver: {sgd: {lr: 0.1, steps: 10, batch: 16}}}
training: skip
compute: {mode: zero}
schemes: [{name: diloco}]
stop: {rounds: 2}
"""


def round_s(ran: Ran) -> float:
    """Seconds of a round, of a run of two equal ones."""
    return ran.kernel.end_ns / 2e9


def test_a_message_is_as_large_as_one_of_the_declared_model() -> None:
    ran = run_text(PEERS)
    sizes = ran.payloads["Part"]
    assert len(sizes) == 2 * 5 * 2 * 4
    assert sum(sizes) == pytest.approx(2 * 2 * 4 * 4e9, rel=1e-6)               # 2 (n - 1) / n S of each of 5 peers
    assert sum(ran.summary["bytes_declared"]["peer"].values()) == pytest.approx(sum(sizes), rel=1e-5)
    assert not ran.invariants.violations


def test_a_step_takes_six_operations_a_parameter_and_token() -> None:
    ran = run_text(PEERS)
    expected = 10 * 6 * 1e9 * 1e6 / 1e15 + ring_s(5, 4e9, 100e6, 0.01)
    assert round_s(ran) == pytest.approx(expected, rel=1e-5)
    assert ran.summary["seconds_declared"]["peer"]["train"] == pytest.approx(5 * 2 * 60.0)
    slower = run_text(PEERS.replace("flops: 1e15", "flops: 1e15, gpus: 4, mfu: 0.5, speed: 0.5"))
    assert slower.summary["seconds_declared"]["peer"]["train"] == pytest.approx(5 * 2 * 60.0)


def test_a_declared_model_is_trained_as_the_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = PEERS.replace("training: skip\n", "")
    plain = small.replace(", declared: {parameters: 1e9, tokens: 1e6}", "").replace(
        'nodes: [{match: "*", flops: 1e15}]\n', "")
    assert run_text(small).models == run_text(plain).models


def test_each_step_has_a_draw_of_its_own_of_mean_one() -> None:
    ran = run_text(PEERS.replace("flops: 1e15", "flops: 1e15, jitter: 0.3"), "stop.rounds=40")
    mean = ran.summary["seconds_declared"]["peer"]["train"] / (5 * 40)
    assert mean == pytest.approx(60, rel=3 * 0.31 / math.sqrt(5 * 40 * 10))


@pytest.mark.parametrize(("sigma", "scheme", "expected"), [
    (0.1, "ddp", 0.846), (0.1, "diloco", 0.983), pytest.param(0.3, "ddp", 0.618, marks=pytest.mark.slow),
    (0.3, "diloco", 0.949)])
def test_stragglers(sigma: float, scheme: str, expected: float) -> None:
    """The share of full speed of 14 peers whose links cost nothing."""
    text = (PEERS.replace("peers: 5", "peers: 14").replace("latency: 10 ms, bandwidth: 100 Mbit/s", "latency: 0 ms")
            .replace("flops: 1e15", f"flops: 1e15, jitter: {sigma}").replace("steps: 10,", "steps: 100,")
            .replace("{name: diloco}", f"{{name: {scheme}, how: server}}"))
    rounds, steps = (40, 100) if scheme == "diloco" else (400, 1) if sigma < 0.2 else (1000, 1)
    ran = run_text(text, f"stop.rounds={rounds}")
    assert 6.0 * steps * rounds / (ran.kernel.end_ns / 1e9) == pytest.approx(expected, abs=0.005)


# --- scenarios/internet -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("mbps", "seconds", "published"), [("316.8", 470.28, None), ("1442", 103, 0.957),
                                                            ("389", 382, 0.856)])
def test_intellect_1(mbps: str, seconds: float, published: float | None) -> None:
    ran = run_text(INTELLECT, f"links[0].bandwidth={mbps} Mbit/s")
    reduce_s = round_s(ran) - 2280.0
    share = ran.summary["utilisation"]["peer"]["compute"]
    if published is None:
        assert reduce_s == pytest.approx(seconds, abs=0.01)
        assert share == pytest.approx(0.8290, abs=0.0005)
    else:
        assert share == pytest.approx(published, abs=0.001)
    assert reduce_s == pytest.approx(ring_s(14, 1e10, float(mbps) * 1e6, 0.05), abs=0.005)
    assert share == pytest.approx(utilisation(2280, reduce_s), abs=1e-5)


@pytest.mark.parametrize(("sets", "seconds", "share"), [
    ((), 748.9, 0.616), (("links[0].bandwidth=880 Mbit/s", "links[1].bandwidth=4000 Mbit/s"), 93.6, 0.928)])
def test_covenant(sets: tuple[str, ...], seconds: float, share: float) -> None:
    ran = run_text(COVENANT, *sets)
    assert round_s(ran) - 1200 == pytest.approx(seconds, abs=0.1)
    assert utilisation(1200, round_s(ran) - 1200) == pytest.approx(share, abs=0.001)


MEASURED = """
import json, sys
from pathlib import Path
from emul.testing import run_text
text = Path(sys.argv[1]).read_text(encoding="utf-8")
ran = run_text(text, "stop.rounds=100")
status = Path("/proc/self/status").read_text()              # ru_maxrss would have the memory of the parent, too
highest = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
print(json.dumps([ran.summary["rounds"], highest]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_a_hundred_rounds_of_fourteen_nodes_take_little_memory() -> None:
    """The memory of the process, imports included; its CPU seconds stand in docs/studies/internet.md."""
    done = subprocess.run([sys.executable, "-c", MEASURED, str(INTERNET / "intellect1.yaml")], capture_output=True,
                          text=True, check=True)
    rounds, highest = json.loads(done.stdout)
    assert rounds == 100
    assert highest < 450e6


# --- layers, limits and mistakes --------------------------------------------------------------------------------------

def task(text: str) -> Task:
    scenario = loads(text)
    return Task(scenario.task, 5, scenario.seed)


def test_layers_are_those_of_the_model_or_as_many_as_declared() -> None:
    tokens = ("{data: {set: text, package: networkx, window: 16, test: 8}, model: {transformer: {blocks: 3, width: 8, "
              "heads: 2}}, solver: {sgd: {lr: 0.1, steps: 1, batch: 2}}}")
    made = Task(loads(PEERS, sets=[f"task={tokens}", "nodes=[]", "training=run"]).task, 5, 7)
    layers = made.layers
    assert len(layers) == 3
    assert sorted(np.concatenate(layers).tolist()) == list(range(made.dimension))
    assert len(layers[1]) == len(layers[2]) == 12 * 64 + 4 * 8
    assert len(task(PEERS.replace("model: logistic", "model: digits_mlp")).layers) == 2
    cut = task(PEERS.replace("tokens: 1e6", "tokens: 1e6, layers: 13")).layers
    assert {len(one) for one in cut} == {50}


def test_declared_is_read_from_a_task() -> None:
    assert declared({}) is None
    assert declared(loads(PEERS).task) == DeclaredModel(1e9, 1e6)


def test_the_resolved_scenario_says_the_same() -> None:
    text = PEERS.replace("flops: 1e15", "flops: 1e15, gpus: 8, mfu: 0.4, jitter: 0.1")
    scenario = loads(text)
    assert loads(scenario.resolved()) == scenario


def test_a_limit_of_messages_is_that_of_the_scenario_where_it_says_one() -> None:
    limited = PEERS.replace("{name: diloco}", "{name: diloco, timeout: 1 h}") + "limits: {max_message: 100 MB}\n"
    ran = run_text(limited)
    assert ran.summary["rounds_failed"]


@pytest.mark.parametrize(("was", "becomes", "said"), [
    ('nodes: [{match: "*", flops: 1e15}]\n', "", r"task\.declared +peer1 has no rate to train it at"),
    ('match: "*", flops', "match: peer1, flops", "peer2 has no rate to train it at"),
    (", declared: {parameters: 1e9, tokens: 1e6}", "", r"nodes\[0\]\.flops +1e\+15 +is used only with task.declared"),
    ("flops: 1e15", "speed: 1, gpus: 8", r"nodes\[0\]\.gpus +8 +is used only with flops"),
    ("flops: 1e15", "fraction: 0.5", "expected speed, flops or both"),
    ("flops: 1e15", "flops: 1e15, mfu: 1.5", r"expected a fraction in \(0, 1\]"),
    ("flops: 1e15", "flops: 1e15, jitter: -1", r"expected a sigma in \[0, 3\]"),
    ("parameters: 1e9, ", "", r"task\.declared\.parameters +nothing +expected a number, 1 or more"),
    ("tokens: 1e6", "tokens: 0", r"task\.declared\.tokens +0 +expected a number, 1 or more"),
    ("tokens: 1e6", "tokens: 1e6, layers: 0", "expected a whole number in 1..10000"),
    ("tokens: 1e6", "tokens: 1e6, size: 3", "unknown key"),
    ("{parameters: 1e9, tokens: 1e6}", "10e9", "expected such as {parameters: 10e9, tokens: 1048576}"),
    ("peers: 5", "peers: 1", "one peer has nobody to add up with"),
])
def test_mistakes_are_told(was: str, becomes: str, said: str) -> None:
    assert was in PEERS
    with pytest.raises(ScenarioError, match=said):
        loads(PEERS.replace(was, becomes))


def test_a_scheme_whose_messages_do_not_grow_is_refused() -> None:
    more = "declared: {parameters: 1e9, tokens: 1e6}, partition"
    text = scaffold.EXAMPLE.replace("partition", more, 1) if "partition" in scaffold.EXAMPLE else ""
    with pytest.raises(ScenarioError, match=r"cannot be used with task\.declared"):
        loads(text)


@pytest.mark.parametrize("example", [ddp.EXAMPLE, diloco.EXAMPLE])
def test_examples_with_a_declared_model_run(example: str) -> None:
    ran = run_text(example.replace("task: {", 'nodes: [{match: "*", flops: 1e12}]\ntask: {declared: {parameters: 1e6, '
                                              "tokens: 1e3}, "), "schemes[0].timeout=1 h")
    assert not ran.summary["rounds_failed"]
    assert not ran.invariants.violations


def test_scenarios_of_the_internet_are_sound() -> None:
    for file in sorted(INTERNET.glob("*.yaml")):
        scenario: Any = load(file)
        assert scenario.warnings == []
