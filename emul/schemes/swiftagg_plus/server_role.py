"""The server's side of the coded-input protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.codes.packed import Code, width
from emul.primitives.field import Elements
from emul.protocols.channels import introduce
from emul.protocols.demands import Demand, demand, elements
from emul.protocols.sums import Begin, Seen, summing_server
from emul.roles import Node, Vector
from emul.schemes.swiftagg_plus.messages import Agreed, Held, Total
from emul.schemes.swiftagg_plus.rules import Seating, SwiftAggRules, bits_of, members_of, seat


async def coded_input_server(node: Node, rules: SwiftAggRules, *, fraction: float) -> None:
    """Rounds of the coded-input protocol. A round that fails keeps the model. fraction: of the clients, drawn each
    round."""
    await summing_server(node, partial(coded_sum, node, rules), rules.codec, fraction=fraction, audit=rules.audit)


async def coded_sum(node: Node, rules: SwiftAggRules, U0: list[int], model: Vector,
                    seen: Seen) -> tuple[Elements, list[int]]:
    """(sum of x_i over all A_g, (d',) uint32 mod p; who they are). Fills `seen` with what a round reports.

    Raises TooFewClients, `too_few_clients` or `too_few_sequences`, and NotDecodable.
    """
    code, size = rules.code, model.size + rules.codec.extra
    node.offer("cohort", U0)
    node.broadcast(U0, Begin(model))
    U1 = await introduce(node, U0, code.n, rules.deadline_s)
    seating = seat(U1, code.n)
    G = len(seating.groups)
    seen |= {"U0": len(U0), "U1": len(U1), "groups": G}

    holders = [j for g in range(G) for j in seating.seats(g)]
    held = await node.gather(Held, holders, timeout_s=rules.stages_s(2), accept=by_group(seating))
    live = living(seating, held)
    seen["sequences"] = len(live)
    enough_sequences("hold shares", len(live), code)
    agreed = agreements(seating, held, live)
    contributors = sorted(set().union(*agreed))
    seen["contributors"] = len(contributors)
    if len(contributors) < rules.least:
        raise TooFewClients(f"too_few_clients: shares: {len(contributors)} of {len(U1)} clients are held by every seat "
                            f"of their group, need {rules.least}")
    for g, A in enumerate(agreed):
        node.broadcast([seating.seats(g)[s] for s in live], Agreed(bits_of(seating.groups[g], A)))

    last = {seating.seats(G - 1)[s]: s for s in live}
    totals = await node.gather(Total, list(last), need=len(last) if rules.verify else code.need,
                               timeout_s=rules.stages_s(G + 1),
                               accept=elements("values", width(size, code.segments), code.p))
    seen["sequences"] = len(totals)
    enough_sequences("have come", len(totals), code)
    summed = await node.compute("decode", decoded, {last[j]: m.values for j, m in totals.items()}, code, size,
                                rules.verify, work=code.segments * size)
    return summed, contributors


def enough_sequences(what: str, have: int, code: Code) -> None:
    """Raise TooFewClients, `too_few_sequences`, below what the code needs."""
    if have < code.need:
        raise TooFewClients(f"too_few_sequences: {have} of {code.n} sequences {what}, need {code.need}")


def by_group(seating: Seating) -> Demand:
    """A set of the sender's group, with the sender, who holds its own share."""
    def accept(message: Held) -> None:
        group = seating.groups[seating.group_of(message.sender)]
        demand(message.sender in members_of(group, message.members), "members: without the sender")
    return accept


def living(seating: Seating, held: Mapping[int, Held]) -> list[int]:
    """The sequences of which every seat has said whose shares it holds. One silent seat ends its sequence."""
    return [s for s in range(seating.size) if all(j in held for j in seating.sequence(s))]


def agreements(seating: Seating, held: Mapping[int, Held], live: Sequence[int]) -> list[set[int]]:
    """A_g of each group: whose share every seat of a living sequence holds."""
    found = []
    for g, group in enumerate(seating.groups):
        seats = seating.seats(g)
        found.append(set(group).intersection(*(members_of(group, held[seats[s]].members) for s in live)))
    return found


def decoded(totals: Mapping[int, np.ndarray], code: Code, size: int, verify: bool) -> Elements:
    """Sum of the inputs, (size,) uint32, from {seat: its sequence}."""
    return code.decode(totals, verify).reshape(-1)[:size]
