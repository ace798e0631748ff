"""The most frequent values of the clients, found bit by bit. After Zhu et al., AISTATS 2020 (arXiv 1902.08534).

    round       the server asks for counts of the prefixes that the ones so far can go on with, `step` bits longer
    client k    counts them over its values (+ its share of noise)
    server      keeps those whose sum, under the masks of `secagg`, is at least `at_least`; after `bits` / `step` rounds
                these are the values, and it begins anew

So that of 2^bits values only those are counted whose prefixes are frequent. Deviations: the paper samples clients that
vote for one prefix each, and is private by that sampling; here all values of a client are counted, sums are secure, and
`epsilon` adds distributed noise to each count of each round (`emul.protocols.counts`): a search of r rounds spends
r epsilon.

The server learns the counts of the prefixes that it asked for, over the clients in time, and nothing else as long as it
holds the shares of fewer than t clients; clients learn which prefixes are frequent.

Protects: a client's values from the server and fewer than t colluding clients, who see counts of the prefixes that it
asked for; `epsilon`: a sample from all who see them. Not: frequent prefixes from the clients; false counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from emul.protocols.counts import (
    MESSAGES,
    MOST_BINS,
    Counting,
    counting_client,
    summed_counts,
    values_of,
    wrong_counting,
)
from emul.protocols.demands import ascending, demand
from emul.roles import Message, Node, Scheme, Vector, Words, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Extend(Message):
    """Server to client: the round is open."""

    length: int                             # bits of these prefixes
    prefixes: Words                         # (P,), ascending


@dataclass(frozen=True)
class Params(Counting):
    bits: int = 4                           # of a value: 0 .. 2^bits - 1
    step: int = 2                           # by which prefixes grow in a round; divides bits
    at_least: int = 100                     # samples of a prefix that is kept


@dataclass
class State:
    length: int = 0
    prefixes: list[int] = field(default_factory=lambda: [0])


async def server(node: Node, p: Params) -> None:
    s = node.state(State())
    async for round_ in node.rounds():
        with round_:
            ask = Extend(s.length, np.array(s.prefixes, np.uint32))
            counts, clients = await summed_counts(node, p, ask, len(s.prefixes) << p.step)
            kept = np.flatnonzero(counts >= p.at_least)
            found = [(s.prefixes[at >> p.step] << p.step) + (at & ((1 << p.step) - 1)) for at in kept.tolist()]
            length = s.length + p.step
            values = [number for value, at in zip(found, kept, strict=True) for number in (value, counts[at])]
            node.report(np.array(values, np.float32), evaluate=partial(right, values_of(node, p, clients), p, length),
                        clients=len(clients), kept=len(found), length=length)
            over = length == p.bits or not found
            s.length, s.prefixes = (0, [0]) if over else (length, found)


async def client(node: Node, p: Params) -> None:
    def accept(ask: Extend) -> None:
        demand(0 <= ask.length < p.bits and ask.length % p.step == 0, "length: none of this search")
        demand(0 < len(ask.prefixes) << p.step <= MOST_BINS, "prefixes: too many, or none")
        ascending("prefixes", ask.prefixes, range(1 << ask.length))

    await counting_client(node, p, Extend, accept, partial(count, p))


def count(p: Params, values: np.ndarray, ask: Extend) -> np.ndarray:
    """The count of each longer prefix, (P 2^step,) int64, those of a prefix beside each other."""
    known = ask.prefixes.astype(np.int64)
    longer = values[(values >= 0) & (values < 1 << p.bits)] >> (p.bits - ask.length - p.step)
    place = np.searchsorted(known, longer >> p.step).clip(max=len(known) - 1)
    there = known[place] == longer >> p.step
    at = (place[there] << p.step) + (longer[there] & ((1 << p.step) - 1))
    found: np.ndarray = np.bincount(at, minlength=len(known) << p.step)
    return found


def right(truth: Callable[[], np.ndarray], p: Params, length: int, kept: Vector) -> dict[str, float]:
    """{"precision", "recall"} of the prefixes that were kept, off the clock. kept: (prefix, count), one after the
    other."""
    values = truth()
    prefixes, counts = np.unique(values[(values >= 0) & (values < 1 << p.bits)] >> (p.bits - length),
                                 return_counts=True)
    frequent, found = set(prefixes[counts >= p.at_least].tolist()), {int(v) for v in kept[::2]}
    both = len(frequent & found)
    return {"precision": both / len(found) if found else 1.0, "recall": both / len(frequent) if frequent else 1.0}


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, errors = params, wrong_counting(params, world)
    if not 1 <= p.bits <= 24:
        errors.append(f"bits = {p.bits}: expected 1..24")
    elif not (1 <= p.step <= p.bits and p.bits % p.step == 0):
        errors.append(f"step = {p.step}: expected a number that divides bits = {p.bits}")
    return errors + checks.at_least(1, "a number of samples, 1 or more", at_least=p.at_least)


EXAMPLE = example("heavy_hitters", "epsilon: 1.0, stage_deadline: 500 ms", topology="star_mesh, clients: 4",
                  links=(lossy("client4->server*", p=0.2),), rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Extend, *MESSAGES), stateless=("client",),
    oblivious=True, timeouts=("stage_deadline_s",), check=check, accuracy="none", example=EXAMPLE)
