"""A client's side of the pairwise protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import numpy as np

from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES
from emul.protocols.audit import keep_input, keep_revealed
from emul.protocols.demands import ascending, shaped
from emul.protocols.pairwise.consent import advertised_keys, agreed_request, extra_octets, verify_ring
from emul.protocols.pairwise.hand import (
    Encode,
    Masking,
    SharedSecrets,
    check_ring,
    masked_input,
    new_secrets,
    opened,
    pair_seeds,
    require_sharers,
    reveal,
    reveal_without,
    share_secrets,
)
from emul.protocols.pairwise.messages import (
    AdvertiseKeys,
    KeyRing,
    Masked,
    MaskedLacking,
    Shared,
    Sharers,
    Shares,
    SharesDown,
    SharesUp,
    Unmask,
    UnmaskWithout,
    id_array,
)
from emul.protocols.pairwise.rules import PairwiseRules
from emul.protocols.rounds import train_once
from emul.protocols.sums import Begin, refusing_client
from emul.roles import Node, Vector


async def pairwise_client(node: Node, rules: PairwiseRules, encode: Encode) -> None:
    """Rounds of a client, which keeps nothing between them. encode: how an update becomes a vector of the ring."""
    await refusing_client(node, partial(take_part, node, rules, encode))


async def take_part(node: Node, rules: PairwiseRules, encode: Encode) -> None:
    """One round. Raises Refused or ProtocolViolation where the server asks for what would unmask somebody."""
    begin = await node.recv(Begin, node.server, timeout_s=rules.patience_s,
                            accept=shaped(model=(node.task.dimension,)))
    await contribute(node, rules, partial(train_once, node, begin.model), encode)


async def contribute(node: Node, rules: PairwiseRules, train: Callable[[], Awaitable[tuple[Vector, int]]],
                     encode: Encode, masking: Masking | None = None) -> None:
    """The rest of a round that the server has opened. masking: other masks than those of the ring, `masked_input`.

    Raises Refused or ProtocolViolation as `take_part`.
    """
    i = node.id
    own = await node.compute("keys", new_secrets, node.rng)
    node.send(node.server, AdvertiseKeys(await advertised_keys(node, rules, own)))

    ring = await node.recv(KeyRing, node.server, timeout_s=rules.patience_s,
                           accept=lambda ring: check_ring(i, own, ring, node.clients, extra_octets(rules)))
    await verify_ring(node, rules, ring)
    hand = await node.compute("share", share_secrets, i, own, ring, rules.t, node.round, node.rng, work=ring.ids.size)
    U2, boxes = await exchange_shares(node, rules, hand)
    update, samples = await train()
    seeds = await node.compute("agree", pair_seeds, i, own, hand.peers, U2, node.round, work=len(U2) - 1)
    y, clipped = await node.compute("mask", masking or masked_input, i, own.b, seeds, update, samples, encode,
                                    work=len(U2) * update.size)
    if rules.audit:
        keep_input(node, encode(update, samples)[0])
    if rules.receipts:
        await answer_with_receipts(node, rules, hand, seeds, U2, boxes, y.view(np.uint32), clipped)
        return
    node.send(node.server, Masked(y.view(np.uint32)))
    node.report(clip_fraction=clipped)

    request = await asked_for(node, rules, U2)
    if boxes is None:
        boxes = await shares_of_peers(node, rules, U2)
    answer = await node.compute("reveal", reveal, i, hand, boxes, U2, request, rules.t, node.round, work=len(boxes))
    if rules.audit:
        survivors = set(request.survivors.tolist())
        keep_revealed(node, ((j, int(j in survivors)) for j in answer.ids.tolist()))
    node.send(node.server, answer)


async def answer_with_receipts(node: Node, rules: PairwiseRules, hand: SharedSecrets, seeds: Mapping[int, bytes],
                               U2: list[int],
                               boxes: Mapping[int, Shares] | None, y: np.ndarray, clipped: float) -> None:
    """The last two stages of a client that says whose shares it lacks. seeds: {j: s_ij} for j in N_i & U2."""
    i = node.id
    if boxes is None:
        boxes = await shares_of_peers(node, rules, U2)
    held = await node.compute("open", opened, i, hand, boxes, node.round, work=len(boxes))
    node.send(node.server, MaskedLacking(y, id_array(sorted(set(U2).difference(held)))))
    node.report(clip_fraction=clipped)
    request = await node.recv(UnmaskWithout, node.server, timeout_s=rules.patience_s)
    answer = await node.compute("reveal", reveal_without, i, held, seeds, U2, request, rules.t, work=len(held))
    if rules.audit:
        survivors = set(request.survivors.tolist())
        keep_revealed(node, ((j, int(j in survivors)) for j in answer.ids.tolist()))
    node.send(node.server, answer)


async def exchange_shares(node: Node, rules: PairwiseRules,
                          hand: SharedSecrets) -> tuple[list[int], Mapping[int, Shares] | None]:
    """(A_i & U2, {j: its encrypted shares for this client}): these are None if they come from the clients themselves,
    and are looked at when they are needed."""
    i = node.id
    if rules.route == "direct":
        node.send_each({j: Shares(box) for j, box in hand.boxes.items()})
        node.send(node.server, Shared())
        U2 = (await node.recv(Sharers, node.server, timeout_s=rules.patience_s)).ids.tolist()
        require_sharers(i, U2, hand.peers, rules.t)
        return U2, None
    size = len(hand.kept) + SEAL_OVERHEAD_BYTES
    rows = np.frombuffer(b"".join(box.data for box in hand.boxes.values()), np.uint8)
    node.send(node.server, SharesUp(id_array(list(hand.boxes)), rows.reshape(len(hand.boxes), size)))
    bundle = await node.recv(SharesDown, node.server, timeout_s=rules.patience_s,
                             accept=lambda bundle: check_bundle(bundle, hand, size))
    U2 = sorted([i, *bundle.ids.tolist()])
    require_sharers(i, U2, hand.peers, rules.t)
    return U2, {j: Shares(box) for j, box in zip(bundle.ids.tolist(), bundle.boxes, strict=True)}


def check_bundle(bundle: SharesDown, hand: SharedSecrets, size: int) -> None:
    """A box of each of some neighbours. Raises ProtocolViolation."""
    ascending("ids", bundle.ids, list(hand.peers))
    shaped(boxes=(len(bundle.ids), size))(bundle)


async def shares_of_peers(node: Node, rules: PairwiseRules, U2: list[int]) -> dict[int, Shares]:
    """The shares that U2 has sent here directly; with deadlines, one that has not come by now never will for this
    round."""
    return await node.gather(Shares, set(U2) - {node.id}, timeout_s=None if rules.deadline_s is None else 0)


async def asked_for(node: Node, rules: PairwiseRules, U2: list[int]) -> Unmask:
    """The request that names the clients whose secrets are to be revealed."""
    if rules.active:
        return await agreed_request(node, rules, U2)
    return await node.recv(Unmask, node.server, timeout_s=rules.patience_s)

