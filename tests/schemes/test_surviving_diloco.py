"""DiLoCo with a rendezvous, in a ring of codes and blocking; DDP layer by layer."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.learning import NodeTask, Task
from emul.message.wire import ENVELOPE_BYTES, encode
from emul.primitives.compress import choose
from emul.protocols.collective import Chunk, CodedPart
from emul.scenario import loads
from emul.schemes import ddp, diloco, local_sgd, sparseloco
from emul.testing import Ran, Shuffled, run_text

STAR = "topology: {generator: star_mesh, clients: 4}"


def surviving(text: str) -> str:
    """The example with a rendezvous on the server of a star whose clients are linked to each other."""
    return text.replace("topology: {generator: complete, peers: 4}", STAR).replace(
        "timeout: 10 s", "timeout: 2 s, survive: true")


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    seen: list[np.ndarray] = []

    def evaluate(task: Task, model: np.ndarray) -> dict[str, float]:
        seen.append(np.array(model))
        return {"accuracy": 0.0}
    monkeypatch.setattr(Task, "evaluate", evaluate)
    return seen


@pytest.mark.parametrize("text", [diloco.EXAMPLE, local_sgd.EXAMPLE], ids=["diloco", "local_sgd"])
def test_a_rendezvous_changes_nothing_where_nobody_fails(text: str, models: list[np.ndarray]) -> None:
    plain = run_text(text.replace("topology: {generator: complete, peers: 4}", STAR))
    ran = run_text(surviving(text))
    assert ran.models == plain.models
    assert not ran.summary["rounds_failed"]
    assert {"Epoch", "Present", "Members", "Attempted", "Chunk"} == set(ran.payloads)


def test_sparseloco_with_a_rendezvous_is_sparseloco_and_survives() -> None:
    text = sparseloco.EXAMPLE.replace("topology: {generator: complete, peers: 5}", STAR)
    plain = run_text(text)
    held = text.replace("timeout: 10 s", "timeout: 2 s, survive: true")
    ran = run_text(held)
    assert ran.models == plain.models
    assert {"Epoch", "Present", "Members", "Attempted", "CodedPart"} == set(ran.payloads)
    ran = run_text(held + "faults: [{at: 110 ms, node: client3, crash: true, for: 2 s}]\n", "stop.rounds=14")
    counts = members(ran)
    assert (min(counts), counts[-1]) == (3, 4)
    assert len(set(ran.models)) == len(counts)
    assert "Handover" in ran.payloads
    with pytest.raises(ScenarioError, match="expected a timeout"):
        loads(text.replace("timeout: 10 s", "survive: true"))


def members(ran: Ran) -> list[int]:
    """In how many members each step was taken, as the peers report it."""
    return [row[4]["members"] for row in ran.of("client1", R.REPORT) if "members" in row[4]]


@pytest.mark.parametrize("codec", ["", "codec: bf16, "])
def test_the_others_go_on_and_one_that_returns_has_their_model(codec: str, models: list[np.ndarray]) -> None:
    text = surviving(diloco.EXAMPLE).replace("survive: true", f"{codec}survive: true") \
        + "faults: [{at: 150 ms, node: client3, crash: true, for: 2 s}]\n"
    ran = run_text(text, "stop.rounds=7")
    counts = members(ran)
    assert counts[0] == 3
    assert counts[-1] == 4                      # it is in again
    assert len(set(ran.models)) == len(counts)              # one model a step, whoever has it
    assert "Handover" in ran.payloads
    assert not ran.invariants.violations


@pytest.mark.parametrize(("module", "fault"), [
    (local_sgd, "node: client3, crash: true, for: 1000 s"), (local_sgd, "node: client3, leave: true"),
    (local_sgd, 'link: "client3<->*", down: true'), (sparseloco, "node: client3, leave: true, for: 1000 s")])
def test_a_run_ends_without_one_that_is_gone_as_after_its_crash_for_good(module: Any, fault: str) -> None:
    text = re.sub("topology: .*", STAR, module.EXAMPLE).replace("timeout: 10 s", "timeout: 600 ms, survive: true")

    def ended(fault: str) -> tuple[float, int]:
        ran = run_text(f"{text}faults: [{{at: 70 ms, {fault}}}]\n")
        assert not ran.summary["violations"]
        assert max(row["round"] for row in ran.rounds) <= 3
        return ran.kernel.end_ns / 1e9, sum(map(sum, ran.payloads.values()))

    (gone_s, gone_bytes), (end_s, nbytes) = ended("node: client3, crash: true"), ended(fault)
    assert end_s <= gone_s + 1.2                # that a link is cut is noticed after the grace
    assert nbytes < 1.3 * gone_bytes


def test_a_stop_on_accuracy_and_an_availability_without_a_return_end_a_run(tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text("node,t_on_s,t_off_s\nclient3,0,0.07\n")
    text = surviving(local_sgd.EXAMPLE) + f"faults: [{{availability: {{match: client3, file: {file}}}}}]\n"
    ran = run_text(text, "stop.rounds=30", "stop.accuracy=0.5")
    assert max(row["round"] for row in ran.rounds) < 30
    assert ran.kernel.end_ns < 20e9


def test_a_peer_that_joins_begins_its_solver_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, int]] = []
    monkeypatch.setattr(NodeTask, "begin_anew", lambda task, taken: begun.append((task._name, taken)))
    text = surviving(diloco.EXAMPLE) + "faults: [{at: 150 ms, node: client3, crash: true, for: 2 s}]\n"
    run_text(text, "stop.rounds=7")
    (name, taken), = begun
    assert name == "client3"
    assert taken > 5                            # five steps a round: those of the others when this round is over
    assert taken % 5 == 0


def test_forgetting_moments_is_beginning_anew() -> None:
    text = diloco.EXAMPLE.replace("{sgd: {lr: 0.1, steps: 5, batch: 16}}",
                                  "{adamw: {lr: 0.01, steps: 5, batch: 16, keep: true}}")
    task = Task(loads(text).task, 4, 7)
    first = task.initial_parameters()
    nodes = [task.for_node("peer1", 0, lambda: now[0]) for _ in range(2)]
    now = [1]
    once = nodes[0].local_update(first)[0]
    now[0] = 2
    nodes[0].begin_anew()
    again, fresh = (node.local_update(first + once)[0] for node in nodes)
    assert again.tobytes() == fresh.tobytes()


def test_who_begins_anew_after_as_many_steps_as_the_others_has_their_rate() -> None:
    text = diloco.EXAMPLE.replace("{sgd: {lr: 0.1, steps: 5, batch: 16}}",
                                  "{sgd: {lr: 0.1, steps: 5, batch: 16, keep: true, schedule: {steps: 10}}}")
    task = Task(loads(text).task, 4, 7)
    first = task.initial_parameters()
    now = [1]
    old, joined, fresh = (task.for_node("peer1", 0, lambda: now[0]) for _ in range(3))
    old.local_update(first)
    assert joined.untouched
    joined.begin_anew(5)
    assert not joined.untouched                 # no other object would do as well
    now[0] = 2
    moved = [node.local_update(first)[0] for node in (old, joined, fresh)]
    assert moved[0].tobytes() == moved[1].tobytes()
    assert moved[0].tobytes() != moved[2].tobytes()


@pytest.mark.parametrize(("change", "told"), [
    (("timeout: 10 s", "survive: true"), "expected a timeout, after which a peer takes another one for lost"),
    (("timeout: 10 s", "how: butterfly, timeout: 1 s, survive: true"), "expected ring, tree or server"),
    (("timeout: 10 s", "timeout: 1 s, survive: true, grace: 0 s"), "grace"),
    (("timeout: 10 s", "how: tree, codec: bf16"), "expected ring or all_gather"),
    (("timeout: 10 s", "codec: {top_k: {k: 9, feedback: true}}"), "expected no feedback, or how: all_gather"),
    (("timeout: 10 s", "codec: powersgd"), "codes tensors")])
def test_mistakes_are_told_by_check(change: tuple[str, str], told: str) -> None:
    text = diloco.EXAMPLE.replace("topology: {generator: complete, peers: 4}", STAR).replace(*change)
    with pytest.raises(ScenarioError, match=told):
        loads(text)


def test_without_a_node_for_the_rendezvous_the_scenario_is_refused() -> None:
    with pytest.raises(ScenarioError, match="rendezvous"):
        loads(diloco.EXAMPLE.replace("timeout: 10 s", "timeout: 2 s, survive: true"))


# --- a ring of codes --------------------------------------------------------------------------------------------------

def test_a_ring_of_codes_is_near_the_ring_and_has_the_codec_s_bytes(models: list[np.ndarray]) -> None:
    run_text(diloco.EXAMPLE)
    plain = models[-1]
    models.clear()
    ran = run_text(diloco.EXAMPLE.replace("timeout: 10 s", "codec: int8, timeout: 10 s"))
    assert len(set(ran.models)) == 3            # one for each round: the same at all peers
    assert 0 < np.abs(models[-1] - plain).max() < 0.2 * np.abs(plain).max()
    d, n = plain.size, 4
    ends = [d * p // n for p in range(n + 1)]
    codec = choose("int8")
    sizes = sorted(codec.nbytes(b - a) or 0 for a, b in pairwise(ends))
    header = encode(CodedPart(np.zeros(1200, np.uint8), 0, 0)).size - 1200
    assert sorted(set(ran.payloads["CodedPart"])) == [size + header for size in sorted(set(sizes))]
    assert len(ran.payloads["CodedPart"]) == 3 * n * 2 * (n - 1)


def test_blocking_ends_no_sooner(models: list[np.ndarray]) -> None:
    slow = diloco.EXAMPLE.replace("links: [", 'links: [{match: "peer2->peer3", bandwidth: 20 kbit/s}, ').replace(
        'match: "*", latency: 20 ms, bandwidth: 20 Mbit/s', 'match: "*", latency: 20 ms')
    free, held = (run_text(slow.replace("timeout: 10 s", f"timeout: 100 s, blocking: {flag}"), "stop.rounds=1")
                  for flag in ("false", "true"))
    assert free.models == held.models

    def left(ran: Ran) -> int:
        return int(next(row[1] for row in ran.of("peer2", R.LEAVE)))
    assert left(held) > left(free)


# --- DDP by layers ----------------------------------------------------------------------------------------------------

LAYERED = ddp.EXAMPLE.replace("timeout: 10 s", "timeout: 10 s, layers: 5, step: 300 ms")


def test_layers_change_when_gradients_go_and_not_the_model(models: list[np.ndarray]) -> None:
    plain = run_text(ddp.EXAMPLE)
    last = models[-1]
    ran = run_text(LAYERED)
    assert np.abs(models[-1] - last).max() < 1e-6           # parts are cut elsewhere, and added up in another order
    assert len(set(ran.models)) == len(set(plain.models)) == 3
    sizes = encode(Chunk(np.zeros(130 // 4, np.float32), 0, 0)).size
    assert len(ran.payloads["Chunk"]) == 3 * 4 * 5 * 2 * 3
    assert min(ran.payloads["Chunk"]) == sizes


def finish_s(layers: int, step_s: float, send_s: float, delta_s: float) -> float:
    """When the last layer of the gradient has gone to the other of two peers, one FIFO link a way, halves there and
    the sums of the other halves back: written apart, event by event."""
    forward, backward = step_s / 3, step_s * 2 / 3 / layers
    free, queue, done = 0.0, [(forward + backward * (k + 1), 0, k) for k in range(layers)], 0.0
    while queue:
        queue.sort()
        at, half, layer = queue.pop(0)
        free = max(free, at) + send_s / 2
        if half == 0:
            queue.append((free + delta_s, 1, layer))
        else:
            done = max(done, free + delta_s)
    return max(done, step_s)


@pytest.mark.parametrize(("bandwidth", "limits"), [("20 Mbit/s", "computing"), ("30 kbit/s", "the link")])
def test_gradients_go_out_while_the_backward_pass_goes_on(bandwidth: str, limits: str) -> None:
    """Two peers; 650 parameters in 5 layers of 130, a half of 65 each way."""
    text = LAYERED.replace("peers: 4", "peers: 2").replace("20 Mbit/s", bandwidth)
    ran = run_text(text, "stop.rounds=1")
    rate = 20e6 if bandwidth == "20 Mbit/s" else 30e3
    half = encode(Chunk(np.zeros(65, np.float32), 0, 0)).size + ENVELOPE_BYTES
    expected = finish_s(5, 0.3, 2 * half * 8 / rate, 0.02)
    ends = max(row[1] for row in ran.of("peer1", R.LEAVE)) / 1e9
    assert ends == pytest.approx(expected, abs=1e-4)
    assert (expected < 0.5) == (limits == "computing")


def test_dp_of_the_streaming_paper_at_81_gbit_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streaming DiLoCo, Table 4, 1B: L = 24, t = 0.1 s, S/t = 134.35 Gbit/s; at 81 Gbit/s 0.495110 of the time."""
    d, layers = 650, 24

    def encode_larger(message: Any) -> Any:
        encoded = encode(message)
        carried = encoded.size - len(encoded.header)
        encoded.declared = round(carried * 13.435e9 / 8 / (4 * d)) - encoded.size - ENVELOPE_BYTES
        encoded.size += encoded.declared
        return encoded
    monkeypatch.setattr("emul.roles.desk.encode", encode_larger)
    text = ddp.EXAMPLE.replace("timeout: 10 s", f"timeout: 10 s, layers: {layers}, step: 100 ms").replace(
        "peers: 4", "peers: 2").replace("latency: 20 ms, bandwidth: 20 Mbit/s", "latency: 0 ms, bandwidth: 81 Gbit/s")
    ran = run_text(text, "stop.rounds=1")
    ends = max(row[1] for row in ran.of("peer1", R.LEAVE)) / 1e9
    assert 0.1 / ends == pytest.approx(0.495110, abs=5e-4)      # 650 parameters in 24 layers: 27 or 28 each


def test_layers_are_the_same_for_workers_in_any_order() -> None:
    expected = run_text(LAYERED).digest
    assert all(run_text(LAYERED, pool=Shuffled(workers, 3)).digest == expected for workers in (2, 4))


def test_a_step_without_layers_is_a_mistake() -> None:
    with pytest.raises(ScenarioError, match="expected layers, or none"):
        loads(ddp.EXAMPLE.replace("timeout: 10 s", "step: 100 ms"))
