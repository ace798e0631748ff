"""The aggregator's rounds: it combines what it cannot read.

    prototypes out, uploads in;  norms checked;  class sums and their lengths;  masked products;  a comparison;
    weights and prototypes under the clients' key;  C_k = sum_m j_mk u_mk / sum_m j_mk

A failure keeps the prototypes that there are: a client that does not answer, or whose upload is no ciphertext or fails
the check of its norms, is left out of the round; a verifier that does not answer ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from emul.base.errors import NotDecodable, TooFewClients
from emul.base.plain import PlainDict
from emul.primitives.he.ckks import COMPARISON, PROTOTYPES, Box
from emul.protocols.demands import Demand, both, demand, shaped
from emul.roles import Node
from emul.schemes.ppfpl import ciphertexts as he
from emul.schemes.ppfpl.ciphertexts import Cohort, Pair, Rows, Seeds
from emul.schemes.ppfpl.keys import Boxes, ask_for, take_keys
from emul.schemes.ppfpl.messages import (
    Accepted,
    ClassNorm,
    ClassNorms,
    Excess,
    GlobalPrototypes,
    LocalPrototypes,
    MaskedProducts,
    NormCheck,
    PackedProducts,
    Refresh,
    Refreshed,
    SealedRows,
    Signs,
    Weights,
    held_by,
)
from emul.schemes.ppfpl.setting import PpfplSetting


@dataclass
class State:
    boxes: Boxes | None = None
    lacking: set[int] = field(default_factory=set)              # nodes that need their keys
    begun: bool = False
    latest: dict[int, Rows] = field(default_factory=dict)       # class -> the ciphertext of its newest prototype


@dataclass
class RoundFindings:
    """The findings of a round so far, for its report."""

    cohort: Cohort | None = None
    uploads: dict[int, Rows] = field(default_factory=dict)
    values: PlainDict = field(default_factory=dict)
    judged: list[int] = field(default_factory=list)             # the client of each prototype that was judged
    kept: list[int] = field(default_factory=list)               # ... and accepted
    classes: list[int] = field(default_factory=list)            # that have got a new prototype


async def aggregate(node: Node, setting: PpfplSetting, s: State, found: RoundFindings) -> None:
    """One round. Raises ProtocolFailure; `s.latest` is then what it was."""
    verifier, = node.nodes("verifier")
    box, dealt = await open_round(node, setting, s)
    seeds = Seeds(*(node.rng.bytes(32) for _ in range(6)))
    cohort, squares = await received(node, setting, box, seeds, found)
    node.send(verifier, NormCheck(np.array(sorted(cohort.held), np.uint32),
                                  held_by(cohort.held, setting.layout.classes), SealedRows.of(squares, 1),
                                  verifier in dealt))
    cohort = await accepted(node, setting, cohort, found)
    sums, squares = await node.compute("class_sum", he.class_sum, box.v, cohort, found.uploads, seeds.sums,
                                       cost_s=setting.cost_s("class_sum", len(cohort.sent()), len(cohort.rows())))
    node.send(verifier, ClassNorm(SealedRows.of(squares, 1)))
    told = await node.recv(ClassNorms, verifier, timeout_s=setting.server_timeout_s,
                           accept=both(shaped(squares=(setting.layout.classes,)), at_most(len(cohort.held))))
    pairs, t = he.compared(cohort, told.squares), np.sqrt(np.maximum(told.squares, 0))
    if not pairs:
        raise NotDecodable("no class sum is long enough to be compared with")
    products, hidden = await node.compute("products", he.products, box.v, cohort, found.uploads, sums, pairs, seeds,
                                          cost_s=setting.cost_s("products", len(cohort.sent()), len(cohort.sent())))
    node.send(verifier, MaskedProducts(SealedRows.of(products, 1), SealedRows.of(hidden, 0)))
    scale = await compare(node, setting, box, pairs, t, seeds)
    got = await node.recv(Weights, verifier, timeout_s=setting.server_timeout_s,
                          accept=setting.frames.weights(cohort, len(pairs)))
    weights = he.weigh(pairs, got.bits.tolist(), got.sums, t, scale, setting.rule, seeds)
    found.judged = [m for m, _ in pairs]
    found.kept = [m for (m, _), b in zip(pairs, got.bits.tolist(), strict=True) if b]
    rows, C = await node.compute("combine", he.combine, box.x, cohort, got.values.rows, got.prototypes.rows, weights,
                                 seeds, cost_s=setting.cost_s("combine", len(cohort.sent())))
    at = dict(zip(rows, C, strict=True))
    found.classes = weights.classes
    s.latest |= {k: at[setting.layout.place(k)[0]] for k in weights.classes}


def at_most(prototypes: int) -> Demand:
    """|T_k|^2 that a sum of so many vectors of length 1 can have, twice that for noise: else V lies, and what A
    computes with it would not be a number, or none that a ciphertext holds."""
    def accept(message: ClassNorms) -> None:
        demand(bool(np.all(message.squares <= 2.0 * prototypes**2)), "squares: above those of a sum of unit vectors")
    return accept


async def open_round(node: Node, setting: PpfplSetting, s: State) -> tuple[Boxes, list[int]]:
    """Send the prototypes to all clients: (own keys, whom the key centre was asked to send theirs)."""
    if not s.begun:
        s.begun, s.lacking = True, {*node.nodes("verifier"), *node.clients}
    if s.boxes is None:
        s.lacking.add(node.id)
    dealt = await ask_for(node, s.lacking)
    node.broadcast(node.clients, prototypes_of(s.latest, setting, dealt))
    if s.boxes is None:
        s.boxes = await take_keys(node, setting.scheme, dealt, setting.server_timeout_s,
                                  setting.load_s("aggregator"))
    return s.boxes, dealt


def prototypes_of(latest: Mapping[int, Rows], setting: PpfplSetting, dealt: Sequence[int]) -> GlobalPrototypes:
    """Each ciphertext once, and in which of them each class lies."""
    where = np.zeros(setting.layout.classes, np.uint32)
    sent: list[Rows] = []
    for k, row in sorted(latest.items()):
        at = next((i for i, other in enumerate(sent) if other is row), None)
        if at is None:
            at = len(sent)
            sent.append(row)
        where[k] = at + 1
    entries, dtype = PROTOTYPES.entries(2, setting.real)
    rows = np.stack(sent) if sent else np.zeros((0, entries), dtype)
    return GlobalPrototypes(SealedRows.of(rows, 2), where, np.array(dealt, np.uint32))


async def received(node: Node, setting: PpfplSetting, box: Boxes, seeds: Seeds,
                   found: RoundFindings) -> tuple[Cohort, Rows]:
    """(who has sent ciphertexts, their squares for the verifier). Raises TooFewClients: nobody has."""
    got = await node.gather(LocalPrototypes, node.clients, timeout_s=setting.upload_deadline_s,
                            accept=setting.frames.upload)
    held = {m: tuple(message.classes.tolist()) for m, message in sorted(got.items())}
    uploads = {m: message.sealed.rows for m, message in sorted(got.items())}
    found.values["received"], sent = len(got), sum(len(rows) for rows in uploads.values())
    if not got:
        node.abstain(node.nodes("verifier"), NormCheck)
        raise TooFewClients("no prototypes have come")
    refused, squares = await node.compute("norm", readable_norm, box.v, Cohort(setting.layout, held), uploads,
                                          seeds.norm, cost_s=setting.cost_s("norm", sent, sent))
    found.uploads = {m: rows for m, rows in uploads.items() if m not in refused}
    found.values["refused"] = "; ".join(f"{node.world.names[m]}: {why}" for m, why in refused.items())
    found.cohort = Cohort(setting.layout, held).only(list(found.uploads))
    if not found.uploads:
        node.abstain(node.nodes("verifier"), NormCheck)
        raise TooFewClients("no ciphertexts have come")
    return found.cohort, squares


def readable_norm(box: Box, cohort: Cohort, uploads: Mapping[int, Rows], seed: bytes) -> tuple[dict[int, str], Rows]:
    """({client: why its upload is no ciphertext}, the squares of all others)."""
    refused = he.readable(box, uploads)
    return refused, he.norm(box, cohort.only([m for m in cohort.held if m not in refused]), uploads, seed)


async def accepted(node: Node, setting: PpfplSetting, cohort: Cohort, found: RoundFindings) -> Cohort:
    """Those whose prototypes the verifier has found to be of length 1. Raises TooFewClients: nobody's are."""
    def bits(message: Accepted) -> None:
        shaped(accepted=(len(cohort.held),))(message)
        demand(bool((message.accepted <= 1).all()), "accepted: neither 0 nor 1")

    verdict = await node.recv(Accepted, node.nodes("verifier")[0], timeout_s=setting.server_timeout_s, accept=bits)
    left = [m for m, good in zip(cohort.held, verdict.accepted.tolist(), strict=True) if good]
    found.values["wrong_norm"] = len(cohort.held) - len(left)
    found.cohort = cohort.only(left)
    if not left:
        raise TooFewClients("no client has sent prototypes of length 1")
    return found.cohort


# --- comparison -----------------------------------------------------------------------------------------------------

async def compare(node: Node, setting: PpfplSetting, box: Boxes, pairs: list[Pair], t: np.ndarray, seeds: Seeds,
                  ) -> np.ndarray:
    """Let the verifier decide about every pair: what 1 weighs of a class in the sums that it will tell, (J,)."""
    rule, verifier = setting.rule, node.nodes("verifier")[0]
    if rule.weight == "uniform":
        return np.ones(setting.layout.classes)
    packed = await node.recv(PackedProducts, verifier, timeout_s=setting.server_timeout_s,
                             accept=setting.frames.packed(len(pairs), setting.packs))
    if not setting.iterates:
        signs = await node.compute("signs", he.signs, box.v, packed.values.rows, pairs, t, rule.chi, seeds,
                                   cost_s=setting.cost_s("signs", len(packed.values.rows)))
        node.send(verifier, Signs(SealedRows.of(signs, 1)))
        return t * (2.0 if rule.weight == "shifted" else 1.0)
    return await iterate(node, setting, box.c, packed.values.rows, pairs, t, seeds)


async def iterate(node: Node, setting: PpfplSetting, box: Box | None, packed: Rows, pairs: list[Pair], t: np.ndarray,
                  seeds: Seeds) -> np.ndarray:
    """The iterated maximum, with a refresh by the verifier wherever levels run out: p_k, (J,)."""
    assert box is not None
    rule, count, verifier = setting.rule, len(packed), node.nodes("verifier")[0]
    now = await node.compute("start", he.start, box, packed, pairs, t, rule, seeds,
                             cost_s=setting.cost_s("start_C", count))
    for _ in range(rule.d):
        if now.spent:
            now = await refresh(node, setting, box, now, len(pairs))
        now = await node.compute("iterate", he.step, box, now, cost_s=setting.cost_s("iterate_C", count))
    p, reference = he.references(setting.layout.classes, rule.chi, seeds)
    over, at = await node.compute("excess", he.excess_of, box, now, pairs, p, rule.scaled,
                                  cost_s=setting.cost_s("excess_C", count))
    node.send(verifier, Excess(SealedRows.of(over, at, COMPARISON), reference))
    return p


async def refresh(node: Node, setting: PpfplSetting, box: Box, now: he.Iterates, pairs: int) -> he.Iterates:
    """The same iterates with all their levels: the verifier sees them behind masks of full length."""
    seed, verifier = node.rng.bytes(32), node.nodes("verifier")[0]
    hidden = await node.compute("mask", he.masked, box, now, seed, cost_s=setting.cost_s("mask_C", len(now.a)))
    node.send(verifier,
              Refresh(SealedRows.of(hidden.a, now.at[0], COMPARISON), SealedRows.of(hidden.u, now.at[1], COMPARISON)))
    fresh = await node.recv(Refreshed, verifier, timeout_s=setting.server_timeout_s,
                            accept=setting.frames.refreshed(pairs))
    found: he.Iterates = await node.compute("mask", he.masked, box,
                                            he.Iterates(now.q, fresh.a.rows, fresh.u.rows, (0, 0)), seed, -1,
                                            cost_s=setting.cost_s("mask_C", len(now.a)))
    return found
