"""A small transformer on the bytes of networkx: losses, their order and bytes, against a loop in plain torch."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from emul.learning import Task
from emul.message.wire import encode
from emul.primitives.compress import choose
from emul.protocols.collective import Part
from emul.testing import run_text

D, PEERS, STEPS = 1_035_008, 4, 200
TEXT = """
emul: 1
name: small_training
seed: 7
topology: {generator: complete, peers: 4}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task:
  data: {set: text, package: networkx, window: 128, test: 96}
  partition: {by: file}
  model: {transformer: {blocks: 5, width: 128, heads: 4}}
  solver: {adamw: {lr: 0.001, beta2: 0.95, weight_decay: 0.1, decays: matrices, steps: 10, batch: 4, clip: 1,
                   keep: true, schedule: {warm_up: 30, steps: 200, to: 0.1}}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: ROUNDS}
"""
TOLERANCE = 0.03        # another seed moved the losses of the plain loop by 0.02


def trained(monkeypatch: pytest.MonkeyPatch, scheme: str, rounds: int) -> tuple[float, dict[str, list[int]]]:
    """(nats a byte on the test windows at the end, {type: bytes of each payload})."""
    last: deque[tuple[Task, np.ndarray]] = deque(maxlen=PEERS)
    whole = Task.evaluate

    def evaluate(task: Task, model: np.ndarray) -> dict[str, float]:
        last.append((task, np.array(model)))
        return {"accuracy": 0.0}
    with monkeypatch.context() as patched:
        patched.setattr(Task, "evaluate", evaluate)
        ran = run_text(TEXT.replace("SCHEME", scheme).replace("ROUNDS", str(rounds)))
    assert len({model.tobytes() for _, model in last}) == 1         # replicas
    task, model = last[0]
    assert model.size == D
    return whole(task, model)["loss"], ran.payloads


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_losses_of_synchronous_schemes_and_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"ddp": (STEPS, 2.438), "{name: local_sgd, how: ring, steps: 10}": (20, 2.492),
                "{name: diloco, steps: 10, rate: 0.3}": (20, 2.528), "{name: diloco, steps: 10}": (20, 2.568)}
    part = encode(Part(np.zeros(D // PEERS, np.float32), 0)).size
    found = []
    for scheme, (rounds, loss) in expected.items():
        got, payloads = trained(monkeypatch, scheme, rounds)
        assert got == pytest.approx(loss, abs=TOLERANCE), scheme
        assert payloads == {"Part": [part] * (rounds * PEERS * 2 * (PEERS - 1))}
        found.append(got)
    assert found == sorted(found)


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("scheme", "rounds", "loss"), [
    ("{name: streaming_diloco, fragments: 5, steps: 10, tau: 1}", 20, 2.485),
    ("{name: streaming_diloco, fragments: 5, steps: 50, tau: 5}", 4, 2.612)])
def test_losses_of_streaming_diloco(monkeypatch: pytest.MonkeyPatch, scheme: str, rounds: int, loss: float) -> None:
    got, payloads = trained(monkeypatch, scheme, rounds)
    assert got == pytest.approx(loss, abs=TOLERANCE)
    bits, scales = 4, 4 / 256               # a number, and the bytes of a scale of 256 numbers, for each number
    exact = choose("e3m0").nbytes(D)
    assert exact == pytest.approx(D * (bits / 8 + scales), abs=4)
    copies = rounds * PEERS * (PEERS - 1)
    assert set(payloads) == {"Fragment"}
    assert len(payloads["Fragment"]) == 5 * copies
    assert 0 < sum(payloads["Fragment"]) - copies * exact < 5 * copies * 60         # headers
