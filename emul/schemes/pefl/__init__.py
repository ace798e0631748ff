"""PEFL: two servers weigh encrypted updates by their correlation with the median. Liu et al., IEEE TIFS 2021.

    SecMed    SP -> CP  [g_i + r], one r per coordinate for all i;   CP -> SP  [median]
    SecPear   SP -> CP  [a_i g_i], [b_i median];   mu_i = max(0, ln((1 + rho_i) / (1 - rho_i)) - reject), rho: Pearson
    SecAgg    SP -> CP  [g_i + p_i], one number p_i;   CP -> SP  [k_i (g_i + p_i)], k_i = mu_i / sum mu
    SecExch   SP -> CP  [G + r'];   CP -> SP  the same under the clients' key;   w <- w + G = w + sum_i k_i g_i

The service provider SP (`server`) holds ciphertexts, the cloud platform CP (`cloud`) the key c, all clients one key x.
`variant: lean` [ours] has SP apply the k_i, which it learns anyway. A model of cost and robustness: it protects NOTHING
against CP, which has a_i g_i and g_i + p_i and so every g_i exactly (Schneider, Suresh, Yalame, arXiv 2409.19964;
`emul.schemes.pefl.attacks`). SP and CP together read everything in any case.

Fixed point with 16 bits, 23 numbers in a ciphertext of 2,048 bits: C = ceil(d / 23) ciphertexts of 512 bytes a vector,
(7 m + 3) C of them a round of m clients, lean (5 m + 3) C. Deviations: SP sends the encrypted model in place of the
encrypted step, so that a client that has missed a round is not lost; an even median is taken twice, which a
correlation does not see; k_i is rounded to 16 bits. The constant 0.5, the packing and the contents of the messages come
from a public implementation and from us, not from the paper. Up to `real_up_to` coordinates all is encrypted for real;
beyond, sizes and times of the ciphertexts are declared, and decisions stay the same to the bit.

Protects: updates from both servers while these do not collude; the model from malicious updates, by correlation with
the median. Not: weights from the servers; see its page for what leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import ProtocolFailure, TooFewClients
from emul.primitives.he.paillier import Packing, PrivateKey, PublicKey, key_pair
from emul.protocols import key_centre
from emul.protocols.audit import keep_input, keep_opened, keep_pad, keep_weighted
from emul.protocols.demands import both, demand
from emul.protocols.key_centre import KeyParts, PartyKeys, hold_keys, number, octets, wake_centre
from emul.protocols.sealed import (
    Sealed,
    SealedArithmetic,
    each,
    fixed,
    open_rows,
    total,
    trained_from,
    wrong_encryption,
)
from emul.roles import Message, Node, Scheme, World, checks
from emul.roles.example import example, lossy

FRACTION, VALUE = 16, 30            # bits of an update's number after the point, and in all
WEIGHT = 16                         # bits of k_i after the point
BLIND, SCALAR, HIDE = 40, 30, 62    # bits of r and p_i, of a_i and b_i, of r'
SLOT = 88                           # bits of a slot: the largest product, and room for sums
GUARD = 1 - 1e-10                   # largest rho, so that a copy of the median has a finite weight

Floats = NDArray[np.float64]


class AllRejected(ProtocolFailure):
    """Nobody's update correlates with the median."""


@dataclass(frozen=True)
class Global(Message):
    """SP to client, under x."""

    model: Sealed                   # 2^(FRACTION + WEIGHT) w


@dataclass(frozen=True)
class Upload(Message):
    """Client to SP, under c."""

    update: Sealed                  # 2^FRACTION g_i


@dataclass(frozen=True)
class Blinded(Message):
    """SP to CP: g_i + r."""

    updates: list[Sealed]


@dataclass(frozen=True)
class Median(Message):
    """CP to SP: twice the median of g_i + r."""

    twice: Sealed


@dataclass(frozen=True)
class Scaled(Message):
    """SP to CP: a_i g_i and b_i median."""

    updates: list[Sealed]
    medians: list[Sealed]


@dataclass(frozen=True)
class Padded(Message):
    """SP to CP: g_i + p_i."""

    updates: list[Sealed]


@dataclass(frozen=True)
class Weights(Message):
    """CP to SP: k_i in clear, and, unless the variant is lean, k_i (g_i + p_i)."""

    weights: np.ndarray             # (m,) float64
    updates: list[Sealed]


@dataclass(frozen=True)
class Exchange(Message):
    """SP to CP under c, and back under x: G + r'."""

    step: Sealed


@dataclass(frozen=True)
class Params:
    variant: Literal["full", "lean"] = "full"
    bits: int = 2048                    # of both keys
    reject: float = 0.5                 # taken off the logarithm; a public implementation has 0.6, too
    real_up_to: int = 2000              # coordinates that are encrypted for real; beyond it is declared
    deadline_s: float | None = None     # of the uploads; None: until the fate of each is known
    server_timeout_s: float | None = None       # of an answer of the other server, and of keys; None: likewise
    audit: bool = False                 # leave updates, weights and blinded sums in the run directory

    @property
    def packing(self) -> Packing:
        """The packing of coordinates in ciphertexts."""
        return Packing.of(self.bits, SLOT)


def desk_of(node: Node, p: Params, n: int) -> SealedArithmetic:
    """For vectors of the model's length under the key n."""
    return SealedArithmetic(node, PublicKey(n), p.packing, node.task.dimension, p.real_up_to)


# --- SP ---------------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    held: PartyKeys = field(default_factory=PartyKeys)
    model: Sealed | None = None         # under x


async def server(node: Node, p: Params) -> None:
    s, cloud = node.state(ServerState()), node.nodes("cloud")[0]
    async for round_ in node.rounds():
        with round_:
            await wake_centre(node, s.held)
            c, x = (desk_of(node, p, number(n)) for n in await hold_keys(node, s.held, 2, p.server_timeout_s))
            if s.model is None:
                w = fixed(node.task.initial_parameters(), FRACTION + WEIGHT, HIDE)
                s.model = await x.seal(w)
            node.broadcast(node.clients, Global(s.model))
            got = await node.gather(Upload, node.clients, timeout_s=p.deadline_s, accept=c.sound("update"))
            if len(got) < 2:
                raise TooFewClients(f"too_few_clients: {len(got)} updates, a median of several needs at least 2")
            G = await exchange(c, x, p, cloud, await aggregate(c, p, cloud, {k: m.update for k, m in got.items()}))
            s.model = await node.compute("add", x.box.add, s.model, G, cost_s=x.cost(add=1))
            node.report(received=len(got))


async def aggregate(c: SealedArithmetic, p: Params, cloud: int, g: Mapping[int, Sealed]) -> Sealed:
    """SecMed, SecPear and SecAgg: [G] under c. Raises AllRejected."""
    node, box, m, clients = c.node, c.box, len(g), sorted(g)
    updates = [g[k] for k in clients]
    r = c.mask(BLIND, c.d)
    blinded = await node.compute("blind", each, box.plus, updates, [r] * m, cost_s=c.cost(add=m))
    node.send(cloud, Blinded(blinded))
    answer = await node.recv(Median, cloud, p.server_timeout_s, accept=c.sound("twice"))
    median = await node.compute("unblind", box.plus, answer.twice, -2 * r, cost_s=c.cost(add=1))

    a, b = (1 + c.mask(SCALAR, m) for _ in range(2))
    scaled = await node.compute("scale", each, box.scale, updates + [median] * m, [*a.tolist(), *b.tolist()],
                                cost_s=c.cost(scale=2 * m))
    node.send(cloud, Scaled(scaled[:m], scaled[m:]))
    pads = c.mask(BLIND, m)
    if p.variant == "full":
        padded = await node.compute("pad", each, box.plus, updates, [np.full(c.d, one) for one in pads],
                                    cost_s=c.cost(add=m))
        node.send(cloud, Padded(padded))
    full = m if p.variant == "full" else 0
    said = await node.recv(Weights, cloud, p.server_timeout_s, accept=both(
        c.sound("updates", count=full), partial(shares_of_one, m)))
    if not said.weights.any():
        raise AllRejected(f"all_rejected: none of {m} updates correlates with the median")
    node.judged(clients, [k for k, w in zip(clients, said.weights, strict=True) if w > 0],
                dict(zip(clients, said.weights.tolist(), strict=True)))
    k = whole(said.weights)
    keep_weighted(node, {i: k_i for i, k_i in zip(clients, k, strict=True) if k_i}, asked=p.audit)
    if p.variant == "lean":
        found: Sealed = await node.compute("combine", total, box, updates, k, cost_s=c.cost(scale=m, add=m))
        return found
    summed: Sealed = await node.compute("combine", total, box, said.updates, cost_s=c.cost(add=m))
    off = -sum(k_i * int(p_i) for k_i, p_i in zip(k, pads, strict=True))
    G: Sealed = await node.compute("unpad", box.plus, summed, np.full(c.d, off), cost_s=c.cost(add=1))
    return G


async def exchange(c: SealedArithmetic, x: SealedArithmetic, p: Params, cloud: int, G: Sealed) -> Sealed:
    """SecExch: [G] under x, from [G] under c."""
    node, hidden = c.node, c.mask(HIDE, c.d)
    keep_pad(node, hidden, asked=p.audit)
    node.send(cloud, Exchange(await node.compute("hide", c.box.plus, G, hidden, cost_s=c.cost(add=1))))
    back = await node.recv(Exchange, cloud, p.server_timeout_s, accept=x.sound("step"))
    step: Sealed = await node.compute("show", x.box.plus, back.step, -hidden, cost_s=x.cost(add=1))
    return step


# --- CP ---------------------------------------------------------------------------------------------------------------

async def cloud(node: Node, p: Params) -> None:
    s = node.state(PartyKeys())
    async for round_ in node.rounds(of=node.server):
        with round_:
            first, second, public = map(number, await hold_keys(node, s, 3, p.server_timeout_s))
            key = PrivateKey(first, second)
            c, x = desk_of(node, p, key.public.n), desk_of(node, p, public)
            blinded = await node.recv(Blinded, node.server, accept=c.sound("updates"))
            m, twice = len(blinded.updates), twice_median(await opened(c, key, blinded.updates))
            node.send(node.server, Median(await c.seal(twice)))
            scaled = await node.recv(Scaled, node.server, p.server_timeout_s,
                                     accept=c.sound("updates", "medians", count=m))
            rho = pearson(await opened(c, key, scaled.updates), await opened(c, key, scaled.medians))
            k, weighted = weights(rho, p.reject), []
            if p.variant == "full":
                padded = await node.recv(Padded, node.server, p.server_timeout_s, accept=c.sound("updates", count=m))
                rows = await opened(c, key, padded.updates) * np.array(whole(k))[:, None]
                weighted = await node.compute("encrypt", each, c.box.seal, list(rows), [c.rng] * m,
                                              cost_s=c.cost(encrypt=m))
            node.send(node.server, Weights(k, weighted))
            G = await node.recv(Exchange, node.server, p.server_timeout_s, accept=c.sound("step"))
            step, = await opened(c, key, [G.step])
            keep_opened(node, step, asked=p.audit)
            node.send(node.server, Exchange(await x.seal(step)))


async def opened(c: SealedArithmetic, key: PrivateKey, vectors: Sequence[Sealed]) -> np.ndarray:
    """The decrypted vectors, (len(vectors), d) int64."""
    found: np.ndarray = await c.node.compute("decrypt", open_rows, c.box, key, vectors, c.d,
                                             cost_s=c.cost(decrypt=len(vectors)))
    return found


def shares_of_one(m: int, said: Weights) -> None:
    """For `accept`: weights as `weights` gives them to m updates."""
    k = said.weights
    demand(k.dtype == np.float64 and k.shape == (m,), f"weights: expected {m} floats")
    demand(bool((k >= 0).all()) and bool(k.sum() <= 1 + 1e-6), "weights: expected numbers with a sum of 1 at most")


def whole(k: np.ndarray) -> list[int]:
    """2^WEIGHT k_i, rounded."""
    found: list[int] = np.rint(k * 2.0**WEIGHT).astype(np.int64).tolist()
    return found


# --- the rule in the clear: weights by correlation with the coordinate-wise median ----------------------------------
# The constant `reject` = 0.5 is that of a public implementation; a correlation below 0.245 has no weight.

def twice_median(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Twice the coordinate-wise median of (m, d) integers: the sum of the two in the middle."""
    ordered, m = np.sort(rows, axis=0), len(rows)
    found: NDArray[np.int64] = ordered[(m - 1) // 2] + ordered[m // 2]
    return found


def pearson(rows: NDArray[np.integer], medians: NDArray[np.integer]) -> Floats:
    """rho_i of row i of each, (m,); 0 where one of them is constant."""
    a, b = (np.asarray(x, np.float64) - np.asarray(x, np.float64).mean(1, keepdims=True) for x in (rows, medians))
    sizes = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), sizes, out=np.zeros(len(a)), where=sizes > 0)


def weights(rho: Floats, reject: float) -> Floats:
    """k_i, (m,) float64 with sum 1; all 0: nobody is left."""
    near = np.clip(rho, -GUARD, GUARD)
    mu = np.maximum(0.0, np.log((1 + near) / (1 - near)) - reject)
    return mu / (mu.sum() or 1.0)


# --- clients and keys -------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    s = node.state(PartyKeys())
    async for round_ in node.rounds(of=node.server):
        with round_:
            public, first, second = map(number, await hold_keys(node, s, 3, p.server_timeout_s))
            key = PrivateKey(first, second)
            c, x = desk_of(node, p, public), desk_of(node, p, key.public.n)
            sealed = await node.recv(Global, node.server, accept=x.sound("model"))
            w = await node.compute("decrypt", x.box.open, key, sealed.model, x.d, cost_s=x.cost(decrypt=1))
            g = fixed(await trained_from(node, w, FRACTION + WEIGHT), FRACTION, VALUE)
            if p.audit:
                keep_input(node, g)
            node.send(node.server, Upload(await c.seal(g)))


async def kgc(node: Node, p: Params) -> None:
    await key_centre.key_centre(node, partial(deal, node, p.bits))


def deal(node: Node, bits: int) -> dict[int, KeyParts]:
    """c to CP, x to the clients, the public halves to those that encrypt."""
    c, x = (key_pair(bits, node.stream("keys")) for _ in range(2))
    of_client = octets(c.public.n), octets(x.p), octets(x.q)
    return {node.server: (octets(c.public.n), octets(x.public.n)),
            node.nodes("cloud")[0]: (octets(c.p), octets(c.q), octets(x.public.n)),
            **dict.fromkeys(node.clients, of_client)}


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p = params
    errors = checks.times(deadline=p.deadline_s, server_timeout=p.server_timeout_s)
    return errors + checks.not_negative(reject=p.reject) + wrong_encryption(p.bits, p.real_up_to)


EXAMPLE = example("pefl", "bits: 1024, real_up_to: 256, deadline: 20 s", topology="star_mesh, clients: 5, servers: 3",
                  links=(lossy("client*->server1"),), rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "cloud": cloud, "kgc": kgc, "client": client},
    messages=(*key_centre.MESSAGES, Global, Upload, Blinded, Median, Scaled, Padded, Weights, Exchange),
    places={"cloud": "server[1]", "kgc": "server[2]"}, stateless=("client",),
    timeouts=("deadline_s", "server_timeout_s"), audits=True, check=check, accuracy="personal", example=EXAMPLE)
