"""The server's side of MP-DP."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, ProtocolViolation, TooFewClients
from emul.primitives import ring
from emul.primitives.crypto import graphs
from emul.primitives.crypto.graphs import Closed
from emul.primitives.dp.graph import Edges, neighbours
from emul.primitives.privacy import ldp
from emul.protocols.mp_dp.account import mu_of_round
from emul.protocols.mp_dp.client import drawn_secrets
from emul.protocols.mp_dp.double import DoubleNoise
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.real import cut, gathered, summed
from emul.protocols.mp_dp.settings import Settings
from emul.protocols.pairwise.server import secure_sum
from emul.protocols.rounds import finite
from emul.protocols.sums import sizes
from emul.roles import Node

if TYPE_CHECKING:
    from emul.learning import NodeTask
    from emul.protocols.mp_dp.algebra import Drawn


@dataclass
class State:
    model: np.ndarray               # W, (d,) of the agreed type


@dataclass(frozen=True)
class Opened:
    """What the server knows of a round when it opens it."""

    known: Drawn
    message: Disguised
    edges: Edges
    sigma_delta: float
    blocks: int                     # S


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


def opening(task: NodeTask, model: np.ndarray, s: Settings, U0: list[int], seed: int, round_: int,
            rng: np.random.Generator) -> Opened:
    """Draws the secrets and the mask graph, and disguises the model. Raises TooFewClients if the graph falls apart."""
    from emul.protocols.mp_dp.algebra import number_of_blocks

    disguise = task.disguise()
    known = drawn_secrets(disguise, s, seed, round_)
    try:
        edges = s.edges(U0, rng)
        sigma_delta = s.sigma_pair(edges, U0)
    except ValueError as e:
        raise TooFewClients(f"too_few_neighbours: {e}") from None
    directions = np.zeros((0, 0)) if known.directions is None else known.directions
    message = Disguised(disguise.disguised(model, known.secrets).astype(s.dtype),
                        disguise.transitions(known.secrets).astype(s.dtype), directions, s.sigma_eta(len(U0)),
                        sigma_delta if math.isfinite(sigma_delta) else 0.0)
    return Opened(known, message, edges, sigma_delta, number_of_blocks(s.additive, s.directions, disguise.outputs))


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
    except ProtocolFailure:
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
