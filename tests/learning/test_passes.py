"""What observers of a training ask of a node's task: its samples, what feeds the last layer, another pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from emul.learning import TaskError, functional, objectives
from emul.learning.parameters import FlatModule
from emul.learning.task import Task
from emul.protocols.mp_dp import algebra


def task(model: str = "digits_mlp", solver: str = "sgd", **options: object) -> Task:
    return Task({"data": {"set": "digits"}, "partition": "iid", "model": model,
                 "solver": {solver: {"lr": 0.1, **options}}}, 4, 1)


@pytest.mark.parametrize("options", [{"steps": 3, "batch": 4}, {"epochs": 2, "batch": 100}, {"steps": 1}])
def test_a_planned_training_is_the_one_that_is_then_done(options: dict[str, int]) -> None:
    made = task(**options)
    batch, plan = made.for_node("a", 0, lambda: 3).planned()
    w = made.initial_parameters().astype(np.float64)
    for step in plan:
        w = torch.from_numpy(np.array(w)).requires_grad_()
        outputs = made.for_node("a", 0, lambda: 3).forward(w, batch.x[step].to(torch.float64), training=True)
        g, = torch.autograd.grad(torch.nn.functional.cross_entropy(outputs.logits, batch.y[step]), w)
        w = (w - 0.1 * g).detach().numpy()
    delta, _ = made.for_node("a", 0, lambda: 3).local_update(made.initial_parameters())
    np.testing.assert_allclose(w - made.initial_parameters(), delta, atol=1e-6)


def test_what_feeds_the_last_layer_is_that_of_a_model_that_is_cut_and_of_one_that_is_not() -> None:
    for model in ("digits_classic", "digits_mlp"):
        made = task(model, steps=1)
        node, w, x = made.for_node("a", 0, lambda: 0), made.initial_parameters(), made.examples(3).x
        found = node.penultimate(w, x)
        last = made._model.module[-1]
        with torch.no_grad():
            made._model.load(w)
            np.testing.assert_allclose(last(found).numpy(), node.forward(w, x).logits.detach().numpy(), atol=1e-6)
        assert found.shape == (3, 50)


def test_a_model_without_a_linear_layer_has_no_such_features(monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(steps=1)
    monkeypatch.setattr(functional, "penultimate", lambda *_: None)
    with pytest.raises(TaskError, match="expected one with a linear layer"):
        made.for_node("a", 0, lambda: 0).penultimate(made.initial_parameters(), made.examples(1).x)


def test_only_models_with_layers_that_draw_are_said_to() -> None:
    assert not task("digits_residual", steps=1).for_node("a", 0, lambda: 0).drops
    assert not task("digits_mlp", steps=1).for_node("a", 0, lambda: 0).drops


def test_who_knows_the_secrets_has_the_model_and_another_pass_has_its_outputs() -> None:
    made = task("digits_residual", steps=1)
    node, w = made.for_node("a", 0, lambda: 0), made.initial_parameters().astype(np.float64)
    secrets = algebra.drawn(made.disguise, algebra.SecretsLaw("chi3", 1.5, "full", 1, 1.0),
                            np.random.default_rng(1)).secrets
    hidden = made.disguise.disguised(w, secrets)
    np.testing.assert_allclose(made.disguise.undisguised(hidden, secrets), w, atol=1e-12)
    x = made.examples(4).x.to(torch.float64)
    given = node.forward(hidden, x, through=made.disguise.forward(made.disguise.transitions(secrets)))
    alpha = given.features.sum(1)[:, None]
    np.testing.assert_allclose((given.logits - alpha * torch.from_numpy(secrets.output)).detach().numpy(),
                               node.forward(w, x).logits.detach().numpy(), atol=1e-10)


class TwoNames(torch.nn.Module):
    """Its layer has two names; `tied`: and another layer its weights."""

    def __init__(self, tied: bool):
        super().__init__()
        self.body, self.tail = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.head = self.body
        if tied:
            self.tail.weight = self.body.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tail(torch.tanh(self.body(x)))


@pytest.mark.parametrize("tied", [False, True])
def test_a_layer_with_two_names_and_weights_that_are_tied_have_their_gradient_and_stay_as_they_are(tied: bool) -> None:
    model = FlatModule(TwoNames(tied))
    w, x, y = model.vector.clone(), torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    total = functional.Total(objectives.make("cross_entropy"))
    found = [functional.gradients(model, w, objectives.Batch(x, y), total)[0] for _ in range(2)]
    torch.nn.functional.cross_entropy(model.module(x), y).backward()
    for g in found:
        torch.testing.assert_close(g, model.gradient)
