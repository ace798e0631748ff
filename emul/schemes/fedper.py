"""FedPer: the layers at the front are shared, those behind are each client's own. Arivazhagan et al. 2019.

    (u_k, v_k) <- local training of (u, v_k), both together          u <- sum_k n_k u_k / sum_k n_k

u: by default the convolutions, 5,280 of the 21,840 parameters of `mnist_classic`; v_k, the fully connected layers, is
never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.learning import NodeTask
from emul.primitives.written import WrittenChoice
from emul.protocols import personal
from emul.protocols.personal import personal_client, personal_server, wrong_model
from emul.protocols.selection import by_plan, telling, wrong_selection
from emul.roles import Node, Scheme, Vector, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    shared: Literal["convolutions", "representation"] = "convolutions"
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    await personal_server(node, p.shared, p.deadline_s, p.selection)


async def client(node: Node, p: Params) -> None:
    def train(task: NodeTask, model: Vector) -> Vector:
        delta, _ = task.local_update(model)
        return model + delta

    await personal_client(node, p.shared, train, p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return wrong_model(world) + wrong_selection(params.selection, world) + checks.times(deadline=params.deadline_s)

EXAMPLE = example("fedper", "deadline: 1 s", model="digits_classic")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=personal.MESSAGES,
    oblivious=lambda p: telling(p.selection), compress=("up", "down"), timeouts=("deadline_s",),
    knows_topology=by_plan, check=check, accuracy="personal", example=EXAMPLE)
