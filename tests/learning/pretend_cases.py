"""What a GPU would refuse, and how often it would be asked for, on a device that is not there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pretend import Pretend, There, counts
from torch import nn

from emul.learning import Task, TaskError
from emul.learning.device import Device, DeviceError
from emul.learning.disguise import BlockScalars, Secrets
from emul.learning.dropout import Dropout
from emul.learning.evaluation import scores
from emul.learning.fused import FuseError, train_fused
from emul.learning.local import LocalTraining, train_alone
from emul.learning.objectives import Batch, CrossEntropy, Objective, Outputs
from emul.learning.parameters import FlatModule
from emul.learning.training import Stream

NEAR = {"rtol": 1e-4, "atol": 1e-5}


def task(model: str = "digits_cnn", device: Device | None = None, **solver: Any) -> Task:
    found = Task({"data": {"set": "digits"}, "partition": {"dirichlet": 0.5}, "model": model,
                  "solver": {"sgd": {"lr": 0.1, "steps": 6, "batch": 10} | solver}}, 5, 1)
    if device is not None:
        found.__dict__["device"] = device
    return found


def locals_of(of: Task, clients: int = 3, **more: Any) -> list[LocalTraining]:
    w = of.initial_parameters()
    own = {i: of.for_node(f"client{i}", i, lambda: 1)._samples() for i in range(clients)}
    return [LocalTraining(w, samples, of.solver, Stream(1, f"client{i}", 1, 0), **more) for i, samples in own.items()]


# --- the device itself ----------------------------------------------------------------------------------------------

def test_the_device_refuses_what_a_gpu_refuses_and_counts_what_it_is_slow_at(pretend: Pretend) -> None:
    a = pretend.put(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert (a.device.type, type(a), counts.to) == ("pretend", There, 1)
    with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
        a + torch.ones(2, 3)
    assert (a + torch.tensor(1.0)).sum().item() == 21, "a CPU's scalar goes along"
    assert (counts.to, counts.back, counts.waits) == (1, 0, 1)
    np.testing.assert_array_equal(pretend.fetch(a * 2).numpy(), 2 * np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(a[torch.tensor([1])].cpu().numpy(), [[3, 4, 5]])
    assert (counts.to, counts.back) == (2, 2)
    with pytest.raises(RuntimeError, match="depends on what was drawn there before"):
        a.bernoulli_(0.5)


def test_the_device_has_as_much_memory_as_it_was_given(pretend: Pretend) -> None:
    before = counts.held
    a = pretend.put(np.zeros(1000, np.float32))
    views = a.view(10, 100), a[:3]
    assert counts.held == before + 4000, "views hold nothing of their own"
    counts.room = before + 8000
    with pytest.raises(torch.OutOfMemoryError):
        torch.cat([a, a])
    del a
    assert counts.held == before + 4000
    del views
    assert counts.held == before
    a, b = pretend.put(np.zeros(1000, np.float32)), pretend.put(np.zeros(500, np.float32))
    a.data = b
    assert counts.held == before + 2000, "the memory that was a's is free"


# --- training -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["digits_cnn", "digits_classic", "digits_mlp"])
def test_training_there_is_training_here(pretend: Pretend, model: str) -> None:
    here, there = task(model, momentum=0.5), task(model, pretend, momentum=0.5)
    expected = [train_alone(here._model, local) for local in locals_of(here)]
    for found in ([train_alone(there._model, local) for local in locals_of(there)],
                  train_fused(there._model, locals_of(there))):
        np.testing.assert_allclose(found, expected, **NEAR)


@pytest.mark.parametrize("model", ["digits_cnn", "digits_mlp"])
def test_a_step_of_many_clients_copies_nothing_to_the_device(pretend: Pretend, model: str) -> None:
    asked = {}
    for steps in (6, 12):
        there = task(model, pretend, steps=steps)
        train_fused(there._model, locals_of(there))         # the data are there from now on
        counts.clear()
        train_fused(there._model, locals_of(there))
        asked[steps] = counts.to, counts.back, counts.waits
    assert asked[6] == asked[12], "steps cost no copy and no wait"
    assert asked[6] == (3, 1, 0), "rows, labels, shares; the models that came out. The first model was there"


def test_batch_normalisation_there_is_that_here_and_its_steps_copy_nothing(pretend: Pretend) -> None:
    found, asked = [], set()
    for device, steps in ((Device(), 6), (pretend, 6), (pretend, 12)):
        there = task(device=device, steps=steps)
        torch.manual_seed(1)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3),
                            nn.BatchNorm2d(4, momentum=None), nn.Flatten(), nn.Linear(64, 10))
        model = FlatModule(net, device)
        trainings = [replace(local, before=model.read(),
                             samples=replace(local.samples, indices=local.samples.indices[:n]))
                     for local, n in zip(locals_of(there), (8, 3, 9), strict=True)]
        train_fused(model, trainings)
        counts.clear()
        found.append(train_fused(model, trainings))
        asked |= {(counts.to, counts.back, counts.waits)} if device is pretend else set()
    np.testing.assert_allclose(found[1], found[0], **NEAR)
    assert len(asked) == 1


def test_a_net_with_torchs_dropout_that_is_trained_alone_has_other_masks_there(pretend: Pretend) -> None:
    near = {}
    for kind in (nn.Dropout, Dropout):
        found = []
        for device in (Device(), pretend):
            there = task("digits_mlp", device)
            torch.manual_seed(1)
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), kind(0.5), nn.Linear(16, 10))
            model = there.__dict__["_model"] = FlatModule(net, device)
            local, = locals_of(there, 1)
            found.append(train_alone(model, replace(local, before=model.read())))
        near[kind] = np.allclose(*found, **NEAR)
    assert near == {nn.Dropout: False, Dropout: True}


def test_the_time_of_the_device_is_charged_to_those_who_trained_as_one(pretend: Pretend) -> None:
    pretend.block_ns = 4 * 10**12                           # above what a CPU takes
    there = task(device=pretend)
    nodes = [there.for_node(f"client{i}", i, lambda: 1) for i in range(4)]
    spent = there.together.run([lambda node=node: node.local_update(there.initial_parameters())      # type: ignore
                                for node in nodes])
    assert spent == [10**12] * 4


# --- evaluation -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Doubled(Objective):
    """How far the outputs of an input and of its double are apart: needs a second pass."""

    alone: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, batch: Batch, weights: torch.Tensor) -> torch.Tensor:
        assert outputs.forward is not None
        again = outputs.forward(2 * batch.x)
        assert again.forward is not None
        return (again.forward(batch.x).logits - again.logits).square().mean(-1)


def test_an_objective_of_several_passes_is_evaluated_there_as_here(pretend: Pretend) -> None:
    found = []
    for device in (Device(), pretend):
        there = task(device=device)
        node = there.for_node("client1", 0, lambda: 1)
        found.append([*node.loss(there.initial_parameters(), each=True, objective=Doubled()),
                      *there.evaluate(there.initial_parameters()).values()])
    np.testing.assert_allclose(found[1], found[0], **NEAR)


class Noisy(nn.Module):
    """Draws even when it is evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(x.flatten(1))
        return outputs + torch.rand_like(outputs)


def test_what_an_evaluation_draws_there_is_keyed(pretend: Pretend) -> None:
    there = task("digits_mlp", pretend)
    model = FlatModule(Noisy(), pretend)
    w = model.read()
    first = scores(model, w, there.data).overall()
    with pretend.seeded(7):
        torch.rand(3, device=pretend.kind)
        assert scores(model, w, there.data).overall() == first


# --- disguise, failures ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("norm", [False, True])
def test_disguised_gradients_there_are_those_here(pretend: Pretend, norm: bool) -> None:
    found = []
    for device in (Device(), pretend):
        there = task("digits_mlp", device)
        torch.manual_seed(1)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), *[nn.BatchNorm1d(16)] * norm, nn.ReLU(), nn.Linear(16, 10))
        model = there.__dict__["_model"] = FlatModule(net, device)
        node, rng = there.for_node("client1", 0, lambda: 1), np.random.default_rng(1)
        hiding = node.disguise()
        secrets = Secrets(*(tuple(rng.uniform(0.5, 2, n) for n in widths)
                            for widths in (hiding.row_widths, hiding.column_widths)), rng.normal(size=10))
        hidden = hiding.disguised(model.read(), secrets)
        for each in (False, True)[:1 + (not norm)]:
            scalars = BlockScalars(None, 10, additive=not each)
            forward = hiding.forward(hiding.transitions(secrets))
            found.append(node.gradients(hidden, scalars, forward=forward, each=each)[0])
    half = len(found) // 2
    for ours, theirs in zip(found[half:], found[:half], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@dataclass(frozen=True, eq=False)
class Failing(CrossEntropy):
    """Finds no memory, or a device that fails."""

    stacks: ClassVar[bool] = False
    with_: Any = None

    def at_logits(self, logits: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> None:
        return None

    def total(self, outputs: Outputs, batch: Batch, weights: torch.Tensor) -> torch.Tensor:
        raise self.with_("tried to allocate 20 GiB")


@pytest.mark.parametrize("failure", [torch.OutOfMemoryError, torch.AcceleratorError, MemoryError])
def test_no_memory_is_not_taken_for_an_objective_that_cannot_be_mapped(failure: type[Exception]) -> None:
    here = task("digits_mlp")
    with pytest.raises(failure, match="tried to allocate"):
        train_fused(here._model, locals_of(here, objective=Failing(with_=failure)))
    with pytest.raises(FuseError, match="cannot be mapped over clients: tried to allocate"):
        train_fused(here._model, locals_of(here, objective=Failing(with_=ValueError)))


# --- memory ---------------------------------------------------------------------------------------------------------

def test_groups_that_meet_no_memory_are_halved_and_learn_the_same(pretend: Pretend) -> None:
    there = task("digits_mlp", pretend)
    asked = locals_of(there, 5)
    expected = there._train_fused(asked)
    before, most = counts.settled(), {}
    for clients in (2, 3):
        counts.most = 0
        there._train_fused(asked[:clients])
        most[clients] = counts.most
        counts.settled()
    counts.room = most[2] + (most[3] - most[2]) // 5        # two fit, and no more
    found = there._train_fused(asked)
    counts.room = None
    assert (there.fitting.most, there.fitting.halved) == (2, 1)
    assert counts.settled() <= before, "nothing of the group that failed is held"
    np.testing.assert_allclose(found, expected, **NEAR)
    for ours, theirs in zip(found, [one for i in (0, 2, 4) for one in there._train_fused(asked[i:i + 2])], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_client_that_meets_no_memory_is_an_error(pretend: Pretend) -> None:
    there = task("digits_mlp", pretend)
    asked = locals_of(there, 2)
    there._train_fused(asked)
    counts.room = counts.held + 10
    with pytest.raises(DeviceError, match=r"^pretend:0: no memory for the training of one client: pretend out of"):
        there._train_fused(asked)


@pytest.mark.parametrize("model", ["digits_mlp", "digits_cnn"])
def test_groups_are_planned_from_what_is_free_and_a_measured_step(pretend: Pretend, model: str) -> None:
    there = task(model, pretend)
    there.prepare()
    assert there.fitting.most == 0, "no limit is known"
    asked = locals_of(there, 5)
    there._train_fused(asked[:1])                           # the data are there
    before, taken = counts.settled(), {}
    for clients in (2, 3):
        counts.most = 0
        there._train_fused(asked[:clients])
        taken[clients] = counts.most - before
        counts.settled()
    pretend.bytes = taken[2] + (taken[3] - taken[2]) // 2   # for two, and not for three
    counts.room = before + pretend.bytes
    there.prepare()
    counts.settled()
    there._train_fused(asked)
    assert (there.fitting.most, there.fitting.halved) == (2, 0), "nothing has met no memory"
    pretend.bytes = 1000
    with pytest.raises(TaskError, match=rf'^model "{model}": a step of one client takes \d+ MiB and more, expected at '
                                        "most 0 MiB, which pretend:0 has for it$"):
        there.prepare()
