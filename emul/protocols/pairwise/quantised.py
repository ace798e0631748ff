"""Updates as vectors of the ring Z_2^32, summed by the pairwise protocol, and back: what its schemes share.

A scheme of one vector is a mask graph and a threshold t; `serve` and `join` are its roles.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, Protocol

import numpy as np

from emul.learning import NodeTask
from emul.primitives.quantise import RING, Quantiser, QuantiserOverflow
from emul.protocols.pairwise.client import pairwise_client
from emul.protocols.pairwise.messages import Begin
from emul.protocols.pairwise.rules import Route, Rules
from emul.protocols.pairwise.server import Graph, pairwise_server
from emul.protocols.rounds import train_once
from emul.roles import Node, Received, Vector, World, checks

Weights = Literal["samples", "uniform"]


class Timed(Protocol):
    """What every such scheme has: a quantiser, and how long a stage may take."""

    @property
    def bits(self) -> int: ...
    @property
    def clip(self) -> float: ...
    @property
    def stage_deadline_s(self) -> float | None: ...


class Coding(Protocol):
    """How an update becomes a vector of the ring."""

    @property
    def bits(self) -> int: ...
    @property
    def clip(self) -> float: ...
    @property
    def weights(self) -> Weights: ...


class Options(Timed, Coding, Protocol):
    """The parameters that schemes of the pairwise protocol have in common."""

    @property
    def fraction(self) -> float: ...
    @property
    def route(self) -> Route: ...
    @property
    def verify_spare(self) -> bool: ...
    @property
    def audit(self) -> bool: ...


def rules(p: Options, t: int, active: bool = False) -> Rules:
    """What server and clients have agreed on."""
    return Rules(t, p.stage_deadline_s, p.route, active, p.audit, verify_spare=p.verify_spare)


async def serve(node: Node, p: Options, graph: Graph, t: int, active: bool = False) -> None:
    """The server of a scheme: rounds over a mask graph, with a threshold of t shares."""
    await pairwise_server(node, graph, rules(p, t, active), partial(add_mean, p=p), fraction=p.fraction,
                          extra=p.weights == "samples")


async def join(node: Node, p: Options, t: int, active: bool = False) -> None:
    """A client of a scheme."""
    n = cohort_size(p.fraction, len(node.clients))
    await pairwise_client(node, rules(p, t, active), partial(train_once, node), partial(ring_input, p=p, n=n))


def cohort_size(fraction: float, clients: int) -> int:
    """n = |U0|, as `node.sample` draws it."""
    return max(1, round(fraction * clients))


def ring_input(update: Vector, samples: int, p: Coding, n: int) -> tuple[np.ndarray, float]:
    """(x_i, fraction of the update's values that were clipped). x_i: (d,) uint32, or weighted (d + 1,): w q and w.

    Raises QuantiserOverflow if n clients of this weight could pass the ring.
    """
    quantiser = Quantiser(p.clip, p.bits)
    q, clipped = quantiser.quantise(update), quantiser.clip_fraction(update)
    if p.weights == "uniform":
        return q, clipped
    if n * samples * quantiser.top >= RING:
        most = (RING - 1) // (n * quantiser.top)
        raise QuantiserOverflow(f"quantiser_overflow: {samples} samples of one client, but n = {n} clients and "
                                f"{quantiser.bits} bits allow {most} each; use fewer bits or weights: uniform")
    return np.append(q * np.uint32(samples), np.uint32(samples)), clipped


def add_mean(model: Vector, total: np.ndarray, n: int, p: Coding) -> Vector:
    """model + mean of the updates of the n clients in `total`, (d,) float32."""
    if p.weights == "samples":
        total, n = total[:-1], int(total[-1])
    return model + Quantiser(p.clip, p.bits).dequantise_mean(total, n) if n else model


def honest(task: NodeTask, received: Received, j: int) -> Vector:
    """What client j's training gives, before it is quantised and masked, if it follows the protocol."""
    update: Vector = task.local_update(received[Begin].model)[0]
    return update


def wrong_cohort(fraction: float, world: World) -> list[str]:
    """What is wrong with the clients of a round, if anything: then nothing else can be judged."""
    if not 0 < fraction <= 1:
        return checks.fractions(fraction=fraction)
    n = cohort_size(fraction, world.clients)
    return [f"fraction = {fraction}: draws {n} of {world.clients} clients, a sum needs at least 2"] if n < 2 else []


def wrong_coding(p: Timed, n: int) -> list[str]:
    """What is wrong with deadline and quantiser for n clients a round."""
    errors = checks.times(stage_deadline=p.stage_deadline_s)
    if not p.clip > 0:
        errors.append(f"clip = {p.clip}: expected a number above 0")
    elif not 1 <= p.bits <= 32:
        errors.append(f"bits = {p.bits}: expected 1..32")
    else:
        try:
            Quantiser(p.clip, p.bits).check_sum(n)
        except (QuantiserOverflow, ValueError) as e:
            errors.append(f"bits = {p.bits}: {e}")
    return errors
