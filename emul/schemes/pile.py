"""PILE without ZK: gradients of a disguised model, summed under threshold Paillier. Tang et al., IEEE TDSC 2023.

After X. Yang et al., arXiv 2412.11737, section VI, and arXiv 2002.09843, whose disguise it is: R_ij = r_i / r_j.

    server      W^ = R o W + r to all
    client k    E(ghat_k), E(Psi_k), E(Phi_k), a commitment to them, and their norms
    server      sums of the ciphertexts;  tbar clients decrypt them
                g = R o (ghat - sum_c r_c Psi_c + v Phi) of the mean;  W <- W - lr g

With `recover_under_he` the server multiplies the ciphertexts by its secrets as integers, 2^e (1, -r_c, v), adds them
up, and has R^-1 o g alone decrypted: it does not see the sums of Psi and Phi. No noise is added: the server has the
exact mean gradient of each round, and any tbar clients together can decrypt what it asks them to.

Deviations. The original proves in zero knowledge that gradients are well-formed. In place of the proofs stand a
commitment, SHA-256 of the plaintexts and a nonce, and the norm of each block, which the server reads and holds against
`norm_bound`: they prove nothing, a client may lie. Psi is divided by n_{L-1} and Phi by its square, which is public
and undone in the recovery: all blocks have the size of a gradient. Each number has a ciphertext of its own, as proofs
about single numbers need; `packed: true` puts 39 (with `recover_under_he` 31) into one of 2,048 bits. r is of chi_3 by
default: with the published uniform law R reaches 1e5, and 24 bits after the point are too few.

Real and declared bytes are as of `tp_smc`: by the length of what is decrypted, S d numbers, or d.

Protects: a client's gradient from the server and fewer than tbar colluding clients; the model, in disguise, from
clients. Not: the exact mean gradient from the server (no noise), false gradients.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from emul.base.errors import NotDecodable, NotSendable, TooFewClients
from emul.primitives.he.paillier import Packing, PublicKey, Share
from emul.protocols import threshold_sums
from emul.protocols.demands import Demand, both, demand
from emul.protocols.encrypted_sums import Encrypted
from emul.protocols.key_centre import PartyKeys, hold_keys, number, wake_centre
from emul.protocols.mp_dp import plain
from emul.protocols.mp_dp.client import as_agreed, gradients
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.opening import Opened, opening
from emul.protocols.mp_dp.plain import Disguising
from emul.protocols.mp_dp.settings import Settings, wrong_settings
from emul.protocols.rounds import finite
from emul.protocols.sealed import Integers, Sealed, SealedArithmetic, fixed, total
from emul.protocols.threshold_sums import Threshold, answer, opened, vectors_per_round, wrong_threshold
from emul.roles import Analysis, Holds, Message, Node, Realised, Scheme, Setting, Vector, World, checks
from emul.roles.example import example, lossy

if TYPE_CHECKING:
    from emul.learning import NodeTask

FRACTION, VALUE, SLOT = 24, 40, 52  # bits after the point, of a value, and of its slot, with room for 2^11 summands
VALUE_HE, SLOT_HE = 32, 64          # with recover_under_he; the slot is that of a product
LEAST_FACTOR = 8                    # bits after the point of a secret that is multiplied with


@dataclass(frozen=True)
class Upload(Message):
    """Client to server."""

    blocks: list[Sealed]            # one vector of S d numbers; recover_under_he: S of d
    commitment: bytes               # 32 bytes
    norms: Annotated[np.ndarray, Holds("float64", 1)]       # (S,), l2 norms that the client claims


@dataclass(frozen=True)
class Params(Encrypted, Disguising):
    scales: Literal["chi3", "log_uniform", "uniform"] = "chi3"      # law of r
    transitional: bool = False          # R = r_i s_j with transitional layers, as of mp_dp
    recover_under_he: bool = False      # decrypt one block, and neither Psi nor Phi
    packed: bool = False                # many numbers in a ciphertext
    norm_bound: float | None = None     # that a block's norm cannot exceed; None: any
    bits: int = 2048                    # of the key

    def settled(self) -> Settings:
        """The parameters of the disguise."""
        return plain.settled(self, preset="pile", scales=self.scales, tied=not self.transitional)


@dataclass(frozen=True)
class BlockLayout:
    """The layout of the blocks of a model in vectors of ciphertexts."""

    blocks: int                     # S
    dimension: int                  # d
    features: int                   # n_{L-1}
    under_he: bool

    @classmethod
    def of(cls, p: Params, task: NodeTask) -> BlockLayout:
        """For a task's model."""
        from emul.protocols.mp_dp.algebra import number_of_blocks

        disguise = task.disguise()
        return cls(number_of_blocks(p.additive, p.directions, disguise.outputs), task.dimension, disguise.features,
                   p.recover_under_he)

    @property
    def vectors(self) -> int:
        """That a client sends."""
        return self.blocks if self.under_he else 1

    @property
    def length(self) -> int:
        """Of each vector, and of what is decrypted."""
        return self.dimension * (1 if self.under_he else self.blocks)

    @property
    def sizes(self) -> np.ndarray:
        """(S,): what blocks are divided by before they are encrypted, 1, n_{L-1}, .., n_{L-1}^2."""
        n = float(self.features)
        return np.array([1.0, *[n] * (self.blocks - 2), n * n][:self.blocks])

    def integers(self, found: np.ndarray) -> Integers:
        """(S, d) fixed-point numbers of (S, d) blocks. Raises NotSendable if one does not fit: of blocks that were cut
        the gradient could not be recovered."""
        scaled, bits = found / self.sizes[:, None], VALUE_HE if self.under_he else VALUE
        if not np.abs(scaled).max() < 1 << (bits - FRACTION):
            raise NotSendable(f"a block holds a number of {1 << (bits - FRACTION)} or more, or none")
        return fixed(scaled.reshape(-1), FRACTION, bits).reshape(self.blocks, self.dimension)


def desk_of(node: Node, p: Params, shape: BlockLayout, n: int) -> SealedArithmetic:
    """For vectors of that shape under the key n."""
    slot = SLOT_HE if shape.under_he else SLOT
    return SealedArithmetic(node, PublicKey(n), Packing.of(p.bits, slot) if p.packed else Packing(1, slot),
                            shape.length,
                            p.real_up_to)


# --- server -----------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector                   # W, (d,) of the agreed type
    held: PartyKeys = field(default_factory=PartyKeys)


async def server(node: Node, p: Params) -> None:
    settings, sizes = p.settled(), Threshold.of(p, len(node.clients))
    s = node.state(ServerState(node.task.initial_parameters().astype(settings.dtype)))
    async for round_ in node.rounds():
        with round_:
            await wake_centre(node, s.held, "dealer")
            n, = map(number, await hold_keys(node, s.held, 1, p.answer_s, "dealer"))
            now = await node.compute("disguise", opening, node.task, s.model, settings, node.clients, node.seed,
                                     node.round, node.stream("mask graph"), work=s.model.size)
            shape = BlockLayout.of(p, node.task)
            c = desk_of(node, p, shape, n)
            node.offer("cohort", node.clients)
            node.broadcast(node.clients, now.message)
            got = await node.gather(Upload, node.clients, timeout_s=p.deadline_s, accept=both(
                c.sound("blocks", count=shape.vectors), of_shape(shape, p.norm_bound)))
            if len(got) < sizes.least:
                raise TooFewClients(f"{len(got)} uploads, least = {sizes.least}")
            sums = await node.compute("add", added, c, [m.blocks for m in got.values()],
                                      cost_s=c.cost(add=shape.vectors * (len(got) - 1)))
            secrets, e = weights(now, shape), 0
            if shape.under_he:
                e = exponent(secrets, sizes.parties)
                factors = np.rint(secrets * 2.0**e).astype(np.int64).tolist()
                sums = [await node.compute("recover under encryption", total, c.box, sums, factors, cost_s=c.cost(
                    scale=shape.blocks, add=shape.blocks - 1))]
            values = await opened(c, sizes, sums[0], list(got), p.answer_s)
            s.model = await node.compute("recover", stepped, s.model, values, 2.0**(FRACTION + e) * len(got), secrets,
                                         now, node.task, p.lr, work=values.size)
            node.report(parameters=s.model.astype(np.float32), received=len(got))


def of_shape(shape: BlockLayout, norm_bound: float | None) -> Demand:
    """For `accept`: a commitment, and norms within the bound."""
    def accept(message: Upload) -> None:
        demand(len(message.commitment) == 32, "commitment: expected 32 bytes")
        demand(message.norms.shape == (shape.blocks,), "norms: expected one of each block")
        demand(bool((message.norms >= 0).all()) and (norm_bound is None or bool((message.norms <= norm_bound).all())),
               "norms: out of range")
    return accept


def added(c: SealedArithmetic, uploads: Sequence[Sequence[Sealed]]) -> list[Sealed]:
    """E(sum over the clients), of each of their vectors."""
    return [total(c.box, parts) for parts in zip(*uploads, strict=True)]


def weights(now: Opened, shape: BlockLayout) -> np.ndarray:
    """(S,): what the blocks are multiplied by in the recovery, as they were encrypted."""
    from emul.learning.disguise import recovery_weights

    if shape.blocks == 1:
        return np.ones(1)
    return recovery_weights(now.known.secrets.output, now.known.directions) * shape.sizes


def exponent(secrets: np.ndarray, clients: int) -> int:
    """e: bits after the point of a secret as an integer, so that no slot is left. Raises NotDecodable for secrets that
    are too large."""
    e = SLOT_HE - 2 - VALUE_HE - math.ceil(math.log2(clients * (np.abs(secrets).sum() + 1)))
    if e < LEAST_FACTOR:
        raise NotDecodable("the secrets of the outputs are too large to recover under encryption")
    return e


def stepped(model: Vector, values: Integers, unit: float, secrets: np.ndarray, now: Opened, task: NodeTask,
            lr: float) -> Vector:
    """W - lr g. values: sums of S blocks one after the other, or of one that was recovered under encryption; over
    `unit` they are means. Raises NotDecodable if it is not finite."""
    disguise, mean = task.disguise(), values.reshape(-1, task.dimension) / unit
    g = disguise.recovered(mean, disguise.multipliers(now.known.secrets), secrets if len(mean) > 1 else np.ones(1))
    return finite(disguise.stepped(model, g, lr).astype(model.dtype))


# --- clients and keys -------------------------------------------------------------------------------------------------

async def client(node: Node, p: Params) -> None:
    s, sizes, settings = node.state(PartyKeys()), Threshold.of(p, node.world.clients), p.settled()
    async for round_ in node.rounds(of=node.server):
        with round_:
            n, part = map(number, await hold_keys(node, s, 2, p.answer_s, "dealer"))
            disguise = await node.compute("model", node.task.disguise)
            shape = BlockLayout.of(p, node.task)
            c = desk_of(node, p, shape, n)
            message = await node.recv(Disguised, node.server, accept=as_agreed(settings, node.task, disguise))
            found, samples = await node.compute("lmt", gradients, node.task, message, settings)
            if p.mean_samples is not None:
                found = found * (samples / p.mean_samples)
            values, commitment, norms = await node.compute("commit", committed, shape, found,
                                                           node.stream("nonce").bytes(32), work=found.size)
            blocks = await node.compute("encrypt", sealed, c, values.reshape(shape.vectors, -1),
                                        cost_s=c.cost(encrypt=shape.vectors))
            node.send(node.server, Upload(blocks, commitment, norms))
            await answer(c, sizes, Share(n, part))


def sealed(c: SealedArithmetic, rows: Integers) -> list[Sealed]:
    """E of each row."""
    return [c.box.seal(row, c.rng) for row in rows]


def committed(shape: BlockLayout, found: np.ndarray, nonce: bytes) -> tuple[Integers, bytes, np.ndarray]:
    """((S, d) fixed-point numbers of the blocks, SHA-256 of the nonce and these, the l2 norm of each block)."""
    values = shape.integers(found)
    digest = hashlib.sha256(nonce + np.ascontiguousarray(values, "<i8").tobytes()).digest()
    return values, digest, np.linalg.norm(values / 2.0**FRACTION, axis=1)


async def dealer(node: Node, p: Params) -> None:
    await threshold_sums.dealer(node, p.bits, Threshold.of(p, len(node.clients)))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = wrong_settings(params.settled()) + wrong_threshold(params, params.bits, world.clients)
    errors += checks.positive(norm_bound=params.norm_bound)
    if params.recover_under_he and params.additive == "off":
        errors.append("recover_under_he = true: without the additive part there is one block; expected false")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """Warnings of the limits of this scheme."""
    return ["pile is PILE without ZK: commitments and claimed norms stand in for its proofs, and prove nothing"]


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Its name, its protection, and the vectors of ciphertexts a round."""
    return {"protocol": "PILE without ZK", "guarantee": "none: the exact mean gradient of each round is decrypted",
            **vectors_per_round(params, setting)}


EXAMPLE = example("pile", "t: 4, bits: 512, deadline: 5 s, answer: 5 s", topology="star_mesh, clients: 5, servers: 2",
                  links=(lossy("client*->server1"),), model="digits_mlp")

SCHEME = Scheme(
    params=Params, roles={"server": server, "dealer": dealer, "client": client},
    messages=(*threshold_sums.MESSAGES, Disguised, Upload), places={"dealer": "server[1]"}, stateless=("client",),
    disguises=True, timeouts=("deadline_s",), check=check, warn=warn, analysis=analysis, example=EXAMPLE)
