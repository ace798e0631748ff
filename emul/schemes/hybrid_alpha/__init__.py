"""Sums of noisy gradients under multi-input functional encryption. Xu et al., *HybridAlpha*, AISec 2019.

    authority   a fresh key e_k for each client and round
    client k    c_k = clip_B(g_k) + N(0, sigma^2 B^2 / t);  sends E_k(c_k), three group elements a coordinate
    server      y, 1 for whom it has heard and 0 for others, to the authority;  with the functional key it decrypts
                sum_k y_k c_k, a bounded discrete logarithm a coordinate;  w <- w - lr sum / |S|

The authority's filter refuses a y that could single a client out: weights that differ, fewer than `least` of them, a
second y in a round. There is one upload and nothing between clients; who is lost has weight 0. Encryption is that of
Abdalla et al. 2018 in group 14 of RFC 3526 (`mife`), with fresh keys each round since ciphertexts of two rounds could
be mixed otherwise. The bytes that the authority sends are counted: a seed of 32 bytes to each client and
256 (d + 2 |S|) bytes of functional key. An upload has 768 d bytes. Keys travel unencrypted: the links to the authority
are taken to be secure.

t of the clients are honest at least; they share the noise. The server follows the protocol; it learns sums, `analysis`
says under how much noise. The authority is trusted not to collude with the server: together they read everything. Fixed
point with 12 bits after the point, values below 64. Up to `real_up_to` coordinates all is encrypted for real; beyond,
sizes and times are declared and sums are the same.

Protects: a client's gradient from the server, which sees noisy sums alone, if the authority does not collude with it
and t clients are honest. Not: false gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from emul.base.errors import NotDecodable, NothingToReceive, ProtocolFailure, TooFewClients
from emul.protocols import noisy_gradients
from emul.protocols.demands import demand, shaped
from emul.protocols.encrypted_sums import Encrypted, wrong_cohort
from emul.protocols.noisy_gradients import Private, noisy_gradient, spent_by_sums, stepped, wrong_privacy
from emul.protocols.rounds import Model
from emul.protocols.sealed import Sealed, fixed
from emul.roles import Analysis, Declared, Holds, Message, Node, OctetRows, Realised, Scheme, Setting, Vector, World
from emul.roles.example import example, lossy
from emul.schemes.hybrid_alpha import mife
from emul.schemes.hybrid_alpha.mife import FunctionalKey, PartyKey, SafePrimeGroup

FRACTION, VALUE = 12, 18            # bits after the point, and of a value
GROUP = SafePrimeGroup()
PAD = 4e-6                          # seconds of one core for a pad of a functional key


class Refused(ProtocolFailure):
    """The authority gives no functional key for this sum."""


@dataclass(frozen=True)
class Begin(Message):
    """Server to authority: this round needs keys."""


@dataclass(frozen=True)
class RoundKey(Message):
    """Authority to client."""

    seed: bytes                     # 32 bytes, of s, t and the pads of this round


@dataclass(frozen=True)
class Upload(Message):
    """Client to server."""

    gradient: Sealed                # 2^FRACTION c_k


@dataclass(frozen=True)
class Weights(Message):
    """Server to authority."""

    y: Annotated[np.ndarray, Holds("int64", 1)]         # (K,)


@dataclass(frozen=True)
class Key(Message):
    """Authority to server."""

    parts: OctetRows                # (2 |S|, 256)
    z: OctetRows                    # (d, 256); (0, 0): declared
    rest: Declared


@dataclass(frozen=True)
class Refusal(Message):
    """Authority to server."""

    reason: str


@dataclass(frozen=True)
class Params(Encrypted, Private):
    """`least`: weights that the filter demands. `answer`: of what the authority sends."""


# --- server -----------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector


async def server(node: Node, p: Params) -> None:
    s, authority_ = node.state(ServerState(node.task.initial_parameters())), node.nodes("authority")[0]
    real, d = node.task.dimension <= p.real_up_to, node.task.dimension
    async for round_ in node.rounds():
        with round_:
            node.send(authority_, Begin())
            node.offer("cohort", node.clients)
            node.broadcast(node.clients, Model(s.model))
            got = await node.gather(Upload, node.clients, timeout_s=p.deadline_s, accept=of_length(d, real))
            if not got:
                raise TooFewClients("no upload has come")
            node.send(authority_, Weights(np.array([k in got for k in node.clients], np.int64)))
            said = await node.gather((Key, Refusal), [authority_], timeout_s=p.answer_s,
                                     accept=of_sum(len(got), d, real))
            key = answered(said.get(authority_))
            cost_s = None if real else mife.decrypt_seconds(d, len(got), len(got) << VALUE)
            summed = await node.compute("decrypt", opened, {k: m.gradient for k, m in got.items()}, key, cost_s=cost_s)
            s.model = await node.compute("step", stepped, s.model, summed / 2.0**FRACTION, len(got), p.lr)
            node.report(parameters=s.model, received=len(got))


def answered(message: Message | None) -> Key:
    """The functional key. Raises Refused, or NothingToReceive if the authority is silent."""
    if isinstance(message, Refusal):
        raise Refused(message.reason)
    if not isinstance(message, Key):
        raise NothingToReceive("the authority has not answered")
    return message


def opened(uploads: Mapping[int, Sealed], key: Key) -> np.ndarray:
    """Their sum, (d,) int64. Raises NotDecodable if these ciphertexts do not fit the key."""
    if not len(key.z):
        found: np.ndarray = np.sum([one.values for one in uploads.values()], axis=0)
        return found
    try:
        return mife.decrypt(GROUP, {k: one.ciphertexts for k, one in uploads.items()}, dict.fromkeys(uploads, 1),
                            FunctionalKey(key.parts, key.z), len(uploads) << VALUE)
    except ValueError as wrong:
        raise NotDecodable(str(wrong)) from None


def of_length(d: int, real: bool) -> Any:
    """For `accept`: d coordinates, encrypted or declared."""
    def accept(message: Upload) -> None:
        sealed, weight = message.gradient, 3 * d * GROUP.width
        if real:
            demand(len(sealed.ciphertexts) == 3 * d and not sealed.values.size and not sealed.rest.nbytes,
                   f"gradient: expected {3 * d} elements and nothing else")
            demand(GROUP.holds(sealed.ciphertexts), "gradient: no elements of the group")
        else:
            demand(not len(sealed.ciphertexts) and sealed.values.size == d and sealed.rest.nbytes == weight - 8 * d,
                   f"gradient: expected {d} numbers that stand for {weight} bytes")
            demand(bool((np.abs(sealed.values) < 1 << VALUE).all()), "gradient: a number that is too large")
    return accept


def of_sum(count: int, d: int, real: bool) -> Any:
    """For `accept`: a functional key for so many clients, or a refusal."""
    def accept(message: Key | Refusal) -> None:
        if isinstance(message, Refusal):
            return
        demand(len(message.parts) == 2 * count and GROUP.scalars(message.parts), "parts: no functional key")
        if real:
            demand(len(message.z) == d and GROUP.scalars(message.z), "z: no functional key")
        else:
            demand(not len(message.z) and message.rest.nbytes == d * GROUP.width, "z: no functional key")
    return accept


# --- clients and authority --------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    authority_, real = node.nodes("authority")[0], node.task.dimension <= p.real_up_to
    d, std = node.task.dimension, p.noise / math.sqrt(p.honest(node.world.clients))
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server, accept=shaped(parameters=(d,)))
            held = await node.recv(RoundKey, authority_, p.answer_s, accept=of_seed)
            gradient = await noisy_gradient(node, model.parameters, p.clip, std)
            sealed = await node.compute("encrypt", seal, held.seed, fixed(gradient, FRACTION, VALUE),
                                        node.stream("encryption"), real,
                                        cost_s=None if real else mife.encrypt_seconds(d))
            node.send(node.server, Upload(sealed))


def of_seed(message: RoundKey) -> None:
    """For `accept`: 32 bytes."""
    demand(len(message.seed) == 32, "seed: expected 32 bytes")


def seal(seed: bytes, values: np.ndarray, rng: np.random.Generator, real: bool) -> Sealed:
    """E_k(values), or what stands for it."""
    if real:
        return Sealed(PartyKey(GROUP, seed).encrypt(values, rng), np.zeros(0, np.int64), Declared(0))
    return Sealed(np.zeros((0, 0), np.uint8), values, Declared(3 * values.size * GROUP.width - values.nbytes))


async def authority(node: Node, p: Params) -> None:
    d = node.task.dimension
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Begin, node.server)
            keys = {k: PartyKey(GROUP, node.stream("keys").bytes(32)) for k in node.clients}
            node.send_each({k: RoundKey(key.seed) for k, key in keys.items()})
            asked = await node.gather(Weights, [node.server], accept=shaped(y=(len(keys),)))
            for weights in asked.values():
                reason = why_not(weights.y, p.fewest(len(keys)))
                node.send(node.server, Refusal(reason) if reason else await node.compute(
                    "key", key_for, keys, weights.y, d, d <= p.real_up_to,
                    cost_s=None if d <= p.real_up_to else PAD * d * int(weights.y.sum())))


def why_not(y: np.ndarray, least: int) -> str:
    """The filter: why there is no key for these weights; "" if there is.

    >>> why_not(np.array([1, 1, 0, 1]), 3), why_not(np.array([1, 0, 0, 0]), 2), why_not(np.array([9, 1, 1]), 2)
    ('', '1 weights, expected at least 2', 'weights that are neither 0 nor 1')
    """
    if not ((y == 0) | (y == 1)).all():
        return "weights that are neither 0 nor 1"
    count = int(y.sum())
    return "" if count >= max(1, least) else f"{count} weights, expected at least {least}"


def key_for(keys: Mapping[int, PartyKey], y: np.ndarray, d: int, real: bool) -> Key:
    """The functional key for these weights of all clients; its pads are declared unless `real`."""
    weights = {k: 1 for k, one in zip(sorted(keys), y.tolist(), strict=True) if one}
    found = mife.functional_key(GROUP, keys, weights, d if real else 0)
    return Key(found.parts, found.z if real else np.zeros((0, 0), np.uint8), Declared(0 if real else d * GROUP.width))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, K = params, world.clients
    errors = wrong_privacy(p) + wrong_cohort(p, K)
    if not errors and p.clip + 6 * p.noise / math.sqrt(p.honest(K)) > 1 << (VALUE - FRACTION):
        errors.append(f"clip = {p.clip}: with its noise values would exceed {1 << (VALUE - FRACTION)}")
    return errors


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Epsilon of the rounds for which a functional key was given, by whose uploads were in the sum."""
    names = setting.roles["client"]
    honest = params.honest(len(names))
    opened_in = {round_ for round_, _, _ in run.sent("Key")}
    return spent_by_sums(params, setting, run, opened_in, params.noise / math.sqrt(honest), len(names) - honest)


EXAMPLE = example("hybrid_alpha", "t: 4, deadline: 10 s, answer: 2 s", topology="star_mesh, clients: 5, servers: 2",
                  links=(lossy("client*->server1"),))

SCHEME = Scheme(
    params=Params, roles={"server": server, "authority": authority, "client": client},
    messages=(Model, Begin, RoundKey, Upload, Weights, Key, Refusal), places={"authority": "server[1]"},
    stateless=("client",), timeouts=("deadline_s",), honest=noisy_gradients.honest_gradient, check=check,
    analysis=analysis, example=EXAMPLE)
