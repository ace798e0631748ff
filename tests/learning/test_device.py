"""Training on a GPU is training on a CPU but for rounding; what needs one is skipped without."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from emul.learning import Task, prototypes
from emul.learning.data import DataSet
from emul.learning.device import Device, DeviceError
from emul.learning.dropout import Dropout
from emul.learning.fused import train_fused
from emul.learning.local import LocalTraining, train_alone
from emul.learning.objectives import CosineAlignment, CrossEntropy, PrototypePull, Proximal
from emul.learning.parameters import FlatModule, ParameterError
from emul.learning.pooling import Pooling
from emul.learning.solver import Sgd
from emul.learning.training import Samples, Stream

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")
RTOL, ATOL = 1e-3, 1e-4                 # another library's kernels, no TF32, some ten steps


def task(device: str, model: str = "digits_classic", **solver: Any) -> Task:
    return Task({"data": {"set": "digits"}, "partition": {"dirichlet": 0.5}, "model": model,
                 "solver": {"sgd": {"lr": 0.1, "steps": 6, "batch": 10} | solver}}, 5, 1, device)


@pytest.mark.parametrize("name", ["cuda:99", "mps"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    expected = rf'^device "{name}": expected cpu, or a GPU that torch can use: it finds \d+$'
    with pytest.raises(DeviceError, match=expected):
        task(name).device  # noqa: B018


def test_on_a_cpu_nothing_is_copied_or_counted() -> None:
    device, array = Device(), np.arange(3, dtype=np.float32)
    tensor = device.put(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert device.fetch(tensor) is tensor
    state = torch.get_rng_state()
    with device.timed(), device.seeded(1):
        pass
    assert device.busy_ns == 0
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("name", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_a_gpu_is_chosen_by_its_number_and_the_first_without_one(name: str, index: int,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_setDevice", chosen.append, raising=False)
    monkeypatch.setattr(torch.cuda, "Stream", lambda kind: kind)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: chosen.append(stream.index))
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)   # put back after the test, as
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)                       # all that a device sets
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert Device(name).kind == torch.device("cuda", index)
    assert chosen == [index, index]


class Elsewhere(Device):
    """Takes the ways of a GPU; its memory is the CPU's, or none at all ("meta", where nothing is computed)."""

    on_cpu = False                                          # type: ignore[assignment]

    def __init__(self, name: str = "cpu"):
        self.vectors = 0
        super().__init__(name)

    def _begin(self, name: str) -> None:
        pass

    def put(self, array: np.ndarray) -> torch.Tensor:
        self.vectors += array.shape == (6480,)              # the parameters of digits_classic
        return torch.tensor(array, device=self.kind)

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        assert tensor.device == self.kind
        return torch.zeros(tensor.shape, dtype=tensor.dtype) if self.kind.type == "meta" else tensor.clone()

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        self.busy_ns += 1
        yield

    @contextlib.contextmanager
    def seeded(self, key: int) -> Iterator[None]:
        yield


def moved(where: Device, model: str, **solver: Any) -> Task:
    there = task("cpu", model, **solver)
    there.__dict__["device"] = where
    return there


@pytest.mark.parametrize("model", ["digits_cnn", "digits_classic", "resnet20_bn"])
def test_what_goes_to_another_memory_and_comes_back_is_the_same(model: str) -> None:
    # Six steps through batch normalisation can make a difference of a tenth from one of a last bit.
    solver = {"momentum": 0.5} | ({"steps": 2} if model == "resnet20_bn" else {})
    here, there = task("cpu", model, **solver), moved(Elsewhere(), model, **solver)
    w, samples = here.initial_parameters(), here.for_node("a", 1, lambda: 1)._samples()
    inputs = here.data.inputs(here.data.train_x[samples.indices])
    np.testing.assert_allclose(there.device.inputs(here.data, samples.indices), inputs, 1e-6)
    for work in (lambda node: node.local_update(w)[0], lambda node: node.gradient(w)[0],
                 lambda node: np.array(list(node.evaluate(w).values()))):
        ours, theirs = (t.for_node("a", 1, lambda: 1) for t in (there, here))
        np.testing.assert_allclose(work(ours), work(theirs), 1e-4, 1e-5)
    assert there.device.busy_ns == 2, "evaluating is off the clock"


def test_what_batch_normalisation_reads_on_a_gpu_begins_at_16_bytes() -> None:
    """Else its kernels end with "misaligned address", and the process can use the GPU no more."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8))
    there = FlatModule(copy.deepcopy(net), Elsewhere())
    here = FlatModule(net)
    assert any(buffer.storage_offset() % 4 for buffer in here.module.buffers()), "step counters shift the others"
    for tensor in (*there.module.parameters(), *there.module.buffers()):
        assert tensor.storage_offset() % 4 == 0
    values = np.arange(here.dimension, dtype=np.float32)
    there.load(values)
    np.testing.assert_array_equal(there.read(), values)
    assert there.module.state_dict()["3.running_var"].tolist() == values[-9:-1].tolist()
    with pytest.raises(ParameterError, match=r"^1\.weight: on a GPU, expected .* multiple of 4 numbers"):
        FlatModule(nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)), Elsewhere())


def test_a_model_that_many_nodes_have_got_goes_to_the_device_once() -> None:
    where = Elsewhere()
    there = moved(where, "digits_classic")
    w = np.array(there.initial_parameters())
    samples = [there.for_node(f"client{i + 1}", i, lambda: 1)._samples() for i in range(3)]
    locals_ = [LocalTraining(w, own, there.solver, Stream(1, "a", 1, 0)) for own in samples]
    for local in locals_:
        train_alone(there._model, local)
    train_fused(there._model, locals_)
    assert where.vectors == 1
    w[0] += 1                                               # in place: the same memory, other values
    there._model.load(w)
    assert there._model.read()[0] == w[0]
    assert where.vectors == 2


def test_every_tensor_of_a_training_is_on_its_device() -> None:
    there, nn = moved(Elsewhere("meta"), "digits_classic"), torch.nn
    there.__dict__["data"] = replace(there.data, mean=(0.5,), std=(0.3,))
    module = nn.Sequential(nn.Conv2d(1, 5, 3), nn.Dropout2d(0.5), nn.Flatten(), Dropout(0.2), nn.Linear(180, 50),
                           nn.Dropout(0.1), nn.Linear(50, 10))
    module.features, module.features_at = 50, 5             # type: ignore[assignment]
    model = there.__dict__["_model"] = FlatModule(module, there.device)
    node, w = there.for_node("a", 1, lambda: 1), np.zeros(model.dimension, np.float32)
    samples = node._samples()
    pool, means = Pooling("soft", 5, 10, 3, 1), {2: np.zeros(24, np.float32)}
    pulls = [PrototypePull.to(means, 10, 0.5, kind, pool) for kind in ("l2_mean", "mse")]   # type: ignore[arg-type]
    aligned = CosineAlignment.to({2: np.ones(50, np.float32)}, 10)
    for more in ({}, {"only": np.ones_like(w)}, *({"objective": CrossEntropy() + term} for term in (
            Proximal(0.5), aligned, *pulls))):
        local = LocalTraining(w, samples, there.solver, Stream(1, "a", 1, 0), **more)       # type: ignore[arg-type]
        train_alone(model, local)
        assert [len(after) for after in train_fused(model, [local, local])] == [len(w)] * 2
    assert len(node.gradient(w)[0]) == len(w)
    assert prototypes.of_samples(model, samples, pool)[1].keys() == set(node.own_classes())


@needs_gpu
@pytest.mark.parametrize("model", ["digits_cnn", "digits_classic", "digits_mlp", "resnet20_bn"])
def test_updates_gradients_and_evaluations_on_a_gpu_are_those_on_a_cpu(model: str) -> None:
    cpu, gpu = task("cpu", model, momentum=0.5), task("cuda", model, momentum=0.5)
    w = cpu.initial_parameters()
    for client in range(3):
        ours, theirs = (t.for_node(f"client{client}", client, lambda: 1) for t in (gpu, cpu))
        for work in (lambda node: node.local_update(w)[0], lambda node: node.gradient(w)[0],
                     lambda node: node.minimise(w, node.objective + Proximal(0.5))[0]):
            before = gpu.device.busy_ns
            np.testing.assert_allclose(work(ours), work(theirs), RTOL, ATOL)
            assert gpu.device.busy_ns > before
    a, b = gpu.evaluate(w), cpu.evaluate(w)
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
    assert a["accuracy"] == pytest.approx(b["accuracy"], abs=0.01)
    np.testing.assert_array_equal(gpu.for_node("a", 0, lambda: 1).local_update(w)[0],
                                  gpu.for_node("a", 0, lambda: 1).local_update(w)[0])


@needs_gpu
def test_prototypes_and_parts_on_a_gpu_are_those_on_a_cpu() -> None:
    means = {j: np.full(24, 0.1 * j, np.float32) for j in range(0, 10, 2)}
    found = []
    for device in ("cuda", "cpu"):
        node = task(device).for_node("client1", 0, lambda: 1)
        w = node.initial_parameters()
        pool = Pooling("soft", 5, 10, 3, 1)
        pull = PrototypePull.to(means, 10, 0.5, "l2_mean", pool)
        after, own, counts = node.train_prototypes(w, node.objective + pull, pool)
        found.append((after, np.stack([own[j] for j in sorted(own)]), sorted(counts.items()),
                      node.local_update(w, only="decision")[0]))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, RTOL, ATOL)


@needs_gpu
def test_many_clients_with_torchs_dropout_and_channels_on_a_gpu_are_those_on_a_cpu() -> None:
    nn = torch.nn
    rng = np.random.default_rng(1)
    source = DataSet("made", rng.integers(0, 256, (60, 3, 9, 9), dtype=np.uint8), rng.integers(0, 4, 60),
                     np.zeros((0, 3, 9, 9)), np.zeros(0, int), 4, 255.0, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.4), nn.Flatten(),
                           nn.Dropout(0.3), nn.Linear(72, 4))
    cpu = FlatModule(module)
    before, solver = cpu.read(), Sgd(lr=0.1, epochs=2, batch=5)
    locals_ = [LocalTraining(before, Samples(source, np.arange(n)), solver, Stream(1, f"c{n}", 1, 0))
               for n in (7, 12, 3)]
    expected = []
    for local in locals_:
        train_alone(cpu, local)
        expected.append(cpu.read())
    for ours, theirs in zip(train_fused(FlatModule(module, Device("cuda")), locals_), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, RTOL, ATOL)


@needs_gpu
def test_a_model_that_cannot_be_fused_is_trained_on_a_gpu_and_its_draws_are_keyed() -> None:
    nn = torch.nn
    rng = np.random.default_rng(1)
    source = DataSet("made", rng.random((40, 6), dtype=np.float32), rng.integers(0, 4, 40), np.zeros((0, 6)),
                     np.zeros(0, int), 4)
    model = FlatModule(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4)),
                       Device("cuda"))
    local = LocalTraining(model.read(), Samples(source, np.arange(40)), Sgd(lr=0.1, steps=5, batch=10),
                          Stream(1, "a", 1, 0))
    found = []
    for _ in range(2):
        train_alone(model, local)
        found.append(model.read())
        torch.rand(3, device="cuda")
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0][-1] == 5, "BatchNorm's counter of batches"
