"""Passes of one node through the task's model: losses, features, gradients of one's own scalars, and pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from emul.base.streams import generator
from emul.learning import models
from emul.learning.node_data import NodeData
from emul.learning.task_parts import TaskError, Vector

if TYPE_CHECKING:
    from torch import Tensor

    from emul.learning.disguise import Disguise
    from emul.learning.functional import Forward, Scalars
    from emul.learning.objectives import Batch, Objective, Outputs
    from emul.learning.parameters import FlatModule
    from emul.learning.pieces import Piece, PieceLayout
    from emul.learning.pooling import Pooling


class NodePasses(NodeData):
    """The model as a function of parameters that a scheme gives, on this node's samples or on any."""

    def loss(self, parameters: Vector, on: Literal["train", "test"] = "train", each: bool = False,
             objective: Objective | None = None, root: tuple[int, int] | None = None, most: int = 0) -> Any:
        """Mean loss at `parameters`, dropout off; each: that of every sample, (n,) float64. nan without samples.

        on: "train", this node's samples; "test", its own test samples, or all where its partition gives it none.
        objective: by default the task's own. root: on a part of the root data, as in `minimise`. most: on so many of
        the samples, at random and always the same; 0: on all. Changes no stream.
        """
        from emul.learning.evaluation import measured

        task, chosen = self._task, objective or self.objective
        samples = self._samples_on(on) if root is None else self._samples(root=root)
        if 0 < most < len(samples):
            few = generator(task.seed, "few", self._name).permutation(len(samples))[:most]
            samples = replace(samples, indices=samples.indices[np.sort(few)])
        at = np.asarray(parameters, dtype=np.float32)
        found, = task.result("losses", (at, samples, chosen), lambda: [
            measured(task._model, at, samples, chosen)["loss"]])
        return found if each else float(found.mean()) if len(found) else float("nan")

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

    # --- a representation and a decision on it ------------------------------------------------------------------------

    def shapes(self, part: str = "all") -> tuple[tuple[int, ...], ...]:
        """Of the tensors that a parameter vector, or a `part` of it, is made of, in its order; a tensor of which the
        part has some numbers only is a vector of these."""
        chosen = np.zeros(self.dimension, np.float32)
        chosen[self.part(part)] = 1
        tensors = self._task.named(chosen).values()
        return tuple(one.shape if one.all() else (int(one.sum()),) for one in tensors if one.any())

    def part(self, name: str) -> np.ndarray:
        """Places in a parameter vector, (p,) int64 ascending: of "all", the "representation", the "decision" on it, the
        "convolutions" at its front; of a model that is cut (`emul.learning.models`), else TaskError."""
        from emul.learning.prototypes import coordinates

        return np.arange(self.dimension) if name == "all" else coordinates(self._cut(), name)

    @property
    def feature_size(self) -> int:
        """n, the length of a sample's feature vector C."""
        return int(cast(Any, self._cut().module).features)

    def features(self, parameters: Vector, on: Literal["train", "test"] = "train") -> tuple[np.ndarray, np.ndarray]:
        """(features C of this node's samples (n, f) float32, their targets), dropout off; `on` as in `loss`."""
        from emul.learning import evaluation

        samples, model = self._samples_on(on), self._cut()
        at = np.asarray(parameters, dtype=np.float32)
        found, = self._task.result("features", (at, samples), lambda: [evaluation.features(model, at, samples)])
        return found, samples.data.targets(samples.data.train_y[samples.indices])

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

    # --- pieces of the model ------------------------------------------------------------------------------------------

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

    def _held(self, layout: PieceLayout, what: str, vector: np.ndarray) -> Piece:
        from emul.learning.pieces import Piece

        return Piece(layout, self._task.solver, self.objective, self._task.seed, f"{self._name} {what}", vector,
                     not self._task.skips, lambda: self._task.together)
