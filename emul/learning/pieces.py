"""A model in pieces that several nodes hold: runs of its layers, each with its own parameters and its own optimiser.

    bottom = node.task.piece(last="2")                      # from the first layer to the one called "2"
    top = node.task.piece(after="2")                        # the layers behind it

    activations = bottom.forward(7, x)                      # 7: a key of the caller's, of a pass that is still open
    gradient = top.learn(activations, targets)              # by its inputs; its own is added up
    bottom.backward(7, gradient)
    top.step(), bottom.step()

Layers have the names that they have in the module, dotted where sequences lie in sequences. A piece keeps the graph of
each open forward pass, with the parameters of that time, so that several batches may be under way. Gradients of
backward passes add up until `step`, which descends with the task's solver; the state of the solver stays with the
piece. A step does what a step of `node.task.local_update` does, so that pieces that are trained in turn are the whole
model. Where computations of several nodes run side by side (`fuse`), their passes through equal pieces are one pass
(`emul.learning.stacked_pieces`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from emul.base.errors import EmulError
from emul.base.streams import torch_stream
from emul.learning.fused import refusal
from emul.learning.objectives import Batch, Objective, Outputs, equal_weights, split
from emul.learning.parameters import FlatModule
from emul.learning.stacked_pieces import Asked, Back, Layers, Passed, There, came_back
from emul.learning.training import (
    NATIVE_BELOW,
    Stream,
    aligned,
    drawing,
    laid_out,
    native_convolutions,
    stepper,
    weighted_end,
)

if TYPE_CHECKING:
    from emul.learning.device import Device
    from emul.learning.solver import Solver
    from emul.learning.task_parts import TaskParts
    from emul.learning.together import Together

_PROBED = 3                         # samples that a piece is tried with, as `refusal` wants them
_log = logging.getLogger(__name__)


class PieceError(EmulError):
    """A model cannot be cut there, or a pass is asked for that was not begun."""


class PieceLayout:
    """The layers of a piece, where its parameters lie in the model's vector, and the shapes of what goes in and out.

    One for all nodes of a worker that hold this piece: parameters are put in for each pass.
    """

    def __init__(self, module: nn.Sequential, device: Device, places: np.ndarray, x: Any, is_first: bool):
        """module: its layers, with their first parameters. x: samples as they go in. is_first: nobody wants a gradient
        by its inputs."""
        self.module, self.flat, self.is_first = module, FlatModule(module, device), is_first
        self.places = places
        self.names = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
        self.initial = self.flat.read()
        with torch.no_grad():
            outputs = module.eval()(x.to(device.kind))
        self.input_shape, self.output_shape = tuple(x.shape[1:]), tuple(outputs.shape[1:])
        self._x = x

    @cached_property
    def layers(self) -> Layers | None:
        """For passes of several nodes at once; None: they go one after the other, which is said once."""
        flat = self.flat
        # a GPU draws the masks of a lone pass itself, and of several nothing would draw the same
        reason = "dropout on a GPU" if flat.draws and not flat.device.on_cpu else refusal(self.module, self._x)
        if reason is not None:
            _log.warning("pieces are computed one after the other: %s", reason)
            return None
        return Layers(self.module, flat, self.is_first)

    @classmethod
    def of_run(cls, task: TaskParts, after: str | None, last: str | None) -> PieceLayout:
        """Of the layers behind `after` up to `last` of the task's model. Raises PieceError."""
        module = task.module()
        first, stop = run_of(module, after, last)
        layers = layers_of(module)
        named = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
        mine, rest = layers[first:stop], [*layers[:first], *layers[stop:]]
        shared = {id(t) for _, layer in mine for t in layer.parameters()} & {
            id(t) for _, layer in rest for t in layer.parameters()}
        if shared:
            raise PieceError(f"layers on both sides of the cut share {named[shared.pop()]}")
        x = task.examples(_PROBED).x
        with torch.no_grad():
            for _, layer in layers[:first]:
                x = layer.eval()(x)
        slices = [place for _, place in task._model.slices]
        whole = dict(zip(task.named(np.arange(task.dimension, dtype=np.float64)), slices, strict=True))
        part = nn.Sequential(*(layer for _, layer in mine))
        names = [named[id(t)] for t in (*(p for p in part.parameters() if p.requires_grad), *part.buffers())]
        places = [np.arange(whole[name].start, whole[name].stop) for name in names if name in whole]
        return cls(part, task.device, np.concatenate([np.zeros(0, np.int64), *places]), x, first == 0)

    @classmethod
    def of_tower(cls, task: TaskParts, party: int, width: int) -> PieceLayout:
        """Of what a party with columns of the samples makes of them: the task's model for inputs of their shape, with
        `width` outputs, drawn by a seed of its own."""
        module = task.tower(party, width)
        x = torch.zeros((_PROBED, *task.columns.shape_of(party)))
        return cls(module if type(module) is nn.Sequential else nn.Sequential(module), task.device,
                   np.zeros(0, np.int64), x, True)

    @classmethod
    def of_top(cls, task: TaskParts, width: int) -> PieceLayout:
        """Of what the holder of the labels makes of the outputs of all towers, one behind the other: ReLU and a linear
        layer."""
        inputs = width * len(task.columns)
        with torch_stream(task.seed, "init", "top"):
            module = nn.Sequential(nn.ReLU(), nn.Linear(inputs, task.data.outputs))
        return cls(module, task.device, np.zeros(0, np.int64), torch.zeros((_PROBED, inputs)), False)


class Piece:
    """A piece at one node: parameters, the state of its optimiser, gradients that wait for a step, and open passes.

    Keep it in `node.state`. Arrays come and go as float32 in the host's memory.
    """

    def __init__(self, layout: PieceLayout, solver: Solver, objective: Objective, seed: int, name: str,
                 vector: np.ndarray, computes: bool = True,
                 together: Callable[[], Together[Asked, object]] | None = None):
        """together: gives what runs computations of several nodes side by side, now."""
        loss, penalties = split(objective)
        if loss is None or penalties or loss.on_features:
            raise PieceError(f"the objective {objective} needs more of the model than its last piece has")
        self.layout = layout
        self._solver, self._objective, self._seed, self._name, self._computes = solver, objective, seed, name, computes
        self._device: Device = layout.flat.device
        self._vector = torch.empty(layout.flat.dimension, device=self._device.kind)
        self.weights = self._vector[:layout.flat.trained]                   # views and names as `stepper` has them
        self.gradient = torch.zeros(layout.flat.trained, device=self._device.kind)
        self._together = together
        # key -> (inputs, weights, outputs), or a pass that was one with those of others
        self._open: dict[Hashable, tuple[Tensor, Tensor, Tensor] | Passed] = {}
        self._passes = (0, 0)                                               # (round, passes in it)
        self.load(vector)

    @property
    def places(self) -> np.ndarray:
        """The positions of its parameters in the model's vector, (p,) int64; none of a tower or a top of towers."""
        return self.layout.places

    @property
    def parameters(self) -> np.ndarray:
        """(p,) float32, a fresh array."""
        return self._device.fetch(self._vector).clone().numpy()

    @property
    def matrices(self) -> Tensor:
        """As `stepper` asks for it."""
        return self.layout.flat.matrices

    @property
    def pending(self) -> list[Any]:
        """The keys of the passes that are open."""
        return list(self._open)

    def load(self, vector: np.ndarray) -> None:
        """Take other parameters, (p,); the optimiser begins anew, and open passes are given up."""
        self.replace(vector)
        self._step = stepper(self._solver, self)

    def replace(self, vector: np.ndarray) -> None:
        """Take other parameters, (p,), and go on with the state of the optimiser. Open passes are given up."""
        if vector.shape != tuple(self._vector.shape):
            raise PieceError(f"expected parameters of shape {tuple(self._vector.shape)}, found {vector.shape}")
        self._vector.copy_(torch.from_numpy(np.array(vector, np.float32)))
        self.gradient.zero_()
        self._open.clear()

    def copy(self) -> Piece:
        """Another one with these parameters, whose optimiser begins anew."""
        return Piece(self.layout, self._solver, self._objective, self._seed, self._name, self.parameters,
                     self._computes, self._together)

    def forward(self, key: Hashable, inputs: Any, round_: int = 0) -> np.ndarray:
        """Outputs (B, ...) of inputs (B, ...) at the present parameters. The pass stays open, under this key, until
        `backward` or `load`. round_: names the stream of dropout, with the number of the pass in that round."""
        if not self._computes:
            self._open[key] = (torch.zeros((len(inputs), *self.layout.input_shape)),) * 3
            return np.zeros((len(inputs), *self.layout.output_shape), np.float32)
        values, stream = np.array(inputs), self._stream(round_)
        runner = self._runner
        if runner is not None and self.layout.layers is not None:
            passed = runner.ask(There(self.layout.layers, self._vector, values, stream))
            if isinstance(passed, Passed):                  # else nobody else has such a pass
                self._open[key] = passed
                self._vector[self.layout.flat.trained:] = passed.buffers
                return passed.outputs
        x, weights, outputs = self._pass(values, stream)
        self._open[key] = x, weights, outputs
        return self._device.fetch(outputs.detach()).clone().numpy()

    def backward(self, key: Hashable, gradient: np.ndarray) -> np.ndarray:
        """Add the gradient by its parameters up, from that by the outputs (B, ...) of an open pass; returns that by its
        inputs, (B, ...), zeros for inputs that are no floats. Raises PieceError if there is no such pass."""
        if key not in self._open:
            raise PieceError(f"there is no open pass {key!r}; open are {self.pending}")
        opened = self._open.pop(key)
        if isinstance(opened, Passed):
            back, runner = Back(opened, np.array(gradient, np.float32)), self._runner
            found = came_back([back])[0] if runner is None else runner.ask(back)
            assert isinstance(found, tuple)
            own, by_inputs = found
            self.gradient.add_(own)
            return by_inputs
        x, weights, outputs = opened
        if not self._computes:
            return x.numpy()
        return self._backward(x, weights, outputs, self._device.put(np.array(gradient, np.float32)))

    def learn(self, inputs: np.ndarray, targets: np.ndarray, share: float = 1.0, round_: int = 0,
              ) -> tuple[np.ndarray, float]:
        """Of the last piece: (gradient by the inputs (B, ...), loss) of `share` times the mean loss of these samples,
        with its own gradient added up. share: B of the samples of the step, where a step has several such parts."""
        if not self._computes:
            return np.zeros(np.shape(inputs), np.float32), 0.0
        x, weights, outputs = self._pass(np.array(inputs), self._stream(round_))
        y = self._device.put(np.array(targets))
        loss = self._objective.total(Outputs(outputs), Batch(x, y), equal_weights(y))
        scaled = loss if share == 1.0 else loss * share
        return self._backward(x, weights, scaled, None), float(loss.detach())

    def outputs(self, inputs: Any) -> np.ndarray:
        """Outputs (B, ...) of inputs (B, ...) as the model is evaluated: without dropout, with running statistics."""
        if not self._computes:
            return np.zeros((len(inputs), *self.layout.output_shape), np.float32)
        x = aligned(np.array(inputs)).to(self._device.kind)
        with torch.no_grad():
            found = functional_call(self.layout.module.eval(), self._named(self.weights), (x,), tie_weights=False)
        return self._device.fetch(found).clone().numpy()

    def collect(self) -> Tensor:
        """The gradient that has added up, which is 0 from now on: for who adds up several of them side by side."""
        found = self.gradient.clone()
        self.gradient.zero_()
        return found

    def step(self, gradient: Tensor | None = None) -> None:
        """Descend by the gradients that have added up; gradient: by that one instead, which was collected."""
        if gradient is not None:
            self.gradient.copy_(gradient)
        self._step()
        self.gradient.zero_()

    @property
    def _runner(self) -> Together[Asked, object] | None:
        """The object that runs this computation beside those of other nodes; None: it runs by itself."""
        together = None if self._together is None else self._together()
        return together if together is not None and together.running else None

    def _stream(self, round_: int) -> Stream:
        """Of the next pass."""
        number = self._passes[1] if self._passes[0] == round_ else 0
        self._passes = round_, number + 1
        return Stream(self._seed, self._name, round_, number)

    def _pass(self, inputs: np.ndarray, stream: Stream) -> tuple[Tensor, Tensor, Tensor]:
        layout = self.layout
        x = laid_out(aligned(inputs), len(inputs)).to(self._device.kind)
        if x.is_floating_point():
            x.requires_grad_(not layout.is_first)
        weights = self.weights.clone().requires_grad_()
        named = self._named(weights)
        module = layout.module.train()
        with drawing(layout.flat, len(x), stream):
            outputs = functional_call(module, named, (x,), tie_weights=False)
        for tensor, place in layout.flat.slices:        # the running statistics that the pass has changed
            if place.start >= layout.flat.trained:
                self._vector[place] = named[layout.names[id(tensor)]].reshape(-1).to(torch.float32)
        return x, weights, outputs

    def _named(self, weights: Tensor) -> dict[str, Tensor]:
        """The tensors of the module: parameters as views of `weights`, buffers as copies."""
        flat, found = self.layout.flat, {}
        for tensor, place in flat.slices:
            value = weights[place] if place.stop <= flat.trained else self._vector[place].clone()
            value = value.view(tensor.shape)
            found[self.layout.names[id(tensor)]] = value if tensor.is_floating_point() else value.to(tensor.dtype)
        return found

    def _backward(self, x: Tensor, weights: Tensor, outputs: Tensor, gradient: Tensor | None) -> np.ndarray:
        if not outputs.requires_grad:                       # a piece without a parameter that is trained
            return np.zeros(tuple(x.shape), np.float32)
        wanted = [weights, x] if x.requires_grad else [weights]
        with native_convolutions() if len(x) < NATIVE_BELOW else contextlib.nullcontext():
            end = outputs if gradient is None else weighted_end(outputs, gradient)
            found = torch.autograd.grad(end, wanted, allow_unused=True)
        if found[0] is not None:
            self.gradient.add_(found[0])
        if not x.requires_grad or found[1] is None:
            return np.zeros(tuple(x.shape), np.float32)
        return self._device.fetch(found[1]).contiguous().clone().numpy()


# --- where a model can be cut -----------------------------------------------------------------------------------------

def layers_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of nested sequences with their names, in the order in which they are called. Raises PieceError for a
    module that is no sequence, or calls a layer twice."""
    if type(module) is not nn.Sequential:
        raise PieceError(f"expected a model that is an nn.Sequential, found {type(module).__name__}")
    found: list[tuple[str, nn.Module]] = []

    def walk(part: nn.Module, prefix: str) -> None:
        for name, layer in part.named_children():
            if type(layer) is nn.Sequential:
                walk(layer, f"{prefix}{name}.")
            else:
                found.append((prefix + name, layer))

    walk(module, "")
    return found


def run_of(module: nn.Module, after: str | None, last: str | None) -> tuple[int, int]:
    """(first, stop) of the layers behind `after` up to `last`, by their names or those of sequences of them; None: from
    the first, to the last. Raises PieceError for a name that the model has not, and for a piece without a layer."""
    names = [name for name, _ in layers_of(module)]
    first = 0 if after is None else _end_of(names, after)
    stop = len(names) if last is None else _end_of(names, last)
    if first >= stop:
        raise PieceError(f"no layer lies between {after if after is not None else 'the inputs'} and "
                         f"{last if last is not None else 'the outputs'}")
    return first, stop


def _end_of(names: Sequence[str], cut: str) -> int:
    """The number of layers up to the end of the layer, or sequence, of that name."""
    ends = [at + 1 for at, name in enumerate(names) if name == cut or name.startswith(f"{cut}.")]
    if not ends:
        raise PieceError(f'no layer "{cut}": expected one of {", ".join(names)}')
    return ends[-1]
