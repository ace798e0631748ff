"""Fair-SecCoGC: the exact mean of all K updates, or nothing, over links that fail. Weng et al., arXiv 2507.07565, 2025.

Each client masks its update with a key, shares it with the relays that need it, and relays one fixed combination of
what it hears; the keys of all sum to zero, so any K - s complete combinations give the mean without them.

    Y_k = Delta_k + N_k                             N = A Z, Z i.i.d. N(0, 1), columns of A sum to 0: sum_k N_k = 0
    S_k = sum_{m in U_k} g_km Y_m                   U_k: whose updates relay k needs, the support of row k of G
    Theta_ref += 1/K sum_{k in F} b_k S_k           F: the complete sums that arrived; sum_{k in F} b_k G_k = (1, .., 1)

Delta_k = Theta_k - Theta_ref. After a success all go on from Theta_ref; after a failure each from its own Theta_k, so
that Delta_k is all of its training since the last success (`on_failure: continue`), or it sends the same Delta_k
again under a new key (`repeat`). `decoder: rowspace` also uses incomplete sums, with the rows that they really have.

Keys, fresh in every round: Z_l of round t is drawn from HKDF(seed of component l, t).
`pairwise`: N_k = lambda / sqrt(K-1) sum_j sgn(k, j) Z_kj; X25519 once, through the server, gives each pair its seed.
`dealer`: a third party draws Z and sends each client its N_k. `component_seeds`: it sends client k the seeds of its
components, once; neighbours share some of them. `common_seed`: it sends everybody the one seed of all.
The dealer is the second server, or a node of the role `dealer`; never the server that decodes.

Variants: `seccogc` (Construction III.1 for A), `cogc` (lambda = 0: no keys, no set-up), `gc` (`training: replicated`:
clients hold the data of all of U_k, train on all of it and share nothing).

A client that is gone for good would fail all rounds. With `rekey_after` or `rekey_at` the server asks who is there, and
those go on alone: fresh keys, a code of their number K' with the largest s' <= s that it allows, the mean of K'.

Deviations: an incomplete sum stays at home unless `send_incomplete`. Set-up runs inside the first round and, should it
fail, the next; its messages travel again until they are answered. A client that missed the model of a success sits out
until it has asked for it.

Bytes of the arrays in each message, without its header:

    PublicKey 32     KeyRing 32 K     Model 4 d     Continue 0     Masked 4 d     PartialSum 4 d + ceil(|U_k| / 8)
    Key 4 d     Seeds 32 for each component of the client
    Present 32     Group 36 K'     GroupSum as PartialSum     DealTo 4 K'; without keys of pairs none of the 32s
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from emul.base.errors import NotDecodable, NothingToReceive, ProtocolFailure, TooFewClients
from emul.base.streams import generator
from emul.primitives.clip import clipped
from emul.primitives.codes import gradient_coding, outage, secure_keys
from emul.primitives.crypto.gaussian import gaussian, pairwise_key
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, key_pair, mask_seed
from emul.primitives.means import weighted_sum
from emul.primitives.privacy import ldp, lmip
from emul.roles import Analysis, Message, Node, Setting, Vector

ASKED_ROUNDS = 3                    # who has not answered in so many is left out: a lost request costs one its round
SETUP_TRIES = 20                    # a round's set-up is given up after that many messages without an answer
ANALYSED_CLIENTS = 100              # beyond, the analysis leaves out what grows with their square and more

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
    failed: int                     # rounds that have failed since: not 0 for a client that has asked for it
    parameters: Vector              # Theta_ref, (d,) float32


@dataclass(frozen=True)
class Continue(Message):
    """Server to client: the round is open, the last one failed."""

    version: int                    # of the Theta_ref that is still the last
    failed: int                     # rounds that have failed since


@dataclass(frozen=True)
class ModelRequest(Message, unscoped=True):
    """Client to server: I missed the model of this version."""


@dataclass(frozen=True)
class Deal(Message):
    """Server to dealer: the round is open, deal the keys."""

    dimension: int


@dataclass(frozen=True)
class Key(Message):
    """Dealer to client, `keys: dealer`."""

    key: Vector                     # N_k of this round, (d,) float32


@dataclass(frozen=True)
class Seeds(Message):
    """Dealer to client, `keys: component_seeds` and `common_seed`."""

    seeds: np.ndarray               # (n, 32) uint8: of the components with a_kl != 0, in their order; or the common one


@dataclass(frozen=True)
class SeedsHeld(Message, unscoped=True):
    """Client to dealer: I have the seeds."""


@dataclass(frozen=True)
class Masked(Message):
    """Client to relay."""

    y: Vector                       # Y_k, (d,) float32


@dataclass(frozen=True)
class PartialSum(Message):
    """Relay to server."""

    heard: np.ndarray               # (ceil(|U_k| / 8),) uint8: a bit for each of U_k in ascending order
    sum: Vector                     # S_k over those heard, (d,) float32


@dataclass(frozen=True)
class Rekey(Message):
    """Server to client: who is there will be the group."""

    epoch: int                      # of that group; the first one of all clients has 0


@dataclass(frozen=True)
class Present(Message, unscoped=True):
    """Client to server: I am."""

    epoch: int
    key: np.ndarray                 # a fresh one, (32,) uint8; (0,) where no keys of pairs are in use


@dataclass(frozen=True)
class Group(Message):
    """Server to those who are there."""

    epoch: int
    members: np.ndarray             # (K',) int32, ascending
    keys: np.ndarray                # (K', 32) uint8, theirs, or (K', 0)


@dataclass(frozen=True)
class GroupHeld(Message, unscoped=True):
    """Client to server: I know the group."""

    epoch: int


Answer = TypeVar("Answer", Present, GroupHeld)


@dataclass(frozen=True)
class GroupSum(PartialSum):
    """Relay to server, in place of `PartialSum` from the second group on: a relay that lost its state in a crash may
    still combine by an earlier code."""

    epoch: int


@dataclass(frozen=True)
class DealTo(Message):
    """Server to dealer, in place of `Deal` from the second group on."""

    dimension: int
    members: np.ndarray             # (K',) int32


# --- parameters -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Params:
    s: int                                  # a relay needs s others; s lost partial sums do no harm
    lambda_: float = 0.1                    # standard deviation of a key, per coordinate; 0: no keys
    code: Literal["cyclic_mds", "fractional", "tandon"] = "cyclic_mds"
    screen: int = 20                        # draws of a `tandon` code, of which the best is kept
    keys: Literal["pairwise", "dealer", "component_seeds", "common_seed"] = "pairwise"
    construction: Literal["fair_cyclic", "fair_general", "fair_projection", "random"] = "fair_cyclic"      # of A
    gamma: int | None = None                # of `fair_cyclic`, the others in a row of A; None: K - 1
    training: Literal["own", "replicated"] = "own"          # on one's own data, or on the data of all of U_k
    send_incomplete: bool = False           # also send partial sums that lack an update
    decoder: Literal["complete", "rowspace"] = "complete"   # rowspace: uses incomplete sums, too
    on_failure: Literal["continue", "repeat"] = "continue"
    max_error: float | None = None          # a decoded mean whose predicted error is larger counts as not decodable
    clip: float | None = None               # R: Delta_k is scaled down to this l2 norm when sent; None: unbounded
    finish_at: int | None = None            # T: end with the first success at or after this round; None: the scenario's
    share_s: float | None = None            # relays wait that long for masked updates; None: until fates are known
    uplink_s: float | None = None           # the server waits that long for sums; None: until fates are known
    rekey_after: int | None = None          # failed rounds in a row, after which the group is made anew
    rekey_at: tuple[int, ...] = ()          # rounds that begin with making it anew
    setup_s: float | None = None            # what has no answer by then is sent again; None: once that is known
    zeta: float | None = None               # of the analysis: std of an update per coordinate; None: lambda
    ldp_delta: float = 1e-5                 # of the analysis


# every node of a process asks for the same one, and screening 20 draws for K = 100 takes seconds: the first one pays
@cache
def code_matrix(code: str, K: int, s: int, screen: int, seed: int) -> np.ndarray:
    if code == "cyclic_mds":
        G = gradient_coding.cyclic_mds(K, s)
    elif code == "fractional":
        G = gradient_coding.fractional(K, s)
    else:
        G = gradient_coding.tandon(K, s, generator(seed, "gradient code"), screen)
    G.flags.writeable = False
    return G


def gradient_code(p: Params, K: int, seed: int) -> np.ndarray:
    """G, (K, K) float64, the same at every node. Raises ValueError if there is none for K and s."""
    return code_matrix(p.code, K, p.s, p.screen, seed)


def no_code(code: str, K: int, s: int) -> str | None:
    """Why there is no such code; None: there is one."""
    if not 0 <= s <= K - 1:
        return f"expected 0..{K - 1} with {K} clients"
    if code == "cyclic_mds" and (K - s) % 2 == 0:
        return f"cyclic_mds needs K - s odd, K = {K} clients; s = {s + 1} would do"
    if code == "fractional" and K % (s + 1):
        return f"fractional needs s + 1 to divide K = {K} clients"
    return None


def fitted(p: Params, K: int) -> Params:
    """The parameters of a group of K: of all clients those of the scenario. Raises TooFewClients."""
    s = next((s for s in range(min(p.s, K - 1), -1, -1) if no_code(p.code, K, s) is None), None)
    if K < 2 or s is None:
        raise TooFewClients(f"set-up: {K} clients are there, too few for a sum")
    return replace(p, s=s) if p.gamma is None else replace(p, s=s, gamma=min(p.gamma, K - 1))


@cache
def generator_matrix(construction: str, K: int, lambda_: float, gamma: int, seed: int) -> np.ndarray:
    """A, (K, L) float64, that satisfies the conditions of its construction. Raises NoSuchKeys."""
    rng = generator(seed, "key generator")
    if construction == "random":
        return secure_keys.require(secure_keys.random_rows(K, lambda_, rng))
    if construction == "fair_cyclic":
        A = secure_keys.fair_cyclic(K, gamma, lambda_)
    elif construction == "fair_general":
        try:
            A = secure_keys.fair_general(K, lambda_, rng)
        except secure_keys.NoSuchKeys:
            A = secure_keys.fair_projection(K, lambda_, rng)
    else:
        A = secure_keys.fair_projection(K, lambda_, rng)
    return secure_keys.require(A, lambda_)


def key_generator(p: Params, K: int, seed: int) -> np.ndarray:
    """A of these parameters, the same at every node."""
    if p.keys == "pairwise":
        return secure_keys.pairwise(K, p.lambda_)
    return generator_matrix(p.construction, K, p.lambda_, K - 1 if p.gamma is None else p.gamma, seed)


class Behind(ProtocolFailure):
    """A client cannot take part in the round: it lacks the last global model, or the key ring."""


# --- server ---------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector                                       # Theta_ref
    version: int = 0                                    # successes so far
    failed: int = 0                                     # rounds since the last one
    announced: bool = False                             # the model was sent; until a success, only `Continue` follows
    keys: dict[int, np.ndarray] = field(default_factory=dict)       # client -> public key
    unsure: set[int] = field(default_factory=set)       # members that may not have the key ring or the group yet
    members: list[int] = field(default_factory=list)    # the group, ascending
    epoch: int = 0                                      # its number: how often it was made anew
    in_vain: int = 0                                    # failed rounds since a success or a new group
    there: dict[int, np.ndarray] = field(default_factory=dict)      # client -> its key for the group to come
    asked: int = 0                                      # rounds in which was asked who is there; 0: nobody is


async def server(node: Node, p: Params) -> None:
    if node.index > 0:
        await dealer(node, p)
        return
    s = node.state(ServerState(node.task.initial_parameters(), unsure=set(node.clients), members=node.clients))
    now, G = await code_of(node, p, s.members)
    async for round_ in node.rounds():
        with round_:
            complete: list[int] = []
            sums: Mapping[int, PartialSum] = {}
            try:
                if s.asked or round_ in p.rekey_at or (p.rekey_after and s.in_vain >= p.rekey_after):
                    await regroup(node, p, s)
                    now, G = await code_of(node, p, s.members)
                group, K = s.members, len(s.members)
                if s.epoch and s.unsure:
                    await tell_group(node, p, s)
                elif p.lambda_ and p.keys == "pairwise" and s.unsure:
                    await exchange_keys(node, p, s)
                if p.lambda_ and p.keys != "pairwise":
                    node.send(dealer_of(node), DealTo(s.model.size, np.array(group, np.int32)) if s.epoch else
                              Deal(s.model.size))
                await open_round(node, s)
                if s.epoch:
                    found = await node.gather(GroupSum, group, timeout_s=p.uplink_s)
                    sums = {k: m for k, m in found.items() if m.epoch == s.epoch}
                else:
                    sums = await node.gather(PartialSum, group, timeout_s=p.uplink_s)                      # F
                heard = {group.index(k): heard_by(G, group.index(k), m) for k, m in sums.items()}
                complete = [k for k, row in heard.items() if np.array_equal(row, G[k])]
                rows = heard if p.decoder == "rowspace" else {k: G[k] for k in complete}
                decoded = await node.compute("decode", decode, now, K, rows,
                                             {k: sums[group[k]].sum for k in rows}, work=len(rows) * s.model.size)
            except ProtocolFailure:
                s.failed, s.in_vain = s.failed + 1, s.in_vain + 1
                node.report(parameters=s.model, received=len(sums), complete=len(complete), decoded=False,
                            **of_group(p, s))
                raise
            s.model, s.version, s.failed, s.announced = s.model + decoded.mean, s.version + 1, 0, False
            s.in_vain = 0
            node.report(parameters=s.model, received=len(sums), complete=len(complete), decoded=True,
                        amplification=decoded.amplification, predicted_error=decoded.predicted_error, **of_group(p, s))
            if p.finish_at is not None and round_ >= p.finish_at:
                return


async def code_of(node: Node, p: Params, group: Sequence[int]) -> tuple[Params, np.ndarray]:
    """The parameters of a group, and its G."""
    now = fitted(p, len(group))
    return now, await node.compute("code", gradient_code, now, len(group), node.seed, work=len(group))


def of_group(p: Params, s: ServerState) -> dict[str, Any]:
    """What is reported where the group may change."""
    return {"members": len(s.members), "rekeyings": s.epoch} if p.rekey_after or p.rekey_at else {}


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


async def regroup(node: Node, p: Params, s: ServerState) -> None:
    """Those who answer are the group from now on. Raises TooFewClients while somebody may still do so, and if they are
    too few for any code; then the old group stays."""
    epoch, s.asked = s.epoch + 1, s.asked + 1
    answers = await answered(node, p, [k for k in node.clients if k not in s.there], Rekey(epoch), Present, epoch)
    s.there |= {k: m.key for k, m in answers.items()}
    silent = [k for k in node.clients if k not in s.there]
    if silent and s.asked < ASKED_ROUNDS:
        raise TooFewClients(f"set-up: {node.world.names[silent[0]]} has not said that it is there")
    there, s.there, s.asked, s.in_vain = s.there, {}, 0, 0
    fitted(p, len(there))
    s.epoch, s.members, s.keys, s.unsure = epoch, sorted(there), there, set(there)


async def tell_group(node: Node, p: Params, s: ServerState) -> None:
    """See to it that every member knows the group. Raises TooFewClients."""
    group = Group(s.epoch, np.array(s.members, np.int32), np.stack([s.keys[k] for k in s.members]))
    s.unsure -= (await answered(node, p, sorted(s.unsure), group, GroupHeld, s.epoch)).keys()
    if s.unsure:
        raise TooFewClients(f"set-up: {node.world.names[min(s.unsure)]} has not confirmed the group")


async def answered(node: Node, p: Params, clients: list[int], asked: Message, kind: type[Answer], epoch: int,
                   ) -> dict[int, Answer]:
    """{client: its answer}, of those who answer for that group; who does not is asked again."""
    answers: dict[int, Answer] = {}
    for _ in range(SETUP_TRIES):
        begun, silent = node.now_ns, [k for k in clients if k not in answers]
        if not silent:
            break
        node.broadcast(silent, asked)
        found = await node.gather(kind, silent, timeout_s=p.setup_s)
        answers |= {k: m for k, m in found.items() if m.epoch == epoch}
        if not found and node.now_ns == begun:
            break                           # settled at once: all of them have left the round
    return answers


async def open_round(node: Node, s: ServerState) -> None:
    """After a success the model to the group; after a failure only to those of it who have asked for it."""
    # a set-up that fails opens no round for the clients, so it is none that they trained in
    s.failed = s.failed if s.announced else 0
    behind = s.members
    if s.announced:
        behind = list(await node.gather(ModelRequest, s.members, timeout_s=0))
        node.broadcast([k for k in s.members if k not in behind], Continue(s.version, s.failed))
    node.broadcast(behind, Model(s.version, s.failed, s.model))
    s.announced = True


def heard_by(G: np.ndarray, k: int, message: PartialSum) -> np.ndarray:
    """Row k of G with zeros for those whom relay k has not heard; all zeros for a bitmap of another length."""
    row, U = np.zeros(len(G)), np.flatnonzero(G[k])
    if message.heard.size == math.ceil(U.size / 8):
        heard = U[np.unpackbits(message.heard, count=U.size).astype(bool)]
        row[heard] = G[k, heard]
    return row


class Decoded(NamedTuple):
    mean: Vector                    # (d,) float32
    amplification: float            # amp(F), independent of the messages
    predicted_error: float          # root mean square per coordinate, from the sizes of the sums


def decode(p: Params, K: int, rows: Mapping[int, np.ndarray], sums: Mapping[int, Vector]) -> Decoded:
    """1/K sum_{k in F} b_k S_k from {relay k in 0..K-1: its row, (K,)} and {k: S_k}.

    Raises NotDecodable if they do not determine the sum of all updates, or only with an error above `max_error`.
    """
    F = [k for k in sorted(rows) if rows[k].any()]
    R = np.array([rows[k] for k in F]).reshape(-1, K)                                               # (|F|, K)
    if p.decoder == "rowspace":
        b = gradient_coding.decode_rowspace(R)
        if b is None:
            raise NotDecodable(f"{len(F)} sums of {K} arrived, but do not give the mean")
    else:
        if len(F) < K - p.s:
            raise NotDecodable(f"{len(F)} complete sums arrived, K - s = {K - p.s} of {K} are needed")
        b = gradient_coding.decode_complete(R)
        if b is None:
            raise NotDecodable(f"{len(F)} complete sums of {K} arrived, but do not give the mean to 1e-6")
    sizes = np.array([np.linalg.norm(sums[k].astype(np.float64)) for k in F]) / math.sqrt(sums[F[0]].size)
    error = gradient_coding.predicted_error(R, b, sizes)
    if p.max_error is not None and not error <= p.max_error:            # also one that is no number
        raise NotDecodable(f"the predicted error {error:.2g} is above max_error = {p.max_error:g}")
    total = weighted_sum({k: sums[k] for k in F}, dict(zip(F, b, strict=True)))
    return Decoded((total / K).astype(np.float32), gradient_coding.amplification(R, list(range(len(F))), b),
                   error)


# --- dealer ---------------------------------------------------------------------------------------------------------

@dataclass
class DealerState:
    root: bytes                                         # seed of the seeds of all components
    unsure: set[int]                                    # clients that may not have their seeds yet


def dealer_of(node: Node) -> int:
    """A node of the role `dealer`, or the second server; `check` has seen to it that there is one."""
    return (node.nodes("dealer") or node.servers[1:])[0]


async def dealer(node: Node, p: Params) -> None:
    s = node.state(DealerState(node.rng.bytes(KEY_BYTES), set(node.clients)))
    async for round_ in node.rounds(of=node.server):
        with round_:
            got = await node.gather((Deal, DealTo), [node.server])
            if not got:
                raise NothingToReceive(f"Deal from {node.world.names[node.server]} is lost or will not be sent")
            deal = got[node.server]
            assert isinstance(deal, Deal | DealTo)
            clients = deal.members.tolist() if isinstance(deal, DealTo) else node.clients
            A = await node.compute("matrix", key_generator, fitted(p, len(clients)), len(clients), node.seed,
                                   work=len(clients))
            if p.keys == "dealer":
                keys = await node.compute("deal", all_keys, A, s.root, round_, deal.dimension,
                                          work=A.shape[1] * deal.dimension)
                for k, key in zip(clients, keys, strict=True):
                    node.send(k, Key(key))
                continue
            if s.unsure:
                s.unsure -= (await node.gather(SeedsHeld, s.unsure, timeout_s=0)).keys()
            for k in sorted(s.unsure):
                seeds = [s.root] if p.keys == "common_seed" else [
                    mask_seed(s.root, component) for component in np.flatnonzero(A[clients.index(k)]).tolist()]
                node.send(k, Seeds(np.frombuffer(b"".join(seeds), np.uint8).reshape(-1, KEY_BYTES)))


def all_keys(A: np.ndarray, root: bytes, t: int, d: int) -> list[Vector]:
    """N = A Z of round t: K vectors (d,) float32."""
    N = np.zeros((len(A), d))
    for component, column in enumerate(A.T):
        Z = gaussian(mask_seed(mask_seed(root, component), t), d)
        for k in np.flatnonzero(column).tolist():
            N[k] += column[k] * Z
    return list(N.astype(np.float32))


# --- client ---------------------------------------------------------------------------------------------------------

@dataclass
class ClientState:
    reference: Vector | None = None                     # Theta_ref, the last global model received
    version: int = -1                                   # its number
    deltas: dict[int, Vector] = field(default_factory=dict)     # whose data -> Delta, what was trained since
    runs: int = 0                                       # local runs in them
    own: KeyPair | None = None
    shared: dict[int, bytes] = field(default_factory=dict)      # other client -> X25519 secret
    seeds: dict[int, bytes] = field(default_factory=dict)       # component -> seed, from the dealer
    members: list[int] = field(default_factory=list)            # the group, as it is known here, ascending
    epoch: int = 0                                              # its number
    asked: int = 0                                              # and of the one that `own` is for


async def client(node: Node, p: Params) -> None:
    s = node.state(ClientState(members=node.clients))
    r = await relay(node, p, s)
    async for round_ in node.rounds(of=node.server):
        with round_:
            message = await opening(node, p, s)
            if r.epoch != s.epoch:
                r = await relay(node, p, s)
            take_over(node, p, s, message)
            if p.lambda_ and p.keys == "pairwise" and not s.shared:
                raise Behind("the key ring has not come")
            if not s.deltas or p.on_failure == "continue":
                data = {m: node.clients.index(m) for m in r.U} if p.training == "replicated" else {node.id: None}
                s.deltas = await node.compute("train", train_on, node.task, s.reference, s.deltas, data,
                                              work=len(data))
                s.runs += 1
            ys: Mapping[int, Vector] = s.deltas
            if p.training == "own":
                y = await masked(node, p, s, round_)
                node.broadcast([v for v in r.V if v != node.id], Masked(y))
                heard = await node.gather(Masked, [m for m in r.U if m != node.id], timeout_s=p.share_s)
                if len(heard) < len(r.U) - 1 and not p.send_incomplete:
                    continue                    # leaves the round: nobody waits for its sum
                ys = {m: y if m == node.id else heard[m].y for m in r.U if m == node.id or m in heard}
            g = {m: r.row[m] for m in ys}
            total = await node.compute("combine", combine, g, ys, work=len(ys) * s.deltas[node.id].size)
            bitmap = np.packbits([m in ys for m in r.U])
            node.send(node.server, GroupSum(bitmap, total, s.epoch) if s.epoch else PartialSum(bitmap, total))


class Relay(NamedTuple):
    """What the code makes of a client."""

    epoch: int                      # of the group that it is for
    row: dict[int, float]           # member -> g_km
    U: list[int]                    # whose updates it needs
    V: list[int]                    # which relays need its own


async def relay(node: Node, p: Params, s: ClientState) -> Relay:
    _, G = await code_of(node, p, s.members)
    k = s.members.index(node.id)
    return Relay(s.epoch, dict(zip(s.members, G[k].tolist(), strict=True)),
                 [s.members[m] for m in gradient_coding.row_support(G, k)],
                 [s.members[m] for m in gradient_coding.column_support(G, k)])


async def masked(node: Node, p: Params, s: ClientState, t: int) -> Vector:
    """Y_k of round t. Raises Behind, NothingToReceive or TimedOut if there is no key."""
    delta, K, k = s.deltas[node.id], len(s.members), s.members.index(node.id)
    key: Callable[[int], np.ndarray] | None = None      # d -> N_k
    components = 0                                      # Gaussian vectors to be drawn for it
    if p.lambda_ and p.keys == "pairwise":
        key, components = partial(key_of_pairs, node.id, s.shared, t, p.lambda_), K - 1
    elif p.lambda_ and p.keys == "dealer":
        dealt = await node.recv(Key, dealer_of(node), timeout_s=p.setup_s)
        key = partial(dealt_key, dealt.key)
    elif p.lambda_:
        A = await node.compute("matrix", key_generator, p, K, node.seed, work=K)
        await hold_seeds(node, p, s, A[k])
        key, components = partial(key_of_seeds, A[k], s.seeds, t), len(s.seeds)
    return await node.compute("mask", masked_update, delta, p.clip, key, work=components * delta.size)


async def hold_seeds(node: Node, p: Params, s: ClientState, row: np.ndarray) -> None:
    """See to it that the client has its seeds, and that the dealer knows. Raises Behind."""
    source, components = dealer_of(node), np.flatnonzero(row).tolist()
    got = await node.gather(Seeds, [source], timeout_s=0 if s.seeds else p.setup_s)
    if got:
        seeds = [seed.tobytes() for seed in got[source].seeds]
        if p.keys == "common_seed":
            seeds = [mask_seed(seeds[0], component) for component in components]
        s.seeds = dict(zip(components, seeds, strict=True))
        node.send(source, SeedsHeld())
    if not s.seeds:
        raise Behind("the seeds have not come")


async def opening(node: Node, p: Params, s: ClientState) -> Model | Continue:
    """The message that opens the round; set-up messages before it are answered, however often they come.

    A round is entered by one of these messages, so that only a client that was in set-up ever waits here, and at most
    as long as a set-up can last. Raises Behind if no opening comes, or it cannot be of the group.
    """
    patience = None if p.setup_s is None else (SETUP_TRIES + 1) * p.setup_s
    while True:
        got = await node.gather((Model, Continue, KeyRequest, KeyRing, Rekey, Group), [node.server], timeout_s=patience)
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
        elif isinstance(message, Rekey):
            if message.epoch != s.asked:
                s.asked, s.own = message.epoch, None
                if p.lambda_ and p.keys == "pairwise":
                    s.own = await node.compute("keys", key_pair, node.rng.bytes(KEY_BYTES))
            node.send(node.server, Present(s.asked, np.frombuffer(s.own.public if s.own else b"", np.uint8)))
        elif isinstance(message, Group):
            if message.epoch != s.asked:
                raise Behind("a crash has wiped what it was to bring to the group")
            if message.epoch != s.epoch:
                s.epoch, s.members = message.epoch, message.members.tolist()
                if s.own is not None:
                    s.shared = await node.compute("agree", agree_with_all, s.own, s.members, node.id, message.keys,
                                                  work=len(s.members) - 1)
            node.send(node.server, GroupHeld(s.epoch))


def take_over(node: Node, p: Params, s: ClientState, message: Model | Continue) -> None:
    """Start from the model that came. Raises Behind, having asked for it, if it is one that never came."""
    failed = message.failed
    if isinstance(message, Model):
        if message.version != s.version:
            s.reference, s.version, s.deltas, s.runs = message.parameters, message.version, {}, 0
    elif message.version != s.version:
        # its Delta_k would count what is in the global model already
        node.send(node.server, ModelRequest())
        raise Behind(f"the server continues from model {message.version}, which has not come")
    if p.training == "replicated" and s.runs != (min(failed, 1) if p.on_failure == "repeat" else failed):
        # other holders of the same data have trained on it more often, or less: the sums would not fit each other
        raise Behind(f"{s.runs} local runs since model {s.version}, the others have {failed}")


def agree_with_all(own: KeyPair, clients: Sequence[int], me: int, ring: np.ndarray) -> dict[int, bytes]:
    """{other client: X25519 secret}. ring: (K, 32) uint8, the public keys in the order of `clients`."""
    return {j: agree(own.secret, key.tobytes()) for j, key in zip(clients, ring, strict=True) if j != me}


def train_on(task: Any, reference: Vector, deltas: Mapping[int, Vector], data: Mapping[int, int | None],
             ) -> dict[int, Vector]:
    """Delta after training from Theta_ref + Delta, (d,) float32, for each of `data`: {whose: its share; None: own}."""
    after = {}
    for m, share in data.items():
        before = deltas.get(m)
        theta = reference if before is None else reference + before
        update = task.local_update(theta)[0] if share is None else task.local_update(theta, share=share)[0]
        after[m] = update if before is None else before + update
    return after


def masked_update(delta: Vector, clip: float | None, key: Callable[[int], np.ndarray] | None) -> Vector:
    """Y_k = Delta_k + N_k, (d,) float32, rounded once; Delta_k is scaled down to the norm `clip` first."""
    delta = clipped(delta, clip)
    return delta if key is None else (delta + key(delta.size)).astype(np.float32)


def key_of_pairs(me: int, shared: Mapping[int, bytes], t: int, lambda_: float, d: int) -> np.ndarray:
    """N_k = lambda / sqrt(K-1) sum_j sgn(k, j) Z_kj of round t, (d,) float64. shared: {other client: secret}."""
    seeds = {j: mask_seed(secret, t) for j, secret in shared.items()}
    return pairwise_key(me, seeds, d, lambda_ / math.sqrt(len(shared)))


def key_of_seeds(row: np.ndarray, seeds: Mapping[int, bytes], t: int, d: int) -> np.ndarray:
    """N_k = sum_l a_kl Z_l of round t, (d,) float64. seeds: {component l: seed}."""
    total = np.zeros(d)
    for component, seed in seeds.items():
        total += row[component] * gaussian(mask_seed(seed, t), d)
    return total


def dealt_key(key: Vector, d: int) -> np.ndarray:
    return key.astype(np.float64)


def combine(g: Mapping[int, float], ys: Mapping[int, Vector]) -> Vector:
    """S_k = sum_m g_km Y_m, (d,) float32, summed in the order of the clients in float64."""
    return weighted_sum(ys, g).astype(np.float32)


MESSAGES = (KeyRequest, PublicKey, KeyRing, KeysHeld, Model, Continue, ModelRequest, Deal, Key, Seeds, SeedsHeld,
            Masked, PartialSum, Rekey, Present, Group, GroupHeld, GroupSum, DealTo)
ROLES = {"server": server, "client": client, "dealer": dealer}


def DECIDES(roles: Mapping[str, Sequence[int]]) -> list[int]:
    """The first server: a second one only deals keys."""
    return list(roles["server"][:1])


# --- before a run and after it ----------------------------------------------------------------------------------------

class Places(Protocol):
    """What `check` asks of the world."""

    clients: int
    servers: int
    roles: Mapping[str, Sequence[str]]


def check(params: Params, world: Places) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, K, errors = params, world.clients, []
    if K < 2:
        return [f"s = {p.s}: {K} clients, a sum needs at least 2"]
    refused = no_code(p.code, K, p.s)
    if refused is not None:
        errors.append(f"s = {p.s}: {refused}")
    if not (p.lambda_ >= 0 and math.isfinite(p.lambda_)):
        errors.append(f"lambda = {p.lambda_}: expected a number, 0 or above")
    if p.lambda_ and p.keys == "pairwise" and (p.construction != "fair_cyclic" or p.gamma not in (None, K - 1)):
        found = p.construction if p.construction != "fair_cyclic" else f"gamma = {p.gamma}"
        errors.append(f"keys = pairwise: pairs make the keys of fair_cyclic with gamma = K - 1 = {K - 1}, not of "
                      f"{found}; let a dealer make them")
    elif p.lambda_ and p.keys != "pairwise" and not world.roles.get("dealer") and world.servers < 2:
        errors.append(f"keys = {p.keys}: needs a dealer, a second server or a node of the role dealer")
    if p.gamma is not None and (p.construction != "fair_cyclic" or not 1 <= p.gamma <= K - 1):
        errors.append(f"gamma = {p.gamma}: expected 1..{K - 1} with {K} clients, for fair_cyclic only")
    if p.decoder == "rowspace" and not p.send_incomplete:
        errors.append("decoder = rowspace: needs send_incomplete: true")
    if p.screen < 1:
        errors.append(f"screen = {p.screen}: expected 1 draw or more")
    if p.finish_at is not None and p.finish_at < 1:
        errors.append(f"finish_at = {p.finish_at}: expected a round, 1 or above")
    if p.rekey_after is not None and p.rekey_after < 1:
        errors.append(f"rekey_after = {p.rekey_after}: expected 1 failed round or more")
    if any(t < 1 for t in p.rekey_at):
        errors.append(f"rekey_at = {list(p.rekey_at)}: expected rounds, 1 or above")
    if (p.rekey_after or p.rekey_at) and p.lambda_ and p.keys in ("component_seeds", "common_seed"):
        errors.append(f"keys = {p.keys}: their seeds are for all clients; to make groups anew, use pairwise or dealer")
    if not 0 < p.ldp_delta < 1:
        errors.append(f"ldp_delta = {p.ldp_delta}: expected a number between 0 and 1")
    errors += [f"{name} = {value}: expected a number above 0" for name, value in
               (("max_error", p.max_error), ("clip", p.clip), ("zeta", p.zeta)) if value is not None and not value > 0]
    errors += [f"{name} = {value} s: expected a time above 0" for name, value in
               (("share", p.share_s), ("uplink", p.uplink_s), ("setup", p.setup_s)) if value is not None and value <= 0]
    return errors


def analysis(params: Params, setting: Setting) -> Analysis:
    """Reliability, transmissions in updates of d elements, convergence; with keys also what observers learn.

    Exact for links that fail independently of each other and without deadlines; downlinks are taken as reliable.
    """
    p, names, hub = params, setting.roles["client"], setting.roles["server"][0]
    K, G = len(names), gradient_code(p, len(names), setting.seed)
    own = p.training == "own"
    connected = np.ones((K, K))                                             # [k, m]: relay k hears m
    for k, m in zip(*np.nonzero(G), strict=True) if own else ():
        if k != m:
            connected[k, m] = 1 - setting.outage(names[m], names[k])
    uplinks = [1 - setting.outage(name, hub) for name in names]
    pi = outage.complete(G, connected).tolist()
    P_O = outage.outage_probability(pi, uplinks, p.s)
    events = outage.failure_events(pi, uplinks, p.s)
    cost = outage.cost(G if own else np.eye(K), pi, P_O, p.send_incomplete)
    gap, gap2 = outage.gaps(P_O)
    found: Analysis = {
        "outage_probability": P_O if p.decoder == "rowspace" else (P_O, "failed"),      # rowspace: an upper bound
        "outage_by_sharing": events.sharing, "outage_by_uplinks": events.uplinks, "outage_by_both": events.both,
        "successes": (setting.rounds * (1 - P_O), "rounds"),
        "rounds_per_success": gap, "rounds_per_success_squared": gap2,
        "complete_arrived_per_round": (sum(c * q for c, q in zip(uplinks, pi, strict=True)), "complete"),
        "shared_per_round": (cost.sharing, "messages.Masked"),
        "uplinks_per_round": (cost.uplink, "messages.PartialSum"),
        "downlinks_per_round": (cost.downlink, "messages.Model"),
        "transmissions_per_success": cost.per_success(P_O) + K,
        "transmissions_per_success_broadcast": (cost.broadcast + cost.uplink) / max(1 - P_O, 1e-300) + K,
    }
    if own and p.code != "fractional" and K <= ANALYSED_CLIENTS:
        found["transmissions_per_success_by_s"] = by_s(connected_everywhere(setting, names), uplinks)
    if setting.steps:
        a, b = outage.convergence(K, setting.rounds, setting.steps, P_O)
        found |= {"convergence_initial_gap_factor": a, "convergence_variance_factor": b}
    if p.lambda_ and K <= ANALYSED_CLIENTS:
        found |= privacy(p, G, key_generator(p, K, setting.seed), connected)
    return found


def connected_everywhere(setting: Setting, names: Sequence[str]) -> np.ndarray:
    """(K, K) probability that client k hears client m, 1 on the diagonal."""
    return np.array([[1.0 if k == m else 1 - setting.outage(m, k) for m in names] for k in names])


def by_s(connected: np.ndarray, uplinks: Sequence[float]) -> dict[str, float]:
    """Sharing and uplinks per recovered update for each s of a cyclic code, in updates of d elements."""
    K, found = len(connected), {}
    for s in range(1, K):
        G = np.array([[float((m - k) % K <= s) for m in range(K)] for k in range(K)])
        pi = outage.complete(G, connected).tolist()
        P_O = outage.outage_probability(pi, uplinks, s)
        found[str(s)] = outage.cost(G, pi, P_O, False).per_success(P_O)
    return found


def privacy(p: Params, G: np.ndarray, A: np.ndarray, connected: np.ndarray) -> Analysis:
    """Bits per coordinate and round (LMIP), and epsilon at `ldp_delta` if updates are clipped, else "unbounded".

    The peer is client 0, which hears its right neighbour or everybody; the relay is client 0, and what is asked about
    there is the client with its largest coefficient. The server sees all sums of a success.
    """
    K, zeta, Sigma = len(G), p.lambda_ if p.zeta is None else p.zeta, secure_keys.covariance(A)
    knows: lmip.Knowledge = ("everything" if p.keys == "common_seed" else "key" if p.keys == "dealer" else "components")
    j = int(np.argmax(np.abs(np.where(np.arange(K) == 0, 0.0, G[0])))) or 1
    found: Analysis = {
        "lmip_outsider_bits": float(connected[0, j]) * lmip.message(zeta, math.sqrt(Sigma[j, j])),
        "lmip_peer_bits": lmip.peer_leak(A, 0, [1], 1, zeta, knows),
        "lmip_peer_hearing_all_bits": lmip.peer_leak(A, 0, range(1, K), 1, zeta, knows),
        "lmip_partial_sum_bits": lmip.mean_partial_sum(G[0], Sigma, zeta, j, connected[0].tolist()),
        "lmip_server_bits": lmip.leak(G, Sigma, zeta, j),
        "lmip_mean_bits": lmip.exact_mean(K),
    }
    if p.clip is None:
        return found | {"ldp_outsider_epsilon": "unbounded", "ldp_peer_epsilon": "unbounded",
                        "ldp_partial_sum_epsilon": "unbounded"}
    peer = math.sqrt(max(0.0, float(lmip.peer_view(A, 0, knows)[1, 1])))
    return found | {
        "ldp_outsider_epsilon": ldp.epsilon(p.ldp_delta, ldp.peer_mu(p.clip, math.sqrt(Sigma[j, j]))),
        "ldp_peer_epsilon": ldp.epsilon(p.ldp_delta, ldp.peer_mu(p.clip, peer)),
        "ldp_partial_sum_epsilon": ldp.mixture_epsilon(
            p.ldp_delta, ldp.relay_mixture(G[0], Sigma, connected[0].tolist(), j, p.clip)),
    }

EXAMPLE = """
emul: 1
name: fair_seccogc
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fair_seccogc, s: 2, share: 200 ms, uplink: 500 ms, setup: 1 s}]
stop: {rounds: 3}
"""
