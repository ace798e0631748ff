"""U-shaped split learning: the first and the last layers are at the clients, and no label leaves them. Gupta and Raskar
2018; Vepakomma et al., arXiv 1812.00564, figure 2b.

    client k    a = f_bottom(x)                                     sends a
    server      z = f_middle(a)                                     sends z
    client k    L(f_head(z), y), h = dL/dz; f_head steps            sends h
    server      f_middle steps from h                               sends g = dL/da
    client k    f_bottom steps from g

As `split` otherwise: clients have their turns one after the other, the server hands bottom and head on, in the clear.
A batch takes two round trips where `split` takes one.

It leaks: the server sees activations and gradients of every sample. It sees no label, but h tells labels apart:
`emul attack RUN --by label_leakage` measures how well. It sees the bottom and the head on their way.

Protects: raw samples and labels, which never travel. Not: activations and gradients, which the server sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.protocols import split
from emul.protocols.split import Cut, Layer, in_turn, one_after_the_other, wrong_cut
from emul.roles import Node, Scheme, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True, kw_only=True)
class Params(Cut):
    head: Layer                         # name of the last layer at the server; those behind it are at the clients
    deadline_s: float | None = None     # of each wait; None: until the fate of what is awaited is known


async def server(node: Node, p: Params) -> None:
    await one_after_the_other(node, p, p.head, p.deadline_s)


async def client(node: Node, p: Params) -> None:
    await in_turn(node, p, p.head, p.deadline_s)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return checks.times(deadline=params.deadline_s) + wrong_cut(params, world, params.head)


EXAMPLE = example("u_split", "cut: 2, head: 8, deadline: 2 s", topology="star, clients: 3",
                  links=(lossy("client3->server", per="message"),), model="digits_classic",
                  solver="lr: 0.1, steps: 2, batch: 16", rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=split.MESSAGES, compress=("up", "down"),
    timeouts=("deadline_s",), batches=True, check=check, example=EXAMPLE)
