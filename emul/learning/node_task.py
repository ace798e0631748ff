"""`node.task`: the learning task as one node sees it: what it trains, and how well a model does for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emul.base.streams import generator
from emul.learning.node_data import Targets
from emul.learning.node_passes import NodePasses
from emul.learning.task_parts import TaskError, Vector

if TYPE_CHECKING:
    from emul.learning.attack import Attack
    from emul.learning.local import KeptMoments, LocalTraining
    from emul.learning.objectives import Objective
    from emul.learning.pooling import Pooling
    from emul.learning.solver import Solver
    from emul.learning.trainer import Trainer
    from emul.learning.training import Samples, Stream

__all__ = ["NodeTask", "Targets", "TaskError"]          # all that authors of schemes need, wherever it is written


class NodeTask(NodePasses):
    """`node.task`: the task as one node sees it: it trains, on samples (`NodeData`) and with passes (`NodePasses`) of
    its own. Keep the object for the node's whole life, also over a crash: its counters must survive.
    """

    def __init__(self, task: Trainer, name: str, client: int | None, round_of: Callable[[], int],
                 attack: Attack | None = None):
        super().__init__(task, name, client, round_of, attack)
        self._kept: dict[bytes, KeptMoments] = {}       # of a solver with `keep`, by the part that it trains
        self._begun: KeptMoments | None = None          # in place of those that are not there yet

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

    def train_prototypes(self, parameters: Vector, objective: Objective | None, pool: Pooling, *, linear: bool = False,
                         unit: bool = False) -> tuple[Vector, dict[int, Vector], dict[int, int]]:
        """Train from `parameters` as `minimise` does, then make the own prototypes of what comes after: (after (d,),
        {class: mean pooled feature (n',) over all local samples}, {class: samples}).

        linear: of features before the ReLU that ends the representation. unit: in float64 and of length 1, without
        classes whose features are dead; an attack on prototypes changes these.
        """
        from emul.learning import prototypes

        model, samples = self._cut(), self._samples()
        after = self._train(self._local(np.asarray(parameters, dtype=np.float32), samples, self._task.solver,
                                        self._stream(), objective))

        def compute() -> list[np.ndarray]:
            model.load(after)                           # if it was trained with others, it is in another state
            own, counts = prototypes.of_samples(model, samples, pool, linear)
            return [np.array(list(own), np.int64), np.array(list(counts.values()), np.int64), *own.values()]

        held, of_each, *means = self._task.result("linear prototypes" if linear else "prototypes",
                                                  (after, samples, pool), compute)
        classes = held.tolist()
        own, counts = dict(zip(classes, means, strict=True)), dict(zip(classes, of_each.tolist(), strict=True))
        if unit:
            own = prototypes.directions(own)
        tamper = None if self._attack is None else self._attack.tamper(self._round_of())
        if tamper is not None:
            own = tamper(own, generator(self._task.seed, "tamper", self._name, self._round_of()))
        return after, own, counts

    def evaluate(self, parameters: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} as this node sees the test set: a client by its own labels, another node the whole."""
        if self._client is None:
            return self._task.evaluate(parameters)
        return self._task.evaluate_client(self._client, parameters)

    def evaluate_own(self, parameters: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of a personal model on this client's own test samples; another node: on all."""
        if self._client is None:
            return self._task.evaluate(parameters)
        return self._task.evaluate_own(self._client, parameters)

    def evaluate_best(self, models: Vector) -> dict[str, float]:
        """{"accuracy", "loss"} of several models, (m * d,) or (m, d): each of the task's clusters, or each client where
        it has none, has the best of them. For `node.report(..., evaluate=node.task.evaluate_best)`."""
        return self._task.evaluate_best(list(np.reshape(models, (-1, self.dimension))))

    def begin_anew(self, taken: int = 0) -> None:
        """Forget the moments that a solver with `keep` has, as a node does that takes over a model from another one.

        taken: the steps after which its schedule of rates goes on: as many as those have taken who have that model.
        """
        from emul.learning.local import KeptMoments

        self._kept.clear()
        self._begun = KeptMoments(taken, ()) if taken else None

    @property
    def untouched(self) -> bool:
        """True if it has drawn nothing and keeps nothing yet, so that another object would do as well."""
        return self._round < 0 and self._begun is None

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
        mask = None                                     # 1 where a trained entry belongs to the part, (trained,)
        if only is not None:
            mask, chosen = np.zeros(self._task._model.trained, np.float32), self.part(only)
            mask[chosen[chosen < len(mask)]] = 1.0
        return LocalTraining(before, samples, solver, stream, objective, mask)

    def _train(self, local: LocalTraining) -> Vector:
        """The result of this node's local training for `local.before`, (d,) float32, a fresh array.

        Every training of a node ends here, whatever its loss, samples and part: who changes what a node learns, before
        its scheme masks, codes or encrypts it, changes the result of this function.
        """
        # An attack changes what a training gives and not the messages of the node: nobody could forge what is masked or
        # encrypted, and each scheme would need an attacker of its own
        # (`test_attackers_hide_behind_secure_aggregation_as_elsewhere`).
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
