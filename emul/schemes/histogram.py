"""A histogram of what the clients hold, of which the server learns the sum alone: the smallest scheme without a model.

    client k    x_k[v] = how often it has the value v (+ its share of noise)
    server      sum over k of x_k                                   under the masks of `secagg`

Values are labels, or a column of whole numbers of the data; what is not in 0 .. bins - 1 is not counted. With `epsilon`
the sum is differentially private for one sample that is there or not (`emul.protocols.counts`); every round is a new
release of the same data, so that r rounds spend r epsilon.

The server learns the sums over the clients whose input came in time, and who they are; nothing else as long as it holds
the shares of fewer than t clients. Without `epsilon` sums over sets that differ by one client give that client away.

Protects: a client's counts from the server and fewer than t colluding clients, who see their sum alone; `epsilon`: a
sample from all who see the sum. Not: sums of sets that differ by one client, without `epsilon`; false counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from emul.protocols.demands import demand
from emul.roles import Message, Node, Scheme, Vector, World
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Ask(Message):
    """Server to client: the round is open."""

    bins: int


@dataclass(frozen=True)
class Params(Counting):
    bins: int = 10                          # values 0 .. bins - 1 are counted


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            counts, clients = await summed_counts(node, p, Ask(p.bins), p.bins)
            node.report(counts.astype(np.float32), evaluate=partial(error, values_of(node, p, clients)),
                        clients=len(clients), counted=int(counts.sum()))


async def client(node: Node, p: Params) -> None:
    def accept(ask: Ask) -> None:
        demand(ask.bins == p.bins, "bins: another number than was agreed on")

    await counting_client(node, p, Ask, accept, count)


def count(values: np.ndarray, ask: Ask) -> np.ndarray:
    """The count of each value, (bins,) int64."""
    found: np.ndarray = np.bincount(values[(values >= 0) & (values < ask.bins)], minlength=ask.bins)
    return found


def error(truth: Callable[[], np.ndarray], counts: Vector) -> dict[str, float]:
    """{"error"}: the sum of |count - true count| over the number of samples, off the clock."""
    expected = count(truth(), Ask(len(counts)))
    return {"error": float(np.abs(counts - expected).sum() / max(1, expected.sum()))}


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = wrong_counting(params, world)
    if not 1 <= params.bins <= MOST_BINS:
        errors.append(f"bins = {params.bins}: expected 1..{MOST_BINS}")
    return errors


EXAMPLE = example("histogram", "epsilon: 1.0, stage_deadline: 500 ms", topology="star_mesh, clients: 4",
                  links=(lossy("client4->server*", p=0.2),), rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Ask, *MESSAGES), stateless=("client",),
    oblivious=True, timeouts=("stage_deadline_s",), check=check, accuracy="none", example=EXAMPLE)
