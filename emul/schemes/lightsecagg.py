"""LightSecAgg: one random mask a client, shared by a code so that the sum of masks is decoded in one step.

So et al., MLSys 2022. Any T clients together with the server learn nothing but the sum over U2, the clients whose
masked input came in time (semi-honest); any U answers decode it, so n - U may be lost. K = U - T, a share has
w = ceil(d / K) elements of GF(2^31 - 1):

    f_i(k) = segment k of z_i, k = 1..K; random, k = K+1..U; degree U - 1; share j is f_i(U + 1 + j)

Addition: 2 U > n is required, for a server that shows two sets to two halves of the holders would learn single masks.
That does not make an active server harmless: more than T answers of a second set still say something of its masks, so
only n - U <= T keeps all from it.
Ours: the clients' keys, sealed shares and ids are counted as they travel. A holder that lacks a share stays silent,
which the paper leaves open; the behaviour `naive` does not, and gives sums that are wrong.

Stages, messages and their bytes: `emul.protocols.coded_mask`.

Protects: a client's update from the server and up to T colluding clients, who see the sum over U2 alone (semi-honest).
Not: the sum itself, who took part, false inputs, an active server.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.primitives.codes.packed import PackedCode, lagrange_code
from emul.primitives.field import P31
from emul.protocols import coded_mask
from emul.protocols.coded_mask.client import all_of_them, coded_mask_client, those_that_came
from emul.protocols.coded_mask.rules import CodedMaskRules, CodedSum, default_answers, rules_of, without_colluders
from emul.protocols.coded_mask.server import coded_mask_server
from emul.protocols.sums import cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, Scheme, World
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Params(CodedSum):
    colluders: int | None = None            # T; None: floor(n/5)
    answers: int | None = None              # U, of those that decode; None: floor(0.7 n), above n/2 and T


def numbers(p: Params, clients: int) -> tuple[int, int, int]:
    """(n, T, U) of a round."""
    n = cohort_size(p.fraction, clients)
    T = n // 5 if p.colluders is None else p.colluders
    return n, T, default_answers(n, T) if p.answers is None else p.answers


def code_of(p: Params, clients: int) -> PackedCode:
    """The code of a round's n clients."""
    n, T, U = numbers(p, clients)
    return lagrange_code(n, U - T, T)


def rules(p: Params, clients: int) -> CodedMaskRules:
    """The rules that server and clients have agreed on."""
    return rules_of(p, code_of(p, clients), clients)


async def server(node: Node, p: Params) -> None:
    await coded_mask_server(node, rules(p, len(node.clients)), fraction=p.fraction)


async def client(node: Node, p: Params) -> None:
    await coded_mask_client(node, rules(p, len(node.clients)), all_of_them)


async def naive(node: Node, p: Params) -> None:
    """A holder that adds up what it has: with `route: direct` and losses the sum is wrong, without any error."""
    await coded_mask_client(node, rules(p, len(node.clients)), those_that_came)


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = wrong_cohort(params.fraction, world)
    if errors:
        return errors
    n, T, U = numbers(params, world.clients)
    errors = wrong_coding(params, n, P31)
    if not 0 <= T < n:
        errors.append(f"colluders = {T}: bad_parameters: expected 0..{n - 1}, below the clients of a round")
    elif not max(T, n // 2) < U <= n:
        errors.append(f"answers = {U}: bad_parameters: expected {max(T, n // 2) + 1}..{n}: more than T, and more than "
                      f"half of the n = {n} clients, or a server that shows two sets learns single masks")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """A warning of parameters that are allowed and unsafe: T = 0."""
    n, T, _ = numbers(params, world.clients)
    return without_colluders(n, T)


EXAMPLE = example("lightsecagg", "stage_deadline: 500 ms", links=(lossy(p=0.05),))

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=coded_mask.MESSAGES,
    behaviours={"client": {"naive": naive}}, stateless=("client",), oblivious=True,
    timeouts=("stage_deadline_s",), audits=True,
    honest=honest_update, check=check, warn=warn, example=EXAMPLE)
