"""The samples of one node, its columns of them, and the streams of its calls: `NodeTask` trains on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from emul.base.streams import generator
from emul.learning.dataset import mapped
from emul.learning.task_parts import TaskError, Vector

if TYPE_CHECKING:
    from emul.learning.attack import Attack
    from emul.learning.objectives import Batch, Objective
    from emul.learning.solver import Solver
    from emul.learning.trainer import Trainer
    from emul.learning.training import Samples, Stream


@dataclass(frozen=True)
class Targets:
    """The targets of a sample, as they travel."""

    shape: tuple[int, ...]              # () for a label
    dtype: np.dtype                     # int32 or float32
    classes: int                        # 0: they are no labels


class NodeData:
    """The samples of one node, the sizes of the task's vectors, and the next batches.

    Streams of the k-th call within a round are keyed (name, round, k), so that a node's training depends on its own
    calls only.
    """

    def __init__(self, task: Trainer, name: str, client: int | None, round_of: Callable[[], int],
                 attack: Attack | None = None):
        self._task, self._name, self._client, self._round_of = task, name, client, round_of
        self._attack = attack
        self._round, self._calls = -1, 0

    @property
    def dimension(self) -> int:
        """d, the length of every vector."""
        return self._task.dimension

    def layers(self) -> list[np.ndarray]:
        """The places of each layer in a vector, ascending: (n,) int64 each; see `Task.layers`."""
        return self._task.layers

    def initial_parameters(self, c: int = 0) -> Vector:
        """The first global model, (d,) float32, read-only, equal for everybody. c: another one, drawn by a seed of its
        own, for schemes with several models that must differ."""
        return self._task.initial_parameters(c)

    @property
    def objective(self) -> Objective:
        """The task's own objective: what `local_update` minimises, and what evaluations tell as the loss."""
        return self._task.objective

    @property
    def solver(self) -> Solver:
        """The local solver: what `local_update` descends with."""
        return self._task.solver

    def local_steps(self) -> int:
        """The number of steps of a `local_update` of this node."""
        from emul.learning.solver import steps_of

        return steps_of(self._task.solver, len(self._samples()))

    @property
    def targets(self) -> Targets:
        """Shape, type and number of classes of the target of one sample."""
        y = self._task.data.train_y
        return Targets(y.shape[1:], np.dtype(np.int32 if y.dtype.kind in "iu" else np.float32), self._task.data.classes)

    def samples(self) -> int:
        """The number of training samples of this node: of a client's share, or of those held out for the others."""
        if self._client is None:
            return len(self._task.held_out())
        return self._task.samples(self._client)

    @property
    def test_samples(self) -> int:
        """The number of test samples."""
        return len(self._task.data.test_y)

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

    @property
    def choose_on(self) -> int:
        """On how many of its samples a client compares models; 0: on all."""
        return int(self._task.spec.get("choose_on") or 0)

    def cluster(self, client: int) -> int | None:
        """To which of the task's clusters the data of client number `client` really belong; None: it has no clusters.
        For observers: no honest role knows it."""
        return self._task.cluster(client)

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

    def plan(self, n: int, seed: int) -> list[np.ndarray]:
        """The samples, of n, that each step of a training takes, by a seed that several nodes have."""
        from emul.learning.training import batches

        return list(batches(n, self._task.solver, generator(seed, "plan")))

    # --- data by columns ----------------------------------------------------------------------------------------------

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

    @property
    def _party(self) -> int:
        if self._client is None:
            raise TaskError(f'node "{self._name}" is no client and has no columns')
        return self._client

    # --- streams and samples of a call --------------------------------------------------------------------------------

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

    def _samples(self, share: int | None = None, root: tuple[int, int] | None = None) -> Samples:
        """Those of this node as it trains on them, poisoned where it attacks; `share` and `root` as in
        `NodeTask.minimise`."""
        from emul.learning.training import Samples

        task, whose = self._task, self._client if share is None else share
        if root is not None and whose is not None:
            raise TaskError(f'node "{self._name}" is a client: it has no root data')
        if whose is not None:
            indices = task.indices(whose)
        elif not len(task.held_out()):
            raise TaskError(f'node "{self._name}" is no client and has no samples: expected root or data.held_out in '
                            "the task, the number of samples kept for such nodes")
        else:
            indices = task.held_out() if root is None else task.root_part(*root)
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
