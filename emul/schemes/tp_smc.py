"""Sums of noisy gradients under threshold Paillier. Truex et al., *A Hybrid Approach to Privacy-Preserving FL*, 2019.

    client k    c_k = clip_B(g_k) + N(0, sigma^2 B^2 / (t - 1));  sends E(c_k)
    server      E(c) = prod_k E(c_k);  asks tbar = K - t + 1 clients for partial decryptions of E(c), and combines them
                w <- w - lr c / |S|,  S: whose upload has come

K clients, of which t at least are honest: they share the noise of a sum, and any coalition of the other K - t lacks one
share to decrypt. A dealer makes the key (`emul.primitives.he.threshold`) and is silent once all have theirs.

A client that is lost before its upload is missing in the sum, and so is its noise; one that is lost at the decryption
is replaced by another. With fewer than `least` uploads or tbar partial decryptions the round is aborted. The paper's
algorithms divide the variance by t - 1, its text by t (`divide`); t = 1 is noise for each client alone. The noise that
S had left is counted after the run, see `analysis`. The server and the clients follow the protocol (honest but
curious): nothing proves that what is decrypted is a sum. The model is public among them.

Fixed point with 20 bits after the point, slots of 48 bits, room for 2^11 summands: 42 numbers in a ciphertext of 512
bytes. A round has K + 2 tbar vectors of ceil(d / 42) ciphertexts. Up to `real_up_to` coordinates all is encrypted for
real; beyond, sizes and times of the ciphertexts are declared and the sums are the same.

Protects: a client's gradient from the server and K - t colluding clients, who see noisy sums alone (honest but
curious). Not: the model from clients, false gradients, proofs that a sum is decrypted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from emul.base.errors import TooFewClients
from emul.primitives.he.paillier import Packing, PublicKey, Share
from emul.protocols import noisy_gradients, threshold_sums
from emul.protocols.demands import shaped
from emul.protocols.encrypted_sums import Encrypted
from emul.protocols.key_centre import PartyKeys, hold_keys, number, wake_centre
from emul.protocols.noisy_gradients import Private, noisy_gradient, spent_by_sums, stepped, wrong_privacy
from emul.protocols.rounds import Model
from emul.protocols.sealed import Sealed, SealedArithmetic, fixed, total
from emul.protocols.threshold_sums import (
    FRACTION,
    SLOT,
    VALUE,
    Threshold,
    answer,
    opened,
    vectors_per_round,
    wrong_threshold,
)
from emul.roles import Analysis, Message, Node, Realised, Scheme, Setting, Vector, World
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Upload(Message):
    """Client to server."""

    gradient: Sealed                # 2^FRACTION c_k


@dataclass(frozen=True)
class Params(Encrypted, Private):
    divide: Literal["t-1", "t"] = "t-1"         # the divisor of the variance of a sum's noise
    bits: int = 2048                    # of the key


def share_of(p: Params, clients: int) -> float:
    """Standard deviation of one client's noise."""
    return p.noise / math.sqrt(max(1, p.honest(clients) - (p.divide == "t-1")))


def desk_of(node: Node, p: Params, n: int) -> SealedArithmetic:
    """For vectors of the model's length under the key n."""
    return SealedArithmetic(node, PublicKey(n), Packing.of(p.bits, SLOT), node.task.dimension, p.real_up_to)


# --- server -----------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector
    held: PartyKeys = field(default_factory=PartyKeys)


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
            c_sum = await opened(c, sizes, summed, list(got), p.answer_s)
            s.model = await node.compute("step", stepped, s.model, c_sum / 2.0**FRACTION, len(got), p.lr)
            node.report(parameters=s.model, received=len(got))


# --- clients and keys -------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    s, sizes = node.state(PartyKeys()), Threshold.of(p, node.world.clients)
    async for round_ in node.rounds(of=node.server):
        with round_:
            n, part = map(number, await hold_keys(node, s, 2, p.answer_s, "dealer"))
            c = desk_of(node, p, n)
            model = await node.recv(Model, node.server, accept=shaped(parameters=(c.d,)))
            gradient = await noisy_gradient(node, model.parameters, p.clip, share_of(p, sizes.parties))
            values = fixed(gradient, FRACTION, VALUE)
            node.send(node.server, Upload(await node.compute("encrypt", c.box.seal, values, c.rng,
                                                             cost_s=c.cost(encrypt=1))))
            await answer(c, sizes, Share(n, part))


async def dealer(node: Node, p: Params) -> None:
    await threshold_sums.dealer(node, p.bits, Threshold.of(p, len(node.clients)))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return wrong_privacy(params) + wrong_threshold(params, params.bits, world.clients)


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Vectors of ciphertexts a round, and epsilon of the rounds in which a sum was decrypted, as far as anybody had a
    part of it, by whose uploads were in the sum."""
    names = setting.roles["client"]
    sizes, noise = Threshold.of(params, len(names)), share_of(params, len(names))
    opened_in = {round_ for round_, _, _ in run.sent("Partial")}
    spent = spent_by_sums(params, setting, run, opened_in, noise, len(names) - sizes.honest)
    return vectors_per_round(params, setting) | spent


EXAMPLE = example("tp_smc", "t: 4, bits: 512, deadline: 2 s, answer: 2 s", topology="star_mesh, clients: 5, servers: 2",
                  links=(lossy("client*->server1"),))

SCHEME = Scheme(
    params=Params, roles={"server": server, "dealer": dealer, "client": client},
    messages=(*threshold_sums.MESSAGES, Model, Upload), places={"dealer": "server[1]"}, stateless=("client",),
    timeouts=("deadline_s",), honest=noisy_gradients.honest_gradient, check=check, analysis=analysis, example=EXAMPLE)
