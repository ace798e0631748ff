"""Vertical logistic regression under Paillier's encryption: who steps sees no sample, residuals travel encrypted.
Hardy et al., arXiv 1711.10677 (2017), sections 4 and 5.

    loss        l(theta) = 1/b sum_i (log 2 - 1/2 y_i theta.x_i + 1/8 (theta.x_i)^2), y_i = -1 or 1 (Taylor, order 2)
    server      sends theta_k to party k and theta_0 to the holder
    party k     u_k = 1/4 X_k theta_k                               sends [u_k] to the holder
    holder      [w] = sum_k [u_k] + 1/4 theta_0 - 1/2 y             sends [w] to the parties, [sum_i w_i] to the server
    party k     [z_k] = X_k' [w]                                    sends [z_k] to the server
    server      opens them: g = z / b;  theta <- theta - lr (g + weight_decay theta)

[.] is encrypted under the key of the server, the paper's coordinator C, which has no data. The holder, the paper's B,
has the labels, and a column of ones. Parties have the columns. Holder and parties take the same batches of their common
samples (`emul.protocols.alignment`), by a seed that the holder sends; a round has the batches of a local training.

Deviations: the holder has no columns but its ones, and there may be more than one party with columns, the paper's A.
Samples are aligned by a private set intersection; the paper has a matching that tolerates errors, and an encrypted mask
by which nobody learns which samples are common. Steps are plain, not averaged over old gradients (SAG), and the number
of rounds is the scenario's, where the paper stops by a secure loss of samples held out.

It leaks: the server knows the model and the gradient of every batch, which in a batch of one sample is the sample. The
holder learns of each party which of its ids it has. Parties learn their common ids, their theta_k, and the sizes of
batches. Two successive theta_k give a party its gradient z_k = X_k' w, and it has X_k: of a batch of at most rank(X_k)
samples it computes all of w, which tells the labels, and of a larger one much of it; in the first batch w = - y / 2.
The server with the holder reads every u_k; the server with a party reads w of any batch. The key comes from the
scenario's seed, for emulation only.

Fixed point: columns with 14 bits after the point, cut at 64; u_k with 18, cut at 512: sums are exact for (K + 1) b <
2^16. A ciphertext of 2 |n| bits has one number. A batch sends (2 K b + d + 1) of them, d columns in all. Up to
`real_up_to` columns all is encrypted for real; beyond, sizes and times are declared and the model is the same.

Protects: samples and residuals from the parties and the coordinator, under Paillier (semi-honest). Not: which common
ids, the model and gradients from the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.base.errors import NotDecodable, NothingToReceive, TooFewClients
from emul.learning import NodeTask
from emul.primitives.he.paillier import Packing, PrivateKey, PublicKey, key_pair
from emul.protocols import alignment
from emul.protocols.alignment import align, find_common, present
from emul.protocols.demands import both, demand, shaped
from emul.protocols.key_centre import number, octets
from emul.protocols.sealed import Box, Integers, Sealed, SealedArithmetic, fixed, total, wrong_encryption
from emul.roles import Message, Node, Scheme, Vector, Words, World, checks
from emul.roles.example import example, lossy

COLUMN, COLUMN_BITS = 14, 20        # bits of a column's number after the point, and in all
SCORE, SCORE_BITS = 18, 27          # of u_k
MOST = 1 << (63 - COLUMN_BITS - SCORE_BITS)     # summands of a gradient: more may leave int64


@dataclass(frozen=True)
class Open(Message):
    """Server to holder and parties: the round is open."""

    key: bytes                          # n


@dataclass(frozen=True)
class Begin(Message):
    """Holder to parties."""

    align: bool                         # find the common samples first
    seed: int                           # of the batches


@dataclass(frozen=True)
class Plan(Message):
    """Holder to server."""

    sizes: Words                        # samples of each batch of the round


@dataclass(frozen=True)
class Coefficients(Message):
    """Server to holder and parties, each its own."""

    step: int                           # batch of the round, from 0
    values: Vector                      # theta_k, (d_k,), or theta_0, (1,)


@dataclass(frozen=True)
class Scores(Message):
    """Party to holder."""

    step: int
    values: Sealed                      # 2^SCORE u_k, (b,)


@dataclass(frozen=True)
class Residuals(Message):
    """Holder to parties."""

    step: int
    values: Sealed                      # 2^SCORE w, (b,)


@dataclass(frozen=True)
class Gradient(Message):
    """Party or holder to server."""

    step: int
    values: Sealed                      # 2^(SCORE + COLUMN) z_k, (d_k,), or the sum of w, (1,)


@dataclass(frozen=True)
class Params:
    positive: int = 1                   # the class with y = 1; all others have y = -1
    bits: int = 2048                    # of the key
    real_up_to: int = 100               # columns, of all parties, that are encrypted for real; beyond it is declared
    deadline_s: float = 60.0            # of each wait; who is late is missing, and the round is over


def desk_of(node: Node, p: Params, key: bytes) -> SealedArithmetic:
    """Under this key, a number in a ciphertext."""
    d = sum(node.task.party_columns()) + 1
    return SealedArithmetic(node, PublicKey(number(key)), Packing(1, p.bits - 2), d, p.real_up_to + 1)


# --- the server, which is the coordinator -----------------------------------------------------------------------------

@dataclass
class ServerState:
    key: PrivateKey | None = None
    theta: Vector | None = None         # of party after party, then theta_0


async def server(node: Node, p: Params) -> None:
    s, holder, solver = node.state(ServerState()), node.nodes("holder")[0], node.task.solver
    async for round_ in node.rounds():
        with round_:
            owners = dict(zip([*node.clients, holder], [*node.task.party_columns(), 1], strict=True))
            if s.key is None or s.theta is None:
                s.key = await node.compute("keygen", key_pair, p.bits, node.stream("keys"))
                s.theta = np.zeros(sum(owners.values()), np.float32)
            desk = desk_of(node, p, octets(s.key.public.n))
            node.broadcast(sorted(owners), Open(octets(s.key.public.n)))
            plan = await node.recv(Plan, holder, timeout_s=4 * p.deadline_s, accept=planned)
            for step, b in enumerate(plan.sizes.tolist()):
                parts = np.split(s.theta, np.cumsum(list(owners.values()))[:-1])
                node.send_each({k: Coefficients(step, part) for k, part in zip(owners, parts, strict=True)})
                got = present(node, sorted(owners), await node.gather(
                    Gradient, sorted(owners), timeout_s=3 * p.deadline_s, accept=partial(of_owner, desk, owners, step)))
                z = await node.compute("decrypt", opened, desk.box, s.key, [got[k].values for k in owners],
                                       list(owners.values()), cost_s=desk.cost(decrypt=desk.d, numbers=True))
                s.theta = await node.compute("step", stepped, s.theta, z, b, solver.lr, solver.weight_decay)
            node.report(s.theta, evaluate=partial(tested, node.task, p.positive), samples=int(plan.sizes.sum()),
                        steps=len(plan.sizes))


def planned(plan: Plan) -> None:
    """A demand: sizes of batches."""
    demand(0 < len(plan.sizes) <= 10**6, "sizes: of no number of batches")
    demand(bool(((plan.sizes > 0) & (plan.sizes < MOST)).all()), "sizes: of no batch")


def of_owner(desk: SealedArithmetic, owners: Mapping[int, int], step: int, message: Gradient) -> None:
    """A demand: as many numbers as its sender has columns."""
    due(step, message)
    desk.sound("values", length=owners[message.sender])(message)


def due(step: int, message: Coefficients | Scores | Residuals | Gradient) -> None:
    """A demand: it is of this batch."""
    demand(message.step == step, "step: not the one that is due")


def opened(box: Box, key: PrivateKey, parts: Sequence[Sealed], lengths: Sequence[int]) -> Integers:
    """Their values, one after the other. Raises NotDecodable for a number that no gradient has."""
    try:
        return np.concatenate([box.open(key, part, length) for part, length in zip(parts, lengths, strict=True)])
    except ValueError:
        raise NotDecodable("a gradient of more than 64 bits") from None


def stepped(theta: Vector, z: Integers, b: int, lr: float, weight_decay: float) -> Vector:
    """theta after a batch of b samples."""
    gradient = z / (2.0**(SCORE + COLUMN) * b)
    return (theta - lr * (gradient + weight_decay * theta)).astype(np.float32)


def tested(task: NodeTask, positive: int, theta: Vector) -> dict[str, float]:
    """{"accuracy", "loss"} on the test samples, off the clock: whether y is right, and the mean of log(1 + exp(-y
    theta.x))."""
    ids = np.arange(task.test_samples)
    x = np.concatenate([task.columns_of(k, ids, test=True).reshape(len(ids), -1)
                        for k in range(len(task.party_columns()))], axis=1)
    margins = signs(task.labels_of(ids, test=True), positive) * (x @ theta[:-1].astype(np.float64) + theta[-1])
    return {"accuracy": float((margins > 0).mean()), "loss": float(np.logaddexp(0, -margins).mean())}


def signs(labels: np.ndarray, positive: int) -> np.ndarray:
    """y."""
    return np.where(labels == positive, 1.0, -1.0)


# --- the holder of the labels -----------------------------------------------------------------------------------------

@dataclass
class HolderState:
    common: np.ndarray | None = None    # ids of the samples of all, in everybody's order; None: not found yet


async def holder(node: Node, p: Params) -> None:
    s = node.state(HolderState())
    async for round_ in node.rounds(of=node.server):
        with round_:
            desk = desk_of(node, p, (await node.recv(Open, node.server, accept=partial(keyed, p))).key)
            seed = int(node.stream("batches").integers(2**63))
            node.broadcast(node.clients, Begin(s.common is None, seed))
            if s.common is None:
                s.common = await align(node, p.deadline_s)
            plan = node.task.plan(len(s.common), seed)
            node.send(node.server, Plan(np.array([len(rows) for rows in plan], np.uint32)))
            try:
                for step, rows in enumerate(plan):
                    await serve(node, p, desk, step, signs(node.task.labels_of(s.common[rows]), p.positive))
            except TooFewClients:
                s.common = None                         # who is missing may have been left behind: find it anew
                raise


def keyed(p: Params, message: Open) -> None:
    """A demand: a modulus of the length that was agreed on."""
    demand(PublicKey(number(message.key)).bits == p.bits, "key: of another length")


async def serve(node: Node, p: Params, desk: SealedArithmetic, step: int, y: np.ndarray) -> None:
    """One batch. Raises TooFewClients if a party is missing."""
    b, K = len(y), len(node.clients)
    theta = await node.recv(Coefficients, node.server, timeout_s=4 * p.deadline_s,
                            accept=both(partial(due, step), shaped(values=(1,))))
    got = present(node, node.clients, await node.gather(
        Scores, node.clients, timeout_s=p.deadline_s, accept=both(partial(due, step), desk.sound("values", length=b))))
    own = fixed(theta.values[0] / 4 - y / 2, SCORE, SCORE_BITS)
    w, summed = await node.compute("residuals", residuals, desk.box, [message.values for message in got.values()], own,
                                   cost_s=desk.cost(add=(K + 1) * b, scale=b, numbers=True))
    node.broadcast(node.clients, Residuals(step, w))
    node.send(node.server, Gradient(step, summed))


def residuals(box: Box, parts: Sequence[Sealed], own: Integers) -> tuple[Sealed, Sealed]:
    """([w], [sum_i w_i] at the scale of a gradient)."""
    w = box.plus(total(box, parts), own)
    return w, box.dot(w, np.full(len(own), 1 << COLUMN))


# --- a party ----------------------------------------------------------------------------------------------------------

@dataclass
class EncryptedPartyState:
    common: np.ndarray | None = None


async def client(node: Node, p: Params) -> None:
    s, holder = node.state(EncryptedPartyState()), node.nodes("holder")[0]
    async for round_ in node.rounds(of=node.server):
        with round_:
            desk = desk_of(node, p, (await node.recv(Open, node.server, accept=partial(keyed, p))).key)
            begin = await node.recv(Begin, holder, timeout_s=2 * p.deadline_s)
            if begin.align:
                s.common = await find_common(node, holder, 2 * p.deadline_s)
            if s.common is None:
                raise NothingToReceive("the common samples are not known here")
            for step, rows in enumerate(node.task.plan(len(s.common), begin.seed)):
                await learn(node, p, desk, holder, step, s.common[rows])


async def learn(node: Node, p: Params, desk: SealedArithmetic, holder: int, step: int, ids: np.ndarray) -> None:
    """One batch."""
    x = fixed(node.task.own_columns(ids).reshape(len(ids), -1), COLUMN, COLUMN_BITS)
    b, d = x.shape
    theta = await node.recv(Coefficients, node.server, timeout_s=4 * p.deadline_s,
                            accept=both(partial(due, step), shaped(values=(d,))))
    u = await node.compute("scores", scores, x, theta.values, work=float(x.size))
    sealed = await node.compute("encrypt", desk.box.seal, u, desk.rng, cost_s=desk.cost(encrypt=b, numbers=True))
    node.send(holder, Scores(step, sealed))
    got = await node.recv(Residuals, holder, timeout_s=2 * p.deadline_s,
                          accept=both(partial(due, step), desk.sound("values", length=b)))
    z = await node.compute("gradient", products, desk.box, got.values, x,
                           cost_s=desk.cost(scale=b * d, add=b * d, numbers=True))
    node.send(node.server, Gradient(step, z))


def scores(x: Integers, theta: Vector) -> Integers:
    """2^SCORE u_k, (b,)."""
    return fixed((x / 2.0**COLUMN) @ theta.astype(np.float64) / 4, SCORE, SCORE_BITS)


def products(box: Box, w: Sealed, x: Integers) -> Sealed:
    """X' [w], a ciphertext for each column."""
    return box.joined([box.dot(w, column) for column in x.T])


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = checks.times(deadline=params.deadline_s) + wrong_encryption(params.bits, params.real_up_to)
    errors += checks.at_least(0, "a class, 0 or more", positive=params.positive)
    errors += checks.plain_descent("vertical_logistic_he", world.task)
    partition, (solver,) = world.task.get("partition"), (world.task.get("solver") or {"sgd": {}}).values()
    if not (isinstance(partition, dict) and "columns" in partition):
        errors.append("task.partition: vertical_logistic_he needs one by columns, such as {columns: {groups: 2}}")
    most = (MOST - 1) // (world.clients + 1)
    if solver.get("batch") is None or solver["batch"] > most:
        errors.append(f"task.solver.sgd.batch = {solver.get('batch')}: expected at most {most}, whose sums are exact")
    if world.task.get("model") != "logistic":
        errors.append(f"task.model = {world.task.get('model')}: expected logistic, which is what is trained")
    return errors


EXAMPLE = example("vertical_logistic_he", "positive: 0, bits: 256, deadline: 1 s",
                  topology="star_mesh, clients: 2, servers: 2",
                  links=(lossy("client2->server1", p=0.05, per="message"),), data="set: digits, held_out: 1400",
                  partition="{columns: {groups: 2, common: 0.8}}", solver="lr: 0.2, steps: 2, batch: 8", rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "holder": holder, "client": client},
    messages=(Open, Begin, Plan, *alignment.MESSAGES, Coefficients, Scores, Residuals, Gradient),
    places={"holder": "server[1]"}, timeouts=("deadline_s",), batches=True, check=check, example=EXAMPLE)
