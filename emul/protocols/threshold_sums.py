"""Sums under a Paillier key that the clients share: a dealer, uploads, partial decryptions by tbar clients.

    server      Ask tbar clients to decrypt a sum; others for those that stay silent; combine
    client      Partial of it, with its share
    dealer      n for all, a share for each client, once (`emul.protocols.key_centre`)

t of the K clients are honest at least, so tbar = K - t + 1 shares decrypt and the other K - t clients together cannot.
Nothing proves that what is decrypted is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from emul.base.errors import TooFewClients
from emul.primitives.he import threshold
from emul.primitives.he.paillier import Share
from emul.protocols import key_centre
from emul.protocols.encrypted_sums import Encrypted, wrong_cohort
from emul.protocols.key_centre import KeyParts, octets
from emul.protocols.sealed import Sealed, SealedArithmetic, wrong_encryption
from emul.roles import Analysis, Message, Node, Setting, Vector

FRACTION, VALUE, SLOT = 20, 36, 48      # bits after the point, of a value, and of its slot
SUMMANDS = 1 << (SLOT - 1 - VALUE)      # that a slot has room for


@dataclass(frozen=True)
class Ask(Message):
    """Server to client: decrypt this with your share."""

    summed: Sealed


@dataclass(frozen=True)
class Partial(Message):
    """Client to server."""

    partial: Sealed


@dataclass(frozen=True)
class Threshold:
    """The sizes that follow from K and the parameters."""

    parties: int                        # K
    honest: int                         # t
    least: int

    @classmethod
    def of(cls, p: Encrypted, clients: int) -> Threshold:
        """With the defaults put in."""
        return cls(clients, p.honest(clients), p.fewest(clients))

    @property
    def tbar(self) -> int:
        """Partial decryptions that make one decryption."""
        return self.parties - self.honest + 1


# --- server -----------------------------------------------------------------------------------------------------------

async def opened(c: SealedArithmetic, sizes: Threshold, summed: Sealed, senders: Sequence[int],
                 answer_s: float | None) -> Vector:
    """The numbers that `summed` holds, (c.d,) int64, with tbar clients: first those that have sent, then others for who
    is silent.

    Raises TooFewClients if there are no tbar of them.
    """
    node, found = c.node, dict[int, Partial]()
    waiting = [*senders, *(k for k in node.clients if k not in senders)]
    while (missing := sizes.tbar - len(found)) > 0:
        asked, waiting = waiting[:missing], waiting[missing:]
        if not asked:
            raise TooFewClients(f"{len(found)} partial decryptions, tbar = {sizes.tbar}")
        node.broadcast(asked, Ask(summed))
        found |= await node.gather(Partial, asked, timeout_s=answer_s, accept=c.sound("partial", partial=True))
    parts = {party(node, k): m.partial for k, m in found.items()}
    cost_s = c.seconds_of(threshold.combine_seconds(c.box.public.bits, parts, sizes.parties))
    values: Vector = await node.compute("combine", c.box.open_among, sizes.parties, summed, parts, c.d, cost_s=cost_s)
    return values


def party(node: Node, client: int) -> int:
    """The number of a client's share, from 1."""
    return 1 + node.clients.index(client)


# --- clients and keys -------------------------------------------------------------------------------------------------

async def answer(c: SealedArithmetic, sizes: Threshold, share: Share) -> None:
    """At a client that has sent its upload: decrypt with its share what the server asks for, if it does."""
    node = c.node
    asked = await node.gather(Ask, [node.server], accept=c.sound("summed"))
    for ask in asked.values():
        each = threshold.partial_seconds(c.box.public.bits, sizes.parties)
        node.send(node.server, Partial(await node.compute("partial", c.box.partial, share, ask.summed,
                                                          cost_s=c.seconds_of(each))))


async def dealer(node: Node, bits: int, sizes: Threshold) -> None:
    """The role that makes the keys."""
    await key_centre.key_centre(node, partial(deal, node, bits, sizes))


def deal(node: Node, bits: int, sizes: Threshold) -> dict[int, KeyParts]:
    """n to the server, n and a share to each client."""
    dealt = threshold.deal(bits, sizes.parties, sizes.tbar, node.stream("keys"))
    n = octets(dealt.public.n)
    return {node.server: (n,), **{k: (n, octets(share.part))
                                  for k, share in zip(node.clients, dealt.shares, strict=True)}}


MESSAGES = (*key_centre.MESSAGES, Ask, Partial)


def wrong_threshold(p: Encrypted, bits: int, clients: int) -> list[str]:
    """Mistakes in these parameters for K clients, for a scheme's `check`."""
    errors = wrong_cohort(p, clients) + wrong_encryption(bits, p.real_up_to)
    if clients > SUMMANDS:
        errors.append(f"bits = {bits}: a slot has room for {SUMMANDS} clients, found {clients}")
    return list(dict.fromkeys(errors))          # both look at real_up_to


def vectors_per_round(p: Encrypted, setting: Setting) -> Analysis:
    """For a scheme's `analysis`: uploads and partial decryptions of a round, beside the messages that there were."""
    sizes = Threshold.of(p, len(setting.roles["client"]))
    return {"uploads_per_round": (float(sizes.parties), "messages.Upload"),
            "partials_per_round": (float(sizes.tbar), "messages.Partial")}
