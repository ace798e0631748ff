"""FedProx: FedAvg whose local loss holds the client near the model that it received. Li et al., MLSys 2020.

    w_k <- argmin~ F_k(w) + (mu / 2) |w - w_g|^2, from w_g          w_g <- sum_k n_k w_k / sum_k n_k

mu = 0 is FedAvg. The evaluated models are the clients' own w_k, after their training, on their own test samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.learning import NodeTask
from emul.learning.objectives import Proximal
from emul.primitives.written import WrittenChoice
from emul.protocols import personal
from emul.protocols.personal import personal_client, personal_server
from emul.protocols.selection import by_plan, telling, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks


@dataclass(frozen=True)
class Params:
    mu: float = 0.01                    # weight of the proximal term
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    await personal_server(node, "all", p.deadline_s, p.selection)


async def client(node: Node, p: Params) -> None:
    def train(task: NodeTask, model: Vector) -> Vector:
        delta, _ = task.minimise(model, task.objective + Proximal(p.mu))
        return model + delta

    await personal_client(node, "all", train, p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (checks.times(deadline=params.deadline_s) + checks.not_negative(mu=params.mu)
            + wrong_selection(params.selection, world))

EXAMPLE = """
emul: 1
name: fedprox
seed: 7
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server*", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedprox, mu: 0.1, deadline: 1 s}]
stop: {rounds: 3}
"""

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=personal.MESSAGES,
    oblivious=lambda p: telling(p.selection), compress=("up", "down"), timeouts=("deadline_s",),
    knows_topology=by_plan, check=check, example=EXAMPLE)
