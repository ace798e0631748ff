"""Rounds of MP-DP's relatives without masks: the blocks of each client reach the server as they are.

    client k    c_k ghat_k + eta_k, Psi_k, Phi_k
    server      W <- W - lr g,  g: made by the scheme of the blocks that have come
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.privacy import ldp
from emul.protocols.mp_dp.client import as_agreed, contribution
from emul.protocols.mp_dp.messages import Blocks, Disguised, numbers
from emul.protocols.mp_dp.opening import Opened, State, opening
from emul.protocols.mp_dp.settings import Additive, Loss, Precision, Settings
from emul.protocols.rounds import finite
from emul.roles import Node

if TYPE_CHECKING:
    from emul.learning import NodeTask

Gradient = Callable[[Mapping[int, np.ndarray], Opened, "NodeTask"], np.ndarray]     # of {client: (S, d)}, (d,)


@dataclass(frozen=True)
class Disguising:
    """Parameters of a scheme whose clients take gradients of a disguised model."""

    mean_samples: float | None = None   # n / K, known to all: client k counts n_k over it; None: all count alike
    kappa: float = 1.5                  # of scales: log_uniform
    additive: Additive = "compact"      # r on the outputs
    directions: int = 1                 # G of additive: compact
    output_scale: float | None = None   # of r; None: 1 / n_{L-1}; published: 1
    loss: Loss = "squared"              # 1/2 |y^ - one-hot|^2; or, without the additive part, the task's own
    lr: float = 0.1
    dtype: Precision = "float64"        # of the model that travels, and of the blocks


@dataclass(frozen=True)
class Unmasked(Disguising):
    """Parameters of a scheme whose blocks travel in the clear."""

    eps: float | None = 3.0             # the guarantee that the noise is chosen for; None: no noise
    delta: float = 1e-5
    budget: Literal["round", "total"] = "round"     # eps is of each round, or of `rounds` together
    rounds: int | None = None           # of the budget, with budget: total
    bound: float = 1.0                  # B, of a client's contribution in the l2 norm
    fraction: float = 1.0               # of the clients, drawn each round
    stage_deadline_s: float | None = None   # of the blocks; None: until their fates are known


def settled(p: Disguising, **own: Any) -> Settings:
    """The parameters, with what such a scheme does without. own: what it has besides."""
    given = {f.name: getattr(p, f.name) for f in fields(Unmasked if isinstance(p, Unmasked) else Disguising)}
    return Settings(**given | own)


async def serve(node: Node, s: Settings, gradient: Gradient, sigma: float) -> None:
    """Rounds from the task's initial parameters. sigma: standard deviation of the noise in what is protected; it is
    reported as mu and epsilon of the round. A round of which nothing comes keeps the model."""
    state = node.state(State(node.task.initial_parameters().astype(s.dtype)))
    async for round_ in node.rounds():
        with round_:
            U0 = node.sample(node.clients, s.fraction)
            opened = await node.compute("disguise", opening, node.task, state.model, s, U0, node.seed, node.round,
                                        node.stream("mask graph"), work=state.model.size)
            node.offer("cohort", U0)
            node.broadcast(U0, opened.message)
            got = await node.gather(Blocks, U0, timeout_s=s.stage_deadline_s,
                                    accept=numbers(opened.blocks * node.task.dimension, s.word))
            if not got:
                raise TooFewClients("no blocks have come")
            blocks = {k: m.values.reshape(opened.blocks, -1) for k, m in got.items()}
            state.model = await node.compute("recover", stepped, state.model, blocks, gradient, opened, node.task, s.lr,
                                             work=len(got) * opened.blocks * state.model.size)
            if sigma:
                node.report(mu=s.bound / sigma, epsilon=ldp.epsilon(s.delta, s.bound / sigma))
            node.report(parameters=state.model.astype(np.float32), received=len(got), cohort=len(U0))


async def join(node: Node, s: Settings) -> None:
    """Rounds of a client, which keeps nothing between them."""
    async for round_ in node.rounds(of=node.server):
        with round_:
            disguise = await node.compute("model", node.task.disguise)
            opened = await node.recv(Disguised, node.server, timeout_s=s.rules(s.cohort(len(node.clients))).patience_s,
                                     accept=as_agreed(s, node.task, disguise))
            values, _, _ = await contribution(node, s, opened)
            node.send(node.server, Blocks(values.astype(s.dtype)))


def stepped(model: np.ndarray, blocks: Mapping[int, np.ndarray], gradient: Gradient, opened: Opened, task: NodeTask,
            lr: float) -> np.ndarray:
    """W - lr g, of the type of W. Raises NotDecodable if that is not finite."""
    return finite(task.disguise().stepped(model, gradient(blocks, opened, task), lr).astype(model.dtype))


MESSAGES = (Disguised, Blocks)
