"""SwiftAgg+: clients code their inputs, seats of groups add them up along chains, the server decodes K + T sequences.

Jahani-Nezhad et al., arXiv:2203.13060. Any T clients together with the server learn nothing but the sum over the
contributors (semi-honest); any D dead sequences do no harm. Groups of nu = K + T + D seats, w = ceil(d / K):

    a client sends (1 + (T + D) / K) d in all, the server receives (1 + T / K) d and D sequences more; n (nu + 1) / 2
    links carry something

Additions: the seats of a group agree on whose shares they hold; the paper takes a client's shares to arrive all or
none, and without the agreement one lost share makes the sum wrong without any error (behaviour `naive`). A sequence
with a silent seat is given up at the agreement, so that it costs no contributors. Clients beyond the last full group
join a group without a seat. Rebuilt: the seats (ascending), messages and keys.

Stages, messages and their bytes: `emul.protocols.coded_input`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.codes.packed import PackedCode, lagrange_code
from emul.primitives.field import P31
from emul.protocols import coded_input
from emul.protocols.coded_input.client import all_held, coded_input_client, those_agreed
from emul.protocols.coded_input.rules import Rules
from emul.protocols.coded_input.server import coded_input_server
from emul.protocols.sums import codec, cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, World, checks


@dataclass(frozen=True)
class Params:
    segments: int | None = None             # K; None: max(1, n // 5)
    colluders: int | None = None            # T; None: max(1, n // 10)
    dropouts: int | None = None             # D, sequences that may die; None: max(1, n // 10)
    least: int = 3                          # contributors of a sum that is not refused
    verify_spare: bool = False              # hold the sequences beyond K + T against the sum: it waits for all of them
    # of the keys; of the sharing, with the training; of the agreement; of each hop. None: until the fates are known
    stage_deadline_s: float | None = None
    bits: int = 16                          # of a quantised value
    clip: float = 1.0                       # values of an update outside [-clip, clip] are cut, and counted
    fraction: float = 1.0                   # of the clients, drawn each round
    # "samples" sends n_k x_k and n_k: it needs sum n_k (2^bits - 1) < p, hence the default
    weights: Literal["samples", "uniform"] = "uniform"
    audit: bool = False                     # leave inputs and sums in the run directory


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


def rules(p: Params, clients: int) -> Rules:
    """What server and clients have agreed on."""
    return Rules(code_of(p, clients), codec(p, clients, P31), p.least, p.verify_spare, p.stage_deadline_s, p.audit)


async def server(node: Node, p: Params) -> None:
    await coded_input_server(node, rules(p, len(node.clients)), fraction=p.fraction)


async def client(node: Node, p: Params) -> None:
    await coded_input_client(node, rules(p, len(node.clients)), those_agreed)


async def naive(node: Node, p: Params) -> None:
    """A seat that adds up what it holds, whatever was agreed: with losses the sum is wrong, without any error."""
    await coded_input_client(node, rules(p, len(node.clients)), all_held)


HONEST = honest_update
MESSAGES = coded_input.MESSAGES
ROLES = {"server": server, "client": client}
OBLIVIOUS = True
BEHAVIOURS = {"naive": naive}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
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
    """What is allowed and unsafe: T = 0."""
    if numbers(params, world.clients)[2] > 0:
        return []
    return ["colluders = 0: a share is a combination of the segments of an input, and each seat reads its own"]


EXAMPLE = """
emul: 1
name: swiftagg_plus
seed: 7
topology: {generator: star_mesh, clients: 6}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*<->client*", outage: {model: bernoulli, p: 0.02, per: message}}
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [{name: swiftagg_plus, stage_deadline: 500 ms}]
stop: {rounds: 3}
"""
