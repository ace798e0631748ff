"""A model that is cut in two or three: clients hold the ends, the server the rest, and every batch goes there and back.

    a = f_bottom(x)                 client   -> server     Activations, with the targets if the server has the top
    g = dL/da                       server   -> client     Gradients, after the server's own step on f_top
    f_bottom steps from g

and where the labels stay at the client, f_top is f_head(f_middle(a)), and the client has the head as well:

    z = f_middle(a)                 server   -> client     Features
    h = dL/dz                       client   -> server     HeadGradients, after the client's step on f_head
    g = dL/da                       server   -> client     Gradients, after the server's step on f_middle

A *turn* is one client's local training: it gets its pieces (Turn), goes through its batches, and gives them back
(Done). A lost message ends the turn; what the server has learned in it stays. A batch may be cut into `micro_batches`,
whose gradients add up to that of the batch, so that sending and computing overlap. With `in_flight` = w batches under
way a client's step is made with the gradient of the parameters of w - 1 steps ago; the links' latency is then waited
for once in w batches.

Bytes of the arrays in each message, without its header, of b samples with s numbers at a cut: Activations 4 s b and the
targets, 4 b where they are labels; Gradients, Features, HeadGradients 4 s b. `compress: {up: ...}` packs what clients
send, `down` what the server sends, as the codec says; no error is kept, since the next batch has other samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base.errors import NotDecodable, NothingToReceive, NotSendable
from emul.primitives.compress import Codec, Undecodable, choose
from emul.protocols.demands import MOST_SAMPLES, demand, shaped, weighed
from emul.roles import Message, Node, Vector, World, checks

if TYPE_CHECKING:
    from torch import Tensor

    from emul.learning import NodeTask
    from emul.learning.pieces import Piece

Layer = int | str                       # the name of a layer: those of a plain sequence are numbers

MOST_BATCHES = 10**6                    # of a turn


@dataclass(frozen=True)
class Cut:
    """Parameters of a scheme that cuts the task's model."""

    cut: Layer                          # name of the last layer of the clients' bottom
    micro_batches: int = 1              # parts of a batch, each sent when it is computed; their gradients add up
    in_flight: int = 1                  # batches under way; 1: every step waits for its gradient, as in the paper


@dataclass(frozen=True)
class Turn(Message):
    """Server to client: the pieces to go on from."""

    parameters: Vector                  # of the bottom, then of the head if there is one


@dataclass(frozen=True)
class Done(Message):
    """Client to server: its pieces after its batches."""

    parameters: Vector
    samples: int                        # n_k


@dataclass(frozen=True)
class Activations(Message):
    """Client to server."""

    step: int                           # the batch of the turn, from 0
    part: int                           # the micro-batch in it, from 0
    of: int                             # samples of the whole batch
    samples: int                        # b, of this part
    values: np.ndarray                  # a: (b, ...) float32, or its code (n,) uint8
    targets: np.ndarray | None          # (b, ...); None: the labels stay


@dataclass(frozen=True)
class Gradients(Message):
    """Server to client: dL/da of the same samples."""

    step: int
    part: int
    values: np.ndarray


@dataclass(frozen=True)
class Features(Message):
    """Server to client: z."""

    step: int
    part: int
    values: np.ndarray


@dataclass(frozen=True)
class HeadGradients(Message):
    """Client to server: dL/dz."""

    step: int
    part: int
    values: np.ndarray


LABELS_AT_SERVER = (Turn, Done, Activations, Gradients)     # of schemes whose server has the top of the model
MESSAGES = (*LABELS_AT_SERVER, Features, HeadGradients)


# --- what travels -----------------------------------------------------------------------------------------------------

def codec_of(node: Node, way: str) -> Codec | None:
    """The codec of activations ("up") or gradients ("down"); None: there is none."""
    said = node.world.compress
    return choose(said[way]) if way in said else None


async def packed(node: Node, way: str, values: np.ndarray) -> np.ndarray:
    """As they travel. Raises NotSendable for values that are not finite."""
    codec = codec_of(node, way)
    if codec is None:
        return values
    return await node.compute("encode", encoded, codec, values, node.stream("compress"), work=values.size)


async def unpacked(node: Node, way: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """As they were. Raises NotDecodable for a code that nobody can have made."""
    codec = codec_of(node, way)
    if codec is None:
        return values
    return await node.compute("decode", decoded, codec, values, shape, work=int(np.prod(shape)))


def encoded(codec: Codec, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n,) uint8."""
    if not np.isfinite(values).all():
        raise NotSendable("not to be compressed: a number that is not finite")
    return codec.encode(values.reshape(-1), rng)[0]


def decoded(codec: Codec, code: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(b, ...) float32."""
    try:
        return codec.decode(code, int(np.prod(shape))).reshape(shape)
    except Undecodable as error:
        raise NotDecodable(f"a code: {error}") from None


def carried(node: Node, way: str, name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    """A demand: what travels is an array of this shape, or a code of it."""
    codec = codec_of(node, way)
    if codec is None:
        demand(values.dtype == np.float32 and values.shape == shape, f"{name}: not float32 of shape {shape[1:]} each")
        return
    size = codec.nbytes(int(np.prod(shape)))
    demand(values.dtype == np.uint8 and values.ndim == 1 and size in (None, len(values)), f"{name}: no such code")


# --- a client's turn --------------------------------------------------------------------------------------------------

@dataclass
class Ends:
    """At a client: its pieces."""

    bottom: Piece | None = None
    head: Piece | None = None           # None: the server has the rest


async def take_turn(node: Node, p: Cut, s: Ends, head: Layer | None = None, timeout_s: float | None = None,
                    restart: bool = True) -> None:
    """One turn of a client, which begins when the server says so. head: name of the last layer before the head; None:
    the labels go to the server. restart: whether the optimiser begins anew. Raises NothingToReceive at a loss."""
    turn = await node.recv(Turn, node.server)
    batches = await node.compute("load", load, node.task, p, s, head, turn.parameters, restart)
    bottom, last = s.bottom, s.head
    assert bottom is not None
    begun = ended = 0
    steps, heads = ([BatchProgress(sum(map(len, batch))) for _, batch in batches] for _ in range(2))

    def accept(message: Gradients | Features) -> None:
        wanted = asked if isinstance(message, Features) else bottom.pending
        demand((message.step, message.part) in wanted, "of no part that was sent")
        b = len(batches[message.step][1][message.part])
        at_cut = last is None or isinstance(message, Gradients)
        shape = bottom.layout.output_shape if at_cut or last is None else last.layout.input_shape
        carried(node, "down", "values", message.values, (b, *shape))

    asked: set[tuple[int, int]] = set()                 # parts whose features are still to come
    while ended < len(batches):
        if begun < len(batches) and begun - ended < p.in_flight:
            for part, (x, y) in enumerate(zip(*batches[begun], strict=True)):
                a = await node.compute("forward", bottom.forward, (begun, part), x, node.round, work=float(len(x)))
                values = await packed(node, "up", a)
                if last is not None:
                    asked.add((begun, part))
                node.send(node.server, Activations(begun, part, steps[begun].of, len(x), values,
                                                   y if last is None else None))
            begun += 1
            continue
        message = await next_of(node, node.server, (Gradients,) if last is None else (Features, Gradients), timeout_s,
                                accept)
        key, y = (message.step, message.part), batches[message.step][1][message.part]
        if isinstance(message, Features):
            assert last is not None
            asked.discard(key)
            z = await unpacked(node, "down", message.values, (len(y), *last.layout.input_shape))
            h = await node.compute("head", learned, last, z, y, heads[message.step], node.round, work=float(len(y)))
            node.send(node.server, HeadGradients(*key, await packed(node, "up", h)))
        else:
            g = await unpacked(node, "down", message.values, (len(y), *bottom.layout.output_shape))
            step = steps[message.step]
            await node.compute("backward", backpropagate, bottom, key, g, step, work=float(len(y)))
            ended += step.back == step.of
    found = np.concatenate([piece.parameters for piece in (bottom, last) if piece is not None])
    node.send(node.server, Done(found, node.task.samples()))


@dataclass
class BatchProgress:
    """The progress of a batch at a piece: numbers of samples that have come, were learned from, and have gone back."""

    of: int
    there: int = 0                      # samples whose loss is known
    back: int = 0                       # samples whose gradients have gone through the piece
    sizes: dict[int, int] = field(default_factory=dict)     # of the parts that have come
    gradient: Tensor | None = None      # of the parts so far: the piece may be serving other batches meanwhile

    @property
    def over(self) -> bool:
        return self.of in (self.there, self.back)


async def next_of(node: Node, source: int, kinds: tuple[type[Any], ...], timeout_s: float | None,
                  accept: Callable[[Any], None]) -> Any:
    """The next message of these types from a node. Raises NothingToReceive if it is lost, or too late."""
    got = await node.gather(kinds, [source], timeout_s=timeout_s, accept=accept)
    if source not in got:
        raise NothingToReceive(f"what {node.world.names[source]} was to send is lost, or late")
    return got[source]


def load(task: NodeTask, p: Cut, s: Ends, head: Layer | None, parameters: Vector, restart: bool,
         ) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Put the parameters into the client's pieces, and take its batches: of each the inputs of its parts, and their
    targets."""
    if s.bottom is None:
        s.bottom = task.piece(last=str(p.cut))
        s.head = None if head is None else task.piece(after=str(head))
    size = len(s.bottom.places)
    if len(parameters) != size + (0 if s.head is None else len(s.head.places)):
        raise NotDecodable(f"a turn with {len(parameters)} parameters")
    for piece, own in ((s.bottom, parameters[:size]), (s.head, parameters[size:])):
        if piece is not None:
            (piece.load if restart else piece.replace)(own)
    seen, plan = task.planned()
    found = []
    for rows in plan:
        parts = np.array_split(rows, min(p.micro_batches, len(rows)))
        found.append(([seen.x[part].numpy() for part in parts], [narrow(seen.y[part].numpy()) for part in parts]))
    return found


def narrow(targets: np.ndarray) -> np.ndarray:
    """Targets as they travel: labels in 4 bytes."""
    return targets.astype(np.int32) if targets.dtype.kind in "iu" else targets


def wide(targets: np.ndarray) -> np.ndarray:
    """As losses take them."""
    return targets.astype(np.int64) if targets.dtype.kind in "iu" else targets


def learned(piece: Piece, inputs: np.ndarray, targets: np.ndarray, step: BatchProgress, round_: int) -> np.ndarray:
    """The gradient by the inputs of the last piece; with the last part of a batch it takes its step. Raises NotSendable
    if what comes out is not finite; the piece is then as it was."""
    gradient, _ = piece.learn(inputs, wide(targets), len(targets) / step.of, round_)
    step.there += len(targets)
    return _stepped(piece, gradient, step, step.there == step.of)


def backpropagate(piece: Piece, key: tuple[int, int], gradient: np.ndarray, step: BatchProgress) -> np.ndarray:
    """The same of any other piece, from the gradient by its outputs."""
    found = piece.backward(key, gradient)
    step.back += len(gradient)
    return _stepped(piece, found, step, step.back == step.of)


def _stepped(piece: Piece, gradient: np.ndarray, step: BatchProgress, complete: bool) -> np.ndarray:
    own = piece.collect()
    step.gradient = own if step.gradient is None else step.gradient + own
    before = piece.parameters if complete else None
    if complete:
        piece.step(step.gradient)
    if not np.isfinite(gradient).all() or (before is not None and not np.isfinite(piece.parameters).all()):
        piece.load(piece.parameters if before is None else before)
        raise NotSendable("training has diverged: a gradient or a parameter is not finite")
    return gradient


# --- the server's side of a turn --------------------------------------------------------------------------------------

@dataclass
class Rest:
    """At the server: its piece, and where the clients' pieces lie in the model's vector."""

    piece: Piece                        # the top, or the middle
    ends: Vector                        # the newest parameters of the bottom, then of the head
    places: np.ndarray                  # theirs in the vector of the model, (len(ends),)
    shapes: tuple[tuple[int, ...], tuple[int, ...]]     # of a sample's numbers at the first cut and at the second


def whole_of(rest: Rest) -> Vector:
    """The model, (d,) float32."""
    found = np.empty(len(rest.places) + len(rest.piece.places), np.float32)
    found[rest.places], found[rest.piece.places] = rest.ends, rest.piece.parameters
    return found


def rest_of(task: NodeTask, p: Cut, head: Layer | None = None) -> Rest:
    """The server's piece of the model, with the ends that it keeps for the clients."""
    bottom, piece = task.piece(last=str(p.cut)), task.piece(str(p.cut), None if head is None else str(head))
    ends = [bottom] if head is None else [bottom, task.piece(after=str(head))]
    return Rest(piece, np.concatenate([one.parameters for one in ends]), np.concatenate([one.places for one in ends]),
                (bottom.layout.output_shape, piece.layout.output_shape))


class ServedTurn:
    """At the server: one client's turn, and the piece that serves it."""

    def __init__(self, node: Node, p: Cut, rest: Rest, client: int, piece: Piece, labelled: bool = True):
        self._node, self._p, self._rest, self._client, self._piece = node, p, rest, client, piece
        self._labelled = labelled                           # true if the labels come to the server
        self._steps: dict[int, BatchProgress] = {}
        self._most = min(node.task.solver.steps or MOST_BATCHES, MOST_BATCHES)
        self._largest = node.task.solver.batch or MOST_SAMPLES

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types of messages that may come from the client."""
        return (Activations, Done) if self._labelled else (Activations, HeadGradients, Done)

    def accept(self, message: Any) -> None:
        """A demand, of each message of this client."""
        if isinstance(message, Done):
            weighed(message)
            shaped(parameters=self._rest.ends.shape)(message)
        elif isinstance(message, HeadGradients):
            demand((message.step, message.part) in self._piece.pending, "of no part that was sent")
            b = self._steps[message.step].sizes[message.part]
            carried(self._node, "up", "values", message.values, (b, *self._rest.shapes[1]))
        else:
            self._accept_activations(message)

    def _accept_activations(self, message: Activations) -> None:
        demand(0 <= message.step < self._most, "step: no batch of a turn")
        open_ = [step for step in self._steps.values() if not step.over]
        step = self._steps.get(message.step) or BatchProgress(message.of)
        demand(message.step in self._steps or len(open_) < self._p.in_flight, "step: more batches than allowed")
        demand(0 < message.of <= self._largest and message.of == step.of, "of: no size of this batch")
        demand(0 <= message.part < self._p.micro_batches and message.part not in step.sizes, "part: no part to come")
        demand(0 < message.samples <= step.of - sum(step.sizes.values()), "samples: more than the batch has")
        carried(self._node, "up", "values", message.values, (message.samples, *self._rest.shapes[0]))
        demand((message.targets is not None) == self._labelled, "targets: expected none, or not given")
        if message.targets is not None:
            own, data = message.targets, self._node.task.targets
            demand(own.shape == (message.samples, *data.shape), "targets: of another shape")
            demand(own.dtype == data.dtype, "targets: of another type")
            demand(not data.classes or bool(((own >= 0) & (own < data.classes)).all()), "targets: no class")

    async def answer(self, message: Any) -> None:
        """Learn from what the client has sent, and send it what comes of it. Raises NotSendable, NotDecodable."""
        node, piece, key = self._node, self._piece, (message.step, message.part)
        if isinstance(message, HeadGradients):
            step = self._steps[message.step]
            b = step.sizes[message.part]
            h = await unpacked(node, "up", message.values, (b, *self._rest.shapes[1]))
            g = await node.compute("middle back", backpropagate, piece, key, h, step, work=float(b))
            node.send(self._client, Gradients(*key, await packed(node, "down", g)))
            return
        b = message.samples
        step = self._steps.setdefault(message.step, BatchProgress(message.of))
        step.sizes[message.part] = b
        a = await unpacked(node, "up", message.values, (b, *self._rest.shapes[0]))
        if self._labelled:
            g = await node.compute("top", learned, piece, a, message.targets, step, node.round, work=float(b))
            node.send(self._client, Gradients(*key, await packed(node, "down", g)))
        else:
            z = await node.compute("middle", piece.forward, key, a, node.round, work=float(b))
            node.send(self._client, Features(*key, await packed(node, "down", z)))


async def serve(node: Node, p: Cut, rest: Rest, client: int, labelled: bool = True, timeout_s: float | None = None,
                ) -> Done | None:
    """At the server: the turn of one client, alone; what it gives back. None: a message was lost, or late."""
    service = ServedTurn(node, p, rest, client, rest.piece, labelled)
    node.send(client, Turn(rest.ends))
    try:
        while True:
            message = await next_of(node, client, service.kinds, timeout_s, service.accept)
            if isinstance(message, Done):
                return message
            await service.answer(message)
    except (NothingToReceive, NotSendable, NotDecodable) as error:
        if isinstance(error, NotSendable):
            node.report(diverged=str(error))
        node.abstain(client, Gradients, *(() if labelled else (Features,)))
        return None


async def one_after_the_other(node: Node, p: Cut, head: Layer | None = None, timeout_s: float | None = None) -> None:
    """Rounds of a server whose clients have their turns in ascending order, each from the pieces of the one before."""
    rest: Rest | None = node.state(ServerState()).rest
    async for round_ in node.rounds():
        with round_:
            if rest is None:
                rest = node.state(ServerState()).rest = await node.compute("load", rest_of, node.task, p, head)
            turns = 0
            for client in node.joined(node.clients):
                done = await serve(node, p, rest, client, head is None, timeout_s)
                if done is not None:
                    rest.ends, turns = done.parameters, turns + 1
            node.report(await node.compute("assemble", whole_of, rest), received=turns)


@dataclass
class ServerState:
    rest: Rest | None = None


async def in_turn(node: Node, p: Cut, head: Layer | None = None, timeout_s: float | None = None) -> None:
    """Rounds of a client of `one_after_the_other`. The state of its optimiser stays from turn to turn."""
    s = node.state(Ends())
    async for round_ in node.rounds(of=node.server):
        with round_:
            await take_turn(node, p, s, head, timeout_s, restart=False)


# --- checks -----------------------------------------------------------------------------------------------------------

def wrong_cut(p: Cut, world: World, head: Layer | None = None) -> list[str]:
    """The mistakes in the parameters that cut a model, for a scheme's `check`."""
    from emul.learning.cuts import wrong_cuts, wrong_solver

    found = wrong_solver(world.task) + checks.at_least(1, "a number of parts, 1 or more", micro_batches=p.micro_batches)
    found += checks.at_least(1, "a number of batches, 1 or more", in_flight=p.in_flight)
    named = {"cut": str(p.cut)} if head is None else {"cut": str(p.cut), "head": str(head)}
    return found + [f"{key} = {named[key]}: {text}" for key, text in wrong_cuts(world.task, named)]
