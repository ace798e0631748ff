"""Sums of noisy gradients under threshold Paillier. Truex et al., *A Hybrid Approach to Privacy-Preserving FL*, 2019.

    client k    c_k = clip_B(g_k) + N(0, sigma^2 B^2 / (t - 1));  sends E(c_k)
    server      E(c) = prod_k E(c_k);  asks tbar = K - t + 1 clients for partial decryptions of E(c), and combines them
                w <- w - lr c / |S|,  S: whose upload has come

K clients, of which t at least are honest: they share the noise of a sum, and any coalition of the other K - t lacks one
share to decrypt. A dealer makes the key (`emul.primitives.he.threshold`) and is silent once all have theirs.

Who is lost before its upload is missing in the sum, and so is its noise; who is lost at the decryption is replaced by
another. With fewer than `least` uploads or tbar partial decryptions the round is aborted. The paper's algorithms divide
the variance by t - 1, its text by t (`divide`); t = 1 is noise for each client alone. What S had left of the noise is
counted after the run, see `analysis`. The server and the clients follow the protocol (honest but curious): nothing
proves that what is decrypted is a sum. The model is public among them.

Fixed point with 20 bits after the point, slots of 48 bits, room for 2^11 summands: 42 numbers in a ciphertext of 512
bytes. A round has K + 2 tbar vectors of ceil(d / 42) ciphertexts. Up to `real_up_to` coordinates all is encrypted for
real; beyond, sizes and times of the ciphertexts are declared and the sums are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from emul.base.errors import TooFewClients
from emul.primitives.he import threshold
from emul.primitives.he.paillier import Packing, PublicKey, Share
from emul.protocols import key_centre, noisy_gradients
from emul.protocols.demands import shaped
from emul.protocols.key_centre import Held, KeyParts, hold_keys, number, octets, wake_centre
from emul.protocols.noisy_gradients import Private, noisy_gradient, spent_by_sums, stepped, wrong_privacy
from emul.protocols.rounds import Model
from emul.protocols.sealed import Desk, Sealed, fixed, total, wrong_encryption
from emul.roles import Analysis, Message, Node, Realised, Setting, Vector, World, checks

FRACTION, VALUE, SLOT = 20, 36, 48      # bits after the point, of a value, and of its slot
SUMMANDS = 1 << (SLOT - 1 - VALUE)      # that a slot has room for


@dataclass(frozen=True)
class Upload(Message):
    """Client to server."""

    gradient: Sealed                # 2^FRACTION c_k


@dataclass(frozen=True)
class Ask(Message):
    """Server to client: decrypt this with your share."""

    summed: Sealed


@dataclass(frozen=True)
class Partial(Message):
    """Client to server."""

    partial: Sealed


@dataclass(frozen=True)
class Params(Private):
    t: int | None = None                # of K clients so many are honest at least; None: all
    divide: Literal["t-1", "t"] = "t-1"         # what the variance of a sum's noise is divided by
    least: int | None = None            # uploads without which there is no sum; None: K - t + 2, so 2 of honest ones
    bits: int = 2048                    # of the key
    real_up_to: int = 300               # coordinates that are encrypted for real; beyond it is declared
    deadline_s: float | None = None     # of the uploads; None: until the fate of each is known
    answer_s: float | None = None       # of partial decryptions, before others are asked; None: likewise


@dataclass(frozen=True)
class Threshold:
    """What follows from K and the parameters."""

    parties: int                        # K
    honest: int                         # t
    least: int

    @classmethod
    def of(cls, p: Params, clients: int) -> Threshold:
        """With the defaults put in."""
        honest = clients if p.t is None else p.t
        return cls(clients, honest, min(clients, clients - honest + 2) if p.least is None else p.least)

    @property
    def tbar(self) -> int:
        """Partial decryptions that make one decryption."""
        return self.parties - self.honest + 1

    def share_of(self, p: Params) -> float:
        """Standard deviation of one client's noise."""
        return p.noise / math.sqrt(max(1, self.honest - (p.divide == "t-1")))


def desk_of(node: Node, p: Params, n: int) -> Desk:
    """For vectors of the model's length under the key n."""
    return Desk(node, PublicKey(n), Packing.of(p.bits, SLOT), node.task.dimension, p.real_up_to)


# --- server -----------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector
    held: Held = field(default_factory=Held)


async def server(node: Node, p: Params) -> None:
    s, sizes = node.state(ServerState(node.task.initial_parameters())), Threshold.of(p, len(node.clients))
    async for round_ in node.rounds():
        with round_:
            await wake_centre(node, s.held, "dealer")
            n, = map(number, await hold_keys(node, s.held, 1, p.answer_s, "dealer"))
            c = desk_of(node, p, n)
            node.offer("cohort", node.clients)
            node.broadcast(node.clients, Model(s.model))
            got = await node.gather(Upload, node.clients, timeout_s=p.deadline_s, accept=c.sound("gradient"))
            if len(got) < sizes.least:
                raise TooFewClients(f"{len(got)} uploads, least = {sizes.least}")
            summed = await node.compute("add", total, c.box, [m.gradient for m in got.values()],
                                        cost_s=c.cost(add=len(got) - 1))
            c_sum = await opened(c, p, sizes, summed, list(got))
            s.model = await node.compute("step", stepped, s.model, c_sum / 2.0**FRACTION, len(got), p.lr)
            node.report(parameters=s.model, received=len(got))


async def opened(c: Desk, p: Params, sizes: Threshold, summed: Sealed, senders: Sequence[int]) -> Vector:
    """What `summed` holds, (d,) int64, with tbar clients: first those that have sent, then others for who is silent.

    Raises TooFewClients if there are no tbar of them.
    """
    node, found = c.node, dict[int, Partial]()
    waiting = [*senders, *(k for k in node.clients if k not in senders)]
    while (missing := sizes.tbar - len(found)) > 0:
        asked, waiting = waiting[:missing], waiting[missing:]
        if not asked:
            raise TooFewClients(f"{len(found)} partial decryptions, tbar = {sizes.tbar}")
        node.broadcast(asked, Ask(summed))
        found |= await node.gather(Partial, asked, timeout_s=p.answer_s, accept=c.sound("partial", partial=True))
    parts = {party(node, k): m.partial for k, m in found.items()}
    cost_s = c.seconds_of(threshold.combine_seconds(p.bits, parts, sizes.parties))
    values: Vector = await node.compute("combine", c.box.open_among, sizes.parties, summed, parts, c.d, cost_s=cost_s)
    return values


def party(node: Node, client: int) -> int:
    """Which share is a client's, from 1."""
    return 1 + node.clients.index(client)


# --- clients and keys -------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    s, sizes = node.state(Held()), Threshold.of(p, node.world.clients)
    async for round_ in node.rounds(of=node.server):
        with round_:
            n, part = map(number, await hold_keys(node, s, 2, p.answer_s, "dealer"))
            c = desk_of(node, p, n)
            model = await node.recv(Model, node.server, accept=shaped(parameters=(c.d,)))
            gradient = await noisy_gradient(node, model.parameters, p.clip, sizes.share_of(p))
            values = fixed(gradient, FRACTION, VALUE)
            node.send(node.server, Upload(await node.compute("encrypt", c.box.seal, values, c.rng,
                                                             cost_s=c.cost(encrypt=1))))
            asked = await node.gather(Ask, [node.server], accept=c.sound("summed"))
            for ask in asked.values():
                each = threshold.partial_seconds(p.bits, sizes.parties)
                node.send(node.server, Partial(await node.compute("partial", c.box.partial, Share(n, part), ask.summed,
                                                                  cost_s=c.seconds_of(each))))


async def dealer(node: Node, p: Params) -> None:
    await key_centre.key_centre(node, partial(deal, node, p))


def deal(node: Node, p: Params) -> dict[int, KeyParts]:
    """n to the server, n and a share to each client."""
    sizes = Threshold.of(p, len(node.clients))
    dealt = threshold.deal(p.bits, sizes.parties, sizes.tbar, node.stream("keys"))
    n = octets(dealt.public.n)
    return {node.server: (n,), **{k: (n, octets(share.part))
                                  for k, share in zip(node.clients, dealt.shares, strict=True)}}


HONEST = noisy_gradients.honest_gradient
MESSAGES = (*key_centre.MESSAGES, Model, Upload, Ask, Partial)
ROLES = {"server": server, "dealer": dealer, "client": client}
PLACES = {"dealer": "server[1]"}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    p, K = params, world.clients
    errors = (wrong_privacy(p) + checks.times(deadline=p.deadline_s, answer=p.answer_s)
              + wrong_encryption(p.bits, p.real_up_to))
    if p.t is not None and not 1 <= p.t <= K:
        errors.append(f"t = {p.t}: expected 1 to {K}, the number of clients")
    if p.least is not None and not 1 <= p.least <= K:
        errors.append(f"least = {p.least}: expected 1 to {K}, the number of clients")
    if K > SUMMANDS:
        errors.append(f"bits = {p.bits}: a slot has room for {SUMMANDS} clients, found {K}")
    return errors


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Vectors of ciphertexts a round, and epsilon of the rounds in which a sum was decrypted, as far as anybody had a
    part of it, by whose uploads were in the sum."""
    names = setting.roles["client"]
    sizes = Threshold.of(params, len(names))
    opened_in = {round_ for round_, _, _ in run.sent("Partial")}
    found: Analysis = {"uploads_per_round": (float(len(names)), "messages.Upload"),
                       "partials_per_round": (float(sizes.tbar), "messages.Partial")}
    return found | spent_by_sums(params, setting, run, opened_in, sizes.share_of(params), len(names) - sizes.honest)


EXAMPLE = """
emul: 1
name: tp_smc
seed: 7
topology: {generator: star_mesh, clients: 5, servers: 2}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server1", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: tp_smc, t: 4, bits: 512, deadline: 2 s, answer: 2 s}]
stop: {rounds: 3}
"""
