"""Profile `pad` of EBS-CFL: the same roles and models, one-time pads in Z_2^64 in the place of the masks. RFCA's
weighted sum, without showing updates to a server that follows the protocol. An extension.

The dealer shares a seed with each client in each round. Payload x_i (m l,): g_i / |g_i| in the slot of its cluster, 0
elsewhere, in fixed point with f = 24 bits.

    upload              Y_i = X_i + PRG(seed_i)                             mod 2^64
    server -> dealer    p_i = <Y_i, fix(h)>, and a sketch S Y_i by 64 rows of random signs
    dealer -> server    w_i = max(0, p_i - <r_i, fix(h)>), sum_i w_i r_i    r_i = PRG(seed_i)
    server              (sum w_i Y_i - sum w_i r_i) / 2^2f / sum w_i

The server learns the weights and the aggregate, the dealer the cosines and 64 random projections of each payload; no
update and no cluster, unless both collude. Not as in EBS-CFL: the norm is estimated by the sketch (within about 18 %),
not checked exactly, and a server that falsifies p_i is believed. A client that is missing is left out: nothing has to
be mended.

Bytes of the arrays in each message: PadKey 32, Padded 8 m l, Products 524 n, PadWeights 12 n + 8 m l; References 8 m l.

Seeds come from the scenario's seed, for emulation only: who has it has every pad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import NothingToReceive, TooFewClients
from emul.base.streams import generator, seed_bytes
from emul.primitives.crypto.keys import KEY_BYTES
from emul.primitives.crypto.prg import prg
from emul.protocols.clustered import Models
from emul.protocols.demands import ascending, demand, shaped
from emul.protocols.trust import Clusters, moved, prepare, step_norms, tell
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.client_role import train
from emul.schemes.ebs_cfl.design import Masking, dealer_of, shape_of
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape
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

Ring = NDArray[np.uint64]

BITS = 24                               # f, of the fraction
SKETCH = 64                             # rows of signs
MOST = 1 + 6 * float(np.sqrt(2 / SKETCH))       # of an estimated squared norm of 1: six standard deviations above

_CHUNK = 1 << 16                        # columns: below 2^21, so that sums of 32-bit halves are exact in float64

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
            there = {node.clients[i]: w / (1 << BITS) for i, w in
                     zip(said.clients.tolist(), said.w.tolist(), strict=True)}
            tell(node, s, sorted(there), there, W, received=len(arrived), missing=len(cohort) - len(arrived),
                 rejected=len(arrived) - len(there), moved=float(d.least_weight <= W))


async def _weights(node: Node, d: Masking, size: int, asked: set[int]) -> PadWeights:
    """The dealer's answer on the uploads. Raises NothingToReceive."""
    def sound(message: Message) -> None:
        if isinstance(message, PadWeights):
            ascending("clients", message.clients, sorted(asked))
            shaped(w=(len(message.clients),), pads=(size,))(message)
            demand(bool((message.w >= 0).all() and (message.w <= 1 << BITS).all()), "w: no weights")

    dealer = dealer_of(node)
    got = await node.gather((PadWeights, NotHeld), [dealer], timeout_s=d.dealer_timeout_s, accept=sound)
    answer = got.get(dealer)
    if not isinstance(answer, PadWeights):
        raise NothingToReceive("PadWeights have not come")
    return answer


def products(Y: Mapping[int, Ring], h: Array, seed: int, round_: int) -> Products:
    """p_i and the sketches, ascending by client."""
    reference, clients = fixed(h.reshape(-1)), sorted(Y)
    return Products(np.array(clients, np.int32), np.array([product(Y[i], reference) for i in clients], np.uint64),
                    np.stack(sketches([Y[i] for i in clients], seed, round_)))


def aggregate(Y: Mapping[int, Ring], said: PadWeights, clusters: int) -> tuple[Array, float]:
    """(directions (m, l), W); zeros where W is too small."""
    W = float(said.w.sum()) / (1 << BITS)
    total = weighted_sum([Y[i] for i in said.clients.tolist()], said.w) if len(said.w) else np.zeros_like(said.pads)
    found = decoded(total, said.pads, clusters)
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
            asked = await node.recv(Products, node.server, accept=partial(_sound, there.clients.tolist()))
            if len(asked.clients) < d.least(len(there.clients)):
                node.send(node.server, NotHeld())
                continue
            node.send(node.server, await node.compute("weights", weigh, seeds, asked, h.h, node.seed, int(round_),
                                                      work=len(asked.clients) * h.h.size))


def _sound(there: list[int], message: Products) -> None:
    ascending("clients", message.clients, there)
    shaped(p=(len(message.clients),), sketch=(len(message.clients), SKETCH))(message)


def weigh(seeds: Mapping[int, bytes], asked: Products, h: Array, seed: int, round_: int) -> PadWeights:
    """w_i of those whose norm is sound, and the weighted sum of their pads."""
    clients = asked.clients.tolist()
    pads = {i: pad(seeds[i], h.size) for i in clients}
    found, _ = weights(dict(zip(clients, asked.p.tolist(), strict=True)),
                       dict(zip(clients, asked.sketch, strict=True)), pads, fixed(h.reshape(-1)), seed, round_)
    w = np.array(list(found.values()), np.int64)
    total = weighted_sum([pads[i] for i in found], w) if found else np.zeros(h.size, np.uint64)
    return PadWeights(np.array(list(found), np.int32), w, total)


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
    x = fixed(payload(unit(update), cluster, shape.clusters))
    x += pad(seed, x.size)
    return x


# --- payloads, pads and sketches in Z_2^64 --------------------------------------------------------------------------

def fixed(x: Array) -> Ring:
    """x 2^f, rounded, mod 2^64."""
    return np.rint(x * (1 << BITS)).astype(np.int64).view(np.uint64)


def pad(seed: bytes, size: int) -> Ring:
    """r, (size,) uniform in Z_2^64. seed: 32 bytes, of one client and round alone."""
    return prg(seed, 2 * size).view(np.uint64)


def payload(direction: Array, cluster: int, clusters: int) -> Array:
    """x, (m l,): `direction` (l,) in the slot of the cluster."""
    x = np.zeros((clusters, len(direction)))
    x[cluster] = direction
    return x.reshape(-1)


def product(y: Ring, h: Ring) -> int:
    """<y, h> mod 2^64."""
    return int(np.multiply(y, h).sum(dtype=np.uint64))


def signed(number: int) -> int:
    """The representative of a number mod 2^64 in [-2^63, 2^63)."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def weighted_sum(vectors: Sequence[Ring], weights: NDArray[np.int64]) -> Ring:
    """sum w_i v_i mod 2^64, (m l,)."""
    total = np.zeros_like(vectors[0])
    for v, w in zip(vectors, weights.astype(np.uint64), strict=True):
        total += v * w
    return total


def sketches(vectors: Sequence[Ring], seed: int, round_: int) -> list[Ring]:
    """S y mod 2^64, (64,) of each: S random signs that server and dealer know, drawn anew in each round."""
    rng = generator(seed, "ebs_cfl", "signs", round_)
    total = np.zeros((SKETCH, len(vectors)), np.uint64)
    for at in range(0, len(vectors[0]) if vectors else 0, _CHUNK):
        parts = np.stack([y[at:at + _CHUNK] for y in vectors], axis=1)
        bits = np.unpackbits(np.frombuffer(rng.bytes(SKETCH * _CHUNK // 8), np.uint8)).reshape(SKETCH, _CHUNK)
        signs = bits[:, :len(parts)].astype(np.float64) * 2 - 1
        low = signs @ (parts & np.uint64(0xFFFFFFFF)).astype(np.float64)
        high = signs @ (parts >> np.uint64(32)).astype(np.float64)
        total += low.astype(np.int64).view(np.uint64) + (high.astype(np.int64).view(np.uint64) << np.uint64(32))
    return list(np.ascontiguousarray(total.T))


def squared_norm(difference: Ring) -> float:
    """|x|^2 as the sketch S x = S Y - S r says."""
    return float(np.square(difference.view(np.int64) / (1 << BITS)).mean())


def weights(products: Mapping[int, int], sketched: Mapping[int, Ring], pads: Mapping[int, Ring], h: Ring,
            seed: int, round_: int) -> tuple[dict[int, int], list[int]]:
    """At the dealer: ({client: w_i 2^f}, whom it rejects for its norm). A weight is 1 at most."""
    clients = sorted(products)
    of_pads = dict(zip(clients, sketches([pads[i] for i in clients], seed, round_), strict=True))
    rejected = [i for i in clients if squared_norm(sketched[i] - of_pads[i]) > MOST]
    cosines = {i: signed(products[i] - product(pads[i], h)) >> BITS for i in clients if i not in rejected}
    return {i: min(max(cosine, 0), 1 << BITS) for i, cosine in cosines.items()}, rejected


def decoded(total: Ring, pads: Ring, clusters: int) -> Array:
    """sum w_i x_i, (m, l)."""
    return ((total - pads).view(np.int64) / float(1 << 2 * BITS)).reshape(clusters, -1)
