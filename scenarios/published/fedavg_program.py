"""For `--plugin`: FedAvg as the program of SAFA's authors computes it (docs/reproductions/others.md).

    w = sum_k n_k w_k / n over *all* clients; w_k is the model of the round's begin where k was not drawn or crashed.

A crash is an outage on the way to the client. n_k of those that have never answered is the mean of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from safa_program import Begin, Ended, client

from emul import Node, Scheme
from emul.schemes.safa import merged


@dataclass(frozen=True)
class Params:
    fraction: float = 1.0           # C


async def server(node: Node, p: Params) -> None:
    w = node.state(node.task.initial_parameters())
    samples: dict[int, int] = {}
    async for round_ in node.rounds():
        with round_:
            drawn = node.sample(node.clients, p.fraction)
            for k in drawn:
                node.send(k, Begin(w))
            ended = await node.gather(Ended, drawn)
            samples |= {k: one.samples for k, one in ended.items()}
            models = dict.fromkeys(node.clients, w) | {k: one.parameters for k, one in ended.items()}
            w = await node.compute("aggregate", merged, w, models, samples)
            node.report(parameters=w, received=len(ended))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Begin, Ended))
