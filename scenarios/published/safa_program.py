"""For `--plugin`: SAFA as its authors' program computes it (docs/reproductions/others.md).

The scheme `safa` of emul is the paper's protocol: who comes late comes in a later round, and a client goes on with what
it has trained. In the program everybody who does not crash ends within the round, whatever C is, and who crashes keeps
the model with which the round began. So a crash is an outage on the way to the client here, and the server, which has
seen all models, hands each client its own:

    round t     up to date (v_k = t - 1) or deprecated (t - 1 - v_k > lag): w_k <- w;  deprecated: w*_k, too
                w_k <- w_k + local training from w_k, of those that do not crash;  v_k <- t
                P: the first C n of them by number that were not in the last P, then by number of the others
                w*_k <- w_k, k in P;   w = sum_k n_k w*_k / n;   w*_k <- w_k of the others that ended

Deviation: the program fills P by speed and not by number where too few were left out of the last one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from emul import Message, Node, Scheme, Vector
from emul.schemes.safa import merged


@dataclass(frozen=True)
class Begin(Message):
    """Server to client."""

    parameters: Vector              # w_k, (d,) float32


@dataclass(frozen=True)
class Ended(Message):
    """Client to server."""

    parameters: Vector              # w_k, (d,) float32
    samples: int                    # n_k


@dataclass(frozen=True)
class Params:
    fraction: float = 1.0           # C
    lag: int = 5                    # rounds without an update after which a client is synchronised by force


@dataclass
class State:
    model: Vector                                               # w
    local: dict[int, Vector] = field(default_factory=dict)      # w_k
    cache: dict[int, Vector] = field(default_factory=dict)      # w*_k
    versions: dict[int, int] = field(default_factory=dict)      # v_k
    samples: dict[int, int] = field(default_factory=dict)       # n_k
    picked: list[int] = field(default_factory=list)             # P
    last: int = 0                                               # t - 1


async def server(node: Node, p: Params) -> None:
    w = node.task.initial_parameters()
    s = node.state(State(w, *({k: w for k in node.clients} for _ in range(2)), dict.fromkeys(node.clients, 0)))
    async for round_ in node.rounds():
        with round_:
            for k in node.clients:
                if s.last - s.versions[k] > p.lag:
                    s.cache[k], s.versions[k] = s.model, s.last
                if s.versions[k] == s.last:
                    s.local[k] = s.model
                node.send(k, Begin(s.local[k]))
            ended = await node.gather(Ended, node.clients)
            s.local |= {k: one.parameters for k, one in ended.items()}
            s.samples |= {k: one.samples for k, one in ended.items()}
            s.picked = picks(sorted(ended), s.picked, math.ceil(p.fraction * len(node.clients)))
            s.cache |= {k: s.local[k] for k in s.picked}
            s.model = await node.compute("aggregate", merged, s.model, s.cache, s.samples)
            s.cache |= {k: s.local[k] for k in ended}
            s.versions |= dict.fromkeys(ended, node.round)
            s.last = node.round
            node.report(parameters=s.model, received=len(s.picked))


def picks(ended: list[int], before: Collection[int], quota: int) -> list[int]:
    """P, in the order in which it is filled.

    >>> picks([1, 2, 3, 4], [1, 2], 3), picks([1, 2], [1, 2], 3)
    ([3, 4, 1], [1, 2])
    """
    return sorted(ended, key=lambda k: k in before)[:quota]


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            begin = await node.recv(Begin, node.server)
            delta, samples = await node.compute("train", node.task.local_update, begin.parameters)
            node.send(node.server, Ended(begin.parameters + delta, samples))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Begin, Ended))
