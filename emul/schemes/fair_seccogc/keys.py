"""Keys that mask updates and add up to zero: N = A Z, Z_l of a round drawn from HKDF(seed of component l, round).

`pairwise`          each pair has a seed, from X25519: N_k = lambda / sqrt(K-1) sum_j sgn(k, j) Z_kj
`dealer`            a third party draws Z and sends each client its N_k
`component_seeds`   it sends client k the seeds of its components, once; neighbours share some of them
`common_seed`       it sends everybody the one seed of all

The dealer's root is drawn from the scenario's seed, for emulation only; what it sends is neither encrypted nor signed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from emul.base.errors import NothingToReceive
from emul.primitives.crypto.gaussian import gaussian, pairwise_key
from emul.primitives.crypto.keys import KEY_BYTES, mask_seed
from emul.protocols.demands import demand, shaped
from emul.roles import Node, Vector
from emul.schemes.fair_seccogc.group import Design, fitted, key_generator
from emul.schemes.fair_seccogc.messages import Deal, DealTo, Key, Seeds, SeedsHeld
from emul.schemes.fair_seccogc.relay import Behind, GroupMember

Draw = Callable[[int], np.ndarray]              # d -> N_k, (d,) float64


# --- dealer ---------------------------------------------------------------------------------------------------------

@dataclass
class DealerState:
    root: bytes                                         # seed of the seeds of all components
    unsure: set[int]                                    # clients that may not have their seeds yet


def dealer_of(node: Node) -> int:
    """The node of the role `dealer`."""
    return node.nodes("dealer")[0]


async def dealer(node: Node, design: Design) -> None:
    """Rounds of the dealer: it follows the server, which says to whom to deal."""
    s = node.state(DealerState(node.rng.bytes(KEY_BYTES), set(node.clients)))
    async for round_ in node.rounds(of=node.server):
        with round_:
            got = await node.gather((Deal, DealTo), [node.server], accept=partial(for_clients_of, node))
            if not got:
                raise NothingToReceive(f"Deal from {node.world.names[node.server]} is lost or will not be sent")
            deal = got[node.server]
            assert isinstance(deal, Deal | DealTo)
            clients = deal.members.tolist() if isinstance(deal, DealTo) else node.clients
            A = await node.compute("matrix", key_generator, fitted(design, len(clients)), len(clients), node.seed,
                                   work=len(clients))
            if design.keys == "dealer":
                keys = await node.compute("deal", all_keys, A, s.root, round_, deal.dimension,
                                          work=A.shape[1] * deal.dimension)
                node.send_each({k: Key(key) for k, key in zip(clients, keys, strict=True)})
            else:
                await send_seeds(node, design, s, clients, A)


def for_clients_of(node: Node, deal: Deal | DealTo) -> None:
    """For `accept`: keys as long as the model, for clients that there are, each once."""
    demand(deal.dimension == node.task.dimension, f"dimension: expected {node.task.dimension}")
    members = deal.members.tolist() if isinstance(deal, DealTo) else []
    demand(len(set(members)) == len(members) and set(members) <= set(node.clients), "members: expected clients")


async def send_seeds(node: Node, design: Design, s: DealerState, clients: list[int], A: np.ndarray) -> None:
    """Seeds to whoever has not said that it has them."""
    if s.unsure:
        s.unsure -= (await node.gather(SeedsHeld, s.unsure, timeout_s=0)).keys()
    messages = {}
    for k in sorted(s.unsure):
        seeds = [s.root] if design.keys == "common_seed" else [
            mask_seed(s.root, component) for component in np.flatnonzero(A[clients.index(k)]).tolist()]
        messages[k] = Seeds(np.frombuffer(b"".join(seeds), np.uint8).reshape(-1, KEY_BYTES))
    node.send_each(messages)


def all_keys(A: np.ndarray, root: bytes, round_: int, d: int) -> list[Vector]:
    """N = A Z of a round: K vectors (d,) float32."""
    N = np.zeros((len(A), d))
    for component, column in enumerate(A.T):
        Z = gaussian(mask_seed(mask_seed(root, component), round_), d)
        for k in np.flatnonzero(column).tolist():
            N[k] += column[k] * Z
    return list(N.astype(np.float32))


# --- client ---------------------------------------------------------------------------------------------------------

async def own_key(node: Node, design: Design, m: GroupMember, round_: int, timeout_s: float | None,
                  ) -> tuple[Draw | None, int]:
    """(d -> N_k of a round, Gaussian vectors to be drawn for it); (None, 0) without keys.

    Raises Behind, NothingToReceive or TimedOut if there is no key.
    """
    if not design.lambda_:
        return None, 0
    if design.keys == "pairwise":
        return partial(key_of_pairs, node.id, m.shared, round_, design.lambda_), len(m.members) - 1
    if design.keys == "dealer":
        dealt = await node.recv(Key, dealer_of(node), timeout_s=timeout_s,
                                accept=shaped(key=(node.task.dimension,)))
        return partial(dealt_key, dealt.key), 0
    K = len(m.members)
    A = await node.compute("matrix", key_generator, design, K, node.seed, work=K)
    row = A[m.members.index(node.id)]
    await hold_seeds(node, design, m, row, timeout_s)
    return partial(key_of_seeds, row, m.seeds, round_), len(m.seeds)


async def hold_seeds(node: Node, design: Design, m: GroupMember, row: np.ndarray, timeout_s: float | None) -> None:
    """See to it that the client has its seeds, and that the dealer knows. Raises Behind."""
    source, components = dealer_of(node), np.flatnonzero(row).tolist()
    count = 1 if design.keys == "common_seed" else len(components)
    got = await node.gather(Seeds, [source], timeout_s=0 if m.seeds else timeout_s,
                            accept=shaped(seeds=(count, KEY_BYTES)))
    if got:
        seeds = [seed.tobytes() for seed in got[source].seeds]
        if design.keys == "common_seed":
            seeds = [mask_seed(seeds[0], component) for component in components]
        m.seeds = dict(zip(components, seeds, strict=True))
        node.send(source, SeedsHeld())
    if not m.seeds:
        raise Behind("the seeds have not come")


def key_of_pairs(me: int, shared: Mapping[int, bytes], round_: int, lambda_: float, d: int) -> np.ndarray:
    """N_k = lambda / sqrt(K-1) sum_j sgn(k, j) Z_kj of a round, (d,) float64. shared: {other client: secret}."""
    seeds = {j: mask_seed(secret, round_) for j, secret in shared.items()}
    return pairwise_key(me, seeds, d, lambda_ / math.sqrt(len(shared)))


def key_of_seeds(row: np.ndarray, seeds: Mapping[int, bytes], round_: int, d: int) -> np.ndarray:
    """N_k = sum_l a_kl Z_l of a round, (d,) float64. seeds: {component l: seed}."""
    total = np.zeros(d)
    for component, seed in seeds.items():
        total += row[component] * gaussian(mask_seed(seed, round_), d)
    return total


def dealt_key(key: Vector, d: int) -> np.ndarray:
    """N_k as the dealer has sent it, (d,) float64."""
    return key.astype(np.float64)
