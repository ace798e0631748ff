"""Pooling, prototypes and the losses that pull features towards them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.learning import Task, TaskError, models, prototypes
from emul.learning.attack import Attack
from emul.learning.objectives import Batch, CrossEntropy, PrototypePull, Proximal, equal_weights
from emul.learning.parameters import FlatModule
from emul.learning.pooling import PoolError, Pooling
from emul.learning.training import forward_of

SPEC = {"data": {"set": "digits"}, "partition": {"class_space": {"avg": 3, "std": 1, "shots": 8, "test_shots": 9}},
        "model": "digits_classic", "solver": {"sgd": {"lr": 0.05, "momentum": 0.5, "epochs": 2, "batch": 8}}}
POOL = Pooling("soft", 5, 10, 3, 1)


def soft(c: np.ndarray, pool: Pooling) -> np.ndarray:
    """The definition, in float64 loops."""
    grid = c.astype(np.float64).reshape(pool.height, pool.width)
    rows, columns = pool.output(c.size)
    found = []
    for i in range(rows):
        for j in range(columns):
            region = grid[i * pool.stride:i * pool.stride + pool.kernel,
                          j * pool.stride:j * pool.stride + pool.kernel].reshape(-1)
            w = np.exp(region - region.max())
            found.append((w / w.sum() * region).sum())
    return np.array(found)


def test_soft_pooling_of_one_two_three_four():
    assert abs(float(Pooling("soft", 2, 2, 2, 1)(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))[0, 0]) - 3.4926527) < 1e-6


@given(st.integers(0, 1000), st.sampled_from([(5, 10, 3, 1), (2, 25, 2, 1), (5, 10, 2, 2)]))
@settings(max_examples=30)
def test_soft_pooling_is_its_definition(seed, shape):
    pool = Pooling("soft", *shape)
    c = np.random.default_rng(seed).normal(0, 3, 50).astype(np.float32)
    np.testing.assert_allclose(pool(torch.from_numpy(c)[None])[0].numpy(), soft(c, pool), rtol=1e-6, atol=1e-6)


def test_soft_pooling_is_finite_where_exp_is_not_keeps_constants_and_has_the_right_gradient():
    big = torch.linspace(-1e4, 1e4, 50)[None]
    assert bool(torch.isfinite(POOL(big)).all())
    assert bool((POOL(torch.full((1, 50), 2.5)) - 2.5).abs().max() < 1e-6)
    x = torch.randn(2, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(Pooling("soft", 3, 4, 2, 1), (x,))


@pytest.mark.parametrize(("shape", "n", "length"), [((5, 10, 3, 1), 50, 24), ((2, 25, 2, 1), 50, 24),
                                                    ((2, 256, 2, 1), 512, 255), ((16, 32, 2, 2), 512, 128),
                                                    ((5, 10, 2, 2), 50, 10)])
def test_every_kind_of_pooling_gives_the_same_shape(shape, n, length):
    c = torch.rand(3, n, generator=torch.Generator().manual_seed(0))
    for kind in ("soft", "avg", "max", "adaptive_avg", "adaptive_max"):
        pool = Pooling(kind, *shape)
        assert pool.length(n) == length
        assert pool(c).shape == (3, length)
    assert Pooling("none")(c) is c
    assert Pooling("none").length(n) == n


@pytest.mark.parametrize(("pool", "said"), [
    (Pooling("soft", 7, 7, 3, 1), r"map 7 x 7: expected a product of 50, the number of features"),
    (Pooling("avg", 5, 10, 6, 1), r"kernel 6, stride 1: leave nothing of a map of 5 x 10"),
    (Pooling("avg", 5, 10, 3, 0), r"kernel 3, stride 0: leave nothing of a map of 5 x 10")])
def test_a_pooling_that_does_not_fit_is_refused(pool, said):
    with pytest.raises(PoolError, match=f"^{said}$"):
        pool.length(50)


@pytest.mark.parametrize(("name", "shape", "classes", "parameters", "convolutions", "features"), [
    ("mnist_classic", (1, 28, 28), 10, 21_840, 5_280, 50), ("digits_classic", (1, 8, 8), 10, 6_480, 1_920, 50),
    ("femnist_classic", (1, 128, 128), 62, 849_332, 5_120, 50),
    ("cinic_cnn", (3, 32, 32), 10, 1_193_130, 10_144, 256)])
def test_models_are_cut_where_the_sheet_says(name, shape, classes, parameters, convolutions, features):
    model = FlatModule(models.create(name, shape, classes, 1))
    assert model.dimension == parameters
    assert len(prototypes.coordinates(model, "convolutions")) == convolutions
    body, head = prototypes.coordinates(model, "representation"), prototypes.coordinates(model, "decision")
    assert len(head) == (features + 1) * classes
    assert sorted(np.concatenate([body, head]).tolist()) == list(range(parameters))
    model.module.eval()
    assert model.module[:model.module.features_at](torch.zeros(2, *shape)).shape == (2, features)


def test_resnet18_has_its_size_and_its_buffers_belong_to_the_representation():
    model = FlatModule(models.create("resnet18", (3, 32, 32), 10, 1))
    assert model.trained == 11_181_642
    head = prototypes.coordinates(model, "decision")
    assert len(head) == 5_130
    assert head.max() < model.trained
    assert len(prototypes.coordinates(model, "representation")) == model.dimension - 5_130
    model.module.eval()
    assert model.module[:10](torch.zeros(1, 3, 32, 32)).shape == (1, 512)


# --- losses ---------------------------------------------------------------------------------------------------------

def tensors(objective):
    return objective.bound({name: torch.from_numpy(value) for name, value in objective.arrays().items()})


@pytest.mark.parametrize("kind", ["l2_sum", "l2_mean", "mse"])
@given(seed=st.integers(0, 100))
@settings(max_examples=10)
def test_each_loss_is_its_formula_and_leaves_out_classes_without_a_prototype(kind, seed):
    rng = np.random.default_rng(seed)
    model = FlatModule(models.create("digits_classic", (1, 8, 8), 10, 3))
    means = {j: rng.random(24).astype(np.float32) for j in (1, 4, 7)}
    x = torch.from_numpy(rng.standard_normal((12, 1, 8, 8)).astype(np.float32))
    y = torch.from_numpy(rng.choice([0, 1, 4, 9], 12))
    objective = tensors(CrossEntropy() + PrototypePull.to(means, 10, 0.3, kind, POOL))
    outputs = forward_of(model, True)(x)
    total = float(objective.of_all(outputs, Batch(x, y)).detach())
    each_ = objective(outputs, Batch(x, y), equal_weights(y))
    assert float(each_.mean().detach()) == pytest.approx(total, rel=1e-5)
    with torch.no_grad():
        p = POOL(model.module[:9](x)).numpy().astype(np.float64)
        plain = float(torch.nn.functional.cross_entropy(model.module(x), y))
    labels = y.numpy()
    each = {j: [p[i] - means[j] for i in np.flatnonzero(labels == j)] for j in (1, 4) if (labels == j).any()}
    if kind == "mse":
        squares = [d**2 for group in each.values() for d in group]
        extra = float(np.mean(squares)) if squares else 0.0
    else:
        norms = [np.mean([np.linalg.norm(d) for d in group]) for group in each.values()]
        extra = (sum(norms) if kind == "l2_sum" else float(np.mean(norms))) if norms else 0.0
    assert total == pytest.approx(plain + 0.3 * extra, rel=1e-4)


def test_the_gradient_is_finite_where_features_are_their_prototype():
    model = FlatModule(models.create("digits_classic", (1, 8, 8), 10, 3))
    x, y = torch.ones(2, 1, 8, 8), torch.tensor([2, 2])
    with torch.no_grad():
        p = POOL(model.module[:9](x))[0].numpy()
    objective = tensors(CrossEntropy() + PrototypePull.to({2: p}, 10, 1.0, "l2_sum", POOL))
    objective.of_all(forward_of(model, True)(x), Batch(x, y)).backward()
    assert bool(torch.isfinite(model.gradient).all())
    assert PrototypePull.to({}, 10, 1.0, "l2_sum", POOL).idle
    assert PrototypePull.to({2: p}, 10, 0.0, "l2_sum", POOL).idle


def test_training_draws_features_to_the_prototypes_and_makes_its_own_from_all_samples():
    task = Task(SPEC, 10, 1)
    node = task.for_node("client1", 0, lambda: 1)
    held = node.own_classes()
    means = {j: np.zeros(24, np.float32) for j in held}
    off = []
    for weight in (0.0, 10.0):
        node = task.for_node("client1", 0, lambda: 1)
        objective = node.objective + PrototypePull.to(means, 10, weight, "mse", POOL)
        after, own, counts = node.train_prototypes(task.initial_parameters(), objective, POOL)
        assert sorted(own) == held
        assert counts == dict.fromkeys(held, 8)
        off.append(np.mean([np.linalg.norm(own[j] - means[j]) for j in held]))
        task._model.load(after)
        task._model.module.eval()
        first = held[0]
        rows = [i for i in task.indices(0) if task.data.train_y[i] == first]
        with torch.no_grad():
            p = POOL(task._model.module[:9](torch.from_numpy(task.data.inputs(task.data.train_x[rows]))))
        assert np.abs(own[first] - p.numpy().mean(0)).max() < 1e-5
    assert off[1] < off[0]


def test_a_tampered_client_says_other_prototypes_than_it_has_and_its_model_is_the_same():
    task = Task(SPEC, 10, 1)
    said = []

    class Negate(Attack):
        def tamper(self, round_):
            return lambda own, rng: {j: -v for j, v in own.items()}
    for attack in (None, Negate()):
        node = task.for_node("client1", 0, lambda: 1, attack)
        said.append(node.train_prototypes(task.initial_parameters(), None, POOL))
    np.testing.assert_array_equal(said[0][0], said[1][0])
    for j, vector in said[0][1].items():
        np.testing.assert_array_equal(said[1][1][j], -vector)


def test_a_model_that_is_not_cut_has_no_prototypes():
    task = Task(SPEC | {"model": "digits_cnn"}, 10, 1)
    with pytest.raises(TaskError, match=r'^model "digits_cnn": expected one with a representation and a decision, '
                                        r"such as mnist_classic, cinic_cnn, digits_classic, femnist_classic, "
                                        r"resnet18$"):
        task.for_node("client1", 0, lambda: 1).part("representation")


# --- local updates of a part, proximal ------------------------------------------------------------------------------

def test_only_a_part_is_trained_with_momentum_and_decay():
    spec = SPEC | {"solver": {"sgd": {"lr": 0.05, "momentum": 0.5, "epochs": 1, "batch": 8, "weight_decay": 0.1}}}
    task = Task(spec, 10, 1)
    for part in ("representation", "decision", "convolutions"):
        node = task.for_node("client1", 0, lambda: 1)
        delta, _ = node.local_update(task.initial_parameters(), only=part)
        inside = np.zeros(task.dimension, bool)
        inside[node.part(part)] = True
        assert not delta[~inside].any()
        assert np.count_nonzero(delta[inside]) > inside.sum() // 2


def test_the_proximal_term_is_a_pull_towards_where_training_began():
    task = Task(SPEC, 10, 1)
    w = task.initial_parameters()
    lengths = []
    for mu in (0.0, 1.0, 10.0):
        delta, _ = task.for_node("client1", 0, lambda: 1).minimise(w, task.objective + Proximal(mu))
        lengths.append(float(np.linalg.norm(delta)))
    assert lengths[0] > lengths[1] > lengths[2]
    plain, _ = task.for_node("client1", 0, lambda: 1).local_update(w)
    zero, _ = task.for_node("client1", 0, lambda: 1).minimise(w, task.objective + Proximal(0.0))
    np.testing.assert_array_equal(plain, zero)
    # one step from the anchor: the pull is 0 there
    one, _ = task.for_node("client1", 0, lambda: 1).minimise(w, task.objective + Proximal(5.0), steps=1)
    same, _ = task.for_node("client1", 0, lambda: 1).local_update(w, steps=1)
    np.testing.assert_allclose(one, same, atol=1e-7)


# --- measures -------------------------------------------------------------------------------------------------------

def test_quality_is_that_of_sklearn_and_of_counting():
    from sklearn.metrics import silhouette_score

    rng = np.random.default_rng(2)
    sent = {k: {j: rng.normal(j, 1.0, 6) for j in rng.permutation(4)[:3].tolist()} for k in range(8)}
    x = np.stack([v for own in sent.values() for _, v in sorted(own.items())])
    labels = np.array([j for own in sent.values() for j in sorted(own)])
    found = prototypes.quality(sent)
    assert found["silhouette"] == pytest.approx(silhouette_score(x, labels), abs=1e-9)
    centres = np.stack([x[labels == j].mean(0) for j in range(4)])
    wrong = np.mean([np.argmin(((v - centres) ** 2).sum(1)) != j for v, j in zip(x, labels, strict=True)])
    assert found["failure_rate"] == pytest.approx(wrong)
    assert prototypes.quality({1: {2: x[0]}}) == {}
    assert prototypes.quality({1: {2: x[0], 3: x[1]}, 2: {2: np.full(6, np.nan)}}) == {}


def test_the_nearest_prototype_is_looked_for_among_the_own_classes():
    task = Task(SPEC, 10, 1)
    node = task.for_node("client3", 2, lambda: 1)
    vector, own, _ = node.train_prototypes(task.initial_parameters(), None, POOL)
    held = node.own_classes()
    everything = node.evaluate_nearest(vector, own, POOL)["accuracy"]
    decoys = own | {j: next(iter(own.values())) for j in range(10) if j not in held}
    assert node.evaluate_nearest(vector, decoys, POOL)["accuracy"] == everything > 1 / len(held)
    assert node.evaluate_nearest(vector, {}, POOL) == {}


# --- the partition --------------------------------------------------------------------------------------------------

def test_class_space_gives_every_client_its_classes_its_shots_and_its_own_test_samples():
    task = Task(SPEC, 20, 5)
    taken = np.concatenate([task.indices(c) for c in range(20)])
    assert len(np.unique(taken)) == len(taken)
    held = []
    for client in range(20):
        labels = task.data.train_y[task.indices(client)]
        classes, counts = np.unique(labels, return_counts=True)
        assert 2 <= len(classes) <= 4
        assert set(counts) == {8}
        own = task.own_test(client)
        assert own is not None
        assert np.unique(own.test_y).tolist() == classes.tolist()
        assert set(np.unique(own.test_y, return_counts=True)[1]) == {9}
        held.append(set(classes.tolist()))
    assert set().union(*held) == set(range(10))
    assert len({frozenset(h) for h in held}) > 5


def test_the_number_of_classes_is_uniform_in_its_range():
    labels = np.repeat(np.arange(10), 500)
    from emul.learning.partition import class_space
    counts = [len(h) for seed in range(100) for h in
              class_space(labels, 20, {"avg": 3, "std": 2, "shots": 1}, seed).held]
    assert set(counts) == {2, 3, 4, 5}
    assert np.mean(counts) == pytest.approx(3.5, abs=0.1)
    assert np.std(counts) == pytest.approx(1.12, abs=0.05)


def test_too_few_samples_of_a_class_are_said():
    with pytest.raises(Exception, match=r"^class_space: class \d has 1\d\d training samples; \d+ holders of 100 shots"):
        Task(SPEC | {"partition": {"class_space": {"avg": 3, "std": 1, "shots": 100}}}, 20, 1).indices(0)
    with pytest.raises(Exception, match=r"^class_space: 2 clients of 2 to 3 classes leave one of 10 classes without a"):
        Task(SPEC | {"partition": {"class_space": {"avg": 2, "std": 1, "shots": 1}}}, 2, 1).indices(0)
