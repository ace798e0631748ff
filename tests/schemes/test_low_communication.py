"""DDP, DiLoCo and local SGD: against each other, against torch's optimisers, by hand, and their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.learning import NodeTask, Task
from emul.message.wire import encode
from emul.protocols.collective import Part
from emul.protocols.outer import nesterov
from emul.scenario import loads
from emul.schemes import ddp, diloco, local_sgd
from emul.testing import Ran, run_text


def with_solver(text: str, solver: str) -> str:
    head, _, rest = text.partition("solver: ")
    return head + f"solver: {solver}}}\ncompute:" + rest.partition("\ncompute:")[2]


DDP, DILOCO = (with_solver(text, "{adamw: {lr: 0.01, steps: 5, batch: 16, keep: true}}")
               for text in (ddp.EXAMPLE, diloco.EXAMPLE))


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The models that are evaluated in a run, in the order of rounds and peers."""
    seen: list[np.ndarray] = []

    def evaluate(task: Task, model: np.ndarray) -> dict[str, float]:
        seen.append(np.array(model))
        return {"accuracy": 0.0}
    monkeypatch.setattr(Task, "evaluate", evaluate)
    return seen


def trained(text: str, models: list[np.ndarray], *sets: str) -> tuple[Ran, np.ndarray]:
    """A run, and the last model that it had evaluated."""
    models.clear()
    ran = run_text(text, *sets)
    assert not ran.summary["rounds_failed"]
    return ran, models[-1]


def test_diloco_of_one_plain_step_is_ddp(models: list[np.ndarray]) -> None:
    _, ours = trained(ddp.EXAMPLE, models, "stop.rounds=8")
    _, theirs = trained(diloco.EXAMPLE, models, "stop.rounds=8", "schemes[0].steps=1", "schemes[0].rate=1",
                        "schemes[0].momentum=0")
    assert np.abs(ours - theirs).max() < 1e-6
    assert np.abs(ours - Task(loads(DDP).task, 4, 7).initial_parameters()).max() > 0.01


def test_local_sgd_is_diloco_without_an_outer_optimiser(models: list[np.ndarray]) -> None:
    _, ours = trained(local_sgd.EXAMPLE, models)
    text = local_sgd.EXAMPLE.replace("name: local_sgd, how", "name: diloco, rate: 1, momentum: 0, how")
    _, theirs = trained(text, models)
    assert ours.tobytes() == theirs.tobytes()
    with pytest.raises(ScenarioError, match="rate"):
        loads(local_sgd.EXAMPLE.replace("{name: local_sgd,", "{name: local_sgd, rate: 0.5,"))


def test_all_peers_have_the_same_model(models: list[np.ndarray]) -> None:
    for text in (DDP, DILOCO, local_sgd.EXAMPLE):
        ran, _ = trained(text, models)
        assert len(ran.models) == 12
        assert len(set(ran.models)) == 3            # one for each round


@pytest.mark.parametrize("how", ["ring", "tree", "butterfly", "server"])
def test_the_collective_changes_the_order_of_sums_alone(models: list[np.ndarray], how: str) -> None:
    _, ring = trained(DILOCO, models)
    _, other = trained(DILOCO, models, f"schemes[0].how={how}")
    assert np.abs(ring - other).max() < 1e-4


@given(st.floats(0.05, 2), st.sampled_from([0.0, 0.5, 0.9]), st.integers(1, 9), st.integers(0, 2**32))
def test_the_outer_step_is_that_of_torch(rate: float, mu: float, n: int, seed: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(4, 6)).astype(np.float32)       # of four rounds, summed
    model, momentum = np.zeros(6, np.float32), np.zeros(6, np.float32)
    theta = torch.zeros(6, requires_grad=True)
    optimiser = torch.optim.SGD([theta], lr=rate, momentum=mu, nesterov=mu > 0)
    for total in updates:
        model, momentum = nesterov(model, momentum, total, n, rate, mu)
        theta.grad = torch.from_numpy(-total / n)
        optimiser.step()
    assert model.dtype == momentum.dtype == np.float32
    np.testing.assert_allclose(model, theta.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_one_peer_without_an_outer_optimiser_trains_plainly() -> None:
    """Scenarios need two peers, so the step is asked."""
    before, after = np.random.default_rng(1).normal(size=(2, 50)).astype(np.float32)
    model, _ = nesterov(before, np.zeros(50, np.float32), after - before, 1, 1, 0)
    assert np.abs(model - after).max() < 1e-6


def test_ddp_takes_the_steps_of_the_solver_along_the_mean_gradient(models: list[np.ndarray]) -> None:
    _, found = trained(DDP, models, "stop.rounds=5")
    scenario = loads(DDP)
    task, now = Task(scenario.task, 4, scenario.seed), [0]
    nodes = [task.for_node(f"peer{k + 1}", k, lambda: now[0]) for k in range(4)]
    theta = torch.from_numpy(task.initial_parameters().copy()).requires_grad_()
    optimiser = torch.optim.AdamW([theta], lr=0.01, weight_decay=0)
    for now[0] in range(1, 6):
        at = theta.detach().numpy().copy()
        theta.grad = torch.from_numpy(np.mean([node.gradient(at)[0] for node in nodes], 0))
        optimiser.step()
    np.testing.assert_allclose(found, theta.detach().numpy(), rtol=1e-3, atol=1e-5)


def test_a_round_of_local_sgd_ends_with_the_mean_of_the_local_models(
        monkeypatch: pytest.MonkeyPatch, models: list[np.ndarray]) -> None:
    def local_update(task: Any, model: np.ndarray, *, steps: int | None) -> tuple[np.ndarray, int]:
        return np.full(model.shape, float(task._name[-1]), np.float32), 1
    monkeypatch.setattr(NodeTask, "local_update", local_update)
    first = Task(loads(local_sgd.EXAMPLE).task, 4, 7).initial_parameters()
    _, found = trained(local_sgd.EXAMPLE, models, "stop.rounds=2")
    np.testing.assert_allclose(found - first, 2 * (1 + 2 + 3 + 4) / 4, rtol=1e-5)


def test_inner_steps_are_those_of_the_parameter(models: list[np.ndarray]) -> None:
    _, by_solver = trained(DILOCO.replace("steps: 5", "steps: 2"), models)
    _, by_parameter = trained(DILOCO, models, "schemes[0].steps=2")
    assert by_solver.tobytes() == by_parameter.tobytes()


def test_a_peer_of_a_ring_sends_two_n_minus_one_nths_of_the_vector(models: list[np.ndarray]) -> None:
    """Of 650 parameters, in 5 parts of 130: 2 (n - 1)/n S, and a header a part."""
    header = encode(Part(np.zeros(130, np.float32), 0)).size - 130 * 4
    for text in (DDP, DILOCO):
        ran, last = trained(text.replace("peers: 4", "peers: 5"), models, "stop.rounds=1")
        assert last.size == 650
        assert len(ran.payloads["Part"]) == 5 * 2 * 4
        assert sum(ran.payloads["Part"]) == 5 * (2 * 4 * 650 * 4 // 5 + 2 * 4 * header)


def test_a_peer_that_is_too_late_costs_the_others_their_round(models: list[np.ndarray]) -> None:
    deaf = DILOCO.replace('links: [{', 'links: [{match: "peer2->peer3", latency: 20 s}, {').replace(
        'match: "*", latency: 20 ms, bandwidth', 'match: "*", bandwidth')
    ran = run_text(deaf, "stop.rounds=2", "schemes[0].timeout=1 s")
    assert ran.summary["rounds_failed"] == 2
    assert not ran.invariants.violations
    assert ran.kernel.end_ns < 5e9


@pytest.mark.parametrize(("text", "was", "becomes", "said"), [
    (DDP, "peers: 4", "peers: 1", "one peer has nobody to add up with"),
    (DILOCO, "peers: 4", "peers: 1", "one peer has nobody to add up with"),
    (local_sgd.EXAMPLE.replace("tree", "butterfly"), "peers: 4", "peers: 6",
     "a butterfly of 6 members: expected a power of two"),
    (DDP, ", keep: true", "", "ddp needs keep: true"),
    (DDP, "timeout: 10 s", "timeout: 0 s", "expected a time above 0"),
    (DILOCO, "timeout: 10 s", "rate: 0", "expected a number above 0"),
    (DILOCO, "timeout: 10 s", "momentum: 1", r"expected a number in \[0, 1\)"),
    (DILOCO, "timeout: 10 s", "steps: 0", "expected an integer >= 1"),
])
def test_mistakes_are_told(text: str, was: str, becomes: str, said: str) -> None:
    assert was in text
    with pytest.raises(ScenarioError, match=said):
        loads(text.replace(was, becomes))


def test_an_inner_solver_that_begins_anew_is_no_mistake_but_is_said() -> None:
    scenario = loads(DILOCO.replace(", keep: true", ""))
    assert any("the inner solver begins anew" in text for text in scenario.warnings)
