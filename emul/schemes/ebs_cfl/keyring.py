"""Keys that the server of EBS-CFL holds, and how it gets them: it asks the dealer until they are there.

First for those that do not depend on the references, then for alpha keys, some clients at a time: they are as large as
uploads. After `References` of a new version only alpha keys are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from emul.base.errors import TooFewClients
from emul.protocols.demands import demand, shaped
from emul.protocols.setup import TRIES
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.design import Masking, dealer_of
from emul.schemes.ebs_cfl.masking import alpha
from emul.schemes.ebs_cfl.masking.alpha import Compact, Factor
from emul.schemes.ebs_cfl.masking.blocks import Array
from emul.schemes.ebs_cfl.masking.keys import SENT, Lift, ServerKeys
from emul.schemes.ebs_cfl.masking.shape import Shape
from emul.schemes.ebs_cfl.messages import (
    AlphaKeys,
    AlphaTensor,
    LayerKeys,
    NotHeld,
    References,
    ServerKeySet,
    VerifyKeys,
    Wanted,
)

BATCH_BYTES = 1 << 28                   # of alpha keys that are under way at a time


@dataclass
class ServerKeyring:
    """All keys of the server."""

    keys: ServerKeys | None = None
    vk: list[Array] = field(default_factory=list)               # by group, (3dq,)
    lifts: dict[int, Lift] = field(default_factory=dict)        # by layer, those above the groups
    version: int = 0                                            # of the references that alpha keys are of
    known: bool = False                                         # the dealer has these references
    alpha: dict[tuple[int, int], Factor | Array] = field(default_factory=dict)  # (client or group, set) -> its key


async def set_up(node: Node, d: Masking, s: ServerKeyring, shape: Shape, version: int, g0: Array,
                 ) -> tuple[ServerKeys, list[Array]]:
    """(keys, Gamma of each set): see to it that there are all keys of these references. Raises TooFewClients."""
    h, Gammas, silent = alpha.directions(g0), list[Array](), 0
    if s.version != version:
        s.version, s.known, s.alpha = version, False, {}
    while silent < TRIES:
        if s.keys is not None and not Gammas:
            Gammas = await node.compute("gammas", alpha.gammas, shape, s.keys.A, h, d.weighting)
        lacking = _lacking(d, s, shape)
        if s.keys is not None and _has_first(s, shape) and not lacking:
            return replace(s.keys, lifts=tuple(s.lifts[layer] for layer in sorted(s.lifts))), Gammas
        begun = node.now_ns
        s.known = await _ask(node, d, s, shape, h, lacking[:_batch(d, shape)], Gammas)
        silent = 0 if s.known else silent + 1
        if silent and node.now_ns == begun:
            break                       # settled at once: the dealer has left the round, asking again is no use
    raise TooFewClients("set-up: the dealer has not sent its keys")


def _has_first(s: ServerKeyring, shape: Shape) -> bool:
    """True if the keys are there that do not depend on the references."""
    return s.keys is not None and bool(s.vk) and len(s.lifts) == len(shape.layers)


def _lacking(d: Masking, s: ServerKeyring, shape: Shape) -> list[int]:
    """Clients, or groups, of which an alpha key has not come."""
    every = range(len(shape.groups) if d.alpha == "full" else shape.clients)
    return [i for i in every if any((i, which) not in s.alpha for which in range(d.sets))]


def _batch(d: Masking, shape: Shape) -> int:
    """The number of clients whose alpha keys are asked for at a time."""
    rows = shape.segments * 3 * shape.d * shape.q * 8
    size = rows * 4 * (shape.d * shape.q) ** 2 if d.alpha == "full" else rows * 2
    return max(1, BATCH_BYTES // (size * d.sets))


async def _ask(node: Node, d: Masking, s: ServerKeyring, shape: Shape, h: Array, whose: list[int],
               Gammas: Sequence[Array],
               ) -> bool:
    """One question; whether something of what was asked for has come."""
    dealer, first = dealer_of(node), not _has_first(s, shape)
    if s.keys is None:
        whose = []                      # their Gamma takes the slots of the clusters
    if not s.known:
        node.send(dealer, References(s.version, h))
    node.send(dealer, Wanted(s.version, first, np.array(whose, np.int32)))
    if first and not await _take_first(node, d, s, shape):
        return False
    came = first
    for _ in range(len(whose) * d.sets):
        one = (await node.gather((AlphaKeys, AlphaTensor, NotHeld), [dealer], timeout_s=d.dealer_timeout_s,
                                 accept=partial(_sound_alpha, d, shape))).get(dealer)
        if isinstance(one, AlphaKeys):
            key = Compact(one.F, one.B)
            s.alpha[one.client, one.which] = await node.compute("factor", alpha.factor, key, Gammas[one.which])
        elif isinstance(one, AlphaTensor):
            s.alpha[one.group, one.which] = one.tensor
        elif isinstance(one, NotHeld):
            break
        came = came or one is not None
    return came


async def _take_first(node: Node, d: Masking, s: ServerKeyring, shape: Shape) -> bool:
    """Keys that do not depend on the references; whether they have come, with the keys of verification or without."""
    dealer, wait = dealer_of(node), d.dealer_timeout_s
    found = (await node.gather((ServerKeySet, NotHeld), [dealer], timeout_s=wait,
                               accept=partial(_sound_keys, shape))).get(dealer)
    if not isinstance(found, ServerKeySet):
        return False
    s.keys = ServerKeys(**{name: getattr(found, name) for name in SENT})
    verify = await node.gather(VerifyKeys, [dealer], timeout_s=wait, accept=partial(_sound_rows, shape))
    s.vk = verify[dealer].vk if verify else []
    for _ in shape.layers:
        one = (await node.gather(LayerKeys, [dealer], timeout_s=wait, accept=partial(_sound_layer, shape))).get(dealer)
        if one is not None:
            s.lifts[one.layer] = Lift(one.tk0, one.tk1)
    return True


def _sound_keys(shape: Shape, message: Message) -> None:
    """Raise ProtocolViolation unless all keys have their sizes."""
    if not isinstance(message, ServerKeySet):
        return
    d, N, groups = shape.d, shape.clients, shape.groups
    _sound_moves(shape, 0, message.tk0, message.tk1)
    shaped(A=(shape.clusters, shape.t, d), betaG=(d, 2 * d * N), dk=(2 * d * N, 3 * d * N))(message)
    for name, rows in (("beta", None), ("tau1", 2), ("tau2", 2), ("tau3", 2)):
        found = [matrix.shape for matrix in getattr(message, name)]
        expected = [(d if rows is None else rows * d * len(group), 2 * d * len(group)) for group in groups]
        demand(found == expected, f"{name}: not of its size")


def _sound_layer(shape: Shape, message: LayerKeys) -> None:
    demand(1 <= message.layer <= len(shape.layers), "layer: out of range")
    _sound_moves(shape, message.layer, message.tk0, message.tk1)


def _sound_moves(shape: Shape, layer: int, tk0: Sequence[Array], tk1: Sequence[Array]) -> None:
    """Raise ProtocolViolation unless the keys from a layer to the next one have their sizes."""
    for name, blocks, found in (("tk0", 2, tk0), ("tk1", 3, tk1)):
        expected = [(blocks * shape.d * len(below), blocks * shape.d * shape.above(layer, node))
                    for node, below in enumerate(shape.tree[layer])]
        demand([matrix.shape for matrix in found] == expected, f"{name}: not of its size")


def _sound_rows(shape: Shape, message: VerifyKeys) -> None:
    demand([row.shape for row in message.vk] == [(3 * shape.d * len(group),) for group in shape.groups],
           "vk: not of its size")


def _sound_alpha(d: Masking, shape: Shape, message: Message) -> None:
    if isinstance(message, AlphaKeys):
        demand(0 <= message.client < shape.clients, "client: out of range")
        q = len(shape.groups[message.client // shape.q])
        shaped(F=(shape.segments, 3 * shape.d * q, 2), B=(2, 2 * shape.d * q, 2 * shape.d * q))(message)
    elif isinstance(message, AlphaTensor):
        demand(0 <= message.group < len(shape.groups), "group: out of range")
        k = shape.d * len(shape.groups[message.group])
        shaped(tensor=(shape.segments, 2 * k, 3 * k, 2 * k))(message)
    if isinstance(message, AlphaKeys | AlphaTensor):
        demand(isinstance(message, AlphaTensor) == (d.alpha == "full"), "keys of the other kind")
        demand(0 <= message.which < d.sets, "which: out of range")
