"""A model in pieces is the whole model: gradients against its autograd, trained pieces against `local_update`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from emul.learning import NodeTask, Task
from emul.learning.cuts import wrong_cuts
from emul.learning.pieces import Piece, PieceError
from emul.learning.stacked_pieces import _Stacked
from emul.learning.training import native_convolutions, weighted_end


def task_of(model: str, solver: dict[str, Any] | None = None, **more: Any) -> Task:
    by_default = {"sgd": {"lr": 0.1, "steps": 3, "batch": 40}}
    return Task({"data": {"set": "digits"}, "model": model, "solver": solver or by_default, **more}, 2, 1)


def node_of(task: Task) -> NodeTask:
    return task.for_node("client1", 0, lambda: 1)


def cut_at(node: NodeTask, *cuts: str) -> list[Piece]:
    ends: list[str | None] = [None, *cuts, None]
    return [node.piece(after, last) for after, last in pairwise(ends)]


def passed(pieces: list[Piece], key: Any, x: np.ndarray, y: np.ndarray, share: float = 1.0) -> np.ndarray:
    """A batch forward and back through all of them; the gradient by the inputs of the second."""
    for piece in pieces[:-1]:
        x = piece.forward(key, x, 1)
    gradient, _ = pieces[-1].learn(x, y, share, 1)
    for piece in reversed(pieces[1:-1]):
        gradient = piece.backward(key, gradient)
    pieces[0].backward(key, gradient)
    return gradient


@pytest.mark.parametrize("cuts", [("2",), ("2", "6"), ("0", "1", "8")])
def test_gradients_of_every_piece_are_those_of_the_whole(cuts: tuple[str, ...]) -> None:
    task = task_of("digits_classic")
    pieces = cut_at(node_of(task), *cuts)
    batch = task.examples(24)
    inside = passed(pieces, 0, batch.x.numpy(), batch.y.numpy())

    module = task.module()
    with native_convolutions():             # as pieces have them: maxima that tie go to another place by a rounding
        kept = module[:int(cuts[0]) + 1](batch.x)
        kept.retain_grad()
        torch.nn.functional.cross_entropy(module[int(cuts[0]) + 1:](kept), batch.y).backward()
    whole = torch.cat([p.grad.reshape(-1) for p in module.parameters()]).numpy()
    assert kept.grad is not None
    np.testing.assert_allclose(inside, kept.grad.numpy(), rtol=1e-4, atol=1e-7)
    for piece in pieces:
        np.testing.assert_allclose(piece.gradient.numpy(), whole[piece.places], rtol=1e-4, atol=1e-7)
    assert sorted(np.concatenate([piece.places for piece in pieces])) == list(range(task.dimension))


def test_a_way_back_is_not_charged_with_the_import_of_sympy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has it imported where a gradient is given as such: 0.5 s of the first computation of every worker."""
    node = node_of(task_of("digits_mlp"))
    bottom = node.piece(last="2")
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)
    outputs = bottom.forward(0, np.ones((4, *bottom.layout.input_shape), np.float32))
    bottom.backward(0, np.ones_like(outputs))
    assert bottom.gradient.abs().max() > 0


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_of_a_weighted_end_is_the_weight_to_the_bit(layout: torch.memory_format) -> None:
    torch.manual_seed(3)
    x = torch.randn(6, 3, 5, 5).contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(4, 3, 3, 3).requires_grad_()
    y = torch.nn.functional.conv2d(x, weight).tanh()
    g = torch.randn(y.shape) * 10.0 ** torch.randint(-30, 30, y.shape)
    for found, expected in zip(torch.autograd.grad(weighted_end(y, g), [y, x, weight], retain_graph=True),
                               torch.autograd.grad(y, [y, x, weight], g), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(("model", "solver"), [
    ("digits_cnn", {"sgd": {"lr": 0.1, "steps": 3, "batch": 40, "momentum": 0.9}}),
    ("digits_mlp", {"adam": {"lr": 0.01, "steps": 3, "batch": 16, "weight_decay": 0.01}})])
@pytest.mark.parametrize("parts", [1, 3])
def test_pieces_that_are_trained_are_the_whole_model_trained_on_the_same_batches(
        model: str, solver: dict[str, Any], parts: int) -> None:
    """In micro-batches, too, whose gradients add up."""
    task = task_of(model, solver)
    start = task.initial_parameters()
    expected = start + node_of(task).local_update(start)[0]
    node = node_of(task)
    pieces = cut_at(node, "1")
    seen, plan = node.planned()
    for step, rows in enumerate(plan):
        for part, some in enumerate(np.array_split(rows, parts)):
            passed(pieces, (step, part), seen.x[some].numpy(), seen.y[some].numpy(), len(some) / len(rows))
        for piece in pieces:
            piece.step()
    found = np.empty_like(start)
    for piece in pieces:
        found[piece.places] = piece.parameters
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    assert np.abs(found - start).max() > 1e-3


def test_an_open_pass_goes_back_through_the_parameters_that_it_was_made_with() -> None:
    task = task_of("digits_mlp")
    bottom, top = cut_at(node_of(task), "2")
    batch = task.examples(8)
    x, y = batch.x.numpy(), batch.y.numpy()
    gradient, _ = top.learn(bottom.forward("old", x, 1), y, 1.0, 1)
    bottom.backward("old", gradient)
    expected = bottom.gradient.clone()
    bottom.step()
    bottom.load(task.initial_parameters()[bottom.places])
    bottom.forward("old", x, 1)
    bottom.gradient += 1                                # another batch comes first
    bottom.step()
    bottom.backward("old", gradient)
    torch.testing.assert_close(bottom.gradient, expected)
    with pytest.raises(PieceError, match=r"^there is no open pass 'old'; open are \[\]$"):
        bottom.backward("old", gradient)


def test_dropout_of_a_pass_is_drawn_from_the_stream_of_its_node_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("digits_mlp")
    whole = task.module()
    monkeypatch.setattr(task, "module", lambda: torch.nn.Sequential(whole[0], torch.nn.Dropout(0.5), *whole[1:]))
    first, again = (node_of(task).piece(last="1") for _ in range(2))
    other = task.for_node("client2", 1, lambda: 1).piece(last="1")
    x = task.examples(4).x.numpy()
    drawn = first.forward(0, x, 1)
    assert np.array_equal(drawn, again.forward(0, x, 1))
    assert not np.array_equal(drawn, first.forward(1, x, 1))
    assert not np.array_equal(drawn, other.forward(0, x, 1))


@pytest.mark.parametrize(("after", "last", "said"), [
    ("9", None, 'no layer "9": expected one of 0, 1, 2, 3'), (None, "conv1", 'no layer "conv1": expected one of'),
    ("2", "1", "no layer lies between 2 and 1"), ("3", None, "no layer lies between 3 and the outputs")])
def test_a_cut_that_does_not_exist_is_an_error(after: str | None, last: str | None, said: str) -> None:
    with pytest.raises(PieceError, match=f"^{said}"):
        node_of(task_of("digits_mlp")).piece(after, last)


def test_cuts_are_checked_before_a_run() -> None:
    task = {"data": {"set": "digits"}, "model": "digits_classic"}
    assert wrong_cuts(task, {"cut": "2", "head": "8"}) == []
    assert wrong_cuts(task, {"cut": "8", "head": "2"}) == [("head", "no layer lies between 8 and 2")]
    assert wrong_cuts(task, {"cut": "9"}) == [("cut", "no layer lies between 9 and the outputs")]
    residual = wrong_cuts({"data": {"set": "digits"}, "model": "digits_residual"}, {"cut": "0"})
    assert residual == [] or "expected a model that is an nn.Sequential" in residual[0][1]
    assert wrong_cuts({"data": {"set": "mine"}, "model": "own"}, {"cut": "x"}) == []


# --- passes of several nodes at once ----------------------------------------------------------------------------------

NODES = range(4)
NETS: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Dropout(0.4), nn.Tanh(), nn.Linear(24, 10)),
    "norm": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)),
    "mapped": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
                                    nn.Linear(144, 10)),
    "frozen": lambda: frozen(nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10)))}


def frozen(net: nn.Module) -> nn.Module:
    """Its first linear layer is not trained."""
    assert isinstance(net, nn.Sequential)
    net[1].requires_grad_(False)
    return net


def several(net: str, monkeypatch: pytest.MonkeyPatch, cut: dict[str, str], batch: int = 6) -> tuple[
        Task, list[Piece], list[np.ndarray]]:
    """A task, a piece at each of several nodes with parameters of its own, and inputs of each."""
    torch.manual_seed(1)
    whole, rng = NETS[net](), np.random.default_rng(3)
    monkeypatch.setattr("emul.learning.models.create", lambda *_: whole)
    task = Task({"data": {"set": "digits"}, "model": "digits_mlp", "solver": {"sgd": {"lr": 0.1, "momentum": 0.5,
                 "steps": 1, "batch": batch}}}, len(NODES), 1)
    pieces = [task.for_node(f"client{k + 1}", k, lambda: 1).piece(**cut) for k in NODES]
    for piece in pieces:
        piece.replace(piece.parameters + rng.normal(scale=0.1, size=len(piece.parameters)).astype(np.float32))
    return task, pieces, [rng.normal(size=(batch, *piece.layout.input_shape)).astype(np.float32) for piece in pieces]


def trained(task: Task, pieces: Sequence[Piece], xs: Sequence[np.ndarray], there: Sequence[Sequence[int]],
            back: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Three steps of each piece; what comes out, goes back and is left. there, back: whose passes are side by side."""
    found: dict[Any, np.ndarray] = {}

    def forward(step: int, k: int) -> None:
        found[k, step, "outputs"] = pieces[k].forward(step, xs[k], 1)

    def backward(step: int, k: int) -> None:
        found[k, step, "gradient"] = pieces[k].backward(step, 0.03 * np.cos(found[k, step, "outputs"]))
        pieces[k].step()
        found[k, step, "parameters"] = pieces[k].parameters

    for step in range(3):
        for work, groups in ((forward, there), (backward, back)):
            for group in groups:
                runs = [lambda work=work, step=step, k=k: work(step, k) for k in group]     # type: ignore[misc]
                task.together.run(runs) if len(runs) > 1 else runs[0]()
    return [found[key] for key in sorted(found)]


ALONE = [[k] for k in NODES]


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("cut", [{"last": "2"}, {"after": "0", "last": "3"}])
def test_passes_of_several_nodes_are_those_of_each_alone(net: str, cut: dict[str, str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes back together: of others than went there together the forward pass is made once more."""
    task, pieces, xs = several(net, monkeypatch, cut)
    alone = trained(task, [piece.copy() for piece in pieces], xs, ALONE, ALONE)
    calls, whole = [], _Stacked.forward
    monkeypatch.setattr(_Stacked, "forward", lambda stacked: calls.append(len(stacked.x)) or whole(stacked))
    for back, passes in (([[0, 1, 2, 3]], 1), ([[3, 0, 2, 1]], 1), ([[0, 1], [2, 3]], 3), ([[0, 1, 2], [3]], 3),
                         (ALONE, 5)):
        calls.clear()
        beside, again = (trained(task, [piece.copy() for piece in pieces], xs, [list(NODES)], back) for _ in range(2))
        assert len(calls) == 2 * 3 * passes
        assert all(map(np.array_equal, beside, again))
        for one, other in zip(alone, beside, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_a_pass_that_others_do_not_share_is_computed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another size, or of another cut: to the bit."""
    task, pieces, xs = several("norm", monkeypatch, {"last": "2"})
    other = task.for_node("client4", 3, lambda: 1).piece(last="3")
    pieces, xs = [*pieces[:3], other], [*xs[:2], xs[2][:4], xs[3]]
    copies = [piece.copy() for piece in pieces]
    beside = trained(task, pieces, xs, [list(NODES)], [list(NODES)])
    alone = trained(task, copies, xs, ALONE, ALONE)
    for one, both in zip(np.array_split(np.arange(len(alone)), 4), (True, True, False, False), strict=True):
        equal = [np.array_equal(beside[i], alone[i]) for i in one]
        assert all(equal) or both
        assert all(np.allclose(beside[i], alone[i], rtol=1e-4, atol=1e-5) for i in one)


def test_layers_that_cannot_be_stacked_are_computed_alone(monkeypatch: pytest.MonkeyPatch,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return x

    monkeypatch.setitem(NETS, "own", lambda: nn.Sequential(nn.Flatten(), Counting(), nn.Linear(64, 10)))
    alone = trained(*several("own", monkeypatch, {}), ALONE, ALONE)
    beside = trained(*several("own", monkeypatch, {}), [list(NODES)], [list(NODES)])
    assert all(map(np.array_equal, beside, alone))
    assert [line for line in caplog.messages if "pieces are computed one after the other" in line
            ] == ["pieces are computed one after the other: its forward pass changes buffers"]


def test_passes_that_are_given_up_leave_those_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    task, pieces, xs = several("dropout", monkeypatch, {"last": "2"})
    copies = [piece.copy() for piece in pieces]
    out: dict[int, np.ndarray] = {}
    task.together.run([lambda k=k: out.update({k: pieces[k].forward(0, xs[k], 1)}) for k in NODES])  # type: ignore
    pieces[1].load(pieces[1].parameters)
    task.together.run([lambda k=k: out.update({k: pieces[k].backward(0, out[k])}) for k in (0, 2, 3)])   # type: ignore
    for k in (0, 2, 3):
        copies[k].backward(0, copies[k].forward(0, xs[k], 1))
        torch.testing.assert_close(pieces[k].gradient, copies[k].gradient)
    with pytest.raises(PieceError, match="no open pass"):
        pieces[1].backward(0, out[1])
