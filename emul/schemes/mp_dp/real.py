"""Blocks behind noise or masks of pairs, without self masks; what a dropout leaves behind is removed by its seeds.

    m_k = c_k ghat_k + eta_k + sum_{v in N(k)} Delta_kv,     Delta_vk = -Delta_kv

Delta is a stream of X25519 secrets of the round, so it costs no message. With real numbers it is on ghat alone, with
masks of the ring on all blocks. Fresh keys each round, from the clients' own streams, for emulation only. A client that
is said to have dropped out and then is late is protected by its own noise only: double masking has `repair: shamir`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives import ring
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, key_pair, mask_seed
from emul.primitives.crypto.masks import add_pair_masks, sum_ring
from emul.primitives.crypto.prg import SEED_BYTES
from emul.primitives.dp.graph import Edges, neighbours
from emul.primitives.dp.laws import pair_noise
from emul.protocols.channels import AdvertiseKey, Roster, closed, fresh_key, ids_of
from emul.protocols.demands import Demand, ascending, demand, key_table, shaped
from emul.protocols.mp_dp.client import Contribution
from emul.protocols.mp_dp.messages import Blocks, Disguised, numbers
from emul.protocols.mp_dp.settings import Settings
from emul.roles import Node
from emul.schemes.mp_dp.messages import Dropped, Seeds

# --- a client -------------------------------------------------------------------------------------------------------

async def take_part(node: Node, s: Settings, K: int, contribution: Contribution) -> None:
    """The rest of a round that the server has opened."""
    patience = s.rules(K).patience_s
    own = await node.compute("keys", key_pair, node.rng.bytes(KEY_BYTES))
    node.send(node.server, AdvertiseKey(np.frombuffer(own.public, np.uint8)))
    roster = await node.recv(Roster, node.server, timeout_s=patience, accept=neighbours_of(node))
    values, samples = await contribution.values()
    seeds = await node.compute("agree", pair_seeds, own, roster, node.round, work=roster.ids.size)
    sent = await node.compute("mask", masked, node.id, values, seeds, s, contribution, samples, node.task.dimension,
                              work=len(seeds) * values.size)
    node.report(clip_fraction=float(contribution.clipping < 1))
    node.send(node.server, Blocks(sent))
    if s.repair == "seeds":
        gone = await node.recv(Dropped, node.server, timeout_s=patience,
                               accept=lambda message: ascending("ids", message.ids, list(seeds)))
        if gone.ids.size:
            node.send(node.server, Seeds(gone.ids, rows([seeds[j] for j in gone.ids.tolist()])))


def neighbours_of(node: Node) -> Demand:
    """Some of the other clients, with sound keys."""
    def accept(message: Roster) -> None:
        ascending("ids", message.ids, [k for k in node.clients if k != node.id])
        if message.ids.size:
            key_table("keys", message.keys, len(message.ids))
            shaped(keys=(len(message.ids), KEY_BYTES))(message)
    return accept


def pair_seeds(own: KeyPair, roster: Roster, round_: int) -> dict[int, bytes]:
    """{neighbour: seed of the round}."""
    return {j: mask_seed(agree(own.secret, key.tobytes()), round_)
            for j, key in zip(roster.ids.tolist(), roster.keys, strict=True)}


def masked(i: int, values: np.ndarray, seeds: Mapping[int, bytes], s: Settings, contribution: Contribution,
           samples: int, d: int) -> np.ndarray:
    """The masked values that travel: reals of the agreed type, or words of the ring."""
    if s.masks == "ring":
        x, _ = contribution.encoded(values, samples)
        add_pair_masks(x, i, seeds)
        return x
    sigma = contribution.opening.sigma_delta
    if sigma:
        values[:d] += pair_noise(i, seeds, d, sigma, s.noise)
    return values.astype(s.dtype)


def rows(seeds: Sequence[bytes]) -> np.ndarray:
    """(m, 32) uint8."""
    return np.frombuffer(b"".join(seeds), np.uint8).reshape(len(seeds), SEED_BYTES)


# --- the server -----------------------------------------------------------------------------------------------------

async def gathered(node: Node, s: Settings, U0: list[int], edges: Edges, opening: Disguised, size: int,
                   sets: dict[str, list[int]]) -> dict[int, Blocks]:
    """Blocks (S d,) of those that were heard. Fills `sets`: U1 sent keys, U3 sent blocks. Raises TooFewClients."""
    node.broadcast(U0, opening)
    advertised = await node.gather(AdvertiseKey, U0, timeout_s=s.stage_deadline_s, accept=fresh_key())
    U1 = sets["U1"] = closed("keys", advertised, len(U0), 2)
    rosters = {}
    for i, near in neighbours(within(edges, U1), U1).items():
        keys = [advertised[j].key for j in near]
        rosters[i] = Roster(ids_of(near), np.stack(keys) if keys else np.zeros((0, KEY_BYTES), np.uint8))
    node.send_each(rosters)
    got = await node.gather(Blocks, U1, timeout_s=s.stage_deadline_s, accept=numbers(size, s.word))
    sets["U3"] = closed("blocks", got, len(U1), 1)
    return got


def within(edges: Edges, clients: Sequence[int]) -> Edges:
    """Those between these clients."""
    among = set(clients)
    return frozenset((a, b) for a, b in edges if a in among and b in among)


def cut(edges: Edges, sets: Mapping[str, list[int]]) -> list[tuple[int, int]]:
    """(survivor, dropped) of the edges that were left with one end, ascending."""
    alive = set(sets["U3"])
    both = within(edges, sets["U1"])
    return sorted((a, b) if a in alive else (b, a) for a, b in both if (a in alive) != (b in alive))


async def summed(node: Node, s: Settings, got: Mapping[int, Blocks], loose: list[tuple[int, int]], sigma_delta: float,
                 d: int, f: int) -> np.ndarray:
    """The sum of the blocks, (S d,) float64; what dropped neighbours left in it is removed with `repair: seeds`.

    Raises TooFewClients if a survivor has dropped out before it answered.
    """
    seeds: dict[int, dict[int, bytes]] = {}
    if s.repair == "seeds":
        asked = {i: [b for a, b in loose if a == i] for i in got}
        node.send_each({i: Dropped(ids_of(gone)) for i, gone in asked.items()})
        seeds = await answers(node, s, {i: gone for i, gone in asked.items() if gone})
    return await node.compute("aggregate", unmasked_sum, got, seeds, s, sigma_delta, d, f,
                              work=(len(got) + len(loose)) * next(iter(got.values())).values.size)


async def answers(node: Node, s: Settings, asked: Mapping[int, list[int]]) -> dict[int, dict[int, bytes]]:
    """{survivor: {dropped neighbour: seed}}."""
    if not asked:
        return {}

    def accept(message: Seeds) -> None:
        gone = asked[message.sender]
        demand(message.ids.tolist() == gone, "ids: not those asked for")
        shaped(seeds=(len(gone), SEED_BYTES))(message)

    got = await node.gather(Seeds, list(asked), timeout_s=s.stage_deadline_s, accept=accept)
    for i in asked:
        if i not in got:
            raise TooFewClients(f"too_few_clients: repair: {node.world.names[i]} has not sent the seeds of "
                                f"{len(asked[i])} dropped neighbours, and nobody else has them")
    return {i: dict(zip(m.ids.tolist(), (row.tobytes() for row in m.seeds), strict=True)) for i, m in got.items()}


def unmasked_sum(got: Mapping[int, Blocks], seeds: Mapping[int, Mapping[int, bytes]], s: Settings, sigma_delta: float,
                 d: int, f: int) -> np.ndarray:
    """(S d,) float64. A survivor has added for a dropped neighbour the values that this neighbour would have taken off
    again."""
    messages = [message.values for message in got.values()]
    if s.masks == "ring":
        hidden = sum_ring(messages, messages[0].size, messages[0].dtype.type)
        for i, own in seeds.items():
            for j, seed in own.items():
                add_pair_masks(hidden, j, {i: seed})
        return ring.decode(hidden, f)
    total = np.array(messages, np.float64).sum(0)
    for i, own in seeds.items():
        for j, seed in own.items():
            if sigma_delta:
                total[:d] += pair_noise(j, {i: seed}, d, sigma_delta, s.noise)
    return total
