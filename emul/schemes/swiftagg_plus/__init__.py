"""SwiftAgg+: clients code their inputs, seats of groups add them up along chains, the server decodes K + T sequences.

Jahani-Nezhad et al., arXiv:2203.13060. Any T clients together with the server learn nothing but the sum over the
contributors (semi-honest); any D dead sequences do no harm. Groups of nu = K + T + D seats, w = ceil(d / K):

    a client sends (1 + (T + D) / K) d in all, the server receives (1 + T / K) d and D sequences more; n (nu + 1) / 2
    links carry something

Additions: the seats of a group agree on whose shares they hold; the paper takes a client's shares to arrive all or
none, and without the agreement one lost share makes the sum wrong without any error (behaviour `naive`). A sequence
with a silent seat is given up at the agreement, so that it costs no contributors. Clients beyond the last full group
join a group without a seat. Rebuilt: the seats (ascending), messages and keys.

The chains: share_s(x_i), s = 1..nu, say nothing of x_i to any T of them, K + T of them give it. A client sends share_s
to seat s of its own group only. Seat s of group g adds up what its group sent and what seat s of group g - 1 has added
up, and passes it on; the last group's seats send theirs to the server. Sequence s is share s of the sum of all inputs,
and K + T sequences decode it. The seats agree on whose shares they add up: each tells the server whose it holds, and
the server answers with A_g, whom every seat of the group holds. The sum is over all A_g.

U0 selected > U1 sent keys, in ascending order: seat by seat, group by group. A client that is left over joins a group
without a seat: it sends shares and holds none.

`messages`  what travels
`rules`     what server and clients have agreed on, and who sits where
`server_role`   its stages
`client_role`   a member of a group, with a seat or without

Protects: a client's update from the server and up to T colluding clients, who see the sum alone (semi-honest). Not: the
sum itself, who took part, false inputs, an active server.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.primitives.codes.packed import PackedCode, lagrange_code
from emul.primitives.field import P31
from emul.protocols.sums import WeightedSum, codec, cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, Scheme, World, checks
from emul.roles.example import example, lossy
from emul.schemes.swiftagg_plus import messages
from emul.schemes.swiftagg_plus.client_role import all_held, coded_input_client, those_agreed
from emul.schemes.swiftagg_plus.rules import SwiftAggRules
from emul.schemes.swiftagg_plus.server_role import coded_input_server


@dataclass(frozen=True)
class Params(WeightedSum):
    segments: int | None = None             # K; None: max(1, n // 5)
    colluders: int | None = None            # T; None: max(1, n // 10)
    dropouts: int | None = None             # D, sequences that may die; None: max(1, n // 10)
    least: int = 3                          # contributors of a sum that is not refused


def numbers(p: Params, clients: int) -> tuple[int, int, int, int]:
    """(n, K, T, D) of a round."""
    n = cohort_size(p.fraction, clients)
    return (n, max(1, n // 5) if p.segments is None else p.segments,
            max(1, n // 10) if p.colluders is None else p.colluders,
            max(1, n // 10) if p.dropouts is None else p.dropouts)


def code_of(p: Params, clients: int) -> PackedCode:
    """The code of the seats of a group."""
    _, K, T, D = numbers(p, clients)
    return lagrange_code(K + T + D, K, T)


def rules(p: Params, clients: int) -> SwiftAggRules:
    """The rules that server and clients have agreed on."""
    return SwiftAggRules(code_of(p, clients), codec(p, clients, P31), p.least, p.verify_spare, p.stage_deadline_s,
                         p.audit)


async def server(node: Node, p: Params) -> None:
    await coded_input_server(node, rules(p, len(node.clients)), fraction=p.fraction)


async def client(node: Node, p: Params) -> None:
    await coded_input_client(node, rules(p, len(node.clients)), those_agreed)


async def naive(node: Node, p: Params) -> None:
    """A seat that adds up what it holds, whatever was agreed: with losses the sum is wrong, without any error."""
    await coded_input_client(node, rules(p, len(node.clients)), all_held)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = wrong_cohort(params.fraction, world)
    if errors:
        return errors
    n, K, T, D = numbers(params, world.clients)
    errors = wrong_coding(params, n, P31)
    errors += checks.at_least(1, "1 or more: bad_parameters", segments=K)
    errors += checks.at_least(0, "0 or more: bad_parameters", colluders=T, dropouts=D)
    if params.least < 2:
        errors.append(f"least = {params.least}: expected 2 or more: the sum of one client is its update")
    if n < K + T + D:
        errors.append(f"segments = {K}: bad_parameters: a group of K + T + D = {K} + {T} + {D} seats needs as many "
                      f"clients, a round has n = {n}")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """A warning of parameters that are allowed and unsafe: T = 0."""
    if numbers(params, world.clients)[2] > 0:
        return []
    return ["colluders = 0: a share is a combination of the segments of an input, and each seat reads its own"]


EXAMPLE = example("swiftagg_plus", "stage_deadline: 500 ms", topology="star_mesh, clients: 6",
                  links=(lossy("client*<->client*", p=0.02, per="message"),))

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=messages.MESSAGES,
    behaviours={"client": {"naive": naive}}, stateless=("client",), oblivious=True,
    timeouts=("stage_deadline_s",), audits=True,
    honest=honest_update, check=check, warn=warn, example=EXAMPLE)
