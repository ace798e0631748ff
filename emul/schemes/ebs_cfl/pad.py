"""Profile `pad` of EBS-CFL: the same roles and models, one-time pads in place of the masks.

The server learns weights and aggregate, the dealer cosines and sketches (`masking.pad`); neither sees an update or a
cluster, unless both collude. A client that is missing is left out: nothing has to be mended. Bytes of
the arrays in each message: PadKey 32, Padded 8 m l, Products 524 n, PadWeights 12 n + 8 m l; References 8 m l.

Seeds come from the scenario's seed, for emulation only: who has it has every pad.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from emul.base.errors import NothingToReceive, TooFewClients
from emul.base.streams import seed_bytes
from emul.primitives.crypto.keys import KEY_BYTES
from emul.protocols.clustered import Models
from emul.protocols.demands import ascending, demand, shaped
from emul.protocols.trust import Clusters, moved, prepare, step_norms, tell
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.client_role import train
from emul.schemes.ebs_cfl.design import Masking, dealer_of, shape_of
from emul.schemes.ebs_cfl.masking import pad, rounds
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape
from emul.schemes.ebs_cfl.masking.pad import Ring
from emul.schemes.ebs_cfl.masking.rounds import LEAST_WEIGHT, unit
from emul.schemes.ebs_cfl.messages import (
    NotHeld,
    Padded,
    PadKey,
    PadWeights,
    Participants,
    Products,
    References,
)

# --- server ---------------------------------------------------------------------------------------------------------

async def server(node: Node, d: Masking) -> None:
    """Rounds of the server."""
    shape, s, dealer = shape_of(node, d), node.state(Clusters()), dealer_of(node)
    size = shape.clusters * shape.length
    place = {k: i for i, k in enumerate(node.clients)}
    async for round_ in node.rounds():
        with round_:
            models, g0 = await prepare(node, d, s, round_)
            h = rounds.directions(g0)
            cohort = node.sample(node.clients, d.fraction)
            node.offer("cohort", cohort)
            node.offer("reference", g0)
            # in every round, though they seldom change: one that was lost costs no more than its round
            node.send(dealer, References(s.version, h))
            node.send(dealer, Participants(np.array(sorted(place[k] for k in cohort), np.int32)))
            node.broadcast(cohort, Models(models))
            arrived = await node.gather(Padded, cohort, timeout_s=d.deadline_s, accept=shaped(y=(size,)))
            if len(arrived) < d.least(len(cohort)):
                raise TooFewClients(f"{len(arrived)} of {len(cohort)} uploads, expected {d.least(len(cohort))}")
            Y = {place[k]: message.y for k, message in arrived.items()}
            node.send(dealer, await node.compute("products", products, Y, h, node.seed, int(round_),
                                                 work=len(Y) * size))
            said = await _weights(node, d, size, set(Y))
            norms = await step_norms(node, d, s)
            directions, W = await node.compute("aggregate", aggregate, Y, said, shape.clusters, work=len(Y) * size)
            s.models = moved(models, directions, norms, [W], d, g0, round_)
            there = {node.clients[i]: w / (1 << pad.BITS) for i, w in
                     zip(said.clients.tolist(), said.w.tolist(), strict=True)}
            tell(node, s, sorted(there), there, W, received=len(arrived), missing=len(cohort) - len(arrived),
                 rejected=len(arrived) - len(there), moved=float(d.least_weight <= W))


async def _weights(node: Node, d: Masking, size: int, asked: set[int]) -> PadWeights:
    """The dealer's answer on the uploads. Raises NothingToReceive."""
    def sound(message: Message) -> None:
        if isinstance(message, PadWeights):
            ascending("clients", message.clients, sorted(asked))
            shaped(w=(len(message.clients),), pads=(size,))(message)
            demand(bool((message.w >= 0).all() and (message.w <= 1 << pad.BITS).all()), "w: no weights")

    dealer = dealer_of(node)
    got = await node.gather((PadWeights, NotHeld), [dealer], timeout_s=d.dealer_timeout_s, accept=sound)
    answer = got.get(dealer)
    if not isinstance(answer, PadWeights):
        raise NothingToReceive("PadWeights have not come")
    return answer


def products(Y: Mapping[int, Ring], h: Array, seed: int, round_: int) -> Products:
    """p_i and the sketches, ascending by client."""
    fixed, clients = pad.fixed(h.reshape(-1)), sorted(Y)
    return Products(np.array(clients, np.int32), np.array([pad.product(Y[i], fixed) for i in clients], np.uint64),
                    np.stack(pad.sketches([Y[i] for i in clients], seed, round_)))


def aggregate(Y: Mapping[int, Ring], said: PadWeights, clusters: int) -> tuple[Array, float]:
    """(directions (m, l), W); zeros where W is too small."""
    W = float(said.w.sum()) / (1 << pad.BITS)
    total = pad.weighted_sum([Y[i] for i in said.clients.tolist()], said.w) if len(said.w) else np.zeros_like(said.pads)
    found = pad.decoded(total, said.pads, clusters)
    return (found / W if W >= LEAST_WEIGHT else np.zeros_like(found)), W


# --- dealer ---------------------------------------------------------------------------------------------------------

async def dealer(node: Node, d: Masking) -> None:
    """Rounds of the dealer, which follows the server: seeds to those that take part, then one answer of weights."""
    shape = shape_of(node, d)
    async for round_ in node.rounds(of=node.server):
        with round_:
            h = await node.recv(References, node.server, timeout_s=d.dealer_timeout_s,
                                accept=shaped(h=(shape.clusters, shape.length)))
            there = await node.recv(Participants, node.server, timeout_s=d.dealer_timeout_s,
                                    accept=lambda m: ascending("clients", m.clients, range(shape.clients)))
            seeds = {i: seed_bytes(node.seed, "ebs_cfl", "pad", i, int(round_)) for i in there.clients.tolist()}
            node.send_each({node.clients[i]: PadKey(np.frombuffer(seed, np.uint8)) for i, seed in seeds.items()})
            asked = await node.recv(Products, node.server, accept=partial(_sound, there=there.clients.tolist()))
            if len(asked.clients) < d.least(len(there.clients)):
                node.send(node.server, NotHeld())
                continue
            node.send(node.server, await node.compute("weights", weigh, seeds, asked, h.h, node.seed, int(round_),
                                                      work=len(asked.clients) * h.h.size))


def _sound(message: Products, there: list[int]) -> None:
    ascending("clients", message.clients, there)
    shaped(p=(len(message.clients),), sketch=(len(message.clients), pad.SKETCH))(message)


def weigh(seeds: Mapping[int, bytes], asked: Products, h: Array, seed: int, round_: int) -> PadWeights:
    """w_i of those whose norm is sound, and the weighted sum of their pads."""
    clients = asked.clients.tolist()
    pads = {i: pad.pad(seeds[i], h.size) for i in clients}
    w, _ = pad.weights(dict(zip(clients, asked.p.tolist(), strict=True)),
                       dict(zip(clients, asked.sketch, strict=True)), pads, pad.fixed(h.reshape(-1)), seed, round_)
    weights = np.array(list(w.values()), np.int64)
    total = pad.weighted_sum([pads[i] for i in w], weights) if w else np.zeros(h.size, np.uint64)
    return PadWeights(np.array(list(w), np.int32), weights, total)


# --- client ---------------------------------------------------------------------------------------------------------

async def client(node: Node, d: Masking) -> None:
    """Rounds of a client, which keeps nothing between them."""
    shape = shape_of(node, d)
    async for round_ in node.rounds(of=node.server):
        with round_:
            said = await train(node, d, shape)
            key = await node.recv(PadKey, dealer_of(node), timeout_s=d.dealer_timeout_s,
                                  accept=shaped(seed=(KEY_BYTES,)))
            y = await node.compute("encode", encode, shape, said.update, said.cluster, key.seed.tobytes(),
                                   work=shape.clusters * shape.length)
            node.send(node.server, Padded(y))


def encode(shape: Shape, update: np.ndarray, cluster: int, seed: bytes) -> Ring:
    """Y = X + PRG(seed) mod 2^64."""
    x = pad.fixed(pad.payload(unit(update), cluster, shape.clusters))
    x += pad.pad(seed, x.size)
    return x
