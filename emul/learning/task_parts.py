"""The parts of a learning task: data, their partition, model, objective and solver, and how well a model does.

Everything is loaded on first use, from plain data (`spec`), so that a task crosses a process boundary as a dict.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base.errors import EmulError
from emul.base.plain import PlainDict
from emul.base.streams import generator, key64
from emul.learning import clusters, models, partition, root, solver
from emul.learning import data as data_sets
from emul.learning.declared import declared
from emul.learning.names import MODEL, find

if TYPE_CHECKING:
    from torch import nn

    from emul.learning.columns import ColumnGroups
    from emul.learning.device import Device
    from emul.learning.disguise import Disguise
    from emul.learning.evaluation import Scores
    from emul.learning.objectives import Batch, Objective
    from emul.learning.parameters import FlatModule
    from emul.learning.results import Results
    from emul.learning.training import Samples
    from emul.store import Store

Vector = np.ndarray                                     # (d,) float32


class TaskError(EmulError):
    """A task is not what it should be, or a node asks for what it has not got."""


class TaskParts:
    """Data, partition, model and solver of a run, the same for everybody who gives the same arguments.

    spec: {"data": {"set": name, "directory": path, "normalise": {"mean": m, "std": s}, "held_out": n},
           "partition": "iid", "model": name or {name: options},
           "solver": {"sgd": {"lr": 0.1, "steps": 5, "batch": 32}}, "objective": name or {name: options},
           "root": {"samples": n}, "clusters": {"rotate": [0, 90]}};
    all of `data` but `set` is optional; `partition` is `iid` by default, `objective` the cross entropy where targets
    are integers, else the squared error. Inputs of a built-in set are standardised by the mean and std of its training
    images; `normalise` gives others, on pixels in [0, 1]. `held_out` training samples are kept from the clients, for
    nodes that are none (the root data of a server); `root` says the same with more (`emul.learning.root`). `clusters`:
    see `emul.learning.clusters`. device: where it trains and evaluates, "cpu", "cuda" or "cuda:1".
    plugins: modules of users that offer data sets, partitions, models or objectives. One model is reused by all calls:
    not for several threads. A spec that `emul.scenario.task` has found sound is expected; makers of its parts raise
    errors of their own on first use.
    """

    def __init__(self, spec: PlainDict, clients: int, seed: int, device: str = "cpu",
                 store: Store | None = None, plugins: Sequence[str] = ()):
        self.spec, self.clients, self.seed, self._device = spec, clients, seed, device
        self._store, self._plugins = store, tuple(plugins)
        self.solver = solver.make(spec["solver"])
        self.poisoned: dict[tuple[str, int | None, int], Samples] = {}  # by node, whose samples, number of the attack
        self._last_scores: tuple[bytes, Scores] | None = None

    @cached_property
    def data(self) -> data_sets.DataSet:
        """Training and test set, read when first asked for and kept."""
        found = data_sets.load(self.spec["data"], self._plugins)
        spec = self.spec.get("clusters")
        return found if spec is None else clusters.clustered(found, spec, self.seed)

    @cached_property
    def device(self) -> Device:
        """The device on which it computes; `device.busy_ns` counts a GPU's time. Raises DeviceError if there is no such
        device."""
        from emul.learning.device import Device

        return Device(self._device)

    @cached_property
    def objective(self) -> Objective:
        """The loss that clients minimise unless their scheme says otherwise, and that evaluations tell."""
        from emul.learning import objectives

        by_default = "cross_entropy" if self.data.classes else "squared_error"
        return objectives.make(self.spec.get("objective") or by_default, self._plugins)

    @cached_property
    def disguise(self) -> Disguise:
        """Of the model. Raises CannotBeDisguised."""
        from emul.learning.disguise import Disguise

        return Disguise(self._model, self.data.input_shape)

    @cached_property
    def results(self) -> Results:
        """The results computed before, if there is a store; `results.credit_ns` counts the CPU time that it saved."""
        from emul.learning.results import Results, place_of

        homes = {made.__module__ for made in (find(MODEL, models.parse(self.spec["model"])[0], self._plugins),
                                              type(self.objective)) if made is not None}
        place = None if self._store is None else place_of(
            self.spec["model"], self.data.input_shape, self.data.outputs, self.seed, self._device,
            (*self._plugins, *sorted(homes)), self._model.frozen())
        return Results(self._store, place)

    def result(self, what: str, inputs: object, compute: Callable[[], list[np.ndarray]], *,
               on_clock: bool = True) -> list[np.ndarray]:
        """The result of `compute`, which depends on the model and `inputs` alone; see `Results.of`."""
        def timed() -> list[np.ndarray]:
            with self.device.timed() if on_clock else contextlib.nullcontext():
                return compute()

        return self.results.of(what, inputs, timed, lambda: self.device.busy_ns)

    # --- who has which samples ----------------------------------------------------------------------------------------

    @cached_property
    def _pools(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training samples that are held out, and of those for the clients, both in their order."""
        n = len(self.data.train_y)
        if self.spec.get("root") is not None:
            chosen = root.draw(root.parse(self.spec["root"]), self.data.train_y, self._cluster_of_sample, self.seed)
        else:
            held_out = self.spec["data"].get("held_out") or 0
            if held_out > n:
                raise TaskError(f"held_out: expected at most the {n} training samples, found {held_out}")
            chosen = generator(self.seed, "partition", "held_out").permutation(n)[:held_out]
        mask = np.zeros(n, dtype=bool)
        mask[chosen] = True
        return np.flatnonzero(mask), np.flatnonzero(~mask)

    @property
    def _cluster_of_sample(self) -> np.ndarray | None:
        """The cluster of each training sample, (n,); None: the task has no clusters."""
        return self.data.columns[clusters.COLUMN].train if self.spec.get("clusters") is not None else None

    @cached_property
    def _partition(self) -> partition.Partition:
        return self.divided(partition.make)

    def divided(self, rule: Callable[..., Any]) -> Any:
        """The samples divided among the clients by a function such as `partition.make`, within each cluster."""
        pool = self._pools[1]
        spec, of_sample = self.spec.get("partition") or "iid", self._cluster_of_sample

        def make(chosen: np.ndarray, clients: int, seed: int) -> Any:
            rows = pool[chosen]
            columns = {name: column.train[rows] for name, column in self.data.columns.items()}
            return rule(spec, self.data.train_y[rows], clients, seed, columns, self._plugins)

        if of_sample is None:
            return make(np.arange(len(pool)), self.clients, self.seed)
        return clusters.divided(of_sample[pool], self.clients, clusters.count(self.spec["clusters"]), self.seed, make)

    @cached_property
    def columns(self) -> ColumnGroups:
        """The columns of the samples that each client has. Raises TaskError where the partition is none by columns."""
        from emul.learning.columns import NAME, ColumnGroups

        name, value = partition.parse(self.spec.get("partition") or "iid")
        if name != NAME:
            raise TaskError(f"partition: expected one by columns, such as {{columns: {{groups: 2}}}}, found {name}")
        return ColumnGroups.of(value, self.data.input_shape)

    def samples(self, client: int) -> int:
        """The number of training samples of the client (0 <= client < clients)."""
        self._require(client)
        return self._partition.size(client)

    def indices(self, client: int) -> np.ndarray:
        """The training samples of the client: indices (samples,) int64 into the training set."""
        self._require(client)
        return self._pools[1][self._partition.indices(client)]

    def held_out(self) -> np.ndarray:
        """The training samples that no client gets: indices (held_out,) int64 into the training set."""
        return self._pools[0]

    def root_part(self, c: int, m: int) -> np.ndarray:
        """Part c of m of the root data, see `emul.learning.root`: indices into the training set. Raises RootError."""
        said = root.parse(self.spec.get("root") or {"samples": 0})
        return root.part(said, self.held_out(), self.data.train_y, self._cluster_of_sample, c, m, self.seed)

    def cluster(self, client: int) -> int | None:
        """The cluster that the client's data are of; None: the task has no clusters."""
        self._require(client)
        return None if self.spec.get("clusters") is None else client % clusters.count(self.spec["clusters"])

    def _require(self, client: int) -> None:
        if not 0 <= client < self.clients:
            raise TaskError(f"expected a client in 0..{self.clients - 1}, found {client}")

    # --- the model ----------------------------------------------------------------------------------------------------

    def module(self) -> nn.Module:
        """The model with its first weights, made anew."""
        return models.create(self.spec["model"], self.data.input_shape, self.data.outputs, self.seed, self._plugins)

    @cached_property
    def _model(self) -> FlatModule:
        from emul.learning.parameters import FlatModule

        return FlatModule(self.module(), self.device)

    @cached_property
    def _initial(self) -> Vector:
        from emul.learning.parameters import FlatModule

        initial = FlatModule(self.module()).read()      # a module of its own: _model may have been trained by now
        initial.flags.writeable = False
        return initial

    def initial_parameters(self, c: int = 0) -> Vector:
        """The first global model, (d,) float32, read-only, equal for everybody. c: another one, drawn by a seed of its
        own, for schemes with several models that must differ."""
        from emul.learning.parameters import FlatModule

        if not c:
            return self._initial
        seed = key64(self.seed, "initial", c) >> 1
        return FlatModule(models.create(self.spec["model"], self.data.input_shape, self.data.outputs, seed,
                                        self._plugins)).read()

    @property
    def dimension(self) -> int:
        """d, the length of every vector: parameters and buffers of the model."""
        return self._model.dimension

    def named(self, vector: Vector) -> dict[str, np.ndarray]:
        """A model's (d,) parameters by the names of its parts; of another vector all of it as `parameters`."""
        return self._model.named(vector) if vector.shape == (self.dimension,) else {"parameters": vector}

    @cached_property
    def layers(self) -> list[np.ndarray]:
        """The places of each layer in a vector, ascending, in the order of the model: (n,) int64 each.

        A layer is what the model names by one number, such as `blocks.0`; everything else, such as embeddings and last
        norms, goes with the first layer. A declared model that says how many it has is cut into equal parts.
        """
        found = declared(self.spec)
        if found is not None and found.layers is not None:
            return np.array_split(np.arange(self.dimension), found.layers)
        by_name: dict[str, list[np.ndarray]] = {"": []}
        for name, places in self.named(np.arange(self.dimension)).items():
            parts = name.split(".")
            number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
            by_name.setdefault("" if number is None else ".".join(parts[:number + 1]), []).append(places.reshape(-1))
        rest = by_name.pop("")
        layers = [np.concatenate(each) for each in by_name.values()]
        return [np.sort(np.concatenate([*rest, *layers[:1]])), *layers[1:]]

    @cached_property
    def growth(self) -> float:
        """The bytes that a declared model has more than this one for each of its bytes; 0: no model is declared."""
        found = declared(self.spec)
        return 0.0 if found is None else max(0.0, found.parameters / self.dimension - 1)

    def whole(self, vector: Vector) -> nn.Module:
        """The model with these parameters, (d,), and with what is in no vector, such as frozen ones: a module of its
        own, on the CPU, as it evaluates. Raises ParameterError."""
        import torch

        module = self.module()
        named = {name: torch.from_numpy(np.array(value)) for name, value in self._model.named(vector).items()}
        module.load_state_dict(named, strict=False)
        return module.eval()

    def tower(self, party: int, width: int) -> nn.Module:
        """The model for the columns of a party, with `width` outputs, made anew with first weights of its own."""
        return models.create(self.spec["model"], self.columns.shape_of(party), width,
                             key64(self.seed, "tower", party) >> 1, self._plugins)

    def examples(self, n: int) -> Batch:
        """The first n training samples, as the model takes them; repeated where there are fewer."""
        from emul.learning.training import Samples

        return Samples(self.data, np.resize(np.arange(len(self.data.train_y)), n)).take(np.arange(n))

    # --- how well a model does ----------------------------------------------------------------------------------------

    def evaluate(self, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"}: means over the test set; no accuracy where targets are floats. Changes no state and no
        stream."""
        return self._scores(vector).overall()

    def evaluate_client(self, client: int, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} on test samples that follow the client's training labels; see `evaluation`."""
        return self._scores(vector).under(self.label_distribution(client))

    def evaluate_clients(self, vector: Vector) -> dict[str, dict[str, float]]:
        """{"accuracy", "loss"}: mean, std, min and max over the clients of what `evaluate_client` gives."""
        from emul.learning.evaluation import spread

        each = self.evaluate_each(vector)
        return {key: spread(np.array([value[key] for value in each])) for key in each[0]}

    def evaluate_each(self, vector: Vector) -> list[dict[str, float]]:
        """The result of `evaluate_client` for every client."""
        scores = self._scores(vector)
        return [scores.under(p) for p in self._distributions]

    def evaluate_best(self, vectors: Sequence[Vector]) -> dict[str, float]:
        """{"accuracy", "loss"} of several models: the mean over the task's clusters of what the best of them, that of
        the least test loss, has on the cluster's test samples; without clusters, over the clients as `evaluate_client`
        sees them. Changes no state and no stream."""
        of_clusters = self.spec.get("clusters") is not None
        groups: list[int | None] = [*range(min(self.clients, clusters.count(self.spec["clusters"])))] \
            if of_clusters else [None]
        best: list[dict[str, float]] = []
        for client in groups:
            scores = [self._scores_on(vector, client) for vector in vectors]
            views = [[s.overall()] if of_clusters else [s.under(p) for p in self._distributions] for s in scores]
            best += [min(of_one, key=lambda found: found["loss"]) for of_one in zip(*views, strict=True)]
        return {name: float(np.mean([found[name] for found in best])) for name in best[0]}

    def evaluate_own(self, client: int, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of a personal model on the client's own test samples: those that its partition gives it,
        else as `evaluate_client`. Changes no state and no stream."""
        own = self.test_indices(client) is not None
        return self._scores_on(vector, client).overall() if own else self.evaluate_client(client, vector)

    def evaluate_on(self, x: np.ndarray, y: np.ndarray, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} on the network inputs x (n, ...) float32 with the labels y (n,). Changes no state."""
        from emul.learning.evaluation import scores

        samples = replace(self.data, test_x=x, test_y=y, scale=1.0, mean=0.0, std=1.0, columns={})
        return scores(self._model, vector, samples, self.objective).overall()

    def label_distribution(self, client: int) -> np.ndarray:
        """Share of each class among the client's training samples, (C,) float64; [1.0] where targets are no labels."""
        from emul.learning.evaluation import label_distribution

        if not self.data.labelled:
            return np.ones(1)
        return label_distribution(self.data.train_y[self.indices(client)], self.data.classes)

    @cached_property
    def _distributions(self) -> np.ndarray:
        """Label distributions of all clients, (K, C) float64: made once, for they are asked for at every evaluation."""
        return np.stack([self.label_distribution(client) for client in range(self.clients)])

    def _scores(self, vector: Vector) -> Scores:
        """Scores of the vector; those of the last one are kept, since clients are asked about the same vector."""
        key = blake2b(np.ascontiguousarray(vector).data, digest_size=16).digest()
        if self._last_scores is None or self._last_scores[0] != key:
            self._last_scores = key, self._scores_on(vector)
        return self._last_scores[1]

    def _scores_on(self, vector: Vector, client: int | None = None) -> Scores:
        """On the whole test set, or on what the partition gives the client of it."""
        from emul.learning.evaluation import Scores, scores

        def compute() -> list[np.ndarray]:
            found = scores(self._model, vector, self.data if client is None else self.own_test(client), self.objective)
            return [np.array(list(found.sums)), found.count, *found.sums.values()]

        inputs = (vector, self.data, self.test_indices(client), self.objective)
        names, count, *sums = self.result("scores", inputs, compute, on_clock=False)
        return Scores(count, dict(zip(names.tolist(), sums, strict=True)))

    def test_indices(self, client: int | None) -> np.ndarray | None:
        """The client's own test samples, indices into the test set; None: the partition gives it none."""
        if client is None:
            return None
        self._require(client)
        return self._partition.test_indices(client, self.data.test_y, {
            name: column.test for name, column in self.data.columns.items() if column.test is not None})

    def own_test(self, client: int) -> data_sets.DataSet:
        """The data with the client's own test samples, where it has some, in place of all."""
        chosen = self.test_indices(client)
        if chosen is None:
            return self.data
        return replace(self.data, test_x=data_sets.mapped(lambda x: x[chosen], self.data.test_x),
                       test_y=self.data.test_y[chosen], columns={})
