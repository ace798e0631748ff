"""ShieldFL: updates weigh by how unlike they are to the most suspicious one. Ma et al., IEEE TIFS 2022.

    u_i = Delta_i / ||Delta_i||;  who sends another length is left out
    reference = the aggregated direction of the round before, at first the sum of all u_i
    baseline u_* = the u_i least similar to it;  mu_i = (1 - cos(u_i, u_*)) / sum_j (1 - cos(u_j, u_*))
    w <- w + median ||Delta_i|| sum_i mu_i u_i

Under Paillier's encryption with two trapdoors: sk = a_1 + a_2 for the servers S1 (`server`) and S2 (`partner`), and
sk = b_1 + b_2 for S1 and the clients. Nobody but both holders of a pair can decrypt.

    S1 -> S2  [u_i + r_i] with partial decryptions;   S2 -> S1  [<u_i + r_i, u_j + r_j>]
    S1 takes off <r_i, u_j>, <r_j, u_i> and <r_i, r_j> under encryption;   S1 -> S2  the rest, which S2 reads and tells

Protected are single updates, if S1 and S2 do not collude; both learn lengths, inner products and weights, and S1 with
one client, or S2 with S1, reads everything. Certain of the paper: reference, baseline and weights. Ours: the length of
a step, which the paper does not give, and therefore lengths in clear; one r_i for all products of a round; weights of
10 bits; S1 sends the encrypted model, not the step. Up to `real_up_to` coordinates all is encrypted for real; beyond,
sizes and times are declared and decisions stay the same. A ciphertext holds one number.

Protects: updates under encryption from two servers that do not collude; the model from malicious updates, by cosine
with the most suspicious one. Not: similarities from the servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.he.paillier import Packing, PublicKey, Share, key_pair
from emul.primitives.robust.aggregation import norm
from emul.protocols import key_centre
from emul.protocols.demands import both, demand
from emul.protocols.key_centre import KeyParts, PartyKeys, hold_keys, number, octets, wake_centre
from emul.protocols.sealed import Integers, Sealed, SealedArithmetic, each, fixed, total, trained_from, wrong_encryption
from emul.roles import Message, Node, Scheme, World, checks
from emul.roles.example import example, lossy

UNIT, WEIGHT, STEP = 20, 10, 14     # bits after the point of u_i, of mu_i, and of the length of a step
MODEL = UNIT + WEIGHT + STEP        # of the model
BLIND, LARGEST = 40, 62             # bits of r_i, and of what is in int64
LENGTH_TOLERANCE = 1e-3             # of ||u_i||^2

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Global(Message):
    """S1 to client: 2^MODEL w, and S1's part of its decryption."""

    model: Sealed
    partial: Sealed


@dataclass(frozen=True)
class Upload(Message):
    """Client to S1."""

    update: Sealed                  # 2^UNIT u_i
    length: float                   # ||Delta_i||


@dataclass(frozen=True)
class Blinded(Message):
    """S1 to S2: 2^UNIT u_i + r_i of the clients, the reference likewise, and S1's parts of their decryption."""

    vectors: list[Sealed]
    partials: list[Sealed]


@dataclass(frozen=True)
class Products(Message):
    """S2 to S1: inner products of what was blinded."""

    products: Sealed


@dataclass(frozen=True)
class Bare(Message):
    """S1 to S2: the products without what blinding put into them, and S1's part of their decryption."""

    products: Sealed
    partial: Sealed


@dataclass(frozen=True)
class Inner(Message):
    """S2 to S1: what the products are."""

    values: np.ndarray              # (count,) int64


@dataclass(frozen=True)
class Baseline(Message):
    """S1 to S2: which of the vectors it is."""

    index: int


@dataclass(frozen=True)
class Params:
    bits: int = 2048                    # of the modulus
    real_up_to: int = 256               # coordinates that are encrypted for real; beyond it is declared
    deadline_s: float | None = None     # of the uploads; None: until the fate of each is known
    server_timeout_s: float | None = None       # of an answer of the other server, and of keys; None: likewise


def desk_of(node: Node, p: Params, n: int) -> SealedArithmetic:
    """For vectors of the model's length, a number in a ciphertext."""
    return SealedArithmetic(node, PublicKey(n), Packing(1, p.bits - 2), node.task.dimension, p.real_up_to)


# --- S1 ---------------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    held: PartyKeys = field(default_factory=PartyKeys)
    model: Sealed | None = None
    reference: Sealed | None = None     # 2^(UNIT + WEIGHT) times the direction of the last step


async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState())
    async for round_ in node.rounds():
        with round_:
            await wake_centre(node, s.held)
            n, a_1, b_1 = map(number, await hold_keys(node, s.held, 3, p.server_timeout_s))
            c = desk_of(node, p, n)
            if s.model is None:
                w = fixed(node.task.initial_parameters(), MODEL, LARGEST)
                s.model = await c.seal(w)
            theirs = await node.compute("partial", c.box.partial, Share(n, b_1), s.model, cost_s=c.cost(partial=1))
            node.broadcast(node.clients, Global(s.model, theirs))
            accept = both(c.sound("update"), possible_length)
            got = await node.gather(Upload, node.clients, timeout_s=p.deadline_s, accept=accept)
            if len(got) < 2:
                raise TooFewClients(f"{len(got)} updates, none of one can be unlike the others")
            updates = {k: got[k].update for k in sorted(got)}
            mu = await weigh(c, p, Share(n, a_1), updates, s.reference)
            step = float(np.median([got[k].length for k in mu]))
            k = [round(one * 2**WEIGHT) for one in mu.values()]
            s.reference = await node.compute("combine", total, c.box, [updates[i] for i in mu], k,
                                             cost_s=c.cost(scale=len(k), add=len(k)))
            s.model = await node.compute("step", total, c.box, [s.model, s.reference], [1, round(step * 2**STEP)],
                                         cost_s=c.cost(scale=1, add=1))
            node.judged(list(got), [i for i, one in mu.items() if one > 0], {i: mu.get(i, 0.0) for i in got})
            node.report(received=len(got), sound=len(mu))


async def weigh(c: SealedArithmetic, p: Params, share: Share, updates: Mapping[int, Sealed], reference: Sealed | None,
                ) -> dict[int, float]:
    """{client: mu_i} of those whose update has length 1. Raises TooFewClients."""
    node, partner, clients, m = c.node, c.node.nodes("partner")[0], list(updates), len(updates)
    vectors = list(updates.values())
    if reference is None:
        reference = await node.compute("combine", total, c.box, vectors, cost_s=c.cost(add=m))
    vectors.append(reference)
    r = [c.mask(BLIND, c.d) for _ in vectors]
    blinded = await node.compute("blind", each, c.box.plus, vectors, r, cost_s=c.cost(add=m + 1))
    parts = await node.compute("partial", each, c.box.partial, [share] * (m + 1), blinded, cost_s=c.cost(partial=m + 1))
    node.send(partner, Blinded(blinded, parts))

    first = await inner_products(c, p, share, vectors, r, of_reference(m))
    square = first[:m] / 2.0**(2 * UNIT)
    sound = [i for i in range(m) if abs(square[i] - 1) <= LENGTH_TOLERANCE]
    if len(sound) < 2:
        raise TooFewClients(f"{len(sound)} of {m} updates have length 1")
    # cosines with the reference, or 0 where one of the two has no length: the baseline is the least of the sound ones
    near = first[m:2 * m] / np.sqrt(np.maximum(first[:m].astype(np.float64) * max(first[2 * m], 1), 1))
    baseline = min(sound, key=lambda i: near[i])
    node.send(partner, Baseline(baseline))
    second = await inner_products(c, p, share, vectors, r, [(i, baseline) for i in range(m)])
    cosine = second / np.sqrt(first[:m].astype(np.float64) * first[baseline] + 1e-300)
    apart = np.maximum(0.0, 1 - cosine[sound])
    mu = apart / apart.sum() if apart.sum() > 0 else np.full(len(sound), 1 / len(sound))
    return {clients[i]: float(one) for i, one in zip(sound, mu, strict=True)}


async def inner_products(c: SealedArithmetic, p: Params, share: Share, vectors: Sequence[Sealed], r: Sequence[Integers],
                         pairs: Pairs) -> Integers:
    """<v_a, v_b> of each pair, (len(pairs),) int64: S2 has had v + r."""
    node, partner, count = c.node, c.node.nodes("partner")[0], len(pairs)
    answer = await node.recv(Products, partner, p.server_timeout_s, accept=c.sound("products", length=count))
    bare = await node.compute("bare", bared, c, answer.products, vectors, r, pairs, cost_s=c.cost(scale=2 * count))
    part = await node.compute("partial", c.box.partial, share, bare, cost_s=c.cost(partial=count, numbers=True))
    node.send(partner, Bare(bare, part))
    said = await node.recv(Inner, partner, p.server_timeout_s, accept=partial(of_length, count=count))
    return said.values


def bared(c: SealedArithmetic, products: Sealed, vectors: Sequence[Sealed], r: Sequence[Integers],
          pairs: Pairs) -> Sealed:
    """[<v_a, v_b>] from [<v_a + r_a, v_b + r_b>]."""
    crossed = [c.box.add(c.box.dot(vectors[a], -r[b]), c.box.dot(vectors[b], -r[a])) for a, b in pairs]
    return c.box.plus_each(c.box.add(products, c.box.joined(crossed)), [-c.box.inner(r[a], r[b]) for a, b in pairs])


def of_reference(m: int) -> Pairs:
    """Pairs of each update with itself, with the reference, which is vector m, and of that with itself."""
    return [*((i, i) for i in range(m)), *((i, m) for i in range(m)), (m, m)]


def possible_length(message: Upload) -> None:
    """For `accept`: a length that an update can have."""
    demand(0 <= message.length <= 2.0**20, "length: no length of an update")


def with_a_reference(message: Blinded) -> None:
    """For `accept`: a vector or more and the reference, each with its partial decryption."""
    demand(len(message.vectors) == len(message.partials) > 1, "vectors: expected two or more, and as many partials")


def of_update(m: int, message: Baseline) -> None:
    """For `accept`: one of m updates."""
    demand(0 <= message.index < m, "index: no such update")


def of_length(message: Inner, count: int) -> None:
    """For `accept`: so many numbers."""
    demand(message.values.shape == (count,) and message.values.dtype == np.int64, f"values: expected {count} numbers")


# --- S2, clients and keys ---------------------------------------------------------------------------------------------

async def partner(node: Node, p: Params) -> None:
    s = node.state(PartyKeys())
    async for round_ in node.rounds(of=node.server):
        with round_:
            n, a_2 = map(number, await hold_keys(node, s, 2, p.server_timeout_s))
            c, share = desk_of(node, p, n), Share(n, a_2)
            accept = both(c.sound("vectors"), c.sound("partials", partial=True), with_a_reference)
            blinded = await node.recv(Blinded, node.server, accept=accept)
            m = len(blinded.vectors) - 1
            rows = await node.compute("decrypt", each, c.box.open_jointly, [share] * (m + 1), blinded.vectors,
                                      blinded.partials, [c.d] * (m + 1), cost_s=c.cost(partial=m + 1))
            await multiply(c, p, share, rows, of_reference(m))
            said = await node.recv(Baseline, node.server, p.server_timeout_s, accept=partial(of_update, m))
            await multiply(c, p, share, rows, [(i, said.index) for i in range(m)])


async def multiply(c: SealedArithmetic, p: Params, share: Share, rows: Sequence[Integers], pairs: Pairs) -> None:
    """S2's side of `inner_products`."""
    node, count = c.node, len(pairs)
    products = [c.box.inner(rows[a], rows[b]) for a, b in pairs]
    node.send(node.server, Products(await node.compute("encrypt", c.box.seal_each, products, c.rng,
                                                       cost_s=c.cost(encrypt=count, numbers=True))))
    accept = both(c.sound("products", length=count), c.sound("partial", length=count, partial=True))
    bare = await node.recv(Bare, node.server, p.server_timeout_s, accept=accept)
    found = await node.compute("decrypt", c.box.open_jointly, share, bare.products, bare.partial, count,
                               cost_s=c.cost(partial=count, numbers=True))
    node.send(node.server, Inner(found))


async def client(node: Node, p: Params) -> None:
    s = node.state(PartyKeys())
    async for round_ in node.rounds(of=node.server):
        with round_:
            n, b_2 = map(number, await hold_keys(node, s, 2, p.server_timeout_s))
            c = desk_of(node, p, n)
            got = await node.recv(Global, node.server, accept=both(c.sound("model"), c.sound("partial", partial=True)))
            w = await node.compute("decrypt", c.box.open_jointly, Share(n, b_2), got.model, got.partial, c.d,
                                   cost_s=c.cost(partial=1))
            delta = await trained_from(node, w, MODEL)
            length = norm(delta)
            u = fixed(delta / np.float64(length or 1.0), UNIT, UNIT + 1)
            node.send(node.server, Upload(await c.seal(u), length))


async def kgc(node: Node, p: Params) -> None:
    await key_centre.key_centre(node, partial(deal, node, p.bits))


def deal(node: Node, bits: int) -> dict[int, KeyParts]:
    """n and its shares: a_1 and b_1 to S1, a_2 to S2, b_2 to all clients."""
    rng = node.stream("keys")
    key = key_pair(bits, rng)
    n, (a_1, a_2), (b_1, b_2) = octets(key.public.n), key.split(rng), key.split(rng)
    return {node.server: (n, octets(a_1.part), octets(b_1.part)), node.nodes("partner")[0]: (n, octets(a_2.part)),
            **dict.fromkeys(node.clients, (n, octets(b_2.part)))}


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.times(deadline=params.deadline_s, server_timeout=params.server_timeout_s)
            + wrong_encryption(params.bits, params.real_up_to))


EXAMPLE = example("shieldfl", "bits: 1024, deadline: 20 s", topology="star_mesh, clients: 5, servers: 3",
                  links=(lossy("client*->server1"),), rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "partner": partner, "kgc": kgc, "client": client},
    messages=(*key_centre.MESSAGES, Global, Upload, Blinded, Products, Bare, Inner, Baseline),
    places={"partner": "server[1]", "kgc": "server[2]"}, stateless=("client",),
    timeouts=("deadline_s", "server_timeout_s"), check=check, accuracy="personal", example=EXAMPLE)
