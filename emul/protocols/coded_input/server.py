"""The server's side of the coded-input protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.base.errors import ProtocolFailure, TooFewClients
from emul.primitives.codes.packed import Code, width
from emul.primitives.field import Elements
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.channels import introduce
from emul.protocols.coded_input.messages import Agreed, Begin, Held, Total
from emul.protocols.coded_input.seats import Seating, bits_of, members_of, seat
from emul.protocols.demands import Demand, demand, elements
from emul.roles import Node, Vector


@dataclass
class State:
    model: Vector


async def coded_input_server(node: Node, code: Code, codec: SumOfUpdates, *, least: int, fraction: float, verify: bool,
                             deadline_s: float | None) -> None:
    """Rounds of the coded-input protocol. A round that fails keeps the model.

    code: of the nu seats of a group. least: the fewest contributors whose sum may be known. fraction: of the clients,
    drawn each round. verify: hold spare sequences against the sum. deadline_s: of the keys, of the sharing, of the
    agreement and of each hop of a chain; None: until the fates are known.
    """
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            sets: dict[str, Any] = {}
            try:
                U0 = node.sample(node.clients, fraction)
                sets["U0"] = len(U0)
                summed = await coded_sum(node, U0, code, s.model, codec.extra, least, verify, deadline_s, sets)
                s.model = await node.compute("aggregate", codec.add_mean, s.model, summed, sets["contributors"],
                                             work=summed.size)
            except ProtocolFailure:
                node.report(parameters=s.model, **sets)
                raise
            node.report(parameters=s.model, **sets)


async def coded_sum(node: Node, U0: list[int], code: Code, model: Vector, extra: int, least: int, verify: bool,
                    deadline_s: float | None, sets: dict[str, Any]) -> Elements:
    """The sum of x_i over all A_g, (d',) uint32 mod p. Fills `sets`: U1, contributors, sequences.

    Raises TooFewClients, `too_few_clients` or `too_few_sequences`, and NotDecodable.
    """
    size = model.size + extra
    w = width(size, code.segments)
    node.offer("cohort", U0)
    node.broadcast(U0, Begin(model))
    U1 = await introduce(node, U0, code.n, deadline_s)
    seating = seat(U1, code.n)
    G = len(seating.groups)
    sets |= {"U1": len(U1), "groups": G}

    holders = [j for g in range(G) for j in seating.seats(g)]
    held = await node.gather(Held, holders, timeout_s=None if deadline_s is None else 2 * deadline_s,
                             accept=by_group(seating))
    live = living(seating, held)
    sets["sequences"] = len(live)
    if len(live) < code.need:
        raise TooFewClients(f"too_few_sequences: {len(live)} of {code.n} sequences hold shares, need {code.need}")
    agreed = agreements(seating, held, live)
    sets["contributors"] = sum(len(A) for A in agreed)
    if sets["contributors"] < least:
        raise TooFewClients(f"too_few_clients: shares: {sets['contributors']} of {len(U1)} clients are held by every "
                            f"seat of their group, need {least}")
    for g, A in enumerate(agreed):
        node.broadcast([seating.seats(g)[s] for s in live], Agreed(bits_of(seating.groups[g], A)))

    last = {seating.seats(G - 1)[s]: s for s in live}
    totals = await node.gather(Total, list(last), need=len(last) if verify else code.need,
                               timeout_s=None if deadline_s is None else (G + 1) * deadline_s,
                               accept=elements("values", w, code.p))
    sets["sequences"] = len(totals)
    if len(totals) < code.need:
        raise TooFewClients(f"too_few_sequences: {len(totals)} of {code.n} sequences have come, need {code.need}")
    return await node.compute("decode", decoded, {last[j]: m.values for j, m in totals.items()}, code, size, verify,
                              work=code.segments * size)


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
