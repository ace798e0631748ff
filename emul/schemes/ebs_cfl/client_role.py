"""A client of EBS-CFL: it chooses a model, trains, and sends its update encoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emul.base.errors import NothingToReceive
from emul.learning import NodeTask
from emul.protocols.clustered import Models
from emul.protocols.demands import shaped
from emul.protocols.trust import chosen_update
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.design import Masking, dealer_of, shape_of
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape
from emul.schemes.ebs_cfl.messages import ClientKeys, KeysHeld, Resend, RoundKey, Upload


@dataclass
class ClientState:
    """The state of a client between rounds."""

    keys: ClientKeys | None = None


@dataclass(frozen=True)
class Trained:
    """A training's result that the client has to encode."""

    update: np.ndarray                  # g_i, (l,) float32
    cluster: int                        # j_i
    models: np.ndarray                  # (m, l) float32


Encode = Callable[[Shape, NodeTask, Trained, ClientKeys, Array], Array]         # ..., ek1 (s, 3dq) -> delta (s, 3dq)


def honest(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """delta_i = seg(g_i / |g_i|) A_j P1_i + ek1_i. An update of zeros is rejected for its norm: an abstention."""
    return rounds.upload(shape, said.update, said.cluster, keys.A, keys.ek0, ek1)


async def client(node: Node, d: Masking, encode: Encode = honest) -> None:
    """Rounds of a client. encode: what it makes of its update; an honest one as the protocol says."""
    shape, s = shape_of(node, d), node.state(ClientState())
    q = len(shape.groups[node.index // d.q])
    async for round_ in node.rounds(of=node.server):
        with round_:
            said = await train(node, d, shape)
            keys, key = await hold_keys(node, d, s, shape, q)
            delta = await node.compute("encode", encode, shape, node.task, said, keys, key.ek1, work=key.ek1.size)
            node.send(node.server, Upload(key.attempt, delta))
            await answer(node, d, shape, said, keys, key, encode)


async def train(node: Node, d: Masking, shape: Shape) -> Trained:
    """The client step: the best of the models, and what training gives from there."""
    got = await node.recv(Models, node.server, accept=shaped(parameters=(d.clusters, shape.length)))
    update, j = await node.compute("train", chosen_update, node.task, got.parameters)
    node.report(cluster=j)
    return Trained(update, j, got.parameters)


async def hold_keys(node: Node, d: Masking, s: ClientState, shape: Shape, q: int) -> tuple[ClientKeys, RoundKey]:
    """(its keys, that of the round); the dealer is told whether the client has the first. Raises NothingToReceive."""
    def sound(message: Message) -> None:
        columns = 3 * shape.d * q
        demands = {"ek1": (shape.segments, columns)} if isinstance(message, RoundKey) else {
            "ek0": (shape.d, columns), "A": (shape.clusters, shape.t, shape.d)}
        shaped(**demands)(message)

    source = dealer_of(node)
    while True:                             # ClientKeys go before the RoundKey, if the dealer sends them
        got: dict[int, Message] = await node.gather((ClientKeys, RoundKey), [source], timeout_s=d.dealer_timeout_s,
                                                    accept=sound)
        if not got:
            raise NothingToReceive("RoundKey has not come")
        message = got[source]
        if isinstance(message, RoundKey):
            break
        assert isinstance(message, ClientKeys)
        s.keys = message
        node.send(source, KeysHeld(True))
    if s.keys is None:
        node.send(source, KeysHeld(False))
        raise NothingToReceive("ClientKeys have not come")
    return s.keys, message


async def answer(node: Node, d: Masking, shape: Shape, said: Trained, keys: ClientKeys, key: RoundKey, encode: Encode,
                 ) -> None:
    """Send it again under the key of a restart, or under the same one if asked to."""
    while (again := await _asked_again(node, d, key)) is not None:
        key = again if isinstance(again, RoundKey) else key
        delta = await node.compute("encode", encode, shape, node.task, said, keys, key.ek1, work=key.ek1.size)
        node.send(node.server, Upload(key.attempt, delta))


async def _asked_again(node: Node, d: Masking, key: RoundKey) -> Message | None:
    """The next question of this round; None: there is none."""
    def sound(message: Message) -> None:
        if isinstance(message, RoundKey):
            shaped(ek1=key.ek1.shape)(message)

    kind, source = (RoundKey, dealer_of(node)) if d.recovery == "restart" else (Resend, node.server)
    if d.recovery != "restart" and not d.resend:
        return None
    if d.deadline_s is not None and d.dealer_timeout_s is not None:
        return await node.recv_any(kind, accept=sound)          # until the round is over
    return (await node.gather(kind, [source], accept=sound)).get(source)


# --- clients that encode something else than their update -----------------------------------------------------------
# Mistakes that the checks must find, and others that they cannot find.

SCALE = 5.0
PHI = np.pi / 8                         # of `mixed`: where its gain for the attacker is largest


def scaled(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """A payload five times as long: the check of the norm finds it."""
    payload = honest(shape, task, said, keys, ek1) - ek1
    return SCALE * payload + ek1


def flat_masks(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """All mask rows replaced by their mean, the payload longer by what that saves: `verify: per_client` passes it."""
    flat = np.tile(ek1.mean(0), (shape.segments, 1))
    room = float(np.vdot(ek1, ek1)) + 1 - float(np.vdot(flat, flat))
    return (honest(shape, task, said, keys, ek1) - ek1) * np.sqrt(room) + flat


def mixed(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """cos(phi) of its own cluster's update minus sin(phi) of another's: it passes every check, earns the weight of the
    first and pushes the second backwards, unless weights are by cluster."""
    a, b = said.cluster, (said.cluster + 1) % shape.clusters
    other = rounds.unit(task.local_update(said.models[b])[0])
    X = (np.cos(PHI) * shape.segment(rounds.unit(said.update)) @ keys.A[a]
         - np.sin(PHI) * shape.segment(other) @ keys.A[b])
    return X @ keys.ek0 + ek1
