"""FLTrust: what the server learns from its root data says whom it trusts, and how far. Cao et al., NDSS 2021, Alg. 2.

    TS_i = max(0, cos(g_i, g_0));  w <- w + rate * sum_i TS_i (|g_0| / |g_i|) g_i / sum_i TS_i

g_0 is what local training gives on the root data (`root` of the task) from the same model as the clients' g_i.
Deviation: the server trains before it sends the model, see `emul.protocols.robust`.

Protects: the model from malicious updates, by their cosine with the update of the server's root data. Not: updates from
the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from emul.primitives.written import WrittenChoice
from emul.protocols import rounds
from emul.protocols.robust import robust_server
from emul.protocols.rounds import synchronous_client, train_once
from emul.protocols.selection import by_plan, wrong_selection
from emul.roles import Node, Scheme, World, checks
from emul.roles.example import example


@dataclass(frozen=True)
class Params:
    rate: float = 1.0                   # alpha, the global learning rate
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    personal: bool = False              # as in fedavg: `accuracy` is that of the clients' models after local training
    selection: WrittenChoice | None = None     # as in fedavg: a rule that chooses who takes part


async def server(node: Node, p: Params) -> None:
    await robust_server(node, "fltrust", None, fraction=p.fraction, deadline_s=p.deadline_s,
                        personal=p.personal, rate=p.rate, selection=p.selection)


async def client(node: Node, p: Params) -> None:
    await synchronous_client(node, partial(train_once, node), personal=p.personal, selection=p.selection)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    wrong = checks.positive(rate=params.rate) + checks.fractions(fraction=params.fraction) \
        + checks.times(deadline=params.deadline_s) + wrong_selection(params.selection, world, params.fraction)
    if not checks.root_samples(world.task):
        wrong.append("no root data at the server: expected root in the task, such as {samples: 100}")
    return wrong


EXAMPLE = example("fltrust", "deadline: 1 s", task=("root: {samples: 50}",))

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=rounds.MESSAGES, stateless=("client",),
    compress=("up", "down"), timeouts=("deadline_s",), honest=rounds.honest_update,
    knows_topology=by_plan, check=check, accuracy=rounds.accuracy_of, example=EXAMPLE)
