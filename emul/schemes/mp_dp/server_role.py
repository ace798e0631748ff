"""The server's side: disguise, sum, recover, step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, ProtocolViolation
from emul.primitives import ring
from emul.primitives.crypto import graphs
from emul.primitives.crypto.graphs import Closed
from emul.primitives.dp.graph import Edges, neighbours
from emul.primitives.privacy import ldp
from emul.protocols.mp_dp.opening import Opened, State, opening
from emul.protocols.mp_dp.settings import Settings
from emul.protocols.pairwise.server import secure_sum
from emul.protocols.rounds import finite
from emul.protocols.sums import sizes
from emul.roles import Node
from emul.schemes.mp_dp.account import mu_of_round
from emul.schemes.mp_dp.double import DoubleNoise
from emul.schemes.mp_dp.real import cut, gathered, summed

if TYPE_CHECKING:
    from emul.learning import NodeTask


async def serve(node: Node, s: Settings) -> None:
    """Rounds from the task's initial parameters. A round that fails keeps the model."""
    state = node.state(State(node.task.initial_parameters().astype(s.dtype)))
    async for round_ in node.rounds():
        with round_:
            sets: dict[str, list[int]] = {}
            try:
                U0 = node.sample(node.clients, s.fraction)
                opened = await node.compute("disguise", opening, node.task, state.model, s, U0, node.seed, node.round,
                                            node.stream("mask graph"), work=state.model.size)
                mean = await mean_blocks(node, s, U0, opened, sets)
                state.model = await node.compute("recover", stepped, state.model, mean, node.task, opened, s.lr,
                                                 work=mean.size)
            except (ProtocolFailure, ProtocolViolation) as e:
                node.report(parameters=state.model.astype(np.float32), **sizes(sets))
                if isinstance(e, ProtocolViolation):    # shares that make no secret
                    raise NotDecodable(str(e)) from e
                raise
            node.report(parameters=state.model.astype(np.float32), **sizes(sets))


async def mean_blocks(node: Node, s: Settings, U0: list[int], opened: Opened, sets: dict[str, list[int]]) -> np.ndarray:
    """Mean of the blocks over U3, (S, d) float64, and reports what the round has cost in privacy."""
    node.offer("cohort", U0)
    d, K = node.task.dimension, len(U0)
    size = opened.blocks * d
    if s.repair == "shamir":
        total = await shared_sum(node, s, U0, opened, size, sets)
        return total.reshape(opened.blocks, d) / len(sets["U3"])
    got = await gathered(node, s, U0, opened.edges, opened.message, size, sets)
    loose = cut(opened.edges, sets)
    node.report(cut_edges=len(loose))
    if s.masks == "real":
        account(node, s, opened, sets)                  # seen already, whatever the repair comes to
    values = await summed(node, s, got, loose, opened.message.sigma_delta, d, s.f(K))
    if s.masks == "ring":
        account(node, s, opened, sets)
    return values.reshape(opened.blocks, d) / len(got)


async def shared_sum(node: Node, s: Settings, U0: list[int], opened: Opened, size: int, sets: dict[str, list[int]],
                     ) -> np.ndarray:
    """The sum of the blocks by the pairwise protocol, (S d,) float64, and reports what it has cost in privacy: real
    numbers as soon as they were seen, a ring only where its masks could be taken off."""
    real = DoubleNoise(s, opened.message, node.task.dimension).unmasked_sum if s.masks == "real" else None
    try:
        total, _ = await secure_sum(node, U0, partial(closed_graph, s, opened.edges), s.rules(len(U0)), opened.message,
                                    size, sets, real)
    except (ProtocolFailure, ProtocolViolation):            # the second: shares that make no secret
        if real and "U3" in sets:
            account(node, s, opened, sets)
        raise
    account(node, s, opened, sets)
    return total if real else ring.decode(total, s.f(len(U0)))


def closed_graph(s: Settings, edges: Edges, nodes: list[int]) -> Closed:
    """A_i = N_i + i."""
    if len(edges) == len(nodes) * (len(nodes) - 1) // 2:
        return graphs.complete(nodes)
    return {i: frozenset([i, *near]) for i, near in neighbours(edges, nodes).items()}


def account(node: Node, s: Settings, opened: Opened, sets: Mapping[str, list[int]]) -> None:
    """Report mu and eps of this round, by who was heard."""
    mu = mu_of_round(s, opened.edges, sets["U3"], opened.message.sigma_eta, opened.sigma_delta)
    if mu is not None:
        node.report(mu=mu, epsilon=ldp.epsilon(s.delta, mu))


def stepped(model: np.ndarray, mean: np.ndarray, task: NodeTask, opened: Opened, lr: float) -> np.ndarray:
    """W - lr g, of the type of W. Raises NotDecodable if that is not finite."""
    from emul.protocols.mp_dp.algebra import recovered

    disguise = task.disguise()
    return finite(disguise.stepped(model, recovered(disguise, opened.known, mean), lr).astype(model.dtype))
