"""MP-DP in both directions: inputs from clear blocks, not from masked and sound messages; r at a client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from emul import engine
from emul.attacks.privacy.clear_blocks import (
    BlocksUndetermined,
    estimated_direction,
    input_of_one,
    residual,
    span_of_inputs,
    unmasked_outputs,
)
from emul.attacks.privacy.client_membership import Candidates, attack_model, by_network, halves
from emul.learning import functional
from emul.learning.task import Task
from emul.protocols.mp_dp import algebra
from emul.protocols.pairwise import server as ring_hub
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.schemes.mp_dp import server_role as hub
from emul.workers.twin import Twin

HIDDEN, INPUTS, CLASSES = 50, 64, 10
FIRST, BIASES = slice(0, HIDDEN * INPUTS), slice(HIDDEN * INPUTS, HIDDEN * (INPUTS + 1))
LAST = slice(BIASES.stop, BIASES.stop + CLASSES * HIDDEN)
TASK = {"data": {"set": "digits"}, "partition": "iid", "model": "digits_mlp",
        "solver": {"sgd": {"lr": 0.1, "steps": 1, "batch": 8}}}


def seen(preset: str, batch: int) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], np.ndarray]:
    """({client: what it sent}, {client: the inputs of its batch (b, 64)}, inputs of samples of nobody)."""
    scenario = loads(f"""
emul: 1
name: leak
seed: 3
topology: {{generator: star, clients: 4}}
task: {{data: {{set: digits}}, partition: iid, model: digits_mlp,
       solver: {{sgd: {{lr: 0.1, steps: 1, batch: {batch}}}}}}}
compute: {{mode: zero}}
schemes: [{{name: mp_dp, preset: {preset}, eps: 3}}]
stop: {{rounds: 1}}
""", "t", check=True)
    (name, raw), = scenario.schemes
    wiring = engine.wire(scenario, name, raw)
    sent: dict[int, np.ndarray] = {}
    inputs: dict[int, np.ndarray] = {}
    real, ring, blocks = hub.summed, ring_hub.unmasked_sum, algebra.blocks

    async def reals(node: Any, s: Any, got: Any, *rest: Any) -> Any:
        sent.update({k: message.values for k, message in got.items()})
        return await real(node, s, got, *rest)

    def words(masked: Any, *rest: Any) -> Any:
        sent.update({k: message.y for k, message in masked.items()})
        return ring(masked, *rest)

    def batches(task: Any, *rest: Any, **how: Any) -> Any:
        drawn = functional.gradients

        def noted(model: Any, vector: Any, of: Any, *more: Any) -> Any:
            inputs[task._client + 1] = of.x.reshape(len(of.y), -1).numpy().astype(np.float64)
            return drawn(model, vector, of, *more)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(functional, "gradients", noted)
            return blocks(task, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "summed", reals)
        patch.setattr(ring_hub, "unmasked_sum", words)
        patch.setattr(algebra, "blocks", batches)
        engine.execute(wiring, Twin(), MemoryJournal(engine.header(wiring)))
    task = Task(scenario.task, 4, 3)
    others = task.data.inputs(task.data.test_x[:50]).reshape(50, -1)
    return sent, inputs, np.asarray(others, np.float64)


def test_check_12_the_input_of_a_batch_of_one_is_in_the_clear_blocks() -> None:
    sent, inputs, _ = seen("paper", 1)
    for k, values in sent.items():
        found = values.reshape(CLASSES + 2, -1)
        phi = found[-1]
        x = input_of_one(phi[FIRST].reshape(HIDDEN, INPUTS), phi[BIASES])
        assert np.abs(x - inputs[k][0]).max() < 1e-10
        noisy = found[0]                                                    # ghat has its noise, the others none
        assert np.abs(input_of_one(noisy[FIRST].reshape(HIDDEN, INPUTS), noisy[BIASES]) - inputs[k][0]).max() > 0.1
        rows = [found[c + 1][LAST].reshape(CLASSES, HIDDEN)[c] for c in (2, 3)]         # alpha h^, both
        np.testing.assert_allclose(rows[0], rows[1], rtol=1e-9)


def test_check_12_clear_blocks_of_a_batch_of_8_span_its_inputs() -> None:
    sent, inputs, others = seen("paper", 8)
    for k, values in sent.items():
        clear = values.reshape(CLASSES + 2, -1)[1:, FIRST].reshape(-1, HIDDEN, INPUTS)
        basis = span_of_inputs(clear)
        assert len(basis) == 8
        assert max(residual(x, basis) for x in inputs[k]) < 1e-10
        assert min(residual(x, basis) for x in others) > 0.05


@pytest.mark.parametrize(("preset", "blocks"), [("masked", CLASSES + 2), ("sound", 1)])
def test_check_12_words_of_the_ring_are_uniform_and_span_nothing(preset: str, blocks: int) -> None:
    sent, inputs, others = seen(preset, 8)
    for k, y in sent.items():
        counts = np.bincount(y.view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert chi2.sf(((counts - expected)**2 / expected).sum(), 255) > 1e-4
        read = y.view(np.int64).reshape(blocks, -1).astype(np.float64) / 2.0**24
        basis = span_of_inputs(read[-1:, FIRST].reshape(-1, HIDDEN, INPUTS))
        assert len(basis) > 40                                              # as many as rows
        members, strangers = ([residual(x, basis) for x in some] for some in (inputs[k], others))
        assert np.mean(members) == pytest.approx(np.mean(strangers), abs=0.15)
        assert min(members) > 0.05


class Overfitted:
    """digits_mlp on few samples, a part of them with wrong labels, by Adam; and its disguise of one round.

    scale: of r; 1 as published, None as it is by default.
    """

    def __init__(self, samples: int, wrong: float, steps: int, scale: float | None, seed: int = 2):
        self.task = Task(TASK, 4, 1)
        model, rng = self.task._model, np.random.default_rng(seed)
        chosen = rng.permutation(len(self.task.data.train_y))[:2 * samples]
        self.x = torch.from_numpy(np.array(self.task.data.inputs(self.task.data.train_x[chosen]), np.float64))
        labels = np.array(self.task.data.train_y[chosen], np.int64)
        flipped = rng.random(2 * samples) < wrong
        labels[flipped] = rng.integers(CLASSES, size=flipped.sum())
        self.targets = np.eye(CLASSES)[labels]
        self.members = samples                              # the first half; the others are strangers
        vector = torch.from_numpy(self.task.initial_parameters(0).astype(np.float64)).requires_grad_()
        optimiser = torch.optim.Adam([vector], lr=0.01)
        target = torch.from_numpy(self.targets[:samples])
        for _ in range(steps):
            optimiser.zero_grad()
            off = functional.forward(model, vector, self.x[:samples]).logits - target
            off.square().sum(1).mean().backward()
            optimiser.step()
        self.parameters = vector.detach().numpy()
        drawn = algebra.drawn(self.task.disguise, algebra.SecretsLaw("chi3", 1.5, "full", 1, scale), rng)
        self.direction = drawn.secrets.output
        hidden = torch.from_numpy(self.task.disguise.disguised(self.parameters, drawn.secrets))
        run = self.task.disguise.forward(self.task.disguise.transitions(drawn.secrets))
        with torch.no_grad():
            found = run(functional.tensors(model, hidden), self.x)
            self.true = functional.forward(model, torch.from_numpy(self.parameters), self.x).logits.numpy()
        self.outputs, self.alpha = found.logits.numpy(), found.features.sum(1).numpy()

    def success(self, outputs: np.ndarray) -> float:
        """Of a membership test by a threshold on the loss, chosen on every second sample and tried on the others."""
        loss = np.square(outputs - self.targets).sum(1)
        member = np.arange(len(loss)) < self.members
        known, other = slice(0, None, 2), slice(1, None, 2)
        at = max(loss[known], key=lambda t: np.mean((loss[known] <= t) == member[known]))
        return float(np.mean((loss[other] <= at) == member[other]))


def test_check_13_a_client_estimates_r_from_60_samples_and_reads_the_model() -> None:
    model = Overfitted(700, wrong=0.0, steps=150, scale=1.0)
    assert model.task.evaluate(model.parameters.astype(np.float32))["accuracy"] > 0.9
    r = estimated_direction(model.outputs[:60], model.targets[:60], model.alpha[:60])
    assert np.linalg.norm(r - model.direction) < 0.05 * np.linalg.norm(model.direction)
    read = unmasked_outputs(model.outputs, model.alpha, r)
    assert (read.argmax(1) == model.true.argmax(1)).mean() > 0.95 > (
        model.outputs.argmax(1) == model.true.argmax(1)).mean()


@pytest.fixture(scope="module")
def by_heart() -> Overfitted:
    """A model that has learnt wrong labels by heart."""
    return Overfitted(400, wrong=0.4, steps=400, scale=1.0)


def test_check_13_membership_succeeds_as_on_the_true_model_once_r_is_estimated(by_heart: Overfitted) -> None:
    """With a threshold on the loss as the attack, on a model that has learnt wrong labels by heart."""
    model = by_heart
    r = estimated_direction(model.outputs[:60], model.targets[:60], model.alpha[:60])
    true, hidden = model.success(model.true), model.success(model.outputs)
    adaptive = model.success(unmasked_outputs(model.outputs, model.alpha, r))
    assert true > 0.8
    assert abs(adaptive - true) < 0.03
    assert hidden < 0.6


@pytest.mark.parametrize("by", ["surrogate", "shadow"])
def test_check_13_an_attack_model_succeeds_as_on_the_true_model_once_r_is_estimated(by_heart: Overfitted,
                                                                                    by: str) -> None:
    """With a surrogate network on [sorted outputs, loss, label], that has learnt from half of the samples, or from a
    shadow model, of other samples of the same kind."""
    model, rng = by_heart, np.random.default_rng(1)
    labels, member = model.targets.argmax(1), np.arange(len(model.targets)) < model.members
    known, other = halves(member, rng)
    shadow = None
    if by == "shadow":
        own = Overfitted(400, wrong=0.4, steps=400, scale=1.0, seed=52)
        shadow = attack_model(Candidates(own.true, own.targets.argmax(1), member), rng, False)

    def asr(outputs: np.ndarray) -> float:
        seen = Candidates(outputs, labels, member)
        network = shadow or attack_model(seen.only(known), np.random.default_rng(1), False)
        return by_network(network, seen if shadow else seen.only(other))["asr"]

    r = estimated_direction(model.outputs[:60], model.targets[:60], model.alpha[:60])
    true = asr(model.true)
    assert true > 0.8
    assert abs(asr(unmasked_outputs(model.outputs, model.alpha, r)) - true) < 0.03
    assert asr(model.outputs) < 0.6


def test_the_default_r_is_too_small_to_hide_members() -> None:
    """What a small r saves in digits it loses in hiding: outputs of the disguised model are nearly the true ones."""
    model = Overfitted(400, wrong=0.4, steps=400, scale=None)
    assert abs(model.success(model.outputs) - model.success(model.true)) < 0.03


def test_what_tells_nothing_is_said() -> None:
    for call in (lambda: input_of_one(np.zeros((2, 3)), np.zeros(2)), lambda: span_of_inputs(np.zeros((2, 3)))):
        with pytest.raises(BlocksUndetermined):
            call()
