"""Secure aggregation by double masking. Bonawitz et al., CCS 2017, figure 4.

The server learns the sum of the updates of U3, the clients whose masked input came in time, and nothing else, as long
as it sees the shares of fewer than t clients (semi-honest). With `adversary: active` it may also deviate: keys are
signed, and a client reveals nothing before t clients have signed the U3 that it was shown. Each stage closes a set, and
only the set counts from then on: U0 selected > U1 sent keys > U2 shared > U3 sent a masked input > U4 signed U3 (active
only) > U5 revealed shares. A client that dies (`emul.kernel.faults`: its role is closed, what it has sent still
arrives) is in none of the sets that close later; a stage waits for it until the deadline, and below t the round fails.

    y_i = x_i + PRG(b_i) + sum_{j in N_i & U2} sgn(i, j) PRG(s_ij)      in Z_2^32, sgn(i, j) = +1 if i < j, else -1
    sum_{U3} x = sum_{U3} y - sum_{U3} PRG(b_i) - sum_{j in U2 - U3} sum_{i in N_j & U3} sgn(j, i) PRG(s_ij)

Deviation: by default (`route: direct`) encrypted shares go from client to client, not through the server. The masks run
over the U2 that the server announces: of each of its members it has heard that the shares are out, which is not that
they have come. A share that is lost is missing at the unmasking, and up to n - t of those of one client may be. More of
them end the round for all, since the masks of that client are in the sum and nobody can take them off: so one client
whose links to the others are down, or that says `Shared` and sends no shares, ends every round (TooFewClients). With
`route: server` lost links between clients do not count, but a client that encrypts rubbish does the same.

`receipts` (an addition) prevents both. With its masked input a client says whose shares it lacks, or cannot open. A
client that is lacked, and whose shares fewer than t others have, is in K and leaves U3, and of K the others reveal the
seeds s_ij of their pair masks in place of shares. Of a client in K its input stays behind its self mask, of which
nobody reveals a share. These limits stay: with K not empty, each of U3 around it has to answer the last stage; two
clients that collude can end a round; and shares that open but are false make the sum wrong, or the round void with
`verify_spare`.

Stages, messages and their bytes: `emul.protocols.pairwise`.

Protects: a client's update from the server and fewer than t colluding clients, who see the sum over U3 alone;
`adversary: active`: also from a server that deviates. Not: the sum itself, who took part, false inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.crypto.graphs import complete
from emul.protocols import pairwise
from emul.protocols.pairwise.quantised import PairwiseSum, join, serve
from emul.protocols.sums import cohort_size, honest_update, wrong_coding, wrong_cohort
from emul.roles import Node, Scheme, World
from emul.roles.example import example


@dataclass(frozen=True)
class Params(PairwiseSum):
    # t, shares that give a secret; None: floor(2n/3) + 1. At n/2 or below, a server that shows two versions of U3 to
    # two halves of the clients learns both secrets of one
    threshold: int | None = None
    route: Literal["direct", "server"] = "direct"               # of encrypted shares
    adversary: Literal["semi_honest", "active"] = "semi_honest"


def threshold(p: Params, clients: int) -> int:
    """t, by default floor(2n/3) + 1 for the n clients drawn each round: sound against server and n/3 clients."""
    return p.threshold if p.threshold is not None else 2 * cohort_size(p.fraction, clients) // 3 + 1


async def server(node: Node, p: Params) -> None:
    await serve(node, p, complete, threshold(p, len(node.clients)), p.adversary == "active")


async def client(node: Node, p: Params) -> None:
    await join(node, p, threshold(p, len(node.clients)), p.adversary == "active")


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, errors = params, wrong_cohort(params.fraction, world)
    if not 0 < p.fraction <= 1:
        return errors
    n, t = cohort_size(p.fraction, world.clients), threshold(p, world.clients)
    if n >= 2 and not 2 <= t <= n:
        errors.append(f"threshold = {p.threshold}: expected 2..{n}, the clients of a round")
    elif p.receipts and p.adversary == "active":
        errors.append("receipts: expected with adversary: semi_honest: what clients have signed says nothing of K")
    elif p.adversary == "active" and 2 * t <= n:
        errors.append(f"threshold = {t}: against an active server more than half of the {n} clients of a round, so "
                      "that no two sets of survivors find t signatures each")
    return errors + wrong_coding(p, n)


def warn(params: Params, world: World) -> list[str]:
    """A warning of parameters that are allowed and unsafe: unless 2 t > n + c, a server that shows two versions of U3
    and c clients that help it learn both secrets of one."""
    n, t = cohort_size(params.fraction, world.clients), threshold(params, world.clients)
    if params.adversary == "active" and 2 * t == n + 1:
        return [f"threshold = {t}: with a single one of the {n} clients of a round a deviating server unmasks single "
                f"updates; sound against c of them from {n // 2 + 1} + c/2 on"]
    if 2 * t > n:
        return []
    return [f"threshold = {t}: at most half of the {n} clients of a round; a server that tells two parts of them "
            f"different survivors unmasks single updates; against a server alone sound from {n // 2 + 1} on"]


EXAMPLE = example("secagg", "stage_deadline: 500 ms", topology="star_mesh, clients: 5")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=pairwise.MESSAGES, stateless=("client",),
    unsent=lambda p: pairwise.unsent(p.route), oblivious=True, timeouts=("stage_deadline_s",), audits=True,
    honest=honest_update, check=check, warn=warn, example=EXAMPLE)
