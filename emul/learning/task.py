"""The learning task of a run, one a worker process; what a node sees of it is `emul.learning.node_task`.

Everything is loaded on first use, from plain data (`spec`), so that a task crosses a process boundary as a dict.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np

from emul.base.clock import off_the_clock
from emul.base.plain import PlainDict
from emul.base.streams import generator, key64
from emul.learning import clusters, models, partition, root, solver
from emul.learning import data as data_sets
from emul.learning.declared import declared
from emul.learning.names import MODEL, find
from emul.learning.node_task import NodeTask, TaskError, Vector

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from torch import nn

    from emul.learning.attack import Attack
    from emul.learning.columns import ColumnGroups
    from emul.learning.device import Device
    from emul.learning.disguise import Disguise
    from emul.learning.evaluation import Scores
    from emul.learning.fitting import Fitting
    from emul.learning.local import KeptMoments, LocalTraining
    from emul.learning.objectives import Batch, Objective
    from emul.learning.parameters import FlatModule
    from emul.learning.pieces import PieceLayout
    from emul.learning.results import Results
    from emul.learning.stacked_pieces import Back, There
    from emul.learning.together import Together
    from emul.learning.training import Samples
    from emul.store import Store

Asked: TypeAlias = Union["LocalTraining", "There", "Back"]      # of what runs side by side, to be done as one


class Task:
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
    memory: the most that a process on a CPU may hold, bytes; 0: no limit. sharing: workers that are on this GPU.
    plugins: modules of users that offer data sets, partitions, models or objectives. One model is reused by all calls:
    not for several threads. A spec that `emul.scenario.task` has found sound is expected; makers of its parts raise
    errors of their own on first use.
    """

    skips = False                       # `training: skip`: local trainings leave every model as it is

    def __init__(self, spec: PlainDict, clients: int, seed: int, device: str = "cpu",
                 store: Store | None = None, plugins: Sequence[str] = (), memory: int = 0, sharing: int = 1):
        self.spec, self.clients, self.seed, self._device = spec, clients, seed, device
        self._store, self._plugins = store, tuple(plugins)
        self.solver = solver.make(spec["solver"])
        self.poisoned: dict[tuple[str, int | None, int], Samples] = {}  # by node, whose samples, number of the attack
        self._last_scores: tuple[bytes, Scores] | None = None
        self._layouts: dict[tuple[str | None, str | None], PieceLayout] = {}
        self._alone: set[Hashable] = set()              # settings of objectives that cannot be fused
        self._memory, self._sharing = memory, sharing

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

        place = None if self._store is None else place_of(
            self.spec["model"], self.data.input_shape, self.data.outputs, self.seed, self._device,
            (*self._plugins, *self._homes()), self._model.frozen())
        return Results(self._store, place)

    def _homes(self) -> list[str]:
        """The modules that a user's model and objective come from."""
        found = (find(MODEL, models.parse(self.spec["model"])[0], self._plugins), type(self.objective))
        return sorted({made.__module__ for made in found if made is not None and made.__module__ is not None})

    def result(self, what: str, inputs: object, compute: Callable[[], list[np.ndarray]], *,
               on_clock: bool = True) -> list[np.ndarray]:
        """The result of `compute`, which depends on the model and `inputs` alone; see `Results.of`."""
        def timed() -> list[np.ndarray]:
            with self.device.timed() if on_clock else contextlib.nullcontext():
                return compute()

        return self.results.of(what, inputs, timed, lambda: self.device.busy_ns)

    @cached_property
    def _pools(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training samples that are held out, and of those for the clients, both in their order."""
        n = len(self.data.train_y)
        mask = np.zeros(n, dtype=bool)
        mask[self._chosen_for_root(n)] = True
        return np.flatnonzero(mask), np.flatnonzero(~mask)

    def _chosen_for_root(self, n: int) -> np.ndarray:
        if self.spec.get("root") is not None:
            return root.draw(root.parse(self.spec["root"]), self.data.train_y, self._cluster_of_sample, self.seed)
        held_out = self.spec["data"].get("held_out") or 0
        if held_out > n:
            raise TaskError(f"held_out: expected at most the {n} training samples, found {held_out}")
        return generator(self.seed, "partition", "held_out").permutation(n)[:held_out]

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
    def _model(self) -> FlatModule:
        from emul.learning.parameters import FlatModule

        return FlatModule(self.module(), self.device)

    def layout(self, after: str | None, last: str | None) -> PieceLayout:
        """Of a piece of the model (`NodeTask.piece`), made once. Raises PieceError."""
        from emul.learning.pieces import PieceLayout

        if (after, last) not in self._layouts:
            self._layouts[after, last] = PieceLayout.of_run(self, after, last)
        return self._layouts[after, last]

    @cached_property
    def columns(self) -> ColumnGroups:
        """The columns of the samples that each client has. Raises TaskError where the partition is none by columns."""
        from emul.learning.columns import NAME, ColumnGroups

        name, value = partition.parse(self.spec.get("partition") or "iid")
        if name != NAME:
            raise TaskError(f"partition: expected one by columns, such as {{columns: {{groups: 2}}}}, found {name}")
        return ColumnGroups.of(value, self.data.input_shape)

    def tower(self, party: int, width: int) -> nn.Module:
        """The model for the columns of a party, with `width` outputs, made anew with first weights of its own."""
        return models.create(self.spec["model"], self.columns.shape_of(party), width,
                             key64(self.seed, "tower", party) >> 1, self._plugins)

    def examples(self, n: int) -> Batch:
        """The first n training samples, as the model takes them; repeated where there are fewer."""
        from emul.learning.training import Samples

        return Samples(self.data, np.resize(np.arange(len(self.data.train_y)), n)).take(np.arange(n))

    def module(self) -> nn.Module:
        """The model with its first weights, made anew."""
        return models.create(self.spec["model"], self.data.input_shape, self.data.outputs, self.seed, self._plugins)

    def whole(self, vector: Vector) -> nn.Module:
        """The model with these parameters, (d,), and with what is in no vector, such as frozen ones: a module of its
        own, on the CPU, as it evaluates. Raises ParameterError."""
        import torch

        module = self.module()
        named = {name: torch.from_numpy(np.array(value)) for name, value in self._model.named(vector).items()}
        module.load_state_dict(named, strict=False)
        return module.eval()

    @cached_property
    def _initial(self) -> Vector:
        from emul.learning.parameters import FlatModule

        initial = FlatModule(self.module()).read()      # a module of its own: _model may have been trained by now
        initial.flags.writeable = False
        return initial

    @property
    def dimension(self) -> int:
        """d, the length of every vector: parameters and buffers of the model."""
        return self._model.dimension

    @cached_property
    def growth(self) -> float:
        """The bytes that a declared model has more than this one for each of its bytes; 0: no model is declared."""
        found = declared(self.spec)
        return 0.0 if found is None else max(0.0, found.parameters / self.dimension - 1)

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

    def named(self, vector: Vector) -> dict[str, np.ndarray]:
        """A model's (d,) parameters by the names of its parts; of another vector all of it as `parameters`."""
        return self._model.named(vector) if vector.shape == (self.dimension,) else {"parameters": vector}

    def prepare(self) -> None:
        """Load the data and build the model now: neither is to fall into what a role does first."""
        _ = self._initial, self._model
        self._plan_memory()

    def _plan_memory(self) -> None:
        """Plan how many clients are trained as one, from a step of one and one of two. Raises TaskError if not one
        fits."""
        from emul.learning.fitting import met_no_memory
        from emul.learning.fused import train_fused
        from emul.learning.local import LocalTraining, train_alone
        from emul.learning.training import Samples, Stream

        held = sum(array.nbytes for x in (self.data.train_x, self.data.test_x)
                   for array in (x.values() if isinstance(x, dict) else (x,)))
        room = None if self.skips or not self.clients else self.device.room(self._memory, held, self._sharing)
        if room is None:
            return
        largest = max(range(self.clients), key=self.samples)            # its batches are
        local = LocalTraining(self._initial, Samples(self.data, self.indices(largest)), self.solver.with_steps(1),
                              Stream(self.seed, "memory", 0, 0), self.objective)

        def train(clients: int) -> None:
            if self._refusal is None and local.solver.stacks:
                train_fused(self._model, [local] * clients)
            else:
                train_alone(self._model, local)

        try:
            one, two = (self.device.peak(partial(train, clients)) for clients in (1, 2))
        except Exception as error:
            if not met_no_memory(error):
                raise
            one, two = room + 1, room + 1
        self.device.let_go()
        if one > room:
            raise TaskError(f'model "{self.spec["model"]}": a step of one client takes {one / 2**20:,.0f} MiB and '
                            f"more, expected at most {max(0, room) / 2**20:,.0f} MiB, which {self.device.kind} has for "
                            "it")
        self.fitting.plan(room, one, two, 4 * self.dimension if self.device.on_cpu else 0)

    def initial_parameters(self, c: int = 0) -> Vector:
        """The first global model, (d,) float32, read-only, equal for everybody. c: another one, drawn by a seed of its
        own, for schemes with several models that must differ."""
        from emul.learning.parameters import FlatModule

        if not c:
            return self._initial
        seed = key64(self.seed, "initial", c) >> 1
        return FlatModule(models.create(self.spec["model"], self.data.input_shape, self.data.outputs, seed,
                                        self._plugins)).read()

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

    def evaluate_own(self, client: int, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of a personal model on the client's own test samples: those that its partition gives it,
        else as `evaluate_client`. Changes no state and no stream."""
        own = self.test_indices(client) is not None
        return self._scores_on(vector, client).overall() if own else self.evaluate_client(client, vector)

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

    @cached_property
    def together(self) -> Together[Asked, object]:
        """The object that runs training computations side by side and trains for them as one."""
        from emul.learning.together import Together

        return Together(_alike, self._as_one, lambda: self.device.busy_ns)

    def _as_one(self, asked: Sequence[Asked]) -> Sequence[object]:
        """The answers to trainings, or to passes through pieces, that are alike."""
        from emul.learning.local import LocalTraining
        from emul.learning.stacked_pieces import answered

        trainings = [one for one in asked if isinstance(one, LocalTraining)]
        return self._train_fused(trainings) if trainings else answered([
            one for one in asked if not isinstance(one, LocalTraining)])

    def train(self, local: LocalTraining) -> Vector:
        """The model's state after a local training, (d,) float32, a fresh array: as one with others' where computations
        run together. It depends on `local` alone (and, where it is one with others', on theirs by rounding)."""
        if self.together.running and local.solver.stacks:
            after = self.together.ask(local)
            assert isinstance(after, np.ndarray)
            return after
        if self._masks_on_cpu and local.solver.stacks:
            return self._train_fused([local])[0]
        from emul.learning.local import train_alone

        return self.result("train", local, lambda: [train_alone(self._model, local)])[0]

    def train_keeping(self, local: LocalTraining) -> tuple[Vector, KeptMoments]:
        """As `train`, alone, with a solver that goes on from `local.kept`: (the state after, what the solver has)."""
        from emul.learning.local import KeptMoments, train_keeping

        def compute() -> list[np.ndarray]:
            after, kept = train_keeping(self._model, local)
            return [after, np.array([kept.taken]), *kept.moments]

        after, taken, *moments = self.result("train keeping", local, compute)
        return after, KeptMoments(int(taken[0]), tuple(moments))

    def descend(self, before: Vector, gradient: Vector, kept: KeptMoments | None) -> tuple[Vector, KeptMoments]:
        """One step of the solver along a gradient: (the state after, what the solver has)."""
        from emul.learning.local import KeptMoments, descend

        def compute() -> list[np.ndarray]:
            after, moments = descend(self._model, before, gradient, self.solver, kept)
            return [after, np.array([moments.taken]), *moments.moments]

        after, taken, *moments = self.result("descend", (before, gradient, self.solver, kept), compute)
        return after, KeptMoments(int(taken[0]), tuple(moments))

    def _train_fused(self, locals_: Sequence[LocalTraining]) -> list[Vector]:
        """The state after each of them, in groups that memory holds. Raises DeviceError: it does not hold one."""
        found: list[Vector] = []
        for group in self.fitting.groups(locals_):
            after = self._train_group(group)
            if after is None:
                self.fitting.halve(len(group))
                self.device.let_go()
                return found + self._train_fused(locals_[len(found):])
            found += after
        return found

    def _train_group(self, locals_: Sequence[LocalTraining]) -> list[Vector] | None:
        """The state after each of them: as one where model, data and objective let that be, else one after the other,
        which is said once. None: no memory, and with fewer there may be enough. No traceback is kept beyond this: it
        would hold the tensors."""
        from emul.learning.device import DeviceError
        from emul.learning.fitting import met_no_memory
        from emul.learning.fused import FuseError, train_fused
        from emul.learning.local import train_alone

        def compute() -> list[np.ndarray]:
            if self._refusal is None and objective.settings not in self._alone:
                try:
                    return train_fused(self._model, locals_)
                except FuseError as error:
                    self._alone.add(objective.settings)
                    _log.warning("clients are trained one after the other: %s", error)
            return [train_alone(self._model, local) for local in locals_]

        objective = locals_[0].objective
        try:
            return self.result("train as one", tuple(locals_), compute)
        except Exception as error:
            if not met_no_memory(error):
                raise
            if len(locals_) > 1:
                return None
            raise DeviceError(f"{self.device.kind}: no memory for the training of one client: "
                              f"{str(error).partition(chr(10))[0]}") from None

    @cached_property
    def fitting(self) -> Fitting:
        """The number of clients that are trained as one."""
        from emul.learning.fitting import Fitting

        return Fitting()

    @cached_property
    def _refusal(self) -> str | None:
        """The reason why the model's trainings cannot be computed as one; None: they can."""
        from emul.learning import fused

        if isinstance(self.data.train_x, dict):
            reason: str | None = "samples of several tensors"
        else:
            reason = fused.refusal(self._model.module, self.examples(3).x)
        if reason is not None:
            _log.warning("clients are trained one after the other: %s: %s", self.spec["model"], reason)
        return reason

    @cached_property
    def _masks_on_cpu(self) -> bool:
        """True if a lone training goes through the code of fused ones, which draws dropout masks where a CPU's would:
        on a GPU, if the model lets it."""
        return not self.device.on_cpu and self._refusal is None

    def for_node(self, name: str, client: int | None, round_of: Callable[[], int],
                 attack: Attack | None = None) -> NodeTask:
        """The task as the role of node `name` sees it. client: its number among the clients, None if it is none of
        them.

        round_of: gives the node's present round. attack: what the node does with what it learns; None: nothing.
        """
        if client is not None:
            self._require(client)
        return NodeTask(self, name, client, round_of, attack)

    @contextlib.contextmanager
    def apart(self) -> Iterator[Together[Asked, object]]:
        """Off the clock, and apart from computations that run side by side: inside the block trainings are alone, or
        together with those that are run with what is given."""
        from emul.learning.together import Together

        outer, busy_ns = self.together, self.device.busy_ns
        self.together = inner = Together(_alike, self._as_one)
        try:
            with off_the_clock():
                yield inner
        finally:
            self.together, self.device.busy_ns = outer, busy_ns

    def evaluate_on(self, x: np.ndarray, y: np.ndarray, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} on the network inputs x (n, ...) float32 with the labels y (n,). Changes no state."""
        from emul.learning.evaluation import scores

        samples = replace(self.data, test_x=x, test_y=y, scale=1.0, mean=0.0, std=1.0, columns={})
        return scores(self._model, vector, samples, self.objective).overall()

    def _require(self, client: int) -> None:
        if not 0 <= client < self.clients:
            raise TaskError(f"expected a client in 0..{self.clients - 1}, found {client}")


def _alike(asked: Asked) -> Hashable:
    """The properties that what is computed as one must share."""
    from emul.learning import fused
    from emul.learning.local import LocalTraining

    return fused.key(asked) if isinstance(asked, LocalTraining) else asked.key
