"""SCAFFOLD, FedNova and FedOpt against numbers that were worked out by hand, and SCAFFOLD's steps in real training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.learning.objectives import CROSS_ENTROPY, Linear, Objective
from emul.learning.solver import Adam, Sgd, steps_of
from emul.protocols.updates import Update
from emul.registry.schemes import find
from emul.roles import weighted_mean
from emul.scenario import loads
from emul.schemes import fedadam, fednova, scaffold


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


# --- SCAFFOLD ---------------------------------------------------------------------------------------------------------

class Parabola:
    """(y - b)^2 / 2, two steps of 1/2."""

    objective = CROSS_ENTROPY
    solver = SimpleNamespace(lr=0.5)

    def __init__(self, b: float):
        self.b = b

    def local_steps(self) -> int:
        return 2

    def minimise(self, model: np.ndarray, objective: Objective) -> tuple[np.ndarray, int]:
        y, (_, linear) = model.copy(), objective.terms
        assert isinstance(linear, Linear)
        for _ in range(2):
            y -= np.float32(0.5) * (y - np.float32(self.b) + linear.direction)
        return y - model, 10


def test_two_rounds_of_scaffold_are_those_worked_out_by_hand() -> None:
    """Round 1 from x = 0: to 3 and -1.5, mean gradients -3 and 1.5, so x = 0.75 and c = -0.75.

    Round 2: 0.75 -> 1.25 -> 1.5 by -1 and -0.5, and 0.75 -> 0.5 -> 0.375 by 0.5 and 0.25.
    """
    tasks: list[Any] = [Parabola(4), Parabola(-2)]
    x, c, own = vector(0), vector(0), [vector(0), vector(0)]
    seen = []
    for _ in range(2):
        got = {}
        for k, task in enumerate(tasks):
            delta, moved, samples = scaffold.controlled(task, x, c, own[k])
            own[k] = own[k] + moved
            got[k] = scaffold.ControlledUpdate(delta, moved, samples)
        x, c = scaffold.stepped(x, c, got, scaffold.Params(), 2)
        seen.append([float(v[0]) for v in (x, c, *own)])
    assert seen == [[0.75, -0.75, -3.0, 1.5], [0.9375, -0.1875, -3.0, 2.625]]


def test_clients_that_are_not_heard_leave_their_part_of_c_as_it_is() -> None:
    got = {1: scaffold.ControlledUpdate(vector(2), vector(4), 10),
           2: scaffold.ControlledUpdate(vector(8), vector(0), 30)}
    x, c = scaffold.stepped(vector(0), vector(1), got, scaffold.Params(rate=0.5, weights="samples"), 8)
    assert (float(x[0]), float(c[0])) == (0.5 * 6.5, 1 + 4 / 8)
    assert scaffold.stepped(vector(3), vector(1), {}, scaffold.Params(), 8) == (vector(3), vector(1))


SPEC = {"data": {"set": "digits"}, "partition": "iid", "model": "logistic", "solver": {"sgd": {"lr": 0.5, "steps": 1,
                                                                                           "batch": 16}}}


def test_a_constant_is_added_to_every_gradient() -> None:
    """One step of lr 0.5 with direction e moves by -0.5 e more than one without."""
    task = Task(SPEC, 2, 1)
    start, direction = task.initial_parameters(), np.random.default_rng(0).standard_normal(task.dimension).astype("f4")
    plain, pulled = (task.for_node("client1", 0, lambda: 1).minimise(start, objective)[0]
                     for objective in (task.objective, task.objective + Linear(direction)))
    np.testing.assert_allclose(pulled - plain, -0.5 * direction, atol=1e-6)


def test_the_control_variates_of_one_step_are_the_gradients_of_clients() -> None:
    """With one step, c_k+ is g_k(x): the mean of the c_k+ - c_k of round 1 is that of the gradients."""
    task = Task(SPEC, 2, 1)
    start = task.initial_parameters()
    zero = np.zeros_like(start)
    _, moved, _ = scaffold.controlled(task.for_node("client1", 0, lambda: 1), start, zero, zero)
    gradient, _ = task.for_node("client1", 0, lambda: 1).gradient(start)
    np.testing.assert_allclose(moved, gradient, atol=1e-6)


# --- FedNova ----------------------------------------------------------------------------------------------------------

def test_fednova_weighs_updates_by_step() -> None:
    """tau = 1 and 3, p = 1/4 and 3/4: (1/4 + 9/4) (1/4 * 1 + 3/4 * 6 / 3) = 2.5 * 1.75."""
    solver = Sgd(lr=0.1, epochs=1, batch=1)
    updates = {1: Update(vector(1), 1), 2: Update(vector(6), 3)}
    assert fednova.normalised(vector(0), updates, solver, 1.0).tolist() == [4.375]
    assert fednova.normalised(vector(1), updates, solver, 2.0).tolist() == [9.75]
    assert fednova.normalised(vector(1), {1: Update(vector(9), 0)}, solver, 1.0).tolist() == [1.0]


@pytest.mark.parametrize(("momentum", "steps", "expected"), [
    (0.0, 4, 4.0), (0.5, 1, 1.0), (0.5, 2, 2.5), (0.5, 3, 4.25)])
def test_the_weight_of_steps_counts_how_often_gradients_enter(momentum: float, steps: int, expected: float) -> None:
    """With momentum 1/2 three steps add up 1.75 g_1 + 1.5 g_2 + g_3."""
    assert fednova.weight_of_steps(Sgd(lr=0.1, steps=1, momentum=momentum), steps) == expected


def test_fednova_with_equal_steps_is_fedavg() -> None:
    rng = np.random.default_rng(0)
    updates = {k: Update(rng.standard_normal(9).astype(np.float32), 10 * k) for k in (1, 2, 5)}
    model = rng.standard_normal(9).astype(np.float32)
    for solver in (Sgd(lr=0.1, steps=4, batch=5), Sgd(lr=0.1, steps=4, batch=5, momentum=0.9)):
        np.testing.assert_allclose(fednova.normalised(model, updates, solver, 1.0), weighted_mean(model, updates),
                                   rtol=1e-6)


@pytest.mark.parametrize(("solver", "samples", "expected"), [
    (Sgd(lr=1, steps=3, batch=4), 10, 3), (Sgd(lr=1, epochs=2, batch=4), 10, 6), (Adam(lr=1, epochs=2), 10, 2),
    (Sgd(lr=1, epochs=2, batch=40), 10, 2), (Sgd(lr=1, steps=3), 0, 0), (Sgd(lr=1, epochs=3), 0, 0)])
def test_steps_of_a_local_update(solver: Any, samples: int, expected: int) -> None:
    assert steps_of(solver, samples) == expected


# --- FedOpt -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("second", "expected", "v"), [
    ("adam", 0.5 / (0.4375**0.5 + 0.5), 0.4375),        # m = 0.5; v = 0.75 * 0.25 + 0.25
    ("yogi", 0.5 / (0.5**0.5 + 0.5), 0.5),              # v = 0.25 - 0.25 * 1 * sign(0.25 - 1)
    ("adagrad", 0.5 / (1.25**0.5 + 0.5), 1.25)])        # v = 0.25 + 1
def test_the_first_step_of_fedopt_is_the_one_worked_out_by_hand(second: Any, expected: float, v: float) -> None:
    """Updates 3 of one sample and 1/3 of three: their mean is 1. tau = 1/2, so v is 1/4 at first."""
    p = fedadam.Params(second=second, rate=1.0, beta1=0.5, beta2=0.75, tau=0.5)
    updates = {1: Update(vector(3), 1), 2: Update(vector(1 / 3), 3)}
    x, moments = fedadam.moved(vector(0), updates, None, p)
    assert x[0] == pytest.approx(expected, rel=1e-6)
    assert moments is not None
    assert [moments[0][0], moments[1][0]] == pytest.approx([0.5, v], rel=1e-6)
    again, after = fedadam.moved(x, {}, moments, p)
    assert (again is x, after is moments) == (True, True)


def test_variants_of_fedopt_are_told_apart() -> None:
    assert {name: (find(name).params().second, find(name).params().beta1) for name in
            ("fedadam", "fedyogi", "fedadagrad")} == {"fedadam": ("adam", 0.9), "fedyogi": ("yogi", 0.9),
                                                      "fedadagrad": ("adagrad", 0.0)}


# --- what is refused --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("scheme", ["{name: fedadagrad, beta2: 0.9}", "{name: fedadam, second: adagrad, beta2: 0.9}"])
def test_a_weight_that_adagrad_does_not_have_is_refused(scheme: str) -> None:
    with pytest.raises(ScenarioError, match=r"beta2 = 0\.9 +adagrad has no such weight"):
        loads(find("fedadam").example, sets=[f"schemes=[{scheme}]"])


@pytest.mark.parametrize(("scheme", "solver", "said"), [
    ("scaffold", "{adam: {lr: 0.1, steps: 1}}", "task.solver = adam +scaffold needs sgd, whose steps"),
    ("fednova", "{adam: {lr: 0.1, steps: 1}}", "task.solver = adam +fednova needs sgd, whose steps"),
    ("scaffold", "{sgd: {lr: 0.1, steps: 1, momentum: 0.9}}", "scaffold needs steps without momentum")])
def test_solvers_for_which_equations_do_not_hold_are_refused(scheme: str, solver: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(find(scheme).example, sets=[f"task.solver={solver}"])
