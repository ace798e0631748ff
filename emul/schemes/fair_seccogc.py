"""Fair-SecCoGC: the exact mean of all K updates, or nothing, over links that fail. Weng et al., arXiv 2507.07565, 2025.

Each client masks its update with a key, shares it with the relays that need it, and relays one fixed combination of
what it hears; the keys of all sum to zero, so any K - s complete combinations give the mean without them.

    Y_k = Delta_k + N_k                             N_k = lambda / sqrt(K-1) sum_j sgn(k, j) Z_kj,  sum_k N_k = 0
    S_k = sum_{m in U_k} g_km Y_m                   U_k: whose updates relay k needs, the support of row k of G
    Theta_ref += 1/K sum_{k in F} b_k S_k           F: the complete sums that arrived; sum_{k in F} b_k G_k = (1, .., 1)

Delta_k = Theta_k - Theta_ref. After a success all go on from Theta_ref; after a failure each from its own Theta_k, so
that Delta_k is all of its training since the last success (`on_failure: continue`), or it sends the same Delta_k
again under a new key (`repeat`).

Keys (`pairwise`): X25519 once, through the server; Z_kj of round t is drawn from HKDF(shared secret, t), fresh in every
round. With lambda = 0 there are no keys and no set-up: the scheme is CoGC.

Deviations: an incomplete sum stays at home unless `send_incomplete`; the run ends where the scenario says, also after
a failed round. Set-up runs inside the first round and, should it fail, the next; its messages travel again until
they are answered. A client that missed the model of a success sits out until it has asked for it.

Bytes of the arrays in each message, without its header:

    PublicKey 32     KeyRing 32 K     Model 4 d     Continue 0     Masked 4 d     PartialSum 4 d + ceil(|U_k| / 8)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, TooFewClients
from emul.base.streams import generator
from emul.primitives.codes import gradient_coding
from emul.primitives.crypto.gaussian import pairwise_key
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, key_pair, mask_seed
from emul.roles import Message, Node, Vector

SETUP_TRIES = 20                    # a round's set-up is given up after that many messages without an answer
SCREENED_DRAWS = 20                 # of a `tandon` code, the best is kept

# --- messages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyRequest(Message):
    """Server to client: send me your public key."""


# unscoped: on links that fail for a whole round, each of them still has a chance of its own
@dataclass(frozen=True)
class PublicKey(Message, unscoped=True):
    """Client to server."""

    key: np.ndarray                 # (32,) uint8


@dataclass(frozen=True)
class KeyRing(Message):
    """Server to client: the public keys of all clients, in their order."""

    keys: np.ndarray                # (K, 32) uint8


@dataclass(frozen=True)
class KeysHeld(Message, unscoped=True):
    """Client to server: I have the key ring."""


@dataclass(frozen=True)
class Model(Message):
    """Server to client: the round is open, go on from here."""

    version: int                    # number of successes so far
    parameters: Vector              # Theta_ref, (d,) float32


@dataclass(frozen=True)
class Continue(Message):
    """Server to client: the round is open, the last one failed."""

    version: int                    # of the Theta_ref that is still the last


@dataclass(frozen=True)
class ModelRequest(Message, unscoped=True):
    """Client to server: I missed the model of this version."""


@dataclass(frozen=True)
class Masked(Message):
    """Client to relay."""

    y: Vector                       # Y_k, (d,) float32


@dataclass(frozen=True)
class PartialSum(Message):
    """Relay to server."""

    heard: np.ndarray               # (ceil(|U_k| / 8),) uint8: a bit for each of U_k in ascending order
    sum: Vector                     # S_k over those heard, (d,) float32


# --- parameters -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Params:
    s: int                                  # a relay needs s others; s lost partial sums do no harm
    lambda_: float = 0.1                    # standard deviation of a key, per coordinate; 0: no keys
    code: Literal["cyclic_mds", "fractional", "tandon"] = "cyclic_mds"
    keys: Literal["pairwise"] = "pairwise"
    send_incomplete: bool = False           # also send partial sums that the server cannot use
    on_failure: Literal["continue", "repeat"] = "continue"
    share_s: float | None = None            # relays wait that long for masked updates; None: until fates are known
    uplink_s: float | None = None           # the server waits that long for sums; None: until fates are known
    setup_s: float | None = None            # what has no answer by then is sent again; None: once that is known


def gradient_code(p: Params, K: int, seed: int) -> np.ndarray:
    """G, (K, K) float64, the same at every node. Raises ValueError if there is none for K and s."""
    if p.code == "cyclic_mds":
        return gradient_coding.cyclic_mds(K, p.s)
    if p.code == "fractional":
        return gradient_coding.fractional(K, p.s)
    return gradient_coding.tandon(K, p.s, generator(seed, "gradient code"), screen=SCREENED_DRAWS)


class Behind(ProtocolFailure):
    """A client cannot take part in the round: it lacks the last global model, or the key ring."""


# --- server ---------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector                                       # Theta_ref
    version: int = 0                                    # successes so far
    announced: bool = False                             # the model was sent; until a success, only `Continue` follows
    keys: dict[int, np.ndarray] = field(default_factory=dict)       # client -> public key
    unsure: set[int] = field(default_factory=set)       # clients that may not have the key ring yet


async def server(node: Node, p: Params) -> None:
    clients = node.clients
    s = node.state(ServerState(node.task.initial_parameters(), unsure=set(clients)))
    G = await node.compute("code", gradient_code, p, len(clients), node.seed, work=len(clients))
    async for t in node.rounds():
        with t:
            complete: list[int] = []
            sums: dict[int, PartialSum] = {}
            try:
                if p.lambda_ and s.unsure:
                    await exchange_keys(node, p, s)
                await open_round(node, s)
                sums = await node.gather(PartialSum, clients, timeout_s=p.uplink_s)
                complete = [k for k, m in sums.items() if is_complete(G, node.clients.index(k), m)]
                mean, amplification = await node.compute(
                    "decode", decode, G, {clients.index(k): sums[k].sum for k in complete},
                    work=len(complete) * s.model.size)
            except ProtocolFailure:
                node.report(parameters=s.model, received=len(sums), complete=len(complete), decoded=False)
                raise
            s.model, s.version, s.announced = s.model + mean, s.version + 1, False
            node.report(parameters=s.model, received=len(sums), complete=len(complete), decoded=True,
                        amplification=amplification)


async def exchange_keys(node: Node, p: Params, s: ServerState) -> None:
    """Collect all public keys, then see to it that everybody has them all. What is lost is sent again.

    Raises TooFewClients if somebody does not answer: without all keys none is complete.
    """
    for _ in range(SETUP_TRIES):
        begun = node.now_ns
        silent = [k for k in node.clients if k not in s.keys]
        if silent:
            node.broadcast(silent, KeyRequest())
            keys = await node.gather(PublicKey, silent, timeout_s=p.setup_s)
            s.keys.update({k: m.key for k, m in keys.items()})
            answered = len(keys)
        elif s.unsure:
            silent = sorted(s.unsure)
            node.broadcast(silent, KeyRing(np.stack([s.keys[k] for k in node.clients])))
            held = await node.gather(KeysHeld, silent, timeout_s=p.setup_s)
            s.unsure -= held.keys()
            answered = len(held)
        else:
            return
        if not answered and node.now_ns == begun:
            break                           # settled at once: all of them have left the round, asking again is no use
    missing = [k for k in node.clients if k not in s.keys]
    for silent, what in ((missing, "sent its public key"), (sorted(s.unsure), "confirmed the key ring")):
        if silent:
            raise TooFewClients(f"set-up: {node.world.names[silent[0]]} has not {what}")


async def open_round(node: Node, s: ServerState) -> None:
    """After a success the model to all; after a failure only to those who have asked for it."""
    behind = node.clients
    if s.announced:
        behind = list(await node.gather(ModelRequest, node.clients, timeout_s=0))
        node.broadcast([k for k in node.clients if k not in behind], Continue(s.version))
    node.broadcast(behind, Model(s.version, s.model))
    s.announced = True


def is_complete(G: np.ndarray, k: int, message: PartialSum) -> bool:
    """Whether relay k heard all of U_k."""
    needed = np.count_nonzero(G[k])
    return message.heard.size == math.ceil(needed / 8) and bool(np.unpackbits(message.heard, count=needed).all())


def decode(G: np.ndarray, sums: Mapping[int, Vector]) -> tuple[Vector, float]:
    """(1/K sum_{k in F} b_k S_k, (d,) float32; amp(F)) from all complete sums, {relay k in 0..K-1: S_k}.

    Raises NotDecodable if they do not determine the sum of all updates.
    """
    K, rows = len(G), sorted(sums)
    b = gradient_coding.decode(G, rows)
    if b is None:
        least = K - int(np.count_nonzero(G, axis=1).max()) + 1              # K - s
        raise NotDecodable(f"{len(rows)} complete sums arrived, K - s = {least} of {K} are needed" if len(rows) < least
                           else f"{len(rows)} complete sums of {K} arrived, but do not give the mean to 1e-6")
    total = np.zeros(sums[rows[0]].shape, np.float64)
    for b_k, k in zip(b, rows, strict=True):
        total += b_k * sums[k].astype(np.float64)
    return (total / K).astype(np.float32), gradient_coding.amplification(G, rows, b)


# --- client ---------------------------------------------------------------------------------------------------------

@dataclass
class ClientState:
    reference: Vector | None = None                     # Theta_ref, the last global model received
    version: int = -1                                   # its number
    delta: Vector | None = None                         # Delta_k, what was trained since; None: nothing yet
    own: KeyPair | None = None
    shared: dict[int, bytes] = field(default_factory=dict)      # other client -> X25519 secret


async def client(node: Node, p: Params) -> None:
    clients, k = node.clients, node.index
    s = node.state(ClientState())
    G = await node.compute("code", gradient_code, p, len(clients), node.seed, work=len(clients))
    U = [clients[m] for m in gradient_coding.row_support(G, k)]             # whose updates this relay needs
    V = [clients[m] for m in gradient_coding.column_support(G, k)]          # which relays need this update
    others = [v for v in V if v != node.id]
    async for t in node.rounds(of=node.server):
        with t:
            take_over(node, s, await opening(node, p, s))
            if p.lambda_ and not s.shared:
                raise Behind("the key ring has not come")
            if s.delta is None or p.on_failure == "continue":
                s.delta = await node.compute("train", train_on, node.task, s.reference, s.delta)
            y = await node.compute("mask", masked_update, s.delta, node.id, s.shared, t, p.lambda_,
                                   work=len(s.shared) * s.delta.size)
            node.broadcast(others, Masked(y))

            heard = await node.gather(Masked, [m for m in U if m != node.id], timeout_s=p.share_s)
            if len(heard) < len(U) - 1 and not p.send_incomplete:
                continue                        # leaves the round: nobody waits for its sum
            ys = {m: y if m == node.id else heard[m].y for m in U if m == node.id or m in heard}
            g = {m: G[k, clients.index(m)] for m in ys}
            total = await node.compute("combine", combine, g, ys, work=len(ys) * y.size)
            node.send(node.server, PartialSum(np.packbits([m in ys for m in U]), total))


async def opening(node: Node, p: Params, s: ClientState) -> Model | Continue:
    """The message that opens the round; set-up messages before it are answered, however often they come.

    A round is entered by one of these messages, so that only a client that was in set-up ever waits here, and at most
    as long as a set-up can last. Raises Behind if no opening comes.
    """
    patience = None if p.setup_s is None else (SETUP_TRIES + 1) * p.setup_s
    while True:
        got = await node.gather((Model, Continue, KeyRequest, KeyRing), [node.server], timeout_s=patience)
        if not got:
            raise Behind("the opening of the round has not come")
        message = got[node.server]
        if isinstance(message, (Model, Continue)):
            return message
        if isinstance(message, KeyRequest):
            if s.own is None:
                s.own = await node.compute("keys", key_pair, node.rng.bytes(KEY_BYTES))
            node.send(node.server, PublicKey(np.frombuffer(s.own.public, np.uint8)))
        elif isinstance(message, KeyRing):
            if not s.shared and s.own is not None:
                s.shared = await node.compute("agree", agree_with_all, s.own, node.clients, node.id, message.keys,
                                              work=len(node.clients) - 1)
            node.send(node.server, KeysHeld())


def take_over(node: Node, s: ClientState, message: Model | Continue) -> None:
    """Start from the model that came. Raises Behind, having asked for it, if it is one that never came."""
    if isinstance(message, Model):
        if message.version != s.version:
            s.reference, s.version, s.delta = message.parameters, message.version, None
    elif message.version != s.version:
        # its Delta_k would count what is in the global model already
        node.send(node.server, ModelRequest())
        raise Behind(f"the server continues from model {message.version}, which has not come")


def agree_with_all(own: KeyPair, clients: Sequence[int], me: int, ring: np.ndarray) -> dict[int, bytes]:
    """{other client: X25519 secret}. ring: (K, 32) uint8, the public keys in the order of `clients`."""
    return {j: agree(own.secret, key.tobytes()) for j, key in zip(clients, ring, strict=True) if j != me}


class Trainer(Protocol):
    def local_update(self, parameters: Vector) -> tuple[Vector, int]: ...


def train_on(task: Trainer, reference: Vector, delta: Vector | None) -> Vector:
    """Delta_k after training from Theta_k = Theta_ref + Delta_k, (d,) float32."""
    if delta is None:
        return task.local_update(reference)[0]
    return delta + task.local_update(reference + delta)[0]


def masked_update(delta: Vector, me: int, shared: Mapping[int, bytes], t: int, lambda_: float) -> Vector:
    """Y_k = Delta_k + N_k, (d,) float32, rounded once. shared: {other client: secret}; t: the round."""
    if not shared or not lambda_:
        return delta
    seeds = {j: mask_seed(secret, t) for j, secret in shared.items()}
    return (delta + pairwise_key(me, seeds, delta.size, lambda_ / math.sqrt(len(shared)))).astype(np.float32)


def combine(g: Mapping[int, float], ys: Mapping[int, Vector]) -> Vector:
    """S_k = sum_m g_km Y_m, (d,) float32, summed in the order of the clients in float64."""
    total = np.zeros(next(iter(ys.values())).shape, np.float64)
    for m in sorted(ys):
        total += g[m] * ys[m].astype(np.float64)
    return total.astype(np.float32)


ROLES = {"server": server, "client": client}


class Counts(Protocol):
    """What `check` asks of the world."""

    clients: int


def check(params: Params, world: Counts) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, K, errors = params, world.clients, []
    if K < 2:
        return [f"s = {p.s}: {K} clients, a sum needs at least 2"]
    if not 0 <= p.s <= K - 1:
        errors.append(f"s = {p.s}: expected 0..{K - 1} with {K} clients")
    elif p.code == "cyclic_mds" and (K - p.s) % 2 == 0:
        errors.append(f"s = {p.s}: cyclic_mds needs K - s odd, K = {K} clients; s = {p.s + 1} would do")
    elif p.code == "fractional" and K % (p.s + 1):
        errors.append(f"s = {p.s}: fractional needs s + 1 to divide K = {K} clients")
    if not (p.lambda_ >= 0 and math.isfinite(p.lambda_)):
        errors.append(f"lambda = {p.lambda_}: expected a number, 0 or above")
    errors += [f"{name} = {value} s: expected a time above 0" for name, value in
               (("share", p.share_s), ("uplink", p.uplink_s), ("setup", p.setup_s)) if value is not None and value <= 0]
    return errors
