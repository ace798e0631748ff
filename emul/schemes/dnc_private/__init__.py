"""Network-coded federated averaging under the Gaussian mechanism. After Weng et al., arXiv 2406.19002 (DNC), 2024.

Clients overhear each other, and in `r` further slots send the server combinations of all that they have heard:

    Y_k = Delta_k + n_k,  n_k i.i.d. N(0, lambda^2 I)       u_k = round(2^16 Y_k) in GF(p),  p = 2^31 - 1
    slot 0        k sends u_k to the server and to all other clients
    slot i = 1..r k sends x_{k,i} = sum_{m heard} alpha_{(i-1)K+k, m} u_m to the server; alpha Cauchy
    Theta += 1/|S| sum_{k in S} Y_k             S: every m whose u_m is determined by what arrived

Every square submatrix of alpha is invertible, so combinations of the same unknowns are worth one unknown each.

Deviations: only abstracts of the paper were at hand; r, the field and the independence of the slots are ours. A coded
message belongs to no round, so that on links whose outages are drawn per round each slot has a draw of its own.

Bytes of the arrays in each message, without its header:

    Model 4 d     Update 4 d, K - 1 to clients and one to the server     Coded 4 d + ceil(K / 8)

Protects: an update from the server and from clients that overhear it, by Gaussian noise of each client (`analysis` says
how much). Not: false updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.learning import NodeTask
from emul.primitives.means import weighted_sum
from emul.primitives.privacy.mechanism import leakage_of_update, noisy
from emul.protocols.demands import Demand, both, demand, shaped
from emul.protocols.rounds import finite
from emul.roles import (
    Analysis,
    Message,
    Node,
    Octets,
    Realised,
    Received,
    Scheme,
    Setting,
    Vector,
    Words,
    World,
    checks,
)
from emul.roles.example import example
from emul.schemes.dnc_private import network_coding

_COEFFICIENTS = 10**7             # r K^2, which every node keeps: 80 MB


@dataclass(frozen=True)
class Model(Message):
    """Server to client."""

    parameters: Vector              # (d,) float32


@dataclass(frozen=True)
class Update(Message):
    """Client to server and to the other clients, slot 0."""

    symbols: Words                  # u_k, (d,)


@dataclass(frozen=True)
class Coded(Message, unscoped=True):
    """Client to server, slots 1..r."""

    round: int
    slot: int
    heard: Octets                   # (ceil(K / 8),): a bit for each client
    symbols: Words                  # x_{k,i}, (d,)


@dataclass(frozen=True)
class Params:
    lambda_: float = 0.1                # standard deviation of the noise, per coordinate
    r: int = 1                          # coded slots
    clip: float | None = None           # R: updates are scaled down to this l2 norm; None: unbounded
    share_s: float | None = None        # clients listen that long after their training; None: until fates are known
    uplink_s: float | None = None       # the server waits that long for each slot; None: until fates are known
    finish_at: int | None = None        # T: the run ends with this round; None: where the scenario says
    ldp_delta: float = 1e-5             # of the analysis


@dataclass
class State:
    model: Vector


async def server(node: Node, p: Params) -> None:
    clients = node.clients
    s = node.state(State(node.task.initial_parameters()))
    alpha = await node.compute("code", network_coding.cauchy, p.r * len(clients), len(clients), work=len(clients) ** 2)
    symbols = symbols_of(s.model.size)
    combination = both(symbols, shaped(heard=(-(-len(clients) // 8),)),
                       lambda m: demand(1 <= m.slot <= p.r, "slot: out of range"))
    async for round_ in node.rounds():
        with round_:
            node.broadcast(clients, Model(s.model))
            plain = await node.gather(Update, clients, timeout_s=p.uplink_s, accept=symbols)
            coded: list[Coded] = []
            for _ in range(p.r):
                sent = await node.gather(Coded, clients, timeout_s=p.uplink_s, accept=combination)
                coded += [m for m in sent.values() if m.round == round_]
            model, recovered = await node.compute(
                "decode", take_step, s.model, alpha, {clients.index(k): m.symbols for k, m in plain.items()},
                [(clients.index(m.sender), m) for m in coded], work=len(clients) * s.model.size)
            s.model = finite(model)
            node.report(parameters=s.model, received=len(plain), coded=len(coded), recovered=recovered)
            if p.finish_at is not None and round_ >= p.finish_at:
                return


async def client(node: Node, p: Params) -> None:
    clients, k = node.clients, node.index
    others, K = [m for m in clients if m != node.id], len(clients)
    alpha = await node.compute("code", network_coding.cauchy, p.r * K, K, work=K * K)
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server, accept=shaped(parameters=(node.task.dimension,)))
            delta, _ = await node.compute("train", node.task.local_update, model.parameters)
            u = await node.compute("noise", noisy_symbols, delta, p.clip, p.lambda_, node.stream("noise"),
                                   work=delta.size)
            node.broadcast([node.server, *others], Update(u))
            got = await node.gather(Update, others, timeout_s=p.share_s, accept=symbols_of(u.size))
            heard = {m: message.symbols for m, message in got.items()}
            heard = {clients.index(m): v for m, v in sorted({**heard, node.id: u}.items())}
            bitmap = np.packbits([m in heard for m in range(K)])
            rows = alpha[np.arange(p.r) * K + k][:, list(heard)]                        # (r, heard)
            combined = await node.compute("combine", network_coding.combine, rows, list(heard.values()),
                                          work=p.r * len(heard) * u.size)
            for slot, x in enumerate(combined, 1):
                node.send(node.server, Coded(int(round_), slot, bitmap, x))


def symbols_of(d: int) -> Demand:
    """d symbols, each of the field."""
    def accept(message: Update | Coded) -> None:
        shaped(symbols=(d,))(message)
        demand(not d or int(message.symbols.max()) < network_coding.P, "symbols: not of the field")
    return accept


def noisy_symbols(delta: Vector, clip: float | None, lambda_: float, rng: np.random.Generator) -> np.ndarray:
    """u_k of Y_k, Delta_k clipped to the norm `clip` first: (d,) uint32."""
    return network_coding.to_field(noisy(delta, clip, lambda_, rng))


def take_step(model: Vector, alpha: np.ndarray, plain: Mapping[int, np.ndarray], coded: Sequence[tuple[int, Coded]],
              ) -> tuple[Vector, int]:
    """(Theta + mean over S, |S|); S empty: Theta itself. plain: {client 0..K-1: u}, coded: (client, its message)."""
    found = recover(alpha, plain, coded)
    if not found:
        return model, 0
    total = weighted_sum({m: network_coding.from_field(u) for m, u in found.items()}, dict.fromkeys(found, 1))
    return (model + total / len(found)).astype(np.float32), len(found)


def recover(alpha: np.ndarray, plain: Mapping[int, np.ndarray], coded: Sequence[tuple[int, Coded]],
            ) -> dict[int, np.ndarray]:
    """{m: u_m} of every update that is determined.

    Updates that came plainly are subtracted from the combinations; the rest is a small system over GF(p).
    """
    K, p = alpha.shape[1], network_coding.P
    found = dict(plain)
    missing = [m for m in range(K) if m not in found]
    rows = np.zeros((len(coded), K), np.int64)
    for i, (k, message) in enumerate(coded):
        heard = np.unpackbits(message.heard, count=K).astype(bool)
        rows[i, heard] = alpha[(message.slot - 1) * K + k, heard]
    for place, weights in network_coding.solvable(rows[:, missing]).items():
        # u = sum_i w_i (x_i - sum_{m known} row_im u_m), as one combination of everything that it takes
        used = np.flatnonzero(weights).tolist()
        known = [m for m in sorted(plain) if rows[used, m].any()]
        minus = [sum(-int(weights[i]) * int(rows[i, m]) for i in used) % p for m in known]
        coefficients = np.array([[*(int(weights[i]) for i in used), *minus]], np.int64)
        symbols = [*(coded[i][1].symbols for i in used), *(plain[m] for m in known)]
        found[missing[place]], = network_coding.combine(coefficients, symbols)
    return found


def honest(task: NodeTask, received: Received, j: int) -> Vector:
    """The result of client j's training, before the noise, if it follows the protocol."""
    update: Vector = task.local_update(received[Model].parameters)[0]
    return update


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    p, most = params, max(1, _COEFFICIENTS // max(1, world.clients) ** 2)
    return (checks.not_negative(lambda_=p.lambda_) + checks.at_least(0, "0 coded slots or more", r=p.r)
            + ([f"r = {p.r}: expected at most {most} coded slots with {world.clients} clients"] if p.r > most else [])
            + checks.positive(clip=p.clip) + checks.times(share=p.share_s, uplink=p.uplink_s)
            + checks.at_least(1, "a round, 1 or above", finish_at=p.finish_at)
            + checks.probabilities(ldp_delta=p.ldp_delta))


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Transmissions in updates of d elements, and what one noisy update tells who hears it."""
    p, names, hub = params, setting.roles["client"], setting.roles["server"][0]
    K, arrive = len(names), sum(1 - setting.outage(k, hub) for k in names)
    found: Analysis = {
        "updates_per_round": (float(K * K), "messages.Update"),                 # K (K - 1) to clients, K up
        "coded_per_round": (float(p.r * K), "messages.Coded"),
        "downlinks_per_round": (float(K), "messages.Model"),
        "received_per_round": (arrive, "received"),
        "coded_received_per_round": (p.r * arrive, "coded"),
    }
    if p.lambda_:
        most = max(run.participation("Update").values(), default=0)
        found |= leakage_of_update(p.lambda_, p.clip, p.ldp_delta, setting.rounds, most)
    return found

EXAMPLE = example("dnc_private", "clip: 1.0, share: 200 ms, uplink: 500 ms", topology="star_mesh, clients: 5")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=(Model, Update, Coded), oblivious=True,
    timeouts=("share_s", "uplink_s"), honest=honest, check=check, analysis=analysis, example=EXAMPLE)
