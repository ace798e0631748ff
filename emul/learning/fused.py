"""Local trainings of many clients on one model as one stacked computation.

The result equals that of `local.train_alone`, client by client, but for the rounding of float32: batches, dropout
masks, losses and steps are the same, sums are made in another order. Small models and batches gain, where calls cost
more than what they compute. Clients are ordered by their number of steps, so that those who are done are cut off at the
end; batches of one step may differ in size, too: the shorter ones are filled up with their first sample at weight 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from emul.base.streams import generator, key64
from emul.learning.device import Device, failed
from emul.learning.dropout import Dropout
from emul.learning.local import LocalTraining
from emul.learning.objectives import Batch, Objective, Outputs, Penalty, Proximal, split
from emul.learning.parameters import FlatModule
from emul.learning.solver import Adam, Sgd, Solver
from emul.learning.stack import Factors, FuseError, Hidden, Pass, Stack, Values, trial
from emul.learning.training import Samples, Stream, aligned, batches, channels_last, weighted_end

__all__ = ["FuseError", "Masks", "key", "refusal", "train_fused"]


def key(local: LocalTraining) -> Hashable:
    """The properties that fused trainings must share; samples, numbers of steps, arrays of an objective may differ."""
    return (replace(local.solver, steps=None, epochs=None), local.objective.settings,
            None if local.only is None else blake2b(local.only.data, digest_size=16).digest())


def refusal(module: nn.Module, x: Tensor) -> str | None:
    """The reason why trainings of the module cannot be fused; None if they can. Parts that are not known are tried on a
    copy, with the inputs x of three samples, (3, *input_shape)."""
    try:
        stack = Stack(module)
    except FuseError as error:
        return str(error)
    return trial(module, x) if stack.unknown else None


def train_fused(model: FlatModule, asked: Sequence[LocalTraining]) -> list[np.ndarray]:
    """The state after each training, (d,) float32: fresh arrays on 64-byte boundaries. `model` keeps its own state.

    The result depends on the arguments and their order alone; on the order but for rounding. Raises FuseError if
    `key` differs between them, or if the model or the objective is not of a kind that can be fused (`refusal` says more
    of the model), and ParameterError if the shape of a vector is not the model's.
    """
    if len({key(local) for local in asked}) > 1:
        raise FuseError("trainings that are fused: expected one solver, mask and objective for all of them")
    if not all(local.solver.stacks for local in asked):
        raise FuseError("the solver: expected sgd or adam without clip, schedule, accumulate and keep")
    plans = [_plan(local) for local in asked]
    order = sorted((i for i, plan in enumerate(plans) if plan), key=lambda i: -len(plans[i]))   # of equals the first
    for local in asked:
        model.require(local.before)
    if order and not model.module.training:
        model.module.train()
    found = _Fused(model, [asked[i] for i in order], [plans[i] for i in order]).train() if order else []
    after = dict(zip(order, found, strict=True))
    return [after[i] if plan else _untouched(model, local.before)
            for i, (local, plan) in enumerate(zip(asked, plans, strict=True))]


def _untouched(model: FlatModule, before: np.ndarray) -> np.ndarray:
    """The state after no step: integer buffers are cut off to integers, as in the model."""
    after = aligned(before.astype(np.float32)).numpy()
    for t, place in model.slices:
        if not t.is_floating_point():
            after[place] = np.trunc(after[place])
    return after


Plan = list[np.ndarray]
Tensors: TypeAlias = list[Tensor] | tuple[Tensor, ...]      # one a parameter, (g, *shape)


def _plan(local: LocalTraining) -> Plan:
    """Positions of the samples of each step: those that the client has when it trains alone."""
    n, s = len(local.samples), local.stream
    return list(batches(n, local.solver, generator(s.seed, "batches", s.node, s.round, s.call))) if n else []


class _Fused:
    """The training of G clients, all with a step to do, those with the most first."""

    def __init__(self, model: FlatModule, locals_: list[LocalTraining], plans: list[Plan]):
        self._model = model
        self._stack = Stack(model.module)
        self._before = [local.before for local in locals_]
        if any(isinstance(local.samples.data.train_x, dict) for local in locals_):
            raise FuseError("samples of several tensors")
        self._batches = _Batches([local.samples for local in locals_], plans, model.device, self._stack.on_maps)
        shape = locals_[0].samples.data.input_shape
        self._masks = Masks([local.stream for local in locals_],
                            [channels_last(len(plan[0]), shape) for plan in plans], model.device)
        first = locals_[0]
        self._solver, self._only = first.solver, first.only
        self._head = _Head([local.objective for local in locals_], model.device)

    def train(self) -> list[np.ndarray]:
        slices, only, device = self._model.slices, self._only, self._model.device
        state = device.models(self._before)                                                         # (G, d)
        stacked = {id(t): state[:, place].reshape(len(state), *t.shape).to(t.dtype, copy=True) for t, place in slices}
        frozen = {id(p): p.detach().expand(len(state), *p.shape)
                  for p in self._model.module.parameters() if not p.requires_grad}
        trained = [(t, place) for t, place in slices if t.requires_grad and (only is None or only[place].any())]
        weights = [stacked[id(t)] for t, _ in trained]
        masks = None if only is None else [device.put(only[place].reshape(t.shape)) for t, place in trained]
        step = _Stepper(self._solver, weights, masks, self._head.penalties([place for _, place in trained], weights))
        factors: dict[int, Factors] = {id(t): [] for t, _ in trained} if step.multiplies else {}
        active = 0
        for s in range(self._batches.steps if trained or self._stack.keeps else 0):
            if active != self._batches.active(s):
                active = self._batches.active(s)
                leaves = [w[:active].detach().requires_grad_() for w in weights]                    # the same memory
                values = Values([*((k, v[:active]) for k, v in (*stacked.items(), *frozen.items())),
                                 *((id(t), leaf) for (t, _), leaf in zip(trained, leaves, strict=True))], factors)
                step.narrow(active)
            step(self._gradients(self._batches[s], values, leaves), list(factors.values()))
        for t, place in slices:
            state[:, place] = stacked[id(t)].reshape(len(state), -1)
        return [row.clone().numpy() for row in device.fetch(state)]

    def _gradients(self, step: _Step, values: Values, leaves: list[Tensor]) -> list[Tensor | None]:
        """Of each client's loss, (g, *shape) each, None where it is 0: the clients' parameters have nothing to do with
        each other. Beside them there is what `values.factors` gets."""
        with torch.enable_grad():
            features, logits = self._stack(step.x, Pass(values, partial(self._masks, step.sizes), step.uneven,
                                                        int(step.sizes.min())))
            ends, gradients = self._head(features, logits, step) if leaves else ([], [])
        if not ends:
            return [None] * len(leaves)
        if len(ends) == 1:
            return list(torch.autograd.grad(weighted_end(ends[0], gradients[0]), leaves, allow_unused=True))
        return list(torch.autograd.grad(ends, leaves, gradients, allow_unused=True))


# --- objectives ---------------------------------------------------------------------------------------------------

class _Head:
    """The objectives of G clients, which differ in their arrays only, on what the stacked forward pass gives."""

    def __init__(self, objectives: list[Objective], device: Device):
        if objectives[0].alone:
            raise FuseError(f"objective {objectives[0]}: needs several forward passes")
        if objectives[0].linear:
            raise FuseError(f"objective {objectives[0]}: reads features before their activation")
        pairs = [split(objective) for objective in objectives]
        self._loss, self._penalties = pairs[0]
        self._on_features = self._loss is not None and self._loss.on_features
        self._arrays = _stacked([loss for loss, _ in pairs if loss is not None], device)
        self._of_penalties = [_stacked(column, device) for column in zip(*(p for _, p in pairs), strict=True)]

    def __call__(self, features: Tensor | None, logits: Tensor, step: _Step) -> tuple[list[Tensor], list[Tensor]]:
        """(ends of the graph, gradients of the sum of all clients' losses there)."""
        if self._on_features and features is None:
            raise FuseError("objective on features: expected a model that is an nn.Sequential, cut at `features_at`")
        ends, gradients = [], []
        for i, term in enumerate(() if self._loss is None else self._loss.terms):
            closed = term.at_logits(logits.detach(), step.y, step.share)
            ends.append(logits if closed is not None else self._total(i, term, features, logits, step))
            gradients.append(closed if closed is not None else torch.ones_like(ends[-1]))
        return ends, gradients

    def _total(self, i: int, term: Objective, features: Tensor | None, logits: Tensor, step: _Step) -> Tensor:
        """The sum over the clients of the i-th term, each client's computed from its own rows."""
        assert self._loss is not None
        alone, g = len(self._loss.terms) == 1, len(logits)
        arrays = {name if alone else name.partition(".")[2]: value[:g] for name, value in self._arrays.items()
                  if alone or name.partition(".")[0] == str(i)}
        of: dict[str, object] = {"logits": logits, "x": step.x.as_rows().value, "y": step.y, "weights": step.share,
                              "arrays": arrays}
        if self._on_features:
            of["features"] = features

        def total(of: dict[str, Any]) -> Tensor:
            outputs = Outputs(of["logits"], of.get("features"))
            return term.bound(of["arrays"]).total(outputs, Batch(of["x"], of["y"]), of["weights"])

        try:
            return total(of) if term.stacks else vmap(total)(of).sum()
        except Exception as error:                          # the objective's own code and vmap may raise anything
            if failed(error):
                raise
            raise FuseError(f"objective {term}: cannot be mapped over clients: "
                            f"{str(error).strip().partition(chr(10))[0]}") from error

    def penalties(self, slices: list[slice], weights: list[Tensor]) -> list[_Pulled]:
        """The terms of the parameters alone, with the parts of their arrays that belong to each trained tensor."""
        found = []
        for penalty, arrays in zip(self._penalties, self._of_penalties, strict=True):
            parts = [{name: value[:, place].reshape(weight.shape) for name, value in arrays.items()}
                     for place, weight in zip(slices, weights, strict=True)]
            found.append(_Pulled(penalty, parts))
        return found


class _Pulled(NamedTuple):
    """A penalty, and what its arrays are at each trained tensor."""

    penalty: Penalty
    arrays: list[dict[str, Tensor]]         # (G, *shape)

    def add(self, gradients: Tensors, weights: list[Tensor], before: list[Tensor]) -> Tensors:
        """The gradients with its own added."""
        if isinstance(self.penalty, Proximal):              # in two calls for all tensors
            return torch._foreach_add(gradients, torch._foreach_sub(weights, before), alpha=self.penalty.mu)
        bound = (self.penalty.bound({name: value[:len(w)] for name, value in own.items()})
                 for own, w in zip(self.arrays, weights, strict=True))
        return [g + penalty.gradient(w, b)                  # type: ignore[attr-defined]
                for penalty, g, w, b in zip(bound, gradients, weights, before, strict=True)]


def _stacked(objectives: Sequence[Objective], device: Device) -> dict[str, Tensor]:
    """The arrays of objectives that are alike but for them, (G, *shape) each."""
    each = [objective.arrays() for objective in objectives]
    return {name: device.put(np.stack([arrays[name] for arrays in each])) for name in (each[0] if each else ())}


# --- batches ------------------------------------------------------------------------------------------------------

class _Step(NamedTuple):
    """One step of g clients, B samples each, those that a client has not got repeated from its first."""

    x: Hidden
    y: Tensor               # (g, B, ...) int64 or float32
    share: Tensor           # (g, B) float32: of a sample in its client's mean, 0 for those repeated
    sizes: np.ndarray       # (g,) how many are not

    @property
    def uneven(self) -> Tensor | None:
        """The shares, if some are 0."""
        return self.share if self.sizes.min() < self.sizes.max() else None


class _Batches:
    def __init__(self, samples: list[Samples], plans: list[Plan], device: Device, on_maps: bool):
        self.steps = len(plans[0])
        self._device, self._on_maps = device, on_maps
        self._sizes = np.zeros((len(plans), self.steps), np.int64)
        self._rows = np.zeros((len(plans), max(sum(map(len, plan)) for plan in plans)), np.int64)   # into the data
        for i, (own, plan) in enumerate(zip(samples, plans, strict=True)):
            rows = own.indices[np.concatenate(plan)]
            self._rows[i, :len(rows)] = rows
            self._sizes[i, :len(plan)] = [len(batch) for batch in plan]
        self._starts = self._sizes.cumsum(1) - self._sizes
        self._active = np.count_nonzero(self._sizes, axis=0).tolist()
        whose: dict[int, list[int]] = {}
        for i, own in enumerate(samples):
            whose.setdefault(id(own.data), []).append(i)
        self._data = [(samples[members[0]].data, np.array(members)) for members in whose.values()]
        self._there = None if device.on_cpu or len(self._data) > 1 else self._uploaded()

    def active(self, step: int) -> int:
        """The number of clients that have that step: they are the first ones."""
        return int(self._active[step])

    def __getitem__(self, step: int) -> _Step:
        sizes = self._sizes[:self.active(step), step]
        if self._there is not None:
            rows, y, share = self._there[step]
            return _Step(self._laid_out(self._device.inputs(self._data[0][0], rows)), y, share, sizes)
        places, shares = self._plan(step)
        x, labels = self._take(places)
        return _Step(self._laid_out(x), self._device.put(labels), self._device.put(shares), sizes)

    def _plan(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Of one step: which samples, rows of the data (g, B), and their shares in the means (g, B) float32."""
        g = self.active(step)
        sizes = self._sizes[:g, step]
        place = np.arange(sizes.max())
        real = place < sizes[:, None]                                                               # (g, B)
        rows = self._rows[np.arange(g)[:, None], self._starts[:g, step, None] + np.where(real, place, 0)]
        return rows, real / sizes[:, None].astype(np.float32)

    def _uploaded(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Rows, labels and shares of every step, (g, B) each, on the device: in three copies, where three a step would
        keep the GPU waiting for the CPU."""
        plans = [self._plan(step) for step in range(self.steps)]
        data, shapes = self._data[0][0], [rows.shape for rows, _ in plans]
        rows = np.concatenate([rows.reshape(-1) for rows, _ in plans])
        found = [self._device.put(array).split([g * b for g, b in shapes]) for array in (
            rows, data.targets(data.train_y[rows]), np.concatenate([share.reshape(-1) for _, share in plans]))]
        return [(rows.view(shape), y.view(*shape, *y.shape[1:]), share.view(shape))
                for shape, rows, y, share in zip(shapes, *found, strict=True)]

    def _laid_out(self, x: Tensor) -> Hidden:
        """Inputs (g, B, *shape) as the first layer takes them, aligned."""
        return Hidden.rows(x).as_maps() if self._on_maps else Hidden.rows(x.clone())

    def _take(self, rows: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Inputs and labels of these samples, rows (g, B), each client's from its own data."""
        if len(self._data) == 1:
            data, _ = self._data[0]
            x, y = self._device.inputs(data, rows), data.targets(data.train_y[rows])
        else:
            first = self._data[0][0]
            y = np.empty((*rows.shape, *first.train_y.shape[1:]), first.targets(first.train_y[:0]).dtype)
            x = torch.empty((*rows.shape, *first.input_shape), device=self._device.kind,
                            dtype=self._device.inputs(first, rows[:0]).dtype)
            for data, members in self._data:
                own = members[members < len(rows)]
                x[self._device.put(own)] = self._device.inputs(data, rows[own])
                y[own] = data.targets(data.train_y[rows[own]])
        return x, y


# --- dropout ------------------------------------------------------------------------------------------------------

class Masks:
    """Factors for dropout, drawn as each client's own training draws them: from its stream, layer by layer."""

    def __init__(self, streams: Sequence[Stream], last: Sequence[bool], device: Device):
        """last: of each client whether what it draws for has its channels last in memory when it is alone."""
        self._device = device
        self._streams = streams
        self._generators: list[torch.Generator] = []
        self._formats = [torch.channels_last if one else torch.contiguous_format for one in last]

    def __call__(self, sizes: np.ndarray, layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
        """(g, B, *rest), of which the first sizes[i] samples of client i are drawn and the others 0."""
        if not self._generators:
            self._generators = [torch.Generator().manual_seed(key64(s.seed, "dropout", s.node, s.round, s.call) >> 1)
                                for s in self._streams]
        if isinstance(layer, nn.Dropout2d):
            shape = (*shape[:3], *(1 for _ in shape[3:]))
        if isinstance(layer, Dropout):
            kept = np.zeros(shape, bool)
            for own, size, draws in zip(kept, sizes.tolist(), self._generators, strict=False):
                own[:size].reshape(-1)[:] = layer.chosen(own[:size].size, draws)
            return self._device.put(kept) * layer.scale     # bytes: 4.9 ms for 26 (40 clients, 64 x 2048)
        assert isinstance(layer, nn.Dropout | nn.Dropout2d)
        found = torch.zeros(shape)
        if layer.p < 1:
            for i, size in enumerate(sizes.tolist()):
                self._choose(layer, found[i, :size], i)
            found.div_(1 - layer.p)
        return self._device.put(found.numpy())

    def _choose(self, layer: nn.Dropout | nn.Dropout2d, found: Tensor, i: int) -> None:
        """1 into the zeros of client i where a value is kept."""
        if found.ndim == 4 and self._formats[i] is torch.channels_last:     # torch draws in the order of the memory
            laid = torch.empty_like(found, memory_format=torch.channels_last)
            found.copy_(laid.bernoulli_(1 - layer.p, generator=self._generators[i]))
        else:
            found.bernoulli_(1 - layer.p, generator=self._generators[i])


# --- steps --------------------------------------------------------------------------------------------------------

class _Stepper:
    """Steps of the solver on stacked weights, as `training` takes them on one client's."""

    def __init__(self, solver: Solver, weights: list[Tensor], masks: list[Tensor] | None, penalties: list[_Pulled]):
        self._solver, self._masks, self._penalties = solver, masks, penalties
        moments = 2 if isinstance(solver, Adam) else 1 if isinstance(solver, Sgd) and solver.momentum else 0
        self._all = [weights, *([torch.zeros_like(w) for w in weights] for _ in range(moments))]
        if penalties:
            self._all.append([w.clone() for w in weights])
        self._taken = 0

    def narrow(self, active: int) -> None:
        """From now on, steps are those of the first `active` clients."""
        self._now = [[t[:active] for t in tensors] for tensors in self._all]

    @property
    def multiplies(self) -> bool:
        """True if gradients may come as their factors: nothing but -lr times them is added to the weights."""
        return len(self._all) == 1 and self._masks is None and isinstance(self._solver, Sgd) \
            and not self._solver.weight_decay

    def __call__(self, found: Sequence[Tensor | None], factors: Sequence[Factors]) -> None:
        """One step. factors: more gradients of each tensor, none unless `multiplies`; the lists are emptied."""
        if self.multiplies:
            self._plain(found, factors)
        elif found:                                         # else only statistics are kept
            self._whole([torch.zeros_like(w) if g is None else g for g, w in zip(found, self._now[0], strict=True)])

    def _plain(self, found: Sequence[Tensor | None], factors: Sequence[Factors]) -> None:
        weights, = self._now
        some = [(w, g) for w, g in zip(weights, found, strict=True) if g is not None]
        if some:
            torch._foreach_add_([w for w, _ in some], [g for _, g in some], alpha=-self._solver.lr)
        for weight, products in zip(weights, factors, strict=True):
            while products:                                 # as one pass over the weights, where two would be more
                weight.baddbmm_(*products.pop(), alpha=-self._solver.lr)

    def _whole(self, gradients: Tensors) -> None:
        solver, (weights, *rest) = self._solver, self._now
        for penalty in self._penalties:
            gradients = penalty.add(gradients, weights, rest[-1])
        if solver.weight_decay:
            gradients = torch._foreach_add(gradients, weights, alpha=solver.weight_decay)
        if self._masks is not None:
            gradients = torch._foreach_mul(gradients, self._masks)
        self._taken += 1
        if isinstance(solver, Adam):
            self._adam(solver, gradients)
            return
        assert isinstance(solver, Sgd)
        if solver.momentum:
            torch._foreach_mul_(rest[0], solver.momentum)
            torch._foreach_add_(rest[0], gradients)
            gradients = rest[0]
        torch._foreach_add_(weights, gradients, alpha=-solver.lr)

    def _adam(self, solver: Adam, gradients: Tensors) -> None:
        weights, m, v, *_ = self._now
        torch._foreach_mul_(m, solver.beta1)
        torch._foreach_add_(m, gradients, alpha=1 - solver.beta1)
        torch._foreach_mul_(v, solver.beta2)
        torch._foreach_addcmul_(v, gradients, gradients, value=1 - solver.beta2)
        root = torch._foreach_sqrt(v)
        torch._foreach_div_(root, (1 - solver.beta2**self._taken) ** 0.5)
        torch._foreach_add_(root, solver.eps)
        torch._foreach_addcdiv_(weights, m, root, value=-solver.lr / (1 - solver.beta1**self._taken))
