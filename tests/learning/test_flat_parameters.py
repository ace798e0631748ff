import numpy as np
import pytest
import torch
from torch import nn

from emul.learning.parameters import FlatModule, ParameterError


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 3))


def by_hand(module: nn.Module) -> np.ndarray:
    parts = [*module.parameters(), *module.buffers()]
    return np.concatenate([p.detach().numpy().astype(np.float32).ravel() for p in parts])


def test_the_vector_is_parameters_then_buffers_and_survives_a_round_trip():
    module = net()
    expected = by_hand(module)
    flat = FlatModule(module)
    assert flat.dimension == len(expected) == 18 + 2 + 2 + 2 + 6 + 3 + 2 + 2 + 1
    np.testing.assert_array_equal(flat.read(), expected)

    vector = np.random.default_rng(1).normal(size=flat.dimension).astype(np.float32)
    vector[-1] = 12                                         # BatchNorm's counter of batches, an integer
    flat.load(vector)
    np.testing.assert_array_equal(by_hand(module), vector)
    np.testing.assert_array_equal(flat.read(), vector)
    assert module[1].num_batches_tracked.item() == 12


def test_a_flat_module_computes_and_counts_as_the_plain_one():
    plain, module = net(), net()
    flat = FlatModule(module)
    flat.load(by_hand(plain))
    x = torch.rand(5, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    for m in (plain, module):
        m(x).square().sum().backward()
    np.testing.assert_array_equal(flat.read(), by_hand(plain))      # running mean and variance moved alike
    assert module[1].num_batches_tracked.item() == 1
    plain_gradient = torch.cat([p.grad.ravel() for p in plain.parameters()])
    assert torch.equal(flat.gradient, plain_gradient)


def test_frozen_parameters_are_no_part_of_it_and_stay():
    module = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False))
    module[0].weight.requires_grad_(False)
    frozen, value = module[0].weight.tolist(), module[1].weight.item()
    flat = FlatModule(module)
    assert flat.trained == flat.dimension == 1
    assert flat.read().tolist() == [value]
    flat.load(np.float32([7]))
    assert module[0].weight.tolist() == frozen


def test_tied_weights_count_once():
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    flat = FlatModule(module)
    flat.load(np.arange(9, dtype=np.float32))
    assert module[1].weight.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_results_are_fresh_writable_and_on_a_64_byte_boundary():
    flat = FlatModule(net())
    kept = flat.read()
    copy = kept.copy()
    for array in (flat.read(), flat.read()):
        assert array.ctypes.data % 64 == 0
        array[:] = 5
    np.testing.assert_array_equal(flat.read(), copy)


def test_what_does_not_fit_is_said():
    flat = FlatModule(nn.Linear(2, 3))
    with pytest.raises(ParameterError, match=r"^expected parameters of shape \(9,\), found \(8,\)$"):
        flat.load(np.zeros(8, np.float32))
    with pytest.raises(ParameterError, match=r"^expected float32 parameters and buffers, found torch.float64$"):
        FlatModule(nn.Linear(2, 3).double())


class Own(nn.ReLU):
    """A layer whose code nobody knows."""


@pytest.mark.parametrize(("module", "draws"), [
    (net(), False), (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), True), (nn.LSTM(2, 2, 2, dropout=0.5), True),
    (nn.LSTM(2, 2), False), (nn.MultiheadAttention(2, 1, dropout=0.1), True), (Own(), True)])
def test_a_module_is_known_to_draw_by_its_layers_and_own_code_is_taken_to(module, draws):
    assert FlatModule(module).draws is draws


def test_the_parts_of_a_vector_have_the_modules_names_and_load_into_one_like_it() -> None:
    def module() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))

    flat = FlatModule(module())
    vector = np.arange(flat.dimension, dtype=np.float32)
    parts = flat.named(vector)
    assert np.array_equal(np.concatenate([p.reshape(-1) for p in parts.values()]), vector)
    other = module()
    other.load_state_dict({name: torch.from_numpy(p.copy()) for name, p in parts.items()})
    assert np.array_equal(FlatModule(other).read(), vector)
    with pytest.raises(ParameterError, match="expected parameters of shape"):
        flat.named(vector[1:])
