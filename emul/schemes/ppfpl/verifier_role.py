"""The verifier's rounds: it follows the aggregator, decrypts masked values only, and answers.

It learns squared norms, the length of each class sum and who was accepted; with `compare: max_iter` every similarity,
too, since chi is public and fixes the factor p_k (E5 of the errata in docs/schemes/ppfpl.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.base.errors import NotDecodable, NothingToReceive, TimedOut, TooFewClients
from emul.primitives.he.ckks import Box
from emul.roles import Node
from emul.schemes.ppfpl import ciphertexts as he
from emul.schemes.ppfpl.ciphertexts import Cohort, Pair, Rows
from emul.schemes.ppfpl.keys import Boxes, take_keys
from emul.schemes.ppfpl.messages import (
    Accepted,
    ClassNorm,
    ClassNorms,
    Excess,
    MaskedProducts,
    NormCheck,
    PackedProducts,
    Refresh,
    Refreshed,
    SealedRows,
    Signs,
    Weights,
    cohort_of,
)
from emul.schemes.ppfpl.setting import PpfplSetting


@dataclass
class State:
    boxes: Boxes | None = None


async def verify(node: Node, setting: PpfplSetting, s: State) -> None:
    """One round."""
    aggregator, frames = node.nodes("aggregator")[0], setting.frames
    check = await node.recv(NormCheck, aggregator, accept=frames.norm_check(node.clients))
    if s.boxes is None:
        s.boxes = await take_keys(node, setting.scheme, check.dealt, setting.server_timeout_s,
                                  setting.load_s("verifier"))
    box, cohort = s.boxes, cohort_of(check, setting.layout)
    good = await node.compute("check_norm", he.check_norm, box.v, cohort, check.squares.rows,
                              cost_s=setting.cost_s("check_norm", len(cohort.sent())))
    node.send(aggregator, Accepted(np.array(good, np.uint8)))
    cohort = cohort.only([m for m, accepted in zip(cohort.held, good, strict=True) if accepted])
    if not cohort.held:
        raise TooFewClients("no client has sent prototypes of length 1")
    sums = await node.recv(ClassNorm, aggregator, timeout_s=setting.server_timeout_s, accept=frames.class_norm(cohort))
    squares = await node.compute("square_norms", he.square_norms, box.v, cohort, sums.squares.rows,
                                 cost_s=setting.cost_s("square_norms", len(cohort.rows())))
    node.send(aggregator, ClassNorms(squares))
    pairs = he.compared(cohort, squares)
    if not pairs:
        raise NotDecodable("no class sum is long enough to be compared with")
    masked = await node.recv(MaskedProducts, aggregator, timeout_s=setting.server_timeout_s,
                             accept=frames.products(cohort))
    b, j = await decide(node, setting, box, cohort, masked.products.rows, pairs)
    told, values, again = await node.compute(
        "reencrypt", he.reencrypt, box.v, box.x, cohort, masked.prototypes.rows, pairs, j,
        cost_s=setting.cost_s("reencrypt", len(cohort.sent())), volatile=setting.real)
    node.send(aggregator, Weights(b.astype(np.uint8), told, SealedRows.of(values, 0), SealedRows.of(again, 0)))


async def decide(node: Node, setting: PpfplSetting, box: Boxes, cohort: Cohort, products: Rows, pairs: list[Pair],
                 ) -> tuple[np.ndarray, np.ndarray]:
    """(b, what goes into the average as weight), both (pairs,)."""
    rule, aggregator = setting.rule, node.nodes("aggregator")[0]
    if rule.weight == "uniform":
        return np.ones(len(pairs), bool), np.ones(len(pairs))
    hidden = await node.compute("unpack", he.hidden_products, box.v, cohort, products, pairs,
                                cost_s=setting.cost_s("unpack", len(products)))
    own = box.v if not setting.iterates else box.c
    assert own is not None
    packed = await node.compute("pack", he.pack, own, hidden, volatile=setting.real,
                                cost_s=setting.cost_s("pack_C" if setting.iterates else "pack"))
    node.send(aggregator, PackedProducts(SealedRows.of(packed, 0, setting.packs)))
    if setting.iterates:
        return await refresh_and_decide(node, setting, own, pairs)
    signs = await node.recv(Signs, aggregator, timeout_s=setting.server_timeout_s,
                            accept=setting.frames.compared(len(pairs)))
    b = await node.compute("decide", he.decide, box.v, signs.values.rows, len(pairs),
                           cost_s=setting.cost_s("decide", len(signs.values.rows)))
    return b, np.where(b, hidden, 0.0)


async def refresh_and_decide(node: Node, setting: PpfplSetting, box: Box, pairs: list[Pair],
                             ) -> tuple[np.ndarray, np.ndarray]:
    """Refresh iterates as long as the aggregator sends some, then decide. Raises NothingToReceive or TimedOut."""
    aggregator = node.nodes("aggregator")[0]
    while True:
        got = await node.gather((Refresh, Excess), [aggregator], timeout_s=setting.server_timeout_s,
                                accept=setting.frames.compared(len(pairs)))
        if not got:
            raise (NothingToReceive if setting.server_timeout_s is None else TimedOut)("no iterates have come")
        message = got[aggregator]
        if isinstance(message, Excess):
            b, j = await node.compute("decide", he.decide_excess, box, message.values.rows, pairs, message.reference,
                                      setting.rule, cost_s=setting.cost_s("decide_C", len(message.values.rows)))
            return b, j
        assert isinstance(message, Refresh)
        fresh = await node.compute("refresh", refresh, box, message.a.rows, message.u.rows, volatile=setting.real,
                                   cost_s=setting.cost_s("refresh_C", 2 * len(message.a.rows)))
        node.send(aggregator, Refreshed(*(SealedRows.of(rows, 0, setting.packs) for rows in fresh)))


def refresh(box: Box, a: Rows, u: Rows) -> tuple[Rows, Rows]:
    """The same values, fresh."""
    return he.refreshed(box, a), he.refreshed(box, u)
