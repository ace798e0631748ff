"""The coordinate-wise trimmed mean of the updates. Yin, Chen, Kannan, Bartlett, ICML 2018, Algorithm 1, option II.

    w <- w + mean of each coordinate without its f largest and its f least values       f given, or floor(beta n)

Protects: the model from up to f malicious updates. Not: updates from the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from emul.base.plain import PlainDict
from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.robust import robust_server, wrong_rule
from emul.protocols.rounds import synchronous_client, train_once
from emul.protocols.selection import by_plan, wrong_selection
from emul.roles import Node, Scheme, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    f: int | None = None                # values cut off at each end
    beta: float | None = None           # or the share of them
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    personal: bool = False              # as in fedavg: `accuracy` is that of the clients' models after local training
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


def rule(p: Params) -> PlainDict:
    """As `aggregate:` of fedavg would say it."""
    return {"trimmed_mean": {name: value for name, value in (("f", p.f), ("beta", p.beta)) if value is not None}}


async def server(node: Node, p: Params) -> None:
    await robust_server(node, rule(p), None, fraction=p.fraction, deadline_s=p.deadline_s,
                        personal=p.personal, selection=p.selection)


async def client(node: Node, p: Params) -> None:
    await synchronous_client(node, partial(train_once, node), personal=p.personal, selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    found = (checks.fractions(fraction=params.fraction) + checks.times(deadline=params.deadline_s)
             + wrong_selection(params.selection, world, params.fraction))
    said = f"f = {params.f}" if params.f is not None else f"beta = {params.beta}"
    return found + [f"{said}: {text.partition(': ')[2].removeprefix('trimmed_mean: ')}"
                    for text in wrong_rule(rule(params), params.fraction, world, params.selection)]


EXAMPLE = example("trimmed_mean", "f: 1, deadline: 1 s")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    compress=("up", "down"), timeouts=("deadline_s",), honest=rounds.honest_update,
    knows_topology=by_plan, check=check, accuracy=rounds.accuracy_of, example=EXAMPLE)
