"""A model in disguise: what clients train on in MP-DP instead of the server's own.

X. Yang et al., arXiv 2412.11737, sections 4.1 and 4.2, after arXiv 2002.09843. Rows of a weight layer are multiplied
by secret scales r > 0, a *transitional* diagonal behind every activation turns them into 1/s, and the columns of the
next layer are multiplied by s, so that

    R_ij = r_i s_j,     t_i = 1 / (r_i s_i),     y^(x) = y(x) + alpha(x) r,     alpha(x) = sum of h^(x)

with h^ what feeds the last layer and r an additive secret of the outputs. Positive scales commute with what is
positively homogeneous: ReLU, pooling, dropout. Others are refused by name (sigmoid, layer norm), and so are
weights that a pass uses twice: each place would need scales of its own, and weights have one.

A value of the disguised model is the true one times a scale for each channel, its *carried* scale. A `Disguise`, when
it is made, follows these through the graph of the module once; a round only draws secrets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.fx.passes.shape_prop import ShapeProp

from emul.base.errors import EmulError
from emul.base.streams import torch_stream
from emul.learning.dropout import Dropout
from emul.learning.objectives import Outputs
from emul.store import KeyMaker

if TYPE_CHECKING:
    from emul.learning.parameters import FlatModule

Vector = np.ndarray

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.PReLU)
_PASSING = (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
            nn.AdaptiveMaxPool2d, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, Dropout)
_ACTIVATION_CALLS = (torch.relu, F.relu, F.leaky_relu, "relu")
_PASSING_CALLS = (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.dropout, "contiguous", "clone")
_ADDING_CALLS = (operator.add, operator.iadd, torch.add, "add")
_FLATTENING_CALLS = (torch.flatten, "flatten", "view", "reshape")


class CannotBeDisguised(EmulError):
    """A model has a layer that does not commute with positive scales, or a form that is not followed."""


@dataclass(frozen=True)
class Secrets:
    """The secrets that the server draws for a round, and keeps.

    rows: r of each group of weight layers that end in one sum; columns: s of each transitional layer, all positive.
    output: the additive direction r, (n_L,); zeros: none.
    """

    rows: tuple[Vector, ...]
    columns: tuple[Vector, ...]
    output: Vector


@dataclass(frozen=True)
class Carried:
    """The scale of each channel of a value: r of a group, 1/s of a transitional layer, or 1 where `what` is "".

    then: what has become of the channels since, ("repeat", times) by a flattening, ("pad", before, after) by a padding.
    """

    what: str = ""
    number: int = 0
    then: tuple[tuple[Any, ...], ...] = ()

    def of(self, secrets: Secrets, groups: list[int]) -> Any:
        """The scales, or 1.0."""
        if not self.what:
            return 1.0
        scales = secrets.rows[groups[self.number]] if self.what == "r" else 1.0 / secrets.columns[self.number]
        for name, *how in self.then:
            scales = np.repeat(scales, how[0]) if name == "repeat" else np.pad(scales, how, constant_values=1.0)
        return scales

    def and_then(self, *operation: object) -> Carried:
        return Carried(self.what, self.number, (*self.then, operation)) if self.what else self


@dataclass(frozen=True)
class _Scaled:
    """The factors of a parameter or buffer: rows / columns, each to its power."""

    rows: Carried = Carried()
    columns: Carried = Carried()
    power: int = 1


class Disguise:
    """The disguise of a model: which secrets it needs, how they enter, and its forward pass.

    row_widths, column_widths: lengths of the secrets. row_alone, column_alone: whether one is the only factor of the
    weights that it multiplies (those of the first and of the last layer). diagonals: how many numbers clients get
    beside the parameters. outputs: n_L. features: n_{L-1}. trained: entries of the vector before running statistics.
    mixing: layers that make one sample's output depend on others of its batch, or keep statistics of batches.
    Raises CannotBeDisguised, naming the layer, a frozen parameter, or a buffer that is no running statistic.
    """

    def __init__(self, model: FlatModule, input_shape: tuple[int, ...]):
        self._model, self.trained = model, model.trained
        follower = _Follower(model.module, input_shape)
        self._graph, self._scaled, self._diagonals = follower.module, follower.scaled, follower.diagonals
        self._groups, self._last, self._before = follower.groups.flat(), follower.last, follower.before
        self.row_widths, self.row_alone = follower.groups.widths(), follower.groups.alone()
        self.column_widths, self.column_alone = tuple(follower.column_widths), tuple(follower.column_alone)
        self.diagonals = sum(width for _, width, _ in self._diagonals)
        self.outputs, self.features, self.mixing = follower.outputs, follower.features, tuple(follower.mixing)
        self._running = _running(model, follower)
        self._names = {name for name, _ in (*self._graph.named_parameters(), *self._graph.named_buffers())}

    # --- the server: disguise and recover ---------------------------------------------------------------------------

    def tied_columns(self, rows: tuple[Vector, ...]) -> tuple[Vector, ...]:
        """The s with which every transitional layer is 1, s = 1 / r: R_ij = r_i / r_j, as in arXiv 2002.09843."""
        return tuple(1.0 / carried.of(Secrets(rows, (), np.zeros(0)), self._groups) for carried in self._before)

    def multipliers(self, secrets: Secrets) -> Vector:
        """R of every entry of the vector, (d,) float64; those of buffers are what their values are multiplied by."""
        parts = self._model.named(np.ones(self._model.dimension, np.float32))
        return np.concatenate([self._multiplier(name, ones.shape, secrets).reshape(-1) for name, ones in parts.items()])

    def _multiplier(self, name: str, shape: tuple[int, ...], secrets: Secrets) -> Vector:
        how = self._scaled.get(name, _Scaled())
        found = np.ones(shape)
        rows, columns = how.rows.of(secrets, self._groups), how.columns.of(secrets, self._groups)
        if not np.isscalar(rows):
            found *= np.reshape(rows, (-1, *[1] * (len(shape) - 1)))
        if not np.isscalar(columns):
            found /= np.reshape(columns, (1, -1, *[1] * (len(shape) - 2)))
        return found ** how.power

    def lacking(self) -> Vector:
        """Of each entry which secrets its R lacks beside those of a weight, (d,) int8: 0 none, 1 the columns' s, 2 the
        rows' r, 3 both, so that R = 1. Section 5.1, corrected: a bias has r alone, that of the last layer nothing."""
        parts = self._model.named(np.ones(self._model.dimension, np.float32))
        return np.concatenate([np.full(ones.size, self._lacks(self._scaled.get(name, _Scaled())), np.int8)
                               for name, ones in parts.items()])

    def _lacks(self, how: _Scaled) -> int:
        row, column = how.rows.what == "r", how.columns.what == "1/s"
        if row and not column:
            return 0 if self.row_alone[self._groups[how.rows.number]] else 1
        if column and not row:
            return 0 if self.column_alone[how.columns.number] else 2
        return 0 if row else 3

    def disguised(self, parameters: Vector, secrets: Secrets) -> Vector:
        """W^ = R o W, and r added to every column of the last layer: (d,) float64. Section 4.1, equations (6), (7)."""
        found = self.multipliers(secrets) * parameters
        self._model.named(found)[self._last][...] += secrets.output[:, None]
        return found

    def undisguised(self, hidden: Vector, secrets: Secrets) -> Vector:
        """W, (d,) float64, of what `disguised` gave: for who knows the secrets."""
        found = np.array(hidden, np.float64)
        self._model.named(found)[self._last][...] -= secrets.output[:, None]
        return found / self.multipliers(secrets)

    def transitions(self, secrets: Secrets) -> Vector:
        """Every diagonal of the disguised model one after the other, (diagonals,) float64: t, q of shortcuts, and eps
        of the channels of norms, which tell r to whoever gets them."""
        return np.concatenate([np.zeros(0), *(
            np.broadcast_to(value(secrets, self._groups), (width,)) for _, width, value in self._diagonals)])

    def recovered(self, blocks: Vector, multipliers: Vector, weights: Vector) -> Vector:
        """g = R o (ghat - sum_c r_c Psi_c + v Phi), (d,): the true gradient. Section 4.3, corrected. Of running
        statistics W - statistic, which are over R as W is: what clients send of them is divided by it.

        blocks: (S, d), in the order of `BlockScalars`. weights: (S,), of `recovery_weights`; (1,): no additive part.
        """
        found = multipliers * (weights @ blocks)
        found[self.trained:] /= np.square(multipliers[self.trained:])
        return found

    def stepped(self, parameters: Vector, g: Vector, lr: float) -> Vector:
        """W - lr g, (d,) float64, g: of `recovered`. Running statistics move by the momentum of their layers, and noise
        leaves no variance below 0; counters of batches stay."""
        found = parameters - lr * g
        for place, momentum, least in self._running:
            found[place] = np.maximum(parameters[place] - momentum * g[place], least)
        return found

    # --- the client: forward pass and scalars -------------------------------------------------------------------------

    def forward(self, diagonals: Vector) -> DisguisedPass:
        """The disguised pass, ({name: tensor}, inputs) -> Outputs(y^ (B, n_L), h^ (B, n_{L-1})), for
        `node.task.gradients`. diagonals: of `transitions`. Norms take statistics of the batch."""
        return DisguisedPass(self, diagonals)

    def run(self, diagonals: Vector, named: Mapping[str, Tensor], x: Any) -> Outputs:
        """The pass that `forward` gives."""
        like = next(iter(named.values()))
        put = torch.as_tensor(np.array(diagonals), dtype=like.dtype, device=like.device)
        widths = [width for _, width, _ in self._diagonals]
        own = {name: part for (name, _, _), part in zip(self._diagonals, put.split(widths), strict=True)}
        known = {name: tensor for name, tensor in named.items() if name in self._names}
        logits, features, statistics = functional_call(self._graph, {**known, **own}, (x,))
        return Outputs(logits, features, statistics=statistics)


@dataclass(frozen=True, eq=False)
class DisguisedPass:
    """A forward pass as a value, so that gradients of it can be kept (`emul.learning.results`)."""

    disguise: Disguise
    diagonals: Vector

    @property
    def content_key(self) -> bytes:
        """The diagonals alone: the disguise is that of the task's model."""
        return KeyMaker().key(self.diagonals)

    def __call__(self, named: Mapping[str, Tensor], x: object) -> Outputs:
        return self.disguise.run(self.diagonals, named, x)


def recovery_weights(output: Vector, directions: Vector | None = None) -> Vector:
    """(S,) float64: what the blocks ghat, Psi_1.., Phi are multiplied by. output: r, (n_L,). directions: (G, n_L) rows
    a_g whose combination r is, for the compact variant; None: the unit vectors.

    Raises ValueError if r is no combination of the directions.
    """
    shares = output if directions is None else np.linalg.lstsq(directions.T, output, rcond=None)[0]
    if directions is not None and not np.allclose(shares @ directions, output):
        raise ValueError("r is no combination of the directions")
    return np.array([1.0, *(-shares), output @ output])


@dataclass(frozen=True, eq=False)
class BlockScalars:
    """S_0, S_1, S_2 of section 4.2, weighted means over the batch, for `node.task.gradients`: (1,) without the additive
    part, else (G + 2,): 1/2 ||d||^2; alpha (a_g . d) for each direction; 1/2 alpha^2, where d = y^ - one-hot target.

    directions: (G, n_L); None: the unit vectors, all n_L outputs of them. The loss has to be quadratic in the outputs.
    """

    directions: Vector | None
    outputs: int
    additive: bool

    def __call__(self, given: Outputs, batch: Any, weights: Tensor) -> Tensor:
        y = batch.y
        if not y.is_floating_point():           # as F.one_hot, which cannot be mapped over samples
            y = (y[:, None] == torch.arange(self.outputs, device=y.device)).to(given.logits.dtype)
        d = given.logits - y
        squared = (weights * d.square().sum(1)).sum() / 2
        if not self.additive:
            return squared[None]
        assert given.features is not None
        alpha = given.features.sum(1)
        along = d if self.directions is None else d @ torch.as_tensor(
            np.array(self.directions), dtype=d.dtype, device=d.device).T
        return torch.cat([squared[None], ((weights * alpha)[:, None] * along).sum(0),
                          (weights * alpha.square()).sum()[None] / 2])


# --- following the scales through a module ----------------------------------------------------------------------------

class _Groups:
    """Row secrets, some of which turn out to be one: those of branches that are added."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._width: list[int] = []
        self._alone: list[bool] = []

    def add(self, width: int, alone: bool) -> int:
        self._parent.append(len(self._parent))
        self._width.append(width)
        self._alone.append(alone)
        return len(self._parent) - 1

    def join(self, a: int, b: int) -> None:
        a, b = sorted((self._root(a), self._root(b)))
        self._parent[b] = a
        self._alone[a] &= self._alone[b]

    def _root(self, number: int) -> int:
        while self._parent[number] != number:
            number = self._parent[number]
        return number

    def _roots(self) -> list[int]:
        return sorted({self._root(number) for number in range(len(self._parent))})

    def flat(self) -> list[int]:
        """The place of each group's secret in `Secrets.rows`."""
        place = {root: at for at, root in enumerate(self._roots())}
        return [place[self._root(number)] for number in range(len(self._parent))]

    def widths(self) -> tuple[int, ...]:
        return tuple(self._width[root] for root in self._roots())

    def alone(self) -> tuple[bool, ...]:
        return tuple(self._alone[root] for root in self._roots())


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Dropout) or super().is_leaf_module(m, module_qualified_name)


class _Values(ShapeProp):
    """Notes the shape of every tensor, and the value of what is none: numbers that a shape gives."""

    def run_node(self, n: fx.Node) -> object:
        found = super().run_node(n)
        if not isinstance(found, Tensor):
            n.meta["number"] = found
        return found


class _Norm(nn.Module):
    """Normalisation by statistics of the batch, or of each sample, with an eps of each channel. With running ones it
    gives (what is normalised, mean (C,), unbiased variance (C,)), those of samples averaged over the batch."""

    def __init__(self, norm: Any):
        super().__init__()
        self.kind, self.weight, self.bias = type(norm).__name__, norm.weight, norm.bias
        self.eps: Tensor
        at = next((t.device for t in (*norm.parameters(), *norm.buffers())), None)
        self.register_buffer("eps", torch.full((norm.num_features,), float(norm.eps), device=at))
        self.each = "Instance" in type(norm).__name__
        self.tracks = norm.running_mean is not None

    def forward(self, x: Tensor) -> Any:
        over = [n for n in range(x.ndim) if n != 1 and not (self.each and n == 0)]
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean = x.mean(over, keepdim=True)
        centred = x - mean
        variance = centred.square().mean(over, keepdim=True)
        scaled = centred / (variance + self.eps.reshape(shape)).sqrt()
        if self.weight is not None:
            scaled = scaled * self.weight.reshape(shape) + self.bias.reshape(shape)
        if not self.tracks:
            return scaled
        n = x.numel() // mean.numel()
        return scaled, mean.mean(0).flatten(), variance.mean(0).flatten() * (n / max(1, n - 1))


class _Follower:
    """Walks the graph of a module in its order, notes what each value carries, and puts diagonals in."""

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...]):
        _refuse_tied(module)
        graph = _traced(module)
        self.module = fx.GraphModule(module, graph)
        was = module.training
        at = next((t.device for t in (*module.parameters(), *module.buffers())), None)
        _Values(self.module.eval()).propagate(torch.zeros(2, *input_shape, device=at))
        module.train(was)
        self.module.train()
        self.groups, self.column_widths, self.column_alone = _Groups(), list[int](), list[bool]()
        self.before: list[Carried] = []             # the disguise of a transitional layer's input
        self.scaled: dict[str, _Scaled] = {}
        self.diagonals: list[tuple[str, int, Callable[[Secrets, list[int]], Any]]] = []
        self.mixing: list[str] = []                 # norms that are no function of one sample
        self.momenta: dict[str, float] = {}         # of the buffers that follow statistics of batches
        self._statistics: dict[str, fx.Node] = {}   # these
        self._carried: dict[fx.Node, Carried] = {}
        self._used: set[str] = set()                # layers with weights that the pass has come to
        last = next(n for n in graph.nodes if n.op == "output").args[0]
        if not isinstance(last, fx.Node) or last.op != "call_module" or not isinstance(self._layer(last), nn.Linear):
            raise CannotBeDisguised("the model's last layer: expected a linear one, whose outputs are the model's")
        self._last = last
        _expect_the_same(module, self.module, input_shape)
        for node in list(graph.nodes):
            self._follow(node)
        self.last = f"{self._last.target}.weight"
        graph.lint()
        self.module.recompile()

    def _layer(self, node: fx.Node) -> nn.Module:
        return self.module.get_submodule(str(node.target))

    def _follow(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._carried[node] = Carried()
        elif "number" in node.meta and node.op != "output":
            pass                                            # from a shape, the same in disguise
        elif node.op == "output":
            node.args = ((self._last, self._last.args[0], self._statistics),)
        elif node.op == "call_module":
            self._follow_module(node, self._layer(node))
        else:
            self._follow_call(node)

    def _follow_module(self, node: fx.Node, layer: nn.Module) -> None:
        if isinstance(layer, (*_WEIGHTED, *_NORMS, _Norm)):
            self._once(node, layer)
        if isinstance(layer, _WEIGHTED):
            self._weights(node, layer)
        elif isinstance(layer, _NORMS):
            self._norm(node, layer)
        elif isinstance(layer, _ACTIVATIONS):
            self._transition(node, self._of(node))
        elif isinstance(layer, nn.Flatten):
            self._flatten(node)
        elif isinstance(layer, _PASSING):
            self._carried[node] = self._of(node)
        else:
            raise self._refused(node, type(layer).__name__)

    def _follow_call(self, node: fx.Node) -> None:
        if node.target in _ACTIVATION_CALLS:
            self._transition(node, self._of(node))
        elif node.target in _ADDING_CALLS:
            self._add(node)
        elif node.target in _FLATTENING_CALLS:
            self._flatten(node)
        elif node.target is F.pad:
            self._pad(node)
        elif node.target is operator.getitem:
            self._slice(node)
        elif node.target in _PASSING_CALLS:
            self._carried[node] = self._of(node)
        else:
            raise self._refused(node, getattr(node.target, "__name__", str(node.target)))

    def _once(self, node: fx.Node, layer: nn.Module) -> None:
        """Refuse a layer that was used before, or that makes its weights of others (weight_norm)."""
        kind = layer.kind if isinstance(layer, _Norm) else type(layer).__name__
        if str(node.target) in self._used:
            raise self._refused(node, str(kind), "it is used more than once in a pass, and its weights have one scale")
        self._used.add(str(node.target))
        strange = sorted({name for name, _ in layer.named_parameters()} - {"weight", "bias"})
        if strange:
            raise self._refused(node, str(kind), f"its weights are made of {', '.join(strange)}")

    def _refused(self, node: fx.Node, what: str, why: str = "it does not commute with positive scales") -> EmulError:
        place = str(node.target) if node.op == "call_module" else node.name
        return CannotBeDisguised(f'layer "{place}" ({what}) cannot be disguised: {why}')

    def _of(self, node: fx.Node) -> Carried:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return self._carried[source]

    # --- the rules, one a kind of layer -----------------------------------------------------------------------------

    def _weights(self, node: fx.Node, layer: Any) -> None:
        """R_ij = r_i / carried_j, bias r_i; of the last layer the row factor is 1."""
        if getattr(layer, "groups", 1) != 1:
            raise self._refused(node, type(layer).__name__, "its channels are in groups")
        source, before = node.args[0], self._of(node)
        assert isinstance(source, fx.Node)
        if isinstance(layer, nn.Linear) and len(source.meta["tensor_meta"].shape) != 2:
            raise self._refused(node, type(layer).__name__, "expected one number a channel: flatten what comes before")
        if before.what == "r" and not before.then:          # no activation since the last weights
            before = self._put_transition(source, before, only=node)
        width = int(layer.weight.shape[0])
        if node is self._last:
            self.outputs, self.features, rows = width, int(layer.weight.shape[1]), Carried()
            if before.what == "1/s":
                self.column_alone[before.number] = True
        else:
            rows = Carried("r", self.groups.add(width, alone=not before.what))
        name = str(node.target)
        self.scaled[f"{name}.weight"] = _Scaled(rows, before)
        if layer.bias is not None:
            self.scaled[f"{name}.bias"] = _Scaled(rows)
        self._carried[node] = rows

    def _norm(self, node: fx.Node, layer: Any) -> None:
        """Weight, bias and running mean times the carried scale, variance and eps times its square."""
        carried, name = self._of(node), str(node.target)
        for part, power in (("weight", 1), ("bias", 1), ("running_mean", 1), ("running_var", 2)):
            self.scaled[f"{name}.{part}"] = _Scaled(carried, power=power)
        norm = _Norm(layer)
        self.module.set_submodule(name, norm)
        if norm.tracks or not norm.each:
            self.mixing.append(name)
        eps = float(layer.eps)
        self.diagonals.append((f"{name}.eps", int(layer.num_features), lambda secrets, groups: (
            eps * np.square(carried.of(secrets, groups)))))
        if layer.running_mean is not None:
            node = self._put_statistics(node, name, layer)
        self._carried[node] = carried if layer.weight is not None else Carried()

    def _put_statistics(self, node: fx.Node, name: str, layer: Any) -> fx.Node:
        """Have the model give a layer's statistics of the batch, too. Returns what the layer gave so far."""
        if layer.momentum is None:
            raise self._refused(node, type(layer).__name__, "its running statistics are means over all batches, "
                                "expected a momentum")
        graph, parts = self.module.graph, list[fx.Node]()
        for place in (2, 1, 0):
            with graph.inserting_after(node):
                parts.insert(0, graph.call_function(operator.getitem, (node, place)))
        node.replace_all_uses_with(parts[0], delete_user_cb=lambda user: user not in parts)
        parts[0].meta = dict(node.meta)
        for what, part in zip(("running_mean", "running_var"), parts[1:], strict=True):
            self._statistics[f"{name}.{what}"], self.momenta[f"{name}.{what}"] = part, float(layer.momentum)
        return parts[0]

    def _transition(self, node: fx.Node, carried: Carried) -> None:
        self._carried[node] = carried
        if carried.what == "r":
            self._carried[node] = self._put_transition(node, carried)

    def _put_transition(self, node: fx.Node, carried: Carried, only: fx.Node | None = None) -> Carried:
        """t = 1 / (r s) behind a node: what it gives then carries 1/s."""
        width = int(node.meta["tensor_meta"].shape[1])
        s = Carried("1/s", len(self.column_widths))
        self.column_widths.append(width)
        self.column_alone.append(False)
        self.before.append(carried)
        put = self._put_diagonal(node, width, lambda secrets, groups: (
            s.of(secrets, groups) / carried.of(secrets, groups)), only)
        self._carried[put] = s
        return s

    def _put_diagonal(self, node: fx.Node, width: int, value: Callable[[Secrets, list[int]], object],
                      only: fx.Node | None = None) -> fx.Node:
        """Multiply the channels of what a node gives, for all who use it, or for one of them."""
        name = f"diagonal_{len(self.diagonals)}"
        self.module.register_buffer(name, torch.ones(width))
        self.diagonals.append((name, width, value))
        shape = (1, width, *[1] * (len(node.meta["tensor_meta"].shape) - 2))
        graph = self.module.graph
        with graph.inserting_after(node):
            diagonal = graph.get_attr(name)
        with graph.inserting_after(diagonal):
            shaped = graph.call_method("reshape", (diagonal, shape))
        with graph.inserting_after(shaped):
            put = graph.call_function(operator.mul, (node, shaped))
        node.replace_all_uses_with(put, delete_user_cb=lambda user: user is not put and only in (None, user))
        put.meta = dict(node.meta)
        return put

    def _add(self, node: fx.Node) -> None:
        """Both summands have to carry one scale: weights that end here share r, a shortcut gets the diagonal q."""
        a, b = node.args[:2]
        if not isinstance(a, fx.Node) or not isinstance(b, fx.Node):
            raise self._refused(node, "add", "a constant is added")
        shapes = [n.meta["tensor_meta"].shape for n in (a, b)]
        if len(shapes[0]) != len(shapes[1]) or shapes[0][:2] != shapes[1][:2]:
            raise self._refused(node, "add", f"the summands have {shapes[0][1:]} and {shapes[1][1:]}, expected as many "
                                "channels")
        one, other = self._carried[a], self._carried[b]
        if one.what == other.what == "r" and not one.then and not other.then:
            self.groups.join(one.number, other.number)
        elif one != other:
            if other.what == "r":                           # the branch sets the scale, the shortcut follows
                b, one, other = a, other, one
            assert isinstance(b, fx.Node)
            self._put_diagonal(b, int(b.meta["tensor_meta"].shape[1]), lambda secrets, groups: (
                one.of(secrets, groups) / other.of(secrets, groups)), only=node)
        self._carried[node] = one

    def _flatten(self, node: fx.Node) -> None:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        before, after = source.meta["tensor_meta"].shape, node.meta["tensor_meta"].shape
        if len(after) != 2 or after[0] != before[0]:
            raise self._refused(node, "flatten", "expected one that leaves one dimension beside the batch")
        self._carried[node] = self._of(node).and_then("repeat", int(np.prod(before[2:], dtype=int)))

    def _pad(self, node: fx.Node) -> None:
        """Channels may be padded with zeros (shortcuts of He et al. 2016, option A)."""
        pads: Any = fx.node.map_arg(node.args[1], lambda n: n.meta["number"])
        ndim = len(node.meta["tensor_meta"].shape)
        if len(node.args) > 2 or node.kwargs.get("value") or node.kwargs.get("mode", "constant") != "constant":
            raise self._refused(node, "pad", "expected zeros")
        around = [0] * (2 * ndim - len(pads)) + [int(n) for n in reversed(pads)]
        after, before = around[2], around[3]
        if any(around[:2]):
            raise self._refused(node, "pad", "the batch is padded")
        self._carried[node] = self._of(node).and_then("pad", before, after) if before or after else self._of(node)

    def _slice(self, node: fx.Node) -> None:
        parts: Any = node.args[1]
        whole = slice(None)
        if not isinstance(parts, tuple) or parts[:2] != (whole, whole)[:len(parts)]:
            raise self._refused(node, "slice", "expected one of positions, with all samples and channels")
        self._carried[node] = self._of(node)


def _running(model: FlatModule, follower: _Follower) -> list[tuple[Vector, float, float]]:
    """(places in the vector, momentum, least value) of the buffers. Raises CannotBeDisguised for others than running
    statistics, and for what is not trained."""
    for name, parameter in model.module.named_parameters():
        if not parameter.requires_grad:
            raise CannotBeDisguised(f'parameter "{name}" is frozen: expected a model that is trained as a whole')
    found = []
    for name, coordinates in model.named(np.arange(model.dimension)).items():
        if coordinates.size and coordinates.flat[0] < model.trained:
            continue
        if name not in follower.momenta and not name.endswith("num_batches_tracked"):
            raise CannotBeDisguised(f'buffer "{name}": expected none but running statistics of normalisations')
        found.append((coordinates.reshape(-1), follower.momenta.get(name, 0.0),
                      0.0 if name.endswith("running_var") else -np.inf))
    return found


def _refuse_tied(module: nn.Module) -> None:
    """Raises CannotBeDisguised if two layers have one parameter or buffer. A layer may have two names."""
    name_of: dict[int, str] = {}
    for prefix, layer in module.named_modules():
        for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            if tensor is None:
                continue
            full = f"{prefix}.{name}" if prefix else name
            if id(tensor) in name_of:
                raise CannotBeDisguised(f'parameters "{name_of[id(tensor)]}" and "{full}" are one (tied weights), and '
                                        "cannot be disguised: they have one scale")
            name_of[id(tensor)] = full


def _expect_the_same(module: nn.Module, followed: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Raises CannotBeDisguised if a module and what was followed of it differ on a batch: a graph knows no memory, so
    `z = x; z += y` leaves x in it as it was, and it has no hooks. The batch has 16 samples: on two
    of them a small layer may be silent behind its ReLU."""
    found = []
    for one in (module, followed):
        with torch_stream(0, "disguise"), torch.no_grad():          # the stream of the CPU, on which both draw
            found.append(deepcopy(one).cpu().train()(torch.randn(16, *input_shape)))
    if not torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-5, equal_nan=True):
        raise CannotBeDisguised("the model's graph cannot be followed: it gives other outputs than the model, expected "
                                "one that changes no value in place that it uses again")


def _traced(module: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(module)
    except Exception as e:              # fx raises several kinds
        raise CannotBeDisguised(f"the model's graph cannot be followed: {e}") from None
