"""The learning task of a run: one `Task` a worker process, one `NodeTask` a node.

Everything is loaded on first use, from plain data (`spec`), so that a task crosses a process boundary as a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from emul.base.errors import EmulError, Problem
from emul.base.streams import generator
from emul.learning import data as data_sets
from emul.learning import models, partition, solver
from emul.learning.names import unknown

if TYPE_CHECKING:
    from emul.learning.device import Device
    from emul.learning.evaluation import Scores
    from emul.learning.local import Local
    from emul.learning.parameters import FlatModule
    from emul.learning.pooling import Pool
    from emul.learning.together import Together
    from emul.learning.training import Samples

Vector = np.ndarray                                     # (d,) float32
# A poisoned client: (inputs (n, ...) float32, labels (n,) int64, rng) -> the same, changed
Transform = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
Tamper = Callable[[dict[int, np.ndarray], np.random.Generator], dict[int, np.ndarray]]

_KEYS = ("data", "partition", "model", "solver")
_DATA_KEYS = ("set", "directory", "normalise", "held_out")


class TaskError(EmulError):
    """A task is not what it should be, or a node asks for what it has not got."""


class Task:
    """Data, partition, model and solver of a run, the same for everybody who gives the same arguments.

    spec: {"data": {"set": name, "directory": path, "normalise": {"mean": m, "std": s}, "held_out": n},
           "partition": "iid", "model": name, "solver": {"sgd": {"lr": 0.1, "steps": 5, "batch": 32}}};
    all of `data` but `set` is optional, `partition` is `iid` by default. Inputs of a built-in set are standardised by
    the mean and std of its training images; `normalise` gives others, on pixels in [0, 1]. `held_out` training samples
    are kept from the clients, for nodes that are none (the root data of a server). One model is reused by all calls:
    not for several threads. device: where it trains and evaluates, "cpu", "cuda" or "cuda:1". Raises TaskError if
    `validate` finds a mistake.
    """

    def __init__(self, spec: dict[str, Any], clients: int, seed: int, device: str = "cpu"):
        problems = validate(spec, clients)
        if problems:
            raise TaskError("; ".join(_sentence(p) for p in problems))
        self.spec, self.clients, self.seed, self._device = spec, clients, seed, device
        self.solver = solver.make(spec["solver"])
        self._last_scores: tuple[bytes, Scores] | None = None

    @cached_property
    def data(self) -> data_sets.DataSet:
        return data_sets.load(self.spec["data"])

    @cached_property
    def device(self) -> Device:
        """Where it computes; `device.busy_ns` counts a GPU's time. Raises DeviceError if there is no such device."""
        from emul.learning.device import Device

        return Device(self._device)

    @cached_property
    def _pools(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training samples that are held out, and of those for the clients, both in their order."""
        n, held_out = len(self.data.train_y), self.spec["data"].get("held_out") or 0
        if held_out > n:
            raise TaskError(f"held_out: expected at most the {n} training samples, found {held_out}")
        chosen = generator(self.seed, "partition", "held_out").permutation(n)[:held_out]
        mask = np.zeros(n, dtype=bool)
        mask[chosen] = True
        return np.flatnonzero(mask), np.flatnonzero(~mask)

    @cached_property
    def _partition(self) -> partition.Partition:
        labels = self.data.train_y[self._pools[1]]
        return partition.make(self.spec.get("partition") or "iid", labels, self.clients, self.seed)

    @cached_property
    def _model(self) -> FlatModule:
        from emul.learning.parameters import FlatModule

        module = models.create(self.spec["model"], self.data.input_shape, self.data.classes, self.seed)
        return FlatModule(module, self.device)

    @cached_property
    def _initial(self) -> Vector:
        from emul.learning.parameters import FlatModule

        module = models.create(self.spec["model"], self.data.input_shape, self.data.classes, self.seed)
        initial = FlatModule(module).read()             # a module of its own: _model may have been trained by now
        initial.flags.writeable = False
        return initial

    @property
    def dimension(self) -> int:
        """d, the length of every vector: parameters and buffers of the model."""
        return self._model.dimension

    def prepare(self) -> None:
        """Load the data and build the model now: neither is to fall into what a role does first."""
        _ = self._initial, self._model

    def initial_parameters(self) -> Vector:
        """The first global model, (d,) float32, read-only, equal for everybody."""
        return self._initial

    def samples(self, client: int) -> int:
        """How many training samples the client (0 <= client < clients) holds."""
        self._require(client)
        return self._partition.size(client)

    def indices(self, client: int) -> np.ndarray:
        """Which training samples the client holds, (samples,) int64 into the training set."""
        self._require(client)
        return self._pools[1][self._partition.indices(client)]

    def held_out(self) -> np.ndarray:
        """Which training samples are kept from the clients, (held_out,) int64 into the training set."""
        return self._pools[0]

    def evaluate(self, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"}: means over the test set. Changes no state and no stream."""
        return self._scores(vector).overall()

    def evaluate_client(self, client: int, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} on test samples that follow the client's training labels; see `evaluation`."""
        return self._scores(vector).under(self.label_distribution(client))

    def evaluate_clients(self, vector: Vector) -> dict[str, dict[str, float]]:
        """{"accuracy", "loss"}: mean, std, min and max over the clients of what `evaluate_client` gives."""
        from emul.learning.evaluation import spread

        each = self.evaluate_each(vector)
        return {key: spread(np.array([value[key] for value in each])) for key in ("accuracy", "loss")}

    def evaluate_each(self, vector: Vector) -> list[dict[str, float]]:
        """What `evaluate_client` gives, of every client."""
        scores = self._scores(vector)
        return [scores.under(p) for p in self._distributions]

    def label_distribution(self, client: int) -> np.ndarray:
        """Share of each class among the client's training samples, (C,) float64."""
        from emul.learning.evaluation import label_distribution

        return label_distribution(self.data.train_y[self.indices(client)], self.data.classes)

    @cached_property
    def _distributions(self) -> np.ndarray:
        """Label distributions of all clients, (K, C) float64: made once, for they are asked for at every evaluation."""
        return np.stack([self.label_distribution(client) for client in range(self.clients)])

    def _scores(self, vector: Vector) -> Scores:
        """Scores of the vector; those of the last one are kept, since clients are asked about the same vector."""
        from emul.learning.evaluation import scores

        key = blake2b(np.ascontiguousarray(vector).data, digest_size=16).digest()
        if self._last_scores is None or self._last_scores[0] != key:
            self._last_scores = key, scores(self._model, vector, self.data)
        return self._last_scores[1]

    def evaluate_own(self, client: int, vector: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of a personal model on the client's own test samples: those that its partition gives it,
        else as `evaluate_client`. Changes no state and no stream."""
        from emul.learning.evaluation import scores

        own = self._own_test(client)
        return self.evaluate_client(client, vector) if own is None else scores(self._model, vector, own).overall()

    def _own_test(self, client: int) -> data_sets.DataSet | None:
        """The data with the client's own test samples in place of all; None: the partition gives it none."""
        self._require(client)
        if not isinstance(self._partition, partition.ClassSpace):
            return None
        chosen = self._partition.test_indices(client, self.data.test_y)
        return replace(self.data, test_x=self.data.test_x[chosen], test_y=self.data.test_y[chosen])

    @cached_property
    def together(self) -> Together[Local, Vector]:
        """What lets computations that train run side by side, and trains for them as one."""
        from emul.learning import fused
        from emul.learning.together import Together

        return Together(fused.key, self._train_fused)

    def _train_fused(self, locals_: Sequence[Local]) -> list[Vector]:
        from emul.learning.fused import train_fused

        with self.device.timed():
            return train_fused(self._model, locals_)

    @cached_property
    def _masks_on_cpu(self) -> bool:
        """Whether a lone training goes through the code of fused ones, which draws dropout masks where a CPU's would:
        on a GPU, if the model lets it."""
        from emul.learning import fused

        return not self.device.on_cpu and fused.refusal(self._model.module, self.data.input_shape) is None

    def for_node(self, name: str, client: int | None, round_of: Callable[[], int],
                 transform: Transform | None = None, tamper: Tamper | None = None) -> NodeTask:
        """What the role of node `name` sees. client: its number among the clients, None if it is none of them.

        round_of: gives the node's present round. transform: poisons the node's samples, once. tamper: changes the
        prototypes that it makes.
        """
        if client is not None:
            self._require(client)
        return NodeTask(self, name, client, round_of, transform, tamper)

    def _require(self, client: int) -> None:
        if not 0 <= client < self.clients:
            raise TaskError(f"expected a client in 0..{self.clients - 1}, found {client}")


class NodeTask:
    """`node.task`: the task as one node sees it.

    Streams of the k-th call within a round are keyed (name, round, k), so that a node's training depends on its own
    calls only. Keep the object for the node's whole life, also over a crash: its counters must survive.
    """

    def __init__(self, task: Task, name: str, client: int | None, round_of: Callable[[], int],
                 transform: Transform | None, tamper: Tamper | None = None):
        self._task, self._name, self._client, self._round_of = task, name, client, round_of
        self._transform, self._tamper = transform, tamper
        self._poisoned: dict[int | None, Samples] = {}      # by whose samples they are
        self._round, self._calls = -1, 0

    @property
    def untouched(self) -> bool:
        """Whether it has drawn nothing and keeps nothing yet, so that another object would do as well."""
        return self._round < 0 and not self._poisoned

    @property
    def dimension(self) -> int:
        """d, the length of every vector."""
        return self._task.dimension

    def initial_parameters(self) -> Vector:
        """The first global model, (d,) float32, read-only, equal for everybody."""
        return self._task.initial_parameters()

    def samples(self) -> int:
        """How many training samples this node holds: a client's share, or what is held out for the others."""
        if self._client is None:
            return len(self._task.held_out())
        return self._task.samples(self._client)

    def local_update(self, parameters: Vector, *, steps: int | None = None, share: int | None = None,
                     epochs: int | None = None, only: str | None = None, proximal: float = 0.0,
                     ) -> tuple[Vector, int]:
        """Train from `parameters` on this node's samples: (after - before (d,) float32, number of samples).

        steps: in place of the solver's own steps or epochs. share: on the samples of client number `share` instead,
        which this node holds a copy of; all who train on it in one round from the same parameters get the same
        update, since streams are keyed by (share, round). `parameters` is only read; the result is fresh and may be
        written. Raises TaskError at a node without samples that is no client.

        epochs: in place of the solver's own. only: train this part alone, as in `part`. proximal: mu, adds
        (mu / 2) |w - parameters|^2 to the loss.
        """
        from emul.learning.local import Local
        from emul.learning.training import Stream

        samples = self._samples(share)
        stream = self._stream() if share is None else Stream(self._task.seed, f"share {share}", self._round_of(), 0)
        before = np.asarray(parameters, dtype=np.float32)
        solver_ = self._task.solver.with_steps(steps)
        if epochs is not None:
            solver_ = replace(solver_, steps=None, epochs=epochs)
        after = self._train(Local(before, samples, solver_, stream, self._mask(only), proximal))
        return np.subtract(after, before, out=after), len(samples)

    def _train(self, local: Local) -> Vector:
        """The model's state after it, (d,) float32, a fresh array: as one with others' where they are computed so."""
        from emul.learning.local import train_alone

        task = self._task
        if task.together.running:
            return task.together.ask(local)
        if task._masks_on_cpu:
            return task._train_fused([local])[0]
        with task.device.timed():
            train_alone(task._model, local)
            return task._model.read()

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
        from emul.learning.prototypes import places

        return np.arange(self.dimension) if name == "all" else places(self._cut(), name)

    @property
    def features(self) -> int:
        """n, the length of a sample's feature vector C."""
        return int(cast(Any, self._cut().module).features)

    @property
    def classes(self) -> int:
        """J, of the data."""
        return self._task.data.classes

    def own_classes(self) -> list[int]:
        """Classes of this node's samples as it was given them, ascending."""
        return np.unique(self._task.data.train_y[self._task.indices(self._client or 0)]).tolist()

    def train_prototypes(self, parameters: Vector, means: dict[int, Vector], *, weight: float, loss: str, pool: Pool,
                         ) -> tuple[Vector, dict[int, Vector], dict[int, int]]:
        """Train from `parameters` with the distance to the global prototypes {class: (n',)} added to the loss; then
        make the own ones: (after (d,), {class: mean pooled feature (n',) over all local samples}, {class: samples})."""
        from emul.learning import prototypes
        from emul.learning.local import Local

        samples, model = self._samples(), self._cut()
        after = self._train(Local(np.asarray(parameters, dtype=np.float32), samples, self._task.solver, self._stream(),
                                  pull=prototypes.Pull(means, weight, loss, pool)))
        model.load(after)                               # if it was trained with others, it is in another state
        with self._task.device.timed():
            own, counts = prototypes.of_samples(model, samples, pool)
        if self._tamper is not None:
            own = self._tamper(own, generator(self._task.seed, "tamper", self._name, self._round_of()))
        return after, own, counts

    def evaluate_own(self, parameters: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of a personal model on this client's own test samples; another node: on all."""
        if self._client is None:
            return self._task.evaluate(parameters)
        return self._task.evaluate_own(self._client, parameters)

    def evaluate_nearest(self, parameters: Vector, means: dict[int, Vector], pool: Pool) -> dict[str, float]:
        """{"accuracy"} on this client's own test samples of the nearest of `means` to a sample's pooled features."""
        from emul.learning import prototypes

        assert self._client is not None
        own = self._task._own_test(self._client) or self._task.data
        model = self._cut()
        model.load(np.asarray(parameters, dtype=np.float32))
        return prototypes.nearest(model, own, means, pool, set(self.own_classes()))

    def _cut(self) -> FlatModule:
        """The model, of which features can be taken. Raises TaskError if it is not cut."""
        model = self._task._model
        if getattr(model.module, "features_at", None) is None:
            raise TaskError(f'model "{self._task.spec["model"]}": expected one with a representation and a decision, '
                            f"such as {', '.join(n for n, m in models.BUILT_IN.items() if m.features_at)}")
        return model

    def gradient(self, parameters: Vector) -> tuple[Vector, int]:
        """Gradient of the mean loss at `parameters` on one batch: ((d,) float32, 0 in buffers; number of samples)."""
        from emul.learning.training import mean_gradient

        samples, model = self._samples(), self._task._model
        model.load(np.asarray(parameters, dtype=np.float32))
        with self._task.device.timed():
            return mean_gradient(model, samples, self._task.solver, self._stream()), len(samples)

    def evaluate(self, parameters: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} as this node sees the test set: a client by its own labels, another node the whole."""
        if self._client is None:
            return self._task.evaluate(parameters)
        return self._task.evaluate_client(self._client, parameters)

    def _stream(self) -> Any:
        from emul.learning.training import Stream

        now = self._round_of()
        if now != self._round:
            self._round, self._calls = now, 0
        self._calls += 1
        return Stream(self._task.seed, self._name, now, self._calls - 1)

    def _samples(self, share: int | None = None) -> Samples:
        from emul.learning.training import Samples

        task, whose = self._task, self._client if share is None else share
        if whose in self._poisoned:
            return self._poisoned[whose]
        indices = task.held_out() if whose is None else task.indices(whose)
        if whose is None and len(indices) == 0:
            raise TaskError(f'node "{self._name}" is no client and has no samples: '
                            "expected data.held_out in the task, the number of samples kept for such nodes")
        if self._transform is None:
            return Samples(task.data, indices)
        x, y = self._transform(task.data.inputs(task.data.train_x[indices]),
                               task.data.train_y[indices].astype(np.int64),
                               generator(task.seed, "poison", self._name))
        own = replace(task.data, train_x=np.asarray(x, dtype=np.float32), train_y=np.asarray(y),
                      scale=1.0, mean=0.0, std=1.0)     # what the transform was given were network inputs already
        self._poisoned[whose] = Samples(own, np.arange(len(own.train_y)))
        return self._poisoned[whose]


# --- checks, without torch ---------------------------------------------------------------------------------------

def validate(spec: dict[str, Any], clients: int) -> list[Problem]:
    """Every mistake of a task as written in a scenario; places start with "task". Imports no torch, reads no data."""
    problems: list[Problem] = []

    def add(place: str, found: Any, expected: str) -> None:
        problems.append(Problem(f"task.{place}" if place else "task", _shown(found), expected))

    if not isinstance(spec, dict):
        add("", spec, f"expected the keys {', '.join(_KEYS)}")
        return problems
    for key in spec:
        if key not in _KEYS:
            add(str(key), key, unknown("key", _KEYS, str(key), show_name=False))
    for key in ("data", "model", "solver"):
        if spec.get(key) is None:
            add(key, None, f"expected a {key}")
    known = _validate_data(spec["data"], add) if spec.get("data") is not None else None
    held_out = spec["data"].get("held_out") if known else 0
    samples = known.samples - (held_out if _is_held_out(held_out, known) else 0) if known else None
    _validate_partition(spec.get("partition") or "iid", clients, samples, known.classes if known else None, add)
    if spec.get("model") is not None:
        _validate_model(spec["model"], known, add)
    if spec.get("solver") is not None:
        for place, found, expected in solver.mistakes(spec["solver"]):
            add(place, found, expected)
    return problems


def gpus() -> int:
    """How many GPUs torch can use. Imports torch."""
    import torch

    return torch.cuda.device_count()


def cannot_fuse(spec: dict[str, Any]) -> str | None:
    """Why local trainings of a sound task cannot be computed as one; None: they can, or the data's shape is not known.

    Imports torch.
    """
    from emul.learning import fused

    known = data_sets.BUILT_IN.get(spec["data"]["set"])
    if known is None:
        return None
    reason = fused.refusal(models.create(spec["model"], known.input_shape, known.classes, 0), known.input_shape)
    return None if reason is None else f"{spec['model']}: {reason}"


_Add = Callable[[str, Any, str], None]


def _validate_data(spec: Any, add: _Add) -> data_sets.Known | None:
    """Check the data; return what is known of the set, if it is a built-in one."""
    if not isinstance(spec, dict) or not isinstance(spec.get("set"), str):
        add("data", spec, "expected a data set such as {set: digits}")
        return None
    name = spec["set"]
    if name not in data_sets.names():
        add("data.set", name, unknown("data set", data_sets.names(), name, show_name=False))
        return None
    known = data_sets.BUILT_IN.get(name)
    if known is None and name != data_sets.FOLDER:
        return None                                     # its keys are its author's
    for key in spec:
        if key not in _DATA_KEYS:
            add(f"data.{key}", spec[key], unknown("key", _DATA_KEYS, str(key), show_name=False))
    held_out = spec.get("held_out", 0)
    if held_out is not None and not (_is_held_out(held_out, known) if known else _is_count(held_out, 0)):
        add("data.held_out", held_out, f"expected an integer in 0..{known.samples - 1}" if known else
            "expected an integer, 0 or more")
    _validate_normalise(spec.get("normalise"), known.input_shape[0] if known else None, add)
    if spec.get("directory") is not None and not isinstance(spec["directory"], str):
        add("data.directory", spec["directory"], "expected a path")
    elif (reason := data_sets.missing(spec)) is not None:
        add("data.directory", spec.get("directory"), reason)
    return known


def _validate_normalise(spec: Any, channels: int | None, add: _Add) -> None:
    if spec is None:
        return
    good = isinstance(spec, dict) and set(spec) <= {"mean", "std"}
    numbers = {key: value if isinstance(value, list) else [value] for key, value in spec.items()} if good else {}
    good = good and all(v and all(isinstance(n, int | float) and not isinstance(n, bool) for n in v)
                        for v in numbers.values())
    if not good or not min(numbers.get("std", [1.0])) > 0:
        add("data.normalise", spec, "expected such as {mean: 0.1307, std: 0.3081}, std > 0")
    elif channels is not None and any(isinstance(v, list) and len(v) != channels for v in spec.values()):
        add("data.normalise", spec, f"expected {channels} numbers in a list, one for each channel")


def _validate_partition(spec: Any, clients: int, samples: int | None, classes: int | None, add: _Add) -> None:
    try:
        name, value = partition.parse(spec)
    except partition.PartitionError:
        add("partition", spec, "expected one partition such as iid or {dirichlet: 0.2}")
        return
    place = f"partition.{name}"
    if name not in partition.RULES:
        add("partition", name, unknown("partition", partition.RULES, name, show_name=False))
    elif name == "iid" and value is not None:
        add(place, value, "expected no value")
    elif name == "dirichlet" and not (isinstance(value, int | float) and not isinstance(value, bool)
                                      and 0 < value < float("inf")):
        add(place, value, "expected a concentration > 0")
    elif name == "classes" and not (_is_count(value, 1) and value <= (classes or value)):
        add(place, value, f"expected a number of classes in 1..{classes or 'C'}")
    elif name == "bootstrap" and not _is_count(value, 1):
        add(place, value, "expected a number of samples >= 1")
    elif name == "class_space":
        _validate_class_space(value, place, classes, add)
    elif name != "bootstrap" and samples is not None and clients > samples:
        add("partition", name, partition.too_many(name, clients, samples))


def _validate_class_space(value: Any, place: str, classes: int | None, add: _Add) -> None:
    if not isinstance(value, dict):
        add(place, value, "expected such as {avg: 3, std: 2, shots: 100, test_shots: 40}")
        return
    keys = partition.CLASS_SPACE
    for key, given in value.items():
        if key not in keys:
            add(f"{place}.{key}", given, unknown("key", keys, str(key), show_name=False))
        elif not _is_count(given, keys[key]):
            add(f"{place}.{key}", given, f"expected an integer, {keys[key]} or more")
        elif key == "avg" and classes is not None and given > classes:
            add(f"{place}.{key}", given, f"expected at most the {classes} classes")
    for key in ("avg", "std", "shots"):
        if key not in value:
            add(f"{place}.{key}", None, "expected a number")


def _validate_model(name: Any, known: data_sets.Known | None, add: _Add) -> None:
    if not isinstance(name, str):
        add("model", name, "expected the name of a model")
    elif name not in models.names():
        add("model", name, unknown("model", models.names(), name, show_name=False))
    elif known is not None and (reason := models.misfit(name, known.input_shape)) is not None:
        add("model", name, reason)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_held_out(value: Any, known: data_sets.Known) -> bool:
    return _is_count(value, 0) and value < known.samples


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else "nothing" if value is None else str(value)


def _sentence(problem: Problem) -> str:
    """A problem outside its file: `unknown model "digit_cnn"; did you mean "digits_cnn"?`."""
    if problem.expected.startswith("unknown "):
        what, rest = problem.expected.split(";", 1)
        return f"{what} {problem.found};{rest}"
    return f"{problem.place}: {problem.expected}, found {problem.found}"
