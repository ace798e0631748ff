"""PBFL: root data says how far encrypted updates are trusted; a chain of hashes holds who sent what. Miao et al. 2022.

    u_i = Delta_i / ||Delta_i||;  D_0: the server's own update on its root data, from the same model
    w <- w + sum_i TS_i ||D_0|| u_i / sum_i TS_i,  TS_i = max(0, cos(u_i, D_0))
    head_t = SHA-256(head_{t-1}, t, every client with the hash of its upload, hash of the model)

Miao, Liu, Li, Choo, Deng, *Privacy-Preserving Byzantine-Robust Federated Learning via Blockchain Systems*, IEEE TIFS
2022, rebuilt from a description and not checked against the paper. `reference: previous` [ours] takes the last
aggregate in place of D_0, at first the mean, with the median of the lengths that clients say. Not there: how the
paper's two servers compute the cosines under CKKS. All arithmetic is in clear here, so NOTHING is hidden from the
server; what ciphertexts of CKKS weigh and cost (ring 8192, 4096 numbers each: 364,500 bytes fresh, 249,200 after a
product; measured with TenSEAL 0.3.18) is declared. The chain is one server's log: it shows afterwards what was changed,
and agrees on nothing.

Protects: updates under encryption from two parties that do not collude; the model from malicious updates, by cosine
with root data; who sent what, by a chain of hashes. Not: similarities from the servers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from emul.learning import NodeTask
from emul.primitives.robust import Aggregation, fltrust
from emul.primitives.robust.aggregation import norm
from emul.protocols.demands import demand
from emul.protocols.rounds import accuracy_of, finite, report_both, train_once
from emul.roles import Declared, Message, Node, Received, Scheme, Vector, World, checks
from emul.roles.example import example

LONGEST = 2.0**20                   # of an update
SLOTS = 4096                        # numbers in a ciphertext
FRESH, RESCALED = 364_500, 249_200  # its bytes
ENCRYPT, DECRYPT, INNER, SCALE = 6e-3, 1.5e-3, 31e-3, 2e-3      # seconds of one: INNER with a vector in clear


@dataclass(frozen=True)
class Global(Message):
    """Server to client."""

    parameters: Vector              # w, (d,) float32, and what its ciphertexts weigh besides
    head: bytes                     # of the chain, after the round before
    rest: Declared


@dataclass(frozen=True)
class Upload(Message):
    """Client to server."""

    unit: Vector                    # u_i, likewise
    length: float                   # ||Delta_i||
    digest: bytes                   # SHA-256 of the vector
    rest: Declared


@dataclass(frozen=True)
class Params:
    reference: Literal["root", "previous"] = "root"
    deadline_s: float | None = None     # None: wait until the fate of every upload is known
    personal: bool = False              # `accuracy` is that of the clients' models after local training, as of shieldfl


def ciphertexts(d: int) -> int:
    """The number of ciphertexts that a vector of d numbers needs."""
    return math.ceil(d / SLOTS)


def declared(vector: Vector, each: int) -> Declared:
    """The declared bytes of ciphertexts of so many bytes, besides the vector itself."""
    return Declared(ciphertexts(vector.size) * each - vector.nbytes)


# --- the chain --------------------------------------------------------------------------------------------------------

def digest_of(vector: Vector) -> bytes:
    """SHA-256 of a vector's numbers."""
    return hashlib.sha256(np.ascontiguousarray(vector, "<f4").tobytes()).digest()


def next_head(head: bytes, round_: int, uploads: Mapping[int, bytes], model: bytes) -> bytes:
    """head_t from head_{t-1}. uploads: {client: hash}; model: hash of the new one.

    >>> next_head(b"", 1, {2: bytes(32)}, bytes(32)) == next_head(b"", 2, {2: bytes(32)}, bytes(32))
    False
    """
    found = hashlib.sha256(head + round_.to_bytes(8, "big"))
    for client, digest in sorted(uploads.items()):
        found.update(client.to_bytes(8, "big") + digest)
    return hashlib.sha256(found.digest() + model).digest()


# --- roles ------------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector
    heads: list[bytes] = field(default_factory=lambda: [bytes(32)])
    previous: Vector | None = None      # the last aggregate


async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState(node.task.initial_parameters()))
    each = ciphertexts(s.model.size)
    async for round_ in node.rounds():
        with round_:
            reference: Vector | None = None
            if p.reference == "root":
                reference, _ = await node.compute("reference", node.task.local_update, s.model)
                node.offer("reference", reference)
            node.offer("cohort", node.clients)
            node.broadcast(node.clients, Global(s.model, s.heads[-1], declared(s.model, RESCALED)))
            got = await node.gather(Upload, node.clients, timeout_s=p.deadline_s, accept=as_hashed(s.model.size))
            if p.reference == "previous":
                reference = direction(got, s.previous)
            found = await node.compute("aggregate", aggregate, got, reference, cost_s=each * len(got) * (INNER + SCALE))
            if found is not None:
                s.previous = found.aggregate.astype(np.float32)
                s.model = finite((s.model + found.aggregate).astype(np.float32))
                weights = np.zeros(len(got)) if found.weights is None else found.weights
                clients = sorted(got)
                node.judged(clients, [clients[row] for row in found.kept],
                            dict(zip(clients, weights.tolist(), strict=True)))
            uploads = {k: m.digest for k, m in got.items()}
            s.heads.append(next_head(s.heads[-1], round_, uploads, digest_of(s.model)))
            node.keep("chain", np.frombuffer(b"".join(s.heads), np.uint8).reshape(-1, 32))
            node.report(None if p.personal else s.model, received=len(got), head=s.heads[-1].hex()[:16])


def aggregate(got: Mapping[int, Upload], reference: Vector | None) -> Aggregation | None:
    """The rule; None: nobody was heard."""
    units = [got[k].unit for k in sorted(got)]
    return fltrust(units, reference) if units and reference is not None else None


def direction(got: Mapping[int, Upload], previous: Vector | None) -> Vector | None:
    """The last aggregate, or the mean of these updates, with the median of their lengths; None: there is nothing."""
    if not got:
        return None
    towards = normalised(np.mean([got[k].unit for k in sorted(got)], axis=0) if previous is None else previous)
    return towards * np.float32(np.median([m.length for m in got.values()]))


def as_hashed(d: int) -> Any:
    """For `accept`: d numbers with their hash."""
    def accept(message: Upload) -> None:
        demand(message.unit.shape == (d,), f"unit: shape {message.unit.shape}, expected {(d,)}")
        demand(0 <= message.length <= LONGEST, "length: no length of an update")
        demand(message.digest == digest_of(message.unit), "digest: another vector's")
    return accept


async def client(node: Node, p: Params) -> None:
    each = ciphertexts(node.task.dimension)
    async for round_ in node.rounds(of=node.server):
        with round_:
            got = await node.recv(Global, node.server, accept=whole(node.task.dimension))
            await node.compute("decrypt", len, got.parameters, cost_s=each * DECRYPT)
            delta, _ = await train_once(node, got.parameters)
            if p.personal:
                report_both(node, got.parameters, delta)
            unit = await node.compute("encrypt", normalised, delta, cost_s=each * ENCRYPT)
            node.send(node.server, Upload(unit, norm(delta), digest_of(unit), declared(unit, FRESH)))


def whole(d: int) -> Any:
    """For `accept`: a model and a head."""
    def accept(message: Global) -> None:
        demand(message.parameters.shape == (d,), f"parameters: shape {message.parameters.shape}, expected {(d,)}")
        demand(len(message.head) == 32, "head: expected 32 bytes")
    return accept


def normalised(delta: Vector) -> Vector:
    """delta / ||delta||, (d,) float32; zeros stay."""
    return (delta / np.float64(norm(delta) or 1.0)).astype(np.float32)


def honest(task: NodeTask, received: Received, j: int) -> Vector:
    """The result of client j's training, before it is normalised, if it follows the protocol."""
    update: Vector = task.local_update(received[Global].parameters)[0]
    return update


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = checks.times(deadline=params.deadline_s)
    if params.reference == "root" and not checks.root_samples(world.task):
        errors.append("reference = root: expected root in the task, such as {samples: 100}, or reference: previous")
    return errors


EXAMPLE = example("pbfl", "deadline: 2 s", task=("root: {samples: 50}",))

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Global, Upload), stateless=("client",),
    timeouts=("deadline_s",), honest=honest, check=check, accuracy=accuracy_of, example=EXAMPLE)
