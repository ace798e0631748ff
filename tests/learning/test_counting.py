"""Operations, bytes and memory of a step of training, against sums made by hand for layers of known sizes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from emul.learning import Task, models
from emul.learning.adapters import lora
from emul.learning.counting import StepCount, count_step, step_counts
from emul.learning.objectives import CROSS_ENTROPY, Batch
from emul.learning.solver import Solver, make

SGD = make({"sgd": {"lr": 0.1, "steps": 1}})
FLOAT = 4


def counted(module: nn.Module, x: torch.Tensor, solver: Solver = SGD, outputs: int = 2) -> StepCount:
    return count_step(module, Batch(x, torch.zeros(len(x), dtype=torch.int64)), solver, CROSS_ENTROPY)


# --- by hand: a product of (n, k) and (k, m) takes 2 n k m operations; the first layer passes nothing back ------------

@settings(max_examples=10, deadline=None)
@given(b=st.integers(1, 9), sizes=st.lists(st.integers(1, 12), min_size=2, max_size=4))
def test_a_dense_layer_has_a_product_forward_one_for_its_weights_and_one_for_its_inputs(
        b: int, sizes: list[int]) -> None:
    layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m), nn.ReLU())]
    products = [2 * b * n * m for n, m in pairwise(sizes)]
    found = counted(nn.Sequential(*layers), torch.ones(b, sizes[0]))
    assert found.flops == 2 * products[0] + 3 * sum(products[1:])


def test_a_convolution_has_as_many_products_as_its_kernel_fits_places() -> None:
    b, places = 3, (8 - 3 + 1) ** 2
    net = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Conv2d(5, 7, 1), nn.Flatten(), nn.Linear(7 * places, 4))
    first, second, third = 2 * b * places * 5 * 2 * 9, 2 * b * places * 7 * 5, 2 * b * 7 * places * 4
    assert counted(net, torch.ones(b, 2, 8, 8)).flops == 2 * first + 3 * (second + third)


class Attention(nn.Module):
    """One layer of attention of two heads over rows of 6 numbers; the mean of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (part.reshape(b, t, 2, 3).transpose(1, 2) for part in self.into(x).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        found: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(b, t, 6)).mean(1)
        return found


def test_attention_has_two_products_of_tokens_with_tokens_forward_and_four_backward() -> None:
    b, t, w = 3, 5, 6
    into, out, tokens = 2 * b * t * w * 3 * w, 2 * b * t * w * w, 2 * b * t * t * w
    assert counted(Attention(), torch.ones(b, t, w)).flops == 2 * into + 3 * out + 6 * tokens


def test_a_frozen_layer_has_no_product_for_its_weights_and_none_backward_before_the_first_that_is_trained() -> None:
    b = 4
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))
    net[0].requires_grad_(False)
    net[4].requires_grad_(False)
    first, middle, last = 2 * b * 5 * 6, 2 * b * 6 * 7, 2 * b * 7 * 3
    assert counted(net, torch.ones(b, 5)).flops == first + 2 * middle + 2 * last


def test_an_adapter_has_its_own_small_products_beside_the_frozen_layer() -> None:
    b, n, m, r = 4, 8, 9, 2
    net = lora(nn.Sequential(nn.Linear(n, m), nn.ReLU(), nn.Linear(m, 3)), r, trained=lambda name: name.startswith("2"))
    frozen, down, up, head = 2 * b * n * m, 2 * b * n * r, 2 * b * r * m, 2 * b * m * 3
    assert counted(net, torch.ones(b, n)).flops == frozen + 2 * down + 3 * up + 3 * head


def test_a_recurrent_net_is_counted_though_onednn_has_it_as_one_operation() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.cell(x)[0][:, -1]
            return found

    b, t = 2, 5
    inputs, states = 2 * b * t * 3 * 16, 2 * b * t * 4 * 16
    # inputs: forward and weights. States: forward, weights, and back to each state but the first, which nothing needs.
    assert counted(Recurrent(), torch.ones(b, t, 3)).flops == pytest.approx(2 * inputs + 3 * states, rel=0.1)


# --- bytes and memory -----------------------------------------------------------------------------------------------

def test_bytes_of_a_step_grow_with_the_weights_once_and_with_the_batch() -> None:
    """A layer n -> m, what is read and written of W (m, n) by hand."""
    b, n, m = 1, 50, 40
    narrow, wide = (counted(nn.Linear(n, size), torch.ones(b, n)).bytes for size in (m, 2 * m))
    # A row of W is read forward, its gradient zeroed, written by the product, added to what is there (two read, one
    # written) and taken from the weights (two read, one written).
    rows = m * n * FLOAT * (1 + 1 + 1 + 3 + 3)
    assert wide - narrow == pytest.approx(rows, rel=0.08)           # the rest is of y, of the bias and of the loss


def test_moments_are_held_and_moved() -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 2))

    d = 30 * 20 + 20 + 20 * 2 + 2
    plain, moments = (counted(net(), torch.ones(4, 30), make({name: {"lr": 0.1, "steps": 1}}))
                      for name in ("sgd", "adam"))
    assert moments.memory - plain.memory == 2 * FLOAT * d
    assert moments.bytes > plain.bytes + 4 * FLOAT * d
    assert moments.flops == plain.flops


def test_memory_has_the_weights_their_gradients_and_what_the_backward_pass_reads() -> None:
    b, n, m = 16, 30, 20
    found = counted(nn.Sequential(nn.Linear(n, m), nn.ReLU(), nn.Linear(m, 2)), torch.ones(b, n))
    d = n * m + m + m * 2 + 2
    least = FLOAT * (2 * d + b * (n + m + 2))           # x, the output of the ReLU, and of the loss
    assert least <= found.memory <= least + 8 * b + 8   # its labels


def test_a_view_is_no_launch_and_each_layer_has_some() -> None:
    flat = counted(nn.Linear(6, 2), torch.ones(3, 6)).launches
    viewed = counted(nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(), nn.Linear(6, 2)), torch.ones(3, 6)).launches
    deep = counted(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)), torch.ones(3, 6)).launches
    assert viewed == flat
    assert deep >= flat + 5                             # product and ReLU forward; ReLU, input and weights backward


# --- by batch -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["logistic", "digits_cnn", "digits_residual"])
@pytest.mark.parametrize("solver", [{"sgd": {"lr": 0.1, "steps": 1, "momentum": 0.9}},
                                    {"adamw": {"lr": 0.1, "epochs": 1, "clip": 1.0, "accumulate": 2}}])
def test_any_batch_is_on_the_line_through_two_small_ones(model: str, solver: dict[str, object]) -> None:
    task = Task({"data": {"set": "digits"}, "partition": "iid", "model": model, "solver": solver}, 3, 1)
    line = step_counts(task)
    for samples in (6, 32, 100):
        direct = count_step(models.create(model, (1, 8, 8), 10, 1), task.examples(samples), task.solver, task.objective)
        found = line.of(samples)
        assert (found.flops, found.launches) == (direct.flops, direct.launches)
        assert found.bytes == pytest.approx(direct.bytes, rel=1e-3)
        assert found.memory == pytest.approx(direct.memory, rel=0.01)


def test_counting_changes_no_stream_and_no_model() -> None:
    task = Task({"data": {"set": "digits"}, "partition": "iid", "model": "digits_classic",
                 "solver": {"sgd": {"lr": 0.1, "steps": 1}}}, 3, 1)
    before, state = task.initial_parameters().tobytes(), torch.get_rng_state()
    assert step_counts(task) == step_counts(task)
    assert task.initial_parameters().tobytes() == before
    assert torch.equal(torch.get_rng_state(), state)
