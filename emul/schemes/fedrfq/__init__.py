"""FedRFQ: pooled class prototypes, averaged by servers that agree on them. Yan et al., arXiv 2401.07558, corrected.

    client k    L = cross entropy + lambda * sum over classes j of the batch of mean over its samples of |p - G^j|
                p = pool(C), (n',);  P_k^j = mean of p over the samples of class j, as integers of 2^-20, signed
    servers     N = 3f + 1 of them gather P_k and agree by PBFT on F(P, psi): the mean over the holders of each class,
                without the psi clients that lie farthest from it (`emul.schemes.fedrfq.prototypes`)
    client k    takes G when f + 1 servers have sent the same bytes; else keeps its old one

Clients' models are never sent. Every server that is not faulty sends the same G, byte for byte, as long as no more than
f are. With more, a round ends after `round_timeout` as `NoQuorum`, and clients keep G.

Deviations: the printed aggregation divides twice (`aggregate: printed` keeps it: prototypes collapse to 0); lambda is
0.1, not 1, with which learning on MNIST is slow. Servers without any upload agree that there is none. After its
decision a server stays for up to two view timeouts for those that a faulty leader has kept out.

Bytes of the arrays, without headers: Upload 8 + 4 n' a class held and a signature, to each server; Result the same for
all classes, to each client; among servers (N - 1) (2 N + 1) messages without faults (`emul.protocols.agreement`).

Protects: prototypes from up to f faulty servers of 3f + 1, by agreement, and from psi outlying clients a class. Not:
prototypes from the servers, which see each one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import comb
from typing import Any, Literal

import numpy as np

from emul.learning import NodeTask
from emul.learning.models import BUILT_IN, name_of
from emul.learning.objectives import PrototypePull
from emul.learning.pooling import PoolError, Pooling
from emul.primitives.bft.faults import FAULTS, ServerBehaviour
from emul.primitives.bft.pbft import Certificate, ServerGroup, VoteJournal, body_digest
from emul.protocols import agreement
from emul.protocols.agreement.clients import Undecided, Upload, agreed, upload
from emul.protocols.agreement.servers import Ballot, NoQuorum, Voter, accepted, agree, dropped, linger, tell
from emul.roles import Analysis, Message, Node, Realised, Scheme, Setting, Vector, World, checks
from emul.roles.example import example
from emul.schemes.fedrfq import prototypes


@dataclass(frozen=True)
class Params:
    lambda_: float = 0.1                # weight of the distance
    loss: Literal["l2_sum", "l2_mean", "mse"] = "l2_sum"
    pool: Literal["soft", "avg", "max", "adaptive_avg", "adaptive_max", "none"] = "soft"
    map: tuple[int, int] = (5, 10)      # rows and columns of C; their product is n
    kernel: int = 3
    stride: int = 1
    psi: int = 0                        # clients that are filtered a round
    aggregate: Literal["mean", "weighted", "printed"] = "mean"
    predict: Literal["model", "nearest"] = "model"      # the evaluated prediction: the own model, or the nearest G^j
    faults: int = 1                     # f; at least 3 f + 1 servers
    view_timeout_s: float = 0.1         # T; at least 10 latencies and the time of F
    round_timeout_s: float = 1.0        # of an agreement
    upload_deadline_s: float | None = None      # of a round at the servers; None: until the fates are known
    result_timeout_s: float | None = None       # of a client, after its upload; None: until the fates are known


# --- clients --------------------------------------------------------------------------------------------------------

@dataclass
class ClientState:
    model: Vector                       # (d,) float32, this client's own
    prototypes: dict[int, Vector] = field(default_factory=dict)         # G as it knows it: class -> (n',) float32


async def client(node: Node, p: Params) -> None:
    pool = pooling(p)
    s = node.state(ClientState(node.task.initial_parameters()))
    async for round_ in node.rounds(sync=node.servers, quorum=p.faults + 1):
        with round_:
            s.model, own, counts = await node.compute("train", train, node.task, s.model, dict(s.prototypes), p)
            node.report(s.model, evaluate=node.task.evaluate_own if p.predict == "model" or not s.prototypes else
                        partial(node.task.evaluate_nearest, means=dict(s.prototypes), pool=pool))
            try:
                body = await node.compute("encode", encode, own, counts, p, work=len(own))
            except prototypes.InvalidUpload:         # its features have left all bounds: it has nothing to say
                node.abstain(node.servers, Upload)
            else:
                await upload(node, round_, body, node.servers)
            said = await agreed(node, round_, p.faults, p.result_timeout_s)
            if said is not None:
                found = prototypes.from_bytes(said, pool.length(node.task.feature_size), node.task.classes)
                s.prototypes = s.prototypes | prototypes.to_float(found.prototypes)                      # G


def train(task: NodeTask, model: Vector, means: dict[int, Vector], p: Params,
          ) -> tuple[Vector, dict[int, Vector], dict[int, int]]:
    """(the model after local training, the own prototypes of pooled features, samples of each class)."""
    pool = pooling(p)
    pull = PrototypePull.to(means, task.classes, p.lambda_, p.loss, pool)
    found: tuple[Vector, dict[int, Vector], dict[int, int]] = task.train_prototypes(model, task.objective + pull, pool)
    return found


def encode(own: Mapping[int, Vector], counts: Mapping[int, int], p: Params) -> bytes:
    """The body of an upload; with the numbers of samples where they are weights."""
    return prototypes.to_bytes(prototypes.quantise(own), None if p.aggregate == "mean" else
                          {j: counts.get(j, 1) for j in own})


# --- servers --------------------------------------------------------------------------------------------------------

@dataclass
class ServerState:
    journal: VoteJournal | None = None      # votes of the newest round
    last: Certificate | None = None     # the decision of round `journal.t` - 1, for servers that are behind
    within: int = 0                     # the round that this server is in; 0: in none. Of a crash it still says so


async def server(node: Node, p: Params, fault: type[ServerBehaviour] = ServerBehaviour, delay_s: float = 0.0) -> None:
    """fault: what this server does wrong. delay_s: before everything that it sends to other servers."""
    pool, group = pooling(p), ServerGroup(len(node.servers), p.faults, round(p.view_timeout_s * 1e9))
    s = node.state(ServerState())
    away, s.within = s.within > 0, 0
    later: list[Message] = []           # ViewChanges of rounds to come
    async for round_ in node.rounds(sync=node.servers, quorum=p.faults + 1):
        with round_:
            s.within = int(round_)
            length, classes = pool.length(node.task.feature_size), node.task.classes
            excluded: dict[bytes, tuple[int, ...]] = {}
            ballot = Ballot(partial(prototypes.from_bytes, length=length, classes=classes,
                                    counted=p.aggregate != "mean"), partial(F, p=p, excluded=excluded), numbers)
            # after a crash nobody sends it again what it has lost: the others have it
            got = {} if away else await node.gather(Upload, node.clients, timeout_s=p.upload_deadline_s)
            if s.journal is None or s.journal.t != round_:
                s.last = s.journal.decision if s.journal is not None and s.journal.t == round_ - 1 else None
                s.journal = VoteJournal(int(round_))
            wrong = fault()
            voter = Voter(node, wrong.machine(group, node.index, s.journal), ballot, wrong, delay_s)
            entries = await accepted(voter, got)
            try:
                decided = await agree(voter, entries, p.round_timeout_s, s.last, later, away)
            except NoQuorum:
                node.broadcast(node.clients, Undecided())
                node.report(received=len(entries), decided=False, rejected=dropped(voter))
                s.within = 0
                raise
            away, body = False, decided.proposal.result
            await tell(voter, body)
            uploads = {e.client: ballot.bodies[e.client, e.digest][1] for e in decided.proposal.entries}
            G = prototypes.to_float(prototypes.from_bytes(body, length, classes).prototypes)
            node.report(np.concatenate([*G.values()] or [np.zeros(0, np.float32)]),
                        evaluate=partial(quality, uploads), received=len(entries), decided=True, view=decided.view,
                        uploaded=sum(map(numbers, uploads.values())),
                        agreed=body_digest(body).hex()[:16], classes=len(G), rejected=dropped(voter),
                        excluded=" ".join(node.world.names[k] for k in excluded.get(body, ())))
            await linger(voter, 2 * p.view_timeout_s, s.last, later)
            s.within = 0


def F(inputs: dict[int, prototypes.Upload], p: Params, excluded: dict[bytes, tuple[int, ...]]) -> bytes:
    """The bytes to agree on; whom the filter left out is noted."""
    found = prototypes.filtered_mean(inputs, p.psi, p.aggregate)
    body = prototypes.to_bytes(found.prototypes)
    excluded[body] = found.excluded
    return body


def numbers(upload: prototypes.Upload) -> int:
    """The count of values in an upload."""
    return sum(vector.size for vector in upload.prototypes.values())


def quality(uploads: Mapping[int, prototypes.Upload], _: Vector) -> dict[str, float]:
    """Silhouette and failure rate of the prototypes that were agreed on, off the clock."""
    from emul.learning.prototypes import quality as of

    return of({k: u.prototypes for k, u in uploads.items()})


def pooling(p: Params) -> Pooling:
    return Pooling(p.pool, *p.map, p.kernel, p.stride)


# --- what may be faulty ---------------------------------------------------------------------------------------------

async def crashed(node: Node, p: Params) -> None:
    """A server that is not there."""


async def slow(node: Node, p: Params) -> None:
    """A server that takes a quarter of the view timeout for everything that it sends to the others."""
    await server(node, p, delay_s=p.view_timeout_s / 4)


async def two_faced(node: Node, p: Params) -> None:
    """A client that signs two uploads a round, and shows one to every second server."""
    s = node.state(ClientState(node.task.initial_parameters()))
    async for round_ in node.rounds(sync=node.servers, quorum=p.faults + 1):
        with round_:
            s.model, own, counts = await node.compute("train", train, node.task, s.model, dict(s.prototypes), p)
            for half in (0, 1):
                await upload(node, round_, encode({j: v + half for j, v in own.items()}, counts, p),
                             node.servers[half::2])
            await agreed(node, round_, p.faults, p.result_timeout_s)


def _faulty(fault: type[ServerBehaviour]) -> Any:
    async def faulty_server(node: Node, p: Params) -> None:
        await server(node, p, fault)
    return faulty_server


# --- checks and theory ----------------------------------------------------------------------------------------------

def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, errors = params, []
    if p.faults < 0 or world.servers < 3 * p.faults + 1:
        errors.append(f"faults = {p.faults}: needs {max(1, 3 * p.faults + 1)} servers, "
                      f"the topology has {world.servers}")
    if not 0 <= p.psi < max(1, world.clients):
        errors.append(f"psi = {p.psi}: expected a number below {world.clients}, the number of clients")
    errors += checks.not_negative(lambda_=p.lambda_)
    errors += checks.times(view_timeout=p.view_timeout_s, round_timeout=p.round_timeout_s,
                           upload_deadline=p.upload_deadline_s, result_timeout=p.result_timeout_s)
    name = name_of(world.task.get("model"))
    model = BUILT_IN.get(name)
    if model is not None and model.features is None:
        errors.append(f"model = {name}: expected one with a representation and a decision, such as "
                      f"{', '.join(n for n, m in BUILT_IN.items() if m.features)}")
    elif model is not None and model.features is not None:
        try:
            pooling(p).length(model.features)
        except PoolError as e:
            errors.append(f"map = {list(p.map)}: {e}")
    return errors


def security_probability(servers: int, p: float) -> float:
    """P(N, p) = sum_{i <= f} binom(N, i) p^i (1 - p)^(N - i), f = floor((N - 1) / 3).

    Each of N >= 1 servers is malicious with probability p, independently. It does not grow with every server added: f
    only does with every third. Raises ValueError for p outside [0, 1].

    >>> [round(security_probability(n, 0.25), 4) for n in (4, 19, 21)]
    [0.7383, 0.8251, 0.7436]
    """
    if servers < 1 or not 0 <= p <= 1:
        raise ValueError(f"servers = {servers}, p = {p}: expected one server or more and a probability")
    return sum(comb(servers, i) * p**i * (1 - p) ** (servers - i) for i in range((servers - 1) // 3 + 1))


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Messages of an agreement without faults, and how likely the servers bear their malicious ones."""
    n = len(setting.roles["server"])
    found: Analysis = {
        "pre_prepares_per_round": (float(n - 1), "messages.PrePrepare"),
        "prepares_per_round": (float(n * (n - 1)), "messages.Prepare"),
        "commits_per_round": (float(n * (n - 1)), "messages.Commit"),
        "uploads_per_round": (float(n * len(setting.roles["client"])), "messages.Upload")}
    return found | {f"security_probability_{p}": security_probability(n, p) for p in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)}

EXAMPLE = example("fedrfq", "upload_deadline: 1 s, result_timeout: 2 s", topology="star_mesh, clients: 5, servers: 4",
                  model="digits_classic", rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=agreement.MESSAGES,
    behaviours={"client": {"two_faced": two_faced},
                "server": {"crashed": crashed, "slow": slow,
                           **{name: _faulty(fault) for name, fault in FAULTS.items()}}},
    places={"server": "server"}, decides="server",
    timeouts=("view_timeout_s", "round_timeout_s", "upload_deadline_s", "result_timeout_s"), check=check,
    analysis=analysis, accuracy="personal", example=EXAMPLE)
