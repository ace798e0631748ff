"""Split learning: the model is cut, and every batch goes from a client to the server and back. Gupta and Raskar,
Journal of Network and Computer Applications 2018 (arXiv 1810.06060), Algorithms 1 and 2.

    client k    a = f_bottom(x)                                     sends a and the labels y
    server      L(f_top(a), y), g = dL/da; f_top steps              sends g
    client k    f_bottom steps from g

Clients have their turns one after the other, each from the bottom of the one before; a round is a turn of each. A turn
has the batches of a local training (`task.solver`), so that the model is the one that would be trained on the same
batches in one place. Each piece keeps the state of its optimiser where it is.

Deviations: the bottom goes from client to client through the server, as in the paper's centralised mode, but not
encrypted. In `micro_batches` > 1 gradients add up to the batch's; `in_flight` > 1 is asynchronous, and not the paper's.

It leaks: the server sees the activations and labels of every sample, and the bottom, by which inputs can be searched
for. Clients see gradients of their activations and the bottom that others have trained.

Protects: raw samples, which never travel. Not: activations, gradients and labels, which the server sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.protocols import split
from emul.protocols.split import Cut, in_turn, one_after_the_other, wrong_cut
from emul.roles import Node, Scheme, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Params(Cut):
    deadline_s: float | None = None     # of each wait; None: until the fate of what is awaited is known


async def server(node: Node, p: Params) -> None:
    await one_after_the_other(node, p, timeout_s=p.deadline_s)


async def client(node: Node, p: Params) -> None:
    await in_turn(node, p, timeout_s=p.deadline_s)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return checks.times(deadline=params.deadline_s) + wrong_cut(params, world)


EXAMPLE = example("split", "cut: 2, deadline: 2 s", topology="star, clients: 3",
                  links=(lossy("client3->server", per="message"),), model="digits_mlp",
                  solver="lr: 0.1, steps: 2, batch: 16", rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=split.LABELS_AT_SERVER, compress=("up", "down"),
    timeouts=("deadline_s",), batches=True, check=check, example=EXAMPLE)
