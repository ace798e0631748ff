"""Prototypes that one random vector multiplies: what a server makes of it that sees enough of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emul.roles.evidence import Evidence, Needs, Rows
from emul.schemes.ppfpl.messages import cohort_of
from emul.schemes.ppfpl.verifier_view import PAYLOADS, layout_of, seen_by_verifier


@dataclass(frozen=True)
class SharedMask:
    """PPFPL's printed mask, V o u with one vector V for all prototypes of a round: lengths of 1 are linear equations
    in 1 / V_i^2. Against Zhang et al., arXiv 2504.03173, 2025 (E6 in docs/schemes/ppfpl.md); fresh additive masks
    stop it.

    The attacker holds what the verifier has: its key (of a run with `he: ckks` keep `Keys`, too) and what it got. It
    takes the masked prototypes of a round for V o u, solves for V, and says what u then would be.
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
