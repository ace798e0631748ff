"""The server's side of the coded-mask protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from emul.primitives.codes.packed import Code, width
from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES
from emul.primitives.field import Elements, subtract, total
from emul.protocols.channels import closed, ids_of, introduce
from emul.protocols.coded_mask.messages import (
    Answer,
    Coded,
    Masked,
    Relayed,
    Shared,
    Sharers,
    Survivors,
    joined,
)
from emul.protocols.coded_mask.rules import CodedMaskRules
from emul.protocols.demands import Demand, demand, elements, shaped
from emul.protocols.sums import Begin, Seen, summing_server
from emul.roles import Node, Vector


async def coded_mask_server(node: Node, rules: CodedMaskRules, *, fraction: float) -> None:
    """Rounds of the coded-mask protocol. A round that fails keeps the model. fraction: of the clients, drawn each
    round."""
    await summing_server(node, partial(masked_sum, node, rules), rules.codec, fraction=fraction, audit=rules.audit)


async def masked_sum(node: Node, rules: CodedMaskRules, U0: list[int], model: Vector,
                     sets: Seen) -> tuple[Elements, list[int]]:
    """(sum of x_i over U2, (d',) uint32 mod p; U2). Fills `sets` as the stages close.

    Raises TooFewClients, naming the stage, below what the code needs, and NotDecodable.
    """
    code, deadline_s = rules.code, rules.deadline_s
    size = model.size + rules.codec.extra
    w = width(size, code.segments)
    sets["U0"] = U0
    node.offer("cohort", U0)
    node.broadcast(U0, Begin(model))
    keyed = sets["Keys"] = await introduce(node, U0, code.need, deadline_s)
    relay = through_server if rules.route == "server" else between_clients
    U1 = sets["U1"] = await relay(node, keyed, code.need, w, deadline_s)

    masked = await node.gather(Masked, U1, timeout_s=deadline_s, accept=elements("y", size, code.p))
    U2 = sets["U2"] = closed("masked input", masked, len(U1), code.need)    # later ones are not summed
    node.broadcast(U2, Survivors(ids_of(U2)))

    enough = code.enough if not rules.verify and code.enough is not None else len(U2)
    answers = await node.gather(Answer, U2, timeout_s=deadline_s, need=min(enough, len(U2)),
                                accept=elements("values", w, code.p))
    sets["U3"] = closed("answers", answers, len(U2), code.need)
    summed = await node.compute("unmask", unmasked_sum, masked, answers, keyed, code, size, rules.verify,
                                work=(len(U2) + code.segments) * size)
    return summed, U2


async def through_server(node: Node, keyed: Sequence[int], need: int, w: int, deadline_s: float | None) -> list[int]:
    """U1, whose shares the server has passed on: one message to each of U1 with what all others of U1 have for it."""
    coded = await node.gather(Coded, keyed, timeout_s=deadline_s, accept=shares_for_others(keyed, w))
    U1 = closed("shares", coded, len(keyed), need)
    for j in U1:
        node.send(j, await node.compute("relay", relayed, coded, U1, keyed, j, work=len(U1) * w))
    return U1


async def between_clients(node: Node, keyed: Sequence[int], need: int, w: int, deadline_s: float | None) -> list[int]:
    """U1, who say that their shares are out. Only the receivers know whether these arrive."""
    shared = await node.gather(Shared, keyed, timeout_s=deadline_s)
    U1 = closed("shares", shared, len(keyed), need)
    node.broadcast(U1, Sharers(ids_of(U1)))
    return U1


def shares_for_others(keyed: Sequence[int], w: int) -> Demand:
    """A box for each of the others, in their order."""
    boxes = shaped(boxes=(len(keyed) - 1, 4 * w + SEAL_OVERHEAD_BYTES))

    def accept(message: Coded) -> None:
        demand(message.ids.tolist() == [j for j in keyed if j != message.sender], "ids: not those of all others")
        boxes(message)
    return accept


def relayed(coded: Mapping[int, Coded], U1: Sequence[int], keyed: Sequence[int], j: int) -> Relayed:
    """The shares that the others of U1 have for j."""
    others = [i for i in U1 if i != j]
    place = keyed.index(j)                      # among the boxes of i, which has none for itself
    return Relayed(ids_of(others), joined([coded[i].boxes[place - (i < j)] for i in others]))


def unmasked_sum(masked: Mapping[int, Masked], answers: Mapping[int, Answer], keyed: Sequence[int], code: Code,
                 size: int, verify: bool) -> Elements:
    """Sum of x_i over U2, (size,) uint32. A holder's place in the code is its place among those that sent keys."""
    place = {j: k for k, j in enumerate(keyed)}
    z = code.decode({place[j]: answer.values for j, answer in answers.items()}, verify)
    return subtract(total([m.y for m in masked.values()], size, code.p), z.reshape(-1)[:size], code.p)
