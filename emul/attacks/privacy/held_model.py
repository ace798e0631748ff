"""The model that a client of a run holds, and what it can make of it: its outputs, r of mp_dp, models of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from emul.attacks.privacy.clear_blocks import estimated_direction, unmasked_outputs
from emul.protocols.mp_dp.opening import drawn_secrets
from emul.roles.evidence import Evidence, Needs, NotKept

if TYPE_CHECKING:
    from emul.learning import NodeTask
    from emul.learning.functional import Forward

Array = np.ndarray
KINDS = ("Disguised", "Model")


@dataclass(frozen=True)
class Views:
    """The outputs of the server's model and of a client's own model for n samples. All (n, C) but features.

    true: for the judge alone. disguised: y^ of what the client got, and adaptive: less alpha times the r that it has
    estimated; None: nothing is disguised. features: h^ (n, f), which feed the last layer.
    """

    true: Array
    disguised: Array | None
    adaptive: Array | None
    features: Array

    def named(self) -> Iterator[tuple[str, Array]]:
        """("server", its outputs) and the others that there are."""
        for name, found in (("server", self.true), ("disguised", self.disguised), ("adaptive", self.adaptive)):
            if found is not None:
                yield name, found

    @property
    def held(self) -> Array:
        """The best that the client has."""
        return self.true if self.adaptive is None else self.adaptive


@dataclass(frozen=True)
class HeldModel:
    """The model of a round as the client `node` holds it. true: W, (d,) float64. hidden: W^; through: its pass;
    direction: r, for the judge; None where nothing is disguised."""

    node: str
    round: int
    task: NodeTask
    true: Array
    hidden: Array | None = None
    through: Forward | None = None
    direction: Array | None = None

    def estimated(self, x: Array, labels: Array) -> Array | None:
        """r (C,) from samples of the client's own; None where nothing is disguised."""
        if self.hidden is None:
            return None
        outputs, features = self._hidden_pass(x)
        return estimated_direction(outputs, np.eye(outputs.shape[1])[labels], features.sum(1))

    def views(self, x: Array, r: Array | None) -> Views:
        """Of inputs x (n, ...); r: as estimated."""
        with torch.no_grad():
            true = self.task.forward(self.true, torch.from_numpy(x)).logits.numpy()
            if self.hidden is None or r is None:
                return Views(true, None, None, self.task.penultimate(self.true, torch.from_numpy(x)).numpy())
        outputs, features = self._hidden_pass(x)
        return Views(true, outputs, unmasked_outputs(outputs, features.sum(1), r), features)

    def _hidden_pass(self, x: Array) -> tuple[Array, Array]:
        assert self.hidden is not None
        with torch.no_grad():
            found = self.task.forward(self.hidden, torch.from_numpy(x), through=self.through)
        assert found.features is not None
        return found.logits.numpy(), found.features.numpy()


def held_model(evidence: Evidence, node: str | None, round_: int | None) -> HeldModel:
    """The model that a client held in a round. By default: the first client that got one, the last round that was kept.
    Raises NotKept."""
    kept = evidence.run.summary.get("payloads", {})
    kind = next((kind for kind in KINDS if kind in kept), None)
    if kind is None:
        needed = " or ".join(Needs((kind,)).record() for kind in KINDS)
        raise NotKept(f"{evidence.run.path}: it has not kept what clients got; run its scenario again with {needed}")
    clients = [node] if node is not None else [evidence.names[k] for k in evidence.roles["client"]]
    for client in clients:
        got = evidence.messages(kind, to=client, round_=round_)
        if got:
            return _held(evidence, client, got[-1].round, got[-1].message)
    raise NotKept(f"{evidence.run.path}: no {kind} of round {round_ or 'any'} has come to {node or 'a client'}")


def _held(evidence: Evidence, client: str, round_: int, message: Any) -> HeldModel:
    task, parameters = evidence.node(client, round_), message.parameters.astype(np.float64)
    if not hasattr(message, "diagonals"):
        return HeldModel(client, round_, task, parameters)
    disguise = task.disguise()
    known = drawn_secrets(disguise, evidence.params.settled(), evidence.seed, round_)
    return HeldModel(client, round_, task, disguise.undisguised(parameters, known.secrets), parameters,
                     disguise.forward(message.diagonals.astype(np.float64)), known.secrets.output)


def samples_of(evidence: Evidence, names: list[str]) -> tuple[Array, Array]:
    """(inputs (n, ...) float64, labels (n,)) of the training samples of these nodes."""
    data = evidence.task.data
    chosen = np.concatenate([evidence.task.indices(evidence.shards[name]) for name in names])
    return np.asarray(data.inputs(np.asarray(data.train_x)[chosen]), np.float64), data.train_y[chosen].astype(np.int64)


def held_out_samples(evidence: Evidence) -> tuple[Array, Array]:
    """(inputs, labels) of the test samples."""
    data = evidence.task.data
    return np.asarray(data.inputs(data.test_x), np.float64), data.test_y.astype(np.int64)


def fitted(task: NodeTask, start: Array, x: Array, targets: Array, steps: int) -> Array:
    """Parameters (d,) float64 of the task's model after `steps` of Adam on the squared distance to the targets (n, C),
    from `start`: what somebody trains who knows the architecture."""
    vector = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    optimiser = torch.optim.Adam([vector], lr=0.01)
    inputs, wanted = torch.from_numpy(x), torch.from_numpy(targets)
    for _ in range(steps):
        optimiser.zero_grad()
        (task.forward(vector, inputs).logits - wanted).square().sum(1).mean().backward()
        optimiser.step()
    return vector.detach().numpy()
