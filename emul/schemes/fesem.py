"""FeSEM: M models in place of one, every client served by the one that its own weights are nearest to. Xie et al. 2023.

    E   r_k = argmin_m |w_k - c_m|^2                    of the weights w_k that client k has sent
    M   c_m = mean of w_k over r_k = m;  a centre without members keeps its value

Round 1 starts from the same initial parameters for all; the centres then come from k-means of what arrived (k-means++
start, Lloyd's steps until nothing changes). A client that was not heard keeps its centre.

The centres are judged as the models of IFCA are: each cluster of the task, or each client, by that of least loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from emul.protocols.demands import both, shaped, weighed
from emul.protocols.personal import ClientState, Shared, Trained
from emul.protocols.rounds import report_both
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.evaluation import of_all
from emul.roles.example import example

_LLOYD = 100                            # steps at most


@dataclass(frozen=True)
class Params:
    centres: int = 3                    # M
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known
    personal: bool = False              # as in fedavg: `accuracy` is that of the clients' models after local training


@dataclass
class State:
    centres: list[Vector]               # one until round 1 is over, then M of them, or as many as clients were heard
    of_client: dict[int, int] = field(default_factory=dict)     # client -> centre


async def server(node: Node, p: Params) -> None:
    s = node.state(State([node.task.initial_parameters()]))
    sound = both(shaped(parameters=s.centres[0].shape), weighed)
    async for round_ in node.rounds():
        with round_:
            for m, centre in enumerate(s.centres):
                node.broadcast([k for k in node.clients if s.of_client.get(k, 0) == m], Shared(centre))
            got = await node.gather(Trained, node.clients, timeout_s=p.deadline_s, accept=sound)
            sent = {k: m.parameters for k, m in got.items()}
            if sent and len(s.centres) == 1 and p.centres > 1:
                s.centres = await node.compute("k-means", k_means, sent, p.centres, node.stream("k-means"),
                                               work=len(sent) * s.centres[0].size)
            s.centres, chosen = await node.compute("aggregate", step, s.centres, sent,
                                                   work=len(sent) * s.centres[0].size)
            s.of_client |= chosen
            best = node.task.evaluate_best
            node.report(np.concatenate(s.centres), evaluate=partial(of_all, best) if p.personal else best,
                        received=len(got),
                        uploaded=sum(v.size for v in sent.values()), centres=len(set(s.of_client.values())))


async def client(node: Node, p: Params) -> None:
    s = node.state(ClientState(node.task.initial_parameters()))
    async for round_ in node.rounds(of=node.server):
        with round_:
            centre = await node.recv(Shared, node.server, accept=shaped(parameters=s.model.shape))
            delta, samples = await node.compute("train", node.task.local_update, centre.parameters)
            s.model = centre.parameters + delta
            if p.personal:
                report_both(node, centre.parameters, delta)
            node.send(node.server, Trained(s.model, samples))


def assign(centres: list[Vector], sent: Mapping[int, Vector]) -> dict[int, int]:
    """E: {client: nearest centre}, ties to the lower number."""
    found = {}
    for k, w in sorted(sent.items()):
        distances = [float(((w - c).astype(np.float64) ** 2).sum()) for c in centres]
        found[k] = int(np.argmin(distances))
    return found


def step(centres: list[Vector], sent: Mapping[int, Vector]) -> tuple[list[Vector], dict[int, int]]:
    """E, then M: (centres, {client: centre})."""
    chosen = assign(centres, sent)
    after: list[Vector] = []
    for m, centre in enumerate(centres):
        members = [sent[k] for k, c in sorted(chosen.items()) if c == m]
        after.append(np.asarray(np.mean(members, 0, dtype=np.float64), np.float32) if members else centre)
    return after, chosen


def k_means(sent: Mapping[int, Vector], count: int, rng: np.random.Generator) -> list[Vector]:
    """`count` centres of the vectors, or as many as there are vectors. Arthur and Vassilvitskii 2007."""
    points = [w for _, w in sorted(sent.items())]
    centres = [points[int(rng.integers(len(points)))]]
    while len(centres) < min(count, len(points)):
        far = np.array([min(float(((w - c).astype(np.float64) ** 2).sum()) for c in centres) for w in points])
        p = far / far.sum() if far.sum() > 0 else np.full(len(points), 1 / len(points))
        centres.append(points[int(rng.choice(len(points), p=p))])
    chosen: dict[int, int] = {}
    for _ in range(_LLOYD):
        centres, again = step(centres, sent)
        if again == chosen:
            break
        chosen = again
    return centres


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return checks.times(deadline=params.deadline_s) + checks.at_least(1, "1 or more", centres=params.centres)


EXAMPLE = example("fesem", "centres: 2, deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Shared, Trained), timeouts=("deadline_s",),
    check=check, accuracy=lambda p: "personal" if p.personal else "cluster", example=EXAMPLE)
