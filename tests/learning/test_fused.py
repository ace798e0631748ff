"""Many trainings as one: equal to each alone, whatever the federation; what cannot be fused says so.

Tolerance: what is summed in another order differs by some units of the last place (6e-8) of sums of up to a few hundred
terms of size 1, a step moves weights by lr times that, and a training has some ten steps: 1e-5 leaves a factor of ten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from emul.learning import Task, models
from emul.learning.data import DataSet
from emul.learning.dropout import Dropout
from emul.learning.fused import FuseError, key, refusal, train_fused
from emul.learning.local import LocalTraining, train_alone
from emul.learning.objectives import CROSS_ENTROPY, CosineAlignment, Objective, PrototypePull, Proximal
from emul.learning.parameters import FlatModule, ParameterError
from emul.learning.pooling import Pooling
from emul.learning.residual import padded_block, projected_block
from emul.learning.solver import Adam, Sgd, Solver
from emul.learning.stack import Hidden, Pass, Stack, Values, probe
from emul.learning.training import Samples, Stream

RTOL, ATOL = 1e-4, 1e-5
SHAPE, CLASSES = (2, 6, 6), 4


class Residual(nn.Module):
    """A module of its own, which normalises each sample and reads a buffer."""

    scale: torch.Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(1, channels), nn.ReLU())
        self.register_buffer("scale", torch.tensor(0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.scale * self.f(x) + x)


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 2), nn.MaxPool2d(2),
                         nn.ReLU(), nn.Flatten(), Dropout(0.3), nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 4))


def unusual() -> nn.Module:
    """Nested; strides, dilation, groups and paddings; overlapping and average pools; torch's own dropouts."""
    front = nn.Sequential(nn.Conv2d(2, 4, 3, 2, "valid", bias=False), nn.Dropout(0.2), nn.Tanh())
    return nn.Sequential(nn.Identity(), nn.Sequential(front, nn.Dropout2d(0.4)), nn.ZeroPad2d(2),
                         nn.Conv2d(4, 6, (3, 2), padding=(1, 0), dilation=2, groups=2), nn.MaxPool2d(3, 2, 1),
                         nn.Dropout2d(0.3), nn.AdaptiveAvgPool2d(1), nn.Flatten(1, 2), nn.Flatten(),
                         nn.Dropout(1.0 / 3), nn.Linear(6, 4, bias=False), nn.Dropout(0.0))


def frozen() -> nn.Module:
    module = nn.Sequential(Dropout(0.1), nn.Flatten(), nn.Linear(72, 9), nn.Sigmoid(), nn.Linear(9, 9), nn.Linear(9, 4))
    module[4].requires_grad_(False)
    module[2].bias.requires_grad_(False)
    return module


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), Residual(3), nn.ReLU(), nn.MaxPool2d(2), Residual(3), nn.Flatten(),
                         nn.LayerNorm(12), Dropout(0.2), nn.Linear(12, 4))


class Whole(nn.Module):
    """No sequence at all, with weights that are used twice and some that are not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(72, 8), nn.Linear(8, 4)
        self.again = nn.Linear(8, 8)
        self.once_more, self.idle = self.again, nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        return self.last(torch.tanh(self.again(torch.tanh(self.once_more(x)))))


def cut() -> nn.Module:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 12), nn.Tanh(),
                           Dropout(0.2), nn.Linear(12, 4))
    module.features, module.features_at, module.convolutions_at = 12, 6, 1      # type: ignore[assignment]
    return module


def normalised() -> nn.Module:
    """Batch normalisation in all its settings, in a sequence and in blocks; of a batch of one sample, too."""
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3, eps=0.1), nn.ReLU(),
                         blurred(padded_block(3, 4, 2, norm=True)), nn.BatchNorm2d(4, 0.2, None, affine=False),
                         blurred(projected_block(4, 5, 1)), nn.BatchNorm2d(5, 0.1, track_running_stats=False),
                         nn.Dropout2d(0.2), nn.Flatten(2), nn.BatchNorm1d(5, 0.1, 0.3), nn.Flatten(), nn.Linear(45, 4))


def blurred(module: nn.Module) -> nn.Module:
    """The module with a large eps wherever it normalises: of few values, a small one makes rounding large."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eps = 0.1
    return module


MODELS = {f.__name__: f for f in (convolutional, unusual, frozen, residual, Whole, cut, normalised)}


def flat(make: Callable[[], nn.Module], seed: int = 1) -> FlatModule:
    model = FlatModule(make())
    model.load(drawn(model, np.random.default_rng(seed)))
    return model


def drawn(model: FlatModule, rng: np.random.Generator) -> np.ndarray:
    """A state of any values; of means over clients, the numbers of batches are not whole."""
    found = rng.normal(0, 0.3, model.dimension).astype(np.float32)
    for t, place in model.slices:
        if not t.is_floating_point():
            found[place] = rng.integers(0, 9) + 0.5
    return found


def data(seed: int = 0, n: int = 60) -> DataSet:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8), rng.integers(0, CLASSES, n)
    x[::3, :, 2:] = 0                                   # even areas, where maxima tie
    return DataSet("made", x, y, x[:0], y[:0], CLASSES, 255.0, (0.5, 0.4), (0.3, 0.2))


def alone(model: FlatModule, local: LocalTraining) -> np.ndarray:
    return train_alone(model, local)


def client(i: int, model: FlatModule, n: int, solver: Solver, source: DataSet | None = None,
           **more: Any) -> LocalTraining:
    rng = np.random.default_rng([i, n])
    before = drawn(model, rng)
    samples = Samples(source or data(), rng.choice(60, n))
    return LocalTraining(before, samples, solver, Stream(3, f"client{i}", 2, i % 3), **more)


SOLVERS = st.one_of(
    st.builds(Sgd, lr=st.sampled_from([0.01, 0.1]), batch=st.sampled_from([None, 1, 3, 5]),
              momentum=st.sampled_from([0.0, 0.9]), weight_decay=st.sampled_from([0.0, 0.1])),
    # a larger eps: Adam's own makes a step of full length of a gradient that is nothing but rounding
    st.builds(Adam, lr=st.just(0.01), batch=st.sampled_from([None, 4]), weight_decay=st.sampled_from([0.0, 0.1]),
              eps=st.just(1e-2)))
LENGTHS = st.sampled_from([{"steps": 0}, {"steps": 1}, {"steps": 5}, {"epochs": 1}, {"epochs": 2}])


KINDS = ("l2_sum", "l2_mean", "mse", "cosine")


def pulled(kind: str, means: dict[int, np.ndarray]) -> Objective:
    if kind == "cosine":
        return CosineAlignment.to({j: np.repeat(mean, 2) for j, mean in means.items()}, CLASSES, 0.3)
    return PrototypePull.to(means, CLASSES, 0.3, kind, Pooling("soft", 3, 4, 2, 1))      # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12)
@given(solver=SOLVERS, clients=st.lists(st.tuples(st.sampled_from([0, 1, 2, 4, 7, 11]), LENGTHS, st.booleans()),
                                        min_size=1, max_size=6),
       proximal=st.sampled_from([0.0, 0.0, 0.5]), part=st.sampled_from([None, None, 0.0, 0.5]),
       kind=st.sampled_from([None, *KINDS]), seed=st.integers(0, 99))
def test_fused_training_is_training_one_by_one(name: str, solver: Solver, clients: list[Any], proximal: float,
                                               part: float | None, kind: str | None, seed: int) -> None:
    model = flat(MODELS[name])
    rng = np.random.default_rng(seed)
    only = None
    if part is not None:                                # whole tensors only, or entries here and there
        cut_at = model.trained // 2
        only = (np.arange(model.trained) < cut_at if part == 0 else rng.random(model.trained) < part).astype(np.float32)
    other = data(1)
    locals_ = []
    for i, (n, length, poisoned) in enumerate(clients):
        means = {j: rng.normal(size=6).astype(np.float32) for j in range(CLASSES + 2) if rng.random() < 0.6 or j == 1}
        objective = CROSS_ENTROPY + Proximal(proximal)
        if kind is not None and name == "cut":
            objective = objective + pulled(kind, means)
        locals_.append(client(i, model, n, replace(solver, **length), other if poisoned else None, only=only,
                              objective=objective))
    found = train_fused(model, locals_)
    for local, after in zip(locals_, found, strict=True):
        np.testing.assert_allclose(after, alone(model, local), RTOL, ATOL)
        assert after.ctypes.data % 64 == 0
        assert after.flags.writeable
    model.load(locals_[0].before)
    again = train_fused(FlatModule(model.module), locals_)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True)), "the same twice"


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 2, 3), (1, 4, 2)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_normalisation_of_many_clients_is_that_of_each_in_double_precision(sizes: tuple[int, ...],
                                                                                 training: bool) -> None:
    """Outputs, gradients and statistics, where rounding hides nothing; of a layer that is not in training, too."""
    torch.manual_seed(1)
    each = [normalised().double() for _ in sizes]
    for own in each:
        own[7].p = 0.0                                                                  # type: ignore[index]
        for part in own.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.train(training)
                for t in (part.running_mean, part.running_var, part.weight, part.bias):
                    if t is not None:
                        t.data.uniform_(0.5, 2)
    named = [dict((*own.named_parameters(), *own.named_buffers())) for own in each]
    stacked = {name: torch.stack([own[name].detach() for own in named]) for name in named[0]}
    trained = [name for name, _ in each[0].named_parameters()]
    for name in trained:
        stacked[name].requires_grad_()
    x, weight = torch.randn(3, 4, *SHAPE).double(), torch.randn(3, 4, CLASSES).double()
    real = torch.arange(4) < torch.tensor(sizes)[:, None]
    x = torch.where(real[:, :, None, None, None], x, x[:, :1]).requires_grad_()         # filled up, as steps are
    share = real / torch.tensor(sizes).double()[:, None]
    stack = Stack(each[0])
    _, found = stack(Hidden.rows(x), Pass(Values((id(named[0][name]), t) for name, t in stacked.items()),
                                          lambda _, shape: torch.ones(shape).double(),
                                          None if len(set(sizes)) == 1 else share, min(sizes)))
    (found * weight * real[:, :, None]).sum().backward()
    for i, (own, size) in enumerate(zip(each, sizes, strict=True)):
        mine = x.detach()[i, :size].clone().requires_grad_()
        expected = own(mine)
        (expected * weight[i, :size]).sum().backward()
        for ours, theirs in ((found[i, :size], expected), (x.grad[i, :size], mine.grad),        # type: ignore[index]
                             *((stacked[name].grad[i], named[i][name].grad) for name in trained),   # type: ignore[index]
                             *((stacked[name][i], t) for name, t in own.named_buffers())):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3)])
def test_a_batch_of_one_value_a_channel_is_refused_as_torch_does(sizes: tuple[int, ...]) -> None:
    model = flat(lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 4), nn.BatchNorm1d(4)))
    asked = [client(i, model, n, Sgd(lr=0.1, steps=1)) for i, n in enumerate(sizes)]
    said = re.escape("Expected more than 1 value per channel when training, got input size torch.Size([1, 4])")
    for train in (lambda: alone(model, asked[0]), lambda: train_fused(model, asked)):
        with pytest.raises(ValueError, match=f"^{said}$"):
            train()


def test_statistics_are_kept_where_no_weight_is_trained() -> None:
    model = flat(normalised)
    asked = [client(i, model, n, Sgd(lr=0.1, epochs=1, batch=4), only=np.zeros(model.trained, np.float32))
             for i, n in enumerate((7, 4))]
    for local, after in zip(asked, train_fused(model, asked), strict=True):
        np.testing.assert_allclose(after, alone(model, local), RTOL, ATOL)
        np.testing.assert_array_equal(after[:model.trained], local.before[:model.trained])
        assert (after[model.trained:] != local.before[model.trained:]).all()


def test_batch_normalisation_goes_with_layers_that_torch_maps() -> None:
    def mixed() -> nn.Module:
        return nn.Sequential(nn.Conv2d(2, 3, 3), Residual(3), nn.BatchNorm2d(3, 0.1), nn.Flatten(), nn.Linear(48, 4))

    model = flat(mixed)
    assert refusal(mixed(), probe(SHAPE)) is None
    asked = [client(i, model, n, Sgd(lr=0.1, steps=3, batch=4)) for i, n in enumerate((7, 4))]
    for local, after in zip(asked, train_fused(model, asked), strict=True):
        np.testing.assert_allclose(after, alone(model, local), RTOL, ATOL)


@pytest.mark.parametrize("name", ["digits_classic", "digits_residual"])
def test_maps_of_one_channel_lie_plane_by_plane_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FlatModule(models.create(name, (1, 8, 8), 10, 7))
    rng = np.random.default_rng(5)
    source = DataSet("made", rng.random((40, 1, 8, 8), dtype=np.float32), rng.integers(0, 10, 40),
                     np.zeros((0, 1, 8, 8)), np.zeros(0, int), 10)
    asked = [LocalTraining(model.read(), Samples(source, rng.choice(40, n)), Sgd(lr=0.05, epochs=1, batch=4),
                           Stream(1, f"c{n}", 1, 0)) for n in (6, 9)]
    monkeypatch.setattr("emul.learning.stack._PLANES", ("cpu",))
    rows = Hidden.rows(torch.rand(2, 3, 1, 8, 8))
    assert rows.as_maps().value.is_contiguous()
    torch.testing.assert_close(rows.as_maps().as_rows().value, rows.value, rtol=0, atol=0)
    assert not Hidden.rows(torch.rand(2, 3, 2, 8, 8)).as_maps().value.is_contiguous()
    for local, after in zip(asked, train_fused(model, asked), strict=True):
        np.testing.assert_allclose(after, alone(model, local), RTOL, ATOL)


@pytest.mark.parametrize(("name", "shape", "lr"), [
    ("digits_cnn", (1, 8, 8), 0.1), ("digits_classic", (1, 8, 8), 0.1), ("digits_mlp", (1, 8, 8), 0.1),
    ("mnist_classic", (1, 28, 28), 0.05), ("mnist_printed", (1, 28, 28), 0.01), ("cinic_cnn", (3, 32, 32), 0.05)])
def test_the_models_that_come_along_are_trained_as_one(name: str, shape: tuple[int, ...], lr: float) -> None:
    model = FlatModule(models.create(name, shape, 10, 7))
    rng = np.random.default_rng(5)
    source = DataSet("made", rng.integers(0, 256, (40, *shape), dtype=np.uint8), rng.integers(0, 10, 40),
                     np.zeros((0, *shape)), np.zeros(0, int), 10, 255.0, 0.5, 0.3)
    before = model.read()
    solver = Sgd(lr=lr, epochs=1, batch=4)
    locals_ = [LocalTraining(before, Samples(source, rng.choice(40, n)), solver, Stream(1, f"c{n}", 1, 0))
               for n in (6, 3, 9)]
    assert refusal(model.module, probe(shape)) is None
    for local, after in zip(locals_, train_fused(model, locals_), strict=True):
        np.testing.assert_allclose(after, alone(model, local), RTOL, ATOL)
        assert np.abs(after - before).max() > 1e-3


def test_the_masks_of_torchs_dropout_are_those_of_large_batches_too() -> None:
    """Such batches have their channels last in memory, and torch draws in the order of the memory."""
    model = flat(lambda: nn.Sequential(nn.Conv2d(1, 2, 3, 2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(450, 2)))
    rng = np.random.default_rng(1)
    source = DataSet("made", rng.random((70, 1, 32, 32), dtype=np.float32), rng.integers(0, 2, 70),
                     np.zeros((0, 1, 32, 32)), np.zeros(0, int), 2)
    locals_ = [LocalTraining(model.read(), Samples(source, np.arange(n)), Sgd(lr=0.1, steps=2, batch=64),
                             Stream(1, "a", n, 0))
               for n in (64, 70, 30)]
    for local, after in zip(locals_, train_fused(model, locals_), strict=True):
        np.testing.assert_allclose(after, alone(model, local), RTOL, ATOL)


@pytest.mark.parametrize("name", ["convolutional", "residual", "cut"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_with_its_client(name: str, bad: float) -> None:
    model = flat(MODELS[name])
    objective = CROSS_ENTROPY + pulled("l2_mean", {0: np.zeros(6, np.float32)}) if name == "cut" else CROSS_ENTROPY
    sound = [client(i, model, n, Sgd(lr=0.1, steps=4, batch=4), objective=objective)
             for i, n in enumerate((7, 7, 5, 11))]
    expected = train_fused(model, sound)
    pixels = data().train_x.astype(np.float32)
    pixels[:, 0, 0, 0] = bad
    spoilt = [replace(sound[1], before=np.full_like(sound[1].before, bad)),
              replace(sound[1], samples=Samples(replace(data(), train_x=pixels), sound[1].samples.indices))]
    for one in spoilt:
        found = train_fused(model, [sound[0], one, *sound[2:]])
        assert not np.isfinite(found[1]).all()
        for i in (0, 2, 3):
            np.testing.assert_array_equal(found[i], expected[i])


def test_samples_that_nobody_has_are_not_looked_at() -> None:
    """Short batches are filled up with samples of the same batch, not with what lies about."""
    model = flat(convolutional)
    source = replace(data(), train_x=data().train_x.astype(np.float32))
    pixels = source.train_x.copy()
    pixels[:20] = np.nan
    spoilt = replace(source, train_x=pixels)

    def asked(own: DataSet) -> list[LocalTraining]:
        return [LocalTraining(model.read(), Samples(own, np.r_[20:20 + n]), Sgd(lr=0.1, steps=3, batch=5),
                              Stream(1, "a", n, 0))
                for n in (7, 1, 12)]

    for a, b in zip(train_fused(model, asked(source)), train_fused(model, asked(spoilt)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()


def test_the_order_of_the_list_and_who_else_is_in_it_change_no_more_than_the_rounding() -> None:
    model = flat(convolutional)
    locals_ = [client(i, model, n, Sgd(lr=0.1, epochs=2, batch=3, momentum=0.5)) for i, n in enumerate((4, 9, 1, 9, 6))]
    found = train_fused(model, locals_)
    for order in ([4, 3, 2, 1, 0], [3, 1], [2]):
        for i, after in zip(order, train_fused(model, [locals_[i] for i in order]), strict=True):
            np.testing.assert_allclose(after, found[i], RTOL, ATOL)


def test_nobody_and_those_without_samples_or_steps_get_what_they_gave() -> None:
    model = flat(convolutional)
    assert train_fused(model, []) == []
    locals_ = [client(0, model, 0, Sgd(lr=1, steps=3)), client(1, model, 5, Sgd(lr=1, epochs=0))]
    for local, after in zip(locals_, train_fused(model, locals_), strict=True):
        np.testing.assert_array_equal(after, local.before)
        assert not np.shares_memory(after, local.before)


def test_torchs_generator_and_what_is_given_stay_as_they_are() -> None:
    model = flat(unusual)
    locals_ = [client(i, model, 5, Sgd(lr=0.1, steps=2, momentum=0.9)) for i in range(3)]
    copies, state, own = [local.before.copy() for local in locals_], torch.get_rng_state(), model.read()
    for local in locals_:
        local.before.flags.writeable = False
    train_fused(model, locals_)
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(model.read(), own)
    assert all(np.array_equal(local.before, copy) for local, copy in zip(locals_, copies, strict=True))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True)])
def test_relu_and_maximum_may_change_places_also_where_values_tie(pool: nn.Module) -> None:
    module = nn.Sequential(nn.ReLU(), pool)
    x = torch.randint(-2, 3, (3, 5, 2, 7, 7), generator=torch.Generator().manual_seed(1)).float().requires_grad_()
    plain = [x.detach()[i].clone().requires_grad_() for i in range(3)]
    _, found = Stack(module)(Hidden.rows(x), Pass(Values(()), lambda *_: torch.ones(()), None, 5))
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    found.backward(weight)
    for i, own in enumerate(plain):
        expected = module(own)
        expected.backward(weight[i])
        assert torch.equal(found[i], expected)
        assert torch.equal(x.grad[i], own.grad)             # type: ignore[index]


# --- refusals -------------------------------------------------------------------------------------------------------

class Own(nn.Module):
    """A linear layer with something about it."""

    count: torch.Tensor

    def __init__(self, forward: Callable[[Any, torch.Tensor], torch.Tensor], inside: nn.Module | None = None):
        super().__init__()
        self.linear, self.then, self.inside = nn.Linear(72, 4), forward, inside
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(self, self.linear(x.flatten(1)))


def counting(own: Own, x: torch.Tensor) -> torch.Tensor:
    own.count = own.count + 1
    return x


def counting_in_place(own: Own, x: torch.Tensor) -> torch.Tensor:
    own.count.add_(1)
    return x


@pytest.mark.parametrize(("module", "why"), [
    (Own(lambda own, x: own.inside(x), nn.BatchNorm1d(4)),
     "layer inside (BatchNorm1d): takes statistics of a batch, or keeps them, and is not BatchNorm1d or BatchNorm2d in "
     "a sequence"),
    (nn.Sequential(padded_block(2, 4, 2, norm=True), nn.SyncBatchNorm(4), nn.Flatten()),
     "layer 1 (SyncBatchNorm): takes statistics of a batch, or keeps them"),
    (nn.Sequential(nn.Conv2d(2, 4, 6), nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True)), nn.Flatten()),
     "layer 1.0 (InstanceNorm2d): takes statistics of a batch, or keeps them"),
    (nn.Sequential(nn.Flatten(), nn.RReLU(), nn.Linear(72, 4)),
     "RReLU: draws at random, and is not Dropout or Dropout2d in a sequence"),
    (Own(lambda own, x: own.inside(x), nn.Dropout(0.5)),
     "Own: draws at random, and is not Dropout or Dropout2d in a sequence"),
    (Own(counting), "its forward pass changes buffers"),
    (Own(counting_in_place), "its forward pass changes buffers"),
    (Own(lambda own, x: x - x.mean(0)), "what it makes of a sample depends on the others of the batch"),
    (Own(lambda own, x: x + torch.rand_like(x)), "its forward pass cannot be mapped over clients: vmap: "),
    (Own(lambda own, x: x if float(x.detach().sum()) > 0 else 2 * x),
     "its forward pass cannot be mapped over clients: "),
])
def test_what_cannot_be_fused_says_why(module: nn.Module, why: str) -> None:
    state = torch.get_rng_state()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert str(refusal(module, probe(SHAPE))).startswith(why)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_models_that_can_be_fused_are_not_refused() -> None:
    for name in ("resnet18", "resnet20_bn"):
        assert refusal(models.create(name, (3, 32, 32), 10, 1), probe((3, 32, 32))) is None
    for make in MODELS.values():
        assert refusal(make(), probe(SHAPE)) is None
    hooked = convolutional()
    hooked[0].register_forward_hook(lambda module, inputs, output: 2 * output)      # type: ignore[index]
    assert refusal(hooked, probe(SHAPE)) is None
    model = flat(lambda: hooked)
    local = client(0, model, 5, Sgd(lr=0.1, steps=2))
    np.testing.assert_allclose(train_fused(model, [local])[0], alone(model, local), RTOL, ATOL)


def test_only_trainings_of_a_kind_have_the_same_key() -> None:
    model = flat(cut)
    mask = np.ones(model.trained, np.float32)
    pull = CROSS_ENTROPY + pulled("mse", {1: np.zeros(6, np.float32)})
    one = client(0, model, 5, Sgd(lr=0.1, epochs=1, batch=4))
    same = [client(1, model, 9, Sgd(lr=0.1, steps=3, batch=4)),
            replace(one, objective=CROSS_ENTROPY + pulled("mse", {}))]
    others = [replace(one, solver=solver) for solver in (
        Sgd(lr=0.2, epochs=1, batch=4), Sgd(lr=0.1, epochs=1), Adam(lr=0.1, epochs=1, batch=4))]
    others += [replace(one, only=mask), replace(one, only=0 * mask),
               replace(one, objective=CROSS_ENTROPY + Proximal(0.1)), replace(one, objective=pull)]
    assert all(key(other) == key(one) for other in same)
    assert len({key(other) for other in (one, *others)}) == 1 + len(others)
    assert key(replace(one, only=mask.copy())) == key(others[3])
    other = CROSS_ENTROPY + pulled("mse", {2: np.ones(6, np.float32)})
    assert key(replace(one, objective=other)) == key(others[-1])
    with pytest.raises(FuseError, match=re.escape("expected one solver, mask and objective for all of them")):
        train_fused(model, [one, others[0]])
    with pytest.raises(ParameterError, match=r"^expected parameters of shape \(\d+,\), found \(3,\)$"):
        train_fused(model, [one, replace(one, before=np.zeros(3, np.float32))])
    whole = flat(Whole)
    with pytest.raises(FuseError, match=r"^objective on features: expected a model that is an nn.Seq"):
        train_fused(whole, [client(0, whole, 5, Sgd(lr=0.1, steps=1), objective=pull)])


# --- as tasks use it ------------------------------------------------------------------------------------------------

SPEC = {"data": {"set": "digits"}, "partition": {"dirichlet": 0.5}, "model": "digits_classic",
        "solver": {"sgd": {"lr": 0.1, "epochs": 1, "batch": 10}}}


def together(task: Task, work: Callable[[Any], Any]) -> Sequence[Any]:
    """Of five clients that compute side by side."""
    results: dict[int, Any] = {}
    nodes = [task.for_node(f"client{i}", i, lambda: 1) for i in range(5)]

    def piece(i: int) -> None:
        results[i] = work(nodes[i])

    task.together.run([lambda i=i: piece(i) for i in range(5)])     # type: ignore[misc]
    return [results[i] for i in range(5)]


def test_local_updates_side_by_side_are_those_of_each_alone() -> None:
    task = Task(SPEC, 5, 1)
    w = task.initial_parameters()

    def twice(node: Any) -> Any:                        # as FedRep does: the head, then the body, on what came before
        head, _ = node.local_update(w, steps=3, only="decision")
        body, n = node.minimise(w + head, node.objective + Proximal(0.1), steps=2, only="representation")
        return head, body, n

    for found, node in zip(together(task, twice), (task.for_node(f"client{i}", i, lambda: 1) for i in range(5)),
                           strict=True):
        for a, b in zip(found, twice(node), strict=True):
            np.testing.assert_allclose(a, b, RTOL, ATOL)


def test_prototypes_made_side_by_side_are_those_of_each_alone() -> None:
    task = Task(SPEC, 5, 1)
    w, means = task.initial_parameters(), {j: np.full(24, 0.1 * j, np.float32) for j in range(0, 10, 2)}

    def train(node: Any) -> Any:
        pool = Pooling("soft", 5, 10, 3, 1)
        return node.train_prototypes(w, node.objective + PrototypePull.to(means, 10, 0.5, "l2_mean", pool), pool)

    for (after, own, counts), i in zip(together(task, train), range(5), strict=True):
        expected, own_alone, counts_alone = train(task.for_node(f"client{i}", i, lambda: 1))
        np.testing.assert_allclose(after, expected, RTOL, ATOL)
        assert counts == counts_alone
        for j, mean in own.items():
            np.testing.assert_allclose(mean, own_alone[j], RTOL, ATOL)


@pytest.mark.parametrize("name", ["convolutional", "frozen", "cut"])
@pytest.mark.parametrize("solver", [Sgd(lr=0.1, steps=4, batch=3), Sgd(lr=0.1, steps=4, batch=3, momentum=0.9),
                                    Adam(lr=0.01, steps=4, batch=3, eps=1e-2)], ids=["sgd", "momentum", "adam"])
def test_large_dense_layers_are_trained_as_one_by_one_too(name: str, solver: Solver,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients are computed by other code, and plain SGD multiplies them into the weights."""
    monkeypatch.setattr("emul.learning.stack._LARGE", 0)
    model = flat(MODELS[name])
    asked = [client(i, model, n, solver) for i, n in enumerate((4, 11, 7))]
    expected = [alone(model, local) for local in asked]
    for ours, theirs in zip(train_fused(model, asked), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=RTOL, atol=ATOL)
