"""FastSecAgg: LightSecAgg's rounds with the codes of FastShare. Kadhe et al., arXiv:2009.11248.

Each client's mask is shared among n holders in S segments of w = ceil(d / S) elements; the sum of masks is decoded
from sums of shares. Any T clients together with the server learn nothing but the sum over U2 (semi-honest).

    rs         shares are values of a polynomial at the n-th roots of unity; any U = S + T answers decode
    product    FastShare: a product of two Reed-Solomon codes on a grid, decoded line by line. Tolerates *random*
               losses: k0 k1 answers are necessary, and may not suffice. 1.5 to 1.9 times the traffic of `rs`

The paper's details are rebuilt: where the random coefficients stand, the constants, how the masks are used. Its FFT is
not: up to n = 1,000 the product with a matrix is faster.

Stages, messages and their bytes: `emul.protocols.coded_mask`; codes: `emul.primitives.codes`.

Protects: a client's update from the server and up to T colluding clients, who see the sum over U2 alone (semi-honest).
Not: the sum itself, who took part, false inputs, an active server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.codes.packed import Code, roots_code
from emul.primitives.field import P31
from emul.protocols import coded_mask
from emul.protocols.coded_mask.client import coded_mask_client
from emul.protocols.coded_mask.rules import CodedMaskRules, CodedSum, default_answers, rules_of, without_colluders
from emul.protocols.coded_mask.server import coded_mask_server
from emul.protocols.sums import cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, Scheme, World
from emul.roles.example import example, lossy
from emul.schemes.fastsecagg.product import default_parity, default_sides, product_code


@dataclass(frozen=True)
class Params(CodedSum):
    code: Literal["rs", "product"] = "rs"
    colluders: int | None = None            # T; None: floor(n/5), with `product` floor(n/10)
    answers: int | None = None              # `rs`: U = S + T; None: floor(0.7 n), above n/2 and T
    sides: tuple[int, int] | None = None    # `product`: n0, n1, coprime; None: the smallest m, m + 1 with n points
    parity: tuple[int, int] | None = None   # `product`: r0, r1, of each line; None: about a fifth of each


def code_of(p: Params, clients: int) -> Code:
    """The code of a round's n clients. Raises ValueError, saying what is wrong with the parameters."""
    n = cohort_size(p.fraction, clients)
    if p.code == "product":
        T = n // 10 if p.colluders is None else p.colluders
        sides = p.sides or default_sides(n)
        return product_code(n, sides, p.parity or default_parity(n, sides), T)
    T = n // 5 if p.colluders is None else p.colluders
    U = default_answers(n, T) if p.answers is None else p.answers
    return roots_code(n, U - T, T)


def rules(p: Params, clients: int) -> CodedMaskRules:
    """The rules that server and clients have agreed on."""
    return rules_of(p, code_of(p, clients), clients)


async def server(node: Node, p: Params) -> None:
    await coded_mask_server(node, rules(p, len(node.clients)), fraction=p.fraction)


async def client(node: Node, p: Params) -> None:
    await coded_mask_client(node, rules(p, len(node.clients)))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, errors = params, wrong_cohort(params.fraction, world)
    if errors:
        return errors
    n = cohort_size(p.fraction, world.clients)
    try:
        code = code_of(p, world.clients)
    except ValueError as e:
        return [*wrong_coding(p, n, P31), f"code = {p.code}: bad_parameters: {e}"]
    errors = wrong_coding(p, n, code.p)
    if not n < 2 * code.need <= 2 * n:
        errors.append(f"code = {p.code}: bad_parameters: {code.need} answers can decode, expected more than half of "
                      f"the n = {n} clients, or a server that shows two sets learns single masks, and at most {n}")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """A warning of parameters that are allowed and unsafe: T = 0."""
    n = cohort_size(params.fraction, world.clients)
    per = 10 if params.code == "product" else 5
    return without_colluders(n, n // per if params.colluders is None else params.colluders)


EXAMPLE = example("fastsecagg", "stage_deadline: 500 ms", topology="star, clients: 6", links=(lossy(p=0.05),))

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=coded_mask.MESSAGES, stateless=("client",),
    oblivious=True, timeouts=("stage_deadline_s",), audits=True, honest=honest_update, check=check, warn=warn,
    example=EXAMPLE)
