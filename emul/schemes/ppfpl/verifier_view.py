"""The values that PPFPL's verifier decrypts in a run that was kept, beside those that it should not learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.primitives.he.ckks import PROTOTYPES, Box, Ckks, Plain
from emul.roles.evidence import Evidence
from emul.schemes.ppfpl.ciphertexts import Cohort
from emul.schemes.ppfpl.messages import cohort_of
from emul.schemes.ppfpl.slots import Layout

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
