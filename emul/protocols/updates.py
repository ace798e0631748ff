"""A model goes down and updates come up: as they are, or by codecs of `emul.primitives.compress`, as `compress` says.

    up      client k    x = Delta_k + e_k;  sends c = C(x);  e_k <- x - D(c) where the codec keeps errors, else 0
            server      takes D(c) for Delta_k
    down    server      c = C(w - v);  v <- v + D(c);  sends c of every round since that whose v the client has
            client k    v <- v + D(c) for each; trains from v

v is the model as clients have it: the error w - v is what the next round codes. The server knows the v of a client by
its last update, if that came; a client of which it knows none, or for which the codes would be longer than v, gets v as
it is. A client that lacks the v of a code leaves the round. The content of a lost update is lost, and so are the errors
that it had made up for. Encoding and decoding are computations of their nodes, "encode" and "decode", of d numbers a
vector.

Bytes of the arrays in each message, without its header: Model and Update 4 d, packed ones as their codecs say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from emul.base.errors import NotDecodable, NothingToReceive, NotSendable
from emul.primitives.compress import Codec, Undecodable, choose
from emul.protocols.demands import Demand, both, demand, shaped, weighed
from emul.roles import Message, Node, Octets, Vector

F = TypeVar("F", bound=Message)
Gather = Callable[[type[Any], Callable[[Any], None]], Awaitable[dict[int, Any]]]


@dataclass(frozen=True)
class Model(Message):
    """Server to client."""

    parameters: Vector              # w, (d,) float32


@dataclass(frozen=True)
class Update(Message):
    """Client to server."""

    delta: Vector                   # Delta_k, (d,) float32, parameters after minus before
    samples: int                    # n_k


@dataclass(frozen=True)
class PackedModel(Message):
    """Server to client, in place of Model."""

    base: int                       # the round whose v the first code is added to
    codes: list[Octets]             # c of the rounds since


@dataclass(frozen=True)
class PackedUpdate(Message):
    """Client to server, in place of Update."""

    code: Octets
    samples: int


MESSAGES = (Model, Update, PackedModel, PackedUpdate)


@dataclass(frozen=True)
class Compression:
    """The coding in which vectors travel; None: as they are."""

    up: Codec | None = None
    down: Codec | None = None


PLAIN = Compression()


def compression(node: Node, up: Codec | None = None, part: str = "all") -> Compression:
    """The scenario's codecs of this scheme. up: the scheme's own codec of updates, which no scenario changes. part: of
    the model that travels (`node.task.part`)."""
    said = node.world.compress
    if not said and up is None:                 # nearly always, and asked for by every client of a large run
        return PLAIN
    found = {way: choose(said[way]).shaped(node.task.shapes(part)) for way in ("up", "down") if way in said}
    return Compression(up or found.get("up"), found.get("down"))


@dataclass
class Sent:
    """The state of a client's codecs: of the updates that it has sent, the models that it has received."""

    error: Vector | None = None         # e_k; None: 0
    warm: object = None                    # the state that its codec takes up again
    model: Vector | None = None         # v
    of: int = 0                         # the round whose v it is


@dataclass
class Mirror:
    """The state of a server's codecs: of the models that its clients have."""

    model: Vector | None = None         # v; None: nothing was sent
    warm: object = None
    of: int = 0                         # the round whose v the oldest code is added to
    codes: dict[int, np.ndarray] = field(default_factory=dict)      # round -> c, of the newest rounds
    known: dict[int, int] = field(default_factory=dict)             # client -> the round whose v it surely has


# --- up -----------------------------------------------------------------------------------------------------------

async def send_update(node: Node, how: Compression, s: Sent, delta: Vector, samples: int) -> None:
    """At a client. Raises NotSendable for an update that is not finite."""
    if how.up is None:
        node.send(node.server, Update(delta, samples))
        return
    code = await node.compute("encode", encoded, how.up, s, delta, node.stream("compress"), work=delta.size)
    node.send(node.server, PackedUpdate(code, samples))


def encoded(codec: Codec, s: Sent, delta: Vector, rng: np.random.Generator) -> np.ndarray:
    """c, (n,) uint8; the error is kept in `s`."""
    x = delta if s.error is None else delta + s.error
    if not np.isfinite(x).all():
        raise NotSendable("not to be compressed: an update that is not finite")
    code, s.warm = codec.encode(x, rng, s.warm)
    if codec.keeps_errors:
        left = x - codec.decode(code, len(x))
        s.error = left if left.any() else None
    return code


async def gather_updates(node: Node, how: Compression, s: Mirror, clients: Sequence[int], d: int,
                         timeout_s: float | None, gather: Gather | None = None) -> dict[int, Update]:
    """At the server: {client: its update}, ascending, of those that came and could be decoded.

    gather: what takes the place of waiting for all clients until the timeout; (type, accept) to {client: message}.
    """
    def everybody(kind: type[object], accept: Callable[[object], None]) -> Awaitable[dict[int, Any]]:
        return node.gather(kind, clients, timeout_s=timeout_s, accept=accept)

    wait = gather or everybody
    if how.up is None:
        found: dict[int, Update] = await wait(Update, both(shaped(delta=(d,)), weighed))
    else:
        got = await wait(PackedUpdate, both(sound(how.up, d), weighed))
        found = await opened(node, how.up, got, d)
    answered(node, how, s, clients, found)
    return found


def answered(node: Node, how: Compression, s: Mirror, asked: Collection[int], clients: Collection[int]) -> None:
    """At the server: of those asked these clients have the model of this round; what the others have nobody knows."""
    if how.down is not None:
        for k in asked:
            s.known.pop(k, None)
        s.known.update(dict.fromkeys(clients, node.round))


def sound(codec: Codec, d: int) -> Demand:
    """`code` has the length that it must have, if there is one."""
    expected = codec.nbytes(d)

    def accept(message: Any) -> None:
        demand(expected is None or len(message.code) == expected, f"code: not of {expected} bytes")
    return accept


async def opened(node: Node, codec: Codec, got: Mapping[int, PackedUpdate], d: int) -> dict[int, Update]:
    """The updates of those whose codes are any; how many are not is reported as `undecodable`."""
    if not got:
        return {}
    found = await node.compute("decode", all_decoded, codec, got, d, work=len(got) * d)
    if len(found) < len(got):
        node.report(undecodable=len(got) - len(found))
    return found


def all_decoded(codec: Codec, got: Mapping[int, PackedUpdate], d: int) -> dict[int, Update]:
    """{client: update}, without those that nobody can have encoded."""
    vectors = {k: decoded(codec, message.code, d) for k, message in got.items()}
    return {k: Update(vector, got[k].samples) for k, vector in vectors.items() if vector is not None}


def decoded(codec: Codec, code: np.ndarray, d: int) -> Vector | None:
    """(d,) float32; None: nobody can have encoded it."""
    try:
        return codec.decode(code, d)
    except Undecodable:
        return None


# --- down ---------------------------------------------------------------------------------------------------------

async def send_model(node: Node, how: Compression, s: Mirror, cohort: Collection[int], model: Vector,
                     whole: Callable[[Vector], Message] = Model) -> None:
    """At the server, once a round. whole: the message that holds a model as it is."""
    if how.down is None:
        node.broadcast(cohort, whole(model))
        return
    if s.model is None:
        s.model, s.of = model, node.round
    else:
        s.codes[node.round] = await node.compute("encode", advance, how.down, s, model, node.stream("compress"),
                                                 work=model.size)
        forget(s)
    groups: dict[int, list[int]] = {}
    for k in cohort:
        groups.setdefault(base if (base := s.known.get(k, 0)) >= s.of and s.codes else 0, []).append(k)
    for base, clients in sorted(groups.items()):
        since = [code for round_, code in s.codes.items() if round_ > base]
        node.broadcast(clients, PackedModel(base, since) if base else whole(s.model))


def advance(codec: Codec, s: Mirror, model: Vector, rng: np.random.Generator) -> np.ndarray:
    """c, and v becomes what clients make of it. Raises NotDecodable if that is not finite."""
    assert s.model is not None
    with np.errstate(over="ignore"):
        difference = model - s.model
    if not np.isfinite(difference).all():
        raise NotDecodable("the model is too far from the one that clients have")
    code, s.warm = codec.encode(difference, rng, s.warm)
    s.model = _added(s.model, [codec.decode(code, len(model))])
    return code


def _added(model: Vector, steps: Sequence[Vector]) -> Vector:
    found = model.copy()
    for step in steps:
        found += step
    if not np.isfinite(found).all():
        raise NotDecodable("the model is not finite")
    return found


def forget(s: Mirror) -> None:
    """Let codes go that are together longer than v with those after them: nobody will be sent them."""
    assert s.model is not None
    total = 0
    for round_ in sorted(s.codes, reverse=True):
        total += s.codes[round_].nbytes
        if total >= s.model.nbytes:
            s.of = max(s.of, round_)
    s.codes = {round_: code for round_, code in s.codes.items() if round_ > s.of}


async def receive_model(node: Node, how: Compression, s: Sent, d: int, whole: type[Any] = Model) -> Vector:
    """At a client: v. Raises NothingToReceive if it is lost, or coded against one that this client lacks."""
    if how.down is None:
        found: Vector = (await node.recv(whole, node.server, accept=shaped(parameters=(d,)))).parameters
        return found
    kinds: tuple[type[Any], ...] = (whole, PackedModel)

    def accept(message: Any) -> None:
        if isinstance(message, whole):
            shaped(parameters=(d,))(message)
    got = await node.gather(kinds, [node.server], accept=accept)
    message = got.get(node.server)
    if isinstance(message, whole):
        s.model = message.parameters
    elif message is None or s.model is None or s.of != message.base:
        raise NothingToReceive("the model is lost, or coded against one that this node lacks")
    else:
        s.model = await node.compute("decode", brought_up, how.down, s.model, message.codes,
                                     work=len(message.codes) * d)
    s.of = node.round
    return s.model


def brought_up(codec: Codec, model: Vector, codes: Sequence[np.ndarray]) -> Vector:
    """v after these codes. Raises NotDecodable for what is none."""
    try:
        return _added(model, [codec.decode(code, len(model)) for code in codes])
    except Undecodable as error:
        raise NotDecodable(f"the model's code: {error}") from None
