"""FedRep: a shared representation, and a head of each client's own, trained one after the other. Collins et al. 2021.

    v_k <- `head_epochs` epochs of the head, body frozen        u_k <- `body_epochs` epochs of the body, head frozen
    u <- sum_k n_k u_k / sum_k n_k

u: everything but the last layer, or the convolutions alone (what the traffic of the paper's table counts).
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
    head_epochs: int = 1
    body_epochs: int = 1
    shared: Literal["representation", "convolutions"] = "representation"
    deadline_s: float | None = None     # of a round at the server; None: until the fates are known
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    await personal_server(node, p.shared, p.deadline_s, p.selection)


async def client(node: Node, p: Params) -> None:
    def train(task: NodeTask, model: Vector) -> Vector:
        head, _ = task.local_update(model, epochs=p.head_epochs, only="decision")
        model = model + head
        body, _ = task.local_update(model, epochs=p.body_epochs, only="representation")
        return model + body

    await personal_client(node, p.shared, train, p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return (wrong_model(world) + wrong_selection(params.selection, world) + checks.times(deadline=params.deadline_s)
            + checks.at_least(0, "a number of epochs, 0 or more", head_epochs=params.head_epochs,
                              body_epochs=params.body_epochs))

EXAMPLE = example("fedrep", "deadline: 1 s", model="digits_classic")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=personal.MESSAGES,
    oblivious=lambda p: telling(p.selection), compress=("up", "down"), timeouts=("deadline_s",),
    knows_topology=by_plan, check=check, accuracy="personal", example=EXAMPLE)
