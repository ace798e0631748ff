"""Attacks on the privacy of PPFPL's clients by its verifier, found by `emul.registry.attacks`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from emul.primitives.he.ckks import PROTOTYPES, Box, Ckks, Plain
from emul.roles.evidence import Evidence, Needs, Rows
from emul.schemes.ppfpl.ciphertexts import Cohort
from emul.schemes.ppfpl.messages import cohort_of
from emul.schemes.ppfpl.slots import Layout

# --- what the verifier decrypts in a run that was kept, beside what it should not learn -----------------------------

PAYLOADS = ("LocalPrototypes", "NormCheck", "Accepted", "ClassNorm", "MaskedProducts")


@dataclass(frozen=True)
class SeenCiphertext:
    """One ciphertext that the verifier has got."""

    round: int
    message: str
    client: str                         # its client; "": of nobody's alone
    row: int                            # of the table of all classes
    slots: np.ndarray                   # (4096,) what it decrypts to
    secret: np.ndarray                  # (4096,) the prototypes in these slots, or their sum


def box_of(evidence: Evidence) -> Box:
    """The verifier's keys. Raises NotKept where it was sent some and they were not kept."""
    if evidence.params.he == "plain":
        return Plain(PROTOTYPES)
    verifier = evidence.names[evidence.roles["verifier"][0]]
    return Ckks(PROTOTYPES, evidence.messages("Keys", to=verifier)[0].message.v)


def layout_of(evidence: Evidence) -> Layout:
    """The layout of classes in the rows."""
    task = evidence.node(evidence.names[evidence.roles["client"][0]])
    return Layout(task.classes, task.feature_size, PROTOTYPES.slots, evidence.params.layout == "packed")


def seen_by_verifier(evidence: Evidence) -> Iterator[SeenCiphertext]:
    """Every ciphertext of the rounds that were kept, in the order of sending, with what it hides."""
    box, layout = box_of(evidence), layout_of(evidence)
    verifier = evidence.names[evidence.roles["verifier"][0]]
    for one in evidence.messages("NormCheck", to=verifier):
        cohort = cohort_of(one.message, layout)
        truth = _prototypes(evidence, box, cohort, one.round)
        yield from _of_clients(evidence, box, cohort, truth, one.round, {"NormCheck": one.message.squares.rows})
        for verdict in evidence.messages("Accepted", round_=one.round):
            good = verdict.message.accepted.tolist()
            cohort = cohort.only([m for m, accepted in zip(cohort.held, good, strict=True) if accepted])
        for sums in evidence.messages("ClassNorm", round_=one.round, to=verifier):
            for row, cipher in zip(cohort.rows(), box.open(sums.message.squares.rows), strict=True):
                total = np.sum([truth[at] for at in cohort.sent() if at[1] == row], axis=0)
                yield SeenCiphertext(one.round, "ClassNorm", "", row, _slots(box, cipher, layout), total)
        for products in evidence.messages("MaskedProducts", round_=one.round, to=verifier):
            yield from _of_clients(evidence, box, cohort, truth, one.round, {
                "products": products.message.products.rows, "prototypes": products.message.prototypes.rows})


def _of_clients(evidence: Evidence, box: Box, cohort: Cohort, truth: dict[tuple[int, int], np.ndarray], round_: int,
                found: dict[str, Any]) -> Iterator[SeenCiphertext]:
    for message, rows in found.items():
        for (m, row), cipher in zip(cohort.sent(), box.open(rows), strict=True):
            yield SeenCiphertext(round_, message, evidence.names[m], row, _slots(box, cipher, cohort.layout),
                                 truth[m, row])


def _prototypes(evidence: Evidence, box: Box, cohort: Cohort, round_: int) -> dict[tuple[int, int], np.ndarray]:
    """(client, row) -> what it has sent: the verifier's key opens it, but the verifier does not get it."""
    found: dict[tuple[int, int], np.ndarray] = {}
    for one in evidence.messages("LocalPrototypes", round_=round_):
        if one.source in cohort.held:
            rows = cohort.layout.rows_of(cohort.held[one.source])
            found |= {(one.source, row): box.decrypt(cipher)
                      for row, cipher in zip(rows, box.open(one.message.sealed.rows), strict=True)}
    return found


def _slots(box: Box, cipher: object, layout: Layout) -> np.ndarray:
    found = box.decrypt(cipher)
    return found if len(found) == layout.slots else np.full(layout.slots, found[0])


# --- prototypes that one random vector multiplies: what a server makes of it that sees enough of them ---------------

@dataclass(frozen=True)
class SharedMask:
    """PPFPL's printed mask, V o u with one vector V for all prototypes of a round: lengths of 1 are linear equations
    in 1 / V_i^2. Against Zhang et al., arXiv 2504.03173, 2025 (E6 in docs/schemes/ppfpl.md); fresh additive masks
    stop it.

    The attacker holds what the verifier has: its key (of a run with `he: ckks` keep `Keys`, too) and what it got. It
    takes the masked prototypes of a round for V o u, solves for V, and says what u then would be. It needs
    `record: {payloads: [LocalPrototypes, NormCheck, Accepted, ClassNorm, MaskedProducts]}`.
    """

    NEEDS: ClassVar[Needs] = Needs(payloads=PAYLOADS, schemes=("ppfpl",))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: prototypes; cosine (mean, of what was found with the truth), recovered (share with 0.999)."""
        layout, found = layout_of(evidence), []
        of_round: dict[int, tuple[list[np.ndarray], list[np.ndarray]]] = {}
        held = {one.round: cohort_of(one.message, layout).held for one in evidence.messages("NormCheck")}
        number = {name: node for node, name in enumerate(evidence.names)}
        for one in seen_by_verifier(evidence):
            if one.message == "prototypes":
                masked, true = of_round.setdefault(one.round, ([], []))
                for k in held[one.round][number[one.client]]:
                    if layout.place(k)[0] == one.row:
                        masked.append(layout.vector(k, one.slots))
                        true.append(layout.vector(k, one.secret))
        for round_, (masked, true) in of_round.items():
            cosines = likeness(np.stack(masked) / shared_mask(np.stack(masked)), np.stack(true))
            found.append({"node": evidence.names[evidence.roles["verifier"][0]], "round": round_,
                          "prototypes": len(masked), "cosine": float(cosines.mean()),
                          "recovered": float((cosines > 0.999).mean())})
        return found


def shared_mask(masked: np.ndarray) -> np.ndarray:
    """|V| (n,) of V o u for unit vectors u: masked (m, n), of sum_i masked_ij^2 / V_i^2 = 1 for each j.

    m >= n of them, in general position, have one solution. Where the equations have none with a positive 1 / V_i^2,
    V_i is infinite: nothing was found there. Zhang et al., arXiv 2504.03173, the masks of Algorithm 5.
    """
    inverse = np.linalg.lstsq(masked**2, np.ones(len(masked)), rcond=None)[0]          # 1 / V^2
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.where(inverse > 0, 1 / np.sqrt(np.maximum(inverse, 0)), np.inf)
    return found


def likeness(guess: np.ndarray, true: np.ndarray) -> np.ndarray:
    """(m,) cosines of what was guessed with the truth, by their size; (m, n) both. 0 where nothing was guessed."""
    length = np.linalg.norm(guess, axis=1) * np.linalg.norm(true, axis=1)
    found: np.ndarray = np.abs((guess * true).sum(1)) / np.where(length > 0, length, np.inf)
    return found


# --- does what a server decrypts say more than the sums that it is entitled to? A look at every slot ----------------

BELOW = 0.08                            # of a rank correlation over 4,096 slots: five standard deviations of none


@dataclass(frozen=True)
class SlotLeak:
    """Every slot of every ciphertext that PPFPL's verifier gets, against the prototypes that it hides. A mask as long
    as a vector, and not as its ciphertext, leaves copies of it bare. Against a naive use of TenSEAL 0.3.18, which
    repeats short vectors; Zhang et al., arXiv 2504.03173, 2025, do not mention it.

    The attacker holds what the verifier has: its key (of a run with `he: ckks` keep `Keys`, too) and what it got. With
    `layout: per_class` it gets sums as one number in all slots, so only what carries prototypes is looked at. It needs
    what `shared_mask` needs.
    """

    NEEDS: ClassVar[Needs] = Needs(payloads=PAYLOADS, schemes=("ppfpl",))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: message, client, row; correlation, distinct (share of slots), leaks."""
        packed, verifier = evidence.params.layout == "packed", evidence.names[evidence.roles["verifier"][0]]
        return [{"node": verifier, "round": one.round, "message": one.message, "client": one.client, "row": one.row,
                 **leakage(one.slots, one.secret)}
                for one in seen_by_verifier(evidence) if packed or one.message == "prototypes"]


def leakage(slots: np.ndarray, secret: np.ndarray) -> dict[str, float | bool]:
    """Measures of the information in decrypted slots (n,) about the secret behind them: the largest rank correlation
    with the secret (n,) or its square, by its size; the share of slots that differ from all others; whether either says
    that something leaks.

    >>> mask = np.random.default_rng(0).uniform(-2**20, 2**20, 4096)
    >>> secret = np.random.default_rng(1).standard_normal(4096)
    >>> leakage(secret + mask, secret)["leaks"]
    False
    >>> leakage(secret + np.where(np.arange(4096) < 64, mask, 0), secret)["leaks"]
    True
    """
    ranks = np.argsort(np.argsort(slots)).astype(np.float64)
    correlation = max(abs(_correlation(ranks, secret)), abs(_correlation(ranks, secret**2)))
    distinct = len(np.unique(np.round(slots, 6))) / len(slots)
    return {"correlation": correlation, "distinct": distinct, "leaks": bool(correlation > BELOW or distinct < 1)}


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if not (a.std() and b.std()):
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


ATTACKS = {"privacy": {"shared_mask": SharedMask, "slot_leak": SlotLeak}}
