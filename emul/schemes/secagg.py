"""Secure aggregation by double masking. Bonawitz et al., CCS 2017, figure 4 without the consistency check of stage 3.

The server learns the sum of the updates of U3, the clients whose masked input came in time, and nothing else, as long
as it sees the shares of fewer than t clients (semi-honest). Each stage closes a set, and only the set counts from then
on: U0 selected > U1 sent keys > U2 shared > U3 sent a masked input > U5 revealed shares.

    y_i = x_i + PRG(b_i) + sum_{j in N_i & U2} sgn(i, j) PRG(s_ij)      in Z_2^32, sgn(i, j) = +1 if i < j, else -1
    sum_{U3} x = sum_{U3} y - sum_{U3} PRG(b_i) - sum_{j in U2 - U3} sum_{i in N_j & U3} sgn(j, i) PRG(s_ij)

Deviation: encrypted shares go from client to client, not through the server. A share that is lost is missing at the
unmasking, nothing more. The masks run over the U2 that the server announces: of each of its members it has heard
that the shares are out.

Bytes of the arrays in each message, without its header; A_i = N_i + i, the closed neighbourhood in the mask graph:

    Begin           4 d                             server to each of U0
    AdvertiseKeys   64                              each of U0 to the server
    KeyRing         68 |A_i & U1|                   server to each of U1
    Shares          80                              each of U1 to each of N_i & U1 (two shares of 32, a tag of 16)
    Shared          0                               each of U1 to the server
    Sharers         4 |A_i & U2|                    server to each of U2
    Masked          4 d'                            each of U2 to the server; d' = d + 1 with `weights: samples`
    Unmask          4 |A_i & U2|                    server to each of U3
    Reveal          36 per share held of A_i & U2   each of U3 to the server
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from emul.base.errors import ProtocolFailure, ProtocolViolation, TooFewClients
from emul.primitives.crypto import shamir
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, channel_key, key_pair, mask_seed, seal, unseal
from emul.primitives.crypto.masks import check_reveal, mask_input, sum_ring, unmask
from emul.primitives.quantise import RING, Quantiser, QuantiserOverflow
from emul.roles import Message, Node, Received, Vector, World

# --- messages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin(Message):
    """Server to client: the round is open."""

    model: Vector                   # (d,) float32


@dataclass(frozen=True)
class AdvertiseKeys(Message):
    """Client to server."""

    keys: np.ndarray                # (64,) uint8: c_pk, for the channels; s_pk, for the masks


@dataclass(frozen=True)
class KeyRing(Message):
    """Server to client: the keys of A_i & U1."""

    ids: np.ndarray                 # (a,) uint32, ascending
    keys: np.ndarray                # (a, 64) uint8


@dataclass(frozen=True)
class Shares(Message):
    """Client to client: what the receiver keeps of the sender's two secrets, encrypted."""

    box: np.ndarray                 # (80,) uint8: shares of s_sk and b


@dataclass(frozen=True)
class Shared(Message):
    """Client to server: my shares are out."""


@dataclass(frozen=True)
class Sharers(Message):
    """Server to client: A_i & U2."""

    ids: np.ndarray                 # uint32, ascending


@dataclass(frozen=True)
class Masked(Message):
    """Client to server."""

    y: np.ndarray                   # (d',) uint32


@dataclass(frozen=True)
class Unmask(Message):
    """Server to client: whose secrets to reveal your shares of; of nobody both."""

    survivors: np.ndarray           # uint32, A_i & U3: of b
    dropped: np.ndarray             # uint32, A_i & (U2 - U3): of s_sk


@dataclass(frozen=True)
class Reveal(Message):
    """Client to server: the shares asked for that the client holds."""

    ids: np.ndarray                 # (m,) uint32
    shares: np.ndarray              # (m, 32) uint8


# --- parameters -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Params:
    # t, shares that give a secret; None: floor(2n/3) + 1. At n/2 or below, a server that shows two versions of U3 to
    # two halves of the clients learns both secrets of one
    threshold: int | None = None
    stage_deadline_s: float | None = None   # of each of the four stages; None: until the fates are known
    bits: int = 16                          # of a quantised value
    clip: float = 1.0                       # values of an update outside [-clip, clip] are cut, and counted
    fraction: float = 1.0                   # of the clients, drawn each round
    # "samples" sends n_k x_k and n_k: it needs sum n_k (2^bits - 1) < 2^32, hence the default
    weights: Literal["samples", "uniform"] = "uniform"


def threshold(p: Params, clients: int) -> int:
    """t, by default floor(2n/3) + 1 for the n clients drawn each round: sound against server and n/3 clients."""
    return p.threshold if p.threshold is not None else 2 * cohort_size(p, clients) // 3 + 1


def cohort_size(p: Params, clients: int) -> int:
    """n = |U0|, as `node.sample` draws it."""
    return max(1, round(p.fraction * clients))


class Refused(ProtocolFailure):
    """A client does not answer what the protocol forbids. Its round is over, the run is not."""


# A graph gives the closed neighbourhood A_i of each of the nodes. Equal ones should be one object: its members then
# get one message.
Graph = Callable[[Sequence[int]], Mapping[int, frozenset[int]]]


def complete(nodes: Sequence[int]) -> Mapping[int, frozenset[int]]:
    """SecAgg's mask graph: everybody is everybody's neighbour."""
    return dict.fromkeys(nodes, frozenset(nodes))


# --- server ---------------------------------------------------------------------------------------------------------

@dataclass
class State:
    model: Vector


async def server(node: Node, p: Params) -> None:
    await pairwise_server(node, p, complete)


async def pairwise_server(node: Node, p: Params, graph: Graph) -> None:
    """Rounds of the pairwise protocol over any mask graph. A round that fails keeps the model."""
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            sets: dict[str, list[int]] = {}
            try:
                total, expansions = await secure_sum(node, p, graph, s.model, sets)
                s.model = await node.compute("aggregate", add_mean, s.model, total, len(sets["U3"]), p,
                                             work=total.size)
            except ProtocolFailure:
                node.report(parameters=s.model, **sizes(sets))
                raise
            node.report(parameters=s.model, expansions=expansions, **sizes(sets))


async def secure_sum(node: Node, p: Params, graph: Graph, model: Vector,
                     sets: dict[str, list[int]]) -> tuple[np.ndarray, int]:
    """(sum of x_i over U3, (d',) uint32 mod 2^32; masks expanded). Fills `sets` as the stages close.

    Raises TooFewClients, naming the stage, below the threshold.
    """
    t, deadline = threshold(p, len(node.clients)), p.stage_deadline_s
    U0 = sets["U0"] = node.sample(node.clients, p.fraction)
    A = graph(U0)
    node.offer("cohort", U0)
    node.broadcast(U0, Begin(model))

    advertised = await node.gather(AdvertiseKeys, U0, timeout_s=deadline)
    U1 = sets["U1"] = list(advertised)
    for members, near in neighbourhoods("keys", node, A, U1, len(U0), t):
        ring = await node.compute("ring", key_ring, advertised, near, work=len(near))
        node.broadcast(members, ring)

    shared = await node.gather(Shared, U1, timeout_s=deadline)
    U2 = sets["U2"] = list(shared)
    for members, near in neighbourhoods("shares", node, A, U2, len(U1), t):
        node.broadcast(members, Sharers(id_array(near)))

    masked = await node.gather(Masked, U2, timeout_s=deadline)
    U3 = sets["U3"] = list(masked)                  # what comes from now on is late: not summed, its b not asked for
    for members, near in neighbourhoods("masked input", node, A, U3, len(U2), t):
        dropped = sorted(A[members[0]].intersection(U2).difference(U3))
        node.broadcast(members, Unmask(id_array(near), id_array(dropped)))

    reveals = await node.gather(Reveal, U3, timeout_s=deadline)
    sets["U5"] = list(reveals)                      # U4 is that of the consistency check
    self_seeds, mask_keys = await node.compute("reconstruct", reconstruct, reveals, A, U2, U3, t, node.world.names,
                                               work=len(U2))
    pairs = sum(len(A[j].intersection(U3)) for j in mask_keys)
    dropped_seeds = await node.compute("agree", dropped_pair_seeds, mask_keys, advertised, A, U3, node.round,
                                       work=pairs)
    return await node.compute("unmask", unmasked_sum, masked, self_seeds, dropped_seeds,
                              work=(len(U3) + pairs) * masked[U3[0]].y.size)


def neighbourhoods(stage: str, node: Node, A: Mapping[int, frozenset[int]], U: Sequence[int], asked: int,
                   t: int) -> list[tuple[list[int], list[int]]]:
    """[(clients i of U with one A_i, A_i & U)]: who gets which message. The set of a stage is closed by this.

    Raises TooFewClients unless |A_i & U| >= t for all i of U, and |U| >= t.
    """
    groups: dict[frozenset[int], list[int]] = {}
    for i in U:
        groups.setdefault(A[i], []).append(i)
    found = [(members, sorted(closed.intersection(U))) for closed, members in groups.items()]
    for members, near in found:
        if len(near) < t:
            raise TooFewClients(f"{stage}: {len(U)} of {asked} clients answered, {len(near)} of them around "
                                f"{node.world.names[members[0]]}, threshold t = {t}")
    if len(U) < t:
        raise TooFewClients(f"{stage}: {len(U)} of {asked} clients answered, threshold t = {t}")
    return found


def key_ring(advertised: Mapping[int, AdvertiseKeys], near: Sequence[int]) -> KeyRing:
    return KeyRing(id_array(near), np.stack([advertised[i].keys for i in near]))


def reconstruct(reveals: Mapping[int, Reveal], A: Mapping[int, frozenset[int]], U2: Sequence[int], U3: Sequence[int],
                t: int, names: Sequence[str]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """({i: b_i} for U3, {j: s_sk_j} for the j of U2 - U3 that have a neighbour in U3), 32 bytes each.

    Raises TooFewClients, naming the secret, if fewer than t of its shares came.
    """
    shares: dict[int, dict[int, bytes]] = {j: {} for j in U2}                   # owner -> holder -> share
    for holder, reveal in reveals.items():
        blob = reveal.shares.tobytes()
        for k, owner in enumerate(reveal.ids.tolist()):
            if owner in shares and owner in A[holder]:
                shares[owner][holder] = blob[shamir.SHARE_BYTES * k:shamir.SHARE_BYTES * (k + 1)]
    survivors = frozenset(U3)
    dropped = [j for j in U2 if j not in survivors and not A[j].isdisjoint(survivors)]
    for secret, owners in (("self mask", U3), ("mask key", dropped)):
        for j in owners:
            if len(shares[j]) < t:
                raise TooFewClients(f"unmask: {len(shares[j])} shares of the {secret} of {names[j]}, threshold t = {t}")
    return (shamir.combine_all({i: shares[i] for i in U3}, t),
            shamir.combine_all({j: shares[j] for j in dropped}, t))


def dropped_pair_seeds(mask_keys: Mapping[int, bytes], advertised: Mapping[int, AdvertiseKeys],
                       A: Mapping[int, frozenset[int]], U3: Sequence[int], round: int) -> dict[int, dict[int, bytes]]:
    """{j: {i: s_ij}} for j in U2 - U3, i in N_j & U3: those pairs only were left without their other half."""
    return {j: {i: mask_seed(agree(key, mask_public(advertised[i].keys)), round)
                for i in sorted(A[j].intersection(U3))} for j, key in mask_keys.items()}


def unmasked_sum(masked: Mapping[int, Masked], self_seeds: Mapping[int, bytes],
                 dropped_seeds: Mapping[int, Mapping[int, bytes]]) -> tuple[np.ndarray, int]:
    """(sum of x_i over U3, (d',) uint32; number of masks expanded)."""
    ys = [m.y for m in masked.values()]
    total = sum_ring(ys, ys[0].size)
    return total, unmask(total, self_seeds, dropped_seeds)


def add_mean(model: Vector, total: np.ndarray, n: int, p: Params) -> Vector:
    """model + mean of the updates of the n clients in `total`, (d,) float32."""
    if p.weights == "samples":
        total, n = total[:-1], int(total[-1])
    return model + Quantiser(p.clip, p.bits).dequantise_mean(total, n) if n else model


def sizes(sets: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """What a round reports: the sizes of the sets that were closed."""
    return {name: len(members) for name, members in sets.items()}


# --- client ---------------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            try:
                await take_part(node, p)
            except ProtocolViolation as e:
                raise Refused(str(e)) from e


async def take_part(node: Node, p: Params) -> None:
    """One round. Raises Refused or ProtocolViolation where the server asks for what would unmask somebody."""
    i, t = node.id, threshold(p, len(node.clients))
    # what has been under way for longer than a whole stage could not be answered in time
    patience = None if p.stage_deadline_s is None else 2 * p.stage_deadline_s
    model = (await node.recv(Begin, node.server, timeout_s=patience)).model
    own = await node.compute("keys", new_secrets, node.rng)
    node.send(node.server, AdvertiseKeys(own.public))

    ring = await node.recv(KeyRing, node.server, timeout_s=patience)
    hand = await node.compute("share", share_secrets, i, own, ring, t, node.round, node.rng, work=ring.ids.size)
    for j, box in hand.boxes.items():
        node.send(j, Shares(box))
    node.send(node.server, Shared())

    U2 = (await node.recv(Sharers, node.server, timeout_s=patience)).ids.tolist()              # A_i & U2
    require_sharers(i, U2, hand.peers, t)
    update, samples = await node.compute("train", node.task.local_update, model)
    seeds = await node.compute("agree", pair_seeds, i, own, hand.peers, U2, node.round, work=len(U2) - 1)
    weight = samples if p.weights == "samples" else None
    y, clipped = await node.compute("mask", masked_input, i, own.b, seeds, update, weight, p,
                                    cohort_size(p, len(node.clients)), work=len(U2) * update.size)
    node.send(node.server, Masked(y))
    node.report(clip_fraction=clipped)

    request = await node.recv(Unmask, node.server, timeout_s=patience)
    # with deadlines, what has not come by now never will for this round
    boxes = await node.gather(Shares, set(U2) - {i}, timeout_s=None if patience is None else 0)
    node.send(node.server, await node.compute("reveal", reveal, i, hand, boxes, U2, request, t, node.round,
                                              work=len(boxes)))


@dataclass(frozen=True)
class Secrets:
    """What a client draws anew each round."""

    c: KeyPair                      # of the channels to its neighbours
    s: KeyPair                      # of the pair masks
    b: bytes                        # seed of the self mask

    @property
    def public(self) -> np.ndarray:
        return np.frombuffer(self.c.public + self.s.public, np.uint8)


@dataclass(frozen=True)
class Hand:
    """What a client holds after sharing."""

    peers: dict[int, bytes]         # N_i & U1: s_pk
    channels: dict[int, bytes]      # N_i & U1: key of the channel
    boxes: dict[int, np.ndarray]    # N_i & U1: encrypted shares for that neighbour
    kept: bytes                     # own shares of its own s_sk and b


def new_secrets(rng: np.random.Generator) -> Secrets:
    return Secrets(key_pair(rng.bytes(KEY_BYTES)), key_pair(rng.bytes(KEY_BYTES)), rng.bytes(KEY_BYTES))


def share_secrets(i: int, own: Secrets, ring: KeyRing, t: int, round: int, rng: np.random.Generator) -> Hand:
    """Shares of s_sk and b to A_i & U1, encrypted but for the own one."""
    ids = ring.ids.tolist()
    if i not in ids or len(ids) < t:
        raise Refused(f"keys of {len(ids)} clients{'' if i in ids else ' without my own'}, threshold t = {t}")
    shares = shamir.share([own.s.secret, own.b], t, ids, rng)
    channels = {j: channel_key(agree(own.c.secret, channel_public(keys)))
                for j, keys in zip(ids, ring.keys, strict=True) if j != i}
    boxes = {j: np.frombuffer(seal(key, i, j, 0, round, shares[j]), np.uint8) for j, key in channels.items()}
    peers = {j: mask_public(keys) for j, keys in zip(ids, ring.keys, strict=True) if j != i}
    return Hand(peers, channels, boxes, shares[i])


def require_sharers(i: int, U2: Sequence[int], peers: Collection[int], t: int) -> None:
    """Raises Refused unless U2 is within U1, with this client and at least t in all."""
    if not set(U2) <= {i, *peers} or i not in U2:
        raise Refused(f"inconsistent_sets: U2 = {U2} is not within U1, or without me")
    if len(U2) < t:
        raise Refused(f"{len(U2)} clients in U2, threshold t = {t}")


def pair_seeds(i: int, own: Secrets, peers: Mapping[int, bytes], U2: Sequence[int], round: int) -> dict[int, bytes]:
    """{j: s_ij} for j in N_i & U2: over U2, not U1, since only there can j's half be taken off again."""
    return {j: mask_seed(agree(own.s.secret, peers[j]), round) for j in U2 if j != i}


def masked_input(i: int, b: bytes, seeds: Mapping[int, bytes], update: Vector, weight: int | None, p: Params,
                 n: int) -> tuple[np.ndarray, float]:
    """(y_i, (d',) uint32; fraction of the update's values that were clipped)."""
    quantiser = Quantiser(p.clip, p.bits)
    return (mask_input(ring_input(quantiser, update, weight, n), i, b, seeds), quantiser.clip_fraction(update))


def ring_input(quantiser: Quantiser, update: Vector, weight: int | None, n: int) -> np.ndarray:
    """x_i: (d,) uint32, or (d + 1,) weighted: w q and w itself.

    Raises QuantiserOverflow if n clients of this weight could pass the ring.
    """
    q = quantiser.quantise(update)
    if weight is None:
        return q
    if n * weight * quantiser.top >= RING:
        most = (RING - 1) // (n * quantiser.top)
        raise QuantiserOverflow(f"quantiser_overflow: {weight} samples of one client, but n = {n} clients and "
                                f"{quantiser.bits} bits allow {most} each; use fewer bits or weights: uniform")
    return np.append(q * np.uint32(weight), np.uint32(weight))


def reveal(i: int, hand: Hand, boxes: Mapping[int, Shares], U2: Sequence[int], request: Unmask, t: int,
           round: int) -> Reveal:
    """Of survivors the share of b, of the dropped that of s_sk, of nobody both and of nobody else any."""
    survivors, dropped = request.survivors.tolist(), request.dropped.tolist()
    check_reveal(U2, survivors, dropped)
    if i not in survivors:
        raise Refused("inconsistent_sets: my own masked input was sent, but I am asked as one who dropped out")
    if len(survivors) < t:
        raise Refused(f"{len(survivors)} clients in U3, threshold t = {t}")
    held = {i: hand.kept}
    for j, message in boxes.items():
        with contextlib.suppress(ProtocolViolation):            # a broken box is a share that I do not have
            held[j] = unseal(hand.channels[j], j, i, 0, round, message.box.tobytes())
    size = shamir.SHARE_BYTES
    asked = [(j, slice(size, 2 * size)) for j in survivors] + [(j, slice(0, size)) for j in dropped]
    found = [(j, held[j][part]) for j, part in asked if j in held]
    shares = np.frombuffer(b"".join(share for _, share in found), np.uint8)
    return Reveal(id_array([j for j, _ in found]), shares.reshape(len(found), size))


# --- both -----------------------------------------------------------------------------------------------------------

def id_array(ids: Sequence[int]) -> np.ndarray:
    return np.array(ids, np.uint32)


def channel_public(keys: np.ndarray) -> bytes:
    return keys[:KEY_BYTES].tobytes()


def mask_public(keys: np.ndarray) -> bytes:
    return keys[KEY_BYTES:].tobytes()


def honest(task: Any, received: Received, j: int) -> Vector:
    """What client j's training gives, before it is quantised and masked, if it follows the protocol."""
    update: Vector = task.local_update(received[Begin].model)[0]
    return update


HONEST = honest
MESSAGES = (Begin, AdvertiseKeys, KeyRing, Shares, Shared, Sharers, Masked, Unmask, Reveal)
ROLES = {"server": server, "client": client}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, errors = params, []
    if not 0 < p.fraction <= 1:
        return [f"fraction = {p.fraction}: expected a number in (0, 1]"]
    n = cohort_size(p, world.clients)
    if n < 2:
        errors.append(f"fraction = {p.fraction}: draws {n} of {world.clients} clients, a sum needs at least 2")
    elif p.threshold is not None and not 2 <= p.threshold <= n:
        errors.append(f"threshold = {p.threshold}: expected 2..{n}, the clients of a round")
    if p.stage_deadline_s is not None and p.stage_deadline_s <= 0:
        errors.append(f"stage_deadline = {p.stage_deadline_s} s: expected a time above 0, or none")
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

EXAMPLE = """
emul: 1
name: secagg
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: secagg, stage_deadline: 500 ms}]
stop: {rounds: 3}
"""
