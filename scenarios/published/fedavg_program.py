"""For `--plugin`: FedAvg as the program of SAFA's authors computes it (docs/reproductions/others.md).

    w = sum_k n_k w_k / n over *all* clients; w_k is the model of the round's begin where k was not drawn or crashed.

A crash is an outage on the way to the client. n_k of those that have never answered is the mean of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from safa_program import Begin, Ended, client

from emul import Node, Scheme, Vector
from emul.schemes.safa import merged


@dataclass(frozen=True)
class Params:
    fraction: float = 1.0           # C


@dataclass
class State:
    model: Vector                                               # w
    samples: dict[int, int] = field(default_factory=dict)       # n_k


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            drawn = node.sample(node.clients, p.fraction)
            for k in drawn:
                node.send(k, Begin(s.model))
            ended = await node.gather(Ended, drawn)
            s.samples |= {k: one.samples for k, one in ended.items()}
            models = dict.fromkeys(node.clients, s.model) | {k: one.parameters for k, one in ended.items()}
            s.model = await node.compute("aggregate", merged, s.model, models, s.samples)
            node.report(parameters=s.model, received=len(ended))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Begin, Ended))
