"""Asynchronous DiLoCo: its steps against the algorithm number by number, local steps by speed, and idle workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.learning import NodeTask
from emul.scenario import loads
from emul.schemes import async_diloco
from emul.schemes.async_diloco import Params, inner_steps, outer
from emul.testing import run_text

D = 7
DECLARED = async_diloco.EXAMPLE.replace("model: logistic,", "model: logistic, declared: {parameters: 1e5, tokens: 1e6},"
                                        ).replace("task:", 'nodes: [{match: "*", flops: 1e12}]\ntask:').replace(
    "timeout: 1 s", "timeout: 1 h")


def by_algorithm_3(start: np.ndarray, gs: np.ndarray, n: int, c: float, eta: float, beta: float) -> np.ndarray:
    """The models after each arrival, number by number, in float64."""
    theta, m, waiting, found = [float(x) for x in start], [0.0] * D, [0.0] * D, []
    for t, g in enumerate(gs):
        waiting = [w + float(x) for w, x in zip(waiting, g, strict=True)]
        if (t + 1) % n == 0:
            m = [beta * x + w / n for x, w in zip(m, waiting, strict=True)]
            theta = [y - eta * ((1 - c * n + c) * beta * x + float(z) / n)
                     for y, x, z in zip(theta, m, g, strict=True)]
            waiting = [0.0] * D
        else:
            theta = [y - eta * (c * beta * x + float(z) / n) for y, x, z in zip(theta, m, g, strict=True)]
        found.append(theta)
    return np.array(found)


@given(st.integers(1, 5), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.7, 1.0]),
       st.sampled_from([0.0, 0.9]), st.integers(0, 2**32))
def test_the_outer_steps_are_those_of_algorithm_3(n: int, share: float, eta: float, beta: float, seed: int) -> None:
    start, *gs = np.random.default_rng(seed).normal(size=(12, D)).astype(np.float32)
    p = Params(rate=eta, momentum=beta, c=share / n)
    model, momentum, waiting = start, np.zeros(D, np.float32), np.zeros(D, np.float32)
    found = []
    for t, g in enumerate(gs):
        model, momentum, waiting = outer(model, momentum, waiting, -g, t, n, p)
        found.append(model)
        assert model.dtype == momentum.dtype == waiting.dtype == np.float32
    np.testing.assert_allclose(found, by_algorithm_3(start, np.array(gs), n, share / n, eta, beta), atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_momentum_of_n_arrivals_weighs_one(n: int, share: float) -> None:
    """Differences of 0 after a momentum: the model moves by eta beta m' in all, m' that of the last of N."""
    zero = np.zeros(1, np.float32)
    model, momentum, waiting = outer(zero, zero, zero, np.full(1, -1.0, np.float32), 0, 1, Params(rate=1, momentum=0.5))
    start, before = float(model[0]), float(momentum[0])
    assert before == 1.0
    p = Params(rate=1.0, momentum=0.5, c=share / n)
    for t in range(n, 2 * n):
        model, momentum, waiting = outer(model, momentum, waiting, zero, t, n, p)
    after = float(momentum[0])
    assert after == 0.5 * before
    moved = start - float(model[0])
    assert moved == pytest.approx(0.5 * ((n - 1) * p.c * before + (1 - n * p.c + p.c) * after))
    assert (n - 1) * p.c + (1 - n * p.c + p.c) == pytest.approx(1)


def test_local_steps_follow_the_speed() -> None:
    assert [inner_steps(100, speed, 1.0) for speed in (1.0, 0.5, 0.25)] == [100, 50, 25]
    assert [inner_steps(100, speed, 0.7) for speed in (0.7, 0.35, 0.07, 1e-9)] == [100, 50, 10, 1]


def test_each_worker_trains_for_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int | None]] = {}

    def local_update(task: NodeTask, model: np.ndarray, *, steps: int | None) -> tuple[np.ndarray, int]:
        seen.setdefault(task._name, set()).add(steps)
        return np.zeros_like(model), 1
    monkeypatch.setattr(NodeTask, "local_update", local_update)
    slow = 'nodes: [{match: client2, speed: 0.5}, {match: client3, speed: 0.25}]\ntask:'
    run_text(async_diloco.EXAMPLE.replace("task:", slow))
    assert seen == {"client1": {4}, "client2": {2}, "client3": {1}, "client4": {4}}
    seen.clear()
    run_text(async_diloco.EXAMPLE.replace("task:", slow), "schemes[0].adapt=false")
    assert {steps for each in seen.values() for steps in each} == {None}


def test_a_worker_trains_on_the_model_that_it_was_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 1 is far away; the others' differences change the model meanwhile, and its own is of the first."""
    seen: list[tuple[str, float]] = []

    def local_update(task: NodeTask, model: np.ndarray, *, steps: int | None) -> tuple[np.ndarray, int]:
        seen.append((task._name, float(model[0])))
        return np.ones_like(model), 1
    monkeypatch.setattr(NodeTask, "local_update", local_update)
    ran = run_text(async_diloco.EXAMPLE, "schemes[0].momentum=0", "schemes[0].rate=1", "stop.rounds=16")
    first = {name: value for name, value in reversed(seen)}
    assert len({first[f"client{k}"] for k in range(1, 5)}) == 1
    assert max(row["staleness"] for row in ran.rounds) >= 3
    values = sorted({value for _, value in seen})
    np.testing.assert_allclose(np.diff(values), 0.25, atol=1e-6)               # g / N each, N = 4


def test_workers_by_speed_are_hardly_idle() -> None:
    """Speeds 1 and 0.5, messages that are small against H steps of 0.6 s."""
    text = DECLARED.replace("flops: 1e12}]", "flops: 1e12}, {match: client2, flops: 1e12, speed: 0.5}]")
    ran = run_text(text, "training=skip", "schemes[0].steps=100", "stop.rounds=60", "links[1].latency=20 ms")
    for name, steps in (("client1", 100), ("client2", 50)):
        began = [row for row in ran.of(name, R.COMPUTE) if row[3] == "train"]
        cost_s = steps * 6e11 / 1e12 * (2 if name == "client2" else 1)
        assert [row[4] / 1e9 for row in began] == pytest.approx([cost_s] * len(began))
        between = np.diff([row[1] for row in began]) / 1e9
        assert (cost_s / between > 0.99).all()


def test_a_slow_uplink_delays_its_own_worker_alone() -> None:
    """One uplink at a tenth: the other workers begin each training when they did."""
    begun: list[dict[str, list[int]]] = []
    for bandwidth in ("20 Mbit/s", "2 Mbit/s"):
        ran = run_text(DECLARED, "training=skip", "stop={virtual_time: 60 s}",
                       'links=[{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}, '
                       f'{{match: "client4->server", bandwidth: {bandwidth}}}]')
        begun.append({f"client{k}": [row[1] for row in ran.of(f"client{k}", R.COMPUTE) if row[3] == "train"]
                      for k in range(1, 5)})
    equal, slow = begun
    for name in ("client1", "client2", "client3"):
        assert equal[name] == slow[name]
        assert len(equal[name]) >= 10
    assert len(slow["client4"]) < len(equal["client4"])


def test_speeds_hold_rates_where_a_model_is_declared() -> None:
    from emul.roles import World

    world = World("s", 1, ["a", "b"], {"client": [0, 1]}, [1.0, 0.5])
    assert world.rates == [1.0, 0.5]
    world = World("s", 1, ["a", "b"], {"client": [0, 1]}, [1.0, 0.5], islands=[(2e12, 0.0), ()])
    assert world.rates == [2e12, 0.5]


@pytest.mark.parametrize(("option", "said"), [
    ("c: 0.5", r"expected a number in \[0, 1/4\]"), ("momentum: 1", r"expected a number in \[0, 1\)"),
    ("rate: 0", "expected a number above 0"), ("delay: 0", "expected an integer >= 1"),
    ("steps: 0", "expected an integer >= 1")])
def test_mistakes_are_told(option: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(async_diloco.EXAMPLE.replace("timeout: 1 s", option))
