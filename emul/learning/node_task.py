"""`node.task`: the learning task as one node sees it, with the streams and the samples that are its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from emul.base.errors import EmulError
from emul.base.streams import generator
from emul.learning import models
from emul.learning.dataset import mapped

if TYPE_CHECKING:
    from torch import Tensor

    from emul.learning.attack import Attack
    from emul.learning.disguise import Disguise
    from emul.learning.functional import Forward, Scalars
    from emul.learning.local import KeptMoments, LocalTraining
    from emul.learning.objectives import Batch, Objective, Outputs
    from emul.learning.parameters import FlatModule
    from emul.learning.pieces import Piece, PieceLayout
    from emul.learning.pooling import Pooling
    from emul.learning.solver import Solver
    from emul.learning.task import Task  # a circle: a Task gives each node its view, and the view asks it back
    from emul.learning.training import Samples, Stream

Vector = np.ndarray                                     # (d,) float32


class TaskError(EmulError):
    """A task is not what it should be, or a node asks for what it has not got."""


@dataclass(frozen=True)
class Targets:
    """The targets of a sample, as they travel."""

    shape: tuple[int, ...]              # () for a label
    dtype: np.dtype                     # int32 or float32
    classes: int                        # 0: they are no labels


class NodeTask:
    """`node.task`: the task as one node sees it.

    Streams of the k-th call within a round are keyed (name, round, k), so that a node's training depends on its own
    calls only. Keep the object for the node's whole life, also over a crash: its counters must survive.
    """

    # The attack of a node changes what its training gives, here and not in its messages: nobody could forge what is
    # masked or encrypted, and each scheme would need an attacker of its own
    # (`test_attackers_hide_behind_secure_aggregation_as_elsewhere`).

    def __init__(self, task: Task, name: str, client: int | None, round_of: Callable[[], int],
                 attack: Attack | None = None):
        self._task, self._name, self._client, self._round_of = task, name, client, round_of
        self._attack = attack
        self._round, self._calls = -1, 0
        self._kept: dict[bytes, KeptMoments] = {}       # of a solver with `keep`, by the part that it trains
        self._begun: KeptMoments | None = None          # in place of those that are not there yet

    @property
    def untouched(self) -> bool:
        """True if it has drawn nothing and keeps nothing yet, so that another object would do as well."""
        return self._round < 0 and self._begun is None

    def begin_anew(self, taken: int = 0) -> None:
        """Forget the moments that a solver with `keep` has, as a node does that takes over a model from another one.

        taken: the steps after which its schedule of rates goes on: as many as those have taken who have that model.
        """
        from emul.learning.local import KeptMoments

        self._kept.clear()
        self._begun = KeptMoments(taken, ()) if taken else None

    @property
    def dimension(self) -> int:
        """d, the length of every vector."""
        return self._task.dimension

    def shapes(self, part: str = "all") -> tuple[tuple[int, ...], ...]:
        """Of the tensors that a parameter vector, or a `part` of it, is made of, in its order; a tensor of which the
        part has some numbers only is a vector of these."""
        chosen = np.zeros(self.dimension, np.float32)
        chosen[self.part(part)] = 1
        tensors = self._task.named(chosen).values()
        return tuple(one.shape if one.all() else (int(one.sum()),) for one in tensors if one.any())

    def layers(self) -> list[np.ndarray]:
        """The places of each layer in a vector, ascending: (n,) int64 each; see `Task.layers`."""
        return self._task.layers

    def initial_parameters(self, c: int = 0) -> Vector:
        """The first global model, (d,) float32, read-only, equal for everybody. c: another one, drawn by a seed of its
        own, for schemes with several models that must differ."""
        return self._task.initial_parameters(c)

    def samples(self) -> int:
        """The number of training samples of this node: of a client's share, or of those held out for the others."""
        if self._client is None:
            return len(self._task.held_out())
        return self._task.samples(self._client)

    @property
    def objective(self) -> Objective:
        """The task's own objective: what `local_update` minimises, and what evaluations tell as the loss."""
        return self._task.objective

    @property
    def targets(self) -> Targets:
        """Shape, type and number of classes of the target of one sample."""
        y = self._task.data.train_y
        return Targets(y.shape[1:], np.dtype(np.int32 if y.dtype.kind in "iu" else np.float32), self._task.data.classes)

    @property
    def solver(self) -> Solver:
        """The local solver: what `local_update` descends with."""
        return self._task.solver

    def local_steps(self) -> int:
        """The number of steps of a `local_update` of this node."""
        from emul.learning.solver import steps_of

        return steps_of(self._task.solver, len(self._samples()))

    def minimise(self, parameters: Vector, objective: Objective | None = None, *, steps: int | None = None,
                 epochs: int | None = None, share: int | None = None, only: str | None = None,
                 root: tuple[int, int] | None = None) -> tuple[Vector, int]:
        """Train from `parameters` on this node's samples: (after - before (d,) float32, number of samples).

        objective: by default the task's own; such as `task.objective + Proximal(mu)`. steps, epochs: in place of the
        solver's own. only: train this part alone, as in `part`. share: on the samples of client number `share` instead,
        which this node holds a copy of; all who train on it in one round from the same parameters get the same update,
        since streams are keyed by (share, round). root: at a node that is no client, (c, m): on part c of m of the root
        data alone, that of cluster c where the task has clusters. `parameters` is only read; the result is fresh and
        may be written. Raises TaskError at a node without samples that is no client.
        """
        from emul.learning.training import Stream

        if self._task.skips:
            return self._untrained(parameters, objective, share, root)
        if self._task.solver.keep and share is not None:
            raise TaskError("solver: keep: expected a scheme whose clients train on samples of their own: all who "
                            "train on a share must get the same update, and kept moments differ")
        samples = self._samples(share, root)
        stream = self._stream() if share is None else Stream(self._task.seed, f"share {share}", self._round_of(), 0)
        solver = self._task.solver.with_steps(steps)
        if epochs is not None:
            solver = replace(solver, steps=None, epochs=epochs)
        before = np.asarray(parameters, dtype=np.float32)
        after = self._train(self._local(before, samples, solver, stream, objective, only))
        return np.subtract(after, before, out=after), len(samples)

    def local_update(self, parameters: Vector, *, steps: int | None = None, epochs: int | None = None,
                     share: int | None = None, only: str | None = None,
                     root: tuple[int, int] | None = None) -> tuple[Vector, int]:
        """`minimise` with the task's own objective."""
        return self.minimise(parameters, None, steps=steps, epochs=epochs, share=share, only=only, root=root)

    def charged_alike(self, method: str) -> str:
        """The name of a method of this node's task where its costs are compared: the same for all clients, another
        for a node without a shard, which works on the root data."""
        return f"task.{method}" if self._client is not None else f"task.{method} of root data"

    def _untrained(self, parameters: Vector, objective: Objective | None, share: int | None,
                   root: tuple[int, int] | None) -> tuple[Vector, int]:
        """As `minimise` under `training: skip`: an update of zeros, and how many samples it would have seen."""
        if (objective or self.objective).on_features:
            self._cut()
        if share is None:
            self._count()                       # as in the run with training
        whose = self._client if share is None else share
        count = len(self._samples(share, root)) if whose is None or root is not None else self._task.samples(whose)
        return np.zeros(np.shape(parameters), np.float32), count

    def _local(self, before: Vector, samples: Samples, solver: Solver, stream: Stream, objective: Objective | None,
               only: str | None = None) -> LocalTraining:
        from emul.learning.local import LocalTraining

        objective = objective or self.objective
        if objective.on_features:
            self._cut()
        return LocalTraining(before, samples, solver, stream, objective, self._mask(only))

    def _train(self, local: LocalTraining) -> Vector:
        """The result of this node's local training for `local.before`, (d,) float32, a fresh array.

        Every training of a node ends here, whatever its loss, samples and part: who changes what a node learns, before
        its scheme masks, codes or encrypts it, changes the result of this function.
        """
        if local.solver.keep:
            part = b"" if local.only is None else local.only.tobytes()
            after, self._kept[part] = self._task.train_keeping(replace(local, kept=self._kept.get(part, self._begun)))
        else:
            after = self._task.train(local)
        if self._attack is None:
            return after
        own = after - local.before
        said = self._attack.update(own, local.stream)
        if said is own:
            return after
        trained = slice(0, self._task._model.trained)       # buffers, which come after them, stay as they are
        changed = (local.before + said)[trained]
        after[trained] = changed if local.only is None else np.where(local.only > 0, changed, after[trained])
        return after

    def _mask(self, part: str | None) -> np.ndarray | None:
        """1 where a trained entry belongs to the part, (trained,) float32; None: all do."""
        if part is None:
            return None
        mask = np.zeros(self._task._model.trained, np.float32)
        chosen = self.part(part)
        mask[chosen[chosen < len(mask)]] = 1.0
        return mask

    def part(self, name: str) -> np.ndarray:
        """Places in a parameter vector, (p,) int64 ascending: of "all", the "representation", the "decision" on it, the
        "convolutions" at its front; of a model that is cut (`emul.learning.models`), else TaskError."""
        from emul.learning.prototypes import coordinates

        return np.arange(self.dimension) if name == "all" else coordinates(self._cut(), name)

    @property
    def feature_size(self) -> int:
        """n, the length of a sample's feature vector C."""
        return int(cast(Any, self._cut().module).features)

    @property
    def classes(self) -> int:
        """J, of the data."""
        return self._task.data.classes

    def own_classes(self) -> list[int]:
        """Classes of this node's samples as it was given them, ascending."""
        return np.unique(self._task.data.train_y[self._task.indices(self._client or 0)]).tolist()

    def values(self, of: str = "labels", client: int | None = None) -> np.ndarray:
        """Whole numbers that go with this node's samples, (n,) int64: their labels, or a column of the data by its
        name. client: those of client number `client`, for observers: no honest role knows them. Raises TaskError."""
        data = self._task.data
        samples = self._samples() if client is None else None
        own = samples.data if samples is not None else data
        rows = samples.indices if samples is not None else self._task.indices(client or 0)
        if of != "labels":
            if of not in data.columns or data.columns[of].train.dtype.kind not in "iu":
                raise TaskError(f'"{of}": expected labels, or a column of whole numbers; the data have '
                                f"{', '.join(data.columns) or 'no columns'}")
            rows = self._task.indices(self._client or 0) if client is None else rows
            return data.columns[of].train[rows].astype(np.int64)
        if not own.labelled:
            raise TaskError("labels: the data have none; expected a column of whole numbers")
        return own.train_y[rows].astype(np.int64)

    def train_prototypes(self, parameters: Vector, objective: Objective | None, pool: Pooling, *, linear: bool = False,
                         unit: bool = False) -> tuple[Vector, dict[int, Vector], dict[int, int]]:
        """Train from `parameters` as `minimise` does, then make the own prototypes of what comes after: (after (d,),
        {class: mean pooled feature (n',) over all local samples}, {class: samples}).

        linear: of features before the ReLU that ends the representation. unit: in float64 and of length 1, without
        classes whose features are dead; an attack on prototypes changes these.
        """
        self._cut()
        samples = self._samples()
        after = self._train(self._local(np.asarray(parameters, dtype=np.float32), samples, self._task.solver,
                                        self._stream(), objective))
        own, counts = self._prototypes(after, samples, pool, linear)
        if unit:
            from emul.learning.prototypes import directions

            own = directions(own)
        tamper = None if self._attack is None else self._attack.tamper(self._round_of())
        if tamper is not None:
            own = tamper(own, generator(self._task.seed, "tamper", self._name, self._round_of()))
        return after, own, counts

    def _prototypes(self, parameters: Vector, samples: Samples, pool: Pooling, linear: bool,
                    ) -> tuple[dict[int, Vector], dict[int, int]]:
        """{class: mean pooled feature (n',) of a model over the samples}, {class: samples}."""
        from emul.learning import prototypes

        def compute() -> list[np.ndarray]:
            model = self._cut()
            model.load(parameters)                      # if it was trained with others, it is in another state
            own, counts = prototypes.of_samples(model, samples, pool, linear)
            return [np.array(list(own), np.int64), np.array(list(counts.values()), np.int64), *own.values()]

        what = "linear prototypes" if linear else "prototypes"
        classes, counts, *means = self._task.result(what, (parameters, samples, pool), compute)
        held = classes.tolist()
        return dict(zip(held, means, strict=True)), dict(zip(held, counts.tolist(), strict=True))

    def evaluate_own(self, parameters: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of a personal model on this client's own test samples; another node: on all."""
        if self._client is None:
            return self._task.evaluate(parameters)
        return self._task.evaluate_own(self._client, parameters)

    def evaluate_nearest(self, parameters: Vector, means: dict[int, Vector], pool: Pooling) -> dict[str, float]:
        """{"accuracy"} on this client's own test samples of the nearest of `means` to a sample's pooled features."""
        from emul.learning import prototypes

        assert self._client is not None
        task, client, model, among = self._task, self._client, self._cut(), self.own_classes()
        at = np.asarray(parameters, dtype=np.float32)

        def compute() -> list[np.ndarray]:
            model.load(at)
            return [np.array(list(prototypes.nearest(model, task.own_test(client), means, pool, set(among)).values()))]

        inputs = (at, task.data, task.test_indices(client), means, pool, among)
        found = task.result("nearest", inputs, compute, on_clock=False)[0]
        return dict(zip(("accuracy",), found.tolist(), strict=False))       # none where there is no prototype

    def _cut(self) -> FlatModule:
        """The model, of which features can be taken. Raises TaskError if it is not cut."""
        model = self._task._model
        if getattr(model.module, "features_at", None) is None:
            raise TaskError(f'model "{self._task.spec["model"]}": expected one with a representation and a decision, '
                            f"such as {', '.join(n for n, m in models.BUILT_IN.items() if m.features_at)}")
        return model

    def loss(self, parameters: Vector, on: Literal["train", "test"] = "train", each: bool = False,
             objective: Objective | None = None, root: tuple[int, int] | None = None, most: int = 0) -> Any:
        """Mean loss at `parameters`, dropout off; each: that of every sample, (n,) float64. nan without samples.

        on: "train", this node's samples; "test", its own test samples, or all where its partition gives it none.
        objective: by default the task's own. root: on a part of the root data, as in `minimise`. most: on so many of
        the samples, at random and always the same; 0: on all. Changes no stream.
        """
        from emul.learning.evaluation import measured

        task, chosen = self._task, objective or self.objective
        samples = self._few(self._samples_on(on) if root is None else self._samples(root=root), most)
        at = np.asarray(parameters, dtype=np.float32)
        found, = task.result("losses", (at, samples, chosen), lambda: [
            measured(task._model, at, samples, chosen)["loss"]])
        return found if each else float(found.mean()) if len(found) else float("nan")

    def features(self, parameters: Vector, on: Literal["train", "test"] = "train") -> tuple[np.ndarray, np.ndarray]:
        """(features C of this node's samples (n, f) float32, their targets), dropout off; `on` as in `loss`."""
        from emul.learning import evaluation

        samples, model = self._samples_on(on), self._cut()
        at = np.asarray(parameters, dtype=np.float32)
        found, = self._task.result("features", (at, samples), lambda: [evaluation.features(model, at, samples)])
        return found, samples.data.targets(samples.data.train_y[samples.indices])

    def batch(self) -> Batch:
        """The next batch of this node's samples, as the solver would draw it: tensors on the CPU."""
        from emul.learning.training import first_batch

        samples = self._samples()
        positions, = first_batch(len(samples), self._task.solver, self._stream())
        return samples.take(positions)

    def planned(self) -> tuple[Batch, list[np.ndarray]]:
        """(the samples that the next local training sees, tensors on the CPU; which of them each step takes), as the
        solver would draw them."""
        from emul.learning.training import batches

        samples, stream = self._samples(), self._stream()
        rng = generator(stream.seed, "batches", stream.node, stream.round, stream.call)
        plan = list(batches(len(samples), self._task.solver, rng))
        seen = np.unique(np.concatenate(plan)) if plan else np.zeros(0, np.int64)
        return samples.take(seen), [np.searchsorted(seen, step) for step in plan]

    def piece(self, after: str | None = None, last: str | None = None) -> Piece:
        """The layers behind `after` up to `last`, with the model's first parameters and an optimiser of their own; see
        `emul.learning.pieces`. None: from the first layer, to the last. Keep it in `node.state`. Raises PieceError for
        a cut that the model has not."""
        layout = self._task.layout(after, last)
        return self._held(layout, f"{after or ''}..{last or ''}", self._task.initial_parameters()[layout.places])

    def tower(self, width: int) -> Piece:
        """At a client that has columns: the task's model for them, with `width` outputs. Raises TaskError."""
        from emul.learning.pieces import PieceLayout

        layout = PieceLayout.of_tower(self._task, self._party, width)
        return self._held(layout, "tower", layout.initial)

    def top(self, width: int) -> Piece:
        """The layers after the outputs of all towers, one behind the other: ReLU and a linear layer."""
        from emul.learning.pieces import PieceLayout

        layout = PieceLayout.of_top(self._task, width)
        return self._held(layout, "top", layout.initial)

    def ids(self) -> np.ndarray:
        """The ids of this node's samples, ascending, (n,) int64; of a node that is no client those of all clients."""
        return self._task._pools[1] if self._client is None else self._task.indices(self._client)

    def own_columns(self, ids: np.ndarray, test: bool = False) -> np.ndarray:
        """A client's columns of samples, (n, ...) float32; test: of test samples, which all parties have."""
        return self.columns_of(self._party, ids, test)

    def columns_of(self, party: int, ids: np.ndarray, test: bool = False) -> np.ndarray:
        """The same of client number `party`. For observers: no honest role sees another's."""
        return self._task.columns.take(self._task.data, ids, party, test)

    def party_columns(self) -> list[int]:
        """The number of columns of each client, of a sample as a flat vector: everybody knows it."""
        columns = self._task.columns
        return [math.prod(columns.shape_of(party)) for party in range(len(columns))]

    def labels_of(self, ids: np.ndarray, test: bool = False) -> np.ndarray:
        """At the node that has the labels: those of samples, as losses take them."""
        data = self._task.data
        return data.targets((data.test_y if test else data.train_y)[ids])

    def plan(self, n: int, seed: int) -> list[np.ndarray]:
        """The samples, of n, that each step of a training takes, by a seed that several nodes have."""
        from emul.learning.training import batches

        return list(batches(n, self._task.solver, generator(seed, "plan")))

    @property
    def test_samples(self) -> int:
        """The number of test samples."""
        return len(self._task.data.test_y)

    @property
    def _party(self) -> int:
        if self._client is None:
            raise TaskError(f'node "{self._name}" is no client and has no columns')
        return self._client

    def _held(self, layout: PieceLayout, what: str, vector: np.ndarray) -> Piece:
        from emul.learning.pieces import Piece

        return Piece(layout, self._task.solver, self.objective, self._task.seed, f"{self._name} {what}", vector,
                     not self._task.skips, lambda: self._task.together)

    def forward(self, parameters: Vector | Tensor, x: object, training: bool = False,
                through: Forward | None = None) -> Outputs:
        """The model as a function of (d,) parameters and inputs (B, *input_shape): outputs that are differentiable by
        both. training: with dropout, from torch's generator, and with the statistics of the batch. through: in place
        of the model's own pass, ({name: tensor}, inputs) -> outputs. CPU only."""
        import torch

        from emul.learning import functional

        model = self._task._model
        vector = torch.from_numpy(parameters.copy()) if isinstance(parameters, np.ndarray) else parameters
        if through is not None:
            return through(functional.tensors(model, vector), x)
        return functional.forward(model, vector, x, training)

    @property
    def drops(self) -> bool:
        """True if the model has layers that draw when it is trained, such as dropout."""
        from emul.learning.parameters import is_random

        return any(is_random(layer) for layer in self._task._model.module.modules())

    def penultimate(self, parameters: Vector | Tensor, x: object) -> Tensor:
        """The inputs of the last linear layer, (B, n), dropout off, of models that are not cut, too. CPU only. Raises
        TaskError if there is no such layer."""
        import torch

        from emul.learning import functional

        vector = torch.from_numpy(parameters.copy()) if isinstance(parameters, np.ndarray) else parameters
        found = functional.penultimate(self._task._model, vector, x)
        if found is None:
            raise TaskError(f'model "{self._task.spec["model"]}": expected one with a linear layer')
        return found

    def gradients(self, parameters: Vector, scalars: Scalars, *, batch: Batch | None = None,
                  forward: Forward | None = None, each: bool = False) -> tuple[np.ndarray, int]:
        """Gradients of several scalars of one forward pass: ((S, d) of the type of `parameters`, 0 in buffers; number
        of samples). One batched reverse pass, see `emul.learning.functional`. each: of one scalar of every sample of
        the batch alone, (B, d).

        scalars: (outputs, batch, weights (B,)) -> (S,). batch: by default the next one. forward: in place of the
        model's own pass, ({name: tensor}, inputs) -> outputs. Arrays may be float32 or float64. Kept in the store where
        both are frozen dataclasses (`emul.learning.disguise.BlockScalars`); functions have no key.
        """
        from emul.learning import functional
        from emul.learning.results import code_of
        from emul.learning.training import drawing, first_batch

        stream, samples, model, solver = self._stream(), self._samples(), self._task._model, self._task.solver
        at = np.asarray(parameters)

        def compute() -> list[np.ndarray]:
            chosen = samples.take(first_batch(len(samples), solver, stream)[0]) if batch is None else batch
            with drawing(model, len(chosen.y), stream):
                take = functional.gradients_of_each if each else functional.gradients
                found = take(model, model.device.put(np.array(at)), chosen, scalars, forward)
                return [model.device.fetch(found).numpy()]

        inputs = (at, samples, batch, solver, stream, scalars, code_of(scalars), forward, code_of(forward))
        return self._task.result("gradients of each" if each else "gradients", inputs, compute)[0], len(samples)

    def disguise(self) -> Disguise:
        """The disguise of the task's model, made once: see `emul.learning.disguise`. Raises CannotBeDisguised, naming
        the layer, a frozen parameter, or a buffer that is no running statistic."""
        return self._task.disguise

    def gradient(self, parameters: Vector, objective: Objective | None = None) -> tuple[Vector, int]:
        """Gradient of the objective at `parameters` on one batch: ((d,) float32, 0 in buffers; number of samples)."""
        from emul.learning.training import mean_gradient

        if self._task.skips:                    # as updates are
            return self._untrained(parameters, objective, None, None)
        samples, model, solver, stream = self._samples(), self._task._model, self._task.solver, self._stream()
        at, chosen = np.asarray(parameters, dtype=np.float32), objective or self.objective

        def compute() -> list[np.ndarray]:
            model.load(at)
            return [mean_gradient(model, samples, solver, stream, chosen)]

        own = self._task.result("gradient", (at, samples, solver, stream, chosen), compute)[0]
        return own if self._attack is None else self._attack.update(own, stream), len(samples)

    def descend(self, parameters: Vector, gradient: Vector) -> Vector:
        """One step of the solver along a gradient (d,) that this node was given, such as the mean of several nodes':
        the parameters after it, (d,) float32, a fresh array. Its moments begin anew, unless `keep`."""
        at = np.asarray(parameters, dtype=np.float32)
        if self._task.skips:
            return at.copy()
        keep = self._task.solver.keep
        after, kept = self._task.descend(at, np.asarray(gradient, np.float32),
                                         self._kept.get(b"", self._begun) if keep else None)
        if keep:
            self._kept[b""] = kept
        return after

    def evaluate_best(self, models: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of several models, (m * d,) or (m, d): each of the task's clusters, or each client where
        it has none, has the best of them. For `node.report(..., evaluate=node.task.evaluate_best)`."""
        return self._task.evaluate_best(list(np.reshape(models, (-1, self.dimension))))

    @property
    def choose_on(self) -> int:
        """On how many of its samples a client compares models; 0: on all."""
        return int(self._task.spec.get("choose_on") or 0)

    def cluster(self, client: int) -> int | None:
        """To which of the task's clusters the data of client number `client` really belong; None: it has no clusters.
        For observers: no honest role knows it."""
        return self._task.cluster(client)

    def evaluate(self, parameters: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} as this node sees the test set: a client by its own labels, another node the whole."""
        if self._client is None:
            return self._task.evaluate(parameters)
        return self._task.evaluate_client(self._client, parameters)

    def _stream(self) -> Stream:
        from emul.learning.training import Stream

        return Stream(self._task.seed, self._name, self._count(), self._calls - 1)

    def _count(self) -> int:
        """One more call in this round, whose number it returns."""
        now = self._round_of()
        if now != self._round:
            self._round, self._calls = now, 0
        self._calls += 1
        return now

    def _samples_on(self, on: Literal["train", "test"]) -> Samples:
        """This node's samples, or its own test samples: all where its partition gives it none."""
        from emul.learning.training import Samples

        if on == "train":
            return self._samples()
        task = self._task
        chosen = task.test_indices(self._client)
        return Samples(task.data.testing, np.arange(len(task.data.test_y)) if chosen is None else chosen)

    def _indices(self, whose: int | None, root: tuple[int, int] | None) -> np.ndarray:
        if whose is not None:
            return self._task.indices(whose)
        if not len(self._task.held_out()):
            raise TaskError(f'node "{self._name}" is no client and has no samples: expected root or data.held_out in '
                            "the task, the number of samples kept for such nodes")
        return self._task.held_out() if root is None else self._task.root_part(*root)

    def _few(self, samples: Samples, most: int) -> Samples:
        """At most so many of them, at random and always the same; 0: all."""
        if not 0 < most < len(samples):
            return samples
        chosen = generator(self._task.seed, "few", self._name).permutation(len(samples))[:most]
        return replace(samples, indices=samples.indices[np.sort(chosen)])

    def _samples(self, share: int | None = None, root: tuple[int, int] | None = None) -> Samples:
        from emul.learning.training import Samples

        task, whose = self._task, self._client if share is None else share
        if root is not None and whose is not None:
            raise TaskError(f'node "{self._name}" is a client: it has no root data')
        indices = self._indices(whose, root)
        poison = None if self._attack is None else self._attack.poison(self._round_of())
        if poison is None:
            return Samples(task.data, indices)
        number, transform = poison
        key = (self._name, whose, number)
        if key not in task.poisoned:
            raw = mapped(lambda part: part[indices], task.data.train_x)
            x, y = transform(task.data.inputs(raw), task.data.targets(task.data.train_y[indices]),
                             generator(task.seed, "poison", self._name))
            own = replace(task.data, train_x=mapped(_as_inputs, x), train_y=np.asarray(y), columns={},
                          scale=1.0, mean=0.0, std=1.0)     # it was given network inputs already
            task.poisoned[key] = Samples(own, np.arange(len(own.train_y)))
        return task.poisoned[key]


def _as_inputs(x: object) -> np.ndarray:
    """The output of a transform as inputs that are stored: floats as float32, tokens as int64."""
    found = np.asarray(x)
    return found.astype(np.int64 if found.dtype.kind in "iu" else np.float32)
