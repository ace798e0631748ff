"""Fair-SecCoGC: the exact mean of all K updates, or nothing, over links that fail. Weng et al., arXiv 2507.07565, 2025.

Each client masks its update with a key, shares it with the relays that need it, and relays one fixed combination of
what it hears; the keys of all sum to zero, so any K - s complete combinations give the mean without them.

    Y_k = Delta_k + N_k                             N = A Z, Z i.i.d. N(0, 1), columns of A sum to 0: sum_k N_k = 0
    S_k = sum_{m in U_k} g_km Y_m                   U_k: whose updates relay k needs, the support of row k of G
    Theta_ref += 1/K sum_{k in F} b_k S_k           F: the complete sums that arrived; sum_{k in F} b_k G_k = (1, .., 1)

Delta_k = Theta_k - Theta_ref. After a success all go on from Theta_ref; after a failure each from its own Theta_k, so
that Delta_k is all of its training since the last success (`on_failure: continue`), or it sends the same Delta_k
again under a new key (`repeat`). `decoder: rowspace` also uses incomplete sums, with the rows that they really have.
Keys are fresh in every round (`emul.schemes.fair_seccogc.keys`). The dealer is the second server, or a node of the role
`dealer`; never the server that decodes.

Variants: `seccogc` (Construction III.1 for A), `cogc` (lambda = 0: no keys, no set-up), `gc` (`training: replicated`:
clients hold the data of all of U_k, train on all of it and share nothing).

A client that is gone for good would fail all rounds. With `rekey_after` or `rekey_at` the server asks who is there, and
those go on alone: fresh keys, a code of their number K' with the largest s' <= s that it allows, the mean of K'.

Deviations: an incomplete sum stays at home unless `send_incomplete`. Set-up runs inside the first round and, should it
fail, the next; its messages travel again until they are answered. A client that missed the model of a success sits out
until it has asked for it.

Messages and their bytes: `messages`, `emul.protocols.setup`.

`messages`          what travels
`group`             who takes part: the code and the keys that a group has, and how one is made anew
`keys`              masks that add up to zero: from pairs, from a dealer, from seeds of components
`relay`             a client's set-up, and what the code makes of it
`sums`              the equations of the updates: masked, combined, decoded
`theory`            reliability, transmissions, convergence, and what observers learn
`gradient_coding`   the codes; `outage` how often they fail; `secure_keys` the matrices that keys are made of

Protects: an update from the server and from relays, by keys that cancel in the sum of all: the server sees exact sums
or nothing. Not: the sum itself, a dealer that colludes, false updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from emul.base.errors import ProtocolFailure
from emul.base.plain import PlainDict
from emul.learning import NodeTask
from emul.protocols.demands import shaped
from emul.protocols.setup import exchange_keys
from emul.roles import Analysis, Node, Realised, Scheme, Setting, Vector, World, checks
from emul.roles.example import example
from emul.schemes.fair_seccogc import keys, messages, theory
from emul.schemes.fair_seccogc.group import (
    Design,
    GroupMembers,
    code_of,
    gather_sums,
    regroup,
    tell_group,
    wrong_design,
)
from emul.schemes.fair_seccogc.messages import Continue, Deal, DealTo, GroupSum, Masked, Model, ModelRequest, PartialSum
from emul.schemes.fair_seccogc.relay import Behind, GroupMember, opening, relay_of
from emul.schemes.fair_seccogc.sums import combine, decode, heard_by, masked_update


@dataclass(frozen=True)
class Params:
    s: int                                  # a relay needs s others; s lost partial sums do no harm
    lambda_: float = 0.1                    # standard deviation of a key, per coordinate; 0: no keys
    # cyclic_mds: K - s odd, K up to about 20. fractional: s + 1 divides K; always well conditioned. tandon: any s, the
    # best of `screen` random draws
    code: Literal["cyclic_mds", "fractional", "tandon"] = "cyclic_mds"
    screen: int = 20                        # draws of a `tandon` code, of which the best is kept
    # the protocol that makes the keys
    keys: Literal["pairwise", "dealer", "component_seeds", "common_seed"] = "pairwise"
    # of the key generator A: fair_cyclic (IV.2), fair_general (IV.1, falling back to the next), fair_projection (ours),
    # random (III.1)
    construction: Literal["fair_cyclic", "fair_general", "fair_projection", "random"] = "fair_cyclic"
    gamma: int | None = None                # of `fair_cyclic`, the others in a row of A; None: K - 1
    training: Literal["own", "replicated"] = "own"          # on one's own data, or on the data of all of U_k
    send_incomplete: bool = False           # also send partial sums that lack an update
    decoder: Literal["complete", "rowspace"] = "complete"   # rowspace: uses incomplete sums, too
    # repeat: the same Delta_k is sent again under a new key
    on_failure: Literal["continue", "repeat"] = "continue"
    max_error: float | None = None          # a decoded mean whose predicted error is larger counts as not decodable
    clip: float | None = None               # R: Delta_k is scaled down to this l2 norm when sent; LDP needs it
    finish_at: int | None = None            # T: end with the first success at or after this round; None: the scenario's
    share_s: float | None = None            # relays wait that long for masked updates; None: until fates are known
    uplink_s: float | None = None           # the server waits that long for sums; None: until fates are known
    rekey_after: int | None = None          # failed rounds in a row, after which the group is made anew
    rekey_at: tuple[int, ...] = ()          # rounds that begin with making it anew
    setup_s: float | None = None            # requests without answer by then are sent again; None: once known
    zeta: float | None = None               # of the analysis: std of an update per coordinate; None: lambda
    ldp_delta: float = 1e-5                 # of the analysis


def design(p: Params) -> Design:
    """The design of the code and the keys."""
    return Design(p.s, p.code, p.screen, p.lambda_, p.keys, p.construction, p.gamma)


# --- server ---------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    model: Vector                                       # Theta_ref
    group: GroupMembers
    version: int = 0                                    # successes so far
    failed: int = 0                                     # rounds since the last one
    announced: bool = False                             # the model was sent; until a success, only `Continue` follows


async def server(node: Node, p: Params) -> None:
    s = node.state(ServerState(node.task.initial_parameters(), GroupMembers(node.clients, unsure=set(node.clients))))
    group = s.group
    now, G = await code_of(node, design(p), group.members)
    async for round_ in node.rounds():
        with round_:
            complete: list[int] = []
            sums: Mapping[int, PartialSum] = {}
            try:
                if group.asked or round_ in p.rekey_at or (p.rekey_after and group.in_vain >= p.rekey_after):
                    await regroup(node, design(p), group, p.setup_s)
                    now, G = await code_of(node, design(p), group.members)
                await set_up(node, now, s, p.setup_s)
                await open_round(node, s)
                sums = await gather_sums(node, group, G, s.model.size, p.uplink_s)          # F
                members, K = group.members, len(group.members)
                heard = {members.index(k): heard_by(G, members.index(k), m) for k, m in sums.items()}
                complete = [k for k, row in heard.items() if np.array_equal(row, G[k])]
                rows = heard if p.decoder == "rowspace" else {k: G[k] for k in complete}
                decoded = await node.compute(
                    "decode", decode, K, rows, {k: sums[members[k]].sum for k in rows},
                    None if p.decoder == "rowspace" else K - now.s, p.max_error, work=len(rows) * s.model.size)
            except ProtocolFailure:
                s.failed, group.in_vain = s.failed + 1, group.in_vain + 1
                node.report(parameters=s.model, received=len(sums), complete=len(complete), decoded=False,
                            **of_group(p, group))
                raise
            s.model, s.version, s.failed, s.announced = s.model + decoded.mean, s.version + 1, 0, False
            group.in_vain = 0
            node.report(parameters=s.model, received=len(sums), complete=len(complete), decoded=True,
                        amplification=decoded.amplification, predicted_error=decoded.predicted_error,
                        **of_group(p, group))
            if p.finish_at is not None and round_ >= p.finish_at:
                return


async def set_up(node: Node, now: Design, s: ServerState, timeout_s: float | None) -> None:
    """See to it that the group has what it makes its keys of. Raises TooFewClients."""
    group = s.group
    if group.epoch and group.unsure:
        await tell_group(node, group, timeout_s)
    elif now.of_pairs and group.unsure:
        await exchange_keys(node, node.clients, group.keys, group.unsure, timeout_s)
    if now.dealt:
        node.send(keys.dealer_of(node), DealTo(s.model.size, np.array(group.members, np.int32)) if group.epoch else
                  Deal(s.model.size))


async def open_round(node: Node, s: ServerState) -> None:
    """After a success the model to the group; after a failure only to those of it who have asked for it."""
    # a set-up that fails opens no round for the clients, so it is none that they trained in
    s.failed = s.failed if s.announced else 0
    behind = members = s.group.members
    if s.announced:
        behind = list(await node.gather(ModelRequest, members, timeout_s=0))
        node.broadcast([k for k in members if k not in behind], Continue(s.version, s.failed))
    node.broadcast(behind, Model(s.version, s.failed, s.model))
    s.announced = True


def of_group(p: Params, group: GroupMembers) -> PlainDict:
    """The values that are reported if the group may change."""
    return {"members": len(group.members), "rekeyings": group.epoch} if p.rekey_after or p.rekey_at else {}


async def dealer(node: Node, p: Params) -> None:
    await keys.dealer(node, design(p))


# --- client ---------------------------------------------------------------------------------------------------------

@dataclass
class ClientState:
    member: GroupMember
    reference: Vector | None = None                     # Theta_ref, the last global model received
    version: int = -1                                   # its number
    deltas: dict[int, Vector] = field(default_factory=dict)     # owner of the data -> Delta, trained since
    runs: int = 0                                       # local runs in them


async def client(node: Node, p: Params) -> None:
    how = design(p)
    s = node.state(ClientState(GroupMember(node.clients)))
    r = await relay_of(node, how, s.member)
    async for round_ in node.rounds(of=node.server):
        with round_:
            message = await opening(node, how, s.member, p.setup_s)
            if r.epoch != s.member.epoch:
                r = await relay_of(node, how, s.member)
            take_over(node, p, s, message)
            if how.of_pairs and not s.member.shared:
                raise Behind("the key ring has not come")
            if not s.deltas or p.on_failure == "continue":
                assert s.reference is not None          # a model has come, or `take_over` has raised
                data: dict[int, int | None] = {node.id: None}
                if p.training == "replicated":
                    data = {m: node.clients.index(m) for m in r.U}
                s.deltas = await node.compute("train", train_on, node.task, s.reference, s.deltas, data,
                                              work=len(data))
                s.runs += 1
            ys: Mapping[int, Vector] = s.deltas
            if p.training == "own":
                delta = s.deltas[node.id]
                key, drawn = await keys.own_key(node, how, s.member, round_, p.setup_s)                   # N_k
                y = await node.compute("mask", masked_update, delta, p.clip, key, work=drawn * delta.size)
                node.broadcast([v for v in r.V if v != node.id], Masked(y))
                heard = await node.gather(Masked, [m for m in r.U if m != node.id], timeout_s=p.share_s,
                                          accept=shaped(y=y.shape))
                if len(heard) < len(r.U) - 1 and not p.send_incomplete:
                    continue                    # leaves the round: nobody waits for its sum
                ys = {m: y if m == node.id else heard[m].y for m in r.U if m == node.id or m in heard}
            g = {m: r.row[m] for m in ys}
            total = await node.compute("combine", combine, g, ys, work=len(ys) * s.deltas[node.id].size)  # S_k
            bitmap = np.packbits([m in ys for m in r.U])
            node.send(node.server, GroupSum(bitmap, total, s.member.epoch) if s.member.epoch else
                      PartialSum(bitmap, total))


def take_over(node: Node, p: Params, s: ClientState, message: Model | Continue) -> None:
    """Start from the model that came. Raises Behind, having asked for it, if it is one that never came."""
    failed = message.failed
    if isinstance(message, Model):
        if message.version != s.version:
            s.reference, s.version, s.deltas, s.runs = message.parameters, message.version, {}, 0
    elif message.version != s.version:
        # its Delta_k would count what is in the global model already
        node.send(node.server, ModelRequest())
        raise Behind(f"the server continues from model {message.version}, which has not come")
    if p.training == "replicated" and s.runs != (min(failed, 1) if p.on_failure == "repeat" else failed):
        # other holders of the same data have trained on it more often, or less: the sums would not fit each other
        raise Behind(f"{s.runs} local runs since model {s.version}, the others have {failed}")


def train_on(task: NodeTask, reference: Vector, deltas: Mapping[int, Vector], data: Mapping[int, int | None],
             ) -> dict[int, Vector]:
    """Delta after training from Theta_ref + Delta, (d,) float32, for each of `data`: {whose: its share; None: own}."""
    after = {}
    for m, share in data.items():
        before = deltas.get(m)
        theta = reference if before is None else reference + before
        update = task.local_update(theta)[0] if share is None else task.local_update(theta, share=share)[0]
        after[m] = update if before is None else before + update
    return after


def unneeded(params: Params) -> tuple[str, ...]:
    """Pairs of clients make their keys without a dealer."""
    return () if design(params).dealt else ("dealer",)


# --- before a run and after it ----------------------------------------------------------------------------------------

def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, K = params, world.clients
    if K < 2:
        return [f"s = {p.s}: {K} clients, a sum needs at least 2"]
    errors = wrong_design(design(p), K)
    errors += checks.not_negative(lambda_=p.lambda_)
    if p.decoder == "rowspace" and not p.send_incomplete:
        errors.append("decoder = rowspace: needs send_incomplete: true")
    errors += checks.at_least(1, "a round, 1 or above", finish_at=p.finish_at)
    errors += checks.at_least(1, "1 failed round or more", rekey_after=p.rekey_after)
    if any(round_ < 1 for round_ in p.rekey_at):
        errors.append(f"rekey_at = {list(p.rekey_at)}: expected rounds, 1 or above")
    if (p.rekey_after or p.rekey_at) and p.lambda_ and p.keys in ("component_seeds", "common_seed"):
        errors.append(f"keys = {p.keys}: their seeds are for all clients; to make groups anew, use pairwise or dealer")
    return (errors + checks.probabilities(ldp_delta=p.ldp_delta)
            + checks.positive(max_error=p.max_error, clip=p.clip, zeta=p.zeta)
            + checks.times(share=p.share_s, uplink=p.uplink_s, setup=p.setup_s))


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Reliability, transmissions, convergence; with keys also what observers learn."""
    p, replicated = params, params.training == "replicated"
    found = theory.reliability(design(p), setting, replicated=replicated, send_incomplete=p.send_incomplete,
                               rowspace=p.decoder == "rowspace")
    if replicated:
        return found
    same = not (p.rekey_after or p.rekey_at)                # else groups change, and with them who hears whom
    return found | theory.privacy(design(p), setting, run if same else None, zeta=p.zeta, clip=p.clip,
                                  delta=p.ldp_delta)


EXAMPLE = example("fair_seccogc", "s: 2, share: 200 ms, uplink: 500 ms, setup: 1 s", topology="star_mesh, clients: 5")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client, "dealer": dealer}, messages=messages.MESSAGES,
    places={"dealer": "dealer | server[1]"}, without=unneeded, oblivious=True,
    timeouts=("share_s", "uplink_s", "setup_s"), check=check, analysis=analysis, example=EXAMPLE)
