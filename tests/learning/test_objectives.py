"""Objectives as values: against their formulas, against autograd, and trained as one against each alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from emul.learning import Task, objectives
from emul.learning.dataset import DataSet
from emul.learning.fused import FuseError, key, train_fused
from emul.learning.local import LocalTraining, train_alone
from emul.learning.objectives import (
    CROSS_ENTROPY,
    Batch,
    CosineAlignment,
    CrossEntropy,
    Objective,
    ObjectiveError,
    Outputs,
    Penalty,
    Proximal,
    SquaredError,
    equal_weights,
)
from emul.learning.parameters import FlatModule
from emul.learning.solver import Sgd
from emul.learning.training import Samples, Stream

SPEC = {"data": {"set": "digits"}, "partition": {"dirichlet": 0.5}, "model": "digits_classic",
        "solver": {"sgd": {"lr": 0.1, "epochs": 1, "batch": 10}}}


def node(model: str = "digits_classic", client: int = 0, **changes: Any) -> Any:
    return Task(SPEC | {"model": model} | changes, 5, 1).for_node(f"client{client + 1}", client, lambda: 1)


def drawn(seed: int, n: int = 6, classes: int = 4) -> tuple[Outputs, Batch]:
    rng = np.random.default_rng(seed)
    logits, features = (torch.from_numpy(rng.normal(size=(n, k)).astype(np.float32)) for k in (classes, 5))
    return Outputs(logits, features), Batch(None, torch.from_numpy(rng.integers(0, classes, n)))


# --- formulas -------------------------------------------------------------------------------------------------------

@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_the_squared_error_of_labels_is_that_of_one_hot_vectors(seed: int) -> None:
    outputs, batch = drawn(seed)
    off = outputs.logits.numpy() - np.eye(4)[batch.y.numpy()]
    weights = equal_weights(batch.y)
    half = SquaredError(0.5, "sum")(outputs, batch, weights)
    np.testing.assert_allclose(half.numpy(), 0.5 * (off**2).sum(1), rtol=1e-5)
    np.testing.assert_allclose(SquaredError()(outputs, batch, weights).numpy(), (off**2).mean(1), rtol=1e-5)


def test_a_regression_compares_numbers_whatever_the_shape_that_the_model_gives() -> None:
    outputs, batch = Outputs(torch.tensor([[1.0], [3.0]])), Batch(None, torch.tensor([0.0, 1.0]))
    assert SquaredError()(outputs, batch, equal_weights(batch.y)).tolist() == [1.0, 4.0]
    assert SquaredError().metrics(outputs, batch) == {}


def test_sequences_are_averaged_over_their_own_targets_and_ignored_ones_count_for_nothing() -> None:
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.normal(size=(2, 3, 4)).astype(np.float32))
    y = torch.tensor([[0, 1, -100], [3, -100, -100]])
    found = CROSS_ENTROPY(Outputs(logits), Batch(None, y), equal_weights(y))
    log = torch.log_softmax(logits, -1)
    expected = [-(log[0, 0, 0] + log[0, 1, 1]) / 2, -log[1, 0, 3]]
    np.testing.assert_allclose(found.numpy(), torch.stack(expected).numpy(), rtol=1e-6)


@given(st.integers(0, 1000), st.integers(0, 3))
@settings(max_examples=20)
def test_cosine_alignment_is_the_mean_over_the_classes_that_are_there(seed: int, absent: int) -> None:
    outputs, batch = drawn(seed)
    assert outputs.features is not None
    means = {j: np.random.default_rng([seed, j]).normal(size=5).astype(np.float32) for j in range(4) if j != absent}
    objective = CosineAlignment.to(means, 4, 0.7)
    objective = objective.bound({k: torch.from_numpy(v) for k, v in objective.arrays().items()})    # type: ignore
    each = []
    for j in sorted(set(batch.y.tolist()) & set(means)):
        c = outputs.features[batch.y == j].mean(0).numpy().astype(np.float64)
        each.append(1 - c @ means[j] / (np.linalg.norm(c) * np.linalg.norm(means[j])))
    expected = 0.7 * np.mean(each) if each else 0.0
    weights = equal_weights(batch.y)
    assert float(objective.total(outputs, batch, weights)) == pytest.approx(expected, abs=1e-5)
    assert float((objective(outputs, batch, weights) * weights).sum()) == pytest.approx(expected, abs=1e-5)


@given(st.integers(0, 1000), st.integers(1, 40))
@settings(max_examples=20)
def test_the_short_way_of_the_cross_entropy_has_the_gradient_of_the_long_one_to_the_bit(seed: int, n: int) -> None:
    outputs, batch = drawn(seed, n)
    found = []
    for total in (CROSS_ENTROPY.of_all, lambda o, b: CROSS_ENTROPY.total(o, b, equal_weights(b.y))):
        logits = outputs.logits.clone().requires_grad_()
        total(Outputs(logits), batch).backward()                        # type: ignore[operator]
        found.append(logits.grad)
    assert torch.equal(found[0], found[1])                              # type: ignore[arg-type]


def test_an_objective_names_itself_and_sums_leave_out_what_is_nothing() -> None:
    assert str(CROSS_ENTROPY + Proximal(0.1) + SquaredError(0.5)) == \
        "cross_entropy + proximal(mu=0.1) + squared_error(factor=0.5)"
    assert CROSS_ENTROPY + Proximal(0.0) is CROSS_ENTROPY
    assert Proximal(0.0) + CROSS_ENTROPY is CROSS_ENTROPY
    assert SquaredError(0.5).settings == SquaredError(0.5).settings != SquaredError(0.5, "sum").settings
    first, second = (CosineAlignment.to({1: np.full(3, v, np.float32)}, 4) for v in (1.0, 2.0))
    assert first.settings == second.settings                            # arrays are a client's own


@pytest.mark.parametrize(("spec", "said"), [
    ("huber", 'unknown objective "huber"; known are cross_entropy, squared_error'),
    ({"squared_error": {"facto": 1}}, "objective squared_error: SquaredError.__init__() got an unexpected keyword "
                                      "argument 'facto'"),
    (["cross_entropy"], "expected one objective such as squared_error or {squared_error: {factor: 0.5}}")])
def test_an_objective_that_is_none_is_said(spec: Any, said: str) -> None:
    with pytest.raises(ObjectiveError, match=f"^{re.escape(said)}$"):
        objectives.make(spec)


# --- as one, and alone ----------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Drift(Penalty):
    """A linear term, as FedDyn has it: <h, w>, h the client's own."""

    h: np.ndarray

    def gradient(self, weights: Tensor, before: Tensor) -> Tensor:
        return torch.as_tensor(self.h) + 0 * weights


@dataclass(frozen=True, eq=False)
class Focal(Objective):
    """A loss of a user, of labels and logits. Lin et al. 2017."""

    gamma: float = 2.0

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        each = F.cross_entropy(outputs.logits, batch.y, reduction="none")
        return (1 - torch.exp(-each)) ** self.gamma * each


@dataclass(frozen=True, eq=False)
class Steady(Objective):
    """Needs a second forward pass: outputs should not depend on a little noise."""

    alone: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        assert outputs.forward is not None
        return ((outputs.forward(batch.x + 0.1).logits - outputs.logits) ** 2).sum(1)


@dataclass(frozen=True, eq=False)
class Branching(Objective):
    """Looks at values, which cannot be mapped over clients."""

    def __call__(self, outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        each = F.cross_entropy(outputs.logits, batch.y, reduction="none")
        return 2 * each if bool(each.max() > 1) else each


@pytest.mark.parametrize("kind", ["focal", "squared", "drift", "both"])
def test_clients_of_a_users_objective_learn_as_one_what_each_learns_alone(kind: str) -> None:
    rng = np.random.default_rng(3)
    source = DataSet("made", rng.normal(size=(60, 6)).astype(np.float32), rng.integers(0, 4, 60),
                     np.zeros((0, 6), np.float32), np.zeros(0, int), 4)
    model = FlatModule(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)))
    before = rng.normal(0, 0.3, model.dimension).astype(np.float32)

    def objective() -> Objective:
        drift = Drift(rng.normal(size=model.trained).astype(np.float32))
        return {"focal": Focal(), "squared": SquaredError(0.5, "sum"), "drift": CROSS_ENTROPY + drift,
                "both": Focal(1.0) + drift + Proximal(0.3)}[kind]

    locals_ = [LocalTraining(before, Samples(source, rng.choice(60, n)), Sgd(lr=0.1, epochs=2, batch=4),
                             Stream(1, f"c{n}", 1, 0), objective()) for n in (3, 9, 6)]
    assert len({key(local) for local in locals_}) == 1
    for local, after in zip(locals_, train_fused(model, locals_), strict=True):
        np.testing.assert_allclose(after, train_alone(model, local), rtol=1e-4, atol=1e-5)
        assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize(("objective", "said"), [
    (Steady(), "objective steady: needs several forward passes"),
    (Branching(), "objective branching: cannot be mapped over clients: ")])
def test_what_cannot_be_mapped_is_trained_alone_and_that_is_said_once(
        objective: Objective, said: str, caplog: pytest.LogCaptureFixture) -> None:
    task = Task(SPEC, 5, 1)
    start = task.initial_parameters()
    expected = [task.for_node(f"client{i}", i, lambda: 1).minimise(start, CROSS_ENTROPY + objective, steps=2)[0]
                for i in range(3)]
    found: dict[int, np.ndarray] = {}

    def piece(i: int) -> None:
        own = task.for_node(f"client{i}", i, lambda: 1)
        found[i] = own.minimise(start, CROSS_ENTROPY + objective, steps=2)[0]
        own.minimise(start, CROSS_ENTROPY + objective, steps=1)

    task.together.run([lambda i=i: piece(i) for i in range(3)])         # type: ignore[misc]
    for i in range(3):
        np.testing.assert_array_equal(found[i], expected[i])
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert said.removeprefix("objective ") in lines[0]


def test_the_error_names_the_objective() -> None:
    model = FlatModule(nn.Linear(6, 4))
    source = DataSet("made", np.zeros((4, 6), np.float32), np.zeros(4, int), np.zeros((0, 6), np.float32),
                     np.zeros(0, int), 4)
    local = LocalTraining(model.read(), Samples(source, np.arange(4)), Sgd(lr=0.1, steps=1), Stream(1, "a", 1, 0),
                          Steady())
    with pytest.raises(FuseError, match=r"^objective steady: needs several forward passes$"):
        train_fused(model, [local])


# --- what a node can ask for ----------------------------------------------------------------------------------------

def test_the_loss_is_the_mean_of_what_each_sample_has_and_moves_no_stream() -> None:
    own = node()
    start = own.initial_parameters()
    each = own.loss(start, each=True)
    assert each.shape == (own.samples(),)
    assert own.loss(start) == pytest.approx(each.mean())
    batch = own._samples().take(np.arange(own.samples()))
    assert own.loss(start) == pytest.approx(
        float(F.cross_entropy(own.forward(start, batch.x).logits, batch.y)), rel=1e-5)
    assert own.loss(start, on="test", each=True).shape == (297,)
    assert own.loss(start, objective=SquaredError()) != own.loss(start)
    np.testing.assert_array_equal(own.local_update(start)[0], node().local_update(start)[0])


def test_features_are_what_the_decision_works_on() -> None:
    own = node()
    start = own.initial_parameters()
    features, labels = own.features(start)
    assert features.shape == (own.samples(), own.feature_size)
    assert sorted(set(labels.tolist())) == own.own_classes()
    batch = own._samples().take(np.arange(own.samples()))
    outputs = own.forward(start, batch.x)
    np.testing.assert_allclose(features, outputs.features.numpy(), rtol=1e-5, atol=1e-5)
    assert own.features(start, on="test")[0].shape == (297, own.feature_size)


@pytest.mark.parametrize("heavy", [False, True], ids=["batched", "one by one"])
@pytest.mark.parametrize("model", ["digits_classic", "logistic", "digits_cnn"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_several_scalars_are_those_of_each_alone(model: str, dtype: Any, heavy: bool,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.learning.functional._HEAVY", 0 if heavy else 1 << 40)
    own = node(model)
    start = own.initial_parameters().astype(dtype)
    batch = own.batch()

    def scalars(outputs: Outputs, batch: Batch, weights: Tensor) -> Tensor:
        d = outputs.logits - F.one_hot(batch.y, 10)
        return torch.cat([(weights @ (0.5 * (d**2).sum(1)))[None], weights @ d])       # S_0, and one a class

    found, samples = own.gradients(start, scalars, batch=batch)
    assert found.shape == (11, own.dimension)
    assert found.dtype == dtype
    assert samples == own.samples()
    for i in range(11):
        w = torch.from_numpy(start).requires_grad_()
        outputs = own.forward(w, batch.x.to(w.dtype), training=True)
        scalars(outputs, batch, equal_weights(batch.y).to(w.dtype))[i].backward()
        assert w.grad is not None
        np.testing.assert_allclose(found[i], w.grad.numpy(), rtol=1e-4, atol=1e-6 if dtype == np.float32 else 1e-12)


def test_the_gradient_of_one_scalar_is_the_gradient() -> None:
    start = node().initial_parameters()
    one, _ = node().gradients(start, lambda outputs, batch, weights: CROSS_ENTROPY.total(outputs, batch, weights)[None])
    np.testing.assert_allclose(one[0], node().gradient(start)[0], rtol=1e-4, atol=1e-6)


def test_gradients_may_go_through_another_forward_pass() -> None:
    own = node("logistic")
    start = own.initial_parameters()

    def doubled(named: Any, x: Tensor) -> Outputs:
        return Outputs(2 * (x.flatten(1) @ named["1.weight"].T + named["1.bias"]))

    batch = own.batch()
    found, _ = own.gradients(start, lambda o, b, w: (w @ o.logits), batch=batch, forward=doubled)
    plain, _ = own.gradients(start, lambda o, b, w: (w @ o.logits), batch=batch)
    np.testing.assert_allclose(found, 2 * plain, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"^scalars: expected a tensor \(S,\), found one of shape \(\)$"):
        own.gradients(start, lambda o, b, w: o.logits.sum())


def test_the_functional_model_is_differentiable_twice_and_changes_nothing() -> None:
    own = node()
    start = own.initial_parameters()
    x = torch.zeros(2, 1, 8, 8, requires_grad=True)
    w = torch.from_numpy(start.copy()).requires_grad_()
    gradient, = torch.autograd.grad(own.forward(w, x).logits.square().sum(), w, create_graph=True)
    gradient.square().sum().backward()
    assert x.grad is not None
    assert bool(x.grad.any())
    np.testing.assert_array_equal(own.initial_parameters(), start)


def test_a_batch_is_the_next_one_of_the_nodes_stream() -> None:
    own, other = node(), node()
    first, second = own.batch(), own.batch()
    assert first.x.shape == (10, 1, 8, 8)
    assert not torch.equal(first.x, second.x)
    assert torch.equal(other.batch().x, first.x)
    start = own.initial_parameters()
    gradient, _ = node().gradient(start)                # of the same batch: the first of the round
    w = torch.from_numpy(start.copy()).requires_grad_()
    F.cross_entropy(own.forward(w, first.x).logits, first.y).backward()
    assert w.grad is not None
    np.testing.assert_allclose(gradient, w.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_task_has_an_objective_of_its_own() -> None:
    assert isinstance(node().objective, CrossEntropy)
    squared = node(objective={"squared_error": {"factor": 0.5, "over": "sum"}})
    assert str(squared.objective) == "squared_error(factor=0.5, over=sum)"
    start = squared.initial_parameters()
    assert not np.array_equal(squared.local_update(start)[0], node().local_update(start)[0])
    assert squared.loss(start) == pytest.approx(node().loss(start, objective=SquaredError(0.5, "sum")))
    assert replace(squared.objective, factor=1.0).settings != squared.objective.settings
