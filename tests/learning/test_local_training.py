import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from emul.base.streams import generator
from emul.learning import data, models
from emul.learning import training as tr
from emul.learning.data import DataSet
from emul.learning.local import LocalTraining, descend, train_keeping
from emul.learning.objectives import CrossEntropy
from emul.learning.parameters import FlatModule
from emul.learning.solver import Adam, AdamW, RateSchedule, Sgd, Solver
from emul.learning.training import Samples, Stream, batches, mean_gradient, train

STREAM = Stream(seed=7, node="client3", round=2, call=0)


def digits(n: int) -> Samples:
    return Samples(data.load({"set": "digits"}), np.arange(100, 100 + n))


def fresh(name: str = "digits_cnn") -> FlatModule:
    return FlatModule(models.create(name, (1, 8, 8), 10, seed=7))


def test_one_step_is_the_hand_computed_one():
    """Softmax regression, one sample x = (1, 2), label 0, weights 0: p = (1/2, 1/2), gradient (p - e_0) x."""
    module = nn.Linear(2, 2)
    flat = FlatModule(module)
    flat.load(np.zeros(6, np.float32))
    one = DataSet("one", np.array([[1, 2]], np.float32), np.array([0]), np.zeros((0, 2), np.float32),
                  np.zeros(0, int), classes=2)
    train(flat, Samples(one, np.array([0])), Sgd(lr=0.1, steps=1), STREAM)
    np.testing.assert_allclose(flat.read(), [0.05, 0.1, -0.05, -0.1, 0.05, -0.05], rtol=1e-6)


ORACLES = [
    (Sgd(lr=0.2, epochs=2, batch=10), lambda p: torch.optim.SGD(p, lr=0.2)),
    (Sgd(lr=0.1, steps=7, batch=10, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    (Sgd(lr=0.1, steps=4, batch=8, weight_decay=0.01), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01)),
    (Sgd(lr=0.1, epochs=3, momentum=0.5, weight_decay=0.1),
     lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.1)),
    (Adam(lr=0.01, steps=6, batch=16), lambda p: torch.optim.Adam(p, lr=0.01)),
    (Adam(lr=0.01, steps=6, batch=16, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1),
     lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1)),
    (AdamW(lr=0.01, steps=6, batch=16, weight_decay=0.5), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5)),
    (AdamW(lr=0.01, steps=6, batch=16, beta1=0.9, beta2=0.95, weight_decay=0.1, accumulate=3),
     lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)),
    (Sgd(lr=0.1, steps=4, batch=10, momentum=0.9, accumulate=4), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
]


@pytest.mark.parametrize(("solver", "optimiser"), ORACLES)
def test_training_equals_torchs_optimisers(solver, optimiser):
    samples = digits(25)
    flat = fresh()
    train(flat, samples, solver, STREAM)

    net = models.create("digits_cnn", (1, 8, 8), 10, seed=7)
    opt = optimiser(net.parameters())
    raw = samples.data.train_x[samples.indices].astype(np.float32)
    x = torch.from_numpy((raw / 16 - np.float32(0.3053)) / np.float32(0.3763))
    y = torch.from_numpy(samples.data.train_y[samples.indices].astype(np.int64))
    for batch in batches(25, solver, generator(7, "batches", "client3", 2, 0)):
        opt.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        opt.step()
    oracle = torch.cat([p.detach().ravel() for p in net.parameters()]).numpy()
    np.testing.assert_allclose(flat.read(), oracle, rtol=2e-4, atol=3e-6)
    assert np.abs(oracle - fresh().read()).max() > 0.01


class Weights:
    """Weights and gradient without a module, as `stepper` takes them."""

    def __init__(self, values: np.ndarray) -> None:
        self.weights = torch.from_numpy(values.copy())
        self.gradient = torch.zeros_like(self.weights)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1]), st.sampled_from([None, 0.5, 1e6]),
       st.sampled_from([None, RateSchedule(steps=9, warm_up=3, to=0.1), RateSchedule(steps=4)]))
def test_adamw_clip_and_schedule_are_torchs_to_float_precision(seed, decay, clip, schedule):
    """Twelve steps on drawn gradients, beside torch's AdamW, clip_grad_norm_ and LambdaLR with the formula."""
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(7).astype(np.float32)
    ours, theirs = Weights(start), torch.nn.Parameter(torch.from_numpy(start.copy()))
    step = tr.stepper(AdamW(lr=0.01, steps=1, weight_decay=decay, clip=clip, schedule=schedule), ours)
    optimiser = torch.optim.AdamW([theirs], lr=0.01, weight_decay=decay)
    def share(t):
        if schedule is None or t == schedule.warm_up:
            return 1.0
        if t < schedule.warm_up:
            return t / schedule.warm_up
        if t >= schedule.steps:
            return schedule.to
        angle = np.pi * (t - schedule.warm_up) / (schedule.steps - schedule.warm_up)
        return schedule.to + (1 - schedule.to) * (1 + np.cos(angle)) / 2
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda t: share(t + 1))
    for _ in range(12):
        gradient = torch.from_numpy(rng.standard_normal(7).astype(np.float32))
        ours.gradient.copy_(gradient)
        theirs.grad = gradient.clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([theirs], clip)
        step()
        optimiser.step()
        rates.step()
        np.testing.assert_allclose(ours.weights.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_the_schedule_is_a_line_up_and_half_a_cosine_down():
    schedule = RateSchedule(steps=200, warm_up=30, to=0.1)
    assert [schedule.share(t) for t in (1, 15, 30, 115, 200, 999)] == pytest.approx([1 / 30, 0.5, 1, 0.55, 0.1, 0.1])
    assert Sgd(lr=0.5, steps=1).rate(77) == 0.5


@pytest.mark.parametrize("solver", [Sgd(lr=0.1, steps=6, momentum=0.9), Adam(lr=0.01, steps=6),
                                    AdamW(lr=0.01, steps=6, weight_decay=0.1,
                                          schedule=RateSchedule(steps=5, warm_up=2))])
def test_kept_moments_make_of_two_trainings_one(solver: Solver):
    """With all samples in each batch nothing is drawn, so that 2 and then 4 steps are 6, to the bit."""
    samples, start = digits(12), fresh().read()
    def trained(before, steps, kept):
        return train_keeping(fresh(), LocalTraining(before, samples, solver.with_steps(steps), STREAM, kept=kept))
    whole, kept = trained(start, 6, None)
    half, between = trained(start, 2, None)
    resumed, after = trained(half, 4, between)
    assert (between.taken, after.taken) == (2, 6)
    assert resumed.tobytes() == whole.tobytes()
    assert [m.tobytes() for m in after.moments] == [m.tobytes() for m in kept.moments]
    assert trained(half, 4, None)[0].tobytes() != whole.tobytes()


def test_a_part_that_is_not_trained_neither_decays_nor_counts_in_the_norm():
    ours = Weights(np.ones(2, np.float32))
    step = tr.stepper(AdamW(lr=0.5, steps=1, weight_decay=1.0, eps=1.0, clip=1.0), ours, torch.tensor([1.0, 0.0]))
    ours.gradient.copy_(torch.tensor([1.0, 100.0]))
    step()                                      # 1 - 0.5 * 1 - 0.5 * 1 / (1 + eps): the norm is 1, nothing is cut
    np.testing.assert_allclose(ours.weights.numpy(), [0.25, 1.0], rtol=1e-5)


def test_matrices_alone_decay_as_in_groups_of_torchs_optimiser():
    flat, reference = fresh(), fresh()
    solver = AdamW(lr=0.01, steps=3, weight_decay=0.5, decays="matrices")
    groups = [{"params": [p for p in reference.module.parameters() if p.ndim > 1], "weight_decay": 0.5},
              {"params": [p for p in reference.module.parameters() if p.ndim == 1], "weight_decay": 0.0}]
    optimiser, step = torch.optim.AdamW(groups, lr=0.01), tr.stepper(solver, flat)
    for seed in range(3):
        drawn = torch.randn(flat.trained, generator=torch.Generator().manual_seed(seed))
        flat.gradient.copy_(drawn)
        reference.gradient.copy_(drawn)
        step()
        optimiser.step()
    np.testing.assert_allclose(flat.read(), reference.read(), rtol=1e-5, atol=1e-7)


@given(st.integers(1, 40), st.integers(1, 50) | st.none(), st.integers(0, 4))
def test_an_epoch_is_a_permutation_and_steps_walk_through_the_same_batches(n, batch, epochs):
    def drawn(solver):
        return [b.tolist() for b in batches(n, solver, np.random.default_rng(1))]
    got = drawn(Sgd(lr=1, epochs=epochs, batch=batch))
    per_epoch = -(-n // min(batch or n, n))
    assert len(got) == epochs * per_epoch
    for epoch in range(epochs):
        part = got[epoch * per_epoch:(epoch + 1) * per_epoch]
        assert sorted(i for b in part for i in b) == list(range(n))
        assert all(len(b) == min(batch or n, n) for b in part[:-1])
    assert drawn(Sgd(lr=1, steps=len(got), batch=batch)) == got
    assert drawn(Sgd(lr=1, steps=len(got) + 3, batch=batch))[:len(got)] == got


def test_epochs_are_reshuffled():
    a, b, c, d = (batch.tolist() for batch in batches(30, Sgd(lr=1, epochs=2, batch=20), np.random.default_rng(1)))
    assert a + b != c + d


@pytest.mark.parametrize("solver", [Sgd(lr=0.1, steps=0), Sgd(lr=0.1, epochs=0, batch=4), Adam(lr=1, steps=0)])
def test_no_step_changes_nothing(solver):
    flat = fresh()
    before = flat.read()
    train(flat, digits(25), solver, STREAM)
    np.testing.assert_array_equal(flat.read(), before)


def test_no_samples_change_nothing():
    flat = fresh()
    train(flat, digits(0), Sgd(lr=0.1, steps=3), STREAM)
    np.testing.assert_array_equal(flat.read(), fresh().read())
    assert not mean_gradient(flat, digits(0), Sgd(lr=0.1, steps=3), STREAM).any()


def test_batches_larger_than_the_client_take_all_its_samples():
    small, exact = fresh(), fresh()
    train(small, digits(9), Sgd(lr=0.1, steps=3, batch=1000), STREAM)
    train(exact, digits(9), Sgd(lr=0.1, steps=3), STREAM)
    np.testing.assert_array_equal(small.read(), exact.read())


def test_chunks_of_converted_samples_do_not_change_a_bit(monkeypatch):
    one, many = fresh(), fresh()
    train(one, digits(64), Sgd(lr=0.1, epochs=2, batch=8), STREAM)
    monkeypatch.setattr(tr, "_CHUNK_VALUES", 2 * 8 * 64)
    train(many, digits(64), Sgd(lr=0.1, epochs=2, batch=8), STREAM)
    np.testing.assert_array_equal(one.read(), many.read())


def dropping() -> FlatModule:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    return FlatModule(module)


def test_dropout_is_keyed_by_node_round_and_call_and_leaves_torchs_generator_alone():
    def trained(stream):
        flat = dropping()
        state = torch.get_rng_state()
        train(flat, digits(8), Sgd(lr=0.1, steps=2), stream)        # all samples in each batch: no batch order
        assert torch.equal(state, torch.get_rng_state())
        return flat.read()
    same = trained(STREAM)
    torch.rand(5)
    np.testing.assert_array_equal(trained(STREAM), same)
    for other in (Stream(8, "client3", 2, 0), Stream(7, "client4", 2, 0), Stream(7, "client3", 3, 0),
                  Stream(7, "client3", 2, 1)):
        assert not np.array_equal(trained(other), same)


def test_the_batch_order_is_keyed_alike():
    def trained(stream):
        flat = fresh()
        train(flat, digits(30), Sgd(lr=0.1, epochs=1, batch=10), stream)
        return flat.read()
    same = trained(STREAM)
    np.testing.assert_array_equal(trained(STREAM), same)
    for other in (Stream(8, "client3", 2, 0), Stream(7, "client4", 2, 0), Stream(7, "client3", 3, 0),
                  Stream(7, "client3", 2, 1)):
        assert not np.array_equal(trained(other), same)


@pytest.mark.parametrize("batch", [10, 64])
def test_convolutions_are_chosen_by_the_batch_and_the_choice_is_undone(batch):
    seen = []

    class Looking(CrossEntropy):
        def of_all(self, outputs, batch):
            seen.append(torch.backends.mkldnn.enabled)
            return super().of_all(outputs, batch)
    train(fresh(), digits(64), Sgd(lr=0.1, steps=1, batch=batch), STREAM, Looking())
    assert seen == [batch >= tr.NATIVE_BELOW]
    assert torch.backends.mkldnn.enabled


def test_the_gradient_is_the_one_of_the_first_batch():
    samples, solver = digits(25), Sgd(lr=0.5, epochs=3, batch=10)
    flat = fresh()
    before = flat.read()
    gradient = mean_gradient(flat, samples, solver, STREAM)
    train(flat, samples, solver.with_steps(1), STREAM)
    np.testing.assert_allclose(flat.read(), before - 0.5 * gradient, atol=1e-7)
    assert gradient.ctypes.data % 64 == 0


@pytest.mark.parametrize("solver", [Sgd(lr=0.1, steps=3, momentum=0.9, clip=0.5), Adam(lr=0.01, steps=3),
                                    AdamW(lr=0.01, steps=3, weight_decay=0.1, schedule=RateSchedule(steps=3))])
def test_steps_along_given_gradients_are_those_of_a_training(solver: Solver):
    """With all samples in each batch, so that the gradient of a batch is that of the training's step."""
    samples, flat = digits(12), fresh()
    whole, kept = train_keeping(fresh(), LocalTraining(flat.read(), samples, solver, STREAM))
    model, moments = flat.read(), None
    for _ in range(3):
        flat.load(model)
        gradient = mean_gradient(flat, samples, solver, STREAM)
        model, moments = descend(fresh(), model, gradient, solver, moments)
    assert model.tobytes() == whole.tobytes()
    assert moments.taken == 3
    assert [m.tobytes() for m in moments.moments] == [m.tobytes() for m in kept.moments]
